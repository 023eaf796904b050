/* fatbin: the text of PTX that nvcc has embedded in a module. */
#ifndef PTX_FATBIN_H
#define PTX_FATBIN_H

#include <stddef.h>

/* What a GPU of this capability would run, with a 0 behind its n bytes, to be freed; NULL: none.
 * wrapper is what __cudaRegisterFatBinary is given. */
char *fatbin_ptx(const void *wrapper, int capability, size_t *n);

#endif

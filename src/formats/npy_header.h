/* npy_header: the header of a NumPy .npy file of versions 1 to 3, for one-dimensional arrays of
 * integers. Internal to formats; no I/O. */
#ifndef ZINF_NPY_HEADER_H
#define ZINF_NPY_HEADER_H

#include "base/base.h"

#define ZINF_NPY_PREAMBLE_BYTES 12 /* magic, version, length: 10 bytes in version 1 */
#define ZINF_NPY_MAX_TEXT_BYTES 65535

struct zinf_npy_header {
    unsigned elem_bytes; /* 1, 2, 4, 8 */
    bool is_signed;
    uint64_t count;
};

bool zinf_npy_has_magic(const void *first, uint64_t bytes);
/* Finds the header's dictionary from the first ZINF_NPY_PREAMBLE_BYTES of a file. */
int zinf_npy_preamble(const char *what, const void *first, uint64_t file_bytes, uint64_t *offset,
                      uint64_t *bytes);
/* Parses the dictionary, such as {'descr': '<u2', 'fortran_order': False, 'shape': (N,), }. */
int zinf_npy_header_parse(struct zinf_npy_header *out, const char *what, const char *text,
                          uint64_t bytes);

#endif

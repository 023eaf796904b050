/*
 * library: shared libraries that are not where the linker looks. A CUDA toolkit may lie anywhere,
 * and Python's packages bring libraries of their own, each in a folder that nobody else knows.
 */
#ifndef ZINF_LIBRARY_H
#define ZINF_LIBRARY_H

/* Loads the library of this name from the folders that ZINF_CUDA_LIBRARIES, CUDA_HOME, CUDA_PATH,
 * CONDA_PREFIX and VIRTUAL_ENV name, or from the usual ones of a CUDA toolkit and of Python's
 * nvidia packages. NULL: it is in none. It stays loaded; any thread. */
void *zinf_library_find(const char *name);

#endif

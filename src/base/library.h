/*
 * library: finds shared libraries outside the linker's paths. A CUDA toolkit may be installed
 * anywhere, and Python packages bring libraries in folders of their own.
 */
#ifndef ZINF_LIBRARY_H
#define ZINF_LIBRARY_H

/* Loads the library `name` from a folder that ZINF_CUDA_LIBRARIES, CUDA_HOME, CUDA_PATH,
 * CONDA_PREFIX or VIRTUAL_ENV names, or from the usual folders of CUDA toolkits and of Python's
 * nvidia packages. It stays loaded. NULL: not found. Any thread. */
void *zinf_library_find(const char *name);

#endif

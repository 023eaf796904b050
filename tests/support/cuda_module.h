/*
 * cuda_module: the stand-in for CUDA as the module that it is for the program, and for NCCL, which
 * is in it: for tests whose devices and links find it as they find the real ones.
 */
#ifndef ZINF_CUDA_MODULE_H
#define ZINF_CUDA_MODULE_H

#include "standin.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

/* Under the thread sanitizer everything runs at once, and what no event orders is reported. */
#ifdef __SANITIZE_THREAD__
enum { STANDIN_RACES = true };
#else
enum { STANDIN_RACES = false };
#endif

static struct {
    void (*start)(const struct standin_options *options);
    int (*faults)(void);
    const char *(*first_fault)(void);
    int (*live)(void);
    void (*nccl_fail)(int rank, int launch, enum standin_nccl_trouble trouble);
} standin;

static inline void *standin_find(void *module, const char *name)
{
    void *found = dlsym(module, name);
    if (!found)
        printf("Bail out! the stand-in has no %s\n", name);
    return found;
}

static inline void standin_open(void)
{
    char path[700];
    const char *build = getenv("BUILDDIR");
    snprintf(path, sizeof path, "%s/tests/.libs/zinf-cuda-standin.so", build ? build : ".");
    setenv("ZINF_CUDA_MODULE", path, 1);
    setenv("ZINF_NCCL_LIBRARY", path, 1);
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        printf("Bail out! %s\n", dlerror());
        exit(1);
    }
    *(void **)&standin.start = standin_find(module, "standin_start");
    *(void **)&standin.faults = standin_find(module, "standin_faults");
    *(void **)&standin.first_fault = standin_find(module, "standin_first_fault");
    *(void **)&standin.live = standin_find(module, "standin_live");
    *(void **)&standin.nccl_fail = standin_find(module, "standin_nccl_fail");
}

#endif

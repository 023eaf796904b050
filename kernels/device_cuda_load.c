/*
 * device_cuda_load: finds the CUDA device at run time. The module zinf-cuda.so is the only file
 * that links to CUDA, so that one build of the library starts on machines with and without it.
 * It stays loaded until the process ends: CUDA does not survive being unloaded.
 */
#include "kernels/device.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

static const struct cuda_module_base module_base = {
    .fail = zinf_fail,
    .log_once = zinf_log_once,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cuda_create_function *cuda_create; /* set once, with why_not empty */
static char why_not[512];

/* The driver library says how many GPUs there are without any CUDA toolkit. */
static bool find_driver(void)
{
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (!driver) {
        snprintf(why_not, sizeof why_not, "no NVIDIA driver here (%s)", dlerror());
        return false;
    }
    int (*init)(unsigned) = (int (*)(unsigned))(uintptr_t)dlsym(driver, "cuInit");
    int (*count)(int *) = (int (*)(int *))(uintptr_t)dlsym(driver, "cuDeviceGetCount");
    int n_devices = 0, code = init && count ? init(0) : -1;
    if (!code)
        code = count(&n_devices);
    if (code)
        snprintf(why_not, sizeof why_not, "the NVIDIA driver does not start (CUDA error %d)", code);
    else if (!n_devices)
        snprintf(why_not, sizeof why_not, "the NVIDIA driver sees no GPU");
    return !code && n_devices > 0;
}

static void find_module(void)
{
    /* The variable is for a module that is built but not installed, or for tests; a program that
     * runs with more rights than its caller does not load what that one names. */
    const char *path = secure_getenv("ZINF_CUDA_MODULE");
    if (!path || !*path)
        path = ZINF_PKGLIBDIR "/zinf-cuda.so";
    void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!module) {
        snprintf(why_not, sizeof why_not,
                 "no CUDA module (%s); build with --with-cuda and install it", dlerror());
        return;
    }
    cuda_create = (cuda_create_function *)(uintptr_t)dlsym(module, "zinf_device_cuda_create");
    if (!cuda_create)
        snprintf(why_not, sizeof why_not, "%s is no CUDA module of this version: install it again",
                 path);
}

/* A module that is named is taken as it is: it may bring a driver of its own, and says itself what
 * it misses. */
static void look(void)
{
    const char *named = secure_getenv("ZINF_CUDA_MODULE");
    if ((named && *named) || find_driver())
        find_module();
}

const char *zinf_device_cuda_why_not(void)
{
    pthread_once(&once, look);
    return why_not[0] ? why_not : NULL;
}

int cuda_device_load(struct zinf_device **out, const struct zinf_device_options *options)
{
    const char *reason = zinf_device_cuda_why_not();
    if (reason)
        return zinf_fail(-ENODEV, "no CUDA device: %s", reason);
    struct zinf_device_options resolved = *options;
    if (!resolved.n_threads) /* of what is left to the CPU */
        resolved.n_threads = zinf_cpu_count();
    return cuda_create(out, &resolved, &module_base);
}

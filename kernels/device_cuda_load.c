/*
 * device_cuda_load: finds the CUDA device at run time. The module zinf-cuda.so is the only file
 * that links to CUDA, so that one build of the library starts on machines with and without it.
 * It stays loaded until the process ends: CUDA does not survive being unloaded.
 *
 * The module's libraries need not be where the linker looks: a toolkit may lie anywhere, and
 * Python's packages bring libraries of their own. Where the module does not load for want of one,
 * the usual folders are looked through, and the library is loaded before the module, which then
 * takes the one that is there.
 */
#include "base/library.h"
#include "kernels/device.h"
#include "kernels/device_interface.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct cuda_module_base module_base = {
    .fail = zinf_fail,
    .log_once = zinf_log_once,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static cuda_create_function *cuda_create; /* set once, with why_not empty */
static cuda_count_function *cuda_gpus;
static char why_not[1024];

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

/* ---- the module's libraries ---- */

/* What dlopen() misses by its message "NAME: cannot open shared object file: ..."; false: another
 * error, or the module itself. */
static bool missing_library(const char *message, char *name, size_t bytes)
{
    size_t length = strcspn(message, ":");
    bool missing = strstr(message, "cannot open shared object file") && length < bytes &&
                   !memchr(message, '/', length);
    if (missing)
        snprintf(name, bytes, "%.*s", (int)length, message);
    return missing;
}

static void *open_module(const char *path)
{
    enum { MOST_LIBRARIES = 8 };
    char name[256];
    for (int i = 0; i < MOST_LIBRARIES; i++) {
        void *module = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        const char *message = module ? NULL : dlerror();
        if (module)
            return module;
        if (!missing_library(message, name, sizeof name)) {
            snprintf(why_not, sizeof why_not,
                     "no CUDA module (%s); build with --with-cuda and install it", message);
            return NULL;
        }
        if (!zinf_library_find(name)) {
            snprintf(why_not, sizeof why_not,
                     "the CUDA module needs %s, which is neither where the linker looks nor in the "
                     "usual folders of a CUDA toolkit or of Python's nvidia packages; install it "
                     "(cuBLAS of the CUDA toolkit, or pip install nvidia-cublas) or name its "
                     "folder in ZINF_CUDA_LIBRARIES",
                     name);
            return NULL;
        }
    }
    snprintf(why_not, sizeof why_not,
             "%s needs too many libraries that are not where the linker looks", path);
    return NULL;
}

static void find_module(void)
{
    /* ZINF_CUDA_MODULE names a module that is built but not installed, or a test's. secure_getenv
     * does not read it in a program that has more rights than its caller. */
    const char *path = secure_getenv("ZINF_CUDA_MODULE");
    if (!path || !*path)
        path = ZINF_PKGLIBDIR "/zinf-cuda.so";
    void *module = open_module(path);
    if (!module)
        return;
    cuda_create = (cuda_create_function *)(uintptr_t)dlsym(module, "zinf_device_cuda_create");
    cuda_gpus = (cuda_count_function *)(uintptr_t)dlsym(module, "zinf_device_cuda_gpus");
    const char *interface = dlsym(module, "zinf_device_cuda_interface");
    if (!cuda_create || !cuda_gpus || !interface || strcmp(interface, ZINF_DEVICE_INTERFACE) != 0)
        snprintf(why_not, sizeof why_not,
                 "%s is no CUDA module of this version: it is of %.60s, and this zinf "
                 "of " ZINF_DEVICE_INTERFACE "; build and install both from the same sources",
                 path, interface ? interface : "one without a number");
}

/* A module that is named may bring a driver of its own, so no driver is looked for. The module
 * itself says what it misses. */
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

int zinf_device_cuda_count(void)
{
    int count = zinf_device_cuda_why_not() ? 0 : cuda_gpus();
    return count > 0 ? count : 0;
}

int cuda_device_load(struct zinf_device **out, const struct zinf_device_options *options)
{
    const char *reason = zinf_device_cuda_why_not();
    if (reason)
        return zinf_fail(
            -ENODEV,
            "no CUDA device: %s; 'zinf doctor' says what is missing, with --device host "
            "a training runs on the CPU",
            reason);
    struct zinf_device_options resolved = *options;
    const char *gpu = getenv("ZINF_GPU");
    if (!resolved.n_threads) /* updates on the CPU go on beside the GPU */
        resolved.n_threads = zinf_cpu_count();
    if (!resolved.index && gpu && *gpu) {
        char *end;
        long index = strtol(gpu, &end, 10);
        if (*end || index < 0 || index > 1023)
            return zinf_fail(-EINVAL, "ZINF_GPU=%s is no number of a GPU: give 0, 1, ...", gpu);
        resolved.index = (int)index;
    }
    return cuda_create(out, &resolved, &module_base);
}

/*
 * module: the door of zinf-cuda.so. The program that loads it may export nothing, so errors and
 * lines of the log go to it by pointers; the module has them under their own names. Of base it
 * holds the files that compute without state.
 */
#include "kernels/cuda/device.h"
#include "kernels/device.h"
#include "kernels/device_interface.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

/* Seats open their devices at once, all with the same. */
static _Atomic(const struct cuda_module_base *) base;

int zinf_device_cuda_create(struct zinf_device **out, const struct zinf_device_options *options,
                            const struct cuda_module_base *calls)
{
    atomic_store(&base, calls);
    return cuda_device_create(out, options);
}

const char zinf_device_cuda_interface[] = ZINF_DEVICE_INTERFACE;

int zinf_device_cuda_gpus(void)
{
    return cuda_count_gpus();
}

int zinf_fail(int code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return atomic_load(&base)->fail(code, "%s", text);
}

void zinf_log_once(enum zinf_log_level level, const char *key, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    atomic_load(&base)->log_once(level, key, "%s", text);
}

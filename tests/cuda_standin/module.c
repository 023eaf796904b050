/*
 * module: the stand-in as the CUDA module of a program that knows nothing of it (ZINF_CUDA_MODULE):
 * whole trainings run on it. It begins with what the environment says; a test may begin anew by
 * standin_start, which it finds in the module. Errors and lines of the log go to the program.
 */
#include "kernels/cuda/device.h"
#include "kernels/device.h"
#include "standin.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static const struct cuda_module_base *base;

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *text = getenv(name);
    return text ? strtoull(text, NULL, 10) : otherwise;
}

__attribute__((constructor)) static void start(void)
{
    struct standin_options options = {
        .seed = number("ZINF_STANDIN_SEED", 0),
        .memory_bytes = (size_t)number("ZINF_STANDIN_MEMORY", 1u << 30),
        .dawdle_us = (unsigned)number("ZINF_STANDIN_DAWDLE_US", 0),
    };
    standin_start(&options);
}

int zinf_device_cuda_create(struct zinf_device **out, const struct zinf_device_options *options,
                            const struct cuda_module_base *calls)
{
    base = calls;
    return cuda_device_create(out, options);
}

int zinf_fail(int code, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    return base->fail(code, "%s", text);
}

void zinf_log_once(enum zinf_log_level level, const char *key, const char *format, ...)
{
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    base->log_once(level, key, "%s", text);
}

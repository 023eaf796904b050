/* device: what device.c needs of the CUDA module's loader. */
#ifndef ZINF_DEVICE_H
#define ZINF_DEVICE_H

#include "kernels/kernels.h"

/* The functions of the program that the module calls; it does not link to the program. */
struct cuda_module_base {
    int (*fail)(int code, const char *format, ...) ZINF_PRINTF(2, 3);
    void (*log_once)(enum zinf_log_level level, const char *key, const char *format, ...)
        ZINF_PRINTF(3, 4);
};
/* The module's symbols. */
typedef int cuda_create_function(struct zinf_device **out,
                                 const struct zinf_device_options *options,
                                 const struct cuda_module_base *base);
cuda_create_function zinf_device_cuda_create;
/* The number of GPUs that it sees; 0 or less: none. */
typedef int cuda_count_function(void);
cuda_count_function zinf_device_cuda_gpus;
/* ZINF_DEVICE_INTERFACE (kernels/local.mk) of the headers that the module was compiled with. */
extern const char zinf_device_cuda_interface[];

/* Creates the device. -ENODEV if there is no module or driver; the message has
 * zinf_device_cuda_why_not(). */
int cuda_device_load(struct zinf_device **out, const struct zinf_device_options *options);
#endif

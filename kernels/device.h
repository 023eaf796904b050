/* device: what device.c needs of the CUDA module's loader. */
#ifndef ZINF_DEVICE_H
#define ZINF_DEVICE_H

#include "kernels/kernels.h"

/* What the module calls of the program; it links to nothing of ours. */
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
/* And how many GPUs it sees; 0 or less: none. */
typedef int cuda_count_function(void);
cuda_count_function zinf_device_cuda_gpus;
/* And which program's it is: ZINF_DEVICE_INTERFACE (kernels/local.mk) of what it was compiled with.
 */
extern const char zinf_device_cuda_interface[];

/* -ENODEV with zinf_device_cuda_why_not() in the message where there is no module or driver. */
int cuda_device_load(struct zinf_device **out, const struct zinf_device_options *options);
#endif

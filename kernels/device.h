/* device: what device.c needs of the CUDA module's loader. */
#ifndef ZINF_DEVICE_H
#define ZINF_DEVICE_H

#include "kernels/kernels.h"

/* -ENODEV with zinf_device_cuda_why_not() in the message where there is no module or driver. */
int cuda_device_load(struct zinf_device **out, const struct zinf_device_options *options);

#endif

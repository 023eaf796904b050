/*
 * packed: arrays that lie packed in a device's memory (base/packed.h), a part of kernels.h. They
 * are packed by the CPU, before they come there.
 */
#ifndef ZINF_KERNELS_PACKED_H
#define ZINF_KERNELS_PACKED_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* x[i] = element i of the image, every bit of it. The image begins on a multiple of 64; somebody
 * has checked its head and table (zinf_pack_check). Damage of its payload gives other numbers, but
 * nothing outside of image and x is read or written for it; *damaged becomes 1 then, and is not
 * touched else. */
struct zinf_packed_array {
    void *x; /* [n], as dtype is aligned */
    enum zinf_dtype dtype;
    uint64_t n;
    const void *image;
    uint32_t *damaged; /* in the device's memory; NULL: nobody asks */
};

#ifdef __cplusplus
}
#endif
#endif

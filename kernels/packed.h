/*
 * packed: arrays that are packed (base/packed.h) in a device's memory. The CPU packs them. A part
 * of kernels.h.
 */
#ifndef ZINF_KERNELS_PACKED_H
#define ZINF_KERNELS_PACKED_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Unpacks an image to x without loss. The image begins at a multiple of 64, and its head and table
 * were checked (zinf_pack_check). A damaged payload gives wrong numbers but no access outside image
 * and x, and sets *damaged to 1, which is not written otherwise. */
struct zinf_packed_array {
    void *x; /* [n], aligned as dtype */
    enum zinf_dtype dtype;
    uint64_t n;
    const void *image;
    uint32_t *damaged; /* in the device's memory; NULL: not wanted */
};

#ifdef __cplusplus
}
#endif
#endif

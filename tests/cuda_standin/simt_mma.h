/* simt_mma: the CPU's bodies of a warp's tensor-core operations (kernels/cuda/mma.cuh): every lane
 * gives its registers to the warp and makes its own part of the result from all of them. */
#ifndef STANDIN_SIMT_MMA_H
#define STANDIN_SIMT_MMA_H

#include "simt.h"

DEVICE int lane_id()
{
    return simt_lane();
}

template <class T> DEVICE constexpr bool compiles(int head)
{
    return head > 0;
}

/* Half number i of a lane's words. */
DEVICE uint32_t half_of(const uint32_t *words, int i)
{
    return words[i / 2] >> (16 * (i % 2)) & 0xffff;
}

typedef const char *tile_place;
DEVICE tile_place place_of(const void *address)
{
    return (const char *)address;
}

/* Row l % 8 of matrix l / 8 comes from lane l, whole: a later store cannot change it. */
template <bool TRANSPOSE> DEVICE void load_matrices(uint32_t (&r)[4], tile_place row)
{
    uint32_t words[4];
    memcpy(words, row, sizeof words);
    if ((uintptr_t)row % 16)
        standin_fault(cudaErrorIllegalAddress, "ldmatrix of an address that is not aligned");
    const simt_words *all = simt_sync_warp(words, 4);
    int g = simt_lane() / 4, t = simt_lane() % 4;
    for (int m = 0; m < 4; m++)
        r[m] = TRANSPOSE ? half_of(all[8 * m + 2 * t], g) | half_of(all[8 * m + 2 * t + 1], g) << 16
                         : all[8 * m + g][t];
}

template <class T>
DEVICE void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1, T)
{
    const uint32_t words[6] = {a[0], a[1], a[2], a[3], b0, b1};
    const simt_words *all = simt_sync_warp(words, 6);
    int g = simt_lane() / 4, t = simt_lane() % 4;
    for (int e = 0; e < 4; e++)
        for (int k = 0; k < 16; k++) {
            /* A (g + 8 (e / 2), k) and B (k, 2t + e % 2) in the lanes that hold them */
            T left, right;
            int word = k / 8, half = k % 2;
            left.bits = (uint16_t)half_of(&all[4 * g + k % 8 / 2][2 * word + e / 2], half);
            right.bits = (uint16_t)half_of(&all[4 * (2 * t + e % 2) + k % 8 / 2][4 + word], half);
            c[e] += to_float(left) * to_float(right);
        }
}

#endif

/*
 * random: counter-based random numbers. Philox-4x32-10 (Salmon et al., "Parallel Random Numbers:
 * As Easy as 1, 2, 3", SC'11): the value is a pure function of (key, counter), so that placement,
 * recomputation, threads and look-ahead can never change it. No state, any thread.
 */
#ifndef ZINF_RANDOM_H
#define ZINF_RANDOM_H

#include <stdint.h>

/* One block: out[0..3] = philox4x32_10(counter[0..3], key[0..1]). */
static inline void zinf_philox(const uint32_t counter[4], uint64_t key, uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xD2511F53u * c0;
        uint64_t p1 = (uint64_t)0xCD9E8D57u * c2;
        uint32_t n0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        uint32_t n2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c1 = (uint32_t)p1;
        c3 = (uint32_t)p0;
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

/* Uniform in [0, 1), 24 bits: exact in fp32. */
static inline float zinf_uniform(uint32_t bits)
{
    return (float)(bits >> 8) * 0x1p-24f;
}

/* dst[i] = mean + std * N(0,1) for element first + i of stream (key, stream); Box-Muller over
 * pairs of elements. The same element gives the same value whatever the cut. */
void zinf_normal_fill(float *dst, uint64_t first, uint64_t n, uint64_t key, uint64_t stream,
                      float mean, float std);

/* dst[i] = bound * u with u uniform in [-1, 1), for element first + i of stream (key, stream). The
 * same element gives the same value whatever the cut. */
void zinf_uniform_fill(float *dst, uint64_t first, uint64_t n, uint64_t key, uint64_t stream,
                       float bound);

/* The place of index in the shuffled order of [0, n) that key determines. O(1), without a table (a
 * 4-round Feistel network with cycle walking). */
uint64_t zinf_permute(uint64_t index, uint64_t n, uint64_t key);

#endif

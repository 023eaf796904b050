/*
 * random: normal numbers and shuffles as pure functions of key and index. The loops are plain
 * arithmetic over whole runs of elements, so that the compiler's vectoriser serves; no libm, so
 * that vector and scalar code agree to the bit and no cut of a range shows.
 */
#include "base/random.h"

#include <string.h>

#define RUN_BLOCKS 64 /* blocks of four elements worked on at once */

/* ln(u) for u = (bits + 1) / 2^32, in (0, 1]; absolute error below 2e-7. */
static inline float log_uniform(uint32_t bits)
{
    float value = (float)bits * 0x1p-32f + 0x1p-33f;
    uint32_t word;
    memcpy(&word, &value, sizeof word);
    /* value = 2^e m with m in [sqrt(1/2), sqrt(2)) */
    uint32_t shifted = word - 0x3f3504f3u;
    int32_t exponent = (int32_t)shifted >> 23;
    word = (shifted & 0x007fffffu) + 0x3f3504f3u;
    float m;
    memcpy(&m, &word, sizeof m);
    /* ln m = 2 atanh(s), s = (m-1)/(m+1), |s| <= 0.1716 */
    float s = (m - 1.0f) / (m + 1.0f), z = s * s;
    float tail = ((0.1111111f * z + 0.1428571f) * z + 0.2f) * z + 0.3333333f;
    return (float)exponent * 0.69314718f + 2.0f * (s + s * z * tail);
}

/* cos and sin of 2 pi bits / 2^32, by quadrant and Taylor polynomials on [-pi/4, pi/4]. */
static inline void turn(uint32_t bits, float *cosine, float *sine)
{
    uint32_t quadrant = (bits + 0x20000000u) >> 30;
    float x = (float)(int32_t)(bits - (quadrant << 30)) * (1.5707963268f * 0x1p-30f);
    float z = x * x;
    float s = x + x * z * (-0.16666667f + z * (0.0083333333f - z * 0.00019841270f));
    float c = 1.0f - 0.5f * z + z * z * (0.041666667f - z * (0.0013888889f - z * 0.000024801587f));
    float swapped_c = quadrant & 1 ? s : c, swapped_s = quadrant & 1 ? c : s;
    *cosine = (quadrant + 1) & 2 ? -swapped_c : swapped_c;
    *sine = quadrant & 2 ? -swapped_s : swapped_s;
}

/* Square root of a value in [0, 50]: the hardware's, correctly rounded. */
static inline float root(float value)
{
    return __builtin_sqrtf(value);
}

/* Elements 4 first .. 4 (first + n_blocks): Box-Muller over pairs of each Philox block. */
static void fill_run(float *dst, uint64_t first, int n_blocks, uint64_t key, uint64_t stream,
                     float mean, float std)
{
    uint32_t bits[4][RUN_BLOCKS];
    for (int i = 0; i < n_blocks; i++) {
        uint64_t block = first + (uint64_t)i;
        uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                               (uint32_t)(stream >> 32)};
        uint32_t out[4];
        zinf_philox(counter, key, out);
        for (int k = 0; k < 4; k++)
            bits[k][i] = out[k];
    }
    float normal[4][RUN_BLOCKS];
    for (int pair = 0; pair < 4; pair += 2)
        for (int i = 0; i < n_blocks; i++) {
            float cosine, sine, radius = root(-2.0f * log_uniform(bits[pair][i]) + 0.0f);
            turn(bits[pair + 1][i], &cosine, &sine);
            normal[pair][i] = mean + std * (radius * cosine);
            normal[pair + 1][i] = mean + std * (radius * sine);
        }
    for (int i = 0; i < n_blocks; i++)
        for (int k = 0; k < 4; k++)
            dst[4 * i + k] = normal[k][i];
}

void zinf_normal_fill(float *dst, uint64_t first, uint64_t n, uint64_t key, uint64_t stream,
                      float mean, float std)
{
    /* A block gives four numbers; block b covers elements 4b .. 4b+3, so any cut is the same. */
    uint64_t begin_block = first / 4, end_block = (first + n + 3) / 4;
    int64_t n_runs = (int64_t)((end_block - begin_block + RUN_BLOCKS - 1) / RUN_BLOCKS);
#pragma omp parallel for schedule(static) if (n_runs > 256)
    for (int64_t run = 0; run < n_runs; run++) {
        float values[4 * RUN_BLOCKS];
        uint64_t block = begin_block + (uint64_t)run * RUN_BLOCKS;
        uint64_t left = end_block - block;
        int n_blocks = left < RUN_BLOCKS ? (int)left : RUN_BLOCKS;
        fill_run(values, block, n_blocks, key, stream, mean, std);
        uint64_t from = 4 * block < first ? first : 4 * block;
        uint64_t to = 4 * (block + (uint64_t)n_blocks);
        if (to > first + n)
            to = first + n;
        memcpy(dst + (from - first), values + (from - 4 * block), (to - from) * sizeof *dst);
    }
}

void zinf_uniform_fill(float *dst, uint64_t first, uint64_t n, uint64_t key, uint64_t stream,
                       float bound)
{
    uint32_t bits[4];
    for (uint64_t i = 0; i < n; i++) {
        uint64_t block = (first + i) / 4, lane = (first + i) % 4;
        uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)stream,
                               (uint32_t)(stream >> 32)};
        if (i == 0 || lane == 0)
            zinf_philox(counter, key, bits);
        dst[i] = bound * (2.0f * zinf_uniform(bits[lane]) - 1.0f);
    }
}

uint64_t zinf_permute(uint64_t index, uint64_t n, uint64_t key)
{
    unsigned half_bits = 1;
    while (half_bits < 32 && (uint64_t)1 << (2 * half_bits) < n)
        half_bits++;
    uint64_t mask = ((uint64_t)1 << half_bits) - 1;
    do { /* the network permutes [0, 4^half_bits), at most 4n: walk until inside */
        uint64_t left = index >> half_bits, right = index & mask;
        for (uint32_t round = 0; round < 4; round++) {
            uint32_t counter[4] = {(uint32_t)right, (uint32_t)(right >> 32), round, 0x5afe};
            uint32_t bits[4];
            zinf_philox(counter, key, bits);
            uint64_t next = left ^ (bits[0] & mask);
            left = right;
            right = next;
        }
        index = left << half_bits | right;
    } while (index >= n);
    return index;
}

/* host_simd_avx2: the loops for AVX2 with FMA; fp16 by the F16C instructions. */
#include "base/random.h"
#include "kernels/host_simd.h"

#include <immintrin.h>

#define HOST_SIMD host_simd_avx2
#define HOST_GEMM host_gemm_avx2
#define HOST_LANES 8

static void f16_to_f32(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(dst + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(src + i))));
    for (; i < n; i++)
        dst[i] = zinf_f16_to_f32(src[i]);
}

static void f16_from_f32(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm_storeu_si128((__m128i *)(dst + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        dst[i] = zinf_f16_from_f32(src[i]);
}

/* Philox with one block in each 64-bit lane: the multiplication reads the low halves only, so what
 * the high halves hold does not matter and no product need be shuffled. */
struct philox_lanes {
    __m256i c0, c1, c2, c3;
};

static inline void philox_round(struct philox_lanes *l, __m256i k0, __m256i k1)
{
    __m256i p0 = _mm256_mul_epu32(l->c0, _mm256_set1_epi64x(0xD2511F53));
    __m256i p1 = _mm256_mul_epu32(l->c2, _mm256_set1_epi64x(0xCD9E8D57));
    l->c0 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p1, 32), l->c1), k0);
    l->c2 = _mm256_xor_si256(_mm256_xor_si256(_mm256_srli_epi64(p0, 32), l->c3), k1);
    l->c1 = p1;
    l->c3 = p0;
}

/* Words in 64-bit lanes, one block a lane, to memory in the order of blocks. */
static inline void store_blocks(uint32_t *words, const struct philox_lanes *l)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    __m256i w01 = _mm256_or_si256(_mm256_and_si256(l->c0, low), _mm256_slli_epi64(l->c1, 32));
    __m256i w23 = _mm256_or_si256(_mm256_and_si256(l->c2, low), _mm256_slli_epi64(l->c3, 32));
    __m256i even = _mm256_unpacklo_epi64(w01, w23); /* blocks 0 and 2 */
    __m256i odd = _mm256_unpackhi_epi64(w01, w23);  /* blocks 1 and 3 */
    _mm256_storeu_si256((__m256i *)words, _mm256_permute2x128_si256(even, odd, 0x20));
    _mm256_storeu_si256((__m256i *)(words + 8), _mm256_permute2x128_si256(even, odd, 0x31));
}

static inline struct philox_lanes load_lanes(const struct zinf_dropout *dropout, uint64_t first)
{
    __m256i block =
        _mm256_add_epi64(_mm256_set1_epi64x((long long)first), _mm256_setr_epi64x(0, 1, 2, 3));
    return (struct philox_lanes){block, _mm256_srli_epi64(block, 32),
                                 _mm256_set1_epi64x(dropout->step),
                                 _mm256_set1_epi64x(dropout->site)};
}

/* Words of blocks first .. first + PHILOX_BLOCKS - 1, in order; two chains at a time hide the
 * latency of the multiplication. */
static void philox_blocks(uint32_t *words, const struct zinf_dropout *dropout, uint64_t first)
{
    for (int block = 0; block < PHILOX_BLOCKS; block += 8) {
        uint32_t k0 = (uint32_t)dropout->seed, k1 = (uint32_t)(dropout->seed >> 32);
        struct philox_lanes a = load_lanes(dropout, first + (uint64_t)block);
        struct philox_lanes b = load_lanes(dropout, first + (uint64_t)block + 4);
        for (int round = 0; round < 10; round++) {
            __m256i key0 = _mm256_set1_epi64x(k0), key1 = _mm256_set1_epi64x(k1);
            philox_round(&a, key0, key1);
            philox_round(&b, key0, key1);
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        store_blocks(words + 4 * block, &a);
        store_blocks(words + 4 * block + 16, &b);
    }
}

/* Converts 8 codes at a time from 4 bytes and returns how many it has converted. Each lane looks
 * its code up in both halves of the table and takes the one that the code's highest bit names. */
static size_t make_halves(float *y, const uint8_t *codes, const float *map, float scale, size_t n)
{
    const __m256i shifts = _mm256_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24);
    const __m256 low = _mm256_loadu_ps(map), high = _mm256_loadu_ps(map + 8);
    const __m256 factor = _mm256_set1_ps(scale);
    size_t i = 0;
    for (; i + 8 <= n; i += 8) {
        int32_t word;
        memcpy(&word, codes + i / 2, sizeof word);
        __m256i half = _mm256_srlv_epi32(_mm256_set1_epi32(word), shifts);
        __m256 upper = _mm256_castsi256_ps(_mm256_slli_epi32(half, 28));
        __m256 x = _mm256_blendv_ps(_mm256_permutevar8x32_ps(low, half),
                                    _mm256_permutevar8x32_ps(high, half), upper);
        _mm256_storeu_ps(y + i, _mm256_mul_ps(x, factor));
    }
    return i;
}

/* to[HOST_LANES][to_ld] = the transpose of from[HOST_LANES][ld]: halves of rows i and i + 4 side by
 * side, then pairs of rows, then fours. */
static inline void turn_block(float *to, int64_t to_ld, const float *from, int64_t ld)
{
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++, from += 4, to += 4 * to_ld) {
        __m256 r[4];
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++)
            r[i] = _mm256_insertf128_ps(_mm256_castps128_ps256(_mm_loadu_ps(from + i * ld)),
                                        _mm_loadu_ps(from + (i + 4) * ld), 1);
        const __m256 a = _mm256_unpacklo_ps(r[0], r[1]), b = _mm256_unpackhi_ps(r[0], r[1]);
        const __m256 c = _mm256_unpacklo_ps(r[2], r[3]), d = _mm256_unpackhi_ps(r[2], r[3]);
        _mm256_storeu_ps(to, _mm256_shuffle_ps(a, c, 0x44));
        _mm256_storeu_ps(to + to_ld, _mm256_shuffle_ps(a, c, 0xee));
        _mm256_storeu_ps(to + 2 * to_ld, _mm256_shuffle_ps(b, d, 0x44));
        _mm256_storeu_ps(to + 3 * to_ld, _mm256_shuffle_ps(b, d, 0xee));
    }
}

#include "kernels/host_loops.h"
#include "kernels/host_tiles.h"

#include "kernels/host_tiles_forward.h"

#include "kernels/host_tiles_backward.h"

#include "kernels/host_gemm_lanes.h"
#include "kernels/host_rows.h"

#include "kernels/host_cached.h"
#include "kernels/host_quantized.h"
#include "kernels/host_scan_tile.h"

#include "kernels/host_scan_loops.h"

#include "kernels/host_scan_gradients.h"
#include "kernels/host_table.h"

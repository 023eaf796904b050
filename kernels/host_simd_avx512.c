/* host_simd_avx512: the loops for AVX-512 F, BW, VL, DQ. */
#include "base/random.h"
#include "kernels/host_simd.h"

#include <immintrin.h>

#define HOST_SIMD host_simd_avx512
#define HOST_LANES 16

static void f16_to_f32(float *dst, const uint16_t *src, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(dst + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(src + i))));
    for (; i < n; i++)
        dst[i] = zinf_f16_to_f32(src[i]);
}

static void f16_from_f32(uint16_t *dst, const float *src, size_t n)
{
    size_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm256_storeu_si256((__m256i *)(dst + i),
                            _mm512_cvtps_ph(_mm512_loadu_ps(src + i), _MM_FROUND_TO_NEAREST_INT));
    for (; i < n; i++)
        dst[i] = zinf_f16_from_f32(src[i]);
}

/* Philox with one block in each 64-bit lane: the multiplication reads the low halves only, so what
 * the high halves hold does not matter and no product need be shuffled. */
struct philox_lanes {
    __m512i c0, c1, c2, c3;
};

static inline void philox_round(struct philox_lanes *l, __m512i k0, __m512i k1)
{
    __m512i p0 = _mm512_mul_epu32(l->c0, _mm512_set1_epi64(0xD2511F53));
    __m512i p1 = _mm512_mul_epu32(l->c2, _mm512_set1_epi64(0xCD9E8D57));
    l->c0 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p1, 32), l->c1), k0);
    l->c2 = _mm512_xor_si512(_mm512_xor_si512(_mm512_srli_epi64(p0, 32), l->c3), k1);
    l->c1 = p1;
    l->c3 = p0;
}

/* Words in 64-bit lanes, one block a lane, to memory in the order of blocks. */
static inline void store_blocks(uint32_t *words, const struct philox_lanes *l)
{
    const __m512i front = _mm512_setr_epi64(0, 8, 1, 9, 2, 10, 3, 11);
    const __m512i back = _mm512_setr_epi64(4, 12, 5, 13, 6, 14, 7, 15);
    __m512i w01 = _mm512_mask_blend_epi32(0xaaaa, l->c0, _mm512_slli_epi64(l->c1, 32));
    __m512i w23 = _mm512_mask_blend_epi32(0xaaaa, l->c2, _mm512_slli_epi64(l->c3, 32));
    _mm512_storeu_si512(words, _mm512_permutex2var_epi64(w01, front, w23));
    _mm512_storeu_si512(words + 16, _mm512_permutex2var_epi64(w01, back, w23));
}

static inline struct philox_lanes load_lanes(const struct zinf_dropout *dropout, uint64_t first)
{
    __m512i block = _mm512_add_epi64(_mm512_set1_epi64((long long)first),
                                     _mm512_setr_epi64(0, 1, 2, 3, 4, 5, 6, 7));
    return (struct philox_lanes){block, _mm512_srli_epi64(block, 32),
                                 _mm512_set1_epi64(dropout->step),
                                 _mm512_set1_epi64(dropout->site)};
}

/* Words of blocks first .. first + PHILOX_BLOCKS - 1, in order; two chains at a time hide the
 * latency of the multiplication. */
static void philox_blocks(uint32_t *words, const struct zinf_dropout *dropout, uint64_t first)
{
    for (int block = 0; block < PHILOX_BLOCKS; block += 16) {
        uint32_t k0 = (uint32_t)dropout->seed, k1 = (uint32_t)(dropout->seed >> 32);
        struct philox_lanes a = load_lanes(dropout, first + (uint64_t)block);
        struct philox_lanes b = load_lanes(dropout, first + (uint64_t)block + 8);
        for (int round = 0; round < 10; round++) {
            __m512i key0 = _mm512_set1_epi64(k0), key1 = _mm512_set1_epi64(k1);
            philox_round(&a, key0, key1);
            philox_round(&b, key0, key1);
            k0 += 0x9E3779B9u;
            k1 += 0xBB67AE85u;
        }
        store_blocks(words + 4 * block, &a);
        store_blocks(words + 4 * block + 32, &b);
    }
}

/* Converts 16 codes at a time from 8 bytes, with the table in one register, and returns how many it
 * has converted. */
static size_t make_halves(float *y, const uint8_t *codes, const float *map, float scale, size_t n)
{
    const __m512i shifts =
        _mm512_setr_epi32(4, 0, 12, 8, 20, 16, 28, 24, 4, 0, 12, 8, 20, 16, 28, 24);
    const __m512i words = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512 table = _mm512_loadu_ps(map), factor = _mm512_set1_ps(scale);
    size_t i = 0;
    for (; i + 16 <= n; i += 16) {
        int64_t pair;
        memcpy(&pair, codes + i / 2, sizeof pair);
        __m512i both = _mm512_permutexvar_epi32(words, _mm512_set1_epi64(pair));
        __m512 x = _mm512_permutexvar_ps(_mm512_srlv_epi32(both, shifts), table);
        _mm512_storeu_ps(y + i, _mm512_mul_ps(x, factor));
    }
    return i;
}

#include "kernels/host_loops.h"
#include "kernels/host_tiles.h"

#include "kernels/host_tiles_forward.h"

#include "kernels/host_tiles_backward.h"

#include "kernels/host_rows.h"

#include "kernels/host_cached.h"
#include "kernels/host_quantized.h"
#include "kernels/host_scan_tile.h"

#include "kernels/host_scan_loops.h"

#include "kernels/host_scan_gradients.h"
#include "kernels/host_table.h"

/* pack_avx512: vectors of 32 halves; AVX-512 F and BW. */
#define XXH_INLINE_ALL /* the checksum's code with this file's flags */
#include <xxhash.h>

#include "cpu_optim/pack_internal.h"

#include <immintrin.h>

#define LANES 32u
#define MASK_BITS 1
typedef __m512i hvec;

#define h_load _mm512_loadu_si512
#define h_store _mm512_storeu_si512
#define h_and _mm512_and_si512
#define h_or _mm512_or_si512
#define h_sub _mm512_sub_epi16
#define h_min _mm512_min_epu16
#define h_max _mm512_max_epu16
#define h_set1(x) _mm512_set1_epi16((short)(x))
#define h_shift_left(x, n) _mm512_slli_epi16(x, (unsigned)(n))
#define h_shift_right(x, n) _mm512_srli_epi16(x, (unsigned)(n))
#define h_where_equal(a, b, x, y) _mm512_mask_blend_epi16(_mm512_cmpeq_epi16_mask(a, b), y, x)
#define h_below(a, b) ((uint64_t)_mm512_cmplt_epu16_mask(a, b))

static inline hvec h_count_below(hvec sum, hvec a, hvec b)
{
    return _mm512_mask_add_epi16(sum, _mm512_cmplt_epu16_mask(a, b), sum, _mm512_set1_epi16(1));
}

static inline uint32_t h_total(hvec sum)
{
    return (uint32_t)_mm512_reduce_add_epi32(_mm512_madd_epi16(sum, _mm512_set1_epi16(1)));
}

static inline uint16_t h_least(hvec x)
{
    __m256i half = _mm256_min_epu16(_mm512_castsi512_si256(x), _mm512_extracti64x4_epi64(x, 1));
    __m128i least = _mm_min_epu16(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
    return (uint16_t)_mm_cvtsi128_si32(_mm_minpos_epu16(least));
}

static inline uint16_t h_most(hvec x)
{
    return (uint16_t)~h_least(_mm512_xor_si512(x, _mm512_set1_epi16(-1)));
}

/* The narrowing and the widening of 32 bits keep the order of lanes. */
static inline void h_split(hvec *high, hvec *low, const void *x)
{
    __m512i first = h_load(x), second = h_load((const char *)x + 64);
    __m256i up = _mm512_cvtepi32_epi16(_mm512_srli_epi32(first, 16));
    *high = _mm512_inserti64x4(_mm512_castsi256_si512(up),
                               _mm512_cvtepi32_epi16(_mm512_srli_epi32(second, 16)), 1);
    *low = _mm512_inserti64x4(_mm512_castsi256_si512(_mm512_cvtepi32_epi16(first)),
                              _mm512_cvtepi32_epi16(second), 1);
}

static inline __m512i join_half(__m256i high, __m256i low)
{
    return _mm512_or_si512(_mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16),
                           _mm512_cvtepu16_epi32(low));
}

static inline void h_join(void *x, hvec high, hvec low)
{
    h_store(x, join_half(_mm512_castsi512_si256(high), _mm512_castsi512_si256(low)));
    h_store((char *)x + 64,
            join_half(_mm512_extracti64x4_epi64(high, 1), _mm512_extracti64x4_epi64(low, 1)));
}

#define h_stream(to, x) _mm512_stream_si512((__m512i *)(void *)(to), x)
#define h_stream_end _mm_sfence

#include "cpu_optim/pack_kernels.h"

const struct pack_ops pack_ops_avx512 = {
    .split = split,
    .join = join,
    .choose = choose,
    .encode = encode,
    .decode = decode,
    .decode_wide = decode_wide,
    .sum = sum,
    .copy = copy,
};

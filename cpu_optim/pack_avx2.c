/* pack_avx2: vectors of 16 halves; AVX2. */
#define XXH_INLINE_ALL /* the checksum's code with this file's flags */
#include <xxhash.h>

#include "cpu_optim/pack_internal.h"

#include <immintrin.h>

#define LANES 16u
#define MASK_BITS 2 /* movemask has one for each byte */
typedef __m256i hvec;

static inline hvec h_load(const void *x)
{
    return _mm256_loadu_si256(x);
}

static inline void h_store(void *x, hvec value)
{
    _mm256_storeu_si256(x, value);
}

#define h_and _mm256_and_si256
#define h_or _mm256_or_si256
#define h_sub _mm256_sub_epi16
#define h_min _mm256_min_epu16
#define h_max _mm256_max_epu16
#define h_set1(x) _mm256_set1_epi16((short)(x))
#define h_shift_left(x, n) _mm256_slli_epi16(x, n)
#define h_shift_right(x, n) _mm256_srli_epi16(x, n)
#define h_where_equal(a, b, x, y) _mm256_blendv_epi8(y, x, _mm256_cmpeq_epi16(a, b))

/* A saturated difference is zero where a is not below b. */
static inline uint64_t h_below(hvec a, hvec b)
{
    hvec not_below = _mm256_cmpeq_epi16(_mm256_subs_epu16(b, a), _mm256_setzero_si256());
    return ~(uint32_t)_mm256_movemask_epi8(not_below) & 0x55555555;
}

static inline hvec h_count_below(hvec sum, hvec a, hvec b)
{
    hvec not_below = _mm256_cmpeq_epi16(_mm256_subs_epu16(b, a), _mm256_setzero_si256());
    return _mm256_add_epi16(sum, _mm256_add_epi16(not_below, _mm256_set1_epi16(1)));
}

static inline uint32_t h_total(hvec sum)
{
    __m256i pairs = _mm256_madd_epi16(sum, _mm256_set1_epi16(1));
    __m128i half = _mm_add_epi32(_mm256_castsi256_si128(pairs), _mm256_extracti128_si256(pairs, 1));
    half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
    return (uint32_t)_mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
}

static inline uint16_t h_least(hvec x)
{
    __m128i least = _mm_min_epu16(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    return (uint16_t)_mm_cvtsi128_si32(_mm_minpos_epu16(least));
}

static inline uint16_t h_most(hvec x)
{
    return (uint16_t)~h_least(_mm256_xor_si256(x, _mm256_set1_epi16(-1)));
}

/* Packing and unpacking work within 128 bits; the permutations put their quarters in order. */
static inline void h_split(hvec *high, hvec *low, const void *x)
{
    __m256i first = h_load(x), second = h_load((const char *)x + 32);
    __m256i mask = _mm256_set1_epi32(0xffff);
    *high = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_srli_epi32(first, 16), _mm256_srli_epi32(second, 16)), 0xd8);
    *low = _mm256_permute4x64_epi64(
        _mm256_packus_epi32(_mm256_and_si256(first, mask), _mm256_and_si256(second, mask)), 0xd8);
}

static inline void h_join(void *x, hvec high, hvec low)
{
    high = _mm256_permute4x64_epi64(high, 0xd8);
    low = _mm256_permute4x64_epi64(low, 0xd8);
    h_store(x, _mm256_unpacklo_epi16(low, high));
    h_store((char *)x + 32, _mm256_unpackhi_epi16(low, high));
}

#define h_stream(to, x) _mm256_stream_si256((__m256i *)(void *)(to), x)
#define h_stream_end _mm_sfence

#include "cpu_optim/pack_kernels.h"

const struct pack_ops pack_ops_avx2 = {
    .split = split,
    .join = join,
    .choose = choose,
    .encode = encode,
    .decode = decode,
    .decode_wide = decode_wide,
    .sum = sum,
    .copy = copy,
};

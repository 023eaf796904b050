/* optim_avx2: vectors of eight lanes; AVX2, FMA and F16C. */
#include "cpu_optim/optim_internal.h"

#include <immintrin.h>

#define LANES 8
typedef __m256 vec;

#define vec_set1 _mm256_set1_ps
#define vec_load _mm256_loadu_ps
#define vec_store _mm256_storeu_ps
#define vec_add _mm256_add_ps
#define vec_sub _mm256_sub_ps
#define vec_mul _mm256_mul_ps
#define vec_div _mm256_div_ps
#define vec_sqrt _mm256_sqrt_ps
#define vec_fma _mm256_fmadd_ps
#define vec_min _mm256_min_ps
#define vec_max _mm256_max_ps

static inline vec vec_load_bf16(const void *x)
{
    __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(x));
    return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}

static inline vec vec_load_f16(const void *x)
{
    return _mm256_cvtph_ps(_mm_loadu_si128(x));
}

/* To nearest even; the NaN is canonical already and rounds to 0x7fc0 like a number. */
static inline __m128i bf16_of(vec value)
{
    __m256i bits = _mm256_castps_si256(value);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    bits = _mm256_add_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x7fff)), odd);
    bits = _mm256_srli_epi32(bits, 16);
    return _mm_packus_epi32(_mm256_castsi256_si128(bits), _mm256_extracti128_si256(bits, 1));
}

static inline void vec_store_bf16(void *x, vec value)
{
    _mm_storeu_si128(x, bf16_of(value));
}

static inline void vec_store_f16(void *x, vec value)
{
    _mm_storeu_si128(x, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec vec_load_split(const uint16_t *param, const uint16_t *remainder)
{
    __m256i high = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)param));
    __m256i low = _mm256_cvtepi16_epi32(_mm_loadu_si128((const __m128i *)(const void *)remainder));
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(high, 16), low));
}

static inline void vec_store_split(uint16_t *param, uint16_t *remainder, vec value)
{
    __m256i bits = _mm256_castps_si256(value);
    __m256i high = _mm256_srli_epi32(_mm256_add_epi32(bits, _mm256_set1_epi32(0x8000)), 16);
    __m256i low = _mm256_and_si256(bits, _mm256_set1_epi32(0xffff));
    __m256i both = _mm256_permute4x64_epi64(_mm256_packus_epi32(high, low), 0xd8);
    _mm_storeu_si128((__m128i *)(void *)param, _mm256_castsi256_si128(both));
    _mm_storeu_si128((__m128i *)(void *)remainder, _mm256_extracti128_si256(both, 1));
}

#define HAS_STREAM 1
#define line_stream_end _mm_sfence

static inline void line_stream(void *to, const void *from)
{
    __m256i low = _mm256_load_si256(from), high = _mm256_load_si256((const __m256i *)from + 1);
    _mm256_stream_si256(to, low);
    _mm256_stream_si256((__m256i *)to + 1, high);
}

static inline vec vec_canonical(vec x)
{
    vec nan = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fc00000));
    return _mm256_blendv_ps(x, nan, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
}

static inline vec vec_sign(vec c, vec x)
{
    vec zero = _mm256_setzero_ps();
    vec ordered = _mm256_cmp_ps(c, zero, _CMP_NEQ_OQ);
    vec signed_x = _mm256_xor_ps(x, _mm256_and_ps(c, _mm256_set1_ps(-0.0f)));
    return _mm256_blendv_ps(c, signed_x, ordered);
}

static inline vec vec_abs(vec x)
{
    return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
}

static inline vec vec_copysign_of(vec x, vec y)
{
    return _mm256_or_ps(x, _mm256_and_ps(y, _mm256_set1_ps(-0.0f)));
}

static inline vec vec_flip_sign(vec x, vec y)
{
    return _mm256_xor_ps(x, _mm256_and_ps(y, _mm256_set1_ps(-0.0f)));
}

static inline vec vec_mul_below(vec a, vec b, vec x, vec y)
{
    vec below = _mm256_cmp_ps(a, b, _CMP_LT_OQ);
    return _mm256_mul_ps(x, _mm256_blendv_ps(_mm256_set1_ps(1), y, below));
}

static inline vec vec_mul_nonzero(vec c, vec x, vec y)
{
    vec nonzero = _mm256_cmp_ps(c, _mm256_setzero_ps(), _CMP_NEQ_OQ);
    return _mm256_and_ps(_mm256_mul_ps(x, y), nonzero);
}

static inline uint32_t vec_nonfinite(vec x)
{
    vec infinity = _mm256_castsi256_ps(_mm256_set1_epi32(0x7f800000));
    vec magnitude = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x);
    return (uint32_t)_mm256_movemask_ps(_mm256_cmp_ps(magnitude, infinity, _CMP_NLT_UQ));
}

struct sums {
    __m256d a, b, c, d;
};

static inline struct sums sums_zero(void)
{
    __m256d zero = _mm256_setzero_pd();
    return (struct sums){zero, zero, zero, zero};
}

static inline void sums_add(struct sums *sums, unsigned j, vec x)
{
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    if (j == 0) {
        sums->a = _mm256_fmadd_pd(low, low, sums->a);
        sums->b = _mm256_fmadd_pd(high, high, sums->b);
    } else {
        sums->c = _mm256_fmadd_pd(low, low, sums->c);
        sums->d = _mm256_fmadd_pd(high, high, sums->d);
    }
}

static inline void sums_store(const struct sums *sums, double lane[OPTIM_SUM_LANES])
{
    _mm256_storeu_pd(lane, sums->a);
    _mm256_storeu_pd(lane + 4, sums->b);
    _mm256_storeu_pd(lane + 8, sums->c);
    _mm256_storeu_pd(lane + 12, sums->d);
}

static inline void squares_add(double *to, vec x)
{
    __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(x));
    __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(x, 1));
    _mm256_storeu_pd(to, _mm256_fmadd_pd(low, low, _mm256_loadu_pd(to)));
    _mm256_storeu_pd(to + 4, _mm256_fmadd_pd(high, high, _mm256_loadu_pd(to + 4)));
}

typedef __m256i ivec;
#define ivec_xor _mm256_xor_si256
#define ivec_max _mm256_max_epu32
#define ivec_shift_right _mm256_srli_epi32
#define ivec_of_bits _mm256_castps_si256
#define ivec_truncate _mm256_cvttps_epi32
#define vec_convert _mm256_cvtepi32_ps

static inline ivec ivec_set1(uint32_t x)
{
    return _mm256_set1_epi32((int)x);
}

static inline ivec ivec_xor3(ivec a, ivec b, ivec c)
{
    return ivec_xor(a, ivec_xor(b, c));
}

#define SPREAD 2

static inline ivec ivec_count_spread(uint32_t x)
{
    return _mm256_add_epi32(ivec_set1(x), _mm256_setr_epi32(0, 0, 2, 0, 4, 0, 6, 0));
}

static inline void ivec_mul_spread(ivec a, uint32_t b, ivec *high, ivec *low)
{
    *low = _mm256_mul_epu32(a, ivec_set1(b));
    *high = _mm256_shuffle_epi32(*low, 0xf5);
}

static inline ivec ivec_gather(ivec even, ivec odd)
{
    return _mm256_blend_epi32(even, _mm256_shuffle_epi32(odd, 0xa0), 0xaa);
}

static inline uint32_t ivec_top(ivec x)
{
    __m128i top = _mm_max_epu32(_mm256_castsi256_si128(x), _mm256_extracti128_si256(x, 1));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0x4e));
    top = _mm_max_epu32(top, _mm_shuffle_epi32(top, 0xb1));
    return (uint32_t)_mm_cvtsi128_si32(top);
}

static inline ivec ivec_load_bytes(const uint8_t *x)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
}

static inline ivec ivec_load_signed(const int8_t *x)
{
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)x));
}

/* The low byte of each lane. */
static inline void ivec_store_bytes(uint8_t *to, ivec x)
{
    const __m256i low =
        _mm256_setr_epi8(0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1, -1,
                         -1, 0, 4, 8, 12, -1, -1, -1, -1, -1, -1, -1, -1);
    __m256i bytes = _mm256_shuffle_epi8(x, low);
    __m128i both = _mm_or_si128(_mm256_castsi256_si128(bytes), _mm256_extracti128_si256(bytes, 1));
    _mm_storel_epi64((__m128i *)(void *)to, both);
}

static inline vec vec_lookup(const float table[8], ivec index)
{
    return _mm256_permutevar8x32_ps(_mm256_loadu_ps(table), index);
}

static inline void ivec_store_halves(uint16_t *low, uint16_t *high, ivec x)
{
    __m256i bottom = _mm256_and_si256(x, _mm256_set1_epi32(0xffff));
    __m256i both = _mm256_packus_epi32(bottom, _mm256_srli_epi32(x, 16));
    both = _mm256_permute4x64_epi64(both, 0xd8);
    _mm_storeu_si128((__m128i *)(void *)low, _mm256_castsi256_si128(both));
    _mm_storeu_si128((__m128i *)(void *)high, _mm256_extracti128_si256(both, 1));
}

static inline void vec_store_bf16_random(uint16_t *to, vec x, const uint16_t *random)
{
    __m256i below = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)random));
    __m256i bits = _mm256_srli_epi32(_mm256_add_epi32(_mm256_castps_si256(x), below), 16);
    _mm_storeu_si128((__m128i *)(void *)to, _mm_packus_epi32(_mm256_castsi256_si128(bits),
                                                             _mm256_extracti128_si256(bits, 1)));
}

#include "cpu_optim/vector_kernels.h"

#include "cpu_optim/reduce_kernels.h"

#include "cpu_optim/moment_kernels.h"

#include "cpu_optim/formula_kernels.h"

#include "cpu_optim/optim_kernels.h"

#include "cpu_optim/adafactor_kernels.h"

const struct optim_ops optim_ops_avx2 = {
    .step = step,
    .sum_block = sum_block,
    .sum_block_split = sum_block_split,
    .find_nonfinite = find_nonfinite,
    .accumulate = accumulate,
    .adafactor_sums = adafactor_sums,
    .adafactor_norm = adafactor_norm,
    .adafactor_apply = adafactor_apply,
};

/* optim_avx512: vectors of sixteen lanes; AVX-512 F, BW, VL, DQ. */
#include "cpu_optim/optim_internal.h"

#include <immintrin.h>

#define LANES 16
typedef __m512 vec;

#define vec_set1 _mm512_set1_ps
#define vec_load _mm512_loadu_ps
#define vec_store _mm512_storeu_ps
#define vec_add _mm512_add_ps
#define vec_sub _mm512_sub_ps
#define vec_mul _mm512_mul_ps
#define vec_div _mm512_div_ps
#define vec_sqrt _mm512_sqrt_ps
#define vec_fma _mm512_fmadd_ps
#define vec_min _mm512_min_ps
#define vec_max _mm512_max_ps

static inline vec vec_load_bf16(const void *x)
{
    __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(x));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
}

static inline vec vec_load_f16(const void *x)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256(x));
}

/* To nearest even; the NaN is canonical already and rounds to 0x7fc0 like a number. The BF16
 * instruction is not used: it flushes denormals. */
static inline __m256i bf16_of(vec value)
{
    __m512i bits = _mm512_castps_si512(value);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    bits = _mm512_add_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x7fff)), odd);
    return _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16));
}

static inline void vec_store_bf16(void *x, vec value)
{
    _mm256_storeu_si256(x, bf16_of(value));
}

static inline void vec_store_f16(void *x, vec value)
{
    _mm256_storeu_si256(x, _mm512_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
}

static inline vec vec_load_split(const uint16_t *param, const uint16_t *remainder)
{
    __m512i high = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)param));
    __m512i low =
        _mm512_cvtepi16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)remainder));
    return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(high, 16), low));
}

static inline void vec_store_split(uint16_t *param, uint16_t *remainder, vec value)
{
    __m512i bits = _mm512_castps_si512(value);
    __m512i high = _mm512_srli_epi32(_mm512_add_epi32(bits, _mm512_set1_epi32(0x8000)), 16);
    _mm256_storeu_si256((__m256i *)(void *)param, _mm512_cvtepi32_epi16(high));
    _mm256_storeu_si256((__m256i *)(void *)remainder, _mm512_cvtepi32_epi16(bits));
}

#define HAS_STREAM 1
#define line_stream_end _mm_sfence

static inline void line_stream(void *to, const void *from)
{
    _mm512_stream_si512(to, _mm512_load_si512(from));
}

static inline vec vec_canonical(vec x)
{
    vec nan = _mm512_castsi512_ps(_mm512_set1_epi32(0x7fc00000));
    return _mm512_mask_mov_ps(x, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), nan);
}

static inline vec vec_sign(vec c, vec x)
{
    __mmask16 ordered = _mm512_cmp_ps_mask(c, _mm512_setzero_ps(), _CMP_NEQ_OQ);
    vec sign = _mm512_and_ps(c, _mm512_set1_ps(-0.0f));
    return _mm512_mask_xor_ps(c, ordered, x, sign);
}

#define vec_abs _mm512_abs_ps

/* The magnitude of x and the sign of y; of a positive x, if that is known, in one instruction. */
static inline vec vec_copysign_of(vec x, vec y)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y), sign, 0xf8));
}

static inline vec vec_flip_sign(vec x, vec y)
{
    const __m512i sign = _mm512_set1_epi32(INT32_MIN);
    return _mm512_castsi512_ps(
        _mm512_ternarylogic_epi32(_mm512_castps_si512(x), _mm512_castps_si512(y), sign, 0x78));
}

static inline vec vec_mul_below(vec a, vec b, vec x, vec y)
{
    return _mm512_mask_mul_ps(x, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x, y);
}

static inline vec vec_mul_nonzero(vec c, vec x, vec y)
{
    const __m512i bits = _mm512_castps_si512(c);
    return _mm512_maskz_mul_ps(_mm512_test_epi32_mask(bits, bits), x, y);
}

static inline uint32_t vec_nonfinite(vec x)
{
    return _mm512_fpclass_ps_mask(x, 0x99); /* quiet NaN, +Inf, -Inf, signalling NaN */
}

struct sums {
    __m512d a, b;
};

static inline struct sums sums_zero(void)
{
    return (struct sums){_mm512_setzero_pd(), _mm512_setzero_pd()};
}

static inline void sums_add(struct sums *sums, unsigned j, vec x)
{
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    (void)j; /* one vector fills all accumulators */
    sums->a = _mm512_fmadd_pd(low, low, sums->a);
    sums->b = _mm512_fmadd_pd(high, high, sums->b);
}

static inline void sums_store(const struct sums *sums, double lane[OPTIM_SUM_LANES])
{
    _mm512_storeu_pd(lane, sums->a);
    _mm512_storeu_pd(lane + 8, sums->b);
}

static inline void squares_add(double *to, vec x)
{
    __m512d low = _mm512_cvtps_pd(_mm512_castps512_ps256(x));
    __m512d high = _mm512_cvtps_pd(_mm512_extractf32x8_ps(x, 1));
    _mm512_storeu_pd(to, _mm512_fmadd_pd(low, low, _mm512_loadu_pd(to)));
    _mm512_storeu_pd(to + 8, _mm512_fmadd_pd(high, high, _mm512_loadu_pd(to + 8)));
}

typedef __m512i ivec;
#define ivec_max _mm512_max_epu32
#define ivec_top _mm512_reduce_max_epu32
#define ivec_shift_right _mm512_srli_epi32
#define ivec_of_bits _mm512_castps_si512
#define ivec_truncate _mm512_cvttps_epi32
#define vec_convert _mm512_cvtepi32_ps

static inline ivec ivec_set1(uint32_t x)
{
    return _mm512_set1_epi32((int)x);
}

static inline ivec ivec_xor3(ivec a, ivec b, ivec c)
{
    return _mm512_ternarylogic_epi32(a, b, c, 0x96);
}

#define SPREAD 2

static inline ivec ivec_count_spread(uint32_t x)
{
    return _mm512_add_epi32(ivec_set1(x),
                            _mm512_setr_epi32(0, 0, 2, 0, 4, 0, 6, 0, 8, 0, 10, 0, 12, 0, 14, 0));
}

static inline void ivec_mul_spread(ivec a, uint32_t b, ivec *high, ivec *low)
{
    *low = _mm512_mul_epu32(a, ivec_set1(b));
    *high = _mm512_shuffle_epi32(*low, 0xf5);
}

static inline ivec ivec_gather(ivec even, ivec odd)
{
    return _mm512_mask_shuffle_epi32(even, 0xaaaa, odd, 0xa0);
}

static inline ivec ivec_load_bytes(const uint8_t *x)
{
    return _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline ivec ivec_load_signed(const int8_t *x)
{
    return _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)x));
}

static inline void ivec_store_bytes(uint8_t *to, ivec x)
{
    _mm_storeu_si128((__m128i *)(void *)to, _mm512_cvtepi32_epi8(x));
}

/* The table twice over: an index has four bits here. */
static inline vec vec_lookup(const float table[8], ivec index)
{
    return _mm512_permutexvar_ps(index, _mm512_broadcast_f32x8(_mm256_loadu_ps(table)));
}

static inline void ivec_store_halves(uint16_t *low, uint16_t *high, ivec x)
{
    _mm256_storeu_si256((__m256i *)(void *)low, _mm512_cvtepi32_epi16(x));
    _mm256_storeu_si256((__m256i *)(void *)high, _mm512_cvtepi32_epi16(_mm512_srli_epi32(x, 16)));
}

static inline void vec_store_bf16_random(uint16_t *to, vec x, const uint16_t *random)
{
    __m512i below =
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)random));
    __m512i bits = _mm512_add_epi32(_mm512_castps_si512(x), below);
    _mm256_storeu_si256((__m256i *)(void *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(bits, 16)));
}

#include "cpu_optim/vector_kernels.h"

#include "cpu_optim/reduce_kernels.h"

#include "cpu_optim/moment_kernels.h"

#include "cpu_optim/formula_kernels.h"

#include "cpu_optim/optim_kernels.h"

#include "cpu_optim/adafactor_kernels.h"

const struct optim_ops optim_ops_avx512 = {
    .step = step,
    .sum_block = sum_block,
    .sum_block_split = sum_block_split,
    .find_nonfinite = find_nonfinite,
    .accumulate = accumulate,
    .adafactor_sums = adafactor_sums,
    .adafactor_norm = adafactor_norm,
    .adafactor_apply = adafactor_apply,
};

/* optim_scalar: vectors of one lane, the specification of every other instruction set. fmaf is the
 * C library's: one instruction where the CPU has it, exact arithmetic in software elsewhere. */
#include "cpu_optim/optim_internal.h"

#include <math.h>

#define LANES 1
typedef float vec;

static inline vec vec_set1(float x)
{
    return x;
}

static inline vec vec_load(const float *x)
{
    return *x;
}

static inline void vec_store(float *x, vec value)
{
    *x = value;
}

static inline vec vec_add(vec a, vec b)
{
    return a + b;
}

static inline vec vec_sub(vec a, vec b)
{
    return a - b;
}

static inline vec vec_mul(vec a, vec b)
{
    return a * b;
}

static inline vec vec_div(vec a, vec b)
{
    return a / b;
}

static inline vec vec_sqrt(vec a)
{
    return sqrtf(a);
}

static inline vec vec_fma(vec a, vec b, vec c)
{
    return fmaf(a, b, c);
}

static inline vec vec_min(vec a, vec b)
{
    return a < b ? a : b;
}

static inline vec vec_max(vec a, vec b)
{
    return a > b ? a : b;
}

static inline vec vec_abs(vec x)
{
    return fabsf(x);
}

static inline vec vec_copysign_of(vec x, vec y)
{
    return copysignf(x, y);
}

static inline vec vec_flip_sign(vec x, vec y)
{
    return signbit(y) ? -x : x;
}

static inline vec vec_mul_below(vec a, vec b, vec x, vec y)
{
    return a < b ? x * y : x;
}

static inline vec vec_mul_nonzero(vec c, vec x, vec y)
{
    return c != 0 ? x * y : 0;
}

static inline vec vec_load_bf16(const uint16_t *x)
{
    return zinf_bf16_to_f32(*x);
}

static inline vec vec_load_f16(const uint16_t *x)
{
    return zinf_f16_to_f32(*x);
}

static inline void vec_store_bf16(uint16_t *x, vec value)
{
    *x = zinf_bf16_from_f32(value);
}

static inline void vec_store_f16(uint16_t *x, vec value)
{
    *x = zinf_f16_from_f32(value);
}

static inline vec vec_load_split(const uint16_t *param, const uint16_t *remainder)
{
    return optim_join_one(*param, *remainder);
}

static inline void vec_store_split(uint16_t *param, uint16_t *remainder, vec value)
{
    optim_split_one(param, remainder, value);
}

/* There is no portable store past the cache. */
#define HAS_STREAM 0
#define line_stream(to, from) ((void)(to), (void)(from))
#define line_stream_end() ((void)0)

static inline vec vec_canonical(vec x)
{
    return isnan(x) ? zinf_bf16_to_f32(0x7fc0) : x;
}

static inline vec vec_sign(vec c, vec x)
{
    return c > 0 ? x : c < 0 ? -x : c;
}

static inline uint32_t vec_nonfinite(vec x)
{
    return !isfinite(x);
}

struct sums {
    double lane[OPTIM_SUM_LANES];
};

static inline struct sums sums_zero(void)
{
    return (struct sums){{0}};
}

static inline void sums_add(struct sums *sums, unsigned j, vec x)
{
    sums->lane[j] += (double)x * (double)x;
}

static inline void sums_store(const struct sums *sums, double lane[OPTIM_SUM_LANES])
{
    memcpy(lane, sums->lane, sizeof sums->lane);
}

static inline void squares_add(double *to, vec x)
{
    *to += (double)x * (double)x;
}

typedef uint32_t ivec;

static inline ivec ivec_set1(uint32_t x)
{
    return x;
}

/* A lane has room for a product here. */
#define SPREAD 1

static inline ivec ivec_gather(ivec even, ivec odd)
{
    (void)odd;
    return even;
}

static inline ivec ivec_count_spread(uint32_t x)
{
    return x;
}

static inline ivec ivec_xor3(ivec a, ivec b, ivec c)
{
    return a ^ b ^ c;
}

static inline ivec ivec_max(ivec a, ivec b)
{
    return a > b ? a : b;
}

static inline uint32_t ivec_top(ivec x)
{
    return x;
}

static inline ivec ivec_shift_right(ivec x, unsigned bits)
{
    return x >> bits;
}

static inline ivec ivec_of_bits(vec x)
{
    ivec bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline ivec ivec_truncate(vec x)
{
    return (ivec)(int32_t)x;
}

static inline vec vec_convert(ivec x)
{
    return (vec)(int32_t)x;
}

static inline ivec ivec_load_bytes(const uint8_t *x)
{
    return *x;
}

static inline ivec ivec_load_signed(const int8_t *x)
{
    return (ivec)(int32_t)*x;
}

static inline void ivec_store_bytes(uint8_t *to, ivec x)
{
    *to = (uint8_t)x;
}

static inline vec vec_lookup(const float table[8], ivec index)
{
    return table[index % 8];
}

static inline void ivec_mul_spread(ivec a, uint32_t b, ivec *high, ivec *low)
{
    uint64_t product = (uint64_t)a * b;
    *high = (uint32_t)(product >> 32);
    *low = (uint32_t)product;
}

static inline void ivec_store_halves(uint16_t *low, uint16_t *high, ivec x)
{
    *low = (uint16_t)x;
    *high = (uint16_t)(x >> 16);
}

static inline void vec_store_bf16_random(uint16_t *to, vec x, const uint16_t *random)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    *to = (uint16_t)((bits + *random) >> 16);
}

#include "cpu_optim/vector_kernels.h"

#include "cpu_optim/reduce_kernels.h"

#include "cpu_optim/moment_kernels.h"

#include "cpu_optim/formula_kernels.h"

#include "cpu_optim/optim_kernels.h"

#include "cpu_optim/adafactor_kernels.h"

const struct optim_ops optim_ops_scalar = {
    .step = step,
    .sum_block = sum_block,
    .sum_block_split = sum_block_split,
    .find_nonfinite = find_nonfinite,
    .accumulate = accumulate,
    .adafactor_sums = adafactor_sums,
    .adafactor_norm = adafactor_norm,
    .adafactor_apply = adafactor_apply,
};

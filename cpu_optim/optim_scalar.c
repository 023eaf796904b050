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

typedef uint32_t ivec;

static inline ivec ivec_set1(uint32_t x)
{
    return x;
}

static inline ivec ivec_count_from(uint32_t x)
{
    return x;
}

static inline ivec ivec_xor(ivec a, ivec b)
{
    return a ^ b;
}

static inline void ivec_mul_wide(ivec a, uint32_t b, ivec *high, ivec *low)
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

#include "cpu_optim/optim_kernels.h"
#include "cpu_optim/reduce_kernels.h"
#include "cpu_optim/staged_kernels.h"

const struct optim_ops optim_ops_scalar = {
    .step = step,
    .sum_block = sum_block,
    .find_nonfinite = find_nonfinite,
    .accumulate = accumulate,
};

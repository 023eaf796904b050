/*
 * vector_kernels: what every kernel text stands on. Included first by each per-ISA file, which
 * defines before
 *   LANES, vec               lanes of a vector of fp32, its type
 *   vec_set1 _load _store _add _sub _mul _div _sqrt _min _max _fma(a, b, c) = a * b + c
 *   vec_load_bf16 _load_f16 _store_bf16 _store_f16
 *   vec_load_split(param, remainder), vec_store_split(param, remainder, vec)
 *   vec_canonical            NaN lanes become 0x7fc00000
 *   vec_sign(c, x)           c > 0: x; c < 0: -x; else c (zero, NaN)
 *   vec_abs, vec_copysign_of(x, y) for x >= 0: with the sign of y
 *   vec_flip_sign(x, y)      y negative: -x; else x
 *   vec_mul_below(a, b, x, y)      a < b: x * y; else x
 *   vec_mul_nonzero(c, x, y) c not 0: x * y; else 0
 *   vec_nonfinite            bit mask of lanes that are Inf or NaN
 *   sums, sums_zero, sums_add(sums *, vec first, ...): see sum_block
 *   squares_add(to, x)       to[lane] += x[lane]^2 in double
 *   HAS_STREAM, line_stream(to, from), line_stream_end
 *                            a cache line is copied past the cache, if there is a way
 *   ivec                     LANES unsigned integers of 32 bits
 *   ivec_set1 _xor3 _max _shift_right
 *   SPREAD, ivec_count_spread, ivec_mul_spread, ivec_gather(even, odd): see philox_spread
 *   ivec_store_halves(low, high, x)                the halves of each lane, apart
 *   ivec_load_bytes _load_signed _store_bytes, ivec_top(x) the largest lane, ivec_of_bits(vec),
 * vec_of_bits(ivec) ivec_truncate(vec), vec_convert(ivec)          values, as signed numbers
 *   vec_lookup(table, index) table of 8, the low three bits of each index
 *   vec_store_bf16_random(to, x, random)           16 random bits are added below the cut
 * Loads and stores of vectors take any alignment, line_stream whole lines.
 */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define CACHE_LINE 64u
/* Values beside the dtypes of a parameter copy: there is none, or it is the upper half of the
 * master. */
#define NO_PARAM ZINF_DTYPE_COUNT
#define SPLIT_MASTER ((enum zinf_dtype)(ZINF_DTYPE_COUNT + 1))

ALWAYS_INLINE const void *element_at(const void *x, enum zinf_dtype dtype, uint64_t i)
{
    return (const char *)x + i * (dtype == ZINF_DTYPE_F32 ? 4 : 2);
}

ALWAYS_INLINE vec load_as(const void *x, enum zinf_dtype dtype, uint64_t i)
{
    const void *at = element_at(x, dtype, i);
    if (dtype == ZINF_DTYPE_F32)
        return vec_load(at);
    return dtype == ZINF_DTYPE_BF16 ? vec_load_bf16(at) : vec_load_f16(at);
}

ALWAYS_INLINE void store_as(void *x, enum zinf_dtype dtype, uint64_t i, vec value)
{
    void *at = (char *)x + i * (dtype == ZINF_DTYPE_F32 ? 4 : 2);
    if (dtype == ZINF_DTYPE_F32)
        vec_store(at, value);
    else if (dtype == ZINF_DTYPE_BF16)
        vec_store_bf16(at, value);
    else if (dtype == ZINF_DTYPE_F16)
        vec_store_f16(at, value);
}

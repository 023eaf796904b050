/*
 * vector_kernels: what every kernel text stands on. Included first by each per-ISA file, which
 * defines before
 *   LANES, vec               lanes of a vector of fp32, its type
 *   vec_set1 _load _store _add _sub _mul _div _sqrt _min _max _fma(a, b, c) = a * b + c
 *   vec_load_bf16 _load_f16 _store_bf16 _store_f16
 *   vec_load_split(param, remainder), vec_store_split(param, remainder, vec)
 *   vec_canonical            NaN lanes become 0x7fc00000
 *   vec_sign(c, x)           c > 0: x; c < 0: -x; else c (zero, NaN)
 *   vec_below(a, b, x, y)    a < b: x; else y
 *   vec_nonfinite            bit mask of lanes that are Inf or NaN
 *   sums, sums_zero, sums_add(sums *, vec first, ...): see sum_block
 *   squares_add(to, x)       to[lane] += x[lane]^2 in double
 *   HAS_STREAM, line_stream(to, from), line_stream_end
 *                            a cache line is copied past the cache, if there is a way
 *   ivec                     LANES unsigned integers of 32 bits
 *   ivec_set1 _xor _and _or _max _shift_left _shift_right
 *   ivec_count_from(x)       x, x + 1, ...
 *   ivec_mul_wide(a, b, &high, &low)
 *   ivec_store_halves(low, high, x)                the halves of each lane, apart
 *   ivec_load_bytes _store_bytes, ivec_of_bits(vec), vec_of_bits(ivec)
 *   ivec_truncate(vec), vec_convert(ivec)          values, below 2^31
 *   vec_lookup(table, index) table of 8, the low three bits of each index
 *   vec_store_bf16_random(to, x, random)           16 random bits are added below the cut
 * Loads and stores of vectors take any alignment, line_stream whole lines.
 */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define CACHE_LINE 64u
/* Beside the dtypes of a parameter copy: none, and the copy being half of the master. */
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

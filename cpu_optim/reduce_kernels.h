/*
 * reduce_kernels: sum of squares, search for non-finite values, accumulation. Included by each
 * per-ISA file after vector_kernels.h.
 *
 * The square of an fp32 value is exact in double, so multiply-then-add and fused multiply-add give
 * the same bits; padding a short vector with zeros adds +0 to sums that are never -0.
 */

/* Loads count < LANES elements from i on, followed by zeros. */
static __attribute__((noinline)) vec load_partial(const void *x, enum zinf_dtype dtype, uint64_t i,
                                                  uint64_t count)
{
    float buffer[LANES] = {0};
    memcpy(buffer, element_at(x, dtype, i), count * (dtype == ZINF_DTYPE_F32 ? 4 : 2));
    return load_as(buffer, dtype, 0);
}

ALWAYS_INLINE vec load_up_to(const void *x, enum zinf_dtype dtype, uint64_t i, uint64_t end)
{
    if (i + LANES <= end)
        return load_as(x, dtype, i);
    return load_partial(x, dtype, i < end ? i : end, i < end ? end - i : 0);
}

static __attribute__((noinline)) vec load_split_up_to(const void *param, const uint16_t *remainder,
                                                      uint64_t i, uint64_t end)
{
    uint16_t high[LANES] = {0}, low[LANES] = {0};
    uint64_t count = i >= end ? 0 : end - i < LANES ? end - i : LANES;
    memcpy(high, (const uint16_t *)param + i, count * sizeof *high);
    memcpy(low, remainder + i, count * sizeof *low);
    return vec_load_split(high, low);
}

ALWAYS_INLINE double sums_total(const struct sums *sums)
{
    double lane[OPTIM_SUM_LANES];
    sums_store(sums, lane);
    for (unsigned half = OPTIM_SUM_LANES / 2; half; half /= 2)
        for (unsigned j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

/* remainder NULL: x has elements of dtype; else x is the parameter of a split master. */
ALWAYS_INLINE double sum_block_as(const void *x, const uint16_t *remainder, enum zinf_dtype dtype,
                                  uint64_t i, uint64_t end)
{
    struct sums sums = sums_zero();
    for (; i + OPTIM_SUM_LANES <= end; i += OPTIM_SUM_LANES)
        for (unsigned j = 0; j < OPTIM_SUM_LANES / LANES; j++) {
            const uint64_t at = i + j * LANES;
            sums_add(&sums, j,
                     dtype == SPLIT_MASTER
                         ? vec_load_split((const uint16_t *)x + at, remainder + at)
                         : load_as(x, dtype, at));
        }
    for (unsigned j = 0; i + j * LANES < end; j++) {
        const uint64_t at = i + j * LANES;
        sums_add(&sums, j,
                 dtype == SPLIT_MASTER ? load_split_up_to(x, remainder, at, end)
                                       : load_up_to(x, dtype, at, end));
    }
    return sums_total(&sums);
}

static double sum_block(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end)
{
    if (dtype == ZINF_DTYPE_F32)
        return sum_block_as(x, NULL, ZINF_DTYPE_F32, begin, end);
    if (dtype == ZINF_DTYPE_BF16)
        return sum_block_as(x, NULL, ZINF_DTYPE_BF16, begin, end);
    return sum_block_as(x, NULL, ZINF_DTYPE_F16, begin, end);
}

static double sum_block_split(const void *param, const uint16_t *remainder, uint64_t begin,
                              uint64_t end)
{
    return sum_block_as(param, remainder, SPLIT_MASTER, begin, end);
}

ALWAYS_INLINE uint64_t find_as(const void *x, enum zinf_dtype dtype, uint64_t i, uint64_t end)
{
    for (; i < end; i += LANES) {
        uint32_t mask = vec_nonfinite(load_up_to(x, dtype, i, end));
        if (mask)
            return i + (uint64_t)__builtin_ctz(mask);
    }
    return UINT64_MAX;
}

static uint64_t find_nonfinite(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end)
{
    if (dtype == ZINF_DTYPE_F32)
        return find_as(x, ZINF_DTYPE_F32, begin, end);
    if (dtype == ZINF_DTYPE_BF16)
        return find_as(x, ZINF_DTYPE_BF16, begin, end);
    return find_as(x, ZINF_DTYPE_F16, begin, end);
}

ALWAYS_INLINE void accumulate_as(float *dst, const void *src, enum zinf_dtype dtype, uint64_t i,
                                 uint64_t end)
{
    for (; i + LANES <= end; i += LANES)
        vec_store(dst + i, vec_canonical(vec_add(vec_load(dst + i), load_as(src, dtype, i))));
    if (i < end) {
        float sum[LANES];
        vec_store(sum, vec_canonical(vec_add(load_partial(dst, ZINF_DTYPE_F32, i, end - i),
                                             load_partial(src, dtype, i, end - i))));
        memcpy(dst + i, sum, (end - i) * sizeof *dst);
    }
}

static void accumulate(float *dst, const void *src, enum zinf_dtype dtype, uint64_t begin,
                       uint64_t end)
{
    if (dtype == ZINF_DTYPE_F32)
        accumulate_as(dst, src, ZINF_DTYPE_F32, begin, end);
    else if (dtype == ZINF_DTYPE_BF16)
        accumulate_as(dst, src, ZINF_DTYPE_BF16, begin, end);
    else
        accumulate_as(dst, src, ZINF_DTYPE_F16, begin, end);
}

/*
 * reduce_kernels: sum of squares, search for non-finite values, accumulation. Included by each
 * per-ISA file after optim_kernels.h, on whose vector names it stands.
 *
 * The square of an fp32 value is exact in double, so multiply-then-add and fused multiply-add give
 * the same bits; padding a short vector with zeros adds +0 to sums that are never -0.
 */

/* count < LANES elements at i, zeros behind them. */
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

ALWAYS_INLINE double sum_block_as(const void *x, enum zinf_dtype dtype, uint64_t i, uint64_t end)
{
    struct sums sums = sums_zero();
    double lane[OPTIM_SUM_LANES];
    for (; i + OPTIM_SUM_LANES <= end; i += OPTIM_SUM_LANES)
        for (unsigned j = 0; j < OPTIM_SUM_LANES / LANES; j++)
            sums_add(&sums, j, load_as(x, dtype, i + j * LANES));
    for (unsigned j = 0; i + j * LANES < end; j++)
        sums_add(&sums, j, load_up_to(x, dtype, i + j * LANES, end));
    sums_store(&sums, lane);
    for (unsigned half = OPTIM_SUM_LANES / 2; half; half /= 2)
        for (unsigned j = 0; j < half; j++)
            lane[j] += lane[j + half];
    return lane[0];
}

static double sum_block(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end)
{
    if (dtype == ZINF_DTYPE_F32)
        return sum_block_as(x, ZINF_DTYPE_F32, begin, end);
    if (dtype == ZINF_DTYPE_BF16)
        return sum_block_as(x, ZINF_DTYPE_BF16, begin, end);
    return sum_block_as(x, ZINF_DTYPE_F16, begin, end);
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

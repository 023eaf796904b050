/*
 * adafactor_kernels: the three passes of Adafactor over one tensor. The squares of a row are added
 * in double as sum_block adds them, those of a column one row after the other. The factored second
 * moment enters as two roots computed before, so the update is multiplications only.
 *
 * Included by each per-ISA file after reduce_kernels.h.
 */

/* ---- sums of squares ---- */

ALWAYS_INLINE void row_sums_as(enum zinf_dtype dtype, const struct zinf_adafactor_tensor *t,
                               uint64_t row, double *row_sum, double *col_sums)
{
    const vec scale = vec_set1(t->grad_scale);
    const uint64_t begin = row * t->cols, end = begin + t->cols;
    struct sums sums = sums_zero();
    uint64_t i = begin;
    for (; i + OPTIM_SUM_LANES <= end; i += OPTIM_SUM_LANES)
        for (unsigned j = 0; j < OPTIM_SUM_LANES / LANES; j++) {
            vec g = vec_mul(load_as(t->grad, dtype, i + j * LANES), scale);
            sums_add(&sums, j, g);
            squares_add(col_sums + (i - begin) + j * LANES, g);
        }
    for (unsigned j = 0; i + j * LANES < end; j++) {
        vec g = vec_mul(load_up_to(t->grad, dtype, i + j * LANES, end), scale);
        sums_add(&sums, j, g);
        squares_add(col_sums + (i - begin) + j * LANES, g);
    }
    *row_sum = sums_total(&sums);
}

static void adafactor_sums(const struct zinf_adafactor_tensor *t, uint64_t begin_row,
                           uint64_t end_row, double *row_sums, double *col_sums)
{
    for (uint64_t row = begin_row; row < end_row; row++) {
        if (t->grad_dtype == ZINF_DTYPE_F32)
            row_sums_as(ZINF_DTYPE_F32, t, row, row_sums + row, col_sums);
        else if (t->grad_dtype == ZINF_DTYPE_BF16)
            row_sums_as(ZINF_DTYPE_BF16, t, row, row_sums + row, col_sums);
        else
            row_sums_as(ZINF_DTYPE_F16, t, row, row_sums + row, col_sums);
    }
}

/* ---- the update ---- */

/* The update of the lanes from column j on; g is the scaled gradient. */
ALWAYS_INLINE vec update_at(const struct adafactor_pass *pass, vec row_root, vec g, uint64_t j)
{
    vec root = vec_mul(row_root, vec_load(pass->col_roots + j));
    return vec_mul(g, vec_min(root, vec_set1(pass->limit)));
}

ALWAYS_INLINE double norm_as(enum zinf_dtype dtype, const struct adafactor_pass *pass, uint64_t row)
{
    const struct zinf_adafactor_tensor *t = pass->tensor;
    const vec scale = vec_set1(t->grad_scale), root = vec_set1(pass->row_roots[row]);
    const uint64_t begin = row * t->cols, end = begin + t->cols;
    struct sums sums = sums_zero();
    uint64_t i = begin;
    for (; i + OPTIM_SUM_LANES <= end; i += OPTIM_SUM_LANES)
        for (unsigned j = 0; j < OPTIM_SUM_LANES / LANES; j++) {
            vec g = vec_mul(load_as(t->grad, dtype, i + j * LANES), scale);
            sums_add(&sums, j, update_at(pass, root, g, i - begin + j * LANES));
        }
    for (unsigned j = 0; i + j * LANES < end; j++) {
        vec g = vec_mul(load_up_to(t->grad, dtype, i + j * LANES, end), scale);
        sums_add(&sums, j, update_at(pass, root, g, i - begin + j * LANES));
    }
    return sums_total(&sums);
}

static double adafactor_norm(const struct adafactor_pass *pass, uint64_t row)
{
    if (pass->tensor->grad_dtype == ZINF_DTYPE_F32)
        return norm_as(ZINF_DTYPE_F32, pass, row);
    if (pass->tensor->grad_dtype == ZINF_DTYPE_BF16)
        return norm_as(ZINF_DTYPE_BF16, pass, row);
    return norm_as(ZINF_DTYPE_F16, pass, row);
}

ALWAYS_INLINE vec applied(const struct adafactor_pass *pass, vec p, vec update)
{
    if (pass->decay)
        p = vec_fma(vec_set1(-pass->lr_decay), p, p);
    return vec_canonical(vec_fma(vec_set1(-pass->step_size), update, p));
}

/* Updates fewer than LANES elements, from element i on, through arrays on the stack. */
static __attribute__((noinline)) void apply_partial(const struct adafactor_pass *pass, uint64_t i,
                                                    uint64_t count, float row_root, uint64_t j)
{
    const struct zinf_adafactor_tensor *t = pass->tensor;
    const size_t param_bytes = t->param_dtype == ZINF_DTYPE_F32 ? 4 : 2;
    char *param = t->param ? (char *)t->param + i * param_bytes : NULL;
    float master[LANES] = {0}, copy[LANES] = {0};
    uint16_t remainder[LANES] = {0};
    vec g = vec_mul(load_up_to(t->grad, t->grad_dtype, i, i + count), vec_set1(t->grad_scale));
    vec update = update_at(pass, vec_set1(row_root), g, j);
    if (t->remainder) {
        memcpy(copy, param, count * param_bytes);
        memcpy(remainder, t->remainder + i, count * sizeof *remainder);
        vec p = applied(pass, vec_load_split((uint16_t *)(void *)copy, remainder), update);
        vec_store_split((uint16_t *)(void *)copy, remainder, p);
        memcpy(t->remainder + i, remainder, count * sizeof *remainder);
    } else {
        memcpy(master, t->master + i, count * sizeof *master);
        vec p = applied(pass, vec_load(master), update);
        vec_store(master, p);
        memcpy(t->master + i, master, count * sizeof *master);
        if (param)
            store_as(copy, t->param_dtype, 0, p);
    }
    if (param)
        memcpy(param, copy, count * param_bytes);
}

ALWAYS_INLINE void apply_as(enum zinf_dtype grad_dtype, enum zinf_dtype param_dtype,
                            const struct adafactor_pass *given, uint64_t row)
{
    const struct adafactor_pass pass = *given; /* a local copy, which stores cannot alias */
    const struct zinf_adafactor_tensor t = *pass.tensor;
    const vec scale = vec_set1(t.grad_scale), root = vec_set1(pass.row_roots[row]);
    const uint64_t begin = row * t.cols, end = begin + t.cols;
    uint64_t i = begin;
    for (; i + LANES <= end; i += LANES) {
        vec g = vec_mul(load_as(t.grad, grad_dtype, i), scale);
        vec update = update_at(&pass, root, g, i - begin);
        if (param_dtype == SPLIT_MASTER) {
            vec p = vec_load_split((const uint16_t *)t.param + i, t.remainder + i);
            vec_store_split((uint16_t *)t.param + i, t.remainder + i, applied(&pass, p, update));
            continue;
        }
        vec p = applied(&pass, vec_load(t.master + i), update);
        vec_store(t.master + i, p);
        store_as(t.param, param_dtype, i, p);
    }
    if (i < end)
        apply_partial(&pass, i, end - i, pass.row_roots[row], i - begin);
}

ALWAYS_INLINE void apply_to(enum zinf_dtype grad_dtype, const struct adafactor_pass *pass,
                            uint64_t row)
{
    const struct zinf_adafactor_tensor *t = pass->tensor;
    if (t->remainder)
        apply_as(grad_dtype, SPLIT_MASTER, pass, row);
    else if (!t->param)
        apply_as(grad_dtype, NO_PARAM, pass, row);
    else if (t->param_dtype == ZINF_DTYPE_F32)
        apply_as(grad_dtype, ZINF_DTYPE_F32, pass, row);
    else if (t->param_dtype == ZINF_DTYPE_BF16)
        apply_as(grad_dtype, ZINF_DTYPE_BF16, pass, row);
    else
        apply_as(grad_dtype, ZINF_DTYPE_F16, pass, row);
}

static void adafactor_apply(const struct adafactor_pass *pass, uint64_t row)
{
    if (pass->tensor->grad_dtype == ZINF_DTYPE_F32)
        apply_to(ZINF_DTYPE_F32, pass, row);
    else if (pass->tensor->grad_dtype == ZINF_DTYPE_BF16)
        apply_to(ZINF_DTYPE_BF16, pass, row);
    else
        apply_to(ZINF_DTYPE_F16, pass, row);
}

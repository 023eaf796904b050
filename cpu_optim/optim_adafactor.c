/*
 * optim_adafactor: Adafactor over one whole tensor. First the sums of squares over rows and
 * columns, from which nothing is changed yet, so that a gradient that is not finite is found in
 * time; then the moments; then the norm of the update, and the update.
 *
 * Columns are summed over stripes of rows that depend on the shape alone, and stripes are added in
 * order: the bits do not depend on the number of threads.
 */
#include "cpu_optim/optim_internal.h"

#include <math.h>

#define MAX_STRIPES 64u
#define MAX_SQUARES 0x1p127 /* their means are kept in fp32 */
#define STRIPE_ROWS 64u     /* a stripe's column sums are a small part of what it reads */

struct workspace {
    double *row_sums; /* [rows], then squares of the update's rows */
    double *col_sums; /* [stripes][padded_cols] */
    float *row_roots; /* [rows] */
    float *col_roots; /* [padded_cols] */
    uint64_t stripes, padded_cols;
};

struct job {
    const struct optim_ops *ops;
    const struct zinf_adafactor_tensor *tensor;
    struct workspace work;
    struct adafactor_pass pass;
    float weight; /* of this step in the second moments */
};

static struct workspace workspace_of(void *memory, uint64_t rows, uint64_t cols)
{
    struct workspace w = {.stripes = rows / STRIPE_ROWS,
                          .padded_cols = zinf_align_up(cols, OPTIM_SUM_LANES)};
    if (w.stripes > MAX_STRIPES)
        w.stripes = MAX_STRIPES;
    if (!w.stripes)
        w.stripes = 1;
    w.col_sums = memory;
    w.col_roots = (float *)(w.col_sums + w.stripes * w.padded_cols);
    w.row_sums = (double *)(void *)(w.col_roots + w.padded_cols);
    w.row_roots = (float *)(w.row_sums + rows);
    return w;
}

uint64_t zinf_adafactor_workspace_bytes(uint64_t rows, uint64_t cols)
{
    struct workspace w = workspace_of(NULL, rows, cols);
    return w.padded_cols * (w.stripes * sizeof(double) + sizeof(float)) +
           rows * (sizeof(double) + sizeof(float));
}

uint64_t zinf_adafactor_state_bytes(uint64_t rows, uint64_t cols, bool split_master)
{
    uint64_t moments = rows > 1 ? rows + cols : cols;
    return moments * sizeof(float) + rows * cols * (split_master ? 2 : 4);
}

/* ---- second moments ---- */

static void sum_stripes(void *arg, uint64_t begin, uint64_t end)
{
    struct job *job = arg;
    const struct workspace *w = &job->work;
    for (uint64_t stripe = begin; stripe < end; stripe++) {
        double *col_sums = w->col_sums + stripe * w->padded_cols;
        memset(col_sums, 0, w->padded_cols * sizeof *col_sums);
        job->ops->adafactor_sums(job->tensor, job->tensor->rows * stripe / w->stripes,
                                 job->tensor->rows * (stripe + 1) / w->stripes, w->row_sums,
                                 col_sums);
    }
}

/* moment moves towards mean by the weight of this step. */
static float moved(float moment, double mean, float weight)
{
    return (float)((1 - (double)weight) * (double)moment + (double)weight * mean);
}

static void update_cols(void *arg, uint64_t begin, uint64_t end)
{
    struct job *job = arg;
    const struct workspace *w = &job->work;
    float *moments = job->tensor->col_moment;
    for (uint64_t j = begin; j < end; j++) {
        double sum = 0;
        for (uint64_t stripe = 0; stripe < w->stripes; stripe++)
            sum += w->col_sums[stripe * w->padded_cols + j];
        moments[j] = moved(moments[j], sum / (double)job->tensor->rows, job->weight);
        w->col_roots[j] = (float)(1 / sqrt((double)moments[j]));
    }
}

static void update_rows(struct job *job, float eps1)
{
    const struct workspace *w = &job->work;
    const struct zinf_adafactor_tensor *t = job->tensor;
    double sum = 0;
    if (t->rows == 1) {
        w->row_roots[0] = 1;
        return;
    }
    for (uint64_t i = 0; i < t->rows; i++) {
        t->row_moment[i] = moved(t->row_moment[i], w->row_sums[i] / (double)t->cols, job->weight);
        sum += (double)t->row_moment[i];
    }
    double mean = fmax(sum / (double)t->rows, (double)eps1);
    for (uint64_t i = 0; i < t->rows; i++)
        w->row_roots[i] = (float)(1 / sqrt((double)t->row_moment[i] / mean));
}

/* ---- the update ---- */

static void norm_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct job *job = arg;
    for (uint64_t row = begin; row < end; row++)
        job->work.row_sums[row] = job->ops->adafactor_norm(&job->pass, row);
}

static void apply_rows(void *arg, uint64_t begin, uint64_t end)
{
    const struct job *job = arg;
    const struct zinf_adafactor_tensor *t = job->tensor;
    const size_t row_bytes = t->cols * zinf_dtype_bytes(t->grad_dtype);
    for (uint64_t row = begin; row < end; row++) {
        job->ops->adafactor_apply(&job->pass, row);
        if (t->zero_grad)
            memset((char *)t->grad + row * row_bytes, 0, row_bytes);
    }
}

static double total(const double *sums, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += sums[i];
    return sum;
}

/* The step of a parameter of scale 1, before clipping. */
static double step_of(const struct zinf_adafactor_hyper *h, double mean_square)
{
    double rho = (double)h->lr;
    if (h->relative_step)
        rho = fmin(rho, 1 / sqrt((double)h->step));
    return h->scale_parameter ? rho * fmax((double)h->eps2, sqrt(mean_square)) : rho;
}

int optim_adafactor_with(const struct optim_ops *ops, const struct zinf_adafactor_hyper *hyper,
                         const struct zinf_adafactor_tensor *t, int n_threads)
{
    const uint64_t n = t->rows * t->cols;
    struct job job = {.ops = ops,
                      .tensor = t,
                      .work = workspace_of(t->workspace, t->rows, t->cols),
                      .weight = (float)pow((double)hyper->step, (double)hyper->beta2_decay)};
    uint64_t nonfinite = UINT64_MAX;
    double squares = 0;
    n_threads = optim_useful_threads(n, n_threads);
    optim_parallel_units(job.work.stripes, n_threads, sum_stripes, &job);
    if (!(total(job.work.row_sums, t->rows) <= MAX_SQUARES)) {
        int rc = optim_check_finite(ops, t->grad, t->grad_dtype, n, &nonfinite, n_threads);
        if (t->nonfinite)
            *t->nonfinite = nonfinite;
        return rc ? rc
                  : zinf_fail(-ERANGE,
                              "adafactor: squares of gradients scaled by %g overflow: "
                              "nothing was changed; lower grad_scale",
                              (double)t->grad_scale);
    }
    if (hyper->scale_parameter)
        squares = t->remainder ? optim_sum_split_with(ops, t->param, t->remainder, n, n_threads)
                               : optim_sum_with(ops, t->master, ZINF_DTYPE_F32, n, n_threads);
    optim_parallel_units(t->cols, n_threads, update_cols, &job);
    for (uint64_t j = t->cols; j < job.work.padded_cols; j++)
        job.work.col_roots[j] = 0;
    update_rows(&job, hyper->eps1);
    job.pass = (struct adafactor_pass){
        .tensor = t,
        .row_roots = job.work.row_roots,
        .col_roots = job.work.col_roots,
        .limit = (float)(1 / (double)hyper->eps1),
        .decay = hyper->weight_decay > 0,
        .lr_decay = (float)((double)hyper->lr * (double)hyper->weight_decay),
    };
    optim_parallel_units(t->rows, n_threads, norm_rows, &job);
    double norm = sqrt(total(job.work.row_sums, t->rows) / (double)n);
    job.pass.step_size = (float)(step_of(hyper, squares / (double)n) /
                                 fmax(1, norm / (double)hyper->clip_threshold));
    optim_parallel_units(t->rows, n_threads, apply_rows, &job);
    if (t->nonfinite)
        *t->nonfinite = UINT64_MAX;
    return 0;
}

/* ---- checks ---- */

static int check_hyper(const struct zinf_adafactor_hyper *h)
{
    int rc = optim_check_number("lr", h->lr, INFINITY);
    if (!rc)
        rc = optim_check_number("weight_decay", h->weight_decay, INFINITY);
    if (!rc)
        rc = optim_check_number("eps2", h->eps2, INFINITY);
    if (rc)
        return rc;
    if (!h->step)
        return zinf_fail(-EINVAL, "adafactor: step is 0: the first update is step 1");
    if (!(h->beta2_decay <= 0 && h->beta2_decay > -INFINITY))
        return zinf_fail(-EINVAL, "adafactor: beta2_decay is %g: give 0 or less, such as -0.8",
                         (double)h->beta2_decay);
    if (!(h->eps1 >= 0x1p-60f && h->eps1 < INFINITY))
        return zinf_fail(-EINVAL, "adafactor: eps1 is %g: give at least 1e-18", (double)h->eps1);
    if (!(h->clip_threshold > 0))
        return zinf_fail(-EINVAL, "adafactor: clip_threshold is %g: give more than 0",
                         (double)h->clip_threshold);
    return 0;
}

static int check_tensor(const struct zinf_adafactor_tensor *t)
{
    if (t->rows && t->cols > ((uint64_t)1 << 60) / t->rows)
        return zinf_fail(-EINVAL, "adafactor: %llu rows of %llu are more than memory can hold",
                         (unsigned long long)t->rows, (unsigned long long)t->cols);
    const uint64_t n = t->rows * t->cols;
    const struct optim_tensors tensors = {n,        t->master,     t->remainder,   t->grad,
                                          t->param, t->grad_dtype, t->param_dtype, t->grad_scale};
    int rc = optim_check_tensors(&tensors);
    if (rc || !n)
        return rc;
    if (!t->col_moment || (t->rows > 1 && !t->row_moment) || !t->workspace)
        return zinf_fail(-EINVAL, "adafactor: %s is NULL",
                         !t->col_moment  ? "col_moment"
                         : !t->workspace ? "workspace"
                                         : "row_moment");
    if ((uintptr_t)t->workspace % 64)
        return zinf_fail(-EINVAL, "adafactor: workspace is not 64-byte aligned");
    const struct optim_range ranges[] = {
        {"master", t->master, 4 * n},
        {"remainder", t->remainder, 2 * n},
        {"row_moment", t->rows > 1 ? t->row_moment : NULL, 4 * t->rows},
        {"col_moment", t->col_moment, 4 * t->cols},
        {"grad", t->grad, n * zinf_dtype_bytes(t->grad_dtype)},
        {"param", t->param, n * zinf_dtype_bytes(t->param_dtype)},
        {"workspace", t->workspace, zinf_adafactor_workspace_bytes(t->rows, t->cols)},
    };
    return optim_check_apart(ranges, sizeof ranges / sizeof *ranges);
}

int zinf_adafactor_step(const struct zinf_adafactor_hyper *hyper,
                        const struct zinf_adafactor_tensor *tensor, int n_threads)
{
    int rc = check_hyper(hyper);
    if (!rc)
        rc = check_tensor(tensor);
    if (rc || !tensor->rows || !tensor->cols)
        return rc;
    return optim_adafactor_with(optim_ops_of(zinf_isa()), hyper, tensor, n_threads);
}

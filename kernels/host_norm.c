/*
 * host_norm: LayerNorm and RMSNorm. The variance takes two passes, for the mean and then for
 * centred squares: one pass would lose it where the mean is large. A unit is what is normalised by
 * itself: a row, or one head of a row. In backward, parts of the units sum up dw and db in the
 * workspace, and the parts' sums are then added in order.
 */
#include "kernels/host.h"

#include <math.h>

enum { MOST_SUM_PARTS = 16 };

static size_t chunk_at(int64_t column, int64_t cols)
{
    return cols - column < HOST_CHUNK ? (size_t)(cols - column) : HOST_CHUNK;
}

static uint64_t unit_count(const struct zinf_norm *a)
{
    return (uint64_t)a->rows * (uint64_t)norm_heads(a);
}

/* The index of a unit's first element. */
static uint64_t unit_at(const struct zinf_norm *a, int64_t unit)
{
    int64_t heads = norm_heads(a);
    return (uint64_t)(unit / heads * norm_ld(a) + unit % heads * a->cols);
}

/* Returns n weights from column c on. They are read in place where they are fp32 and nothing is
 * added to them. */
static const float *read_weights(const struct host_simd *simd, const struct zinf_norm *a,
                                 float *buffer, int64_t c, size_t n)
{
    const float *w =
        a->w ? host_read(simd, buffer, a->w, a->dtype, (uint64_t)c, n) : memset(buffer, 0, n * 4);
    const float add = norm_w_add(a);
    if (add == 0.0f)
        return w;
    for (size_t i = 0; i < n; i++)
        buffer[i] = add + w[i];
    return buffer;
}

/* ---- forward ---- */

static void statistics(const struct host_simd *simd, const struct zinf_norm *a, int64_t unit)
{
    float buffer[HOST_CHUNK];
    uint64_t start = unit_at(a, unit);
    double sum = 0.0, squares = 0.0, mean = 0.0;
    if (a->kind == ZINF_NORM_LAYER) {
        for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
            size_t n = chunk_at(c, a->cols);
            sum += simd->sum(host_read(simd, buffer, a->x, a->dtype, start + (uint64_t)c, n), n);
        }
        mean = sum / (double)a->cols;
    }
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
        size_t n = chunk_at(c, a->cols);
        const float *x = host_read(simd, buffer, a->x, a->dtype, start + (uint64_t)c, n);
        squares += simd->sum_squares(x, (float)mean, n);
    }
    if (a->kind == ZINF_NORM_LAYER)
        a->mean[unit] = (float)mean;
    a->rstd[unit] = (float)(1.0 / sqrt(squares / (double)a->cols + (double)a->eps));
}

static void forward_unit(const struct host_simd *simd, const void *args, uint64_t number)
{
    const struct zinf_norm *a = args;
    const int64_t unit = (int64_t)number;
    float x[HOST_CHUNK], w[HOST_CHUNK], b[HOST_CHUNK];
    uint64_t start = unit_at(a, unit);
    statistics(simd, a, unit);
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
        size_t n = chunk_at(c, a->cols);
        uint64_t at = start + (uint64_t)c;
        struct host_norm_row chunk = {
            .x = host_read(simd, x, a->x, a->dtype, at, n),
            .w = read_weights(simd, a, w, c, n),
            .b = a->b ? host_read(simd, b, a->b, a->dtype, (uint64_t)c, n) : NULL,
            .y = host_target(x, a->y, a->dtype, at),
            .mean = a->kind == ZINF_NORM_LAYER ? a->mean[unit] : 0.0f,
            .rstd = a->rstd[unit],
        };
        simd->norm(&chunk, n);
        host_write(simd, chunk.y, a->y, a->dtype, at, n);
    }
}

int host_norm_forward(struct zinf_queue *q, const struct zinf_norm *args)
{
    int code = check_norm(args, "norm_forward");
    if (code)
        return code;
    const int64_t n_units = (int64_t)unit_count(args);
    return host_each_row(q, n_units, n_units * args->cols, forward_unit, args);
}

int host_residual_norm(struct zinf_queue *q, const struct zinf_residual *sum,
                       const struct zinf_norm *norm)
{
    int code = check_residual_norm(sum, norm);
    if (!code)
        code = host_residual_add(q, sum);
    return code ? code : host_norm_forward(q, norm);
}

/* ---- backward ---- */

/* In how many parts dw and db are summed. It does not depend on the number of threads, so bits do
 * not either. */
static int sum_parts(const struct zinf_norm *args)
{
    const uint64_t n_units = unit_count(args);
    if (n_units * (uint64_t)args->cols < HOST_PARALLEL_MIN)
        return 1;
    return n_units < MOST_SUM_PARTS ? (int)n_units : MOST_SUM_PARTS;
}

uint64_t host_norm_workspace(struct zinf_device *device, const struct zinf_norm *args)
{
    (void)device;
    return (uint64_t)sum_parts(args) * 2 * (uint64_t)args->cols * sizeof(float);
}

/* Arrays of one chunk of a unit, converted where they are not fp32. */
static struct host_norm_row backward_chunk(const struct host_simd *simd, const struct zinf_norm *a,
                                           int64_t unit, int64_t c, float buffers[3][HOST_CHUNK])
{
    size_t n = chunk_at(c, a->cols);
    uint64_t at = unit_at(a, unit) + (uint64_t)c;
    return (struct host_norm_row){
        .x = host_read(simd, buffers[0], a->x, a->dtype, at, n),
        .w = read_weights(simd, a, buffers[1], c, n),
        .dy = host_read(simd, buffers[2], a->dy, a->dtype, at, n),
        .mean = a->kind == ZINF_NORM_LAYER ? a->mean[unit] : 0.0f,
        .rstd = a->rstd[unit],
    };
}

static void backward_unit(const struct host_simd *simd, const struct zinf_norm *a, int64_t unit,
                          float *dw, float *db)
{
    float buffers[3][HOST_CHUNK], dx_buffer[HOST_CHUNK], sum_g, sum_gx;
    double total_g = 0.0, total_gx = 0.0;
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
        struct host_norm_row chunk = backward_chunk(simd, a, unit, c, buffers);
        simd->norm_sums(&chunk, chunk_at(c, a->cols), &sum_g, &sum_gx);
        total_g += sum_g;
        total_gx += sum_gx;
    }
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
        size_t n = chunk_at(c, a->cols);
        uint64_t at = unit_at(a, unit) + (uint64_t)c;
        struct host_norm_row chunk = backward_chunk(simd, a, unit, c, buffers);
        chunk.mean_g = a->kind == ZINF_NORM_LAYER ? (float)(total_g / (double)a->cols) : 0.0f;
        chunk.mean_gx = (float)(total_gx / (double)a->cols);
        chunk.add_dx = a->beta_dx != 0.0f;
        chunk.dx = host_target(dx_buffer, a->dx, a->dtype, at);
        if (chunk.add_dx)
            host_read(simd, dx_buffer, a->dx, a->dtype, at, n);
        chunk.dw = a->dw ? dw + c : NULL;
        chunk.db = a->db ? db + c : NULL;
        simd->norm_gradient(&chunk, n);
        host_write(simd, chunk.dx, a->dx, a->dtype, at, n);
    }
}

int host_norm_backward(struct zinf_queue *q, const struct zinf_norm *args)
{
    const struct host_simd *simd = q->device->simd;
    const size_t cols = (size_t)args->cols;
    float *partial = q->workspace;
    int code = check_norm(args, "norm_backward");
    if (!code)
        code = check_workspace(q->workspace_bytes, host_norm_workspace(&q->device->device, args),
                               "norm_backward");
    if (code)
        return code;
    const uint64_t n_units = unit_count(args);
    const int n_parts = sum_parts(args), n_threads = host_slices(q->device, n_units * cols);
#pragma omp parallel for num_threads(n_threads) schedule(static)
    for (int part = 0; part < n_parts; part++) {
        struct host_range range = host_slice(n_units, 1, part, n_parts);
        float *dw = partial + (size_t)part * 2 * cols, *db = dw + cols;
        if (args->dw)
            memset(dw, 0, 2 * cols * sizeof *dw);
        for (uint64_t i = 0; i < range.count; i++)
            backward_unit(simd, args, (int64_t)(range.first + i), dw, db);
    }
    if (!args->dw)
        return 0;
    memcpy(args->dw, partial, cols * sizeof *args->dw);
    if (args->db)
        memcpy(args->db, partial + cols, cols * sizeof *args->db);
    for (int part = 1; part < n_parts; part++) {
        simd->add(args->dw, partial + (size_t)part * 2 * cols, cols);
        if (args->db)
            simd->add(args->db, partial + ((size_t)part * 2 + 1) * cols, cols);
    }
    return 0;
}

/*
 * host_route: chooses each row's experts, and gathers, weighs and scatters the rows that have
 * chosen one. Backward computes a row's softmax again, which takes less time than storing and
 * loading it.
 */
#include "kernels/host.h"

#include <math.h>

#define NOT_CHOSEN (-1.0f)

/* ---- choosing ---- */

static void probabilities(const struct host_simd *simd, float *p, const float *logits, size_t n)
{
    memcpy(p, logits, n * sizeof *p);
    float top = simd->max(p, n), sum = simd->sum_exp(p, top, n);
    simd->scale_exp(p, top, 1 / sum, n);
}

/* Writes a row's probabilities to p. */
static void scores(const struct host_simd *simd, const struct zinf_route *a, float *p,
                   const float *logits)
{
    if (!a->sigmoid) {
        probabilities(simd, p, logits, (size_t)a->cols);
        return;
    }
    for (int64_t e = 0; e < a->cols; e++)
        p[e] = 1.0f / (1.0f + expf(-logits[e]));
}

/* The index of the largest number, the first if several are equal, among those whose mark is
 * negative. NaN comes last, but is taken where nothing else is left, so that every row chooses as
 * many. */
static int64_t largest(const float *marks, const float *c, int64_t n)
{
    int64_t best = -1;
    for (int64_t e = 0; e < n; e++)
        if (marks[e] < 0 && (best < 0 || c[e] > c[best]))
            best = e;
    return best;
}

/* Sets what is outside of the groups that the row chooses to -infinity. */
static void keep_groups(const struct zinf_route *a, float *c)
{
    float sums[ZINF_ROUTE_MAX_GROUPS], marks[ZINF_ROUTE_MAX_GROUPS];
    const int64_t size = a->n_groups ? a->cols / a->n_groups : 0;
    for (int64_t g = 0; g < a->n_groups; g++) {
        float best = -INFINITY, next = -INFINITY;
        for (int64_t e = g * size; e < (g + 1) * size; e++) {
            next = c[e] > best ? best : c[e] > next ? c[e] : next;
            best = c[e] > best ? c[e] : best;
        }
        sums[g] = a->group_top == 2 ? best + next : best;
        marks[g] = NOT_CHOSEN;
    }
    for (int64_t i = 0; a->n_groups && i < a->n_groups_chosen; i++)
        marks[largest(marks, sums, a->n_groups)] = 1;
    for (int64_t e = 0; e < size * a->n_groups; e++)
        c[e] = marks[e / size] < 0 ? -INFINITY : c[e];
}

static void choose(const struct zinf_route *a, float *weights, const float *p)
{
    const float scale = a->scale != 0 ? a->scale : 1;
    float sum = 0, c[ZINF_ROUTE_MAX_COLS];
    for (int64_t e = 0; e < a->cols; e++) {
        weights[e] = NOT_CHOSEN;
        c[e] = a->bias ? p[e] + ZINF_ROUTE_BIAS(a->bias, a->cols, e) : p[e];
    }
    keep_groups(a, c);
    for (int64_t i = 0; i < a->n_chosen; i++) {
        int64_t e = largest(weights, c, a->cols);
        sum += weights[e] = p[e];
    }
    for (int64_t e = 0; e < a->cols; e++)
        if (!(weights[e] < 0))
            weights[e] = scale * (a->normalised ? weights[e] / sum : weights[e]);
}

/* g, the gradient of the probabilities: of weights w = p / sum(p) it is
 * (d_w - sum(d_w w)) / sum(p), sums over those that the row chose. */
static void probability_gradients(const struct zinf_route *a, const float *weights,
                                  const float *d_weights, const float *p, float *g)
{
    const float scale = a->scale != 0 ? a->scale : 1;
    float sum = 0, inner = 0;
    for (int64_t e = 0; e < a->cols; e++)
        if (!(weights[e] < 0)) {
            sum += p[e];
            inner += d_weights[e] * weights[e];
        }
    for (int64_t e = 0; e < a->cols; e++) {
        float chosen = a->normalised ? (scale * d_weights[e] - inner) / sum : scale * d_weights[e];
        g[e] = weights[e] < 0 ? 0 : chosen;
        g[e] += a->d_probs ? a->d_probs[e] : 0;
    }
}

static void backward_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_route *a = args;
    const uint64_t at = row * (uint64_t)a->cols;
    const float *weights = a->weights + at, *d = a->d_weights + at;
    float p[ZINF_ROUTE_MAX_COLS], g[ZINF_ROUTE_MAX_COLS], *d_logits = a->d_logits + at, sum = 0;
    scores(simd, a, p, a->logits + at);
    probability_gradients(a, weights, d, p, g);
    for (int64_t e = 0; e < a->cols && !a->sigmoid; e++)
        sum += p[e] * g[e];
    for (int64_t e = 0; e < a->cols; e++)
        d_logits[e] = a->sigmoid ? p[e] * (1 - p[e]) * g[e] : p[e] * (g[e] - sum);
}

static void forward_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_route *a = args;
    const uint64_t at = row * (uint64_t)a->cols;
    float p[ZINF_ROUTE_MAX_COLS];
    scores(simd, a, p, a->logits + at);
    choose(a, a->weights + at, p);
}

static int route(struct zinf_queue *q, const struct zinf_route *args, const char *operation,
                 host_row *do_row)
{
    int code = check_route(args, operation);
    return code ? code : host_each_row(q, args->rows, args->rows * args->cols, do_row, args);
}

int host_route_forward(struct zinf_queue *q, const struct zinf_route *args)
{
    return route(q, args, "route_forward", forward_row);
}

int host_route_backward(struct zinf_queue *q, const struct zinf_route *args)
{
    return route(q, args, "route_backward", backward_row);
}

/* ---- balance ---- */

static void share_sample(const struct host_simd *simd, const void *args, uint64_t sample)
{
    const struct zinf_shares *a = args;
    float p[ZINF_ROUTE_MAX_COLS];
    float *counts = a->shares + sample * 2 * (uint64_t)a->cols, *sums = counts + a->cols;
    if (a->before)
        memcpy(counts, a->before + sample * 2 * (uint64_t)a->cols,
               2 * (size_t)a->cols * sizeof *counts);
    else
        memset(counts, 0, 2 * (size_t)a->cols * sizeof *counts);
    for (int64_t i = 0; i < a->seq; i++) {
        int64_t row = ((int64_t)sample * a->seq + i) * a->cols;
        probabilities(simd, p, a->logits + row, (size_t)a->cols);
        simd->add(sums, p, (size_t)a->cols);
        for (int64_t e = 0; e < a->cols; e++)
            counts[e] += a->weights[row + e] < 0 ? 0 : 1;
    }
}

int host_route_shares(struct zinf_queue *q, const struct zinf_shares *args)
{
    const int64_t work = args->samples * args->seq * args->cols;
    int code = check_shares(args);
    return code ? code : host_each_row(q, args->samples, work, share_sample, args);
}

int host_route_balance(struct zinf_queue *q, const struct zinf_balance *args)
{
    float counts[ZINF_ROUTE_MAX_COLS] = {0};
    int code = check_balance(args);
    (void)q;
    for (int64_t s = 0; !code && s < args->samples; s++)
        for (int64_t e = 0; e < args->cols; e++)
            counts[e] += args->shares[s * 2 * args->cols + e];
    for (int64_t s = 0; !code && s < args->samples; s++) {
        const float *sums = args->shares + (2 * s + 1) * args->cols;
        float *d = args->d_shares ? args->d_shares + 2 * s * args->cols : NULL, loss = 0;
        for (int64_t e = 0; e < args->cols; e++)
            loss += counts[e] * sums[e];
        for (int64_t e = 0; d && e < args->cols; e++) {
            d[e] = 0;
            d[args->cols + e] = args->factor * counts[e];
        }
        if (args->loss)
            args->loss[s] = args->factor * loss;
    }
    return code;
}

/* ---- chosen rows ---- */

/* The number of row i of a list; without a list it is i. */
static uint64_t row_of(const int32_t *rows, uint64_t i)
{
    return rows ? (uint64_t)rows[i] : i;
}

static void gather_row(const struct host_simd *simd, const void *args, uint64_t i)
{
    const struct zinf_rows *a = args;
    const size_t bytes = (size_t)a->cols * zinf_dtype_bytes(a->x_dtype);
    (void)simd;
    memcpy((char *)a->y + i * bytes, (const char *)a->x + row_of(a->rows, i) * bytes, bytes);
}

int host_gather_rows(struct zinf_queue *q, const struct zinf_rows *args)
{
    int code = check_rows(args, "gather_rows");
    return code ? code : host_each_row(q, args->n, args->n * args->cols, gather_row, args);
}

static void fill(float *factors, float value, size_t n)
{
    for (size_t k = 0; k < n; k++)
        factors[k] = value;
}

static void scatter_row(const struct host_simd *simd, const void *args, uint64_t i)
{
    const struct zinf_rows *a = args;
    float x_buffer[HOST_CHUNK], y_buffer[HOST_CHUNK], factors[HOST_CHUNK];
    uint64_t row = row_of(a->rows, i), cols = (uint64_t)a->cols;
    fill(factors, a->scale ? a->scale[row * (uint64_t)a->scale_ld] : 1, HOST_CHUNK);
    for (uint64_t c = 0; c < cols; c += HOST_CHUNK) {
        size_t n = cols - c < HOST_CHUNK ? (size_t)(cols - c) : HOST_CHUNK;
        uint64_t to = row * cols + c;
        const float *y = host_read(simd, y_buffer, a->y, a->y_dtype, to, n);
        float *sum = host_target(y_buffer, a->y, a->y_dtype, to);
        simd->multiply_add(sum, y, host_read(simd, x_buffer, a->x, a->x_dtype, i * cols + c, n),
                           factors, n);
        host_write(simd, sum, a->y, a->y_dtype, to, n);
    }
}

int host_scatter_rows(struct zinf_queue *q, const struct zinf_rows *args)
{
    int code = check_rows(args, "scatter_rows");
    return code ? code : host_each_row(q, args->n, args->n * args->cols, scatter_row, args);
}

/* Multiplies n numbers of the array, from element `at` on, by factors. */
static void scale_chunk(const struct host_simd *simd, void *array, enum zinf_dtype dtype,
                        uint64_t at, const float *factors, size_t n)
{
    float buffer[HOST_CHUNK];
    const float *x = host_read(simd, buffer, array, dtype, at, n);
    float *y = host_target(buffer, array, dtype, at);
    simd->multiply(y, x, factors, n);
    host_write(simd, y, array, dtype, at, n);
}

static void weigh_row(const struct host_simd *simd, const void *args, uint64_t i)
{
    const struct zinf_weigh *w = args;
    float a[HOST_CHUNK], b[HOST_CHUNK], products[HOST_CHUNK], factors[HOST_CHUNK], sum = 0;
    uint64_t at = row_of(w->rows, i) * (uint64_t)w->ld, cols = (uint64_t)w->cols;
    fill(factors, w->weights[at], HOST_CHUNK);
    for (uint64_t c = 0; c < cols; c += HOST_CHUNK) {
        size_t n = cols - c < HOST_CHUNK ? (size_t)(cols - c) : HOST_CHUNK;
        uint64_t first = i * cols + c;
        simd->multiply(products, host_read(simd, a, w->a, w->dtype, first, n),
                       host_read(simd, b, w->b, w->dtype, first, n), n);
        sum += simd->sum(products, n);
        scale_chunk(simd, w->a, w->dtype, first, factors, n);
        scale_chunk(simd, w->b, w->dtype, first, factors, n);
    }
    if (w->d_weights)
        w->d_weights[at] = sum;
}

int host_weigh_rows(struct zinf_queue *q, const struct zinf_weigh *args)
{
    int code = check_weigh(args);
    return code ? code : host_each_row(q, args->n, args->n * args->cols, weigh_row, args);
}

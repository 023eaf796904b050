/* host_attention: heads over threads, and what is done beside attention: biases by distance, sinks,
 * heads from one layout of rows to another. Forward takes a query head at a time; backward a key
 * head with all its query heads, so that no two threads add to the same gradient, and where there
 * are relative positions all samples of a head, whose gradients of the table add up. Threads that
 * would find no head share one: tiles of its rows, and of its keys in backward. */
#include "kernels/host.h"

#include <math.h>
#include <omp.h>
#include <string.h>

/* ---- layouts of heads ---- */

static void sum_row(const struct host_simd *simd, const struct zinf_heads *a, uint64_t row)
{
    float sums[ZINF_HEADS_MAX_SUM] = {0}, buffer[ZINF_HEADS_MAX_SUM];
    const size_t cols = (size_t)a->cols;
    const uint64_t to = row * (uint64_t)a->y_ld;
    for (int64_t h = 0; h < a->n_heads; h++) {
        const uint64_t at = row * (uint64_t)a->x_ld + (uint64_t)(h * a->x_step);
        const float *x = host_read(simd, buffer, a->x, a->dtype, at, cols);
        for (size_t c = 0; c < cols; c++)
            sums[c] += x[c];
    }
    float *y = host_target(buffer, a->y, a->dtype, to);
    memcpy(y, sums, cols * sizeof *y);
    host_write(simd, y, a->y, a->dtype, to, cols);
}

static void scale_head(const struct host_simd *simd, const struct zinf_heads *a, uint64_t from,
                       uint64_t to)
{
    float buffer[HOST_CHUNK];
    for (int64_t done = 0; done < a->cols; done += HOST_CHUNK) {
        const int64_t left = a->cols - done;
        const size_t n = left < HOST_CHUNK ? (size_t)left : (size_t)HOST_CHUNK;
        const uint64_t at = to + (uint64_t)done;
        const float *x = host_read(simd, buffer, a->x, a->dtype, from + (uint64_t)done, n);
        float *y = host_target(buffer, a->y, a->dtype, at);
        for (size_t i = 0; i < n; i++)
            y[i] = a->scale * x[i];
        host_write(simd, y, a->y, a->dtype, at, n);
    }
}

static void move_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_heads *a = args;
    const uint64_t width = zinf_dtype_bytes(a->dtype), bytes = (uint64_t)a->cols * width;
    if (zinf_heads_sum(a)) {
        sum_row(simd, a, row);
        return;
    }
    for (int64_t h = 0; h < a->n_heads; h++) {
        const uint64_t to = row * (uint64_t)a->y_ld + (uint64_t)(h * a->y_step);
        const uint64_t from = row * (uint64_t)a->x_ld + (uint64_t)(h * a->x_step);
        if (a->x && zinf_heads_scaled(a))
            scale_head(simd, a, from, to);
        else if (a->x)
            memcpy((char *)a->y + to * width, (const char *)a->x + from * width, bytes);
        else
            memset((char *)a->y + to * width, 0, bytes);
    }
}

int host_copy_heads(struct zinf_queue *q, const struct zinf_heads *args)
{
    const int64_t work = args->rows * args->n_heads * args->cols;
    int code = check_heads(args);
    return code ? code : host_each_row(q, args->rows, work, move_row, args);
}

/* ---- sinks ---- */

/* A sink is a number of each head that takes part in the head's softmax as one more score.
 * Attention computes a row without it. How much smaller the sink makes the row's result follows
 * from the logarithm of the row's sum. */

/* Returns the part of a head's softmax that the sink leaves to the keys. *joined: log(exp(lse) +
 * exp(sink)). */
static float share_of_keys(float lse, float sink, float *joined)
{
    const float top = lse > sink ? lse : sink, away = expf(-fabsf(lse - sink));
    *joined = top + log1pf(away);
    return (lse > sink ? 1.0f : away) / (1.0f + away);
}

static float sink_of(const struct host_simd *simd, const struct zinf_sinks *a, int64_t head)
{
    float buffer[1];
    return *host_read(simd, buffer, a->sinks, a->dtype, (uint64_t)head, 1);
}

/* The index of a row's logarithm in lse. */
static uint64_t lse_at(const struct zinf_sinks *a, uint64_t row, int64_t head)
{
    const uint64_t seq = (uint64_t)a->seq;
    return (row / seq * (uint64_t)a->n_heads + (uint64_t)head) * seq + row % seq;
}

static void forward_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_sinks *a = args;
    float buffer[ZINF_SINKS_MAX_HEAD_DIM], factors[ZINF_SINKS_MAX_HEAD_DIM];
    const size_t dim = (size_t)a->head_dim;
    for (int64_t h = 0; h < a->n_heads; h++) {
        const uint64_t at = (row * (uint64_t)a->n_heads + (uint64_t)h) * dim;
        float *lse = &a->lse[lse_at(a, row, h)];
        const float share = share_of_keys(*lse, sink_of(simd, a, h), lse);
        for (size_t c = 0; c < dim; c++)
            factors[c] = share;
        const float *x = host_read(simd, buffer, a->out, a->dtype, at, dim);
        float *y = host_target(buffer, a->out, a->dtype, at);
        simd->multiply(y, x, factors, dim);
        host_write(simd, y, a->out, a->dtype, at, dim);
    }
}

/* The gradient of a head's sink: minus the sum over rows of the sink's probability times the
 * product of the row's result and that result's gradient. */
static void backward_head(const struct host_simd *simd, const void *args, uint64_t head)
{
    const struct zinf_sinks *a = args;
    float out[ZINF_SINKS_MAX_HEAD_DIM], d_out[ZINF_SINKS_MAX_HEAD_DIM];
    const size_t dim = (size_t)a->head_dim;
    const float sink = sink_of(simd, a, (int64_t)head);
    double sum = 0;
    for (uint64_t row = 0; row < (uint64_t)(a->batch * a->seq); row++) {
        const uint64_t at = (row * (uint64_t)a->n_heads + head) * dim;
        simd->multiply(d_out, host_read(simd, out, a->out, a->dtype, at, dim),
                       host_read(simd, d_out, a->d_out, a->dtype, at, dim), dim);
        sum -= (double)expf(sink - a->lse[lse_at(a, row, (int64_t)head)]) *
               (double)simd->sum(d_out, dim);
    }
    a->d_sinks[head] = (float)sum;
}

int host_sinks_forward(struct zinf_queue *q, const struct zinf_sinks *args)
{
    const int64_t rows = args->batch * args->seq, work = rows * args->n_heads * args->head_dim;
    int code = check_sinks(args, "sinks_forward");
    return code ? code : host_each_row(q, rows, work, forward_row, args);
}

int host_sinks_backward(struct zinf_queue *q, const struct zinf_sinks *args)
{
    const int64_t work = args->batch * args->seq * args->n_heads * args->head_dim;
    int code = check_sinks(args, "sinks_backward");
    return code ? code : host_each_row(q, args->n_heads, work, backward_head, args);
}

/* ---- biases by distance: a few hundred numbers, which one thread makes ---- */

/* distance: the key's position minus the query's. */
static int64_t bucket_of(const struct zinf_distance_bias *a, int64_t distance)
{
    const bool behind = distance > 0;
    int64_t n = behind ? distance : -distance;
    int bucket = 0;
    if (behind && !a->both_ways)
        return 0;
    while (bucket + 1 < a->n_buckets && a->starts[bucket + 1] <= n)
        bucket++;
    return bucket + (behind ? a->n_buckets : 0);
}

int host_distance_bias(struct zinf_queue *q, const struct zinf_distance_bias *args)
{
    const int64_t heads = args->n_heads, distances = zinf_distances(args);
    const struct host_simd *simd = q->device->simd;
    int code = check_distance_bias(args, "distance_bias");
    float row[HOST_CHUNK];
    for (int64_t d = 0; !code && d < distances; d++) {
        const int64_t bucket = bucket_of(args, d + 1 - args->n_queries);
        for (int64_t h = 0; h < heads; h += HOST_CHUNK) {
            const size_t n = (size_t)(heads - h < HOST_CHUNK ? heads - h : HOST_CHUNK);
            const float *from =
                host_read(simd, row, args->table, args->dtype, (uint64_t)(bucket * heads + h), n);
            for (size_t i = 0; i < n; i++)
                args->bias[(h + (int64_t)i) * distances + d] = from[i];
        }
    }
    return code;
}

int host_distance_bias_backward(struct zinf_queue *q, const struct zinf_distance_bias *args)
{
    const int64_t heads = args->n_heads, distances = zinf_distances(args);
    const int64_t rows = args->both_ways ? 2 * args->n_buckets : args->n_buckets;
    int code = check_distance_bias(args, "distance_bias_backward");
    (void)q;
    if (code)
        return code;
    memset(args->d_table, 0, (size_t)(rows * heads) * sizeof *args->d_table);
    for (int64_t b = 0; b < args->batch; b++)
        for (int64_t d = 0; d < distances; d++) {
            float *to = args->d_table + bucket_of(args, d + 1 - args->n_queries) * heads;
            const float *from = args->d_bias + b * heads * distances + d;
            for (int64_t h = 0; h < heads; h++)
                to[h] += from[h * distances];
        }
    return 0;
}

/* ---- attention ---- */

uint64_t host_attention_workspace(struct zinf_device *device, const struct zinf_attention *args)
{
    return (uint64_t)device->n_threads * host_attention_scratch_floats(args) * sizeof(float);
}

typedef void head_function(const struct zinf_attention *args, int64_t b, int64_t head,
                           const struct host_team *team);

struct heads {
    const struct zinf_attention *args;
    head_function *run;
    int64_t n_heads; /* of a sample */
    struct host_team alone;
};

static void run_unit(const struct heads *h, int64_t unit, const struct host_team *team)
{
    h->run(h->args, unit / h->n_heads, unit % h->n_heads, team);
}

/* Heads [0, n_units) of all samples, each by one thread. Which thread takes which head does not
 * change a bit, so the heads are dealt out as threads become free. in_order: a head's samples by
 * one thread, one after the other. */
static void run_apart(const struct heads *h, int64_t n_units, bool in_order, int n_threads)
{
    const int64_t batch = h->args->batch, run_length = in_order && batch > 0 ? batch : 1;
#pragma omp parallel for num_threads(n_threads) schedule(dynamic, 1)
    for (int64_t first = 0; first < n_units; first += run_length) {
        struct host_team alone = h->alone;
        alone.scratch += (uint64_t)omp_get_thread_num() * alone.scratch_floats;
        for (int64_t i = 0; i < run_length; i++)
            run_unit(h, run_length > 1 ? i * h->n_heads + first / run_length : first, &alone);
    }
}

/* Heads [first, end) one after the other, each by all threads. */
static void run_together(const struct heads *h, int64_t first, int64_t end, int n_threads)
{
#pragma omp parallel num_threads(n_threads)
    {
        struct host_team team = h->alone;
        team.thread = omp_get_thread_num();
        team.n_threads = omp_get_num_threads();
        for (int64_t unit = first; unit < end; unit++)
            run_unit(h, unit, &team);
    }
}

/* How many threads find work in one head. */
static int most_together(const struct zinf_queue *q, const struct zinf_attention *args)
{
    const int64_t keys = zinf_attention_keys(args);
    const int64_t rows = args->seq / HOST_TILE_ROWS, tiles = keys / HOST_TILE_KEYS;
    const int64_t most = rows < tiles ? rows : tiles;
    const int n = host_slices(q->device, (uint64_t)(args->seq * keys * args->head_dim));
    return !host_attention_shares(args) ? 1 : n < most ? n : (int)most;
}

/* Heads that are too few to give each thread one are shared, if that is the shorter way. */
static int run_heads(struct zinf_queue *q, const struct zinf_attention *args, int64_t n_heads,
                     bool in_order, head_function *run, const char *operation)
{
    int code = check_attention(args, operation);
    if (!code)
        code = check_workspace(q->workspace_bytes,
                               host_attention_workspace(&q->device->device, args), operation);
    if (code)
        return code;
    const struct heads h = {
        args,
        run,
        n_heads,
        {(float *)q->workspace, host_attention_scratch_floats(args), .n_threads = 1}};
    const int64_t n_units = args->batch * n_heads;
    const uint64_t work =
        (uint64_t)(n_units * args->seq * zinf_attention_keys(args) * args->head_dim);
    const int n_threads = host_slices(q->device, work), together = most_together(q, args);
    const int64_t left = n_units % n_threads, apart = left < together ? n_units - left : n_units;
    run_apart(&h, apart, in_order, n_threads);
    if (apart < n_units)
        run_together(&h, apart, n_units, together);
    return 0;
}

int host_attention_forward(struct zinf_queue *q, const struct zinf_attention *args)
{
    return run_heads(q, args, args->n_heads, false, q->device->simd->attention_forward,
                     "attention_forward");
}

int host_attention_backward(struct zinf_queue *q, const struct zinf_attention *args)
{
    return run_heads(q, args, args->n_kv_heads, args->relative != NULL,
                     q->device->simd->attention_backward, "attention_backward");
}

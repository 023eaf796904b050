/*
 * host_scan: the scan of a recurrent mixer. Forward goes through the chunks of each head; backward
 * does so again and leaves the states in front of chunks, goes through them in reverse for the
 * gradients of these, and then each chunk's rows get theirs, which needs no order. The sums of a
 * key head are over its value heads, one after the other.
 */
#include "kernels/host.h"

#include <math.h>

/* ---- numbers of rows and heads ---- */

static float softplus(float x)
{
    return x > 20.0f ? x : log1pf(expf(x));
}

static float sigmoid(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

/* Heads of a row that are converted at a time. */
enum { HEADS = 64 };

/* What the scan's numbers of some heads of a row are computed from. */
struct numbers {
    float a[HEADS], b[HEADS], a_log[HEADS], step_bias[HEADS];
};

static void read_numbers(const struct host_simd *simd, const struct zinf_scan *a, int64_t row,
                         int64_t head, size_t n, struct numbers *out)
{
    const uint64_t at = (uint64_t)(row * a->gate_ld + head), h = (uint64_t)head;
    simd->to_f32(out->a, host_at(a->a, a->dtype, at), a->dtype, n);
    if (a->rule == ZINF_RECURRENCE_DELTA)
        simd->to_f32(out->b, host_at(a->b, a->dtype, at), a->dtype, n);
    simd->to_f32(out->a_log, host_at(a->a_log, a->dtype, h), a->dtype, n);
    simd->to_f32(out->step_bias, host_at(a->step_bias, a->dtype, h), a->dtype, n);
}

static float kept_step(const struct zinf_scan *a, float step)
{
    return step < a->step_low ? a->step_low : step > a->step_high ? a->step_high : step;
}

static void make_numbers(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct host_scan *s = args;
    const struct zinf_scan *a = s->args;
    for (int64_t head = 0; head < a->value_heads; head += HEADS) {
        const int64_t left = a->value_heads - head, n = left < HEADS ? left : HEADS;
        float *decay = s->with.decay + (int64_t)row * a->value_heads + head;
        float *strength = s->with.strength + (int64_t)row * a->value_heads + head;
        struct numbers x;
        read_numbers(simd, a, (int64_t)row, head, (size_t)n, &x);
        for (int64_t i = 0; i < n; i++) {
            const float step = softplus(x.a[i] + x.step_bias[i]);
            const bool delta = a->rule == ZINF_RECURRENCE_DELTA;
            strength[i] = delta ? zinf_scan_strength(a) * sigmoid(x.b[i]) : kept_step(a, step);
            decay[i] = -expf(x.a_log[i]) * (delta ? step : strength[i]);
        }
    }
}

/* Gradients of some heads, summed over rows. */
struct sums {
    double a_log[HEADS], step_bias[HEADS], skip[HEADS];
};

/* Computes the gradients of a and b of one row from those of the scan's numbers, and adds to the
 * sums. */
static void row_gradients(const struct host_simd *simd, const struct host_scan *s, int64_t row,
                          int64_t head, size_t n, struct sums *sums)
{
    const struct zinf_scan *a = s->args;
    const int64_t at = row * a->value_heads + head, gate = row * a->gate_ld + head;
    const uint64_t width = zinf_dtype_bytes(a->dtype);
    const bool delta = a->rule == ZINF_RECURRENCE_DELTA;
    float da[HEADS], db[HEADS];
    struct numbers x;
    read_numbers(simd, a, row, head, n, &x);
    for (size_t i = 0; i < n; i++) {
        const float decay = s->with.decay[at + (int64_t)i],
                    d_decay = s->with.d_decay[at + (int64_t)i];
        const float strength = s->with.strength[at + (int64_t)i],
                    d = s->with.d_strength[at + (int64_t)i];
        const float argument = x.a[i] + x.step_bias[i], step = softplus(argument);
        const bool free = delta || (step >= a->step_low && step <= a->step_high);
        const float d_step = (delta ? 0.0f : d) - d_decay * expf(x.a_log[i]);
        da[i] = free ? d_step * sigmoid(argument) : 0.0f;
        db[i] = d * strength * (1.0f - strength / zinf_scan_strength(a));
        sums->a_log[i] += (double)(d_decay * decay);
        sums->step_bias[i] += (double)da[i];
        sums->skip[i] += delta ? 0 : (double)s->with.d_skip[at + (int64_t)i];
    }
    simd->from_f32((char *)a->da + (uint64_t)gate * width, a->dtype, da, n);
    if (delta)
        simd->from_f32((char *)a->db + (uint64_t)gate * width, a->dtype, db, n);
}

/* to: NULL if this gradient is not wanted. */
static void write_sums(float *to, uint64_t head, const double *sums, size_t n)
{
    for (size_t i = 0; to && i < n; i++)
        to[head + i] = (float)sums[i];
}

static void number_gradients(const struct host_simd *simd, const void *args,
                             struct host_range heads)
{
    const struct host_scan *s = args;
    const struct zinf_scan *a = s->args;
    const uint64_t end = heads.first + heads.count;
    for (uint64_t head = heads.first; head < end; head += HEADS) {
        const size_t n = end - head < HEADS ? end - head : HEADS;
        struct sums sums = {0};
        for (int64_t row = 0; row < a->batch * a->seq; row++)
            row_gradients(simd, s, row, (int64_t)head, n, &sums);
        write_sums(a->d_a_log, head, sums.a_log, n);
        write_sums(a->d_step_bias, head, sums.step_bias, n);
        write_sums(a->d_skip, head, sums.skip, n);
    }
}

/* ---- workspace ---- */

uint64_t host_scan_workspace(struct zinf_device *device, const struct zinf_scan *args)
{
    struct zinf_scan_arrays arrays;
    const uint64_t scratch = (uint64_t)device->n_threads * host_scan_scratch_floats(args);
    return (zinf_scan_place(args, &arrays, NULL) + scratch) * sizeof(float);
}

/* ---- passes ---- */

/* Work of n items, which threads take one by one; each thread has scratch of its own. */
struct pass {
    struct zinf_queue *q;
    const struct host_scan *s;
    float *scratch;
    void (*run)(const struct pass *pass, int64_t item, float *scratch);
};

static void run_pass(const struct pass *pass, int64_t n)
{
    const struct zinf_scan *a = pass->s->args;
    const uint64_t work = (uint64_t)(a->batch * a->seq * a->value_heads * a->value_dim);
    const int n_slices = host_slices(pass->q->device, work * (uint64_t)a->key_dim);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        const struct host_range items = host_slice((uint64_t)n, 1, slice, n_slices);
        float *scratch = pass->scratch + (uint64_t)slice * host_scan_scratch_floats(a);
        for (uint64_t i = items.first; i < items.first + items.count; i++)
            pass->run(pass, (int64_t)i, scratch);
    }
}

static void run_forward(const struct pass *p, int64_t item, float *scratch)
{
    const int64_t heads = p->s->args->value_heads;
    p->q->device->simd->scan_forward(p->s, item / heads, item % heads, scratch);
}

static void run_backward(const struct pass *p, int64_t item, float *scratch)
{
    const int64_t heads = p->s->args->value_heads;
    p->q->device->simd->scan_backward(p->s, item / heads, item % heads, scratch);
}

static void run_continue(const struct pass *p, int64_t item, float *scratch)
{
    p->q->device->simd->scan_continue(p->s, item, scratch);
}

static int64_t pieces_of(const struct zinf_scan *a)
{
    return (a->seq + ZINF_SCAN_CHUNK - 1) / ZINF_SCAN_CHUNK;
}

static void run_gradients(const struct pass *p, int64_t item, float *scratch)
{
    const struct zinf_scan *a = p->s->args;
    const int64_t key_head = item % a->key_heads, piece = item / a->key_heads % pieces_of(a);
    const int64_t sample = item / a->key_heads / pieces_of(a);
    const int64_t first = sample * a->seq + piece * ZINF_SCAN_CHUNK;
    const int64_t end = first + ZINF_SCAN_CHUNK, whole = (sample + 1) * a->seq;
    p->q->device->simd->scan_gradients(p->s, first, end < whole ? end : whole, key_head, scratch);
}

static int begin(struct zinf_queue *q, struct host_scan *s, const char *operation,
                 struct pass *pass)
{
    const struct zinf_scan *a = s->args;
    int code = check_scan(a, operation);
    if (!code)
        code = check_workspace(q->workspace_bytes, host_scan_workspace(&q->device->device, a),
                               operation);
    if (code)
        return code;
    *pass = (struct pass){.q = q, .s = s, .scratch = q->workspace};
    pass->scratch += zinf_scan_place(a, &s->with, q->workspace);
    host_scan_place(s);
    return host_each_row(q, a->batch * a->seq, a->batch * a->seq * a->value_heads, make_numbers, s);
}

int host_scan_forward(struct zinf_queue *q, const struct zinf_scan *args)
{
    struct host_scan s = {.args = args};
    struct pass pass;
    int code = begin(q, &s, "scan_forward", &pass);
    if (code)
        return code;
    pass.run = args->remembered ? run_continue : run_forward;
    run_pass(&pass, (args->remembered ? 1 : args->batch) * args->value_heads);
    return 0;
}

int host_scan_backward(struct zinf_queue *q, const struct zinf_scan *args)
{
    struct host_scan s = {.args = args};
    struct pass pass;
    int code = begin(q, &s, "scan_backward", &pass);
    if (code)
        return code;
    pass.run = run_forward;
    run_pass(&pass, args->batch * args->value_heads);
    pass.run = run_backward;
    run_pass(&pass, args->batch * args->value_heads);
    pass.run = run_gradients;
    run_pass(&pass, args->batch * pieces_of(args) * args->key_heads);
    return host_each_columns(q, args->value_heads, args->batch * args->seq * args->value_heads,
                             number_gradients, &s);
}

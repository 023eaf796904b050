/*
 * kernels_bench: attention in Gflop/s (4 seq^2 head_dim a head forward, 10 backward, half of it
 * when causal) and the elementwise operations in elements a second, best of several runs.
 * Usage: kernels_bench [threads] [runs]
 */
#include "kernels/kernels.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

struct bench {
    struct zinf_device *device;
    const struct zinf_device_ops *ops;
    struct zinf_queue *queue;
    int runs;
};

/* With one thread the time is the CPU's, so that other users of the machine do not count. */
static uint64_t clock_ns(const struct bench *b)
{
    struct timespec now;
    clock_gettime(b->device->n_threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static double seconds_since(const struct bench *b, uint64_t start)
{
    return (double)(clock_ns(b) - start) * 1e-9;
}

static float *random_floats(size_t n)
{
    float *x = malloc(n * sizeof *x);
    uint32_t state = 1;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 8) * 0x1p-23f - 1.0f;
    }
    return x;
}

static void attention(const struct bench *b, int64_t seq, int64_t dim, bool causal, float p)
{
    const int64_t batch = seq > 512 ? 1 : 1024 / seq, heads = 768 / dim;
    const size_t rows = (size_t)(batch * seq), width = (size_t)(heads * dim);
    struct zinf_attention a = {.batch = batch,
                               .seq = seq,
                               .n_heads = heads,
                               .n_kv_heads = heads,
                               .head_dim = dim,
                               .causal = causal,
                               .scale = 1.0f / sqrtf((float)dim),
                               .dropout.p = p};
    float *qkv = random_floats(rows * width * 3), *out = malloc(rows * width * 4);
    float *d_out = random_floats(rows * width), *d_qkv = malloc(rows * width * 12);
    a.lse = malloc(rows * (size_t)heads * 4);
    a.qkv = qkv;
    a.out = out;
    a.d_out = d_out;
    a.d_qkv = d_qkv;
    uint64_t bytes = b->ops->attention_workspace(b->device, &a);
    void *workspace = malloc(bytes);
    b->ops->queue_set_workspace(b->queue, workspace, bytes);
    double forward = 1e9, backward = 1e9;
    for (int run = 0; run < b->runs; run++) {
        uint64_t start = clock_ns(b);
        b->ops->attention_forward(b->queue, &a);
        forward = fmin(forward, seconds_since(b, start));
        start = clock_ns(b);
        b->ops->attention_backward(b->queue, &a);
        backward = fmin(backward, seconds_since(b, start));
    }
    double pairs = causal ? 0.5 * (double)(seq + 1) : (double)seq;
    double flops = 2e-9 * (double)rows * pairs * (double)width;
    printf(
        "attention seq %4d d %3d %-6s p %.1f   forward %6.1f   backward %6.1f   (%.2f, %.2f ms)\n",
        (int)seq, (int)dim, causal ? "causal" : "full", (double)p, 2.0 * flops / forward,
        5.0 * flops / backward, forward * 1e3, backward * 1e3);
    free(workspace);
    free(qkv);
    free(out);
    free(d_out);
    free(d_qkv);
    free(a.lse);
}

/* One elementwise operation over rows x cols, as a name and a call. */
struct arrays {
    float *x, *y, *r, *column, *stats;
    void *half;
    int64_t rows, cols;
};
typedef void operation(const struct bench *b, const struct arrays *a);

static void gelu(const struct bench *b, const struct arrays *a)
{
    b->ops->activation_forward(b->queue, ZINF_ACTIVATION_GELU_TANH, ZINF_DTYPE_F32, a->y, a->x,
                               (uint64_t)(a->rows * a->cols));
}
static void gelu_backward(const struct bench *b, const struct arrays *a)
{
    b->ops->activation_backward(b->queue, ZINF_ACTIVATION_GELU_TANH, ZINF_DTYPE_F32, a->y, a->r,
                                a->x, NULL, (uint64_t)(a->rows * a->cols));
}
static void gelu_erf(const struct bench *b, const struct arrays *a)
{
    b->ops->activation_forward(b->queue, ZINF_ACTIVATION_GELU_ERF, ZINF_DTYPE_F32, a->y, a->x,
                               (uint64_t)(a->rows * a->cols));
}
static void residual(const struct bench *b, const struct arrays *a)
{
    struct zinf_residual r = {.n = a->rows * a->cols, .x = a->x, .r = a->r, .y = a->y};
    b->ops->residual_add(b->queue, &r);
}
static void residual_dropout(const struct bench *b, const struct arrays *a)
{
    struct zinf_residual r = {
        .n = a->rows * a->cols, .x = a->x, .r = a->r, .y = a->y, .dropout = {.p = 0.1f}};
    b->ops->residual_add(b->queue, &r);
}
static struct zinf_norm norm_of(const struct arrays *a)
{
    return (struct zinf_norm){.rows = a->rows,
                              .cols = a->cols,
                              .eps = 1e-5f,
                              .x = a->x,
                              .w = a->column,
                              .b = a->column,
                              .y = a->y,
                              .mean = a->stats,
                              .rstd = a->stats + a->rows,
                              .dy = a->r,
                              .dx = a->y,
                              .dw = a->column + a->cols,
                              .db = a->column + 2 * a->cols};
}
static void norm_forward(const struct bench *b, const struct arrays *a)
{
    struct zinf_norm norm = norm_of(a);
    b->ops->norm_forward(b->queue, &norm);
}
static void norm_backward(const struct bench *b, const struct arrays *a)
{
    struct zinf_norm norm = norm_of(a);
    b->ops->norm_backward(b->queue, &norm);
}
static void column_sum(const struct bench *b, const struct arrays *a)
{
    b->ops->column_sum(b->queue, a->column + a->cols, a->x, ZINF_DTYPE_F32, a->rows, a->cols);
}
static void to_bf16(const struct bench *b, const struct arrays *a)
{
    b->ops->convert(b->queue, a->half, ZINF_DTYPE_BF16, a->x, ZINF_DTYPE_F32,
                    (uint64_t)(a->rows * a->cols));
}
static void loss_update(const struct bench *b, const struct arrays *a)
{
    static const int32_t targets[4096];
    struct zinf_cross_entropy loss = {.rows = a->rows,
                                      .cols = a->cols,
                                      .ld = a->cols,
                                      .targets = targets,
                                      .logits = a->x,
                                      .max = a->stats,
                                      .sum = a->stats + a->rows,
                                      .target_logit = a->stats + 2 * a->rows};
    b->ops->cross_entropy_start(b->queue, &loss);
    b->ops->cross_entropy_update(b->queue, &loss);
}

static void elementwise(const struct bench *b, const char *name, operation *run)
{
    struct arrays a = {.rows = 1024, .cols = 768};
    size_t n = (size_t)(a.rows * a.cols);
    a.x = random_floats(n);
    a.y = random_floats(n);
    a.r = random_floats(n);
    a.half = malloc(2 * n);
    a.column = random_floats(3 * (size_t)a.cols);
    a.stats = random_floats(4 * (size_t)a.rows);
    void *workspace = malloc(1 << 20);
    b->ops->queue_set_workspace(b->queue, workspace, 1 << 20);
    double best = 1e9;
    for (int i = 0; i < 5 * b->runs; i++) {
        uint64_t start = clock_ns(b);
        run(b, &a);
        best = fmin(best, seconds_since(b, start));
    }
    printf("%-18s 1024 x 768   %6.2f Gelem/s   (%.3f ms)\n", name, (double)n / best * 1e-9,
           best * 1e3);
    free(workspace);
    free(a.x);
    free(a.y);
    free(a.r);
    free(a.half);
    free(a.column);
    free(a.stats);
}

int main(int argc, char **argv)
{
    struct bench b = {.runs = argc > 2 ? atoi(argv[2]) : 10};
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST,
                                          .n_threads = argc > 1 ? atoi(argv[1]) : 0};
    if (zinf_device_create(&b.device, &options) ||
        b.device->ops->queue_create(b.device, ZINF_QUEUE_COMPUTE, &b.queue)) {
        fprintf(stderr, "%s\n", zinf_error());
        return 1;
    }
    b.ops = b.device->ops;
    printf("%s; best of %d\n", b.device->name, b.runs);
    for (int64_t seq = 256; seq <= 1024; seq *= 2)
        attention(&b, seq, 64, true, 0.0f);
    attention(&b, 1024, 64, false, 0.0f);
    attention(&b, 512, 128, true, 0.0f);
    attention(&b, 512, 48, true, 0.0f);
    attention(&b, 512, 64, true, 0.1f);
    elementwise(&b, "gelu tanh", gelu);
    elementwise(&b, "gelu tanh backward", gelu_backward);
    elementwise(&b, "gelu erf", gelu_erf);
    elementwise(&b, "residual", residual);
    elementwise(&b, "residual dropout", residual_dropout);
    elementwise(&b, "norm forward", norm_forward);
    elementwise(&b, "norm backward", norm_backward);
    elementwise(&b, "column sum", column_sum);
    elementwise(&b, "fp32 to bf16", to_bf16);
    elementwise(&b, "loss update", loss_update);
    b.ops->queue_destroy(b.queue);
    zinf_device_destroy(b.device);
    return 0;
}

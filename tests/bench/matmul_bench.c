/*
 * matmul_bench: the device's matmul against one plain multi-threaded cblas_sgemm of the same
 * shape, best of several runs taken in turn, on random numbers.
 * Usage: matmul_bench [threads [runs [m n k transposes]]], the last one of NN, NT, TN, which also
 * adds to C as gradients of weights do; without a shape a table of GPT-2's.
 */
#include "kernels/kernels.h"

#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct shape {
    const char *name;
    int64_t m, n, k;
    bool trans_a, trans_b;
    float beta;
};

/* The products of a GPT-2 block at 1024 tokens: forward, dX and dW; and of a tile of its head for
 * 256 rows: logits, gradient of the norm's output, gradient of the table (added to). */
static const struct shape shapes[] = {
    {"qkv", 1024, 2304, 768, false, true, 0},     {"out", 1024, 768, 768, false, true, 0},
    {"up", 1024, 3072, 768, false, true, 0},      {"down", 1024, 768, 3072, false, true, 0},
    {"qkv dX", 1024, 768, 2304, false, false, 0}, {"out dX", 1024, 768, 768, false, false, 0},
    {"up dX", 1024, 768, 3072, false, false, 0},  {"down dX", 1024, 3072, 768, false, false, 0},
    {"qkv dW", 2304, 768, 1024, true, false, 1},  {"out dW", 768, 768, 1024, true, false, 1},
    {"up dW", 3072, 768, 1024, true, false, 1},   {"down dW", 768, 3072, 1024, true, false, 1},
    {"logits", 256, 8384, 768, false, true, 0},   {"d_norm", 256, 768, 8384, false, false, 0},
    {"d_table", 8384, 768, 256, true, false, 1},
};

struct bench {
    struct zinf_device *device;
    struct zinf_queue *queue;
    int n_threads, runs;
};

/* With one thread the time is the CPU's, so that other users of the machine do not count. */
static double seconds(int n_threads)
{
    struct timespec now;
    clock_gettime(n_threads == 1 ? CLOCK_PROCESS_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static double time_blas(const struct zinf_matmul *m, int n_threads)
{
    openblas_set_num_threads(n_threads);
    double start = seconds(n_threads);
    cblas_sgemm(CblasRowMajor, m->trans_a ? CblasTrans : CblasNoTrans,
                m->trans_b ? CblasTrans : CblasNoTrans, (int)m->m, (int)m->n, (int)m->k, 1.0f, m->a,
                (int)m->lda, m->b, (int)m->ldb, m->beta, m->c, (int)m->ldc);
    double taken = seconds(n_threads) - start;
    openblas_set_num_threads(1);
    return taken;
}

static double time_ours(const struct bench *b, const struct zinf_matmul *m)
{
    double start = seconds(b->n_threads);
    if (b->device->ops->matmul(b->queue, m))
        fprintf(stderr, "%s\n", zinf_error());
    return seconds(b->n_threads) - start;
}

/* Even in -1 to 1, in fp32 and the same in bf16. */
static void fill(float *x, uint16_t *half, size_t n)
{
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(state >> 16) * 0x1p-15f - 1.0f;
    }
    zinf_convert(half, ZINF_DTYPE_BF16, x, ZINF_DTYPE_F32, n);
}

/* At a cache line, as tensors of a unit and PyTorch's are. */
static void *zeros(size_t bytes)
{
    void *memory = aligned_alloc(64, (bytes + 63) / 64 * 64);
    if (!memory)
        exit(1);
    return memset(memory, 0, bytes);
}

static double least(double a, double b)
{
    return a < b ? a : b;
}

static void run_shape(const struct bench *b, const struct shape *s)
{
    const size_t a_n = (size_t)(s->m * s->k), b_n = (size_t)(s->k * s->n);
    const size_t c_n = (size_t)(s->m * s->n);
    float *a = zeros(a_n * 4), *w = zeros(b_n * 4), *c = zeros(c_n * 4);
    uint16_t *a_half = zeros(a_n * 2), *w_half = zeros(b_n * 2), *c_half = zeros(c_n * 2);
    fill(a, a_half, a_n);
    fill(w, w_half, b_n);
    struct zinf_matmul m = {.m = s->m,
                            .n = s->n,
                            .k = s->k,
                            .a = a,
                            .b = w,
                            .c = c,
                            .trans_a = s->trans_a,
                            .trans_b = s->trans_b,
                            .lda = s->trans_a ? s->m : s->k,
                            .ldb = s->trans_b ? s->k : s->n,
                            .ldc = s->n,
                            .beta = s->beta};
    struct zinf_matmul half = m;
    half.a = a_half;
    half.b = w_half;
    half.c = c_half;
    half.a_dtype = half.b_dtype = half.c_dtype = ZINF_DTYPE_BF16;
    if (s->beta != 0.0f) { /* gradients are summed in fp32 */
        half.c = c;
        half.c_dtype = ZINF_DTYPE_F32;
    }
    uint64_t bytes = b->device->ops->matmul_workspace(b->device, &half);
    uint64_t bytes_f32 = b->device->ops->matmul_workspace(b->device, &m);
    bytes = bytes > bytes_f32 ? bytes : bytes_f32;
    void *workspace = malloc(bytes);
    b->device->ops->queue_set_workspace(b->queue, workspace, bytes);
    double blas = 1e9, ours = 1e9, ours_half = 1e9;
    for (int run = 0; run < b->runs; run++) {
        blas = least(blas, time_blas(&m, b->n_threads));
        ours = least(ours, time_ours(b, &m));
        ours_half = least(ours_half, time_ours(b, &half));
    }
    double flops = 2e-9 * (double)s->m * (double)s->n * (double)s->k;
    printf("%-10s %5d %5d %5d %c%c  %7.1f  %7.1f %4.0f%%  %7.1f %4.0f%%  %5.1f MiB\n", s->name,
           (int)s->m, (int)s->n, (int)s->k, s->trans_a ? 'T' : 'N', s->trans_b ? 'T' : 'N',
           flops / blas, flops / ours, 100.0 * blas / ours, flops / ours_half,
           100.0 * blas / ours_half, (double)bytes / 1048576.0);
    free(workspace);
    free(a);
    free(w);
    free(c);
    free(a_half);
    free(w_half);
    free(c_half);
}

int main(int argc, char **argv)
{
    struct bench b = {.n_threads = argc > 1 ? atoi(argv[1]) : zinf_cpu_count(),
                      .runs = argc > 2 ? atoi(argv[2]) : 10};
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = b.n_threads};
    if (zinf_device_create(&b.device, &options) ||
        b.device->ops->queue_create(b.device, ZINF_QUEUE_COMPUTE, &b.queue)) {
        fprintf(stderr, "%s\n", zinf_error());
        return 1;
    }
    printf("%s; Gflop/s, best of %d\n", b.device->name, b.runs);
    printf("%-10s %5s %5s %5s     %7s  %7s %5s  %7s %5s  workspace\n", "product", "m", "n", "k",
           "sgemm", "fp32", "", "bf16", "");
    if (argc > 6) {
        const bool trans_a = argv[6][0] == 'T';
        const struct shape given = {
            "given", atoll(argv[3]),    atoll(argv[4]),       atoll(argv[5]),
            trans_a, argv[6][1] == 'T', trans_a ? 1.0f : 0.0f};
        run_shape(&b, &given);
    }
    for (size_t i = 0; argc <= 6 && i < sizeof shapes / sizeof *shapes; i++)
        run_shape(&b, &shapes[i]);
    b.device->ops->queue_destroy(b.queue);
    zinf_device_destroy(b.device);
    return 0;
}

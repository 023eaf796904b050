/*
 * bench_gemm: `zinf bench gemm`. Matrix products as a layer has them (Y = X W^T, both gradients),
 * on random numbers: zeros would be faster than data is. On the host also of few rows and of small
 * matrices, for what a product takes beside its flops, and in fp32 the products of a Newton-Schulz
 * step, which updates of whole matrices are made of.
 */
#include "cli/bench/bench_device.h"

#include <math.h>

static const char usage[] = "usage: zinf bench gemm [options]\n"
                            "\n"
                            "Times matrix products of M x K by K x N on the device.\n";

struct gemm_args {
    struct bench_on on;
    enum zinf_dtype dtype;
    int64_t m, n, k;
    bool json;
};

struct shape {
    int64_t m, n, k;
};
/* Cubes, and the widest products of XL, 1,600 wide, at 4096 tokens. */
static const struct shape host_shapes[] = {
    {64, 64, 64}, {64, 1024, 1024}, {512, 512, 512}, {1024, 1024, 1024}};
static const struct shape cuda_shapes[] = {
    {2048, 2048, 2048}, {8192, 8192, 8192}, {4096, 6400, 1600}, {4096, 1600, 6400}};

/* Of updates: matrices of layers about 1,000 wide, square and four times as long. */
static const struct shape update_shapes[] = {{1024, 1024, 0}, {1024, 4096, 0}};

/* Of those of the host, by which the time of a product is told apart. */
enum { SMALL, FEW_ROWS, LARGE = 3, HOST_SHAPES };

enum way {
    WAY_FORWARD,
    WAY_DX,
    WAY_DW,
    WAYS,
    WAY_GRAM = WAYS,
    WAY_SQUARE,
    WAY_NEXT,
    WAY_WIDE,
    ALL_WAYS
};
static const char *const way_names[ALL_WAYS] = {"forward", "dX",  "dW",     "X X^T",
                                                "A A",     "B X", "dX fp32"};

/* Y[M,N] = X[M,K] W[N,K]^T; dX[M,K] = dY[M,N] W; dW[N,K] += dY^T X in fp32. */
static struct zinf_matmul product(enum way way, const struct shape *s, enum zinf_dtype dtype,
                                  char *memory)
{
    uint64_t width = zinf_dtype_bytes(dtype);
    uint64_t x = zinf_align_up((uint64_t)(s->m * s->k) * width, 256);
    uint64_t w = zinf_align_up((uint64_t)(s->n * s->k) * width, 256);
    char *at_x = memory, *at_w = memory + x, *at_y = at_w + w;
    struct zinf_matmul m = {.m = s->m, .n = s->n, .k = s->k};
    m.a_dtype = m.b_dtype = m.c_dtype = dtype;
    m.a = at_x;
    m.b = at_w;
    m.c = at_y;
    m.lda = m.ldb = s->k;
    m.ldc = s->n;
    m.trans_b = true;
    if (way == WAY_DX) {
        m = (struct zinf_matmul){.m = s->m, .n = s->k, .k = s->n, .a = at_y, .b = at_w, .c = at_x};
        m.a_dtype = m.b_dtype = m.c_dtype = dtype;
        m.lda = s->n;
        m.ldb = m.ldc = s->k;
    } else if (way == WAY_DW) {
        m = (struct zinf_matmul){.m = s->n, .n = s->k, .k = s->m, .a = at_y, .b = at_x};
        m.c = at_y + zinf_align_up((uint64_t)(s->m * s->n) * width, 256);
        m.a_dtype = m.b_dtype = dtype;
        m.lda = s->n;
        m.ldb = m.ldc = s->k;
        m.trans_a = true;
        m.beta = 1;
    }
    return m;
}

static uint64_t shape_bytes(const struct shape *s)
{
    return 4 * (uint64_t)(s->m * s->k + 2 * s->n * s->k + s->m * s->n) + 4096;
}

/* Of A, A A, X and B X. */
static uint64_t update_bytes(const struct shape *s)
{
    return 8 * (uint64_t)(s->m * s->m + s->m * s->n) + 4096;
}

static int call(struct bench_device *b, void *context)
{
    return b->ops->matmul(b->queues[ZINF_QUEUE_COMPUTE], context);
}

static void report(const struct zinf_matmul *m, enum way way, double seconds, double flops,
                   cJSON *list)
{
    if (!list) {
        printf("%6lld x %6lld x %6lld  %-8s %10.3f ms  %9.3f Tflop/s\n", (long long)m->m,
               (long long)m->n, (long long)m->k, way_names[way], seconds * 1e3,
               flops / seconds * 1e-12);
        fflush(stdout);
        return;
    }
    cJSON *one = cJSON_CreateObject();
    cJSON_AddNumberToObject(one, "m", (double)m->m);
    cJSON_AddNumberToObject(one, "n", (double)m->n);
    cJSON_AddNumberToObject(one, "k", (double)m->k);
    cJSON_AddStringToObject(one, "way", way_names[way]);
    cJSON_AddNumberToObject(one, "seconds", seconds);
    cJSON_AddNumberToObject(one, "flops", flops / seconds);
    cJSON_AddItemToArray(list, one);
}

/* Of a symmetric result a half is computed. */
static double flops_of(const struct zinf_matmul *m)
{
    return (m->symmetric ? 1.0 : 2.0) * (double)m->m * (double)m->n * (double)m->k;
}

static int time_product(struct bench_device *b, struct zinf_matmul *m, uint64_t workspace,
                        double *seconds)
{
    if (b->ops->matmul_workspace(b->device, m) > workspace)
        return zinf_fail(-ENOMEM, "a product of %lld x %lld x %lld wants more workspace",
                         (long long)m->m, (long long)m->n, (long long)m->k);
    return bench_device_time(b, call, m, seconds);
}

/* What a product takes: of one size in one way. */
struct timed {
    double flops, bytes, seconds;
};

static double bytes_of(const struct zinf_matmul *m)
{
    return (double)(m->m * m->k) * (double)zinf_dtype_bytes(m->a_dtype) +
           (double)(m->k * m->n) * (double)zinf_dtype_bytes(m->b_dtype) +
           (double)(m->m * m->n) * (double)zinf_dtype_bytes(m->c_dtype) * (m->beta != 0 ? 2 : 1);
}

static int measure(struct bench_device *b, const struct shape *s, enum zinf_dtype dtype,
                   uint64_t workspace, cJSON *list, double *best, struct timed timed[WAYS])
{
    char *memory = (char *)b->device->memory + workspace;
    for (int way = 0; way < WAYS; way++) {
        struct zinf_matmul m = product((enum way)way, s, dtype, memory);
        const double flops = 2.0 * (double)s->m * (double)s->n * (double)s->k;
        double seconds;
        int code = time_product(b, &m, workspace, &seconds);
        if (code)
            return code;
        timed[way] = (struct timed){flops, bytes_of(&m), seconds};
        *best = flops / seconds > *best ? flops / seconds : *best;
        m.m = s->m;
        m.n = s->n;
        m.k = s->k;
        report(&m, (enum way)way, seconds, flops, list);
    }
    return 0;
}

/* A = X X^T, A A, and with B [m][m] B X; X [m][n], m <= n. */
static struct zinf_matmul update_product(enum way way, const struct shape *s, char *memory)
{
    const uint64_t side = zinf_align_up((uint64_t)(s->m * s->m) * sizeof(float), 256);
    const uint64_t all = zinf_align_up((uint64_t)(s->m * s->n) * sizeof(float), 256);
    char *gram = memory, *square = gram + side, *x = square + side, *next = x + all;
    struct zinf_matmul m = {.m = s->m, .n = s->m, .k = way == WAY_GRAM ? s->n : s->m};
    m.a_dtype = m.b_dtype = m.c_dtype = ZINF_DTYPE_F32;
    m.symmetric = way != WAY_NEXT;
    m.a = m.b = way == WAY_GRAM ? x : gram;
    m.c = way == WAY_GRAM ? next : square; /* the first for no other: A stays of its size */
    m.lda = m.ldb = m.k;
    m.ldc = s->m;
    m.trans_b = way == WAY_GRAM;
    if (way == WAY_NEXT) {
        m.n = m.ldb = m.ldc = s->n;
        m.b = x;
        m.c = next;
    }
    return m;
}

/* Of a head's gradient, which stays in fp32 on the host: it has no part in instructions for 16
 * bits.
 */
static int measure_wide(struct bench_device *b, enum zinf_dtype dtype, uint64_t workspace,
                        cJSON *list, double *wide)
{
    const struct shape *s = &host_shapes[LARGE];
    struct zinf_matmul m = product(WAY_DX, s, dtype, (char *)b->device->memory + workspace);
    double seconds;
    m.a_dtype = ZINF_DTYPE_F32;
    int code = time_product(b, &m, workspace, &seconds);
    if (code)
        return code;
    *wide = flops_of(&m) / seconds;
    report(&m, WAY_WIDE, seconds, flops_of(&m), list);
    return 0;
}

/* Of all three products of a step, the better of both shapes. */
static int measure_updates(struct bench_device *b, uint64_t workspace, cJSON *list, double *best)
{
    char *memory = (char *)b->device->memory + workspace;
    for (size_t i = 0; i < sizeof update_shapes / sizeof *update_shapes; i++) {
        double all = 0, flops = 0;
        for (int way = WAY_GRAM; way <= WAY_NEXT; way++) {
            struct zinf_matmul m = update_product((enum way)way, &update_shapes[i], memory);
            double seconds;
            int code = time_product(b, &m, workspace, &seconds);
            if (code)
                return code;
            report(&m, (enum way)way, seconds, flops_of(&m), list);
            all += seconds;
            flops += flops_of(&m);
        }
        *best = flops / all > *best ? flops / all : *best;
    }
    return 0;
}

/* ---- the time of a product: of its call, of its flops, of its bytes ---- */

#define FREE 1e15 /* a second: what takes no time that can be measured */
#define ROUNDS 30 /* each brings the three a third nearer at least */

static double rate_of(double amount, double seconds)
{
    return seconds > amount / FREE ? amount / seconds : FREE;
}

/* The three that explain a small product, one of few rows and a large one; each is found from the
 * size in which it counts most, with the others as they were found before. */
static void tell_apart(const struct timed *small, const struct timed *few,
                       const struct timed *large, struct zinf_product_speed *out)
{
    *out = (struct zinf_product_speed){large->flops / large->seconds, FREE, FREE};
    for (int round = 0; round < ROUNDS; round++) {
        const double byte = 1 / out->bytes, flop = 1 / out->flops, call = 1 / out->calls;
        out->calls = rate_of(1, small->seconds - small->flops * flop - small->bytes * byte);
        out->bytes = rate_of(few->bytes, few->seconds - few->flops * flop - call);
        out->flops = rate_of(large->flops, large->seconds - large->bytes * byte - call);
    }
}

static void add_products(cJSON *kept, const struct zinf_product_speed of[WAYS])
{
    cJSON *products = cJSON_AddArrayToObject(kept, "products");
    for (int way = 0; way < WAYS; way++) {
        cJSON *one = cli_json_append(products);
        cJSON_AddStringToObject(one, "way", way_names[way]);
        cJSON_AddNumberToObject(one, "flops", of[way].flops);
        cJSON_AddNumberToObject(one, "bytes", of[way].bytes);
        cJSON_AddNumberToObject(one, "calls", of[way].calls);
    }
}

static void show_products(const struct zinf_product_speed of[WAYS], cJSON *result)
{
    if (result)
        add_products(result, of);
    for (int way = 0; way < WAYS && !result; way++)
        printf("%-8s %.3f Tflop/s, %.1f GB/s of operands and results, %.1f us a product\n",
               way_names[way], of[way].flops * 1e-12, of[way].bytes * 1e-9, 1e6 / of[way].calls);
}

/* What a device's products were found to do, in flops a second; 0: not measured. */
struct rates {
    double best, updates, wide;
};

/* products: of the host; NULL: of another device. */
static void keep(const struct bench_device *b, enum zinf_dtype dtype, const struct rates *rates,
                 const struct zinf_product_speed *products)
{
    char key[32];
    cJSON *kept = cJSON_CreateObject();
    cJSON_AddNumberToObject(kept, "flops", rates->best);
    if (rates->wide > 0)
        cJSON_AddNumberToObject(kept, "wide_flops", rates->wide);
    if (products)
        add_products(kept, products);
    if (rates->updates > 0)
        cJSON_AddNumberToObject(kept, "update_flops", rates->updates);
    cJSON_AddStringToObject(kept, "device", b->device->name);
    if (b->device->kind == ZINF_DEVICE_HOST)
        cJSON_AddNumberToObject(kept, "threads", b->device->n_threads);
    bench_cache_save("gemm", speeds_device_key(key, b->device->kind, dtype), kept);
    cJSON_Delete(kept);
}

static int measure_all(const struct gemm_args *args, enum zinf_dtype dtype, cJSON *result)
{
    const uint64_t workspace = (uint64_t)40 << 20;
    struct shape given = {args->m, args->n, args->k};
    uint64_t most = shape_bytes(&given);
    for (size_t i = 0; !args->m && i < sizeof cuda_shapes / sizeof *cuda_shapes; i++)
        most = shape_bytes(&cuda_shapes[i]) > most ? shape_bytes(&cuda_shapes[i]) : most;
    struct bench_device_options options = {.device = args->on.device,
                                           .threads = args->on.threads,
                                           .device_bytes = workspace + most,
                                           .host_bytes = 1 << 20};
    struct bench_device b;
    struct rates rates = {0};
    struct timed timed[HOST_SHAPES][WAYS];
    struct zinf_product_speed products[WAYS];
    int code = bench_device_open(&b, &options);
    if (code)
        return code;
    bool host = b.device->kind == ZINF_DEVICE_HOST;
    const struct shape *shapes = args->m ? &given : host ? host_shapes : cuda_shapes;
    size_t n = args->m ? 1
               : host  ? sizeof host_shapes / sizeof *host_shapes
                       : sizeof cuda_shapes / sizeof *cuda_shapes;
    cJSON *list = result ? cJSON_AddArrayToObject(result, "results") : NULL;
    if (result)
        cJSON_AddStringToObject(result, "device", b.device->name);
    else
        printf("%s, %s\n", b.device->name, zinf_dtype_name(dtype));
    b.ops->queue_set_workspace(b.queues[ZINF_QUEUE_COMPUTE], b.device->memory, workspace);
    most = 0;
    for (size_t i = 0; i < n; i++)
        most = shape_bytes(&shapes[i]) > most ? shape_bytes(&shapes[i]) : most;
    const bool updates_too = host && !args->m && dtype == ZINF_DTYPE_F32;
    const uint64_t needed = update_bytes(&update_shapes[1]);
    most = updates_too && needed > most ? needed : most;
    code = bench_device_fill(&b, dtype, workspace + most);
    for (size_t i = 0; !code && i < n; i++)
        code = measure(&b, &shapes[i], dtype, workspace, list, &rates.best, timed[i]);
    if (!code && updates_too)
        code = measure_updates(&b, workspace, list, &rates.updates);
    if (!code && host && !args->m && dtype != ZINF_DTYPE_F32)
        code = measure_wide(&b, dtype, workspace, list, &rates.wide);
    if (!code && args->m)
        zinf_log(ZINF_LOG_INFO, "the rate is not kept for zinf estimate, which takes the best of "
                                "the usual sizes: leave out --m, --n and --k for those");
    for (int way = 0; !code && host && !args->m && way < WAYS; way++)
        tell_apart(&timed[SMALL][way], &timed[FEW_ROWS][way], &timed[LARGE][way], &products[way]);
    if (!code && host && !args->m)
        show_products(products, result);
    if (!code && !args->m)
        keep(&b, dtype, &rates, host ? products : NULL);
    bench_device_close(&b);
    return code;
}

#define AT(field) .offset = offsetof(struct gemm_args, field)
#define IN(field) .at = offsetof(struct gemm_args, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--m", INTEGER, AT(m), "N", "rows, such as tokens of a micro-batch", .min = 1,
     .max = 1 << 24, .otherwise = "some sizes"),
    OPTION("--n", INTEGER, AT(n), "N", "columns of the result", .min = 1, .max = 1 << 24),
    OPTION("--k", INTEGER, AT(k), "N", "what is summed over", .min = 1, .max = 1 << 24),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct gemm_args *a = call->options;
    if ((a->m || a->n || a->k) && !(a->m && a->n && a->k))
        return zinf_fail(-EINVAL, "--m, --n and --k go together: give all three or none");
    return zinf_dtype_parse(a->on.type, &a->dtype);
}

static int work(struct cli_call *call)
{
    const struct gemm_args *a = call->options;
    cJSON *result = a->json ? cJSON_CreateObject() : NULL;
    return bench_finish(call->command, result, measure_all(a, a->dtype, result));
}

const struct cli_command bench_gemm = {
    .name = "bench gemm",
    .summary = "",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = bench_device_rows, IN(on)}, {.rows = bench_type_rows, IN(on)},
                         {.rows = own}, {.rows = bench_threads_rows, IN(on)},
                         {.rows = cli_json, IN(json)}),
    .bytes = sizeof(struct gemm_args),
    .check = check,
    .work = work,
};

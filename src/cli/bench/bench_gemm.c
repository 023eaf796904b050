/*
 * bench_gemm: `zinf bench gemm`. Matrix products as a layer has them (Y = X W^T, both gradients),
 * on random numbers: zeros would be faster than data is.
 */
#include "cli/bench/bench_device.h"

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
static const struct shape host_shapes[] = {{512, 512, 512}, {1024, 1024, 1024}};
static const struct shape cuda_shapes[] = {
    {2048, 2048, 2048}, {8192, 8192, 8192}, {4096, 6400, 1600}, {4096, 1600, 6400}};

enum way { WAY_FORWARD, WAY_DX, WAY_DW, WAYS };
static const char *const way_names[WAYS] = {"forward", "dX", "dW"};

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

static int call(struct bench_device *b, void *context)
{
    return b->ops->matmul(b->queues[ZINF_QUEUE_COMPUTE], context);
}

static int measure(struct bench_device *b, const struct shape *s, enum zinf_dtype dtype,
                   uint64_t workspace, cJSON *list, double *best)
{
    for (int way = 0; way < WAYS; way++) {
        struct zinf_matmul m =
            product((enum way)way, s, dtype, (char *)b->device->memory + workspace);
        double seconds, flops;
        int code = b->ops->matmul_workspace(b->device, &m) > workspace
                       ? zinf_fail(-ENOMEM, "a product of %lld x %lld x %lld wants more workspace",
                                   (long long)s->m, (long long)s->n, (long long)s->k)
                       : bench_device_time(b, call, &m, &seconds);
        if (code)
            return code;
        flops = 2.0 * (double)s->m * (double)s->n * (double)s->k / seconds;
        *best = flops > *best ? flops : *best;
        if (!list) {
            printf("%6lld x %6lld x %6lld  %-8s %10.3f ms  %9.3f Tflop/s\n", (long long)s->m,
                   (long long)s->n, (long long)s->k, way_names[way], seconds * 1e3, flops * 1e-12);
            fflush(stdout);
            continue;
        }
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "m", (double)s->m);
        cJSON_AddNumberToObject(one, "n", (double)s->n);
        cJSON_AddNumberToObject(one, "k", (double)s->k);
        cJSON_AddStringToObject(one, "way", way_names[way]);
        cJSON_AddNumberToObject(one, "seconds", seconds);
        cJSON_AddNumberToObject(one, "flops", flops);
        cJSON_AddItemToArray(list, one);
    }
    return 0;
}

static void keep(const struct bench_device *b, enum zinf_dtype dtype, double best)
{
    char key[32];
    cJSON *kept = cJSON_CreateObject();
    cJSON_AddNumberToObject(kept, "flops", best);
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
    double best = 0;
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
    code = bench_device_fill(&b, dtype, workspace + most);
    for (size_t i = 0; !code && i < n; i++)
        code = measure(&b, &shapes[i], dtype, workspace, list, &best);
    if (!code && args->m)
        zinf_log(ZINF_LOG_INFO, "the rate is not kept for zinf estimate, which takes the best of "
                                "the usual sizes: leave out --m, --n and --k for those");
    else if (!code)
        keep(&b, dtype, best);
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

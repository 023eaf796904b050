/*
 * bench_attention: `zinf bench attention`. Forward and backward of one layer's attention; the
 * rate counts 4 seq^2 head_dim flops a head forward and 10 backward, half of them when causal.
 */
#include "cli/bench/bench_device.h"

#include <math.h>

static const char usage[] = "usage: zinf bench attention [options]\n"
                            "\n"
                            "Times causal attention of one layer on the device.\n";

struct attention_args {
    struct bench_on on;
    enum zinf_dtype dtype;
    int64_t batch, seq, heads, kv_heads, head_dim;
    double dropout;
    bool all, json;
    bool own; /* some size is not the usual one */
};

static int forward(struct bench_device *b, void *context)
{
    return b->ops->attention_forward(b->queues[ZINF_QUEUE_COMPUTE], context);
}

static int backward(struct bench_device *b, void *context)
{
    return b->ops->attention_backward(b->queues[ZINF_QUEUE_COMPUTE], context);
}

static void defaults(struct attention_args *a, bool host)
{
    a->own =
        a->batch || a->seq || a->heads || a->kv_heads || a->head_dim || a->dropout > 0 || a->all;
    a->batch = a->batch ? a->batch : host ? 1 : 16;
    a->seq = a->seq ? a->seq : 1024;
    a->heads = a->heads ? a->heads : host ? 12 : 25;
    a->kv_heads = a->kv_heads ? a->kv_heads : a->heads;
    a->head_dim = a->head_dim ? a->head_dim : 64;
}

struct places {
    uint64_t qkv, out, d_qkv, d_out, lse, workspace, end;
};

static struct places place(const struct attention_args *a, enum zinf_dtype dtype,
                           uint64_t workspace)
{
    uint64_t width = zinf_dtype_bytes(dtype), rows = (uint64_t)(a->batch * a->seq);
    uint64_t qkv =
        zinf_align_up(rows * (uint64_t)((a->heads + 2 * a->kv_heads) * a->head_dim) * width, 256);
    uint64_t out = zinf_align_up(rows * (uint64_t)(a->heads * a->head_dim) * width, 256);
    struct places p = {.out = qkv, .d_qkv = qkv + out, .d_out = 2 * qkv + out};
    p.lse = p.d_out + out;
    p.workspace = p.lse + zinf_align_up(rows * (uint64_t)a->heads * 4, 256);
    p.end = p.workspace + workspace;
    return p;
}

static struct zinf_attention call_of(const struct attention_args *a, enum zinf_dtype dtype,
                                     char *base, const struct places *p)
{
    return (struct zinf_attention){
        .dtype = dtype,
        .batch = a->batch,
        .seq = a->seq,
        .n_heads = a->heads,
        .n_kv_heads = a->kv_heads,
        .head_dim = a->head_dim,
        .causal = !a->all,
        .scale = (float)(1 / sqrt((double)a->head_dim)),
        .dropout = {.p = (float)a->dropout, .seed = 1},
        .qkv = base + p->qkv,
        .out = base + p->out,
        .lse = (float *)(void *)(base + p->lse),
        .d_out = base + p->d_out,
        .d_qkv = base + p->d_qkv,
    };
}

static void show(const struct attention_args *a, const char *way, double seconds, double flops,
                 cJSON *list)
{
    if (!list) {
        printf("%lld x %lld tokens, %lld heads of %lld  %-8s %10.3f ms  %9.3f Tflop/s\n",
               (long long)a->batch, (long long)a->seq, (long long)a->heads, (long long)a->head_dim,
               way, seconds * 1e3, flops * 1e-12);
        return;
    }
    cJSON *one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "way", way);
    cJSON_AddNumberToObject(one, "seconds", seconds);
    cJSON_AddNumberToObject(one, "flops", flops);
    cJSON_AddItemToArray(list, one);
}

static void keep(const struct bench_device *b, enum zinf_dtype dtype, double forward_flops,
                 double backward_flops)
{
    char key[32];
    cJSON *kept = cJSON_CreateObject();
    cJSON_AddNumberToObject(kept, "forward", forward_flops);
    cJSON_AddNumberToObject(kept, "backward", backward_flops);
    cJSON_AddStringToObject(kept, "device", b->device->name);
    if (b->device->kind == ZINF_DEVICE_HOST)
        cJSON_AddNumberToObject(kept, "threads", b->device->n_threads);
    bench_cache_save("attention", speeds_device_key(key, b->device->kind, dtype), kept);
    cJSON_Delete(kept);
}

static int measure(struct attention_args *a, enum zinf_dtype dtype, struct bench_device *b,
                   cJSON *result)
{
    struct places p = place(a, dtype, 0);
    struct zinf_attention call = call_of(a, dtype, b->device->memory, &p);
    uint64_t workspace = b->ops->attention_workspace(b->device, &call);
    double of_pair = (double)a->batch * (double)a->heads * (double)a->seq * (double)a->seq *
                     (double)a->head_dim * (a->all ? 1 : 0.5);
    double seconds[2] = {0};
    cJSON *list = result ? cJSON_AddArrayToObject(result, "results") : NULL;
    if (p.workspace + workspace > b->device->memory_bytes)
        return zinf_fail(-ENOMEM, "attention wants more workspace than was planned");
    b->ops->queue_set_workspace(b->queues[ZINF_QUEUE_COMPUTE],
                                (char *)b->device->memory + p.workspace, workspace);
    int code = bench_device_fill(b, dtype, p.lse);
    if (!code)
        code = bench_device_time(b, forward, &call, &seconds[0]);
    if (!code)
        code = bench_device_time(b, backward, &call, &seconds[1]);
    if (code)
        return code;
    show(a, "forward", seconds[0], 4 * of_pair / seconds[0], list);
    show(a, "backward", seconds[1], 10 * of_pair / seconds[1], list);
    if (a->own)
        zinf_log(ZINF_LOG_INFO, "the rates are not kept for zinf estimate, which takes those of "
                                "the usual sizes: leave out yours for that");
    else
        keep(b, dtype, 4 * of_pair / seconds[0], 10 * of_pair / seconds[1]);
    return 0;
}

static int open_and_measure(struct attention_args *args, enum zinf_dtype dtype, cJSON *result)
{
    /* Which device it is decides the sizes, and the sizes its memory: it is opened twice. */
    struct bench_device_options options = {.device = args->on.device,
                                           .threads = args->on.threads,
                                           .device_bytes = 4096,
                                           .host_bytes = 1 << 20};
    struct bench_device b;
    int code = bench_device_open(&b, &options);
    if (code)
        return code;
    defaults(args, b.device->kind == ZINF_DEVICE_HOST);
    if (result)
        cJSON_AddStringToObject(result, "device", b.device->name);
    else
        printf("%s, %s\n", b.device->name, zinf_dtype_name(dtype));
    struct zinf_attention call = call_of(args, dtype, NULL, &(struct places){0});
    options.device_bytes = place(args, dtype, b.ops->attention_workspace(b.device, &call)).end;
    bench_device_close(&b);
    code = bench_device_open(&b, &options);
    if (code)
        return code;
    code = measure(args, dtype, &b, result);
    bench_device_close(&b);
    return code;
}

#define AT(field) .offset = offsetof(struct attention_args, field)
#define IN(field) .at = offsetof(struct attention_args, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--batch", INTEGER, AT(batch), "N", "sequences", .min = 1, .max = 65535,
     .otherwise = "16; on the host 1"),
    OPTION("--seq", INTEGER, AT(seq), "N", "tokens of a sequence", .min = 1, .max = 1 << 20,
     .otherwise = "1024"),
    OPTION("--heads", INTEGER, AT(heads), "N", "heads of queries", .min = 1, .max = 65535,
     .otherwise = "25; on the host 12"),
    OPTION("--kv-heads", INTEGER, AT(kv_heads), "N", "heads of keys and values", .min = 1,
     .max = 65535, .otherwise = "as many"),
    OPTION("--head-dim", INTEGER, AT(head_dim), "N", "elements of a head", .min = 1, .max = 512,
     .otherwise = "64"),
    OPTION("--dropout", NUMBER, AT(dropout), "P", "of the probabilities", .max = 0.99,
     .usual = "0"),
    OPTION("--all", FLAG, AT(all), NULL, "every token sees all others"),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct attention_args *a = call->options;
    return zinf_dtype_parse(a->on.type, &a->dtype);
}

static int work(struct cli_call *call)
{
    struct attention_args *a = call->options;
    cJSON *result = a->json ? cJSON_CreateObject() : NULL;
    return bench_finish(call->command, result, open_and_measure(a, a->dtype, result));
}

const struct cli_command bench_attention = {
    .name = "bench attention",
    .summary = "",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = bench_device_rows, IN(on)}, {.rows = bench_type_rows, IN(on)},
                         {.rows = own}, {.rows = bench_threads_rows, IN(on)},
                         {.rows = cli_json, IN(json)}),
    .bytes = sizeof(struct attention_args),
    .check = check,
    .work = work,
};

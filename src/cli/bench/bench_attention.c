/*
 * bench_attention: `zinf bench attention`. Forward and backward of one layer's attention; the
 * rate counts 4 head_dim flops a head for each pair of a token and one that it sees forward, and 10
 * backward. It depends on how many tokens a token sees: what is kept is of several lengths.
 */
#include "cli/bench/bench_device.h"

#include <math.h>

static const char usage[] = "usage: zinf bench attention [options]\n"
                            "\n"
                            "Times causal attention of one layer on the device.\n";

struct attention_args {
    struct bench_on on;
    enum zinf_dtype dtype;
    int64_t batch, seq, heads, kv_heads, head_dim, window;
    double dropout;
    bool all, json;
};

static int forward(struct bench_device *b, void *context)
{
    return b->ops->attention_forward(b->queues[ZINF_QUEUE_COMPUTE], context);
}

static int backward(struct bench_device *b, void *context)
{
    return b->ops->attention_backward(b->queues[ZINF_QUEUE_COMPUTE], context);
}

/* What is kept, from short to long. A long sequence has so much work that few heads will do. */
static const struct length {
    int64_t seq, batch_on_host, heads_on_host, batch;
    int rounds; /* 0: as many as usual */
} lengths[] = {{256, 4, 12, 64, 0}, {1024, 1, 12, 16, 0}, {4096, 1, 4, 4, 3}};
enum { N_LENGTHS = sizeof lengths / sizeof *lengths, USUAL = 1 };
_Static_assert(N_LENGTHS <= ZINF_ATTENTION_LENGTHS, "estimates take all lengths");

static void defaults(struct attention_args *a, const struct length *of, const struct zinf_device *d)
{
    const bool host = d->kind == ZINF_DEVICE_HOST;
    const int64_t heads = d->n_threads > 4 && host ? 12 : of->heads_on_host;
    a->batch = a->batch ? a->batch : host ? of->batch_on_host : of->batch;
    a->seq = a->seq ? a->seq : of->seq;
    a->heads = a->heads ? a->heads : host ? heads : 25;
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
        .window = a->window < a->seq ? a->window : 0,
        .scale = (float)(1 / sqrt((double)a->head_dim)),
        .dropout = {.p = (float)a->dropout, .seed = 1},
        .qkv = base + p->qkv,
        .out = base + p->out,
        .lse = (float *)(void *)(base + p->lse),
        .d_out = base + p->d_out,
        .d_qkv = base + p->d_qkv,
    };
}

struct rates {
    double seconds[2], flops[2]; /* forward, backward */
};

static void show(const struct attention_args *a, const struct rates *rates, cJSON *list)
{
    static const char *const ways[] = {"forward", "backward"};
    for (int i = 0; i < 2; i++) {
        if (!list) {
            printf("%lld x %lld tokens, %lld heads of %lld  %-8s %10.3f ms  %9.3f Tflop/s\n",
                   (long long)a->batch, (long long)a->seq, (long long)a->heads,
                   (long long)a->head_dim, ways[i], rates->seconds[i] * 1e3,
                   rates->flops[i] * 1e-12);
            continue;
        }
        cJSON *one = cJSON_CreateObject();
        cJSON_AddStringToObject(one, "way", ways[i]);
        cJSON_AddNumberToObject(one, "tokens", (double)a->seq);
        cJSON_AddNumberToObject(one, "seconds", rates->seconds[i]);
        cJSON_AddNumberToObject(one, "flops", rates->flops[i]);
        cJSON_AddItemToArray(list, one);
    }
}

/* Those of the usual length for whoever asks for one rate, and those of each. */
static void keep(const struct zinf_device *device, enum zinf_dtype dtype,
                 const struct rates rates[N_LENGTHS])
{
    char key[32];
    cJSON *kept = cJSON_CreateObject();
    cJSON_AddNumberToObject(kept, "forward", rates[USUAL].flops[0]);
    cJSON_AddNumberToObject(kept, "backward", rates[USUAL].flops[1]);
    cJSON *list = cJSON_AddArrayToObject(kept, "lengths");
    for (int i = 0; i < N_LENGTHS; i++) {
        cJSON *one = cJSON_CreateObject();
        cJSON_AddNumberToObject(one, "tokens", (double)lengths[i].seq);
        cJSON_AddNumberToObject(one, "forward", rates[i].flops[0]);
        cJSON_AddNumberToObject(one, "backward", rates[i].flops[1]);
        cJSON_AddItemToArray(list, one);
    }
    cJSON_AddStringToObject(kept, "device", device->name);
    if (device->kind == ZINF_DEVICE_HOST)
        cJSON_AddNumberToObject(kept, "threads", device->n_threads);
    bench_cache_save("attention", speeds_device_key(key, device->kind, dtype), kept);
    cJSON_Delete(kept);
}

/* Pairs of a token and one that it sees, of a head. */
static double pairs_of(const struct attention_args *a)
{
    const double seq = (double)a->seq, window = (double)(a->window < a->seq ? a->window : 0);
    if (a->all)
        return seq * seq;
    return window > 0 ? seq * window - window * (window - 1) / 2 : seq * (seq + 1) / 2;
}

static int measure(const struct attention_args *a, enum zinf_dtype dtype, struct bench_device *b,
                   struct rates *rates)
{
    const struct places p = place(a, dtype, 0);
    struct zinf_attention call = call_of(a, dtype, b->device->memory, &p);
    const uint64_t workspace = b->ops->attention_workspace(b->device, &call);
    const double of_pairs = (double)a->batch * (double)a->heads * (double)a->head_dim * pairs_of(a);
    if (p.workspace + workspace > b->device->memory_bytes)
        return zinf_fail(-ENOMEM, "attention wants more workspace than was planned");
    b->ops->queue_set_workspace(b->queues[ZINF_QUEUE_COMPUTE],
                                (char *)b->device->memory + p.workspace, workspace);
    int code = bench_device_fill(b, dtype, p.lse);
    if (!code)
        code = bench_device_time(b, forward, &call, &rates->seconds[0]);
    if (!code)
        code = bench_device_time(b, backward, &call, &rates->seconds[1]);
    rates->flops[0] = 4 * of_pairs / rates->seconds[0];
    rates->flops[1] = 10 * of_pairs / rates->seconds[1];
    return code;
}

/* Opens the device with memory for one shape. */
static int measure_alone(const struct attention_args *a, enum zinf_dtype dtype,
                         struct bench_device_options *options, int rounds, struct rates *rates)
{
    struct bench_device b;
    int code = bench_device_open(&b, options);
    if (code)
        return code;
    b.rounds = rounds ? rounds : b.rounds;
    code = measure(a, dtype, &b, rates);
    bench_device_close(&b);
    return code;
}

static bool is_own(const struct attention_args *a)
{
    return a->batch || a->seq || a->heads || a->kv_heads || a->head_dim || a->window ||
           a->dropout > 0 || a->all;
}

/* One shape with own sizes, or all lengths. Which device it is decides the sizes, and the sizes its
 * memory: it is opened first without. */
static int open_and_measure(struct attention_args *args, enum zinf_dtype dtype, cJSON *result)
{
    struct bench_device_options options = {.device = args->on.device,
                                           .threads = args->on.threads,
                                           .device_bytes = 4096,
                                           .host_bytes = 1 << 20};
    const bool own = is_own(args);
    struct rates rates[N_LENGTHS] = {0};
    struct bench_device b;
    int code = bench_device_open(&b, &options);
    if (code)
        return code;
    if (result)
        cJSON_AddStringToObject(result, "device", b.device->name);
    else
        printf("%s, %s\n", b.device->name, zinf_dtype_name(dtype));
    cJSON *list = result ? cJSON_AddArrayToObject(result, "results") : NULL;
    for (int i = own ? USUAL : 0; !code && i < (own ? USUAL + 1 : N_LENGTHS); i++) {
        struct attention_args a = *args;
        defaults(&a, &lengths[i], b.device);
        const struct zinf_attention call = call_of(&a, dtype, NULL, &(struct places){0});
        options.device_bytes = place(&a, dtype, b.ops->attention_workspace(b.device, &call)).end;
        code = measure_alone(&a, dtype, &options, lengths[i].rounds, &rates[i]);
        if (!code)
            show(&a, &rates[i], list);
    }
    if (!code && own)
        zinf_log(ZINF_LOG_INFO, "the rates are not kept for zinf estimate, which takes those of "
                                "the usual sizes: leave out yours for that");
    else if (!code)
        keep(b.device, dtype, rates);
    bench_device_close(&b);
    return code;
}

#define AT(field) .offset = offsetof(struct attention_args, field)
#define IN(field) .at = offsetof(struct attention_args, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--batch", INTEGER, AT(batch), "N", "sequences", .min = 1, .max = 65535,
     .otherwise = "as many as have 16384 tokens; on the host 1024"),
    OPTION("--seq", INTEGER, AT(seq), "N", "tokens of a sequence", .min = 1, .max = 1 << 20,
     .otherwise = "256, 1024 and 4096"),
    OPTION("--heads", INTEGER, AT(heads), "N", "heads of queries", .min = 1, .max = 65535,
     .otherwise = "25; on the host 12, 4 of 4096 tokens for up to 4 threads"),
    OPTION("--kv-heads", INTEGER, AT(kv_heads), "N", "heads of keys and values", .min = 1,
     .max = 65535, .otherwise = "as many"),
    OPTION("--head-dim", INTEGER, AT(head_dim), "N", "elements of a head", .min = 1, .max = 512,
     .otherwise = "64"),
    OPTION("--window", INTEGER, AT(window), "N", "tokens that a token sees, its own included",
     .min = 1, .max = 1 << 20, .otherwise = "all up to its own"),
    OPTION("--dropout", NUMBER, AT(dropout), "P", "of the probabilities", .max = 0.99,
     .usual = "0"),
    OPTION("--all", FLAG, AT(all), NULL, "every token sees all others"),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct attention_args *a = call->options;
    if (a->all && a->window)
        return zinf_fail(-EINVAL, "--window limits what a token sees, --all does not: give one");
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

/* bench_device: opening a device for a bench, and timing what is enqueued on it. */
#include "cli/bench/bench_device.h"

#include "base/median.h"
#include "cli/cli.h"

#define MAX_ROUNDS 64

#define AT(field) .offset = offsetof(struct bench_on, field)
/* clang-format off */
const struct option bench_device_rows[] = {
    OPTION("--device", WORD, AT(device), "NAME", "auto, host or cuda", .words = job_device_words,
     .usual = "auto"),
    CLI_NO_ROW
};
const struct option bench_type_rows[] = {
    OPTION("--type", TEXT, AT(type), "NAME", "fp32, bf16 or fp16", .words = cli_dtypes,
     .open = true, .usual = "bf16"),
    CLI_NO_ROW
};
const struct option bench_threads_rows[] = {
    OPTION("--threads", INTEGER, AT(threads), "N", "of the host device", .min = 1, .max = 4096,
     .otherwise = "all CPUs"),
    CLI_NO_ROW
};
/* clang-format on */

int bench_device_open(struct bench_device *b, const struct bench_device_options *options)
{
    struct zinf_device_options wanted = {
        .kind = options->device, .index = options->gpu, .n_threads = (int)options->threads};
    memset(b, 0, sizeof *b);
    b->least_seconds = 0.02;
    b->rounds = 5;
    int code = zinf_device_create(&b->device, &wanted);
    if (code)
        return code;
    b->ops = b->device->ops;
    for (int kind = 0; !code && kind < 3; kind++)
        code = b->ops->queue_create(b->device, (enum zinf_queue_kind)kind, &b->queues[kind]);
    if (!code)
        code = zinf_device_take_memory(b->device, options->device_bytes);
    if (!code)
        code = zinf_arena_init(&b->host, options->host_bytes, "the bench");
    if (!code && b->device->needs_pinned)
        code = b->ops->host_register(b->device, b->host.base, b->host.bytes);
    if (code)
        bench_device_close(b);
    return code;
}

void bench_device_close(struct bench_device *b)
{
    for (int kind = 0; kind < 3; kind++)
        if (b->queues[kind])
            b->ops->queue_destroy(b->queues[kind]);
    zinf_device_destroy(b->device);
    zinf_arena_fini(&b->host);
    memset(b, 0, sizeof *b);
}

/* Sums of four uniform numbers: near enough to normal ones, and cheap. */
static void draw(void *to, enum zinf_dtype dtype, uint64_t n)
{
    uint32_t state = 12345;
    float block[1024];
    for (uint64_t at = 0; at < n; at += 1024) {
        uint64_t count = n - at < 1024 ? n - at : 1024;
        for (uint64_t i = 0; i < count; i++) {
            float sum = -2.0f;
            for (int k = 0; k < 4; k++) {
                state = state * 1664525u + 1013904223u;
                sum += (float)(state >> 8) * 0x1p-24f;
            }
            block[i] = sum * 1.7320508f;
        }
        zinf_convert((char *)to + at * zinf_dtype_bytes(dtype), dtype, block, ZINF_DTYPE_F32,
                     count);
    }
}

/* One host block of numbers again and again. */
int bench_device_fill(struct bench_device *b, enum zinf_dtype dtype, uint64_t bytes)
{
    struct zinf_queue *q = b->queues[ZINF_QUEUE_COMPUTE];
    draw(b->host.base, dtype, b->host.bytes / zinf_dtype_bytes(dtype));
    int code = 0;
    for (uint64_t at = 0; !code && at < bytes; at += b->host.bytes) {
        uint64_t left = bytes - at;
        code = b->ops->copy_to_device(q, (char *)b->device->memory + at, b->host.base,
                                      left < b->host.bytes ? left : b->host.bytes);
    }
    return code ? code : b->ops->queue_synchronize(q);
}

static int synchronize(struct bench_device *b)
{
    int code = 0;
    for (; b; b = b->next)
        for (int kind = 0; !code && kind < 3; kind++)
            code = b->ops->queue_synchronize(b->queues[kind]);
    return code;
}

static int time_calls(struct bench_device *b, bench_call *call, void *context, int n,
                      double *seconds)
{
    uint64_t begin = zinf_now_ns();
    int code = 0;
    for (int i = 0; !code && i < n; i++)
        code = call(b, context);
    if (!code)
        code = synchronize(b);
    *seconds = (double)(zinf_now_ns() - begin) * 1e-9;
    return code;
}

int bench_device_time(struct bench_device *b, bench_call *call, void *context, double *seconds)
{
    double rounds[MAX_ROUNDS], once;
    int n = 1, n_rounds = b->rounds < MAX_ROUNDS ? b->rounds : MAX_ROUNDS;
    int code = time_calls(b, call, context, 1, &once); /* loads, plans and warms up */
    if (!code)
        code = time_calls(b, call, context, 1, &once);
    while (!code && once < b->least_seconds && n < 1 << 20) {
        n = once > 0 && once * 64 > b->least_seconds ? (int)(n * b->least_seconds / once * 1.1) + 1
                                                     : n * 64;
        code = time_calls(b, call, context, n, &once);
    }
    for (int i = 0; !code && i < n_rounds; i++) {
        code = time_calls(b, call, context, n, &rounds[i]);
        rounds[i] /= n;
    }
    if (code)
        return code;
    *seconds = zinf_median(rounds, n_rounds);
    return 0;
}

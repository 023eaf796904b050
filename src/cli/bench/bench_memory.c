/*
 * bench_memory: `zinf bench memory`. Copies within the device's memory, larger than any cache: the
 * rate of what a step does there without products, and on the host device, whose memory is RAM, of
 * what goes between its tiers. There also the CPU time of checksums: what comes from a drive is in
 * no cache, and what was just updated may be. And what makes short steps longer than their work:
 * the time that threads take to share a kernel, and to be woken.
 */
#include "aio/drive_bench.h"
#include "cli/bench/bench_device.h"

#include <math.h>

static const char usage[] =
    "usage: zinf bench memory [options]\n"
    "\n"
    "Times copies within the device's memory and, where that is RAM, checksums of it.\n";

#define CACHES 4 /* a copy over so many times the caches hardly finds anything in them */
#define CACHED 8 /* what is this part of the caches stays in them */
#define SUM_RUNS 5

struct copy {
    char *to, *from;
    uint64_t bytes;
};

static int call(struct bench_device *b, void *context)
{
    const struct copy *c = context;
    return b->ops->copy(b->queues[ZINF_QUEUE_COMPUTE], c->to, c->from, c->bytes);
}

static uint64_t least_bytes(void)
{
    return zinf_align_up(CACHES * zinf_cache_bytes(), ZINF_MEMORY_ALIGN);
}

/* Beside its work: what is told apart from that by twice as much. */
#define KERNEL_NUMBERS 32768 /* which the host's threads share */
#define KERNEL_BYTES (3 * 2 * KERNEL_NUMBERS * sizeof(uint16_t))
#define LEAST_SECONDS 1e-8

static int add_numbers(struct bench_device *b, void *context)
{
    return b->ops->residual_add(b->queues[ZINF_QUEUE_COMPUTE], context);
}

static int time_kernel(struct bench_device *b, double *seconds)
{
    char *memory = b->device->memory;
    const uint64_t room = KERNEL_BYTES / 3;
    struct zinf_residual sum = {.dtype = ZINF_DTYPE_BF16,
                                .n = KERNEL_NUMBERS,
                                .x = memory,
                                .r = memory + room,
                                .y = memory + 2 * room};
    double twice;
    int code = bench_device_time(b, add_numbers, &sum, seconds);
    sum.n *= 2;
    if (!code)
        code = bench_device_time(b, add_numbers, &sum, &twice);
    if (!code)
        *seconds = fmax(2 * *seconds - twice, LEAST_SECONDS);
    return code;
}

/* What a host has beside the rate of its memory. */
struct of_host {
    double kernel_seconds, waking_seconds, sum_seconds; /* of a GB */
};

static void keep_host(cJSON *kept, const struct bench_device *b, const struct of_host *host)
{
    cJSON_AddNumberToObject(kept, "threads", b->device->n_threads);
    cJSON_AddNumberToObject(kept, "kernels", 1 / host->kernel_seconds);
    if (host->waking_seconds > 0)
        cJSON_AddNumberToObject(kept, "wakings", 1 / host->waking_seconds);
    cJSON_AddNumberToObject(kept, "sum_bytes", 1e9 / host->sum_seconds);
}

static void keep(const struct bench_device *b, uint64_t bytes, double rate,
                 const struct of_host *of_host)
{
    bool host = b->device->kind == ZINF_DEVICE_HOST;
    char least[16];
    if (host && bytes < least_bytes()) {
        zinf_log(ZINF_LOG_INFO,
                 "the rate is not kept for zinf estimate: caches hold much of it; give --size %s "
                 "or more, or none",
                 zinf_size_format(least, sizeof least, least_bytes()));
        return;
    }
    cJSON *kept = cJSON_CreateObject();
    cJSON_AddNumberToObject(kept, "bytes", rate);
    cJSON_AddStringToObject(kept, "device", b->device->name);
    if (host)
        keep_host(kept, b, of_host);
    bench_cache_save("memory", host ? "host" : "cuda", kept);
    cJSON_Delete(kept);
}

/* CPU seconds a GB, the best of several runs. */
static double sum_cost(const void *memory, uint64_t bytes)
{
    double best = zinf_aio_bench_sums(memory, bytes);
    for (int run = 1; run < SUM_RUNS; run++) {
        double seconds = zinf_aio_bench_sums(memory, bytes);
        best = seconds < best ? seconds : best;
    }
    return best / (double)bytes * 1e9;
}

/* Checksums of as much as is copied, and of what caches hold. */
static double show_sums(const char *memory, uint64_t bytes, cJSON *result)
{
    uint64_t cached = zinf_align_up(zinf_cache_bytes() / CACHED + 1, ZINF_MEMORY_ALIGN);
    if (cached > bytes)
        cached = bytes;
    double cost = sum_cost(memory, bytes), cached_cost = sum_cost(memory, cached);
    if (result) {
        cJSON *sums = cJSON_AddObjectToObject(result, "checksums");
        cJSON_AddNumberToObject(sums, "seconds_per_gb", cost);
        cJSON_AddNumberToObject(sums, "cached_bytes", (double)cached);
        cJSON_AddNumberToObject(sums, "cached_seconds_per_gb", cached_cost);
        return cost;
    }
    char all[16], part[16];
    printf("checksums, one thread: %.3f CPU seconds a GB of %s, %.3f of %s\n", cost,
           zinf_size_format(all, sizeof all, bytes), cached_cost,
           zinf_size_format(part, sizeof part, cached));
    return cost;
}

static int measure_host(struct bench_device *b, uint64_t bytes, cJSON *result, struct of_host *host)
{
    const int code = time_kernel(b, &host->kernel_seconds);
    if (code)
        return code;
    host->waking_seconds = bench_waking_seconds();
    host->sum_seconds = show_sums(b->device->memory, bytes, result);
    if (result) {
        cJSON_AddNumberToObject(result, "kernel_seconds", host->kernel_seconds);
        cJSON_AddNumberToObject(result, "waking_seconds", host->waking_seconds);
    } else {
        printf("a kernel without work: %.2f us; a thread that is woken: %.1f us later\n",
               host->kernel_seconds * 1e6, host->waking_seconds * 1e6);
    }
    return 0;
}

static int measure(struct bench_device *b, uint64_t bytes, cJSON *result)
{
    char *memory = b->device->memory, size[16];
    struct copy copy = {memory, memory + bytes, bytes};
    struct of_host host = {0};
    double seconds;
    int code = bench_device_fill(b, ZINF_DTYPE_BF16, 2 * bytes + KERNEL_BYTES);
    if (!code)
        code = bench_device_time(b, call, &copy, &seconds);
    if (code)
        return code;
    double rate = 2 * (double)bytes / seconds;
    if (result) {
        cJSON_AddStringToObject(result, "device", b->device->name);
        cJSON_AddNumberToObject(result, "bytes", (double)bytes);
        cJSON_AddNumberToObject(result, "seconds", seconds);
        cJSON_AddNumberToObject(result, "rate", rate);
    } else {
        printf("%s\ncopy of %s: %.3f ms, %.2f GB/s read and written\n", b->device->name,
               zinf_size_format(size, sizeof size, bytes), seconds * 1e3, rate * 1e-9);
    }
    if (b->device->kind == ZINF_DEVICE_HOST)
        code = measure_host(b, bytes, result, &host);
    if (!code)
        keep(b, bytes, rate, &host);
    return code;
}

struct memory_options {
    struct bench_on on;
    uint64_t bytes;
    bool json;
};

#define AT(field) .offset = offsetof(struct memory_options, field)
#define IN(field) .at = offsetof(struct memory_options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--size", SIZE, AT(bytes), "SIZE", "of a copy",
     .otherwise = "256MiB, more for large caches"),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct memory_options *o = call->options;
    const uint64_t usual = least_bytes() > 256u << 20 ? least_bytes() : 256u << 20;
    o->bytes = o->bytes ? o->bytes : usual;
    return o->bytes < ZINF_MEMORY_ALIGN || o->bytes > (uint64_t)64 << 30
               ? zinf_fail(-EINVAL, "--size: between 4KiB and 64GiB")
               : 0;
}

static int work(struct cli_call *call)
{
    const struct memory_options *o = call->options;
    const uint64_t bytes = zinf_align_up(o->bytes, ZINF_MEMORY_ALIGN);
    struct bench_device_options wanted = {.device = o->on.device,
                                          .threads = o->on.threads,
                                          .device_bytes =
                                              2 * bytes + zinf_align_up(KERNEL_BYTES, 4096),
                                          .host_bytes = 1 << 20};
    struct bench_device b;
    cJSON *result = o->json ? cJSON_CreateObject() : NULL;
    int code = bench_device_open(&b, &wanted);
    if (!code) {
        code = measure(&b, bytes, result);
        bench_device_close(&b);
    }
    return bench_finish(call->command, result, code);
}

const struct cli_command bench_memory = {
    .name = "bench memory",
    .summary = "",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = bench_device_rows, IN(on)}, {.rows = own},
                         {.rows = bench_threads_rows, IN(on)}, {.rows = cli_json, IN(json)}),
    .bytes = sizeof(struct memory_options),
    .check = check,
    .work = work,
};

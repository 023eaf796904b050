/*
 * bench_pcie: `zinf bench pcie`. Copies between host memory and a GPU: each direction alone and
 * both at once, of page-locked memory by size of a copy, and of ordinary memory.
 */
#include "cli/bench_device.h"

#include <stdlib.h>

static const char usage[] =
    "usage: zinf bench pcie [options]\n"
    "\n"
    "Times copies between host memory and a GPU, pinned and pageable, each way and\n"
    "both.\n"
    "\n"
    "  --size SIZE       largest copy (default 64MiB)\n"
    "  --json            one JSON object\n";

/* Training copies whole layers: rates of less say nothing about it. */
#define LEAST_BYTES ((uint64_t)16 << 20)

enum direction { TO_DEVICE, TO_HOST, BOTH, DIRECTIONS };
static const char *const names[DIRECTIONS] = {"to_device", "to_host", "both"};

struct transfer {
    char *device[2], *host[2]; /* of each direction */
    uint64_t bytes;
    enum direction direction;
};

static int call(struct bench_device *b, void *context)
{
    const struct transfer *t = context;
    int code = 0;
    if (t->direction != TO_HOST)
        code = b->ops->copy_to_device(b->queues[ZINF_QUEUE_TO_DEVICE], t->device[0], t->host[0],
                                      t->bytes);
    if (!code && t->direction != TO_DEVICE)
        code =
            b->ops->copy_to_host(b->queues[ZINF_QUEUE_TO_HOST], t->host[1], t->device[1], t->bytes);
    return code;
}

/* Bytes a second of each direction, in one go; both: what each way has beside the other. */
static int measure(struct bench_device *b, struct transfer *t, const char *memory, cJSON *list,
                   double rates[DIRECTIONS])
{
    for (int d = 0; d < DIRECTIONS; d++) {
        double seconds;
        t->direction = (enum direction)d;
        int code = bench_device_time(b, call, t, &seconds);
        if (code)
            return code;
        rates[d] = (double)t->bytes / seconds;
    }
    if (!list) {
        char size[16];
        printf("%-9s %10s %10.2f %10.2f %10.2f\n", memory,
               zinf_size_format(size, sizeof size, t->bytes), rates[TO_DEVICE] * 1e-9,
               rates[TO_HOST] * 1e-9, rates[BOTH] * 1e-9);
        fflush(stdout);
        return 0;
    }
    cJSON *one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "memory", memory);
    cJSON_AddNumberToObject(one, "bytes", (double)t->bytes);
    for (int d = 0; d < DIRECTIONS; d++)
        cJSON_AddNumberToObject(one, names[d], rates[d]);
    cJSON_AddItemToArray(list, one);
    return 0;
}

static void keep(const struct bench_device *b, const char *key, uint64_t bytes,
                 const double rates[DIRECTIONS])
{
    char least[16];
    if (bytes < LEAST_BYTES) {
        zinf_log_once(ZINF_LOG_INFO, "bench-small",
                      "the rates are not kept for zinf estimate: a small copy is mostly its "
                      "beginning; give --size %s or more",
                      zinf_size_format(least, sizeof least, LEAST_BYTES));
        return;
    }
    cJSON *kept = cJSON_CreateObject();
    for (int d = 0; d < DIRECTIONS; d++)
        cJSON_AddNumberToObject(kept, names[d], rates[d]);
    cJSON_AddStringToObject(kept, "device", b->device->name);
    bench_cache_save("pcie", key, kept);
    cJSON_Delete(kept);
}

static int measure_all(struct bench_device *b, uint64_t most, cJSON *list)
{
    char *pageable = malloc(2 * most), *device = b->device->memory;
    struct transfer t = {{device, device + most}, {b->host.base, b->host.base + most}, 0, 0};
    double rates[DIRECTIONS];
    if (!pageable)
        return zinf_fail(-ENOMEM, "no memory for copies of %llu bytes", (unsigned long long)most);
    memset(pageable, 1, 2 * most);
    int code = 0;
    for (t.bytes = (uint64_t)256 << 10; !code && t.bytes < most; t.bytes *= 4)
        code = measure(b, &t, "pinned", list, rates);
    t.bytes = most;
    if (!code)
        code = measure(b, &t, "pinned", list, rates);
    if (!code)
        keep(b, "pinned", most, rates);
    t.host[0] = pageable;
    t.host[1] = pageable + most;
    if (!code)
        code = measure(b, &t, "pageable", list, rates);
    if (!code)
        keep(b, "pageable", most, rates);
    free(pageable);
    return code;
}

static int run(int argc, char **argv)
{
    uint64_t most = (uint64_t)64 << 20;
    bool json = false;
    const struct cli_option options[] = {
        {"--size", CLI_SIZE, &most, 0, 0},
        {"--json", CLI_FLAG, &json, 0, 0},
    };
    int rc = cli_parse(&bench_pcie, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (rc)
        return rc > 0 ? CLI_OK : cli_error(&bench_pcie, CLI_USAGE);
    if (most < 4096 || most > (uint64_t)8 << 30) {
        zinf_fail(-EINVAL, "--size: between 4KiB and 8GiB");
        return cli_error(&bench_pcie, CLI_USAGE);
    }
    most = zinf_align_up(most, 4096);
    struct bench_device_options wanted = {"cuda", 0, 2 * most, 2 * most};
    struct bench_device b;
    rc = bench_device_open(&b, &wanted);
    if (rc)
        return cli_error(&bench_pcie, CLI_FAILED);
    cJSON *result = json ? cJSON_CreateObject() : NULL;
    cJSON *list = result ? cJSON_AddArrayToObject(result, "results") : NULL;
    if (result)
        cJSON_AddStringToObject(result, "device", b.device->name);
    else
        printf("%s; GB/s, with both at once each way\n%-9s %10s %10s %10s %10s\n", b.device->name,
               "memory", "copy", "to device", "to host", "both");
    rc = bench_device_fill(&b, ZINF_DTYPE_BF16, 2 * most);
    if (!rc)
        rc = measure_all(&b, most, list);
    bench_device_close(&b);
    return bench_finish(&bench_pcie, result, rc);
}

const struct cli_command bench_pcie = {
    .name = "bench pcie",
    .summary = "",
    .usage = usage,
    .run = run,
};

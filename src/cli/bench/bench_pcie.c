/*
 * bench_pcie: `zinf bench pcie`. Copies between host memory and a GPU: each direction alone and
 * both at once, of page-locked memory by size of a copy, and of ordinary memory; then of several
 * GPUs at once.
 */
#include "cli/bench/bench_pcie.h"

#include <stdlib.h>

static const char usage[] =
    "usage: zinf bench pcie [options]\n"
    "\n"
    "Times copies between host memory and a GPU, pinned and pageable, each way and\n"
    "both; then with several GPUs at once, and from GPU to GPU.\n";

const char *const pcie_directions[PCIE_DIRECTIONS] = {"to_device", "to_host", "both"};

struct transfer {
    char *device[2], *host[2]; /* of each direction */
    uint64_t bytes;
    enum pcie_direction direction;
};

static int call(struct bench_device *b, void *context)
{
    const struct transfer *t = context;
    int code = 0;
    if (t->direction != PCIE_TO_HOST)
        code = b->ops->copy_to_device(b->queues[ZINF_QUEUE_TO_DEVICE], t->device[0], t->host[0],
                                      t->bytes);
    if (!code && t->direction != PCIE_TO_DEVICE)
        code =
            b->ops->copy_to_host(b->queues[ZINF_QUEUE_TO_HOST], t->host[1], t->device[1], t->bytes);
    return code;
}

int pcie_enqueue(struct bench_device *b, uint64_t bytes, enum pcie_direction direction)
{
    char *device = b->device->memory, *host = b->host.base;
    struct transfer t = {{device, device + bytes}, {host, host + bytes}, bytes, direction};
    return call(b, &t);
}

/* Bytes a second of each direction, in one go; both: what each way has beside the other. */
static int measure(struct bench_device *b, struct transfer *t, const char *memory, cJSON *list,
                   double rates[PCIE_DIRECTIONS])
{
    for (int d = 0; d < PCIE_DIRECTIONS; d++) {
        double seconds;
        t->direction = (enum pcie_direction)d;
        int code = bench_device_time(b, call, t, &seconds);
        if (code)
            return code;
        rates[d] = (double)t->bytes / seconds;
    }
    if (!list) {
        char size[16];
        printf("%-9s %10s %10.2f %10.2f %10.2f\n", memory,
               zinf_size_format(size, sizeof size, t->bytes), rates[PCIE_TO_DEVICE] * 1e-9,
               rates[PCIE_TO_HOST] * 1e-9, rates[PCIE_BOTH] * 1e-9);
        fflush(stdout);
        return 0;
    }
    cJSON *one = cJSON_CreateObject();
    cJSON_AddStringToObject(one, "memory", memory);
    cJSON_AddNumberToObject(one, "bytes", (double)t->bytes);
    for (int d = 0; d < PCIE_DIRECTIONS; d++)
        cJSON_AddNumberToObject(one, pcie_directions[d], rates[d]);
    cJSON_AddItemToArray(list, one);
    return 0;
}

static void keep(const struct bench_device *b, const char *key, uint64_t bytes,
                 const double rates[PCIE_DIRECTIONS])
{
    char least[16];
    if (bytes < PCIE_LEAST_BYTES) {
        zinf_log_once(ZINF_LOG_INFO, "bench-small",
                      "the rates are not kept for zinf estimate: a small copy is mostly its "
                      "beginning; give --size %s or more",
                      zinf_size_format(least, sizeof least, PCIE_LEAST_BYTES));
        return;
    }
    cJSON *kept = cJSON_CreateObject();
    for (int d = 0; d < PCIE_DIRECTIONS; d++)
        cJSON_AddNumberToObject(kept, pcie_directions[d], rates[d]);
    cJSON_AddStringToObject(kept, "device", b->device->name);
    bench_cache_save("pcie", key, kept);
    cJSON_Delete(kept);
}

static int measure_all(struct bench_device *b, uint64_t most, cJSON *list)
{
    char *pageable = malloc(2 * most), *device = b->device->memory;
    struct transfer t = {{device, device + most}, {b->host.base, b->host.base + most}, 0, 0};
    double rates[PCIE_DIRECTIONS];
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

/* All that are visible, unless one is named. */
static int gpus_of(int64_t asked)
{
    const char *one = getenv("ZINF_GPU");
    int visible = one && *one ? 1 : zinf_device_cuda_count();
    if (asked <= visible)
        return asked > 0 ? (int)asked : visible;
    return zinf_fail(-ENODEV, "--gpus %lld: %d GPU%s visible (CUDA_VISIBLE_DEVICES, ZINF_GPU)",
                     (long long)asked, visible, visible == 1 ? " is" : "s are");
}

struct pcie_options {
    uint64_t most;
    int64_t gpus;
    bool json;
};

#define AT(field) .offset = offsetof(struct pcie_options, field)
#define IN(field) .at = offsetof(struct pcie_options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--size", SIZE, AT(most), "SIZE", "largest copy", .usual = "64MiB"),
    OPTION("--gpus", INTEGER, AT(gpus), "N", "so many GPUs", .min = 1, .max = 64,
     .otherwise = "all that are visible"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    {.rows = own},
    {.rows = cli_json, IN(json)},
    CLI_NO_GROUP
};
/* clang-format on */

static int run(int argc, char **argv)
{
    struct pcie_options o = {.most = 0};
    int rc = cli_parse(&bench_pcie, &o, NULL, argc, argv);
    if (rc)
        return rc > 0 ? CLI_OK : cli_error(&bench_pcie, CLI_USAGE);
    if (o.most < 4096 || o.most > (uint64_t)8 << 30) {
        zinf_fail(-EINVAL, "--size: between 4KiB and 8GiB");
        return cli_error(&bench_pcie, CLI_USAGE);
    }
    const uint64_t most = zinf_align_up(o.most, 4096);
    struct bench_device_options wanted = {
        .device = ZINF_DEVICE_CUDA, .device_bytes = 2 * most, .host_bytes = 2 * most};
    struct bench_device b;
    int n_gpus = gpus_of(o.gpus);
    rc = n_gpus < 0 ? n_gpus : bench_device_open(&b, &wanted);
    if (rc)
        return cli_error(&bench_pcie, CLI_FAILED);
    cJSON *result = o.json ? cJSON_CreateObject() : NULL;
    cJSON *list = result ? cJSON_AddArrayToObject(result, "results") : NULL;
    if (result)
        cJSON_AddStringToObject(result, "device", b.device->name);
    else
        printf("%s; GB/s, with both at once each way\n%-9s %10s %10s %10s %10s\n", b.device->name,
               "memory", "copy", "to device", "to host", "both");
    rc = bench_device_fill(&b, ZINF_DTYPE_BF16, 2 * most);
    if (!rc)
        rc = measure_all(&b, most, list);
    if (!rc && n_gpus > 1)
        rc = pcie_measure_gpus(&b, n_gpus, most, result);
    bench_device_close(&b);
    return bench_finish(&bench_pcie, result, rc);
}

const struct cli_command bench_pcie = {
    .name = "bench pcie",
    .summary = "",
    .usage = usage,
    .groups = groups,
    .run = run,
};

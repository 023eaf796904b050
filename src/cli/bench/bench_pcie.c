/*
 * bench_pcie: `zinf bench pcie`. Copies between host memory and a GPU: each direction alone and
 * both at once, of page-locked memory by size of a copy, and of ordinary memory; then of several
 * GPUs at once.
 */
#include "cli/bench/bench_device.h"

#include <stdlib.h>

static const char usage[] =
    "usage: zinf bench pcie [options]\n"
    "\n"
    "Times copies between host memory and a GPU, pinned and pageable, each way and\n"
    "both; then with several GPUs at once, and from GPU to GPU.\n";

enum pcie_direction { PCIE_TO_DEVICE, PCIE_TO_HOST, PCIE_BOTH, PCIE_DIRECTIONS };
static const char *const directions[PCIE_DIRECTIONS] = {"to_device", "to_host", "both"};
/* Training copies whole layers: rates of less say nothing about it. */
#define PCIE_LEAST_BYTES ((uint64_t)16 << 20)

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

static int enqueue(struct bench_device *b, uint64_t bytes, enum pcie_direction direction)
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
        cJSON_AddNumberToObject(one, directions[d], rates[d]);
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
        cJSON_AddNumberToObject(kept, directions[d], rates[d]);
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

/* ---- several GPUs at once ----
 * What they have together of the way to RAM tells whether each has a link of its own or they share
 * a root; and from GPU to GPU there may be a way past the RAM, which is measured alone and with
 * every GPU copying from its neighbour. */

#define MOST_GPUS 64

struct gpus {
    struct bench_device all[MOST_GPUS]; /* the first is the caller's */
    int n;
    uint64_t bytes;
    enum pcie_direction direction;
    double rates[PCIE_DIRECTIONS]; /* of all, in sum, each way */
    double alone, ring;            /* from GPU to GPU: one copy, each GPU one; 0: there is no way */
};

static int open_others(struct gpus *g)
{
    int code = 0;
    for (int i = 1; !code && i < g->n; i++) {
        const struct bench_device_options wanted = {.device = ZINF_DEVICE_CUDA,
                                                    .gpu = i,
                                                    .device_bytes = 2 * g->bytes,
                                                    .host_bytes = 2 * g->bytes};
        code = bench_device_open(&g->all[i], &wanted);
        if (!code)
            code = bench_device_fill(&g->all[i], ZINF_DTYPE_BF16, 2 * g->bytes);
    }
    return code;
}

/* The first n are waited for together. */
static void join(struct gpus *g, int n)
{
    for (int i = 0; i < g->n; i++)
        g->all[i].next = i + 1 < n ? &g->all[i + 1] : NULL;
}

/* ---- to RAM and back ---- */

static int copy_all(struct bench_device *b, void *context)
{
    const struct gpus *g = context;
    int code = 0;
    for (; !code && b; b = b->next)
        code = enqueue(b, g->bytes, g->direction);
    return code;
}

static void show(const struct gpus *g, int n, cJSON *list)
{
    if (!list) {
        printf("%-9s %10d %10.2f %10.2f %10.2f\n", n == 2 ? "GPUs" : "", n,
               g->rates[PCIE_TO_DEVICE] * 1e-9, g->rates[PCIE_TO_HOST] * 1e-9,
               g->rates[PCIE_BOTH] * 1e-9);
        fflush(stdout);
        return;
    }
    cJSON *one = cJSON_CreateObject();
    cJSON_AddNumberToObject(one, "gpus", n);
    for (int d = 0; d < PCIE_DIRECTIONS; d++)
        cJSON_AddNumberToObject(one, directions[d], g->rates[d]);
    cJSON_AddItemToArray(list, one);
}

static int measure_together(struct gpus *g, int n, cJSON *list)
{
    join(g, n);
    for (int d = 0; d < PCIE_DIRECTIONS; d++) {
        double seconds;
        g->direction = (enum pcie_direction)d;
        int code = bench_device_time(&g->all[0], copy_all, g, &seconds);
        if (code)
            return code;
        g->rates[d] = n * (double)g->bytes / seconds;
    }
    show(g, n, list);
    return 0;
}

/* ---- past it ---- */

static int copy_from_neighbour(struct bench_device *b, struct bench_device *from, uint64_t bytes)
{
    return b->ops->copy_from_peer(b->queues[ZINF_QUEUE_TO_DEVICE], b->device->memory, from->device,
                                  (char *)from->device->memory + bytes, bytes);
}

/* The last one's neighbour is the first; one alone copies from the second. */
static int copy_ring(struct bench_device *b, void *context)
{
    struct gpus *g = context;
    int code = b->next ? 0 : copy_from_neighbour(b, &g->all[1], g->bytes);
    for (int i = 0; !code && b->next && i < g->n; i++)
        code = copy_from_neighbour(&g->all[i], &g->all[(i + 1) % g->n], g->bytes);
    return code;
}

/* Whether every GPU reaches its neighbour's memory, and the first the second's. */
static bool reach_each_other(struct gpus *g)
{
    int code = 0;
    for (int i = 0; !code && i < g->n; i++)
        code = g->all[i].ops->peer_open(g->all[i].device, g->all[(i + 1) % g->n].device);
    if (code)
        zinf_log(ZINF_LOG_INFO, "%s", zinf_error());
    return !code;
}

static int measure_peers(struct gpus *g)
{
    double alone, ring;
    if (!reach_each_other(g))
        return 0;
    join(g, 1);
    int code = bench_device_time(&g->all[0], copy_ring, g, &alone);
    join(g, g->n);
    if (!code)
        code = bench_device_time(&g->all[0], copy_ring, g, &ring);
    if (code)
        return code;
    g->alone = (double)g->bytes / alone;
    g->ring = (double)g->bytes / ring;
    return 0;
}

static void show_peers(const struct gpus *g, cJSON *result)
{
    if (result) {
        cJSON *peer = cJSON_AddObjectToObject(result, "gpu_to_gpu");
        cJSON_AddNumberToObject(peer, "alone", g->alone);
        cJSON_AddNumberToObject(peer, "each", g->ring);
    } else if (g->ring > 0) {
        printf("from GPU to GPU: %.2f GB/s alone, %.2f GB/s each with all at once\n",
               g->alone * 1e-9, g->ring * 1e-9);
    } else {
        puts("from GPU to GPU: not past the RAM");
    }
}

static void keep_together(const struct gpus *g)
{
    cJSON *kept = cJSON_CreateObject();
    cJSON_AddNumberToObject(kept, "gpus", g->n);
    for (int d = 0; d < PCIE_DIRECTIONS; d++)
        cJSON_AddNumberToObject(kept, directions[d], g->rates[d]);
    if (g->ring > 0)
        cJSON_AddNumberToObject(kept, "gpu_to_gpu", g->ring);
    cJSON_AddStringToObject(kept, "device", g->all[0].device->name);
    bench_cache_save("pcie", "together", kept);
    cJSON_Delete(kept);
}

static int measure_gpus(struct bench_device *b, int n, uint64_t bytes, cJSON *result)
{
    cJSON *list = result ? cJSON_AddArrayToObject(result, "together") : NULL;
    struct gpus *g = calloc(1, sizeof *g);
    if (!g)
        return zinf_fail(-ENOMEM, "no memory to measure %d GPUs", n);
    g->n = n < MOST_GPUS ? n : MOST_GPUS;
    g->bytes = bytes;
    g->all[0] = *b;
    int code = open_others(g);
    for (int k = 2; !code && k <= g->n; k++)
        code = measure_together(g, k, list);
    if (!code)
        code = measure_peers(g);
    if (!code)
        show_peers(g, result);
    if (!code && bytes >= PCIE_LEAST_BYTES)
        keep_together(g);
    for (int i = 1; i < g->n; i++)
        if (g->all[i].device)
            bench_device_close(&g->all[i]);
    free(g);
    return code;
}

/* ---- the command ---- */

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
/* clang-format on */

static int check(struct cli_call *call)
{
    const struct pcie_options *o = call->options;
    return o->most < 4096 || o->most > (uint64_t)8 << 30
               ? zinf_fail(-EINVAL, "--size: between 4KiB and 8GiB")
               : 0;
}

static int work(struct cli_call *call)
{
    const struct pcie_options *o = call->options;
    const uint64_t most = zinf_align_up(o->most, 4096);
    struct bench_device_options wanted = {
        .device = ZINF_DEVICE_CUDA, .device_bytes = 2 * most, .host_bytes = 2 * most};
    struct bench_device b;
    int n_gpus = gpus_of(o->gpus);
    int rc = n_gpus < 0 ? n_gpus : bench_device_open(&b, &wanted);
    if (rc)
        return rc;
    cJSON *result = o->json ? cJSON_CreateObject() : NULL;
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
        rc = measure_gpus(&b, n_gpus, most, result);
    bench_device_close(&b);
    return bench_finish(call->command, result, rc);
}

const struct cli_command bench_pcie = {
    .name = "bench pcie",
    .summary = "",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}, {.rows = cli_json, IN(json)}),
    .bytes = sizeof(struct pcie_options),
    .check = check,
    .work = work,
};

/*
 * bench_pcie_gpus: several GPUs at once. What they have together of the way to RAM tells whether
 * each has a link of its own or they share a root; and from GPU to GPU there may be a way past the
 * RAM, which is measured alone and with every GPU copying from its neighbour.
 */
#include "cli/bench/bench_pcie.h"

#include <stdlib.h>

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
        const struct bench_device_options wanted = {
            .device = ZINF_DEVICE_CUDA, .gpu = i, .device_bytes = 2 * g->bytes, .host_bytes = 2 * g->bytes};
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
        code = pcie_enqueue(b, g->bytes, g->direction);
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
        cJSON_AddNumberToObject(one, pcie_directions[d], g->rates[d]);
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

/* ---- all ---- */

static void keep(const struct gpus *g)
{
    cJSON *kept = cJSON_CreateObject();
    cJSON_AddNumberToObject(kept, "gpus", g->n);
    for (int d = 0; d < PCIE_DIRECTIONS; d++)
        cJSON_AddNumberToObject(kept, pcie_directions[d], g->rates[d]);
    if (g->ring > 0)
        cJSON_AddNumberToObject(kept, "gpu_to_gpu", g->ring);
    cJSON_AddStringToObject(kept, "device", g->all[0].device->name);
    bench_cache_save("pcie", "together", kept);
    cJSON_Delete(kept);
}

int pcie_measure_gpus(struct bench_device *b, int n, uint64_t bytes, cJSON *result)
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
        keep(g);
    for (int i = 1; i < g->n; i++)
        if (g->all[i].device)
            bench_device_close(&g->all[i]);
    free(g);
    return code;
}

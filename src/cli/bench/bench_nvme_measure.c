/*
 * bench_nvme_measure: the order of the measurements. The data lies in a store, so that it is
 * checked for room, locked and removed like a run's, and striped over the paths as a run is. Random
 * numbers are written over all of it before anything is timed; then the settings are chosen by
 * short looks, and the figures taken with them.
 */
#include "cli/bench/bench_nvme.h"

#include <math.h>

#define PROBE_BYTES (256ull << 20)
#define MIN_BYTES (1ull << 30)  /* beyond what small caches hide */
#define MAX_BYTES (32ull << 30) /* beyond what large ones hide */
#define PASS_SECONDS 7          /* a pass over data of the default size, at the rate of writes */
#define LOOK_SECONDS 1.0        /* each setting and each engine */
#define NEAR_BEST 0.97          /* so near to the best, what needs less in flight is better */
#define ALONE_BYTES (64u << 10) /* a block of which most of the time is not that of its bytes */
#define MAX_IN_FLIGHT (256u << 20)

#define KIB 1024u
#define MIB (1024u * 1024u)

const char *const nvme_mix_names[NVME_MIXES] = {
    [ZINF_AIO_BENCH_READ] = "read",
    [ZINF_AIO_BENCH_WRITE] = "write",
    [ZINF_AIO_BENCH_MIXED] = "mixed",
};

double nvme_cpu_per_byte(const struct zinf_aio_bench_result *result)
{
    double bytes = (double)(result->bytes_read + result->bytes_written);
    return bytes > 0 ? result->cpu_seconds / bytes : 0;
}

static int run(struct nvme_bench *bench, const struct zinf_aio_bench_options *options,
               const char *what, struct zinf_aio_bench_result *result)
{
    char text[128];
    struct zinf_aio_bench_options o = *options;
    o.store = bench->store;
    o.extent = bench->extent;
    o.bytes = bench->bytes;
    o.n_jobs = bench->n_jobs;
    o.random = bench->random;
    snprintf(text, sizeof text, "%s: %s", what, nvme_mix_names[o.mix]);
    cli_progress_update(&bench->progress, bench->progress.done, text, true);
    int code = zinf_aio_bench(&o, result);
    bench->bytes_written += result->bytes_written;
    cli_progress_update(&bench->progress, bench->progress.done + 1, text, false);
    return code;
}

/* ---- space ---- */

/* How fast each path is, for its share of the stripes and for the size. */
static int look_at_paths(struct nvme_bench *bench)
{
    double rate = 0;
    uint64_t bytes = PROBE_BYTES;
    if (bench->bytes && bench->n_paths == 1)
        return 0;
    if (bench->bytes && bench->bytes < bytes * (uint64_t)bench->n_paths)
        bytes = zinf_align_up(bench->bytes / (uint64_t)bench->n_paths, 2 * MIB);
    for (int i = 0; i < bench->n_paths; i++) {
        zinf_log(ZINF_LOG_INFO, "bench nvme: a short look at %s", bench->paths[i]);
        int code = zinf_aio_bench_path(bench->paths[i], bytes, false, &bench->rates[i]);
        bench->bytes_written += bench->rates[i].bytes_written;
        if (code)
            return code;
        rate += bench->rates[i].write;
    }
    if (!bench->bytes)
        bench->bytes = (uint64_t)fmin(fmax(rate * PASS_SECONDS, (double)MIN_BYTES), MAX_BYTES);
    return 0;
}

static int take_space(struct nvme_bench *bench)
{
    double rates[NVME_MAX_PATHS];
    char size[16];
    struct zinf_store_options options = {
        .paths = (const char *const *)bench->paths, .n_paths = bench->n_paths, .label = "bench"};
    int code = look_at_paths(bench);
    if (code)
        return code;
    for (int i = 0; i < bench->n_paths; i++)
        rates[i] = bench->rates[i].mixed;
    if (bench->n_paths > 1)
        options.path_rates = rates;
    bench->bytes = zinf_align_up(bench->bytes, 2 * MIB);
    zinf_log(ZINF_LOG_INFO, "bench nvme: %s of files in %s, removed at the end",
             zinf_size_format(size, sizeof size, bench->bytes), bench->paths[0]);
    code = zinf_store_create(&bench->store, &options);
    if (!code)
        code = zinf_store_add_extent(bench->store, bench->bytes, &bench->extent);
    if (!code)
        code = zinf_store_allocate(bench->store);
    if (code)
        return code == -ENOSPC ? zinf_fail_in(code, "lower --size, or") : code;
    bench->bytes_written += bench->bytes;
    struct zinf_aio_bench_result first;
    code = run(bench,
               &(struct zinf_aio_bench_options){.mix = ZINF_AIO_BENCH_WRITE,
                                                .queue.engine = bench->engine},
               "all data for the first time", &first);
    bench->pass_seconds = first.seconds;
    return code;
}

/* For one of many figures; 0, which is a pass, where that is shorter. */
static double look_seconds(const struct nvme_bench *bench)
{
    if (bench->seconds > 0)
        return bench->seconds;
    return bench->pass_seconds < LOOK_SECONDS ? 0 : LOOK_SECONDS;
}

/* ---- settings ---- */

static void plan_sweep(struct nvme_bench *bench)
{
    static const uint32_t blocks[] = {128 * KIB, 256 * KIB, 512 * KIB, MIB,
                                      2 * MIB,   4 * MIB,   8 * MIB};
    static const uint32_t depths[] = {1, 4, 8, 16, 32, 64, 128};
    static const struct nvme_point few[] = {
        {256 * KIB, 32, {0}}, {MIB, 4, {0}},  {MIB, 8, {0}},
        {MIB, 16, {0}},       {MIB, 32, {0}}, {4 * MIB, 8, {0}},
    };
    for (size_t i = 0; !bench->sweep_all && i < sizeof few / sizeof *few; i++)
        bench->sweep[bench->n_sweep++] = few[i];
    for (size_t b = 0; bench->sweep_all && b < sizeof blocks / sizeof *blocks; b++)
        for (size_t d = 0; d < sizeof depths / sizeof *depths; d++)
            if ((uint64_t)blocks[b] * depths[d] <= MAX_IN_FLIGHT)
                bench->sweep[bench->n_sweep++] = (struct nvme_point){blocks[b], depths[d], {0}};
}

/* What the user fixed is fixed; what then is the same, or too large for the data, falls out. */
static void narrow_sweep(struct nvme_bench *bench)
{
    int n = 0;
    for (int i = 0; i < bench->n_sweep; i++) {
        struct nvme_point point = bench->sweep[i];
        bool known = false;
        point.block_bytes = bench->block_bytes ? bench->block_bytes : point.block_bytes;
        point.queue_depth = bench->queue_depth ? bench->queue_depth : point.queue_depth;
        for (int j = 0; j < n; j++)
            known |= bench->sweep[j].block_bytes == point.block_bytes &&
                     bench->sweep[j].queue_depth == point.queue_depth;
        if (!known && bench->bytes / (uint64_t)bench->n_jobs >= 2ull * point.block_bytes)
            bench->sweep[n++] = point;
    }
    bench->n_sweep = n;
}

static bool is_near_best(const struct nvme_bench *bench, const struct nvme_point *point)
{
    double best = 0;
    for (int i = 0; i < bench->n_sweep; i++)
        best = fmax(best, zinf_aio_bench_rate(&bench->sweep[i].result));
    return zinf_aio_bench_rate(&point->result) >= NEAR_BEST * best;
}

/* Of the settings that are as fast as any: the least in flight, for that is what a read in demand
 * waits for, but not at twice the CPU. */
static void choose(struct nvme_bench *bench)
{
    double least_cpu = INFINITY;
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < bench->n_sweep; i++)
        if (is_near_best(bench, &bench->sweep[i]))
            least_cpu = fmin(least_cpu, nvme_cpu_per_byte(&bench->sweep[i].result));
    for (int i = 0; i < bench->n_sweep; i++) {
        const struct nvme_point *point = &bench->sweep[i];
        uint64_t in_flight = (uint64_t)point->block_bytes * point->queue_depth;
        if (!is_near_best(bench, point) || in_flight >= least ||
            nvme_cpu_per_byte(&point->result) > 2 * least_cpu)
            continue;
        least = in_flight;
        bench->best_block_bytes = point->block_bytes;
        bench->best_depth = point->queue_depth;
    }
}

static int sweep(struct nvme_bench *bench)
{
    char what[64];
    bench->best_block_bytes = bench->block_bytes ? bench->block_bytes : MIB;
    bench->best_depth = bench->queue_depth ? bench->queue_depth : 32;
    for (int i = 0; i < bench->n_sweep; i++) {
        struct nvme_point *point = &bench->sweep[i];
        struct zinf_aio_bench_options options = {
            .mix = bench->key_mix,
            .seconds = look_seconds(bench),
            .queue = {.engine = bench->engine,
                      .block_bytes = point->block_bytes,
                      .queue_depth = point->queue_depth},
        };
        snprintf(what, sizeof what, "blocks of %u KiB, %u in flight", point->block_bytes / KIB,
                 point->queue_depth);
        int code = run(bench, &options, what, &point->result);
        if (code)
            return code;
    }
    choose(bench);
    return 0;
}

/* ---- figures ---- */

static struct zinf_aio_bench_options with_best(const struct nvme_bench *bench)
{
    return (struct zinf_aio_bench_options){
        .seconds = bench->seconds,
        .queue = {.engine = bench->engine,
                  .block_bytes = bench->best_block_bytes,
                  .queue_depth = bench->best_depth},
    };
}

static int figures(struct nvme_bench *bench)
{
    struct zinf_aio_bench_options options = with_best(bench);
    int code = 0;
    for (int mix = 0; mix < NVME_MIXES && !code; mix++) {
        options.mix = (enum zinf_aio_bench_mix)mix;
        if (bench->wanted[mix])
            code = run(bench, &options, "with the best setting", &bench->main[mix]);
    }
    return code;
}

double nvme_answer_seconds(const struct nvme_bench *bench)
{
    const double rate = zinf_aio_bench_rate(&bench->main[ZINF_AIO_BENCH_READ]);
    const double all = (double)bench->alone.p50_ns * 1e-9;
    return rate > 0 && all > 0 ? fmax(all - ALONE_BYTES / rate, all / 10) : 0;
}

/* Settings and engines are those of the figures. */
static int measure_alone(struct nvme_bench *bench)
{
    struct zinf_aio_bench_options options = with_best(bench);
    options.mix = ZINF_AIO_BENCH_READ;
    options.seconds = look_seconds(bench);
    options.queue.block_bytes = ALONE_BYTES;
    options.queue.queue_depth = 1;
    return bench->wanted[ZINF_AIO_BENCH_READ] && bench->bytes >= 2ull * ALONE_BYTES * bench->n_jobs
               ? run(bench, &options, "one block after the other", &bench->alone)
               : 0;
}

static int measure_busy(struct nvme_bench *bench)
{
    struct zinf_aio_bench_options options = with_best(bench);
    options.mix = ZINF_AIO_BENCH_MIXED;
    options.seconds = 2 * look_seconds(bench);
    return bench->wanted[ZINF_AIO_BENCH_MIXED] ? nvme_measure_busy(bench, &options, run) : 0;
}

static int compare_engines(struct nvme_bench *bench)
{
    const char *why = NULL;
    bool refused = zinf_aio_uring_probe(&why) != 0;
    for (int i = 0; i < NVME_ENGINES; i++) {
        static const char *const names[NVME_ENGINES] = {"io_uring, registered memory",
                                                        "io_uring, not registered",
                                                        "io_uring, registered, SQPOLL", "threads"};
        struct nvme_engine_row *row = &bench->engines[i];
        struct zinf_aio_bench_options options = with_best(bench);
        row->name = names[i];
        options.seconds = look_seconds(bench);
        options.queue.engine = i < 3 ? ZINF_AIO_ENGINE_URING : ZINF_AIO_ENGINE_THREADS;
        options.queue.sqpoll = i == 2;
        options.unregistered = i == 1;
        row->refused = i < 3 && refused ? why : NULL;
        for (int mix = 0; mix < NVME_MIXES && !row->refused; mix++) {
            options.mix = (enum zinf_aio_bench_mix)mix;
            int code = bench->wanted[mix] ? run(bench, &options, row->name, &row->result[mix]) : 0;
            if (code)
                return code;
        }
    }
    return 0;
}

/* Runs after the space is taken: the first write, the sweep, the figures, those of the engines. */
static uint64_t count_runs(const struct nvme_bench *bench)
{
    uint64_t mixes = 0;
    for (int mix = 0; mix < NVME_MIXES; mix++)
        mixes += bench->wanted[mix];
    return 2 + NVME_BUSY_RUNS + (uint64_t)bench->n_sweep + mixes * (1 + NVME_ENGINES);
}

int nvme_measure(struct nvme_bench *bench)
{
    if (!bench->block_bytes || !bench->queue_depth)
        plan_sweep(bench);
    cli_progress_begin(&bench->progress, CLI_PROGRESS_AUTO, "bench nvme", count_runs(bench));
    int code = take_space(bench);
    narrow_sweep(bench);
    if (!code)
        code = sweep(bench);
    if (!code)
        code = figures(bench);
    if (!code)
        code = measure_alone(bench);
    if (!code)
        code = measure_busy(bench);
    if (!code)
        code = compare_engines(bench);
    cli_progress_end(&bench->progress);
    zinf_store_destroy(bench->store);
    bench->store = NULL;
    return code;
}

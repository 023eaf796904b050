/*
 * drive_rates: a short look at a path. The space is a store of its own, so that it is locked,
 * checked for room, removed, and reclaimed if this process dies, like any other.
 */
#include "build-config.h"

#include "aio/drive_bench.h"

static int measure(struct zinf_store *store, uint64_t bytes, struct zinf_aio_bench_rates *rates)
{
    struct zinf_aio_bench_options options = {.store = store, .bytes = bytes};
    struct zinf_aio_bench_result result;
    double *const out[] = {[ZINF_AIO_BENCH_READ] = &rates->read,
                           [ZINF_AIO_BENCH_WRITE] = &rates->write,
                           [ZINF_AIO_BENCH_MIXED] = &rates->mixed};
    /* Data first: see zinf_aio_bench_options. */
    static const enum zinf_aio_bench_mix order[] = {ZINF_AIO_BENCH_WRITE, ZINF_AIO_BENCH_READ,
                                                    ZINF_AIO_BENCH_MIXED};
    for (int i = 0; i < 3; i++) {
        options.mix = order[i];
        int code = zinf_aio_bench(&options, &result);
        if (code)
            return code;
        *out[order[i]] = zinf_aio_bench_rate(&result);
        rates->bytes_written += result.bytes_written;
    }
    return 0;
}

int zinf_aio_bench_path(const char *path, uint64_t bytes, bool allow_memory_fs,
                        struct zinf_aio_bench_rates *rates)
{
    struct zinf_store_options options = {
        .paths = &path, .n_paths = 1, .label = "probe", .allow_memory_fs = allow_memory_fs};
    struct zinf_store *store = NULL;
    zinf_extent extent;
    *rates = (struct zinf_aio_bench_rates){0};
    int code = zinf_store_create(&store, &options);
    if (!code)
        code = zinf_store_add_extent(store, bytes, &extent);
    if (!code)
        code = zinf_store_allocate(store);
    if (!code) {
        rates->bytes_written = zinf_store_planned_bytes(store);
        code = measure(store, bytes, rates);
    }
    zinf_store_destroy(store);
    return code;
}

/*
 * store: planned extents become one file for each path, at full length and written once. Later
 * writes then only overwrite. A range that is merely preallocated would be converted in the file
 * system's journal at its first write, in the middle of a step.
 */
#include "build-config.h"

#include "aio/aio_store.h"
#include "aio/drive_bench.h"

#include <inttypes.h>
#include <linux/magic.h>
#include <math.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#define DEFAULT_STRIPE_BYTES (2u << 20)
#define MEASURE_BYTES (256u << 20)      /* bytes that are moved to measure a path's speed */
#define MEASURE_FROM_BYTES (1ull << 30) /* smaller stores are not measured */

/* Stands for the files of a store that only plans. */
static struct zinf_aio_file nowhere = {
    .path = "a store that is only planned", .fd = -1, .direct = true, .lasting = true};

static bool label_is_plain(const char *label)
{
    size_t n = label ? strlen(label) : 0;
    return n && n <= 32 &&
           strspn(label, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-") == n;
}

static int check_rates(const struct zinf_store_options *options)
{
    for (int i = 0; options->path_rates && i < options->n_paths; i++)
        if (!(options->path_rates[i] > 0) || isinf(options->path_rates[i]))
            return zinf_fail(-EINVAL, "the bandwidth of %s is %g: it must be above 0",
                             options->paths[i], options->path_rates[i]);
    return 0;
}

static int check_options(const struct zinf_store_options *options)
{
    if (options->plan_only)
        return 0;
    if (options->n_paths < 1 || options->n_paths > ZINF_STORE_PATTERN_MAX)
        return zinf_fail(-EINVAL, "a store on %d paths: between 1 and %d can be used",
                         options->n_paths, ZINF_STORE_PATTERN_MAX);
    if (!label_is_plain(options->label))
        return zinf_fail(-EINVAL, "the label of a store must be 1 to 32 letters, digits, _ or -");
    if (options->stripe_bytes % ZINF_AIO_ALIGN)
        return zinf_fail(-EINVAL, "stripe_bytes is %" PRIu64 ": it must be a multiple of %d",
                         options->stripe_bytes, ZINF_AIO_ALIGN);
    return check_rates(options);
}

/* A folder in memory would fill the RAM that offloading is to save. */
static int refuse_memory_fs(const char *path)
{
    struct statfs info;
    if (statfs(path, &info))
        return 0; /* taking the folder reports the error */
    if (info.f_type != TMPFS_MAGIC && info.f_type != RAMFS_MAGIC)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s lies in memory (tmpfs), not on a drive: set nvme_path to a folder on a "
                     "local drive",
                     path);
}

static int take_path(struct zinf_store_path *path, const char *parent,
                     const struct zinf_store_options *options)
{
    struct stat info;
    int code = options->allow_memory_fs ? 0 : refuse_memory_fs(parent);
    if (!code)
        code = path->folder.path
                   ? 0
                   : zinf_run_folder_take(&path->folder, parent, options->label, options->run);
    if (!code && stat(path->folder.path, &info))
        code = zinf_fail(-errno, "cannot stat %s: %s", path->folder.path, strerror(errno));
    if (!code)
        path->device = info.st_dev;
    return code;
}

int zinf_store_create(struct zinf_store **out, const struct zinf_store_options *options)
{
    int code = check_options(options);
    if (code)
        return code;
    struct zinf_store *store = calloc(1, sizeof *store);
    size_t n_paths = options->plan_only ? 0 : (size_t)options->n_paths;
    if (!store || !(store->paths = calloc(n_paths + 1, sizeof *store->paths)) ||
        !(store->rates = calloc(n_paths + 1, sizeof *store->rates))) {
        zinf_store_destroy(store);
        return zinf_fail(-ENOMEM, "no memory for a store");
    }
    for (size_t i = 0; i < n_paths; i++)
        store->rates[i] = options->path_rates ? options->path_rates[i] : 1;
    store->measure_path = options->path_rates ? NULL : options->measure_path;
    store->allow_memory_fs = options->allow_memory_fs;
    store->stripe_bytes = options->stripe_bytes ? options->stripe_bytes : DEFAULT_STRIPE_BYTES;
    store->checksums = options->checksums;
    store->n_paths = (int)n_paths;
    store->plan_only = options->plan_only;
    if (store->plan_only)
        store->paths[0].file = &nowhere;
    for (int i = 0; i < store->n_paths; i++)
        store->paths[i].folder.lock_fd = -1;
    if (options->run && !options->plan_only)
        code = zinf_store_adopt(store, options);
    for (int i = 0; !code && i < store->n_paths; i++)
        code = take_path(&store->paths[i], options->paths[i], options);
    if (code) {
        zinf_store_destroy(store);
        return code;
    }
    *out = store;
    return 0;
}

/* Closes the files and leaves them to the next process of the run. */
static void leave_files(struct zinf_store *store)
{
    for (int i = 0; i < store->n_paths; i++) {
        zinf_aio_close(store->paths[i].file);
        zinf_run_folder_leave(&store->paths[i].folder);
    }
}

static void close_files(struct zinf_store *store)
{
    for (int i = 0; i < store->n_paths; i++) {
        struct zinf_aio_file *file = store->paths[i].file;
        /* A queue's ring may keep the file open, so the file is emptied to free its space now. */
        if (file && ftruncate(file->fd, 0))
            zinf_log(ZINF_LOG_WARN, "aio: cannot empty %s: %s", file->path, strerror(errno));
        if (file)
            unlink(file->path);
        zinf_aio_close(file);
        store->paths[i].file = NULL;
    }
}

void zinf_store_destroy(struct zinf_store *store)
{
    if (!store)
        return;
    if (store->outlives) {
        leave_files(store);
    } else {
        close_files(store);
        for (int i = store->n_paths; i-- > 0;) /* the first path last: see aio_store.h */
            zinf_run_folder_drop(&store->paths[i].folder);
    }
    zinf_store_close_files(store);
    free((void *)store->sums);
    free(store->extents);
    free(store->rates);
    free(store->paths);
    free(store);
}

/* Measures rates that were not given. */
static int measure_paths(struct zinf_store *store)
{
    struct zinf_aio_bench_rates rates;
    int code = 0;
    if (!store->measure_path || store->n_paths == 1 || store->planned_bytes < MEASURE_FROM_BYTES)
        return 0;
    for (int i = 0; i < store->n_paths && !code; i++) {
        const char *path = store->paths[i].folder.parent;
        code = store->measure_path(path, MEASURE_BYTES, store->allow_memory_fs, &rates);
        store->rates[i] = rates.mixed;
        if (!code)
            zinf_log(ZINF_LOG_INFO, "aio: %s moves %.2f GB/s of reads and writes", path,
                     rates.mixed * 1e-9);
    }
    return code;
}

int zinf_store_allocate(struct zinf_store *store)
{
    if (store->allocated)
        return zinf_fail(-EINVAL, "the store is allocated already");
    if (store->plan_only)
        return zinf_fail(-EINVAL, "the store is a plan only");
    zinf_store_map_extents(store);
    int code = store->adopted ? 0 : measure_paths(store);
    if (!code && !store->adopted)
        zinf_store_map_init(store);
    if (!code && store->checksums)
        code = zinf_store_sums_init(store);
    const bool lasts = store->named && !store->adopted;
    if (!code && lasts)
        code = zinf_store_mark_begun(store);
    if (!code)
        code = store->adopted ? zinf_store_open_adopted(store) : zinf_store_fill(store);
    if (!code && lasts)
        code = zinf_store_mark(store);
    if (code) {
        if (!store->outlives)
            close_files(store);
        free((void *)store->sums);
        store->sums = NULL;
        return code;
    }
    store->allocated = true;
    return 0;
}

/* ---- one call ---- */

static int move_and_wait(struct zinf_aio_request *request)
{
    uint64_t blocks = (request->bytes >> 20) + 1;
    struct zinf_aio_queue_options options = {.n_threads = blocks < 8 ? (uint32_t)blocks : 8};
    struct zinf_aio_queue *queue;
    int code = zinf_aio_queue_create(&queue, &options);
    if (code)
        return code;
    code = zinf_aio_submit(queue, request);
    if (!code && zinf_aio_reap(queue, UINT64_MAX)->result < 0) {
        const char *message;
        zinf_aio_queue_error(queue, &message);
        code = zinf_fail((int)request->result, "%s", message);
    }
    zinf_aio_queue_destroy(queue);
    return code;
}

int zinf_store_read_generation(struct zinf_store *store, zinf_extent extent, uint8_t generation,
                               uint64_t offset, void *memory, uint64_t bytes)
{
    struct zinf_aio_request request = {.op = ZINF_AIO_OP_READ,
                                       .store = store,
                                       .extent = extent,
                                       .generation = generation,
                                       .offset = offset,
                                       .memory = memory,
                                       .bytes = bytes};
    return move_and_wait(&request);
}

int zinf_store_write_generation(struct zinf_store *store, zinf_extent extent, uint8_t generation,
                                uint64_t offset, const void *memory, uint64_t bytes)
{
    struct zinf_aio_request request = {.op = ZINF_AIO_OP_WRITE,
                                       .store = store,
                                       .extent = extent,
                                       .generation = generation,
                                       .offset = offset,
                                       .memory = (void *)memory, /* only read */
                                       .bytes = bytes};
    return move_and_wait(&request);
}

int zinf_store_read(struct zinf_store *store, zinf_extent extent, uint64_t offset, void *memory,
                    uint64_t bytes)
{
    return zinf_store_read_generation(store, extent, 0, offset, memory, bytes);
}

int zinf_store_write(struct zinf_store *store, zinf_extent extent, uint64_t offset,
                     const void *memory, uint64_t bytes)
{
    return zinf_store_write_generation(store, extent, 0, offset, memory, bytes);
}

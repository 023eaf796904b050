/*
 * store_flush: what was written becomes durable. A device flushes for all its files, but each path
 * may be a device of its own, so all are flushed at the same time. After a failure the kernel has
 * forgotten which pages or blocks were lost and a second fdatasync would succeed: the store
 * therefore remembers, and is never used again.
 */
#include "build-config.h"

#include "aio/aio_store.h"

#include <pthread.h>

/* A failure as one atomic number: the path, counted from 1, in its upper half, errno in its lower
 * half. */
static uint64_t failure_of(int path, int code)
{
    return (uint64_t)(path + 1) << 32 | (uint32_t)-code;
}

int zinf_store_failure(const struct zinf_store *store)
{
    uint64_t failure = atomic_load_explicit(&store->failure, memory_order_relaxed);
    if (!failure)
        return 0;
    int code = -(int)(uint32_t)failure;
    return zinf_fail(code,
                     "cannot flush %s: %s (errno %d); what was written there may be lost: see "
                     "dmesg and smartctl, then restore from a checkpoint on another drive",
                     store->paths[(failure >> 32) - 1].file->path, strerror(-code), -code);
}

struct flush {
    const struct zinf_store_path *path;
    pthread_t thread;
    bool started;
    int code;
};

static void *flush_path(void *arg)
{
    struct flush *flush = arg;
    flush->code = zinf_aio_file_flush(flush->path->file);
    return NULL;
}

int zinf_store_flush(struct zinf_store *store)
{
    struct flush flushes[ZINF_STORE_PATTERN_MAX];
    uint64_t sound = 0;
    if (!store->allocated)
        return zinf_fail(-EINVAL, "the store has no space yet: zinf_store_allocate comes first");
    for (int i = store->n_paths; i-- > 0;) {
        flushes[i] = (struct flush){.path = &store->paths[i]};
        /* This thread flushes the first path, and those for which no thread can be started. */
        flushes[i].started =
            i && !pthread_create(&flushes[i].thread, NULL, flush_path, &flushes[i]);
        if (!flushes[i].started)
            flush_path(&flushes[i]);
    }
    for (int i = 0; i < store->n_paths; i++) {
        if (flushes[i].started)
            pthread_join(flushes[i].thread, NULL);
        /* The first failure stays. Relaxed order is enough: no other memory goes with it. */
        if (flushes[i].code)
            atomic_compare_exchange_strong_explicit(&store->failure, &sound,
                                                    failure_of(i, flushes[i].code),
                                                    memory_order_relaxed, memory_order_relaxed);
    }
    return zinf_store_failure(store);
}

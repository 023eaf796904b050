/*
 * aio_threads: pread and pwrite on worker threads, for machines that refuse io_uring. There are no
 * locks. Blocks go to the workers through a ring with one producer. A semaphore counts the blocks
 * that no worker has claimed, so a worker that passed it finds one. It reads the block before it
 * claims the index: if the claim succeeds, the slot was not reused in between. Blocks come back on
 * a stack that workers push to and the owner takes whole, so there is no ABA problem.
 */
#include "build-config.h"

#include "aio/aio_engine.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

struct threads_engine {
    struct zinf_aio_backend base;
    _Atomic(struct zinf_aio_block *) *ring; /* [capacity]; NULL makes a worker end */
    uint32_t capacity;
    uint64_t tail;         /* used by the owner alone */
    _Atomic uint64_t head; /* next index that a worker claims */
    sem_t ready;           /* counts blocks in the ring that are not claimed */
    _Atomic(struct zinf_aio_block *) finished;
    /* at least one post for each push; extra posts only cause a needless wake-up */
    sem_t finished_count;
    uint32_t staged;
    uint32_t n_threads;
    pthread_t threads[];
};

static int64_t move_block(const struct zinf_aio_block *block)
{
    ssize_t n = block->op == ZINF_AIO_OP_READ
                    ? pread(block->file->fd, block->memory, block->bytes, (off_t)block->offset)
                    : pwrite(block->file->fd, block->memory, block->bytes, (off_t)block->offset);
    return n < 0 ? -errno : n;
}

static void push_finished(struct threads_engine *threads, struct zinf_aio_block *block)
{
    struct zinf_aio_block *top = atomic_load_explicit(&threads->finished, memory_order_relaxed);
    /* Release: the owner that takes the stack sees the result and the data. */
    do
        block->next = top;
    while (!atomic_compare_exchange_weak_explicit(&threads->finished, &top, block,
                                                  memory_order_release, memory_order_relaxed));
    sem_post(&threads->finished_count);
}

/* Takes a block from the ring. The semaphore has been passed, so there is at least one. The slot of
 * index head is reused only when more than capacity blocks are under way, and so not before head
 * has moved on. A worker that has read the slot too late therefore fails to exchange head. */
static struct zinf_aio_block *claim(struct threads_engine *threads)
{
    struct zinf_aio_block *block;
    uint64_t head = atomic_load_explicit(&threads->head, memory_order_relaxed);
    do
        block =
            atomic_load_explicit(&threads->ring[head % threads->capacity], memory_order_relaxed);
    while (!atomic_compare_exchange_weak_explicit(&threads->head, &head, head + 1,
                                                  memory_order_acq_rel, memory_order_relaxed));
    return block;
}

static void *worker(void *arg)
{
    struct threads_engine *threads = arg;
    for (;;) {
        while (sem_wait(&threads->ready))
            ; /* EINTR */
        struct zinf_aio_block *block = claim(threads);
        if (!block)
            return NULL;
        block->result = move_block(block);
        push_finished(threads, block);
    }
}

static void put(struct threads_engine *threads, struct zinf_aio_block *block)
{
    /* Relaxed: the semaphore publishes it. */
    atomic_store_explicit(&threads->ring[threads->tail++ % threads->capacity], block,
                          memory_order_relaxed);
}

static void threads_destroy(struct zinf_aio_backend *engine)
{
    struct threads_engine *threads = (struct threads_engine *)engine;
    for (uint32_t i = 0; i < threads->n_threads; i++)
        put(threads, NULL);
    for (uint32_t i = 0; i < threads->n_threads; i++)
        sem_post(&threads->ready);
    for (uint32_t i = 0; i < threads->n_threads; i++)
        pthread_join(threads->threads[i], NULL);
    sem_destroy(&threads->ready);
    sem_destroy(&threads->finished_count);
    free((void *)threads->ring);
    free(threads);
}

/* Workers block signals; handlers run in the program's own threads. */
static int start_workers(struct threads_engine *threads, uint32_t n)
{
    sigset_t all, before;
    int code = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (!code && threads->n_threads < n) {
        code = pthread_create(&threads->threads[threads->n_threads], NULL, worker, threads);
        threads->n_threads += !code;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return -code;
}

static int threads_create(struct zinf_aio_backend **out,
                          const struct zinf_aio_queue_options *options)
{
    uint32_t n = options->n_threads;
    struct threads_engine *threads = calloc(1, sizeof *threads + n * sizeof threads->threads[0]);
    if (!threads)
        return zinf_fail(-ENOMEM, "no memory for %u I/O threads", n);
    threads->base.ops = &zinf_aio_threads_ops;
    /* destroy finds room for its NULLs, because nothing is in flight then. */
    threads->capacity = options->queue_depth > n ? options->queue_depth : n;
    threads->ring = calloc(threads->capacity, sizeof *threads->ring);
    sem_init(&threads->ready, 0, 0);
    sem_init(&threads->finished_count, 0, 0);
    if (!threads->ring) {
        threads_destroy(&threads->base);
        return zinf_fail(-ENOMEM, "no memory for %u I/O threads", n);
    }
    int code = start_workers(threads, n);
    if (code) {
        uint32_t started = threads->n_threads;
        threads_destroy(&threads->base);
        return zinf_fail(code, "only %u of %u I/O threads started (%s): lower aio.thread_count",
                         started, n, strerror(-code));
    }
    *out = &threads->base;
    return 0;
}

static int threads_register(struct zinf_aio_backend *engine, void *base, uint64_t bytes)
{
    (void)engine, (void)base, (void)bytes;
    return 0; /* pread needs no pinned memory */
}

static void threads_stage(struct zinf_aio_backend *engine, struct zinf_aio_block *block)
{
    struct threads_engine *threads = (struct threads_engine *)engine;
    put(threads, block);
    threads->staged++;
}

static int threads_flush(struct zinf_aio_backend *engine)
{
    struct threads_engine *threads = (struct threads_engine *)engine;
    for (; threads->staged; threads->staged--)
        sem_post(&threads->ready);
    return 0;
}

/* Waits for a finished block; false: the deadline has passed. */
static bool wait_finished(struct threads_engine *threads, uint64_t deadline)
{
    struct timespec until = {.tv_sec = (time_t)(deadline / 1000000000u),
                             .tv_nsec = (long)(deadline % 1000000000u)};
    int failed;
    do
        failed = sem_clockwait(&threads->finished_count, CLOCK_MONOTONIC, &until);
    while (failed && errno == EINTR);
    return !failed;
}

static int threads_collect(struct zinf_aio_backend *engine, uint64_t timeout_ns,
                           struct zinf_aio_block **done)
{
    struct threads_engine *threads = (struct threads_engine *)engine;
    threads_flush(engine);
    uint64_t deadline = timeout_ns ? zinf_now_ns() + timeout_ns : 0;
    bool counted = false;
    for (;;) {
        /* Acquire pairs with the release in push_finished. */
        *done = atomic_exchange_explicit(&threads->finished, NULL, memory_order_acquire);
        if (*done || !deadline)
            break;
        counted = wait_finished(threads, deadline);
        if (!counted)
            deadline = 0;
    }
    /* The semaphore also counts blocks that were taken without waiting. */
    for (struct zinf_aio_block *block = *done; block; block = block->next) {
        if (!counted)
            sem_trywait(&threads->finished_count);
        counted = false;
    }
    return 0;
}

const struct zinf_aio_engine_ops zinf_aio_threads_ops = {
    .engine = ZINF_AIO_ENGINE_THREADS,
    .create = threads_create,
    .destroy = threads_destroy,
    .register_memory = threads_register,
    .stage = threads_stage,
    .flush = threads_flush,
    .collect = threads_collect,
};

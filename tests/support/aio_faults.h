/*
 * aio_faults: an engine around an engine that spoils transfers as a seed says, so that the queue
 * above is tested with every engine below. A fault that a drive would repeat (EIO, ENOSPC) stays
 * with its block when the block is submitted again; the others are drawn anew each time.
 * `.around = {AIO_FAULTS(&faults)}` in a queue's options; NULL: no faults.
 */
#ifndef ZINF_TESTS_AIO_FAULTS_H
#define ZINF_TESTS_AIO_FAULTS_H

#include "aio/aio_engine.h"
#include "base/random.h"

#include <stdlib.h>
#include <time.h>

#define REORDER_NS 300000 /* with reorder each block is held back up to this long */

/* Each transfer of a block draws one. Rates are per million. */
struct zinf_aio_faults {
    uint64_t seed;
    uint32_t short_ppm;  /* the kernel moves only a part: must be invisible to the caller */
    uint32_t eio_ppm;    /* the block fails with EIO */
    uint32_t enospc_ppm; /* a write fails with ENOSPC */
    uint32_t delay_ppm;  /* completion is held back by delay_us */
    uint32_t delay_us;
    uint32_t flip_ppm; /* one bit of the data read is wrong: checksums must find it */
    bool reorder;      /* completions come back in a random order */
};
#define AIO_FAULTS(faults)                                                                         \
    (struct zinf_aio_around)                                                                       \
    {                                                                                              \
        zinf_aio_faults_wrap, faults                                                               \
    }

enum fault_kind {
    FAULT_SHORT,
    FAULT_SHORT_SIZE,
    FAULT_EIO,
    FAULT_ENOSPC,
    FAULT_DELAY,
    FAULT_FLIP,
    FAULT_FLIP_PLACE,
    FAULT_ORDER,
};

/* A finished block that is not yet shown. */
struct held {
    struct zinf_aio_block *block;
    uint64_t due_ns;
};

struct faults_engine {
    struct zinf_aio_backend base;
    struct zinf_aio_backend *inner;
    struct zinf_aio_faults faults;
    uint64_t draws;
    uint32_t inside; /* blocks in the inner engine */
    uint32_t n_held;
    struct held held[]; /* [queue_depth] */
};

static inline uint32_t fault_draw(struct faults_engine *faults, enum fault_kind kind)
{
    uint64_t n = faults->draws++;
    uint32_t counter[4] = {(uint32_t)n, (uint32_t)(n >> 32), (uint32_t)kind, 0}, out[4];
    zinf_philox(counter, faults->faults.seed, out);
    return out[0];
}

static inline bool fault_strikes(struct faults_engine *faults, enum fault_kind kind,
                                 uint32_t per_million)
{
    return per_million && fault_draw(faults, kind) % 1000000u < per_million;
}

static inline void fault_hold(struct faults_engine *faults, struct zinf_aio_block *block)
{
    uint64_t due = 0;
    if (faults->faults.reorder)
        due = zinf_now_ns() + fault_draw(faults, FAULT_ORDER) % REORDER_NS;
    if (fault_strikes(faults, FAULT_DELAY, faults->faults.delay_ppm))
        due = zinf_now_ns() + 1000ull * faults->faults.delay_us;
    faults->held[faults->n_held++] = (struct held){block, due};
}

/* A short transfer moves nothing and says EAGAIN or EINTR, or moves only the first part. */
static inline void fault_stage_short(struct faults_engine *faults, struct zinf_aio_block *block)
{
    uint32_t size = fault_draw(faults, FAULT_SHORT_SIZE);
    uint32_t units = block->bytes / ZINF_AIO_ALIGN;
    uint32_t moved = units > 1 ? (size >> 3) % units * ZINF_AIO_ALIGN : 0;
    if (!moved) {
        block->result = size & 1 ? -EAGAIN : -EINTR;
        fault_hold(faults, block);
        return;
    }
    block->cut_bytes = block->bytes - moved;
    block->bytes = moved;
    faults->inside++;
    faults->inner->ops->stage(faults->inner, block);
}

static inline void faults_stage(struct zinf_aio_backend *engine, struct zinf_aio_block *block)
{
    struct faults_engine *faults = (struct faults_engine *)engine;
    if (!block->injected) {
        if (fault_strikes(faults, FAULT_EIO, faults->faults.eio_ppm))
            block->injected = EIO;
        else if (block->op == ZINF_AIO_OP_WRITE &&
                 fault_strikes(faults, FAULT_ENOSPC, faults->faults.enospc_ppm))
            block->injected = ENOSPC;
    }
    if (block->injected) {
        block->result = -block->injected;
        fault_hold(faults, block);
    } else if (fault_strikes(faults, FAULT_SHORT, faults->faults.short_ppm)) {
        fault_stage_short(faults, block);
    } else {
        faults->inside++;
        faults->inner->ops->stage(faults->inner, block);
    }
}

static inline int faults_flush(struct zinf_aio_backend *engine)
{
    struct faults_engine *faults = (struct faults_engine *)engine;
    return faults->inner->ops->flush(faults->inner);
}

static inline void fault_flip_bit(struct faults_engine *faults, struct zinf_aio_block *block)
{
    if (block->op != ZINF_AIO_OP_READ || block->result <= 0 ||
        !fault_strikes(faults, FAULT_FLIP, faults->faults.flip_ppm))
        return;
    uint64_t bit =
        ((uint64_t)fault_draw(faults, FAULT_FLIP_PLACE) << 16) % (8 * (uint64_t)block->result);
    bit += fault_draw(faults, FAULT_FLIP_PLACE) % 8;
    block->memory[bit / 8 % (uint64_t)block->result] ^= (char)(1 << bit % 8);
}

/* Some short transfers also end off any alignment, as they may where a device fails. */
static inline void fault_end_short(struct faults_engine *faults, struct zinf_aio_block *block)
{
    block->bytes += block->cut_bytes;
    block->cut_bytes = 0;
    if (block->result > 100 && fault_draw(faults, FAULT_SHORT_SIZE) % 4 == 0)
        block->result -= 100;
}

static inline int fault_collect_inner(struct faults_engine *faults, uint64_t timeout_ns)
{
    struct zinf_aio_block *done, *next;
    int code = faults->inner->ops->collect(faults->inner, timeout_ns, &done);
    for (; done; done = next) {
        next = done->next;
        faults->inside--;
        if (done->cut_bytes)
            fault_end_short(faults, done);
        fault_flip_bit(faults, done);
        fault_hold(faults, done);
    }
    return code;
}

/* Takes out the held blocks that are due: all of them in order, or with reorder one at random. */
static inline struct zinf_aio_block *fault_release(struct faults_engine *faults)
{
    struct zinf_aio_block *done = NULL;
    uint64_t now = zinf_now_ns();
    uint32_t n = faults->n_held;
    uint32_t start = faults->faults.reorder && n ? fault_draw(faults, FAULT_ORDER) % n : 0;
    for (uint32_t i = 0; i < n; i++) {
        struct held *held = &faults->held[(start + i) % n];
        if (held->due_ns > now)
            continue;
        held->block->next = done;
        done = held->block;
        held->block = NULL;
        if (faults->faults.reorder)
            break;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; i < n; i++)
        if (faults->held[i].block)
            faults->held[kept++] = faults->held[i];
    faults->n_held = kept;
    return done;
}

static inline uint64_t fault_next_due(const struct faults_engine *faults)
{
    uint64_t due = UINT64_MAX;
    for (uint32_t i = 0; i < faults->n_held; i++)
        if (faults->held[i].due_ns < due)
            due = faults->held[i].due_ns;
    return due;
}

static inline int faults_collect(struct zinf_aio_backend *engine, uint64_t timeout_ns,
                                 struct zinf_aio_block **done)
{
    struct faults_engine *faults = (struct faults_engine *)engine;
    uint64_t deadline = zinf_now_ns() + timeout_ns;
    *done = NULL;
    for (;;) {
        int code = fault_collect_inner(faults, 0);
        if (code)
            return code;
        uint64_t now = zinf_now_ns();
        uint64_t until = fault_next_due(faults);
        if (until <= now)
            *done = fault_release(faults);
        if (*done || now >= deadline || (!faults->inside && !faults->n_held))
            return 0;
        if (until > deadline)
            until = deadline;
        if (faults->inside) {
            code = fault_collect_inner(faults, until - now);
            if (code)
                return code;
        } else {
            struct timespec pause = {.tv_sec = (time_t)((until - now) / 1000000000u),
                                     .tv_nsec = (long)((until - now) % 1000000000u)};
            nanosleep(&pause, NULL);
        }
    }
}

static inline void faults_destroy(struct zinf_aio_backend *engine)
{
    struct faults_engine *faults = (struct faults_engine *)engine;
    faults->inner->ops->destroy(faults->inner);
    free(faults);
}

static inline int faults_register(struct zinf_aio_backend *engine, void *base, uint64_t bytes)
{
    struct faults_engine *faults = (struct faults_engine *)engine;
    return faults->inner->ops->register_memory(faults->inner, base, bytes);
}

static const struct zinf_aio_engine_ops faults_ops = {
    .destroy = faults_destroy,
    .register_memory = faults_register,
    .stage = faults_stage,
    .flush = faults_flush,
    .collect = faults_collect,
};

static inline int zinf_aio_faults_wrap(struct zinf_aio_backend **engine,
                                       const struct zinf_aio_queue_options *options,
                                       const void *wanted)
{
    struct faults_engine *faults =
        wanted ? calloc(1, sizeof *faults + options->queue_depth * sizeof faults->held[0]) : NULL;
    if (!faults)
        return wanted ? zinf_fail(-ENOMEM, "no memory for the fault engine") : 0;
    faults->base.ops = &faults_ops;
    faults->faults = *(const struct zinf_aio_faults *)wanted;
    faults->inner = *engine;
    *engine = &faults->base;
    return 0;
}

#endif

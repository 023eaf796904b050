/*
 * paced_drive: an engine around an engine, which holds blocks back until a drive of set rates has
 * ended them. The drive is a fluid: two lines of transfers, reads and writes, whose first are
 * worked off at rates that depend on whether the other line is empty. Nobody works for it: each
 * call brings it up to the present.
 */
#include "build-config.h"

#include "bench/paced_drive.h"
#include "aio/aio_engine.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#define LEAST_BYTES 0.5 /* what rounding leaves of a transfer is nothing */

/* A block from when it is staged until it is handed back. */
struct transfer {
    struct zinf_aio_block *block; /* NULL: not in use */
    struct transfer *next;        /* in its line */
    double left;                  /* bytes that the drive has still to move */
    uint64_t due_ns;              /* when it may be handed back; 0: the drive is not done with it */
    bool moved;                   /* the inner engine is */
};

struct line {
    struct transfer *first, *last;
    double rate, beside; /* bytes a second alone; share of that beside the other line */
    double work;         /* bytes that were moved */
};

/* The lock guards all but the rates. */
struct zinf_paced_drive {
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a line has begun or ended: the other's rate is another now */
    struct line lines[2];   /* by enum zinf_aio_op */
    uint64_t begin_ns, latency_ns;
    double now; /* seconds since begin_ns that have been worked off */
};

struct paced_engine {
    struct zinf_aio_backend base;
    struct zinf_aio_backend *inner;
    struct zinf_paced_drive *drive;
    uint32_t depth, inside;      /* inside: blocks that the inner engine has */
    struct transfer transfers[]; /* [depth] */
};

/* ---- the drive; all under its lock ---- */

static double rate_of(const struct zinf_paced_drive *drive, int op)
{
    const struct line *line = &drive->lines[op];
    return drive->lines[!op].first ? line->rate * line->beside : line->rate;
}

static uint64_t clock_of(const struct zinf_paced_drive *drive, double seconds)
{
    return drive->begin_ns + (uint64_t)(seconds * 1e9) + drive->latency_ns;
}

/* Until the first of a line ends, or until `until`. */
static void work_off(struct zinf_paced_drive *drive, double until)
{
    double rate[2], step = until - drive->now;
    for (int op = 0; op < 2; op++) {
        const struct transfer *first = drive->lines[op].first;
        rate[op] = rate_of(drive, op);
        if (first && first->left < rate[op] * step)
            step = first->left / rate[op];
    }
    drive->now += step;
    for (int op = 0; op < 2; op++) {
        struct line *line = &drive->lines[op];
        struct transfer *first = line->first;
        if (!first)
            continue;
        first->left -= rate[op] * step;
        line->work += rate[op] * step;
        if (first->left > LEAST_BYTES)
            continue;
        first->due_ns = clock_of(drive, drive->now);
        line->first = first->next;
    }
}

static void bring_up(struct zinf_paced_drive *drive, uint64_t now_ns)
{
    double until = (double)(now_ns - drive->begin_ns) * 1e-9;
    bool was[2] = {drive->lines[0].first, drive->lines[1].first};
    while (drive->now < until && (drive->lines[0].first || drive->lines[1].first))
        work_off(drive, until);
    if (drive->now < until)
        drive->now = until;
    if (was[0] != (drive->lines[0].first != NULL) || was[1] != (drive->lines[1].first != NULL))
        pthread_cond_broadcast(&drive->changed);
}

static void append(struct zinf_paced_drive *drive, struct transfer *t)
{
    struct line *line = &drive->lines[t->block->op];
    t->next = NULL;
    if (line->first)
        line->last->next = t;
    else
        line->first = t;
    if (line->first == t)
        pthread_cond_broadcast(&drive->changed);
    line->last = t;
}

/* ---- the engine ---- */

static struct transfer *transfer_of(struct paced_engine *paced, const struct zinf_aio_block *block)
{
    struct transfer *t = paced->transfers;
    while (t->block != block)
        t++;
    return t;
}

static void paced_stage(struct zinf_aio_backend *engine, struct zinf_aio_block *block)
{
    struct paced_engine *paced = (struct paced_engine *)engine;
    struct transfer *t = transfer_of(paced, NULL);
    *t = (struct transfer){.block = block, .left = (double)block->bytes};
    pthread_mutex_lock(&paced->drive->lock);
    bring_up(paced->drive, zinf_now_ns());
    append(paced->drive, t);
    pthread_mutex_unlock(&paced->drive->lock);
    paced->inside++;
    paced->inner->ops->stage(paced->inner, block);
}

static int paced_flush(struct zinf_aio_backend *engine)
{
    struct paced_engine *paced = (struct paced_engine *)engine;
    return paced->inner->ops->flush(paced->inner);
}

static int collect_inner(struct paced_engine *paced, uint64_t timeout_ns)
{
    struct zinf_aio_block *done = NULL;
    int code = paced->inner->ops->collect(paced->inner, timeout_ns, &done);
    for (; done; done = done->next) {
        transfer_of(paced, done)->moved = true;
        paced->inside--;
    }
    return code;
}

/* Those that both the inner engine and the drive are done with. Under the drive's lock. */
static struct zinf_aio_block *take_due(struct paced_engine *paced, uint64_t now_ns)
{
    struct zinf_aio_block *done = NULL;
    for (uint32_t i = 0; i < paced->depth; i++) {
        struct transfer *t = &paced->transfers[i];
        if (!t->block || !t->moved || !t->due_ns || t->due_ns > now_ns)
            continue;
        t->block->next = done;
        done = t->block;
        t->block = NULL;
    }
    return done;
}

/* When the next of the engine's transfers will be due if neither line begins or ends before; also
 * of those that the inner engine still has. Under the drive's lock. UINT64_MAX: there is none. */
static uint64_t next_due(const struct paced_engine *paced)
{
    const struct zinf_paced_drive *drive = paced->drive;
    const struct transfer *own = paced->transfers, *end = own + paced->depth;
    uint64_t due = UINT64_MAX;
    for (const struct transfer *t = own; t < end; t++)
        if (t->block && t->due_ns && t->due_ns < due)
            due = t->due_ns;
    for (int op = 0; op < 2; op++) {
        double left = 0;
        const struct transfer *t = drive->lines[op].first;
        for (; t; t = t->next) {
            left += t->left;
            if (t >= own && t < end)
                break;
        }
        uint64_t at = t ? clock_of(drive, drive->now + left / rate_of(drive, op)) + 1 : UINT64_MAX;
        due = at < due ? at : due;
    }
    return due;
}

/* Until then, or until a line has begun or ended. Under the drive's lock. */
static void wait_until(struct zinf_paced_drive *drive, uint64_t until_ns)
{
    struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000u),
                          .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(&drive->changed, &drive->lock, &at);
}

static int paced_collect(struct zinf_aio_backend *engine, uint64_t timeout_ns,
                         struct zinf_aio_block **done)
{
    struct paced_engine *paced = (struct paced_engine *)engine;
    struct zinf_paced_drive *drive = paced->drive;
    uint64_t now = zinf_now_ns();
    uint64_t deadline = timeout_ns > UINT64_MAX / 2 ? UINT64_MAX / 2 : now + timeout_ns;
    *done = NULL;
    for (;;) {
        int code = collect_inner(paced, 0);
        pthread_mutex_lock(&drive->lock);
        now = zinf_now_ns();
        bring_up(drive, now);
        *done = take_due(paced, now);
        uint64_t until = next_due(paced);
        bool over = code || *done || now >= deadline || until == UINT64_MAX;
        until = until < deadline ? until : deadline;
        if (!over && !paced->inside && until > now)
            wait_until(drive, until);
        pthread_mutex_unlock(&drive->lock);
        if (over)
            return code;
        if (paced->inside) /* which may take longer than the drive */
            code = collect_inner(paced, until > now ? until - now : deadline - now);
        if (code)
            return code;
    }
}

static void paced_destroy(struct zinf_aio_backend *engine)
{
    struct paced_engine *paced = (struct paced_engine *)engine;
    paced->inner->ops->destroy(paced->inner);
    free(paced);
}

static int paced_register(struct zinf_aio_backend *engine, void *base, uint64_t bytes)
{
    struct paced_engine *paced = (struct paced_engine *)engine;
    return paced->inner->ops->register_memory(paced->inner, base, bytes);
}

static const struct zinf_aio_engine_ops paced_ops = {
    .destroy = paced_destroy,
    .register_memory = paced_register,
    .stage = paced_stage,
    .flush = paced_flush,
    .collect = paced_collect,
};

int zinf_paced_drive_wrap(struct zinf_aio_backend **engine,
                          const struct zinf_aio_queue_options *options, const void *drive)
{
    struct paced_engine *paced =
        calloc(1, sizeof *paced + options->queue_depth * sizeof paced->transfers[0]);
    if (!paced)
        return zinf_fail(-ENOMEM, "no memory for a paced engine");
    paced->base.ops = &paced_ops;
    paced->drive = (struct zinf_paced_drive *)drive;
    paced->depth = options->queue_depth;
    paced->inner = *engine;
    *engine = &paced->base;
    return 0;
}

/* ---- life ---- */

static bool is_share(double share)
{
    return share >= 0 && share <= 1;
}

static int check_rates(const struct zinf_drive_rates *r)
{
    bool good = r->read_bytes > 0 && isfinite(r->read_bytes) && r->write_bytes > 0 &&
                isfinite(r->write_bytes) && r->latency_seconds >= 0 && r->latency_seconds < 1e6;
    if (!good || !is_share(r->read_beside_write) || !is_share(r->write_beside_read))
        return zinf_fail(-EINVAL,
                         "a drive that reads %g bytes a second (%g beside writes) and writes %g "
                         "(%g beside reads): rates must be above 0, shares at most 1",
                         r->read_bytes, r->read_beside_write, r->write_bytes, r->write_beside_read);
    return 0;
}

int zinf_paced_drive_create(struct zinf_paced_drive **out, const struct zinf_drive_rates *rates)
{
    int code = check_rates(rates);
    struct zinf_paced_drive *drive = code ? NULL : calloc(1, sizeof *drive);
    *out = drive;
    if (!drive)
        return code ? code : zinf_fail(-ENOMEM, "no memory for a drive of set rates");
    pthread_condattr_t monotonic; /* as zinf_now_ns is */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&drive->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&drive->lock, NULL);
    drive->lines[ZINF_AIO_OP_READ].rate = rates->read_bytes;
    drive->lines[ZINF_AIO_OP_READ].beside =
        rates->read_beside_write > 0 ? rates->read_beside_write : 1;
    drive->lines[ZINF_AIO_OP_WRITE].rate = rates->write_bytes;
    drive->lines[ZINF_AIO_OP_WRITE].beside =
        rates->write_beside_read > 0 ? rates->write_beside_read : 1;
    drive->latency_ns = (uint64_t)(rates->latency_seconds * 1e9);
    drive->begin_ns = zinf_now_ns();
    return 0;
}

void zinf_paced_drive_destroy(struct zinf_paced_drive *drive)
{
    if (!drive)
        return;
    pthread_cond_destroy(&drive->changed);
    pthread_mutex_destroy(&drive->lock);
    free(drive);
}

void zinf_paced_drive_work(struct zinf_paced_drive *drive, double seconds[2])
{
    pthread_mutex_lock(&drive->lock);
    bring_up(drive, zinf_now_ns());
    for (int op = 0; op < 2; op++)
        seconds[op] = drive->lines[op].work / drive->lines[op].rate;
    pthread_mutex_unlock(&drive->lock);
}

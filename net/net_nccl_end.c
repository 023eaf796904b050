/*
 * net_nccl_end: how a communicator ends: in order, where all do, or aborted. NCCL's own calls may
 * block in an abort, which waits for its other ranks' on this host, and one of them may be what has
 * failed. So an abort has a thread, and who asks for it waits only so long.
 */
#include "net/net_nccl.h"

#include <pthread.h>
#include <stdlib.h>

#define CLOSE_NS 2000000000u /* for NCCL to end in order, or by an abort */
#define SLEEP_NS 200000      /* between looks */

/* ---- aborts ---- */

/* Of its thread and of who waits: the last one frees it. */
struct ending {
    const struct nccl_calls *nccl;
    struct nccl_comm *comm;
    struct zinf_link_device device;
    pthread_mutex_t lock; /* guards the rest */
    pthread_cond_t over;
    bool begun, done, left; /* the queue is not needed any more; the call has returned; nobody
                             * waits any more */
};

static void free_ending(struct ending *e)
{
    pthread_mutex_destroy(&e->lock);
    pthread_cond_destroy(&e->over);
    free(e);
}

static void *run_abort(void *argument)
{
    struct ending *e = argument;
    e->device.stream(e->device.queue); /* the GPU is a thread's own */
    pthread_mutex_lock(&e->lock);
    e->begun = true;
    pthread_cond_signal(&e->over);
    pthread_mutex_unlock(&e->lock);
    e->nccl->CommAbort(e->comm);
    pthread_mutex_lock(&e->lock);
    e->done = true;
    bool left = e->left;
    pthread_cond_signal(&e->over);
    pthread_mutex_unlock(&e->lock);
    if (left)
        free_ending(e);
    return NULL;
}

static struct ending *create_ending(const struct zinf_link *link)
{
    struct ending *e = calloc(1, sizeof *e);
    pthread_condattr_t monotonic;
    if (!e)
        return NULL;
    e->nccl = link->nccl;
    e->comm = link->comm;
    e->device = link->device;
    pthread_mutex_init(&e->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->over, &monotonic);
    pthread_condattr_destroy(&monotonic);
    return e;
}

/* Until the call has returned, but not for long. */
static void await_ending(struct ending *e)
{
    uint64_t end = net_now_ns() + CLOSE_NS;
    struct timespec until = {(time_t)(end / 1000000000u), (long)(end % 1000000000u)};
    int late = 0;
    pthread_mutex_lock(&e->lock);
    while (!e->begun)
        pthread_cond_wait(&e->over, &e->lock);
    while (!e->done && !late)
        late = pthread_cond_timedwait(&e->over, &e->lock, &until);
    bool done = e->done;
    e->left = true;
    pthread_mutex_unlock(&e->lock);
    if (done)
        free_ending(e);
}

/* What the aborted communicator left in the queue, but not for long: NCCL's kernels look at the
 * abort when they next look at anything. A GPU that fails does nothing any more. */
static void await_queue(struct zinf_link *link, uint64_t end)
{
    static const struct timespec time = {0, SLEEP_NS};
    while (link->device.poll(link->device.queue) == 0 && net_now_ns() < end)
        nanosleep(&time, NULL);
}

void link_abort(struct zinf_link *link)
{
    const uint64_t end = net_now_ns() + CLOSE_NS;
    pthread_t thread;
    struct ending *e = link->comm ? create_ending(link) : NULL;
    if (e && !pthread_create(&thread, NULL, run_abort, e)) {
        pthread_detach(thread);
        await_ending(e);
    } else if (e) {
        free_ending(e);
        link->nccl->CommAbort(link->comm);
    }
    if (link->comm)
        await_queue(link, end);
    link->comm = NULL;
}

/* ---- in order ---- */

/* From NCCL 2.28 on, this may return before all is done on the GPU, and then the queue and the
 * memory go. */
static bool destroy(struct zinf_link *link)
{
    return link->nccl->CommDestroy(link->comm) == NCCL_SUCCESS &&
           link->device.finish(link->device.queue) == 0;
}

/* In order, where all do; but nobody waits for ever. */
static bool finalize(struct zinf_link *link)
{
    static const struct timespec time = {0, SLEEP_NS};
    uint64_t end = net_now_ns() + CLOSE_NS;
    int state = link->nccl->CommFinalize(link->comm);
    while (is_fine(state) && net_now_ns() < end) {
        if (link->nccl->CommGetAsyncError(link->comm, &state) != NCCL_SUCCESS)
            return false;
        if (state == NCCL_SUCCESS)
            return destroy(link);
        nanosleep(&time, NULL);
    }
    return false;
}

void zinf_link_close(struct zinf_link *link)
{
    if (!link)
        return;
    bool fine = !link->net->failed && !link->net->told;
    if (link->comm && fine && finalize(link))
        link->comm = NULL;
    link_abort(link);
    free(link->rolls);
    free(link->parts);
    free(link);
}

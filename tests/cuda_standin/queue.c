/*
 * queue: the stand-in's streams and events. A stream is a list of work; nothing runs before
 * something waits. Then, until that something has happened, one of the streams whose first piece
 * of work may run is chosen at random, either anew for each piece or by a ranking drawn for the
 * whole wait, in which one stream can run far ahead of another.
 *
 * Where the thread sanitizer watches (order.h), work may run at once instead, in the order in
 * which it is enqueued: results are right whatever is forgotten, but each access is a stream's
 * own, and the sanitizer reports every pair that no event orders.
 */
#include "order.h"
#include "standin.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct work {
    struct work *next;
    standin_work *run;        /* NULL: waits for event to reach version */
    struct CUevent_st *event; /* with run NULL */
    uint64_t version;
    bool records;                      /* with event: sets its version instead */
    const struct standin_steps *steps; /* with run NULL: done in steps, on subject */
    void *subject;
    void *called; /* what its caller had done, for the sanitizer */
    _Alignas(16) char payload[];
};

struct CUstream_st {
    struct CUstream_st *next;
    struct work *first, **last;
    uint32_t rank;
    bool alive;
    int gpu;
    struct order_stream *order; /* as the sanitizer knows it; NULL: not watched */
};

struct CUevent_st {
    struct CUevent_st *next;
    uint64_t recorded, reached;
    double at; /* when it was reached */
    bool alive, timed;
    int gpu;
    void *token; /* of the last record */
};

/* cudaStreamLegacy: where blocking copies run; the device's own streams do not order with it. */
static struct CUstream_st legacy = {NULL, NULL, &legacy.first, 0, true, -1, NULL};
static struct CUstream_st *streams = &legacy;
static struct CUevent_st *events;
static int waits, skip_first, skip_end;

void standin_queues_reset(void)
{
    if (standin_options()->at_once && !legacy.order)
        legacy.order = order_open();
    for (struct CUstream_st *s = streams; s; s = s->next) {
        while (s->first) {
            struct work *next = s->first->next;
            order_drop(s->first->called);
            order_give(s->first);
            s->first = next;
        }
        s->last = &s->first;
    }
    waits = skip_first = skip_end = 0;
}

void standin_skip_wait(int number)
{
    STANDIN_CALL;
    standin_skip_waits(number, number ? 1 : 0);
}

void standin_skip_waits(int first, int count)
{
    STANDIN_CALL;
    skip_first = waits + first;
    skip_end = skip_first + count;
}

int standin_waits(void)
{
    STANDIN_CALL;
    return waits;
}

/* ---- running ---- */

static bool may_run(const struct CUstream_st *stream)
{
    const struct work *w = stream->first;
    if (w && w->steps)
        return w->steps->can(w->subject);
    return w && (w->run || w->records || w->event->reached >= w->version);
}

/* The stream frees what it alone has read. */
static void run_and_free(void *argument)
{
    struct work *w = argument;
    w->run(w->payload);
    order_give(w);
}

static void run_first(struct CUstream_st *stream)
{
    struct work *w = stream->first;
    order_wait(stream->order, w->called);
    if (w->steps && !w->steps->step(w->subject, stream->order))
        return;
    if (!(stream->first = w->next))
        stream->last = &stream->first;
    order_drop(w->called);
    if (w->run) {
        order_run(stream->order, run_and_free, w);
        return;
    }
    if (w->steps) {
        order_give(w);
        return;
    }
    if (!w->records)
        order_wait(stream->order, w->event->token);
    else if (w->event->reached < w->version)
        w->event->reached = w->version;
    if (w->records) {
        w->event->at = standin_now();
        order_record(stream->order, &w->event->token);
    }
    order_give(w);
}

static struct CUstream_st *choose(bool ranked)
{
    struct CUstream_st *chosen = NULL;
    uint32_t n = 0;
    for (struct CUstream_st *s = streams; s; s = s->next) {
        if (!may_run(s))
            continue;
        n++;
        if (!chosen || (ranked ? s->rank > chosen->rank : standin_random(n) == 0))
            chosen = s;
    }
    return chosen;
}

/* Nothing can run, and something waits: for another thread's part of a collective, perhaps. */
static bool others_may_come(uint64_t *since)
{
    if (standin_nccl_is_deadlock())
        return true; /* it has been reported, and is over */
    bool pending = standin_nccl_waits();
    standin_memory_close();
    bool may_come = pending && standin_await_others(since);
    standin_memory_open();
    if (!may_come)
        standin_fault(cudaErrorIllegalAddress, "a wait that nothing can end%s",
                      pending ? ": not all ranks come to a collective" : "");
    return may_come;
}

/* Runs work until the stream is empty, the event has reached version, or (both NULL) all is done.
 */
static void run_until(const struct CUstream_st *stream, const struct CUevent_st *event,
                      uint64_t version)
{
    bool ranked = standin_random(2);
    uint64_t since = 0;
    for (struct CUstream_st *s = streams; s; s = s->next)
        s->rank = standin_random(1u << 30);
    standin_memory_open();
    for (;;) {
        if (stream ? !stream->first : event ? event->reached >= version : false)
            break;
        struct CUstream_st *next = choose(ranked);
        if (next)
            run_first(next);
        else if (!(stream || event) || !others_may_come(&since))
            break;
    }
    standin_memory_close();
}

/* The host's thread goes on after all that a stream has done. */
static void host_follows(const struct CUstream_st *stream)
{
    void *token = NULL;
    order_record(stream->order, &token);
    order_wait_host(token);
    order_drop(token);
}

void standin_run_all(void)
{
    run_until(NULL, NULL, 0);
    for (const struct CUstream_st *s = streams; s; s = s->next)
        host_follows(s);
}

/* What was just enqueued, where nothing runs late; but for what waits for another's part of a
 * collective, and with that part what waited for it. */
static void run_at_once(void)
{
    if (standin_options()->at_once)
        run_until(NULL, NULL, 0);
}

static struct work *append(struct CUstream_st *stream, size_t payload_bytes)
{
    struct work *w = order_take(sizeof *w + payload_bytes);
    stream = stream ? stream : &legacy;
    if (stream->gpu >= 0 && stream->gpu != standin_gpu())
        standin_fault(cudaErrorInvalidResourceHandle, "work on GPU %d for a stream of GPU %d",
                      standin_gpu(), stream->gpu);
    if (!w || !stream->alive) {
        order_give(w);
        standin_fault(cudaErrorInvalidResourceHandle, "work for a stream that is gone");
        return NULL;
    }
    *stream->last = w;
    stream->last = &w->next;
    return w;
}

cudaError_t standin_enqueue(cudaStream_t stream, standin_work *run, const void *payload,
                            size_t bytes)
{
    struct work *w = append(stream, bytes);
    if (!w)
        return cudaErrorInvalidResourceHandle;
    w->run = run;
    memcpy(w->payload, payload, bytes);
    order_record_host(&w->called);
    run_at_once();
    return cudaSuccess;
}

cudaError_t standin_enqueue_steps(cudaStream_t stream, const struct standin_steps *steps,
                                  void *subject)
{
    struct work *w = append(stream, 0);
    if (!w)
        return cudaErrorInvalidResourceHandle;
    w->steps = steps;
    w->subject = subject;
    order_record_host(&w->called);
    run_at_once();
    return cudaSuccess;
}

/* ---- streams ---- */

/* Streams and events stay allocated after they are destroyed, so that late use is seen. */
cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    STANDIN_CALL;
    struct CUstream_st *s = calloc(1, sizeof *s);
    if (flags != cudaStreamNonBlocking)
        standin_fault(cudaErrorInvalidValue, "a stream that waits for the legacy stream");
    s->last = &s->first;
    s->alive = true;
    s->gpu = standin_gpu();
    s->order = standin_options()->at_once ? order_open() : NULL;
    s->next = streams;
    streams = s;
    standin_count_live(1);
    *out = s;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    STANDIN_CALL;
    if (!stream || !stream->alive)
        return standin_fault(cudaErrorInvalidResourceHandle, "a stream destroyed twice");
    standin_nccl_check_ended(stream->gpu, "a stream");
    run_until(stream, NULL, 0);
    order_close(stream->order);
    stream->order = NULL;
    stream->alive = false;
    standin_count_live(-1);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    STANDIN_CALL;
    stream = stream ? stream : &legacy;
    run_until(stream, NULL, 0);
    host_follows(stream);
    return standin_is_broken() ? standin_set_error(cudaErrorIllegalAddress) : cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    STANDIN_CALL;
    const int gpu = standin_gpu();
    for (struct CUstream_st *s = streams; s; s = s->next)
        if (s->alive && s->gpu == gpu) {
            run_until(s, NULL, 0);
            host_follows(s);
        }
    standin_nccl_waited(gpu);
    return standin_is_broken() ? standin_set_error(cudaErrorIllegalAddress) : cudaSuccess;
}

/* Who looks again and again lets a little of something run each time. As CUDA has it, "not yet" is
 * kept as the last error. */
cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    STANDIN_CALL;
    struct CUstream_st *next = choose(false);
    bool ran = next;
    if (ran)
        standin_memory_open();
    for (uint32_t n = 1 + standin_random(8); next && n; n--) {
        run_first(next);
        next = choose(false);
    }
    if (ran)
        standin_memory_close();
    if (!ran && stream->first)
        standin_nccl_is_deadlock();
    if (standin_is_broken())
        return standin_set_error(cudaErrorIllegalAddress);
    if (stream->first)
        return standin_set_error(cudaErrorNotReady);
    host_follows(stream);
    return cudaSuccess;
}

/* ---- events ---- */

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    STANDIN_CALL;
    struct CUevent_st *e = calloc(1, sizeof *e);
    e->timed = !(flags & cudaEventDisableTiming);
    e->alive = true;
    e->gpu = standin_gpu();
    e->next = events;
    events = e;
    standin_count_live(1);
    *out = e;
    return cudaSuccess;
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    STANDIN_CALL;
    if (!event || !event->alive)
        return standin_fault(cudaErrorInvalidResourceHandle, "an event destroyed twice");
    event->alive = false;
    order_drop(event->token);
    event->token = NULL;
    standin_count_live(-1);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    STANDIN_CALL;
    struct work *w = event->alive ? append(stream, 0) : NULL;
    if (w && stream && stream->gpu != event->gpu)
        standin_fault(cudaErrorInvalidResourceHandle, "recording GPU %d's event on GPU %d",
                      event->gpu, stream->gpu);
    if (!w)
        return standin_fault(cudaErrorInvalidResourceHandle, "recording what is gone");
    w->event = event;
    w->records = true;
    w->version = ++event->recorded;
    run_at_once();
    return cudaSuccess;
}

/* As the real one: the last record so far counts, and none is no wait. */
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    STANDIN_CALL;
    (void)flags;
    if (!event->alive)
        return standin_fault(cudaErrorInvalidResourceHandle, "waiting for an event that is gone");
    bool skip = ++waits >= skip_first && waits < skip_end;
    if (skip || !event->recorded)
        return cudaSuccess;
    struct work *w = append(stream, 0);
    if (!w)
        return cudaErrorInvalidResourceHandle;
    w->event = event;
    w->version = event->recorded;
    run_at_once();
    return cudaSuccess;
}

static void dawdle(void)
{
    standin_lock();
    unsigned most = standin_options()->dawdle_us, us = most ? standin_random(most) : 0;
    standin_unlock(NULL);
    if (us)
        usleep(us);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    dawdle();
    STANDIN_CALL;
    if (!event->alive)
        return standin_fault(cudaErrorInvalidResourceHandle, "waiting for an event that is gone");
    run_until(NULL, event, event->recorded);
    order_wait_host(event->token);
    return standin_wait_fails() ? standin_set_error(cudaErrorIllegalAddress) : cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    STANDIN_CALL;
    if (!begin->alive || !end->alive || !begin->timed || !end->timed)
        return standin_fault(cudaErrorInvalidResourceHandle, "the time of an event without one");
    if (!begin->recorded || !end->recorded)
        return standin_fault(cudaErrorInvalidResourceHandle, "the time of what was not recorded");
    if (begin->reached < begin->recorded || end->reached < end->recorded)
        return standin_set_error(cudaErrorNotReady);
    *milliseconds = (float)(end->at - begin->at);
    return cudaSuccess;
}

/*
 * device_lane: the lanes H2D, D2H and DEVICE on a GPU. One thread enqueues: it lets an operation
 * wait for the events of the operations on other device lanes that it depends on, and records an
 * event behind it. A second thread waits for these events in order. It alone marks operations as
 * ended, for the lanes on the CPU, the times and the trace. So copies and computations wait for a
 * thread of the host only if their data do.
 */
#include "offload/executor.h"

static const struct zinf_device_ops *calls(const struct zinf_executor *e)
{
    return e->options.device->ops;
}

/* ---- enqueueing ---- */

/* Operations of the same lane need no event: the queue runs them in order. */
static int wait_on_device(struct zinf_executor *e, const struct zinf_op *op)
{
    int code = 0;
    for (uint32_t i = 0; !code && i < op->n_waits; i++) {
        uint32_t other = e->program->waits[op->first_wait + i];
        enum zinf_lane lane = e->program->ops[other].lane;
        if (lane != op->lane && has_queue(e, lane))
            code = calls(e)->queue_wait(e->options.queues[op->lane], e->events[other]);
    }
    return code;
}

/* Enqueues an operation. One that is left out still ends only after those before it and those that
 * it waits for, since others may rely on that. */
static int enqueue(struct lane *lane, uint32_t i)
{
    struct zinf_executor *e = lane->executor;
    const struct zinf_op *op = &e->program->ops[i];
    e->skipped[i] = e->options.skip && e->options.skip(e->options.context, op);
    int code = wait_on_device(e, op);
    if (!code && !e->skipped[i])
        code = executor_run_op(lane, i);
    return code ? code : calls(e)->event_record(e->options.queues[op->lane], e->events[i]);
}

void device_lane_run(struct lane *of)
{
    struct zinf_executor *e = of->executor;
    const enum zinf_lane lane = of->number;
    const struct zinf_program *p = e->program;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].lane != lane)
            continue;
        if (executor_pick(e, &i, 1, true) < 0)
            break;
        uint64_t begin = zinf_now_ns();
        int code = enqueue(of, i);
        if (code) {
            executor_fail_in(e, i, code);
            break;
        }
        pthread_mutex_lock(&e->lock);
        e->queued_ns[i] = begin;
        e->in_flight[lane]++;
        executor_wake(e);
        pthread_mutex_unlock(&e->lock);
    }
    pthread_mutex_lock(&e->lock);
    e->queued_all[lane] = true;
    pthread_cond_signal(&e->may_end[lane]);
    pthread_mutex_unlock(&e->lock);
}

/* ---- ending ---- */

/* Waits until op is enqueued and everything that it waits for has ended. False: it will not be
 * enqueued. After a failure the operations that it waits for may never end, but enqueued ones still
 * do. */
static bool await_start(struct zinf_executor *e, uint32_t op)
{
    const struct zinf_op *o = &e->program->ops[op];
    pthread_mutex_lock(&e->lock);
    while (e->queued_ns[op] ? !e->failed && !executor_waits_done(e, o) : !e->queued_all[o->lane]) {
        e->ending[o->lane] = op;
        pthread_cond_wait(&e->may_end[o->lane], &e->lock);
    }
    e->ending[o->lane] = NO_OP;
    bool queued = e->queued_ns[op] != 0;
    pthread_mutex_unlock(&e->lock);
    return queued;
}

/* The earliest time at which op can have begun: it was enqueued, its lane was free, and what it
 * waits for had ended. */
static uint64_t begin_of(struct zinf_executor *e, uint32_t op)
{
    const struct zinf_op *o = &e->program->ops[op];
    pthread_mutex_lock(&e->lock);
    uint64_t begin = e->queued_ns[op];
    if (e->idle_since[o->lane] > begin)
        begin = e->idle_since[o->lane];
    for (uint32_t i = 0; i < o->n_waits; i++) {
        uint64_t done = e->done_ns[e->program->waits[o->first_wait + i]];
        begin = done > begin ? done : begin;
    }
    pthread_mutex_unlock(&e->lock);
    return begin;
}

static void end_skipped(struct zinf_executor *e, uint32_t op)
{
    pthread_mutex_lock(&e->lock);
    executor_left_out(e, op);
    pthread_mutex_unlock(&e->lock);
}

void device_lane_end(struct zinf_executor *e, enum zinf_lane lane)
{
    const struct zinf_program *p = e->program;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].lane != lane)
            continue;
        if (!await_start(e, i))
            return;
        uint64_t begin = begin_of(e, i);
        int code = calls(e)->event_synchronize(e->events[i]);
        pthread_mutex_lock(&e->lock);
        e->in_flight[lane]--;
        pthread_mutex_unlock(&e->lock);
        if (code) {
            executor_fail_in(e, i, code);
        } else if (e->skipped[i]) {
            end_skipped(e, i);
        } else {
            uint64_t end = zinf_now_ns();
            executor_stalled(e, i, begin);
            executor_busy(e, lane, begin, end > begin ? end : begin);
            executor_done(e, i, begin, end > begin ? end : begin);
        }
    }
}

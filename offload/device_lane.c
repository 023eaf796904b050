/*
 * device_lane: H2D, D2H and DEVICE on a device whose queues run late. One thread enqueues: an
 * operation goes behind the events of those of other device lanes that it waits for, and gets an
 * event of its own. A second thread waits for these events in order; it alone says that an
 * operation has ended, for the lanes on the CPU, the times and the trace. So neither copies nor
 * computation ever wait for a thread of the host, unless their data does.
 */
#include "offload/executor.h"

static const struct zinf_device_ops *calls(const struct zinf_executor *e)
{
    return e->options.device->ops;
}

/* ---- enqueueing ---- */

/* Of its own lane an operation is behind the others as it is. */
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

/* One that is left out still ends after those before it and those that it waits for: others may
 * wait for it in their stead. */
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

/* Until op is enqueued and what it waits for is done; false: it will not be enqueued. After a
 * failure what it waits for may never be done, but what has been enqueued still ends. */
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

/* When op can have begun: it was enqueued, its lane was free and what it waits for was done. */
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

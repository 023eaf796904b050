/*
 * executor_state: which operation may start, has ended, was left out or failed, and what time it
 * took. The lanes share this under the executor's lock.
 */
#include "offload/executor.h"

#include "base/pulse.h"

#include <stdio.h>

bool executor_waits_done(const struct zinf_executor *e, const struct zinf_op *op)
{
    for (uint32_t i = 0; i < op->n_waits; i++)
        if (!e->done_ns[e->program->waits[op->first_wait + i]])
            return false;
    return true;
}

/* A lane with a queue need not wait for operations on other such lanes to end; the device keeps
 * that order. */
static bool ready(const struct zinf_executor *e, const struct zinf_op *op)
{
    if (!has_queue(e, op->lane))
        return executor_waits_done(e, op);
    for (uint32_t i = 0; i < op->n_waits; i++) {
        uint32_t other = e->program->waits[op->first_wait + i];
        if (!e->done_ns[other] && !e->queued_ns[other])
            return false;
    }
    return e->in_flight[op->lane] < MAX_IN_FLIGHT;
}

static int first_ready(const struct zinf_executor *e, const uint32_t *ops, int n)
{
    for (int i = 0; i < n; i++)
        if (ready(e, &e->program->ops[ops[i]]))
            return i;
    return -1;
}

int executor_pick(struct zinf_executor *e, const uint32_t *ops, int n, bool wait)
{
    enum zinf_lane lane = e->program->ops[ops[0]].lane;
    int found = -1;
    pthread_mutex_lock(&e->lock);
    while (!e->failed && (found = first_ready(e, ops, n)) < 0 && wait) {
        e->waiting[lane] = ops;
        e->n_waiting[lane] = n;
        pthread_cond_wait(&e->may_start[lane], &e->lock);
    }
    e->n_waiting[lane] = 0;
    if (e->failed)
        found = -1;
    pthread_mutex_unlock(&e->lock);
    return found;
}

bool executor_failed(struct zinf_executor *e)
{
    pthread_mutex_lock(&e->lock);
    bool failed = e->failed != 0;
    pthread_mutex_unlock(&e->lock);
    return failed;
}

void executor_fail(struct zinf_executor *e, int code)
{
    pthread_mutex_lock(&e->lock);
    if (!e->failed) {
        e->failed = code;
        snprintf(e->message, sizeof e->message, "%s", zinf_error());
    }
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        pthread_cond_signal(&e->may_start[lane]);
        pthread_cond_signal(&e->may_end[lane]);
    }
    pthread_mutex_unlock(&e->lock);
}

void executor_fail_in(struct zinf_executor *e, uint32_t op, int code)
{
    char buffer[64];
    if (e->options.op_name)
        zinf_fail_in(code, "%s",
                     e->options.op_name(e->options.context, &e->program->ops[op], buffer));
    executor_fail(e, code);
}

/* Signals only lanes that can go on: most operations free one lane. */
void executor_wake(struct zinf_executor *e)
{
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        uint32_t last = e->ending[lane];
        if (e->n_waiting[lane] && first_ready(e, e->waiting[lane], e->n_waiting[lane]) >= 0)
            pthread_cond_signal(&e->may_start[lane]);
        if (last != NO_OP && e->queued_ns[last] && executor_waits_done(e, &e->program->ops[last]))
            pthread_cond_signal(&e->may_end[lane]);
    }
}

void executor_left_out(struct zinf_executor *e, uint32_t op)
{
    if (e->trace)
        executor_trace_left_out(e, op);
    e->done_ns[op] = zinf_now_ns();
    executor_wake(e);
}

bool executor_skip(struct zinf_executor *e, uint32_t op)
{
    if (!e->options.skip || !e->options.skip(e->options.context, &e->program->ops[op]))
        return false;
    pthread_mutex_lock(&e->lock);
    executor_left_out(e, op);
    pthread_mutex_unlock(&e->lock);
    return true;
}

void executor_stalled(struct zinf_executor *e, uint32_t op, uint64_t now_ns)
{
    const struct zinf_op *o = &e->program->ops[op];
    enum zinf_lane lane = o->lane;
    pthread_mutex_lock(&e->lock);
    uint32_t last = executor_last_wait(e, op);
    if (last != NO_OP && e->done_ns[last] > e->idle_since[o->lane])
        lane = e->program->ops[last].lane;
    if (now_ns > e->idle_since[o->lane])
        e->times.stall_seconds[o->lane][lane] += (double)(now_ns - e->idle_since[o->lane]) * 1e-9;
    pthread_mutex_unlock(&e->lock);
}

void executor_busy(struct zinf_executor *e, enum zinf_lane lane, uint64_t begin_ns, uint64_t end_ns)
{
    pthread_mutex_lock(&e->lock);
    e->times.busy_seconds[lane] += (double)(end_ns - begin_ns) * 1e-9;
    e->idle_since[lane] = end_ns;
    pthread_mutex_unlock(&e->lock);
}

int executor_run_op(struct lane *lane, uint32_t op)
{
    struct zinf_executor *e = lane->executor;
    struct zinf_op now = e->program->ops[op];
    zinf_program_operands(e->program, &now, lane->operands);
    now.at = lane->operands;
    return e->options.run(e->options.context, &now);
}

void executor_done(struct zinf_executor *e, uint32_t op, uint64_t begin_ns, uint64_t end_ns)
{
    const struct zinf_op *o = &e->program->ops[op];
    pthread_mutex_lock(&e->lock);
    if (e->trace)
        executor_trace_op(e, op, begin_ns, end_ns);
    e->done_ns[op] = end_ns;
    e->times.bytes[o->lane] += executor_bytes(e, o);
    e->times.n_ops[o->lane]++;
    if (e->options.measured)
        e->options.measured(e->options.context, o, (double)(end_ns - begin_ns) * 1e-9);
    executor_wake(e);
    pthread_mutex_unlock(&e->lock);
    int code = zinf_pulse_beat();
    if (code)
        executor_fail(e, code);
}

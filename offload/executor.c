/*
 * executor: runs a program with one thread for each lane. An operation starts when it is the first
 * of its lane that has not started and everything that it waits for has ended. Drive lanes and the
 * lanes of a GPU may have several operations in progress, others have one. The first failure stops
 * every lane before its next operation.
 */
#include "offload/executor.h"

#include "base/pulse.h"

#include <stdlib.h>

static void run_lane(struct lane *of)
{
    struct zinf_executor *e = of->executor;
    const enum zinf_lane lane = of->number;
    const struct zinf_program *p = e->program;
    for (uint32_t i = 0; i < p->n_ops; i++) {
        if (p->ops[i].lane != lane)
            continue;
        if (executor_pick(e, &i, 1, true) < 0)
            return;
        if (executor_skip(e, i))
            continue;
        uint64_t begin = zinf_now_ns();
        executor_stalled(e, i, begin);
        int code = executor_run_op(of, i);
        if (code) {
            executor_fail(e, code);
            return;
        }
        uint64_t end = zinf_now_ns();
        executor_busy(e, lane, begin, end);
        executor_done(e, i, begin, end);
    }
}

static bool is_drive_lane(enum zinf_lane lane)
{
    return lane == ZINF_LANE_READ || lane == ZINF_LANE_WRITE;
}

/* Waits for the next program; NULL: the executor is being destroyed. The caller holds no lock. */
static bool next_program(struct zinf_executor *e, uint64_t *generation)
{
    pthread_mutex_lock(&e->lock);
    while (!e->stop && e->generation == *generation)
        pthread_cond_wait(&e->changed, &e->lock);
    *generation = e->generation;
    bool go = !e->stop;
    pthread_mutex_unlock(&e->lock);
    return go;
}

static void lane_arrived(struct zinf_executor *e)
{
    pthread_mutex_lock(&e->lock);
    e->lanes_running--;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
}

static void *lane_thread(void *argument)
{
    struct lane *lane = argument;
    struct zinf_executor *e = lane->executor;
    uint64_t generation = 0;
    struct drive_lane *drive = NULL;
    zinf_pulse_set(e->pulse);
    if (has_queue(e, lane->number) && e->options.device) /* the driver writes into GPU memory */
        zinf_thread_near(e->options.sysfs ? e->options.sysfs : "/sys", e->options.device->node);
    if (is_drive_lane(lane->number)) {
        /* The thread that creates an io_uring must be the one that uses it. */
        int code = drive_lane_create(&drive, e, lane->number);
        if (code)
            executor_fail(e, code);
    }
    lane_arrived(e);
    while (next_program(e, &generation)) {
        if (drive)
            drive_lane_run(drive);
        else if (lane->ends)
            device_lane_end(e, lane->number);
        else if (has_queue(e, lane->number))
            device_lane_run(lane);
        else
            run_lane(lane);
        lane_arrived(e);
    }
    drive_lane_destroy(drive);
    return NULL;
}

/* Waits until all lanes have finished the program. Returns the failure, if any, with its message in
 * this thread. */
static int join_lanes(struct zinf_executor *e)
{
    pthread_mutex_lock(&e->lock);
    while (e->lanes_running)
        pthread_cond_wait(&e->changed, &e->lock);
    int code = e->failed;
    pthread_mutex_unlock(&e->lock);
    return code ? zinf_fail(code, "%s", e->message) : 0;
}

static int grow(void **array, uint32_t old, uint32_t n, size_t width)
{
    void *moved = realloc(*array, n * width);
    if (!moved)
        return zinf_fail(-ENOMEM, "no memory for a program of %u operations", n);
    memset((char *)moved + old * width, 0, (n - old) * width);
    *array = moved;
    return 0;
}

/* Gives every lane room for the operands of one operation. */
static int prepare_lanes(struct zinf_executor *e, const struct zinf_program *p)
{
    int code = 0;
    for (int i = 0; !code && i < e->n_lanes; i++) {
        struct lane *lane = &e->lanes[i];
        const uint32_t old = lane->room, n = p->most_operands;
        if (n > old)
            code = grow((void **)&lane->operands, old, n, sizeof *lane->operands);
        if (!code && n > old)
            lane->room = n;
    }
    return code;
}

/* Allocates the state of every operation, and an event for each operation of a lane with a queue;
 * kept for later programs that are no longer. */
static int prepare(struct zinf_executor *e, const struct zinf_program *p)
{
    uint32_t old = e->capacity, n = p->n_ops > old ? p->n_ops : old;
    const bool queued = e->options.device != NULL;
    int code = prepare_lanes(e, p);
    if (!code && n > old)
        code = grow((void **)&e->done_ns, old, n, sizeof *e->done_ns);
    if (!code && n > old && queued)
        code = grow((void **)&e->queued_ns, old, n, sizeof *e->queued_ns);
    if (!code && n > old && queued)
        code = grow((void **)&e->skipped, old, n, sizeof *e->skipped);
    if (!code && n > old && queued)
        code = grow((void **)&e->events, old, n, sizeof *e->events);
    if (!code && n > old && e->trace)
        code = grow((void **)&e->ran_as, old, n, sizeof *e->ran_as);
    if (code)
        return code;
    e->capacity = n;
    if (p->n_ops)
        memset(e->done_ns, 0, p->n_ops * sizeof *e->done_ns);
    if (p->n_ops && queued)
        memset(e->queued_ns, 0, p->n_ops * sizeof *e->queued_ns);
    for (uint32_t i = 0; !code && e->options.device && i < p->n_ops; i++)
        if (has_queue(e, p->ops[i].lane) && !e->events[i])
            code = e->options.device->ops->event_create(e->options.device, &e->events[i]);
    return code;
}

uint64_t zinf_executor_bytes(uint32_t n_ops, bool queued)
{
    const struct zinf_executor *e = NULL;
    const uint64_t more = sizeof *e->queued_ns + sizeof *e->skipped + sizeof *e->events;
    return n_ops * (sizeof *e->done_ns + (queued ? more : 0));
}

int zinf_executor_check(const struct zinf_executor *e)
{
    return e->failed ? zinf_fail(e->failed, "%s", e->message) : 0;
}

int zinf_executor_run(struct zinf_executor *e, const struct zinf_program *program)
{
    int code = zinf_executor_check(e);
    if (!code)
        code = prepare(e, program);
    if (code)
        return code;
    uint64_t begin = zinf_now_ns();
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        e->idle_since[lane] = begin;
        e->queued_all[lane] = false;
    }
    pthread_mutex_lock(&e->lock);
    e->program = program;
    e->generation++;
    e->lanes_running = e->n_lanes;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    code = join_lanes(e);
    uint64_t end = zinf_now_ns();
    e->times.wall_seconds += (double)(end - begin) * 1e-9;
    if (e->trace)
        zinf_trace_program(e->trace, program->name, begin, end);
    return code;
}

int zinf_executor_end(struct zinf_executor *e, int code)
{
    executor_fail(e, code);
    return code;
}

void zinf_executor_take_times(struct zinf_executor *e, struct zinf_lane_times *out)
{
    *out = e->times;
    memset(&e->times, 0, sizeof e->times);
}

static int start_lane(struct zinf_executor *e, enum zinf_lane number, bool ends)
{
    struct lane *lane = &e->lanes[e->n_lanes];
    *lane = (struct lane){.executor = e, .number = number, .ends = ends};
    pthread_mutex_lock(&e->lock);
    e->lanes_running++;
    pthread_mutex_unlock(&e->lock);
    int error = pthread_create(&lane->thread, NULL, lane_thread, lane);
    if (error) {
        lane_arrived(e);
        return zinf_fail(-error, "cannot start the thread of lane %s: %s", zinf_lane_name(number),
                         strerror(error));
    }
    e->n_lanes++;
    return 0;
}

static int start_lanes(struct zinf_executor *e)
{
    int code = 0;
    for (int i = 0; !code && i < ZINF_LANES; i++) {
        enum zinf_lane number = (enum zinf_lane)i;
        if ((is_drive_lane(number) && !e->options.store) ||
            (number == ZINF_LANE_NET && !e->options.net)) /* a single rank needs no lane NET */
            continue;
        code = start_lane(e, number, false);
        if (!code && has_queue(e, number))
            code = start_lane(e, number, true);
    }
    return code;
}

int zinf_executor_create(struct zinf_executor **out, const struct zinf_executor_options *options)
{
    struct zinf_executor *e = calloc(1, sizeof *e);
    if (!e)
        return zinf_fail(-ENOMEM, "no memory for an executor");
    e->options = *options;
    e->pulse = zinf_pulse_of_thread();
    pthread_mutex_init(&e->lock, NULL);
    pthread_cond_init(&e->changed, NULL);
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        pthread_cond_init(&e->may_start[lane], NULL);
        pthread_cond_init(&e->may_end[lane], NULL);
        e->ending[lane] = NO_OP;
    }
    int code = executor_open_trace(e);
    if (!code)
        code = start_lanes(e);
    int joined = join_lanes(e);
    if (!code)
        code = joined;
    if (code)
        zinf_executor_destroy(e);
    else
        *out = e;
    return code;
}

void zinf_executor_destroy(struct zinf_executor *e)
{
    if (!e)
        return;
    pthread_mutex_lock(&e->lock);
    e->stop = true;
    pthread_cond_broadcast(&e->changed);
    pthread_mutex_unlock(&e->lock);
    for (int i = 0; i < e->n_lanes; i++)
        pthread_join(e->lanes[i].thread, NULL);
    if (zinf_trace_close(e->trace))
        zinf_log(ZINF_LOG_WARN, "%s", zinf_error());
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        pthread_cond_destroy(&e->may_start[lane]);
        pthread_cond_destroy(&e->may_end[lane]);
    }
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    for (int i = 0; i < e->n_lanes; i++)
        free(e->lanes[i].operands);
    for (uint32_t i = 0; e->events && i < e->capacity; i++)
        if (e->events[i])
            e->options.device->ops->event_destroy(e->events[i]);
    free(e->events);
    free(e->ran_as);
    free(e->skipped);
    free(e->queued_ns);
    free(e->done_ns);
    free(e);
}

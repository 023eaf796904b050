/*
 * emulate: the executor's other side. A lane of the CPU sleeps in its operation until as much work
 * as the operation is has been done at the rate that it has beside the others; a lane of a GPU has
 * a queue that knows when it will be done with what was enqueued, and events that happen by the
 * clock. Lateness of a thread that slept is taken from its lane's next operation: hardware would
 * have begun that when it should.
 */
#include "bench/emulate.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define NOTHING_LEFT 1e-9  /* seconds of a program */
#define AT_ONCE_NS 300000  /* a lane's next operation that comes so soon did not wait for others */
#define LEAST_SHARE 0.02   /* of the CPUs: nothing stands still altogether */
#define BLOCK_SECONDS 5e-4 /* by the clock, of the drive's blocks: threads wake no more often */

/* What a lane of the CPU is doing. Times are those of programs, since the emulator began. */
struct task {
    bool going;
    double left, cpu;
    double ended;     /* by the rates */
    double late;      /* how much later its thread saw that */
    uint64_t seen_ns; /* when */
};

struct zinf_queue {
    struct zinf_emulator *emulator;
    uint64_t free_ns; /* when what was enqueued will have run */
};

struct zinf_event {
    uint64_t at_ns;
};

/* The lock guards tasks, now and drive_work. A queue is used by its lane's thread alone. */
struct zinf_emulator {
    struct zinf_emulator_options options;
    struct zinf_device device; /* what a device's lanes call; no more of it is there */
    struct zinf_executor *executor;
    struct zinf_paced_drive *drive;
    struct zinf_queue queues[ZINF_LANES];
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a task has begun or ended */
    struct task tasks[ZINF_LANES];
    uint64_t begin_ns;
    double now;           /* until when tasks are worked off */
    double drive_cpu[2];  /* of the program's READ and WRITE */
    double drive_work[2]; /* seconds that the drive had worked then */
};

/* ---- clock ---- */

static double seconds_at(const struct zinf_emulator *e, uint64_t ns)
{
    return (double)(ns - e->begin_ns) * 1e-9 / e->options.stretch;
}

static uint64_t ns_at(const struct zinf_emulator *e, double seconds)
{
    return e->begin_ns + (uint64_t)(seconds * e->options.stretch * 1e9);
}

/* ---- lanes of the CPU; under the lock ---- */

/* What the drive left of the CPUs since the tasks were last worked off. What it is not charged for
 * now, since less time has passed than its own clock says, it is the next time. */
static double share_left(struct zinf_emulator *e, double seconds)
{
    double work[2], more[2], taken = 0, most = (1 - LEAST_SHARE) * seconds;
    if (!e->drive || seconds <= 0)
        return 1;
    zinf_paced_drive_work(e->drive, work);
    for (int i = 0; i < 2; i++) {
        more[i] = work[i] - e->drive_work[i];
        taken += e->drive_cpu[i] * more[i] / e->options.stretch;
    }
    double part = taken > most ? most / taken : 1;
    for (int i = 0; i < 2; i++)
        e->drive_work[i] += part * more[i];
    return 1 - part * taken / seconds;
}

/* Of a task's speed alone, what all have that want CPUs. */
static double rate_with(const struct zinf_emulator *e, double share)
{
    double wanted = 0;
    for (int lane = 0; lane < ZINF_LANES; lane++)
        wanted += e->tasks[lane].going ? e->tasks[lane].cpu : 0;
    return wanted > share ? fmax(share / wanted, LEAST_SHARE) : 1;
}

static void work_off(struct zinf_emulator *e, double until, double share)
{
    double rate = rate_with(e, share), step = until - e->now;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        const struct task *t = &e->tasks[lane];
        double own = t->cpu > 0 ? rate : 1;
        if (t->going && t->left < own * step)
            step = fmax(t->left / own, 0);
    }
    e->now += step;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        struct task *t = &e->tasks[lane];
        if (!t->going)
            continue;
        t->left -= step * (t->cpu > 0 ? rate : 1);
        if (t->left > NOTHING_LEFT)
            continue;
        t->going = false;
        t->ended = e->now;
        pthread_cond_broadcast(&e->changed);
    }
}

static bool any_going(const struct zinf_emulator *e)
{
    for (int lane = 0; lane < ZINF_LANES; lane++)
        if (e->tasks[lane].going)
            return true;
    return false;
}

static void bring_up(struct zinf_emulator *e, uint64_t now_ns)
{
    double until = seconds_at(e, now_ns), share = share_left(e, until - e->now);
    while (e->now < until && any_going(e))
        work_off(e, until, share);
    if (e->now < until)
        e->now = until;
}

static void sleep_until(struct zinf_emulator *e, uint64_t until_ns)
{
    struct timespec at = {.tv_sec = (time_t)(until_ns / 1000000000u),
                          .tv_nsec = (long)(until_ns % 1000000000u)};
    pthread_cond_timedwait(&e->changed, &e->lock, &at);
}

static void work(struct zinf_emulator *e, const struct zinf_op *op)
{
    struct task *t = &e->tasks[op->lane];
    pthread_mutex_lock(&e->lock);
    uint64_t now = zinf_now_ns();
    bring_up(e, now);
    /* Beside others that share the CPUs nobody can say what it would have done meanwhile. */
    bool at_once = e->options.queues && now < t->seen_ns + AT_ONCE_NS;
    t->cpu = (double)op->cpu;
    t->left = op->seconds - (at_once ? t->late : 0);
    t->late = 0;
    t->going = t->left > NOTHING_LEFT;
    if (t->going)
        pthread_cond_broadcast(&e->changed); /* the others may be slower now */
    else
        t->ended = e->now;
    while (t->going) {
        bring_up(e, zinf_now_ns());
        double most = t->cpu > 0 ? rate_with(e, 1) : 1; /* should the drive be idle */
        if (t->going)
            sleep_until(e, ns_at(e, e->now + t->left / most) + 1000);
    }
    t->seen_ns = zinf_now_ns();
    t->late = fmax(seconds_at(e, t->seen_ns) - t->ended, 0);
    pthread_mutex_unlock(&e->lock);
}

/* ---- lanes of a GPU ---- */

static int event_create(struct zinf_device *device, struct zinf_event **out)
{
    (void)device;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : zinf_fail(-ENOMEM, "no memory for an event");
}

static void event_destroy(struct zinf_event *event)
{
    free(event);
}

static int event_record(struct zinf_queue *queue, struct zinf_event *event)
{
    event->at_ns = queue->free_ns;
    return 0;
}

static int queue_wait(struct zinf_queue *queue, struct zinf_event *event)
{
    if (event->at_ns > queue->free_ns)
        queue->free_ns = event->at_ns;
    return 0;
}

static int event_synchronize(struct zinf_event *event)
{
    struct timespec at = {.tv_sec = (time_t)(event->at_ns / 1000000000u),
                          .tv_nsec = (long)(event->at_ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR)
        ;
    return 0;
}

static const struct zinf_device_ops device_ops = {
    .event_create = event_create,
    .event_destroy = event_destroy,
    .event_record = event_record,
    .queue_wait = queue_wait,
    .event_synchronize = event_synchronize,
};

static void enqueue(struct zinf_queue *queue, const struct zinf_op *op)
{
    uint64_t now = zinf_now_ns();
    if (queue->free_ns < now)
        queue->free_ns = now;
    queue->free_ns += (uint64_t)(op->seconds * queue->emulator->options.stretch * 1e9);
}

/* ---- running ---- */

static int run_op(void *context, const struct zinf_op *op)
{
    struct zinf_emulator *e = context;
    if (op->lane == ZINF_LANE_NET && e->options.meet)
        e->options.meet(e->options.context, op);
    if (e->queues[op->lane].emulator)
        enqueue(&e->queues[op->lane], op);
    else
        work(e, op);
    return 0;
}

static const char *op_name(void *context, const struct zinf_op *op, char buffer[64])
{
    const struct zinf_emulator *e = context;
    if (e->options.op_name)
        return e->options.op_name(e->options.context, op, buffer);
    snprintf(buffer, 64, "%s %d", zinf_lane_name(op->lane), op->unit);
    return buffer;
}

/* By the seconds of programs. */
static void shrink(struct zinf_lane_times *times, double stretch)
{
    times->wall_seconds /= stretch;
    times->both_drive_seconds /= stretch;
    for (int lane = 0; lane < ZINF_LANES; lane++) {
        times->busy_seconds[lane] /= stretch;
        for (int other = 0; other < ZINF_LANES; other++)
            times->stall_seconds[lane][other] /= stretch;
    }
}

int zinf_emulator_run(struct zinf_emulator *e, const struct zinf_program *program, double *seconds,
                      struct zinf_lane_times *times)
{
    e->drive_cpu[0] = e->drive_cpu[1] = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const struct zinf_op *op = &program->ops[i];
        if (op->lane == ZINF_LANE_READ || op->lane == ZINF_LANE_WRITE)
            e->drive_cpu[op->lane == ZINF_LANE_WRITE] = (double)op->cpu;
    }
    uint64_t begin = zinf_now_ns();
    int code = zinf_executor_run(e->executor, program);
    *seconds = (double)(zinf_now_ns() - begin) * 1e-9 / e->options.stretch;
    zinf_executor_take_times(e->executor, times);
    shrink(times, e->options.stretch);
    return code;
}

/* ---- life ---- */

static int open_drive(struct zinf_emulator *e)
{
    struct zinf_drive_rates rates = e->options.drive;
    if (!e->options.store)
        return 0;
    rates.read_bytes /= e->options.stretch;
    rates.write_bytes /= e->options.stretch;
    rates.latency_seconds *= e->options.stretch;
    return zinf_paced_drive_create(&e->drive, &rates);
}

/* As usual, but for blocks that would take next to no time. */
static struct zinf_aio_queue_options queue_of(const struct zinf_emulator *e, double bytes)
{
    const double least = bytes / e->options.stretch * BLOCK_SECONDS, usual = 1 << 20,
                 most = 1 << 29;
    double block = fmin(fmax(least, usual), most);
    return (struct zinf_aio_queue_options){.engine = ZINF_AIO_ENGINE_NULL,
                                           .block_bytes =
                                               (uint32_t)block / ZINF_AIO_ALIGN * ZINF_AIO_ALIGN,
                                           .around = {PACED_BY(e->drive)}};
}

static uint64_t moved(void *context, const struct zinf_op *op)
{
    const struct zinf_emulator *e = context;
    return e->options.moved(e->options.context, op);
}

/* What RAM has all of is not moved. */
static bool skip(void *context, const struct zinf_op *op)
{
    const bool moves = op->lane == ZINF_LANE_READ || op->lane == ZINF_LANE_WRITE;
    return moves && !moved(context, op);
}

static int start_executor(struct zinf_emulator *e)
{
    const struct zinf_emulator_options *o = &e->options;
    struct zinf_executor_options options = {
        .run = run_op,
        .context = e,
        .op_name = op_name,
        .moved = o->moved ? moved : NULL,
        .skip = o->moved ? skip : NULL,
        .net = o->net,
        .store = o->store,
        .trace_path = o->trace_path,
    };
    options.read_queue = queue_of(e, o->drive.read_bytes);
    options.write_queue = queue_of(e, o->drive.write_bytes);
    for (int lane = ZINF_LANE_H2D; o->queues && lane <= ZINF_LANE_DEVICE; lane++) {
        e->queues[lane].emulator = e;
        options.queues[lane] = &e->queues[lane];
        options.device = &e->device;
    }
    return zinf_executor_create(&e->executor, &options);
}

int zinf_emulator_create(struct zinf_emulator **out, const struct zinf_emulator_options *options)
{
    struct zinf_emulator *e = calloc(1, sizeof *e);
    *out = NULL;
    if (!e)
        return zinf_fail(-ENOMEM, "no memory for an emulator");
    e->options = *options;
    e->options.stretch = options->stretch > 0 ? options->stretch : 1;
    e->device.ops = &device_ops;
    e->begin_ns = zinf_now_ns();
    pthread_condattr_t monotonic; /* as zinf_now_ns is */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&e->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&e->lock, NULL);
    int code = open_drive(e);
    if (!code)
        code = start_executor(e);
    if (code)
        zinf_emulator_destroy(e);
    else
        *out = e;
    return code;
}

void zinf_emulator_destroy(struct zinf_emulator *e)
{
    if (!e)
        return;
    zinf_executor_destroy(e->executor);
    zinf_paced_drive_destroy(e->drive);
    pthread_cond_destroy(&e->changed);
    pthread_mutex_destroy(&e->lock);
    free(e);
}

/*
 * executor: what the executor, its drive lanes and its device lanes share. Inside this folder
 * only. The lock guards program, generation, done_ns, queued_ns, in_flight, failed, lanes_running,
 * stop, times, ran_as and trace.
 */
#ifndef ZINF_OFFLOAD_EXECUTOR_H
#define ZINF_OFFLOAD_EXECUTOR_H

#include "offload/offload.h"
#include "offload/trace.h"

#include <pthread.h>

#define NO_OP UINT32_MAX

/* Most operations of a device lane that are enqueued and have not ended: enough that the device
 * never runs out of work, few enough that a failure is seen soon. */
#define MAX_IN_FLIGHT 32

/* A thread of a lane. A lane with a queue has a second one (ends), which waits for enqueued
 * operations to end. */
struct lane {
    struct zinf_executor *executor;
    enum zinf_lane number;
    bool ends;
    struct zinf_operand *operands; /* [room] operands of the operation that it runs */
    uint32_t room;
    pthread_t thread;
};

struct zinf_executor {
    struct zinf_executor_options options;
    /* pulse of the thread that created the executor; its lanes beat the same one */
    struct zinf_pulse *pulse;
    pthread_mutex_t lock;
    pthread_cond_t changed; /* a program was given, or a lane has finished */
    /* one of the operations in `waiting` may have become ready */
    pthread_cond_t may_start[ZINF_LANES];
    /* operations that the lane waits for; any one of them will do */
    const uint32_t *waiting[ZINF_LANES];
    int n_waiting[ZINF_LANES]; /* their number; 0: the lane does not wait */
    const struct zinf_program *program;
    uint64_t generation; /* number of programs that were run */
    uint64_t *done_ns;   /* [n_ops] when the operation ended; 0: it has not */
    /* [n_ops] when the operation was enqueued on a lane with a queue; 0: it was not */
    uint64_t *queued_ns;
    /* [n_ops] on lanes with a queue: the operation was left out, and only its event enqueued */
    uint8_t *skipped;
    /* [n_ops] on lanes with a queue: the event that tells that the operation has ended */
    struct zinf_event **events;
    /* [n_ops] for the trace: the operation itself; if it was left out, the operation that it waited
     * for last, or ZINF_TRACE_NO_CAUSE */
    uint32_t *ran_as;
    uint32_t capacity; /* allocated length of the five arrays above */
    uint32_t in_flight[ZINF_LANES];
    bool queued_all[ZINF_LANES]; /* all of the lane's operations in this run are enqueued */
    /* the operation in `ending` is enqueued and what it waits for has ended */
    pthread_cond_t may_end[ZINF_LANES];
    /* the operation whose end the lane's second thread waits for, or NO_OP */
    uint32_t ending[ZINF_LANES];
    uint64_t idle_since[ZINF_LANES]; /* when the lane's last operation ended */
    uint64_t drive_since[2];         /* READ, WRITE: since when the lane is busy; 0: it is idle */
    int failed;
    char message[8192];
    bool stop;
    int n_lanes, lanes_running;
    struct lane lanes[2 * ZINF_LANES];
    struct zinf_lane_times times;
    struct zinf_trace *trace;
};

/* Index of the first of n operations of a lane that may start now. With wait, blocks until there is
 * one. -1: there is none, or the run has failed. */
int executor_pick(struct zinf_executor *e, const uint32_t *ops, int n, bool wait);
/* Whether op is to be left out; if so it is marked as ended. Call it after executor_pick. */
bool executor_skip(struct zinf_executor *e, uint32_t op);
/* Adds the time for which op's lane stood still to that of the lane that op waited for. Call it
 * before op starts. */
void executor_stalled(struct zinf_executor *e, uint32_t op, uint64_t now_ns);
/* Adds a period in which something ran on the lane. */
void executor_busy(struct zinf_executor *e, enum zinf_lane lane, uint64_t begin_ns,
                   uint64_t end_ns);
/* Marks op as left out. The caller holds the lock. */
void executor_left_out(struct zinf_executor *e, uint32_t op);
bool executor_failed(struct zinf_executor *e);
void executor_fail(struct zinf_executor *e, int code);
/* Makes the run fail with code and this thread's message, with the operation's name in front. */
void executor_fail_in(struct zinf_executor *e, uint32_t op, int code);
void executor_done(struct zinf_executor *e, uint32_t op, uint64_t begin_ns, uint64_t end_ns);
/* Wakes lanes that can go on. The caller holds the lock. */
void executor_wake(struct zinf_executor *e);

static inline bool has_queue(const struct zinf_executor *e, enum zinf_lane lane)
{
    return e->options.queues[lane] != NULL;
}

static inline uint64_t executor_bytes(const struct zinf_executor *e, const struct zinf_op *op)
{
    return e->options.moved ? e->options.moved(e->options.context, op) : op->bytes;
}

/* Runs an operation by the caller's run function, with its operands. */
int executor_run_op(struct lane *lane, uint32_t op);

/* device_lane.c: the two threads of a lane with a queue, which enqueue a program's operations and
 * wait for their ends. */
void device_lane_run(struct lane *lane);
void device_lane_end(struct zinf_executor *e, enum zinf_lane lane);
/* executor_trace.c: opens the trace that the options ask for. */
int executor_open_trace(struct zinf_executor *e);
/* The operation that ended last of those that op waits for, or NO_OP. The caller holds the lock. */
uint32_t executor_last_wait(const struct zinf_executor *e, uint32_t op);
/* Records in the trace, if there is one, that op has ended or was left out. Call it before done_ns
 * is set. */
void executor_trace_op(struct zinf_executor *e, uint32_t op, uint64_t begin_ns, uint64_t end_ns);
void executor_trace_left_out(struct zinf_executor *e, uint32_t op);

/* Whether everything that op waits for has ended. The caller holds the lock. */
bool executor_waits_done(const struct zinf_executor *e, const struct zinf_op *op);

/* A lane of drive requests. Only the lane's own thread makes these calls. */
struct drive_lane;
int drive_lane_create(struct drive_lane **out, struct zinf_executor *e, enum zinf_lane number);
void drive_lane_run(struct drive_lane *lane);
void drive_lane_destroy(struct drive_lane *lane);

#endif

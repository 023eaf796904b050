/*
 * executor: what the executor, its drive lanes and its device lanes share. Inside this folder only.
 * One lock guards program, generation, done_ns, queued_ns, in_flight, failed, lanes_running, stop,
 * times, ran_as and trace.
 */
#ifndef ZINF_OFFLOAD_EXECUTOR_H
#define ZINF_OFFLOAD_EXECUTOR_H

#include "offload/offload.h"
#include "offload/trace.h"

#include <pthread.h>

#define NO_OP UINT32_MAX

/* Operations of a device lane that are enqueued and not done: enough for the device never to run
 * dry, few enough for a failure to come soon. */
#define MAX_IN_FLIGHT 32

/* A lane's thread; a lane with a queue has a second one, which sees its operations end. */
struct lane {
    struct zinf_executor *executor;
    enum zinf_lane number;
    bool ends;
    struct zinf_operand *operands; /* [room] of the operation that it runs */
    uint32_t room;
    pthread_t thread;
};

struct zinf_executor {
    struct zinf_executor_options options;
    struct zinf_pulse *pulse; /* of who made it: its lanes' too */
    pthread_mutex_t lock;
    pthread_cond_t changed;               /* programs and arrivals */
    pthread_cond_t may_start[ZINF_LANES]; /* the lane's operation in waiting is ready */
    const uint32_t *waiting[ZINF_LANES];  /* which operations any of which would do */
    int n_waiting[ZINF_LANES];            /* how many; 0: the lane does not wait */
    const struct zinf_program *program;
    uint64_t generation; /* of programs given */
    uint64_t *done_ns;   /* [n_ops] when it ended; 0: not yet */
    uint64_t *queued_ns; /* [n_ops] of lanes with a queue: when it was enqueued; 0: not yet */
    uint8_t *skipped;    /* [n_ops] of lanes with a queue: enqueued as nothing but its event */
    struct zinf_event **events; /* [n_ops] of lanes with a queue: the operation has ended */
    uint32_t *ran_as;  /* [n_ops] where there is a trace: itself, or of one that was left out the
                        * operation that it waited for last, or ZINF_TRACE_NO_CAUSE */
    uint32_t capacity; /* of the five */
    uint32_t in_flight[ZINF_LANES];
    bool queued_all[ZINF_LANES];        /* nothing more comes in this run */
    pthread_cond_t may_end[ZINF_LANES]; /* the operation in ending is enqueued, its waits done */
    uint32_t ending[ZINF_LANES];        /* which operation that is, or NO_OP */
    uint64_t idle_since[ZINF_LANES];    /* when the lane's last operation ended */
    uint64_t drive_since[2];            /* READ, WRITE: since when it is busy; 0: it is not */
    int failed;
    char message[8192];
    bool stop;
    int n_lanes, lanes_running;
    struct lane lanes[2 * ZINF_LANES];
    struct zinf_lane_times times;
    struct zinf_trace *trace;
};

/* Index of the first of n operations of a lane that may start now; with wait, blocks until there is
 * one. -1: there is none, or the run has failed. */
int executor_pick(struct zinf_executor *e, const uint32_t *ops, int n, bool wait);
/* True if op is left out: it is marked as done. After executor_pick. */
bool executor_skip(struct zinf_executor *e, uint32_t op);
/* Before op starts in a lane that stood still: says which lane it waited for. */
void executor_stalled(struct zinf_executor *e, uint32_t op, uint64_t now_ns);
/* The lane had something under way. */
void executor_busy(struct zinf_executor *e, enum zinf_lane lane, uint64_t begin_ns,
                   uint64_t end_ns);
/* Under the lock: op was left out. */
void executor_left_out(struct zinf_executor *e, uint32_t op);
bool executor_failed(struct zinf_executor *e);
void executor_fail(struct zinf_executor *e, int code);
/* Fails by this thread's message, which gets the operation's name in front. */
void executor_fail_in(struct zinf_executor *e, uint32_t op, int code);
void executor_done(struct zinf_executor *e, uint32_t op, uint64_t begin_ns, uint64_t end_ns);
/* Under the lock: lanes that can go on now are woken. */
void executor_wake(struct zinf_executor *e);

static inline bool has_queue(const struct zinf_executor *e, enum zinf_lane lane)
{
    return e->options.queues[lane] != NULL;
}

static inline uint64_t executor_bytes(const struct zinf_executor *e, const struct zinf_op *op)
{
    return e->options.moved ? e->options.moved(e->options.context, op) : op->bytes;
}

/* Runs what the program has at op by the caller's function, with its operands. */
int executor_run_op(struct lane *lane, uint32_t op);

/* device_lane.c: a lane with a queue; each runs the lane's part of a program in a thread. */
void device_lane_run(struct lane *lane);
void device_lane_end(struct zinf_executor *e, enum zinf_lane lane);
/* executor_trace.c: as the options ask for. */
int executor_open_trace(struct zinf_executor *e);
/* The same; under the lock. Of what op waits for, what ended last; NO_OP: nothing has. */
uint32_t executor_last_wait(const struct zinf_executor *e, uint32_t op);
/* Where there is a trace: op ended, or was left out. Before done_ns says so. */
void executor_trace_op(struct zinf_executor *e, uint32_t op, uint64_t begin_ns, uint64_t end_ns);
void executor_trace_left_out(struct zinf_executor *e, uint32_t op);

/* Under the lock: all that op waits for is done. */
bool executor_waits_done(const struct zinf_executor *e, const struct zinf_op *op);

/* A lane of drive requests; all three in the lane's own thread. */
struct drive_lane;
int drive_lane_create(struct drive_lane **out, struct zinf_executor *e, enum zinf_lane number);
void drive_lane_run(struct drive_lane *lane);
void drive_lane_destroy(struct drive_lane *lane);

#endif

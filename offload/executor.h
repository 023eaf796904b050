/*
 * executor: what the executor and its drive lanes share. Inside this folder only.
 * One lock guards program, generation, done_ns, failed, lanes_running, stop, times and trace.
 */
#ifndef ZINF_OFFLOAD_EXECUTOR_H
#define ZINF_OFFLOAD_EXECUTOR_H

#include "offload/offload.h"
#include "offload/trace.h"

#include <pthread.h>

#define NOT_WAITING UINT32_MAX

struct lane {
    struct zinf_executor *executor;
    enum zinf_lane number;
    pthread_t thread;
};

struct zinf_executor {
    struct zinf_executor_options options;
    pthread_mutex_t lock;
    pthread_cond_t changed;               /* programs and arrivals */
    pthread_cond_t may_start[ZINF_LANES]; /* the lane's operation in waiting is ready */
    uint32_t waiting[ZINF_LANES];         /* which operation that is, or NOT_WAITING */
    const struct zinf_program *program;
    uint64_t generation; /* of programs given */
    uint64_t *done_ns;   /* [n_ops] when it ended; 0: not yet */
    uint32_t done_capacity;
    uint64_t idle_since[ZINF_LANES]; /* when the lane's last operation ended */
    uint64_t drive_since[2];         /* READ, WRITE: since when it is busy; 0: it is not */
    int failed;
    char message[8192];
    bool stop;
    int n_lanes, lanes_running;
    struct lane lanes[ZINF_LANES];
    struct zinf_lane_times times;
    struct zinf_trace *trace;
};

/* True if operation op may start now; with wait, blocks until it may or the run has failed. */
bool executor_try(struct zinf_executor *e, uint32_t op, bool wait);
/* True if op is left out: it is marked as done. After executor_try. */
bool executor_skip(struct zinf_executor *e, uint32_t op);
/* Before op starts in a lane that stood still: says which lane it waited for. */
void executor_stalled(struct zinf_executor *e, uint32_t op, uint64_t now_ns);
/* The lane had something under way. */
void executor_busy(struct zinf_executor *e, enum zinf_lane lane, uint64_t begin_ns,
                   uint64_t end_ns);
bool executor_failed(struct zinf_executor *e);
void executor_fail(struct zinf_executor *e, int code);
void executor_done(struct zinf_executor *e, uint32_t op, uint64_t begin_ns, uint64_t end_ns);

/* A lane of drive requests; all three in the lane's own thread. */
struct drive_lane;
int drive_lane_create(struct drive_lane **out, struct zinf_executor *e, enum zinf_lane number);
void drive_lane_run(struct drive_lane *lane);
void drive_lane_destroy(struct drive_lane *lane);

#endif

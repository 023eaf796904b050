/* run_log: log.jsonl (one object a step) and DeepSpeed's csv_monitor files. Inside this folder. */
#ifndef ZINF_RUN_LOG_H
#define ZINF_RUN_LOG_H

#include "train/score.h"

struct run_log;
/* Opens the log. Lines of steps up to `step` are kept and the log continues after them; 0: it
 * begins anew. */
int run_log_open(struct run_log **out, const struct zinf_run_options *options,
                 const struct zinf_config *config, uint64_t step);
/* The last step in the log of a run with these options; 0: there is none. */
uint64_t run_log_last(const struct zinf_run_options *options);
struct run_evaluation {
    const char *set; /* the part of the data; NULL: all */
    double loss, cross_entropy;
    uint64_t tokens;                      /* tokens that count in the loss */
    bool of_samples;                      /* tokens is the number of samples, each with a label */
    struct zinf_rewards rewards;          /* of preference pairs */
    const struct zinf_run_scores *scored; /* the metrics of scores; NULL: only the loss */
    double scores[ZINF_MOST_SCORES];
};
/* The evaluations and sample texts after a step. */
struct run_looks {
    const struct run_evaluation *evaluations; /* [n] */
    uint32_t n;                               /* 0: no evaluation was due */
    const char *samples; /* prompts and their continuations, as JSON; NULL: none were due */
};
/* Times of a step on one of several seats of the process; members as in the step's result. */
#define RUN_DRIVE_LANES 2 /* the first lanes: read, write */
struct run_seat_times {
    double lane_seconds[8];
    uint64_t lane_bytes[8];
    int64_t pageable_copies;
};
struct run_seats {
    const struct run_seat_times *times; /* [n] */
    uint32_t n;                         /* 0: there is one seat, whose times are in the result */
};
int run_log_step(struct run_log *log, const struct zinf_step_result *result,
                 const struct run_looks *looks, const struct run_seats *seats);
/* NULL is allowed. */
int run_log_close(struct run_log *log);

#endif

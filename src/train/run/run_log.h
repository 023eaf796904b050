/* run_log: log.jsonl (one object a step) and DeepSpeed's csv_monitor files. Inside this folder. */
#ifndef ZINF_RUN_LOG_H
#define ZINF_RUN_LOG_H

#include "train/score.h"

struct run_log;
/* What is there of steps up to step stays, and the log goes on behind it; 0: it begins anew. */
int run_log_open(struct run_log **out, const struct zinf_run_options *options,
                 const struct zinf_config *config, uint64_t step);
/* The last step that is in the log of such a run; 0: none is. */
uint64_t run_log_last(const struct zinf_run_options *options);
struct run_evaluation {
    const char *set; /* of which part of the data; NULL: of all */
    double loss;
    uint64_t tokens;                      /* that count */
    bool of_samples;                      /* they are samples, each with a label */
    struct zinf_rewards rewards;          /* of pairs */
    const struct zinf_run_scores *scored; /* NULL: the loss alone */
    double scores[ZINF_MOST_SCORES];
};
/* What was looked at after a step. */
struct run_looks {
    const struct run_evaluation *evaluations; /* [n] */
    uint32_t n;                               /* 0: no evaluation was due */
    const char *samples; /* prompts and what they led to, as JSON; NULL: none are due */
};
/* What a step took on one of several seats: as in the result. */
#define RUN_DRIVE_LANES 2 /* the first: read, write */
struct run_seat_times {
    double lane_seconds[8];
    uint64_t lane_bytes[8];
    int64_t pageable_copies;
};
struct run_seats {
    const struct run_seat_times *times; /* [n] */
    uint32_t n;                         /* 0: there is one seat, and the result says it all */
};
int run_log_step(struct run_log *log, const struct zinf_step_result *result,
                 const struct run_looks *looks, const struct run_seats *seats);
/* NULL is allowed. */
int run_log_close(struct run_log *log);

#endif

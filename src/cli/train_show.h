/*
 * train_show: what a training says of itself: a summary before it starts, progress, and a summary
 * and one JSON line at its end. Used by one thread, that of the run.
 */
#ifndef ZINF_CLI_TRAIN_SHOW_H
#define ZINF_CLI_TRAIN_SHOW_H

#include "cli/cli.h"
#include "cli/estimate/estimate.h"

struct train_show {
    /* Set by the caller; the session is borrowed. */
    enum cli_progress_mode mode;
    struct zinf_session *session;
    const struct speed_sources *sources; /* of the speeds that the plan goes by */
    int64_t every;                       /* plain lines: every so many steps */
    bool chart;
    bool shows_plan, json;   /* the table of memory; the line for programs, at a terminal too */
    const char *tensorboard; /* folder of event files, or NULL: as the configuration says */

    struct cli_progress progress;
    double *losses; /* of applied steps, on the heap */
    size_t n_losses, capacity;
    uint64_t n_steps, n_skipped, last_step; /* of this process; of the training */
    uint64_t begin_ns, tokens, drive_read, drive_written;
    double first_loss, last_loss, least_loss;
    bool collapsed; /* and it was said */
    /* The last of each part of the evaluation data, on the heap; tokens 0: there was none. */
    struct zinf_evaluation *evaluations;
    uint32_t n_evaluations;
    bool is_filled; /* filled says what RAM has that the configuration lets go to the drive */
    char filled[256];
    double predicted_seconds; /* of a step; 0: not known */
    const char *gpu;     /* of the first seat, borrowed from the trainer; NULL: the CPU computes */
    uint64_t planned[3]; /* device, host, drive bytes; on the host device two are RAM */
    struct zinf_run_best best;
    char *checkpoint;         /* the last one saved, on the heap */
    struct tb_writer *events; /* NULL: none */
};
struct zinf_run_events train_show_events(struct train_show *show);
/* After the run: its result where code is 0. stopped: by a signal. */
void train_show_end(struct train_show *show, int code, bool stopped);

/* train_summary.c. predict: in front of the run, so that its memory is not beside a trainer's. */
void train_summary_predict(struct train_show *show);
void train_summary_begin(const struct train_show *show, const struct zinf_trainer *trainer);
void train_summary_end(const struct train_show *show, bool stopped);
void train_summary_json(const struct train_show *show);
double train_summary_epochs(const struct train_show *show, uint64_t steps);

#endif

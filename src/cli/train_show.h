/*
 * train_show: what a training prints: a summary before it starts, progress, and at its end a
 * summary and one line of JSON. Used by the run's thread alone.
 */
#ifndef ZINF_CLI_TRAIN_SHOW_H
#define ZINF_CLI_TRAIN_SHOW_H

#include "cli/cli.h"
#include "cli/estimate/estimate.h"

struct train_show {
    /* Set by the caller. The session is borrowed. */
    enum cli_progress_mode mode;
    struct zinf_session *session;
    const struct speed_sources *sources; /* where the speeds of the plan are from */
    int64_t every;                       /* steps between plain lines */
    bool chart;
    bool shows_plan, json;   /* the table of memory; the JSON line even on a terminal */
    const char *tensorboard; /* folder of event files; NULL: as the configuration says */

    struct cli_progress progress;
    double *losses; /* of steps with an update, on the heap */
    size_t n_losses, capacity;
    /* n_steps and n_skipped of this process, last_step of the training */
    uint64_t n_steps, n_skipped, last_step;
    uint64_t begin_ns, tokens, drive_read, drive_written;
    double first_loss, last_loss, least_loss;
    bool collapsed; /* the message of a collapsed loss was printed */
    /* The latest result for each part of the evaluation data, on the heap; tokens 0: none yet. */
    struct zinf_evaluation *evaluations;
    uint32_t n_evaluations;
    bool is_filled; /* `filled` lists what is in RAM although the configuration allows the drive */
    char filled[256];
    double predicted_seconds;  /* of a step; 0: not known */
    double predicted_range[2]; /* by the drive's fastest and slowest rate; 0: not known */
    const char *gpu; /* of the first seat, borrowed from the trainer; NULL: the CPU computes */
    /* bytes of device, host and drive; on the host device the first two are RAM */
    uint64_t planned[3];     /* of this process */
    struct zinf_planned all; /* of all ranks */
    struct zinf_run_best best;
    char *checkpoint;         /* the last one that was saved, on the heap */
    struct tb_writer *events; /* NULL: none */
};
struct zinf_run_events train_show_events(struct train_show *show);
/* Call it after the run; it prints the result if code is 0. stopped: a signal has ended the run. */
void train_show_end(struct train_show *show, int code, bool stopped);

/* train_summary.c. train_summary_predict is called before the run, so that its memory is free when
 * the trainer is made. */
void train_summary_predict(struct train_show *show);
void train_summary_begin(const struct train_show *show, const struct zinf_trainer *trainer);
void train_summary_end(const struct train_show *show, bool stopped);
void train_summary_json(const struct train_show *show);
double train_summary_epochs(const struct train_show *show, uint64_t steps);

#endif

/*
 * plot: runs as pictures. A run is read from its output folder (log.jsonl, config.resolved.json,
 * ledger.txt) into arrays, one value a step; charts are inline SVG in one page that needs no
 * network, or characters in the terminal. One thread.
 */
#ifndef ZINF_CLI_PLOT_H
#define ZINF_CLI_PLOT_H

#include "cli/cli.h"

#define PLOT_LANES 6
extern const char *const plot_lanes[PLOT_LANES];

enum plot_column {
    PLOT_STEP,
    PLOT_LOSS,
    PLOT_NORM,
    PLOT_LR,
    PLOT_TOKENS,
    PLOT_SECONDS,
    PLOT_PREDICTED, /* NaN: not predicted */
    PLOT_SKIPPED,
    PLOT_READ, /* bytes of the drive */
    PLOT_WRITTEN,
    PLOT_LANE, /* busy seconds of lane i at PLOT_LANE + i */
    PLOT_COLUMNS = PLOT_LANE + PLOT_LANES,
};

#define PLOT_MAX_LINES 64
struct plot_memory { /* a line of the ledger */
    int tier;        /* device, host, drive */
    char what[48];
    uint64_t bytes;
};
#define PLOT_MAX_SETS 16
struct plot_set {                  /* data that the run was evaluated by */
    char name[ZINF_MOST_SET_NAME]; /* "": it has none */
    double *loss;                  /* [n]; NaN: not evaluated in this step */
};
struct plot_run {
    char *name; /* as it was given */
    size_t n;   /* steps */
    double *columns[PLOT_COLUMNS];
    struct plot_set sets[PLOT_MAX_SETS];
    int n_sets;         /* in the order of the log */
    double clip;        /* gradient_clipping; 0: off or not known */
    double batch;       /* sequences in a step; 0: not known */
    double micro_batch; /* the same for those at once */
    double steps;       /* that were asked for; 0: not known */
    double windows;     /* of the data; 0: not known */
    struct plot_memory memory[PLOT_MAX_LINES];
    int n_memory;
    double stalls[PLOT_LANES][PLOT_LANES]; /* seconds that one lane stood still for another */
};
/* path: an output folder, or a log. */
int plot_run_read(struct plot_run *run, const char *path);
void plot_run_fini(struct plot_run *run);
/* Mean of the last tenth of a column, at most 100 values, those that are not finite left out. */
double plot_run_last(const struct plot_run *run, enum plot_column column);
/* "eval_loss", "eval_NAME_loss": what a log and Hugging Face's Trainer call a set's loss; prefix:
 * "eval_", or "eval/" of event files. */
const char *plot_set_key(const struct plot_set *set, const char *prefix,
                         char out[ZINF_MOST_SET_NAME + 16]);
double plot_run_sum(const struct plot_run *run, enum plot_column column);

/* ---- plot_svg.c ---- */

struct plot_series {
    const char *name;
    const double *x, *y;
    size_t n;
    int color; /* 0..7 */
    enum { PLOT_LINE, PLOT_DASHED, PLOT_DOTS } style;
};
#define PLOT_MAX_SERIES 32
struct plot_chart {
    const char *title, *unit; /* unit "" or what values are in */
    struct plot_series series[PLOT_MAX_SERIES];
    int n;
    bool from_zero, may_be_log;
    double limit; /* a line across, such as where clipping begins; 0: none */
};
/* Leaves out series without two finite values; false: nothing was drawn. */
bool plot_svg_chart(FILE *out, const struct plot_chart *chart);
struct plot_bar {
    const char *name;
    double value;
    int color;
    char text[64];
};
void plot_svg_bars(FILE *out, const char *title, const struct plot_bar *bars, int n);
void plot_html_text(FILE *out, const char *text); /* escaped */

/* ---- plot_page.c ---- */
int plot_page_write(const struct plot_run *runs, int n, const char *path);

/* ---- plot_export.c ---- */
int plot_csv_write(const struct plot_run *run, const char *path);
/* Event files for TensorBoard: FOLDER, or FOLDER/NAME for each of several runs. */
int plot_events_write(const struct plot_run *run, const char *folder);
/* Trainer's trainer_state.json, whose log_history plotting tools read. Atomic. */
int plot_trainer_state_write(const struct plot_run *run, const char *path);

#endif

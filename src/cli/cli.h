/*
 * cli: the zinf command. Each subcommand is a file with one entry in the table of main.c. Results
 * go to standard output, progress and logs to standard error. Exit status: 0, 1 for a run that
 * failed, 2 for usage. Messages name the option or key and the remedy.
 */
#ifndef ZINF_CLI_H
#define ZINF_CLI_H

#include "api/session.h"

#include <stdio.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
};

struct cli_command {
    const char *name;
    const char *summary;               /* one line of `zinf help` */
    const char *usage;                 /* text of `zinf help NAME`: synopsis and every option */
    void (*print_more)(FILE *out);     /* what follows it there; NULL: nothing */
    int (*run)(int argc, char **argv); /* argv[0] is the command's name; returns CLI_ */
};
extern const struct cli_command cli_init, cli_train, cli_data, cli_eval, cli_generate,
    cli_gradients, cli_inspect, cli_config, cli_report, cli_bench, cli_export, cli_resume_info,
    cli_estimate, cli_plot, cli_verify, cli_doctor, cli_launch;

/* ---- options: one table a command ---- */

enum cli_option_kind {
    CLI_FLAG,    /* bool * */
    CLI_STRING,  /* const char ** */
    CLI_MAYBE,   /* const char **: a string after '=', or "" */
    CLI_STRINGS, /* struct zinf_words *: repeats, and takes words up to the next option */
    CLI_INT,     /* int64_t * */
    CLI_DOUBLE,  /* double * */
    CLI_SIZE,    /* uint64_t *: 4GiB */
};
struct cli_option {
    const char *name; /* "--steps" */
    enum cli_option_kind kind;
    void *value;
    double min, max; /* CLI_INT, CLI_DOUBLE: inclusive; both 0: any */
};
/* Accepts --name value and --name=value. positional (may be NULL) takes words that are no option.
 * -EINVAL with a sentence that names the option and the nearest known one. --help and -h return 1
 * after printing the command's usage. */
int cli_parse(const struct cli_command *command, const struct cli_option *options, int n_options,
              struct zinf_words *positional, int argc, char **argv);
void cli_print_usage(const struct cli_command *command, FILE *out);
/* Prints zinf_error() as "zinf NAME: ..." on standard error and returns status. */
int cli_error(const struct cli_command *command, int status);

/* ---- progress ---- */

enum cli_progress_mode {
    CLI_PROGRESS_AUTO, /* bar on a terminal, plain lines otherwise */
    CLI_PROGRESS_BAR,
    CLI_PROGRESS_PLAIN,
    CLI_PROGRESS_NONE,
};
int cli_progress_parse(const char *text, enum cli_progress_mode *out); /* bar, plain, none */
struct cli_progress {
    enum cli_progress_mode mode; /* resolved */
    uint64_t total, done, begin_ns, last_ns;
    uint64_t first; /* done before it began: the ETA leaves that out; set after begin */
    char label[32];
    struct cli_progress *outer; /* the bar that this one stands in for until it ends */
};
/* On standard error. With a bar, log lines are printed above it (zinf_log_set_sink). */
void cli_progress_begin(struct cli_progress *p, enum cli_progress_mode mode, const char *label,
                        uint64_t total);
/* text: the numbers of this step. A bar redraws at most 10 times a second, with ETA; plain prints
 * a line when print is true. */
void cli_progress_update(struct cli_progress *p, uint64_t done, const char *text, bool print);
/* Every begin needs its end: p is redrawn by log lines until then. */
void cli_progress_end(struct cli_progress *p);

/* A line chart of n values in the terminal: rows lines of plot, cols characters wide in all, the
 * range of values at the left and 1 .. n below. Values that are not finite are left out. */
void cli_chart(FILE *out, const char *title, const double *values, size_t n, int rows, int cols);

/* Whether the terminal's characters are UTF-8, by LC_ALL, LC_CTYPE and LANG. */
bool cli_utf8(void);

/* "1,234,567"; "23.7 min": return out. */
const char *cli_count(char out[32], uint64_t n);
const char *cli_duration(char out[32], double seconds);
/* Characters in a line of out: COLUMNS, the terminal's, or 80. */
int cli_columns(FILE *out);
/* Lines of a table; what is too long for the terminal goes on, indented, in the next line. A file
 * gets them as they are. */
void cli_print_lines(FILE *out, const char *text);
/* A label and a text behind it, cut at words where the line ends. */
void cli_print_field(FILE *out, const char *label, int label_cols, const char *text);

/* The nearest of n words to word, or NULL if none is near (edit distance). */
const char *cli_nearest(const char *word, const char *const *words, size_t n);

#endif

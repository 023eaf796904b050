/*
 * cli: the zinf command. Each subcommand is a file with one entry in the table of main.c. Results
 * go to standard output, progress and log lines to standard error. Exit status: 0, 1 if a run
 * failed, 2 for wrong usage. Messages name the option or key and a remedy.
 */
#ifndef ZINF_CLI_H
#define ZINF_CLI_H

#include "api/rows.h"
#include "api/session.h"
#include "base/json.h"

#include <stdio.h>

enum {
    CLI_OK = 0,
    CLI_FAILED = 1,
    CLI_USAGE = 2,
};

/* A call of a command: the struct that its option rows fill, the words that are no options, and a
 * session made of those options that are library options; NULL: the command has none. */
struct cli_call {
    const struct cli_command *command;
    void *options;
    struct zinf_words words;
    struct zinf_setting *settings; /* of the session; room for every argument */
    size_t n_settings;
    struct zinf_job *looked_at; /* the settings read into a job, only to find errors */
    struct zinf_session *session;
};
struct cli_command {
    const char *name;
    const char *summary; /* its line in `zinf help` */
    const char *usage;   /* synopsis and description in `zinf help NAME`; options follow */
    const struct option_group *groups; /* its options; NULL: none */
    void (*print_more)(FILE *out);     /* prints more behind the options; NULL: nothing */
    size_t bytes;                      /* size of the struct that offsets of groups refer to */
    const void *usual;                 /* its initial content; NULL: zeros */
    bool takes_words;
    int (*check)(struct cli_call *call); /* -EINVAL: wrong usage. NULL: no check */
    /* returns an exit status, or -errno, whose message is then printed */
    int (*work)(struct cli_call *call);
    int (*run)(int argc, char **argv); /* set for a command that does all of this itself */
};
/* Parses the options, checks them and does the work. argv[0] is the command's name. Returns the
 * exit status. */
int cli_run(const struct cli_command *command, int argc, char **argv);
extern const struct cli_command cli_init, cli_train, cli_data, cli_eval, cli_embed, cli_generate,
    cli_serve, cli_gradients, cli_inspect, cli_config, cli_report, cli_bench, cli_export,
    cli_resume_info, cli_estimate, cli_plot, cli_verify, cli_doctor, cli_launch;

/* ---- options: rows, by groups (api/options.h) ---- */

#define CLI_NO_ROW                                                                                 \
    {                                                                                              \
        .flag = NULL                                                                               \
    }
/* Rows of the library's options (api/rows.h). */
#define CLI_DOOR(rows_)                                                                            \
    {                                                                                              \
        .rows = rows_, .door = true                                                                \
    }
#define CLI_NO_GROUP                                                                               \
    {                                                                                              \
        .rows = NULL                                                                               \
    }
#define CLI_GROUPS(...)                                                                            \
    (const struct option_group[])                                                                  \
    {                                                                                              \
        __VA_ARGS__, CLI_NO_GROUP                                                                  \
    }
extern const struct option cli_json[]; /* --json, a bool */
extern const char *const cli_dtypes[]; /* fp32, bf16, fp16 */
/* Sets the usual values, then fills the call's options, settings and words from the arguments.
 * Takes --name value and --name=value. -EINVAL: the message names the option and the nearest known
 * one. 1: --help or -h was given and the usage printed. */
int cli_parse(struct cli_call *call, int argc, char **argv);
void cli_print_usage(const struct cli_command *command, FILE *out);
/* Prints the option rows for programs, a line each with tabs between: flag, value, possible words
 * with blanks between (and ... if other values are allowed), default, key of the configuration,
 * manual paragraph with \n for line ends. */
void cli_print_rows(const struct cli_command *command, FILE *out);
/* -EINVAL: option model or data is missing. */
int cli_need_data(const struct zinf_session *session);
/* Prints zinf_error() as "zinf NAME: ..." on standard error and returns status. */
int cli_error(const struct cli_command *command, int status);

/* ---- JSON ---- */

/* Prints a value and frees it; NULL: there was no memory for it. */
int cli_print_json(cJSON *root);
int cli_print_json_line(cJSON *root);
/* A new object at the end of a list; NULL, which cJSON's functions accept, if there is no memory.
 */
cJSON *cli_json_append(cJSON *list);

/* ---- progress ---- */

enum cli_progress_mode {
    CLI_PROGRESS_AUTO, /* a bar on a terminal, else plain lines */
    CLI_PROGRESS_BAR,
    CLI_PROGRESS_PLAIN,
    CLI_PROGRESS_NONE,
};
extern const char *const cli_progress_words[];
struct cli_progress {
    enum cli_progress_mode mode; /* resolved */
    uint64_t total, done, begin_ns, last_ns;
    uint64_t first; /* work done before begin, which the ETA leaves out; set it after begin */
    char label[32];
    struct cli_progress *outer; /* the bar that this one replaces until it ends */
};
/* Begins progress on standard error. With a bar, log lines are printed above it
 * (zinf_log_set_sink). */
void cli_progress_begin(struct cli_progress *p, enum cli_progress_mode mode, const char *label,
                        uint64_t total);
/* text: the figures of this step. A bar is redrawn at most 10 times a second, with an ETA. Without
 * one a line is printed if print is true. */
void cli_progress_update(struct cli_progress *p, uint64_t done, const char *text, bool print);
/* Must follow every begin, since log lines redraw p until then. */
void cli_progress_end(struct cli_progress *p);

/* Draws a line chart of n values: `rows` lines of plot, `cols` characters wide in all, with the
 * range at the left and 1 .. n below. Values that are not finite are left out. */
void cli_chart(FILE *out, const char *title, const double *values, size_t n, int rows, int cols);

/* Whether the terminal shows UTF-8, by LC_ALL, LC_CTYPE and LANG. */
bool cli_utf8(void);

/* Write texts such as "1,234,567" and "23.7 min" to out and return it. */
const char *cli_count(char out[32], uint64_t n);
const char *cli_duration(char out[32], double seconds);
/* Width of out in characters: COLUMNS, the terminal's width, or 80. */
int cli_columns(FILE *out);
/* Prints lines; on a terminal a line that is too long is continued, indented, on the next. */
void cli_print_lines(FILE *out, const char *text);
/* Prints a label and a text, which is broken between words. */
void cli_print_field(FILE *out, const char *label, int label_cols, const char *text);

#endif

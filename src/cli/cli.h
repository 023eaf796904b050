/*
 * cli: the zinf command. Each subcommand is a file with one entry in the table of main.c. Results
 * go to standard output, progress and logs to standard error. Exit status: 0, 1 for a run that
 * failed, 2 for usage. Messages name the option or key and the remedy.
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

/* A command that was called: what its rows have filled, words that are no options, and the session
 * that those of its options have opened which are the door's; NULL: it has none of these. */
struct cli_call {
    const struct cli_command *command;
    void *options;
    struct zinf_words words;
    struct zinf_setting *settings; /* of the session; room for as many as there are arguments */
    size_t n_settings;
    struct zinf_job *looked_at; /* what the settings say: here for their errors alone */
    struct zinf_session *session;
};
struct cli_command {
    const char *name;
    const char *summary; /* one line of `zinf help` */
    const char *usage;   /* of `zinf help NAME`: synopsis and what it does; options follow */
    const struct option_group *groups; /* the options that it takes; NULL: none */
    void (*print_more)(FILE *out);     /* what follows them there; NULL: nothing */
    size_t bytes;                      /* of the struct that the groups count from */
    const void *usual;                 /* what that begins as; NULL: zeros */
    bool takes_words;
    int (*check)(struct cli_call *call); /* -EINVAL: a wrong use. NULL: none is */
    int (*work)(struct cli_call *call);  /* an exit status, or < 0: a failure, to be printed */
    int (*run)(int argc, char **argv);   /* of a command that does all of this by itself */
};
/* Parses, checks and works; argv[0] is the command's name. The exit status. */
int cli_run(const struct cli_command *command, int argc, char **argv);
extern const struct cli_command cli_init, cli_train, cli_data, cli_eval, cli_embed, cli_generate,
    cli_serve, cli_gradients, cli_inspect, cli_config, cli_report, cli_bench, cli_export,
    cli_resume_info, cli_estimate, cli_plot, cli_verify, cli_doctor, cli_launch;

/* ---- options: rows, by groups (api/options.h) ---- */

#define CLI_NO_ROW                                                                                 \
    {                                                                                              \
        .flag = NULL                                                                               \
    }
/* Rows of the door (api/rows.h). */
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
/* Fills the call's options, which its command's groups count from, first with the usual values, its
 * settings and its words. Takes --name value and --name=value. -EINVAL with a sentence that names
 * the option and the nearest known one. --help and -h return 1 after printing the command's usage.
 */
int cli_parse(struct cli_call *call, int argc, char **argv);
void cli_print_usage(const struct cli_command *command, FILE *out);
/* The rows for programs, a line each, with tabs between: flag, value, its words with blanks between
 * (and ... behind, where other values are good too), what is taken without it, key of the
 * configuration, paragraph of the manual in which \n stands for the end of a line. */
void cli_print_rows(const struct cli_command *command, FILE *out);
/* -EINVAL: option model or data is missing. */
int cli_need_data(const struct zinf_session *session);
/* Prints zinf_error() as "zinf NAME: ..." on standard error and returns status. */
int cli_error(const struct cli_command *command, int status);

/* ---- JSON ---- */

/* Print it and free it; NULL: there was no memory for it. */
int cli_print_json(cJSON *root);
int cli_print_json_line(cJSON *root);
/* A new object at the end of a list, or NULL, which cJSON takes as well. */
cJSON *cli_json_append(cJSON *list);

/* ---- progress ---- */

enum cli_progress_mode {
    CLI_PROGRESS_AUTO, /* bar on a terminal, plain lines otherwise */
    CLI_PROGRESS_BAR,
    CLI_PROGRESS_PLAIN,
    CLI_PROGRESS_NONE,
};
extern const char *const cli_progress_words[];
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

#endif

/* plot: curves of one or several runs, as a page and in the terminal, and their logs for others. */
#include "base/apart.h"
#include "cli/plot/plot.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define MAX_RUNS 16

struct plot_options {
    const char *output, *csv, *tensorboard;
    bool no_charts;
};

/* ---- in the terminal ---- */

static void show_values(const struct plot_run *run, const char *what, const double *column,
                        int cols)
{
    char title[256];
    double *values = malloc(run->n * sizeof *values);
    size_t n = 0;
    for (size_t i = 0; values && i < run->n; i++)
        if (isfinite(column[i]))
            values[n++] = column[i];
    snprintf(title, sizeof title, "%s: %s", run->name, what);
    if (n > 1)
        cli_chart(stdout, title, values, n, 8, cols);
    free(values);
}

static void show_lanes(const struct plot_run *run)
{
    double seconds = plot_run_sum(run, PLOT_SECONDS);
    char text[256] = "lanes were busy for";
    for (int i = 0; i < PLOT_LANES; i++) {
        size_t used = strlen(text);
        snprintf(text + used, sizeof text - used, "%s %s %.0f %%", i ? "," : "", plot_lanes[i],
                 seconds > 0 ? 100 * plot_run_sum(run, PLOT_LANE + i) / seconds : 0);
    }
    strcat(text, " of the steps");
    printf("%s:\n", run->name);
    cli_print_field(stdout, "", 0, text);
}

static void show(const struct plot_run *runs, int n)
{
    int cols = cli_columns(stdout);
    cols = cols > 120 ? 120 : cols;
    for (int i = 0; i < n; i++) {
        const struct plot_run *run = &runs[i];
        show_values(run, "loss", run->columns[PLOT_LOSS], cols);
        for (int k = 0; k < run->n_sets; k++) {
            char what[ZINF_MOST_SET_NAME + 48];
            snprintf(what, sizeof what, "evaluation%s%s, by their order",
                     *run->sets[k].name ? " " : "", run->sets[k].name);
            show_values(run, what, run->sets[k].loss, cols);
        }
        show_values(run, "learning rate", run->columns[PLOT_LR], cols);
        show_values(run, "gradient norm", run->columns[PLOT_NORM], cols);
        show_values(run, "seconds a step", run->columns[PLOT_SECONDS], cols);
        show_lanes(&runs[i]);
    }
}

/* ---- the command ---- */

/* Several runs lie beside each other, where TensorBoard shows them by name. */
static int write_events(const struct plot_run *runs, int n, const char *folder)
{
    int code = 0;
    for (int i = 0; i < n && !code; i++) {
        const char *slash = strrchr(runs[i].name, '/');
        char *path =
            n > 1 ? zinf_path_join(folder, slash ? slash + 1 : runs[i].name) : strdup(folder);
        code = path ? plot_events_write(&runs[i], path) : -ENOMEM;
        free(path);
    }
    return code;
}

/* plot.html in the first run's folder, or beside a log. */
static char *page_path(const struct plot_options *o, const char *first)
{
    const char *dot = strrchr(first, '.');
    if (o->output)
        return strdup(o->output);
    if (!dot || strcmp(dot, ".jsonl"))
        return zinf_path_join(first, "plot.html");
    char *path = malloc(strlen(first) + 8);
    if (path)
        sprintf(path, "%.*s.html", (int)(dot - first), first);
    return path;
}

/* A page or table is never written over a log. */
static int check_outputs(const struct plot_options *o, const struct zinf_words *paths,
                         const char *page)
{
    struct zinf_origins origins = {NULL, 0};
    char *logs[MAX_RUNS] = {NULL};
    int code = 0;
    for (int i = 0; !code && i < paths->n; i++) {
        logs[i] = zinf_path_join(paths->items[i], "log.jsonl");
        bool is_folder = logs[i] && !access(logs[i], F_OK);
        code = zinf_origins_add(&origins, "RUN", is_folder ? logs[i] : paths->items[i]);
    }
    if (!code)
        code = zinf_apart_check("--output", page, ZINF_WRITTEN_FILE, &origins);
    if (!code)
        code = zinf_apart_check("--csv", o->csv, ZINF_WRITTEN_FILE, &origins);
    for (int i = 0; i < paths->n; i++)
        free(logs[i]);
    zinf_origins_free(&origins);
    return code;
}

static int plot(const struct plot_options *o, const struct zinf_words *paths)
{
    struct plot_run *runs = calloc(MAX_RUNS, sizeof *runs); /* too large for a small stack */
    int n = 0, code = 0;
    char *page = page_path(o, paths->items[0]);
    code = page && runs ? check_outputs(o, paths, page) : zinf_fail(-ENOMEM, "no memory to plot");
    for (; n < paths->n && !code; n += !code)
        code = plot_run_read(&runs[n], paths->items[n]);
    if (!code && o->csv)
        code = plot_csv_write(&runs[0], o->csv);
    if (!code && o->tensorboard)
        code = write_events(runs, n, o->tensorboard);
    if (!code)
        code = plot_page_write(runs, n, page);
    if (!code && !o->no_charts && !(o->csv && !strcmp(o->csv, "-")))
        show(runs, n);
    if (!code)
        zinf_log(ZINF_LOG_INFO, "the page is %s", page);
    for (int i = 0; i < n; i++)
        plot_run_fini(&runs[i]);
    free(runs);
    free(page);
    return code;
}

static const char usage[] =
    "usage: zinf plot RUN... [options]\n"
    "\n"
    "Draws loss, evaluation, learning rate, gradient norm, step times beside the\n"
    "predicted ones, lanes, stalls, memory and the drive: as one HTML page that needs\n"
    "nothing else, and in the terminal. RUN is the --output of a training, or a log.\n";

#define AT(field) .offset = offsetof(struct plot_options, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--output", TEXT, AT(output), "FILE", "the page", .otherwise = "RUN/plot.html"),
    OPTION("--csv", TEXT, AT(csv), "FILE", "the log of one run as CSV; - for standard output"),
    OPTION("--tensorboard", TEXT, AT(tensorboard), "DIR", "event files for TensorBoard"),
    OPTION("--no-charts", FLAG, AT(no_charts), NULL, "nothing in the terminal"),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    const struct plot_options *o = call->options;
    const int n = call->words.n;
    if (!n)
        return zinf_fail(-EINVAL, "a RUN is needed: the --output folder of a training, or a log");
    if (n > MAX_RUNS)
        return zinf_fail(-EINVAL, "at most %d runs fit one page", MAX_RUNS);
    return o->csv && n > 1 ? zinf_fail(-EINVAL, "--csv takes one run") : 0;
}

static int work(struct cli_call *call)
{
    return plot(call->options, &call->words);
}

const struct cli_command cli_plot = {
    .name = "plot",
    .summary = "curves of runs, as a page and in the terminal",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}),
    .bytes = sizeof(struct plot_options),
    .takes_words = true,
    .check = check,
    .work = work,
};

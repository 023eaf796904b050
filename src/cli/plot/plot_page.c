/*
 * plot_page: one HTML file with everything in it: style, numbers, pictures. No script and nothing
 * from a network, so that it opens from a mail as well as from a server without one.
 */
#include "cli/plot/plot.h"

#include <math.h>
#include <stdlib.h>

#define MAX_COLORS 8

static const char style[] =
    ":root{color-scheme:light dark;--bg:#fff;--card:#f6f7f9;--text:#1c2024;--soft:#5b6570;"
    "--line:#d5dae0;--c0:#2563c9;--c1:#c2410c;--c2:#15803d;--c3:#8b3fbf;--c4:#b0860b;--c5:#0e7f8c;"
    "--c6:#be2f5f;--c7:#64748b}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171a;--card:#1d2125;--text:#e8eaed;"
    "--soft:#9aa4ae;--line:#363d44;--c0:#6ea8fe;--c1:#fb923c;--c2:#4ade80;--c3:#c792ea;"
    "--c4:#facc15;--c5:#22d3ee;--c6:#f472b6;--c7:#94a3b8}}\n"
    "*{box-sizing:border-box}body{margin:0;padding:20px;background:var(--bg);color:var(--text);"
    "font:15px/1.45 system-ui,sans-serif}\n"
    "h1{font-size:20px;margin:0 0 12px}h2{font-size:16px;margin:24px 0 10px}\n"
    ".grid{display:grid;gap:14px;grid-template-columns:repeat(auto-fill,minmax(min(100%,400px),1fr)"
    ")"
    "}\n"
    "figure{margin:0;padding:12px;background:var(--card);border-radius:8px;min-width:0}\n"
    "figcaption{font-weight:600;margin-bottom:6px}figcaption small{font-weight:400;"
    "color:var(--soft);margin-left:8px}\n"
    "svg{width:100%;height:auto;display:block;font:12px system-ui,sans-serif}\n"
    "svg text{fill:var(--soft)}text.y,text.size{text-anchor:end}text.x{text-anchor:middle}"
    "text.size{text-anchor:start}text.name{fill:var(--text)}\n"
    "path.grid{stroke:var(--line);stroke-width:.6}path.axis{stroke:var(--soft);fill:none}\n"
    "path.line{fill:none;stroke-width:1.6;stroke-linejoin:round}path.thin{stroke-width:1}"
    "path.dashed{stroke-dasharray:6 4}path.band{stroke:none;opacity:.18}\n"
    "path.limit{stroke:var(--text);stroke-dasharray:2 3;fill:none}\n"
    ".legend{margin:8px 0 0;font-size:13px;color:var(--soft)}.legend span{margin-right:14px;"
    "white-space:nowrap}.legend i{display:inline-block;width:18px;height:0;margin-right:6px;"
    "vertical-align:middle;border-top:3px solid}\n"
    ".legend i.dashed{border-top-style:dashed}.legend i.dots{border-top-width:1px}"
    ".legend i.dots::after{content:\"\";display:block;width:7px;height:7px;margin:-4px 0 0 5px;"
    "border-radius:50%;background:currentColor}\n"
    ".scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "th,td{padding:4px 14px 4px 0;text-align:right;white-space:nowrap;border-bottom:1px solid "
    "var(--line)}th{color:var(--soft);font-weight:500}th:first-child,td:first-child"
    "{text-align:left}\n"
    "@media(max-width:520px){body{padding:12px}svg{font-size:14px}text.name{font-size:12px}}\n"
    "footer{margin-top:24px;color:var(--soft);font-size:13px}\n";

static void write_style(FILE *out)
{
    fprintf(out, "<style>\n%s", style);
    for (int i = 0; i < MAX_COLORS; i++)
        fprintf(out,
                "path.line.c%d{stroke:var(--c%d)}path.band.c%d,.dot.c%d,.bar.c%d{fill:var(--c%d)}"
                "i.c%d{color:var(--c%d);border-color:currentColor}\n",
                i, i, i, i, i, i, i, i);
    fputs("</style>\n", out);
}

/* ---- numbers ---- */

static void cell(FILE *out, const char *text)
{
    fputs("<td>", out);
    plot_html_text(out, text);
    fputs("</td>", out);
}

static void number_cell(FILE *out, const char *format, double value)
{
    char text[64] = "";
    if (isfinite(value))
        snprintf(text, sizeof text, format, value);
    cell(out, text);
}

static double least_eval(const struct plot_run *run)
{
    double least = NAN;
    for (size_t i = 0; run->n_sets && i < run->n; i++)
        least = fmin(least, run->sets[0].loss[i]); /* fmin leaves NaN out */
    return least;
}

static void write_row(FILE *out, const struct plot_run *run)
{
    char text[48], size[24];
    double seconds = plot_run_sum(run, PLOT_SECONDS), tokens = plot_run_sum(run, PLOT_TOKENS);
    fputs("<tr>", out);
    cell(out, run->name);
    number_cell(out, "%.0f", run->columns[PLOT_STEP][run->n - 1]);
    number_cell(out, "%.4f", plot_run_last(run, PLOT_LOSS));
    number_cell(out, "%.4f", least_eval(run));
    cell(out, cli_count(text, (uint64_t)tokens));
    cell(out, cli_count(text, (uint64_t)(seconds > 0 ? tokens / seconds : 0)));
    cell(out, cli_duration(text, plot_run_last(run, PLOT_SECONDS)));
    cell(out, cli_duration(text, seconds));
    number_cell(out, "%.0f", plot_run_sum(run, PLOT_SKIPPED));
    cell(out, zinf_size_format(size, sizeof size, (uint64_t)plot_run_sum(run, PLOT_WRITTEN)));
    fputs("</tr>\n", out);
}

static void write_numbers(FILE *out, const struct plot_run *runs, int n)
{
    fputs("<div class=\"scroll\"><table><tr><th>run</th><th>steps</th><th>loss at the end</th>"
          "<th>best evaluation</th><th>tokens</th><th>tokens/s</th><th>a step</th><th>all "
          "steps</th><th>skipped</th><th>drive written</th></tr>\n",
          out);
    for (int i = 0; i < n; i++)
        write_row(out, &runs[i]);
    fputs("</table></div>\n", out);
}

/* ---- charts ---- */

static void add_values(struct plot_chart *c, const struct plot_run *run, const char *name,
                       const double *values, int color, int how)
{
    if (c->n == PLOT_MAX_SERIES)
        return;
    c->series[c->n] = (struct plot_series){.name = name,
                                           .x = run->columns[PLOT_STEP],
                                           .y = values,
                                           .n = run->n,
                                           .color = color % MAX_COLORS};
    c->series[c->n++].style = how;
}

static void add(struct plot_chart *c, const struct plot_run *run, const char *name,
                enum plot_column column, int color, int how)
{
    add_values(c, run, name, run->columns[column], color, how);
}

static void chart_of_all(FILE *out, const struct plot_run *runs, int n, const char *title,
                         const char *unit, enum plot_column column)
{
    struct plot_chart c = {.title = title, .unit = unit, .may_be_log = column != PLOT_LR};
    for (int i = 0; i < n; i++) {
        add(&c, &runs[i], runs[i].name, column, i, PLOT_LINE);
        if (column == PLOT_NORM && runs[i].clip > c.limit)
            c.limit = runs[i].clip;
    }
    plot_svg_chart(out, &c);
}

static void loss_chart(FILE *out, const struct plot_run *runs, int n)
{
    struct plot_chart c = {.title = "Loss", .unit = "points: evaluation"};
    char names[PLOT_MAX_SERIES][96 + ZINF_MOST_SET_NAME];
    for (int i = 0; i < n; i++)
        add(&c, &runs[i], runs[i].name, PLOT_LOSS, i, PLOT_LINE);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < runs[i].n_sets && c.n < PLOT_MAX_SERIES; k++) {
            const struct plot_set *set = &runs[i].sets[k];
            snprintf(names[c.n], sizeof names[c.n], "%.80s, evaluation%s%s", runs[i].name,
                     *set->name ? " " : "", set->name);
            add_values(&c, &runs[i], names[c.n], set->loss, n > 1 ? i : k + 1, PLOT_DOTS);
        }
    plot_svg_chart(out, &c);
}

static void prediction_chart(FILE *out, const struct plot_run *run)
{
    struct plot_chart c = {.title = "Seconds a step",
                           .unit = "measured and predicted",
                           .from_zero = true,
                           .may_be_log = true};
    add(&c, run, "measured", PLOT_SECONDS, 0, PLOT_LINE);
    add(&c, run, "predicted", PLOT_PREDICTED, 1, PLOT_DASHED);
    plot_svg_chart(out, &c);
}

/* Share of the step that each lane was busy. */
static void lanes_chart(FILE *out, const struct plot_run *run)
{
    static const char *const names[PLOT_LANES] = {"drive reads", "drive writes", "to the device",
                                                  "to the host", "device",       "CPU"};
    struct plot_chart c = {.title = "Use of lanes", .unit = "% of the step", .from_zero = true};
    double *shares = calloc(PLOT_LANES * run->n, sizeof *shares);
    for (int lane = 0; shares && lane < PLOT_LANES; lane++) {
        double *share = shares + (size_t)lane * run->n, most = 0;
        for (size_t i = 0; i < run->n; i++) {
            double busy = run->columns[PLOT_LANE + lane][i] / run->columns[PLOT_SECONDS][i];
            share[i] = 100 * fmin(busy, 1); /* more where an evaluation came between */
            most = fmax(most, share[i]);
        }
        if (most < 0.5)
            continue;
        add(&c, run, names[lane], PLOT_LANE, lane, PLOT_LINE);
        c.series[c.n - 1].y = share;
    }
    plot_svg_chart(out, &c);
    free(shares);
}

static void drive_chart(FILE *out, const struct plot_run *run)
{
    struct plot_chart c = {.title = "Drive", .unit = "bytes a step", .from_zero = true};
    if (plot_run_sum(run, PLOT_READ) + plot_run_sum(run, PLOT_WRITTEN) <= 0)
        return;
    add(&c, run, "read", PLOT_READ, 0, PLOT_LINE);
    add(&c, run, "written", PLOT_WRITTEN, 1, PLOT_LINE);
    plot_svg_chart(out, &c);
}

#define MAX_BARS 8

static int by_value(const void *a, const void *b)
{
    double x = ((const struct plot_bar *)a)->value, y = ((const struct plot_bar *)b)->value;
    return x < y ? 1 : x > y ? -1 : 0;
}

static void stall_bars(FILE *out, const struct plot_run *run)
{
    struct plot_bar bars[PLOT_LANES * PLOT_LANES];
    char names[PLOT_LANES * PLOT_LANES][32];
    int n = 0;
    for (int i = 0; i < PLOT_LANES; i++)
        for (int j = 0; j < PLOT_LANES; j++) {
            if (run->stalls[i][j] <= 0)
                continue;
            snprintf(names[n], sizeof names[n], "%s waits for %s", plot_lanes[i], plot_lanes[j]);
            bars[n] = (struct plot_bar){.name = names[n], .value = run->stalls[i][j], .color = i};
            cli_duration(bars[n].text, run->stalls[i][j]);
            n++;
        }
    qsort(bars, (size_t)n, sizeof *bars, by_value);
    if (n)
        plot_svg_bars(out, "Stalls, all steps together", bars, n < MAX_BARS ? n : MAX_BARS);
}

static void memory_bars(FILE *out, const struct plot_run *run)
{
    static const char *const tiers[] = {"Device memory", "RAM", "Drive"};
    for (int tier = 0; tier < 3; tier++) {
        struct plot_bar bars[PLOT_MAX_LINES];
        char title[64], size[24];
        uint64_t total = 0;
        int n = 0;
        for (int i = 0; i < run->n_memory; i++) {
            const struct plot_memory *m = &run->memory[i];
            if (m->tier != tier)
                continue;
            total += m->bytes;
            bars[n] = (struct plot_bar){.name = m->what, .value = (double)m->bytes, .color = tier};
            zinf_size_format(bars[n].text, sizeof bars[n].text, m->bytes);
            n++;
        }
        qsort(bars, (size_t)n, sizeof *bars, by_value);
        snprintf(title, sizeof title, "%s: %s", tiers[tier],
                 zinf_size_format(size, sizeof size, total));
        if (n)
            plot_svg_bars(out, title, bars, n < MAX_BARS ? n : MAX_BARS);
    }
}

static void write_page(FILE *out, const struct plot_run *runs, int n)
{
    fputs("<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n<meta "
          "name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n<link rel=\"icon\" "
          "href=\"data:,\">\n<title>",
          out);
    plot_html_text(out, runs[0].name);
    fprintf(out, "%s</title>\n", n > 1 ? " and others" : "");
    write_style(out);
    fputs("</head><body>\n<h1>", out);
    for (int i = 0; i < n; i++) {
        fputs(i ? ", " : "", out);
        plot_html_text(out, runs[i].name);
    }
    fputs("</h1>\n", out);
    write_numbers(out, runs, n);
    fputs("<h2>Training</h2>\n<div class=\"grid\">\n", out);
    loss_chart(out, runs, n);
    chart_of_all(out, runs, n, "Learning rate", "", PLOT_LR);
    chart_of_all(out, runs, n, "Gradient norm", "dotted: clipping", PLOT_NORM);
    fputs("</div>\n", out);
    for (int i = 0; i < n; i++) {
        fputs("<h2>Machine: ", out);
        plot_html_text(out, runs[i].name);
        fputs("</h2>\n<div class=\"grid\">\n", out);
        prediction_chart(out, &runs[i]);
        lanes_chart(out, &runs[i]);
        drive_chart(out, &runs[i]);
        stall_bars(out, &runs[i]);
        memory_bars(out, &runs[i]);
        fputs("</div>\n", out);
    }
    fputs("<footer>Made by zinf plot.</footer>\n</body></html>\n", out);
}

int plot_page_write(const struct plot_run *runs, int n, const char *path)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return zinf_fail(-ENOMEM, "no memory for the page");
    write_page(out, runs, n);
    int code = fclose(out) ? zinf_fail(-ENOMEM, "no memory for the page")
                           : zinf_file_write_atomic(path, text, bytes);
    free(text);
    return code;
}

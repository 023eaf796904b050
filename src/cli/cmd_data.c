/*
 * data: what a training would be fed. Which format the rows have, what is cut or left out, how long
 * samples are, and the first of them as tokens with those that count.
 */
#include "cli/cli.h"
#include "cli/data_show.h"

#include <stdlib.h>
#include <unistd.h>

#define LABEL_COLS 12

struct data_command {
    enum { COLOR_AUTO, COLOR_ALWAYS, COLOR_NEVER } color;
    int64_t n_samples, batch;
    bool json;
};

static const char *const colors[] = {"auto", "always", "never", NULL};

static bool has_color(const struct data_command *o)
{
    return o->color == COLOR_AUTO ? isatty(STDOUT_FILENO) && !getenv("NO_COLOR")
                                  : o->color == COLOR_ALWAYS;
}

/* ---- for the eye ---- */

static void say(const char *label, const char *text)
{
    cli_print_field(stdout, label, LABEL_COLS, text);
}

static void say_windows(const struct zinf_session *s)
{
    char text[256], windows[32];
    snprintf(text, sizeof text, "%s of %lld tokens",
             cli_count(windows, zinf_dataset_n_windows(s->data)), (long long)s->seq_len);
    say("windows", text);
}

/* Percent of the rows that no token is in. */
static double padding(uint64_t tokens, uint64_t rows)
{
    return rows ? 100 * (1 - (double)tokens / (double)rows) : 0;
}

/* What is computed for nothing: of windows that are packed; or of those of one sample each, by what
 * a training can do about it. */
static int say_padding(const struct zinf_session *s, const struct data_command *o)
{
    char text[256];
    struct zinf_samples_rows rows;
    if (s->job.pack) {
        const uint64_t room = zinf_dataset_n_windows(s->data) * (uint64_t)s->seq_len;
        snprintf(text, sizeof text, "%.1f %%", padding(zinf_dataset_n_tokens(s->data), room));
        say("padding", text);
        return 0;
    }
    int code = zinf_samples_count_rows(zinf_dataset_samples(s->data), (uint64_t)o->batch,
                                       ZINF_ROWS_MULTIPLE, &rows);
    if (code)
        return code;
    snprintf(text, sizeof text, "%.1f %% of whole windows (--pad-to max)",
             padding(rows.tokens, rows.whole));
    say("padding", text);
    snprintf(text, sizeof text, "%.1f %% where steps of %lld are as long as their longest",
             padding(rows.tokens, rows.longest), (long long)o->batch);
    say("", text);
    snprintf(text, sizeof text, "%.1f %% with --group-by-length",
             padding(rows.tokens, rows.grouped));
    say("", text);
    return 0;
}

static const int percents[] = {50, 85, 90, 95, 99, 100};
#define N_PERCENTS (sizeof percents / sizeof *percents)

static int say_percentiles(const struct zinf_samples *samples)
{
    char ids[256], sources[256];
    size_t used = 0, used_sources = 0;
    for (size_t i = 0; i < N_PERCENTS; i++) {
        uint32_t n, n_source;
        int code = zinf_samples_percentile(samples, percents[i], &n, &n_source);
        if (code)
            return code;
        const char *between = i ? ", " : "";
        used +=
            (size_t)snprintf(ids + used, sizeof ids - used, "%s%d %%: %u", between, percents[i], n);
        used_sources += (size_t)snprintf(sources + used_sources, sizeof sources - used_sources,
                                         "%s%d %%: %u", between, percents[i], n_source);
    }
    say("percentiles", ids);
    if (zinf_samples_facts(samples)->longest_source)
        say("of sources", sources);
    return 0;
}

static int show_sample(const struct zinf_session *s, uint64_t i, const struct zinf_sample *sample,
                       bool color)
{
    size_t n = sample->ids.count, counted = 0;
    bool *counts = malloc(n + 1);
    if (!counts)
        return zinf_fail(-ENOMEM, "no memory for a sample");
    for (size_t j = 0; j < n; j++) {
        counts[j] = j && sample->marks[j] & ZINF_MARK_COUNTS; /* the first is no target */
        counted += counts[j];
    }
    printf("\nsample %llu: %zu tokens, %zu count%s\n", (unsigned long long)i + 1, n, counted,
           sample->cut ? ", cut" : "");
    int code = data_show_tokens(s->tokenizer, sample->ids.ids, counts, n, color);
    free(counts);
    return code;
}

static int show_samples(const struct zinf_session *s, const struct data_command *o, bool color)
{
    struct zinf_samples *samples = zinf_dataset_samples(s->data);
    const struct zinf_samples_facts *f = zinf_samples_facts(samples);
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    char text[512];
    data_show_rows(text, samples, "");
    say("samples", text);
    if (f->n_bad)
        say("broken", f->first_bad);
    say_windows(s);
    int code = say_padding(s, o);
    if (!code)
        code = say_percentiles(samples);
    say("lengths", "tokens before the cut, and how many samples have so many");
    if (!code)
        code = data_show_lengths(samples);
    for (uint64_t i = 0; !code && i < f->n_samples && i < (uint64_t)o->n_samples; i++) {
        code = zinf_samples_read(samples, i, &sample);
        if (!code)
            code = show_sample(s, i, &sample, color);
    }
    zinf_sample_free(&sample);
    return code;
}

static int show_stream(const struct zinf_session *s, const struct data_command *o, bool color)
{
    uint64_t n = zinf_dataset_n_windows(s->data), T = (uint64_t)s->seq_len;
    char text[128], tokens[32];
    int32_t *ids = malloc(2 * T * sizeof *ids);
    int code = ids ? 0 : zinf_fail(-ENOMEM, "no memory for a window");
    snprintf(text, sizeof text, "%s tokens, all of which count",
             cli_count(tokens, zinf_dataset_n_tokens(s->data)));
    say("stream", text);
    say_windows(s);
    for (uint64_t i = 0; !code && i < n && i < (uint64_t)o->n_samples; i++) {
        code = zinf_dataset_window(s->data, i, ids, ids + T);
        printf("\nwindow %llu\n", (unsigned long long)i + 1);
        if (!code)
            code = data_show_tokens(s->tokenizer, ids, NULL, T, color);
    }
    free(ids);
    return code;
}

/* ---- for programs ---- */

static cJSON *sample_json(const struct zinf_sample *sample)
{
    cJSON *object = cJSON_CreateObject(), *ids = cJSON_AddArrayToObject(object, "ids");
    cJSON *counts = cJSON_AddArrayToObject(object, "counts");
    for (size_t i = 0; i < sample->ids.count; i++) {
        cJSON_AddItemToArray(ids, cJSON_CreateNumber(sample->ids.ids[i]));
        cJSON_AddItemToArray(counts, cJSON_CreateNumber(sample->marks[i] & ZINF_MARK_COUNTS));
    }
    cJSON_AddBoolToObject(object, "cut", sample->cut);
    return object;
}

static void add_facts(cJSON *root, const struct zinf_samples_facts *f)
{
    const struct {
        const char *name;
        uint64_t value;
    } rows[] = {
        {"rows", f->n_rows},          {"bad_rows", f->n_bad},
        {"samples", f->n_samples},    {"tokens", f->n_ids},
        {"counted", f->n_counted},    {"cut_samples", f->n_cut},
        {"cut_tokens", f->n_ids_cut}, {"short", f->n_short},
        {"long", f->n_long},          {"unlabelled", f->n_unlabelled},
        {"longest", f->longest},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        cJSON_AddNumberToObject(root, rows[i].name, (double)rows[i].value);
}

/* Lengths before the cut by how many percent of the samples do not exceed them. */
static int add_percentiles(cJSON *root, const struct zinf_samples *samples)
{
    const bool sources = zinf_samples_facts(samples)->longest_source;
    cJSON *of_ids = cJSON_AddObjectToObject(root, "percentiles");
    cJSON *of_sources = sources ? cJSON_AddObjectToObject(root, "source_percentiles") : NULL;
    int code = 0;
    for (size_t i = 0; !code && i < N_PERCENTS; i++) {
        uint32_t n = 0, n_source = 0;
        char name[8];
        code = zinf_samples_percentile(samples, percents[i], &n, &n_source);
        snprintf(name, sizeof name, "%d", percents[i]);
        cJSON_AddNumberToObject(of_ids, name, n);
        if (sources)
            cJSON_AddNumberToObject(of_sources, name, n_source);
    }
    return code;
}

/* Rows of an epoch that a training computes. */
static int add_rows(cJSON *root, struct zinf_samples *samples, int64_t batch)
{
    struct zinf_samples_rows rows;
    int code = zinf_samples_count_rows(samples, (uint64_t)batch, ZINF_ROWS_MULTIPLE, &rows);
    if (code)
        return code;
    cJSON *object = cJSON_AddObjectToObject(root, "computed_rows");
    cJSON_AddNumberToObject(object, "batch", (double)batch);
    cJSON_AddNumberToObject(object, "tokens", (double)rows.tokens);
    cJSON_AddNumberToObject(object, "max", (double)rows.whole);
    cJSON_AddNumberToObject(object, "longest", (double)rows.longest);
    cJSON_AddNumberToObject(object, "grouped", (double)rows.grouped);
    return 0;
}

static int print_json(const struct zinf_session *s, const struct data_command *o)
{
    struct zinf_samples *samples = zinf_dataset_samples(s->data);
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "windows", (double)zinf_dataset_n_windows(s->data));
    int code = 0;
    if (!samples)
        cJSON_AddNumberToObject(root, "tokens", (double)zinf_dataset_n_tokens(s->data));
    else
        add_facts(root, zinf_samples_facts(samples));
    if (samples)
        code = add_percentiles(root, samples);
    if (!code && samples && !s->job.pack)
        code = add_rows(root, samples, o->batch);
    cJSON *first = samples ? cJSON_AddArrayToObject(root, "first") : NULL;
    uint64_t n = samples ? zinf_samples_facts(samples)->n_samples : 0;
    for (uint64_t i = 0; !code && i < n && i < (uint64_t)o->n_samples; i++) {
        code = zinf_samples_read(samples, i, &sample);
        if (!code)
            cJSON_AddItemToArray(first, sample_json(&sample));
    }
    if (!code)
        code = cli_print_json_line(root);
    else
        cJSON_Delete(root);
    zinf_sample_free(&sample);
    return code;
}

static int show(struct zinf_session *s, const struct data_command *o)
{
    const bool color = has_color(o);
    int code = session_begin(s);
    if (!code)
        code = session_data(s, NULL, false);
    if (code)
        return code;
    return o->json                         ? print_json(s, o)
           : zinf_dataset_samples(s->data) ? show_samples(s, o, color)
                                           : show_stream(s, o, color);
}

static const char usage[] =
    "usage: zinf data --model DIR --data FILE... [options]\n"
    "\n"
    "Shows the samples that a training would get: the format of the rows, what is\n"
    "cut or left out, how long samples are, and the first of them as tokens, green\n"
    "where they count for the loss.\n";

#define AT(field) .offset = offsetof(struct data_command, field)
#define IN(field) .at = offsetof(struct data_command, field)
/* clang-format off */
static const struct option own_model[] = {
    OPTION("--model", TEXT, .offset = 0, "DIR",
     "whose tokenizer and chat template are used"),
    CLI_NO_ROW
};
static const struct option own[] = {
    OPTION("--batch", INTEGER, AT(batch), "N", "of a step, whose padding is counted", .min = 1,
     .max = 1 << 24, .usual = "8"),
    OPTION("--samples", INTEGER, AT(n_samples), "N", "how many are shown", .max = 1e9,
     .usual = "3"),
    OPTION("--color", WORD, AT(color), "WHEN", "auto, always or never; without it [[ ]] count",
     .words = colors, .usual = "auto"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(own_model),
    CLI_DOOR(job_rows),
    CLI_DOOR(job_task),
    CLI_DOOR(job_seq),
    {.rows = own},
    {.rows = cli_json, IN(json)},
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    call->session->use = JOB_TRAINS; /* which is what is shown */
    call->session->job.task.looks = true;
    return cli_need_data(call->session);
}

static int work(struct cli_call *call)
{
    return show(call->session, call->options);
}

const struct cli_command cli_data = {
    .name = "data",
    .summary = "show the samples that a training would get",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct data_command),
    .check = check,
    .work = work,
};

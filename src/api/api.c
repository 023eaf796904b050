/*
 * api: sessions of options, rows of a caller's own, and what is computed of a batch or two. Whole
 * trainings and steps are in training.c, evaluations in evaluation.c, texts in texts.c.
 */
#include "api/rows.h"
#include "api/session.h"
#include "api/speeds.h"
#include "train/estimate.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- options ---- */

static const char *keep(struct zinf_session *s, const char *text)
{
    char **grown = realloc(s->texts, (s->n_texts + 1) * sizeof *grown), *copy = strdup(text);
    s->texts = grown ? grown : s->texts;
    if (!grown || !copy) {
        free(copy);
        return NULL;
    }
    return s->texts[s->n_texts++] = copy;
}

static int note_given(struct zinf_session *s, const struct option *option)
{
    const struct option **grown = realloc(s->given, (s->n_given + 1) * sizeof *grown);
    if (!grown)
        return zinf_fail(-ENOMEM, "no memory for options");
    s->given = grown;
    s->given[s->n_given++] = option;
    return 0;
}

/* Where two have a name, of trainings and
 * of texts (early-stopping), it is the one that takes the value. */
static int take(struct zinf_session *s, const struct zinf_setting *setting)
{
    const size_t length = strlen(setting->name);
    const struct option_group *group, *other;
    const char *fixed, *none, *text = setting->text ? setting->text : "";
    const struct option *option = option_find(job_groups, setting->name, length, &group, &fixed),
                        *same;
    if (!option)
        return option_fail_unknown(job_groups, "unknown option", setting->name);
    if (fixed && !strcmp(text, "false"))
        return 0;
    text = keep(s, fixed ? fixed : text);
    if (!text)
        return zinf_fail(-ENOMEM, "no memory for options");
    if (note_given(s, option))
        return -ENOMEM;
    int code = option_read(option, group, text, option->flag, &s->job);
    if (code && (same = option_find(group + 1, setting->name, length, &other, &none)) &&
        !option_read(same, other, text, same->flag, &s->job))
        return 0;
    return code ? option_read(option, group, text, option->flag, &s->job) : 0;
}

/* Who has it on the command line, or had it from the file before, keeps that. */
static int take_of_file(void *arg, const char *name, const char *text)
{
    struct zinf_session *s = arg;
    const struct option_group *group;
    const char *fixed;
    const struct option *option = option_find(job_groups, name, strlen(name), &group, &fixed);
    const struct zinf_setting setting = {.name = name, .text = text};
    for (size_t i = 0; i < s->n_given; i++)
        if (s->given[i] == option)
            return 0;
    if (!strcmp(name, "epochs") && s->job.steps >= 0)
        return 0;
    return take(s, &setting);
}

int session_take_file(struct zinf_session *s)
{
    int code = zinf_config_job(s->job.config, take_of_file, s);
    return code ? zinf_fail_in(code, "%s", s->job.config) : 0;
}

int zinf_session_open(struct zinf_session **out, const struct zinf_setting *options, size_t n)
{
    struct zinf_session *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s)
        return zinf_fail(-ENOMEM, "no memory for a session");
    if (n)
        option_spell_names(options[0].name[0] != '-');
    s->job.steps = -1;
    s->job.texts.settings = (struct generate_settings)GENERATE_SETTINGS_UNSAID;
    int code = option_read_usual(job_groups, &s->job);
    for (size_t i = 0; !code && i < n; i++)
        code = take(s, &options[i]);
    if (code)
        zinf_session_close(s);
    else
        *out = s;
    return code;
}

void zinf_session_close(struct zinf_session *s)
{
    if (!s)
        return;
    session_end(s);
    job_given_close(s->job.given);
    for (size_t i = 0; i < s->n_texts; i++)
        free(s->texts[i]);
    for (int i = 0; i < 2; i++)
        if (s->rows[i]) {
            if (!s->keeps_rows)
                unlink(s->rows[i]);
            free(s->rows[i]);
        }
    free(s->texts);
    free(s->given);
    free(s);
}

/* ---- rows ---- */

/* Whole rows of a file that an earlier session has filled; what it did not finish is cut off. */
static int count_rows(FILE *file, uint64_t *n)
{
    long end = 0;
    char *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    for (*n = 0; (bytes = getline(&line, &room, file)) > 0 && line[bytes - 1] == '\n'; ++*n)
        end += bytes;
    free(line);
    if (ferror(file) || fseek(file, end, SEEK_SET) || ftruncate(fileno(file), end))
        return zinf_fail(-EIO, "cannot go on with the rows of an earlier run: %s", strerror(errno));
    return 0;
}

static int read_row(const struct zinf_row_source *rows, const char **row)
{
    int more = rows->next(rows->arg, row);
    if (more < 0)
        return zinf_fail(more, "the caller's rows ended early");
    if (more && strpbrk(*row, "\r\n"))
        return zinf_fail(-EINVAL, "a row has an end of a line in it: give a JSON object in one");
    return more;
}

/* The caller goes on behind the first n, by itself or by reading them again. */
static int skip_rows(const struct zinf_row_source *rows, uint64_t n)
{
    const char *row;
    int code = n && rows->skip ? rows->skip(rows->arg, n) : 0;
    if (code)
        return zinf_fail(code, "the caller's rows do not go on behind row %llu",
                         (unsigned long long)n);
    for (uint64_t i = 0; !rows->skip && i < n; i++)
        if ((code = read_row(rows, &row)) <= 0)
            return code ? code
                        : zinf_fail(-EINVAL,
                                    "there are %llu rows, but the run that is resumed has taken "
                                    "%llu",
                                    (unsigned long long)i, (unsigned long long)n);
    return 0;
}

static int drain(const struct zinf_row_source *rows, FILE *file)
{
    const char *row;
    int more;
    while ((more = read_row(rows, &row)) > 0)
        if (fprintf(file, "%s\n", row) < 0)
            return zinf_fail(-EIO, "cannot write rows: %s", strerror(errno));
    return more;
}

/* A row at a time goes to a file, of which a resumed training has a part already. */
static int fill_file(struct zinf_session *s, const struct zinf_row_source *rows, const char *path)
{
    FILE *file = s->job.resume ? fopen(path, "r+") : NULL;
    uint64_t n = 0;
    if (!file)
        file = fopen(path, "w+");
    if (!file)
        return zinf_fail(-errno, "cannot write rows to %s: %s", path, strerror(errno));
    int code = count_rows(file, &n);
    if (!code)
        code = skip_rows(rows, n);
    if (!code)
        code = drain(rows, file);
    if (fclose(file) && !code)
        code = zinf_fail(-EIO, "cannot write rows to %s: %s", path, strerror(errno));
    return code;
}

/* Processes that a launcher started may have one folder, and copy rows at the same time: each has a
 * file of its own. */
static char *rows_path(const char *folder, enum zinf_row_kind which)
{
    uint32_t rank = 0, world;
    char name[64], of_rank[16] = "";
    if (zinf_net_launched_as(&rank, &world) && rank)
        snprintf(of_rank, sizeof of_rank, "-%u", rank);
    snprintf(name, sizeof name, "%s%s.jsonl", which ? "eval-rows" : "rows", of_rank);
    return zinf_path_join(folder, name);
}

int zinf_session_rows(struct zinf_session *s, enum zinf_row_kind which,
                      const struct zinf_row_source *rows)
{
    struct zinf_words *words = which ? &s->job.eval_data : &s->job.data;
    if (s->rows[which] || (!which && s->job.given))
        return zinf_fail(-EEXIST, "rows were given already");
    if (!which && s->job.streaming) {
        struct zinf_row_source known = ZINF_SIZED(struct zinf_row_source);
        session_give(&known, rows, rows->size < sizeof known ? rows->size : sizeof known);
        if (!known.next)
            return zinf_fail(-EINVAL, "a source of rows has no function next: set it, and size to "
                                      "that of the struct (ZINF_SIZED)");
        return job_given_create(&s->job.given, &known);
    }
    if (words->n == ZINF_MOST_WORDS)
        return zinf_fail(-EINVAL, "there are more than %d files", ZINF_MOST_WORDS);
    char *folder = zinf_path_join(s->job.output, "cache");
    int code = folder ? zinf_make_dirs(folder) : -ENOMEM;
    char *path = code ? NULL : rows_path(folder, which);
    if (!code)
        code = path ? fill_file(s, rows, path) : -ENOMEM;
    free(folder);
    if (code) {
        free(path);
        return code;
    }
    s->rows[which] = path;
    words->items[words->n++] = path;
    return 0;
}

/* ---- what is computed of a batch or two ---- */

int64_t zinf_session_vocabulary(struct zinf_session *s)
{
    int code = s->model ? 0 : session_ready(s, JOB_TEXTS);
    return code ? code : zinf_model_facts(s->model)->vocab;
}

int zinf_session_logits(struct zinf_session *s, const int32_t *ids, int64_t n, float *logits)
{
    int code = session_need_trainer(s, false);
    return code ? code : zinf_trainer_logits(s->trainer, ids, n, logits);
}

int zinf_session_save(struct zinf_session *s, const char *folder)
{
    int code = session_need_trainer(s, false);
    return code ? code : zinf_trainer_save(s->trainer, folder);
}

int zinf_session_gradients(struct zinf_session *s, const char *file, double *loss, double *norm)
{
    struct zinf_trainer *trainer = NULL;
    int code = session_need("--data FILE", s->job.data.n ? s : NULL);
    if (!code)
        code = session_ready(s, JOB_GRADIENTS);
    if (!code && !s->data)
        code = session_data(s, NULL, false);
    if (!code)
        code = zinf_apart_check("--output", file, ZINF_WRITTEN_FILE, &s->origins);
    if (code)
        return code;
    struct zinf_trainer_options options = session_trainer_options(s, ZINF_TRAINER_GRADIENTS);
    session_drop_trainers(s);
    code = zinf_run_refer(&options, s->data);
    if (!code)
        code = zinf_trainer_create(&trainer, &options);
    if (!code)
        code = zinf_run_gradients(trainer, s->data, loss, norm);
    if (!code)
        code = zinf_trainer_save_gradients(trainer, file);
    zinf_trainer_destroy(trainer);
    return code;
}

/* ---- the plan ---- */

int zinf_session_plan(struct zinf_session *s, struct zinf_plan *out)
{
    static const char *const lanes[] = {"read", "write", "h2d", "d2h", "device", "host", "net"};
    struct zinf_estimate e;
    struct speed_sources sources;
    int code = session_ready(s, JOB_LOOKS);
    if (code)
        return code;
    if ((code = job_micro_settle(s)))
        return code;
    struct zinf_estimate_options options = {.trainer =
                                                session_trainer_options(s, ZINF_TRAINER_TRAIN)};
    speeds_cached(&options.speeds, &sources, s->config, s->device);
    code = zinf_estimate(&e, &options);
    if (code)
        return code;
    struct zinf_plan plan = {.params = e.params,
                             .tokens = e.tokens,
                             .device_bytes = e.bytes[0],
                             .host_bytes = e.bytes[1],
                             .drive_bytes = e.bytes[2],
                             .device_budget = e.budget[0],
                             .host_budget = e.budget[1],
                             .step_seconds = e.step_seconds,
                             .flops = e.model_flops};
    snprintf(plan.bottleneck, sizeof plan.bottleneck, "%s", lanes[e.bottleneck]);
    snprintf(plan.schedule, sizeof plan.schedule, "%s", e.schedule);
    snprintf(plan.device, sizeof plan.device, "%s", e.device);
    session_give(out, &plan, sizeof plan);
    return 0;
}

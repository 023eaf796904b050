/*
 * choices: --task multiple-choice: which of several continuations a model finds likeliest, as
 * lm-evaluation-harness counts it. acc takes the sums of log-probabilities as they are, acc_norm
 * divides each by the characters of its choice, acc_bytes by the bytes; of equal ones the first is
 * taken. Figures of a group of subjects count every question alike.
 */
#include "api/choices.h"

#include "metrics/metrics.h"
#include "train/score.h"

#include <math.h>
#include <stdlib.h>

#define ALL_SUBJECTS (-2)
#define USUAL_SHOTS 5

static const char *const names[CHOICE_FIGURES] = {"acc", "acc_norm", "acc_bytes"};
static const char *const error_names[CHOICE_FIGURES] = {"acc_stderr", "acc_norm_stderr",
                                                        "acc_bytes_stderr"};

const char *const job_choice_words[] = {"usual", "letters", "texts", NULL};

/* Examples in front of each question, where there are any. */
static uint32_t shots_of(const struct zinf_job *job)
{
    return job->choices.shots ? (uint32_t)job->choices.shots : USUAL_SHOTS;
}

/* ---- opening ---- */

/* A token that begins a text where the question is empty. */
static int32_t begin_token(const struct zinf_session *s)
{
    int32_t token = -1;
    if (job_task_token(s, "bos_token_id", &token) && job_task_token(s, "eos_token_id", &token))
        token = zinf_tokenizer_end_of_text(s->tokenizer);
    return token;
}

/* Windows as long as the longest question needs. */
static int fit(struct zinf_session *s)
{
    const struct zinf_choices *c = s->choices;
    const int64_t context = zinf_model_facts(s->model)->context;
    const int64_t most = s->job.seq_len ? s->job.seq_len : context;
    const int64_t most_source = s->job.source_len ? s->job.source_len : context;
    int64_t rows = 1, source = 1;
    uint64_t n_cut = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct zinf_question *q = &c->questions[i];
        int64_t longest = 0;
        for (uint32_t k = 0; k < q->n_choices; k++) {
            const int64_t n = c->choices[q->first_choice + k].n_ids;
            longest = n > longest ? n : longest;
        }
        const int64_t own = s->reads_source ? longest : longest + q->n_ids - 1;
        n_cut += own > most || (s->reads_source && q->n_ids > most_source);
        rows = own > rows ? own : rows;
        source = q->n_ids > source ? q->n_ids : source;
    }
    if (n_cut)
        zinf_log(ZINF_LOG_WARN,
                 "%llu of %u questions are longer than the %lld tokens of a window, and lose their "
                 "beginning",
                 (unsigned long long)n_cut, c->n,
                 (long long)(s->reads_source ? most_source : most));
    s->seq_len = job_fit_rounded((uint32_t)rows, (uint32_t)most);
    s->source_len = s->reads_source ? job_fit_rounded((uint32_t)source, (uint32_t)most_source) : 0;
    return 0;
}

int job_choices_open(struct zinf_session *s, const struct zinf_words *files)
{
    const struct zinf_job *job = &s->job;
    if (s->choices)
        return 0;
    if (job->choices.shots && !job->choices.few_shot)
        return zinf_fail(-EINVAL, "--shots: name the file of the examples with --few-shot FILE");
    if (job->texts.metrics.n || job->pack || job->chat_template || job->format)
        return zinf_fail(-EINVAL, "--metric, --pack, --format and --chat-template do not go with "
                                  "--task multiple-choice");
    const struct zinf_choices_options o = {
        .files = files->items,
        .n_files = files->n,
        .tokenizer = s->tokenizer,
        .question_column = job->task.source_column,
        .choices_column = job->task.target_column,
        .answer_column = job->task.label_column,
        .description = job->task.prefix,
        .style = job->choices.style,
        .few_shot = job->choices.few_shot,
        .n_shots = shots_of(job),
        .begin = begin_token(s),
        .separate = s->reads_source,
    };
    int code = job_task_need_tokenizer(s);
    for (int i = 0; !code && i < files->n; i++)
        code = zinf_origins_add(&s->origins, "--data", files->items[i]);
    if (!code)
        code = zinf_choices_open(&s->choices, &o);
    return code ? code : fit(s);
}

/* ---- what is right ---- */

static uint32_t likeliest(const struct zinf_choices *c, const struct zinf_question *q,
                          const double *logs, enum choice_figure figure)
{
    uint32_t best = 0;
    double highest = -INFINITY;
    for (uint32_t k = 0; k < q->n_choices; k++) {
        const struct zinf_answer_text *choice = &c->choices[q->first_choice + k];
        const double length = figure == CHOICE_ACC        ? 1
                              : figure == CHOICE_ACC_NORM ? (double)choice->chars
                                                          : (double)choice->bytes;
        const double value = logs[q->first_choice + k] / length;
        if (value > highest) {
            highest = value;
            best = k;
        }
    }
    return best;
}

static struct choice_result result_of(const uint64_t right[CHOICE_FIGURES], uint64_t n)
{
    struct choice_result r = {.n = n};
    for (int f = 0; f < CHOICE_FIGURES; f++) {
        r.value[f] = n ? (double)right[f] / (double)n : NAN;
        r.error[f] = zinf_share_error(r.value[f], n);
    }
    return r;
}

/* Of one subject, or of all questions. */
static struct choice_result result_of_subject(const struct zinf_session *s, int32_t subject)
{
    const struct zinf_choices *c = s->choices;
    uint64_t right[CHOICE_FIGURES] = {0}, n = 0;
    for (uint32_t i = 0; i < c->n; i++) {
        const struct zinf_question *q = &c->questions[i];
        if (subject != ALL_SUBJECTS && q->subject != subject)
            continue;
        n++;
        for (int f = 0; f < CHOICE_FIGURES; f++)
            right[f] += likeliest(c, q, s->choice_logs, (enum choice_figure)f) == q->answer;
    }
    return result_of(right, n);
}

/* Of a group of subjects; NULL: of all subjects. */
static struct choice_result result_of_group(const struct zinf_session *s, const char *group)
{
    const struct zinf_choices *c = s->choices;
    struct choice_result all = {0};
    double *errors = calloc((size_t)c->n_subjects + 1, CHOICE_FIGURES * sizeof *errors);
    uint64_t *sizes = calloc((size_t)c->n_subjects + 1, sizeof *sizes);
    uint32_t k = 0;
    if (!group && !c->n_subjects)
        all = result_of_subject(s, ALL_SUBJECTS);
    for (uint32_t i = 0; errors && sizes && i < c->n_subjects; i++) {
        if (group && (!c->groups[i] || strcmp(c->groups[i], group) != 0))
            continue;
        const struct choice_result one = result_of_subject(s, (int32_t)i);
        for (int f = 0; f < CHOICE_FIGURES; f++) {
            all.value[f] += one.value[f] * (double)one.n;
            errors[(uint32_t)f * c->n_subjects + k] = one.error[f];
        }
        sizes[k++] = one.n;
        all.n += one.n;
    }
    for (int f = 0; k && f < CHOICE_FIGURES; f++) {
        all.value[f] /= (double)all.n;
        all.error[f] = k == 1 ? errors[(uint32_t)f * c->n_subjects]
                              : zinf_pooled_error(errors + (uint32_t)f * c->n_subjects, sizes, k);
    }
    free(errors);
    free(sizes);
    return all;
}

/* ---- measuring ---- */

static int write_question(FILE *out, const struct zinf_session *s, uint32_t number)
{
    const struct zinf_choices *c = s->choices;
    const struct zinf_question *q = &c->questions[number];
    cJSON *line = cJSON_CreateObject();
    cJSON_AddNumberToObject(line, "question", number + 1);
    if (q->subject >= 0)
        cJSON_AddStringToObject(line, "subject", c->subjects[q->subject]);
    cJSON_AddItemToObject(
        line, "logprobs",
        cJSON_CreateDoubleArray(s->choice_logs + q->first_choice, (int)q->n_choices));
    cJSON_AddNumberToObject(line, "answer", q->answer);
    for (int f = 0; f < CHOICE_FIGURES; f++)
        cJSON_AddNumberToObject(line, names[f],
                                likeliest(c, q, s->choice_logs, (enum choice_figure)f));
    char *text = cJSON_PrintUnformatted(line);
    cJSON_Delete(line);
    const bool good = text && fprintf(out, "%s\n", text) >= 0;
    cJSON_free(text);
    return good ? 0 : zinf_fail(-EIO, "--predictions cannot be written: is the disk full?");
}

static int write_questions(const struct zinf_session *s)
{
    const char *path = s->job.texts.predictions;
    int code = path ? zinf_apart_check("--predictions", path, ZINF_WRITTEN_FILE, &s->origins) : 0;
    if (code || !path)
        return code;
    FILE *out = fopen(path, "w");
    if (!out)
        return zinf_fail(-errno, "--predictions %s: %s", path, strerror(errno));
    for (uint32_t i = 0; !code && i < s->choices->n; i++)
        code = write_question(out, s, i);
    if (fclose(out) && !code)
        code = zinf_fail(-EIO, "--predictions %s cannot be written: is the disk full?", path);
    return code;
}

/* The mean loss is that of the right choices, each question one. */
static void give(const struct zinf_session *s, struct zinf_measure *out)
{
    const struct zinf_choices *c = s->choices;
    const struct choice_result all = result_of_group(s, NULL);
    *out = (struct zinf_measure){.size = sizeof *out, .tokens = c->n, .kl = NAN};
    for (uint32_t i = 0; i < c->n; i++)
        out->loss -= s->choice_logs[c->questions[i].first_choice + c->questions[i].answer] / c->n;
    for (int f = 0; f < CHOICE_FIGURES; f++) {
        out->scores[out->n_scores++] = (struct zinf_figure){names[f], all.value[f]};
        out->scores[out->n_scores++] = (struct zinf_figure){error_names[f], all.error[f]};
    }
}

int job_choices_measure(struct zinf_session *s, struct zinf_trainer *trainer, bool is_first,
                        struct zinf_measure *result)
{
    const struct zinf_choices *c = s->choices;
    struct zinf_continuation *items = calloc(c->n_choices, sizeof *items);
    double *logs = calloc(c->n_choices, sizeof *logs);
    int32_t start = 0;
    int code = items && logs ? 0 : zinf_fail(-ENOMEM, "no memory for %u choices", c->n_choices);
    if (!code && s->reads_source)
        code = job_task_token(s, "decoder_start_token_id", &start);
    for (uint32_t i = 0; !code && i < c->n; i++) {
        const struct zinf_question *q = &c->questions[i];
        for (uint32_t k = q->first_choice; k < q->first_choice + q->n_choices; k++)
            items[k] = (struct zinf_continuation){
                .context = zinf_choices_ids(c, q->first),
                .target = zinf_choices_ids(c, c->choices[k].first),
                .n_context = q->n_ids,
                .n_target = c->choices[k].n_ids,
            };
    }
    if (!code)
        code = zinf_score_continuations(trainer, items, c->n_choices, start, logs);
    free(items);
    if (code || !is_first) {
        free(logs);
        return code;
    }
    free(s->choice_logs);
    s->choice_logs = logs;
    give(s, result);
    return write_questions(s);
}

/* ---- telling ---- */

static void add_result(cJSON *to, const char *name, const struct choice_result *r)
{
    cJSON *one = cJSON_AddObjectToObject(to, name);
    char key[64];
    cJSON_AddStringToObject(one, "alias", name);
    for (int f = 0; f < CHOICE_FIGURES; f++) {
        snprintf(key, sizeof key, "%s,none", names[f]);
        cJSON_AddNumberToObject(one, key, r->value[f]);
        snprintf(key, sizeof key, "%s,none", error_names[f]);
        if (isfinite(r->error[f]))
            cJSON_AddNumberToObject(one, key, r->error[f]);
        else
            cJSON_AddStringToObject(one, key, "N/A");
    }
    cJSON_AddNumberToObject(one, "sample_len", (double)r->n);
}

cJSON *job_choices_json(const struct zinf_session *s)
{
    static const char all[] = "multiple_choice";
    const struct zinf_choices *c = s->choices;
    cJSON *json = cJSON_CreateObject(), *results = cJSON_AddObjectToObject(json, "results");
    cJSON *groups = c->n_subjects ? cJSON_AddObjectToObject(json, "groups") : NULL;
    struct choice_result r = result_of_group(s, NULL);
    add_result(results, all, &r);
    if (groups)
        add_result(groups, all, &r);
    for (uint32_t i = 0; i < c->n_subjects; i++) {
        const char *group = c->groups[i];
        if (group && !cJSON_GetObjectItemCaseSensitive(groups, group)) {
            r = result_of_group(s, group);
            add_result(groups, group, &r);
            add_result(results, group, &r);
        }
    }
    for (uint32_t i = 0; i < c->n_subjects; i++) {
        r = result_of_subject(s, (int32_t)i);
        if (r.n)
            add_result(results, c->subjects[i], &r);
    }
    cJSON_AddNumberToObject(json, "n-shot",
                            s->job.choices.few_shot ? (double)shots_of(&s->job) : 0);
    cJSON_AddStringToObject(json, "model_name", s->job.model);
    return json;
}

void job_choices_close(struct zinf_session *s)
{
    zinf_choices_close(s->choices);
    free(s->choice_logs);
}

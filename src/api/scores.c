/* scores: metrics by name, texts by beams or the likeliest tokens: an evaluation draws nothing, so
 * that it says the same twice. */
#include "api/session.h"

#include "base/json.h"

#include <stdlib.h>

/* Where --predictions go. */
struct prediction_file {
    FILE *out;
    const struct zinf_session *session;
    double chosen; /* of the pair that is written next */
};

/* Texts at once, and new tokens of a call. */
#define SCORE_BATCH 16
#define SCORE_ROWS 512

static int fail_no_metric(void)
{
    return zinf_fail(-EINVAL, "texts are made for metrics alone: name one with --metric");
}

/* Whether it is said how the texts are made. */
static bool says_texts(const struct zinf_job_texts *t)
{
    const struct zinf_word_rules *rules = &t->settings.rules;
    return t->settings.max_new_tokens > 0 || t->settings.num_beams > 0 || t->stem ||
           rules->min_length > 0 || rules->min_new_tokens > 0;
}

static int read_metrics(const struct zinf_job_texts *t, struct zinf_run_scores *run)
{
    int code = 0;
    if (t->metrics.n > ZINF_MOST_SCORES)
        return zinf_fail(-EINVAL, "--metric: at most %d at once", ZINF_MOST_SCORES);
    for (run->n = 0; !code && run->n < t->metrics.n; run->n++)
        code = zinf_metric_parse(t->metrics.items[run->n], &run->metrics[run->n]);
    return code ? zinf_fail_in(code, "--metric") : 0;
}

int job_scores_check(const struct zinf_session *s)
{
    const struct zinf_job_texts *t = &s->job.texts;
    const bool makes = says_texts(t) && !s->job.sample_prompts.n;
    struct zinf_run_scores run;
    if (!t->metrics.n && (makes || t->metric_samples))
        return fail_no_metric();
    return read_metrics(t, &run);
}

/* Tokens that stand around texts. What ends a text of the data ends one that is made, too. */
static int find_left_out(struct zinf_session *s, const cJSON *config, int32_t end)
{
    static const char *const keys[] = {"bos_token_id", "pad_token_id", "decoder_start_token_id"};
    int n = 0;
    if (end >= 0) {
        s->left_out[n++] = end;
        if (!s->settings.n_ends)
            s->settings.ends[s->settings.n_ends++] = end;
    }
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(config, keys[i]);
        if (cJSON_IsNumber(id) && id->valueint >= 0)
            s->left_out[n++] = id->valueint;
    }
    return n;
}

/* What a task's predictions are good for, where nobody asks for anything. */
static void choose_usual(struct zinf_run_scores *run, const struct zinf_session *session)
{
    const bool two = session->labels.n == 2;
    const enum zinf_metric of_classes[] = {ZINF_METRIC_ACCURACY,
                                           two ? ZINF_METRIC_F1 : ZINF_METRIC_F1_MACRO};
    const enum zinf_metric of_numbers[] = {ZINF_METRIC_PEARSON, ZINF_METRIC_SPEARMAN};
    memcpy(run->metrics, run->of == ZINF_SCORED_CLASSES ? of_classes : of_numbers,
           sizeof of_classes);
    run->n = 2;
    run->by_loss = true;
}

static int check_kinds(const struct zinf_run_scores *run, enum zinf_task task)
{
    char names[256] = "";
    size_t used = 0;
    int wrong = -1;
    for (int i = 0; i < run->n && wrong < 0; i++)
        wrong = zinf_metric_facts(run->metrics[i])->of == run->of ? -1 : i;
    for (int m = 0; wrong >= 0 && m < ZINF_METRICS; m++)
        if (zinf_metric_facts((enum zinf_metric)m)->of == run->of)
            used += (size_t)snprintf(names + used, sizeof names - used, "%s%s", used ? ", " : "",
                                     zinf_metric_facts((enum zinf_metric)m)->name);
    return wrong < 0 ? 0
                     : zinf_fail(-EINVAL, "--metric %s is not one of the task %s, which has: %s",
                                 zinf_metric_facts(run->metrics[wrong])->name, zinf_task_name(task),
                                 names);
}

static int prepare_labels(struct zinf_session *s)
{
    if (says_texts(&s->job.texts))
        return zinf_fail(
            -EINVAL,
            "--max-new-tokens, --min-length, --num-beams, --stem and the like are of texts, "
            "and the task %s makes none",
            zinf_task_name(s->task));
    if (!s->scores.n)
        choose_usual(&s->scores, s);
    s->scores.options.most_samples = (uint64_t)s->job.texts.metric_samples;
    return 0;
}

/* Of answers that get a score. */
static int prepare_scores(struct zinf_session *s)
{
    if (s->scores.n || says_texts(&s->job.texts))
        return zinf_fail(-EINVAL,
                         "--metric and its options are for texts and labels: the task %s reports "
                         "by itself how many pairs are right",
                         zinf_task_name(s->task));
    s->scores.of = ZINF_SCORED_NUMBERS;
    return 0;
}

/* All of its parts have samples. */
static bool is_of_samples(struct zinf_dataset *data)
{
    bool all = data != NULL;
    for (uint32_t i = 0; all && i < zinf_dataset_n_parts(data); i++)
        all = zinf_dataset_samples(zinf_dataset_part(data, i));
    return all;
}

static int prepare_texts(struct zinf_session *s, struct zinf_dataset *data)
{
    const struct zinf_job_texts *t = &s->job.texts;
    if (!s->scores.n)
        return t->predictions ? fail_no_metric() : 0;
    if (!is_of_samples(data))
        return zinf_fail(-EINVAL,
                         "--metric %s compares what the model answers with what stands in the "
                         "data: give rows with prompt and completion, not plain text",
                         t->metrics.items[0]);
    s->settings = t->settings;
    int code = generate_read_config(&s->settings, s->job.model, s->model);
    if (code)
        return code;
    s->settings.temperature = 0;
    int n_left_out =
        find_left_out(s, zinf_model_config(s->model), zinf_tokenizer_end_of_text(s->tokenizer));
    s->scores.options = (struct zinf_score_options){
        .tokenizer = s->tokenizer,
        .generate = generate_options(&s->settings, 0),
        .left_out = s->left_out,
        .n_left_out = n_left_out,
        .most_samples = (uint64_t)t->metric_samples,
    };
    s->scores.stem = t->stem;
    return 0;
}

int job_scores_prepare(struct zinf_session *s, struct zinf_dataset *data)
{
    struct zinf_run_scores *run = &s->scores;
    const struct zinf_job_texts *t = &s->job.texts;
    int code = read_metrics(t, run);
    if (!code && run->n && !job_makes_texts(s->task) && !job_is_labelled(s->task) &&
        s->task != ZINF_TASK_REWARD)
        code =
            zinf_fail(-EINVAL, "--metric: --task %s has no metric but its loss: leave --metric out",
                      zinf_task_name(s->task));
    if (code || s->task == ZINF_TASK_MASKED || s->task == ZINF_TASK_EMBEDDING)
        return code;
    if (s->task == ZINF_TASK_REWARD)
        return prepare_scores(s);
    run->of = s->task == ZINF_TASK_CLASSIFICATION ? ZINF_SCORED_CLASSES
              : s->task == ZINF_TASK_REGRESSION   ? ZINF_SCORED_NUMBERS
                                                  : ZINF_SCORED_TEXTS;
    code = check_kinds(run, s->task);
    if (code)
        return code;
    return data && job_is_labelled(s->task) ? prepare_labels(s) : prepare_texts(s, data);
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* What must be remembered of each text. */
static struct zinf_decode_shape shape_of(const struct zinf_session *s,
                                         const struct zinf_dataset *data)
{
    const struct zinf_samples_facts *facts = zinf_samples_facts(zinf_dataset_samples(data));
    const bool pairs = s->task == ZINF_TASK_SEQ2SEQ;
    int64_t context = zinf_model_facts(s->model)->context;
    int64_t beams = s->scores.options.generate.beams.n, longest = pairs ? 1 : facts->longest;
    int64_t source = pairs ? s->source_len : 0;
    return (struct zinf_decode_shape){
        .sequences = beams * least(SCORE_BATCH, (int64_t)facts->n_samples),
        .capacity = least(context, longest + s->settings.max_new_tokens),
        .rows = beams > SCORE_ROWS / SCORE_BATCH ? beams * SCORE_BATCH : SCORE_ROWS,
        .sources = pairs ? least(SCORE_BATCH, (int64_t)facts->n_samples) : 0,
        .source_capacity = source,
        .source_rows = source > SCORE_ROWS ? source : SCORE_ROWS,
    };
}

/* One that remembers keys and values; *trainer stays where there can be none. */
static int continue_texts(const struct zinf_session *s, const struct zinf_trainer_options *like,
                          const struct zinf_dataset *data, struct zinf_trainer **trainer)
{
    struct zinf_trainer *other = NULL;
    struct zinf_trainer_options options = {
        .mode = ZINF_TRAINER_FORWARD,
        .model_path = like->model_path,
        .adapter = like->adapter,
        .head = like->head,
        .config = like->config,
        .device = like->device,
        .decode = shape_of(s, data),
        .net = like->net,
        .gpu = like->gpu,
    };
    int code = zinf_trainer_create(&other, &options);
    if (code == -ENOTSUP) {
        zinf_log(ZINF_LOG_WARN, "every token computes its whole text again: %s", zinf_error());
        return 0;
    }
    if (!code) {
        zinf_trainer_destroy(*trainer);
        *trainer = other;
    }
    return code;
}

/* ---- what was predicted ---- */

/* more: what else is known, as `key`; NULL: nothing is. */
static int write_line(FILE *out, uint64_t sample, cJSON *predicted, cJSON *reference,
                      const char *key, cJSON *more)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "sample", (double)sample + 1);
    cJSON_AddItemToObject(object, "predicted", predicted);
    cJSON_AddItemToObject(object, "reference", reference);
    if (more)
        cJSON_AddItemToObject(object, key, more);
    char *line = cJSON_PrintUnformatted(object);
    int code = line ? 0 : zinf_fail(-ENOMEM, "no memory for a line of JSON");
    if (!code && fprintf(out, "%s\n", line) < 0)
        code = zinf_fail(-EIO, "--predictions cannot be written: is the disk full?");
    cJSON_Delete(object);
    free(line);
    return code;
}

static int write_pair(void *arg, uint64_t sample, const char *predicted, const char *reference)
{
    const struct prediction_file *file = arg;
    return write_line(file->out, sample, cJSON_CreateString(predicted),
                      cJSON_CreateString(reference), NULL, NULL);
}

static cJSON *label_json(const struct zinf_labels *labels, int64_t number)
{
    return labels->names ? cJSON_CreateString(labels->names[number])
                         : cJSON_CreateNumber((double)number);
}

static int write_label(void *arg, uint64_t sample, const float *logits, int64_t n, int32_t label)
{
    const struct prediction_file *file = arg;
    const struct zinf_labels *labels = &file->session->labels;
    int64_t best = 0;
    float number;
    memcpy(&number, &label, sizeof number);
    if (file->session->task == ZINF_TASK_REGRESSION)
        return write_line(file->out, sample, cJSON_CreateNumber((double)logits[0]),
                          cJSON_CreateNumber((double)number), NULL, NULL);
    for (int64_t i = 1; i < n; i++)
        best = logits[i] > logits[best] ? i : best;
    return write_line(file->out, sample, label_json(labels, best), label_json(labels, label),
                      "logits", cJSON_CreateFloatArray(logits, (int)n));
}

/* The first of a pair waits for the second. */
static int write_score(void *arg, uint64_t sample, const float *logits, int64_t n, int32_t label)
{
    struct prediction_file *file = arg;
    (void)n;
    (void)label;
    if (sample % 2 == 0) {
        file->chosen = (double)logits[0];
        return 0;
    }
    if (fprintf(file->out, "{\"pair\": %llu, \"chosen\": %.9g, \"rejected\": %.9g}\n",
                (unsigned long long)sample / 2 + 1, file->chosen, (double)logits[0]) < 0)
        return zinf_fail(-EIO, "--predictions cannot be written: is the disk full?");
    return 0;
}

static int score(const struct zinf_session *s, struct zinf_trainer *trainer,
                 struct zinf_dataset *data, bool writes, struct zinf_scoreboard *board)
{
    struct prediction_file file = {.session = s};
    struct zinf_run_scores run = s->scores;
    const char *path = s->job.texts.predictions;
    if (path && writes) {
        int code = zinf_apart_check("--predictions", path, ZINF_WRITTEN_FILE, &s->origins);
        file.out = code ? NULL : fopen(path, "w");
        if (code)
            return code;
        if (!file.out)
            return zinf_fail(-errno, "--predictions %s: %s", path, strerror(errno));
        run.options.saw = write_pair;
        run.labelled = s->task == ZINF_TASK_REWARD ? write_score : write_label;
        run.options.arg = run.arg = &file;
    }
    int code = zinf_score(trainer, &run, data, board);
    if (file.out && fclose(file.out) && !code)
        code = zinf_fail(-EIO, "--predictions %s cannot be written: is the disk full?", path);
    return code;
}

int job_scores_measure(struct zinf_session *s, const struct zinf_trainer_options *options,
                       struct zinf_dataset *data, struct zinf_trainer **trainer,
                       struct zinf_measure *result)
{
    const struct zinf_run_scores *run = &s->scores;
    const bool makes = run->of == ZINF_SCORED_TEXTS && options->mode == ZINF_TRAINER_FORWARD;
    struct zinf_scoreboard *board = NULL;
    if (!run->n && !s->job.texts.predictions)
        return 0;
    int code = makes ? continue_texts(s, options, data, trainer) : 0;
    if (!code)
        code = zinf_scoreboard_create(&board, run->of, run->stem);
    if (!code)
        code = score(s, *trainer, data, job_ranks_is_first(options->net), board);
    for (int i = 0; !code && i < run->n; i++) {
        result->scores[i].name = zinf_metric_facts(run->metrics[i])->name;
        code = zinf_scoreboard_value(board, run->metrics[i], &result->scores[i].value);
    }
    result->n_scores = code ? 0 : (uint32_t)run->n;
    zinf_scoreboard_destroy(board);
    return code;
}

/* scores: metrics by name, texts by beams or the likeliest tokens: an evaluation draws nothing, so
 * that it says the same twice. */
#include "cli/scores.h"

#include "base/json.h"

#include <math.h>
#include <stdlib.h>

/* Texts at once, and new tokens of a call. */
#define SCORE_BATCH 16
#define SCORE_ROWS 512

int cli_scores_check(struct cli_scores *s)
{
    int code = 0;
    if (s->metrics.n > ZINF_MOST_SCORES)
        return zinf_fail(-EINVAL, "--metric: at most %d at once", ZINF_MOST_SCORES);
    for (int i = 0; !code && i < s->metrics.n; i++) {
        code = zinf_metric_parse(s->metrics.items[i], &s->run.metrics[i]);
        if (!code && zinf_metric_facts(s->run.metrics[i])->of != ZINF_SCORED_TEXTS)
            code = zinf_fail(-EINVAL,
                             "%s compares no texts, and a model of texts makes nothing "
                             "else",
                             s->metrics.items[i]);
        if (code)
            return zinf_fail_in(code, "--metric");
    }
    if (!s->metrics.n && (s->settings.max_new_tokens > 0 || s->settings.num_beams > 0 || s->stem ||
                          s->predictions || s->most_samples))
        return zinf_fail(-EINVAL, "texts are made for metrics alone: name one with --metric");
    s->run.n = s->metrics.n;
    return 0;
}

/* Tokens that stand around texts. What ends a text of the data ends one that is made, too. */
static int find_left_out(struct cli_scores *s, const cJSON *config, int32_t end)
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

int cli_scores_prepare(struct cli_scores *s, const struct cli_session *session,
                       const struct cli_common *common, const struct zinf_dataset *data)
{
    struct zinf_score_options *o = &s->run.options;
    if (!s->run.n)
        return 0;
    if (!data || !zinf_dataset_samples(data))
        return zinf_fail(-EINVAL,
                         "--metric %s compares what the model answers with what stands in the "
                         "data: give rows with prompt and completion, not plain text",
                         s->metrics.items[0]);
    int code = generate_read_config(&s->settings, common->model, session->model);
    if (code)
        return code;
    s->settings.temperature = 0;
    int n_left_out = find_left_out(s, zinf_model_config(session->model),
                                   zinf_tokenizer_end_of_text(session->tokenizer));
    *o = (struct zinf_score_options){
        .tokenizer = session->tokenizer,
        .generate = generate_options(&s->settings, 0),
        .left_out = s->left_out,
        .n_left_out = n_left_out,
        .most_samples = (uint64_t)s->most_samples,
    };
    s->run.stem = s->stem;
    return 0;
}

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

/* One that remembers keys and values; *trainer stays where there can be none. */
static int continue_texts(const struct cli_scores *s, const struct cli_session *session,
                          const struct cli_common *common, struct zinf_trainer **trainer)
{
    const struct zinf_samples_facts *facts =
        zinf_samples_facts(zinf_dataset_samples(session->data));
    int64_t context = zinf_model_facts(session->model)->context;
    int64_t beams = s->run.options.generate.beams.n;
    struct zinf_trainer *other = NULL;
    struct zinf_trainer_options options = {
        .mode = ZINF_TRAINER_FORWARD,
        .model_path = common->model,
        .adapter = common->adapter,
        .config = session->config,
        .device = session->device,
        .decode = {.sequences = beams * least(SCORE_BATCH, (int64_t)facts->n_samples),
                   .capacity = least(context, facts->longest + s->settings.max_new_tokens)},
    };
    options.decode.rows =
        options.decode.sequences > SCORE_ROWS ? options.decode.sequences : SCORE_ROWS;
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

/* ---- what the texts are ---- */

static int write_pair(void *arg, uint64_t sample, const char *predicted, const char *reference)
{
    cJSON *object = cJSON_CreateObject();
    cJSON_AddNumberToObject(object, "sample", (double)sample + 1);
    cJSON_AddStringToObject(object, "predicted", predicted);
    cJSON_AddStringToObject(object, "reference", reference);
    char *line = cJSON_PrintUnformatted(object);
    int code = line ? 0 : zinf_fail(-ENOMEM, "no memory for a line of JSON");
    if (!code && fprintf(arg, "%s\n", line) < 0)
        code = zinf_fail(-EIO, "--predictions cannot be written: is the disk full?");
    cJSON_Delete(object);
    free(line);
    return code;
}

static int score(struct cli_scores *s, struct cli_session *session, struct zinf_trainer *trainer,
                 struct zinf_scoreboard *board)
{
    struct zinf_score_options *o = &s->run.options;
    FILE *out = NULL;
    if (s->predictions) {
        out = fopen(s->predictions, "w");
        if (!out)
            return zinf_fail(-errno, "--predictions %s: %s", s->predictions, strerror(errno));
        o->saw = write_pair;
        o->arg = out;
    }
    int code = zinf_score_texts(trainer, o, zinf_dataset_samples(session->data), board);
    if (out && fclose(out) && !code)
        code = zinf_fail(-EIO, "--predictions %s cannot be written: is the disk full?",
                         s->predictions);
    return code;
}

int cli_scores_print(struct cli_scores *s, struct cli_session *session,
                     const struct cli_common *common, struct zinf_trainer **trainer)
{
    struct zinf_scoreboard *board = NULL;
    if (!s->run.n)
        return 0;
    int code = continue_texts(s, session, common, trainer);
    if (!code)
        code = zinf_scoreboard_create(&board, ZINF_SCORED_TEXTS, s->stem);
    if (!code)
        code = score(s, session, *trainer, board);
    for (int i = 0; !code && i < s->run.n; i++) {
        double value;
        code = zinf_scoreboard_value(board, s->run.metrics[i], &value);
        if (!code && isfinite(value))
            printf(", \"%s\": %.9g", zinf_metric_facts(s->run.metrics[i])->name, value);
        else if (!code)
            printf(", \"%s\": null", zinf_metric_facts(s->run.metrics[i])->name);
    }
    zinf_scoreboard_destroy(board);
    return code;
}

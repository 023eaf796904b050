/*
 * task: what a model is trained for, and the data of encoder-decoders (of classes: classes.c).
 * Windows have one length for sources and one for targets; where nobody says them they are those of
 * the longest in the data, so that no row computes more padding than the longest needs.
 */
#include "api/session.h"

#include "base/json.h"
#include "model/graph.h"

/* Longer ones are cut where no option says otherwise. */
#define USUAL_MOST 1024
#define MULTIPLE 8

static bool takes(const struct zinf_model *model, enum zinf_input input)
{
    const struct zinf_graph *graph = zinf_model_graph(model);
    for (uint32_t v = 0; v < graph->n_values; v++)
        if (graph->values[v].kind == ZINF_VALUE_INPUT && graph->values[v].input == input)
            return true;
    return false;
}

int job_task_tell(struct zinf_session *s, const struct zinf_job *c)
{
    const char *family = zinf_model_facts(s->model)->family;
    const struct zinf_graph *graph = zinf_model_graph(s->model);
    const bool labelled = takes(s->model, ZINF_INPUT_LABELS);
    const bool number = labelled && graph->values[graph->targets].element == ZINF_ELEMENT_F32;
    const enum zinf_task told = number ? ZINF_TASK_REGRESSION : ZINF_TASK_CLASSIFICATION;
    enum zinf_task asked = s->task = takes(s->model, ZINF_INPUT_SOURCE_IDS) ? ZINF_TASK_SEQ2SEQ
                                     : labelled                             ? told
                                                                            : ZINF_TASK_CAUSAL;
    int code = c->task.name ? zinf_task_parse(c->task.name, &asked) : 0;
    if (!c->task.name && c->preference)
        asked = ZINF_TASK_PREFERENCE;
    if (code)
        return zinf_fail_in(code, "--task");
    if (asked == s->task)
        return 0;
    /* A decoder gets its head when the data have been seen (classes.c). */
    if (((labelled || s->task == ZINF_TASK_CAUSAL) && job_is_labelled(asked)) ||
        (labelled && asked == ZINF_TASK_REWARD) ||
        (s->task == ZINF_TASK_CAUSAL && job_has_pairs(asked))) {
        s->task = asked;
        return 0;
    }
    if (asked == ZINF_TASK_SEQ2SEQ)
        return zinf_fail(-EINVAL,
                         "--task seq2seq: --model %s is of the family %s, which reads no source: "
                         "train it with --task causal-lm on rows of prompt and completion, or "
                         "take an encoder-decoder",
                         c->model, family);
    if (asked == ZINF_TASK_CAUSAL || asked == ZINF_TASK_PREFERENCE)
        return zinf_fail(-EINVAL, "--task %s: --model %s is of the family %s, %s: its task is %s",
                         zinf_task_name(asked), c->model, family,
                         labelled ? "which tells samples apart" : "an encoder-decoder",
                         zinf_task_name(s->task));
    return zinf_fail(-ENOTSUP,
                     "--task %s: --model %s is of the family %s, which has no head for it",
                     zinf_task_name(asked), c->model, family);
}

int job_task_token(const struct zinf_session *s, const struct zinf_job *c, const char *key,
                   int32_t *out)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(zinf_model_config(s->model), key);
    id = cJSON_IsArray(id) ? id->child : id;
    if (!cJSON_IsNumber(id) || id->valueint < 0 ||
        id->valueint >= zinf_model_facts(s->model)->vocab)
        return zinf_fail(-EINVAL,
                         "%s/config.json has no %s that is a token of the model: an "
                         "encoder-decoder needs it",
                         c->model, key);
    *out = id->valueint;
    return 0;
}

int job_task_need_texts(const struct zinf_session *s, const struct zinf_job *c)
{
    return job_is_labelled(s->task)
               ? zinf_fail(-EINVAL,
                           "--model %s tells samples apart and makes no texts: zinf eval "
                           "--predictions says what it takes them for",
                           c->model)
               : 0;
}

static uint32_t least(int64_t a, int64_t b)
{
    return (uint32_t)(a < b ? a : b);
}

static uint32_t rounded(uint32_t n, uint32_t most)
{
    return least((int64_t)zinf_align_up(n ? n : 1, MULTIPLE), most);
}

int job_task_fit(const struct zinf_job *c, struct zinf_samples_options *o,
                 struct zinf_samples **samples)
{
    const struct zinf_samples_facts *f = zinf_samples_facts(*samples);
    const uint32_t foretold = o->unlabelled ? 0 : 1; /* the last id is a target alone */
    uint32_t seq = c->seq_len ? o->seq_len : rounded(f->longest - foretold, o->seq_len);
    uint32_t source = c->source_len ? o->source_len : rounded(f->longest_source, o->source_len);
    if (seq == o->seq_len && source == o->source_len)
        return 0;
    zinf_samples_close(*samples);
    *samples = NULL;
    o->seq_len = seq;
    o->max_ids = seq + foretold;
    o->source_len = source;
    return zinf_samples_open(samples, o);
}

int job_task_cut(const struct zinf_session *s, const struct zinf_job *c, enum zinf_cut *cut,
                 uint32_t *front)
{
    struct zinf_tokens ids = {0}, framed = {0};
    int code = job_samples_cut(c->truncate, cut);
    if (!code)
        code = zinf_tokenizer_encode(s->tokenizer, "a", 1, &ids);
    if (!code)
        code = zinf_tokenizer_frame(s->tokenizer, &ids, NULL, &framed, NULL);
    *front = 0;
    while (!code && ids.count && *front < framed.count && framed.ids[*front] != ids.ids[0])
        ++*front;
    zinf_tokens_free(&ids);
    zinf_tokens_free(&framed);
    return code;
}

void job_task_say_cut(const struct zinf_samples *samples, const struct zinf_samples_options *o,
                      const char *what)
{
    const struct zinf_samples_facts *f = zinf_samples_facts(samples);
    if (f->n_long)
        zinf_log(ZINF_LOG_WARN, "%llu of %llu rows are too long and left out (--truncate drop)",
                 (unsigned long long)f->n_long, (unsigned long long)f->n_rows);
    if (f->n_cut)
        zinf_log(ZINF_LOG_WARN,
                 "%llu of %llu %s have more than %u tokens and are cut, by %llu tokens: "
                 "--seq-len says how long they may be",
                 (unsigned long long)f->n_cut, (unsigned long long)f->n_samples, what, o->seq_len,
                 (unsigned long long)f->n_ids_cut);
    if (f->n_sources_cut)
        zinf_log(ZINF_LOG_WARN,
                 "%llu of %llu sources have more than %u tokens and are cut, by %llu tokens: "
                 "--source-len says how long they may be",
                 (unsigned long long)f->n_sources_cut, (unsigned long long)f->n_samples,
                 o->source_len, (unsigned long long)f->n_source_ids_cut);
}

static int open_samples(struct zinf_session *s, const struct zinf_job *c,
                        struct zinf_samples_options *o, struct zinf_dataset **out)
{
    struct zinf_samples *samples = NULL;
    bool first = !s->source_len;
    int code = zinf_samples_open(&samples, o);
    if (!code && first)
        code = job_task_fit(c, o, &samples);
    if (code)
        return code;
    s->seq_len = o->seq_len;
    s->source_len = o->source_len;
    job_task_say_cut(samples, o, "targets");
    return zinf_dataset_of_samples(out, samples);
}

int job_task_open(struct zinf_session *s, const struct zinf_job *c,
                  const struct zinf_samples_options *given, struct zinf_dataset **out)
{
    const struct zinf_model_facts *facts = zinf_model_facts(s->model);
    struct zinf_task_options task = {.task = s->task,
                                     .tokenizer = given->tokenizer,
                                     .source_column = c->task.source_column,
                                     .target_column = c->task.target_column,
                                     .prefix = c->task.prefix};
    struct zinf_samples_options o = *given;
    struct zinf_task_recipe *recipe = NULL;
    int code = zinf_session_need_tokenizer(s, c);
    if (!code)
        code = job_task_token(s, c, "decoder_start_token_id", &task.start);
    if (!code)
        code = job_task_token(s, c, "eos_token_id", &task.end);
    if (!code && job_task_token(s, c, "pad_token_id", &o.pad))
        o.pad = task.end; /* padding counts for nothing: any token will do */
    if (!code && c->source_len > facts->context)
        code = zinf_fail(-EINVAL, "--source-len %lld: the model's context is %lld",
                         (long long)c->source_len, (long long)facts->context);
    if (!code)
        code = job_task_cut(s, c, &o.cut, &o.source_front);
    if (!code)
        code = zinf_task_open(&recipe, &task);
    if (code)
        return code;
    int64_t source = s->source_len ? s->source_len : c->source_len;
    o.recipe = zinf_task_recipe(recipe);
    o.vocab = (uint32_t)facts->vocab;
    o.seq_len = (uint32_t)s->seq_len;
    o.max_ids = o.seq_len + 1;
    o.front = 1; /* the start */
    o.source_len = source ? (uint32_t)source : least(facts->context, USUAL_MOST);
    o.source_pad = o.pad;
    o.skip_bad_rows = c->skip_bad_rows;
    o.seed = (uint64_t)c->seed;
    code = open_samples(s, c, &o, out);
    zinf_task_close(recipe);
    return code;
}

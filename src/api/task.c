/* task: what a model is trained for, and the data of encoder-decoders (of classes: classes.c). */
#include "api/embedding.h"

#include "base/json.h"
#include "model/graph.h"

/* Longer ones are cut where no option says otherwise. */
#define USUAL_MOST 1024

static bool takes(const struct zinf_model *model, enum zinf_input input)
{
    const struct zinf_graph *graph = zinf_model_graph(model);
    for (uint32_t v = 0; v < graph->n_values; v++)
        if (graph->values[v].kind == ZINF_VALUE_INPUT && graph->values[v].input == input)
            return true;
    return false;
}

/* Whether the task is one that the model gets another head for, which it has then. */
static int give_head(struct zinf_session *s, enum zinf_task asked, bool encodes, bool *given)
{
    const bool embeds = asked == ZINF_TASK_EMBEDDING && !s->reads_source;
    *given = embeds || (asked == ZINF_TASK_MASKED && encodes);
    if (!*given)
        return 0;
    s->task = asked;
    s->head = embeds ? ZINF_HEAD_NONE : ZINF_HEAD_MASKED;
    int code = zinf_model_set_head(s->model, s->head);
    return code || !embeds ? code : job_embedding_read(s);
}

/* A decoder without a head, as embeddings are made with, foretells tokens unless it is asked for
 * those. */
static int need_tokens(struct zinf_session *s)
{
    const char *name = s->job.task.name;
    if (zinf_model_head(s->model) != ZINF_HEAD_NONE || zinf_model_family(s->model)->masks ||
        (name && !strcmp(name, zinf_task_name(ZINF_TASK_EMBEDDING))))
        return 0;
    s->head = ZINF_HEAD_TOKENS;
    return zinf_model_set_head(s->model, s->head);
}

int job_task_tell(struct zinf_session *s)
{
    int code = need_tokens(s);
    if (code)
        return code;
    const struct zinf_job *c = &s->job;
    bool given;
    const char *family = zinf_model_facts(s->model)->family;
    const struct zinf_graph *graph = zinf_model_graph(s->model);
    const bool encodes = zinf_model_family(s->model)->masks;
    const bool labelled = takes(s->model, ZINF_INPUT_LABELS) || encodes;
    const bool number = takes(s->model, ZINF_INPUT_LABELS) &&
                        graph->values[graph->targets].element == ZINF_ELEMENT_F32;
    const enum zinf_task told = number ? ZINF_TASK_REGRESSION : ZINF_TASK_CLASSIFICATION;
    s->reads_source = takes(s->model, ZINF_INPUT_SOURCE_IDS);
    enum zinf_task asked = s->task = s->reads_source ? ZINF_TASK_SEQ2SEQ
                                     : labelled      ? told
                                                     : ZINF_TASK_CAUSAL;
    code = c->task.name ? zinf_task_parse(c->task.name, &asked) : 0;
    if (!c->task.name && zinf_config_settings_find(&c->settings, "zinf.preference"))
        asked = ZINF_TASK_PREFERENCE;
    if (code)
        return zinf_fail_in(code, "--task");
    if (asked == ZINF_TASK_CHOICE && s->use != JOB_EVALUATES)
        return zinf_fail(-EINVAL, "--task multiple-choice is for zinf eval only: nothing is "
                                  "trained on such rows");
    if (asked == s->task)
        return 0;
    if ((code = give_head(s, asked, encodes, &given)) || given)
        return code;
    /* A decoder gets its head when the data have been seen (classes.c). */
    if (((labelled || s->task == ZINF_TASK_CAUSAL) && job_is_labelled(asked)) ||
        (labelled && asked == ZINF_TASK_REWARD) ||
        (s->task == ZINF_TASK_CAUSAL && job_has_pairs(asked)) ||
        (!labelled && asked == ZINF_TASK_CHOICE)) {
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
                         labelled ? "which classifies samples" : "an encoder-decoder",
                         zinf_task_name(s->task));
    return zinf_fail(-ENOTSUP,
                     "--task %s: --model %s is of the family %s, which has no head for it",
                     zinf_task_name(asked), c->model, family);
}

int job_task_check_packed(const struct zinf_session *s)
{
    if (!s->job.pack || s->task == ZINF_TASK_CAUSAL || s->task == ZINF_TASK_MASKED ||
        s->task == ZINF_TASK_CHOICE) /* which says more (choices.c) */
        return 0;
    return zinf_fail(-EINVAL,
                     "--pack: samples of --task %s are not packed: each has a window of its own; "
                     "leave --pack out",
                     zinf_task_name(s->task));
}

int job_task_token(const struct zinf_session *s, const char *key, int32_t *out)
{
    const cJSON *id = cJSON_GetObjectItemCaseSensitive(zinf_model_config(s->model), key);
    id = cJSON_IsArray(id) ? id->child : id;
    if (!cJSON_IsNumber(id) || id->valueint < 0 ||
        id->valueint >= zinf_model_facts(s->model)->vocab)
        return zinf_fail(-EINVAL,
                         "%s/config.json has no %s that is a token of the model: an "
                         "encoder-decoder needs it",
                         s->job.model, key);
    *out = id->valueint;
    return 0;
}

bool job_task_has_bytes(const struct zinf_session *s)
{
    const int64_t vocab = zinf_model_facts(s->model)->vocab;
    return vocab == 256 || vocab == 257;
}

const char job_task_no_tokenizer[] =
    "the model's folder has no tokenizer.json, and no vocab.json with merges.txt, and its "
    "vocabulary is not the 257 of bytes: copy the tokenizer's files there";

int job_task_need_tokenizer(const struct zinf_session *s)
{
    if (strcmp(zinf_tokenizer_kind(s->tokenizer), "bytes") || job_task_has_bytes(s))
        return 0;
    return zinf_fail(-EINVAL, "--model %s: %s", s->job.model, job_task_no_tokenizer);
}

int job_task_need_texts(const struct zinf_session *s)
{
    if (job_is_labelled(s->task))
        return zinf_fail(-EINVAL,
                         "--model %s classifies samples and makes no texts: zinf eval "
                         "--predictions writes its predictions",
                         s->job.model);
    return job_makes_texts(s->task)
               ? 0
               : zinf_fail(-EINVAL, "--task %s makes no texts", zinf_task_name(s->task));
}

void job_task_rows(const struct zinf_session *s, struct zinf_samples_options *o)
{
    const struct zinf_job *c = &s->job;
    o->vocab = (uint32_t)zinf_model_facts(s->model)->vocab;
    o->seq_len = (uint32_t)s->seq_len;
    o->packed = c->pack;
    o->skip_bad_rows = c->skip_bad_rows;
    o->min_ids = (uint32_t)c->min_tokens;
    o->seed = (uint64_t)c->seed;
    if (job_task_token(s, "pad_token_id", &o->pad))
        o->pad = 0; /* nobody looks at padding: any token will do */
}

static uint32_t usual_source(const struct zinf_model_facts *facts)
{
    return facts->context < USUAL_MOST ? (uint32_t)facts->context : USUAL_MOST;
}

static int open_samples(struct zinf_session *s, struct zinf_samples_options *o,
                        struct zinf_dataset **out)
{
    struct zinf_samples *samples = NULL;
    bool first = !s->source_len;
    int code = zinf_samples_open(&samples, o);
    if (!code && first)
        code = job_fit(&s->job, o, &samples);
    if (code)
        return code;
    s->seq_len = o->seq_len;
    s->source_len = o->source_len;
    job_fit_say(samples, o, "targets");
    return zinf_dataset_of_samples(out, samples);
}

int job_task_open(struct zinf_session *s, const struct zinf_samples_options *given,
                  struct zinf_dataset **out)
{
    const struct zinf_job *c = &s->job;
    const struct zinf_model_facts *facts = zinf_model_facts(s->model);
    struct zinf_task_options task = {.task = s->task,
                                     .tokenizer = given->tokenizer,
                                     .source_column = c->task.source_column,
                                     .target_column = c->task.target_column,
                                     .prefix = c->task.prefix,
                                     .around = c->task.around};
    struct zinf_samples_options o = *given;
    struct zinf_task_recipe *recipe = NULL;
    int code = job_task_need_tokenizer(s);
    if (!code)
        code = job_task_token(s, "decoder_start_token_id", &task.start);
    if (!code)
        code = job_task_token(s, "eos_token_id", &task.end);
    if (!code && job_task_token(s, "pad_token_id", &o.pad))
        o.pad = task.end; /* padding counts for nothing: any token will do */
    if (!code && c->source_len > facts->context)
        code = zinf_fail(-EINVAL, "--source-len %lld: the model's context is %lld",
                         (long long)c->source_len, (long long)facts->context);
    if (!code)
        code = job_fit_cut(s, &o.cut, &o.source_front);
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
    o.source_len = source ? (uint32_t)source : usual_source(facts);
    o.source_pad = o.pad;
    o.skip_bad_rows = c->skip_bad_rows;
    o.seed = (uint64_t)c->seed;
    code = open_samples(s, &o, out);
    zinf_task_close(recipe);
    return code;
}

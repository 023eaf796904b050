/*
 * masked: data of an encoder that foretells masked tokens: a stream of text in windows that the
 * tokenizer's frame is around, or, as option format or pack says, rows of text, one a window or as
 * many as there is room for.
 */
#include "api/session.h"

#define USUAL_PROBABILITY 0.15

static int open_masking(const struct zinf_session *s, struct zinf_masking *out)
{
    const struct zinf_job *c = &s->job;
    const double p = c->task.mask_probability;
    int code = job_task_need_tokenizer(s);
    if (!code)
        code = zinf_masking_open(out, s->tokenizer, c->model, p > 0 ? p : USUAL_PROBABILITY,
                                 (uint64_t)c->seed);
    const uint32_t vocab = (uint32_t)zinf_model_facts(s->model)->vocab;
    if (!code && (uint32_t)out->mask >= vocab)
        code =
            zinf_fail(-EINVAL,
                      "--model %s: the mask is token %d, but the model's vocabulary has only %u: "
                      "take the tokenizer that belongs to the model",
                      c->model, out->mask, vocab);
    out->vocab = out->vocab < vocab ? out->vocab : vocab;
    return code;
}

int job_masked_stream(struct zinf_session *s, struct zinf_dataset_options *o,
                      struct zinf_masking *masking)
{
    uint32_t front, behind;
    int code = open_masking(s, masking);
    if (code)
        return code;
    zinf_tokenizer_sides(s->tokenizer, &front, &behind);
    if (o->seq_len <= front + behind)
        return zinf_fail(
            -EINVAL,
            "--seq-len %u has no room for text beside the tokenizer's %u special tokens: "
            "choose a longer --seq-len",
            o->seq_len, front + behind);
    o->seq_len -= front + behind;
    o->masking = masking;
    return 0;
}

int job_masked_rows(struct zinf_session *s, const struct zinf_samples_options *given,
                    struct zinf_dataset **out)
{
    const struct zinf_job *c = &s->job;
    struct zinf_samples_options o = *given;
    struct zinf_task_recipe *recipe = NULL;
    struct zinf_samples *samples = NULL;
    const struct zinf_task_options task = {
        .task = s->task,
        .tokenizer = given->tokenizer,
        .source_column = c->task.source_column ? c->task.source_column : c->text_column,
        .prefix = c->task.prefix,
    };
    int code = open_masking(s, &o.masking);
    if (!code)
        code = job_fit_cut(s, &o.cut, &o.front);
    if (!code)
        code = zinf_task_open(&recipe, &task);
    if (code)
        return code;
    o.recipe = zinf_task_recipe(recipe);
    job_task_rows(s, &o);
    code = zinf_samples_open(&samples, &o);
    zinf_task_close(recipe);
    if (code)
        return code;
    job_fit_say(samples, &o, "texts");
    return zinf_dataset_of_samples(out, samples);
}

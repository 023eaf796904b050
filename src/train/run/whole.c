/* whole: what is remembered nowhere is computed again. A source is padded to the trainer's length
 * for it; segments tell it from its padding. */
#include "train/run/whole.h"
#include "train/trainer.h"

#include <stdlib.h>

int64_t whole_capacity(const struct zinf_trainer *trainer, const struct zinf_text *texts,
                       int64_t n_texts)
{
    for (int64_t i = 0; i < n_texts; i++)
        if (texts[i].source)
            return zinf_trainer_seq_len(trainer);
    return INT32_MAX;
}

static int check_source(const struct zinf_text *text, int64_t most)
{
    return text->n_source >= 1 && text->n_source <= most
               ? 0
               : zinf_fail(-EINVAL, "a source of %lld tokens; there must be from 1 to %lld",
                           (long long)text->n_source, (long long)most);
}

static int with_source(struct zinf_trainer *t, const struct zinf_text *text, const int32_t *ids,
                       int64_t n, float *logits)
{
    int64_t most = t->setup.source_seq;
    int code = check_source(text, most);
    int32_t *source = code ? NULL : calloc((size_t)(2 * most + n), sizeof *source);
    if (code || !source)
        return code ? code : zinf_fail(-ENOMEM, "no memory for %lld tokens", (long long)most);
    int32_t *source_segments = source + most, *segments = source + 2 * most;
    memcpy(source, text->source, (size_t)text->n_source * sizeof *source);
    for (int64_t i = 0; i < text->n_source; i++)
        source_segments[i] = 1;
    for (int64_t i = 0; i < n; i++)
        segments[i] = 1;
    const struct zinf_batch batch = {.inputs = {[ZINF_INPUT_IDS] = ids,
                                                [ZINF_INPUT_SEGMENTS] = segments,
                                                [ZINF_INPUT_SOURCE_IDS] = source,
                                                [ZINF_INPUT_SOURCE_SEGMENTS] = source_segments}};
    code = zinf_trainer_sample_logits(t, &batch, n, logits);
    free(source);
    return code;
}

int whole_logits(struct zinf_trainer *t, const struct zinf_text *text, const int32_t *ids,
                 int64_t n, float *logits)
{
    int64_t most = zinf_trainer_seq_len(t), left = n < most ? n : most;
    return text->source ? with_source(t, text, ids, n, logits)
                        : zinf_trainer_logits(t, ids + n - left, left, logits);
}

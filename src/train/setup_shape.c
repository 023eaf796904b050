/* setup_shape: how many rows a micro-batch has: of whole sequences, or new ones of sequences that
 * are continued. */
#include "train/setup.h"

static int check_length(const char *option, int64_t n, int64_t context)
{
    if (n >= 1 && n <= context)
        return 0;
    return zinf_fail(-EINVAL, "%s %lld: the model's context is %lld (see its config.json)", option,
                     (long long)n, (long long)context);
}

static int set_shape(struct setup *s)
{
    int64_t context = zinf_model_facts(s->model)->context;
    s->batch = s->config->micro_batch * (s->options.pairs ? 2 : 1);
    s->seq = s->options.seq_len ? s->options.seq_len : context < 1024 ? context : 1024;
    int64_t source = s->options.source_len ? s->options.source_len : s->config->source_length;
    s->source_seq = source ? source : s->seq;
    int code = check_length("--seq-len", s->seq, context);
    s->rows = (uint64_t)(s->batch * s->seq);
    return code ? code : check_length("--source-len", s->source_seq, context);
}

/* A call's rows are those of one sample, whatever sequences they belong to. */
static int set_decoding(struct setup *s)
{
    const struct zinf_decode_shape *d = &s->options.decode;
    int64_t context = zinf_model_facts(s->model)->context;
    if (has_backward(s) || d->sequences < 1 || d->rows < d->sequences)
        return zinf_fail(-EINVAL, "%lld sequences continued by %lld rows at once",
                         (long long)d->sequences, (long long)d->rows);
    if (d->sources && (d->sources < 0 || d->source_rows < d->source_capacity))
        return zinf_fail(-EINVAL, "%lld sources of %lld tokens by %lld rows at once",
                         (long long)d->sources, (long long)d->source_capacity,
                         (long long)d->source_rows);
    s->decoding = (struct zinf_decoding){
        .n_sequences = d->sequences,
        .capacity = d->capacity,
        .most_rows = d->rows,
        .n_sources = d->sources,
        .source_capacity = d->source_capacity,
        .most_source_rows = d->sources ? d->source_rows : 0,
    };
    s->batch = 1;
    s->seq = d->rows;
    s->source_seq = d->sources ? d->source_rows : d->rows;
    s->rows = (uint64_t)d->rows;
    int code = check_length("sequences of", d->capacity, context);
    return code || !d->sources ? code : check_length("sources of", d->source_capacity, context);
}

int setup_shape(struct setup *s)
{
    return s->options.decode.sequences ? set_decoding(s) : set_shape(s);
}

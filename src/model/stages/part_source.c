/*
 * part_source: keys and values of another sequence's rows, and the gradient there.
 */
#include "model/stages/part_heads.h"

static struct frame_linear kv_linear(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (struct frame_linear){0, s->kv_w, s->kv_b, part_source_rows(f), false};
}

int part_source_read(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept)
{
    const struct frame_linear linear = kv_linear(f, s);
    return s->source && s->kv_w >= 0 && part_source_rows(f) && !f->compute->chunk.whole
               ? frame_linear(f, &linear, f->in[s->source], kept->kv)
               : 0;
}

int part_source_backward(struct zinf_frame *f, const struct attention_spec *s, const void *d_kv)
{
    const struct frame_linear linear = kv_linear(f, s);
    const int64_t n = part_source_rows(f) * f->graph->values[f->stage->in.at[s->source]].cols;
    void *d_source = f->d_in[s->source];
    const bool adds = d_source && f->d_in_adds[s->source];
    int code = frame_linear_backward_weight(f, &linear, d_kv, f->in[s->source]);
    if (code || !d_source)
        return code;
    struct zinf_residual sum = {.dtype = f->compute->dtype, .n = n, .x = d_source, .y = d_source};
    if (!adds)
        return frame_linear_backward_input(f, &linear, d_kv, d_source);
    void *share = frame_scratch(f, (uint64_t)n * frame_width(f));
    sum.r = share;
    code = frame_linear_backward_input(f, &linear, d_kv, share);
    return code ? code : frame_residual(f, &sum);
}

int part_source_carry(struct zinf_frame *f, const struct attention_spec *s)
{
    const struct frame_linear linear = kv_linear(f, s);
    void *own = frame_carried_source(f, heads_kv_cols(s), frame_chunk(f));
    const int code = attention_chunk_append_source(f, s);
    return code ? code : frame_linear(f, &linear, f->in[s->source], own);
}

int part_source_carry_backward(struct zinf_frame *f, const struct attention_spec *s)
{
    const uint64_t start = frame_mark(f);
    void *d_kv = frame_scratch(f, part_source_bytes(f, s));
    int code = attention_chunk_source(f, s, d_kv);
    if (!code)
        code = part_source_backward(f, s, d_kv);
    frame_release(f, start);
    return code;
}

/*
 * part_chunk: attention of a chunk's rows over the keys and values of their sequence so far, which
 * the stage carries from chunk to chunk: a row of them for each token. Backward adds the gradients
 * at those of the chunks before to what later chunks have left there, in fp32; those of the chunk's
 * own are complete then, since no chunk before it sees them.
 */
#include "model/stages/stages.h"

static uint64_t kv_cols(const struct attention_spec *s)
{
    return (uint64_t)(2 * s->n_kv_heads * s->head_dim);
}

static int64_t query_cols(const struct attention_spec *s)
{
    return s->n_heads * s->head_dim;
}

static int check(const struct zinf_frame *f, const struct attention_spec *s)
{
    const char *what = s->both_ways            ? "rows that see later ones"
                       : s->source             ? "keys of another sequence"
                       : s->relative.half      ? "relative positions"
                       : s->distance.n_buckets ? "a bias by distance"
                       : !f->stage->ops->carry ? "no way to hand them over"
                                               : NULL;
    return what ? zinf_fail(-ENOTSUP,
                            "zinf.sequence_chunk: stage %s has %s, which chunks of a sequence "
                            "cannot have yet: set it to 0",
                            f->stage->name, what)
                : 0;
}

/* Columns of qkv, or of its gradient, from those behind `first`, to rows of their own. */
static struct zinf_heads columns(const struct zinf_frame *f, const struct attention_spec *s,
                                 const void *qkv, int64_t first, int64_t cols, void *rows)
{
    return (struct zinf_heads){
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = 1,
        .cols = cols,
        .x = (const char *)qkv + (uint64_t)first * frame_width(f),
        .x_ld = query_cols(s) + (int64_t)kv_cols(s),
        .y = rows,
        .y_ld = cols,
    };
}

/* And back. */
static struct zinf_heads columns_back(const struct zinf_frame *f, const struct attention_spec *s,
                                      void *qkv, int64_t first, int64_t cols, const void *rows)
{
    struct zinf_heads a = columns(f, s, qkv, first, cols, qkv);
    a.y = (char *)qkv + (uint64_t)first * frame_width(f);
    a.y_ld = a.x_ld;
    a.x = rows;
    a.x_ld = cols;
    return a;
}

int attention_chunk_append(struct zinf_frame *f, const struct attention_spec *s, const void *qkv)
{
    void *own = frame_carried(f, kv_cols(s), f->compute->chunk.first);
    const struct zinf_heads kv = columns(f, s, qkv, query_cols(s), (int64_t)kv_cols(s), own);
    int code = check(f, s);
    return code ? code : frame_heads(f, &kv);
}

/* Queries by themselves, and the keys that any of them may see. With a window these need not begin
 * with the sequence; where they begin is a multiple of what kernels take at once. */
static int over_carried(struct zinf_frame *f, const struct attention_spec *s,
                        struct zinf_attention *args)
{
    enum { TILE = 64 };
    const struct zinf_chunk *c = &f->compute->chunk;
    const int64_t behind = args->window ? c->first + 1 - args->window : 0;
    void *queries = frame_scratch(f, (uint64_t)(frame_rows(f) * query_cols(s)) * frame_width(f));
    const struct zinf_heads apart = columns(f, s, args->qkv, 0, query_cols(s), queries);
    args->first_query = c->first;
    args->first_key = behind > 0 ? behind / TILE * TILE : 0;
    args->key_seq = c->first + args->seq - args->first_key;
    args->whole_seq = c->whole;
    args->key_segments =
        args->segments && f->queue ? args->segments - c->first + args->first_key : args->segments;
    args->dropout.element_first =
        f->compute->first_sample * (uint64_t)s->n_heads * (uint64_t)c->whole * (uint64_t)c->whole;
    args->qkv = queries;
    args->kv = frame_carried(f, kv_cols(s), args->first_key);
    return frame_heads(f, &apart);
}

int attention_chunk(struct zinf_frame *f, const struct attention_spec *s,
                    struct zinf_attention *args)
{
    const uint64_t start = frame_mark(f);
    int code = attention_chunk_append(f, s, args->qkv);
    if (!code)
        code = over_carried(f, s, args);
    if (!code)
        code = frame_attention(f, args);
    frame_release(f, start);
    return code;
}

/* The gradient of the chunk's own keys and values, of which nobody will see more, to d_qkv. */
static int take_own(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    const uint64_t start = frame_mark(f), n = (uint64_t)frame_rows(f) * kv_cols(s);
    const float *sums = frame_d_carried(f, kv_cols(s), f->compute->chunk.first);
    void *own = frame_scratch(f, n * frame_width(f));
    const struct zinf_heads back =
        columns_back(f, s, d_qkv, query_cols(s), (int64_t)kv_cols(s), own);
    int code = frame_convert(f, own, f->compute->dtype, sums, ZINF_DTYPE_F32, n);
    if (!code)
        code = frame_heads(f, &back);
    frame_release(f, start);
    return code;
}

int attention_chunk_backward(struct zinf_frame *f, const struct attention_spec *s,
                             struct zinf_attention *args)
{
    const uint64_t start = frame_mark(f), rows = (uint64_t)frame_rows(f);
    const struct zinf_chunk *c = &f->compute->chunk;
    void *d_qkv = args->d_qkv;
    void *d_queries = frame_scratch(f, rows * (uint64_t)query_cols(s) * frame_width(f));
    const uint64_t all = ((uint64_t)c->first + rows) * kv_cols(s);
    int code = check(f, s);
    if (!code && c->last)
        code = frame_zero(f, frame_d_carried(f, kv_cols(s), 0), all * sizeof(float));
    if (!code)
        code = over_carried(f, s, args);
    args->d_qkv = d_queries;
    args->d_kv_sums = frame_d_carried(f, kv_cols(s), args->first_key);
    if (!code)
        code = frame_attention_backward(f, args);
    const struct zinf_heads back = columns_back(f, s, d_qkv, 0, query_cols(s), d_queries);
    if (!code)
        code = frame_heads(f, &back);
    if (!code)
        code = take_own(f, s, d_qkv);
    frame_release(f, start);
    return code;
}

/*
 * part_attention: proj(attention(qkv(norm(x)))), with queries and keys rotated by position where
 * the spec says so; part.c has the norms and what comes behind proj. Kept is qkv, rotated in place;
 * where queries and keys are normalised before the rotation it is kept as the product left it,
 * which the norm's backward needs, and the normalised copy is made again in scratch.
 */
#include "model/stages.h"

static uint64_t qkv_cols(const struct attention_spec *s)
{
    return (uint64_t)((s->n_heads + 2 * s->n_kv_heads) * s->head_dim);
}

static bool has_head_norms(const struct attention_spec *s)
{
    return s->q_norm.w >= 0 || s->k_norm.w >= 0;
}

uint64_t attention_entry_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)frame_rows(f) * qkv_cols(s) * frame_width(f);
}

struct attention_kept attention_keep(struct zinf_frame *f, const struct attention_spec *s)
{
    uint64_t rows = (uint64_t)frame_rows(f), width = frame_width(f);
    struct attention_kept kept = {0};
    kept.qkv = frame_keep(f, attention_entry_bytes(f, s));
    kept.lse = frame_keep(f, rows * (uint64_t)s->n_heads * sizeof(float));
    kept.out = frame_keep(f, rows * (uint64_t)(s->n_heads * s->head_dim) * width);
    kept.norm = part_norm_keep(f, &s->norm, 1);
    kept.q_norm = part_norm_keep(f, &s->q_norm, s->whole_norms ? 1 : s->n_heads);
    kept.k_norm = part_norm_keep(f, &s->k_norm, s->whole_norms ? 1 : s->n_kv_heads);
    kept.after = part_norm_keep(f, &s->after, 1);
    if (s->after.w >= 0)
        kept.product = frame_keep(f, rows * (uint64_t)s->hidden * width);
    return kept;
}

struct part_entry attention_entry(const struct attention_spec *s, const struct attention_kept *kept)
{
    return (struct part_entry){
        .norm = &s->norm,
        .kept = kept->norm,
        .hidden = s->hidden,
        .n = 1,
        .products = {{{0, s->qkv_w, s->qkv_b}, kept->qkv}},
    };
}

static struct part_exit attention_exit(const struct attention_spec *s,
                                       const struct attention_kept *kept)
{
    return (struct part_exit){
        .linear = {0, s->proj_w, s->proj_b},
        .norm = &s->after,
        .kept = kept->after,
        .product = kept->product,
        .hidden = s->hidden,
        .dropout = s->residual_dropout,
        .site = s->site + 1,
    };
}

/* ---- heads: queries and keys inside a row of qkv ---- */

/* The keys of a row whose queries begin at qkv. */
static void *keys_at(const struct zinf_frame *f, const struct attention_spec *s, void *qkv)
{
    uint64_t bytes = (uint64_t)(s->n_heads * s->head_dim) * frame_width(f);
    return qkv ? (char *)qkv + bytes : NULL; /* NULL: measuring */
}

/* The norm of the queries (or keys) of raw, into y. */
static struct zinf_norm head_norm(const struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept, bool keys, void *y)
{
    const struct norm_spec *spec = keys ? &s->k_norm : &s->q_norm;
    int64_t heads = keys ? s->n_kv_heads : s->n_heads;
    void *raw = keys ? keys_at(f, s, kept->qkv) : kept->qkv;
    struct zinf_norm args = part_norm(f, spec, s->whole_norms ? heads * s->head_dim : s->head_dim,
                                      raw, keys ? kept->k_norm : kept->q_norm);
    args.heads = s->whole_norms ? 1 : heads;
    args.ld = (int64_t)qkv_cols(s);
    args.y = keys ? keys_at(f, s, y) : y;
    return args;
}

static int rotate(struct zinf_frame *f, const struct attention_spec *s, void *qkv, bool backward)
{
    float memory[ZINF_ROPE_MAX_PAIRS];
    /* Keys that are remembered keep the rotation that they got. */
    const struct zinf_decoding *decoding = f->compute->decoding;
    int64_t length = decoding ? decoding->capacity : f->compute->seq;
    if (!s->rope.rotary_dims)
        return 0;
    if (decoding && rope_changes(&s->rope, length))
        return zinf_fail(-ENOTSUP,
                         "sequences of %lld tokens: beyond %lld the frequencies of rope_type "
                         "\"%s\" change with the length, and remembered keys do not hold",
                         (long long)length, (long long)s->rope.positions,
                         s->rope.long_inv_freq ? "longrope" : "dynamic");
    struct zinf_rope args = {
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = s->n_heads + s->n_kv_heads,
        .head_dim = s->head_dim,
        .ld = (int64_t)qkv_cols(s),
        .rotary_dims = s->rope.rotary_dims,
        .interleaved = s->rope.interleaved,
        .backward = backward,
        .positions = f->in[1],
        .inv_freq = rope_frequencies(&s->rope, length, memory),
        .scale = s->rope.scale,
        .x = qkv,
    };
    return frame_rope(f, &args);
}

/* What attention takes, made from the kept product: *qkv. It is rotated in place once, after the
 * product; with norms of heads it is a copy, normalised and rotated whenever it is needed. */
static int prepare(struct zinf_frame *f, const struct attention_spec *s,
                   const struct attention_kept *kept, bool fresh, void **qkv)
{
    uint64_t bytes = attention_entry_bytes(f, s);
    int code = 0;
    *qkv = kept->qkv;
    if (!has_head_norms(s))
        return fresh ? rotate(f, s, kept->qkv, false) : 0;
    *qkv = frame_scratch(f, bytes);
    code = frame_copy(f, *qkv, kept->qkv, bytes);
    for (int keys = 0; !code && keys < 2; keys++) {
        struct zinf_norm norm = head_norm(f, s, kept, keys, *qkv);
        if ((keys ? s->k_norm.w : s->q_norm.w) >= 0)
            code = frame_norm(f, &norm);
    }
    return code ? code : rotate(f, s, *qkv, false);
}

/* d_qkv: from the gradient of what attention took to that of the product, in place. */
static int prepare_backward(struct zinf_frame *f, const struct attention_spec *s,
                            const struct attention_kept *kept, void *d_qkv)
{
    int code = rotate(f, s, d_qkv, true);
    for (int keys = 0; !code && keys < 2; keys++) {
        const struct norm_spec *spec = keys ? &s->k_norm : &s->q_norm;
        if (spec->w < 0)
            continue;
        struct zinf_norm norm = head_norm(f, s, kept, keys, NULL);
        norm.dy = norm.dx = keys ? keys_at(f, s, d_qkv) : d_qkv;
        norm.dw = frame_grad(f, 0, spec->w);
        norm.db = frame_grad(f, 0, spec->b);
        code = frame_norm_backward(f, &norm);
    }
    return code;
}

/* ---- the part ---- */

static struct zinf_attention attention_args(const struct zinf_frame *f,
                                            const struct attention_spec *s,
                                            const struct attention_kept *kept, const void *qkv)
{
    uint64_t seq = (uint64_t)f->compute->seq;
    return (struct zinf_attention){
        .dtype = f->compute->dtype,
        .batch = f->compute->batch,
        .seq = f->compute->seq,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .causal = true,
        .window = s->window < f->compute->seq ? s->window : 0,
        .scale = s->scale,
        .softcap = s->softcap,
        .slopes = s->slopes,
        .dropout = frame_dropout_at(f, s->dropout, s->site, (uint64_t)s->n_heads * seq * seq),
        .qkv = qkv,
        .out = kept->out,
        .lse = kept->lse,
    };
}

/* Of new rows, over what the stage remembers of their sequences. With a window it need not
 * remember more than that and the rows of a call. */
static int attend_cached(struct zinf_frame *f, const struct attention_spec *s,
                         const struct attention_kept *kept, const void *qkv)
{
    const struct zinf_decoding *d = f->compute->decoding;
    int64_t window = s->window < d->capacity ? s->window : 0, slots = d->capacity;
    if (window && window + d->most_rows < slots)
        slots = window + d->most_rows;
    const struct zinf_cache shape = {
        .planes = 2 * (uint64_t)s->n_kv_heads,
        .slots = (uint64_t)slots,
        .row_bytes = (uint64_t)s->head_dim * frame_width(f),
    };
    struct zinf_attention_cached args = {
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .n_sequences = d->n_sequences,
        .capacity = slots,
        .window = window,
        .scale = s->scale,
        .softcap = s->softcap,
        .slopes = s->slopes,
        .sequences = d->sequences,
        .positions = d->positions,
        .qkv = qkv,
        .cache = frame_cache(f, &shape),
        .out = kept->out,
    };
    return frame_attention_cached(f, &args);
}

static int attend(struct zinf_frame *f, const struct attention_spec *s,
                  const struct attention_kept *kept, const void *qkv)
{
    struct zinf_attention args = attention_args(f, s, kept, qkv);
    return f->compute->decoding ? attend_cached(f, s, kept, qkv) : frame_attention(f, &args);
}

int attention_forward(struct zinf_frame *f, const struct attention_spec *s,
                      const struct attention_kept *kept, const void *x, void *y, bool again)
{
    const struct part_exit leave = attention_exit(s, kept);
    const uint64_t start = frame_mark(f);
    void *ready;
    int code = prepare(f, s, kept, true, &ready);
    if (code || (code = attend(f, s, kept, ready)))
        return code;
    frame_release(f, start);
    if (again && s->after.w < 0)
        return 0;
    return part_leave(f, &leave, kept->out, x, y, again);
}

int attention_backward(struct zinf_frame *f, const struct attention_spec *s,
                       const struct attention_kept *kept, const void *d_y, void *d_qkv)
{
    const uint64_t row = (uint64_t)frame_rows(f) * frame_width(f), start = frame_mark(f);
    const struct part_exit leave = attention_exit(s, kept);
    const void *d_branch;
    void *ready, *d_out = frame_scratch(f, row * (uint64_t)(s->n_heads * s->head_dim));
    int code = part_leave_backward(f, &leave, d_y, &d_branch);
    if (code || (code = frame_linear_backward_weight(f, &leave.linear, d_branch, kept->out)) ||
        (code = frame_linear_backward_input(f, &leave.linear, d_branch, d_out)) ||
        (code = prepare(f, s, kept, false, &ready)))
        return code;
    struct zinf_attention attention = attention_args(f, s, kept, ready);
    attention.d_out = d_out;
    attention.d_qkv = d_qkv;
    if ((code = frame_attention_backward(f, &attention)))
        return code;
    frame_release(f, start);
    return prepare_backward(f, s, kept, d_qkv);
}

/*
 * part_attention: proj(attention(qkv(norm(x)))), with queries and keys rotated by position where
 * the spec says so; part.c has the norms and what comes behind proj. Kept is qkv, rotated in place;
 * where queries and keys are normalised before the rotation it is kept as the product left it,
 * which the norm's backward needs, and the normalised copy is made again in scratch. Where they
 * are normalised after the rotation, what is kept is rotated, and the copy is normalised.
 *
 * In latent attention what is kept is the entry's product, too: part_latent.c makes qkv of it.
 *
 * A sink of each head joins its softmax behind attention, which knows nothing of it. With a gate
 * the entry's product has its columns between queries and keys; what attention takes is a copy
 * without them, and what proj takes is made again in backward. Where keys are the values, too, it
 * is a copy that has them twice.
 *
 * A recurrent mixer (part_mixer.c) stands between the same two products.
 *
 * With a source the queries alone are of norm(x); keys and values are a product of another
 * sequence's rows, whose gradient goes to that sequence.
 */
#include "model/stages/stages.h"

static uint64_t kv_cols(const struct attention_spec *s)
{
    return (uint64_t)(2 * s->n_kv_heads * s->head_dim);
}

static uint64_t qkv_cols(const struct attention_spec *s)
{
    return (uint64_t)(s->n_heads * s->head_dim) + (s->source ? 0 : kv_cols(s));
}

/* Of all samples. */
static int64_t source_rows(const struct zinf_frame *f)
{
    return f->compute->batch * f->compute->source_seq;
}

static uint64_t kv_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)source_rows(f) * kv_cols(s) * frame_width(f);
}

static struct frame_linear kv_linear(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (struct frame_linear){0, s->kv_w, s->kv_b, source_rows(f), false};
}

/* What is normalised by head. */
enum heads { QUERIES, KEYS, VALUES, HEADS };

static struct norm_spec head_norm_spec(const struct attention_spec *s, enum heads of)
{
    struct norm_spec spec = of == KEYS ? s->k_norm : s->q_norm;
    if (of == VALUES) {
        spec.w = spec.b = -1;
        spec.d_w = spec.d_b = NULL;
        spec.w_add = 0;
        spec.plain = s->value_norms && !s->taken;
    }
    return spec;
}

static bool has_head_norms(const struct attention_spec *s)
{
    const struct norm_spec values = head_norm_spec(s, VALUES);
    return norm_is_there(&s->q_norm) || norm_is_there(&s->k_norm) || norm_is_there(&values);
}

static int64_t heads_of(const struct attention_spec *s, enum heads of)
{
    return of == QUERIES ? s->n_heads : s->n_kv_heads;
}

/* What attention takes is a copy of the entry's product with other columns. */
static bool is_copied(const struct attention_spec *s)
{
    return s->gated || s->keys_are_values || s->taken;
}

static bool is_latent(const struct attention_spec *s)
{
    return s->latent.kv_rank > 0;
}

static uint64_t entry_cols(const struct attention_spec *s)
{
    if (mixer_is_there(s))
        return (uint64_t)mixer_entry_cols(s);
    if (is_latent(s))
        return (uint64_t)latent_entry_cols(s);
    if (s->taken)
        return qkv_cols(s) - kv_cols(s);
    return qkv_cols(s) + (s->gated ? (uint64_t)(s->n_heads * s->head_dim) : 0) -
           (s->keys_are_values ? kv_cols(s) / 2 : 0);
}

uint64_t attention_entry_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    const uint64_t tokens = (uint64_t)frame_rows(f) * entry_cols(s) * frame_width(f);
    return tokens + (s->relative.half ? relative_bytes(f, s) : 0);
}

/* Of what attention or a mixer gives. */
static int64_t out_cols(const struct attention_spec *s)
{
    return mixer_is_there(s) ? mixer_result_cols(s) : s->n_heads * s->head_dim;
}

static uint64_t out_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)(frame_rows(f) * out_cols(s)) * frame_width(f);
}

struct attention_kept attention_keep(struct zinf_frame *f, const struct attention_spec *s)
{
    uint64_t rows = (uint64_t)frame_rows(f), width = frame_width(f);
    struct attention_kept kept = {0};
    kept.qkv = frame_keep(f, attention_entry_bytes(f, s));
    kept.norm = part_norm_keep(f, &s->norm, 1);
    kept.after = part_norm_keep(f, &s->after, 1);
    if (s->after.w >= 0)
        kept.product = frame_keep(f, rows * (uint64_t)s->hidden * width);
    kept.out = frame_keep(f, out_bytes(f, s));
    if (mixer_is_there(s)) {
        kept.handed = handed_keep(f, s);
        return kept;
    }
    if (s->source && !f->compute->chunk.whole)
        kept.kv = frame_keep(f, kv_bytes(f, s));
    kept.lse = frame_keep(f, rows * (uint64_t)s->n_heads * sizeof(float));
    if (is_latent(s)) {
        kept.q_norm = latent_keep_q(f, s);
        kept.k_norm = part_norm_keep(f, &s->latent.kv_norm, 1);
    } else {
        const struct norm_spec values = head_norm_spec(s, VALUES);
        kept.q_norm = part_norm_keep(f, &s->q_norm, s->whole_norms ? 1 : s->n_heads);
        kept.k_norm = part_norm_keep(f, &s->k_norm, s->whole_norms ? 1 : s->n_kv_heads);
        kept.v_norm = part_norm_keep(f, &values, s->n_kv_heads);
    }
    return kept;
}

struct part_entry attention_entry(const struct attention_spec *s, const struct attention_kept *kept)
{
    return (struct part_entry){
        .norm = &s->norm,
        .kept = kept->norm,
        .hidden = s->hidden,
        .n = 1,
        .products = {{{.weight = s->qkv_w, .bias = s->qkv_b},
                      kept->qkv,
                      &s->scales,
                      (int64_t)entry_cols(s),
                      false}},
    };
}

struct part_exit attention_exit(const struct attention_spec *s, const struct attention_kept *kept)
{
    return (struct part_exit){
        .linear = {0, s->proj_w, s->proj_b, 0, false},
        .norm = &s->after,
        .kept = kept->after,
        .product = kept->product,
        .hidden = s->hidden,
        .scale = s->branch_scale,
        .dropout = s->residual_dropout,
        .site = s->site + 1,
    };
}

/* ---- heads: queries and keys inside a row of qkv ---- */

/* A column of rows; NULL stays NULL: measuring. */
static void *column(const struct zinf_frame *f, void *rows, int64_t first)
{
    return rows ? (char *)rows + (uint64_t)first * frame_width(f) : NULL;
}

/* The queries, keys or values of a row whose queries begin at qkv. */
static void *heads_at(const struct zinf_frame *f, const struct attention_spec *s, enum heads of,
                      void *qkv)
{
    const int64_t before[HEADS] = {0, s->n_heads, s->n_heads + s->n_kv_heads};
    return column(f, qkv, before[of] * s->head_dim);
}

/* Their norm, from kept's into y. */
static struct zinf_norm head_norm(const struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept, enum heads of, void *y)
{
    const struct norm_spec spec = head_norm_spec(s, of);
    const struct norm_kept left[HEADS] = {kept->q_norm, kept->k_norm, kept->v_norm};
    const bool whole = s->whole_norms && of != VALUES;
    const int64_t heads = heads_of(s, of);
    struct zinf_norm args = part_norm(f, &spec, whole ? heads * s->head_dim : s->head_dim,
                                      heads_at(f, s, of, kept->qkv), left[of]);
    args.heads = whole ? 1 : heads;
    args.ld = (int64_t)qkv_cols(s);
    args.y = heads_at(f, s, of, y);
    return args;
}

/* Queries and keys in one call, or, where queries grow by their position, in two. */
int attention_rotate(struct zinf_frame *f, const struct attention_spec *s, void *qkv, bool backward)
{
    float memory[ZINF_ROPE_MAX_PAIRS];
    /* Keys that are remembered keep the rotation that they got. */
    const struct zinf_decoding *decoding = frame_decoding(f);
    int64_t length = decoding ? decoding->capacity : frame_whole_length(f);
    if (!s->rope.rotary_dims)
        return 0;
    if (decoding && rope_changes(&s->rope, length))
        return zinf_fail(-ENOTSUP,
                         "sequences of %lld tokens: beyond %lld the frequencies of rope_type "
                         "\"%s\" change with the length, and remembered keys do not hold",
                         (long long)length, (long long)s->rope.positions,
                         s->rope.long_inv_freq ? "longrope" : "dynamic");
    const int64_t keys = s->taken || s->rope.still ? 0 : s->n_kv_heads;
    const bool grows = rope_grows(&s->rope, length);
    if (s->rope.still && !grows)
        return 0;
    struct zinf_rope args = {
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .n_heads = s->n_heads + (grows ? 0 : keys),
        .head_dim = s->head_dim,
        .ld = (int64_t)qkv_cols(s),
        .rotary_dims = s->rope.rotary_dims,
        .interleaved = s->rope.interleaved,
        .backward = backward,
        .positions = f->in[1],
        .inv_freq = rope_frequencies(&s->rope, length, memory),
        .scale = s->rope.scale,
        .growth = grows ? s->rope.growth : 0,
        .growth_every = s->rope.growth_every,
        .growth_ahead = s->rope.growth_ahead,
        .x = qkv,
    };
    int code = frame_rope(f, &args);
    if (code || !grows || !keys)
        return code;
    args.n_heads = keys;
    args.growth = 0;
    args.x = heads_at(f, s, KEYS, qkv);
    return frame_rope(f, &args);
}

/* The gradient of keys that are the values, too: the sum of both, in pieces that an operation
 * takes. */
static int sum_keys_and_values(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv,
                               void *d_entry)
{
    const int64_t cols = (int64_t)kv_cols(s) / 2, before = (int64_t)entry_cols(s) - cols;
    int code = 0;
    for (int64_t at = 0; !code && at < cols; at += ZINF_HEADS_MAX_SUM) {
        const int64_t left = cols - at;
        struct zinf_heads args = {.dtype = f->compute->dtype,
                                  .rows = frame_rows(f),
                                  .n_heads = 2,
                                  .cols = left < ZINF_HEADS_MAX_SUM ? left : ZINF_HEADS_MAX_SUM,
                                  .x = column(f, heads_at(f, s, KEYS, d_qkv), at),
                                  .x_ld = (int64_t)qkv_cols(s),
                                  .x_step = cols,
                                  .y = column(f, d_entry, before + at),
                                  .y_ld = (int64_t)entry_cols(s)};
        code = frame_heads(f, &args);
    }
    return code;
}

/* ---- keys and values that layers share ---- */

/* Copies those of rows of qkv to rows of their own, or the other way. */
static int copy_kv(struct zinf_frame *f, const struct attention_spec *s, void *qkv, void *kv,
                   bool back)
{
    void *there = heads_at(f, s, KEYS, qkv);
    const struct zinf_heads args = {.dtype = f->compute->dtype,
                                    .rows = frame_rows(f),
                                    .n_heads = 1,
                                    .cols = (int64_t)kv_cols(s),
                                    .x = back ? kv : there,
                                    .x_ld = (int64_t)(back ? kv_cols(s) : qkv_cols(s)),
                                    .y = back ? there : kv,
                                    .y_ld = (int64_t)(back ? qkv_cols(s) : kv_cols(s))};
    return frame_heads(f, &args);
}

static int add_kv(struct zinf_frame *f, const struct attention_spec *s, const void *r, void *y)
{
    const struct zinf_residual args = {.dtype = f->compute->dtype,
                                       .n = frame_rows(f) * (int64_t)kv_cols(s),
                                       .x = y,
                                       .r = r,
                                       .y = y};
    return frame_residual(f, &args);
}

static void *scratch_kv(struct zinf_frame *f, const struct attention_spec *s)
{
    return frame_scratch(f, (uint64_t)frame_rows(f) * kv_cols(s) * frame_width(f));
}

/* The gradient of those that were taken goes to the layer that gave them. */
static int taken_backward(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    const bool adds = f->d_in[s->taken] && f->d_in_adds[s->taken];
    void *share = adds ? scratch_kv(f, s) : f->d_in[s->taken];
    if (!f->d_in[s->taken])
        return 0;
    int code = copy_kv(f, s, d_qkv, share, false);
    return code || !adds ? code : add_kv(f, s, share, f->d_in[s->taken]);
}

/* What layers that took these leave is added to the layer's own gradient. */
static int given_backward(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    void *sum = scratch_kv(f, s);
    int code = copy_kv(f, s, d_qkv, sum, false);
    if (!code)
        code = add_kv(f, s, f->d_out[1], sum);
    return code ? code : copy_kv(f, s, d_qkv, sum, true);
}

/* ---- columns ---- */

/* Columns of the entry's product without those of the gate, and with the keys' once more, or the
 * gradient of the former to that of the latter. */
static int copy_columns(struct zinf_frame *f, const struct attention_spec *s, void *entry,
                        void *qkv, bool back)
{
    const int64_t q = s->n_heads * s->head_dim, kv = (int64_t)kv_cols(s);
    const int64_t all = (int64_t)entry_cols(s), k = s->gated ? 2 * q : q;
    const int64_t half = s->keys_are_values ? kv / 2 : kv;
    const int64_t counts[] = {q, half, half}, from[] = {0, k, k}, to[] = {0, q, q + half};
    const int n = s->taken ? 1 : !s->keys_are_values ? 2 : back ? 1 : 3;
    int code = 0;
    for (int i = 0; !code && i < n; i++) {
        void *there = column(f, entry, from[i]), *here = column(f, qkv, to[i]);
        struct zinf_heads args = {.dtype = f->compute->dtype,
                                  .rows = frame_rows(f),
                                  .n_heads = 1,
                                  .cols = counts[i],
                                  .x = back ? here : there,
                                  .x_ld = back ? (int64_t)qkv_cols(s) : all,
                                  .y = back ? there : here,
                                  .y_ld = back ? all : (int64_t)qkv_cols(s)};
        code = frame_heads(f, &args);
    }
    if (code)
        return code;
    if (s->taken)
        return back ? taken_backward(f, s, qkv)
                    : copy_kv(f, s, qkv, (void *)(uintptr_t)f->in[s->taken], true);
    return back && s->keys_are_values ? sum_keys_and_values(f, s, qkv, entry) : 0;
}

/* What attention's queries, keys and values are made of: the kept product, or a copy of its columns
 * in scratch. */
static int take_columns(struct zinf_frame *f, const struct attention_spec *s,
                        const struct attention_kept *kept, struct attention_kept *out)
{
    *out = *kept;
    if (!is_copied(s))
        return 0;
    out->qkv = frame_scratch(f, (uint64_t)frame_rows(f) * qkv_cols(s) * frame_width(f));
    return copy_columns(f, s, kept->qkv, out->qkv, false);
}

/* The gate of the columns behind the queries'. */
static struct zinf_gated gate_args(const struct zinf_frame *f, const struct attention_spec *s,
                                   const struct attention_kept *kept)
{
    return (struct zinf_gated){
        .kind = ZINF_ACTIVATION_SIGMOID,
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .cols = s->n_heads * s->head_dim,
        .x = column(f, kept->qkv, s->n_heads * s->head_dim),
        .gate_ld = (int64_t)entry_cols(s),
        .up = kept->out,
    };
}

/* What attention takes, made from the kept product: *qkv. It is rotated in place once, after the
 * product; with norms of heads it is a copy, normalised and rotated whenever it is needed. */
static int prepare(struct zinf_frame *f, const struct attention_spec *s,
                   const struct attention_kept *kept, bool fresh, void **qkv)
{
    const uint64_t tokens = (uint64_t)frame_rows(f) * qkv_cols(s) * frame_width(f);
    const uint64_t bytes = tokens + (s->relative.half ? relative_bytes(f, s) : 0);
    int code = 0;
    *qkv = kept->qkv;
    if (is_latent(s)) {
        code = latent_prepare(f, s, kept, qkv);
        return code ? code : attention_rotate(f, s, *qkv, false);
    }
    if ((fresh || is_copied(s)) && (!has_head_norms(s) || s->norms_after_rotation))
        code = attention_rotate(f, s, kept->qkv, false);
    if (code || !has_head_norms(s))
        return code;
    *qkv = frame_scratch(f, bytes);
    code = frame_copy(f, *qkv, kept->qkv, bytes);
    for (enum heads of = 0; !code && of < HEADS; of++) {
        const struct norm_spec spec = head_norm_spec(s, of);
        struct zinf_norm norm = head_norm(f, s, kept, of, *qkv);
        if (norm_is_there(&spec))
            code = frame_norm(f, &norm);
    }
    return code || s->norms_after_rotation ? code : attention_rotate(f, s, *qkv, false);
}

/* From the gradient of what attention took to that of the product: in place, or in latent attention
 * from d_qkv to d_entry. */
static int prepare_backward(struct zinf_frame *f, const struct attention_spec *s,
                            const struct attention_kept *kept, void *d_qkv, void *d_entry)
{
    int code = s->norms_after_rotation ? 0 : attention_rotate(f, s, d_qkv, true);
    if (!code && is_latent(s))
        code = latent_prepare_backward(f, s, kept, d_qkv, d_entry);
    for (enum heads of = 0; !code && of < HEADS; of++) {
        const struct norm_spec spec = head_norm_spec(s, of);
        if (!norm_is_there(&spec))
            continue;
        struct zinf_norm norm = head_norm(f, s, kept, of, NULL);
        norm.dy = norm.dx = heads_at(f, s, of, d_qkv);
        norm.dw = spec.d_w ? spec.d_w : frame_grad(f, 0, spec.w);
        norm.db = spec.d_b ? spec.d_b : frame_grad(f, 0, spec.b);
        code = frame_norm_backward(f, &norm);
    }
    return code || !s->norms_after_rotation ? code : attention_rotate(f, s, d_qkv, true);
}

/* ---- the part ---- */

static struct zinf_attention attention_args(const struct zinf_frame *f,
                                            const struct attention_spec *s,
                                            const struct attention_kept *kept, const void *qkv)
{
    const int64_t seq = frame_length(f), keys = s->source ? f->compute->source_seq : seq;
    return (struct zinf_attention){
        .dtype = f->compute->dtype,
        .batch = f->compute->batch,
        .seq = seq,
        .key_seq = s->source ? keys : 0,
        .n_heads = s->n_heads,
        .n_kv_heads = s->n_kv_heads,
        .head_dim = s->head_dim,
        .causal = !s->both_ways,
        .window = s->window < frame_whole_length(f) ? s->window : 0,
        .scale = s->scale,
        .softcap = s->softcap,
        .slopes = s->slopes,
        .segments = s->segments ? f->in[s->segments] : NULL,
        .key_segments = s->source ? f->in[s->source_segments] : NULL,
        .dropout = frame_dropout_at(f, s->dropout, s->site, (uint64_t)(s->n_heads * seq * keys)),
        .qkv = qkv,
        .kv = kept->kv,
        .out = kept->out,
        .lse = kept->lse,
    };
}

static const void *sinks_at(const struct zinf_frame *f, const struct attention_spec *s)
{
    const char *whole = frame_weight(f, 0, s->sinks);
    return f->queue && whole ? whole + (uint64_t)s->first_sink * frame_width(f) : whole;
}

/* While decoding every row is a sequence to it. */
static struct zinf_sinks sinks_args(const struct zinf_frame *f, const struct attention_spec *s,
                                    const struct attention_kept *kept)
{
    const int64_t seq = frame_decoding(f) ? 1 : frame_length(f);
    return (struct zinf_sinks){
        .dtype = f->compute->dtype,
        .batch = frame_rows(f) / seq,
        .seq = seq,
        .n_heads = s->n_heads,
        .head_dim = s->head_dim,
        .sinks = sinks_at(f, s),
        .out = kept->out,
        .lse = kept->lse,
    };
}

static int join_sinks(struct zinf_frame *f, const struct attention_spec *s,
                      const struct attention_kept *kept)
{
    const struct zinf_sinks args = sinks_args(f, s, kept);
    return s->sinks >= 0 ? frame_sinks(f, &args) : 0;
}

static int sinks_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_out)
{
    struct zinf_sinks args = sinks_args(f, s, kept);
    args.d_out = d_out;
    args.d_sinks = s->d_sinks ? s->d_sinks : frame_grad(f, 0, s->sinks);
    return args.d_sinks ? frame_sinks_backward(f, &args) : 0;
}

static int attend(struct zinf_frame *f, const struct attention_spec *s,
                  const struct attention_kept *kept, const void *qkv)
{
    struct zinf_attention args = attention_args(f, s, kept, qkv);
    const struct zinf_relative relative = relative_args(f, s, qkv, NULL);
    if (frame_decoding(f))
        return attention_cached(f, s, kept, qkv);
    if (f->compute->chunk.whole)
        return attention_chunk(f, s, &args);
    args.relative = s->relative.half ? &relative : NULL;
    int code = distance_bias(f, s, &args, false);
    return code ? code : frame_attention(f, &args);
}

/* Keys and values of the other sequence, unless they are all remembered or carried. */
static int read_source(struct zinf_frame *f, const struct attention_spec *s,
                       const struct attention_kept *kept)
{
    const struct frame_linear linear = kv_linear(f, s);
    return s->source && s->kv_w >= 0 && source_rows(f) && !f->compute->chunk.whole
               ? frame_linear(f, &linear, f->in[s->source], kept->kv)
               : 0;
}

/* The gradients of that product's weights, and at the other sequence. */
static int source_backward(struct zinf_frame *f, const struct attention_spec *s, const void *d_kv)
{
    const struct frame_linear linear = kv_linear(f, s);
    const int64_t n = source_rows(f) * f->graph->values[f->stage->in.at[s->source]].cols;
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

/* Those of another sequence's rows. */
static int carry_source(struct zinf_frame *f, const struct attention_spec *s)
{
    const struct frame_linear linear = kv_linear(f, s);
    void *own = frame_carried_source(f, kv_cols(s), frame_chunk(f));
    return frame_linear(f, &linear, f->in[s->source], own);
}

int attention_carry(struct zinf_frame *f, const struct attention_spec *s,
                    const struct attention_kept *kept)
{
    const uint64_t start = frame_mark(f);
    struct attention_kept taken;
    void *ready;
    if (mixer_is_there(s))
        return mixer_attend(f, s, kept);
    frame_part_end(f); /* which has the chunk's own rows at hand */
    if (s->source)
        return carry_source(f, s);
    int code = take_columns(f, s, kept, &taken);
    if (!code)
        code = prepare(f, s, &taken, true, &ready);
    if (!code)
        code = attention_chunk_append(f, s, ready);
    frame_release(f, start);
    return code;
}

int attention_own_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct attention_kept *kept, void *d_qkv)
{
    const bool apart = is_latent(s) || is_copied(s);
    const uint64_t start = frame_mark(f), row = (uint64_t)frame_rows(f) * frame_width(f);
    void *d_entry = d_qkv, *ready;
    struct attention_kept taken;
    int code = take_columns(f, s, kept, &taken);
    if (!code)
        code = prepare(f, s, &taken, true, &ready);
    if (apart)
        d_qkv = frame_scratch(f, row * qkv_cols(s));
    if (!code)
        code = attention_chunk_own(f, s, d_qkv);
    if (!code && apart)
        code = frame_zero(f, d_entry, attention_entry_bytes(f, s));
    if (!code)
        code = prepare_backward(f, s, &taken, d_qkv, d_entry);
    if (!code && is_copied(s))
        code = copy_columns(f, s, d_entry, d_qkv, true);
    frame_release(f, start);
    return code;
}

int attention_carry_gradient(struct zinf_frame *f, int64_t hidden, void **d_x)
{
    const uint64_t bytes = (uint64_t)(frame_rows(f) * hidden) * frame_width(f);
    void *nobodys = frame_scratch(f, bytes);
    *d_x = f->d_in[0] ? f->d_in[0] : nobodys;
    return f->d_in[0] ? 0 : frame_zero(f, nobodys, bytes);
}

int attention_carry_backward(struct zinf_frame *f, const struct attention_spec *s,
                             const struct attention_kept *kept)
{
    int code = 0;
    for (uint32_t u = 0; !code && u < f->stage->units.n; u++)
        code = frame_zero_grads(f, u);
    return code ? code : attention_carry_part_backward(f, s, kept);
}

static int carry_source_backward(struct zinf_frame *f, const struct attention_spec *s)
{
    const uint64_t start = frame_mark(f);
    void *d_kv = frame_scratch(f, kv_bytes(f, s));
    int code = attention_chunk_source(f, s, d_kv);
    if (!code)
        code = source_backward(f, s, d_kv);
    frame_release(f, start);
    return code;
}

int attention_carry_part_backward(struct zinf_frame *f, const struct attention_spec *s,
                                  const struct attention_kept *kept)
{
    struct part_entry entry = attention_entry(s, kept);
    const uint64_t start = frame_mark(f);
    void *d_x;
    if (mixer_is_there(s))
        return frame_refuse_chunks(f, "a recurrent mixer");
    if (s->source)
        return carry_source_backward(f, s);
    int code = attention_carry_gradient(f, s->hidden, &d_x);
    if (!code)
        code = part_enter(f, &entry, f->in[0]);
    void *d_qkv = frame_scratch(f, attention_entry_bytes(f, s));
    if (!code)
        code = attention_own_backward(f, s, kept, d_qkv);
    entry.products[0].y = d_qkv;
    if (!code)
        code = part_enter_backward(f, &entry, f->in[0], d_x);
    frame_release(f, start);
    return code;
}

int attention_attend(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept)
{
    struct attention_kept taken;
    void *ready;
    if (mixer_is_there(s))
        return mixer_attend(f, s, kept);
    int code = take_columns(f, s, kept, &taken);
    if (!code)
        code = prepare(f, s, &taken, true, &ready);
    if (!code && s->gives && f->pass != ZINF_PASS_RECOMPUTE)
        code = copy_kv(f, s, ready, f->out[1], false);
    if (!code)
        code = read_source(f, s, kept);
    if (!code)
        code = attend(f, s, kept, ready);
    return code ? code : join_sinks(f, s, kept);
}

/* ---- between the part and its last product ---- */

/* What that takes: *result, in scratch where it is not what is kept. */
static int make_result(struct zinf_frame *f, const struct attention_spec *s,
                       const struct attention_kept *kept, void **result)
{
    struct zinf_gated gate = gate_args(f, s, kept);
    *result = kept->out;
    if (is_latent(s))
        return latent_result(f, s, kept->out, result);
    if (!mixer_is_there(s) && !s->gated)
        return 0;
    gate.y = *result = frame_scratch(f, out_bytes(f, s));
    return s->gated ? frame_gated(f, &gate) : mixer_result(f, s, kept, *result);
}

/* From the gradient of that to those at what is kept and at the entry's columns of a gate. */
static int result_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct attention_kept *kept, void *d_result, void *d_out,
                           void *d_entry)
{
    struct zinf_gated gate = gate_args(f, s, kept);
    if (is_latent(s))
        return latent_result_backward(f, s, d_result, d_out);
    if (mixer_is_there(s))
        return mixer_result_backward(f, s, kept, d_result, d_out, d_entry);
    gate.dy = d_result;
    gate.dx = column(f, d_entry, s->n_heads * s->head_dim);
    gate.d_up = d_out;
    return frame_gated_backward(f, &gate);
}

int attention_forward(struct zinf_frame *f, const struct attention_spec *s,
                      const struct attention_kept *kept, const void *x, void *y, bool again)
{
    const struct part_exit leave = attention_exit(s, kept);
    const uint64_t start = frame_mark(f);
    int code = attention_attend(f, s, kept);
    if (code)
        return code;
    frame_release(f, start);
    if (again && s->after.w < 0)
        return 0;
    void *result;
    code = make_result(f, s, kept, &result);
    if (!code)
        code = part_leave(f, &leave, result, x, y, again);
    frame_release(f, start);
    return code;
}

/* The gradients of the product behind the part; d_out: at what is kept of that. */
static int leave_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct attention_kept *kept, const void *d_y, void *d_out,
                          void *d_entry)
{
    const struct part_exit leave = attention_exit(s, kept);
    const bool fewer = is_latent(s) && s->latent.value < s->head_dim;
    const uint64_t values = (uint64_t)(frame_rows(f) * s->n_heads * s->latent.value);
    const void *d_branch;
    void *result, *d_result = d_out;
    int code = part_leave_backward(f, &leave, d_y, &d_branch);
    if (fewer)
        d_result = frame_scratch(f, values * frame_width(f));
    else if (s->gated || mixer_is_there(s))
        d_result = frame_scratch(f, out_bytes(f, s));
    if (!code)
        code = make_result(f, s, kept, &result);
    if (code || (code = frame_linear_backward_weight(f, &leave.linear, d_branch, result)) ||
        (code = frame_linear_backward_input(f, &leave.linear, d_branch, d_result)))
        return code;
    const bool apart = fewer || s->gated || mixer_is_there(s);
    return apart ? result_backward(f, s, kept, d_result, d_out, d_entry) : 0;
}

int attention_attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                              const struct attention_kept *kept, const void *d_out, void *d_qkv,
                              uint64_t start)
{
    const uint64_t row = (uint64_t)frame_rows(f) * frame_width(f);
    const bool apart = is_latent(s) || is_copied(s);
    struct attention_kept taken;
    void *ready, *d_entry = d_qkv;
    if (mixer_is_there(s)) {
        const int result = mixer_attend_backward(f, s, kept, d_out, d_entry);
        frame_release(f, start);
        return result;
    }
    int code = take_columns(f, s, kept, &taken);
    if (code || (code = prepare(f, s, &taken, false, &ready)))
        return code;
    if (apart)
        d_qkv = frame_scratch(f, row * qkv_cols(s));
    struct zinf_attention attention = attention_args(f, s, kept, ready);
    attention.d_out = d_out;
    attention.d_qkv = d_qkv;
    const bool chunks = f->compute->chunk.whole;
    attention.d_kv = !s->source || chunks ? NULL
                     : s->kv_w >= 0       ? frame_scratch(f, kv_bytes(f, s))
                                    : column(f, d_qkv, frame_rows(f) * (int64_t)entry_cols(s));
    const struct zinf_relative relative = relative_args(f, s, ready, d_qkv);
    attention.relative = s->relative.half ? &relative : NULL;
    if ((s->relative.half && (code = relative_clear(f, s, d_qkv))) ||
        (code = sinks_backward(f, s, kept, d_out)) ||
        (!chunks && (code = distance_bias(f, s, &attention, true))) ||
        (code = chunks ? attention_chunk_backward(f, s, &attention)
                       : frame_attention_backward(f, &attention)) ||
        (code = distance_bias_backward(f, s, &attention)))
        return code;
    if (s->source && s->kv_w >= 0 && !chunks)
        code = source_backward(f, s, attention.d_kv);
    if (!apart)
        frame_release(f, start);
    if (!code && s->gives)
        code = given_backward(f, s, d_qkv);
    if (!code)
        code = prepare_backward(f, s, &taken, d_qkv, d_entry);
    if (!code && is_copied(s))
        code = copy_columns(f, s, d_entry, d_qkv, true);
    frame_release(f, start);
    return code;
}

int attention_backward(struct zinf_frame *f, const struct attention_spec *s,
                       const struct attention_kept *kept, const void *d_y, void *d_qkv)
{
    const uint64_t start = frame_mark(f);
    void *d_out = frame_scratch(f, out_bytes(f, s));
    int code = leave_backward(f, s, kept, d_y, d_out, d_qkv);
    return code ? code : attention_attend_backward(f, s, kept, d_out, d_qkv, start);
}

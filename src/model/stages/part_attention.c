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
#include "model/stages/part_heads.h"

uint64_t attention_entry_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    const uint64_t tokens = frame_rows_bytes(f, heads_entry_cols(s));
    return tokens + (s->relative.half ? relative_bytes(f, s) : 0);
}

/* Of what attention or a mixer gives. */
static int64_t out_cols(const struct attention_spec *s)
{
    return mixer_is_there(s) ? mixer_result_cols(s) : s->n_heads * s->head_dim;
}

static uint64_t out_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    return frame_rows_bytes(f, out_cols(s));
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
        kept.kv = frame_keep(f, part_source_bytes(f, s));
    kept.lse = frame_keep(f, rows * (uint64_t)s->n_heads * sizeof(float));
    if (attention_is_latent(s)) {
        kept.q_norm = latent_keep_q(f, s);
        kept.k_norm = part_norm_keep(f, &s->latent.kv_norm, 1);
    } else {
        heads_keep_norms(f, s, &kept);
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
                      (int64_t)heads_entry_cols(s),
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
        .next = kept->next,
    };
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
        .x = heads_column(f, kept->qkv, s->n_heads * s->head_dim),
        .gate_ld = (int64_t)heads_entry_cols(s),
        .up = kept->out,
    };
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
    args.relative = s->relative.half ? &relative : NULL;
    if (f->compute->chunk.whole)
        return attention_chunk(f, s, &args);
    int code = distance_bias(f, s, &args, false);
    return code ? code : frame_attention(f, &args);
}

int attention_attend(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept)
{
    struct attention_kept taken;
    void *ready;
    if (mixer_is_there(s))
        return mixer_attend(f, s, kept);
    int code = heads_take(f, s, kept, &taken);
    if (!code)
        code = heads_prepare(f, s, &taken, true, &ready);
    if (!code && s->gives && f->pass != ZINF_PASS_RECOMPUTE)
        code = heads_give(f, s, ready);
    if (!code)
        code = part_source_read(f, s, kept);
    if (!code)
        code = attend(f, s, kept, ready);
    return code ? code : join_sinks(f, s, kept);
}

/* ---- between the part and its last product ---- */

int attention_result(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept, void **result)
{
    struct zinf_gated gate = gate_args(f, s, kept);
    *result = kept->out;
    if (attention_is_latent(s))
        return latent_result(f, s, kept->out, result);
    if (!mixer_is_there(s) && !s->gated)
        return 0;
    gate.y = *result = frame_scratch(f, out_bytes(f, s));
    return s->gated ? frame_gated(f, &gate) : mixer_result(f, s, kept, *result);
}

int attention_result_backward(struct zinf_frame *f, const struct attention_spec *s,
                              const struct attention_kept *kept, void *d_result, void *d_out,
                              void *d_entry)
{
    struct zinf_gated gate = gate_args(f, s, kept);
    if (attention_is_latent(s))
        return latent_result_backward(f, s, d_result, d_out);
    if (mixer_is_there(s))
        return mixer_result_backward(f, s, kept, d_result, d_out, d_entry);
    gate.dy = d_result;
    gate.dx = heads_column(f, d_entry, s->n_heads * s->head_dim);
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
    code = attention_result(f, s, kept, &result);
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
    const bool fewer = attention_is_latent(s) && s->latent.value < s->head_dim;
    const uint64_t values = (uint64_t)(frame_rows(f) * s->n_heads * s->latent.value);
    const void *d_branch;
    void *result, *d_result = d_out;
    int code = part_leave_backward(f, &leave, d_y, &d_branch);
    if (fewer)
        d_result = frame_scratch(f, values * frame_width(f));
    else if (s->gated || mixer_is_there(s))
        d_result = frame_scratch(f, out_bytes(f, s));
    if (!code)
        code = attention_result(f, s, kept, &result);
    if (code || (code = frame_linear_backward_weight(f, &leave.linear, d_branch, result)) ||
        (code = frame_linear_backward_input(f, &leave.linear, d_branch, d_result)))
        return code;
    const bool apart = fewer || s->gated || mixer_is_there(s);
    return apart ? attention_result_backward(f, s, kept, d_result, d_out, d_entry) : 0;
}

int attention_attend_backward(struct zinf_frame *f, const struct attention_spec *s,
                              const struct attention_kept *kept, const void *d_out, void *d_qkv,
                              uint64_t start)
{
    const uint64_t row = (uint64_t)frame_rows(f) * frame_width(f);
    const bool apart = attention_is_latent(s) || heads_are_copied(s);
    struct attention_kept taken;
    void *ready, *d_entry = d_qkv;
    if (mixer_is_there(s)) {
        const int result = mixer_attend_backward(f, s, kept, d_out, d_entry);
        frame_release(f, start);
        return result;
    }
    int code = heads_take(f, s, kept, &taken);
    if (code || (code = heads_prepare(f, s, &taken, false, &ready)))
        return code;
    if (apart)
        d_qkv = frame_scratch(f, row * heads_qkv_cols(s));
    struct zinf_attention attention = attention_args(f, s, kept, ready);
    attention.d_out = d_out;
    attention.d_qkv = d_qkv;
    const bool chunks = f->compute->chunk.whole;
    attention.d_kv = !s->source || chunks ? NULL
                     : s->kv_w >= 0
                         ? frame_scratch(f, part_source_bytes(f, s))
                         : heads_column(f, d_qkv, frame_rows(f) * (int64_t)heads_entry_cols(s));
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
        code = part_source_backward(f, s, attention.d_kv);
    if (!apart)
        frame_release(f, start);
    if (!code && s->gives)
        code = heads_given_backward(f, s, d_qkv);
    if (!code)
        code = heads_prepare_backward(f, s, &taken, d_qkv, d_entry);
    if (!code && heads_are_copied(s))
        code = heads_copy(f, s, d_entry, d_qkv, true);
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

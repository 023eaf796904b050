/*
 * part_heads: what attention takes of its entry's product: columns of queries, keys and values,
 * normalised and rotated, and the gradients back.
 */
#include "model/stages/part_heads.h"

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

uint64_t heads_entry_cols(const struct attention_spec *s)
{
    if (mixer_is_there(s))
        return (uint64_t)mixer_entry_cols(s);
    if (attention_is_latent(s))
        return (uint64_t)latent_entry_cols(s);
    if (s->taken)
        return heads_qkv_cols(s) - heads_kv_cols(s);
    return heads_qkv_cols(s) + (s->gated ? (uint64_t)(s->n_heads * s->head_dim) : 0) -
           (s->keys_are_values ? heads_kv_cols(s) / 2 : 0);
}

void heads_keep_norms(struct zinf_frame *f, const struct attention_spec *s,
                      struct attention_kept *kept)
{
    const struct norm_spec values = head_norm_spec(s, VALUES);
    kept->q_norm = part_norm_keep(f, &s->q_norm, s->whole_norms ? 1 : s->n_heads);
    kept->k_norm = part_norm_keep(f, &s->k_norm, s->whole_norms ? 1 : s->n_kv_heads);
    kept->v_norm = part_norm_keep(f, &values, s->n_kv_heads);
}

/* The queries, keys or values of a row whose queries begin at qkv. */
static void *heads_at(const struct zinf_frame *f, const struct attention_spec *s, enum heads of,
                      void *qkv)
{
    const int64_t before[HEADS] = {0, s->n_heads, s->n_heads + s->n_kv_heads};
    return heads_column(f, qkv, before[of] * s->head_dim);
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
    args.ld = (int64_t)heads_qkv_cols(s);
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
        .ld = (int64_t)heads_qkv_cols(s),
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
    const int64_t cols = (int64_t)heads_kv_cols(s) / 2,
                  before = (int64_t)heads_entry_cols(s) - cols;
    int code = 0;
    for (int64_t at = 0; !code && at < cols; at += ZINF_HEADS_MAX_SUM) {
        const int64_t left = cols - at;
        struct zinf_heads args = {.dtype = f->compute->dtype,
                                  .rows = frame_rows(f),
                                  .n_heads = 2,
                                  .cols = left < ZINF_HEADS_MAX_SUM ? left : ZINF_HEADS_MAX_SUM,
                                  .x = heads_column(f, heads_at(f, s, KEYS, d_qkv), at),
                                  .x_ld = (int64_t)heads_qkv_cols(s),
                                  .x_step = cols,
                                  .y = heads_column(f, d_entry, before + at),
                                  .y_ld = (int64_t)heads_entry_cols(s)};
        code = frame_heads(f, &args);
    }
    return code;
}

/* ---- keys and values that layers share ---- */

/* Those of this part, in a value, or in its gradient, that has those of several: piece by piece, as
 * what a stage carries (part_chunk.c). */
static void *piece_of(const struct zinf_frame *f, const struct attention_spec *s, const void *value)
{
    const uint64_t rows = s->carried_piece * (uint64_t)frame_rows(f);
    return heads_column(f, (void *)(uintptr_t)value, (int64_t)(rows * heads_kv_cols(s)));
}

/* Copies those of rows of qkv to rows of their own, or the other way. */
static int copy_kv(struct zinf_frame *f, const struct attention_spec *s, void *qkv, void *kv,
                   bool back)
{
    void *there = heads_at(f, s, KEYS, qkv);
    const struct zinf_heads args = {.dtype = f->compute->dtype,
                                    .rows = frame_rows(f),
                                    .n_heads = 1,
                                    .cols = (int64_t)heads_kv_cols(s),
                                    .x = back ? kv : there,
                                    .x_ld = (int64_t)(back ? heads_kv_cols(s) : heads_qkv_cols(s)),
                                    .y = back ? there : kv,
                                    .y_ld = (int64_t)(back ? heads_qkv_cols(s) : heads_kv_cols(s))};
    return frame_heads(f, &args);
}

static int add_kv(struct zinf_frame *f, const struct attention_spec *s, const void *r, void *y)
{
    const struct zinf_residual args = {.dtype = f->compute->dtype,
                                       .n = frame_rows(f) * (int64_t)heads_kv_cols(s),
                                       .x = y,
                                       .r = r,
                                       .y = y};
    return frame_residual(f, &args);
}

static void *scratch_kv(struct zinf_frame *f, const struct attention_spec *s)
{
    return frame_scratch(f, frame_rows_bytes(f, heads_kv_cols(s)));
}

/* The gradient of those that were taken goes to the layer that gave them. */
static int taken_backward(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    const bool adds = f->d_in[s->taken] && f->d_in_adds[s->taken];
    void *there = piece_of(f, s, f->d_in[s->taken]), *share = adds ? scratch_kv(f, s) : there;
    if (!f->d_in[s->taken])
        return 0;
    int code = copy_kv(f, s, d_qkv, share, false);
    return code || !adds ? code : add_kv(f, s, share, there);
}

int heads_give(struct zinf_frame *f, const struct attention_spec *s, void *qkv)
{
    return copy_kv(f, s, qkv, piece_of(f, s, f->out[1]), false);
}

int heads_given_backward(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv)
{
    void *sum = scratch_kv(f, s);
    int code = copy_kv(f, s, d_qkv, sum, false);
    if (!code)
        code = add_kv(f, s, piece_of(f, s, f->d_out[1]), sum);
    return code ? code : copy_kv(f, s, d_qkv, sum, true);
}

/* ---- columns ---- */

int heads_copy(struct zinf_frame *f, const struct attention_spec *s, void *entry, void *qkv,
               bool back)
{
    const int64_t q = s->n_heads * s->head_dim, kv = (int64_t)heads_kv_cols(s);
    const int64_t all = (int64_t)heads_entry_cols(s), k = s->gated ? 2 * q : q;
    const int64_t half = s->keys_are_values ? kv / 2 : kv;
    const int64_t counts[] = {q, half, half}, from[] = {0, k, k}, to[] = {0, q, q + half};
    const int n = s->taken ? 1 : !s->keys_are_values ? 2 : back ? 1 : 3;
    int code = 0;
    for (int i = 0; !code && i < n; i++) {
        void *there = heads_column(f, entry, from[i]), *here = heads_column(f, qkv, to[i]);
        struct zinf_heads args = {.dtype = f->compute->dtype,
                                  .rows = frame_rows(f),
                                  .n_heads = 1,
                                  .cols = counts[i],
                                  .x = back ? here : there,
                                  .x_ld = back ? (int64_t)heads_qkv_cols(s) : all,
                                  .y = back ? there : here,
                                  .y_ld = back ? all : (int64_t)heads_qkv_cols(s)};
        code = frame_heads(f, &args);
    }
    if (code)
        return code;
    if (s->taken)
        return back ? taken_backward(f, s, qkv)
                    : copy_kv(f, s, qkv, piece_of(f, s, f->in[s->taken]), true);
    return back && s->keys_are_values ? sum_keys_and_values(f, s, qkv, entry) : 0;
}

int heads_take(struct zinf_frame *f, const struct attention_spec *s,
               const struct attention_kept *kept, struct attention_kept *out)
{
    *out = *kept;
    if (!heads_are_copied(s))
        return 0;
    out->qkv = frame_scratch(f, frame_rows_bytes(f, heads_qkv_cols(s)));
    return heads_copy(f, s, kept->qkv, out->qkv, false);
}

int heads_prepare(struct zinf_frame *f, const struct attention_spec *s,
                  const struct attention_kept *kept, bool fresh, void **qkv)
{
    const uint64_t tokens = frame_rows_bytes(f, heads_qkv_cols(s));
    const uint64_t bytes = tokens + (s->relative.half ? relative_bytes(f, s) : 0);
    int code = 0;
    *qkv = kept->qkv;
    if (attention_is_latent(s)) {
        code = latent_prepare(f, s, kept, qkv);
        return code ? code : attention_rotate(f, s, *qkv, false);
    }
    if ((fresh || heads_are_copied(s)) && (!has_head_norms(s) || s->norms_after_rotation))
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

int heads_prepare_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct attention_kept *kept, void *d_qkv, void *d_entry)
{
    int code = s->norms_after_rotation ? 0 : attention_rotate(f, s, d_qkv, true);
    if (!code && attention_is_latent(s))
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

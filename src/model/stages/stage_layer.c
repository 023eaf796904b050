/*
 * stage_layer: one layer of an encoder, or of a decoder that reads an encoder's output: attention,
 * perhaps attention to the other sequence, then feed-forward. Each adds its branch to what came:
 *   sum = x + branch(norm(x)), and x of the next part is sum, or where the spec has it norm(sum)
 * What is kept can be made again from the layer's inputs; sums that are normalised are kept, their
 * norms are made again.
 */
#include "model/shards.h"

struct kept {
    struct attention_kept attention[2]; /* LAYER_ATTENTION, LAYER_CROSS */
    struct mlp_kept mlp;
    /* Instead, where the model is cut. */
    struct attention_shards attention_shards[2];
    struct mlp_shards mlp_shards;
    void *sum[LAYER_PARTS]; /* [rows][hidden]; the last one's where it is normalised */
    struct norm_kept joined[LAYER_PARTS];
};

static bool has_part(const struct layer_spec *s, int part)
{
    return part != LAYER_CROSS || s->crosses;
}

static bool joins(const struct layer_spec *s, int part)
{
    return s->joined[part].w >= 0;
}

static uint64_t x_bytes(const struct zinf_frame *f, const struct layer_spec *s)
{
    return frame_rows_bytes(f, s->attention[0].hidden);
}

static bool is_cut(const struct zinf_frame *f)
{
    return f->graph->shards.of;
}

static void keep_part(struct zinf_frame *f, const struct layer_spec *s, int part, struct kept *kept)
{
    if (part == LAYER_MLP && is_cut(f))
        mlp_shards_keep(f, &s->mlp, &kept->mlp_shards);
    else if (part == LAYER_MLP)
        kept->mlp = mlp_keep(f, &s->mlp);
    else if (is_cut(f))
        attention_shards_keep(f, &s->attention[part], &kept->attention_shards[part]);
    else
        kept->attention[part] = attention_keep(f, &s->attention[part]);
}

static void keep(struct zinf_frame *f, const struct layer_spec *s, struct kept *kept)
{
    for (int part = 0; part < LAYER_PARTS; part++) {
        if (!has_part(s, part))
            continue;
        keep_part(f, s, part, kept);
        if (part != LAYER_MLP || joins(s, part))
            kept->sum[part] = frame_keep(f, x_bytes(f, s));
        kept->joined[part] = part_norm_keep(f, &s->joined[part], 1);
    }
}

static struct part_entry entry_of(const struct layer_spec *s, const struct kept *kept, int part)
{
    return part == LAYER_MLP ? mlp_entry(&s->mlp, &kept->mlp)
                             : attention_entry(&s->attention[part], &kept->attention[part]);
}

/* ---- forward ---- */

static int run_shards(struct zinf_frame *f, const struct kept *kept, int part, const void *x,
                      void *y, bool again)
{
    return part == LAYER_MLP
               ? mlp_shards_forward(f, &kept->mlp_shards, x, x, y, again)
               : attention_shards_forward(f, &kept->attention_shards[part], x, y, again);
}

/* y = x + branch. again: only what is kept is made, and y is not. */
static int run_part(struct zinf_frame *f, const struct kept *kept, int part, const void *x, void *y,
                    bool again)
{
    const struct layer_spec *s = f->stage->spec;
    const struct attention_spec *attention = part == LAYER_MLP ? NULL : &s->attention[part];
    if (is_cut(f))
        return run_shards(f, kept, part, x, y, again);
    struct part_entry entry = entry_of(s, kept, part);
    int code = attention && attention->relative.half
                   ? relative_enter(f, attention, x, kept->attention[part].qkv)
                   : part_enter(f, &entry, x);
    if (code)
        return code;
    return part == LAYER_MLP
               ? mlp_forward(f, &s->mlp, &kept->mlp, x, y, again)
               : attention_forward(f, &s->attention[part], &kept->attention[part], x, y, again);
}

static struct norm_kept *entry_norm(const struct zinf_frame *f, struct kept *kept, int part)
{
    if (is_cut(f))
        return part == LAYER_MLP ? &kept->mlp_shards.norm : &kept->attention_shards[part].norm;
    return part == LAYER_MLP ? &kept->mlp.norm : &kept->attention[part].norm;
}

static const struct zinf_norm **next_of(const struct zinf_frame *f, struct kept *kept, int part)
{
    if (is_cut(f))
        return part == LAYER_MLP ? &kept->mlp_shards.next : &kept->attention_shards[part].next;
    return part == LAYER_MLP ? &kept->mlp.next : &kept->attention[part].next;
}

/* The norm of a part's sum, behind it, to out, or in front of the next part, is made with the sum.
 */
static void normalise_sum(struct zinf_frame *f, struct kept *kept, int part, void *out,
                          struct zinf_norm *norm)
{
    const struct layer_spec *s = f->stage->spec;
    const int64_t hidden = s->attention[0].hidden;
    const void *sum = kept->sum[part];
    const int after = has_part(s, part + 1) ? part + 1 : part + 2;
    if (joins(s, part)) {
        *norm = part_norm_behind(f, &s->joined[part], hidden, sum, kept->joined[part]);
        norm->y = out;
        *next_of(f, kept, part) = norm;
    } else if (part != LAYER_MLP) {
        const struct norm_spec *spec =
            after == LAYER_MLP ? &s->mlp.norm : &s->attention[after].norm;
        *next_of(f, kept, part) =
            part_ahead(f, spec, hidden, sum, entry_norm(f, kept, after), norm);
    }
}

static int forward(struct zinf_frame *f)
{
    const struct layer_spec *s = f->stage->spec;
    const bool again = f->pass == ZINF_PASS_RECOMPUTE;
    struct kept kept;
    const void *x = f->in[0];
    int code = 0;
    keep(f, s, &kept);
    for (int part = 0; !code && part < LAYER_PARTS; part++) {
        const bool last = part == LAYER_MLP, ends = last && !joins(s, part);
        void *out = last && !again ? f->out[0] : NULL;
        if (!has_part(s, part))
            continue;
        if (joins(s, part) && !out)
            out = frame_scratch(f, x_bytes(f, s));
        struct zinf_norm norm;
        normalise_sum(f, &kept, part, out, &norm);
        code = run_part(f, &kept, part, x, ends ? out : kept.sum[part], ends && again);
        x = joins(s, part) ? out : kept.sum[part];
    }
    return code;
}

/* ---- backward ---- */

/* *x: what the part took, made again in scratch where it is a norm. */
static int input_of(struct zinf_frame *f, const struct kept *kept, int part, const void **x)
{
    const struct layer_spec *s = f->stage->spec;
    int before = part - 1;
    *x = f->in[0];
    if (part == 0)
        return 0;
    if (!has_part(s, before))
        before--;
    *x = kept->sum[before];
    if (!joins(s, before))
        return 0;
    void *again = frame_scratch(f, x_bytes(f, s));
    int code = part_join(f, &s->joined[before], kept->joined[before], *x, again);
    *x = again;
    return code;
}

/* As part_backward, from x + branch on. */
static int branch_backward(struct zinf_frame *f, const struct kept *kept, int part, const void *x,
                           void *d_x)
{
    const struct layer_spec *s = f->stage->spec;
    if (is_cut(f))
        return part == LAYER_MLP
                   ? mlp_shards_backward(f, &kept->mlp_shards, x, d_x)
                   : attention_shards_backward(f, &kept->attention_shards[part], x, d_x);
    struct part_entry entry = entry_of(s, kept, part);
    const uint64_t bytes = part == LAYER_MLP ? mlp_entry_bytes(f, &s->mlp)
                                             : attention_entry_bytes(f, &s->attention[part]);
    void *d_y = entry.products[0].y = frame_scratch(f, bytes);
    int code = part == LAYER_MLP
                   ? mlp_backward(f, &s->mlp, &kept->mlp, d_x, d_y)
                   : attention_backward(f, &s->attention[part], &kept->attention[part], d_x, d_y);
    if (code)
        return code;
    return part != LAYER_MLP && s->attention[part].relative.half
               ? relative_enter_backward(f, &s->attention[part], x, d_y, d_x)
               : part_enter_backward(f, &entry, x, d_x);
}

/* d_x: from the gradient of what the part makes to that of what it takes. */
static int part_backward(struct zinf_frame *f, const struct kept *kept, int part, void *d_x)
{
    const struct layer_spec *s = f->stage->spec;
    const uint64_t start = frame_mark(f);
    const void *x;
    int code = input_of(f, kept, part, &x);
    if (!code && joins(s, part))
        code = part_join_backward(f, &s->joined[part], kept->joined[part], kept->sum[part], d_x);
    if (!code)
        code = branch_backward(f, kept, part, x, d_x);
    frame_release(f, start);
    return code;
}

static int backward(struct zinf_frame *f)
{
    const struct layer_spec *s = f->stage->spec;
    struct kept kept;
    void *d_x;
    const bool chunks = f->compute->chunk.whole;
    keep(f, s, &kept);
    int code = part_start_gradient(f, s->attention[0].hidden, &d_x);
    if (!code && chunks)
        code = attention_chunk_clear(f);
    /* of keys and values of chunks there is nothing yet */
    for (uint32_t unit = 0; !code && unit < f->stage->units.n; unit++)
        code = chunks ? frame_zero_grads(f, unit) : frame_zero_gaps(f, unit);
    for (int part = LAYER_PARTS; !code && part-- > 0;)
        if (has_part(s, part))
            code = part_backward(f, &kept, part, d_x);
    return code ? code : part_finish_gradient(f, s->attention[0].hidden, d_x);
}

/* ---- chunks ---- */

static bool looks_ahead(const void *spec)
{
    const struct layer_spec *s = spec;
    return s->crosses || s->attention[LAYER_ATTENTION].both_ways;
}

static int carry(struct zinf_frame *f)
{
    const struct layer_spec *s = f->stage->spec;
    struct kept kept;
    keep(f, s, &kept);
    const struct part_entry entry = entry_of(s, &kept, LAYER_ATTENTION);
    int code = part_enter(f, &entry, f->in[0]);
    for (int part = LAYER_ATTENTION; !code && part <= LAYER_CROSS; part++)
        if (has_part(s, part))
            code = attention_carry(f, &s->attention[part], &kept.attention[part]);
    return code;
}

static int carry_backward(struct zinf_frame *f)
{
    const struct layer_spec *s = f->stage->spec;
    struct kept kept;
    int code = 0;
    keep(f, s, &kept);
    for (uint32_t unit = 0; !code && unit < f->stage->units.n; unit++)
        code = frame_zero_grads(f, unit);
    for (int part = LAYER_ATTENTION; !code && part <= LAYER_CROSS; part++)
        if (has_part(s, part))
            code = attention_carry_part_backward(f, &s->attention[part], &kept.attention[part]);
    return code;
}

const struct zinf_stage_ops zinf_stage_layer = {
    .name = "layer",
    .recomputes = true,
    .passes = true,
    .looks_ahead = looks_ahead,
    .forward = forward,
    .backward = backward,
    .carry = carry,
    .carry_backward = carry_backward,
};

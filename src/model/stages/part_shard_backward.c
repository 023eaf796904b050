/*
 * part_shard_backward: attention of shards backward (part_attention_shards.c): from the gradient
 * behind the sum over shards to those of the shards' products, and from there to the sum in front
 * of the products.
 */
#include "model/stages/part_shard.h"

/* Gradients of what all ranks have whole, as shards make them; NULL: nothing is wanted, or there is
 * nothing. */
struct found {
    float *table; /* [all shards][rows of the table][heads of a shard] */
    float *sinks; /* [all shards][heads of a shard] */
    float *norms; /* [shards][norm_elems]: w and b of queries, then of keys */
};

static int leave_backward(struct zinf_frame *f, const struct attention_call *c, uint32_t shard,
                          const void *d_y, const struct found *found)
{
    struct attention_spec part = attention_part_of(f, c->s, shard);
    const uint64_t all = f->graph->shards.first + shard, heads = (uint64_t)part.n_heads;
    const struct attention_kept *kept = &c->kept->of[shard];
    const struct shard_product p = attention_project(f, c, &part, shard);
    const uint64_t mark = frame_mark(f), row = (uint64_t)frame_rows(f) * frame_width(f);
    const struct frame_apart apart = frame_apart_begin(f);
    void *d_x = frame_scratch(f, row * (uint64_t)p.rows), *d_out = d_x;
    const void *x;
    frame_part_before(f);
    if (found->table)
        part.distance.d_table = found->table + all * attention_table_rows(c->s) * heads;
    if (found->sinks)
        part.d_sinks = found->sinks + all * heads;
    if (found->norms)
        attention_place_norms(f, &part, found->norms + shard * attention_norm_elems(c->s));
    int code = shard_depth_input(f, &p, d_y, d_x);
    if (!code)
        code = attention_projection_input(f, c, shard, &x);
    if (!code)
        code = shard_depth_weight(f, &p, x, d_y);
    if (attention_value_cols(&part) < part.head_dim || part.gated) {
        d_out = frame_scratch(f, row * heads * (uint64_t)part.head_dim);
        code = code ? code
                    : attention_result_backward(f, &part, kept, d_x, d_out, c->gradients[shard]);
    }
    if (!code && part.latent.kv_rank)
        code = latent_shards_attend_backward(f, c->kept, shard, d_out, c->gradients[shard]);
    else if (!code)
        code = attention_attend_backward(f, &part, kept, d_out, c->gradients[shard], mark);
    if (!code)
        code = attention_scale_part(f, &part, c->gradients[shard]);
    frame_apart_end(f, apart);
    return code;
}

/* Of the rows that queries are products of, and keys and values without a source. */
static int make_rows_input(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct attention_call *c = call;
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    uint64_t at;
    const struct shard_product q = attention_query(c, &part, shard);
    const struct shard_product kv = attention_key_value(f, c, &part, shard, &at);
    const void *d_qkv = c->gradients[shard];
    int code = shard_columns_input(f, &q, d_qkv, out, 0);
    return code || c->s->source || !kv.rows
               ? code
               : shard_columns_input(f, &kv, shard_at(f, d_qkv, at), out, 1);
}

/* Gradients of all shards' products, from that behind the sum; and of what all ranks have, whose
 * places are found in the part of the call that writes there (frame.h). */
static int leave_all(struct zinf_frame *f, const struct attention_call *c, const void *d_y)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const uint64_t rows = attention_table_rows(c->s), heads = (uint64_t)c->s->n_heads;
    const bool table = attention_table_gradient(f, c->s), sinks = frame_grad(f, 0, c->s->sinks);
    const bool norms = attention_wants_norms(f, c->s);
    const uint64_t mark = frame_mark(f),
                   norm_bytes = cut->n * attention_norm_elems(c->s) * sizeof(float);
    const struct found found = {
        .table = table ? frame_scratch(f, rows * heads * sizeof(float)) : NULL,
        .sinks = sinks ? frame_scratch(f, heads * sizeof(float)) : NULL,
        .norms = norms ? frame_scratch(f, norm_bytes) : NULL,
    };
    int code = norms ? frame_zero(f, found.norms, norm_bytes) : 0;
    for (uint32_t i = 0; !code && i < cut->n; i++)
        code = leave_backward(f, c, i, d_y, &found);
    if (!code && table)
        code = attention_join_heads(f, c->s, found.table, rows, attention_table_gradient(f, c->s));
    if (!code && sinks)
        code = attention_join_heads(f, c->s, found.sinks, 1, frame_grad(f, 0, c->s->sinks));
    if (!code && norms)
        code = attention_sum_norms(f, c->s, found.norms);
    frame_release(f, mark);
    return code;
}

int attention_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                           const struct shard_gradients *gradients, uint32_t shard, float *out)
{
    const struct attention_call c = {.s = kept->s, .kept = kept, .gradients = gradients->of};
    if (mixer_is_there(kept->s))
        return mixer_shards_enter(f, kept, gradients, shard, out, 0);
    return make_rows_input(f, &c, shard, out);
}

int attention_shards_leave(struct zinf_frame *f, const struct attention_shards *kept, const void *x,
                           const void *d_y, struct shard_gradients *gradients)
{
    const struct attention_spec *s = kept->s;
    const struct attention_spec part = attention_part_of(f, s, 0);
    const struct part_exit leave = attention_shards_exit(kept);
    const uint64_t keys =
        (uint64_t)(attention_source_rows(f, s) * attention_kv_rows(&part)) * frame_width(f);
    struct head_rows rows[ZINF_MOST_SHARDS] = {{NULL, NULL, 0}};
    struct attention_call c = {.s = s, .kept = kept, .gradients = gradients->of};
    const void *d_branch;
    const bool latent = s->latent.kv_rank > 0;
    if (mixer_is_there(s))
        return mixer_shards_leave(f, kept, x, d_y, gradients);
    if (latent)
        latent_shards_take(f, s, gradients);
    for (uint32_t i = 0; !latent && i < f->graph->shards.n; i++)
        gradients->of[i] = frame_scratch(f, attention_entry_bytes(f, &part) + keys);
    const uint64_t mark = frame_mark(f);
    int code = part_leave_backward(f, &leave, d_y, &d_branch);
    if (!code)
        code = shard_bias_gradient(f, s->proj_b, s->hidden, d_branch);
    if (!code)
        code = leave_all(f, &c, d_branch);
    for (uint32_t i = 0; !latent && i < f->graph->shards.n; i++)
        rows[i] = attention_heads_of(f, &part, gradients->of[i]);
    if (!code)
        code = whole_norms_backward(f, kept, rows);
    if (!code)
        code = attention_take_rows(f, &c, x);
    if (!code && latent)
        code = latent_shards_weights(f, kept, c.rows, gradients);
    if (!code && !latent)
        code = attention_weights_backward(f, &c);
    if (!code)
        code = attention_adapt_projection(f, &c, d_branch);
    frame_release(f, mark);
    return code;
}

/* For the sum in front of the products. */
struct enter_call {
    const struct attention_shards *kept;
    const struct shard_gradients *gradients;
    int64_t count; /* as in attention_call */
};

static int make_enter(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct enter_call *c = call;
    const struct attention_call rows = {
        .s = c->kept->s, .kept = c->kept, .gradients = c->gradients->of, .count = c->count};
    return c->count ? make_rows_input(f, &rows, shard, out)
                    : attention_shards_enter(f, c->kept, c->gradients, shard, out);
}

/* As shard_enter_backward, of the call's rows and those of a table of relative positions. */
static int enter_backward(struct zinf_frame *f, const struct attention_spec *s,
                          const struct part_entry *e, const struct shard_sum *sum, const void *x,
                          void *d_x)
{
    const uint64_t mark = frame_mark(f);
    void *d_rows;
    int code = shard_sum_narrow(f, sum, &d_rows);
    if (!code)
        code = part_rows_backward(f, e, x, d_rows, d_x);
    if (!code)
        code = relative_rows_backward(f, s, d_rows);
    frame_release(f, mark);
    return code;
}

int attention_shards_backward(struct zinf_frame *f, const struct attention_shards *kept,
                              const void *x, void *d_x)
{
    const struct part_entry e = attention_shards_entry(kept);
    const uint64_t mark = frame_mark(f);
    const int64_t count = relative_count(f, kept->s);
    struct shard_gradients gradients;
    const struct enter_call call = {kept, &gradients, count};
    const struct shard_sum sum = {make_enter, &call,
                                  count ? (uint64_t)(count * kept->s->hidden)
                                        : attention_x_elems(f, kept->s)};
    int code = attention_shards_leave(f, kept, x, d_x, &gradients);
    if (!code && kept->s->latent.kv_rank)
        code = latent_shards_enter(f, kept, &e, &gradients, x, d_x);
    else if (!code && count)
        code = enter_backward(f, kept->s, &e, &sum, x, d_x);
    else if (!code)
        code = shard_enter_backward(f, &e, &sum, x, d_x);
    frame_release(f, mark);
    return code;
}

/* Gradients of the shards' products, of the chunk's own keys and values alone. */
static int own_backward(struct zinf_frame *f, const struct attention_call *c)
{
    struct head_rows rows[ZINF_MOST_SHARDS] = {{NULL, NULL, 0}};
    const bool norms = attention_wants_norms(f, c->s);
    const uint64_t mark = frame_mark(f), each = attention_norm_elems(c->s);
    const uint64_t bytes = f->graph->shards.n * each * sizeof(float);
    float *found = norms ? frame_scratch(f, bytes) : NULL;
    int code = norms ? frame_zero(f, found, bytes) : 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        struct attention_spec part = attention_part_of(f, c->s, i);
        attention_place_norms(f, &part, norms ? found + i * each : NULL);
        rows[i] = attention_heads_of(f, &part, c->gradients[i]);
        code = attention_own_backward(f, &part, &c->kept->of[i], c->gradients[i]);
        if (!code)
            code = attention_scale_part(f, &part, c->gradients[i]);
    }
    if (!code && norms)
        code = attention_sum_norms(f, c->s, found);
    if (!code)
        code = whole_norms_backward(f, c->kept, rows);
    frame_release(f, mark);
    return code;
}

/* From the rows of products: gradients of weights, and that of what the stage takes. */
static int carry_gradients(struct zinf_frame *f, const struct attention_call *c,
                           const struct shard_gradients *gradients, void *d_x)
{
    const struct attention_shards *kept = c->kept;
    const struct part_entry e = attention_shards_entry(kept);
    const struct enter_call call = {kept, gradients, 0};
    const struct shard_sum sum = {make_enter, &call, attention_x_elems(f, kept->s)};
    int code = attention_multiply_all(f, c);
    if (!code)
        code = own_backward(f, c);
    if (!code)
        code = attention_weights_backward(f, c);
    return code ? code : shard_enter_backward(f, &e, &sum, f->in[0], d_x);
}

/* The same of latent attention. */
static int carry_latent(struct zinf_frame *f, const struct attention_call *c,
                        const struct shard_gradients *gradients, void *d_x)
{
    const struct part_entry e = attention_shards_entry(c->kept);
    int code = latent_shards_own_backward(f, c->kept, c->rows, gradients);
    if (!code)
        code = latent_shards_weights(f, c->kept, c->rows, gradients);
    return code ? code : latent_shards_enter(f, c->kept, &e, gradients, f->in[0], d_x);
}

int attention_shards_carry_backward(struct zinf_frame *f, const struct attention_shards *kept)
{
    const struct attention_spec part = attention_part_of(f, kept->s, 0);
    const struct part_entry e = attention_shards_entry(kept);
    const uint64_t mark = frame_mark(f);
    const bool latent = kept->s->latent.kv_rank;
    struct shard_gradients gradients;
    struct attention_call c = {.s = kept->s, .kept = kept, .gradients = gradients.of};
    void *d_x;
    int code = 0;
    if (mixer_is_there(kept->s)) /* nothing comes back by way of keys */
        return 0;
    if (latent)
        latent_shards_take(f, kept->s, &gradients);
    for (uint32_t i = 0; !latent && i < f->graph->shards.n; i++)
        gradients.of[i] = frame_scratch(f, attention_entry_bytes(f, &part));
    for (uint32_t u = 0; !code && u < f->stage->units.n; u++)
        code = frame_zero_grads(f, u);
    if (!code)
        code = attention_carry_gradient(f, kept->s->hidden, &d_x);
    if (!code)
        code = part_rows(f, &e, f->in[0], &c.rows);
    if (!code)
        code = (latent ? carry_latent : carry_gradients)(f, &c, &gradients, d_x);
    frame_release(f, mark);
    return code;
}

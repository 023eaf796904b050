/*
 * part_attention_shards: attention, shard by shard, as tensor parallel cuts it:
 *   rows = norm(x); qkv_s = rows Wqkv_s^T; o_s = attention(qkv_s); y = x + branch(sum o_s Wp_s)
 * and backward the sum over shards is that in front of the products of rows. Norms, biases behind
 * sums and dropout of branches are of whole rows, which each rank has. Keys and values that several
 * shards share are made by each of them, and their gradients are a sum of theirs; those that other
 * layers take are a piece of the value for each shard. With a source
 * keys and values are products of its rows, and the gradient there is a sum over shards, too. A
 * table of biases by distance is whole on each rank; a shard takes its heads' columns of it, and
 * its heads' sinks; of a table of relative positions its heads' products, as rows behind those of
 * the tokens. Norms of each head have the weights of all heads, whose gradients are sums over
 * shards; norms of all heads together are made between the products and the heads
 * (part_whole_norms.c).
 *
 * Of sequences in chunks each shard's keys and values are a piece of what the stage carries, and
 * each shard is visited in the parts of a call (frame.h) by itself, with scratch of its own.
 *
 * The numbers in the spec are those of all shards. Attention drops by masks of its own for each
 * shard, since its elements are counted over a shard's heads.
 */
#include "model/stages/part_shard.h"

void attention_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                           struct attention_shards *kept)
{
    kept->s = s;
    kept->in_front = &s->norm;
    kept->next = NULL;
    kept->norm = part_norm_keep(f, &s->norm, 1);
    kept->after = part_norm_keep(f, &s->after, 1);
    kept->product = s->after.w < 0 ? NULL : frame_keep(f, attention_x_elems(f, s) * frame_width(f));
    if (mixer_is_there(s)) {
        mixer_shards_keep(f, s, kept);
        return;
    }
    whole_norms_keep(f, s, kept);
    if (s->latent.kv_rank) {
        latent_shards_keep(f, s, kept);
        return;
    }
    if (frame_decoding(f)) {
        const struct attention_spec all = attention_cached_of(f, s);
        kept->cached = attention_keep(f, &all);
        return;
    }
    for (uint32_t i = 0; i < f->graph->shards.n; i++) {
        const struct attention_spec part = attention_part_of(f, s, i);
        kept->of[i] = attention_keep(f, &part);
    }
}

/* ---- forward ---- */

int attention_take_rows(struct zinf_frame *f, struct attention_call *c, const void *x)
{
    const struct part_entry e = attention_shards_entry(c->kept);
    const int code = part_rows(f, &e, x, &c->rows);
    c->count = relative_count(f, c->s);
    return code || !c->count ? code : relative_rows(f, c->s, c->rows, &c->rows);
}

static int make_projection(struct zinf_frame *f, const void *call, uint32_t shard, float *out)
{
    const struct attention_call *c = call;
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    const struct shard_product p = attention_project(f, c, &part, shard);
    const uint64_t mark = frame_mark(f);
    const void *x;
    int code = attention_projection_input(f, call, shard, &x);
    if (!code)
        code = shard_depth(f, &p, x, out);
    frame_release(f, mark);
    return code;
}

/* Keys and values, unless those of all sources are remembered. */
static int make_keys(struct zinf_frame *f, const struct attention_call *c,
                     const struct attention_spec *part, uint32_t shard)
{
    const struct attention_kept *kept = &c->kept->of[shard];
    uint64_t at;
    const struct shard_product kv = attention_key_value(f, c, part, shard, &at);
    if (!kv.rows)
        return 0;
    if (!c->s->source)
        return shard_columns(f, &kv, c->rows, shard_at(f, kept->qkv, at));
    return kv.count ? shard_columns(f, &kv, f->in[c->s->source], kept->kv) : 0;
}

static int multiply(struct zinf_frame *f, const struct attention_call *c, uint32_t shard)
{
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    const struct shard_product q = attention_query(c, &part, shard);
    int code = shard_columns(f, &q, c->rows, c->kept->of[shard].qkv);
    if (!code)
        code = make_keys(f, c, &part, shard);
    return code ? code : attention_scale_part(f, &part, c->kept->of[shard].qkv);
}

int attention_multiply_all(struct zinf_frame *f, const struct attention_call *c)
{
    struct head_rows rows[ZINF_MOST_SHARDS] = {{NULL, NULL, 0}};
    int code = 0;
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct attention_spec part = attention_part_of(f, c->s, i);
        code = multiply(f, c, i);
        rows[i] = attention_heads_of(f, &part, c->kept->of[i].qkv);
    }
    return code ? code : whole_norms_forward(f, c->kept, rows);
}

/* And what `use` makes of each: attention, or what the stage carries. */
static int use_all(struct zinf_frame *f, const struct attention_call *c,
                   int (*use)(struct zinf_frame *f, const struct attention_spec *s,
                              const struct attention_kept *kept))
{
    int code = attention_multiply_all(f, c);
    for (uint32_t i = 0; !code && i < f->graph->shards.n; i++) {
        const struct attention_spec part = attention_part_of(f, c->s, i);
        const struct frame_apart apart = frame_apart_begin(f);
        frame_part_before(f);
        code = use(f, &part, &c->kept->of[i]);
        frame_apart_end(f, apart);
    }
    return code;
}

int attention_shards_attend(struct zinf_frame *f, const struct attention_shards *kept,
                            const void *x)
{
    struct attention_call c = {.s = kept->s, .kept = kept};
    const uint64_t mark = frame_mark(f);
    int code = attention_take_rows(f, &c, x);
    if (!code && kept->s->latent.kv_rank)
        code = latent_shards_attend(f, kept, c.rows);
    else if (!code)
        code =
            frame_decoding(f) ? attention_attend_cached(f, &c) : use_all(f, &c, attention_attend);
    frame_release(f, mark);
    return code;
}

int attention_shards_project(struct zinf_frame *f, const struct attention_shards *kept,
                             uint32_t shard, float *out)
{
    const struct attention_call c = {.s = kept->s, .kept = kept};
    return (frame_decoding(f) ? attention_cached_projection : make_projection)(f, &c, shard, out);
}

static int make_branch(struct zinf_frame *f, const void *kept, uint32_t shard, float *out)
{
    return attention_shards_project(f, kept, shard, out);
}

int attention_shards_forward(struct zinf_frame *f, const struct attention_shards *kept,
                             const void *x, void *y, bool again)
{
    const struct part_exit leave = attention_shards_exit(kept);
    const struct shard_sum sum = {make_branch, kept, attention_x_elems(f, kept->s)};
    if (mixer_is_there(kept->s))
        return mixer_shards_forward(f, kept, x, x, y, again);
    int code = attention_shards_attend(f, kept, x);
    return code ? code : shard_add_branch(f, &leave, &sum, x, y, again);
}

int attention_shards_carry(struct zinf_frame *f, const struct attention_shards *kept)
{
    struct attention_call c = {.s = kept->s, .kept = kept};
    const struct part_entry e = attention_shards_entry(kept);
    if (mixer_is_there(kept->s))
        return mixer_shards_carry(f, kept);
    const int code = part_rows(f, &e, f->in[0], &c.rows);
    if (code)
        return code;
    return kept->s->latent.kv_rank ? latent_shards_carry(f, kept, c.rows)
                                   : use_all(f, &c, attention_carry);
}

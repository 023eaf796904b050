/*
 * part_shard_products: a shard of attention (part_attention_shards.c): its part of the spec, and
 * its products.
 */
#include "model/stages/part_shard.h"

/* Those of queries, keys and values. */
static void scale_heads(struct attention_spec *part)
{
    const int64_t heads[] = {part->n_heads, part->n_kv_heads, part->n_kv_heads};
    for (int i = 0; i < part->scales.n; i++)
        part->scales.ranges[i].cols = heads[i] * part->head_dim;
}

int attention_scale_part(struct zinf_frame *f, const struct attention_spec *part, void *qkv)
{
    const int64_t cols = attention_query_rows(part) + attention_kv_rows(part);
    return part_scale_columns(f, &part->scales, cols, qkv);
}

struct attention_spec attention_part_of(const struct zinf_frame *f, const struct attention_spec *s,
                                        uint32_t shard)
{
    const struct zinf_shards *c = &f->graph->shards;
    struct attention_spec part = *s;
    part.n_heads /= c->of;
    part.n_kv_heads = shard_groups_of(c, s->n_kv_heads).heads;
    part.norm.w = part.after.w = -1;
    part.first_sink = (c->first + shard) * part.n_heads;
    if (s->whole_norms)
        part.q_norm.w = part.k_norm.w = -1;
    part.site += (c->first + shard) * SHARD_SITES;
    part.carried_pieces = c->n;
    part.carried_piece = shard;
    if (part.slopes)
        part.slopes += (c->first + shard) * part.n_heads;
    if (part.distance.n_buckets) {
        part.distance.first_head = (c->first + shard) * part.n_heads;
        part.distance.all_heads = s->n_heads;
    }
    scale_heads(&part);
    if (part.source)
        part.kv_w = part.kv_b = -1; /* made here */
    return part;
}

struct shard_product attention_query(const struct attention_call *c,
                                     const struct attention_spec *part, uint32_t shard)
{
    const int64_t rows = attention_query_rows(part);
    return (struct shard_product){.weight = shard_tensor(c->s->qkv_w, shard),
                                  .bias = shard_tensor(c->s->qkv_b, shard),
                                  .rows = rows,
                                  .ld = rows + (c->s->source ? 0 : attention_kv_rows(part)),
                                  .count = c->count};
}

struct shard_product attention_key_value(const struct zinf_frame *f, const struct attention_call *c,
                                         const struct attention_spec *part, uint32_t shard,
                                         uint64_t *at)
{
    const struct zinf_shards *cut = &f->graph->shards;
    const struct shard_groups groups = shard_groups_of(cut, c->s->n_kv_heads);
    const int64_t queries = attention_query_rows(part), rows = attention_kv_rows(part);
    const uint32_t group = (cut->first + shard) / groups.shards - groups.first;
    *at = c->s->source ? attention_entry_bytes(f, part) : (uint64_t)queries * frame_width(f);
    return (struct shard_product){.weight = shard_tensor(c->s->kv_w, group),
                                  .bias = shard_tensor(c->s->kv_b, group),
                                  .rows = rows,
                                  .ld = rows + (c->s->source ? 0 : queries),
                                  .count =
                                      c->s->source ? attention_source_rows(f, c->s) : c->count};
}

const void *attention_key_input(const struct zinf_frame *f, const struct attention_call *c)
{
    return c->s->source ? f->in[c->s->source] : c->rows;
}

struct shard_product attention_project(const struct zinf_frame *f, const struct attention_call *c,
                                       const struct attention_spec *part, uint32_t shard)
{
    const int64_t rows = part->n_heads * attention_value_cols(part);
    const bool first = !(f->graph->shards.first + shard);
    return (struct shard_product){.weight = shard_tensor(c->s->proj_w, shard),
                                  .bias = first ? c->s->proj_b : -1,
                                  .rows = rows,
                                  .ld = rows};
}

int attention_projection_input(struct zinf_frame *f, const void *call, uint32_t shard,
                               const void **x)
{
    const struct attention_call *c = call;
    const struct attention_spec part = attention_part_of(f, c->s, shard);
    void *values;
    int code = attention_result(f, &part, &c->kept->of[shard], &values);
    *x = values;
    return code;
}

struct head_rows attention_heads_of(const struct zinf_frame *f, const struct attention_spec *part,
                                    void *qkv)
{
    const int64_t queries = part->n_heads * part->head_dim;
    return (struct head_rows){.q = qkv,
                              .k = shard_at(f, qkv, (uint64_t)queries * frame_width(f)),
                              .ld = queries + attention_kv_rows(part)};
}

struct part_entry attention_shards_entry(const struct attention_shards *kept)
{
    return (struct part_entry){
        .norm = kept->in_front, .kept = kept->norm, .hidden = kept->s->hidden};
}

struct part_exit attention_shards_exit(const struct attention_shards *kept)
{
    return attention_exit(kept->s, &(struct attention_kept){.after = kept->after,
                                                            .product = kept->product,
                                                            .next = kept->next});
}

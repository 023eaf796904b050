/*
 * part_shard: what the files of attention's shards (part_attention_shards.c) have in common. For
 * them alone.
 */
#ifndef ZINF_PART_SHARD_H
#define ZINF_PART_SHARD_H

#include "model/shards.h"

/* A call, for the parts of its sums. */
struct attention_call {
    const struct attention_spec *s; /* of all shards */
    const struct attention_shards *kept;
    const void *rows;       /* backward: what the products of queries, or of all, take */
    void *const *gradients; /* of the shards' products; behind those of a row those of a source */
};

static inline uint64_t attention_x_elems(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)(frame_rows(f) * s->hidden);
}

/* ---- part_shard_products.c ---- */

/* A shard's part of the spec: without the norm, which is of whole rows. */
struct attention_spec attention_part_of(const struct zinf_frame *f, const struct attention_spec *s,
                                        uint32_t shard);
static inline int64_t attention_source_rows(const struct zinf_frame *f,
                                            const struct attention_spec *s)
{
    return s->source ? f->compute->batch * f->compute->source_seq : 0;
}
/* Of the product that makes keys and values: both, keys that are the values, too, or neither. */
static inline int64_t attention_kv_rows(const struct attention_spec *part)
{
    const int64_t kinds = part->taken ? 0 : part->keys_are_values ? 1 : 2;
    return kinds * part->n_kv_heads * part->head_dim;
}
/* Of a head, of what the projection takes. */
static inline int64_t attention_value_cols(const struct attention_spec *s)
{
    return s->latent.kv_rank ? s->latent.value : s->head_dim;
}
/* In place: a shard's product, or its gradient, by the factors of its columns. */
int attention_scale_part(struct zinf_frame *f, const struct attention_spec *part, void *qkv);
/* Columns of queries, and of their gates. */
static inline int64_t attention_query_rows(const struct attention_spec *part)
{
    return (part->gated ? 2 : 1) * part->n_heads * part->head_dim;
}
struct shard_product attention_query(const struct attention_call *c,
                                     const struct attention_spec *part, uint32_t shard);
/* The shard's keys and values; *at: the bytes in front of them in a row of queries, or in front of
 * all of a source's. */
struct shard_product attention_key_value(const struct zinf_frame *f, const struct attention_call *c,
                                         const struct attention_spec *part, uint32_t shard,
                                         uint64_t *at);
/* What keys and values are products of. */
const void *attention_key_input(const struct zinf_frame *f, const struct attention_call *c);
/* The sum's first part has the bias. */
struct shard_product attention_project(const struct zinf_frame *f, const struct attention_call *c,
                                       const struct attention_spec *part, uint32_t shard);
/* What a shard's projection takes, in scratch where it is not what is kept. */
int attention_projection_input(struct zinf_frame *f, const void *call, uint32_t shard,
                               const void **x);
/* Where a shard's queries and keys are in its product. */
struct head_rows attention_heads_of(const struct zinf_frame *f, const struct attention_spec *part,
                                    void *qkv);

struct part_exit attention_shards_exit(const struct attention_shards *kept);

/* ---- part_shard_cached.c ---- */

/* All of the graph's shards at once: what one head gives does not depend on others, and a cache has
 * the heads of all. */
struct attention_spec attention_cached_of(const struct zinf_frame *f,
                                          const struct attention_spec *s);
int attention_attend_cached(struct zinf_frame *f, const struct attention_call *c);
/* A part of the sum behind it. */
int attention_cached_projection(struct zinf_frame *f, const void *call, uint32_t shard, float *out);

/* ---- part_attention_shards.c ---- */

/* All shards' products, as heads are made of them. */
int attention_multiply_all(struct zinf_frame *f, const struct attention_call *c);

/* ---- part_shard_weights.c ---- */

/* Of all that has weights in front of heads, from the gradients of the shards' products. */
int attention_weights_backward(struct zinf_frame *f, const struct attention_call *c);
/* Adapters of the projection. */
int attention_adapt_projection(struct zinf_frame *f, const struct attention_call *c,
                               const void *d_y);

/* ---- part_shard_whole.c ---- */

uint64_t attention_norm_elems(const struct attention_spec *s);
uint64_t attention_table_rows(const struct attention_spec *s);
float *attention_table_gradient(const struct zinf_frame *f, const struct attention_spec *s);
/* found [all shards][rows][heads of a shard], where this rank's are in their place, to columns of
 * whole [rows][heads]. */
int attention_join_heads(struct zinf_frame *f, const struct attention_spec *s, float *found,
                         uint64_t rows, float *whole);
/* Gradients of norms of heads: whether any is wanted; where a shard's go, own [norm_elems], NULL:
 * nowhere; and of all shards' [shards][norm_elems] the sum, to those of the tensors. */
bool attention_wants_norms(const struct zinf_frame *f, const struct attention_spec *s);
void attention_place_norms(const struct zinf_frame *f, struct attention_spec *part, float *own);
int attention_sum_norms(struct zinf_frame *f, const struct attention_spec *s, const float *found);

#endif

/*
 * part_shard: what the files of shards of attention (part_attention_shards.c) and of mixers
 * (part_mixer_shards.c) have in common. For them alone.
 */
#ifndef ZINF_PART_SHARD_H
#define ZINF_PART_SHARD_H

#include "model/shards.h"

/* The arguments of a call, for the functions that make a shard's part of a sum. */
struct attention_call {
    const struct attention_spec *s; /* the spec of all shards together */
    const struct attention_shards *kept;
    const void *rows; /* what the products take; with a source only those of queries */
    /* how many; 0: the call's. With relative positions the table's rows are behind these. */
    int64_t count;
    /* gradients of the shards' products; with a source, kv's lie behind qkv's */
    void *const *gradients;
};

static inline uint64_t attention_x_elems(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)(frame_rows(f) * s->hidden);
}

/* ---- part_shard_products.c ---- */

/* A shard's part of the spec, without the norms in front and behind, which are over whole rows. */
struct attention_spec attention_part_of(const struct zinf_frame *f, const struct attention_spec *s,
                                        uint32_t shard);
static inline int64_t attention_source_rows(const struct zinf_frame *f,
                                            const struct attention_spec *s)
{
    return s->source ? f->compute->batch * f->compute->source_seq : 0;
}
/* Rows of the weight that makes keys and values: both, keys alone if they are the values, or none.
 */
static inline int64_t attention_kv_rows(const struct attention_spec *part)
{
    const int64_t kinds = part->taken ? 0 : part->keys_are_values ? 1 : 2;
    return kinds * part->n_kv_heads * part->head_dim;
}
/* Columns of a head in the projection's operand. */
static inline int64_t attention_value_cols(const struct attention_spec *s)
{
    return s->latent.kv_rank ? s->latent.value : s->head_dim;
}
/* Multiplies a shard's product, or its gradient, by the factors of its columns, in place. */
int attention_scale_part(struct zinf_frame *f, const struct attention_spec *part, void *qkv);
/* Rows of the weight that makes queries and their gates. */
static inline int64_t attention_query_rows(const struct attention_spec *part)
{
    return (part->gated ? 2 : 1) * part->n_heads * part->head_dim;
}
struct shard_product attention_query(const struct attention_call *c,
                                     const struct attention_spec *part, uint32_t shard);
/* The product that makes the shard's keys and values. *at: the bytes in front of them: of the
 * queries in each row or, with a source, of qkv as a whole. */
struct shard_product attention_key_value(const struct zinf_frame *f, const struct attention_call *c,
                                         const struct attention_spec *part, uint32_t shard,
                                         uint64_t *at);
/* The rows that keys and values are products of. */
const void *attention_key_input(const struct zinf_frame *f, const struct attention_call *c);
/* The shard's projection. Only the first part of the sum adds the bias. */
struct shard_product attention_project(const struct zinf_frame *f, const struct attention_call *c,
                                       const struct attention_spec *part, uint32_t shard);
/* *x: the operand of a shard's projection: the kept result of its heads, or made from it in
 * scratch. */
int attention_projection_input(struct zinf_frame *f, const void *call, uint32_t shard,
                               const void **x);
/* Where a shard's queries and keys are in its product. */
struct head_rows attention_heads_of(const struct zinf_frame *f, const struct attention_spec *part,
                                    void *qkv);

struct part_exit attention_shards_exit(const struct attention_shards *kept);

/* ---- part_shard_cached.c ---- */

/* The spec of all the graph's shards as one: heads do not depend on each other, and the cache has
 * those of all shards. */
struct attention_spec attention_cached_of(const struct zinf_frame *f,
                                          const struct attention_spec *s);
int attention_attend_cached(struct zinf_frame *f, const struct attention_call *c);
/* Makes one shard's part of the sum behind the heads. */
int attention_cached_projection(struct zinf_frame *f, const void *call, uint32_t shard, float *out);

/* ---- part_attention_shards.c ---- */

/* Makes the rows that the products take from x. */
int attention_take_rows(struct zinf_frame *f, struct attention_call *c, const void *x);
/* Makes the products of all shards, from which their heads are made. */
int attention_multiply_all(struct zinf_frame *f, const struct attention_call *c);

/* ---- part_shard_weights.c ---- */

/* Makes the gradients of all weights in front of the heads from those of the shards' products. */
int attention_weights_backward(struct zinf_frame *f, const struct attention_call *c);
/* Makes the gradients of the projection's adapters. */
int attention_adapt_projection(struct zinf_frame *f, const struct attention_call *c,
                               const void *d_y);

/* ---- part_shard_whole.c ---- */

uint64_t attention_norm_elems(const struct attention_spec *s);
uint64_t attention_table_rows(const struct attention_spec *s);
float *attention_table_gradient(const struct zinf_frame *f, const struct attention_spec *s);
/* Gathers found [all shards][rows][heads of a shard], which has this rank's shards in their places,
 * from all ranks and writes it to the columns of whole [rows][heads]. */
int attention_join_heads(struct zinf_frame *f, const struct attention_spec *s, float *found,
                         uint64_t rows, float *whole);
/* Gradients of norms of heads. wants: whether any is wanted. place: those of a shard go to own
 * [norm_elems]; NULL: they are not separated. sum: sums found [shards][norm_elems] over all shards
 * into the gradients of the tensors. */
bool attention_wants_norms(const struct zinf_frame *f, const struct attention_spec *s);
void attention_place_norms(const struct zinf_frame *f, struct attention_spec *part, float *own);
int attention_sum_norms(struct zinf_frame *f, const struct attention_spec *s, const float *found);

#endif

/*
 * shards: products and parts of a model that is cut for tensor parallel (zinf_shards in graph.h).
 * Inside src/model only.
 *
 * Each shard has tensors of its own. A matrix whose outputs are cut (queries, keys and values; up)
 * is [out][in] as ever. One whose depth is cut (the projection; down) is stored as [in][out], so
 * that a shard's part of it are neighbouring rows of the file's, too, or columns of a file that has
 * them by column.
 * Each product has the shapes of one shard, and each sum over shards is a tree over all of them
 * that splits in halves: bits do not depend on who has how many.
 */
#ifndef ZINF_SHARDS_H
#define ZINF_SHARDS_H

#include "model/stages/stages.h"

/* A shard's tensors in a product, and how its operand or result lies. */
struct shard_product {
    int weight, bias; /* of the unit; bias -1: none */
    int64_t rows;     /* of the weight, and of the bias where outputs are cut */
    int64_t ld;       /* of y, or of x where the depth is cut: elements from row to row */
    uint32_t unit;    /* its place at hand */
    int64_t count;    /* rows of x and y; 0: those of the call, or that chose the visit */
};
/* Rows of x and y. */
static inline int64_t shard_rows(const struct zinf_frame *f, const struct shard_product *p)
{
    const int64_t of_call = f->stage->choice.n ? f->n_chosen : frame_rows(f);
    return p->count ? p->count : of_call;
}
/* Outputs are cut: y = x W^T + bias; dw = dy^T x, [rows][cols]; dx = beta dx + dy W. */
int shard_columns(struct zinf_frame *f, const struct shard_product *p, const void *x, void *y);
int shard_columns_weight(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                         const void *x, float *dw);
int shard_columns_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                        float *dx, float beta);
/* The depth is cut: y = x W + bias, a part of a sum; dx = dy W^T; the gradient of W, x^T dy. */
int shard_depth(struct zinf_frame *f, const struct shard_product *p, const void *x, float *y);
int shard_depth_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                      void *dx);
int shard_depth_weight(struct zinf_frame *f, const struct shard_product *p, const void *x,
                       const void *dy);

/* ---- adapters (frame_shard_adapters.c) ----
 *
 * The calls above have their part in products. Gradients of what is one shard's own are made beside
 * those of the weight; of what all shards have, by a call for all of them. */

/* Of a product whose outputs are cut: y += scale x~ A^T B^T, dx += mask(scale dy B A). */
int shard_columns_adapt(struct zinf_frame *f, const struct shard_product *p, const void *x,
                        void *y);
int shard_columns_adapt_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                              float *dx);
/* Of one whose depth is cut; y is fp32, dx of the parameters' type. */
int shard_depth_adapt(struct zinf_frame *f, const struct shard_product *p, const void *x, float *y);
int shard_depth_adapt_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                            void *dx);
int shard_depth_adapt_weight(struct zinf_frame *f, const struct shard_product *p, const void *x,
                             const void *dy);
/* All shards of the graph: their products, each one's gradient and its input. */
struct shard_adapters {
    const struct shard_product *p; /* [shards] */
    const void *const *dy;         /* [shards] of outputs that are cut; else all are dy[0] */
    const void *x;                 /* of outputs that are cut */
    /* Of a depth that is cut: the shard's input, which may be made in scratch. */
    int (*input)(struct zinf_frame *f, const void *call, uint32_t shard, const void **x);
    const void *call;
    uint32_t per_weight; /* shards that have a weight in common */
    bool shares;         /* other ranks may have it, too */
};
/* A, which all have, and B of each weight; of a depth that is cut, B, which all have. */
int shard_columns_adapt_weights(struct zinf_frame *f, const struct shard_adapters *all);
int shard_depth_adapt_weights(struct zinf_frame *f, const struct shard_adapters *all);

/* A sum over shards of what `make` makes of each, fp32. */
struct shard_sum {
    int (*make)(struct zinf_frame *f, const void *call, uint32_t shard, float *out);
    const void *call;
    uint64_t elems;
};
/* Over n of the graph's shards from one on, of 0 to graph->shards.n - 1, which are half, a quarter,
 * ... of all; over all of them: that of all ranks. */
int shard_sum_some(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                   float *out);
int shard_sum(struct zinf_frame *f, const struct shard_sum *sum, float *out);
/* Of n shards from `first` on and those of other ranks that share a group with them. */
int shard_sum_shared(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                     float *out);
/* Each rank's bytes, in their order, to all of them: whole [ranks][bytes], where this rank's are in
 * their place. */
int shard_gather(struct zinf_frame *f, void *whole, uint64_t bytes);
/* x becomes the sum over all ranks. */
int shard_sum_ranks(struct zinf_frame *f, float *x, uint64_t elems);
/* fp32 to the parameters' type; *out: in itself where that is fp32, else scratch. */
int shard_narrow(struct zinf_frame *f, const float *in, uint64_t elems, void **out);
/* An array's element behind which a shard's part begins; the array itself while measuring. */
static inline void *shard_at(const struct zinf_frame *f, const void *array, uint64_t bytes)
{
    return (char *)(uintptr_t)array + (f->queue ? bytes : 0);
}

/* y = x + the branch behind a sum over shards. */
int shard_add_branch(struct zinf_frame *f, const struct part_exit *leave,
                     const struct shard_sum *sum, const void *x, void *y);
/* From the sum over shards of gradients at the rows that products take to that at x, which is added
 * to d_x. */
int shard_enter_backward(struct zinf_frame *f, const struct part_entry *entry,
                         const struct shard_sum *sum, const void *x, void *d_x);
/* Of unit 0's bias behind a sum, which is of whole rows; -1: there is none. */
int shard_bias_gradient(struct zinf_frame *f, int bias, int64_t hidden, const void *dy);
/* The tensor of a shard, or of a group, of those that begin with `first`; -1: there is none. */
static inline int shard_tensor(int first, uint32_t number)
{
    return first < 0 ? -1 : first + (int)number;
}

/* ---- parts of blocks ---- */

/* From a shard's places of dropout to those of the next one: beyond those of layers, below those of
 * noise. */
#define SHARD_SITES ((uint32_t)1 << 16)

/* What forward leaves for backward, in the order of attention_keep and mlp_keep. */
struct attention_shards {
    const struct attention_spec *s; /* of all shards */
    struct norm_kept norm;
    struct attention_kept of[ZINF_MOST_SHARDS];
    /* While decoding, instead: of all the graph's shards together, which have one cache. */
    struct attention_kept cached;
};
struct mlp_shards {
    const struct mlp_spec *s; /* of all shards */
    struct norm_kept norm;
    struct mlp_kept of[ZINF_MOST_SHARDS];
};
void attention_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                           struct attention_shards *kept);
void mlp_shards_keep(struct zinf_frame *f, const struct mlp_spec *s, struct mlp_shards *kept);
/* y = x + branch. again: only what is kept is made. */
int attention_shards_forward(struct zinf_frame *f, const struct attention_shards *kept,
                             const void *x, void *y, bool again);
int mlp_shards_forward(struct zinf_frame *f, const struct mlp_shards *kept, const void *x, void *y,
                       bool again);
/* The passes ZINF_PASS_CARRY and CARRY_BACK, of a stage whose input is x. */
int attention_shards_carry(struct zinf_frame *f, const struct attention_shards *kept);
int attention_shards_carry_backward(struct zinf_frame *f, const struct attention_shards *kept);
/* d_x: from the gradient at y to that at x. */
int attention_shards_backward(struct zinf_frame *f, const struct attention_shards *kept,
                              const void *x, void *d_x);
int mlp_shards_backward(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                        void *d_x);

/* ---- heads ---- */

/* Key and value heads: as many groups of them as there are shards, or, where they are fewer, one
 * head a group, which several shards have. */
struct shard_groups {
    uint32_t first, n; /* that the graph has */
    uint32_t shards;   /* that share one */
    int64_t heads;     /* of a group */
};
static inline struct shard_groups shard_groups_of(const struct zinf_shards *c, int64_t kv_heads)
{
    const uint32_t all = kv_heads < (int64_t)c->of ? (uint32_t)kv_heads : c->of;
    const uint32_t shards = c->of / all, first = c->first / shards;
    return (struct shard_groups){.first = first,
                                 .n = (c->first + c->n - 1) / shards + 1 - first,
                                 .shards = shards,
                                 .heads = kv_heads / all};
}

#endif

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
    int64_t first;    /* of a weight that is dealt: the first of these rows */
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
    uint32_t per_weight; /* of the graph's shards, how many have a weight in common */
    uint32_t shares;     /* and of all */
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
/* Of what each of the graph's shards has found, found [shards][elems], over all ranks; elems is a
 * multiple of ZINF_MOST_SHARDS. */
int shard_sum_found(struct zinf_frame *f, const float *found, uint64_t elems, float *out);
/* Of n shards from `first` on and those of other ranks that share a group with them, of so many
 * shards. */
int shard_sum_shared(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                     uint32_t shards, float *out);
/* Each rank's bytes, in their order, to all of them: whole [ranks][bytes], where this rank's are in
 * their place. */
int shard_gather(struct zinf_frame *f, void *whole, uint64_t bytes);
/* x becomes the sum over all ranks. */
int shard_sum_ranks(struct zinf_frame *f, float *x, uint64_t elems);
/* Each shard's columns, and rows [rows][cols] of all the model's shards, one behind the other,
 * where this rank's are made and the others' brought; and columns of rows to others. */
struct shard_rows {
    void *at;   /* NULL: zeros */
    int64_t ld; /* elements from row to row */
};
int shard_gather_rows(struct zinf_frame *f, const struct shard_rows *own, int64_t cols, void *all);
int shard_copy_rows(struct zinf_frame *f, int64_t cols, struct shard_rows x, struct shard_rows y);
/* fp32 to the parameters' type; *out: in itself where that is fp32, else scratch. */
int shard_narrow(struct zinf_frame *f, const float *in, uint64_t elems, void **out);
/* An array's element behind which a shard's part begins; the array itself while measuring. */
static inline void *shard_at(const struct zinf_frame *f, const void *array, uint64_t bytes)
{
    return (char *)(uintptr_t)array + (f->queue ? bytes : 0);
}

/* y = x + the branch behind a sum over shards. again: only what is kept is made. */
int shard_add_branch(struct zinf_frame *f, const struct part_exit *leave,
                     const struct shard_sum *sum, const void *x, void *y, bool again);
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
    const struct attention_spec *s;   /* of all shards */
    const struct norm_spec *in_front; /* its own norm, or that of attention beside it */
    struct norm_kept norm, after;
    void *product; /* [rows][hidden]: the sum over shards, where a norm is behind it */
    /* Of norms of all heads of a row together, and each shard's queries and keys before them; or of
     * latent attention's rows of low rank. */
    struct norm_kept q_norm, k_norm;
    void *before[ZINF_MOST_SHARDS]; /* [rows][queries, keys] */
    void *entry;                    /* latent: [rows][what all heads share] */
    struct attention_kept of[ZINF_MOST_SHARDS];
    /* While decoding, instead: of all the graph's shards together, which have one cache. */
    struct attention_kept cached;
};
struct mlp_shards {
    const struct mlp_spec *s;      /* of all shards */
    const struct norm_spec *entry; /* its own norm, or the one that it shares with attention */
    struct norm_kept norm, after;
    void *product; /* as above */
    struct mlp_kept of[ZINF_MOST_SHARDS];
};
void attention_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                           struct attention_shards *kept);
void mlp_shards_keep(struct zinf_frame *f, const struct mlp_spec *s, struct mlp_shards *kept);
/* y = x + branch(rows), where rows is x but in parallel blocks. again: only what is kept is made.
 */
int attention_shards_forward(struct zinf_frame *f, const struct attention_shards *kept,
                             const void *x, void *y, bool again);
int mlp_shards_forward(struct zinf_frame *f, const struct mlp_shards *kept, const void *rows,
                       const void *x, void *y, bool again);
/* Of that what comes first: from x, or rows, to what the products behind the heads, or behind the
 * activation, take; and one shard's part of the sum, fp32. */
int attention_shards_attend(struct zinf_frame *f, const struct attention_shards *kept,
                            const void *x);
int attention_shards_project(struct zinf_frame *f, const struct attention_shards *kept,
                             uint32_t shard, float *out);
int mlp_shards_multiply(struct zinf_frame *f, const struct mlp_shards *kept, const void *rows);
int mlp_shards_project(struct zinf_frame *f, const struct mlp_shards *kept, uint32_t shard,
                       float *out);
/* The passes ZINF_PASS_CARRY and CARRY_BACK, of a stage whose input attention reads. */
int attention_shards_carry(struct zinf_frame *f, const struct attention_shards *kept);
int attention_shards_carry_backward(struct zinf_frame *f, const struct attention_shards *kept);
/* d_x: from the gradient at y to that at x. */
int attention_shards_backward(struct zinf_frame *f, const struct attention_shards *kept,
                              const void *x, void *d_x);
int mlp_shards_backward(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                        void *d_x);
/* Adds to d_x what the gradient d_y behind the branch makes there. */
int mlp_shards_branch_backward(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                               const void *d_y, void *d_x);
/* The same in two steps, for parts beside each other, which both need the gradient at y as it came:
 * up to the gradients of each shard's first product, which are made in scratch; and from there to
 * the rows that these products take, a part of a sum over shards. */
struct shard_gradients {
    void *of[ZINF_MOST_SHARDS];
    void *shared; /* latent: at what all heads share */
};
int attention_shards_leave(struct zinf_frame *f, const struct attention_shards *kept, const void *x,
                           const void *d_y, struct shard_gradients *gradients);
int mlp_shards_leave(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                     const void *d_y, struct shard_gradients *gradients);
int attention_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                           const struct shard_gradients *gradients, uint32_t shard, float *out);
/* beta: of what is in out already, 0 or 1. */
int mlp_shards_enter(struct zinf_frame *f, const struct mlp_shards *kept,
                     const struct shard_gradients *gradients, uint32_t shard, float *out,
                     float beta);
struct part_entry attention_shards_entry(const struct attention_shards *kept);
struct part_entry mlp_shards_entry(const struct mlp_shards *kept);

/* ---- latent attention (part_latent_shards.c) ---- */

void latent_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                        struct attention_shards *kept);
/* From the part's rows to what heads give. */
int latent_shards_attend(struct zinf_frame *f, const struct attention_shards *kept,
                         const void *rows);
/* And to what the stage carries; back from there, to gradients of all shards' products. */
int latent_shards_carry(struct zinf_frame *f, const struct attention_shards *kept,
                        const void *rows);
int latent_shards_own_backward(struct zinf_frame *f, const struct attention_shards *kept,
                               const void *rows, const struct shard_gradients *gradients);
/* Room in scratch; and of a shard the gradients at its products, from those of what its heads give.
 */
void latent_shards_take(struct zinf_frame *f, const struct attention_spec *s,
                        struct shard_gradients *gradients);
int latent_shards_attend_backward(struct zinf_frame *f, const struct attention_shards *kept,
                                  uint32_t shard, const void *d_out, void *gradients);
/* Of weights in front of heads; gradients->shared is made. Then on to x. */
int latent_shards_weights(struct zinf_frame *f, const struct attention_shards *kept,
                          const void *rows, const struct shard_gradients *gradients);
int latent_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                        const struct part_entry *entry, const struct shard_gradients *gradients,
                        const void *x, void *d_x);

/* ---- recurrent mixers (part_mixer_shards.c) ---- */

/* The calls of attention do these where the spec has a mixer. Forward: the products take `rows`,
 * behind the norm, and the branch is added to x. enter, beta: as mlp_shards_enter. */
void mixer_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                       struct attention_shards *kept);
int mixer_shards_forward(struct zinf_frame *f, const struct attention_shards *kept,
                         const void *rows, const void *x, void *y, bool again);
int mixer_shards_carry(struct zinf_frame *f, const struct attention_shards *kept);
int mixer_shards_leave(struct zinf_frame *f, const struct attention_shards *kept, const void *x,
                       const void *d_y, struct shard_gradients *gradients);
int mixer_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                       const struct shard_gradients *gradients, uint32_t shard, float *out,
                       float beta);

/* ---- heads ---- */

/* part_whole_norms.c: norms over all queries of a row, and over all keys, which lie on several
 * shards. Where a shard's are in its rows: */
struct head_rows {
    void *q, *k;
    int64_t ld; /* elements from row to row */
};
/* Memory for backward; nothing where the spec has no such norms, as in the next two. */
void whole_norms_keep(struct zinf_frame *f, const struct attention_spec *s,
                      struct attention_shards *kept);
/* In place: rows [shards] of products become normalised. */
int whole_norms_forward(struct zinf_frame *f, const struct attention_shards *kept,
                        const struct head_rows *rows);
/* In place: gradients at what forward left to those at the products; and those of the weights. */
int whole_norms_backward(struct zinf_frame *f, const struct attention_shards *kept,
                         const struct head_rows *rows);

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

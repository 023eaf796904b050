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
    int weight, bias; /* tensors of the unit; bias -1: none */
    int64_t rows;     /* rows of the weight, and of the bias if outputs are cut */
    int64_t ld;       /* elements from row to row of y, or of x if the depth is cut */
    uint32_t unit;    /* its place at hand */
    int64_t count;    /* rows of x and y; 0: those of the call, or those that chose the visit */
    int64_t first;    /* if the weight is dealt (graph.h): the first of these rows */
};
/* The number of rows of x and y. */
static inline int64_t shard_rows(const struct zinf_frame *f, const struct shard_product *p)
{
    const int64_t of_call = f->stage->choice.n ? f->n_chosen : frame_rows(f);
    return p->count ? p->count : of_call;
}
/* For a weight whose outputs are cut: y = x W^T + bias; dw = dy^T x, [rows][cols]; dx = beta dx +
 * dy W. */
int shard_columns(struct zinf_frame *f, const struct shard_product *p, const void *x, void *y);
int shard_columns_weight(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                         const void *x, float *dw);
int shard_columns_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                        float *dx, float beta);
/* For a weight whose depth is cut: y = x W + bias, one shard's part of a sum; dx = dy W^T; x^T dy
 * becomes the gradient of W. */
int shard_depth(struct zinf_frame *f, const struct shard_product *p, const void *x, float *y);
int shard_depth_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                      void *dx);
int shard_depth_weight(struct zinf_frame *f, const struct shard_product *p, const void *x,
                       const void *dy);

/* ---- adapters (frame_shard_adapters.c) ----
 *
 * The calls above add what adapters make of a product. An adapter's matrix that belongs to one
 * shard gets its gradient together with the weight; one that all shards have gets it by a call for
 * all shards. */

/* For a weight whose outputs are cut: y += scale x~ A^T B^T, dx += mask(scale dy B A), where x~ =
 * dropout(x). */
int shard_columns_adapt(struct zinf_frame *f, const struct shard_product *p, const void *x,
                        void *y);
int shard_columns_adapt_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                              float *dx);
/* The same for a weight whose depth is cut; y is fp32, dx has the parameters' type. The third makes
 * the gradient of A. */
int shard_depth_adapt(struct zinf_frame *f, const struct shard_product *p, const void *x, float *y);
int shard_depth_adapt_input(struct zinf_frame *f, const struct shard_product *p, const void *dy,
                            void *dx);
int shard_depth_adapt_weight(struct zinf_frame *f, const struct shard_product *p, const void *x,
                             const void *dy);
/* The products of all shards of the graph, their gradients and their inputs. */
struct shard_adapters {
    const struct shard_product *p; /* [shards] */
    const void *const *dy;         /* [shards] if outputs are cut; else all have dy[0] */
    const void *x;                 /* their common input, if outputs are cut */
    /* If the depth is cut: *x is the shard's input, which may be made in scratch. */
    int (*input)(struct zinf_frame *f, const void *call, uint32_t shard, const void **x);
    const void *call;
    uint32_t per_weight; /* how many of the graph's shards share a weight */
    uint32_t shares;     /* how many of all the model's shards do */
};
/* Makes the gradients of matrices that several shards have. columns: A, which all have, and B of
 * each weight; depth: B, which all have. */
int shard_columns_adapt_weights(struct zinf_frame *f, const struct shard_adapters *all);
int shard_depth_adapt_weights(struct zinf_frame *f, const struct shard_adapters *all);

/* A sum over shards, in fp32: `make` writes a shard's part to out [elems]. */
struct shard_sum {
    int (*make)(struct zinf_frame *f, const void *call, uint32_t shard, float *out);
    const void *call;
    uint64_t elems;
};
/* shard_sum_some sums over n of the graph's shards from number `first` on, counted from 0; they
 * must be all of them, or one of their halves, quarters and so on. shard_sum sums over all shards
 * of all ranks. */
int shard_sum_some(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                   float *out);
int shard_sum(struct zinf_frame *f, const struct shard_sum *sum, float *out);
/* Sums found [shards][elems], which has a row for each of the graph's shards, over all shards of
 * all ranks. elems must be a multiple of ZINF_MOST_SHARDS. */
int shard_sum_found(struct zinf_frame *f, const float *found, uint64_t elems, float *out);
/* Sums over n of the graph's shards from `first` on and over those of other ranks in the same
 * group. shards: the number of shards of a group. */
int shard_sum_shared(struct zinf_frame *f, const struct shard_sum *sum, uint32_t first, uint32_t n,
                     uint32_t shards, float *out);
/* All-gather: whole is [ranks][bytes], in which this rank has filled in its own part; the call
 * fills in the others. */
int shard_gather(struct zinf_frame *f, void *whole, uint64_t bytes);
/* All-reduce: x becomes the sum over all ranks. */
int shard_sum_ranks(struct zinf_frame *f, float *x, uint64_t elems);
/* Columns of the call's rows. shard_gather_rows: own [shards] are those of the graph's shards;
 * `all` becomes [all shards][rows][cols], with those of other ranks. shard_copy_rows: copies cols
 * columns from x to y. */
struct shard_rows {
    void *at;   /* NULL: zeros */
    int64_t ld; /* elements from row to row */
};
int shard_gather_rows(struct zinf_frame *f, const struct shard_rows *own, int64_t cols, void *all);
int shard_copy_rows(struct zinf_frame *f, int64_t cols, struct shard_rows x, struct shard_rows y);
/* Converts fp32 to the parameters' type. *out: `in` itself if that is fp32, else scratch. */
int shard_narrow(struct zinf_frame *f, const float *in, uint64_t elems, void **out);
/* Adds a sum up in scratch, then as shard_narrow. */
int shard_sum_narrow(struct zinf_frame *f, const struct shard_sum *sum, void **out);
/* The address so many bytes into an array; the array itself while measuring. */
static inline void *shard_at(const struct zinf_frame *f, const void *array, uint64_t bytes)
{
    return (char *)(uintptr_t)array + (f->queue ? bytes : 0);
}

/* y = x + branch, where the branch's last product is the sum over shards. again: only makes what is
 * kept for backward once more, not y. */
int shard_add_branch(struct zinf_frame *f, const struct part_exit *leave,
                     const struct shard_sum *sum, const void *x, void *y, bool again);
/* The sum over shards is the gradient at the rows that the part's products take; the gradient at x,
 * in front of the norm, is added to d_x. */
int shard_enter_backward(struct zinf_frame *f, const struct part_entry *entry,
                         const struct shard_sum *sum, const void *x, void *d_x);
/* Makes the gradient of the bias of unit 0 that is added behind a sum over shards, from dy
 * [rows][hidden]. bias -1: there is none. */
int shard_bias_gradient(struct zinf_frame *f, int bias, int64_t hidden, const void *dy);
/* The number of the tensor of a shard, or of a group, if that of the first one is `first`; -1:
 * there is none. */
static inline int shard_tensor(int first, uint32_t number)
{
    return first < 0 ? -1 : first + (int)number;
}

/* ---- parts of blocks ---- */

/* The distance from a shard's dropout sites to those of the next shard: above the sites of all
 * layers, below those of noise. */
#define SHARD_SITES ((uint32_t)1 << 16)

/* What forward keeps for backward, in the order of attention_keep and mlp_keep. */
struct attention_shards {
    const struct attention_spec *s; /* the spec of all shards together */
    /* the norm in front: its own, or that of attention beside it */
    const struct norm_spec *in_front;
    struct norm_kept norm, after;
    const struct zinf_norm *next; /* as in part_exit, for forward */
    void *product;                /* [rows][hidden]: the sum over shards, if a norm is behind it */
    /* For norms over all heads of a row together, with each shard's queries and keys before them;
     * or for the norms of latent attention's low-rank rows. */
    struct norm_kept q_norm, k_norm;
    void *before[ZINF_MOST_SHARDS]; /* [rows][queries, keys] */
    void *entry;                    /* latent attention: [rows][columns that all heads share] */
    struct attention_kept of[ZINF_MOST_SHARDS];
    /* While decoding, in place of `of`: all the graph's shards together, which have one cache. */
    struct attention_kept cached;
};
struct mlp_shards {
    const struct mlp_spec *s;      /* the spec of all shards together */
    const struct norm_spec *entry; /* its own norm, or the one that it shares with attention */
    struct norm_kept norm, after;
    const struct zinf_norm *next; /* as in part_exit, for forward */
    void *product;                /* as in attention_shards */
    struct mlp_kept of[ZINF_MOST_SHARDS];
};
void attention_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                           struct attention_shards *kept);
void mlp_shards_keep(struct zinf_frame *f, const struct mlp_spec *s, struct mlp_shards *kept);
/* y = x + branch(rows); rows differ from x only in parallel blocks. again: only makes what is kept
 * for backward once more, not y. */
int attention_shards_forward(struct zinf_frame *f, const struct attention_shards *kept,
                             const void *x, void *y, bool again);
int mlp_shards_forward(struct zinf_frame *f, const struct mlp_shards *kept, const void *rows,
                       const void *x, void *y, bool again);
/* The two halves of forward. First: attend goes from x to the results of all heads, multiply from
 * rows to the product in front of the activation. Then project makes one shard's part of the sum,
 * in fp32. */
int attention_shards_attend(struct zinf_frame *f, const struct attention_shards *kept,
                            const void *x);
int attention_shards_project(struct zinf_frame *f, const struct attention_shards *kept,
                             uint32_t shard, float *out);
int mlp_shards_multiply(struct zinf_frame *f, const struct mlp_shards *kept, const void *rows);
int mlp_shards_project(struct zinf_frame *f, const struct mlp_shards *kept, uint32_t shard,
                       float *out);
/* The passes ZINF_PASS_CARRY and CARRY_BACK of a stage whose first input is what attention reads.
 */
int attention_shards_carry(struct zinf_frame *f, const struct attention_shards *kept);
int attention_shards_carry_backward(struct zinf_frame *f, const struct attention_shards *kept);
/* d_x holds the gradient at y and becomes that at x. */
int attention_shards_backward(struct zinf_frame *f, const struct attention_shards *kept,
                              const void *x, void *d_x);
int mlp_shards_backward(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                        void *d_x);
/* Adds to d_x the gradient that flows back from d_y through the branch alone. */
int mlp_shards_branch_backward(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                               const void *d_y, void *d_x);
/* The same in two steps, for parallel parts, which both need the gradient at y unchanged. leave
 * goes to the gradients of each shard's first product, made in scratch, and makes those of weights.
 * enter goes from there to the gradient at the rows that these products take: one shard's part of a
 * sum, in fp32. */
struct shard_gradients {
    void *of[ZINF_MOST_SHARDS];
    void *shared; /* latent attention: of the product that all heads share */
};
int attention_shards_leave(struct zinf_frame *f, const struct attention_shards *kept, const void *x,
                           const void *d_y, struct shard_gradients *gradients);
int mlp_shards_leave(struct zinf_frame *f, const struct mlp_shards *kept, const void *x,
                     const void *d_y, struct shard_gradients *gradients);
int attention_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                           const struct shard_gradients *gradients, uint32_t shard, float *out);
/* beta 1: adds to out; 0: writes it. */
int mlp_shards_enter(struct zinf_frame *f, const struct mlp_shards *kept,
                     const struct shard_gradients *gradients, uint32_t shard, float *out,
                     float beta);
struct part_entry attention_shards_entry(const struct attention_shards *kept);
struct part_entry mlp_shards_entry(const struct mlp_shards *kept);

/* ---- latent attention (part_latent_shards.c) ---- */

void latent_shards_keep(struct zinf_frame *f, const struct attention_spec *s,
                        struct attention_shards *kept);
/* Goes from the rows that the part's products take to the results of all heads. */
int latent_shards_attend(struct zinf_frame *f, const struct attention_shards *kept,
                         const void *rows);
/* latent_shards_carry goes from these rows to the keys and values that the stage carries;
 * own_backward goes from their gradient to the gradients of all shards' products. */
int latent_shards_carry(struct zinf_frame *f, const struct attention_shards *kept,
                        const void *rows);
int latent_shards_own_backward(struct zinf_frame *f, const struct attention_shards *kept,
                               const void *rows, const struct shard_gradients *gradients);
/* take: takes scratch for all gradients. attend_backward: goes from d_out, the gradient of the
 * results of a shard's heads, to the gradients of the shard's products. */
void latent_shards_take(struct zinf_frame *f, const struct attention_spec *s,
                        struct shard_gradients *gradients);
int latent_shards_attend_backward(struct zinf_frame *f, const struct attention_shards *kept,
                                  uint32_t shard, const void *d_out, void *gradients);
/* weights: makes the gradients of all weights in front of the heads, and gradients->shared. enter:
 * goes on from there and adds the gradient at x to d_x. */
int latent_shards_weights(struct zinf_frame *f, const struct attention_shards *kept,
                          const void *rows, const struct shard_gradients *gradients);
int latent_shards_enter(struct zinf_frame *f, const struct attention_shards *kept,
                        const struct part_entry *entry, const struct shard_gradients *gradients,
                        const void *x, void *d_x);

/* ---- recurrent mixers (part_mixer_shards.c) ---- */

/* The calls of attention above call these if the spec has a mixer. forward: the part's norm and
 * products take `rows`, and the branch is added to x. enter, beta: as in mlp_shards_enter. */
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

/* part_whole_norms.c: norms over all queries of a row, and over all keys, which several shards have
 * parts of. head_rows: where a shard's queries and keys are. */
struct head_rows {
    void *q, *k;
    int64_t ld; /* elements from row to row */
};
/* Takes memory for backward. Does nothing if the spec has no such norms; so do the next two. */
void whole_norms_keep(struct zinf_frame *f, const struct attention_spec *s,
                      struct attention_shards *kept);
/* Normalises the rows [shards] of the products in place. */
int whole_norms_forward(struct zinf_frame *f, const struct attention_shards *kept,
                        const struct head_rows *rows);
/* Turns gradients at the normalised rows into those of the products, in place, and makes those of
 * the norms' weights. */
int whole_norms_backward(struct zinf_frame *f, const struct attention_shards *kept,
                         const struct head_rows *rows);

/* How key and value heads are dealt: to as many groups as there are shards or, if there are fewer
 * heads than shards, in groups of one head, each shared by several shards. */
struct shard_groups {
    uint32_t first, n; /* the groups that the graph has */
    uint32_t shards;   /* how many shards share a group */
    int64_t heads;     /* heads of a group */
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

/*
 * part_heads: what the files of attention (part_attention.c, part_carry.c) have in common: columns
 * of its rows, and the steps in front of it. For them alone.
 */
#ifndef ZINF_PART_HEADS_H
#define ZINF_PART_HEADS_H

#include "model/stages/stages.h"

static inline bool attention_is_latent(const struct attention_spec *s)
{
    return s->latent.kv_rank > 0;
}

/* Columns of keys and values; columns of the rows that attention takes. */
static inline uint64_t heads_kv_cols(const struct attention_spec *s)
{
    return (uint64_t)(2 * s->n_kv_heads * s->head_dim);
}
static inline uint64_t heads_qkv_cols(const struct attention_spec *s)
{
    return (uint64_t)(s->n_heads * s->head_dim) + (s->source ? 0 : heads_kv_cols(s));
}
/* Whether attention takes a copy of the entry's product that has other columns. */
static inline bool heads_are_copied(const struct attention_spec *s)
{
    return s->gated || s->keys_are_values || s->taken;
}
/* The address of a column of rows; NULL stays NULL, while measuring. */
static inline void *heads_column(const struct zinf_frame *f, void *rows, int64_t first)
{
    return rows ? (char *)rows + (uint64_t)first * frame_width(f) : NULL;
}

/* ---- part_heads.c ---- */

/* Columns of the entry's product. */
uint64_t heads_entry_cols(const struct attention_spec *s);
/* Takes memory for what norms of heads keep for backward. */
void heads_keep_norms(struct zinf_frame *f, const struct attention_spec *s,
                      struct attention_kept *kept);
/* *out is *kept; if heads_are_copied, its qkv is a copy of the product's columns in scratch. */
int heads_take(struct zinf_frame *f, const struct attention_spec *s,
               const struct attention_kept *kept, struct attention_kept *out);
/* Copies the columns of the entry's product to qkv: without the gate's, with the keys' a second
 * time if they are the values, or with another layer's keys and values if those are taken. back:
 * goes from the gradient in qkv to that in entry. */
int heads_copy(struct zinf_frame *f, const struct attention_spec *s, void *entry, void *qkv,
               bool back);
/* *qkv: the rows that attention takes, made from the kept product. Without norms of heads this is
 * the product itself, rotated in place the first time (fresh); with them it is a copy in scratch
 * that is normalised and rotated whenever it is needed. */
int heads_prepare(struct zinf_frame *f, const struct attention_spec *s,
                  const struct attention_kept *kept, bool fresh, void **qkv);
/* Goes from the gradient of the rows that attention took to that of the product: in place in d_qkv,
 * or for latent attention from d_qkv to d_entry. */
int heads_prepare_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct attention_kept *kept, void *d_qkv, void *d_entry);
/* For keys and values that other layers take. heads_give: copies them from qkv to the stage's
 * out[1]. heads_given_backward: adds the gradient that these layers have left to that in d_qkv. */
int heads_give(struct zinf_frame *f, const struct attention_spec *s, void *qkv);
int heads_given_backward(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv);

/* ---- part_source.c: with another sequence's rows ---- */

/* Rows of the other sequences of all samples, and the bytes of their keys and values. */
static inline int64_t part_source_rows(const struct zinf_frame *f)
{
    return f->compute->batch * f->compute->source_seq;
}
static inline uint64_t part_source_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)part_source_rows(f) * heads_kv_cols(s) * frame_width(f);
}
/* Makes their keys and values, kept->kv, unless these are all cached or carried. */
int part_source_read(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept);
/* Goes from d_kv to the gradients of that product's weights and of the other sequence. */
int part_source_backward(struct zinf_frame *f, const struct attention_spec *s, const void *d_kv);
/* For chunks: makes the carried keys and values of a chunk of the other sequence; and goes back
 * from their gradients. */
int part_source_carry(struct zinf_frame *f, const struct attention_spec *s);
int part_source_carry_backward(struct zinf_frame *f, const struct attention_spec *s);

#endif

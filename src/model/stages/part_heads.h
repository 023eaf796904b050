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

/* Of keys and values; of what attention takes. */
static inline uint64_t heads_kv_cols(const struct attention_spec *s)
{
    return (uint64_t)(2 * s->n_kv_heads * s->head_dim);
}
static inline uint64_t heads_qkv_cols(const struct attention_spec *s)
{
    return (uint64_t)(s->n_heads * s->head_dim) + (s->source ? 0 : heads_kv_cols(s));
}
/* What attention takes is a copy of the entry's product with other columns. */
static inline bool heads_are_copied(const struct attention_spec *s)
{
    return s->gated || s->keys_are_values || s->taken;
}
/* A column of rows; NULL stays NULL: measuring. */
static inline void *heads_column(const struct zinf_frame *f, void *rows, int64_t first)
{
    return rows ? (char *)rows + (uint64_t)first * frame_width(f) : NULL;
}

/* ---- part_heads.c ---- */

/* Of the entry's product. */
uint64_t heads_entry_cols(const struct attention_spec *s);
/* What norms of heads leave for backward. */
void heads_keep_norms(struct zinf_frame *f, const struct attention_spec *s,
                      struct attention_kept *kept);
/* What attention's queries, keys and values are made of: the kept product, or a copy of its columns
 * in scratch. */
int heads_take(struct zinf_frame *f, const struct attention_spec *s,
               const struct attention_kept *kept, struct attention_kept *out);
/* Columns of the entry's product without those of the gate, and with the keys' once more, or the
 * gradient of the former to that of the latter. */
int heads_copy(struct zinf_frame *f, const struct attention_spec *s, void *entry, void *qkv,
               bool back);
/* What attention takes, made from the kept product: *qkv. It is rotated in place once, after the
 * product; with norms of heads it is a copy, normalised and rotated whenever it is needed. */
int heads_prepare(struct zinf_frame *f, const struct attention_spec *s,
                  const struct attention_kept *kept, bool fresh, void **qkv);
/* From the gradient of what attention took to that of the product: in place, or in latent attention
 * from d_qkv to d_entry. */
int heads_prepare_backward(struct zinf_frame *f, const struct attention_spec *s,
                           const struct attention_kept *kept, void *d_qkv, void *d_entry);
/* Keys and values that other layers take become the stage's; what these layers leave is added to
 * the layer's own gradient. */
int heads_give(struct zinf_frame *f, const struct attention_spec *s, void *qkv);
int heads_given_backward(struct zinf_frame *f, const struct attention_spec *s, void *d_qkv);

/* ---- part_source.c: with another sequence's rows ---- */

/* Of all samples. */
static inline int64_t part_source_rows(const struct zinf_frame *f)
{
    return f->compute->batch * f->compute->source_seq;
}
static inline uint64_t part_source_bytes(const struct zinf_frame *f, const struct attention_spec *s)
{
    return (uint64_t)part_source_rows(f) * heads_kv_cols(s) * frame_width(f);
}
/* Their keys and values, unless they are all remembered or carried. */
int part_source_read(struct zinf_frame *f, const struct attention_spec *s,
                     const struct attention_kept *kept);
/* The gradients of that product's weights, and at the other sequence. */
int part_source_backward(struct zinf_frame *f, const struct attention_spec *s, const void *d_kv);
/* Of chunks: what is carried, and its gradients. */
int part_source_carry(struct zinf_frame *f, const struct attention_spec *s);
int part_source_carry_backward(struct zinf_frame *f, const struct attention_spec *s);

#endif

/* decoder_parts: what the files that append a decoder's stages share. Inside src/model only. */
#ifndef ZINF_DECODER_PARTS_H
#define ZINF_DECODER_PARTS_H

#include "model/decoder_units.h"

/* Numbers of the values that stages share. */
struct decoder_values {
    uint32_t ids, positions, segments, targets, x;
    uint32_t shares, n_shares; /* what experts have had so far, in how many layers */
};

/* A value of hidden columns. */
uint32_t decoder_add_hidden(struct zinf_graph *graph, const struct decoder *d, const char *name);
/* The block's spec: the decoder's, with its own numbers. Dropout sites: three places a layer, and
 * the lookup at 0. */
struct block_spec decoder_make_block(const struct decoder *d, int64_t layer,
                                     const int at[DECODER_PLACES]);

/* What attention by this spec takes, to the stage's list. */
void decoder_append_inputs(struct zinf_graph *graph, uint32_t stage, const struct attention_spec *s,
                           const struct decoder_values *v);

/* decoder_experts.c: a layer with experts; the number of its output. */
static inline bool decoder_has_experts(const struct decoder *d, int64_t layer)
{
    return d->experts.n && (!d->experts.in_layer || d->experts.in_layer[layer]);
}
uint32_t decoder_add_experts(struct zinf_graph *graph, const struct decoder *d,
                             struct decoder_values *v, int64_t layer);
/* And behind the last of them the loss that balances. */
void decoder_add_balance(struct zinf_graph *graph, const struct decoder *d,
                         const struct decoder_values *v);

#endif

/* decoder_parts: what the files that append a decoder's stages share. Inside src/model only. */
#ifndef ZINF_DECODER_PARTS_H
#define ZINF_DECODER_PARTS_H

#include "model/decoder_units.h"

/* Numbers of the values that stages share. */
struct decoder_values {
    uint32_t ids, positions, types, segments, pieces, targets, x;
    uint32_t pooled, pulls, losses; /* of embeddings */
    uint32_t shares, n_shares;      /* what experts have had so far, in how many layers */
    uint32_t *kv;                   /* [n_layers]: keys and values that other layers take */
    uint32_t side; /* rows of layer 0's side table, which those of the others follow */
};

uint32_t decoder_add_input(struct zinf_graph *graph, const struct decoder *d, const char *name,
                           enum zinf_input input, int64_t limit);
/* A value of so many columns, or of hidden ones. */
uint32_t decoder_add_columns(struct zinf_graph *graph, const struct decoder *d, const char *name,
                             int64_t cols);
uint32_t decoder_add_hidden(struct zinf_graph *graph, const struct decoder *d, const char *name);
/* From v's ids and positions to v's x, by n tiles of the token table from the unit `tiles` on. */
void decoder_add_lookup(struct zinf_graph *graph, const struct decoder *d,
                        const struct decoder_values *v, uint32_t tiles, uint32_t n);
/* From x to out, by a unit and a stage of these names with tensors w and b (NULL: none). */
struct decoder_norm {
    const char *unit, *stage, *w, *b;
    uint32_t x, out;
    float dropout; /* behind it */
    uint32_t site;
};
void decoder_add_norm(struct zinf_graph *graph, const struct decoder *d,
                      const struct decoder_norm *norm);
/* The final norm, whose output's number is returned, and from there to the loss. */
uint32_t decoder_add_final_norm(struct zinf_graph *graph, const struct decoder *d, uint32_t x);
void decoder_add_head(struct zinf_graph *graph, const struct decoder *d,
                      const struct decoder_values *v, uint32_t normed, uint32_t tiles);
int decoder_check_numbers(const struct decoder *d);
/* The block's spec: the decoder's, with its own numbers. Dropout sites: three places a layer, and
 * the lookup at 0. */
struct block_spec decoder_make_block(const struct decoder *d, int64_t layer,
                                     const int at[DECODER_PLACES]);

/* Which parts a layer has, and its tensors in the file. */
enum decoder_parts decoder_parts_of(const struct decoder *d, int64_t layer);
struct decoder_tensors decoder_list(const struct decoder *d, int64_t layer, const char *prefix);
/* The decoder with the attention and the feed-forward size of a layer's kind. */
struct decoder decoder_of_layer(const struct decoder *d, int64_t layer);

/* The unit of the number that scales a layer. */
uint32_t decoder_add_scale(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                           const char *prefix);
/* The unit of the two numbers of its activation that are not trained. */
uint32_t decoder_add_constants(struct zinf_graph *graph, const struct decoder *d, int64_t layer,
                               const char *prefix);

/* What attention by this spec takes, to the stage's list. */
void decoder_append_inputs(struct zinf_graph *graph, uint32_t stage, const struct attention_spec *s,
                           const struct decoder_values *v);
/* Behind these, and behind its output: keys and values that it takes of another layer, and those
 * that later layers take. */
void decoder_append_keys(struct zinf_graph *graph, uint32_t stage, const struct decoder *d,
                         const struct decoder_values *v, int64_t layer,
                         const struct attention_spec *s);

/* decoder_classes.c: samples with labels. The input of these, v's targets, and with a decoder's
 * classes what else comes with a sample. */
uint32_t decoder_add_sample_input(struct zinf_graph *graph, const char *name, enum zinf_input input,
                                  int64_t limit);
void decoder_add_labels(struct zinf_graph *graph, const struct class_count *count,
                        struct decoder_values *v);
/* The stage that classifies x by a unit's tensors, which may all be fresh, and the graph's loss. */
struct decoder_classifier {
    struct classify_spec spec;
    uint32_t unit, x;
    bool by_last; /* a sample's row is that of its last token, not of its first */
};
void decoder_add_classifier(struct zinf_graph *graph, const struct decoder_classifier *classifier);
/* A decoder's head for classes: one product of the last token's row of `normed`. */
void decoder_add_classes(struct zinf_graph *graph, const struct decoder *d, uint32_t normed);

/* decoder_sides.c: rows of the tables of layers, from the embedded v->x: v->side and those behind
 * it. What a layer adds of its own to x; the number of the sum. */
void decoder_add_sides(struct zinf_graph *graph, const struct decoder *d, struct decoder_values *v);
uint32_t decoder_add_side(struct zinf_graph *graph, const struct decoder *d,
                          const struct decoder_values *v, int64_t layer, uint32_t x);

/* decoder_embeds.c: samples that become embeddings: v's inputs for that, and the stage that takes
 * them and rows x to the graph's loss. */
void decoder_add_pulls(struct zinf_graph *graph, const struct decoder *d, struct decoder_values *v);
void decoder_add_pool(struct zinf_graph *graph, const struct decoder_values *v, uint32_t x);

/* decoder_shards.c: a decoder that is cut; nothing where it is not. -ENOTSUP, -EINVAL: it cannot
 * be, and why; else the graph gets to know it. A unit's tensors, cut where the decoder is, which is
 * that of their layer. */
int decoder_cut(struct zinf_graph *graph, const struct decoder *d);
void decoder_add_parts(struct zinf_graph *graph, uint32_t unit, const struct decoder *d,
                       const struct decoder_tensors *tensors, int at[DECODER_PLACES]);

/* decoder_turns.c: a layer whose shards are at hand one after the other; the number of its output.
 * -ENOTSUP: the decoder has what is not computed so. */
int decoder_check_turns(const struct decoder *d);
uint32_t decoder_add_turns(struct zinf_graph *graph, const struct decoder *d,
                           const struct decoder_values *v, int64_t layer);

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

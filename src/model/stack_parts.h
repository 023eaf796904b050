/* stack_parts: what the files that append a stack's stages share. Inside src/model only. */
#ifndef ZINF_STACK_PARTS_H
#define ZINF_STACK_PARTS_H

#include "model/decoder_parts.h"
#include "model/stack.h"

/* Places of dropout: behind the lookup and behind the final norm; and of every layer two of each
 * attention, then in and behind the feed-forward part. */
enum { STACK_SITES = 2, STACK_LAYER_SITES = 6 };

/* Numbers of what the layers of a stack share. */
struct stack_shared {
    uint32_t x, segments, source, source_segments;
    uint32_t distances; /* the unit of the table of distances, once it is there */
    bool crosses;
};

/* Tokens to what the first layer takes, v->x; tiles: n of the table, from this unit on. */
void stack_add_entry(struct zinf_graph *graph, const struct stack *stack, struct decoder_values *v,
                     uint32_t tiles, uint32_t n);
/* From shared->x to the next one. */
void stack_add_layer(struct zinf_graph *graph, const struct stack *stack,
                     struct stack_shared *shared, int64_t layer);

#endif

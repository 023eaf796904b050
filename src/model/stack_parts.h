/* stack_parts: what the files that append a stack's stages share. Inside src/model only. */
#ifndef ZINF_STACK_PARTS_H
#define ZINF_STACK_PARTS_H

#include "model/decoder_parts.h"
#include "model/stack.h"

/* Places of dropout: behind the lookup, and behind the final norm or in the convolution; and of
 * every layer two of each attention, then in and behind the feed-forward part. Relative positions
 * have the first place of attention to another sequence, which is not beside them. */
enum { STACK_SITES = 2, STACK_LAYER_SITES = 6, STACK_CROSS_SITE = 2 };

/* Numbers of what the layers of a stack share. */
struct stack_shared {
    uint32_t x, segments, source, source_segments;
    uint32_t table; /* the unit of the table of distances or positions, once it is there */
    bool crosses;
};

/* As decoder_cut. */
int stack_cut(struct zinf_graph *graph, const struct stack *stack);
/* An encoder of ZINF_ROWS_OF_TARGET: the inputs of its tokens; from there to the last layer's rows,
 * v's x. The second returns the number of the table's first tile. */
struct decoder_values stack_add_inputs(struct zinf_graph *graph, const struct decoder *d);
uint32_t stack_add_encoder(struct zinf_graph *graph, const struct stack *stack,
                           struct decoder_values *v);

/* stack_tables.c: a unit's tensor that is a whole one of the file; its number. plain: its name has
 * no prefix of the family. */
struct stack_tensor {
    const char *name;
    uint64_t rows, cols; /* cols 0: a vector */
    uint64_t inner;      /* as in zinf_piece */
    enum zinf_init init;
    bool plain, may_be_fresh;
};
int stack_add_tensor(struct zinf_graph *graph, uint32_t unit, const struct stack_tensor *tensor,
                     float std);
/* The table that all layers share, of distances or of relative positions; its unit. */
uint32_t stack_add_table(struct zinf_graph *graph, const struct stack *stack);
static inline bool stack_has_table(const struct stack *stack)
{
    return stack->distance.n_buckets || stack->relative.half;
}
/* What layers' specs say of relative positions, but for numbers of tensors of their own. */
struct relative_spec stack_relative_spec(const struct stack *stack);
/* From shared->x, and what the first layer took, to the next one. */
void stack_add_convolution(struct zinf_graph *graph, const struct stack *stack,
                           struct stack_shared *shared, uint32_t taken);
/* From x of the table's columns to hidden ones. */
uint32_t stack_add_projection(struct zinf_graph *graph, const struct stack *stack, uint32_t x);

#endif

/*
 * stack: what encoders and encoder-decoders share: stacks of layers (stages.h) over a sequence. A
 * family says the numbers and names of each as those of a decoder (decoder.h) and what is beside
 * that; here that becomes values, units and stages. Samples always come with segments: documents
 * and padding.
 */
#ifndef ZINF_STACK_H
#define ZINF_STACK_H

#include "model/classes.h"
#include "model/decoder.h"

/* A bias by distance of all layers' scores, from one table. */
struct stack_distance {
    int n_buckets; /* 0: none */
    bool both_ways;
    const int32_t *starts; /* memory of the graph */
    const char *table;     /* its name in the file */
    float std;
};
struct stack {
    struct decoder d; /* numbers and names */
    bool both_ways;   /* a token sees those behind it */
    bool norm_behind; /* norms are of sums, not in front of parts */
    struct stack_distance distance;
    float inner_dropout; /* of what the feed-forward part's last product takes */
};

/* An encoder of ZINF_AXIS_SOURCE and a decoder that reads its output in every layer. Both have the
 * decoder's table; the head is the decoder's. -EINVAL with what and the number that is out of
 * range. */
int stack_build_pair(struct zinf_graph *graph, struct stack *source, struct stack *target);

/* A head that classifies samples by their first token: names in the file. */
struct stack_classes {
    const char *dense_w, *dense_b, *out_w, *out_b;
    bool plain_dense; /* dense's names have no prefix of the family; out's never have */
    bool drops_first; /* as in classify_spec */
    struct class_count count;
    enum zinf_activation activation;
    float dropout;
};
/* An encoder of ZINF_AXIS_TARGET with such a head; the loss is by ZINF_INPUT_LABELS. */
int stack_build_classifier(struct zinf_graph *graph, struct stack *stack,
                           const struct stack_classes *classes);

/* Where the buckets of a table begin, on a logarithmic scale from half of them on; in memory of the
 * graph. NULL: there is none. */
const int32_t *stack_bucket_starts(struct zinf_graph *graph, int n_buckets, int64_t max_distance);

#endif

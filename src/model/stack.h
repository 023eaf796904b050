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
/* Relative positions, whose table all layers share; half 0: none. */
struct stack_relative {
    int64_t half;
    const int32_t *starts;               /* as in zinf_relative; memory of the graph */
    bool queries, keys;                  /* which terms scores have */
    const char *table, *norm_w, *norm_b; /* names in the file; norm_w NULL: no norm */
    float dropout;
};
/* What the first layer's output gets from a convolution of what the layer took; width 0: nothing.
 */
struct stack_convolution {
    int64_t width;
    enum zinf_activation activation;
    const char *w, *b, *norm_w, *norm_b;
    float dropout;
};
struct stack {
    struct decoder d; /* numbers and names */
    bool both_ways;   /* a token sees those behind it */
    bool norm_behind; /* norms are of sums, not in front of parts */
    struct stack_distance distance;
    struct stack_relative relative;
    struct stack_convolution convolution;
    const char *projection; /* of the table's columns to hidden ones, where they differ */
    float inner_dropout;    /* of what the feed-forward part's last product takes */
};

/* An encoder of ZINF_ROWS_OF_SOURCE and a decoder that reads its output in every layer. Both have
 * the decoder's table; the head is the decoder's. -EINVAL with what and the number that is out of
 * range. */
int stack_build_pair(struct zinf_graph *graph, struct stack *source, struct stack *target);

/* A head that classifies samples by their first token: names in the file. */
struct stack_classes {
    const char *dense_w, *dense_b, *out_w, *out_b;
    bool plain_dense; /* dense's names have no prefix of the family; out's never have */
    struct class_count count;
    enum zinf_activation activation;
    float first_dropout, dropout; /* as in classify_spec */
};
/* An encoder of ZINF_ROWS_OF_TARGET with such a head; the loss is by ZINF_INPUT_LABELS. */
int stack_build_classifier(struct zinf_graph *graph, struct stack *stack,
                           const struct stack_classes *classes);

/* A head that foretells masked tokens: act(dense) and a norm, then the table of tokens with a bias.
 * Names in the file, without a prefix of the family. */
struct stack_masked {
    const char *dense_w, *dense_b, *norm_w, *norm_b, *bias;
    enum zinf_activation activation;
};
int stack_build_masked(struct zinf_graph *graph, struct stack *stack,
                       const struct stack_masked *masked);

/* No head: embeddings. */
int stack_build_embedder(struct zinf_graph *graph, struct stack *stack);

/* Where the buckets of a table begin, on a logarithmic scale from half of them on; in memory of the
 * graph. NULL: there is none. */
const int32_t *stack_bucket_starts(struct zinf_graph *graph, int n_buckets, int64_t max_distance);

/* Where the rows of a table of relative positions begin (zinf_relative), as the models were
 * trained: one each up to half of n_buckets, then on a logarithmic scale up to max_distance;
 * n_buckets 0: one each up to max_distance. In memory of the graph; NULL: there is none. */
const int32_t *stack_relative_starts(struct zinf_graph *graph, int64_t n_buckets,
                                     int64_t max_distance);

#endif

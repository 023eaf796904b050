/* family_bert: what BERT and RoBERTa share: layers, names of their tensors, configurations. */
#ifndef ZINF_FAMILY_BERT_H
#define ZINF_FAMILY_BERT_H

#include "model/families/family_decoder.h"
#include "model/heads.h"
#include "model/stack.h"

struct bert_style {
    double eps;                 /* of norms, where the configuration does not say */
    int64_t n_types;            /* of tokens, likewise */
    int64_t first_position;     /* row of the table of positions that position 0 has; the context is
                                 * that much shorter than max_position_embeddings */
    struct stack_classes names; /* of the classifying head */
    struct stack_masked masked; /* of the head for masked tokens; the activation is read */
    bool plain_gelu;            /* whose activation is GELU, whatever the layers' is */
    bool drops_first;           /* its dropout is in front of its first product, too */
};
int bert_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
               const struct zinf_model_source *source, const struct bert_style *style);
/* Counts, norms, activation and dropouts of layers that see both ways, with norms behind the sums;
 * eps: of norms, where the configuration does not say. */
int bert_read_layers(const struct zinf_model_source *source, double eps, struct stack *k);
/* The head for masked tokens reads the table of tokens. -ENOTSUP: config.json says otherwise. */
int bert_check_tied(const struct zinf_model_source *source);
/* Names of that head in BERT's files. */
#define BERT_MASKED                                                                                \
    {                                                                                              \
        .dense_w = "cls.predictions.transform.dense.weight",                                       \
        .dense_b = "cls.predictions.transform.dense.bias",                                         \
        .norm_w = "cls.predictions.transform.LayerNorm.weight",                                    \
        .norm_b = "cls.predictions.transform.LayerNorm.bias", .bias = "cls.predictions.bias"       \
    }
/* A layer's tensors; what its products to queries, keys and values are called. */
struct bert_projections {
    const char *weights[3], *biases[3];
};
void bert_list_tensors(struct family_list *list, const struct decoder *d,
                       const struct bert_projections *projections);

/* Heads of other tasks, and buffers of old files. */
#define BERT_IGNORED "*cls.*", "*lm_head.*", "*position_ids*"
/* What a configuration calls its counts, and keys that have one value here. */
#define BERT_KEYS                                                                                  \
    {                                                                                              \
        "num_hidden_layers", "hidden_size", "num_attention_heads", NULL, NULL,                     \
            "intermediate_size", "vocab_size", "max_position_embeddings"                           \
    }
#define BERT_ONLY "\"position_embedding_type\": \"absolute\", \"is_decoder\": false"
#define BERT_ALWAYS                                                                                \
    "\"hidden_act\": \"gelu\", \"hidden_dropout_prob\": 0.1, "                                     \
    "\"attention_probs_dropout_prob\": 0.1, \"initializer_range\": 0.02"

#endif

/* family_bart: what BART and its descendants share: the layout of their files and configurations.
 */
#ifndef ZINF_FAMILY_BART_H
#define ZINF_FAMILY_BART_H

#include "model/families/family_decoder.h"

struct bart_style {
    bool norm_behind;       /* norms are of sums; else in front of parts, and one ends each stack */
    bool embedding_norm;    /* behind the lookup */
    int64_t first_position; /* row of the tables of positions that position 0 has */
    int64_t decoder_layers; /* of a configuration that does not say */
};
int bart_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
               const struct zinf_model_source *source, const struct bart_style *style);
int bart_make_config(cJSON *config, const struct zinf_family *family,
                     const struct zinf_model_shape *shape);

/* Copies of the table that some writers repeat. */
#define BART_IGNORED "lm_head.weight", "*embed_tokens.weight*"
/* Keys and values that both families' configurations have. */
#define BART_KEYS                                                                                  \
    {                                                                                              \
        "encoder_layers", "d_model", "encoder_attention_heads", NULL, NULL, "encoder_ffn_dim",     \
            "vocab_size", "max_position_embeddings"                                                \
    }
#define BART_ONLY                                                                                  \
    "{\"encoder_layerdrop\": 0, \"decoder_layerdrop\": 0, \"tie_word_embeddings\": true}"

#endif

/*
 * family_roberta: RoBERTa (Liu et al., arXiv 1907.11692): BERT's layers; positions begin at row 2
 * of their table, all tokens are of one type, and the classifier has its product before its own.
 * XLM-RoBERTa (Conneau et al., arXiv 1911.02116) and CamemBERT (Martin et al., arXiv 1911.03894)
 * are the same with vocabularies of their own.
 */
#include "model/families/bert.h"

/* Of the table: the one behind the row that padding has, whose id is 1 in all published models. */
#define FIRST_POSITION 2

static const struct family_size sizes[] = {
    {"base", {12, 768, 12, 0, 0, 3072, 50265, 514}, NULL},
    {"large", {24, 1024, 16, 0, 0, 4096, 50265, 514}, NULL},
};
static const struct family_size xlm_sizes[] = {
    {"base", {12, 768, 12, 0, 0, 3072, 250002, 514}, NULL},
    {"large", {24, 1024, 16, 0, 0, 4096, 250002, 514}, NULL},
};
static const struct family_size camembert_sizes[] = {
    {"base", {12, 768, 12, 0, 0, 3072, 32005, 514}, NULL},
    {"large", {24, 1024, 16, 0, 0, 4096, 32005, 514}, NULL},
};
#define TRAITS(list)                                                                               \
    {                                                                                              \
        .keys = BERT_KEYS, .absent = {12, 768, 12, 0, 0, 3072, 50265, 512},                        \
        .only = "{" BERT_ONLY ", \"pad_token_id\": 1}",                                            \
        .always = "{" BERT_ALWAYS ", \"layer_norm_eps\": 1e-5, \"type_vocab_size\": 1, "           \
                  "\"bos_token_id\": 0, \"pad_token_id\": 1, \"eos_token_id\": 2}",                \
        FAMILY_SIZES(list),                                                                        \
    }
static const struct family_traits traits = TRAITS(sizes);
static const struct family_traits xlm_traits = TRAITS(xlm_sizes);
static const struct family_traits camembert_traits = TRAITS(camembert_sizes);

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    static const struct bert_style style = {.eps = 1e-5,
                                            .n_types = 1,
                                            .first_position = FIRST_POSITION,
                                            .names = {.dense_w = "classifier.dense.weight",
                                                      .dense_b = "classifier.dense.bias",
                                                      .out_w = "classifier.out_proj.weight",
                                                      .out_b = "classifier.out_proj.bias",
                                                      .plain_dense = true},
                                            .masked = {.dense_w = "lm_head.dense.weight",
                                                       .dense_b = "lm_head.dense.bias",
                                                       .norm_w = "lm_head.layer_norm.weight",
                                                       .norm_b = "lm_head.layer_norm.bias",
                                                       .bias = "lm_head.bias"},
                                            .plain_gelu = true,
                                            .drops_first = true};
    return bert_build(graph, facts, source, &style);
}

/* Positions begin behind the id of padding, whatever the vocabulary: nobody reads a configuration
 * without one. */
static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    static const struct family_number padding[] = {{"pad_token_id", FIRST_POSITION - 1}, {NULL, 0}};
    int code = family_make_config(config, family, shape);
    if (code || !shape->vocab)
        return code;
    cJSON_DeleteItemFromObjectCaseSensitive(config, "pad_token_id");
    return family_add_numbers(config, padding);
}

/* A first token's product of another task is in some files. */
#define FAMILY(type, names, of)                                                                    \
    {                                                                                              \
        .model_type = type, .architecture = names "ForSequenceClassification",                     \
        .prefix = "roberta.", .layers_key = "num_hidden_layers", .masks = true, .traits = &(of),   \
        .build = build, .make_config = make_config, .ignored = {BERT_IGNORED, "*pooler.*"},        \
    }
const struct zinf_family zinf_family_roberta = FAMILY("roberta", "Roberta", traits);
const struct zinf_family zinf_family_xlm_roberta = FAMILY("xlm-roberta", "XLMRoberta", xlm_traits);
const struct zinf_family zinf_family_camembert = FAMILY("camembert", "Camembert", camembert_traits);

/*
 * family_bert: BERT (Devlin et al., arXiv 1810.04805) as a classifier of texts and of pairs of
 * texts, or with the head that it was first trained with, for masked tokens: tokens see both ways,
 * norms are behind the sums, and classes come of the first token's row.
 */
#include "model/families/bert.h"

static const struct family_size sizes[] = {
    {"base", {12, 768, 12, 0, 0, 3072, 30522, 512}, NULL},
    {"large", {24, 1024, 16, 0, 0, 4096, 30522, 512}, NULL},
};
static const struct family_traits traits = {
    .keys = BERT_KEYS,
    .absent = {12, 768, 12, 0, 0, 3072, 30522, 512},
    .only = "{" BERT_ONLY "}",
    .always = "{" BERT_ALWAYS ", \"layer_norm_eps\": 1e-12, \"type_vocab_size\": 2, "
              "\"pad_token_id\": 0}",
    FAMILY_SIZES(sizes),
};

void bert_list_tensors(struct family_list *list, const struct decoder *d,
                       const struct bert_projections *p)
{
    const int64_t h = d->hidden, f = d->ffn;
    for (int i = 0; i < 3; i++)
        family_add_matrix(list, DECODER_QKV_W, p->weights[i], h, h);
    family_add_matrix(list, DECODER_PROJ_W, "attention.output.dense.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "intermediate.dense.weight", f, h);
    family_add_matrix(list, DECODER_DOWN_W, "output.dense.weight", h, f);
    for (int i = 0; i < 3; i++)
        family_add_vector(list, DECODER_QKV_B, p->biases[i], h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_PROJ_B, "attention.output.dense.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "intermediate.dense.bias", f, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "output.dense.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_NORM1_W, "attention.output.LayerNorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM1_B, "attention.output.LayerNorm.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_NORM2_W, "output.LayerNorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_B, "output.LayerNorm.bias", h, ZINF_INIT_ZERO);
}

int bert_read_layers(const struct zinf_model_source *source, double eps, struct stack *k)
{
    struct decoder *d = &k->d;
    float dropout;
    int code;
    if ((code = family_read_counts(source, d)) ||
        (code = family_read_norms(source, d, ZINF_NORM_LAYER, "layer_norm_eps", eps)) ||
        (code = family_read_init(source, d, "initializer_range", 0.02)) ||
        (code = family_read_activation(source, "hidden_act", "gelu", &d->mlp.activation)) ||
        (code = family_read_dropout(source, "hidden_dropout_prob", 0.1, &dropout)) ||
        (code = family_read_dropout(source, "attention_probs_dropout_prob", 0.1,
                                    &d->attention.dropout)))
        return code;
    d->attention.residual_dropout = d->mlp.residual_dropout = dropout;
    d->embedding_norm_dropout = dropout;
    d->packed = true;
    k->both_ways = k->norm_behind = true;
    return 0;
}

static int read_stack(const struct zinf_model_source *source, const struct bert_style *style,
                      struct stack *k)
{
    int code = bert_read_layers(source, style->eps, k);
    k->d.first_position = style->first_position;
    k->d.context -= style->first_position;
    k->d.n_types = style->n_types;
    return code ? code
                : zinf_json_int(source->config, source->what, "type_vocab_size", &k->d.n_types);
}

/* The head's own dropout: that of hidden rows where the configuration does not say. */
static int read_head(const struct zinf_model_source *source, const struct stack *k,
                     struct stack_classes *c)
{
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(source->config, "classifier_dropout");
    c->dropout = k->d.embedding_norm_dropout;
    c->activation = ZINF_ACTIVATION_TANH;
    int code = own && !cJSON_IsNull(own)
                   ? family_read_dropout(source, "classifier_dropout", 0, &c->dropout)
                   : 0;
    return code ? code : classes_read(source->config, source->what, &c->count);
}

int bert_check_tied(const struct zinf_model_source *source)
{
    bool tied = true;
    int code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied);
    return code || tied
               ? code
               : zinf_fail(-ENOTSUP,
                           "%s: tie_word_embeddings is false: the head for masked tokens has the "
                           "table of tokens here, as published models do",
                           source->what);
}

static int build_masked(struct zinf_graph *graph, const struct zinf_model_source *source,
                        const struct bert_style *style, struct stack *k)
{
    struct stack_masked masked = style->masked;
    masked.activation = style->plain_gelu ? ZINF_ACTIVATION_GELU_ERF : k->d.mlp.activation;
    int code = bert_check_tied(source);
    return code ? code : stack_build_masked(graph, k, &masked);
}

static int build_classifier(struct zinf_graph *graph, const struct zinf_model_source *source,
                            const struct bert_style *style, struct stack *k)
{
    struct stack_classes classes = style->names;
    int code = read_head(source, k, &classes);
    classes.first_dropout = style->drops_first ? classes.dropout : 0;
    return code ? code : stack_build_classifier(graph, k, &classes);
}

int bert_build(struct zinf_graph *graph, struct zinf_model_facts *facts,
               const struct zinf_model_source *source, const struct bert_style *style)
{
    struct stack k = {.d = {.table = "embeddings.word_embeddings.weight",
                            .positions = "embeddings.position_embeddings.weight",
                            .types = "embeddings.token_type_embeddings.weight",
                            .embedding_w = "embeddings.LayerNorm.weight",
                            .embedding_b = "embeddings.LayerNorm.bias",
                            .blocks = "encoder.layer"}};
    static const struct bert_projections projections = {
        {"attention.self.query.weight", "attention.self.key.weight", "attention.self.value.weight"},
        {"attention.self.query.bias", "attention.self.key.bias", "attention.self.value.bias"}};
    struct family_list list = {0};
    int code = read_stack(source, style, &k);
    if (code)
        return code;
    list.std = k.d.init_std;
    bert_list_tensors(&list, &k.d, &projections);
    k.d.tensors = list.items;
    k.d.n_tensors = list.n;
    family_tell(facts, source, &k.d, -1);
    switch (heads_in(source->config, source->family)) {
    case ZINF_HEAD_MASKED:
        return build_masked(graph, source, style, &k);
    case ZINF_HEAD_NONE:
        return stack_build_embedder(graph, &k);
    default:
        return build_classifier(graph, source, style, &k);
    }
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    static const struct bert_style style = {.eps = 1e-12,
                                            .n_types = 2,
                                            .names = {.dense_w = "pooler.dense.weight",
                                                      .dense_b = "pooler.dense.bias",
                                                      .out_w = "classifier.weight",
                                                      .out_b = "classifier.bias"},
                                            .masked = BERT_MASKED};
    return bert_build(graph, facts, source, &style);
}

const struct zinf_family zinf_family_bert = {
    .model_type = "bert",
    .architecture = "BertForSequenceClassification",
    .prefix = "bert.",
    .layers_key = "num_hidden_layers",
    .masks = true,
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignored = {BERT_IGNORED},
};

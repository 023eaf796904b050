/*
 * family_deberta_v2: DeBERTa of versions 2 and 3 (He et al., arXiv 2006.03654 and 2111.09543), as
 * BERT with either head: BERT's layers, whose scores also look at relative positions, from a table
 * that all layers share; perhaps a convolution behind the first layer. Classes come of the first
 * token.
 */
#include "model/families/bert.h"

#include <math.h>

#define V2 "\"conv_kernel_size\": 3, \"conv_act\": \"gelu\""

static const struct family_size sizes[] = {
    {"v3-base", {12, 768, 12, 0, 0, 3072, 128100, 512}, NULL},
    {"v3-xsmall", {12, 384, 6, 0, 0, 1536, 128100, 512}, NULL},
    {"v3-small", {6, 768, 12, 0, 0, 3072, 128100, 512}, NULL},
    {"v3-large", {24, 1024, 16, 0, 0, 4096, 128100, 512}, NULL},
    {"v2-xlarge", {24, 1536, 24, 0, 0, 6144, 128100, 512}, "{" V2 "}"},
    {"v2-xxlarge", {48, 1536, 24, 0, 0, 6144, 128100, 512}, "{" V2 "}"},
};
static const struct family_traits traits = {
    .keys = BERT_KEYS,
    .absent = {24, 1536, 24, 0, 0, 6144, 128100, 512},
    .only = "{\"conv_groups\": 1, \"is_decoder\": false}",
    .always = "{" BERT_ALWAYS ", \"layer_norm_eps\": 1e-7, \"type_vocab_size\": 0, "
              "\"pad_token_id\": 0, \"relative_attention\": true, \"position_buckets\": 256, "
              "\"max_relative_positions\": -1, \"norm_rel_ebd\": \"layer_norm\", "
              "\"share_att_key\": true, \"pos_att_type\": [\"p2c\", \"c2p\"], "
              "\"position_biased_input\": false, \"pooler_dropout\": 0, "
              "\"pooler_hidden_act\": \"gelu\"}",
    FAMILY_SIZES(sizes),
};

/* ---- relative positions ---- */

/* Whether a key's names, a list or one string with | between them, have this one. */
static bool has_name(const struct zinf_model_source *source, const char *key, const char *name)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, key);
    if (cJSON_IsString(item))
        return strcasestr(item->valuestring, name) != NULL;
    const cJSON *one;
    cJSON_ArrayForEach(one, item)
    {
        if (cJSON_IsString(one) && !strcmp(one->valuestring, name))
            return true;
    }
    return false;
}

struct positions {
    bool relative, shared;
    int64_t buckets, most; /* buckets 0: one for each distance */
};

static int read_positions(const struct zinf_model_source *source, int64_t context,
                          struct positions *p)
{
    const char *what = source->what;
    *p = (struct positions){.buckets = -1, .most = -1};
    int code;
    if ((code = zinf_json_bool(source->config, what, "relative_attention", &p->relative)) ||
        (code = zinf_json_bool(source->config, what, "share_att_key", &p->shared)) ||
        (code = zinf_json_int(source->config, what, "position_buckets", &p->buckets)) ||
        (code = zinf_json_int(source->config, what, "max_relative_positions", &p->most)))
        return code;
    p->most = p->most < 1 ? context : p->most;
    p->buckets = p->buckets > 0 ? p->buckets : 0;
    const int64_t half = p->buckets ? p->buckets : p->most;
    if (p->relative && (half > ZINF_RELATIVE_MAX_HALF || p->buckets == 1))
        return zinf_fail(
            -ENOTSUP,
            "%s: %lld %s of relative positions; supported are up to %d, and of buckets "
            "at least 2",
            what, (long long)half,
            p->buckets ? "buckets (position_buckets)" : "(max_relative_positions)",
            ZINF_RELATIVE_MAX_HALF);
    if (p->relative && p->buckets && p->most - 1 <= p->buckets / 2)
        return zinf_fail(-EINVAL,
                         "%s: max_relative_positions is %lld, where position_buckets %lld need at "
                         "least %lld",
                         what, (long long)p->most, (long long)p->buckets,
                         (long long)(p->buckets / 2 + 2));
    return 0;
}

static int read_relative(struct zinf_graph *graph, const struct zinf_model_source *source,
                         struct stack *k, bool *shared)
{
    struct stack_relative *r = &k->relative;
    struct attention_spec *a = &k->d.attention;
    struct positions p;
    int code = read_positions(source, k->d.context, &p);
    if (code)
        return code;
    r->keys = has_name(source, "pos_att_type", "c2p");
    r->queries = has_name(source, "pos_att_type", "p2c");
    /* scores are as many sums of products as there are terms, with relative positions or without */
    a->scale = 1.0f / sqrtf((float)a->head_dim * (float)(1 + r->keys + r->queries));
    const bool normed = has_name(source, "norm_rel_ebd", "layer_norm");
    if (!p.relative && !normed)
        return 0;
    if (!p.relative || !(r->keys || r->queries))
        return zinf_fail(-ENOTSUP, "%s: %s: the model has weights that nothing reads", source->what,
                         p.relative ? "relative_attention without c2p or p2c in pos_att_type"
                                    : "norm_rel_ebd without relative_attention");
    r->half = p.buckets ? p.buckets : p.most;
    r->table = "encoder.rel_embeddings.weight";
    r->norm_w = normed ? "encoder.LayerNorm.weight" : NULL;
    r->norm_b = "encoder.LayerNorm.bias";
    r->dropout = k->d.embedding_norm_dropout;
    r->starts = stack_relative_starts(graph, p.buckets, p.most);
    *shared = p.shared;
    return r->starts ? 0 : zinf_fail(-ENOMEM, "no memory for the positions of %s", source->what);
}

/* ---- the rest ---- */

static int read_convolution(const struct zinf_model_source *source, struct stack *k)
{
    struct stack_convolution *c = &k->convolution;
    int64_t width = 0;
    *c = (struct stack_convolution){.w = "encoder.conv.conv.weight",
                                    .b = "encoder.conv.conv.bias",
                                    .norm_w = "encoder.conv.LayerNorm.weight",
                                    .norm_b = "encoder.conv.LayerNorm.bias",
                                    .dropout = k->d.embedding_norm_dropout};
    int code = zinf_json_int(source->config, source->what, "conv_kernel_size", &width);
    if (!code)
        code = family_read_activation(source, "conv_act", "tanh", &c->activation);
    if (!code && width > 0 && (width % 2 == 0 || width > ZINF_UNFOLD_MAX_WIDTH))
        code = zinf_fail(-ENOTSUP,
                         "%s: conv_kernel_size is %lld; supported are odd ones up to %d, or 0",
                         source->what, (long long)width, ZINF_UNFOLD_MAX_WIDTH);
    c->width = width > 0 ? width : 0;
    return code;
}

/* Columns of the tables, heads, positions and types. */
static int read_embeddings(const struct zinf_model_source *source, struct stack *k)
{
    struct decoder *d = &k->d;
    int64_t columns = d->hidden, head = d->attention.head_dim;
    bool positions = true;
    const struct family_int list[] = {{"embedding_size", &columns},
                                      {"attention_head_size", &head},
                                      {"type_vocab_size", &d->n_types},
                                      {NULL, NULL}};
    int code = family_read_ints(source, list);
    if (!code)
        code = zinf_json_bool(source->config, source->what, "position_biased_input", &positions);
    if (code)
        return code;
    if (head * d->attention.n_heads != d->hidden || columns < 1 || columns > 1 << 20)
        return zinf_fail(-EINVAL,
                         "%s: %lld heads of attention_head_size %lld must be hidden_size %lld, and "
                         "embedding_size is %lld",
                         source->what, (long long)d->attention.n_heads, (long long)head,
                         (long long)d->hidden, (long long)columns);
    if (columns != d->hidden) {
        d->embedding = columns;
        k->projection = "embeddings.embed_proj.weight";
    }
    d->positions = positions ? "embeddings.position_embeddings.weight" : NULL;
    d->types = d->n_types > 0 ? "embeddings.token_type_embeddings.weight" : NULL;
    return 0;
}

static int read_stack(struct zinf_graph *graph, const struct zinf_model_source *source,
                      struct stack *k, bool *shared)
{
    int code;
    if ((code = bert_read_layers(source, 1e-7, k)) ||
        (code = family_read_padding(source, &k->d, 0)) || (code = read_embeddings(source, k)) ||
        (code = read_convolution(source, k)))
        return code;
    return read_relative(graph, source, k, shared);
}

/* Where they are there; null is as if it were absent. */
static int read_head(const struct zinf_model_source *source, const struct stack *k,
                     struct stack_classes *c)
{
    const cJSON *own = cJSON_GetObjectItemCaseSensitive(source->config, "cls_dropout");
    const float usual = k->d.embedding_norm_dropout;
    int64_t pooled = k->d.hidden;
    int code;
    c->dropout = usual;
    if ((own && !cJSON_IsNull(own) &&
         (code = family_read_dropout(source, "cls_dropout", 0, &c->dropout))) ||
        (code = family_read_dropout(source, "pooler_dropout", 0, &c->first_dropout)) ||
        (code = family_read_activation(source, "pooler_hidden_act", "gelu", &c->activation)) ||
        (code = zinf_json_int(source->config, source->what, "pooler_hidden_size", &pooled)))
        return code;
    if (pooled != k->d.hidden)
        return zinf_fail(-EINVAL, "%s: pooler_hidden_size is %lld; it must be hidden_size, %lld",
                         source->what, (long long)pooled, (long long)k->d.hidden);
    return classes_read(source->config, source->what, &c->count);
}

static void list_tensors(struct family_list *list, const struct stack *k, bool shared)
{
    const int64_t h = k->d.hidden;
    const struct stack_relative *r = &k->relative;
    static const struct bert_projections projections = {
        {"attention.self.query_proj.weight", "attention.self.key_proj.weight",
         "attention.self.value_proj.weight"},
        {"attention.self.query_proj.bias", "attention.self.key_proj.bias",
         "attention.self.value_proj.bias"}};
    bert_list_tensors(list, &k->d, &projections);
    if (!r->half || shared)
        return;
    if (r->queries)
        family_add_matrix(list, DECODER_RELATIVE_W, "attention.self.pos_query_proj.weight", h, h);
    if (r->keys)
        family_add_matrix(list, DECODER_RELATIVE_W, "attention.self.pos_key_proj.weight", h, h);
    if (r->queries)
        family_add_vector(list, DECODER_RELATIVE_B, "attention.self.pos_query_proj.bias", h,
                          ZINF_INIT_ZERO);
    if (r->keys)
        family_add_vector(list, DECODER_RELATIVE_B, "attention.self.pos_key_proj.bias", h,
                          ZINF_INIT_ZERO);
}

/* Names as transformers has them, and those of the published files, which it reads where the
 * configuration says legacy false. */
static int build_masked(struct zinf_graph *graph, const struct zinf_model_source *source,
                        struct stack *k)
{
    struct stack_masked masked = BERT_MASKED;
    bool legacy = true;
    int code = zinf_json_bool(source->config, source->what, "legacy", &legacy);
    if (!code)
        code = bert_check_tied(source);
    if (!code && !legacy && k->projection)
        code = zinf_fail(-ENOTSUP,
                         "%s: with legacy false, embedding_size must be equal to hidden_size",
                         source->what);
    if (!legacy)
        masked = (struct stack_masked){.dense_w = "lm_predictions.lm_head.dense.weight",
                                       .dense_b = "lm_predictions.lm_head.dense.bias",
                                       .norm_w = "lm_predictions.lm_head.LayerNorm.weight",
                                       .norm_b = "lm_predictions.lm_head.LayerNorm.bias",
                                       .bias = "lm_predictions.lm_head.bias"};
    masked.activation = k->d.mlp.activation;
    return code ? code : stack_build_masked(graph, k, &masked);
}

static int build_classifier(struct zinf_graph *graph, const struct zinf_model_source *source,
                            struct stack *k)
{
    struct stack_classes classes = {.dense_w = "pooler.dense.weight",
                                    .dense_b = "pooler.dense.bias",
                                    .out_w = "classifier.weight",
                                    .out_b = "classifier.bias",
                                    .plain_dense = true};
    int code = read_head(source, k, &classes);
    return code ? code : stack_build_classifier(graph, k, &classes);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct stack k = {.d = {.table = "embeddings.word_embeddings.weight",
                            .embedding_w = "embeddings.LayerNorm.weight",
                            .embedding_b = "embeddings.LayerNorm.bias",
                            .blocks = "encoder.layer"}};
    struct family_list list = {0};
    bool shared = true;
    int code = read_stack(graph, source, &k, &shared);
    if (code)
        return code;
    list.std = k.d.init_std;
    list_tensors(&list, &k, shared);
    k.d.tensors = list.items;
    k.d.n_tensors = list.n;
    family_tell(facts, source, &k.d, -1);
    switch (heads_in(source->config, source->family)) {
    case ZINF_HEAD_MASKED:
        return build_masked(graph, source, &k);
    case ZINF_HEAD_NONE:
        return stack_build_embedder(graph, &k);
    default:
        return build_classifier(graph, source, &k);
    }
}

/* A shorter context has as many buckets in proportion as the published ones: half of it. */
static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    int code = family_make_config(config, family, shape);
    cJSON *buckets = cJSON_GetObjectItemCaseSensitive(config, "position_buckets");
    if (!code && shape->context > 3 && shape->context / 2 < buckets->valuedouble)
        cJSON_SetNumberValue(buckets, (double)(shape->context / 2));
    return code;
}

const struct zinf_family zinf_family_deberta_v2 = {
    .model_type = "deberta-v2",
    .architecture = "DebertaV2ForSequenceClassification",
    .prefix = "deberta.",
    .layers_key = "num_hidden_layers",
    .masks = true,
    .traits = &traits,
    .build = build,
    .make_config = make_config,
    /* heads of other tasks, and a table of positions that version 3 does not read */
    .ignored = {BERT_IGNORED, "*lm_predictions.*", "*mask_predictions.*", "*position_embeddings.*"},
};

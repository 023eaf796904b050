/*
 * family_t5: T5 (Raffel et al., arXiv 1910.10683), its version 1.1 with gated feed-forward parts
 * and a head of its own, and FLAN-T5 (Chung et al., arXiv 2210.11416), which is that. Scores are
 * not scaled, and biased by distance from one table for each stack; there are no other biases.
 * Where the head is the token table, what it takes is scaled by d_model^-0.5, unless config.json
 * says otherwise.
 */
#include "model/families/family_decoder.h"
#include "model/stack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MOST_NAMES ((size_t)4 << 20) /* bytes that name a model's tensors */

#define GATED "{\"feed_forward_proj\": \"gated-gelu\", \"tie_word_embeddings\": false}"

static const struct family_size sizes[] = {
    {"small", {8, 512, 6, 0, 64, 1024, 32128, 0}, GATED},
    {"base", {12, 768, 12, 0, 64, 2048, 32128, 0}, GATED},
    {"large", {24, 1024, 16, 0, 64, 2816, 32128, 0}, GATED},
    {"xl", {24, 2048, 32, 0, 64, 5120, 32128, 0}, GATED},
    {"xxl", {24, 4096, 64, 0, 64, 10240, 32128, 0}, GATED},
    {"v1-small", {6, 512, 8, 0, 64, 2048, 32128, 0}, NULL},
    {"v1-base", {12, 768, 12, 0, 64, 3072, 32128, 0}, NULL},
    {"v1-large", {24, 1024, 16, 0, 64, 4096, 32128, 0}, NULL},
    {"v1-3b", {24, 1024, 32, 0, 128, 16384, 32128, 0}, NULL},
    {"v1-11b", {24, 1024, 128, 0, 128, 65536, 32128, 0}, NULL},
};
static const struct family_traits traits = {
    .keys = {"num_layers", "d_model", "num_heads", NULL, "d_kv", "d_ff", "vocab_size", NULL},
    .absent = {6, 512, 8, 0, 64, 2048, 32128, 0},
    .always = "{\"is_encoder_decoder\": true, \"feed_forward_proj\": \"relu\", \"dropout_rate\": "
              "0.1, \"layer_norm_epsilon\": 1e-6, \"initializer_factor\": 1.0, "
              "\"relative_attention_num_buckets\": 32, \"relative_attention_max_distance\": 128, "
              "\"tie_word_embeddings\": true, \"pad_token_id\": 0, \"eos_token_id\": 1, "
              "\"decoder_start_token_id\": 0}",
    FAMILY_SIZES(sizes),
};

/* Sequences have no length that the model sets: every distance has a bucket. */
#define NO_LIMIT ((int64_t)1 << 20)

/* What is not among the counts. */
struct t5 {
    int64_t decoder_layers, n_buckets, max_distance;
    double eps, factor, dropout;
    bool tied;   /* the head is the table of tokens */
    bool scaled; /* rows before the head */
};

/* ---- tensors ---- */

/* Deviations as the published initialisation has them. */
struct stds {
    float by_width, query, heads, ffn;
};
static struct stds stds_of(const struct decoder *d, double factor)
{
    const double h = (double)d->hidden, dim = (double)d->attention.head_dim;
    const double inner = (double)d->attention.n_heads * dim;
    return (struct stds){(float)(factor / sqrt(h)), (float)(factor / sqrt(h * dim)),
                         (float)(factor / sqrt(inner)), (float)(factor / sqrt((double)d->ffn))};
}

static void list_attention(struct family_list *list, const struct decoder *d,
                           const struct stds *std)
{
    const int64_t h = d->hidden, inner = d->attention.n_heads * d->attention.head_dim;
    list->std = std->query;
    family_add_matrix(list, DECODER_QKV_W, "layer.0.SelfAttention.q.weight", inner, h);
    list->std = std->by_width;
    family_add_matrix(list, DECODER_QKV_W, "layer.0.SelfAttention.k.weight", inner, h);
    family_add_matrix(list, DECODER_QKV_W, "layer.0.SelfAttention.v.weight", inner, h);
    list->std = std->heads;
    family_add_matrix(list, DECODER_PROJ_W, "layer.0.SelfAttention.o.weight", h, inner);
    family_add_vector(list, DECODER_NORM1_W, "layer.0.layer_norm.weight", h, ZINF_INIT_ONE);
}

static void list_cross(struct family_list *list, const struct decoder *d, const struct stds *std)
{
    const int64_t h = d->hidden, inner = d->attention.n_heads * d->attention.head_dim;
    list->std = std->query;
    family_add_matrix(list, DECODER_CROSS_Q_W, "layer.1.EncDecAttention.q.weight", inner, h);
    list->std = std->by_width;
    family_add_matrix(list, DECODER_CROSS_KV_W, "layer.1.EncDecAttention.k.weight", inner, h);
    family_add_matrix(list, DECODER_CROSS_KV_W, "layer.1.EncDecAttention.v.weight", inner, h);
    list->std = std->heads;
    family_add_matrix(list, DECODER_CROSS_PROJ_W, "layer.1.EncDecAttention.o.weight", h, inner);
    family_add_vector(list, DECODER_CROSS_NORM_W, "layer.1.layer_norm.weight", h, ZINF_INIT_ONE);
}

/* In the encoder the part is the second of a block, in the decoder the third. */
static void list_mlp(struct family_list *list, const struct decoder *d, const struct stds *std)
{
    const int64_t h = d->hidden, f = d->ffn;
    const bool second = d->source;
    list->std = std->by_width;
    if (d->mlp.gated) {
        family_add_matrix(list, DECODER_UP_W,
                          second ? "layer.1.DenseReluDense.wi_0.weight"
                                 : "layer.2.DenseReluDense.wi_0.weight",
                          f, h);
        family_add_matrix(list, DECODER_UP_W,
                          second ? "layer.1.DenseReluDense.wi_1.weight"
                                 : "layer.2.DenseReluDense.wi_1.weight",
                          f, h);
    } else {
        family_add_matrix(
            list, DECODER_UP_W,
            second ? "layer.1.DenseReluDense.wi.weight" : "layer.2.DenseReluDense.wi.weight", f, h);
    }
    list->std = std->ffn;
    family_add_matrix(
        list, DECODER_DOWN_W,
        second ? "layer.1.DenseReluDense.wo.weight" : "layer.2.DenseReluDense.wo.weight", h, f);
    family_add_vector(list, DECODER_NORM2_W,
                      second ? "layer.1.layer_norm.weight" : "layer.2.layer_norm.weight", h,
                      ZINF_INIT_ONE);
}

/* ---- config.json ---- */

/* "relu", or "gated-" and the name of the gate's activation; "gated-gelu" has the tanh form. */
static int read_activation(const struct zinf_model_source *source, struct mlp_spec *mlp)
{
    static const struct {
        const char *name;
        bool gated;
        enum zinf_activation kind;
    } table[] = {
        {"relu", false, ZINF_ACTIVATION_RELU},      {"gated-gelu", true, ZINF_ACTIVATION_GELU_TANH},
        {"gated-silu", true, ZINF_ACTIVATION_SILU}, {"gated-relu", true, ZINF_ACTIVATION_RELU},
        {"gelu", false, ZINF_ACTIVATION_GELU_ERF},  {"gelu_new", false, ZINF_ACTIVATION_GELU_TANH},
    };
    const char *name = "relu";
    int code = zinf_json_string(source->config, source->what, "feed_forward_proj", &name);
    for (size_t i = 0; !code && i < sizeof table / sizeof *table; i++)
        if (!strcmp(name, table[i].name)) {
            mlp->activation = table[i].kind;
            mlp->gated = table[i].gated;
            return 0;
        }
    return code ? code
                : zinf_fail(-ENOTSUP,
                            "%s: feed_forward_proj \"%s\" is not supported; use relu, gated-gelu, "
                            "gated-silu, gated-relu, gelu or gelu_new",
                            source->what, name);
}

/* Whether a folder's weights are there, and none of them is a head: by the names in the header of
 * the one file, or in the index of several. */
static bool has_no_head(const char *folder)
{
    static const char *const files[] = {"model.safetensors", "model.safetensors.index.json"};
    static const char head[] = "\"lm_head.weight\"";
    bool there = false, found = false;
    for (int i = 0; folder && !there && i < 2; i++) {
        char *path = zinf_path_join(folder, files[i]), *text = calloc(1, MOST_NAMES);
        FILE *in = path ? fopen(path, "rb") : NULL;
        size_t n = in && text ? fread(text, 1, MOST_NAMES, in) : 0;
        there = n > 0;
        found = there && memmem(text, n, head, strlen(head));
        if (in)
            fclose(in);
        free(text);
        free(path);
    }
    return there && !found;
}

static int read_numbers(const struct zinf_model_source *source, struct t5 *t)
{
    const struct family_int ints[] = {
        {"relative_attention_num_buckets", &t->n_buckets},
        {"relative_attention_max_distance", &t->max_distance},
        {NULL, NULL},
    };
    const struct family_double doubles[] = {{"layer_norm_epsilon", &t->eps},
                                            {"initializer_factor", &t->factor},
                                            {"dropout_rate", &t->dropout},
                                            {NULL, NULL}};
    int code = family_read_ints(source, ints);
    if (!code)
        code = family_read_doubles(source, doubles);
    if (!code)
        code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &t->tied);
    t->scaled = t->tied;
    if (!code)
        code = zinf_json_bool(source->config, source->what, "scale_decoder_outputs", &t->scaled);
    /* Newer files say of every model that it is tied: of those without a scale the weights tell. */
    if (!code && t->tied && !t->scaled)
        t->tied = has_no_head(source->folder);
    if (!code && (!(t->eps > 0) || !(t->factor >= 0)))
        code =
            zinf_fail(-EINVAL, "%s: layer_norm_epsilon %g or initializer_factor %g is out of range",
                      source->what, t->eps, t->factor);
    if (!code && (t->n_buckets < 4 || t->n_buckets % 4 ||
                  t->n_buckets > ZINF_DISTANCE_MAX_BUCKETS || t->max_distance <= t->n_buckets / 2))
        code = zinf_fail(-EINVAL,
                         "%s: %lld buckets of distances up to %lld: the number must be a multiple "
                         "of 4, at most %d, and less than twice the distance",
                         source->what, (long long)t->n_buckets, (long long)t->max_distance,
                         ZINF_DISTANCE_MAX_BUCKETS);
    if (source->dropout >= 0)
        t->dropout = (double)source->dropout;
    return code;
}

/* What both stacks have. */
static int read_stack(const struct zinf_model_source *source, const struct t5 *t, struct stack *k)
{
    struct decoder *d = &k->d;
    const float dropout = (float)t->dropout;
    int code = family_read_counts(source, d);
    if (!code)
        code = read_activation(source, &d->mlp);
    d->context = NO_LIMIT;
    d->packed = true;
    d->attention.scale = 1;
    d->attention.norm = d->mlp.norm =
        (struct norm_spec){.kind = ZINF_NORM_RMS, .eps = (float)t->eps};
    d->attention.dropout = d->attention.residual_dropout = d->mlp.residual_dropout = dropout;
    d->embedding_dropout = d->final_dropout = k->inner_dropout = dropout;
    return code;
}

/* Buckets of the encoder are for both directions, half of them each. */
static int make_distances(struct zinf_graph *graph, const struct t5 *t, struct stack *k,
                          const char *table)
{
    int n = (int)(k->both_ways ? t->n_buckets / 2 : t->n_buckets);
    k->distance = (struct stack_distance){
        .n_buckets = n,
        .both_ways = k->both_ways,
        .starts = stack_bucket_starts(graph, n, t->max_distance),
        .table = table,
        .std = (float)(t->factor / sqrt((double)k->d.hidden)),
    };
    return k->distance.starts ? 0 : zinf_fail(-ENOMEM, "no memory for %s", k->d.what);
}

/* ---- the graph ---- */

static int make_stacks(struct zinf_graph *graph, const struct zinf_model_source *source,
                       const struct t5 *t, struct stack *from, struct stack *to)
{
    int code;
    if ((code = read_stack(source, t, from)) || (code = read_stack(source, t, to)))
        return code;
    from->both_ways = from->d.source = true;
    from->d.blocks = "encoder.block";
    from->d.final_w = "encoder.final_layer_norm.weight";
    to->d.blocks = "decoder.block";
    to->d.final_w = "decoder.final_layer_norm.weight";
    to->d.table = "shared.weight";
    to->d.init_std = (float)t->factor;
    to->d.head = t->tied ? NULL : "lm_head.weight";
    to->d.head_scale = t->scaled ? 1.0f / sqrtf((float)to->d.hidden) : 1.0f;
    to->d.n_layers = t->decoder_layers ? t->decoder_layers : from->d.n_layers;
    code = make_distances(graph, t, from,
                          "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
    return code ? code
                : make_distances(
                      graph, t, to,
                      "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight");
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct t5 t = {.n_buckets = 32,
                   .max_distance = 128,
                   .eps = 1e-6,
                   .factor = 1,
                   .dropout = 0.1,
                   .tied = true};
    struct stack from = {.d = {0}}, to = {.d = {0}};
    struct family_list first = {0}, second = {0};
    const cJSON *layers = cJSON_GetObjectItemCaseSensitive(source->config, "num_decoder_layers");
    int code = read_numbers(source, &t);
    if (!code && layers && !cJSON_IsNull(layers))
        code = zinf_json_int(source->config, source->what, "num_decoder_layers", &t.decoder_layers);
    if (!code)
        code = make_stacks(graph, source, &t, &from, &to);
    if (code)
        return code;
    const struct stds std = stds_of(&from.d, t.factor);
    list_attention(&first, &from.d, &std);
    list_mlp(&first, &from.d, &std);
    list_attention(&second, &to.d, &std);
    list_cross(&second, &to.d, &std);
    list_mlp(&second, &to.d, &std);
    from.d.tensors = first.items;
    from.d.n_tensors = first.n;
    to.d.tensors = second.items;
    to.d.n_tensors = second.n;
    family_tell(facts, source, &to.d, 1);
    return stack_build_pair(graph, &from, &to);
}

/* A vocabulary of the caller's keeps the ids of padding and of the end, which come first in it. */
static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    int code = family_make_config(config, family, shape);
    if (code || !shape->vocab)
        return code;
    cJSON_DeleteItemFromObjectCaseSensitive(config, "bos_token_id");
    cJSON_DeleteItemFromObjectCaseSensitive(config, "eos_token_id");
    cJSON_DeleteItemFromObjectCaseSensitive(config, "pad_token_id");
    const struct family_number ids[] = {{"pad_token_id", 0}, {"eos_token_id", 1}, {NULL, 0}};
    return family_add_numbers(config, ids);
}

const struct zinf_family zinf_family_t5 = {
    .model_type = "t5",
    .architecture = "T5ForConditionalGeneration",
    .prefix = "",
    .layers_key = "num_layers",
    .traits = &traits,
    .build = build,
    .make_config = make_config,
    /* copies of the table that some writers repeat, the tied head, and a table that no layer has */
    .ignored = {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight", "lm_head.weight",
                "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"},
};

/*
 * family_gpt2: GPT-2 as Hugging Face writes it (Radford et al., 2019). Conv1D weights are stored
 * [in][out]; q, k and v are the three column blocks of c_attn; the head is the token table.
 * Residual projections start at std 0.02 / sqrt(2 n_layers).
 */
#include "model/families/family_decoder.h"

#include <math.h>

/* The context length that a configuration has when it does not say. */
enum { USUAL_LAYERS = 12, USUAL_HIDDEN = 768, USUAL_VOCAB = 50257, USUAL_CONTEXT = 1024 };

static int read_shape(const struct zinf_model_source *source, struct decoder *d)
{
    int64_t inner = 0;
    struct attention_spec *a = &d->attention;
    const struct family_int list[] = {
        {"n_layer", &d->n_layers},
        {"n_embd", &d->hidden},
        {"n_head", &a->n_heads},
        {"vocab_size", &d->vocab},
        {"n_positions", &d->context},
        {"n_inner", &inner},
        {NULL, NULL},
    };
    d->n_layers = a->n_heads = USUAL_LAYERS;
    d->hidden = USUAL_HIDDEN;
    d->vocab = USUAL_VOCAB;
    d->context = USUAL_CONTEXT;
    int code = family_read_ints(source, list);
    if (code)
        return code;
    if (a->n_heads < 1 || d->hidden < 1 || d->hidden % a->n_heads)
        return zinf_fail(-EINVAL, "%s: n_embd %lld must be a multiple of n_head %lld", source->what,
                         (long long)d->hidden, (long long)a->n_heads);
    d->ffn = inner ? inner : 4 * d->hidden;
    a->n_kv_heads = a->n_heads;
    a->head_dim = d->hidden / a->n_heads;
    return 0;
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d)
{
    const cJSON *config = source->config;
    const char *what = source->what;
    bool scale = true, cross = false, tied = true;
    int code;
    if ((code = zinf_json_bool(config, what, "scale_attn_weights", &scale)) ||
        (code = zinf_json_bool(config, what, "scale_attn_by_inverse_layer_idx",
                               &d->scale_by_inverse_layer)) ||
        (code = zinf_json_bool(config, what, "add_cross_attention", &cross)) ||
        (code = zinf_json_bool(config, what, "tie_word_embeddings", &tied)))
        return code;
    if (!tied)
        return zinf_fail(-ENOTSUP, "%s: tie_word_embeddings false is not supported for gpt2", what);
    if (cross)
        return zinf_fail(-ENOTSUP, "%s: add_cross_attention is not supported", what);
    d->attention.scale = scale ? 1.0f / sqrtf((float)d->attention.head_dim) : 1.0f;
    return 0;
}

static int read_numbers(const struct zinf_model_source *source, struct decoder *d)
{
    double eps = 1e-5, std = 0.02, embedding = 0.1, residual = 0.1, attention = 0.1;
    const struct family_double list[] = {
        {"layer_norm_epsilon", &eps}, {"initializer_range", &std}, {"embd_pdrop", &embedding},
        {"resid_pdrop", &residual},   {"attn_pdrop", &attention},  {NULL, NULL},
    };
    int code = family_read_doubles(source, list);
    if (code)
        return code;
    if (eps <= 0 || std < 0)
        return zinf_fail(-EINVAL,
                         "%s: layer_norm_epsilon %g or initializer_range %g is out of range",
                         source->what, eps, std);
    if (source->dropout >= 0)
        embedding = residual = attention = (double)source->dropout;
    d->attention.norm.kind = d->mlp.norm.kind = ZINF_NORM_LAYER;
    d->attention.norm.eps = d->mlp.norm.eps = (float)eps;
    d->init_std = (float)std;
    d->embedding_dropout = (float)embedding;
    d->attention.residual_dropout = d->mlp.residual_dropout = (float)residual;
    d->attention.dropout = (float)attention;
    return 0;
}

static int append(struct zinf_graph *graph, struct decoder *d)
{
    uint64_t h = (uint64_t)d->hidden, f = (uint64_t)d->ffn;
    float std = d->init_std, out_std = std / sqrtf(2.0f * (float)d->n_layers);
    const struct decoder_tensor block[] = {
        {DECODER_QKV_W, "attn.c_attn.weight", 3 * h, h, DECODER_COLUMNS, ZINF_INIT_NORMAL, std},
        {DECODER_PROJ_W, "attn.c_proj.weight", h, h, DECODER_COLUMNS, ZINF_INIT_NORMAL, out_std},
        {DECODER_UP_W, "mlp.c_fc.weight", f, h, DECODER_COLUMNS, ZINF_INIT_NORMAL, std},
        {DECODER_DOWN_W, "mlp.c_proj.weight", h, f, DECODER_COLUMNS, ZINF_INIT_NORMAL, out_std},
        {DECODER_NORM1_W, "ln_1.weight", h, 0, DECODER_ROWS, ZINF_INIT_ONE, 0},
        {DECODER_NORM1_B, "ln_1.bias", h, 0, DECODER_ROWS, ZINF_INIT_ZERO, 0},
        {DECODER_QKV_B, "attn.c_attn.bias", 3 * h, 0, DECODER_ROWS, ZINF_INIT_ZERO, 0},
        {DECODER_PROJ_B, "attn.c_proj.bias", h, 0, DECODER_ROWS, ZINF_INIT_ZERO, 0},
        {DECODER_NORM2_W, "ln_2.weight", h, 0, DECODER_ROWS, ZINF_INIT_ONE, 0},
        {DECODER_NORM2_B, "ln_2.bias", h, 0, DECODER_ROWS, ZINF_INIT_ZERO, 0},
        {DECODER_UP_B, "mlp.c_fc.bias", f, 0, DECODER_ROWS, ZINF_INIT_ZERO, 0},
        {DECODER_DOWN_B, "mlp.c_proj.bias", h, 0, DECODER_ROWS, ZINF_INIT_ZERO, 0},
    };
    d->table = "wte.weight";
    d->positions = "wpe.weight";
    d->blocks = "h";
    d->final_w = "ln_f.weight";
    d->final_b = "ln_f.bias";
    d->tensors = block;
    d->n_tensors = sizeof block / sizeof *block;
    return decoder_build(graph, d);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.what = source->what,
                        .join_tiles = source->join_tiles,
                        .packed = source->packed,
                        .shards = source->shards};
    int code;
    if ((code = read_shape(source, &d)) ||
        (code = family_read_activation(source, "activation_function", "gelu_new",
                                       &d.mlp.activation)) ||
        (code = read_switches(source, &d)) || (code = read_numbers(source, &d)) ||
        (code = family_read_classes(source, &d)))
        return code;
    facts->layers = d.n_layers;
    facts->hidden = d.hidden;
    facts->heads = d.attention.n_heads;
    facts->vocab = d.vocab;
    facts->context = d.context;
    facts->end_of_text = USUAL_VOCAB - 1 < d.vocab ? USUAL_VOCAB - 1 : -1;
    family_read_end_of_text(source, &facts->end_of_text);
    return append(graph, &d);
}

/* ---- new models ---- */

static const char *const size_names[] = {"small", "medium", "large", "xl"};
static const struct {
    int64_t layers, hidden, heads;
} sizes[] = {{12, 768, 12}, {24, 1024, 16}, {36, 1280, 20}, {48, 1600, 25}};

static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    (void)family;
    size_t i;
    int code =
        family_find_size(shape, size_names, sizeof size_names / sizeof *size_names, "small", &i);
    if (code)
        return code;
    int64_t vocab = shape->vocab ? shape->vocab : USUAL_VOCAB;
    const struct family_number numbers[] = {
        {"vocab_size", (double)vocab},
        {"n_positions", (double)(shape->context ? shape->context : USUAL_CONTEXT)},
        {"n_embd", (double)(shape->hidden ? shape->hidden : sizes[i].hidden)},
        {"n_layer", (double)(shape->layers ? shape->layers : sizes[i].layers)},
        {"n_head", (double)(shape->heads ? shape->heads : sizes[i].heads)},
        {"embd_pdrop", 0.1},
        {"resid_pdrop", 0.1},
        {"attn_pdrop", 0.1},
        {"layer_norm_epsilon", 1e-5},
        {"initializer_range", 0.02},
        {"bos_token_id", (double)(vocab - 1)},
        {"eos_token_id", (double)(vocab - 1)},
        {NULL, 0},
    };
    if (!cJSON_AddStringToObject(config, "activation_function", "gelu_new"))
        return zinf_fail(-ENOMEM, "no memory for a configuration");
    return family_add_numbers(config, numbers);
}

const struct zinf_family zinf_family_gpt2 = {
    .model_type = "gpt2",
    .architecture = "GPT2LMHeadModel",
    .prefix = "transformer.",
    .layers_key = "n_layer",
    .build = build,
    .make_config = make_config,
    /* causal-mask buffers of old files, and the tied head that some writers repeat */
    .ignored = {"*.attn.bias", "*.attn.masked_bias", "lm_head.weight"},
};

/*
 * gptj: GPT-J (Wang and Komatsuzaki, 2021): attention and feed-forward part beside each other
 * behind one norm with a mean, rotation by neighbouring pairs of the first "rotary_dim" numbers of
 * a head, no biases in attention, and a head with one.
 */
#include "model/families/family_decoder.h"
#include "model/rope.h"

static const struct family_size sizes[] = {
    {"6b", {28, 4096, 16, 0, 0, 16384, 50400, 2048}, NULL},
};
static const struct family_traits traits = {
    .keys = {"n_layer", "n_embd", "n_head", NULL, NULL, "n_inner", "vocab_size", "n_positions"},
    .absent = {28, 4096, 16, 0, 0, 0, 50400, 2048},
    .only = "{\"tie_word_embeddings\": false}",
    .always = "{\"activation_function\": \"gelu_new\", \"attn_pdrop\": 0, \"embd_pdrop\": 0, "
              "\"resid_pdrop\": 0, \"layer_norm_epsilon\": 1e-5, \"initializer_range\": 0.02, "
              "\"tie_word_embeddings\": false, \"bos_token_id\": 50256, "
              "\"eos_token_id\": 50256}",
    FAMILY_SIZES(sizes),
};

static void list_tensors(struct family_list *list, const struct decoder *d)
{
    const int64_t h = d->hidden;
    family_add_matrix(list, DECODER_QKV_W, "attn.q_proj.weight", h, h);
    family_add_matrix(list, DECODER_QKV_W, "attn.k_proj.weight", h, h);
    family_add_matrix(list, DECODER_QKV_W, "attn.v_proj.weight", h, h);
    family_add_matrix(list, DECODER_PROJ_W, "attn.out_proj.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "mlp.fc_in.weight", d->ffn, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.fc_out.weight", h, d->ffn);
    family_add_vector(list, DECODER_NORM1_W, "ln_1.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM1_B, "ln_1.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "mlp.fc_in.bias", d->ffn, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "mlp.fc_out.bias", h, ZINF_INIT_ZERO);
}

static int read_switches(const struct zinf_model_source *source, struct decoder *d)
{
    int code;
    d->parallel = d->one_norm = true;
    if ((code = family_read_activation(source, "activation_function", "gelu_new",
                                       &d->mlp.activation)) ||
        (code = family_read_dropout(source, "attn_pdrop", 0, &d->attention.dropout)) ||
        (code = family_read_dropout(source, "embd_pdrop", 0, &d->embedding_dropout)) ||
        (code = family_read_dropout(source, "resid_pdrop", 0, &d->mlp.residual_dropout)))
        return code;
    d->attention.residual_dropout = d->mlp.residual_dropout;
    return 0;
}

static int64_t usual_rotated(int64_t head_dim)
{
    return head_dim < 64 ? head_dim : 64;
}

static int read_rotation(struct zinf_graph *graph, const struct zinf_model_source *source,
                         struct decoder *d)
{
    static const char key[] = "rotary_dim";
    const int64_t dim = d->attention.head_dim;
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(source->config, key);
    int64_t rotated = item && cJSON_IsNull(item) ? 0 : usual_rotated(dim);
    int code = zinf_json_int(source->config, source->what, key, &rotated);
    if (!code && (rotated < 2 || rotated % 2 || rotated > dim))
        code = zinf_fail(-EINVAL,
                         "%s: %s is %lld; it must be even, and at most the %lld numbers of a head",
                         source->what, key, (long long)rotated, (long long)dim);
    const struct rope_source of = {.head_dim = dim,
                                   .positions = d->context,
                                   .theta = 1e4,
                                   .partial =
                                       rotated == dim ? 1 : ((double)rotated + 0.5) / (double)dim,
                                   .unscaled = true};
    if (!code)
        code = rope_read(graph, source, &of, &d->attention.rope, &d->context);
    d->attention.rope.interleaved = true;
    return code;
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {.table = "wte.weight",
                        .blocks = "h",
                        .final_w = "ln_f.weight",
                        .final_b = "ln_f.bias",
                        .head = "lm_head.weight",
                        .tile_bias = "lm_head.bias"};
    struct family_list list = {0};
    int code;
    if ((code = family_read_counts(source, &d)) || (code = read_switches(source, &d)) ||
        (code = family_read_norms(source, &d, ZINF_NORM_LAYER, "layer_norm_epsilon", 1e-5)) ||
        (code = family_read_init(source, &d, "initializer_range", 0.02)) ||
        (code = read_rotation(graph, source, &d)))
        return code;
    list.std = d.init_std;
    list_tensors(&list, &d);
    return family_finish(graph, facts, source, &d, &list, 50256);
}

/* transformers rotates 64 numbers of a head that has fewer, too, unless it is told how many. */
static int make_config(cJSON *config, const struct zinf_family *family,
                       const struct zinf_model_shape *shape)
{
    int code = family_make_config(config, family, shape);
    const double hidden = cJSON_GetNumberValue(cJSON_GetObjectItem(config, traits.keys.hidden));
    const double heads = cJSON_GetNumberValue(cJSON_GetObjectItem(config, traits.keys.heads));
    if (code)
        return code;
    const int64_t rotated = usual_rotated((int64_t)(hidden / heads));
    return family_add_numbers(config,
                              (struct family_number[]){{"rotary_dim", (double)rotated}, {NULL, 0}});
}

const struct zinf_family zinf_family_gptj = {
    .model_type = "gptj",
    .architecture = "GPTJForCausalLM",
    .prefix = "transformer.",
    .layers_key = "n_layer",
    .traits = &traits,
    .build = build,
    .make_config = make_config,
    /* buffers of old files */
    .ignored = {"*.attn.bias", "*.attn.masked_bias", "*.attn.embed_positions"},
};

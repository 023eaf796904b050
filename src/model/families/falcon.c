/*
 * family_falcon: Falcon (Almazrouei et al., arXiv 2311.16867). The 7b model has both parts of a
 * block beside each other behind one norm, and one key and value head; the new architecture (40b,
 * 180b) a norm each and grouped queries; the "rw" models are sequential, with ALiBi. The file has
 * queries, keys and values by key and value head.
 */
#include "model/families/family_decoder.h"
#include "model/rope.h"

#include <math.h>

#define FALCON_NEW "\"new_decoder_architecture\": true, \"num_ln_in_parallel_attn\": 2, "
#define FALCON_RW                                                                                  \
    "\"alibi\": true, \"multi_query\": false, \"parallel_attn\": false, \"bias\": true"

static const struct family_size sizes[] = {
    {"7b", {32, 4544, 71, 0, 0, 0, 65024, 2048}, NULL},
    {"40b", {60, 8192, 128, 8, 0, 0, 65024, 2048}, "{" FALCON_NEW "\"tie_word_embeddings\": true}"},
    {"180b",
     {80, 14848, 232, 8, 0, 0, 65024, 2048},
     "{" FALCON_NEW "\"tie_word_embeddings\": false}"},
    {"rw-1b",
     {24, 2048, 32, 0, 0, 0, 50304, 2048},
     "{" FALCON_RW ", \"bos_token_id\": 1, \"eos_token_id\": 2}"},
    {"rw-7b", {36, 4096, 64, 0, 0, 0, 65024, 2048}, "{" FALCON_RW "}"},
};
static const struct family_traits traits = {
    .keys = {"num_hidden_layers", "hidden_size", "num_attention_heads", "num_kv_heads", NULL,
             "ffn_hidden_size", "vocab_size", "max_position_embeddings"},
    .absent = {32, 4544, 71, 0, 0, 0, 65024, 2048},
    /* transformers drops the sum of both branches at once, and probabilities of some kinds only. */
    .only = "{\"hidden_dropout\": 0, \"attention_dropout\": 0}",
    .always =
        "{\"layer_norm_epsilon\": 1e-5, \"initializer_range\": 0.02, \"alibi\": false, "
        "\"new_decoder_architecture\": false, \"multi_query\": true, \"parallel_attn\": true, "
        "\"bias\": false, \"hidden_dropout\": 0, \"attention_dropout\": 0, "
        "\"bos_token_id\": 11, \"eos_token_id\": 11}",
    FAMILY_SIZES(sizes),
};

struct falcon {
    struct decoder d;
    bool alibi, grouped, multi_query, bias, two_norms;
};

static int read_bools(const struct zinf_model_source *source, struct falcon *l)
{
    const struct {
        const char *key;
        bool *out;
    } list[] = {
        {"alibi", &l->alibi},
        {"new_decoder_architecture", &l->grouped},
        {"multi_query", &l->multi_query},
        {"parallel_attn", &l->d.parallel},
        {"bias", &l->bias},
    };
    int code = 0;
    l->multi_query = l->d.parallel = true;
    for (size_t i = 0; !code && i < sizeof list / sizeof *list; i++)
        code = zinf_json_bool(source->config, source->what, list[i].key, list[i].out);
    return code;
}

static int read_switches(const struct zinf_model_source *source, struct falcon *l)
{
    struct attention_spec *a = &l->d.attention;
    bool tied = true;
    int64_t norms = 0;
    int code;
    if ((code = read_bools(source, l)) ||
        (code = family_read_activation(source, "activation", "gelu", &l->d.mlp.activation)) ||
        (code = zinf_json_int(source->config, source->what, "num_ln_in_parallel_attn", &norms)) ||
        (code = zinf_json_bool(source->config, source->what, "tie_word_embeddings", &tied)))
        return code;
    if (!norms)
        norms = l->grouped ? 2 : 1;
    if (norms < 1 || norms > 2 || (norms == 2 && !l->grouped))
        return zinf_fail(-ENOTSUP,
                         "%s: num_ln_in_parallel_attn %lld is not supported; it must be 1, or 2 "
                         "with new_decoder_architecture",
                         source->what, (long long)norms);
    if (l->grouped && !l->d.parallel)
        return zinf_fail(-ENOTSUP,
                         "%s: parallel_attn false with new_decoder_architecture is not supported",
                         source->what);
    if (!l->grouped)
        a->n_kv_heads = l->multi_query ? 1 : a->n_heads;
    l->two_norms = norms == 2 || !l->d.parallel;
    l->d.one_norm = !l->two_norms;
    l->d.head = tied ? NULL : "lm_head.weight";
    return 0;
}

/* Rotation, or slopes, which this family scales as it scales the scores. */
static int read_positions(struct zinf_graph *graph, const struct zinf_model_source *source,
                          struct falcon *l)
{
    struct attention_spec *a = &l->d.attention;
    const struct rope_source of = {
        .head_dim = a->head_dim, .positions = l->d.context, .theta = 1e4};
    return l->alibi ? family_make_slopes(graph, &l->d, 1 / sqrt((double)a->head_dim))
                    : rope_read(graph, source, &of, &a->rope, &l->d.context);
}

static void list_norms(struct family_list *list, const struct falcon *l)
{
    bool both = l->two_norms && l->d.parallel;
    int64_t h = l->d.hidden;
    family_add_vector(list, DECODER_NORM1_W, both ? "ln_attn.weight" : "input_layernorm.weight", h,
                      ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM1_B, both ? "ln_attn.bias" : "input_layernorm.bias", h,
                      ZINF_INIT_ZERO);
    if (!l->two_norms)
        return;
    family_add_vector(list, DECODER_NORM2_W,
                      both ? "ln_mlp.weight" : "post_attention_layernorm.weight", h, ZINF_INIT_ONE);
    family_add_vector(list, DECODER_NORM2_B, both ? "ln_mlp.bias" : "post_attention_layernorm.bias",
                      h, ZINF_INIT_ZERO);
}

static void list_tensors(struct family_list *list, const struct falcon *l)
{
    int64_t h = l->d.hidden, f = l->d.ffn, qkv = family_qkv_rows(&l->d);
    family_add_matrix(list, DECODER_QKV_W, "self_attention.query_key_value.weight", qkv, h);
    family_list_is_grouped(list);
    family_add_matrix(list, DECODER_PROJ_W, "self_attention.dense.weight", h, h);
    family_add_matrix(list, DECODER_UP_W, "mlp.dense_h_to_4h.weight", f, h);
    family_add_matrix(list, DECODER_DOWN_W, "mlp.dense_4h_to_h.weight", h, f);
    list_norms(list, l);
    if (!l->bias)
        return;
    family_add_vector(list, DECODER_QKV_B, "self_attention.query_key_value.bias", qkv,
                      ZINF_INIT_ZERO);
    family_list_is_grouped(list);
    family_add_vector(list, DECODER_PROJ_B, "self_attention.dense.bias", h, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_UP_B, "mlp.dense_h_to_4h.bias", f, ZINF_INIT_ZERO);
    family_add_vector(list, DECODER_DOWN_B, "mlp.dense_4h_to_h.bias", h, ZINF_INIT_ZERO);
}

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct falcon l = {.d = {.table = "word_embeddings.weight",
                             .blocks = "h",
                             .final_w = "ln_f.weight",
                             .final_b = "ln_f.bias"}};
    struct family_list list = {0};
    int code;
    if ((code = family_read_counts(source, &l.d)) || (code = read_switches(source, &l)) ||
        (code = family_read_norms(source, &l.d, ZINF_NORM_LAYER, "layer_norm_epsilon", 1e-5)) ||
        (code = family_read_init(source, &l.d, "initializer_range", 0.02)) ||
        (code = read_positions(graph, source, &l)))
        return code;
    list.std = l.d.init_std;
    list_tensors(&list, &l);
    return family_finish(graph, facts, source, &l.d, &list, 11);
}

const struct zinf_family zinf_family_falcon = {
    .model_type = "falcon",
    .architecture = "FalconForCausalLM",
    .prefix = "transformer.",
    .layers_key = "num_hidden_layers",
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignored = {"lm_head.weight"},
};

/*
 * family_gemma3_text: the text models of Gemma 3 (Gemma Team, arXiv 2503.19786): norms of every
 * query and key head in place of the soft cap of scores; five blocks with a window, then one
 * without, each kind with its own base of the rotation.
 */
#include "model/families/gemma.h"
#include "model/rope.h"

static const struct family_size sizes[] = {
    {"1b", {26, 1152, 4, 1, 256, 6912, 262144, 32768}, NULL},
    {"270m", {18, 640, 4, 1, 256, 2048, 262144, 32768}, NULL},
};
static const struct family_traits traits = {
    .keys = ROTARY_KEYS,
    .absent = {26, 2304, 8, 4, 256, 9216, 262208, 131072},
    /* Its class in transformers reads the cap of scores and does nothing with it. */
    .only = "{\"use_bidirectional_attention\": false, \"attn_logit_softcapping\": null}",
    .always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"rope_theta\": 1000000.0, "
              "\"rope_local_base_freq\": 10000.0, \"query_pre_attn_scalar\": 256, "
              "\"hidden_activation\": \"gelu_pytorch_tanh\", \"sliding_window\": 512, "
              "\"sliding_window_pattern\": 6, \"bos_token_id\": 2, \"eos_token_id\": 1, "
              "\"pad_token_id\": 0}",
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {0};
    struct gemma_block block = {.sandwich = true, .head_norms = true};
    struct family_list list = {0};
    struct rope_spec windowed;
    struct rope_source local = {.theta = 1e4};
    int64_t pattern = 6;
    int code;
    if ((code = gemma_read(source, &d, &block)) || (code = gemma_read_scale(source, &d)) ||
        (code = gemma_read_cap(source, "final_logit_softcapping", 0, &d.head_softcap)) ||
        (code = family_read_window(source, &d, 4096)) ||
        (code = zinf_json_int(source->config, source->what, "sliding_window_pattern", &pattern)) ||
        (code = family_read_layer_types(graph, source, &d, pattern)))
        return code;
    local.head_dim = d.attention.head_dim;
    local.positions = d.context;
    if ((code = rotary_read_windowed_rope(graph, source, local, "rope_local_base_freq", &windowed)))
        return code;
    const struct rope_source of = {.head_dim = d.attention.head_dim,
                                   .positions = d.context,
                                   .theta = 1e6,
                                   .layers = "full_attention"};
    if ((code = rope_read(graph, source, &of, &d.attention.rope, &d.context)))
        return code;
    d.windowed_rope = &windowed;
    gemma_list(&list, &d, &block);
    return family_finish(graph, facts, source, &d, &list, 1);
}

const struct zinf_family zinf_family_gemma3_text = {
    .model_type = "gemma3_text",
    .architecture = "Gemma3ForCausalLM",
    .prefix = ROTARY_PREFIX,
    .layers_key = ROTARY_LAYERS_KEY,
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignores = rotary_ignores,
};

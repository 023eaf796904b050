/*
 * family_gemma2: Gemma 2 (Gemma Team, arXiv 2408.00118): norms in front of the parts and behind
 * them, soft caps of scores and logits, a window in every second block.
 */
#include "model/families/gemma.h"

static const struct family_size sizes[] = {
    {"2b", {26, 2304, 8, 4, 256, 9216, 256000, 8192}, "{\"query_pre_attn_scalar\": 256}"},
    {"9b", {42, 3584, 16, 8, 256, 14336, 256000, 8192}, "{\"query_pre_attn_scalar\": 256}"},
    {"27b", {46, 4608, 32, 16, 128, 36864, 256000, 8192}, "{\"query_pre_attn_scalar\": 144}"},
};
static const struct family_traits traits = {
    .keys = ROTARY_KEYS,
    .absent = {26, 2304, 8, 4, 256, 9216, 256000, 8192},
    .only = "{\"use_bidirectional_attention\": false}",
    .always = "{\"rms_norm_eps\": 1e-6, \"initializer_range\": 0.02, \"rope_theta\": 10000.0, "
              "\"hidden_activation\": \"gelu_pytorch_tanh\", \"sliding_window\": 4096, "
              "\"attn_logit_softcapping\": 50.0, \"final_logit_softcapping\": 30.0, "
              "\"bos_token_id\": 2, \"eos_token_id\": 1, \"pad_token_id\": 0}",
    .sizes = sizes,
    .n_sizes = sizeof sizes / sizeof *sizes,
};

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    struct decoder d = {0};
    struct gemma_block block = {.sandwich = true};
    struct family_list list = {0};
    int code;
    if ((code = gemma_read(source, &d, &block)) || (code = gemma_read_scale(source, &d)) ||
        (code = gemma_read_cap(source, "attn_logit_softcapping", 50, &d.attention.softcap)) ||
        (code = gemma_read_cap(source, "final_logit_softcapping", 30, &d.head_softcap)) ||
        (code = family_read_window(source, &d, 4096)) ||
        (code = family_read_layer_types(graph, source, &d, 2)))
        return code;
    if ((code = rotary_read_rope(graph, source, &d)))
        return code;
    gemma_list(&list, &d, &block);
    return family_finish(graph, facts, source, &d, &list, 1);
}

const struct zinf_family zinf_family_gemma2 = {
    .model_type = "gemma2",
    .architecture = "Gemma2ForCausalLM",
    .prefix = ROTARY_PREFIX,
    .layers_key = ROTARY_LAYERS_KEY,
    .traits = &traits,
    .build = build,
    .make_config = family_make_config,
    .ignores = rotary_ignores,
};

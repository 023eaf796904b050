/*
 * family_blenderbot: Blenderbot (Roller et al., arXiv 2004.13637): BART's layers with their norms
 * in front of the parts, and learned positions that begin at the first row of their tables.
 */
#include "model/families/bart.h"

static const struct family_size sizes[] = {
    {"400m-distill", {2, 1280, 32, 0, 0, 5120, 8008, 128}, "{\"decoder_layers\": 12}"},
    {"1b-distill", {2, 2560, 32, 0, 0, 10240, 8008, 128}, "{\"decoder_layers\": 12}"},
    {"3b", {2, 2560, 32, 0, 0, 10240, 8008, 128}, "{\"decoder_layers\": 24}"},
};
static const struct family_traits traits = {
    .keys = BART_KEYS,
    .absent = {2, 2560, 32, 0, 0, 10240, 8008, 128},
    .only = BART_ONLY,
    .always = "{\"is_encoder_decoder\": true, \"activation_function\": \"gelu\", \"dropout\": 0.1, "
              "\"attention_dropout\": 0, \"activation_dropout\": 0, \"init_std\": 0.02, "
              "\"scale_embedding\": true, \"bos_token_id\": 1, \"pad_token_id\": 0, "
              "\"eos_token_id\": 2, \"decoder_start_token_id\": 1}",
    FAMILY_SIZES(sizes),
};

static int build(struct zinf_graph *graph, struct zinf_model_facts *facts,
                 const struct zinf_model_source *source)
{
    static const struct bart_style style = {.decoder_layers = 24};
    return bart_build(graph, facts, source, &style);
}

const struct zinf_family zinf_family_blenderbot = {
    .model_type = "blenderbot",
    .architecture = "BlenderbotForConditionalGeneration",
    .prefix = "model.",
    .layers_key = "encoder_layers",
    .traits = &traits,
    .build = build,
    .make_config = bart_make_config,
    .ignored = {BART_IGNORED},
};

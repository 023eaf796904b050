/*
 * Families: the exact parameter counts of every published size, smaller shapes of each, what is
 * refused by the name of its key, windows, rotations and slopes by layer and head.
 */
#include "model/tensors.h"
#include "model_texts.h"

#include <fnmatch.h>

/* ---- sizes ---- */

static const struct {
    const char *arch, *size;
    uint64_t n_params;
} published[] = {
    {"gpt2", "small", 124439808},
    {"gpt2", "medium", 354823168},
    {"gpt2", "large", 774030080},
    {"gpt2", "xl", 1557611200},
    {"llama", "1-7b", 6738415616},
    {"llama", "1-13b", 13015864320},
    {"llama", "1-33b", 32528943616},
    {"llama", "1-65b", 65285660672},
    {"llama", "7b", 6738415616},
    {"llama", "13b", 13015864320},
    {"llama", "70b", 68976648192},
    {"llama", "3-8b", 8030261248},
    {"llama", "3-70b", 70553706496},
    {"llama", "3.1-8b", 8030261248},
    {"llama", "3.1-70b", 70553706496},
    {"llama", "3.1-405b", 405853388800},
    {"llama", "3.2-1b", 1235814400},
    {"llama", "3.2-3b", 3212749824},
    {"mistral", "7b", 7241732096},
    {"mistral", "7b-v0.2", 7241732096},
    {"mistral", "7b-v0.3", 7248023552},
    {"qwen2", "0.5b", 494032768},
    {"qwen2", "1.5b", 1543714304},
    {"qwen2", "3b", 3085938688},
    {"qwen2", "7b", 7615616512},
    {"qwen2", "14b", 14770033664},
    {"qwen2", "32b", 32763876352},
    {"qwen2", "72b", 72706203648},
    {"qwen3", "0.6b", 596049920},
    {"qwen3", "1.7b", 1720574976},
    {"qwen3", "4b", 4022468096},
    {"qwen3", "8b", 8190735360},
    {"qwen3", "14b", 14768307200},
    {"qwen3", "32b", 32762123264},
    {"mixtral", "8x7b", 46702792704},
    {"mixtral", "8x22b", 140630071296},
    {"qwen2_moe", "1.5-a2.7b", 14315784192},
    {"qwen2_moe", "57b-a14b", 57408658944},
    {"qwen3_moe", "30b-a3b", 30532122624},
    {"qwen3_moe", "235b-a22b", 235093634560},
    {"phi3", "mini", 3821079552},
    {"phi3", "medium", 13960238080},
    {"phi3", "4-mini", 3836021760},
    {"phi3", "4-14b", 14659507200},
    {"gpt_neox", "70m", 70426624},
    {"gpt_neox", "160m", 162322944},
    {"gpt_neox", "410m", 405334016},
    {"gpt_neox", "1b", 1011781632},
    {"gpt_neox", "1.4b", 1414647808},
    {"gpt_neox", "2.8b", 2775208960},
    {"gpt_neox", "6.9b", 6857302016},
    {"gpt_neox", "12b", 11846072320},
    {"gpt_neox", "20b", 20554567680},
    {"starcoder2", "3b", 3030371328},
    {"starcoder2", "7b", 7173923840},
    {"starcoder2", "15b", 15957889024},
    {"olmo2", "1b", 1484916736},
    {"olmo2", "7b", 7298617344},
    {"olmo2", "13b", 13716198400},
    {"olmo2", "32b", 32234279936},
    {"opt", "125m", 125239296},
    {"opt", "1.3b", 1315758080},
    {"opt", "2.7b", 2651596800},
    {"opt", "6.7b", 6658473984},
    {"opt", "13b", 12853473280},
    {"opt", "30b", 29974540288},
    {"opt", "66b", 65719701504},
    {"falcon", "7b", 6921720704},
    {"falcon", "40b", 41303293952},
    {"falcon", "180b", 179522565120},
    {"falcon", "rw-1b", 1311625216},
    {"falcon", "rw-7b", 7516020736},
    {"chatglm", "6b", 6243584000},
    {"chatglm", "6b-32k", 6243584000},
    {"bert", "base", 109483778},
    {"bert", "large", 335143938},
    {"roberta", "base", 124647170},
    {"roberta", "large", 355361794},
    {"xlm-roberta", "base", 278045186},
    {"xlm-roberta", "large", 559892482},
    {"camembert", "base", 110623490},
    {"deberta-v2", "v3-xsmall", 70830722},
    {"deberta-v2", "v3-small", 141896450},
    {"deberta-v2", "v3-base", 184423682},
    {"deberta-v2", "v3-large", 435063810},
    {"deberta-v2", "v2-xlarge", 886957058},
    {"deberta-v2", "v2-xxlarge", 1566913538},
    {"bart", "base", 139420416},
    {"bart", "large", 406291456},
    {"blenderbot", "400m-distill", 364802560},
    {"blenderbot", "3b", 2696268800},
    {"t5", "small", 76961152},
    {"t5", "base", 247577856},
    {"t5", "large", 783150080},
    {"t5", "xl", 2849757184},
    {"t5", "xxl", 11135332352},
    {"t5", "v1-small", 60506624},
    {"t5", "v1-base", 222903552},
    {"t5", "v1-large", 737668096},
    {"t5", "v1-3b", 2851598336},
    {"t5", "v1-11b", 11307321344},
    {"bloom", "560m", 559214592},
    {"bloom", "1b1", 1065314304},
    {"bloom", "1b7", 1722408960},
    {"bloom", "3b", 3002557440},
    {"bloom", "7b1", 7069016064},
    {"bloom", "176b", 176247271424},
    {"baichuan", "2-7b", 7505973248},
    {"baichuan", "2-13b", 13896668160},
    {"baichuan", "1-7b", 7000559616},
    {"baichuan", "1-13b", 13264901120},
    {"gemma", "2b", 2506172416},
    {"gemma", "7b", 8537680896},
    {"gemma2", "2b", 2614341888},
    {"gemma2", "9b", 9241705984},
    {"gemma2", "27b", 27227128320},
    {"gemma3_text", "270m", 268098176},
    {"gemma3_text", "1b", 999885952},
    {"gemma4_text", "31b", 30697345280},
    {"llama4_text", "scout", 107769861120},
    {"llama4_text", "maverick", 400711848960},
    {"apertus", "8b", 8053338176},
    {"apertus", "70b", 70599864480},
    {"olmo3", "7b", 7298011136},
    {"olmo3", "32b", 32233522176},
    {"smollm3", "3b", 3075098624},
    {"granite", "2b", 2533531648},
    {"granitemoehybrid", "4.0-micro", 3402836480},
    {"granitemoehybrid", "4.0-h-tiny", 6939037248},
    {"ministral3", "3b", 3429006336},
    {"ministral3", "8b", 8489553920},
    {"ministral3", "14b", 13506073600},
    {"granite", "8b", 8170848256},
    {"seed_oss", "36b", 36151104512},
    {"exaone4", "1.2b", 1279391488},
    {"exaone4", "32b", 32003216384},
    {"glm4", "9b", 9400094720},
    {"glm4", "32b", 32566081536},
    {"cohere", "aya-8b", 8028033024},
    {"cohere", "r-35b", 34980831232},
    {"cohere2", "r7b", 8028033024},
    {"cohere2", "a-111b", 111057580032},
    {"ernie4_5", "0.3b", 360748032},
    {"gpt_bigcode", "1b", 1137207296},
    {"gpt_bigcode", "3b", 3043311104},
    {"gpt_bigcode", "7b", 7327263232},
    {"gpt_bigcode", "15b", 15517456384},
    {"gpt_bigcode", "santacoder", 1124886528},
    {"gptj", "6b", 6050882784},
    {"internlm2", "1.8b", 1889110016},
    {"internlm2", "7b", 7737708544},
    {"internlm2", "20b", 19861149696},
    {"stablelm", "3b", 2795443200},
    {"stablelm", "1.6b", 1644515328},
    {"nemotron", "4b", 4190509056},
    {"nemotron", "15b", 15628775424},
    {"olmoe", "7b-a1b", 6919161856},
    {"gpt_oss", "20b", 20914757184},
    {"glm4_moe", "4.5-air", 106852245504},
    {"glm4_moe", "4.5", 352797814784},
    {"glm4_moe_lite", "4.7-flash", 29943390976},
    {"deepseek_v2", "lite", 15706484224},
    {"deepseek_v2", "236b", 235741434880},
    {"deepseek_v3", "671b", 671026404352},
    {"deepseek_v3", "moonlight-16b", 15960108544},
    {"granitemoe", "1b-a400m", 1334628352},
    {"granitemoe", "3b-a800m", 3298793472},
    {"gpt_oss", "120b", 116829156672},
    {"qwen3_next", "80b-a3b", 79674391296},
    {"qwen3_5_text", "9b", 8953803264},
    {"nemotron_h", "8b", 8100852736},
    {"falcon_h1", "0.5b", 521411104},
    {"lfm2", "350m", 354483968},
    {"lfm2", "1.2b", 1170340608},
    {"olmo_hybrid", "7b", 7430870688},
    {"qwen3_5_moe_text", "35b-a3b", 34660610688},
};

static void test_published_parameter_counts(void)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct zinf_file_map *map = NULL;
        struct zinf_model *model = model_of(
            &(struct zinf_model_shape){.arch = published[i].arch, .size = published[i].size});
        CHECKF(zinf_model_n_trained(model) == published[i].n_params, "%s %s: %llu",
               published[i].arch, published[i].size,
               (unsigned long long)zinf_model_n_trained(model));
        CHECKF(!zinf_file_map_create(&map, zinf_model_graph(model)), "%s", zinf_error());
        zinf_file_map_destroy(map);
        zinf_model_close(model);
    }
}

static void test_smaller_shapes(void)
{
    static const char *const families[] = {"gpt2",
                                           "llama",
                                           "llama4_text",
                                           "mistral",
                                           "qwen2",
                                           "qwen3",
                                           "phi3",
                                           "gpt_neox",
                                           "starcoder2",
                                           "olmo2",
                                           "opt",
                                           "falcon",
                                           "chatglm",
                                           "bloom",
                                           "baichuan",
                                           "gemma",
                                           "gemma2",
                                           "gemma3_text",
                                           "gemma4_text",
                                           "mixtral",
                                           "qwen2_moe",
                                           "qwen3_moe",
                                           "deberta-v2",
                                           "olmo3",
                                           "smollm3",
                                           "granite",
                                           "seed_oss",
                                           "exaone4",
                                           "hunyuan_v1_dense",
                                           "glm",
                                           "glm4",
                                           "cohere",
                                           "cohere2",
                                           "ernie4_5",
                                           "internlm2",
                                           "stablelm",
                                           "nemotron",
                                           "olmoe",
                                           "gpt_oss",
                                           "glm4_moe",
                                           "granitemoe",
                                           "glm4_moe_lite",
                                           "deepseek_v2",
                                           "deepseek_v3",
                                           "kimi_k2",
                                           "gpt_bigcode",
                                           "granitemoehybrid",
                                           "ministral3",
                                           "qwen3_next",
                                           "qwen3_5_text",
                                           "qwen3_5_moe_text",
                                           "bamba",
                                           "nemotron_h",
                                           "falcon_h1",
                                           "olmo_hybrid",
                                           "lfm2",
                                           "apertus"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct zinf_model *model = model_of(&(struct zinf_model_shape){.arch = families[i],
                                                                       .layers = 3,
                                                                       .hidden = 96,
                                                                       .heads = 6,
                                                                       .vocab = 257,
                                                                       .context = 64});
        const struct zinf_model_facts *f = zinf_model_facts(model);
        CHECK(f->layers == 3 && f->hidden == 96 && f->heads == 6 && f->vocab == 257);
        CHECK(f->context >= 64 && f->end_of_text == 256 && !strcmp(f->family, families[i]));
        CHECK(!zinf_model_set_layers(&model, 5) && zinf_model_facts(model)->layers == 5);
        zinf_model_close(model);
    }
    /* Heads of a mixer follow the width; those of attention are the caller's to choose. */
    struct zinf_model_shape narrow = {
        .arch = "granitemoehybrid", .size = "4.0-h-tiny", .hidden = 64, .heads = 4, .vocab = 257};
    struct zinf_model *model = model_of(&narrow);
    CHECK(zinf_model_facts(model)->hidden == 64);
    zinf_model_close(model);
    narrow.heads = 0;
    cJSON *config = NULL;
    CHECK(zinf_model_make_config(&narrow, ZINF_DTYPE_F32, &config) == -EINVAL);
    CHECKF(strstr(zinf_error(), "(--heads) to a divisor of it, such as 8") &&
               strstr(zinf_error(), "a multiple of them, such as 72"),
           "%s", zinf_error());
    CHECK(zinf_model_make_config(&(struct zinf_model_shape){.arch = "llama", .size = "huge"},
                                 ZINF_DTYPE_F32, &config) == -EINVAL);
    CHECKF(strstr(zinf_error(), "7b") != NULL, "%s", zinf_error());
}

/* ---- configurations ---- */

static void check_refused(const char *text, const char *says)
{
    struct zinf_model *model = model_from(text);
    CHECKF(!model, "%s is accepted", text);
    CHECKF(strstr(zinf_error(), says) != NULL, "%s: %s", text, zinf_error());
    zinf_model_close(model);
}

static void test_refused_configurations(void)
{
    check_refused("{\"model_type\": \"elsewhere\"}", "supported: gpt2, llama");
    check_refused("{" SMALL "\"head_dim\": 7}", "even");
    check_refused("{" SMALL "\"head_dim\": 1024}", "512");
    check_refused("{" SMALL "\"num_key_value_heads\": 3}", "key and value heads is 3");
    check_refused("{" SMALL "\"hidden_act\": \"swiglu\"}", "hidden_act");
    check_refused("{" SMALL "\"rms_norm_eps\": 0}", "rms_norm_eps");
    check_refused("{" SMALL "\"attention_dropout\": 1}", "dropout");
    check_refused("{" SMALL "\"rope_theta\": -1}", "rope_theta");
    check_refused("{" SMALL "\"rope_scaling\": 3}", "rope_scaling");
    check_refused("{" SMALL "\"rope_scaling\": {\"type\": \"longrope\"}}", "short_factor");
    check_refused("{" SMALL "\"rope_scaling\": {\"type\": \"ntk\"}}", "\"ntk\"");
    check_refused("{" SMALL "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.1}}", "factor");
    check_refused("{" SMALL "\"rope_parameters\": {\"full_attention\": {}}}", "full_attention");
    check_refused("{\"model_type\": \"llama\", \"hidden_size\": 30, \"num_attention_heads\": 4}",
                  "head_dim");
    check_refused("{\"model_type\": \"llama\", \"num_hidden_layers\": 1e9}", "number of layers");
    check_refused("{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"layer_types\": []}",
                  "layer_types");
    check_refused("{\"model_type\": \"mistral\", \"sliding_window\": -1}", "sliding_window");
    check_refused("{\"model_type\": \"lfm2\", \"layer_types\": [\"short_conv\"]}",
                  "\"short_conv\", which is no kind of layer; words are conv");
    check_refused("{\"model_type\": \"olmo_hybrid\", \"layer_types\": [null]}",
                  "null, which is no");
    check_refused("{\"model_type\": \"lfm2\", \"full_attn_idxs\": 2}", "numbers of layers");
    check_refused("{\"model_type\": \"lfm2\", \"full_attn_idxs\": [1, -2]}", "numbers of layers");
    check_refused("{\"model_type\": \"nemotron_h\", \"layers_block_type\": \"ME*-\"}",
                  "layers_block_type must be a list");
    check_refused("{\"model_type\": \"nemotron_h\", \"hybrid_override_pattern\": [\"M\"]}",
                  "hybrid_override_pattern must be a text");
    check_refused("{\"model_type\": \"falcon_h1\", \"mamba_d_head\": \"all\"}",
                  "mamba_d_head must be a number or \"auto\"");
    check_refused("{\"model_type\": \"gpt2\", \"n_head\": 7}", "n_head");
    check_refused("{\"model_type\": \"gpt2\", \"tie_word_embeddings\": false}",
                  "tie_word_embeddings");
}

/* What a family does not do is refused by the key's name, whatever else is there. */
static void test_refused_switches(void)
{
    static const struct {
        const char *family, *switches, *says;
    } list[] = {
        {"phi3", "\"embd_pdrop\": 0.1", "embd_pdrop"},
        {"phi3", "\"sliding_window\": 0", "sliding_window is 0"},
        {"starcoder2", "\"sliding_window\": 0", "sliding_window is 0"},
        {"gemma2", "\"sliding_window\": 0", "sliding_window is 0"},
        {"mistral", "\"sliding_window\": 0", "sliding_window is 0"},
        {"mixtral", "\"sliding_window\": 0", "sliding_window is 0"},
        {"qwen2", "\"use_sliding_window\": true, \"sliding_window\": 0", "sliding_window is 0"},
        {"qwen2_moe", "\"use_sliding_window\": true, \"sliding_window\": 0", "sliding_window is 0"},
        {"qwen2_moe", "\"shared_expert_intermediate_size\": 0", "shared expert"},
        {"qwen2_moe", "\"num_experts_per_tok\": 61", "experts of a token is 61"},
        {"mixtral", "\"num_local_experts\": 0", "num_local_experts"},
        {"mixtral", "\"router_jitter_noise\": 0.1", "router_jitter_noise"},
        {"mixtral", "\"num_key_value_heads\": 5", "5 key and value heads"},
        {"phi3", "\"num_key_value_heads\": 5", "5 key and value heads"},
        {"opt", "\"num_attention_heads\": 7", "num_attention_heads"},
        {"bloom", "\"n_head\": 7", "n_head"},
        {"falcon", "\"num_attention_heads\": 70", "num_attention_heads"},
        {"phi3", "\"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1, 0]}",
         "short_factor"},
        {"phi3", "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}", "linear"},
        {"gpt_neox", "\"num_attention_heads\": 7", "num_attention_heads"},
        {"gpt_neox", "\"hidden_act\": \"mish\"", "hidden_act"},
        {"starcoder2", "\"norm_type\": \"rms\"", "norm_type"},
        {"starcoder2", "\"sliding_window\": -2", "sliding_window"},
        {"olmo2", "\"clip_qkv\": 8", "clip_qkv"},
        {"olmo3", "\"sliding_window\": 0", "sliding_window is 0"},
        {"smollm3", "\"no_rope_layers\": [1]", "no_rope_layers"},
        {"granitemoehybrid", "\"num_experts_per_tok\": 9", "experts of a token is 9"},
        {"granitemoehybrid",
         "\"num_local_experts\": 0, \"layer_types\": [\"mamba\", \"attention\"]", "layer_types"},
        {"granitemoehybrid", "\"num_local_experts\": 0, \"mamba_n_heads\": 60", "60 heads"},
        {"granitemoehybrid", "\"num_local_experts\": 0, \"time_step_limit\": [2, 1]",
         "time_step_limit"},
        {"granitemoehybrid", "\"position_embedding_type\": \"alibi\"", "position_embedding_type"},
        {"ministral3", "\"rope_parameters\": null", "rope_parameters"},
        {"smollm3", "\"no_rope_layer_interval\": 0", "no_rope_layer_interval"},
        {"bamba", "\"z_loss_coefficient\": 0.1", "z_loss_coefficient"},
        {"qwen3_next", "\"full_attention_interval\": 0", "full_attention_interval"},
        {"nemotron_h", "\"hybrid_override_pattern\": \"MX\"", "\"X\""},
        {"nemotron_h", "\"layers_block_type\": [\"mamba\", \"conv\"]", "\"conv\""},
        {"nemotron_h", "\"moe_latent_size\": 64", "moe_latent_size"},
        {"nemotron_h", "\"time_step_min\": -1", "time_step_min"},
        {"falcon_h1", "\"mamba_d_ssm\": 1000", "mamba_d_ssm, 1000"},
        {"lfm2", "\"layer_types\": [\"conv\", \"full_attention\"]", "layer_types"},
        {"lfm2", "\"full_attn_idxs\": [0], \"conv_L_cache\": 9", "conv_L_cache"},
        {"lfm2", "\"block_multiple_of\": 0", "block_multiple_of"},
        {"olmo_hybrid", "\"linear_num_value_heads\": 45", "45 value heads"},
        {"falcon_h1", "\"key_multiplier\": 0", "key_multiplier"},
        {"falcon_h1", "\"ssm_multipliers\": [1, 1]", "ssm_multipliers"},
        {"falcon_h1", "\"ssm_in_multiplier\": 2, \"mamba_proj_bias\": true", "mamba_proj_bias"},
        {"qwen3_next", "\"linear_num_value_heads\": 24", "24 value heads"},
        {"qwen3_5_text", "\"linear_key_head_dim\": 512", "key heads of size 512"},
        {"qwen3_5_text", "\"linear_conv_kernel_dim\": 9", "width 9"},
        {"qwen3_5_text", "\"layer_types\": [\"linear_attention\", \"\"]", "layer_types"},
        {"granite", "\"residual_multiplier\": 0", "residual_multiplier"},
        {"granite", "\"logits_scaling\": -1", "logits_scaling"},
        {"exaone4", "\"sliding_window_pattern\": 0", "pattern"},
        {"cohere", "\"use_qk_norm\": true", "use_qk_norm"},
        {"cohere2", "\"use_parallel_block\": false", "use_parallel_block"},
        {"gpt_bigcode", "\"add_cross_attention\": true", "add_cross_attention"},
        {"gptj", "\"rotary_dim\": 258", "rotary_dim is 258"},
        {"gptj", "\"rotary_dim\": null", "rotary_dim is 0"},
        {"gptj", "\"tie_word_embeddings\": true", "tie_word_embeddings"},
        {"internlm2", "\"bias\": true", "bias"},
        {"stablelm", "\"qk_layernorm\": true", "qk_layernorm"},
        {"stablelm", "\"hidden_dropout\": 0.1", "hidden_dropout"},
        {"olmoe", "\"clip_qkv\": 8", "clip_qkv"},
        {"gpt_oss", "\"swiglu_limit\": 6", "swiglu_limit"},
        {"glm4_moe", "\"head_dim\": 128, \"n_group\": 3", "groups"},
        {"deepseek_v3", "\"qk_rope_head_dim\": 3", "latent"},
        {"deepseek_v2", "\"q_lora_rank\": null, \"attention_bias\": true", "attention_bias"},
        {"glm4_moe_lite", "\"mlp_layer_types\": [\"dense\"]", "mlp_layer_types"},
        {"opt", "\"do_layer_norm_before\": false", "do_layer_norm_before"},
        {"opt", "\"word_embed_proj_dim\": 512", "word_embed_proj_dim"},
        {"opt", "\"_remove_final_layer_norm\": true", "_remove_final_layer_norm"},
        {"opt", "\"layer_norm_elementwise_affine\": false", "layer_norm_elementwise_affine"},
        {"opt", "\"layerdrop\": 0.1", "layerdrop"},
        {"falcon", "\"hidden_dropout\": 0.1", "hidden_dropout"},
        {"falcon", "\"attention_dropout\": 0.1", "attention_dropout"},
        {"falcon", "\"num_ln_in_parallel_attn\": 2", "num_ln_in_parallel_attn"},
        {"falcon", "\"new_decoder_architecture\": true, \"parallel_attn\": false", "parallel_attn"},
        {"chatglm", "\"add_bias_linear\": true", "add_bias_linear"},
        {"chatglm", "\"rmsnorm\": false", "rmsnorm"},
        {"chatglm", "\"post_layer_norm\": false", "post_layer_norm"},
        {"chatglm", "\"pre_seq_len\": 128", "pre_seq_len"},
        {"chatglm", "\"quantization_bit\": 4", "quantization_bit"},
        {"chatglm", "\"apply_residual_connection_post_layernorm\": true",
         "apply_residual_connection_post_layernorm"},
        {"bloom", "\"apply_residual_connection_post_layernorm\": true",
         "apply_residual_connection_post_layernorm"},
        {"bloom", "\"tie_word_embeddings\": false", "tie_word_embeddings"},
        {"baichuan", "\"z_loss_weight\": 1e-4", "z_loss_weight"},
        {"gemma", "\"use_bidirectional_attention\": true", "use_bidirectional_attention"},
        {"gemma2", "\"attn_logit_softcapping\": 0", "attn_logit_softcapping"},
        {"gemma2", "\"query_pre_attn_scalar\": 0", "query_pre_attn_scalar"},
        {"gemma2", "\"layer_types\": [\"chunked_attention\"], \"num_hidden_layers\": 1", "chunked"},
        {"gemma3_text", "\"attn_logit_softcapping\": 50", "attn_logit_softcapping"},
        {"gemma3_text", "\"sliding_window_pattern\": 0", "pattern"},
        {"gemma3_text", "\"use_bidirectional_attention\": true", "use_bidirectional_attention"},
        {"gemma4_text", "\"use_bidirectional_attention\": \"all\"", "use_bidirectional_attention"},
        {"gemma4_text", "\"num_kv_shared_layers\": 30", "num_kv_shared_layers is 30"},
        {"gemma4_text", "\"num_kv_shared_layers\": 27", "layer 5 could take"},
        {"gemma4_text", "\"vocab_size_per_layer_input\": 61", "vocab_size_per_layer_input 61"},
        {"gemma4_text", "\"enable_moe_block\": true", "num_experts is 0"},
        {"llama4_text", "\"interleave_moe_layer_step\": 0", "interleave_moe_layer_step"},
        {"llama4_text", "\"moe_layers\": 3", "moe_layers a list"},
        {"llama4_text", "\"floor_scale\": 0", "floor_scale 0"},
        {"apertus", "\"hidden_act\": \"xielu2\"", "hidden_act"},
        {"llama4_text", "\"attention_chunk_size\": 0", "attention_chunk_size is 0"},
        {"gemma4_text", "\"per_layer_config\": {\"0\": {}}", "per_layer_config"},
        {"gemma3", "\"hidden_size\": 64", "text_config"},
        {"gemma3", "\"text_config\": {\"model_type\": \"qwen2\"}", "qwen2"},
        {"gemma3", "\"text_config\": {\"sliding_window_pattern\": 0}", "pattern"},
        {"mistral3", "\"architectures\": [\"Mistral3Model\"], \"text_config\": {}", "embeddings"},
        {"deberta-v2", "\"conv_kernel_size\": 4", "conv_kernel_size is 4"},
        {"deberta-v2", "\"conv_groups\": 2", "conv_groups"},
        {"deberta-v2", "\"conv_act\": \"mish\"", "conv_act"},
        {"deberta-v2", "\"pooler_hidden_size\": 5", "pooler_hidden_size is 5"},
        {"deberta-v2", "\"attention_head_size\": 5", "attention_head_size 5"},
        {"deberta-v2", "\"norm_rel_ebd\": \"layer_norm\"", "norm_rel_ebd without"},
        {"deberta-v2", "\"relative_attention\": true", "without c2p or p2c"},
        {"deberta-v2", "\"relative_attention\": true, \"max_relative_positions\": 513",
         "max_relative_positions"},
        {"deberta-v2", "\"relative_attention\": true, \"position_buckets\": 513",
         "position_buckets"},
        {"deberta-v2",
         "\"relative_attention\": true, \"position_buckets\": 32, \"max_relative_positions\": 17",
         "at least 18"},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char text[512];
        snprintf(text, sizeof text, "{\"model_type\": \"%s\", %s}", list[i].family,
                 list[i].switches);
        check_refused(text, list[i].says);
    }
}

/* Text models of published folders, and what stands in front of their section. */
static void test_composite_folders(void)
{
    static const char gemma[] =
        "{\"model_type\": \"gemma3\", \"hidden_size\": 8, \"text_config\": {\"hidden_size\": "
        "2560, \"intermediate_size\": 10240, \"num_hidden_layers\": 34}}";
    static const char mistral[] =
        "{\"model_type\": \"mistral3\", \"tie_word_embeddings\": true, \"text_config\": {"
        "\"model_type\": \"ministral3\", \"hidden_size\": 3072, \"intermediate_size\": 9216, "
        "\"num_hidden_layers\": 26, \"rope_parameters\": {\"rope_type\": \"default\"}}}";
    struct zinf_model *model = model_from(gemma);
    CHECKF(model && zinf_model_n_params(model) == 3880263168, "%s", zinf_error());
    CHECK(!zinf_model_set_layers(&model, 2) && zinf_model_facts(model)->layers == 2);
    zinf_model_close(model);
    model = model_from(mistral);
    CHECKF(model && zinf_model_n_params(model) == 3429006336, "%s", zinf_error());
    zinf_model_close(model);
}

/* Windows by layer, and dropout that is replaced. */
static void test_windows_and_dropout(void)
{
    struct zinf_model *model =
        model_from("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 3, \"use_sliding_window\": "
                   "true, \"sliding_window\": 9, \"max_window_layers\": 2}");
    CHECKF(model != NULL, "%s", zinf_error());
    CHECK(!zinf_model_set_dropout(model, 0.25f));
    for (uint32_t i = 0; i < 3; i++) {
        const struct block_spec *s = zinf_model_graph(model)->stages[1 + i].spec;
        CHECK(s->attention.window == (i == 2 ? 9 : 0) && s->attention.dropout == 0.25f);
    }
    zinf_model_close(model);
    model = model_from("{\"model_type\": \"mistral\", \"num_hidden_layers\": 1}");
    CHECK(model && attention_of(model).window == 4096);
    zinf_model_close(model);
    model = model_from("{\"model_type\": \"mistral\", \"sliding_window\": null}");
    CHECK(model && attention_of(model).window == 0 && attention_of(model).n_kv_heads == 8);
    zinf_model_close(model);
}

static void test_rotations_by_kind_of_layer(void)
{
    struct zinf_model *model = model_from(
        "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 6, \"rope_theta\": 1e6, "
        "\"rope_local_base_freq\": 1e4, \"rope_scaling\": {\"rope_type\": \"linear\", "
        "\"factor\": 8}}");
    CHECKF(model != NULL, "%s", zinf_error());
    for (uint32_t i = 0; model && i < 6; i++) {
        const struct block_spec *s = zinf_model_graph(model)->stages[1 + i].spec;
        CHECK(s->attention.window == (i < 5 ? 4096 : 0));
        CHECK(s->attention.rope.inv_freq[0] == (i < 5 ? 1.0f : 0.125f));
        CHECK(s->attention.rope.base == (i < 5 ? 1e4 : 1e6));
    }
    zinf_model_close(model);
}

static void check_slopes(int heads, const struct frequency *list, int n)
{
    char text[128];
    snprintf(text, sizeof text, "{\"model_type\": \"bloom\", \"hidden_size\": %d, \"n_head\": %d}",
             8 * heads, heads);
    struct zinf_model *model = model_from(text);
    CHECKF(model != NULL, "%s", zinf_error());
    const struct block_spec *s = zinf_model_graph(model)->stages[2].spec;
    for (int i = 0; i < n; i++)
        CHECKF(fabs((double)s->attention.slopes[list[i].i] / list[i].inv - 1) < 1e-6,
               "%d heads, slope %d: %.9g", heads, list[i].i,
               (double)s->attention.slopes[list[i].i]);
    zinf_model_close(model);
}

static void test_slopes(void)
{
    static const struct frequency of_16[] = {{0, 0.70710678}, {1, 0.5}, {2, 0.35355339}, {3, 0.25}};
    static const struct frequency of_12[] = {
        {0, 0.5}, {7, 0.00390625}, {8, 0.70710678}, {9, 0.35355339}, {11, 0.088388348}};
    static const struct frequency of_40[] = {{32, 0.91700404}, {33, 0.77110541}, {39, 0.27262693}};
    static const struct frequency of_112[] = {
        {0, 0.91700404}, {64, 0.95760328}, {111, 0.016316778}};
    check_slopes(16, of_16, 4);
    check_slopes(12, of_12, 5);
    check_slopes(40, of_40, 3);
    check_slopes(112, of_112, 3);
}

/* Of files, without the family's prefix: what is neither read nor called unexpected. */
static void test_ignored_tensors(void)
{
    static const struct {
        const char *family, *name;
        bool ignored;
    } cases[] = {
        {"gpt2", "h.0.attn.bias", true},
        {"gpt2", "h.0.attn.c_attn.bias", false},
        {"gpt_neox", "layers.3.attention.rotary_emb.inv_freq", true},
        {"gpt_neox", "layers.3.attention.dense.bias", false},
        {"llama", "layers.0.self_attn.rotary_emb.inv_freq", true},
        {"llama", "lm_head.weight", true},
        {"llama", "layers.0.self_attn.q_proj.weight", false},
        {"t5", "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight", true},
        {"t5", "decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight", false},
        {"bart", "encoder.embed_tokens.weight", true},
        {"bert", "cls.predictions.bias", true},
        {"bert", "pooler.dense.weight", false},
        {"roberta", "pooler.dense.weight", true},
        {"deberta-v2", "mask_predictions.dense.weight", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *const *ignored = zinf_family_find(cases[i].family)->ignored;
        bool found = false;
        for (; *ignored; ignored++)
            found |= !fnmatch(*ignored, cases[i].name, 0);
        CHECKF(found == cases[i].ignored, "%s: %s", cases[i].family, cases[i].name);
    }
}

int main(void)
{
    TAP_RUN(test_published_parameter_counts);
    TAP_RUN(test_smaller_shapes);
    TAP_RUN(test_refused_configurations);
    TAP_RUN(test_refused_switches);
    TAP_RUN(test_composite_folders);
    TAP_RUN(test_windows_and_dropout);
    TAP_RUN(test_rotations_by_kind_of_layer);
    TAP_RUN(test_slopes);
    TAP_RUN(test_ignored_tensors);
    return tap_done();
}

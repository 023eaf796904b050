/* family: the list of families. Adding one is its file and a row. */
#include "model/families/family.h"

#include "model/composite.h"

static const struct zinf_family *const families[] = {
    &zinf_family_gpt2, /* the first is what `zinf init` makes when nobody says */
    &zinf_family_llama,         &zinf_family_mistral,
    &zinf_family_qwen2,         &zinf_family_qwen3,
    &zinf_family_phi3,          &zinf_family_gpt_neox,
    &zinf_family_starcoder2,    &zinf_family_olmo2,
    &zinf_family_opt,           &zinf_family_falcon,
    &zinf_family_chatglm,       &zinf_family_bloom,
    &zinf_family_baichuan,      &zinf_family_gemma,
    &zinf_family_gemma2,        &zinf_family_gemma3_text,
    &zinf_family_mixtral,       &zinf_family_qwen2_moe,
    &zinf_family_qwen3_moe,     &zinf_family_t5,
    &zinf_family_bart,          &zinf_family_blenderbot,
    &zinf_family_bert,          &zinf_family_roberta,
    &zinf_family_deberta_v2,    &zinf_family_olmo3,
    &zinf_family_smollm3,       &zinf_family_granite,
    &zinf_family_seed_oss,      &zinf_family_exaone4,
    &zinf_family_hunyuan_dense, &zinf_family_glm,
    &zinf_family_glm4,          &zinf_family_cohere,
    &zinf_family_cohere2,       &zinf_family_ernie4_5,
    &zinf_family_stablelm,      &zinf_family_nemotron,
    &zinf_family_olmoe,         &zinf_family_gpt_oss,
    &zinf_family_glm4_moe,      &zinf_family_granitemoe,
    &zinf_family_deepseek_v2,   &zinf_family_deepseek_v3,
    &zinf_family_kimi_k2,       &zinf_family_glm4_moe_lite,
    &zinf_family_gpt_bigcode,   &zinf_family_granite4,
    &zinf_family_ministral3,    &zinf_family_qwen3_next,
    &zinf_family_qwen3_5_text,  &zinf_family_qwen3_5_moe_text,
    &zinf_family_xlm_roberta,   &zinf_family_camembert,
    &zinf_family_bamba,         &zinf_family_gemma3,
    &zinf_family_mistral3,      &zinf_family_qwen3_5,
    &zinf_family_qwen3_5_moe,   &zinf_family_gptj,
    &zinf_family_internlm2,     &zinf_family_nemotron_h,
    &zinf_family_gemma4_text,   &zinf_family_gemma4,
    &zinf_family_falcon_h1,     &zinf_family_olmo_hybrid,
    &zinf_family_lfm2,          &zinf_family_llama4_text,
    &zinf_family_llama4,        &zinf_family_apertus,
};
#define N_FAMILIES (sizeof families / sizeof *families)

const struct zinf_family *zinf_family_find(const char *model_type)
{
    for (size_t i = 0; i < N_FAMILIES; i++)
        if (!strcmp(families[i]->model_type, model_type))
            return families[i];
    return NULL;
}

const struct zinf_family *zinf_family_default(void)
{
    return families[0];
}

const char *zinf_family_bare_name(const struct zinf_family *family, const char *name)
{
    const size_t prefix = strlen(family->prefix);
    const size_t module = family->module_prefix ? strlen(family->module_prefix) : 0;
    if (module && !strncmp(name, family->module_prefix, module))
        return name + module;
    return strncmp(name, family->prefix, prefix) ? zinf_composite_bare_name(family, name)
                                                 : name + prefix;
}

const char *zinf_family_names(void)
{
    static _Thread_local char text[1024];
    const char *names[N_FAMILIES];
    for (size_t i = 0; i < N_FAMILIES; i++)
        names[i] = families[i]->model_type;
    return family_join(text, sizeof text, names, N_FAMILIES);
}

const struct zinf_family *zinf_family_at(size_t i)
{
    return i < N_FAMILIES ? families[i] : NULL;
}

/* Every family finds its size by family_find_size, which answers instead. */
const char *zinf_family_sizes(const struct zinf_family *family, char *buffer, size_t bytes)
{
    struct zinf_model_shape ask = {
        .arch = family->model_type, .sizes = buffer, .sizes_bytes = bytes};
    cJSON *config = cJSON_CreateObject();
    buffer[0] = 0;
    family->make_config(config, family, &ask);
    cJSON_Delete(config);
    return buffer;
}

/*
 * family: what the files of families share: reading numbers, names of activations, published sizes.
 * A family is its file family_NAME.c and a row in family.c.
 */
#ifndef ZINF_FAMILY_H
#define ZINF_FAMILY_H

#include "model/model.h"

extern const struct zinf_family zinf_family_gpt2, zinf_family_llama, zinf_family_mistral,
    zinf_family_qwen2, zinf_family_qwen3, zinf_family_phi3, zinf_family_gpt_neox,
    zinf_family_starcoder2, zinf_family_olmo2, zinf_family_opt, zinf_family_falcon,
    zinf_family_chatglm, zinf_family_bloom, zinf_family_baichuan, zinf_family_gemma,
    zinf_family_gemma2, zinf_family_gemma3_text, zinf_family_mixtral, zinf_family_qwen2_moe,
    zinf_family_qwen3_moe, zinf_family_t5, zinf_family_bart, zinf_family_blenderbot,
    zinf_family_bert, zinf_family_roberta, zinf_family_deberta_v2, zinf_family_olmo3,
    zinf_family_smollm3, zinf_family_granite, zinf_family_seed_oss, zinf_family_exaone4,
    zinf_family_hunyuan_dense, zinf_family_glm, zinf_family_glm4, zinf_family_cohere,
    zinf_family_cohere2, zinf_family_ernie4_5, zinf_family_stablelm, zinf_family_nemotron,
    zinf_family_olmoe, zinf_family_gpt_oss, zinf_family_glm4_moe, zinf_family_granitemoe,
    zinf_family_deepseek_v2, zinf_family_deepseek_v3, zinf_family_kimi_k2,
    zinf_family_glm4_moe_lite, zinf_family_gpt_bigcode, zinf_family_granite4,
    zinf_family_ministral3, zinf_family_qwen3_next, zinf_family_qwen3_5_text,
    zinf_family_qwen3_5_moe_text, zinf_family_xlm_roberta, zinf_family_camembert, zinf_family_bamba,
    zinf_family_gemma3, zinf_family_mistral3, zinf_family_qwen3_5, zinf_family_qwen3_5_moe,
    zinf_family_gptj, zinf_family_internlm2, zinf_family_nemotron_h, zinf_family_gemma4_text,
    zinf_family_gemma4, zinf_family_falcon_h1, zinf_family_olmo_hybrid, zinf_family_lfm2,
    zinf_family_llama4_text, zinf_family_llama4, zinf_family_apertus;

/* Integers of config.json; key NULL ends a list. Absent ones keep what *out has. */
struct family_int {
    const char *key;
    int64_t *out;
};
int family_read_ints(const struct zinf_model_source *source, const struct family_int *list);
struct family_double {
    const char *key;
    double *out;
};
int family_read_doubles(const struct zinf_model_source *source, const struct family_double *list);
/* usual: its name where the key is absent. -ENOTSUP for a name that no kernel has. */
int family_read_activation(const struct zinf_model_source *source, const char *key,
                           const char *usual, enum zinf_activation *out);
/* eos_token_id: a number, or the first of a list; absent or null: *out stays. */
void family_read_end_of_text(const struct zinf_model_source *source, int64_t *out);

/* Names with ", " between them, cut to the buffer (returned). */
const char *family_join(char *buffer, size_t bytes, const char *const *names, size_t n);
/* Numbers of a new config.json; key NULL ends a list. */
struct family_number {
    const char *key;
    double value;
};
int family_add_numbers(cJSON *config, const struct family_number *list);
/* -ECANCELED where the sizes are asked for. Else the place of shape->size, or of the usual one, in
 * names; -EINVAL lists them. */
int family_find_size(const struct zinf_model_shape *shape, const char *const *names, size_t n,
                     const char *usual, size_t *out);

#endif

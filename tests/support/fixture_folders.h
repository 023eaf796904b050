/*
 * fixture_folders: the folders of tests/fixtures with a model of every family and of every switch
 * that a family has; tests/fixtures/README.md lists what is special about each.
 */
#ifndef ZINF_FIXTURE_FOLDERS_H
#define ZINF_FIXTURE_FOLDERS_H

static const char *const folders[] = {
    "gpt2_a",      "gpt2_b",       "gpt2_c",       "gpt2_d",      "llama_a",       "llama_b",
    "llama_c",     "llama_d",      "llama_e",      "mistral_a",   "qwen2_a",       "qwen3_a",
    "qwen3_b",     "phi3_a",       "phi3_b",       "phi3_c",      "phi3_d",        "gpt_neox_a",
    "gpt_neox_b",  "starcoder2_a", "starcoder2_b", "olmo2_a",     "olmo2_b",       "opt_a",
    "opt_b",       "falcon_a",     "falcon_b",     "falcon_c",    "falcon_d",      "falcon_e",
    "chatglm_a",   "chatglm_b",    "bloom_a",      "bloom_b",     "baichuan_a",    "baichuan_b",
    "baichuan_c",  "gemma_a",      "gemma2_a",     "gemma2_b",    "gemma3_text_a", "gemma3_text_b",
    "mixtral_a",   "mixtral_b",    "mixtral_c",    "qwen2_moe_a", "qwen2_moe_b",   "qwen3_moe_a",
    "qwen3_moe_b", "qwen3_moe_c",
};
#define N_FOLDERS (sizeof folders / sizeof *folders)

#endif

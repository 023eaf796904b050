/*
 * gguf_family: the families that llama.cpp has and we too: its names of tensors and its keys. One
 * that is not here is a row, if its layers have these parts.
 */
#include "train/save/gguf.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- names ---- */

static const struct gguf_part llama_layer[] = {
    {"input_layernorm", "attn_norm", 0},
    {"self_attn.q_proj", "attn_q", GGUF_ROTATED_Q},
    {"self_attn.k_proj", "attn_k", GGUF_ROTATED_K},
    {"self_attn.v_proj", "attn_v", 0},
    {"self_attn.o_proj", "attn_output", 0},
    {"post_attention_layernorm", "ffn_norm", 0},
    {"mlp.gate_proj", "ffn_gate", 0},
    {"mlp.up_proj", "ffn_up", 0},
    {"mlp.down_proj", "ffn_down", 0},
    {0},
};
static const struct gguf_part qwen_layer[] = {
    {"input_layernorm", "attn_norm", 0},    {"self_attn.q_proj", "attn_q", 0},
    {"self_attn.k_proj", "attn_k", 0},      {"self_attn.v_proj", "attn_v", 0},
    {"self_attn.o_proj", "attn_output", 0}, {"self_attn.q_norm", "attn_q_norm", 0},
    {"self_attn.k_norm", "attn_k_norm", 0}, {"post_attention_layernorm", "ffn_norm", 0},
    {"mlp.gate_proj", "ffn_gate", 0},       {"mlp.up_proj", "ffn_up", 0},
    {"mlp.down_proj", "ffn_down", 0},       {0},
};
static const struct gguf_part phi3_layer[] = {
    {"input_layernorm", "attn_norm", 0},
    {"self_attn.qkv_proj", "attn_qkv", 0},
    {"self_attn.o_proj", "attn_output", 0},
    {"post_attention_layernorm", "ffn_norm", 0},
    {"mlp.gate_up_proj", "ffn_up", 0},
    {"mlp.down_proj", "ffn_down", 0},
    {0},
};
static const struct gguf_part gemma_layer[] = {
    {"input_layernorm", "attn_norm", GGUF_PLUS_ONE},
    {"self_attn.q_proj", "attn_q", 0},
    {"self_attn.k_proj", "attn_k", 0},
    {"self_attn.v_proj", "attn_v", 0},
    {"self_attn.o_proj", "attn_output", 0},
    {"post_attention_layernorm", "ffn_norm", GGUF_PLUS_ONE},
    {"mlp.gate_proj", "ffn_gate", 0},
    {"mlp.up_proj", "ffn_up", 0},
    {"mlp.down_proj", "ffn_down", 0},
    {0},
};
static const struct gguf_part gemma2_layer[] = {
    {"input_layernorm", "attn_norm", GGUF_PLUS_ONE},
    {"self_attn.q_proj", "attn_q", 0},
    {"self_attn.k_proj", "attn_k", 0},
    {"self_attn.v_proj", "attn_v", 0},
    {"self_attn.o_proj", "attn_output", 0},
    {"self_attn.q_norm", "attn_q_norm", GGUF_PLUS_ONE},
    {"self_attn.k_norm", "attn_k_norm", GGUF_PLUS_ONE},
    {"post_attention_layernorm", "post_attention_norm", GGUF_PLUS_ONE},
    {"pre_feedforward_layernorm", "ffn_norm", GGUF_PLUS_ONE},
    {"mlp.gate_proj", "ffn_gate", 0},
    {"mlp.up_proj", "ffn_up", 0},
    {"mlp.down_proj", "ffn_down", 0},
    {"post_feedforward_layernorm", "post_ffw_norm", GGUF_PLUS_ONE},
    {0},
};
static const struct gguf_part gpt2_layer[] = {
    {"ln_1", "attn_norm", 0},
    {"attn.c_attn", "attn_qkv", GGUF_TURNED},
    {"attn.c_proj", "attn_output", GGUF_TURNED},
    {"attn.bias", "", GGUF_LEFT_OUT},
    {"attn.masked_bias", "", GGUF_LEFT_OUT},
    {"ln_2", "ffn_norm", 0},
    {"mlp.c_fc", "ffn_up", GGUF_TURNED},
    {"mlp.c_proj", "ffn_down", GGUF_TURNED},
    {0},
};
static const struct gguf_part lfm2_layer[] = {
    {"operator_norm", "attn_norm", 0},
    {"self_attn.q_proj", "attn_q", 0},
    {"self_attn.k_proj", "attn_k", 0},
    {"self_attn.v_proj", "attn_v", 0},
    {"self_attn.out_proj", "attn_output", 0},
    {"self_attn.q_layernorm", "attn_q_norm", 0},
    {"self_attn.k_layernorm", "attn_k_norm", 0},
    {"conv.in_proj", "shortconv.in_proj", 0},
    {"conv.conv", "shortconv.conv", GGUF_FLAT},
    {"conv.out_proj", "shortconv.out_proj", 0},
    {"ffn_norm", "ffn_norm", 0},
    {"feed_forward.w1", "ffn_gate", 0},
    {"feed_forward.w3", "ffn_up", 0},
    {"feed_forward.w2", "ffn_down", 0},
    {0},
};
static const struct gguf_part lfm2_rest[] = {
    {"embed_tokens", "token_embd", 0},
    {"embedding_norm", "token_embd_norm", 0},
    {"lm_head", "output", 0},
    {0},
};
static const struct gguf_part usual_rest[] = {
    {"embed_tokens", "token_embd", 0},
    {"norm", "output_norm", 0},
    {"lm_head", "output", 0},
    {0},
};
static const struct gguf_part gemma_rest[] = {
    {"embed_tokens", "token_embd", 0},
    {"norm", "output_norm", GGUF_PLUS_ONE},
    {"lm_head", "", GGUF_LEFT_OUT},
    {0},
};
static const struct gguf_part gpt2_rest[] = {
    {"wte", "token_embd", 0},
    {"wpe", "position_embd", 0},
    {"ln_f", "output_norm", 0},
    {"lm_head", "output", 0},
    {0},
};

/* ---- the families ---- */

static const struct gguf_family families[] = {
    {"llama", "llama", llama_layer, usual_rest, "layers.", KEY_VOCAB | KEY_FACTORS},
    {"mistral", "llama", llama_layer, usual_rest, "layers.", KEY_VOCAB},
    {"qwen2", "qwen2", qwen_layer, usual_rest, "layers.", 0},
    {"qwen3", "qwen3", qwen_layer, usual_rest, "layers.", 0},
    {"phi3", "phi3", phi3_layer, usual_rest, "layers.", KEY_PHI | KEY_WINDOW},
    {"gemma", "gemma", gemma_layer, gemma_rest, "layers.", KEY_HEAD_DIM | KEY_NO_ROPE},
    {"gemma2", "gemma2", gemma2_layer, gemma_rest, "layers.",
     KEY_HEAD_DIM | KEY_NO_ROPE | KEY_SOFTCAPS | KEY_WINDOW},
    {"gpt2", "gpt2", gpt2_layer, gpt2_rest, "h.", KEY_NO_ROPE | KEY_IS_GPT2},
    {"lfm2", "lfm2", lfm2_layer, lfm2_rest, "layers.", KEY_CONVS},
};
#define N_FAMILIES (sizeof families / sizeof *families)

/* The part that a name, up to its suffix, is of. */
static const struct gguf_part *find_part(const struct gguf_part *parts, const char *name,
                                         const char **suffix)
{
    for (; parts->ours; parts++) {
        size_t n = strlen(parts->ours);
        if (strncmp(name, parts->ours, n) != 0)
            continue;
        *suffix = name + n;
        if (!strcmp(*suffix, ".weight") || !strcmp(*suffix, ".bias") || !**suffix)
            return parts;
    }
    return NULL;
}

int gguf_name(const struct gguf_family *family, const char *name, char out[96],
              enum gguf_change *change)
{
    const char *bare = name, *suffix = NULL;
    const struct gguf_part *part;
    char number[32] = "";
    unsigned layer;
    int used = 0;
    if (!strncmp(bare, "model.", 6))
        bare += 6;
    else if (!strncmp(bare, "transformer.", 12))
        bare += 12;
    size_t n = strlen(family->layers);
    if (!strncmp(bare, family->layers, n) && sscanf(bare + n, "%5u.%n", &layer, &used) == 1 &&
        used) {
        snprintf(number, sizeof number, "blk.%u.", layer);
        part = find_part(family->layer, bare + n + used, &suffix);
    } else {
        part = find_part(family->rest, bare, &suffix);
    }
    bool unused = strstr(bare, "rotary_emb.inv_freq") != NULL;
    if (!part && !unused)
        return zinf_fail(-ENOTSUP, "llama.cpp's %s has no tensor for %.200s", family->architecture,
                         name);
    *change = unused ? GGUF_LEFT_OUT : part->change;
    if (*change == GGUF_TURNED && strcmp(suffix, ".weight") != 0)
        *change = GGUF_AS_IT_IS;
    snprintf(out, 96, "%s%s%s", number, unused ? "" : part->theirs, unused ? "" : suffix);
    return 0;
}

/* ---- the other way ---- */

int gguf_family_of(const struct gguf_family **out, const char *path, const char *architecture)
{
    char list[128] = "";
    for (size_t i = 0; i < N_FAMILIES; i++) {
        size_t at = strlen(list);
        if (architecture && !strcmp(architecture, families[i].architecture)) {
            *out = &families[i];
            return 0;
        }
        if (!i || strcmp(families[i].architecture, families[i - 1].architecture) != 0)
            snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", families[i].architecture);
    }
    return zinf_fail(-ENOTSUP,
                     "%s is of architecture %s, which is not read, but %s are: name a Hugging Face "
                     "folder of the model",
                     path, architecture ? architecture : "(none)", list);
}

bool gguf_model_name(const struct gguf_family *family, const char *name, char out[160],
                     enum gguf_change *change)
{
    unsigned layer = 0;
    int used = 0;
    bool in_layer = sscanf(name, "blk.%5u.%n", &layer, &used) == 1 && used;
    const char *bare = name + used,
               *prefix = family->keys & KEY_IS_GPT2 ? "transformer." : "model.";
    for (const struct gguf_part *p = in_layer ? family->layer : family->rest; p->ours; p++) {
        size_t n = strlen(p->theirs);
        if (!n || strncmp(bare, p->theirs, n) != 0 ||
            (strcmp(bare + n, ".weight") != 0 && strcmp(bare + n, ".bias") != 0))
            continue;
        if (in_layer)
            snprintf(out, 160, "%s%s%u.%s%s", prefix, family->layers, layer, p->ours, bare + n);
        else
            snprintf(out, 160, "%s%s%s", strcmp(p->ours, "lm_head") ? prefix : "", p->ours,
                     bare + n);
        *change = p->change;
        if (*change == GGUF_TURNED && strcmp(bare + n, ".weight") != 0)
            *change = GGUF_AS_IT_IS;
        return true;
    }
    return false;
}

/* ---- numbers of config.json ---- */

static const cJSON *first_of(const cJSON *config, const char *const *keys)
{
    for (; *keys; keys++) {
        const cJSON *value = cJSON_GetObjectItemCaseSensitive(config, *keys);
        if (cJSON_IsNumber(value))
            return value;
    }
    return NULL;
}

int64_t gguf_integer(const cJSON *config, const char *const *keys, int64_t otherwise)
{
    const cJSON *value = first_of(config, keys);
    return value ? (int64_t)value->valuedouble : otherwise;
}

static const char *const layers_keys[] = {"num_hidden_layers", "n_layer", NULL};
static const char *const context_keys[] = {"max_position_embeddings", "n_ctx", "n_positions", NULL};
static const char *const width_keys[] = {"hidden_size", "n_embd", NULL};
static const char *const inner_keys[] = {"intermediate_size", "n_inner", NULL};
static const char *const heads_keys[] = {"num_attention_heads", "n_head", NULL};
static const char *const kv_keys[] = {"num_key_value_heads", NULL};
static const char *const head_dim_keys[] = {"head_dim", NULL};
static const char *const rms_keys[] = {"rms_norm_eps", "norm_eps", NULL};
static const char *const norm_keys[] = {"layer_norm_epsilon", "layer_norm_eps", NULL};
static const char *const vocab_keys[] = {"vocab_size", NULL};
static const char *const window_keys[] = {"sliding_window", NULL};
static const char *const attention_cap_keys[] = {"attn_logit_softcapping", NULL};
static const char *const final_cap_keys[] = {"final_logit_softcapping", NULL};

struct keys {
    struct zinf_gguf_writer *to;
    const struct gguf_family *family;
    const cJSON *config;
};

static const char *key_of(const struct keys *k, const char *name, char buffer[96])
{
    snprintf(buffer, 96, "%s.%s", k->family->architecture, name);
    return buffer;
}

/* Left out where the configuration has none. */
static void add_integer(const struct keys *k, const char *name, const char *const *from)
{
    char key[96];
    const cJSON *value = first_of(k->config, from);
    if (value)
        zinf_gguf_u32(k->to, key_of(k, name, key), (uint32_t)value->valuedouble);
}

static void add_number(const struct keys *k, const char *name, const char *const *from)
{
    char key[96];
    const cJSON *value = first_of(k->config, from);
    if (value)
        zinf_gguf_f32(k->to, key_of(k, name, key), value->valuedouble);
}

/* ---- rotation ---- */

static const cJSON *rope_of(const cJSON *config)
{
    const cJSON *rope = cJSON_GetObjectItemCaseSensitive(config, "rope_parameters");
    if (!cJSON_IsObject(rope))
        rope = cJSON_GetObjectItemCaseSensitive(config, "rope_scaling");
    return cJSON_IsObject(rope) ? rope : NULL;
}

static const char *rope_type(const cJSON *rope)
{
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(rope, "rope_type"));
    if (!type)
        type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(rope, "type"));
    return type ? type : "";
}

/* One divisor a pair for all lengths, and nothing else: what a file's tensor is read as. */
static const cJSON *divisors_of(const cJSON *rope)
{
    const cJSON *few = cJSON_GetObjectItemCaseSensitive(rope, "short_factor");
    const cJSON *many = cJSON_GetObjectItemCaseSensitive(rope, "long_factor");
    const cJSON *scale = cJSON_GetObjectItemCaseSensitive(rope, "attention_factor");
    bool alone = !strcmp(rope_type(rope), "longrope") && cJSON_IsNumber(scale) &&
                 scale->valuedouble == 1 && cJSON_Compare(few, many, true);
    return alone && cJSON_IsArray(few) ? few : NULL;
}

/* What llama.cpp's keys can say of rotation. */
static int check_rope(const cJSON *config, unsigned keys)
{
    const char *type = rope_type(rope_of(config));
    if (!*type || !strcmp(type, "default"))
        return 0;
    if (!(keys & (KEY_PHI | KEY_NO_ROPE)) && (!strcmp(type, "linear") || !strcmp(type, "yarn")))
        return 0;
    if ((keys & KEY_FACTORS) && (!strcmp(type, "llama3") || divisors_of(rope_of(config))))
        return 0;
    return zinf_fail(-ENOTSUP,
                     "rotary frequencies of type %s cannot be written as GGUF for this family: "
                     "convert the model folder with llama.cpp's convert_hf_to_gguf.py",
                     type);
}

int gguf_family_find(const struct gguf_family **out, const cJSON *config)
{
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "model_type"));
    char list[128] = "";
    for (size_t i = 0; i < N_FAMILIES; i++) {
        size_t at = strlen(list);
        if (type && !strcmp(type, families[i].type)) {
            *out = &families[i];
            return check_rope(config, families[i].keys);
        }
        snprintf(list + at, sizeof list - at, "%s%s", at ? ", " : "", families[i].type);
    }
    return zinf_fail(-ENOTSUP,
                     "models of type %s cannot be written as GGUF, but %s can: convert the model "
                     "folder with llama.cpp's convert_hf_to_gguf.py",
                     type ? type : "(none)", list);
}

static double rope_number(const cJSON *rope, const char *key, double otherwise)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(rope, key);
    return cJSON_IsNumber(value) ? value->valuedouble : otherwise;
}

static double rope_theta(const cJSON *config)
{
    return rope_number(rope_of(config), "rope_theta", rope_number(config, "rope_theta", 0));
}

static void add_rope(const struct keys *k)
{
    const cJSON *rope = rope_of(k->config);
    const char *type = rope_type(rope);
    char key[96];
    bool yarn = !strcmp(type, "yarn"), linear = !strcmp(type, "linear");
    if (yarn || linear) {
        zinf_gguf_text(k->to, key_of(k, "rope.scaling.type", key), type);
        zinf_gguf_f32(k->to, key_of(k, "rope.scaling.factor", key), rope_number(rope, "factor", 1));
    }
    if (yarn)
        zinf_gguf_u32(k->to, key_of(k, "rope.scaling.original_context_length", key),
                      (uint32_t)rope_number(rope, "original_max_position_embeddings", 0));
    if (rope_theta(k->config) > 0)
        zinf_gguf_f32(k->to, key_of(k, "rope.freq_base", key), rope_theta(k->config));
}

/* As LLaMA 3 scales them: high frequencies stay, low ones are divided, between is a line. */
static float llama3_factor(const cJSON *rope, float frequency)
{
    double factor = rope_number(rope, "factor", 8), low = rope_number(rope, "low_freq_factor", 1);
    double high = rope_number(rope, "high_freq_factor", 4);
    double old = rope_number(rope, "original_max_position_embeddings", 8192);
    float wave = (float)(2 * M_PI) / frequency;
    if ((double)wave < old / high)
        return 1;
    if ((double)wave > old / low)
        return (float)factor;
    float smooth = ((float)old / wave - (float)low) / (float)(high - low);
    return 1 / ((1 - smooth) / (float)factor + smooth);
}

uint64_t gguf_rope_factors(const struct gguf_family *family, const cJSON *config, float **out)
{
    const cJSON *rope = rope_of(config);
    int64_t heads = gguf_integer(config, heads_keys, 1);
    int64_t dim = gguf_integer(config, head_dim_keys,
                               gguf_integer(config, width_keys, 0) / (heads > 0 ? heads : 1));
    double base = rope_theta(config) > 0 ? rope_theta(config) : 10000;
    const cJSON *divisors = divisors_of(rope), *divisor = divisors ? divisors->child : NULL;
    if (!(family->keys & KEY_FACTORS) || (strcmp(rope_type(rope), "llama3") != 0 && !divisors) ||
        dim < 2 || dim > 1 << 16 || (divisors && cJSON_GetArraySize(divisors) != dim / 2))
        return 0;
    float *factors = malloc((size_t)(dim / 2) * sizeof *factors);
    for (int64_t i = 0; factors && i < dim / 2; i++) {
        if (divisor) {
            factors[i] = (float)divisor->valuedouble;
            divisor = divisor->next;
        } else {
            factors[i] = llama3_factor(rope, 1 / powf((float)base, (float)(2 * i) / (float)dim));
        }
    }
    *out = factors;
    return factors ? (uint64_t)(dim / 2) : 0;
}

/* ---- layers of short convolutions ---- */

static bool has_attention(const cJSON *config, int layer)
{
    const cJSON *types = cJSON_GetObjectItemCaseSensitive(config, "layer_types"), *index;
    const char *type = cJSON_GetStringValue(cJSON_GetArrayItem(types, layer));
    if (type)
        return strcmp(type, "conv") != 0;
    cJSON_ArrayForEach(index, cJSON_GetObjectItemCaseSensitive(config, "full_attn_idxs"))
    {
        if (index->valueint == layer)
            return true;
    }
    return false;
}

#define MOST_LAYERS 1024

static void add_convs(const struct keys *k)
{
    static const char *const cache_keys[] = {"conv_L_cache", NULL};
    const int64_t layers = gguf_integer(k->config, layers_keys, 0);
    const int64_t heads = gguf_integer(k->config, heads_keys, 1);
    int32_t kv_heads[MOST_LAYERS] = {0};
    char key[96];
    for (int i = 0; i < layers && i < MOST_LAYERS; i++)
        if (has_attention(k->config, i))
            kv_heads[i] = (int32_t)gguf_integer(k->config, kv_keys, heads);
    zinf_gguf_i32s(k->to, key_of(k, "attention.head_count_kv", key), kv_heads,
                   (uint64_t)(layers < MOST_LAYERS ? layers : MOST_LAYERS));
    zinf_gguf_u32(k->to, key_of(k, "shortconv.l_cache", key),
                  (uint32_t)gguf_integer(k->config, cache_keys, 3));
    add_integer(k, "vocab_size", vocab_keys);
}

/* ---- all keys ---- */

static void add_phi(const struct keys *k)
{
    const cJSON *rope = rope_of(k->config);
    char key[96];
    int64_t heads = gguf_integer(k->config, heads_keys, 1);
    double part = rope_number(rope, "partial_rotary_factor",
                              rope_number(k->config, "partial_rotary_factor", 1));
    double before = rope_number(rope, "original_max_position_embeddings",
                                rope_number(k->config, "original_max_position_embeddings",
                                            (double)gguf_integer(k->config, context_keys, 0)));
    zinf_gguf_u32(k->to, key_of(k, "rope.scaling.original_context_length", key), (uint32_t)before);
    zinf_gguf_u32(k->to, key_of(k, "rope.dimension_count", key),
                  (uint32_t)((int64_t)(part * (double)gguf_integer(k->config, width_keys, 0)) /
                             (heads > 0 ? heads : 1)));
}

static void add_lengths(const struct keys *k)
{
    char key[96];
    int64_t heads = gguf_integer(k->config, heads_keys, 1);
    int64_t dim = gguf_integer(k->config, head_dim_keys, 0);
    if (dim && !(k->family->keys & KEY_PHI)) {
        zinf_gguf_u32(k->to, key_of(k, "attention.key_length", key), (uint32_t)dim);
        zinf_gguf_u32(k->to, key_of(k, "attention.value_length", key), (uint32_t)dim);
    }
    if (!(k->family->keys & KEY_VOCAB))
        return;
    add_integer(k, "vocab_size", vocab_keys);
    if (!dim)
        dim = gguf_integer(k->config, width_keys, 0) / (heads > 0 ? heads : 1);
    zinf_gguf_u32(k->to, key_of(k, "rope.dimension_count", key), (uint32_t)dim);
}

void gguf_add_parameters(struct zinf_gguf_writer *writer, const struct gguf_family *family,
                         const cJSON *config)
{
    const struct keys k = {writer, family, config};
    char key[96];
    zinf_gguf_text(writer, "general.architecture", family->architecture);
    zinf_gguf_text(writer, "general.type", "model");
    add_integer(&k, "block_count", layers_keys);
    add_integer(&k, "context_length", context_keys);
    add_integer(&k, "embedding_length", width_keys);
    if (family->keys & KEY_IS_GPT2)
        zinf_gguf_u32(writer, key_of(&k, "feed_forward_length", key),
                      (uint32_t)(4 * gguf_integer(config, width_keys, 0)));
    else
        add_integer(&k, "feed_forward_length", inner_keys);
    add_integer(&k, "attention.head_count", heads_keys);
    if (family->keys & KEY_CONVS)
        add_convs(&k);
    else if (first_of(config, kv_keys))
        add_integer(&k, "attention.head_count_kv", kv_keys);
    else if (!(family->keys & KEY_IS_GPT2) && strcmp(family->architecture, "llama") != 0)
        add_integer(&k, "attention.head_count_kv", heads_keys);
    add_number(&k, "attention.layer_norm_rms_epsilon", rms_keys);
    add_number(&k, "attention.layer_norm_epsilon", norm_keys);
    add_lengths(&k);
    if (!(family->keys & KEY_NO_ROPE))
        add_rope(&k);
    if (family->keys & KEY_PHI)
        add_phi(&k);
    if (family->keys & KEY_SOFTCAPS) {
        add_number(&k, "attn_logit_softcapping", attention_cap_keys);
        add_number(&k, "final_logit_softcapping", final_cap_keys);
    }
    if (family->keys & KEY_WINDOW)
        zinf_gguf_u32(writer, key_of(&k, "attention.sliding_window", key),
                      (uint32_t)gguf_integer(config, window_keys, 0));
}

void gguf_add_of_tokenizer(struct zinf_gguf_writer *writer, const cJSON *config,
                           const cJSON *settings)
{
    const char *type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "model_type"));
    const cJSON *space = cJSON_GetObjectItemCaseSensitive(settings, "add_prefix_space");
    bool is_gemma = type && !strcmp(type, "gemma");
    bool is_llama = type && (!strcmp(type, "llama") || !strcmp(type, "mistral"));
    if (is_gemma) /* <end_of_turn>, which ends answers */
        zinf_gguf_u32(writer, "tokenizer.ggml.eot_token_id", 107);
    if (is_gemma || (type && !strcmp(type, "gemma2")))
        zinf_gguf_bool(writer, "tokenizer.ggml.add_space_prefix", false);
    else if (is_llama && cJSON_IsBool(space))
        zinf_gguf_bool(writer, "tokenizer.ggml.add_space_prefix", cJSON_IsTrue(space));
}

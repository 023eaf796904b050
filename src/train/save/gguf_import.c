/*
 * gguf_import: a model folder for a file of llama.cpp's, whose weights stay where they are. All
 * else that reads models then needs to know of folders alone: config.json and the tokenizer are
 * made of the file's keys, and an index says which of its tensors is which of the model's.
 */
#include "base/cache.h"
#include "train/checkpoints.h"
#include "train/save/gguf.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

struct importing {
    const char *path;
    char *folder;
    struct zinf_tensors *tensors; /* under llama.cpp's names */
    cJSON *keys, *config, *map;
    const struct gguf_family *family;
};

/* ---- numbers ---- */

static const cJSON *key_of(const struct importing *im, const char *name)
{
    char key[96];
    snprintf(key, sizeof key, "%s.%s", im->family->architecture, name);
    return cJSON_GetObjectItemCaseSensitive(im->keys, key);
}

static int64_t integer_of(const struct importing *im, const char *name, int64_t otherwise)
{
    const cJSON *value = key_of(im, name);
    return cJSON_IsNumber(value) ? (int64_t)value->valuedouble : otherwise;
}

/* The shortest number that is this one in fp32, in which the file has it. */
static double shortest(double value)
{
    char text[32];
    for (int digits = 6; digits < 10; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, value);
        if (strtof(text, NULL) == (float)value)
            break;
    }
    return strtod(text, NULL);
}

/* ---- config.json ---- */

struct setting {
    const char *theirs, *ours;
};
static const struct setting usual[] = {
    {"block_count", "num_hidden_layers"},
    {"context_length", "max_position_embeddings"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"attn_logit_softcapping", "attn_logit_softcapping"},
    {"final_logit_softcapping", "final_logit_softcapping"},
    {"rope.freq_base", "rope_theta"},
    {NULL, NULL},
};
static const struct setting of_gpt2[] = {
    {"block_count", "n_layer"},
    {"context_length", "n_positions"},
    {"embedding_length", "n_embd"},
    {"feed_forward_length", "n_inner"},
    {"attention.head_count", "n_head"},
    {"attention.layer_norm_epsilon", "layer_norm_epsilon"},
    {NULL, NULL},
};

static void add_settings(const struct importing *im)
{
    const struct setting *s = im->family->keys & KEY_IS_GPT2 ? of_gpt2 : usual;
    for (; s->ours; s++) {
        const cJSON *value = key_of(im, s->theirs);
        if (cJSON_IsNumber(value))
            cJSON_AddNumberToObject(im->config, s->ours, shortest(value->valuedouble));
    }
}

/* Layers without heads for keys have a short convolution. */
static void add_convs(const struct importing *im)
{
    const cJSON *all = key_of(im, "attention.head_count_kv"), *heads;
    cJSON *types = cJSON_AddArrayToObject(im->config, "layer_types");
    double most = 0;
    cJSON_ArrayForEach(heads, all)
    {
        const bool attends = heads->valuedouble > 0;
        cJSON_AddItemToArray(types, cJSON_CreateString(attends ? "full_attention" : "conv"));
        most = attends ? heads->valuedouble : most;
    }
    cJSON_AddNumberToObject(im->config, "num_key_value_heads", most);
    cJSON_AddNumberToObject(im->config, "conv_L_cache",
                            (double)integer_of(im, "shortconv.l_cache", 3));
    cJSON_AddBoolToObject(im->config, "block_auto_adjust_ff_dim", false);
}

static void add_tokens(const struct importing *im)
{
    static const char *const words[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token_id"},
                                           {"tokenizer.ggml.eos_token_id", "eos_token_id"},
                                           {"tokenizer.ggml.padding_token_id", "pad_token_id"}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        const cJSON *id = cJSON_GetObjectItemCaseSensitive(im->keys, words[i][0]);
        if (cJSON_IsNumber(id))
            cJSON_AddNumberToObject(im->config, words[i][1], id->valuedouble);
    }
}

/* Divisors of rotary frequencies, one a pair, as those of longrope: for all lengths. */
static int add_divisors(const struct importing *im, cJSON *rope)
{
    const struct zinf_tensor_info *info = zinf_tensors_find(im->tensors, "rope_freqs.weight");
    float factors[1024];
    if (!info)
        return 0;
    if (info->n_elems > sizeof factors / sizeof *factors)
        return zinf_fail(-EINVAL, "%s: rope_freqs.weight fits no head", im->path);
    int code = zinf_tensors_read_f32(im->tensors, info, 0, info->n_elems, factors);
    cJSON *lists[2] = {cJSON_AddArrayToObject(rope, "short_factor"),
                       cJSON_AddArrayToObject(rope, "long_factor")};
    for (uint64_t i = 0; !code && i < 2 * info->n_elems; i++)
        cJSON_AddItemToArray(lists[i % 2], cJSON_CreateNumber((double)factors[i / 2]));
    cJSON_AddStringToObject(rope, "rope_type", "longrope");
    cJSON_AddNumberToObject(rope, "factor", 1);
    cJSON_AddNumberToObject(rope, "attention_factor", 1);
    cJSON_AddNumberToObject(rope, "original_max_position_embeddings",
                            (double)integer_of(im, "context_length", 0));
    return code;
}

static int add_rotation(const struct importing *im)
{
    const char *type = cJSON_GetStringValue(key_of(im, "rope.scaling.type"));
    const cJSON *factor = key_of(im, "rope.scaling.factor");
    cJSON *rope = cJSON_CreateObject();
    int64_t before = integer_of(im, "rope.scaling.original_context_length", 0);
    int code = rope ? add_divisors(im, rope) : zinf_fail(-ENOMEM, "no memory for %s", im->path);
    if (!code && type && (!strcmp(type, "yarn") || !strcmp(type, "linear"))) {
        cJSON_AddStringToObject(rope, "rope_type", type);
        cJSON_AddNumberToObject(rope, "factor",
                                cJSON_IsNumber(factor) ? shortest(factor->valuedouble) : 1);
        if (before)
            cJSON_AddNumberToObject(rope, "original_max_position_embeddings", (double)before);
    } else if (!code && type && strcmp(type, "none") != 0) {
        code =
            zinf_fail(-ENOTSUP, "%s: rotary frequencies of type %s are not read", im->path, type);
    }
    if (!code && zinf_tensors_find(im->tensors, "rope_factors_long.weight"))
        code = zinf_fail(-ENOTSUP,
                         "%s has rope_factors_long.weight, which is not read: name a Hugging Face "
                         "folder of the model",
                         im->path);
    if (code || !rope->child)
        cJSON_Delete(rope);
    else
        cJSON_AddItemToObject(im->config, "rope_scaling", rope);
    return code;
}

static void add_heads(const struct importing *im)
{
    int64_t width = integer_of(im, "embedding_length", 0);
    int64_t heads = integer_of(im, "attention.head_count", 0);
    int64_t rotated = integer_of(im, "rope.dimension_count", 0);
    int64_t dim = integer_of(im, "attention.key_length", heads > 0 ? width / heads : 0);
    if (dim && !(im->family->keys & (KEY_PHI | KEY_IS_GPT2)))
        cJSON_AddNumberToObject(im->config, "head_dim", (double)dim);
    if ((im->family->keys & KEY_PHI) && dim && rotated && rotated != dim)
        cJSON_AddNumberToObject(im->config, "partial_rotary_factor", (double)rotated / (double)dim);
    if (im->family->keys & KEY_PHI)
        cJSON_AddNumberToObject(im->config, "original_max_position_embeddings",
                                (double)integer_of(im, "rope.scaling.original_context_length",
                                                   integer_of(im, "context_length", 0)));
    if (im->family->keys & KEY_SOFTCAPS) /* as llama.cpp tells the largest by its layers */
        cJSON_AddNumberToObject(
            im->config, "query_pre_attn_scalar",
            (double)(integer_of(im, "block_count", 0) == 46 && heads > 0 ? width / heads : dim));
    if ((im->family->keys & KEY_WINDOW) && integer_of(im, "attention.sliding_window", 0))
        cJSON_AddNumberToObject(im->config, "sliding_window",
                                (double)integer_of(im, "attention.sliding_window", 0));
}

static int make_config(struct importing *im)
{
    const struct zinf_tensor_info *tokens = zinf_tensors_find(im->tensors, "token_embd.weight");
    bool gemma = !strncmp(im->family->type, "gemma", 5);
    const char *act = gemma ? "gelu_pytorch_tanh" : "silu";
    if (!tokens || tokens->rank != 2)
        return zinf_fail(-EINVAL, "%s has no token_embd.weight: it is no whole model", im->path);
    if (key_of(im, "expert_count"))
        return zinf_fail(-ENOTSUP, "%s has experts, which are not read from GGUF", im->path);
    cJSON_AddStringToObject(im->config, "model_type", im->family->type);
    cJSON_AddNumberToObject(im->config, "vocab_size", (double)tokens->shape[0]);
    cJSON_AddBoolToObject(im->config, "tie_word_embeddings",
                          !zinf_tensors_find(im->tensors, "output.weight"));
    if (im->family->keys & KEY_IS_GPT2)
        cJSON_AddStringToObject(im->config, "activation_function", "gelu_new");
    else
        cJSON_AddStringToObject(im->config, "hidden_act", act);
    if (gemma)
        cJSON_AddStringToObject(im->config, "hidden_activation", act);
    if (zinf_tensors_find(im->tensors, "blk.0.attn_q.bias") && strcmp(im->family->type, "qwen2"))
        cJSON_AddBoolToObject(im->config, "attention_bias", true);
    if (zinf_tensors_find(im->tensors, "blk.0.ffn_up.bias") && !(im->family->keys & KEY_IS_GPT2))
        cJSON_AddBoolToObject(im->config, "mlp_bias", true);
    add_settings(im);
    if (im->family->keys & KEY_CONVS)
        add_convs(im);
    add_tokens(im);
    add_heads(im);
    return im->family->keys & KEY_NO_ROPE ? 0 : add_rotation(im);
}

/* ---- the index ---- */

static int add_entry(const struct importing *im, const struct zinf_tensor_info *info)
{
    enum gguf_change change;
    char name[160];
    if (!strcmp(info->name, "rope_freqs.weight"))
        return 0;
    if (!gguf_model_name(im->family, info->name, name, &change))
        return zinf_fail(-ENOTSUP, "%s: a %s model has no tensor %s", im->path, im->family->type,
                         info->name);
    cJSON *entry = cJSON_AddObjectToObject(im->map, name);
    cJSON_AddStringToObject(entry, "tensor", info->name);
    if (change == GGUF_TURNED)
        cJSON_AddStringToObject(entry, "order", "turned");
    if (change == GGUF_FLAT)
        cJSON_AddStringToObject(entry, "order", "deep");
    if (change == GGUF_PLUS_ONE)
        cJSON_AddNumberToObject(entry, "add", -1);
    if (change != GGUF_ROTATED_Q && change != GGUF_ROTATED_K)
        return 0;
    int64_t heads = integer_of(im, "attention.head_count", 0);
    if (change == GGUF_ROTATED_K)
        heads = integer_of(im, "attention.head_count_kv", heads);
    if (heads < 1 || info->shape[0] % (uint64_t)heads)
        return zinf_fail(-EINVAL, "%s: %s does not fit its heads", im->path, info->name);
    cJSON_AddStringToObject(entry, "order", "pairs");
    cJSON_AddNumberToObject(entry, "head_rows", (double)(info->shape[0] / (uint64_t)heads));
    return 0;
}

static int write_json(const char *folder, const char *name, const cJSON *value)
{
    char *path = zinf_path_join(folder, name), *text = zinf_json_print(value);
    int code = path && text ? zinf_file_write_atomic(path, text, strlen(text))
                            : zinf_fail(-ENOMEM, "no memory to write %s/%s", folder, name);
    cJSON_free(text);
    free(path);
    return code;
}

static int write_index(const struct importing *im)
{
    cJSON *index = cJSON_CreateObject();
    char *whole = realpath(im->path, NULL);
    int code = index && whole ? 0 : zinf_fail(-ENOMEM, "no memory for the index of %s", im->path);
    if (!code)
        cJSON_AddStringToObject(index, "file", whole);
    for (uint64_t i = 0; !code && i < zinf_tensors_count(im->tensors); i++)
        code = add_entry(im, zinf_tensors_at(im->tensors, i));
    if (!code) {
        cJSON_AddItemReferenceToObject(index, "weight_map", im->map);
        code = write_json(im->folder, ZINF_GGUF_INDEX, index);
    }
    cJSON_Delete(index);
    free(whole);
    return code;
}

/* ---- the folder ---- */

/* By the file's place, size and time, so that another file never meets a folder that is stale. */
static int name_folder(struct importing *im)
{
    const char *slash = strrchr(im->path, '/'), *name = slash ? slash + 1 : im->path;
    char *whole = realpath(im->path, NULL);
    struct stat info;
    if (!whole || stat(whole, &info)) {
        free(whole);
        return zinf_fail(-errno, "cannot open %s: %s", im->path, strerror(errno));
    }
    const int64_t of[] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
    uint64_t sum = XXH3_64bits_withSeed(of, sizeof of, XXH3_64bits(whole, strlen(whole)));
    free(whole);
    return zinf_cache_folder(&im->folder, "gguf", name, sum);
}

static int write_folder(struct importing *im)
{
    const char *architecture =
        cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(im->keys, "general.architecture"));
    int code = gguf_family_of(&im->family, im->path, architecture);
    im->config = cJSON_CreateObject();
    im->map = cJSON_CreateObject();
    if (!code && (!im->config || !im->map))
        code = zinf_fail(-ENOMEM, "no memory to open %s", im->path);
    if (!code)
        code = make_config(im);
    if (!code)
        code = name_folder(im);
    if (!code)
        code = write_index(im);
    if (!code)
        code = gguf_write_tokenizer(im->folder, im->path, im->keys);
    return code ? code : write_json(im->folder, "config.json", im->config);
}

/* Configuration, tokenizer and an index of tensors, whose weights are read where they are, in the
 * user's cache. The same file gets the same folder. */
static int gguf_as_folder(const char *path, char **folder)
{
    struct importing im = {.path = path};
    int code = zinf_tensors_open(&im.tensors, path);
    if (!code)
        code = zinf_gguf_read_keys(&im.keys, path);
    if (!code)
        code = write_folder(&im);
    if (!code) {
        *folder = im.folder;
        im.folder = NULL;
    }
    zinf_tensors_close(im.tensors);
    cJSON_Delete(im.keys);
    cJSON_Delete(im.config);
    cJSON_Delete(im.map);
    free(im.folder);
    return code;
}

/* By its first bytes. */
static bool is_gguf(const char *path)
{
    uint8_t first[8] = {0};
    struct stat info;
    int fd = stat(path, &info) || !S_ISREG(info.st_mode) ? -1 : open(path, O_RDONLY | O_CLOEXEC);
    bool is =
        fd >= 0 && read(fd, first, sizeof first) == (ssize_t)sizeof first && zinf_gguf_is(first);
    if (fd >= 0)
        close(fd);
    return is;
}

int zinf_model_as_folder(const char *path, char **folder)
{
    *folder = NULL;
    return is_gguf(path)          ? gguf_as_folder(path, folder)
           : zinf_is_layers(path) ? zinf_layers_as_folder(path, folder)
                                  : 0;
}

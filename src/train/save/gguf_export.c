/*
 * gguf_export: a checkpoint's masters, or a model folder, as one file of llama.cpp's; and adapters
 * as such a file beside that of their base. Tensors are streamed by rows; only matrices that are
 * stored the other way around are in memory whole.
 */
#include "base/apart.h"
#include "train/checkpoints.h"
#include "train/save/checkpoint.h"
#include "train/save/gguf.h"
#include "train/save/identity.h"
#include "train/save/merge.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK_ELEMS ((uint64_t)1 << 20)

struct tensor {
    const struct zinf_tensor_info *info; /* of the model's file */
    char name[96];                       /* theirs */
    enum gguf_change change;
    float scale; /* of an adapter's A; else 1 */
};
struct exporting {
    const struct zinf_gguf_options *options;
    char *folder;
    struct zinf_tensors *model, *masters; /* masters: NULL where the model is all there is */
    cJSON *config;
    const struct gguf_family *family;
    struct zinf_gguf_writer *to;
    struct tensor *tensors; /* [n] */
    uint64_t n;
    float *factors; /* of rotation, [n_factors] */
    uint64_t n_factors;
    struct adapter_choice *choice; /* of adapters, with the alpha of all of them */
    double alpha;
};

/* ---- what is exported ---- */

static int open_checkpoint(struct exporting *e)
{
    struct checkpoint c;
    char name[64], *path = NULL;
    int code = checkpoint_open(&c, e->folder);
    if (code)
        return code;
    checkpoint_part_name(&c, PART_MASTER, name);
    if (c.adapted)
        code = zinf_fail(-EINVAL, "%s holds adapters beside a whole model", e->folder);
    else if (c.foreign)
        code = checkpoint_open_foreign_part(e->folder, PART_MASTER, &e->model);
    else
        code = zinf_tensors_open(&e->model, e->folder);
    if (!code && !c.foreign && c.dtype != ZINF_DTYPE_F32) {
        path = zinf_path_join(e->folder, name);
        code = path ? zinf_tensors_open(&e->masters, path) : -ENOMEM;
    }
    free(path);
    checkpoint_fini(&c);
    return code;
}

/* A checkpoint, or else a model folder as it is. */
static int open_source(struct exporting *e)
{
    const char *named = e->options->checkpoint;
    char *config = zinf_path_join(named, "config.json");
    struct zinf_origin read = {"--checkpoint", named};
    const struct zinf_origins origins = {&read, 1};
    int code = zinf_apart_check("--output", e->options->output, ZINF_WRITTEN_FILE, &origins);
    if (!code)
        code = zinf_checkpoint_find(named, &e->folder);
    if (!code)
        code = open_checkpoint(e);
    else if (code == -ENOENT && config && !access(config, F_OK)) {
        e->folder = strdup(named);
        code = e->folder ? zinf_tensors_open(&e->model, named) : -ENOMEM;
    }
    free(config);
    config = code ? NULL : zinf_path_join(e->folder, "config.json");
    if (!code)
        code =
            config ? zinf_json_read_file(config, 1u << 24, ZINF_JSON_STRICT, &e->config) : -ENOMEM;
    free(config);
    return code ? code : gguf_family_find(&e->family, e->config);
}

/* ---- declaring ---- */

/* The matrices that llama.cpp's q4_k_m keeps in 6 bits: the last one, also where it is the
 * embedding, and in some layers those whose errors cost most. Its attn_qkv has 5 bits, here 6. */
static bool keeps_more(const struct exporting *e, const struct tensor *t)
{
    static const char *const layers_keys[] = {"num_hidden_layers", "n_layer", NULL};
    int64_t n = gguf_integer(e->config, layers_keys, 0);
    unsigned layer = 0;
    int used = 0;
    bool tied =
        !zinf_tensors_find(e->model, "lm_head.weight") || !strncmp(e->family->type, "gemma", 5);
    if (sscanf(t->name, "blk.%5u.%n", &layer, &used) != 1 || !used)
        return !strcmp(t->name, "output.weight") || (tied && !strcmp(t->name, "token_embd.weight"));
    const char *part = t->name + used;
    bool costly = layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    return !strcmp(part, "attn_qkv.weight") ||
           (costly && (!strcmp(part, "attn_v.weight") || !strcmp(part, "ffn_down.weight")));
}

/* Small ones, norms and positions keep their precision; the first and the last matrix keep more
 * than 4 bits. */
static enum zinf_gguf_form form_of(const struct exporting *e, const struct tensor *t, uint64_t row)
{
    enum zinf_gguf_form form = e->options->form;
    size_t n = strlen(t->name);
    if (t->info->rank < 2 || (n > 12 && !strcmp(t->name + n - 12, "_norm.weight")) ||
        !strcmp(t->name, "position_embd.weight") || t->change == GGUF_FLAT)
        return ZINF_GGUF_F32;
    if (form == ZINF_GGUF_Q4_0 &&
        (!strcmp(t->name, "token_embd.weight") || !strcmp(t->name, "output.weight")))
        form = ZINF_GGUF_Q8_0;
    if (form == ZINF_GGUF_Q4_K)
        form = row % zinf_gguf_block_elems(form) ? ZINF_GGUF_Q8_0
               : keeps_more(e, t)                ? ZINF_GGUF_Q6_K
                                                 : form;
    return row % zinf_gguf_block_elems(form) ? ZINF_GGUF_F16 : form;
}

static int declare_tensor(struct exporting *e, struct tensor *t)
{
    uint64_t shape[ZINF_TENSOR_MAX_RANK];
    int rank = t->info->rank;
    memcpy(shape, t->info->shape, sizeof shape);
    if (t->change == GGUF_TURNED && rank == 2) {
        shape[0] = t->info->shape[1];
        shape[1] = t->info->shape[0];
    }
    if (rank < 1)
        return zinf_fail(-ENOTSUP, "tensor %s is a single number", t->info->name);
    if (t->change == GGUF_FLAT && rank == 3 && shape[1] == 1)
        shape[--rank - 1] = shape[2];
    return zinf_gguf_declare(e->to, t->name, form_of(e, t, shape[rank - 1]), rank, shape);
}

static int declare_all(struct exporting *e)
{
    uint64_t count = zinf_tensors_count(e->model);
    int code = 0;
    e->tensors = calloc(count + 1, sizeof *e->tensors);
    if (!e->tensors)
        return zinf_fail(-ENOMEM, "no memory to export %s", e->folder);
    e->n_factors = gguf_rope_factors(e->family, e->config, &e->factors);
    if (e->n_factors)
        code = zinf_gguf_declare(e->to, "rope_freqs.weight", ZINF_GGUF_F32, 1, &e->n_factors);
    for (uint64_t i = 0; !code && i < count; i++) {
        struct tensor *t = &e->tensors[e->n];
        t->info = zinf_tensors_at(e->model, i);
        t->scale = 1;
        code = gguf_name(e->family, t->info->name, t->name, &t->change);
        if (!code && t->change != GGUF_LEFT_OUT) {
            code = declare_tensor(e, t);
            e->n++;
        }
    }
    return code;
}

/* ---- numbers ---- */

static int read_values(const struct exporting *e, const struct tensor *t, uint64_t first,
                       uint64_t n, float *out)
{
    const struct zinf_tensor_info *master =
        e->masters ? zinf_tensors_find(e->masters, t->info->name) : NULL;
    int code = zinf_tensors_read_f32(master ? e->masters : e->model, master ? master : t->info,
                                     first, n, out);
    for (uint64_t i = 0; !code && t->change == GGUF_PLUS_ONE && i < n; i++)
        out[i] += 1;
    for (uint64_t i = 0; !code && t->scale != 1 && i < n; i++)
        out[i] *= t->scale;
    return code;
}

/* Of the row that is stored as number `row`, the place in the folder's: within a head, pairs
 * (i, i + half) come to lie together. */
static uint64_t source_row(uint64_t row, uint64_t head_rows)
{
    uint64_t in_head = row % head_rows;
    return row - in_head + in_head / 2 + in_head % 2 * (head_rows / 2);
}

static int copy_rotated(const struct exporting *e, const struct tensor *t, float *block)
{
    static const char *const q_keys[] = {"num_attention_heads", NULL};
    static const char *const kv_keys[] = {"num_key_value_heads", "num_attention_heads", NULL};
    int64_t heads = gguf_integer(e->config, t->change == GGUF_ROTATED_Q ? q_keys : kv_keys, 0);
    uint64_t rows = t->info->shape[0], width = t->info->n_elems / (rows ? rows : 1);
    if (heads < 1 || rows % (uint64_t)heads || rows / (uint64_t)heads % 2 || width > BLOCK_ELEMS)
        return zinf_fail(-EINVAL, "%s does not fit the heads of config.json", t->info->name);
    int code = 0;
    for (uint64_t row = 0; !code && row < rows; row++) {
        code = read_values(e, t, source_row(row, rows / (uint64_t)heads) * width, width, block);
        if (!code && t->info->rank > 1)
            code = zinf_gguf_append(e->to, block, width);
        else if (!code)
            code = zinf_gguf_append(e->to, block, 1);
    }
    return code;
}

static int copy_turned(const struct exporting *e, const struct tensor *t)
{
    uint64_t rows = t->info->shape[0], columns = t->info->shape[1];
    float *whole = malloc((t->info->n_elems + 1) * sizeof *whole);
    float *row = malloc((rows + 1) * sizeof *row);
    int code = whole && row ? read_values(e, t, 0, t->info->n_elems, whole)
                            : zinf_fail(-ENOMEM, "no memory for %s", t->info->name);
    for (uint64_t c = 0; !code && c < columns; c++) {
        for (uint64_t r = 0; r < rows; r++)
            row[r] = whole[r * columns + c];
        code = zinf_gguf_append(e->to, row, rows);
    }
    free(whole);
    free(row);
    return code;
}

static int copy_tensor(const struct exporting *e, const struct tensor *t, float *block)
{
    if (t->change == GGUF_ROTATED_Q || t->change == GGUF_ROTATED_K)
        return copy_rotated(e, t, block);
    if (t->change == GGUF_TURNED && t->info->rank == 2)
        return copy_turned(e, t);
    int code = 0;
    for (uint64_t at = 0; !code && at < t->info->n_elems; at += BLOCK_ELEMS) {
        uint64_t left = t->info->n_elems - at, n = left < BLOCK_ELEMS ? left : BLOCK_ELEMS;
        code = read_values(e, t, at, n, block);
        if (!code)
            code = zinf_gguf_append(e->to, block, n);
    }
    return code;
}

static int copy_all(const struct exporting *e)
{
    float *block = malloc(BLOCK_ELEMS * sizeof *block);
    int code = block ? 0 : zinf_fail(-ENOMEM, "no memory to export %s", e->folder);
    if (!code && e->n_factors)
        code = zinf_gguf_append(e->to, e->factors, e->n_factors);
    for (uint64_t i = 0; !code && i < e->n; i++)
        code = copy_tensor(e, &e->tensors[i], block);
    free(block);
    return code ? code : zinf_gguf_finish(e->to);
}

/* ---- the whole ---- */

/* What llama.cpp calls the file as a whole. */
static uint32_t file_type(enum zinf_gguf_form form)
{
    return form == ZINF_GGUF_Q4_0   ? 2
           : form == ZINF_GGUF_Q8_0 ? 7
           : form == ZINF_GGUF_Q4_K ? 15
           : form == ZINF_GGUF_BF16 ? 32
                                    : form;
}

static int add_keys(struct exporting *e)
{
    static const char *const vocab_keys[] = {"vocab_size", NULL};
    const char *slash = strrchr(e->options->output, '/');
    char name[128];
    snprintf(name, sizeof name, "%s", slash ? slash + 1 : e->options->output);
    if (strlen(name) > 5 && !strcmp(name + strlen(name) - 5, ".gguf"))
        name[strlen(name) - 5] = 0;
    gguf_add_parameters(e->to, e->family, e->config);
    zinf_gguf_text(e->to, "general.name", name);
    zinf_gguf_u32(e->to, "general.file_type", file_type(e->options->form));
    zinf_gguf_u32(e->to, "general.quantization_version", 2);
    return gguf_add_vocab(e->to, e->folder, e->config,
                          (uint64_t)gguf_integer(e->config, vocab_keys, 0));
}

static int write_file(struct exporting *e, int (*declares)(struct exporting *e))
{
    const char *output = e->options->output;
    int code =
        access(output, F_OK)
            ? zinf_gguf_writer_create(&e->to, output)
            : zinf_fail(-EEXIST, "--output %s is there already: name another file, or remove it",
                        output);
    if (!code)
        code = declares(e);
    if (!code)
        code = zinf_gguf_begin(e->to);
    return code ? code : copy_all(e);
}

static void close_all(struct exporting *e)
{
    zinf_gguf_writer_destroy(e->to);
    zinf_tensors_close(e->masters);
    zinf_tensors_close(e->model);
    zinf_adapter_choice_close(e->choice);
    cJSON_Delete(e->config);
    free(e->tensors);
    free(e->factors);
    free(e->folder);
}

/* What such a family's config.json has is made smaller by rules of its own: the tensors tell. */
static int measure_ffn(struct exporting *e)
{
    enum gguf_change change;
    char name[96];
    for (uint64_t i = 0; e->family->keys & KEY_CONVS && i < zinf_tensors_count(e->model); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(e->model, i);
        int code = gguf_name(e->family, info->name, name, &change);
        if (code)
            return code;
        if (strcmp(name, GGUF_CONVS_UP))
            continue;
        cJSON_DeleteItemFromObjectCaseSensitive(e->config, "intermediate_size");
        cJSON_AddNumberToObject(e->config, "intermediate_size", (double)info->shape[0]);
    }
    return 0;
}

static int declare_model(struct exporting *e)
{
    int code = measure_ffn(e);
    if (!code)
        code = add_keys(e);
    return code ? code : declare_all(e);
}

static int export_model(const struct zinf_gguf_options *options)
{
    struct exporting e = {.options = options};
    int code = options->base ? zinf_fail(-EINVAL, "--model is the base of adapters, and %s is none",
                                         options->checkpoint)
                             : open_source(&e);
    if (!code)
        code = write_file(&e, declare_model);
    close_all(&e);
    return code;
}

/* ---- adapters ---- */

/* A and B are those of PEFT, whatever way around the base has its matrix; of a projection whose
 * rows change places B does, too. llama.cpp scales all products by one alpha / rank: where a module
 * differs from the first, its A has the rest. */
static int declare_matrix(struct exporting *e, struct tensor *t)
{
    char path[ZINF_ADAPTER_PATH], module[ZINF_ADAPTER_PATH + 8];
    const enum zinf_adapter_matrix which = zinf_adapter_matrix_of(t->info->name, path);
    int64_t rank;
    double scale;
    if (which == ZINF_ADAPTER_OTHER || t->info->rank != 2)
        return zinf_fail(-ENOTSUP,
                         "%s: %s is not of a low-rank sum, and llama.cpp's adapters have nothing "
                         "else: merge the adapter (zinf export --merge) and export that",
                         e->folder, t->info->name);
    snprintf(module, sizeof module, "%s.weight", path);
    int code = gguf_name(e->family, module, t->name, &t->change);
    if (!code)
        code = zinf_adapter_choice_module(e->choice, path, &rank, &scale);
    if (code)
        return code;
    const bool is_a = which == ZINF_ADAPTER_A;
    const size_t used = strlen(t->name);
    const double alpha = scale * (double)rank;
    if (t->info->shape[is_a ? 0 : 1] != (uint64_t)rank || used + 8 > sizeof t->name)
        return zinf_fail(-EINVAL, "%s: %s is not of the rank that %s gives, %lld", e->folder,
                         t->info->name, ZINF_ADAPTER_CONFIG, (long long)rank);
    e->alpha = e->alpha > 0 ? e->alpha : alpha;
    t->scale = is_a && e->alpha != alpha ? (float)(alpha / e->alpha) : 1;
    if (is_a || (t->change != GGUF_ROTATED_Q && t->change != GGUF_ROTATED_K))
        t->change = GGUF_AS_IT_IS;
    snprintf(t->name + used, sizeof t->name - used, "%s", is_a ? ".lora_a" : ".lora_b");
    return declare_tensor(e, t);
}

static int declare_adapter(struct exporting *e)
{
    const uint64_t count = zinf_tensors_count(e->model);
    int code = 0;
    e->tensors = calloc(count + 1, sizeof *e->tensors);
    if (!e->tensors)
        return zinf_fail(-ENOMEM, "no memory to export %s", e->folder);
    for (; !code && e->n < count; e->n++) {
        e->tensors[e->n].info = zinf_tensors_at(e->model, e->n);
        code = declare_matrix(e, &e->tensors[e->n]);
    }
    zinf_gguf_text(e->to, "general.architecture", e->family->architecture);
    zinf_gguf_text(e->to, "general.type", "adapter");
    zinf_gguf_text(e->to, "adapter.type", "lora");
    zinf_gguf_f32(e->to, "adapter.lora.alpha", e->alpha);
    zinf_gguf_u32(e->to, "general.quantization_version", 2);
    return code;
}

/* Opens the adapter's weights; of the base only its configuration is read. */
static int open_adapter(struct exporting *e)
{
    cJSON *adapter = NULL;
    char *base = NULL, *path = zinf_path_join(e->folder, ZINF_ADAPTER_WEIGHTS);
    int code = path ? zinf_adapter_read_config(e->folder, &adapter) : -ENOMEM;
    if (!code && cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(adapter, "target_parameters")))
        code = zinf_fail(-ENOTSUP,
                         "%s: its target_parameters have no place in llama.cpp's adapters: merge "
                         "the adapter (zinf export --merge) and export that",
                         e->folder);
    if (!code)
        code = merge_find_base(e->folder, adapter, e->options->base, &base);
    if (!code)
        code = zinf_adapter_choice_open(&e->choice, adapter, e->folder);
    if (!code)
        code = identity_check_own(e->folder);
    if (code >= 0)
        code = zinf_tensors_open(&e->model, path);
    free(path);
    path = code ? NULL : zinf_path_join(base, "config.json");
    if (!code)
        code = path ? zinf_json_read_file(path, 1u << 24, ZINF_JSON_STRICT, &e->config) : -ENOMEM;
    if (!code)
        code = gguf_family_find(&e->family, e->config);
    free(path);
    free(base);
    cJSON_Delete(adapter);
    return code;
}

static int export_adapter(const struct zinf_gguf_options *options)
{
    struct exporting e = {.options = options};
    struct zinf_origin read = {"--checkpoint", options->checkpoint};
    const struct zinf_origins origins = {&read, 1};
    int code = zinf_apart_check("--output", options->output, ZINF_WRITTEN_FILE, &origins);
    if (!code && (options->form == ZINF_GGUF_Q4_0 || options->form == ZINF_GGUF_Q4_K))
        code = zinf_fail(-EINVAL,
                         "%s holds adapters, whose matrices are too small for 4 bits: "
                         "--gguf f32, f16, bf16 or q8_0",
                         options->checkpoint);
    if (!code)
        code = merge_find_folder(options->checkpoint, &e.folder);
    if (!code)
        code = open_adapter(&e);
    if (!code)
        code = write_file(&e, declare_adapter);
    close_all(&e);
    return code;
}

/* PEFT's folder, or a checkpoint of one. */
static bool is_adapter(const char *named)
{
    char *config = zinf_path_join(named, ZINF_ADAPTER_CONFIG), *folder = NULL;
    bool is = config && !access(config, F_OK);
    if (config && !is && !zinf_checkpoint_find(named, &folder)) {
        free(config);
        config = zinf_path_join(folder, ZINF_ADAPTER_CONFIG);
        is = config && !access(config, F_OK);
    }
    free(config);
    free(folder);
    return is;
}

int zinf_gguf_export(const struct zinf_gguf_options *options)
{
    return is_adapter(options->checkpoint) ? export_adapter(options) : export_model(options);
}

/*
 * gguf_export: a checkpoint's masters, or a model folder, as one file of llama.cpp's. Tensors are
 * streamed by rows; only matrices that are stored the other way around are in memory whole.
 */
#include "base/apart.h"
#include "train/checkpoints.h"
#include "train/save/checkpoint.h"
#include "train/save/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BLOCK_ELEMS ((uint64_t)1 << 20)

struct tensor {
    const struct zinf_tensor_info *info; /* of the model's file */
    char name[96];                       /* theirs */
    enum gguf_change change;
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
        code = zinf_fail(-EINVAL, "%s holds adapters: add them to their base with --merge first",
                         e->folder);
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
        !strcmp(t->name, "position_embd.weight"))
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

int zinf_gguf_export(const struct zinf_gguf_options *options)
{
    struct exporting e = {.options = options};
    int code = open_source(&e);
    if (!code && !access(options->output, F_OK))
        code = zinf_fail(-EEXIST, "--output %s is there already: name another file, or remove it",
                         options->output);
    if (!code)
        code = zinf_gguf_writer_create(&e.to, options->output);
    if (!code)
        code = add_keys(&e);
    if (!code)
        code = declare_all(&e);
    if (!code)
        code = zinf_gguf_begin(e.to);
    if (!code)
        code = copy_all(&e);
    zinf_gguf_writer_destroy(e.to);
    zinf_tensors_close(e.masters);
    zinf_tensors_close(e.model);
    cJSON_Delete(e.config);
    free(e.tensors);
    free(e.factors);
    free(e.folder);
    return code;
}

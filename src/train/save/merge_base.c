/*
 * merge_base: what becomes of the tensors of the base's file. An adapter may have a copy that takes
 * the place of one. Of a base whose folder is quantised: with the base's number types a weight that
 * nothing changes stays as it is, byte for byte, and one that an adapter changes is written as
 * numbers, with all that are one matrix with it here; the folder then has both, and config.json
 * says which. With a number type all are written as numbers.
 */
#include "train/save/merge.h"

#include <stdlib.h>

const struct zinf_tensor_info *merge_find_copy(const struct merging *m, const char *name)
{
    const struct zinf_family *family = zinf_model_family(m->model);
    char base[160];
    for (uint64_t i = 0; i < zinf_tensors_count(m->adapter); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(m->adapter, i);
        const struct zinf_file_tensor *t = zinf_file_map_find(m->files, info->name);
        if (!t || !t->parts[0].piece->of_base)
            continue;
        zinf_adapter_base_name(base, info->name);
        if (!strcmp(base, name) || !strcmp(zinf_family_bare_name(family, base), name))
            return info;
    }
    return NULL;
}

/* ---- quantised ---- */

/* Whether an adapter changes the weight, or one that is a matrix with it. */
static bool is_changed(const struct merging *m, const struct zinf_file_tensor *weight)
{
    const struct zinf_graph *g = zinf_model_graph(m->model);
    const struct zinf_tensor *t = weight->parts[0].tensor;
    char name[200];
    for (uint32_t i = 0; i < g->n_adapted; i++)
        if (t == &g->units[g->adapted[i].unit].tensors[g->adapted[i].tensor])
            return true;
    for (uint32_t p = 0; p < t->n_pieces; p++)
        if (merge_find_copy(m, zinf_piece_name(&t->pieces[p], zinf_model_family(m->model)->prefix,
                                               name, sizeof name)))
            return true;
    return false;
}

enum merge_fate merge_fate_of(const struct merging *m, const struct zinf_tensor_info *info,
                              struct zinf_tensor_info *plain)
{
    const char *bare = zinf_family_bare_name(zinf_model_family(m->model), info->name);
    const struct zinf_file_tensor *weight = transfer_quantized_of(m->model, m->files, bare);
    *plain = *info;
    if (!weight)
        return MERGE_NUMBERS;
    if (m->options->as_base && !is_changed(m, weight))
        return MERGE_KEPT;
    const struct zinf_piece *piece = weight->parts[0].piece;
    const struct zinf_tensor *t = weight->parts[0].tensor;
    if (t->form == ZINF_FORM_MXFP4 || piece->transposed) {
        (void)zinf_fail(-ENOTSUP,
                        "%s: %s is in %s, and cannot be written as numbers: leave out --dtype, and "
                        "weights that no adapter changes stay as they are",
                        m->base, weight->name, zinf_form_name(t->form));
        return MERGE_REFUSED;
    }
    if (strcmp(bare, weight->name))
        return MERGE_DROPPED;
    const struct zinf_quantized as = zinf_piece_quantized(t, piece);
    plain->rank = 2;
    plain->shape[0] = as.rows, plain->shape[1] = as.cols;
    plain->n_elems = as.n_elems;
    plain->dtype = zinf_file_dtype_from_dtype(zinf_model_facts(m->model)->file_dtype);
    return MERGE_OPENED;
}

static int note_module(struct merging *m, const char *weight)
{
    const size_t n = strlen(weight), tail = strlen(".weight");
    char module[200];
    snprintf(module, sizeof module, "%.*s", (int)(n > tail ? n - tail : n), weight);
    m->opened = m->opened ? m->opened : cJSON_CreateArray();
    if (cJSON_AddItemToArray(m->opened, cJSON_CreateString(module)))
        return 0;
    return zinf_fail(-ENOMEM, "no memory for the name %s", module);
}

int merge_open_weight(struct merging *m, const struct zinf_tensor_info *plain)
{
    const char *bare = zinf_family_bare_name(zinf_model_family(m->model), plain->name);
    const struct zinf_file_tensor *weight = zinf_file_map_find(m->files, bare);
    m->as = zinf_piece_quantized(weight->parts[0].tensor, weight->parts[0].piece);
    m->image = malloc(m->as.bytes);
    if (!m->image)
        return zinf_fail(-ENOMEM, "no memory for %s", plain->name);
    int code = transfer_read_quantized(&m->as, m->weights, m->base, plain->name, m->image);
    return code ? code : note_module(m, plain->name);
}

void merge_close_weight(struct merging *m)
{
    free(m->image);
    m->image = NULL;
}

int merge_read_base(const struct merging *m, const struct zinf_tensor_info *info, uint64_t at,
                    uint64_t n)
{
    if (!m->image)
        return zinf_tensors_read_f32(m->weights, m->slabs ? m->slabs : info, m->slab_at + at, n,
                                     m->block);
    const struct zinf_dequantize args = {
        .quantized = m->as,
        .image = m->image,
        .from_first = (int64_t)(at / m->as.cols),
        .rows = (int64_t)(n / m->as.cols),
        .count = 1,
        .dtype = ZINF_DTYPE_F32,
        .w = m->block,
    };
    return m->device->ops->dequantize(m->queue, &args);
}

/* Without a list of its own bitsandbytes leaves out the output layer, and with one only what it
 * names. */
static void skip_opened(cJSON *quantized, const cJSON *opened)
{
    const bool bytes = cJSON_HasObjectItem(quantized, "load_in_4bit") ||
                       cJSON_HasObjectItem(quantized, "load_in_8bit");
    const char *key = bytes ? "llm_int8_skip_modules" : "modules_to_not_convert";
    cJSON *skip = cJSON_GetObjectItemCaseSensitive(quantized, key);
    const cJSON *module;
    if (!cJSON_IsArray(skip)) {
        cJSON_DeleteItemFromObjectCaseSensitive(quantized, key);
        skip = cJSON_AddArrayToObject(quantized, key);
        cJSON_AddItemToArray(skip, cJSON_CreateString("lm_head"));
    }
    cJSON_ArrayForEach(module, opened)
    {
        cJSON_AddItemToArray(skip, cJSON_Duplicate(module, true));
    }
}

cJSON *merge_config(const struct merging *m)
{
    cJSON *config = cJSON_Duplicate(zinf_model_config(m->model), true);
    cJSON *quantized = cJSON_GetObjectItemCaseSensitive(config, "quantization_config");
    if (quantized && !m->options->as_base)
        cJSON_DeleteItemFromObjectCaseSensitive(config, "quantization_config");
    else if (quantized && m->opened)
        skip_opened(quantized, m->opened);
    return config;
}

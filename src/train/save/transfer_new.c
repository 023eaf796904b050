/*
 * transfer_new: model folders without a trainer: what `zinf init` writes, and config.json. Fresh
 * weights are functions of the tensor's name and the element's number, so they stream in the file's
 * own order through a few MiB, and a trainer that starts from them has the same.
 */
#include "train/save/transfer.h"

#include <stdlib.h>

#define BLOCK_ELEMS ((uint64_t)1 << 20)

int transfer_write_config(const cJSON *config, enum zinf_dtype dtype, const char *folder)
{
    static const char *const names[] = {"float32", "bfloat16", "float16"};
    cJSON *copy = cJSON_Duplicate(config, true);
    char *text = NULL, *path = zinf_path_join(folder, "config.json");
    int code = -ENOMEM;
    if (!copy || !path)
        goto out;
    const char *key = cJSON_GetObjectItemCaseSensitive(copy, "dtype") ? "dtype" : "torch_dtype";
    cJSON_DeleteItemFromObjectCaseSensitive(copy, key);
    cJSON_AddStringToObject(copy, key, names[dtype]);
    text = zinf_json_print(copy);
    if (text)
        code = zinf_file_write_atomic(path, text, strlen(text));
out:
    cJSON_Delete(copy);
    cJSON_free(text);
    free(path);
    return code == -ENOMEM ? zinf_fail(code, "no memory to write %s/config.json", folder) : code;
}

int zinf_model_write_config(const cJSON *config, enum zinf_dtype dtype, const char *folder)
{
    int code = zinf_make_dirs(folder);
    return code ? code : transfer_write_config(config, dtype, folder);
}

/* Where fresh weights go, in which number type. */
struct fresh {
    struct zinf_tensors_writer *writer;
    enum zinf_dtype dtype;
    uint64_t seed;
    float *block; /* [BLOCK_ELEMS] */
    void *packed; /* [BLOCK_ELEMS] */
};

/* All parts of a tensor of the file begin alike. */
static int append(const struct fresh *f, const struct zinf_file_tensor *t)
{
    const uint64_t elems = zinf_file_tensor_elems(t);
    const enum zinf_dtype dtype = transfer_file_dtype(t, f->dtype);
    int code = 0;
    for (uint64_t at = 0; !code && at < elems; at += BLOCK_ELEMS) {
        uint64_t n = elems - at < BLOCK_ELEMS ? elems - at : BLOCK_ELEMS;
        zinf_tensor_init_fill(t->parts[0].tensor, t->parts[0].piece, f->seed, at, n, f->block);
        zinf_convert(f->packed, dtype, f->block, ZINF_DTYPE_F32, n);
        code = zinf_tensors_writer_append(f->writer, f->packed, n * zinf_dtype_bytes(dtype));
    }
    return code;
}

static int append_all(const struct fresh *f, const struct zinf_model *model)
{
    struct zinf_file_map *files = NULL;
    const char *prefix = zinf_model_family(model)->prefix;
    int code = zinf_file_map_create(&files, zinf_model_graph(model));
    for (uint32_t i = 0; !code && i < 2 * files->n_tensors; i++) {
        const struct zinf_file_tensor *t = transfer_ordered(files, i);
        code = t ? transfer_declare(f->writer, t, prefix, f->dtype) : 0;
    }
    if (!code)
        code = zinf_tensors_writer_begin(f->writer);
    for (uint32_t i = 0; !code && i < 2 * files->n_tensors; i++) {
        const struct zinf_file_tensor *t = transfer_ordered(files, i);
        code = t ? append(f, t) : 0;
    }
    zinf_file_map_destroy(files);
    return code ? code : zinf_tensors_writer_finish(f->writer);
}

int zinf_model_write_new(const cJSON *config, enum zinf_dtype dtype, uint64_t seed,
                         const char *folder)
{
    struct zinf_tensors_writer_options options = {.path = folder};
    struct zinf_model *model = NULL;
    struct fresh f = {.dtype = dtype, .seed = seed};
    f.block = malloc(2 * BLOCK_ELEMS * sizeof *f.block);
    int code = f.block ? zinf_model_from_json(&model, config, "the new model")
                       : zinf_fail(-ENOMEM, "no memory for a block of weights");
    if (!code) {
        f.packed = f.block + BLOCK_ELEMS;
        code = zinf_make_dirs(folder);
    }
    if (!code)
        code = zinf_tensors_writer_create(&f.writer, &options);
    if (!code)
        code = append_all(&f, model);
    if (!code)
        code = transfer_write_config(zinf_model_config(model), dtype, folder);
    zinf_tensors_writer_destroy(f.writer);
    zinf_model_close(model);
    free(f.block);
    return code;
}

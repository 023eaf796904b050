/*
 * layers_import: a model folder for the layers of a pipeline (gdGPT's, DeepSpeed's), whose weights
 * stay where they are. In the file of a layer names begin anew: the model's names follow from what
 * config.json asks for. A block's tensors are those behind its number. A tensor of the first or the
 * last layer is the one whose name ends alike; one of the last layer whose name the first has, too,
 * is what is left of its shape, and if nothing is, the first's.
 */
#include "base/cache.h"
#include "base/folder.h"
#include "model/model.h"
#include "model/tensors.h"
#include "train/checkpoints.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <xxhash.h>

    struct importing {
    const char *path;
    char *folder;
    int64_t n_layers;
    struct zinf_model *model;
    struct zinf_file_map *wanted;
    bool *taken;      /* [wanted->n_tensors] */
    char blocks[160]; /* what the names of blocks' tensors begin with, before the number */
    cJSON *map;
};

static const char *wanted_name(const struct importing *im, uint32_t i, char name[160])
{
    return zinf_file_tensor_name(&im->wanted->tensors[i], zinf_model_family(im->model)->prefix,
                                 name, 160);
}

static bool ends_with(const char *name, const char *tail)
{
    const size_t n = strlen(name), m = strlen(tail);
    return n >= m && !strcmp(name + n - m, tail) && (n == m || name[n - m - 1] == '.');
}

/* ---- blocks ---- */

/* Where "0.TAIL" begins in a name that ends so, or NULL. */
static const char *first_block_at(const char *name, const char *tail)
{
    const size_t n = strlen(name), m = strlen(tail);
    if (!ends_with(name, tail) || n < m + 2 || name[n - m - 2] != '0' ||
        (n > m + 2 && name[n - m - 3] != '.'))
        return NULL;
    return name + n - m - 2;
}

static int find_blocks(struct importing *im, const struct zinf_tensors *layer)
{
    char name[160];
    for (uint64_t t = 0; t < zinf_tensors_count(layer); t++)
        for (uint32_t i = 0; i < im->wanted->n_tensors; i++) {
            const char *tail = zinf_tensors_at(layer, t)->name;
            const char *at = first_block_at(wanted_name(im, i, name), tail);
            if (!at)
                continue;
            snprintf(im->blocks, sizeof im->blocks, "%.*s", (int)(at - name), name);
            return 0;
        }
    return zinf_fail(-EINVAL,
                     "%s: the tensors of layer 1 are none of a block of the model that config.json "
                     "describes",
                     im->path);
}

static bool is_of_block(const struct importing *im, const char *name)
{
    const size_t n = strlen(im->blocks);
    return !strncmp(name, im->blocks, n) && isdigit((unsigned char)name[n]);
}

/* ---- the first and the last layer ---- */

static bool has_shape(const struct zinf_file_tensor *t, const struct zinf_tensor_info *info)
{
    bool same = info->rank == t->rank;
    for (int i = 0; same && i < t->rank; i++)
        same = info->shape[i] == t->shape[i];
    return same;
}

/* A tensor outside of blocks that is still free, by its name's end or by its shape. */
static int64_t find_outside(const struct importing *im, const struct zinf_tensor_info *info,
                            bool by_shape)
{
    const char *dot = strrchr(info->name, '.');
    char name[160];
    for (uint32_t i = 0; i < im->wanted->n_tensors; i++) {
        if (im->taken[i] || is_of_block(im, wanted_name(im, i, name)))
            continue;
        const bool alike = by_shape ? has_shape(&im->wanted->tensors[i], info) &&
                                          ends_with(name, dot ? dot + 1 : info->name)
                                    : ends_with(name, info->name);
        if (alike)
            return i;
    }
    return -1;
}

/* ---- the index ---- */

static int add_name(struct importing *im, cJSON *names, const struct zinf_tensor_info *info,
                    int64_t layer)
{
    char name[160], block[400];
    const bool last = layer == im->n_layers - 1;
    if (layer && !last) {
        snprintf(block, sizeof block, "%s%lld.%s", im->blocks, (long long)layer - 1, info->name);
        return cJSON_AddStringToObject(names, info->name, block) ? 0 : -ENOMEM;
    }
    int64_t i = find_outside(im, info, false);
    if (i < 0)
        i = find_outside(im, info, true);
    if (i < 0) /* the head that is the table, and what no weight is */
        return 0;
    im->taken[i] = true;
    return cJSON_AddStringToObject(names, info->name, wanted_name(im, (uint32_t)i, name)) ? 0
                                                                                          : -ENOMEM;
}

static int add_layer(struct importing *im, int64_t layer)
{
    struct zinf_tensors *tensors = NULL;
    char file[96];
    zinf_layers_file(im->path, layer, file, sizeof file);
    char *path = zinf_path_join(im->path, file);
    int code = path ? zinf_tensors_open(&tensors, path) : -ENOMEM;
    cJSON *names = code ? NULL : cJSON_AddObjectToObject(im->map, file);
    if (!code && !names)
        code = -ENOMEM;
    if (!code && layer == 1)
        code = find_blocks(im, tensors);
    for (uint64_t t = 0; !code && t < zinf_tensors_count(tensors); t++)
        code = add_name(im, names, zinf_tensors_at(tensors, t), layer);
    zinf_tensors_close(tensors);
    free(path);
    return code == -ENOMEM ? zinf_fail(code, "no memory for the index of %s", im->path) : code;
}

/* Blocks before the first layer: only with them are its tensors told from theirs. */
static int add_layers(struct importing *im)
{
    int code = im->n_layers < 3 ? zinf_fail(-EINVAL,
                                            "%s has %lld layers: of a model there are the "
                                            "table, blocks and the head",
                                            im->path, (long long)im->n_layers)
                                : 0;
    for (int64_t layer = 1; !code && layer < im->n_layers - 1; layer++)
        code = add_layer(im, layer);
    if (!code)
        code = add_layer(im, 0);
    return code ? code : add_layer(im, im->n_layers - 1);
}

static int write_index(const struct importing *im, const char *whole)
{
    cJSON *index = cJSON_CreateObject();
    char *path = zinf_path_join(im->folder, ZINF_LAYERS_INDEX), *text = NULL;
    if (index && cJSON_AddStringToObject(index, "folder", whole) &&
        cJSON_AddItemReferenceToObject(index, "weight_map", im->map))
        text = zinf_json_print(index);
    int code = path && text ? zinf_file_write_atomic(path, text, strlen(text))
                            : zinf_fail(-ENOMEM, "no memory for the index of %s", im->path);
    cJSON_free(text);
    cJSON_Delete(index);
    free(path);
    return code;
}

/* ---- the folder ---- */

/* By place, sizes and times: other layers never meet a folder that is stale. */
static int sum_layers(const struct importing *im, const char *whole, uint64_t *sum)
{
    *sum = XXH3_64bits(whole, strlen(whole));
    for (int64_t layer = -1; layer < im->n_layers; layer++) {
        char file[96];
        char *path = zinf_path_join(
            im->path,
            layer < 0 ? "config.json" : zinf_layers_file(im->path, layer, file, sizeof file));
        struct stat info;
        const bool there = path && !stat(path, &info);
        free(path);
        if (!there)
            return zinf_fail(-ENOENT,
                             "%s: layers of a pipeline are read together with config.json: copy "
                             "the model's there",
                             im->path);
        const int64_t of[] = {info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
        *sum = XXH3_64bits_withSeed(of, sizeof of, *sum);
    }
    return 0;
}

static int copy_config(const struct importing *im)
{
    char *from = zinf_path_join(im->path, "config.json"), *text = NULL;
    char *to = zinf_path_join(im->folder, "config.json");
    size_t bytes;
    int code = from && to ? zinf_file_read(from, (size_t)1 << 24, &text, &bytes) : -ENOMEM;
    if (!code)
        code = zinf_file_write_atomic(to, text, bytes);
    if (!code)
        code = zinf_folder_copy_companions(im->path, im->folder, ZINF_COMPANIONS_ALL);
    free(text);
    free(from);
    free(to);
    return code;
}

static int write_folder(struct importing *im)
{
    char *whole = realpath(im->path, NULL);
    const char *slash = whole ? strrchr(whole, '/') : NULL;
    uint64_t sum = 0;
    int code = whole ? sum_layers(im, whole, &sum)
                     : zinf_fail(-errno, "cannot open %s: %s", im->path, strerror(errno));
    if (!code)
        code = zinf_model_open(&im->model, im->path);
    if (!code)
        code = zinf_file_map_create(&im->wanted, zinf_model_whole(im->model));
    im->taken = code ? NULL : calloc(im->wanted->n_tensors + 1, sizeof *im->taken);
    im->map = cJSON_CreateObject();
    if (!code && (!im->taken || !im->map))
        code = zinf_fail(-ENOMEM, "no memory to open %s", im->path);
    if (!code)
        code = add_layers(im);
    if (!code)
        code = zinf_cache_folder(&im->folder, "layers", slash + 1, sum);
    if (!code)
        code = copy_config(im);
    if (!code)
        code = write_index(im, whole);
    free(whole);
    return code;
}

bool zinf_is_layers(const char *path)
{
    static const char *const weights[] = {"model.safetensors", "model.safetensors.index.json",
                                          "pytorch_model.bin", "pytorch_model.bin.index.json",
                                          ZINF_LAYERS_INDEX};
    for (size_t i = 0; i < sizeof weights / sizeof *weights; i++)
        if (zinf_folder_has(path, weights[i]))
            return false;
    return zinf_layers_count(path) != 0;
}

int zinf_layers_as_folder(const char *path, char **folder)
{
    struct importing im = {.path = path, .n_layers = zinf_layers_count(path)};
    int code = im.n_layers < 0 ? (int)im.n_layers : write_folder(&im);
    if (!code) {
        *folder = im.folder;
        im.folder = NULL;
    }
    zinf_file_map_destroy(im.wanted);
    zinf_model_close(im.model);
    cJSON_Delete(im.map);
    free(im.taken);
    free(im.folder);
    return code;
}

/*
 * tensors_open: from a path to a list of tensors. A folder has one file or an index of shards, of
 * safetensors or of torch.save; headers are read at once and held.
 */
#include "formats/deepspeed.h"

#include "base/folder.h"
#include "formats/file_span.h"
#include "formats/tensors_index.h"
#include "formats/tensors_reader.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_INDEX_BYTES ((size_t)64 << 20)

/* ---- one file ---- */

static int read_safetensors(struct tensors_file *file, const uint8_t *first, uint64_t file_bytes)
{
    uint64_t json_bytes;
    int code = zinf_safetensors_length(file->path, first, file_bytes, &json_bytes);
    if (code)
        return code;
    char *json = malloc(json_bytes + 1);
    if (!json)
        return zinf_fail(-ENOMEM, "%s: no memory for a header of %llu bytes", file->path,
                         (unsigned long long)json_bytes);
    code =
        zinf_file_span_read(file->fd, file->path, json, json_bytes, ZINF_SAFETENSORS_LENGTH_BYTES);
    if (!code)
        code = zinf_safetensors_init(&file->header, file->path, json, json_bytes, file_bytes);
    free(json);
    return code;
}

/* What a file is, its first bytes say, not its name. */
static int read_header(struct tensors_file *file)
{
    uint8_t first[ZINF_SAFETENSORS_LENGTH_BYTES] = {0};
    uint64_t file_bytes;
    int code = file->fd = zinf_file_span_open(file->path, &file_bytes);
    if (code < 0)
        return code;
    code = 0;
    if (file_bytes >= sizeof first)
        code = zinf_file_span_read(file->fd, file->path, first, sizeof first, 0);
    if (!code && zinf_gguf_is(first)) {
        file->kind = TENSORS_GGUF;
        code = zinf_gguf_file_init(&file->gguf, file->path, file->fd, file_bytes);
        cJSON_Delete(file->gguf.keys); /* zinf_gguf_read_keys is for these */
        file->gguf.keys = NULL;
        return code;
    }
    if (!code)
        code = zinf_torch_file_is(file->path, first);
    if (code < 0)
        return code;
    file->kind = code ? TENSORS_TORCH : TENSORS_SAFE;
    return code ? zinf_torch_file_init(&file->torch, file->path, file->fd, file_bytes)
                : read_safetensors(file, first, file_bytes);
}

/* Moves the file's tensors to the end of the common list. */
static int take_tensors(struct zinf_tensors *tensors, uint32_t index)
{
    struct tensors_file *file = &tensors->files[index];
    struct zinf_tensor_info **const lists[] = {&file->header.tensors, &file->torch.tensors,
                                               &file->gguf.tensors};
    const uint64_t numbers[] = {file->header.n_tensors, file->torch.n_tensors,
                                file->gguf.n_tensors};
    struct zinf_tensor_info **from = lists[file->kind];
    uint64_t n = numbers[file->kind];
    uint64_t count = tensors->count + n;
    struct zinf_tensor_info *list = realloc(tensors->list, (count + 1) * sizeof *list);
    if (!list)
        return zinf_fail(-ENOMEM, "no memory for a list of %llu tensors",
                         (unsigned long long)count);
    tensors->list = list;
    memcpy(list + tensors->count, *from, n * sizeof *list);
    for (uint64_t i = tensors->count; i < count; i++)
        list[i].file = index;
    tensors->count = count;
    if (file->kind != TENSORS_GGUF) { /* its index is applied to its own list */
        free(*from);
        *from = NULL;
    }
    return 0;
}

static int fail_twice(const struct zinf_tensors *tensors, const struct zinf_tensor_info *one,
                      const struct zinf_tensor_info *other)
{
    const char *path = tensors->files[one->file].path;
    if (one->file == other->file)
        return zinf_fail(-EINVAL, "%s has two tensors '%s': write it again", path, one->name);
    return zinf_fail(-EINVAL, "tensor '%s' is in both %s and %s: remove the stale file", one->name,
                     path, tensors->files[other->file].path);
}

static int sort_names(struct zinf_tensors *tensors)
{
    const struct zinf_tensor_info **by_name = malloc((tensors->count + 1) * sizeof *by_name);
    if (!by_name)
        return zinf_fail(-ENOMEM, "no memory for a list of %llu tensors",
                         (unsigned long long)tensors->count);
    tensors->by_name = by_name;
    for (uint64_t i = 0; i < tensors->count; i++)
        by_name[i] = &tensors->list[i];
    qsort(by_name, tensors->count, sizeof *by_name, tensors_compare_names);
    for (uint64_t i = 1; i < tensors->count; i++)
        if (!strcmp(by_name[i - 1]->name, by_name[i]->name))
            return fail_twice(tensors, by_name[i - 1], by_name[i]);
    return 0;
}

/* Lists the tensors of files in their order. Takes ownership of the paths in paths[], also on
 * failure. */
static int list_files(struct zinf_tensors *tensors, char **paths, uint32_t n_files)
{
    int code = 0;
    tensors->files = calloc(n_files, sizeof *tensors->files);
    if (!tensors->files)
        code = zinf_fail(-ENOMEM, "no memory for %u files", n_files);
    for (uint32_t i = 0; i < n_files; i++) {
        if (code) {
            free(paths[i]);
            continue;
        }
        tensors->files[i].path = paths[i];
        tensors->n_files = i + 1;
        code = read_header(&tensors->files[i]);
        if (!code)
            code = take_tensors(tensors, i);
    }
    return code;
}

static int open_files(struct zinf_tensors *tensors, char **paths, uint32_t n_files)
{
    int code = list_files(tensors, paths, n_files);
    return code ? code : sort_names(tensors);
}

/* The index and the shards must say the same. */
static int compare_with_index(const struct zinf_tensors *tensors,
                              const struct zinf_tensors_index *index, const char *path)
{
    for (uint64_t i = 0; i < index->n_entries; i++) {
        const struct zinf_tensor_info *info = zinf_tensors_find(tensors, index->entries[i]->string);
        if (!info || info->file != index->file_of[i])
            return zinf_fail(-EINVAL,
                             "%s says that tensor '%.200s' is in %s, but it is %s%s: fetch or "
                             "write the folder again",
                             path, index->entries[i]->string, index->files[index->file_of[i]],
                             info ? "in " : "not there",
                             info ? zinf_tensors_file_name(tensors, info->file) : "");
    }
    if (tensors->count > index->n_entries)
        zinf_log(ZINF_LOG_WARN, "%s does not name %llu of the tensors in its files; they are read",
                 path, (unsigned long long)(tensors->count - index->n_entries));
    return 0;
}

static int open_single(struct zinf_tensors *tensors, const char *folder, const char *path)
{
    char *copy = strdup(path);
    return copy ? open_files(tensors, &copy, 1)
                : zinf_fail(-ENOMEM, "no memory to open %s", folder);
}

static int open_sharded(struct zinf_tensors *tensors, const char *folder, const char *index_path)
{
    struct zinf_tensors_index index;
    int code = zinf_tensors_index_read(&index, index_path);
    if (code)
        return code;
    char **paths = calloc(index.n_files, sizeof *paths);
    if (!paths)
        code = zinf_fail(-ENOMEM, "no memory for %u files", index.n_files);
    for (uint32_t i = 0; i < index.n_files && !code; i++) {
        paths[i] = zinf_path_join(folder, index.files[i]);
        if (!paths[i])
            code = -ENOMEM;
    }
    if (!code) {
        code = open_files(tensors, paths, index.n_files);
        if (code)
            zinf_fail_in(code, "%s", index_path);
        else
            code = compare_with_index(tensors, &index, index_path);
    } else if (paths) {
        for (uint32_t i = 0; i < index.n_files; i++)
            free(paths[i]);
    }
    free(paths);
    zinf_tensors_index_fini(&index);
    return code;
}

/* The tensors of a GGUF file under the model's names. */
static int open_gguf(struct zinf_tensors *tensors, const char *folder, const char *index_path)
{
    (void)folder; /* the file is named whole */
    cJSON *index = NULL;
    const char *named = NULL;
    int code = zinf_json_read_file(index_path, MOST_INDEX_BYTES, ZINF_JSON_STRICT, &index);
    if (!code)
        code = zinf_json_string(index, index_path, "file", &named);
    char *path = named ? strdup(named) : NULL;
    if (!code && !path)
        code = zinf_fail(-EINVAL, "%s names no file", index_path);
    if (!code)
        code = open_files(tensors, &path, 1);
    else
        free(path);
    if (!code && tensors->files[0].kind != TENSORS_GGUF)
        code = zinf_fail(-EINVAL, "%s: %s is no GGUF file", index_path, named);
    if (!code)
        code = zinf_gguf_apply_index(&tensors->files[0].gguf, index, index_path, tensors->list,
                                     &tensors->count);
    if (!code) {
        free(tensors->by_name);
        tensors->by_name = NULL;
        code = sort_names(tensors);
    }
    cJSON_Delete(index);
    return code;
}

/* ---- layers of a pipeline ---- */

/* The tensors that the map names, under these names; the others are left out. */
static int rename_all(struct zinf_tensors *tensors, const cJSON *map, const char *index_path)
{
    uint64_t n = 0;
    tensors->names = calloc(tensors->count + 1, sizeof *tensors->names);
    if (!tensors->names)
        return zinf_fail(-ENOMEM, "no memory for the names of %s", index_path);
    for (uint64_t i = 0; i < tensors->count; i++) {
        const char *path = tensors->files[tensors->list[i].file].path;
        const cJSON *file = cJSON_GetObjectItemCaseSensitive(map, strrchr(path, '/') + 1);
        const char *name =
            cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(file, tensors->list[i].name));
        if (!name)
            continue;
        if (!zinf_tensor_name_valid(name))
            return zinf_fail(-EINVAL, "%s: %s gets a name that no tensor can have", index_path,
                             tensors->list[i].name);
        tensors->names[n] = strdup(name);
        if (!tensors->names[n])
            return zinf_fail(-ENOMEM, "no memory for the names of %s", index_path);
        tensors->list[n] = tensors->list[i];
        tensors->list[n].name = tensors->names[n];
        tensors->n_names = ++n;
    }
    tensors->count = n;
    return 0;
}

static int list_layers(struct zinf_tensors *tensors, const char *folder, const cJSON *map)
{
    const int n = cJSON_GetArraySize(map);
    char **paths = calloc((size_t)n + 1, sizeof *paths);
    int code = paths ? 0 : zinf_fail(-ENOMEM, "no memory for %d files", n), i = 0;
    for (const cJSON *file = map ? map->child : NULL; !code && file; file = file->next) {
        if (!*file->string || strchr(file->string, '/') || file->string[0] == '.')
            code = zinf_fail(-EINVAL, "%s: '%s' is no file of that folder", folder, file->string);
        else if (!(paths[i++] = zinf_path_join(folder, file->string)))
            code = -ENOMEM;
    }
    if (!code)
        code = list_files(tensors, paths, (uint32_t)n);
    else
        while (i > 0)
            free(paths[--i]);
    free(paths);
    return code;
}

/* Where the files lie the index says: they stay where they are. */
static int open_layers(struct zinf_tensors *tensors, const char *folder, const char *index_path)
{
    cJSON *index = NULL;
    const char *from = NULL;
    int code = zinf_json_read_file(index_path, MOST_INDEX_BYTES, ZINF_JSON_STRICT, &index);
    (void)folder;
    if (!code)
        code = zinf_json_string(index, index_path, "folder", &from);
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index, "weight_map");
    if (!code && (!from || *from != '/' || !cJSON_IsObject(map) || !map->child))
        code = zinf_fail(-EINVAL, "%s names no folder, or no files there", index_path);
    if (!code)
        code = list_layers(tensors, from, map);
    if (!code)
        code = rename_all(tensors, map, index_path);
    if (!code)
        code = sort_names(tensors);
    cJSON_Delete(index);
    return code;
}

/* In Hugging Face's order: safetensors win, and a whole file over an index. */
static const struct {
    const char *name;
    int (*open)(struct zinf_tensors *tensors, const char *folder, const char *path);
} sources[] = {
    {ZINF_TENSORS_SINGLE, open_single}, {ZINF_TENSORS_INDEX, open_sharded},
    {ZINF_TENSORS_TORCH, open_single},  {ZINF_TENSORS_TORCH_INDEX, open_sharded},
    {ZINF_GGUF_INDEX, open_gguf},       {ZINF_LAYERS_INDEX, open_layers},
};
#define N_SOURCES (sizeof sources / sizeof *sources)

static int open_part(struct zinf_tensors *tensors, const char *folder, enum zinf_training_part part)
{
    struct zinf_deepspeed_files files;
    int code = zinf_deepspeed_find(&files, folder);
    if (code)
        return code;
    code = zinf_deepspeed_open(tensors, &files, part);
    if (!code)
        code = sort_names(tensors);
    zinf_deepspeed_files_fini(&files);
    return code;
}

/* Where FSDP's shards lie, in a folder of Trainer's, Accelerate's or torch's own. */
static const char *const fsdp_folders[] = {"pytorch_model_fsdp_0", "fsdp_model_0", "."};

/* A folder without a file of weights: that of a training's checkpoint. */
static int open_trained(struct zinf_tensors *tensors, const char *folder)
{
    char name[64];
    int code = open_part(tensors, folder, ZINF_TRAINING_MASTER);
    if (code != -ENODATA)
        return code;
    for (size_t i = 0; i < sizeof fsdp_folders / sizeof *fsdp_folders; i++) {
        snprintf(name, sizeof name, "%s/.metadata", fsdp_folders[i]);
        if (zinf_folder_has(folder, name))
            return zinf_fail(-ENOTSUP,
                             "%s/%s has shards of FSDP (.distcp): make a file of them with "
                             "accelerate merge-weights %s/%s %s",
                             folder, fsdp_folders[i], folder, fsdp_folders[i], folder);
    }
    return zinf_fail(-ENOENT,
                     "%s has neither %s nor %s, no %s, and no checkpoint of DeepSpeed's: name a "
                     "Hugging Face model folder or a .safetensors file",
                     folder, ZINF_TENSORS_SINGLE, ZINF_TENSORS_INDEX, ZINF_TENSORS_TORCH);
}

static int open_folder(struct zinf_tensors *tensors, const char *folder)
{
    size_t i = 0;
    while (i < N_SOURCES && !zinf_folder_has(folder, sources[i].name))
        i++;
    if (i == N_SOURCES)
        return open_trained(tensors, folder);
    char *path = zinf_path_join(folder, sources[i].name);
    if (!path)
        return -ENOMEM;
    int code = sources[i].open(tensors, folder, path);
    free(path);
    return code;
}

int zinf_tensors_open(struct zinf_tensors **out, const char *path)
{
    struct stat info;
    int code;
    if (stat(path, &info))
        return zinf_fail(-errno, "cannot open %s: %s", path, strerror(errno));
    struct zinf_tensors *tensors = calloc(1, sizeof *tensors);
    char *copy = strdup(path);
    if (!tensors || !copy) {
        free(copy);
        free(tensors);
        return zinf_fail(-ENOMEM, "no memory to open %s", path);
    }
    if (S_ISDIR(info.st_mode)) {
        code = open_folder(tensors, path);
        free(copy);
    } else {
        code = open_files(tensors, &copy, 1);
    }
    if (code)
        zinf_tensors_close(tensors);
    else
        *out = tensors;
    return code;
}

int zinf_tensors_open_training(struct zinf_tensors **out, const char *folder,
                               enum zinf_training_part part)
{
    struct zinf_tensors *tensors = calloc(1, sizeof *tensors);
    if (!tensors)
        return zinf_fail(-ENOMEM, "no memory to open %s", folder);
    int code = open_part(tensors, folder, part);
    if (code)
        zinf_tensors_close(tensors);
    else
        *out = tensors;
    return code;
}

void zinf_tensors_close(struct zinf_tensors *tensors)
{
    if (!tensors)
        return;
    tensors_sum_free(tensors);
    zinf_deepspeed_table_free(tensors->deepspeed);
    for (uint32_t i = 0; i < tensors->n_files; i++) {
        if (tensors->files[i].fd >= 0)
            close(tensors->files[i].fd);
        zinf_safetensors_fini(&tensors->files[i].header);
        zinf_torch_file_fini(&tensors->files[i].torch);
        zinf_gguf_file_fini(&tensors->files[i].gguf);
        free(tensors->files[i].path);
    }
    for (uint64_t i = 0; i < tensors->n_names; i++)
        free(tensors->names[i]);
    free(tensors->names);
    free(tensors->by_name);
    free(tensors->list);
    free(tensors->files);
    free(tensors);
}

int zinf_training_state_read(struct zinf_training_state *out, const char *folder)
{
    struct zinf_deepspeed_files files;
    int code = zinf_deepspeed_find(&files, folder);
    if (code)
        return code;
    struct zinf_tensors *holder = calloc(1, sizeof *holder);
    code = holder ? zinf_deepspeed_read_state(out, holder, &files)
                  : zinf_fail(-ENOMEM, "no memory to open %s", folder);
    zinf_tensors_close(holder);
    zinf_deepspeed_files_fini(&files);
    return code;
}

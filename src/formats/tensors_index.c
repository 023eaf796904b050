/*
 * tensors_index: reads the map from tensor to shard. The map is untrusted: a file name in it may
 * not lead out of the folder, and what it promises is compared with the shards by the reader.
 */
#include "formats/tensors_index.h"

#include <stdlib.h>

#define MAX_INDEX_BYTES (64u << 20) /* 140,000 expert tensors take 13 MB */
#define MAX_COMMAS (1u << 20)       /* bounds what the JSON tree takes */

static bool is_plain_name(const char *name)
{
    size_t bytes = strnlen(name, 256);
    bool plain = bytes > 0 && bytes < 256 && name[0] != '.';
    for (size_t i = 0; i < bytes && plain; i++)
        plain = name[i] != '/' && name[i] != '\\' && (uint8_t)name[i] >= 0x20;
    return plain;
}

static int compare_entries(const void *a, const void *b)
{
    const cJSON *x = *(const cJSON *const *)a, *y = *(const cJSON *const *)b;
    int order = strcmp(x->valuestring, y->valuestring);
    return order ? order : strcmp(x->string, y->string);
}

static int collect_entries(struct zinf_tensors_index *index, const char *path, const cJSON *map)
{
    const cJSON *entry;
    uint64_t count = 0;
    cJSON_ArrayForEach(entry, map) count++;
    if (!count)
        return zinf_fail(-EINVAL, "%s: \"weight_map\" is empty: fetch or write the model again",
                         path);
    index->entries = malloc(count * sizeof *index->entries);
    index->file_of = malloc(count * sizeof *index->file_of);
    index->files = malloc(count * sizeof *index->files);
    if (!index->entries || !index->file_of || !index->files)
        return zinf_fail(-ENOMEM, "%s: no memory for %llu entries", path,
                         (unsigned long long)count);
    cJSON_ArrayForEach(entry, map)
    {
        if (!cJSON_IsString(entry))
            return zinf_fail(-EINVAL, "%s: the file of tensor '%.100s' is not a string", path,
                             entry->string);
        if (!is_plain_name(entry->valuestring))
            return zinf_fail(-EINVAL,
                             "%s: tensor '%.100s' is mapped to '%.100s', but a shard must be a "
                             "plain file name in the same folder",
                             path, entry->string, entry->valuestring);
        index->entries[index->n_entries++] = entry;
    }
    return 0;
}

static int collect_files(struct zinf_tensors_index *index, const char *path)
{
    qsort(index->entries, index->n_entries, sizeof *index->entries, compare_entries);
    for (uint64_t i = 0; i < index->n_entries; i++) {
        const char *file = index->entries[i]->valuestring;
        if (!index->n_files || strcmp(index->files[index->n_files - 1], file))
            index->files[index->n_files++] = file;
        index->file_of[i] = index->n_files - 1;
        if (index->n_files > ZINF_TENSORS_MAX_FILES)
            return zinf_fail(-EINVAL, "%s names more than %d files", path, ZINF_TENSORS_MAX_FILES);
    }
    return 0;
}

static int parse(struct zinf_tensors_index *index, const char *path, const char *text, size_t bytes)
{
    uint64_t commas = 0;
    for (size_t i = 0; i < bytes; i++)
        commas += text[i] == ',';
    if (commas > MAX_COMMAS)
        return zinf_fail(-EINVAL, "%s lists more than %u tensors", path, MAX_COMMAS);
    int code = zinf_json_parse(text, bytes, path, ZINF_JSON_STRICT, &index->root);
    if (code)
        return code;
    const cJSON *map = cJSON_GetObjectItemCaseSensitive(index->root, "weight_map");
    if (!cJSON_IsObject(map))
        return zinf_fail(-EINVAL, "%s has no object \"weight_map\": fetch or write the model again",
                         path);
    code = collect_entries(index, path, map);
    return code ? code : collect_files(index, path);
}

int zinf_tensors_index_read(struct zinf_tensors_index *out, const char *path)
{
    struct zinf_tensors_index index = {0};
    char *text;
    size_t bytes;
    int code = zinf_file_read(path, MAX_INDEX_BYTES, &text, &bytes);
    if (code)
        return code;
    code = parse(&index, path, text, bytes);
    free(text);
    if (code)
        zinf_tensors_index_fini(&index);
    else
        *out = index;
    return code;
}

void zinf_tensors_index_fini(struct zinf_tensors_index *index)
{
    free(index->entries);
    free(index->file_of);
    free(index->files);
    cJSON_Delete(index->root);
    *index = (struct zinf_tensors_index){0};
}

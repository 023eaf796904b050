/*
 * tensors_reader: the tensors of one file or of all shards of a folder as one list. Headers are
 * read at open and held; data is read with pread straight into the caller's memory, or through a
 * block that stays in the cache when it has to be converted.
 */
#include "formats/file_span.h"
#include "formats/safetensors.h"
#include "formats/tensors_index.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the format is little endian, and data goes to the caller as it is stored"
#endif

#define BLOCK_BYTES (1u << 20) /* fits the second-level cache */
/* A read of this size or more asks the kernel for all of it, and for this much behind it, at once:
 * the kernel's own read-ahead of 128 KiB leaves a drive idle for most of the time. */
#define AHEAD_BYTES (1u << 20)

struct tensors_file {
    char *path;
    int fd;
    struct zinf_safetensors header; /* keeps names and metadata; the tensors move to the list */
};

struct zinf_tensors {
    struct tensors_file *files;
    uint32_t n_files;
    struct zinf_tensor_info *list; /* by file, then by place in it */
    uint64_t count;
    const struct zinf_tensor_info **by_name;
};

/* ---- opening ---- */

static int read_header(struct tensors_file *file)
{
    uint8_t first[ZINF_SAFETENSORS_LENGTH_BYTES] = {0};
    uint64_t file_bytes, json_bytes;
    char *json;
    int code = file->fd = zinf_file_span_open(file->path, &file_bytes);
    if (code < 0)
        return code;
    if (file_bytes >= sizeof first)
        code = zinf_file_span_read(file->fd, file->path, first, sizeof first, 0);
    else
        code = 0;
    if (!code)
        code = zinf_safetensors_length(file->path, first, file_bytes, &json_bytes);
    if (code)
        return code;
    json = malloc(json_bytes + 1);
    if (!json)
        return zinf_fail(-ENOMEM, "%s: no memory for a header of %llu bytes", file->path,
                         (unsigned long long)json_bytes);
    code = zinf_file_span_read(file->fd, file->path, json, json_bytes, sizeof first);
    if (!code)
        code = zinf_safetensors_init(&file->header, file->path, json, json_bytes, file_bytes);
    free(json);
    return code;
}

/* Moves the file's tensors to the end of the common list. */
static int take_tensors(struct zinf_tensors *tensors, uint32_t index)
{
    struct zinf_safetensors *header = &tensors->files[index].header;
    uint64_t count = tensors->count + header->n_tensors;
    struct zinf_tensor_info *list = realloc(tensors->list, (count + 1) * sizeof *list);
    if (!list)
        return zinf_fail(-ENOMEM, "no memory for a list of %llu tensors",
                         (unsigned long long)count);
    tensors->list = list;
    memcpy(list + tensors->count, header->tensors, header->n_tensors * sizeof *list);
    for (uint64_t i = tensors->count; i < count; i++)
        list[i].file = index;
    tensors->count = count;
    free(header->tensors);
    header->tensors = NULL;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    const struct zinf_tensor_info *const *x = a, *const *y = b;
    return strcmp((*x)->name, (*y)->name);
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
    qsort(by_name, tensors->count, sizeof *by_name, compare_names);
    for (uint64_t i = 1; i < tensors->count; i++)
        if (!strcmp(by_name[i - 1]->name, by_name[i]->name))
            return zinf_fail(-EINVAL, "tensor '%s' is in both %s and %s: remove the stale file",
                             by_name[i]->name, tensors->files[by_name[i - 1]->file].path,
                             tensors->files[by_name[i]->file].path);
    return 0;
}

/* Takes ownership of the paths in paths[], also on failure. */
static int open_files(struct zinf_tensors *tensors, char **paths, uint32_t n_files)
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

static bool folder_has(const char *folder, const char *name)
{
    char *path = zinf_path_join(folder, name);
    bool there = path && access(path, F_OK) == 0;
    free(path);
    return there;
}

static int fail_no_weights(const char *folder)
{
    if (folder_has(folder, "pytorch_model.bin") ||
        folder_has(folder, "pytorch_model.bin.index.json"))
        return zinf_fail(-ENOENT,
                         "%s has only pytorch_model.bin, not %s: convert it in Python with "
                         "AutoModelForCausalLM.from_pretrained(folder).save_pretrained(folder, "
                         "safe_serialization=True)",
                         folder, ZINF_TENSORS_SINGLE);
    return zinf_fail(-ENOENT,
                     "%s has neither %s nor %s: name a Hugging Face model folder or a "
                     ".safetensors file",
                     folder, ZINF_TENSORS_SINGLE, ZINF_TENSORS_INDEX);
}

/* A whole file wins over an index, as with Hugging Face. */
static int open_folder(struct zinf_tensors *tensors, const char *folder)
{
    char *single, *index;
    int code;
    if (folder_has(folder, ZINF_TENSORS_SINGLE)) {
        single = zinf_path_join(folder, ZINF_TENSORS_SINGLE);
        return single ? open_files(tensors, &single, 1) : -ENOMEM;
    }
    if (!folder_has(folder, ZINF_TENSORS_INDEX))
        return fail_no_weights(folder);
    index = zinf_path_join(folder, ZINF_TENSORS_INDEX);
    if (!index)
        return -ENOMEM;
    code = open_sharded(tensors, folder, index);
    free(index);
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

void zinf_tensors_close(struct zinf_tensors *tensors)
{
    if (!tensors)
        return;
    for (uint32_t i = 0; i < tensors->n_files; i++) {
        if (tensors->files[i].fd >= 0)
            close(tensors->files[i].fd);
        zinf_safetensors_fini(&tensors->files[i].header);
        free(tensors->files[i].path);
    }
    free(tensors->by_name);
    free(tensors->list);
    free(tensors->files);
    free(tensors);
}

/* ---- looking up ---- */

uint64_t zinf_tensors_count(const struct zinf_tensors *tensors)
{
    return tensors->count;
}

const struct zinf_tensor_info *zinf_tensors_at(const struct zinf_tensors *tensors, uint64_t index)
{
    return index < tensors->count ? &tensors->list[index] : NULL;
}

const struct zinf_tensor_info *zinf_tensors_find(const struct zinf_tensors *tensors,
                                                 const char *name)
{
    struct zinf_tensor_info wanted = {.name = name};
    const struct zinf_tensor_info *key = &wanted, **found;
    found = bsearch(&key, tensors->by_name, tensors->count, sizeof key, compare_names);
    return found ? *found : NULL;
}

const char *zinf_tensors_file_name(const struct zinf_tensors *tensors, uint32_t file)
{
    if (file >= tensors->n_files)
        return NULL;
    const char *slash = strrchr(tensors->files[file].path, '/');
    return slash ? slash + 1 : tensors->files[file].path;
}

const char *zinf_tensors_metadata(const struct zinf_tensors *tensors, const char *key)
{
    return cJSON_GetStringValue(
        cJSON_GetObjectItemCaseSensitive(tensors->files[0].header.metadata, key));
}

/* ---- reading ---- */

static int check_range(const struct zinf_tensor_info *info, uint64_t first, uint64_t n)
{
    if (first <= info->n_elems && n <= info->n_elems - first)
        return 0;
    return zinf_fail(-EINVAL,
                     "tensor '%s' has %llu elements; %llu from element %llu on were asked for",
                     info->name, (unsigned long long)info->n_elems, (unsigned long long)n,
                     (unsigned long long)first);
}

int zinf_tensors_read(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                      uint64_t first, uint64_t n, void *out)
{
    const struct tensors_file *file = &tensors->files[info->file];
    uint64_t elem_bytes = zinf_file_dtype_bytes(info->dtype);
    uint64_t offset = info->file_offset + first * elem_bytes;
    int code = check_range(info, first, n);
    if (!code && n * elem_bytes >= AHEAD_BYTES)
        posix_fadvise(file->fd, (off_t)offset, (off_t)(n * elem_bytes + AHEAD_BYTES),
                      POSIX_FADV_WILLNEED);
    if (!code)
        code = zinf_file_span_read(file->fd, file->path, out, n * elem_bytes, offset);
    return code ? zinf_fail_in(code, "tensor '%s'", info->name) : 0;
}

static void convert_block(float *out, const void *block, enum zinf_file_dtype dtype, size_t n)
{
    const double *wide = block;
    enum zinf_dtype half = ZINF_DTYPE_F32;
    if (dtype != ZINF_FILE_F64) {
        zinf_file_dtype_to_dtype(dtype, &half);
        zinf_convert(out, ZINF_DTYPE_F32, block, half, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        out[i] = (float)wide[i];
}

int zinf_tensors_read_f32(const struct zinf_tensors *tensors, const struct zinf_tensor_info *info,
                          uint64_t first, uint64_t n, float *out)
{
    if (info->dtype == ZINF_FILE_F32)
        return zinf_tensors_read(tensors, info, first, n, out);
    if (info->dtype != ZINF_FILE_F64 && info->dtype != ZINF_FILE_BF16 &&
        info->dtype != ZINF_FILE_F16)
        return zinf_fail(-ENOTSUP, "tensor '%s' of type %s cannot be read as numbers of fp32",
                         info->name, zinf_file_dtype_name(info->dtype));
    int code = check_range(info, first, n);
    if (code || !n)
        return code;
    uint64_t elem_bytes = zinf_file_dtype_bytes(info->dtype);
    uint64_t block_elems = BLOCK_BYTES / elem_bytes;
    if (block_elems > n)
        block_elems = n;
    void *block = malloc(block_elems * elem_bytes);
    if (!block)
        return zinf_fail(-ENOMEM, "no memory for a block of %u bytes", BLOCK_BYTES);
    for (uint64_t done = 0; done < n && !code; done += block_elems) {
        uint64_t count = n - done < block_elems ? n - done : block_elems;
        code = zinf_tensors_read(tensors, info, first + done, count, block);
        if (!code)
            convert_block(out + done, block, info->dtype, count);
    }
    free(block);
    return code;
}

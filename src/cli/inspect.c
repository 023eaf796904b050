/* inspect: opening a model folder or file, and the checks of `zinf inspect`. */
#include "cli/inspect.h"

#include "cpu_optim/optim.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_ELEMS ((uint64_t)1 << 20)

/* ---- problems ---- */

ZINF_PRINTF(2, 3) static void add_problem(struct inspection *it, const char *format, ...)
{
    char *text = NULL;
    va_list args;
    if (it->n_problems == INSPECT_MAX_PROBLEMS) {
        it->n_unsaid++;
        return;
    }
    va_start(args, format);
    int bytes = vasprintf(&text, format, args);
    va_end(args);
    if (bytes < 0)
        it->n_unsaid++;
    else
        it->problems[it->n_problems++] = text;
}

const char *inspect_shape_text(char *buffer, size_t bytes, int rank, const uint64_t *shape)
{
    size_t used = (size_t)snprintf(buffer, bytes, "[");
    for (int i = 0; i < rank && used < bytes; i++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%llu", i ? ", " : "",
                                 (unsigned long long)shape[i]);
    if (used < bytes)
        snprintf(buffer + used, bytes - used, "]");
    return buffer;
}

/* ---- opening ---- */

static void open_folder(struct inspection *it)
{
    char *config = zinf_path_join(it->path, "config.json");
    if (!config)
        add_problem(it, "%s", zinf_error());
    else if (access(config, F_OK))
        add_problem(it, "%s is missing: the tensors' names and shapes cannot be checked", config);
    else if (zinf_model_open(&it->model, it->path))
        add_problem(it, "%s", zinf_error());
    if (zinf_tokenizer_open(&it->tokenizer, it->path))
        add_problem(it, "%s", zinf_error());
    free(config);
}

void inspect_open(struct inspection *it, const char *path)
{
    struct stat info;
    memset(it, 0, sizeof *it);
    it->path = path;
    if (stat(path, &info)) {
        add_problem(it, "%s: %s; give a model folder or a .safetensors file", path,
                    strerror(errno));
        return;
    }
    it->is_folder = S_ISDIR(info.st_mode);
    if (zinf_tensors_open(&it->tensors, path))
        add_problem(it, "%s", zinf_error());
    if (it->is_folder)
        open_folder(it);
    for (uint64_t i = 0; it->tensors && i < zinf_tensors_count(it->tensors); i++) {
        it->elems += zinf_tensors_at(it->tensors, i)->n_elems;
        it->bytes += zinf_tensors_at(it->tensors, i)->bytes;
    }
}

void inspect_close(struct inspection *it)
{
    zinf_tokenizer_close(it->tokenizer);
    zinf_model_close(it->model);
    zinf_tensors_close(it->tensors);
    for (int i = 0; i < it->n_problems; i++)
        free(it->problems[i]);
}

/* ---- names and shapes ---- */

/* The file's tensor for one of the family, with its prefix or without. */
static const struct zinf_tensor_info *find(const struct inspection *it,
                                           const struct zinf_file_tensor *wanted)
{
    char name[160];
    const char *prefix = zinf_model_family(it->model)->prefix;
    const struct zinf_tensor_info *info =
        zinf_tensors_find(it->tensors, zinf_file_tensor_name(wanted, prefix, name, sizeof name));
    return info ? info : zinf_tensors_find(it->tensors, wanted->name);
}

static void check_tensor(struct inspection *it, const struct zinf_file_tensor *wanted,
                         const struct zinf_tensor_info *info)
{
    char found[160], asked[160];
    enum zinf_dtype dtype;
    bool same = info->rank == wanted->rank;
    for (int i = 0; same && i < wanted->rank; i++)
        same = info->shape[i] == wanted->shape[i];
    if (!same)
        add_problem(it, "tensor %s has shape %s; config.json asks for %s", info->name,
                    inspect_shape_text(found, sizeof found, info->rank, info->shape),
                    inspect_shape_text(asked, sizeof asked, wanted->rank, wanted->shape));
    if (zinf_file_dtype_to_dtype(info->dtype, &dtype))
        add_problem(it, "tensor %s has dtype %s; use F32, BF16 or F16", info->name,
                    zinf_file_dtype_name(info->dtype));
}

static void check_wanted(struct inspection *it, const struct zinf_file_map *map)
{
    char name[160];
    const char *prefix = zinf_model_family(it->model)->prefix;
    for (uint32_t i = 0; i < map->n_tensors; i++) {
        const struct zinf_tensor_info *info = find(it, &map->tensors[i]);
        if (info)
            check_tensor(it, &map->tensors[i], info);
        else
            add_problem(it, "tensor %s is missing",
                        zinf_file_tensor_name(&map->tensors[i], prefix, name, sizeof name));
    }
}

static void check_unexpected(struct inspection *it, const struct zinf_file_map *map)
{
    const struct zinf_family *family = zinf_model_family(it->model);
    for (uint64_t i = 0; i < zinf_tensors_count(it->tensors); i++) {
        const char *name = zinf_tensors_at(it->tensors, i)->name;
        const char *bare = zinf_family_bare_name(family, name);
        if (!zinf_file_map_find(map, bare) && !family->ignores(bare))
            add_problem(it, "tensor %s is unexpected: no part of a %s model of this config.json",
                        name, family->model_type);
    }
}

static void check_tensors(struct inspection *it)
{
    struct zinf_file_map *map = NULL;
    if (zinf_file_map_create(&map, zinf_model_graph(it->model))) {
        add_problem(it, "%s", zinf_error());
        return;
    }
    check_wanted(it, map);
    check_unexpected(it, map);
    zinf_file_map_destroy(map);
}

void inspect_check_shapes(struct inspection *it)
{
    if (it->model && it->tensors)
        check_tensors(it);
    /* The byte-level default of a folder without a tokenizer is no statement about its model,
     * which may be meant for token files. */
    if (!it->model || !it->tokenizer || !strcmp(zinf_tokenizer_kind(it->tokenizer), "bytes"))
        return;
    uint32_t ids = zinf_tokenizer_vocab(it->tokenizer);
    int64_t vocab = zinf_model_facts(it->model)->vocab;
    if (ids > vocab)
        add_problem(it, "the tokenizer (%s) has ids up to %u; vocab_size of config.json is %lld",
                    zinf_tokenizer_kind(it->tokenizer), ids - 1, (long long)vocab);
}

/* ---- values ---- */

/* How values are looked at: as they are stored, or F64 rounded to fp32. */
static bool is_floating(enum zinf_file_dtype stored, enum zinf_dtype *dtype)
{
    *dtype = ZINF_DTYPE_F32;
    return stored == ZINF_FILE_F64 || !zinf_file_dtype_to_dtype(stored, dtype);
}

static float value_at(const void *chunk, enum zinf_dtype dtype, uint64_t at)
{
    float value;
    zinf_convert(&value, ZINF_DTYPE_F32, (const char *)chunk + at * zinf_dtype_bytes(dtype), dtype,
                 1);
    return value;
}

static void check_values(struct inspection *it, const struct zinf_tensor_info *info,
                         enum zinf_dtype dtype, void *chunk)
{
    int threads = zinf_cpu_count();
    for (uint64_t first = 0; first < info->n_elems; first += CHUNK_ELEMS) {
        uint64_t left = info->n_elems - first, n = left < CHUNK_ELEMS ? left : CHUNK_ELEMS;
        int code = info->dtype == ZINF_FILE_F64
                       ? zinf_tensors_read_f32(it->tensors, info, first, n, chunk)
                       : zinf_tensors_read(it->tensors, info, first, n, chunk);
        if (code) {
            add_problem(it, "%s", zinf_error());
            return;
        }
        uint64_t at = zinf_optim_find_nonfinite(chunk, dtype, n, threads);
        if (at == UINT64_MAX)
            continue;
        add_problem(it, "tensor %s holds %s at element %llu: the weights are damaged", info->name,
                    isnan(value_at(chunk, dtype, at)) ? "NaN" : "Inf",
                    (unsigned long long)(first + at));
        return;
    }
    it->n_checked++;
}

void inspect_check_values(struct inspection *it)
{
    struct cli_progress progress;
    enum zinf_dtype dtype;
    uint64_t done = 0;
    if (!it->tensors)
        return;
    void *chunk = malloc(CHUNK_ELEMS * sizeof(float));
    if (!chunk) {
        add_problem(it, "no memory to look at the values");
        return;
    }
    cli_progress_begin(&progress, CLI_PROGRESS_AUTO, "checking MiB", it->bytes >> 20);
    for (uint64_t i = 0; i < zinf_tensors_count(it->tensors); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(it->tensors, i);
        if (is_floating(info->dtype, &dtype))
            check_values(it, info, dtype, chunk);
        done += info->bytes;
        cli_progress_update(&progress, done >> 20, info->name, false);
    }
    cli_progress_end(&progress);
    free(chunk);
}

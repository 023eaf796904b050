/* inspect: opening a model folder or file, and the checks of `zinf inspect`. */
#include "cli/inspect.h"

#include "api/generate.h"
#include "base/folder.h"
#include "cpu_optim/optim.h"
#include "train/checkpoints.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHUNK_ELEMS ((uint64_t)1 << 20)
#define MAX_CONFIG_BYTES ((size_t)16 << 20)

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

/* ---- opening ---- */

/* What config.json says of itself, also where that is not supported. */
static void read_family(struct inspection *it, const char *path)
{
    cJSON *config = NULL;
    const char *type = NULL;
    if (!zinf_json_read_file(path, MAX_CONFIG_BYTES, ZINF_JSON_STRICT, &config))
        type = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(config, "model_type"));
    snprintf(it->family, sizeof it->family, "%s", type ? type : "");
    cJSON_Delete(config);
}

static void open_folder(struct inspection *it)
{
    struct generate_settings settings = GENERATE_SETTINGS_UNSAID;
    char *config = zinf_path_join(it->path, "config.json");
    char *model = zinf_path_join(it->path, "model/config.json");
    if (!config || !model)
        add_problem(it, "%s", zinf_error());
    else if (access(config, F_OK) && !access(model, F_OK))
        add_problem(it, "%s is the output of a training: its model is %s/model", it->path,
                    it->path);
    else if (access(config, F_OK))
        add_problem(it, "%s is missing: the tensors' names and shapes cannot be checked", config);
    else if (zinf_model_open(&it->model, it->path))
        add_problem(it, "%s", zinf_error());
    if (config)
        read_family(it, config);
    if (zinf_tokenizer_open(&it->tokenizer, it->path))
        add_problem(it, "%s", zinf_error());
    if (it->model && generate_read_config(&settings, it->path, it->model))
        add_problem(it, "%s", zinf_error());
    free(model);
    free(config);
}

/* An adapter stands on its base, which is elsewhere: --adapter compares both. */
static void open_adapter(struct inspection *it)
{
    if (zinf_adapter_read_config(it->path, &it->adapter))
        add_problem(it, "%s", zinf_error());
    if (zinf_adapter_verify(it->path) < 0)
        add_problem(it, "%s", zinf_error());
    it->is_folder = false;
}

static void open_tensors(struct inspection *it, bool adapter)
{
    char *path = adapter ? zinf_path_join(it->path, ZINF_ADAPTER_WEIGHTS) : strdup(it->path);
    if (!path || zinf_tensors_open(&it->tensors, path))
        add_problem(it, "%s", path ? zinf_error() : "no memory for a path");
    free(path);
}

static void count_type(struct inspection *it, const struct zinf_tensor_info *tensor)
{
    uint64_t bytes;
    const char *name = zinf_tensor_stored(tensor, &bytes);
    int i = 0;
    while (it->stored[i].name && strcmp(it->stored[i].name, name) != 0)
        i++;
    it->stored[i].name = name;
    it->stored[i].n++;
    it->bytes += bytes;
}

void inspect_open(struct inspection *it, const char *path)
{
    struct stat info;
    memset(it, 0, sizeof *it);
    it->path = path;
    if (stat(path, &info)) {
        add_problem(it, "%s: %s; give a model folder or a file of weights", path, strerror(errno));
        return;
    }
    if (zinf_model_as_folder(path, &it->folder))
        add_problem(it, "%s", zinf_error());
    if (it->folder)
        it->path = path = it->folder;
    it->is_folder = it->folder || S_ISDIR(info.st_mode);
    bool adapter = it->is_folder && zinf_folder_has(path, ZINF_ADAPTER_CONFIG);
    open_tensors(it, adapter);
    if (adapter)
        open_adapter(it);
    if (it->is_folder)
        open_folder(it);
    for (uint64_t i = 0; it->tensors && i < zinf_tensors_count(it->tensors); i++) {
        const struct zinf_tensor_info *tensor = zinf_tensors_at(it->tensors, i);
        it->elems += tensor->n_elems;
        count_type(it, tensor);
    }
}

void inspect_close(struct inspection *it)
{
    zinf_tokenizer_close(it->tokenizer);
    zinf_model_close(it->model);
    zinf_tensors_close(it->tensors);
    free(it->folder);
    cJSON_Delete(it->adapter);
    for (int i = 0; i < it->n_problems; i++)
        free(it->problems[i]);
}

/* ---- names and shapes ---- */

static void see_finding(void *arg, const struct zinf_weights_finding *finding)
{
    add_problem(arg, "tensor %s %s", finding->name, finding->detail);
}

void inspect_check_shapes(struct inspection *it)
{
    int before = it->n_problems + it->n_unsaid;
    if (it->model && it->tensors && zinf_weights_compare(it->model, it->tensors, see_finding, it))
        add_problem(it, "%s", zinf_error());
    it->fits = it->model && it->tensors && it->n_problems + it->n_unsaid == before;
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

/*
 * cmd_inspect: `zinf inspect`, the tensors of a model folder or file in a table, and whether they
 * can be used: headers, names and shapes against config.json, values, tokenizer.
 */
#include "cli/cli.h"
#include "formats/formats.h"
#include "model/model.h"
#include "text/text.h"
#include "train/train.h"
#include "api/generate.h"
#include "cpu_optim/optim.h"
#include "train/checkpoints.h"

#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* What has been opened and found. A problem is a sentence; the parts that could not be opened stay
 * NULL and left a problem behind. */
#define INSPECT_MAX_PROBLEMS 1000
#define INSPECT_MAX_TYPES (ZINF_FILE_DTYPES + 8) /* with the blocks of GGUF */

struct inspection {
    const char *path;
    char *folder; /* of what a GGUF file holds; else NULL */
    bool is_folder;
    struct zinf_tensors *tensors;
    struct zinf_model *model;         /* folders */
    struct zinf_tokenizer *tokenizer; /* folders */
    char family[64];                  /* model_type of config.json, supported or not; "" */
    uint64_t elems, bytes, n_checked; /* tensors whose values were looked at */
    struct {
        const char *name;
        uint64_t n;
    } stored[INSPECT_MAX_TYPES]; /* number types that there are, up to name NULL */
    bool fits; /* names, shapes and dtypes of the tensors are those of the model */
    char *problems[INSPECT_MAX_PROBLEMS];
    int n_problems, n_unsaid; /* unsaid: more than fit */
};

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

/* Opens what is at path; never fails: what is wrong becomes a problem. */
static void inspect_open(struct inspection *it, const char *path)
{
    struct stat info;
    memset(it, 0, sizeof *it);
    it->path = path;
    if (stat(path, &info)) {
        add_problem(it, "%s: %s; give a model folder or a file of weights", path, strerror(errno));
        return;
    }
    if (zinf_is_gguf(path) && zinf_gguf_as_folder(path, &it->folder))
        add_problem(it, "%s", zinf_error());
    if (it->folder)
        it->path = path = it->folder;
    it->is_folder = it->folder || S_ISDIR(info.st_mode);
    if (zinf_tensors_open(&it->tensors, path))
        add_problem(it, "%s", zinf_error());
    if (it->is_folder)
        open_folder(it);
    for (uint64_t i = 0; it->tensors && i < zinf_tensors_count(it->tensors); i++) {
        const struct zinf_tensor_info *tensor = zinf_tensors_at(it->tensors, i);
        it->elems += tensor->n_elems;
        count_type(it, tensor);
    }
}

static void inspect_close(struct inspection *it)
{
    zinf_tokenizer_close(it->tokenizer);
    zinf_model_close(it->model);
    zinf_tensors_close(it->tensors);
    free(it->folder);
    for (int i = 0; i < it->n_problems; i++)
        free(it->problems[i]);
}

/* ---- names and shapes ---- */

static void see_finding(void *arg, const struct zinf_weights_finding *finding)
{
    add_problem(arg, "tensor %s %s", finding->name, finding->detail);
}

/* Compares tensors, config.json and tokenizer with each other. */
static void inspect_check_shapes(struct inspection *it)
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

/* Reads every floating tensor once, in bounded memory. */
static void inspect_check_values(struct inspection *it)
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

/* ---- the command ---- */

#define MIN_NAME_COLS 6
#define MAX_NAME_COLS 60 /* a longer name sticks out rather than pushing all lines wide */

static const char usage[] =
    "usage: zinf inspect PATH [--json]\n"
    "\n"
    "Says what a model folder or a file of weights (safetensors, PyTorch, GGUF)\n"
    "holds: its tensors, family, parameters, number types and tokenizer, and what of\n"
    "it is supported. Checks headers, names and shapes against config.json, and that\n"
    "values are finite. Status 1 when something is wrong.\n";

static int name_cols(const struct zinf_tensors *tensors)
{
    size_t cols = MIN_NAME_COLS;
    for (uint64_t i = 0; i < zinf_tensors_count(tensors); i++) {
        size_t length = strlen(zinf_tensors_at(tensors, i)->name);
        if (length > cols)
            cols = length;
    }
    return cols > MAX_NAME_COLS ? MAX_NAME_COLS : (int)cols;
}

static void print_tensors(const struct inspection *it)
{
    int cols = name_cols(it->tensors);
    char shape[192], name[512], size[16];
    uint64_t n = zinf_tensors_count(it->tensors);
    char *text = NULL;
    size_t text_bytes;
    uint64_t bytes;
    FILE *out = open_memstream(&text, &text_bytes);
    if (!out)
        return;
    fprintf(out, "%-*s %-5s %-16s %12s\n", cols, "tensor", "dtype", "shape", "bytes");
    for (uint64_t i = 0; i < n; i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(it->tensors, i);
        const char *type = zinf_tensor_stored(info, &bytes);
        fprintf(out, "%-*s %-5s %-16s %12llu\n", cols,
                zinf_show_text(name, sizeof name, info->name), type,
                zinf_shape_text(shape, sizeof shape, info->rank, info->shape),
                (unsigned long long)bytes);
    }
    fprintf(out, "total: %llu tensors, %llu elements, %llu bytes (%s)\n", (unsigned long long)n,
            (unsigned long long)it->elems, (unsigned long long)it->bytes,
            zinf_size_format(size, sizeof size, it->bytes));
    if (!fclose(out))
        cli_print_lines(stdout, text);
    free(text);
}

/* "BF16 290, F32 3": tensors of each dtype. */
static const char *dtypes_text(const struct inspection *it, char *buffer, size_t bytes)
{
    size_t used = 0;
    buffer[0] = 0;
    for (int i = 0; it->stored[i].name && used < bytes; i++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%s %llu", used ? ", " : "",
                                 it->stored[i].name, (unsigned long long)it->stored[i].n);
    return buffer;
}

static void print_files(const struct inspection *it)
{
    char text[256];
    uint32_t n = zinf_tensors_file_count(it->tensors);
    printf("files: %u of %s; tensors by dtype: %s\n", n, zinf_tensors_file_kind(it->tensors),
           dtypes_text(it, text, sizeof text));
}

/* Why something is not supported is among the problems. */
static void print_supported(const struct inspection *it)
{
    char family[128];
    if (!it->is_folder)
        return;
    printf("supported: family %s%s%s; weights %s; tokenizer %s\n",
           *it->family ? zinf_show_text(family, sizeof family, it->family) : "",
           *it->family ? " " : "", it->model ? "yes" : "no", it->fits ? "yes" : "no",
           it->tokenizer ? "yes" : "no");
}

static void print_text(const struct inspection *it)
{
    if (it->tensors) {
        print_tensors(it);
        print_files(it);
    }
    if (it->model) {
        const struct zinf_model_facts *f = zinf_model_facts(it->model);
        char text[256];
        snprintf(text, sizeof text,
                 "model: %s, %llu parameters: %lld layers, hidden %lld, %lld heads, "
                 "vocabulary %lld, context %lld\n",
                 f->family, (unsigned long long)zinf_model_n_params(it->model),
                 (long long)f->layers, (long long)f->hidden, (long long)f->heads,
                 (long long)f->vocab, (long long)f->context);
        cli_print_lines(stdout, text);
    }
    if (it->tokenizer)
        printf("tokenizer: %s, %u ids\n", zinf_tokenizer_kind(it->tokenizer),
               zinf_tokenizer_vocab(it->tokenizer));
    if (it->tensors)
        printf("values: %llu floating tensors are finite\n", (unsigned long long)it->n_checked);
    print_supported(it);
    if (it->n_problems)
        printf("problems found: %d\n", it->n_problems + it->n_unsaid);
    else
        puts("no problem found");
}

static void print_problems(const struct inspection *it)
{
    char text[4096];
    fflush(stdout);
    for (int i = 0; i < it->n_problems; i++)
        fprintf(stderr, "zinf inspect: %s\n", zinf_show_text(text, sizeof text, it->problems[i]));
    if (it->n_unsaid)
        fprintf(stderr, "zinf inspect: and %d more\n", it->n_unsaid);
}

static void add_tensors(cJSON *root, const struct inspection *it)
{
    cJSON *list = cJSON_AddArrayToObject(root, "tensors");
    for (uint64_t i = 0; it->tensors && i < zinf_tensors_count(it->tensors); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(it->tensors, i);
        cJSON *item = cli_json_append(list);
        cJSON_AddStringToObject(item, "name", info->name);
        uint64_t bytes;
        cJSON_AddStringToObject(item, "dtype", zinf_tensor_stored(info, &bytes));
        cJSON *shape = cJSON_AddArrayToObject(item, "shape");
        for (int k = 0; shape && k < info->rank; k++)
            cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)info->shape[k]));
        cJSON_AddNumberToObject(item, "elements", (double)info->n_elems);
        cJSON_AddNumberToObject(item, "bytes", (double)bytes);
        cJSON_AddStringToObject(item, "file", zinf_tensors_file_name(it->tensors, info->file));
    }
}

static void add_model(cJSON *root, const struct inspection *it)
{
    if (it->model) {
        const struct zinf_model_facts *f = zinf_model_facts(it->model);
        cJSON *model = cJSON_AddObjectToObject(root, "model");
        cJSON_AddStringToObject(model, "family", f->family);
        cJSON_AddNumberToObject(model, "parameters", (double)zinf_model_n_params(it->model));
        cJSON_AddNumberToObject(model, "layers", (double)f->layers);
        cJSON_AddNumberToObject(model, "hidden", (double)f->hidden);
        cJSON_AddNumberToObject(model, "heads", (double)f->heads);
        cJSON_AddNumberToObject(model, "vocab", (double)f->vocab);
        cJSON_AddNumberToObject(model, "context", (double)f->context);
    }
    if (it->is_folder) {
        cJSON *supported = cJSON_AddObjectToObject(root, "supported");
        cJSON_AddBoolToObject(supported, "family", it->model != NULL);
        cJSON_AddBoolToObject(supported, "weights", it->fits);
        cJSON_AddBoolToObject(supported, "tokenizer", it->tokenizer != NULL);
    }
    if (*it->family)
        cJSON_AddStringToObject(root, "family", it->family);
    if (it->tokenizer) {
        cJSON *tokenizer = cJSON_AddObjectToObject(root, "tokenizer");
        cJSON_AddStringToObject(tokenizer, "kind", zinf_tokenizer_kind(it->tokenizer));
        cJSON_AddNumberToObject(tokenizer, "ids", zinf_tokenizer_vocab(it->tokenizer));
    }
}

static void add_files(cJSON *root, const struct inspection *it)
{
    if (!it->tensors)
        return;
    cJSON *dtypes = cJSON_AddObjectToObject(root, "dtypes");
    cJSON_AddStringToObject(root, "file_kind", zinf_tensors_file_kind(it->tensors));
    cJSON *files = cJSON_AddArrayToObject(root, "files");
    for (uint32_t i = 0; i < zinf_tensors_file_count(it->tensors); i++)
        cJSON_AddItemToArray(files, cJSON_CreateString(zinf_tensors_file_name(it->tensors, i)));
    for (int i = 0; it->stored[i].name; i++)
        cJSON_AddNumberToObject(dtypes, it->stored[i].name, (double)it->stored[i].n);
}

static int print_json(const struct inspection *it)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "path", it->path);
    cJSON_AddBoolToObject(root, "ok", !it->n_problems);
    cJSON *problems = cJSON_AddArrayToObject(root, "problems");
    for (int i = 0; i < it->n_problems; i++)
        cJSON_AddItemToArray(problems, cJSON_CreateString(it->problems[i]));
    cJSON_AddNumberToObject(root, "elements", (double)it->elems);
    cJSON_AddNumberToObject(root, "bytes", (double)it->bytes);
    cJSON_AddNumberToObject(root, "finite_tensors", (double)it->n_checked);
    add_model(root, it);
    add_files(root, it);
    add_tensors(root, it);
    return cli_print_json(root);
}

static int check(struct cli_call *call)
{
    const int n = call->words.n;
    return n == 1 ? 0 : zinf_fail(-EINVAL, "one PATH is needed, %d are given", n);
}

static int work(struct cli_call *call)
{
    const bool *json = call->options;
    struct inspection it;
    int code = 0;
    inspect_open(&it, call->words.items[0]);
    inspect_check_shapes(&it);
    inspect_check_values(&it);
    if (*json)
        code = print_json(&it);
    else
        print_text(&it);
    print_problems(&it);
    const int status = it.n_problems ? CLI_FAILED : CLI_OK;
    inspect_close(&it);
    return code ? code : status;
}

const struct cli_command cli_inspect = {
    .name = "inspect",
    .summary = "say what a model folder or file holds, and check it",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = cli_json}),
    .bytes = sizeof(bool),
    .takes_words = true,
    .check = check,
    .work = work,
};

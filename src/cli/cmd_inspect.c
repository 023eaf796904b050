/*
 * cmd_inspect: `zinf inspect`, the tensors of a model folder or file in a table, and whether they
 * can be used: headers, names and shapes against config.json, values, tokenizer.
 */
#include "cli/inspect.h"

#include <stdlib.h>

#define MIN_NAME_COLS 6
#define MAX_NAME_COLS 60 /* a longer name sticks out rather than pushing all lines wide */

static const char usage[] =
    "usage: zinf inspect PATH [--json]\n"
    "\n"
    "Says what a model folder, an adapter's folder or a file of weights (safetensors,\n"
    "PyTorch, GGUF) holds: its tensors, family, parameters, number types and\n"
    "tokenizer, and what of it is supported. Checks headers, names and shapes against\n"
    "config.json, and that values are finite. Status 1 when something is wrong.\n";

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

/* "LORA of rank 8, alpha 16, for /models/base". */
static void print_adapter(const struct inspection *it)
{
    static const char *const keys[] = {"peft_type", "base_model_name_or_path"};
    char text[2][512];
    for (int i = 0; i < 2; i++) {
        const char *value = cJSON_GetStringValue(cJSON_GetObjectItem(it->adapter, keys[i]));
        zinf_show_text(text[i], sizeof text[i], value ? value : "?");
    }
    printf("adapter: %s of rank %g, alpha %g, for %s\n", text[0],
           cJSON_GetNumberValue(cJSON_GetObjectItem(it->adapter, "r")),
           cJSON_GetNumberValue(cJSON_GetObjectItem(it->adapter, "lora_alpha")), text[1]);
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
    if (it->adapter)
        print_adapter(it);
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
    if (it->adapter)
        cJSON_AddItemReferenceToObject(root, "adapter", it->adapter);
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

/*
 * inputs: one description of a file or folder is made by one function, when a run begins and again
 * when it is verified; what differs between the two is told by the first member that does.
 */
#include "train/save/inputs.h"

#include "formats/formats.h"
#include "text/lines.h"
#include "train/checkpoints.h"
#include "train/save/changes.h"
#include "train/save/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define FILE_NAME "inputs.json"
#define FORMAT 1
#define MAX_BYTES ((size_t)256 << 20)
#define MAX_CONFIG ((size_t)16 << 20) /* of a configuration that is kept as JSON */

static int fail_memory(void)
{
    return zinf_fail(-ENOMEM, "no memory to describe what a run reads");
}

/* ---- one file or folder ---- */

/* {"option", "path"} in the list; NULL: no memory. */
static cJSON *add_entry(cJSON *list, const char *option, const char *path)
{
    char *whole = realpath(path, NULL);
    cJSON *entry = cJSON_CreateObject();
    bool good = cJSON_AddItemToArray(list, entry) &&
                cJSON_AddStringToObject(entry, "option", option) &&
                cJSON_AddStringToObject(entry, "path", whole ? whole : path);
    free(whole);
    return good ? entry : NULL;
}

/* What is no JSON, as a configuration in YAML, is summed. */
static int describe_file(cJSON *entry, const char *path)
{
    cJSON *json = NULL;
    if (zinf_json_read_file(path, MAX_CONFIG, ZINF_JSON_RELAXED, &json))
        return checkpoint_add_sum(entry, path, "sum");
    return cJSON_AddItemToObject(entry, "json", json) ? 0 : fail_memory();
}

static int describe_config(cJSON *entry, const char *folder, const char *file, const char *key)
{
    char *path = zinf_path_join(folder, file);
    cJSON *json = NULL, *choice = NULL;
    int code = path ? 0 : fail_memory();
    if (!code && !access(path, F_OK) &&
        !(code = zinf_json_read_file(path, MAX_CONFIG, ZINF_JSON_STRICT, &json)) &&
        (!(choice = changes_without_words(json)) || !cJSON_AddItemToObject(entry, key, choice)))
        code = fail_memory();
    cJSON_Delete(json);
    free(path);
    return code;
}

static int describe_folder(cJSON *entry, const char *folder)
{
    cJSON *files = cJSON_AddObjectToObject(entry, "files");
    int code = files ? describe_config(entry, folder, "config.json", "config") : fail_memory();
    if (!code)
        code = describe_config(entry, folder, ZINF_ADAPTER_CONFIG, "adapter");
    if (!code)
        code = zinf_folder_companions(folder, ZINF_COMPANIONS_TOKENIZER, checkpoint_add_sum, files);
    return code;
}

static int describe_weights(cJSON *entry, const char *folder)
{
    struct zinf_tensors *tensors = NULL;
    cJSON *sums = cJSON_AddObjectToObject(entry, "weights");
    uint64_t all;
    int code = sums ? zinf_tensors_open(&tensors, folder) : fail_memory();
    if (!code)
        code = checkpoint_add_weights(sums, tensors, &all);
    zinf_tensors_close(tensors);
    return code;
}

/* Eight digits for each sum. */
static int describe_lines(cJSON *entry, const struct zinf_lines *lines)
{
    char text[8 * ZINF_LINE_SUMS + 1] = "";
    for (uint64_t i = 0; i < zinf_lines_n_sums(lines); i++)
        snprintf(text + 8 * i, 9, "%08" PRIx32, lines->sums[i]);
    cJSON *object = cJSON_AddObjectToObject(entry, "lines");
    return cJSON_AddNumberToObject(object, "count", (double)lines->count) &&
                   cJSON_AddNumberToObject(object, "per_sum", (double)lines->per_sum) &&
                   cJSON_AddStringToObject(object, "sums", text)
               ? 0
               : fail_memory();
}

/* ---- making ---- */

static bool is_folder(const char *path)
{
    struct stat info;
    return !stat(path, &info) && S_ISDIR(info.st_mode);
}

static int add_origin(cJSON *inputs, const struct zinf_origin *origin, const cJSON *weights)
{
    const bool folder = is_folder(origin->path);
    cJSON *entry = add_entry(cJSON_GetObjectItem(inputs, folder ? "folders" : "files"),
                             origin->option, origin->path);
    int code = !entry   ? fail_memory()
               : folder ? describe_folder(entry, origin->path)
                        : describe_file(entry, origin->path);
    if (!code && folder && weights && !strcmp(origin->option, "--model") &&
        !cJSON_AddItemToObject(entry, "weights", cJSON_Duplicate(weights, true)))
        code = fail_memory();
    return code;
}

int inputs_make(cJSON **out, const struct zinf_origins *origins, const cJSON *weights)
{
    cJSON *root = *out = cJSON_CreateObject();
    int code = cJSON_AddNumberToObject(root, "format", FORMAT) &&
                       cJSON_AddArrayToObject(root, "folders") &&
                       cJSON_AddArrayToObject(root, "files") && cJSON_AddArrayToObject(root, "data")
                   ? 0
                   : fail_memory();
    for (int i = 0; !code && origins && i < origins->n; i++) {
        const struct zinf_origin *origin = &origins->items[i];
        if (origin->path && !access(origin->path, F_OK) && !strstr(origin->option, "data"))
            code = add_origin(root, origin, weights);
    }
    if (code) {
        cJSON_Delete(root);
        *out = NULL;
    }
    return code;
}

int inputs_add_data(cJSON *inputs, const char *option, const struct zinf_dataset *data)
{
    cJSON *list = cJSON_GetObjectItem(inputs, "data");
    int code = 0;
    for (uint32_t i = 0; !code && i < zinf_dataset_n_files(data); i++) {
        struct zinf_data_file file;
        code = zinf_dataset_file(data, i, &file);
        cJSON *entry = code ? NULL : add_entry(list, option, file.path);
        if (!code && !entry)
            code = fail_memory();
        else if (!code && file.lines)
            code = describe_lines(entry, file.lines);
        else if (!code && !zinf_json_add_hex(entry, "tokens", file.sum))
            code = fail_memory();
    }
    return code;
}

/* ---- the file ---- */

int inputs_write(const cJSON *inputs, const char *output)
{
    char *path = zinf_path_join(output, FILE_NAME), *text = NULL;
    cJSON *sealed = cJSON_Duplicate(inputs, true);
    int code = path && sealed && zinf_json_seal(sealed) && (text = cJSON_PrintUnformatted(sealed))
                   ? zinf_file_write_atomic(path, text, strlen(text))
                   : fail_memory();
    cJSON_free(text);
    cJSON_Delete(sealed);
    free(path);
    return code;
}

int inputs_read(const char *output, cJSON **out)
{
    char *path = zinf_path_join(output, FILE_NAME);
    int code = path ? 0 : fail_memory();
    *out = NULL;
    if (!code && !access(path, F_OK)) {
        code = zinf_json_read_file(path, MAX_BYTES, ZINF_JSON_STRICT, out);
        if (code || !zinf_json_unseal(*out))
            code = zinf_fail(-EBADMSG,
                             "%s is damaged: remove it, the next training in this folder writes it "
                             "again",
                             path);
    }
    if (code) {
        cJSON_Delete(*out);
        *out = NULL;
    }
    free(path);
    return code;
}

/* ---- comparing ---- */

static bool lines_of(const cJSON *entry, struct zinf_lines *out)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(entry, "lines");
    const double count = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, "count"));
    const double per = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(object, "per_sum"));
    const char *sums = zinf_json_word(object, "sums");
    *out = (struct zinf_lines){.count = 0};
    if (!object || !(per >= 1) || !(count >= 0) || count > per * ZINF_LINE_SUMS)
        return false;
    out->count = (uint64_t)count;
    out->per_sum = (uint64_t)per;
    if (strlen(sums) != 8 * zinf_lines_n_sums(out))
        return false;
    for (uint64_t i = 0; i < zinf_lines_n_sums(out); i++) {
        char digits[9] = "";
        memcpy(digits, sums + 8 * i, 8);
        out->sums[i] = (uint32_t)strtoul(digits, NULL, 16);
    }
    return true;
}

static bool say_lines(const struct zinf_lines *then, const struct zinf_lines *now, char *out,
                      size_t bytes)
{
    uint64_t first, last;
    if (!zinf_lines_differ(then, now, &first, &last))
        return false;
    if (first == last)
        snprintf(out, bytes, "line %" PRIu64, first);
    else
        snprintf(out, bytes, "one of lines %" PRIu64 " to %" PRIu64, first, last);
    return true;
}

static const cJSON *nth_of(const cJSON *inputs, const char *option, int index)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(inputs, "data"))
    {
        if (!strcmp(zinf_json_word(entry, "option"), option) && !index--)
            return entry;
    }
    return NULL;
}

bool inputs_line_of(const cJSON *then, const cJSON *now, const char *option, int index, char *out,
                    size_t bytes)
{
    struct zinf_lines a, b;
    return lines_of(nth_of(then, option, index), &a) && lines_of(nth_of(now, option, index), &b) &&
           say_lines(&a, &b, out, bytes);
}

/* ---- verifying ---- */

struct seeing {
    zinf_inputs_see *see;
    void *arg;
};

static void tell(const struct seeing *s, const char *folder, const char *file, const char *problem)
{
    char path[2048];
    snprintf(path, sizeof path, "%s%s%s", folder, *file ? "/" : "", file);
    s->see(s->arg, path, problem);
}

/* The first value that differs between two descriptions' members. */
static bool tell_change(const struct seeing *s, const char *folder, const char *file,
                        const cJSON *then, const cJSON *now)
{
    struct change c;
    char text[512];
    if (!changes_find(then, now, &c))
        return false;
    snprintf(text, sizeof text, "%s was %s when the run began, and is %s", *c.path ? c.path : "it",
             c.then, c.now);
    tell(s, folder, file, text);
    return true;
}

/* Sums by file. */
static bool tell_files(const struct seeing *s, const char *folder, const cJSON *then,
                       const cJSON *now)
{
    struct change c;
    if (!changes_find(then, now, &c))
        return false;
    tell(s, folder, c.path,
         !strcmp(c.then, "nothing")  ? "it was not there when the run began"
         : !strcmp(c.now, "nothing") ? "it is missing, and was there when the run began"
                                     : "its content is not what it was when the run began");
    return true;
}

static int verify_folder(const struct seeing *s, const cJSON *then)
{
    static const char *const configs[][2] = {{"config", "config.json"},
                                             {"adapter", ZINF_ADAPTER_CONFIG}};
    const char *path = zinf_json_word(then, "path");
    cJSON *now = cJSON_CreateObject();
    const cJSON *weights = cJSON_GetObjectItemCaseSensitive(then, "weights");
    int code = describe_folder(now, path);
    bool differs = false;
    if (!code && weights)
        code = describe_weights(now, path);
    for (int i = 0; !code && i < 2; i++)
        differs |= tell_change(s, path, configs[i][1], cJSON_GetObjectItem(then, configs[i][0]),
                               cJSON_GetObjectItem(now, configs[i][0]));
    if (!code)
        differs |= tell_files(s, path, cJSON_GetObjectItem(then, "files"),
                              cJSON_GetObjectItem(now, "files"));
    if (!code && weights)
        differs |= tell_files(s, path, weights, cJSON_GetObjectItem(now, "weights"));
    if (!code && !differs)
        s->see(s->arg, path, NULL);
    cJSON_Delete(now);
    return code;
}

static int verify_file(const struct seeing *s, const cJSON *then)
{
    const char *path = zinf_json_word(then, "path");
    cJSON *now = cJSON_CreateObject();
    const cJSON *json = cJSON_GetObjectItemCaseSensitive(then, "json");
    int code = describe_file(now, path);
    if (!code && json && cJSON_HasObjectItem(now, "sum"))
        s->see(s->arg, path, "it is no JSON any more");
    else if (!code && !tell_change(s, path, "", json, cJSON_GetObjectItem(now, "json")))
        s->see(s->arg, path,
               strcmp(zinf_json_word(then, "sum"), zinf_json_word(now, "sum")) != 0
                   ? "its content is not what it was when the run began"
                   : NULL);
    cJSON_Delete(now);
    return code;
}

static int verify_tokens(const struct seeing *s, const char *path, const char *then)
{
    const struct zinf_dataset_options options = {.files = &path,
                                                 .n_files = 1,
                                                 .open_token_file = zinf_token_source_open,
                                                 .seq_len = 1,
                                                 .vocab = UINT32_MAX};
    struct zinf_dataset *data = NULL;
    struct zinf_data_file file;
    char now[20];
    int code = zinf_dataset_open(&data, &options);
    if (!code)
        code = zinf_dataset_file(data, 0, &file);
    snprintf(now, sizeof now, "%016" PRIx64, code ? 0 : file.sum);
    if (!code)
        s->see(s->arg, path,
               strcmp(now, then) != 0 ? "its tokens are not those with which the run began" : NULL);
    zinf_dataset_close(data);
    return code;
}

static int verify_data(const struct seeing *s, const cJSON *then)
{
    const char *path = zinf_json_word(then, "path");
    struct zinf_lines a, b;
    char where[80], text[160];
    if (!lines_of(then, &a))
        return verify_tokens(s, path, zinf_json_word(then, "tokens"));
    int code = zinf_lines_of_file(path, &b);
    if (!code && say_lines(&a, &b, where, sizeof where))
        snprintf(text, sizeof text, "%s is not what it was when the run began", where);
    else
        *text = 0;
    if (!code)
        s->see(s->arg, path, *text ? text : NULL);
    return code;
}

int zinf_run_inputs_verify(const char *output, zinf_inputs_see *see, void *arg)
{
    static const struct {
        const char *list;
        int (*verify)(const struct seeing *s, const cJSON *then);
    } kinds[] = {{"files", verify_file}, {"folders", verify_folder}, {"data", verify_data}};
    const struct seeing s = {see, arg};
    cJSON *inputs;
    int code = inputs_read(output, &inputs);
    for (size_t i = 0; !code && i < sizeof kinds / sizeof *kinds; i++) {
        const cJSON *entry;
        cJSON_ArrayForEach(entry, cJSON_GetObjectItemCaseSensitive(inputs, kinds[i].list))
        {
            /* what was read may be gone by now, as a pipe is: that damages nothing */
            if (access(zinf_json_word(entry, "path"), F_OK))
                see(arg, zinf_json_word(entry, "path"), ZINF_INPUT_GONE);
            else if (kinds[i].verify(&s, entry))
                see(arg, zinf_json_word(entry, "path"), zinf_error());
        }
    }
    cJSON_Delete(inputs);
    return code;
}

/* ---- what a refusal may come of ---- */

struct change_seen {
    char refusal[4096], text[1600];
};

static void see_change(void *arg, const char *path, const char *problem)
{
    struct change_seen *seen = arg;
    const char *name = strrchr(path, '/');
    const bool said = strstr(seen->refusal, name ? name + 1 : path);
    if (problem && !said && !*seen->text)
        snprintf(seen->text, sizeof seen->text, "%s: %s", path, problem);
}

int zinf_run_inputs_explain(const char *output, int code)
{
    struct change_seen seen = {.text = ""};
    const struct seeing s = {see_change, &seen};
    cJSON *inputs = NULL;
    snprintf(seen.refusal, sizeof seen.refusal, "%s", zinf_error());
    const bool known = !inputs_read(output, &inputs);
    for (int folders = 0; known && folders < 2; folders++) {
        const cJSON *list = cJSON_GetObjectItemCaseSensitive(inputs, folders ? "folders" : "files");
        cJSON *entry;
        cJSON_ArrayForEach(entry, list)
        {
            /* weights take long to read, and decide nothing before the first step */
            cJSON_DeleteItemFromObject(entry, "weights");
            const char *path = zinf_json_word(entry, "path");
            if (!access(path, F_OK) &&
                (folders ? verify_folder(&s, entry) : verify_file(&s, entry)) && !*seen.text)
                snprintf(seen.text, sizeof seen.text, "%s", zinf_error());
        }
    }
    cJSON_Delete(inputs);
    if (*seen.text)
        return zinf_fail(code, "%s; what may be the reason: %s", seen.refusal, seen.text);
    return zinf_fail(code, "%s", seen.refusal);
}

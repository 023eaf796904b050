/* identity_file: adapter_base.json: what an adapter stands on, the sum of its own weights, and one
 * of all that the file says. */
#include "train/save/identity.h"

#include "text/samples/task.h"
#include "train/checkpoints.h"
#include "train/save/checkpoint.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define MAX_BYTES (16u << 20)
#define FORMAT 2

#define CHECKSUM ", \"checksum\": \""

int identity_write(const cJSON *identity, uint64_t own, const char *folder)
{
    char *path = zinf_path_join(folder, IDENTITY_FILE), *text = NULL;
    char *stands_on = identity ? cJSON_PrintUnformatted(identity) : strdup("{}");
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int code = path && stands_on && out
                   ? 0
                   : zinf_fail(-ENOMEM, "no memory to write what an adapter stands on");
    if (!code)
        fprintf(out, "{\"adapter\": \"%016" PRIx64 "\", \"format\": %d, \"stands_on\": %s", own,
                FORMAT, stands_on);
    if (out)
        fflush(out);
    if (!code)
        fprintf(out, CHECKSUM "%016" PRIx64 "\"}\n", (uint64_t)XXH3_64bits(text, bytes));
    if (out)
        fclose(out);
    if (!code)
        code = zinf_file_write_atomic(path, text, bytes);
    free(text);
    cJSON_free(stands_on);
    free(path);
    return code;
}

static int fail_damaged(const char *path, const char *what)
{
    return zinf_fail(-EBADMSG,
                     "%s is damaged (%s): restore it, or remove it to use the adapter without "
                     "what it knows",
                     path, what);
}

/* Whether the text ends with the checksum of all bytes before it. */
static bool checksum_is_right(const char *text, size_t bytes)
{
    const char *end = NULL;
    for (const char *at = text; (at = strstr(at, CHECKSUM)); at++)
        end = at;
    char again[64];
    if (!end || strlen(text) != bytes)
        return false;
    snprintf(again, sizeof again, CHECKSUM "%016" PRIx64 "\"}\n",
             (uint64_t)XXH3_64bits(text, (size_t)(end - text)));
    return !strcmp(end, again);
}

static int check_members(const cJSON *root, const char *path, const char *text, size_t bytes)
{
    const cJSON *format = cJSON_GetObjectItemCaseSensitive(root, "format");
    const cJSON *stands_on = cJSON_GetObjectItemCaseSensitive(root, "stands_on");
    bool sums = cJSON_HasObjectItem(root, "adapter") || cJSON_HasObjectItem(root, "layout");
    if (!format && !stands_on && sums)
        return zinf_fail(-ENOTSUP,
                         "%s was written by an earlier zinf, which did not know all that an "
                         "adapter stands on: train it anew, or remove that file to use it without",
                         path);
    if (!checksum_is_right(text, bytes))
        return fail_damaged(path, "its checksum is wrong");
    if (!cJSON_IsNumber(format) || format->valuedouble != FORMAT)
        return zinf_fail(-ENOTSUP, "%s is of another format than %d: take a newer zinf", path,
                         FORMAT);
    return cJSON_IsObject(stands_on) &&
                   cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(root, "adapter"))
               ? 0
               : fail_damaged(path, "a sum is missing");
}

/* 1: it is there. */
static int read_file(const char *folder, char **path, cJSON **root)
{
    *root = NULL;
    *path = zinf_path_join(folder, IDENTITY_FILE);
    if (!*path)
        return -ENOMEM;
    if (access(*path, F_OK))
        return 0;
    char *text = NULL;
    size_t bytes = 0;
    int code = zinf_file_read(*path, MAX_BYTES, &text, &bytes);
    if (!code)
        code = zinf_json_parse(text, bytes, *path, ZINF_JSON_STRICT, root);
    code = code ? fail_damaged(*path, "it is no JSON") : check_members(*root, *path, text, bytes);
    free(text);
    return code ? code : 1;
}

int identity_read(const char *folder, cJSON **out)
{
    char *path;
    cJSON *root;
    int code = read_file(folder, &path, &root);
    *out = code > 0 ? cJSON_DetachItemFromObjectCaseSensitive(root, "stands_on") : NULL;
    cJSON_Delete(root);
    free(path);
    return code < 0 ? code : 0;
}

int zinf_adapter_labels(const char *folder, struct zinf_labels *labels)
{
    cJSON *identity;
    const char *name;
    int code = identity_read(folder, &identity);
    const cJSON *model = cJSON_GetObjectItemCaseSensitive(identity, "model");
    *labels = (struct zinf_labels){0};
    while (!code && model && (name = zinf_config_class_name(model, labels->n)))
        code = zinf_labels_add(labels, name);
    if (code)
        zinf_labels_free(labels);
    cJSON_Delete(identity);
    return code;
}

int identity_check_adapter(const cJSON *now, const char *folder, const char *model)
{
    char *path;
    cJSON *root;
    int code = read_file(folder, &path, &root);
    const struct identity_check check = {
        .where = path,
        .model = model,
        .way_on = "put it back, name the adapter's base with --model, or remove that "
                  "adapter_base.json to use the adapter with this one",
        .base = true};
    if (code > 0)
        code = identity_compare(cJSON_GetObjectItemCaseSensitive(root, "stands_on"), now, &check);
    cJSON_Delete(root);
    free(path);
    return code;
}

int identity_check_own(const char *folder)
{
    char *path, *weights = zinf_path_join(folder, ZINF_ADAPTER_WEIGHTS), again[20];
    cJSON *root;
    uint64_t bytes, own = 0;
    int code = read_file(folder, &path, &root);
    if (code > 0 && !weights)
        code = -ENOMEM;
    if (code > 0 && !(code = checkpoint_sum_file(weights, &bytes, &own)))
        code = 1;
    snprintf(again, sizeof again, "%016" PRIx64, own);
    if (code > 0 &&
        strcmp(again, cJSON_GetObjectItemCaseSensitive(root, "adapter")->valuestring) != 0)
        code = zinf_fail(-EBADMSG,
                         "%s is damaged: its checksum is not the one in %s: restore the file; or "
                         "remove %s, if another program changed the adapter on purpose",
                         weights, path, IDENTITY_FILE);
    cJSON_Delete(root);
    free(weights);
    free(path);
    return code;
}

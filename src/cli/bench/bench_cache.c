/*
 * bench_cache: what the benches measured on this machine, kept from one command to the next. A
 * damaged or foreign file is taken as empty: it costs a measurement, not a run.
 */
#include "cli/bench/bench.h"

#include <stdlib.h>
#include <time.h>

#define MAX_CACHE_BYTES ((size_t)4 << 20)

/* Folder and file, on the heap; NULL where the environment names no home. */
static char *cache_path(bool make_folder)
{
    const char *base = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    char *root = NULL, *folder = NULL, *path = NULL;
    if (base && *base)
        root = strdup(base);
    else if (home && *home)
        root = zinf_path_join(home, ".cache");
    if (root)
        folder = zinf_path_join(root, "zinf");
    if (folder && (!make_folder || !zinf_make_dirs(folder)))
        path = zinf_path_join(folder, "bench.json");
    free(folder);
    free(root);
    return path;
}

cJSON *bench_cache_load(void)
{
    cJSON *cache = NULL;
    char *path = cache_path(false);
    if (path && zinf_json_read_file(path, MAX_CACHE_BYTES, ZINF_JSON_STRICT, &cache))
        cache = NULL;
    free(path);
    if (cache && !cJSON_IsObject(cache)) {
        cJSON_Delete(cache);
        cache = NULL;
    }
    return cache ? cache : cJSON_CreateObject();
}

const char *bench_device_key(char out[32], enum zinf_device_kind kind, enum zinf_dtype dtype)
{
    if (kind == ZINF_DEVICE_CUDA)
        snprintf(out, 32, "cuda/%s", zinf_dtype_name(dtype));
    else
        snprintf(out, 32, "host/%s/%s", zinf_isa_name(zinf_isa()), zinf_dtype_name(dtype));
    return out;
}

const cJSON *bench_cache_find(const cJSON *cache, const char *section, const char *key)
{
    const cJSON *results = cJSON_GetObjectItemCaseSensitive(cache, section);
    const cJSON *result = cJSON_GetObjectItemCaseSensitive(results, key);
    return cJSON_IsObject(result) ? result : NULL;
}

static cJSON *member_object(cJSON *parent, const char *key)
{
    cJSON *member = cJSON_GetObjectItemCaseSensitive(parent, key);
    if (cJSON_IsObject(member))
        return member;
    cJSON_DeleteItemFromObjectCaseSensitive(parent, key);
    return cJSON_AddObjectToObject(parent, key);
}

static int put(cJSON *cache, const char *section, const char *key, const cJSON *result)
{
    char date[32];
    time_t now = time(NULL);
    struct tm utc;
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    cJSON *results = member_object(cache, section), *copy = cJSON_Duplicate(result, true);
    if (!results || !copy) {
        cJSON_Delete(copy);
        return -ENOMEM;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "date");
    if (!cJSON_AddStringToObject(copy, "date", date)) {
        cJSON_Delete(copy);
        return -ENOMEM;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(results, key);
    return cJSON_AddItemToObject(results, key, copy) ? 0 : -ENOMEM;
}

void bench_cache_save(const char *section, const char *key, const cJSON *result)
{
    char *path = cache_path(true), *text = NULL;
    cJSON *cache = bench_cache_load();
    if (path && cache && !put(cache, section, key, result) && (text = cJSON_Print(cache))) {
        if (zinf_file_write_atomic(path, text, strlen(text)))
            zinf_log(ZINF_LOG_WARN, "the result is not kept for zinf estimate: %s", zinf_error());
    } else {
        zinf_log(ZINF_LOG_WARN, "the result is not kept for zinf estimate: %s",
                 path ? "no memory" : "set HOME or XDG_CACHE_HOME to a folder that can be written");
    }
    cJSON_free(text);
    cJSON_Delete(cache);
    free(path);
}

int bench_finish(const struct cli_command *bench, cJSON *result, int code)
{
    if (!code && result)
        return cli_print_json(result);
    cJSON_Delete(result);
    return code == -EINVAL ? cli_error(bench, CLI_USAGE) : code;
}

/*
 * bench_cache: what the benches measured on this machine, kept from one command to the next. A
 * damaged or foreign file is taken as empty: it costs a measurement, not a run.
 */
#include "cli/bench/bench.h"

#include "base/cpu_load.h"

#include <stdlib.h>
#include <time.h>

static cJSON *member_object(cJSON *parent, const char *key)
{
    cJSON *member = cJSON_GetObjectItemCaseSensitive(parent, key);
    if (cJSON_IsObject(member))
        return member;
    cJSON_DeleteItemFromObjectCaseSensitive(parent, key);
    return cJSON_AddObjectToObject(parent, key);
}

static struct zinf_cpu_load begin; /* of the mode that runs; the command has one thread */

void bench_watch(void)
{
    begin = zinf_cpu_load_now(NULL);
}

/* Adds what others used of the CPUs, and warns where that has slowed the bench down. */
static int add_others(cJSON *result)
{
    const struct zinf_cpu_load end = zinf_cpu_load_now(NULL);
    const double others = zinf_cpu_load_others(&begin, &end);
    if (others < 0)
        return 0;
    if (others > SPEEDS_MOST_OTHERS)
        zinf_log_once(
            ZINF_LOG_WARN, "bench-load",
            "other processes used %.0f %% of the CPUs while this was measured: plans that "
            "go by it say so; measure again when the machine is idle",
            100 * others);
    return cJSON_AddNumberToObject(result, "others", others) ? 0 : -ENOMEM;
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
    cJSON_DeleteItemFromObjectCaseSensitive(copy, "others");
    if (!cJSON_AddStringToObject(copy, "date", date) || add_others(copy)) {
        cJSON_Delete(copy);
        return -ENOMEM;
    }
    cJSON_DeleteItemFromObjectCaseSensitive(results, key);
    return cJSON_AddItemToObject(results, key, copy) ? 0 : -ENOMEM;
}

void bench_cache_save(const char *section, const char *key, const cJSON *result)
{
    char *path = speeds_cache_path(true), *text = NULL;
    cJSON *cache = speeds_cache_load();
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

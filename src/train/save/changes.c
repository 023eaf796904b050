/*
 * changes: documents are gone through member by member, in the order of the newer one; members
 * that only the older one has come last.
 */
#include "train/save/changes.h"

#include <stdio.h>

/* Names, numbers of versions, types that files are stored in: nothing of it decides arithmetic. */
cJSON *changes_without_words(const cJSON *config)
{
    static const char *const words[] = {"_name_or_path",
                                        "transformers_version",
                                        "torch_dtype",
                                        "dtype",
                                        "use_cache",
                                        "quantization_config",
                                        "inference_mode",
                                        "peft_version",
                                        "base_model_name_or_path",
                                        "auto_mapping",
                                        "revision",
                                        "peft_type",
                                        "init_lora_weights",
                                        "_attn_implementation",
                                        "_commit_hash"};
    cJSON *copy = cJSON_Duplicate(config, true);
    for (size_t i = 0; copy && i < sizeof words / sizeof *words; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(copy, words[i]);
    return copy;
}

static void show(char out[64], const cJSON *value)
{
    char *text = value ? cJSON_PrintUnformatted(value) : NULL;
    snprintf(out, 64, "%.60s", text ? text : "nothing");
    cJSON_free(text);
}

static const cJSON *first_change(const cJSON *a, const cJSON *b, const cJSON **other, char *path,
                                 size_t bytes);

static const cJSON *change_within(const cJSON *a, const cJSON *b, const cJSON **other, char *path,
                                  size_t bytes)
{
    const cJSON *member, *twin, *found;
    size_t at = strlen(path);
    cJSON_ArrayForEach(member, b)
    {
        twin = cJSON_GetObjectItemCaseSensitive(a, member->string);
        snprintf(path + at, bytes - at, "%s%s", at ? "." : "", member->string);
        found = first_change(twin, member, other, path, bytes);
        if (found || *other)
            return found;
        path[at] = 0;
    }
    return NULL;
}

/* The value that is there now and in *other the one that was saved, either of which may be NULL. */
static const cJSON *first_change(const cJSON *a, const cJSON *b, const cJSON **other, char *path,
                                 size_t bytes)
{
    *other = NULL;
    if (a && b && cJSON_Compare(a, b, true))
        return NULL;
    if (!cJSON_IsObject(a) || !cJSON_IsObject(b)) {
        *other = a;
        return b;
    }
    const cJSON *found = change_within(a, b, other, path, bytes);
    if (found || *other)
        return found;
    const cJSON *member;
    size_t at = strlen(path);
    cJSON_ArrayForEach(member, a)
    {
        if (*other || cJSON_GetObjectItemCaseSensitive(b, member->string))
            continue;
        snprintf(path + at, bytes - at, "%s%s", at ? "." : "", member->string);
        *other = member; /* it is there no more */
    }
    return NULL;
}

bool changes_find(const cJSON *then, const cJSON *now, struct change *out)
{
    const cJSON *other = NULL;
    *out = (struct change){.path = ""};
    const cJSON *found = first_change(then, now, &other, out->path, sizeof out->path);
    if (!found && !other)
        return false;
    show(out->then, other);
    show(out->now, found);
    return true;
}

/*
 * config_load: text to struct. The document is read (config_read.c), then the steps that need the
 * whole picture follow in a fixed order: command line, what is Trainer's, "auto", dependent
 * defaults, batch triple, checks.
 */
#include "config/config_private.h"

#include <stdlib.h>

static int config_create(struct zinf_config **out, const char *what)
{
    struct zinf_config *config = calloc(1, sizeof *config);
    *out = config;
    if (!config)
        goto no_memory;
    config->entries = calloc(1, sizeof *config->entries);
    if (!config->entries)
        goto no_memory;
    config->entries->what = strdup(what);
    config->entries->item = calloc(zinf_config_n_keys, sizeof *config->entries->item);
    if (!config->entries->what || !config->entries->item)
        goto no_memory;
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        const struct zinf_config_key *key = &zinf_config_keys[i];
        int code = key->use == KEY_USED ? zinf_config_value_default(config, key) : 0;
        if (code)
            return code;
    }
    return 0;
no_memory:
    return zinf_fail(-ENOMEM, "no memory for the configuration");
}

static int resolve(struct config_loader *loader)
{
    static int (*const steps[])(struct config_loader *) = {
        zinf_config_apply_context, zinf_config_resolve_trainer,  zinf_config_resolve_kinds,
        zinf_config_resolve_auto,  zinf_config_resolve_defaults, zinf_config_resolve_batch,
        zinf_config_check,
    };
    int code = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !code; i++)
        code = steps[i](loader);
    return code;
}

/* On the heap, also where this fails. */
static int as_json(const char *text, size_t bytes, const char *what, bool quiet, char **json,
                   size_t *json_bytes)
{
    if (!zinf_config_is_yaml(text, bytes, what))
        return zinf_config_hjson(text, bytes, what, json, json_bytes);
    int code = zinf_config_yaml(text, bytes, what, json, json_bytes);
    return code ? code : zinf_config_foreign(json, json_bytes, what, quiet);
}

/* text NULL: no file. */
static int load(struct zinf_config **out, const char *text, size_t bytes, const char *what,
                const struct zinf_config_context *context)
{
    static const struct zinf_config_context nothing = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct config_loader loader = {.context = context ? context : &nothing, .what = what};
    char *json = NULL;
    *out = NULL;
    int code = config_create(&loader.config, what);
    if (!code && text)
        code = as_json(text, bytes, what, loader.context->quiet, &json, &loader.bytes);
    loader.text = json;
    if (!code && text)
        code = zinf_config_read(&loader);
    if (!code)
        code = resolve(&loader);
    cJSON_Delete(loader.document);
    free(loader.unknown);
    free(loader.accepted);
    free(loader.renamed);
    free(loader.comments);
    free(json);
    if (code)
        zinf_config_destroy(loader.config);
    else
        *out = loader.config;
    return code;
}

/* A configuration is a file, or is given itself: then it begins with its brace. */
bool zinf_config_is_text(const char *path)
{
    return path && path[strspn(path, " \t\r\n")] == '{';
}

int zinf_config_load(struct zinf_config **out, const char *path,
                     const struct zinf_config_context *context)
{
    char *text;
    size_t bytes;
    *out = NULL;
    if (!path)
        return load(out, NULL, 0, "command line", context);
    if (zinf_config_is_text(path))
        return load(out, path, strlen(path), "configuration", context);
    int code = zinf_file_read(path, ZINF_CONFIG_MOST_BYTES, &text, &bytes);
    if (code)
        return zinf_fail_in(code, "configuration");
    code = load(out, text, bytes, path, context);
    free(text);
    return code;
}

void zinf_config_timeout(const char *path, double *seconds)
{
    char *text = NULL, *json = NULL;
    size_t bytes = 0, json_bytes = 0;
    cJSON *document = NULL;
    if (zinf_config_is_text(path) && (text = strdup(path)))
        bytes = strlen(text);
    if (path && (text || !zinf_file_read(path, ZINF_CONFIG_MOST_BYTES, &text, &bytes)) &&
        !as_json(text, bytes, path, true, &json, &json_bytes) &&
        !zinf_json_parse(json, json_bytes, path, ZINF_JSON_RELAXED, &document)) {
        const cJSON *own = cJSON_GetObjectItemCaseSensitive(document, "zinf");
        const cJSON *timeout = cJSON_GetObjectItemCaseSensitive(own, "timeout");
        if (cJSON_IsNumber(timeout) && timeout->valuedouble >= 1 && timeout->valuedouble <= 86400)
            *seconds = timeout->valuedouble;
    }
    cJSON_Delete(document);
    free(json);
    free(text);
}

/* Files of others are YAML. A file that cannot be read has nothing: whoever loads it says why. */
int zinf_config_job(const char *path, int (*take)(void *arg, const char *option, const char *text),
                    void *arg)
{
    char *text = NULL, *json = NULL;
    size_t bytes, json_bytes;
    cJSON *document = NULL;
    int code = 0;
    if (path && !zinf_config_is_text(path) &&
        !zinf_file_read(path, ZINF_CONFIG_MOST_BYTES, &text, &bytes) &&
        zinf_config_is_yaml(text, bytes, path) &&
        !zinf_config_yaml(text, bytes, path, &json, &json_bytes) &&
        !zinf_json_parse(json, json_bytes, path, ZINF_JSON_STRICT, &document))
        code = zinf_config_job_of(document, take, arg);
    cJSON_Delete(document);
    free(json);
    free(text);
    return code;
}

int zinf_config_parse(struct zinf_config **out, const char *text, size_t bytes, const char *what,
                      const struct zinf_config_context *context)
{
    return load(out, text, bytes, what ? what : "configuration", context);
}

static void free_entries(struct zinf_config_entries *entries)
{
    for (size_t i = 0; entries->item && i < zinf_config_n_keys; i++)
        free(entries->item[i].source);
    free(entries->item);
    free(entries->what);
    free(entries);
}

/* Every heap string of the struct has a row of its own in the table. */
void zinf_config_destroy(struct zinf_config *config)
{
    if (!config)
        return;
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        const struct zinf_config_key *key = &zinf_config_keys[i];
        void *field = (char *)config + key->offset;
        if (key->use != KEY_USED)
            continue;
        if (key->type == KEY_TEXT || key->type == KEY_JSON)
            free(*(char **)field);
        if (key->type == KEY_PATHS)
            for (int j = 0; j < ((struct zinf_config_offload *)field)->n_nvme_paths; j++)
                free(((struct zinf_config_offload *)field)->nvme_path[j]);
    }
    if (config->entries)
        free_entries(config->entries);
    free(config);
}

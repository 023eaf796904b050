/*
 * config_load: JSON text to struct. The document is walked once; each leaf finds its row by path
 * and stores itself. Unknown keys are gathered, so that one run names them all. Then the steps
 * that need the whole picture follow in a fixed order: command line, "auto", dependent defaults,
 * batch triple, checks.
 */
#include "config/config_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#define MAX_FILE_BYTES (1u << 20)
#define MAX_PATH_BYTES 256
#define MAX_UNKNOWN 16 /* said in full; the others are counted */

/* ---- entries ---- */

struct config_entry *zinf_config_entry(const struct zinf_config *config, const char *path)
{
    const struct zinf_config_key *key = zinf_config_key_find(path);
    return &config->entries->item[key - zinf_config_keys];
}

int zinf_config_entry_mark(struct config_entry *entry, enum entry_state state, const char *format,
                           ...)
{
    char source[512];
    va_list args;
    va_start(args, format);
    vsnprintf(source, sizeof source, format, args);
    va_end(args);
    char *copy = strdup(source);
    if (!copy)
        return zinf_fail(-ENOMEM, "no memory for the configuration");
    free(entry->source);
    entry->source = copy;
    entry->state = state;
    return 0;
}

const char *zinf_config_where(const struct zinf_config *config, const char *path)
{
    static _Thread_local char where[512];
    const struct config_entry *entry = zinf_config_entry(config, path);
    const char *what = config->entries->what;
    if (entry->state == ENTRY_CONTEXT)
        snprintf(where, sizeof where, "command line: %s", path);
    else if (entry->line)
        snprintf(where, sizeof where, "%.200s:%d: %s", what, entry->line, path);
    else
        snprintf(where, sizeof where, "%.200s: %s", what, path);
    return where;
}

int zinf_config_list_append(char **list, const char *separator, const char *item)
{
    size_t used = *list ? strlen(*list) : 0;
    size_t bytes = used + strlen(separator) + strlen(item) + 1;
    char *longer = realloc(*list, bytes);
    if (!longer)
        return zinf_fail(-ENOMEM, "no memory for the configuration");
    snprintf(longer + used, bytes - used, "%s%s", used ? separator : "", item);
    *list = longer;
    return 0;
}

/* ---- one leaf ---- */

/* "ds.json:12", or the name alone where the key is not found as plain text. Returns the line. */
static int where_is(const struct config_loader *loader, const char *path, char *out,
                    size_t out_bytes)
{
    int line = zinf_json_line_of(loader->text, loader->bytes, path);
    if (line > 0)
        snprintf(out, out_bytes, "%s:%d", loader->what, line);
    else
        snprintf(out, out_bytes, "%s", loader->what);
    return line;
}

static bool is_auto(const struct zinf_config_key *key, const cJSON *json)
{
    if (!cJSON_IsString(json) || strcmp(json->valuestring, "auto"))
        return false;
    for (int i = 0; key->choices && key->choices[i]; i++)
        if (!strcmp(key->choices[i], "auto"))
            return false;
    return true;
}

/* A flag of old becomes a value of the new key; present says whether it asks for anything. */
static int parse_old_flag(const struct zinf_config_alias *alias, const cJSON *json,
                          const char *where, struct config_value *value, bool *present)
{
    if (!cJSON_IsBool(json))
        return zinf_fail(-EINVAL, "%s: %s must be %strue or false", where, alias->path,
                         alias->change == ALIAS_STAGE ? "an object, or " : "");
    bool on = cJSON_IsTrue(json);
    memset(value, 0, sizeof *value);
    value->number = alias->change == ALIAS_CPU ? ZINF_PLACE_CPU : on;
    value->integer = on;
    *present = on || alias->change == ALIAS_STAGE;
    return 0;
}

static int store_leaf(struct config_loader *loader, const struct zinf_config_key *key,
                      const char *path, const cJSON *json, const char *where,
                      const struct config_value *value)
{
    struct config_entry *entry = &loader->config->entries->item[key - zinf_config_keys];
    entry->number = value->number;
    if (key->use == KEY_USED) {
        int code = zinf_config_value_store(loader->config, key, value);
        return code ? code : zinf_config_entry_mark(entry, ENTRY_FILE, "%s", where);
    }
    if (key->use == KEY_UNSUPPORTED && !zinf_config_value_is_default(key, value)) {
        char *found = cJSON_PrintUnformatted(json);
        int code = zinf_fail(-ENOTSUP, "%s: %s is %.60s, which zinf does not do: %s", where, path,
                             found ? found : "?", key->why);
        cJSON_free(found);
        return code;
    }
    return zinf_config_entry_mark(entry, ENTRY_FILE, "%s", where);
}

static int read_leaf(struct config_loader *loader, const struct zinf_config_key *key,
                     const struct zinf_config_alias *alias, const char *path, const cJSON *json)
{
    struct config_entry *entry = &loader->config->entries->item[key - zinf_config_keys];
    struct config_value value;
    char where[MAX_PATH_BYTES + 64], renamed[2 * MAX_PATH_BYTES + 8];
    bool present = true, automatic = is_auto(key, json);
    int code = 0;
    if (key->use == KEY_IGNORED)
        return 0;
    int line = where_is(loader, path, where, sizeof where);
    if (alias && alias->change != ALIAS_SAME)
        code = parse_old_flag(alias, json, where, &value, &present);
    else if (!automatic)
        code = zinf_config_value_parse(key, json, where, &value);
    if (code || !present)
        return code;
    if (alias) {
        snprintf(renamed, sizeof renamed, "%s -> %s", path, key->path);
        code = zinf_config_list_append(&loader->renamed, ", ", renamed);
    }
    if (!code && key->use == KEY_ACCEPTED)
        code = zinf_config_list_append(&loader->accepted, ", ", path);
    if (code)
        return code;
    if (entry->in_file && !strchr(key->path, '*'))
        return zinf_fail(-EINVAL, "%s: %s is given under two names (also at %s); keep one", where,
                         key->path, entry->source);
    entry->in_file = true;
    entry->line = line;
    if (automatic)
        return zinf_config_entry_mark(entry, ENTRY_AUTO, "%s", where);
    return store_leaf(loader, key, path, json, where, &value);
}

/* ---- the walk ---- */

static int note_unknown(struct config_loader *loader, const char *path, const char *name)
{
    char where[MAX_PATH_BYTES + 64], hint[512] = "", line[MAX_PATH_BYTES + 1024];
    if (++loader->n_unknown > MAX_UNKNOWN)
        return 0;
    where_is(loader, path, where, sizeof where);
    if (strchr(name, '.'))
        snprintf(hint, sizeof hint, "; sections are nested objects, not names with dots");
    else
        zinf_config_key_suggest(path, hint, sizeof hint);
    snprintf(line, sizeof line, "%s: unknown key \"%.*s\"%s", where, MAX_PATH_BYTES, path, hint);
    return zinf_config_list_append(&loader->unknown, "\n", line);
}

static int walk(struct config_loader *loader, const cJSON *object, const char *section);

static int walk_member(struct config_loader *loader, const cJSON *member, const char *section)
{
    char path[MAX_PATH_BYTES];
    int length =
        snprintf(path, sizeof path, "%s%s%s", section, *section ? "." : "", member->string);
    const struct zinf_config_alias *alias = zinf_config_alias_find(path);
    const struct zinf_config_key *key = zinf_config_key_find(alias ? alias->key : path);
    bool known_section = zinf_config_section_known(path);
    if (length >= (int)sizeof path || strchr(member->string, '.') ||
        !(alias || key || known_section))
        return note_unknown(loader, path, member->string);
    if (cJSON_IsNull(member))
        return 0;
    if (known_section && cJSON_IsObject(member))
        return walk(loader, member, path);
    if (key)
        return read_leaf(loader, key, alias, path, member);
    char where[MAX_PATH_BYTES + 64];
    where_is(loader, path, where, sizeof where);
    return zinf_fail(-EINVAL, "%s: %s must be an object {...}", where, path);
}

/* The JSON reader capped the depth. */
static int walk(struct config_loader *loader, const cJSON *object, const char *section)
{
    const cJSON *member;
    cJSON_ArrayForEach(member, object)
    {
        int code = walk_member(loader, member, section);
        if (code)
            return code;
    }
    return 0;
}

static int report_unknown(struct config_loader *loader)
{
    if (!loader->n_unknown)
        return 0;
    int more = loader->n_unknown - MAX_UNKNOWN;
    char tail[64] = "";
    if (more > 0)
        snprintf(tail, sizeof tail, "\nand %d more unknown keys", more);
    if (!loader->context->lenient)
        return zinf_fail(-EINVAL, "%s%s", loader->unknown, tail);
    zinf_log(ZINF_LOG_WARN, "%s%s (ignored)", loader->unknown, tail);
    return 0;
}

static int read_document(struct config_loader *loader)
{
    const cJSON *type;
    int code = zinf_json_parse(loader->text, loader->bytes, loader->what, ZINF_JSON_RELAXED,
                               &loader->document);
    if (code)
        return code;
    if (!cJSON_IsObject(loader->document))
        return zinf_fail(-EINVAL, "%s: the configuration must be an object {...}", loader->what);
    /* Before the keys: another optimizer's parameters would be reported as unknown. */
    type = cJSON_GetObjectItemCaseSensitive(loader->document, "optimizer");
    type = cJSON_GetObjectItemCaseSensitive(type, "type");
    code = type ? zinf_config_check_optimizer_type(loader, type) : 0;
    if (!code)
        code = walk(loader, loader->document, "");
    if (!code)
        code = report_unknown(loader);
    if (!code && loader->renamed)
        zinf_log(ZINF_LOG_INFO, "%s: old key names read as their new ones: %s", loader->what,
                 loader->renamed);
    if (!code && loader->accepted)
        zinf_log(ZINF_LOG_INFO, "%s: known keys that change nothing here: %s", loader->what,
                 loader->accepted);
    return code;
}

/* ---- the whole ---- */

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
        zinf_config_apply_context,    zinf_config_resolve_kinds, zinf_config_resolve_auto,
        zinf_config_resolve_defaults, zinf_config_resolve_batch, zinf_config_check,
    };
    int code = 0;
    for (size_t i = 0; i < sizeof steps / sizeof *steps && !code; i++)
        code = steps[i](loader);
    return code;
}

/* text NULL: no file. */
static int load(struct zinf_config **out, const char *text, size_t bytes, const char *what,
                const struct zinf_config_context *context)
{
    static const struct zinf_config_context nothing = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct config_loader loader = {
        .context = context ? context : &nothing, .text = text, .bytes = bytes, .what = what};
    *out = NULL;
    int code = config_create(&loader.config, what);
    if (!code && text)
        code = read_document(&loader);
    if (!code)
        code = resolve(&loader);
    cJSON_Delete(loader.document);
    free(loader.unknown);
    free(loader.accepted);
    free(loader.renamed);
    if (code)
        zinf_config_destroy(loader.config);
    else
        *out = loader.config;
    return code;
}

int zinf_config_load(struct zinf_config **out, const char *path,
                     const struct zinf_config_context *context)
{
    char *text;
    size_t bytes;
    *out = NULL;
    if (!path)
        return load(out, NULL, 0, "command line", context);
    int code = zinf_file_read(path, MAX_FILE_BYTES, &text, &bytes);
    if (code)
        return zinf_fail_in(code, "configuration");
    code = load(out, text, bytes, path, context);
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
        if (key->type == KEY_TEXT)
            free(*(char **)field);
        if (key->type == KEY_PATHS)
            for (int j = 0; j < ((struct zinf_config_offload *)field)->n_nvme_paths; j++)
                free(((struct zinf_config_offload *)field)->nvme_path[j]);
    }
    if (config->entries)
        free_entries(config->entries);
    free(config);
}

/*
 * config_read: the document is walked once; each leaf finds its row by path and stores itself.
 * Unknown keys are gathered, so that one run names them all.
 */
#include "config/config_private.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_PATH_BYTES 256
#define MAX_UNKNOWN 16 /* said in full; the others are counted */

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

/* Refuses the first "enabled" that is true at or below path; a section that is off is no offence.
 */
static int refuse_enabled(struct config_loader *loader, const struct zinf_config_key *key,
                          const char *path, const cJSON *json)
{
    char inner[MAX_PATH_BYTES], where[MAX_PATH_BYTES + 64];
    const char *dot = strrchr(path, '.');
    const cJSON *member;
    int code = 0;
    if (cJSON_IsTrue(json) && !strcmp(dot ? dot + 1 : path, "enabled")) {
        where_is(loader, path, where, sizeof where);
        return zinf_fail(-ENOTSUP, "%s: %s is true, which zinf does not do: %s", where, path,
                         key->why);
    }
    for (member = cJSON_IsObject(json) ? json->child : NULL; member && !code; member = member->next)
        if (snprintf(inner, sizeof inner, "%s.%s", path, member->string) < (int)sizeof inner)
            code = refuse_enabled(loader, key, inner, member);
    return code;
}

static int refuse_value(const struct zinf_config_key *key, const char *path, const cJSON *json,
                        const char *where)
{
    char *found = cJSON_PrintUnformatted(json);
    int code = zinf_fail(-ENOTSUP, "%s: %s is %.60s, which zinf does not do: %s", where, path,
                         found ? found : "?", key->why);
    cJSON_free(found);
    return code;
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
    if (key->use == KEY_UNSUPPORTED && key->by_enabled) {
        int code = refuse_enabled(loader, key, path, json);
        return code ? code : zinf_config_list_append(&loader->accepted, ", ", path);
    }
    if (key->use == KEY_UNSUPPORTED && !zinf_config_value_is_default(key, value)) {
        if (!key->warns)
            return refuse_value(key, path, json, where);
        zinf_config_note(loader, ZINF_LOG_WARN, "%s: %s is ignored: %s", where, path, key->why);
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
    if (!code && key->use == KEY_ACCEPTED && !key->why)
        code = zinf_config_list_append(&loader->accepted, ", ", path);
    if (code)
        return code;
    if (entry->in_file && !strchr(key->path, '*'))
        return zinf_fail(-EINVAL, "%s: %s is given under two names (also at %s); keep one", where,
                         key->path, entry->source);
    entry->in_file = true;
    entry->is_auto = automatic;
    entry->line = line;
    if (automatic)
        return zinf_config_entry_mark(entry, ENTRY_AUTO, "%s", where);
    return store_leaf(loader, key, path, json, where, &value);
}

/* ---- the walk ---- */

/* Whether an unknown key can be left out without a loss. What DeepSpeed does not know at the top it
 * does not look at: other programs keep things there. So it is with a key that changes nothing here
 * wherever it stands, and with the keys of a section that changes nothing. */
static bool is_idle(const char *path, const char *name, bool known)
{
    if (strcmp(path, name) != 0)
        return zinf_config_section_idle(path);
    return !known || zinf_config_name_idle(name);
}

static int note_unknown(struct config_loader *loader, const char *path, const char *name)
{
    char where[MAX_PATH_BYTES + 64], hint[512] = "", line[MAX_PATH_BYTES + 1024];
    bool dotted = strchr(name, '.') != NULL, known = dotted;
    where_is(loader, path, where, sizeof where);
    if (dotted)
        snprintf(hint, sizeof hint, "; sections are nested objects, not names with dots");
    else
        known = zinf_config_key_suggest(path, hint, sizeof hint);
    if (!dotted && is_idle(path, name, known)) {
        zinf_config_note(loader, ZINF_LOG_WARN, "%s: \"%.*s\" is no key of DeepSpeed or zinf%s%s",
                         where, MAX_PATH_BYTES, path, known ? hint : ": ignored",
                         known ? " (ignored)" : "");
        return 0;
    }
    if (loader->context->lenient) {
        zinf_config_note(loader, ZINF_LOG_WARN, "%s: unknown key \"%.*s\"%s (ignored)", where,
                         MAX_PATH_BYTES, path, hint);
        return 0;
    }
    if (++loader->n_unknown > MAX_UNKNOWN)
        return 0;
    snprintf(line, sizeof line, "%s: unknown key \"%.*s\"%s%s", where, MAX_PATH_BYTES, path, hint,
             strchr(hint, '?') ? " Else remove it, or pass --lenient"
                               : "; else remove it, or pass --lenient");
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
    if (member->string[0] == '_' && !key) /* commented out */
        return zinf_config_list_append(&loader->comments, ", ", path);
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
    int more = loader->n_unknown - MAX_UNKNOWN;
    char tail[64] = "";
    if (!loader->n_unknown)
        return 0;
    if (more > 0)
        snprintf(tail, sizeof tail, "\nand %d more unknown keys", more);
    return zinf_fail(-EINVAL, "%s%s", loader->unknown, tail);
}

/* Keys that change nothing for a reason of their own: one line a reason. */
static int report_reasons(struct config_loader *loader)
{
    const struct config_entry *entries = loader->config->entries->item;
    int code = 0;
    for (size_t i = 0; i < zinf_config_n_keys && !code; i++) {
        const char *why = zinf_config_keys[i].why, *first = NULL;
        char *paths = NULL;
        for (size_t j = 0; why && j < zinf_config_n_keys && !code; j++) {
            const struct zinf_config_key *key = &zinf_config_keys[j];
            if (key->use != KEY_ACCEPTED || !entries[j].in_file || !key->why ||
                strcmp(key->why, why))
                continue;
            first = first ? first : key->path;
            code = zinf_config_list_append(&paths, ", ", key->path);
        }
        if (paths && !code && first == zinf_config_keys[i].path)
            zinf_config_note(loader, ZINF_LOG_INFO, "%s: %s: %s", loader->what, paths, why);
        free(paths);
    }
    return code;
}

/* What was read otherwise than it stands there. Printed by who shows the configuration. */
static int report_notes(struct config_loader *loader)
{
    if (loader->renamed)
        zinf_config_note(loader, ZINF_LOG_INFO, "%s: old names and places read as the new ones: %s",
                         loader->what, loader->renamed);
    if (loader->comments)
        zinf_config_note(loader, ZINF_LOG_INFO, "%s: a name with _ in front is a comment: %s",
                         loader->what, loader->comments);
    if (loader->accepted && !loader->context->show)
        zinf_config_note(loader, ZINF_LOG_INFO, "%s: known keys that change nothing here: %s",
                         loader->what, loader->accepted);
    return report_reasons(loader);
}

int zinf_config_read(struct config_loader *loader)
{
    const cJSON *type;
    int code = zinf_json_parse(loader->text, loader->bytes, loader->what, ZINF_JSON_STRICT,
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
    return code ? code : report_notes(loader);
}

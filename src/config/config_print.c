/*
 * config_print: the resolved configuration with where each value came from, as a table for people
 * and as JSON that loads again to the same values. Both walk the key table.
 */
#include "config/config_private.h"

#include <stdio.h>
#include <stdlib.h>

static const char *source_of(const struct zinf_config *config, size_t i)
{
    const char *source = config->entries->item[i].source;
    return source ? source : "default";
}

static bool is_shown(const struct zinf_config *config, size_t i)
{
    const struct zinf_config_key *key = &zinf_config_keys[i];
    return key->use == KEY_USED && zinf_config_key_applies(config, key);
}

char *zinf_config_value_shown(const struct zinf_config *config, const struct zinf_config_key *key)
{
    char *text = zinf_config_value_text(config, key);
    uint64_t bytes;
    char size[32], both[96];
    if (!text || key->type != KEY_SIZE)
        return text;
    memcpy(&bytes, (const char *)config + key->offset, sizeof bytes);
    if (bytes < 1024)
        return text;
    snprintf(both, sizeof both, "%s (%s)", text, zinf_size_format(size, sizeof size, bytes));
    free(text);
    return strdup(both);
}

/* An "auto" that waits for an option is not the value that stands in for it. */
static char *shown(const struct zinf_config *config, size_t i)
{
    const char *wanted = config->entries->item[i].wanted;
    char text[64];
    if (!wanted)
        return zinf_config_value_shown(config, &zinf_config_keys[i]);
    snprintf(text, sizeof text, "auto (unresolved: %s)", wanted);
    return strdup(text);
}

static int print_accepted(const struct zinf_config *config, FILE *out)
{
    const char *opening = "\nknown keys that change nothing here: ";
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        if (zinf_config_keys[i].use != KEY_ACCEPTED || !config->entries->item[i].in_file ||
            zinf_config_keys[i].why) /* said already */
            continue;
        fprintf(out, "%s%s", opening, zinf_config_keys[i].path);
        opening = ", ";
    }
    if (opening[0] == ',')
        fputc('\n', out);
    return ferror(out) ? zinf_fail(-EIO, "cannot print the configuration") : 0;
}

int zinf_config_print(const struct zinf_config *config, FILE *out)
{
    char **values = calloc(zinf_config_n_keys, sizeof *values);
    int key_width = 3, value_width = 5, code = 0;
    if (!values)
        return zinf_fail(-ENOMEM, "no memory to print the configuration");
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        if (!is_shown(config, i))
            continue;
        values[i] = shown(config, i);
        if (!values[i]) {
            code = zinf_fail(-ENOMEM, "no memory to print the configuration");
            goto out;
        }
        int key_bytes = (int)strlen(zinf_config_keys[i].path), bytes = (int)strlen(values[i]);
        key_width = key_bytes > key_width ? key_bytes : key_width;
        /* A long path may stick out; it must not push every source off the screen. */
        value_width = bytes > value_width && bytes <= 32 ? bytes : value_width;
    }
    fprintf(out, "%-*s  %-*s  %s\n", key_width, "key", value_width, "value", "source");
    for (size_t i = 0; i < zinf_config_n_keys; i++)
        if (values[i])
            fprintf(out, "%-*s  %-*s  %s\n", key_width, zinf_config_keys[i].path, value_width,
                    values[i], source_of(config, i));
    code = print_accepted(config, out);
out:
    for (size_t i = 0; i < zinf_config_n_keys; i++)
        free(values[i]);
    free(values);
    return code;
}

/* ---- as JSON ---- */

/* The object that holds path's last part, made on the way; NULL without memory. */
static cJSON *section_of(cJSON *root, const char *path, const char **leaf)
{
    char name[64];
    cJSON *object = root;
    for (const char *dot; object && (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        cJSON *next = cJSON_GetObjectItemCaseSensitive(object, name);
        object = next ? next : cJSON_AddObjectToObject(object, name);
    }
    *leaf = path;
    return object;
}

/* Raw text, since cJSON's own numbers are rounded to 15 digits where it thinks that is enough. */
static bool add_value(cJSON *root, const struct zinf_config *config,
                      const struct zinf_config_key *key)
{
    const char *leaf;
    cJSON *section = section_of(root, key->path, &leaf);
    bool open = config->entries->item[key - zinf_config_keys].wanted != NULL;
    char *text = open ? strdup("\"auto\"") : zinf_config_value_text(config, key);
    bool good = section && text && cJSON_AddRawToObject(section, leaf, text);
    free(text);
    return good;
}

char *zinf_config_text(const struct zinf_config *config, bool with_sources)
{
    char *text = NULL;
    cJSON *root = cJSON_CreateObject();
    cJSON *sources = cJSON_CreateObject();
    bool good = root && sources;
    for (size_t i = 0; i < zinf_config_n_keys && good; i++)
        if (is_shown(config, i))
            good = add_value(root, config, &zinf_config_keys[i]) &&
                   cJSON_AddStringToObject(sources, zinf_config_keys[i].path, source_of(config, i));
    if (good && with_sources) {
        good = cJSON_AddItemToObject(root, "_sources", sources);
        sources = good ? NULL : sources;
    }
    if (good)
        text = cJSON_Print(root);
    cJSON_Delete(sources);
    cJSON_Delete(root);
    return text;
}

int zinf_config_write(const struct zinf_config *config, const char *path)
{
    char *text = zinf_config_text(config, true);
    if (!text)
        return zinf_fail(-ENOMEM, "no memory to write %s", path);
    size_t bytes = strlen(text);
    text[bytes] = '\n'; /* the file ends with a line end; it needs no NUL */
    int code = zinf_file_write_atomic(path, text, bytes + 1);
    cJSON_free(text);
    return code;
}

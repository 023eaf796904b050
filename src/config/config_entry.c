/*
 * config_entry: what is known of each key beside its value, which the steps of a load share: where
 * it stands, who decided it, and whether it counts at all.
 */
#include "config/config_private.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

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

void zinf_config_note(const struct config_loader *loader, enum zinf_log_level level,
                      const char *format, ...)
{
    char text[2048];
    va_list args;
    if (loader->context->quiet)
        return;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    zinf_log(level, "%s", text);
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

/* ---- which keys count ---- */

static unsigned optimizer_taker(const struct zinf_config *config)
{
    const char *const *names = zinf_config_key_find("optimizer.type")->choices;
    for (unsigned i = 0; names[i]; i++)
        if (!strcmp(names[i], config->optimizer.type))
            return (unsigned)TAKER_ADAMW << i;
    return 0;
}

bool zinf_config_key_applies(const struct zinf_config *config, const struct zinf_config_key *key)
{
    if (!key->takers)
        return true;
    if (key->takers & TAKER_OPTIMIZERS)
        return key->takers & optimizer_taker(config);
    return config->scheduler.kind && (key->takers & 1u << config->scheduler.kind);
}

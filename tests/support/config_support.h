/* What the configuration's test programs share: parsing a literal, catching the log, reading back
 * one value as text through the public print. */
#ifndef CONFIG_SUPPORT_H
#define CONFIG_SUPPORT_H

#include "config/config.h"
#include "tap.h"

#include <stdlib.h>

/* A test names what it gives on top of NOTHING; overriding is the point. */
#pragma GCC diagnostic ignored "-Woverride-init"
#define CONTEXT(...) (&(struct zinf_config_context){__VA_ARGS__})
/* No command line and no model. */
#define NOTHING .hidden_size = -1, .steps = -1
/* n of {key, text, number, name}. */
#define SETTINGS(n_, ...) .settings = {.item = {__VA_ARGS__}, .n = n_}

static char logged[16384];

__attribute__((unused)) static void catch_log(enum zinf_log_level level, const char *line,
                                              void *arg)
{
    size_t used = strlen(logged);
    (void)level;
    (void)arg;
    snprintf(logged + used, sizeof logged - used, "%s\n", line);
}

__attribute__((unused)) static int parse(struct zinf_config **out, const char *text,
                                         const struct zinf_config_context *context)
{
    logged[0] = 0;
    return zinf_config_parse(out, text, strlen(text), "ds.json", context);
}

/* The line of key in the printed table, without its name: "value   source". Caller frees. */
__attribute__((unused)) static char *printed(const struct zinf_config *config, const char *key)
{
    char *text = NULL, *line = NULL;
    size_t bytes = 0, length = strlen(key);
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    CHECK(zinf_config_print(config, out) == 0);
    fclose(out);
    for (char *at = text; at && *at && !line; at = strchr(at, '\n'), at += at != NULL)
        if (!strncmp(at, key, length) && at[length] == ' ')
            line = strndup(at + length, strcspn(at + length, "\n"));
    free(text);
    return line;
}

/* The value starts the line and the source ends it. */
__attribute__((unused)) static void check_printed(const struct zinf_config *config, const char *key,
                                                  const char *value, const char *source)
{
    char *line = printed(config, key);
    CHECKF(line != NULL, "%s is not printed", key);
    if (!line)
        return;
    char *start = line + strspn(line, " ");
    size_t length = strlen(line), tail = strlen(source);
    CHECKF(!strncmp(start, value, strlen(value)) && start[strlen(value)] == ' ',
           "%s: '%s', not '%s'", key, start, value);
    CHECKF(length >= tail && !strcmp(line + length - tail, source), "%s: '%s', not '%s'", key,
           start, source);
    free(line);
}

#endif

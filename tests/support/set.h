/* A number for a key of the configuration. */
#ifndef SUPPORT_SET_H
#define SUPPORT_SET_H

#include "config/config.h"

static inline void set_number(struct zinf_config_context *context, const char *key, double number)
{
    const struct zinf_config_setting setting = {.key = key, .number = number};
    zinf_config_settings_add(&context->settings, &setting); /* there is room */
}

/* The same of a limit in bytes; 0: the configuration decides. */
static inline void set_memory(struct zinf_config_context *context, const char *key, uint64_t bytes)
{
    if (bytes)
        set_number(context, key, (double)bytes);
}

#endif

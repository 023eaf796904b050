/*
 * option_facts: the rows of options as callers of the door see them, who make arguments of their
 * own language of them. What stands here is the row itself, so that nothing is written twice.
 */
#include "build-config.h"

#include "api/rows.h"
#include "api/session.h"

static const char *const kinds[] = {
    [OPTION_FLAG] = "flag",     [OPTION_TEXT] = "text", [OPTION_MAYBE] = "maybe",
    [OPTION_TEXTS] = "texts",   [OPTION_WORD] = "word", [OPTION_INTEGER] = "integer",
    [OPTION_NUMBER] = "number", [OPTION_SIZE] = "size",
};

const char *zinf_version(void)
{
    return PACKAGE_VERSION;
}

int zinf_option_facts(size_t i, struct zinf_option_facts *out)
{
    const struct option_group *group;
    const struct option *option = option_at(job_groups, i, &group);
    if (!option)
        return zinf_fail(-ENOENT, "there is no option %zu", i);
    const struct zinf_option_facts facts = {.name = option->flag + 2,
                                            .kind = kinds[option->kind],
                                            .value = option->value,
                                            .help = option->help,
                                            .usual = option->usual,
                                            .otherwise = option->otherwise,
                                            .key = option->key,
                                            .aliases = option->aliases,
                                            .min = option->min,
                                            .max = option->max,
                                            .open = option->open};
    session_give(out, &facts, sizeof facts);
    return 0;
}

const char *zinf_option_word(size_t i, size_t word)
{
    const struct option_group *group;
    const struct option *option = option_at(job_groups, i, &group);
    return option ? option_word(option, word) : NULL;
}

/* adapter_module: an adapter's file, module by module, without a model. */
#include "model/adapters/adapter.h"
#include "model/model.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const tails[] = {
    [ZINF_ADAPTER_A] = ".lora_A.weight", [ZINF_ADAPTER_B] = ".lora_B.weight"};

static bool is_matrix(const char *name, const char *tail, char path[ZINF_ADAPTER_PATH])
{
    size_t prefix = sizeof ADAPTER_KEY_PREFIX - 1, n = strlen(name), end = strlen(tail);
    if (n <= prefix + end || strncmp(name, ADAPTER_KEY_PREFIX, prefix) != 0 ||
        strcmp(name + n - end, tail) != 0 || n - prefix - end >= ZINF_ADAPTER_PATH)
        return false;
    memcpy(path, name + prefix, n - prefix - end);
    path[n - prefix - end] = 0;
    return true;
}

enum zinf_adapter_matrix zinf_adapter_matrix_of(const char *name, char path[ZINF_ADAPTER_PATH])
{
    if (is_matrix(name, tails[ZINF_ADAPTER_A], path))
        return ZINF_ADAPTER_A;
    return is_matrix(name, tails[ZINF_ADAPTER_B], path) ? ZINF_ADAPTER_B : ZINF_ADAPTER_OTHER;
}

const char *zinf_adapter_matrix_name(enum zinf_adapter_matrix which, const char *path,
                                     char name[ZINF_ADAPTER_NAME])
{
    snprintf(name, ZINF_ADAPTER_NAME, ADAPTER_KEY_PREFIX "%s%s", path, tails[which]);
    return name;
}

int zinf_adapter_choice_open(struct adapter_choice **out, const cJSON *config, const char *what)
{
    *out = malloc(sizeof **out);
    int code = *out ? adapter_choice_init(*out, config, what)
                    : zinf_fail(-ENOMEM, "no memory for %s", what);
    if (!code)
        return 0;
    free(*out);
    *out = NULL;
    return code;
}

int zinf_adapter_choice_module(struct adapter_choice *choice, const char *path, int64_t *rank,
                               double *scale)
{
    struct adapter_module module;
    int code = adapter_choose(choice, path, &module);
    *rank = module.rank;
    *scale = module.scale;
    return code;
}

void zinf_adapter_choice_close(struct adapter_choice *choice)
{
    if (choice)
        adapter_choice_fini(choice);
    free(choice);
}

/* family_config: what the files of families share: reading and writing config.json. */
#include "model/families/family.h"

#include <stdio.h>

int family_read_ints(const struct zinf_model_source *source, const struct family_int *list)
{
    int code = 0;
    for (; !code && list->key; list++)
        code = zinf_json_int(source->config, source->what, list->key, list->out);
    return code;
}

int family_read_doubles(const struct zinf_model_source *source, const struct family_double *list)
{
    int code = 0;
    for (; !code && list->key; list++)
        code = zinf_json_double(source->config, source->what, list->key, list->out);
    return code;
}

int family_read_activation(const struct zinf_model_source *source, const char *key,
                           const char *usual, enum zinf_activation *out)
{
    static const struct {
        const char *name;
        enum zinf_activation kind;
    } table[] = {
        {"gelu_new", ZINF_ACTIVATION_GELU_TANH},  {"gelu_pytorch_tanh", ZINF_ACTIVATION_GELU_TANH},
        {"gelu_fast", ZINF_ACTIVATION_GELU_TANH}, {"gelu", ZINF_ACTIVATION_GELU_ERF},
        {"silu", ZINF_ACTIVATION_SILU},           {"swish", ZINF_ACTIVATION_SILU},
        {"relu", ZINF_ACTIVATION_RELU},           {"tanh", ZINF_ACTIVATION_TANH},
        {"relu2", ZINF_ACTIVATION_RELU_SQUARED},
    };
    const char *name = usual;
    int code = zinf_json_string(source->config, source->what, key, &name);
    if (code)
        return code;
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!strcmp(name, table[i].name)) {
            *out = table[i].kind;
            return 0;
        }
    return zinf_fail(-ENOTSUP, "%s: %s \"%s\" is not supported; use gelu_new, gelu, silu or relu",
                     source->what, key, name);
}

void family_read_end_of_text(const struct zinf_model_source *source, int64_t *out)
{
    const cJSON *eos = cJSON_GetObjectItemCaseSensitive(source->config, "eos_token_id");
    if (cJSON_IsArray(eos))
        eos = eos->child;
    if (cJSON_IsNumber(eos))
        *out = (int64_t)eos->valuedouble;
}

/* ---- new models ---- */

const char *family_join(char *buffer, size_t bytes, const char *const *names, size_t n)
{
    size_t used = 0;
    buffer[0] = 0;
    for (size_t i = 0; i < n && used < bytes; i++)
        used += (size_t)snprintf(buffer + used, bytes - used, "%s%s", i ? ", " : "", names[i]);
    return buffer;
}

int family_add_numbers(cJSON *config, const struct family_number *list)
{
    for (; list->key; list++)
        if (!cJSON_AddNumberToObject(config, list->key, list->value))
            return zinf_fail(-ENOMEM, "no memory for a configuration");
    return 0;
}

int family_find_size(const struct zinf_model_shape *shape, const char *const *names, size_t n,
                     const char *usual, size_t *out)
{
    const char *size = shape->size ? shape->size : usual;
    char text[512];
    if (shape->sizes) {
        family_join(shape->sizes, shape->sizes_bytes, names, n);
        return -ECANCELED;
    }
    for (*out = 0; *out < n; ++*out)
        if (!strcmp(names[*out], size))
            return 0;
    return zinf_fail(-EINVAL, "--size %s is unknown; use one of %s", size,
                     family_join(text, sizeof text, names, n));
}

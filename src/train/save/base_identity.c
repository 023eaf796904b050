/* base_identity: sums that do not depend on the order of tensors, nor on how they lie in files. */
#include "train/save/base_identity.h"

#include "base/json.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define FILE_NAME "adapter_base.json"
#define FIRST_ELEMS 1024 /* of a tensor */

static uint64_t layout_of(const struct zinf_tensor_info *info)
{
    const uint64_t numbers[] = {(uint64_t)info->dtype, (uint64_t)info->rank, info->n_elems};
    uint64_t sum = XXH3_64bits(info->name, strlen(info->name));
    sum = XXH3_64bits_withSeed(numbers, sizeof numbers, sum);
    return XXH3_64bits_withSeed(info->shape, (size_t)info->rank * sizeof *info->shape, sum);
}

int base_identity_of(const struct zinf_tensors *weights, struct base_identity *out)
{
    float first[FIRST_ELEMS];
    int code = 0;
    *out = (struct base_identity){.known = true};
    for (uint64_t i = 0; !code && i < zinf_tensors_count(weights); i++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(weights, i);
        const uint64_t layout = layout_of(info);
        const uint64_t n = info->n_elems < FIRST_ELEMS ? info->n_elems : FIRST_ELEMS;
        enum zinf_dtype dtype;
        out->layout += layout;
        if (zinf_file_dtype_to_dtype(info->dtype, &dtype)) /* packed, or no weights */
            continue;
        code = zinf_tensors_read_f32(weights, info, 0, n, first);
        out->weights += XXH3_64bits_withSeed(first, n * sizeof *first, layout);
    }
    return code;
}

int base_identity_write(const struct base_identity *identity, const char *folder)
{
    char text[128], *path = zinf_path_join(folder, FILE_NAME);
    int n = snprintf(text, sizeof text,
                     "{\"layout\": \"%016" PRIx64 "\", \"weights\": \"%016" PRIx64 "\"}\n",
                     identity->layout, identity->weights);
    int code = !path             ? -ENOMEM
               : identity->known ? zinf_file_write_atomic(path, text, (size_t)n)
                                 : 0;
    free(path);
    return code;
}

static int read_sum(const cJSON *root, const char *path, const char *key, uint64_t *out)
{
    const char *text = NULL;
    char *end = NULL;
    int code = zinf_json_string(root, path, key, &text);
    if (!code && text)
        *out = strtoull(text, &end, 16);
    if (!code && (!text || !*text || *end))
        code = zinf_fail(-EINVAL, "%s: \"%s\" is no sum: remove the file to use the adapter", path,
                         key);
    return code;
}

static int compare(const struct base_identity *identity, const struct base_identity *wanted,
                   const char *path, const char *base)
{
    if (identity->layout == wanted->layout && identity->weights != wanted->weights)
        return zinf_fail(-EINVAL,
                         "the weights in %s are not those that the adapter was trained above "
                         "(%s): name its base with --model, or remove that file to use this one",
                         base, path);
    if (identity->layout != wanted->layout)
        zinf_log(ZINF_LOG_WARN,
                 "%s: the adapter was trained above weights in another form than those in %s: "
                 "whether they are of the same model is not known",
                 path, base);
    return 0;
}

int base_identity_read(const char *folder, struct base_identity *out)
{
    char *path = zinf_path_join(folder, FILE_NAME);
    cJSON *root = NULL;
    int code = path ? 0 : -ENOMEM;
    *out = (struct base_identity){.known = path && !access(path, F_OK)};
    if (!code && out->known)
        code = zinf_json_read_file(path, 4096, ZINF_JSON_STRICT, &root);
    if (!code && out->known)
        code = read_sum(root, path, "layout", &out->layout);
    if (!code && out->known)
        code = read_sum(root, path, "weights", &out->weights);
    cJSON_Delete(root);
    free(path);
    return code;
}

int base_identity_check(const struct base_identity *identity, const char *folder, const char *base)
{
    struct base_identity wanted;
    char *path = zinf_path_join(folder, FILE_NAME);
    int code = path ? 0 : -ENOMEM;
    if (!code && identity->known)
        code = base_identity_read(folder, &wanted);
    if (!code && identity->known && wanted.known)
        code = compare(identity, &wanted, path, base);
    free(path);
    return code;
}

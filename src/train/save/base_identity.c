/* base_identity: sums that do not depend on the order of tensors, nor on how they lie in files. */
#include "train/save/base_identity.h"

#include "model/model.h"
#include "train/save/checkpoint.h"

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

/* ---- the file ---- */

/* What it says. */
struct record {
    struct base_identity base;
    uint64_t own, checksum; /* checksum: of the numbers before it */
    bool has_own;           /* earlier versions had neither of these two */
};

static uint64_t checksum_of(const struct record *r)
{
    const uint64_t numbers[] = {r->base.known, r->base.layout, r->base.weights, r->own};
    return XXH3_64bits(numbers, sizeof numbers);
}

int base_identity_write(const struct base_identity *identity, uint64_t own, const char *folder)
{
    const struct record r = {.base = *identity, .own = own};
    char base[96] = "", text[256], *path = zinf_path_join(folder, FILE_NAME);
    if (r.base.known)
        snprintf(base, sizeof base,
                 "\"layout\": \"%016" PRIx64 "\", \"weights\": \"%016" PRIx64 "\", ", r.base.layout,
                 r.base.weights);
    int n = snprintf(text, sizeof text,
                     "{%s\"adapter\": \"%016" PRIx64 "\", \"checksum\": \"%016" PRIx64 "\"}\n",
                     base, own, checksum_of(&r));
    int code = path ? zinf_file_write_atomic(path, text, (size_t)n) : -ENOMEM;
    free(path);
    return code;
}

int base_identity_forget(const char *folder)
{
    char *path = zinf_path_join(folder, FILE_NAME);
    int code = path ? 0 : -ENOMEM;
    if (path && unlink(path) && errno != ENOENT)
        code = zinf_fail(-errno, "cannot remove %s: %s", path, strerror(errno));
    free(path);
    return code;
}

static int fail_damaged(const char *path, const char *what)
{
    return zinf_fail(-EBADMSG,
                     "%s is damaged (%s): restore it, or remove it to use the adapter without "
                     "what it knows",
                     path, what);
}

/* Of the member's text: 16 digits, as they are written, and nothing else. */
static int read_sum(const cJSON *member, const char *path, uint64_t *out)
{
    const char *text = cJSON_GetStringValue(member);
    char what[64];
    if (text && strlen(text) == 16 && strspn(text, "0123456789abcdef") == 16) {
        *out = strtoull(text, NULL, 16);
        return 0;
    }
    snprintf(what, sizeof what, "\"%.40s\" is no sum", member->string);
    return fail_damaged(path, what);
}

/* A name that is not known may be one of ours with a flipped bit, and a sum that is passed over. */
static int read_members(const cJSON *root, const char *path, struct record *out)
{
    const struct {
        const char *key;
        uint64_t *to;
    } members[] = {{"layout", &out->base.layout},
                   {"weights", &out->base.weights},
                   {"adapter", &out->own},
                   {"checksum", &out->checksum}};
    unsigned found = 0;
    const cJSON *member;
    cJSON_ArrayForEach(member, root)
    {
        unsigned i = 0;
        while (i < 4 && (!member->string || strcmp(member->string, members[i].key)))
            i++;
        if (i == 4)
            return fail_damaged(path, "it has a name that is not known");
        int code = read_sum(member, path, members[i].to);
        if (code)
            return code;
        found |= 1u << i;
    }
    out->base.known = found & 3;
    out->has_own = found & 12;
    if (!found || (out->base.known && (found & 3) != 3) || (out->has_own && (found & 12) != 12))
        return fail_damaged(path, "a sum is missing");
    return out->has_own && out->checksum != checksum_of(out)
               ? fail_damaged(path, "its checksum is wrong")
               : 0;
}

/* 1: it is there. */
static int read_record(const char *path, struct record *out)
{
    cJSON *root = NULL;
    *out = (struct record){.has_own = false};
    if (access(path, F_OK))
        return 0;
    int code = zinf_json_read_file(path, 4096, ZINF_JSON_STRICT, &root);
    if (!code && !cJSON_IsObject(root))
        code = fail_damaged(path, "it is no object");
    else if (code)
        code = fail_damaged(path, "it is no JSON");
    if (!code)
        code = read_members(root, path, out);
    cJSON_Delete(root);
    return code ? code : 1;
}

int base_identity_read(const char *folder, struct base_identity *out)
{
    char *path = zinf_path_join(folder, FILE_NAME);
    struct record record = {.has_own = false};
    int code = path ? read_record(path, &record) : -ENOMEM;
    *out = record.base;
    free(path);
    return code < 0 ? code : 0;
}

/* ---- checks ---- */

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

int base_identity_check(const struct base_identity *identity, const char *folder, const char *base)
{
    char *path = zinf_path_join(folder, FILE_NAME);
    struct record wanted;
    int code = path ? read_record(path, &wanted) : -ENOMEM;
    if (code > 0)
        code =
            identity->known && wanted.base.known ? compare(identity, &wanted.base, path, base) : 0;
    free(path);
    return code;
}

int base_identity_check_own(const char *folder)
{
    char *path = zinf_path_join(folder, FILE_NAME);
    char *weights = zinf_path_join(folder, ZINF_ADAPTER_WEIGHTS);
    struct record wanted;
    uint64_t bytes, own = 0;
    int code = path && weights ? read_record(path, &wanted) : -ENOMEM;
    if (code > 0 && !wanted.has_own)
        code = 0;
    else if (code > 0 && !(code = checkpoint_sum_file(weights, &bytes, &own)))
        code = 1;
    if (code > 0 && own != wanted.own)
        code = zinf_fail(-EBADMSG,
                         "%s is damaged: its checksum is not the one in %s: restore the file; or "
                         "remove %s, if another program changed the adapter on purpose",
                         weights, path, FILE_NAME);
    free(weights);
    free(path);
    return code;
}

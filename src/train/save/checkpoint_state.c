/*
 * checkpoint_state: trainer_state.json. It ends with a checksum of all its bytes before that
 * member, so that a flipped bit in a step number is found as well as one in a weight.
 */
#include "build-config.h"

#include "train/save/checkpoint.h"
#include "train/checkpoints.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define MAX_STATE_BYTES (64u << 20)
#define CHECKSUM ",\n\t\"checksum\":\t\""

void checkpoint_fini(struct checkpoint *c)
{
    for (uint32_t i = 0; i < c->n_files; i++)
        free(c->files[i].name);
    free(c->files);
    cJSON_Delete(c->config);
    cJSON_Delete(c->stands_on);
    *c = (struct checkpoint){0};
}

/* ---- writing ---- */

static bool add_number(cJSON *object, const char *key, uint64_t value)
{
    return cJSON_AddNumberToObject(object, key, (double)value);
}

static bool add_loss_scale(cJSON *root, const struct zinf_loss_scale *s)
{
    cJSON *o = cJSON_AddObjectToObject(root, "loss_scale");
    return o && cJSON_AddNumberToObject(o, "scale", s->scale) &&
           cJSON_AddBoolToObject(o, "dynamic", s->dynamic) &&
           cJSON_AddNumberToObject(o, "hysteresis_left", (double)s->hysteresis_left) &&
           cJSON_AddNumberToObject(o, "iteration", (double)s->iteration) &&
           cJSON_AddNumberToObject(o, "last_overflow", (double)s->last_overflow);
}

/* Only of rows that are taken as they are needed. */
static bool add_mark(cJSON *data, const struct zinf_flow_mark *mark)
{
    if (!mark->first && !mark->pass && !mark->row && !mark->token)
        return true;
    cJSON *o = cJSON_AddObjectToObject(data, "rows");
    return o && add_number(o, "first", mark->first) && add_number(o, "pass", mark->pass) &&
           add_number(o, "row", mark->row) && add_number(o, "token", mark->token) &&
           cJSON_AddBoolToObject(o, "joined", mark->joined);
}

static bool add_data(cJSON *root, const struct checkpoint_data *data)
{
    cJSON *o = cJSON_AddObjectToObject(root, "data");
    return o && add_number(o, "position", data->position) &&
           add_number(o, "windows", data->windows) && add_number(o, "tokens", data->tokens) &&
           add_number(o, "seq_len", (uint64_t)data->seq_len) &&
           zinf_json_add_hex(o, "fingerprint", data->fingerprint) && add_mark(o, &data->mark);
}

static bool add_best(cJSON *root, const struct checkpoint_best *best)
{
    if (!best->step)
        return true;
    cJSON *o = cJSON_AddObjectToObject(root, "best");
    return o && add_number(o, "step", best->step) &&
           cJSON_AddNumberToObject(o, "eval_loss", best->loss) &&
           cJSON_AddNumberToObject(o, "rank", best->rank) &&
           add_number(o, "evaluations_since", best->since);
}

/* The schedule and the random numbers have no state of their own: they are functions of these. */
static bool add_derived(cJSON *root, const struct checkpoint *c)
{
    cJSON *scheduler = cJSON_AddObjectToObject(root, "scheduler");
    cJSON *random = cJSON_AddObjectToObject(root, "random");
    return scheduler && random &&
           cJSON_AddNumberToObject(scheduler, "last_batch_iteration", (double)c->n_applied - 1) &&
           cJSON_AddNumberToObject(scheduler, "lr", c->lr) &&
           cJSON_AddStringToObject(random, "generator", "philox4x32-10") &&
           add_number(random, "seed", c->seed) && add_number(random, "step", c->step) &&
           (!c->threads || add_number(root, "threads", c->threads));
}

static bool add_files(cJSON *root, const struct checkpoint *c)
{
    cJSON *list = cJSON_AddArrayToObject(root, "files");
    bool good = list;
    for (uint32_t i = 0; good && i < c->n_files; i++) {
        cJSON *file = cJSON_CreateObject();
        good = file && cJSON_AddItemToArray(list, file) &&
               cJSON_AddStringToObject(file, "name", c->files[i].name) &&
               add_number(file, "bytes", c->files[i].bytes) &&
               zinf_json_add_hex(file, "xxh3", c->files[i].xxh3);
    }
    return good;
}

static char *state_text(const struct checkpoint *c)
{
    cJSON *root = cJSON_CreateObject();
    char *text = NULL;
    bool good =
        root && cJSON_AddNumberToObject(root, "format", CHECKPOINT_FORMAT) &&
        cJSON_AddStringToObject(root, "zinf_version", PACKAGE_VERSION) &&
        add_number(root, "step", c->step) && add_number(root, "optimizer_step", c->n_applied) &&
        cJSON_AddStringToObject(root, "dtype", zinf_dtype_name(c->dtype)) &&
        cJSON_AddStringToObject(root, "optimizer", c->optimizer) &&
        add_number(root, "moments", (uint64_t)c->n_moments) && add_derived(root, c) &&
        add_loss_scale(root, &c->loss_scale) && add_data(root, &c->data) &&
        add_best(root, &c->best) &&
        (c->adapted    ? zinf_json_add_hex(root, "adapter_base", c->base_sum)
         : c->base_sum ? zinf_json_add_hex(root, "frozen_base", c->base_sum)
                       : true) &&
        (!c->origin || zinf_json_add_hex(root, "origin", c->origin)) &&
        (!c->config || cJSON_AddItemReferenceToObject(root, "config", c->config)) &&
        (!c->stands_on || cJSON_AddItemReferenceToObject(root, "stands_on", c->stands_on)) &&
        add_files(root, c);
    if (good)
        text = cJSON_Print(root);
    cJSON_Delete(root);
    return text;
}

/* text ends with its checksum then; it is taken over, NULL is passed on. */
static char *sign(char *text)
{
    size_t body = text ? strlen(text) - 2 : 0; /* without the last "\n}" */
    char *whole = text ? malloc(body + 64) : NULL;
    if (whole) {
        memcpy(whole, text, body);
        snprintf(whole + body, 64, CHECKSUM "%016" PRIx64 "\"\n}\n",
                 (uint64_t)XXH3_64bits(text, body));
    } else {
        zinf_fail(-ENOMEM, "no memory for the text of a checkpoint");
    }
    cJSON_free(text);
    return whole;
}

char *checkpoint_text(const struct checkpoint *c)
{
    return sign(state_text(c));
}

/* text is taken over. */
static int write_text(char *text, const char *folder, const char *name)
{
    char *path = zinf_path_join(folder, name);
    int code = path && text ? zinf_file_write_atomic(path, text, strlen(text)) : -ENOMEM;
    free(text);
    free(path);
    return code;
}

int checkpoint_write_state(const struct checkpoint *c, const char *folder)
{
    return write_text(checkpoint_text(c), folder, CHECKPOINT_STATE);
}

int checkpoint_write_list(const struct checkpoint *c, const char *folder)
{
    cJSON *root = cJSON_CreateObject();
    bool good = root && cJSON_AddNumberToObject(root, "format", CHECKPOINT_FORMAT) &&
                cJSON_AddStringToObject(root, "zinf_version", PACKAGE_VERSION) &&
                add_files(root, c);
    char *text = sign(good ? cJSON_Print(root) : NULL);
    cJSON_Delete(root);
    return write_text(text, folder, ZINF_MODEL_CHECKSUMS);
}

/* ---- reading ---- */

static int read_number(const cJSON *object, const char *path, const char *key, uint64_t *out)
{
    int64_t value = -1;
    int code = zinf_json_int(object, path, key, &value);
    if (!code && value < 0)
        code = zinf_fail(-EINVAL, "%s: %s is missing or negative", path, key);
    *out = (uint64_t)value;
    return code;
}

static int read_hex(const cJSON *object, const char *path, const char *key, uint64_t *out)
{
    const char *text = NULL;
    int code = zinf_json_string(object, path, key, &text);
    if (!code && (!text || strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16))
        code = zinf_fail(-EINVAL, "%s: %s is missing or no number of 16 digits", path, key);
    *out = code ? 0 : strtoull(text, NULL, 16);
    return code;
}

static int read_loss_scale(const cJSON *root, const char *path, struct zinf_loss_scale *s)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(root, "loss_scale");
    *s = (struct zinf_loss_scale){.scale = 1, .last_overflow = -1};
    int code = zinf_json_double(o, path, "scale", &s->scale);
    if (!code)
        code = zinf_json_bool(o, path, "dynamic", &s->dynamic);
    if (!code)
        code = zinf_json_int(o, path, "hysteresis_left", &s->hysteresis_left);
    if (!code)
        code = zinf_json_int(o, path, "iteration", &s->iteration);
    return code ? code : zinf_json_int(o, path, "last_overflow", &s->last_overflow);
}

static int read_mark(const cJSON *data, const char *path, struct zinf_flow_mark *mark)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(data, "rows");
    if (!o)
        return 0;
    int code = read_number(o, path, "first", &mark->first);
    if (!code)
        code = read_number(o, path, "pass", &mark->pass);
    if (!code)
        code = read_number(o, path, "row", &mark->row);
    if (!code)
        code = read_number(o, path, "token", &mark->token);
    return code ? code : zinf_json_bool(o, path, "joined", &mark->joined);
}

static int read_data(const cJSON *root, const char *path, struct checkpoint_data *data)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(root, "data");
    uint64_t seq_len = 0;
    int code = read_number(o, path, "position", &data->position);
    if (!code)
        code = read_number(o, path, "windows", &data->windows);
    if (!code)
        code = read_number(o, path, "tokens", &data->tokens);
    if (!code)
        code = read_number(o, path, "seq_len", &seq_len);
    data->seq_len = (int64_t)seq_len;
    if (!code)
        code = read_mark(o, path, &data->mark);
    return code ? code : read_hex(o, path, "fingerprint", &data->fingerprint);
}

static int read_best(const cJSON *root, const char *path, struct checkpoint_best *best)
{
    const cJSON *o = cJSON_GetObjectItemCaseSensitive(root, "best");
    if (!o)
        return 0;
    int code = read_number(o, path, "step", &best->step);
    if (!code)
        code = zinf_json_double(o, path, "eval_loss", &best->loss);
    best->rank = best->loss;
    if (!code)
        code = zinf_json_double(o, path, "rank", &best->rank);
    return code ? code : read_number(o, path, "evaluations_since", &best->since);
}

/* A name stays within the checkpoint. */
static bool name_is_plain(const char *name)
{
    size_t part = strlen(CHECKPOINT_OPTIMIZER "/");
    if (!strncmp(name, CHECKPOINT_OPTIMIZER "/", part))
        name += part;
    return *name && *name != '.' && !strchr(name, '/');
}

static int read_files(const cJSON *root, const char *path, struct checkpoint *out)
{
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(root, "files"), *file;
    int code = cJSON_IsArray(list) ? 0 : zinf_fail(-EINVAL, "%s: files is missing", path);
    cJSON_ArrayForEach(file, list)
    {
        const char *name = NULL;
        uint64_t bytes, xxh3;
        if (code)
            break;
        code = zinf_json_string(file, path, "name", &name);
        if (!code && (!name || !name_is_plain(name)))
            code = zinf_fail(-EINVAL, "%s: '%.100s' is no file of a checkpoint", path,
                             name ? name : "");
        if (!code)
            code = read_number(file, path, "bytes", &bytes);
        if (!code)
            code = read_hex(file, path, "xxh3", &xxh3);
        if (!code)
            code = checkpoint_add_file(out, "", name, bytes, xxh3);
    }
    return code;
}

static int read_members(const cJSON *root, const char *path, struct checkpoint *out)
{
    const cJSON *random = cJSON_GetObjectItemCaseSensitive(root, "random");
    const char *dtype = NULL, *optimizer = NULL;
    uint64_t moments = 0;
    int code = read_number(root, path, "step", &out->step);
    if (!code)
        code = read_number(root, path, "optimizer_step", &out->n_applied);
    if (!code)
        code = read_number(root, path, "moments", &moments);
    if (!code)
        code = read_number(random, path, "seed", &out->seed);
    if (!code && cJSON_HasObjectItem(root, "threads"))
        code = read_number(root, path, "threads", &out->threads);
    out->adapted = cJSON_HasObjectItem(root, "adapter_base");
    if (!code && out->adapted)
        code = read_hex(root, path, "adapter_base", &out->base_sum);
    if (!code && cJSON_HasObjectItem(root, "frozen_base"))
        code = read_hex(root, path, "frozen_base", &out->base_sum);
    if (!code && cJSON_HasObjectItem(root, "origin"))
        code = read_hex(root, path, "origin", &out->origin);
    if (!code)
        code = zinf_json_string(root, path, "dtype", &dtype);
    if (!code)
        code = zinf_json_string(root, path, "optimizer", &optimizer);
    if (!code && (!dtype || !optimizer || moments > 8))
        code = zinf_fail(-EINVAL, "%s: dtype, optimizer or moments is missing", path);
    if (!code)
        code = zinf_dtype_parse(dtype, &out->dtype);
    if (!code)
        code = read_loss_scale(root, path, &out->loss_scale);
    if (!code)
        code = read_data(root, path, &out->data);
    if (!code)
        code = read_best(root, path, &out->best);
    if (code)
        return code;
    out->n_moments = (int)moments;
    snprintf(out->optimizer, sizeof out->optimizer, "%s", optimizer);
    out->config = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(root, "config"), true);
    out->stands_on = cJSON_Duplicate(cJSON_GetObjectItemCaseSensitive(root, "stands_on"), true);
    return read_files(root, path, out);
}

static int check_text(const char *path, const char *text, size_t bytes)
{
    const char *end = NULL;
    for (const char *at = text; (at = strstr(at, CHECKSUM)); at++)
        end = at;
    if (end && bytes - (size_t)(end - text) == strlen(CHECKSUM) + 16 + strlen("\"\n}\n") &&
        strtoull(end + strlen(CHECKSUM), NULL, 16) == XXH3_64bits(text, (size_t)(end - text)))
        return 0;
    return zinf_fail(-EBADMSG, "%s is damaged: its checksum is wrong", path);
}

/* Before the checksum: a newer format may have another way of it. */
static int check_format(const cJSON *root, const char *path)
{
    int64_t format = 0;
    const char *version = "?";
    int code = zinf_json_int(root, path, "format", &format);
    if (!code)
        code = zinf_json_string(root, path, "zinf_version", &version);
    if (!code && format > CHECKPOINT_FORMAT)
        code = zinf_fail(-ENOTSUP,
                         "%s was written by zinf %s in format %lld; this zinf reads formats up to "
                         "%d: take a newer zinf",
                         path, version, (long long)format, CHECKPOINT_FORMAT);
    if (!code && format < 1)
        code = zinf_fail(-EINVAL, "%s: format is missing", path);
    if (!code && format < CHECKPOINT_FORMAT)
        code = zinf_fail(-ENOTSUP,
                         "%s was written by zinf %s in format %lld, which does not say what the "
                         "training stands on: begin anew from its weights with --model, or go on "
                         "with the zinf that wrote it",
                         path, version, (long long)format);
    return code;
}

int checkpoint_parse(struct checkpoint *out, const char *what, const char *text, size_t bytes)
{
    cJSON *root = NULL;
    *out = (struct checkpoint){0};
    int code = zinf_json_parse(text, bytes, what, ZINF_JSON_STRICT, &root);
    if (!code)
        code = check_format(root, what);
    if (!code)
        code = check_text(what, text, bytes);
    if (!code)
        code = read_members(root, what, out);
    if (code)
        checkpoint_fini(out);
    cJSON_Delete(root);
    return code;
}

int checkpoint_read_state(struct checkpoint *out, const char *folder)
{
    char *path = zinf_path_join(folder, CHECKPOINT_STATE), *text = NULL;
    size_t bytes = 0;
    *out = (struct checkpoint){0}; /* the caller may end it after any failure */
    int code = path ? zinf_file_read(path, MAX_STATE_BYTES, &text, &bytes) : -ENOMEM;
    if (code == -ENOENT || code == -ENOTDIR)
        code = zinf_fail(code, "%s is not a checkpoint: it has no %s", folder, CHECKPOINT_STATE);
    if (!code)
        code = checkpoint_parse(out, path, text, bytes);
    free(text);
    free(path);
    return code;
}

int checkpoint_read_list(struct checkpoint *out, const char *folder)
{
    char *path = zinf_path_join(folder, ZINF_MODEL_CHECKSUMS), *text = NULL;
    cJSON *root = NULL;
    size_t bytes = 0;
    *out = (struct checkpoint){0};
    int code = path ? zinf_file_read(path, MAX_STATE_BYTES, &text, &bytes) : -ENOMEM;
    if (!code)
        code = zinf_json_parse(text, bytes, path, ZINF_JSON_STRICT, &root);
    if (!code)
        code = check_format(root, path);
    if (!code)
        code = check_text(path, text, bytes);
    if (!code)
        code = read_files(root, path, out);
    cJSON_Delete(root);
    free(text);
    free(path);
    return code;
}

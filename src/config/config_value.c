/*
 * config_value: one value between JSON and struct zinf_config, in both directions, driven by the
 * key's row. What is written here reads back to the same bits.
 */
#include "config/config_private.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* ---- JSON to value ---- */

#define JSON_WORD(key) ((key)->list ? "a list [...]" : "an object {...}")

static void describe_choices(const struct zinf_config_key *key, char *out, size_t out_bytes)
{
    size_t used = 0;
    for (int i = 0; key->choices[i] && used < out_bytes; i++)
        if (key->choices[i][0])
            used += (size_t)snprintf(out + used, out_bytes - used, "%s\"%s\"", used ? ", " : "",
                                     key->choices[i]);
}

static void describe_range(const struct zinf_config_key *key, const char *noun, char *out,
                           size_t out_bytes)
{
    bool floor_given = key->min > -INFINITY, ceiling_given = key->max < INFINITY;
    if (floor_given && ceiling_given)
        snprintf(out, out_bytes, "%s from %.15g %s %.15g", noun, key->min,
                 key->below_max ? "to below" : "to", key->max);
    else if (key->above_min)
        snprintf(out, out_bytes, "%s above %.15g", noun, key->min);
    else if (floor_given)
        snprintf(out, out_bytes, "%s of at least %.15g", noun, key->min);
    else
        snprintf(out, out_bytes, "%s", noun);
}

static void describe(const struct zinf_config_key *key, char *out, size_t out_bytes)
{
    if (key->choices) {
        describe_choices(key, out, out_bytes);
        return;
    }
    switch (key->type) {
    case KEY_BOOL:
        snprintf(out, out_bytes, "true or false");
        break;
    case KEY_INT:
        describe_range(key, "an integer", out, out_bytes);
        break;
    case KEY_NUMBER:
        describe_range(key, "a number", out, out_bytes);
        break;
    case KEY_SIZE:
        describe_range(key, "a size such as \"4GiB\", or a number of bytes,", out, out_bytes);
        break;
    case KEY_PAIR:
        describe_range(key, "a list of two numbers", out, out_bytes);
        break;
    case KEY_PATHS:
        snprintf(out, out_bytes, "a folder or a list of 1 to %d different folders",
                 ZINF_CONFIG_MAX_PATHS);
        break;
    default:
        snprintf(out, out_bytes, key->type != KEY_JSON ? "a string" : JSON_WORD(key));
    }
}

/* A word where a number should be, such as GBSIZE, ${BATCH} or {{batch}}. */
static bool is_placeholder(const struct zinf_config_key *key, const cJSON *json)
{
    const char *text = cJSON_IsString(json) ? json->valuestring : "";
    bool wants_number = !key->choices && (key->type == KEY_INT || key->type == KEY_NUMBER ||
                                          key->type == KEY_SIZE || key->type == KEY_BOOL);
    return wants_number && (strpbrk(text, "${<%") ||
                            (isupper((unsigned char)text[0]) && !islower((unsigned char)text[1])));
}

static int mismatch(const struct zinf_config_key *key, const cJSON *json, const char *where)
{
    char expected[512];
    describe(key, expected, sizeof expected);
    char *found = cJSON_PrintUnformatted(json);
    int code = zinf_fail(-EINVAL, "%s: %s is %.80s, but must be %s%s", where, key->path,
                         found ? found : "?", expected,
                         is_placeholder(key, json) ? "; was a template not filled in?" : "");
    cJSON_free(found);
    return code;
}

static bool in_range(const struct zinf_config_key *key, double number)
{
    return isfinite(number) && number >= key->min && number <= key->max &&
           !(key->below_max && number == key->max) && !(key->above_min && number == key->min);
}

static bool parse_choice(const struct zinf_config_key *key, const cJSON *json,
                         struct config_value *out)
{
    if (!cJSON_IsString(json))
        return false;
    for (int i = 0; key->choices[i]; i++) {
        if (!key->choices[i][0] || strcasecmp(key->choices[i], json->valuestring))
            continue;
        out->number = i;
        out->text = key->choices[i];
        return true;
    }
    return false;
}

/* true, "true" and 1 all mean true: the readers that users come from take them alike. */
static bool parse_bool(const cJSON *json, struct config_value *out)
{
    if (cJSON_IsBool(json))
        out->number = cJSON_IsTrue(json);
    else if (cJSON_IsNumber(json) && (json->valuedouble == 0 || json->valuedouble == 1))
        out->number = json->valuedouble;
    else if (cJSON_IsString(json) && !strcasecmp(json->valuestring, "true"))
        out->number = 1;
    else if (cJSON_IsString(json) && !strcasecmp(json->valuestring, "false"))
        out->number = 0;
    else
        return false;
    return true;
}

static bool parse_number(const struct zinf_config_key *key, const cJSON *json,
                         struct config_value *out)
{
    if (cJSON_IsNumber(json)) {
        out->number = json->valuedouble;
    } else if (key->loose && cJSON_IsString(json)) {
        char *end;
        out->number = strtod(json->valuestring, &end);
        if (end == json->valuestring || *end)
            return false;
    } else {
        return false;
    }
    return in_range(key, out->number);
}

/* Bounds for "no limit" are written 2^63 and above (sys.maxsize): those stay the largest integer.
 */
static bool parse_int(const struct zinf_config_key *key, const cJSON *json,
                      struct config_value *out)
{
    if (!parse_number(key, json, out) || out->number != floor(out->number) || out->number < -0x1p63)
        return false;
    out->integer = out->number >= 0x1p63 ? INT64_MAX : (int64_t)out->number;
    return true;
}

static bool parse_size(const struct zinf_config_key *key, const cJSON *json,
                       struct config_value *out)
{
    if (cJSON_IsString(json)) {
        if (zinf_size_parse(json->valuestring, &out->size))
            return false;
        out->number = (double)out->size;
        return in_range(key, out->number);
    }
    if (!parse_number(key, json, out) || out->number != floor(out->number) || out->number < 0)
        return false;
    out->size = (uint64_t)out->number; /* in_range: below 2^53 */
    return true;
}

static bool parse_pair(const struct zinf_config_key *key, const cJSON *json,
                       struct config_value *out)
{
    if (!cJSON_IsArray(json) || cJSON_GetArraySize(json) != 2)
        return false;
    for (int i = 0; i < 2; i++) {
        const cJSON *item = cJSON_GetArrayItem(json, i);
        if (!cJSON_IsNumber(item) || !in_range(key, item->valuedouble))
            return false;
        out->pair[i] = item->valuedouble;
    }
    return true;
}

static bool parse_paths(const cJSON *json, struct config_value *out)
{
    const cJSON *item = cJSON_IsArray(json) ? json->child : json;
    out->n_paths = 0;
    for (; item; item = cJSON_IsArray(json) ? item->next : NULL) {
        if (!cJSON_IsString(item) || !item->valuestring[0] || out->n_paths == ZINF_CONFIG_MAX_PATHS)
            return false;
        for (int i = 0; i < out->n_paths; i++)
            if (!strcmp(out->paths[i], item->valuestring))
                return false;
        out->paths[out->n_paths++] = item->valuestring;
    }
    return out->n_paths > 0;
}

static bool parse_text(const cJSON *json, struct config_value *out)
{
    out->text = cJSON_IsString(json) ? json->valuestring : NULL;
    return out->text != NULL;
}

int zinf_config_value_parse(const struct zinf_config_key *key, const cJSON *json, const char *where,
                            struct config_value *out)
{
    bool good = true;
    memset(out, 0, sizeof *out);
    if (key->choices)
        good = parse_choice(key, json, out);
    else if (key->type == KEY_BOOL)
        good = parse_bool(json, out);
    else if (key->type == KEY_INT)
        good = parse_int(key, json, out);
    else if (key->type == KEY_NUMBER)
        good = parse_number(key, json, out);
    else if (key->type == KEY_SIZE)
        good = parse_size(key, json, out);
    else if (key->type == KEY_PAIR)
        good = parse_pair(key, json, out);
    else if (key->type == KEY_PATHS)
        good = parse_paths(json, out);
    else if (key->type == KEY_JSON)
        good = (key->list ? cJSON_IsArray(json) : cJSON_IsObject(json)) && (out->object = json);
    else if (key->type != KEY_ANY)
        good = parse_text(json, out);
    return good ? 0 : mismatch(key, json, where);
}

bool zinf_config_value_is_default(const struct zinf_config_key *key,
                                  const struct config_value *value)
{
    if (key->type == KEY_ANY)
        return false;
    if (key->type == KEY_TEXT)
        return key->text && !strcasecmp(key->text, value->text);
    return value->number == key->number ||
           (key->use == KEY_UNSUPPORTED && value->number == key->second);
}

/* ---- value to struct ---- */

static int store_text(char **field, const char *text)
{
    char *copy = text ? strdup(text) : NULL;
    if (text && !copy)
        return zinf_fail(-ENOMEM, "no memory for the configuration");
    free(*field);
    *field = copy;
    return 0;
}

static int store_json(char **field, const cJSON *object)
{
    char *text = object ? cJSON_PrintUnformatted(object) : NULL;
    int code = object && !text ? zinf_fail(-ENOMEM, "no memory for the configuration")
                               : store_text(field, text);
    cJSON_free(text);
    return code;
}

static int store_paths(struct zinf_config_offload *offload, const struct config_value *value)
{
    for (int i = 0; i < offload->n_nvme_paths; i++)
        store_text(&offload->nvme_path[i], NULL);
    offload->n_nvme_paths = 0;
    for (int i = 0; i < value->n_paths; i++) {
        int code = store_text(&offload->nvme_path[i], value->paths[i]);
        if (code)
            return code;
        offload->n_nvme_paths++;
    }
    return 0;
}

int zinf_config_value_store(struct zinf_config *config, const struct zinf_config_key *key,
                            const struct config_value *value)
{
    void *field = (char *)config + key->offset;
    switch (key->type) {
    case KEY_BOOL:
        *(bool *)field = value->number != 0;
        break;
    case KEY_INT:
        *(int64_t *)field = value->integer;
        break;
    case KEY_NUMBER:
        *(double *)field = value->number;
        break;
    case KEY_SIZE:
        *(uint64_t *)field = value->size;
        break;
    case KEY_CHOICE:
        *(int *)field = (int)value->number;
        break;
    case KEY_PAIR:
        memcpy(field, value->pair, sizeof value->pair);
        break;
    case KEY_NAME:
        snprintf(field, sizeof config->optimizer.type, "%s", value->text);
        break;
    case KEY_TEXT:
        return store_text(field, value->text);
    case KEY_JSON:
        return store_json(field, value->object);
    case KEY_PATHS:
        return store_paths(field, value);
    case KEY_ANY:
        break;
    }
    return 0;
}

int zinf_config_value_default(struct zinf_config *config, const struct zinf_config_key *key)
{
    struct config_value value = {.number = key->number,
                                 .integer = (int64_t)key->number,
                                 .size = key->number > 0 ? (uint64_t)key->number : 0,
                                 .pair = {key->number, key->second},
                                 .text = key->text};
    return zinf_config_value_store(config, key, &value);
}

/* ---- struct to JSON ---- */

static char *json_string(const char *text)
{
    cJSON *string = text ? cJSON_CreateString(text) : cJSON_CreateNull();
    char *out = string ? cJSON_PrintUnformatted(string) : NULL;
    cJSON_Delete(string);
    return out;
}

static char *json_paths(const struct zinf_config_offload *offload)
{
    if (offload->n_nvme_paths < 2)
        return json_string(offload->n_nvme_paths ? offload->nvme_path[0] : NULL);
    const char *const *paths = (const char *const *)offload->nvme_path;
    cJSON *list = cJSON_CreateStringArray(paths, offload->n_nvme_paths);
    char *out = list ? cJSON_PrintUnformatted(list) : NULL;
    cJSON_Delete(list);
    return out;
}

/* The shortest digits that read back to the same bits. */
static void number_text(char *out, size_t out_bytes, double number)
{
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(out, out_bytes, "%.*g", digits, number);
        if (strtod(out, NULL) == number)
            return;
    }
}

char *zinf_config_value_text(const struct zinf_config *config, const struct zinf_config_key *key)
{
    const void *field = (const char *)config + key->offset;
    char text[96] = "null", first[32], second[32];
    switch (key->type) {
    case KEY_BOOL:
        if (key->choices)
            return json_string(key->choices[*(const bool *)field]);
        snprintf(text, sizeof text, "%s", *(const bool *)field ? "true" : "false");
        break;
    case KEY_INT:
        if (key->rule == AUTO_CHUNK && *(const int64_t *)field < 0) /* the length decides */
            return json_string("auto");
        snprintf(text, sizeof text, "%lld", (long long)*(const int64_t *)field);
        break;
    case KEY_NUMBER:
        if (in_range(key, *(const double *)field)) /* else it stands for "not given" */
            number_text(text, sizeof text, *(const double *)field);
        break;
    case KEY_SIZE:
        snprintf(text, sizeof text, "%llu", (unsigned long long)*(const uint64_t *)field);
        break;
    case KEY_PAIR:
        number_text(first, sizeof first, ((const double *)field)[0]);
        number_text(second, sizeof second, ((const double *)field)[1]);
        snprintf(text, sizeof text, "[%s, %s]", first, second);
        break;
    case KEY_CHOICE:
        return json_string(key->choices[*(const int *)field][0] ? key->choices[*(const int *)field]
                                                                : NULL);
    case KEY_NAME:
        return json_string(field);
    case KEY_TEXT:
        return json_string(*(char *const *)field);
    case KEY_JSON:
        return strdup(*(char *const *)field ? *(char *const *)field : "null");
    case KEY_PATHS:
        return json_paths(field);
    case KEY_ANY:
        break;
    }
    return strdup(text);
}

/*
 * adapter_config: an adapter_config.json as PEFT writes it, or the section zinf.adapter, to a
 * choice. Whatever would make other numbers and is not done here is refused by its name; PEFT
 * writes every key it has, so those that say nothing are passed over.
 */
#include "model/adapters/adapter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <math.h>
#include <pcre2.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

/* The largest rank that makes sense for any matrix; a matrix has its own limit. */
#define MAX_RANK 65536

/* ---- expressions ---- */

static int compile(const struct adapter_choice *c, const char *key, const char *text, void **out)
{
    PCRE2_SIZE at;
    int error;
    char reason[128] = "";
    *out = pcre2_compile((PCRE2_SPTR)text, PCRE2_ZERO_TERMINATED,
                         PCRE2_UTF | PCRE2_ANCHORED | PCRE2_ENDANCHORED, &error, &at, NULL);
    if (*out)
        return 0;
    pcre2_get_error_message(error, (PCRE2_UCHAR *)reason, sizeof reason);
    return zinf_fail(-EINVAL, "%s: %s: \"%s\" is no regular expression: %s at character %zu",
                     c->what, key, text, reason, (size_t)at);
}

/* All of path. */
static int match(const struct adapter_choice *c, const void *expression, const char *path,
                 bool *matches)
{
    pcre2_match_data *data = pcre2_match_data_create(1, NULL);
    int found =
        data ? pcre2_match(expression, (PCRE2_SPTR)path, PCRE2_ZERO_TERMINATED, 0, 0, data, NULL)
             : PCRE2_ERROR_NOMEMORY;
    pcre2_match_data_free(data);
    *matches = found >= 0;
    return found >= 0 || found == PCRE2_ERROR_NOMATCH
               ? 0
               : zinf_fail(-EINVAL, "%s: an expression cannot be matched with %s", c->what, path);
}

/* ---- names ---- */

static int bad_names(const struct adapter_choice *c, const char *key)
{
    return zinf_fail(-EINVAL, "%s: %s must be a list of names, or a regular expression", c->what,
                     key);
}

static int read_names(struct adapter_choice *c, const char *key, struct adapter_names *out)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(c->config, key), *item;
    if (cJSON_IsString(value))
        return compile(c, key, value->valuestring, &out->expression);
    if (!value || cJSON_IsNull(value))
        return 0;
    if (!cJSON_IsArray(value))
        return bad_names(c, key);
    cJSON_ArrayForEach(item, value) if (!cJSON_IsString(item) ||
                                        !item->valuestring[0]) return bad_names(c, key);
    out->list = value;
    out->met = calloc((size_t)cJSON_GetArraySize(value) + 1, sizeof *out->met);
    return out->met ? 0 : zinf_fail(-ENOMEM, "no memory for the names of %s", key);
}

static int read_targets(struct adapter_choice *c)
{
    static const char key[] = "target_modules";
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(c->config, key);
    const bool absent = !value || cJSON_IsNull(value);
    c->targets.all = absent
                         ? !cJSON_GetArraySize(c->parameters.list)
                         : cJSON_IsString(value) && !strcasecmp(value->valuestring, "all-linear");
    return c->targets.all ? 0 : read_names(c, key, &c->targets);
}

static int read_parameters(struct adapter_choice *c)
{
    static const char key[] = "target_parameters";
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(c->config, key);
    if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list))
        return zinf_fail(-EINVAL, "%s: %s must be a list of names", c->what, key);
    return read_names(c, key, &c->parameters);
}

bool adapter_name_is(const char *name, const char *path)
{
    size_t n = strlen(name), length = strlen(path);
    if (length < n || strcmp(path + length - n, name))
        return false;
    return length == n || path[length - n - 1] == '.';
}

static int names_match(const struct adapter_choice *c, const struct adapter_names *names,
                       const char *path, bool *matches)
{
    const cJSON *item;
    size_t i = 0;
    *matches = names->all;
    if (names->expression)
        return match(c, names->expression, path, matches);
    cJSON_ArrayForEach(item, names->list)
    {
        bool is = adapter_name_is(item->valuestring, path);
        names->met[i] = names->met[i] || is;
        *matches = *matches || is;
        i++;
    }
    return 0;
}

/* ---- patterns ---- */

/* A key is an expression for the end of a path, from its beginning or from behind a dot. */
static int read_patterns(struct adapter_choice *c, const char *key, struct adapter_pattern **out,
                         size_t *n)
{
    const cJSON *object = cJSON_GetObjectItemCaseSensitive(c->config, key), *item;
    char text[512];
    int code = 0;
    if (!object || cJSON_IsNull(object))
        return 0;
    if (!cJSON_IsObject(object))
        return zinf_fail(-EINVAL, "%s: %s must be an object of numbers", c->what, key);
    *out = calloc((size_t)cJSON_GetArraySize(object) + 1, sizeof **out);
    if (!*out)
        return zinf_fail(-ENOMEM, "no memory for %s", key);
    cJSON_ArrayForEach(item, object)
    {
        if (code)
            break;
        snprintf(text, sizeof text, "(.*\\.)?(%s)", item->string);
        if (!cJSON_IsNumber(item) || !(item->valuedouble > 0) ||
            strlen(item->string) + 16 > sizeof text)
            code = zinf_fail(-EINVAL, "%s: %s: \"%.100s\" must have a number above 0", c->what, key,
                             item->string);
        else
            code = compile(c, key, text, &(*out)[*n].expression);
        (*out)[*n].value = code ? 0 : item->valuedouble;
        *n += !code;
    }
    return code;
}

static int look_up(const struct adapter_choice *c, const struct adapter_pattern *list, size_t n,
                   const char *path, double *value)
{
    bool matches = false;
    int code = 0;
    for (size_t i = 0; !code && !matches && i < n; i++) {
        code = match(c, list[i].expression, path, &matches);
        if (matches)
            *value = list[i].value;
    }
    return code;
}

/* ---- keys ---- */

static bool says_nothing(const cJSON *value)
{
    bool empty = (cJSON_IsObject(value) || cJSON_IsArray(value)) && !value->child;
    return cJSON_IsNull(value) || cJSON_IsFalse(value) || empty;
}

static bool is_one_of(const char *key, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (!strcmp(key, list[i]))
            return true;
    return false;
}

static int check_keys(const struct adapter_choice *c)
{
    static const char *const known[] = {
        /* read */
        "peft_type", "task_type", "r", "lora_alpha", "lora_dropout", "target_modules",
        "exclude_modules", "use_rslora", "rank_pattern", "alpha_pattern", "init_lora_weights",
        "bias", "use_dora", "modules_to_save", "target_parameters",
        /* what the model's own files say, or what changes nothing */
        "fan_in_fan_out", "base_model_name_or_path", "revision", "auto_mapping", "inference_mode",
        "peft_version", "megatron_core", "qalora_group_size", "runtime_config"};
    const cJSON *member;
    cJSON_ArrayForEach(member, c->config)
    {
        if (says_nothing(member) || is_one_of(member->string, known, sizeof known / sizeof *known))
            continue;
        char *value = cJSON_PrintUnformatted(member);
        int code = zinf_fail(-ENOTSUP,
                             "%s: %s is %.60s, which is not supported: r, lora_alpha, "
                             "lora_dropout, target_modules, target_parameters, exclude_modules, "
                             "use_rslora, use_dora, bias, modules_to_save, rank_pattern and "
                             "alpha_pattern are",
                             c->what, member->string, value ? value : "?");
        cJSON_free(value);
        return code;
    }
    return 0;
}

/* A word that must be one of those listed where it is given: its number there, else 0. */
static int read_word(const struct adapter_choice *c, const char *key, const char *const *words,
                     size_t n, int *out)
{
    const char *word = NULL;
    char list[96] = "";
    int code = zinf_json_string(c->config, c->what, key, &word);
    *out = 0;
    for (size_t i = 0; !code && word && i < n; i++) {
        if (!strcmp(word, words[i])) {
            *out = (int)i;
            return 0;
        }
        snprintf(list + strlen(list), sizeof list - strlen(list), "%s\"%s\"", i ? ", " : "",
                 words[i]);
    }
    if (!code && word)
        code = zinf_fail(-ENOTSUP, "%s: %s \"%s\" is not supported; it must be %s", c->what, key,
                         word, list);
    return code;
}

static int read_words(struct adapter_choice *c)
{
    static const char *const types[] = {"LORA"};
    static const char *const tasks[] = {"CAUSAL_LM", "SEQ_2_SEQ_LM", "SEQ_CLS"};
    static const char *const biases[] = {"none", "lora_only", "all"}; /* enum adapter_bias */
    int type, task = 0, bias = 0;
    int code = read_word(c, "peft_type", types, 1, &type);
    if (!code)
        code = read_word(c, "task_type", tasks, sizeof tasks / sizeof *tasks, &task);
    if (!code)
        code = read_word(c, "bias", biases, sizeof biases / sizeof *biases, &bias);
    c->bias = (enum adapter_bias)bias;
    c->for_classes = task == 2;
    return code;
}

static int read_init(struct adapter_choice *c)
{
    static const char key[] = "init_lora_weights";
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(c->config, key);
    c->gaussian = cJSON_IsString(value) && !strcmp(value->valuestring, "gaussian");
    if (!value || cJSON_IsNull(value) || cJSON_IsTrue(value) || c->gaussian)
        return 0;
    return zinf_fail(-ENOTSUP, "%s: %s \"%s\" is not supported; use true or \"gaussian\"", c->what,
                     key, cJSON_IsString(value) ? value->valuestring : "false");
}

static int check_numbers(const struct adapter_choice *c)
{
    if (c->rank < 1 || c->rank > MAX_RANK)
        return zinf_fail(-EINVAL, "%s: r is %lld; it must be from 1 to %d", c->what,
                         (long long)c->rank, MAX_RANK);
    if (!(c->alpha > 0) || !isfinite(c->alpha))
        return zinf_fail(-EINVAL, "%s: lora_alpha is %g; it must be above 0", c->what, c->alpha);
    if (!(c->dropout >= 0 && c->dropout < 1))
        return zinf_fail(-EINVAL, "%s: lora_dropout is %g; it must be in [0, 1)", c->what,
                         c->dropout);
    return 0;
}

static int read_numbers(struct adapter_choice *c)
{
    int code = zinf_json_int(c->config, c->what, "r", &c->rank);
    if (!code)
        code = zinf_json_double(c->config, c->what, "lora_alpha", &c->alpha);
    if (!code)
        code = zinf_json_double(c->config, c->what, "lora_dropout", &c->dropout);
    if (!code)
        code = zinf_json_bool(c->config, c->what, "use_rslora", &c->root_of_rank);
    if (!code)
        code = zinf_json_bool(c->config, c->what, "use_dora", &c->has_magnitude);
    return code ? code : check_numbers(c);
}

/* ---- modules that are trained whole ---- */

static int read_saved(struct adapter_choice *c)
{
    static const char key[] = "modules_to_save";
    const cJSON *list = cJSON_GetObjectItemCaseSensitive(c->config, key);
    if (list && !cJSON_IsNull(list) && !cJSON_IsArray(list))
        return zinf_fail(-EINVAL, "%s: %s must be a list of names", c->what, key);
    return read_names(c, key, &c->saved);
}

bool adapter_is_head(const char *path)
{
    return adapter_name_is("classifier", path) || adapter_name_is("score", path);
}

/* As PEFT: any end of a path is, whether it begins behind a dot or not. */
static bool ends_in(const char *path, const char *name)
{
    size_t n = strlen(name), length = strlen(path);
    return length >= n && !strcmp(path + length - n, name);
}

static bool is_listed(const struct adapter_choice *c, const char *module)
{
    bool is = c->classifies && adapter_is_head(module);
    size_t i = 0;
    const cJSON *item;
    cJSON_ArrayForEach(item, c->saved.list)
    {
        bool matches = ends_in(module, item->valuestring);
        c->saved.met[i] = c->saved.met[i] || matches;
        is = is || matches;
        i++;
    }
    return is;
}

bool adapter_is_saved(const struct adapter_choice *c, const char *path)
{
    char module[128];
    snprintf(module, sizeof module, "%s", path);
    bool is = is_listed(c, module);
    for (char *dot = strrchr(module, '.'); dot; dot = strrchr(module, '.')) {
        *dot = 0;
        is = is_listed(c, module) || is;
    }
    return is;
}

static int read_all(struct adapter_choice *c)
{
    int code;
    if ((code = check_keys(c)) || (code = read_words(c)) || (code = read_init(c)) ||
        (code = read_numbers(c)) || (code = read_parameters(c)) || (code = read_targets(c)) ||
        (code = read_names(c, "exclude_modules", &c->excluded)) || (code = read_saved(c)) ||
        (code = read_patterns(c, "rank_pattern", &c->ranks, &c->n_ranks)))
        return code;
    return read_patterns(c, "alpha_pattern", &c->alphas, &c->n_alphas);
}

int adapter_choice_init(struct adapter_choice *c, const cJSON *config, const char *what)
{
    /* what PEFT has where nothing is said */
    *c = (struct adapter_choice){.rank = 8, .alpha = 8};
    if (!cJSON_IsObject(config))
        return zinf_fail(-EINVAL, "%s must be an object, such as {\"r\": 8}", what);
    c->what = strdup(what);
    c->config = cJSON_Duplicate(config, true);
    int code = c->what && c->config ? read_all(c) : zinf_fail(-ENOMEM, "no memory for %s", what);
    if (code)
        adapter_choice_fini(c);
    return code;
}

static void free_patterns(struct adapter_pattern *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pcre2_code_free(list[i].expression);
    free(list);
}

void adapter_choice_fini(struct adapter_choice *c)
{
    free_patterns(c->ranks, c->n_ranks);
    free_patterns(c->alphas, c->n_alphas);
    pcre2_code_free(c->targets.expression);
    pcre2_code_free(c->excluded.expression);
    pcre2_code_free(c->saved.expression);
    free(c->saved.met);
    free(c->targets.met);
    free(c->parameters.met);
    free(c->excluded.met);
    cJSON_Delete(c->config);
    free(c->what);
    *c = (struct adapter_choice){0};
}

/* Rank and scale, by the patterns. */
static int read_how(const struct adapter_choice *c, const char *path, struct adapter_module *out)
{
    double rank = (double)c->rank, alpha = c->alpha;
    int code = look_up(c, c->ranks, c->n_ranks, path, &rank);
    if (!code)
        code = look_up(c, c->alphas, c->n_alphas, path, &alpha);
    if (!code && (rank != floor(rank) || rank > MAX_RANK))
        code = zinf_fail(-EINVAL, "%s: rank_pattern gives %s the rank %g", c->what, path, rank);
    out->rank = (int64_t)rank;
    out->scale = alpha / (c->root_of_rank ? sqrt(rank) : rank);
    return code;
}

int adapter_choose(struct adapter_choice *c, const char *path, struct adapter_module *out)
{
    bool excluded = false;
    *out = (struct adapter_module){0};
    int code = names_match(c, &c->targets, path, &out->wanted);
    if (!code)
        code = names_match(c, &c->excluded, path, &excluded);
    excluded = excluded || adapter_is_saved(c, path);
    out->wanted = out->wanted && !excluded;
    return code ? code : read_how(c, path, out);
}

int adapter_choose_parameter(struct adapter_choice *c, const char *name, struct adapter_module *out)
{
    *out = (struct adapter_module){0};
    int code = names_match(c, &c->parameters, name, &out->wanted);
    return code || !out->wanted ? code : read_how(c, name, out);
}

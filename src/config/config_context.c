/*
 * config_context: settings over the file. Each replaces one key, or a member of one; where the file
 * says something else, both values are said.
 */
#include "config/config_private.h"

#include <math.h>
#include <stdlib.h>

#define ADAPTER "zinf.adapter."

/* ---- settings ---- */

int zinf_config_settings_add(struct zinf_config_settings *settings,
                             const struct zinf_config_setting *setting)
{
    int i = 0;
    while (i < settings->n && strcmp(settings->item[i].key, setting->key))
        i++;
    if (i == ZINF_CONFIG_MOST_SETTINGS)
        return zinf_fail(-EINVAL, "%s: more than %d keys are set", setting->key, i);
    settings->item[i] = *setting;
    settings->n += i == settings->n;
    return 0;
}

const struct zinf_config_setting *
zinf_config_settings_find(const struct zinf_config_settings *settings, const char *key)
{
    for (int i = settings->n - 1; i >= 0; i--)
        if (!strcmp(settings->item[i].key, key))
            return &settings->item[i];
    return NULL;
}

const char *const *zinf_config_key_words(const char *key)
{
    static const char *const dtypes[] = {"fp32", "bf16", "fp16", NULL};
    if (!strcmp(key, "dtype"))
        return dtypes;
    const struct zinf_config_key *row = zinf_config_key_find(key);
    return row ? row->choices : NULL;
}

int zinf_config_key_word(const char *key, const char *word, int *place)
{
    const char *const *words = zinf_config_key_words(key);
    *place = 0;
    for (int i = 0; word && words && words[i]; i++)
        if (!strcmp(word, words[i])) {
            *place = i;
            return 0;
        }
    return word ? zinf_fail(-EINVAL, "%s is \"%s\", which is none of its words", key, word) : 0;
}

static const char *name_of(const struct zinf_config_setting *setting)
{
    return setting->name ? setting->name : setting->key;
}

/* What a setting would be in the file. A text of a number is one: 5e-4. */
static cJSON *json_of(const struct zinf_config_setting *setting, enum key_type type)
{
    char *end = NULL;
    double number = setting->text ? strtod(setting->text, &end) : setting->number;
    bool wants_number = type == KEY_INT || type == KEY_NUMBER || type == KEY_BOOL;
    if (!setting->text || (wants_number && end != setting->text && !*end))
        return cJSON_CreateNumber(number);
    return cJSON_CreateString(setting->text);
}

/* ---- one key ---- */

/* Whether an option may leave a key to what is found out later. */
static bool may_be_open(const struct zinf_config_key *key)
{
    return key->rule == AUTO_BATCH || key->rule == AUTO_CHUNK;
}

static int leave_open(struct config_loader *loader, const struct zinf_config_key *key,
                      struct config_entry *entry, const char *option)
{
    char *before = zinf_config_value_shown(loader->config, key);
    if (!before)
        return zinf_fail(-ENOMEM, "no memory for the configuration");
    if (entry->state == ENTRY_FILE)
        zinf_config_note(loader, ZINF_LOG_WARN, "%s is %s, but %s says auto: auto is used",
                         zinf_config_where(loader->config, key->path), before, option);
    free(before);
    entry->in_file = false; /* what the file says of it no longer counts */
    return zinf_config_entry_mark(entry, ENTRY_AUTO, "command line");
}

/* json is taken over; NULL: there was no memory for it. */
static int override_json(struct config_loader *loader, const char *path, cJSON *json,
                         const char *option)
{
    const struct zinf_config_key *key = zinf_config_key_find(path);
    struct config_entry *entry = zinf_config_entry(loader->config, path);
    struct config_value value;
    char *before = NULL, *after = NULL;
    if (!json)
        return zinf_fail(-ENOMEM, "no memory for the configuration");
    if (may_be_open(key) && cJSON_IsString(json) && !strcmp(json->valuestring, "auto")) {
        cJSON_Delete(json);
        return leave_open(loader, key, entry, option);
    }
    int code = zinf_config_value_parse(key, json, option, &value);
    if (code)
        goto out;
    before = zinf_config_value_shown(loader->config, key);
    code = zinf_config_value_store(loader->config, key, &value);
    if (code)
        goto out;
    after = zinf_config_value_shown(loader->config, key);
    if (!before || !after) {
        code = zinf_fail(-ENOMEM, "no memory for the configuration");
        goto out;
    }
    if (entry->state == ENTRY_FILE && strcmp(before, after))
        zinf_config_note(loader, ZINF_LOG_WARN, "%s is %s, but %s says %s: %s is used",
                         zinf_config_where(loader->config, path), before, option, after, after);
    code = zinf_config_entry_mark(entry, ENTRY_CONTEXT, "command line");
out:
    free(before);
    free(after);
    cJSON_Delete(json);
    return code;
}

static int override(struct config_loader *loader, const char *path,
                    const struct zinf_config_setting *setting)
{
    const struct zinf_config_key *key = zinf_config_key_find(path);
    if (!key || key->use != KEY_USED)
        return zinf_fail(-EINVAL, "%s sets %s, which is no key of the configuration",
                         name_of(setting), path);
    return override_json(loader, path, json_of(setting, key->type), name_of(setting));
}

/* Parameters of the schedule that the file has and that give way. */
static void forget_schedule(struct config_loader *loader)
{
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        struct config_entry *entry = &loader->config->entries->item[i];
        if (strncmp(zinf_config_keys[i].path, "scheduler.params.", 17) ||
            entry->state == ENTRY_DEFAULT)
            continue;
        zinf_config_value_default(loader->config, &zinf_config_keys[i]);
        entry->state = ENTRY_DEFAULT;
        free(entry->source);
        entry->source = NULL;
    }
}

/* One of the file's gives way whole: its parameters would mean other things in another one. */
static int override_schedule(struct config_loader *loader,
                             const struct zinf_config_setting *setting)
{
    enum zinf_scheduler_kind before = loader->config->scheduler.kind;
    int code = 0;
    if (setting->text && !strcmp(setting->text, "constant")) {
        struct config_entry *entry = zinf_config_entry(loader->config, "scheduler.type");
        loader->config->scheduler.kind = ZINF_SCHEDULER_NONE;
        code = zinf_config_entry_mark(entry, ENTRY_CONTEXT, "command line");
    } else {
        code = override(loader, "scheduler.type", setting);
    }
    if (!code && loader->config->scheduler.kind != before)
        forget_schedule(loader);
    return code;
}

/* A warm-up schedule sets the rate itself, so a rate has to be its peak as well to mean anything.
 */
static int override_lr(struct config_loader *loader, const struct zinf_config_setting *setting)
{
    int code = override(loader, "optimizer.params.lr", setting);
    if (code)
        return code;
    switch (loader->config->scheduler.kind) {
    case ZINF_SCHEDULER_WARMUP_LR:
    case ZINF_SCHEDULER_WARMUP_DECAY_LR:
        return override(loader, "scheduler.params.warmup_max_lr", setting);
    case ZINF_SCHEDULER_LR_RANGE_TEST:
    case ZINF_SCHEDULER_ONE_CYCLE:
        zinf_config_note(loader, ZINF_LOG_WARN,
                         "%s: %s changes nothing: this schedule gives the rates itself",
                         zinf_config_where(loader->config, "scheduler.type"), name_of(setting));
        return 0;
    default:
        return 0;
    }
}

/* As Hugging Face's Trainer counts it: the part that is begun counts whole. */
static int override_warmup_ratio(struct config_loader *loader,
                                 const struct zinf_config_setting *setting)
{
    struct zinf_config_setting steps = *setting;
    double ratio = setting->text ? strtod(setting->text, NULL) : setting->number;
    if (!(ratio >= 0 && ratio <= 1))
        return zinf_fail(-EINVAL, "%s %g is out of range: it must be from 0 to 1", name_of(setting),
                         ratio);
    if (zinf_config_settings_find(&loader->context->settings, "scheduler.params.warmup_num_steps"))
        return 0; /* a number of steps is the more exact wish */
    if (loader->context->steps < 0 && !loader->context->show)
        return zinf_fail(-EINVAL, "%s is a part of all steps: say how many (--steps)",
                         name_of(setting));
    steps.text = NULL;
    steps.number = ceil(ratio * fmax(0, (double)loader->context->steps));
    return override(loader, "scheduler.params.warmup_num_steps", &steps);
}

static int override_dtype(struct config_loader *loader, const struct zinf_config_setting *setting)
{
    enum zinf_dtype dtype;
    struct zinf_config_setting on = *setting;
    int code = zinf_dtype_parse(setting->text ? setting->text : "", &dtype);
    if (code)
        return zinf_fail_in(code, "%s", name_of(setting));
    on.text = NULL;
    on.number = dtype == ZINF_DTYPE_BF16;
    code = override(loader, "bf16.enabled", &on);
    on.number = dtype == ZINF_DTYPE_F16;
    return code ? code : override(loader, "fp16.enabled", &on);
}

/* "q,v" as a list of names; "all-linear" stays a word. */
static cJSON *targets_of(const char *text)
{
    if (!strcmp(text, "all-linear"))
        return cJSON_CreateString(text);
    cJSON *list = cJSON_CreateArray();
    char *copy = strdup(text), *rest = copy;
    for (char *name; list && rest && (name = strsep(&rest, ","));)
        if (*name)
            cJSON_AddItemToArray(list, cJSON_CreateString(name));
    free(copy);
    return list;
}

/* A rank without a scale has twice itself as alpha, which is what most trainings take. */
static int add_alpha(cJSON *adapter)
{
    const cJSON *rank = cJSON_GetObjectItemCaseSensitive(adapter, "r");
    if (!cJSON_IsNumber(rank) || cJSON_HasObjectItem(adapter, "lora_alpha"))
        return 0;
    return cJSON_AddNumberToObject(adapter, "lora_alpha", 2 * rank->valuedouble) ? 0 : -ENOMEM;
}

/* How adapters are scaled, dropped and placed does not yet ask for any: a rank does, or the section
 * of the file, which PEFT gives a rank. */
static int need_rank(const char *name)
{
    return zinf_fail(-EINVAL,
                     "%s is for adapters, and neither --lora-rank nor zinf.adapter asks for any: "
                     "add --lora-rank N, such as 16, or leave out %s",
                     name, name);
}

/* Members of zinf.adapter, one by one; the file's others stay. */
static int override_adapter(struct config_loader *loader)
{
    const struct zinf_config_settings *all = &loader->context->settings;
    const char *text = loader->config->adapter, *name = NULL;
    cJSON *adapter = text ? cJSON_Parse(text) : cJSON_CreateObject();
    bool ranks = false;
    for (int i = 0; i < all->n; i++) {
        const struct zinf_config_setting *setting = &all->item[i];
        const char *member = setting->key + strlen(ADAPTER);
        if (strncmp(setting->key, ADAPTER, strlen(ADAPTER)))
            continue;
        bool list = !strcmp(member, "target_modules");
        cJSON *value = list ? targets_of(setting->text) : json_of(setting, KEY_NUMBER);
        name = name ? name : name_of(setting);
        ranks = ranks || !strcmp(member, "r");
        cJSON_DeleteItemFromObjectCaseSensitive(adapter, member);
        if (!cJSON_AddItemToObject(adapter, member, value))
            cJSON_Delete(value);
    }
    int code = name && !ranks && !text ? need_rank(name) : 0;
    if (!code && ranks && add_alpha(adapter))
        code = zinf_fail(-ENOMEM, "no memory for the configuration");
    if (code) {
        cJSON_Delete(adapter);
        return code;
    }
    if (name)
        return override_json(loader, "zinf.adapter", adapter, name);
    cJSON_Delete(adapter);
    return 0;
}

/* ---- all ---- */

/* Keys that build on each other come in this order, behind all others: a schedule that gives way
 * takes its parameters along. */
static const struct {
    const char *key;
    int (*override)(struct config_loader *loader, const struct zinf_config_setting *setting);
} ordered[] = {
    {"dtype", override_dtype},
    {"scheduler.type", override_schedule},
    {"optimizer.params.lr", override_lr},
    {"warmup_ratio", override_warmup_ratio},
    {"scheduler.params.warmup_num_steps", NULL},
};
#define N_ORDERED (sizeof ordered / sizeof *ordered)

static bool is_plain(const char *key)
{
    for (size_t i = 0; i < N_ORDERED; i++)
        if (!strcmp(key, ordered[i].key))
            return false;
    return strncmp(key, ADAPTER, strlen(ADAPTER)) != 0;
}

int zinf_config_apply_context(struct config_loader *loader)
{
    const struct zinf_config_context *context = loader->context;
    int code = 0;
    if (context->world_size < 0 || context->world_size > INT32_MAX)
        return zinf_fail(-EINVAL, "world size %lld must be from 1 to %d",
                         (long long)context->world_size, INT32_MAX);
    loader->config->world_size = context->world_size ? context->world_size : 1;
    const struct zinf_config_setting seats = {
        .key = "zinf.seats", .number = (double)context->seats, .name = "--seats"};
    if (context->seats > 0)
        code = override(loader, seats.key, &seats);
    for (int i = 0; i < context->settings.n && !code; i++)
        if (is_plain(context->settings.item[i].key))
            code = override(loader, context->settings.item[i].key, &context->settings.item[i]);
    for (size_t i = 0; i < N_ORDERED && !code; i++) {
        const struct zinf_config_setting *setting =
            zinf_config_settings_find(&context->settings, ordered[i].key);
        if (setting)
            code = ordered[i].override ? ordered[i].override(loader, setting)
                                       : override(loader, ordered[i].key, setting);
    }
    return code ? code : override_adapter(loader);
}

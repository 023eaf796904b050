/*
 * config_context: the command line over the file. Each option replaces one key; where the file
 * says something else, both values are said.
 */
#include "config/config_private.h"

#include <stdlib.h>

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

static int override(struct config_loader *loader, const char *path, double number,
                    const char *option)
{
    return override_json(loader, path, cJSON_CreateNumber(number), option);
}

static int override_name(struct config_loader *loader, const char *path, const char *name,
                         const char *option)
{
    return override_json(loader, path, cJSON_CreateString(name), option);
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
static int override_schedule(struct config_loader *loader, const char *name)
{
    enum zinf_scheduler_kind before = loader->config->scheduler.kind;
    int code = 0;
    if (!strcmp(name, "constant")) {
        struct config_entry *entry = zinf_config_entry(loader->config, "scheduler.type");
        loader->config->scheduler.kind = ZINF_SCHEDULER_NONE;
        code = zinf_config_entry_mark(entry, ENTRY_CONTEXT, "command line");
    } else {
        code = override_name(loader, "scheduler.type", name, "--lr-scheduler");
    }
    if (!code && loader->config->scheduler.kind != before)
        forget_schedule(loader);
    return code;
}

/* A warm-up schedule sets the rate itself, so --lr has to be its peak as well to mean anything. */
static int override_lr(struct config_loader *loader, double lr)
{
    int code = override(loader, "optimizer.params.lr", lr, "--lr");
    if (code)
        return code;
    switch (loader->config->scheduler.kind) {
    case ZINF_SCHEDULER_WARMUP_LR:
    case ZINF_SCHEDULER_WARMUP_DECAY_LR:
        return override(loader, "scheduler.params.warmup_max_lr", lr, "--lr");
    case ZINF_SCHEDULER_LR_RANGE_TEST:
    case ZINF_SCHEDULER_ONE_CYCLE:
        zinf_config_note(loader, ZINF_LOG_WARN,
                         "%s: --lr changes nothing: this schedule gives the rates itself",
                         zinf_config_where(loader->config, "scheduler.type"));
        return 0;
    default:
        return 0;
    }
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

/* Members of zinf.adapter, one by one; the file's others stay. */
static int override_adapter(struct config_loader *loader)
{
    const struct zinf_config_context *c = loader->context;
    const struct {
        const char *key, *option;
        cJSON *value;
    } members[] = {
        {"r", "--lora-rank", c->lora_rank > 0 ? cJSON_CreateNumber((double)c->lora_rank) : NULL},
        {"lora_alpha", "--lora-alpha",
         c->lora_alpha > 0 ? cJSON_CreateNumber(c->lora_alpha) : NULL},
        {"lora_dropout", "--lora-dropout",
         c->lora_dropout >= 0 ? cJSON_CreateNumber(c->lora_dropout) : NULL},
        {"target_modules", "--lora-targets", c->lora_targets ? targets_of(c->lora_targets) : NULL},
    };
    const char *text = loader->config->adapter, *option = NULL;
    cJSON *adapter = text ? cJSON_Parse(text) : cJSON_CreateObject();
    for (size_t i = 0; i < sizeof members / sizeof *members; i++) {
        if (!members[i].value)
            continue;
        option = option ? option : members[i].option;
        cJSON_DeleteItemFromObjectCaseSensitive(adapter, members[i].key);
        if (!cJSON_AddItemToObject(adapter, members[i].key, members[i].value))
            cJSON_Delete(members[i].value);
    }
    if (option)
        return override_json(loader, "zinf.adapter", adapter, option);
    cJSON_Delete(adapter);
    return 0;
}

/* Words of a key each. */
static int override_names(struct config_loader *loader)
{
    const struct zinf_config_context *c = loader->context;
    const struct {
        const char *path, *word, *option;
    } names[] = {
        {"zinf.pad_to", c->pad_to, "--pad-to"},
        {"optimizer.type", c->optimizer, "--optimizer"},
        {"zinf.quantize", c->quantize, "--quantize"},
        {"zinf.preference", c->preference, "--preference"},
    };
    int code = 0;
    for (size_t i = 0; !code && i < sizeof names / sizeof *names; i++)
        if (names[i].word)
            code = override_name(loader, names[i].path, names[i].word, names[i].option);
    return code;
}

int zinf_config_apply_context(struct config_loader *loader)
{
    const struct zinf_config_context *context = loader->context;
    const struct {
        const char *path, *option;
        double number;
        bool given;
    } options[] = {
        {"train_micro_batch_size_per_gpu", "--micro-batch", (double)context->micro_batch,
         context->micro_batch >= 0},
        {"gradient_accumulation_steps", "--accumulate", (double)context->accumulation,
         context->accumulation >= 0},
        {"zinf.dropout", "--dropout", context->dropout, context->dropout >= 0},
        {"zinf.threads", "--threads", (double)context->threads, context->threads >= 0},
        {"zinf.seats", "--seats", (double)context->seats, context->seats > 0},
        {"zinf.early_stopping", "--early-stopping", (double)context->early_stopping,
         context->early_stopping >= 0},
        {"zinf.label_smoothing", "--label-smoothing", context->label_smoothing,
         context->label_smoothing >= 0},
        {"zinf.z_loss", "--z-loss", context->z_loss, context->z_loss >= 0},
        {"zinf.neftune_alpha", "--neftune-alpha", context->neftune_alpha,
         context->neftune_alpha >= 0},
        {"zinf.preference_beta", "--beta", context->preference_beta, context->preference_beta >= 0},
        {"zinf.device_memory", "--device-memory", (double)context->device_memory,
         context->device_memory > 0},
        {"zinf.host_memory", "--host-memory", (double)context->host_memory,
         context->host_memory > 0},
    };
    int code = 0;
    if (context->world_size < 0 || context->world_size > INT32_MAX)
        return zinf_fail(-EINVAL, "world size %lld must be from 1 to %d",
                         (long long)context->world_size, INT32_MAX);
    loader->config->world_size = context->world_size ? context->world_size : 1;
    for (size_t i = 0; i < sizeof options / sizeof *options && !code; i++)
        if (options[i].given)
            code = override(loader, options[i].path, options[i].number, options[i].option);
    if (!code && context->load_best_at_end)
        code = override_json(loader, "zinf.load_best_at_end", cJSON_CreateTrue(),
                             "--load-best-at-end");
    if (!code && context->group_by_length)
        code =
            override_json(loader, "zinf.group_by_length", cJSON_CreateTrue(), "--group-by-length");
    if (!code)
        code = override_names(loader);
    if (!code && context->lr_scheduler)
        code = override_schedule(loader, context->lr_scheduler);
    if (!code && context->lr >= 0)
        code = override_lr(loader, context->lr);
    if (!code && context->weight_decay >= 0)
        code = override(loader, "optimizer.params.weight_decay", context->weight_decay,
                        "--weight-decay");
    if (!code && context->warmup_steps >= 0)
        code = override(loader, "scheduler.params.warmup_num_steps", (double)context->warmup_steps,
                        "--warmup-steps");
    return code ? code : override_adapter(loader);
}

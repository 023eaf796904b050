/*
 * config_context: the command line over the file. Each option replaces one key; where the file
 * says something else, both values are said.
 */
#include "config/config_private.h"

#include <stdlib.h>

static int override(struct config_loader *loader, const char *path, double number,
                    const char *option)
{
    const struct zinf_config_key *key = zinf_config_key_find(path);
    struct config_entry *entry = zinf_config_entry(loader->config, path);
    struct config_value value;
    cJSON *json = cJSON_CreateNumber(number);
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
        zinf_log(ZINF_LOG_WARN, "%s is %s, but %s says %s: %s is used",
                 zinf_config_where(loader->config, path), before, option, after, after);
    code = zinf_config_entry_mark(entry, ENTRY_CONTEXT, "command line");
out:
    free(before);
    free(after);
    cJSON_Delete(json);
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
        zinf_log(ZINF_LOG_WARN, "%s: --lr changes nothing: this schedule gives the rates itself",
                 zinf_config_where(loader->config, "scheduler.type"));
        return 0;
    default:
        return 0;
    }
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
    if (!code && context->lr >= 0)
        code = override_lr(loader, context->lr);
    return code;
}

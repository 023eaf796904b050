/*
 * config_auto: "auto" by the rules of Hugging Face's Trainer and Accelerate, from the command line
 * and the model; and the defaults that depend on other keys. An "auto" that nobody provides, and
 * for which Trainer has no default either, is an error: guessing is what makes runs differ from
 * what their configuration says. In a configuration that is only shown it stays "auto".
 */
#include "config/config_private.h"

#include <stdio.h>

int zinf_config_leave_open(struct config_loader *loader, struct config_entry *entry,
                           const char *option, const char *otherwise)
{
    char place[400];
    snprintf(place, sizeof place, "%.390s", entry->source ? entry->source : loader->what);
    entry->wanted = option;
    return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "%s%s%s", place, *otherwise ? "; " : "",
                                  otherwise);
}

/* option: what would provide it. */
static int nobody(struct config_loader *loader, const char *path, const char *option,
                  const char *remedy)
{
    struct config_entry *entry = zinf_config_entry(loader->config, path);
    if (loader->context->show && option)
        return zinf_config_leave_open(loader, entry, option, "");
    return zinf_fail(-EINVAL, "%s is \"auto\", but nothing provides it: %s",
                     zinf_config_where(loader->config, path), remedy);
}

/* On when the model folder has this number type; the other section may have decided already. */
static int resolve_dtype(struct config_loader *loader, const struct zinf_config_key *key,
                         struct config_entry *entry)
{
    bool is_fp16 = !strcmp(key->path, "fp16.enabled");
    const char *other = is_fp16 ? "bf16.enabled" : "fp16.enabled";
    bool *field = is_fp16 ? &loader->config->fp16.enabled : &loader->config->bf16;
    bool other_on = is_fp16 ? loader->config->bf16 : loader->config->fp16.enabled;
    enum zinf_dtype dtype;
    if (zinf_config_entry(loader->config, other)->state == ENTRY_FILE && other_on) {
        *field = false;
        return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: %s is true", other);
    }
    if (!loader->context->dtype)
        return nobody(loader, key->path, "--model",
                      "give --model (its number type decides), or write true "
                      "or false");
    int code = zinf_dtype_parse(loader->context->dtype, &dtype);
    if (code)
        return zinf_fail_in(code, "number type of the model");
    *field = dtype == (is_fp16 ? ZINF_DTYPE_F16 : ZINF_DTYPE_BF16);
    return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: the model is %s",
                                  zinf_dtype_name(dtype));
}

/* Both bucket rules hold for stage 3; below it Hugging Face leaves the defaults. */
static int resolve_from_hidden(struct config_loader *loader, const struct zinf_config_key *key,
                               struct config_entry *entry)
{
    struct zinf_config *config = loader->config;
    int64_t hidden = loader->context->hidden_size;
    if (config->zero_stage < 3)
        return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: default below stage 3");
    if (hidden < 0)
        return nobody(loader, key->path, "--model",
                      "give --model (its hidden_size decides), or write a "
                      "number");
    if (hidden > INT32_MAX)
        return zinf_fail(-EINVAL, "hidden_size %lld of the model is not credible",
                         (long long)hidden);
    if (key->rule == AUTO_PREFETCH) {
        config->prefetch_bucket_size = (int64_t)(0.9 * (double)hidden * (double)hidden);
        return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: 0.9 * hidden_size^2");
    }
    config->param_persistence_threshold = 10 * hidden;
    return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: 10 * hidden_size");
}

/* Trainer's warmup_steps is 0 unless told, and the schedules make at least 2 of it. */
static int resolve_warmup_steps(struct config_loader *loader, struct config_entry *entry)
{
    if (loader->config->scheduler.kind >= ZINF_SCHEDULER_LINEAR)
        return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: Trainer's default");
    loader->config->scheduler.warmup_num_steps = 2;
    return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: no warm-up asked for, shortest");
}

static int resolve_total_steps(struct config_loader *loader, const struct zinf_config_key *key,
                               struct config_entry *entry)
{
    if (loader->context->steps < 1)
        return nobody(loader, key->path, "--steps", "pass --steps, or write a number");
    loader->config->scheduler.total_num_steps = loader->context->steps;
    return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: --steps");
}

static int resolve_entry(struct config_loader *loader, const struct zinf_config_key *key,
                         struct config_entry *entry)
{
    switch (key->rule) {
    case AUTO_ERROR:
        return nobody(loader, key->path, NULL, "there is no rule for this key; write its value");
    case AUTO_BATCH: /* config_batch.c */
        return 0;
    case AUTO_DEFAULT:
        return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: default");
    case AUTO_VALUE:
        return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: Hugging Face's default");
    case AUTO_LR: /* config_trainer.c */
        return 0;
    case AUTO_MAX_LR:
        loader->config->scheduler.warmup_max_lr = loader->config->optimizer.lr;
        if (zinf_config_entry(loader->config, "optimizer.params.lr")->wanted)
            return zinf_config_leave_open(loader, entry, "--lr", "optimizer.params.lr");
        return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: optimizer.params.lr");
    case AUTO_CHUNK:
        loader->config->sequence_chunk = -1;
        return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "auto: by the sequence's length");
    case AUTO_DTYPE:
        return resolve_dtype(loader, key, entry);
    case AUTO_PREFETCH:
    case AUTO_PERSISTENCE:
        return resolve_from_hidden(loader, key, entry);
    case AUTO_WARMUP_STEPS:
        return resolve_warmup_steps(loader, entry);
    case AUTO_TOTAL_STEPS:
        return resolve_total_steps(loader, key, entry);
    }
    return 0;
}

/* In table order: optimizer.params.lr is there before the schedule that takes it over. */
int zinf_config_resolve_auto(struct config_loader *loader)
{
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        const struct zinf_config_key *key = &zinf_config_keys[i];
        struct config_entry *entry = &loader->config->entries->item[i];
        if (entry->state != ENTRY_AUTO || key->use != KEY_USED)
            continue;
        int code = resolve_entry(loader, key, entry);
        if (code)
            return code;
    }
    return 0;
}

/* ---- defaults that depend on other keys ---- */

/* Present, whoever gave it. */
static bool given(const struct config_loader *loader, const char *path)
{
    return zinf_config_entry(loader->config, path)->state != ENTRY_DEFAULT;
}

static int inherit(struct config_loader *loader, const char *path, const char *from)
{
    return zinf_config_entry_mark(zinf_config_entry(loader->config, path), ENTRY_DEFAULT,
                                  "default: %s", from);
}

/* torch_adam asks for torch.optim.AdamW, whose decay is not 0 (PyTorch, optim/adamw.py). */
static bool is_torch_adam(const struct config_loader *loader)
{
    const struct config_entry *entry =
        zinf_config_entry(loader->config, "optimizer.params.torch_adam");
    const struct zinf_config_optimizer *optimizer = &loader->config->optimizer;
    return entry->state == ENTRY_FILE && entry->number != 0 && optimizer->decoupled &&
           (!strcmp(optimizer->type, "AdamW") || !strcmp(optimizer->type, "Adam"));
}

/* Defaults of one optimizer's, where the table's are another's. */
static const struct {
    const char *type, *path;
    double number;
} type_defaults[] = {
    {"Adagrad", "optimizer.params.lr", 1e-2},
    {"Adagrad", "optimizer.params.eps", 1e-10},
    {"Adafactor", "optimizer.params.lr", 1e-2},
    {"SGD", "optimizer.params.nesterov", 0},
    {"Muon", "optimizer.params.momentum", 0.95},
    {"NorMuon", "optimizer.params.momentum", 0.95},
    {"NorMuon", "optimizer.params.nesterov", 0},
    {"NorMuon", "optimizer.params.adjust_lr_fn", 1},
    {"GaLoreAdamW", "optimizer.params.eps", 1e-6},
    {"GaLoreAdamW", "optimizer.params.scale", 0.25},
    {"APOLLO", "optimizer.params.eps", 1e-6},
    {"APOLLO", "optimizer.params.rank", 256},
    {"APOLLO-Mini", "optimizer.params.eps", 1e-6},
    {"APOLLO-Mini", "optimizer.params.rank", 1},
    {"APOLLO-Mini", "optimizer.params.scale", 128},
    {"APOLLO-Mini", "optimizer.params.scale_type", 1},
};

static int take_type_defaults(struct config_loader *loader)
{
    const char *type = loader->config->optimizer.type;
    int code = 0;
    for (size_t i = 0; !code && i < sizeof type_defaults / sizeof *type_defaults; i++) {
        const struct zinf_config_key *key = zinf_config_key_find(type_defaults[i].path);
        const double number = type_defaults[i].number;
        const struct config_value value = {.number = number, .integer = (int64_t)number};
        if (strcmp(type_defaults[i].type, type) || given(loader, key->path))
            continue;
        code = zinf_config_value_store(loader->config, key, &value);
        if (!code)
            code = inherit(loader, key->path, type);
    }
    return code;
}

/* Of DeepSpeed's Muon muon_lr goes before lr, and either before that default. Updates of its kin
 * are as large as AdamW's, so that one rate does for both. */
static int take_rates(struct config_loader *loader)
{
    struct zinf_config_optimizer *o = &loader->config->optimizer;
    const bool muon = !strcmp(o->type, "Muon");
    if (muon &&
        (given(loader, "optimizer.params.muon_lr") || !given(loader, "optimizer.params.lr"))) {
        o->lr = o->muon_lr;
        return inherit(loader, "optimizer.params.lr", o->type);
    }
    if (muon || given(loader, "optimizer.params.adam_lr"))
        return 0;
    o->adam_lr = o->lr;
    return inherit(loader, "optimizer.params.adam_lr", "optimizer.params.lr");
}

static int optimizer_defaults(struct config_loader *loader)
{
    struct zinf_config_optimizer *optimizer = &loader->config->optimizer;
    int code = take_type_defaults(loader);
    if (!code)
        code = take_rates(loader);
    if (!code && !strcmp(optimizer->type, "SGD") && optimizer->nesterov)
        code = zinf_fail(-ENOTSUP, "%s is true, but SGD here has plain momentum; remove it",
                         zinf_config_where(loader->config, "optimizer.params.nesterov"));
    if (!code && is_torch_adam(loader) && !given(loader, "optimizer.params.weight_decay")) {
        optimizer->weight_decay = 0.01;
        code = inherit(loader, "optimizer.params.weight_decay", "PyTorch's AdamW, by torch_adam");
    }
    if (!strcmp(optimizer->type, "AdamW") && !optimizer->decoupled)
        zinf_config_note(loader, ZINF_LOG_WARN,
                         "%s is false, but AdamW always decouples the decay; use Adam",
                         zinf_config_where(loader->config, "optimizer.params.adam_w_mode"));
    if (strcmp(optimizer->type, "Adam"))
        optimizer->decoupled = strcmp(optimizer->type, "Adagrad") && strcmp(optimizer->type, "SGD");
    return code;
}

static int scheduler_defaults(struct config_loader *loader)
{
    struct zinf_config_scheduler *scheduler = &loader->config->scheduler;
    int code = 0;
    if (scheduler->kind == ZINF_SCHEDULER_WARMUP_LR &&
        !given(loader, "scheduler.params.warmup_max_lr")) {
        scheduler->warmup_max_lr = loader->config->optimizer.lr;
        code = inherit(loader, "scheduler.params.warmup_max_lr", "optimizer.params.lr");
    }
    if (scheduler->kind >= ZINF_SCHEDULER_LINEAR &&
        !given(loader, "scheduler.params.warmup_num_steps")) {
        scheduler->warmup_num_steps = 0;
        code = inherit(loader, "scheduler.params.warmup_num_steps", "no warm-up");
    }
    if (scheduler->kind != ZINF_SCHEDULER_ONE_CYCLE)
        return code;
    if (!given(loader, "scheduler.params.cycle_second_step_size")) {
        scheduler->cycle_second_step_size = scheduler->cycle_first_step_size;
        code = inherit(loader, "scheduler.params.cycle_second_step_size", "cycle_first_step_size");
    }
    if (!code && !given(loader, "scheduler.params.cycle_second_stair_count")) {
        scheduler->cycle_second_stair_count = scheduler->cycle_first_stair_count;
        code =
            inherit(loader, "scheduler.params.cycle_second_stair_count", "cycle_first_stair_count");
    }
    return code;
}

/* Without a file the model folder's number type is as good as asked for. */
static int dtype_defaults(struct config_loader *loader)
{
    static const char *const paths[] = {"fp16.enabled", "bf16.enabled"};
    int code = 0;
    if (loader->text || !loader->context->dtype)
        return 0;
    for (int i = 0; i < 2 && !code; i++) {
        struct config_entry *entry = zinf_config_entry(loader->config, paths[i]);
        if (entry->state != ENTRY_CONTEXT)
            code = resolve_dtype(loader, zinf_config_key_find(paths[i]), entry);
    }
    return code;
}

int zinf_config_resolve_defaults(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    int code = optimizer_defaults(loader);
    /* 0 is the least there is: the smallest sub-groups. */
    if (!code && !config->sub_group_size)
        config->sub_group_size = 1;
    if (!code)
        code = scheduler_defaults(loader);
    if (!code)
        code = dtype_defaults(loader);
    if (!code && zinf_config_entry(config, "zinf.grad_device")->state != ENTRY_FILE) {
        config->grad_device = config->offload_optimizer.device;
        code = inherit(loader, "zinf.grad_device", "zero_optimization.offload_optimizer.device");
    }
    return code;
}

/*
 * config_trainer: what a configuration leaves to Hugging Face's Trainer. Most public files do: they
 * have no optimizer section, or "auto" in it, and Trainer's arguments fill the place. Without an
 * argument here its defaults are taken (transformers, TrainingArguments: AdamW, lr 5e-5, betas 0.9
 * and 0.999, eps 1e-8, no weight decay, linear decay without warm-up, 8 sequences a device), and
 * one line says so: a learning rate in silence is the worst guess of all. Adapters have few numbers
 * to move and take a larger one.
 */
#include "config/config_private.h"

#include <stdio.h>
#include <strings.h>

#define LR "optimizer.params.lr"
#define TRAINER_LR 5e-5
#define ADAPTER_LR 1e-4
#define TRAINER_MICRO_BATCH 8
#define MICRO "train_micro_batch_size_per_gpu"

/* Any key of the section, "auto" too. */
static bool has_section(const struct config_loader *loader, const char *section)
{
    size_t bytes = strlen(section);
    for (size_t i = 0; i < zinf_config_n_keys; i++)
        if (loader->config->entries->item[i].in_file &&
            !strncmp(zinf_config_keys[i].path, section, bytes))
            return true;
    return false;
}

/* Optimizers whose rate Trainer's is made for; the others have their own. */
static bool is_adam(const struct config_loader *loader)
{
    return !strncasecmp(loader->config->optimizer.type, "Adam", 4);
}

static int take_lr(struct config_loader *loader)
{
    struct config_entry *entry = zinf_config_entry(loader->config, LR);
    bool is_auto = entry->state == ENTRY_AUTO;
    bool adapts = loader->config->adapter != NULL;
    loader->config->optimizer.lr = adapts ? ADAPTER_LR : TRAINER_LR;
    if (is_auto && loader->context->show)
        return zinf_config_leave_open(loader, entry, "--lr",
                                      adapts ? "1e-04, for adapters, without it"
                                             : "Trainer's 5e-05 without it");
    return zinf_config_entry_mark(entry, ENTRY_RESOLVED, "%s%s", is_auto ? "auto: " : "",
                                  adapts ? "default of adapters" : "Trainer's default");
}

/* Trainer's linear decay, where the number of steps is known. */
static int take_schedule(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    struct config_entry *total = zinf_config_entry(config, "scheduler.params.total_num_steps");
    if (loader->context->steps < 1 && !loader->context->show)
        return 0;
    config->scheduler.kind = ZINF_SCHEDULER_LINEAR;
    config->scheduler.total_num_steps = loader->context->steps;
    int code = zinf_config_entry_mark(zinf_config_entry(config, "scheduler.type"), ENTRY_RESOLVED,
                                      "Trainer's default");
    if (!code && loader->context->steps < 1)
        return zinf_config_leave_open(loader, total, "--steps", "the end of the decay");
    return code ? code : zinf_config_entry_mark(total, ENTRY_RESOLVED, "--steps");
}

/* A schedule that was chosen on the command line ends with the run. */
static int take_steps(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    struct config_entry *total = zinf_config_entry(config, "scheduler.params.total_num_steps");
    const struct zinf_config_key *key = zinf_config_key_find("scheduler.params.total_num_steps");
    bool chosen = zinf_config_entry(config, "scheduler.type")->state == ENTRY_CONTEXT;
    if (!chosen || total->state != ENTRY_DEFAULT || !zinf_config_key_applies(config, key))
        return 0;
    return zinf_config_entry_mark(total, ENTRY_AUTO, "command line");
}

static void say(const struct config_loader *loader, bool lr, bool schedule)
{
    const struct zinf_config *config = loader->config;
    char rate[64] = "", decay[96] = "";
    if (loader->context->no_training || loader->context->show || !(lr || schedule))
        return;
    if (lr)
        snprintf(rate, sizeof rate, "lr %g%s", config->optimizer.lr,
                 config->adapter ? " for adapters" : "");
    if (schedule && config->scheduler.kind == ZINF_SCHEDULER_LINEAR)
        snprintf(decay, sizeof decay, "%slinear decay to 0 over %lld step%s", lr ? ", " : "",
                 (long long)config->scheduler.total_num_steps,
                 config->scheduler.total_num_steps == 1 ? "" : "s");
    else if (schedule)
        snprintf(decay, sizeof decay, "%sconstant", lr ? ", " : "lr is ");
    zinf_config_note(loader, ZINF_LOG_INFO,
                     "%s leaves %s to Trainer, whose defaults are taken: %s, %s%s (%s)",
                     loader->text ? loader->what : "the command line",
                     has_section(loader, "optimizer.") ? "the learning rate" : "the optimizer",
                     config->optimizer.type, rate, decay,
                     lr && schedule ? "--lr, --lr-scheduler, --warmup-steps"
                     : lr           ? "--lr"
                                    : "--lr-scheduler, --warmup-steps");
}

/* A warm-up needs a schedule that has one. */
static bool warms_up(const struct config_loader *loader)
{
    return zinf_config_entry(loader->config, "scheduler.params.warmup_num_steps")->state ==
           ENTRY_CONTEXT;
}

static int take_micro_batch(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    struct config_entry *micro = zinf_config_entry(config, MICRO);
    enum entry_state train = zinf_config_entry(config, "train_batch_size")->state;
    if (micro->state != ENTRY_AUTO || train == ENTRY_FILE || train == ENTRY_CONTEXT ||
        !micro->in_file)
        return 0;
    config->micro_batch = TRAINER_MICRO_BATCH;
    if (loader->context->show)
        return zinf_config_leave_open(loader, micro, "--micro-batch", "Trainer's 8 without it");
    if (!loader->context->no_training)
        zinf_config_note(loader, ZINF_LOG_INFO,
                         "%s is \"auto\": Trainer's default of %d is taken (--micro-batch)",
                         zinf_config_where(config, MICRO), TRAINER_MICRO_BATCH);
    return zinf_config_entry_mark(micro, ENTRY_RESOLVED, "auto: Trainer's default");
}

int zinf_config_resolve_trainer(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    bool section = has_section(loader, "optimizer."), scheduled = has_section(loader, "scheduler.");
    const struct config_entry *lr = zinf_config_entry(config, LR);
    bool takes_lr =
        lr->state == ENTRY_AUTO || (lr->state == ENTRY_DEFAULT && !section && is_adam(loader));
    bool chosen = zinf_config_entry(config, "scheduler.type")->state == ENTRY_CONTEXT;
    bool takes_schedule = !scheduled && !chosen && (!section || lr->is_auto || warms_up(loader));
    int code = takes_lr ? take_lr(loader) : 0;
    if (!code && takes_schedule)
        code = take_schedule(loader);
    if (!code)
        code = take_steps(loader);
    if (!code)
        say(loader, takes_lr, takes_schedule);
    return code ? code : take_micro_batch(loader);
}

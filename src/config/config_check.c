/*
 * config_check: what no single key can be blamed for: parameters of another optimizer or schedule,
 * two precisions at once, offloading that the ZeRO stage has no place for. Each message names the
 * key, where it stands, and the edit that corrects it.
 */
#include "config/config_private.h"

#include <stdio.h>
#include <strings.h>

#define PARAM "zero_optimization.offload_param."
#define OPT "zero_optimization.offload_optimizer."

static const char optimizer_names[] =
    "AdamW, Adam, Lion, Adagrad, SGD, Adafactor, AdamW8bit, Muon, NorMuon, GaLoreAdamW, APOLLO or "
    "APOLLO-Mini";

/* ---- optimizer and scheduler ---- */

/* DeepSpeed's and PyTorch's that zinf does not have. */
static const char *const other_optimizers[] = {
    "Lamb",   "OneBitAdam", "OneBitLamb", "ZeroOneAdam", "MuAdam", "MuAdamW", "MuSGD", "Adadelta",
    "Adamax", "NAdam",      "RAdam",      "RMSprop",     "Rprop",  "ASGD",    "LBFGS", "SparseAdam",
};

int zinf_config_check_optimizer_type(struct config_loader *loader, const cJSON *type)
{
    const struct zinf_config_key *key = zinf_config_key_find("optimizer.type");
    int line = zinf_json_line_of(loader->text, loader->bytes, key->path);
    if (!cJSON_IsString(type))
        return 0; /* the walk says what it must be */
    const char *name = type->valuestring, *nearest = NULL;
    int least = 3; /* further than two edits away is another word */
    for (int i = 0; key->choices[i]; i++) {
        if (!strcasecmp(key->choices[i], name))
            return 0;
        int distance = zinf_config_edit_distance(key->choices[i], name);
        if (distance < least) {
            least = distance;
            nearest = key->choices[i];
        }
    }
    for (size_t i = 0; i < sizeof other_optimizers / sizeof *other_optimizers; i++)
        if (!strcasecmp(other_optimizers[i], name))
            return zinf_fail(-ENOTSUP, "%s:%d: optimizer.type \"%s\" is not supported here; use %s",
                             loader->what, line, other_optimizers[i], optimizer_names);
    return zinf_fail(-EINVAL, "%s:%d: optimizer.type \"%.40s\" is unknown; %s%s%s", loader->what,
                     line, name, nearest ? "did you mean \"" : "use ",
                     nearest ? nearest : optimizer_names, nearest ? "\"?" : "");
}

static int fail_not_taken(struct config_loader *loader, const struct zinf_config_key *key)
{
    bool is_optimizer = key->takers & TAKER_OPTIMIZERS;
    const char *type = is_optimizer ? "optimizer.type" : "scheduler.type";
    const char *const *names = zinf_config_key_find(type)->choices;
    char takers[256] = "";
    size_t used = 0;
    for (unsigned i = 0; names[i]; i++)
        if (key->takers & (is_optimizer ? (unsigned)TAKER_ADAMW : 1u) << i)
            used += (size_t)snprintf(takers + used, sizeof takers - used, "%s%s", used ? ", " : "",
                                     names[i]);
    const char *present =
        is_optimizer ? loader->config->optimizer.type : names[loader->config->scheduler.kind];
    if (!present[0])
        return zinf_fail(-EINVAL, "%s is given without scheduler.type; it is a parameter of %s",
                         zinf_config_where(loader->config, key->path), takers);
    return zinf_fail(-EINVAL, "%s is no parameter of %s, but of %s; remove it",
                     zinf_config_where(loader->config, key->path), present, takers);
}

/* "auto" asks for nothing in particular, so there it is only dropped. */
int zinf_config_resolve_kinds(struct config_loader *loader)
{
    for (size_t i = 0; i < zinf_config_n_keys; i++) {
        const struct zinf_config_key *key = &zinf_config_keys[i];
        struct config_entry *entry = &loader->config->entries->item[i];
        if (zinf_config_key_applies(loader->config, key))
            continue;
        if (entry->state == ENTRY_FILE)
            return fail_not_taken(loader, key);
        entry->state = ENTRY_DEFAULT;
    }
    return 0;
}

static int require(struct config_loader *loader, const char *path, const char *remedy)
{
    const struct zinf_config *config = loader->config;
    if (!zinf_config_key_applies(config, zinf_config_key_find(path)) ||
        zinf_config_entry(config, path)->state != ENTRY_DEFAULT)
        return 0;
    const char *const *names = zinf_config_key_find("scheduler.type")->choices;
    return zinf_fail(-EINVAL, "%s: %s needs %s: write %s",
                     zinf_config_where(config, "scheduler.type"), names[config->scheduler.kind],
                     path, remedy);
}

static int check_scheduler(struct config_loader *loader)
{
    const struct zinf_config_scheduler *scheduler = &loader->config->scheduler;
    int code = require(loader, "scheduler.params.total_num_steps",
                       "the number of optimizer steps, or \"auto\" to take --steps");
    if (!code && scheduler->kind && scheduler->kind <= ZINF_SCHEDULER_WARMUP_COSINE_LR &&
        !scheduler->warmup_num_steps) /* DeepSpeed's */
        code = zinf_fail(-EINVAL,
                         "%s is 0, but must be at least 1; for no warm-up set scheduler.type to "
                         "\"linear\", \"cosine\" or \"constant_with_warmup\"",
                         zinf_config_where(loader->config, "scheduler.params.warmup_num_steps"));
    if (!code)
        code = require(loader, "scheduler.params.cycle_min_lr", "the lowest learning rate");
    if (!code)
        code = require(loader, "scheduler.params.cycle_max_lr", "the highest learning rate");
    if (!code &&
        zinf_config_key_applies(loader->config,
                                zinf_config_key_find("scheduler.params.total_num_steps")) &&
        !zinf_config_entry(loader->config, "scheduler.params.total_num_steps")->wanted &&
        scheduler->total_num_steps < scheduler->warmup_num_steps)
        zinf_config_note(
            loader, ZINF_LOG_WARN, "%s is %lld, less than the %lld steps of the warm-up",
            zinf_config_where(loader->config, "scheduler.params.total_num_steps"),
            (long long)scheduler->total_num_steps, (long long)scheduler->warmup_num_steps);
    return code;
}

/* ---- precision ---- */

static bool has_half_moments(const char *type)
{
    static const char *const types[] = {"AdamW", "Adam", "Lion", "Adagrad", "SGD"};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (!strcmp(types[i], type))
            return true;
    return false;
}

/* DeepSpeed has bf16 moments with bf16 masters alone. Masters here are exact all the same: they
 * take 2 bytes beside their bf16 parameter. */
static int check_bf16_states(const struct zinf_config *config)
{
    static const char masters[] = "bf16.bf16_master_weights_and_grads";
    static const char moments[] = "bf16.bf16_optimizer_states";
    const char *type = config->optimizer.type;
    if (config->bf16_masters && !config->bf16_moments)
        return zinf_fail(-ENOTSUP,
                         "%s is true, but master weights are kept in fp32; remove it, or set "
                         "bf16_optimizer_states with it",
                         zinf_config_where(config, masters));
    if (!config->bf16_moments)
        return 0;
    if (!config->bf16_masters)
        return zinf_fail(-EINVAL,
                         "%s is true, which DeepSpeed has only together with "
                         "bf16_master_weights_and_grads: set that too",
                         zinf_config_where(config, moments));
    if (!config->bf16)
        return zinf_fail(-EINVAL, "%s is true, but bf16.enabled is not: set it",
                         zinf_config_where(config, moments));
    if (!has_half_moments(type))
        return zinf_fail(-EINVAL,
                         "%s is true, but optimizer.type %s has smaller moments of its own: remove "
                         "it, or use AdamW, Adam, Lion, Adagrad or SGD",
                         zinf_config_where(config, moments), type);
    return 0;
}

static int check_precision(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    const struct config_entry *wanted = zinf_config_entry(config, "data_types.param_dtype");
    if (config->fp16.enabled && config->bf16)
        return zinf_fail(-EINVAL, "%s and bf16.enabled are both true; set one of them to false",
                         zinf_config_where(config, "fp16.enabled"));
    config->dtype = config->fp16.enabled ? ZINF_DTYPE_F16
                    : config->bf16       ? ZINF_DTYPE_BF16
                                         : ZINF_DTYPE_F32;
    int code = check_bf16_states(config);
    if (code)
        return code;
    /* Two spellings of each type, in the order of enum zinf_dtype. */
    enum zinf_dtype dtype = (enum zinf_dtype)((int)wanted->number / 2);
    if (wanted->state == ENTRY_FILE && dtype != config->dtype)
        return zinf_fail(-EINVAL,
                         "%s is %s, but fp16.enabled and bf16.enabled make it %s; remove "
                         "it or enable that type",
                         zinf_config_where(config, "data_types.param_dtype"),
                         zinf_dtype_name(dtype), zinf_dtype_name(config->dtype));
    return 0;
}

/* ---- ZeRO and offloading ---- */

static int check_offload(struct config_loader *loader, const struct zinf_config_offload *offload,
                         const char *device, const char *path)
{
    const struct zinf_config *config = loader->config;
    if (offload->device == ZINF_PLACE_NVME && !offload->n_nvme_paths)
        return zinf_fail(-EINVAL, "%s is \"nvme\", but %s is missing; write a folder on the drive",
                         zinf_config_where(config, device), path);
    return 0;
}

/* Each rank's slice of the state is on a drive at any stage that has slices of it. */
static void note_state_on_drive(struct config_loader *loader)
{
    const struct zinf_config *config = loader->config;
    if (config->offload_optimizer.device == ZINF_PLACE_NVME && config->zero_stage != 3)
        zinf_config_note(loader, ZINF_LOG_INFO,
                         "%s is \"nvme\" at zero_optimization.stage %lld: the state is on the "
                         "drive and parameters stay whole on the device; DeepSpeed itself would "
                         "want stage 3 here",
                         zinf_config_where(config, OPT "device"), (long long)config->zero_stage);
}

static bool same_paths(const struct zinf_config_offload *a, const struct zinf_config_offload *b)
{
    bool same = a->n_nvme_paths == b->n_nvme_paths;
    for (int i = 0; same && i < a->n_nvme_paths; i++)
        same = !strcmp(a->nvme_path[i], b->nvme_path[i]);
    return same;
}

/* There is one store for all that is on drives; DeepSpeed has one for each section. */
static void note_other_path(struct config_loader *loader)
{
    const struct zinf_config *config = loader->config;
    const struct zinf_config_offload *param = &config->offload_param;
    const struct zinf_config_offload *state = &config->offload_optimizer;
    if (param->device == ZINF_PLACE_NVME && state->device == ZINF_PLACE_NVME &&
        !same_paths(param, state))
        zinf_config_note(loader, ZINF_LOG_WARN,
                         "%s is not used: parameters are stored where " OPT
                         "nvme_path says; a list "
                         "of both folders there stripes all data over both drives",
                         zinf_config_where(config, PARAM "nvme_path"));
}

/* DeepSpeed's stage 3 alone reads offload_param. */
static int drop_offload_param(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    if (config->offload_param.device == ZINF_PLACE_NONE || config->zero_stage == 3)
        return 0;
    zinf_config_note(
        loader, ZINF_LOG_WARN,
        "%s is \"%s\", but is only read at zero_optimization.stage 3 (it is %lld): parameters "
        "stay on the device",
        zinf_config_where(config, PARAM "device"), zinf_place_name(config->offload_param.device),
        (long long)config->zero_stage);
    config->offload_param.device = ZINF_PLACE_NONE;
    return zinf_config_entry_mark(zinf_config_entry(config, PARAM "device"), ENTRY_RESOLVED,
                                  "only read at stage 3");
}

static int check_zero(struct config_loader *loader)
{
    struct zinf_config *config = loader->config;
    int code = drop_offload_param(loader);
    if (!code)
        code = check_offload(loader, &config->offload_param, PARAM "device", PARAM "nvme_path");
    if (!code)
        code = check_offload(loader, &config->offload_optimizer, OPT "device", OPT "nvme_path");
    if (code)
        return code;
    if (config->offload_optimizer.device != ZINF_PLACE_NONE && config->zero_stage == 0)
        return zinf_fail(-EINVAL,
                         "%s needs zero_optimization.stage 1, 2 or 3 (it is 0); set "
                         "stage, or device to \"none\"",
                         zinf_config_where(config, OPT "device"));
    if (config->offload_optimizer.ratio < 1 && config->zero_stage != 3)
        return zinf_fail(-EINVAL,
                         "%s below 1 needs zero_optimization.stage 3 (it is %lld); set "
                         "stage to 3, or ratio to 1",
                         zinf_config_where(config, OPT "ratio"), (long long)config->zero_stage);
    note_state_on_drive(loader);
    note_other_path(loader);
    return 0;
}

/* The value that the file has for a key which is only accepted. */
static double accepted_value(const struct zinf_config *config, const char *path)
{
    const struct config_entry *entry = zinf_config_entry(config, path);
    return entry->state == ENTRY_FILE ? entry->number : zinf_config_key_find(path)->number;
}

static int check_reduction(struct config_loader *loader)
{
    const struct zinf_config *config = loader->config;
    const char *factor = "gradient_predivide_factor", *prescale = "prescale_gradients";
    bool scatters = accepted_value(config, "zero_optimization.reduce_scatter") != 0;
    if (config->zero_stage == 0 || !scatters)
        return 0;
    if (accepted_value(config, factor) != 1 || accepted_value(config, prescale) != 0)
        return zinf_fail(
            -EINVAL,
            "%s does not go with zero_optimization.reduce_scatter; remove "
            "it, or set reduce_scatter to false",
            zinf_config_where(config, accepted_value(config, factor) != 1 ? factor : prescale));
    return 0;
}

/* Of one rank alone they change nothing; among several they would change the sums, or who has what.
 */
static int check_communication(struct config_loader *loader)
{
    static const struct {
        const char *path;
        double most;
    } keys[] = {
        {"zero_optimization.zero_quantized_weights", 0},
        {"zero_optimization.zero_quantized_gradients", 0},
        {"zero_optimization.zero_hpz_partition_size", 1},
        {"zero_optimization.mics_shard_size", 0},
        {"zero_optimization.mics_hierarchical_params_gather", 0},
    };
    const struct zinf_config *config = loader->config;
    const char *loco = "zero_optimization.zeropp_loco_param";
    if (config->world_size > 1 && zinf_config_entry(config, loco)->state == ENTRY_FILE)
        return zinf_fail(-ENOTSUP, "%s: gradients between ranks are not quantised; remove it",
                         zinf_config_where(config, loco));
    for (size_t i = 0; config->world_size > 1 && i < sizeof keys / sizeof *keys; i++)
        if (accepted_value(config, keys[i].path) > keys[i].most)
            return zinf_fail(-ENOTSUP,
                             "%s: between ranks everything goes whole and in full precision; "
                             "remove it",
                             zinf_config_where(config, keys[i].path));
    return 0;
}

int zinf_config_check(struct config_loader *loader)
{
    int code = check_scheduler(loader);
    if (!code)
        code = check_precision(loader);
    if (!code)
        code = check_zero(loader);
    if (!code)
        code = check_reduction(loader);
    if (!code)
        code = check_communication(loader);
    return code;
}

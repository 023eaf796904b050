/*
 * config_foreign: files of Accelerate and of gdGPT as DeepSpeed's configuration. What they say of
 * other things is named: with the option of the command that says it here, or as what this program
 * does not do.
 */
#include "config/config_private.h"

#include <stdio.h>
#include <stdlib.h>

struct foreign {
    cJSON *from, *to;
    const char *what;
    bool quiet;
};

/* The keys of a section to one that is there already. */
static void join(cJSON *section, cJSON *more)
{
    for (cJSON *item; (item = more->child);) {
        cJSON_DetachItemViaPointer(more, item);
        cJSON_AddItemToObject(section, item->string, item);
    }
    cJSON_Delete(more);
}

/* Puts a value at a path, "zero_optimization.stage", and takes it from where it stands. */
static int put(struct foreign *f, const char *path, cJSON *value)
{
    cJSON *section = f->to;
    char name[96];
    for (const char *dot; (dot = strchr(path, '.')); path = dot + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(dot - path), path);
        cJSON *next = cJSON_GetObjectItemCaseSensitive(section, name);
        section = next ? next : cJSON_AddObjectToObject(section, name);
    }
    cJSON *there = section ? cJSON_GetObjectItemCaseSensitive(section, path) : NULL;
    if (cJSON_IsObject(there) && cJSON_IsObject(value)) {
        join(there, value);
        return 0;
    }
    if (!value || !section || !cJSON_AddItemToObject(section, path, value)) {
        cJSON_Delete(value);
        return zinf_fail(-ENOMEM, "no memory for %s", f->what);
    }
    return 0;
}

static void say(const struct foreign *f, const char *key, const char *remedy)
{
    if (!f->quiet)
        zinf_log(ZINF_LOG_WARN, "%s: \"%s\" is not of the configuration: %s", f->what, key, remedy);
}

/* ---- Accelerate ---- */

static const char *const accelerate_keys[][2] = {
    {"zero_stage", "zero_optimization.stage"},
    {"offload_optimizer_device", "zero_optimization.offload_optimizer.device"},
    {"offload_optimizer_nvme_path", "zero_optimization.offload_optimizer.nvme_path"},
    {"offload_param_device", "zero_optimization.offload_param.device"},
    {"offload_param_nvme_path", "zero_optimization.offload_param.nvme_path"},
    {"zero3_save_16bit_model", "zero_optimization.stage3_gather_16bit_weights_on_model_save"},
    {"gradient_accumulation_steps", "gradient_accumulation_steps"},
    {"gradient_clipping", "gradient_clipping"},
};
/* Of its section of DeepSpeed: what has no meaning here, and nobody needs to know. */
static const char *const accelerate_idle[] = {"zero3_init_flag", "deepspeed_moe_layer_cls_names",
                                              NULL};
static const char *const accelerate_launch[] = {
    "deepspeed_hostfile", "deepspeed_multinode_launcher", "deepspeed_exclusion_filter",
    "deepspeed_inclusion_filter", NULL};

static bool is_among(const char *name, const char *const *names)
{
    while (*names && strcmp(name, *names))
        names++;
    return *names;
}

static int take_accelerate_key(struct foreign *f, const cJSON *item)
{
    const char *text = cJSON_GetStringValue(item);
    for (size_t i = 0; i < sizeof accelerate_keys / sizeof *accelerate_keys; i++) {
        if (strcmp(item->string, accelerate_keys[i][0]) != 0)
            continue;
        if (cJSON_IsNull(item) || (text && !strcmp(text, "none")))
            return 0;
        return put(f, accelerate_keys[i][1], cJSON_Duplicate(item, true));
    }
    if (is_among(item->string, accelerate_launch))
        say(f, item->string, "zinf launch --hostfile, --include and --exclude say it");
    else if (!is_among(item->string, accelerate_idle))
        return zinf_fail(-EINVAL,
                         "%s: unknown key \"deepspeed_config.%s\": remove it, or write "
                         "DeepSpeed's own configuration",
                         f->what, item->string);
    return 0;
}

static int take_precision(struct foreign *f)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(f->from, "mixed_precision");
    const char *text = cJSON_GetStringValue(item);
    const bool bf16 = text && !strcmp(text, "bf16"), fp16 = text && !strcmp(text, "fp16");
    if (text && !bf16 && !fp16 && strcmp(text, "no") != 0)
        return zinf_fail(-EINVAL, "%s: mixed_precision is \"%s\": bf16, fp16 and no are possible",
                         f->what, text);
    return bf16 || fp16 ? put(f, bf16 ? "bf16.enabled" : "fp16.enabled", cJSON_CreateTrue()) : 0;
}

static int take_accelerate(struct foreign *f)
{
    const cJSON *section = cJSON_GetObjectItemCaseSensitive(f->from, "deepspeed_config");
    const char *type = zinf_json_word(f->from, "distributed_type");
    const char *file = zinf_json_word(section, "deepspeed_config_file");
    const cJSON *n = cJSON_GetObjectItemCaseSensitive(f->from, "num_processes");
    if (*file)
        return zinf_fail(-EINVAL,
                         "%s names DeepSpeed's configuration in deepspeed_config_file: "
                         "pass that one, --config %s",
                         f->what, file);
    if (!cJSON_IsObject(section))
        return zinf_fail(-EINVAL,
                         "%s: distributed_type is \"%s\", and there is no section "
                         "\"deepspeed_config\": nothing else of Accelerate's is read here",
                         f->what, type);
    int code = take_precision(f);
    if (!code) /* the script's, as it is with Accelerate */
        code = put(f, "train_micro_batch_size_per_gpu", cJSON_CreateString("auto"));
    for (const cJSON *item = section->child; !code && item; item = item->next)
        code = take_accelerate_key(f, item);
    if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(f->from, "use_cpu")))
        say(f, "use_cpu", "--device host says it");
    if (cJSON_IsNumber(n) && n->valuedouble > 1)
        say(f, "num_processes", "zinf launch --num-gpus or --seats says how many GPUs work");
    return code;
}

/* ---- gdGPT ---- */

/* What of a file is no key of the configuration: options of the command. */
static const char *const gdgpt_options[][2] = {
    {"model_path", "model"}, {"save_path", "output"},    {"data_path", "data"},
    {"n_epoches", "epochs"}, {"max_seq_len", "seq-len"}, {"from_scratch", "init"},
};
static const char *const gdgpt_idle[][2] = {
    {"use_grad_ckpt", "the plan decides it; zinf.activation_checkpointing says otherwise"},
    {"use_flash_attn", "attention is always computed in tiles"},
};
#define N_GDGPT_OPTIONS (sizeof gdgpt_options / sizeof *gdgpt_options)

/* Regular expressions over names. Norms and biases have no decay here in any case; a plain word is
 * a rule. */
static int take_no_decay(struct foreign *f, const cJSON *list)
{
    cJSON *rules = cJSON_CreateArray();
    for (const cJSON *item = list->child; item; item = item->next) {
        const char *text = cJSON_GetStringValue(item);
        char pattern[128];
        if (text && (!strcmp(text, "bias") || strstr(text, "norm")))
            continue;
        if (!text || !*text || strlen(text) > 100 || strpbrk(text, "[](){}*+?|^$\\.")) {
            cJSON_Delete(rules);
            return zinf_fail(-EINVAL,
                             "%s: optimizer.no_wd_kws: \"%s\" is a regular expression: "
                             "write a rule of zinf.learning_rates with \"weight_decay\": 0",
                             f->what, text ? text : "(no text)");
        }
        snprintf(pattern, sizeof pattern, "*%s*", text);
        cJSON *rule = cJSON_CreateObject();
        cJSON_AddStringToObject(rule, "pattern", pattern);
        cJSON_AddNumberToObject(rule, "weight_decay", 0);
        cJSON_AddItemToArray(rules, rule);
    }
    if (cJSON_GetArraySize(rules))
        return put(f, "zinf.learning_rates", rules);
    cJSON_Delete(rules);
    return 0;
}

static int take_axis(struct foreign *f, const char *axis, const cJSON *size)
{
    const bool is_model = !strcmp(axis, "model") || !strcmp(axis, "tensor");
    const char *path = !strcmp(axis, "pipe")   ? "zinf.mesh.pipe"
                       : !strcmp(axis, "data") ? "zinf.mesh.data"
                       : is_model              ? "zinf.mesh.tensor"
                                               : NULL;
    if (!path)
        return zinf_fail(-EINVAL,
                         "%s: model_topo has an axis \"%s\": data, pipe and model are "
                         "possible",
                         f->what, axis);
    return put(f, path, cJSON_Duplicate(size, true));
}

static int take_topology(struct foreign *f, const cJSON *topo)
{
    const cJSON *process = cJSON_GetObjectItemCaseSensitive(topo, "process_topology");
    const cJSON *axes = cJSON_GetObjectItemCaseSensitive(process, "axes");
    const cJSON *dims = cJSON_GetObjectItemCaseSensitive(process, "dims");
    int n = cJSON_GetArraySize(axes), code = 0;
    if (n != cJSON_GetArraySize(dims))
        return zinf_fail(-EINVAL, "%s: model_topo.process_topology has %d axes and %d dims",
                         f->what, n, cJSON_GetArraySize(dims));
    for (int i = 0; !code && i < n; i++) {
        const char *axis = cJSON_GetStringValue(cJSON_GetArrayItem(axes, i));
        const cJSON *size = cJSON_GetArrayItem(dims, i);
        code = axis && cJSON_IsNumber(size)
                   ? take_axis(f, axis, size)
                   : zinf_fail(-EINVAL, "%s: model_topo.process_topology is names and numbers",
                               f->what);
    }
    const cJSON *parts = cJSON_GetObjectItemCaseSensitive(topo, "parts");
    if (!code && parts)
        code = put(f, "zinf.pipeline_parts", cJSON_Duplicate(parts, true));
    return code;
}

/* The square of the largest log-probability of a token, in its loss. */
static int take_max_z(struct foreign *f, const cJSON *item)
{
    const cJSON *weight = cJSON_GetObjectItemCaseSensitive(item, "weight");
    if (cJSON_IsNull(item))
        return 0;
    if (!cJSON_IsNumber(weight))
        return zinf_fail(-EINVAL, "%s: aux_max_z_loss has no number \"weight\"", f->what);
    return put(f, "zinf.max_z_loss", cJSON_Duplicate(weight, true));
}

/* DeepSpeed ignores what it does not know at the top; a word that is nearly one of these was meant
 * to be it. */
static int check_spelling(const struct foreign *f, const char *name)
{
    static const char *const names[] = {
        "model_path",   "save_path",     "data_path",      "n_epoches",      "max_seq_len",
        "from_scratch", "use_grad_ckpt", "use_flash_attn", "aux_max_z_loss", "model_topo"};
    for (size_t i = 0; !zinf_config_key_find(name) && i < sizeof names / sizeof *names; i++)
        if (zinf_config_edit_distance(name, names[i]) <= 2)
            return zinf_fail(-EINVAL, "%s: unknown key \"%s\"; did you mean \"%s\"?", f->what, name,
                             names[i]);
    return 0;
}

/* The number of all steps follows from n_epoches and the data. */
static int take_schedule(struct foreign *f, const cJSON *item)
{
    static const char steps[] = "total_num_steps";
    const char *type = zinf_json_word(item, "type");
    cJSON *copy = cJSON_Duplicate(item, true);
    cJSON *params = cJSON_GetObjectItemCaseSensitive(copy, "params");
    const bool ends = strstr(type, "Cosine") || strstr(type, "Decay");
    if (ends && cJSON_IsObject(params) && !cJSON_HasObjectItem(params, steps))
        cJSON_AddStringToObject(params, steps, "auto");
    return put(f, "scheduler", copy);
}

static int take_gdgpt_key(struct foreign *f, cJSON *item)
{
    for (size_t i = 0; i < sizeof gdgpt_idle / sizeof *gdgpt_idle; i++)
        if (!strcmp(item->string, gdgpt_idle[i][0])) {
            say(f, item->string, gdgpt_idle[i][1]);
            return 0;
        }
    for (size_t i = 0; i < N_GDGPT_OPTIONS; i++)
        if (!strcmp(item->string, gdgpt_options[i][0]))
            return 0; /* say_options */
    if (!strcmp(item->string, "model_topo"))
        return take_topology(f, item);
    if (!strcmp(item->string, "aux_max_z_loss"))
        return take_max_z(f, item);
    if (!strcmp(item->string, "scheduler"))
        return take_schedule(f, item);
    cJSON *copy = cJSON_Duplicate(item, true);
    const cJSON *names = cJSON_GetObjectItemCaseSensitive(item, "no_wd_kws");
    int code = check_spelling(f, item->string);
    if (!code && !strcmp(item->string, "optimizer") && cJSON_IsArray(names)) {
        code = take_no_decay(f, names);
        cJSON_DeleteItemFromObjectCaseSensitive(copy, "no_wd_kws");
    }
    if (code)
        cJSON_Delete(copy);
    return code ? code : put(f, item->string, copy);
}

/* One line for all keys that are options (zinf_config_job). */
static void say_options(const struct foreign *f)
{
    char keys[160] = "", options[160] = "";
    size_t n = 0, m = 0;
    for (size_t i = 0; i < N_GDGPT_OPTIONS; i++)
        if (cJSON_HasObjectItem(f->from, gdgpt_options[i][0])) {
            n += (size_t)snprintf(keys + n, sizeof keys - n, "%s\"%s\"", n ? ", " : "",
                                  gdgpt_options[i][0]);
            m += (size_t)snprintf(options + m, sizeof options - m, "%s--%s", m ? ", " : "",
                                  gdgpt_options[i][1]);
        }
    if (n && !f->quiet)
        zinf_log(ZINF_LOG_INFO, "%s: %s: options of 'zinf train' (%s)", f->what, keys, options);
}

static int take_gdgpt(struct foreign *f)
{
    int code = 0;
    say_options(f);
    for (cJSON *item = f->from->child; !code && item; item = item->next)
        code = take_gdgpt_key(f, item);
    return code;
}

/* ---- which it is ---- */

static bool has_any(const cJSON *document, const char *const *names)
{
    for (; *names; names++)
        if (cJSON_HasObjectItem(document, *names))
            return true;
    return false;
}

static bool is_gdgpt(const cJSON *document)
{
    static const char *const names[] = {"model_topo", "n_epoches", "use_grad_ckpt",
                                        "aux_max_z_loss", NULL};
    return has_any(document, names);
}

int zinf_config_foreign(char **json, size_t *bytes, const char *what, bool quiet)
{
    static const char *const accelerates[] = {"compute_environment", "deepspeed_config",
                                              "distributed_type", NULL};
    struct foreign f = {.what = what, .quiet = quiet};
    int code = zinf_json_parse(*json, *bytes, what, ZINF_JSON_STRICT, &f.from);
    if (code)
        return code;
    const bool is_accelerate = has_any(f.from, accelerates);
    if (is_accelerate || is_gdgpt(f.from)) {
        f.to = cJSON_CreateObject();
        code = is_accelerate ? take_accelerate(&f) : take_gdgpt(&f);
        char *text = code ? NULL : zinf_json_print(f.to);
        if (text) {
            free(*json);
            *json = strdup(text);
            *bytes = strlen(text);
        }
        if (!code && (!text || !*json))
            code = zinf_fail(-ENOMEM, "no memory for %s", what);
        cJSON_free(text);
    }
    cJSON_Delete(f.from);
    cJSON_Delete(f.to);
    return code;
}

/* ---- what they say of the job ---- */

static int give(const cJSON *item, const char *option,
                int (*take)(void *arg, const char *option, const char *text), void *arg)
{
    char number[32];
    const char *text = cJSON_GetStringValue(item);
    if (cJSON_IsNumber(item)) {
        snprintf(number, sizeof number, "%.15g", item->valuedouble);
        text = number;
    }
    if (cJSON_IsBool(item))
        text = cJSON_IsTrue(item) ? "true" : "false";
    if (cJSON_IsArray(item) || cJSON_IsObject(item))
        return zinf_fail(-EINVAL, "\"%s\" must be one word: --%s takes several", item->string,
                         option);
    return text && *text ? take(arg, option, text) : 0;
}

int zinf_config_job_of(const cJSON *document,
                       int (*take)(void *arg, const char *option, const char *text), void *arg)
{
    int code = 0;
    for (size_t i = 0; !code && is_gdgpt(document) && i < N_GDGPT_OPTIONS; i++) {
        const cJSON *item = cJSON_GetObjectItemCaseSensitive(document, gdgpt_options[i][0]);
        code = give(item, gdgpt_options[i][1], take, arg);
    }
    return code;
}

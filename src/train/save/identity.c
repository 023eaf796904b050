/*
 * identity: one JSON document, made where what it tells of is at hand, and compared member by
 * member. What a difference is called, and what there is to do, is in one place here.
 */
#include "train/save/identity.h"

#include "train/save/changes.h"
#include "train/save/checkpoint.h"
#include "train/save/inputs.h"

#include <inttypes.h>
#include <stdio.h>
#include <unistd.h>
#include <xxhash.h>

/* ---- making ---- */

static int fail_memory(void)
{
    return zinf_fail(-ENOMEM, "no memory to tell what a run stands on");
}

int identity_of_model(cJSON **out, const struct zinf_model *model, const char *folder)
{
    cJSON *root = cJSON_CreateObject(), *adapter = NULL;
    cJSON *config = changes_without_words(zinf_model_config(model));
    bool good = root && config && cJSON_AddItemToObject(root, "model", config);
    cJSON *files = good ? cJSON_AddObjectToObject(root, "files") : NULL;
    int code = files ? 0 : fail_memory();
    if (!code && !access(folder, F_OK)) /* a folder of fresh weights may have gone */
        code = zinf_folder_companions(folder, ZINF_COMPANIONS_TOKENIZER, checkpoint_add_sum, files);
    if (!code && zinf_model_graph(model)->n_adapted)
        code = zinf_model_adapter_config(model, "", &adapter);
    cJSON *choice = adapter ? changes_without_words(adapter) : NULL;
    if (!code && adapter && (!choice || !cJSON_AddItemToObject(root, "adapter", choice)))
        code = fail_memory();
    cJSON_Delete(adapter);
    if (code) {
        cJSON_Delete(root);
        root = NULL;
    }
    *out = root;
    return code;
}

static int check_known_file(void *arg, const char *path, const char *name)
{
    const cJSON *sums = arg;
    const char *then = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(sums, name));
    uint64_t bytes, sum;
    char now[20];
    /* a training may have written the template that it was told */
    int code = then && strcmp(name, "chat_template.jinja") != 0
                   ? checkpoint_sum_file(path, &bytes, &sum)
                   : 1;
    if (code)
        return code < 0 ? code : 0;
    snprintf(now, sizeof now, "%016" PRIx64, sum);
    if (strcmp(then, now) != 0)
        return zinf_fail(-EBADMSG,
                         "%s is not what the adapter was trained with: put it back, or remove the "
                         "adapter_base.json beside it if you changed it on purpose",
                         path);
    return 0;
}

/* alpha and its like, which the weights' own sum does not know */
static int check_known_choice(const cJSON *then, const cJSON *config, const char *folder)
{
    cJSON *now = changes_without_words(config);
    struct change c;
    int code = now ? 0 : fail_memory();
    if (!code && then && changes_find(then, now, &c))
        code = zinf_fail(-EBADMSG,
                         "%s/" ZINF_ADAPTER_CONFIG ": %s was %s when the adapter was saved, and is "
                         "%s: put it back, or remove the adapter_base.json beside it if you "
                         "changed it on purpose",
                         folder, c.path, c.then, c.now);
    cJSON_Delete(now);
    return code;
}

int identity_check_files(const cJSON *identity, const cJSON *config, const char *folder)
{
    cJSON *sums = cJSON_GetObjectItemCaseSensitive(identity, "files");
    const cJSON *then = cJSON_GetObjectItemCaseSensitive(identity, "adapter");
    int code = config ? check_known_choice(then, config, folder) : 0;
    return code ? code
                : zinf_folder_companions(folder, ZINF_COMPANIONS_TOKENIZER, check_known_file, sums);
}

int identity_add_base(cJSON *identity, struct zinf_tensors *weights)
{
    cJSON *base = cJSON_AddObjectToObject(identity, "base");
    cJSON *files = cJSON_AddObjectToObject(base, "files");
    uint64_t all;
    int code = files ? checkpoint_add_weights(files, weights, &all) : fail_memory();
    if (!code && (!zinf_json_add_hex(base, "weights", all) ||
                  !zinf_json_add_hex(base, "layout", zinf_tensors_layout(weights))))
        code = fail_memory();
    return code;
}

int identity_add_data(cJSON *identity, const char *member, const struct zinf_dataset *data)
{
    cJSON *object = cJSON_AddObjectToObject(identity, member);
    cJSON *files = cJSON_AddArrayToObject(object, "files");
    int code =
        files && zinf_json_add_hex(object, "order", zinf_dataset_order(data)) ? 0 : fail_memory();
    for (uint32_t i = 0; !code && i < zinf_dataset_n_files(data); i++) {
        struct zinf_data_file file;
        cJSON *entry = cJSON_CreateObject();
        code = entry && cJSON_AddItemToArray(files, entry) ? 0 : fail_memory();
        if (!code)
            code = zinf_dataset_file(data, i, &file);
        if (!code && (!cJSON_AddStringToObject(entry, "file", file.path) ||
                      !cJSON_AddNumberToObject(entry, "numbers", (double)file.count) ||
                      !zinf_json_add_hex(entry, "sum", file.sum)))
            code = fail_memory();
    }
    return code;
}

/* Of these what is not there is not asked for. What follows from --steps is left out: a longer run
 * goes on. So are the samples of a micro-batch and the number of these, by which results differ in
 * rounding alone; a resume says that they changed. */
static const char *const sections[] = {"train_batch_size",  "optimizer", "scheduler",
                                       "gradient_clipping", "fp16",      "bf16"};
static const char *const own_keys[] = {"dropout",
                                       "gradient_sum",
                                       "sequence_chunk",
                                       "quantize",
                                       "matmul_type",
                                       "label_smoothing",
                                       "z_loss",
                                       "max_z_loss",
                                       "tensor_parts",
                                       "vocabulary_tile",
                                       "context_parts",
                                       "neftune_alpha",
                                       "embedding_scale",
                                       "preference",
                                       "preference_beta",
                                       "preference_margin",
                                       "desirable_weight",
                                       "undesirable_weight",
                                       "center_rewards_coefficient",
                                       "layer_decay",
                                       "freeze",
                                       "learning_rates"};

static bool copy_key(cJSON *to, const cJSON *from, const char *key)
{
    const cJSON *item = cJSON_GetObjectItemCaseSensitive(from, key);
    return !item || cJSON_AddItemToObject(to, key, cJSON_Duplicate(item, true));
}

/* Whether the samples of a micro-batch are compared with each other, or averaged by themselves. */
static bool micro_batch_decides(const cJSON *zinf)
{
    const char *loss = zinf_json_word(zinf, "preference");
    return !strcmp(loss, "kto") || !strcmp(loss, "orpo");
}

int identity_add_settings(cJSON *identity, const cJSON *resolved, uint64_t seed)
{
    const cJSON *zinf = cJSON_GetObjectItemCaseSensitive(resolved, "zinf");
    cJSON *settings = cJSON_AddObjectToObject(identity, "settings");
    cJSON *own = cJSON_AddObjectToObject(settings, "zinf");
    bool good = own && cJSON_AddNumberToObject(settings, "seed", (double)seed);
    for (size_t i = 0; good && i < sizeof sections / sizeof *sections; i++)
        good = copy_key(settings, resolved, sections[i]);
    for (size_t i = 0; good && i < sizeof own_keys / sizeof *own_keys; i++)
        good = copy_key(own, zinf, own_keys[i]);
    if (good && micro_batch_decides(zinf))
        good = copy_key(settings, resolved, "train_micro_batch_size_per_gpu");
    cJSON *params = cJSON_GetObjectItemCaseSensitive(
        cJSON_GetObjectItemCaseSensitive(settings, "scheduler"), "params");
    cJSON_DeleteItemFromObjectCaseSensitive(params, "total_num_steps");
    return good ? 0 : fail_memory();
}

static uint64_t sum_of(const cJSON *value)
{
    char *text = value ? cJSON_PrintUnformatted(value) : NULL;
    uint64_t sum = text ? XXH3_64bits(text, strlen(text)) : 0;
    cJSON_free(text);
    return sum;
}

cJSON *identity_short(const cJSON *identity)
{
    cJSON *root = cJSON_CreateObject();
    const cJSON *member;
    cJSON_ArrayForEach(member, identity) zinf_json_add_hex(root, member->string, sum_of(member));
    return root;
}

cJSON *identity_of_base(const cJSON *identity)
{
    static const char *const own[] = {"adapter", "data", "eval_data", "settings"};
    cJSON *copy = cJSON_Duplicate(identity, true);
    for (size_t i = 0; copy && i < sizeof own / sizeof *own; i++)
        cJSON_DeleteItemFromObjectCaseSensitive(copy, own[i]);
    return copy;
}

/* ---- comparing ---- */

static int tell(const struct identity_check *check, const char *sentence)
{
    if (check->warn) {
        zinf_log(ZINF_LOG_WARN, "%s: the results will be other ones", sentence);
        return 0;
    }
    return zinf_fail(-EINVAL, "%s: %s", sentence, check->way_on);
}

/* Where the batch follows from the number of ranks, nothing in the configuration was changed. */
static void add_batch_remedy(const struct change *c, char *text, size_t bytes)
{
    const size_t at = strlen(text);
    if (!strcmp(c->path, "train_batch_size"))
        snprintf(text + at, bytes - at, " (--global-batch %s keeps it with any number of ranks)",
                 c->then);
}

/* A configuration: which key, and its values. */
static int compare_config(const struct identity_check *check, const cJSON *then, const cJSON *now,
                          const char *file, const char *of)
{
    struct change c;
    char text[1024];
    if (!changes_find(then, now, &c))
        return 0;
    snprintf(text, sizeof text, "%s stands on another %s%s%s: %s was %s and is %s", check->where,
             file, *of ? " than that of " : "", of, *c.path ? c.path : "it", c.then, c.now);
    add_batch_remedy(&c, text, sizeof text);
    return tell(check, text);
}

static int compare_files(const struct identity_check *check, const cJSON *then, const cJSON *now)
{
    struct change c;
    char text[1024];
    if (!changes_find(then, now, &c))
        return 0;
    bool added = !strcmp(c.then, "nothing"), gone = !strcmp(c.now, "nothing");
    snprintf(text, sizeof text, "%s stands on another %s than %s/%s%s", check->where,
             *c.path ? c.path : "tokenizer", check->model, c.path,
             gone    ? ", which is missing"
             : added ? ", which was not there"
                     : "");
    return tell(check, text);
}

static int compare_base(const struct identity_check *check, const cJSON *then, const cJSON *now)
{
    struct change c;
    char text[1024], file[320] = "";
    if (cJSON_IsString(then) ||
        !strcmp(zinf_json_word(then, "weights"), zinf_json_word(now, "weights")))
        return 0;
    if (strcmp(zinf_json_word(then, "layout"), zinf_json_word(now, "layout")) != 0) {
        zinf_log(ZINF_LOG_WARN,
                 "%s: the adapter was trained above weights in another form than those in %s: "
                 "whether they are of the same model is not known",
                 check->where, check->model);
        return 0;
    }
    if (changes_find(cJSON_GetObjectItemCaseSensitive(then, "files"),
                     cJSON_GetObjectItemCaseSensitive(now, "files"), &c))
        snprintf(file, sizeof file, "/%s", c.path);
    snprintf(text, sizeof text, "the weights in %s%s are not those that %s stands on", check->model,
             file, check->where);
    return tell(check, text);
}

/* By their places in the list: a file may have been moved. */
static int compare_data(const struct identity_check *check, const cJSON *then, const cJSON *now,
                        const char *option)
{
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(then, "files");
    const cJSON *b = cJSON_GetObjectItemCaseSensitive(now, "files");
    int n = cJSON_GetArraySize(a), m = cJSON_GetArraySize(b);
    char text[1024] = "";
    if (n != m)
        snprintf(text, sizeof text, "%s stands on %d files of %s, and there are %d", check->where,
                 n, option, m);
    for (int i = 0; n == m && i < n && !*text; i++) {
        const cJSON *x = cJSON_GetArrayItem(a, i), *y = cJSON_GetArrayItem(b, i);
        char line[80];
        if (!strcmp(zinf_json_word(x, "sum"), zinf_json_word(y, "sum")))
            continue;
        if (inputs_line_of(check->inputs[0], check->inputs[1], option, i, line, sizeof line))
            snprintf(text, sizeof text,
                     "%s stands on other data than %s %s now has: %s is not as it was",
                     check->where, option, zinf_json_word(y, "file"), line);
        else
            snprintf(text, sizeof text,
                     "%s stands on other data than %s %s now has, or on the same as another "
                     "tokenizer, template or --format reads it",
                     check->where, option, zinf_json_word(y, "file"));
    }
    if (!*text && strcmp(zinf_json_word(then, "order"), zinf_json_word(now, "order")) != 0)
        snprintf(text, sizeof text,
                 "%s stands on %s cut, packed or ordered in another way: --seq-len, --seed, "
                 "--no-shuffle, --pack, --truncate, --mlm-probability or a set's weight or name "
                 "is not as it was",
                 check->where, option);
    return *text ? tell(check, text) : 0;
}

/* A saved sum of a member instead of itself. */
static int compare_short(const struct identity_check *check, const cJSON *then, const cJSON *now)
{
    char sum[20], text[1024];
    snprintf(sum, sizeof sum, "%016" PRIx64, sum_of(now));
    if (!strcmp(sum, then->valuestring))
        return 0;
    snprintf(text, sizeof text, "%s stands on another \"%s\" (what that is: zinf-train(1), FILES)",
             check->where, then->string);
    return tell(check, text);
}

/* What a training may have given to a model as it was: the classes of its head. */
static int compare_model(const struct identity_check *check, const cJSON *then, const cJSON *now)
{
    static const char *const head[] = {"id2label",     "label2id",      "num_labels",
                                       "problem_type", "architectures", "pad_token_id"};
    cJSON *a = cJSON_Duplicate(then, true), *b = cJSON_Duplicate(now, true);
    for (size_t i = 0; !check->head && i < sizeof head / sizeof *head; i++) {
        cJSON_DeleteItemFromObjectCaseSensitive(a, head[i]);
        cJSON_DeleteItemFromObjectCaseSensitive(b, head[i]);
    }
    int code = a && b ? compare_config(check, a, b, "config.json", check->model) : fail_memory();
    cJSON_Delete(a);
    cJSON_Delete(b);
    return code;
}

/* Checkpoints of earlier versions do not have the batch among their settings. */
static int compare_settings(const struct identity_check *check, const cJSON *then, const cJSON *now)
{
    static const char *const later[] = {"train_batch_size", "train_micro_batch_size_per_gpu"};
    cJSON *known = cJSON_Duplicate(now, true);
    for (size_t i = 0; known && i < sizeof later / sizeof *later; i++)
        if (!cJSON_HasObjectItem(then, later[i]))
            cJSON_DeleteItemFromObjectCaseSensitive(known, later[i]);
    int code = !known          ? fail_memory()
               : check->config ? compare_config(check, then, known, "configuration", check->config)
                               : compare_config(check, then, known, "configuration (options)", "");
    cJSON_Delete(known);
    return code;
}

static int compare_member(const struct identity_check *check, const cJSON *then, const cJSON *now)
{
    const char *name = then->string;
    if (!strcmp(name, "base") && !check->base)
        return 0;
    if (cJSON_IsString(then))
        return compare_short(check, then, now);
    if (!strcmp(name, "model"))
        return compare_model(check, then, now);
    if (!strcmp(name, "adapter"))
        return compare_config(check, then, now, "adapter (adapter_config.json, zinf.adapter)", "");
    if (!strcmp(name, "files"))
        return compare_files(check, then, now);
    if (!strcmp(name, "base"))
        return compare_base(check, then, now);
    if (!strcmp(name, "settings"))
        return compare_settings(check, then, now);
    return compare_data(check, then, now, strcmp(name, "data") ? "--eval-data" : "--data");
}

int identity_compare(const cJSON *saved, const cJSON *now, const struct identity_check *check)
{
    /* what the others are made by comes first: another tokenizer makes other data */
    static const char *const order[] = {"model", "files", "adapter",  "settings",
                                        "base",  "data",  "eval_data"};
    int code = 0;
    for (size_t i = 0; !code && i < sizeof order / sizeof *order; i++) {
        const cJSON *a = cJSON_GetObjectItemCaseSensitive(saved, order[i]);
        const cJSON *b = cJSON_GetObjectItemCaseSensitive(now, order[i]);
        if (a && b)
            code = compare_member(check, a, b);
    }
    return code;
}

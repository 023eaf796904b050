/* run_identity: what a run stands on, of what its trainer, its data and its configuration know, and
 * whether that is what it stood on when it was left. */
#include "base/apart.h"
#include "train/run/run.h"
#include "train/save/inputs.h"

static int make_inputs(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    const cJSON *base = cJSON_GetObjectItemCaseSensitive(run->identity, "base");
    int code =
        inputs_make(&run->inputs, o->origins, cJSON_GetObjectItemCaseSensitive(base, "files"));
    if (!code)
        code = inputs_add_data(run->inputs, "--data", o->data);
    if (!code && o->eval_data)
        code = inputs_add_data(run->inputs, "--eval-data", o->eval_data);
    return code;
}

/* Weights of classes, as the data or an option gave them; balanced ones change with the data. */
static bool add_class_weights(const struct run *run, cJSON *settings)
{
    const float *weights = run->options->trainer.class_weights;
    const int64_t n = weights ? run->trainer->setup.graph->vocab : 0; /* classes */
    cJSON *list = weights ? cJSON_AddArrayToObject(settings, "class_weights") : NULL;
    bool good = !weights || list;
    for (int64_t i = 0; good && i < n; i++)
        good = cJSON_AddItemToArray(list, cJSON_CreateNumber((double)weights[i]));
    return good;
}

/* What decides a loss, and no key of the configuration says. */
static int add_task(const struct run *run, cJSON *identity)
{
    static const char *const names[] = {
        [ZINF_POOL_MEAN] = "mean", [ZINF_POOL_FIRST] = "cls", [ZINF_POOL_LAST] = "last"};
    const struct zinf_trainer_options *o = &run->options->trainer;
    cJSON *settings = cJSON_GetObjectItemCaseSensitive(identity, "settings");
    bool good = add_class_weights(run, settings);
    if (good && run->trainer->setup.graph->embeddings)
        good = cJSON_AddStringToObject(settings, "pooling", names[o->pooling]) != NULL;
    return good ? 0 : zinf_fail(-ENOMEM, "no memory to tell what a run stands on");
}

int run_identify(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    cJSON *identity = run->identity = cJSON_Duplicate(run->trainer->identity, true);
    int code = identity ? identity_add_data(identity, "data", o->data)
                        : zinf_fail(-ENOMEM, "no memory to tell what a run stands on");
    if (!code && o->eval_data)
        code = identity_add_data(identity, "eval_data", o->eval_data);
    if (!code && run->resolved)
        code = identity_add_settings(identity, run->resolved, o->trainer.seed);
    if (!code && run->resolved)
        code = add_task(run, identity);
    return code || !run_is_first(run) ? code : make_inputs(run);
}

static const char *config_of(const struct run *run)
{
    const struct zinf_origins *origins = run->options->origins;
    for (int i = 0; origins && i < origins->n; i++)
        if (!strcmp(origins->items[i].option, "--config"))
            return origins->items[i].path;
    return NULL;
}

int run_compare_identity(const struct run *run, const char *folder)
{
    cJSON *then = NULL;
    if (run_is_first(run) && inputs_read(run->options->output, &then))
        zinf_log(ZINF_LOG_WARN, "%s", zinf_error());
    const struct identity_check check = {
        .where = folder,
        .config = config_of(run),
        .model = run->trainer->setup.options.model_path,
        .way_on = "put it back as it was, or begin anew with another --output; --accept-changes "
                  "goes on with what there is now, to other results",
        .base = is_adapted(&run->trainer->setup),
        .head = true,
        .warn = run->options->accept_changes,
        .inputs = {then, run->inputs},
    };
    int code = identity_compare(run->from.stands_on, run->identity, &check);
    cJSON_Delete(then);
    return code;
}

int run_write_inputs(const struct run *run)
{
    return inputs_write(run->inputs, run->options->output);
}

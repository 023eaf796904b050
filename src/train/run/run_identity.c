/* run_identity: what a run stands on, of what its trainer, its data and its configuration know, and
 * whether that is what it stood on when it was left. */
#include "base/apart.h"
#include "train/run/run.h"

int run_identify(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    cJSON *identity = run->identity = cJSON_Duplicate(run->trainer->identity, true);
    int code = identity ? identity_add_data(identity, "data", o->data)
                        : zinf_fail(-ENOMEM, "no memory to tell what a run stands on");
    if (!code && o->eval_data)
        code = identity_add_data(identity, "eval_data", o->eval_data);
    return code || !run->resolved ? code
                                  : identity_add_settings(identity, run->resolved, o->trainer.seed);
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
    const struct identity_check check = {
        .where = folder,
        .config = config_of(run),
        .model = run->trainer->setup.options.model_path,
        .way_on = "put it back as it was, or begin anew with another --output; --accept-changes "
                  "goes on with what there is now, to other results",
        .base = is_adapted(&run->trainer->setup),
        .head = true,
        .warn = run->options->accept_changes,
    };
    return identity_compare(run->from.stands_on, run->identity, &check);
}

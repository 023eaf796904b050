/*
 * checkpoint_foreign: going on from a checkpoint of DeepSpeed's. Masters and moments are the same
 * arrays under the same names, and the schedule is a function of the steps; what it has no word for
 * (which samples came, in which order) is told by their number alone.
 */
#include "train/save/checkpoint.h"

#include <stdlib.h>
#include <unistd.h>

#define N_MOMENTS 2 /* of Adam's kin, whose states alone have these names */

static int require_config(const char *folder)
{
    char *path = zinf_path_join(folder, "config.json");
    int code = path ? 0 : -ENOMEM;
    if (!code && access(path, F_OK))
        code =
            zinf_fail(-ENOENT,
                      "%s is a checkpoint of DeepSpeed's without a config.json: copy config.json "
                      "and the tokenizer's files of its model there",
                      folder);
    free(path);
    return code;
}

int checkpoint_open_foreign(struct checkpoint *out, const char *folder)
{
    struct zinf_training_state state;
    int code = zinf_training_state_read(&state, folder);
    if (!code)
        code = require_config(folder);
    if (code)
        return code;
    *out = (struct checkpoint){
        .step = state.step,
        .n_applied = state.step - state.n_skipped,
        .dtype = ZINF_DTYPE_F32,
        .n_moments = state.optimized ? N_MOMENTS : 0,
        .optimizer = "AdamW",
        .loss_scale = {.scale = 1, .last_overflow = -1},
        .data.position = state.n_samples,
        .foreign = true,
    };
    return 0;
}

int checkpoint_open_foreign_part(const char *folder, int part, struct zinf_tensors **out)
{
    return zinf_tensors_open_training(out, folder, (enum zinf_training_part)part);
}

int checkpoint_check_foreign(const struct checkpoint *c, const char *folder, const char *optimizers)
{
    if (!c->n_moments)
        return zinf_fail(-ENOTSUP,
                         "%s has no optimizer state of ZeRO's: begin anew from its weights with "
                         "--model %s",
                         folder, folder);
    if (!strcmp(optimizers, "Adam") || !strcmp(optimizers, "AdamW"))
        return 0;
    return zinf_fail(
        -ENOTSUP,
        "%s has the moments of Adam, but the optimizer is %s: set optimizer.type to AdamW, or "
        "begin anew from its weights with --model %s",
        folder, optimizers, folder);
}

/*
 * run_steps: a run's side of steps that outlive their process. A run has a name, kept in its output
 * folder, by which it finds again what an earlier process of it left on the drives; here it is
 * decided whether the training goes on from there, from a checkpoint, or begins.
 */
#include "aio/steps.h"
#include "train/run/run.h"
#include "train/checkpoints.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- what is there ---- */

static void see_problem(struct run *run, const struct zinf_steps_info *info)
{
    char text[1024];
    if (info->problem)
        snprintf(text, sizeof text, "%s", info->problem);
    else if (info->path)
        snprintf(text, sizeof text,
                 "%s is path %d of %d: give nvme_path the same folders in the same order",
                 info->folder, info->path + 1, info->n_paths);
    else
        snprintf(text, sizeof text, "%s has none of this program's steps", info->folder);
    free(run->left.problem);
    run->left.problem = strdup(text);
}

static void see(void *arg, const struct zinf_steps_info *info)
{
    struct run *run = arg;
    uint64_t step;
    if (!info->named || memcmp(info->run, run->own_id, sizeof info->run))
        return;
    if (!info->path && info->committed &&
        zinf_checkpoint_step_of(info->payload, info->payload_bytes, &step)) {
        free(run->left.folder);
        run->left.folder = strdup(info->folder);
        run->left.step = step;
        run->left.incomplete = !info->flushed && !info->same_boot;
    } else if (info->problem || info->path || info->committed) {
        see_problem(run, info);
    }
}

static int refuse_beginning(const struct run *run)
{
    return zinf_fail(-EEXIST,
                     "%s holds step %" PRIu64 " of an earlier run with --output %s: go on after it "
                     "with --resume, choose another --output, or remove that folder",
                     run->left.folder, run->left.step, run->options->output);
}

/* The step of the checkpoint that --resume means; 0: of none that can be read. */
static uint64_t checkpoint_step(const struct run *run)
{
    struct checkpoint c;
    if (!run->options->resume || checkpoint_read_state(&c, run->options->resume))
        return 0;
    uint64_t step = c.step;
    checkpoint_fini(&c);
    return step;
}

/* The ways on from steps that should be there and are not, or not whole. */
static int fail_lost(const struct run *run, int code, const char *what)
{
    const struct zinf_run_options *o = run->options;
    char checkpoint[1024] = "";
    if (o->resume)
        snprintf(checkpoint, sizeof checkpoint,
                 "to continue from the last checkpoint instead: --resume=%s; ", o->resume);
    return zinf_fail(code,
                     "%s; 'zinf verify %s' says what is there; %sto begin anew choose another "
                     "--output",
                     what, o->output, checkpoint);
}

/* Nothing of this run is where its steps should be. */
static int refuse_lost(const struct run *run, const char *path)
{
    char what[2048];
    if (run->left.problem)
        snprintf(what, sizeof what, "this run's finished steps in %s cannot be continued from: %s",
                 path, run->left.problem);
    else
        snprintf(what, sizeof what,
                 "finished steps of this run were left in %s, but they are not there: mount that "
                 "drive, or set nvme_path as it was",
                 path);
    return fail_lost(run, -ENODATA, what);
}

static int refuse_copy(const struct run *run)
{
    return zinf_fail(-EEXIST,
                     "%s is a copy of the output folder that the steps in %s belong to: go on in "
                     "that one; if it is gone, leave only the first line in %s/run-id",
                     run->options->output, run->name.steps, run->options->output);
}

/* Another configuration than the one that left them. */
static int leave_alone(const struct run *run)
{
    char what[1024];
    if (!run->options->resume_steps || !run->left.folder || run->left.step <= checkpoint_step(run))
        return 0;
    snprintf(what, sizeof what,
             "%s holds step %" PRIu64
             " of this run, which this configuration does not continue from: "
             "set offload_optimizer.device and zinf.durability as they were",
             run->left.folder, run->left.step);
    return fail_lost(run, -EINVAL, what);
}

/* A run without a name gets one; unless there must have been one. */
static int begin_name(struct run *run)
{
    /* Steps that were logged had a name, if they could outlive their process. */
    uint64_t last = run_log_last(run->options);
    char what[1024];
    if (run->options->resume_steps && !run->name.found && last > checkpoint_step(run)) {
        snprintf(what, sizeof what,
                 "%s/log.jsonl has step %" PRIu64 ", but run-id beside it is missing, by which its "
                 "steps on the drives would be found: put it back",
                 run->options->output, last);
        return fail_lost(run, -ENODATA, what);
    }
    return run_name_make(&run->name, run->options->output);
}

/* What there is to go on from, of what was found; possible: this configuration keeps steps. */
static int settle(struct run *run, const char *path, bool possible)
{
    const struct zinf_run_options *o = run->options;
    bool asked_for_another = (o->resume && !o->resume_steps) || o->overwrite;
    if (run_has_other_ranks(run))
        return run_leave_other_ranks(run);
    if (!run->left.folder && (run->left.problem || run->name.steps) && !asked_for_another)
        return refuse_lost(run, path);
    if (!possible)
        return leave_alone(run);
    if (!run->left.folder)
        return 0;
    run->recovers = o->resume_steps && run->left.step >= checkpoint_step(run);
    if (!run->recovers && !o->resume && !o->resume_steps && !o->overwrite && run->left.step)
        return refuse_beginning(run);
    if (!run->recovers && o->resume)
        zinf_log(asked_for_another ? ZINF_LOG_INFO : ZINF_LOG_WARN,
                 "step %" PRIu64 " in %s is discarded: the run continues from %s", run->left.step,
                 run->left.folder, o->resume);
    return 0;
}

/* By rank 0, for all. */
static int find_name(struct run *run, bool possible, bool asked_for_another)
{
    const struct zinf_run_options *o = run->options;
    int code = run_name_read(&run->name, o->output);
    if (code && asked_for_another) /* what was there is given up */
        code = 0;
    if (!code && run->name.copied && run->name.steps && o->resume_steps)
        return refuse_copy(run);
    if (!code && possible && (!run->name.found || run->name.copied))
        code = begin_name(run);
    return code;
}

int run_find_steps(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    const struct zinf_config *c = run->config;
    const struct zinf_config_offload *drives = setup_drives(c);
    bool possible = drives->n_nvme_paths && c->offload_optimizer.device == ZINF_PLACE_NVME &&
                    c->checksums && strcmp(c->durability, "none") != 0;
    bool asked_for_another = (o->resume && !o->resume_steps) || o->overwrite;
    int code = run_is_first(run) ? find_name(run, possible, asked_for_another) : 0;
    if (!code)
        code = run_share_name(run);
    run->named = possible && run->name.found;
    const char *path = drives->n_nvme_paths ? drives->nvme_path[0] : run->name.steps;
    if (code || !run->name.found || run->name.copied || !path)
        return code;
    if (!access(path, R_OK) || run->name.steps)
        code = zinf_steps_list(path, see, run);
    if (code && asked_for_another && !possible)
        code = 0;
    if (!code)
        code = run_share_steps(run);
    return code ? code : settle(run, path, possible);
}

int run_fall_back(struct run *run, int code)
{
    const char *checkpoint = run->options->resume;
    char what[2048];
    if (code != -EBADMSG || !run->recovers)
        return code;
    if (!checkpoint || !run->left.incomplete || run->net) {
        snprintf(what, sizeof what, "step %" PRIu64 " in %s is damaged: %s", run->left.step,
                 run->left.folder, zinf_error());
        return fail_lost(run, code, what);
    }
    zinf_log(ZINF_LOG_WARN,
             "step %" PRIu64 " in %s did not survive a restart of the machine "
             "(zinf.durability_flush is false): going on from %s",
             run->left.step, run->left.folder, checkpoint);
    run->recovers = false;
    return 0;
}

/* ---- going on ---- */

int run_recover(struct run *run)
{
    uint64_t bytes;
    const void *scalars = durable_recovered(run->trainer, &bytes);
    const char *folder = run->left.folder;
    int code = scalars ? checkpoint_parse(&run->from, folder, scalars, bytes)
                       : zinf_fail(-EBADMSG, "%s holds no step", folder);
    if (!code)
        code = run_compare_identity(run, folder);
    if (!code)
        code = checkpoint_check_base(&run->from, folder, run->trainer);
    if (!code)
        code = checkpoint_check_data(&run->from, folder, &run->data);
    if (!code)
        code = checkpoint_check_config(&run->from, folder, run->config, run->resolved);
    if (!code)
        checkpoint_count_on(&run->from, run->trainer);
    run->origin = run->from.origin;
    return code;
}

bool run_has_checkpoint(const struct run *run)
{
    return run->from.step && checkpoint_step(run) == run->from.step;
}

/* With all that there is room for: of the configuration changes are warned of, of what the run
 * stands on they are named. */
static char *scalars_text(const struct run *run, struct checkpoint *c)
{
    c->config = cJSON_Duplicate(run->resolved, true);
    c->stands_on = cJSON_Duplicate(run->identity, true);
    char *text = checkpoint_text(c);
    for (int left_out = 0; text && strlen(text) > DURABLE_SCALARS_BYTES && left_out < 2;
         left_out++) {
        free(text);
        if (left_out) {
            cJSON_Delete(c->stands_on);
            c->stands_on = identity_short(run->identity);
        } else {
            cJSON_Delete(c->config);
            c->config = NULL;
        }
        text = checkpoint_text(c);
    }
    return text;
}

int run_commit_step(struct run *run)
{
    struct checkpoint c = {.seed = run->options->trainer.seed,
                           .threads = run_threads(run),
                           .origin = run->origin,
                           .data = run->data};
    if (!run->trainer->durable.steps)
        return 0;
    struct source source = trainer_source(run->trainer);
    run_mark_data(run, &c.data);
    c.best = run->best;
    checkpoint_take_counters(&source, &c);
    char *text = scalars_text(run, &c);
    checkpoint_fini(&c);
    bool begins = !run->recovers && !run->trainer->durable.n;
    int code = text ? durable_commit(run->trainer, text, strlen(text)) : -ENOMEM;
    free(text);
    /* From here on a start that finds no steps on the drive must not begin anew. Of several ranks
     * some may have died before all had their first record, so there it is the second that counts.
     */
    if (!code && run_is_first(run) && run->trainer->durable.n > (run->net ? 1 : 0))
        code = run_name_mark(&run->name, run->options->output,
                             setup_drives(run->config)->nvme_path[0], (uint32_t)run_ranks(run));
    if (!code && begins)
        run_drop_other_ranks(run);
    return code;
}

void run_leave_steps(struct run *run, bool done)
{
    const struct zinf_trainer *t = run->trainer;
    if (!t || !t->durable.steps)
        return;
    /* Where another rank may have a first record, that counts for nothing without a second. */
    const bool nothing = !run->recovers && t->durable.n < (run->net ? 1 : 2);
    const bool marks = run_is_first(run) && (done || !run->net);
    if ((done || nothing) && (!marks || !run_name_mark(&run->name, run->options->output, NULL, 1)))
        durable_forget(run->trainer);
    else
        zinf_log(ZINF_LOG_INFO,
                 "the last finished step stays on the drive: --resume goes on there");
}

void run_close_steps(struct run *run)
{
    free(run->left.folder);
    free(run->left.problem);
    run_name_free(&run->name);
}

/*
 * run_steps: a run's side of steps that outlive their process. A run has a name, kept in its output
 * folder, by which it finds again what an earlier process of it left on the drives; here it is
 * decided whether the training goes on from there, from a checkpoint, or begins.
 */
#include "aio/steps.h"
#include "train/run/run.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <unistd.h>

#define NAME_FILE "run-id"

/* ---- the name ---- */

static int make_name(uint8_t id[16], const char *path)
{
    char text[34] = "";
    if (getrandom(id, 16, 0) != 16)
        return zinf_fail(-EIO, "no random numbers to name a run");
    for (int i = 0; i < 16; i++)
        snprintf(text + 2 * i, 3, "%02x", id[i]);
    text[32] = '\n';
    return zinf_file_write_atomic(path, text, 33);
}

/* An output folder keeps its name for all its runs. make: it gets one if it has none. */
static int take_name(struct run *run, bool make)
{
    char *path = zinf_path_join(run->options->output, NAME_FILE), *text = NULL;
    size_t bytes = 0;
    int code = path ? zinf_file_read(path, 64, &text, &bytes) : -ENOMEM;
    run->named = !code && bytes == 33 && strspn(text, "0123456789abcdef") == 32;
    for (int i = 0; run->named && i < 16; i++) {
        char digits[3] = {text[2 * i], text[2 * i + 1], 0};
        run->id[i] = (uint8_t)strtoul(digits, NULL, 16);
    }
    code = path ? 0 : -ENOMEM;
    if (!code && !run->named && make) {
        code = make_name(run->id, path);
        run->named = !code;
    }
    free(text);
    free(path);
    return code;
}

/* ---- what is there ---- */

static void see(void *arg, const struct zinf_steps_info *info)
{
    struct run *run = arg;
    uint64_t step;
    if (memcmp(info->run, run->id, sizeof run->id) || info->path || !info->committed ||
        !zinf_checkpoint_step_of(info->payload, info->payload_bytes, &step))
        return;
    free(run->left.folder);
    run->left = (struct left_steps){.folder = strdup(info->folder),
                                    .step = step,
                                    .incomplete = !info->flushed && !info->same_boot};
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

/* Another configuration than the one that left them. */
static void leave_alone(struct run *run)
{
    if (run->left.folder && run->left.step > checkpoint_step(run))
        zinf_log(ZINF_LOG_WARN,
                 "%s holds step %" PRIu64 " of this run, but is not gone on from, since the state "
                 "is not kept on a drive now (offload_optimizer.device, zinf.durability)",
                 run->left.folder, run->left.step);
    run->named = false;
}

int run_find_steps(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    const struct zinf_config *c = run->config;
    const struct zinf_config_offload *drives = setup_drives(c);
    bool possible = c->offload_optimizer.device == ZINF_PLACE_NVME && c->checksums &&
                    strcmp(c->durability, "none") != 0;
    if (!drives->n_nvme_paths)
        return 0;
    int code = take_name(run, possible);
    if (code || !run->named || access(drives->nvme_path[0], R_OK))
        return code;
    code = zinf_steps_list(drives->nvme_path[0], see, run);
    if (code || !run->left.folder || !possible) {
        if (!possible)
            leave_alone(run);
        return code;
    }
    run->recovers = o->resume_steps && run->left.step >= checkpoint_step(run);
    if (!run->recovers && !o->resume && !o->resume_steps && run->left.step)
        return refuse_beginning(run);
    if (!run->recovers && o->resume)
        zinf_log(ZINF_LOG_INFO, "step %" PRIu64 " in %s is given up for %s", run->left.step,
                 run->left.folder, o->resume);
    return 0;
}

int run_fall_back(struct run *run, int code)
{
    const char *checkpoint = run->options->resume;
    if (code != -EBADMSG || !run->recovers)
        return code;
    if (!checkpoint)
        return zinf_fail(code, "%s; there is no checkpoint: remove %s to begin anew", zinf_error(),
                         run->left.folder);
    if (!run->left.incomplete)
        return zinf_fail(code, "%s; to go on from the last checkpoint instead: --resume=%s",
                         zinf_error(), checkpoint);
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
        code = checkpoint_check_data(&run->from, folder, &run->data);
    if (!code)
        code = checkpoint_check_config(&run->from, folder, run->config, run->resolved);
    if (!code)
        checkpoint_count_on(&run->from, run->trainer);
    return code;
}

bool run_has_checkpoint(const struct run *run)
{
    return run->from.step && checkpoint_step(run) == run->from.step;
}

int run_commit_step(struct run *run)
{
    struct checkpoint c = {.seed = run->options->trainer.seed, .data = run->data};
    if (!run->trainer->durable.steps)
        return 0;
    c.data.position = run->position;
    checkpoint_take_counters(run->trainer, &c);
    c.config = run->resolved;
    char *text = checkpoint_text(&c);
    if (text && strlen(text) > DURABLE_SCALARS_BYTES) { /* changes are not warned of then */
        free(text);
        c.config = NULL;
        text = checkpoint_text(&c);
    }
    c.config = NULL;
    checkpoint_fini(&c);
    int code = text ? durable_commit(run->trainer, text, strlen(text)) : -ENOMEM;
    free(text);
    return code;
}

void run_leave_steps(struct run *run, int code)
{
    const struct zinf_trainer *t = run->trainer;
    if (!t || !t->durable.steps)
        return;
    if (!code || (!run->recovers && t->durable.n < 2))
        durable_forget(run->trainer);
    else
        zinf_log(ZINF_LOG_INFO,
                 "the last finished step stays on the drive: --resume goes on there");
}

void run_close_steps(struct run *run)
{
    free(run->left.folder);
}

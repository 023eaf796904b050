/*
 * run_checkpoint: a run's side of checkpoints: what it goes on from, whether model, data and
 * configuration are still those, and saving without ever ending the training for a full disk.
 */
#include "train/save/output.h"
#include "train/run/run.h"

#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

int run_open_checkpoint(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    if (run->recovers)
        return 0;
    int code = run_is_first(run) ? run_guard_output(run) : 0;
    if (code || !o->resume)
        return code;
    code = checkpoint_open(&run->from, o->resume);
    run->resumes = !code;
    return code ? code : checkpoint_check_model(&run->from, o->resume, &o->trainer);
}

/* Three windows of the first epoch tell other data, another order and another seed. */
static int identify_data(struct run *run)
{
    struct zinf_dataset *data = run->options->data;
    uint64_t windows = zinf_dataset_n_windows(data);
    const uint64_t places[] = {0, windows / 2, windows - 1};
    int64_t seq = zinf_trainer_seq_len(run->trainer);
    uint64_t sums[3] = {0};
    int code = 0;
    if (zinf_dataset_flows(data)) { /* rows are read once */
        run->data =
            (struct checkpoint_data){.fingerprint = zinf_dataset_order(data), .seq_len = seq};
        return 0;
    }
    for (int i = 0; !code && i < 3; i++) {
        code = run_batch_take(&run->batch, data, places[i], 0);
        if (!code)
            code = run_batch_sum_ids(&run->batch, &sums[i]);
        if (!code && zinf_dataset_has_samples(data) && run->batch.arrays[ZINF_INPUT_TARGETS])
            sums[i] = XXH3_64bits_withSeed(run->batch.arrays[ZINF_INPUT_TARGETS],
                                           (size_t)seq * sizeof(int32_t), sums[i]);
    }
    run->data = (struct checkpoint_data){
        .windows = windows,
        .tokens = zinf_dataset_n_tokens(data),
        .fingerprint = XXH3_64bits(sums, sizeof sums),
        .seq_len = seq,
    };
    return code;
}

static int read_resolved(struct run *run)
{
    char *path = zinf_path_join(run->options->output, "config.resolved.json");
    int code =
        path ? zinf_json_read_file(path, 1u << 20, ZINF_JSON_STRICT, &run->resolved) : -ENOMEM;
    free(path);
    return code;
}

static int load_checkpoint(struct run *run)
{
    const char *folder = run->options->resume;
    int code = run_compare_identity(run, folder);
    if (!code)
        code = checkpoint_check_data(&run->from, folder, &run->data);
    if (!code && run_is_first(run))
        code = checkpoint_check_config(&run->from, folder, run->config, run->resolved);
    return code ? code : checkpoint_load(&run->from, folder, run->trainer);
}

int run_resume(struct run *run)
{
    const char *folder = run->recovers ? run->left.folder : run->options->resume;
    int code = identify_data(run);
    if (!code)
        code = run_compare_data(run);
    if (!code && run_is_first(run))
        code = read_resolved(run);
    if (!code)
        code = run_identify(run);
    if (!code && !folder && run->options->resume_steps)
        zinf_log(ZINF_LOG_INFO, "%s has no checkpoint yet: training begins", run->options->output);
    if (code || !folder)
        return code;
    code = run->recovers ? run_recover(run) : load_checkpoint(run);
    if (code)
        return code;
    run->position = run->from.data.position;
    zinf_dataset_go_on(run->options->data, &run->from.data.mark);
    run->best = run->from.best;
    if (!run->from.foreign && run->options->trainer.seed != run->from.seed)
        zinf_log(ZINF_LOG_WARN, "%s was saved with --seed %llu: dropout takes other numbers now",
                 folder, (unsigned long long)run->from.seed);
    if (run->from.threads && run->from.threads != run_threads(run))
        zinf_log(ZINF_LOG_WARN,
                 "%s was saved with --threads %llu, and there are %llu now: the training goes on, "
                 "but not always to the same bits",
                 folder, (unsigned long long)run->from.threads,
                 (unsigned long long)run_threads(run));
    uint64_t logged = run_log_last(run->options);
    zinf_log(ZINF_LOG_INFO, "going on after step %llu, from %s", (unsigned long long)run->from.step,
             folder);
    if (logged > run->from.step)
        zinf_log(ZINF_LOG_INFO,
                 "the log goes to step %llu: what comes after step %llu is made again",
                 (unsigned long long)logged, (unsigned long long)run->from.step);
    return 0;
}

void run_choose_source(struct run *run)
{
    struct zinf_trainer_options *options = &run->trainer->setup.options;
    options->model_path = run->options->trainer.model_path;
    if (access(options->model_path, F_OK) && run->last_folder)
        options->model_path = run->last_folder;
}

/* What became of it is said; of the run's own it takes folder. */
static int saved(struct run *run, uint64_t step, int code)
{
    const struct zinf_run_options *o = run->options;
    char *folder = code ? NULL : output_checkpoint_path(o->output, "", step);
    if (code && !run_is_first(run)) /* which says it */
        return code;
    if (code) {
        zinf_log(ZINF_LOG_ERROR, "step %llu: no checkpoint was saved: %s; earlier ones stay",
                 (unsigned long long)step, zinf_error());
        return code;
    }
    if (folder && o->events.saved)
        o->events.saved(o->events.arg, step, folder);
    free(run->last_folder);
    run->last_folder = folder;
    return 0;
}

void run_end_saving(struct run *run, bool now)
{
    struct checkpoint_background *b = run->saving;
    if (!b)
        return;
    uint64_t step = checkpoint_background_step(b);
    if (!now && run->trainer->step == step && !checkpoint_background_is_done(b))
        return;
    run->saving = NULL;
    saved(run, step, checkpoint_background_end(b));
}

int run_save_checkpoint(struct run *run, uint64_t step, bool last)
{
    const struct zinf_run_options *o = run->options;
    struct checkpoint c = {.seed = o->trainer.seed,
                           .threads = run_threads(run),
                           .data = run->data,
                           .went_back = o->resume && !o->resume_steps};
    bool wanted = run->config->async_save && !last;
    bool background = wanted && checkpoint_background_possible(run->trainer);
    uint64_t begin = zinf_now_ns();
    run_end_saving(run, true);
    if (wanted && !background)
        zinf_log_once(ZINF_LOG_WARN, "async_save",
                      "zinf.async_save: steps wait for checkpoints, since %s",
                      run->net && !o->trainer.save_net
                          ? "ranks of several processes have one way to each other"
                          : "not all parameters and state have two generations on a drive");
    run_mark_data(run, &c.data);
    c.best = run->best;
    c.config = cJSON_Duplicate(run->resolved, true);
    c.stands_on = cJSON_Duplicate(run->identity, true);
    run_choose_source(run);
    int code = background ? checkpoint_background_begin(&run->saving, run->trainer, &c, o->output,
                                                        o->save_total_limit)
                          : checkpoint_save(run->trainer, &c, o->output, o->save_total_limit);
    zinf_executor_mark(run->trainer->executor, "checkpoint", begin);
    checkpoint_fini(&c);
    return background && !code ? 0 : saved(run, step, code);
}

void run_note_unsaved(struct run *run, int code)
{
    free(run->unsaved_why);
    run->unsaved = code;
    run->unsaved_why = code ? strdup(zinf_error()) : NULL;
}

int run_fail_unsaved(const struct run *run)
{
    return run->unsaved ? zinf_fail(run->unsaved, "%s", run->unsaved_why ? run->unsaved_why : "")
                        : 0;
}

void run_close_checkpoint(struct run *run)
{
    free(run->unsaved_why);
    checkpoint_fini(&run->from);
    cJSON_Delete(run->resolved);
    cJSON_Delete(run->identity);
    cJSON_Delete(run->inputs);
    free(run->last_folder);
}

/*
 * run_best: the best evaluation of a run and what follows from it: the run ends once so many
 * evaluations were no better, and the weights of the best are kept in OUTPUT/best until they become
 * the model. A file beside them says which step they are of: after a run that went on they lie in
 * OUTPUT/model, and what another process left may be of a step that this one has not come to.
 */
#include "train/run/run.h"
#include "train/save/output.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BEST_RECORD "best_step.json"
#define MAX_RECORD_BYTES 4096

static int write_record(const struct run *run, const char *folder)
{
    char *path = zinf_path_join(folder, BEST_RECORD);
    char text[128];
    snprintf(text, sizeof text, "{\"step\": %" PRIu64 ", \"eval_loss\": %.17g}\n", run->best.step,
             run->best.loss);
    int code = path ? zinf_file_write_atomic(path, text, strlen(text)) : -ENOMEM;
    free(path);
    return code;
}

/* Whether the folder has the weights of the best step. */
static bool has_best(const struct run *run, const char *folder)
{
    char *path = zinf_path_join(folder, BEST_RECORD);
    cJSON *record = NULL;
    int64_t step = 0;
    bool yes = path && !access(path, R_OK) &&
               !zinf_json_read_file(path, MAX_RECORD_BYTES, ZINF_JSON_STRICT, &record) &&
               !zinf_json_int(record, path, "step", &step) && (uint64_t)step == run->best.step;
    cJSON_Delete(record);
    free(path);
    return yes;
}

static int keep_weights(struct run *run)
{
    const char *output = run->options->output;
    char *folder = zinf_path_join(output, "best"), *partial = zinf_path_join(output, "tmp-best");
    uint64_t begin = zinf_now_ns();
    int code = folder && partial ? 0 : zinf_fail(-ENOMEM, "no memory for paths");
    if (!code && !run_is_first(run)) {
        code = zinf_trainer_save(run->trainer, partial);
        goto out;
    }
    if (!code) {
        output_remove(partial);
        run_choose_source(run);
        code = zinf_trainer_save(run->trainer, partial);
    }
    if (!code)
        code = write_record(run, partial);
    if (!code)
        code = output_publish(output, partial, folder);
    if (code && partial)
        output_remove(partial);
    zinf_executor_mark(run->trainer->executor, "save the best model", begin);
out:
    free(folder);
    free(partial);
    return code;
}

/* What the best has least of: the loss, or the first metric, turned round where more is better. */
static double rank_of(const struct run_evaluation *evaluation)
{
    if (!evaluation->scored || evaluation->scored->by_loss)
        return evaluation->loss;
    bool less = zinf_metric_facts(evaluation->scored->metrics[0])->less_is_better;
    return less ? evaluation->scores[0] : -evaluation->scores[0];
}

void run_best_see(struct run *run, uint64_t step, const struct run_evaluation *evaluation)
{
    double rank = rank_of(evaluation);
    if (run->best.step && !(rank < run->best.rank)) {
        run->best.since++;
        return;
    }
    run->best = (struct checkpoint_best){.step = step, .loss = evaluation->loss, .rank = rank};
    if (run->config->load_best_at_end && keep_weights(run))
        zinf_log(ZINF_LOG_ERROR,
                 "step %" PRIu64 " is the best so far, and its weights cannot be kept: %s", step,
                 zinf_error());
}

bool run_best_is_over(const struct run *run)
{
    int64_t patience = run->config->early_stopping;
    return patience > 0 && run->best.since >= (uint64_t)patience;
}

int run_best_publish(struct run *run, bool *done)
{
    const char *output = run->options->output;
    char *best = zinf_path_join(output, "best"), *model = zinf_path_join(output, "model");
    int code = best && model ? 0 : zinf_fail(-ENOMEM, "no memory for paths");
    *done = false;
    if (code || !run->config->load_best_at_end || !run->best.step)
        goto out;
    if (has_best(run, best)) {
        code = output_publish(output, best, model);
        *done = !code;
    } else if (has_best(run, model)) {
        *done = true;
    } else {
        zinf_log(ZINF_LOG_WARN,
                 "the weights of step %" PRIu64
                 ", the best, are not in %s: the model is that of the last step",
                 run->best.step, best);
    }
out:
    free(best);
    free(model);
    return code;
}

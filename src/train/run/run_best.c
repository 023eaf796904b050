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

static int write_record(const struct checkpoint_best *best, const char *folder)
{
    char *path = zinf_path_join(folder, BEST_RECORD);
    char text[128];
    snprintf(text, sizeof text, "{\"step\": %" PRIu64 ", \"eval_loss\": %.17g}\n", best->step,
             best->loss);
    int code = path ? zinf_file_write_atomic(path, text, strlen(text)) : -ENOMEM;
    free(path);
    return code;
}

/* Whether the folder has the weights of that step, as the best of a run. */
static bool has_step(const char *folder, uint64_t step, double *loss)
{
    char *path = zinf_path_join(folder, BEST_RECORD);
    cJSON *record = NULL;
    int64_t found = 0;
    bool yes = path && !access(path, R_OK) &&
               !zinf_json_read_file(path, MAX_RECORD_BYTES, ZINF_JSON_STRICT, &record) &&
               !zinf_json_int(record, path, "step", &found) && (uint64_t)found == step;
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(record, "eval_loss");
    *loss = cJSON_IsNumber(value) ? value->valuedouble : 0;
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
        code = write_record(&run->best, partial);
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

/* It counts for what is left at the end, and not for a longer run that goes on from here, which has
 * no evaluation there. */
void run_best_see_end(struct run *run, uint64_t step, const struct run_evaluation *evaluation)
{
    double rank = rank_of(evaluation);
    if (run->best.step && rank < run->best.rank)
        run->end_best =
            (struct checkpoint_best){.step = step, .loss = evaluation->loss, .rank = rank};
}

bool run_best_is_over(const struct run *run)
{
    int64_t patience = run->config->early_stopping;
    return patience > 0 && run->best.since >= (uint64_t)patience;
}

int run_best_mark(const struct run *run, const char *folder)
{
    return run->end_best.step ? write_record(&run->end_best, folder) : 0;
}

int run_best_publish(struct run *run, uint64_t step, bool *done)
{
    double loss;
    const char *output = run->options->output;
    char *best = zinf_path_join(output, "best"), *model = zinf_path_join(output, "model");
    int code = best && model ? 0 : zinf_fail(-ENOMEM, "no memory for paths");
    *done = false;
    if (code || !run->config->load_best_at_end || !run->best.step || run->end_best.step)
        goto out;
    /* A run that was at its end already, which was the best. */
    if (run->from.step == step && has_step(model, step, &loss)) {
        *done = true;
        run->end_best = (struct checkpoint_best){.step = step, .loss = loss};
    }
    if (*done)
        goto out;
    if (has_step(best, run->best.step, &loss)) {
        code = output_publish(output, best, model);
        *done = !code;
    } else if (has_step(model, run->best.step, &loss)) {
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

/*
 * run: the training loop. Data in, steps, one line of log a step, evaluations, and a model folder
 * that appears whole: it is written under another name and exchanged for the old one.
 */
#include "train/save/output.h"
#include "train/run/reference.h"
#include "train/run/run.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define ROWS_NS 100000000 /* that rows are waited for before ranks look whether one is to stop */

/* ---- the model folder ---- */

/* model_step: whose weights are in folder. */
static void tell_end(const struct run *run, uint64_t step, uint64_t model_step, const char *folder)
{
    const struct zinf_run_events *events = &run->options->events;
    const struct checkpoint_best *found = run->end_best.step ? &run->end_best : &run->best;
    const struct zinf_run_best best = {
        .step = found->step,
        .loss = found->loss,
        .is_model = found->step && model_step == found->step,
        .stopped_early = run_best_is_over(run),
        .last_step = step,
    };
    if (events->saved)
        events->saved(events->arg, model_step, folder);
    if (events->ended)
        events->ended(events->arg, &best);
}

static int save_model(struct run *run, uint64_t step)
{
    char *folder = zinf_path_join(run->options->output, "model");
    char *partial = zinf_path_join(run->options->output, "model.partial");
    uint64_t begin = zinf_now_ns();
    bool is_best = false, first = run_is_first(run);
    int code = folder && partial ? 0 : -ENOMEM;
    if (!code && first)
        code = run_best_publish(run, step, &is_best);
    if (!code)
        code = run_share_flag(run, &is_best);
    if (!code && !is_best) {
        if (first)
            output_remove(partial);
        run_choose_source(run);
        code = zinf_trainer_save(run->trainer, partial);
    }
    if (!code && !is_best && first)
        code = run_best_mark(run, partial);
    if (!code && !is_best && first)
        code = output_publish(run->options->output, partial, folder);
    zinf_executor_mark(run->trainer->executor, "save the model", begin);
    if (code && partial && first)
        output_remove(partial);
    if (!code && first)
        tell_end(run, step, is_best && !run->end_best.step ? run->best.step : step, folder);
    free(folder);
    free(partial);
    return code;
}

/* ---- evaluation ---- */

int zinf_run_evaluate(struct zinf_trainer *trainer, const struct zinf_config *config,
                      struct zinf_dataset *data, struct zinf_evaluation *out)
{
    struct run_batch arrays;
    (void)config; /* the trainer has it */
    uint64_t begin = zinf_now_ns();
    int code = run_batch_init(&arrays, trainer, data, trainer->setup.windows);
    *out = (struct zinf_evaluation){0};
    for (uint64_t first = 0; !code && first < zinf_dataset_n_windows(data);)
        code = run_share_loss(trainer, data, &arrays, &first, out);
    zinf_executor_mark(trainer->executor, "evaluation", begin);
    run_batch_fini(&arrays);
    out->loss /= (double)(out->tokens ? out->tokens : 1);
    out->cross_entropy /= (double)(out->tokens ? out->tokens : 1);
    rewards_to_means(&out->rewards);
    return code;
}

int zinf_run_gradients(struct zinf_trainer *trainer, struct zinf_dataset *data, double *loss,
                       double *norm)
{
    const int64_t windows = setup_samples(&trainer->setup);
    struct run_batch arrays;
    if (zinf_dataset_n_windows(data) < (uint64_t)windows)
        return zinf_fail(-EINVAL, "the data have %llu windows, and a micro-batch has %lld",
                         (unsigned long long)zinf_dataset_n_windows(data), (long long)windows);
    int code = run_batch_init(&arrays, trainer, data, windows);
    for (int64_t i = 0; !code && i < windows; i++)
        code = run_batch_take(&arrays, data, (uint64_t)i, i);
    const struct zinf_batch batch = run_batch_given(&arrays);
    if (!code)
        code = zinf_trainer_gradients(trainer, &batch, loss, norm);
    run_batch_fini(&arrays);
    return code;
}

static int score(struct run *run, uint64_t step, struct zinf_dataset *data,
                 struct run_evaluation *out)
{
    const struct zinf_run_options *o = run->options;
    struct zinf_scoreboard *board;
    uint64_t begin = zinf_now_ns();
    int code = zinf_scoreboard_create(&board, o->scores->of, o->scores->stem);
    if (!code)
        code = zinf_score(run->trainer, o->scores, data, board);
    for (int i = 0; !code && i < o->scores->n; i++) {
        enum zinf_metric metric = o->scores->metrics[i];
        code = zinf_scoreboard_value(board, metric, &out->scores[i]);
        if (!code && o->events.scored)
            o->events.scored(o->events.arg, step, out->set, zinf_metric_facts(metric)->name,
                             out->scores[i]);
    }
    out->scored = o->scores;
    zinf_executor_mark(run->trainer->executor, "metrics", begin);
    zinf_scoreboard_destroy(board);
    return code;
}

static int evaluate_part(struct run *run, uint64_t step, uint32_t index)
{
    const struct zinf_run_options *o = run->options;
    const struct zinf_graph *graph = run->trainer->setup.graph;
    struct zinf_dataset *data = zinf_dataset_part(o->eval_data, index);
    struct run_evaluation *out = &run->evaluations[index];
    struct zinf_evaluation found;
    int code = zinf_run_evaluate(run->trainer, run->config, data, &found);
    found.set = out->set = zinf_dataset_part_name(o->eval_data, index);
    out->loss = found.loss;
    out->cross_entropy = found.cross_entropy;
    out->tokens = found.tokens;
    out->rewards = found.rewards;
    out->of_samples = graph->values[graph->targets].input == ZINF_INPUT_LABELS;
    if (!code && o->events.evaluated)
        o->events.evaluated(o->events.arg, step, &found);
    return code || !o->scores ? code : score(run, step, data, out);
}

static int evaluate(struct run *run, uint64_t step)
{
    int code = 0;
    for (uint32_t i = 0; !code && i < run->n_evaluations; i++)
        code = evaluate_part(run, step, i);
    return code;
}

static int prepare_evaluations(struct run *run)
{
    struct zinf_dataset *data = run->options->eval_data;
    run->n_evaluations = data ? zinf_dataset_n_parts(data) : 0;
    run->evaluations = calloc(run->n_evaluations + 1, sizeof *run->evaluations);
    return run->evaluations ? 0 : zinf_fail(-ENOMEM, "no memory for evaluations");
}

/* ---- steps ---- */

static int next_batch(struct run *run)
{
    const struct setup *s = &run->trainer->setup;
    const int64_t windows = setup_samples(s);
    const uint64_t all = (uint64_t)windows * setup_sharers(s);
    int code = 0;
    run_batch_fit(&run->batch, run->options->data, run->position, all);
    for (int64_t i = 0; !code && i < windows; i++) {
        const uint64_t own = setup_micro(s, i / s->batch) * (uint64_t)s->batch;
        code = run_batch_take(&run->batch, run->options->data,
                              run->position + own + (uint64_t)(i % s->batch), i);
    }
    run->position += all;
    return code;
}

static bool due(uint64_t step, uint64_t every)
{
    return every && step % every == 0;
}

/* Between two steps: what is due, what was asked for, and the last state of a run that can go on.
 * Only the last one may fail the run, once the model is saved. */
static void save_if_due(struct run *run, uint64_t step, bool last)
{
    const struct zinf_run_options *o = run->options;
    bool stopped = run->stops, asked = run->saves;
    int code = 0;
    if (last)
        run_end_saving(run, true);
    if (asked && o->save)
        *o->save = 0;
    bool wanted = asked || stopped || due(step, o->save_every) || (last && o->save_every);
    if (wanted || (last && o->save_last))
        code = run_save_checkpoint(run, step, last);
    if (last && wanted)
        run_note_unsaved(run, code);
}

/* Behind the evaluation; texts are made by all ranks. */
static int log_step(struct run *run, const struct zinf_step_result *result, bool is_evaluated,
                    bool is_last)
{
    const struct zinf_run_prompts *prompts = run->options->prompts;
    const struct run_seats seats = run_seats_of(run);
    char *samples = NULL;
    int code = 0;
    if (prompts && (is_last || due(result->step, prompts->every)))
        code = run_answer_prompts(run, result->step, &samples);
    const struct run_looks looks = {run->evaluations, is_evaluated ? run->n_evaluations : 0,
                                    samples};
    if (!code && run->log)
        code = run_log_step(run->log, result, &looks, &seats);
    free(samples);
    return code;
}

/* Whether there are windows for another step, for all ranks alike. Of rows that are taken as they
 * are needed nobody knows before: they are waited for until somebody stops the run. */
static int look_ahead(struct run *run, uint64_t step, bool *ends)
{
    const struct setup *s = &run->trainer->setup;
    const uint64_t all = (uint64_t)setup_samples(s) * setup_sharers(s);
    struct zinf_dataset *data = run->options->data;
    uint64_t sum = 0;
    int code = 0, there = zinf_dataset_flows(data) ? -EAGAIN : 1;
    while (!code && there == -EAGAIN && !run->stops) {
        there = zinf_dataset_reaches(data, run->position + all, ROWS_NS, &sum);
        code = there < 0 && there != -EAGAIN ? there : run_look_at_rows(run, &there, sum);
    }
    *ends = !code && !there;
    if (!*ends)
        return code;
    if (!step)
        return zinf_fail(-EINVAL, "the rows ended before there were the %llu windows of a step",
                         (unsigned long long)all);
    zinf_log(ZINF_LOG_WARN, "the rows ended after step %llu of %llu, and the training with them",
             (unsigned long long)step, (unsigned long long)run->options->steps);
    return 0;
}

static int one_step(struct run *run, uint64_t step, bool *last)
{
    const struct zinf_run_options *o = run->options;
    struct zinf_step_result result;
    int code = next_batch(run);
    struct zinf_batch batch = run_batch_given(&run->batch);
    run_end_saving(run, false);
    if (!code)
        code = zinf_trainer_step(run->trainer, &batch, &result);
    if (!code)
        code = run_share_times(run, &result);
    if (code)
        return code;
    if (!result.skipped && !isfinite(result.loss))
        return zinf_fail(-ERANGE,
                         "step %llu: the loss is not finite: the training has diverged; "
                         "lower lr, or set gradient_clipping",
                         (unsigned long long)step);
    if (o->events.stepped)
        o->events.stepped(o->events.arg, &result, o->steps);
    if ((code = run_look_at_signals(run))) /* behind the caller, who may ask for an end */
        return code;
    run->stops = step == o->steps ? 0 : run->stops; /* it is done all the same */
    bool ends = false;
    if (step != o->steps && !run->stops && (code = look_ahead(run, step, &ends)))
        return code;
    *last = step == o->steps || run->stops || ends;
    /* who stops a run does not wait for an evaluation at its end */
    const bool looks = o->eval_data && ((*last && !run->stops) || due(step, o->eval_every));
    if (looks)
        code = evaluate(run, step);
    const bool found = !code && looks && run->evaluations->tokens;
    if (found && due(step, o->eval_every)) /* not where it was stopped */
        run_best_see(run, step, run->evaluations);
    else if (found)
        run_best_see_end(run, step, run->evaluations);
    if (run_best_is_over(run)) {
        *last = true;
        run->stops = 0;
    }
    if (!code)
        code = log_step(run, &result, looks, *last && !run->stops);
    if (!code && !result.skipped)
        code = run_commit_step(run);
    if (!code)
        save_if_due(run, step, *last);
    if (!code && *last)
        code = save_model(run, step);
    return code;
}

/* The plan as it was printed, to be read after the run. */
static int write_ledger(struct run *run)
{
    char *path = zinf_path_join(run->options->output, "ledger.txt"), *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int code = path && out ? zinf_trainer_print_plan(run->trainer, out)
                           : zinf_fail(-ENOMEM, "no memory for the ledger");
    if (out)
        fclose(out);
    if (!code)
        code = zinf_file_write_atomic(path, text, bytes);
    free(text);
    free(path);
    return code;
}

static int open_trainer(struct run *run)
{
    struct zinf_trainer_options trainer = run->options->trainer;
    int code = run_open_checkpoint(run);
    if (run->resumes && run->from.adapted) {
        trainer.adapter = run->options->resume;
    } else if (run->resumes) {
        trainer.model_path = run->options->resume;
        trainer.init = trainer.new_head = false;
    }
    trainer.products = run->recovers ? run->options->output : run->options->resume;
    trainer.run = run->named ? run->own_id : NULL;
    trainer.anew = !run->recovers;
    return code ? code : zinf_trainer_create(&run->trainer, &trainer);
}

/* Of a rank that has no output. */
static int prepare_along(struct run *run)
{
    int code = run_find_steps(run);
    if (!code)
        code = open_trainer(run);
    if (!code)
        code = run_batch_init(&run->batch, run->trainer, run->options->data,
                              setup_samples(&run->trainer->setup));
    if (!code)
        code = run_resume(run);
    return code || run->recovers ? code : run_commit_step(run);
}

static int prepare(struct run *run)
{
    const struct zinf_run_options *o = run->options;
    if (!run_is_first(run))
        return prepare_along(run);
    char *resolved = zinf_path_join(o->output, "config.resolved.json");
    int code = resolved ? run_check_origins(run) : -ENOMEM;
    if (!code)
        code = output_open(o->output, &run->lock_fd);
    if (!code)
        code = run_find_steps(run);
    if (!code)
        code = open_trainer(run);
    if (code == -EBADMSG && !(code = run_fall_back(run, code)))
        code = open_trainer(run);
    if (!code)
        code = run_clear_output(run);
    if (!code && !run->name.found) /* no step is kept, and none will be looked for in vain */
        code = run_name_make(&run->name, o->output);
    if (!code && o->events.planned)
        o->events.planned(o->events.arg, run->trainer);
    if (!code)
        code = zinf_config_write(run->config, resolved);
    if (!code)
        code = write_ledger(run);
    if (!code)
        code = products_write(&run->trainer->setup, o->output);
    if (!code)
        code =
            run_batch_init(&run->batch, run->trainer, o->data, setup_samples(&run->trainer->setup));
    if (!code)
        code = run_resume(run);
    if (!code)
        code = run_write_inputs(run);
    if (!code)
        code = run_log_open(&run->log, o, run->config, run->from.step);
    if (!code && !run->recovers)
        code = run_commit_step(run);
    free(resolved);
    return code;
}

/* A rank that has failed by itself tells the others; what all know of they end with together. */
static int end(struct run *run, int code)
{
    run_tell_ranks(run, code);
    run_end_saving(run, true);
    int closed = run_log_close(run->log);
    run_tell_ranks(run, closed);
    code = code ? code : closed;
    code = code ? code : run_meet(run); /* rank 0 may die before the model is there */
    run_leave_steps(run, !code && !run->unsaved);
    zinf_trainer_destroy(run->trainer);
    code = code ? code : run_fail_unsaved(run);
    run_close_checkpoint(run);
    run_close_steps(run);
    run_batch_fini(&run->batch);
    free(run->times);
    free(run->evaluations);
    if (run->lock_fd >= 0)
        close(run->lock_fd);
    return code;
}

int run_rank(const struct zinf_run_options *options)
{
    struct run run = {.options = options,
                      .config = options->trainer.config,
                      .net = options->trainer.net,
                      .lock_fd = -1};
    int code = run_compare_ranks(&run);
    if (!code)
        code = prepare_evaluations(&run);
    if (!code)
        code = run_make_references(options);
    if (!code)
        code = prepare(&run);
    if (!code)
        code = run_meet(&run);
    if (!code)
        code = run_look_at_signals(&run);
    bool last = options->steps <= run.from.step || run_best_is_over(&run);
    run.stops = last ? 0 : run.stops;
    if (!code && last && options->steps > run.from.step)
        zinf_log(ZINF_LOG_INFO,
                 "the run ended early, after step %llu, by --early-stopping %lld: more patience "
                 "goes on",
                 (unsigned long long)run.from.step, (long long)run.config->early_stopping);
    /* A step that was recovered may have been killed before what was due after it. */
    if (!code && run.recovers && !run_has_checkpoint(&run))
        save_if_due(&run, run.from.step, last);
    if (!code && last)
        code = save_model(&run, run.from.step);
    bool ends = false;
    if (!code && !last && (code = look_ahead(&run, run.from.step, &ends)) == 0 && ends)
        code = save_model(&run, run.from.step);
    last |= ends || (run.stops && zinf_dataset_flows(options->data));
    for (uint64_t step = run.from.step + 1; !code && !last; step++)
        code = one_step(&run, step, &last);
    if (options->stop)
        *options->stop = run.stops;
    return end(&run, code);
}

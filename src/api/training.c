/* training: opening what a training reads, in the order in which errors are most useful. */
#include "api/embedding.h"

#include "train/checkpoints.h"

#include <math.h>
#include <stdlib.h>

int job_train_check(const struct zinf_job *c)
{
    if (!c->data.n && !c->given)
        return zinf_fail(-EINVAL, "--data FILE is missing");
    if (c->epochs > 0 && c->steps >= 0)
        return zinf_fail(-EINVAL, "--epochs and --steps both say how long: give one of them");
    if (c->shuffle_buffer && !c->streaming)
        return zinf_fail(-EINVAL, "--shuffle-buffer is of --streaming; without it all data are "
                                  "shuffled");
    if (c->overwrite && c->resume)
        return zinf_fail(-EINVAL,
                         "--overwrite starts again and --resume continues: give one of them");
    if (c->texts.metrics.n && !c->eval_data.n)
        return zinf_fail(-EINVAL, "--metric needs evaluations: pass --eval-data");
    if (c->eval_every && !c->eval_data.n)
        return zinf_fail(-EINVAL, "--eval-every needs evaluations: pass --eval-data");
    return c->chat_template ? zinf_chat_check(c->chat_template) : 0;
}

/* Option resume: the checkpoint, whose config.json and tokenizer stand in for a model that is not
 * given. Without one yet, a plain resume goes on from steps on the drives or begins the training:
 * what restarts it need not know. */
static int find_checkpoint(struct zinf_session *s)
{
    struct zinf_job *c = &s->job;
    if (!c->resume)
        return 0;
    bool named = *c->resume;
    int code = zinf_checkpoint_find(named ? c->resume : c->output, &s->checkpoint);
    if (code == -ENOENT && !named && c->model)
        code = 0;
    if (s->checkpoint && !c->model)
        c->model = s->checkpoint;
    return code ? zinf_fail_in(code, "--resume") : 0;
}

/* Without option steps the configuration is read as for one, to learn the batch; what is to be said
 * of it is said when the steps are known. */
static int read_config(struct zinf_session *s)
{
    const int64_t asked = s->job.steps;
    s->job.steps = asked < 0 ? 1 : asked;
    int code = session_config(s, asked < 0);
    if (!code && job_seats_leave_one(s))
        code = session_config(s, asked < 0);
    s->job.steps = asked;
    return code;
}

/* Option steps not given: the epochs, or one pass over the data. A schedule may need the number. */
static int resolve_steps(struct zinf_session *s)
{
    struct zinf_job *c = &s->job;
    if (c->steps >= 0)
        return 0;
    double epochs = c->epochs > 0 ? c->epochs : 1;
    double batch = (double)job_windows(s, s->config->train_batch_size);
    double steps = floor(epochs * (double)zinf_dataset_n_windows(s->data) / batch);
    c->steps = steps > 1 ? (int64_t)steps : 1;
    return session_config(s, false);
}

/* Who stops by evaluations, or chooses the best, needs several. */
static int check_evaluations(const struct zinf_config *config, const struct zinf_job *c)
{
    const char *what = config->early_stopping     ? "zinf.early_stopping (--early-stopping)"
                       : config->load_best_at_end ? "zinf.load_best_at_end (--load-best-at-end)"
                                                  : NULL;
    if (c->no_shuffle && config->group_by_length)
        return zinf_fail(-EINVAL, "zinf.group_by_length (--group-by-length) shuffles samples by "
                                  "their lengths, and --no-shuffle keeps their order: give one of "
                                  "them");
    if (!what || (c->eval_data.n && c->eval_every))
        return 0;
    return zinf_fail(-EINVAL,
                     "%s needs evaluations during the training: pass --eval-data and --eval-every",
                     what);
}

/* Model, configuration and data, and the steps where no option says them. What is checked in no
 * time comes first: a text may take minutes. */
static int open_all(struct zinf_session *s)
{
    struct zinf_job *c = &s->job;
    char *cache = zinf_path_join(c->output, "cache");
    int code = cache ? session_begin(s) : -ENOMEM;
    if (!code)
        code = read_config(s);
    if (!code)
        code = check_evaluations(s->config, c);
    if (!code) /* itself; the run looks at what it replaces there */
        code = zinf_apart_check("--output", c->output, ZINF_WRITTEN_FILE, &s->origins);
    if (!code && (code = zinf_make_dirs(c->output)))
        zinf_fail_in(code, "--output");
    if (!code)
        code = session_data(s, cache, !c->no_shuffle);
    s->shuffled = c->streaming ? c->shuffle_buffer > 0 : !c->no_shuffle;
    if (!code && c->eval_data.n)
        code = session_eval_data(s, &c->eval_data, cache);
    if (!code)
        code = resolve_steps(s);
    if (!code)
        code = job_prompts_open(s);
    free(cache);
    return code ? code : job_scores_prepare(s, s->eval_data);
}

/* Rank 0 is the first to look at the data: what it writes to the cache the others find there. */
static int open_in_turn(struct zinf_session *s)
{
    const bool first = job_ranks_is_first(s->net);
    int code = first ? open_all(s) : 0;
    if (!code && s->net)
        code = zinf_net_barrier(s->net);
    return code || first ? code : open_all(s);
}

static void fill_run(struct zinf_session *s)
{
    const struct zinf_job *c = &s->job;
    struct zinf_run_options *run = &s->run;
    run->trainer = session_trainer_options(s, ZINF_TRAINER_TRAIN);
    run->seats = (uint32_t)s->config->seats;
    run->gpus = job_seats_gpus(s);
    run->output = c->output;
    run->log_path = c->log;
    run->origins = &s->origins;
    run->data = s->data;
    run->eval_data = s->eval_data;
    run->scores = s->scores.n ? &s->scores : NULL;
    run->prompts = job_prompts_of(s);
    run->steps = (uint64_t)c->steps;
    run->eval_every = (uint64_t)c->eval_every;
    run->save_every = (uint64_t)c->save_every;
    run->save_total_limit = (uint64_t)c->save_total_limit;
    run->save_last = !c->no_final_checkpoint;
    run->overwrite = c->overwrite;
    run->resume = s->checkpoint;
    run->accept_changes = c->accept_changes;
    run->resume_steps = c->resume && !*c->resume;
    run->stop = &s->stop;
}

/* So that answers need no option chat-template. The model is there without it. */
static void keep_template(const struct zinf_session *s)
{
    char *folder = zinf_path_join(s->job.output, "model");
    if (!folder || job_samples_keep_template(s, folder))
        zinf_log(ZINF_LOG_WARN, "no chat_template.jinja: %s", zinf_error());
    if (folder && job_embedding_keep(s, folder))
        zinf_log(ZINF_LOG_WARN,
                 "the model's folder has no modules.json for sentence-transformers: %s",
                 zinf_error());
    free(folder);
}

static int open_training(struct zinf_session *s)
{
    int code = job_ranks_find(s);
    if (!code)
        code = job_seats_find(s);
    if (!code)
        code = open_in_turn(s);
    return code ? code : job_micro_settle(s);
}

/* ---- events ---- */

static struct zinf_step step_of(const struct zinf_step_result *r, uint64_t steps)
{
    return (struct zinf_step){.size = sizeof(struct zinf_step),
                              .step = r->step,
                              .steps = steps,
                              .loss = r->loss,
                              .grad_norm = r->grad_norm,
                              .lr = r->lr,
                              .seconds = r->seconds,
                              .tokens = r->tokens,
                              .skipped = r->skipped};
}

static void stepped(void *arg, const struct zinf_step_result *r, uint64_t steps)
{
    const struct zinf_events *events = arg;
    const struct zinf_step step = step_of(r, steps);
    events->stepped(events->arg, &step);
}

static void evaluated(void *arg, uint64_t step, const struct zinf_evaluation *found)
{
    const struct zinf_events *events = arg;
    const struct zinf_measure measure = session_measure_of(found);
    events->evaluated(events->arg, step, &measure);
}

static void saved(void *arg, uint64_t step, const char *folder)
{
    const struct zinf_events *events = arg;
    events->saved(events->arg, step, folder);
}

/* Of ranks the first tells. */
static void take_events(struct zinf_session *s, const struct zinf_events *events)
{
    const bool tells = events && job_ranks_is_first(s->net);
    s->run.events =
        (struct zinf_run_events){.stepped = tells && events->stepped ? stepped : NULL,
                                 .evaluated = tells && events->evaluated ? evaluated : NULL,
                                 .saved = tells && events->saved ? saved : NULL,
                                 .arg = (void *)(uintptr_t)events};
}

/* ---- the door ---- */

static int train(struct zinf_session *s, const struct zinf_events *events)
{
    s->asked.is_kept = true;
    s->asked.model = s->job.model;
    s->asked.steps = s->job.steps;
    s->asked.settings = s->job.settings;
    s->use = JOB_TRAINS;
    s->keeps_rows = true;
    int code = find_checkpoint(s);
    if (!code)
        code = session_need_model(s);
    if (!code)
        code = session_tell(s, open_training(s));
    if (code) /* from here on the run tells */
        return code;
    fill_run(s);
    take_events(s, events);
    if (s->opened && (code = session_tell(s, s->opened(s->opened_arg))))
        return code;
    code = zinf_run_train(&s->run);
    zinf_dataset_stop(s->data); /* whose caller may be gone */
    s->is_broken = code != 0;
    if (!code && job_ranks_is_first(s->net))
        keep_template(s);
    return code;
}

int zinf_session_train(struct zinf_session *s, const struct zinf_events *events)
{
    const struct zinf_job *c = &s->job;
    int code = session_take_file(s);
    if (!code)
        code = job_train_check(c);
    if (!code) {
        session_end(s);
        code = train(s, events);
        job_prompts_close(s->prompts);
        s->prompts = NULL;
        s->run.prompts = NULL;
    }
    s->stop = 0; /* not before: what came then is meant for this training */
    /* what another rank has refused in its own words needs no reason of this one's */
    if (code < 0 && c->resume && c->output && !c->accept_changes && job_ranks_is_first(s->net))
        return zinf_run_inputs_explain(c->output, code);
    return code;
}

void zinf_session_cancel(struct zinf_session *s)
{
    s->stop = 1;
    job_flow_cancel(s);
}

void zinf_session_uncancel(struct zinf_session *s)
{
    s->stop = 0;
}

/* ---- steps of the caller's own ---- */

int zinf_session_batch(struct zinf_session *s, int64_t *samples, int64_t *tokens)
{
    int code = session_ready(s, JOB_TRAINS);
    *samples = code ? 0 : s->config->micro_batch * s->config->accumulation;
    *tokens = code ? 0 : s->seq_len;
    return code;
}

int zinf_session_step(struct zinf_session *s, const int32_t *ids, const int32_t *targets,
                      struct zinf_step *result)
{
    struct zinf_step_result r = {0};
    const struct zinf_batch batch = {
        .inputs = {[ZINF_INPUT_IDS] = ids, [ZINF_INPUT_TARGETS] = targets}};
    int code = s->trains ? 0 : session_ready(s, JOB_TRAINS);
    if (!code && !s->trains)
        code = job_micro_settle(s);
    if (!code)
        code = session_need_trainer(s, true);
    if (!code)
        code = zinf_trainer_step(s->trainer, &batch, &r);
    if (code || !result)
        return code;
    const struct zinf_step step = step_of(&r, s->job.steps > 0 ? (uint64_t)s->job.steps : 0);
    session_give(result, &step, sizeof step);
    return 0;
}

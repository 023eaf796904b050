/* training: opening what a training reads, in the order in which errors are most useful. */
#include "api/training.h"

#include "train/checkpoints.h"

#include <math.h>
#include <stdlib.h>

int job_train_check(const struct zinf_job *c)
{
    if (!c->data.n)
        return zinf_fail(-EINVAL, "--data FILE is missing");
    if (c->epochs > 0 && c->steps >= 0)
        return zinf_fail(-EINVAL, "--epochs and --steps both say how long: give one of them");
    if (c->overwrite && c->resume)
        return zinf_fail(-EINVAL, "--overwrite begins anew and --resume goes on: give one of them");
    return 0;
}

int job_train_find(struct zinf_job *c, char **checkpoint)
{
    *checkpoint = NULL;
    if (!c->resume)
        return 0;
    bool named = *c->resume;
    int code = zinf_checkpoint_find(named ? c->resume : c->output, checkpoint);
    if (code == -ENOENT && !named && c->model)
        code = 0;
    if (*checkpoint && !c->model)
        c->model = *checkpoint;
    return code ? zinf_fail_in(code, "--resume") : 0;
}

/* Without --steps the configuration is read as for one, to learn the batch; what is to be said of
 * it is said when the steps are known. */
static int read_config(struct zinf_session *s, struct zinf_job *c)
{
    struct zinf_job known = *c;
    known.steps = c->steps < 0 ? 1 : c->steps;
    known.quiet = c->steps < 0;
    int code = zinf_session_config(s, &known);
    if (code || !job_seats_leave_one(c, s->config))
        return code;
    known.seats_there = c->seats_there;
    return zinf_session_config(s, &known);
}

/* --steps not given: --epochs, or one pass over the data. A schedule may need the number. */
static int resolve_steps(struct zinf_session *s, struct zinf_job *c)
{
    if (c->steps >= 0)
        return 0;
    double epochs = c->epochs > 0 ? c->epochs : 1;
    double batch = (double)job_windows(s->task, s->config->train_batch_size);
    double steps = floor(epochs * (double)zinf_dataset_n_windows(s->data) / batch);
    c->steps = steps > 1 ? (int64_t)steps : 1;
    return zinf_session_config(s, c);
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
                     "%s goes by evaluations on the way: pass --eval-data and --eval-every", what);
}

int job_train_open(struct zinf_session *s, struct zinf_job *c)
{
    char *cache = zinf_path_join(c->output, "cache");
    int code = cache ? zinf_session_begin(s, c) : -ENOMEM;
    if (!code)
        code = read_config(s, c);
    if (!code)
        code = check_evaluations(s->config, c);
    if (!code) /* itself; the run looks at what it replaces there */
        code = zinf_apart_check("--output", c->output, ZINF_WRITTEN_FILE, &s->origins);
    if (!code && (code = zinf_make_dirs(c->output)))
        zinf_fail_in(code, "--output");
    if (!code)
        code = zinf_session_data(s, c, &c->data, cache, !c->no_shuffle, &s->data);
    s->shuffled = !c->no_shuffle;
    if (!code && c->eval_data.n)
        code = zinf_session_data(s, c, &c->eval_data, cache, false, &s->eval_data);
    if (!code)
        code = resolve_steps(s, c);
    free(cache);
    return code;
}

struct zinf_trainer_options job_trainer_options(const struct zinf_session *s,
                                                const struct zinf_job *c, struct zinf_net *net)
{
    return (struct zinf_trainer_options){
        .mode = ZINF_TRAINER_TRAIN,
        .model_path = c->model,
        .init = c->task.fresh,
        .adapter = c->adapter,
        .seed = (uint64_t)c->seed,
        .config = s->config,
        .seq_len = s->seq_len,
        .packed = c->pack,
        .pairs = job_has_pairs(s->task),
        .references = job_gives_references(s, c),
        .source_len = s->source_len,
        .classes = s->asks_classes ? &s->classes : NULL,
        .new_head = c->task.new_head,
        .class_weights = s->class_weights,
        .device = s->device,
        .net = net,
    };
}

struct zinf_run_options job_run_options(const struct zinf_session *s, const struct zinf_job *c,
                                        struct zinf_net *net, const struct job_seats *seats,
                                        const char *checkpoint)
{
    return (struct zinf_run_options){
        .trainer = job_trainer_options(s, c, net),
        .seats = (uint32_t)s->config->seats,
        .gpus = job_seats_gpus(seats),
        .output = c->output,
        .log_path = c->log,
        .origins = &s->origins,
        .data = s->data,
        .eval_data = s->eval_data,
        .steps = (uint64_t)c->steps,
        .eval_every = (uint64_t)c->eval_every,
        .save_every = (uint64_t)c->save_every,
        .save_total_limit = (uint64_t)c->save_total_limit,
        .save_last = !c->no_final_checkpoint,
        .overwrite = c->overwrite,
        .resume = checkpoint,
        .accept_changes = c->accept_changes,
        .resume_steps = c->resume && !*c->resume,
    };
}

void job_train_keep_template(const struct zinf_session *s, const struct zinf_job *c)
{
    char *folder = zinf_path_join(c->output, "model");
    if (!folder || job_samples_keep_template(c, s->tokenizer, folder))
        zinf_log(ZINF_LOG_WARN, "no chat_template.jinja: %s", zinf_error());
    free(folder);
}

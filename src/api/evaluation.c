/* evaluation: loss and scores of a session's model over data, by all ranks and seats together: each
 * has what all have measured. */
#include "api/choices.h"

#include "train/seats.h"

struct evaluation {
    struct zinf_session *session;
    struct zinf_measure found;
};

/* Of the weights that steps have left, else of the folder's. */
static int measure(struct zinf_session *s, const struct zinf_trainer_options *options,
                   struct zinf_trainer **trainer, struct zinf_measure *result)
{
    struct zinf_evaluation found;
    const bool chooses = s->task == ZINF_TASK_CHOICE;
    int code = options->net && !*trainer ? zinf_run_compare(options, s->eval_data) : 0;
    if (!code && !*trainer)
        code = zinf_trainer_create(trainer, options);
    if (!code && options->net)
        code = zinf_net_barrier(options->net);
    if (!code && chooses)
        return job_choices_measure(s, *trainer, job_ranks_is_first(options->net), result);
    if (!code)
        code = zinf_run_evaluate(*trainer, s->config, s->eval_data, &found);
    if (code)
        return code;
    *result = session_measure_of(&found);
    return job_scores_measure(s, options, trainer, result);
}

static int evaluate_on_seat(void *arg, uint32_t seat, struct zinf_net *net)
{
    struct evaluation *e = arg;
    struct zinf_session *s = e->session;
    struct zinf_trainer_options options = session_trainer_options(s, ZINF_TRAINER_FORWARD);
    const int *gpus = job_seats_gpus(s);
    struct zinf_trainer *trainer = NULL;
    struct zinf_measure found;
    options.net = net;
    options.gpu = gpus ? &gpus[seat] : NULL;
    int code = measure(s, &options, &trainer, &found);
    zinf_trainer_destroy(trainer);
    if (code && net)
        zinf_net_tell(net, zinf_error());
    if (!code && !seat)
        e->found = found;
    return code;
}

int zinf_session_evaluate(struct zinf_session *s, struct zinf_measure *result)
{
    const struct zinf_words *files = s->job.eval_data.n ? &s->job.eval_data : &s->job.data;
    struct evaluation e = {.session = s};
    int code = session_need("--eval-data FILE", files->n ? files : NULL);
    if (!code)
        code = session_ready(s, JOB_EVALUATES);
    const bool chooses = !code && s->task == ZINF_TASK_CHOICE;
    if (chooses)
        code = session_tell(s, job_choices_open(s, files));
    else if (!code && !s->eval_data) /* lengths of samples may follow from them */
        code = session_data(s, files, NULL, false, &s->eval_data);
    if (!code && !chooses)
        code = session_tell(s, job_scores_prepare(s, s->eval_data));
    if (code)
        return code;
    if (s->trains) {
        const struct zinf_trainer_options options = session_trainer_options(s, ZINF_TRAINER_TRAIN);
        code = measure(s, &options, &s->trainer, &e.found);
    } else {
        session_drop_trainers(s);
        code = zinf_run_on_seats((uint32_t)s->config->seats, s->net, evaluate_on_seat, &e,
                                 s->run.stuck);
    }
    if (!code)
        session_give(result, &e.found, sizeof e.found);
    return code;
}

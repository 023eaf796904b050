/* evaluation: loss and scores of a session's model over data, by all ranks and seats together: each
 * has what all have measured. */
#include "api/choices.h"

#include "train/seats.h"

#include <stdlib.h>

struct evaluation {
    struct zinf_session *session;
    struct zinf_measure *found; /* [sets] */
    uint32_t n;
};

/* Of each set, its loss and then its scores, for which another trainer may take the place of the
 * one that measures losses. */
static int measure_sets(struct zinf_session *s, const struct zinf_trainer_options *options,
                        struct zinf_trainer **trainer, struct zinf_measure *found, uint32_t n)
{
    int code = 0;
    for (uint32_t i = 0; !code && i < n; i++) {
        struct zinf_evaluation sums;
        code = zinf_run_evaluate(*trainer, s->config, zinf_dataset_part(s->eval_data, i), &sums);
        sums.set = zinf_dataset_part_name(s->eval_data, i);
        found[i] = session_measure_of(&sums);
    }
    for (uint32_t i = 0; !code && i < n; i++)
        code =
            job_scores_measure(s, options, zinf_dataset_part(s->eval_data, i), trainer, &found[i]);
    return code;
}

/* Of the weights that steps have left, else of the folder's. */
static int measure(struct zinf_session *s, const struct zinf_trainer_options *options,
                   struct zinf_trainer **trainer, struct zinf_measure *found, uint32_t n)
{
    const bool chooses = s->task == ZINF_TASK_CHOICE;
    int code = options->net && !*trainer ? zinf_run_compare(options, s->eval_data) : 0;
    if (!code && !*trainer)
        code = zinf_run_refer(options, s->eval_data);
    if (!code && !*trainer)
        code = zinf_trainer_create(trainer, options);
    if (!code && options->net)
        code = zinf_net_barrier(options->net);
    if (!code && chooses)
        return job_choices_measure(s, *trainer, job_ranks_is_first(options->net), found);
    return code ? code : measure_sets(s, options, trainer, found, n);
}

static int evaluate_on_seat(void *arg, uint32_t seat, struct zinf_net *net)
{
    struct evaluation *e = arg;
    struct zinf_session *s = e->session;
    struct zinf_trainer_options options = session_trainer_options(s, ZINF_TRAINER_FORWARD);
    const int *gpus = job_seats_gpus(s);
    struct zinf_trainer *trainer = NULL;
    struct zinf_measure *found = calloc(e->n, sizeof *found);
    options.net = net;
    options.gpu = gpus ? &gpus[seat] : NULL;
    int code = found ? measure(s, &options, &trainer, found, e->n)
                     : zinf_fail(-ENOMEM, "no memory for an evaluation");
    zinf_trainer_destroy(trainer);
    if (code && net)
        zinf_net_tell(net, zinf_error());
    if (!code && !seat)
        memcpy(e->found, found, e->n * sizeof *found);
    free(found);
    return code;
}

/* A model without adapters has become what it is compared with. */
static int check_reference(const struct zinf_session *s)
{
    return s->task == ZINF_TASK_PREFERENCE && !s->trains && !job_is_adapted(s) &&
                   job_gives_references(s)
               ? zinf_fail(-EINVAL,
                           "zinf.preference \"%s\" compares a model with what it was before its "
                           "training, and an evaluation of a whole model has none of that: train "
                           "with --eval-data, which measures it before the first step; or name "
                           "adapters (--adapter), or zinf.preference \"orpo\" or \"simpo\"",
                           s->config->preference)
               : 0;
}

static int open_data(struct zinf_session *s)
{
    const struct zinf_words *files = s->job.eval_data.n ? &s->job.eval_data : &s->job.data;
    int code = session_need("--eval-data FILE", files->n ? files : NULL);
    if (!code)
        code = session_ready(s, JOB_EVALUATES);
    if (!code)
        code = check_reference(s);
    if (code)
        return session_tell(s, code);
    if (s->task == ZINF_TASK_CHOICE)
        return session_tell(s, job_choices_open(s, files));
    if (!s->eval_data) /* lengths of samples may follow from them */
        code = session_eval_data(s, files, NULL);
    if (!code && zinf_dataset_n_parts(s->eval_data) > 1 && s->job.texts.predictions)
        code = zinf_fail(-EINVAL, "--predictions writes one file, but --data names several sets: "
                                  "evaluate one set at a time");
    return session_tell(s, code ? code : job_scores_prepare(s, s->eval_data));
}

int zinf_session_evaluate(struct zinf_session *s, struct zinf_measure *result)
{
    int code = open_data(s);
    if (code)
        return code;
    struct evaluation e = {.session = s,
                           .n = s->eval_data ? zinf_dataset_n_parts(s->eval_data) : 1};
    free(s->measures);
    e.found = s->measures = calloc(e.n, sizeof *e.found);
    if (!e.found)
        return session_tell(s, zinf_fail(-ENOMEM, "no memory for an evaluation"));
    if (s->trains) {
        const struct zinf_trainer_options options = session_trainer_options(s, ZINF_TRAINER_TRAIN);
        code = measure(s, &options, &s->trainer, e.found, e.n);
    } else {
        session_drop_trainers(s);
        code = zinf_run_on_seats((uint32_t)s->config->seats, s->net, evaluate_on_seat, &e,
                                 s->run.stuck);
    }
    for (uint32_t i = 0; i + 1 < e.n; i++)
        e.found[i].next = &e.found[i + 1];
    if (!code)
        session_give(result, e.found, sizeof *e.found);
    return code;
}

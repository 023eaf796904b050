/* eval: mean loss and perplexity of a model over text, and how good the texts are that it makes.
 * Ranks and seats share the data, and each has what all have measured: the first one prints it. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/scores.h"
#include "cli/signals.h"
#include "api/seats.h"
#include "train/seats.h"

#include <math.h>

#define USUAL_PAIRS 2 /* of a micro-batch, where nobody says how many */

/* JSON has no NaN or Inf. */
static void print_loss(const struct zinf_session *s, double loss)
{
    if (!isfinite(loss)) {
        zinf_log(ZINF_LOG_WARN, "the loss is not finite: %s",
                 s->config->dtype == ZINF_DTYPE_F16
                     ? "activations are beyond the largest number of fp16, 65504: --dtype bf16, "
                       "or fp32"
                     : "the model's weights or activations are not");
        printf("{\"loss\": null");
        return;
    }
    printf("{\"loss\": %.9g", loss);
    if (!job_is_of_samples(s->task))
        printf(", \"perplexity\": %.9g", exp(loss));
}

static void print_figure(const char *name, double value)
{
    if (isfinite(value))
        printf(", \"%s\": %.9g", name, value);
    else
        printf(", \"%s\": null", name);
}

/* Under TRL's names. */
static void print_rewards(const struct zinf_rewards *r)
{
    if (!r->n)
        return;
    print_figure("rewards/chosen", r->chosen);
    print_figure("rewards/rejected", r->rejected);
    print_figure("rewards/margins", r->chosen - r->rejected);
    print_figure("rewards/accuracies", r->accuracy);
    if (r->has_kl)
        print_figure("kl", r->kl);
}

struct evaluation {
    const struct zinf_job *common;
    struct zinf_session session;
    const struct cli_scores *scores;
    struct job_seats seats;
};

struct result {
    struct zinf_evaluation found;
    double scores[ZINF_MOST_SCORES];
};

static void print(const struct evaluation *e, const struct result *r)
{
    print_loss(&e->session, r->found.loss);
    printf(", \"%s\": %llu", job_is_of_samples(e->session.task) ? "samples" : "tokens",
           (unsigned long long)r->found.tokens);
    print_rewards(&r->found.rewards);
    cli_scores_print(e->scores, r->scores);
    puts("}");
}

static int measure(struct evaluation *e, const struct zinf_trainer_options *options,
                   struct result *r)
{
    struct zinf_session *s = &e->session;
    struct zinf_trainer *trainer = NULL;
    int code = zinf_run_compare(options, s->data);
    if (!code)
        code = zinf_trainer_create(&trainer, options);
    if (!code && options->net)
        code = zinf_net_barrier(options->net);
    if (!code)
        code = zinf_run_evaluate(trainer, s->config, s->data, &r->found);
    if (!code)
        code = cli_scores_measure(e->scores, s, options, &trainer, r->scores);
    zinf_trainer_destroy(trainer);
    return code;
}

static int evaluate_on_seat(void *arg, uint32_t seat, struct zinf_net *net)
{
    struct evaluation *e = arg;
    struct zinf_trainer_options options =
        zinf_session_options(&e->session, e->common, ZINF_TRAINER_FORWARD, 0);
    const int *gpus = job_seats_gpus(&e->seats);
    struct result result = {0};
    options.net = net;
    options.gpu = gpus ? &gpus[seat] : NULL;
    int code = measure(e, &options, &result);
    if (code && net)
        zinf_net_tell(net, zinf_error());
    if (!code && job_ranks_is_first(net))
        print(e, &result);
    return code;
}

static int open_all(struct evaluation *e, struct zinf_job *c, struct cli_scores *scores)
{
    struct zinf_session *s = &e->session;
    int code = zinf_session_begin(s, c);
    if (!code && job_has_pairs(s->task) && !c->config)
        code = zinf_job_set(c, "train_micro_batch_size_per_gpu", USUAL_PAIRS);
    if (!code)
        code = zinf_session_config(s, c);
    if (!code && job_seats_leave_one(c, s->config))
        code = zinf_session_config(s, c);
    if (!code)
        code = zinf_session_data(s, c, &c->data, NULL, false, &s->data);
    return code ? code : cli_scores_prepare(scores, s, c, s->data);
}

static int evaluate(struct zinf_job *c, struct cli_scores *scores)
{
    struct evaluation e = {.common = c, .scores = scores};
    struct zinf_net *net = NULL;
    int code = job_ranks_find(&net, c);
    if (!code)
        code = job_seats_find(&e.seats, c, net);
    if (!code)
        code = open_all(&e, c, scores);
    if (code && net)
        zinf_net_tell(net, zinf_error());
    if (!code)
        code = zinf_run_on_seats((uint32_t)e.session.config->seats, net, evaluate_on_seat, &e,
                                 cli_signals_stuck);
    if (code) /* before a launcher sees another rank end, and ends this one */
        cli_error(&cli_eval, CLI_FAILED);
    zinf_net_close(net);
    zinf_session_end(&e.session);
    return code;
}

static const char usage[] =
    "usage: zinf eval --model DIR --data FILE... [options]\n"
    "\n"
    "Measures a model on data and prints {\"loss\", \"perplexity\", \"tokens\"} and the\n"
    "metrics that it is asked for.\n";

struct eval_command {
    struct zinf_job common;
    struct cli_adapters adapters;
    struct cli_scores scores;
};

#define AT(field) .offset = offsetof(struct eval_command, field)
#define IN(field) .at = offsetof(struct eval_command, field)
/* clang-format off */
static const struct option own_adapter[] = {
    OPTION("--adapter", TEXTS, AT(adapters.words), "DIR...",
     "and adapters of it, as PEFT writes them; several add up, DIR=0.5 by half"),
    CLI_NO_ROW
};
static const struct option own[] = {
    OPTION("--predictions", TEXT, AT(scores.predictions), "FILE",
     "write predicted and true texts as JSON lines"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    {.rows = job_model, IN(common)},
    {.rows = own_adapter},
    {.rows = job_rows, IN(common)},
    {.rows = job_task, IN(common)},
    {.rows = job_seq, IN(common)},
    {.rows = job_source, IN(common)},
    {.rows = job_pad, IN(common)},
    {.rows = job_micro, IN(common)},
    {.rows = job_dtype, IN(common)},
    {.rows = cli_score_rows, IN(scores)},
    {.rows = own},
    {.rows = job_pairs, IN(common)},
    {.rows = job_device, IN(common)},
    {.rows = job_seats, IN(common)},
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct eval_command *o = call->options;
    int code = zinf_job_check(&o->common);
    if (!code)
        code = zinf_job_need("--data FILE", o->common.data.n ? o : NULL);
    return code ? code : cli_scores_check(&o->scores);
}

static int work(struct cli_call *call)
{
    struct eval_command *o = call->options;
    int code = cli_adapters_open(&o->adapters, &o->common.adapter);
    if (!code) /* it has said what failed */
        code = evaluate(&o->common, &o->scores) ? CLI_FAILED : CLI_OK;
    cli_adapters_close(&o->adapters);
    return code;
}

const struct cli_command cli_eval = {
    .name = "eval",
    .summary = "loss of a model over text, and metrics of what it writes",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct eval_command),
    .usual =
        &(const struct eval_command){.common = {.steps = -1, .no_training = true, .no_steps = true},
                                     .scores = CLI_SCORES_DEFAULT},
    .check = check,
    .work = work,
};

/* eval: mean loss and perplexity of a model over text, and how good the texts are that it makes.
 * Ranks and seats share the data, and each has what all have measured: the first one prints it. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/data.h"
#include "cli/scores.h"
#include "cli/seats.h"
#include "cli/usage.h"
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
    struct cli_seats seats;
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
    const int *gpus = cli_seats_gpus(&e->seats);
    struct result result = {0};
    options.net = net;
    options.gpu = gpus ? &gpus[seat] : NULL;
    int code = measure(e, &options, &result);
    if (code && net)
        zinf_net_tell(net, zinf_error());
    if (!code && cli_ranks_is_first(net))
        print(e, &result);
    return code;
}

static int open_all(struct evaluation *e, struct zinf_job *c, const struct zinf_words *data,
                    struct cli_scores *scores)
{
    struct zinf_session *s = &e->session;
    int code = zinf_session_open(s, c);
    if (!code && job_has_pairs(s->task) && c->micro_batch < 0 && !c->config)
        c->micro_batch = USUAL_PAIRS;
    if (!code)
        code = zinf_session_config(s, c);
    if (!code && cli_seats_leave_one(c, s->config))
        code = zinf_session_config(s, c);
    if (!code)
        code = zinf_session_data(s, c, data, NULL, false, &s->data);
    return code ? code : cli_scores_prepare(scores, s, c, s->data);
}

static int evaluate(struct zinf_job *c, const struct zinf_words *data, struct cli_scores *scores)
{
    struct evaluation e = {.common = c, .scores = scores};
    struct zinf_net *net = NULL;
    int code = cli_ranks_find(&net, c);
    if (!code)
        code = cli_seats_find(&e.seats, c, net);
    if (!code)
        code = open_all(&e, c, data, scores);
    if (code && net)
        zinf_net_tell(net, zinf_error());
    if (!code)
        code = zinf_run_on_seats((uint32_t)e.session.config->seats, net, evaluate_on_seat, &e,
                                 cli_seats_stuck);
    if (code) /* before a launcher sees another rank end, and ends this one */
        cli_error(&cli_eval, CLI_FAILED);
    zinf_net_close(net);
    zinf_session_close(&e.session);
    return code;
}

static int run(int argc, char **argv)
{
    struct zinf_job c = ZINF_JOB_DEFAULT;
    struct zinf_words data = {.n = 0};
    struct cli_adapters adapters = {.words.n = 0};
    struct cli_scores scores = CLI_SCORES_DEFAULT;
    const struct cli_option options[] = {
        {"--model", CLI_STRING, &c.model, 0, 0},
        {"--adapter", CLI_STRINGS, &adapters.words, 0, 0},
        {"--data", CLI_STRINGS, &data, 0, 0},
        CLI_SAMPLE_OPTIONS(&c),
        CLI_TASK_OPTIONS(&c),
        CLI_SCORE_OPTIONS(&scores),
        {"--predictions", CLI_STRING, &scores.predictions, 0, 0},
        CLI_DEVICE_OPTIONS(&c),
        CLI_LENGTH_OPTIONS(&c),
        CLI_SEAT_OPTIONS(&c),
        {"--micro-batch", CLI_INT, &c.micro_batch, 1, 1 << 20},
        {"--dtype", CLI_STRING, &c.dtype, 0, 0},
        CLI_PAIR_OPTIONS(&c),
    };
    c.no_training = c.no_steps = true;
    int code = cli_parse(&cli_eval, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!code)
        code = zinf_job_check(&c);
    if (!code && !data.n)
        code = zinf_fail(-EINVAL, "--data FILE is missing");
    if (!code)
        code = cli_scores_check(&scores);
    if (code)
        return cli_error(&cli_eval, CLI_USAGE);
    if (cli_adapters_open(&adapters, &c.adapter))
        return cli_error(&cli_eval, CLI_FAILED);
    code = evaluate(&c, &data, &scores);
    cli_adapters_close(&adapters);
    return code ? CLI_FAILED : CLI_OK;
}

const struct cli_command cli_eval = {
    .name = "eval",
    .summary = "loss of a model over text, and metrics of what it writes",
    .usage = USAGE_EVAL,
    .run = run,
};

/* eval: mean loss and perplexity of a model over text, and how good the texts are that it makes.
 * Ranks and seats share the data, and each has what all have measured: the first one prints it. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/signals.h"

#include <math.h>

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

/* Rewards under TRL's names. */
static void print(const struct zinf_session *s, const struct zinf_measure *found)
{
    print_loss(s, found->loss);
    printf(", \"%s\": %llu", job_is_of_samples(s->task) ? "samples" : "tokens",
           (unsigned long long)found->tokens);
    if (found->pairs) {
        print_figure("rewards/chosen", found->chosen);
        print_figure("rewards/rejected", found->rejected);
        print_figure("rewards/margins", found->chosen - found->rejected);
        print_figure("rewards/accuracies", found->accuracy);
    }
    if (found->pairs && !strcmp(s->config->preference, "kto"))
        print_figure("kl", found->kl);
    for (uint32_t i = 0; i < found->n_scores; i++)
        print_figure(found->scores[i].name, found->scores[i].value);
    puts("}");
}

static const char usage[] =
    "usage: zinf eval --model DIR --data FILE... [options]\n"
    "\n"
    "Measures a model on data and prints {\"loss\", \"perplexity\", \"tokens\"} and the\n"
    "metrics that it is asked for.\n";

/* clang-format off */
static const struct option own_adapter[] = {
    OPTION("--adapter", TEXTS, .offset = offsetof(struct cli_adapters, words), "DIR...",
     "and adapters of it, as PEFT writes them; several add up, DIR=0.5 by half"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(job_model),
    {.rows = own_adapter},
    CLI_DOOR(job_rows),
    CLI_DOOR(job_task),
    CLI_DOOR(job_seq),
    CLI_DOOR(job_source),
    CLI_DOOR(job_pad),
    CLI_DOOR(job_micro),
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_metrics),
    CLI_DOOR(job_predictions),
    CLI_DOOR(job_pairs),
    CLI_DOOR(job_device),
    CLI_DOOR(job_seats),
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    int code = cli_need_data(call->session);
    return code ? code : job_scores_check(call->session);
}

static int work(struct cli_call *call)
{
    struct zinf_measure found = ZINF_SIZED(struct zinf_measure);
    struct cli_adapters *adapters = call->options;
    struct zinf_session *s = call->session;
    int code = cli_adapters_open(adapters, &s->job.adapter);
    s->run.stuck = cli_signals_stuck;
    if (!code)
        code = zinf_session_evaluate(s, &found);
    if (!code && job_ranks_is_first(s->net))
        print(s, &found);
    cli_adapters_close(adapters);
    return code;
}

const struct cli_command cli_eval = {
    .name = "eval",
    .summary = "loss of a model over text, and metrics of what it writes",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct cli_adapters),
    .check = check,
    .work = work,
};

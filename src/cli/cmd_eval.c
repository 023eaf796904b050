/* eval: mean loss and perplexity of a model over text, and how good the texts are that it makes. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/data.h"
#include "cli/scores.h"
#include "cli/usage.h"

#include <math.h>

/* JSON has no NaN or Inf. */
static void print_loss(const struct cli_session *s, double loss)
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
    if (!cli_is_labelled(s->task))
        printf(", \"perplexity\": %.9g", exp(loss));
}

static int evaluate(const struct cli_common *c, const struct cli_strings *data,
                    struct cli_scores *scores)
{
    struct cli_session s = {0};
    struct zinf_trainer *trainer = NULL;
    double loss;
    uint64_t tokens;
    int code = cli_session_open(&s, c);
    if (!code)
        code = cli_session_data(&s, c, data, NULL, false, &s.data);
    if (!code)
        code = cli_session_config(&s, c);
    if (!code)
        code = cli_scores_prepare(scores, &s, c, s.data);
    if (!code)
        code = cli_session_trainer(&s, c, ZINF_TRAINER_FORWARD, 0, &trainer);
    if (!code)
        code = zinf_run_evaluate(trainer, s.config, s.data, &loss, &tokens);
    if (!code) {
        print_loss(&s, loss);
        printf(", \"%s\": %llu", cli_is_labelled(s.task) ? "samples" : "tokens",
               (unsigned long long)tokens);
        code = cli_scores_print(scores, &s, c, &trainer);
        puts("}");
    }
    zinf_trainer_destroy(trainer);
    cli_session_close(&s);
    return code;
}

static int run(int argc, char **argv)
{
    struct cli_common c = CLI_COMMON_DEFAULT;
    struct cli_strings data = {.n = 0};
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
        {"--seq-len", CLI_INT, &c.seq_len, 1, 1 << 24},
        {"--source-len", CLI_INT, &c.source_len, 1, 1 << 24},
        {"--micro-batch", CLI_INT, &c.micro_batch, 1, 1 << 20},
        {"--dtype", CLI_STRING, &c.dtype, 0, 0},
    };
    c.no_training = true;
    int code = cli_parse(&cli_eval, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!code)
        code = cli_check_common(&c);
    if (!code && !data.n)
        code = zinf_fail(-EINVAL, "--data FILE is missing");
    if (!code)
        code = cli_scores_check(&scores);
    if (code)
        return cli_error(&cli_eval, CLI_USAGE);
    code = cli_adapters_open(&adapters, &c.adapter);
    if (!code)
        code = evaluate(&c, &data, &scores);
    cli_adapters_close(&adapters);
    return code ? cli_error(&cli_eval, CLI_FAILED) : CLI_OK;
}

const struct cli_command cli_eval = {
    .name = "eval",
    .summary = "loss of a model over text, and metrics of what it writes",
    .usage = USAGE_EVAL,
    .run = run,
};

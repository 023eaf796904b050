/* gradients: forward and backward of the first batch, for comparison with other trainers. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/data.h"
#include "cli/seats.h"
#include "cli/usage.h"

static int gradients(const struct zinf_job *c, const struct zinf_words *data, const char *output)
{
    struct zinf_session s = {0};
    struct zinf_trainer *trainer = NULL;
    double loss, norm;
    int code = zinf_session_open(&s, c);
    if (!code)
        code = zinf_session_config(&s, c);
    if (!code)
        code = zinf_session_data(&s, c, data, NULL, false, &s.data);
    if (!code)
        code = zinf_apart_check("--output", output, ZINF_WRITTEN_FILE, &s.origins);
    if (!code)
        code = zinf_session_trainer(&s, c, ZINF_TRAINER_GRADIENTS, 0, &trainer);
    if (!code)
        code = zinf_run_gradients(trainer, s.data, &loss, &norm);
    if (!code)
        code = zinf_trainer_save_gradients(trainer, output);
    if (!code)
        printf("{\"loss\": %.9g, \"grad_norm\": %.9g}\n", loss, norm);
    zinf_trainer_destroy(trainer);
    zinf_session_close(&s);
    return code;
}

static int run(int argc, char **argv)
{
    struct zinf_job c = ZINF_JOB_DEFAULT;
    struct zinf_words data = {.n = 0};
    struct cli_adapters adapters = {.words.n = 0};
    const char *output = NULL;
    const struct cli_option options[] = {
        {"--model", CLI_STRING, &c.model, 0, 0},
        {"--adapter", CLI_STRINGS, &adapters.words, 0, 0},
        {"--data", CLI_STRINGS, &data, 0, 0},
        CLI_SAMPLE_OPTIONS(&c),
        CLI_TASK_OPTIONS(&c),
        CLI_DEVICE_OPTIONS(&c),
        {"--seq-len", CLI_INT, &c.seq_len, 1, 1 << 24},
        {"--micro-batch", CLI_INT, &c.micro_batch, 1, 1 << 20},
        {"--output", CLI_STRING, &output, 0, 0},
        {"--dtype", CLI_STRING, &c.dtype, 0, 0},
    };
    c.no_training = true;
    int code =
        cli_parse(&cli_gradients, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!code)
        code = zinf_job_check(&c);
    if (!code && !data.n)
        code = zinf_fail(-EINVAL, "--data FILE is missing");
    if (!code)
        code = zinf_job_need("--output FILE.safetensors", output);
    if (code)
        return cli_error(&cli_gradients, CLI_USAGE);
    if (!cli_ranks_works_alone("gradients are written"))
        return CLI_OK;
    code = cli_adapters_open(&adapters, &c.adapter);
    if (!code)
        code = gradients(&c, &data, output);
    cli_adapters_close(&adapters);
    return code ? cli_error(&cli_gradients, CLI_FAILED) : CLI_OK;
}

const struct cli_command cli_gradients = {
    .name = "gradients",
    .summary = "loss and fp32 gradients of the first batch, as safetensors",
    .usage = USAGE_GRADIENTS,
    .run = run,
};

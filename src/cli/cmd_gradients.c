/* gradients: forward and backward of the first batch, for comparison with other trainers. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/data.h"
#include "cli/seats.h"
#include "cli/usage.h"

#include <stdlib.h>

/* What a batch shows of each window, [windows][seq_len] one behind the other. */
enum { IDS, TARGETS, POSITIONS, SEGMENTS, N_ARRAYS };

static int first_batch(struct zinf_session *s, int32_t *arrays, int64_t windows)
{
    uint64_t have = zinf_dataset_n_windows(s->data);
    if (have < (uint64_t)windows)
        return zinf_fail(-EINVAL,
                         "--data has %llu windows of --seq-len %lld, --micro-batch %lld "
                         "asks for more",
                         (unsigned long long)have, (long long)s->seq_len, (long long)windows);
    int code = 0;
    for (int64_t i = 0; !code && i < windows; i++) {
        int32_t *at = arrays + i * s->seq_len;
        const int64_t next = windows * s->seq_len;
        const struct zinf_window window = {.ids = at,
                                           .targets = at + TARGETS * next,
                                           .positions = at + POSITIONS * next,
                                           .segments = at + SEGMENTS * next};
        code = zinf_dataset_fill(s->data, (uint64_t)i, &window);
    }
    return code;
}

static int gradients(const struct zinf_job *c, const struct zinf_words *data, const char *output)
{
    struct zinf_session s = {0};
    struct zinf_trainer *trainer = NULL;
    int32_t *ids = NULL;
    double loss, norm;
    int code = zinf_session_open(&s, c);
    if (!code)
        code = zinf_session_data(&s, c, data, NULL, false, &s.data);
    if (!code)
        code = zinf_apart_check("--output", output, ZINF_WRITTEN_FILE, &s.origins);
    if (!code)
        code = zinf_session_config(&s, c);
    if (code)
        goto out;
    int64_t windows = s.config->micro_batch;
    const int64_t rows = windows * s.seq_len;
    ids = malloc((size_t)(N_ARRAYS * rows) * sizeof *ids);
    if (!ids)
        code = zinf_fail(-ENOMEM, "no memory for a batch");
    if (!code)
        code = first_batch(&s, ids, windows);
    if (!code)
        code = zinf_session_trainer(&s, c, ZINF_TRAINER_GRADIENTS, 0, &trainer);
    const struct zinf_batch batch = {.inputs = {[ZINF_INPUT_IDS] = ids,
                                                [ZINF_INPUT_TARGETS] = ids + TARGETS * rows,
                                                [ZINF_INPUT_POSITIONS] = ids + POSITIONS * rows,
                                                [ZINF_INPUT_SEGMENTS] = ids + SEGMENTS * rows}};
    if (!code)
        code = zinf_trainer_gradients(trainer, &batch, &loss, &norm);
    if (!code)
        code = zinf_trainer_save_gradients(trainer, output);
    if (!code)
        printf("{\"loss\": %.9g, \"grad_norm\": %.9g}\n", loss, norm);
out:
    zinf_trainer_destroy(trainer);
    free(ids);
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

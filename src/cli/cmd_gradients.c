/* gradients: forward and backward of the first batch, for comparison with other trainers. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "api/seats.h"

static int gradients(const struct zinf_job *c, const char *output)
{
    struct zinf_session s = {0};
    struct zinf_trainer *trainer = NULL;
    double loss, norm;
    int code = zinf_session_begin(&s, c);
    if (!code)
        code = zinf_session_config(&s, c);
    if (!code)
        code = zinf_session_data(&s, c, &c->data, NULL, false, &s.data);
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
    zinf_session_end(&s);
    return code;
}

static const char usage[] =
    "usage: zinf gradients --model DIR --data FILE... --seq-len N --micro-batch N\n"
    "                      --output FILE.safetensors [options]\n"
    "\n"
    "Runs forward and backward on the first batch, without dropout; writes fp32\n"
    "gradients under their Hugging Face names and prints {\"loss\", \"grad_norm\"}. For\n"
    "checks against PyTorch.\n";

struct gradients_command {
    struct zinf_job common;
    struct cli_adapters adapters;
    const char *output;
};

#define AT(field) .offset = offsetof(struct gradients_command, field)
#define IN(field) .at = offsetof(struct gradients_command, field)
/* clang-format off */
static const struct option own_adapter[] = {
    OPTION("--adapter", TEXTS, AT(adapters.words), "DIR...",
     "and adapters of it: their gradients alone"),
    CLI_NO_ROW
};
static const struct option own[] = {
    OPTION("--output", TEXT, AT(output), "FILE", ".safetensors file to write"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    {.rows = job_model, IN(common)},
    {.rows = own_adapter},
    {.rows = job_rows, IN(common)},
    {.rows = job_task, IN(common)},
    {.rows = job_seq, IN(common)},
    {.rows = job_micro, IN(common)},
    {.rows = own},
    {.rows = job_dtype, IN(common)},
    {.rows = job_device, IN(common)},
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct gradients_command *o = call->options;
    int code = zinf_job_check(&o->common);
    if (!code)
        code = zinf_job_need("--data FILE", o->common.data.n ? o : NULL);
    return code ? code : zinf_job_need("--output FILE.safetensors", o->output);
}

static int work(struct cli_call *call)
{
    struct gradients_command *o = call->options;
    if (!job_ranks_works_alone("gradients are written"))
        return 0;
    int code = cli_adapters_open(&o->adapters, &o->common.adapter);
    if (!code)
        code = gradients(&o->common, o->output);
    cli_adapters_close(&o->adapters);
    return code;
}

const struct cli_command cli_gradients = {
    .name = "gradients",
    .summary = "loss and fp32 gradients of the first batch, as safetensors",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct gradients_command),
    .usual = &(const struct gradients_command){.common = {.steps = -1, .no_training = true}},
    .check = check,
    .work = work,
};

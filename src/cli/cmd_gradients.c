/* gradients: forward and backward of the first batch, for comparison with other trainers. */
#include "cli/adapters.h"
#include "cli/cli.h"

static const char usage[] =
    "usage: zinf gradients --model DIR --data FILE... --seq-len N --micro-batch N\n"
    "                      --output FILE.safetensors [options]\n"
    "\n"
    "Runs forward and backward on the first batch, without dropout; writes fp32\n"
    "gradients under their Hugging Face names and prints {\"loss\", \"grad_norm\"}. For\n"
    "checks against PyTorch.\n";

struct options {
    struct cli_adapters adapters;
    const char *output;
};

#define AT(field) .offset = offsetof(struct options, field)
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
    CLI_DOOR(job_model),
    {.rows = own_adapter},
    CLI_DOOR(job_rows),
    CLI_DOOR(job_task),
    CLI_DOOR(job_seq),
    CLI_DOOR(job_micro),
    {.rows = own},
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_device),
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    const struct options *o = call->options;
    int code = cli_need_data(call->session);
    return code ? code : session_need("--output FILE.safetensors", o->output);
}

static int work(struct cli_call *call)
{
    struct options *o = call->options;
    double loss, norm;
    if (!job_ranks_works_alone("gradients are written"))
        return 0;
    int code = cli_adapters_open(&o->adapters, &call->session->job.adapter);
    if (!code)
        code = zinf_session_gradients(call->session, o->output, &loss, &norm);
    if (!code)
        printf("{\"loss\": %.9g, \"grad_norm\": %.9g}\n", loss, norm);
    cli_adapters_close(&o->adapters);
    return code;
}

const struct cli_command cli_gradients = {
    .name = "gradients",
    .summary = "loss and fp32 gradients of the first batch, as safetensors",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct options),
    .check = check,
    .work = work,
};

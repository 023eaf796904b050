/* export: a checkpoint's weights as a model folder for others, in the number type they want. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "train/checkpoints.h"
#include "train/train.h"

static int merge_adapters(const struct zinf_export_options *export, const char *base)
{
    const struct zinf_merge_options merge = {
        .adapter = export->checkpoint,
        .base = base,
        .output = export->output,
        .dtype = export->dtype,
        .as_base = export->as_saved,
        .max_shard_bytes = export->max_shard_bytes,
    };
    return zinf_adapter_merge(&merge);
}

struct export_command {
    struct zinf_export_options to;
    const char *dtype, *base;
    struct zinf_words adapters;
    bool merge;
};

/* What is left out has no meaning for adapters that stay adapters. */
static int check_joined(const struct export_command *o)
{
    if (o->to.checkpoint || o->merge || o->base || o->dtype || o->to.max_shard_bytes)
        return zinf_fail(-EINVAL, "--adapter joins adapters into one in fp32: only --output "
                                  "belongs to it; merge that one afterwards");
    return session_need("--output DIR", o->to.output);
}

static int check_one(struct export_command *o)
{
    int code = session_need("--checkpoint DIR", o->to.checkpoint);
    if (!code)
        code = session_need("--output DIR", o->to.output);
    if (!code && o->dtype) {
        o->to.as_saved = false;
        code = zinf_dtype_parse(o->dtype, &o->to.dtype);
        if (code)
            zinf_fail_in(code, "--dtype");
    }
    if (!code && o->base && !o->merge)
        code = zinf_fail(-EINVAL, "--model is the base of adapters, with --merge alone");
    return code;
}

static const char usage[] =
    "usage: zinf export --checkpoint DIR --output DIR [options]\n"
    "       zinf export --adapter DIR[=WEIGHT]... --output DIR\n"
    "\n"
    "Writes a Hugging Face model folder from a checkpoint's fp32 weights, or one\n"
    "adapter from several, in little memory.\n";

#define AT(field) .offset = offsetof(struct export_command, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--checkpoint", TEXT, AT(to.checkpoint), "DIR",
     "checkpoint-N, a training's --output: its latest, or DeepSpeed's"),
    OPTION("--output", TEXT, AT(to.output), "DIR", "folder to write"),
    OPTION("--merge", FLAG, AT(merge), NULL,
     "DIR holds adapters (PEFT's folder will do): add them to the weights of their base"),
    OPTION("--model", TEXT, AT(base), "DIR", "that base",
     .otherwise = "as adapter_config.json names it"),
    OPTION("--adapter", TEXTS, AT(adapters), "DIR...",
     "adapters of one base, as folders or checkpoints: their sum, each by its WEIGHT (default: 1), "
     "as one adapter"),
    OPTION("--dtype", TEXT, AT(dtype), "NAME", "fp32, bf16 or fp16", .words = cli_dtypes,
     .open = true, .otherwise = "as the training has them"),
    OPTION("--max-shard-size", SIZE, AT(to.max_shard_bytes), "SIZE", "largest file",
     .otherwise = "5GB"),
    CLI_NO_ROW
};
/* clang-format on */

static int check(struct cli_call *call)
{
    struct export_command *o = call->options;
    return o->adapters.n ? check_joined(o) : check_one(o);
}

static int work(struct cli_call *call)
{
    const struct export_command *o = call->options;
    int code = o->adapters.n ? cli_adapters_join(&o->adapters, o->to.output)
               : o->merge    ? merge_adapters(&o->to, o->base)
                             : zinf_checkpoint_export(&o->to);
    if (!code)
        zinf_log(ZINF_LOG_INFO, "exported to %s", o->to.output);
    return code;
}

const struct cli_command cli_export = {
    .name = "export",
    .summary = "make a model folder from a checkpoint",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = own}),
    .bytes = sizeof(struct export_command),
    .usual = &(const struct export_command){.to.as_saved = true},
    .check = check,
    .work = work,
};

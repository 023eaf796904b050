/* export: a checkpoint's weights as a model folder for others, in the number type they want. */
#include "cli/adapters.h"
#include "cli/cli.h"
#include "cli/usage.h"
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

/* What is left out has no meaning for adapters that stay adapters. */
static int check_joined(const struct zinf_export_options *export, bool merge, const char *base,
                        const char *dtype)
{
    if (export->checkpoint || merge || base || dtype || export->max_shard_bytes)
        return zinf_fail(-EINVAL, "--adapter joins adapters into one in fp32: only --output "
                                  "belongs to it; merge that one afterwards");
    return export->output ? 0 : zinf_fail(-EINVAL, "--output DIR is missing");
}

static int check(struct zinf_export_options *export, bool merge, const char *base,
                 const char *dtype)
{
    int code = 0;
    if (!export->checkpoint)
        code = zinf_fail(-EINVAL, "--checkpoint DIR is missing");
    if (!code && !export->output)
        code = zinf_fail(-EINVAL, "--output DIR is missing");
    if (!code && dtype) {
        export->as_saved = false;
        code = zinf_dtype_parse(dtype, &export->dtype);
        if (code)
            zinf_fail_in(code, "--dtype");
    }
    if (!code && base && !merge)
        code = zinf_fail(-EINVAL, "--model is the base of adapters, with --merge alone");
    return code;
}

static int run(int argc, char **argv)
{
    struct zinf_export_options export = {.as_saved = true};
    const char *dtype = NULL, *base = NULL;
    struct zinf_words adapters = {.n = 0};
    bool merge = false;
    const struct cli_option options[] = {
        {"--checkpoint", CLI_STRING, &export.checkpoint, 0, 0},
        {"--output", CLI_STRING, &export.output, 0, 0},
        {"--adapter", CLI_STRINGS, &adapters, 0, 0},
        {"--merge", CLI_FLAG, &merge, 0, 0},
        {"--model", CLI_STRING, &base, 0, 0},
        {"--dtype", CLI_STRING, &dtype, 0, 0},
        {"--max-shard-size", CLI_SIZE, &export.max_shard_bytes, 0, 0},
    };
    int code = cli_parse(&cli_export, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!code)
        code = adapters.n ? check_joined(&export, merge, base, dtype)
                          : check(&export, merge, base, dtype);
    if (code)
        return cli_error(&cli_export, CLI_USAGE);
    if (adapters.n ? cli_adapters_join(&adapters, export.output)
        : merge    ? merge_adapters(&export, base)
                   : zinf_checkpoint_export(&export))
        return cli_error(&cli_export, CLI_FAILED);
    zinf_log(ZINF_LOG_INFO, "exported to %s", export.output);
    return CLI_OK;
}

const struct cli_command cli_export = {
    .name = "export",
    .summary = "make a model folder from a checkpoint",
    .usage = USAGE_EXPORT,
    .run = run,
};

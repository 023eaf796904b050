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
    const char *dtype, *base, *gguf;
    enum zinf_gguf_form form;
    struct zinf_words adapters;
    bool merge;
};

static const char *const gguf_forms[] = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k_m", NULL};

static int export_gguf(const struct export_command *o)
{
    const struct zinf_gguf_options gguf = {
        .checkpoint = o->to.checkpoint, .output = o->to.output, .base = o->base, .form = o->form};
    return zinf_gguf_export(&gguf);
}

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
    if (!code && o->gguf)
        code = zinf_gguf_form_parse(o->gguf, &o->form);
    if (!code && o->gguf && (o->dtype || o->merge || o->to.max_shard_bytes))
        code = zinf_fail(-EINVAL, "--gguf says how numbers are stored: leave out --dtype and "
                                  "--max-shard-size; merge adapters first, or leave out --merge to "
                                  "write them as a file of their own");
    if (!code && o->base && !o->merge && !o->gguf)
        code = zinf_fail(-EINVAL, "--model is the base of adapters, with --merge or --gguf alone");
    return code;
}

static const char usage[] =
    "usage: zinf export --checkpoint DIR --output DIR [options]\n"
    "       zinf export --checkpoint DIR --gguf FORM --output FILE\n"
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
    OPTION("--model", TEXT, AT(base), "DIR", "the base of these adapters",
     .otherwise = "as adapter_config.json names it"),
    OPTION("--adapter", TEXTS, AT(adapters), "DIR...",
     "adapters of one base, as folders or checkpoints: their sum, each by its WEIGHT (default: 1), "
     "as one adapter"),
    OPTION("--dtype", TEXT, AT(dtype), "NAME", "fp32, bf16 or fp16", .words = cli_dtypes,
     .open = true, .otherwise = "as the training has them"),
    OPTION("--gguf", TEXT, AT(gguf), "FORM",
     "write one GGUF file, matrices as f32, f16, bf16, q8_0, q4_0 or q4_k_m; DIR may be any "
     "model folder, or adapters, which become a file of their own", .words = gguf_forms, .open = true),
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

/* Bytes are tokens to zinf alone: others take a folder without a tokenizer for one that has none.
 */
static void look_for_tokenizer(const char *folder)
{
    struct zinf_tokenizer *tokenizer = NULL;
    if (!zinf_tokenizer_open(&tokenizer, folder) &&
        !strcmp(zinf_tokenizer_kind(tokenizer), "bytes"))
        zinf_log(ZINF_LOG_WARN,
                 "%s has no tokenizer: zinf takes bytes for tokens there, and AutoTokenizer of "
                 "transformers gives no ids; copy a tokenizer's files there if the model has one",
                 folder);
    zinf_tokenizer_close(tokenizer);
}

static int work(struct cli_call *call)
{
    const struct export_command *o = call->options;
    int code = o->adapters.n ? cli_adapters_join(&o->adapters, o->to.output)
               : o->gguf     ? export_gguf(o)
               : o->merge    ? merge_adapters(&o->to, o->base)
                             : zinf_checkpoint_export(&o->to);
    if (!code)
        zinf_log(ZINF_LOG_INFO, "exported to %s", o->to.output);
    if (!code && !o->adapters.n)
        look_for_tokenizer(o->to.output);
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

/*
 * cmd_config: `zinf config`, the resolved configuration and where each value came from. With
 * --model, "auto" values that hang on the model are resolved as a run with that model does it; what
 * an option would decide stays "auto".
 */
#include "cli/cli.h"
#include "cli/folder.h"

#include <stdlib.h>

#define MAX_RESOLVED_BYTES ((size_t)16 << 20)

/* The configuration is written to files only, whole or not at all: so also here, then shown. */
static int print_json(const struct zinf_config *config)
{
    char folder[CLI_FOLDER_BYTES], *path = NULL, *text = NULL;
    size_t bytes = 0;
    int code = cli_folder_make(folder, "config");
    if (!code && !(path = zinf_path_join(folder, "config.resolved.json")))
        code = -ENOMEM;
    if (code || (code = zinf_config_write(config, path)) ||
        (code = zinf_file_read(path, MAX_RESOLVED_BYTES, &text, &bytes)))
        goto out;
    fputs(text, stdout);
    if (bytes && text[bytes - 1] != '\n')
        putchar('\n');
out:
    cli_folder_remove(folder);
    free(text);
    free(path);
    return code;
}

static int print_table(const struct zinf_config *config)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    int code = out ? zinf_config_print(config, out) : zinf_fail(-ENOMEM, "no memory for a table");
    if (out && !fclose(out) && !code)
        cli_print_lines(stdout, text);
    free(text);
    return code;
}

static int show(const struct zinf_job *c, bool json)
{
    struct zinf_config_context context = zinf_job_context(c);
    struct zinf_config *config = NULL;
    struct zinf_model *model = NULL;
    int code = 0;
    context.show = true;
    if (c->model) {
        if ((code = zinf_model_open(&model, c->model)))
            goto out;
        context.hidden_size = zinf_model_facts(model)->hidden;
        context.dtype = zinf_dtype_name(zinf_model_facts(model)->file_dtype);
    }
    if ((code = zinf_config_load(&config, c->config, &context)))
        goto out;
    code = json ? print_json(config) : print_table(config);
out:
    zinf_config_destroy(config);
    zinf_model_close(model);
    return code;
}

static const char usage[] =
    "usage: zinf config --config FILE [--model DIR] [options]\n"
    "\n"
    "Prints the resolved configuration, each value with where it came from. The\n"
    "options of zinf train that change it may be given too.\n";

struct config_command {
    struct zinf_job common;
    bool json;
};

#define AT(field) .offset = offsetof(struct config_command, field)
#define IN(field) .at = offsetof(struct config_command, field)
/* clang-format off */
static const struct option own[] = {
    OPTION("--model", TEXT, AT(common.model), "DIR",
     "whose config.json \"auto\" values are taken from"),
    OPTION("--json", FLAG, AT(json), NULL, "one JSON object, which is itself a configuration"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    {.rows = own},
    {.rows = job_step, IN(common)},
    {.rows = job_pairs, IN(common)},
    {.rows = job_dtype, IN(common)},
    {.rows = job_group, IN(common)},
    {.rows = job_pad, IN(common)},
    {.rows = job_best, IN(common)},
    {.rows = job_device, IN(common)},
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    const struct config_command *o = call->options;
    return o->common.config ? 0 : zinf_fail(-EINVAL, "--config FILE is needed");
}

static int work(struct cli_call *call)
{
    const struct config_command *o = call->options;
    return show(&o->common, o->json);
}

const struct cli_command cli_config = {
    .name = "config",
    .summary = "print the resolved configuration and where each value came from",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(struct config_command),
    .usual = &(const struct config_command){.common = ZINF_JOB_DEFAULT},
    .check = check,
    .work = work,
};

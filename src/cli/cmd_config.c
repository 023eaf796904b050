/*
 * cmd_config: `zinf config`, the resolved configuration and where each value came from. With
 * --model, "auto" values that hang on the model are resolved as a run with that model does it; what
 * an option would decide stays "auto".
 */
#include "cli/cli.h"
#include "cli/data.h"
#include "cli/folder.h"
#include "cli/usage.h"

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

static int run(int argc, char **argv)
{
    struct zinf_job c = ZINF_JOB_DEFAULT;
    bool json = false;
    const struct cli_option options[] = {
        {"--model", CLI_STRING, &c.model, 0, 0},
        CLI_DEVICE_OPTIONS(&c),
        CLI_STEP_OPTIONS(&c),
        CLI_GROUP_OPTION(&c),
        CLI_PAD_OPTION(&c),
        CLI_BEST_OPTIONS(&c),
        {"--json", CLI_FLAG, &json, 0, 0},
    };
    int code = cli_parse(&cli_config, options, sizeof options / sizeof *options, NULL, argc, argv);
    if (code)
        return code < 0 ? cli_error(&cli_config, CLI_USAGE) : CLI_OK;
    if (!c.config) {
        zinf_fail(-EINVAL, "--config FILE is needed");
        return cli_error(&cli_config, CLI_USAGE);
    }
    return show(&c, json) ? cli_error(&cli_config, CLI_FAILED) : CLI_OK;
}

const struct cli_command cli_config = {
    .name = "config",
    .summary = "print the resolved configuration and where each value came from",
    .usage = USAGE_CONFIG,
    .run = run,
};

/*
 * cmd_config: `zinf config`, the resolved configuration and where each value came from. With
 * --model, "auto" values that depend on the model are resolved as a run with that model does it;
 * what an option would decide stays "auto".
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

static int show(struct zinf_session *s, bool json)
{
    struct zinf_config_context context;
    struct zinf_config *config = NULL;
    struct zinf_model *model = NULL;
    int code = 0;
    s->use = JOB_TRAINS;
    context = session_context(s);
    context.show = true;
    if (s->job.model) {
        if ((code = zinf_model_open(&model, s->job.model)))
            goto out;
        context.hidden_size = zinf_model_facts(model)->hidden;
        context.dtype = zinf_dtype_name(zinf_model_facts(model)->file_dtype);
    }
    if ((code = zinf_config_load(&config, s->job.config, &context)))
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

/* clang-format off */
static const struct option own_model[] = {
    OPTION("--model", TEXT, .offset = 0, "DIR", "whose config.json \"auto\" values are taken from"),
    CLI_NO_ROW
};
static const struct option own[] = {
    OPTION("--json", FLAG, .offset = 0, NULL, "one JSON object, which is itself a configuration"),
    CLI_NO_ROW
};
static const struct option_group groups[] = {
    CLI_DOOR(own_model),
    {.rows = own},
    CLI_DOOR(job_step),
    CLI_DOOR(job_pairs),
    CLI_DOOR(job_dtype),
    CLI_DOOR(job_group),
    CLI_DOOR(job_pad),
    CLI_DOOR(job_best),
    CLI_DOOR(job_device),
    CLI_NO_GROUP
};
/* clang-format on */

static int check(struct cli_call *call)
{
    return call->session->job.config ? 0 : zinf_fail(-EINVAL, "--config FILE is needed");
}

static int work(struct cli_call *call)
{
    const bool *json = call->options;
    return show(call->session, *json);
}

const struct cli_command cli_config = {
    .name = "config",
    .summary = "print the resolved configuration and where each value came from",
    .usage = usage,
    .groups = groups,
    .bytes = sizeof(bool),
    .check = check,
    .work = work,
};

/* command: what all commands do alike: from words to an exit status, and JSON on standard output.
 */
#include "cli/cli.h"

#include <stdlib.h>

int cli_error(const struct cli_command *command, int status)
{
    const char *message = zinf_error();
    fprintf(stderr, "zinf %s: %s\n", command->name, *message ? message : "failed");
    if (status == CLI_USAGE)
        fprintf(stderr, "'zinf help %s' lists the options\n", command->name);
    return status;
}

int cli_need_data(const struct zinf_session *session)
{
    int code = session_need_model(session);
    return code ? code : session_need("--data FILE", session->job.data.n ? session : NULL);
}

static bool has_session(const struct cli_command *command)
{
    const struct option_group *group = command->groups;
    while (group && group->rows && !group->door)
        group++;
    return group && group->rows;
}

static int work(struct cli_call *call, int argc, char **argv)
{
    const struct cli_command *command = call->command;
    int code = cli_parse(call, argc, argv);
    if (code == 1)
        return CLI_OK;
    if (!code && has_session(command))
        code = zinf_session_open(&call->session, call->settings, call->n_settings);
    if (!code && command->check)
        code = command->check(call);
    if (code)
        return cli_error(command, CLI_USAGE);
    code = command->work(call);
    return code < 0 ? cli_error(command, CLI_FAILED) : code;
}

int cli_run(const struct cli_command *command, int argc, char **argv)
{
    struct cli_call call = {.command = command};
    int status = CLI_FAILED;
    if (command->run)
        return command->run(argc, argv);
    call.options = calloc(1, command->bytes + 1);
    call.settings = calloc((size_t)argc, sizeof *call.settings);
    call.looked_at = calloc(1, sizeof *call.looked_at);
    if (call.options && call.settings && call.looked_at) {
        if (command->usual)
            memcpy(call.options, command->usual, command->bytes);
        status = work(&call, argc, argv);
    } else {
        zinf_fail(-ENOMEM, "no memory for options");
        cli_error(command, status);
    }
    zinf_session_close(call.session); /* when what failed is said: other ranks may end then */
    free(call.settings);
    free(call.looked_at);
    free(call.options);
    return status;
}

/* ---- JSON ---- */

static int print_and_free(cJSON *root, char *text)
{
    if (text)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(root);
    return text ? 0 : zinf_fail(-ENOMEM, "no memory for the JSON text");
}

int cli_print_json(cJSON *root)
{
    return print_and_free(root, cJSON_Print(root));
}

int cli_print_json_line(cJSON *root)
{
    return print_and_free(root, cJSON_PrintUnformatted(root));
}

cJSON *cli_json_append(cJSON *list)
{
    cJSON *object = cJSON_CreateObject();
    if (object && cJSON_AddItemToArray(list, object))
        return object;
    cJSON_Delete(object);
    return NULL;
}

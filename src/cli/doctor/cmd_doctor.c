/*
 * cmd_doctor: `zinf doctor`, the first thing to run on a machine with a GPU: in seconds, one line
 * for all that a training will need of it, with a remedy for each that is not as it should be.
 */
#include "cli/doctor/doctor.h"

#include <stdarg.h>

static const char usage[] =
    "usage: zinf doctor [--json]\n"
    "\n"
    "Looks at all that a training on the GPU needs: driver, libraries, the GPU and\n"
    "its memory, NCCL for several GPUs, copies, every operation and a step of a tiny\n"
    "model against the host.\n"
    "ZINF_GPU chooses a GPU. Status 1 where a line is not ok; it then has a remedy.\n";

static const char *const states[] = {
    [DOCTOR_OK] = "ok",
    [DOCTOR_WARNING] = "warning",
    [DOCTOR_FAILED] = "FAILED",
    [DOCTOR_LEFT_OUT] = "left out",
};

void doctor_line(struct doctor *d, const char *what, enum doctor_state state, const char *remedy,
                 const char *format, ...)
{
    char text[2048];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    d->failed = d->failed || state == DOCTOR_FAILED;
    if (d->lines) {
        cJSON *line = cJSON_CreateObject();
        cJSON_AddStringToObject(line, "what", what);
        cJSON_AddStringToObject(line, "state", states[state]);
        cJSON_AddStringToObject(line, "found", text);
        if (remedy)
            cJSON_AddStringToObject(line, "remedy", remedy);
        cJSON_AddItemToArray(d->lines, line);
        return;
    }
    printf("%-10s %-9s %s\n", what, states[state], text);
    if (remedy)
        printf("%-20s remedy: %s\n", "", remedy);
    fflush(stdout);
}

static void look(struct doctor *d)
{
    doctor_driver(d);
    bool usable = doctor_libraries(d) && doctor_gpu(d);
    doctor_links(d);
    if (!usable) {
        doctor_line(d, "the rest", DOCTOR_LEFT_OUT, NULL, "copies, operations, a step");
        return;
    }
    doctor_copies(d);
    doctor_kernels(d);
    doctor_step(d);
}

/* clang-format off */
static const struct option_group groups[] = {
    {.rows = cli_json},
    CLI_NO_GROUP
};
/* clang-format on */

static int run(int argc, char **argv)
{
    bool json = false;
    int code = cli_parse(&cli_doctor, &json, NULL, argc, argv);
    if (code)
        return code < 0 ? cli_error(&cli_doctor, CLI_USAGE) : CLI_OK;
    cJSON *all = json ? cJSON_CreateObject() : NULL;
    struct doctor d = {all ? cJSON_AddArrayToObject(all, "lines") : NULL, false};
    look(&d);
    char *text = all ? cJSON_Print(all) : NULL;
    if (text)
        puts(text);
    cJSON_free(text);
    cJSON_Delete(all);
    return d.failed ? CLI_FAILED : CLI_OK;
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .summary = "check what a training on the GPU needs",
    .usage = usage,
    .groups = groups,
    .run = run,
};

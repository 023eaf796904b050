/*
 * cmd_doctor: `zinf doctor`, the first thing to run on a machine with a GPU: in seconds, one line
 * for all that a training will need of it, with a remedy for each that is not as it should be.
 */
#include "cli/doctor/doctor.h"

static const char usage[] =
    "usage: zinf doctor [--json]\n"
    "\n"
    "Looks at all that a training on the GPU needs: driver, libraries, the GPU and\n"
    "its memory, NCCL for several GPUs, copies, every kernel and a step of a tiny\n"
    "model against the host.\n"
    "ZINF_GPU chooses a GPU. Status 1 where a line is not ok; it then has a remedy.\n";

static void look(struct doctor *d)
{
    doctor_driver(d);
    bool usable = doctor_libraries(d) && doctor_gpu(d);
    doctor_links(d);
    if (!usable) {
        doctor_line(d, "the rest", DOCTOR_LEFT_OUT, NULL,
                    "copies, kernels, a step; without a GPU training goes on the CPU (--device "
                    "host), which needs none of this");
        return;
    }
    doctor_copies(d);
    doctor_kernels(d);
    doctor_step(d);
}

static int work(struct cli_call *call)
{
    const bool *json = call->options;
    cJSON *all = *json ? cJSON_CreateObject() : NULL;
    struct doctor d = {all ? cJSON_AddArrayToObject(all, "lines") : NULL, false};
    look(&d);
    int code = *json ? cli_print_json(all) : 0;
    return code ? code : d.failed ? CLI_FAILED : CLI_OK;
}

const struct cli_command cli_doctor = {
    .name = "doctor",
    .summary = "check what a training on the GPU needs",
    .usage = usage,
    .groups = CLI_GROUPS({.rows = cli_json}),
    .bytes = sizeof(bool),
    .work = work,
};

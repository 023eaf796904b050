/*
 * cmd_bench: `zinf bench`, the table of what can be measured.
 */
#include "cli/bench/bench.h"

static const struct cli_command *const modes[] = {&bench_nvme,      &bench_optim, &bench_gemm,
                                                  &bench_attention, &bench_pcie,  &bench_memory,
                                                  &bench_schedule,  &bench_all};
#define N_MODES (sizeof modes / sizeof *modes)

static const char usage[] =
    "usage: zinf bench MODE [options]\n"
    "\n"
    "Measures this machine. Results are kept for 'zinf estimate'.\n"
    "\n"
    "  nvme                  drives: reads, writes, latency, best settings\n"
    "  optim                 CPU optimizers against memory bandwidth\n"
    "  gemm                  matrix products on the device\n"
    "  attention             attention on the device, forward and backward\n"
    "  pcie                  copies between host memory and a GPU\n"
    "  memory                copies within the device's memory\n"
    "  schedule              orders of a step's operations, at set rates\n"
    "  all                   the speeds that plans use, in a minute or two\n"
    "\n"
    "'zinf bench MODE --help' lists a mode's options.\n";

static int run(int argc, char **argv)
{
    const char *names[N_MODES];
    if (argc < 2) {
        fputs(usage, stderr);
        return CLI_USAGE;
    }
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "-h")) {
        fputs(usage, stdout);
        return CLI_OK;
    }
    for (size_t i = 0; i < N_MODES; i++) {
        names[i] = modes[i]->name + strlen("bench ");
        if (!strcmp(argv[1], names[i])) {
            bench_watch();
            return cli_run(modes[i], argc - 1, argv + 1);
        }
    }
    const char *near = zinf_nearest(argv[1], names, N_MODES);
    fprintf(stderr, "zinf bench: unknown mode '%s'%s%s%s; 'zinf help bench' lists the modes\n",
            argv[1], near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
    return CLI_USAGE;
}

const struct cli_command cli_bench = {
    .name = "bench",
    .summary = "measure drives, optimizers and the device",
    .usage = usage,
    .run = run,
};

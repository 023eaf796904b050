/*
 * bench_nvme: `zinf bench nvme`.
 */
#include "cli/bench.h"

static const char usage[] = "usage: zinf bench nvme [options]\n";

static int run(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cli_error(&bench_nvme, zinf_fail(-ENOSYS, "not built yet"));
}

const struct cli_command bench_nvme = {"bench nvme", "", usage, run};

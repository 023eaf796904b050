/*
 * bench_optim: `zinf bench optim`.
 */
#include "cli/bench.h"

static const char usage[] = "usage: zinf bench optim [options]\n";

static int run(int argc, char **argv)
{
    (void)argc;
    (void)argv;
    return cli_error(&bench_optim, zinf_fail(-ENOSYS, "not built yet"));
}

const struct cli_command bench_optim = {"bench optim", "", usage, run};

/*
 * bench: `zinf bench MODE`. Each mode is a file with one entry in the table of cmd_bench.c, has
 * options and usage of its own like a command, and leaves what it measured in the cache that
 * `zinf estimate` reads.
 */
#ifndef ZINF_CLI_BENCH_H
#define ZINF_CLI_BENCH_H

#include "api/speeds.h"
#include "base/json.h"
#include "cli/cli.h"
#include "config/config.h"
#include "kernels/kernels.h"

extern const struct cli_command bench_nvme, bench_optim, bench_gemm, bench_attention, bench_pcie,
    bench_memory, bench_schedule, bench_all;

/* Prints result, if there is one and code is 0, and frees it; what the work of the bench returns.
 */
int bench_finish(const struct cli_command *bench, cJSON *result, int code);

/* Begins to watch what other processes use of the CPUs. Each mode calls it once, before it
 * measures.
 */
void bench_watch(void);
/* bench_waking.c: seconds from waking a thread until it goes on, the median of many; 0: there is no
 * thread to be had. Takes 20 ms. */
double bench_waking_seconds(void);
/* Saves a result in the cache of speeds.h, with "date" (UTC) added, and "others",
 * the part of the CPUs that other processes used since bench_watch, where it replaces that one
 * alone; result is the caller's. Rates are in bytes, elements or flops a second. A cache that
 * cannot be written is a warning, never a failure of the bench. */
void bench_cache_save(const char *section, const char *key, const cJSON *result);

#endif

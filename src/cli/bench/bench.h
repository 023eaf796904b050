/*
 * bench: `zinf bench MODE`. Each mode is a file with one entry in the table of cmd_bench.c, has
 * options and usage of its own like a command, and leaves what it measured in the cache that
 * `zinf estimate` reads.
 */
#ifndef ZINF_CLI_BENCH_H
#define ZINF_CLI_BENCH_H

#include "base/json.h"
#include "cli/cli.h"
#include "config/config.h"
#include "kernels/kernels.h"

extern const struct cli_command bench_nvme, bench_optim, bench_gemm, bench_attention, bench_pcie,
    bench_memory, bench_schedule, bench_all;

/* Prints result, if there is one and code is 0, and frees it; what the work of the bench returns.
 */
int bench_finish(const struct cli_command *bench, cJSON *result, int code);

/* The cache: one JSON object, "zinf/bench.json" under $XDG_CACHE_HOME or ~/.cache. Every result is
 * an object under section and key, with "date" (UTC) added, such as "nvme" -> "/mnt/ssd" ->
 * {"read": bytes/s, "write": bytes/s, "mixed": bytes/s}. Rates are in bytes, elements or flops a
 * second. Saving replaces that one result; result is the caller's. A cache that cannot be written
 * is a warning, never a failure of the bench. */
void bench_cache_save(const char *section, const char *key, const cJSON *result);
/* The whole cache, or an empty object; free with cJSON_Delete. NULL only without memory. */
cJSON *bench_cache_load(void);
/* "host/avx512/bf16", "cuda/bf16": figures of a device are no use to another. */
const char *bench_device_key(char out[32], enum zinf_device_kind kind, enum zinf_dtype dtype);
/* As `zinf bench optim` names the optimizer of a configuration, and the form of its state. */
void bench_optimizer_form(const struct zinf_config *config, const char **optimizer,
                          const char **form);
/* Result of section and key, borrowed from cache; NULL if there is none. */
const cJSON *bench_cache_find(const cJSON *cache, const char *section, const char *key);

#endif

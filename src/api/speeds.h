/*
 * speeds: what `zinf bench` measured on this machine and left in its cache, as estimates go by it.
 * The cache is one JSON object, "zinf/bench.json" under $XDG_CACHE_HOME or ~/.cache. A result is an
 * object under section and key, such as "nvme" -> "/mnt/ssd" -> {"read": bytes/s, "date": ...}. A
 * damaged or foreign file is taken as empty: it costs a measurement, not a run.
 */
#ifndef ZINF_API_SPEEDS_H
#define ZINF_API_SPEEDS_H

#include "base/json.h"
#include "config/config.h"
#include "train/estimate.h"

/* Above this part of the CPUs that others used ("others" of a result), a rate says little of the
 * machine: its source says so. */
#define SPEEDS_MOST_OTHERS 0.1

/* Rates that a plan goes by, and where each is from: "zinf bench gemm, 2026-11-22". */
enum speed_rate {
    SPEED_PRODUCTS,
    SPEED_ATTENTION,
    SPEED_BANDWIDTH,
    SPEED_LINK,
    SPEED_OPTIMIZER,
    SPEED_PACKING,
    SPEED_UPDATE, /* products of updates, on the CPU */
    SPEED_READ,
    SPEED_WRITE,
    SPEED_MIXED,
    SPEED_ROOT,
    SPEED_PEER,
    SPEED_RATES,
};
struct speed_sources {
    char of[SPEED_RATES][96];
};
/* Whether the rate was measured while others used more than SPEEDS_MOST_OTHERS of the CPUs. */
bool speeds_under_load(const struct speed_sources *sources, enum speed_rate rate);
/* Those for this configuration and kind of device; 0: not known. */
void speeds_cached(struct zinf_speeds *out, struct speed_sources *sources,
                   const struct zinf_config *config, enum zinf_device_kind device);

/* The cache's path, on the heap; NULL where the environment names no home. */
char *speeds_cache_path(bool make_folder);
/* The whole cache, or an empty object; free with cJSON_Delete. NULL only without memory. */
cJSON *speeds_cache_load(void);
/* "host/avx512/bf16", "cuda/bf16": figures of a device are no use to another. */
const char *speeds_device_key(char out[32], enum zinf_device_kind kind, enum zinf_dtype dtype);
/* As `zinf bench optim` names the optimizer of a configuration, and the form of its state. */
void speeds_optimizer_form(const struct zinf_config *config, const char **optimizer,
                           const char **form);

#endif

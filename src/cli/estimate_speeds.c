/* estimate_speeds: what the benches of this machine left in the cache, each with its day. */
#include "cli/estimate.h"

#include "cli/bench.h"

#include <stdlib.h>

static double number_of(const cJSON *result, const char *key)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(result, key);
    /* Neither a damaged file nor a clock that stood still makes a speed that no machine has. */
    bool sane = cJSON_IsNumber(number) && number->valuedouble > 1e3 && number->valuedouble < 1e20;
    return sane ? number->valuedouble : 0;
}

/* Several drives add up. */
static const cJSON *add_drives(const cJSON *cache, const struct zinf_config_offload *section,
                               struct zinf_speeds *out)
{
    const cJSON *any = NULL;
    for (int i = 0; i < section->n_nvme_paths; i++) {
        char *path = realpath(section->nvme_path[i], NULL);
        const cJSON *drive = bench_cache_find(cache, "nvme", path ? path : section->nvme_path[i]);
        if (!drive)
            drive = bench_cache_find(cache, "nvme", section->nvme_path[i]);
        out->drive_read_bytes += number_of(drive, "read");
        out->drive_write_bytes += number_of(drive, "write");
        out->drive_mixed_bytes += number_of(drive, "mixed");
        any = drive ? drive : any;
        free(path);
    }
    return any;
}

/* As `zinf bench optim` names the optimizer and the form of its state. */
static void optimizer_form(const struct zinf_config *config, char form[48])
{
    bool split = config->dtype == ZINF_DTYPE_BF16;
    if (!strcmp(config->optimizer.type, "AdamW8bit"))
        snprintf(form, 48, "AdamW/%s8bit", split ? "split-" : "");
    else
        snprintf(form, 48, "%s/%s", config->optimizer.type, split ? "split" : "fp32");
}

/* "matrix products: measured 2026-11-22 by zinf bench gemm", or that they were not. */
static void say_source(char source[ESTIMATE_SOURCE_BYTES], const char *what, const cJSON *result,
                       const char *bench)
{
    size_t used = strlen(source);
    const cJSON *date = cJSON_GetObjectItemCaseSensitive(result, "date");
    const char *opening = used ? "; " : "";
    if (result)
        snprintf(source + used, ESTIMATE_SOURCE_BYTES - used, "%s%s by zinf bench %s of %.10s",
                 opening, what, bench, cJSON_IsString(date) ? date->valuestring : "an unknown day");
    else
        snprintf(source + used, ESTIMATE_SOURCE_BYTES - used, "%s%s assumed (zinf bench %s)",
                 opening, what, bench);
}

void estimate_cached_speeds(struct zinf_speeds *out, const struct zinf_config *config,
                            enum zinf_device_kind device, char source[ESTIMATE_SOURCE_BYTES])
{
    cJSON *cache = bench_cache_load();
    char form[48], key[32];
    if (device == ZINF_DEVICE_AUTO)
        device = zinf_device_cuda_why_not() ? ZINF_DEVICE_HOST : ZINF_DEVICE_CUDA;
    const struct zinf_config_offload *drives = config->offload_optimizer.device == ZINF_PLACE_NVME
                                                   ? &config->offload_optimizer
                                                   : &config->offload_param;
    optimizer_form(config, form);
    memset(out, 0, sizeof *out);
    source[0] = 0;
    const cJSON *gemm =
        bench_cache_find(cache, "gemm", bench_device_key(key, device, config->dtype));
    const cJSON *optim = bench_cache_find(cache, "optim", form);
    const cJSON *link = bench_cache_find(cache, "pcie", "pinned"), *drive = NULL;
    out->device_flops = number_of(gemm, "flops");
    out->optimizer_bytes = number_of(optim, "bytes");
    say_source(source, "matrix products", gemm, "gemm");
    say_source(source, "optimizer", optim, "optim");
    if (device == ZINF_DEVICE_CUDA) {
        out->link_bytes = number_of(link, "both");
        say_source(source, "copies", link, "pcie");
    }
    if (drives->device == ZINF_PLACE_NVME) {
        drive = add_drives(cache, drives, out);
        say_source(source, "drive", drive, "nvme");
    }
    cJSON_Delete(cache);
}

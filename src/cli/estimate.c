/* estimate: the figures of `zinf estimate` for people and for programs, and speeds from the cache.
 */
#include "cli/estimate.h"

#include "cli/bench.h"

#include <math.h>
#include <stdlib.h>

static const char *const lanes[] = {"read", "write", "h2d", "d2h", "device", "host"};
static const char *const lane_texts[] = {"drive reads", "drive writes", "to the device",
                                         "to the host", "device",       "CPU"};
static const char *const tiers[] = {"device", "host", "drive"};
#define N_LANES (sizeof lanes / sizeof *lanes)

static void print_memory(const struct zinf_estimate *e)
{
    char size[16], budget[16], pinned[16];
    fputs("memory       ", stdout);
    for (int i = 0; i < 3; i++) {
        printf("%s%s %s", i ? ", " : "", tiers[i],
               zinf_size_format(size, sizeof size, e->bytes[i]));
        if (e->budget[i] != UINT64_MAX)
            printf(" of %s", zinf_size_format(budget, sizeof budget, e->budget[i]));
        if (i == 1)
            printf(" (pinned %s)", zinf_size_format(pinned, sizeof pinned, e->pinned));
    }
    putchar('\n');
    if (e->ram_is_shared)
        printf("             in all %s of RAM: the device is the CPU\n",
               zinf_size_format(size, sizeof size, e->bytes[0] + e->bytes[1]));
}

static void print_step(const struct estimate *e)
{
    const struct zinf_estimate *n = &e->now;
    double busy = n->lane_seconds[n->bottleneck] / n->step_seconds;
    printf("step         %.3g s for %llu tokens: %.4g tokens/s, schedule %s\n", n->step_seconds,
           (unsigned long long)n->tokens, (double)n->tokens / n->step_seconds, n->schedule);
    printf("limited by   %s, busy for %.0f %% of the step\n", lane_texts[n->bottleneck],
           100 * busy);
    for (size_t i = 0; i < N_LANES; i++)
        if (n->lane_seconds[i] > 0)
            printf("             %-13s %10.4f s %10.3f GB\n", lane_texts[i], n->lane_seconds[i],
                   (double)n->lane_bytes[i] * 1e-9);
    printf("utilisation  %.1f %% of %.0f GFLOP/s of matrix products (3 x forward / step)\n",
           100 * estimate_utilisation(e), n->matrix_flops * 1e-9);
}

static void print_wear(const struct estimate *e)
{
    const struct zinf_estimate *n = &e->now;
    double day = estimate_written_a_day(e);
    if (!n->lane_bytes[0] && !n->lane_bytes[1])
        return;
    printf("drive        %.3f GB read, %.3f GB written a step; %.2f TB written a day",
           (double)n->lane_bytes[0] * 1e-9, (double)n->lane_bytes[1] * 1e-9, day * 1e-12);
    if (day > 0)
        printf(": %.0f TBW last %.0f days", e->tbw * 1e-12, e->tbw / day);
    putchar('\n');
}

void estimate_print(const struct estimate *e)
{
    printf("model        %llu parameters on %s\n", (unsigned long long)e->now.params,
           e->now.device);
    print_memory(&e->now);
    print_step(e);
    print_wear(e);
    for (int i = 0; i < e->n_changes; i++) {
        double seconds = e->changes[i].step_seconds;
        printf("%-12s %s: ", i ? "" : "if there was", e->changes[i].what);
        if (seconds > 0)
            printf("%.3g s a step (%+.0f %%)\n", seconds, /* no "-0" */
                   round(100 * (seconds / e->now.step_seconds - 1)) + 0.0);
        else
            puts("no other plan");
    }
    printf("speeds       %s\n", e->source);
    if (e->steps_apart > 0)
        printf("             which differed by %.0f %% among themselves\n",
               100 * (e->steps_apart - 1));
}

static void add_lanes(cJSON *root, const struct zinf_estimate *n)
{
    cJSON *busy = cJSON_AddObjectToObject(root, "lane_seconds");
    cJSON *bytes = cJSON_AddObjectToObject(root, "lane_bytes");
    for (size_t i = 0; i < N_LANES; i++) {
        cJSON_AddNumberToObject(busy, lanes[i], n->lane_seconds[i]);
        cJSON_AddNumberToObject(bytes, lanes[i], (double)n->lane_bytes[i]);
    }
}

static void add_memory(cJSON *root, const struct zinf_estimate *n)
{
    cJSON *bytes = cJSON_AddObjectToObject(root, "peak_bytes");
    cJSON *budget = cJSON_AddObjectToObject(root, "budget_bytes");
    for (int i = 0; i < 3; i++) {
        cJSON_AddNumberToObject(bytes, tiers[i], (double)n->bytes[i]);
        if (n->budget[i] != UINT64_MAX)
            cJSON_AddNumberToObject(budget, tiers[i], (double)n->budget[i]);
    }
    cJSON_AddNumberToObject(bytes, "pinned", (double)n->pinned);
}

int estimate_print_json(const struct estimate *e)
{
    const struct zinf_estimate *n = &e->now;
    cJSON *root = cJSON_CreateObject();
    cJSON_AddNumberToObject(root, "parameters", (double)n->params);
    cJSON_AddStringToObject(root, "device", n->device);
    add_memory(root, n);
    cJSON_AddNumberToObject(root, "step_seconds", n->step_seconds);
    cJSON_AddNumberToObject(root, "tokens_per_step", (double)n->tokens);
    cJSON_AddNumberToObject(root, "tokens_per_second", (double)n->tokens / n->step_seconds);
    cJSON_AddStringToObject(root, "schedule", n->schedule);
    cJSON_AddStringToObject(root, "bottleneck", lanes[n->bottleneck]);
    add_lanes(root, n);
    cJSON_AddNumberToObject(root, "drive_seconds", n->drive_seconds);
    cJSON_AddNumberToObject(root, "written_per_day", estimate_written_a_day(e));
    cJSON_AddNumberToObject(root, "tbw", e->tbw);
    if (n->lane_bytes[1])
        cJSON_AddNumberToObject(root, "drive_life_days", e->tbw / estimate_written_a_day(e));
    cJSON_AddNumberToObject(root, "model_flops", n->model_flops);
    cJSON_AddNumberToObject(root, "flops_utilisation", estimate_utilisation(e));
    cJSON *changes = cJSON_AddArrayToObject(root, "changes");
    for (int i = 0; i < e->n_changes; i++) {
        cJSON *change = cJSON_CreateObject();
        if (change && !cJSON_AddItemToArray(changes, change))
            cJSON_Delete(change);
        cJSON_AddStringToObject(change, "what", e->changes[i].what);
        if (e->changes[i].step_seconds > 0)
            cJSON_AddNumberToObject(change, "step_seconds", e->changes[i].step_seconds);
    }
    cJSON_AddStringToObject(root, "speeds", e->source);
    if (e->steps_apart > 0)
        cJSON_AddNumberToObject(root, "steps_apart", e->steps_apart);
    char *text = cJSON_Print(root);
    if (text)
        puts(text);
    int code = text ? 0 : zinf_fail(-ENOMEM, "no memory for the estimate");
    cJSON_free(text);
    cJSON_Delete(root);
    return code;
}

static double number_of(const cJSON *result, const char *key)
{
    const cJSON *number = cJSON_GetObjectItemCaseSensitive(result, key);
    /* Neither a damaged file nor a clock that stood still makes a speed that no machine has. */
    bool sane = cJSON_IsNumber(number) && number->valuedouble > 1e3 && number->valuedouble < 1e20;
    return sane ? number->valuedouble : 0;
}

/* Several drives add up. */
static bool add_drives(const cJSON *cache, const struct zinf_config_offload *section,
                       struct zinf_speeds *out)
{
    bool any = false;
    for (int i = 0; i < section->n_nvme_paths; i++) {
        char *path = realpath(section->nvme_path[i], NULL);
        const cJSON *drive = bench_cache_find(cache, "nvme", path ? path : section->nvme_path[i]);
        if (!drive)
            drive = bench_cache_find(cache, "nvme", section->nvme_path[i]);
        out->drive_read_bytes += number_of(drive, "read");
        out->drive_write_bytes += number_of(drive, "write");
        out->drive_mixed_bytes += number_of(drive, "mixed");
        any |= drive != NULL;
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

void estimate_cached_speeds(struct zinf_speeds *out, const struct zinf_config *config,
                            const char **source)
{
    cJSON *cache = bench_cache_load();
    char form[48];
    const char *type = zinf_dtype_name(config->dtype);
    optimizer_form(config, form);
    memset(out, 0, sizeof *out);
    bool drive = add_drives(cache, &config->offload_optimizer, out) ||
                 add_drives(cache, &config->offload_param, out);
    out->optimizer_bytes = number_of(bench_cache_find(cache, "optim", form), "bytes");
    out->device_flops = number_of(bench_cache_find(cache, "gemm", type), "flops");
    out->link_bytes = number_of(bench_cache_find(cache, "pcie", "pinned"), "both");
    bool any = drive || out->optimizer_bytes > 0 || out->device_flops > 0;
    *source = !any ? "stated defaults; --measure measures them"
              : drive && out->device_flops > 0
                  ? "from zinf bench; --measure measures this shape"
                  : "from zinf bench where it was run, else stated defaults; --measure measures "
                    "them";
    cJSON_Delete(cache);
}

/*
 * estimate_place: where things can be, for a model and a machine without a configuration: the
 * nearest tiers that have room, as if all were allowed. What is found is a configuration, which is
 * printed, and written where somebody names a file.
 */
#include "cli/estimate/estimate.h"

#include <errno.h>

#define DRIVE "nvme-of-zinf" /* a folder beside where the training begins */

/* From near to far; %s: a folder. */
static const char *const placements[] = {
    "\"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": {\"device\": \"cpu\"}}",
    "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"cpu\"}, "
    "\"offload_optimizer\": {\"device\": \"cpu\"}}",
    "\"zero_optimization\": {\"stage\": 3, \"offload_param\": {\"device\": \"nvme\", "
    "\"nvme_path\": %s}, \"offload_optimizer\": {\"device\": \"nvme\", \"nvme_path\": %s}}",
};

/* "..." as JSON has it. */
static int quote(const char *path, char quoted[ESTIMATE_PLACED / 4])
{
    cJSON *value = cJSON_CreateString(path ? path : DRIVE);
    bool fits = value && cJSON_PrintPreallocated(value, quoted, ESTIMATE_PLACED / 4, false);
    cJSON_Delete(value);
    return fits ? 0 : zinf_fail(-ENAMETOOLONG, "%s is too long for a configuration", path);
}

int estimate_place(const struct zinf_config *usual, const struct zinf_config_context *context,
                   const char *drive, int (*fits)(void *arg, const struct zinf_config *config),
                   void *arg, char text[ESTIMATE_PLACED])
{
    char folder[ESTIMATE_PLACED / 4];
    int code = quote(drive, folder);
    code = code ? code : -ENOMEM;
    for (size_t i = 0; code == -ENOMEM && i < sizeof placements / sizeof *placements; i++) {
        struct zinf_config *config = NULL;
        int used = snprintf(
            text, ESTIMATE_PLACED,
            "{\"train_micro_batch_size_per_gpu\": %lld, \"gradient_accumulation_steps\": %lld, "
            "\"%s\": {\"enabled\": %s}, ",
            (long long)usual->micro_batch, (long long)usual->accumulation,
            usual->dtype == ZINF_DTYPE_F16 ? "fp16" : "bf16",
            usual->dtype == ZINF_DTYPE_F32 ? "false" : "true");
        used +=
            snprintf(text + used, ESTIMATE_PLACED - (size_t)used, placements[i], folder, folder);
        snprintf(text + used, ESTIMATE_PLACED - (size_t)used, "}");
        code = zinf_config_parse(&config, text, strlen(text), "a placement", context);
        if (!code)
            code = fits(arg, config);
        zinf_config_destroy(config);
    }
    return code;
}

int estimate_suggest(const char *text, const char *path)
{
    char line[ESTIMATE_PLACED + 2];
    printf("%s: %s\n", path ? path : "placed by", text);
    snprintf(line, sizeof line, "%s\n", text);
    return path ? zinf_file_write_atomic(path, line, strlen(line)) : 0;
}

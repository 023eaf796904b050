/*
 * fuzz target: any bytes as a configuration. What is accepted must hold together (the batch triple,
 * one precision, offloading that its stage allows), and the resolved configuration must load again
 * to the same text.
 */
#include "config/config_private.h"
#include "set.h"
#include "fuzz.h"

#include <stdlib.h>

static void check_config(const struct zinf_config *config)
{
    require(config->micro_batch > 0 && config->accumulation > 0);
    require(config->train_batch_size ==
            config->micro_batch * config->accumulation * config->world_size);
    require(!(config->fp16.enabled && config->bf16) && config->dtype < ZINF_DTYPE_COUNT);
    require(config->zero_stage >= 0 && config->zero_stage <= 3);
    require(config->offload_param.device != ZINF_PLACE_NVME ||
            (config->zero_stage == 3 && config->offload_param.n_nvme_paths > 0));
    require(config->io_engine && config->activation_checkpointing && config->csv_job_name);
}

static void check_round_trip(const struct zinf_config *config)
{
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *again;
    char *text = zinf_config_text(config, true), *first = zinf_config_text(config, false);
    context.world_size = config->world_size;
    require(text && first);
    require(zinf_config_parse(&again, text, strlen(text), "resolved", &context) == 0);
    char *second = zinf_config_text(again, false);
    require(second && !strcmp(first, second));
    zinf_config_destroy(again);
    cJSON_free(text);
    cJSON_free(first);
    cJSON_free(second);
}

/* Once as written, and once with all that "auto" may ask for and unknown keys let through. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct zinf_config_context contexts[2] = {ZINF_CONFIG_CONTEXT_DEFAULT,
                                              ZINF_CONFIG_CONTEXT_DEFAULT};
    zinf_log_set_level(ZINF_LOG_ERROR);
    contexts[1].world_size = 2;
    contexts[1].hidden_size = 768;
    set_number(&contexts[1], "train_micro_batch_size_per_gpu", 2);
    set_number(&contexts[1], "optimizer.params.lr", 1e-4);
    contexts[1].steps = 10;
    contexts[1].dtype = "bf16";
    contexts[1].lenient = true;
    for (int i = 0; i < 2; i++) {
        struct zinf_config *config = NULL;
        int code = zinf_config_parse(&config, (const char *)data, size, "fuzz", &contexts[i]);
        require(code == 0 ? config != NULL : config == NULL && zinf_error()[0]);
        if (code)
            continue;
        check_config(config);
        check_round_trip(config);
        zinf_config_destroy(config);
    }
    return 0;
}

/* config: what loads and what it means: old names, "auto", the command line, defaults,
 * sources. Whole files and writing are in config_files_test.c, errors in config_errors_test.c. */
#include "config_support.h"

#define MICRO "\"train_micro_batch_size_per_gpu\": 1"

/* ---- aliases ---- */

static void test_old_names_mean_the_new(void)
{
    static const struct {
        const char *text, *key, *value;
    } rows[] = {
        {"\"zero_optimization\": {\"prefetch_bucket_size\": 7}",
         "zero_optimization.stage3_prefetch_bucket_size", "7"},
        {"\"zero_optimization\": {\"stage3_prefetch_bucket_size\": 7}",
         "zero_optimization.stage3_prefetch_bucket_size", "7"},
        {"\"zero_optimization\": {\"param_persistence_threshold\": 8}",
         "zero_optimization.stage3_param_persistence_threshold", "8"},
        {"\"zero_optimization\": {\"stage\": 1, \"cpu_offload\": true}",
         "zero_optimization.offload_optimizer.device", "\"cpu\""},
        {"\"zero_optimization\": {\"stage\": 1, \"cpu_offload\": false}",
         "zero_optimization.offload_optimizer.device", "\"none\""},
        {"\"zero_optimization\": {\"stage\": 3, \"cpu_offload_param\": true}",
         "zero_optimization.offload_param.device", "\"cpu\""},
        {"\"zero_optimization\": {\"stage\": 3, \"cpu_offload_params\": true}",
         "zero_optimization.offload_param.device", "\"cpu\""},
        {"\"zero_optimization\": true", "zero_optimization.stage", "1"},
        {"\"zero_optimization\": false", "zero_optimization.stage", "0"},
        {"\"bfloat16\": {\"enabled\": true}", "bf16.enabled", "true"},
        {"\"bfloat16\": {\"check_grad_overflow\": false}", "bf16.check_grad_overflow", "false"},
        {"\"aio\": {\"thread_count\": 3}", "aio.intra_op_parallelism", "3"},
        {"\"aio\": {\"num_threads\": 4}", "aio.intra_op_parallelism", "4"},
        {"\"aio\": {\"intra_op_parallelism\": 5}", "aio.intra_op_parallelism", "5"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_config *config;
        char text[512];
        snprintf(text, sizeof text, "{" MICRO ",\n%s}", rows[i].text);
        int code = parse(&config, text, NULL);
        CHECKF(code == 0, "%s: %s", rows[i].text, zinf_error());
        if (code)
            continue;
        bool is_default = !strcmp(rows[i].value, "\"none\"");
        check_printed(config, rows[i].key, rows[i].value, is_default ? "default" : "ds.json:2");
        zinf_config_destroy(config);
    }
}

/* These change nothing, so only that they are known can be seen. */
static void test_accepted_aliases_are_known(void)
{
    static const char *const names[] = {
        "model_persistence_threshold\": 9223372036854775807",
        "max_live_parameters\": 1e9",
        "max_reuse_distance\": 1e9",
        "gather_16bit_weights_on_model_save\": true",
        "stage3_gather_fp16_weights_on_model_save\": true",
        "stage3_gather_16bit_weights_on_model_save\": \"auto\"",
        "module_granularity_threshold\": 0",
        "use_all_reduce_for_fetch_params\": false",
        "allgather_sequential\": false",
        "cpu_offload_use_pin_memory\": true",
        "reduce_bucket_size\": \"auto\"",
    };
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct zinf_config *config;
        char text[256];
        snprintf(text, sizeof text, "{" MICRO ", \"zero_optimization\": {\"%s}}", names[i]);
        int code = parse(&config, text, NULL);
        CHECKF(code == 0, "%s: %s", names[i], zinf_error());
        CHECKF(strstr(logged, "change nothing here: zero_optimization."), "not listed: %s",
               names[i]);
        if (!code)
            zinf_config_destroy(config);
    }
}

/* DeepSpeed wants stage 3 for it; slices of the state are on drives at 1 and 2 too. */
static void test_state_on_a_drive_below_stage_3(void)
{
    struct zinf_config *config;
    for (int stage = 1; stage <= 3; stage++) {
        char text[256];
        snprintf(text, sizeof text,
                 "{" MICRO ", \"zero_optimization\": {\"stage\": %d, \"offload_optimizer\": "
                 "{\"device\": \"nvme\", \"nvme_path\": \"/x\"}}}",
                 stage);
        int code = parse(&config, text, NULL);
        CHECKF(!code && config->offload_optimizer.device == ZINF_PLACE_NVME, "%s", zinf_error());
        bool noted = strstr(logged, "offload_optimizer.device is \"nvme\" at");
        CHECKF(noted == (stage < 3), "stage %d: %s", stage, logged);
        if (!code)
            zinf_config_destroy(config);
    }
}

/* A training's batch, whatever ranks it was for: an evaluation takes its micro batch. */
static void test_batch_without_steps(void)
{
    static const struct {
        const char *text;
        int64_t micro;
    } rows[] = {
        {"{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 4}", 4},
        {"{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": 2, "
         "\"gradient_accumulation_steps\": 2}",
         2},
        {"{\"train_batch_size\": 12}", 2},
        {"{\"train_batch_size\": 3}", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_config *config;
        int code =
            parse(&config, rows[i].text, CONTEXT(NOTHING, .world_size = 5, .no_steps = true));
        CHECKF(!code && config->micro_batch == rows[i].micro && !strstr(logged, "makes"),
               "%s: %s%s", rows[i].text, zinf_error(), logged);
        if (!code)
            zinf_config_destroy(config);
    }
}

static void test_accepted_keys_are_listed_in_one_line(void)
{
    struct zinf_config *config;
    CHECK(parse(&config,
                "{" MICRO ", \"dump_state\": false, \"amp\": {\"enabled\": false, \"opt_level\": "
                "\"O1\"}, \"zero_optimization\": {\"overlap_comm\": true}, "
                "\"checkpoint\": {\"load_universal\": true}}",
                NULL) == 0);
    CHECKF(strstr(logged, "ds.json: known keys that change nothing here: dump_state, "
                          "amp.opt_level, zero_optimization.overlap_comm\n"),
           "%s", logged);
    CHECKF(strstr(logged, "ds.json: checkpoint.load_universal: --resume=DIR finds out"), "%s",
           logged);
    const char *line = strstr(logged, "known keys");
    CHECK(line && !strstr(line + 1, "known keys"));
    zinf_config_destroy(config);
}

/* ---- values ---- */

static void test_numbers_and_words_as_users_write_them(void)
{
    struct zinf_config *config;
    int code = parse(&config,
                     "{\"train_batch_size\": 1.6e1, # comment\n"
                     " \"zero_optimization\": {\"stage\": 3.0, \"sub_group_size\": 5e8,},\n"
                     " \"bf16\": {\"enabled\": \"True\", \"check_grad_overflow\": 0},\n"
                     " \"aio\": {\"single_submit\": \"true\", \"overlap_events\": \"false\","
                     " \"num_threads\": \"8\", \"block_size\": \"8M\"},\n"
                     " \"optimizer\": {\"type\": \"lION\"},\n"
                     " \"zinf\": {\"device_memory\": \"1.5GiB\", \"host_memory\": 4096}}",
                     NULL);
    CHECKF(code == 0, "%s", zinf_error());
    if (code)
        return;
    CHECK(config->train_batch_size == 16 && config->micro_batch == 16);
    CHECK(config->zero_stage == 3 && config->sub_group_size == 500000000);
    CHECK(config->bf16 && !config->bf16_check_overflow && config->dtype == ZINF_DTYPE_BF16);
    CHECK(config->aio.single_submit && !config->aio.overlap_events);
    CHECK(config->aio.n_threads == 8 && config->aio.block_size == 8 << 20);
    CHECK(!strcmp(config->optimizer.type, "Lion"));
    CHECK(config->device_memory == 3u << 29 && config->host_memory == 4096);
    zinf_config_destroy(config);
}

static void test_defaults(void)
{
    struct zinf_config *config;
    CHECK(parse(&config, "{" MICRO "}", NULL) == 0);
    CHECK(config->gradient_clipping == 1.0 && config->steps_per_print == 0);
    CHECK(!strcmp(config->optimizer.type, "AdamW") && config->optimizer.lr == 5e-5);
    CHECK(config->optimizer.beta1 == 0.9 && config->optimizer.beta2 == 0.999);
    CHECK(config->optimizer.eps == 1e-8 && config->optimizer.weight_decay == 0);
    CHECK(config->optimizer.bias_correction && config->optimizer.decoupled);
    CHECK(config->scheduler.kind == ZINF_SCHEDULER_NONE && config->dtype == ZINF_DTYPE_F32);
    CHECK(config->fp16.initial_scale_power == 16 && config->fp16.loss_scale_window == 1000);
    CHECK(config->fp16.hysteresis == 2 && config->fp16.min_loss_scale == 1);
    CHECK(config->bf16_check_overflow && config->zero_stage == 0);
    CHECK(config->sub_group_size == 1000000000 && config->prefetch_bucket_size == 50000000);
    CHECK(config->param_persistence_threshold == 100000);
    CHECK(config->offload_param.buffer_count == 5 && config->offload_optimizer.buffer_count == 4);
    CHECK(config->offload_param.buffer_size == 100000000 && config->offload_param.pin_memory);
    CHECK(config->offload_param.max_in_cpu == 1000000000 && config->offload_optimizer.ratio == 1);
    CHECK(config->aio.block_size == 1048576 && config->aio.queue_depth == 64);
    CHECK(config->aio.n_threads == 1 && config->aio.overlap_events && !config->aio.single_submit);
    CHECK(config->look_ahead == -1 && config->threads == 0 && config->checksums);
    CHECK(config->dropout < 0 && !config->trace && config->grad_device == ZINF_PLACE_NONE);
    CHECK(!strcmp(config->io_engine, "auto") && !strcmp(config->activation_checkpointing, "auto"));
    CHECK(!strcmp(config->csv_job_name, "DeepSpeedJobName") &&
          !strcmp(config->csv_output_path, ""));
    zinf_config_destroy(config);
}

static void test_without_a_file(void)
{
    struct zinf_config *config;
    CHECK(zinf_config_load(&config, NULL, NULL) == 0);
    CHECK(config->micro_batch == 1 && config->train_batch_size == 1 &&
          config->optimizer.lr == 5e-5);
    CHECK(config->dtype == ZINF_DTYPE_F32);
    zinf_config_destroy(config);
    CHECK(zinf_config_load(
              &config, NULL,
              CONTEXT(NOTHING, .world_size = 2, .dtype = "bfloat16",
                      SETTINGS(1, {"gradient_accumulation_steps", NULL, 3, "--accumulate"}))) == 0);
    CHECK(config->train_batch_size == 6 && config->dtype == ZINF_DTYPE_BF16);
    zinf_config_destroy(config);
}

static void test_defaults_that_hang_on_others(void)
{
    struct zinf_config *config;
    CHECK(parse(&config, "{" MICRO ", \"optimizer\": {\"type\": \"Adagrad\"}}", NULL) == 0);
    CHECK(config->optimizer.lr == 1e-2 && config->optimizer.eps == 1e-10);
    CHECK(!config->optimizer.decoupled);
    zinf_config_destroy(config);

    CHECK(parse(&config,
                "{" MICRO ", \"optimizer\": {\"params\": {\"lr\": 0.5}}, \"scheduler\": "
                "{\"type\": \"WarmupLR\"}}",
                NULL) == 0);
    CHECK(config->scheduler.warmup_max_lr == 0.5 && config->scheduler.warmup_log);
    CHECK(config->scheduler.warmup_num_steps == 1000);
    zinf_config_destroy(config);

    CHECK(parse(&config,
                "{" MICRO ", \"optimizer\": {\"params\": {\"lr\": 0.5}}, \"scheduler\": "
                "{\"type\": \"WarmupDecayLR\", \"params\": {\"total_num_steps\": 10}}}",
                NULL) == 0);
    CHECK(config->scheduler.warmup_max_lr == 1e-3);
    CHECK(strstr(logged, "total_num_steps is 10, less than the 1000 steps of the warm-up"));
    zinf_config_destroy(config);

    CHECK(parse(&config,
                "{" MICRO ", \"scheduler\": {\"type\": \"OneCycle\", \"params\": "
                "{\"cycle_min_lr\": 1, \"cycle_max_lr\": 2, \"cycle_first_step_size\": 9,"
                "\"cycle_first_stair_count\": 3}}}",
                NULL) == 0);
    CHECK(config->scheduler.cycle_second_step_size == 9);
    CHECK(config->scheduler.cycle_second_stair_count == 3);
    zinf_config_destroy(config);

    CHECK(parse(&config,
                "{" MICRO ", \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\":"
                "{\"device\": \"nvme\", \"nvme_path\": \"/x\"}}}",
                NULL) == 0);
    CHECK(config->grad_device == ZINF_PLACE_NVME);
    zinf_config_destroy(config);
}

static void test_weight_decay_mode(void)
{
    static const struct {
        const char *type, *mode;
        bool decoupled;
    } rows[] = {
        {"AdamW", "true", true}, {"AdamW", "false", true},   {"Adam", "true", true},
        {"Adam", "null", true},  {"Adam", "false", false},   {"Lion", "null", true},
        {"SGD", "null", false},  {"Adagrad", "null", false},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_config *config;
        char text[256];
        snprintf(text, sizeof text,
                 "{" MICRO ", \"optimizer\": {\"type\": \"%s\", \"params\": "
                 "{\"adam_w_mode\": %s}}}",
                 rows[i].type, rows[i].mode);
        int code = parse(&config, text, NULL);
        CHECKF(!code && config->optimizer.decoupled == rows[i].decoupled, "%s %s: %s", rows[i].type,
               rows[i].mode, zinf_error());
        if (!code)
            zinf_config_destroy(config);
    }
}

/* ---- "auto" ---- */

static void test_auto_rules(void)
{
    static const char text[] =
        "{\"train_batch_size\": \"auto\", \"train_micro_batch_size_per_gpu\": \"auto\",\n"
        "\"gradient_accumulation_steps\": \"auto\", \"gradient_clipping\": \"auto\",\n"
        "\"fp16\": {\"enabled\": \"auto\", \"loss_scale\": \"auto\"},\n"
        "\"bf16\": {\"enabled\": \"auto\"},\n"
        "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": \"auto\", \"betas\": \"auto\",\n"
        " \"eps\": \"auto\", \"weight_decay\": \"auto\"}},\n"
        "\"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": {\"warmup_min_lr\": \"auto\",\n"
        " \"warmup_max_lr\": \"auto\", \"warmup_num_steps\": \"auto\",\n"
        " \"total_num_steps\": \"auto\"}},\n"
        "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": \"auto\",\n"
        " \"stage3_prefetch_bucket_size\": \"auto\",\n"
        " \"stage3_param_persistence_threshold\": \"auto\"}}";
    static const struct {
        const char *key, *value, *source;
    } rows[] = {
        {"train_batch_size", "48",
         "auto: train_micro_batch_size_per_gpu * "
         "gradient_accumulation_steps * world size"},
        {"train_micro_batch_size_per_gpu", "8", "command line"},
        {"gradient_accumulation_steps", "3", "command line"},
        {"gradient_clipping", "1", "auto: Hugging Face's default"},
        {"fp16.enabled", "false", "auto: the model is bf16"},
        {"fp16.loss_scale", "0", "auto: default"},
        {"bf16.enabled", "true", "auto: the model is bf16"},
        {"optimizer.params.lr", "0.0003", "command line"},
        {"optimizer.params.betas", "[0.9, 0.999]", "auto: Hugging Face's default"},
        {"optimizer.params.eps", "1e-08", "auto: Hugging Face's default"},
        {"optimizer.params.weight_decay", "0", "auto: Hugging Face's default"},
        {"scheduler.params.warmup_min_lr", "0", "auto: Hugging Face's default"},
        {"scheduler.params.warmup_max_lr", "0.0003", "command line"},
        {"scheduler.params.warmup_num_steps", "2", "auto: no warm-up asked for, shortest"},
        {"scheduler.params.total_num_steps", "500", "auto: --steps"},
        {"zero_optimization.sub_group_size", "1000000000", "auto: default"},
        {"zero_optimization.stage3_prefetch_bucket_size", "15099494", "auto: 0.9 * hidden_size^2"},
        {"zero_optimization.stage3_param_persistence_threshold", "40960", "auto: 10 * hidden_size"},
    };
    struct zinf_config *config;
    int code =
        parse(&config, text,
              CONTEXT(NOTHING, .world_size = 2, .hidden_size = 4096, .steps = 500, .dtype = "BF16",
                      SETTINGS(3, {"train_micro_batch_size_per_gpu", NULL, 8, "--micro-batch"},
                               {"gradient_accumulation_steps", NULL, 3, "--accumulate"},
                               {"optimizer.params.lr", NULL, 3e-4, "--lr"})));
    CHECKF(code == 0, "%s", zinf_error());
    CHECKF(!strstr(logged, "is used"), "no conflict: %s", logged);
    for (size_t i = 0; !code && i < sizeof rows / sizeof *rows; i++)
        check_printed(config, rows[i].key, rows[i].value, rows[i].source);
    if (!code)
        zinf_config_destroy(config);
}

static void test_auto_of_one_key_from_another(void)
{
    struct zinf_config *config;
    CHECK(parse(&config,
                "{" MICRO ", \"optimizer\": {\"params\": {\"lr\": 0.25}}, \"scheduler\": "
                "{\"type\": \"WarmupLR\", \"params\": {\"warmup_max_lr\": \"auto\"}}}",
                NULL) == 0);
    check_printed(config, "scheduler.params.warmup_max_lr", "0.25", "auto: optimizer.params.lr");
    zinf_config_destroy(config);

    CHECK(parse(&config,
                "{" MICRO ", \"fp16\": {\"enabled\": \"auto\"}, "
                "\"bf16\": {\"enabled\": true}}",
                CONTEXT(NOTHING, .dtype = "F16")) == 0);
    CHECK(config->dtype == ZINF_DTYPE_BF16);
    check_printed(config, "fp16.enabled", "false", "auto: bf16.enabled is true");
    zinf_config_destroy(config);

    CHECK(parse(&config, "{" MICRO ", \"fp16\": {\"enabled\": \"auto\"}}",
                CONTEXT(NOTHING, .dtype = "F16")) == 0);
    CHECK(config->dtype == ZINF_DTYPE_F16);
    zinf_config_destroy(config);

    CHECK(parse(&config,
                "{" MICRO ", \"zero_optimization\": {\"stage\": 2, "
                "\"stage3_prefetch_bucket_size\": \"auto\"}}",
                NULL) == 0);
    CHECK(config->prefetch_bucket_size == 50000000);
    zinf_config_destroy(config);

    CHECK(parse(&config,
                "{\"train_batch_size\": 12, \"train_micro_batch_size_per_gpu\": \"auto\","
                "\"gradient_accumulation_steps\": 3}",
                NULL) == 0);
    check_printed(config, "train_micro_batch_size_per_gpu", "4",
                  "auto: train_batch_size / (gradient_accumulation_steps * world size)");
    zinf_config_destroy(config);
}

/* "auto" for a parameter that the optimizer does not have asks for nothing. */
static void test_auto_of_another_optimizers_parameter_is_dropped(void)
{
    struct zinf_config *config;
    CHECK(parse(&config,
                "{" MICRO ", \"optimizer\": {\"type\": \"SGD\", \"params\": "
                "{\"betas\": \"auto\", \"eps\": \"auto\"}}}",
                NULL) == 0);
    zinf_config_destroy(config);
}

/* ---- the command line ---- */

#define AUTO_MICRO "\"train_micro_batch_size_per_gpu\": \"auto\""
/* What the plan is to find is 1 until it has; the batch of the step is what it was. */
static void test_a_micro_batch_that_the_plan_finds(void)
{
    static const struct {
        const char *text;
        struct zinf_config_settings settings;
        int64_t train, micro;
        bool finds;
    } rows[] = {
        {"{\"train_batch_size\": 24, " AUTO_MICRO "}", SETTINGS(0), 24, 1, true},
        {"{\"train_batch_size\": 24, " AUTO_MICRO ", \"gradient_accumulation_steps\": \"auto\"}",
         SETTINGS(0), 24, 1, true},
        {"{\"train_batch_size\": 24, " AUTO_MICRO ", \"gradient_accumulation_steps\": 4}",
         SETTINGS(0), 24, 6, false},
        {"{\"train_batch_size\": \"auto\", " AUTO_MICRO "}", SETTINGS(0), 8, 8, false},
        {"{\"train_batch_size\": 24, \"gradient_accumulation_steps\": 4}",
         SETTINGS(1, {"train_micro_batch_size_per_gpu", "auto", 0, "--micro-batch"}), 24, 1, true},
        {"{\"train_batch_size\": 24, " AUTO_MICRO "}",
         SETTINGS(1, {"train_micro_batch_size_per_gpu", NULL, 3, "--micro-batch"}), 24, 3, false},
        {"{\"train_batch_size\": 24, " MICRO "}",
         SETTINGS(1, {"train_batch_size", NULL, 6, "--global-batch"}), 6, 1, false},
        {"{" MICRO ", \"gradient_accumulation_steps\": 4}",
         SETTINGS(2, {"train_batch_size", NULL, 6, "--global-batch"},
                  {"train_micro_batch_size_per_gpu", "auto", 0, "--micro-batch"}),
         6, 1, true},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_config *config = NULL;
        struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
        context.settings = rows[i].settings;
        context.finds_micro_batch = true;
        int code = parse(&config, rows[i].text, &context);
        CHECKF(!code && config->finds_micro_batch == rows[i].finds &&
                   config->micro_batch == rows[i].micro &&
                   config->train_batch_size == rows[i].train &&
                   config->micro_batch * config->accumulation == rows[i].train,
               "row %zu: %s", i, code ? zinf_error() : "other numbers");
        if (!code && rows[i].finds) {
            CHECK(zinf_config_set_micro_batch(config, 5) == -EINVAL);
            CHECK(!zinf_config_set_micro_batch(config, 3) && config->micro_batch == 3 &&
                  config->accumulation == rows[i].train / 3);
        }
        zinf_config_destroy(config);
    }
}

static void test_command_line_wins_and_says_so(void)
{
    struct zinf_config *config;
    int code = parse(
        &config,
        "{\"train_batch_size\": 32,\n\"train_micro_batch_size_per_gpu\": 4,\n"
        "\"gradient_accumulation_steps\": 8,\n"
        "\"optimizer\": {\"params\": {\"lr\": 1e-3}},\n"
        "\"scheduler\": {\"type\": \"WarmupLR\", \"params\": {\n"
        "\"warmup_max_lr\": 1e-3}},\n"
        "\"zinf\": {\"dropout\": 0.1, \"threads\": 3,\n"
        "\"device_memory\": \"2GiB\", \"host_memory\": \"4GiB\"}}",
        CONTEXT(NOTHING, SETTINGS(6, {"train_micro_batch_size_per_gpu", NULL, 2, "--micro-batch"},
                                  {"optimizer.params.lr", NULL, 5e-4, "--lr"},
                                  {"zinf.dropout", NULL, 0, "--dropout"},
                                  {"zinf.threads", NULL, 3, "--threads"},
                                  {"zinf.device_memory", NULL, 1u << 30, "--device-memory"},
                                  {"zinf.host_memory", NULL, 1u << 31, "--host-memory"})));
    CHECKF(code == 0, "%s", zinf_error());
    if (code)
        return;
    CHECK(config->micro_batch == 2 && config->accumulation == 8 && config->train_batch_size == 16);
    CHECK(config->optimizer.lr == 5e-4 && config->scheduler.warmup_max_lr == 5e-4);
    CHECK(config->dropout == 0 && config->threads == 3);
    CHECK(config->device_memory == 1u << 30 && config->host_memory == 1u << 31);
    CHECKF(strstr(logged, "ds.json:2: train_micro_batch_size_per_gpu is 4, but --micro-batch "
                          "says 2: 2 is used"),
           "%s", logged);
    CHECKF(strstr(logged, "ds.json:1: train_batch_size is 32, but the command line's 2 * 8 * "
                          "world size 1 makes 16: 16 is used"),
           "%s", logged);
    CHECK(strstr(logged, "ds.json:4: optimizer.params.lr is 0.001, but --lr says 0.0005"));
    CHECK(strstr(logged, "ds.json:6: scheduler.params.warmup_max_lr is 0.001, but --lr"));
    CHECK(strstr(logged, "zinf.dropout is 0.1, but --dropout says 0: 0 is used"));
    CHECK(!strstr(logged, "zinf.threads"));
    check_printed(config, "zinf.threads", "3", "command line");
    zinf_config_destroy(config);
}

/* An object that is another's to read; options are members of it. */
static void test_adapter_is_an_object(void)
{
    static const char text[] = "{" MICRO ",\n\"zinf\": {\"adapter\": {\"r\": 4, "
                               "\"rank_pattern\": {\"a.b\": 2}, \"target_modules\": \"x\"}}}";
    struct zinf_config *config;
    CHECK(parse(&config, text, CONTEXT(NOTHING)) == 0);
    CHECK(!strcmp(config->adapter,
                  "{\"r\":4,\"rank_pattern\":{\"a.b\":2},\"target_modules\":\"x\"}"));
    zinf_config_destroy(config);
    CHECK(parse(&config, text,
                CONTEXT(NOTHING, SETTINGS(3, {"zinf.adapter.r", NULL, 8, "--lora-rank"},
                                          {"zinf.adapter.lora_alpha", NULL, 3, "--lora-alpha"},
                                          {"zinf.adapter.target_modules", "q,v", 0,
                                           "--lora-targets"}))) == 0);
    check_printed(config, "zinf.adapter",
                  "{\"rank_pattern\":{\"a.b\":2},\"r\":8,\"lora_alpha\":3,"
                  "\"target_modules\":[\"q\",\"v\"]}",
                  "command line");
    CHECK(strstr(logged, "but --lora-rank says"));
    zinf_config_destroy(config);
    CHECK(parse(&config, text,
                CONTEXT(NOTHING, SETTINGS(1, {"zinf.adapter.target_modules", "all-linear", 0,
                                              "--lora-targets"}))) == 0);
    CHECK(strstr(config->adapter, "\"target_modules\":\"all-linear\""));
    zinf_config_destroy(config);
    CHECK(parse(&config, "{" MICRO "}", CONTEXT(NOTHING)) == 0 && !config->adapter);
    zinf_config_destroy(config);
    CHECK(parse(&config, "{" MICRO ", \"zinf\": {\"adapter\": 3}}", CONTEXT(NOTHING)) == -EINVAL);
    CHECK(strstr(zinf_error(), "must be an object"));
}

/* A part of all steps, the one that is begun whole; a number of steps wins. */
static void test_warmup_ratio(void)
{
    struct zinf_config *config;
    CHECK(parse(&config, "{" MICRO "}",
                CONTEXT(NOTHING, .steps = 101, SETTINGS(1, {"warmup_ratio", "0.1", 0, NULL}))) ==
          0);
    CHECK(config->scheduler.warmup_num_steps == 11);
    CHECK(config->scheduler.kind == ZINF_SCHEDULER_LINEAR);
    zinf_config_destroy(config);
    CHECK(parse(&config, "{" MICRO "}",
                CONTEXT(NOTHING, .steps = 101,
                        SETTINGS(2, {"warmup_ratio", "0.1", 0, NULL},
                                 {"scheduler.params.warmup_num_steps", NULL, 5, NULL}))) == 0);
    CHECK(config->scheduler.warmup_num_steps == 5);
    zinf_config_destroy(config);
    CHECK(parse(&config, "{" MICRO "}",
                CONTEXT(NOTHING, SETTINGS(1, {"warmup_ratio", "0.1", 0, "--warmup-ratio"}))) < 0);
    CHECK(strstr(zinf_error(), "--warmup-ratio") && strstr(zinf_error(), "--steps"));
}

/* One word for two keys, which wins over the file and the folder. */
static void test_dtype_setting(void)
{
    struct zinf_config *config;
    CHECK(parse(&config, "{" MICRO ", \"fp16\": {\"enabled\": true}}",
                CONTEXT(NOTHING, .dtype = "F32", SETTINGS(1, {"dtype", "bf16", 0, "--dtype"}))) ==
          0);
    CHECK(config->dtype == ZINF_DTYPE_BF16 && config->bf16 && !config->fp16.enabled);
    CHECK(strstr(logged, "fp16.enabled is true, but --dtype says false"));
    zinf_config_destroy(config);
    CHECK(parse(&config, "{" MICRO ", \"bf16\": {\"enabled\": \"auto\"}}",
                CONTEXT(NOTHING, .dtype = "BF16", SETTINGS(1, {"dtype", "fp32", 0, NULL}))) == 0);
    CHECK(config->dtype == ZINF_DTYPE_F32);
    zinf_config_destroy(config);
    CHECK(parse(&config, "{" MICRO "}",
                CONTEXT(NOTHING, SETTINGS(1, {"dtype", "int3", 0, "--dtype"}))) < 0);
    CHECK(strstr(zinf_error(), "--dtype"));
}

/* An option that says how adapters are made does not ask for adapters by itself. */
static void test_adapter_needs_a_rank(void)
{
    static const struct zinf_config_setting alone[] = {
        {"zinf.adapter.lora_alpha", NULL, 16, "--lora-alpha"},
        {"zinf.adapter.lora_dropout", NULL, 0.1, "--lora-dropout"},
        {"zinf.adapter.target_modules", "q_proj", 0, "--lora-targets"},
    };
    for (size_t i = 0; i < sizeof alone / sizeof *alone; i++) {
        struct zinf_config *config;
        CHECK(parse(&config, "{" MICRO "}", CONTEXT(NOTHING, SETTINGS(1, alone[i]))) == -EINVAL);
        CHECKF(strstr(zinf_error(), alone[i].name) && strstr(zinf_error(), "--lora-rank"), "%s",
               zinf_error());
        CHECK(parse(&config, "{" MICRO ", \"zinf\": {\"adapter\": {}}}",
                    CONTEXT(NOTHING, SETTINGS(1, alone[i]))) == 0);
        zinf_config_destroy(config);
    }
}

/* Twice the rank, where the rank is an option's and nobody says the scale. */
static void test_adapter_defaults(void)
{
    struct zinf_config *config;
    CHECK(parse(&config, "{" MICRO "}",
                CONTEXT(NOTHING, .steps = 3, SETTINGS(1, {"zinf.adapter.r", "4", 0, NULL}))) == 0);
    CHECK(!strcmp(config->adapter, "{\"r\":4,\"lora_alpha\":8}"));
    CHECK(config->optimizer.lr == 1e-4);
    CHECK(strstr(logged, "lr 0.0001 for adapters"));
    zinf_config_destroy(config);
    CHECK(parse(&config, "{" MICRO ", \"zinf\": {\"adapter\": {\"r\": 4}}}",
                CONTEXT(NOTHING, .steps = 3)) == 0);
    CHECK(!strcmp(config->adapter, "{\"r\":4}"));
    zinf_config_destroy(config);
}

static void test_lr_option_with_a_schedule_of_its_own_rates(void)
{
    struct zinf_config *config;
    CHECK(parse(&config, "{" MICRO ", \"scheduler\": {\"type\": \"LRRangeTest\"}}",
                CONTEXT(NOTHING, SETTINGS(1, {"optimizer.params.lr", NULL, 0.5, "--lr"}))) == 0);
    CHECK(strstr(logged, "--lr changes nothing"));
    zinf_config_destroy(config);
}

/* ---- sources ---- */

static void test_sources(void)
{
    struct zinf_config *config;
    CHECK(parse(&config, "{\n\"train_batch_size\": 4,\n\"aio\": {\n \"queue_depth\": 16}}",
                CONTEXT(NOTHING, SETTINGS(1, {"zinf.threads", NULL, 2, "--threads"}))) == 0);
    check_printed(config, "train_batch_size", "4", "ds.json:2");
    check_printed(config, "aio.queue_depth", "16", "ds.json:4");
    check_printed(config, "aio.block_size", "1048576 (1.00 MiB)", "default");
    check_printed(config, "zinf.threads", "2", "command line");
    check_printed(config, "train_micro_batch_size_per_gpu", "4",
                  "inferred: train_batch_size / (gradient_accumulation_steps * world size)");
    check_printed(config, "zinf.grad_device", "\"none\"",
                  "default: zero_optimization.offload_optimizer.device");
    char *line = printed(config, "scheduler.params.total_num_steps");
    CHECK(!line); /* there is no scheduler */
    free(line);
    zinf_config_destroy(config);
}

int main(void)
{
    zinf_log_set_sink(catch_log, NULL);
    zinf_log_set_level(ZINF_LOG_INFO);
    TAP_RUN(test_old_names_mean_the_new);
    TAP_RUN(test_accepted_aliases_are_known);
    TAP_RUN(test_state_on_a_drive_below_stage_3);
    TAP_RUN(test_batch_without_steps);
    TAP_RUN(test_accepted_keys_are_listed_in_one_line);
    TAP_RUN(test_numbers_and_words_as_users_write_them);
    TAP_RUN(test_defaults);
    TAP_RUN(test_without_a_file);
    TAP_RUN(test_defaults_that_hang_on_others);
    TAP_RUN(test_weight_decay_mode);
    TAP_RUN(test_auto_rules);
    TAP_RUN(test_auto_of_one_key_from_another);
    TAP_RUN(test_auto_of_another_optimizers_parameter_is_dropped);
    TAP_RUN(test_a_micro_batch_that_the_plan_finds);
    TAP_RUN(test_command_line_wins_and_says_so);
    TAP_RUN(test_adapter_is_an_object);
    TAP_RUN(test_warmup_ratio);
    TAP_RUN(test_dtype_setting);
    TAP_RUN(test_adapter_defaults);
    TAP_RUN(test_adapter_needs_a_rank);
    TAP_RUN(test_lr_option_with_a_schedule_of_its_own_rates);
    TAP_RUN(test_sources);
    return tap_done();
}

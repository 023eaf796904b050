/* config: what is refused, and what the message says. A row is a bad configuration and the pieces
 * that its one error must contain: place, key, remedy. */
#include "config_support.h"

#define MICRO "\"train_micro_batch_size_per_gpu\": 1"
#define HALVES "\"bf16_optimizer_states\": true, \"bf16_master_weights_and_grads\": true"

struct bad {
    const char *text;
    const char *pieces[4];
};

static void check_bad(const struct bad *rows, size_t n, const struct zinf_config_context *context)
{
    for (size_t i = 0; i < n; i++) {
        struct zinf_config *config = NULL;
        int code = parse(&config, rows[i].text, context);
        CHECKF(code < 0 && !config, "accepted: %s", rows[i].text);
        for (int j = 0; j < 4 && rows[i].pieces[j] && code < 0; j++)
            CHECKF(strstr(zinf_error(), rows[i].pieces[j]), "no '%s' in: %s", rows[i].pieces[j],
                   zinf_error());
        zinf_config_destroy(config);
    }
}
#define CHECK_BAD(rows, context) check_bad(rows, sizeof rows / sizeof *rows, context)

static void test_unknown_keys(void)
{
    static const struct bad rows[] = {
        {"{" MICRO ",\n\"zero_optimization\": {\n \"stage3_prefetch_bucketsize\": 1}}",
         {"ds.json:3: unknown key \"zero_optimization.stage3_prefetch_bucketsize\"",
          "did you mean \"zero_optimization.stage3_prefetch_bucket_size\"?"}},
        {"{" MICRO ", \"gradient_acumulation_steps\": 1}",
         {"ds.json:1: ", "did you mean \"gradient_accumulation_steps\"?"}},
        {"{" MICRO ", \"zero_optimisation\": {\"stage\": 3}}",
         {"did you mean \"zero_optimization\"?"}},
        {"{" MICRO ", \"offload_param\": {\"device\": \"cpu\"}}",
         {"\"offload_param\" belongs in \"zero_optimization\""}},
        {"{" MICRO ", \"stage\": 3}", {"\"stage\" belongs in \"zero_optimization\""}},
        {"{" MICRO ", \"lr\": 3}", {"\"lr\" belongs in \"optimizer.params\""}},
        {"{" MICRO ", \"optimizer\": {\"lr\": 3}}", {"belongs in \"optimizer.params\""}},
        {"{" MICRO ", \"zero_optimization\": {\"offload_optimizer\": {\"buffer_size\": 1}}}",
         {"\"buffer_size\" belongs in \"zero_optimization.offload_param\""}},
        {"{" MICRO ", \"type\": \"AdamW\"}", {"in \"optimizer\" or in \"scheduler\""}},
        {"{" MICRO ", \"max_grad_norm\": 1}", {"the key for this is \"gradient_clipping\""}},
        {"{" MICRO ", \"learning_rate\": 1}", {"the key for this is \"optimizer.params.lr\""}},
        {"{" MICRO ", \"aio\": {\"frobnicate\": 1}}",
         {"unknown key \"aio.frobnicate\"",
          "the keys of this section are block_size, queue_depth, intra_op_parallelism"}},
        {"{" MICRO ", \"zero_optimization.stage\": 3}", {"nested objects"}},
        {"{" MICRO ", \"fp16\": {\"enable\": true}}", {"did you mean \"fp16.enabled\"?"}},
        {"{" MICRO ",\n\"aio\": {\"frob\": 1,\n\"nicate\": null}}",
         {"ds.json:2: unknown key \"aio.frob\"", "ds.json:3: unknown key \"aio.nicate\"",
          "; else remove it, or pass --lenient"}},
        {"{" MICRO ", \"zinf\": {\"device_memroy\": 1}}", {"\"zinf.device_memory\""}},
    };
    CHECK_BAD(rows, NULL);
}

/* One store has all that is on drives. */
static void test_a_second_path_is_said(void)
{
#define OFFLOADED(which, place, path)                                                              \
    "\"offload_" which "\": {\"device\": \"" place "\", \"nvme_path\": \"" path "\"}"
#define BOTH(a, place, b)                                                                          \
    "{" MICRO ", \"zero_optimization\": {\"stage\": 3, " OFFLOADED(                                \
        "optimizer", "nvme", a) ",\n" OFFLOADED("param", place, b) "}}"
    static const struct {
        const char *text;
        bool said;
    } rows[] = {{BOTH("/a", "nvme", "/b"), true},
                {BOTH("/a", "nvme", "/a"), false},
                {BOTH("/a", "cpu", "/b"), false}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_config *config;
        logged[0] = '\0';
        int code = parse(&config, rows[i].text, NULL);
        CHECKF(!code, "%s", zinf_error());
        CHECKF(!!strstr(logged,
                        "warning: ds.json:2: zero_optimization.offload_param.nvme_path is "
                        "not used: parameters are stored where "
                        "zero_optimization.offload_optimizer.nvme_path says") == rows[i].said,
               "%s: %s", rows[i].text, logged);
        if (!code)
            zinf_config_destroy(config);
    }
}

static void test_lenient_turns_unknown_keys_into_warnings(void)
{
    struct zinf_config *config;
    int code = parse(&config, "{" MICRO ",\n\"frob\": {\"a\": 1},\n\"aio\": {\"queue_dept\": 4}}",
                     CONTEXT(NOTHING, .lenient = true));
    CHECKF(code == 0, "%s", zinf_error());
    CHECKF(strstr(logged, "warning: ds.json:2: \"frob\" is no key of DeepSpeed or zinf: ignored"),
           "%s", logged);
    CHECK(strstr(logged, "did you mean \"aio.queue_depth\"? (ignored)"));
    CHECK(!code && config->aio.queue_depth == 64);
    if (!code)
        zinf_config_destroy(config);
    /* Only unknown keys: a wrong value stays an error. */
    CHECK(parse(&config, "{" MICRO ", \"zero_optimization\": {\"stage\": 4}}",
                CONTEXT(NOTHING, .lenient = true)) < 0);
}

static void test_bad_values(void)
{
    static const struct bad rows[] = {
        {"{" MICRO ",\n\"zero_optimization\": {\"stage\": 4}}",
         {"ds.json:2: zero_optimization.stage is 4", "an integer from 0 to 3"}},
        {"{" MICRO ", \"zero_optimization\": {\"offload_param\": {\"device\": \"disk\"}}}",
         {"offload_param.device is \"disk\"", "\"none\", \"cpu\", \"nvme\""}},
        {"{" MICRO ", \"zero_optimization\": {\"sub_group_size\": 1.5}}", {"must be an integer"}},
        {"{" MICRO ", \"zero_optimization\": {\"sub_group_size\": \"5e8\"}}", {"an integer"}},
        {"{\"train_batch_size\": 0}", {"train_batch_size is 0", "an integer from 1 to "}},
        {"{" MICRO ", \"optimizer\": {\"params\": {\"lr\": \"3e-4\"}}}", {"must be a number"}},
        {"{" MICRO ", \"optimizer\": {\"params\": {\"lr\": -1}}}", {"at least 0"}},
        {"{" MICRO ", \"optimizer\": {\"params\": {\"betas\": [0.9]}}}", {"two numbers"}},
        {"{" MICRO ", \"optimizer\": {\"params\": {\"betas\": [0.9, 1]}}}", {"to below 1"}},
        {"{" MICRO ", \"fp16\": {\"loss_scale\": true}}", {"fp16.loss_scale is true"}},
        {"{" MICRO ", \"fp16\": {\"loss_scale\": -1}}", {"fp16.loss_scale is -1"}},
        {"{" MICRO ", \"fp16\": {\"loss_scale\": 1e999}}", {"fp16.loss_scale"}},
        {"{" MICRO ", \"fp16\": {\"loss_scale_window\": 0}}", {"loss_scale_window is 0"}},
        {"{" MICRO ", \"fp16\": {\"min_loss_scale\": 0}}", {"min_loss_scale is 0"}},
        {"{" MICRO ", \"fp16\": {\"enabled\": \"yes\"}}", {"must be true or false"}},
        {"{" MICRO ", \"fp16\": true}", {"fp16 must be an object"}},
        {"{" MICRO ", \"zero_optimization\": 3}", {"must be an object, or true or false"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": {}}}", {"stage is {}"}},
        {"{" MICRO ", \"zero_optimization\": {\"offload_param\": \"cpu\"}}", {"an object"}},
        {"{" MICRO ", \"zero_optimization\": {\"offload_param\": {\"nvme_path\": [\"a\", \"a\"]}}}",
         {"different folders"}},
        {"{" MICRO ", \"zero_optimization\": {\"offload_param\": {\"nvme_path\": []}}}",
         {"a folder or a list"}},
        {"{" MICRO ", \"zinf\": {\"device_memory\": \"4 apples\"}}", {"\"4GiB\""}},
        {"{" MICRO ", \"zinf\": {\"dropout\": 1}}", {"from 0 to below 1"}},
        {"{" MICRO ", \"zinf\": {\"io_engine\": \"aio\"}}", {"\"auto\", \"uring\", \"threads\""}},
        {"{" MICRO ", \"dump_state\": 7}", {"dump_state is 7"}},
        {"{" MICRO ", \"csv_monitor\": {\"job_name\": 7}}", {"must be a string"}},
        {"[]", {"must be an object"}},
        {"", {"ds.json"}},
        {"{" MICRO ", " MICRO "}", {"train_micro_batch_size_per_gpu", "twice"}},
    };
    CHECK_BAD(rows, NULL);
}

static void test_combinations_that_cannot_be(void)
{
    static const struct bad rows[] = {
        {"{" MICRO ", \"fp16\": {\"enabled\": true}, \"bf16\": {\"enabled\": true}}",
         {"fp16.enabled and bf16.enabled are both true", "set one"}},
        {"{" MICRO ", \"bf16\": {\"enabled\": true}, \"data_types\": {\"param_dtype\": \"fp16\"}}",
         {"data_types.param_dtype is fp16", "make it bf16"}},
        {"{" MICRO ",\n\"zero_optimization\": {\"stage\": 3, \"offload_param\": "
         "{\"device\": \"nvme\"}}}",
         {"ds.json:2: zero_optimization.offload_param.device",
          "offload_param.nvme_path is missing"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 3, \"offload_optimizer\": "
         "{\"device\": \"nvme\"}}}",
         {"offload_optimizer.nvme_path is missing"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 0, \"offload_optimizer\": "
         "{\"device\": \"nvme\", \"nvme_path\": \"/x\"}}}",
         {"needs zero_optimization.stage 1, 2 or 3 (it is 0)"}},
        {"{" MICRO ", \"zero_optimization\": {\"offload_optimizer\": {\"device\": \"cpu\"}}}",
         {"needs zero_optimization.stage 1, 2 or 3"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 2, \"offload_optimizer\": "
         "{\"device\": \"cpu\", \"ratio\": 0.5}}}",
         {"ratio below 1 needs"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 2}, \"gradient_predivide_factor\": 2}",
         {"gradient_predivide_factor does not go with zero_optimization.reduce_scatter"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 2}, \"prescale_gradients\": true}",
         {"prescale_gradients does not go with"}},
        {"{" MICRO ",\n\"zero_optimization\": {\"stage\": 2,\n\"cpu_offload\": true,\n"
         "\"offload_optimizer\": {\"device\": \"cpu\"}}}",
         {"offload_optimizer.device is given under two names", "ds.json:3", "ds.json:4"}},
        {"{" MICRO ", \"bf16\": {\"enabled\": true}, \"bfloat16\": {\"enabled\": true}}",
         {"bf16.enabled is given under two names"}},
        {"{" MICRO ", \"aio\": {\"thread_count\": 1, \"num_threads\": 1}}", {"two names"}},
        {"{" MICRO ", \"optimizer\": {\"type\": \"SGD\", \"params\": {\"betas\": [0.9, 0.99]}}}",
         {"optimizer.params.betas is no parameter of SGD, but of AdamW, Adam, Lion"}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
         "{\"total_num_steps\": 9}}}",
         {"is no parameter of WarmupLR, but of WarmupDecayLR"}},
        {"{" MICRO ", \"scheduler\": {\"params\": {\"warmup_num_steps\": 9}}}",
         {"given without scheduler.type"}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"WarmupDecayLR\"}}",
         {"WarmupDecayLR needs scheduler.params.total_num_steps", "--steps"}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"WarmupCosineLR\"}}", {"total_num_steps"}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_max_lr\": 1}}}",
         {"OneCycle needs scheduler.params.cycle_min_lr"}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"OneCycle\", \"params\": {\"cycle_min_lr\": 1}}}",
         {"OneCycle needs scheduler.params.cycle_max_lr"}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"Cosinus\"}}",
         {"\"WarmupLR\", \"WarmupDecayLR\""}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
         "{\"warmup_num_steps\": 0}}}",
         {"warmup_num_steps is 0"}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"WarmupLR\", \"params\": "
         "{\"warmup_type\": \"cubic\"}}}",
         {"\"linear\", \"log\""}},
    };
    CHECK_BAD(rows, NULL);
}

static void test_what_zinf_does_not_do(void)
{
    static const struct bad rows[] = {
        {"{" MICRO
         ",\n\"optimizer\": {\"type\": \"OneBitAdam\", \"params\": {\"freeze_step\": 9}}}",
         {"ds.json:2: optimizer.type \"OneBitAdam\" is not supported here; use AdamW"}},
        {"{" MICRO ", \"optimizer\": {\"type\": \"lamb\"}}", {"\"Lamb\" is not supported"}},
        {"{" MICRO ", \"optimizer\": {\"type\": \"MuAdam\"}}", {"\"MuAdam\" is not supported"}},
        {"{" MICRO ", \"optimizer\": {\"type\": \"AdmaW\"}}", {"did you mean \"AdamW\"?"}},
        {"{" MICRO ", \"optimizer\": {\"type\": \"Turbo\"}}", {"is unknown; use AdamW, Adam"}},
        {"{" MICRO ", \"optimizer\": {\"type\": 3}}", {"optimizer.type is 3"}},
        {"{" MICRO ",\n\"optimizer\": {\"params\": {\"max_grad_norm\": 1.0}}}",
         {"ds.json:2: optimizer.params.max_grad_norm", "gradient_clipping"}},
        {"{" MICRO ", \"optimizer\": {\"params\": {\"amsgrad\": true}}}", {"amsgrad is true"}},
        {"{" MICRO ", \"amp\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 1}}",
         {"amp.enabled is true", "bf16.enabled"}},
        {"{" MICRO ", \"bf16\": {\"bf16_optimizer_states\": true}}",
         {"bf16_optimizer_states", "bf16_master_weights_and_grads"}},
        {"{" MICRO ", \"bfloat16\": {\"bf16_master_weights_and_grads\": true}}",
         {"bf16_master_weights_and_grads is true"}},
        {"{" MICRO ", \"bf16\": {" HALVES "}}", {"bf16_optimizer_states", "bf16.enabled"}},
        {"{" MICRO ", \"bf16\": {\"enabled\": true, " HALVES "},"
         " \"optimizer\": {\"type\": \"Adafactor\"}}",
         {"Adafactor has smaller moments", "use AdamW"}},
        {"{" MICRO ", \"fp16\": {\"fp16_master_weights_and_grads\": true}}", {"fp32"}},
        {"{" MICRO ", \"zero_optimization\": {\"legacy_stage1\": true}}", {"legacy_stage1"}},
        {"{" MICRO ", \"zero_optimization\": {\"zenflow\": {\"topk_ratio\": 0.1}}}", {"ZenFlow"}},
        {"{" MICRO ", \"elasticity\": {\"enabled\": true}}", {"elasticity.enabled"}},
        {"{" MICRO ", \"tensor_parallel\": {\"tp\": {\"tp_size\": 2}}}",
         {"tp_size is 2", "this run has 1 rank"}},
        {"{" MICRO ", \"gradient_allreduce_op\": \"sum\"}", {"averaged"}},
        {"{" MICRO ", \"managed_gradient_accumulation\": false}", {"boundary"}},
        {"{" MICRO ", \"compression_training\": {\"weight_quantization\": {\"enabled\": true}}}",
         {"compression_training.weight_quantization.enabled is true", "compressed"}},
    };
    CHECK_BAD(rows, NULL);
}

static void test_auto_that_nobody_provides(void)
{
    static const struct bad rows[] = {
        {"{" MICRO ", \"fp16\": {\"enabled\": \"auto\"}}", {"fp16.enabled is \"auto\"", "--model"}},
        {"{" MICRO ", \"bf16\": {\"enabled\": \"auto\"}}", {"bf16.enabled is \"auto\"", "--model"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 3, \"stage3_prefetch_bucket_size\": "
         "\"auto\"}}",
         {"stage3_prefetch_bucket_size is \"auto\"", "hidden_size"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 3, "
         "\"stage3_param_persistence_threshold\": \"auto\"}}",
         {"persistence_threshold is \"auto\""}},
        {"{" MICRO ", \"scheduler\": {\"type\": \"WarmupDecayLR\", \"params\": "
         "{\"total_num_steps\": \"auto\"}}}",
         {"total_num_steps is \"auto\"", "--steps"}},
        {"{" MICRO ", \"zero_optimization\": {\"offload_param\": {\"device\": \"auto\"}}}",
         {"offload_param.device is \"auto\"", "write its value"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": \"auto\"}}", {"stage is \"auto\""}},
        {"{" MICRO ", \"steps_per_print\": \"auto\"}", {"steps_per_print is \"auto\""}},
    };
    CHECK_BAD(rows, NULL);
}

/* -1: not given; want_train 0: must fail. */
static void test_batch_triple(void)
{
    static const struct {
        int64_t train, micro, accumulation, world, want_train, want_micro, want_accumulation;
    } rows[] = {
        {32, 4, 8, 1, 32, 4, 8},
        {32, 4, 4, 2, 32, 4, 4},
        {32, 4, -1, 1, 32, 4, 8},
        {32, 4, -1, 2, 32, 4, 4},
        {32, -1, 8, 1, 32, 4, 8},
        {32, -1, 8, 2, 32, 2, 8},
        {-1, 4, 8, 1, 32, 4, 8},
        {-1, 4, 8, 3, 96, 4, 8},
        {32, -1, -1, 1, 32, 32, 1},
        {32, -1, -1, 4, 32, 8, 1},
        {-1, 4, -1, 1, 4, 4, 1},
        {-1, 4, -1, 5, 20, 4, 1},
        {-1, -1, -1, 1, 0, 0, 0},
        {-1, -1, 8, 1, 0, 0, 0},
        {10, 4, -1, 1, 0, 0, 0},
        {256, 4, 8, 1, 0, 0, 0},
        {2, 4, -1, 1, 0, 0, 0},
        {3, -1, -1, 4, 0, 0, 0},
        {7, -1, 2, 1, 0, 0, 0},
        {-1, 1 << 30, 1 << 30, 1 << 30, 0, 0, 0},
        {-1, 1 << 30, 1 << 30, 1, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_config *config = NULL;
        char text[256] = "{";
        size_t used = 1;
        const int64_t given[] = {rows[i].train, rows[i].micro, rows[i].accumulation};
        static const char *const names[] = {"train_batch_size", "train_micro_batch_size_per_gpu",
                                            "gradient_accumulation_steps"};
        for (int j = 0; j < 3; j++)
            if (given[j] >= 0)
                used += (size_t)snprintf(text + used, sizeof text - used, "%s\"%s\": %lld",
                                         used > 1 ? ", " : "", names[j], (long long)given[j]);
        snprintf(text + used, sizeof text - used, "}");
        int code = parse(&config, text, CONTEXT(NOTHING, .world_size = rows[i].world));
        if (!rows[i].want_train)
            CHECKF(code < 0, "accepted: %s on %lld", text, (long long)rows[i].world);
        else
            CHECKF(!code && config->train_batch_size == rows[i].want_train &&
                       config->micro_batch == rows[i].want_micro &&
                       config->accumulation == rows[i].want_accumulation,
                   "%s on %lld: %s", text, (long long)rows[i].world, zinf_error());
        zinf_config_destroy(config);
    }
}

static void test_batch_messages(void)
{
    static const struct bad one_rank[] = {
        {"{}", {"batch size is not given", "--micro-batch"}},
        {"{\"train_batch_size\": 256, \"train_micro_batch_size_per_gpu\": 4, "
         "\"gradient_accumulation_steps\": 8}",
         {"ds.json: the file is for 8 ranks; with 1, --accumulate 64 keeps the batch of 256. "
          "train_batch_size is 256, but train_micro_batch_size_per_gpu 4 * "
          "gradient_accumulation_steps 8 * world size 1 (ranks of this run) is 32",
          "Set train_batch_size to 32;",
          "train_micro_batch_size_per_gpu to 32 with gradient_accumulation_steps 8",
          "gradient_accumulation_steps to 64 with train_batch_size 256"}},
        {"{\"train_batch_size\": 10, \"train_micro_batch_size_per_gpu\": 4}",
         {"Set train_batch_size to 8;", "gradient_accumulation_steps to 3 with train_batch_size 12",
          "train_micro_batch_size_per_gpu to 5 with gradient_accumulation_steps 2"}},
    };
    static const struct bad four_ranks[] = {
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 3, \"zero_quantized_weights\": true}}",
         {"zero_quantized_weights", "full precision"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 3, \"zero_hpz_partition_size\": 4}}",
         {"zero_hpz_partition_size", "remove it"}},
        {"{" MICRO
         ", \"zero_optimization\": {\"stage\": 3, \"zeropp_loco_param\": {\"err_beta\": 0.8}}}",
         {"zeropp_loco_param", "remove it"}},
        {"{" MICRO ", \"zero_optimization\": {\"stage\": 3, \"mics_shard_size\": 2}}",
         {"mics_shard_size", "remove it"}},
        {"{\"train_batch_size\": 3}", {"world size 4", "Set train_batch_size to 4;"}},
    };
    CHECK_BAD(one_rank, NULL);
    CHECK_BAD(four_ranks, CONTEXT(NOTHING, .world_size = 4));
}

static void test_bad_command_line(void)
{
    struct zinf_config *config;
    CHECK(parse(&config, "{" MICRO "}",
                CONTEXT(NOTHING, SETTINGS(1, {"train_micro_batch_size_per_gpu", NULL, 0,
                                              "--micro-batch"}))) < 0);
    CHECK(strstr(zinf_error(), "--micro-batch"));
    CHECK(parse(&config, "{" MICRO "}",
                CONTEXT(NOTHING, SETTINGS(1, {"zinf.dropout", NULL, 1, "--dropout"}))) < 0);
    CHECK(strstr(zinf_error(), "--dropout"));
    CHECK(parse(&config, "{" MICRO "}", CONTEXT(NOTHING, .world_size = -1)) < 0);
    CHECK(parse(&config, "{" MICRO ", \"fp16\": {\"enabled\": \"auto\"}}",
                CONTEXT(NOTHING, .dtype = "int3")) < 0);
}

static void test_missing_file(void)
{
    struct zinf_config *config;
    CHECK(zinf_config_load(&config, "/nonexistent/ds.json", NULL) == -ENOENT);
    CHECK(strstr(zinf_error(), "/nonexistent/ds.json"));
    CHECK(zinf_config_load(&config, "/tmp", NULL) < 0);
}

int main(void)
{
    zinf_log_set_sink(catch_log, NULL);
    zinf_log_set_level(ZINF_LOG_INFO);
    TAP_RUN(test_unknown_keys);
    TAP_RUN(test_a_second_path_is_said);
    TAP_RUN(test_lenient_turns_unknown_keys_into_warnings);
    TAP_RUN(test_bad_values);
    TAP_RUN(test_combinations_that_cannot_be);
    TAP_RUN(test_what_zinf_does_not_do);
    TAP_RUN(test_auto_that_nobody_provides);
    TAP_RUN(test_batch_triple);
    TAP_RUN(test_batch_messages);
    TAP_RUN(test_bad_command_line);
    TAP_RUN(test_missing_file);
    return tap_done();
}

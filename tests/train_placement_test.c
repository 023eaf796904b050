/*
 * Where things live never changes a bit: every placement of parameters and optimizer state, with
 * and without look-ahead and accumulation, dropout on, gives the losses and final weights of the
 * run that keeps everything on the device; so does a device memory cap and a kept activation.
 */
#include "train_support.h"

#include "base/random.h"

#define STEPS 3
#define SEQ 16
#define BATCH 2
#define MAX_ACCUMULATION 4

struct outcome {
    double loss[STEPS], norm[STEPS];
    char folder[600];
    uint64_t device_bytes;
};

static char model[600], drive[600];

static void make_model(const char *name, int64_t layers)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = layers, .hidden = 64, .heads = 4, .vocab = 1000, .context = 32};
    cJSON *config = NULL;
    snprintf(model, sizeof model, "%s/%s", work, name);
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, 11, model), "%s", zinf_error());
    cJSON_Delete(config);
}

struct setting {
    const char *param, *optimizer, *grad, *precision, *extra;
    int accumulation, look_ahead, threads;
    uint64_t device_memory;
};

static struct zinf_config *configure(const struct setting *s)
{
    char text[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    context.device_memory = s->device_memory;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d,"
             "\"gradient_clipping\": 0.5, %s"
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, "
             "\"weight_decay\": 0.1}},"
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 20000,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}},"
             "\"zinf\": {\"look_ahead\": %d, \"threads\": %d%s%s%s%s}}",
             BATCH, s->accumulation, s->precision ? s->precision : "", s->param, drive,
             s->optimizer, drive, s->look_ahead, s->threads ? s->threads : 1,
             s->grad ? ", \"grad_device\": \"" : "", s->grad ? s->grad : "", s->grad ? "\"" : "",
             s->extra ? s->extra : "");
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    return config;
}

static void run(const struct setting *s, const char *name, struct outcome *out)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    static int32_t ids[MAX_ACCUMULATION * BATCH * SEQ], targets[MAX_ACCUMULATION * BATCH * SEQ];
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = model,
                                           .seed = 5,
                                           .config = config,
                                           .seq_len = SEQ,
                                           .device = ZINF_DEVICE_HOST};
    memset(out, 0, sizeof *out);
    if (!config)
        return;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (int step = 0; t && step < STEPS; step++) {
        struct zinf_step_result r = {0};
        for (uint32_t i = 0; i < MAX_ACCUMULATION * BATCH * SEQ; i++) {
            uint32_t counter[4] = {i, (uint32_t)step, 0, 0}, bits[4];
            zinf_philox(counter, 3, bits);
            ids[i] = (int32_t)(bits[0] % 1000);
            targets[i] = (int32_t)(bits[1] % 1000);
        }
        CHECKF(!zinf_trainer_step(t, ids, targets, &r), "%s", zinf_error());
        out->loss[step] = r.loss;
        out->norm[step] = r.grad_norm;
    }
    if (t) {
        snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
        CHECKF(!zinf_trainer_save(t, out->folder), "%s", zinf_error());
        out->device_bytes = zinf_trainer_planned_bytes(t, ZINF_MEMORY_DEVICE);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void check_same(const struct outcome *a, const struct outcome *b, const char *what)
{
    for (int i = 0; i < STEPS; i++) {
        CHECKF(a->loss[i] == b->loss[i] && a->loss[i] > 0, "%s: loss %d: %.17g, %.17g", what, i,
               a->loss[i], b->loss[i]);
        CHECKF(a->norm[i] == b->norm[i], "%s: norm %d: %.17g, %.17g", what, i, a->norm[i],
               b->norm[i]);
    }
    CHECKF(same_weights(a->folder, b->folder), "%s: weights differ", what);
}

static const char *const places[] = {"none", "cpu", "nvme"};

static void check_matrix(const char *precision)
{
    for (int accumulation = 1; accumulation <= MAX_ACCUMULATION; accumulation += 3) {
        struct setting s = {.param = "none",
                            .optimizer = "none",
                            .precision = precision,
                            .accumulation = accumulation,
                            .look_ahead = 0};
        struct outcome reference, other;
        run(&s, "reference", &reference);
        for (int param = 0; param < 3; param++) {
            for (int optimizer = 0; optimizer < 3; optimizer++) {
                for (s.look_ahead = 0; s.look_ahead <= 2; s.look_ahead += 2) {
                    char what[100];
                    snprintf(what, sizeof what, "param %s, optimizer %s, x%d, look-ahead %d",
                             places[param], places[optimizer], accumulation, s.look_ahead);
                    s.param = places[param];
                    s.optimizer = places[optimizer];
                    run(&s, "other", &other);
                    check_same(&reference, &other, what);
                }
            }
        }
    }
}

static void test_nine_placements_fp32(void)
{
    check_matrix(NULL);
}

static void test_nine_placements_bf16(void)
{
    check_matrix("\"bf16\": {\"enabled\": true},");
}

static void test_two_threads(void)
{
    struct setting s = {.param = "none", .optimizer = "none", .accumulation = 2, .threads = 2};
    struct outcome a, b;
    run(&s, "a", &a);
    s.param = s.optimizer = "nvme";
    s.look_ahead = 2;
    run(&s, "b", &b);
    check_same(&a, &b, "two threads");
}

static void test_gradients_in_ram_state_on_drive(void)
{
    struct setting s = {.param = "nvme", .optimizer = "nvme", .accumulation = 4, .look_ahead = 1};
    struct outcome a, b;
    run(&s, "a", &a);
    s.grad = "cpu";
    run(&s, "b", &b);
    check_same(&a, &b, "gradients in RAM");
}

static void test_device_cap_changes_nothing(void)
{
    struct setting s = {.param = "nvme", .optimizer = "nvme", .accumulation = 2, .look_ahead = -1};
    struct outcome free_run, capped;
    run(&s, "free", &free_run);
    /* The working set alone: as little as this plan can be given. */
    s.look_ahead = 0;
    s.extra = ", \"activation_checkpointing\": \"always\"";
    for (s.device_memory = free_run.device_bytes; s.device_memory > 4096;
         s.device_memory -= s.device_memory / 16) {
        struct zinf_config *config = configure(&s);
        struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                               .model_path = model,
                                               .config = config,
                                               .seq_len = SEQ,
                                               .device = ZINF_DEVICE_HOST};
        struct zinf_trainer *t = NULL;
        int code = zinf_trainer_create(&t, &options);
        zinf_trainer_destroy(t);
        zinf_config_destroy(config);
        if (code)
            break;
    }
    CHECK(strstr(zinf_error(), "device_memory") != NULL);
    s.device_memory += s.device_memory / 8;
    run(&s, "capped", &capped);
    CHECK(capped.device_bytes <= s.device_memory);
    CHECKF(capped.device_bytes < free_run.device_bytes / 2, "capped %llu of %llu",
           (unsigned long long)capped.device_bytes, (unsigned long long)free_run.device_bytes);
    check_same(&free_run, &capped, "capped");
}

static void test_quarter_of_the_parameters(void)
{
    struct setting s = {.param = "nvme", .optimizer = "nvme", .accumulation = 2, .look_ahead = -1};
    struct outcome free_run, capped;
    make_model("deep", 24);
    run(&s, "free", &free_run);
    s.device_memory = 24 * 12 * 64 * 64 * sizeof(float) / 4; /* of the blocks' matrices alone */
    run(&s, "quarter", &capped);
    CHECK(capped.device_bytes <= s.device_memory);
    check_same(&free_run, &capped, "a quarter of the parameters' bytes");
    snprintf(model, sizeof model, "%s/model", work);
}

static void test_recompute_equals_kept(void)
{
    struct setting s = {.param = "none",
                        .optimizer = "none",
                        .accumulation = 1,
                        .extra = ", \"activation_checkpointing\": \"never\""};
    struct outcome kept, recomputed;
    run(&s, "kept", &kept);
    s.extra = ", \"activation_checkpointing\": \"always\"";
    run(&s, "recomputed", &recomputed);
    CHECK(recomputed.device_bytes < kept.device_bytes);
    check_same(&kept, &recomputed, "recomputed");
}

static void test_fp16_overflow_skips(void)
{
    struct setting s = {.param = "nvme",
                        .optimizer = "nvme",
                        .accumulation = 1,
                        .look_ahead = 1,
                        .precision = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 40,"
                                     "\"hysteresis\": 1},"};
    struct outcome out;
    run(&s, "fp16", &out);
    CHECK(!isfinite(out.norm[0]) && !isfinite(out.norm[1]));
    /* Nothing was updated: the weights are the initial ones, rounded to fp16. */
    CHECK(out.loss[0] > 6 && out.loss[0] < 8);
}

static void test_no_files_stay(void)
{
    char command[700];
    snprintf(command, sizeof command, "test -z \"$(ls -A '%s')\"", drive);
    CHECKF(!system(command), "files are left in %s", drive);
}

int main(void)
{
    make_work("placement");
    zinf_log_set_level(ZINF_LOG_ERROR);
    snprintf(drive, sizeof drive, "%s/drive", work);
    zinf_make_dirs(drive);
    make_model("model", 3);
    TAP_RUN(test_nine_placements_fp32);
    TAP_RUN(test_nine_placements_bf16);
    TAP_RUN(test_two_threads);
    TAP_RUN(test_gradients_in_ram_state_on_drive);
    TAP_RUN(test_device_cap_changes_nothing);
    TAP_RUN(test_quarter_of_the_parameters);
    TAP_RUN(test_recompute_equals_kept);
    TAP_RUN(test_fp16_overflow_skips);
    TAP_RUN(test_no_files_stay);
    remove_work();
    return tap_done();
}

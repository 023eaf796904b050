/*
 * Optimizers whose state is no plain array: 8-bit AdamW, in blocks, and Adafactor, tensor by
 * tensor. The same bits on the device, in RAM and on the drive, under every schedule, also when
 * steps clip or overflow; the plan knows the bytes; and 8 bits train like 32.
 */
#include "train_support.h"

#include "base/random.h"

#define STEPS 6
#define SEQ 16

struct setting {
    const char *optimizer, *precision, *param, *state, *schedule;
    double clip;
    bool copies; /* not direct */
};
struct outcome {
    double loss[STEPS], norm[STEPS];
    char folder[600];
    uint64_t n_redone, drive_bytes;
    int n_skipped;
};

static const char adamw[] = "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, "
                            "\"weight_decay\": 0.1}}";
static const char lion[] = "{\"type\": \"Lion\", \"params\": {\"lr\": 1e-4}}";
static const char adamw_8bit[] = "{\"type\": \"AdamW8bit\", \"params\": {\"lr\": 1e-3, "
                                 "\"weight_decay\": 0.1}}";
static const char adafactor[] = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-2, "
                                "\"weight_decay\": 0.1}}";
static const char *const optimizers[] = {adamw_8bit, adafactor};

static const char bf16[] = "\"bf16\": {\"enabled\": true},";
/* Overflows at first. */
static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 20, "
                           "\"hysteresis\": 1, \"loss_scale_window\": 2},";

static char model[600], drive[600];

static struct zinf_config *configure(const struct setting *s, int64_t world)
{
    char text[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    context.world_size = world;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": 1, \"gradient_accumulation_steps\": 2,"
             "\"gradient_clipping\": %g, %s \"optimizer\": %s,"
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 4096,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\"}},"
             "\"zinf\": {\"threads\": 1, \"schedule\": \"%s\", \"direct\": %s}}",
             s->clip, s->precision ? s->precision : "", s->optimizer, s->param, drive, s->state,
             drive, s->schedule ? s->schedule : "auto", s->copies ? "false" : "true");
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    return config;
}

static struct zinf_trainer *create(const struct zinf_config *config)
{
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = model,
                                           .seed = 5,
                                           .config = config,
                                           .seq_len = SEQ,
                                           .device = ZINF_DEVICE_HOST};
    return zinf_trainer_create(&t, &options) ? NULL : t;
}

/* Every second step has few targets: its gradient is large. */
static void draw_tokens(int step, int32_t *ids, int32_t *targets)
{
    for (uint32_t i = 0; i < 2 * SEQ; i++) {
        uint32_t counter[4] = {i, (uint32_t)step, 0, 0}, bits[4];
        zinf_philox(counter, 3, bits);
        ids[i] = (int32_t)(bits[0] % 1000);
        targets[i] = step % 2 && i % SEQ ? -1 : (int32_t)(bits[1] % 1000);
    }
}

static void run(const struct setting *s, const char *name, struct outcome *out)
{
    struct zinf_config *config = configure(s, 1);
    int32_t ids[2 * SEQ], targets[2 * SEQ];
    memset(out, 0, sizeof *out);
    if (!config)
        return;
    struct zinf_trainer *t = create(config);
    CHECKF(t != NULL, "%s", zinf_error());
    for (int step = 0; t && step < STEPS; step++) {
        struct zinf_step_result r = {0};
        draw_tokens(step, ids, targets);
        CHECKF(!zinf_trainer_step(t, ids, targets, &r), "%s", zinf_error());
        out->loss[step] = r.loss;
        out->norm[step] = r.grad_norm;
        out->n_skipped += r.skipped;
        out->n_redone = r.n_redone;
    }
    if (t) {
        snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
        CHECKF(!zinf_trainer_save(t, out->folder), "%s", zinf_error());
        out->drive_bytes = zinf_trainer_planned_bytes(t, ZINF_MEMORY_DRIVE);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void check_same(const struct outcome *a, const struct setting *s)
{
    struct outcome b;
    char what[256];
    snprintf(what, sizeof what, "%s %s: parameters %s, state %s, %s%s", s->optimizer,
             s->precision ? s->precision : "", s->param, s->state, s->schedule ? s->schedule : "",
             s->copies ? ", copies" : "");
    run(s, "other", &b);
    for (int i = 0; i < STEPS; i++) {
        CHECKF(a->loss[i] == b.loss[i], "%s: loss %d: %.17g, %.17g", what, i, a->loss[i],
               b.loss[i]);
        CHECKF(a->norm[i] == b.norm[i] || (!isfinite(a->norm[i]) && !isfinite(b.norm[i])),
               "%s: norm %d: %.17g, %.17g", what, i, a->norm[i], b.norm[i]);
    }
    CHECKF(same_weights(a->folder, b.folder), "%s: weights differ", what);
}

static void test_placements(void)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    static const char *const precisions[] = {NULL, bf16};
    for (int o = 0; o < 2; o++)
        for (int p = 0; p < 2; p++) {
            struct setting s = {.optimizer = optimizers[o],
                                .precision = precisions[p],
                                .param = "none",
                                .state = "none",
                                .clip = 1};
            struct outcome reference;
            run(&s, "reference", &reference);
            CHECK(reference.loss[0] > 6 && reference.loss[STEPS - 1] != reference.loss[0]);
            for (int i = p; i < 9; i += 2) { /* together all nine */
                s.param = places[i / 3];
                s.state = places[i % 3];
                check_same(&reference, &s);
            }
        }
}

static void check_schedules(const char *optimizer, const char *precision, double clip)
{
    static const char *const schedules[] = {"serial", "prefetch", "update-in-forward",
                                            "update-in-backward"};
    struct setting s = {.optimizer = optimizer,
                        .precision = precision,
                        .param = "none",
                        .state = "none",
                        .schedule = "serial",
                        .clip = clip};
    struct outcome reference, speculating;
    run(&s, "reference", &reference);
    s.param = s.state = "nvme";
    for (int i = 0; i < 4; i++) {
        s.schedule = schedules[i];
        s.copies = i % 2;
        check_same(&reference, &s);
    }
    run(&s, "speculating", &speculating);
    if (precision == fp16)
        CHECKF(speculating.n_skipped > 0 && speculating.n_skipped < STEPS, "%d overflow",
               speculating.n_skipped);
    else
        CHECKF(speculating.n_redone > 0, "norms %g, %g: nothing was redone", speculating.norm[2],
               speculating.norm[3]);
}

static void test_schedules_with_clipping(void)
{
    for (int o = 0; o < 2; o++)
        check_schedules(optimizers[o], bf16, 4);
}

static void test_schedules_with_overflow(void)
{
    for (int o = 0; o < 2; o++)
        check_schedules(optimizers[o], fp16, 1);
}

static void test_8_bits_train_like_32(void)
{
    struct setting s = {.optimizer = adamw, .param = "none", .state = "none"};
    struct outcome wide, narrow;
    run(&s, "wide", &wide);
    s.optimizer = adamw_8bit;
    run(&s, "narrow", &narrow);
    double worst = 0;
    for (int i = 0; i < STEPS; i++)
        worst = fmax(worst, fabs(narrow.loss[i] / wide.loss[i] - 1));
    CHECKF(worst > 0 && worst < 2e-3, "losses apart by %g", worst);
}

/* On the drive nothing else changes with the optimizer; Lion has one moment. These sub-groups are
 * so small that a page for their scales is a byte a parameter, and padding counts for Adafactor. */
static void test_plan_knows_the_bytes(void)
{
    struct setting s = {.optimizer = adamw,
                        .precision = bf16,
                        .param = "nvme",
                        .state = "nvme",
                        .schedule = "serial"};
    struct outcome two, one, packed, factored;
    run(&s, "bytes", &two);
    s.optimizer = lion;
    run(&s, "bytes", &one);
    s.optimizer = adamw_8bit;
    run(&s, "bytes", &packed);
    s.optimizer = adafactor;
    run(&s, "bytes", &factored);
    double elems = (double)(two.drive_bytes - one.drive_bytes) / 4;
    double saved = (double)(two.drive_bytes - packed.drive_bytes) / elems;
    CHECKF(saved > 4.9 && saved <= 6 - 2.0 / 64, "8 bits save %g bytes a parameter", saved);
    saved = (double)(two.drive_bytes - factored.drive_bytes) / elems;
    CHECKF(saved > 7 && saved < 10, "factors save %g bytes a parameter", saved);
}

static void test_ranks_are_refused(void)
{
    struct setting s = {.optimizer = adafactor, .param = "none", .state = "none"};
    struct zinf_config *config = configure(&s, 2);
    if (!config)
        return;
    struct zinf_trainer *t = create(config);
    CHECKF(!t && strstr(zinf_error(), "whole tensors"), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

int main(void)
{
    /* Parts with and without weight decay do not end at blocks by themselves; five tiles. */
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 3, .hidden = 20, .heads = 4, .vocab = 1000, .context = 32};
    cJSON *config = NULL;
    make_work("optimizers");
    zinf_log_set_level(ZINF_LOG_ERROR);
    snprintf(drive, sizeof drive, "%s/drive", work);
    snprintf(model, sizeof model, "%s/model", work);
    zinf_make_dirs(drive);
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, 11, model), "%s", zinf_error());
    cJSON_Delete(config);
    TAP_RUN(test_placements);
    TAP_RUN(test_schedules_with_clipping);
    TAP_RUN(test_schedules_with_overflow);
    TAP_RUN(test_8_bits_train_like_32);
    TAP_RUN(test_plan_knows_the_bytes);
    TAP_RUN(test_ranks_are_refused);
    remove_work();
    return tap_done();
}

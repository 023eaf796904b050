/*
 * When things happen never changes a bit: every schedule, order of micro-batches, placement and
 * way of moving data gives the losses, norms and final weights of the run that does one thing
 * after another on the device; also when every second step clips or overflows, when the drive is
 * late and short, and when lanes stand still.
 */
#include "train_support.h"

#include "base/random.h"

#include <stdlib.h>

#define STEPS 8
#define SEQ 16
#define BATCH 1
#define MAX_ACCUMULATION 4
#define ROWS (MAX_ACCUMULATION * BATCH * SEQ)

struct setting {
    const char *schedule, *order, *param, *optimizer, *precision, *extra;
    int accumulation, steps;
    bool copies;          /* not direct */
    double clip;          /* 0: off */
    bool sparse;          /* odd steps have one target: their gradient is large */
    uint64_t host_memory; /* 0: not given */
    const struct zinf_aio_faults *faults;
    uint32_t delay_us;
    bool changes_schedule;
    double on_device; /* of the optimizer's state */
};
struct outcome {
    double loss[STEPS], norm[STEPS];
    char folder[600], schedule[32];
    uint64_t n_redone, read[STEPS];
    bool skipped[STEPS];
};

static char model[600], drive[600];

static struct zinf_config *configure(const struct setting *s)
{
    char text[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    context.host_memory = s->host_memory;
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %d,"
             "\"gradient_clipping\": %g, %s"
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, "
             "\"weight_decay\": 0.1}},"
             "\"zero_optimization\": {\"stage\": 3, \"sub_group_size\": 9000,"
             "\"offload_param\": {\"device\": \"%s\", \"nvme_path\": \"%s\"},"
             "\"offload_optimizer\": {\"device\": \"%s\", \"nvme_path\": \"%s\", \"ratio\": %g}},"
             "\"zinf\": {\"threads\": 1, \"schedule\": \"%s\", \"accumulation_order\": \"%s\","
             "\"direct\": %s%s}}",
             BATCH, s->accumulation ? s->accumulation : 1, s->clip,
             s->precision ? s->precision : "", s->param ? s->param : "nvme", drive,
             s->optimizer ? s->optimizer : "nvme", drive, 1 - s->on_device,
             s->schedule ? s->schedule : "auto", s->order ? s->order : "auto",
             s->copies ? "false" : "true", s->extra ? s->extra : "");
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    return config;
}

static void draw_tokens(int step, bool sparse, int32_t *ids, int32_t *targets)
{
    for (uint32_t i = 0; i < ROWS; i++) {
        uint32_t counter[4] = {i, (uint32_t)step, 0, 0}, bits[4];
        zinf_philox(counter, 3, bits);
        ids[i] = (int32_t)(bits[0] % 1000);
        targets[i] = sparse && step % 2 && i % SEQ ? -1 : (int32_t)(bits[1] % 1000);
    }
}

static const char *const schedules[] = {"serial", "prefetch", "update-in-forward",
                                        "update-in-backward"};

/* A schedule that rests runs as the one before it: what counts is the most that any step did. */
static int rank(const char *schedule)
{
    for (int i = 0; i < 4; i++)
        if (schedule && !strcmp(schedules[i], schedule))
            return i + 1;
    return 0;
}

static void run(const struct setting *s, const char *name, struct outcome *out)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer *t = NULL;
    static int32_t ids[ROWS], targets[ROWS];
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = model,
                                           .seed = 5,
                                           .config = config,
                                           .seq_len = SEQ,
                                           .device = ZINF_DEVICE_HOST,
                                           .faults = s->faults,
                                           .delay_us = s->delay_us,
                                           .changes_schedule = s->changes_schedule};
    memset(out, 0, sizeof *out);
    if (!config)
        return;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (int step = 0; t && step < (s->steps ? s->steps : STEPS); step++) {
        struct zinf_step_result r = {0};
        draw_tokens(step, s->sparse, ids, targets);
        CHECKF(!zinf_trainer_step(t, ids, targets, &r), "%s", zinf_error());
        out->loss[step] = r.loss;
        out->norm[step] = r.grad_norm;
        out->skipped[step] = r.skipped;
        out->n_redone = r.n_redone;
        out->read[step] = r.lane_bytes[0];
        if (rank(r.schedule) > rank(out->schedule))
            snprintf(out->schedule, sizeof out->schedule, "%s", r.schedule);
    }
    if (t) {
        snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
        CHECKF(!zinf_trainer_save(t, out->folder), "%s", zinf_error());
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static bool same_number(double a, double b)
{
    return a == b || (!isfinite(a) && !isfinite(b));
}

static void check_same(const struct outcome *a, const struct outcome *b, const char *what)
{
    for (int i = 0; i < STEPS; i++) {
        CHECKF(a->loss[i] == b->loss[i], "%s: loss %d: %.17g, %.17g", what, i, a->loss[i],
               b->loss[i]);
        CHECKF(same_number(a->norm[i], b->norm[i]), "%s: norm %d: %.17g, %.17g", what, i,
               a->norm[i], b->norm[i]);
    }
    CHECKF(same_weights(a->folder, b->folder), "%s: weights differ", what);
}

/* Every schedule from the drive, direct or through copies, against one thing after another on the
 * device. */
static void check_schedules(struct setting s, const char *what)
{
    struct outcome reference, other;
    struct setting plain = s;
    plain.schedule = "serial";
    plain.param = plain.optimizer = "none";
    plain.extra = NULL;
    plain.host_memory = 0;
    plain.on_device = 0;
    run(&plain, "reference", &reference);
    for (int i = 0; i < 4; i++)
        for (int copies = 0; copies < 2; copies++) {
            char said[200];
            s.schedule = schedules[i];
            s.copies = copies;
            snprintf(said, sizeof said, "%s, %s%s", what, s.schedule, copies ? ", copies" : "");
            run(&s, "other", &other);
            check_same(&reference, &other, said);
            CHECKF(!strcmp(other.schedule, s.schedule), "%s: ran %s", said, other.schedule);
        }
}

static void test_schedules_fp32(void)
{
    struct setting s = {.accumulation = 1};
    check_schedules(s, "fp32");
    s.accumulation = MAX_ACCUMULATION;
    check_schedules(s, "fp32 x4");
}

static void test_schedules_bf16(void)
{
    struct setting s = {.clip = 1e6, .precision = "\"bf16\": {\"enabled\": true},"};
    check_schedules(s, "bf16");
    s.param = "cpu";
    check_schedules(s, "bf16, parameters in RAM");
}

static void test_both_orders_of_micro_batches(void)
{
    static const char *const orders[] = {"micro-major", "layer-major"};
    struct setting s = {.accumulation = MAX_ACCUMULATION, .clip = 1};
    struct outcome reference, other;
    s.param = s.optimizer = "none";
    s.order = "micro-major";
    run(&s, "reference", &reference);
    for (int i = 0; i < 2; i++)
        for (int place = 0; place < 2; place++) {
            s.order = orders[i];
            s.param = s.optimizer = place ? "nvme" : "none";
            run(&s, "other", &other);
            check_same(&reference, &other, orders[i]);
        }
}

/* Layer by layer, a step with eight micro-batches reads no more than one with a single one. */
static void test_layer_major_reads_once(void)
{
    struct setting s = {.order = "layer-major", .schedule = "prefetch", .steps = 3};
    struct outcome one, four, repeated;
    s.extra = ", \"look_ahead\": 0, \"device_memory\": \"1.2MiB\"";
    s.accumulation = 1;
    run(&s, "one", &one);
    s.accumulation = MAX_ACCUMULATION;
    run(&s, "four", &four);
    s.order = "micro-major";
    run(&s, "repeated", &repeated);
    CHECKF(four.read[2] == one.read[2], "%llu bytes, not %llu", (unsigned long long)four.read[2],
           (unsigned long long)one.read[2]);
    CHECKF(repeated.read[2] > 2 * one.read[2], "%llu bytes in micro-batch order",
           (unsigned long long)repeated.read[2]);
}

/* An update in backward finds gradient and parameters where backward had them: neither is read. */
static void test_update_in_backward_reads_state_alone(void)
{
    const uint64_t block = 12 * 64 * 64 + 13 * 64; /* parameters */
    for (int copies = 0; copies < 2; copies++) {
        struct setting s = {.schedule = "prefetch", .copies = copies, .steps = 4};
        struct outcome apart, within;
        run(&s, "apart", &apart);
        s.schedule = "update-in-backward";
        run(&s, "within", &within);
        uint64_t spared = apart.read[3] - within.read[3], wanted = 3 * block * 2 * sizeof(float);
        CHECKF(spared >= wanted, "%llu bytes are not read, but could be %llu",
               (unsigned long long)spared, (unsigned long long)wanted);
    }
}

static void test_every_second_step_clips(void)
{
    struct setting s = {.clip = 7, .sparse = true, .schedule = "serial"};
    struct outcome out;
    s.param = s.optimizer = "none";
    run(&s, "plain", &out);
    int clipped = 0;
    for (int i = 0; i < STEPS; i++)
        clipped += out.norm[i] > s.clip;
    CHECKF(clipped >= STEPS / 4 && clipped <= 3 * STEPS / 4, "%d of %d steps clip", clipped, STEPS);
    s.param = s.optimizer = NULL;
    check_schedules(s, "every second step clips");
    s.schedule = "update-in-backward";
    run(&s, "again", &out);
    CHECKF(out.n_redone > 0, "no step was redone");
}

static void test_overflows_are_taken_back(void)
{
    struct setting s = {.precision = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 18,"
                                     "\"hysteresis\": 1, \"loss_scale_window\": 2},",
                        .clip = 1000};
    struct outcome out;
    check_schedules(s, "fp16");
    s.schedule = "update-in-backward";
    run(&s, "fp16", &out);
    int skipped = 0;
    for (int i = 0; i < STEPS; i++)
        skipped += out.skipped[i];
    CHECKF(skipped > 0 && skipped < STEPS, "%d of %d steps overflow", skipped, STEPS);
}

/* A share of the state on the device, from a part of the blocks to all units; the traffic is less.
 */
static void test_shares_on_the_device(void)
{
    static const double shares[] = {0, 0.3, 0.7, 1};
    uint64_t read[4];
    for (int i = 0; i < 4; i++) {
        struct setting s = {.precision = i % 2 ? "\"bf16\": {\"enabled\": true}," : NULL,
                            .clip = 7,
                            .sparse = true,
                            .accumulation = 1 + i % 2,
                            .on_device = shares[i],
                            .schedule = "update-in-forward"};
        struct outcome out;
        if (shares[i] < 1) /* else there is nothing to speculate with */
            check_schedules(s, "a share on the device");
        s.precision = NULL;
        s.accumulation = 1;
        run(&s, "share", &out);
        read[i] = out.read[STEPS - 1];
        CHECKF(!i || read[i] < read[i - 1], "%g on the device: %llu bytes read, before %llu",
               shares[i], (unsigned long long)read[i], (unsigned long long)read[i ? i - 1 : 0]);
    }
}

/* What one schedule leaves to be done the next one finds. */
static void test_schedules_in_turn(void)
{
    static const char *const precisions[] = {NULL, "\"bf16\": {\"enabled\": true},"};
    for (int i = 0; i < 2; i++)
        for (int clips = 0; clips < 2; clips++) {
            struct setting s = {
                .precision = precisions[i], .clip = clips ? 7 : 1000, .sparse = clips};
            struct outcome reference, other;
            s.schedule = "serial";
            run(&s, "reference", &reference);
            s.schedule = "auto";
            s.changes_schedule = true;
            run(&s, "other", &other);
            check_same(&reference, &other, clips ? "in turn, clips" : "in turn");
            CHECKF(!strcmp(other.schedule, "update-in-backward"), "ran %s", other.schedule);
        }
}

static void test_activations_elsewhere(void)
{
    static const char *const extras[] = {
        ", \"activation_device\": \"cpu\", \"activation_checkpointing\": \"always\"",
        ", \"activation_device\": \"nvme\", \"activation_checkpointing\": \"always\""};
    for (int accumulation = 1; accumulation <= MAX_ACCUMULATION; accumulation += 3)
        for (int i = 0; i < 2; i++) {
            struct setting s = {.accumulation = accumulation, .extra = extras[i]};
            check_schedules(s, extras[i]);
        }
}

/* Budgets that hold some units' parameters, state and gradients, and leave others on the drive. */
static void test_budgets_are_filled(void)
{
    struct setting s = {.clip = 7, .sparse = true, .schedule = "serial"};
    struct outcome reference, other;
    s.param = s.optimizer = "none";
    run(&s, "reference", &reference);
    s.param = s.optimizer = NULL;
    uint64_t least_read = UINT64_MAX;
    for (uint64_t more = 0; more <= 8; more++) {
        char what[64];
        s.schedule = schedules[more % 4];
        s.host_memory = zinf_memory_resident() + (((uint64_t)12 + more) << 19);
        snprintf(what, sizeof what, "host memory +%llu", (unsigned long long)more);
        run(&s, "other", &other);
        check_same(&reference, &other, what);
        least_read = other.read[1] < least_read ? other.read[1] : least_read;
    }
    CHECKF(least_read < reference.read[1] + ((uint64_t)4 << 20), "budgets spare no reads");
}

/* With a budget for it, state in RAM has two generations: of some blocks, of all, of the tables. */
static void test_updates_in_ram_are_taken_back(void)
{
    struct setting s = {.clip = 7, .sparse = true, .precision = "\"bf16\": {\"enabled\": true},"};
    struct outcome reference, other;
    s.schedule = "serial";
    s.param = s.optimizer = "none";
    run(&s, "reference", &reference);
    s.schedule = "update-in-backward";
    s.copies = true;
    int n_speculated = 0, n_waited = 0;
    for (uint64_t more = 0; more <= 12; more++) {
        char what[64];
        s.param = more % 3 ? "cpu" : "nvme";
        s.optimizer = "cpu";
        s.host_memory = zinf_memory_resident() + (((uint64_t)18 + more) << 19);
        snprintf(what, sizeof what, "in RAM, +%llu", (unsigned long long)more);
        run(&s, "other", &other);
        check_same(&reference, &other, what);
        bool speculated = !strcmp(other.schedule, s.schedule);
        CHECKF(speculated == (other.n_redone > 0), "%s: %s, %llu steps redone", what,
               other.schedule, (unsigned long long)other.n_redone);
        n_speculated += speculated;
        n_waited += !speculated;
    }
    CHECKF(n_speculated > 2 && n_waited > 0, "%d budgets speculate, %d do not", n_speculated,
           n_waited);
}

static void test_late_and_short_transfers_and_lanes(void)
{
    struct zinf_aio_faults faults = {
        .seed = 3, .short_ppm = 200000, .delay_ppm = 100000, .delay_us = 300, .reorder = true};
    struct setting s = {.clip = 7,
                        .sparse = true,
                        .accumulation = 2,
                        .faults = &faults,
                        .delay_us = 500,
                        .precision = "\"bf16\": {\"enabled\": true},"};
    check_schedules(s, "disturbed");
}

int main(void)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = 3, .hidden = 64, .heads = 4, .vocab = 1000, .context = 32};
    cJSON *config = NULL;
    make_work("schedules");
    zinf_log_set_level(ZINF_LOG_ERROR);
    snprintf(drive, sizeof drive, "%s/drive", work);
    snprintf(model, sizeof model, "%s/model", work);
    zinf_make_dirs(drive);
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, 11, model), "%s", zinf_error());
    cJSON_Delete(config);
    TAP_RUN(test_schedules_fp32);
    TAP_RUN(test_schedules_bf16);
    TAP_RUN(test_both_orders_of_micro_batches);
    TAP_RUN(test_layer_major_reads_once);
    TAP_RUN(test_update_in_backward_reads_state_alone);
    TAP_RUN(test_every_second_step_clips);
    TAP_RUN(test_overflows_are_taken_back);
    TAP_RUN(test_shares_on_the_device);
    TAP_RUN(test_schedules_in_turn);
    TAP_RUN(test_activations_elsewhere);
    TAP_RUN(test_budgets_are_filled);
    TAP_RUN(test_updates_in_ram_are_taken_back);
    TAP_RUN(test_late_and_short_transfers_and_lanes);
    remove_work();
    return tap_done();
}

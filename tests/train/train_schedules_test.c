/*
 * When things happen never changes a bit: every schedule, order of micro-batches, placement and
 * way of moving data gives the losses, norms and final weights of the run that does one thing
 * after another on the device; also when every second step clips or overflows, when the drive is
 * late and short, and when lanes stand still.
 */
#include "train/trainer.h"
#include "trainings.h"

#include <xxhash.h>

#define STEPS 8
#define MAX_ACCUMULATION 4

/* So that whatever spares the drive is worth it. */
static const struct zinf_speeds slow_drive = {.device_flops = 1e12,
                                              .link_bytes = 1e11,
                                              .optimizer_bytes = 1e11,
                                              .drive_read_bytes = 1e6,
                                              .drive_write_bytes = 1e6};

/* Every schedule from the drive, direct or through copies, against one thing after another on the
 * device. */
static void check_schedules(struct setting s, const char *what)
{
    struct outcome reference, other;
    struct setting plain = s;
    plain.schedule = "serial";
    plain.param = plain.state = "none";
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
    struct setting s = {.clip = 1e6, .precision = bf16};
    check_schedules(s, "bf16");
    s.param = "cpu";
    check_schedules(s, "bf16, parameters in RAM");
}

static void test_both_orders_of_micro_batches(void)
{
    static const char *const orders[] = {"micro-major", "layer-major"};
    struct setting s = {.accumulation = MAX_ACCUMULATION, .clip = 1};
    struct outcome reference, other;
    s.param = s.state = "none";
    s.order = "micro-major";
    run(&s, "reference", &reference);
    for (int i = 0; i < 2; i++)
        for (int place = 0; place < 2; place++) {
            s.order = orders[i];
            s.param = s.state = place ? "nvme" : "none";
            run(&s, "other", &other);
            check_same(&reference, &other, orders[i]);
        }
}

/* Layer by layer, a step with eight micro-batches reads no more than one with a single one. */
static void test_layer_major_reads_once(void)
{
    struct setting s = {.order = "layer-major", .schedule = "prefetch", .steps = 3};
    struct outcome one, four, repeated;
    s.look_ahead = "0";
    s.extra = ", \"device_memory\": \"1.2MiB\", \"pack\": \"off\"";
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

/* In place there is nothing to take back: no second generation, no gradient but sums of several. */
static void test_update_in_place(void)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    static const char *const optimizers[] = {
        NULL, "{\"type\": \"AdamW8bit\", \"params\": {\"lr\": 1e-3}}",
        "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-3}}"};
    for (int i = 0; i < 36; i++) {
        struct setting s = {.param = places[i % 3],
                            .state = places[i / 3 % 3],
                            .accumulation = i / 9 % 2 ? MAX_ACCUMULATION : 1,
                            .order = i % 2 ? "micro-major" : "layer-major",
                            .optimizer = optimizers[i / 9 % 3],
                            .copies = i % 4 == 1,
                            .precision = i / 18 ? bf16 : ""};
        struct outcome waits, in_place;
        char said[160];
        snprintf(said, sizeof said, "parameters %s, state %s, %d micro-batches, %s, %s", s.param,
                 s.state, s.accumulation, s.order, word(s.optimizer, "AdamW"));
        s.schedule = "prefetch";
        run(&s, "waits", &waits);
        s.schedule = "update-in-place";
        run(&s, "in place", &in_place);
        check_same(&waits, &in_place, said);
        CHECKF(!strcmp(in_place.schedule, s.schedule), "%s: ran %s", said, in_place.schedule);
    }
}

/* The gradients of three blocks; the table's is a sum of two. */
static void test_update_in_place_takes_least(void)
{
    const uint64_t blocks = 3 * (12 * 64 * 64 + 13 * 64) * sizeof(float);
    struct setting s = {.schedule = "update-in-forward"};
    struct outcome kept, in_place;
    run(&s, "kept", &kept);
    s.schedule = "update-in-place";
    run(&s, "in place", &in_place);
    CHECKF(in_place.drive_bytes + blocks <= kept.drive_bytes,
           "%llu bytes on the drive, %llu with gradients", (unsigned long long)in_place.drive_bytes,
           (unsigned long long)kept.drive_bytes);
}

static void test_update_in_place_is_refused(void)
{
    struct setting clips = {.schedule = "update-in-place", .clip = 1, .may_fail = true};
    struct setting overflows = {.schedule = "update-in-place",
                                .may_fail = true,
                                .precision = "\"fp16\": {\"enabled\": true},"};
    struct outcome out;
    run(&clips, "clips", &out);
    CHECK(out.failed && strstr(zinf_error(), "gradient_clipping"));
    run(&overflows, "overflows", &out);
    CHECK(out.failed && strstr(zinf_error(), "bf16.enabled"));
}

/* The gradients of a step that diverges are not finite: its updates cannot be taken back. */
static void test_update_in_place_diverges(void)
{
    struct setting s = {.schedule = "update-in-place",
                        .may_fail = true,
                        .precision = bf16,
                        .optimizer = "{\"type\": \"SGD\", \"params\": {\"lr\": 1e38}}"};
    struct outcome out;
    run(&s, "diverges", &out);
    CHECKF(out.failed && strstr(zinf_error(), "checkpoint"), "%s", zinf_error());
}

/* Some of its updates are made then: nothing is computed of such parameters, and none are saved. */
static void test_failed_step_is_the_last(void)
{
    struct setting s = {.schedule = "update-in-place",
                        .optimizer = "{\"type\": \"SGD\", \"params\": {\"lr\": 1e38}}"};
    int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    struct zinf_step_result r;
    double sum;
    uint64_t n, step = 0;
    int code = 0;
    draw_tokens(&s, 0, ids, targets);
    struct zinf_config *config = configure(&s);
    struct zinf_trainer *t = NULL;
    const struct zinf_trainer_options options = trainer_options(&s, config);
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    while (t && !code && step < STEPS)
        code = next_step(t, &s, step++, &r);
    CHECKF(code == -ERANGE && strstr(zinf_error(), "cannot take"), "%d: %s", code, zinf_error());
    CHECK(t && zinf_trainer_loss(t, TOKENS(ids, targets), 1, &sum, &n) == -ERANGE);
    CHECKF(strstr(zinf_error(), "cannot take its updates back"), "%s", zinf_error());
    CHECK(t && next_step(t, &s, step, &r) == -ERANGE);
    CHECK(t && zinf_trainer_save(t, work) == -ERANGE);
    CHECKF(strstr(zinf_error(), "cannot take its updates back"), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_every_second_step_clips(void)
{
    struct setting s = {.clip = 7, .sparse = true, .schedule = "serial"};
    struct outcome out;
    s.param = s.state = "none";
    run(&s, "plain", &out);
    int clipped = 0;
    for (int i = 0; i < STEPS; i++)
        clipped += out.norm[i] > s.clip;
    CHECKF(clipped >= STEPS / 4 && clipped <= 3 * STEPS / 4, "%d of %d steps clip", clipped, STEPS);
    s.param = s.state = NULL;
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
        struct setting s = {.precision = i % 2 ? bf16 : NULL,
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
    const char *const precisions[] = {NULL, bf16};
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
    s.param = s.state = "none";
    run(&s, "reference", &reference);
    s.param = s.state = NULL;
    uint64_t least_read = UINT64_MAX;
    for (uint64_t more = 0; more <= 8; more++) {
        char what[64];
        s.schedule = schedules[more % 4];
        s.host_memory = RESIDENT + (((uint64_t)20 + more) << 19);
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
    struct setting s = {.clip = 7, .sparse = true, .precision = bf16};
    struct outcome reference, other;
    s.schedule = "serial";
    s.param = s.state = "none";
    run(&s, "reference", &reference);
    s.schedule = "update-in-backward";
    s.copies = true;
    int n_speculated = 0, n_waited = 0;
    for (uint64_t more = 0; more <= 12; more++) {
        char what[64];
        s.param = more % 3 ? "cpu" : "nvme";
        s.state = "cpu";
        s.host_memory = RESIDENT + (((uint64_t)26 + more) << 19);
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

/* One thing after another. */
static void run_on_device(struct setting s, struct outcome *out)
{
    s.schedule = "serial";
    s.param = s.state = "none";
    run(&s, "reference", out);
}

/* State on the drive, parameters in RAM, where there is room for one generation of some or all. The
 * drive is slow enough that room for state is worth a copy of them. */
static void test_overwritten_parameters_are_taken_back(void)
{
    static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 18,"
                               "\"hysteresis\": 1, \"loss_scale_window\": 2},";
    const char *const precisions[] = {bf16, NULL, fp16};
    int n_overwrite = 0;
    for (int i = 0; i < 3; i++) {
        struct setting s = {.clip = 7, .sparse = true, .precision = precisions[i]};
        struct outcome reference, other;
        run_on_device(s, &reference);
        s.schedule = "update-in-backward";
        s.speeds = &slow_drive;
        for (uint64_t more = 4; more < 16; more++) {
            char what[64];
            s.copies = more % 2;
            s.param = more % 3 ? "cpu" : "nvme";
            s.state = "nvme";
            s.changes_schedule = more % 5 == 4;
            s.extra = more % 2 ? ", \"pack\": \"all\"" : NULL;
            s.host_memory = RESIDENT + (((uint64_t)36 + more) << 18);
            snprintf(what, sizeof what, "once in RAM, %d, +%llu", i, (unsigned long long)more);
            run(&s, "other", &other);
            check_same(&reference, &other, what);
            n_overwrite += other.overwrites && other.n_redone;
        }
    }
    CHECKF(n_overwrite > 9, "%d plans overwrite parameters", n_overwrite);
}

/* A checkpoint's arrays: of all masters and moments. */
static uint64_t sum_of_state(const struct zinf_trainer *t)
{
    const struct source s = trainer_source(t);
    uint64_t sum = 0;
    for (uint32_t u = 0; u < t->setup.n_units; u++) {
        const uint64_t bytes = t->setup.layout.units[u].slice_elems * sizeof(float);
        float *flat = aligned_alloc(ZINF_MEMORY_ALIGN, bytes);
        for (int which = 0; which <= setup_n_moments(&t->setup); which++) {
            CHECKF(!state_read(&s, u, which, flat), "%s", zinf_error());
            sum = XXH3_64bits_withSeed(flat, bytes, sum);
        }
        free(flat);
    }
    return sum;
}

/* What is in RAM packed is read, and written, as it is anywhere else. */
static void check_state_in_ram(const struct setting *s, bool packed, uint64_t sums[2])
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    struct zinf_step_result r;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    CHECK(t && plan_says(t, "optimizer state in RAM is packed") == packed);
    for (int half = 0; t && half < 2; half++) {
        for (int step = 0; step < 3; step++)
            CHECKF(!next_step(t, s, t->step, &r), "%s", zinf_error());
        CHECK(!trainer_settle(t));
        sums[half] = sum_of_state(t);
        const struct source source = trainer_source(t);
        float *flat = aligned_alloc(ZINF_MEMORY_ALIGN, t->setup.layout.max_unit_elems * 4);
        for (uint32_t u = 0; u < t->setup.n_units; u++) /* others from now on */
            for (int which = 1; which <= 2; which++) {
                CHECK(!state_read(&source, u, which, flat));
                for (uint64_t i = 0; i < t->setup.layout.units[u].slice_elems; i++)
                    flat[i] *= 0.5f;
                CHECK(!state_write(&source, u, which, flat));
            }
        free(flat);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* Optimizer state in RAM, packed; what is longer than its room lies on the drive. */
static void test_state_packed_in_ram(void)
{
    const char *const precisions[] = {bf16, NULL, "\"fp16\": {\"enabled\": true},"};
    int n_packed = 0;
    for (int i = 0; i < 3; i++) {
        struct setting s = {.clip = 7, .sparse = true, .precision = precisions[i]};
        struct outcome reference, other;
        run_on_device(s, &reference);
        s.speeds = &slow_drive;
        s.state = "nvme";
        for (uint64_t more = 0; more < 10; more++) {
            char what[64];
            s.schedule = schedules[more % 4];
            s.copies = more % 2;
            s.param = more % 3 ? "cpu" : "nvme";
            s.extra = more % 2 ? ", \"pack\": \"all\"" : ", \"pack\": \"state\"";
            s.head_margin = more % 3 == 2 ? 0.5 : 0; /* half as much room as is needed */
            s.host_memory = RESIDENT + (((uint64_t)40 + more) << 18);
            snprintf(what, sizeof what, "packed in RAM, %d, +%llu", i, (unsigned long long)more);
            run(&s, "other", &other);
            check_same(&reference, &other, what);
            n_packed += other.packs_ram;
        }
    }
    CHECKF(n_packed > 5, "%d plans pack state in RAM", n_packed);
}

/* Parameters in RAM, packed: where updates cannot be taken back, and where a copy on the drive has
 * the older ones; some or all are there. */
static void test_parameters_packed_in_ram(void)
{
    const char *const precisions[] = {bf16, NULL, "\"fp16\": {\"enabled\": true},"};
    int n_packed = 0, n_beyond = 0, n_taken_back = 0;
    for (int i = 0; i < 3; i++) {
        struct setting s = {
            .clip = 7, .sparse = true, .precision = precisions[i], .asks_fronts = true};
        struct outcome reference, other;
        run_on_device(s, &reference);
        s.speeds = &slow_drive;
        s.state = "nvme";
        s.extra = ", \"pack\": \"all\"";
        for (uint64_t more = 0; more < 10; more++) {
            char what[64];
            s.schedule = schedules[more % 4];
            s.copies = more % 2;
            s.param = more % 3 ? "cpu" : "nvme";
            s.changes_schedule = more % 5 == 4;
            s.head_margin = more % 4 == 3 ? 0.5 : 0; /* half as much room as is needed */
            s.host_memory = RESIDENT + (((uint64_t)40 + more) << 18);
            snprintf(what, sizeof what, "packed in RAM, %d, +%llu", i, (unsigned long long)more);
            run(&s, "other", &other);
            check_same(&reference, &other, what);
            n_packed += other.packs_fronts;
            n_beyond += other.packs_fronts && s.head_margin > 0;
            n_taken_back += other.packs_fronts && other.overwrites && other.n_redone;
        }
    }
    CHECKF(n_packed > 15 && n_beyond > 3 && n_taken_back > 3,
           "%d plans pack parameters in RAM, %d without room for all, %d take updates back",
           n_packed, n_beyond, n_taken_back);
}

static void test_state_packed_in_ram_is_saved(void)
{
    struct setting s = {.param = "none", .state = "none", .precision = bf16};
    uint64_t plain[2], packed[2];
    check_state_in_ram(&s, false, plain);
    s.speeds = &slow_drive;
    s.state = "nvme";
    s.extra = ", \"pack\": \"state\"";
    for (int i = 0; i < 2; i++) {
        s.head_margin = i ? 0.5 : 0;
        s.host_memory = RESIDENT + ((uint64_t)48 << 18);
        check_state_in_ram(&s, true, packed);
        CHECKF(packed[0] == plain[0] && packed[1] == plain[1], "margin %g", s.head_margin);
    }
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
                        .precision = bf16};
    check_schedules(s, "disturbed");
}

int main(void)
{
    begin_trainings("schedules", &(struct trainings){.shape = {.arch = "gpt2",
                                                               .layers = 3,
                                                               .hidden = 64,
                                                               .heads = 4,
                                                               .vocab = 1000,
                                                               .context = 32},
                                                     .steps = STEPS,
                                                     .seq = 16,
                                                     .batch = 1,
                                                     .sub_group = 9000});
    TAP_RUN(test_schedules_fp32);
    TAP_RUN(test_schedules_bf16);
    TAP_RUN(test_both_orders_of_micro_batches);
    TAP_RUN(test_layer_major_reads_once);
    TAP_RUN(test_update_in_backward_reads_state_alone);
    TAP_RUN(test_update_in_place);
    TAP_RUN(test_update_in_place_takes_least);
    TAP_RUN(test_update_in_place_is_refused);
    TAP_RUN(test_update_in_place_diverges);
    TAP_RUN(test_failed_step_is_the_last);
    TAP_RUN(test_every_second_step_clips);
    TAP_RUN(test_overflows_are_taken_back);
    TAP_RUN(test_shares_on_the_device);
    TAP_RUN(test_schedules_in_turn);
    TAP_RUN(test_activations_elsewhere);
    TAP_RUN(test_budgets_are_filled);
    TAP_RUN(test_updates_in_ram_are_taken_back);
    TAP_RUN(test_overwritten_parameters_are_taken_back);
    TAP_RUN(test_state_packed_in_ram);
    TAP_RUN(test_parameters_packed_in_ram);
    TAP_RUN(test_state_packed_in_ram_is_saved);
    TAP_RUN(test_late_and_short_transfers_and_lanes);
    remove_work();
    return tap_done();
}

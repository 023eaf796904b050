/*
 * Optimizers whose state is no plain array: 8-bit AdamW, in blocks, Adafactor, tensor by tensor,
 * and moments in bf16, rounded by chance. The same bits on the device, in RAM and on the drive,
 * under every schedule, also when steps clip or overflow; the plan knows the bytes; 8 and 16 bits
 * train like 32; and bf16 moments are those of a rounding that is written here.
 */
#include "trainings.h"

#include "base/random.h"
#include "train/trainer.h"

#define STEPS 6

static const char adamw[] = "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, "
                            "\"weight_decay\": 0.1}}";
static const char lion[] = "{\"type\": \"Lion\", \"params\": {\"lr\": 1e-4}}";
static const char adamw_8bit[] = "{\"type\": \"AdamW8bit\", \"params\": {\"lr\": 1e-3, "
                                 "\"weight_decay\": 0.1}}";
static const char adafactor[] = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-2, "
                                "\"weight_decay\": 0.1}}";
static const char *const optimizers[] = {adamw_8bit, adafactor};

/* As DeepSpeed wants it. */
static const char half[] = "\"bf16\": {\"enabled\": true, \"bf16_master_weights_and_grads\": true, "
                           "\"bf16_optimizer_states\": true},";

/* Overflows at first. */
static const char fp16[] = "\"fp16\": {\"enabled\": true, \"initial_scale_power\": 20, "
                           "\"hysteresis\": 1, \"loss_scale_window\": 2},";

/* The usual training of this test under an optimizer. */
static struct setting setting_of(const char *optimizer, const char *precision, double clip)
{
    return (struct setting){.optimizer = optimizer,
                            .precision = precision,
                            .param = "none",
                            .state = "none",
                            .accumulation = 2,
                            .clip = clip,
                            .sparse = true};
}

static void check_other(const struct outcome *reference, const struct setting *s)
{
    struct outcome other;
    char what[256];
    snprintf(what, sizeof what, "%s %s: parameters %s, state %s, %s%s", s->optimizer,
             word(s->precision, ""), s->param, s->state, word(s->schedule, ""),
             s->copies ? ", copies" : "");
    run(s, "other", &other);
    check_same(reference, &other, what);
}

static void test_placements(void)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    static const char *const precisions[] = {NULL, bf16};
    for (int o = 0; o < 2; o++)
        for (int p = 0; p < 2; p++) {
            struct setting s = setting_of(optimizers[o], precisions[p], 1);
            struct outcome reference;
            run(&s, "reference", &reference);
            CHECK(reference.loss[0] > 6 && reference.loss[STEPS - 1] != reference.loss[0]);
            for (int i = p; i < 9; i += 2) { /* together all nine */
                s.param = places[i / 3];
                s.state = places[i % 3];
                check_other(&reference, &s);
            }
        }
}

static void test_placements_of_bf16_moments(void)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    for (int o = 0; o < 2; o++) {
        struct setting s = setting_of(o ? lion : adamw, half, 1);
        struct outcome reference;
        run(&s, "reference", &reference);
        for (int i = o; i < 9; i += 2) {
            s.param = places[i / 3];
            s.state = places[i % 3];
            check_other(&reference, &s);
        }
    }
}

static void check_schedules(const char *optimizer, const char *precision, double clip)
{
    struct setting s = setting_of(optimizer, precision, clip);
    struct outcome reference, speculating;
    s.schedule = schedules[0];
    run(&s, "reference", &reference);
    s.param = s.state = "nvme";
    for (int i = 0; i < 4; i++) {
        s.schedule = schedules[i];
        s.copies = i % 2;
        check_other(&reference, &s);
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
    check_schedules(adamw, half, 4);
}

static void test_schedules_with_overflow(void)
{
    for (int o = 0; o < 2; o++)
        check_schedules(optimizers[o], fp16, 1);
}

static void test_8_bits_train_like_32(void)
{
    struct setting s = setting_of(adamw, NULL, 0);
    struct outcome wide, narrow;
    run(&s, "wide", &wide);
    s.optimizer = adamw_8bit;
    run(&s, "narrow", &narrow);
    double worst = 0;
    for (int i = 0; i < STEPS; i++)
        worst = fmax(worst, fabs(narrow.loss[i] / wide.loss[i] - 1));
    CHECKF(worst > 0 && worst < 2e-3, "losses apart by %g", worst);
}

static void test_bf16_moments_train_like_32(void)
{
    struct setting s = setting_of(adamw, bf16, 0);
    struct outcome wide, narrow;
    run(&s, "wide", &wide);
    s.precision = half;
    run(&s, "narrow", &narrow);
    double worst = 0;
    for (int i = 0; i < STEPS; i++)
        worst = fmax(worst, fabs(narrow.loss[i] / wide.loss[i] - 1));
    CHECKF(worst > 0 && worst < 2e-3, "losses apart by %g", worst);
}

/* ---- the rounding, once more ---- */

static uint16_t round_moment(float value, uint64_t key, uint64_t element, uint32_t step, int moment)
{
    const uint64_t block = element / 64 * 16 + element % 16;
    const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), step, 0};
    uint32_t words[4], bits;
    zinf_philox(counter, key, words);
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + (words[element % 64 / 16] >> (16 * moment) & 0xffff)) >> 16);
}

static struct zinf_trainer *after_a_step(struct setting *s, struct zinf_config **config)
{
    struct zinf_step_result r;
    *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, *config);
    struct zinf_trainer *t = NULL;
    options.seed = 12345;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    CHECKF(t && !next_step(t, s, 0, &r), "%s", zinf_error());
    if (t)
        CHECK(!trainer_settle(t));
    return t;
}

/* After the first step, whose gradients are the same. */
static void test_rounding(void)
{
    struct setting s = setting_of(adamw, bf16, 0);
    struct zinf_config *configs[2];
    s.param = s.state = "cpu";
    struct zinf_trainer *wide = after_a_step(&s, &configs[0]);
    s.precision = half;
    struct zinf_trainer *narrow = after_a_step(&s, &configs[1]);
    uint64_t wrong = 0, up = 0, n_rounded = 0;
    for (uint32_t g = 0; wide && narrow && g < wide->setup.layout.n_groups; g++) {
        const struct zinf_layout_group *group = &wide->setup.layout.groups[g];
        struct zinf_location at = zinf_tiers_group_state(wide->plan.tiers, g, 0);
        struct zinf_location half_at = zinf_tiers_group_state(narrow->plan.tiers, g, 0);
        const char *state = at.memory + zinf_location_generation(&at) * at.stride;
        const char *other = half_at.memory + zinf_location_generation(&half_at) * half_at.stride;
        uint64_t key = 12345 ^ (group->unit + 1) * 0x9e3779b97f4a7c15u, n = group->n;
        const float *moment = (const float *)(const void *)(state + 2 * n); /* behind remainders */
        const uint16_t *rounded = (const uint16_t *)(const void *)(other + 2 * n);
        for (uint64_t i = 0; i < 2 * n; i++) {
            uint16_t wanted = round_moment(moment[i], key, group->first + i % n, 1, i >= n);
            uint32_t bits;
            memcpy(&bits, &moment[i], sizeof bits);
            wrong += rounded[i] != wanted;
            n_rounded += (bits & 0xffff) != 0;
            up += (bits & 0xffff) != 0 && rounded[i] == (uint16_t)((bits >> 16) + 1);
        }
    }
    CHECKF(!wrong && n_rounded > 10000, "%llu of %llu moments are wrong", (unsigned long long)wrong,
           (unsigned long long)n_rounded);
    CHECKF(up > n_rounded * 4 / 10 && up < n_rounded * 6 / 10, "%llu of %llu are rounded up",
           (unsigned long long)up, (unsigned long long)n_rounded);
    for (int i = 0; i < 2; i++) {
        zinf_trainer_destroy(i ? narrow : wide);
        zinf_config_destroy(configs[i]);
    }
}

/* On the drive nothing else changes with the optimizer; Lion has one moment. These sub-groups are
 * so small that a page for their scales is a byte a parameter, and padding counts for Adafactor. */
static void test_plan_knows_the_bytes(void)
{
    struct setting s = setting_of(adamw, bf16, 0);
    s.param = s.state = "nvme";
    s.schedule = "serial";
    struct outcome two, one, packed, factored, halves;
    run(&s, "bytes", &two);
    s.optimizer = lion;
    run(&s, "bytes", &one);
    s.optimizer = adamw_8bit;
    run(&s, "bytes", &packed);
    s.optimizer = adafactor;
    run(&s, "bytes", &factored);
    s.optimizer = adamw;
    s.precision = half;
    run(&s, "bytes", &halves);
    double elems = (double)(two.drive_bytes - one.drive_bytes) / 4;
    double saved = (double)(two.drive_bytes - packed.drive_bytes) / elems;
    CHECKF(saved > 4.9 && saved <= 6 - 2.0 / 64, "8 bits save %g bytes a parameter", saved);
    saved = (double)(two.drive_bytes - halves.drive_bytes) / elems;
    CHECKF(saved == 4, "moments in bf16 save %g bytes a parameter", saved);
    saved = (double)(two.drive_bytes - factored.drive_bytes) / elems;
    CHECKF(saved > 7 && saved < 10, "factors save %g bytes a parameter", saved);
}

int main(void)
{
    /* Parts with and without weight decay do not end at blocks by themselves; five tiles. */
    begin_trainings("optimizers", &(struct trainings){.shape = {.arch = "gpt2",
                                                                .layers = 3,
                                                                .hidden = 20,
                                                                .heads = 4,
                                                                .vocab = 1000,
                                                                .context = 32},
                                                      .steps = STEPS,
                                                      .seq = 16,
                                                      .batch = 1,
                                                      .sub_group = 4096});
    TAP_RUN(test_placements);
    TAP_RUN(test_schedules_with_clipping);
    TAP_RUN(test_schedules_with_overflow);
    TAP_RUN(test_8_bits_train_like_32);
    TAP_RUN(test_placements_of_bf16_moments);
    TAP_RUN(test_bf16_moments_train_like_32);
    TAP_RUN(test_rounding);
    TAP_RUN(test_plan_knows_the_bytes);
    remove_work();
    return tap_done();
}

/*
 * Optimizers whose state is no plain array: 8-bit AdamW, in blocks, and Adafactor, tensor by
 * tensor. The same bits on the device, in RAM and on the drive, under every schedule, also when
 * steps clip or overflow; the plan knows the bytes; and 8 bits train like 32.
 */
#include "trainings.h"

#define STEPS 6

static const char adamw[] = "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3, "
                            "\"weight_decay\": 0.1}}";
static const char lion[] = "{\"type\": \"Lion\", \"params\": {\"lr\": 1e-4}}";
static const char adamw_8bit[] = "{\"type\": \"AdamW8bit\", \"params\": {\"lr\": 1e-3, "
                                 "\"weight_decay\": 0.1}}";
static const char adafactor[] = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-2, "
                                "\"weight_decay\": 0.1}}";
static const char *const optimizers[] = {adamw_8bit, adafactor};

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

/* On the drive nothing else changes with the optimizer; Lion has one moment. These sub-groups are
 * so small that a page for their scales is a byte a parameter, and padding counts for Adafactor. */
static void test_plan_knows_the_bytes(void)
{
    struct setting s = setting_of(adamw, bf16, 0);
    s.param = s.state = "nvme";
    s.schedule = "serial";
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
    TAP_RUN(test_plan_knows_the_bytes);
    remove_work();
    return tap_done();
}

/*
 * Seats: the samples of a step dealt to seats of one process, to seats of several, and to ranks of
 * one each, give the bits of one rank; over ZeRO's stages, places, number types and two families,
 * with clipping and dropout. What leaves the drive does so once, however many seats there are.
 */
#include "trained_ranks.h"

enum { MICROS = 8, STEPS = 2 };

/* processes, seats, and what that leaves of accumulation is MICROS / both. */
static const struct split {
    uint32_t processes, seats;
} splits[] = {{1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 2}, {4, 2}};

enum { N_SPLITS = sizeof splits / sizeof *splits };

static const char tree[] = ", \"gradient_sum\": \"tree\", \"dropout\": 0.1";

/* As many of the splits as mask has. */
static void check_splits(struct setting s, const char *what, unsigned mask)
{
    struct outcome one, some;
    char name[80];
    s.clip = 0.7;
    s.order = "layer-major";
    s.extra = tree;
    s.accumulation = MICROS;
    snprintf(name, sizeof name, "%s-1x1x%d", what, MICROS);
    run(&s, name, &one);
    for (int i = 0; i < N_SPLITS; i++) {
        const struct split *split = &splits[i];
        if (!(mask >> i & 1))
            continue;
        s.accumulation = MICROS / (int)(split->processes * split->seats);
        snprintf(name, sizeof name, "%s-%ux%ux%d", what, split->processes, split->seats,
                 s.accumulation);
        run_seats(&s, split->processes, split->seats, name, &some);
        check_same(&one, &some, name);
    }
}

/* Each kind of training meets some of the splits; all splits are met. */
static void check_family(const char *arch, unsigned first)
{
    static const char *const places[] = {"nvme", "cpu"};
    char what[60];
    trainings.shape.arch = arch;
    make_model(model, arch, &trainings.shape, 11);
    for (unsigned i = 0; i < 6; i++) {
        int stage = 1 + (int)(i + first) % 3;
        struct setting s = {.param = stage < 3 ? "none" : places[i % 2],
                            .state = places[stage < 3 || i >= 3], /* drives are stage 3's */
                            .copies = i % 2,
                            .stage = stage,
                            .precision = i % 2 ? NULL : bf16};
        snprintf(what, sizeof what, "%s-stage%d-%s-%s-%s", arch, stage, s.param, s.state,
                 i % 2 ? "fp32" : "bf16");
        check_splits(s, what, 1u << (i + first) % N_SPLITS | 1u << (i + first + 2) % N_SPLITS);
    }
}

static void test_gpt2(void)
{
    check_family("gpt2", 0);
}

static void test_llama(void)
{
    check_family("llama", 1);
}

/* ---- traffic ---- */

/* Slices of all seats together are the unit, but for padding. */
static void test_drives_read_once(void)
{
    struct setting s = {.param = "nvme", .state = "cpu", .precision = bf16, .look_ahead = "1"};
    struct outcome out[3];
    trainings.shape.arch = "gpt2";
    make_model(model, "traffic", &trainings.shape, 11);
    for (int i = 0; i < 3; i++) {
        char name[40];
        s.accumulation = 4 >> i;
        s.order = "layer-major";
        s.extra = tree;
        snprintf(name, sizeof name, "traffic-%d", 1 << i);
        run_seats(&s, 1, 1u << i, name, &out[i]);
    }
    for (int i = 1; i < 3; i++)
        CHECKF(out[0].read[1] > 0 && out[i].read[1] < out[0].read[1] * 5 / 4,
               "%llu bytes leave the drive for 1 seat, %llu for %d",
               (unsigned long long)out[0].read[1], (unsigned long long)out[i].read[1], 1 << i);
}

int main(void)
{
    begin_trainings("seats", &(struct trainings){.shape = {.arch = "gpt2",
                                                           .layers = 2,
                                                           .hidden = 64,
                                                           .heads = 4,
                                                           .vocab = 500,
                                                           .context = 16},
                                                 .steps = STEPS,
                                                 .seq = 8,
                                                 .batch = 2,
                                                 .sub_group = 8192});
    TAP_RUN(test_gpt2);
    TAP_RUN(test_llama);
    TAP_RUN(test_drives_read_once);
    remove_work();
    return tap_done();
}

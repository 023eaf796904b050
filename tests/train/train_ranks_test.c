/*
 * Ranks: each of two or three trainers keeps and updates its slice of every unit. Driven one after
 * the other on the same tokens, with the slices of parameters carried between them by hand, they
 * make the losses and the weights of the one that has it all, wherever things live.
 */
#include "trainings.h"

#include "train/trainer.h"

enum { MOST_RANKS = 3, STEPS = 3 };

static _Alignas(4096) char carried[(size_t)1 << 20]; /* a drive wants it aligned */

/* The part of a group's parameters that is `from`'s, to all others. */
static void carry_group(struct zinf_trainer *const *t, int world, int from, uint32_t g)
{
    const struct zinf_layout *layout = &t[from]->setup.layout;
    const struct zinf_layout_group *group = &layout->groups[g];
    uint64_t width = zinf_dtype_bytes(t[from]->setup.dtype);
    uint64_t first = (layout->units[group->unit].slice_first + group->first) * width;
    struct zinf_location at = zinf_tiers_group_param(t[from]->plan.tiers, g, 0);
    CHECK(at.bytes <= sizeof carried);
    CHECK(!zinf_location_read(t[from]->plan.tiers, t[from]->setup.device,
                              t[from]->queues[ZINF_LANE_D2H], &at, 0, carried, at.bytes));
    for (int to = 0; to < world; to++) {
        struct zinf_location whole = zinf_tiers_param(t[to]->plan.tiers, group->unit, 0);
        if (to != from)
            CHECK(!zinf_location_write(t[to]->plan.tiers, t[to]->setup.device,
                                       t[to]->queues[ZINF_LANE_H2D], &whole, first, carried,
                                       at.bytes));
    }
}

static void carry(struct zinf_trainer *const *t, int world)
{
    for (int r = 0; r < world; r++)
        CHECKF(!trainer_settle(t[r]), "%s", zinf_error());
    for (int r = 0; r < world; r++)
        for (uint32_t g = 0; g < t[r]->setup.layout.n_groups; g++)
            carry_group(t, world, r, g);
}

static char *params_of(struct zinf_trainer *t, uint32_t unit, char *memory)
{
    struct zinf_location at = zinf_tiers_param(t->plan.tiers, unit, 0);
    CHECKF(!zinf_location_read(t->plan.tiers, t->setup.device, t->queues[ZINF_LANE_D2H], &at, 0,
                               memory, at.bytes),
           "%s", zinf_error());
    return memory;
}

static void compare(struct zinf_trainer *one, struct zinf_trainer *rank, const char *what)
{
    static _Alignas(4096) char a[(size_t)1 << 20], b[(size_t)1 << 20];
    CHECKF(!trainer_settle(one), "%s", zinf_error());
    for (uint32_t u = 0; u < one->setup.n_units; u++) {
        uint64_t bytes = one->setup.layout.units[u].elems * zinf_dtype_bytes(one->setup.dtype);
        CHECKF(!memcmp(params_of(one, u, a), params_of(rank, u, b), bytes), "%s: unit %u", what, u);
    }
}

static struct zinf_trainer *open_rank(const struct setting *s, const struct zinf_config *config,
                                      int rank, int world)
{
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    options.rank = (uint32_t)rank;
    options.world = (uint32_t)world;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static void step_all(const struct setting *s, struct zinf_trainer *one,
                     struct zinf_trainer *const *t, int world, uint64_t step)
{
    struct zinf_step_result whole = {0};
    double squares = 0;
    CHECKF(!next_step(one, s, step, &whole), "%s", zinf_error());
    for (int r = 0; r < world; r++) {
        struct zinf_step_result part = {0};
        CHECKF(!next_step(t[r], s, step, &part), "%s", zinf_error());
        CHECKF(part.loss == whole.loss && part.loss > 0, "step %d, rank %d: loss %.17g, not %.17g",
               (int)step, r, part.loss, whole.loss);
        squares += part.grad_norm * part.grad_norm;
    }
    CHECKF(fabs(sqrt(squares) - whole.grad_norm) < 1e-12 * whole.grad_norm,
           "step %d: norms %.17g, not %.17g", (int)step, sqrt(squares), whole.grad_norm);
}

static void check_ranks(const struct setting *s, const char *what)
{
    struct zinf_config *config = configure(s);
    for (int world = 2; config && world <= MOST_RANKS; world++) {
        struct zinf_trainer *t[MOST_RANKS], *one = open_rank(s, config, 0, 1);
        for (int r = 0; r < world; r++)
            t[r] = open_rank(s, config, r, world);
        for (uint64_t step = 0; step < STEPS; step++) {
            step_all(s, one, t, world, step);
            carry(t, world);
        }
        compare(one, t[world - 1], what);
        for (int r = 0; r < world; r++)
            zinf_trainer_destroy(t[r]);
        zinf_trainer_destroy(one);
    }
    zinf_config_destroy(config);
}

static const char *const orders[] = {"micro-major", "layer-major"};

static void check_places(const char *place, bool copies, const char *precision)
{
    for (int i = 0; i < 4; i++) {
        char what[100];
        struct setting s = {.param = place,
                            .state = place,
                            .copies = copies,
                            .precision = precision,
                            .order = orders[i % 2],
                            .accumulation = i < 2 ? 1 : 2,
                            .schedule = schedules[i],
                            .extra = ", \"durability\": \"none\""};
        snprintf(what, sizeof what, "%s%s, x%d, %s, %s", place, copies ? " by copies" : "",
                 s.accumulation, s.order, s.schedule);
        check_ranks(&s, what);
    }
}

static void test_on_the_device(void)
{
    check_places("none", false, bf16);
    check_places("none", true, NULL);
}

static void test_in_ram(void)
{
    check_places("cpu", false, NULL);
    check_places("cpu", true, bf16);
}

static void test_on_the_drive(void)
{
    check_places("nvme", false, bf16);
    check_places("nvme", true, NULL);
}

static void test_gradients_in_ram_state_on_drive(void)
{
    struct setting s = {.grad = "cpu",
                        .accumulation = 2,
                        .precision = bf16,
                        .schedule = "update-in-backward",
                        .copies = true,
                        .extra = ", \"durability\": \"none\""};
    check_ranks(&s, "gradients in RAM");
}

static void test_refusals(void)
{
    struct setting s = {.optimizer = "{\"type\": \"Adafactor\", \"params\": {\"lr\": 1e-3}}"};
    struct zinf_config *config = configure(&s);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    options.world = 2;
    CHECK(zinf_trainer_create(&t, &options) == -ENOTSUP && strstr(zinf_error(), "Adafactor"));
    zinf_config_destroy(config);
    s.optimizer = NULL;
    config = configure(&s);
    options.config = config;
    options.rank = 2;
    CHECK(zinf_trainer_create(&t, &options) == -EINVAL && strstr(zinf_error(), "rank"));
    zinf_config_destroy(config);
}

int main(void)
{
    begin_trainings("ranks", &(struct trainings){.shape = {.arch = "gpt2",
                                                           .layers = 2,
                                                           .hidden = 64,
                                                           .heads = 4,
                                                           .vocab = 500,
                                                           .context = 16},
                                                 .seq = 8,
                                                 .batch = 2,
                                                 .sub_group = 8192});
    TAP_RUN(test_on_the_device);
    TAP_RUN(test_in_ram);
    TAP_RUN(test_on_the_drive);
    TAP_RUN(test_gradients_in_ram_state_on_drive);
    TAP_RUN(test_refusals);
    remove_work();
    return tap_done();
}

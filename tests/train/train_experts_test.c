/*
 * Mixtures of experts whose experts are on the drive: what is left out because no token chose it
 * is not read, to the byte; it is updated all the same; and nothing of that shows in the result,
 * whatever the schedule, the order of micro-batches and their number. A model of 16 experts, of
 * which two tokens choose three each, so that most are not chosen.
 */
#include "trained_ranks.h"

enum { STEPS = 3, BATCH = 1, SEQ = 2 };

static const char all[] = ", \"expert_fetch\": \"all\"";
static const char chosen[] = ", \"expert_fetch\": \"chosen\"";
static const char packed[] = ", \"expert_fetch\": \"chosen\", \"pack\": \"all\"";

/* ---- the same bits, fewer bytes ---- */

static void check_case(struct setting s, const char *what)
{
    struct outcome reference, other;
    char text[200];
    s.extra = all;
    run(&s, "all", &reference);
    s.extra = chosen;
    run(&s, "chosen", &other);
    snprintf(text, sizeof text, "%s, %s, accumulation %d", what, word(s.order, "auto"),
             s.accumulation);
    check_same(&reference, &other, text);
    /* One after the other micro-batches fetch anew what may have been left out for those before. */
    bool once = s.accumulation == 1 || !strcmp(word(s.order, ""), "layer-major");
    for (int step = 1; once && step < STEPS; step++)
        CHECKF(other.read[step] < reference.read[step], "%s: step %d read %llu bytes, all are %llu",
               text, step, (unsigned long long)other.read[step],
               (unsigned long long)reference.read[step]);
    s.extra = packed;
    run(&s, "packed", &other);
    check_same(&reference, &other, text);
    s.extra = NULL;
    s.param = s.state = "none";
    run(&s, "none", &other);
    check_same(&reference, &other, text);
}

static void test_fewer_bytes_and_the_same_bits(void)
{
    static const char *const orders[] = {"micro-major", "layer-major"};
    for (int i = 0; i < 4; i++)
        for (int n = 1; n <= 4; n += 3) {
            struct setting s = {.schedule = schedules[i],
                                .order = orders[i % 2],
                                .accumulation = n,
                                .copies = i / 2,
                                .precision = n > 1 ? bf16 : NULL,
                                .clip = i == 3 ? 0 : 2};
            check_case(s, schedules[i]);
        }
}

/* ---- over ranks ---- */

/* Ranks that gather experts do so for those that any of them has chosen. */
static void check_ranks_case(struct setting s, uint32_t processes, uint32_t seats, const char *what)
{
    static const char tree_all[] = ", \"gradient_sum\": \"tree\", \"expert_fetch\": \"all\"";
    static const char tree[] = ", \"gradient_sum\": \"tree\", \"expert_fetch\": \"chosen\"";
    struct outcome one, every, some;
    char text[200];
    int world = (int)(processes * seats);
    s.order = "layer-major";
    s.extra = tree_all;
    s.accumulation = world;
    run(&s, "one", &one);
    s.accumulation = 1;
    run_seats(&s, processes, seats, "ranks-all", &every);
    s.extra = tree;
    run_seats(&s, processes, seats, "ranks-chosen", &some);
    snprintf(text, sizeof text, "%s, %u x %u", what, processes, seats);
    check_same(&one, &every, text);
    check_same(&one, &some, text);
    /* Without copies an early update is made where the unit was fetched: it reads what is not
     * there. */
    bool spares = !s.param && (s.copies || strcmp(s.schedule, "update-in-backward") != 0);
    for (int step = 1; step < STEPS && spares; step++)
        CHECKF(some.read[step] < every.read[step], "%s: step %d read %llu bytes, all are %llu",
               text, step, (unsigned long long)some.read[step],
               (unsigned long long)every.read[step]);
}

static void test_ranks_choose_together(void)
{
    for (int i = 0; i < 4; i++) {
        struct setting s = {
            .schedule = schedules[i], .precision = i % 2 ? bf16 : NULL, .clip = i == 3 ? 0 : 2};
        check_ranks_case(s, 1, 2, schedules[i]);
        check_ranks_case(s, 2, 1, schedules[i]);
        s.copies = true;
        check_ranks_case(s, 1, 2, "copies");
        check_ranks_case(s, 3, 1, "copies");
        s.param = s.state = "cpu";
        check_ranks_case(s, 2, 2, "RAM");
        s.param = "none";
        s.stage = 1 + i % 2;
        check_ranks_case(s, 1, 2, "whole");
    }
}

/* ---- to the byte ---- */

static struct zinf_trainer *open_one(const struct setting *s, struct zinf_config **config)
{
    struct zinf_trainer *t = NULL;
    *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, *config);
    CHECKF(*config && !zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static bool is_expert(const struct zinf_trainer *t, uint32_t unit)
{
    return t->setup.walk.units[unit].chooser != WALK_NONE;
}

/* What a program reads of experts by fetching them: of all, or of those that are chosen. */
static uint64_t fetched_bytes(const struct zinf_trainer *t, const struct zinf_program *program,
                              bool of_all)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const struct zinf_op *op = &program->ops[i];
        if (op->lane == ZINF_LANE_READ && op->flags & OP_CHOSEN && (of_all || t->chosen[op->unit]))
            bytes += op->bytes;
    }
    return bytes;
}

/* What a lane of a program moves for a step that has taken these units, or all. */
static uint64_t moved_bytes(const struct zinf_program *program, enum zinf_lane lane,
                            const uint8_t *taken)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < program->n_ops; i++) {
        const struct zinf_op *op = &program->ops[i];
        bool may_be_spared = op->flags & OP_CHOSEN || (op->kind == OP_READ && op->flags & OP_KEPT);
        if (op->lane == lane && !(may_be_spared && taken && !taken[op->unit]))
            bytes += op->bytes;
    }
    return bytes;
}

/* Gradients are on the drive: zeros of what is not chosen are neither written nor read. */
static void check_moves(const struct zinf_trainer *t, const struct zinf_step_result *r,
                        enum zinf_lane lane)
{
    const struct zinf_program *made = &t->plan.gradients, *used = &t->plan.drain;
    uint64_t every = moved_bytes(made, lane, NULL) + moved_bytes(used, lane, NULL);
    uint64_t moved = moved_bytes(made, lane, t->chosen) + moved_bytes(used, lane, t->chosen);
    CHECKF(r->lane_bytes[lane] == moved && moved < every, "step %llu moved %llu, not %llu of %llu",
           (unsigned long long)r->step, (unsigned long long)r->lane_bytes[lane],
           (unsigned long long)moved, (unsigned long long)every);
}

static void test_reads_are_counted(void)
{
    struct setting s = {.schedule = "prefetch", .accumulation = 2, .order = "layer-major"};
    struct zinf_config *config;
    struct zinf_trainer *t = open_one(&s, &config);
    struct zinf_step_result r;
    CHECK(t && t->plan.chosen_forward && t->plan.chosen_backward); /* few tokens, many experts */
    for (uint64_t step = 0; t && step < 3; step++) {
        uint32_t n_chosen = 0, n_experts = 0;
        CHECKF(!next_step(t, &s, step, &r), "%s", zinf_error());
        const struct zinf_program *gradients = &t->plan.gradients;
        for (uint32_t u = 0; u < t->setup.n_units; u++) {
            n_experts += is_expert(t, u);
            n_chosen += t->chosen[u];
        }
        uint64_t every = fetched_bytes(t, gradients, true);
        uint64_t left_out = every - fetched_bytes(t, gradients, false);
        CHECKF(n_experts == 32 && n_chosen >= 6 && n_chosen <= 24, "%u of %u", n_chosen, n_experts);
        check_moves(t, &r, ZINF_LANE_READ);
        check_moves(t, &r, ZINF_LANE_WRITE);
        CHECKF(4 * left_out >= every, "%llu of %llu", (unsigned long long)left_out,
               (unsigned long long)every);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- and it decays ---- */

static float *get_master(struct zinf_trainer *t, uint32_t unit)
{
    const struct source source = trainer_source(t);
    float *flat = NULL;
    CHECK(!posix_memalign((void **)&flat, ZINF_MEMORY_ALIGN,
                          t->setup.layout.units[unit].padded_elems * sizeof *flat));
    CHECKF(!state_read(&source, unit, 0, flat), "%s", zinf_error());
    return flat;
}

/* With no gradient yet AdamW's step is p -= lr decay p. */
static void check_decay(const float *before, const float *after, uint64_t n, bool moves)
{
    uint64_t decayed = 0;
    for (uint64_t i = 0; i < n; i++) {
        double wanted = (double)before[i] * (1 - 1e-3 * 0.1);
        decayed += fabs((double)after[i] - wanted) <= 3e-7 * fabs((double)before[i]);
    }
    CHECKF(moves ? decayed < n / 2 : decayed == n, "%llu of %llu have only decayed",
           (unsigned long long)decayed, (unsigned long long)n);
}

static void test_what_is_not_chosen_decays(void)
{
    struct setting s = {.schedule = "update-in-backward"};
    struct zinf_config *config;
    struct zinf_trainer *t = open_one(&s, &config);
    struct zinf_step_result r;
    uint32_t n = t ? t->setup.n_units : 0;
    float **before = calloc(n, sizeof *before);
    for (uint32_t u = 0; u < n; u++)
        before[u] = is_expert(t, u) ? get_master(t, u) : NULL;
    CHECKF(t && !next_step(t, &s, 0, &r) && !trainer_settle(t), "%s", zinf_error());
    for (uint32_t u = 0; u < n; u++) {
        if (!before[u])
            continue;
        float *after = get_master(t, u);
        check_decay(before[u], after, t->setup.graph->units[u].elems, t->chosen[u]);
        free(after);
        free(before[u]);
    }
    free(before);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* ---- what is expected ---- */

static void test_expectations(void)
{
    struct setting s = {.schedule = "prefetch"};
    struct zinf_config *config;
    struct zinf_trainer *t = open_one(&s, &config);
    if (!t)
        return;
    for (uint32_t stage = 0; stage < t->setup.graph->n_stages; stage++)
        if (t->setup.graph->stages[stage].choice.n) { /* (1 - 3 / 16)^2 */
            double unchosen = plan_unchosen(&t->plan, stage);
            CHECKF(fabs(unchosen - 0.66015625) < 1e-8, "%.9g", unchosen);
        }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

int main(void)
{
    const struct trainings of_all = {
        .shape = {.vocab = 61},
        .steps = STEPS,
        .seq = SEQ,
        .batch = BATCH,
        .sub_group = 1000000,
    };
    begin_trainings("experts", &of_all);
    snprintf(model, sizeof model, "%s/tests/fixtures/qwen3_moe_a", getenv("SRCDIR"));
    TAP_RUN(test_fewer_bytes_and_the_same_bits);
    TAP_RUN(test_ranks_choose_together);
    TAP_RUN(test_reads_are_counted);
    TAP_RUN(test_what_is_not_chosen_decays);
    TAP_RUN(test_expectations);
    remove_work();
    return tap_done();
}

/*
 * Adapters of experts: those of a layer are one unit beside the sweep over its experts, and each
 * visit makes its own part of that unit's gradient. Wherever things live, however micro-batches are
 * ordered and dealt out to ranks and seats, whether experts that nobody chose are fetched or not,
 * the bits are the same. Rows are so few that most experts have none.
 */
#include "trained_ranks.h"

static const char *const places[] = {"none", "cpu", "nvme"};
enum { STEPS = 3, BATCH = 1, SEQ = 4 };

#define ALL_EXPERTS                                                                                \
    "\"target_parameters\": [\"experts.gate_up_proj\", \"experts.down_proj\"], "                   \
    "\"init_lora_weights\": \"gaussian\""
static const struct {
    const char *folder, *extra;
} bases[] = {
    {"qwen3_moe_a", ", \"adapter\": {\"r\": 3, " ALL_EXPERTS ", \"target_modules\": [\"q_proj\"]}"},
    {"gpt_oss_a", ", \"adapter\": {\"r\": 2, " ALL_EXPERTS "}"},
    {"mixtral_a", ", \"adapter\": {\"r\": 2, \"target_modules\": [\"w1\", \"w2\", \"w3\"]}"},
    {"qwen3_moe_a", ", \"quantize\": \"nf4\", \"adapter\": {\"r\": 3, " ALL_EXPERTS "}"},
    {"gpt_oss_mxfp4", ", \"adapter\": {\"r\": 2, " ALL_EXPERTS "}"},
};
enum { N_BASES = sizeof bases / sizeof *bases };

static struct setting setting_at(int base, const char *more, char extra[512])
{
    snprintf(model, sizeof model, "%s/tests/fixtures/%s", getenv("SRCDIR"), bases[base].folder);
    snprintf(extra, 512, "%s%s", bases[base].extra, more);
    return (struct setting){.clip = 2, .extra = extra};
}

/* Of one step after another: B is zero at first, and A has no gradient before B has moved. */
static void check_trains(const struct outcome *o, const char *what)
{
    CHECKF(o->norm[0] > 0 && o->loss[STEPS - 1] != o->loss[0], "%s: nothing is trained", what);
}

static void test_placements(void)
{
    static const char *const orders[] = {"micro-major", "layer-major"};
    for (int b = 0; b < N_BASES; b++) {
        char extra[512], what[200];
        struct setting s = setting_at(b, "", extra);
        struct outcome reference, other;
        s.accumulation = 3;
        s.precision = b % 2 ? NULL : bf16;
        s.param = s.state = "none";
        run(&s, "reference", &reference);
        check_trains(&reference, bases[b].folder);
        for (int i = 0; i < 9; i++) {
            s.param = places[i / 3];
            s.state = places[i % 3];
            s.order = orders[i % 2];
            s.schedule = schedules[i % 4];
            s.copies = i % 3 == 0;
            snprintf(what, sizeof what, "%s: parameters %s, state %s, %s, %s", bases[b].folder,
                     s.param, s.state, s.order, s.schedule);
            run(&s, "other", &other);
            check_same(&reference, &other, what);
        }
    }
}

/* What nobody chose is not read; its adapters have a gradient all the same, of zeros. */
static void test_unchosen_experts(void)
{
    for (int n = 1; n <= 4; n += 3) {
        char extra[512];
        struct setting s = setting_at(0, ", \"expert_fetch\": \"all\"", extra);
        struct outcome every, chosen;
        s.accumulation = n;
        s.order = "layer-major";
        s.device_memory = 440 << 10; /* no room for units to stay */
        run(&s, "all", &every);
        snprintf(extra, sizeof extra, "%s, \"expert_fetch\": \"chosen\"", bases[0].extra);
        run(&s, "chosen", &chosen);
        check_same(&every, &chosen, "chosen experts");
        CHECKF(chosen.read[1] < every.read[1], "%llu of %llu bytes",
               (unsigned long long)chosen.read[1], (unsigned long long)every.read[1]);
    }
}

static void test_ranks_and_seats(void)
{
    static const struct {
        uint32_t processes, seats;
    } splits[] = {{2, 1}, {1, 2}, {3, 1}, {2, 2}};
    for (int b = 0; b < 3; b++)
        for (size_t i = 0; i < sizeof splits / sizeof *splits; i++) {
            char extra[512], what[200];
            struct setting s = setting_at(b, ", \"gradient_sum\": \"tree\"", extra);
            struct outcome one, several;
            s.order = "layer-major";
            s.schedule = schedules[i];
            s.accumulation = (int)(splits[i].processes * splits[i].seats) * (i < 2 ? 2 : 1);
            run(&s, "one", &one);
            s.accumulation = i < 2 ? 2 : 1;
            s.stage = (int)i;
            run_seats(&s, splits[i].processes, splits[i].seats, "several", &several);
            snprintf(what, sizeof what, "%s, %u x %u", bases[b].folder, splits[i].processes,
                     splits[i].seats);
            check_same(&one, &several, what);
        }
}

static void check_refused(const char *adapter, const char *message)
{
    struct setting s = {.extra = adapter};
    struct zinf_config *config = configure(&s);
    struct zinf_trainer_options options = trainer_options(&s, config);
    struct zinf_trainer *t = NULL;
    CHECKF(zinf_trainer_create(&t, &options) < 0 && strstr(zinf_error(), message), "%s: %s",
           adapter, zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_refusals(void)
{
    snprintf(model, sizeof model, "%s/tests/fixtures/qwen3_moe_a", getenv("SRCDIR"));
    check_refused(", \"adapter\": {\"target_parameters\": [\"experts.w1\"]}",
                  "it has gate_up_proj, down_proj");
    check_refused(", \"adapter\": {\"target_parameters\": \"down_proj\"}", "a list of names");
    check_refused(", \"adapter\": {\"lora_dropout\": 0.5, \"target_parameters\": [\"down_proj\"]}",
                  "lora_dropout");
    check_refused(", \"adapter\": {\"use_dora\": true, \"target_modules\": [\"up_proj\"]}",
                  "use_dora");
    check_refused(", \"adapter\": {\"r\": 13, \"target_parameters\": [\"down_proj\"]}",
                  "smaller side");
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
    begin_trainings("expert_adapters", &of_all);
    TAP_RUN(test_placements);
    TAP_RUN(test_unchosen_experts);
    TAP_RUN(test_ranks_and_seats);
    TAP_RUN(test_refusals);
    remove_work();
    return tap_done();
}

/*
 * Losses beside cross-entropy, as tests/fixtures/make_losses.py computed them: smoothed labels, the
 * z-loss, the losses of pairs, whose reference is the base under the adapters, and those of the
 * scores that a classifier's head gives pairs. The same bits
 * wherever things live and however micro-batches go; the reference costs no byte of the drive;
 * noise on embedded tokens is of training alone.
 */
#include "fixture_inputs.h"

static const char *const losses[] = {"loss_a", "loss_b", "loss_c",   "loss_d",
                                     "loss_e", "pair_a", "pair_b",   "pair_c",
                                     "pair_d", "kto_a",  "reward_a", "reward_b"};
enum { N_LOSSES = sizeof losses / sizeof *losses };

static void test_loss_and_gradients(void)
{
    for (int i = 0; i < N_LOSSES; i++)
        check_gradients(losses[i]);
}

static void test_tensors_in_parts(void)
{
    static const char *const cut[] = {"loss_a", "loss_b", "loss_c", "loss_d",
                                      "loss_e", "pair_c", "pair_d", "reward_a"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        check_gradients_in(cut[i], 2);
}

static void test_ten_steps(void)
{
    for (int i = 0; i < N_LOSSES; i++)
        check_ten_steps(losses[i]);
}

/* ---- bits ---- */

/* The fixture's loss under a setting's placements. */
static struct zinf_config *configure_loss(const struct fixture *f, const struct setting *s)
{
    struct zinf_config *config = configure(s);
    config->micro_batch = f->batch / (f->pairs ? 2 : 1);
    config->label_smoothing = f->config->label_smoothing;
    config->z_loss = f->config->z_loss;
    config->preference_beta = f->config->preference_beta;
    config->preference_margin = f->config->preference_margin;
    config->center_rewards_coefficient = f->config->center_rewards_coefficient;
    config->desirable_weight = f->config->desirable_weight;
    config->undesirable_weight = f->config->undesirable_weight;
    free(config->preference);
    config->preference = strdup(f->config->preference);
    config->dropout = 0.2;
    config->neftune_alpha = 3;
    return config;
}

static void check_places(const char *name, const char *precision)
{
    struct setting s = setting_of(NULL, precision);
    struct outcome reference, other;
    struct fixture f;
    char what[256];
    open_fixture(&f, name);
    trainings.batch = (int)f.batch;
    s.order = "micro-major";
    run_fixture(&f, &s, configure_loss(&f, &s), "reference", &reference);
    for (int i = 0; i < 18; i++) {
        s.param = places[i / 3 % 3];
        s.state = places[i % 3];
        s.look_ahead = i % 2 ? "0" : NULL;
        s.order = i < 9 || !f.adapted ? "micro-major" : "layer-major";
        snprintf(what, sizeof what, "%s %s: parameters %s, state %s, %s", name, word(precision, ""),
                 s.param, s.state, s.order);
        run_fixture(&f, &s, configure_loss(&f, &s), "other", &other);
        check_same(&reference, &other, what);
    }
    close_fixture(&f);
}

static void test_placements(void)
{
    for (int i = 0; i < N_LOSSES; i++) {
        check_places(losses[i], NULL);
        check_places(losses[i], bf16);
    }
}

/* ---- what the reference costs ---- */

static void count_step(const struct fixture *f, bool pairs, uint64_t device_memory,
                       struct zinf_step_result *r)
{
    struct setting s = setting_of(NULL, NULL);
    struct fixture plain = *f;
    s.param = "nvme";
    s.schedule = "prefetch"; /* whatever rates are measured */
    s.look_ahead = "0";
    s.device_memory = device_memory;
    trainings.batch = (int)f->batch;
    struct zinf_config *config = configure_loss(f, &s);
    plain.pairs = pairs;
    config->micro_batch = f->batch / (pairs ? 2 : 1);
    struct zinf_trainer *t = open_pair(&plain, config, ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < 3; step++) {
        struct zinf_batch batch = batch_at(f, step * f->batch * s.accumulation);
        CHECKF(!zinf_trainer_step(t, &batch, r), "%s", zinf_error());
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* With the same rows: a step that also makes the reference of every row reads the drive as often as
 * one that does not. */
static void test_reference_reads_nothing(void)
{
    static const char *const names[] = {"pair_a", "pair_b"};
    for (int i = 0; i < 2; i++) {
        struct zinf_step_result plain = {0}, pairs = {0};
        struct fixture f;
        open_fixture(&f, names[i]);
        count_step(&f, false, 0, &plain);
        count_step(&f, true, 0, &pairs);
        CHECKF(plain.lane_bytes[0] && plain.lane_bytes[0] == pairs.lane_bytes[0],
               "%s: %llu bytes are read, and %llu with a reference", names[i],
               (unsigned long long)plain.lane_bytes[0], (unsigned long long)pairs.lane_bytes[0]);
        CHECK(plain.lane_bytes[1] == pairs.lane_bytes[1]);
        close_fixture(&f);
    }
}

/* ---- what both share ---- */

enum { PAIR_ROWS = 4, PAIR_STEPS = 3 };

/* A model of several layers, whose vocabulary is in several tiles, with fresh adapters. */
static struct zinf_trainer *open_fresh(const struct setting *s, struct zinf_config **config)
{
    struct zinf_trainer *t = NULL;
    trainings.batch = PAIR_ROWS;
    *config = configure(s);
    (*config)->micro_batch = PAIR_ROWS / 2;
    struct zinf_trainer_options options = trainer_options(s, *config);
    options.model_path = in_work(model, "tiles");
    options.pairs = true;
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static int pair_step(struct zinf_trainer *t, const struct setting *s, int step,
                     struct zinf_step_result *r)
{
    static int32_t ids[MOST_ROWS], targets[MOST_ROWS];
    static const int32_t labels[] = {0, -1, 0, -1, 0, -1, 0, -1};
    draw_tokens(s, (uint64_t)step, ids, targets);
    for (int i = 0; i < s->accumulation * PAIR_ROWS * trainings.seq; i++)
        targets[i] = i % trainings.seq < 3 ? -1 : targets[i];
    const struct zinf_batch batch = {
        .inputs = {
            [ZINF_INPUT_IDS] = ids, [ZINF_INPUT_TARGETS] = targets, [ZINF_INPUT_LABELS] = labels}};
    return zinf_trainer_step(t, &batch, r);
}

#define FRESH ", \"adapter\": {\"r\": 2}"
#define KEEPING(word) ", \"activation_checkpointing\": \"" word "\"" FRESH

/* *device: what the plan takes there. */
static void run_fresh(const struct setting *s, const char *name, struct outcome *out,
                      uint64_t *device)
{
    struct zinf_config *config = NULL;
    struct zinf_trainer *t = open_fresh(s, &config);
    memset(out, 0, sizeof *out);
    for (int step = 0; t && step < PAIR_STEPS; step++) {
        struct zinf_step_result r = {0};
        CHECKF(!pair_step(t, s, step, &r), "%s", zinf_error());
        note_step(out, step, &r);
        if (!step) /* the model is its own reference */
            CHECKF(r.rewards.n == 4 && r.rewards.chosen == 0 && r.rewards.rejected == 0 &&
                       fabs(r.loss - log(2)) < 1e-7,
                   "%s: rewards %g, %g, loss %.9g", name, r.rewards.chosen, r.rewards.rejected,
                   r.loss);
    }
    *device = t ? zinf_trainer_planned_bytes(t, ZINF_MEMORY_DEVICE) : 0;
    snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
    CHECKF(t && !zinf_trainer_save(t, out->folder), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void check_kept(const char *order)
{
    struct setting s = setting_of(NULL, NULL);
    struct outcome never, other;
    uint64_t most, least, taken;
    s.order = order;
    s.param = "cpu";
    s.extra = KEEPING("never");
    run_fresh(&s, "never", &never, &most);
    s.extra = KEEPING("always");
    run_fresh(&s, "always", &other, &least);
    check_same(&never, &other, "recomputed");
    CHECKF(least < most, "%s: %llu bytes, and %llu recomputed", order, (unsigned long long)most,
           (unsigned long long)least);
    s.extra = KEEPING("auto");
    for (uint64_t part = 1; part < 5; part++) { /* some layers are kept, others are not */
        s.device_memory = least + (most - least) * part / 5;
        run_fresh(&s, "some", &other, &taken);
        check_same(&never, &other, "kept in part");
    }
}

static void test_reference_disturbs_nothing(void)
{
    const struct zinf_model_shape shape = {
        .arch = "llama", .layers = 4, .hidden = 16, .heads = 2, .vocab = 700, .context = 32};
    make_model(model, "tiles", &shape, 11);
    trainings.shape.vocab = 700;
    trainings.seq = 16;
    check_kept("micro-major");
    check_kept("layer-major");
}

/* ---- noise ---- */

static double loss_with(const struct fixture *f, double alpha, bool trains)
{
    struct setting s = setting_of(NULL, NULL);
    struct zinf_config *config = configure(&s);
    struct zinf_batch batch = batch_at(f, 0);
    struct zinf_step_result r = {0};
    double norm;
    config->dropout = 0;
    config->neftune_alpha = alpha;
    struct zinf_trainer *t =
        open_pair(f, config, trains ? ZINF_TRAINER_TRAIN : ZINF_TRAINER_GRADIENTS);
    CHECKF(t && !(trains ? zinf_trainer_step(t, &batch, &r)
                         : zinf_trainer_gradients(t, &batch, &r.loss, &norm)),
           "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return r.loss;
}

static void test_noise_is_of_training(void)
{
    struct fixture f;
    open_fixture(&f, "loss_e");
    trainings.batch = (int)f.batch;
    const double plain = loss_with(&f, 0, true), noisy = loss_with(&f, 5, true);
    CHECKF(plain != noisy && fabs(plain - noisy) < 0.5, "%g, with noise %g", plain, noisy);
    CHECK(loss_with(&f, 5, true) == noisy);
    CHECK(loss_with(&f, 5, false) == loss_with(&f, 0, false));
    close_fixture(&f);
}

/* ---- refusals ---- */

static void refused(const char *name, int64_t batch, const char *preference, const char *why)
{
    struct setting s = setting_of(NULL, NULL);
    struct zinf_trainer *t = NULL;
    trainings.batch = (int)batch;
    struct zinf_config *config = configure(&s);
    take_fixture(name);
    struct zinf_trainer_options options = trainer_options(&s, config);
    options.pairs = true;
    options.seq_len = 8;
    free(config->preference);
    config->preference = strdup(preference);
    CHECKF(zinf_trainer_create(&t, &options) < 0 && strstr(zinf_error(), why), "%s: %s", name,
           zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_refusals(void)
{
    refused("gpt2_a", 2, "dpo", "--lora-rank");
    refused("bert_a", 2, "orpo", "continues texts");
    refused("bert_a", 2, "reward", "one number a sample");
    refused("gpt2_a", 2, "reward", "--task reward");
}

int main(void)
{
    begin_fixtures("losses");
    trainings.steps = 2;
    TAP_RUN(test_loss_and_gradients);
    TAP_RUN(test_tensors_in_parts);
    TAP_RUN(test_ten_steps);
    TAP_RUN(test_placements);
    TAP_RUN(test_reference_reads_nothing);
    TAP_RUN(test_reference_disturbs_nothing);
    TAP_RUN(test_noise_is_of_training);
    TAP_RUN(test_refusals);
    remove_work();
    return tap_done();
}

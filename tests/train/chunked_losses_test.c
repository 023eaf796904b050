/*
 * Losses of several samples whose sequences come in chunks or parts: of pairs of every kind, of
 * scores, and of embeddings that are compared. Against PyTorch's figures and against sequences in
 * one piece: loss, gradients, rewards, ten steps and evaluations; and the same bits in all
 * placements.
 */
#include "fixture_inputs.h"

#include "train/trainer.h"

#include <malloc.h>

static const char *const pairs[] = {"pair_a", "pair_b",   "pair_c",  "pair_d",
                                    "kto_a",  "reward_a", "reward_b"};
static const char *const embeds[] = {"bert_e", "qwen3_e", "deberta_v2_x"};
enum { N_PAIRS = sizeof pairs / sizeof *pairs, N_EMBEDS = 3, MOST_SAMPLES = 256 };

/* Chunks that divide the sequence and that do not, chunks in parts, and parts of several chunks. */
static const struct cut {
    int64_t chunk, parts;
} cuts[] = {{8, 1}, {5, 1}, {0, 2}, {1, 2}}, whole = {0, 1};
enum { N_CUTS = sizeof cuts / sizeof *cuts };

static struct fixture fixture;
static float references[MOST_SAMPLES];

static bool is_referenced(const struct fixture *f)
{
    const char *loss = f->config->preference;
    return f->pairs && (!strcmp(loss, "dpo") || !strcmp(loss, "ipo") || !strcmp(loss, "kto"));
}

static struct zinf_trainer *open_cut(const struct zinf_config *config, enum zinf_trainer_mode mode)
{
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {
        .mode = mode,
        .model_path = fixture.model,
        .adapter = fixture.adapted ? fixture.folder : NULL,
        .pairs = fixture.pairs,
        .references = is_referenced(&fixture),
        .together = fixture.together,
        .pooling = fixture.pooling,
        .config = config,
        .seed = 5,
        .seq_len = fixture.seq,
        .device = ZINF_DEVICE_HOST,
    };
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

static struct zinf_config *set(const struct cut *cut)
{
    fixture.config->sequence_chunk = cut->chunk;
    fixture.config->context_parts = cut->parts;
    return fixture.config;
}

static struct zinf_batch samples_from(int64_t first)
{
    struct zinf_batch batch = batch_at(&fixture, first);
    if (is_referenced(&fixture))
        batch.inputs[ZINF_INPUT_REFERENCES] = (const int32_t *)(const void *)(references + first);
    return batch;
}

/* Opens a fixture, and measures what its base says of all samples: as a run does before its first
 * step. */
static void open_one(const char *name)
{
    struct zinf_trainer *t = NULL;
    open_fixture(&fixture, name);
    if (!is_referenced(&fixture))
        return;
    const struct zinf_trainer_options options = {.mode = ZINF_TRAINER_FORWARD,
                                                 .model_path = fixture.model,
                                                 .config = set(&whole),
                                                 .seq_len = fixture.seq,
                                                 .device = ZINF_DEVICE_HOST};
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    const cJSON *labels =
        cJSON_GetObjectItem(cJSON_GetObjectItem(fixture.expected, "inputs"), "labels");
    for (int64_t i = 0; t && i < cJSON_GetArraySize(labels); i++) {
        const struct zinf_batch batch = batch_at(&fixture, i);
        double sum = 0;
        uint64_t count;
        CHECKF(!zinf_trainer_loss(t, &batch, 1, &sum, &count), "%s", zinf_error());
        references[i] = (float)sum;
    }
    zinf_trainer_destroy(t);
}

/* ---- gradients ---- */

static void gradients_of(const struct cut *cut, const char *path, double *loss, double *norm)
{
    struct zinf_trainer *t = open_cut(set(cut), ZINF_TRAINER_GRADIENTS);
    const struct zinf_batch batch = samples_from(0);
    CHECKF(t && !zinf_trainer_gradients(t, &batch, loss, norm), "%s", zinf_error());
    CHECKF(t && !zinf_trainer_save_gradients(t, path), "%s", zinf_error());
    zinf_trainer_destroy(t);
}

static void check_cuts(const char *name)
{
    char of_whole[600], of_cut[600];
    double loss = 0, norm = 0;
    open_one(name);
    gradients_of(&whole, in_work(of_whole, "whole.safetensors"), &loss, &norm);
    for (int i = 0; i < N_CUTS; i++) {
        double own = 0, own_norm = 0;
        gradients_of(&cuts[i], in_work(of_cut, "cut.safetensors"), &own, &own_norm);
        const double worst = compare_files(of_cut, of_whole);
        check_cut(&fixture, name, i, own, loss, worst);
        CHECKF(near(own_norm, norm, 1e-5), "%s, cut %d: norm %.9g, not %.9g", name, i, own_norm,
               norm);
    }
    close_fixture(&fixture);
}

static void test_gradients_of_pairs(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_cuts(pairs[i]);
}

static void test_gradients_of_embeddings(void)
{
    for (int i = 0; i < N_EMBEDS; i++)
        check_cuts(embeds[i]);
}

/* ---- steps ---- */

static void check_steps(const char *name, const struct cut *cut)
{
    open_one(name);
    struct zinf_trainer *t = open_cut(set(cut), ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < 10; step++) {
        const struct zinf_batch batch = samples_from(step * fixture.batch * fixture.accumulation);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        check_step(&fixture, name, step, &r);
        if (!step)
            check_rewards(&fixture, name, &r.rewards);
    }
    zinf_trainer_destroy(t);
    close_fixture(&fixture);
}

static void test_ten_steps(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_steps(pairs[i], &cuts[i % N_CUTS]);
    for (int i = 0; i < N_EMBEDS; i++)
        check_steps(embeds[i], &cuts[1 + i]);
}

/* ---- bits ---- */

static void run_places(int place, bool again, const char *precision, const char *name,
                       struct outcome *out)
{
    char extra[300];
    struct setting s = {.param = places[place],
                        .state = places[(place + again) % 3],
                        .precision = precision,
                        .accumulation = 2,
                        .clip = 0.5,
                        .look_ahead = again ? "0" : NULL,
                        .extra = extra};
    const struct zinf_config *of = fixture.config;
    snprintf(extra, sizeof extra,
             ", \"sequence_chunk\": 5, \"dropout\": 0.2, \"activation_device\": \"%s\", "
             "\"preference\": \"%s\", \"preference_beta\": %g, \"preference_margin\": %g",
             places[place], of->preference, of->preference_beta, of->preference_margin);
    trainings.batch = (int)of->micro_batch;
    struct zinf_config *config = configure(&s);
    memset(out, 0, sizeof *out);
    struct zinf_trainer *t = open_cut(config, ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < trainings.steps; step++) {
        const struct zinf_batch batch = samples_from(step * fixture.batch * s.accumulation);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        note_step(out, step, &r);
    }
    snprintf(out->folder, sizeof out->folder, "%s/out-%s", work, name);
    CHECKF(t && !zinf_trainer_save(t, out->folder), "%s", zinf_error());
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void check_places(const char *name, const char *precision)
{
    struct outcome reference, other;
    open_one(name);
    run_places(0, false, precision, "reference", &reference);
    for (int i = 1; i < 6; i++) {
        run_places(i % 3, i > 2, precision, "other", &other);
        check_same(&reference, &other, name);
    }
    close_fixture(&fixture);
}

static void test_placements_give_the_same_bits(void)
{
    static const char *const names[] = {"pair_a", "pair_c", "kto_a", "reward_a", "bert_e"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_places(names[i], NULL);
        check_places(names[i], bf16);
    }
}

/* ---- evaluations ---- */

struct evaluated {
    double loss;
    uint64_t count;
    struct zinf_rewards rewards;
    float embedded[16 * 64];
};

static void evaluate(const struct cut *cut, struct evaluated *out)
{
    struct zinf_trainer *t = open_cut(set(cut), ZINF_TRAINER_FORWARD);
    const struct zinf_batch batch = samples_from(0);
    CHECKF(t && !zinf_trainer_loss(t, &batch, fixture.batch, &out->loss, &out->count), "%s",
           zinf_error());
    CHECKF(t && !trainer_sum_rewards(t, fixture.batch, &out->rewards), "%s", zinf_error());
    if (fixture.together)
        CHECKF(t && !zinf_trainer_embed(t, &batch, fixture.batch, out->embedded), "%s",
               zinf_error());
    zinf_trainer_destroy(t);
}

static void check_evaluation(const char *name)
{
    static struct evaluated one, other;
    memset(&one, 0, sizeof one);
    memset(&other, 0, sizeof other);
    open_one(name);
    evaluate(&whole, &one);
    for (int i = 0; i < N_CUTS; i++) {
        evaluate(&cuts[i], &other);
        CHECKF(one.count && other.count == one.count && near(other.loss, one.loss, 1e-6),
               "%s, cut %d: %.9g of %llu, not %.9g of %llu", name, i, other.loss,
               (unsigned long long)other.count, one.loss, (unsigned long long)one.count);
        CHECKF(other.rewards.n == one.rewards.n &&
                   fabs(other.rewards.chosen - one.rewards.chosen) < 1e-5 &&
                   fabs(other.rewards.rejected - one.rewards.rejected) < 1e-5,
               "%s, cut %d: rewards %g, %g, not %g, %g", name, i, other.rewards.chosen,
               other.rewards.rejected, one.rewards.chosen, one.rewards.rejected);
        for (int k = 0; k < 16 * 64; k++)
            CHECKF(fabsf(other.embedded[k] - one.embedded[k]) < 1e-5f, "%s, cut %d: number %d",
                   name, i, k);
    }
    close_fixture(&fixture);
}

static void test_evaluations(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_evaluation(pairs[i]);
    for (int i = 0; i < N_EMBEDS; i++)
        check_evaluation(embeds[i]);
}

/* ---- memory ---- */

static uint64_t planned(const char *name, const struct cut *cut, int64_t accumulation)
{
    struct zinf_config *config = set(cut);
    const int64_t before = config->accumulation;
    config->accumulation = accumulation;
    struct zinf_trainer *t = open_cut(config, ZINF_TRAINER_TRAIN);
    const bool paired = fixture.pairs, chunked = cut->chunk || cut->parts > 1;
    const uint64_t bytes = t ? pairs_bytes(&t->setup) + embedded_bytes(&t->setup) : 0;
    const uint64_t like = t ? likeness_bytes(&t->setup) : 0;
    CHECKF(t && plan_says(t, "sums of pairs") == (paired && chunked), "%s", name);
    CHECKF(t && plan_says(t, "embeddings of a step") == !paired, "%s", name);
    CHECKF(!bytes == !chunked && !like == paired, "%s: %llu and %llu bytes", name,
           (unsigned long long)bytes, (unsigned long long)like);
    if (t && t->pairs) /* malloc rounds up a little */
        CHECKF(malloc_usable_size(t->pairs) - bytes < 512, "%s: %llu bytes", name,
               (unsigned long long)bytes);
    if (t && t->embedded)
        CHECKF(malloc_usable_size(t->embedded) - bytes < 512, "%s: %llu bytes", name,
               (unsigned long long)bytes);
    if (t && accumulation == 1) {
        const struct zinf_batch batch = samples_from(0);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        CHECKF(t->likeness_bytes == like, "%s: %llu bytes, not %llu", name,
               (unsigned long long)t->likeness_bytes, (unsigned long long)like);
    }
    zinf_trainer_destroy(t);
    config->accumulation = before;
    return bytes + like;
}

/* What is kept of samples has a line of the plan, and grows with them. */
static void test_sums_are_planned(void)
{
    static const char *const names[] = {"pair_a", "kto_a", "bert_e"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        open_one(names[i]);
        for (int k = 0; k < N_CUTS; k++) {
            const uint64_t few = planned(names[i], &cuts[k], 1),
                           many = planned(names[i], &cuts[k], 8);
            CHECKF(many > 7 * few, "%s: %llu bytes of one, %llu of eight", names[i],
                   (unsigned long long)few, (unsigned long long)many);
        }
        planned(names[i], &whole, 1);
        close_fixture(&fixture);
    }
}

/* ---- refusals ---- */

/* A reference that is not given is the same model in the same step. */
static void test_reference_in_the_same_step(void)
{
    struct zinf_trainer *t = NULL;
    open_fixture(&fixture, "pair_a");
    const struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                                 .model_path = fixture.model,
                                                 .adapter = fixture.folder,
                                                 .pairs = true,
                                                 .config = set(&cuts[0]),
                                                 .seq_len = fixture.seq,
                                                 .device = ZINF_DEVICE_HOST};
    CHECKF(zinf_trainer_create(&t, &options) < 0 && strstr(zinf_error(), "zinf.sequence_chunk") &&
               strstr(zinf_error(), "in the same step"),
           "%s", zinf_error());
    zinf_trainer_destroy(t);
    close_fixture(&fixture);
}

int main(void)
{
    begin_fixtures("chunked_losses");
    trainings.steps = 2;
    TAP_RUN(test_gradients_of_pairs);
    TAP_RUN(test_gradients_of_embeddings);
    TAP_RUN(test_ten_steps);
    TAP_RUN(test_evaluations);
    TAP_RUN(test_placements_give_the_same_bits);
    TAP_RUN(test_sums_are_planned);
    TAP_RUN(test_reference_in_the_same_step);
    remove_work();
    return tap_done();
}

/*
 * DeBERTa's sequences in chunks and in parts: attention to relative positions, with every way that
 * rows of the table are made, and convolutions that see rows on both sides; classes, numbers,
 * masked tokens and embeddings. Against PyTorch's figures and against sequences in one piece:
 * losses, gradients, ten steps, evaluations; and the same bits in all placements and schedules.
 * Samples have padding, and no chunk length but one divides them.
 */
#include "fixture_inputs.h"

#include "train/estimate.h"
#include "train/trainer.h"

static const char *const models[] = {"deberta_v2_a", "deberta_v2_b", "deberta_v2_c", "deberta_v2_d",
                                     "deberta_v2_e", "deberta_v2_f", "deberta_v2_g", "deberta_v2_h",
                                     "deberta_v2_m", "deberta_v2_n", "deberta_v2_x"};
enum { N_MODELS = sizeof models / sizeof *models, MOST_NUMBERS = 16 * 64 };

/* One token in a chunk is less than what a convolution sees on each side. */
static const struct cut {
    int64_t chunk, parts;
} cuts[] = {{8, 1}, {5, 1}, {1, 1}, {0, 2}, {3, 2}}, whole = {0, 1};
enum { N_CUTS = sizeof cuts / sizeof *cuts };

static struct fixture fixture;

static struct zinf_trainer *open_cut(const struct cut *cut, enum zinf_trainer_mode mode)
{
    fixture.config->sequence_chunk = cut->chunk;
    fixture.config->context_parts = cut->parts;
    return open_pair(&fixture, fixture.config, mode);
}

/* ---- gradients ---- */

static void gradients_of(const struct cut *cut, const char *path, double *loss)
{
    struct zinf_trainer *t = open_cut(cut, ZINF_TRAINER_GRADIENTS);
    const struct zinf_batch batch = batch_at(&fixture, 0);
    double norm = 0;
    CHECKF(t && !zinf_trainer_gradients(t, &batch, loss, &norm), "%s", zinf_error());
    CHECKF(t && !zinf_trainer_save_gradients(t, path), "%s", zinf_error());
    zinf_trainer_destroy(t);
}

/* With AVX-512 a forward pass in chunks has the bits of the whole sequence's. A loss of embeddings
 * is made by the CPU then, not by the device. */
static bool keeps_bits(void)
{
    return zinf_isa() >= ZINF_ISA_AVX512 && !fixture.together;
}

static void check_cuts(const char *name)
{
    char of_whole[600], of_cut[600];
    double loss = 0;
    open_fixture(&fixture, name);
    gradients_of(&whole, in_work(of_whole, "whole.safetensors"), &loss);
    for (int i = 0; i < N_CUTS; i++) {
        double own = 0;
        gradients_of(&cuts[i], in_work(of_cut, "cut.safetensors"), &own);
        const double worst = compare_files(of_cut, of_whole);
        check_cut(&fixture, name, i, own, loss, worst);
        CHECKF(!keeps_bits() || own == loss, "%s, cut %d: loss %.17g, not %.17g", name, i, own,
               loss);
    }
    close_fixture(&fixture);
}

static void test_gradients(void)
{
    for (int i = 0; i < N_MODELS; i++)
        check_cuts(models[i]);
}

/* ---- steps ---- */

static void check_steps(const char *name, const struct cut *cut)
{
    open_fixture(&fixture, name);
    struct zinf_trainer *t = open_cut(cut, ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < 10; step++) {
        const struct zinf_batch batch =
            batch_at(&fixture, step * fixture.batch * fixture.accumulation);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        check_step(&fixture, name, step, &r);
    }
    zinf_trainer_destroy(t);
    close_fixture(&fixture);
}

static void test_ten_steps(void)
{
    for (int i = 0; i < N_MODELS; i++)
        check_steps(models[i], &cuts[i % N_CUTS]);
}

/* ---- evaluations ---- */

struct evaluated {
    double loss;
    uint64_t count;
    float embedded[MOST_NUMBERS];
};

static void evaluate(const struct cut *cut, struct evaluated *out)
{
    struct zinf_trainer *t = open_cut(cut, ZINF_TRAINER_FORWARD);
    const int64_t together = fixture.together ? fixture.batch : 1; /* samples of a call */
    struct zinf_batch batch;
    memset(out, 0, sizeof *out);
    for (int64_t i = 0; i < fixture.batch; i += together) {
        double loss = 0;
        uint64_t count = 0;
        batch = batch_at(&fixture, i);
        CHECKF(t && !zinf_trainer_loss(t, &batch, together, &loss, &count), "%s", zinf_error());
        out->loss += loss;
        out->count += count;
    }
    batch = batch_at(&fixture, 0);
    if (fixture.together)
        CHECKF(t && !zinf_trainer_embed(t, &batch, fixture.batch, out->embedded), "%s",
               zinf_error());
    zinf_trainer_destroy(t);
}

static void check_evaluation(const char *name)
{
    static struct evaluated one, other;
    open_fixture(&fixture, name);
    evaluate(&whole, &one);
    for (int i = 0; i < N_CUTS; i++) {
        evaluate(&cuts[i], &other);
        CHECKF(one.count && other.count == one.count && near(other.loss, one.loss, 1e-6),
               "%s, cut %d: %.9g of %llu, not %.9g of %llu", name, i, other.loss,
               (unsigned long long)other.count, one.loss, (unsigned long long)one.count);
        for (int k = 0; k < MOST_NUMBERS; k++)
            CHECKF(fabsf(other.embedded[k] - one.embedded[k]) < 1e-5f, "%s, cut %d: number %d",
                   name, i, k);
    }
    close_fixture(&fixture);
}

static void test_evaluations(void)
{
    for (int i = 0; i < N_MODELS; i++)
        check_evaluation(models[i]);
}

/* ---- bits ---- */

static void run_cut(const struct setting *s, const char *name, struct outcome *out)
{
    run_fixture(&fixture, s, configure(s), name, out);
}

/* Parameters, state, inputs of blocks and what is made again, with dropout. */
static void check_places(const char *name, const char *precision, const char *cut)
{
    static const char *const again[] = {"always", "never", "auto"};
    struct outcome reference, other;
    char extra[300];
    open_fixture(&fixture, name);
    struct setting s = setting_with(precision, extra);
    for (int i = 0; i < 9; i++) {
        s.param = places[i % 3];
        s.state = places[i / 3];
        s.look_ahead = i % 2 ? "0" : NULL;
        snprintf(extra, sizeof extra,
                 "%s, \"dropout\": 0.2, \"activation_device\": \"%s\", "
                 "\"activation_checkpointing\": \"%s\"",
                 cut, places[(i + i / 3) % 3], again[i % 3]);
        run_cut(&s, i ? "other" : "reference", i ? &other : &reference);
        if (i)
            check_same(&reference, &other, name);
    }
    close_fixture(&fixture);
}

static void test_placements_give_the_same_bits(void)
{
    static const char *const names[] = {"deberta_v2_b", "deberta_v2_d", "deberta_v2_e",
                                        "deberta_v2_m", "deberta_v2_x"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_places(names[i], NULL, ", \"sequence_chunk\": 5");
        check_places(names[i], bf16, ", \"sequence_chunk\": 5");
        check_places(names[i], NULL, ", \"sequence_chunk\": 2, \"context_parts\": 2");
    }
}

static void test_schedules_give_the_same_bits(void)
{
    struct outcome reference, other;
    open_fixture(&fixture, "deberta_v2_b");
    struct setting s =
        setting_with(NULL, ", \"sequence_chunk\": 5, \"activation_device\": \"nvme\"");
    s.accumulation = 3;
    s.schedule = "serial";
    run_cut(&s, "reference", &reference);
    s.param = s.state = "nvme";
    for (int i = 0; i < 4; i++) {
        s.schedule = schedules[i];
        s.copies = i % 2;
        run_cut(&s, "other", &other);
        check_same(&reference, &other, s.schedule);
    }
    close_fixture(&fixture);
}

/* ---- memory ---- */

/* A step reads and writes what an estimate says, and as much memory is planned. */
static void check_estimate(const char *name)
{
    struct setting s = setting_with(NULL, ", \"sequence_chunk\": 2, "
                                          "\"activation_device\": \"nvme\"");
    struct zinf_step_result r = {0};
    struct zinf_estimate e = {0};
    open_fixture(&fixture, name);
    s.param = s.state = "cpu";
    s.schedule = "prefetch";
    struct zinf_config *config = configure(&s);
    const struct zinf_estimate_options options = {.trainer = {.mode = ZINF_TRAINER_TRAIN,
                                                              .model_path = fixture.model,
                                                              .config = config,
                                                              .seed = 5,
                                                              .together = fixture.together,
                                                              .seq_len = fixture.seq,
                                                              .device = ZINF_DEVICE_HOST}};
    CHECKF(!zinf_estimate(&e, &options), "%s", zinf_error());
    struct zinf_trainer *t = open_pair(&fixture, config, ZINF_TRAINER_TRAIN);
    for (int step = 0; t && step < 3; step++) {
        const struct zinf_batch batch = batch_at(&fixture, step * fixture.batch * s.accumulation);
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
    }
    for (int lane = 0; lane < 2; lane++)
        CHECKF(r.lane_bytes[lane] && r.lane_bytes[lane] == e.lane_bytes[lane],
               "%s: lane %d: %llu bytes, %llu estimated", name, lane,
               (unsigned long long)r.lane_bytes[lane], (unsigned long long)e.lane_bytes[lane]);
    for (int k = 0; t && k < 3; k += 2) {
        const uint64_t bytes =
            zinf_trainer_planned_bytes(t, k ? ZINF_MEMORY_DRIVE : ZINF_MEMORY_DEVICE);
        CHECKF(bytes == e.bytes[k], "%s: %llu bytes planned, %llu estimated", name,
               (unsigned long long)bytes, (unsigned long long)e.bytes[k]);
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    close_fixture(&fixture);
}

static void test_estimates_are_right(void)
{
    check_estimate("deberta_v2_a");
    check_estimate("deberta_v2_m");
}

int main(void)
{
    begin_fixtures("relative_chunks");
    trainings.batch = 3;
    trainings.steps = 2;
    TAP_RUN(test_gradients);
    TAP_RUN(test_ten_steps);
    TAP_RUN(test_evaluations);
    TAP_RUN(test_placements_give_the_same_bits);
    TAP_RUN(test_schedules_give_the_same_bits);
    TAP_RUN(test_estimates_are_right);
    remove_work();
    return tap_done();
}

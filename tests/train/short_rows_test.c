/*
 * Samples that are shorter than the longest, in chunks: chunks in which no sample has rows are not
 * visited. They have the bits that padding in place of these rows gives, for models of every family
 * and in all placements and schedules; and a step moves the bytes of a training of short samples.
 */
#include "fixture_cases.h"
#include "fixture_folders.h"
#include "least_memory.h"

#include "train/trainer.h"

/* ---- models of every family ---- */

/* Rows of each sample of the array, with padding behind them up to `all`. */
static const int32_t *padded(const int32_t *from, int64_t samples, int64_t rows, int64_t all,
                             int32_t padding, int32_t *to)
{
    for (int64_t i = 0; i < samples * all; i++)
        to[i] = i % all < rows ? from[i / all * rows + i % all] : padding;
    return to;
}

static void pad(const struct case_of *shorter, const struct case_of *c, struct zinf_batch *batch)
{
    static int32_t arrays[ZINF_INPUTS][MOST_TOKENS];
    const int64_t n = 2 * c->batch;
    for (int i = 0; i < ZINF_INPUTS; i++) {
        const bool source = i == ZINF_INPUT_SOURCE_IDS || i == ZINF_INPUT_SOURCE_SEGMENTS;
        if (batch->inputs[i])
            batch->inputs[i] =
                padded(batch->inputs[i], n, source ? shorter->source : shorter->seq,
                       source ? c->source : c->seq, i == ZINF_INPUT_TARGETS ? -1 : 0, arrays[i]);
    }
}

enum batch_of { SHORT_ROWS, PADDED_ROWS, SHORT_TRAINER };

/* Loss and gradients of short samples. false: refused. */
static bool gradients(const struct case_of *shorter, const struct case_of *c, enum batch_of kind,
                      char path[600], double *loss)
{
    struct zinf_config *config = case_config(c);
    struct zinf_trainer *t = open_case(kind == SHORT_TRAINER ? shorter : c, config);
    struct zinf_batch batch;
    double norm;
    if (t) {
        draw(shorter, 0, zinf_model_facts(zinf_trainer_model(t))->vocab, &batch);
        if (kind == PADDED_ROWS)
            pad(shorter, c, &batch);
        batch.seq_len = kind == SHORT_ROWS ? shorter->seq : 0;
        batch.source_len = kind == SHORT_ROWS ? shorter->source : 0;
        CHECKF(!zinf_trainer_gradients(t, &batch, loss, &norm), "%s", zinf_error());
        CHECKF((kind == SHORT_ROWS) == (t->visited < t->setup.n_chunks), "%s: %d of %d chunks",
               c->model, (int)t->visited, (int)t->setup.n_chunks);
        CHECKF(!zinf_trainer_save_gradients(t, path), "%s", zinf_error());
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return t != NULL;
}

/* A loss that balances experts counts rows, also those of padding. */
static bool counts_padding(const char *name)
{
    static const char *const names[] = {"gpt_oss_b",   "mixtral_c",   "olmoe_b",
                                        "qwen2_moe_b", "qwen3_moe_c", "qwen3_next_b"};
    bool does = false;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        does |= !strcmp(name, names[i]);
    return does;
}

static void check_model(const char *name, int chunk, int parts)
{
    static const enum batch_of others[] = {PADDED_ROWS, SHORT_TRAINER};
    char path[600], other[600];
    struct case_of c;
    double loss, of_other;
    if (!read_case(&c, name))
        return;
    struct case_of shorter = c;
    c.chunk = shorter.chunk = chunk;
    c.parts = shorter.parts = parts;
    c.packed = shorter.packed = true;
    shorter.seq = c.seq / 3;
    shorter.source = c.source / 3;
    if (!gradients(&shorter, &c, SHORT_ROWS, in_work(path, "short.safetensors"), &loss))
        return;
    for (size_t i = 0; i < 2; i++) {
        /* a shorter sequence has other parts */
        if (others[i] == PADDED_ROWS ? counts_padding(name) : parts > 0)
            continue;
        CHECK(gradients(&shorter, &c, others[i], in_work(other, "other.safetensors"), &of_other));
        CHECKF(loss == of_other, "%s by %d, %d parts, %d: loss %.17g, not %.17g", name, chunk,
               parts, others[i], loss, of_other);
        CHECKF(compare_files(path, other) == 0, "%s by %d, %d parts, %d: gradients differ by %g",
               name, chunk, parts, others[i], compare_files(path, other));
    }
}

static void test_models(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++) {
        check_model(folders[i], 2, 0);
        check_model(folders[i], 0, 2);
    }
}

static void test_encoders(void)
{
    static const char *const names[] = {"t5_a",         "t5_b",         "t5_c",   "bart_a",
                                        "bart_b",       "blenderbot_a", "bert_m", "roberta_m",
                                        "deberta_v2_m", "deberta_v2_n"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        check_model(names[i], 2, 0);
        check_model(names[i], 0, 2);
    }
}

/* ---- placements and schedules ---- */

#define IN_CHUNKS ", \"sequence_chunk\": 3, \"activation_device\": "

static void check_like(const struct outcome *reference, struct setting *s, const char *what)
{
    struct outcome other;
    run(s, "other", &other);
    check_same(reference, &other, what);
}

static void check_trainings(void)
{
    static const char *const places[] = {"none", "cpu", "nvme"};
    bool streams = false;
    struct outcome reference;
    struct setting s = {.param = "none",
                        .state = "none",
                        .accumulation = 2,
                        .clip = 0.5,
                        .rows = 11,
                        .padded = true,
                        .extra = IN_CHUNKS "\"none\""};
    run(&s, "reference", &reference);
    s.padded = false;
    check_like(&reference, &s, "on the device");
    for (int i = 1; i < 3; i++) {
        s.param = s.state = places[i];
        s.extra = i == 1 ? IN_CHUNKS "\"cpu\"" : IN_CHUNKS "\"nvme\"";
        s.device_memory = 0;
        check_like(&reference, &s, places[i]);
        s.device_memory = least_memory(s, 8 << 20, &streams);
        CHECK(streams);
        check_like(&reference, &s, "groups of chunks");
        for (uint32_t ops = 1; ops < 400; ops = ops * 5 + 2) {
            s.piece_ops = ops;
            check_like(&reference, &s, "pieces");
        }
        s.piece_ops = 0;
    }
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        s.schedule = schedules[i];
        s.clip = i == 4 ? 0 : 0.5;
        if (i < 4)
            check_like(&reference, &s, schedules[i]);
    }
}

static void test_trainings(void)
{
    check_trainings();
    make_windowed(5);
    check_trainings();
    in_work(model, "model");
}

/* ---- bytes ---- */

/* Of a step in the steady state, and how many chunks there are in a group. */
static void step_bytes(const struct setting *s, uint64_t bytes[2], int64_t *span)
{
    struct zinf_config *config = configure(s);
    struct zinf_trainer_options options = trainer_options(s, config);
    struct zinf_trainer *t = NULL;
    struct zinf_step_result r = {0};
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    for (int step = 0; t && step < trainings.steps; step++)
        CHECKF(!next_step(t, s, (uint64_t)step, &r), "%s", zinf_error());
    memcpy(bytes, r.lane_bytes, 2 * sizeof *bytes);
    *span = t ? t->plan.carried_span : 0;
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* Parameters and state are in RAM: what a drive has is of chunks alone. */
static void check_bytes(void)
{
    const int seq = trainings.seq;
    bool streams = false;
    uint64_t whole[2], few[2], shorter[2];
    int64_t span, of_short;
    struct setting s = {.param = "cpu",
                        .state = "cpu",
                        .accumulation = 2,
                        .schedule = "prefetch",
                        .extra = IN_CHUNKS "\"nvme\""};
    s.device_memory = least_memory(s, 8 << 20, &streams);
    CHECK(streams);
    step_bytes(&s, whole, &span);
    s.rows = 15;
    step_bytes(&s, few, &span);
    trainings.seq = 15;
    s.rows = 0;
    s.device_memory = least_memory(s, 8 << 20, &streams);
    step_bytes(&s, shorter, &of_short);
    trainings.seq = seq;
    CHECKF(span == of_short, "%d chunks in a group, not %d", (int)span, (int)of_short);
    for (int lane = 0; lane < 2; lane++)
        CHECKF(few[lane] == shorter[lane] && few[lane] && 2 * few[lane] < whole[lane],
               "lane %d: %llu bytes, not %llu; %llu of long samples", lane,
               (unsigned long long)few[lane], (unsigned long long)shorter[lane],
               (unsigned long long)whole[lane]);
}

static void test_bytes(void)
{
    check_bytes();
    make_windowed(5);
    check_bytes();
    in_work(model, "model");
}

int main(void)
{
    begin_trainings("short-rows", &(struct trainings){.shape = {.arch = "llama",
                                                                .layers = 2,
                                                                .hidden = 32,
                                                                .heads = 4,
                                                                .vocab = 61,
                                                                .context = 32},
                                                      .steps = 3,
                                                      .seq = 30,
                                                      .batch = 1,
                                                      .sub_group = 5000});
    TAP_RUN(test_bytes);
    TAP_RUN(test_trainings);
    TAP_RUN(test_encoders);
    TAP_RUN(test_models);
    remove_work();
    return tap_done();
}

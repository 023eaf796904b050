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

/* What a step is told of short samples: that all are short; nothing, there is padding; that all but
 * the first are short; or its trainer is for samples as short. */
enum batch_of { SHORT_ROWS, PADDED_ROWS, LENGTHS, SHORT_TRAINER };

static void tell_lengths(const struct case_of *shorter, const struct case_of *c,
                         struct zinf_batch *batch)
{
    static int32_t lengths[8], sources[8];
    for (int i = 0; i < 8; i++) {
        lengths[i] = (int32_t)(i ? shorter->seq : c->seq);
        sources[i] = (int32_t)(i ? shorter->source : c->source);
    }
    batch->lengths = lengths;
    batch->source_lengths = sources;
}

/* A loss that balances experts counts rows, also those of padding. */
static const char *const balanced_models[] = {"gpt_oss_b",   "mixtral_c",   "olmoe_b",
                                              "qwen2_moe_b", "qwen3_moe_c", "qwen3_next_b"};
enum { N_BALANCED = sizeof balanced_models / sizeof *balanced_models };

static bool counts_padding(const struct case_of *c)
{
    bool does = false;
    for (size_t i = 0; i < N_BALANCED; i++)
        does |= strstr(c->model, balanced_models[i]) != NULL;
    return does;
}

/* Loss and gradients of short samples. false: refused. */
static bool gradients(const struct case_of *shorter, const struct case_of *c, enum batch_of kind,
                      char path[600], double *loss)
{
    struct zinf_config *config = case_config(c);
    struct zinf_trainer *t = open_case(kind == SHORT_TRAINER ? shorter : c, config);
    struct zinf_batch batch;
    double norm;
    if (t) {
        draw(c, 1, zinf_model_facts(zinf_trainer_model(t))->vocab, &batch);
        if (kind != SHORT_TRAINER) /* leaves something in all places */
            CHECKF(!zinf_trainer_gradients(t, &batch, loss, &norm), "%s", zinf_error());
        draw(shorter, 0, zinf_model_facts(zinf_trainer_model(t))->vocab, &batch);
        if (kind == PADDED_ROWS || kind == LENGTHS)
            pad(shorter, c, &batch);
        if (kind == LENGTHS)
            tell_lengths(shorter, c, &batch);
        batch.seq_len = kind == SHORT_ROWS ? shorter->seq : 0;
        batch.source_len = kind == SHORT_ROWS ? shorter->source : 0;
        CHECKF(!zinf_trainer_gradients(t, &batch, loss, &norm), "%s", zinf_error());
        const int visited = (int)trainer_visited(t, setup_samples(&t->setup) > 1),
                  all = (int)setup_chunks_with(&t->setup, t->setup.seq, c->source);
        const bool balanced = counts_padding(c);
        const bool fewer =
            kind == SHORT_ROWS ? !balanced || !c->parts : kind == LENGTHS && !balanced;
        CHECKF(fewer == (visited < all) || all == 1, "%s: %d of %d chunks", c->model, visited, all);
        CHECKF(!zinf_trainer_save_gradients(t, path), "%s", zinf_error());
    }
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return t != NULL;
}

static bool same_bytes(const char *a, const char *b)
{
    char *p = NULL, *q = NULL;
    size_t n = 0, m = 1;
    const bool same = !zinf_file_read(a, 1 << 26, &p, &n) && !zinf_file_read(b, 1 << 26, &q, &m) &&
                      n == m && !memcmp(p, q, n);
    free(p);
    free(q);
    return same;
}

/* Rotary frequencies go by the length of a batch. */
static bool goes_by_length(const struct case_of *c)
{
    return strstr(c->model, "llama_d") != NULL;
}

/* Two ways to be given the same tokens have the same bits. */
static void check_pair(const struct case_of *shorter, const struct case_of *c, enum batch_of one,
                       enum batch_of other)
{
    char path[600], other_path[600];
    double loss, of_other;
    if (!gradients(shorter, c, one, in_work(path, "one.safetensors"), &loss))
        return;
    CHECK(gradients(shorter, c, other, in_work(other_path, "other.safetensors"), &of_other));
    CHECKF(loss == of_other && loss > 0, "%s by %d, %d parts, %d and %d: loss %.17g, not %.17g",
           c->model, c->chunk, c->parts, one, other, loss, of_other);
    CHECKF(same_bytes(path, other_path), "%s by %d, %d parts, %d and %d: gradients differ by %g",
           c->model, c->chunk, c->parts, one, other, compare_files(path, other_path));
}

static void check_model(const char *name, int chunk, int parts)
{
    char path[600];
    double loss;
    struct case_of c;
    if (!read_case(&c, name))
        return;
    struct case_of shorter = c;
    c.chunk = shorter.chunk = chunk;
    c.parts = shorter.parts = parts;
    c.packed = shorter.packed = true;
    shorter.seq = c.seq / 2 < 5 ? 5 : c.seq / 2; /* some rows have targets */
    shorter.source = c.source / 3;
    check_pair(&shorter, &c, LENGTHS, PADDED_ROWS);
    if (!counts_padding(&c) && !goes_by_length(&c))
        check_pair(&shorter, &c, SHORT_ROWS, PADDED_ROWS);
    if (parts && counts_padding(&c)) /* all are visited */
        gradients(&shorter, &c, SHORT_ROWS, in_work(path, "one.safetensors"), &loss);
    if (!parts && !c.source) /* a shorter sequence has other parts, or chunks */
        check_pair(&shorter, &c, SHORT_ROWS, SHORT_TRAINER);
}

static void test_models(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++) {
        check_model(folders[i], 2, 0);
        check_model(folders[i], 0, 2);
        check_model(folders[i], 3, 4);
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
        check_model(names[i], 3, 4);
    }
}

/* ---- against sequences in one piece ---- */

/* A loss that balances experts counts the rows that it counts in one piece, where a micro-batch is
 * one sample: those of the step's longest one, padding with them. Loss and gradients are close. */
static void check_whole(const char *name, enum batch_of kind)
{
    static const int cuts[][2] = {{2, 0}, {3, 0}, {0, 2}, {3, 4}};
    char path[600], other_path[600];
    double whole, cut;
    struct case_of c;
    if (!read_case(&c, name))
        return;
    c.batch = 1;
    c.packed = true;
    struct case_of shorter = c;
    shorter.seq = c.seq / 2 < 5 ? 5 : c.seq / 2;
    CHECK(gradients(&shorter, &c, kind, in_work(path, "one.safetensors"), &whole));
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        c.chunk = shorter.chunk = cuts[i][0];
        c.parts = shorter.parts = cuts[i][1];
        CHECK(gradients(&shorter, &c, kind, in_work(other_path, "other.safetensors"), &cut));
        const double error = compare_files(path, other_path);
        CHECKF(fabs(cut / whole - 1) < 1e-6 && error < gradient_bound(name),
               "%s by %d, %d parts, %d: loss %.9g, not %.9g; gradients off by %g", name, c.chunk,
               c.parts, kind, cut, whole, error);
    }
}

static void test_balanced(void)
{
    for (size_t i = 0; i < N_BALANCED; i++) {
        check_whole(balanced_models[i], PADDED_ROWS);
        check_whole(balanced_models[i], SHORT_ROWS);
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

static void check_placements(const struct outcome *reference, struct setting s)
{
    static const char *const places[] = {"cpu", "nvme"};
    bool streams = false;
    check_like(reference, &s, "on the device");
    for (int i = 0; i < 2; i++) {
        s.param = s.state = places[i];
        s.extra = i ? IN_CHUNKS "\"nvme\"" : IN_CHUNKS "\"cpu\"";
        s.device_memory = 0;
        check_like(reference, &s, places[i]);
        s.device_memory = least_memory(s, 8 << 20, &streams);
        CHECK(streams);
        check_like(reference, &s, "groups of chunks");
        const uint64_t least = s.device_memory;
        for (uint64_t more = 1; more < 5; more++) { /* groups of several */
            s.device_memory = least + least * more / 16;
            check_like(reference, &s, "larger groups of chunks");
        }
        s.device_memory = least;
        for (uint32_t ops = 1; ops < 400; ops = ops * 5 + 2) {
            s.piece_ops = ops;
            check_like(reference, &s, "pieces");
        }
        s.piece_ops = 0;
    }
    for (size_t i = 0; i + 1 < sizeof schedules / sizeof *schedules; i++) {
        s.schedule = schedules[i]; /* the last one does not clip */
        check_like(reference, &s, schedules[i]);
    }
}

/* Against padding in all placements: of short batches, and of samples that are shorter than their
 * batch. */
static void check_trainings(void)
{
    struct outcome reference;
    struct setting s = {.param = "none",
                        .state = "none",
                        .accumulation = 2,
                        .clip = 0.5,
                        .rows = 11,
                        .padded = true,
                        .extra = IN_CHUNKS "\"none\""};
    run(&s, "reference", &reference);
    for (int told = 0; told < 2; told++) {
        s.padded = s.lengths = told;
        check_placements(&reference, s);
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

/* Of what the device has room for while a stage runs. */
static uint64_t slots_bytes(const struct plan *p)
{
    return carried_slots(p) * carried_group_bytes(p, false) +
           (uint64_t)x_slots(p) * plan_leaving_bytes(p);
}

/* Of a step in the steady state, and how many chunks there are in a group. *slots: of what a sample
 * may find on the device when its stages go backward. */
static void step_bytes(const struct setting *s, uint64_t bytes[2], int64_t *span, uint64_t *slots)
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
    *slots = t ? t->setup.walk.graph->n_stages * slots_bytes(&t->plan) : 0;
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

/* Parameters and state are in RAM: what a drive has is of chunks alone. A step writes what one of
 * short samples writes, and reads beside it what that finds in slots, where this one has passed
 * the chunks without rows in between. */
static void check_bytes(void)
{
    const int seq = trainings.seq;
    bool streams = false;
    uint64_t whole[2], few[2], shorter[2], slots;
    int64_t span, of_short;
    struct setting s = {.param = "cpu",
                        .state = "cpu",
                        .accumulation = 2,
                        .schedule = "prefetch",
                        .extra = IN_CHUNKS "\"nvme\""};
    s.device_memory = least_memory(s, 8 << 20, &streams);
    CHECK(streams);
    step_bytes(&s, whole, &span, &slots);
    s.rows = 15;
    step_bytes(&s, few, &span, &slots);
    trainings.seq = 15;
    s.rows = 0;
    s.device_memory = least_memory(s, 8 << 20, &streams);
    step_bytes(&s, shorter, &of_short, &slots);
    trainings.seq = seq;
    CHECKF(span == of_short, "%d chunks in a group, not %d", (int)span, (int)of_short);
    CHECKF(few[1] == shorter[1] && 2 * few[1] < whole[1],
           "%llu bytes written, not %llu; %llu of long samples", (unsigned long long)few[1],
           (unsigned long long)shorter[1], (unsigned long long)whole[1]);
    CHECKF(few[0] >= shorter[0] && few[0] <= shorter[0] + 2 * slots && 2 * few[0] < whole[0],
           "%llu bytes read, not %llu; %llu of long samples, %llu in slots",
           (unsigned long long)few[0], (unsigned long long)shorter[0], (unsigned long long)whole[0],
           (unsigned long long)slots);
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
    TAP_RUN(test_balanced);
    TAP_RUN(test_models);
    remove_work();
    return tap_done();
}

/*
 * Sequences that are visited in chunks: against the sequence in one piece, for models of every
 * family, with chunks that divide it and that do not, windows, documents and dropout; and the same
 * bits in all placements. Mixers hand states over from chunk to chunk.
 */
#include "fixture_cases.h"
#include "fixture_folders.h"
#include "least_memory.h"
#include "model/frame.h"

/* Chunks, chunks in parts, and parts of which each has two chunks from either end. */
static const struct {
    int chunk, parts;
} cuts[] = {{8, 0}, {5, 0}, {0, 2}, {3, 4}};

/* Whether a forward pass in chunks is held to the bits of the whole sequence's, by the loss: with
 * AVX-512 of all models, but those with a loss that balances experts, which is added up chunk by
 * chunk; otherwise of those whose gradients only equal bits keep within the bound. */
static bool keeps_bits(const char *name)
{
    static const char *const balanced[] = {"gpt_oss_b",   "mixtral_c",   "olmoe_b",
                                           "qwen2_moe_b", "qwen3_moe_c", "qwen3_next_b"};
    for (size_t i = 0; i < sizeof balanced / sizeof *balanced; i++)
        if (!strcmp(name, balanced[i]))
            return false;
    return zinf_isa() >= ZINF_ISA_AVX512 || gradient_bound(name) > 1e-5;
}

/* Parts of several chunks are held against chunks of that length without parts, others against
 * whole sequences. false: one of them is refused. */
static bool same_gradients(struct case_of *c, const char *name)
{
    char whole[600], cut[600], chunks[600];
    double loss, of_whole;
    c->chunk = c->parts = 0;
    if (!gradients_of(c, in_work(whole, "whole.safetensors"), &of_whole))
        return false;
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const bool both = cuts[i].chunk && cuts[i].parts;
        c->chunk = cuts[i].chunk;
        c->parts = 0;
        if (both && !gradients_of(c, in_work(chunks, "chunks.safetensors"), &loss))
            return false;
        c->parts = cuts[i].parts;
        if (!gradients_of(c, in_work(cut, "cut.safetensors"), &loss))
            return false;
        double worst = compare_files(cut, both ? chunks : whole);
        CHECKF(fabs(loss / of_whole - 1) < 1e-6, "%s by %d, %d parts: loss %.9g, not %.9g", name,
               c->chunk, c->parts, loss, of_whole);
        CHECKF(!keeps_bits(name) || loss == of_whole, "%s by %d, %d parts: loss %.17g, not %.17g",
               name, c->chunk, c->parts, loss, of_whole);
        CHECKF(worst < 1e-5, "%s by %d, %d parts: worst gradient %g", name, c->chunk, c->parts,
               worst);
    }
    return true;
}

/* Parts have neighbouring places, and as many chunks from the front as from the end. */
static void test_places_of_chunks(void)
{
    static const int64_t first[] = {0, 1, 10, 11, 2, 3, 8, 9, 4, 5, 6, 7};
    for (int64_t parts = 2; parts <= 64; parts *= 2)
        for (int64_t n = 2 * parts; n <= 8 * parts; n += 2 * parts)
            for (int64_t place = 0; place < n; place++) {
                const int64_t chunk = zinf_chunk_at(place, n, parts), each = n / (2 * parts);
                const int64_t piece = chunk / each, part = place / (2 * each);
                CHECKF(zinf_chunk_place(chunk, n, parts) == place, "place %d of %d in %d parts",
                       (int)place, (int)n, (int)parts);
                CHECKF(piece == part || piece == 2 * parts - 1 - part, "chunk %d of %d is of %d",
                       (int)chunk, (int)n, (int)part);
            }
    for (int64_t place = 0; place < 12; place++)
        CHECK(zinf_chunk_at(place, 12, 3) == first[place]);
}

static void test_families_in_chunks(void)
{
    for (size_t i = 0; i < N_FOLDERS; i++) {
        struct case_of c;
        bool found = read_case(&c, folders[i]);
        c.batch = 1; /* of which a loss that balances experts is */
        CHECKF(!found || same_gradients(&c, folders[i]), "%s: %s", folders[i], zinf_error());
    }
}

/* Rows that see later ones, and those of another sequence: longer and shorter than their own. */
static void test_encoders_in_chunks(void)
{
    static const char *const names[] = {"t5_a",         "t5_b",         "t5_c",   "bart_a",
                                        "bart_b",       "blenderbot_a", "bert_m", "roberta_m",
                                        "deberta_v2_m", "deberta_v2_n"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        for (int shorter = 0; shorter < 2; shorter++) {
            struct case_of c;
            read_case(&c, names[i]);
            if (shorter && !c.source)
                continue;
            c.source = shorter ? 5 : c.source;
            CHECKF(same_gradients(&c, names[i]), "%s: %s", names[i], zinf_error());
        }
}

/* Two samples a step, for the models in which rounding is seen most. */
static void test_samples_in_chunks(void)
{
    static const char *const names[] = {"bamba_a", "falcon_h1_a", "olmo_hybrid_a", "olmo_hybrid_b",
                                        "qwen3_next_a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct case_of c;
        read_case(&c, names[i]);
        CHECKF(same_gradients(&c, names[i]), "%s: %s", names[i], zinf_error());
    }
}

static void test_documents_in_chunks(void)
{
    static const char *const names[] = {"gpt2_a",   "llama_b",      "mistral_a",    "qwen3_a",
                                        "falcon_a", "lfm2_a",       "qwen3_next_a", "olmo_hybrid_a",
                                        "bamba_a",  "nemotron_h_a", "falcon_h1_a",  "qwen3_5_a",
                                        "bert_m",   "deberta_v2_m", "deberta_v2_n"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct case_of c;
        read_case(&c, names[i]);
        c.packed = true;
        CHECKF(same_gradients(&c, names[i]), "%s: %s", names[i], zinf_error());
    }
}

/* Tensors in parts, and sequences in chunks or parts, against the same parts of tensors: with
 * experts, sinks, norms of each head and of all together, parallel blocks, latent attention, and
 * keys that layers share. */
static void test_tensor_parts_in_chunks(void)
{
    static const char *const names[] = {
        "gpt2_a",  "llama_b",  "mistral_a",     "mixtral_a",     "gpt_oss_a",     "qwen3_a",
        "olmo2_a", "falcon_a", "deepseek_v2_a", "deepseek_v3_a", "gemma4_text_c", "gemma4_text_f"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct case_of c;
        read_case(&c, names[i]);
        c.batch = 1;
        c.tensor_parts = 2;
        CHECKF(same_gradients(&c, names[i]), "%s: %s", names[i], zinf_error());
    }
}

/* Ten steps with dropout, and an evaluation behind them. */
static void ten_steps(struct case_of *c, double losses[11])
{
    struct zinf_config *config = case_config(c);
    struct zinf_trainer *t = open_case(c, config);
    CHECKF(t != NULL, "%s", zinf_error());
    for (int step = 0; t && step < 10; step++) {
        struct zinf_step_result r = {0};
        struct zinf_batch batch;
        draw(c, step, zinf_model_facts(zinf_trainer_model(t))->vocab, &batch);
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        losses[step] = r.loss;
    }
    struct zinf_batch batch;
    double sum = 0;
    uint64_t count = 1;
    if (t) {
        draw(c, 10, zinf_model_facts(zinf_trainer_model(t))->vocab, &batch);
        CHECKF(!zinf_trainer_loss(t, &batch, 1, &sum, &count), "%s", zinf_error());
    }
    losses[10] = sum / (double)count;
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

static void test_ten_steps_in_chunks(void)
{
    static const char *const names[] = {"gpt2_a",    "llama_b",      "mistral_a",
                                        "mixtral_c", "qwen3_next_a", "falcon_h1_a",
                                        "t5_a",      "bart_a",       "deberta_v2_m"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct case_of c;
        double whole[11] = {0}, cut[11] = {0};
        read_case(&c, names[i]);
        c.batch = 1; /* of which a loss that balances experts is */
        c.trains = true;
        c.extra = ", \"dropout\": 0.1, \"neftune_alpha\": 2";
        ten_steps(&c, whole);
        for (int parts = 0; parts <= 4; parts += 4) {
            c.chunk = parts ? 0 : 5;
            c.parts = parts;
            ten_steps(&c, cut);
            for (int k = 0; k < 11; k++)
                CHECKF(fabs(cut[k] / whole[k] - 1) < 1e-4, "%s, step %d: %.9g, not %.9g", names[i],
                       k, cut[k], whole[k]);
        }
    }
}

/* Of an encoder-decoder, of a decoder with tables of layers, and of an encoder with a convolution,
 * wherever values between layers are and whatever is made again. */
static void check_values(const char *name)
{
    static const char *const extras[] = {
        ", \"dropout\": 0.1, \"activation_checkpointing\": \"always\"",
        ", \"dropout\": 0.1, \"activation_checkpointing\": \"never\"",
        (", \"dropout\": 0.1, \"activation_checkpointing\": \"always\", "
         "\"activation_device\": \"cpu\""),
        (", \"dropout\": 0.1, \"activation_checkpointing\": \"never\", "
         "\"activation_device\": \"cpu\""),
    };
    double losses[2][11];
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        struct case_of c;
        read_case(&c, name);
        c.trains = true;
        c.chunk = 5;
        c.extra = extras[i];
        ten_steps(&c, losses[i > 0]);
        for (int k = 0; i && k < 11; k++)
            CHECKF(losses[1][k] == losses[0][k], "%s%s, step %d: %.17g, not %.17g", name, extras[i],
                   k, losses[1][k], losses[0][k]);
    }
}

static void test_values_give_the_same_bits(void)
{
    check_values("t5_a");
    check_values("gemma4_text_d");
    check_values("deberta_v2_m");
}

/* ---- placements ---- */

static const char *const places[] = {"none", "cpu", "nvme"};

static void check_placements(const char *precision, const char *extra)
{
    struct setting s = {.param = "none",
                        .state = "none",
                        .accumulation = 2,
                        .look_ahead = "0",
                        .clip = 0.5,
                        .precision = precision,
                        .extra = extra};
    struct outcome reference, other;
    run(&s, "reference", &reference);
    for (int param = 0; param < 3; param++)
        for (int state = 0; state < 3; state++) {
            char what[100];
            s.param = places[param];
            s.state = places[state];
            s.look_ahead = state ? "2" : "0";
            snprintf(what, sizeof what, "param %s, optimizer %s", s.param, s.state);
            run(&s, "other", &other);
            check_same(&reference, &other, what);
        }
}

static void test_placements_give_the_same_bits(void)
{
    check_placements(NULL, ", \"sequence_chunk\": 6, \"dropout\": 0.1");
    check_placements(bf16, ", \"sequence_chunk\": 6");
}

/* Of a model that keeps all, or recomputes all; and block inputs anywhere. */
static void test_activations_give_the_same_bits(void)
{
    static const char *const extras[] = {
        ", \"sequence_chunk\": 6, \"activation_checkpointing\": \"never\"",
        ", \"sequence_chunk\": 6, \"activation_checkpointing\": \"always\"",
        ", \"sequence_chunk\": 6, \"activation_device\": \"cpu\"",
        ", \"sequence_chunk\": 6, \"activation_device\": \"nvme\"",
        (", \"sequence_chunk\": 6, \"activation_device\": \"nvme\", "
         "\"activation_checkpointing\": \"always\""),
    };
    struct setting s = {
        .param = "nvme", .state = "nvme", .accumulation = 3, .clip = 0.5, .extra = extras[0]};
    struct outcome reference, other;
    run(&s, "reference", &reference);
    for (size_t i = 1; i < sizeof extras / sizeof *extras; i++) {
        s.extra = extras[i];
        run(&s, "other", &other);
        check_same(&reference, &other, extras[i]);
    }
}

/* What several visits add to, such as the tiles of a table or experts, leaves its slot between two
 * of them where there are more micro-batches than slots, in chunks or not. */
static void check_visits(int accumulation, const char *extra)
{
    struct setting s = {
        .param = "nvme", .state = "nvme", .accumulation = accumulation, .clip = 0.5};
    struct outcome reference, other;
    char text[200];
    for (int i = 0; i < 3; i++) {
        snprintf(text, sizeof text, "%s, \"activation_device\": \"%s\"", extra, places[i]);
        s.extra = text;
        run(&s, i ? "other" : "reference", i ? &other : &reference);
        if (i)
            check_same(&reference, &other, text);
    }
}

static void test_visits_of_values_that_leave(void)
{
    const struct trainings before = trainings;
    trainings.shape.vocab = 200;
    make_model(model, "tiles", &trainings.shape, 11);
    check_visits(3, ", \"sequence_chunk\": 2");
    trainings = before;
    trainings.batch = 1;
    trainings.seq = 8;
    snprintf(model, sizeof model, "%s/tests/fixtures/mixtral_a", getenv("SRCDIR"));
    check_visits(24, ", \"gradient_sum\": \"tree\"");
    check_visits(24, ", \"sequence_chunk\": 3");
    trainings = before;
    in_work(model, "model");
}

/* Of a step with very many operations one program is at hand while a schedule is chosen: whichever
 * it is, and however often it is chosen again. */
static void test_schedules_of_many_operations(void)
{
    static const char *const wanted[] = {"prefetch", "update-in-forward", "update-in-backward"};
    const struct trainings before = trainings;
    struct setting s = {.accumulation = 20,
                        .clip = 0.5,
                        .extra = ", \"sequence_chunk\": 1",
                        .changes_schedule = true};
    struct outcome reference, other;
    trainings.steps = 4;
    run(&s, "reference", &reference);
    s.changes_schedule = false;
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        s.schedule = wanted[i];
        run(&s, "other", &other);
        check_same(&reference, &other, wanted[i]);
    }
    trainings = before;
}

/* Adapters above a frozen model, and above one in 4 bits: with dropout in front of them,
 * against the sequence in one piece, and with their base and its activations anywhere. */
static void test_adapters_in_chunks(void)
{
    static const char *const extras[] = {
        ", \"dropout\": 0.1, \"adapter\": {\"r\": 4, \"lora_dropout\": 0.25}",
        ", \"adapter\": {\"r\": 4, \"lora_dropout\": 0.25}, \"quantize\": \"nf4\"",
    };
    char text[300];
    for (size_t i = 0; i < sizeof extras / sizeof *extras; i++) {
        struct case_of c = {.seq = trainings.seq, .batch = 2, .trains = true, .extra = extras[i]};
        struct setting s = {.accumulation = 2, .clip = 0.5, .extra = text};
        struct outcome reference, other;
        double whole[11] = {0}, cut[11] = {0};
        memcpy(c.model, model, sizeof c.model);
        ten_steps(&c, whole);
        c.chunk = 5;
        ten_steps(&c, cut);
        for (int k = 0; k < 11; k++)
            CHECKF(fabs(cut[k] / whole[k] - 1) < 1e-4, "%s, step %d: %.9g, not %.9g", extras[i], k,
                   cut[k], whole[k]);
        for (int k = 0; k < 3; k++) {
            s.param = s.state = places[k];
            snprintf(text, sizeof text, "%s, \"sequence_chunk\": 6, \"activation_device\": \"%s\"",
                     extras[i], places[k]);
            run(&s, k ? "other" : "reference", k ? &other : &reference);
            if (k)
                check_same(&reference, &other, text);
        }
    }
}

/* A drive that is short and late changes nothing; what it has wrong is found. */
static void check_drive(struct setting s, const struct outcome *reference)
{
    static const struct zinf_aio_faults slow = {
        .seed = 3, .short_ppm = 200000, .delay_ppm = 100000, .delay_us = 200, .reorder = true};
    static const struct zinf_aio_faults wrong = {.seed = 3, .flip_ppm = 100000};
    struct outcome other;
    s.faults = &slow;
    run(&s, "other", &other);
    check_same(reference, &other, "a slow drive");
    s.faults = &wrong;
    s.may_fail = true;
    run(&s, "other", &other);
    CHECKF(other.failed && strstr(zinf_error(), "checksum"), "%s", zinf_error());
}

/* Keys, values and their gradients come and go, and states; windows leave some of them out. */
static void check_streams(const char *extra)
{
    static const char *const devices[] = {"cpu", "nvme"};
    struct setting s = {.param = "nvme", .state = "nvme", .accumulation = 2, .clip = 0.5};
    struct outcome reference, other;
    char text[200];
    s.extra = extra;
    run(&s, "reference", &reference);
    for (int i = 0; i < 2; i++) {
        bool streams = false;
        s.look_ahead = "0";
        s.device_memory = 0;
        snprintf(text, sizeof text, "%s, \"activation_device\": \"%s\"", extra, devices[i]);
        s.extra = text;
        s.device_memory = least_memory(s, reference.device_bytes, &streams);
        s.piece_ops = i ? 30 : 0; /* programs in pieces, too */
        CHECKF(streams, "%s: %llu bytes", text, (unsigned long long)s.device_memory);
        run(&s, "other", &other);
        CHECK(other.device_bytes <= s.device_memory);
        check_same(&reference, &other, text);
        check_drive(s, &reference);
    }
}

static void test_streams_give_the_same_bits(void)
{
    check_streams(", \"sequence_chunk\": 2, \"dropout\": 0.1");
    check_streams(", \"sequence_chunk\": 2, \"tensor_parts\": 2");
    check_streams(", \"sequence_chunk\": 1, \"context_parts\": 4, \"dropout\": 0.1");
    snprintf(model, sizeof model, "%s/tests/fixtures/mistral_a", getenv("SRCDIR"));
    check_streams(", \"sequence_chunk\": 1");
    snprintf(model, sizeof model, "%s/tests/fixtures/qwen3_next_a", getenv("SRCDIR"));
    check_streams(", \"sequence_chunk\": 1");
    snprintf(model, sizeof model, "%s/tests/fixtures/falcon_h1_a", getenv("SRCDIR"));
    check_streams(", \"sequence_chunk\": 2");
    snprintf(model, sizeof model, "%s/tests/fixtures/deepseek_v2_a", getenv("SRCDIR"));
    check_streams(", \"sequence_chunk\": 1, \"tensor_parts\": 2");
    in_work(model, "model");
}

/* What shards make beside keys and values: gradients of sinks, and of norms of all heads. */
static void test_streams_of_shards(void)
{
    static const char *const names[] = {"gpt_oss_a", "olmo2_a"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct setting s = {.param = "cpu",
                            .state = "cpu",
                            .clip = 0.5,
                            .look_ahead = "0",
                            .extra = ", \"sequence_chunk\": 2, \"tensor_parts\": 2, "
                                     "\"activation_device\": \"cpu\""};
        struct outcome reference, other;
        bool streams = false;
        snprintf(model, sizeof model, "%s/tests/fixtures/%s", getenv("SRCDIR"), names[i]);
        run(&s, "reference", &reference);
        s.device_memory = least_memory(s, reference.device_bytes, &streams);
        s.piece_ops = i ? 30 : 0; /* programs in pieces, too */
        CHECKF(streams, "%s: %llu bytes", names[i], (unsigned long long)s.device_memory);
        run(&s, "other", &other);
        check_same(&reference, &other, names[i]);
    }
    in_work(model, "model");
}

int main(void)
{
    begin_trainings("chunks", &(struct trainings){.shape = {.arch = "llama",
                                                            .layers = 3,
                                                            .hidden = 32,
                                                            .heads = 4,
                                                            .vocab = 61,
                                                            .context = 32},
                                                  .steps = 3,
                                                  .seq = 16,
                                                  .batch = 2,
                                                  .sub_group = 4096});
    TAP_RUN(test_places_of_chunks);
    TAP_RUN(test_encoders_in_chunks);
    TAP_RUN(test_families_in_chunks);
    TAP_RUN(test_samples_in_chunks);
    TAP_RUN(test_documents_in_chunks);
    TAP_RUN(test_tensor_parts_in_chunks);
    TAP_RUN(test_ten_steps_in_chunks);
    TAP_RUN(test_values_give_the_same_bits);
    TAP_RUN(test_placements_give_the_same_bits);
    TAP_RUN(test_activations_give_the_same_bits);
    TAP_RUN(test_visits_of_values_that_leave);
    TAP_RUN(test_schedules_of_many_operations);
    TAP_RUN(test_adapters_in_chunks);
    TAP_RUN(test_streams_give_the_same_bits);
    TAP_RUN(test_streams_of_shards);
    remove_work();
    return tap_done();
}

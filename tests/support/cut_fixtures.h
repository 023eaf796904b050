/*
 * cut_fixtures: models of every kind with samples that can be cut short, with padding up to the
 * length that they had or without.
 */
#ifndef ZINF_CUT_FIXTURES_H
#define ZINF_CUT_FIXTURES_H

#include "fixture_inputs.h"

/* Positions by table, by rotation (linear, of long sequences), by slopes and by distance; windows,
 * experts, classes of the first and the last token, sources, pairs. */
static const char *const decoders[] = {"gpt2_a",     "llama_b",  "llama_c",   "mistral_a",
                                       "bloom_a",    "gemma2_a", "opt_a",     "falcon_a",
                                       "baichuan_b", "phi3_b",   "mixtral_a", "qwen2_moe_a"};
static const char *const others[] = {"t5_a",      "bart_a",       "blenderbot_a", "bert_b",
                                     "roberta_a", "deberta_v2_a", "deberta_v2_e", "deberta_v2_h",
                                     "gpt2_h",    "llama_f",      "pair_a",       "pair_c"};
#define COUNT(list) (sizeof(list) / sizeof *(list))

enum { VOCAB = 61, DECODER_ROWS = 16, DECODER_BATCH = 2, MOST_SAMPLES = 16, STORE = 1 << 12 };

/* Rows that samples are cut to; 0: all. */
struct lengths {
    int64_t seq, source;
};

static inline int64_t *length_on(struct lengths *l, enum zinf_rows_of rows_of)
{
    return rows_of == ZINF_ROWS_OF_SOURCE ? &l->source : &l->seq;
}

/* A fixture of a decoder has no samples of its own in its folder: these are random ones. */
static inline void open_decoder(struct fixture *f, const char *name)
{
    const int n = DECODER_ROWS * MOST_SAMPLES;
    struct setting s = setting_of(NULL, NULL);
    memset(f, 0, sizeof *f);
    trainings.batch = DECODER_BATCH;
    f->config = configure(&s);
    f->config->dropout = 0;
    f->seq = DECODER_ROWS;
    f->batch = DECODER_BATCH;
    f->accumulation = s.accumulation;
    snprintf(f->model, sizeof f->model, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
    for (int k = 0; k < N_KINDS; k++) {
        if (kinds[k].input != ZINF_INPUT_IDS && kinds[k].input != ZINF_INPUT_TARGETS)
            continue;
        f->inputs[k] = calloc((size_t)n, sizeof(int32_t));
        for (int i = 0; i < n; i++) {
            uint32_t counter[4] = {(uint32_t)i, (uint32_t)k, 0, 0}, bits[4];
            zinf_philox(counter, 21, bits);
            f->inputs[k][i] = (int32_t)(bits[0] % VOCAB);
        }
    }
}

static inline bool is_decoder(const char *name)
{
    for (size_t i = 0; i < COUNT(decoders); i++)
        if (!strcmp(decoders[i], name))
            return true;
    return false;
}

static inline void open_any(struct fixture *f, const char *name)
{
    if (is_decoder(name))
        open_decoder(f, name);
    else
        open_fixture(f, name);
}

static inline void each_model(void (*check)(const char *name))
{
    for (size_t i = 0; i < COUNT(decoders); i++)
        check(decoders[i]);
    for (size_t i = 0; i < COUNT(others); i++)
        check(others[i]);
}

/* What stands behind a sample: another one than what a batch is filled up with. */
static inline int32_t padding_of(enum zinf_input input)
{
    return input == ZINF_INPUT_TARGETS ? -1 : input == ZINF_INPUT_IDS ? 3 : 0;
}

/* Samples from the first one on, cut; with padding up to the fixture's length, or without. */
static inline struct zinf_batch cut_batch(const struct fixture *f, int64_t first,
                                          struct lengths cut, bool padded)
{
    static int32_t store[N_KINDS][STORE];
    struct lengths whole = {f->seq, f->source};
    struct zinf_batch batch = {.seq_len = padded ? 0 : cut.seq,
                               .source_len = padded ? 0 : cut.source};
    const int64_t samples = f->batch * f->accumulation;
    for (int k = 0; k < N_KINDS; k++) {
        const enum zinf_rows_of rows_of = kinds[k].rows_of;
        const bool long_as_one = rows_of == ZINF_ROWS_OF_SAMPLE;
        const int64_t all = long_as_one ? 1 : *length_on(&whole, rows_of),
                      asked = *length_on(&cut, rows_of);
        const int64_t kept = long_as_one || !asked ? all : asked, n = padded ? all : kept;
        for (int64_t i = 0; f->inputs[k] && i < samples * n; i++)
            store[k][i] = i % n < kept ? f->inputs[k][(first + i / n) * all + i % n]
                                       : padding_of(kinds[k].input);
        if (f->inputs[k])
            batch.inputs[kinds[k].input] = store[k];
    }
    return batch;
}

#endif

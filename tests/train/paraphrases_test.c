/*
 * paraphrases: a small DeBERTa from fresh weights learns which pairs of sentences say the same. A
 * sentence is a few different things in some order, and there are two words for each thing; its
 * paraphrase names the same things, from another one on and in any of their words, and what is none
 * has one thing replaced. So neither words nor places of one sentence alone tell anything.
 */
#include "train_support.h"

enum {
    THINGS = 8,
    CLS = 1,
    SEP = 2,
    FIRST_WORD = 3,
    VOCAB = FIRST_WORD + 2 * THINGS,
    LONGEST = 4, /* words of a sentence */
    SEQ = 2 * LONGEST + 3,
    BATCH = 32,
    MOST_STEPS = 2000,
    HELD_OUT = 500,
};

struct samples {
    int32_t ids[BATCH * SEQ], segments[BATCH * SEQ], labels[BATCH];
};

static uint32_t draw(uint64_t *state, uint32_t below)
{
    *state = *state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*state >> 33) % below;
}

static int32_t word_for(uint64_t *state, int32_t thing)
{
    return FIRST_WORD + 2 * thing + (int32_t)draw(state, 2);
}

/* Sample i of a stream of them; its number decides all of it. */
static void make_sample(uint64_t number, int32_t *ids, int32_t *segments, int32_t *label)
{
    uint64_t state = number * 0x9e3779b97f4a7c15u + 1;
    int32_t things[THINGS], n = 3 + (int32_t)draw(&state, LONGEST - 2), at = 0;
    for (int32_t i = 0; i < THINGS; i++)
        things[i] = i;
    for (uint32_t i = 0; i < THINGS; i++) { /* those that are not of the sentence come behind it */
        const uint32_t k = i + draw(&state, THINGS - i);
        const int32_t thing = things[k];
        things[k] = things[i];
        things[i] = thing;
    }
    memset(ids, 0, SEQ * sizeof *ids);
    memset(segments, 0, SEQ * sizeof *segments);
    ids[at++] = CLS;
    for (int32_t i = 0; i < n; i++)
        ids[at++] = word_for(&state, things[i]);
    ids[at++] = SEP;
    *label = (int32_t)draw(&state, 2);
    if (!*label)
        things[draw(&state, (uint32_t)n)] = things[n];
    const int32_t first = (int32_t)draw(&state, (uint32_t)n);
    for (int32_t i = 0; i < n; i++)
        ids[at++] = word_for(&state, things[(first + i) % n]);
    ids[at++] = SEP;
    for (int32_t i = 0; i < at; i++)
        segments[i] = 1;
}

static struct zinf_batch make_batch(struct samples *s, uint64_t first)
{
    for (int i = 0; i < BATCH; i++)
        make_sample(first + (uint64_t)i, s->ids + i * SEQ, s->segments + i * SEQ, &s->labels[i]);
    return (struct zinf_batch){.inputs = {[ZINF_INPUT_IDS] = s->ids,
                                          [ZINF_INPUT_SEGMENTS] = s->segments,
                                          [ZINF_INPUT_LABELS] = s->labels}};
}

/* Fresh weights that are larger than for the published widths. */
static void make_fresh(char folder[600])
{
    const struct zinf_model_shape shape = {.arch = "deberta-v2",
                                           .size = "v3-base",
                                           .layers = 2,
                                           .hidden = 48,
                                           .heads = 4,
                                           .vocab = VOCAB,
                                           .context = 32};
    cJSON *config = NULL;
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    cJSON_SetNumberValue(cJSON_GetObjectItem(config, "initializer_range"), 0.15);
    CHECKF(!zinf_model_write_new(config, ZINF_DTYPE_F32, 7, in_work(folder, "fresh")), "%s",
           zinf_error());
    cJSON_Delete(config);
}

static struct zinf_config *configure(void)
{
    static const char text[] =
        "{\"train_micro_batch_size_per_gpu\": 32, \"gradient_clipping\": 1.0, \"optimizer\": "
        "{\"type\": \"AdamW\", \"params\": {\"lr\": 1e-3}}, \"scheduler\": {\"type\": "
        "\"WarmupLR\", \"params\": {\"warmup_max_lr\": 1e-3, \"warmup_num_steps\": 50}}, "
        "\"zinf\": {\"threads\": 1, \"dropout\": 0}}";
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    return config;
}

static struct zinf_trainer *open_model(const char *folder, const struct zinf_config *config,
                                       enum zinf_trainer_mode mode)
{
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {.mode = mode,
                                           .model_path = folder,
                                           .config = config,
                                           .seq_len = SEQ,
                                           .device = ZINF_DEVICE_HOST};
    CHECKF(!zinf_trainer_create(&t, &options), "%s", zinf_error());
    return t;
}

/* Trains until a mean over 50 steps is low; the folder of what came out. */
static void train(const char *from, const char *to, const struct zinf_config *config)
{
    struct zinf_trainer *t = open_model(from, config, ZINF_TRAINER_TRAIN);
    struct samples s;
    double mean = 1;
    int step = 0;
    for (; t && step < MOST_STEPS && mean > 0.02; step++) {
        const struct zinf_batch batch = make_batch(&s, (uint64_t)step * BATCH);
        struct zinf_step_result r = {0};
        CHECKF(!zinf_trainer_step(t, &batch, &r), "%s", zinf_error());
        mean += (r.loss - mean) / 50;
    }
    printf("# a loss of %.3f after %d steps\n", mean, step);
    CHECKF(t && !zinf_trainer_save(t, to), "%s", zinf_error());
    zinf_trainer_destroy(t);
}

static void test_paraphrases_are_told_from_others(void)
{
    struct zinf_config *config = configure();
    char from[600], to[600];
    struct samples s;
    int right = 0;
    make_fresh(from);
    train(from, in_work(to, "trained"), config);
    struct zinf_trainer *t = open_model(to, config, ZINF_TRAINER_FORWARD);
    for (int i = 0; t && i < HELD_OUT; i++) {
        const struct zinf_batch batch = make_batch(&s, UINT64_C(1) << 40 | (uint64_t)i);
        float logits[2];
        CHECKF(!zinf_trainer_sample_logits(t, &batch, SEQ, logits), "%s", zinf_error());
        right += (logits[1] > logits[0]) == s.labels[0];
    }
    printf("# %d of %d held-out pairs\n", right, HELD_OUT);
    CHECKF(right >= HELD_OUT * 95 / 100, "%d of %d", right, HELD_OUT);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
}

int main(void)
{
    make_work("paraphrases");
    zinf_log_set_level(ZINF_LOG_WARN);
    TAP_RUN(test_paraphrases_are_told_from_others);
    remove_work();
    return tap_done();
}

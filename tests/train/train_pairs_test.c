/*
 * Encoder-decoders and classifiers against PyTorch, on padded samples of several lengths: loss,
 * every gradient, logits, and the weights after ten steps with accumulation and clipping, as
 * tests/fixtures/make_pairs.py and make_classifiers.py computed them. And with dropout on the same
 * bits wherever things live, and wherever a sample's padding ends.
 */
#include "fixture_inputs.h"

static const char *const pairs[] = {
    "t5_a",         "t5_b",         "t5_c",         "bart_a",       "bart_b",       "blenderbot_a",
    "bert_a",       "bert_b",       "roberta_a",    "deberta_v2_a", "deberta_v2_b", "deberta_v2_c",
    "deberta_v2_d", "deberta_v2_e", "deberta_v2_f", "deberta_v2_g", "deberta_v2_h", "bert_c",
    "roberta_b",    "gpt2_h",       "gpt2_i",       "llama_f",      "mistral_b",    "qwen2_b",
    "gptj_c",       "gemma_b",      "peft_s",       "bert_m",       "roberta_m",    "deberta_v2_m",
    "deberta_v2_n", "bert_e",       "deberta_v2_x", "qwen3_e"};
enum { N_PAIRS = sizeof pairs / sizeof *pairs };

/* ---- against PyTorch ---- */

static void test_loss_and_gradients(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_gradients(pairs[i]);
}

/* With tensors in parts: pairs, encoders with heads for classes, for masked tokens and without one,
 * decoders that tell classes apart and that embed. */
static void test_in_parts(void)
{
    static const char *const cut[] = {"t5_b",   "bart_a",    "bart_b",    "blenderbot_a",
                                      "bert_a", "bert_b",    "bert_c",    "bert_m",
                                      "bert_e", "roberta_a", "roberta_m", "deberta_v2_f",
                                      "gpt2_h", "mistral_b", "gemma_b",   "qwen3_e"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        check_gradients_in(cut[i], 2);
}

static void check_logits(const char *name)
{
    struct fixture f;
    float logits[256];
    const cJSON *pick;
    open_fixture(&f, name);
    struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_FORWARD);
    cJSON_ArrayForEach(pick, cJSON_GetObjectItem(f.expected, "logits"))
    {
        struct zinf_batch batch = batch_at(&f, (int64_t)number(pick, "sample"));
        const cJSON *wanted = cJSON_GetObjectItem(pick, "values");
        int64_t n = (int64_t)number(pick, "position") + 1;
        CHECKF(t && !zinf_trainer_sample_logits(t, &batch, n, logits), "%s", zinf_error());
        for (int i = 0; i < cJSON_GetArraySize(wanted); i++)
            CHECKF(fabs((double)logits[i] - cJSON_GetArrayItem(wanted, i)->valuedouble) < 2e-5,
                   "%s: logit %d is %g", name, i, (double)logits[i]);
    }
    zinf_trainer_destroy(t);
    close_fixture(&f);
}

static void test_logits(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_logits(pairs[i]);
}

static void test_embeddings(void)
{
    static const char *const names[] = {"bert_e", "deberta_v2_x", "qwen3_e"};
    for (int i = 0; i < 3; i++) {
        struct fixture f;
        float *made = calloc(64 * 24, sizeof *made);
        open_fixture(&f, names[i]);
        struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_FORWARD);
        struct zinf_batch batch = batch_at(&f, 0);
        const cJSON *wanted = cJSON_GetObjectItem(f.expected, "embeddings"), *item;
        double loss = 0;
        uint64_t n = 0;
        int k = 0;
        CHECKF(t && !zinf_trainer_embed(t, &batch, f.batch, made), "%s", zinf_error());
        cJSON_ArrayForEach(item, wanted)
        {
            CHECKF(fabs((double)made[k] - item->valuedouble) < 2e-5, "%s: number %d is %g",
                   names[i], k, (double)made[k]);
            k++;
        }
        CHECKF(t && !zinf_trainer_loss(t, &batch, f.batch, &loss, &n), "%s", zinf_error());
        CHECKF((int64_t)n == f.batch / f.together &&
                   near(loss / (double)n, number(f.expected, "loss"), 1e-5),
               "%s: %.9g over %llu", names[i], loss, (unsigned long long)n);
        zinf_trainer_destroy(t);
        close_fixture(&f);
        free(made);
    }
}

static void test_ten_steps(void)
{
    for (int i = 0; i < N_PAIRS; i++)
        check_ten_steps(pairs[i]);
}

/* ---- bits ---- */

/* Two steps with dropout. */
static void run_pair(const struct fixture *f, const struct setting *s, const char *name,
                     struct outcome *out)
{
    struct zinf_config *config = configure(s);
    config->dropout = 0.2;
    run_fixture(f, s, config, name, out);
}

static void check_places(const char *name, const char *precision)
{
    struct setting s = setting_of(NULL, precision);
    struct outcome reference, other;
    struct fixture f;
    char what[256];
    open_fixture(&f, name);
    run_pair(&f, &s, "reference", &reference);
    for (int i = 0; i < 9; i++) {
        s.param = places[i / 3];
        s.state = places[i % 3];
        snprintf(what, sizeof what, "%s %s: parameters %s, state %s", name, word(precision, ""),
                 s.param, s.state);
        run_pair(&f, &s, "other", &other);
        check_same(&reference, &other, what);
    }
    close_fixture(&f);
}

static void test_placements(void)
{
    for (int i = 0; i < N_PAIRS; i++) {
        check_places(pairs[i], NULL);
        check_places(pairs[i], bf16);
    }
}

static void test_padding_changes_no_bit(void)
{
    for (int i = 0; i < N_PAIRS; i++) {
        struct fixture f;
        double loss[2], norm[2];
        open_fixture(&f, pairs[i]);
        struct zinf_trainer *t = open_pair(&f, f.config, ZINF_TRAINER_GRADIENTS);
        struct zinf_batch batch = batch_at(&f, 0);
        for (int with = 0; t && with < 2; with++) {
            for (int64_t at = 0; f.inputs[0] && at < f.batch * f.source; at++)
                f.inputs[0][at] = f.inputs[1][at] ? f.inputs[0][at] : 3 + with;
            for (int64_t at = 0; at < f.batch * f.seq; at++)
                f.inputs[2][at] = f.inputs[3][at] ? f.inputs[2][at] : 5 - with;
            CHECKF(!zinf_trainer_gradients(t, &batch, &loss[with], &norm[with]), "%s",
                   zinf_error());
        }
        CHECKF(loss[0] == loss[1] && norm[0] == norm[1], "%s: padding changes the bits", pairs[i]);
        zinf_trainer_destroy(t);
        close_fixture(&f);
    }
}

int main(void)
{
    begin_fixtures("pairs");
    trainings.batch = 3;
    trainings.steps = 2;
    TAP_RUN(test_loss_and_gradients);
    TAP_RUN(test_in_parts);
    TAP_RUN(test_logits);
    TAP_RUN(test_embeddings);
    TAP_RUN(test_ten_steps);
    TAP_RUN(test_placements);
    TAP_RUN(test_padding_changes_no_bit);
    remove_work();
    return tap_done();
}

/*
 * Matrices that are cut into parts (zinf.tensor_parts): against whole ones, for models of every
 * family; and the bits of one rank by ranks that share them, at stages of ZeRO and in places.
 */
#include "fixture_cases.h"
#include "fixture_folders.h"
#include "trained_ranks.h"

/* ---- close to whole matrices ---- */

/* What is not cut yet is refused by its name, and nothing else is. */
static bool is_expected(const char *refusal)
{
    static const char *const known[] = {
        "is not a multiple of it",
        "can neither be dealt to the parts",
        "relative positions",
    };
    bool expected = false;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        expected |= strstr(refusal, known[i]) != NULL;
    return expected;
}

/* Of gradients. A factor of experts whose sum is normalised has what is left of parts that cancel:
 * whole matrices differ by 1.6e-5 there between two sets of instructions (ZINF_CPU). A layer's
 * output is a sum of parts, which rounds otherwise than that of whole matrices: bamba_a, of which
 * gradient_bound() says how far one such rounding moves it, is up to 5.1e-5 off in 4 parts. */
static double bound_of(const char *name)
{
    if (!strcmp(name, "bamba_a"))
        return 6e-5;
    return strcmp(name, "gemma4_text_f") ? gradient_bound(name) : 2e-5;
}

/* false: it is refused. */
static bool is_close(struct case_of *c, const char *name, int parts)
{
    char whole[600], cut[600];
    double loss, of_whole;
    c->tensor_parts = 0;
    if (!gradients_of(c, in_work(whole, "whole.safetensors"), &of_whole))
        return false;
    c->tensor_parts = parts;
    if (!gradients_of(c, in_work(cut, "cut.safetensors"), &loss)) {
        CHECKF(is_expected(zinf_error()), "%s is refused: %s", name, zinf_error());
        return false;
    }
    const double worst = compare_files(cut, whole);
    CHECKF(fabs(loss / of_whole - 1) < 1e-6, "%s in %d parts: loss %.9g, not %.9g", name, parts,
           loss, of_whole);
    CHECKF(worst < bound_of(name), "%s in %d parts: worst gradient %g", name, parts, worst);
    return true;
}

static void test_families_in_parts(void)
{
    int n_refused = 0;
    for (size_t i = 0; i < N_FOLDERS; i++) {
        struct case_of c;
        if (!read_case(&c, folders[i]))
            continue;
        bool cut = is_close(&c, folders[i], 2);
        if (cut)
            is_close(&c, folders[i], 4);
        else
            printf("# %s: %s\n", folders[i], zinf_error());
        n_refused += !cut;
    }
    printf("# %d of %d models are refused\n", n_refused, (int)N_FOLDERS);
    CHECK(n_refused < (int)N_FOLDERS / 2);
}

/* Gradients of adapters whose B is zero yet: those of B. */
static void test_adapters_in_parts(void)
{
    static const char *const adapted[] = {"llama_b", "gemma4_text_d", "gemma4_text_f", "bamba_a",
                                          "olmo_hybrid_b"};
    for (size_t i = 0; i < sizeof adapted / sizeof *adapted; i++) {
        struct case_of c;
        if (!read_case(&c, adapted[i]))
            continue;
        c.extra = ", \"adapter\": {\"r\": 2}";
        CHECKF(is_close(&c, adapted[i], 2), "%s: %s", adapted[i], zinf_error());
    }
}

/* ---- the same bits ---- */

/* A family's fixture: norms of heads and of whole rows, norms behind parts, sinks, biases of
 * experts whose gate and up take turns, weights of the rows of experts, parallel blocks with one
 * norm and with two, queries, keys and values by group, latent attention with and without a low
 * rank of queries, a head with a bias and one with rows of norm 1, an activation with trained
 * numbers, keys that are the values, that layers share and that parts share by twos and by fours,
 * tables of layers, experts beside a feed-forward part; recurrent mixers whose key heads are dealt
 * and shared, with gates by head, beside attention, with a norm over columns of several parts in
 * front of the gate and behind it, and a convolution alone. */
static const struct {
    const char *name;
    int parts;
    bool mixes; /* tensors that are no matrices lie among the parts of one: it is refused then */
} cut[] = {{"qwen3_a", 4, false},       {"gemma2_a", 2, false},      {"gemma3_text_a", 2, false},
           {"olmo2_a", 4, false},       {"gpt_oss_a", 4, false},     {"cohere_a", 2, false},
           {"falcon_b", 4, false},      {"falcon_a", 4, false},      {"qwen3_moe_a", 2, false},
           {"llama4_text_a", 2, true},  {"deepseek_v2_a", 4, false}, {"deepseek_v3_a", 2, false},
           {"gptj_a", 4, false},        {"baichuan_b", 2, false},    {"apertus_a", 4, false},
           {"gemma4_text_c", 4, false}, {"gemma4_text_d", 4, false}, {"gemma4_text_f", 2, true},
           {"qwen3_next_a", 4, false},  {"falcon_h1_c", 4, true},    {"nemotron_h_b", 4, true},
           {"bamba_a", 4, true},        {"lfm2_a", 2, true}};

static void share(struct setting s, int ranks, const struct outcome *one, const char *name)
{
    struct outcome out;
    char what[80], extra[400];
    snprintf(extra, sizeof extra, "%s, \"mesh\": {\"tensor\": %d}", s.extra, ranks);
    snprintf(what, sizeof what, "%s-%d", name, ranks);
    s.extra = extra;
    s.sharing = ranks;
    run_seats(&s, 1, (uint32_t)ranks, what, &out);
    check_same(one, &out, what);
}

static void share_model(const char *name, int parts, const char *more, const char *precision,
                        const char *optimizer)
{
    struct setting s = {.param = "cpu",
                        .state = "nvme",
                        .precision = precision,
                        .optimizer = optimizer,
                        .clip = 0.5,
                        .accumulation = 2};
    struct outcome one;
    char extra[300], of_one[80];
    snprintf(model, sizeof model, "%s/tests/fixtures/%s", getenv("SRCDIR"), name);
    snprintf(extra, sizeof extra,
             ", \"tensor_parts\": %d, \"gradient_sum\": \"tree\", \"dropout\": 0.1%s", parts, more);
    snprintf(of_one, sizeof of_one, "%s-1", name);
    s.extra = extra;
    run(&s, of_one, &one);
    share(s, 2, &one, name);
    s.param = s.state = "cpu";
    s.stage = 2;
    share(s, parts, &one, name);
}

static void test_ranks_share_parts(void)
{
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        share_model(cut[i].name, cut[i].parts, "", i % 2 ? bf16 : NULL, NULL);
}

/* Updates of whole matrices, each made by one of the ranks. */
static void test_ranks_share_updates(void)
{
    static const char *const optimizers[] = {
        "{\"type\": \"Muon\", \"params\": {\"lr\": 0.02, \"adam_lr\": 0.002}}",
        "{\"type\": \"NorMuon\", \"params\": {\"lr\": 0.002}}",
        "{\"type\": \"APOLLO\", \"params\": {\"lr\": 0.002, \"rank\": 4}}"};
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        if (!cut[i].mixes)
            share_model(cut[i].name, cut[i].parts, "", i % 2 ? NULL : bf16, optimizers[i % 3]);
}

/* Of matrices that are cut, and of a shared expert's, which all ranks have. */
static void test_ranks_share_adapters(void)
{
    static const char lora[] = ", \"adapter\": {\"r\": 2, \"lora_dropout\": 0.25}";
    static const char muon[] = "{\"type\": \"Muon\", \"params\": {\"lr\": 0.02}}";
    share_model("qwen2_moe_b", 2, lora, NULL, NULL);
    share_model("gemma4_text_d", 4, lora, NULL, NULL);
    share_model("llama_b", 2, lora, NULL, muon);
}

int main(void)
{
    begin_trainings("parts", &(struct trainings){.shape = {.arch = "llama",
                                                           .layers = 1,
                                                           .hidden = 32,
                                                           .heads = 4,
                                                           .vocab = 61,
                                                           .context = 32},
                                                 .steps = 3,
                                                 .seq = 8,
                                                 .batch = 2,
                                                 .sub_group = 1024});
    TAP_RUN(test_families_in_parts);
    TAP_RUN(test_adapters_in_parts);
    TAP_RUN(test_ranks_share_parts);
    TAP_RUN(test_ranks_share_updates);
    TAP_RUN(test_ranks_share_adapters);
    remove_work();
    return tap_done();
}

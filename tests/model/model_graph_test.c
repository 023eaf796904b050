/*
 * Models as graphs: tiles of the vocabulary, initialisation that does not depend on the cut, rotary
 * frequencies against values worked out by hand, and graphs that are wrong, each with the sentence
 * that says so.
 */
#include "model/build.h"
#include "model/tensors.h"
#include "model_texts.h"

/* ---- tiles ---- */

static void check_tiles(const struct zinf_graph *g, const struct zinf_stage *stage, uint32_t n,
                        int64_t vocab)
{
    uint64_t row = 0;
    for (uint32_t t = 0; t < n; t++) {
        const struct zinf_tensor *tile = &g->units[stage->sweep.at[t]].tensors[0];
        CHECK(tile->n_pieces == 1 && tile->pieces[0].rows.file_first == row);
        CHECK((int64_t)tile->rows <= g->row_cols && tile->elems == tile->rows * 64);
        row += tile->rows;
    }
    CHECKF(row == (uint64_t)vocab, "%llu rows of %lld", (unsigned long long)row, (long long)vocab);
}

static void test_tiles_cover_the_vocabulary(void)
{
    static const int64_t vocabularies[] = {2, 257, 4097, 50257, 1000003};
    for (int v = 0; v < 10; v++) {
        struct zinf_model_shape shape = {.arch = v % 2 ? "llama" : "gpt2",
                                         .layers = 1,
                                         .hidden = 64,
                                         .heads = 4,
                                         .vocab = vocabularies[v / 2],
                                         .context = 8};
        struct zinf_model *model = model_of(&shape);
        for (int joined = 0; joined < 2; joined++) {
            const struct zinf_graph *g = zinf_model_graph(model);
            const struct zinf_stage *head = &g->stages[g->n_stages - 1];
            uint32_t n = head->sweep.n;
            check_tiles(g, head, n, shape.vocab);
            check_tiles(g, &g->stages[0], n, shape.vocab);
            CHECK(g->stages[0].sweep.n == n + (v % 2 ? 0 : 1));
            CHECK(!joined || n == 1);
            CHECK(v % 2 == (head->sweep.at[0] != g->stages[0].sweep.at[0])); /* tied or own */
            CHECKF(!zinf_model_join_tiles(model), "%s", zinf_error());
        }
        zinf_model_close(model);
    }
}

/* ---- initialisation ---- */

static void check_moments(const struct zinf_tensor *tensor, const char *name, const float *values,
                          uint64_t n)
{
    double sum = 0, squares = 0, wanted = (double)tensor->init_std;
    for (uint64_t i = 0; i < n; i++) {
        sum += (double)values[i];
        squares += (double)values[i] * (double)values[i];
    }
    double mean = sum / (double)n, std = sqrt(squares / (double)n);
    if (tensor->init == ZINF_INIT_NORMAL)
        CHECKF(fabs(mean) < 5 * wanted / sqrt((double)n) &&
                   fabs(std / wanted - 1) < 5 / sqrt(2 * (double)n),
               "%s: mean %g, deviation %g", name, mean, std);
    else
        CHECKF(mean == (tensor->init == ZINF_INIT_ONE) && std == mean, "%s: mean %g", name, mean);
}

static void check_cut_free(const struct zinf_tensor *tensor, const struct zinf_piece *piece)
{
    uint64_t n = piece->shape[0] * (piece->rank == 2 ? piece->shape[1] : 1);
    float *whole = malloc(n * sizeof *whole), *parts = malloc(n * sizeof *parts);
    zinf_tensor_init_fill(tensor, piece, 3, 0, n, whole);
    for (uint64_t at = 0, cut = 1; at < n; at += cut, cut = cut * 3 % 1009 + 1) {
        if (cut > n - at)
            cut = n - at;
        zinf_tensor_init_fill(tensor, piece, 3, at, cut, parts + at);
    }
    CHECKF(!memcmp(whole, parts, n * sizeof *whole), "%s depends on the cut", piece->name);
    check_moments(tensor, piece->name, whole, n);
    free(whole);
    free(parts);
}

static void test_initialisation_is_cut_free(void)
{
    static const char *const families[] = {"gpt2", "qwen2"};
    for (int i = 0; i < 2; i++) {
        struct zinf_model *model = model_of(&(struct zinf_model_shape){.arch = families[i],
                                                                       .layers = 2,
                                                                       .hidden = 48,
                                                                       .heads = 4,
                                                                       .vocab = 301,
                                                                       .context = 17});
        const struct zinf_graph *g = zinf_model_graph(model);
        for (uint32_t u = 0; u < g->n_units; u++)
            for (uint32_t t = 0; t < g->units[u].n_tensors; t++)
                for (uint32_t p = 0; p < g->units[u].tensors[t].n_pieces; p++)
                    check_cut_free(&g->units[u].tensors[t], &g->units[u].tensors[t].pieces[p]);
        zinf_model_close(model);
    }
}

/* ---- rotary frequencies ---- */

static void check_frequencies(const char *text, int64_t seq, const struct frequency *list, int n,
                              double scale)
{
    struct zinf_model *model = model_from(text);
    float memory[ZINF_ROPE_MAX_PAIRS];
    CHECKF(model != NULL, "%s", zinf_error());
    if (!model)
        return;
    struct attention_spec a = attention_of(model);
    const float *inv = rope_frequencies(&a.rope, seq, memory);
    for (int i = 0; i < n; i++)
        CHECKF(fabs((double)inv[list[i].i] / list[i].inv - 1) < 2e-7, "pair %d: %.9g, not %.9g",
               list[i].i, (double)inv[list[i].i], list[i].inv);
    CHECKF(fabs((double)a.rope.scale - scale) < 1e-6, "scale %.9g", (double)a.rope.scale);
    zinf_model_close(model);
}

static void test_rotary_frequencies(void)
{
    static const struct frequency plain[] = {{0, 1}, {32, 0.01}, {48, 1e-3}, {63, 1.1547820e-4}};
    static const struct frequency half[] = {{0, 0.5}, {32, 0.005}};
    static const struct frequency bands[] = {
        {0, 1},
        {1, 0.81461723},
        {28, 0.003211446},
        {29, 0.0021665708},
        {30, 0.0013718936},
        {32, 0.00052484616},
        {35, 9.5562124e-05},
        {36, 7.7846553e-05},
        {63, 3.068926e-07},
    };
    check_frequencies("{" SMALL "\"rope_theta\": 1e4}", 8, plain, 4, 1);
    check_frequencies("{" SMALL "\"rope_theta\": 1e4, \"rope_scaling\": "
                      "{\"type\": \"linear\", \"factor\": 2}}",
                      8, half, 2, 1);
    check_frequencies("{" SMALL "\"max_position_embeddings\": 131072, \"rope_parameters\": "
                      "{\"rope_type\": \"llama3\", \"rope_theta\": 5e5, \"factor\": 8, "
                      "\"low_freq_factor\": 1, \"high_freq_factor\": 4, "
                      "\"original_max_position_embeddings\": 8192}}",
                      8, bands, 9, 1);
}

static void check_context(const char *text, int64_t context)
{
    struct zinf_model *model = model_from(text);
    CHECKF(model && zinf_model_facts(model)->context == context, "%lld, not %lld: %s",
           model ? (long long)zinf_model_facts(model)->context : 0, (long long)context, text);
    zinf_model_close(model);
}

/* A factor stretches what max_position_embeddings says, unless, as in Llama 3.2, it has the longer
 * length already. */
static void test_contexts_of_scaled_frequencies(void)
{
    check_context("{" SMALL "\"max_position_embeddings\": 4096, \"rope_scaling\": "
                  "{\"type\": \"linear\", \"factor\": 2}}",
                  8192);
    check_context("{" SMALL "\"max_position_embeddings\": 32768, \"rope_scaling\": "
                  "{\"type\": \"yarn\", \"factor\": 4, "
                  "\"original_max_position_embeddings\": 32768}}",
                  131072);
    check_context("{" SMALL "\"max_position_embeddings\": 131072, \"rope_scaling\": "
                  "{\"rope_type\": \"llama3\", \"factor\": 32, \"low_freq_factor\": 1, "
                  "\"high_freq_factor\": 4, \"original_max_position_embeddings\": 8192}}",
                  131072);
}

/* Up to pair 23 YaRN leaves frequencies alone; from 40 on it divides them by the factor. */
static void test_yarn_and_dynamic_frequencies(void)
{
    const struct frequency yarn[] = {
        {23, pow(1e6, -46.0 / 128)},
        {24, pow(1e6, -48.0 / 128) * (1 - 0.75 / 17)},
        {40, pow(1e6, -80.0 / 128) / 4},
        {63, pow(1e6, -126.0 / 128) / 4},
    };
    const double base = 1e4 * pow(3 * 4.0 - 2, 128.0 / 126); /* four times as long, factor 3 */
    const struct frequency grown[] = {
        {0, 1}, {1, pow(base, -2.0 / 128)}, {63, pow(base, -126.0 / 128)}};
    const struct frequency same[] = {{63, pow(1e4, -126.0 / 128)}};
    static const char dynamic[] =
        "{" SMALL "\"max_position_embeddings\": 16, \"rope_theta\": 1e4, \"rope_scaling\": "
        "{\"rope_type\": \"dynamic\", \"factor\": 3}}";
    check_frequencies("{" SMALL "\"rope_theta\": 1e6, \"rope_scaling\": {\"rope_type\": \"yarn\", "
                      "\"factor\": 4, \"original_max_position_embeddings\": 32768}}",
                      8, yarn, 4, 1.1386294);
    check_frequencies(dynamic, 64, grown, 3, 1);
    check_frequencies(dynamic, 16, same, 1, 1);
}

/* ---- graphs ---- */

static int no_pass(struct zinf_frame *f)
{
    (void)f;
    return 0;
}

static const struct zinf_stage_ops no_ops = {"none", .forward = no_pass, .backward = no_pass};

/* A graph of one stage with one unit of one tensor, where `what` goes wrong. */
static int build_wrong(int what, struct zinf_graph **out)
{
    struct zinf_graph *g = NULL;
    struct zinf_value in = {.name = "in", .kind = ZINF_VALUE_INPUT, .cols = 1};
    struct zinf_value loss = {.name = "loss", .kind = ZINF_VALUE_LOSS, .cols = 1};
    struct zinf_tensor tensor = {.rank = 2, .rows = 4, .cols = what == 1 ? 0 : 3};
    struct zinf_piece piece = {
        .name = "t", .rank = 2, .shape = {4, 3}, .rows = {.rows = what == 2 ? 3 : 4, .count = 1}};
    CHECK(!zinf_graph_create(&g));
    *out = g;
    uint32_t first = zinf_graph_add_unit(g, true, "first"), second = 0;
    if (what == 3)
        second = zinf_graph_add_unit(g, true, "second");
    for (uint32_t u = 0; u <= second; u++) {
        zinf_graph_add_tensor(g, u, &tensor);
        zinf_graph_add_piece(g, u, &piece);
    }
    g->targets = zinf_graph_add_value(g, &in);
    if (what != 4)
        g->loss = zinf_graph_add_value(g, &loss);
    uint32_t stage = zinf_graph_add_stage(g, &no_ops, "", 0, "only");
    zinf_stage_append(g, stage, ZINF_STAGE_IN, what == 5 ? g->loss : g->targets);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, g->loss);
    zinf_stage_append(g, stage, ZINF_STAGE_UNITS, what == 6 ? 7 : first);
    return zinf_graph_finish(g);
}

static void test_wrong_graphs(void)
{
    static const char *const says[] = {
        "",        "has no shape",    "has 3 rows", "second is in no stage",
        "no loss", "no stage before", "no unit 7",
    };
    for (int what = 0; what < 7; what++) {
        struct zinf_graph *g = NULL;
        int code = build_wrong(what, &g);
        CHECKF(code == (what ? -EINVAL : 0), "case %d: %d", what, code);
        CHECKF(!what || strstr(zinf_error(), says[what]), "case %d: %s", what, zinf_error());
        zinf_graph_destroy(g);
    }
}

/* Lists have no maximum: what was added first is still there. */
static void test_long_lists(void)
{
    struct zinf_graph *g = NULL;
    CHECK(!zinf_graph_create(&g));
    for (uint32_t u = 0; u < 3000; u++)
        CHECK(zinf_graph_add_unit(g, u % 2, "unit.%u", u) == u);
    struct zinf_tensor tensor = {.rank = 1, .cols = 1};
    for (uint64_t i = 0; i < 1000; i++) {
        tensor.rows = i + 1;
        CHECK(zinf_graph_add_tensor(g, 7, &tensor) == i);
        for (uint64_t p = 0; p < i % 9; p++)
            zinf_graph_add_piece(g, 7, &(struct zinf_piece){.rank = 1, .rows = {.rows = p + 1}});
    }
    CHECK(g->n_units == 3000 && !strcmp(g->units[2999].name, "unit.2999") && !g->units[8].trained);
    for (uint32_t i = 0; i < 1000; i++) {
        const struct zinf_tensor *t = &g->units[7].tensors[i];
        CHECK(t->rows == i + 1 && t->n_pieces == i % 9);
        for (uint32_t p = 0; p < t->n_pieces; p++)
            CHECK(t->pieces[p].rows.rows == p + 1);
    }
    zinf_graph_destroy(g);
}

int main(void)
{
    TAP_RUN(test_tiles_cover_the_vocabulary);
    TAP_RUN(test_initialisation_is_cut_free);
    TAP_RUN(test_rotary_frequencies);
    TAP_RUN(test_contexts_of_scaled_frequencies);
    TAP_RUN(test_yarn_and_dynamic_frequencies);
    TAP_RUN(test_wrong_graphs);
    TAP_RUN(test_long_lists);
    return tap_done();
}

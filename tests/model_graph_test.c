/*
 * Models as graphs: published parameter counts, tiles of the vocabulary, initialisation that does
 * not depend on the cut, rotary frequencies against values worked out by hand, configurations that
 * are refused, and graphs that are wrong, each with the sentence that says so.
 */
#include "base/json.h"
#include "model/build.h"
#include "model/model.h"
#include "model/stages.h"
#include "model/tensors.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

static struct zinf_model *model_of(const struct zinf_model_shape *shape)
{
    struct zinf_model *model = NULL;
    cJSON *config = NULL;
    CHECKF(!zinf_model_make_config(shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_from_json(&model, config, "test"), "%s", zinf_error());
    cJSON_Delete(config);
    return model;
}

/* NULL where the text is refused. */
static struct zinf_model *model_from(const char *text)
{
    struct zinf_model *model = NULL;
    cJSON *config = cJSON_Parse(text);
    CHECKF(config != NULL, "not JSON: %s", text);
    if (zinf_model_from_json(&model, config, "test"))
        model = NULL;
    cJSON_Delete(config);
    return model;
}

/* ---- sizes ---- */

static const struct {
    const char *arch, *size;
    uint64_t n_params;
} published[] = {
    {"gpt2", "small", 124439808},          {"gpt2", "medium", 354823168},
    {"gpt2", "large", 774030080},          {"gpt2", "xl", 1557611200},
    {"llama", "1-7b", 6738415616},         {"llama", "1-13b", 13015864320},
    {"llama", "1-33b", 32528943616},       {"llama", "1-65b", 65285660672},
    {"llama", "7b", 6738415616},           {"llama", "13b", 13015864320},
    {"llama", "70b", 68976648192},         {"llama", "3-8b", 8030261248},
    {"llama", "3-70b", 70553706496},       {"llama", "3.1-8b", 8030261248},
    {"llama", "3.1-70b", 70553706496},     {"llama", "3.1-405b", 405853388800},
    {"llama", "3.2-1b", 1235814400},       {"llama", "3.2-3b", 3212749824},
    {"mistral", "7b", 7241732096},         {"mistral", "7b-v0.2", 7241732096},
    {"mistral", "7b-v0.3", 7248023552},    {"qwen2", "0.5b", 494032768},
    {"qwen2", "1.5b", 1543714304},         {"qwen2", "3b", 3085938688},
    {"qwen2", "7b", 7615616512},           {"qwen2", "14b", 14770033664},
    {"qwen2", "32b", 32763876352},         {"qwen2", "72b", 72706203648},
    {"qwen3", "0.6b", 596049920},          {"qwen3", "1.7b", 1720574976},
    {"qwen3", "4b", 4022468096},           {"qwen3", "8b", 8190735360},
    {"qwen3", "14b", 14768307200},         {"qwen3", "32b", 32762123264},
    {"mixtral", "8x7b", 46702792704},      {"mixtral", "8x22b", 140630071296},
    {"qwen3_moe", "30b-a3b", 30532122624}, {"qwen3_moe", "235b-a22b", 235093634560},
};

static void test_published_parameter_counts(void)
{
    for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
        struct zinf_file_map *map = NULL;
        struct zinf_model *model = model_of(
            &(struct zinf_model_shape){.arch = published[i].arch, .size = published[i].size});
        CHECKF(zinf_model_n_params(model) == published[i].n_params, "%s %s: %llu",
               published[i].arch, published[i].size,
               (unsigned long long)zinf_model_n_params(model));
        CHECKF(!zinf_file_map_create(&map, zinf_model_graph(model)), "%s", zinf_error());
        zinf_file_map_destroy(map);
        zinf_model_close(model);
    }
}

static void test_smaller_shapes(void)
{
    static const char *const families[] = {"gpt2",  "llama",   "mistral",  "qwen2",
                                           "qwen3", "mixtral", "qwen3_moe"};
    for (size_t i = 0; i < sizeof families / sizeof *families; i++) {
        struct zinf_model *model = model_of(&(struct zinf_model_shape){.arch = families[i],
                                                                       .layers = 3,
                                                                       .hidden = 96,
                                                                       .heads = 6,
                                                                       .vocab = 257,
                                                                       .context = 64});
        const struct zinf_model_facts *f = zinf_model_facts(model);
        CHECK(f->layers == 3 && f->hidden == 96 && f->heads == 6 && f->vocab == 257);
        CHECK(f->context >= 64 && f->end_of_text == 256 && !strcmp(f->family, families[i]));
        CHECK(!zinf_model_set_layers(&model, 5) && zinf_model_facts(model)->layers == 5);
        zinf_model_close(model);
    }
    cJSON *config = NULL;
    CHECK(zinf_model_make_config(&(struct zinf_model_shape){.arch = "llama", .size = "huge"},
                                 ZINF_DTYPE_F32, &config) == -EINVAL);
    CHECKF(strstr(zinf_error(), "7b") != NULL, "%s", zinf_error());
}

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

#define SMALL                                                                                      \
    "\"model_type\": \"llama\", \"hidden_size\": 256, \"num_attention_heads\": 2, "                \
    "\"num_hidden_layers\": 1, \"intermediate_size\": 64, \"vocab_size\": 64, "

static struct attention_spec attention_of(const struct zinf_model *model)
{
    const struct zinf_graph *g = zinf_model_graph(model);
    return ((const struct block_spec *)g->stages[1].spec)->attention;
}

struct frequency {
    int i;
    double inv;
};

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

/* ---- configurations ---- */

static void check_refused(const char *text, const char *says)
{
    struct zinf_model *model = model_from(text);
    CHECKF(!model, "%s is accepted", text);
    CHECKF(strstr(zinf_error(), says) != NULL, "%s: %s", text, zinf_error());
    zinf_model_close(model);
}

static void test_refused_configurations(void)
{
    check_refused("{\"model_type\": \"elsewhere\"}", "supported: gpt2, llama");
    check_refused("{" SMALL "\"head_dim\": 7}", "even");
    check_refused("{" SMALL "\"head_dim\": 512}", "256");
    check_refused("{" SMALL "\"num_key_value_heads\": 3}", "key and value heads is 3");
    check_refused("{" SMALL "\"hidden_act\": \"swiglu\"}", "hidden_act");
    check_refused("{" SMALL "\"rms_norm_eps\": 0}", "rms_norm_eps");
    check_refused("{" SMALL "\"attention_dropout\": 1}", "dropout");
    check_refused("{" SMALL "\"rope_theta\": -1}", "rope_theta");
    check_refused("{" SMALL "\"rope_scaling\": 3}", "rope_scaling");
    check_refused("{" SMALL "\"rope_scaling\": {\"type\": \"longrope\"}}", "longrope");
    check_refused("{" SMALL "\"rope_scaling\": {\"type\": \"linear\", \"factor\": 0.1}}", "factor");
    check_refused("{" SMALL "\"rope_parameters\": {\"full_attention\": {}}}", "full_attention");
    check_refused("{\"model_type\": \"llama\", \"hidden_size\": 30, \"num_attention_heads\": 4}",
                  "head_dim");
    check_refused("{\"model_type\": \"llama\", \"num_hidden_layers\": 1e9}", "number of layers");
    check_refused("{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"layer_types\": []}",
                  "layer_types");
    check_refused("{\"model_type\": \"mistral\", \"sliding_window\": -1}", "sliding_window");
    check_refused("{\"model_type\": \"gpt2\", \"n_head\": 7}", "n_head");
    check_refused("{\"model_type\": \"gpt2\", \"tie_word_embeddings\": false}",
                  "tie_word_embeddings");
}

/* Windows by layer, and dropout that is replaced. */
static void test_windows_and_dropout(void)
{
    struct zinf_model *model =
        model_from("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 3, \"use_sliding_window\": "
                   "true, \"sliding_window\": 9, \"max_window_layers\": 2}");
    CHECKF(model != NULL, "%s", zinf_error());
    CHECK(!zinf_model_set_dropout(model, 0.25f));
    for (uint32_t i = 0; i < 3; i++) {
        const struct block_spec *s = zinf_model_graph(model)->stages[1 + i].spec;
        CHECK(s->attention.window == (i == 2 ? 9 : 0) && s->attention.dropout == 0.25f);
    }
    zinf_model_close(model);
    model = model_from("{\"model_type\": \"mistral\", \"num_hidden_layers\": 1}");
    CHECK(model && attention_of(model).window == 4096);
    zinf_model_close(model);
    model = model_from("{\"model_type\": \"mistral\", \"sliding_window\": null}");
    CHECK(model && attention_of(model).window == 0 && attention_of(model).n_kv_heads == 8);
    zinf_model_close(model);
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
    TAP_RUN(test_published_parameter_counts);
    TAP_RUN(test_smaller_shapes);
    TAP_RUN(test_tiles_cover_the_vocabulary);
    TAP_RUN(test_initialisation_is_cut_free);
    TAP_RUN(test_rotary_frequencies);
    TAP_RUN(test_yarn_and_dynamic_frequencies);
    TAP_RUN(test_refused_configurations);
    TAP_RUN(test_windows_and_dropout);
    TAP_RUN(test_wrong_graphs);
    TAP_RUN(test_long_lists);
    return tap_done();
}

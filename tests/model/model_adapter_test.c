/*
 * Adapters in a graph: units and numbers as graph.h promises them, for every family; and gradients
 * with dropout in front of adapters against differences of the loss, where a mask that is another
 * in backward than in forward shows. What nobody writes is NaN.
 */
#include "base/random.h"
#include "model/tensors.h"
#include "model_frames.h"

#include <math.h>

enum { BATCH = 3, SEQ = 7, VOCAB = 37 };

static struct zinf_model *open_adapted(const char *arch, const char *adapter)
{
    struct zinf_model_shape shape = {
        .arch = arch, .layers = 2, .hidden = 16, .heads = 2, .vocab = VOCAB, .context = 16};
    struct zinf_model *model = NULL;
    cJSON *config = NULL, *wanted = cJSON_Parse(adapter);
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    CHECKF(!zinf_model_from_json(&model, config, arch), "%s", zinf_error());
    CHECKF(!zinf_model_set_dropout(model, 0), "%s", zinf_error());
    CHECKF(!zinf_model_adapt(model, wanted, "adapter"), "%s", zinf_error());
    cJSON_Delete(config);
    cJSON_Delete(wanted);
    return model;
}

/* ---- the graph ---- */

static bool has(const struct zinf_ids *ids, uint32_t id)
{
    for (uint32_t i = 0; i < ids->n; i++)
        if (ids->at[i] == id)
            return true;
    return false;
}

/* Whether a unit and its adapter are at hand in the same stages. */
static bool come_together(const struct zinf_graph *g, uint32_t unit, uint32_t adapter)
{
    for (uint32_t s = 0; s < g->n_stages; s++)
        if (has(&g->stages[s].units, unit) != has(&g->stages[s].units, adapter))
            return false;
    return true;
}

/* The head of a classifier is trained whole: all of its unit, where that has nothing else. */
static bool is_head(const struct zinf_unit *unit)
{
    return unit->n_tensors && unit->tensors[0].n_pieces && unit->tensors[0].pieces[0].of_base;
}

static void test_adapters_stand_beside_their_units(void)
{
    const struct zinf_family *family;
    for (size_t i = 0; (family = zinf_family_at(i)); i++) {
        char sizes[512];
        if (!*zinf_family_sizes(family, sizes, sizeof sizes)) /* of another family's model */
            continue;
        struct zinf_model *model = open_adapted(family->model_type, "{\"r\": 2}");
        const struct zinf_graph *g = zinf_model_graph(model);
        uint32_t n = 0;
        struct zinf_file_map *files = NULL;
        CHECKF(!zinf_file_map_create(&files, g), "%s", zinf_error());
        zinf_file_map_destroy(files);
        for (uint32_t u = 0; u < g->n_units; u++) {
            const struct zinf_unit *unit = &g->units[u];
            CHECK(unit->trained == (!strncmp(unit->name, "adapter.", 8) || is_head(unit)));
            CHECK(unit->n_adapted == 0 || unit->first_adapted == n);
            n += unit->n_adapted;
            for (uint32_t k = 0; k < unit->n_adapted; k++) {
                const struct zinf_adapted *a = &g->adapted[unit->first_adapted + k];
                const struct zinf_unit *other = &g->units[a->adapter];
                const struct zinf_tensor *w = &unit->tensors[a->tensor];
                CHECK(a->unit == u && a->adapter > u && other->trained);
                CHECK(come_together(g, u, a->adapter));
                CHECK(other->tensors[a->a].rows == 2 && other->tensors[a->a].cols == w->cols);
                CHECK(other->tensors[a->b].rows == a->rows && other->tensors[a->b].cols == 2);
                CHECK(a->first_row + a->rows <= w->rows && a->scale == 4.0f);
            }
        }
        /* Two layers, each of two parts of at least two modules, or of one part. */
        const uint32_t least = strcmp(family->model_type, "nemotron_h") ? 8 : 4;
        CHECKF(n == g->n_adapted && n >= least, "%s: %u adapters", family->model_type, n);
        printf("# %s: %u modules a block\n", family->model_type, n / 2);
        zinf_model_close(model);
    }
}

static void test_changes_keep_adapters(void)
{
    struct zinf_model *model =
        open_adapted("llama", "{\"r\": 2, \"target_modules\": [\"q_proj\"]}");
    CHECK(zinf_model_graph(model)->n_adapted == 2);
    CHECK(!zinf_model_join_tiles(model) && zinf_model_graph(model)->n_adapted == 2);
    CHECK(!zinf_model_set_layers(&model, 3) && zinf_model_graph(model)->n_adapted == 3);
    CHECK(zinf_model_n_trained(model) == 3 * 2 * (16 + 16));
    zinf_model_close(model);
}

/* ---- gradients ---- */

static void randomise(float *out, uint64_t n, uint32_t stream, float std)
{
    zinf_normal_fill(out, 0, n, 17, stream, 0, std);
}

/* Weights of all units, on the host: [n_units] of flat buffers. */
static float **make_weights(const struct zinf_graph *g)
{
    float **weights = calloc(g->n_units, sizeof *weights);
    for (uint32_t u = 0; u < g->n_units; u++) {
        const struct zinf_unit *unit = &g->units[u];
        weights[u] = calloc(unit->elems, sizeof **weights);
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            const struct zinf_tensor *t = &unit->tensors[i];
            float std = t->rank == 2 ? 0.7f / sqrtf((float)t->cols) : 0.2f;
            randomise(weights[u] + t->offset, t->elems, 100 * u + i, std);
            for (uint64_t k = 0; t->init == ZINF_INIT_ONE && k < t->elems; k++)
                weights[u][t->offset + k] += 1;
        }
    }
    return weights;
}

static void put_inputs(struct frames *w)
{
    int32_t ids[BATCH * SEQ], targets[BATCH * SEQ], positions[BATCH * SEQ];
    for (int i = 0; i < BATCH * SEQ; i++) {
        ids[i] = i * 11 % VOCAB;
        targets[i] = i * 7 % VOCAB;
        positions[i] = i % SEQ;
    }
    frames_put_input(w, ZINF_INPUT_IDS, ids);
    frames_put_input(w, ZINF_INPUT_TARGETS, targets);
    frames_put_input(w, ZINF_INPUT_POSITIONS, positions);
}

/* The loss at weights + step * direction. */
static double loss_at(struct frames *w, float *const *weights, float *const *direction, float step)
{
    float rows[BATCH * SEQ];
    double sum = 0;
    for (uint32_t u = 0; u < w->graph->n_units; u++) {
        uint64_t n = w->graph->units[u].elems;
        float *moved = malloc(n * sizeof *moved);
        for (uint64_t i = 0; i < n; i++)
            moved[i] = weights[u][i] + (direction[u] ? step * direction[u][i] : 0);
        frames_put_weights(w, u, moved);
        free(moved);
    }
    frames_forward(w);
    frames_get(w, rows, w->values[w->graph->loss], sizeof rows);
    for (int i = 0; i < BATCH * SEQ; i++)
        sum += (double)rows[i];
    return sum;
}

/* Along a random direction in one tensor of a trained unit. */
static void check_direction(struct frames *w, float *const *weights, uint32_t number,
                            uint32_t tensor)
{
    const struct zinf_unit *unit = &w->graph->units[number];
    const struct zinf_tensor *t = &unit->tensors[tensor];
    float **direction = calloc(w->graph->n_units, sizeof *direction), step = 1e-3f;
    float *grads = malloc(unit->elems * sizeof *grads);
    double slope = 0;
    direction[number] = calloc(unit->elems, sizeof **direction);
    randomise(direction[number] + t->offset, t->elems, 1000 * number + tensor, 1);
    frames_get(w, grads, w->grads[number], unit->elems * sizeof *grads);
    for (uint64_t i = 0; i < unit->elems; i++)
        CHECK(isfinite(grads[i]));
    for (uint64_t i = t->offset; i < t->offset + t->elems; i++)
        slope += (double)grads[i] * (double)direction[number][i];
    double up = loss_at(w, weights, direction, step), down = loss_at(w, weights, direction, -step);
    double wanted = (up - down) / (2 * (double)step);
    CHECKF(fabs(slope - wanted) <= 1e-2 * fabs(wanted) + 2e-2, "%s: slope %.6g, differences %.6g",
           t->pieces[0].name, slope, wanted);
    free(direction[number]);
    free(direction);
    free(grads);
}

/* With magnitudes, A and B have other gradients than differences: those of PEFT's, which takes
 * norms for constants. */
static bool is_detached(const struct zinf_graph *g, uint32_t unit, uint32_t tensor)
{
    for (uint32_t i = 0; i < g->n_adapted; i++) {
        const struct zinf_adapted *a = &g->adapted[i];
        if (a->adapter == unit && a->has_magnitude && (a->a == tensor || a->b == tensor))
            return true;
    }
    return false;
}

static void check_gradients(const char *arch, float dropout, bool recompute, const char *more)
{
    char adapter[256];
    snprintf(adapter, sizeof adapter, "{\"r\": 3, \"lora_alpha\": 4, \"lora_dropout\": %g%s}",
             (double)dropout, more);
    struct zinf_model *model = open_adapted(arch, adapter);
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 1};
    struct frames w = {.graph = zinf_model_graph(model),
                       .recompute = recompute,
                       .loss_scale = 1,
                       .compute = {.dtype = ZINF_DTYPE_F32,
                                   .batch = BATCH,
                                   .seq = SEQ,
                                   .source_seq = SEQ,
                                   .train = true,
                                   .seed = 3,
                                   .step = 5,
                                   .first_sample = 6}};
    CHECK(!zinf_device_create(&w.device, &options));
    frames_open(&w);
    put_inputs(&w);
    float **weights = make_weights(w.graph), **nowhere = calloc(w.graph->n_units, sizeof *nowhere);
    loss_at(&w, weights, nowhere, 0);
    frames_backward(&w);
    for (uint32_t u = 0; u < w.graph->n_units; u++)
        for (uint32_t i = 0; w.graph->units[u].trained && i < w.graph->units[u].n_tensors; i++)
            if (!is_detached(w.graph, u, i))
                check_direction(&w, weights, u, i);
    for (uint32_t u = 0; u < w.graph->n_units; u++)
        free(weights[u]);
    free(weights);
    free(nowhere);
    frames_close(&w);
    zinf_model_close(model);
}

static void test_gradients_with_dropout(void)
{
    check_gradients("gpt2", 0.4f, false, "");
    check_gradients("llama", 0.4f, true, "");
    check_gradients("qwen3", 0.4f, false, "");
    check_gradients("qwen3", 0, true, "");
}

/* Magnitudes of whole weights, and of some rows of one: queries and values of three. */
static void test_gradients_of_magnitudes(void)
{
    check_gradients("gpt2", 0, false, ", \"use_dora\": true");
    check_gradients("llama", 0, true,
                    ", \"use_dora\": true, \"target_modules\": [\"q_proj\", \"v_proj\"]");
}

/* The same behind dropout, which reaches what the weight makes, too. */
static void test_gradients_of_magnitudes_with_dropout(void)
{
    check_gradients("gpt2", 0.4f, false, ", \"use_dora\": true");
    check_gradients("llama", 0.4f, true,
                    ", \"use_dora\": true, \"target_modules\": [\"q_proj\", \"v_proj\"]");
}

/* Of what moved out of frozen units; each gap is zero, else a gradient shows as NaN. */
static void test_gradients_of_copies(void)
{
    check_gradients("gpt2", 0, false, ", \"bias\": \"all\"");
    check_gradients("gpt2", 0, true,
                    ", \"bias\": \"lora_only\", \"target_modules\": [\"c_attn\"], "
                    "\"modules_to_save\": [\"ln_1\", \"mlp.c_proj\", \"wpe\", \"ln_f\"]");
    check_gradients("llama", 0, false,
                    ", \"modules_to_save\": [\"embed_tokens\", \"lm_head\", \"norm\"]");
}

/* ---- what is refused ---- */

static void check_refused(const char *arch, const char *adapter, const char *words)
{
    struct zinf_model_shape shape = {
        .arch = arch, .layers = 2, .hidden = 16, .heads = 2, .vocab = VOCAB, .context = 16};
    struct zinf_model *model = NULL;
    cJSON *config = NULL, *wanted = cJSON_Parse(adapter);
    CHECK(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config));
    CHECK(!zinf_model_from_json(&model, config, arch));
    CHECKF(zinf_model_adapt(model, wanted, "adapter") < 0, "%s is taken", adapter);
    CHECKF(strstr(zinf_error(), words), "%s: %s", adapter, zinf_error());
    zinf_model_close(model);
    cJSON_Delete(config);
    cJSON_Delete(wanted);
}

static void test_refusals(void)
{
    check_refused("gpt2", "{\"modules_to_save\": [\"wte\"]}", "the head at once");
    check_refused("gpt2", "{\"modules_to_save\": [\"nothing\"]}", "no module nothing");
    check_refused("gpt2", "{\"modules_to_save\": \"wpe\"}", "a list of names");
    check_refused("gpt2", "{\"bias\": \"some\"}", "\"lora_only\"");
    check_refused("qwen2", "{\"bias\": \"lora_only\", \"target_modules\": [\"q_proj\"]}",
                  "choose all of it, or none");
}

int main(void)
{
    TAP_RUN(test_adapters_stand_beside_their_units);
    TAP_RUN(test_changes_keep_adapters);
    TAP_RUN(test_gradients_with_dropout);
    TAP_RUN(test_gradients_of_magnitudes);
    TAP_RUN(test_gradients_of_magnitudes_with_dropout);
    TAP_RUN(test_gradients_of_copies);
    TAP_RUN(test_refusals);
    return tap_done();
}

/*
 * model_head: the stages around the blocks against a plain computation in double: a lookup whose
 * rows are scaled, a norm whose weights are stored around 0, and a head with unit rows and capped
 * logits, over tiles that do not divide the vocabulary. Gradients by central differences.
 */
#include "kernels_testing.h"
#include "model/build.h"
#include "model/stages/stages.h"
#include "model_frames.h"

enum {
    VOCAB = 2210,
    TILE = 1088, /* more rows than the gradient of unit rows takes at a time */
    HIDDEN = 24,
    BATCH = 2,
    SEQ = 9,
    ROWS = BATCH * SEQ,
    N_TILES = (VOCAB + TILE - 1) / TILE,
    TABLE = 0,
    NORM = VOCAB * HIDDEN,
    HEAD = NORM + HIDDEN,
    PARAMS = HEAD + VOCAB * HIDDEN,
};

/* What a model has beside its weights. */
struct variant {
    float scale, w_add, softcap;
    bool unit_rows;
};

struct problem {
    struct variant variant;
    struct zinf_graph *graph;
    int32_t ids[ROWS], targets[ROWS];
    float weights[PARAMS];
};

/* ---- the graph ---- */

static uint32_t add_value(struct zinf_graph *g, const char *name, enum zinf_input input,
                          enum zinf_element gradient)
{
    struct zinf_value value = {
        .kind = input ? ZINF_VALUE_INPUT : ZINF_VALUE_ACTIVATION,
        .input = input,
        .limit = input ? VOCAB : 0,
        .rows_of = ZINF_ROWS_OF_TARGET,
        .cols = input ? 1 : HIDDEN,
        .element = input ? ZINF_ELEMENT_ID : ZINF_ELEMENT_PARAM,
        .gradient = gradient,
    };
    snprintf(value.name, sizeof value.name, "%s", name);
    return zinf_graph_add_value(g, &value);
}

static void add_tensor(struct zinf_graph *g, uint32_t unit, uint64_t first, uint64_t rows)
{
    const bool matrix = rows != HIDDEN;
    struct zinf_tensor tensor = {
        .rank = matrix ? 2 : 1, .rows = rows, .cols = matrix ? HIDDEN : 1, .decay = matrix};
    struct zinf_piece piece = {.rank = tensor.rank,
                               .shape = {matrix ? VOCAB : HIDDEN, matrix ? HIDDEN : 0},
                               .rows = {.file_first = first, .rows = rows, .count = 1}};
    snprintf(piece.name, sizeof piece.name, "unit%u", unit);
    zinf_graph_add_tensor(g, unit, &tensor);
    zinf_graph_add_piece(g, unit, &piece);
}

/* A stage that sweeps over a table in tiles. */
static uint32_t add_sweep(struct zinf_graph *g, const struct zinf_stage_ops *ops, const void *spec,
                          size_t spec_bytes)
{
    uint32_t stage = zinf_graph_add_stage(g, ops, spec, spec_bytes, "%s", ops->name);
    for (uint64_t first = 0; first < VOCAB; first += TILE) {
        uint32_t unit = zinf_graph_add_unit(g, true, "%s.%u", ops->name, (unsigned)first);
        add_tensor(g, unit, first, VOCAB - first < TILE ? VOCAB - first : TILE);
        zinf_stage_append(g, stage, ZINF_STAGE_SWEEP, unit);
    }
    return stage;
}

static struct zinf_graph *make_graph(const struct variant *v)
{
    const struct lookup_spec lookup = {.n_tiles = N_TILES, .scale = v->scale};
    const struct norm_spec norm = {
        .kind = ZINF_NORM_RMS, .eps = 1e-6f, .w_add = v->w_add, .w = 0, .b = -1};
    const struct head_spec head = {
        .tile_rows = TILE, .softcap = v->softcap, .unit_rows = v->unit_rows};
    struct zinf_value loss = {
        .name = "loss", .kind = ZINF_VALUE_LOSS, .rows_of = ZINF_ROWS_OF_TARGET, .cols = 1};
    struct zinf_graph *g;
    CHECK(!zinf_graph_create(&g));
    uint32_t ids = add_value(g, "ids", ZINF_INPUT_IDS, ZINF_ELEMENT_NONE);
    uint32_t targets = add_value(g, "targets", ZINF_INPUT_TARGETS, ZINF_ELEMENT_NONE);
    uint32_t x = add_value(g, "x", ZINF_INPUT_NONE, ZINF_ELEMENT_PARAM);
    uint32_t normed = add_value(g, "normed", ZINF_INPUT_NONE, ZINF_ELEMENT_F32);
    loss.element = ZINF_ELEMENT_F32;
    g->loss = zinf_graph_add_value(g, &loss);
    g->targets = targets;
    g->vocab = VOCAB;
    g->row_cols = TILE;
    uint32_t stage = add_sweep(g, &zinf_stage_lookup, &lookup, sizeof lookup);
    zinf_stage_append(g, stage, ZINF_STAGE_IN, ids);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, x);
    uint32_t unit = zinf_graph_add_unit(g, true, "norm");
    add_tensor(g, unit, 0, HIDDEN);
    stage = zinf_graph_add_stage(g, &zinf_stage_norm, &norm, sizeof norm, "norm");
    zinf_stage_append(g, stage, ZINF_STAGE_IN, x);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, normed);
    zinf_stage_append(g, stage, ZINF_STAGE_UNITS, unit);
    stage = add_sweep(g, &zinf_stage_head, &head, sizeof head);
    zinf_stage_append(g, stage, ZINF_STAGE_IN, normed);
    zinf_stage_append(g, stage, ZINF_STAGE_IN, targets);
    zinf_stage_append(g, stage, ZINF_STAGE_OUT, g->loss);
    CHECKF(!zinf_graph_finish(g), "%s", zinf_error());
    return g;
}

/* Where a unit's weights begin in those of the model. */
static size_t first_weight(const struct zinf_graph *g, uint32_t unit)
{
    const struct zinf_tensor *t = &g->units[unit].tensors[0];
    size_t first = unit < N_TILES ? TABLE : unit == N_TILES ? NORM : HEAD;
    return first + t->pieces[0].rows.file_first * t->cols;
}

static void problem_open(struct problem *p, const struct variant *v)
{
    p->variant = *v;
    p->graph = make_graph(v);
    zinf_normal_fill(p->weights, 0, PARAMS, 1, 0, 0.0f, 0.5f);
    memset(p->weights + HEAD + 5 * HIDDEN, 0, HIDDEN * sizeof *p->weights); /* a row without one */
    for (int i = 0; i < ROWS; i++) {
        p->ids[i] = (i * 631 + 3) % VOCAB;
        p->targets[i] = i % 7 == 6 ? -100 : (i * 1087) % VOCAB;
    }
}

/* ---- in double ---- */

static void normed_row(const struct problem *p, const double *weights, int i, double n[HIDDEN])
{
    const struct variant *v = &p->variant;
    const double scale = v->scale > 0.0f ? (double)v->scale : 1.0;
    double square = 0.0;
    for (int c = 0; c < HIDDEN; c++) {
        n[c] = scale * weights[TABLE + p->ids[i] * HIDDEN + c];
        square += n[c] * n[c] / HIDDEN;
    }
    for (int c = 0; c < HIDDEN; c++)
        n[c] *= ((double)v->w_add + weights[NORM + c]) / sqrt(square + (double)1e-6f);
}

static double logit_of(const struct problem *p, const double *weights, const double n[HIDDEN],
                       int id)
{
    const double *w = weights + HEAD + id * HIDDEN, cap = (double)p->variant.softcap;
    double sum = 0.0, square = 0.0;
    for (int c = 0; c < HIDDEN; c++) {
        sum += n[c] * w[c];
        square += w[c] * w[c];
    }
    if (p->variant.unit_rows)
        sum /= fmax(sqrt(square), 1e-12);
    return cap > 0.0 ? cap * tanh(sum / cap) : sum;
}

static double loss_of(const struct problem *p, const double *weights, double losses[ROWS])
{
    double loss = 0.0, n[HIDDEN];
    for (int i = 0; i < ROWS; i++) {
        double sum = 0.0;
        losses[i] = 0.0;
        if (p->targets[i] < 0)
            continue;
        normed_row(p, weights, i, n);
        for (int id = 0; id < VOCAB; id++) /* logits are small here */
            sum += exp(logit_of(p, weights, n, id));
        losses[i] = log(sum) - logit_of(p, weights, n, p->targets[i]);
        loss += losses[i];
    }
    return loss;
}

/* ---- on the device ---- */

static void walk(struct problem *p, bool whole, float losses[ROWS], float *grads, float *logits)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 2};
    struct frames w = {.graph = p->graph, .whole = whole, .loss_scale = 1.0f};
    w.compute =
        (struct zinf_compute){.dtype = ZINF_DTYPE_F32, .batch = BATCH, .seq = SEQ, .train = true};
    CHECK(!zinf_device_create(&w.device, &options));
    frames_open(&w);
    frames_put_input(&w, ZINF_INPUT_IDS, p->ids);
    frames_put_input(&w, ZINF_INPUT_TARGETS, p->targets);
    for (uint32_t u = 0; u < p->graph->n_units; u++) {
        float *flat = calloc(p->graph->units[u].elems, sizeof *flat);
        memcpy(flat, p->weights + first_weight(p->graph, u),
               p->graph->units[u].tensors[0].elems * sizeof *flat);
        frames_put_weights(&w, u, flat);
        free(flat);
    }
    frames_forward(&w);
    frames_row(&w, 4, logits); /* backward takes the place of its input */
    frames_backward(&w);
    frames_get(&w, losses, w.values[p->graph->loss], ROWS * sizeof *losses);
    for (uint32_t u = 0; u < p->graph->n_units; u++)
        frames_get(&w, grads + first_weight(p->graph, u), w.grads[u],
                   p->graph->units[u].tensors[0].elems * sizeof *grads);
    frames_close(&w);
}

/* Central differences at some weights: rows that ids name, the norm, and rows of the head: a
 * target's, the one without length, and those around the ends of tiles. */
static void check_gradients(const struct problem *p, double *weights, const float *grads)
{
    static const int rows[] = {1087, 5, 0, 1023, 1024, 1088, 2111, 2112, 2175, 2176, 2209};
    const double step = 1e-4;
    double losses[ROWS];
    for (int probe = 0; probe < 40; probe++) {
        const int c = probe * 7 % HIDDEN;
        const int at = probe < 10   ? TABLE + p->ids[probe] * HIDDEN + c
                       : probe < 15 ? NORM + c
                                    : HEAD + rows[probe % 11] * HIDDEN + c;
        const double w = weights[at];
        if (p->variant.unit_rows && at / HIDDEN == HEAD / HIDDEN + 5)
            continue; /* the bound of the norm is in the way: it has no slope to speak of */
        weights[at] = w + step;
        double slope = loss_of(p, weights, losses);
        weights[at] = w - step;
        slope = (slope - loss_of(p, weights, losses)) / (2.0 * step);
        weights[at] = w;
        CHECKF(near((double)grads[at], slope, 3e-6, 2e-5), "gradient %d is %.9g, want %.9g", at,
               (double)grads[at], slope);
    }
}

static void check_variant(const struct variant *v)
{
    static struct problem p;
    static float grads[2][PARAMS], logits[2][N_TILES * TILE];
    static double weights[PARAMS];
    float losses[2][ROWS];
    double want[ROWS], n[HIDDEN];
    problem_open(&p, v);
    for (int i = 0; i < PARAMS; i++)
        weights[i] = (double)p.weights[i];
    for (int whole = 0; whole < 2; whole++)
        walk(&p, whole, losses[whole], grads[whole], logits[whole]);
    CHECK(!memcmp(losses[0], losses[1], sizeof losses[0]));
    CHECK(!memcmp(grads[0], grads[1], sizeof grads[0]));
    loss_of(&p, weights, want);
    for (int i = 0; i < ROWS; i++)
        CHECKF(near((double)losses[0][i], want[i], 2e-6, 1e-6), "loss[%d] is %.9g, want %.9g", i,
               (double)losses[0][i], want[i]);
    normed_row(&p, weights, 4, n);
    for (int id = 0; id < VOCAB; id++) {
        double got = (double)logits[0][id], logit = logit_of(&p, weights, n, id);
        CHECKF(near(got, logit, 1e-5, 1e-6), "logit %d is %.9g, want %.9g", id, got, logit);
    }
    check_gradients(&p, weights, grads[0]);
    zinf_graph_destroy(p.graph);
}

static void test_as_before(void)
{
    check_variant(&(struct variant){0});
}

static void test_scaled_rows_and_weights_around_0(void)
{
    check_variant(&(struct variant){.scale = 4.9f, .w_add = 1.0f});
}

static void test_capped_logits(void)
{
    check_variant(&(struct variant){.w_add = 1.0f, .softcap = 2.0f});
}

static void test_unit_rows(void)
{
    check_variant(&(struct variant){.unit_rows = true});
    check_variant(&(struct variant){.w_add = 1.0f, .softcap = 1.5f, .unit_rows = true});
}

int main(void)
{
    TAP_RUN(test_as_before);
    TAP_RUN(test_scaled_rows_and_weights_around_0);
    TAP_RUN(test_capped_logits);
    TAP_RUN(test_unit_rows);
    return tap_done();
}

/*
 * Random models, for what a list of stages may be and no family is: units of 200 tensors, sweeps of
 * any length, units of several stages, values with several consumers, frozen units. First the
 * models themselves: done plainly in several ways, three steps have the same bits.
 */
#include "graph_plain.h"
#include "graph_random.h"

enum { STEPS = 3, SEQ = 6, BATCH = 2, MOST_MICRO = 4, MOST_STAGES = 7 };
enum { ROWS = MOST_MICRO * BATCH * SEQ };

/* What comes out of a training. */
struct outcome {
    double loss[STEPS], norm[STEPS];
    struct plain plain;
};

/* What a case is beside its graph. */
struct setting {
    uint64_t seed;
    enum zinf_dtype dtype;
    uint32_t n_micro;
    double clip; /* 0: off */
};

static struct setting draw_setting(uint64_t seed)
{
    static const double clips[] = {0, 1, 2, 6};
    struct dice dice = {.seed = seed, .drawn = 1 << 20};
    return (struct setting){
        .seed = seed,
        .dtype = chance(&dice, 2) ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32,
        .n_micro = 1 + draw(&dice, MOST_MICRO),
        .clip = clips[draw(&dice, 4)],
    };
}

static void draw_batch(const struct random_graph *g, uint64_t seed, uint32_t step, uint32_t n_rows,
                       int32_t ids[3][ROWS], uint64_t *n_targets)
{
    struct dice dice = {.seed = seed ^ 0x5eed, .drawn = step * 1000};
    *n_targets = 0;
    for (uint32_t i = 0; i < n_rows; i++) {
        ids[0][i] = (int32_t)draw(&dice, (uint32_t)g->vocab);
        ids[1][i] = chance(&dice, 7) ? -1 : (int32_t)draw(&dice, (uint32_t)g->vocab);
        ids[2][i] = (int32_t)(i % SEQ);
        *n_targets += ids[1][i] >= 0;
    }
}

/* By the tensors' initialisation. */
static void draw_weights(struct plain *p, uint64_t seed)
{
    for (uint32_t u = 0; u < p->graph->n_units; u++) {
        const struct zinf_unit *unit = &p->graph->units[u];
        float *flat = calloc(unit->elems, sizeof *flat);
        struct dice dice = {.seed = seed + u};
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            const struct zinf_tensor *t = &unit->tensors[i];
            for (uint64_t e = 0; e < t->elems; e++) {
                float uniform = (float)draw(&dice, 2001) / 1000 - 1;
                flat[t->offset + e] = t->init == ZINF_INIT_ONE    ? 1
                                      : t->init == ZINF_INIT_ZERO ? 0
                                                                  : uniform * 1.7f * t->init_std;
            }
        }
        plain_set_weights(p, u, flat);
        free(flat);
    }
}

static void open_plain(struct plain *p, const struct random_graph *g, const struct setting *s,
                       struct plain_ways ways)
{
    *p = (struct plain){
        .graph = g->graph,
        .ways = ways,
        .n_micro = s->n_micro,
        .compute = {.dtype = s->dtype, .batch = BATCH, .seq = SEQ, .train = true, .seed = 5},
        .hyper = {.kind = ZINF_OPTIM_ADAMW,
                  .lr = 1e-2f,
                  .beta1 = 0.9f,
                  .beta2 = 0.999f,
                  .eps = 1e-8f,
                  .weight_decay = 0.1f,
                  .bias_correction = true},
    };
    plain_open(p);
    draw_weights(p, s->seed);
}

/* Forward and backward of a step's batch. */
static double step_plain(struct plain *p, const struct random_graph *g, const struct setting *s,
                         uint32_t step)
{
    static int32_t ids[3][ROWS];
    uint64_t n_targets;
    draw_batch(g, s->seed, step, s->n_micro * BATCH * SEQ, ids, &n_targets);
    plain_set_input(p, ZINF_INPUT_IDS, ids[0]);
    plain_set_input(p, ZINF_INPUT_TARGETS, ids[1]);
    plain_set_input(p, ZINF_INPUT_POSITIONS, ids[2]);
    return plain_gradients(p, n_targets);
}

static void run_plain(const struct random_graph *g, const struct setting *s, struct plain_ways ways,
                      struct outcome *out)
{
    open_plain(&out->plain, g, s, ways);
    for (uint32_t step = 0; step < STEPS; step++) {
        out->loss[step] = step_plain(&out->plain, g, s, step);
        out->norm[step] = plain_norm(&out->plain);
        plain_update(&out->plain, out->norm[step], s->clip);
    }
}

static bool same_params(const struct plain *a, const struct plain *b)
{
    uint64_t width = zinf_dtype_bytes(a->compute.dtype);
    for (uint32_t u = 0; u < a->graph->n_units; u++)
        if (memcmp(a->units[u].param, b->units[u].param, a->graph->units[u].elems * width))
            return false;
    return true;
}

static void check_same(const struct outcome *a, const struct outcome *b, const char *what,
                       uint64_t seed)
{
    for (int i = 0; i < STEPS; i++) {
        CHECKF(isfinite(a->loss[i]) && a->loss[i] == b->loss[i], "case %llu, %s: loss %.17g %.17g",
               (unsigned long long)seed, what, a->loss[i], b->loss[i]);
        CHECKF(isfinite(a->norm[i]) && a->norm[i] == b->norm[i], "case %llu, %s: norm %.17g %.17g",
               (unsigned long long)seed, what, a->norm[i], b->norm[i]);
    }
    CHECKF(same_params(&a->plain, &b->plain), "case %llu, %s: weights", (unsigned long long)seed,
           what);
}

/* One model in every way that must not matter. */
static void check_ways(uint64_t seed, int *clipped)
{
    struct setting s = draw_setting(seed);
    struct random_graph g = draw_graph(seed, SEQ, MOST_STAGES);
    struct outcome reference, other;
    run_plain(&g, &s, (struct plain_ways){0}, &reference);
    for (int way = 1; way < 8; way++) {
        struct plain_ways ways = {way & 1, way & 2, way & 4};
        char what[100];
        if (ways.layer_major && g.sums && s.n_micro > 1)
            continue;
        snprintf(what, sizeof what, "x%u%s%s%s", s.n_micro, ways.layer_major ? ", layer-major" : "",
                 ways.whole ? ", head whole" : "", ways.again ? ", recomputing" : "");
        run_plain(&g, &s, ways, &other);
        check_same(&reference, &other, what, seed);
        plain_close(&other.plain);
    }
    for (int i = 0; i < STEPS; i++)
        *clipped += s.clip > 0 && reference.norm[i] > s.clip;
    CHECKF(reference.loss[STEPS - 1] != reference.loss[0], "case %llu does not learn",
           (unsigned long long)seed);
    plain_close(&reference.plain);
    zinf_graph_destroy(g.graph);
}

static void test_ways_are_the_same(void)
{
    int clipped = 0, n = 60;
    for (int seed = 1; seed <= n; seed++)
        check_ways((uint64_t)seed, &clipped);
    CHECKF(clipped > n / 2 && clipped < 5 * n / 2, "%d of %d steps clip", clipped, 3 * n);
}

/* ---- gradients are those of the loss ---- */

/* The unit's weights move by eps times +1 or -1 each; returns the gradient's product with that. */
static double nudge(struct plain *p, uint32_t unit, float eps, const float *from)
{
    struct dice dice = {.seed = unit};
    double product = 0;
    for (uint32_t i = 0; i < p->graph->units[unit].n_tensors; i++) {
        const struct zinf_tensor *t = &p->graph->units[unit].tensors[i];
        for (uint64_t e = t->offset; e < t->offset + t->elems; e++) {
            float sign = chance(&dice, 2) ? 1 : -1;
            ((float *)p->units[unit].param)[e] = from[e] + eps * sign;
            product += (double)p->units[unit].sum[e] * (double)sign;
        }
    }
    return product;
}

/* Central differences of the loss against the gradient that was made, in one direction. */
static double slope_error(struct plain *p, const struct random_graph *g, const struct setting *s,
                          uint32_t unit)
{
    const float eps = 1e-3f;
    uint64_t n = p->graph->units[unit].elems;
    float *before = malloc(n * sizeof *before), *sum = malloc(n * sizeof *sum);
    memcpy(before, p->units[unit].param, n * sizeof *before);
    step_plain(p, g, s, 0);
    memcpy(sum, p->units[unit].sum, n * sizeof *sum);
    double wanted = nudge(p, unit, eps, before), up = step_plain(p, g, s, 0);
    nudge(p, unit, -eps, before);
    double slope = (up - step_plain(p, g, s, 0)) / (2 * (double)eps);
    memcpy(p->units[unit].param, before, n * sizeof *before);
    double size = sqrt(zinf_optim_sum_squares(sum, ZINF_DTYPE_F32, n, 1));
    free(before);
    free(sum);
    return fabs(slope - wanted) / (size + 1e-3);
}

static void test_gradients_are_true(void)
{
    for (uint64_t seed = 100; seed < 120; seed++) {
        struct setting s = draw_setting(seed);
        struct random_graph g = draw_graph(seed, SEQ, MOST_STAGES);
        struct plain p;
        s.dtype = ZINF_DTYPE_F32;
        open_plain(&p, &g, &s, (struct plain_ways){0});
        for (uint32_t u = 0; u < g.graph->n_units; u++) {
            double error = g.graph->units[u].trained ? slope_error(&p, &g, &s, u) : 0;
            CHECKF(error < 0.02, "case %llu: the gradient of %s is off by %g",
                   (unsigned long long)seed, g.graph->units[u].name, error);
        }
        plain_close(&p);
        zinf_graph_destroy(g.graph);
    }
}

int main(void)
{
    TAP_RUN(test_ways_are_the_same);
    TAP_RUN(test_gradients_are_true);
    return tap_done();
}

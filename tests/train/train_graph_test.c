/*
 * Random models, for what a list of stages may be and no family is: units of 200 tensors, sweeps of
 * any length, units of several stages, values with several consumers, frozen units. First the
 * models themselves: done plainly in several ways, three steps have the same bits, and gradients
 * are those of the loss. Then whole trainers of them: with everything on the device one gives what
 * was done plainly, and any other, wherever things live, whenever they happen and however little
 * memory there is, gives the same bits.
 */
#include "graph_trainer.h"
#include "set.h"

enum { STEPS = 3, SEQ = 6, BATCH = 2, MOST_MICRO = 4, MOST_STAGES = 7 };
enum { ROWS = MOST_MICRO * BATCH * SEQ, N_TRAINED = 40, N_VARIATIONS = 6 };

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
    int sub_group;
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
        .sub_group = chance(&dice, 2) ? 1000000 : 1000 + (int)draw(&dice, 5000),
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

/* By the tensors' initialisation; the caller's. */
static float *draw_weights(const struct zinf_unit *unit, uint64_t seed)
{
    float *flat = calloc(unit->elems, sizeof *flat);
    struct dice dice = {.seed = seed};
    for (uint32_t i = 0; i < unit->n_tensors; i++) {
        const struct zinf_tensor *t = &unit->tensors[i];
        for (uint64_t e = 0; e < t->elems; e++) {
            float uniform = (float)draw(&dice, 2001) / 1000 - 1;
            flat[t->offset + e] = t->init == ZINF_INIT_ONE    ? 1
                                  : t->init == ZINF_INIT_ZERO ? 0
                                                              : uniform * 1.7f * t->init_std;
        }
    }
    return flat;
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
    for (uint32_t u = 0; u < g->graph->n_units; u++) {
        float *flat = draw_weights(&g->graph->units[u], s->seed + u);
        plain_set_weights(p, u, flat);
        free(flat);
    }
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
    int n_true = 0;
    for (uint64_t seed = 100; n_true < 20; seed++) {
        struct setting s = draw_setting(seed);
        struct random_graph g = draw_graph(seed, SEQ, MOST_STAGES);
        struct plain p;
        s.dtype = ZINF_DTYPE_F32;
        if (g.chooses) {
            zinf_graph_destroy(g.graph);
            continue;
        }
        n_true++;
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

/* ---- trainers ---- */

/* What is the same in all trainings of a case, and what differs. */
struct variation {
    const char *param, *state, *grad, *schedule, *order, *extra, *fetch;
    int look_ahead; /* -1: auto */
    bool copies, changes_schedule;
    uint32_t delay_us; /* operations start late by up to this */
    double on_device;  /* share of the optimizer's state */
    uint64_t device_memory, host_memory;
};
struct trained {
    double loss[STEPS], norm[STEPS];
    float **weights; /* [n_units] */
    uint32_t n_units;
    uint64_t device_bytes;
};

static const char *const places[] = {"none", "cpu", "nvme"};
static char drive[600], config_path[600];

static struct zinf_config *configure(const struct setting *s, const struct variation *v)
{
    char text[2048];
    struct zinf_config_context context = ZINF_CONFIG_CONTEXT_DEFAULT;
    struct zinf_config *config = NULL;
    context.world_size = 1;
    set_memory(&context, "zinf.device_memory", v->device_memory);
    set_memory(&context, "zinf.host_memory", v->host_memory);
    snprintf(text, sizeof text,
             "{\"train_micro_batch_size_per_gpu\": %d, \"gradient_accumulation_steps\": %u,"
             "\"gradient_clipping\": %g, \"bf16\": {\"enabled\": %s},"
             "\"optimizer\": {\"type\": \"AdamW\", \"params\": {\"lr\": 1e-2,"
             "\"weight_decay\": 0.1}}, \"zero_optimization\": {\"stage\": 3,"
             "\"sub_group_size\": %d, \"offload_param\": {\"device\": \"%s\","
             "\"nvme_path\": \"%s\"}, \"offload_optimizer\": {\"device\": \"%s\","
             "\"nvme_path\": \"%s\", \"ratio\": %g}}, \"zinf\": {\"threads\": 1,"
             "\"schedule\": \"%s\", \"accumulation_order\": \"%s\", \"look_ahead\": %d,"
             "\"direct\": %s, \"expert_fetch\": \"%s\"%s%s}}",
             BATCH, s->n_micro, s->clip, s->dtype == ZINF_DTYPE_BF16 ? "true" : "false",
             s->sub_group, v->param, drive, v->state, drive, 1 - v->on_device, v->schedule,
             v->order, v->look_ahead, v->copies ? "false" : "true", v->fetch ? v->fetch : "auto",
             v->extra,
             v->host_memory || strstr(v->extra, "placement") ? "" : ", \"placement\": \"exact\"");
    CHECKF(!zinf_config_parse(&config, text, strlen(text), "test", &context), "%s", zinf_error());
    return config;
}

static void train(struct zinf_trainer *t, const struct random_graph *g, const struct setting *s,
                  struct trained *out)
{
    static int32_t ids[3][ROWS];
    for (uint32_t step = 0; step < STEPS; step++) {
        struct zinf_step_result r = {0};
        uint64_t n_targets;
        draw_batch(g, s->seed, step, s->n_micro * BATCH * SEQ, ids, &n_targets);
        struct zinf_batch batch = {.inputs = {[ZINF_INPUT_IDS] = ids[0],
                                              [ZINF_INPUT_TARGETS] = ids[1],
                                              [ZINF_INPUT_POSITIONS] = ids[2]}};
        if (zinf_trainer_step(t, &batch, &r)) {
            CHECKF(false, "case %llu: %s", (unsigned long long)s->seed, zinf_error());
            return;
        }
        out->loss[step] = r.loss;
        out->norm[step] = r.grad_norm;
    }
    CHECKF(!trainer_settle(t), "%s", zinf_error());
    out->n_units = g->graph->n_units;
    out->weights = calloc(out->n_units, sizeof *out->weights);
    for (uint32_t u = 0; u < out->n_units; u++) {
        out->weights[u] = calloc(g->graph->units[u].elems, sizeof(float));
        get_unit(t, u, out->weights[u]);
    }
    out->device_bytes = zinf_trainer_planned_bytes(t, ZINF_MEMORY_DEVICE);
}

/* Not enough memory is no failure: false. */
static bool run_trainer(const struct random_graph *g, const struct setting *s,
                        const struct variation *v, struct trained *out)
{
    struct zinf_config *config = configure(s, v);
    struct zinf_trainer *t = NULL;
    struct zinf_trainer_options options = {.mode = ZINF_TRAINER_TRAIN,
                                           .model_path = config_path,
                                           .init = true,
                                           .seed = 5,
                                           .config = config,
                                           .seq_len = SEQ,
                                           .device = ZINF_DEVICE_HOST,
                                           .changes_schedule = v->changes_schedule,
                                           .delay_us = v->delay_us};
    memset(out, 0, sizeof *out);
    int code = config ? zinf_trainer_create(&t, &options) : -EINVAL;
    CHECKF(!code || (code == -ENOMEM && (v->device_memory || v->host_memory)), "case %llu: %s",
           (unsigned long long)s->seed, zinf_error());
    if (!code)
        train(t, g, s, out);
    zinf_trainer_destroy(t);
    zinf_config_destroy(config);
    return !code;
}

static void free_trained(struct trained *t)
{
    for (uint32_t u = 0; u < t->n_units; u++)
        free(t->weights[u]);
    free(t->weights);
}

static bool same_floats(const struct random_graph *g, uint32_t unit, const float *a, const float *b)
{
    return !memcmp(a, b, g->graph->units[unit].elems * sizeof *a);
}

/* A trainer's norm adds up by sub-groups: plain steps take it for their clipping, and it may differ
 * from theirs in its last digits. */
static void check_plain(const struct random_graph *g, const struct setting *s, bool layer_major,
                        const struct trained *reference)
{
    struct plain p;
    open_plain(&p, g, s, (struct plain_ways){.layer_major = layer_major});
    for (uint32_t step = 0; step < STEPS; step++) {
        double loss = step_plain(&p, g, s, step), norm = plain_norm(&p);
        CHECKF(loss == reference->loss[step], "case %llu: loss %.17g, plainly %.17g",
               (unsigned long long)s->seed, reference->loss[step], loss);
        CHECKF(fabs(norm - reference->norm[step]) <= 1e-12 * norm,
               "case %llu: norm %.17g, plainly %.17g", (unsigned long long)s->seed,
               reference->norm[step], norm);
        plain_update(&p, reference->norm[step], s->clip);
    }
    for (uint32_t u = 0; reference->weights && u < g->graph->n_units; u++) {
        float *flat = plain_get_weights(&p, u);
        CHECKF(same_floats(g, u, flat, reference->weights[u]), "case %llu: weights of %s",
               (unsigned long long)s->seed, g->graph->units[u].name);
        free(flat);
    }
    plain_close(&p);
}

static void check_trained(const struct random_graph *g, const struct setting *s,
                          const struct trained *a, const struct trained *b, const char *what)
{
    for (int i = 0; i < STEPS; i++) {
        CHECKF(a->loss[i] == b->loss[i], "case %llu, %s: loss %d: %.17g, %.17g",
               (unsigned long long)s->seed, what, i, a->loss[i], b->loss[i]);
        CHECKF(a->norm[i] == b->norm[i], "case %llu, %s: norm %d: %.17g, %.17g",
               (unsigned long long)s->seed, what, i, a->norm[i], b->norm[i]);
    }
    for (uint32_t u = 0; a->weights && b->weights && u < g->graph->n_units; u++)
        CHECKF(same_floats(g, u, a->weights[u], b->weights[u]), "case %llu, %s: weights of %s",
               (unsigned long long)s->seed, what, g->graph->units[u].name);
}

static struct variation draw_variation(struct dice *dice, const char *order, bool clips)
{
    static const char *const schedules[] = {
        "auto", "serial", "prefetch", "update-in-forward", "update-in-backward", "update-in-place"};
    static const char *const extras[] = {
        "",
        ", \"activation_checkpointing\": \"always\"",
        ", \"activation_checkpointing\": \"never\"",
        ", \"activation_device\": \"cpu\", \"activation_checkpointing\": \"always\"",
        ", \"activation_device\": \"nvme\"",
        ", \"grad_device\": \"cpu\"",
        ", \"placement\": \"auto\"",
        ", \"placement\": \"fill\""};
    static const char *const fetches[] = {"auto", "all", "chosen", "chosen"};
    struct variation v = {.param = places[draw(dice, 3)],
                          .state = places[draw(dice, 3)],
                          .schedule = schedules[draw(dice, clips ? 5 : 6)],
                          .order = order,
                          .extra = extras[draw(dice, 8)],
                          .fetch = fetches[draw(dice, 4)],
                          .look_ahead = (int)draw(dice, 5) - 1,
                          .copies = chance(dice, 3),
                          .changes_schedule = chance(dice, 6),
                          .delay_us = chance(dice, 8) ? 200 : 0};
    if (!strcmp(v.state, "none"))
        v.extra = strstr(v.extra, "grad_device") ? "" : v.extra;
    else if (chance(dice, 5))
        v.on_device = 0.4;
    return v;
}

/* Memory that grows from too little until the plan fits. */
static bool run_capped(const struct random_graph *g, const struct setting *s, struct variation *v,
                       uint64_t free_bytes, struct dice *dice, struct trained *out)
{
    v->device_memory = free_bytes * (3 + draw(dice, 8)) / 10;
    while (!run_trainer(g, s, v, out)) {
        if (v->device_memory > 64 * free_bytes)
            return false;
        v->device_memory += v->device_memory / 5 + 4096;
    }
    CHECKF(out->device_bytes <= v->device_memory, "case %llu: %llu bytes of %llu",
           (unsigned long long)s->seed, (unsigned long long)out->device_bytes,
           (unsigned long long)v->device_memory);
    return true;
}

static void say(const struct variation *v, char *what, size_t bytes)
{
    snprintf(what, bytes, "param %s, state %s, %s, %s, fetch %s, look-ahead %d%s%s, %llu bytes",
             v->param, v->state, v->schedule, v->order, v->fetch, v->look_ahead,
             v->copies ? ", copies" : "", v->extra, (unsigned long long)v->device_memory);
}

/* What trainers of this case get. */
static void open_random(const struct random_graph *g, const struct setting *s)
{
    float **weights = calloc(g->graph->n_units, sizeof *weights);
    for (uint32_t u = 0; u < g->graph->n_units; u++)
        weights[u] = draw_weights(&g->graph->units[u], s->seed + u);
    random_model.seed = s->seed;
    random_model.seq = SEQ;
    random_model.most_stages = MOST_STAGES;
    random_model.weights = weights;
}

static void close_random(const struct random_graph *g)
{
    for (uint32_t u = 0; u < g->graph->n_units; u++)
        free(random_model.weights[u]);
    free((void *)random_model.weights);
}

static void check_trainers(uint64_t seed, int n_variations)
{
    static const char *const orders[] = {"micro-major", "layer-major"};
    struct setting s = draw_setting(seed);
    struct dice dice = {.seed = seed, .drawn = 1 << 21};
    struct random_graph g = draw_graph(seed, SEQ, MOST_STAGES);
    struct trained reference, other;
    bool layer_major = chance(&dice, 2);
    /* Where units are shared, the order of micro-batches is part of the sum: it is as asked for, or
     * one after the other. */
    const char *order = g.sums && s.n_micro > 1 && layer_major ? orders[1] : "auto";
    struct variation v = {.param = "none",
                          .state = "none",
                          .schedule = "serial",
                          .order = orders[layer_major],
                          .extra = ", \"activation_checkpointing\": \"never\"",
                          .look_ahead = 0};
    open_random(&g, &s);
    if (run_trainer(&g, &s, &v, &reference))
        check_plain(&g, &s, layer_major, &reference);
    for (int i = 0; reference.weights && i < n_variations; i++) {
        char what[300];
        v = draw_variation(&dice, order, s.clip > 0);
        bool ran = chance(&dice, 2) ? run_trainer(&g, &s, &v, &other)
                                    : run_capped(&g, &s, &v, reference.device_bytes, &dice, &other);
        say(&v, what, sizeof what);
        CHECKF(ran, "case %llu: no memory was enough: %s", (unsigned long long)seed, what);
        CHECKF(!ran || other.weights, "case %llu: failed: %s", (unsigned long long)seed, what);
        if (ran && other.weights)
            check_trained(&g, &s, &reference, &other, what);
        free_trained(&other);
    }
    free_trained(&reference);
    close_random(&g);
    zinf_graph_destroy(g.graph);
}

static void test_trainers_are_plain(void)
{
    const char *only = getenv("ZINF_TEST_GRAPH");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1, n = only ? 1 : N_TRAINED;
    for (uint64_t seed = first; seed < first + n; seed++)
        check_trainers(seed, N_VARIATIONS);
}

int main(void)
{
    const char config[] = "{\"model_type\": \"random\"}";
    make_work("graph");
    zinf_log_set_level(ZINF_LOG_ERROR);
    zinf_make_dirs(in_work(drive, "drive"));
    CHECK(!zinf_file_write_atomic(in_work(config_path, "config.json"), config, strlen(config)));
    if (!getenv("ZINF_TEST_GRAPH")) { /* one case alone, to look into it */
        TAP_RUN(test_ways_are_the_same);
        TAP_RUN(test_gradients_are_true);
    }
    TAP_RUN(test_trainers_are_plain);
    remove_work();
    return tap_done();
}

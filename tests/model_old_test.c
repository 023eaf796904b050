/*
 * A whole GPT-2, forward and backward, through the calls of model.h and through the frames of its
 * graph: the same bits of losses, gradients and the gradient of the first hidden rows.
 */
#include "model_frames.h"

enum { BATCH = 3, SEQ = 97, ROWS = BATCH * SEQ }; /* two chunks of the head's rows */

struct outcome {
    float loss[ROWS];
    float *grads[64];
    void *d_x;
};

static struct zinf_model *open_model(int64_t layers)
{
    struct zinf_model_shape shape = {
        .arch = "gpt2", .layers = layers, .hidden = 48, .heads = 4, .vocab = 3001, .context = SEQ};
    cJSON *config = NULL;
    struct zinf_model *model = NULL;
    CHECKF(!zinf_model_make_config(&shape, ZINF_DTYPE_F32, &config), "%s", zinf_error());
    cJSON_AddBoolToObject(config, "scale_attn_by_inverse_layer_idx", true);
    CHECKF(!zinf_model_from_json(&model, config, "test"), "%s", zinf_error());
    cJSON_Delete(config);
    return model;
}

static struct zinf_device *open_device(void)
{
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 2};
    struct zinf_device *device = NULL;
    CHECKF(!zinf_device_create(&device, &options), "%s", zinf_error());
    return device;
}

/* ids, positions, targets */
static void make_ids(int32_t ids[3][ROWS])
{
    for (int i = 0; i < ROWS; i++) {
        ids[0][i] = i * 2917 % 3001;
        ids[1][i] = i % SEQ;
        ids[2][i] = i % 11 == 10 ? -100 : i * 1709 % 3001;
    }
}

static float *make_weights(const struct zinf_unit *unit, uint32_t number)
{
    float *values = calloc(unit->elems, sizeof *values);
    for (uint32_t i = 0; i < unit->n_tensors; i++)
        for (uint64_t e = 0; e < unit->tensors[i].elems; e++)
            values[unit->tensors[i].offset + e] =
                (float)((e * 40503 + number * 7919 + i * 104729) % 1009) / 5045 - 0.1f;
    return values;
}

/* ---- through frames ---- */

static void run_frames(const struct zinf_model *model, struct frames *w, struct outcome *out)
{
    int32_t ids[3][ROWS];
    const struct zinf_graph *g = zinf_model_graph(model);
    w->device = open_device();
    w->graph = g;
    w->loss_scale = 3.0f / ROWS;
    frames_open(w);
    make_ids(ids);
    frames_put_input(w, ZINF_INPUT_IDS, ids[0]);
    frames_put_input(w, ZINF_INPUT_POSITIONS, ids[1]);
    frames_put_input(w, ZINF_INPUT_TARGETS, ids[2]);
    for (uint32_t u = 0; u < g->n_units; u++) {
        float *values = make_weights(&g->units[u], u);
        frames_put_weights(w, u, values);
        free(values);
    }
    frames_forward(w);
    frames_backward(w);
    frames_get(w, out->loss, w->values[g->loss], sizeof out->loss);
    for (uint32_t u = 0; u < g->n_units; u++) {
        out->grads[u] = malloc(g->units[u].elems * sizeof(float));
        frames_get(w, out->grads[u], w->grads[u], g->units[u].elems * sizeof(float));
    }
    uint32_t x = g->stages[0].out.at[0];
    uint64_t bytes = zinf_value_bytes(&w->compute, &g->values[x]);
    out->d_x = malloc(bytes);
    frames_get(w, out->d_x, w->gradients[x], bytes);
    frames_close(w);
}

/* ---- through the old calls ---- */

struct old {
    struct zinf_gpt2_compute c;
    const struct zinf_model *model;
    void *weights[64], *x[8], *d_x;
    float **grads;
    struct zinf_block_kept kept[8];
    struct zinf_block_scratch scratch;
    struct zinf_head head;
};

static void *spoiled(uint64_t bytes)
{
    void *p = malloc(bytes);
    memset(p, 0xff, bytes);
    return p;
}

static const struct zinf_unit_spec *unit_of(const struct old *o, int u)
{
    return zinf_model_unit(o->model, u);
}

static void old_lay_out(struct old *o, const int32_t *targets)
{
    const struct zinf_gpt2_compute *c = &o->c;
    uint64_t width = zinf_dtype_bytes(c->dtype);
    uint64_t workspace = zinf_model_workspace(c, o->model, 256, true);
    int tiles = zinf_model_n_tiles(o->model);
    c->device->ops->queue_set_workspace(c->queue, spoiled(workspace), workspace);
    for (int u = 0; u < zinf_model_n_units(o->model); u++) {
        uint64_t n = unit_of(o, u)->elems;
        float *values = make_weights(&zinf_model_graph(o->model)->units[u], (uint32_t)u);
        o->weights[u] = malloc(n * width);
        zinf_convert(o->weights[u], c->dtype, values, ZINF_DTYPE_F32, n);
        o->grads[u] = spoiled(n * sizeof(float));
        free(values);
    }
    for (int l = 0; l <= c->spec->n_layers; l++) {
        o->x[l] = spoiled((uint64_t)(ROWS * c->spec->hidden) * width);
        zinf_block_kept_layout(c, spoiled(zinf_block_kept_layout(c, NULL, &o->kept[l])),
                               &o->kept[l]);
    }
    o->d_x = spoiled((uint64_t)(ROWS * c->spec->hidden) * width);
    zinf_block_scratch_layout(c, spoiled(zinf_block_scratch_layout(c, NULL, &o->scratch, true)),
                              &o->scratch, true);
    zinf_head_layout(c, spoiled(zinf_head_layout(c, NULL, &o->head, tiles, true)), &o->head, tiles,
                     true);
    o->head.targets = targets;
    o->head.scale = 3.0f / ROWS;
}

static int old_forward(struct old *o, int32_t ids[3][ROWS])
{
    int tiles = zinf_model_n_tiles(o->model), first = zinf_model_first_block(o->model), code = 0;
    for (int u = 0; !code && u < tiles; u++)
        code = zinf_embed_tile(&o->c, unit_of(o, u), o->weights[u], ids[0], o->x[0]);
    if (!code)
        code = zinf_embed_position(&o->c, unit_of(o, tiles), o->weights[tiles], ids[1], o->x[0]);
    for (int l = 0; !code && l < o->c.spec->n_layers; l++)
        code = zinf_block_forward(&o->c, unit_of(o, first + l), o->weights[first + l], o->x[l],
                                  o->x[l + 1], &o->kept[l], &o->scratch);
    return code;
}

static int old_head(struct old *o, bool whole)
{
    int tiles = zinf_model_n_tiles(o->model), last = zinf_model_n_units(o->model) - 1;
    void *x = o->x[o->c.spec->n_layers];
    int code = zinf_head_norm(&o->c, unit_of(o, last), o->weights[last], x, &o->head);
    if (whole && !code)
        code = zinf_head_all(&o->c, o->model, (const void *const *)o->weights, o->grads, &o->head);
    if (!whole) {
        code = zinf_head_start(&o->c, &o->head);
        for (int u = 0; !code && u < tiles; u++)
            code = zinf_head_tile(&o->c, unit_of(o, u), o->weights[u], &o->head);
        if (!code)
            code = zinf_head_finish(&o->c, &o->head);
        for (int u = 0; !code && u < tiles; u++)
            code = zinf_head_tile_backward(&o->c, unit_of(o, u), o->weights[u], o->grads[u],
                                           &o->head, u == 0);
    }
    return code ? code
                : zinf_head_norm_backward(&o->c, unit_of(o, last), o->weights[last], o->grads[last],
                                          x, o->d_x, &o->head);
}

static int old_backward(struct old *o, int32_t ids[3][ROWS])
{
    int tiles = zinf_model_n_tiles(o->model), first = zinf_model_first_block(o->model), code = 0;
    for (int l = (int)o->c.spec->n_layers - 1; !code && l >= 0; l--)
        code = zinf_block_backward(&o->c, unit_of(o, first + l), o->weights[first + l],
                                   o->grads[first + l], o->x[l], o->d_x, &o->kept[l], &o->scratch);
    if (!code)
        code = zinf_embed_dropout_backward(&o->c, o->d_x);
    for (int u = 0; !code && u < tiles; u++)
        code = zinf_embed_tile_backward(&o->c, unit_of(o, u), o->grads[u], ids[0], o->d_x, true);
    return code ? code
                : zinf_embed_position_backward(&o->c, unit_of(o, tiles), o->grads[tiles], ids[1],
                                               o->d_x, false);
}

/* Leaks on purpose: it lives as long as the comparison. */
static void run_old(const struct zinf_model *model, enum zinf_dtype dtype, bool whole,
                    struct outcome *out)
{
    struct old o = {.model = model, .grads = out->grads};
    int32_t ids[3][ROWS];
    make_ids(ids);
    struct zinf_device *device = open_device();
    o.c = (struct zinf_gpt2_compute){.device = device,
                                     .spec = zinf_model_spec(model),
                                     .dtype = dtype,
                                     .batch = BATCH,
                                     .seq = SEQ,
                                     .train = true,
                                     .seed = 7,
                                     .step = 3,
                                     .first_sample = 6};
    CHECK(!device->ops->queue_create(device, ZINF_QUEUE_COMPUTE, &o.c.queue));
    old_lay_out(&o, ids[2]);
    int code = old_forward(&o, ids);
    if (!code)
        code = old_head(&o, whole);
    if (!code)
        code = old_backward(&o, ids);
    CHECKF(!code, "%s", zinf_error());
    memcpy(out->loss, o.head.loss, sizeof out->loss);
    out->d_x = o.d_x;
}

/* ---- comparison ---- */

static void compare(const struct zinf_model *model, enum zinf_dtype dtype, const struct outcome *a,
                    const struct outcome *b)
{
    const struct zinf_graph *g = zinf_model_graph(model);
    CHECK(g->n_units == (uint32_t)zinf_model_n_units(model));
    CHECKF(!memcmp(a->loss, b->loss, sizeof a->loss), "losses differ: %g and %g",
           (double)a->loss[0], (double)b->loss[0]);
    for (uint32_t u = 0; u < g->n_units; u++) {
        const struct zinf_unit_spec *old = zinf_model_unit(model, (int)u);
        CHECKF(g->units[u].elems == old->elems && g->units[u].decay_elems == old->decay_elems,
               "%s has another size", old->name);
        CHECK(!strcmp(g->units[u].name, old->name));
        CHECKF(!memcmp(a->grads[u], b->grads[u], old->elems * sizeof(float)),
               "gradients of %s differ", old->name);
    }
    uint64_t bytes = (uint64_t)(ROWS * zinf_model_spec(model)->hidden) * zinf_dtype_bytes(dtype);
    CHECKF(!memcmp(a->d_x, b->d_x, bytes), "gradients of x differ");
}

static void run_case(enum zinf_dtype dtype)
{
    struct zinf_model *model = open_model(3);
    CHECKF(zinf_model_n_tiles(model) > 2, "%d tiles", zinf_model_n_tiles(model));
    static struct outcome old, new;
    for (int choice = 0; choice < 8; choice++) {
        struct frames w = {.whole = choice & 1, .recompute = choice & 2, .apart = choice & 4};
        w.compute = (struct zinf_compute){.dtype = dtype,
                                          .batch = BATCH,
                                          .seq = SEQ,
                                          .train = true,
                                          .seed = 7,
                                          .step = 3,
                                          .first_sample = 6};
        run_old(model, dtype, choice & 1, &old);
        run_frames(model, &w, &new);
        compare(model, dtype, &new, &old);
    }
    zinf_model_close(model);
}

static void test_fp32(void)
{
    run_case(ZINF_DTYPE_F32);
}

static void test_bf16(void)
{
    run_case(ZINF_DTYPE_BF16);
}

/* Sizes and work of a block against the formulas of old. */
static void test_sizes(void)
{
    struct zinf_model *model = open_model(2);
    struct zinf_device *device = open_device();
    struct zinf_compute c = {
        .device = device, .dtype = ZINF_DTYPE_BF16, .batch = BATCH, .seq = SEQ, .train = true};
    struct zinf_gpt2_compute old = {.device = device,
                                    .spec = zinf_model_spec(model),
                                    .dtype = ZINF_DTYPE_BF16,
                                    .batch = BATCH,
                                    .seq = SEQ,
                                    .train = true};
    struct zinf_block_kept kept;
    struct zinf_block_scratch scratch;
    struct zinf_stage_size forward, backward;
    const struct zinf_graph *g = zinf_model_graph(model);
    CHECK(!zinf_stage_measure(&forward, &c, g, 1, ZINF_PASS_FORWARD));
    CHECK(!zinf_stage_measure(&backward, &c, g, 1, ZINF_PASS_BACKWARD));
    CHECK(forward.kept == zinf_block_kept_layout(&old, NULL, &kept));
    CHECK(forward.scratch <= zinf_block_scratch_layout(&old, NULL, &scratch, false));
    CHECK(backward.scratch <= zinf_block_scratch_layout(&old, NULL, &scratch, true));
    CHECKF(forward.flops == zinf_block_flops(&old), "%g and %g", forward.flops,
           zinf_block_flops(&old));
    CHECKF(backward.flops == 2 * zinf_block_flops(&old), "%g", backward.flops);
    CHECK(forward.kept == backward.kept && forward.bytes > 0);
    uint64_t workspace = 0;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        CHECK(!zinf_stage_measure(&backward, &c, g, s, ZINF_PASS_BACKWARD));
        workspace = backward.workspace > workspace ? backward.workspace : workspace;
    }
    CHECKF(workspace <= zinf_model_workspace(&old, model, 256, true), "%llu and %llu",
           (unsigned long long)workspace,
           (unsigned long long)zinf_model_workspace(&old, model, 256, true));
    zinf_device_destroy(device);
    zinf_model_close(model);
}

int main(void)
{
    TAP_RUN(test_fp32);
    TAP_RUN(test_bf16);
    TAP_RUN(test_sizes);
    return tap_done();
}

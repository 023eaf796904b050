/*
 * model_frames: a model's graph walked as simply as can be, for tests of src/model: everything is
 * on the device at once, stages run one after the other. Memory begins as NaN and is exactly what
 * zinf_stage_measure says.
 */
#ifndef ZINF_MODEL_FRAMES_H
#define ZINF_MODEL_FRAMES_H

#include "model/frame.h"
#include "model/model.h"
#include "tap.h"

#include <stdlib.h>

struct frames {
    struct zinf_device *device;
    const struct zinf_graph *graph;
    struct zinf_compute compute;
    struct zinf_queue *queue;
    bool whole;     /* the last stage in one pass, its sweep at hand */
    bool recompute; /* what can be made again is */
    bool apart;     /* no gradient passes through in place */
    float loss_scale;
    char *base; /* of the device's memory; NULL: only counted */
    uint64_t used;
    /* by value, by unit, by stage; on the device */
    void **values, **gradients, **weights, **kept;
    float **grads, *spare;
    void *scratch, *workspace;
    int32_t *chosen, *list;  /* of the stage that runs: on the device, and here */
    bool *reached, *written; /* has a gradient: value, unit */
};

static inline void *frames_take(struct frames *w, uint64_t bytes)
{
    void *taken = w->base ? w->base + w->used : NULL;
    w->used += zinf_align_up(bytes, 256);
    return taken;
}

/* A size for every pass of the stage that the walk may make. */
static inline struct zinf_stage_size frames_measure(const struct frames *w, uint32_t stage)
{
    const struct zinf_stage_ops *ops = w->graph->stages[stage].ops;
    struct zinf_stage_size most = {0};
    for (enum zinf_pass pass = 0; pass < ZINF_PASSES; pass++) {
        struct zinf_stage_size size;
        if ((pass == ZINF_PASS_WHOLE && !ops->whole) || (pass == ZINF_PASS_ROW && !ops->row) ||
            (pass == ZINF_PASS_CARRY && !w->compute.chunk.whole) ||
            (pass == ZINF_PASS_CARRY_BACK && w->compute.chunk.parts < 2))
            continue;
        CHECKF(!zinf_stage_measure(&size, &w->compute, w->graph, stage, pass), "%s", zinf_error());
        uint64_t *to[] = {&most.kept, &most.scratch, &most.workspace};
        const uint64_t from[] = {size.kept, size.scratch, size.workspace};
        for (int i = 0; i < 3; i++)
            *to[i] = from[i] > *to[i] ? from[i] : *to[i];
    }
    return most;
}

static inline void frames_lay_out(struct frames *w)
{
    const struct zinf_graph *g = w->graph;
    struct zinf_stage_size most = {0};
    uint64_t width = zinf_dtype_bytes(w->compute.dtype), spare = 0, chosen = 0;
    w->used = 0;
    for (uint32_t v = 0; v < g->n_values; v++) {
        w->values[v] = frames_take(w, zinf_value_bytes(&w->compute, &g->values[v]));
        w->gradients[v] = frames_take(w, zinf_value_gradient_bytes(&w->compute, &g->values[v]));
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        uint64_t bytes = g->units[u].elems * sizeof(float);
        w->weights[u] = frames_take(w, g->units[u].elems * width);
        w->grads[u] = frames_take(w, bytes);
        spare = bytes > spare ? bytes : spare;
    }
    for (uint32_t s = 0; s < g->n_stages; s++) {
        struct zinf_stage_size size = frames_measure(w, s);
        w->kept[s] = frames_take(w, size.kept);
        uint64_t length =
            zinf_choice_length(&g->stages[s], zinf_rows_count(&w->compute, ZINF_ROWS_OF_TARGET));
        chosen = length > chosen ? length : chosen;
        most.scratch = size.scratch > most.scratch ? size.scratch : most.scratch;
        most.workspace = size.workspace > most.workspace ? size.workspace : most.workspace;
    }
    w->spare = frames_take(w, spare);
    w->chosen = frames_take(w, chosen * sizeof *w->chosen);
    w->list = realloc(w->list, (chosen + 1) * sizeof *w->list);
    w->scratch = frames_take(w, most.scratch);
    w->workspace = frames_take(w, most.workspace);
    if (w->base)
        w->device->ops->queue_set_workspace(w->queue, w->workspace, most.workspace);
}

static inline void frames_spoil(struct frames *w)
{
    uint64_t chunk = 1 << 16;
    char *spoiled = malloc(chunk);
    memset(spoiled, 0xff, chunk);
    for (uint64_t at = 0; at < w->used; at += chunk) {
        uint64_t left = w->used - at;
        CHECK(!w->device->ops->copy_to_device(w->queue, w->base + at, spoiled,
                                              left < chunk ? left : chunk));
        CHECK(!w->device->ops->queue_synchronize(w->queue));
    }
    free(spoiled);
}

/* w: device, graph, compute and choices are set; compute.device is set here. */
static inline void frames_open(struct frames *w)
{
    const struct zinf_graph *g = w->graph;
    void ***lists[] = {&w->values, &w->gradients, &w->weights, &w->kept};
    uint32_t most = g->n_values + g->n_units + g->n_stages;
    w->compute.device = w->device;
    for (int i = 0; i < 4; i++)
        *lists[i] = calloc(most, sizeof(void *));
    w->grads = calloc(most, sizeof *w->grads);
    w->reached = calloc(most, sizeof *w->reached);
    w->written = calloc(most, sizeof *w->written);
    CHECKF(!w->device->ops->queue_create(w->device, ZINF_QUEUE_COMPUTE, &w->queue), "%s",
           zinf_error());
    frames_lay_out(w);
    CHECKF(!zinf_device_take_memory(w->device, w->used), "%s", zinf_error());
    w->base = w->device->memory;
    frames_lay_out(w);
    frames_spoil(w);
}

/* Destroys the device too. */
static inline void frames_close(struct frames *w)
{
    w->device->ops->queue_destroy(w->queue);
    zinf_device_destroy(w->device);
    free(w->values);
    free(w->gradients);
    free(w->weights);
    free(w->kept);
    free(w->grads);
    free(w->reached);
    free(w->written);
    free(w->list);
}

/* bytes to a place on the device. */
static inline void frames_put(struct frames *w, void *to, const void *from, uint64_t bytes)
{
    CHECKF(!w->device->ops->copy_to_device(w->queue, to, from, bytes), "%s", zinf_error());
    CHECKF(!w->device->ops->queue_synchronize(w->queue), "%s", zinf_error());
}

static inline void frames_get(struct frames *w, void *to, const void *from, uint64_t bytes)
{
    CHECKF(!w->device->ops->copy_to_host(w->queue, to, from, bytes), "%s", zinf_error());
    CHECKF(!w->device->ops->queue_synchronize(w->queue), "%s", zinf_error());
}

/* The unit's flat buffer from fp32. */
static inline void frames_put_weights(struct frames *w, uint32_t unit, const float *values)
{
    uint64_t n = w->graph->units[unit].elems, bytes = n * zinf_dtype_bytes(w->compute.dtype);
    void *packed = malloc(bytes);
    zinf_convert(packed, w->compute.dtype, values, ZINF_DTYPE_F32, n);
    frames_put(w, w->weights[unit], packed, bytes);
    free(packed);
}

/* To every input of the kind. */
static inline void frames_put_input(struct frames *w, enum zinf_input input, const int32_t *ids)
{
    for (uint32_t v = 0; v < w->graph->n_values; v++)
        if (w->graph->values[v].input == input)
            frames_put(w, w->values[v], ids, zinf_value_bytes(&w->compute, &w->graph->values[v]));
}

/* ---- walking ---- */

/* Pointers of one call. */
struct frames_call {
    struct zinf_frame frame;
    const void **in, **weights;
    void **out, **d_out, **d_in;
    float **grads;
    bool *adds;
};

static inline void frames_free_call(struct frames_call *c)
{
    free(c->in);
    free(c->weights);
    free(c->out);
    free(c->d_out);
    free(c->d_in);
    free(c->grads);
    free(c->adds);
}

static inline struct frames_call frames_call(struct frames *w, uint32_t stage, enum zinf_pass pass)
{
    const struct zinf_stage *s = &w->graph->stages[stage];
    uint32_t n_units = s->units.n + s->sweep.n;
    struct frames_call c = {
        .in = calloc(s->in.n, sizeof *c.in),
        .weights = calloc(n_units + 1, sizeof *c.weights),
        .out = calloc(s->out.n, sizeof *c.out),
        .d_out = calloc(s->out.n, sizeof *c.d_out),
        .d_in = calloc(s->in.n, sizeof *c.d_in),
        .grads = calloc(n_units + 1, sizeof *c.grads),
        .adds = calloc(s->in.n, sizeof *c.adds),
    };
    for (uint32_t i = 0; i < s->in.n; i++)
        c.in[i] = w->values[s->in.at[i]];
    for (uint32_t i = 0; i < s->out.n; i++) {
        c.out[i] = w->values[s->out.at[i]];
        c.d_out[i] = w->gradients[s->out.at[i]];
    }
    c.frame = (struct zinf_frame){
        .compute = &w->compute,
        .queue = w->queue,
        .graph = w->graph,
        .stage = s,
        .pass = pass,
        .n_visits = zinf_stage_visits(s),
        .in = c.in,
        .out = c.out,
        .d_out = c.d_out,
        .d_in = c.d_in,
        .d_in_adds = c.adds,
        .weights = c.weights,
        .grads = c.grads,
        .loss_scale = w->loss_scale,
        .mean_scale = 1,
        .kept = {.base = w->kept[stage]},
        .scratch = {.base = w->scratch},
    };
    return c;
}

/* Units of the stage that a call of this visit has, and their number. */
static inline uint32_t frames_units(const struct zinf_stage *s, enum zinf_pass pass, uint32_t visit,
                                    uint32_t *list)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->units.n; i++)
        list[n++] = s->units.at[i];
    for (uint32_t i = 0; i < s->sweep.n; i++)
        if (pass == ZINF_PASS_WHOLE || i == visit)
            list[n++] = s->sweep.at[i];
    return n;
}

/* A visit, with gradients where the pass makes them: added by the stage or by us if the unit has
 * some already. */
static inline void frames_visit(struct frames *w, struct frames_call *c, uint32_t visit)
{
    struct zinf_frame *f = &c->frame;
    bool makes = f->pass == ZINF_PASS_BACKWARD || f->pass == ZINF_PASS_WHOLE, adds = false;
    uint32_t list[4096], n = frames_units(f->stage, f->pass, visit, list), n_added = 0;
    f->visit = visit;
    f->grads_add = false;
    if (f->stage->choice.n) {
        f->chosen = w->chosen + f->n_visits + 1 + w->list[visit];
        f->n_chosen = w->list[visit + 1] - w->list[visit];
    }
    for (uint32_t i = 0; i < n; i++) {
        c->weights[i] = w->weights[list[i]];
        c->grads[i] = makes && w->graph->units[list[i]].trained ? w->grads[list[i]] : NULL;
        adds = c->grads[i] && w->written[list[i]];
        n_added += adds;
        if (adds && f->stage->ops->adds)
            f->grads_add = true;
        else if (adds)
            c->grads[i] = w->spare;
    }
    CHECK(n_added <= 1); /* one spare place, and no unit beside one that is added to */
    CHECK(!f->grads_add || n == 1);
    CHECKF(!zinf_stage_run(f), "%s: %s", f->stage->name, zinf_error());
    for (uint32_t i = 0; i < n; i++) {
        if (c->grads[i] == w->spare)
            CHECK(!w->device->ops->add(w->queue, w->grads[list[i]], w->spare,
                                       w->graph->units[list[i]].elems));
        w->written[list[i]] |= c->grads[i] != NULL;
    }
}

static inline void frames_gradients(struct frames *w, struct frames_call *c)
{
    const struct zinf_stage *s = c->frame.stage;
    for (uint32_t i = 0; i < s->in.n; i++) {
        uint32_t v = s->in.at[i];
        if (w->graph->values[v].gradient == ZINF_ELEMENT_NONE)
            continue;
        c->adds[i] = w->reached[v];
        if (!i && s->ops->passes && !w->apart && !w->reached[v])
            w->gradients[v] = c->d_out[0];
        c->d_in[i] = w->gradients[v];
        w->reached[v] = true;
    }
}

/* The list of the stage's choice, in both places. */
static inline void frames_choose(struct frames *w, const struct zinf_stage *s)
{
    uint64_t rows = zinf_rows_count(&w->compute, ZINF_ROWS_OF_TARGET);
    uint64_t bytes = rows * s->sweep.n * sizeof(float);
    float *value = malloc(bytes);
    frames_get(w, value, w->values[s->in.at[s->choice.of]], bytes);
    CHECKF(!zinf_choice_list(w->list, s, value, rows), "%s", zinf_error());
    frames_put(w, w->chosen, w->list, zinf_choice_length(s, rows) * sizeof *w->list);
    free(value);
}

static inline void frames_pass(struct frames *w, uint32_t stage, enum zinf_pass pass)
{
    struct frames_call c = frames_call(w, stage, pass);
    if (pass == ZINF_PASS_BACKWARD || pass == ZINF_PASS_WHOLE)
        frames_gradients(w, &c);
    uint32_t n_visits = pass == ZINF_PASS_WHOLE ? 1 : c.frame.n_visits;
    if (c.frame.stage->choice.n)
        frames_choose(w, c.frame.stage);
    for (uint32_t visit = 0; visit < n_visits; visit++)
        frames_visit(w, &c, visit);
    frames_free_call(&c);
}

/* Logits of one row, after a forward pass: [visits of the last stage][row_cols]. */
static inline void frames_row(struct frames *w, int64_t row, float *logits)
{
    const struct zinf_graph *g = w->graph;
    struct frames_call c = frames_call(w, g->n_stages - 1, ZINF_PASS_ROW);
    uint64_t bytes = (uint64_t)g->row_cols * sizeof(float);
    c.out[0] = w->spare; /* a unit's gradient is larger than a row of its logits */
    c.frame.row = row;
    for (uint32_t visit = 0; visit < c.frame.n_visits; visit++) {
        frames_visit(w, &c, visit);
        frames_get(w, logits + visit * (uint64_t)g->row_cols, w->spare, bytes);
    }
    frames_free_call(&c);
}

/* All stages forward; with w->whole the last one's backward as well. */
static inline void frames_forward(struct frames *w)
{
    uint32_t n = w->graph->n_stages;
    memset(w->reached, 0, w->graph->n_values * sizeof *w->reached);
    memset(w->written, 0, w->graph->n_units * sizeof *w->written);
    for (uint32_t s = 0; s < n; s++)
        frames_pass(w, s, s == n - 1 && w->whole ? ZINF_PASS_WHOLE : ZINF_PASS_FORWARD);
}

static inline void frames_backward(struct frames *w)
{
    for (uint32_t s = w->graph->n_stages - (w->whole ? 1 : 0); s-- > 0;) {
        if (w->recompute && w->graph->stages[s].ops->recomputes)
            frames_pass(w, s, ZINF_PASS_RECOMPUTE);
        frames_pass(w, s, ZINF_PASS_BACKWARD);
    }
    CHECKF(!w->device->ops->queue_synchronize(w->queue), "%s", zinf_error());
}

#endif

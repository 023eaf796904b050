/*
 * graph_plain: training as simply as can be: every value, gradient, weight and moment has memory of
 * its own and exactly as much as it should need, so that the address sanitizer sees whoever takes
 * more; one call after another, no gradient in another's place. Memory that a call is to fill
 * begins as NaN. What a trainer does must be this, bit for bit.
 *
 * The order of sums. Micro-batch by micro-batch: a unit's contributions are added in the order in
 * which backward makes them. Layer by layer: those of all micro-batches of one stage and visit are
 * first added to each other. Stages whose backward adds, and behind which no gradient flows, come
 * last, one contribution for all micro-batches of the step. A value's gradient is written by the
 * last of its consumers; those before it add.
 */
#ifndef ZINF_GRAPH_PLAIN_H
#define ZINF_GRAPH_PLAIN_H

#include "base/memory.h"
#include "cpu_optim/optim.h"
#include "model/frame.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

enum { PLAIN_MOST_UNITS = 4096, PLAIN_MOST_VALUES = 64 };

/* How it is done, which must not matter; but for layer_major where units are shared. */
struct plain_ways {
    bool layer_major;
    bool whole; /* the last stage in one pass where it has that */
    bool again; /* what can be made again is, instead of kept */
};
struct plain_unit {
    void *param;
    uint16_t *remainder; /* bf16 */
    float *moment1, *moment2, *sum, *part, *range;
    bool begun; /* sum has a contribution of this step */
};
struct plain {
    const struct zinf_graph *graph;
    struct plain_ways ways;
    struct zinf_device *device;
    struct zinf_queue *queue;
    struct zinf_compute compute;
    uint32_t n_micro;
    void **values, **gradients; /* [n_values][n_micro] */
    void **kept;                /* [n_stages][n_micro] */
    void *workspace;
    struct plain_unit *units;
    bool *flows;                              /* of values */
    bool *differentiates, *runs_last, **adds; /* of stages; [in.n] */
    struct zinf_optim_hyper hyper;
    float loss_scale;
    uint64_t n_applied;
};

/* ---- where gradients flow ---- */

static inline bool plain_trains(const struct zinf_graph *g, const struct zinf_ids *units)
{
    for (uint32_t i = 0; i < units->n; i++)
        if (g->units[units->at[i]].trained)
            return true;
    return false;
}

static inline void plain_find_flow(struct plain *p)
{
    const struct zinf_graph *g = p->graph;
    bool *written = calloc(g->n_values, sizeof *written);
    for (uint32_t s = 0; s < g->n_stages; s++) {
        const struct zinf_stage *stage = &g->stages[s];
        bool wanted = plain_trains(g, &stage->units) || plain_trains(g, &stage->sweep);
        for (uint32_t i = 0; i < stage->in.n; i++)
            wanted = wanted || p->flows[stage->in.at[i]];
        p->differentiates[s] = wanted;
        for (uint32_t i = 0; i < stage->out.n; i++)
            p->flows[stage->out.at[i]] =
                wanted && g->values[stage->out.at[i]].gradient != ZINF_ELEMENT_NONE;
    }
    for (uint32_t s = g->n_stages; s-- > 0;) {
        const struct zinf_stage *stage = &g->stages[s];
        bool inner = false;
        p->adds[s] = calloc(stage->in.n, sizeof *p->adds[s]);
        for (uint32_t i = 0; p->differentiates[s] && i < stage->in.n; i++) {
            uint32_t v = stage->in.at[i];
            inner = inner || p->flows[v];
            p->adds[s][i] = written[v];
            written[v] = written[v] || p->flows[v];
        }
        p->runs_last[s] = p->differentiates[s] && !inner && stage->ops->adds;
    }
    free(written);
}

/* ---- memory ---- */

/* Aligned as what a drive reads; NaN. Never NULL. */
static inline void *plain_take(uint64_t bytes)
{
    void *memory = NULL;
    if (posix_memalign(&memory, ZINF_MEMORY_ALIGN, bytes ? bytes : 1))
        abort();
    memset(memory, 0xff, bytes);
    return memory;
}

static inline uint64_t plain_spoil(void *memory, uint64_t bytes)
{
    memset(memory, 0xff, bytes);
    return bytes;
}

static inline struct zinf_stage_size plain_measure(struct plain *p, uint32_t s, enum zinf_pass pass)
{
    struct zinf_stage_size size;
    CHECKF(!zinf_stage_measure(&size, &p->compute, p->graph, s, pass), "%s", zinf_error());
    return size;
}

static inline void plain_take_values(struct plain *p)
{
    const struct zinf_graph *g = p->graph;
    for (uint32_t v = 0; v < g->n_values; v++)
        for (uint32_t m = 0; m < p->n_micro; m++) {
            p->values[v * p->n_micro + m] =
                plain_take(zinf_value_bytes(&p->compute, &g->values[v]));
            p->gradients[v * p->n_micro + m] =
                plain_take(zinf_value_gradient_bytes(&p->compute, &g->values[v]));
        }
}

static inline void plain_take_units(struct plain *p)
{
    for (uint32_t u = 0; u < p->graph->n_units; u++) {
        const struct zinf_unit *unit = &p->graph->units[u];
        struct plain_unit *own = &p->units[u];
        uint64_t bytes = unit->elems * sizeof(float);
        own->param = plain_take(unit->elems * zinf_dtype_bytes(p->compute.dtype));
        own->remainder = plain_take(unit->elems * sizeof *own->remainder);
        float **const floats[] = {&own->moment1, &own->moment2, &own->sum, &own->part, &own->range};
        for (int i = 0; i < 5; i++)
            *floats[i] = plain_take(bytes);
        memset(own->moment1, 0, bytes);
        memset(own->moment2, 0, bytes);
    }
}

static inline void plain_take_stages(struct plain *p)
{
    uint64_t workspace = 0;
    for (uint32_t s = 0; s < p->graph->n_stages; s++) {
        const struct zinf_stage_ops *ops = p->graph->stages[s].ops;
        for (enum zinf_pass pass = 0; pass <= ZINF_PASS_WHOLE; pass++) {
            if (pass == ZINF_PASS_WHOLE && !ops->whole)
                continue;
            struct zinf_stage_size size = plain_measure(p, s, pass);
            workspace = size.workspace > workspace ? size.workspace : workspace;
            if (pass == ZINF_PASS_FORWARD)
                for (uint32_t m = 0; m < p->n_micro; m++)
                    p->kept[s * p->n_micro + m] = plain_take(size.kept);
        }
    }
    p->workspace = plain_take(workspace);
    p->device->ops->queue_set_workspace(p->queue, p->workspace, workspace);
}

/* What is set before: graph, ways, compute but device, n_micro, hyper. */
static inline void plain_open(struct plain *p)
{
    const struct zinf_graph *g = p->graph;
    struct zinf_device_options options = {.kind = ZINF_DEVICE_HOST, .n_threads = 1};
    CHECKF(!zinf_device_create(&p->device, &options), "%s", zinf_error());
    CHECK(!p->device->ops->queue_create(p->device, ZINF_QUEUE_COMPUTE, &p->queue));
    p->compute.device = p->device;
    p->values = calloc(g->n_values * p->n_micro, sizeof *p->values);
    p->gradients = calloc(g->n_values * p->n_micro, sizeof *p->gradients);
    p->kept = calloc(g->n_stages * p->n_micro, sizeof *p->kept);
    p->units = calloc(g->n_units, sizeof *p->units);
    p->flows = calloc(g->n_values, sizeof *p->flows);
    p->differentiates = calloc(g->n_stages, sizeof *p->differentiates);
    p->runs_last = calloc(g->n_stages, sizeof *p->runs_last);
    p->adds = calloc(g->n_stages, sizeof *p->adds);
    plain_find_flow(p);
    plain_take_values(p);
    plain_take_units(p);
    plain_take_stages(p);
}

static inline void plain_free(void **list, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        free(list[i]);
    free(list);
}

static inline void plain_close(struct plain *p)
{
    const struct zinf_graph *g = p->graph;
    plain_free(p->values, g->n_values * p->n_micro);
    plain_free(p->gradients, g->n_values * p->n_micro);
    plain_free(p->kept, g->n_stages * p->n_micro);
    plain_free((void **)p->adds, g->n_stages);
    for (uint32_t u = 0; u < g->n_units; u++) {
        struct plain_unit *own = &p->units[u];
        void *const all[] = {own->param, own->remainder, own->moment1, own->moment2,
                             own->sum,   own->part,      own->range};
        for (int i = 0; i < 7; i++)
            free(all[i]);
    }
    free(p->units);
    free(p->flows);
    free(p->differentiates);
    free(p->runs_last);
    free(p->workspace);
    p->device->ops->queue_destroy(p->queue);
    zinf_device_destroy(p->device);
}

/* A unit's flat buffer, gaps zero. */
static inline void plain_set_weights(struct plain *p, uint32_t unit, const float *flat)
{
    struct plain_unit *own = &p->units[unit];
    uint64_t n = p->graph->units[unit].elems;
    if (p->compute.dtype == ZINF_DTYPE_BF16)
        zinf_optim_split(own->param, own->remainder, flat, n, 1);
    else
        memcpy(own->param, flat, n * sizeof *flat);
}

/* Of what is trained the masters, else the parameters as floats; the caller's. */
static inline float *plain_get_weights(const struct plain *p, uint32_t unit)
{
    const struct plain_unit *own = &p->units[unit];
    uint64_t n = p->graph->units[unit].elems;
    float *flat = plain_take(n * sizeof *flat);
    if (p->compute.dtype == ZINF_DTYPE_F32)
        memcpy(flat, own->param, n * sizeof *flat);
    else if (p->graph->units[unit].trained)
        zinf_optim_join(flat, own->param, own->remainder, n, 1);
    else
        zinf_convert(flat, ZINF_DTYPE_F32, own->param, p->compute.dtype, n);
    return flat;
}

/* [n_micro][rows] of every input of this kind. */
static inline void plain_set_input(struct plain *p, enum zinf_input input, const int32_t *ids)
{
    for (uint32_t v = 0; v < p->graph->n_values; v++) {
        uint64_t bytes = zinf_value_bytes(&p->compute, &p->graph->values[v]);
        for (uint32_t m = 0; p->graph->values[v].input == input && m < p->n_micro; m++)
            memcpy(p->values[v * p->n_micro + m], ids + m * bytes / sizeof *ids, bytes);
    }
}

/* ---- one call ---- */

struct plain_call {
    uint32_t stage, visit, micro;
    enum zinf_pass pass;
    bool adds; /* to gradients that are there */
};

/* Units of the call, in a frame's order. */
static inline uint32_t plain_units(const struct plain *p, const struct plain_call *c,
                                   uint32_t list[PLAIN_MOST_UNITS])
{
    const struct zinf_stage *stage = &p->graph->stages[c->stage];
    uint32_t n = 0;
    for (uint32_t i = 0; i < stage->units.n; i++)
        list[n++] = stage->units.at[i];
    for (uint32_t i = 0; i < stage->sweep.n; i++)
        if (c->pass == ZINF_PASS_WHOLE || i == c->visit)
            list[n++] = stage->sweep.at[i];
    return n;
}

static inline bool plain_is_backward(const struct plain_call *c)
{
    return c->pass == ZINF_PASS_BACKWARD || c->pass == ZINF_PASS_WHOLE;
}

/* The rows that chose the call's visit; the list is the caller's. */
static inline int32_t *plain_choose(const struct plain *p, const struct plain_call *c,
                                    struct zinf_frame *f)
{
    const struct zinf_stage *stage = f->stage;
    uint64_t rows = zinf_rows_count(&p->compute, ZINF_ROWS_OF_TARGET);
    int32_t *list = plain_take(zinf_choice_length(stage, rows) * sizeof *list);
    if (!stage->choice.n)
        return list;
    CHECKF(!zinf_choice_list(list, stage, f->in[stage->choice.of], rows), "%s", zinf_error());
    f->chosen = list + f->n_visits + 1 + list[c->visit];
    f->n_chosen = list[c->visit + 1] - list[c->visit];
    return list;
}

/* Gradients go to the units' parts. */
static inline void plain_run(struct plain *p, const struct plain_call *c)
{
    const struct zinf_stage *stage = &p->graph->stages[c->stage];
    static uint32_t units[PLAIN_MOST_UNITS];
    static const void *weights[PLAIN_MOST_UNITS];
    static float *grads[PLAIN_MOST_UNITS];
    const void *in[PLAIN_MOST_VALUES];
    void *out[PLAIN_MOST_VALUES], *d_out[PLAIN_MOST_VALUES], *d_in[PLAIN_MOST_VALUES];
    uint32_t n = plain_units(p, c, units);
    bool backward = plain_is_backward(c);
    for (uint32_t i = 0; i < n; i++) {
        struct plain_unit *own = &p->units[units[i]];
        const struct zinf_unit *unit = &p->graph->units[units[i]];
        weights[i] = own->param;
        grads[i] = backward && unit->trained ? own->part : NULL;
        if (grads[i] && !c->adds)
            plain_spoil(own->part, unit->elems * sizeof(float));
    }
    for (uint32_t i = 0; i < stage->in.n; i++) {
        uint32_t v = stage->in.at[i], at = v * p->n_micro + c->micro;
        in[i] = p->values[at];
        d_in[i] = backward && p->flows[v] ? p->gradients[at] : NULL;
    }
    for (uint32_t i = 0; i < stage->out.n; i++) {
        uint32_t v = stage->out.at[i], at = v * p->n_micro + c->micro;
        out[i] = c->pass == ZINF_PASS_RECOMPUTE ? NULL : p->values[at];
        d_out[i] = backward && p->flows[v] ? p->gradients[at] : NULL;
    }
    struct zinf_compute compute = p->compute;
    compute.first_sample = (uint64_t)c->micro * (uint64_t)compute.batch;
    uint64_t scratch_bytes = plain_measure(p, c->stage, c->pass).scratch;
    void *scratch = plain_take(scratch_bytes);
    struct zinf_frame f = {
        .compute = &compute,
        .queue = p->queue,
        .graph = p->graph,
        .stage = stage,
        .pass = c->pass,
        .visit = c->visit,
        .n_visits = zinf_stage_visits(stage),
        .in = in,
        .out = out,
        .d_out = d_out,
        .d_in = d_in,
        .d_in_adds = p->adds[c->stage],
        .weights = weights,
        .grads = grads,
        .grads_add = c->adds,
        .loss_scale = p->loss_scale,
        .kept = {.base = p->kept[c->stage * p->n_micro + c->micro]},
        .scratch = {.base = scratch},
    };
    int32_t *list = plain_choose(p, c, &f);
    CHECKF(!zinf_stage_run(&f), "%s: %s", stage->name, zinf_error());
    CHECK(!p->device->ops->queue_synchronize(p->queue));
    free(list);
    free(scratch);
}

/* ---- a step ---- */

/* What `from` holds of the call's units is added to what they have. */
static inline void plain_contribute(struct plain *p, const struct plain_call *c, bool range)
{
    static uint32_t units[PLAIN_MOST_UNITS];
    uint32_t n = plain_units(p, c, units);
    for (uint32_t i = 0; i < n; i++) {
        struct plain_unit *own = &p->units[units[i]];
        const struct zinf_unit *unit = &p->graph->units[units[i]];
        const float *from = range ? own->range : own->part;
        if (!unit->trained)
            continue;
        if (own->begun)
            zinf_optim_accumulate(own->sum, from, ZINF_DTYPE_F32, unit->elems, 1);
        else
            memcpy(own->sum, from, unit->elems * sizeof *from);
        own->begun = true;
    }
}

/* The part of a micro-batch joins the range. */
static inline void plain_join(struct plain *p, const struct plain_call *c, bool first)
{
    static uint32_t units[PLAIN_MOST_UNITS];
    uint32_t n = plain_units(p, c, units);
    for (uint32_t i = 0; i < n; i++) {
        struct plain_unit *own = &p->units[units[i]];
        uint64_t elems = p->graph->units[units[i]].elems;
        if (!p->graph->units[units[i]].trained)
            continue;
        if (first)
            memcpy(own->range, own->part, elems * sizeof(float));
        else
            zinf_optim_accumulate(own->range, own->part, ZINF_DTYPE_F32, elems, 1);
    }
}

static inline bool plain_runs_whole(const struct plain *p, uint32_t s)
{
    return p->ways.whole && p->differentiates[s] && p->graph->stages[s].ops->whole;
}

static inline void plain_forward(struct plain *p, uint32_t s, uint32_t m)
{
    struct plain_call c = {s, 0, m, ZINF_PASS_FORWARD, false};
    if (plain_runs_whole(p, s)) {
        c.pass = ZINF_PASS_WHOLE;
        plain_run(p, &c);
        plain_contribute(p, &c, false);
        return;
    }
    for (; c.visit < zinf_stage_visits(&p->graph->stages[s]); c.visit++)
        plain_run(p, &c);
}

static inline void plain_backward_visit(struct plain *p, const struct plain_call *c)
{
    bool again = p->ways.again && p->graph->stages[c->stage].ops->recomputes;
    struct plain_call recompute = *c;
    recompute.pass = ZINF_PASS_RECOMPUTE;
    if (again) {
        plain_spoil(p->kept[c->stage * p->n_micro + c->micro],
                    plain_measure(p, c->stage, ZINF_PASS_FORWARD).kept);
        plain_run(p, &recompute);
    }
    plain_run(p, c);
}

/* Of micro-batches [first, end), which make one contribution a unit and visit. */
static inline void plain_backward(struct plain *p, uint32_t s, uint32_t first, uint32_t end,
                                  bool last)
{
    struct plain_call c = {s, 0, first, ZINF_PASS_BACKWARD, false};
    for (; c.visit < zinf_stage_visits(&p->graph->stages[s]); c.visit++) {
        for (c.micro = first; c.micro < end; c.micro++) {
            c.adds = last && c.micro > first;
            plain_backward_visit(p, &c);
            if (!last)
                plain_join(p, &c, c.micro == first);
        }
        c.micro = first;
        plain_contribute(p, &c, !last);
    }
}

static inline void plain_range(struct plain *p, uint32_t first, uint32_t end)
{
    uint32_t n = p->graph->n_stages;
    for (uint32_t s = 0; s < n; s++)
        for (uint32_t m = first; m < end; m++)
            plain_forward(p, s, m);
    for (uint32_t s = n; s-- > 0;)
        if (p->differentiates[s] && !p->runs_last[s] && !plain_runs_whole(p, s))
            plain_backward(p, s, first, end, false);
}

static inline void plain_begin(struct plain *p, uint64_t n_targets)
{
    p->loss_scale = (float)(1.0 / (double)n_targets);
    for (uint32_t u = 0; u < p->graph->n_units; u++)
        p->units[u].begun = false;
    for (uint32_t v = 0; v < p->graph->n_values; v++)
        for (uint32_t m = 0; m < p->n_micro; m++) {
            const struct zinf_value *value = &p->graph->values[v];
            if (value->kind != ZINF_VALUE_INPUT)
                plain_spoil(p->values[v * p->n_micro + m], zinf_value_bytes(&p->compute, value));
            plain_spoil(p->gradients[v * p->n_micro + m],
                        zinf_value_gradient_bytes(&p->compute, value));
        }
}

/* Inputs are set. Leaves the gradients in the units' sums; returns the mean loss. */
static inline double plain_gradients(struct plain *p, uint64_t n_targets)
{
    double sum = 0;
    uint64_t rows = (uint64_t)(p->compute.batch * p->compute.seq);
    plain_begin(p, n_targets);
    for (uint32_t m = 0; !p->ways.layer_major && m < p->n_micro; m++)
        plain_range(p, m, m + 1);
    if (p->ways.layer_major)
        plain_range(p, 0, p->n_micro);
    for (uint32_t s = p->graph->n_stages; s-- > 0;)
        if (p->runs_last[s])
            plain_backward(p, s, 0, p->n_micro, true);
    for (uint32_t m = 0; m < p->n_micro; m++)
        for (uint64_t i = 0; i < rows; i++)
            sum += (double)((const float *)p->values[p->graph->loss * p->n_micro + m])[i];
    return sum / (double)n_targets;
}

/* Of all sums. A trainer's may differ in the last digit, since it adds up by sub-groups. */
static inline double plain_norm(const struct plain *p)
{
    double sum = 0;
    for (uint32_t u = 0; u < p->graph->n_units; u++)
        if (p->graph->units[u].trained)
            sum += zinf_optim_sum_squares(p->units[u].sum, ZINF_DTYPE_F32, p->graph->units[u].elems,
                                          1);
    return sqrt(sum);
}

static inline void plain_update(struct plain *p, double norm, double limit)
{
    double clip = limit > 0 ? fmax(1, (norm + 1e-6) / limit) : 1;
    uint64_t width = zinf_dtype_bytes(p->compute.dtype);
    bool split = p->compute.dtype == ZINF_DTYPE_BF16;
    p->hyper.step = ++p->n_applied;
    for (uint32_t u = 0; u < p->graph->n_units; u++) {
        const struct zinf_unit *unit = &p->graph->units[u];
        struct plain_unit *own = &p->units[u];
        for (int part = 0; unit->trained && part < 2; part++) {
            uint64_t first = part ? unit->decay_elems : 0;
            struct zinf_optim_hyper hyper = p->hyper;
            char *param = (char *)own->param + first * width;
            struct zinf_optim_array array = {
                .n = part ? unit->elems - first : unit->decay_elems,
                .master = split ? NULL : (float *)(void *)param,
                .remainder = split ? own->remainder + first : NULL,
                .param = split ? param : NULL,
                .param_dtype = p->compute.dtype,
                .moment1 = own->moment1 + first,
                .moment2 = own->moment2 + first,
                .grad = own->sum + first,
                .grad_dtype = ZINF_DTYPE_F32,
                .grad_scale = (float)(1 / clip),
            };
            hyper.weight_decay = part ? 0 : hyper.weight_decay;
            CHECKF(!zinf_optim_step(&hyper, &array, 1), "%s", zinf_error());
        }
    }
    p->compute.step++;
}

#endif

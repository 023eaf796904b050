/*
 * graph_stages: cheap kinds of stages for random models. Each does what real ones do in some
 * combination: several inputs, any number of units at hand and of tensors in them, what can be made
 * again and what must be kept, gradients in place or apart, a sweep that carries its output.
 *
 *   mix      out = in[0] + sum over terms of linear(in[term]), or of the input itself where the
 *            term has no weights; curved: the first two terms are linear(gelu(linear(in[0])))
 *   experts  out = in[0] + sum over the sweep's units of (linear(in[0]) + sum over the units at
 *            hand of linear(in[0])): what is at hand is used once a visit
 */
#ifndef ZINF_GRAPH_STAGES_H
#define ZINF_GRAPH_STAGES_H

#include "model/frame.h"

struct mix_term {
    uint32_t in;      /* of the stage */
    uint32_t unit;    /* of those at hand */
    int weight, bias; /* tensors; -1: none */
};
struct mix_spec {
    bool curved;  /* with terms 0 and 1 of in[0] and with weights */
    bool partial; /* some tensors of the units are in no term: their gradient is zero */
    uint32_t n_terms;
    struct mix_term terms[]; /* [n_terms] */
};
/* By what the device keeps and where gradients go. */
enum mix_kind {
    MIX_AGAIN = 1,    /* what it keeps can be made again */
    MIX_IN_PLACE = 2, /* passes its first gradient on in place */
    MIX_KINDS = 4,
};

/* All values of these graphs have as many columns as the output. */
static inline uint64_t stage_elems(const struct zinf_frame *f)
{
    return (uint64_t)frame_rows(f) * (uint64_t)f->graph->values[f->stage->in.at[0]].cols;
}

static inline uint64_t stage_bytes(const struct zinf_frame *f)
{
    return stage_elems(f) * frame_width(f);
}

/* y = x + r, in place allowed */
static inline int stage_add(struct zinf_frame *f, void *y, const void *x, const void *r)
{
    struct zinf_residual args = {
        .dtype = f->compute->dtype, .n = (int64_t)stage_elems(f), .x = x, .r = r, .y = y};
    return frame_residual(f, &args);
}

static inline struct frame_linear linear_of(const struct mix_term *t)
{
    return (struct frame_linear){.unit = t->unit, .weight = t->weight, .bias = t->bias};
}

/* ---- mix ---- */

static inline int mix_forward(struct zinf_frame *f)
{
    const struct mix_spec *s = f->stage->spec;
    uint64_t bytes = stage_bytes(f);
    void *bent = s->curved ? frame_keep(f, bytes) : NULL, *y = f->out[0];
    struct frame_linear first = s->curved ? linear_of(&s->terms[0]) : (struct frame_linear){0};
    int code = s->curved ? frame_linear(f, &first, f->in[0], bent) : 0;
    if (code || f->pass == ZINF_PASS_RECOMPUTE)
        return code;
    void *part = frame_scratch(f, bytes), *x = frame_scratch(f, bytes);
    if (s->curved)
        code = frame_activation(f, ZINF_ACTIVATION_GELU_TANH, bent, x, stage_elems(f));
    if (!code)
        code = frame_copy(f, y, f->in[0], bytes);
    for (uint32_t i = s->curved; !code && i < s->n_terms; i++) {
        const struct mix_term *t = &s->terms[i];
        const void *from = s->curved && i == 1 ? x : f->in[t->in];
        struct frame_linear linear = linear_of(t);
        if (t->weight >= 0)
            code = frame_linear(f, &linear, from, part);
        if (!code)
            code = stage_add(f, y, y, t->weight >= 0 ? part : from);
    }
    return code;
}

/* What backward adds up for in[0]: it may lie where the gradient of out is still needed. */
struct mix_sum {
    void *at;
    bool begun;
};

/* dx is added to the gradient of an input, which in[0] has in sum. */
static inline int mix_give(struct zinf_frame *f, struct mix_sum *sum, bool *begun, uint32_t in,
                           const void *dx)
{
    void *to = in ? f->d_in[in] : sum->at;
    bool *has = in ? &begun[in] : &sum->begun;
    int code = *has ? stage_add(f, to, to, dx) : frame_copy(f, to, dx, stage_bytes(f));
    *has = true;
    return code;
}

/* Terms 0 and 1: out += linear_1(gelu(bent)), bent = linear_0(in[0]). */
static inline int mix_curved_backward(struct zinf_frame *f, const void *bent, struct mix_sum *sum)
{
    const struct mix_spec *s = f->stage->spec;
    uint64_t bytes = stage_bytes(f), mark = frame_mark(f);
    struct frame_linear up = linear_of(&s->terms[0]), down = linear_of(&s->terms[1]);
    void *d_gelu = frame_scratch(f, bytes), *d_bent = frame_scratch(f, bytes);
    void *gelu = frame_scratch(f, bytes);
    int code = frame_linear_backward_input(f, &down, f->d_out[0], d_gelu);
    if (!code)
        code = frame_activation_backward(f, ZINF_ACTIVATION_GELU_TANH, d_gelu, bent, d_bent, gelu,
                                         stage_elems(f));
    if (!code)
        code = frame_linear_backward_weight(f, &down, f->d_out[0], gelu);
    if (!code)
        code = frame_linear_backward_weight(f, &up, d_bent, f->in[0]);
    if (!code && f->d_in[0])
        code = frame_linear_backward_input(f, &up, d_bent, d_gelu);
    if (!code && f->d_in[0])
        code = mix_give(f, sum, NULL, 0, d_gelu);
    frame_release(f, mark);
    return code;
}

/* in[0] gets the gradient of out and the sum. */
static inline int mix_finish(struct zinf_frame *f, const struct mix_sum *sum)
{
    void *to = f->d_in[0];
    const void *d_out = f->d_out[0];
    int code = 0;
    if (!to)
        return 0;
    if (sum->begun)
        code = stage_add(f, sum->at, d_out, sum->at);
    if (f->d_in_adds[0])
        return code ? code : stage_add(f, to, to, sum->begun ? sum->at : d_out);
    if (sum->begun)
        return code ? code : frame_copy(f, to, sum->at, stage_bytes(f));
    return to == d_out ? 0 : frame_copy(f, to, d_out, stage_bytes(f));
}

static inline int mix_backward(struct zinf_frame *f)
{
    const struct mix_spec *s = f->stage->spec;
    uint64_t bytes = stage_bytes(f);
    void *bent = s->curved ? frame_keep(f, bytes) : NULL;
    struct mix_sum sum = {frame_scratch(f, bytes), false};
    void *part = frame_scratch(f, bytes);
    bool begun[16];
    int code = 0;
    for (uint32_t i = 0; i < f->stage->in.n; i++)
        begun[i] = f->d_in_adds[i];
    for (uint32_t u = 0; !code && u < f->stage->units.n; u++)
        code = s->partial ? frame_zero_grads(f, u) : frame_zero_gaps(f, u);
    if (!code && s->curved)
        code = mix_curved_backward(f, bent, &sum);
    for (uint32_t i = s->curved ? 2 : 0; !code && i < s->n_terms; i++) {
        const struct mix_term *t = &s->terms[i];
        struct frame_linear linear = linear_of(t);
        if (t->weight >= 0)
            code = frame_linear_backward_weight(f, &linear, f->d_out[0], f->in[t->in]);
        if (code || !f->d_in[t->in])
            continue;
        if (t->weight >= 0)
            code = frame_linear_backward_input(f, &linear, f->d_out[0], part);
        if (!code)
            code = mix_give(f, &sum, begun, t->in, t->weight >= 0 ? part : f->d_out[0]);
    }
    return code ? code : mix_finish(f, &sum);
}

static const struct zinf_stage_ops mix_ops[MIX_KINDS] = {
    [0] = {.name = "mix", .forward = mix_forward, .backward = mix_backward},
    [MIX_AGAIN] = {.name = "mix again",
                   .recomputes = true,
                   .forward = mix_forward,
                   .backward = mix_backward},
    [MIX_IN_PLACE] = {.name = "mix in place",
                      .passes = true,
                      .forward = mix_forward,
                      .backward = mix_backward},
    [MIX_AGAIN | MIX_IN_PLACE] = {.name = "mix again in place",
                                  .recomputes = true,
                                  .passes = true,
                                  .forward = mix_forward,
                                  .backward = mix_backward},
};

/* ---- experts ---- */

/* Unit `unit` of the frame, as a term of in[0]. */
static inline struct frame_linear expert_linear(const struct zinf_frame *f, uint32_t unit)
{
    return (struct frame_linear){
        .unit = unit, .weight = 0, .bias = frame_unit(f, unit)->n_tensors > 1 ? 1 : -1};
}

static inline int experts_forward(struct zinf_frame *f)
{
    uint64_t bytes = stage_bytes(f);
    void *x = frame_keep(f, bytes), *part = frame_scratch(f, bytes);
    int code = f->visit ? 0 : frame_copy(f, x, f->in[0], bytes);
    if (!code && !f->visit)
        code = frame_copy(f, f->out[0], x, bytes);
    for (uint32_t u = 0; !code && u <= f->stage->units.n; u++) {
        struct frame_linear linear = expert_linear(f, u);
        code = frame_linear(f, &linear, x, part);
        if (!code)
            code = stage_add(f, f->out[0], f->out[0], part);
    }
    return code;
}

static inline int experts_backward(struct zinf_frame *f)
{
    uint64_t bytes = stage_bytes(f);
    const void *x = frame_keep(f, bytes), *dy = f->d_out[0];
    void *part = frame_scratch(f, bytes), *dx = f->d_in[0];
    int code = 0;
    if (!f->visit && dx)
        code = f->d_in_adds[0] ? stage_add(f, dx, dx, dy) : frame_copy(f, dx, dy, bytes);
    for (uint32_t u = 0; !code && u <= f->stage->units.n; u++) {
        struct frame_linear linear = expert_linear(f, u);
        code = frame_zero_gaps(f, u);
        if (!code)
            code = frame_linear_backward_weight(f, &linear, dy, x);
        if (!code && dx)
            code = frame_linear_backward_input(f, &linear, dy, part);
        if (!code && dx)
            code = stage_add(f, dx, dx, part);
    }
    return code;
}

static const struct zinf_stage_ops experts_ops = {
    .name = "experts", .forward = experts_forward, .backward = experts_backward};

#endif

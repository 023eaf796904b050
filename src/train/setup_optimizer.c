/*
 * setup_optimizer: which optimizer the configuration names, how its moments are kept, and what the
 * state of a sub-group takes. Adafactor's tensors must be whole: a unit is one sub-group then, and
 * the vocabulary matrix one unit.
 */
#include "train/setup.h"

#include <stdlib.h>

#define FACTOR_ALIGN 16 /* floats: each vector of moments has its own cache lines */

static const struct {
    const char *type;
    enum zinf_optim_kind kind;
    enum moment_form moments;
} optimizers[] = {
    {"AdamW", ZINF_OPTIM_ADAMW, MOMENTS_F32},
    {"Adam", ZINF_OPTIM_ADAM, MOMENTS_F32},
    {"Lion", ZINF_OPTIM_LION, MOMENTS_F32},
    {"Adagrad", ZINF_OPTIM_ADAGRAD, MOMENTS_F32},
    {"SGD", ZINF_OPTIM_SGD, MOMENTS_F32},
    {"AdamW8bit", ZINF_OPTIM_ADAMW, MOMENTS_8BIT},
    {"Adafactor", ZINF_OPTIM_KINDS, MOMENTS_FACTORED},
};

int setup_optimizer(struct setup *s)
{
    const struct zinf_config_optimizer *o = &s->config->optimizer;
    size_t i = 0, n = sizeof optimizers / sizeof *optimizers;
    while (i < n && strcmp(optimizers[i].type, o->type))
        i++;
    if (i == n)
        return zinf_fail(-ENOTSUP,
                         "optimizer.type \"%s\" is not supported; use AdamW, Adam, Lion, Adagrad, "
                         "SGD, Adafactor or AdamW8bit",
                         o->type);
    s->moments = optimizers[i].moments;
    s->hyper = (struct zinf_optim_hyper){
        .kind = optimizers[i].kind,
        .lr = (float)o->lr,
        .beta1 = (float)(optimizers[i].kind == ZINF_OPTIM_SGD ? o->momentum : o->beta1),
        .beta2 = (float)o->beta2,
        .eps = (float)o->eps,
        .weight_decay = (float)o->weight_decay,
        .bias_correction = o->bias_correction,
    };
    if (s->hyper.kind == ZINF_OPTIM_ADAM && o->decoupled)
        s->hyper.kind = ZINF_OPTIM_ADAMW;
    s->whole_state = data_axis(s)->net && s->moments == MOMENTS_FACTORED;
    if (s->moments == MOMENTS_FACTORED && s->sliced)
        return zinf_fail(-ENOTSUP,
                         "optimizer.type Adafactor needs whole tensors, and at "
                         "zero_optimization.stage 3 %u ranks have slices: set stage to 2, train on "
                         "one, or use AdamW8bit, whose state is small too",
                         data_axis(s)->world);
    return 0;
}

int setup_n_moments(const struct setup *s)
{
    return s->moments == MOMENTS_FACTORED ? 2 : zinf_optim_n_moments(s->hyper.kind);
}

/* ---- where moments are in a state ---- */

uint64_t setup_moments_offset(const struct setup *s, uint64_t n)
{
    return zinf_state_bytes(s->form, 0, n);
}

uint64_t setup_scales_offset(const struct setup *s, uint64_t n)
{
    return setup_moments_offset(s, n) + (uint64_t)setup_n_moments(s) * n;
}

static uint64_t padded(uint64_t floats)
{
    return zinf_align_up(floats, FACTOR_ALIGN);
}

static uint64_t factor_floats(const struct factors *f)
{
    return (f->rows > 1 ? padded(f->rows) : 0) + padded(f->cols);
}

struct factors unit_factors(const struct zinf_unit *unit, uint32_t tensor)
{
    struct factors f = {0};
    uint64_t at = 0;
    for (uint32_t i = 0; i <= tensor; i++) {
        const struct zinf_tensor *spec = &unit->tensors[i];
        bool matrix = spec->rank == 2;
        at += factor_floats(&f);
        f.rows = matrix ? spec->rows : 1;
        f.cols = spec->elems / f.rows;
        f.row_offset = at;
        f.col_offset = at + (f.rows > 1 ? padded(f.rows) : 0);
    }
    return f;
}

bool setup_device_steps(const struct setup *s)
{
    return (s->hyper.kind == ZINF_OPTIM_ADAMW || s->hyper.kind == ZINF_OPTIM_ADAM) &&
           s->moments == MOMENTS_F32;
}

bool setup_shares_updates(const struct setup *s)
{
    return s->offers_updates && trains(s) && !s->durable && device_is_far(s) &&
           setup_device_steps(s);
}

/* ---- what a state takes ---- */

static uint64_t state_bytes(const struct setup *s, const struct zinf_layout_group *g)
{
    const struct zinf_unit *unit = &s->graph->units[g->unit];
    uint64_t bytes = zinf_state_bytes(s->form, setup_n_moments(s), g->n);
    if (s->moments == MOMENTS_8BIT) {
        uint64_t scales = g->n / ZINF_OPTIM_8BIT_BLOCK * sizeof(float);
        bytes = setup_scales_offset(s, g->n) + (uint64_t)setup_n_moments(s) * scales;
    } else if (s->moments == MOMENTS_FACTORED) {
        struct factors last = unit_factors(unit, unit->n_tensors - 1);
        uint64_t floats = last.col_offset + padded(last.cols);
        bytes = setup_moments_offset(s, g->n) + floats * sizeof(float);
    }
    return zinf_align_up(bytes, ZINF_MEMORY_ALIGN);
}

/* Adafactor's workspace is that of its largest tensor. */
static uint64_t workspace_bytes(const struct setup *s)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < s->n_units; u++) {
        const struct zinf_unit *unit = &s->graph->units[u];
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            struct factors f = unit_factors(unit, i);
            uint64_t bytes = zinf_adafactor_workspace_bytes(f.rows, f.cols);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

int setup_state_bytes(struct setup *s)
{
    s->state_bytes = calloc(s->layout.n_groups ? s->layout.n_groups : 1, sizeof *s->state_bytes);
    if (!s->state_bytes)
        return zinf_fail(-ENOMEM, "no memory for %u sub-groups", s->layout.n_groups);
    for (uint32_t g = 0; trains(s) && g < s->layout.n_groups; g++)
        if (unit_trains(s, s->layout.groups[g].unit))
            s->state_bytes[g] = state_bytes(s, &s->layout.groups[g]);
    if (trains(s) && s->moments == MOMENTS_FACTORED)
        s->update_bytes = workspace_bytes(s);
    return 0;
}

uint64_t setup_unit_state_bytes(const struct setup *s, uint32_t unit)
{
    const struct zinf_layout_unit *u = &s->layout.units[unit];
    uint64_t bytes = 0;
    for (uint32_t g = u->first_group; g < u->first_group + u->n_groups; g++)
        bytes += s->state_bytes[g];
    return bytes;
}

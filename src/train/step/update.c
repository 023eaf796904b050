/*
 * update: one sub-group's step, on arrays in the form of its state. What two generations or a tile
 * put elsewhere is copied first and then updated in place.
 */
#include "train/setup_rates.h"
#include "train/trainer.h"

static void *at(const struct zinf_op *op, int operand)
{
    return zinf_address(&op->at[operand]);
}

/* Where an update's masters are, by the form of the state: the parameters themselves, their lower
 * halves, or beside them. From element `first` of the sub-group, or of the unit that it is, on. */
struct masters {
    void *param;
    uint16_t *remainder;
    float *master;
};

static struct masters masters_of(const struct zinf_trainer *t, const struct zinf_op *op,
                                 uint64_t first)
{
    char *own = (char *)at(op, 3) + first * zinf_dtype_bytes(t->setup.dtype);
    if (t->setup.form == ZINF_STATE_BARE)
        return (struct masters){.master = (float *)(void *)own};
    if (t->setup.form == ZINF_STATE_SPLIT)
        return (struct masters){.param = own, .remainder = (uint16_t *)at(op, 1) + first};
    return (struct masters){.param = own, .master = (float *)at(op, 1) + first};
}

/* A sub-group's arrays from element `first` on. */
static struct zinf_optim_array arrays_of(const struct zinf_trainer *t, const struct zinf_op *op,
                                         uint64_t first, uint64_t n, float grad_scale)
{
    const struct zinf_layout_group *g = &t->setup.layout.groups[op->arg];
    struct masters masters = masters_of(t, op, first);
    char *state = at(op, 1);
    int moments = zinf_optim_n_moments(t->setup.hyper.kind);
    char *codes = state + setup_moments_offset(&t->setup, g->n);
    float *moment = (float *)(void *)codes;
    struct zinf_optim_array array = {
        .n = n,
        .grad = (const float *)at(op, 4) + first,
        .grad_dtype = ZINF_DTYPE_F32,
        .grad_scale = grad_scale,
        .param_dtype = t->setup.dtype,
        .param = masters.param,
        .remainder = masters.remainder,
        .master = masters.master,
    };
    if (t->setup.moments == MOMENTS_8BIT) {
        float *scales = (float *)(void *)(state + setup_scales_offset(&t->setup, g->n));
        array.byte_moment1 = (int8_t *)codes + first;
        array.byte_moment2 = (uint8_t *)codes + g->n + first;
        array.scale1 = scales + first / ZINF_OPTIM_8BIT_BLOCK;
        array.scale2 = array.scale1 + g->n / ZINF_OPTIM_8BIT_BLOCK;
    } else {
        array.moment1 = moments > 0 ? moment + first : NULL;
        array.moment2 = moments > 1 ? moment + g->n + first : NULL;
    }
    return array;
}

static int step_on_device(struct zinf_trainer *t, const struct zinf_optim_hyper *hyper,
                          const struct zinf_optim_array *a)
{
    struct zinf_optim_factors f;
    zinf_optim_factors(&f, hyper);
    struct zinf_adam adam = {.n = a->n,
                             .master = a->master,
                             .remainder = a->remainder,
                             .param = a->param,
                             .dtype = a->param_dtype,
                             .moment1 = a->moment1,
                             .moment2 = a->moment2,
                             .grad = a->grad,
                             .grad_scale = a->grad_scale,
                             .beta1 = f.beta1,
                             .one_minus_beta1 = f.one_minus_beta1,
                             .beta2 = f.beta2,
                             .one_minus_beta2 = f.one_minus_beta2,
                             .root_correction = f.root_correction,
                             .eps = f.eps,
                             .decay = f.decay,
                             .decoupled = hyper->kind == ZINF_OPTIM_ADAMW,
                             .weight_decay = f.weight_decay,
                             .lr_decay = f.lr_decay,
                             .step_size = f.step_size};
    return t->setup.device->ops->adam(t->queues[ZINF_LANE_DEVICE], &adam);
}

/* Elements of a unit, one behind the other, that are updated with one rate and weight decay. */
struct stretch {
    uint64_t n;
    double lr_scale;
    float weight_decay;
};

/* From element `at` of the unit to where weight decay ends or, where tensors have rates of their
 * own, to the next tensor that has another rate. The gaps between tensors are zeros, which an
 * update with any rate leaves zeros. */
static struct stretch stretch_at(const struct setup *s, uint32_t unit, uint64_t at)
{
    const struct zinf_unit *u = &s->graph->units[unit];
    bool decays = at < u->decay_elems;
    struct stretch run = {(decays ? u->decay_elems : s->layout.units[unit].padded_elems) - at, 1,
                          decays ? s->hyper.weight_decay : 0};
    const struct tensor_rate *rate = NULL;
    uint64_t begin = 0;
    for (uint32_t i = 0; s->rates && i < u->n_tensors; i++) {
        uint64_t offset = u->tensors[i].offset;
        if (offset > at || offset < begin || u->tensors[i].decay != decays)
            continue;
        begin = offset;
        rate = &s->rates[unit][i];
    }
    for (uint32_t i = 0; rate && i < u->n_tensors; i++) {
        uint64_t offset = u->tensors[i].offset;
        if (offset > at && offset - at < run.n && !same_rate(rate, &s->rates[unit][i]))
            run.n = offset - at;
    }
    run.lr_scale = rate ? rate->scale : run.lr_scale;
    run.weight_decay = rate ? rate->weight_decay : run.weight_decay;
    return run;
}

static int update_elements(struct zinf_trainer *t, const struct zinf_op *op,
                           const struct update_scalars *scalars)
{
    const struct zinf_layout_group *g = &t->setup.layout.groups[op->arg];
    uint64_t first = t->setup.layout.units[g->unit].slice_first + g->first, n;
    int code = 0;
    for (uint64_t begin = 0; !code && begin < g->n; begin += n) {
        struct stretch run = stretch_at(&t->setup, g->unit, first + begin);
        struct zinf_optim_hyper hyper = scalars->hyper;
        hyper.weight_decay = run.weight_decay;
        hyper.lr = (float)((double)hyper.lr * run.lr_scale);
        n = g->n - begin < run.n ? g->n - begin : run.n;
        struct zinf_optim_array array = arrays_of(t, op, begin, n, scalars->grad_scale);
        code = op->kind == OP_DEVICE_UPDATE
                   ? step_on_device(t, &hyper, &array)
                   : zinf_optim_step(&hyper, &array, t->setup.device->n_threads);
    }
    return code;
}

/* ---- Adafactor: tensor by tensor; a sub-group is a whole unit ---- */

static struct zinf_adafactor_tensor tensor_of(const struct zinf_trainer *t,
                                              const struct zinf_op *op, uint32_t number)
{
    const struct zinf_layout_group *g = &t->setup.layout.groups[op->arg];
    const struct zinf_unit *unit = &t->setup.graph->units[g->unit];
    struct factors f = unit_factors(unit, number);
    uint64_t first = unit->tensors[number].offset;
    struct masters masters = masters_of(t, op, first);
    float *moments = (float *)(void *)((char *)at(op, 1) + setup_moments_offset(&t->setup, g->n));
    return (struct zinf_adafactor_tensor){
        .rows = f.rows,
        .cols = f.cols,
        .row_moment = f.rows > 1 ? moments + f.row_offset : NULL,
        .col_moment = moments + f.col_offset,
        .grad = (const float *)at(op, 4) + first,
        .grad_dtype = ZINF_DTYPE_F32,
        .param_dtype = t->setup.dtype,
        .param = masters.param,
        .remainder = masters.remainder,
        .master = masters.master,
        .workspace = host_at(&t->plan, t->plan.at.h_update),
    };
}

static struct zinf_adafactor_hyper factored_hyper(const struct zinf_trainer *t,
                                                  const struct zinf_optim_hyper *hyper)
{
    const struct zinf_config_optimizer *o = &t->setup.config->optimizer;
    return (struct zinf_adafactor_hyper){
        .lr = hyper->lr,
        .beta2_decay = (float)o->beta2_decay,
        .eps1 = (float)o->eps1,
        .eps2 = (float)o->eps2,
        .clip_threshold = (float)o->clip_threshold,
        .weight_decay = hyper->weight_decay,
        .relative_step = o->relative_step,
        .scale_parameter = o->scale_parameter,
        .step = hyper->step,
    };
}

/* An early update may see a gradient whose norm, which is not known yet, is not finite: the step's
 * speculation has failed then, and what it wrote does not count. */
static int update_tensors(struct zinf_trainer *t, const struct zinf_op *op,
                          const struct update_scalars *scalars)
{
    const struct zinf_layout_group *g = &t->setup.layout.groups[op->arg];
    const struct zinf_unit *unit = &t->setup.graph->units[g->unit];
    int code = 0;
    if (t->setup.form == ZINF_STATE_WHOLE) /* the gaps between tensors too */
        memset(at(op, 3), 0, g->n * zinf_dtype_bytes(t->setup.dtype));
    for (uint32_t i = 0; !code && i < unit->n_tensors; i++) {
        struct zinf_adafactor_hyper hyper = factored_hyper(t, &scalars->hyper);
        struct zinf_adafactor_tensor tensor = tensor_of(t, op, i);
        tensor.grad_scale = scalars->grad_scale;
        if (!unit->tensors[i].decay)
            hyper.weight_decay = 0;
        if (t->setup.rates) {
            hyper.lr = (float)((double)hyper.lr * t->setup.rates[g->unit][i].scale);
            hyper.weight_decay = t->setup.rates[g->unit][i].weight_decay;
        }
        code = zinf_adafactor_step(&hyper, &tensor, t->setup.device->n_threads);
    }
    if (code != -ERANGE || !(op->flags & OP_EAGER))
        return code;
    atomic_store(&t->give_up, true);
    return 0;
}

static void copy_if_elsewhere(void *to, const void *from, uint64_t bytes)
{
    if (to != from)
        memcpy(to, from, bytes);
}

int trainer_update(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_layout_group *g = &t->setup.layout.groups[op->arg];
    const struct update_scalars *scalars = op->flags & OP_EAGER ? &t->eager : &t->late;
    if (op->flags & OP_KEPT && t->pending[op->unit] == PENDING_ZEROS)
        memset(at(op, 4), 0, g->n * sizeof(float));
    copy_if_elsewhere(at(op, 1), at(op, 0), t->setup.state_bytes[op->arg]);
    if (t->setup.form != ZINF_STATE_WHOLE)
        copy_if_elsewhere(at(op, 3), at(op, 2), g->n * zinf_dtype_bytes(t->setup.dtype));
    int code = t->setup.moments == MOMENTS_FACTORED ? update_tensors(t, op, scalars)
                                                    : update_elements(t, op, scalars);
    if (!code)
        memcpy((char *)at(op, 1) + t->setup.state_bytes[op->arg], at(op, 3),
               durable_copy_bytes(&t->setup, g->n));
    return code;
}

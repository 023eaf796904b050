/*
 * elements: rules that update each element by itself, with moments in fp32, in bf16 or in 8 bits.
 * bf16 moments are rounded stochastically: to nearest, a second moment would stop where its change
 * in a step is below half a unit in the last place, which is a 256th of it. The random bits are
 * those of the training's seed, the unit, the element in it and the step, so results depend on no
 * placement, on no number of ranks, and on no resume.
 */
#include "train/rules/rules.h"
#include "train/setup_rates.h"

/* Elements [first, first + n) of the sub-group. */
static struct zinf_optim_array array_of(const struct rule_step *s, uint64_t first, uint64_t n)
{
    const struct setup *setup = s->setup;
    const struct update_rule *rule = setup->rule;
    const struct zinf_layout_group *g = &setup->layout.groups[s->group];
    struct rule_masters own = rule_masters(s, first);
    char *moment1 = s->state + rule_moment_offset(setup, g->n, 1) + first * rule->moment_bytes;
    char *moment2 = rule->n_moments > 1 ? moment1 + g->n * rule->moment_bytes : NULL;
    float *scales = (float *)(void *)(s->state + rule_scales_offset(setup, g->n));
    struct zinf_optim_array array = {
        .n = n,
        .grad = s->grad + first,
        .grad_dtype = ZINF_DTYPE_F32,
        .grad_scale = s->grad_scale,
        .master = own.master,
        .remainder = own.remainder,
        .param = own.param,
        .param_dtype = setup->dtype,
    };
    if (rule->block) {
        array.byte_moment1 = (int8_t *)moment1;
        array.byte_moment2 = (uint8_t *)moment2;
        array.scale1 = scales + first / rule->block;
        array.scale2 = array.scale1 + g->n / rule->block;
    } else if (rule->half) {
        array.half_moment1 = (uint16_t *)(void *)moment1;
        array.half_moment2 = (uint16_t *)(void *)moment2;
        array.stochastic_rounding = true;
        array.rounding_key = setup->options.seed ^ (g->unit + 1) * 0x9e3779b97f4a7c15u;
        array.first_element = setup->layout.units[g->unit].slice_first + g->first + first;
    } else {
        array.moment1 = (float *)(void *)moment1;
        array.moment2 = (float *)(void *)moment2;
    }
    return array;
}

static int step_on_device(const struct rule_step *s, const struct zinf_optim_hyper *hyper,
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
    return s->setup->device->ops->adam(s->queue, &adam);
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

static int step_runs(const struct rule_step *s, bool on_device)
{
    const struct zinf_layout_group *g = &s->setup->layout.groups[s->group];
    uint64_t first = s->setup->layout.units[g->unit].slice_first + g->first, n;
    int code = 0;
    for (uint64_t begin = 0; !code && begin < g->n; begin += n) {
        struct stretch run = stretch_at(s->setup, g->unit, first + begin);
        struct zinf_optim_hyper hyper = s->hyper;
        hyper.weight_decay = run.weight_decay;
        hyper.lr = (float)((double)hyper.lr * run.lr_scale);
        n = g->n - begin < run.n ? g->n - begin : run.n;
        struct zinf_optim_array array = array_of(s, begin, n);
        code = on_device ? step_on_device(s, &hyper, &array)
                         : zinf_optim_step(&hyper, &array, s->setup->device->n_threads);
    }
    return code;
}

int rule_step_elements(const struct rule_step *s)
{
    return step_runs(s, false);
}

int rule_step_adam_on_device(const struct rule_step *s)
{
    return step_runs(s, true);
}

/* ---- blocks ---- */

/* The tensor that ends in front of tensor number `next`, in the same part; n_tensors: none. */
static uint32_t before(const struct zinf_unit *u, uint32_t next)
{
    const struct zinf_tensor *t = &u->tensors[next];
    uint32_t found = u->n_tensors;
    for (uint32_t i = 0; i < u->n_tensors; i++)
        if (u->tensors[i].decay == t->decay && u->tensors[i].offset < t->offset &&
            (found == u->n_tensors || u->tensors[i].offset > u->tensors[found].offset))
            found = i;
    return found;
}

static int check_unit(const struct setup *s, uint32_t unit, const char *key)
{
    const struct zinf_unit *u = &s->graph->units[unit];
    for (uint32_t i = 0; unit_trains(s, unit) && i < u->n_tensors; i++) {
        const uint32_t other = before(u, i);
        if (u->tensors[i].offset % s->rule->block == 0 || other == u->n_tensors ||
            same_rate(&s->rates[unit][i], &s->rates[unit][other]))
            continue;
        return zinf_fail(-ENOTSUP,
                         "%s: %s and %s share a block of 8-bit moments and have one rate: give "
                         "both the same, or take an optimizer with moments in fp32",
                         key, u->tensors[other].pieces[0].name, u->tensors[i].pieces[0].name);
    }
    return 0;
}

/* Moments that share a scale are updated at once. */
int rule_check_blocks(const struct setup *s, const char *key)
{
    int code = 0;
    for (uint32_t u = 0; !code && u < s->n_units; u++)
        code = check_unit(s, u, key);
    return code;
}

/*
 * elements: rules that update each element by itself, with moments in fp32, in bf16 or in 8 bits.
 * bf16 moments are rounded stochastically: to nearest, a second moment would stop where its change
 * in a step is below half a unit in the last place, which is a 256th of it. The random bits are
 * those of the training's seed, the unit, the element in it and the step, so results depend on no
 * placement, on no number of ranks, and on no resume. Of a model that is cut, ranks have units of
 * different tensors: there the bits are those of the tensor, its shard and the element in it.
 */
#include "train/rules/rules.h"
#include "train/setup_rates.h"

#include <xxhash.h>

/* ---- random bits ---- */

struct rounding {
    uint64_t key, first; /* the number of element 0 of the unit, which may wrap around */
    uint64_t end;        /* the unit's element up to which both hold */
};

static uint64_t key_of(const struct zinf_tensor *t)
{
    const struct zinf_piece *p = &t->pieces[0];
    const uint64_t numbers[] = {t->shard, p->slab, p->rows.file_first};
    return XXH3_64bits_withSeed(p->name, strlen(p->name), XXH3_64bits(numbers, sizeof numbers));
}

/* From element `at` of the unit on. */
static struct rounding rounding_at(const struct setup *s, uint32_t unit, uint64_t at)
{
    const struct zinf_unit *u = &s->graph->units[unit];
    const struct zinf_tensor *t = NULL;
    struct rounding r = {s->options.seed ^ (unit + 1) * 0x9e3779b97f4a7c15u, 0, UINT64_MAX};
    if (!s->graph->shards.of)
        return r;
    for (uint32_t i = 0; i < u->n_tensors; i++) {
        const struct zinf_tensor *other = &u->tensors[i];
        if (other->n_pieces && other->offset <= at && (!t || other->offset > t->offset))
            t = other;
        if (other->n_pieces && other->offset > at && other->offset < r.end)
            r.end = other->offset;
    }
    if (t) {
        r.key = s->options.seed ^ key_of(t);
        r.first = 0 - t->offset;
    }
    return r;
}

/* ---- steps ---- */

/* n elements of the segment from `at` on, which are those from element `from` on at these places.
 */
static struct zinf_optim_array array_of(const struct rule_step *s, const struct rule_places *places,
                                        uint64_t from, uint64_t at, uint64_t n)
{
    const struct setup *setup = s->setup;
    const struct rule_segment *segment = &s->segment;
    const struct update_rule *rule = segment->of->rule;
    const struct zinf_layout_group *g = &setup->layout.groups[s->group];
    const uint64_t first = segment->first + at;
    const struct rule_masters own = rule_masters_beyond(s->setup, &places->own, at - from);
    char *moment1 = places->moments[0] + (at - from) * rule->moment_bytes;
    char *moment2 = NULL;
    if (rule->n_moments > 1)
        moment2 = places->moments[1] + (at - from) * rule->moment_bytes;
    float *scales = (float *)(void *)(s->state + (rule->block ? rule_scales_at(segment) : 0));
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
        array.scale1 = scales + at / rule->block;
        array.scale2 = array.scale1 + segment->n / rule->block;
    } else if (rule->half) {
        array.half_moment1 = (uint16_t *)(void *)moment1;
        array.half_moment2 = (uint16_t *)(void *)moment2;
        array.stochastic_rounding = true;
        const uint64_t element = setup->layout.units[g->unit].slice_first + g->first + first;
        const struct rounding rounding = rounding_at(setup, g->unit, element);
        array.rounding_key = rounding.key;
        array.first_element = rounding.first + element;
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

/* Elements [from, end) of the segment, on the device where threads are 0. */
static int step_runs(const struct rule_step *s, const struct rule_places *places, uint64_t from,
                     uint64_t end, int n_threads)
{
    const struct zinf_layout_group *g = &s->setup->layout.groups[s->group];
    uint64_t first = s->setup->layout.units[g->unit].slice_first + g->first + s->segment.first, n;
    int code = 0;
    for (uint64_t begin = from; !code && begin < end; begin += n) {
        struct stretch run = rule_stretch_at(s->setup, g->unit, first + begin);
        struct zinf_optim_hyper hyper = s->hyper;
        hyper.weight_decay = run.weight_decay;
        hyper.lr = (float)((double)hyper.lr * run.lr_scale);
        n = end - begin < run.n ? end - begin : run.n;
        if (s->segment.of->rule->half) {
            const uint64_t left = rounding_at(s->setup, g->unit, first + begin).end - first - begin;
            n = n < left ? n : left;
        }
        struct zinf_optim_array array = array_of(s, places, from, begin, n);
        code = n_threads ? zinf_optim_step(&hyper, &array, n_threads)
                         : step_on_device(s, &hyper, &array);
    }
    return code;
}

/* Where the segment's first element is. */
static struct rule_places places_of(const struct rule_step *s)
{
    return (struct rule_places){
        .moments = {s->state + rule_moment_at(&s->segment, 1),
                    s->state + rule_moment_at(&s->segment, 2)},
        .own = rule_masters(s, s->segment.first),
    };
}

int rule_step_elements(const struct rule_step *s)
{
    const struct rule_places places = places_of(s);
    return step_runs(s, &places, 0, s->segment.n, s->setup->device->n_threads);
}

int rule_step_adam_on_device(const struct rule_step *s)
{
    const struct rule_places places = places_of(s);
    return step_runs(s, &places, 0, s->segment.n, 0);
}

int rule_step_some(const struct rule_step *s, const struct rule_places *places, uint64_t first,
                   uint64_t n)
{
    return step_runs(s, places, first, first + n, 1);
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

/* Of the moments of either of two tensors; 1: each element has its own scale. */
static uint32_t block_of(const struct setup *s, uint32_t unit, uint32_t a, uint32_t b)
{
    uint32_t of_a = setup_optimizer_of(s, unit, a)->rule->block;
    uint32_t of_b = setup_optimizer_of(s, unit, b)->rule->block;
    return of_a ? of_a : of_b ? of_b : 1;
}

static int check_unit(const struct setup *s, uint32_t unit, const char *key)
{
    const struct zinf_unit *u = &s->graph->units[unit];
    for (uint32_t i = 0; unit_trains(s, unit) && i < u->n_tensors; i++) {
        const uint32_t other = before(u, i);
        const uint32_t block = other == u->n_tensors ? 1 : block_of(s, unit, i, other);
        if (u->tensors[i].offset % block == 0 ||
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

/*
 * factored: Adafactor, which keeps of a matrix's second moments those of its rows and columns
 * alone. Its tensors must be whole: a unit is one sub-group, and the vocabulary matrix one unit.
 */
#include "cpu_optim/optim.h"
#include "train/rules/rules.h"
#include "train/setup_rates.h"

#define FACTOR_ALIGN 16 /* floats: each vector of moments has its own cache lines */

/* ---- state ---- */

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

uint64_t rule_factored_bytes(const struct zinf_unit *unit)
{
    struct factors last = unit_factors(unit, unit->n_tensors - 1);
    return (last.col_offset + padded(last.cols)) * sizeof(float);
}

uint64_t rule_factored_workspace(const struct setup *s, const struct zinf_unit *unit,
                                 uint32_t tensor)
{
    (void)s;
    struct factors f = unit_factors(unit, tensor);
    return zinf_adafactor_workspace_bytes(f.rows, f.cols);
}

/* ---- step ---- */

static struct zinf_adafactor_tensor tensor_of(const struct rule_step *s,
                                              const struct zinf_unit *unit, uint32_t number)
{
    struct factors f = unit_factors(unit, number);
    uint64_t first = unit->tensors[number].offset;
    struct rule_masters own = rule_masters(s, first);
    float *moments = (float *)(void *)(s->state + s->segment.at);
    return (struct zinf_adafactor_tensor){
        .rows = f.rows,
        .cols = f.cols,
        .row_moment = f.rows > 1 ? moments + f.row_offset : NULL,
        .col_moment = moments + f.col_offset,
        .grad = s->grad + first,
        .grad_dtype = ZINF_DTYPE_F32,
        .grad_scale = s->grad_scale,
        .master = own.master,
        .remainder = own.remainder,
        .param = own.param,
        .param_dtype = s->setup->dtype,
        .workspace = s->workspace,
    };
}

static struct zinf_adafactor_hyper hyper_of(const struct rule_step *s)
{
    const struct zinf_config_optimizer *o = &s->setup->config->optimizer;
    return (struct zinf_adafactor_hyper){
        .lr = s->hyper.lr,
        .beta2_decay = (float)o->beta2_decay,
        .eps1 = (float)o->eps1,
        .eps2 = (float)o->eps2,
        .clip_threshold = (float)o->clip_threshold,
        .weight_decay = s->hyper.weight_decay,
        .relative_step = o->relative_step,
        .scale_parameter = o->scale_parameter,
        .step = s->hyper.step,
    };
}

int rule_step_factored(const struct rule_step *s)
{
    const struct setup *setup = s->setup;
    const struct zinf_layout_group *g = &setup->layout.groups[s->group];
    const struct zinf_unit *unit = &setup->graph->units[g->unit];
    int code = 0;
    if (setup->form == ZINF_STATE_WHOLE) /* the gaps between tensors too */
        memset(s->param, 0, g->n * zinf_dtype_bytes(setup->dtype));
    for (uint32_t i = 0; !code && i < unit->n_tensors; i++) {
        struct zinf_adafactor_hyper hyper = hyper_of(s);
        struct zinf_adafactor_tensor tensor = tensor_of(s, unit, i);
        if (!unit->tensors[i].decay)
            hyper.weight_decay = 0;
        if (setup->rates) {
            hyper.lr = (float)((double)hyper.lr * setup->rates[g->unit][i].scale);
            hyper.weight_decay = setup->rates[g->unit][i].weight_decay;
        }
        code = zinf_adafactor_step(&hyper, &tensor, setup->device->n_threads);
    }
    return code;
}

int rule_check_factored(const struct setup *s, const char *key)
{
    if (!s->config->optimizer.relative_step)
        return 0;
    return zinf_fail(
        -ENOTSUP, "%s: Adafactor finds its own rates with relative_step: set that to false", key);
}

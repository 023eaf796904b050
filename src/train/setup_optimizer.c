/*
 * setup_optimizer: which rule the configuration names, its numbers, and what the state of a
 * sub-group takes.
 */
#include "train/rules/rules.h"
#include "train/setup.h"

#include <stdlib.h>

int setup_optimizer(struct setup *s)
{
    const struct zinf_config_optimizer *o = &s->config->optimizer;
    s->rule = rule_find(o->type, s->config->bf16_moments);
    if (!s->rule)
        return zinf_fail(-ENOTSUP,
                         "optimizer.type \"%s\" is not supported%s; use AdamW, Adam, Lion, "
                         "Adagrad, SGD, Adafactor or AdamW8bit",
                         o->type, s->config->bf16_moments ? " with bf16_optimizer_states" : "");
    s->hyper = (struct zinf_optim_hyper){
        .kind = s->rule->kind,
        .lr = (float)o->lr,
        .beta1 = (float)(s->rule->kind == ZINF_OPTIM_SGD ? o->momentum : o->beta1),
        .beta2 = (float)o->beta2,
        .eps = (float)o->eps,
        .weight_decay = (float)o->weight_decay,
        .bias_correction = o->bias_correction,
    };
    if (s->hyper.kind == ZINF_OPTIM_ADAM && o->decoupled)
        s->hyper.kind = ZINF_OPTIM_ADAMW;
    if (s->rule->grain != GRAIN_ELEMENTS && s->sliced)
        return zinf_fail(-ENOTSUP,
                         "optimizer.type %s needs whole tensors, and at "
                         "zero_optimization.stage 3 %u ranks have slices: set stage to 2, train on "
                         "one, or use AdamW8bit, whose state is small too",
                         o->type, data_axis(s)->world);
    return 0;
}

bool setup_device_steps(const struct setup *s)
{
    return s->rule->device_step;
}

bool setup_shares_updates(const struct setup *s)
{
    return s->offers_updates && trains(s) && !s->durable && device_is_far(s) &&
           setup_device_steps(s);
}

/* ---- what a state takes ---- */

/* Of the largest tensor. */
static uint64_t workspace_bytes(const struct setup *s)
{
    uint64_t most = 0;
    for (uint32_t u = 0; u < s->n_units; u++) {
        const struct zinf_unit *unit = &s->graph->units[u];
        for (uint32_t i = 0; i < unit->n_tensors; i++) {
            uint64_t bytes = s->rule->workspace_bytes(unit, i);
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
            s->state_bytes[g] = rule_state_bytes(s, &s->graph->units[s->layout.groups[g].unit],
                                                 s->layout.groups[g].n);
    if (trains(s) && s->rule->workspace_bytes)
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

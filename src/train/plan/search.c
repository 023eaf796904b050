/*
 * search: what a plan leaves open is tried, and the plan whose simulated step is shortest is taken.
 * A candidate is a trainer that only plans, on the device of the real one. Speeds are those that
 * the caller knows, else stated defaults, never measured here: so an estimate and the run that
 * follows it have one plan. The usual choice stays where no other is clearly shorter.
 */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

#define CLEARLY 0.98 /* of the time of the best so far */

/* Seconds of a step; INFINITY where the candidate does not fit. */
static double seconds_of(const struct zinf_trainer *t, const struct variant *variant)
{
    static const struct zinf_speeds unknown;
    struct zinf_trainer *shadow;
    double seconds = INFINITY;
    if (trainer_create_shadow(&shadow, t, variant))
        return seconds;
    plan_rates_of(&shadow->plan, t->setup.options.speeds ? t->setup.options.speeds : &unknown,
                  &shadow->plan.rates);
    if (!plan_schedules(&shadow->plan))
        seconds = shadow->plan.predicted_seconds;
    zinf_trainer_destroy(shadow);
    return seconds;
}

static void try(struct zinf_trainer *t, struct variant variant, const char *what, double *least)
{
    if (!(*least > 0))
        *least = seconds_of(t, &t->plan.variant);
    double seconds = seconds_of(t, &variant);
    zinf_log(ZINF_LOG_DEBUG, "plan: %s would take %.3f s a step, the best so far %.3f s", what,
             seconds, *least);
    if (seconds < CLEARLY * *least) {
        *least = seconds;
        t->plan.variant = variant;
    }
}

/* Whether the sums of micro-batches' gradients could be on a GPU, and their updates elsewhere. */
static bool sums_are_free(const struct zinf_trainer *t)
{
    return t->setup.n_micro > 1 && trains(&t->setup) && device_is_far(&t->setup) &&
           t->setup.grad_tier != ZINF_TIER_DEVICE;
}

static void try_orders(struct zinf_trainer *t, double *least)
{
    struct variant other = t->plan.variant;
    bool free = t->plan.layer_major && !strcmp(t->setup.config->accumulation_order, "auto");
    other.micro_major = free;
    if (free)
        try(t, other, "micro-batches one after the other", least);
    for (int part = 2; part <= 4 && sums_are_free(t) && (free || !t->plan.layer_major); part += 2) {
        other.device_grads = part;
        try(t, other, "sums of gradients on the device", least);
    }
}

void trainer_search(struct zinf_trainer *t)
{
    double least = 0;
    if (t->setup.durable) /* what is where must be the same after a restart */
        return;
    try_orders(t, &least);
    struct variant other = t->plan.variant;
    if (trains(&t->setup) && t->setup.fills && t->setup.grad_tier == ZINF_TIER_DRIVE) {
        other.host_grads_part = 3 * t->plan.variant.host_grads_part;
        try(t, other, "fewer gradients in RAM", &least);
    }
    other = t->plan.variant;
    for (int part = 1; part <= 3 && setup_shares_updates(&t->setup); part++) {
        other.device_states = part;
        try(t, other, "state on the device before activations", &least);
    }
}

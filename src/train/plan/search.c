/*
 * search: what a configuration leaves open is tried, and the variant whose simulated step is
 * shortest is taken. Speeds are those that the caller knows, else stated defaults, never measured
 * here: so an estimate and the run that follows it have one plan. The usual variant stays where no
 * other is clearly shorter.
 */
#include "train/step/step.h"

#include <math.h>

#define CLEARLY 0.98 /* of the time of the best so far */

struct search {
    const struct setup *setup;
    struct variant best;
    double least; /* seconds of its step; 0: not known yet */
};

/* Seconds of a step; INFINITY where the candidate does not fit, or cannot take less than limit. */
static double seconds_of(const struct setup *setup, const struct variant *variant, double limit)
{
    static const struct zinf_speeds unknown;
    const struct zinf_speeds *speeds = setup->options.speeds ? setup->options.speeds : &unknown;
    struct plan candidate;
    double seconds = INFINITY;
    if (plan_make(&candidate, setup, variant))
        return seconds;
    plan_rates_of(&candidate, speeds, &candidate.rates);
    if (!plan_schedules(&candidate, limit))
        seconds = candidate.predicted_seconds;
    plan_fini(&candidate);
    return seconds;
}

static void try(struct search *s, struct variant variant, const char *what)
{
    if (!(s->least > 0))
        s->least = seconds_of(s->setup, &s->best, INFINITY);
    double seconds = seconds_of(s->setup, &variant, CLEARLY * s->least);
    zinf_log(ZINF_LOG_DEBUG, "plan: %s would take %.3f s a step, the best so far %.3f s", what,
             seconds, s->least);
    if (seconds < CLEARLY * s->least) {
        s->least = seconds;
        s->best = variant;
    }
}

/* Whether the sums of micro-batches' gradients could be on a GPU, and their updates elsewhere. */
static bool sums_are_free(const struct setup *s)
{
    return s->n_micro > 1 && trains(s) && device_is_far(s) && s->grad_tier != ZINF_TIER_DEVICE;
}

static void try_orders(struct search *s)
{
    struct variant other = s->best;
    bool layer_major = plan_is_layer_major(s->setup, &s->best);
    bool free = layer_major && s->setup->order == ORDER_AUTO;
    other.micro_major = free;
    if (free)
        try(s, other, "micro-batches one after the other");
    for (int part = 2; part <= 4 && sums_are_free(s->setup) && (free || !layer_major); part += 2) {
        other.device_grads = part;
        try(s, other, "sums of gradients on the device");
    }
}

void plan_search(const struct setup *setup, struct variant *best)
{
    struct search s = {.setup = setup, .best = {.host_grads_part = 4}};
    /* What is where must be the same after a restart, or for every rank. */
    if (!setup->durable && !setup->net) {
        try_orders(&s);
        struct variant other = s.best;
        if (trains(setup) && setup->fills && setup->grad_tier == ZINF_TIER_DRIVE) {
            other.host_grads_part = 3 * s.best.host_grads_part;
            try(&s, other, "fewer gradients in RAM");
        }
        other = s.best;
        for (int part = 1; part <= 3 && setup_shares_updates(setup); part++) {
            other.device_states = part;
            try(&s, other, "state on the device before activations");
        }
    }
    *best = s.best;
}

/* estimated: the plan that a training would make, and its programs by the speeds that are asked
 * for. */
#include "train/plan/estimated.h"

#include <math.h>

static void scale(struct zinf_rates *rates, double device, double drive)
{
    for (int rate = 0; rate < ZINF_RATE_KINDS; rate++) {
        bool moves = rate == OP_READ || rate == OP_WRITE;
        bool copies = rate == OP_COPY_IN || rate == OP_COPY_OUT || rate == OP_PACKED_IN;
        bool on_host =
            rate == OP_UPDATE || rate == OP_NORM_PART || rate == OP_GRAD_ADD || rate == OP_ENCODE;
        double factor = moves ? drive : copies || on_host ? 1 : device;
        if (factor > 0)
            rates->seconds[rate] /= factor;
    }
}

static bool is_plain(const struct zinf_estimate_options *o)
{
    bool as_they_are = (!(o->device_factor > 0) || o->device_factor == 1) &&
                       (!(o->drive_factor > 0) || o->drive_factor == 1);
    return !o->rates && as_they_are;
}

/* A plan with programs. The search's own will do where its rates are those that are asked for. */
static int make_plan(struct plan *plan, const struct setup *setup, struct variant *variant,
                     const struct zinf_estimate_options *options)
{
    if (options->like)
        memcpy(variant, options->like->found, sizeof *variant);
    else
        plan_search(setup, variant, plan);
    if (plan->setup && is_plain(options))
        return 0;
    if (plan->setup)
        plan_fini(plan);
    int code = plan_make(plan, setup, variant);
    if (code)
        return code;
    if (options->rates)
        plan->rates = *options->rates;
    else
        plan_rates_of(plan, &options->speeds, &plan->rates);
    scale(&plan->rates, options->device_factor, options->drive_factor);
    return plan_schedules(plan, INFINITY);
}

int estimated_open(struct estimated *e, const struct zinf_estimate_options *options)
{
    struct zinf_trainer_options planned = options->trainer;
    *e = (struct estimated){.net = NULL};
    planned.init = true;
    planned.speeds = &options->speeds;
    planned.net = NULL;
    planned.mode = ZINF_TRAINER_TRAIN;
    int code = options->ranks > 1 ? zinf_net_describe(&e->net, options->ranks, options->local_ranks,
                                                      options->seats ? options->seats : 1)
                                  : 0;
    if (code)
        return code;
    planned.net = e->net;
    code = setup_init(&e->setup, &planned, true);
    if (!code)
        plan_settle_durability(&e->setup);
    return code ? code : make_plan(&e->plan, &e->setup, &e->variant, options);
}

void estimated_close(struct estimated *e)
{
    plan_fini(&e->plan);
    setup_fini(&e->setup);
    zinf_net_close(e->net);
    *e = (struct estimated){.net = NULL};
}

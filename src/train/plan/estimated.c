/* estimated: the plan that a training would make, and its programs by the speeds that are asked
 * for. */
#include "train/plan/estimated.h"

#include <math.h>
#include <stdlib.h>

static void scale(struct zinf_rates *rates, double device, double drive)
{
    for (int rate = 0; rate < ZINF_RATE_KINDS; rate++) {
        bool moves = rate == OP_READ || rate == OP_WRITE;
        bool copies = rate == OP_COPY_IN || rate == OP_COPY_OUT || rate == OP_PACKED_IN;
        bool on_host = rate == OP_UPDATE || rate == OP_MATRIX_UPDATE || rate == OP_NORM_PART ||
                       rate == OP_GRAD_ADD || rate == OP_ENCODE;
        double factor = moves ? drive : copies || on_host ? 1 : device;
        if (factor > 0)
            rates->seconds[rate] /= factor;
        if (moves && factor > 0) /* more bytes in the same time */
            rates->cpu[rate] = fmin(rates->cpu[rate] * factor, 1);
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

int estimated_begin(struct estimated *e, const struct zinf_estimate_options *options)
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
    return code;
}

int estimated_open(struct estimated *e, const struct zinf_estimate_options *options, bool durable)
{
    const int code = estimated_begin(e, options);
    e->setup.durable &= durable;
    return code ? code : make_plan(&e->plan, &e->setup, &e->variant, options);
}

int estimated_lower(struct estimated *e, enum schedule schedule)
{
    const enum schedule wanted = e->setup.wanted;
    int code = 0;
    if (e->plan.schedule != schedule) {
        e->setup.wanted = schedule;
        code = plan_schedules(&e->plan, INFINITY);
        e->setup.wanted = wanted;
    }
    return code;
}

void estimated_close(struct estimated *e)
{
    plan_fini(&e->plan);
    setup_fini(&e->setup);
    zinf_net_close(e->net);
    *e = (struct estimated){.net = NULL};
}

/* ---- ranks in a pipeline ---- */

void estimated_see_step(const struct estimated *e, struct estimated_step *out)
{
    const struct zinf_program *programs[2];
    const struct zinf_axis *pipe = pipe_axis(&e->setup);
    *out = (struct estimated_step){.plan = &e->plan,
                                   .n = plan_step_programs(&e->plan, programs),
                                   .machine = plan_machine(&e->plan),
                                   .rank = pipe->rank,
                                   .ranks = pipe->world,
                                   .schedule = e->plan.schedule};
    for (int i = 0; i < out->n; i++)
        out->programs[i] = *programs[i];
}

void estimated_take_step(struct estimated *e, struct estimated_step *out)
{
    const struct zinf_program *programs[2];
    estimated_see_step(e, out);
    plan_step_programs(&e->plan, programs);
    for (int i = 0; i < out->n; i++)
        *(struct zinf_program *)(uintptr_t)programs[i] = (struct zinf_program){0};
}

void estimated_end_step(struct estimated_step *step)
{
    for (int i = 0; i < step->n; i++)
        zinf_program_fini(&step->programs[i]);
    *step = (struct estimated_step){0};
}

/* Exchanges at a border have the number of the rank before it: where ranks have several ranges, the
 * first is behind the last one. Rounds of what several ranks have in common are of all. */
static struct zinf_meeting meeting(void *context, const struct zinf_op *op)
{
    const struct estimated_step *s = context;
    const uint32_t n = s->ranks, before = (s->rank + n - 1) % n;
    if (op->kind == OP_SHARE)
        return (struct zinf_meeting){n, n};
    if (op->kind != OP_GIVE && op->kind != OP_TAKE && op->kind != OP_TRADE)
        return (struct zinf_meeting){0};
    return (struct zinf_meeting){op->visit ? s->rank : before, 2};
}

int estimated_predict_part(const struct estimated_step ranks[], uint32_t n, int part, double *begin,
                           double *seconds, struct zinf_prediction *out)
{
    const struct zinf_program **programs = calloc(n, sizeof *programs);
    struct zinf_predict_options *options = calloc(n, sizeof *options);
    struct zinf_prediction *one = calloc(n, sizeof *one);
    uint32_t *who = calloc(n, sizeof *who), n_who = 0;
    int code = programs && options && one && who
                   ? 0
                   : zinf_fail(-ENOMEM, "no memory for a prediction of %u ranks", n);
    for (uint32_t r = 0; !code && r < n; r++) {
        if (part >= ranks[r].n)
            continue;
        programs[n_who] = &ranks[r].programs[part];
        options[n_who] =
            (struct zinf_predict_options){.machine = &ranks[r].machine,
                                          .meeting = n > 1 ? meeting : NULL,
                                          .context = (struct estimated_step *)(uintptr_t)&ranks[r],
                                          .op_begin = r ? NULL : begin,
                                          .op_seconds = r ? NULL : seconds};
        who[n_who++] = r;
    }
    if (!code && n_who)
        code = zinf_programs_predict(programs, options, n_who, one);
    if (!code)
        memset(out, 0, n * sizeof *out);
    for (uint32_t i = 0; !code && i < n_who; i++)
        out[who[i]] = one[i];
    free(programs);
    free(options);
    free(one);
    free(who);
    return code;
}

int estimated_predict(const struct estimated_step ranks[], uint32_t n, double *seconds)
{
    struct zinf_prediction *out = calloc(n, sizeof *out);
    int code = out ? 0 : zinf_fail(-ENOMEM, "no memory for a prediction of %u ranks", n);
    *seconds = 0;
    for (int part = 0; !code && part < 2; part++) {
        double most = 0;
        memset(out, 0, n * sizeof *out);
        if (part < ranks[0].n && ranks[0].programs[part].pieces)
            code = plan_predict(ranks[0].plan,
                                (const struct zinf_program *[]){&ranks[0].programs[part]}, 1, out);
        else
            code = estimated_predict_part(ranks, n, part, NULL, NULL, out);
        for (uint32_t r = 0; !code && r < n; r++)
            most = fmax(most, out[r].seconds);
        *seconds += most;
    }
    free(out);
    return code;
}

/*
 * update: one sub-group's step, by its rule. What two generations or a tile put elsewhere is copied
 * first and then updated in place.
 */
#include "train/rules/rules.h"
#include "train/trainer.h"

static void *at(const struct zinf_op *op, int operand)
{
    return zinf_address(&op->at[operand]);
}

/* The run's numbers, some of which its schedule moves; of another optimizer its own. */
static struct zinf_optim_hyper hyper_of(const struct setup *s, const struct optimizer *of,
                                        const struct zinf_optim_hyper *run)
{
    struct zinf_optim_hyper hyper = of == &s->optimizers[0] ? *run : of->hyper;
    hyper.lr = run->lr;
    hyper.step = run->step;
    return hyper;
}

/* An early update may see a gradient whose norm, which is not known yet, is not finite: the step's
 * speculation has failed then, and what it wrote does not count. */
static int step(struct zinf_trainer *t, const struct zinf_op *op,
                const struct update_scalars *scalars)
{
    struct rule_step s = {.setup = &t->setup,
                          .group = (uint32_t)op->arg,
                          .state = at(op, 1),
                          .param = at(op, 3),
                          .grad = at(op, 4),
                          .grad_scale = scalars->grad_scale,
                          .workspace = host_at(&t->plan, t->plan.at.h_update),
                          .queue = t->queues[ZINF_LANE_DEVICE]};
    int code = 0;
    while (!code && rule_next_segment(&t->setup, s.group, &s.segment)) {
        const struct optimizer *of = s.segment.of;
        s.hyper = hyper_of(&t->setup, of, &scalars->hyper);
        code = op->kind == OP_DEVICE_UPDATE ? of->rule->device_step(&s) : of->rule->step(&s);
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
    int code = step(t, op, scalars);
    if (!code)
        memcpy((char *)at(op, 1) + t->setup.state_bytes[op->arg], at(op, 3),
               durable_copy_bytes(&t->setup, g->n));
    return code;
}

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
static int step(struct zinf_trainer *t, const struct zinf_op *op, char *state,
                const struct update_scalars *scalars)
{
    struct rule_step s = {.setup = &t->setup,
                          .group = (uint32_t)op->arg,
                          .state = state,
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

/* Packed state is unpacked beside its tile, which it goes back into: the tile alone is what the
 * drive reads and writes. */
static char *begin_state(struct zinf_trainer *t, const struct zinf_op *op, bool packs, int *code)
{
    const uint32_t group = (uint32_t)op->arg;
    const uint64_t bytes = t->setup.state_bytes[group];
    *code = 0;
    if (!packs) {
        copy_if_elsewhere(at(op, 1), at(op, 0), bytes);
        return at(op, 1);
    }
    char *state = host_at(&t->plan, t->plan.at.h_unpacked);
    struct zinf_location home = zinf_tiers_group_state(t->plan.tiers, group, 0);
    uint64_t pages =
        zinf_tiers_packed(t->plan.tiers, group, zinf_location_generation(&home))->read_pages;
    if (pages)
        *code = rule_unpack_state(&t->setup, group, state, at(op, 0), pages * ZINF_AIO_ALIGN);
    else
        memcpy(state, at(op, 0), bytes);
    return state;
}

/* Where the copy of the parameters begins, behind the state. */
static uint64_t end_state(struct zinf_trainer *t, const struct zinf_op *op, const char *state,
                          int *code)
{
    const uint32_t group = (uint32_t)op->arg;
    struct zinf_location home = zinf_tiers_group_state(t->plan.tiers, group, 1);
    struct zinf_packed *p =
        zinf_tiers_packed(t->plan.tiers, group, zinf_location_generation(&home));
    uint64_t bytes = 0;
    *code = rule_pack_state(&t->setup, group, at(op, 1), state, &bytes);
    uint64_t all = bytes + durable_copy_bytes(&t->setup, t->setup.layout.groups[group].n);
    p->read_pages = (uint32_t)(bytes / ZINF_AIO_ALIGN);
    p->write_pages = bytes && !p->whole ? (uint32_t)(all / ZINF_AIO_ALIGN) : 0;
    return bytes ? bytes : t->setup.state_bytes[group];
}

int trainer_update(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_layout_group *g = &t->setup.layout.groups[op->arg];
    const struct update_scalars *scalars = op->flags & OP_EAGER ? &t->eager : &t->late;
    const bool packs = t->setup.packs && t->plan.homes[op->unit].state == ZINF_TIER_DRIVE &&
                       rule_packs(&t->setup, (uint32_t)op->arg);
    uint64_t end = t->setup.state_bytes[op->arg];
    int code;
    if (op->flags & OP_KEPT && t->pending[op->unit] == PENDING_ZEROS)
        memset(at(op, 4), 0, g->n * sizeof(float));
    char *state = begin_state(t, op, packs, &code);
    if (code)
        return code;
    if (t->setup.form != ZINF_STATE_WHOLE)
        copy_if_elsewhere(at(op, 3), at(op, 2), g->n * zinf_dtype_bytes(t->setup.dtype));
    code = step(t, op, state, scalars);
    if (!code && packs)
        end = end_state(t, op, state, &code);
    if (!code)
        memcpy((char *)at(op, 1) + end, at(op, 3), durable_copy_bytes(&t->setup, g->n));
    return code;
}

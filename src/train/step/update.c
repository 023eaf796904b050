/*
 * update: the step of one sub-group by its rule. What must go to another generation or a tile is
 * copied first and then updated in place.
 */
#include "train/rules/rules.h"
#include "train/trainer.h"

static void *at(const struct zinf_op *op, int operand)
{
    return zinf_address(&op->at[operand]);
}

/* The run's numbers, some of which a schedule changes; another optimizer has its own. */
static struct zinf_optim_hyper hyper_of(const struct setup *s, const struct optimizer *of,
                                        const struct zinf_optim_hyper *run)
{
    struct zinf_optim_hyper hyper = of == &s->optimizers[0] ? *run : of->hyper;
    hyper.lr = run->lr;
    hyper.step = run->step;
    return hyper;
}

static const struct update_scalars *scalars_of(const struct zinf_trainer *t,
                                               const struct zinf_op *op)
{
    return op->flags & OP_EAGER ? &t->eager : &t->late;
}

/* A step without segment, numbers, state and parameters. */
static struct rule_step step_of(const struct zinf_trainer *t, const struct zinf_op *op,
                                const void *grad)
{
    return (struct rule_step){.setup = &t->setup,
                              .group = (uint32_t)op->arg,
                              .grad = grad,
                              .grad_scale = scalars_of(t, op)->grad_scale,
                              .workspace = host_at(&t->plan, t->plan.at.h_update),
                              .queue = t->queues[ZINF_LANE_DEVICE]};
}

/* A speculative update may see a gradient whose norm, not known yet, is not finite. The speculation
 * has then failed, and what it wrote does not count. */
static int step(struct zinf_trainer *t, const struct zinf_op *op, char *state, char *param,
                const void *grad)
{
    struct rule_step s = step_of(t, op, grad);
    int code = 0;
    s.state = state;
    s.param = param;
    while (!code && rule_next_segment(&t->setup, s.group, &s.segment)) {
        const struct optimizer *of = s.segment.of;
        s.hyper = hyper_of(&t->setup, of, &scalars_of(t, op)->hyper);
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

static struct zinf_packed *packed_of(const struct zinf_trainer *t, const struct rule_thing *thing,
                                     uint8_t relative)
{
    const struct zinf_tiers *tiers = t->plan.tiers;
    const struct zinf_location home = thing->what == ZINF_PACKABLE_STATE
                                          ? zinf_tiers_group_state(tiers, thing->group, relative)
                                          : zinf_tiers_group_stored(tiers, thing->group, relative);
    return zinf_tiers_packed(tiers, thing->what, thing->group, zinf_location_generation(&home));
}

/* Unpacks packed data beside the tile, and packs them into the tile again, which the drive reads
 * and writes. */
static int unpack(struct zinf_trainer *t, const struct rule_thing *thing, char *plain,
                  const void *slot)
{
    return rule_unpack(thing, plain, slot,
                       (uint64_t)packed_of(t, thing, 0)->read_pages * ZINF_AIO_ALIGN);
}

static char *unpacked_at(const struct zinf_trainer *t, enum zinf_packable what)
{
    return host_at(&t->plan, t->plan.at.h_unpacked + plan_unpacked_at(&t->plan, what));
}

/* Notes that a part has so many packed bytes, 0: unpacked. Returns where in the slot other data may
 * follow that only a restart reads. */
static uint64_t stored(struct zinf_trainer *t, const struct rule_thing *thing, uint64_t bytes)
{
    struct zinf_packed *p = packed_of(t, thing, 1);
    uint64_t behind = thing->what == ZINF_PACKABLE_STATE
                          ? durable_copy_bytes(&t->setup, t->setup.layout.groups[thing->group].n)
                          : 0;
    p->read_pages = (uint32_t)(bytes / ZINF_AIO_ALIGN);
    p->write_pages = bytes && !p->whole ? (uint32_t)((bytes + behind) / ZINF_AIO_ALIGN) : 0;
    return bytes ? bytes : rule_plain_bytes(thing);
}

static int pack(struct zinf_trainer *t, const struct rule_thing *thing, void *slot,
                const char *plain, uint64_t *end)
{
    uint64_t bytes = 0;
    int code = rule_pack(thing, slot, plain, &bytes);
    *end = stored(t, thing, bytes);
    return code;
}

/* Packs parameters that were updated in RAM into the slot that goes to the drive. */
static int pack_copy(struct zinf_trainer *t, const struct zinf_op *op,
                     const struct rule_thing *thing, const char *plain)
{
    uint64_t end;
    if (t->setup.packs == PACK_ALL)
        return pack(t, thing, at(op, 5), plain, &end);
    memcpy(at(op, 5), plain, rule_plain_bytes(thing));
    return 0;
}

/* Bytes of state or parameters as stored now, or, with relative 1, after the update. */
static uint64_t stored_bytes(const struct zinf_trainer *t, const struct rule_thing *thing,
                             uint8_t relative)
{
    const uint64_t pages = packed_of(t, thing, relative)->read_pages;
    return pages ? pages * ZINF_AIO_ALIGN : rule_plain_bytes(thing);
}

static struct zinf_location home_of(const struct zinf_trainer *t, const struct rule_thing *thing)
{
    return thing->what == ZINF_PACKABLE_STATE
               ? zinf_tiers_group_state(t->plan.tiers, thing->group, 0)
               : zinf_tiers_group_param(t->plan.tiers, thing->group, 0);
}

/* The stored form of state or parameters: in RAM if RAM has all of it, else in the tile. */
static const void *stored_in(const struct zinf_trainer *t, const struct zinf_op *op,
                             const struct rule_thing *thing, int operand)
{
    const struct zinf_location home = home_of(t, thing);
    if (home.head && stored_bytes(t, thing, 0) <= home.head)
        return home.memory;
    if (home.head)
        memcpy(at(op, operand), home.memory, home.head);
    return at(op, operand);
}

/* Copies the head of what is new in the tile to RAM; the rest is written from the tile. */
static void keep_head(const struct zinf_trainer *t, const struct zinf_op *op,
                      const struct rule_thing *thing, int operand)
{
    const struct zinf_location home = home_of(t, thing);
    const uint64_t bytes = stored_bytes(t, thing, 1);
    if (home.head)
        memcpy(home.memory, at(op, operand), bytes < home.head ? bytes : home.head);
}

/* Puts state and parameters where the update works. The old parameters are in the tile as on the
 * drive, or on hand unpacked; if there are separate masters, nothing reads them. */
static int begin(struct zinf_trainer *t, const struct zinf_op *op, const struct rule_thing *thing,
                 bool packs, char **place)
{
    const int in = thing->what == ZINF_PACKABLE_STATE ? 0 : 2;
    const bool param = in == 2, needed = !param || t->setup.form != ZINF_STATE_WHOLE;
    const void *from = needed ? stored_in(t, op, thing, in) : NULL;
    *place = packs ? unpacked_at(t, thing->what) : at(op, in + 1);
    if (needed && packs && (!param || at(op, 2) == at(op, 3)))
        return unpack(t, thing, *place, from);
    if (needed)
        copy_if_elsewhere(*place, from, rule_plain_bytes(thing));
    return 0;
}

/* The gradient of a unit that no row has chosen was not kept: it is zeros. */
static int begin_grad(struct zinf_trainer *t, const struct zinf_op *op, void **grad)
{
    const struct rule_thing thing = {&t->setup, ZINF_PACKABLE_GRAD, (uint32_t)op->arg, false};
    const struct zinf_packed *packed = zinf_tiers_packed(t->plan.tiers, thing.what, thing.group, 0);
    const bool packs = op->flags & OP_GRAD;
    *grad = packs ? unpacked_at(t, thing.what) : at(op, 4);
    if (op->flags & OP_KEPT && t->pending[op->unit] == PENDING_ZEROS)
        memset(*grad, 0, rule_plain_bytes(&thing));
    else if (packs)
        return rule_unpack(&thing, *grad, at(op, 4), (uint64_t)packed->read_pages * ZINF_AIO_ALIGN);
    return 0;
}

/* ---- one update ---- */

/* What of a sub-group is packed, and where its parts are. */
struct update {
    const struct zinf_op *op;
    struct rule_thing state_of, param_of;
    bool packs_state, packs_param, copies;
    void *grad;
    char *param;  /* after the update, if it was made in place */
    uint64_t end; /* where other data may follow the state */
};

static struct update update_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    const uint32_t group = (uint32_t)op->arg;
    const bool summed = t->setup.config->checksums;
    struct update u = {.op = op,
                       .state_of = {&t->setup, ZINF_PACKABLE_STATE, group, summed},
                       .param_of = {&t->setup, ZINF_PACKABLE_PARAM, group, summed},
                       .packs_state = t->setup.packs && op->flags & OP_PACKED,
                       .copies = op->n_at > 5,
                       .end = t->setup.state_bytes[group]};
    u.packs_param = t->setup.packs == PACK_ALL && op->flags & OP_PARAM && !u.copies;
    return u;
}

/* Updates the sub-group as a whole, unpacked. */
static int update_whole(struct zinf_trainer *t, struct update *u)
{
    const struct zinf_op *op = u->op;
    uint64_t param_end;
    char *state;
    int code = begin(t, op, &u->state_of, u->packs_state, &state);
    if (!code)
        code = begin(t, op, &u->param_of, u->packs_param, &u->param);
    if (!code)
        code = step(t, op, state, u->param, u->grad);
    if (!code && u->packs_state)
        code = pack(t, &u->state_of, at(op, 1), state, &u->end);
    if (!code && u->packs_param)
        code = pack(t, &u->param_of, at(op, 3), u->param, &param_end);
    return code;
}

/* Whether the parameters on hand stay and only their image is new. */
static bool only_image(const struct zinf_trainer *t, const struct update *u)
{
    const uint64_t n = t->setup.layout.groups[u->param_of.group].n;
    return u->packs_param && at(u->op, 2) != at(u->op, 3) && !home_of(t, &u->param_of).head &&
           !durable_copy_bytes(&t->setup, n);
}

/* Whether the drive gets a packed copy of parameters that are updated in RAM. */
static bool makes_copy(const struct zinf_trainer *t, const struct update *u)
{
    return u->copies && t->setup.packs == PACK_ALL;
}

/* Where parameters that are changed in place are, and are to be; only an image is unpacked now. */
static int find_param(struct zinf_trainer *t, struct update *u, struct rule_change *c)
{
    const struct zinf_op *op = u->op;
    int code = 0;
    if (u->packs_param && at(op, 2) == at(op, 3)) {
        code = begin(t, op, &u->param_of, true, &u->param);
    } else {
        c->old_param = stored_in(t, op, &u->param_of, 2);
        u->param = u->packs_param ? unpacked_at(t, ZINF_PACKABLE_PARAM) : at(op, 3);
    }
    c->param = u->param;
    if (c->old_param == c->param)
        c->old_param = NULL;
    return code;
}

/* Updates piece by piece. *done: the sub-group can be updated so. */
static int update_by_pieces(struct zinf_trainer *t, struct update *u, bool *done)
{
    const struct zinf_op *op = u->op;
    const uint64_t bytes = (uint64_t)packed_of(t, &u->state_of, 0)->read_pages * ZINF_AIO_ALIGN;
    struct rule_change c = {.step = step_of(t, op, u->grad),
                            .from_bytes = bytes,
                            .slot = at(op, 1),
                            .room = unpacked_at(t, ZINF_PACKABLE_STATE),
                            .param = at(op, 2),
                            .in_place = !only_image(t, u),
                            .param_slot = u->packs_param     ? at(op, 3)
                                          : makes_copy(t, u) ? at(op, 5)
                                                             : NULL,
                            .summed_elsewhere = u->state_of.summed_elsewhere};
    if (!u->packs_state || op->kind == OP_DEVICE_UPDATE ||
        !rule_next_segment(&t->setup, c.step.group, &c.step.segment) || !rule_changes_packed(&c))
        return 0;
    c.step.hyper = hyper_of(&t->setup, c.step.segment.of, &scalars_of(t, op)->hyper);
    c.from = stored_in(t, op, &u->state_of, 0);
    int code = c.in_place ? find_param(t, u, &c) : 0;
    if (!code)
        code = rule_change_packed(&c);
    u->end = stored(t, &u->state_of, c.bytes);
    if (c.param_slot)
        stored(t, &u->param_of, c.param_bytes);
    u->copies = u->copies && !makes_copy(t, u);
    *done = true;
    return code;
}

/* ---- ranks that share matrices ---- */

/* They make an update together or not at all: a gradient that is not finite may be in one rank's
 * parts, and one rank may have given up speculation before the others. */
static int agree(struct zinf_trainer *t, const struct zinf_op *op, bool finite, bool *makes)
{
    const bool eager = op->flags & OP_EAGER;
    int64_t cannot = !finite || (eager && atomic_load(&t->give_up));
    const int code = zinf_net_max(tensor_axis(&t->setup)->net, &cannot, 1);
    *makes = !code && !cannot;
    if (code || !cannot)
        return code;
    if (!eager)
        return zinf_fail(-ERANGE, "a gradient is not finite");
    atomic_store(&t->give_up, true);
    return 0;
}

/* What GPU lanes have brought, and not finished yet, is waited for. */
static int meet(struct zinf_trainer *t, struct update *u, bool *makes)
{
    const struct setup *s = &t->setup;
    const uint64_t n = s->layout.groups[u->op->arg].n;
    int code =
        device_is_far(s) ? s->device->ops->queue_synchronize(t->queues[ZINF_LANE_DEVICE]) : 0;
    if (!code)
        code = begin_grad(t, u->op, &u->grad);
    if (code)
        return code;
    const uint64_t at = zinf_optim_find_nonfinite(u->grad, ZINF_DTYPE_F32, n, s->cpu->n_threads);
    return agree(t, u->op, at == UINT64_MAX, makes);
}

int trainer_update(struct zinf_trainer *t, const struct zinf_op *op)
{
    const uint64_t n = t->setup.layout.groups[op->arg].n;
    struct update u = update_of(t, op);
    bool done = false, makes = true;
    int code = op->flags & OP_MEETS ? meet(t, &u, &makes) : begin_grad(t, op, &u.grad);
    if (code || !makes)
        return code;
    if (op->flags & OP_EAGER)
        t->copied[op->unit] = COPY_OLDER;
    code = update_by_pieces(t, &u, &done);
    if (!code && !done)
        code = update_whole(t, &u);
    if (code)
        return code;
    keep_head(t, op, &u.state_of, 1);
    keep_head(t, op, &u.param_of, 3);
    code = u.copies ? pack_copy(t, op, &u.param_of, u.param) : 0;
    if (!code && durable_copy_bytes(&t->setup, n))
        memcpy((char *)at(op, 1) + u.end, u.param, durable_copy_bytes(&t->setup, n));
    return code;
}

/* agree: what all ranks agree on, in a few small messages a step. */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

int agree_count(const struct zinf_trainer *t, uint64_t *count)
{
    const struct zinf_compute *c = &t->compute;
    const int64_t seq = c->chunk.whole ? c->chunk.whole : c->seq;
    const int64_t source = c->chunk.whole ? c->chunk.source_whole : c->source_seq;
    const int64_t own[] = {seq, source}, ranks = data_axis(&t->setup)->world;
    struct zinf_net *net = data_axis(&t->setup)->net;
    const int64_t mine =
        /* ranks that share sequences have the same count */
        context_axis(&t->setup)->rank ? 0 : (int64_t)*count;
    int64_t sums[] = {mine, own[0], own[1]};
    int code = net ? zinf_net_add(net, sums, 3) : 0;
    *count = (uint64_t)sums[0];
    if (!code && net && (sums[1] != ranks * own[0] || sums[2] != ranks * own[1]))
        code = zinf_fail(-EINVAL,
                         "this rank's samples have %lld tokens, and sources %lld, in this step; "
                         "those of other ranks have others: one length is for all of a step",
                         (long long)own[0], (long long)own[1]);
    return code;
}

/* ---- a step ---- */

/* The numbers of a step, sent as one message. */
struct numbers {
    struct exact_sum squares, loss, other_losses;
    int64_t given_up;
};
_Static_assert(sizeof(struct numbers) / sizeof(int64_t) <= ZINF_NET_MOST_NUMBERS,
               "a step's numbers are one message");

static void add_losses(const struct zinf_trainer *t, struct numbers *n)
{
    const struct zinf_graph *g = t->setup.graph;
    int64_t samples = setup_samples(&t->setup);
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_LOSS && !g->values[v].away)
            trainer_add_loss(t, v, samples, v == g->loss ? &n->loss : &n->other_losses);
}

int agree_step(struct zinf_trainer *t)
{
    struct numbers n = {.given_up = atomic_load(&t->give_up)};
    struct step_sums *sums = &t->sums;
    for (int lane = 0; lane < ZINF_LANES; lane++)
        exact_add_sum(&n.squares, &sums->squares[lane]);
    if (!tensor_axis(&t->setup)->rank) /* ranks that share tensors have the same losses */
        add_losses(t, &n);
    int code = t->setup.mesh.all ? zinf_net_add(t->setup.mesh.all, (int64_t *)(void *)&n,
                                                sizeof n / sizeof(int64_t))
                                 : 0;
    sums->norm_squares = exact_value(&n.squares);
    sums->loss = exact_value(&n.loss);
    sums->other_losses = exact_value(&n.other_losses);
    atomic_store(&t->give_up, n.given_up > 0);
    return code;
}

/* ---- programs ---- */

int agree_durability(struct setup *s)
{
    int64_t ends = !s->durable;
    int code = is_piped(s) ? zinf_net_max(s->mesh.all, &ends, 1) : 0;
    s->durable = s->durable && !ends;
    return code;
}

static bool fits(const struct setup *s, const struct variant *variant)
{
    struct plan plan;
    const bool fits = !plan_make(&plan, s, variant);
    if (fits)
        plan_fini(&plan);
    return fits;
}

int agree_variant(const struct setup *s, struct variant *variant)
{
    const struct variant found = *variant;
    int code = s->mesh.all ? zinf_net_broadcast(s->mesh.all, 0, variant, sizeof *variant) : 0;
    if (code || !s->mesh.all)
        return code;
    int64_t lacks_room = memcmp(variant, &found, sizeof found) && !fits(s, variant);
    code = zinf_net_max(s->mesh.all, &lacks_room, 1);
    if (lacks_room)
        *variant = plan_usual(s);
    return code;
}

/* Gives rank 0's rates to the ranks along an axis, which have the same stages. */
static int agree_rates_of(struct zinf_trainer *t, const struct zinf_axis *axis)
{
    return axis->net ? zinf_net_broadcast(axis->net, 0, &t->plan.rates, sizeof t->plan.rates) : 0;
}

int agree_rates(struct zinf_trainer *t)
{
    if (is_piped(&t->setup)) {
        const int code = agree_rates_of(t, data_axis(&t->setup));
        return code ? code : agree_rates_of(t, tensor_axis(&t->setup));
    }
    return t->setup.mesh.all
               ? zinf_net_broadcast(t->setup.mesh.all, 0, &t->plan.rates, sizeof t->plan.rates)
               : 0;
}

int agree_flag(const struct zinf_trainer *t, bool *flag)
{
    int64_t number = *flag;
    const int code = t->setup.mesh.all ? zinf_net_max(t->setup.mesh.all, &number, 1) : 0;
    *flag = number;
    return code;
}

/* Whether ranks have different operations, so that each may prefer another schedule. */
static bool plans_differ(const struct zinf_trainer *t)
{
    const struct setup *s = &t->setup;
    const bool groups = context_axis(s)->world > 1 && plan_shares_homes(&t->plan);
    return is_piped(s) || groups;
}

/* *least, *rank: a schedule and this rank's number; become the least of all ranks, and the number
 * of the first that has it. */
static int least_schedule(const struct zinf_trainer *t, enum schedule *least, uint32_t *rank)
{
    const enum schedule own = *least;
    int64_t most = -(int64_t)own, first;
    int code = zinf_net_max(t->setup.mesh.all, &most, 1);
    *least = (enum schedule) - most;
    first = own == *least ? -(int64_t)*rank : INT64_MIN;
    if (!code)
        code = zinf_net_max(t->setup.mesh.all, &first, 1);
    *rank = (uint32_t)-first;
    return code;
}

int agree_schedule(struct zinf_trainer *t)
{
    const enum schedule wanted = t->setup.wanted;
    int code = plan_schedules(&t->plan, INFINITY);
    enum schedule least = t->plan.schedule;
    const uint32_t own = t->setup.mesh.all ? zinf_net_place(t->setup.mesh.all).rank : 0;
    uint32_t rank = own;
    if (!code && plans_differ(t))
        code = least_schedule(t, &least, &rank);
    if (!code && least != t->plan.schedule) {
        t->setup.wanted = least;
        code = plan_schedules(&t->plan, INFINITY);
        t->setup.wanted = wanted;
    }
    if (!code && !own && !t->setup.options.changes_schedule) /* rank 0 speaks for all */
        plan_say_schedule(&t->plan, rank);
    return code;
}

int agree_planned(struct zinf_trainer *t)
{
    struct zinf_net *net = t->setup.mesh.all;
    const struct zinf_net_place at =
        net ? zinf_net_place(net) : (struct zinf_net_place){.world = 1, .seats = 1};
    const uint32_t n = ZINF_MEMORY_TIERS * at.world, first = at.rank - at.seat;
    int64_t *bytes = calloc(n, sizeof *bytes);
    int code = bytes ? 0 : zinf_fail(-ENOMEM, "no memory for %u ranks", at.world);
    for (int tier = 0; !code && tier < ZINF_MEMORY_TIERS; tier++)
        bytes[ZINF_MEMORY_TIERS * at.rank + (uint32_t)tier] =
            (int64_t)zinf_ledger_total_bytes(t->plan.ledger, (enum zinf_memory_tier)tier);
    for (uint32_t i = 0; !code && net && i < n; i += ZINF_NET_MOST_NUMBERS)
        code = zinf_net_add(net, bytes + i,
                            n - i < ZINF_NET_MOST_NUMBERS ? n - i : ZINF_NET_MOST_NUMBERS);
    for (uint32_t rank = 0; !code && rank < at.world; rank++) {
        const uint64_t *own = (const uint64_t *)(const void *)bytes + ZINF_MEMORY_TIERS * rank;
        plan_add_rank(&t->all, rank, own);
        for (int tier = 0; rank - first < at.seats && tier < ZINF_MEMORY_TIERS; tier++)
            t->all.process[tier] += own[tier];
    }
    free(bytes);
    return code;
}

static uint64_t stage_sum(const struct zinf_op *op, uint64_t sum)
{
    const uint64_t numbers[] = {sum, op->kind, (uint64_t)op->stage, (uint64_t)op->micro,
                                (uint64_t)op->visit};
    return XXH3_64bits(numbers, sizeof numbers);
}

static uint64_t update_sum(const struct zinf_op *op, uint64_t sum)
{
    const uint64_t numbers[] = {sum, op->kind, (uint64_t)op->arg, op->flags & OP_EAGER};
    return XXH3_64bits(numbers, sizeof numbers);
}

/* Whether ranks along an axis must have an operation of the lane NET in one order. Those along DATA
 * have the same operations, and among them are all ranks of a sequence: if they agreed on each axis
 * alone, two could meet along DATA before CONTEXT and two others after it, and all four would wait
 * in a circle. So DATA compares the operations of all axes as one sequence. Ranks along DATA then
 * go as one, and the nets between them meet as their own axes say. */
static bool is_compared(const struct zinf_op *op, uint32_t axis)
{
    return op->lane == ZINF_LANE_NET && (op->axis == axis || axis == ZINF_DATA);
}

/* Hashes of exchanges in the order of their lane: along each axis, and among all ranks. */
struct orders {
    uint64_t sums[ZINF_AXES + 1];
};

static void add_op(const struct zinf_op *op, uint32_t axis, uint64_t *sum)
{
    const uint64_t numbers[] = {*sum, op->kind, (uint64_t)op->unit, op->bytes, op->axis};
    if (is_compared(op, axis))
        *sum = XXH3_64bits(numbers, sizeof numbers);
    /* the ranks of a sequence have these in one order with their other exchanges */
    if (op->kind == OP_HAND && axis == ZINF_CONTEXT)
        *sum = stage_sum(op, *sum);
    if (op->lane == ZINF_LANE_DEVICE && axis == ZINF_TENSOR &&
        op->kind >= OP_STAGES) /* ranks that share tensors meet within stages */
        *sum = stage_sum(op, *sum);
    if (op->flags & OP_MEETS && axis == ZINF_TENSOR) /* and within updates, on the same lane */
        *sum = update_sum(op, *sum);
}

static int add_order(void *context, const struct zinf_program *program)
{
    struct orders *o = context;
    for (uint32_t i = 0; i < program->n_ops; i++)
        for (uint32_t axis = 0; axis <= ZINF_AXES; axis++)
            add_op(&program->ops[i], axis, &o->sums[axis]);
    return 0;
}

/* One look at each program, since its pieces are made and put in order for it. */
static int find_orders(const struct plan *p, struct orders *o)
{
    const struct zinf_program *programs[] = {&p->gradients, &p->drain,  &p->wait, &p->speculate,
                                             &p->forward,   &p->logits, &p->sweep};
    int code = 0;
    for (uint32_t axis = 0; axis <= ZINF_AXES; axis++)
        o->sums[axis] = (uint64_t)p->schedule;
    for (size_t i = 0; !code && i < sizeof programs / sizeof *programs; i++) {
        for (uint32_t axis = 0; axis <= ZINF_AXES; axis++)
            o->sums[axis] += i;
        code = plan_each_piece(p, programs[i], add_order, o);
    }
    return code;
}

static bool has_others(const struct zinf_mesh *mesh)
{
    bool has = mesh->all != NULL;
    for (uint32_t a = 0; a < ZINF_AXES; a++)
        has |= mesh->at[a].net != NULL;
    return has;
}

/* Shows the sums that the ranks of each net must have alike. Along TENSOR and CONTEXT only what
 * they meet in must be alike. Along PIPE neighbours exchange in the order of the itinerary, which
 * is not compared. */
static int each_order(struct zinf_trainer *t,
                      int (*see)(void *context, struct zinf_net *net, uint64_t sum), void *context)
{
    const struct zinf_mesh *mesh = &t->setup.mesh;
    struct orders orders = {{0}};
    int code = has_others(mesh) ? find_orders(&t->plan, &orders) : 0;
    for (uint32_t a = 0; !code && a < ZINF_AXES; a++)
        if (a != ZINF_PIPE && mesh->at[a].net)
            code = see(context, mesh->at[a].net, orders.sums[a]);
    return code || !mesh->all ? code : see(context, mesh->all, orders.sums[ZINF_AXES]);
}

static int compare(void *context, struct zinf_net *net, uint64_t sum)
{
    const struct zinf_net_fact fact = {
        "order of transfers between ranks (hosts that differ in threads or memory: set "
        "zinf.threads, zinf.host_memory and zinf.device_memory)",
        sum};
    (void)context;
    return zinf_net_compare(net, &fact, 1);
}

int agree_programs(struct zinf_trainer *t)
{
    return each_order(t, compare, NULL);
}

/* Sets *context, a bool, if ranks have different sums. */
static int see_difference(void *context, struct zinf_net *net, uint64_t sum)
{
    bool *differ = context;
    int64_t most[] = {(int64_t)(sum >> 1), -(int64_t)(sum >> 1)}; /* and so the least */
    const int code = zinf_net_max(net, most, 2);
    *differ |= !code && most[0] != -most[1];
    return code;
}

int agree_plan(struct zinf_trainer *t)
{
    const struct zinf_rates agreed = t->plan.order_rates, now = t->plan.rates;
    struct zinf_program *programs[] = {&t->plan.gradients, &t->plan.drain, &t->plan.wait,
                                       &t->plan.speculate};
    bool differ = false;
    int code = agree_schedule(t);
    if (!code)
        code = each_order(t, see_difference, &differ);
    if (!code)
        code = agree_flag(t, &differ);
    if (code || !differ)
        return code;
    t->plan.rates = agreed;
    code = agree_schedule(t);
    t->plan.rates = now;
    for (size_t i = 0; !code && i < sizeof programs / sizeof *programs; i++)
        plan_cost_again(&t->plan, programs[i]);
    return code ? code : agree_programs(t);
}

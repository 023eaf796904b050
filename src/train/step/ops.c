/* ops: what each operation of a program does when its lane reaches it; a table with a row for each
 * kind. */
#include "base/random.h"
#include "train/rules/rules.h"
#include "train/trainer.h"

#include <stdio.h>
#include <unistd.h>

static void *at(const struct zinf_op *op, int operand)
{
    return zinf_address(&op->at[operand]);
}

static int run_copy_in(struct zinf_trainer *t, const struct zinf_op *op)
{
    return t->setup.device->ops->copy_to_device(t->queues[ZINF_LANE_H2D], at(op, 0), at(op, 1),
                                                trainer_moved(t, op));
}

static int run_assemble(struct zinf_trainer *t, const struct zinf_op *op)
{
    file_unit_assemble(&t->setup, (uint32_t)op->unit, at(op, 0), at(op, 1));
    return 0;
}

static struct zinf_packed *packed_of(struct zinf_trainer *t, const struct zinf_op *op)
{
    return zinf_tiers_packed(t->plan.tiers, op_packable(op), (uint32_t)op->arg,
                             zinf_location_generation(op->where));
}

/* The whole stored array of `bytes` bytes (0: not packed): in RAM if RAM has all of it; else its
 * head is put before what was read from the drive. */
static const void *stored_at(const struct zinf_op *op, uint64_t bytes)
{
    const uint64_t head = op->where->head;
    if (head && bytes && bytes <= head)
        return at(op, 2);
    if (head)
        memcpy(at(op, 1), at(op, 2), head);
    return at(op, 1);
}

static int run_unpack(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct rule_thing thing = {&t->setup, op_packable(op), (uint32_t)op->arg, false};
    const uint64_t bytes = (uint64_t)packed_of(t, op)->read_pages * ZINF_AIO_ALIGN;
    return rule_unpack(&thing, at(op, 0), stored_at(op, bytes), bytes);
}

/* The CPU checks the table, by which the device unpacks. */
static int run_packed_in(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct rule_thing thing = {&t->setup, op_packable(op), (uint32_t)op->arg, false};
    const uint64_t bytes = (uint64_t)packed_of(t, op)->read_pages * ZINF_AIO_ALIGN;
    const void *from = stored_at(op, bytes);
    int code = bytes ? rule_check_packed(&thing, from, bytes) : 0;
    return code ? code
                : t->setup.device->ops->copy_to_device(t->queues[ZINF_LANE_H2D], at(op, 0), from,
                                                       trainer_moved(t, op));
}

static int run_device_unpack(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct rule_thing thing = {&t->setup, op_packable(op), (uint32_t)op->arg, false};
    struct zinf_queue *queue = t->queues[ZINF_LANE_DEVICE];
    uint32_t *marks = (uint32_t *)(void *)device_at(&t->plan, t->plan.at.d_damage);
    return packed_of(t, op)->read_pages
               ? rule_device_unpack(&thing, queue, at(op, 0), at(op, 1), marks + op->arg)
               : t->setup.device->ops->copy(queue, at(op, 0), at(op, 1), rule_plain_bytes(&thing));
}

/* Only gradients, which no restart reads: the rest of their space need not be written. */
static int run_pack(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct rule_thing thing = {&t->setup, op_packable(op), (uint32_t)op->arg,
                                     t->setup.config->checksums};
    struct zinf_packed *packed = packed_of(t, op);
    uint64_t bytes = 0;
    int code = rule_pack(&thing, at(op, 0), at(op, 1), &bytes);
    packed->read_pages = packed->write_pages = (uint32_t)(bytes / ZINF_AIO_ALIGN);
    return code;
}

/* Frozen parameters that stay in RAM are encoded by the first step. */
static int run_encode(struct zinf_trainer *t, const struct zinf_op *op)
{
    const uint32_t unit = (uint32_t)op->unit;
    const bool lasts = !unit_trains(&t->setup, unit) && plan_keeps_image(&t->plan, unit);
    if (lasts && t->encoded[unit])
        return 0;
    t->encoded[unit] = lasts;
    zinf_float8_encode(&t->setup.images[op->unit], at(op, 1), at(op, 0),
                       t->setup.device->n_threads);
    return 0;
}

static int run_widen(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_float8_image *image = &t->setup.images[op->unit];
    const struct zinf_widen args = {
        .image = at(op, 1), .n_runs = image->n_runs, .most = image->most, .params = at(op, 0)};
    return t->setup.device->ops->widen(t->queues[ZINF_LANE_DEVICE], &args);
}

static int run_copy_out(struct zinf_trainer *t, const struct zinf_op *op)
{
    return t->setup.device->ops->copy_to_host(t->queues[ZINF_LANE_D2H], at(op, 0), at(op, 1),
                                              trainer_moved(t, op));
}

/* ---- gradients ---- */

static int run_add(struct zinf_trainer *t, const struct zinf_op *op)
{
    uint64_t n = op->bytes / sizeof(float);
    if (op->flags & OP_ONTO && op->kind == OP_DEVICE_ADD)
        return trainer_add_rest(t, op);
    if (op->kind == OP_DEVICE_ADD)
        t->sums_made.by_kernels += n;
    if (op->lane == ZINF_LANE_DEVICE)
        return t->setup.device->ops->add(t->queues[ZINF_LANE_DEVICE], at(op, 0), at(op, 1), n);
    zinf_optim_accumulate(at(op, 0), at(op, 1), ZINF_DTYPE_F32, n, t->setup.device->n_threads);
    return 0;
}

static int run_clear(struct zinf_trainer *t, const struct zinf_op *op)
{
    (void)t;
    memset(at(op, 0), 0, op->bytes);
    return 0;
}

static int run_device_copy(struct zinf_trainer *t, const struct zinf_op *op)
{
    return t->setup.device->ops->copy(t->queues[ZINF_LANE_DEVICE], at(op, 0), at(op, 1), op->bytes);
}

static int run_squares(struct zinf_trainer *t, const struct zinf_op *op)
{
    return t->setup.device->ops->sum_squares(t->queues[ZINF_LANE_DEVICE], at(op, 0), at(op, 1),
                                             op->bytes / sizeof(float));
}

/* Whether another rank counts the tensor with this element of the slice. A block belongs to one
 * tensor. */
static bool is_counted_elsewhere(const struct zinf_trainer *t, const struct zinf_op *op,
                                 uint64_t element)
{
    const struct zinf_unit *unit = &t->setup.graph->units[op->unit];
    const uint64_t at = t->setup.layout.units[op->unit].slice_first + element;
    for (uint32_t i = 0; t->setup.graph->shards.of && i < unit->n_tensors; i++)
        if (at >= unit->tensors[i].offset && at < unit->tensors[i].offset + unit->tensors[i].elems)
            return unit->tensors[i].counted_elsewhere;
    return false;
}

/* Adds block by block, without rounding in between. */
static void add_squares(struct zinf_trainer *t, const struct zinf_op *op,
                        const struct zinf_layout_group *group)
{
    struct exact_sum *sum = &t->sums.squares[op->lane];
    const float *grad = (const float *)at(op, 0) + group->first;
    const double *parts = (const double *)at(op, 0) + group->first / ZINF_SUM_BLOCK;
    for (uint64_t i = 0; i < group->n / ZINF_SUM_BLOCK; i++)
        if (!is_counted_elsewhere(t, op, group->first + i * ZINF_SUM_BLOCK))
            exact_add(sum, op->arg ? parts[i]
                                   : zinf_optim_sum_squares(grad + i * ZINF_SUM_BLOCK,
                                                            ZINF_DTYPE_F32, ZINF_SUM_BLOCK, 1));
}

/* Adds in the order of zinf_optim_sum_squares. */
static double sum_parts(const double *parts, const struct zinf_layout_group *group)
{
    uint64_t first = group->first / ZINF_SUM_BLOCK, n = group->n / ZINF_SUM_BLOCK;
    double sum = 0;
    for (uint64_t i = first; i < first + n; i++)
        sum += parts[i];
    return sum;
}

/* Device memory that the CPU can read is summed in place: by the same code, to the same bits. A
 * norm that already passes the clip value, or is not finite, ends this step's speculation. Two
 * lanes may add to `partial` at once: each addition is atomic, their order does not matter, since
 * the sum only decides whether to give up early and the norm itself is folded from the parts. */
static int run_norm(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_layout_unit *unit = &t->setup.layout.units[op->unit];
    const float *grad = at(op, 0);
    const double *parts = at(op, 0);
    double sum = 0;
    for (uint32_t g = unit->first_group; g < unit->first_group + unit->n_groups; g++) {
        const struct zinf_layout_group *group = &t->setup.layout.groups[g];
        double part = op->arg ? sum_parts(parts, group)
                              : zinf_optim_sum_squares(grad + group->first, ZINF_DTYPE_F32,
                                                       group->n, t->setup.device->n_threads);
        t->plan.norm_parts[g] = part;
        if (counts_squares(&t->setup, (uint32_t)op->unit))
            add_squares(t, op, group);
        sum += part;
    }
    double before = atomic_load(&t->partial);
    while (!atomic_compare_exchange_weak(&t->partial, &before, before + sum))
        ;
    if (!(before + sum <= t->partial_limit))
        atomic_store(&t->give_up, true);
    return 0;
}

/* ---- ranks ---- */

static const struct zinf_axis *axis_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    return &t->setup.mesh.at[op->axis];
}

static int run_gather(struct zinf_trainer *t, const struct zinf_op *op)
{
    return zinf_net_gather(
        axis_of(t, op)->net, at(op, 1), at(op, 0),
        zinf_layout_slice_bytes(&t->setup.layout, (uint32_t)op->unit, t->setup.dtype));
}

/* A rank's slice may be reused only when all copies of it have ended. */
static int run_pull(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct setup *s = &t->setup;
    const struct zinf_axis *data = axis_of(t, op);
    uint64_t bytes = zinf_layout_slice_bytes(&s->layout, (uint32_t)op->unit, s->dtype);
    char *to = at(op, 0);
    int code = zinf_net_lend(data->net, at(op, 1), bytes, t->lent);
    if (code)
        return code;
    for (uint32_t r = 0; !code && r < data->world; r++)
        code = s->device->ops->copy_to_device(t->pull, to + r * bytes, t->lent[r], bytes);
    int copied = s->device->ops->queue_synchronize(t->pull);
    int returned = zinf_net_return(data->net);
    return code ? code : copied ? copied : returned;
}

static int run_scatter(struct zinf_trainer *t, const struct zinf_op *op)
{
    return zinf_net_scatter_sum(axis_of(t, op)->net, at(op, 1), at(op, 0),
                                t->setup.layout.units[op->unit].slice_elems);
}

/* Each rank makes a part of the sum. */
static int run_sum_for_all(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_axis *data = axis_of(t, op);
    uint64_t part = t->setup.layout.units[op->unit].padded_elems / data->world;
    float *own = (float *)at(op, 1) + data->rank * part;
    int code = zinf_net_scatter_sum(data->net, at(op, 1), own, part);
    return code ? code : zinf_net_gather(data->net, own, at(op, 0), part * sizeof *own);
}

static int run_link_gather(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct setup *s = &t->setup;
    for (uint32_t r = 0; r < axis_of(t, op)->world; r++)
        t->slice_bytes[r] = zinf_layout_slice_bytes(&s->layout, (uint32_t)op->unit, s->dtype);
    return zinf_link_gather(axis_of(t, op)->link, at(op, 1), at(op, 0), t->slice_bytes);
}

static struct zinf_link_scratch link_scratch(const struct zinf_trainer *t)
{
    return (struct zinf_link_scratch){device_at(&t->plan, t->plan.at.d_link), t->plan.sizes.link};
}

static int run_link_scatter(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_link_scratch scratch = link_scratch(t);
    return zinf_link_scatter_sum(axis_of(t, op)->link, at(op, 1), at(op, 0),
                                 t->setup.layout.units[op->unit].slice_elems, &scratch);
}

/* ---- borders between ranks' stages ---- */

/* Host memory in place of memory of a device that the CPU cannot access: buffer `which` of two,
 * filled with so many bytes. */
static int lend_host(struct zinf_trainer *t, void **memory, uint64_t bytes, uint32_t which)
{
    const struct zinf_device_ops *ops = t->setup.device->ops;
    if (!device_is_far(&t->setup))
        return 0;
    void *device = *memory;
    *memory = host_at(&t->plan, t->plan.at.h_border + which * t->plan.sizes.border);
    int code = bytes ? ops->copy_to_host(t->pull, *memory, device, bytes) : 0;
    return code || !bytes ? code : ops->queue_synchronize(t->pull);
}

static int take_back(struct zinf_trainer *t, void *device, const void *memory, uint64_t bytes)
{
    const struct zinf_device_ops *ops = t->setup.device->ops;
    if (device == memory || !bytes)
        return 0;
    int code = ops->copy_to_device(t->pull, device, memory, bytes);
    return code ? code : ops->queue_synchronize(t->pull);
}

/* Only the rows that the step's samples have. */
static int run_border(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_value *value = &t->setup.graph->values[op->arg];
    const bool next = op->visit;
    const uint64_t own = zinf_value_bytes(&t->compute, value);
    const uint64_t back = zinf_value_gradient_bytes(&t->compute, value);
    const uint64_t gives = op->kind == OP_TAKE ? 0 : next ? own : back;
    const uint64_t takes = op->kind == OP_GIVE ? 0 : next ? back : own;
    void *given = at(op, 0), *taken = at(op, 1);
    int code = lend_host(t, &given, gives, 0);
    if (!code)
        lend_host(t, &taken, 0, 1);
    void *const out[2] = {given, given}, *const in[2] = {taken, taken};
    uint64_t out_bytes[2] = {0}, in_bytes[2] = {0};
    out_bytes[next] = gives; /* of two neighbours, the rank with later stages is number 1 */
    in_bytes[next] = takes;
    if (!code)
        code = zinf_net_trade(t->setup.borders[next],
                              &(struct zinf_net_trade){out, in, out_bytes, in_bytes});
    return code ? code : take_back(t, at(op, 1), taken, takes);
}

/* Of the ranks that have the unit, each gives to the next, or the last one to all. */
static int run_share(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct setup *s = &t->setup;
    const struct zinf_axis *pipe = pipe_axis(s);
    const struct shared_unit *shared = unit_shared(s, (uint32_t)op->unit);
    const uint64_t bytes = all_units(s)->units[op->unit].slice_elems * sizeof(float);
    const uint32_t round = (uint32_t)op->visit, last = shared->n - 1;
    const uint32_t first = round < last ? round + 1 : 0, end = round < last ? round + 2 : last;
    struct share_arrays *a = &t->share;
    memset(a->out_bytes, 0, 2 * pipe->world * sizeof *a->out_bytes);
    for (uint32_t i = first; i < end; i++) {
        if (shared->ranks[round] == pipe->rank)
            a->out_bytes[shared->ranks[i]] = bytes;
        if (shared->ranks[i] == pipe->rank)
            a->in_bytes[shared->ranks[round]] = bytes;
    }
    for (uint32_t r = 0; r < pipe->world; r++) {
        a->out[r] = at(op, 0);
        a->in[r] = at(op, 1);
    }
    return zinf_net_trade(pipe->net,
                          &(struct zinf_net_trade){a->out, a->in, a->out_bytes, a->in_bytes});
}

/* ---- keys and values of ranks that share sequences ---- */

/* By the host: shared_keys.c. Bytes of one rank's share; bytes received are those of all other
 * ranks. */
static uint64_t share_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    return op->bytes / (axis_of(t, op)->world - 1);
}

static int run_link_gather_keys(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_axis *axis = axis_of(t, op);
    char *whole = at(op, 0);
    for (uint32_t r = 0; r < axis->world; r++)
        t->slice_bytes[r] = share_of(t, op);
    return zinf_link_gather(axis->link, whole + axis->rank * share_of(t, op), whole,
                            t->slice_bytes);
}

static int run_link_sum_keys(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_axis *axis = axis_of(t, op);
    const struct zinf_link_scratch scratch = link_scratch(t);
    const uint64_t elems = share_of(t, op) / sizeof(float);
    float *whole = at(op, 0);
    return zinf_link_scatter_sum(axis->link, whole, whole + axis->rank * elems, elems, &scratch);
}

/* ---- choices ---- */

/* Writes `chosen` without a lock: operations that are left out by it wait for this one, and the
 * next choice of the same stage waits for them. */
static int run_choose(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_stage *stage = &t->setup.graph->stages[op->stage];
    const uint64_t all =
        zinf_rows_count(&t->compute, t->setup.graph->values[stage->out.at[0]].rows_of);
    const uint64_t rows =
        setup_chunk(&t->setup, op->micro) < trainer_visited(t, setup_sample(&t->setup, op->micro))
            ? all
            : 0;
    int32_t *list = at(op, 0);
    int code = zinf_choice_list(list, stage, at(op, 1), rows);
    for (uint32_t v = 0; !code && v < stage->sweep.n; v++) {
        uint8_t *chosen = &t->chosen[stage->sweep.at[v]];
        *chosen = (!op->arg && *chosen) || list[v + 1] > list[v];
    }
    return code;
}

/* On the lane NET. Fetches that the choice may leave out wait for this operation. */
static int run_unite(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_ids *sweep = &t->setup.graph->stages[op->stage].sweep;
    int64_t chosen[ZINF_NET_MOST_NUMBERS];
    int code = 0;
    for (uint32_t first = 0; !code && first < sweep->n; first += ZINF_NET_MOST_NUMBERS) {
        uint32_t left = sweep->n - first;
        uint32_t n = left < ZINF_NET_MOST_NUMBERS ? left : ZINF_NET_MOST_NUMBERS;
        for (uint32_t i = 0; i < n; i++)
            chosen[i] = t->chosen[sweep->at[first + i]];
        code = zinf_net_max(axis_of(t, op)->net, chosen, n);
        for (uint32_t i = 0; !code && i < n; i++)
            t->chosen[sweep->at[first + i]] = (uint8_t)chosen[i];
    }
    return code;
}

/* ---- generations ---- */

static int run_flip(struct zinf_trainer *t, const struct zinf_op *op)
{
    if (t->plan.homes[op->unit].generations == 2)
        *zinf_tiers_live(t->plan.tiers, (uint32_t)op->unit) ^= 1;
    t->pending[op->unit] = PENDING_NOTHING;
    t->copied[op->unit] = COPY_SAME;
    return 0;
}

static int run_commit(struct zinf_trainer *t, const struct zinf_op *op)
{
    (void)op;
    return durable_record(t);
}

static int run_meet(struct zinf_trainer *t, const struct zinf_op *op)
{
    (void)op;
    return durable_meet(t);
}

bool trainer_skip_not_due(void *context, const struct zinf_op *op)
{
    struct zinf_trainer *t = context;
    if (op->kind == OP_COMMIT)
        return !t->durable.due;
    if (op->kind == OP_MEET)
        return !t->durable.unmet;
    if (op->flags & OP_DEFERRED)
        return !t->pending[op->unit];
    return op->flags & OP_EAGER && !(op->flags & OP_MEETS) && atomic_load(&t->give_up);
}

bool trainer_skip_op(void *context, const struct zinf_op *op)
{
    const struct zinf_trainer *t = context;
    if (op->flags & (OP_CHOSEN | OP_UNCHOSEN) && !t->chosen[op->unit] == !(op->flags & OP_UNCHOSEN))
        return true;
    if (op->flags & OP_OF_ROW && setup_chunk(&t->setup, op->micro) != t->logits_chunk)
        return true;
    if (trainer_is_beyond(t, op))
        return !trainer_begins_sums(t, op);
    const bool moves = op->kind == OP_READ || op->kind == OP_WRITE;
    if (moves && op->where->head && !trainer_moved(context, op)) /* RAM has all of it */
        return true;
    if (op->flags & OP_CARRIED && op->bytes && !trainer_moved(context, op))
        return true;
    if (op->kind == OP_READ && op->flags & OP_KEPT && t->pending[op->unit] == PENDING_ZEROS)
        return true;
    return trainer_skip_not_due(context, op);
}

/* ---- the table ---- */

static int (*const run_by_kind[])(struct zinf_trainer *, const struct zinf_op *) = {
#define OP_ROW(kind, name, run, cost) [kind] = run,
    OP_ROWS(OP_ROW)
#undef OP_ROW
        [OP_STAGES] = trainer_run_stage,
};

/* For tests: lets lanes stand still now and then. */
static void disturb(struct zinf_trainer *t)
{
    uint32_t counter[4] = {atomic_fetch_add(&t->n_disturbed, 1), 0, 0, 7}, bits[4];
    zinf_philox(counter, t->setup.options.seed, bits);
    if (bits[0] % 4 == 0)
        usleep(bits[1] % t->setup.options.delay_us);
}

int trainer_run_op(void *context, const struct zinf_op *op)
{
    struct zinf_trainer *t = context;
    if (t->setup.options.delay_us)
        disturb(t);
    return run_by_kind[op->kind < OP_STAGES ? op->kind : OP_STAGES](t, op);
}

/* ---- before the first program ---- */

int trainer_fill(struct zinf_trainer *t)
{
    int code = 0;
    if (!t->filled && t->plan.fill.n_ops)
        code = zinf_executor_run(t->executor, &t->plan.fill);
    t->filled = !code;
    return code;
}

/* ---- names ---- */

/* Names such as "block forward block.3", "read block.3", "write hidden.2", "commit step". */
const char *plan_op_name(const struct setup *setup, const struct zinf_op *op, char buffer[64])
{
    static const char *const passes[ZINF_PASSES] = {
        [ZINF_PASS_FORWARD] = "forward",
        [ZINF_PASS_BACKWARD] = "backward",
        [ZINF_PASS_WHOLE] = "forward+backward",
        [ZINF_PASS_ROW] = "row",
        [ZINF_PASS_CARRY] = "carry",
        [ZINF_PASS_CARRY_BACK] = "carry backward",
    };
    const struct zinf_graph *graph = setup->walk.graph;
    bool moves = op->kind == OP_READ || op->kind == OP_WRITE ||
                 (op->kind >= OP_GIVE && op->kind <= OP_TRADE);
    bool of_stage = op->kind >= OP_STAGES || op->kind == OP_CHOOSE;
    const char *what = op->flags & OP_CARRIED ? "keys and values"
                       : op->unit >= 0        ? graph->units[op->unit].name
                       : of_stage             ? graph->stages[op->stage].name
                       : moves                ? graph->values[op->arg].name
                       : op->kind == OP_COMMIT || op->kind == OP_MEET ? "step"
                                                                      : "activations";
    if (op->kind >= OP_STAGES)
        snprintf(buffer, 64, "%s %s %s", setup->walk.kinds[kind_sort(op->kind)]->name,
                 passes[kind_pass(op->kind)], what);
    else
        snprintf(buffer, 64, "%s %s", op_kind_name(op->kind), what);
    return buffer;
}

const char *trainer_op_name(void *context, const struct zinf_op *op, char buffer[64])
{
    const struct zinf_trainer *t = context;
    return plan_op_name(&t->setup, op, buffer);
}

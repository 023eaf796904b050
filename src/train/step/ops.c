/* ops: what each operation of a program does when its lane reaches it. */
#include "base/random.h"
#include "train/trainer.h"

#include <stdio.h>
#include <unistd.h>

static struct zinf_gpt2_compute compute_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_gpt2_compute c = t->compute;
    c.first_sample = (uint64_t)op->micro * (uint64_t)t->setup.batch;
    return c;
}

static const int32_t *ids_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    return t->plan.d_ids + (uint64_t)op->micro * t->setup.rows;
}

static struct zinf_head head_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_head head = t->plan.heads[op->micro % t->plan.n_x_micros];
    uint64_t first = (uint64_t)op->micro * t->setup.rows;
    head.targets = t->plan.d_targets + first;
    head.loss = t->plan.d_losses + first;
    head.scale = t->plan.heads[0].scale;
    return head;
}

static const struct zinf_block_kept *kept_of(const struct zinf_trainer *t, const struct zinf_op *op,
                                             uint32_t layer)
{
    return &t->plan.kept[(int64_t)layer * t->plan.n_x_micros + op->micro % t->plan.n_x_micros];
}

static void *at(const struct zinf_op *op, int operand)
{
    return zinf_address(&op->at[operand]);
}

/* Sub-groups are padded beyond the unit's own elements: nothing of a slot's last user may stay. */
static int zero_tail(const struct zinf_trainer *t, int unit, float *grads)
{
    uint64_t end = zinf_model_unit(t->setup.model, unit)->elems;
    uint64_t padded = t->setup.layout.units[unit].padded_elems;
    if (end == padded)
        return 0;
    return t->setup.device->ops->fill_zero(t->queues[ZINF_LANE_DEVICE], grads + end,
                                           (padded - end) * sizeof(float));
}

static int run_block(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_gpt2_compute c = compute_of(t, op);
    return zinf_block_forward(&c, zinf_model_unit(t->setup.model, op->unit), at(op, 0), at(op, 1),
                              at(op, 2), kept_of(t, op, (uint32_t)op->arg), &t->plan.scratch);
}

static int run_block_backward(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_gpt2_compute c = compute_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->setup.model, op->unit);
    const struct zinf_block_kept *kept = kept_of(t, op, (uint32_t)op->arg / 2);
    bool recompute = op->arg & 1;
    int code = 0;
    if (recompute)
        code = zinf_block_forward(&c, unit, at(op, 0), at(op, 1), NULL, kept, &t->plan.scratch);
    if (!code)
        code = zinf_block_backward(&c, unit, at(op, 0), at(op, 2), at(op, 1),
                                   dx_at(&t->plan, op->micro), kept, &t->plan.scratch);
    return code ? code : zero_tail(t, op->unit, at(op, 2));
}

static int run_embedding(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_gpt2_compute c = compute_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->setup.model, op->unit);
    switch ((enum op_kind)op->kind) {
    case OP_EMBED_TILE:
        return zinf_embed_tile(&c, unit, at(op, 0), ids_of(t, op), at(op, 1));
    case OP_EMBED_POSITION:
        return zinf_embed_position(&c, unit, at(op, 0), t->plan.d_positions, at(op, 1));
    default:
        return zinf_embed_dropout_backward(&c, dx_at(&t->plan, op->micro));
    }
}

static int run_embedding_backward(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_gpt2_compute c = compute_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->setup.model, op->unit);
    const void *dx = dx_at(&t->plan, op->micro);
    bool add = op->arg;
    int code;
    if (op->kind == OP_EMBED_TILE_BACKWARD)
        code = zinf_embed_tile_backward(&c, unit, at(op, 2), ids_of(t, op), dx, add);
    else
        code = zinf_embed_position_backward(&c, unit, at(op, 2), t->plan.d_positions, dx, add);
    return code || add ? code : zero_tail(t, op->unit, at(op, 2));
}

static int run_head(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_gpt2_compute c = compute_of(t, op);
    struct zinf_head head = head_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->setup.model, op->unit);
    int code = 0;
    switch ((enum op_kind)op->kind) {
    case OP_HEAD_NORM:
        return zinf_head_norm(&c, unit, at(op, 0), at(op, 1), &head);
    case OP_HEAD_TILE:
        if (op->arg == 0)
            code = zinf_head_start(&c, &head);
        return code ? code : zinf_head_tile(&c, unit, at(op, 0), &head);
    case OP_HEAD_FINISH:
        return zinf_head_finish(&c, &head);
    default:
        return zinf_head_row_logits(&c, unit, at(op, 0), t->logits_row, &head);
    }
}

/* Where each tile's weights are now: of two generations it changes from step to step. */
static int run_head_all(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_gpt2_compute c = compute_of(t, op);
    struct zinf_head head = head_of(t, op);
    float *const *grads = op->arg ? t->plan.tile_sums : t->plan.tile_grads;
    int n = zinf_model_n_tiles(t->setup.model);
    for (int u = 0; u < n; u++)
        t->plan.tile_weights[u] = zinf_address(&t->plan.tile_places[u]);
    int code = zinf_head_all(&c, t->setup.model, t->plan.tile_weights, grads, &head);
    for (int u = 0; !code && u < n; u++)
        code = zero_tail(t, u, grads[u]);
    return code;
}

static int run_head_backward(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_gpt2_compute c = compute_of(t, op);
    struct zinf_head head = head_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->setup.model, op->unit);
    int code;
    if (op->kind == OP_HEAD_ALL)
        return run_head_all(t, op);
    if (op->kind == OP_HEAD_TILE_BACKWARD)
        code = zinf_head_tile_backward(&c, unit, at(op, 0), at(op, 2), &head, op->arg == 0);
    else
        code = zinf_head_norm_backward(&c, unit, at(op, 0), at(op, 2), at(op, 1),
                                       dx_at(&t->plan, op->micro), &head);
    return code ? code : zero_tail(t, op->unit, at(op, 2));
}

static int run_add(struct zinf_trainer *t, const struct zinf_op *op)
{
    uint64_t n = op->bytes / sizeof(float);
    if (op->lane == ZINF_LANE_DEVICE)
        return t->setup.device->ops->add(t->queues[ZINF_LANE_DEVICE], at(op, 0), at(op, 1), n);
    zinf_optim_accumulate(at(op, 0), at(op, 1), ZINF_DTYPE_F32, n, t->setup.device->n_threads);
    return 0;
}

/* In the order in which zinf_optim_sum_squares adds its blocks. */
static double sum_parts(const double *parts, const struct zinf_layout_group *group)
{
    uint64_t first = group->first / ZINF_SUM_BLOCK, n = group->n / ZINF_SUM_BLOCK;
    double sum = 0;
    for (uint64_t i = first; i < first + n; i++)
        sum += parts[i];
    return sum;
}

/* Device memory that the CPU can read is summed in place: the same code, the same bits. A norm
 * that already passes the clip value, or is not finite, ends this step's speculation. */
static int run_norm(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_layout_unit *unit = &t->setup.layout.units[op->unit];
    const float *grad = at(op, 0);
    const double *parts = at(op, 0);
    double sum = atomic_load(&t->partial);
    for (uint32_t g = unit->first_group; g < unit->first_group + unit->n_groups; g++) {
        const struct zinf_layout_group *group = &t->setup.layout.groups[g];
        t->plan.norm_parts[g] = op->arg
                                    ? sum_parts(parts, group)
                                    : zinf_optim_sum_squares(grad + group->first, ZINF_DTYPE_F32,
                                                             group->n, t->setup.device->n_threads);
        sum += t->plan.norm_parts[g];
    }
    atomic_store(&t->partial, sum);
    if (!(sum <= t->partial_limit))
        atomic_store(&t->give_up, true);
    return 0;
}

static int run_flip(struct zinf_trainer *t, const struct zinf_op *op)
{
    if (t->plan.homes[op->unit].generations == 2)
        *zinf_tiers_live(t->plan.tiers, (uint32_t)op->unit) ^= 1;
    t->pending[op->unit] = 0;
    return 0;
}

bool trainer_skip_op(void *context, const struct zinf_op *op)
{
    struct zinf_trainer *t = context;
    if (op->kind == OP_COMMIT)
        return !t->durable.due;
    if (op->flags & OP_DEFERRED)
        return !t->pending[op->unit];
    return op->flags & OP_EAGER && atomic_load(&t->give_up);
}

static int run_copy(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_device_ops *ops = t->setup.device->ops;
    if (op->kind == OP_COPY_IN)
        return ops->copy_to_device(t->queues[ZINF_LANE_H2D], at(op, 0), at(op, 1), op->bytes);
    return ops->copy_to_host(t->queues[ZINF_LANE_D2H], at(op, 0), at(op, 1), op->bytes);
}

/* A test's lanes stand still now and then. */
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
    switch ((enum op_kind)op->kind) {
    case OP_COPY_IN:
    case OP_COPY_OUT:
        return run_copy(t, op);
    case OP_EMBED_TILE:
    case OP_EMBED_POSITION:
    case OP_EMBED_DROPOUT_BACKWARD:
        return run_embedding(t, op);
    case OP_EMBED_TILE_BACKWARD:
    case OP_EMBED_POSITION_BACKWARD:
        return run_embedding_backward(t, op);
    case OP_BLOCK:
        return run_block(t, op);
    case OP_BLOCK_BACKWARD:
        return run_block_backward(t, op);
    case OP_HEAD_NORM:
    case OP_HEAD_TILE:
    case OP_HEAD_FINISH:
    case OP_ROW_LOGITS:
        return run_head(t, op);
    case OP_HEAD_ALL:
    case OP_HEAD_TILE_BACKWARD:
    case OP_HEAD_NORM_BACKWARD:
        return run_head_backward(t, op);
    case OP_GRAD_ADD:
        return run_add(t, op);
    case OP_SQUARES:
        return t->setup.device->ops->sum_squares(t->queues[ZINF_LANE_DEVICE], at(op, 0), at(op, 1),
                                                 op->bytes / sizeof(float));
    case OP_NORM_PART:
        return run_norm(t, op);
    case OP_UPDATE:
    case OP_FAR_UPDATE:
        return trainer_update(t, op);
    case OP_FLIP:
        return run_flip(t, op);
    case OP_COMMIT:
        return durable_record(t);
    case OP_READ:
    case OP_WRITE:
    case OP_KINDS:
        break;
    }
    return zinf_fail(-EINVAL, "operation %u on lane %s is unknown", op->kind,
                     zinf_lane_name(op->lane));
}

const char *trainer_kind_name(enum op_kind kind)
{
    static const char *const names[OP_KINDS] = {
        [OP_COPY_IN] = "fetch",
        [OP_COPY_OUT] = "return",
        [OP_EMBED_TILE] = "embed",
        [OP_EMBED_POSITION] = "position",
        [OP_BLOCK] = "forward",
        [OP_BLOCK_BACKWARD] = "backward",
        [OP_HEAD_NORM] = "norm",
        [OP_HEAD_TILE] = "head",
        [OP_HEAD_FINISH] = "loss",
        [OP_HEAD_ALL] = "head+backward",
        [OP_HEAD_TILE_BACKWARD] = "head backward",
        [OP_HEAD_NORM_BACKWARD] = "norm backward",
        [OP_EMBED_DROPOUT_BACKWARD] = "embed dropout backward",
        [OP_EMBED_TILE_BACKWARD] = "embed backward",
        [OP_EMBED_POSITION_BACKWARD] = "position backward",
        [OP_GRAD_ADD] = "add gradient",
        [OP_SQUARES] = "squares",
        [OP_NORM_PART] = "gradient norm",
        [OP_UPDATE] = "update",
        [OP_FAR_UPDATE] = "device update",
        [OP_FLIP] = "turn",
        [OP_COMMIT] = "commit",
        [OP_ROW_LOGITS] = "logits",
        [OP_READ] = "read",
        [OP_WRITE] = "write",
    };
    return names[kind];
}

const char *plan_op_name(const struct setup *setup, const struct zinf_op *op, char buffer[64])
{
    const char *unit = op->unit >= 0           ? zinf_model_unit(setup->model, op->unit)->name
                       : op->kind == OP_COMMIT ? "step"
                                               : "activations";
    snprintf(buffer, 64, "%s %s", trainer_kind_name((enum op_kind)op->kind), unit);
    return buffer;
}

const char *trainer_op_name(void *context, const struct zinf_op *op, char buffer[64])
{
    const struct zinf_trainer *t = context;
    return plan_op_name(&t->setup, op, buffer);
}

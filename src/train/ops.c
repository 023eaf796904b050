/* ops: what each operation of a program does when its lane reaches it. */
#include "train/trainer.h"

#include <stdio.h>

static struct zinf_compute compute_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_compute c = t->compute;
    c.first_sample = (uint64_t)op->micro * (uint64_t)t->batch;
    return c;
}

static const int32_t *ids_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    return t->d_ids + (uint64_t)op->micro * t->rows;
}

static struct zinf_head head_of(const struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_head head = t->head;
    uint64_t first = (uint64_t)op->micro * t->rows;
    head.targets = t->d_targets + first;
    head.loss = t->d_losses + first;
    return head;
}

/* Sub-groups are padded beyond the unit's own elements: nothing of a slot's last user may stay. */
static int zero_tail(const struct zinf_trainer *t, int unit, float *grads)
{
    uint64_t end = zinf_model_unit(t->model, unit)->elems;
    uint64_t padded = t->layout.units[unit].padded_elems;
    if (end == padded)
        return 0;
    return t->device->ops->fill_zero(t->queues[ZINF_LANE_DEVICE], grads + end,
                                     (padded - end) * sizeof(float));
}

static int run_block(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_compute c = compute_of(t, op);
    uint32_t layer = (uint32_t)op->arg;
    return zinf_block_forward(&c, zinf_model_unit(t->model, op->unit), op->memory, x_at(t, layer),
                              x_at(t, layer + 1), &t->kept[layer], &t->scratch);
}

static int run_block_backward(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_compute c = compute_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->model, op->unit);
    uint32_t layer = (uint32_t)op->arg / 2;
    bool recompute = op->arg & 1;
    int code = 0;
    if (recompute)
        code = zinf_block_forward(&c, unit, op->memory, x_at(t, layer), NULL, &t->kept[layer],
                                  &t->scratch);
    if (!code)
        code = zinf_block_backward(&c, unit, op->memory, op->memory2, x_at(t, layer), t->d_dx,
                                   &t->kept[layer], &t->scratch);
    return code ? code : zero_tail(t, op->unit, op->memory2);
}

static int run_embedding(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_compute c = compute_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->model, op->unit);
    switch ((enum op_kind)op->kind) {
    case OP_EMBED_TILE:
        return zinf_embed_tile(&c, unit, op->memory, ids_of(t, op), x_at(t, 0));
    case OP_EMBED_POSITION:
        return zinf_embed_position(&c, unit, op->memory, t->d_positions, x_at(t, 0));
    default:
        return zinf_embed_dropout_backward(&c, t->d_dx);
    }
}

static int run_embedding_backward(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_compute c = compute_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->model, op->unit);
    int code;
    if (op->kind == OP_EMBED_TILE_BACKWARD)
        code = zinf_embed_tile_backward(&c, unit, op->memory2, ids_of(t, op), t->d_dx);
    else
        code = zinf_embed_position_backward(&c, unit, op->memory2, t->d_positions, t->d_dx);
    return code ? code : zero_tail(t, op->unit, op->memory2);
}

static int run_head(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_compute c = compute_of(t, op);
    struct zinf_head head = head_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->model, op->unit);
    int code = 0;
    switch ((enum op_kind)op->kind) {
    case OP_HEAD_NORM:
        return zinf_head_norm(&c, unit, op->memory, x_at(t, t->n_layers), &head);
    case OP_HEAD_TILE:
        if (op->arg == 0)
            code = zinf_head_start(&c, &head);
        return code ? code : zinf_head_tile(&c, unit, op->memory, &head);
    case OP_HEAD_FINISH:
        return zinf_head_finish(&c, &head);
    default:
        return zinf_head_row_logits(&c, unit, op->memory, t->logits_row, &head);
    }
}

static int run_head_backward(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct zinf_compute c = compute_of(t, op);
    struct zinf_head head = head_of(t, op);
    const struct zinf_unit_spec *unit = zinf_model_unit(t->model, op->unit);
    int code;
    if (op->kind == OP_HEAD_ALL) {
        float *const *grads = op->memory2;
        code = zinf_head_all(&c, t->model, t->tile_weights, grads, &head);
        for (int u = 0; !code && u < zinf_model_n_tiles(t->model); u++)
            code = zero_tail(t, u, grads[u]);
        return code;
    }
    if (op->kind == OP_HEAD_TILE_BACKWARD)
        code = zinf_head_tile_backward(&c, unit, op->memory, op->memory2, &head, op->arg == 0);
    else
        code = zinf_head_norm_backward(&c, unit, op->memory, op->memory2, x_at(t, t->n_layers),
                                       t->d_dx, &head);
    return code ? code : zero_tail(t, op->unit, op->memory2);
}

static int run_add(struct zinf_trainer *t, const struct zinf_op *op)
{
    uint64_t n = op->bytes / sizeof(float);
    if (op->lane == ZINF_LANE_DEVICE)
        return t->device->ops->add(t->queues[ZINF_LANE_DEVICE], op->memory, op->memory2, n);
    zinf_optim_accumulate(op->memory, op->memory2, ZINF_DTYPE_F32, n, t->device->n_threads);
    return 0;
}

/* Device memory that the CPU can read is summed in place: the same code, the same bits. */
static int run_norm(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_layout_unit *unit = &t->layout.units[op->unit];
    const float *grad = op->memory;
    for (uint32_t g = unit->first_group; g < unit->first_group + unit->n_groups; g++) {
        const struct zinf_layout_group *group = &t->layout.groups[g];
        t->norm_parts[g] = zinf_optim_sum_squares(grad + group->first, ZINF_DTYPE_F32, group->n,
                                                  t->device->n_threads);
    }
    return 0;
}

/* A sub-group is at most two runs: with weight decay, then without. */
static int run_update(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_layout_group *g = &t->layout.groups[op->arg];
    uint64_t first = t->layout.units[g->unit].slice_first + g->first;
    uint64_t decay_end = zinf_model_unit(t->model, (int)g->unit)->decay_elems;
    uint64_t split = decay_end > first ? decay_end - first : 0;
    int moments = zinf_optim_n_moments(t->hyper.kind);
    float *state = op->memory;
    if (split > g->n)
        split = g->n;
    for (int part = 0; part < 2; part++) {
        uint64_t at = part ? split : 0, n = part ? g->n - split : split;
        struct zinf_optim_hyper hyper = t->hyper;
        if (part)
            hyper.weight_decay = 0;
        struct zinf_optim_array array = {
            .n = n,
            .master = state + at,
            .moment1 = state + g->n + at,
            .moment2 = moments > 1 ? state + 2 * g->n + at : NULL,
            .grad = (const float *)op->memory3 + at,
            .grad_dtype = ZINF_DTYPE_F32,
            .grad_scale = t->grad_scale,
            .param = (char *)op->memory2 + at * zinf_dtype_bytes(t->dtype),
            .param_dtype = t->dtype,
        };
        int code = n ? zinf_optim_step(&hyper, &array, t->device->n_threads) : 0;
        if (code)
            return code;
    }
    return 0;
}

static int run_copy(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_device_ops *ops = t->device->ops;
    if (op->kind == OP_COPY_IN)
        return ops->copy_to_device(t->queues[ZINF_LANE_H2D], op->memory, op->memory2, op->bytes);
    return ops->copy_to_host(t->queues[ZINF_LANE_D2H], op->memory, op->memory2, op->bytes);
}

int trainer_run_op(void *context, const struct zinf_op *op)
{
    struct zinf_trainer *t = context;
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
    case OP_NORM_PART:
        return run_norm(t, op);
    case OP_UPDATE:
        return run_update(t, op);
    case OP_DRIVE:
        break;
    }
    return zinf_fail(-EINVAL, "operation %u on lane %s is unknown", op->kind,
                     zinf_lane_name(op->lane));
}

const char *trainer_op_name(void *context, const struct zinf_op *op, char buffer[64])
{
    static const char *const names[] = {
        "fetch",
        "return",
        "embed",
        "position",
        "forward",
        "backward",
        "norm",
        "head",
        "loss",
        "head+backward",
        "head backward",
        "norm backward",
        "embed dropout backward",
        "embed backward",
        "position backward",
        "add gradient",
        "gradient norm",
        "update",
        "logits",
        "drive",
    };
    const struct zinf_trainer *t = context;
    const char *unit = op->unit >= 0 ? zinf_model_unit(t->model, op->unit)->name : "tokens";
    snprintf(buffer, 64, "%s %s", names[op->kind], unit);
    return buffer;
}

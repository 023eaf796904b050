/*
 * emit: forward and backward as programs. A micro-batch: tokens; table tiles and positions; blocks;
 * head and loss; blocks backward; tables again. Each unit's gradient is computed into a fresh
 * buffer and added to its sum in fp32, in the same order wherever the sum lives.
 */
#include "train/emit.h"

static uint32_t tiles_of(const struct emitter *e)
{
    return (uint32_t)zinf_model_n_tiles(e->t->model);
}

static uint32_t position_unit(const struct emitter *e)
{
    return tiles_of(e);
}

static uint32_t block_unit(const struct emitter *e, uint32_t layer)
{
    return (uint32_t)zinf_model_first_block(e->t->model) + layer;
}

static uint32_t final_unit(const struct emitter *e)
{
    return e->t->n_units - 1;
}

static void compute(struct emitter *e, enum op_kind kind, uint32_t unit, void *weights, void *grads,
                    const struct uses *uses, double flops, int32_t arg)
{
    struct zinf_op op = {.lane = ZINF_LANE_DEVICE,
                         .kind = (uint16_t)kind,
                         .unit = (int32_t)unit,
                         .arg = arg,
                         .memory = weights,
                         .memory2 = grads,
                         .flops = flops};
    emit(e, &op, uses);
}

static double head_flops(const struct emitter *e)
{
    return 2.0 * (double)e->t->rows * (double)e->t->spec->tile_rows * (double)e->t->spec->hidden;
}

/* ---- tokens and losses ---- */

static void emit_tokens(struct emitter *e)
{
    struct zinf_trainer *t = e->t;
    uint64_t ids = 2 * (uint64_t)t->n_micro * t->rows * sizeof(int32_t);
    struct zinf_op op = {.lane = ZINF_LANE_H2D,
                         .kind = OP_COPY_IN,
                         .unit = -1,
                         .memory = t->d_ids,
                         .memory2 = t->h_ids,
                         .bytes = ids};
    struct zinf_op positions = op;
    struct uses uses = {0};
    uses_write(&uses, e->tokens);
    emit(e, &op, &uses);
    positions.memory = t->d_positions;
    positions.memory2 = t->h_positions;
    positions.bytes = t->rows * sizeof(int32_t);
    emit(e, &positions, &uses);
}

static void emit_losses(struct emitter *e)
{
    struct zinf_trainer *t = e->t;
    struct zinf_op op = {.lane = ZINF_LANE_D2H,
                         .kind = OP_COPY_OUT,
                         .unit = -1,
                         .memory = t->h_losses,
                         .memory2 = t->d_losses,
                         .bytes = (uint64_t)t->n_micro * t->rows * sizeof(float)};
    struct uses uses = {0};
    uses_read(&uses, e->losses);
    emit(e, &op, &uses);
}

/* ---- gradients on their way to their tier ---- */

struct grad_target {
    void *memory; /* device: where the operation writes */
    zinf_resource resource;
    bool direct; /* memory is the sum itself */
};

static struct grad_target grad_target(struct emitter *e, uint32_t unit, struct uses *uses)
{
    struct zinf_trainer *t = e->t;
    struct grad_target g = {0};
    if (t->grad_tier == ZINF_TIER_DEVICE && e->grads_seen[unit] == 0) {
        g.direct = true;
        g.memory = zinf_tiers_unit_grad(t->tiers, unit).memory;
        uses_write(uses, e->grad[unit]);
        return g;
    }
    uint32_t slot = ring_take(e, &e->grad_slots);
    g.resource = e->grad_slots.resource[slot];
    g.memory = device_at(t, t->at.d_grad_slots + slot * t->sizes.grad_slot);
    uses_write(uses, g.resource);
    return g;
}

static void emit_norm(struct emitter *e, uint32_t unit, enum zinf_lane lane, void *memory,
                      zinf_resource source)
{
    struct zinf_op op = {.lane = lane,
                         .kind = OP_NORM_PART,
                         .unit = (int32_t)unit,
                         .memory = memory,
                         .bytes = e->t->layout.units[unit].slice_elems * sizeof(float)};
    struct uses uses = {0};
    uses_read(&uses, source);
    emit(e, &op, &uses);
}

static void emit_add(struct emitter *e, uint32_t unit, enum zinf_lane lane, void *sum,
                     zinf_resource sum_resource, void *part, zinf_resource part_resource)
{
    struct zinf_op op = {.lane = lane,
                         .kind = OP_GRAD_ADD,
                         .unit = (int32_t)unit,
                         .memory = sum,
                         .memory2 = part,
                         .bytes = e->t->layout.units[unit].slice_elems * sizeof(float)};
    struct uses uses = {0};
    uses_read(&uses, part_resource);
    uses_write(&uses, sum_resource);
    emit(e, &op, &uses);
}

static void emit_grad_out(struct emitter *e, uint32_t unit, void *host, zinf_resource host_resource,
                          void *device, zinf_resource device_resource)
{
    struct zinf_op op = {.lane = ZINF_LANE_D2H,
                         .kind = OP_COPY_OUT,
                         .unit = (int32_t)unit,
                         .memory = host,
                         .memory2 = device,
                         .bytes = e->t->layout.units[unit].slice_elems * sizeof(float)};
    struct uses uses = {0};
    uses_read(&uses, device_resource);
    uses_write(&uses, host_resource);
    emit(e, &op, &uses);
}

static void emit_grad_drive(struct emitter *e, uint32_t unit, enum zinf_lane lane, void *memory,
                            zinf_resource memory_resource)
{
    struct zinf_location where = zinf_tiers_unit_grad(e->t->tiers, unit);
    struct zinf_op op = {.lane = lane,
                         .kind = OP_DRIVE,
                         .unit = (int32_t)unit,
                         .memory = memory,
                         .where = where,
                         .bytes = where.bytes};
    struct uses uses = {0};
    if (lane == ZINF_LANE_READ) {
        uses_read(&uses, e->grad[unit]);
        uses_write(&uses, memory_resource);
    } else {
        uses_read(&uses, memory_resource);
        uses_write(&uses, e->grad[unit]);
    }
    emit(e, &op, &uses);
}

static void *grad_stage(const struct zinf_trainer *t, uint32_t stage)
{
    return host_at(t, t->at.h_grad_stages + stage * t->sizes.grad_slot);
}

static void deliver_to_host(struct emitter *e, uint32_t unit, struct grad_target g, bool first,
                            bool last)
{
    struct zinf_trainer *t = e->t;
    void *sum = zinf_tiers_unit_grad(t->tiers, unit).memory;
    if (first) {
        emit_grad_out(e, unit, sum, e->grad[unit], g.memory, g.resource);
    } else {
        uint32_t i = ring_take(e, &e->grad_stages);
        zinf_resource stage = e->grad_stages.resource[i];
        emit_grad_out(e, unit, grad_stage(t, i), stage, g.memory, g.resource);
        emit_add(e, unit, ZINF_LANE_HOST, sum, e->grad[unit], grad_stage(t, i), stage);
    }
    if (last)
        emit_norm(e, unit, ZINF_LANE_HOST, sum, e->grad[unit]);
}

/* On the drive a sum is read, added to and written back; the first is only written. */
static void deliver_to_drive(struct emitter *e, uint32_t unit, struct grad_target g, bool first,
                             bool last)
{
    struct zinf_trainer *t = e->t;
    uint32_t i = ring_take(e, &e->grad_stages);
    void *memory = grad_stage(t, i);
    zinf_resource stage = e->grad_stages.resource[i];
    void *sum = memory;
    zinf_resource sum_resource = stage;
    if (!first) {
        uint32_t k = ring_take(e, &e->grad_sums);
        sum = grad_stage(t, GRAD_STAGES + k);
        sum_resource = e->grad_sums.resource[k];
        emit_grad_drive(e, unit, ZINF_LANE_READ, sum, sum_resource);
    }
    emit_grad_out(e, unit, memory, stage, g.memory, g.resource);
    if (!first)
        emit_add(e, unit, ZINF_LANE_HOST, sum, sum_resource, memory, stage);
    if (last)
        emit_norm(e, unit, ZINF_LANE_HOST, sum, sum_resource);
    emit_grad_drive(e, unit, ZINF_LANE_WRITE, sum, sum_resource);
}

static void deliver(struct emitter *e, uint32_t unit, struct grad_target g)
{
    struct zinf_trainer *t = e->t;
    bool first = e->grads_seen[unit]++ == 0;
    bool last = e->grads_seen[unit] == e->grads_total[unit];
    if (t->grad_tier == ZINF_TIER_HOST) {
        deliver_to_host(e, unit, g, first, last);
        return;
    }
    if (t->grad_tier == ZINF_TIER_DRIVE) {
        deliver_to_drive(e, unit, g, first, last);
        return;
    }
    void *sum = zinf_tiers_unit_grad(t->tiers, unit).memory;
    if (!g.direct)
        emit_add(e, unit, ZINF_LANE_DEVICE, sum, e->grad[unit], g.memory, g.resource);
    if (last)
        emit_norm(e, unit, ZINF_LANE_DEVICE, sum, e->grad[unit]);
}

/* ---- forward ---- */

static void emit_embedding(struct emitter *e)
{
    for (uint32_t u = 0; u <= position_unit(e); u++) {
        struct uses uses = {0};
        void *weights = emit_fetch(e, u, &uses);
        uses_read(&uses, e->tokens);
        compute(e, u < tiles_of(e) ? OP_EMBED_TILE : OP_EMBED_POSITION, u, weights, NULL, &uses, 0,
                0);
    }
}

static void emit_blocks(struct emitter *e)
{
    for (uint32_t l = 0; l < e->t->n_layers; l++) {
        struct uses uses = {0};
        void *weights = emit_fetch(e, block_unit(e, l), &uses);
        compute(e, OP_BLOCK, block_unit(e, l), weights, NULL, &uses,
                zinf_block_flops(&e->t->compute), (int32_t)l);
        if (!block_is_kept(e->t, l))
            e->working_layer = l;
    }
}

static void emit_head_norm(struct emitter *e)
{
    struct uses uses = {0};
    void *weights = emit_fetch(e, final_unit(e), &uses);
    compute(e, OP_HEAD_NORM, final_unit(e), weights, NULL, &uses, 0, 0);
}

static void emit_head_loss(struct emitter *e)
{
    for (uint32_t u = 0; u < tiles_of(e); u++) {
        struct uses uses = {0};
        void *weights = emit_fetch(e, u, &uses);
        uses_read(&uses, e->tokens);
        compute(e, OP_HEAD_TILE, u, weights, NULL, &uses, head_flops(e), (int32_t)u);
    }
    struct uses uses = {0};
    uses_write(&uses, e->losses);
    compute(e, OP_HEAD_FINISH, final_unit(e), NULL, NULL, &uses, 0, 0);
}

/* ---- backward ---- */

/* The tiles are on the device: their lookups, earlier in this lane, waited for that. Gradients go
 * to the sums themselves where they are the first, else to an area of their own. */
static void emit_head_all(struct emitter *e)
{
    struct zinf_trainer *t = e->t;
    bool direct = t->grad_tier == ZINF_TIER_DEVICE && e->grads_seen[0] == 0;
    struct uses uses = {0};
    uses_read(&uses, e->tokens);
    uses_write(&uses, e->losses);
    if (!direct)
        uses_write(&uses, e->tile_grads);
    compute(e, OP_HEAD_ALL, final_unit(e), NULL, direct ? t->tile_sums : t->tile_grads, &uses,
            3 * head_flops(e) * tiles_of(e), 0);
    for (uint32_t u = 0; u < tiles_of(e); u++) {
        struct grad_target g = {
            .memory = t->tile_grads[u], .resource = e->tile_grads, .direct = direct};
        deliver(e, u, g);
    }
}

static void emit_head_tiles_backward(struct emitter *e)
{
    for (uint32_t u = 0; u < tiles_of(e); u++) {
        struct uses uses = {0};
        void *weights = emit_fetch(e, u, &uses);
        uses_read(&uses, e->tokens);
        struct grad_target g = grad_target(e, u, &uses);
        compute(e, OP_HEAD_TILE_BACKWARD, u, weights, g.memory, &uses, 3 * head_flops(e),
                (int32_t)u);
        deliver(e, u, g);
    }
}

static void emit_head_norm_backward(struct emitter *e)
{
    struct uses uses = {0};
    uint32_t unit = final_unit(e);
    void *weights = emit_fetch(e, unit, &uses);
    struct grad_target g = grad_target(e, unit, &uses);
    compute(e, OP_HEAD_NORM_BACKWARD, unit, weights, g.memory, &uses, 0, 0);
    deliver(e, unit, g);
}

static void emit_blocks_backward(struct emitter *e)
{
    double forward = zinf_block_flops(&e->t->compute);
    for (uint32_t l = e->t->n_layers; l-- > 0;) {
        struct uses uses = {0};
        void *weights = emit_fetch(e, block_unit(e, l), &uses);
        struct grad_target g = grad_target(e, block_unit(e, l), &uses);
        bool recompute = !block_is_kept(e->t, l) && e->working_layer != l;
        struct zinf_op op = {.lane = ZINF_LANE_DEVICE,
                             .kind = OP_BLOCK_BACKWARD,
                             .unit = (int32_t)block_unit(e, l),
                             .arg = (int32_t)(2 * l) + recompute,
                             .memory = weights,
                             .memory2 = g.memory,
                             .flops = (recompute ? 3 : 2) * forward};
        if (recompute)
            e->working_layer = l;
        emit(e, &op, &uses);
        deliver(e, block_unit(e, l), g);
    }
}

static void emit_embedding_backward(struct emitter *e)
{
    struct uses none = {0};
    compute(e, OP_EMBED_DROPOUT_BACKWARD, 0, NULL, NULL, &none, 0, 0);
    for (uint32_t u = 0; u <= position_unit(e); u++) {
        struct uses uses = {0};
        struct grad_target g = grad_target(e, u, &uses);
        uses_read(&uses, e->tokens);
        compute(e, u < tiles_of(e) ? OP_EMBED_TILE_BACKWARD : OP_EMBED_POSITION_BACKWARD, u, NULL,
                g.memory, &uses, 0, 0);
        deliver(e, u, g);
    }
}

/* ---- programs ---- */

static void emit_micro_batch(struct emitter *e)
{
    emit_embedding(e);
    emit_blocks(e);
    emit_head_norm(e);
    if (e->t->choice.head_all) {
        emit_head_all(e);
    } else {
        emit_head_loss(e);
        emit_head_tiles_backward(e);
    }
    emit_head_norm_backward(e);
    emit_blocks_backward(e);
    emit_embedding_backward(e);
}

int trainer_emit_gradients(struct zinf_trainer *t)
{
    struct emitter e;
    if (!emitter_init(&e, t, &t->gradients, "gradients")) {
        for (uint32_t u = 0; u < t->n_units; u++)
            e.grads_total[u] = (u < tiles_of(&e) ? 2 : 1) * (uint32_t)t->n_micro;
        emit_tokens(&e);
        for (e.micro = 0; e.micro < t->n_micro; e.micro++)
            emit_micro_batch(&e);
        emit_losses(&e);
    }
    return emitter_finish(&e);
}

int trainer_emit_forward(struct zinf_trainer *t)
{
    struct emitter e;
    if (!emitter_init(&e, t, &t->forward, "forward")) {
        emit_tokens(&e);
        emit_embedding(&e);
        emit_blocks(&e);
        emit_head_norm(&e);
        emit_head_loss(&e);
        emit_losses(&e);
    }
    return emitter_finish(&e);
}

static void emit_row_logits(struct emitter *e)
{
    struct zinf_trainer *t = e->t;
    for (uint32_t u = 0; u < tiles_of(e); u++) {
        struct uses uses = {0}, out = {0};
        void *weights = emit_fetch(e, u, &uses);
        uses_write(&uses, e->logits);
        compute(e, OP_ROW_LOGITS, u, weights, NULL, &uses, 0, (int32_t)u);
        struct zinf_op op = {.lane = ZINF_LANE_D2H,
                             .kind = OP_COPY_OUT,
                             .unit = (int32_t)u,
                             .memory = t->h_logits + (int64_t)u * t->spec->tile_rows,
                             .memory2 = t->head.logits,
                             .bytes = (uint64_t)t->spec->tile_rows * sizeof(float)};
        uses_read(&out, e->logits);
        emit(e, &op, &out);
    }
}

int trainer_emit_logits(struct zinf_trainer *t)
{
    struct emitter e;
    if (!emitter_init(&e, t, &t->logits, "logits")) {
        emit_tokens(&e);
        emit_embedding(&e);
        emit_blocks(&e);
        emit_head_norm(&e);
        emit_row_logits(&e);
    }
    return emitter_finish(&e);
}

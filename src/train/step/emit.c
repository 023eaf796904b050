/*
 * emit: forward and backward as programs. Tokens; table tiles and positions; blocks; head and
 * loss; blocks backward; tables again. Each stage runs for a range of micro-batches: for one at a
 * time, or for all before the next stage (layer by layer), so that what was fetched serves all.
 * The gradient of the embedding comes last for all micro-batches, so that both orders add alike.
 */
#include "train/step/emit.h"

struct range {
    int64_t first, end; /* micro-batches */
};

static uint32_t tiles_of(const struct emitter *e)
{
    return (uint32_t)zinf_model_n_tiles(e->p->setup->model);
}

static uint32_t position_unit(const struct emitter *e)
{
    return tiles_of(e);
}

static uint32_t final_unit(const struct emitter *e)
{
    return e->p->setup->n_units - 1;
}

/* Computations share scratch and the activations at hand: each comes after the one before. */
static void compute(struct emitter *e, struct zinf_op *op, struct uses *uses)
{
    op->lane = ZINF_LANE_DEVICE;
    e->deadline = e->position++;
    uses_write(uses, e->sequence);
    emit(e, op, uses);
    e->deadline = INHERITED;
}

static double head_flops(const struct emitter *e)
{
    return 2.0 * (double)e->p->setup->rows * (double)e->p->setup->spec->tile_rows *
           (double)e->p->setup->spec->hidden;
}

static uint64_t row_bytes(const struct emitter *e)
{
    return e->p->sizes.x;
}

/* ---- tokens and losses ---- */

static void emit_tokens(struct emitter *e)
{
    struct plan *p = e->p;
    struct uses uses = {0};
    uses_write(&uses, e->tokens);
    emit_copy(e, ZINF_LANE_H2D, -1, zinf_at(p->d_ids), zinf_at(p->h_ids),
              2 * (uint64_t)p->setup->n_micro * p->setup->rows * sizeof(int32_t), &uses);
    emit_copy(e, ZINF_LANE_H2D, -1, zinf_at(p->d_positions), zinf_at(p->h_positions),
              p->setup->rows * sizeof(int32_t), &uses);
}

static void emit_losses(struct emitter *e)
{
    struct plan *p = e->p;
    struct uses uses = {0};
    uses_read(&uses, e->losses);
    emit_copy(e, ZINF_LANE_D2H, -1, zinf_at(p->h_losses), zinf_at(p->d_losses),
              (uint64_t)p->setup->n_micro * p->setup->rows * sizeof(float), &uses);
}

/* ---- forward ---- */

static void emit_embedding(struct emitter *e, struct range micros)
{
    for (uint32_t u = 0; u <= position_unit(e); u++)
        for (int64_t m = micros.first; m < micros.end; m++) {
            struct uses uses = {0};
            struct zinf_op op = {.kind = u < tiles_of(e) ? OP_EMBED_TILE : OP_EMBED_POSITION,
                                 .unit = (int32_t)u,
                                 .bytes = row_bytes(e)};
            e->micro = (int16_t)m;
            op.at[0] = emit_fetch(e, u, &uses);
            op.at[1] = u ? emit_x(e, 0, m, &uses) : emit_x_new(e, 0, m, &uses);
            uses_read(&uses, e->tokens);
            if (op.at[1].tenant && u)
                uses_write(&uses, op.at[1].tenant - 1);
            compute(e, &op, &uses);
            if (u == position_unit(e))
                emit_x_made(e, 0, m, op.at[1]);
        }
}

static void emit_blocks(struct emitter *e, struct range micros)
{
    for (uint32_t l = 0; l < e->p->setup->n_layers; l++)
        for (int64_t m = micros.first; m < micros.end; m++) {
            struct uses uses = {0};
            uint32_t unit = first_block(e->p->setup) + l;
            struct zinf_op op = {.kind = OP_BLOCK,
                                 .unit = (int32_t)unit,
                                 .arg = (int32_t)l,
                                 .flops = zinf_block_flops(&e->p->setup->compute)};
            e->micro = (int16_t)m;
            op.at[0] = emit_fetch(e, unit, &uses);
            op.at[1] = emit_x(e, l, m, &uses);
            op.at[2] = emit_x_new(e, l + 1, m, &uses);
            compute(e, &op, &uses);
            emit_x_made(e, l + 1, m, op.at[2]);
            if (!block_is_kept(e->p, l))
                e->working = (uint64_t)l * (uint64_t)e->p->setup->n_micro + (uint64_t)m;
        }
}

static void emit_head_norm(struct emitter *e, struct range micros)
{
    for (int64_t m = micros.first; m < micros.end; m++) {
        struct uses uses = {0};
        struct zinf_op op = {
            .kind = OP_HEAD_NORM, .unit = (int32_t)final_unit(e), .bytes = row_bytes(e)};
        e->micro = (int16_t)m;
        op.at[0] = emit_fetch(e, final_unit(e), &uses);
        op.at[1] = emit_x(e, e->p->setup->n_layers, m, &uses);
        compute(e, &op, &uses);
    }
}

static void emit_head_loss(struct emitter *e, struct range micros)
{
    for (uint32_t u = 0; u < tiles_of(e); u++)
        for (int64_t m = micros.first; m < micros.end; m++) {
            struct uses uses = {0};
            struct zinf_op op = {.kind = OP_HEAD_TILE,
                                 .unit = (int32_t)u,
                                 .arg = (int32_t)u,
                                 .flops = head_flops(e)};
            e->micro = (int16_t)m;
            op.at[0] = emit_fetch(e, u, &uses);
            uses_read(&uses, e->tokens);
            compute(e, &op, &uses);
        }
    for (int64_t m = micros.first; m < micros.end; m++) {
        struct uses uses = {0};
        struct zinf_op op = {.kind = OP_HEAD_FINISH, .unit = (int32_t)final_unit(e)};
        e->micro = (int16_t)m;
        uses_write(&uses, e->losses);
        compute(e, &op, &uses);
    }
}

/* ---- backward ---- */

/* Gradients go to the sums themselves where they are the first, else to an area of their own. The
 * tiles are on the device, or the device reads them where they are. */
static void emit_head_all(struct emitter *e, struct range micros)
{
    struct plan *p = e->p;
    for (int64_t m = micros.first; m < micros.end; m++) {
        bool sums = p->homes[0].grad == ZINF_TIER_DEVICE && e->grads_seen[0] == 0;
        struct uses uses = {0};
        struct zinf_op op = {.kind = OP_HEAD_ALL,
                             .unit = (int32_t)final_unit(e),
                             .arg = sums,
                             .flops = 3 * head_flops(e) * tiles_of(e)};
        e->micro = (int16_t)m;
        uses_read(&uses, e->tokens);
        uses_write(&uses, e->losses);
        if (!sums)
            uses_write(&uses, e->tile_grads);
        compute(e, &op, &uses);
        for (uint32_t u = 0; u < tiles_of(e); u++) {
            struct zinf_location where = zinf_tiers_unit_grad(p->tiers, u);
            struct made_grad g = {.at = zinf_at(p->tile_grads[u]), .resource = e->tile_grads};
            if (sums)
                g = (struct made_grad){zinf_of(&where), e->grad[u], true};
            emit_grad_made(e, u, g);
        }
    }
}

/* One unit's gradients of a range of micro-batches, summed on the device into one contribution. */
struct contribution {
    struct made_grad sum, part;
    bool begun;
};

static struct zinf_operand contribute(struct emitter *e, struct contribution *c, uint32_t unit,
                                      struct uses *uses)
{
    if (!c->begun)
        c->part = c->sum = emit_grad_target(e, unit, uses);
    else
        c->part = emit_grad_part(e, uses);
    return c->part.at;
}

static void contributed(struct emitter *e, struct contribution *c, uint32_t unit)
{
    if (c->begun) {
        e->deadline = e->position + 1;
        emit_grad_join(e, unit, c->sum, c->part);
        e->deadline = INHERITED;
    }
    c->begun = true;
}

static void emit_head_tiles_backward(struct emitter *e, struct range micros)
{
    for (uint32_t u = 0; u < tiles_of(e); u++) {
        struct contribution c = {0};
        for (int64_t m = micros.first; m < micros.end; m++) {
            struct uses uses = {0};
            struct zinf_op op = {.kind = OP_HEAD_TILE_BACKWARD,
                                 .unit = (int32_t)u,
                                 .arg = (int32_t)u,
                                 .flops = 3 * head_flops(e)};
            e->micro = (int16_t)m;
            op.at[0] = emit_fetch(e, u, &uses);
            op.at[2] = contribute(e, &c, u, &uses);
            uses_read(&uses, e->tokens);
            compute(e, &op, &uses);
            contributed(e, &c, u);
        }
        emit_grad_made(e, u, c.sum);
    }
}

static void emit_head_norm_backward(struct emitter *e, struct range micros)
{
    struct contribution c = {0};
    uint32_t unit = final_unit(e);
    for (int64_t m = micros.first; m < micros.end; m++) {
        struct uses uses = {0};
        struct zinf_op op = {
            .kind = OP_HEAD_NORM_BACKWARD, .unit = (int32_t)unit, .bytes = 3 * row_bytes(e)};
        e->micro = (int16_t)m;
        op.at[0] = emit_fetch(e, unit, &uses);
        op.at[1] = emit_x(e, e->p->setup->n_layers, m, &uses);
        op.at[2] = contribute(e, &c, unit, &uses);
        compute(e, &op, &uses);
        contributed(e, &c, unit);
    }
    emit_grad_made(e, unit, c.sum);
}

static void emit_block_backward(struct emitter *e, uint32_t l, struct range micros)
{
    double forward = zinf_block_flops(&e->p->setup->compute);
    uint32_t unit = first_block(e->p->setup) + l;
    struct contribution c = {0};
    for (int64_t m = micros.first; m < micros.end; m++) {
        struct uses uses = {0};
        uint64_t number = (uint64_t)l * (uint64_t)e->p->setup->n_micro + (uint64_t)m;
        bool recompute = !block_is_kept(e->p, l) && e->working != number;
        struct zinf_op op = {.kind = OP_BLOCK_BACKWARD,
                             .unit = (int32_t)unit,
                             .arg = (int32_t)(2 * l) + recompute,
                             .flops = (recompute ? 3 : 2) * forward};
        e->micro = (int16_t)m;
        op.at[0] = emit_fetch(e, unit, &uses);
        op.at[1] = emit_x(e, l, m, &uses);
        op.at[2] = contribute(e, &c, unit, &uses);
        if (recompute)
            e->working = number;
        compute(e, &op, &uses);
        contributed(e, &c, unit);
    }
    emit_grad_made(e, unit, c.sum);
}

/* All micro-batches add to one buffer, in their order: one contribution. */
static void emit_embedding_backward(struct emitter *e)
{
    int64_t n_micro = e->p->setup->n_micro;
    for (int64_t m = 0; m < n_micro; m++) {
        struct uses none = {0};
        struct zinf_op op = {.kind = OP_EMBED_DROPOUT_BACKWARD, .bytes = row_bytes(e)};
        e->micro = (int16_t)m;
        compute(e, &op, &none);
    }
    for (uint32_t u = 0; u <= position_unit(e); u++) {
        struct made_grad g = {0};
        for (int64_t m = 0; m < n_micro; m++) {
            struct uses uses = {0};
            struct zinf_op op = {
                .kind = u < tiles_of(e) ? OP_EMBED_TILE_BACKWARD : OP_EMBED_POSITION_BACKWARD,
                .unit = (int32_t)u,
                .arg = m > 0,
                .bytes = m ? row_bytes(e) : e->p->setup->layout.units[u].elems * 4};
            e->micro = (int16_t)m;
            if (m == 0)
                g = emit_grad_target(e, u, &uses);
            else
                uses_write(&uses, g.resource);
            op.at[2] = g.at;
            uses_read(&uses, e->tokens);
            compute(e, &op, &uses);
        }
        emit_grad_made(e, u, g);
    }
}

/* ---- programs ---- */

static void emit_stages(struct emitter *e, struct range micros)
{
    emit_embedding(e, micros);
    emit_blocks(e, micros);
    emit_head_norm(e, micros);
    if (e->p->choice.head_all) {
        emit_head_all(e, micros);
    } else {
        emit_head_loss(e, micros);
        emit_head_tiles_backward(e, micros);
    }
    emit_head_norm_backward(e, micros);
    for (uint32_t l = e->p->setup->n_layers; l-- > 0;)
        emit_block_backward(e, l, micros);
}

static void count_contributions(struct emitter *e)
{
    struct plan *p = e->p;
    uint32_t ranges = p->layer_major ? 1 : (uint32_t)p->setup->n_micro;
    for (uint32_t u = 0; u < p->setup->n_units; u++) {
        bool table = u < tiles_of(e);
        /* the head in one pass works on one micro-batch at a time */
        uint32_t head = table && p->choice.head_all ? (uint32_t)p->setup->n_micro : ranges;
        e->grads_total[u] = table ? head + 1 : u == position_unit(e) ? 1 : ranges;
    }
}

static void emit_forward_and_backward(struct emitter *e)
{
    int64_t n_micro = e->p->setup->n_micro;
    count_contributions(e);
    emit_tokens(e);
    if (e->p->layer_major) {
        emit_stages(e, (struct range){0, n_micro});
    } else {
        for (int64_t m = 0; m < n_micro; m++)
            emit_stages(e, (struct range){m, m + 1});
    }
    emit_embedding_backward(e);
    emit_losses(e);
}

int program_gradients(struct plan *p)
{
    struct emitter e;
    if (!emitter_init(&e, p, &p->gradients, "gradients"))
        emit_forward_and_backward(&e);
    return emitter_finish(&e);
}

int program_drain(struct plan *p)
{
    struct emitter e;
    if (!emitter_init(&e, p, &p->drain, "update"))
        for (uint32_t u = 0; u < p->setup->n_units; u++)
            emit_update_late(&e, u);
    return emitter_finish(&e);
}

int program_wait(struct plan *p)
{
    struct emitter e;
    if (!emitter_init(&e, p, &p->wait, "update in forward")) {
        for (uint32_t u = 0; u < p->setup->n_units; u++)
            emit_update_late(&e, u);
        emit_commit(&e);
        emit_forward_and_backward(&e);
    }
    return emitter_finish(&e);
}

int program_speculate(struct plan *p)
{
    struct emitter e;
    if (!emitter_init(&e, p, &p->speculate, "update in backward")) {
        e.speculates = true;
        for (uint32_t u = 0; u < p->setup->n_units; u++)
            if (p->deferred[u] || !unit_speculates(p, u))
                emit_update_late(&e, u);
        emit_commit(&e);
        emit_forward_and_backward(&e);
    }
    return emitter_finish(&e);
}

int program_forward(struct plan *p)
{
    struct emitter e;
    struct range one = {0, 1};
    if (!emitter_init(&e, p, &p->forward, "forward")) {
        emit_tokens(&e);
        emit_embedding(&e, one);
        emit_blocks(&e, one);
        emit_head_norm(&e, one);
        emit_head_loss(&e, one);
        emit_losses(&e);
    }
    return emitter_finish(&e);
}

static void emit_row_logits(struct emitter *e)
{
    struct plan *p = e->p;
    for (uint32_t u = 0; u < tiles_of(e); u++) {
        struct uses uses = {0}, out = {0};
        struct zinf_op op = {.kind = OP_ROW_LOGITS,
                             .unit = (int32_t)u,
                             .arg = (int32_t)u,
                             .flops = head_flops(e) / (double)p->setup->rows};
        op.at[0] = emit_fetch(e, u, &uses);
        uses_write(&uses, e->logits);
        compute(e, &op, &uses);
        uses_read(&out, e->logits);
        emit_copy(e, ZINF_LANE_D2H, (int32_t)u,
                  zinf_at(p->h_logits + (int64_t)u * p->setup->spec->tile_rows),
                  zinf_at(p->heads[0].logits), (uint64_t)p->setup->spec->tile_rows * sizeof(float),
                  &out);
    }
}

int program_logits(struct plan *p)
{
    struct emitter e;
    struct range one = {0, 1};
    if (!emitter_init(&e, p, &p->logits, "logits")) {
        emit_tokens(&e);
        emit_embedding(&e, one);
        emit_blocks(&e, one);
        emit_head_norm(&e, one);
        emit_row_logits(&e);
    }
    return emitter_finish(&e);
}

/*
 * emit_cache: the cached data of sequences that are continued. On the device a stage's cache has a
 * fixed place; in host memory it is fetched beside the stage's parameters, and what the stage adds
 * goes back. How much of it is transferred depends on the call: cache_ops.c.
 */
#include "train/step/emit.h"

void emit_rows(struct emitter *e)
{
    struct plan *p = e->p;
    const struct device_copy copy = {.lane = ZINF_LANE_H2D,
                                     .unit = -1,
                                     .to = zinf_at(device_at(p, p->at.d_rows)),
                                     .from = zinf_at(host_at(p, p->at.h_rows)),
                                     .bytes = rows_length(&p->setup->decoding) * sizeof(int32_t)};
    struct uses uses = {0};
    uses_write(&uses, e->inputs);
    emit_copy(e, &copy, &uses);
}

static struct zinf_operand home(const struct emitter *e, uint32_t stage)
{
    const struct plan *p = e->p;
    uint64_t before = e->walk->stages[stage].cache_before;
    return zinf_at(p->amounts.host_cache ? host_at(p, p->at.h_cache + before)
                                         : device_at(p, p->at.d_cache + before));
}

static void emit_transfer(struct emitter *e, enum zinf_lane lane, uint32_t stage,
                          struct zinf_operand to, struct zinf_operand from, const struct uses *uses)
{
    struct zinf_op op = {.lane = lane,
                         .kind = lane == ZINF_LANE_H2D ? OP_CACHE_IN : OP_CACHE_OUT,
                         .unit = -1,
                         .stage = (int32_t)stage,
                         .at = (struct zinf_operand[]){to, from},
                         .n_at = 2,
                         .bytes = e->walk->stages[stage].cache_bytes};
    emit(e, &op, uses);
}

struct zinf_operand emit_cache(struct emitter *e, uint32_t stage, struct uses *uses)
{
    struct uses in = {0};
    uint32_t deadline = e->deadline;
    uses_read(uses, e->inputs); /* reads the sequences and positions */
    if (!e->p->amounts.host_cache)
        return home(e, stage);
    zinf_buffer buffer = emit_buffer(e, e->caches);
    struct zinf_operand at = zinf_in(buffer, 0);
    e->deadline = INHERITED;
    uses_write(&in, buffer);
    emit_transfer(e, ZINF_LANE_H2D, stage, at, home(e, stage), &in);
    e->deadline = deadline;
    uses_write(uses, buffer);
    return at;
}

void emit_cache_made(struct emitter *e, uint32_t stage, struct zinf_operand cache)
{
    struct uses out = {0};
    uint32_t deadline = e->deadline;
    if (!e->p->amounts.host_cache)
        return;
    e->deadline = e->position + 2;
    uses_read(&out, zinf_operand_buffer(&cache));
    emit_transfer(e, ZINF_LANE_D2H, stage, home(e, stage), cache, &out);
    e->deadline = deadline;
}

/*
 * emit_choice: makes lists of rows from the value by which visits are chosen. The device makes the
 * value. The host makes the lists, since it must know the number of rows before it can enqueue a
 * visit, and whether a unit is needed before it fetches it. The lists go to the device, which
 * gathers rows by them. Ranks with slices of a unit fetch it together or not at all, so a unit
 * counts as chosen if any of them has chosen it. Lists of chunks stay on the host, and a visit's
 * rows of a chunk go to the device with the visit, so that it has memory for one chunk's.
 */
#include "train/step/emit.h"

static uint32_t number(const struct emitter *e, uint32_t stage, int64_t micro)
{
    uint32_t n = (uint32_t)e->p->itinerary.live;
    return e->walk->stages[stage].choice * n + (uint32_t)micro % n;
}

void emit_choice_makes(struct emitter *e, uint32_t stage, int64_t micro, struct uses *uses)
{
    uses_write(uses, e->weighed[number(e, stage, micro)]);
}

void emit_choice_reads(struct emitter *e, uint32_t stage, int64_t micro, struct uses *uses)
{
    uses_read(uses, e->listed[number(e, stage, micro)]);
    uses_read(uses, e->decided[e->walk->stages[stage].choice]);
}

void emit_choice_awaits(struct emitter *e, uint32_t unit, struct uses *uses)
{
    if (e->flags & (OP_CHOSEN | OP_UNCHOSEN))
        uses_read(uses, e->decided[e->walk->stages[e->walk->units[unit].chooser].choice]);
}

static void unite(struct emitter *e, uint32_t stage)
{
    struct zinf_op op = {.lane = ZINF_LANE_NET,
                         .axis = ZINF_DATA,
                         .kind = OP_UNITE,
                         .unit = -1,
                         .stage = (int32_t)stage};
    struct uses uses = {0};
    uses_write(&uses, e->decided[e->walk->stages[stage].choice]);
    emit(e, &op, &uses);
}

static void decide(struct emitter *e, uint32_t stage, bool first, struct zinf_operand list)
{
    const struct plan *p = e->p;
    struct zinf_operand value = zinf_at(host_at(p, p->at.h_choice));
    struct zinf_op op = {.lane = ZINF_LANE_HOST,
                         .kind = OP_CHOOSE,
                         .unit = -1,
                         .stage = (int32_t)stage,
                         .arg = first,
                         .at = (struct zinf_operand[]){list, value},
                         .n_at = 2,
                         .bytes = e->walk->choice_bytes};
    struct uses uses = {0};
    uses_read(&uses, e->choice);
    uses_write(&uses, e->decided[e->walk->stages[stage].choice]);
    emit(e, &op, &uses);
}

void emit_choice_made(struct emitter *e, uint32_t stage, int64_t micro, struct range micros,
                      struct zinf_operand value)
{
    const struct plan *p = e->p;
    const struct zinf_stage *chooser = &e->walk->graph->stages[stage];
    uint64_t offset = list_offset(p, stage, micro);
    struct zinf_operand list = zinf_at(host_at(p, p->at.h_lists + offset));
    const struct device_copy choice = {
        .lane = ZINF_LANE_D2H,
        .unit = -1,
        .to = zinf_at(host_at(p, p->at.h_choice)),
        .from = value,
        .bytes = e->walk->values[chooser->in.at[chooser->choice.of]].bytes};
    const struct device_copy rows = {.lane = ZINF_LANE_H2D,
                                     .unit = -1,
                                     .to = zinf_at(device_at(p, p->at.d_lists + offset)),
                                     .from = list,
                                     .bytes = e->walk->stages[stage].list_bytes};
    struct uses out = {0}, in = {0};
    uses_read(&out, e->weighed[number(e, stage, micro)]);
    if (value.tenant)
        uses_read(&out, zinf_operand_buffer(&value));
    uses_write(&out, e->choice);
    e->chunk = (int16_t)setup_chunk(p->setup, micro);
    emit_copy(e, &choice, &out);
    e->chunk = 0;
    decide(e, stage, micro == micros.first, list);
    const struct zinf_home *swept = &p->homes[chooser->sweep.at[0]];
    if (p->chosen_backward && micro + 1 == micros.end && legs_meet(way_fetch(&p->travel, swept)))
        unite(e, stage);
    if (p->setup->n_chunks > 1) /* each call brings its rows (run_stage.c) */
        return;
    uses_read(&in, e->decided[e->walk->stages[stage].choice]);
    uses_write(&in, e->listed[number(e, stage, micro)]);
    emit_copy(e, &rows, &in);
}

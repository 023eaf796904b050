/*
 * programs: the model's list of stages as programs: forward from the first to the last, backward
 * from the last to the first. Micro-batches go through all stages one at a time, or all through a
 * stage before the next one (layer by layer). A stage whose backward only adds to gradients, and
 * before which nothing flows back, comes last for all micro-batches in either order, so that both
 * add alike.
 */
#include "train/step/emit.h"

static void emit_inputs(struct emitter *e)
{
    struct plan *p = e->p;
    struct uses uses = {0};
    uses_write(&uses, e->inputs);
    emit_copy(e, ZINF_LANE_H2D, -1, zinf_at(device_at(p, p->at.d_inputs)),
              zinf_at(host_at(p, p->at.h_inputs)),
              (uint64_t)p->setup->n_micro * e->walk->input_bytes, &uses);
}

static void emit_losses(struct emitter *e)
{
    struct plan *p = e->p;
    struct uses uses = {0};
    uses_read(&uses, e->losses);
    emit_copy(e, ZINF_LANE_D2H, -1, zinf_at(host_at(p, p->at.h_losses)),
              zinf_at(device_at(p, p->at.d_losses)),
              (uint64_t)p->setup->n_micro * e->walk->loss_bytes, &uses);
}

static void emit_range(struct emitter *e, struct range micros)
{
    uint32_t n = e->walk->graph->n_stages;
    bool whole = e->p->choice.whole;
    e->range++;
    for (uint32_t s = 0; s < n; s++)
        if (whole && s == e->walk->whole)
            emit_whole(e, s, micros);
        else
            emit_forward(e, s, micros);
    for (uint32_t s = n; s-- > 0;)
        if (e->walk->stages[s].differentiates && !e->walk->stages[s].runs_last &&
            !(whole && s == e->walk->whole))
            emit_backward(e, s, micros);
}

/* How often emit_grad_made will be called for each unit. */
static void count_contributions(struct emitter *e)
{
    const struct plan *p = e->p;
    const struct zinf_graph *g = e->walk->graph;
    uint32_t n_micro = (uint32_t)p->setup->n_micro, ranges = p->layer_major ? 1 : n_micro;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        const struct zinf_stage *stage = &g->stages[s];
        const struct walk_stage *info = &e->walk->stages[s];
        uint32_t times = info->runs_last ? 1 : ranges;
        if (!info->differentiates)
            continue;
        if (p->choice.whole && s == e->walk->whole && !plan_sums_whole(p))
            times = n_micro; /* works on one micro-batch at a time */
        for (uint32_t i = 0; i < stage->units.n; i++)
            e->grads_total[stage->units.at[i]] += times * zinf_stage_visits(stage);
        for (uint32_t i = 0; i < stage->sweep.n; i++)
            e->grads_total[stage->sweep.at[i]] += times;
    }
}

static void emit_forward_and_backward(struct emitter *e)
{
    int64_t n_micro = e->p->setup->n_micro;
    count_contributions(e);
    emit_inputs(e);
    if (e->p->layer_major) {
        emit_range(e, (struct range){0, n_micro});
    } else {
        for (int64_t m = 0; m < n_micro; m++)
            emit_range(e, (struct range){m, m + 1});
    }
    for (uint32_t s = e->walk->graph->n_stages; s-- > 0;)
        if (e->walk->stages[s].runs_last)
            emit_backward_last(e, s);
    emit_losses(e);
}

/* Of all units that are trained, or of those alone that always wait. */
static void emit_updates_late(struct emitter *e, bool all)
{
    const struct plan *p = e->p;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        if (unit_trains(p->setup, u) && (p->deferred[u] || (all && !p->setup->in_place)))
            emit_update_late(e, u);
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
        emit_updates_late(&e, true);
    return emitter_finish(&e);
}

int program_wait(struct plan *p)
{
    struct emitter e;
    if (!emitter_init(&e, p, &p->wait, "update and gradients")) {
        emit_updates_late(&e, true);
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
        emit_updates_late(&e, false);
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
        emit_inputs(&e);
        for (uint32_t s = 0; s < e.walk->graph->n_stages; s++)
            emit_forward(&e, s, one);
        emit_losses(&e);
    }
    return emitter_finish(&e);
}

int program_fill(struct plan *p)
{
    struct emitter e;
    if (!emitter_init(&e, p, &p->fill, "fill"))
        emit_own_slots(&e);
    return emitter_finish(&e);
}

/* Stages whose rows are those of sources are of calls that bring some. */
static bool is_of_source(const struct zinf_graph *g, uint32_t stage)
{
    return g->values[g->stages[stage].out.at[0]].rows_of == ZINF_ROWS_OF_SOURCE;
}

static int emit_decoding(struct plan *p, struct zinf_program *program, const char *name,
                         bool sources)
{
    struct emitter e;
    struct range one = {0, 1};
    if (!emitter_init(&e, p, program, name)) {
        e.makes_rows = true;
        emit_inputs(&e);
        emit_rows(&e);
        for (uint32_t s = 0; s < e.walk->row; s++)
            if (sources || !is_of_source(e.walk->graph, s))
                emit_forward(&e, s, one);
        emit_row(&e, e.walk->row);
    }
    return emitter_finish(&e);
}

int program_decode(struct plan *p)
{
    return emit_decoding(p, &p->decode, "decode", false);
}

int program_decode_sources(struct plan *p)
{
    return emit_decoding(p, &p->decode_sources, "decode with sources", true);
}

int program_logits(struct plan *p)
{
    struct emitter e;
    struct range one = {0, 1};
    if (!emitter_init(&e, p, &p->logits, "logits") && e.walk->row != WALK_NONE) {
        e.makes_rows = true;
        emit_inputs(&e);
        for (uint32_t s = 0; s < e.walk->row; s++)
            emit_forward(&e, s, one);
        emit_row(&e, e.walk->row);
    }
    return emitter_finish(&e);
}

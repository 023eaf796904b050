/*
 * programs: makes programs of the model's list of stages: forward from the first to the last,
 * backward from the last to the first. Micro-batches go through all stages one at a time, or all
 * of them through a stage before the next (layer by layer). A stage whose backward only adds to
 * gradients, with none flowing to earlier stages, comes last for all micro-batches in either
 * order, so that both orders add alike.
 */
#include "train/step/emit.h"

static void emit_inputs(struct emitter *e)
{
    struct plan *p = e->p;
    const struct device_copy copy = {.lane = ZINF_LANE_H2D,
                                     .unit = -1,
                                     .to = zinf_at(device_at(p, p->at.d_inputs)),
                                     .from = zinf_at(host_at(p, p->at.h_inputs)),
                                     .bytes =
                                         (uint64_t)setup_n_inputs(p->setup) * e->walk->input_bytes};
    struct uses uses = {0};
    uses_write(&uses, e->inputs);
    if (p->setup->n_chunks == 1) /* of chunks each operation brings its own (chunk_rows.c) */
        emit_copy(e, &copy, &uses);
}

/* Brings the device's mark of damaged packed data to the host. */
static void emit_marks(struct emitter *e)
{
    struct plan *p = e->p;
    const struct device_copy copy = {.lane = ZINF_LANE_D2H,
                                     .unit = -1,
                                     .to = zinf_at(host_at(p, p->at.h_damage)),
                                     .from = zinf_at(device_at(p, p->at.d_damage)),
                                     .bytes = plan_damage_bytes(p)};
    struct uses uses = {0};
    uses_write(&uses, e->unpacked);
    if (copy.bytes)
        emit_copy(e, &copy, &uses);
}

static void emit_losses(struct emitter *e)
{
    struct plan *p = e->p;
    const struct device_copy copy = {.lane = ZINF_LANE_D2H,
                                     .unit = -1,
                                     .to = zinf_at(host_at(p, p->at.h_losses)),
                                     .from = zinf_at(device_at(p, p->at.d_losses)),
                                     .bytes = (uint64_t)p->setup->n_micro * e->walk->loss_bytes};
    struct uses uses = {0};
    uses_read(&uses, e->losses);
    if (p->setup->n_chunks == 1)
        emit_copy(e, &copy, &uses);
    emit_marks(e);
}

/* A sweep that runs whole goes forward and backward in one operation. */
static bool is_whole(const struct emitter *e, uint32_t s)
{
    return e->p->amounts.whole && s == e->walk->whole;
}

static bool goes_back(const struct emitter *e, uint32_t s)
{
    const struct walk_stage *info = &e->walk->stages[s];
    return info->differentiates && !info->runs_last && !is_whole(e, s);
}

/* Contributions of this visit to a unit follow those of later stages of this rank, which other
 * visits make; their numbers continue from these. */
static void begin_turns(struct emitter *e, const struct visit *v)
{
    const struct walk *w = e->walk;
    memset(e->turns_seen, 0, e->p->setup->n_units * sizeof *e->turns_seen);
    for (uint32_t s = v->end; v->direction == VISIT_BACKWARD && s < w->graph->n_stages; s++) {
        const struct zinf_stage *stage = &w->graph->stages[s];
        const uint32_t times = stage->choice.n ? 1 : zinf_stage_visits(stage);
        for (uint32_t k = 0; goes_back(e, s) && k < stage->units.n; k++)
            e->turns_seen[stage->units.at[k]] += times;
        for (uint32_t k = 0; goes_back(e, s) && k < stage->sweep.n; k++)
            e->turns_seen[stage->sweep.at[k]]++;
    }
}

static void emit_visit(struct emitter *e, const struct visit *v)
{
    const int64_t back = e->p->itinerary.back;
    const bool tree = e->crossing && v->direction == VISIT_BACKWARD;
    /* in a pipeline, a backward has other micro-batches than the forward before it */
    e->range += v->direction == VISIT_FORWARD || (e->crossing && v->direction == VISIT_BACKWARD);
    e->turn = tree ? v->micros.first / back : 0;
    e->n_turns = tree ? (e->p->setup->n_micro + back - 1) / back : 1;
    if (e->crossing || !in_parts(e->p->setup)) /* in parts, a visit makes all turns */
        begin_turns(e, v);
    if (v->direction == VISIT_BORDER)
        emit_border(e, v);
    for (uint32_t s = v->first; v->direction == VISIT_FORWARD && s < v->end; s++)
        if (is_whole(e, s))
            emit_whole(e, s, v->micros);
        else
            emit_forward(e, s, v->micros);
    for (uint32_t s = v->end; v->direction != VISIT_FORWARD && s-- > v->first;)
        if (in_parts(e->p->setup) && (v->direction == VISIT_LAST || goes_back(e, s)))
            emit_backward_parts(e, s, v->micros);
        else if (v->direction == VISIT_LAST)
            emit_backward_last(e, s, v->micros);
        else if (goes_back(e, s))
            emit_backward(e, s, v->micros);
}

/* How often each visit contributes to the gradients of a stage's units. A sweep that runs whole
 * works on one micro-batch at a time. */
static uint32_t contributions_of(const struct emitter *e, const struct visit *v, uint32_t s)
{
    if (is_whole(e, s) && v->direction == VISIT_FORWARD)
        return plan_sums_whole(e->p) ? 1 : (uint32_t)(v->micros.end - v->micros.first);
    return v->direction == VISIT_LAST || (v->direction == VISIT_BACKWARD && goes_back(e, s));
}

/* Counts how often emit_grad_made will be called for each unit. */
static void count_contributions(struct emitter *e)
{
    const struct itinerary *it = &e->p->itinerary;
    for (uint32_t i = 0; i < it->n; i++)
        for (uint32_t s = it->visits[i].first; s < it->visits[i].end; s++) {
            const struct zinf_stage *stage = &e->walk->graph->stages[s];
            const uint32_t turns = (uint32_t)setup_turns(e->p->setup);
            const uint32_t times = contributions_of(e, &it->visits[i], s) * turns;
            for (uint32_t k = 0; k < stage->units.n; k++)
                e->grads_total[stage->units.at[k]] +=
                    times * (stage->choice.n ? 1 : zinf_stage_visits(stage));
            for (uint32_t k = 0; k < stage->sweep.n; k++)
                e->grads_total[stage->sweep.at[k]] += times;
        }
}

static void emit_forward_and_backward(struct emitter *e)
{
    const struct itinerary *it = &e->p->itinerary;
    count_contributions(e);
    emit_inputs(e);
    for (uint32_t i = 0; i < it->n; i++)
        emit_visit(e, &it->visits[i]);
    emit_shared(e);
    emit_losses(e);
    if (e->meets_late)
        emit_meet(e);
}

/* Emits updates of all trained units, or only of those that always wait. */
static void emit_updates_late(struct emitter *e, bool all)
{
    const struct plan *p = e->p;
    for (uint32_t u = 0; u < p->setup->n_units; u++)
        if (unit_trains(p->setup, u) && (p->deferred[u] || (all && !p->setup->in_place)))
            emit_update_late(e, u);
}

/* ---- what each program is made of ---- */

static void emit_drain(struct emitter *e)
{
    emit_updates_late(e, true);
}

static void emit_wait(struct emitter *e)
{
    emit_updates_late(e, true);
    emit_commit(e);
    emit_forward_and_backward(e);
}

static void emit_speculate(struct emitter *e)
{
    e->speculates = true;
    emit_updates_late(e, false);
    emit_commit(e);
    emit_forward_and_backward(e);
}

/* Without backward, only what visits of one sweep share is kept, of one micro-batch at a time. */
static void emit_forward_alone(struct emitter *e, uint32_t s, struct range micros)
{
    if (zinf_stage_visits(&e->walk->graph->stages[s]) == 1)
        emit_forward(e, s, micros);
    else
        for (int64_t m = micros.first; m < micros.end; m++)
            emit_forward(e, s, (struct range){m, m + 1});
}

/* Through all ranges of this rank. */
static void emit_forward_ranges(struct emitter *e, struct range micros)
{
    for (uint32_t i = 0; !i || i < e->walk->graph->n_ranges; i++) {
        const struct zinf_range range = zinf_graph_range(e->walk->graph, i);
        emit_border(e, &(struct visit){.range = i, .takes = micros});
        for (uint32_t s = range.first; s < range.end; s++)
            emit_forward_alone(e, s, micros);
        emit_border(e, &(struct visit){.range = i, .next = true, .gives = micros});
    }
}

/* Between ranks of a pipeline a sample goes at a time. */
static void emit_forward_whole(struct emitter *e)
{
    const int64_t n = setup_window_micros(e->p->setup);
    const int64_t each = is_piped(e->p->setup) ? e->p->setup->own_chunks : n;
    e->forward_alone = true;
    emit_inputs(e);
    for (int64_t m = 0; m < n; m += each)
        emit_forward_ranges(e, (struct range){m, m + each});
    emit_losses(e);
}

/* The forward visits of a step, without sweeps that also go backward. */
static void emit_sweep(struct emitter *e)
{
    const struct itinerary *it = &e->p->itinerary;
    emit_inputs(e);
    for (uint32_t i = 0; i < it->n; i++)
        for (uint32_t s = it->visits[i].first;
             it->visits[i].direction == VISIT_FORWARD && s < it->visits[i].end; s++)
            emit_forward(e, s, it->visits[i].micros);
    emit_losses(e);
}

/* Stages of an encoder run in calls that bring sources. */
static bool is_of_source(const struct zinf_graph *g, uint32_t stage)
{
    return g->values[g->stages[stage].out.at[0]].rows_of == ZINF_ROWS_OF_SOURCE;
}

/* All stages up to the one that makes logits, which the last rank of a pipeline has; for one
 * micro-batch, or for a sample's chunks. */
static void emit_to_logits(struct emitter *e, bool sources)
{
    const struct range one = {0, e->p->setup->own_chunks};
    const struct walk *w = e->walk;
    e->makes_rows = e->forward_alone = true;
    e->without_sources = !sources;
    for (uint32_t i = 0; !i || i < w->graph->n_ranges; i++) {
        const struct zinf_range range = zinf_graph_range(w->graph, i);
        emit_border(e, &(struct visit){.range = i, .takes = one});
        for (uint32_t s = range.first; s < range.end && (w->row == WALK_NONE || s < w->row); s++)
            if (sources || !is_of_source(w->graph, s))
                emit_forward_alone(e, s, one);
        emit_border(e, &(struct visit){.range = i, .next = true, .gives = one});
    }
    if (w->row != WALK_NONE)
        emit_row(e, w->row, one);
    emit_marks(e);
}

static void emit_decode(struct emitter *e)
{
    emit_inputs(e);
    emit_rows(e);
    emit_to_logits(e, false);
}

static void emit_decode_sources(struct emitter *e)
{
    emit_inputs(e);
    emit_rows(e);
    emit_to_logits(e, true);
}

static void emit_logits(struct emitter *e)
{
    const bool possible = setup_makes_logits(e->p->setup); /* else forward.c refuses */
    if (!possible || (e->walk->row == WALK_NONE && !is_piped(e->p->setup)))
        return;
    emit_inputs(e);
    emit_to_logits(e, true);
}

/* ---- programs ---- */

enum recipe {
    GRADIENTS,
    DRAIN,
    WAIT,
    SPECULATE,
    FORWARD,
    SWEEP,
    FILL,
    DECODE,
    DECODE_SOURCES,
    LOGITS,
};
static const struct {
    const char *name;
    void (*emit)(struct emitter *e);
    bool of_chunks; /* its operations may be as many as pairs of chunks */
} recipes[] = {
    [GRADIENTS] = {"gradients", emit_forward_and_backward, true},
    [DRAIN] = {"update", emit_drain, false},
    [WAIT] = {"update and gradients", emit_wait, true},
    [SPECULATE] = {"update in backward", emit_speculate, true},
    [FORWARD] = {"forward", emit_forward_whole, true},
    [SWEEP] = {"first sweep", emit_sweep, true},
    [FILL] = {"fill", emit_own_slots, false},
    [DECODE] = {"decode", emit_decode, false},
    [DECODE_SOURCES] = {"decode with sources", emit_decode_sources, false},
    [LOGITS] = {"logits", emit_logits, true},
};

/* Ranks of a pipeline are predicted together, by programs that are whole. */
static int make(struct plan *p, struct zinf_program *program, enum recipe recipe,
                const struct zinf_taker *taker)
{
    struct emitter e;
    if (!emitter_init(&e, p, program, recipes[recipe].name)) {
        e.cuts = recipes[recipe].of_chunks && p->setup->n_chunks > 1 && !is_piped(p->setup);
        e.taker = taker;
        recipes[recipe].emit(&e);
    }
    const int code = emitter_finish(&e);
    if (program->pieces)
        program->pieces->recipe = recipe;
    return code;
}

int program_pieces(const struct plan *p, const struct zinf_program *program,
                   const struct zinf_taker *taker)
{
    struct zinf_program again = {0};
    struct zinf_taker in_order = *taker;
    struct plan plan = *p;
    plan.rates = p->order_rates;
    in_order.order = program->pieces->order;
    in_order.machine = plan_machine(&plan);
    const int code = make(&plan, &again, (enum recipe)program->pieces->recipe, &in_order);
    zinf_program_fini(&again);
    return code;
}

int program_gradients(struct plan *p)
{
    return make(p, &p->gradients, GRADIENTS, NULL);
}

int program_drain(struct plan *p)
{
    return make(p, &p->drain, DRAIN, NULL);
}

int program_wait(struct plan *p)
{
    return make(p, &p->wait, WAIT, NULL);
}

int program_speculate(struct plan *p)
{
    return make(p, &p->speculate, SPECULATE, NULL);
}

int program_forward(struct plan *p)
{
    return make(p, &p->forward, FORWARD, NULL);
}

int program_sweep(struct plan *p)
{
    return make(p, &p->sweep, SWEEP, NULL);
}

int program_fill(struct plan *p)
{
    return make(p, &p->fill, FILL, NULL);
}

int program_decode(struct plan *p)
{
    return make(p, &p->decode, DECODE, NULL);
}

int program_decode_sources(struct plan *p)
{
    return make(p, &p->decode_sources, DECODE_SOURCES, NULL);
}

int program_logits(struct plan *p)
{
    return make(p, &p->logits, LOGITS, NULL);
}

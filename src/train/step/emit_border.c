/*
 * emit_border: exchanges between neighbouring ranks of a pipeline: values go to the next rank,
 * their gradients come back. Values and gradients of a micro-batch stay where they are until both
 * ranks are done with them, so a transfer overlaps with the computation of other micro-batches.
 */
#include "train/step/emit_call.h"

/* An exchange: a micro-batch of a value in each direction, or a value for the reference model. */
struct crossing {
    uint32_t value;
    bool reference;
    int64_t gives, takes; /* micro-batches; < 0: none */
};

static zinf_resource crossing_of(const struct emitter *e, int64_t micro)
{
    return e->crossing[micro % e->p->itinerary.live];
}

/* The place of a gradient; fresh: it is made there. */
static struct zinf_operand gradient_of(struct emitter *e, uint32_t value, int64_t micro, bool fresh,
                                       struct uses *uses)
{
    return plan_gradients_leave(e->p) ? emit_gradient(e, value, micro, fresh, uses)
                                      : zinf_at(gradient_at(e->p, value, micro));
}

/* What is given: the value, or its gradient. */
static struct zinf_operand give(struct emitter *e, const struct crossing *c, bool value,
                                struct uses *uses)
{
    e->micro = (int16_t)c->gives;
    uses_read(uses, crossing_of(e, c->gives));
    if (c->reference)
        return emit_reference_at(e, c->value, c->gives);
    return value ? emit_value(e, c->value, c->gives, uses)
                 : gradient_of(e, c->value, c->gives, false, uses);
}

static struct zinf_operand take(struct emitter *e, const struct crossing *c, bool value,
                                struct uses *uses)
{
    uses_write(uses, crossing_of(e, c->takes));
    if (c->reference)
        return emit_reference_at(e, c->value, c->takes);
    return value ? emit_value_new(e, c->value, c->takes, uses)
                 : gradient_of(e, c->value, c->takes, true, uses);
}

static void emit_crossing(struct emitter *e, const struct crossing *c, bool next)
{
    const struct zinf_value *v = &e->walk->graph->values[c->value];
    const struct zinf_compute *compute = &e->p->setup->compute;
    const uint64_t own = zinf_value_bytes(compute, v), back = zinf_value_gradient_bytes(compute, v);
    const bool gives = c->gives >= 0, takes = c->takes >= 0;
    struct uses uses = {0};
    struct zinf_operand at[2] = {{0}, {0}};
    if (!gives && !takes)
        return;
    if (gives)
        at[0] = give(e, c, next, &uses);
    if (takes)
        at[1] = take(e, c, !next, &uses);
    uses_write(&uses, e->wire);
    e->micro = (int16_t)(gives ? c->gives : c->takes);
    struct zinf_op op = {.lane = ZINF_LANE_NET,
                         .kind = !takes   ? OP_GIVE
                                 : !gives ? OP_TAKE
                                          : OP_TRADE,
                         .axis = ZINF_PIPE,
                         .unit = -1,
                         .arg = (int32_t)c->value,
                         .visit = next,
                         .at = at,
                         .n_at = 2,
                         .bytes =
                             (gives ? next ? own : back : 0) + (takes ? next ? back : own : 0)};
    emit(e, &op, &uses);
    if (c->reference)
        return;
    e->micro = (int16_t)(takes ? c->takes : c->gives);
    if (takes && !next)
        emit_value_made(e, c->value, c->takes, at[1]);
    if (takes && next && plan_gradients_leave(e->p))
        emit_gradient_made(e, c->value, c->takes, at[1]);
}

/* Both ranks have the same lists of values that cross, in the same order. */
static void emit_value_crossings(struct emitter *e, const struct visit *b, uint32_t v, int64_t i)
{
    const struct zinf_graph *g = e->walk->graph;
    const struct zinf_range range = zinf_graph_range(g, b->range);
    const struct zinf_ids *values = b->next ? &range.values_go : &range.values_come;
    const struct zinf_ids *gradients = b->next ? &range.gradients_come : &range.gradients_go;
    const bool itself = zinf_ids_have(values, v), back = zinf_ids_have(gradients, v);
    const bool gives = i < b->gives.end - b->gives.first && (b->next ? itself : back);
    const bool takes = i < b->takes.end - b->takes.first && (b->next ? back : itself);
    struct crossing c = {.value = v,
                         .gives = gives ? b->gives.first + i : -1,
                         .takes = takes ? b->takes.first + i : -1};
    if (e->without_sources && g->values[v].rows_of == ZINF_ROWS_OF_SOURCE)
        return;
    emit_crossing(e, &c, b->next);
    c.reference = g->values[v].referred && !e->makes_rows;
    c.gives = b->next ? c.gives : -1;
    c.takes = b->next ? -1 : c.takes;
    if (c.reference)
        emit_crossing(e, &c, b->next);
}

void emit_border(struct emitter *e, const struct visit *b)
{
    const int64_t gives = b->gives.end - b->gives.first, takes = b->takes.end - b->takes.first;
    for (int64_t i = 0; i < gives || i < takes; i++)
        for (uint32_t v = 0; e->walk->graph->n_ranges && v < e->walk->graph->n_values; v++)
            emit_value_crossings(e, b, v, i);
}

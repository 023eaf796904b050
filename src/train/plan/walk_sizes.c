/*
 * walk_sizes: what every stage and value takes, by running the stages' own code without a queue,
 * and how that is numbered: kinds, layers, slots.
 */
#include "train/plan/walk.h"

#include "base/memory.h"

#include <stdlib.h>

static uint64_t aligned(uint64_t bytes)
{
    return zinf_align_up(bytes, ZINF_MEMORY_ALIGN);
}

static uint64_t most(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

struct zinf_compute walk_compute(const struct zinf_graph *graph, uint32_t stage,
                                 const struct zinf_compute *compute)
{
    const struct zinf_stage *s = &graph->stages[stage];
    struct zinf_compute own = *compute;
    struct zinf_chunk *c = &own.chunk;
    if (!c->whole)
        return own;
    const int64_t number = c->first / compute->seq, rows = walk_rows(graph, stage, compute);
    c->keys_first = s->ops->looks_ahead && s->ops->looks_ahead(s->spec);
    c->whole = walk_is_of_source(graph, stage) ? c->source_whole : c->whole;
    c->first = number * rows;
    c->near = c->keys_first ? 0 : c->near / compute->seq * rows;
    c->near_end = c->keys_first ? c->n * rows : c->near_end / compute->seq * rows;
    return own;
}

/* A chunk's work grows with what is before it in the sequence. The mean chunk is the one in the
 * middle, which c describes, or, of an even number, the two there. */
static int take_mean_chunk(struct zinf_stage_size *size, const struct walk *w,
                           const struct zinf_compute *c, uint32_t s, enum zinf_pass pass)
{
    struct zinf_compute before = *c;
    struct zinf_chunk *chunk = &before.chunk;
    struct zinf_stage_size other;
    if (!chunk->whole || chunk->n % 2 || chunk->keys_first)
        return 0;
    const int64_t rows = chunk->first / (chunk->n / 2);
    chunk->first -= rows;
    chunk->near_end -= rows;
    const int code = zinf_stage_measure(&other, &before, w->graph, s, pass);
    size->flops = (size->flops + other.flops) / 2;
    size->bytes = (size->bytes + other.bytes) / 2;
    size->work = (size->work + other.work) / 2;
    return code;
}

static int measure_pass(struct walk *w, const struct zinf_compute *c, uint32_t s,
                        enum zinf_pass pass)
{
    struct zinf_stage_size *size = &w->stages[s].size[pass];
    uint32_t visits = pass == ZINF_PASS_WHOLE ? 1 : zinf_stage_visits(&w->graph->stages[s]);
    int code = zinf_stage_measure(size, c, w->graph, s, pass);
    if (!code)
        code = take_mean_chunk(size, w, c, s, pass);
    size->flops /= visits;
    size->bytes /= visits;
    size->work /= visits;
    w->workspace = most(w->workspace, size->workspace);
    w->shared = most(w->shared, size->shared);
    w->outside = most(w->outside, size->outside);
    if (pass == ZINF_PASS_WHOLE)
        w->scratch_whole = most(w->scratch_whole, size->scratch);
    else
        w->scratch = most(w->scratch, size->scratch);
    return code;
}

/* The size of the stage's caches for decoding. */
static void measure_cache(struct walk *w, const struct zinf_compute *c, struct walk_stage *info)
{
    const struct zinf_decoding *d = c->decoding;
    const uint64_t sequences = d ? (uint64_t)d->n_sequences : 0;
    const uint64_t numbers[] = {[ZINF_CACHE_SEQUENCES] = sequences,
                                [ZINF_CACHE_STATES] = sequences,
                                [ZINF_CACHE_SOURCES] = d ? (uint64_t)d->n_sources : 0};
    for (int i = 0; i < ZINF_CACHES; i++) {
        const struct zinf_cache *cache = &info->size[ZINF_PASS_FORWARD].cache[i];
        info->cache[i] = *cache;
        info->cache_at[i] = info->cache_bytes;
        info->cache_bytes += aligned(numbers[i] * cache->planes * cache->slots * cache->row_bytes);
    }
    info->cache_before = w->cache_bytes;
    w->cache_bytes += info->cache_bytes;
    w->largest_cache = most(w->largest_cache, info->cache_bytes);
}

/* What the stage carries from chunk to chunk of a sequence. */
static void measure_carried(struct walk *w, const struct zinf_compute *c, uint32_t s)
{
    struct walk_stage *info = &w->stages[s];
    const struct zinf_stage_size *size = &info->size[ZINF_PASS_FORWARD];
    struct zinf_carried carried = {.rows = (uint64_t)walk_rows(w->graph, s, c),
                                   .row_elems = size->carried_elems,
                                   .source_rows = (uint64_t)c->source_seq,
                                   .source_elems = size->source_elems,
                                   .documents = size->documents,
                                   .source_documents = size->source_documents,
                                   .handed = size->handed_bytes};
    info->carried[0] = zinf_carried_stride(&carried, zinf_dtype_bytes(c->dtype));
    info->handed_at = zinf_carried_rows(&carried, zinf_dtype_bytes(c->dtype));
    info->handed = carried.handed;
    carried.documents = carried.source_documents = false; /* these have no gradient, */
    carried.handed = 0;                                   /* and that of this is elsewhere */
    info->carried[1] = zinf_carried_stride(&carried, sizeof(float));
    info->carried_reach = size->carried_reach;
    w->hands_over |= info->handed > 0;
    w->handed = most(w->handed, info->handed);
    info->in_order = c->chunk.parts > 1 && size->follows;
    w->in_order |= info->in_order;
    for (int i = 0; i < 2; i++)
        w->carried[i] = most(w->carried[i], info->carried[i]);
    info->d_handed = info->size[ZINF_PASS_BACKWARD].d_handed_bytes;
    w->d_handed = most(w->d_handed, 2 * info->d_handed);
}

/* Whether forward and backward can be one call: nothing stands between them. */
static bool can_be_whole(const struct walk *w, uint32_t s)
{
    const struct zinf_stage *stage = &w->graph->stages[s];
    return w->stages[s].differentiates && stage->ops->whole &&
           w->graph->values[stage->out.at[0]].kind == ZINF_VALUE_LOSS;
}

static int measure_stage(struct walk *w, const struct zinf_compute *compute, uint32_t s)
{
    const struct zinf_stage *stage = &w->graph->stages[s];
    const struct zinf_compute own = walk_compute(w->graph, s, compute), *c = &own;
    struct walk_stage *info = &w->stages[s];
    info->keys_first = c->chunk.keys_first;
    w->keys_first |= info->keys_first;
    int code = measure_pass(w, c, s, ZINF_PASS_FORWARD);
    if (!code && info->differentiates)
        code = measure_pass(w, c, s, ZINF_PASS_BACKWARD);
    if (!code && can_be_whole(w, s))
        code = measure_pass(w, c, s, ZINF_PASS_WHOLE);
    if (!code && stage->ops->row)
        code = measure_pass(w, c, s, ZINF_PASS_ROW);
    if (!code && c->chunk.whole && stage->ops->carry)
        code = measure_pass(w, c, s, ZINF_PASS_CARRY);
    if (!code && zinf_chunk_keys_first(&c->chunk) && stage->ops->carry_backward &&
        info->differentiates)
        code = measure_pass(w, c, s, ZINF_PASS_CARRY_BACK);
    measure_carried(w, c, s);
    measure_cache(w, c, info);
    info->kept = aligned(info->size[ZINF_PASS_FORWARD].kept);
    w->working_of_any = most(w->working_of_any, info->kept);
    info->keeper = WALK_NONE;
    if (stage->ops->recomputes) {
        info->ordinal = w->n_recompute++;
        w->working = most(w->working, info->kept);
    } else {
        info->ordinal = WALK_NONE;
        info->kept_before = w->kept_always;
        w->kept_always += info->kept;
        w->kept_most = most(w->kept_most, info->kept);
        if (info->kept)
            info->keeper = w->n_keepers++;
    }
    w->flops += info->size[ZINF_PASS_FORWARD].flops * zinf_stage_visits(stage);
    if (can_be_whole(w, s) && !stage->units.n)
        w->whole = s;
    if (stage->ops->row)
        w->row = s;
    return code;
}

/* Kept activations of the last stages come first in memory: their number is what is chosen. */
static void sum_kept(struct walk *w)
{
    uint64_t before = 0;
    for (uint32_t s = w->graph->n_stages; s-- > 0;)
        if (w->stages[s].ordinal != WALK_NONE) {
            w->stages[s].kept_before = before;
            before += w->stages[s].kept;
        }
}

static void number_kinds(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        uint32_t kind = 0;
        while (kind < w->n_kinds && w->kinds[kind] != g->stages[s].ops)
            kind++;
        if (kind == w->n_kinds)
            w->kinds[w->n_kinds++] = g->stages[s].ops;
        w->stages[s].kind = kind;
    }
}

/* With chunks: what backward of the stage does not read of what it has made, and the value by which
 * its visits are chosen. */
static void leave_of_stage(struct walk *w, const struct zinf_stage *stage)
{
    const struct zinf_value *values = w->graph->values;
    for (uint32_t i = 0; i < stage->out.n; i++)
        w->values[stage->out.at[i]].leaves |=
            values[stage->out.at[i]].kind == ZINF_VALUE_ACTIVATION &&
            stage->ops->backward_without_outputs;
    if (stage->choice.n) {
        struct walk_value *of = &w->values[stage->in.at[stage->choice.of]];
        of->leaves = of->returns = true;
    }
}

static void find_leaving(struct walk *w, const struct zinf_compute *c)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t v = 0; v < g->n_values; v++)
        w->values[v].leaves = g->values[v].leaves;
    for (uint32_t s = 0; c->chunk.whole && s < g->n_stages; s++)
        leave_of_stage(w, &g->stages[s]);
}

static void measure_places(struct walk *w)
{
    for (uint32_t i = 0; i < w->n_places; i++) {
        struct walk_place *place = &w->places[i];
        w->place_bytes = most(w->place_bytes, place->bytes);
        place->end_before = w->end_bytes;
        place->turn_before = w->turn_bytes;
        *(place->to_the_end ? &w->end_bytes : &w->turn_bytes) += place->bytes;
    }
}

/* The stages that make a value first and read it last. */
struct life {
    uint32_t made, read;
};
static struct life life_of(const struct zinf_graph *g, uint32_t value)
{
    struct life l = {0, 0};
    for (uint32_t s = 0; s < g->n_stages; s++) {
        if (zinf_ids_have(&g->stages[s].out, value))
            l.made = s;
        if (zinf_ids_have(&g->stages[s].in, value))
            l.read = s;
    }
    return l;
}

/* Whether no backward looks at the value. */
static bool passes(const struct walk *w, uint32_t value)
{
    return w->alone || w->graph->values[value].passing;
}

/* Of values that no backward looks at: one whose place another has had that is of no more use, so
 * that it has the same number. WALK_NONE: there is none. made: the stage that makes this one; read
 * [n_values]: by number, where what has it last is read last. */
static uint32_t find_left(const struct walk *w, uint32_t value, uint32_t made, const uint32_t *read)
{
    for (uint32_t v = 0; v < value; v++)
        if (passes(w, v) && w->values[v].number != WALK_NONE &&
            w->values[v].bytes == w->values[value].bytes && read[w->values[v].number] < made)
            return v;
    return WALK_NONE;
}

/* Its number among those that leave, and the bytes of what comes before it there. */
static void place_leaving(struct walk *w, uint32_t v, uint32_t *read)
{
    struct walk_value *value = &w->values[v];
    const bool passing = passes(w, v);
    const struct life life = life_of(w->graph, v);
    const uint32_t left = passing ? find_left(w, v, life.made, read) : WALK_NONE;
    w->leaving_bytes = most(w->leaving_bytes, value->bytes);
    if (left != WALK_NONE) {
        value->number = w->values[left].number;
        value->bytes_before = w->values[left].bytes_before;
    } else {
        value->number = w->n_leaving++;
        value->bytes_before = w->all_leaving_bytes;
        w->all_leaving_bytes += value->bytes;
    }
    if (passing) /* what one stage makes has places of its own, read or not */
        read[value->number] = life.read > life.made ? life.read : life.made;
}

static int measure_values(struct walk *w, const struct zinf_compute *c)
{
    const struct zinf_graph *g = w->graph;
    uint32_t *read = calloc(g->n_values + 1, sizeof *read);
    if (!read)
        return zinf_fail(-ENOMEM, "no memory for the places of %u values", g->n_values);
    find_leaving(w, c);
    for (uint32_t v = 0; v < g->n_values; v++) {
        struct walk_value *value = &w->values[v];
        bool input = g->values[v].kind == ZINF_VALUE_INPUT;
        bool loss = zinf_value_is_told(g->values[v].kind);
        if (g->values[v].kind == ZINF_VALUE_REFERENCE) /* is where the other's slot is */
            continue;
        if (g->values[v].away && v != g->loss) /* which every rank is told of */
            continue;
        value->bytes = zinf_value_bytes(c, &g->values[v]);
        if (!input && !loss)
            value->bytes = aligned(value->bytes);
        if (!input && !loss)
            w->slot_bytes = most(w->slot_bytes, value->bytes);
        if (!input && !loss && value->leaves) {
            place_leaving(w, v, read);
            continue;
        }
        const uint64_t margin = input && c->chunk.whole ? ZINF_INPUT_MARGIN * sizeof(int32_t) : 0;
        uint64_t *sum = input ? &w->input_bytes : loss ? &w->loss_bytes : &w->staying_bytes;
        value->bytes_before = *sum + margin;
        *sum += value->bytes + 2 * margin;
    }
    free(read);
    measure_places(w);
    return 0;
}

/* ---- a forward pass alone: slots that are free again after the last consumer ---- */

/* The stage before which the value is of no more use: a neighbour has it, too, by then. */
static uint32_t free_before(const struct zinf_graph *g, uint32_t value)
{
    uint32_t end = 0;
    for (uint32_t s = 0; s < g->n_stages; s++)
        if (zinf_ids_have(&g->stages[s].in, value))
            end = s + 1;
    for (uint32_t r = 0; r < g->n_ranges; r++)
        if (zinf_ids_have(&g->ranges[r].values_go, value) && g->ranges[r].end > end)
            end = g->ranges[r].end;
    return end;
}

/* From stage s on. */
static void give_slot(struct walk *w, uint32_t value, uint32_t s, uint32_t *free_from)
{
    uint32_t slot = 0;
    if (!w->values[value].bytes) /* it is nowhere */
        return;
    while (slot < w->n_slots && free_from[slot] > s)
        slot++;
    w->n_slots = slot < w->n_slots ? w->n_slots : slot + 1;
    const uint32_t end = free_before(w->graph, value);
    free_from[slot] = end > s ? end : s + 1;
    w->values[value].slot = slot;
}

static int give_slots(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    uint32_t *free_from = calloc(g->n_values + 1, sizeof *free_from);
    if (!free_from)
        return zinf_fail(-ENOMEM, "no memory for the slots of %u values", g->n_values);
    for (uint32_t s = 0; s < g->n_stages; s++) {
        for (uint32_t r = 0; r < g->n_ranges; r++)
            for (uint32_t i = 0; s == g->ranges[r].first && i < g->ranges[r].values_come.n; i++)
                give_slot(w, g->ranges[r].values_come.at[i], s, free_from);
        for (uint32_t i = 0; i < g->stages[s].out.n; i++)
            if (g->values[g->stages[s].out.at[i]].kind == ZINF_VALUE_ACTIVATION)
                give_slot(w, g->stages[s].out.at[i], s, free_from);
    }
    free(free_from);
    return 0;
}

/* ---- units ---- */

struct seen_stage {
    struct walk *walk;
    const struct zinf_stage *stage;
};

/* How often the stage contributes to the gradient of a unit at hand. */
static uint32_t turns_of(const struct zinf_stage *stage)
{
    return stage->choice.n ? 1 : zinf_stage_visits(stage);
}

/* A layer's unit is at hand in one stage, which recomputes, or is one that rows choose, and is
 * nowhere else. */
static void find_layers(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        const struct zinf_stage *stage = &g->stages[s];
        for (uint32_t i = 0; i < stage->units.n; i++) {
            struct walk_unit *unit = &w->units[stage->units.at[i]];
            unit->uses += turns_of(stage);
            unit->layer = stage->ops->recomputes ? s : WALK_NONE;
        }
        for (uint32_t i = 0; i < stage->sweep.n; i++) {
            w->units[stage->sweep.at[i]].uses++;
            w->units[stage->sweep.at[i]].layer = stage->choice.n ? s : WALK_NONE;
        }
    }
    for (uint32_t u = 0; u < g->n_units; u++) {
        struct walk_unit *unit = &w->units[u];
        bool layer = unit->uses == 1 && unit->layer != WALK_NONE;
        unit->chooser = layer && g->stages[unit->layer].choice.n ? unit->layer : WALK_NONE;
        unit->layer = layer ? w->n_layers : WALK_NONE;
        if (layer)
            w->layers[w->n_layers++] = u;
    }
}

/* With the gap behind each, as frame_sum has it. */
static void see_linear(void *seer, uint32_t unit, int tensor)
{
    const struct seen_stage *at = seer;
    const struct zinf_unit *units = at->walk->graph->units;
    const uint32_t u = unit < at->stage->units.n ? at->stage->units.at[unit] : 0;
    const struct zinf_tensor *t = &units[u].tensors[tensor];
    uint64_t *added = &at->walk->units[u].added_elems;
    if (unit >= at->stage->units.n || !units[u].trained || t->moved)
        return;
    *added += frame_gap_end(&units[u], (uint32_t)tensor) - t->offset;
    *added = *added < units[u].elems ? *added : units[u].elems;
}

/* Not where visits make parts of a gradient one by one. */
static int find_added(struct walk *w)
{
    int code = 0;
    for (uint32_t s = 0; !code && s < w->graph->n_stages; s++) {
        struct seen_stage at = {w, &w->graph->stages[s]};
        if (w->stages[s].differentiates && !at.stage->sweep.n && !w->stages[s].carried[0])
            code = zinf_stage_linears(w->graph, s, false, see_linear, &at);
    }
    return code;
}

/* Stages whose rows choose their visits. */
static void find_choices(struct walk *w, const struct zinf_compute *c)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        const struct zinf_stage *stage = &g->stages[s];
        struct walk_stage *info = &w->stages[s];
        info->choice = stage->choice.n ? w->n_choices++ : WALK_NONE;
        if (!stage->choice.n)
            continue;
        uint32_t value = stage->in.at[stage->choice.of];
        uint64_t rows = zinf_rows_count(c, g->values[value].rows_of);
        w->values[value].chooser = s;
        w->choice_bytes = most(w->choice_bytes, w->values[value].bytes);
        info->list_bytes = aligned(zinf_choice_length(stage, rows) * sizeof(int32_t));
        info->lists_before = w->all_list_bytes;
        w->all_list_bytes += info->list_bytes;
    }
}

static uint32_t count(const struct zinf_ids *ids, uint32_t number)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < ids->n; i++)
        n += ids->at[i] == number;
    return n;
}

/* Micro-batch by micro-batch a unit's contributions are added in turn; layer by layer those of one
 * stage and visit are added up first. That is the same only where there is one stage and visit. */
static void find_order(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t u = 0; u < g->n_units; u++) {
        uint32_t n = 0;
        for (uint32_t s = 0; g->units[u].trained && w->units[u].uses && s < g->n_stages; s++) {
            const struct zinf_stage *stage = &g->stages[s];
            if (w->stages[s].differentiates && !w->stages[s].runs_last)
                n += count(&stage->units, u) * turns_of(stage) + count(&stage->sweep, u);
        }
        w->units[u].turns = n;
        w->order_counts |= n > 1;
    }
}

/* The units of a whole sweep get device slots first: they are at hand together or not at all. Then
 * what is trained: beside frozen units that is small, and needed as often. The last units come
 * first: backward, which begins with them, then need not wait for what it has just had at hand. */
static void order_units(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    uint32_t next = 0;
    for (uint32_t u = 0; u < g->n_units; u++) {
        w->units[u].own_order = WALK_NONE;
        w->units[u].sweep_end = u + 1;
    }
    if (w->whole != WALK_NONE) {
        const struct zinf_ids *sweep = &g->stages[w->whole].sweep;
        for (uint32_t i = 0; i < sweep->n; i++) {
            w->units[sweep->at[i]].own_order = next++;
            w->units[sweep->at[i]].sweep_end = sweep->at[sweep->n - 1] + 1;
        }
    }
    for (int frozen = 0; frozen < 2; frozen++)
        for (uint32_t u = g->n_units; u-- > 0;)
            if (w->units[u].own_order == WALK_NONE && g->units[u].trained == !frozen)
                w->units[u].own_order = next++;
    for (uint32_t u = 0; u < g->n_units; u++)
        w->by_own_order[w->units[u].own_order] = u;
}

/* How many stages have the unit at hand. */
static uint32_t count_stages(const struct zinf_graph *g, uint32_t unit)
{
    uint32_t n = 0;
    for (uint32_t s = 0; s < g->n_stages; s++)
        for (uint32_t i = 0; i < g->stages[s].units.n; i++)
            n += g->stages[s].units.at[i] == unit;
    return n;
}

/* Tables that stages share are small beside the units that they stand by: their gradients need no
 * room for one of those. */
static void find_beside(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    for (uint32_t s = 0; s < g->n_stages; s++) {
        const struct zinf_ids *units = &g->stages[s].units;
        uint32_t n_beside = 0;
        for (uint32_t i = 0; i < units->n; i++) {
            struct walk_unit *u = &w->units[units->at[i]];
            u->beside |= i > 0 && count_stages(g, units->at[i]) > 1;
            n_beside += u->beside;
        }
        const uint32_t alone = units->n - n_beside + (g->stages[s].sweep.n > 0);
        w->most_beside = n_beside > w->most_beside ? n_beside : w->most_beside;
        w->most_alone = alone > w->most_alone ? alone : w->most_alone;
    }
}

/* Of the values that a stage takes or makes: those that leave, those of them that its backward does
 * not look at, and places of gradients. */
struct near {
    uint32_t leaving, passing, places;
};
static void add_near(const struct walk *w, const struct zinf_ids *ids, struct near *near)
{
    for (uint32_t i = 0; i < ids->n; i++) {
        const struct walk_value *value = &w->values[ids->at[i]];
        near->leaving += value->leaves;
        near->passing += value->leaves && w->graph->values[ids->at[i]].passing;
        near->places += value->place != WALK_NONE;
    }
}

static void count_operands(struct walk *w)
{
    const struct zinf_graph *g = w->graph;
    uint32_t back = 0; /* slots of one that is not the usual sum of both */
    for (uint32_t s = 0; s < g->n_stages; s++) {
        const struct zinf_stage *stage = &g->stages[s];
        uint32_t swept = s == w->whole ? stage->sweep.n : stage->sweep.n > 0;
        uint32_t units = stage->units.n + swept;
        const uint32_t values = stage->in.n + stage->out.n;
        struct near near = {0};
        /* gradients of both, sums of units', its cache, what is carried with its gradient, and what
         * it keeps */
        uint32_t operands = 3 * units + 2 * values + 4;
        add_near(w, &stage->in, &near);
        add_near(w, &stage->out, &near);
        const uint32_t at_back = near.leaving - near.passing + near.places;
        if (!near.passing && values > w->most_places)
            w->most_places = values;
        if (near.passing && at_back > back)
            back = at_back;
        units = stage->units.n + (stage->sweep.n > 0);
        w->most_operands = operands > w->most_operands ? operands : w->most_operands;
        w->most_units = units > w->most_units ? units : w->most_units;
        w->most_leaving = near.leaving > w->most_leaving ? near.leaving : w->most_leaving;
    }
    /* Where backward does not look at many values, gradients have the slots of these. */
    if (back > w->most_leaving + w->most_places)
        w->most_places = back - w->most_leaving;
}

int walk_measure(struct walk *w, const struct zinf_compute *c)
{
    int code = 0;
    for (uint32_t s = 0; !code && s < w->graph->n_stages; s++)
        code = measure_stage(w, c, s);
    if (code)
        return code;
    sum_kept(w);
    number_kinds(w);
    if ((code = measure_values(w, c)))
        return code;
    find_choices(w, c);
    find_layers(w);
    find_order(w);
    order_units(w);
    count_operands(w);
    find_beside(w);
    if (!c->device->host_addressable)
        code = find_added(w);
    return code ? code : give_slots(w);
}

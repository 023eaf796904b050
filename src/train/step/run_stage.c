/*
 * run_stage: runs an operation of a stage by the model's code: makes a frame of its operands. Only
 * the lane DEVICE runs such operations, one at a time, so the arrays are the trainer's.
 */
#include "train/trainer.h"

#include <stdlib.h>

/* [n] each, where n is the most operands of an operation. */
struct frame_arrays {
    void **memory; /* addresses of all operands */
    const void **weights, **in;
    void **d_out, **out, **d_in;
    void **nothing; /* NULLs, in the place of outputs when values are computed again */
    float **grads;
    /* For OP_ONTO, for each unit of the model: sums, and whether the operation has added to them.
     */
    float **sums;
    struct zinf_added **added, *of_unit;
};

int trainer_take_frame(struct zinf_trainer *t)
{
    size_t n = t->setup.walk.most_operands + 1;
    struct frame_arrays *a = t->frame = calloc(1, sizeof *a);
    if (a)
        a->memory = calloc(9 * n, sizeof *a->memory);
    if (a)
        a->of_unit = calloc(t->setup.graph->n_units + 1, sizeof *a->of_unit);
    if (!a || !a->memory || !a->of_unit)
        return zinf_fail(-ENOMEM, "no memory for the operands of a stage");
    a->weights = (const void **)a->memory;
    a->in = (const void **)(a->memory + n);
    a->d_out = a->memory + 2 * n;
    a->out = a->memory + 3 * n;
    a->d_in = a->memory + 4 * n;
    a->grads = (float **)(void *)(a->memory + 5 * n);
    a->nothing = a->memory + 6 * n;
    a->sums = (float **)(void *)(a->memory + 7 * n);
    a->added = (struct zinf_added **)(void *)(a->memory + 8 * n);
    return 0;
}

void trainer_release_frame(struct zinf_trainer *t)
{
    if (t->frame) {
        free(t->frame->memory);
        free(t->frame->of_unit);
    }
    free(t->frame);
    t->frame = NULL;
}

static bool is_backward(enum zinf_pass pass)
{
    return pass == ZINF_PASS_BACKWARD || pass == ZINF_PASS_WHOLE || pass == ZINF_PASS_CARRY_BACK;
}

/* Whether the last operand is what the stage keeps. */
static bool has_kept(const struct plan *p, const struct zinf_op *op)
{
    const enum zinf_pass pass = kind_pass(op->kind);
    return plan_kept_leaves(p, (uint32_t)op->stage) && pass != ZINF_PASS_WHOLE &&
           pass != ZINF_PASS_ROW;
}

/* Number of operands behind all but that one: what the stage carries from chunk to chunk, and its
 * gradient. */
static uint32_t n_carried(const struct setup *s, const struct zinf_op *op, bool back)
{
    return walk_n_carried(&s->walk.stages[op->stage], back);
}

/* Finds the gradients that the stage reads and makes; those that leave the device are the last
 * operands. */
static void find_gradients(const struct plan *p, const struct zinf_op *op,
                           const struct zinf_stage *stage, const struct frame_arrays *a, bool back)
{
    const bool leave = back && plan_gradients_leave(p);
    const uint32_t behind = n_carried(p->setup, op, back);
    const struct zinf_operand *at =
        op->at + op->n_at - has_kept(p, op) - behind - (stage->in.n + stage->out.n);
    for (uint32_t i = 0; i < stage->in.n; i++)
        a->d_in[i] = leave  ? zinf_address(&at[i])
                     : back ? gradient_at(p, stage->in.at[i], op->micro)
                            : NULL;
    for (uint32_t i = 0; i < stage->out.n; i++)
        a->d_out[i] = leave  ? zinf_address(&at[stage->in.n + i])
                      : back ? gradient_at(p, stage->out.at[i], op->micro)
                             : NULL;
}

/* Memory of what the stage keeps for its backward; NULL: nothing in this pass. */
static char *kept_at(const struct plan *p, const struct zinf_op *op)
{
    const uint32_t s = (uint32_t)op->stage;
    const int64_t micro = op->micro;
    const struct walk_stage *info = &p->setup->walk.stages[s];
    uint64_t n = (uint64_t)p->itinerary.live, copy = (uint64_t)micro % n;
    uint64_t offset = n * info->kept_before + copy * info->kept;
    if (!has_backward(p->setup))
        return device_at(p, p->at.d_working);
    if (plan_kept_leaves(p, s))
        return has_kept(p, op) ? zinf_address(&op->at[op->n_at - 1]) : NULL;
    if (info->ordinal == WALK_NONE)
        return device_at(p, p->at.d_kept_always + offset);
    return device_at(p, stage_is_kept(p, s) ? p->at.d_kept + offset : p->at.d_working);
}

/* The same for a call of the reference model. No backward reads it, but other visits of the sweep
 * do. */
static char *reference_kept_at(const struct plan *p, uint32_t s, int64_t micro)
{
    const struct walk_stage *info = &p->setup->walk.stages[s];
    uint64_t n = (uint64_t)p->itinerary.live, copy = (uint64_t)micro % n;
    if (!has_backward(p->setup))
        return device_at(p, p->at.d_reference_kept);
    if (info->ordinal != WALK_NONE)
        return device_at(p, p->at.d_working);
    return device_at(p, p->at.d_reference_kept + n * info->kept_before + copy * info->kept);
}

/* Of a chunk: a GPU gets the visit's rows in the queue of its computations. */
static int bring_chosen(const struct zinf_trainer *t, const int32_t *rows, struct zinf_frame *f)
{
    void *there = device_at(&t->plan, t->plan.at.d_lists);
    f->chosen = device_is_far(&t->setup) ? there : rows;
    return f->n_chosen && f->chosen == there
               ? t->setup.device->ops->copy_to_device(f->queue, there, rows,
                                                      (uint64_t)f->n_chosen * sizeof *rows)
               : 0;
}

/* Sets the rows that chose the visit. */
static int find_chosen(const struct zinf_trainer *t, const struct zinf_op *op, struct zinf_frame *f)
{
    const struct plan *p = &t->plan;
    const uint64_t offset = list_offset(p, (uint32_t)op->stage, op->micro);
    const int32_t *list = (const int32_t *)(const void *)host_at(p, p->at.h_lists + offset);
    if (!f->stage->choice.n)
        return 0;
    const int64_t first = f->n_visits + 1 + list[f->visit];
    f->n_chosen = list[f->visit + 1] - list[f->visit];
    if (t->setup.n_chunks > 1)
        return bring_chosen(t, list + first, f);
    f->chosen = (const int32_t *)(const void *)device_at(p, p->at.d_lists + offset) + first;
    return 0;
}

/* Sets the caches; what the stage caches is its last operand. */
static void find_caches(const struct walk_stage *info, const struct zinf_op *op,
                        struct zinf_frame *f)
{
    for (int i = 0; info->cache_bytes && i < ZINF_CACHES; i++)
        f->cache[i] = (char *)zinf_address(&op->at[op->n_at - 1]) + info->cache_at[i];
}

static void find_carried(const struct plan *p, const struct zinf_op *op, bool back,
                         struct zinf_frame *f)
{
    const struct walk_stage *info = &p->setup->walk.stages[op->stage];
    const uint32_t n = n_carried(p->setup, op, back), n_at = op->n_at - has_kept(p, op);
    if (n)
        f->carried = zinf_address(&op->at[n_at - n]);
    if (n > 1)
        f->d_carried = zinf_address(&op->at[n_at - 1]);
    if (back && info->handed)
        f->d_handed = (float *)(void *)device_at(p, p->at.d_handed);
    f->carried_elems = info->size[ZINF_PASS_FORWARD].carried_elems;
    f->source_elems = info->size[ZINF_PASS_FORWARD].source_elems;
    f->documents = info->size[ZINF_PASS_FORWARD].documents;
    f->source_documents = info->size[ZINF_PASS_FORWARD].source_documents;
    f->handed_bytes = info->size[ZINF_PASS_FORWARD].handed_bytes;
}

/* Takes the operands apart; returns the number of weights. */
static uint32_t unpack(const struct frame_arrays *a, const struct zinf_op *op,
                       const struct zinf_stage *stage, enum zinf_pass pass)
{
    uint32_t swept = pass == ZINF_PASS_WHOLE ? stage->sweep.n : stage->sweep.n > 0;
    uint32_t n = stage->units.n + swept, at = 0;
    const bool grads = is_backward(pass);
    for (uint32_t i = 0; i < n; i++)
        a->weights[i] = zinf_address(&op->at[at++]);
    for (uint32_t i = 0; i < stage->in.n; i++)
        a->in[i] = zinf_address(&op->at[at++]);
    const bool makes_nothing =
        pass == ZINF_PASS_CARRY || pass == ZINF_PASS_CARRY_BACK || pass == ZINF_PASS_RECOMPUTE;
    for (uint32_t i = 0; i < (pass == ZINF_PASS_ROW ? 1 : stage->out.n); i++)
        a->out[i] = makes_nothing ? NULL : zinf_address(&op->at[at++]);
    for (uint32_t i = 0; i < n; i++)
        a->grads[i] = grads ? zinf_address(&op->at[at++]) : NULL;
    for (uint32_t i = 0; op->flags & OP_ONTO && i < n; i++) {
        a->sums[i] = zinf_address(&op->at[at++]);
        a->added[i] = &a->of_unit[stage->units.at[i]]; /* there are no others then */
        *a->added[i] = (struct zinf_added){.sum = a->sums[i]};
    }
    return n;
}

/* Lists are short. */
static int by_first(const void *a, const void *b)
{
    const struct zinf_span *x = a, *y = b;
    return (x->first > y->first) - (x->first < y->first);
}

int trainer_add_rest(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_added *added = &t->frame->of_unit[op->unit];
    struct zinf_queue *queue = t->queues[ZINF_LANE_DEVICE];
    float *to = zinf_address(&op->at[0]), *from = zinf_address(&op->at[1]);
    struct zinf_span spans[ZINF_MOST_ADDED + 1];
    uint64_t first = 0;
    int code = 0;
    if (added->sum != to)
        return zinf_fail(-EFAULT, "unit %d: products were added to another sum", (int)op->unit);
    memcpy(spans, added->of, sizeof added->of);
    qsort(spans, added->n, sizeof *spans, by_first);
    spans[added->n] = (struct zinf_span){.first = op->bytes / sizeof(float)};
    for (uint32_t i = 0; !code && i <= added->n; i++) {
        const uint64_t n = spans[i].first - first;
        if (n)
            code = t->setup.device->ops->add(queue, to + first, from + first, n);
        first = spans[i].first + spans[i].n;
        t->sums_made.by_kernels += n;
        t->sums_made.by_products += spans[i].n;
    }
    return code;
}

/* Clears the padding of sub-groups behind a unit's elements, which may have data of the slot's
 * previous user. */
static int zero_tails(struct zinf_trainer *t, const struct zinf_frame *f, uint32_t n)
{
    const struct zinf_stage *stage = f->stage;
    int code = 0;
    for (uint32_t i = 0; !code && i < n; i++) {
        bool whole = f->pass == ZINF_PASS_WHOLE;
        uint32_t visit = i - stage->units.n + (whole ? 0 : f->visit);
        uint32_t unit = i < stage->units.n ? stage->units.at[i] : stage->sweep.at[visit];
        uint64_t end = f->graph->units[unit].elems;
        uint64_t padded = t->setup.layout.units[unit].padded_elems;
        if (f->grads[i] && padded > end)
            code = t->setup.device->ops->fill_zero(f->queue, f->grads[i] + end,
                                                   (padded - end) * sizeof(float));
    }
    return code;
}

static int recompute(const struct zinf_frame *backward, void *const *nothing)
{
    struct zinf_frame f = *backward;
    f.pass = ZINF_PASS_RECOMPUTE;
    f.out = nothing;
    return zinf_stage_run(&f);
}

/* Whether the backward of a part, or of the sequence if there are no parts, begins with the chunk.
 */
static bool begins_part(const struct setup *s, int64_t micro)
{
    const int64_t each = s->own_chunks / setup_own_parts(s);
    return micro % each == each - 1;
}

/* The same of the chunks that are visited. Of parts, the call that begins one is made in any case.
 */
static bool begins_gradients(const struct zinf_trainer *t, int64_t micro)
{
    const struct setup *s = &t->setup;
    return in_parts(s) ? begins_part(s, micro)
                       : setup_chunk(s, micro) == trainer_visited(t, setup_sample(s, micro)) - 1;
}

/* The last of the chunks that are visited that looks at a group. */
static int64_t last_of_group(const struct zinf_trainer *t, const struct zinf_op *op, int64_t group)
{
    const int64_t last = carried_last(&t->plan, (uint32_t)op->stage, (uint32_t)group);
    const int64_t visited = trainer_visited(t, setup_sample(&t->setup, op->micro));
    return last < visited ? last : visited - 1;
}

/* For a stage whose rows look ahead: all chunks are available. */
static void set_all_chunks(const struct zinf_trainer *t, int64_t micro, int64_t rows,
                           struct zinf_chunk *chunk)
{
    const struct setup *s = &t->setup;
    const int64_t own = setup_chunk(s, micro);
    chunk->first = own * rows;
    chunk->near = 0;
    chunk->near_end = s->n_chunks * rows;
    chunk->begins = chunk->ends = true;
    chunk->placed = in_parts(s);
    chunk->fresh = begins_gradients(t, micro);
}

/* Sets the operation's rows within their sequence, and the rows that it looks at: those of a group
 * (arg), or its own if the stage carries nothing. Chunks of a source have the source's rows. */
static void set_chunk(const struct zinf_trainer *t, const struct zinf_op *op,
                      struct zinf_chunk *chunk)
{
    const struct plan *p = &t->plan;
    const struct setup *s = p->setup;
    const uint32_t stage = (uint32_t)op->stage;
    const int64_t own = setup_chunk(s, op->micro), span = carried_span(p);
    const bool carries = s->walk.stages[stage].carried[0];
    const bool carrying = kind_pass(op->kind) == ZINF_PASS_CARRY;
    const bool whole = !carries || kind_pass(op->kind) == ZINF_PASS_CARRY_BACK;
    chunk->placed = in_parts(s) && carried_groups(p) == 1;
    const int64_t group = carries ? op->arg : own / span;
    const int64_t end = (group + 1) * span < own + 1 ? (group + 1) * span : own + 1;
    chunk->first = own * s->chunk_seq;
    chunk->near = group * span * s->chunk_seq;
    chunk->near_end = end * s->chunk_seq;
    chunk->begins =
        whole || group == (carrying ? carried_needs(p, stage, own) : carried_first(p, stage, own));
    chunk->ends = whole || group == own / span;
    chunk->fresh = carries && (chunk->placed  ? begins_part(s, op->micro)
                               : !in_parts(s) ? last_of_group(t, op, group) == own
                                              : false);
}

/* With chunks, what backward reads is computed again by operations of its own. */
static enum zinf_pass pass_of(const struct zinf_op *op)
{
    const enum zinf_pass pass = kind_pass(op->kind);
    return pass == ZINF_PASS_FORWARD && op->flags & OP_RECOMPUTES ? ZINF_PASS_RECOMPUTE : pass;
}

/* Sets the samples and rows of the operation. */
static void set_place(const struct zinf_trainer *t, const struct zinf_op *op,
                      struct zinf_compute *compute)
{
    const struct setup *s = &t->setup;
    const uint32_t stage = (uint32_t)op->stage;
    compute->first_sample = setup_micro(s, setup_sample(s, op->micro)) * (uint64_t)s->batch;
    if (s->n_chunks == 1)
        return;
    *compute = walk_compute(s->walk.graph, stage, compute);
    compute->chunk.visited = trainer_visited(t, setup_sample(s, op->micro));
    if (walk_is_of_source(s->walk.graph, stage) || compute->chunk.keys_first)
        set_all_chunks(t, op->micro, walk_rows(s->walk.graph, stage, compute), &compute->chunk);
    else
        set_chunk(t, op, &compute->chunk);
}

/* Products of shorter sequences were not on the list, so their bits were not compared. */
static bool adds_to_sums(const struct zinf_trainer *t, const struct zinf_op *op)
{
    return op->flags & OP_ONTO && t->setup.products.adds && !trainer_is_shorter(t);
}

/* What a stage's code is given, but for caches and what is carried. */
static struct zinf_frame frame_of(struct zinf_trainer *t, const struct zinf_op *op,
                                  const struct zinf_compute *compute, enum zinf_pass pass)
{
    const struct plan *p = &t->plan;
    const struct walk *w = &t->setup.walk;
    const struct zinf_stage *stage = &w->graph->stages[op->stage];
    const struct frame_arrays *a = t->frame;
    return (struct zinf_frame){
        .compute = compute,
        .queue = t->queues[ZINF_LANE_DEVICE],
        .graph = w->graph,
        .stage = stage,
        .pass = pass,
        .visit = (uint32_t)op->visit,
        .n_visits = zinf_stage_visits(stage),
        .in = a->in,
        .out = a->out,
        .d_out = a->d_out,
        .d_in = a->d_in,
        .d_in_adds = w->stages[op->stage].d_in_adds,
        .weights = a->weights,
        .grads = a->grads,
        .grads_add = op->flags & OP_ADDS,
        .sums = adds_to_sums(t, op) ? a->sums : NULL,
        .added = a->added,
        .numbers = &t->numbers,
        .loss_scale = t->gradient_scale,
        .mean_scale = t->mean_scale,
        .row = t->logits_row,
        .n_rows = t->n_logits,
        .kept = {.base = op->flags & OP_REFERENCE
                             ? reference_kept_at(p, (uint32_t)op->stage, op->micro)
                             : kept_at(p, op)},
        .scratch = {.base = device_at(p, p->at.d_scratch)},
    };
}

/* ---- chunks that nobody has rows of ---- */

bool trainer_begins_sums(const struct zinf_trainer *t, const struct zinf_op *op)
{
    if (op->kind < OP_STAGES)
        return false;
    const enum zinf_pass pass = kind_pass(op->kind);
    const uint32_t stage = (uint32_t)op->stage;
    const uint32_t first = t->setup.walk.stages[stage].carried[0]
                               ? carried_first(&t->plan, stage, setup_chunk(&t->setup, op->micro))
                               : 0;
    return pass == ZINF_PASS_WHOLE ||
           (pass == ZINF_PASS_BACKWARD && begins_part(&t->setup, op->micro) &&
            op->arg == (int32_t)first);
}

/* Later calls add to the gradients of units, and those of other chunks of a part to gradients of
 * keys and values that stay on the device: all begin with zeros. Of units beside a sweep that rows
 * choose, the first visit begins them. */
static int begin_sums(struct zinf_trainer *t, const struct zinf_op *op,
                      const struct zinf_stage *stage, const struct frame_arrays *a)
{
    const struct plan *p = &t->plan;
    const struct zinf_device_ops *ops = t->setup.device->ops;
    struct zinf_queue *queue = t->queues[ZINF_LANE_DEVICE];
    const enum zinf_pass pass = kind_pass(op->kind);
    const uint64_t carried = t->setup.walk.stages[op->stage].carried[1];
    const uint32_t n = unpack(a, op, stage, pass);
    int code = 0;
    for (uint32_t i = stage->choice.n && op->visit ? stage->units.n : 0; !code && i < n; i++) {
        const uint32_t visit = i - stage->units.n + (pass == ZINF_PASS_WHOLE ? 0 : op->visit);
        const uint32_t unit = i < stage->units.n ? stage->units.at[i] : stage->sweep.at[visit];
        const uint64_t elems = t->setup.layout.units[unit].padded_elems;
        if (a->grads[i])
            code = ops->fill_zero(queue, a->grads[i], elems * sizeof(float));
    }
    if (!code && in_parts(&t->setup) && carried && carried_groups(p) == 1)
        code = ops->fill_zero(queue, zinf_address(&op->at[op->n_at - 1 - has_kept(p, op)]),
                              (uint64_t)t->setup.n_chunks * carried);
    return code;
}

int trainer_run_stage(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct plan *p = &t->plan;
    const struct walk *w = &t->setup.walk;
    const struct zinf_stage *stage = &w->graph->stages[op->stage];
    const struct frame_arrays *a = t->frame;
    enum zinf_pass pass = pass_of(op);
    const bool back = is_backward(pass);
    struct zinf_compute compute = t->compute;
    if (trainer_is_beyond(t, op))
        return begin_sums(t, op, stage, a);
    if (op->flags & OP_REFERENCE) {
        compute.reference = true;
        compute.train = false;
    }
    set_place(t, op, &compute);
    uint32_t n = unpack(a, op, stage, pass);
    find_gradients(p, op, stage, a, back);
    struct zinf_frame f = frame_of(t, op, &compute, pass);
    find_caches(&w->stages[op->stage], op, &f);
    find_carried(p, op, back, &f);
    int code = find_chosen(t, op, &f);
    if (!code)
        code = trainer_chunk_reads(t, op);
    if (!code && back && op->flags & OP_RECOMPUTES)
        code = recompute(&f, a->nothing);
    if (!code)
        code = zinf_stage_run(&f);
    if (!code && compute.chunk.ends)
        code = trainer_chunk_tells(t, op);
    return code || !back || f.grads_add ? code : zero_tails(t, &f, n);
}

/*
 * frame: where a call of a stage finds its weights and takes its memory. A frame without a queue
 * measures: its pointers point to one place that nobody reads, every value and gradient seems to
 * exist, memory is counted, and frame_ops.c adds up costs instead of enqueueing operations.
 */
#include "model/frame.h"

#include "base/memory.h"

#include <stdlib.h>

#define TAKE_ALIGN 256

/* Pointers of a measured frame point here. Nothing is read or written. */
static float nowhere;

uint64_t zinf_rows_count(const struct zinf_compute *c, enum zinf_rows_of rows_of)
{
    switch (rows_of) {
    case ZINF_ROWS_OF_SAMPLE:
        return (uint64_t)c->batch;
    case ZINF_ROWS_OF_TARGET:
        return (uint64_t)(c->batch * c->seq);
    case ZINF_ROWS_OF_SOURCE:
        return (uint64_t)(c->batch * c->source_seq);
    }
    return 0;
}

static uint64_t bytes_of(const struct zinf_compute *c, const struct zinf_value *value,
                         enum zinf_element element)
{
    const uint64_t widths[] = {
        [ZINF_ELEMENT_NONE] = 0,
        [ZINF_ELEMENT_ID] = sizeof(int32_t),
        [ZINF_ELEMENT_PARAM] = zinf_dtype_bytes(c->dtype),
        [ZINF_ELEMENT_F32] = sizeof(float),
    };
    return zinf_rows_count(c, value->rows_of) * (uint64_t)value->cols * widths[element];
}

uint64_t zinf_value_bytes(const struct zinf_compute *c, const struct zinf_value *value)
{
    return bytes_of(c, value, value->element);
}

uint64_t zinf_value_gradient_bytes(const struct zinf_compute *c, const struct zinf_value *value)
{
    return bytes_of(c, value, value->gradient);
}

/* ---- for the code of stages ---- */

static void *take(struct zinf_cursor *cursor, uint64_t bytes)
{
    void *taken = cursor->base ? cursor->base + cursor->bytes : NULL;
    cursor->bytes += zinf_align_up(bytes, TAKE_ALIGN);
    if (cursor->bytes > cursor->peak)
        cursor->peak = cursor->bytes;
    return taken;
}

void *frame_keep(struct zinf_frame *f, uint64_t bytes)
{
    return take(&f->kept, bytes);
}

void *frame_scratch(struct zinf_frame *f, uint64_t bytes)
{
    return take(&f->scratch, bytes);
}

uint64_t frame_mark(const struct zinf_frame *f)
{
    return f->scratch.bytes;
}

void frame_release(struct zinf_frame *f, uint64_t mark)
{
    f->scratch.bytes = mark;
}

const struct zinf_decoding *frame_decoding(const struct zinf_frame *f)
{
    const struct zinf_value *out = &f->graph->values[f->stage->out.at[0]];
    return out->rows_of == ZINF_ROWS_OF_SOURCE ? NULL : f->compute->decoding;
}

void *frame_cache(struct zinf_frame *f, enum zinf_caches which, const struct zinf_cache *shape)
{
    f->cached[which] = *shape;
    return f->cache[which];
}

/* Bytes of a chunk's own rows, and of rows of another sequence behind them. */
static uint64_t own_bytes(const struct zinf_carried *c, uint64_t width)
{
    return zinf_align_up(c->rows * c->row_elems * width, TAKE_ALIGN);
}
static uint64_t source_bytes(const struct zinf_carried *c, uint64_t width)
{
    return zinf_align_up(c->source_rows * c->source_elems * width, TAKE_ALIGN);
}

/* Bytes of the rows' segments, if their sequence has documents. */
static uint64_t segments_bytes(uint64_t rows, bool documents)
{
    return documents ? zinf_align_up(rows * sizeof(int32_t), TAKE_ALIGN) : 0;
}

uint64_t zinf_carried_rows(const struct zinf_carried *c, uint64_t width)
{
    return own_bytes(c, width) + source_bytes(c, width) + segments_bytes(c->rows, c->documents) +
           segments_bytes(c->source_rows, c->source_documents);
}

uint64_t zinf_carried_stride(const struct zinf_carried *c, uint64_t width)
{
    return zinf_align_up(zinf_carried_rows(c, width) + c->handed, ZINF_MEMORY_ALIGN);
}

/* Rows of a chunk of the stage's sequence, even if the stage makes something of samples. */
static int64_t chunk_rows(const struct zinf_frame *f)
{
    const struct zinf_value *out = &f->graph->values[f->stage->out.at[0]];
    return out->rows_of == ZINF_ROWS_OF_SOURCE ? f->compute->source_seq : f->compute->seq;
}

/* gradient: segments have none, and that of what is handed over lies elsewhere. */
static struct zinf_carried carried_of(const struct zinf_frame *f, bool gradient)
{
    return (struct zinf_carried){.rows = (uint64_t)chunk_rows(f),
                                 .row_elems = f->carried_elems,
                                 .source_rows = (uint64_t)f->compute->source_seq,
                                 .source_elems = f->source_elems,
                                 .documents = !gradient && f->documents,
                                 .source_documents = !gradient && f->source_documents,
                                 .handed = gradient ? 0 : f->handed_bytes};
}

static uint64_t carried_width(const struct zinf_frame *f, bool gradient)
{
    return gradient ? sizeof(float) : frame_width(f);
}

/* The offset of a row's chunk behind the first chunk at hand, in bytes. */
static uint64_t carried_at(const struct zinf_frame *f, int64_t row, bool gradient)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const struct zinf_carried carried = carried_of(f, gradient);
    const int64_t step = chunk_rows(f);
    const int64_t place =
        c->placed ? zinf_chunk_place(row / step, c->n, c->parts) : (row - c->near) / step;
    const uint64_t width = carried_width(f, gradient);
    return (uint64_t)place * zinf_carried_stride(&carried, width) +
           (uint64_t)(row % step) * f->carried_elems * width;
}

void *frame_carried(struct zinf_frame *f, uint64_t row_elems, int64_t row)
{
    f->carried_elems = row_elems;
    return f->carried ? (char *)f->carried + carried_at(f, row, false) : NULL;
}

float *frame_d_carried(struct zinf_frame *f, uint64_t row_elems, int64_t row)
{
    f->carried_elems = row_elems;
    return f->d_carried ? f->d_carried + carried_at(f, row, true) / sizeof(float) : NULL;
}

static uint64_t source_at(const struct zinf_frame *f, int64_t chunk, bool gradient)
{
    const struct zinf_carried carried = carried_of(f, gradient);
    return carried_at(f, chunk * chunk_rows(f), gradient) +
           own_bytes(&carried, carried_width(f, gradient));
}

void *frame_carried_source(struct zinf_frame *f, uint64_t row_elems, int64_t chunk)
{
    f->source_elems = row_elems;
    return f->carried ? (char *)f->carried + source_at(f, chunk, false) : NULL;
}

float *frame_d_carried_source(struct zinf_frame *f, uint64_t row_elems, int64_t chunk)
{
    f->source_elems = row_elems;
    return f->d_carried ? f->d_carried + source_at(f, chunk, true) / sizeof(float) : NULL;
}

int32_t *frame_carried_documents(struct zinf_frame *f, bool source, int64_t chunk)
{
    *(source ? &f->source_documents : &f->documents) = true;
    const struct zinf_carried carried = carried_of(f, false);
    const uint64_t width = frame_width(f);
    uint64_t at = carried_at(f, chunk * chunk_rows(f), false) + own_bytes(&carried, width) +
                  source_bytes(&carried, width);
    if (source)
        at += segments_bytes(carried.rows, carried.documents);
    return f->carried ? (int32_t *)(void *)((char *)f->carried + at) : NULL;
}

int64_t frame_chunk(const struct zinf_frame *f)
{
    return f->compute->chunk.first / chunk_rows(f);
}

int64_t frame_visited(const struct zinf_frame *f)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const int64_t rows = c->visited * chunk_rows(f);
    return rows < c->whole ? rows : c->whole;
}

void frame_reach(struct zinf_frame *f, int64_t rows)
{
    const int64_t whole = f->compute->chunk.whole, reach = rows && rows < whole ? rows : whole;
    if (reach > f->carried_reach)
        f->carried_reach = reach;
}

void frame_follow(struct zinf_frame *f)
{
    frame_reach(f, 2);
    f->follows = true;
}

void *frame_handed(struct zinf_frame *f, uint64_t bytes, int64_t row)
{
    f->handed_bytes = bytes;
    const struct zinf_carried carried = carried_of(f, false);
    const uint64_t rows = zinf_carried_rows(&carried, frame_width(f));
    return f->carried ? (char *)f->carried + carried_at(f, row, false) + rows : NULL;
}

float *frame_d_handed(struct zinf_frame *f, uint64_t bytes, int64_t row)
{
    f->d_handed_bytes = zinf_align_up(bytes, TAKE_ALIGN);
    const uint64_t behind = (uint64_t)(row / f->compute->seq) % 2 * f->d_handed_bytes;
    return f->d_handed ? f->d_handed + behind / sizeof(float) : NULL;
}

uint64_t frame_d_carried_bytes(const struct zinf_frame *f, uint64_t row_elems)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const int64_t n = c->placed ? c->n : (c->near_end - c->near) / chunk_rows(f);
    struct zinf_carried carried = carried_of(f, true);
    carried.row_elems = row_elems;
    return (uint64_t)n * zinf_carried_stride(&carried, sizeof(float));
}

void frame_part_before(struct zinf_frame *f)
{
    const struct zinf_chunk *chunk = &f->compute->chunk;
    f->queue = chunk->whole && !chunk->begins ? NULL : f->given;
}

void frame_part_begin(struct zinf_frame *f)
{
    f->queue = f->given;
}

void frame_part_end(struct zinf_frame *f)
{
    f->queue = f->compute->chunk.ends ? f->given : NULL;
}

struct frame_apart frame_apart_begin(struct zinf_frame *f)
{
    const struct frame_apart apart = {frame_mark(f), f->scratch.peak};
    f->scratch.peak = apart.mark;
    return apart;
}

void frame_apart_end(struct zinf_frame *f, struct frame_apart apart)
{
    const uint64_t peak = f->scratch.peak;
    frame_release(f, f->compute->chunk.whole ? peak : apart.mark);
    f->scratch.peak = peak > apart.peak ? peak : apart.peak;
}

int frame_refuse_chunks(const struct zinf_frame *f, const char *what)
{
    const bool parts = f->compute->chunk.parts > 1;
    return zinf_fail(-ENOTSUP,
                     "%s: stage %s has %s, which is not possible in %s of a sequence yet: set %s",
                     parts ? "zinf.context_parts" : "zinf.sequence_chunk", f->stage->name, what,
                     parts ? "parts" : "chunks",
                     parts ? "zinf.mesh.context and zinf.context_parts to 1"
                           : "the key to 0, and for less memory zinf.activation_device to cpu or "
                             "nvme");
}

int64_t frame_whole_length(const struct zinf_frame *f)
{
    const int64_t whole = f->compute->chunk.whole;
    return whole ? whole : frame_length(f);
}

int64_t frame_own_rows(const struct zinf_frame *f)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const int64_t left = c->whole - c->first, rows = frame_length(f);
    return !c->whole || left > rows ? rows : left < 0 ? 0 : left;
}

const struct zinf_unit *frame_unit(const struct zinf_frame *f, uint32_t unit)
{
    const struct zinf_stage *stage = f->stage;
    if (unit < stage->units.n)
        return &f->graph->units[stage->units.at[unit]];
    unit -= stage->units.n;
    return &f->graph->units[stage->sweep.at[f->pass == ZINF_PASS_WHOLE ? unit : f->visit]];
}

/* The unit that has a tensor, as a number among those at hand, and the tensor's number there. */
struct place {
    uint32_t unit, tensor;
};

static struct place place_of(const struct zinf_frame *f, uint32_t unit, uint32_t tensor)
{
    const struct zinf_tensor *t = &frame_unit(f, unit)->tensors[tensor];
    struct place at = {t->moved ? 0 : unit, t->moved ? t->home_tensor : tensor};
    while (t->moved && f->stage->units.at[at.unit] != t->home_unit)
        at.unit++;
    return at;
}

const void *frame_weight(const struct zinf_frame *f, uint32_t unit, int tensor)
{
    if (tensor < 0)
        return NULL;
    if (!f->queue)
        return &nowhere;
    struct place at = place_of(f, unit, (uint32_t)tensor);
    const struct zinf_unit *u = frame_unit(f, at.unit);
    uint64_t offset = u->image_bytes + u->tensors[at.tensor].offset * frame_width(f);
    return (const char *)f->weights[at.unit] + offset;
}

float *frame_grad(const struct zinf_frame *f, uint32_t unit, int tensor)
{
    if (tensor < 0 || !f->grads)
        return NULL;
    struct place at = place_of(f, unit, (uint32_t)tensor);
    if (!f->grads[at.unit])
        return NULL;
    uint64_t offset = f->queue ? frame_unit(f, at.unit)->tensors[at.tensor].offset : 0;
    return f->grads[at.unit] + offset;
}

uint64_t frame_gap_end(const struct zinf_unit *u, uint32_t tensor)
{
    uint64_t end = u->tensors[tensor].offset + u->tensors[tensor].elems, next = u->elems;
    for (uint32_t i = 0; i < u->n_tensors; i++)
        if (u->tensors[i].elems && u->tensors[i].offset >= end && u->tensors[i].offset < next)
            next = u->tensors[i].offset;
    return next;
}

float *frame_sum(const struct zinf_frame *f, uint32_t unit, int tensor)
{
    if (tensor < 0 || !f->sums)
        return NULL;
    struct place at = place_of(f, unit, (uint32_t)tensor);
    struct zinf_added *added = f->added[at.unit];
    const struct zinf_unit *u = frame_unit(f, at.unit);
    const uint64_t first = u->tensors[at.tensor].offset;
    if (!f->sums[at.unit] || added->n == ZINF_MOST_ADDED)
        return NULL;
    added->of[added->n++] = (struct zinf_span){first, frame_gap_end(u, at.tensor) - first};
    return f->sums[at.unit] + first;
}

int frame_each_moved(struct zinf_frame *f, uint32_t unit,
                     int (*act)(struct zinf_frame *f, uint32_t unit, uint32_t tensor))
{
    const struct zinf_unit *u = frame_unit(f, unit);
    int code = 0;
    for (uint32_t i = 0; !code && i < u->n_tensors; i++)
        if (u->tensors[i].moved) {
            struct place at = place_of(f, unit, i);
            code = act(f, at.unit, at.tensor);
        }
    return code;
}

int64_t frame_rows(const struct zinf_frame *f)
{
    const struct zinf_value *out = &f->graph->values[f->stage->out.at[0]];
    return (int64_t)zinf_rows_count(f->compute, out->rows_of);
}

int64_t frame_length(const struct zinf_frame *f)
{
    return frame_rows(f) / f->compute->batch;
}

uint64_t frame_width(const struct zinf_frame *f)
{
    return zinf_dtype_bytes(f->compute->dtype);
}

uint64_t frame_rows_bytes(const struct zinf_frame *f, int64_t cols)
{
    return (uint64_t)(frame_rows(f) * cols) * frame_width(f);
}

struct zinf_dropout frame_dropout_at(const struct zinf_frame *f, float p, uint32_t site,
                                     uint64_t elements_per_sample)
{
    const struct zinf_compute *c = f->compute;
    uint64_t first = c->first_sample * elements_per_sample;
    if (c->chunk.whole) {
        const uint64_t a_row = elements_per_sample / (uint64_t)frame_length(f);
        first = (c->first_sample * (uint64_t)c->chunk.whole + (uint64_t)c->chunk.first) * a_row;
    }
    return (struct zinf_dropout){
        .p = c->train ? p : 0,
        .seed = c->seed,
        .step = c->step,
        .site = site,
        .element_first = first,
    };
}

/* ---- running ---- */

int zinf_stage_run(struct zinf_frame *f)
{
    const struct zinf_stage_ops *ops = f->stage->ops;
    int (*const calls[])(struct zinf_frame *) = {
        [ZINF_PASS_FORWARD] = ops->forward,
        [ZINF_PASS_BACKWARD] = ops->backward,
        [ZINF_PASS_WHOLE] = ops->whole,
        [ZINF_PASS_ROW] = ops->row,
        [ZINF_PASS_CARRY] = ops->carry,
        [ZINF_PASS_CARRY_BACK] = ops->carry_backward,
        [ZINF_PASS_RECOMPUTE] = ops->recomputes ? ops->forward : NULL,
    };
    if ((unsigned)f->pass >= sizeof calls / sizeof *calls || !calls[f->pass])
        return zinf_fail(-EINVAL, "stage %s has no pass %d", f->stage->name, (int)f->pass);
    f->given = f->queue;
    frame_part_before(f);
    f->kept.bytes = f->kept.peak = 0;
    f->scratch.bytes = f->scratch.peak = 0;
    int code = calls[f->pass](f);
    f->queue = f->given;
    return code;
}

/* ---- measuring ---- */

/* Pointers of a measured frame: to every value, every gradient that may exist, and every weight. */
struct measured {
    const void **given; /* inputs, then weights */
    void **made;        /* outputs, then gradients of outputs and of inputs */
    float **grads;
    bool *adds;
};

static int make_measured(struct measured *p, const struct zinf_stage *stage)
{
    size_t n_in = stage->in.n, n_out = stage->out.n, n_units = stage->units.n + stage->sweep.n;
    p->given = calloc(n_in + n_units, sizeof *p->given);
    p->made = calloc(2 * n_out + n_in, sizeof *p->made);
    p->grads = calloc(n_units + 1, sizeof *p->grads);
    p->adds = calloc(n_in, sizeof *p->adds);
    if (!p->given || !p->made || !p->grads || !p->adds)
        return zinf_fail(-ENOMEM, "no memory to measure stage %s", stage->name);
    for (size_t i = 0; i < n_in + n_units; i++)
        p->given[i] = &nowhere;
    for (size_t i = 0; i < 2 * n_out + n_in; i++)
        p->made[i] = &nowhere;
    return 0;
}

static void free_measured(struct measured *p)
{
    free(p->given);
    free(p->made);
    free(p->grads);
    free(p->adds);
}

static void show_measured(struct zinf_frame *f, const struct measured *p)
{
    const struct zinf_stage *stage = f->stage;
    uint32_t swept = f->pass == ZINF_PASS_WHOLE ? stage->sweep.n : stage->sweep.n > 0;
    void **d_in = p->made + 2 * (size_t)stage->out.n;
    for (uint32_t i = 0; i < stage->in.n; i++)
        if (f->graph->values[stage->in.at[i]].gradient == ZINF_ELEMENT_NONE)
            d_in[i] = NULL;
    for (uint32_t i = 0; i < stage->units.n + swept; i++)
        p->grads[i] = frame_unit(f, i)->trained ? &nowhere : NULL;
    f->in = p->given;
    f->weights = p->given + stage->in.n;
    f->out = p->made;
    f->d_out = p->made + stage->out.n;
    f->d_in = d_in;
    f->d_in_adds = p->adds;
    f->grads = p->grads;
    f->n_chosen = frame_rows(f);
}

static void widen(uint64_t *most, uint64_t bytes)
{
    if (bytes > *most)
        *most = bytes;
}

static int measure_pass(struct zinf_stage_size *size, const struct zinf_frame *measured,
                        enum zinf_pass pass)
{
    struct zinf_frame f = *measured;
    double share = f.stage->choice.n ? (double)f.stage->choice.n / (double)f.n_visits : 1;
    f.pass = pass;
    f.rows_share = f.stage->choice.n ? share : 0;
    int code = zinf_stage_run(&f);
    widen(&size->kept, f.kept.peak);
    widen(&size->scratch, f.scratch.peak);
    widen(&size->workspace, f.workspace);
    widen(&size->outside, f.outside);
    widen(&size->shared, f.shared);
    memcpy(size->cache, f.cached, sizeof f.cached);
    widen(&size->carried_elems, f.carried_elems);
    widen(&size->source_elems, f.source_elems);
    widen(&size->handed_bytes, f.handed_bytes);
    widen(&size->d_handed_bytes, f.d_handed_bytes);
    size->documents |= f.documents;
    size->source_documents |= f.source_documents;
    size->follows |= f.follows;
    size->carried_reach = f.carried_reach < f.compute->chunk.whole ? f.carried_reach : 0;
    if (pass != ZINF_PASS_RECOMPUTE || measured->pass == ZINF_PASS_RECOMPUTE) {
        size->flops += f.flops * share;
        size->bytes += f.bytes * share;
        size->work += f.work;
        size->crossed += f.crossed * share;
        size->sent += f.sent * share;
    } else {
        size->crossed_again += f.crossed * share;
        size->sent_again += f.sent * share;
    }
    return code;
}

/* Measures a visit and adds it to size. */
static int measure_frame(struct zinf_stage_size *size, struct zinf_frame *f)
{
    struct measured p = {0};
    int code = make_measured(&p, f->stage);
    if (code)
        goto out;
    show_measured(f, &p);
    if (f->pass == ZINF_PASS_BACKWARD && f->stage->ops->recomputes)
        code = measure_pass(size, f, ZINF_PASS_RECOMPUTE);
    if (!code)
        code = measure_pass(size, f, f->pass);
out:
    free_measured(&p);
    return code;
}

static int measure_visit(struct zinf_stage_size *size, const struct zinf_compute *compute,
                         const struct zinf_graph *graph, uint32_t number, enum zinf_pass pass,
                         uint32_t visit)
{
    struct zinf_frame f = {
        .compute = compute,
        .graph = graph,
        .stage = &graph->stages[number],
        .pass = pass,
        .visit = visit,
        .n_visits = zinf_stage_visits(&graph->stages[number]),
        .n_rows = compute->decoding ? compute->decoding->n_sequences : 1,
    };
    return measure_frame(size, &f);
}

int zinf_stage_measure(struct zinf_stage_size *out, const struct zinf_compute *compute,
                       const struct zinf_graph *graph, uint32_t stage, enum zinf_pass pass)
{
    uint32_t n_visits = pass == ZINF_PASS_WHOLE ? 1 : zinf_stage_visits(&graph->stages[stage]);
    int code = 0;
    *out = (struct zinf_stage_size){0};
    for (uint32_t visit = 0; !code && visit < n_visits; visit++)
        code = measure_visit(out, compute, graph, stage, pass, visit);
    return code;
}

/* ---- which tensors are linear layers ---- */

static uint64_t no_matmul_workspace(struct zinf_device *device, const struct zinf_matmul *args)
{
    (void)device;
    (void)args;
    return 0;
}

static uint64_t no_attention_workspace(struct zinf_device *device,
                                       const struct zinf_attention *args)
{
    (void)device;
    (void)args;
    return 0;
}

static uint64_t no_norm_workspace(struct zinf_device *device, const struct zinf_norm *args)
{
    (void)device;
    (void)args;
    return 0;
}

static uint64_t no_scan_workspace(struct zinf_device *device, const struct zinf_scan *args)
{
    (void)device;
    (void)args;
    return 0;
}

static uint64_t no_column_sum_workspace(struct zinf_device *device, int64_t rows, int64_t cols)
{
    (void)device;
    (void)rows;
    (void)cols;
    return 0;
}

int zinf_stage_linears(const struct zinf_graph *graph, uint32_t stage, bool float8,
                       void (*see)(void *seer, uint32_t unit, int tensor), void *seer)
{
    /* the questions that measuring asks of a device */
    static const struct zinf_device_ops ops = {
        .matmul_workspace = no_matmul_workspace,
        .attention_workspace = no_attention_workspace,
        .norm_workspace = no_norm_workspace,
        .scan_workspace = no_scan_workspace,
        .column_sum_workspace = no_column_sum_workspace,
    };
    static const struct zinf_device device = {
        .ops = &ops, .kind = ZINF_DEVICE_CUDA, .logit_rows = 1};
    const struct zinf_compute compute = {.device = &device,
                                         .dtype = float8 ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32,
                                         .float8 = float8,
                                         .batch = 1,
                                         .seq = 1,
                                         .source_seq = 1};
    struct zinf_stage_size size = {0};
    struct zinf_frame f = {
        .compute = &compute,
        .graph = graph,
        .stage = &graph->stages[stage],
        .pass = ZINF_PASS_FORWARD,
        .n_visits = zinf_stage_visits(&graph->stages[stage]),
        .see_linear = float8 ? NULL : see,
        .see_float8 = float8 ? see : NULL,
        .seer = seer,
    };
    int code = 0;
    for (; !code && f.visit < f.n_visits; f.visit++)
        code = measure_frame(&size, &f);
    return code;
}

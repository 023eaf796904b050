/*
 * chunk_rows: what an operation of a chunk reads of the batch, and the losses that it makes. The
 * device has room for one chunk's. The lane DEVICE makes the inputs that a stage reads just before
 * the stage runs, from the batch's own arrays or the data, and adds up the losses that it has left:
 * so neither the device nor the host has memory for all rows of a long sequence, and a program has
 * no operations for a few bytes of each row.
 *
 * A device with memory of its own gets the inputs, and gives the losses, by copies in the queue of
 * its computations, through a few host buffers in turn. Its events say when a buffer is free again.
 */
#include "train/trainer.h"

#include <stdlib.h>

struct chunk_rows {
    struct zinf_batch batch; /* its arrays, or where its rows come from, are borrowed */
    const float *class_weights;
    uint64_t samples;
    int64_t *class_rows;        /* [samples of a step] the row that has the sample's class */
    struct piece_place *pieces; /* [inputs] of the last row in front of each chunk */
    int64_t *holds;             /* [n_values] the chunk whose input is on the device; -1: none */
    struct chunk_sum *sums;     /* [n_values] */
    struct zinf_event *read[CHUNK_STAGINGS], *told[CHUNK_STAGINGS];
    /* the value and the micro-batch whose losses are in the buffer */
    uint32_t value[CHUNK_STAGINGS];
    int64_t micro[CHUNK_STAGINGS];
    uint64_t n_read, n_told; /* uses of buffers in this program */
    uint64_t n_added;        /* of the n_told, those whose losses have been added up */
};

static const struct zinf_device_ops *calls(const struct zinf_trainer *t)
{
    return t->setup.device->ops;
}

static bool is_of_class(enum zinf_input input)
{
    return input == ZINF_INPUT_LABELS || input == ZINF_INPUT_LABEL_WEIGHTS ||
           input == ZINF_INPUT_LAST_ROWS;
}

static bool has_input(const struct zinf_trainer *t, enum zinf_input input)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    bool has = false;
    for (uint32_t v = 0; v < g->n_values; v++)
        has |= g->values[v].kind == ZINF_VALUE_INPUT && g->values[v].input == input;
    return has;
}

/* ---- life ---- */

static int take_events(const struct zinf_trainer *t, struct zinf_event **events)
{
    int code = 0;
    for (int i = 0; !code && device_is_far(&t->setup) && i < CHUNK_STAGINGS; i++)
        code = calls(t)->event_create(t->setup.device, &events[i]);
    return code;
}

int trainer_take_chunks(struct zinf_trainer *t)
{
    const uint32_t n_values = t->setup.walk.graph->n_values;
    if (t->setup.n_chunks == 1)
        return 0;
    struct chunk_rows *c = t->chunks = calloc(1, sizeof *c);
    if (!c)
        return zinf_fail(-ENOMEM, "no memory for the rows of chunks");
    c->class_rows = calloc((uint64_t)setup_samples(&t->setup) + 1, sizeof *c->class_rows);
    c->pieces = calloc((uint64_t)setup_n_inputs(&t->setup) + 1, sizeof *c->pieces);
    c->holds = calloc(n_values, sizeof *c->holds);
    c->sums = calloc(n_values, sizeof *c->sums);
    if (!c->class_rows || !c->pieces || !c->holds || !c->sums)
        return zinf_fail(-ENOMEM, "no memory for the rows of chunks");
    int code = trainer_take_visited(t);
    if (!code)
        code = take_events(t, c->read);
    if (!code)
        code = take_events(t, c->told);
    if (!code)
        code = trainer_take_pairs(t);
    return code ? code : trainer_take_embedded(t);
}

void trainer_release_chunks(struct zinf_trainer *t)
{
    struct chunk_rows *c = t->chunks;
    for (int i = 0; c && i < CHUNK_STAGINGS; i++) {
        if (c->read[i])
            calls(t)->event_destroy(c->read[i]);
        if (c->told[i])
            calls(t)->event_destroy(c->told[i]);
    }
    if (c) {
        free(c->class_rows);
        free(c->pieces);
        free(c->holds);
        free(c->sums);
    }
    free(c);
    t->chunks = NULL;
    trainer_release_visited(t);
    trainer_release_pairs(t);
    trainer_release_embedded(t);
}

/* ---- a batch ---- */

static const int32_t *segments_of(const struct zinf_trainer *t, uint64_t sample)
{
    const int32_t *segments = t->chunks->batch.inputs[ZINF_INPUT_SEGMENTS];
    return segments ? segments + sample * (uint64_t)t->compute.chunk.whole : NULL;
}

/* For a model whose attention goes by pieces of the sequence: where the chunks of all samples are
 * within them. */
static void find_pieces(struct zinf_trainer *t, int64_t piece)
{
    const int64_t seq = t->compute.chunk.whole, each = t->compute.seq;
    for (uint64_t sample = 0; sample < t->chunks->samples; sample++) {
        struct piece_place *of = t->chunks->pieces + sample * (uint64_t)t->setup.n_chunks, at = {0};
        for (int64_t row = 0; row < seq; row += each) {
            of[row / each] = at;
            trainer_number_pieces(&at, segments_of(t, sample), row,
                                  row + each < seq ? row + each : seq, piece, NULL);
        }
    }
}

void trainer_chunk_batch(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples,
                         bool of_step, const float *class_weights)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    struct chunk_rows *c = t->chunks;
    if (!c)
        return;
    c->batch = *batch;
    c->samples = (uint64_t)samples;
    c->class_weights = class_weights;
    trainer_visit(t, batch, samples);
    for (uint64_t i = 0; has_input(t, ZINF_INPUT_LABELS) && i < c->samples; i++)
        c->class_rows[i] = trainer_class_row(t, batch, i);
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_INPUT && g->values[v].input == ZINF_INPUT_PIECES)
            find_pieces(t, g->values[v].piece);
    trainer_pairs_batch(t, batch, samples, of_step, c->class_rows);
    trainer_embedded_batch(t, batch, samples);
}

/* ---- losses ---- */

static int add(struct zinf_trainer *t, uint32_t v, int64_t micro, const void *losses)
{
    const float *of = losses;
    struct chunk_sum *sum = &t->chunks->sums[v];
    if (trainer_pairs_have(t, v))
        return trainer_pairs_tell(t, v, micro, losses);
    if (trainer_embedded_have(t, v)) {
        trainer_embedded_tell(t, micro, losses);
        return 0;
    }
    for (uint64_t i = 0; i < t->setup.walk.values[v].bytes / sizeof *of; i++) {
        sum->in_order += (double)of[i];
        exact_add(&sum->exact, (double)of[i]);
    }
    return 0;
}

/* The buffer by which a value's losses come from a GPU. */
static char *buffer_at(const struct zinf_trainer *t, uint64_t n, uint32_t v)
{
    const struct walk *w = &t->setup.walk;
    return host_at(&t->plan, t->plan.at.h_losses + n % CHUNK_STAGINGS * w->loss_bytes +
                                 w->values[v].bytes_before);
}

/* Adds up the first n that were told, once their copies have ended. */
static int add_until(struct zinf_trainer *t, uint64_t n)
{
    struct chunk_rows *c = t->chunks;
    int code = 0;
    for (; !code && c->n_added < n; c->n_added++) {
        const uint64_t buffer = c->n_added % CHUNK_STAGINGS;
        code = calls(t)->event_synchronize(c->told[buffer]);
        if (!code)
            code = add(t, c->value[buffer], c->micro[buffer],
                       buffer_at(t, c->n_added, c->value[buffer]));
    }
    return code;
}

/* Copies losses from a GPU; they are added up when the buffer is needed again. */
static int take_later(struct zinf_trainer *t, uint32_t v, int64_t micro, const void *losses)
{
    struct chunk_rows *c = t->chunks;
    struct zinf_queue *queue = t->queues[ZINF_LANE_DEVICE];
    const uint64_t n = c->n_told;
    int code = n < CHUNK_STAGINGS ? 0 : add_until(t, n - CHUNK_STAGINGS + 1);
    if (!code)
        code = calls(t)->copy_to_host(queue, buffer_at(t, n, v), losses,
                                      t->setup.walk.values[v].bytes);
    if (code)
        return code;
    c->value[n % CHUNK_STAGINGS] = v;
    c->micro[n % CHUNK_STAGINGS] = micro;
    c->n_told++;
    return calls(t)->event_record(queue, c->told[n % CHUNK_STAGINGS]);
}

static int tell(struct zinf_trainer *t, uint32_t v, int64_t micro)
{
    const struct walk_value *value = &t->setup.walk.values[v];
    const char *losses = device_at(&t->plan, t->plan.at.d_losses + value->bytes_before);
    const uint64_t all = (uint64_t)t->setup.n_micro * value->bytes_before;
    if (plan_keeps_losses(&t->plan))
        return calls(t)->copy_to_host(
            t->queues[ZINF_LANE_DEVICE],
            host_at(&t->plan, t->plan.at.h_losses + all + (uint64_t)micro * value->bytes), losses,
            value->bytes);
    if (device_is_far(&t->setup))
        return take_later(t, v, micro, losses);
    return add(t, v, micro, losses);
}

int trainer_chunk_tells(struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    const struct zinf_stage *stage = &g->stages[op->stage];
    const enum zinf_pass pass = kind_pass(op->kind);
    const bool forward = pass == ZINF_PASS_FORWARD && !(op->flags & OP_RECOMPUTES) &&
                         (uint32_t)op->visit + 1 == zinf_stage_visits(stage);
    int code = 0;
    if (!t->chunks || (!forward && pass != ZINF_PASS_WHOLE) ||
        (uint64_t)setup_sample(&t->setup, op->micro) >= t->chunks->samples)
        return 0;
    for (uint32_t i = 0; !code && i < stage->out.n; i++)
        if (zinf_value_is_told(g->values[stage->out.at[i]].kind))
            code = tell(t, stage->out.at[i], op->micro);
    return code;
}

/* ---- inputs ---- */

/* The rows of a sample that an input of a chunk consists of, with its margins: `front` rows before
 * the sample's first one, `given` rows from `row` on, and rows behind the sample's last one. */
struct rows {
    uint64_t sample, row, front, given, all;
};
static struct rows rows_of(const struct zinf_trainer *t, uint32_t v, int64_t micro)
{
    const struct setup *s = &t->setup;
    const int64_t each = (int64_t)(s->walk.values[v].bytes / sizeof(int32_t));
    const int64_t first = setup_chunk(s, micro) * each - ZINF_INPUT_MARGIN;
    struct rows r = {.sample = (uint64_t)setup_sample(s, micro),
                     .front = first < 0 ? (uint64_t)-first : 0,
                     .all = (uint64_t)(each + 2 * ZINF_INPUT_MARGIN)};
    const uint64_t seq = trainer_given_per_sample(t, &s->graph->values[v]);
    r.row = (uint64_t)(first + (int64_t)r.front);
    const uint64_t left = r.sample < t->chunks->samples && r.row < seq ? seq - r.row : 0;
    r.given = left < r.all - r.front ? left : r.all - r.front;
    return r;
}

/* For each row, the number of its piece within its sample, from 1; 0: padding. */
static void fill_pieces(const struct zinf_trainer *t, int64_t piece, const struct rows *r,
                        int32_t *to)
{
    const int64_t row = (int64_t)r->row, chunk = row / t->compute.seq;
    const int32_t *segments = segments_of(t, r->sample);
    memset(to, 0, (r->all - r->front) * sizeof *to);
    if (!r->given) /* all of it is padding */
        return;
    struct piece_place at =
        t->chunks->pieces[r->sample * (uint64_t)t->setup.n_chunks + (uint64_t)chunk];
    trainer_number_pieces(&at, segments, chunk * t->compute.seq, row, piece, NULL);
    trainer_number_pieces(&at, segments, row, row + (int64_t)r->given, piece, to);
}

/* An input of a sample's class. One chunk has the row of the class, and with it the label; the
 * others have none. */
static void fill_class(const struct zinf_trainer *t, enum zinf_input input, int64_t micro,
                       int32_t *to)
{
    const struct chunk_rows *c = t->chunks;
    const uint64_t sample = (uint64_t)setup_sample(&t->setup, micro);
    const int64_t row = sample < c->samples ? c->class_rows[sample] : -1, each = t->compute.seq;
    const bool own = row >= 0 && row / each == setup_chunk(&t->setup, micro);
    const int32_t label = own ? c->batch.inputs[ZINF_INPUT_LABELS][sample] : -1;
    if (input == ZINF_INPUT_LABEL_WEIGHTS)
        trainer_set_weights((float *)(void *)to, &label, c->class_weights, 1, 1);
    else
        *to = input == ZINF_INPUT_LABELS ? label : own ? (int32_t)(row % each) : 0;
}

/* An input of a chunk, with its margins. */
static int fill(struct zinf_trainer *t, uint32_t v, int64_t micro, int32_t *to)
{
    const struct zinf_value *value = &t->setup.graph->values[v];
    const int32_t *from = t->chunks->batch.inputs[value->input];
    const struct rows r = rows_of(t, v, micro);
    memset(to, 0, r.all * sizeof *to);
    if (is_of_class(value->input)) {
        fill_class(t, value->input, micro, to + ZINF_INPUT_MARGIN);
        return 0;
    }
    if (t->pairs && value->input == ZINF_INPUT_PULLS)
        return trainer_pairs_pull(t, micro, (float *)(void *)(to + ZINF_INPUT_MARGIN));
    if (trainer_embedded_read(t, value->input, micro, (float *)(void *)(to + ZINF_INPUT_MARGIN)))
        return 0;
    if (value->input == ZINF_INPUT_PIECES) {
        fill_pieces(t, value->piece, &r, to + r.front);
        return 0;
    }
    if (from && r.given)
        from += r.sample * trainer_given_per_sample(t, value) + r.row;
    trainer_set_input(to + r.front, value, r.given ? from : NULL, r.given, r.all - r.front,
                      (int64_t)r.all, r.row);
    return r.given && trainer_reads_rows(&t->chunks->batch, value->input)
               ? trainer_read_rows(&t->chunks->batch, value->input, (int64_t)r.sample,
                                   (int64_t)r.row, (int64_t)r.given, to + r.front)
               : 0;
}

/* Waits for the next host buffer, whose last copy must have ended. */
static int next_buffer(const struct zinf_trainer *t, struct zinf_event *const *events, uint64_t n)
{
    return n < CHUNK_STAGINGS ? 0 : calls(t)->event_synchronize(events[n % CHUNK_STAGINGS]);
}

static int bring(struct zinf_trainer *t, uint32_t v, int64_t micro, uint64_t buffer)
{
    const struct walk_value *value = &t->setup.walk.values[v];
    const uint64_t margin = ZINF_INPUT_MARGIN * sizeof(int32_t);
    const uint64_t at = value->bytes_before - margin;
    char *there = device_at(&t->plan, t->plan.at.d_inputs + at);
    const uint64_t before = t->plan.at.h_inputs + buffer * t->setup.walk.input_bytes;
    char *here = device_is_far(&t->setup) ? host_at(&t->plan, before + at) : there;
    t->chunks->holds[v] = setup_input(&t->setup, micro);
    const int code = fill(t, v, micro, (int32_t *)(void *)here);
    return code || here == there ? code
                                 : calls(t)->copy_to_device(t->queues[ZINF_LANE_DEVICE], there,
                                                            here, value->bytes + 2 * margin);
}

/* Gradients of pairs' losses are not known before backward. */
static bool comes_later(const struct zinf_trainer *t, const struct zinf_value *value,
                        const struct zinf_op *op)
{
    return t->pairs && value->input == ZINF_INPUT_PULLS &&
           kind_pass(op->kind) != ZINF_PASS_BACKWARD;
}

int trainer_chunk_reads(struct zinf_trainer *t, const struct zinf_op *op)
{
    struct chunk_rows *c = t->chunks;
    const struct zinf_graph *g = t->setup.walk.graph;
    const struct zinf_ids *in = &g->stages[op->stage].in;
    const bool far = device_is_far(&t->setup);
    bool begun = false;
    int code = 0;
    for (uint32_t i = 0; c && !code && i < in->n; i++) {
        const uint32_t v = in->at[i];
        const struct zinf_value *value = &g->values[v];
        if (value->kind != ZINF_VALUE_INPUT || c->holds[v] == setup_input(&t->setup, op->micro) ||
            comes_later(t, value, op))
            continue;
        if (t->pairs && value->input == ZINF_INPUT_PULLS)
            code = add_until(t, c->n_told);
        if (!code && far && !begun)
            code = next_buffer(t, c->read, c->n_read);
        begun = true;
        if (!code)
            code = bring(t, v, op->micro, c->n_read % CHUNK_STAGINGS);
    }
    if (code || !far || !begun)
        return code;
    return calls(t)->event_record(t->queues[ZINF_LANE_DEVICE],
                                  c->read[c->n_read++ % CHUNK_STAGINGS]);
}

/* ---- a program ---- */

/* Nobody tells losses of chunks without rows. */
static void clear_losses(struct zinf_trainer *t, uint32_t v)
{
    const struct setup *s = &t->setup;
    const struct walk_value *value = &s->walk.values[v];
    char *losses =
        host_at(&t->plan, t->plan.at.h_losses + (uint64_t)s->n_micro * value->bytes_before);
    for (int64_t m = 0; m < s->n_micro; m++)
        if (setup_chunk(s, m) >= trainer_visited(t, setup_sample(s, m)))
            memset(losses + (uint64_t)m * value->bytes, 0, value->bytes);
}

void trainer_chunk_begin(struct zinf_trainer *t)
{
    struct chunk_rows *c = t->chunks;
    const uint32_t n = t->setup.walk.graph->n_values;
    if (!c)
        return;
    memset(c->sums, 0, n * sizeof *c->sums);
    for (uint32_t v = 0; v < n; v++) {
        c->holds[v] = -1;
        if (plan_keeps_losses(&t->plan) && zinf_value_is_told(t->setup.graph->values[v].kind))
            clear_losses(t, v);
    }
    c->n_read = c->n_told = c->n_added = 0;
    trainer_pairs_begin(t);
    trainer_embedded_begin(t);
}

int trainer_chunk_end(struct zinf_trainer *t)
{
    int code = t->chunks ? add_until(t, t->chunks->n_told) : 0;
    if (!code && t->pairs)
        code = trainer_pairs_end(t, &t->chunks->sums[t->setup.walk.graph->loss]);
    return code ? code : trainer_embedded_end(t);
}

struct chunk_sum *trainer_chunk_sum(const struct zinf_trainer *t, uint32_t value)
{
    return &t->chunks->sums[value];
}

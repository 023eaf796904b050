/* batch: copies the inputs that the model asks for from the caller's arrays to the host's arena. */
#include "train/trainer.h"

#include <math.h>

static const char *input_name(enum zinf_input input)
{
    static const char *const names[ZINF_INPUTS] = {
        [ZINF_INPUT_IDS] = "ids",
        [ZINF_INPUT_TARGETS] = "targets",
        [ZINF_INPUT_POSITIONS] = "positions",
        [ZINF_INPUT_SEGMENTS] = "segments",
        [ZINF_INPUT_SOURCE_IDS] = "source ids",
        [ZINF_INPUT_SOURCE_SEGMENTS] = "source segments",
        [ZINF_INPUT_TOKEN_TYPES] = "token types",
        [ZINF_INPUT_LABELS] = "labels",
        [ZINF_INPUT_SOURCE_POSITIONS] = "source positions",
        [ZINF_INPUT_LABEL_WEIGHTS] = "label weights",
        [ZINF_INPUT_LAST_ROWS] = "last rows",
        [ZINF_INPUT_REFERENCES] = "references",
        [ZINF_INPUT_POOLED] = "pooled",
        [ZINF_INPUT_PULLS] = "pulls",
        [ZINF_INPUT_SAMPLE_LOSSES] = "sample losses",
        [ZINF_INPUT_PIECES] = "pieces",
    };
    return names[input];
}

static bool counts(enum zinf_input input)
{
    return input == ZINF_INPUT_POSITIONS || input == ZINF_INPUT_SOURCE_POSITIONS;
}

/* Inputs that are made from the embeddings of the whole step, after a first sweep. */
static bool comes_later(enum zinf_input input)
{
    return input == ZINF_INPUT_PULLS || input == ZINF_INPUT_SAMPLE_LOSSES;
}

/* Inputs that are derived from others, whatever the batch has. */
static bool follows(enum zinf_input input)
{
    return input == ZINF_INPUT_LABEL_WEIGHTS || input == ZINF_INPUT_LAST_ROWS ||
           input == ZINF_INPUT_POOLED || input == ZINF_INPUT_PIECES || comes_later(input);
}

/* Fills an input that the batch does not have with its default: positions count from 0 in every
 * sample, a sample is one document, and all tokens have type 0. False: the input has no default. */
static bool stands_for_itself(enum zinf_input input)
{
    return follows(input) || counts(input) || input == ZINF_INPUT_SEGMENTS ||
           input == ZINF_INPUT_SOURCE_SEGMENTS || input == ZINF_INPUT_TOKEN_TYPES;
}

static bool may_be_ignored(enum zinf_input input)
{
    return input == ZINF_INPUT_TARGETS || input == ZINF_INPUT_LABELS;
}

/* Rows without a sample get id 0, and are ignored as targets and labels and belong to no document.
 */
void trainer_set_input(int32_t *to, const struct zinf_value *value, const int32_t *from,
                       uint64_t given, uint64_t all, int64_t seq, uint64_t first)
{
    for (uint64_t i = 0; !from && i < given; i++)
        to[i] = counts(value->input) ? (int32_t)(first + i % (uint64_t)seq)
                                     : value->input != ZINF_INPUT_TOKEN_TYPES;
    if (from)
        memcpy(to, from, given * sizeof *to);
    for (uint64_t i = given; i < all; i++)
        to[i] = may_be_ignored(value->input) ? -1 : 0;
}

void trainer_set_weights(float *to, const int32_t *labels, const float *class_weights,
                         uint64_t given, uint64_t all)
{
    for (uint64_t i = 0; i < all; i++)
        to[i] = i < given && labels[i] >= 0 && class_weights ? class_weights[labels[i]] : 1;
}

/* The last of a sample's seq tokens that is no padding. */
static int64_t last_row(const struct zinf_trainer *t, const struct zinf_batch *batch,
                        uint64_t sample, int64_t seq)
{
    const int32_t *ids = batch->inputs[ZINF_INPUT_IDS];
    const int32_t *segments = batch->inputs[ZINF_INPUT_SEGMENTS];
    int64_t last = 0;
    for (int64_t j = 0; j < seq; j++) {
        const uint64_t at = sample * (uint64_t)seq + (uint64_t)j;
        if ((!segments || segments[at]) && ids[at] != t->setup.walk.graph->padding)
            last = j;
    }
    return last;
}

/* The last rows of `given` samples of seq tokens, and of missing samples; each row is counted
 * within its own sample. */
static void set_last_rows(const struct zinf_trainer *t, int32_t *to, const struct zinf_batch *batch,
                          uint64_t given, int64_t seq)
{
    const uint64_t batch_size = (uint64_t)t->setup.batch;
    for (uint64_t i = 0; i < (uint64_t)t->setup.n_micro * batch_size; i++) {
        const int64_t last = i < given ? last_row(t, batch, i, seq) : 0;
        to[i] = (int32_t)(i % batch_size) * (int32_t)seq + (int32_t)last;
    }
}

/* For each token, whether it is part of the sum that becomes its sample's embedding. */
static void set_pooled(const struct zinf_trainer *t, uint32_t v, float *to,
                       const struct zinf_batch *batch, int64_t samples)
{
    const int32_t *segments = batch->inputs[ZINF_INPUT_SEGMENTS];
    const enum zinf_pooling pooling = t->setup.options.pooling;
    const int64_t stride = (int64_t)(t->setup.walk.values[v].bytes / sizeof *to);
    const int64_t seq = t->compute.seq, each = t->setup.batch;
    memset(to, 0, (size_t)(stride * t->setup.n_micro) * sizeof *to);
    for (int64_t i = 0; i < samples; i++) {
        const int32_t *own = segments ? segments + i * seq : NULL;
        float *rows = to + i / each * stride + i % each * seq;
        int64_t n = 0;
        while (n < seq && (!own || own[n]))
            n++;
        if (pooling != ZINF_POOL_MEAN && n)
            rows[pooling == ZINF_POOL_FIRST ? 0 : n - 1] = 1;
        for (int64_t k = 0; pooling == ZINF_POOL_MEAN && k < n; k++)
            rows[k] = 1;
    }
}

/* Tokens of a sample of the present batch, also if they are computed in chunks. */
static int64_t whole_seq(const struct zinf_trainer *t)
{
    return t->setup.n_chunks > 1 ? t->compute.chunk.whole : t->compute.seq;
}

int64_t trainer_class_row(const struct zinf_trainer *t, const struct zinf_batch *batch,
                          uint64_t sample)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_INPUT && g->values[v].input == ZINF_INPUT_LAST_ROWS)
            return last_row(t, batch, sample, whole_seq(t));
    return 0;
}

void trainer_number_pieces(struct piece_place *at, const int32_t *segments, int64_t row,
                           int64_t end, int64_t piece, int32_t *to)
{
    for (int64_t k = row; k < end; k++) {
        if (k && segments && segments[k] != segments[k - 1])
            at->first = k;
        at->number += (k - at->first) % piece == 0;
        if (to)
            to[k - row] = segments && !segments[k] ? 0 : at->number;
    }
}

static void set_pieces(const struct zinf_trainer *t, uint32_t v, int32_t *to,
                       const struct zinf_batch *batch, int64_t samples)
{
    const int32_t *segments = batch->inputs[ZINF_INPUT_SEGMENTS];
    const int64_t stride = (int64_t)(t->setup.walk.values[v].bytes / sizeof *to);
    const int64_t seq = t->compute.seq, each = t->setup.batch, all = setup_n_inputs(&t->setup);
    const int64_t piece = t->setup.walk.graph->values[v].piece;
    memset(to, 0, (size_t)(stride * all) * sizeof *to);
    for (int64_t i = 0; i < samples; i++) {
        struct piece_place at = {0};
        trainer_number_pieces(&at, segments ? segments + i * seq : NULL, 0, seq, piece,
                              to + i / each * stride + i % each * seq);
    }
}

static int refuse_id(const struct zinf_value *value, int32_t id)
{
    if (value->input == ZINF_INPUT_LABELS)
        return zinf_fail(
            -EINVAL, "label %d is not one of the model's %lld classes (id2label in config.json)",
            id, (long long)value->limit);
    if (value->input == ZINF_INPUT_TOKEN_TYPES)
        return zinf_fail(-EINVAL,
                         "token type %d is not one of the model's %lld (config.json): take the "
                         "tokenizer that belongs to the model",
                         id, (long long)value->limit);
    return zinf_fail(-EINVAL,
                     "token id %d is outside of the model's vocabulary of %lld "
                     "(vocab_size in config.json)",
                     id, (long long)value->limit);
}

static int check_ids(const struct zinf_value *value, const int32_t *ids, uint64_t n)
{
    for (uint64_t i = 0; value->limit && i < n; i++)
        if (ids[i] >= value->limit || (ids[i] < 0 && !may_be_ignored(value->input)))
            return refuse_id(value, ids[i]);
    return 0;
}

/* Rows of a value for a sample in a micro-batch. */
static uint64_t per_sample(const struct zinf_trainer *t, const struct zinf_value *value)
{
    const int64_t rows[] = {[ZINF_ROWS_OF_SAMPLE] = 1,
                            [ZINF_ROWS_OF_TARGET] = t->compute.seq,
                            [ZINF_ROWS_OF_SOURCE] = t->compute.source_seq};
    return (uint64_t)rows[value->rows_of];
}

uint64_t trainer_given_per_sample(const struct zinf_trainer *t, const struct zinf_value *value)
{
    if (value->rows_of == ZINF_ROWS_OF_SOURCE && t->setup.n_chunks > 1)
        return (uint64_t)t->compute.chunk.source_whole;
    return value->rows_of == ZINF_ROWS_OF_TARGET ? (uint64_t)whole_seq(t) : per_sample(t, value);
}

/* ---- rows that no array has ---- */

#define ROWS_AT_ONCE 1024

bool trainer_reads_rows(const struct zinf_batch *batch, enum zinf_input input)
{
    return batch->rows.read && (input == ZINF_INPUT_IDS || input == ZINF_INPUT_TARGETS);
}

int trainer_read_rows(const struct zinf_batch *batch, enum zinf_input input, int64_t sample,
                      int64_t first, int64_t n, int32_t *to)
{
    const bool targets = input == ZINF_INPUT_TARGETS;
    return batch->rows.read(batch->rows.arg, sample, first, n, targets ? NULL : to,
                            targets ? to : NULL);
}

int trainer_each_rows(const struct zinf_batch *batch, enum zinf_input input, int64_t sample,
                      int64_t rows, int (*see)(void *context, const int32_t *some, uint64_t n),
                      void *context)
{
    int32_t some[ROWS_AT_ONCE];
    int code = 0;
    for (int64_t first = 0; !code && first < rows; first += ROWS_AT_ONCE) {
        const int64_t left = rows - first, n = left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE;
        code = trainer_read_rows(batch, input, sample, first, n, some);
        if (!code)
            code = see(context, some, (uint64_t)n);
    }
    return code;
}

struct checked {
    const struct zinf_value *value;
    uint64_t *count;
};

static int check_rows(void *context, const int32_t *some, uint64_t n)
{
    const struct checked *c = context;
    const int code = check_ids(c->value, some, n);
    for (uint64_t k = 0; !code && k < n; k++)
        *c->count += some[k] >= 0;
    return code;
}

/* Checks all numbers of an input of that kind, and counts those of 0 and more. */
static int see_rows(const struct zinf_trainer *t, const struct zinf_batch *batch,
                    const struct zinf_value *value, int64_t samples, uint64_t *count)
{
    const int64_t seq = (int64_t)trainer_given_per_sample(t, value);
    struct checked c = {value, count};
    int code = 0;
    for (int64_t i = 0; !code && i < samples; i++)
        code = trainer_each_rows(batch, value->input, i, seq, check_rows, &c);
    return code;
}

static int check_length(const char *what, int64_t length, int64_t most)
{
    return length < 0 || length > most
               ? zinf_fail(-EINVAL, "a batch of %s of %lld tokens: the trainer takes up to %lld",
                           what, (long long)length, (long long)most)
               : 0;
}

int trainer_set_lengths(struct zinf_trainer *t, const struct zinf_batch *batch)
{
    const struct setup *s = &t->setup;
    int code = check_length("sequences", batch->seq_len, s->seq);
    if (!code)
        code = check_length("sources", batch->source_len, s->source_seq);
    const int64_t seq = batch->seq_len > 0 ? batch->seq_len : s->seq;
    t->compute.seq = s->n_chunks > 1 ? s->chunk_seq : seq;
    t->compute.chunk.whole = s->n_chunks > 1 ? seq : 0;
    const int64_t source = batch->source_len > 0 ? batch->source_len : s->source_seq;
    t->compute.source_seq = s->n_chunks > 1 ? s->chunk_source : source;
    t->compute.chunk.source_whole = source;
    t->visited = s->n_chunks > 1 ? setup_chunks_with(s, seq, source) : 1;
    return code;
}

/* Each micro-batch has a place of its own; a shorter one uses the beginning of it. */
static void set_micros(const struct zinf_trainer *t, uint32_t v, void *place, const int32_t *from,
                       uint64_t samples)
{
    const struct zinf_value *value = &t->setup.graph->values[v];
    const uint64_t stride = t->setup.walk.values[v].bytes / sizeof(int32_t);
    const uint64_t length = per_sample(t, value), batch = (uint64_t)t->setup.batch;
    int32_t *to = place;
    for (uint64_t m = 0; m < (uint64_t)t->setup.n_micro; m++, to += stride) {
        const uint64_t left = samples > m * batch ? samples - m * batch : 0;
        const uint64_t given = (left < batch ? left : batch) * length;
        trainer_set_input(to, value, from && given ? from + m * batch * length : NULL, given,
                          batch * length, (int64_t)length, 0);
    }
}

/* The model's list says which inputs there are. */
int trainer_set_batch(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples,
                      const float *class_weights)
{
    const struct walk *w = &t->setup.walk;
    const uint64_t micros = (uint64_t)setup_n_inputs(&t->setup);
    const uint64_t all = (uint64_t)setup_samples(&t->setup);
    for (uint32_t v = 0; v < w->graph->n_values; v++) {
        const struct zinf_value *value = &w->graph->values[v];
        if (value->kind != ZINF_VALUE_INPUT)
            continue;
        const int32_t *from = batch->inputs[value->input];
        void *to = host_at(&t->plan, t->plan.at.h_inputs + micros * w->values[v].bytes_before);
        const bool reads = t->setup.n_chunks > 1 && trainer_reads_rows(batch, value->input);
        uint64_t count = 0;
        if (!from && !reads && !stands_for_itself(value->input))
            return zinf_fail(-EINVAL,
                             "the model asks for the input \"%s\" (%s), which the batch "
                             "does not have",
                             value->name, input_name(value->input));
        int code =
            reads  ? see_rows(t, batch, value, samples, &count)
            : from ? check_ids(value, from, (uint64_t)samples * trainer_given_per_sample(t, value))
                   : 0;
        if (code)
            return code;
        if (t->setup.n_chunks > 1) /* made for each chunk when it is needed */
            continue;
        /* after the labels, which are checked first */
        if (value->input == ZINF_INPUT_LABEL_WEIGHTS)
            trainer_set_weights(to, batch->inputs[ZINF_INPUT_LABELS], class_weights,
                                (uint64_t)samples, all);
        else if (value->input == ZINF_INPUT_LAST_ROWS)
            set_last_rows(t, to, batch, (uint64_t)samples, t->compute.seq);
        else if (value->input == ZINF_INPUT_POOLED)
            set_pooled(t, v, to, batch, samples);
        else if (value->input == ZINF_INPUT_PIECES)
            set_pieces(t, v, to, batch, samples);
        else if (comes_later(value->input))
            memset(to, 0, micros * w->values[v].bytes);
        else
            set_micros(t, v, to, from, (uint64_t)samples);
    }
    return 0;
}

static bool is_nan(int32_t bits)
{
    float number;
    memcpy(&number, &bits, sizeof number);
    return isnan(number);
}

/* Rows of the batch that count in the mean. */
int trainer_count_targets(const struct zinf_trainer *t, const struct zinf_batch *batch,
                          int64_t samples, uint64_t *count)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    const struct zinf_value *value = &g->values[g->targets];
    const int32_t *targets = batch->inputs[value->input];
    const uint64_t n = (uint64_t)samples * trainer_given_per_sample(t, value);
    *count = 0;
    if (trainer_reads_rows(batch, value->input))
        return see_rows(t, batch, value, samples, count);
    for (uint64_t i = 0; i < n; i++)
        *count += value->element == ZINF_ELEMENT_F32 ? !is_nan(targets[i]) : targets[i] >= 0;
    return 0;
}

int trainer_sum_weights(const struct zinf_trainer *t, const struct zinf_batch *batch,
                        int64_t samples, double *sum)
{
    const float *weights = t->setup.options.class_weights;
    const int32_t *labels = batch->inputs[ZINF_INPUT_LABELS];
    struct exact_sum exact = {0};
    const bool counts =
        !context_axis(&t->setup)->rank; /* ranks that share sequences have the same rows */
    for (int64_t i = 0; counts && i < samples; i++)
        if (labels[i] >= 0)
            exact_add(&exact, (double)weights[labels[i]]);
    int code = data_axis(&t->setup)->net
                   ? zinf_net_add(data_axis(&t->setup)->net, (int64_t *)(void *)&exact,
                                  sizeof exact / sizeof(int64_t))
                   : 0;
    *sum = exact_value(&exact);
    return code;
}

/* ---- what is left of an operation's work where samples are shorter than the longest ---- */

/* The part of a value's rows that this step has, of those that the program was made for. */
static double rows_share(const struct zinf_trainer *t, enum zinf_rows_of rows_of)
{
    const struct zinf_compute *now = &t->compute, *most = &t->setup.compute;
    return rows_of == ZINF_ROWS_OF_SAMPLE   ? 1
           : rows_of == ZINF_ROWS_OF_SOURCE ? (double)now->source_seq / (double)most->source_seq
                                            : (double)now->seq / (double)most->seq;
}

bool trainer_is_shorter(const struct zinf_trainer *t)
{
    return t->compute.seq < t->setup.chunk_seq || t->compute.source_seq < t->setup.chunk_source;
}

/* What is carried of chunks with rows. Between GPUs ranks that share a sequence exchange that of
 * all. */
static uint64_t carried_bytes(const struct zinf_trainer *t, const struct zinf_op *op)
{
    if (op->kind == OP_GATHER_KEYS || op->kind == OP_SUM_KEYS)
        return trainer_shared_bytes(t, op);
    const bool apart = !in_parts(&t->setup) && op->kind <= OP_WRITE && op->lane != ZINF_LANE_NET;
    const int64_t sample = setup_sample(&t->setup, op->micro);
    const int64_t left = apart ? trainer_visited(t, sample) - op->of_chunk : 0;
    const uint64_t rest =
        left > 0 ? (uint64_t)left * t->setup.walk.stages[op->stage].carried[op->visit] : 0;
    return apart && rest < op->bytes ? rest : op->bytes;
}

static uint64_t packed_bytes(const struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct zinf_packed *p = zinf_tiers_packed(
        t->plan.tiers, op_packable(op), (uint32_t)op->arg, zinf_location_generation(op->where));
    uint64_t pages = op->kind == OP_WRITE ? p->write_pages : p->read_pages;
    if (op->kind == OP_PACKED_IN)
        return pages ? pages * ZINF_AIO_ALIGN : op->bytes;
    uint64_t bytes = pages ? pages * ZINF_AIO_ALIGN : op->bytes + op->where->head;
    return bytes > op->where->head ? bytes - op->where->head : 0;
}

uint64_t trainer_moved(void *context, const struct zinf_op *op)
{
    const struct zinf_trainer *t = context;
    if (trainer_is_beyond(t, op))
        return 0;
    const bool stored = op->kind == OP_READ || op->kind == OP_WRITE || op->kind == OP_PACKED_IN;
    if (op->flags & OP_ANY_PACKED && stored)
        return packed_bytes(t, op);
    if (op->flags & OP_CARRIED)
        return carried_bytes(t, op);
    if (!(op->flags & OP_VALUE))
        return op->bytes;
    const struct zinf_value *value = &t->setup.graph->values[op->arg];
    const uint64_t bytes = zinf_align_up(zinf_value_bytes(&t->compute, value), ZINF_MEMORY_ALIGN);
    return bytes < op->bytes ? bytes : op->bytes;
}

/* The expected duration of a visit that rows choose, relative to the program's, which assumes equal
 * numbers of rows for all visits. A visit with few rows takes as long as one with more, as long as
 * reading the weights limits it; a visit without rows takes nothing. */
static double visit_share(const struct zinf_trainer *t, const struct zinf_op *op)
{
    const struct plan *p = &t->plan;
    const double least = t->setup.compute.pace.flops_a_byte;
    const struct zinf_stage *stage =
        t->setup.walk.n_choices ? &t->setup.graph->stages[op->stage] : NULL;
    if (!stage || !stage->choice.n || op->micro < 0)
        return 1;
    const enum zinf_rows_of rows_of = t->setup.graph->values[stage->out.at[0]].rows_of;
    const int32_t *list = (const int32_t *)(const void *)host_at(
        p, p->at.h_lists + list_offset(p, (uint32_t)op->stage, op->micro));
    const double rows = list[op->visit + 1] - list[op->visit];
    const double mean = (double)zinf_rows_count(&t->compute, rows_of) * (double)stage->choice.n /
                        (double)stage->sweep.n;
    return rows > 0 ? fmax(rows, least) / fmax(mean, least) : 0;
}

/* Attention gets shorter faster than its rows, which is ignored: it is the smaller part of a block.
 */
double trainer_share(void *context, const struct zinf_op *op)
{
    const struct zinf_trainer *t = context;
    if (trainer_is_beyond(t, op))
        return 0;
    const double visited = op->kind < OP_STAGES ? 1 : visit_share(t, op);
    const bool shorter = trainer_is_shorter(t) || op->flags & OP_CARRIED;
    if (!shorter || op->flags & OP_ANY_PACKED)
        return visited;
    if (op->kind < OP_STAGES)
        return op->bytes ? (double)trainer_moved(context, op) / (double)op->bytes : 1;
    const struct zinf_stage *stage = &t->setup.graph->stages[op->stage];
    return visited * rows_share(t, t->setup.graph->values[stage->out.at[0]].rows_of);
}

/* The program already contains the chance that an operation is left out, as a part of its time. */
double trainer_share_as_chosen(void *context, const struct zinf_op *op)
{
    const struct zinf_trainer *t = context;
    const double share = trainer_share(context, op), done = 1 - op->left_out;
    if (!(op->flags & (OP_CHOSEN | OP_UNCHOSEN)) || !(done > 0))
        return share;
    return !t->chosen[op->unit] == !(op->flags & OP_UNCHOSEN) ? 0 : share / done;
}

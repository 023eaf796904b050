/* score_choices: log-probabilities of continuations, by the losses of windows whose targets they
 * are. Batches are of similar length, the longest first, and dealt to ranks in turn: which items
 * share a batch depends on the items alone. */
#include "text/samples/samples.h"
#include "train/score.h"
#include "train/trainer.h"

#include <stdlib.h>
#include <xxhash.h>

struct continuing {
    struct zinf_trainer *trainer;
    const struct zinf_continuation *items;
    uint64_t n, each; /* items, of a batch */
    uint64_t *order;  /* [n] */
    int32_t start;
    bool encodes;              /* an encoder reads contexts */
    int64_t seq, source_seq;   /* the trainer's */
    int64_t rows, source_rows; /* of the batch at hand */
    int32_t *arrays[ZINF_INPUTS];
    double *all; /* [ranks][each]; ranks that share sequences have the same */
};

/* ---- windows ---- */

/* Ids that the decoder is fed. */
static int64_t rows_of(const struct continuing *c, uint64_t item)
{
    const struct zinf_continuation *i = &c->items[item];
    const int64_t all = (int64_t)i->n_target + (c->encodes ? 0 : (int64_t)i->n_context - 1);
    return all < c->seq ? all : c->seq;
}

static int64_t source_rows_of(const struct continuing *c, uint64_t item)
{
    const int64_t n = c->encodes ? c->items[item].n_context : 0;
    return n < c->source_seq ? n : c->source_seq;
}

static int64_t rounded(int64_t rows, int64_t most)
{
    const int64_t whole = (int64_t)zinf_align_up((uint64_t)rows, ZINF_ROWS_MULTIPLE);
    return whole < most ? whole : most;
}

static void put(const struct continuing *c, enum zinf_input input, int64_t at, int32_t value)
{
    if (c->arrays[input])
        c->arrays[input][at] = value;
}

/* The item as sample number `sample`: the last rows of context and target, but for the last token,
 * which is foretold and not fed. */
static void fill(const struct continuing *c, uint64_t item, int64_t sample)
{
    const struct zinf_continuation *i = &c->items[item];
    const int64_t n = rows_of(c, item), front = c->encodes ? 1 : (int64_t)i->n_context;
    const int64_t skipped = front + i->n_target - 1 - n, n_source = source_rows_of(c, item);
    for (int64_t r = 0; r < c->rows; r++) {
        const int64_t at = sample * c->rows + r, k = r + skipped, next = k + 1 - front;
        const bool there = r < n;
        const int32_t before = c->encodes ? c->start : there && k < front ? i->context[k] : 0;
        put(c, ZINF_INPUT_IDS, at, !there ? 0 : k < front ? before : i->target[k - front]);
        put(c, ZINF_INPUT_TARGETS, at, there && next >= 0 ? i->target[next] : -1);
        put(c, ZINF_INPUT_POSITIONS, at, there ? (int32_t)r : 0);
        put(c, ZINF_INPUT_SEGMENTS, at, there);
    }
    for (int64_t r = 0; r < c->source_rows; r++) {
        const int64_t at = sample * c->source_rows + r;
        const bool there = r < n_source;
        put(c, ZINF_INPUT_SOURCE_IDS, at, there ? i->context[i->n_context - n_source + r] : 0);
        put(c, ZINF_INPUT_SOURCE_SEGMENTS, at, there);
    }
}

/* ---- batches ---- */

static uint64_t items_from(const struct continuing *c, uint64_t first)
{
    const uint64_t left = first < c->n ? c->n - first : 0;
    return left < c->each ? left : c->each;
}

/* This rank's batch; without one it computes with the others, for they may need its slices. */
static int measure(struct continuing *c, uint64_t first, double *out)
{
    struct zinf_trainer *t = c->trainer;
    const uint64_t n = items_from(c, first), from = n ? first : 0, windows = n ? n : 1;
    uint64_t count, n_losses;
    double sum;
    c->rows = c->source_rows = 1;
    for (uint64_t i = 0; i < windows; i++) {
        const int64_t rows = rows_of(c, c->order[from + i]);
        const int64_t source = source_rows_of(c, c->order[from + i]);
        c->rows = rows > c->rows ? rows : c->rows;
        c->source_rows = source > c->source_rows ? source : c->source_rows;
    }
    c->rows = rounded(c->rows, c->seq);
    c->source_rows = rounded(c->source_rows, c->source_seq);
    for (uint64_t i = 0; i < windows; i++)
        fill(c, c->order[from + i], (int64_t)i);
    struct zinf_batch batch = {.seq_len = c->rows, .source_len = c->encodes ? c->source_rows : 0};
    for (int i = 0; i < ZINF_INPUTS; i++)
        batch.inputs[i] = c->arrays[i];
    int code = zinf_trainer_loss(t, &batch, (int64_t)windows, &sum, &count);
    if (!code && (in_parts(&t->setup) || !plan_keeps_losses(&t->plan))) { /* a batch is one text */
        code = trainer_sum_targets(t, &sum);
        out[0] = -sum;
        return code;
    }
    if (code)
        return code;
    const float *losses =
        trainer_losses_of(t, t->setup.graph->loss, 0, (int64_t)windows, &n_losses);
    for (uint64_t i = 0; i < n; i++) {
        out[i] = 0;
        for (int64_t r = 0; r < c->rows; r++)
            out[i] -= (double)losses[(int64_t)i * c->rows + r];
    }
    return 0;
}

/* The first item of a rank's batch. */
static uint64_t begins_at(const struct continuing *c, uint64_t first, uint32_t rank)
{
    return first + setup_sharer(&c->trainer->setup, rank) * c->each;
}

/* A batch of each rank, or of those that share sequences. */
static int measure_round(struct continuing *c, uint64_t first, double *out)
{
    const struct zinf_axis *ranks = data_axis(&c->trainer->setup);
    double *own = c->all + ranks->rank * c->each;
    int code = measure(c, begins_at(c, first, ranks->rank), own);
    if (!code && ranks->net)
        code = zinf_net_gather(ranks->net, own, c->all, c->each * sizeof *own);
    for (uint32_t r = 0; !code && r < ranks->world; r++) {
        const uint64_t begin = begins_at(c, first, r), n = items_from(c, begin);
        for (uint64_t i = 0; i < n; i++)
            out[c->order[begin + i]] = c->all[r * c->each + i];
    }
    return code;
}

/* ---- all ---- */

static bool has_encoder(const struct zinf_graph *g)
{
    for (uint32_t v = 0; v < g->n_values; v++)
        if (g->values[v].kind == ZINF_VALUE_INPUT && g->values[v].input == ZINF_INPUT_SOURCE_IDS)
            return true;
    return false;
}

struct place {
    int64_t rows;
    uint64_t item;
};

static int compare(const void *a, const void *b)
{
    const struct place *x = a, *y = b;
    return x->rows != y->rows ? (x->rows < y->rows) - (x->rows > y->rows)
                              : (x->item > y->item) - (x->item < y->item);
}

static int sort(struct continuing *c)
{
    struct place *places = malloc(c->n * sizeof *places);
    c->order = malloc(c->n * sizeof *c->order);
    if (!places || !c->order) {
        free(places);
        return zinf_fail(-ENOMEM, "no memory for %llu texts", (unsigned long long)c->n);
    }
    for (uint64_t i = 0; i < c->n; i++)
        places[i] = (struct place){rows_of(c, i) + source_rows_of(c, i), i};
    qsort(places, c->n, sizeof *places, compare);
    for (uint64_t i = 0; i < c->n; i++)
        c->order[i] = places[i].item;
    free(places);
    return 0;
}

static int take_memory(struct continuing *c)
{
    static const enum zinf_input of_targets[] = {ZINF_INPUT_IDS, ZINF_INPUT_TARGETS,
                                                 ZINF_INPUT_POSITIONS, ZINF_INPUT_SEGMENTS,
                                                 ZINF_INPUT_TOKEN_TYPES};
    static const enum zinf_input of_sources[] = {ZINF_INPUT_SOURCE_IDS, ZINF_INPUT_SOURCE_SEGMENTS};
    const uint64_t ranks = data_axis(&c->trainer->setup)->world;
    bool good = (c->all = calloc(ranks * c->each, sizeof *c->all)) != NULL;
    for (size_t i = 0; i < sizeof of_targets / sizeof *of_targets; i++)
        good &= (c->arrays[of_targets[i]] = calloc(c->each * (uint64_t)c->seq, sizeof(int32_t))) !=
                NULL;
    for (size_t i = 0; c->encodes && i < sizeof of_sources / sizeof *of_sources; i++)
        good &= (c->arrays[of_sources[i]] =
                     calloc(c->each * (uint64_t)c->source_seq, sizeof(int32_t))) != NULL;
    return good ? 0
                : zinf_fail(-ENOMEM, "no memory for a batch of %llu texts",
                            (unsigned long long)c->each);
}

/* Ranks that were given other texts would wait for each other for ever. */
static int compare_ranks(const struct continuing *c)
{
    struct zinf_net *net = data_axis(&c->trainer->setup)->net;
    uint64_t sum = c->n;
    for (uint64_t i = 0; i < c->n; i++) {
        const struct zinf_continuation *item = &c->items[i];
        sum = XXH3_64bits_withSeed(item->context, item->n_context * sizeof(int32_t), sum);
        sum = XXH3_64bits_withSeed(item->target, item->n_target * sizeof(int32_t), sum);
    }
    const struct zinf_net_fact fact = {"questions (--data, --few-shot)", sum};
    return net ? zinf_net_compare(net, &fact, 1) : 0;
}

int zinf_score_continuations(struct zinf_trainer *trainer, const struct zinf_continuation *items,
                             uint64_t n, int32_t start, double *out)
{
    const struct setup *s = &trainer->setup;
    struct continuing c = {.trainer = trainer,
                           .items = items,
                           .n = n,
                           .each = (uint64_t)s->batch,
                           .start = start,
                           .encodes = has_encoder(s->graph),
                           .seq = s->seq,
                           .source_seq = s->source_seq};
    int code = compare_ranks(&c);
    for (uint64_t i = 0; !code && i < n; i++)
        if (items[i].n_target > (uint64_t)c.seq || !items[i].n_target || !items[i].n_context)
            code = zinf_fail(-EINVAL, "text %llu has %u tokens: between 1 and %lld are possible",
                             (unsigned long long)i + 1, items[i].n_target, (long long)c.seq);
    if (!code)
        code = sort(&c);
    if (!code)
        code = take_memory(&c);
    for (uint64_t first = 0; !code && first < n; first += c.each * setup_sharers(s))
        code = measure_round(&c, first, out);
    for (int i = 0; i < ZINF_INPUTS; i++)
        free(c.arrays[i]);
    free(c.order);
    free(c.all);
    return code;
}

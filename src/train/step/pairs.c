/*
 * pairs: the loss of pairs of samples whose sequences come in chunks. It takes sums over all rows
 * of two samples, and of a whole micro-batch's where pairs have something in common (KTO, ORPO). So
 * forward only tells the losses of tokens, and what each chunk of them adds to the sums is kept
 * here; the gradient at each token's loss comes from here, too, chunk by chunk.
 *
 * Chunks are added in the order of the sequence, whichever was computed first, and on whichever
 * rank along CONTEXT. The lane DEVICE calls this while a program runs: backward of a pair comes
 * behind the forward of all its chunks, and all ranks come to the first backward at the same place.
 * A pipeline goes back through some samples while others have not come yet: losses are made of so
 * many at a time.
 */
#include "train/trainer.h"

#include <stdlib.h>

/* What ranks must know of each other's samples. */
struct known {
    int32_t label;
    float reference; /* the sum of -log p of its targets */
};

struct chunk_pairs {
    uint32_t told; /* the value */
    struct zinf_batch batch;
    int64_t samples; /* of this rank */
    bool of_step;    /* else of an evaluation */
    const int64_t *class_rows;
    /* of all samples that are compared, in their order; [..][chunks] */
    struct zinf_preference_sums *parts;
    struct zinf_preference_sums *sums;     /* [all samples] */
    struct zinf_preference_slopes *slopes; /* as many */
    float *losses, *rewards, *references;  /* as many */
    int32_t *labels;                       /* as many */
    int32_t *targets;                      /* [rows of a chunk]: where no array has them */
    /* [ranks][samples][own chunks], [ranks][samples]: of ranks that share sequences, and of groups
     * of them that take samples in turn */
    struct zinf_preference_sums *shared;
    struct known *known;
    bool has_told;  /* in this program */
    int64_t n_made; /* samples of this rank whose losses it has made */
};

static const struct zinf_model_preference *preference_of(const struct zinf_trainer *t)
{
    return zinf_model_preference(t->setup.model);
}

/* ---- life ---- */

static uint32_t find_told(const struct zinf_trainer *t)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    for (uint32_t s = g->n_stages; s-- > 0;)
        for (uint32_t i = 0; i < g->stages[s].out.n; i++)
            if (g->stages[s].out.at[i] == g->loss)
                return g->stages[s].out.at[g->stages[s].out.n - 1];
    return g->n_values;
}

/* ---- which samples are compared ---- */

/* Groups of ranks take the samples of a step in turn, but each has windows of its own to evaluate.
 */
static bool in_turn(const struct zinf_trainer *t)
{
    return t->pairs->of_step && goes_in_turn(&t->setup) && setup_sharers(&t->setup) > 1;
}

/* How many samples there are up to sample `own` of this rank. */
static int64_t n_until(const struct zinf_trainer *t, int64_t own)
{
    return own * (in_turn(t) ? setup_sharers(&t->setup) : 1);
}

static int64_t n_samples(const struct zinf_trainer *t)
{
    return n_until(t, t->pairs->samples);
}

/* Of so many samples of this rank losses are made at a time. */
static int64_t n_at_once(const struct zinf_trainer *t)
{
    const struct setup *s = &t->setup;
    return !t->pairs->of_step ? s->windows
           : is_piped(s)      ? setup_samples_together(s)
                              : setup_samples(s);
}

/* The place, among the samples that are compared, of a rank's sample `own`. */
static int64_t place_of(const struct zinf_trainer *t, int64_t own, uint32_t rank)
{
    return in_turn(t) ? setup_place(&t->setup, rank, t->pairs->samples, own) : own;
}

static int64_t own_place(const struct zinf_trainer *t, int64_t own)
{
    return place_of(t, own, data_axis(&t->setup)->rank);
}

/* ---- memory ---- */

/* Places the arrays behind base; NULL: says only what they take. */
static uint64_t place_arrays(struct chunk_pairs *p, const struct setup *s, char *base)
{
    const uint64_t own = (uint64_t)setup_samples(s), ranks = data_axis(s)->world;
    const uint64_t all = own * (goes_in_turn(s) ? setup_sharers(s) : 1);
    const uint64_t told = setup_tells(s) ? ranks * own : 0;
    uint64_t at = 0;
    p->parts = told_array(base, &at, all * (uint64_t)s->n_chunks * sizeof *p->parts);
    p->sums = told_array(base, &at, all * sizeof *p->sums);
    p->slopes = told_array(base, &at, all * sizeof *p->slopes);
    p->losses = told_array(base, &at, all * sizeof *p->losses);
    p->rewards = told_array(base, &at, all * sizeof *p->rewards);
    p->references = told_array(base, &at, all * sizeof *p->references);
    p->labels = told_array(base, &at, all * sizeof *p->labels);
    p->targets = told_array(base, &at, (uint64_t)s->chunk_seq * sizeof *p->targets);
    p->shared = told_array(base, &at, told * (uint64_t)s->own_chunks * sizeof *p->shared);
    p->known = told_array(base, &at, told * sizeof *p->known);
    return at;
}

static bool has_sums(const struct setup *s)
{
    const struct zinf_model_preference *preference = zinf_model_preference(s->model);
    return preference && preference->in_chunks && s->n_chunks > 1;
}

uint64_t pairs_bytes(const struct setup *s)
{
    struct chunk_pairs p;
    return has_sums(s) ? place_arrays(&p, s, NULL) : 0;
}

int trainer_take_pairs(struct zinf_trainer *t)
{
    if (!has_sums(&t->setup))
        return 0;
    t->pairs = calloc(1, sizeof *t->pairs + pairs_bytes(&t->setup));
    if (!t->pairs)
        return zinf_fail(-ENOMEM, "no memory for the sums of pairs");
    place_arrays(t->pairs, &t->setup, (char *)(t->pairs + 1));
    t->pairs->told = find_told(t);
    return 0;
}

void trainer_release_pairs(struct zinf_trainer *t)
{
    free(t->pairs);
    t->pairs = NULL;
}

void trainer_pairs_batch(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples,
                         bool of_step, const int64_t *class_rows)
{
    struct chunk_pairs *p = t->pairs;
    const float *references = (const float *)(const void *)batch->inputs[ZINF_INPUT_REFERENCES];
    if (!p)
        return;
    p->batch = *batch;
    p->samples = samples;
    p->of_step = of_step;
    p->class_rows = class_rows;
    for (int64_t i = 0; i < samples; i++) {
        p->labels[own_place(t, i)] = batch->inputs[ZINF_INPUT_LABELS][i];
        p->references[own_place(t, i)] = references ? references[i] : 0;
    }
}

/* ---- a chunk's rows ---- */

struct rows {
    int64_t sample, chunk;
    int64_t first, n; /* of the sequence; n 0: all of them are padding */
    const int32_t *targets;
    int64_t before; /* of these rows, those in front of an answer, which do not count */
};

static int read_targets(const struct zinf_trainer *t, struct rows *r)
{
    const struct chunk_pairs *p = t->pairs;
    const int32_t *all = p->batch.inputs[ZINF_INPUT_TARGETS];
    r->targets = p->targets;
    if (!trainer_reads_rows(&p->batch, ZINF_INPUT_TARGETS)) {
        r->targets = all + r->sample * t->compute.chunk.whole + r->first;
        return 0;
    }
    return trainer_read_rows(&p->batch, ZINF_INPUT_TARGETS, r->sample, r->first, r->n, p->targets);
}

static int find_rows(const struct zinf_trainer *t, int64_t micro, struct rows *r)
{
    const struct setup *s = &t->setup;
    const bool orpo = preference_of(t)->kind == ZINF_PREFERENCE_ORPO;
    *r = (struct rows){.sample = setup_sample(s, micro), .chunk = setup_chunk(s, micro)};
    r->first = r->chunk * s->chunk_seq;
    const int64_t left = t->compute.chunk.whole - r->first;
    r->n = left < 0 ? 0 : left < s->chunk_seq ? left : s->chunk_seq;
    if (orpo && own_place(t, r->sample) % 2 == 0)
        r->before = t->pairs->batch.inputs[ZINF_INPUT_LABELS][r->sample] - r->first;
    return r->n ? read_targets(t, r) : 0;
}

/* Whether the chunk has the row with the sample's score. */
static bool has_score(const struct zinf_trainer *t, int64_t micro)
{
    const int64_t row = t->pairs->class_rows[setup_sample(&t->setup, micro)];
    return row / t->setup.chunk_seq == setup_chunk(&t->setup, micro);
}

bool trainer_pairs_have(const struct zinf_trainer *t, uint32_t value)
{
    const struct zinf_graph *g = t->setup.walk.graph;
    return t->pairs && (value == g->loss || g->values[value].kind == ZINF_VALUE_REPORT);
}

int trainer_pairs_tell(struct zinf_trainer *t, uint32_t value, int64_t micro, const float *told)
{
    struct chunk_pairs *p = t->pairs;
    struct zinf_preference_sums sums = {0};
    struct rows r;
    if (value != p->told)
        return 0;
    const int64_t sample = setup_sample(&t->setup, micro), chunk = setup_chunk(&t->setup, micro);
    int code = 0;
    p->has_told = true;
    if (preference_of(t)->kind == ZINF_PREFERENCE_REWARD) {
        if (has_score(t, micro))
            sums = (struct zinf_preference_sums){.gain = (double)told[0], .count = 1};
    } else if (!(code = find_rows(t, micro, &r)) && r.n) {
        zinf_preference_add(&sums, r.targets, told, NULL, r.before, r.n);
    }
    p->parts[own_place(t, sample) * t->setup.n_chunks + chunk] = sums;
    return code;
}

/* ---- pairs ---- */

static void add_sums(struct zinf_preference_sums *to, const struct zinf_preference_sums *part)
{
    to->gain += part->gain;
    to->count += part->count;
    to->all += part->all;
    to->targets += part->targets;
}

/* The losses of samples from `first` on, those of a micro-batch. */
static void make_some(struct zinf_trainer *t, int64_t first, int64_t n)
{
    const struct zinf_model_preference *s = preference_of(t);
    const struct chunk_pairs *p = t->pairs;
    const void *labels = p->labels + first;
    const struct zinf_preference args = {
        .kind = s->kind,
        .beta = s->beta,
        .margin = s->margin,
        .smoothing = s->smoothing,
        .center = s->center,
        .desirable = s->desirable,
        .undesirable = s->undesirable,
        .pairs = n / 2,
        .labels = labels,
        .margins = s->kind == ZINF_PREFERENCE_REWARD ? labels : NULL,
        .sums = s->given ? p->references + first : NULL,
        .loss = p->losses + first,
        .rewards = p->rewards + first,
        .scale = t->gradient_scale,
    };
    zinf_preference_of_sums(&args, p->sums + first, p->slopes + first);
}

/* Copies what a rank has of its samples to where ranks exchange it, or from there. */
static void copy_known(const struct zinf_trainer *t, uint32_t rank, struct range some, bool back)
{
    struct chunk_pairs *p = t->pairs;
    struct known *known = p->known + rank * n_at_once(t);
    for (int64_t i = 0; i < some.end - some.first; i++) {
        const int64_t at = place_of(t, some.first + i, rank);
        if (back) {
            p->labels[at] = known[i].label;
            p->references[at] = known[i].reference;
        } else {
            known[i] = (struct known){p->labels[at], p->references[at]};
        }
    }
}

static void copy_parts(const struct zinf_trainer *t, uint32_t rank, struct range some, bool back)
{
    const struct setup *s = &t->setup;
    struct chunk_pairs *p = t->pairs;
    struct zinf_preference_sums *shared = p->shared + rank * n_at_once(t) * s->own_chunks;
    const uint32_t sharing = context_axis(s)->world;
    for (int64_t i = 0; i < (some.end - some.first) * s->own_chunks; i++) {
        const int64_t place = rank % sharing * s->own_chunks + i % s->own_chunks;
        const int64_t chunk = zinf_chunk_at(place, s->n_chunks, s->n_parts);
        const int64_t sample = place_of(t, some.first + i / s->own_chunks, rank);
        struct zinf_preference_sums *part = &p->parts[sample * s->n_chunks + chunk];
        if (back)
            *part = shared[i];
        else
            shared[i] = *part;
    }
}

/* Whether the rank has chunks of the same sequences, or samples that these are compared with. */
static bool concerns(const struct zinf_trainer *t, uint32_t rank)
{
    const struct setup *s = &t->setup;
    return in_turn(t) || setup_sharer(s, rank) == setup_sharer(s, data_axis(s)->rank);
}

static int share(struct zinf_trainer *t, struct range some)
{
    const struct zinf_axis *data = data_axis(&t->setup);
    struct zinf_net *net = t->setup.telling;
    struct chunk_pairs *p = t->pairs;
    const uint64_t n = (uint64_t)n_at_once(t);
    const uint64_t chunks = n * (uint64_t)t->setup.own_chunks;
    if (!net)
        return 0;
    copy_known(t, data->rank, some, false);
    copy_parts(t, data->rank, some, false);
    int code = zinf_net_gather(net, p->known + data->rank * n, p->known, n * sizeof *p->known);
    if (!code)
        code = zinf_net_gather(net, p->shared + data->rank * chunks, p->shared,
                               chunks * sizeof *p->shared);
    for (uint32_t rank = 0; !code && rank < data->world; rank++)
        if (concerns(t, rank)) {
            copy_known(t, rank, some, true);
            copy_parts(t, rank, some, true);
        }
    return code;
}

/* The losses of the samples that come next. */
static int make_next(struct zinf_trainer *t)
{
    struct chunk_pairs *p = t->pairs;
    const int64_t each = t->setup.windows, chunks = t->setup.n_chunks;
    const int64_t own = p->n_made + n_at_once(t);
    const struct range some = {p->n_made, own < p->samples ? own : p->samples};
    const int code = share(t, some);
    const int64_t n = n_until(t, some.end);
    for (int64_t i = n_until(t, some.first); !code && i < n; i++) {
        p->sums[i] = (struct zinf_preference_sums){0};
        for (int64_t k = 0; k < chunks; k++)
            add_sums(&p->sums[i], &p->parts[i * chunks + k]);
    }
    for (int64_t i = n_until(t, some.first); !code && i < n; i += each)
        make_some(t, i, n - i < each ? n - i : each);
    p->n_made = some.end;
    return code;
}

/* Those of this rank's first samples. */
static int make_until(struct zinf_trainer *t, int64_t samples)
{
    int code = 0;
    while (!code && t->pairs->n_made < samples)
        code = make_next(t);
    return code;
}

int trainer_pairs_pull(struct zinf_trainer *t, int64_t micro, float *pulls)
{
    struct chunk_pairs *p = t->pairs;
    const int64_t sample = setup_sample(&t->setup, micro);
    struct rows r;
    int code = make_until(t, sample < p->samples ? sample + 1 : p->samples);
    if (code || sample >= p->samples)
        return code;
    const struct zinf_preference_slopes *slopes = &p->slopes[own_place(t, sample)];
    if (preference_of(t)->kind == ZINF_PREFERENCE_REWARD) {
        pulls[0] = has_score(t, micro) ? slopes->counted : 0;
        return 0;
    }
    code = find_rows(t, micro, &r);
    if (!code && r.n)
        zinf_preference_spread(slopes, r.targets, r.before, r.n, pulls);
    return code;
}

/* ---- a program ---- */

/* Nobody tells of chunks without rows. */
static void clear_parts(struct zinf_trainer *t)
{
    const int64_t n = t->setup.n_chunks;
    for (int64_t i = 0; i < t->pairs->samples; i++) {
        struct zinf_preference_sums *parts = t->pairs->parts + own_place(t, i) * n;
        const int64_t visited = trainer_visited(t, i);
        memset(parts + visited, 0, (uint64_t)(n - visited) * sizeof *parts);
    }
}

void trainer_pairs_begin(struct zinf_trainer *t)
{
    if (t->pairs) {
        t->pairs->has_told = false;
        t->pairs->n_made = 0;
        clear_parts(t);
    }
}

int trainer_pairs_end(struct zinf_trainer *t, struct chunk_sum *sum)
{
    struct chunk_pairs *p = t->pairs;
    const int code = p->has_told ? make_until(t, p->samples) : 0;
    const int64_t n = code || !p->has_told || !trainer_pairs_count(t) ? 0 : n_samples(t);
    for (int64_t i = 0; i < n; i++) {
        sum->in_order += (double)p->losses[i];
        exact_add(&sum->exact, (double)p->losses[i]);
    }
    return code;
}

bool trainer_pairs_count(const struct zinf_trainer *t)
{
    return in_turn(t) ? !data_axis(&t->setup)->rank : !context_axis(&t->setup)->rank;
}

const float *trainer_pairs_rewards(const struct zinf_trainer *t, int64_t *n)
{
    *n = n_samples(t);
    return t->pairs->rewards;
}

const int32_t *trainer_pairs_labels(const struct zinf_trainer *t)
{
    return t->pairs->labels;
}

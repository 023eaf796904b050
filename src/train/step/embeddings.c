/*
 * embeddings: the loss of a step's samples by the similarity of their embeddings, and its
 * gradients. A row of data is an anchor, the sample that belongs to it (the positive), and perhaps
 * others that do not (negatives). An anchor's loss is the cross-entropy of its positive among the
 * positives and negatives of all rows of the step (van den Oord et al., arXiv 1807.03748; in-batch
 * negatives). A first sweep makes the embeddings of all micro-batches, ranks exchange them, and
 * each rank computes the whole loss here. The backward sweep then has the gradients of its own
 * samples as inputs (Gao et al., arXiv 2101.06983). Dropout depends on a sample's number, so it is
 * the same in both sweeps. Sums are in double and in one order, so results do not depend on
 * threads or ranks.
 *
 * Of a sequence in chunks each chunk tells the sum of its rows (embedded.c).
 */
#include "train/trainer.h"

#include <math.h>
#include <stdlib.h>

/* Columns that a sum goes over at a time. */
#define SLAB 256

/* Embeddings of n rows of `together` samples, with loss and gradients. */
struct likeness {
    const float *at; /* [n][together][cols], of length 1 */
    int64_t n, together, cols;
    double scale;
    int threads;
    float *shares;  /* [n][candidates]: derivative of an anchor's loss by its logits */
    double *losses; /* [n] */
};

static int64_t candidates_of(const struct likeness *l)
{
    return l->n * (l->together - 1);
}

/* Candidate c: first the positives, in the order of rows; then the negatives, one of each row at a
 * time. */
static const float *candidate(const struct likeness *l, int64_t c)
{
    return l->at + (c % l->n * l->together + 1 + c / l->n) * l->cols;
}

static const float *anchor(const struct likeness *l, int64_t i)
{
    return l->at + i * l->together * l->cols;
}

static double dot(const float *a, const float *b, int64_t n)
{
    double sums[8] = {0}, sum = 0;
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        for (int k = 0; k < 8; k++)
            sums[k] += (double)a[i + k] * (double)b[i + k];
    for (; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    for (int k = 0; k < 8; k++)
        sum += sums[k];
    return sum;
}

static void compare_anchor(const struct likeness *l, int64_t i)
{
    const int64_t m = candidates_of(l);
    float *row = l->shares + i * m;
    const double own = l->scale * dot(anchor(l, i), candidate(l, i), l->cols);
    double most = -INFINITY, sum = 0;
    for (int64_t c = 0; c < m; c++) {
        const double logit = l->scale * dot(anchor(l, i), candidate(l, c), l->cols);
        row[c] = (float)logit;
        most = fmax(most, (double)row[c]);
    }
    for (int64_t c = 0; c < m; c++)
        sum += exp((double)row[c] - most);
    for (int64_t c = 0; c < m; c++)
        row[c] = (float)(exp((double)row[c] - most) / sum);
    row[i] -= 1;
    l->losses[i] = log(sum) + most - own;
}

/* The gradient of a sample's unit vector: of an anchor over its candidates, of a candidate over the
 * anchors. */
static void pull(const struct likeness *l, int64_t sample, float *out)
{
    const int64_t i = sample / l->together, place = sample % l->together, m = candidates_of(l);
    for (int64_t first = 0; first < l->cols; first += SLAB) {
        const int64_t n = l->cols - first < SLAB ? l->cols - first : SLAB;
        double sums[SLAB] = {0};
        for (int64_t other = 0; other < (place ? l->n : m); other++) {
            const float *x = (place ? anchor(l, other) : candidate(l, other)) + first;
            const float share =
                place ? l->shares[other * m + (place - 1) * l->n + i] : l->shares[i * m + other];
            for (int64_t k = 0; k < n; k++)
                sums[k] += (double)share * (double)x[k];
        }
        for (int64_t k = 0; k < n; k++)
            out[first + k] = (float)(l->scale * sums[k]);
    }
}

static void compare(const struct likeness *l)
{
#pragma omp parallel for num_threads(l->threads) schedule(static)
    for (int64_t i = 0; i < l->n; i++)
        compare_anchor(l, i);
}

/* ---- of a trainer ---- */

/* How many samples one row of the data has. */
static int64_t together_of(const struct setup *s)
{
    return s->options.together > 1 ? s->options.together : 1;
}

/* Memory of an input of a micro-batch, from which the device gets it. */
static float *input_of(const struct zinf_trainer *t, enum zinf_input input, int64_t micro)
{
    const struct walk *w = &t->setup.walk;
    uint32_t v = 0;
    while (w->graph->values[v].kind != ZINF_VALUE_INPUT || w->graph->values[v].input != input)
        v++;
    const uint64_t before = (uint64_t)t->setup.n_micro * w->values[v].bytes_before;
    return (float *)(void *)host_at(&t->plan, t->plan.at.h_inputs + before +
                                                  (uint64_t)micro * w->values[v].bytes);
}

/* The sum of a sample's rows that a forward sweep has left. */
static const float *sum_of(const struct zinf_trainer *t, int64_t sample)
{
    const struct zinf_graph *g = t->setup.graph;
    const int64_t micro = sample / t->setup.batch;
    uint64_t n;
    if (t->embedded)
        return trainer_embedded_sum(t, sample);
    return trainer_losses_of(t, g->embeddings, micro, t->setup.batch, &n) +
           sample % t->setup.batch * g->values[g->embeddings].cols;
}

/* The number of rows in that sum. */
static double rows_of(const struct zinf_trainer *t, int64_t sample)
{
    const int64_t seq = t->compute.seq, batch = t->setup.batch;
    double n = 0;
    if (t->embedded)
        return (double)trainer_embedded_rows(t, sample);
    const float *rows = input_of(t, ZINF_INPUT_POOLED, sample / batch) + sample % batch * seq;
    for (int64_t i = 0; i < seq; i++)
        n += (double)rows[i];
    return n;
}

void trainer_read_embedding(const struct zinf_trainer *t, int64_t sample, float *out)
{
    const int64_t cols = t->setup.graph->values[t->setup.graph->embeddings].cols;
    const float *sum = sum_of(t, sample);
    const double n = rows_of(t, sample);
    for (int64_t k = 0; k < cols; k++)
        out[k] = (float)((double)sum[k] / (n > 0 ? n : 1));
}

/* Scales the sum to length 1 and returns its length. Taking the mean first would give the same. */
static double make_unit(const float *sum, float *out, int64_t cols)
{
    const double length = sqrt(dot(sum, sum, cols));
    for (int64_t k = 0; k < cols; k++)
        out[k] = length > 0 ? (float)((double)sum[k] / length) : 0;
    return length;
}

/* Turns the gradient of the unit vector into that of the sum: the part across the vector, divided
 * by the length. */
static void turn(float *pull, const float *unit, double length, int64_t cols)
{
    const double along = dot(pull, unit, cols);
    for (int64_t k = 0; k < cols; k++)
        pull[k] = length > 0 ? (float)(((double)pull[k] - along * (double)unit[k]) / length) : 0;
}

/* ---- which of all samples a rank's are ---- */

/* Whether groups of ranks that share sequences take samples in turn. */
static bool has_turns(const struct setup *s)
{
    return goes_in_turn(s) && setup_sharers(s) > 1;
}

/* What it takes to compare `samples` samples of each rank. */
static uint64_t room_bytes(const struct setup *s, int64_t samples, const struct likeness *l)
{
    const uint64_t shares = (uint64_t)l->n * (uint64_t)candidates_of(l);
    const uint64_t units = (uint64_t)(samples * l->cols), all = (uint64_t)(l->n * l->together);
    const uint64_t told = has_turns(s) ? data_axis(s)->world : 1;
    return (shares + units * told + all * (uint64_t)l->cols) * sizeof(float) +
           ((uint64_t)l->n + (uint64_t)samples) * sizeof(double);
}

/* Allocates memory for that, in place of earlier memory. */
static int take_room(struct zinf_trainer *t, int64_t samples, struct likeness *l)
{
    const uint64_t bytes = room_bytes(&t->setup, samples, l);
    if (bytes > t->likeness_bytes) {
        free(t->likeness);
        t->likeness = malloc(bytes);
        t->likeness_bytes = t->likeness ? bytes : 0;
    }
    if (!t->likeness)
        return zinf_fail(-ENOMEM, "no memory to compare %lld embeddings with each other",
                         (long long)(l->n * l->together));
    l->losses = t->likeness;
    return 0;
}

/* The parts of that memory. */
struct parts {
    double *lengths; /* [samples] */
    float *own;      /* [samples][cols]: unit vectors */
    float *all;      /* of all ranks */
};

/* Collects the unit vectors of all ranks, in the order of samples. */
static int collect(struct zinf_trainer *t, int64_t samples, const struct likeness *l,
                   const struct parts *p)
{
    const struct zinf_axis *data = data_axis(&t->setup);
    const uint64_t bytes = (uint64_t)(samples * l->cols) * sizeof(float);
    const bool turns = has_turns(&t->setup);
    float *told = turns ? p->own - data->rank * samples * l->cols : p->all;
    const int code = zinf_net_gather(data->net, p->own, told, bytes);
    for (uint32_t rank = 0; !code && turns && rank < data->world; rank++)
        for (int64_t i = 0; i < samples; i++)
            memcpy(p->all + setup_place(&t->setup, rank, samples, i) * l->cols,
                   told + (rank * samples + i) * l->cols, (size_t)l->cols * sizeof(float));
    return code;
}

/* Makes the unit vectors of this rank's samples and collects those of all ranks; shared: there are
 * others. */
static int gather(struct zinf_trainer *t, int64_t samples, bool shared, struct likeness *l,
                  struct parts *p)
{
    int code = take_room(t, samples, l);
    if (code)
        return code;
    const bool turns = has_turns(&t->setup);
    const int64_t units = samples * l->cols;
    p->lengths = l->losses + l->n;
    p->all = (float *)(void *)(p->lengths + samples);
    l->shares = p->all + l->n * l->together * l->cols;
    p->own = l->shares + l->n * candidates_of(l);
    if (turns) /* those of all ranks, this one's among them */
        p->own += data_axis(&t->setup)->rank * units;
    for (int64_t i = 0; i < samples; i++)
        p->lengths[i] = make_unit(sum_of(t, i), p->own + i * l->cols, l->cols);
    if (shared && setup_sharers(&t->setup) > 1)
        code = collect(t, samples, l, p);
    else
        memcpy(p->all, p->own, (size_t)units * sizeof(float));
    l->at = p->all;
    if (!code)
        compare(l);
    return code;
}

static struct likeness likeness_of(const struct setup *s, int64_t samples)
{
    const struct zinf_graph *g = s->graph;
    return (struct likeness){
        .together = together_of(s),
        .n = samples / together_of(s),
        .cols = g->values[g->embeddings].cols,
        .scale = s->config->embedding_scale,
        .threads = s->cpu ? s->cpu->n_threads : 1,
    };
}

uint64_t likeness_bytes(const struct setup *s)
{
    const int64_t samples = has_backward(s) ? setup_samples(s) : s->windows;
    const struct likeness l =
        likeness_of(s, samples * (has_backward(s) ? (int64_t)setup_sharers(s) : 1));
    return s->graph->embeddings && l.together > 1 ? room_bytes(s, samples, &l) : 0;
}

/* Copies the gradients of this rank's samples to the inputs of the backward sweep. */
static void give_pulls(struct zinf_trainer *t, const struct likeness *l, const struct parts *p,
                       int64_t samples)
{
    const int64_t each = t->setup.batch;
    const uint32_t rank = data_axis(&t->setup)->rank;
#pragma omp parallel for num_threads(l->threads) schedule(static)
    for (int64_t i = 0; i < samples; i++) {
        float *out = t->embedded ? trainer_embedded_pulls(t, i)
                                 : input_of(t, ZINF_INPUT_PULLS, i / each) + i % each * l->cols;
        float *loss = t->embedded ? trainer_embedded_loss(t, i)
                                  : input_of(t, ZINF_INPUT_SAMPLE_LOSSES, i / each) + i % each;
        const int64_t at = setup_place(&t->setup, rank, samples, i);
        pull(l, at, out);
        turn(out, p->own + i * l->cols, p->lengths[i], l->cols);
        *loss = at % l->together ? 0 : (float)l->losses[at / l->together];
    }
}

int trainer_pull(struct zinf_trainer *t)
{
    const int64_t samples = setup_samples(&t->setup);
    struct likeness l = likeness_of(&t->setup, samples * (int64_t)setup_sharers(&t->setup));
    struct parts p;
    int code = l.together > 1
                   ? gather(t, samples, true, &l, &p)
                   : zinf_fail(-EINVAL, "embeddings are trained with rows of two texts "
                                        "or more, an anchor and a positive: these rows have one");
    if (!code)
        give_pulls(t, &l, &p, samples);
    return code;
}

int trainer_likeness(struct zinf_trainer *t, int64_t samples, double *sum, uint64_t *count)
{
    struct likeness l = likeness_of(&t->setup, samples);
    struct parts p;
    int code = l.together < 2
                   ? zinf_fail(-EINVAL, "the loss of embeddings needs rows of two texts or more")
                   : gather(t, samples, false, &l, &p);
    *sum = 0;
    *count = (uint64_t)l.n;
    for (int64_t i = 0; !code && i < l.n; i++)
        *sum += l.losses[i];
    return code;
}

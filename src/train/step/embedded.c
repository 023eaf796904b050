/*
 * embedded: embeddings of samples whose sequences come in chunks. Each chunk tells the sum of those
 * of its rows that count; the sums of all chunks are one sample's, which embeddings.c compares with
 * others. The gradients that follow are inputs of each chunk, and a sample's loss is one of the
 * first.
 */
#include "train/trainer.h"

#include <stdlib.h>

struct embedded {
    /* [parts][samples][cols]: of the chunks so far; parts are added in their order, so that it does
     * not show which ranks have which. own: those of this rank. */
    double *sums, *own;
    float *whole, *pulls; /* [samples][cols]: of all chunks, once a program has ended; gradients */
    float *losses;        /* [samples] */
    int64_t *rows;        /* [samples]: rows without padding */
    uint64_t n, cols;
    uint64_t own_bytes, n_parts;
    bool has_told; /* in this program */
};

/* Places the arrays behind base; NULL: says only what they take. */
static uint64_t place_arrays(struct embedded *e, const struct setup *s, char *base)
{
    const struct zinf_graph *g = s->graph;
    uint64_t at = 0;
    *e = (struct embedded){.n = (uint64_t)setup_samples(s),
                           .cols = (uint64_t)g->values[g->embeddings].cols,
                           .n_parts = (uint64_t)s->n_parts};
    const uint64_t elems = e->n * e->cols;
    e->sums = told_array(base, &at, e->n_parts * elems * sizeof *e->sums);
    e->whole = told_array(base, &at, elems * sizeof *e->whole);
    e->pulls = told_array(base, &at, elems * sizeof *e->pulls);
    e->losses = told_array(base, &at, e->n * sizeof *e->losses);
    e->rows = told_array(base, &at, e->n * sizeof *e->rows);
    return at;
}

uint64_t embedded_bytes(const struct setup *s)
{
    struct embedded e;
    return s->n_chunks > 1 && s->graph->embeddings ? place_arrays(&e, s, NULL) : 0;
}

int trainer_take_embedded(struct zinf_trainer *t)
{
    const uint64_t bytes = embedded_bytes(&t->setup);
    if (!bytes)
        return 0;
    struct embedded *e = t->embedded = calloc(1, sizeof *e + bytes);
    if (!e)
        return zinf_fail(-ENOMEM, "no memory for embeddings");
    place_arrays(e, &t->setup, (char *)(e + 1));
    e->own_bytes = (uint64_t)setup_own_parts(&t->setup) * e->n * e->cols * sizeof *e->sums;
    e->own = e->sums + context_axis(&t->setup)->rank * (e->own_bytes / sizeof *e->sums);
    return 0;
}

void trainer_release_embedded(struct zinf_trainer *t)
{
    free(t->embedded);
    t->embedded = NULL;
}

void trainer_embedded_batch(struct zinf_trainer *t, const struct zinf_batch *batch, int64_t samples)
{
    const int32_t *segments = batch->inputs[ZINF_INPUT_SEGMENTS];
    const int64_t seq = t->compute.chunk.whole;
    struct embedded *e = t->embedded;
    if (!e)
        return;
    memset(e->pulls, 0, e->n * e->cols * sizeof *e->pulls);
    memset(e->losses, 0, e->n * sizeof *e->losses);
    memset(e->rows, 0, e->n * sizeof *e->rows);
    for (int64_t i = 0; i < samples; i++) {
        const int32_t *own = segments ? segments + i * seq : NULL;
        while (e->rows[i] < seq && (!own || own[e->rows[i]]))
            e->rows[i]++;
    }
}

void trainer_embedded_begin(struct zinf_trainer *t)
{
    struct embedded *e = t->embedded;
    if (!e)
        return;
    memset(e->own, 0, e->own_bytes);
    e->has_told = false;
}

int trainer_embedded_end(struct zinf_trainer *t)
{
    struct embedded *e = t->embedded;
    const uint64_t n = e ? e->n * e->cols : 0;
    int code = 0;
    struct zinf_net *net = context_axis(&t->setup)->net;
    if (e && e->has_told && net)
        code = zinf_net_gather(net, e->own, e->sums, e->own_bytes);
    for (uint64_t i = 0; !code && i < n; i++) {
        double sum = 0;
        for (uint64_t part = 0; part < e->n_parts; part++)
            sum += e->sums[part * n + i];
        e->whole[i] = (float)sum;
    }
    return code;
}

bool trainer_embedded_have(const struct zinf_trainer *t, uint32_t value)
{
    return t->embedded && value == t->setup.walk.graph->embeddings;
}

/* The chunks of a part come in the same order on any number of ranks, so sums have the same bits.
 */
void trainer_embedded_tell(struct zinf_trainer *t, int64_t micro, const float *told)
{
    const struct setup *s = &t->setup;
    struct embedded *e = t->embedded;
    const uint64_t part = (uint64_t)(micro % s->own_chunks * setup_own_parts(s) / s->own_chunks);
    double *sum = e->own + (part * e->n + (uint64_t)setup_sample(s, micro)) * e->cols;
    for (uint64_t k = 0; k < e->cols; k++)
        sum[k] += (double)told[k];
    e->has_told = true;
}

/* Whether a row of a sample is part of its embedding. */
static bool is_pooled(const struct zinf_trainer *t, int64_t sample, int64_t row)
{
    const enum zinf_pooling pooling = t->setup.options.pooling;
    const int64_t rows = t->embedded->rows[sample];
    return row < rows &&
           (pooling == ZINF_POOL_MEAN || row == (pooling == ZINF_POOL_FIRST ? 0 : rows - 1));
}

bool trainer_embedded_read(const struct zinf_trainer *t, enum zinf_input input, int64_t micro,
                           float *to)
{
    const struct embedded *e = t->embedded;
    const int64_t sample = setup_sample(&t->setup, micro), seq = t->setup.chunk_seq;
    const int64_t chunk = setup_chunk(&t->setup, micro);
    if (!e || (input != ZINF_INPUT_POOLED && input != ZINF_INPUT_PULLS &&
               input != ZINF_INPUT_SAMPLE_LOSSES))
        return false;
    for (int64_t i = 0; input == ZINF_INPUT_POOLED && i < seq; i++)
        to[i] = is_pooled(t, sample, chunk * seq + i);
    if (input == ZINF_INPUT_PULLS)
        memcpy(to, e->pulls + (uint64_t)sample * e->cols, e->cols * sizeof *to);
    if (input == ZINF_INPUT_SAMPLE_LOSSES)
        *to = chunk ? 0 : e->losses[sample];
    return true;
}

/* ---- of a sample ---- */

const float *trainer_embedded_sum(const struct zinf_trainer *t, int64_t sample)
{
    return t->embedded->whole + (uint64_t)sample * t->embedded->cols;
}

int64_t trainer_embedded_rows(const struct zinf_trainer *t, int64_t sample)
{
    return t->setup.options.pooling == ZINF_POOL_MEAN ? t->embedded->rows[sample] : 1;
}

float *trainer_embedded_pulls(const struct zinf_trainer *t, int64_t sample)
{
    return t->embedded->pulls + (uint64_t)sample * t->embedded->cols;
}

float *trainer_embedded_loss(const struct zinf_trainer *t, int64_t sample)
{
    return t->embedded->losses + sample;
}

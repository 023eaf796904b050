/*
 * emit_pieces: where a program of many chunks is cut into pieces, and what lives on in the next
 * one. A sequence of n chunks has operations for n * n / 2 pairs of them, so that a program that is
 * kept whole would outgrow what it works on.
 */
#include "train/step/emit.h"

#include <stdlib.h>

/* Of a piece: some MiB. Lanes stand still for a moment between two of them. */
#define PIECE_OPS 16384

/* Whatever several operations of a stage, or several stages, may still look at. */
static size_t most_living(const struct emitter *e)
{
    size_t n = e->xs.n + e->kept.n + e->carried.n + e->d_carried.n +
               2 * (size_t)e->p->setup->n_units + e->walk->most_units * (MAX_PARTIAL_SUMS + 1);
    for (uint32_t size = 0; size < SLOT_SIZES; size++)
        n += e->slots[size].n;
    return n;
}

static void keep_ring(struct emitter *e, const struct ring *ring, uint32_t *n)
{
    for (uint32_t i = 0; i < ring->n; i++)
        if (ring->buffer[i] != ZINF_NO_BUFFER)
            e->lives_on[(*n)++] = ring->buffer[i];
}

/* Sums that micro-batches still to come add to. */
static void keep_sums(struct emitter *e, uint32_t *n)
{
    for (uint32_t i = 0; i < e->walk->most_units; i++) {
        const struct contribution *of = &e->contributions[i];
        for (uint32_t k = 0; k < of->n_sums; k++)
            e->lives_on[(*n)++] = of->sums[k].resource;
        if (of->n_sums && of->sums[of->n_sums - 1].onto)
            e->lives_on[(*n)++] = of->onto.resource;
    }
    for (uint32_t u = 0; u < e->p->setup->n_units; u++)
        e->lives_on[(*n)++] = e->swept_sums[u].resource;
}

static uint32_t piece_ops(const struct emitter *e)
{
    const uint32_t asked = e->p->setup->options.piece_ops;
    return asked ? asked : PIECE_OPS;
}

void emit_cut(struct emitter *e)
{
    uint32_t n = 0;
    if (e->code || !e->cuts || e->program->n_ops < piece_ops(e))
        return;
    if (!e->lives_on)
        e->lives_on = calloc(most_living(e), sizeof *e->lives_on);
    if (!e->lives_on) {
        e->code = zinf_fail(-ENOMEM, "no memory for a program in pieces");
        return;
    }
    for (uint32_t size = 0; size < SLOT_SIZES; size++)
        keep_ring(e, &e->slots[size], &n);
    keep_ring(e, &e->xs, &n);
    keep_ring(e, &e->kept, &n);
    keep_ring(e, &e->carried, &n);
    keep_ring(e, &e->d_carried, &n);
    keep_sums(e, &n);
    for (uint32_t u = 0; u < e->p->setup->n_units; u++)
        if (emit_is_staged(e, u))
            e->lives_on[n++] = e->staged[u];
    emit_carried_cut(e);
    e->code = zinf_program_cut(e->program, e->n_fixed, e->lives_on, n, e->taker);
}

/*
 * setup_updaters: which of the ranks that share matrices (zinf.mesh.tensor) updates which. An
 * update of a whole matrix is one computation, for which they give each other their parts
 * (rules/matrix_ranks.c); a unit's matrices are dealt to them, the costliest first, each to the
 * rank that has least to compute so far. Ranks along DATA have other matrices of a unit, and all of
 * them are dealt so. Every rank deals alike, since parts of all ranks have the same shapes.
 */
#include "train/setup_rates.h"

#include <stdlib.h>

struct dealing {
    const struct setup *setup;
    const struct zinf_unit *unit;
    uint32_t number, ranks;
    uint32_t *updaters; /* [pieces] */
    double *work;       /* [data ranks][ranks]: dealt so far */
    uint64_t slice_elems;
};

static double cost_of(const struct dealing *d, uint32_t tensor, uint32_t piece)
{
    const struct zinf_tensor *t = &d->unit->tensors[tensor];
    const struct optimizer *of = setup_optimizer_of(d->setup, d->number, tensor);
    const struct matrix_shape shape = rule_matrix_shape(t, &t->pieces[piece]);
    const struct rule_work work = of->rule->matrix_work(of, &shape);
    return work.flops + work.loops;
}

static bool is_dealt(const struct dealing *d, uint32_t tensor, uint32_t piece)
{
    const struct optimizer *of = setup_optimizer_of(d->setup, d->number, tensor);
    return of->rule->grain == GRAIN_MATRICES && rule_is_shared(d->unit, tensor, piece) &&
           rule_leads(d->unit, tensor, piece);
}

/* The costliest that is left, the first of these. False: there is none. */
static bool next_matrix(const struct dealing *d, uint32_t *tensor, uint32_t *piece, double *most)
{
    uint32_t n = 0;
    *most = 0;
    for (uint32_t i = 0; i < d->unit->n_tensors; i++)
        for (uint32_t k = 0; k < d->unit->tensors[i].n_pieces; k++, n++) {
            if (d->updaters[n] != EVERY_RANK || !is_dealt(d, i, k) || cost_of(d, i, k) <= *most)
                continue;
            *most = cost_of(d, i, k);
            *tensor = i;
            *piece = k;
        }
    return *most > 0;
}

/* Units begin with another rank each, so that what is uneven in one evens out over all. */
static uint32_t least_busy(const struct dealing *d, const double *work)
{
    uint32_t least = d->number % d->ranks;
    for (uint32_t i = 1; i < d->ranks; i++) {
        const uint32_t rank = (d->number + i) % d->ranks;
        least = work[rank] < work[least] ? rank : least;
    }
    return least;
}

static void deal_unit(const struct dealing *d)
{
    uint32_t tensor, piece;
    double cost;
    while (next_matrix(d, &tensor, &piece, &cost)) {
        const struct zinf_tensor *t = &d->unit->tensors[tensor];
        const uint64_t at = rule_piece_at(t, piece);
        double *work = d->work + at / d->slice_elems * d->ranks;
        const uint32_t rank = least_busy(d, work);
        work[rank] += cost;
        d->updaters[rule_piece_number(d->unit, tensor, piece)] = rank;
    }
}

/* A unit that has matrices has been cut for ranks along DATA when its tensors were placed
 * (setup_matrices.c). */
static int deal_in_unit(struct setup *s, uint32_t u)
{
    const uint32_t slices = data_axis(s)->world, ranks = tensor_axis(s)->world;
    const struct zinf_unit *unit = &s->graph->units[u];
    const uint32_t n = rule_piece_number(unit, unit->n_tensors, 0);
    struct dealing d = {s, unit, u, ranks, .slice_elems = unit->elems / slices};
    d.updaters = s->updaters[u] = malloc((n + 1) * sizeof *d.updaters);
    d.work = calloc((size_t)slices * ranks, sizeof *d.work);
    const bool room = d.updaters && d.work;
    for (uint32_t i = 0; room && i < n; i++)
        d.updaters[i] = EVERY_RANK;
    if (room)
        deal_unit(&d);
    free(d.work);
    return room ? 0 : zinf_fail(-ENOMEM, "no memory for the ranks of %u matrices", n);
}

int setup_deal_updates(struct setup *s)
{
    int code = 0;
    if (!trains(s) || s->grain != GRAIN_MATRICES || tensor_axis(s)->world < 2)
        return 0;
    s->updaters = calloc(s->n_units, sizeof *s->updaters);
    if (!s->updaters)
        return zinf_fail(-ENOMEM, "no memory for the ranks of matrices");
    for (uint32_t u = 0; !code && u < s->n_units; u++)
        if (unit_trains(s, u))
            code = deal_in_unit(s, u);
    return code;
}

void setup_free_updaters(struct setup *s)
{
    for (uint32_t u = 0; s->updaters && u < s->n_units; u++)
        free(s->updaters[u]);
    free(s->updaters);
    s->updaters = NULL;
}

uint32_t setup_matrix_updater(const struct setup *s, uint32_t unit, uint32_t tensor, uint32_t piece)
{
    const uint32_t *updaters = s->updaters ? s->updaters[unit] : NULL;
    return updaters ? updaters[rule_piece_number(&s->stages->units[unit], tensor, piece)]
                    : EVERY_RANK;
}

bool setup_unit_meets(const struct setup *s, uint32_t unit)
{
    const uint32_t *updaters = s->updaters ? s->updaters[unit] : NULL;
    const struct zinf_unit *u = updaters ? &s->stages->units[unit] : NULL;
    const uint32_t n = u ? rule_piece_number(u, u->n_tensors, 0) : 0;
    bool meets = false;
    for (uint32_t i = 0; i < n; i++)
        meets |= updaters[i] != EVERY_RANK;
    return meets;
}

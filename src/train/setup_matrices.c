/*
 * setup_matrices: who updates which matrix. An optimizer of matrices needs each of them whole, and
 * ranks along DATA have equal slices of units. So tensors are moved within
 * their unit until no matrix lies in two slices: the rank whose slice it is owns it, keeps its
 * state, and computes its update once; what it computes goes to the others as every slice does.
 * Sums that are to be those of any number of ranks have their tensors moved for one rank, too.
 *
 * A unit is dealt in parts, the costliest first, each to the rank that has least to compute so far.
 * A tensor that holds several matrices one behind the other may be two parts: the end of one slice
 * and the beginning of the next. Slices become as long as the fullest, and the rest is gaps.
 */
#include "train/setup_rates.h"

#include <stdlib.h>

/* Elements: squares are summed in blocks, which are the same ones wherever tensors are moved. */
#define PART_ALIGN ZINF_SUM_BLOCK
#define MAX_WAYS 256 /* to cut a unit's tensors that are compared */
/* What an element costs beside products: the update itself. */
#define ELEMENT_FLOPS 64
#define NONE UINT32_MAX

/* A part of a unit that lies in one slice: a tensor, one side of it, or tensors that lie behind
 * each other and stay so, of other optimizers or because they make up matrices together. */
struct part {
    uint32_t tensor, n_tensors;
    uint64_t first, elems; /* from the tensor's first element on; its gap counts */
    double flops;
    uint32_t slice;
    uint32_t behind; /* the part that it must lie behind, in the slice before; NONE */
};

struct slice {
    double flops;
    uint64_t elems;
    uint32_t next, before; /* slices that a tensor crosses into and comes from; NONE */
    bool placed;
};

struct deal {
    const struct setup *setup;
    const struct zinf_unit *unit;
    uint32_t number;
    uint32_t *cuts, *best; /* [n_tensors]: behind which of its matrices a tensor is cut; 0: not */
    struct part *parts;    /* [2 n_tensors] */
    uint32_t n_parts;
    struct slice *slices; /* [world] */
    uint32_t world;
    uint32_t *order; /* [world]: slices as they follow each other */
    uint64_t *offsets;
};

/* ---- tensors ---- */

static const struct optimizer *of_matrices(const struct deal *d, uint32_t tensor)
{
    const struct optimizer *of = setup_optimizer_of(d->setup, d->number, tensor);
    return of->rule->grain == GRAIN_MATRICES && d->unit->tensors[tensor].n_pieces ? of : NULL;
}

/* Elements of the tensor in front of the end of its piece; 0: another piece lies on both sides, or
 * none behind it. */
static uint64_t cut_behind(const struct zinf_tensor *t, uint32_t piece)
{
    const struct zinf_row_map *own = &t->pieces[piece].rows;
    const uint64_t end = own->flat_first + (own->count - 1) * own->flat_stride + own->rows;
    bool free = !t->joins && end < t->rows && end * t->cols % PART_ALIGN == 0;
    for (uint32_t p = 0; p < t->n_pieces; p++) {
        const struct zinf_row_map *map = &t->pieces[p].rows;
        const uint64_t last = map->flat_first + (map->count - 1) * map->flat_stride + map->rows;
        free &= map->flat_first >= end || last <= end;
    }
    return free ? end * t->cols : 0;
}

/* Of its matrices that begin at elements [first, end). */
static double flops_of(const struct deal *d, uint32_t tensor, uint64_t first, uint64_t end)
{
    const struct zinf_tensor *t = &d->unit->tensors[tensor];
    const struct optimizer *of = of_matrices(d, tensor);
    double flops = ELEMENT_FLOPS * (double)(end - first);
    for (uint32_t p = 0; of && p < t->n_pieces; p++) {
        const uint64_t at = t->pieces[p].rows.flat_first * t->cols;
        const struct matrix_shape shape = rule_matrix_shape(t, &t->pieces[p]);
        if (at >= first && at < end && rule_leads(d->unit, tensor, p))
            flops += of->rule->matrix_work(of, &shape).flops;
    }
    return flops;
}

/* ---- parts ---- */

static struct part *add_part(struct deal *d, uint32_t tensor, uint64_t first, uint64_t end)
{
    d->parts[d->n_parts] = (struct part){.tensor = tensor,
                                         .n_tensors = 1,
                                         .first = first,
                                         .elems = end - first,
                                         .flops = flops_of(d, tensor, first, end),
                                         .behind = NONE};
    return &d->parts[d->n_parts++];
}

static void extend_part(const struct deal *d, struct part *part, uint32_t tensor)
{
    const struct zinf_tensor *t = &d->unit->tensors[tensor];
    const uint64_t before = part->elems;
    part->n_tensors = tensor + 1 - part->tensor;
    part->elems =
        t->offset - d->unit->tensors[part->tensor].offset + zinf_align_up(t->elems, PART_ALIGN);
    part->flops += flops_of(d, tensor, 0, part->elems - before);
}

/* Tensors with decay by their present offsets. */
static void take_parts(struct deal *d)
{
    struct part *run = NULL; /* of tensors that are no matrices, or only together */
    uint32_t run_end = 0;    /* of the latter */
    d->n_parts = 0;
    for (uint32_t i = 0; i < d->unit->n_tensors; i++) {
        const struct zinf_tensor *t = &d->unit->tensors[i];
        if (!t->decay || !t->elems)
            continue;
        const uint64_t cut = d->cuts[i] && of_matrices(d, i) ? cut_behind(t, d->cuts[i] - 1) : 0;
        run = run_end && i >= run_end ? NULL : run;
        if (i < run_end || (!of_matrices(d, i) && run)) {
            extend_part(d, run, i);
            continue;
        }
        if (cut)
            add_part(d, i, 0, cut);
        struct part *part = add_part(d, i, cut, zinf_align_up(t->elems, PART_ALIGN));
        part->behind = cut ? d->n_parts - 2 : NONE;
        run_end = of_matrices(d, i) ? rule_run_end(d->unit, i) : 0;
        run = of_matrices(d, i) && run_end == i + 1 ? NULL : part;
    }
}

static bool comes_first(const struct slice *a, const struct slice *b)
{
    return a->flops < b->flops || (a->flops == b->flops && a->elems < b->elems);
}

/* The costliest that has no slice yet. */
static struct part *next_part(struct deal *d)
{
    struct part *best = NULL;
    for (uint32_t i = 0; i < d->n_parts; i++)
        if (d->parts[i].slice == NONE && (!best || d->parts[i].flops > best->flops))
            best = &d->parts[i];
    return best;
}

/* Whether from slice `a` on, one crossing after the other, one comes to `b`. */
static bool leads_to(const struct deal *d, uint32_t a, uint32_t b)
{
    while (a != NONE && a != b)
        a = d->slices[a].next;
    return a == b;
}

/* A slice has one end and one beginning, and slices that cross into each other form no ring. */
static bool take_crossings(struct deal *d)
{
    for (uint32_t i = 0; i < d->n_parts; i++) {
        if (d->parts[i].behind == NONE)
            continue;
        const uint32_t from = d->parts[d->parts[i].behind].slice, to = d->parts[i].slice;
        if (d->slices[from].next != NONE || d->slices[to].before != NONE || leads_to(d, to, from))
            return false;
        d->slices[from].next = to;
        d->slices[to].before = from;
    }
    return true;
}

static bool deal_parts(struct deal *d)
{
    struct part *part;
    for (uint32_t r = 0; r < d->world; r++)
        d->slices[r] = (struct slice){.next = NONE, .before = NONE};
    for (uint32_t i = 0; i < d->n_parts; i++)
        d->parts[i].slice = NONE;
    while ((part = next_part(d))) {
        uint32_t least = 0;
        for (uint32_t r = 1; r < d->world; r++)
            if (comes_first(&d->slices[r], &d->slices[least]))
                least = r;
        part->slice = least;
        d->slices[least].flops += part->flops;
        d->slices[least].elems += part->elems;
    }
    return take_crossings(d);
}

/* Of the longest computation and the longest slice, over what they would be if all were alike. */
static double unevenness(const struct deal *d)
{
    double flops = 0, elems = 0, most_flops = 0, most_elems = 0;
    for (uint32_t r = 0; r < d->world; r++) {
        const struct slice *s = &d->slices[r];
        flops += s->flops;
        elems += (double)s->elems;
        most_flops = s->flops > most_flops ? s->flops : most_flops;
        most_elems = (double)s->elems > most_elems ? (double)s->elems : most_elems;
    }
    return elems > 0 ? (double)d->world * (most_flops / flops + most_elems / elems) : 0;
}

/* The next way to cut tensors, as a number whose digits are theirs. False: that was the last. */
static bool next_way(struct deal *d)
{
    for (uint32_t i = 0; i < d->unit->n_tensors; i++) {
        const struct zinf_tensor *t = &d->unit->tensors[i];
        do
            d->cuts[i]++;
        while (d->cuts[i] < t->n_pieces && !cut_behind(t, d->cuts[i] - 1));
        if (t->decay && of_matrices(d, i) && d->cuts[i] < t->n_pieces)
            return true;
        d->cuts[i] = 0;
    }
    return false;
}

/* The most even way. */
static void choose_way(struct deal *d)
{
    const size_t bytes = d->unit->n_tensors * sizeof *d->cuts;
    double least = 0;
    bool found = false;
    memset(d->cuts, 0, bytes);
    for (int way = 0; way < MAX_WAYS; way++) {
        take_parts(d);
        const bool can = deal_parts(d);
        const double value = unevenness(d);
        if (can && (!found || value < least)) {
            memcpy(d->best, d->cuts, bytes);
            least = value;
            found = true;
        }
        if (!next_way(d))
            break;
    }
    memcpy(d->cuts, d->best, bytes);
    take_parts(d);
    deal_parts(d);
}

/* ---- places ---- */

/* Slices that cross into each other follow each other; chains of them begin with another one in
 * each unit, so that what is uneven in one evens out over all. */
static void order_slices(struct deal *d)
{
    uint32_t n = 0;
    for (uint32_t k = 0; k < d->world; k++) {
        uint32_t r = (d->number + k) % d->world;
        if (d->slices[r].before != NONE)
            continue;
        for (; r != NONE; r = d->slices[r].next)
            d->order[n++] = r;
    }
}

/* The part of a slice that is one side of a cut tensor: the second side, or the first. */
static struct part *crossing_part(struct deal *d, uint32_t slice, bool second)
{
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const uint32_t behind = d->parts[i].behind;
        if (behind == NONE)
            continue;
        struct part *part = second ? &d->parts[i] : &d->parts[behind];
        if (part->slice == slice)
            return part;
    }
    return NULL;
}

/* `at`: where the part begins. */
static void put_part(struct deal *d, const struct part *part, uint64_t at)
{
    const uint64_t old = d->unit->tensors[part->tensor].offset;
    for (uint32_t i = part->tensor; i < part->tensor + part->n_tensors; i++)
        if (d->unit->tensors[i].decay && d->unit->tensors[i].elems)
            d->offsets[i] = at - part->first + (d->unit->tensors[i].offset - old);
}

/* From `begin` on; returns the end of all but what lies at the slice's own end: that tensor has its
 * place by its other side. */
static uint64_t put_slice(struct deal *d, uint32_t slice, uint64_t begin)
{
    const struct part *head = crossing_part(d, slice, true), *tail = crossing_part(d, slice, false);
    uint64_t at = begin;
    if (head)
        put_part(d, head, at);
    at += head ? head->elems : 0;
    for (uint32_t i = 0; i < d->n_parts; i++) {
        const struct part *part = &d->parts[i];
        if (part->slice != slice || part == head || part == tail)
            continue;
        put_part(d, part, at);
        at += zinf_align_up(part->elems, PART_ALIGN);
    }
    return at;
}

/* Tensors without decay lie behind all others, in the last slice. */
static struct zinf_unit_places place_parts(struct deal *d)
{
    const uint64_t rest = d->unit->elems - d->unit->decay_elems;
    uint64_t most = 0, end = 0;
    order_slices(d);
    for (uint32_t k = 0; k < d->world; k++) {
        const struct part *tail = crossing_part(d, d->order[k], false);
        end = put_slice(d, d->order[k], 0) + (tail ? tail->elems : 0);
        end = k + 1 < d->world ? end : end + rest;
        most = end > most ? end : most;
    }
    const uint64_t length = zinf_align_up(most, ZINF_LAYOUT_ALIGN);
    for (uint32_t k = 0; k < d->world; k++)
        end = put_slice(d, d->order[k], k * length); /* of the last one: where these begin */
    for (uint32_t i = 0; i < d->unit->n_tensors; i++)
        if (!d->unit->tensors[i].decay && d->unit->tensors[i].elems)
            d->offsets[i] = end + (d->unit->tensors[i].offset - d->unit->decay_elems);
    return (struct zinf_unit_places){d->offsets, end, d->world * length};
}

/* ---- all ---- */

static bool has_matrices(struct deal *d)
{
    bool has = false;
    for (uint32_t i = 0; i < d->unit->n_tensors; i++)
        has |= of_matrices(d, i) != NULL;
    return has;
}

static int init_deal(struct deal *d, uint32_t n_tensors, uint32_t world)
{
    d->world = world;
    d->cuts = calloc(n_tensors + 1, sizeof *d->cuts);
    d->best = calloc(n_tensors + 1, sizeof *d->best);
    d->parts = calloc(2 * (size_t)n_tensors + 1, sizeof *d->parts);
    d->offsets = calloc(n_tensors + 1, sizeof *d->offsets);
    d->slices = calloc(world, sizeof *d->slices);
    d->order = calloc(world, sizeof *d->order);
    bool all = d->cuts && d->best && d->parts && d->offsets && d->slices && d->order;
    return all ? 0 : zinf_fail(-ENOMEM, "no memory for %u tensors' places", n_tensors);
}

static void fini_deal(struct deal *d)
{
    free(d->order);
    free(d->slices);
    free(d->offsets);
    free(d->parts);
    free(d->best);
    free(d->cuts);
}

int setup_place_matrices(struct setup *s)
{
    struct deal d = {.setup = s};
    uint32_t most = 0;
    if (!trains(s) || s->grain != GRAIN_MATRICES || !s->exact)
        return 0;
    for (uint32_t u = 0; u < s->n_units; u++)
        most = s->graph->units[u].n_tensors > most ? s->graph->units[u].n_tensors : most;
    int code = init_deal(&d, most, data_axis(s)->world);
    for (d.number = 0; !code && d.number < s->n_units; d.number++) {
        d.unit = &s->graph->units[d.number];
        if (!unit_trains(s, d.number) || !has_matrices(&d))
            continue;
        for (uint32_t i = 0; i < d.unit->n_tensors; i++)
            d.offsets[i] = d.unit->tensors[i].offset;
        choose_way(&d);
        const struct zinf_unit_places places = place_parts(&d);
        zinf_model_place_unit(s->model, d.number, &places);
    }
    fini_deal(&d);
    return code;
}

uint32_t setup_matrix_owner(const struct setup *s, uint32_t unit, uint32_t tensor, uint32_t piece)
{
    const struct zinf_tensor *t = &s->stages->units[unit].tensors[tensor];
    const uint64_t at = rule_piece_at(t, piece);
    return (uint32_t)(at / all_units(s)->units[unit].slice_elems);
}

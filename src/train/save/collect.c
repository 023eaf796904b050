/*
 * collect: what ranks have in slices goes into files that have whole tensors, each file written by
 * one rank, several at a time. Ranks meet in rounds: in each, every rank says which array of which
 * unit it wants, or that it wants none any more; then all give each other their slices of what was
 * wanted. So files are those of one rank, with which a training goes on under any number of them,
 * and what goes between ranks is each slice once, to the one that writes it.
 */
#include "train/save/transfer.h"

#include <stdio.h>
#include <stdlib.h>

static const struct zinf_axis *savers(const struct source *s)
{
    return &s->setup->savers;
}

/* What a rank says in a round. */
struct wanted {
    int32_t part, code;
    uint32_t unit;
    struct state_kept kept; /* of PART_KEPT */
    bool ends;
    char sentence[240]; /* of a failure */
};

bool collect_is_first(const struct source *s)
{
    return collect_streams(s) && !tensor_axis(s->setup)->rank;
}

bool collect_streams(const struct source *s)
{
    return !s->net || savers(s)->rank == 0;
}

/* ---- what all say ---- */

static int say_on(struct zinf_net *net, struct wanted *own, struct wanted *all)
{
    const struct zinf_net_place at = zinf_net_place(net);
    if (own->code)
        snprintf(own->sentence, sizeof own->sentence, "%s", zinf_error());
    int code = zinf_net_gather(net, own, all, sizeof *own);
    if (code || own->code)
        return code ? code : zinf_fail(own->code, "%s", own->sentence);
    for (uint32_t r = 0; r < at.world; r++)
        if (r != at.rank && all[r].code)
            return zinf_fail(all[r].code, "rank %u: %.*s", r, (int)sizeof own->sentence,
                             all[r].sentence);
    return 0;
}

static int say(const struct source *s, struct wanted *own, struct wanted *all)
{
    return say_on(s->net, own, all);
}

static int agree_on(struct zinf_net *net, int code)
{
    struct wanted own = {.code = code}, *all;
    if (!net)
        return code;
    all = calloc(zinf_net_place(net).world, sizeof *all);
    if (!all) /* the others would wait */
        zinf_net_tell(net, "no memory for what ranks say");
    code = all ? say_on(net, &own, all) : zinf_fail(-ENOMEM, "no memory for what ranks say");
    free(all);
    return code;
}

/* A failure goes along one axis, then, known to all of that, along the other. */
int collect_agree(const struct source *s, int code)
{
    code = agree_on(s->net, code);
    return agree_on(tensor_axis(s->setup)->net, code);
}

/* ---- slices ---- */

struct array {
    char *memory;
    uint64_t slice_bytes;
};

/* Bytes of a rank's slice of what is wanted. */
static uint64_t slice_bytes(const struct source *s, const struct wanted *w)
{
    bool packed = w->part == PART_PARAM && s->setup->dtype != ZINF_DTYPE_F32;
    if (!w->ends && w->part == PART_KEPT)
        return w->kept.n * sizeof(float);
    if (!w->ends && w->part == PART_FACTORS)
        return state_factors_bytes(s->setup, w->unit);
    uint64_t width = packed ? zinf_dtype_bytes(s->setup->dtype) : sizeof(float);
    return w->ends ? 0 : all_units(s->setup)->units[w->unit].slice_elems * width;
}

/* Whether a rank has something to give of the unit: its slice, if it has the unit's stages. What
 * all have whole comes from the first that has it, what is kept of a matrix from its owner. */
static bool gives(const struct source *s, uint32_t rank, const struct wanted *w)
{
    const struct setup *setup = s->setup;
    const struct state_kept *k = &w->kept;
    const uint32_t world = data_axis(setup)->world;
    const bool owns = !is_piped(setup) || setup->owners[w->unit] == rank / world;
    if (w->part == PART_KEPT)
        return owns && rank % world == setup_matrix_owner(setup, k->unit, k->tensor, k->piece);
    return owns && (!whole_state(setup) || rank % world == 0);
}

/* Where in what is wanted a rank's slice is. */
static uint64_t slice_place(const struct source *s, uint32_t rank, const struct wanted *w)
{
    return whole_state(s->setup) || w->part == PART_KEPT
               ? 0
               : rank % data_axis(s->setup)->world * slice_bytes(s, w);
}

static int read_own(const struct source *s, const struct wanted *w, char *memory)
{
    if (w->part == PART_PARAM && !s->setup->sliced && data_axis(s->setup)->world > 1)
        return source_read_slice(s, w->unit, memory);
    if (w->part == PART_KEPT)
        return state_read_kept(s, &w->kept, (float *)(void *)memory);
    if (w->part == PART_FACTORS)
        return state_read_factors(s, w->unit, (float *)(void *)memory);
    if (w->part >= PART_MASTER)
        return state_read(s, w->unit, w->part, (float *)(void *)memory);
    return source_read_unit(
        s, w->unit, w->part == PART_GRAD ? ZINF_PACKABLE_GRAD : ZINF_PACKABLE_PARAM, memory);
}

/* This rank's slices of what the others want, one behind the other, and of what it wants itself in
 * its place. */
static int read_all(const struct source *s, const struct wanted *all, void **out, uint64_t *bytes)
{
    struct region r = source_region(s);
    uint32_t world = savers(s)->world, rank = savers(s)->rank;
    char *given = r.given;
    int code = 0;
    for (uint32_t k = 0; !code && k < world; k++) {
        const struct wanted *w = &all[k];
        bool packed = w->part == PART_PARAM && s->setup->dtype != ZINF_DTYPE_F32;
        const uint64_t slice = slice_bytes(s, w);
        bytes[k] = !w->ends && gives(s, rank, w) ? slice : 0;
        out[k] = given;
        if (k == rank)
            out[k] = (packed ? r.packed : (char *)r.unit) + slice_place(s, rank, w);
        else
            given += bytes[k];
        if (bytes[k])
            code = read_own(s, w, out[k]);
    }
    return code;
}

static int trade(const struct source *s, const struct wanted *all)
{
    uint32_t world = savers(s)->world, rank = savers(s)->rank;
    void **out = calloc(2 * (size_t)world, sizeof *out), **in = out ? out + world : NULL;
    uint64_t *out_bytes = calloc(2 * (size_t)world, sizeof *out_bytes);
    uint64_t *in_bytes = out_bytes ? out_bytes + world : NULL;
    int code = out && out_bytes ? read_all(s, all, out, out_bytes)
                                : zinf_fail(-ENOMEM, "no memory for %u slices", world);
    for (uint32_t k = 0; !code && k < world; k++) {
        const struct wanted *own = &all[rank];
        const uint64_t slice = slice_bytes(s, own);
        in_bytes[k] = !own->ends && gives(s, k, own) ? slice : 0;
        in[k] = (char *)out[rank] + (int64_t)slice_place(s, k, own) -
                (int64_t)slice_place(s, rank, own);
    }
    if (!code)
        code = zinf_net_trade(s->net, &(struct zinf_net_trade){out, in, out_bytes, in_bytes});
    else /* the others wait for it in this very round */
        zinf_net_tell(s->net, zinf_error());
    free(out_bytes);
    free(out);
    return code;
}

/* ---- rounds ---- */

static int meet(const struct source *s, struct wanted *own)
{
    struct collect *c = s->collect;
    bool ends = true;
    int code = say(s, own, c->all);
    for (uint32_t r = 0; r < savers(s)->world; r++)
        ends &= c->all[r].ends;
    c->over = code || ends;
    if (!c->over)
        code = trade(s, c->all);
    c->over |= code != 0;
    return code;
}

int collect_begin(struct source *s, struct collect *c)
{
    *c = (struct collect){0};
    s->collect = c;
    if (!s->net)
        return 0;
    c->all = calloc(savers(s)->world, sizeof *c->all);
    if (!c->all)
        zinf_net_tell(s->net, "no memory for what ranks say");
    c->over = !c->all;
    return c->all ? 0 : zinf_fail(-ENOMEM, "no memory for what ranks say");
}

int collect_part(const struct source *s, uint32_t unit, int part)
{
    struct wanted own = {.part = part, .unit = unit};
    return s->collect->over ? zinf_fail(-ECANCELED, "%s", zinf_error()) : meet(s, &own);
}

int collect_kept(const struct source *s, const struct state_kept *kept)
{
    struct wanted own = {.part = PART_KEPT, .unit = kept->unit, .kept = *kept};
    return s->collect->over ? zinf_fail(-ECANCELED, "%s", zinf_error()) : meet(s, &own);
}

int collect_end(struct source *s, int code)
{
    struct wanted own = {.ends = true, .code = code};
    while (s->net && !s->collect->over)
        code = meet(s, &own);
    free(s->collect->all);
    s->collect = NULL;
    return code;
}

/*
 * net_sum: reduce-scatter. The receiver adds what it gets, in the tree of zinf_tree_sum over the
 * ranks. Where they are in one memory nothing is copied: each adds its part where the others have
 * it. Of several processes with 2^k seats each, a process is a subtree: its seats add up what they
 * have for every rank before anything crosses, which is then a part a process and not one a seat.
 */
#include "net/net_engine.h"

#include <string.h>

static void add(float *restrict sum, const float *restrict part, uint64_t elems)
{
    for (uint64_t i = 0; i < elems; i++)
        sum[i] += part[i];
}

void zinf_tree_sum(float *const *parts, uint32_t n, uint64_t elems)
{
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t i = 0; i + step < n; i += 2 * step)
            add(parts[i], parts[i + step], elems);
}

/* Elements [at, at + elems) of every slice: the others' come into scratch, and are added there. */
static int scatter_piece(struct zinf_net *net, float *whole, float *slice, uint64_t slice_elems,
                         uint64_t at, uint64_t elems)
{
    uint32_t n = net->place.world - 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t peer = net_other(net, i);
        net->parts[peer] = net->scratch + peer * NET_PIECE_ELEMS;
        net->out[i] =
            (struct net_message){whole + peer * slice_elems + at, elems * sizeof(float), peer};
        net->in[i] = (struct net_message){net->parts[peer], elems * sizeof(float), peer};
    }
    net->parts[net->place.rank] = whole + net->place.rank * slice_elems + at;
    int code = net_pass(net, n, n, false);
    if (code)
        return code;
    zinf_tree_sum(net->parts, net->place.world, elems);
    if (net->parts[0] != slice + at)
        memmove(slice + at, net->parts[0], elems * sizeof(float));
    return 0;
}

/* Each adds its part of the others' where they have it, at which nobody else looks. */
static int scatter_lent(struct zinf_net *net, float *whole, float *slice, uint64_t slice_elems)
{
    uint32_t n = net->place.world - 1, own = net->place.rank;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t peer = net_other(net, i);
        net->out[i] =
            (struct net_message){whole + peer * slice_elems, slice_elems * sizeof(float), peer};
        net->in[i] = (struct net_message){NULL, slice_elems * sizeof(float), peer};
    }
    int code = net_borrow(net, n);
    if (code)
        return code;
    for (uint32_t i = 0; i < n; i++)
        net->parts[net->in[i].peer] = net->in[i].data;
    net->parts[own] = whole + own * slice_elems;
    zinf_tree_sum(net->parts, n + 1, slice_elems);
    if (net->parts[0] != slice)
        memmove(slice, net->parts[0], slice_elems * sizeof(float));
    return net_give_back(net, n);
}

/* ---- of several processes with seats ---- */

bool zinf_net_adds_first(const struct zinf_net *net)
{
    uint32_t seats = net->place.seats;
    return seats > 1 && seats < net->place.world && !(seats & (seats - 1));
}

/* Of this process's other seats, which lend each other all of whole; how many they are. */
static uint32_t name_seats(struct zinf_net *net, float *whole, uint64_t slice_elems)
{
    struct zinf_net_place at = net->place;
    uint64_t bytes = at.world / at.seats * slice_elems * sizeof(float); /* that others take */
    for (uint32_t i = 0; i + 1 < at.seats; i++) {
        uint32_t peer = at.rank - at.seat + (at.seat + 1 + i) % at.seats;
        net->out[i] = (struct net_message){whole, bytes, peer};
        net->in[i] = (struct net_message){NULL, bytes, peer};
    }
    return at.seats - 1;
}

/* This seat makes the process's sums for the seats of its number everywhere; in the whole of the
 * first seat, which is returned. */
static float *sum_for_seats(struct zinf_net *net, float *whole, uint64_t slice_elems)
{
    struct zinf_net_place at = net->place;
    float *first = whole;
    for (uint32_t i = 0; i + 1 < at.seats; i++)
        if (net->in[i].peer % at.seats == 0)
            first = net->in[i].data;
    for (uint32_t rank = at.seat; rank < at.world; rank += at.seats) {
        net->parts[at.seat] = whole + rank * slice_elems;
        for (uint32_t i = 0; i + 1 < at.seats; i++)
            net->parts[net->in[i].peer % at.seats] = (float *)net->in[i].data + rank * slice_elems;
        zinf_tree_sum(net->parts, at.seats, slice_elems);
    }
    return first;
}

/* From and to the seats of this number: elements [at, at + elems) of every slice. */
static int cross_piece(struct zinf_net *net, float *sums, float *slice, uint64_t slice_elems,
                       uint64_t at, uint64_t elems)
{
    uint32_t seats = net->place.seats, n = net->place.world / seats - 1;
    uint32_t own = net->place.rank / seats;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t process = (own + 1 + i) % (n + 1), peer = process * seats + net->place.seat;
        net->parts[process] = net->scratch + process * NET_PIECE_ELEMS;
        net->out[i] =
            (struct net_message){sums + peer * slice_elems + at, elems * sizeof(float), peer};
        net->in[i] = (struct net_message){net->parts[process], elems * sizeof(float), peer};
    }
    net->parts[own] = sums + net->place.rank * slice_elems + at;
    int code = net_pass(net, n, n, false);
    if (code)
        return code;
    zinf_tree_sum(net->parts, n + 1, elems);
    if (net->parts[0] != slice + at)
        memmove(slice + at, net->parts[0], elems * sizeof(float));
    return 0;
}

static uint64_t piece_of(uint64_t slice_elems, uint64_t at)
{
    return slice_elems - at < NET_PIECE_ELEMS ? slice_elems - at : NET_PIECE_ELEMS;
}

static int scatter_by_process(struct zinf_net *net, float *whole, float *slice,
                              uint64_t slice_elems)
{
    int code = net_borrow(net, name_seats(net, whole, slice_elems));
    if (code)
        return code;
    float *sums = sum_for_seats(net, whole, slice_elems);
    for (uint64_t at = 0; !code && at < slice_elems; at += NET_PIECE_ELEMS)
        code = cross_piece(net, sums, slice, slice_elems, at, piece_of(slice_elems, at));
    int given = net_give_back(net, name_seats(net, whole, slice_elems));
    return code ? code : given;
}

/* ---- all ---- */

uint64_t zinf_net_sum_bytes(const struct zinf_net *net, uint64_t slice_elems)
{
    const uint32_t together = zinf_net_adds_first(net) ? net->place.seats : 1;
    const uint64_t others = zinf_net_lends(net) ? 0 : net->place.world / together - 1;
    const uint64_t piece = slice_elems < NET_PIECE_ELEMS ? slice_elems : NET_PIECE_ELEMS;
    return others * piece * sizeof(float);
}

int zinf_net_scatter_sum(struct zinf_net *net, float *whole, float *slice, uint64_t slice_elems)
{
    int code = 0;
    if (net->place.world == 1 && slice != whole && slice_elems)
        memmove(slice, whole, slice_elems * sizeof *slice);
    if (zinf_net_lends(net) && slice_elems)
        return scatter_lent(net, whole, slice, slice_elems);
    if (zinf_net_adds_first(net) && slice_elems)
        return scatter_by_process(net, whole, slice, slice_elems);
    for (uint64_t at = 0; !code && net->place.world > 1 && at < slice_elems; at += NET_PIECE_ELEMS)
        code = scatter_piece(net, whole, slice, slice_elems, at, piece_of(slice_elems, at));
    return code;
}

/*
 * nccl_launch: what ranks call of the stand-in's NCCL, as halves; those of two ranks meet in the
 * order of calls, and must be alike.
 */
#include "nccl.h"
#include "order.h"

#include <stdlib.h>

bool nccl_overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return first < second + b_bytes && second < first + a_bytes;
}

void nccl_break(struct nccl_clique *clique)
{
    clique->broken = true;
    for (int r = 0; r < clique->n_ranks; r++)
        if (clique->ranks[r] && !clique->ranks[r]->error)
            clique->ranks[r]->error = ncclInvalidUsage;
}

static const char *name_of(enum nccl_kind kind)
{
    static const char *const names[] = {"ncclAllGather", "ncclBroadcast", "ncclSend", "ncclRecv"};
    return names[kind];
}

/* The so-manieth collective of a communicator is the same on all ranks. */
static void check_collective(const struct nccl_call *call)
{
    struct nccl_clique *clique = call->comm->clique;
    size_t number = call->comm->n_collectives++;
    struct nccl_collective *first = &clique->collectives[number % NCCL_COLLECTIVES];
    if (number == clique->n_collectives) {
        *first = (struct nccl_collective){*call, call->comm->rank};
        clique->n_collectives++;
    }
    if (number + NCCL_COLLECTIVES <= clique->n_collectives)
        return;
    const struct nccl_call *c = &first->call;
    if (c->kind == call->kind && c->count == call->count && c->type == call->type &&
        c->peer == call->peer)
        return;
    standin_fault(cudaErrorInvalidValue,
                  "collective %zu is %s of %zu of type %d, root %d, on rank %d, and %s of %zu of "
                  "type %d, root %d, on rank %d",
                  number, name_of(c->kind), c->count, (int)c->type, c->peer, first->rank,
                  name_of(call->kind), call->count, (int)call->type, call->peer, call->comm->rank);
    nccl_break(clique);
}

static struct nccl_half *add(struct nccl_launch *l, int peer, bool sends, const void *data,
                             const struct nccl_call *call)
{
    struct nccl_half *h = &l->halves[l->n++];
    *h = (struct nccl_half){.launch = l,
                            .data = (char *)(uintptr_t)data,
                            .bytes = call->bytes,
                            .type = call->type,
                            .peer = peer,
                            .sends = sends};
    return h;
}

/* Halves of a pair meet in the order in which they are called. */
static void join(struct nccl_half *h, bool collective)
{
    struct nccl_clique *clique = h->launch->comm->clique;
    int own = h->launch->comm->rank, from = h->sends ? own : h->peer;
    struct nccl_half **list = &clique->alone[from][h->sends ? h->peer : own][collective];
    struct nccl_half *other = *list;
    if (!other || other->sends == h->sends) {
        while (*list)
            list = &(*list)->next;
        *list = h;
        return;
    }
    *list = other->next;
    other->next = NULL;
    other->other = h;
    h->other = other;
    if (other->bytes == h->bytes && other->type == h->type)
        return;
    const struct nccl_half *out = h->sends ? h : other, *in = h->sends ? other : h;
    standin_fault(cudaErrorInvalidValue,
                  "rank %d sends %zu bytes of type %d to rank %d, which receives %zu of type %d",
                  from, out->bytes, (int)out->type, out->peer, in->bytes, (int)in->type);
    nccl_break(clique);
}

static void add_call(struct nccl_launch *l, const struct nccl_call *call)
{
    int own = call->comm->rank, n = call->comm->clique->n_ranks;
    char *place = call->kind == NCCL_ALL_GATHER ? call->to + (size_t)own * call->bytes : call->to;
    bool roots =
        call->kind == NCCL_ALL_GATHER || (call->kind == NCCL_BROADCAST && call->peer == own);
    bool collective = call->kind == NCCL_ALL_GATHER || call->kind == NCCL_BROADCAST;
    if (call->kind == NCCL_SEND)
        join(add(l, call->peer, true, call->from, call), false);
    if (call->kind == NCCL_RECV)
        join(add(l, call->peer, false, call->to, call), false);
    for (int r = 0; roots && r < n; r++)
        if (r != own || place != call->from)
            join(add(l, r, true, call->from, call), true);
    for (int r = 0; collective && r < n; r++) {
        bool sends = call->kind == NCCL_ALL_GATHER || r == call->peer;
        if (sends && (r != own || (roots && place != call->from)))
            join(add(l, r, false,
                     call->kind == NCCL_ALL_GATHER ? call->to + (size_t)r * call->bytes : call->to,
                     call),
                 true);
    }
}

/* Device memory of this rank's GPU; nothing is received where something else is sent or received.
 */
static void check_memory(const struct nccl_launch *l)
{
    int gpu = standin_gpu();
    cudaSetDevice(l->comm->gpu);
    for (size_t i = 0; i < l->n; i++) {
        const struct nccl_half *a = &l->halves[i];
        if (!standin_on_device(a->data, a->bytes))
            standin_fault(cudaErrorInvalidValue, "rank %d: %zu bytes that are not on its GPU",
                          l->comm->rank, a->bytes);
        for (size_t k = 0; k < i; k++) {
            const struct nccl_half *b = &l->halves[k];
            if (!(a->sends && b->sends) && nccl_overlap(a->data, a->bytes, b->data, b->bytes))
                standin_fault(cudaErrorInvalidValue, "rank %d receives where the same group %s",
                              l->comm->rank, a->sends || b->sends ? "sends" : "receives too");
        }
    }
    cudaSetDevice(gpu);
}

struct nccl_launch *nccl_launch_create(const struct nccl_call *calls, size_t n,
                                       struct ncclComm *comm)
{
    struct nccl_launch *l = order_take(sizeof *l);
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        most += calls[i].comm == comm ? 2 * (size_t)comm->clique->n_ranks : 0;
    if (!most) {
        order_give(l);
        return NULL;
    }
    l->comm = comm;
    l->halves = order_take(most * sizeof *l->halves);
    for (size_t i = 0; i < n; i++) {
        if (calls[i].comm != comm)
            continue;
        if (l->stream && l->stream != calls[i].stream)
            standin_fault(cudaErrorInvalidValue, "a group has rank %d on two streams", comm->rank);
        l->stream = calls[i].stream;
        if (calls[i].kind == NCCL_ALL_GATHER || calls[i].kind == NCCL_BROADCAST)
            check_collective(&calls[i]);
        add_call(l, &calls[i]);
    }
    check_memory(l);
    if (comm->launches_left && --comm->launches_left == 0) {
        l->hangs = comm->trouble != STANDIN_NCCL_FAILS;
        if (comm->trouble != STANDIN_NCCL_HANGS)
            comm->error = l->hangs ? ncclRemoteError : ncclUnhandledCudaError;
    }
    nccl_launch_add(l);
    return l;
}

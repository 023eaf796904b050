/*
 * nccl_launch: what ranks call of the stand-in's NCCL, as halves; those of two ranks meet in the
 * order of calls, and must be alike.
 */
#include "nccl.h"
#include "order.h"

#include <signal.h>
#include <stdlib.h>

bool nccl_overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    uintptr_t first = (uintptr_t)a, second = (uintptr_t)b;
    return first < second + b_bytes && second < first + a_bytes;
}

void nccl_break(struct ncclComm *comm)
{
    atomic_store(&comm->board->broken, true);
    board_move(comm->board);
}

static const char *name_of(enum nccl_kind kind)
{
    static const char *const names[] = {"ncclAllGather", "ncclBroadcast", "ncclSend", "ncclRecv"};
    return names[kind];
}

static void compare(struct ncclComm *comm, uint64_t number, int other)
{
    struct board_member *member = &comm->board->members[other];
    uint64_t n = atomic_load(&member->n_calls);
    if (n <= number || number + BOARD_CALLS <= n)
        return;
    const struct board_call *own = &comm->member->calls[number % BOARD_CALLS];
    const struct board_call *c = &member->calls[number % BOARD_CALLS];
    if (c->kind == own->kind && c->count == own->count && c->type == own->type &&
        c->peer == own->peer)
        return;
    standin_fault(cudaErrorInvalidValue,
                  "collective %llu is %s of %zu of type %d, root %d, on rank %d, and %s of %zu of "
                  "type %d, root %d, on rank %d",
                  (unsigned long long)number, name_of((enum nccl_kind)c->kind), c->count, c->type,
                  c->peer, other, name_of((enum nccl_kind)own->kind), own->count, own->type,
                  own->peer, comm->rank);
    nccl_break(comm);
}

/* The so-manieth collective of a communicator is the same on all ranks. Who calls first cannot
 * know; each says what it calls before it looks at the others, so that one of two sees both. */
static void check_collective(const struct nccl_call *call)
{
    struct ncclComm *comm = call->comm;
    uint64_t number = atomic_load(&comm->member->n_calls);
    struct board_call *own = &comm->member->calls[number % BOARD_CALLS];
    own->kind = (int)call->kind;
    own->count = call->count;
    own->type = (int)call->type;
    own->peer = call->peer;
    atomic_store(&comm->member->n_calls, number + 1);
    for (int r = 0; r < comm->n_ranks && !atomic_load(&comm->board->broken); r++)
        if (r != comm->rank)
            compare(comm, number, r);
}

static struct nccl_half *add(struct nccl_launch *l, int peer, bool sends, const void *data,
                             const struct nccl_call *call)
{
    struct nccl_half *h = &l->halves[l->n++];
    *h = (struct nccl_half){.launch = l,
                            .data = (char *)(uintptr_t)data,
                            .bytes = call->bytes,
                            .peer = peer,
                            .sends = sends};
    return h;
}

/* Halves of a pair meet in the order in which they are called. */
static void join(struct nccl_half *h, bool collective, int type)
{
    struct ncclComm *comm = h->launch->comm;
    int own = comm->rank, from = h->sends ? own : h->peer, to = h->sends ? h->peer : own;
    struct board_lane *lane = &comm->board->lanes[from][to][collective];
    h->number = lane->n[h->sends]++;
    h->own = &lane->halves[h->sends][h->number % BOARD_HALVES];
    h->other = &lane->halves[!h->sends][h->number % BOARD_HALVES];
    if (h->number >= BOARD_HALVES && !board_is(h->own, h->number - BOARD_HALVES, BOARD_OVER))
        standin_fault(cudaErrorInvalidValue, "rank %d has more than %d messages under way",
                      comm->rank, BOARD_HALVES);
    h->own->bytes = h->bytes;
    h->own->type = type;
    board_set(h->own, h->number, BOARD_POSTED);
    board_move(comm->board);
    if (!board_has(h->other, h->number) || (h->other->bytes == h->bytes && h->other->type == type))
        return;
    const struct board_half *out = h->sends ? h->own : h->other;
    const struct board_half *in = h->sends ? h->other : h->own;
    standin_fault(cudaErrorInvalidValue,
                  "rank %d sends %zu bytes of type %d to rank %d, which receives %zu of type %d",
                  from, out->bytes, out->type, to, in->bytes, in->type);
    nccl_break(comm);
}

static void add_call(struct nccl_launch *l, const struct nccl_call *call)
{
    int own = call->comm->rank, n = call->comm->n_ranks, type = (int)call->type;
    char *place = call->kind == NCCL_ALL_GATHER ? call->to + (size_t)own * call->bytes : call->to;
    bool roots =
        call->kind == NCCL_ALL_GATHER || (call->kind == NCCL_BROADCAST && call->peer == own);
    bool collective = call->kind == NCCL_ALL_GATHER || call->kind == NCCL_BROADCAST;
    if (call->kind == NCCL_SEND)
        join(add(l, call->peer, true, call->from, call), false, type);
    if (call->kind == NCCL_RECV)
        join(add(l, call->peer, false, call->to, call), false, type);
    for (int r = 0; roots && r < n; r++)
        if (r != own || place != call->from)
            join(add(l, r, true, call->from, call), true, type);
    for (int r = 0; collective && r < n; r++) {
        bool sends = call->kind == NCCL_ALL_GATHER || r == call->peer;
        if (sends && (r != own || (roots && place != call->from)))
            join(add(l, r, false,
                     call->kind == NCCL_ALL_GATHER ? call->to + (size_t)r * call->bytes : call->to,
                     call),
                 true, type);
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

static void get_trouble(struct nccl_launch *l)
{
    struct ncclComm *comm = l->comm;
    enum standin_nccl_trouble what = comm->trouble;
    if (what > STANDIN_NCCL_STOPS || !comm->launches_left || --comm->launches_left)
        return;
    l->hangs = what == STANDIN_NCCL_HANGS || what == STANDIN_NCCL_LOSES;
    if (what == STANDIN_NCCL_FAILS || what == STANDIN_NCCL_LOSES)
        comm->error = l->hangs ? ncclRemoteError : ncclUnhandledCudaError;
    l->signal = what == STANDIN_NCCL_DIES ? SIGKILL : what == STANDIN_NCCL_STOPS ? SIGSTOP : 0;
}

struct nccl_launch *nccl_launch_create(const struct nccl_call *calls, size_t n,
                                       struct ncclComm *comm)
{
    struct nccl_launch *l = order_take(sizeof *l);
    size_t most = 0;
    for (size_t i = 0; i < n; i++)
        most += calls[i].comm == comm ? 2 * (size_t)comm->n_ranks : 0;
    if (!most) {
        order_give(l);
        return NULL;
    }
    l->comm = comm;
    atomic_fetch_add(&comm->member->n_under_way, 1); /* before others see that they can go on */
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
    get_trouble(l);
    nccl_launch_add(l);
    return l;
}

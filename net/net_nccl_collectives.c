/*
 * net_nccl_collectives: a link's transfers, each a group of NCCL's calls. What NCCL can do as one
 * collective is one; sums are sends and receives, and additions behind them in the same queue.
 */
#include "net/net_nccl.h"

#define PIECE_BYTES ((uint64_t)16 << 20) /* of a part of a sum: a group takes 0.1 ms to begin */
enum { HALVES = 2 }; /* of the scratch: one's parts come while the other's are added */

/* ---- groups of calls ---- */

static void *begin_group(struct zinf_link *link)
{
    void *stream = link->device.stream(link->device.queue);
    link->nccl->GroupStart();
    return stream;
}

/* result: the first of the group's calls that was not fine. */
static int end_group(struct zinf_link *link, int result)
{
    int ended = link->nccl->GroupEnd();
    result = is_fine(result) ? ended : result;
    if (is_fine(result))
        return link_settle(link);
    return link_fail_call(link, result);
}

static void keep_first(int *result, int next)
{
    if (is_fine(*result))
        *result = next;
}

/* ---- collectives ---- */

int zinf_link_gather(struct zinf_link *link, const void *slice, void *whole,
                     const uint64_t *slice_bytes)
{
    uint32_t world = world_of(link), own = link->net->place.rank;
    uint64_t total = 0, before = 0;
    bool equal = true;
    for (uint32_t r = 0; r < world; r++) {
        before = r == own ? total : before;
        equal &= slice_bytes[r] == slice_bytes[0];
        total += slice_bytes[r];
    }
    int code = link_meet(link, GATHER, total), result = NCCL_SUCCESS;
    if (code || !total)
        return code;
    void *stream = begin_group(link);
    char *at = whole;
    if (equal)
        result = link->nccl->AllGather(slice, whole, slice_bytes[0], NCCL_INT8, link->comm, stream);
    for (uint32_t r = 0; !equal && r < world; at += slice_bytes[r++])
        if (slice_bytes[r])
            keep_first(&result, link->nccl->Broadcast(r == own ? slice : at, at, slice_bytes[r],
                                                      NCCL_INT8, (int)r, link->comm, stream));
    link->sent_bytes += (world - 1) * slice_bytes[own];
    code = end_group(link, result);
    return code ? code : link_wait(link);
}

/* The i-th of the other ranks, from the next one on: not all begin with the same. */
static uint32_t other(const struct zinf_link *link, uint32_t i)
{
    return (link->net->place.rank + 1 + i) % world_of(link);
}

/* ---- sums ---- */

uint64_t zinf_link_scratch_bytes(uint32_t world, uint64_t slice_elems)
{
    const uint64_t bytes = slice_elems * sizeof(float), most = HALVES * PIECE_BYTES;
    return (world - 1) * (bytes < most ? bytes : most);
}

/* A piece of every slice: elements [at, at + elems), whose parts come into one half. */
struct piece {
    uint64_t at, elems, number;
    float *memory; /* [world - 1][elems] */
};

static int by_device(struct zinf_link *link, int code)
{
    return code ? link_fail_by_device(link, code) : 0;
}

/* As zinf_tree_sum, on the GPU; then to where it belongs. */
static int add_parts(struct zinf_link *link, struct zinf_queue *queue, const struct piece *p,
                     float *slice)
{
    uint32_t n = world_of(link);
    int code = 0;
    for (uint32_t step = 1; step < n; step *= 2)
        for (uint32_t i = 0; !code && i + step < n; i += 2 * step)
            code = link->device.add(queue, link->parts[i], link->parts[i + step], p->elems);
    if (!code && slice + p->at != link->parts[0])
        code = link->device.copy(queue, slice + p->at, link->parts[0], p->elems * sizeof(float));
    return by_device(link, code);
}

/* Each rank's elements to it, this rank's from all. */
static int scatter_piece(struct zinf_link *link, const float *whole, uint64_t slice_elems,
                         const struct piece *p)
{
    void *stream = begin_group(link);
    uint64_t bytes = p->elems * sizeof(float);
    int result = NCCL_SUCCESS;
    for (uint32_t i = 0; i + 1 < world_of(link); i++) {
        uint32_t peer = other(link, i);
        keep_first(&result, link->nccl->Send(whole + peer * slice_elems + p->at, bytes, NCCL_INT8,
                                             (int)peer, link->comm, stream));
        keep_first(&result, link->nccl->Recv(link->parts[peer], bytes, NCCL_INT8, (int)peer,
                                             link->comm, stream));
        link->sent_bytes += bytes;
    }
    return end_group(link, result);
}

/* Parts come in the first queue and are added in the second one, where there is one: what comes
 * into a half waits until what was there is added. */
static int sum_piece(struct zinf_link *link, float *whole, float *slice, uint64_t slice_elems,
                     const struct piece *p)
{
    const struct zinf_link_device *d = &link->device;
    const uint32_t own = link->net->place.rank, half = p->number % HALVES;
    for (uint32_t i = 0; i + 1 < world_of(link); i++)
        link->parts[other(link, i)] = p->memory + i * p->elems;
    link->parts[own] = whole + own * slice_elems + p->at;
    int code = d->sums && p->number >= HALVES ? d->wait(d->queue, d->added[half]) : 0;
    code = code ? by_device(link, code) : scatter_piece(link, whole, slice_elems, p);
    if (code || !d->sums)
        return code ? code : add_parts(link, d->queue, p, slice);
    code = d->record(d->queue, d->came[half]);
    if (!code)
        code = d->wait(d->sums, d->came[half]);
    code = code ? by_device(link, code) : add_parts(link, d->sums, p, slice);
    return code ? code : by_device(link, d->record(d->sums, d->added[half]));
}

/* What is enqueued behind this in the first queue comes after all sums. */
static int await_sums(struct zinf_link *link, uint64_t pieces)
{
    const struct zinf_link_device *d = &link->device;
    const uint64_t n = !d->sums ? 0 : pieces < HALVES ? pieces : HALVES;
    int code = 0;
    for (uint64_t half = 0; !code && half < n; half++)
        code = d->wait(d->queue, d->added[half]);
    return by_device(link, code);
}

int zinf_link_scatter_sum(struct zinf_link *link, float *whole, float *slice, uint64_t slice_elems,
                          const struct zinf_link_scratch *scratch)
{
    const uint64_t halves = link->device.sums ? HALVES : 1;
    const uint64_t room = scratch->bytes / sizeof(float) / (world_of(link) - 1);
    uint64_t most = room >= slice_elems ? slice_elems : room / halves;
    struct piece p = {.at = 0};
    most = most > PIECE_BYTES / sizeof(float) ? PIECE_BYTES / sizeof(float) : most;
    if (!most && slice_elems)
        return zinf_fail(-EINVAL, "no memory of the GPU for the parts of a sum");
    int code = link_meet(link, SCATTER, slice_elems);
    for (; !code && p.at < slice_elems; p.at += p.elems, p.number++) {
        const uint64_t left = slice_elems - p.at;
        p.elems = left < most ? left : most;
        p.memory =
            (float *)scratch->memory + p.number % halves * most * (uint64_t)(world_of(link) - 1);
        code = sum_piece(link, whole, slice, slice_elems, &p);
    }
    if (!code)
        code = await_sums(link, p.number);
    return code || !slice_elems ? code : link_wait(link);
}

/*
 * nccl_run: launches of the stand-in's NCCL, under way: the steps by which bytes move. Whatever a
 * launch is at while it is under way is watched by its sums: what is sent must not change, and what
 * was received must stay, until its stream is past it.
 */
#include "nccl.h"
#include "order.h"

#include <stdlib.h>
#include <string.h>

static struct nccl_launch *launches; /* all that are there */

static uint64_t sum_of(const struct nccl_half *h)
{
    uint64_t sum = 0x9e3779b97f4a7c15u, word;
    size_t at = 0;
    for (; at + sizeof word <= h->bytes; at += sizeof word) {
        memcpy(&word, h->data + at, sizeof word);
        sum = (sum ^ word) * 0xff51afd7ed558ccdu;
        sum ^= sum >> 29;
    }
    for (; at < h->bytes; at++)
        sum = (sum ^ (unsigned char)h->data[at]) * 0xff51afd7ed558ccdu;
    return sum;
}

/* ---- steps ---- */

void nccl_launch_add(struct nccl_launch *l)
{
    l->comm->n_under_way++;
    l->next = launches;
    launches = l;
}

static bool is_over(const struct nccl_launch *l)
{
    return l->comm->aborted || l->comm->clique->broken;
}

static bool may_deliver(const struct nccl_half *h)
{
    return !h->sends && !h->done && h->other && h->other->launch->arrived;
}

static struct nccl_half *pick(const struct nccl_launch *l)
{
    struct nccl_half *picked = NULL;
    uint32_t n = 0;
    for (size_t i = 0; i < l->n; i++)
        if (may_deliver(&l->halves[i]) && standin_random(++n) == 0)
            picked = &l->halves[i];
    return picked;
}

static bool all_done(const struct nccl_launch *l)
{
    for (size_t i = 0; i < l->n; i++)
        if (!l->halves[i].done)
            return false;
    return true;
}

static bool can(void *subject)
{
    const struct nccl_launch *l = subject;
    if (is_over(l))
        return true;
    if (l->hangs)
        return false;
    for (size_t i = 0; l->arrived && i < l->n; i++)
        if (may_deliver(&l->halves[i]))
            return true;
    return !l->arrived || all_done(l);
}

static void poison(void *argument)
{
    const struct nccl_half *h = argument;
    memset(h->data, 0xff, h->bytes);
}

static void arrive(struct nccl_launch *l, struct order_stream *order)
{
    l->arrived = true;
    for (size_t i = 0; i < l->n; i++)
        if (!l->halves[i].sends)
            order_run(order, poison, &l->halves[i]);
    for (size_t i = 0; i < l->n; i++)
        l->halves[i].sum = sum_of(&l->halves[i]);
    order_record(order, &l->token);
}

static void receive(void *argument)
{
    const struct nccl_half *h = argument;
    memcpy(h->data, h->other->data, h->bytes);
}

/* As the receiver's stream does it, after the sender's has arrived; that goes on after it. */
static void deliver(struct nccl_half *h, struct order_stream *order)
{
    struct nccl_half *from = h->other;
    if (sum_of(from) != from->sum)
        standin_fault(cudaErrorInvalidValue, "rank %d changes what it is sending to rank %d",
                      h->peer, from->peer);
    if (sum_of(h) != h->sum)
        standin_fault(cudaErrorInvalidValue, "rank %d writes where it is receiving from rank %d",
                      from->peer, h->peer);
    order_wait(order, from->launch->token);
    order_run(order, receive, h);
    order_record(order, &from->token);
    if (standin_watch)
        standin_watch->copied(h->data, from->data, h->bytes);
    h->sum = sum_of(h);
    h->done = from->done = true;
    h->other = from->other = NULL;
}

static void forget(struct nccl_launch *l)
{
    struct nccl_launch **at = &launches;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    for (size_t i = 0; i < l->n; i++)
        order_drop(l->halves[i].token);
    order_drop(l->token);
    order_give(l->halves);
    order_give(l);
}

/* What has not met is taken from its list; what has met stays alone for good. */
static void part(struct nccl_half *h)
{
    struct nccl_clique *clique = h->launch->comm->clique;
    int own = h->launch->comm->rank, from = h->sends ? own : h->peer;
    for (int c = 0; c < 2; c++) {
        struct nccl_half **at = &clique->alone[from][h->sends ? h->peer : own][c];
        while (*at && *at != h)
            at = &(*at)->next;
        if (*at)
            *at = h->next;
    }
    if (h->other)
        h->other->other = NULL;
    h->other = NULL;
}

static void leave(struct nccl_launch *l, struct order_stream *order)
{
    bool over = is_over(l);
    for (size_t i = 0; i < l->n; i++) {
        struct nccl_half *h = &l->halves[i];
        if (h->sends)
            order_wait(order, h->token);
        if (!over && sum_of(h) != h->sum)
            standin_fault(cudaErrorInvalidValue, "rank %d touches what it %s rank %d too early",
                          l->comm->rank, h->sends ? "sends to" : "receives from", h->peer);
        part(h);
    }
    l->comm->n_under_way--;
    forget(l);
}

static bool step(void *subject, struct order_stream *order)
{
    struct nccl_launch *l = subject;
    struct nccl_half *h = is_over(l) || !l->arrived ? NULL : pick(l);
    if (!is_over(l) && !l->arrived) {
        arrive(l, order);
        return false;
    }
    if (h) {
        deliver(h, order);
        return false;
    }
    leave(l, order);
    return true;
}

static const struct standin_steps steps = {can, step};

/* By whoever looks: on the launch's own GPU. */
void nccl_launch_enqueue(struct nccl_launch *l)
{
    int gpu = standin_gpu();
    cudaSetDevice(l->comm->gpu);
    standin_enqueue_steps(l->stream, &steps, l);
    cudaSetDevice(gpu);
}

/* ---- what waits ---- */

void nccl_leave_peers(struct ncclComm *comm)
{
    for (struct nccl_launch *l = launches; l; l = l->next)
        for (size_t i = 0; l->comm == comm && i < l->n; i++)
            part(&l->halves[i]);
}

bool standin_nccl_waits(void)
{
    return launches != NULL;
}

/* Every launch there is has all that it needs, and yet none can go on: each waits for one that is
 * behind another in its stream. */
bool standin_nccl_is_deadlock(void)
{
    int n = 0;
    for (const struct nccl_launch *l = launches; l; l = l->next, n++) {
        if (l->hangs || l->comm->held == l || is_over(l))
            return false;
        for (size_t i = 0; i < l->n; i++)
            if (!l->halves[i].done && !l->halves[i].other)
                return false;
    }
    if (!n)
        return false;
    standin_fault(cudaErrorIllegalAddress,
                  "sends and receives that wait for each other, and are in "
                  "no group together");
    for (const struct nccl_launch *l = launches; l; l = l->next)
        nccl_break(l->comm->clique);
    return true;
}

void standin_nccl_check(const void *to, const void *from, size_t bytes)
{
    for (const struct nccl_launch *l = launches; l; l = l->next)
        for (size_t i = 0; l->arrived && !is_over(l) && i < l->n; i++) {
            const struct nccl_half *h = &l->halves[i];
            if (nccl_overlap(h->data, h->bytes, to, bytes) ||
                (from && !h->sends && nccl_overlap(h->data, h->bytes, from, bytes)))
                standin_fault(cudaErrorInvalidValue,
                              "a copy touches what rank %d %s rank %d too early", l->comm->rank,
                              h->sends ? "sends to" : "receives from", h->peer);
        }
}

void nccl_run_reset(void)
{
    while (launches)
        forget(launches);
}

/*
 * nccl_run: launches of the stand-in's NCCL, under way: the steps by which bytes move. Whatever a
 * launch is at while it is under way is watched by its sums: what is sent must not change, and what
 * was received must stay, until its stream is past it.
 */
#include "nccl.h"
#include "order.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct nccl_launch *launches; /* all that are there */

static uint64_t sum_of(const char *data, size_t bytes)
{
    uint64_t sum = 0x9e3779b97f4a7c15u, word;
    size_t at = 0;
    for (; at + sizeof word <= bytes; at += sizeof word) {
        memcpy(&word, data + at, sizeof word);
        sum = (sum ^ word) * 0xff51afd7ed558ccdu;
        sum ^= sum >> 29;
    }
    for (; at < bytes; at++)
        sum = (sum ^ (unsigned char)data[at]) * 0xff51afd7ed558ccdu;
    return sum;
}

/* ---- steps ---- */

void nccl_launch_add(struct nccl_launch *l)
{
    l->next = launches;
    launches = l;
}

static bool is_over(const struct nccl_launch *l)
{
    return l->comm->aborted || atomic_load(&l->comm->board->broken);
}

static bool is_own(const struct nccl_half *h)
{
    return atomic_load(&h->launch->comm->board->members[h->peer].pid) == getpid();
}

static bool has_left(const struct nccl_half *h)
{
    return atomic_load(&h->launch->comm->board->members[h->peer].left);
}

/* Where this process has what the peer sends; NULL: that is gone. */
static const char *find_data(const struct nccl_half *h)
{
    if (has_left(h))
        return NULL;
    if (is_own(h))
        return h->other->data;
    const char *memory = shared_find(&h->other->place, false);
    return memory ? memory + h->other->offset : NULL;
}

static bool may_deliver(const struct nccl_half *h)
{
    return !h->sends && !h->done && board_is(h->other, h->number, BOARD_ARRIVED) && find_data(h);
}

static bool is_done(const struct nccl_half *h)
{
    return h->sends ? board_is(h->own, h->number, BOARD_OVER) : h->done;
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
        if (!is_done(&l->halves[i]))
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

/* For the peer, wherever it is. */
static void show(struct nccl_half *h)
{
    struct board_half *own = h->own;
    own->data = h->data;
    own->sum = h->sum;
    own->token = h->launch->token;
    own->place.pid = 0;
    if (h->sends && !is_own(h) && !standin_place_of(h->data, h->bytes, &own->place, &own->offset))
        standin_fault(cudaErrorInvalidValue,
                      "rank %d is in another process, and the stand-in was not told so "
                      "(ZINF_STANDIN_PROCESSES)",
                      h->peer);
    board_set(own, h->number, BOARD_ARRIVED);
}

static void arrive(struct nccl_launch *l, struct order_stream *order)
{
    l->arrived = true;
    for (size_t i = 0; i < l->n; i++)
        if (!l->halves[i].sends)
            order_run(order, poison, &l->halves[i]);
    for (size_t i = 0; i < l->n; i++)
        l->halves[i].sum = sum_of(l->halves[i].data, l->halves[i].bytes);
    order_record(order, &l->token);
    int gpu = standin_gpu();
    cudaSetDevice(l->comm->gpu);
    for (size_t i = 0; i < l->n; i++) {
        if (l->signal && i == l->n / 2)
            raise(l->signal);
        show(&l->halves[i]);
    }
    cudaSetDevice(gpu);
    board_move(l->comm->board);
}

static void receive(void *argument)
{
    const struct nccl_half *h = argument;
    memcpy(h->data, h->from, h->bytes);
}

/* As the receiver's stream does it, after the sender's has arrived; that goes on after it. Nothing
 * comes of a sender that has left since this was found possible. */
static void deliver(struct nccl_half *h, struct order_stream *order)
{
    struct ncclComm *comm = h->launch->comm;
    struct board_half *sent = h->other;
    bool own = is_own(h);
    h->from = find_data(h);
    if (!h->from)
        return;
    if (sum_of(h->from, h->bytes) != sent->sum)
        standin_fault(cudaErrorInvalidValue, "rank %d changes what it is sending to rank %d",
                      h->peer, comm->rank);
    if (sum_of(h->data, h->bytes) != h->sum)
        standin_fault(cudaErrorInvalidValue, "rank %d writes where it is receiving from rank %d",
                      comm->rank, h->peer);
    order_wait(order, own ? sent->token : NULL);
    order_run(order, receive, h);
    if (own)
        order_record(order, &sent->taken);
    if (standin_watch && own)
        standin_watch->copied(h->data, h->from, h->bytes);
    else if (standin_watch)
        standin_watch->written(h->data, h->bytes);
    h->sum = sum_of(h->data, h->bytes);
    h->done = true;
    board_set(h->own, h->number, BOARD_OVER);
    board_set(sent, h->number, BOARD_OVER);
    board_move(comm->board);
}

static void forget(struct nccl_launch *l)
{
    struct nccl_launch **at = &launches;
    while (*at && *at != l)
        at = &(*at)->next;
    if (*at)
        *at = l->next;
    order_drop(l->token);
    order_give(l->halves);
    order_give(l);
}

static void leave(struct nccl_launch *l, struct order_stream *order)
{
    bool over = is_over(l);
    for (size_t i = 0; i < l->n; i++) {
        struct nccl_half *h = &l->halves[i];
        bool taken = h->sends && is_own(h) && is_done(h);
        order_wait(order, taken ? h->own->taken : NULL);
        if (taken)
            order_drop(h->own->taken);
        if (taken)
            h->own->taken = NULL;
        if (!over && sum_of(h->data, h->bytes) != h->sum)
            standin_fault(cudaErrorInvalidValue, "rank %d touches what it %s rank %d too early",
                          l->comm->rank, h->sends ? "sends to" : "receives from", h->peer);
    }
    atomic_fetch_sub(&l->comm->member->n_under_way, 1);
    board_move(l->comm->board);
    forget(l);
}

/* Makes it likely that another process does something between the look and the step. */
static void dawdle(void)
{
    const struct standin_options *options = standin_options();
    if (options->processes && options->dawdle_us)
        usleep(standin_random(options->dawdle_us));
}

/* What could be done at the look (can) may be impossible now, since another process has left in
 * between: then this step does nothing. */
static bool step(void *subject, struct order_stream *order)
{
    struct nccl_launch *l = subject;
    dawdle();
    if (is_over(l) || (l->arrived && all_done(l))) {
        leave(l, order);
        return true;
    }
    if (!l->arrived) {
        arrive(l, order);
        return false;
    }
    struct nccl_half *h = pick(l);
    if (h)
        deliver(h, order);
    return false;
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

bool standin_nccl_waits(void)
{
    return launches != NULL;
}

/* Whether it has all that it needs and yet cannot go on; it waits for one that is behind another in
 * its stream, of this process or of another. */
static bool is_stuck(const struct nccl_launch *l)
{
    if (l->hangs || l->comm->held == l || is_over(l))
        return false;
    for (size_t i = 0; i < l->n; i++)
        if (!is_done(&l->halves[i]) &&
            (has_left(&l->halves[i]) || !board_has(l->halves[i].other, l->halves[i].number)))
            return false;
    return true;
}

/* Of all ranks, and since nothing has gone on anywhere. */
static bool all_are_stuck(const struct ncclComm *comm, uint64_t progress)
{
    for (int r = 0; r < comm->n_ranks; r++) {
        const struct board_member *m = &comm->board->members[r];
        if (atomic_load(&m->n_under_way) && atomic_load(&m->stuck_at) != progress)
            return false;
    }
    return atomic_load(&comm->board->progress) == progress;
}

/* Nothing can go on in this process, which counts if nothing has gone on elsewhere since the last
 * look: what the process could do has been tried in between. */
bool standin_nccl_is_deadlock(void)
{
    bool stuck = launches != NULL, all = launches != NULL;
    for (const struct nccl_launch *l = launches; stuck && l; l = l->next)
        stuck = is_stuck(l);
    for (int i = 0; i < NCCL_MOST_COMMS; i++) {
        struct ncclComm *comm = nccl_comm_at(i);
        uint64_t progress = comm ? atomic_load(&comm->board->progress) : 0;
        if (comm && stuck && comm->seen == progress)
            atomic_store(&comm->member->stuck_at, progress);
        if (comm)
            comm->seen = progress;
    }
    for (const struct nccl_launch *l = launches; stuck && l; l = l->next)
        all = all && all_are_stuck(l->comm, l->comm->seen);
    if (!stuck || !all)
        return false;
    standin_fault(cudaErrorIllegalAddress,
                  "sends and receives that wait for each other, and are in "
                  "no group together");
    for (const struct nccl_launch *l = launches; l; l = l->next)
        nccl_break(l->comm);
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

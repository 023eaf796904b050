/*
 * net_seats: ranks are the seats of several processes. Among those of one process messages go as
 * in net_threads; what is for other processes goes over the net between them, which one thread at
 * a time may use: when all seats of a process have come to the same exchange, the last of them
 * moves the messages of all. What every receiver gets alike crosses once for each process and is
 * copied from its first seat to the others.
 *
 * The net between takes one message from and to each process at once: so messages go in rounds, a
 * round for each seat that sends, and each that receives where these get something of their own.
 */
#include "net/net_room.h"

#include <string.h>

/* ---- rounds ---- */

static const struct net_message *find(const struct net_message *messages, uint32_t n, uint32_t peer)
{
    for (uint32_t i = 0; i < n; i++)
        if (messages[i].peer == peer)
            return &messages[i];
    return NULL;
}

/* Of messages to or from others those of their seats of a number, by process. */
static uint32_t messages_of(const struct room *room, struct net_message *to,
                            const struct net_message *messages, uint32_t n, uint32_t seat)
{
    uint32_t n_to = 0;
    for (uint32_t i = 0; i < n; i++) {
        const struct net_message *m = &messages[i];
        if (!room_has(room, m->peer) && room->at[m->peer].seat == seat)
            to[n_to++] = (struct net_message){m->data, m->bytes, room->at[m->peer].process};
    }
    return n_to;
}

/* From each process's seat `from` to the others' seat `to`. */
static int exchange_round(struct room *room, uint32_t from, uint32_t to)
{
    static const struct net_exchange nothing;
    struct meeting *m = &room->meeting;
    const struct net_exchange *sender = from < room->n_seats ? m->lent[from] : &nothing;
    const struct net_exchange *receiver = to < room->n_seats ? m->lent[to] : &nothing;
    struct net_exchange x = {.out = m->out, .in = m->in};
    x.n_out = messages_of(room, m->out, sender->out, sender->n_out, to);
    x.n_in = messages_of(room, m->in, receiver->in, receiver->n_in, from);
    for (uint32_t i = 0; i < x.n_out; i++)
        m->between->sent_bytes += m->out[i].bytes;
    /* without messages too: processes count their exchanges alike */
    return net_run(m->between, &x);
}

/* What the first seat has got from elsewhere, to the others. */
static void copy_to_others(const struct room *room)
{
    const struct net_exchange *first = room->meeting.lent[0];
    for (uint32_t i = 0; i < first->n_in; i++) {
        const struct net_message *got = &first->in[i];
        for (uint32_t s = 1; !room_has(room, got->peer) && s < room->n_seats; s++) {
            const struct net_exchange *x = room->meeting.lent[s];
            const struct net_message *in = find(x->in, x->n_in, got->peer);
            if (in && in->bytes)
                memcpy(in->data, got->data, in->bytes < got->bytes ? in->bytes : got->bytes);
        }
    }
}

/* All seats lend their messages and wait. */
static int exchange_for_all(struct room *room)
{
    struct meeting *m = &room->meeting;
    const struct net_exchange *any = m->lent[0];
    uint32_t receivers = any->same ? 1 : room->most_seats;
    int code = 0;
    for (uint32_t from = 0; !code && from < room->most_seats; from++)
        for (uint32_t to = 0; !code && to < receivers; to++)
            code = exchange_round(room, from, to);
    if (!code && any->same)
        copy_to_others(room);
    return code;
}

/* ---- meetings ---- */

/* Another seat of this process cannot go on. */
static int end_for_another(struct zinf_net *net)
{
    if (((const struct room *)net->state)->house->failed)
        return room_fail(net);
    snprintf(net->why, sizeof net->why, "another seat of this process has given up");
    return -ECONNABORTED;
}

static int fail_as_between(struct zinf_net *net, int code)
{
    const struct room *room = net->state;
    snprintf(net->why, sizeof net->why, "%s", room->meeting.between->why);
    return code;
}

/* The first rank of this process that has not come; world: all have. */
static uint32_t missing_rank(const struct zinf_net *net)
{
    const struct room *room = net->state;
    uint32_t rank = 0;
    while (rank < net->place.world &&
           (!room_has(room, rank) || room->meeting.lent[room->at[rank].seat]))
        rank++;
    return rank;
}

/* Under the lock. Who has come stays until the last one has moved everything; before that one is
 * there, it leaves for a failure, or where another seat is late. */
static int wait_for_end(struct zinf_net *net, uint64_t held)
{
    struct room *room = net->state;
    struct meeting *m = &room->meeting;
    struct net_wait wait = net_wait_begin();
    int code = 0;
    while (!code && m->n_held == held) {
        uint32_t rank = missing_rank(net);
        bool under_way = m->n_there == room->n_seats, late = false;
        if (under_way)
            pthread_cond_wait(&room->house->changed, &room->house->lock);
        else if (m->broken || room->house->failed)
            code = end_for_another(net);
        else
            late = room_wait(net, &wait, rank);
        if (late && m->n_held == held && m->n_there < room->n_seats)
            code = net_late(net, rank);
    }
    m->broken |= code != 0;
    return code;
}

static void hold(struct zinf_net *net)
{
    struct room *room = net->state;
    struct meeting *m = &room->meeting;
    pthread_mutex_unlock(&room->house->lock);
    if (m->between->timeout_ns != net->timeout_ns)
        zinf_net_set_timeout(m->between, (double)net->timeout_ns * 1e-9);
    int code = exchange_for_all(room);
    pthread_mutex_lock(&room->house->lock);
    m->code = code;
    m->n_there = 0;
    memset(m->lent, 0, room->n_seats * sizeof *m->lent);
    m->n_held++;
    pthread_cond_broadcast(&room->house->changed);
}

int room_exchange_between(struct zinf_net *net, const struct net_exchange *x)
{
    struct room *room = net->state;
    struct meeting *m = &room->meeting;
    int code = 0;
    pthread_mutex_lock(&room->house->lock);
    uint64_t held = m->n_held;
    if (m->broken || room->house->failed) {
        code = end_for_another(net);
    } else {
        m->lent[room_seat(net)] = x;
        m->n_there++;
        if (m->n_there == room->n_seats)
            hold(net);
        else
            code = wait_for_end(net, held);
        if (!code && m->code)
            code = fail_as_between(net, m->code);
    }
    pthread_mutex_unlock(&room->house->lock);
    return code;
}

int room_listen_between(struct zinf_net *net)
{
    struct room *room = net->state;
    struct meeting *m = &room->meeting;
    int code = m->n_there < room->n_seats ? net_listen(m->between) : 0;
    return code ? fail_as_between(net, code) : 0;
}

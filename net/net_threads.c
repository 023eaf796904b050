/*
 * net_threads: ranks are threads of one process. The receiver of a message copies it from where
 * the sender has it, and the sender waits until it has.
 */
#include "net/net_room.h"

#include <stdlib.h>
#include <string.h>

enum { EMPTY, FULL, BEING_TAKEN };

static struct room_note *note_at(struct room *room, uint32_t from, uint32_t to)
{
    return &room->notes[(size_t)room->at[from].seat * room->n_seats + room->at[to].seat];
}

/* Under the lock: until the note has that state, somebody fails, or the peer is late. */
static int wait_for(struct zinf_net *net, struct room_note *note, int state, uint32_t peer,
                    struct net_wait *wait)
{
    while (note->state != state) {
        if (room_has_failed(net))
            return room_fail(net);
        if (room_wait(net, wait, peer) && note->state != state)
            return room_late(net, peer);
    }
    return 0;
}

/* Under the lock, which is open while bytes are copied. */
static int take(struct zinf_net *net, struct room_note *note, const struct net_message *in)
{
    struct room *room = net->state;
    int code = 0;
    if (note->bytes != in->bytes)
        code = net_other_length(net, in->peer, note->bytes, in->bytes);
    note->state = BEING_TAKEN;
    pthread_mutex_unlock(&room->house->lock);
    if (!code && in->bytes)
        memcpy(in->data, note->data, in->bytes);
    pthread_mutex_lock(&room->house->lock);
    note->state = EMPTY;
    pthread_cond_broadcast(&room->house->changed);
    return code;
}

/* What nobody will take any more; what is being taken is waited for: it is the caller's memory. */
static void withdraw(struct room *room, struct room_note *note)
{
    while (note->state == BEING_TAKEN)
        pthread_cond_wait(&room->house->changed, &room->house->lock);
    note->state = EMPTY;
}

/* Under the lock. */
static void post(struct zinf_net *net, const struct net_exchange *x)
{
    struct room *room = net->state;
    for (uint32_t i = 0; i < x->n_out; i++)
        if (room_has(room, x->out[i].peer))
            *note_at(room, net->place.rank, x->out[i].peer) =
                (struct room_note){x->out[i].data, x->out[i].bytes, FULL};
    pthread_cond_broadcast(&room->house->changed);
}

/* Under the lock: what was lent to others is this rank's alone again. */
static int await_own(struct zinf_net *net, const struct net_exchange *x, struct net_wait *wait,
                     int code)
{
    struct room *room = net->state;
    uint32_t own = net->place.rank;
    for (uint32_t i = 0; !code && i < x->n_out; i++)
        if (room_has(room, x->out[i].peer))
            code = wait_for(net, note_at(room, own, x->out[i].peer), EMPTY, x->out[i].peer, wait);
    for (uint32_t i = 0; code && i < x->n_out; i++)
        if (room_has(room, x->out[i].peer))
            withdraw(room, note_at(room, own, x->out[i].peer));
    return code;
}

static int room_exchange(struct zinf_net *net, const struct net_exchange *x)
{
    struct room *room = net->state;
    uint32_t own = net->place.rank;
    struct net_wait wait = net_wait_begin();
    int code = 0;
    pthread_mutex_lock(&room->house->lock);
    post(net, x);
    for (uint32_t i = 0; !code && i < x->n_in; i++) {
        if (!room_has(room, x->in[i].peer))
            continue;
        struct room_note *note = note_at(room, x->in[i].peer, own);
        code = wait_for(net, note, FULL, x->in[i].peer, &wait);
        if (!code)
            code = take(net, note, &x->in[i]);
    }
    code = await_own(net, x, &wait, code);
    pthread_mutex_unlock(&room->house->lock);
    return code;
}

static int seats_exchange(struct zinf_net *net, const struct net_exchange *x)
{
    int code = room_exchange(net, x);
    return code ? code : room_exchange_between(net, x);
}

/* ---- lending ---- */

/* Under the lock: the first n of in are done with. */
static void release(struct zinf_net *net, const struct net_exchange *x, uint32_t n)
{
    struct room *room = net->state;
    for (uint32_t i = 0; i < n; i++)
        note_at(room, x->in[i].peer, net->place.rank)->state = EMPTY;
    pthread_cond_broadcast(&room->house->changed);
}

static int threads_borrow(struct zinf_net *net, const struct net_exchange *x,
                          struct net_message *in)
{
    struct room *room = net->state;
    struct net_wait wait = net_wait_begin();
    uint32_t n = 0;
    int code = 0;
    pthread_mutex_lock(&room->house->lock);
    post(net, x);
    for (; !code && n < x->n_in; n += !code) {
        struct room_note *note = note_at(room, in[n].peer, net->place.rank);
        code = wait_for(net, note, FULL, in[n].peer, &wait);
        if (!code && note->bytes != in[n].bytes)
            code = net_other_length(net, in[n].peer, note->bytes, in[n].bytes);
        if (!code) {
            in[n].data = (void *)(uintptr_t)note->data;
            note->state = BEING_TAKEN;
        }
    }
    if (code) {
        release(net, x, n);
        await_own(net, x, &wait, code);
    }
    pthread_mutex_unlock(&room->house->lock);
    return code;
}

static int threads_give_back(struct zinf_net *net, const struct net_exchange *x)
{
    struct room *room = net->state;
    struct net_wait wait = net_wait_begin();
    pthread_mutex_lock(&room->house->lock);
    release(net, x, x->n_in);
    int code = await_own(net, x, &wait, 0);
    pthread_mutex_unlock(&room->house->lock);
    return code;
}

/* ---- failure, life ---- */

static int threads_listen(struct zinf_net *net)
{
    struct room *room = net->state;
    int code = 0;
    pthread_mutex_lock(&room->house->lock);
    if (room_has_failed(net))
        code = room_fail(net);
    else if (room->meeting.between)
        code = room_listen_between(net);
    pthread_mutex_unlock(&room->house->lock);
    return code;
}

/* Who is at work hears of it there. */
static void end_pulses(struct zinf_net *net, struct house *h)
{
    char why[1100];
    snprintf(why, sizeof why, "%s %u has failed: %.900s", net_noun(net), h->number, h->sentence);
    for (uint32_t s = 0; s < h->n_seats; s++)
        if (s + h->first != h->failed_number)
            zinf_pulse_end(&h->pulses[s], -ECONNABORTED, why);
}

/* A seat that fails is at no exchange; others that are give it up. */
static void threads_tell(struct zinf_net *net, uint32_t number, const char *sentence)
{
    struct house *h = ((struct room *)net->state)->house;
    char text[1000];
    pthread_mutex_lock(&h->lock);
    if (!h->failed) {
        h->failed = true;
        h->failed_number = net_number(net, net->place.rank);
        h->number = number;
        snprintf(h->sentence, sizeof h->sentence, "%s", sentence);
        snprintf(text, sizeof text, "seat %u: %.900s", h->failed_number - h->first, sentence);
        end_pulses(net, h);
        if (h->between)
            zinf_net_tell(h->between, text);
    }
    pthread_cond_broadcast(&h->changed);
    pthread_mutex_unlock(&h->lock);
}

static void threads_close(struct zinf_net *net)
{
    room_leave(net->state);
}

static const struct net_engine_ops threads_ops = {
    .exchange = room_exchange,
    .borrow = threads_borrow,
    .give_back = threads_give_back,
    .listen = threads_listen,
    .tell = threads_tell,
    .split = room_split,
    .close = threads_close,
};

/* Not all of whose ranks are in one memory: those of a process lend each other. */
static const struct net_engine_ops seats_ops = {
    .exchange = seats_exchange,
    .borrow = threads_borrow,
    .give_back = threads_give_back,
    .listen = threads_listen,
    .tell = threads_tell,
    .split = room_split,
    .close = threads_close,
};

static int open_end(struct zinf_net **out, struct room *room, uint32_t seat)
{
    struct zinf_net_place alone = {.world = 1, .local_world = 1};
    const struct zinf_net *between = room->meeting.between;
    const struct zinf_net_place at = between ? between->place : alone;
    struct zinf_net *net = *out = calloc(1, sizeof *net);
    uint32_t n = room->n_seats;
    if (!net)
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", n);
    net->told = true; /* until all are there, an end is closed without a barrier */
    snprintf(net->name, sizeof net->name, "threads%s%.80s", between ? " and " : "",
             between ? between->name : "");
    net->place = (struct zinf_net_place){.rank = room->house->first + seat,
                                         .world = at.world * n,
                                         .local_rank = at.local_rank * n + seat,
                                         .local_world = at.local_world * n};
    room->open++;
    room_enter(net, room);
    return net_init(net, net->place.rank, net->place.world);
}

static int create(struct zinf_net **out, uint32_t n_seats, struct zinf_net *between)
{
    uint32_t world = (between ? between->place.world : 1) * n_seats;
    uint32_t process = between ? between->place.rank : 0;
    struct room_place *at = calloc(world, sizeof *at);
    struct house *house = house_create(&threads_ops, &seats_ops, n_seats);
    struct room *room;
    memset(out, 0, n_seats * sizeof *out);
    if (!at || !house) {
        free(at);
        if (house)
            house_free(house);
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", world);
    }
    for (uint32_t r = 0; r < world; r++)
        at[r] = (struct room_place){r / n_seats, r % n_seats};
    int code = room_create(&room, house, at, world, process, between);
    if (code) {
        house_free(house);
        return code;
    }
    if (between)
        between->noun = "process";
    house->between = between;
    house->first = process * n_seats;
    room->open++; /* until all are there */
    for (uint32_t r = 0; !code && r < n_seats; r++)
        code = open_end(&out[r], room, r);
    for (uint32_t r = 0; r < n_seats; r++) {
        if (code)
            zinf_net_close(out[r]);
        else
            out[r]->told = false;
    }
    room_leave(room);
    return code;
}

int zinf_net_threads_create(struct zinf_net **out, uint32_t world)
{
    if (world < 1 || world > ZINF_NET_MOST_RANKS)
        return zinf_fail(-EINVAL, "%u ranks: between 1 and %d are possible", world,
                         ZINF_NET_MOST_RANKS);
    return create(out, world, NULL);
}

int zinf_net_compare_seats(struct zinf_net *between, uint32_t n_seats)
{
    struct zinf_net_fact seats = {"number of seats (--seats, --devices)", n_seats};
    return zinf_net_compare(between, &seats, 1);
}

int zinf_net_seats_create(struct zinf_net **out, uint32_t n_seats, struct zinf_net *between)
{
    uint32_t processes = between ? between->place.world : 1;
    if (n_seats < 1 || n_seats > ZINF_NET_MOST_RANKS / processes)
        return zinf_fail(-EINVAL, "%u seats in each of %u processes: %d ranks are possible",
                         n_seats, processes, ZINF_NET_MOST_RANKS);
    int code = between ? zinf_net_compare_seats(between, n_seats) : 0;
    if (!code)
        code = create(out, n_seats, between);
    for (uint32_t s = 0; !code && !between && s < n_seats; s++)
        out[s]->noun = "seat";
    return code;
}

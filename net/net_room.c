/*
 * net_room: rooms and houses, what goes on in them is in net_threads.c and net_seats.c.
 */
#include "net/net_room.h"

#include <stdlib.h>

static struct house *house_of(const struct zinf_net *net)
{
    return ((const struct room *)net->state)->house;
}

static uint32_t number_of(const struct zinf_net *net)
{
    return net_number(net, net->place.rank);
}

bool room_wait(struct zinf_net *net, struct net_wait *wait, uint32_t peer)
{
    struct house *h = house_of(net);
    uint32_t own = number_of(net) - h->first, number = net_number(net, peer);
    uint64_t heard = zinf_pulse_last_ns(&h->pulses[number - h->first]);
    uint64_t at = net_now_ns() + NET_LOOK_NS;
    struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
    zinf_pulse_follow(net->pulse, heard); /* who waits lives as long as that one */
    h->waits[own] = number;
    bool changed = !pthread_cond_timedwait(&h->changed, &h->lock, &until);
    h->waits[own] = UINT32_MAX;
    net_wait_for(wait, peer, heard);
    return net_wait_is_over(net, wait) && !changed;
}

int room_late(struct zinf_net *net, uint32_t peer)
{
    const struct house *h = house_of(net);
    uint32_t number = net_number(net, peer);
    for (uint32_t i = 0; i < h->n_seats; i++) {
        uint32_t next = h->waits[number - h->first];
        if (next == UINT32_MAX || next == number_of(net))
            break;
        number = next;
    }
    return net_late_as(net, number);
}

bool room_has_failed(const struct zinf_net *net)
{
    const struct house *h = house_of(net);
    return h->failed && (h->failed_number != number_of(net) || net_is_over(net));
}

int room_fail(struct zinf_net *net)
{
    const struct house *h = house_of(net);
    bool own = h->failed_number == number_of(net);
    return own ? net_end(net) : net_told(net, h->number, h->sentence);
}

/* ---- life ---- */

struct house *house_create(const struct net_engine_ops *near, const struct net_engine_ops *far,
                           uint32_t n_seats)
{
    struct house *h = calloc(1, sizeof *h);
    if (h) {
        h->pulses = calloc(n_seats, sizeof *h->pulses);
        h->waits = malloc(n_seats * sizeof *h->waits);
    }
    if (!h || !h->pulses || !h->waits) {
        free(h ? h->pulses : NULL);
        free(h ? h->waits : NULL);
        free(h);
        return NULL;
    }
    h->ops[0] = near;
    h->ops[1] = far;
    h->n_seats = n_seats;
    for (uint32_t s = 0; s < n_seats; s++) {
        zinf_pulse_init(&h->pulses[s], zinf_pulse_of_thread());
        h->waits[s] = UINT32_MAX;
    }
    pthread_condattr_t monotonic; /* as deadlines are */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&h->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&h->lock, NULL);
    return h;
}

void house_free(struct house *h)
{
    pthread_mutex_destroy(&h->lock);
    pthread_cond_destroy(&h->changed);
    free(h->pulses);
    free(h->waits);
    free(h);
}

static void free_parts(struct room *room)
{
    free(room->meeting.lent);
    free(room->meeting.out);
    free(room->meeting.in);
    free(room->at);
    free(room->notes);
    free(room->given);
    free(room);
}

/* Also frees the house with its last room. */
static void room_free(struct room *room)
{
    struct house *h = room->house;
    if (room->owned)
        zinf_net_close(room->meeting.between);
    pthread_mutex_lock(&h->lock);
    bool last = --h->n_rooms == 0;
    pthread_mutex_unlock(&h->lock);
    if (last)
        house_free(h);
    free_parts(room);
}

/* Of this process, and the most of any. */
static void count_seats(struct room *room, uint32_t world)
{
    for (uint32_t r = 0; r < world; r++) {
        room->n_seats += room_has(room, r);
        if (room->at[r].seat >= room->most_seats)
            room->most_seats = room->at[r].seat + 1;
    }
}

int room_create(struct room **out, struct house *house, struct room_place *at, uint32_t world,
                uint32_t process, struct zinf_net *between)
{
    uint32_t n_processes = between ? between->place.world : 1;
    struct room *room = *out = calloc(1, sizeof *room);
    if (room) {
        room->house = house;
        room->at = at;
        room->process = process;
        count_seats(room, world);
        room->meeting = (struct meeting){
            .between = between,
            .lent = calloc(room->n_seats, sizeof(const struct net_exchange *)),
            .out = calloc(n_processes, sizeof(struct net_message)),
            .in = calloc(n_processes, sizeof(struct net_message)),
        };
        room->notes = calloc((size_t)room->n_seats * room->n_seats, sizeof *room->notes);
        room->given = calloc(room->n_seats, sizeof(struct room *));
    }
    if (!room || !room->notes || !room->given || !room->meeting.lent || !room->meeting.out ||
        !room->meeting.in) {
        if (room)
            free_parts(room);
        else
            free(at);
        *out = NULL;
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", world);
    }
    pthread_mutex_lock(&house->lock);
    house->n_rooms++;
    pthread_mutex_unlock(&house->lock);
    return 0;
}

/* Seats count where every process has as many, in the order of ranks. */
void room_enter(struct zinf_net *net, struct room *room)
{
    uint32_t n = room->n_seats;
    bool even = net->place.world % n == 0;
    for (uint32_t r = 0; r < net->place.world; r++)
        even &= room->at[r].process == r / n && room->at[r].seat == r % n;
    net->ops = room->house->ops[room->meeting.between != NULL];
    net->state = room;
    net->pulse = &room->house->pulses[number_of(net) - room->house->first];
    net->place.seat = even ? room->at[net->place.rank].seat : 0;
    net->place.seats = even ? n : 1;
}

void room_leave(struct room *room)
{
    struct house *h = room->house;
    pthread_mutex_lock(&h->lock);
    bool last = --room->open == 0;
    pthread_mutex_unlock(&h->lock);
    if (last)
        room_free(room);
}

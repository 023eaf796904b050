/*
 * net_room: what the nets of one process share. A message between two of them is a pointer to the
 * sender's bytes. Messages to other processes are collected and go over a net between the
 * processes (net_seats.c). A *room* is the shared part of one net, a *house* the rooms of a net
 * and of all nets split of it. A house has one lock, and one rank's failure ends the waits in all
 * its rooms. Inside this folder only.
 */
#ifndef ZINF_NET_ROOM_H
#define ZINF_NET_ROOM_H

#include "net/net_engine.h"

#include <pthread.h>

struct room_note {
    const void *data;
    uint64_t bytes;
    int state;
};

/* Collects the seats' messages to other processes. The seat that comes last sends them for all,
 * while the others wait and lend it their memory. */
struct meeting {
    struct zinf_net *between;         /* NULL: there are no other processes */
    const struct net_exchange **lent; /* [n_seats] exchange of each seat */
    struct net_message *out, *in;     /* [processes] messages of one exchange */
    uint32_t n_there;
    uint64_t n_held; /* number of exchanges that have ended */
    bool broken;     /* a seat has left an exchange before its end; no more are possible */
    int code;        /* result of the last exchange */
};

struct house {
    pthread_mutex_t lock; /* guards the fields below, and the rooms */
    pthread_cond_t changed;
    /* of rooms within this process, and of rooms with other processes */
    const struct net_engine_ops *ops[2];
    uint32_t n_rooms;
    struct zinf_net *between;  /* of the first room; borrowed */
    uint32_t first;            /* first rank of the first room in this process */
    uint32_t n_seats;          /* ranks of the first room in this process */
    struct zinf_pulse *pulses; /* [n_seats] of each rank */
    uint32_t *waits; /* [n_seats] number of the rank that each waits for; UINT32_MAX: none */
    bool failed;
    uint32_t failed_number; /* of the rank that told of a failure */
    uint32_t number;        /* of the rank that failed, and its sentence */
    char sentence[1000];
};

struct room_place {
    uint32_t process, seat;
};

/* Shared by all ends in this process; the last end to close frees it. Ends are counted from the
 * room's creation on, since one thread may close its end before another has come. */
struct room {
    struct house *house;
    struct room_place *at;   /* [world] process and seat of each rank */
    uint32_t process;        /* this process */
    uint32_t n_seats, open;  /* ends that are open or have not come yet */
    uint32_t most_seats;     /* largest number of seats in a process */
    struct room_note *notes; /* [n_seats from][n_seats to] */
    struct room **given; /* [n_seats] during a split: the new room of a seat until it takes it */
    struct meeting meeting;
    bool owned; /* the room closes meeting.between */
};

static inline bool room_has(const struct room *room, uint32_t rank)
{
    return room->at[rank].process == room->process;
}

/* Seat of this rank. */
static inline uint32_t room_seat(const struct zinf_net *net)
{
    const struct room *room = net->state;
    return room->at[net->place.rank].seat;
}

/* net_room.c. Operations of rooms within a process, and of other rooms. */
struct house *house_create(const struct net_engine_ops *near, const struct net_engine_ops *far,
                           uint32_t n_seats);
void house_free(struct house *house);
/* Takes over `at`, also if it fails. */
int room_create(struct room **out, struct house *house, struct room_place *at, uint32_t world,
                uint32_t process, struct zinf_net *between);
/* Sets ops, state and seat of an end whose rank and world are set. The room has counted it already.
 */
void room_enter(struct zinf_net *net, struct room *room);
/* Closes an end; the last one frees the room. */
void room_leave(struct room *room);
/* Waits a short time for a change. Returns whether peer, a seat of this process, is late. The
 * caller holds the lock. */
bool room_wait(struct zinf_net *net, struct net_wait *wait, uint32_t peer);
/* Fails because peer, or the rank that it waits for in turn, is late. The caller holds the lock. */
int room_late(struct zinf_net *net, uint32_t peer);
/* Whether another end, or another thread of this one, has failed. The caller holds the lock. */
bool room_has_failed(const struct zinf_net *net);
int room_fail(struct zinf_net *net);

/* net_seats.c: messages between processes, after those within the process. */
int room_exchange_between(struct zinf_net *net, const struct net_exchange *x);
/* Whether another process has failed, while no seat uses the net between processes. The caller
 * holds the lock. */
int room_listen_between(struct zinf_net *net);

/* net_room_split.c: the engine's split. */
int room_split(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split);

#endif

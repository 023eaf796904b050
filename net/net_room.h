/*
 * net_room: what the ends of one process share. A message between two of them is a note of where
 * the sender's bytes lie; what goes to other processes is brought together and goes over a net
 * between the processes (net_seats.c). A *house* is the rooms of a net and of all that are split of
 * it: they have one lock, and one rank's failure ends the waits in all. Inside this folder only.
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

/* The seats' meeting before something goes between processes: whoever comes last does it for all,
 * while the others wait and lend it their messages. */
struct meeting {
    struct zinf_net *between;         /* NULL: there are no other processes */
    const struct net_exchange **lent; /* [n_seats] */
    struct net_message *out, *in;     /* [processes], of one exchange */
    uint32_t n_there;
    uint64_t n_held; /* meetings that have ended */
    bool broken;     /* a seat has left one before its end: there are no more */
    int code;        /* of the last */
};

struct house {
    pthread_mutex_t lock; /* guards all below, and the rooms */
    pthread_cond_t changed;
    const struct net_engine_ops *ops[2]; /* of rooms without others elsewhere, and with */
    uint32_t n_rooms;
    struct zinf_net *between;  /* of the first room; borrowed */
    uint32_t first;            /* that room's first rank here */
    uint32_t n_seats;          /* that room has here */
    struct zinf_pulse *pulses; /* [n_seats] */
    uint32_t *waits;           /* [n_seats] whom each waits for, a number; UINT32_MAX: nobody */
    bool failed;
    uint32_t failed_number; /* of who told */
    uint32_t number;        /* of who has failed, and its sentence */
    char sentence[1000];
};

struct room_place {
    uint32_t process, seat;
};

/* All ends here share it; the last one that closes frees it. An end counts from when the room is
 * made, not from when its thread comes: another thread may have closed its own by then. */
struct room {
    struct house *house;
    struct room_place *at;   /* [world] of each rank */
    uint32_t process;        /* this one */
    uint32_t n_seats, open;  /* ends that are or will be */
    uint32_t most_seats;     /* of a process */
    struct room_note *notes; /* [n_seats from][n_seats to] */
    struct room **given;     /* [n_seats] of a split, until that seat takes it: its new room */
    struct meeting meeting;
    bool owned; /* the net between is this room's */
};

static inline bool room_has(const struct room *room, uint32_t rank)
{
    return room->at[rank].process == room->process;
}

/* Of a rank that is here. */
static inline uint32_t room_seat(const struct zinf_net *net)
{
    const struct room *room = net->state;
    return room->at[net->place.rank].seat;
}

/* net_room.c. ops: of rooms whose ranks are all here, and of others. */
struct house *house_create(const struct net_engine_ops *near, const struct net_engine_ops *far,
                           uint32_t n_seats);
void house_free(struct house *house);
/* at: taken, after a failure too. */
int room_create(struct room **out, struct house *house, struct room_place *at, uint32_t world,
                uint32_t process, struct zinf_net *between);
/* With the last room goes its house. */
void room_free(struct room *room);
/* Gives an end, whose place says its rank and world, its ops, state and seat. It is one of those
 * that the room has counted as open. */
void room_enter(struct zinf_net *net, struct room *room);
/* One end less; the last one frees the room. */
void room_leave(struct room *room);
/* Under the lock: waits for a change, but not for long. Whether the one that is waited for, a seat
 * of this process, is late. */
bool room_wait(struct zinf_net *net, struct net_wait *wait, uint32_t peer);
/* Under the lock: that one is, or who it waits for in turn. */
int room_late(struct zinf_net *net, uint32_t peer);
/* Under the lock: whether another end, or another thread of this one, has failed. */
bool room_has_failed(const struct zinf_net *net);
int room_fail(struct zinf_net *net);

/* net_seats.c: messages between processes, after those among the ends of one. */
int room_exchange_between(struct zinf_net *net, const struct net_exchange *x);
/* Under the lock: whether another process has failed, while no seat uses the net between. */
int room_listen_between(struct zinf_net *net);

/* net_room_split.c */
int room_split(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split);

#endif

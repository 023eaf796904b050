/*
 * net_room: what the ends of one process share. A message between two of them is a note of where
 * the sender's bytes lie; what goes to other processes is brought together and goes over the
 * process's own net (net_seats.c). Inside this folder only.
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

/* All ends share it; the last one that closes frees it. */
struct room {
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t changed;
    uint32_t first, n_seats, open; /* ranks [first, first + n_seats) are here */
    uint32_t failed_rank;
    bool failed;
    char sentence[1000];
    struct room_note *notes;   /* [n_seats from][n_seats to] */
    struct zinf_pulse *pulses; /* [n_seats] */
    uint32_t *waits;           /* [n_seats] whom each waits for, a rank; UINT32_MAX: nobody */
    struct meeting meeting;
};

static inline bool room_has(const struct room *room, uint32_t rank)
{
    return rank >= room->first && rank - room->first < room->n_seats;
}

/* Under the lock: waits for a change, but not for long. Whether the one that is waited for, a seat
 * of this process, is late. */
bool room_wait(struct zinf_net *net, struct net_wait *wait, uint32_t peer);
/* The messages among this process's ends. */
int room_exchange(struct zinf_net *net, const struct net_exchange *x);
void room_tell(struct zinf_net *net, const char *sentence);

/* net_seats.c: the others, after those. */
int room_exchange_between(struct zinf_net *net, const struct net_exchange *x);
/* Under the lock: whether another process has failed, while no seat uses the net between. */
int room_listen_between(struct zinf_net *net);
/* Under the lock: the other processes hear of a failure here. */
void room_tell_between(struct zinf_net *net, const char *sentence);
int room_open_between(struct room *room, struct zinf_net *between);
void room_close_between(struct room *room);

#endif

/*
 * net_engine: what an engine of net.h provides and what it finds. An engine moves messages and
 * knows nothing of collectives. It may be a module that links to nothing of this library, so it
 * leaves the sentence of a failure in net->why and returns -errno. Inside this folder only.
 */
#ifndef ZINF_NET_ENGINE_H
#define ZINF_NET_ENGINE_H

#include "base/pulse.h"
#include "net/net.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#define NET_MODULE_VERSION 8 /* of everything here, which a module is compiled with */

struct net_message {
    void *data;
    uint64_t bytes;
    uint32_t peer;
};
/* At most one message to and one from each peer. */
struct net_exchange {
    const struct net_message *out, *in;
    uint32_t n_out, n_in;
    bool same; /* whoever sends sends every receiver the same bytes; alike on all ranks */
};

/* What a rank tells the others of itself between messages: so long ago was its last sign of life
 * (base/pulse.h), and whom it waits for. */
struct net_sign {
    uint32_t age_ms, waits_for; /* world: for nobody */
};

/* What each rank of a net says when that is split. */
struct net_member {
    uint32_t colour, key;
    uint32_t host;   /* the same for all on a host */
    uint32_t splits; /* the first rank's: how many its family has begun, this one included */
};
struct net_split {
    const struct net_member *said; /* [world of the net that is split] */
    uint32_t colour;               /* of this rank */
    uint32_t number;               /* no net that has two ranks in common with this one has it */
    uint32_t *ranks, n;            /* of this rank's colour, in their new order; of the parent */
};

struct net_engine_ops {
    /* Sends out and fills in, all at once, and returns when both are done. Messages of a pair of
     * ranks match in the order of calls. -ETIMEDOUT where net_wait says that a peer is late;
     * -ECONNABORTED where a peer has told of its failure; -EPROTO where a message has another
     * length than its receiver expects. */
    int (*exchange)(struct zinf_net *net, const struct net_exchange *x);
    /* Among ranks in one memory, NULL where none are: in's messages are not copied; their data is
     * set to where the peer has them. Until give_back, which waits for the others' too: nobody's
     * memory goes before all are done with it, even if a rank has failed. */
    int (*borrow)(struct zinf_net *net, const struct net_exchange *x, struct net_message *in);
    int (*give_back)(struct zinf_net *net, const struct net_exchange *x);
    /* Between exchanges, and at once: -ECONNABORTED where a rank has told of its failure, or its
     * end is gone. Messages are left where they are. */
    int (*listen)(struct zinf_net *net);
    /* To all other ranks where nothing else is under way; does not wait. What comes of theirs goes
     * to net_heard, in exchange and listen. NULL: all ranks are in one memory. */
    void (*sign)(struct zinf_net *net, struct net_sign sign);
    /* Lets the others know that this rank cannot go on, since rank `number` (net_number) has failed
     * with that sentence; does not wait for those that hang. What was sent before still arrives. */
    void (*tell)(struct zinf_net *net, uint32_t number, const char *sentence);
    /* By all ranks of parent together. net has its rank, world and numbers; state and ops are the
     * engine's to fill. NULL: this rank has no colour. */
    int (*split)(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split);
    void (*close)(struct zinf_net *net);
};

/* A rank's end of a net and of all that are split of it: a failure is told over all of them. */
struct net_family {
    pthread_mutex_t lock;   /* guards all below, and told, busy and next of each net */
    struct zinf_net *first; /* of those that can tell: that are not being closed */
    uint32_t n_open;
    uint32_t n_splits; /* begun by nets of which this rank is the first */
    uint32_t world;    /* of the net that was split first */
    bool told;
    uint32_t number; /* who has failed, and its sentence */
    char sentence[1000];
    atomic_bool over; /* told: whoever is at an exchange gives it up */
};

struct zinf_net {
    const struct net_engine_ops *ops;
    void *state; /* the engine's */
    struct net_family *family;
    struct zinf_net *next; /* in the family */
    uint32_t host;
    uint32_t *numbers; /* [world] what messages call each rank: its number in the net that was split
                        * first; NULL: as it is here */
    char name[96];
    const char *noun; /* what messages call a rank; NULL: "rank" */
    struct zinf_net_place place;
    _Atomic uint64_t timeout_ns;
    struct zinf_pulse *pulse; /* of this rank */
    /* [world] when each gave its last sign of life, 0: never yet, and whom it waits for */
    uint64_t *heard_ns;
    uint32_t *waits_for;
    /* The rank that this one waits for, or world if it waits for none; and when it was heard of */
    uint32_t own_wait;
    uint64_t follows_ns;
    bool joined; /* the family knows of it */
    bool busy;   /* an exchange is under way, which ends before the net tells of a failure */
    struct net_watch *watch;
    pthread_mutex_t lock; /* guards state, heard_ns and waits_for of a net with a watch */
    int failed;
    bool told;
    bool heard; /* of another rank's failure: its number and sentence */
    uint32_t heard_number;
    char heard_sentence[1000];
    char why[1024];               /* of the failure */
    struct net_message *out, *in; /* [world] */
    float **parts;                /* [world] */
    float *scratch;               /* [world][NET_PIECE_ELEMS] */
    uint64_t sent_bytes, lent_bytes;
};

/* Sums are made piece by piece: so much of each rank's slice is at hand at once. Large enough for
 * the speed of the wire, 4 MiB. */
#define NET_PIECE_ELEMS ((uint64_t)1 << 20)

/* ---- who lives: net_watch.c ----
 *
 * A rank is late when it has given no sign of life for the time limit: no byte and no sign of its
 * pulse. How long its work takes does not matter. Who only waits lives as long as the one that it
 * waits for, and the message names who is at the end of that chain. */

/* The other ranks are in other processes: a thread sends them signs, and ends this rank's pulse
 * where one has failed, while this one is at work. */
int net_watch_begin(struct zinf_net *net);
void net_watch_end(struct zinf_net *net);
/* The limit is another one. */
void net_watch_wake(struct zinf_net *net);

/* As zinf_net_set_timeout, of this net alone. */
void net_set_limit(struct zinf_net *net, uint64_t timeout_ns);
/* An exchange of the engine's, while the watch stands aside. */
int net_run(struct zinf_net *net, const struct net_exchange *x);
/* net.c, for collectives: n_out messages of net->out go and n_in of net->in come. The same without
 * copies, n each way: in's data becomes where it lies, until it is given back, also after a failure
 * in between. */
int net_pass(struct zinf_net *net, uint32_t n_out, uint32_t n_in, bool same);
int net_borrow(struct zinf_net *net, uint32_t n);
int net_give_back(struct zinf_net *net, uint32_t n);
/* Whether a rank has failed that others wait for by other ways than this net; the net has then
 * failed with it. */
int net_listen(struct zinf_net *net);
/* The i-th of the other ranks, from the next one on: not all begin with the same. */
uint32_t net_other(const struct zinf_net *net, uint32_t i);
/* net.c: the parts of a net that no engine fills; a net without a family gets its own. */
int net_init(struct zinf_net *net, uint32_t rank, uint32_t world);
/* net_split.c: the ranks that said this colour, in order of their keys; how many they are. */
uint32_t net_ranks_of(const struct net_member *said, uint32_t world, uint32_t colour,
                      uint32_t *ranks);

/* The entry of the module: fills ops, state, name and place of a net that is zero. version: of the
 * caller. wanted: how many ranks the launcher named. */
#define NET_MODULE_ENTRY "zinf_net_mpi_start"
typedef int net_module_start(struct zinf_net *net, int version, uint32_t wanted);

static inline uint64_t net_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Under the lock: a byte of a peer's has come, or a sign. */
static inline void net_heard(struct zinf_net *net, uint32_t peer, const struct net_sign *sign)
{
    uint64_t now = net_now_ns(), age = sign ? (uint64_t)sign->age_ms * 1000000u : 0;
    uint64_t at = now > age ? now - age : 0;
    net->heard_ns[peer] = at > net->heard_ns[peer] ? at : net->heard_ns[peer];
    net->waits_for[peer] = sign ? sign->waits_for : net->place.world;
}

/* Who is at the end of the chain of those that wait. */
static inline uint32_t net_blamed(const struct zinf_net *net, uint32_t peer)
{
    for (uint32_t i = 0; i < net->place.world; i++) {
        uint32_t next = net->waits_for[peer];
        if (next >= net->place.world || next == net->place.rank)
            break;
        peer = next;
    }
    return peer;
}

/* Sentences that engines have in common. */
static inline const char *net_noun(const struct zinf_net *net)
{
    return net->noun ? net->noun : "rank";
}

static inline uint32_t net_number(const struct zinf_net *net, uint32_t rank)
{
    return net->numbers ? net->numbers[rank] : rank;
}

/* Another of this rank's threads has told of a failure. */
static inline bool net_is_over(const struct zinf_net *net)
{
    return atomic_load_explicit(&net->family->over, memory_order_relaxed); /* a hint */
}

static inline int net_end(struct zinf_net *net)
{
    snprintf(net->why, sizeof net->why, "%s %u has failed beside this", net_noun(net),
             net_number(net, net->place.rank));
    return -ECONNABORTED;
}

/* number: net_number's. */
static inline int net_late_as(struct zinf_net *net, uint32_t number)
{
    snprintf(net->why, sizeof net->why,
             "%s %u has sent nothing for %.0f s: it has died or hangs, or its host is not "
             "reached; if it is only slow, raise zinf.timeout",
             net_noun(net), number, (double)net->timeout_ns * 1e-9);
    return -ETIMEDOUT;
}

static inline int net_late(struct zinf_net *net, uint32_t peer)
{
    return net_late_as(net, net_number(net, peer));
}

/* One wait. Each look names all whose messages are missing, with when they were heard of. */
struct net_wait {
    uint64_t begin_ns, looked_ns, oldest_ns;
    uint32_t peer; /* that was heard of longest ago */
};
#define NET_LOOK_NS 100000000u   /* between looks, at most */
#define NET_GRACE_NS 2000000000u /* for one who comes to a wait to hear of the others */

static inline struct net_wait net_wait_begin(void)
{
    uint64_t now = net_now_ns();
    return (struct net_wait){now, now, UINT64_MAX, 0};
}

static inline void net_wait_for(struct net_wait *wait, uint32_t peer, uint64_t heard_ns)
{
    if (heard_ns < wait->oldest_ns) {
        wait->oldest_ns = heard_ns;
        wait->peer = peer;
    }
}

/* After all were named: whether one is late. Who was stopped itself begins to wait anew. */
static inline bool net_wait_is_over(const struct zinf_net *net, struct net_wait *wait)
{
    uint64_t now = net_now_ns(), limit = net->timeout_ns;
    uint64_t grace = limit < NET_GRACE_NS ? limit : NET_GRACE_NS, end;
    if (now - wait->looked_ns > NET_GRACE_NS)
        wait->begin_ns = now;
    end = wait->begin_ns + (wait->oldest_ns ? grace : limit);
    if (wait->oldest_ns == UINT64_MAX) /* nobody is missing any more */
        return false;
    if (wait->oldest_ns && wait->oldest_ns + limit > end)
        end = wait->oldest_ns + limit;
    wait->looked_ns = now;
    wait->oldest_ns = UINT64_MAX;
    return now > end;
}

static inline int net_other_length(struct zinf_net *net, uint32_t peer, uint64_t has,
                                   uint64_t wants)
{
    snprintf(net->why, sizeof net->why,
             "%s %u sent %llu bytes where %llu are expected: the ranks do not run the same step",
             net_noun(net), net_number(net, peer), (unsigned long long)has,
             (unsigned long long)wants);
    return -EPROTO;
}

/* number: net_number's. */
static inline int net_told(struct zinf_net *net, uint32_t number, const char *sentence)
{
    snprintf(net->why, sizeof net->why, "%s %u has failed: %.900s", net_noun(net), number,
             sentence);
    net->heard = true;
    net->heard_number = number;
    snprintf(net->heard_sentence, sizeof net->heard_sentence, "%s", sentence);
    return -ECONNABORTED;
}

#endif

/*
 * net_engine: what an engine of net.h provides, and the state that it finds. An engine moves
 * messages and knows nothing of collectives. It may be a module that links to nothing of this
 * library. So it writes the sentence of a failure to net->why and returns -errno. Inside this
 * folder only.
 */
#ifndef ZINF_NET_ENGINE_H
#define ZINF_NET_ENGINE_H

#include "base/pulse.h"
#include "net/net.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

/* A module is compiled with the number of its time. It grows with every change of this header. */
#define NET_MODULE_VERSION 9

struct net_message {
    void *data;
    uint64_t bytes;
    uint32_t peer;
};
/* Messages of one exchange: at most one to each peer and one from each. */
struct net_exchange {
    const struct net_message *out, *in;
    uint32_t n_out, n_in;
    bool same; /* a rank sends the same bytes to all receivers; the same value on all ranks */
};

/* What a rank tells the others between messages: the age of its last sign of life (base/pulse.h),
 * and the rank that it waits for. */
struct net_sign {
    uint32_t age_ms, waits_for; /* waits_for: world if it waits for none */
};

/* What a rank that cannot go on tells the others: it has taken part in so many exchanges. What it
 * sent in those still arrives, so the others go on up to where it stopped, however early they hear.
 */
struct net_last_words {
    uint64_t exchanges;
    uint32_t number; /* of who has failed */
    char sentence[1000];
};
/* Those of the rank that stopped first. */
struct net_first_words {
    struct net_last_words words;
    uint32_t from; /* world: of nobody */
};

/* What each rank of a net says when the net is split. */
struct net_member {
    uint32_t colour, key;
    uint32_t host;   /* the same for all ranks of a host */
    uint32_t splits; /* of the first rank: the number of splits in its family, with this one */
};
struct net_split {
    const struct net_member *said; /* [world of the parent] */
    uint32_t colour;               /* of this rank */
    uint32_t number;               /* Differs for any two nets that have two ranks in common. */
    /* [n] the parent's numbers of the ranks with this rank's colour, in the order of the new net */
    uint32_t *ranks, n;
};

struct net_engine_ops {
    /* Sends x->out and fills x->in, all at once, and returns when both are done. The i-th message
     * from one rank to another is received by the i-th exchange that expects one. -ETIMEDOUT: a
     * peer is late by net_wait; -ECONNABORTED: a peer has failed; -EPROTO: a message has another
     * length than expected. */
    int (*exchange)(struct zinf_net *net, const struct net_exchange *x);
    /* Sets the data of in's messages to where the peers have them, without a copy. NULL: ranks do
     * not share memory. The memory is valid until give_back, which waits until no peer uses this
     * rank's memory any more, even after a failure. */
    int (*borrow)(struct zinf_net *net, const struct net_exchange *x, struct net_message *in);
    int (*give_back)(struct zinf_net *net, const struct net_exchange *x);
    /* Looks between exchanges, without waiting, whether another rank has failed: -ECONNABORTED.
     * Takes no messages. */
    int (*listen)(struct zinf_net *net);
    /* Sends a sign of life to all other ranks while no exchange runs; does not wait. Signs that
     * arrive are given to net_heard by exchange and listen. NULL: all ranks are in one process. */
    void (*sign)(struct zinf_net *net, struct net_sign sign);
    /* Tells the other ranks that this one ends because rank `number` (net_number) has failed with
     * this sentence; does not wait for ranks that hang. Messages sent before still arrive. */
    void (*tell)(struct zinf_net *net, uint32_t number, const char *sentence);
    /* Opens a net of a split, by all ranks of parent together. net's rank, world and numbers are
     * set; the engine sets state and ops. net NULL: this rank gave no colour. */
    int (*split)(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split);
    void (*close)(struct zinf_net *net);
};

/* The nets of a rank that come of one net by splits. A failure of one is told over all of them. */
struct net_family {
    pthread_mutex_t lock;   /* guards the fields below, and told, busy and next of each net */
    struct zinf_net *first; /* list of the nets that are not being closed */
    uint32_t n_open;
    uint32_t n_splits; /* splits so far of nets whose first rank is this one */
    uint32_t world;    /* of the net that was split first */
    bool told;
    uint32_t number; /* the rank that failed, and its sentence */
    char sentence[1000];
    atomic_bool over; /* set with told: exchanges under way give up */
};

struct zinf_net {
    const struct net_engine_ops *ops;
    void *state; /* of the engine */
    struct net_family *family;
    struct zinf_net *next; /* next net of the family */
    uint32_t host;
    /* [world] the numbers that messages give the ranks, which are those in the net that was split
     * first; NULL: 0, 1, ... */
    uint32_t *numbers;
    char name[96];
    const char *noun; /* the word that messages use for a rank; NULL: "rank" */
    struct zinf_net_place place;
    _Atomic uint64_t timeout_ns;
    struct zinf_pulse *pulse; /* of this rank */
    /* [world] when each rank gave its last sign of life, 0: never; and the rank that it waits for
     */
    uint64_t *heard_ns;
    uint32_t *waits_for;
    /* the rank that this one waits for, or world for none; and since when that one gave its last
     * sign */
    uint32_t own_wait;
    uint64_t follows_ns;
    bool joined; /* the net is in its family's list */
    bool busy;   /* An exchange is under way. It ends before the net tells of a failure. */
    struct net_watch *watch;
    pthread_mutex_t lock; /* in a net with a watch: guards state, heard_ns and waits_for */
    int failed;
    bool told;
    bool heard; /* another rank has told of a failure, with this number and sentence */
    uint32_t heard_number;
    char heard_sentence[1000];
    char why[1024];               /* sentence of this net's failure */
    struct net_message *out, *in; /* [world] */
    float **parts;                /* [world] */
    float *scratch; /* [world][NET_PIECE_ELEMS]; what is written of it: zinf_net_sum_bytes */
    uint64_t sent_bytes, lent_bytes;
};

/* Sums are made in pieces: so many elements of every rank's slice are in memory at once. 4 MiB are
 * enough for the full speed of a network. */
#define NET_PIECE_ELEMS ((uint64_t)1 << 20)

/* ---- who lives: net_watch.c ----
 *
 * A rank is late when it has given no sign of life for the time limit: no byte and no sign of its
 * pulse. How long its work takes does not matter. Who only waits lives as long as the one that it
 * waits for, and the message names who is at the end of that chain. */

/* Starts a thread that sends signs of life to ranks in other processes, and ends this rank's pulse
 * if another one has failed while this one works. */
int net_watch_begin(struct zinf_net *net);
void net_watch_end(struct zinf_net *net);
/* Tells the thread that the time limit has changed. */
void net_watch_wake(struct zinf_net *net);

/* Sets the time limit of this net alone. */
void net_set_limit(struct zinf_net *net, uint64_t timeout_ns);
/* Runs an exchange of the engine, while the watch's thread does not use the net. */
int net_run(struct zinf_net *net, const struct net_exchange *x);
/* net.c, for collectives. net_pass sends n_out messages of net->out and receives n_in into net->in.
 * net_borrow is the same without copies, n in each direction; after it net_give_back must be
 * called, also after a failure in between. */
int net_pass(struct zinf_net *net, uint32_t n_out, uint32_t n_in, bool same);
int net_borrow(struct zinf_net *net, uint32_t n);
int net_give_back(struct zinf_net *net, uint32_t n);
/* For a wait that does not use this net: whether a rank has failed. The net has then failed as
 * well. */
int net_listen(struct zinf_net *net);
/* The i-th of the other ranks, counted from the one behind this rank, so that not all ranks begin
 * with the same one. */
uint32_t net_other(const struct zinf_net *net, uint32_t i);
/* net.c: sets the fields of a net that engines do not set. A net without a family gets one. */
int net_init(struct zinf_net *net, uint32_t rank, uint32_t world);
/* net_split.c: writes the ranks with this colour to `ranks`, ordered by key, and returns their
 * number. */
uint32_t net_ranks_of(const struct net_member *said, uint32_t world, uint32_t colour,
                      uint32_t *ranks);

/* The module's entry. It sets ops, state, name and place of a net that is all zeros. version:
 * NET_MODULE_VERSION of the caller. wanted: number of ranks by the launcher. */
#define NET_MODULE_ENTRY "zinf_net_mpi_start"
typedef int net_module_start(struct zinf_net *net, int version, uint32_t wanted);

static inline uint64_t net_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* Notes that a byte or a sign of a peer has arrived. The caller holds the lock. */
static inline void net_heard(struct zinf_net *net, uint32_t peer, const struct net_sign *sign)
{
    uint64_t now = net_now_ns(), age = sign ? (uint64_t)sign->age_ms * 1000000u : 0;
    uint64_t at = now > age ? now - age : 0;
    net->heard_ns[peer] = at > net->heard_ns[peer] ? at : net->heard_ns[peer];
    net->waits_for[peer] = sign ? sign->waits_for : net->place.world;
}

/* The rank at the end of the chain of ranks that wait for each other, from peer on. */
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

/* Words that the messages of all engines use. */
static inline const char *net_noun(const struct zinf_net *net)
{
    return net->noun ? net->noun : "rank";
}

static inline uint32_t net_number(const struct zinf_net *net, uint32_t rank)
{
    return net->numbers ? net->numbers[rank] : rank;
}

/* Whether another thread of this rank has told of a failure. */
static inline bool net_is_over(const struct zinf_net *net)
{
    /* a hint; the lock decides */
    return atomic_load_explicit(&net->family->over, memory_order_relaxed);
}

static inline int net_end(struct zinf_net *net)
{
    snprintf(net->why, sizeof net->why, "%s %u has failed beside this", net_noun(net),
             net_number(net, net->place.rank));
    return -ECONNABORTED;
}

/* number: of net_number. */
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

/* The state of one wait. In each look, net_wait_for is called for every rank whose message is
 * missing, with the time of its last sign. */
struct net_wait {
    uint64_t begin_ns, looked_ns, oldest_ns;
    uint32_t peer; /* the one with the oldest sign */
};
#define NET_LOOK_NS 100000000u /* longest time between looks */
/* Time in which a rank that begins to wait may receive old signs. */
#define NET_GRACE_NS 2000000000u

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

/* Whether a rank is late; ends a look. If this process itself was stopped for a while, the wait
 * begins anew. */
static inline bool net_wait_is_over(const struct zinf_net *net, struct net_wait *wait)
{
    uint64_t now = net_now_ns(), limit = net->timeout_ns;
    uint64_t grace = limit < NET_GRACE_NS ? limit : NET_GRACE_NS, end;
    if (now - wait->looked_ns > NET_GRACE_NS)
        wait->begin_ns = now;
    end = wait->begin_ns + (wait->oldest_ns ? grace : limit);
    if (wait->oldest_ns == UINT64_MAX) /* no message is missing */
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

/* number: of net_number. */
static inline int net_told(struct zinf_net *net, uint32_t number, const char *sentence)
{
    snprintf(net->why, sizeof net->why, "%s %u has failed: %.900s", net_noun(net), number,
             sentence);
    net->heard = true;
    net->heard_number = number;
    snprintf(net->heard_sentence, sizeof net->heard_sentence, "%s", sentence);
    return -ECONNABORTED;
}

/* Keeps a peer's last words, if it stopped before the others that have told. */
static inline void net_keep_words(const struct zinf_net *net, struct net_first_words *first,
                                  uint32_t peer, struct net_last_words *words)
{
    words->sentence[sizeof words->sentence - 1] = 0;
    if (first->from == net->place.world || words->exchanges < first->words.exchanges)
        *first = (struct net_first_words){*words, peer};
}

/* Fails where a rank that cannot go on is not in this rank's exchange of that number. */
static inline int net_check_words(struct zinf_net *net, const struct net_first_words *first,
                                  uint64_t exchanges)
{
    if (first->from == net->place.world || first->words.exchanges > exchanges)
        return 0;
    return net_told(net, first->words.number, first->words.sentence);
}

#define NET_SPINS 200 /* looks before a wait sleeps between them */

/* Between two looks of a wait: leaves the CPU to others, and after NET_SPINS looks sleeps 20 us. */
static inline void net_pause(uint32_t looks)
{
    static const struct timespec time = {0, 20000};
    if (looks < NET_SPINS)
        sched_yield();
    else
        nanosleep(&time, NULL);
}

#endif

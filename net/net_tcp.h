/*
 * net_tcp: what the files of the engine over sockets share. net_tcp_meet.c opens the sockets,
 * net_tcp.c exchanges messages. Inside this folder only.
 */
#ifndef ZINF_NET_TCP_H
#define ZINF_NET_TCP_H

#include "net/net_engine.h"

/* What a launcher says of this rank, and the address at which rank 0 waits for the others. */
struct net_tcp_start {
    uint32_t rank, world, local_rank, local_world;
    const char *address; /* name or number of rank 0's host */
    uint32_t port;
    const char *secret; /* known to all ranks; "": there is none */
    uint64_t job;       /* differs between trainings */
    double seconds;     /* time limit for all ranks to come */
    int listener;       /* of rank 0: a socket that listens already; 0: none */
};
/* Opens the net of this rank. */
int net_tcp_open(struct zinf_net **out, const struct net_tcp_start *start);

/* ---- finding each other: net_tcp_meet.c ---- */

/* Opens a socket to every other rank [world]; -1: none. The caller closes them, also after a
 * failure, whose sentence is in net->why. */
int net_tcp_meet(struct zinf_net *net, const struct net_tcp_start *start, int *sockets);

/* The first message of a rank that connects. The answer is NET_TCP_NUMBER random bytes. Then both
 * send a proof of NET_TCP_PROOF bytes that they know the secret, the caller first. */
#define NET_TCP_MAGIC 0x327063746e697aull /* second version of this protocol */
#define NET_TCP_NUMBER 32
#define NET_TCP_PROOF 32
#define NET_TCP_LEAST_SECRET 16 /* characters */
struct net_tcp_hello {
    uint64_t magic, job;
    /* rank, number of ranks and listening port of the caller; rank that it calls */
    uint32_t rank, world, port, to;
    uint8_t number[NET_TCP_NUMBER];
};

/* net_tcp_proof.c: random bytes, and proofs (a keyed hash) of knowing the secret. who: "caller" or
 * "called"; number: the random bytes of the other side. */
bool net_tcp_random(uint8_t *bytes, size_t n);
bool net_tcp_prove(const char *secret, const char *who, const struct net_tcp_hello *hello,
                   const uint8_t *number, uint8_t *proof);
bool net_tcp_is_proven(const char *secret, const char *who, const struct net_tcp_hello *hello,
                       const uint8_t *number, const uint8_t *proof);

/* net_tcp_address.c: open a listening socket, or return -errno with net->why. Rank 0 listens at the
 * launcher's port. Another rank listens at a free port of the address over which it has reached
 * rank 0. */
#define NET_TCP_HOST 64 /* characters of a numeric address */
struct sockaddr_storage;
int net_tcp_listen_as_first(struct zinf_net *net, const struct net_tcp_start *start);
int net_tcp_listen_beside(struct zinf_net *net, const struct net_tcp_start *start, int first,
                          uint32_t *port);
/* Timeout for poll; 0: the deadline has passed. */
static inline int net_tcp_milliseconds_to(uint64_t end_ns)
{
    uint64_t now = net_now_ns();
    return now >= end_ns ? 0 : (int)((end_ns - now) / 1000000u + 1);
}
/* Waits until the socket can be written to or read, or the deadline. */
bool net_tcp_is_ready(int fd, short events, uint64_t end_ns);
/* Connects a non-blocking socket. -errno; -EPERM: only_private is set and the address is public. */
int net_tcp_call_once(const char *host, uint32_t port, uint64_t end_ns, bool only_private);
bool net_tcp_is_loopback(const struct sockaddr_storage *at);
bool net_tcp_is_private(const struct sockaddr_storage *at);
const char *net_tcp_show(const struct sockaddr_storage *at, char *text);

#endif

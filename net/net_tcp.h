/*
 * net_tcp: what the files of the engine over sockets share: its beginning (net_tcp_meet.c) and its
 * exchanges (net_tcp.c). Inside this folder only.
 */
#ifndef ZINF_NET_TCP_H
#define ZINF_NET_TCP_H

#include "net/net_engine.h"

/* What a launcher says of this rank, and where rank 0 waits for the others. */
struct net_tcp_start {
    uint32_t rank, world, local_rank, local_world;
    const char *address; /* of rank 0's host, by name or number */
    uint32_t port;
    const char *secret; /* that all ranks know, "": none */
    uint64_t job;       /* tells this training's ranks from another's */
    double seconds;     /* for all to come */
    int listener;       /* of rank 0: a socket that waits there already; 0: there is none */
};
/* The end of this rank. */
int net_tcp_open(struct zinf_net **out, const struct net_tcp_start *start);

/* ---- finding each other: net_tcp_meet.c ---- */

/* A socket to every other rank [world], -1: none, the caller's also after a failure. The sentence
 * of a failure goes into net->why. */
int net_tcp_meet(struct zinf_net *net, const struct net_tcp_start *start, int *sockets);

/* A caller's first words. The answer is a number of NET_TCP_NUMBER random bytes; then come two
 * proofs of NET_TCP_PROOF bytes, the caller's first. */
#define NET_TCP_MAGIC 0x327063746e697aull /* of this protocol, second version */
#define NET_TCP_NUMBER 32
#define NET_TCP_PROOF 32
#define NET_TCP_LEAST_SECRET 16 /* characters */
struct net_tcp_hello {
    uint64_t magic, job;
    uint32_t rank, world, port, to; /* who calls, of how many, its own port; whom it calls */
    uint8_t number[NET_TCP_NUMBER];
};

/* net_tcp_proof.c. who: "caller" or "called"; number: the other's. */
bool net_tcp_random(uint8_t *bytes, size_t n);
bool net_tcp_prove(const char *secret, const char *who, const struct net_tcp_hello *hello,
                   const uint8_t *number, uint8_t *proof);
bool net_tcp_is_proven(const char *secret, const char *who, const struct net_tcp_hello *hello,
                       const uint8_t *number, const uint8_t *proof);

/* net_tcp_address.c. A listening socket, or -errno with net->why: rank 0's, and that of another
 * rank at the address by which it has reached rank 0, at a port that is free. */
#define NET_TCP_HOST 64 /* characters of a numeric address */
struct sockaddr_storage;
int net_tcp_listen_as_first(struct zinf_net *net, const struct net_tcp_start *start);
int net_tcp_listen_beside(struct zinf_net *net, const struct net_tcp_start *start, int first,
                          uint32_t *port);
/* For poll: 0 where the deadline is over. */
static inline int net_tcp_milliseconds_to(uint64_t end_ns)
{
    uint64_t now = net_now_ns();
    return now >= end_ns ? 0 : (int)((end_ns - now) / 1000000u + 1);
}
/* Until a deadline: whether the socket can be written to, or read. */
bool net_tcp_is_ready(int fd, short events, uint64_t end_ns);
/* A socket that does not block, or -errno; -EPERM: the address is not private. */
int net_tcp_call_once(const char *host, uint32_t port, uint64_t end_ns, bool only_private);
bool net_tcp_is_loopback(const struct sockaddr_storage *at);
bool net_tcp_is_private(const struct sockaddr_storage *at);
const char *net_tcp_show(const struct sockaddr_storage *at, char *text);

#endif

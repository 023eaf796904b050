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
    uint64_t job;   /* tells this training's ranks from strangers */
    double seconds; /* for all to come */
    int listener;   /* of rank 0: a socket that waits there already; 0: there is none */
};
/* The end of this rank. */
int net_tcp_open(struct zinf_net **out, const struct net_tcp_start *start);

/* A socket to every other rank [world], -1: none, the caller's also after a failure. The sentence
 * of a failure goes into net->why. */
int net_tcp_meet(struct zinf_net *net, const struct net_tcp_start *start, int *sockets);
/* A socket that waits for callers at *port, or at one that is free where that is 0. */
int net_tcp_listen(struct zinf_net *net, uint32_t *port);
/* The address of who is at the other end of a socket, as a number. */
#define NET_TCP_ADDRESS_BYTES 64
bool net_tcp_peer(int fd, char address[NET_TCP_ADDRESS_BYTES]);

#endif

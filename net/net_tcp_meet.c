/*
 * net_tcp_meet: how ranks without an MPI find each other. Rank 0 waits where the launcher said;
 * each other one tells it its number and a port of its own, and gets everybody's. Then every rank
 * calls those before it and is called by those behind it. Who does not name this training is sent
 * away.
 */
#include "net/net_tcp.h"

#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define MAGIC 0x7a696e66746370ull /* of this protocol, first version */
#define HELLO_NS 5000000000u      /* for a caller to say who it is */
#define RETRY_NS 50000000         /* between calls of who is not there yet */

struct hello {
    uint64_t magic, job;
    uint32_t rank, world, port, unused;
};
struct place {
    char host[NET_TCP_ADDRESS_BYTES]; /* "": rank 0's */
    uint32_t port;
};

/* ---- bytes until a deadline ---- */

static int milliseconds_to(uint64_t end_ns)
{
    uint64_t now = net_now_ns();
    return now >= end_ns ? 0 : (int)((end_ns - now) / 1000000u + 1);
}

static bool is_ready(int fd, short events, uint64_t end_ns)
{
    struct pollfd p = {fd, events, 0};
    return poll(&p, 1, milliseconds_to(end_ns)) == 1;
}

static bool put(int fd, const void *data, size_t bytes, uint64_t end_ns)
{
    const char *at = data;
    while (bytes && is_ready(fd, POLLOUT, end_ns)) {
        ssize_t n = send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR)
            return false;
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return !bytes;
}

static bool get(int fd, void *data, size_t bytes, uint64_t end_ns)
{
    char *at = data;
    while (bytes && is_ready(fd, POLLIN, end_ns)) {
        ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
        if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return !bytes;
}

/* ---- sockets ---- */

/* Messages go at once, and a host that is gone is noticed in the end. */
static void set_options(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
}

/* On every address; *port 0: any that is free, which it is then. */
int net_tcp_listen(struct zinf_net *net, uint32_t *port)
{
    struct sockaddr_in6 at = {.sin6_family = AF_INET6, .sin6_port = htons((uint16_t)*port)};
    struct sockaddr_in old = {.sin_family = AF_INET, .sin_port = at.sin6_port};
    socklen_t bytes = sizeof at;
    int yes = 1, no = 0, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    bool newer = fd >= 0;
    if (!newer)
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (newer)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    int failed = newer ? bind(fd, (struct sockaddr *)&at, sizeof at)
                       : bind(fd, (struct sockaddr *)&old, sizeof old);
    if (fd >= 0 && !failed && !listen(fd, SOMAXCONN) &&
        !getsockname(fd, (struct sockaddr *)&at, &bytes)) {
        *port = ntohs(at.sin6_port); /* where an older address has it, too */
        return fd;
    }
    int error = errno;
    snprintf(net->why, sizeof net->why,
             "rank %u cannot wait for others at port %u: %s; name another in ZINF_MASTER_PORT",
             net->place.rank, *port, strerror(error));
    if (fd >= 0)
        close(fd);
    return -error;
}

static int call_once(const char *host, uint32_t port)
{
    char text[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int fd = -1;
    snprintf(text, sizeof text, "%u", port);
    if (getaddrinfo(host, text, &hints, &found))
        return -1;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen)) {
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(found);
    return fd;
}

/* Who waits there may not do so yet. */
static int call(struct zinf_net *net, uint32_t rank, const char *host, uint32_t port,
                uint64_t end_ns)
{
    static const struct timespec pause = {0, RETRY_NS};
    for (;;) {
        int fd = call_once(host, port);
        if (fd >= 0) {
            set_options(fd);
            return fd;
        }
        if (net_now_ns() >= end_ns)
            break;
        nanosleep(&pause, NULL);
    }
    snprintf(
        net->why, sizeof net->why,
        "rank %u is not there at %.200s, port %u: is it started, and does a firewall let it be "
        "reached?",
        rank, host, port);
    return -ETIMEDOUT;
}

bool net_tcp_peer(int fd, char address[NET_TCP_ADDRESS_BYTES])
{
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    return !getpeername(fd, (struct sockaddr *)&at, &bytes) &&
           !getnameinfo((struct sockaddr *)&at, bytes, address, NET_TCP_ADDRESS_BYTES, NULL, 0,
                        NI_NUMERICHOST);
}

/* ---- who calls ---- */

static int fail_missing(struct zinf_net *net, const int *sockets, const struct net_tcp_start *start)
{
    uint32_t r = 0;
    while (r + 1 < start->world && (sockets[r] >= 0 || r <= start->rank))
        r++;
    snprintf(net->why, sizeof net->why,
             "rank %u of %u has not come within %.0f s: look at its output, and that "
             "MASTER_ADDR and MASTER_PORT are the same everywhere",
             r, start->world, start->seconds);
    return -ETIMEDOUT;
}

/* Who is on rank 0's host may come by an address that means another host elsewhere. */
static bool is_loopback(const struct sockaddr_storage *from)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)from)->sin6_addr;
    if (from->ss_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)from)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

/* Until ranks (own, world) have called. Their places, where places is not NULL. */
static int be_called(struct zinf_net *net, int listener, const struct net_tcp_start *start,
                     int *sockets, struct place *places, uint64_t end_ns)
{
    for (uint32_t n = start->rank + 1; n < start->world;) {
        struct sockaddr_storage from;
        socklen_t bytes = sizeof from;
        struct hello hello;
        if (!is_ready(listener, POLLIN, end_ns))
            return fail_missing(net, sockets, start);
        int fd = accept4(listener, (struct sockaddr *)&from, &bytes, SOCK_CLOEXEC);
        bool ours = fd >= 0 && get(fd, &hello, sizeof hello, net_now_ns() + HELLO_NS) &&
                    hello.magic == MAGIC && hello.job == start->job &&
                    hello.world == start->world && hello.rank > start->rank &&
                    hello.rank < start->world && sockets[hello.rank] < 0;
        if (!ours) { /* a stranger */
            if (fd >= 0)
                close(fd);
            continue;
        }
        set_options(fd);
        sockets[hello.rank] = fd;
        n++;
        if (places) {
            places[hello.rank].port = hello.port;
            if (is_loopback(&from))
                continue;
            getnameinfo((struct sockaddr *)&from, bytes, places[hello.rank].host,
                        NET_TCP_ADDRESS_BYTES, NULL, 0, NI_NUMERICHOST);
        }
    }
    return 0;
}

/* To one of the ranks before. */
static int call_rank(struct zinf_net *net, const struct net_tcp_start *start, uint32_t rank,
                     const struct place *place, uint32_t own_port, uint64_t end_ns)
{
    const struct hello hello = {MAGIC, start->job, start->rank, start->world, own_port, 0};
    int fd = call(net, rank, *place->host ? place->host : start->address, place->port, end_ns);
    if (fd < 0 || put(fd, &hello, sizeof hello, end_ns))
        return fd;
    close(fd);
    snprintf(net->why, sizeof net->why, "rank %u does not listen", rank);
    return -ECONNABORTED;
}

static int fail_sent_away(struct zinf_net *net, const struct net_tcp_start *start)
{
    snprintf(net->why, sizeof net->why,
             "rank 0 at %.200s, port %u, does not answer rank %u of %u: another rank has not come, "
             "or that is another training; MASTER_ADDR, MASTER_PORT, WORLD_SIZE and the "
             "launcher's run must be the same everywhere, and RANK of each its own",
             start->address, start->port, start->rank, start->world);
    return -ECONNABORTED;
}

int net_tcp_meet(struct zinf_net *net, const struct net_tcp_start *start, int *sockets)
{
    uint64_t end_ns = net_now_ns() + (uint64_t)(start->seconds * 1e9);
    uint32_t port = start->rank ? 0 : start->port, world = start->world;
    struct place *places = calloc(world, sizeof *places);
    int listener = start->listener ? start->listener : net_tcp_listen(net, &port);
    int code = listener < 0 ? listener : places ? 0 : -ENOMEM;
    if (!code && !start->rank) {
        code = be_called(net, listener, start, sockets, places, end_ns);
        for (uint32_t r = 1; !code && r < world; r++)
            if (!put(sockets[r], places, world * sizeof *places, end_ns))
                code = fail_missing(net, sockets, start);
    } else if (!code) {
        const struct place first = {"", start->port};
        for (uint32_t r = 0; !code && r < start->rank; r++) {
            sockets[r] = call_rank(net, start, r, r ? &places[r] : &first, port, end_ns);
            code = sockets[r] < 0 ? sockets[r] : 0;
            if (!code && !r && !get(sockets[0], places, world * sizeof *places, end_ns))
                code = fail_sent_away(net, start);
        }
        if (!code)
            code = be_called(net, listener, start, sockets, NULL, end_ns);
    }
    if (listener >= 0)
        close(listener);
    free(places);
    return code;
}

/*
 * net_tcp_address: where ranks without an MPI listen and whom they call. A rank listens where the
 * others call it and nowhere else: at the address that MASTER_ADDR means on its own host.
 */
#include "net/net_tcp.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- what an address is ---- */

/* In the order of the wire; false: it is no IPv4 address, not even within an IPv6 one. */
static bool as_ipv4(const struct sockaddr_storage *at, uint8_t *bytes)
{
    const struct in6_addr *six = &((const struct sockaddr_in6 *)at)->sin6_addr;
    if (at->ss_family == AF_INET)
        memcpy(bytes, &((const struct sockaddr_in *)at)->sin_addr, 4);
    else if (at->ss_family == AF_INET6 && IN6_IS_ADDR_V4MAPPED(six))
        memcpy(bytes, six->s6_addr + 12, 4);
    else
        return false;
    return true;
}

bool net_tcp_is_loopback(const struct sockaddr_storage *at)
{
    uint8_t b[4];
    if (as_ipv4(at, b))
        return b[0] == 127;
    return at->ss_family == AF_INET6 &&
           IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)at)->sin6_addr);
}

/* Those that no router of the internet passes on. */
bool net_tcp_is_private(const struct sockaddr_storage *at)
{
    uint8_t b[4];
    if (as_ipv4(at, b))
        return b[0] == 127 || b[0] == 10 || (b[0] == 172 && b[1] / 16 == 1) ||
               (b[0] == 192 && b[1] == 168) || (b[0] == 169 && b[1] == 254) ||
               (b[0] == 100 && b[1] / 64 == 1);
    const struct in6_addr *six = &((const struct sockaddr_in6 *)at)->sin6_addr;
    return at->ss_family == AF_INET6 &&
           (IN6_IS_ADDR_LOOPBACK(six) || IN6_IS_ADDR_LINKLOCAL(six) || six->s6_addr[0] / 2 == 0x7e);
}

const char *net_tcp_show(const struct sockaddr_storage *at, char *text)
{
    if (getnameinfo((const struct sockaddr *)at, sizeof *at, text, NET_TCP_HOST, NULL, 0,
                    NI_NUMERICHOST))
        snprintf(text, NET_TCP_HOST, "?");
    return text;
}

/* ---- listening ---- */

static void set_port(struct sockaddr_storage *at, uint32_t port)
{
    if (at->ss_family == AF_INET)
        ((struct sockaddr_in *)at)->sin_port = htons((uint16_t)port);
    else
        ((struct sockaddr_in6 *)at)->sin6_port = htons((uint16_t)port);
}

static int listen_once(struct sockaddr_storage *at, uint32_t *port)
{
    socklen_t bytes =
        at->ss_family == AF_INET ? sizeof(struct sockaddr_in) : sizeof(struct sockaddr_in6);
    int yes = 1, no = 0, fd = socket(at->ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -errno;
    if (at->ss_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no);
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    set_port(at, *port);
    if (!bind(fd, (struct sockaddr *)at, bytes) && !listen(fd, SOMAXCONN) &&
        !getsockname(fd, (struct sockaddr *)at, &bytes)) {
        *port = ntohs(((struct sockaddr_in6 *)at)->sin6_port); /* where an older address has it */
        return fd;
    }
    int error = errno;
    close(fd);
    return -error;
}

/* Where a host name means the loopback, as /etc/hosts often has it, and other hosts take part, the
 * name means another address there. */
static bool is_for_others(const struct sockaddr_storage *at, const struct net_tcp_start *start)
{
    return net_tcp_is_loopback(at) && start->local_world < start->world;
}

static int listen_everywhere(uint32_t *port)
{
    struct sockaddr_storage any = {.ss_family = AF_INET6}, old = {.ss_family = AF_INET};
    int fd = listen_once(&any, port);
    return fd == -EAFNOSUPPORT || fd == -EADDRNOTAVAIL ? listen_once(&old, port) : fd;
}

static int fail_listen(struct zinf_net *net, const struct net_tcp_start *start, uint32_t port,
                       int code)
{
    snprintf(net->why, sizeof net->why, "rank %u cannot wait for others at %.200s, port %u: %s; %s",
             start->rank, start->address, port, strerror(-code),
             code == -EADDRNOTAVAIL
                 ? "MASTER_ADDR must be an address of rank 0's host; one that only leads there "
                   "needs ZINF_NET_SECRET, the same on all ranks"
                 : "name another port in ZINF_MASTER_PORT");
    return code;
}

int net_tcp_listen_as_first(struct zinf_net *net, const struct net_tcp_start *start)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    uint32_t port = start->port;
    int fd = -EADDRNOTAVAIL;
    int error = getaddrinfo(start->address, NULL, &hints, &found);
    if (error) {
        snprintf(net->why, sizeof net->why, "MASTER_ADDR %.200s: %s", start->address,
                 gai_strerror(error));
        return -EADDRNOTAVAIL;
    }
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        struct sockaddr_storage at = {0};
        memcpy(&at, a->ai_addr, a->ai_addrlen < sizeof at ? a->ai_addrlen : sizeof at);
        fd = is_for_others(&at, start) ? listen_everywhere(&port) : listen_once(&at, &port);
    }
    freeaddrinfo(found);
    if (fd == -EADDRNOTAVAIL && *start->secret)
        fd = listen_everywhere(&port);
    return fd < 0 ? fail_listen(net, start, port, fd) : fd;
}

int net_tcp_listen_beside(struct zinf_net *net, const struct net_tcp_start *start, int first,
                          uint32_t *port)
{
    struct sockaddr_storage at = {0};
    socklen_t bytes = sizeof at;
    *port = 0;
    int fd = getsockname(first, (struct sockaddr *)&at, &bytes) ? -errno
             : is_for_others(&at, start)                        ? listen_everywhere(port)
                                                                : listen_once(&at, port);
    return fd < 0 ? fail_listen(net, start, 0, fd) : fd;
}

/* ---- calling ---- */

bool net_tcp_is_ready(int fd, short events, uint64_t end_ns)
{
    struct pollfd p = {fd, events, 0};
    return poll(&p, 1, net_tcp_milliseconds_to(end_ns)) == 1;
}

/* Until the other host answers, but not past the deadline. */
static bool connect_until(int fd, const struct addrinfo *a, uint64_t end_ns)
{
    int error = 0;
    socklen_t bytes = sizeof error;
    if (!connect(fd, a->ai_addr, a->ai_addrlen))
        return true;
    return errno == EINPROGRESS && net_tcp_is_ready(fd, POLLOUT, end_ns) &&
           !getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &bytes) && !error;
}

int net_tcp_call_once(const char *host, uint32_t port, uint64_t end_ns, bool only_private)
{
    char text[16];
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found = NULL;
    int fd = -EHOSTUNREACH;
    snprintf(text, sizeof text, "%u", port);
    if (getaddrinfo(host, text, &hints, &found))
        return -EHOSTUNREACH;
    for (const struct addrinfo *a = found; a && fd < 0; a = a->ai_next) {
        struct sockaddr_storage at = {0};
        memcpy(&at, a->ai_addr, a->ai_addrlen < sizeof at ? a->ai_addrlen : sizeof at);
        if (only_private && !net_tcp_is_private(&at)) {
            fd = -EPERM;
            continue;
        }
        int tried =
            socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, a->ai_protocol);
        if (tried >= 0 && connect_until(tried, a, end_ns))
            fd = tried;
        else if (tried >= 0)
            close(tried);
    }
    freeaddrinfo(found);
    return fd;
}

/*
 * net_tcp_meet: how ranks without an MPI find each other. Rank 0 waits where the launcher said;
 * each other one tells it its number and a port of its own, and gets everybody's. Then every rank
 * calls those before it and is called by those behind it. Caller and called prove to each other
 * that they know the secret (net_tcp_proof.c).
 *
 * Anybody may call. All callers are heard at once, so that one who is silent or slow keeps nobody
 * waiting, and each has a few seconds to say who it is. Without a secret only private addresses
 * are heard.
 */
#include "net/net_tcp.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELLO_NS 5000000000u /* for a caller to say who it is */
#define RETRY_NS 50000000    /* between calls of who is not there yet */
#define MOST_GUESTS 256      /* callers at once; one more takes the place of the oldest */

struct place {
    char host[NET_TCP_HOST]; /* "": rank 0's */
    uint32_t port;
};

/* ---- bytes until a deadline ---- */

static bool put(int fd, const void *data, size_t bytes, uint64_t end_ns)
{
    const char *at = data;
    while (bytes && net_tcp_is_ready(fd, POLLOUT, end_ns)) {
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
    while (bytes && net_tcp_is_ready(fd, POLLIN, end_ns)) {
        ssize_t n = recv(fd, at, bytes, MSG_DONTWAIT);
        if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
            return false;
        at += n > 0 ? n : 0;
        bytes -= n > 0 ? (size_t)n : 0;
    }
    return !bytes;
}

/* Messages go at once, and a host that is gone is noticed in the end. */
static void set_options(int fd)
{
    int yes = 1;
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &yes, sizeof yes);
}

/* ---- who calls ---- */

/* One who has called, until it is known to be a rank or sent away. */
struct guest {
    int fd;
    uint64_t end_ns;
    struct sockaddr_storage from;
    uint8_t number[NET_TCP_NUMBER]; /* that it has to prove with */
    struct {
        struct net_tcp_hello hello;
        uint8_t proof[NET_TCP_PROOF];
    } said;
    size_t got; /* bytes of that */
};

struct reception {
    struct zinf_net *net;
    const struct net_tcp_start *start;
    int listener, *sockets;
    struct place *places; /* or NULL */
    struct guest guests[MOST_GUESTS];
    struct pollfd polls[MOST_GUESTS + 1];
    uint32_t n_guests, n_missing, n_sent_away;
    char last[160]; /* of those: from where, and why */
};

static void send_away(struct reception *r, uint32_t g, const char *why)
{
    char host[NET_TCP_HOST];
    snprintf(r->last, sizeof r->last, "%s, which %s", net_tcp_show(&r->guests[g].from, host), why);
    close(r->guests[g].fd);
    r->n_sent_away++;
    r->guests[g] = r->guests[--r->n_guests];
}

/* Whom the message names: all that are missing, while there is room. */
static int fail_missing(struct reception *r)
{
    const struct net_tcp_start *s = r->start;
    char list[200] = "", strangers[300] = "";
    size_t used = 0;
    for (uint32_t rank = s->rank + 1; rank < s->world && used + 8 < sizeof list; rank++)
        if (r->sockets[rank] < 0)
            used +=
                (size_t)snprintf(list + used, sizeof list - used, "%s%u", used ? ", " : "", rank);
    if (r->n_sent_away)
        snprintf(strangers, sizeof strangers, "; callers that were sent away: %u, the last from %s",
                 r->n_sent_away, r->last);
    snprintf(
        r->net->why, sizeof r->net->why,
        "rank%s %s of %u ha%s not come within %.0f s to rank %u at %.200s, port %u: look at its "
        "output, and that MASTER_ADDR, MASTER_PORT and ZINF_NET_SECRET are the same "
        "everywhere%s",
        strchr(list, ',') ? "s" : "", list, s->world, strchr(list, ',') ? "ve" : "s", s->seconds,
        s->rank, s->address, s->port, strangers);
    return -ETIMEDOUT;
}

static const char *why_not(const struct reception *r, const struct net_tcp_hello *hello)
{
    const struct net_tcp_start *s = r->start;
    if (hello->magic != NET_TCP_MAGIC)
        return "does not speak as a rank of this version";
    if (hello->job != s->job || hello->world != s->world)
        return "is of another training";
    if (hello->to != s->rank || hello->rank <= s->rank || hello->rank >= s->world ||
        r->sockets[hello->rank] >= 0)
        return "has a number that is not missing";
    return NULL;
}

/* It has said who it is: an answer of ours that it must prove with. */
static const char *answer(struct reception *r, struct guest *g)
{
    const char *why = why_not(r, &g->said.hello);
    if (!why &&
        (!net_tcp_random(g->number, sizeof g->number) ||
         send(g->fd, g->number, sizeof g->number, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof g->number))
        why = "is gone";
    return why;
}

/* It has proven it: it is a rank. */
static const char *welcome(struct reception *r, struct guest *g)
{
    const struct net_tcp_hello *hello = &g->said.hello;
    uint8_t proof[NET_TCP_PROOF];
    const char *why = why_not(r, hello);
    if (!why && !net_tcp_is_proven(r->start->secret, "caller", hello, g->number, g->said.proof))
        why = "does not know this training's ZINF_NET_SECRET";
    if (!why && (!net_tcp_prove(r->start->secret, "called", hello, g->number, proof) ||
                 send(g->fd, proof, sizeof proof, MSG_NOSIGNAL | MSG_DONTWAIT) != sizeof proof))
        why = "is gone";
    if (why)
        return why;
    set_options(g->fd);
    r->sockets[hello->rank] = g->fd;
    r->n_missing--;
    if (r->places)
        r->places[hello->rank].port = hello->port;
    if (r->places && !net_tcp_is_loopback(&g->from)) /* which means another host elsewhere */
        net_tcp_show(&g->from, r->places[hello->rank].host);
    return NULL;
}

/* Takes in what a guest says; it is one no more where it is a rank now or has to go. */
static void hear(struct reception *r, uint32_t i)
{
    struct guest *g = &r->guests[i];
    size_t hello = sizeof g->said.hello, wants = g->got < hello ? hello : sizeof g->said;
    ssize_t n = recv(g->fd, (char *)&g->said + g->got, wants - g->got, MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        send_away(r, i, "ended before it had said who it is");
        return;
    }
    g->got += (size_t)n;
    if (g->got < wants)
        return;
    const char *why = wants == hello ? answer(r, g) : welcome(r, g);
    if (why)
        send_away(r, i, why);
    else if (wants > hello)
        r->guests[i] = r->guests[--r->n_guests];
}

static void take_guest(struct reception *r)
{
    struct guest guest = {.end_ns = net_now_ns() + HELLO_NS};
    socklen_t bytes = sizeof guest.from;
    guest.fd =
        accept4(r->listener, (struct sockaddr *)&guest.from, &bytes, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (guest.fd < 0)
        return;
    if (r->n_guests == MOST_GUESTS) {
        uint32_t oldest = 0;
        for (uint32_t g = 1; g < r->n_guests; g++)
            oldest = r->guests[g].end_ns < r->guests[oldest].end_ns ? g : oldest;
        send_away(r, oldest, "was silent while too many others called");
    }
    r->guests[r->n_guests++] = guest;
    if (!*r->start->secret && !net_tcp_is_private(&guest.from))
        send_away(r, r->n_guests - 1,
                  "is not a private address: such need ZINF_NET_SECRET on all ranks");
}

/* One round of waiting for all. */
static void receive(struct reception *r, uint64_t end_ns)
{
    uint64_t now = net_now_ns(), first = end_ns;
    uint32_t n = r->n_guests;
    for (uint32_t g = 0; g < n; g++) {
        r->polls[g] = (struct pollfd){r->guests[g].fd, POLLIN, 0};
        first = r->guests[g].end_ns < first ? r->guests[g].end_ns : first;
    }
    r->polls[n] = (struct pollfd){r->listener, POLLIN, 0};
    bool any = poll(r->polls, n + 1, net_tcp_milliseconds_to(first)) > 0;
    now = net_now_ns();
    for (uint32_t g = n; g-- > 0;) /* the last takes the place of one that leaves */
        if (any && r->polls[g].revents)
            hear(r, g);
        else if (now >= r->guests[g].end_ns)
            send_away(r, g, "did not say who it is within 5 s");
    if (any && r->polls[n].revents)
        take_guest(r);
}

/* Until ranks (own, world) have called. Their places, where places is not NULL. */
static int be_called(struct zinf_net *net, int listener, const struct net_tcp_start *start,
                     int *sockets, struct place *places, uint64_t end_ns)
{
    struct reception *r = calloc(1, sizeof *r);
    int code = 0;
    if (!r) {
        snprintf(net->why, sizeof net->why, "no memory for callers");
        return -ENOMEM;
    }
    r->net = net;
    r->start = start;
    r->listener = listener;
    r->sockets = sockets;
    r->places = places;
    r->n_missing = start->world - start->rank - 1;
    while (r->n_missing && net_now_ns() < end_ns)
        receive(r, end_ns);
    if (r->n_missing)
        code = fail_missing(r);
    for (uint32_t g = 0; g < r->n_guests; g++)
        close(r->guests[g].fd);
    free(r);
    return code;
}

/* ---- calling ---- */

static int fail_call(struct zinf_net *net, uint32_t rank, const char *host, uint32_t port, int code)
{
    snprintf(net->why, sizeof net->why,
             code == -EPERM
                 ? "rank %u at %.200s, port %u: the address is not private: such need "
                   "ZINF_NET_SECRET, the same text of %d characters or more on all ranks"
                 : "rank %u is not there at %.200s, port %u: is it started, and does a firewall "
                   "let it be reached?",
             rank, host, port, NET_TCP_LEAST_SECRET);
    return code == -EPERM ? -EPERM : -ETIMEDOUT;
}

/* Who waits there may not do so yet. */
static int call(struct zinf_net *net, const struct net_tcp_start *start, uint32_t rank,
                const struct place *place, uint64_t end_ns)
{
    static const struct timespec pause = {0, RETRY_NS};
    const char *host = *place->host ? place->host : start->address;
    for (;;) {
        int fd = net_tcp_call_once(host, place->port, end_ns, !*start->secret);
        if (fd >= 0) {
            set_options(fd);
            return fd;
        }
        if (fd == -EPERM || net_now_ns() >= end_ns)
            return fail_call(net, rank, host, place->port, fd);
        nanosleep(&pause, NULL);
    }
}

static int fail_sent_away(struct zinf_net *net, const struct net_tcp_start *start, uint32_t rank)
{
    snprintf(net->why, sizeof net->why,
             "rank %u (rank 0 is at %.200s, port %u) does not answer rank %u of %u: another rank "
             "has not come, or that is another training; MASTER_ADDR, MASTER_PORT, WORLD_SIZE, "
             "ZINF_NET_SECRET and the launcher's run must be the same everywhere, and RANK of each "
             "its own",
             rank, start->address, start->port, start->rank, start->world);
    return -ECONNABORTED;
}

/* Each proves to the other that it is of this training. */
static int greet(struct zinf_net *net, const struct net_tcp_start *start, uint32_t rank, int fd,
                 uint32_t own_port, uint64_t end_ns)
{
    struct net_tcp_hello hello = {NET_TCP_MAGIC, start->job, start->rank, start->world,
                                  own_port,      rank,       {0}};
    uint8_t number[NET_TCP_NUMBER], proof[NET_TCP_PROOF];
    bool good = net_tcp_random(hello.number, sizeof hello.number) &&
                put(fd, &hello, sizeof hello, end_ns) && get(fd, number, sizeof number, end_ns) &&
                net_tcp_prove(start->secret, "caller", &hello, number, proof) &&
                put(fd, proof, sizeof proof, end_ns) && get(fd, proof, sizeof proof, end_ns) &&
                net_tcp_is_proven(start->secret, "called", &hello, number, proof);
    return good ? 0 : fail_sent_away(net, start, rank);
}

/* As rank 0: all others call, and get the places of all. */
static int meet_as_first(struct zinf_net *net, const struct net_tcp_start *start, int *sockets,
                         struct place *places, uint64_t end_ns)
{
    int listener = start->listener ? start->listener : net_tcp_listen_as_first(net, start);
    int code = listener < 0 ? listener : be_called(net, listener, start, sockets, places, end_ns);
    for (uint32_t r = 1; !code && r < start->world; r++)
        if (!put(sockets[r], places, start->world * sizeof *places, end_ns))
            code = fail_sent_away(net, start, r);
    if (listener >= 0)
        close(listener);
    return code;
}

static int meet_as_other(struct zinf_net *net, const struct net_tcp_start *start, int *sockets,
                         struct place *places, uint64_t end_ns)
{
    uint32_t port = 0;
    int listener = -1, code = 0;
    places[0] = (struct place){"", start->port};
    for (uint32_t r = 0; !code && r < start->rank; r++) {
        sockets[r] = call(net, start, r, &places[r], end_ns);
        code = sockets[r] < 0 ? sockets[r] : 0;
        if (!code && !r) {
            listener = net_tcp_listen_beside(net, start, sockets[0], &port);
            code = listener < 0 ? listener : 0;
        }
        if (!code)
            code = greet(net, start, r, sockets[r], port, end_ns);
        if (!code && !r && !get(sockets[0], places, start->world * sizeof *places, end_ns))
            code = fail_sent_away(net, start, 0);
    }
    if (!code)
        code = be_called(net, listener, start, sockets, NULL, end_ns);
    if (listener >= 0)
        close(listener);
    return code;
}

int net_tcp_meet(struct zinf_net *net, const struct net_tcp_start *start, int *sockets)
{
    uint64_t end_ns = net_now_ns() + (uint64_t)(start->seconds * 1e9);
    size_t secret = strlen(start->secret);
    struct place *places = calloc(start->world, sizeof *places);
    int code = places ? 0 : -ENOMEM;
    if (!code && secret && secret < NET_TCP_LEAST_SECRET) {
        snprintf(net->why, sizeof net->why,
                 "ZINF_NET_SECRET has %zu characters: give it %d or more, such as openssl rand "
                 "-hex 32 prints",
                 secret, NET_TCP_LEAST_SECRET);
        code = -EINVAL;
    }
    if (!code)
        code = start->rank ? meet_as_other(net, start, sockets, places, end_ns)
                           : meet_as_first(net, start, sockets, places, end_ns);
    free(places);
    return code;
}

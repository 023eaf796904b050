/*
 * net_tcp: ranks are processes that a launcher without an MPI has started, such as torchrun, with a
 * socket between every two. A message is its length and its bytes; all of an exchange are under way
 * at once, and one thread waits for them. It moves what stays on hosts: numbers, checkpoints, units
 * where GPUs have no link; and the id by which GPUs get one.
 *
 * A rank that fails says so in place of a message, and in how many exchanges it has taken part:
 * what it sent before is still taken.
 */
#include "net/net_tcp.h"

#include <netdb.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#define TELLS UINT64_MAX     /* a length that is none: last words follow */
#define SIGN (1ull << 63)    /* the same: a sign of life, whom it waits for << 32 | its age */
#define LOOK_MS 100          /* between looks at the clock */
#define GRACE_NS 2000000000u /* for the others to read last words */
#define TELL_NS 200000000u   /* for one rank to take them in */

static const struct net_engine_ops tcp_ops;

/* One message on its way: its length, then its bytes. */
struct flow {
    const struct net_message *message; /* NULL: there is none, or it is over */
    uint64_t length, done;             /* of both */
};

struct state {
    int *sockets;          /* [world] -1: this rank's own */
    struct flow *out, *in; /* [world] */
    bool *gone;            /* [world] its end is closed */
    bool *cut;             /* [world] a message to it was not finished */
    struct pollfd *polls;  /* [world] */
    struct net_first_words heard;
    uint64_t exchanges;
    struct net_tcp_start start; /* as its ranks met; without its address */
};

/* ---- last words ---- */

/* Whether a rank that cannot go on is not in this exchange. */
static int check_heard(struct zinf_net *net)
{
    const struct state *s = net->state;
    return net_check_words(net, &s->heard, s->exchanges);
}

/* They come at once, or hardly at all. */
static void hear(struct zinf_net *net, uint32_t peer)
{
    struct state *s = net->state;
    struct net_last_words words = {0};
    size_t got = 0;
    uint64_t end = net_now_ns() + GRACE_NS;
    while (got < sizeof words && net_now_ns() < end) {
        struct pollfd p = {s->sockets[peer], POLLIN, 0};
        ssize_t n = poll(&p, 1, LOOK_MS) == 1
                        ? recv(s->sockets[peer], (char *)&words + got, sizeof words - got, 0)
                        : -1;
        if (n == 0)
            break;
        got += n > 0 ? (size_t)n : 0;
    }
    s->gone[peer] = true;
    net_keep_words(net, &s->heard, peer, &words);
}

/* Its end is closed. */
static int fail_without(struct zinf_net *net, uint32_t peer)
{
    int code = check_heard(net);
    if (code)
        return code;
    snprintf(net->why, sizeof net->why,
             "%s %u has ended without a word: its own output, or its host's, says why",
             net_noun(net), net_number(net, peer));
    return -ECONNABORTED;
}

/* ---- signs of life ---- */

static bool is_sign(uint64_t length)
{
    return length & SIGN && length != TELLS;
}

static void take_sign(struct zinf_net *net, uint32_t peer, uint64_t length)
{
    struct net_sign sign = {(uint32_t)length, (uint32_t)(length >> 32) & 0xffff};
    net_heard(net, peer, &sign);
}

/* Only between messages, and where there is room for all of it. */
static void tcp_sign(struct zinf_net *net, struct net_sign sign)
{
    struct state *s = net->state;
    uint64_t length = SIGN | (uint64_t)sign.waits_for << 32 | sign.age_ms;
    for (uint32_t r = 0; r < net->place.world; r++) {
        struct pollfd p = {s->sockets[r], POLLOUT, 0};
        if (r == net->place.rank || s->out[r].message || s->cut[r] || s->gone[r] ||
            poll(&p, 1, 0) != 1)
            continue;
        ssize_t n = send(s->sockets[r], &length, sizeof length, MSG_NOSIGNAL | MSG_DONTWAIT);
        s->cut[r] |= n > 0 && n < (ssize_t)sizeof length;
    }
}

/* Of a rank that nothing is expected of now: signs, and whether it says that it cannot go on. A
 * message of an exchange that this rank has not reached stays in the socket, and the signs behind
 * it cannot be read: that rank waits for this one and is taken to live. */
static void look_aside(struct zinf_net *net, uint32_t peer)
{
    struct state *s = net->state;
    uint64_t length = 0;
    ssize_t n = recv(s->sockets[peer], &length, sizeof length, MSG_PEEK | MSG_DONTWAIT);
    while (n == sizeof length && is_sign(length)) {
        take_sign(net, peer, length);
        n = recv(s->sockets[peer], &length, sizeof length, MSG_DONTWAIT);
        n = recv(s->sockets[peer], &length, sizeof length, MSG_PEEK | MSG_DONTWAIT);
    }
    if (n == sizeof length && length == TELLS) {
        if (recv(s->sockets[peer], &length, sizeof length, 0) == sizeof length)
            hear(net, peer);
    } else if (n == sizeof length) {
        net->heard_ns[peer] = net_now_ns();
    } else if (!n || (n < 0 && errno != EAGAIN && errno != EINTR)) {
        s->gone[peer] = true; /* its part is over */
    }
}

/* ---- an exchange ---- */

/* 1: something moved. */
static int send_some(struct zinf_net *net, uint32_t peer)
{
    struct state *s = net->state;
    struct flow *f = &s->out[peer];
    uint64_t head = sizeof f->length, sent = f->done < head ? f->done : head;
    uint64_t over = f->done - sent;
    struct iovec parts[2] = {{(char *)&f->length + sent, head - sent},
                             {(char *)f->message->data + over, f->message->bytes - over}};
    struct msghdr message = {.msg_iov = parts, .msg_iovlen = 2};
    ssize_t n = sendmsg(s->sockets[peer], &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) {
        look_aside(net, peer); /* why it takes nothing more */
        return fail_without(net, peer);
    }
    f->done += n > 0 ? (uint64_t)n : 0;
    if (f->done == head + f->message->bytes)
        f->message = NULL;
    return n > 0;
}

static int take_length(struct zinf_net *net, uint32_t peer)
{
    struct state *s = net->state;
    struct flow *f = &s->in[peer];
    if (f->length == TELLS) {
        hear(net, peer);
        return check_heard(net);
    }
    return f->length == f->message->bytes
               ? 0
               : net_other_length(net, peer, f->length, f->message->bytes);
}

static int receive_some(struct zinf_net *net, uint32_t peer)
{
    struct state *s = net->state;
    struct flow *f = &s->in[peer];
    uint64_t head = sizeof f->length, over = f->done - head;
    bool begins = f->done < head;
    char *to = begins ? (char *)&f->length + f->done : (char *)f->message->data + over;
    uint64_t left = begins ? head - f->done : f->message->bytes - over;
    ssize_t n = recv(s->sockets[peer], to, left, MSG_DONTWAIT);
    if (!n || (n < 0 && errno != EAGAIN && errno != EINTR))
        return fail_without(net, peer);
    f->done += n > 0 ? (uint64_t)n : 0;
    if (begins && f->done == head && is_sign(f->length)) {
        take_sign(net, peer, f->length);
        f->done = 0;
        return 0; /* signs alone end no wait */
    }
    if (n > 0 && !begins)
        net_heard(net, peer, NULL);
    int code = begins && f->done == head ? take_length(net, peer) : 0;
    if (!code && f->done == head + f->message->bytes)
        f->message = NULL;
    return code ? code : n > 0;
}

static void begin(struct zinf_net *net, const struct net_exchange *x)
{
    struct state *s = net->state;
    for (uint32_t i = 0; i < x->n_out; i++)
        s->out[x->out[i].peer] = (struct flow){&x->out[i], x->out[i].bytes, 0};
    for (uint32_t i = 0; i < x->n_in; i++)
        s->in[x->in[i].peer] = (struct flow){&x->in[i], 0, 0};
}

/* Waits for what can move, with the lock open for signs; how many messages there are to wait for.
 */
static uint32_t await(struct zinf_net *net)
{
    struct state *s = net->state;
    uint32_t left = 0;
    for (uint32_t r = 0; r < net->place.world; r++) {
        bool goes = s->out[r].message, comes = s->in[r].message;
        s->polls[r] = (struct pollfd){s->gone[r] && !goes && !comes ? -1 : s->sockets[r], 0, 0};
        /* others may have last words; data of a later exchange waits for that */
        s->polls[r].events = (short)((goes ? POLLOUT : 0) | (comes ? POLLIN : 0));
        left += (uint32_t)goes + (uint32_t)comes;
    }
    if (!left)
        return 0;
    pthread_mutex_unlock(&net->lock);
    poll(s->polls, net->place.world, LOOK_MS);
    pthread_mutex_lock(&net->lock);
    return left;
}

/* A peer that sends nothing, rather than one that only does not take. */
static int check_late(struct zinf_net *net, struct net_wait *wait)
{
    const struct state *s = net->state;
    bool receives = false;
    for (uint32_t r = 0; r < net->place.world; r++)
        receives |= s->in[r].message != NULL;
    for (uint32_t r = 0; r < net->place.world; r++)
        if (receives ? s->in[r].message : s->out[r].message)
            net_wait_for(wait, r, net->heard_ns[r]);
    net->own_wait = wait->peer;
    net->follows_ns = wait->oldest_ns;
    return net_wait_is_over(net, wait) ? net_late(net, net_blamed(net, net->own_wait)) : 0;
}

static int move_some(struct zinf_net *net)
{
    struct state *s = net->state;
    int moved = 0, code = 0;
    for (uint32_t r = 0; code >= 0 && r < net->place.world; r++) {
        if (r == net->place.rank)
            continue;
        if (s->in[r].message && s->polls[r].revents)
            moved |= code = receive_some(net, r);
        if (code >= 0 && s->out[r].message && s->polls[r].revents)
            moved |= code = send_some(net, r);
    }
    return code < 0 ? code : moved;
}

static int tcp_exchange(struct zinf_net *net, const struct net_exchange *x)
{
    struct state *s = net->state;
    struct net_wait wait = net_wait_begin();
    int code = 0;
    pthread_mutex_lock(&net->lock);
    begin(net, x);
    while (!code && await(net)) {
        code = move_some(net);
        if (code > 0) {
            code = 0;
            continue;
        }
        for (uint32_t r = 0; !code && r < net->place.world; r++)
            if (r != net->place.rank && !s->in[r].message && !s->gone[r])
                look_aside(net, r);
        if (!code)
            code = check_heard(net);
        if (!code && net_is_over(net))
            code = net_end(net);
        if (!code)
            code = check_late(net, &wait);
    }
    for (uint32_t r = 0; r < net->place.world; r++) {
        s->cut[r] |= s->out[r].message && s->out[r].done;
        s->out[r].message = s->in[r].message = NULL;
    }
    s->exchanges += !code;
    pthread_mutex_unlock(&net->lock);
    return code;
}

/* All ranks are needed: who is gone without a word has failed. */
static int tcp_listen(struct zinf_net *net)
{
    struct state *s = net->state;
    uint32_t gone = net->place.world;
    for (uint32_t r = 0; r < net->place.world; r++) {
        if (r != net->place.rank && !s->gone[r])
            look_aside(net, r);
        gone = s->gone[r] && r < gone ? r : gone;
    }
    return gone < net->place.world ? fail_without(net, gone) : check_heard(net);
}

/* ---- failure, life ---- */

static void tcp_tell(struct zinf_net *net, uint32_t number, const char *sentence)
{
    struct state *s = net->state;
    struct {
        uint64_t length;
        struct net_last_words words;
    } note = {TELLS, {.exchanges = s->exchanges, .number = number}};
    snprintf(note.words.sentence, sizeof note.words.sentence, "%s", sentence);
    for (uint32_t r = 0; r < net->place.world; r++) {
        uint64_t end = net_now_ns() + TELL_NS;
        size_t sent = r == net->place.rank || s->cut[r] ? sizeof note : 0;
        while (sent < sizeof note && net_now_ns() < end) {
            struct pollfd p = {s->sockets[r], POLLOUT, 0};
            ssize_t n = poll(&p, 1, LOOK_MS) == 1
                            ? send(s->sockets[r], (char *)&note + sent, sizeof note - sent,
                                   MSG_NOSIGNAL | MSG_DONTWAIT)
                            : 0;
            if (n < 0 && errno != EAGAIN)
                break;
            sent += n > 0 ? (size_t)n : 0;
        }
        if (sent && sent < sizeof note)
            s->cut[r] = true;
    }
}

/* A socket that is closed with something unread takes back what it has sent: so what comes is read
 * until the other end is closed too, but not for long. */
static void part(int fd, uint64_t end_ns)
{
    char unread[4096];
    bool open = !shutdown(fd, SHUT_WR);
    while (open && net_now_ns() < end_ns) {
        struct pollfd p = {fd, POLLIN, 0};
        open = poll(&p, 1, LOOK_MS) != 1 || recv(fd, unread, sizeof unread, 0) > 0;
    }
    close(fd);
}

static void tcp_close(struct zinf_net *net)
{
    struct state *s = net->state;
    uint64_t end = net_now_ns() + GRACE_NS;
    for (uint32_t r = 0; s->sockets && r < net->place.world; r++)
        if (s->sockets[r] >= 0)
            part(s->sockets[r], end);
    free(s->sockets);
    free(s->out);
    free(s->in);
    free(s->gone);
    free(s->cut);
    free(s->polls);
    free(s);
}

static int open_state(struct state *s, uint32_t world)
{
    s->sockets = malloc(world * sizeof *s->sockets);
    s->out = calloc(world, sizeof *s->out);
    s->in = calloc(world, sizeof *s->in);
    s->gone = calloc(world, sizeof *s->gone);
    s->cut = calloc(world, sizeof *s->cut);
    s->polls = calloc(world, sizeof *s->polls);
    s->heard.from = world;
    for (uint32_t r = 0; s->sockets && r < world; r++)
        s->sockets[r] = -1;
    bool taken = s->sockets && s->out && s->in && s->gone && s->cut && s->polls;
    return taken ? 0 : zinf_fail(-ENOMEM, "no memory for %u ranks", world);
}

/* state is zero; the ranks of net meet. */
static int open_end(struct zinf_net *net, struct state *s, const struct net_tcp_start *start)
{
    int code = open_state(s, start->world);
    s->start = *start;
    return code ? code : net_tcp_meet(net, start, s->sockets);
}

/* The first rank of a part waits where those on its host reach it, or the others. */
static int listen_for(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split,
                      const struct net_tcp_start *start, uint32_t *port)
{
    const struct state *s = parent->state;
    uint32_t peer = split->ranks[1];
    for (uint32_t i = split->n; i-- > 1;)
        if (split->said[split->ranks[i]].host == net->host)
            peer = split->ranks[i];
    return net_tcp_listen_beside(net, start, s->sockets[peer], port);
}

static bool find_address(int fd, char address[NET_TCP_HOST])
{
    struct sockaddr_storage at;
    socklen_t bytes = sizeof at;
    return !getpeername(fd, (struct sockaddr *)&at, &bytes) &&
           !getnameinfo((struct sockaddr *)&at, bytes, address, NET_TCP_HOST, NULL, 0,
                        NI_NUMERICHOST);
}

/* Each part's ranks meet as all have, at the first one's port. */
static int meet_again(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split,
                      struct net_tcp_start *start)
{
    const struct state *from = parent->state;
    struct state *s = net->state;
    uint32_t first = split->ranks[0];
    char address[NET_TCP_HOST] = "";
    start->address = address;
    if (first == parent->place.rank || find_address(from->sockets[first], address)) {
        int code = open_end(net, s, start);
        s->start.address = "";
        return code;
    }
    snprintf(net->why, sizeof net->why, "%s %u has no address", net_noun(net), net_number(net, 0));
    return -EIO;
}

static int tcp_split(struct zinf_net *parent, struct zinf_net *net, const struct net_split *split)
{
    const struct state *from = parent->state;
    uint32_t *ports = calloc(parent->place.world, sizeof *ports), port = 0;
    struct state *s = net ? net->state = calloc(1, sizeof *s) : NULL;
    struct net_tcp_start start = from->start;
    bool several = net && net->place.world > 1;
    start.listener = 0; /* the parent's is closed, and its number may be another file's */
    if (several) {
        start.rank = net->place.rank;
        start.world = net->place.world;
        start.local_rank = net->place.local_rank;
        start.local_world = net->place.local_world;
        start.job = (start.job ^ split->number) * 0x100000001b3u + split->ranks[0];
        start.seconds = (double)parent->timeout_ns * 1e-9;
        start.address = "";
        if (!start.rank)
            start.listener = listen_for(parent, net, split, &start, &port);
    }
    int64_t failed = !ports || (net && !s) || start.listener < 0;
    int code = zinf_net_max(parent, &failed, 1);
    if (!code && !failed)
        code = zinf_net_gather(parent, &port, ports, sizeof port);
    if (!code && !failed && net) {
        net->ops = &tcp_ops;
        start.port = several ? ports[split->ranks[0]] : 0;
        code = several ? meet_again(parent, net, split, &start) : open_state(s, 1);
    } else if (start.listener > 0) {
        close(start.listener);
    }
    if (net && !net->ops)
        free(s);
    free(ports);
    if (failed && !code)
        code = zinf_fail(-EIO, "a part of a net has no port or memory");
    return code;
}

static const struct net_engine_ops tcp_ops = {
    .exchange = tcp_exchange,
    .listen = tcp_listen,
    .sign = tcp_sign,
    .tell = tcp_tell,
    .split = tcp_split,
    .close = tcp_close,
};

int net_tcp_open(struct zinf_net **out, const struct net_tcp_start *start)
{
    struct zinf_net *net = calloc(1, sizeof *net);
    struct state *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!net || !s) {
        free(net);
        free(s);
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", start->world);
    }
    net->ops = &tcp_ops;
    net->state = s;
    net->place = (struct zinf_net_place){.rank = start->rank,
                                         .world = start->world,
                                         .local_rank = start->local_rank,
                                         .local_world = start->local_world,
                                         .seats = 1};
    snprintf(net->name, sizeof net->name, "TCP");
    int code = open_end(net, s, start);
    s->start.address = "";
    code = code ? zinf_fail(code, "%s", net->why[0] ? net->why : zinf_error())
                : net_init(net, start->rank, start->world);
    if (code) {
        net->told = true; /* nobody waits for it in a barrier */
        zinf_net_close(net);
        return code;
    }
    *out = net;
    return 0;
}

/*
 * net: collectives, made of an engine's exchanges. All are direct: every rank sends to every other
 * one what that one needs and no more, which is as many bytes as a ring moves and one step instead
 * of world - 1; fit for a group of up to some 16 ranks.
 */
#include "net/net_engine.h"

#include <stdlib.h>
#include <string.h>

/* ---- life ---- */

static int join_family(struct zinf_net *net)
{
    struct net_family *f = net->family;
    if (!f) {
        f = net->family = calloc(1, sizeof *f);
        if (!f)
            return zinf_fail(-ENOMEM, "no memory for a net");
        pthread_mutex_init(&f->lock, NULL);
        f->world = net->place.world;
        net->host = net->place.rank - net->place.local_rank;
    }
    pthread_mutex_lock(&f->lock);
    net->next = f->first;
    f->first = net;
    f->n_open++;
    net->joined = true;
    pthread_mutex_unlock(&f->lock);
    return 0;
}

/* From here on no other thread that tells of a failure, or sets the time limit, touches it. */
static void hide_from_family(struct zinf_net *net)
{
    struct net_family *f = net->family;
    if (!net->joined)
        return;
    pthread_mutex_lock(&f->lock);
    struct zinf_net **at = &f->first;
    while (*at != net)
        at = &(*at)->next;
    *at = net->next;
    pthread_mutex_unlock(&f->lock);
}

static void leave_family(struct zinf_net *net)
{
    struct net_family *f = net->family;
    if (!net->joined)
        return;
    pthread_mutex_lock(&f->lock);
    bool last = --f->n_open == 0;
    pthread_mutex_unlock(&f->lock);
    if (last) {
        pthread_mutex_destroy(&f->lock);
        free(f);
    }
}

int net_init(struct zinf_net *net, uint32_t rank, uint32_t world)
{
    net->place.rank = rank;
    net->place.world = world;
    net->place.seats = net->place.seats ? net->place.seats : 1;
    net->out = calloc(world, sizeof *net->out);
    net->in = calloc(world, sizeof *net->in);
    net->parts = calloc(world, sizeof *net->parts);
    net->heard_ns = calloc(world, sizeof *net->heard_ns);
    net->waits_for = malloc(world * sizeof *net->waits_for);
    net->scratch = world > 1 ? malloc(world * NET_PIECE_ELEMS * sizeof *net->scratch) : NULL;
    net->own_wait = world;
    net->pulse = net->pulse ? net->pulse : zinf_pulse_of_thread();
    zinf_pulse_follow(net->pulse, net_now_ns());
    pthread_mutex_init(&net->lock, NULL);
    if (!net->timeout_ns)
        net->timeout_ns = ZINF_NET_TIMEOUT_SECONDS * (uint64_t)1000000000u;
    if (!net->out || !net->in || !net->parts || !net->heard_ns || !net->waits_for ||
        (!net->scratch && world > 1))
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", world);
    for (uint32_t r = 0; r < world; r++)
        net->waits_for[r] = world;
    int code = join_family(net);
    return !code && world > 1 && net->ops->sign ? net_watch_begin(net) : code;
}

int zinf_net_describe(struct zinf_net **out, uint32_t world, uint32_t local_world, uint32_t seats)
{
    if (!world || world > ZINF_NET_MOST_RANKS || !local_world || world % local_world || !seats ||
        local_world % seats)
        return zinf_fail(-EINVAL,
                         "%u ranks, %u on each host and %u in each process, are not possible: at "
                         "most %d, and as many on every host and in every process",
                         world, local_world, seats, ZINF_NET_MOST_RANKS);
    struct zinf_net *net = calloc(1, sizeof *net);
    if (!net)
        return zinf_fail(-ENOMEM, "no memory for a net of %u ranks", world);
    net->place =
        (struct zinf_net_place){.world = world, .local_world = local_world, .seats = seats};
    snprintf(net->name, sizeof net->name, "described");
    *out = net;
    return 0;
}

bool zinf_net_is_described(const struct zinf_net *net)
{
    return !net->ops;
}

void zinf_net_close(struct zinf_net *net)
{
    if (!net)
        return;
    if (net->ops && !net->failed && !net->told)
        zinf_net_barrier(net); /* nobody's last message is cut off */
    hide_from_family(net);
    net_watch_end(net);
    if (net->ops)
        net->ops->close(net);
    leave_family(net);
    free(net->numbers);
    free(net->out);
    free(net->in);
    free(net->parts);
    free(net->scratch);
    free(net->heard_ns);
    free(net->waits_for);
    free(net);
}

struct zinf_net_place zinf_net_place(const struct zinf_net *net)
{
    return net->place;
}

const char *zinf_net_name(const struct zinf_net *net)
{
    return net->name;
}

void net_set_limit(struct zinf_net *net, uint64_t timeout_ns)
{
    pthread_mutex_lock(&net->lock);
    net->timeout_ns = timeout_ns;
    pthread_mutex_unlock(&net->lock);
    net_watch_wake(net);
}

void zinf_net_set_timeout(struct zinf_net *net, double seconds)
{
    struct net_family *f = net->family;
    pthread_mutex_lock(&f->lock);
    for (struct zinf_net *n = f->first; n; n = n->next)
        net_set_limit(n, (uint64_t)(seconds * 1e9));
    pthread_mutex_unlock(&f->lock);
}

uint64_t zinf_net_sent_bytes(const struct zinf_net *net)
{
    return net->sent_bytes;
}

uint64_t zinf_net_lent_bytes(const struct zinf_net *net)
{
    return net->lent_bytes;
}

double zinf_net_timeout(const struct zinf_net *net)
{
    return (double)net->timeout_ns * 1e-9;
}

struct zinf_pulse *zinf_net_pulse(const struct zinf_net *net)
{
    return net->pulse;
}

/* ---- one exchange ---- */

static struct net_exchange exchange_of(const struct zinf_net *net, uint32_t n_out, uint32_t n_in,
                                       bool same)
{
    return (struct net_exchange){net->out, net->in, n_out, n_in, same};
}

/* Under the family's lock. */
static void tell(struct zinf_net *net)
{
    pthread_mutex_lock(&net->lock);
    net->told = true;
    net->ops->tell(net, net->family->number, net->family->sentence);
    pthread_mutex_unlock(&net->lock);
}

/* The watch leaves a busy net alone, and so does what tells of a failure: that net tells when it is
 * not busy any more. */
static void set_busy(struct zinf_net *net, bool busy, int code)
{
    struct net_family *f = net->family;
    pthread_mutex_lock(&f->lock);
    pthread_mutex_lock(&net->lock);
    net->busy = busy;
    net->own_wait = net->place.world;
    net->failed = code;
    pthread_mutex_unlock(&net->lock);
    if (!busy && f->told && !net->told)
        tell(net);
    pthread_mutex_unlock(&f->lock);
    zinf_pulse_follow(net->pulse, net_now_ns());
}

/* The first failure is the net's; a later call returns it. */
static int end_exchange(struct zinf_net *net, uint32_t n_out)
{
    if (net->failed)
        return zinf_fail(net->failed, "%s", net->why);
    for (uint32_t i = 0; i < n_out; i++)
        net->sent_bytes += net->out[i].bytes;
    return 0;
}

int net_run(struct zinf_net *net, const struct net_exchange *x)
{
    if (!net->failed) {
        set_busy(net, true, 0);
        set_busy(net, false, net->ops->exchange(net, x));
    }
    return net->failed;
}

int net_pass(struct zinf_net *net, uint32_t n_out, uint32_t n_in, bool same)
{
    struct net_exchange x = exchange_of(net, n_out, n_in, same);
    if (zinf_net_is_described(net))
        return zinf_fail(-ENOTSUP, "ranks that are only described exchange nothing");
    net_run(net, &x);
    return end_exchange(net, n_out);
}

int net_listen(struct zinf_net *net)
{
    set_busy(net, true, net->failed);
    if (!net->failed && net_is_over(net))
        net->failed = net_end(net);
    pthread_mutex_lock(&net->lock);
    if (!net->failed)
        net->failed = net->ops->listen(net);
    pthread_mutex_unlock(&net->lock);
    set_busy(net, false, net->failed);
    return net->failed ? zinf_fail(net->failed, "%s", net->why) : 0;
}

uint32_t net_other(const struct zinf_net *net, uint32_t i)
{
    return (net->place.rank + 1 + i) % net->place.world;
}

/* ---- collectives ---- */

int zinf_net_gather(struct zinf_net *net, const void *slice, void *whole, uint64_t slice_bytes)
{
    uint32_t n = net->place.world - 1;
    char *own = (char *)whole + net->place.rank * slice_bytes;
    if (own != slice && slice_bytes)
        memcpy(own, slice, slice_bytes);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t peer = net_other(net, i);
        net->out[i] = (struct net_message){own, slice_bytes, peer};
        net->in[i] = (struct net_message){(char *)whole + peer * slice_bytes, slice_bytes, peer};
    }
    return n ? net_pass(net, n, n, true) : 0;
}

int net_borrow(struct zinf_net *net, uint32_t n)
{
    struct net_exchange x = exchange_of(net, n, n, false);
    if (!net->failed)
        net->failed = net->ops->borrow(net, &x, net->in);
    return net->failed ? zinf_fail(net->failed, "%s", net->why) : 0;
}

int net_give_back(struct zinf_net *net, uint32_t n)
{
    struct net_exchange x = exchange_of(net, n, n, false);
    int code = net->ops->give_back(net, &x);
    net->failed = net->failed ? net->failed : code;
    for (uint32_t i = 0; i < n; i++)
        net->lent_bytes += net->out[i].bytes;
    return end_exchange(net, n);
}

bool zinf_net_lends(const struct zinf_net *net)
{
    bool alone = net->place.seats == net->place.world;
    return net->place.world > 1 && alone && (zinf_net_is_described(net) || net->ops->borrow);
}

int zinf_net_lend(struct zinf_net *net, const void *slice, uint64_t slice_bytes,
                  const void **slices)
{
    uint32_t n = net->place.world - 1;
    for (uint32_t i = 0; i < n; i++) {
        uint32_t peer = net_other(net, i);
        net->out[i] = (struct net_message){(void *)(uintptr_t)slice, slice_bytes, peer};
        net->in[i] = (struct net_message){NULL, slice_bytes, peer};
    }
    int code = net_borrow(net, n);
    for (uint32_t i = 0; !code && i < n; i++)
        slices[net->in[i].peer] = net->in[i].data;
    slices[net->place.rank] = slice;
    return code;
}

int zinf_net_return(struct zinf_net *net)
{
    return net_give_back(net, net->place.world - 1);
}

/* Into the scratch: of every rank its numbers. */
static int gather_numbers(struct zinf_net *net, const int64_t *numbers, uint32_t n, int64_t **all)
{
    *all = (int64_t *)(void *)net->scratch;
    if (n > ZINF_NET_MOST_NUMBERS)
        return zinf_fail(-EINVAL, "%u numbers at once: at most %d are possible", n,
                         ZINF_NET_MOST_NUMBERS);
    return zinf_net_gather(net, numbers, *all, n * sizeof *numbers);
}

int zinf_net_add(struct zinf_net *net, int64_t *numbers, uint32_t n)
{
    int64_t *all;
    int code = net->place.world > 1 ? gather_numbers(net, numbers, n, &all) : 0;
    for (uint32_t r = 0; !code && net->place.world > 1 && r < net->place.world; r++)
        for (uint32_t i = 0; r != net->place.rank && i < n; i++)
            numbers[i] += all[r * n + i];
    return code;
}

int zinf_net_max(struct zinf_net *net, int64_t *numbers, uint32_t n)
{
    int64_t *all;
    int code = net->place.world > 1 ? gather_numbers(net, numbers, n, &all) : 0;
    for (uint32_t r = 0; !code && net->place.world > 1 && r < net->place.world; r++)
        for (uint32_t i = 0; i < n; i++)
            numbers[i] = all[r * n + i] > numbers[i] ? all[r * n + i] : numbers[i];
    return code;
}

int zinf_net_trade(struct zinf_net *net, const struct zinf_net_trade *trade)
{
    uint32_t n_out = 0, n_in = 0;
    for (uint32_t i = 0; i + 1 < net->place.world; i++) {
        uint32_t peer = net_other(net, i);
        if (trade->out_bytes[peer])
            net->out[n_out++] =
                (struct net_message){trade->out[peer], trade->out_bytes[peer], peer};
        if (trade->in_bytes[peer])
            net->in[n_in++] = (struct net_message){trade->in[peer], trade->in_bytes[peer], peer};
    }
    return net_pass(net, n_out, n_in, false); /* without messages too: seats meet in it */
}

int zinf_net_broadcast(struct zinf_net *net, uint32_t root, void *data, uint64_t bytes)
{
    uint32_t n = net->place.world - 1;
    if (!n)
        return 0;
    if (net->place.rank != root) {
        net->in[0] = (struct net_message){data, bytes, root};
        return net_pass(net, 0, 1, true);
    }
    for (uint32_t i = 0; i < n; i++)
        net->out[i] = (struct net_message){data, bytes, net_other(net, i)};
    return net_pass(net, n, 0, true);
}

int zinf_net_barrier(struct zinf_net *net)
{
    int64_t nothing = 0;
    return zinf_net_max(net, &nothing, 1);
}

int zinf_net_compare(struct zinf_net *net, const struct zinf_net_fact *facts, uint32_t n)
{
    int64_t sums[ZINF_NET_MOST_NUMBERS], *all;
    for (uint32_t i = 0; i < n && i < ZINF_NET_MOST_NUMBERS; i++)
        sums[i] = (int64_t)facts[i].sum;
    int code = net->place.world > 1 ? gather_numbers(net, sums, n, &all) : 0;
    for (uint32_t i = 0; !code && net->place.world > 1 && i < n; i++)
        for (uint32_t r = 1; !code && r < net->place.world; r++)
            if (all[r * n + i] != all[i])
                code = zinf_fail(-EINVAL,
                                 "%s %u has another %s than %s %u: every %s must be started "
                                 "with the same program, options and files",
                                 net_noun(net), net_number(net, r), facts[i].what, net_noun(net),
                                 net_number(net, 0), net_noun(net));
    return code;
}

/* ---- failure ---- */

/* What another rank has told, in its name. */
static void pass_on(struct net_family *f, struct zinf_net *net)
{
    pthread_mutex_lock(&net->lock);
    if (!net->busy && net->heard) { /* who is at an exchange may just hear */
        f->number = net->heard_number;
        snprintf(f->sentence, sizeof f->sentence, "%s", net->heard_sentence);
    }
    pthread_mutex_unlock(&net->lock);
}

void zinf_net_tell(struct zinf_net *net, const char *sentence)
{
    struct net_family *f = net->family;
    if (!f)
        return;
    pthread_mutex_lock(&f->lock);
    if (!f->told) {
        f->told = true;
        f->number = net_number(net, net->place.rank);
        snprintf(f->sentence, sizeof f->sentence, "%s", sentence);
        for (struct zinf_net *n = f->first; n; n = n->next)
            pass_on(f, n);
        atomic_store_explicit(&f->over, true, memory_order_relaxed);
        for (struct zinf_net *n = f->first; n; n = n->next)
            if (!n->busy)
                tell(n);
    }
    pthread_mutex_unlock(&f->lock);
}

/*
 * net_watch: a thread beside a net between processes. It tells the other ranks, some times in the
 * time limit, when this one gave its last sign of life; and while this one is at work it listens:
 * where another rank has failed, is gone, or has given no sign, this rank's pulse ends, so that
 * loading a model of an hour does not have to end first.
 */
#include "net/net_engine.h"

#include <stdlib.h>

#define LEAST_NS 20000000u  /* between signs, */
#define MOST_NS 5000000000u /* and at most */

struct net_watch {
    pthread_t thread;
    pthread_cond_t wakes; /* with the net's lock, which guards ends */
    bool ends;
};

static uint64_t interval_ns(const struct zinf_net *net)
{
    uint64_t part = net->timeout_ns / 8;
    return part < LEAST_NS ? LEAST_NS : part > MOST_NS ? MOST_NS : part;
}

static void sign(struct zinf_net *net)
{
    uint64_t now = net_now_ns(), last = zinf_pulse_last_ns(net->pulse);
    if (net->busy && net->own_wait < net->place.world && net->follows_ns > last)
        last = net->follows_ns;
    uint64_t age_ms = now > last ? (now - last) / 1000000u : 0;
    uint32_t age = age_ms < UINT32_MAX ? (uint32_t)age_ms : UINT32_MAX;
    net->ops->sign(net, (struct net_sign){age, net->busy ? net->own_wait : net->place.world});
}

/* While nobody waits here for it a rank has a quarter of the limit more. */
static int check_signs(struct zinf_net *net)
{
    uint64_t now = net_now_ns(), limit = net->timeout_ns;
    uint64_t more = limit / 4 > NET_GRACE_NS ? limit / 4 : NET_GRACE_NS;
    for (uint32_t r = 0; r < net->place.world; r++)
        if (r != net->place.rank && net->heard_ns[r] && now > net->heard_ns[r] + limit + more)
            return net_late(net, net_blamed(net, r));
    return 0;
}

static void *watch(void *argument)
{
    struct zinf_net *net = argument;
    struct net_watch *w = net->watch;
    uint64_t looked = net_now_ns();
    pthread_mutex_lock(&net->lock);
    while (!w->ends && !net->failed && !net->told) {
        uint64_t now = net_now_ns(), at = now + interval_ns(net);
        bool stopped = now - looked > interval_ns(net) + NET_GRACE_NS; /* this process was */
        looked = now;
        sign(net);
        int code = net->busy ? 0 : net->ops->listen(net);
        if (!code && !net->busy && !stopped)
            code = check_signs(net);
        if (code) {
            zinf_pulse_end(net->pulse, code, net->why);
            break;
        }
        struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
        pthread_cond_timedwait(&w->wakes, &net->lock, &until);
    }
    pthread_mutex_unlock(&net->lock);
    return NULL;
}

int net_watch_begin(struct zinf_net *net)
{
    pthread_condattr_t monotonic; /* as deadlines are */
    struct net_watch *w = calloc(1, sizeof *w);
    if (!w)
        return zinf_fail(-ENOMEM, "no memory to watch over ranks");
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&w->wakes, &monotonic);
    pthread_condattr_destroy(&monotonic);
    net->watch = w;
    int error = pthread_create(&w->thread, NULL, watch, net);
    if (!error)
        return 0;
    net->watch = NULL;
    pthread_cond_destroy(&w->wakes);
    free(w);
    return zinf_fail(-error, "cannot start a thread to watch over ranks: %s", strerror(error));
}

void net_watch_wake(struct zinf_net *net)
{
    if (!net->watch)
        return;
    pthread_mutex_lock(&net->lock);
    pthread_cond_signal(&net->watch->wakes);
    pthread_mutex_unlock(&net->lock);
}

void net_watch_end(struct zinf_net *net)
{
    struct net_watch *w = net->watch;
    if (!w)
        return;
    pthread_mutex_lock(&net->lock);
    w->ends = true;
    pthread_cond_signal(&w->wakes);
    pthread_mutex_unlock(&net->lock);
    pthread_join(w->thread, NULL);
    pthread_cond_destroy(&w->wakes);
    free(w);
    net->watch = NULL;
}

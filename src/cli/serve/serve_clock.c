/*
 * serve_clock: a thread that ends what takes too long. libmicrohttpd's limit is of silence, which a
 * client that sends a byte a second never reaches; so each connection has a moment by which its
 * client must have sent a request, or taken an answer. And the maker looks at its requests between
 * two passes, while those that wait for it may have to be told in the middle of one.
 */
#include "cli/serve/serve.h"

#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define LOOK_NS 250000000

struct serve_deadline {
    struct serve_clock *clock;
    int socket;
    uint64_t at_ns; /* 0: none */
    struct serve_deadline *next, **place;
};
struct serve_clock {
    struct serve_desk *desk;
    pthread_t thread;
    pthread_mutex_t lock; /* of what follows */
    pthread_cond_t changed;
    struct serve_deadline *first;
    bool stops;
};

/* Its end shows to libmicrohttpd as the client's; the socket stays open until that closes it. */
static void cut(struct serve_clock *clock)
{
    const uint64_t now = zinf_now_ns();
    for (struct serve_deadline *d = clock->first; d; d = d->next)
        if (d->at_ns && now > d->at_ns) {
            shutdown(d->socket, SHUT_RDWR);
            d->at_ns = 0;
        }
}

static void *look(void *arg)
{
    struct serve_clock *clock = arg;
    pthread_mutex_lock(&clock->lock);
    while (!clock->stops) {
        struct timespec until;
        clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_NS;
        until.tv_sec += until.tv_nsec / 1000000000;
        until.tv_nsec %= 1000000000;
        pthread_cond_timedwait(&clock->changed, &clock->lock, &until);
        cut(clock);
        pthread_mutex_unlock(&clock->lock);
        serve_desk_expire(clock->desk);
        pthread_mutex_lock(&clock->lock);
    }
    pthread_mutex_unlock(&clock->lock);
    return NULL;
}

int serve_clock_start(struct serve_clock **out, struct serve_desk *desk)
{
    pthread_condattr_t monotonic;
    struct serve_clock *clock = *out = calloc(1, sizeof *clock);
    if (!clock)
        return zinf_fail(-ENOMEM, "no memory for a clock");
    clock->desk = desk;
    pthread_mutex_init(&clock->lock, NULL);
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&clock->changed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    const int code = pthread_create(&clock->thread, NULL, look, clock);
    if (!code)
        return 0;
    pthread_cond_destroy(&clock->changed);
    pthread_mutex_destroy(&clock->lock);
    free(clock);
    *out = NULL;
    return zinf_fail(-code, "no thread: %s", strerror(code));
}

void serve_clock_stop(struct serve_clock *clock)
{
    if (!clock)
        return;
    pthread_mutex_lock(&clock->lock);
    clock->stops = true;
    pthread_cond_broadcast(&clock->changed);
    pthread_mutex_unlock(&clock->lock);
    pthread_join(clock->thread, NULL);
    pthread_cond_destroy(&clock->changed);
    pthread_mutex_destroy(&clock->lock);
    free(clock);
}

struct serve_deadline *serve_deadline_add(struct serve_clock *clock, int socket)
{
    struct serve_deadline *d = calloc(1, sizeof *d);
    if (!d)
        return NULL;
    *d = (struct serve_deadline){.clock = clock, .socket = socket, .place = &clock->first};
    pthread_mutex_lock(&clock->lock);
    d->next = clock->first;
    if (d->next)
        d->next->place = &d->next;
    clock->first = d;
    pthread_mutex_unlock(&clock->lock);
    return d;
}

void serve_deadline_remove(struct serve_deadline *d)
{
    if (!d)
        return;
    struct serve_clock *clock = d->clock;
    pthread_mutex_lock(&clock->lock);
    *d->place = d->next;
    if (d->next)
        d->next->place = d->place;
    pthread_mutex_unlock(&clock->lock);
    free(d);
}

void serve_deadline_set(struct serve_deadline *d, int64_t seconds)
{
    if (!d)
        return;
    pthread_mutex_lock(&d->clock->lock);
    d->at_ns = seconds ? zinf_now_ns() + (uint64_t)seconds * 1000000000u : 0;
    pthread_mutex_unlock(&d->clock->lock);
}

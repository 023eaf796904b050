/*
 * serve_desk: the lock between the line's thread and the maker's. A request is freed by whoever
 * leaves it last.
 */
#include "cli/serve/serve.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#define WAIT_NS 100000000
#define DRAIN_SECONDS 5

int serve_desk_init(struct serve_desk *d, const struct serve_options *options)
{
    pthread_condattr_t clock;
    *d = (struct serve_desk){.options = options, .last = &d->first};
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    int code = pthread_mutex_init(&d->lock, NULL);
    if (!code)
        code = pthread_cond_init(&d->changed, &clock);
    pthread_condattr_destroy(&clock);
    return code ? zinf_fail(-code, "no lock: %s", strerror(code)) : 0;
}

void serve_desk_fini(struct serve_desk *d)
{
    pthread_cond_destroy(&d->changed);
    pthread_mutex_destroy(&d->lock);
}

static void request_free(struct serve_request *r)
{
    for (int i = 0; i < r->n_texts; i++)
        text_free(&r->texts[i].text);
    free(r->texts);
    serve_ask_free(&r->ask);
    serve_bytes_free(&r->body);
    serve_bytes_free(&r->out);
    free(r);
}

/* Under the lock. Of no memory for an answer the client hears by an answer that ends early. */
static void tell(struct serve_desk *d, struct serve_request *r, int status,
                 struct serve_bytes *bytes, bool ended)
{
    bool lost = !r->gone && serve_bytes_add(&r->out, bytes->at, bytes->n);
    r->status = r->status ? r->status : status;
    r->ended = r->ended || ended || lost;
    if (r->sleeps && r->status && (r->ended || r->ask.streams)) {
        r->sleeps = false;
        d->wake(r);
    }
}

static void refuse(struct serve_desk *d, struct serve_request *r, int status, const char *message)
{
    struct serve_bytes bytes = {0};
    serve_say_error(status, message, false, &bytes);
    tell(d, r, status, &bytes, true);
    serve_bytes_free(&bytes);
    d->counts.requests[status == 504 ? SERVE_FAILED : SERVE_REFUSED]++;
}

/* Its socket stays open while the connection sleeps: its end shows as the end of what it sends. */
static bool is_gone(const struct serve_request *r)
{
    char byte;
    return r->gone || (r->sleeps && !recv(r->socket, &byte, 1, MSG_PEEK | MSG_DONTWAIT));
}

/* ---- the line's ---- */

void serve_desk_put(struct serve_desk *d, struct serve_request *r)
{
    pthread_mutex_lock(&d->lock);
    if (d->closing)
        refuse(d, r, 503, "the server is shutting down");
    else if (d->waiting + d->running >= d->options->limits.requests)
        refuse(d, r, 429, "too many requests are under way: ask again later");
    else {
        r->on_desk = true;
        *d->last = r;
        d->last = &r->next;
        d->waiting++;
        pthread_cond_broadcast(&d->changed);
    }
    pthread_mutex_unlock(&d->lock);
}

void serve_desk_hang_up(struct serve_desk *d, struct serve_request *r)
{
    pthread_mutex_lock(&d->lock);
    r->gone = true;
    r->sleeps = false;
    d->open--;
    const bool last = !r->on_desk;
    pthread_cond_broadcast(&d->changed);
    pthread_mutex_unlock(&d->lock);
    if (last)
        request_free(r);
}

/* ---- the clock's ---- */

/* Under the lock: of those that wait, *place is none any more. */
static struct serve_request *take_out(struct serve_desk *d, struct serve_request **place)
{
    struct serve_request *r = *place;
    *place = r->next;
    if (d->last == &r->next)
        d->last = place;
    r->next = NULL;
    r->on_desk = false;
    d->waiting--;
    d->counts.seconds += (double)(zinf_now_ns() - r->begin_ns) * 1e-9;
    return r;
}

void serve_desk_expire(struct serve_desk *d)
{
    const uint64_t limit = (uint64_t)d->options->limits.seconds * 1000000000u;
    struct serve_request *freed = NULL, *r;
    pthread_mutex_lock(&d->lock);
    for (struct serve_request **place = &d->first; (r = *place);) {
        const bool gone = is_gone(r);
        if (!gone && zinf_now_ns() - r->begin_ns <= limit) {
            place = &r->next;
            continue;
        }
        take_out(d, place);
        if (gone) { /* so that the connection wakes and is closed */
            tell(d, r, 503, &(struct serve_bytes){0}, true);
            d->counts.requests[SERVE_LEFT]++;
        } else
            refuse(d, r, 504, "the request has waited for longer than zinf serve's --timeout");
        if (r->gone) {
            r->next = freed;
            freed = r;
        }
    }
    pthread_mutex_unlock(&d->lock);
    while ((r = freed)) {
        freed = r->next;
        request_free(r);
    }
}

/* ---- the maker's ---- */

struct serve_request *serve_desk_take(struct serve_desk *d, const struct serve_model *only)
{
    pthread_mutex_lock(&d->lock);
    struct serve_request *r = d->first;
    if (r && only && r->model != only)
        r = NULL;
    if (r) {
        d->first = r->next;
        d->last = d->first ? d->last : &d->first;
        d->waiting--;
        d->running++;
    }
    pthread_mutex_unlock(&d->lock);
    return r;
}

static struct timespec after_ns(uint64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    ns += (uint64_t)t.tv_nsec;
    t.tv_sec += (time_t)(ns / 1000000000u);
    t.tv_nsec = (long)(ns % 1000000000u);
    return t;
}

void serve_desk_wait(struct serve_desk *d)
{
    const struct timespec until = after_ns(WAIT_NS);
    pthread_mutex_lock(&d->lock);
    if (!d->first)
        pthread_cond_timedwait(&d->changed, &d->lock, &until);
    pthread_mutex_unlock(&d->lock);
}

void serve_desk_tell(struct serve_desk *d, struct serve_request *r, int status,
                     struct serve_bytes *bytes, bool ended)
{
    pthread_mutex_lock(&d->lock);
    tell(d, r, status, bytes, ended);
    pthread_mutex_unlock(&d->lock);
    serve_bytes_free(bytes);
}

bool serve_desk_is_gone(struct serve_desk *d, const struct serve_request *r)
{
    pthread_mutex_lock(&d->lock);
    const bool gone = is_gone(r);
    pthread_mutex_unlock(&d->lock);
    return gone;
}

void serve_desk_done(struct serve_desk *d, struct serve_request *r)
{
    pthread_mutex_lock(&d->lock);
    d->counts.seconds += (double)(zinf_now_ns() - r->begin_ns) * 1e-9;
    d->running--;
    r->on_desk = false;
    const bool last = r->gone;
    pthread_mutex_unlock(&d->lock);
    if (last)
        request_free(r);
}

void serve_desk_close(struct serve_desk *d)
{
    pthread_mutex_lock(&d->lock);
    d->closing = true;
    pthread_mutex_unlock(&d->lock);
    for (struct serve_request *r; (r = serve_desk_take(d, NULL));) {
        pthread_mutex_lock(&d->lock);
        refuse(d, r, 503, "the server is shutting down");
        pthread_mutex_unlock(&d->lock);
        serve_desk_done(d, r);
    }
}

void serve_desk_drain(struct serve_desk *d)
{
    const struct timespec until = after_ns(DRAIN_SECONDS * (uint64_t)1000000000);
    int code = 0;
    pthread_mutex_lock(&d->lock);
    while (d->open && !code)
        code = pthread_cond_timedwait(&d->changed, &d->lock, &until);
    pthread_mutex_unlock(&d->lock);
}

/* ---- counts ---- */

int serve_desk_say_counts(struct serve_desk *d, struct serve_bytes *out)
{
    char text[4096];
    pthread_mutex_lock(&d->lock);
    const struct serve_counts c = d->counts;
    const int64_t waiting = d->waiting, running = d->running;
    pthread_mutex_unlock(&d->lock);
    const int n = snprintf(
        text, sizeof text,
        "# HELP zinf_requests_total Requests that have ended, by how.\n"
        "# TYPE zinf_requests_total counter\n"
        "zinf_requests_total{outcome=\"answered\"} %llu\n"
        "zinf_requests_total{outcome=\"refused\"} %llu\n"
        "zinf_requests_total{outcome=\"failed\"} %llu\n"
        "zinf_requests_total{outcome=\"left\"} %llu\n"
        "# HELP zinf_requests_waiting Requests that have not begun.\n"
        "# TYPE zinf_requests_waiting gauge\n"
        "zinf_requests_waiting %lld\n"
        "# HELP zinf_requests_running Requests whose texts are being generated.\n"
        "# TYPE zinf_requests_running gauge\n"
        "zinf_requests_running %lld\n"
        "# HELP zinf_request_seconds_total Seconds from arrival to end, of all that were begun.\n"
        "# TYPE zinf_request_seconds_total counter\n"
        "zinf_request_seconds_total %.6f\n"
        "# HELP zinf_prompt_tokens_total Tokens of prompts.\n"
        "# TYPE zinf_prompt_tokens_total counter\n"
        "zinf_prompt_tokens_total %llu\n"
        "# HELP zinf_new_tokens_total Tokens that were generated.\n"
        "# TYPE zinf_new_tokens_total counter\n"
        "zinf_new_tokens_total %llu\n"
        "# HELP zinf_passes_total Passes over the model.\n"
        "# TYPE zinf_passes_total counter\n"
        "zinf_passes_total %llu\n"
        "# HELP zinf_pass_texts_total Texts that took part in them.\n"
        "# TYPE zinf_pass_texts_total counter\n"
        "zinf_pass_texts_total %llu\n",
        (unsigned long long)c.requests[SERVE_ANSWERED],
        (unsigned long long)c.requests[SERVE_REFUSED], (unsigned long long)c.requests[SERVE_FAILED],
        (unsigned long long)c.requests[SERVE_LEFT], (long long)waiting, (long long)running,
        c.seconds, (unsigned long long)c.prompt_tokens, (unsigned long long)c.new_tokens,
        (unsigned long long)c.calls, (unsigned long long)c.call_texts);
    return serve_bytes_add(out, text, (size_t)n);
}

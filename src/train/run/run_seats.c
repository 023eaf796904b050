/*
 * run_seats: the seats of a process, each with a thread; and a training on them. Seat 0 runs in the
 * caller's thread and speaks for all; a seat that fails ends the others through the net, in a
 * sentence that names it.
 */
#include "offload/trace.h"
#include "train/run/run.h"
#include "train/seats.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct seats {
    pthread_mutex_t lock; /* guards over of all seats, and back_ns */
    pthread_cond_t left;
    struct seat *at;
    uint32_t n;
    uint64_t back_ns;        /* since when one is back; 0: none is */
    zinf_seats_stuck *stuck; /* or NULL */
};

struct seat {
    struct seats *all;
    pthread_t thread;
    bool started, over;
    uint32_t number;
    struct zinf_net *net;
    zinf_seat_run *run;
    void *arg;
    int code;
    char said[1024];
};

#define LEAVE_NS 3000000000u /* for the others to come back, beside the limit for signs of life */
#define LOOK_NS 200000000u

static bool all_are_over(const struct seats *seats)
{
    bool over = true;
    for (uint32_t s = 0; s < seats->n; s++)
        over &= seats->at[s].over;
    return over;
}

/* Under the lock: a seat that is not back and has given no sign of life for too long, counted from
 * since_ns at the earliest; NULL: none. */
static const struct seat *find_stuck(const struct seats *seats, uint64_t since_ns)
{
    uint64_t now = zinf_now_ns();
    for (uint32_t s = 0; s < seats->n; s++) {
        const struct seat *seat = &seats->at[s];
        if (seat->over || now < seats->back_ns + LEAVE_NS)
            continue;
        uint64_t limit = (uint64_t)(zinf_net_timeout(seat->net) * 1e9) + LEAVE_NS;
        uint64_t last = zinf_pulse_last_ns(zinf_net_pulse(seat->net));
        if (now > (last > since_ns ? last : since_ns) + limit)
            return seat;
    }
    return NULL;
}

/* Under the lock: the sentence of a seat that has failed, or else of the one that hangs. */
static void tell_stuck(const struct seats *seats, const struct seat *stuck)
{
    zinf_fail(-ETIMEDOUT,
              "seat %u has given no sign of life for %g s: it hangs, as on a drive that does not "
              "answer; if it is only slow, raise zinf.timeout",
              stuck->number, zinf_net_timeout(stuck->net));
    for (uint32_t s = 0; s < seats->n; s++)
        if (seats->at[s].over && seats->at[s].code)
            zinf_fail(seats->at[s].code, "%s", seats->at[s].said);
    seats->stuck();
}

/* A thread that hangs, as in a call of the system, cannot be ended: only the process can. All seats
 * may hang at once, on one drive, so the one that looks is none of them. */
static void *watch(void *argument)
{
    struct seats *seats = argument;
    uint64_t since = zinf_now_ns(), looked = since;
    pthread_mutex_lock(&seats->lock);
    while (!all_are_over(seats)) {
        uint64_t at = zinf_now_ns() + LOOK_NS;
        struct timespec until = {(time_t)(at / 1000000000u), (long)(at % 1000000000u)};
        pthread_cond_timedwait(&seats->left, &seats->lock, &until);
        uint64_t now = zinf_now_ns();
        if (now > looked + 10 * LOOK_NS) /* this process was stopped: all begin anew */
            since = now;
        looked = now;
        const struct seat *stuck = find_stuck(seats, since);
        if (stuck) {
            tell_stuck(seats, stuck); /* which does not come back, or is done */
            break;
        }
    }
    pthread_mutex_unlock(&seats->lock);
    return NULL;
}

static void leave(struct seat *seat)
{
    struct seats *seats = seat->all;
    pthread_mutex_lock(&seats->lock);
    seat->over = true;
    if (!seats->back_ns)
        seats->back_ns = zinf_now_ns();
    pthread_cond_broadcast(&seats->left);
    pthread_mutex_unlock(&seats->lock);
}

/* An end is closed in its own thread: ends wait for each other there. */
static void *run_seat(void *argument)
{
    struct seat *seat = argument;
    struct zinf_pulse *before = zinf_pulse_of_thread();
    zinf_pulse_set(zinf_net_pulse(seat->net));
    if (seat->number)
        zinf_log_quiet_thread();
    seat->code = seat->run(seat->arg, seat->number, seat->net);
    snprintf(seat->said, sizeof seat->said, "%s", seat->code ? zinf_error() : "");
    leave(seat);
    zinf_net_close(seat->net);
    zinf_pulse_set(before);
    return NULL;
}

static int start(struct seat *seat)
{
    int error = pthread_create(&seat->thread, NULL, run_seat, seat);
    seat->started = !error;
    return error ? zinf_fail(-error, "cannot start a thread for a seat: %s", strerror(error)) : 0;
}

static int run_all(struct seats *seats)
{
    struct seat *at = seats->at;
    int code = 0;
    for (uint32_t s = 1; !code && s < seats->n; s++)
        code = start(&at[s]);
    if (code) {
        zinf_net_tell(at[0].net, zinf_error());
        pthread_mutex_lock(&seats->lock);
        for (uint32_t s = 0; s < seats->n; s++)
            at[s].over |= !at[s].started;
        pthread_mutex_unlock(&seats->lock);
        zinf_net_close(at[0].net);
    } else {
        run_seat(&at[0]);
        code = at[0].code ? zinf_fail(at[0].code, "%s", at[0].said) : 0;
    }
    for (uint32_t s = 1; s < seats->n; s++)
        if (at[s].started)
            pthread_join(at[s].thread, NULL);
        else
            zinf_net_close(at[s].net);
    for (uint32_t s = 1; !code && s < seats->n; s++) /* after its last word to the others */
        if (at[s].code)
            code = zinf_fail(at[s].code, "seat %u has failed: %s", s, at[s].said);
    return code;
}

static int run_on_all(struct seats *seats)
{
    pthread_condattr_t monotonic; /* as deadlines are */
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&seats->left, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_mutex_init(&seats->lock, NULL);
    pthread_t watcher;
    bool watched = seats->stuck && !pthread_create(&watcher, NULL, watch, seats);
    int code = run_all(seats);
    if (watched)
        pthread_join(watcher, NULL);
    pthread_cond_destroy(&seats->left);
    pthread_mutex_destroy(&seats->lock);
    return code;
}

static int run_alone(struct zinf_net *net, zinf_seat_run *run, void *arg)
{
    int code = net ? zinf_net_compare_seats(net, 1) : 0;
    return code ? code : run(arg, 0, net);
}

int zinf_run_on_seats(uint32_t n, struct zinf_net *between, zinf_seat_run *run, void *arg,
                      zinf_seats_stuck *stuck)
{
    struct seats all = {.n = n, .stuck = stuck};
    if (n < 2)
        return run_alone(between, run, arg);
    struct zinf_net **nets = calloc(n, sizeof *nets);
    struct seat *seats = calloc(n, sizeof *seats);
    int code = nets && seats ? 0 : zinf_fail(-ENOMEM, "no memory for %u seats", n);
    if (!code)
        code = zinf_net_seats_create(nets, n, between);
    for (uint32_t s = 0; !code && s < n; s++)
        seats[s] = (struct seat){.all = &all, .number = s, .net = nets[s], .run = run, .arg = arg};
    all.at = seats;
    if (code && between)
        zinf_net_tell(between, zinf_error());
    if (!code)
        code = run_on_all(&all);
    free(nets);
    free(seats);
    return code;
}

/* ---- a training ---- */

struct training {
    const struct zinf_run_options *options; /* of all seats */
    struct zinf_trace_file *trace;          /* or NULL */
    /* [seats], for saves in the background; NULL: of several processes, whose nets are one each. */
    struct zinf_net **saving;
};

static int open_saving(struct training *t)
{
    const struct zinf_run_options *o = t->options;
    if (o->seats < 2 || o->trainer.net || !o->trainer.config->async_save)
        return 0;
    t->saving = calloc(o->seats, sizeof *t->saving);
    int code = t->saving ? zinf_net_seats_create(t->saving, o->seats, NULL)
                         : zinf_fail(-ENOMEM, "no memory for %u seats", o->seats);
    for (uint32_t s = 0; !code && s < o->seats; s++)
        zinf_net_set_timeout(t->saving[s], o->trainer.config->timeout);
    return code;
}

/* In the seat's thread: ends wait for each other there, unless one has failed. */
static void close_saving(const struct training *t, uint32_t seat, int code)
{
    if (!t->saving || !t->saving[seat])
        return;
    if (code)
        zinf_net_tell(t->saving[seat], zinf_error());
    zinf_net_close(t->saving[seat]);
    t->saving[seat] = NULL;
}

/* Output, log and events are seat 0's, and so are signals, which ranks tell each other of. */
static int train_on_seat(void *arg, uint32_t seat, struct zinf_net *net)
{
    const struct training *training = arg;
    const struct zinf_run_options *all = training->options;
    struct zinf_run_options own = *all;
    own.trainer.net = net;
    own.trainer.gpu = all->gpus ? &all->gpus[seat] : all->trainer.gpu;
    own.trainer.trace = training->trace;
    own.trainer.save_net = training->saving ? training->saving[seat] : NULL;
    if (seat) {
        own.events = (struct zinf_run_events){0};
        own.stop = NULL;
        own.save = NULL;
    }
    int code = run_rank(&own);
    close_saving(training, seat, code);
    return code;
}

int zinf_run_train(const struct zinf_run_options *options)
{
    const char *path = options->trainer.config->trace;
    struct training training = {.options = options};
    int code = 0;
    if (options->seats > 1 && path)
        code = zinf_trace_file_create(&training.trace, path, options->seats);
    if (!code)
        code = open_saving(&training);
    if (code && options->trainer.net)
        zinf_net_tell(options->trainer.net, zinf_error());
    if (!code)
        code = zinf_run_on_seats(options->seats, options->trainer.net, train_on_seat, &training,
                                 options->stuck);
    for (uint32_t s = 0; training.saving && s < options->seats; s++) /* of seats that never began */
        close_saving(&training, s, code ? code : -ECANCELED);
    free(training.saving);
    if (zinf_trace_file_close(training.trace) && !code)
        zinf_log(ZINF_LOG_WARN, "%s", zinf_error());
    return code;
}

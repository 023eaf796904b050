/*
 * run_seats: the seats of a process, each with a thread; and a training on them. Seat 0 runs in the
 * caller's thread and speaks for all; a seat that fails ends the others through the net, in a
 * sentence that names it.
 */
#include "offload/trace.h"
#include "train/run/run.h"
#include "train/run/reference.h"
#include "train/seats.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct seat {
    pthread_t thread;
    bool started;
    uint32_t number;
    struct zinf_net *net;
    zinf_seat_run *run;
    void *arg;
    int code;
    char said[1024];
};

/* An end is closed in its own thread: ends wait for each other there. */
static void *run_seat(void *argument)
{
    struct seat *seat = argument;
    zinf_log_quiet_thread();
    seat->code = seat->run(seat->arg, seat->number, seat->net);
    snprintf(seat->said, sizeof seat->said, "%s", seat->code ? zinf_error() : "");
    zinf_net_close(seat->net);
    return NULL;
}

static int start(struct seat *seat)
{
    int error = pthread_create(&seat->thread, NULL, run_seat, seat);
    seat->started = !error;
    return error ? zinf_fail(-error, "cannot start a thread for a seat: %s", strerror(error)) : 0;
}

static int run_all(struct seat *seats, uint32_t n)
{
    int code = 0;
    for (uint32_t s = 1; !code && s < n; s++)
        code = start(&seats[s]);
    if (code)
        zinf_net_tell(seats[0].net, zinf_error());
    else
        code = seats[0].run(seats[0].arg, 0, seats[0].net);
    zinf_net_close(seats[0].net);
    for (uint32_t s = 1; s < n; s++)
        if (seats[s].started)
            pthread_join(seats[s].thread, NULL);
        else
            zinf_net_close(seats[s].net);
    for (uint32_t s = 1; !code && s < n; s++) /* after its last word to the others */
        if (seats[s].code)
            code = zinf_fail(seats[s].code, "seat %u has failed: %s", s, seats[s].said);
    return code;
}

static int run_alone(struct zinf_net *net, zinf_seat_run *run, void *arg)
{
    int code = net ? zinf_net_compare_seats(net, 1) : 0;
    return code ? code : run(arg, 0, net);
}

int zinf_run_on_seats(uint32_t n, struct zinf_net *between, zinf_seat_run *run, void *arg)
{
    if (n < 2)
        return run_alone(between, run, arg);
    struct zinf_net **nets = calloc(n, sizeof *nets);
    struct seat *seats = calloc(n, sizeof *seats);
    int code = nets && seats ? 0 : zinf_fail(-ENOMEM, "no memory for %u seats", n);
    if (!code)
        code = zinf_net_seats_create(nets, n, between);
    for (uint32_t s = 0; !code && s < n; s++)
        seats[s] = (struct seat){.number = s, .net = nets[s], .run = run, .arg = arg};
    if (code && between)
        zinf_net_tell(between, zinf_error());
    if (!code)
        code = run_all(seats, n);
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
    return t->saving ? zinf_net_seats_create(t->saving, o->seats, NULL)
                     : zinf_fail(-ENOMEM, "no memory for %u seats", o->seats);
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
    int code = run_make_references(options);
    if (!code && options->seats > 1 && path)
        code = zinf_trace_file_create(&training.trace, path, options->seats);
    if (!code)
        code = open_saving(&training);
    if (code && options->trainer.net)
        zinf_net_tell(options->trainer.net, zinf_error());
    if (!code)
        code = zinf_run_on_seats(options->seats, options->trainer.net, train_on_seat, &training);
    for (uint32_t s = 0; training.saving && s < options->seats; s++) /* of seats that never began */
        close_saving(&training, s, code ? code : -ECANCELED);
    free(training.saving);
    if (zinf_trace_file_close(training.trace) && !code)
        zinf_log(ZINF_LOG_WARN, "%s", zinf_error());
    return code;
}

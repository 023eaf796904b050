/*
 * run_seats: one process drives several devices. Each is a seat: a rank with a thread, a trainer
 * and a device of its own, which makes the same calls as all ranks and shares with the process's
 * others what is read only: options, configuration and data. Seat 0 runs in the caller's thread and
 * speaks for all; a seat that fails ends the others through the net, in a sentence that names it.
 */
#include "offload/trace.h"
#include "train/run/run.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

struct seat {
    pthread_t thread;
    bool started;
    struct zinf_run_options options;
    int code;
    char said[1024];
};

/* An end is closed in its own thread: ends wait for each other there. */
static void *run_seat(void *argument)
{
    struct seat *seat = argument;
    zinf_log_quiet_thread();
    seat->code = run_rank(&seat->options);
    snprintf(seat->said, sizeof seat->said, "%s", seat->code ? zinf_error() : "");
    zinf_net_close(seat->options.trainer.net);
    return NULL;
}

/* Output, log and events are seat 0's, and so are signals, which ranks tell each other of. */
static struct zinf_run_options options_of(const struct zinf_run_options *all, uint32_t seat,
                                          struct zinf_net *net)
{
    struct zinf_run_options own = *all;
    own.trainer.net = net;
    own.trainer.gpu = all->gpus ? &all->gpus[seat] : all->trainer.gpu;
    if (!seat)
        return own;
    own.events = (struct zinf_run_events){0};
    own.stop = NULL;
    own.save = NULL;
    return own;
}

static int start(struct seat *seat)
{
    int error = pthread_create(&seat->thread, NULL, run_seat, seat);
    seat->started = !error;
    return error ? zinf_fail(-error, "cannot start a thread for a seat: %s", strerror(error)) : 0;
}

static int run_all(struct seat *seats, uint32_t n)
{
    struct zinf_net *net = seats[0].options.trainer.net;
    int code = 0;
    for (uint32_t s = 1; !code && s < n; s++)
        code = start(&seats[s]);
    if (code)
        zinf_net_tell(net, zinf_error());
    else
        code = run_rank(&seats[0].options);
    zinf_net_close(net);
    for (uint32_t s = 1; s < n; s++)
        if (seats[s].started)
            pthread_join(seats[s].thread, NULL);
        else
            zinf_net_close(seats[s].options.trainer.net);
    for (uint32_t s = 1; !code && s < n; s++) /* after its last word to the others */
        if (seats[s].code)
            code = zinf_fail(seats[s].code, "seat %u has failed: %s", s, seats[s].said);
    return code;
}

static int run_seats(const struct zinf_run_options *options, uint32_t n)
{
    const char *trace_path = options->trainer.config->trace;
    struct zinf_trace_file *trace = NULL;
    struct zinf_net **nets = calloc(n, sizeof *nets);
    struct seat *seats = calloc(n, sizeof *seats);
    int code = nets && seats ? 0 : zinf_fail(-ENOMEM, "no memory for %u seats", n);
    if (!code && trace_path)
        code = zinf_trace_file_create(&trace, trace_path, n);
    if (!code)
        code = zinf_net_seats_create(nets, n, options->trainer.net);
    for (uint32_t s = 0; !code && s < n; s++) {
        seats[s].options = options_of(options, s, nets[s]);
        seats[s].options.trainer.trace = trace;
    }
    if (code && options->trainer.net)
        zinf_net_tell(options->trainer.net, zinf_error());
    if (!code)
        code = run_all(seats, n);
    if (zinf_trace_file_close(trace) && !code)
        zinf_log(ZINF_LOG_WARN, "%s", zinf_error());
    free(nets);
    free(seats);
    return code;
}

int zinf_run_train(const struct zinf_run_options *options)
{
    struct zinf_net *net = options->trainer.net;
    if (options->seats > 1)
        return run_seats(options, options->seats);
    struct zinf_run_options one = options_of(options, 0, net);
    int code = net ? zinf_net_compare_seats(net, 1) : 0;
    return code ? code : run_rank(&one);
}

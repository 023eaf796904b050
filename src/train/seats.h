/*
 * seats: one process drives several devices. Each is a rank with a thread, a trainer and a device
 * of its own, which makes the same calls as all ranks and shares with the process's others what is
 * read only: options, configuration and data.
 *
 * Errors as in train.h.
 */
#ifndef ZINF_SEATS_H
#define ZINF_SEATS_H

#include "train/train.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a seat does with its number and its end of the net, which it does not close. One that fails
 * tells the net (zinf_net_tell). */
typedef int zinf_seat_run(void *arg, uint32_t seat, struct zinf_net *net);
/* One hangs: it has given no sign of life for the net's time limit and three seconds. zinf_error()
 * has the sentence of a seat that has failed, or else says which one hangs. Its thread cannot be
 * ended, and uses what it was given: so the process should end here. Called in a thread of its own,
 * at most once. */
typedef void zinf_seats_stuck(void);
/* Calls run once for each of n seats and returns when all are done: seat 0 in the caller's thread,
 * the others, whose log is quiet, in threads of their own. between: this process's end of a net of
 * processes with as many seats each; NULL: there are no others. Of one seat the net is that. 0, or
 * what the first seat that failed returned, with a sentence that names it. stuck NULL: one that
 * hangs is waited for. */
int zinf_run_on_seats(uint32_t n, struct zinf_net *between, zinf_seat_run *run, void *arg,
                      zinf_seats_stuck *stuck);
/* Before ranks evaluate together: -EINVAL where one has another program, configuration, model or
 * data, which the message names. Nothing to do without the options' net. */
int zinf_run_compare(const struct zinf_trainer_options *options, struct zinf_dataset *data);
/* The same before they make texts together, of which the caller has made a hash. */
int zinf_run_compare_texts(const struct zinf_trainer_options *options, uint64_t sum);

#ifdef __cplusplus
}
#endif
#endif

/*
 * pulse: signs of life. Long work calls zinf_pulse_beat after each piece. The call records that
 * the work goes on, and tells whether it is to end, because another rank has failed or the user
 * pressed Ctrl-C. Whoever waits for the work reads the time of its last beat.
 *
 * A thread has one pulse: at first the process's; the threads of a seat have the seat's. A beat
 * also counts for the pulses above, and an end also ends all pulses below. All calls may be made
 * from any thread. A pulse must outlive the threads that use it.
 */
#ifndef ZINF_PULSE_H
#define ZINF_PULSE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct zinf_pulse {
    struct zinf_pulse *above; /* the parent; NULL: none */
    uint64_t beat_ns; /* time of the last beat; only the calls below may access the fields */
    int ended, code;
    char why[1000];
};

/* Initialises a pulse, as if it had just beaten. */
void zinf_pulse_init(struct zinf_pulse *pulse, struct zinf_pulse *above);
/* The calling thread's pulse; the process's; and setting the calling thread's, where NULL means the
 * process's. */
struct zinf_pulse *zinf_pulse_of_thread(void);
struct zinf_pulse *zinf_pulse_of_process(void);
void zinf_pulse_set(struct zinf_pulse *pulse);

/* A beat of the calling thread's pulse. 0, or the code with which the work is to end; its sentence
 * is then in zinf_error(). */
int zinf_pulse_beat(void);
uint64_t zinf_pulse_last_ns(const struct zinf_pulse *pulse);
/* Makes a beat of another pulse count for this one: a rank that waits is alive as long as the rank
 * that it waits for. */
void zinf_pulse_follow(struct zinf_pulse *pulse, uint64_t last_ns);
/* Ends all work with this pulse, or one below it. Only the first call counts. A signal handler may
 * call it. */
void zinf_pulse_end(struct zinf_pulse *pulse, int code, const char *why);

#ifdef __cplusplus
}
#endif
#endif

/*
 * pulse: signs of life. Work that takes long says after each piece that it goes on, and hears in
 * the same call that it is to end: because another rank has failed, or somebody pressed Ctrl-C. Who
 * waits for this work looks at the time of its last sign.
 *
 * A thread has one pulse: at first that of the process; a seat's threads have the seat's. A sign
 * counts for the pulses above too, and a word to end is heard by all below. All calls may be made
 * from any thread; a pulse outlives the threads that have it.
 */
#ifndef ZINF_PULSE_H
#define ZINF_PULSE_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

struct zinf_pulse {
    struct zinf_pulse *above; /* NULL: none */
    uint64_t beat_ns;         /* of the last sign; by the calls below alone, as the rest */
    int ended, code;
    char why[1000];
};

/* The first sign is this call. */
void zinf_pulse_init(struct zinf_pulse *pulse, struct zinf_pulse *above);
/* The calling thread's, and another for it; NULL: that of the process. */
struct zinf_pulse *zinf_pulse_of_thread(void);
struct zinf_pulse *zinf_pulse_of_process(void);
void zinf_pulse_set(struct zinf_pulse *pulse);

/* A sign of the calling thread's pulse; 0, or the code and the sentence that it is to end with. */
int zinf_pulse_beat(void);
uint64_t zinf_pulse_last_ns(const struct zinf_pulse *pulse);
/* Who waits for another lives as long as that one: its last sign counts for pulse too. */
void zinf_pulse_follow(struct zinf_pulse *pulse, uint64_t last_ns);
/* All that has this pulse, or one below it, is to end. The first such word stays. A signal handler
 * may call it. */
void zinf_pulse_end(struct zinf_pulse *pulse, int code, const char *why);

#ifdef __cplusplus
}
#endif
#endif

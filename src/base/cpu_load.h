/* cpu_load: how busy other processes keep the CPUs that this process may use. */
#ifndef ZINF_CPU_LOAD_H
#define ZINF_CPU_LOAD_H

#include "base/base.h"

/* CPU seconds since the machine started. */
struct zinf_cpu_load {
    double busy;    /* of all processes on these CPUs; < 0: the kernel does not say */
    double own;     /* of this process and of its children that have ended */
    double seconds; /* of the clock */
    int cpus;
};

/* Reads the present counts. stat: a file like /proc/stat, which NULL names. */
struct zinf_cpu_load zinf_cpu_load_now(const char *stat);
/* The part of the CPUs' time between begin and end that others took, from 0 to 1. Interrupts count
 * for nobody, since a bench's own transfers cause them. < 0: not known, or too short to say. */
double zinf_cpu_load_others(const struct zinf_cpu_load *begin, const struct zinf_cpu_load *end);

#endif

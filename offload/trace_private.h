/* trace_private: what recording and writing share. Inside this folder only. */
#ifndef ZINF_OFFLOAD_TRACE_PRIVATE_H
#define ZINF_OFFLOAD_TRACE_PRIVATE_H

#include "offload/trace.h"

#include <stdio.h>

/* rows that are not lanes, numbered behind them */
enum {
    TRACE_STEPS = ZINF_LANES,
    TRACE_KINDS,
};

struct trace_record {
    char name[64];
    uint64_t begin_ns, end_ns, bytes;
    uint32_t run;           /* number of the run of a program */
    uint32_t number, cause; /* of operations in that run */
    int16_t micro;
    uint8_t kind;    /* lane, or TRACE_STEPS */
    uint8_t row;     /* row among those of its lane; set when it is written */
    bool is_program; /* with kind TRACE_STEPS: the record is a run of a program */
};

/* What one device recorded. */
struct trace_part {
    struct trace_record *records; /* [n] in any order; writing sorts it */
    uint64_t n;
};
/* trace_write.c: writes the records of n_parts devices, numbered from 0. */
int trace_write(FILE *file, const struct trace_part *parts, uint32_t n_parts);

#endif

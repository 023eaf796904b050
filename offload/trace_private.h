/* trace_private: what recording and writing share. Inside this folder only. */
#ifndef ZINF_OFFLOAD_TRACE_PRIVATE_H
#define ZINF_OFFLOAD_TRACE_PRIVATE_H

#include "offload/trace.h"

#include <stdio.h>

/* Rows that are no lanes, behind them. */
enum {
    TRACE_STEPS = ZINF_LANES,
    TRACE_KINDS,
};

struct trace_record {
    char name[64];
    uint64_t begin_ns, end_ns, bytes;
    uint32_t run;           /* which run of a program it belongs to */
    uint32_t number, cause; /* operations of that run */
    int16_t micro;
    uint8_t kind;    /* lane, or TRACE_STEPS */
    uint8_t row;     /* of its lane; set when it is written */
    bool is_program; /* of TRACE_STEPS: the run's own */
};

/* trace_write.c: records in any order, which it changes. */
int trace_write(FILE *file, struct trace_record *records, uint64_t n);

#endif

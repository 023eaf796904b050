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

/* What one seat recorded. */
struct trace_part {
    struct trace_record *records; /* [n], in any order, which writing changes */
    uint64_t n;
};
/* trace_write.c: of one seat, or of several with their numbers. */
int trace_write(FILE *file, const struct trace_part *parts, uint32_t n_parts);

#endif

/*
 * trace: what ran when, kept in memory and written as Chrome trace JSON (also Perfetto's) at the
 * end. A row for the steps, one for the micro-batches that DEVICE works on, and one for each lane;
 * a drive lane, whose requests overlap, has as many as it needs for none of them to. Where a lane
 * stood still a span says what for, and an arrow leads to an operation from the one in another lane
 * that it waited for last. Used under its owner's lock.
 */
#ifndef ZINF_TRACE_H
#define ZINF_TRACE_H

#include "offload/offload.h"

#define ZINF_TRACE_NO_CAUSE UINT32_MAX

struct zinf_trace;
int zinf_trace_create(struct zinf_trace **out, const char *path);
/* One file for the traces of a process's seats, each a process of its own to the viewer. Made
 * before them and closed, which writes it, after them; they are of one thread each. */
struct zinf_trace_file;
int zinf_trace_file_create(struct zinf_trace_file **out, const char *path, uint32_t n_seats);
int zinf_trace_file_close(struct zinf_trace_file *file);
int zinf_trace_join(struct zinf_trace **out, struct zinf_trace_file *file, uint32_t seat);
/* An operation that ran: its number in its program, and that of the one it waited for last. Names
 * are copied; of those too long the end is cut. */
struct zinf_trace_op {
    const char *name;
    enum zinf_lane lane;
    int16_t micro;
    uint32_t number, cause;
    uint64_t begin_ns, end_ns, bytes;
};
/* The oldest records are dropped when the ring is full. */
void zinf_trace_op(struct zinf_trace *trace, const struct zinf_trace_op *op);
/* The program whose operations were recorded since the last call, from begin to end. */
void zinf_trace_program(struct zinf_trace *trace, const char *name, uint64_t begin_ns,
                        uint64_t end_ns);
/* What the programs within it were for: "step 12". Marks lie apart or in each other. */
void zinf_trace_mark(struct zinf_trace *trace, const char *name, uint64_t begin_ns,
                     uint64_t end_ns);
/* Writes the file, or leaves that to the file it has joined, and frees. NULL is allowed. */
int zinf_trace_close(struct zinf_trace *trace);

#endif

/*
 * trace: what ran when, kept in memory and written at the end as Chrome trace JSON, which Perfetto
 * reads too. There is a row for steps, one for the micro-batches that DEVICE works on, and one for
 * each lane. Requests of a drive lane overlap, so it has as many rows as it needs. A span marks
 * where a lane stood still and what it waited for. An arrow leads to each operation from the
 * operation of another lane that it waited for last. Calls are made under the owner's lock.
 */
#ifndef ZINF_TRACE_H
#define ZINF_TRACE_H

#include "offload/offload.h"

#define ZINF_TRACE_NO_CAUSE UINT32_MAX

struct zinf_trace;
int zinf_trace_create(struct zinf_trace **out, const char *path);
/* One file for the traces of the devices of a process; the viewer shows each as a process. Create
 * it before they join, and close it, which writes it, after they are closed. Both calls are made by
 * one thread. */
struct zinf_trace_file;
int zinf_trace_file_create(struct zinf_trace_file **out, const char *path, uint32_t n_seats);
int zinf_trace_file_close(struct zinf_trace_file *file);
int zinf_trace_join(struct zinf_trace **out, struct zinf_trace_file *file, uint32_t seat);
/* An operation that ran: its number in its program, and the number of the operation that it waited
 * for last (cause). The name is copied and cut if it is too long. */
struct zinf_trace_op {
    const char *name;
    enum zinf_lane lane;
    int16_t micro;
    uint32_t number, cause;
    uint64_t begin_ns, end_ns, bytes;
};
/* Records an operation. When the ring of records is full, the oldest are dropped. */
void zinf_trace_op(struct zinf_trace *trace, const struct zinf_trace_op *op);
/* Records a run of a program, to which all operations recorded since the last such call belong. */
void zinf_trace_program(struct zinf_trace *trace, const char *name, uint64_t begin_ns,
                        uint64_t end_ns);
/* Records a period, such as "step 12", that holds one or several runs. Two periods must not overlap
 * in part. */
void zinf_trace_mark(struct zinf_trace *trace, const char *name, uint64_t begin_ns,
                     uint64_t end_ns);
/* Writes the file, unless the trace has joined a shared one, and frees. NULL is allowed. */
int zinf_trace_close(struct zinf_trace *trace);

#endif

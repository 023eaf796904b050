/* trace: begin and end of each operation, kept in memory and written as Chrome trace JSON. */
#ifndef ZINF_TRACE_H
#define ZINF_TRACE_H

#include "offload/offload.h"

struct zinf_trace;
int zinf_trace_create(struct zinf_trace **out, const char *path);
/* Appends one record; the oldest are dropped when the ring is full. One thread. */
void zinf_trace_record(struct zinf_trace *trace, const char *name, enum zinf_lane lane,
                       uint64_t begin_ns, uint64_t end_ns, uint64_t bytes);
/* Writes the file and frees. NULL is allowed. */
int zinf_trace_close(struct zinf_trace *trace);

#endif

/* trace: a ring of fixed-size records, so that a long run keeps its last operations. */
#include "offload/trace_private.h"

#include <stdlib.h>

#define MAX_RECORDS (1u << 18) /* 26 MiB at most, touched as it fills */

struct zinf_trace {
    struct trace_record *records;
    uint64_t count;
    uint32_t run;
    char *path;
};

int zinf_trace_create(struct zinf_trace **out, const char *path)
{
    struct zinf_trace *trace = calloc(1, sizeof *trace);
    if (trace) {
        trace->records = malloc(MAX_RECORDS * sizeof *trace->records);
        trace->path = strdup(path);
    }
    if (!trace || !trace->records || !trace->path) {
        if (trace) {
            free(trace->records);
            free(trace->path);
        }
        free(trace);
        return zinf_fail(-ENOMEM, "no memory for the trace");
    }
    *out = trace;
    return 0;
}

static struct trace_record *next_record(struct zinf_trace *trace, const char *name)
{
    struct trace_record *r = &trace->records[trace->count++ % MAX_RECORDS];
    *r = (struct trace_record){.run = trace->run};
    snprintf(r->name, sizeof r->name, "%s", name);
    return r;
}

void zinf_trace_op(struct zinf_trace *trace, const struct zinf_trace_op *op)
{
    struct trace_record *r = next_record(trace, op->name);
    r->begin_ns = op->begin_ns;
    r->end_ns = op->end_ns;
    r->bytes = op->bytes;
    r->number = op->number;
    r->cause = op->cause;
    r->micro = op->micro;
    r->kind = (uint8_t)op->lane;
}

static struct trace_record *mark(struct zinf_trace *trace, const char *name, uint64_t begin_ns,
                                 uint64_t end_ns)
{
    struct trace_record *r = next_record(trace, name);
    r->begin_ns = begin_ns;
    r->end_ns = end_ns;
    r->cause = ZINF_TRACE_NO_CAUSE;
    r->kind = TRACE_STEPS;
    return r;
}

void zinf_trace_mark(struct zinf_trace *trace, const char *name, uint64_t begin_ns, uint64_t end_ns)
{
    mark(trace, name, begin_ns, end_ns);
}

void zinf_trace_program(struct zinf_trace *trace, const char *name, uint64_t begin_ns,
                        uint64_t end_ns)
{
    mark(trace, name, begin_ns, end_ns)->is_program = true;
    trace->run++;
}

int zinf_trace_close(struct zinf_trace *trace)
{
    if (!trace)
        return 0;
    uint64_t n = trace->count < MAX_RECORDS ? trace->count : MAX_RECORDS;
    FILE *file = fopen(trace->path, "w");
    int code = file ? trace_write(file, trace->records, n) : -EIO;
    if (file && fclose(file))
        code = -EIO;
    if (code)
        code = zinf_fail(code, "cannot write the trace %s (zinf.trace)", trace->path);
    free(trace->records);
    free(trace->path);
    free(trace);
    return code;
}

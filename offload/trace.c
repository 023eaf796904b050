/* trace: a ring of fixed-size records, so that a long run keeps its last operations. */
#include "offload/trace_private.h"

#include <stdlib.h>

#define MAX_RECORDS (1u << 18) /* at most 26 MiB, which become resident as they fill */

struct zinf_trace {
    struct trace_record *records;
    uint64_t count;
    uint32_t run;
    struct zinf_trace_file *file; /* NULL: the trace has a file of its own */
    uint32_t seat;
    char *path;
};

/* Each device sets its own part. */
struct zinf_trace_file {
    struct trace_part *parts; /* [n] */
    uint32_t n;
    char *path;
};

static void trace_free(struct zinf_trace *trace)
{
    if (!trace)
        return;
    free(trace->records);
    free(trace->path);
    free(trace);
}

int zinf_trace_create(struct zinf_trace **out, const char *path)
{
    struct zinf_trace *trace = calloc(1, sizeof *trace);
    if (trace) {
        trace->records = malloc(MAX_RECORDS * sizeof *trace->records);
        trace->path = strdup(path);
    }
    if (!trace || !trace->records || !trace->path) {
        trace_free(trace);
        return zinf_fail(-ENOMEM, "no memory for the trace");
    }
    *out = trace;
    return 0;
}

/* ---- of several seats ---- */

static void file_free(struct zinf_trace_file *file)
{
    for (uint32_t s = 0; file->parts && s < file->n; s++)
        free(file->parts[s].records);
    free(file->parts);
    free(file->path);
    free(file);
}

int zinf_trace_file_create(struct zinf_trace_file **out, const char *path, uint32_t n_seats)
{
    struct zinf_trace_file *file = *out = calloc(1, sizeof *file);
    if (!file)
        return zinf_fail(-ENOMEM, "no memory for the trace");
    file->n = n_seats;
    file->parts = calloc(n_seats, sizeof *file->parts);
    file->path = strdup(path);
    if (file->parts && file->path)
        return 0;
    file_free(file);
    *out = NULL;
    return zinf_fail(-ENOMEM, "no memory for the trace");
}

int zinf_trace_join(struct zinf_trace **out, struct zinf_trace_file *file, uint32_t seat)
{
    int code = zinf_trace_create(out, file->path);
    if (code)
        return code;
    (*out)->file = file;
    (*out)->seat = seat;
    return 0;
}

static int write_parts(const char *path, const struct trace_part *parts, uint32_t n)
{
    FILE *file = fopen(path, "w");
    int code = file ? trace_write(file, parts, n) : -EIO;
    if (file && fclose(file))
        code = -EIO;
    return code ? zinf_fail(code, "cannot write the trace %s (zinf.trace)", path) : 0;
}

int zinf_trace_file_close(struct zinf_trace_file *file)
{
    int code = file ? write_parts(file->path, file->parts, file->n) : 0;
    if (file)
        file_free(file);
    return code;
}

/* ---- records ---- */

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
    int code = 0;
    if (!trace)
        return 0;
    struct trace_part part = {.records = trace->records,
                              .n = trace->count < MAX_RECORDS ? trace->count : MAX_RECORDS};
    if (trace->file) {
        trace->file->parts[trace->seat] = part;
        trace->records = NULL;
    } else {
        code = write_parts(trace->path, &part, 1);
    }
    trace_free(trace);
    return code;
}

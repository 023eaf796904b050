/* trace: a ring of fixed-size records, so that a long run keeps its last operations. */
#include "offload/trace.h"

#include <stdio.h>
#include <stdlib.h>

#define MAX_RECORDS (1u << 18) /* 96 bytes each: 24 MiB at most, touched as it fills */

struct record {
    char name[56];
    uint64_t begin_ns, end_ns, bytes;
    uint32_t lane;
};

struct zinf_trace {
    struct record *records;
    uint64_t count;
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
        zinf_trace_close(trace);
        return zinf_fail(-ENOMEM, "no memory for the trace");
    }
    *out = trace;
    return 0;
}

void zinf_trace_record(struct zinf_trace *trace, const char *name, enum zinf_lane lane,
                       uint64_t begin_ns, uint64_t end_ns, uint64_t bytes)
{
    struct record *r = &trace->records[trace->count++ % MAX_RECORDS];
    snprintf(r->name, sizeof r->name, "%s", name);
    r->begin_ns = begin_ns;
    r->end_ns = end_ns;
    r->bytes = bytes;
    r->lane = (uint32_t)lane;
}

static int write_records(const struct zinf_trace *trace, FILE *file)
{
    uint64_t n = trace->count < MAX_RECORDS ? trace->count : MAX_RECORDS;
    uint64_t first = trace->count - n;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
    for (int lane = 0; lane < ZINF_LANES; lane++)
        fprintf(file,
                "%s{\"ph\":\"M\",\"pid\":1,\"tid\":%d,\"name\":\"thread_name\","
                "\"args\":{\"name\":\"%s\"}}\n",
                lane ? "," : "", lane, zinf_lane_name((enum zinf_lane)lane));
    for (uint64_t i = 0; i < n; i++) {
        const struct record *r = &trace->records[(first + i) % MAX_RECORDS];
        fprintf(file,
                ",{\"ph\":\"X\",\"pid\":1,\"tid\":%u,\"name\":\"%s\",\"ts\":%.3f,\"dur\":%.3f,"
                "\"args\":{\"bytes\":%llu}}\n",
                r->lane, r->name, (double)r->begin_ns / 1e3,
                (double)(r->end_ns - r->begin_ns) / 1e3, (unsigned long long)r->bytes);
    }
    fputs("]}\n", file);
    return ferror(file) ? -EIO : 0;
}

int zinf_trace_close(struct zinf_trace *trace)
{
    if (!trace)
        return 0;
    int code = 0;
    if (trace->records && trace->path) {
        FILE *file = fopen(trace->path, "w");
        if (!file || write_records(trace, file))
            code = zinf_fail(-EIO, "cannot write the trace %s (zinf.trace)", trace->path);
        if (file && fclose(file) && !code)
            code = zinf_fail(-EIO, "cannot write the trace %s (zinf.trace)", trace->path);
    }
    free(trace->records);
    free(trace->path);
    free(trace);
    return code;
}

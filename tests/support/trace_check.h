/*
 * trace_check: what viewers ask of a trace. Spans of a row lie apart or in each other; every arrow
 * has one begin and one end, each within a span of its row, and does not lead back in time; every
 * row has a name. Counts what it saw.
 */
#ifndef ZINF_TRACE_CHECK_H
#define ZINF_TRACE_CHECK_H

#include "base/json.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

struct trace_span {
    int tid;
    int64_t begin, end; /* ns */
    const char *name;
};
struct trace_arrow {
    int id, tid;
    int64_t at;
    bool is_end;
};
struct trace_seen {
    int spans, arrows, rows, idle, micros, marks;
};

static inline int64_t trace_ns(const cJSON *event, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, key);
    CHECKF(cJSON_IsNumber(value) && value->valuedouble >= 0, "%s", key);
    return cJSON_IsNumber(value) ? llround(value->valuedouble * 1e3) : 0;
}

static inline const char *trace_word(const cJSON *event, const char *key)
{
    const char *text = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(event, key));
    return text ? text : "";
}

static inline int trace_int(const cJSON *event, const char *key)
{
    const cJSON *value = cJSON_GetObjectItemCaseSensitive(event, key);
    return cJSON_IsNumber(value) ? value->valueint : -1;
}

/* By row and begin; of those that begin together the longest first. */
static inline int trace_order(const void *a, const void *b)
{
    const struct trace_span *x = a, *y = b;
    if (x->tid != y->tid)
        return x->tid < y->tid ? -1 : 1;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    return (x->end < y->end) - (x->end > y->end);
}

static inline void trace_check_nesting(const struct trace_span *spans, int n)
{
    const struct trace_span *open[64];
    int depth = 0;
    for (int i = 0; i < n; i++) {
        if (i && spans[i].tid != spans[i - 1].tid)
            depth = 0;
        while (depth && open[depth - 1]->end <= spans[i].begin)
            depth--;
        CHECKF(!depth || spans[i].end <= open[depth - 1]->end, "row %d: \"%s\" overlaps \"%s\"",
               spans[i].tid, spans[i].name, depth ? open[depth - 1]->name : "");
        CHECK(depth < 64);
        if (depth < 64)
            open[depth++] = &spans[i];
    }
}

/* How many spans come before the row's moment, or begin then. */
static inline int trace_count_until(const struct trace_span *spans, int n, int tid, int64_t at)
{
    int low = 0, high = n;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const struct trace_span *s = &spans[middle];
        if (s->tid < tid || (s->tid == tid && s->begin <= at))
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Whether a span of the row holds the moment; begins: whether one begins then. */
static inline bool trace_is_held(const struct trace_span *spans, int n, const struct trace_arrow *a,
                                 bool begins)
{
    for (int i = trace_count_until(spans, n, a->tid, a->at); i-- > 0 && spans[i].tid == a->tid;) {
        if (begins)
            return spans[i].begin == a->at;
        if (spans[i].end >= a->at)
            return true;
    }
    return false;
}

/* By number, the begin before the end. */
static inline int trace_arrow_order(const void *a, const void *b)
{
    const struct trace_arrow *x = a, *y = b;
    return x->id != y->id ? (x->id > y->id) - (x->id < y->id) : x->is_end - y->is_end;
}

static inline void trace_check_arrows(const struct trace_arrow *arrows, int n,
                                      const struct trace_span *spans, int n_spans)
{
    CHECKF(n % 2 == 0, "%d ends of arrows", n);
    for (int i = 0; i + 1 < n; i += 2) {
        const struct trace_arrow *from = &arrows[i], *to = &arrows[i + 1];
        CHECKF(from->id == to->id && !from->is_end && to->is_end, "arrow %d", from->id);
        CHECKF(i == 0 || arrows[i - 1].id != from->id, "two arrows %d", from->id);
        CHECKF(to->at >= from->at, "arrow %d leads back in time", from->id);
        CHECKF(trace_is_held(spans, n_spans, from, false), "arrow %d: no begin", from->id);
        CHECKF(trace_is_held(spans, n_spans, to, true), "arrow %d: no end", to->id);
    }
}

static inline void trace_check_events(const cJSON *events, struct trace_seen *seen)
{
    static char named[4096];
    const cJSON *event;
    int n = 0, n_arrows = 0, most = cJSON_GetArraySize(events);
    struct trace_span *spans = calloc((size_t)most + 1, sizeof *spans);
    struct trace_arrow *arrows = calloc((size_t)most + 1, sizeof *arrows);
    memset(named, 0, sizeof named);
    cJSON_ArrayForEach(event, events)
    {
        const char *ph = trace_word(event, "ph"), *cat = trace_word(event, "cat");
        int tid = trace_int(event, "tid");
        if (*ph == 'M' && !strcmp(trace_word(event, "name"), "thread_name")) {
            named[tid & 4095] = 1;
            seen->rows++;
        }
        CHECKF(*ph && strchr("MXsf", *ph), "an event \"%s\"", ph);
        if (*ph == 's' || *ph == 'f')
            arrows[n_arrows++] = (struct trace_arrow){trace_int(event, "id"), tid,
                                                      trace_ns(event, "ts"), *ph == 'f'};
        if (*ph != 'X')
            continue;
        int64_t begin = trace_ns(event, "ts");
        spans[n++] = (struct trace_span){tid, begin, begin + trace_ns(event, "dur"),
                                         trace_word(event, "name")};
        CHECKF(named[tid & 4095], "row %d has no name", tid);
        seen->idle += !strcmp(cat, "idle");
        seen->micros += !strcmp(cat, "micro");
        seen->marks += !strcmp(cat, "step");
    }
    seen->spans += n;
    qsort(spans, (size_t)n, sizeof *spans, trace_order);
    trace_check_nesting(spans, n);
    qsort(arrows, (size_t)n_arrows, sizeof *arrows, trace_arrow_order);
    trace_check_arrows(arrows, n_arrows, spans, n);
    seen->arrows += n_arrows / 2;
    free(arrows);
    free(spans);
}

#define TRACE_MAX_BYTES ((size_t)1 << 28)
static inline struct trace_seen trace_check(const char *path)
{
    struct trace_seen seen = {0};
    /* Our own file, which may have more values than zinf_json_read_file takes of a stranger's. */
    FILE *file = fopen(path, "r");
    char *text = malloc(TRACE_MAX_BYTES);
    size_t bytes = file && text ? fread(text, 1, TRACE_MAX_BYTES, file) : 0;
    cJSON *json = cJSON_ParseWithLength(text, bytes);
    CHECKF(json != NULL, "%s: %zu bytes are not JSON", path, bytes);
    free(text);
    if (file)
        fclose(file);
    const cJSON *events = cJSON_GetObjectItemCaseSensitive(json, "traceEvents");
    CHECK(cJSON_IsArray(events));
    if (cJSON_IsArray(events))
        trace_check_events(events, &seen);
    cJSON_Delete(json);
    return seen;
}

#endif

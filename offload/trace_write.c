/*
 * trace_write: writes records in Chrome's trace format. Spans in one row must not overlap, since
 * viewers cannot draw that: an overlapping operation goes into the first free row of its lane.
 * Which micro-batch DEVICE works on, why a lane stood still, and the arrows are derived from the
 * records.
 */
#include "offload/trace_private.h"

#include <stdlib.h>

#define MAX_ROWS 32    /* of one lane */
#define LEAST_GAP 1000 /* ns; shorter gaps are not real */

/* Numbers of rows in the file, which are also their order on the screen. */
enum { TID_STEPS = 1, TID_MICROS = 2, TID_LANES = 16 };

struct out {
    FILE *file;
    uint32_t seat;
    bool several;                       /* there are several devices, which get names and numbers */
    const struct trace_record *records; /* sorted by lane and begin */
    uint64_t n, zero_ns, n_arrows;
    uint32_t first_run;
    const struct trace_record **by_number; /* [n], sorted by run and number */
    uint8_t n_rows[TRACE_KINDS];
};

/* ---- order ---- */

static int compare(uint64_t a, uint64_t b)
{
    return (a > b) - (a < b);
}

/* A span that lies within another comes behind it. */
static int by_place(const void *a, const void *b)
{
    const struct trace_record *x = a, *y = b;
    int kinds = (int)x->kind - (int)y->kind, begin = compare(x->begin_ns, y->begin_ns);
    return kinds ? kinds : begin ? begin : compare(y->end_ns, x->end_ns);
}

static int compare_number(const struct trace_record *x, const struct trace_record *y)
{
    int kinds = (x->kind == TRACE_STEPS) - (y->kind == TRACE_STEPS);
    int run = compare(x->run, y->run);
    return kinds ? kinds : run ? run : compare(x->number, y->number);
}

static int by_number(const void *a, const void *b)
{
    return compare_number(*(const struct trace_record *const *)a,
                          *(const struct trace_record *const *)b);
}

/* The operation that r waited for last; NULL: none, or it was dropped from the ring. */
static const struct trace_record *cause_of(const struct out *o, const struct trace_record *r)
{
    struct trace_record wanted = {.run = r->run, .number = r->cause, .kind = r->kind};
    const struct trace_record *key = &wanted, **found = NULL;
    if (r->cause != ZINF_TRACE_NO_CAUSE)
        found = bsearch(&key, o->by_number, o->n, sizeof *o->by_number, by_number);
    return found ? *found : NULL;
}

/* Distributes the records of each lane over rows without overlap. */
static void spread(struct trace_record *records, uint64_t n, uint8_t n_rows[TRACE_KINDS])
{
    uint64_t ends[MAX_ROWS] = {0};
    for (uint64_t i = 0; i < n; i++) {
        struct trace_record *r = &records[i];
        if (i && r->kind != records[i - 1].kind)
            memset(ends, 0, sizeof ends);
        if (r->kind == TRACE_STEPS)
            continue;
        while (r->row + 1 < MAX_ROWS && ends[r->row] > r->begin_ns)
            r->row++;
        ends[r->row] = r->end_ns;
        n_rows[r->kind] = r->row >= n_rows[r->kind] ? r->row + 1 : n_rows[r->kind];
    }
}

/* ---- events ---- */

static int pid(const struct out *o)
{
    return (int)o->seat + 1;
}

static int tid_of(const struct trace_record *r)
{
    return r->kind == TRACE_STEPS ? TID_STEPS : TID_LANES + MAX_ROWS * r->kind + r->row;
}

static void put_time(const struct out *o, const char *key, uint64_t ns)
{
    fprintf(o->file, ",\"%s\":%llu.%03u", key, (unsigned long long)(ns / 1000),
            (unsigned)(ns % 1000));
}

/* Writes the beginning of a span up to its times. */
static void begin_span(const struct out *o, int tid, const char *name, uint64_t begin_ns,
                       uint64_t end_ns)
{
    fprintf(o->file, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"name\":\"%s\"", pid(o), tid, name);
    put_time(o, "ts", begin_ns - o->zero_ns);
    put_time(o, "dur", end_ns - begin_ns);
}

static void put_row(const struct out *o, int tid, const char *name, int number)
{
    fprintf(o->file,
            ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":"
            "\"%s",
            pid(o), tid, name);
    if (number > 1)
        fprintf(o->file, " %d", number);
    fprintf(o->file,
            "\"}},\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_sort_index\","
            "\"args\":{\"sort_index\":%d}}",
            pid(o), tid, tid);
}

static void put_rows(const struct out *o)
{
    fprintf(o->file, "%s{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"",
            o->seat ? ",\n" : "", pid(o));
    if (o->several)
        fprintf(o->file, "seat %u\"}}", o->seat);
    else
        fputs("zinf\"}}", o->file);
    put_row(o, TID_STEPS, "steps", 1);
    if (o->n_rows[ZINF_LANE_DEVICE])
        put_row(o, TID_MICROS, "micro-batches", 1);
    for (int lane = 0; lane < ZINF_LANES; lane++)
        for (int row = 0; row < o->n_rows[lane]; row++)
            put_row(o, TID_LANES + MAX_ROWS * lane + row, zinf_lane_name((enum zinf_lane)lane),
                    row + 1);
}

static void put_record(const struct out *o, const struct trace_record *r)
{
    begin_span(o, tid_of(r), r->name, r->begin_ns, r->end_ns);
    if (r->kind == TRACE_STEPS)
        fputs(",\"cat\":\"step\"}", o->file);
    else
        fprintf(o->file, ",\"cat\":\"op\",\"args\":{\"bytes\":%llu,\"micro\":%d}}",
                (unsigned long long)r->bytes, r->micro);
}

/* Writes an arrow from the operation that r waited for last to r. */
static void put_arrow(struct out *o, const struct trace_record *r)
{
    const struct trace_record *cause = cause_of(o, r);
    if (!cause || cause->kind == r->kind || cause->end_ns > r->begin_ns)
        return;
    uint64_t from = cause->end_ns > cause->begin_ns ? cause->end_ns - 1 : cause->end_ns;
    o->n_arrows++;
    for (int end = 0; end < 2; end++) {
        fprintf(o->file,
                ",\n{\"ph\":\"%c\",\"id\":%llu,\"pid\":%d,\"tid\":%d,\"name\":\"waits for\","
                "\"cat\":\"wait\"%s",
                end ? 'f' : 's', (unsigned long long)o->n_arrows, pid(o), tid_of(end ? r : cause),
                end ? ",\"bp\":\"e\"" : "");
        put_time(o, "ts", (end ? r->begin_ns : from) - o->zero_ns);
        fputc('}', o->file);
    }
}

/* ---- what is found from the records ---- */

static void put_idle(const struct out *o, int lane, const char *name, uint64_t begin_ns,
                     uint64_t end_ns)
{
    if (end_ns < begin_ns + LEAST_GAP)
        return;
    begin_span(o, TID_LANES + MAX_ROWS * lane, name, begin_ns, end_ns);
    fputs(",\"cat\":\"idle\",\"cname\":\"grey\"}", o->file);
}

/* Writes the gaps before r, in which its lane stood still: until what r waited for had ended, then
 * until r began. */
static void put_gap(const struct out *o, const struct trace_record *r, uint64_t since)
{
    const struct trace_record *cause = cause_of(o, r);
    char name[80];
    if (cause && cause->end_ns > since && cause->end_ns <= r->begin_ns) {
        snprintf(name, sizeof name, "waits for %s", cause->name);
        put_idle(o, r->kind, name, since, cause->end_ns);
        since = cause->end_ns;
    }
    put_idle(o, r->kind, "is about to start", since, r->begin_ns);
}

/* Writes the gaps of a lane within the run of a program. */
static void put_gaps(const struct out *o, const struct trace_record *const *programs)
{
    uint64_t busy_until = 0;
    for (uint64_t i = 0; i < o->n && o->records[i].kind != TRACE_STEPS; i++) {
        const struct trace_record *r = &o->records[i], *program = programs[r->run - o->first_run];
        bool first = !i || r->kind != r[-1].kind || r->run != r[-1].run;
        bool last = i + 1 == o->n || r->kind != r[1].kind || r->run != r[1].run;
        if (!program)
            continue;
        busy_until = first ? program->begin_ns : busy_until;
        put_gap(o, r, busy_until);
        busy_until = r->end_ns > busy_until ? r->end_ns : busy_until;
        if (last)
            put_idle(o, r->kind, "has nothing left to do", busy_until, program->end_ns);
    }
}

/* Joins consecutive operations of DEVICE with the same micro-batch into a span. */
static void put_micros(const struct out *o)
{
    const struct trace_record *begin = NULL, *last = NULL;
    for (uint64_t i = 0; i <= o->n; i++) {
        const struct trace_record *r = i < o->n ? &o->records[i] : NULL;
        if (r && (r->kind != ZINF_LANE_DEVICE || r->micro < 0))
            continue;
        if (begin && (!r || r->run != begin->run || r->micro != begin->micro)) {
            char name[32];
            snprintf(name, sizeof name, "micro-batch %d", begin->micro);
            begin_span(o, TID_MICROS, name, begin->begin_ns, last->end_ns);
            fputs(",\"cat\":\"micro\"}", o->file);
            begin = NULL;
        }
        begin = begin ? begin : r;
        last = r;
    }
}

/* The record of each run of a program; NULL: it was dropped from the ring. */
static const struct trace_record **programs_of(struct out *o)
{
    uint32_t least = UINT32_MAX, most = 0;
    for (uint64_t i = 0; i < o->n; i++) {
        least = o->records[i].run < least ? o->records[i].run : least;
        most = o->records[i].run > most ? o->records[i].run : most;
    }
    const struct trace_record **programs =
        calloc(o->n ? (uint64_t)(most - least) + 1 : 1, sizeof *programs);
    for (uint64_t i = 0; programs && i < o->n; i++)
        if (o->records[i].is_program)
            programs[o->records[i].run - least] = &o->records[i];
    o->first_run = least;
    return programs;
}

/* Writes one device's records behind those of the previous one; arrows are numbered over all. */
static int write_part(struct out *o, const struct trace_part *part)
{
    o->records = part->records;
    o->n = part->n;
    memset(o->n_rows, 0, sizeof o->n_rows);
    qsort(part->records, part->n, sizeof *part->records, by_place);
    spread(part->records, part->n, o->n_rows);
    const struct trace_record **programs = programs_of(o);
    o->by_number = malloc((part->n + 1) * sizeof *o->by_number);
    int code = o->by_number && programs ? 0 : -ENOMEM;
    for (uint64_t i = 0; !code && i < part->n; i++)
        o->by_number[i] = &part->records[i];
    if (!code) {
        qsort(o->by_number, part->n, sizeof *o->by_number, by_number);
        put_rows(o);
    }
    for (uint64_t i = 0; !code && i < part->n; i++) {
        put_record(o, &part->records[i]);
        if (part->records[i].kind != TRACE_STEPS)
            put_arrow(o, &part->records[i]);
    }
    if (!code) {
        put_micros(o);
        put_gaps(o, programs);
    }
    free(programs);
    free(o->by_number);
    return code;
}

static uint64_t first_begin(const struct trace_part *parts, uint32_t n_parts)
{
    uint64_t first = UINT64_MAX;
    for (uint32_t p = 0; p < n_parts; p++)
        for (uint64_t i = 0; i < parts[p].n; i++)
            if (parts[p].records[i].begin_ns < first)
                first = parts[p].records[i].begin_ns;
    return first == UINT64_MAX ? 0 : first;
}

int trace_write(FILE *file, const struct trace_part *parts, uint32_t n_parts)
{
    struct out o = {.file = file, .several = n_parts > 1, .zero_ns = first_begin(parts, n_parts)};
    int code = 0;
    fputs("{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n", file);
    for (o.seat = 0; !code && o.seat < n_parts; o.seat++)
        code = write_part(&o, &parts[o.seat]);
    fputs("\n]}\n", file);
    return code ? code : ferror(file) ? -EIO : 0;
}

/*
 * flow_rows: rows into the groups of a flow. Of a stream of text the ids of the rows at hand are in
 * memory, and a group takes as many as its windows have; of samples a group's rows go to a file,
 * which the store of samples opens as any other.
 */
#include "text/samples/flow_private.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define MOST_GROUP_BYTES ((uint64_t)256 << 20) /* of the rows of a group of samples */

/* Where the ids of a row begin among all that were made since the flow began. */
struct row_begin {
    uint64_t at;
    struct zinf_flow_mark mark;
};

struct flow_maker {
    struct zinf_flow_options options;
    atomic_bool quits; /* by flow_maker_quit */
    bool done;         /* there are no more rows */
    uint64_t pass;     /* over the rows, and rows of it that were taken */
    uint64_t row;
    uint64_t fruitful; /* the last pass that had a token, or a sample */
    uint64_t sum;      /* of all that was made into groups */

    /* Of a stream. */
    struct text_stream stream;
    struct text_sink sink;
    int32_t *ids; /* [capacity]: those from number `base` on, of which `used` are used up */
    size_t n, capacity, used;
    uint64_t base;
    uint64_t leave_out;       /* of the ids to come: a resumed training has used them */
    struct row_begin *begins; /* [n_begins]: rows that ids[used] and what follows it are of */
    size_t n_begins, begins_capacity;
};

/* ---- rows ---- */

/* The rows once more from the first on, where they can be had. */
static int begin_pass(struct flow_maker *m)
{
    const struct zinf_row_feed *rows = &m->options.rows;
    int code = m->row && rows->skip ? rows->skip(rows->arg, 0) : -ESPIPE;
    if (code == -ESPIPE) {
        m->done = true;
        return 0;
    }
    m->pass++;
    m->row = 0;
    return code;
}

/* 1 and the next row, or -errno. 0: a pass has ended, and another one has begun unless it is done.
 */
static int next_row(struct flow_maker *m, const char **row)
{
    const struct zinf_row_feed *rows = &m->options.rows;
    if (atomic_load(&m->quits))
        return zinf_fail(-ECANCELED, "no more rows are asked for");
    int more = m->done ? 0 : rows->next(rows->arg, row);
    m->row += more > 0;
    return more || m->done ? more : begin_pass(m);
}

/* Whether a whole pass over the rows had nothing to train on: so would all that follow. */
static int check_fruitful(const struct flow_maker *m)
{
    return m->pass < m->fruitful + 2
               ? 0
               : zinf_fail(-EINVAL,
                           "%s: no row has anything to train on: correct them, or name the column "
                           "that has their text (--text-column)",
                           m->options.name);
}

/* n rows are left out; who cannot skip them reads them. */
static int skip_rows(struct flow_maker *m, uint64_t n)
{
    const struct zinf_row_feed *rows = &m->options.rows;
    const char *row;
    uint64_t taken = 0;
    int more = 1;
    while (!rows->skip && taken < n && (more = rows->next(rows->arg, &row)) > 0)
        taken++;
    const int code = rows->skip ? rows->skip(rows->arg, n) : zinf_rows_skipped(more, taken, n);
    return code ? zinf_fail_in(code,
                               "%s do not go on behind row %llu, which an earlier run has used",
                               m->options.name, (unsigned long long)n)
                : 0;
}

static struct zinf_flow_mark mark_here(const struct flow_maker *m)
{
    return (struct zinf_flow_mark){
        .pass = m->pass, .row = m->row, .joined = m->stream.after_document};
}

int flow_maker_go_to(struct flow_maker *m, const struct zinf_flow_mark *mark)
{
    int code = mark->row ? skip_rows(m, mark->row) : 0;
    m->pass = m->fruitful = mark->pass;
    m->row = mark->row;
    m->leave_out = mark->token;
    m->stream.after_document = mark->joined;
    return code;
}

/* ---- a stream of text ---- */

static int put_ids(void *arg, const int32_t *ids, size_t n)
{
    struct flow_maker *m = arg;
    const size_t out = m->leave_out < n ? (size_t)m->leave_out : n;
    m->fruitful = n ? m->pass : m->fruitful;
    m->leave_out -= out;
    n -= out;
    if (m->used > m->n / 2) { /* moved once for each time that they double, at most */
        memmove(m->ids, m->ids + m->used, (m->n - m->used) * sizeof *m->ids);
        m->base += m->used;
        m->n -= m->used;
        m->used = 0;
    }
    if (n > m->capacity - m->n) {
        const size_t capacity = 2 * m->capacity + n;
        int32_t *grown = realloc(m->ids, capacity * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for %zu tokens", capacity);
        m->ids = grown;
        m->capacity = capacity;
    }
    if (n)
        memcpy(m->ids + m->n, ids + out, n * sizeof *ids);
    m->n += n;
    return 0;
}

/* Rows without a token leave no place of their own. */
static int note_begin(struct flow_maker *m, struct zinf_flow_mark mark)
{
    const struct row_begin begin = {.at = m->base + m->n, .mark = mark};
    if (m->n_begins && m->begins[m->n_begins - 1].at == begin.at) {
        m->begins[m->n_begins - 1] = begin;
        return 0;
    }
    if (m->n_begins == m->begins_capacity) {
        const size_t capacity = 2 * m->begins_capacity + 16;
        struct row_begin *grown = realloc(m->begins, capacity * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a table of rows");
        m->begins = grown;
        m->begins_capacity = capacity;
    }
    m->begins[m->n_begins++] = begin;
    return 0;
}

/* Of a row that a resumed training has used a part of, so many ids are not there. */
static int take_text(struct flow_maker *m)
{
    const struct zinf_dataset_options *o = &m->options.stream;
    struct zinf_flow_mark mark;
    const char *row;
    int code;
    do {
        mark = mark_here(m);
        mark.token = m->leave_out;
        code = next_row(m, &row);
        if (!code)
            code = check_fruitful(m);
    } while (!code && !m->done);
    if (code <= 0)
        return code;
    code = note_begin(m, mark);
    if (!code)
        code = text_document_read(row, m->options.name, o->text_column, (long)m->row, &m->sink);
    if (!code && m->leave_out)
        code = zinf_fail(-EINVAL,
                         "%s: row %llu is another one than the run that is resumed has seen: it "
                         "has fewer tokens",
                         m->options.name, (unsigned long long)m->row);
    return code ? code : 1;
}

static struct zinf_flow_mark mark_of_next(struct flow_maker *m)
{
    const uint64_t at = m->base + m->used;
    size_t i = m->n_begins;
    while (i && m->begins[i - 1].at > at)
        i--;
    struct zinf_flow_mark mark = m->begins[i - 1].mark;
    mark.token += at - m->begins[i - 1].at;
    m->n_begins -= i - 1; /* rows before are used up */
    memmove(m->begins, m->begins + i - 1, m->n_begins * sizeof *m->begins);
    return mark;
}

/* Groups are shuffled each in its own order; the first as a data set of files is. */
static uint64_t seed_of(uint64_t seed, const struct zinf_flow_mark *begin)
{
    const uint64_t place[] = {begin->pass, begin->row, begin->token};
    return begin->pass || begin->row || begin->token
               ? XXH3_64bits_withSeed(place, sizeof place, seed)
               : seed;
}

static uint64_t group_of(const struct flow_maker *m)
{
    return m->options.group ? m->options.group : m->options.step ? m->options.step : 1;
}

/* A group ends with the pass over the rows that it began in: a buffer that is larger than the data
 * would be filled with them again and again. */
static int next_texts(struct flow_maker *m, struct zinf_dataset **out, struct zinf_flow_mark *end)
{
    struct zinf_dataset_options options = m->options.stream;
    const uint64_t length = options.seq_len, wanted = group_of(m) * length + 1;
    const uint64_t pass = m->n_begins ? mark_of_next(m).pass : m->pass;
    int more = 1;
    while (m->n - m->used < wanted && !(m->pass > pass && m->n - m->used > length) &&
           (more = take_text(m)) > 0)
        continue;
    if (more < 0)
        return more;
    const uint64_t there = m->n - m->used, n = there ? (there - 1) / length : 0;
    const uint64_t windows = n < group_of(m) ? n : group_of(m);
    if (!windows)
        return 0;
    const struct zinf_flow_mark begin = mark_of_next(m);
    options.files = &m->options.name;
    options.seed = seed_of(options.seed, &begin);
    int code = text_dataset_of_ids(out, &options, m->ids + m->used, windows * length + 1);
    m->sum = XXH3_64bits_withSeed(m->ids + m->used, windows * length * sizeof *m->ids, m->sum);
    m->used += windows * length;
    if (!code)
        *end = mark_of_next(m);
    return code;
}

/* ---- samples ---- */

/* A group's rows, which are of one pass, to the file; 1, or 0: there are none. */
static int write_rows(struct flow_maker *m)
{
    const char *path = m->options.path, *row;
    FILE *file = fopen(path, "we");
    uint64_t bytes = 0, n = 0;
    int more = 1;
    if (!file)
        return zinf_fail(-errno, "cannot write rows to %s: %s", path, strerror(errno));
    while (more >= 0 && n < group_of(m) && bytes < MOST_GROUP_BYTES) {
        more = next_row(m, &row);
        if (more < 0 || (!more && (n || m->done)))
            break;
        const int put = more ? fprintf(file, "%s\n", row) : 0;
        m->sum = put > 0 ? XXH3_64bits_withSeed(row, (size_t)put - 1, m->sum) : m->sum;
        if (put < 0)
            more = zinf_fail(-EIO, "cannot write rows to %s: %s", path, strerror(errno));
        bytes += put > 0 ? (uint64_t)put : 0;
        n += more > 0;
    }
    if (fclose(file) && more >= 0)
        more = zinf_fail(-EIO, "cannot write rows to %s: %s", path, strerror(errno));
    return more < 0 ? more : n > 0;
}

static int next_samples(struct flow_maker *m, struct zinf_dataset **out, struct zinf_flow_mark *end)
{
    int code = 0;
    while (!*out) { /* of a group's rows none may be left */
        const struct zinf_flow_mark begin = mark_here(m);
        code = write_rows(m);
        if (code <= 0)
            return code;
        code = m->options.open(m->options.arg, m->options.path, begin.row,
                               seed_of(m->options.stream.seed, &begin), out);
        m->fruitful = *out ? m->pass : m->fruitful;
        if (code || (code = check_fruitful(m)))
            return code;
    }
    *end = mark_here(m);
    return 0;
}

/* ---- the maker ---- */

int flow_maker_create(struct flow_maker **out, const struct zinf_flow_options *options)
{
    struct flow_maker *m = calloc(1, sizeof *m);
    if (!m)
        return zinf_fail(-ENOMEM, "no memory for a data set");
    *out = m;
    m->options = *options;
    if (options->open)
        return 0;
    m->sink = (struct text_sink){
        .feed = text_stream_feed, .handle = &m->stream, .skips = options->stream.skip_bad_rows};
    int code = text_stream_init(&m->stream, options->stream.tokenizer);
    m->stream.put = put_ids;
    m->stream.arg = m;
    return code;
}

void flow_maker_destroy(struct flow_maker *m)
{
    if (!m)
        return;
    if (m->options.open)
        unlink(m->options.path);
    else
        text_stream_fini(&m->stream);
    if (m->sink.n_left)
        zinf_log(ZINF_LOG_WARN, "%llu rows left out: %s", (unsigned long long)m->sink.n_left,
                 m->sink.first_left);
    free(m->ids);
    free(m->begins);
    free(m);
}

void flow_maker_quit(struct flow_maker *m)
{
    atomic_store(&m->quits, true);
    if (m->options.rows.quit)
        m->options.rows.quit(m->options.rows.arg);
}

uint64_t flow_maker_sum(const struct flow_maker *m)
{
    return m->sum;
}

int flow_maker_next(struct flow_maker *m, struct zinf_dataset **out, struct zinf_flow_mark *end)
{
    *out = NULL;
    return m->options.open ? next_samples(m, out, end) : next_texts(m, out, end);
}

/*
 * host_scan: what the scan's host file and its per-ISA loops share: chunks, and arrays in which
 * one pass leaves results for the next. A pass goes through the chunks of one head of a sample in
 * order, or works on chunks in any order.
 */
#ifndef ZINF_HOST_SCAN_H
#define ZINF_HOST_SCAN_H

#include "kernels/kernels.h"

struct host_scan {
    const struct zinf_scan *args;
    struct zinf_scan_arrays with;
};

/* Rows [first, first + count), all of one document. */
struct host_chunk {
    int64_t first, count;
    int64_t open; /* the first of them that are of the piece in front: `first` is -open */
    /* carried: there is a state before the chunk; continues: the state behind it is needed */
    bool carried, continues;
};

/* The slot of the row with which a chunk with a state before it begins, or, with ends, of the row
 * behind the last. */
static inline float *host_scan_slot(const struct host_scan *s, float *states, int64_t head,
                                    int64_t row)
{
    const struct zinf_scan *a = s->args;
    const int64_t slots = zinf_scan_slots(a);
    const int64_t sample = a->ends ? 0 : row / a->seq, in_sample = row - sample * a->seq;
    const int64_t slot = !a->ends              ? in_sample / ZINF_SCAN_CHUNK - 1
                         : in_sample == a->seq ? slots - 1
                                               : in_sample / ZINF_SCAN_CHUNK;
    const int64_t at = (sample * a->value_heads + head) * slots + slot;
    return states + (uint64_t)at * zinf_scan_state_floats(a);
}

/* Whether a row and the one before it belong to the same document. */
static inline bool host_scan_joined(const struct zinf_scan *a, int64_t row)
{
    if (row % a->seq == 0 && !(a->ends && a->ends->rows))
        return false;
    return !a->segments || a->segments[row] == a->segments[row - 1];
}

/* Whether the state behind the rows of a sample up to `end` is needed, by more rows or by the
 * sequence's next piece. */
static inline bool host_scan_continues(const struct zinf_scan *a, int64_t end)
{
    const struct zinf_ends *ends = a->ends;
    if (end % a->seq)
        return host_scan_joined(a, end);
    if (!ends || !a->backward)
        return ends && ends->behind;
    return ends->d_behind && (!a->segments || a->segments[end] == a->segments[end - 1]);
}

static inline bool host_scan_padding(const struct zinf_scan *a, int64_t row)
{
    return a->segments && a->segments[row] < 1;
}

/* The chunk with `open` rows of the piece in front, and that row, which is no padding, behind them;
 * without such rows it must be the first of a chunk. */
static inline struct host_chunk host_scan_chunk_on(const struct zinf_scan *a, int64_t row,
                                                   int64_t open)
{
    const int64_t end = (row / a->seq + 1) * a->seq;
    struct host_chunk c = {.first = row - open, .count = open + 1, .open = open};
    while (c.count < ZINF_SCAN_CHUNK && c.first + c.count < end &&
           host_scan_joined(a, c.first + c.count))
        c.count++;
    c.continues = host_scan_continues(a, c.first + c.count);
    return c;
}

/* The chunk that begins at a row. */
static inline struct host_chunk host_scan_chunk(const struct zinf_scan *a, int64_t row)
{
    struct host_chunk c = host_scan_chunk_on(a, row, 0);
    c.carried = host_scan_joined(a, row);
    return c;
}

/* Computes the places of all rows in one pass. */
static inline void host_scan_place(const struct host_scan *s)
{
    const struct zinf_scan *a = s->args;
    for (int64_t row = 0; row < a->batch * a->seq; row++) {
        const bool first = row % a->seq == 0 || !host_scan_joined(a, row);
        uint8_t *place = &s->with.places[row];
        *place = first ? 0 : (uint8_t)((place[-1] + 1) % ZINF_SCAN_CHUNK);
    }
}

/* Floats of working memory of a thread, for any pass. */
static inline uint64_t host_scan_scratch_floats(const struct zinf_scan *args)
{
    const uint64_t key = (uint64_t)zinf_scan_cols(args->key_dim);
    const uint64_t value = (uint64_t)zinf_scan_cols(args->value_dim), n = ZINF_SCAN_CHUNK;
    const uint64_t most = key > value ? key : value;
    /* Rows of keys: q, k, k across, dq, dk; of values: v, w, w across, dy, dw; products; states;
     * pairs of rows; numbers of a row */
    return n * (5 * key + 5 * value + most) + 2 * key * value + 4 * n * n + 9 * n;
}

#endif

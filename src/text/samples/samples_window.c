/*
 * samples_window: what one position of a training gives. Samples stand one behind the other from
 * the window's beginning, each a document of its own: numbered, with positions from 0, and the
 * first id of none is a target, so that no loss crosses from one into the next.
 */
#include "text/samples/samples_store.h"

#include <stdlib.h>

uint64_t zinf_samples_n_windows(const struct zinf_samples *samples)
{
    return samples->packing.n_windows
               ? samples->packing.n_windows
               : samples->facts.n_samples / samples->stored * samples->together;
}

static void fill(int32_t *array, uint32_t n, int32_t value)
{
    for (uint32_t i = 0; array && i < n; i++)
        array[i] = value;
}

/* Without samples. */
static void clear(const struct zinf_samples *s, const struct zinf_window *w)
{
    const struct zinf_samples_options *o = &s->options;
    fill(w->ids, w->length, o->pad);
    fill(w->targets, w->length, -1);
    fill(w->positions, w->length, 0);
    fill(w->segments, w->length, 0);
    fill(w->token_types, w->length, 0);
    fill(w->source_ids, w->source_length, o->source_pad);
    fill(w->source_segments, w->source_length, 0);
    fill(w->label, 1, -1);
}

/* As it is asked for, at most whole. */
static struct zinf_window lengths_of(const struct zinf_samples *s, const struct zinf_window *asked)
{
    const struct zinf_samples_options *o = &s->options;
    struct zinf_window w = *asked;
    if (!w.length || w.length > o->seq_len)
        w.length = o->seq_len;
    if (!w.source_length || w.source_length > o->source_len)
        w.source_length = o->source_len;
    return w;
}

/* A document of n positions from `at` on. The id after the last, where there is one, is a target
 * alone. */
static void put_ids(const struct zinf_window *w, const struct zinf_sample *sample, uint32_t at,
                    uint32_t n, int32_t number)
{
    for (uint32_t i = 0; i < n; i++) {
        bool counts = i + 1 < sample->ids.count && sample->marks[i + 1] & ZINF_MARK_COUNTS;
        if (w->ids)
            w->ids[at + i] = sample->ids.ids[i];
        if (w->targets)
            w->targets[at + i] = counts ? sample->ids.ids[i + 1] : -1;
        if (w->positions)
            w->positions[at + i] = (int32_t)i;
        if (w->segments)
            w->segments[at + i] = number;
        if (w->token_types)
            w->token_types[at + i] = (sample->marks[i] & ZINF_MARK_SECOND) != 0;
    }
}

/* What counts of a document may be masked, and is the target there; by its number in the store, so
 * that neither packing nor the order of windows changes what. */
static void mask(const struct zinf_samples *s, const struct zinf_window *w, uint64_t position,
                 uint64_t index, uint32_t at, uint32_t n)
{
    const struct zinf_masking *m = &s->options.masking;
    const struct zinf_masked masked = {
        .epoch = position / zinf_samples_n_windows(s),
        .sample = index,
        .n = n,
        .marks = s->sample.marks,
        .ids = w->ids ? w->ids + at : NULL,
        .targets = w->targets ? w->targets + at : NULL,
    };
    if (m->probability > 0 && w->ids && w->targets)
        zinf_masking_apply(m, &masked);
}

static void put_source(const struct zinf_window *w, const struct zinf_tokens *source, uint32_t at,
                       int32_t number)
{
    for (uint32_t i = 0; i < source->count && at + i < w->source_length; i++) {
        if (w->source_ids)
            w->source_ids[at + i] = source->ids[i];
        if (w->source_segments)
            w->source_segments[at + i] = number;
    }
}

/* Which row stands at a place among all epochs' rows, under the lock. */
static uint64_t row_at(struct zinf_samples *s, uint64_t place)
{
    const struct zinf_samples_options *o = &s->options;
    return o->group ? samples_grouped_row(s, place)
                    : text_window_index(place, zinf_samples_n_windows(s) / s->together, o->shuffle,
                                        o->seed);
}

/* Samples of the window at a position: of a row, or packed. Under the lock. */
struct members {
    uint64_t first, end; /* into the packing's order, or samples themselves */
};

static struct members members_at(struct zinf_samples *s, uint64_t position)
{
    const struct sample_packing *packing = &s->packing;
    const uint32_t n = s->stored;
    const uint64_t row = row_at(s, position / s->together);
    const uint64_t index = n == s->together ? position % n + n * row : row;
    return packing->n_windows ? (struct members){packing->firsts[index], packing->firsts[index + 1]}
                              : (struct members){index, index + 1};
}

/* The place of the row whose answer is turned to that at `place`: of its group, which ends with the
 * epoch. */
static uint64_t rotated_place(const struct zinf_samples *s, uint64_t place)
{
    const uint64_t n_rows = s->facts.n_samples, size = s->options.rotate ? s->options.rotate : 1;
    const uint64_t epoch = place - place % n_rows, group = place - place % size;
    const uint64_t first = group > epoch ? group : epoch;
    const uint64_t end = group + size < epoch + n_rows ? group + size : epoch + n_rows;
    return place > first ? place - 1 : end - 1;
}

static uint64_t member(const struct zinf_samples *s, uint64_t i)
{
    return s->packing.n_windows ? s->packing.order[i] : i;
}

/* Whose answer is turned to the prompt of row `index`, which stands at that position. */
static uint64_t rotated_row(struct zinf_samples *s, uint64_t position, uint64_t index)
{
    return s->options.rotates_files ? rotated_place(s, index)
                                    : row_at(s, rotated_place(s, position / s->together));
}

static bool is_rotated(const struct zinf_samples *s, uint64_t position)
{
    return s->stored < s->together && position % s->together;
}

/* What was wanted of a pair: how many of its targets come before those that count, which all
 * become some. */
static void count_all(struct zinf_sample *sample)
{
    size_t first = 1;
    while (first < sample->ids.count && !(sample->marks[first] & ZINF_MARK_COUNTS))
        first++;
    for (size_t i = 0; i < sample->ids.count; i++)
        sample->marks[i] |= ZINF_MARK_COUNTS;
    sample->label = (int32_t)first - 1;
}

/* Under the lock. */
static int read_member(struct zinf_samples *s, uint64_t position, uint64_t index)
{
    int code = is_rotated(s, position)
                   ? samples_read_rotated(s, index, rotated_row(s, position, index), &s->sample)
                   : samples_read(s, index, &s->sample);
    if (!code && s->options.likelihood && s->together == 2 && position % 2 == 0)
        count_all(&s->sample);
    return code;
}

/* Under the lock. */
static uint64_t number_at(struct zinf_samples *s, uint64_t position)
{
    const uint64_t n = s->together;
    return row_at(s, position / n) * n + position % n;
}

uint64_t zinf_samples_number(struct zinf_samples *s, uint64_t position)
{
    pthread_mutex_lock(&s->lock);
    const uint64_t number = number_at(s, position);
    pthread_mutex_unlock(&s->lock);
    return number;
}

void zinf_samples_set_references(struct zinf_samples *s, float *references)
{
    free(s->references);
    s->references = references;
}

bool zinf_samples_has_references(const struct zinf_samples *s)
{
    return s->references != NULL;
}

/* Under the lock. */
static int fill_window(struct zinf_samples *s, uint64_t position, const struct zinf_window *asked)
{
    const struct members members = members_at(s, position);
    const struct zinf_window window = lengths_of(s, asked);
    uint32_t at = 0, source_at = 0;
    clear(s, &window);
    if (window.reference)
        *window.reference = s->references ? s->references[number_at(s, position)] : 0.0f;
    for (uint64_t i = members.first; i < members.end; i++) {
        int code = read_member(s, position, member(s, i));
        if (code)
            return code;
        int32_t number = (int32_t)(i - members.first) + 1;
        uint32_t left = window.length - at, count = (uint32_t)s->sample.ids.count;
        count = count < left ? count : left;
        put_ids(&window, &s->sample, at, count, number);
        mask(s, &window, position, member(s, i), at, count);
        put_source(&window, &s->sample.source, source_at, number);
        if (window.label)
            *window.label = s->sample.label;
        at += count;
        source_at += (uint32_t)s->sample.source.count;
    }
    return 0;
}

int zinf_samples_window(struct zinf_samples *s, uint64_t position, const struct zinf_window *window)
{
    pthread_mutex_lock(&s->lock);
    int code = fill_window(s, position, window);
    pthread_mutex_unlock(&s->lock);
    return code;
}

/* ---- rows that hold something ---- */

/* Of a prompt with another's answer, whose length is that of what counts of it. */
static struct zinf_window_rows rotated_rows(const struct zinf_samples *s, uint64_t prompt,
                                            uint64_t answer)
{
    const struct sample_entry *a = &s->entries[prompt], *b = &s->entries[answer];
    const struct sample_place *asked = &s->caches[a->file].places[a->place];
    uint32_t n = asked->n_ids - asked->n_counted + s->caches[b->file].places[b->place].n_counted;
    n = n < s->options.max_ids ? n : s->options.max_ids;
    return (struct zinf_window_rows){n < s->options.seq_len ? n : s->options.seq_len, 0};
}

struct zinf_window_rows zinf_samples_window_rows(struct zinf_samples *s, uint64_t position)
{
    struct zinf_window_rows sum = {0, 0};
    pthread_mutex_lock(&s->lock);
    const struct members members = members_at(s, position);
    const bool rotated = is_rotated(s, position);
    const uint64_t other = rotated ? rotated_row(s, position, members.first) : 0;
    pthread_mutex_unlock(&s->lock);
    for (uint64_t i = members.first; i < members.end; i++) {
        const uint64_t index = member(s, i);
        const struct zinf_window_rows rows =
            rotated ? rotated_rows(s, index, other) : samples_rows(s, index);
        sum.ids += rows.ids;
        sum.source += rows.source;
    }
    return sum;
}

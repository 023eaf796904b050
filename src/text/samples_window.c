/*
 * samples_window: what one position of a training gives. Samples stand one behind the other from
 * the window's beginning, each a document of its own: numbered, with positions from 0, and the
 * first id of none is a target, so that no loss crosses from one into the next.
 */
#include "text/samples_store.h"

uint64_t zinf_samples_n_windows(const struct zinf_samples *samples)
{
    return samples->packing.n_windows ? samples->packing.n_windows : samples->facts.n_samples;
}

static void fill(int32_t *array, uint32_t n, int32_t value)
{
    for (uint32_t i = 0; array && i < n; i++)
        array[i] = value;
}

/* A window without samples. */
static void clear(const struct zinf_samples *s, const struct zinf_window *w)
{
    const struct zinf_samples_options *o = &s->options;
    fill(w->ids, o->seq_len, o->pad);
    fill(w->targets, o->seq_len, -1);
    fill(w->positions, o->seq_len, 0);
    fill(w->segments, o->seq_len, 0);
    fill(w->token_types, o->seq_len, 0);
    fill(w->source_ids, o->source_len, o->source_pad);
    fill(w->source_segments, o->source_len, 0);
    fill(w->label, 1, -1);
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

static void put_source(const struct zinf_window *w, const struct zinf_tokens *source, uint32_t at,
                       int32_t number)
{
    for (uint32_t i = 0; i < source->count; i++) {
        if (w->source_ids)
            w->source_ids[at + i] = source->ids[i];
        if (w->source_segments)
            w->source_segments[at + i] = number;
    }
}

/* Under the lock. */
static int fill_window(struct zinf_samples *s, uint64_t position, const struct zinf_window *window)
{
    const struct sample_packing *packing = &s->packing;
    const uint32_t n = s->together;
    uint64_t index = n * text_window_index(position / n, zinf_samples_n_windows(s) / n,
                                           s->options.shuffle, s->options.seed) +
                     position % n;
    uint64_t first = packing->n_windows ? packing->firsts[index] : index;
    uint64_t end = packing->n_windows ? packing->firsts[index + 1] : index + 1;
    uint32_t at = 0, source_at = 0;
    clear(s, window);
    for (uint64_t i = first; i < end; i++) {
        int code = samples_read(s, packing->n_windows ? packing->order[i] : i, &s->sample);
        if (code)
            return code;
        int32_t number = (int32_t)(i - first) + 1;
        uint32_t left = s->options.seq_len - at, count = (uint32_t)s->sample.ids.count;
        count = count < left ? count : left;
        put_ids(window, &s->sample, at, count, number);
        put_source(window, &s->sample.source, source_at, number);
        if (window->label)
            *window->label = s->sample.label;
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

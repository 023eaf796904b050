/*
 * samples_read: one sample out of a store's caches, cut to the sequence, and how many rows it
 * takes.
 */
#include "text/samples/samples_store.h"

#include <stdlib.h>

/* ---- cutting ---- */

/* front: ids that stay where the beginning is cut off. */
static struct sample_cut cut_to(uint32_t n, uint32_t most, enum zinf_cut side, bool keeps_last,
                                uint32_t front)
{
    if (n <= most)
        return (struct sample_cut){.n = n};
    if (side == ZINF_CUT_BEGINNING)
        return (struct sample_cut){
            .first = n - most, .n = most, .n_front = front < most ? front : most};
    return (struct sample_cut){.n = most, .moves_last = keeps_last};
}

struct sample_cut samples_cut(const struct zinf_samples *samples, uint32_t n, bool keeps_last)
{
    const struct zinf_samples_options *o = &samples->options;
    return cut_to(n, o->max_ids, o->cut, keeps_last, o->front);
}

struct sample_cut samples_cut_source(const struct zinf_samples *samples, uint32_t n,
                                     bool keeps_last)
{
    const struct zinf_samples_options *o = &samples->options;
    return cut_to(n, o->source_len, o->cut, keeps_last, o->source_front);
}

static int read_numbers(struct zinf_samples *s, const struct text_token_cache *cache,
                        uint64_t first, size_t n)
{
    struct zinf_tokens *numbers = &s->numbers;
    if (n > numbers->capacity) {
        int32_t *grown = realloc(numbers->ids, n * sizeof *grown);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a sample of %zu tokens", n);
        numbers->ids = grown;
        numbers->capacity = n;
    }
    numbers->count = n;
    return n ? text_token_cache_read(cache, first, n, numbers->ids) : 0;
}

int samples_read_cut(struct zinf_samples *s, const struct text_token_cache *cache, uint64_t first,
                     uint32_t n, struct sample_cut cut)
{
    int32_t last = 0;
    int code = cut.moves_last ? text_token_cache_read(cache, first + n - 1, 1, &last) : 0;
    if (!code)
        code = read_numbers(s, cache, first + cut.first, cut.n);
    if (!code && cut.moves_last && cut.n)
        s->numbers.ids[cut.n - 1] = last;
    if (!code && cut.n_front)
        code = text_token_cache_read(cache, first, cut.n_front, s->numbers.ids);
    return code;
}

/* ---- rows that hold something ---- */

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

struct zinf_window_rows samples_rows(const struct zinf_samples *s, uint64_t index)
{
    const struct sample_entry *e = &s->entries[index];
    const struct sample_place *place = &s->caches[e->file].places[e->place];
    return (struct zinf_window_rows){
        least(samples_cut(s, place->n_ids, false).n, s->options.seq_len),
        samples_cut_source(s, place->n_source, false).n};
}

/* ---- reading ---- */

/* The numbers at hand as ids. */
static int take_source(const struct zinf_samples *s, struct zinf_sample *out)
{
    int code = 0;
    for (size_t i = 0; !code && i < s->numbers.count; i++)
        code = text_tokens_push(&out->source, s->numbers.ids[i]);
    return code;
}

static int take_ids(const struct zinf_samples *s, struct zinf_sample *out)
{
    int code = 0;
    for (size_t i = 0; !code && i < s->numbers.count; i++) {
        uint32_t number = (uint32_t)s->numbers.ids[i];
        int32_t id = (int32_t)(number & SAMPLE_ID_MASK);
        code = zinf_sample_add_ids(out, &id, 1, number >> SAMPLE_MARK_SHIFT);
    }
    return code;
}

int samples_read(struct zinf_samples *s, uint64_t index, struct zinf_sample *out)
{
    if (index >= s->facts.n_samples)
        return zinf_fail(-EINVAL, "sample %llu of %llu", (unsigned long long)index,
                         (unsigned long long)s->facts.n_samples);
    const struct sample_entry *e = &s->entries[index];
    const struct samples_cache *cache = &s->caches[e->file];
    const struct sample_place *place = &cache->places[e->place];
    struct sample_cut cut = samples_cut(s, place->n_ids, place->keeps_last);
    struct sample_cut source = samples_cut_source(s, place->n_source, place->source_keeps_last);
    zinf_sample_clear(out);
    int code = samples_read_cut(s, &cache->tokens, e->first, place->n_source, source);
    if (!code)
        code = take_source(s, out);
    if (!code)
        code = samples_read_cut(s, &cache->tokens, e->first + place->n_source, place->n_ids, cut);
    if (!code)
        code = take_ids(s, out);
    out->label = place->label;
    out->keeps_last = place->keeps_last;
    out->source_keeps_last = place->source_keeps_last;
    out->cut = cut.n < place->n_ids || source.n < place->n_source;
    return code;
}

/*
 * samples_read: one sample out of a store's caches, cut to the sequence, and how many rows it
 * takes.
 */
#include "text/samples/samples_store.h"

#include <stdlib.h>

/* ---- cutting ---- */

/* front: ids that stay where the beginning is cut off. */
static struct sample_cut cut_to(uint32_t n, uint32_t most, enum zinf_cut side, uint32_t keeps,
                                uint32_t front)
{
    if (n <= most)
        return (struct sample_cut){.n = n};
    if (keeps == SAMPLE_KEEPS_FRAME)
        return (struct sample_cut){.n = most, .by_texts = true};
    if (side == ZINF_CUT_BEGINNING)
        return (struct sample_cut){
            .first = n - most, .n = most, .n_front = front < most ? front : most};
    return (struct sample_cut){.n = most, .moves_last = keeps == SAMPLE_KEEPS_LAST};
}

struct sample_cut samples_cut(const struct zinf_samples *samples, uint32_t n, uint32_t keeps)
{
    const struct zinf_samples_options *o = &samples->options;
    return cut_to(n, o->max_ids, o->cut, keeps, o->front);
}

struct sample_cut samples_cut_source(const struct zinf_samples *samples, uint32_t n, uint32_t keeps)
{
    const struct zinf_samples_options *o = &samples->options;
    return cut_to(n, o->source_len, o->cut, keeps, o->source_front);
}

/* How much of two texts stays, as transformers' longest_first has it: the longer one is cut down to
 * the other, and what is still too much goes off both. */
static void share_room(const uint32_t n[2], uint32_t room, uint32_t left[2])
{
    const int longer = n[0] > n[1] ? 0 : 1, shorter = 1 - longer;
    uint32_t most = n[shorter] > room                ? n[shorter]
                    : room - n[shorter] > n[shorter] ? room - n[shorter]
                                                     : n[shorter];
    left[shorter] = n[shorter];
    left[longer] = most < n[longer] ? most : n[longer];
    if (left[0] + left[1] > room) {
        left[shorter] = room / 2;
        left[longer] = room / 2 + room % 2;
    }
}

static int text_of(int32_t number)
{
    const uint32_t marks = (uint32_t)number >> SAMPLE_MARK_SHIFT;
    return marks & ZINF_MARK_FRAME ? -1 : (marks & ZINF_MARK_OTHER) != 0;
}

/* Of the numbers at hand `most` stay: the whole frame, unless there is no room for it. */
static void cut_texts(struct zinf_samples *s, uint32_t most)
{
    struct zinf_tokens *numbers = &s->numbers;
    uint32_t n[2] = {0, 0}, left[2], seen[2] = {0, 0};
    size_t kept = 0;
    for (size_t i = 0; i < numbers->count; i++)
        if (text_of(numbers->ids[i]) >= 0)
            n[text_of(numbers->ids[i])]++;
    const uint32_t frame = (uint32_t)numbers->count - n[0] - n[1];
    share_room(n, most > frame ? most - frame : 0, left);
    for (size_t i = 0; i < numbers->count && kept < most; i++) {
        const int text = text_of(numbers->ids[i]);
        bool stays = text < 0;
        if (text >= 0 && s->options.cut == ZINF_CUT_BEGINNING)
            stays = seen[text] >= n[text] - left[text];
        else if (text >= 0)
            stays = seen[text] < left[text];
        if (text >= 0)
            seen[text]++;
        if (stays)
            numbers->ids[kept++] = numbers->ids[i];
    }
    numbers->count = kept;
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
    if (cut.by_texts) {
        int code = read_numbers(s, cache, first, n);
        if (!code)
            cut_texts(s, cut.n);
        return code;
    }
    int code = cut.moves_last ? text_token_cache_read(cache, first + n - 1, 1, &last) : 0;
    if (!code)
        code = read_numbers(s, cache, first + cut.first, cut.n);
    if (!code && cut.moves_last && cut.n)
        s->numbers.ids[cut.n - 1] = last;
    if (!code && cut.n_front)
        code = text_token_cache_read(cache, first, cut.n_front, s->numbers.ids);
    return code;
}

/* ---- reading ---- */

/* The numbers at hand as ids. */
static int take_source(const struct zinf_samples *s, struct zinf_sample *out)
{
    int code = 0;
    for (size_t i = 0; !code && i < s->numbers.count; i++)
        code = text_tokens_push(&out->source, s->numbers.ids[i] & (int32_t)SAMPLE_ID_MASK);
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

static int check_index(const struct zinf_samples *s, uint64_t index)
{
    return index < s->facts.n_samples
               ? 0
               : zinf_fail(-EINVAL, "sample %llu of %llu", (unsigned long long)index,
                           (unsigned long long)s->facts.n_samples);
}

/* Its ids as a cut leaves them. */
static int read_ids(struct zinf_samples *s, uint64_t index, bool whole, struct zinf_sample *out)
{
    const struct sample_entry *e = &s->entries[index];
    const struct samples_cache *cache = &s->caches[e->file];
    const struct sample_place *place = &cache->places[e->place];
    struct sample_cut cut =
        whole ? (struct sample_cut){.n = place->n_ids} : samples_cut(s, place->n_ids, place->keeps);
    int code = samples_read_cut(s, &cache->tokens, e->first + place->n_source, place->n_ids, cut);
    if (!code)
        code = take_ids(s, out);
    out->label = place->label;
    out->cut |= cut.n < place->n_ids;
    return code;
}

int samples_read(struct zinf_samples *s, uint64_t index, struct zinf_sample *out)
{
    int code = check_index(s, index);
    if (code)
        return code;
    const struct sample_entry *e = &s->entries[index];
    const struct samples_cache *cache = &s->caches[e->file];
    const struct sample_place *place = &cache->places[e->place];
    struct sample_cut source = samples_cut_source(s, place->n_source, place->source_keeps);
    zinf_sample_clear(out);
    out->keeps_last = place->keeps == SAMPLE_KEEPS_LAST;
    out->keeps_frame = place->keeps == SAMPLE_KEEPS_FRAME;
    out->source_keeps_last = place->source_keeps == SAMPLE_KEEPS_LAST;
    out->cut = source.n < place->n_source;
    code = samples_read_cut(s, &cache->tokens, e->first, place->n_source, source);
    if (!code)
        code = take_source(s, out);
    return code ? code : read_ids(s, index, false, out);
}

/* Ids before the answer: at least one, since the first is nobody's target. */
static size_t prompt_of(const struct zinf_sample *sample)
{
    size_t n = 1;
    while (n < sample->ids.count && !(sample->marks[n] & ZINF_MARK_COUNTS))
        n++;
    return n < sample->ids.count ? n : sample->ids.count;
}

static int add_from(struct zinf_sample *out, const struct zinf_sample *from, size_t first, size_t n)
{
    return zinf_sample_add_ids(out, from->ids.ids + first, n, ZINF_MARK_COUNTS);
}

/* Both are whole, and then cut as one. */
int samples_read_rotated(struct zinf_samples *s, uint64_t prompt, uint64_t answer,
                         struct zinf_sample *out)
{
    struct zinf_sample *other = &s->other;
    const size_t most = s->options.max_ids;
    int code = check_index(s, prompt);
    if (!code)
        code = check_index(s, answer);
    zinf_sample_clear(out);
    zinf_sample_clear(other);
    if (!code)
        code = read_ids(s, prompt, true, out);
    if (!code)
        code = read_ids(s, answer, true, other);
    if (code)
        return code;
    const size_t asked = prompt_of(other);
    out->ids.count = prompt_of(out);
    code = add_from(out, other, asked, other->ids.count - asked);
    out->label = -1;
    if (!code && out->ids.count > most) {
        const size_t first = s->options.cut == ZINF_CUT_BEGINNING ? out->ids.count - most : 0;
        memmove(out->ids.ids, out->ids.ids + first, most * sizeof *out->ids.ids);
        memmove(out->marks, out->marks + first, most);
        out->ids.count = most;
    }
    return code;
}

static uint32_t least(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

struct zinf_window_rows samples_rows(const struct zinf_samples *s, uint64_t index)
{
    const struct sample_entry *e = &s->entries[index];
    const struct sample_place *place = &s->caches[e->file].places[e->place];
    return (struct zinf_window_rows){least(samples_cut(s, place->n_ids, 0).n, s->options.seq_len),
                                     samples_cut_source(s, place->n_source, 0).n};
}

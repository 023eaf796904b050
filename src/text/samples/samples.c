/*
 * samples: the store. Files become caches of whole samples; here they are cut to the sequence, what
 * is too short or has nothing to learn is dropped, and everything that is dropped or cut is
 * counted, since what a model never saw nobody misses until it is asked.
 */
#include "text/samples/samples_store.h"

#include <stdlib.h>
#include <xxhash.h>

/* ---- opening ---- */

/* Tokens that count after the cut: of what is whole it is known. */
static int count_left(struct zinf_samples *s, const struct text_token_cache *cache, uint64_t first,
                      const struct sample_place *place, uint32_t *n)
{
    struct sample_cut cut = samples_cut(s, place->n_ids, place->keeps);
    *n = place->n_counted;
    if (cut.n == place->n_ids)
        return 0;
    int code = samples_read_cut(s, cache, first + place->n_source, place->n_ids, cut);
    *n = code ? 0 : samples_count(s->numbers.ids, cut.n);
    return code;
}

static void note_longest(struct zinf_samples_facts *f, const struct sample_place *place)
{
    if (place->n_ids > f->longest)
        f->longest = place->n_ids;
    if (place->n_source > f->longest_source)
        f->longest_source = place->n_source;
}

static int keep(struct zinf_samples *s, struct sample_entry entry, const struct sample_place *place,
                uint32_t n_counted)
{
    struct zinf_samples_facts *f = &s->facts;
    uint32_t left = samples_cut(s, place->n_ids, place->keeps).n;
    uint32_t source = samples_cut_source(s, place->n_source, place->source_keeps).n;
    if (f->n_samples == s->capacity) {
        uint64_t capacity = s->capacity ? 2 * s->capacity : 1024;
        void *grown = realloc(s->entries, capacity * sizeof *s->entries);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a table of %llu samples",
                             (unsigned long long)capacity);
        s->entries = grown;
        s->capacity = capacity;
    }
    s->entries[f->n_samples++] = entry;
    f->n_cut += left < place->n_ids;
    f->n_ids_cut += place->n_ids - left;
    f->n_sources_cut += source < place->n_source;
    f->n_source_ids_cut += place->n_source - source;
    f->n_ids += left;
    f->n_source_ids += source;
    f->n_counted += n_counted;
    return 0;
}

/* A row's samples, of which the numbers begin at `first`. */
struct sifted {
    uint32_t n_counted[ZINF_SAMPLES_OF_ROW];
    bool is_long, is_short, is_unlabelled;
};

static int look_at(struct zinf_samples *s, const struct samples_cache *cache, uint64_t first,
                   uint64_t number, struct sifted *out)
{
    const struct zinf_samples_options *o = &s->options;
    int code = 0;
    *out = (struct sifted){{0}, false, false, false};
    for (uint32_t i = 0; !code && i < s->stored; i++) {
        const struct sample_place *place = &cache->places[number + i];
        note_longest(&s->facts, place);
        out->is_long |= place->n_ids > o->max_ids || place->n_source > o->source_len;
        out->is_short |= samples_cut(s, place->n_ids, 0).n < o->min_ids;
        code = count_left(s, &cache->tokens, first, place, &out->n_counted[i]);
        out->is_unlabelled |= !out->n_counted[i] && !o->unlabelled;
        first += (uint64_t)place->n_ids + place->n_source;
    }
    return code;
}

static int sift_file(struct zinf_samples *s, uint32_t file)
{
    const struct samples_cache *cache = &s->caches[file];
    struct zinf_samples_facts *f = &s->facts;
    const uint32_t n = s->stored;
    uint64_t first = 0;
    int code = 0;
    for (uint64_t i = 0; !code && i + n <= cache->rows.n_samples; i += n) {
        struct sifted row;
        code = look_at(s, cache, first, i, &row);
        const bool too_long = row.is_long && s->options.cut == ZINF_CUT_DROP;
        const bool kept = !too_long && !row.is_short && !row.is_unlabelled;
        f->n_long += too_long ? n : 0;
        f->n_short += !too_long && row.is_short ? n : 0;
        f->n_unlabelled += !too_long && !row.is_short && row.is_unlabelled ? n : 0;
        for (uint32_t k = 0; !code && k < n; k++) {
            const struct sample_place *place = &cache->places[i + k];
            if (kept)
                code = keep(s, (struct sample_entry){first, file, (uint32_t)(i + k)}, place,
                            row.n_counted[k]);
            first += (uint64_t)place->n_ids + place->n_source;
        }
    }
    return code;
}

static int open_file(struct zinf_samples *s, const struct zinf_samples_options *options, int i)
{
    struct samples_cache *cache = &s->caches[i];
    int code = samples_cache_open(cache, options->files[i], options);
    if (code)
        return code;
    s->n_caches++;
    if (cache->rows.n_samples > UINT32_MAX)
        return zinf_fail(-EFBIG, "%s has %llu samples: give it in several files", options->files[i],
                         (unsigned long long)cache->rows.n_samples);
    if (cache->tokens.largest >= s->options.vocab)
        return zinf_fail(-ERANGE,
                         "%s: token id %u, but the model's vocabulary has only %u: give the "
                         "tokenizer that belongs to the model",
                         options->files[i], cache->tokens.largest, s->options.vocab);
    if (!s->facts.n_bad && cache->rows.n_bad)
        memcpy(s->facts.first_bad, cache->rows.first_bad, sizeof s->facts.first_bad);
    s->facts.n_rows += cache->rows.n_rows;
    s->facts.n_bad += cache->rows.n_bad;
    return sift_file(s, (uint32_t)i);
}

static int check_options(const struct zinf_samples_options *o)
{
    if (o->n_files < 1)
        return zinf_fail(-EINVAL, "no data file was given");
    if (!o->seq_len || o->seq_len >= INT32_MAX)
        return zinf_fail(-EINVAL, "a sequence length of %u is not usable", o->seq_len);
    if (!o->vocab)
        return zinf_fail(-EINVAL, "a vocabulary of 0 has no token");
    if (o->packed && o->unlabelled)
        return zinf_fail(-EINVAL, "samples that have labels are not packed: a window has one");
    if (o->packed && (o->recipe->n_samples > 1 || o->recipe->rotates))
        return zinf_fail(
            -EINVAL,
            "the samples of a row are not packed: each has its own window; leave --pack out");
    if (o->packed && o->group)
        return zinf_fail(-EINVAL, "packed windows are not grouped by length: all have one");
    if (o->group && !o->shuffle)
        return zinf_fail(-EINVAL, "samples in the order of the files are not grouped by length");
    if (o->front > ZINF_SAMPLES_MOST_FRONT || o->source_front > ZINF_SAMPLES_MOST_FRONT)
        return zinf_fail(-EINVAL, "%u and %u ids in front: at most %d can stay", o->front,
                         o->source_front, ZINF_SAMPLES_MOST_FRONT);
    if (o->max_ids > o->seq_len + 1)
        return zinf_fail(-EINVAL, "samples of %u tokens do not go into a sequence of %u",
                         o->max_ids, o->seq_len);
    return 0;
}

/* Why nothing is left, by what took the most. */
static int fail_empty(const struct zinf_samples *s, const char *file)
{
    const struct zinf_samples_facts *f = &s->facts;
    if (f->n_unlabelled >= f->n_bad + f->n_short + f->n_long)
        return zinf_fail(-EINVAL,
                         "%s: no sample has a token to learn within %u tokens: a longer --seq-len, "
                         "or another --format",
                         file, s->options.max_ids);
    return zinf_fail(
        -EINVAL,
        "%s: no sample is left: of %llu rows %llu are broken, %llu too short, %llu too "
        "long, %llu have nothing to learn%s%s",
        file, (unsigned long long)f->n_rows, (unsigned long long)f->n_bad,
        (unsigned long long)f->n_short, (unsigned long long)f->n_long,
        (unsigned long long)f->n_unlabelled, *f->first_bad ? "; " : "", f->first_bad);
}

static int pack(struct zinf_samples *s)
{
    const struct zinf_samples_options *o = &s->options;
    uint64_t n = s->facts.n_samples;
    uint32_t *lengths = n < UINT32_MAX ? malloc(2 * n * sizeof *lengths) : NULL;
    if (!lengths)
        return zinf_fail(-ENOMEM, "no memory to pack %llu samples", (unsigned long long)n);
    for (uint64_t i = 0; i < n; i++) {
        const struct zinf_window_rows rows = samples_rows(s, i);
        lengths[i] = rows.ids;
        lengths[n + i] = rows.source;
    }
    int code = samples_pack(&s->packing, lengths, o->source_len ? lengths + n : NULL, n, o->seq_len,
                            o->source_len);
    free(lengths);
    return code;
}

int zinf_samples_open(struct zinf_samples **out, const struct zinf_samples_options *options)
{
    int code = check_options(options);
    struct zinf_samples *s = code ? NULL : calloc(1, sizeof *s);
    if (!s)
        return code ? code : zinf_fail(-ENOMEM, "no memory for a store of samples");
    pthread_mutex_init(&s->lock, NULL);
    s->options = *options;
    s->options.max_ids = options->max_ids ? options->max_ids : options->seq_len;
    s->options.min_ids = options->min_ids ? options->min_ids : 1;
    s->sample = (struct zinf_sample)ZINF_SAMPLE_EMPTY;
    s->other = (struct zinf_sample)ZINF_SAMPLE_EMPTY;
    s->stored = options->recipe->n_samples > 1 ? options->recipe->n_samples : 1;
    s->together = options->recipe->rotates ? 2 : s->stored;
    s->caches = calloc((size_t)options->n_files, sizeof *s->caches);
    if (!s->caches)
        code = zinf_fail(-ENOMEM, "no memory for a store of %d files", options->n_files);
    for (int i = 0; !code && i < options->n_files; i++)
        code = open_file(s, options, i);
    const bool any = s->facts.n_samples > 0;
    if (!code && !any && !options->may_be_empty)
        code = fail_empty(s, options->files[0]);
    if (!code && options->packed && any)
        code = pack(s);
    if (!code && options->group && any)
        code = samples_begin_groups(s);
    if (code) {
        zinf_samples_close(s);
        return code;
    }
    *out = s;
    return 0;
}

void zinf_samples_close(struct zinf_samples *s)
{
    if (!s)
        return;
    for (int i = 0; i < s->n_caches; i++)
        samples_cache_close(&s->caches[i]);
    free(s->caches);
    free(s->references);
    free(s->entries);
    samples_packing_free(&s->packing);
    samples_end_groups(s);
    zinf_tokens_free(&s->numbers);
    zinf_sample_free(&s->sample);
    zinf_sample_free(&s->other);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

/* ---- asking ---- */

uint32_t samples_n_files(const struct zinf_samples *samples)
{
    return (uint32_t)samples->n_caches;
}

const struct text_token_cache *samples_file(const struct zinf_samples *samples, uint32_t index)
{
    return &samples->caches[index].tokens;
}

uint64_t samples_order(const struct zinf_samples *samples)
{
    const struct zinf_samples_options *o = &samples->options;
    const uint64_t numbers[] = {
        o->seq_len,       o->source_len,          o->max_ids, o->min_ids, o->cut,   o->front,
        o->source_front,  o->unlabelled,          o->packed,  o->shuffle, o->group, o->seed,
        (uint64_t)o->pad, (uint64_t)o->source_pad};
    return zinf_masking_key(&o->masking, XXH3_64bits(numbers, sizeof numbers));
}

const struct zinf_samples_facts *zinf_samples_facts(const struct zinf_samples *samples)
{
    return &samples->facts;
}

void zinf_samples_length(const struct zinf_samples *s, uint64_t index, uint32_t *whole,
                         uint32_t *kept)
{
    const struct sample_entry *e = &s->entries[index];
    *whole = s->caches[e->file].places[e->place].n_ids;
    *kept = samples_cut(s, *whole, 0).n;
}

/* counts: [most + 1], of n lengths. */
static uint32_t reach(const uint64_t *counts, uint32_t most, uint64_t n, double percent)
{
    const double wanted = percent / 100 * (double)n;
    uint64_t seen = counts[0];
    uint32_t length = 0;
    while (length < most && (double)seen < wanted)
        seen += counts[++length];
    return length;
}

int zinf_samples_percentile(const struct zinf_samples *s, double percent, uint32_t *ids,
                            uint32_t *source)
{
    const struct zinf_samples_facts *f = &s->facts;
    const size_t n_ids = (size_t)f->longest + 1, n_source = (size_t)f->longest_source + 1;
    uint64_t *counts = calloc(n_ids + n_source, sizeof *counts);
    if (!counts)
        return zinf_fail(-ENOMEM, "no memory to count the lengths of samples");
    for (uint64_t i = 0; i < f->n_samples; i++) {
        const struct sample_entry *e = &s->entries[i];
        const struct sample_place *place = &s->caches[e->file].places[e->place];
        counts[place->n_ids]++;
        counts[n_ids + place->n_source]++;
    }
    *ids = reach(counts, f->longest, f->n_samples, percent);
    *source = reach(counts + n_ids, f->longest_source, f->n_samples, percent);
    free(counts);
    return 0;
}

int32_t zinf_samples_label(const struct zinf_samples *s, uint64_t index)
{
    const struct sample_entry *e = &s->entries[index];
    return s->caches[e->file].places[e->place].label;
}

int zinf_samples_read(struct zinf_samples *s, uint64_t index, struct zinf_sample *out)
{
    pthread_mutex_lock(&s->lock);
    int code = samples_read(s, index, out);
    pthread_mutex_unlock(&s->lock);
    return code;
}

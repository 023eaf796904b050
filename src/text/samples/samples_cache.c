/*
 * samples_cache: rows into samples, once, and the table of where they are. Only that table, 28
 * bytes a sample, is ever in memory as a whole.
 */
#include "text/samples/samples_store.h"
#include "text/samples/token_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

#define RULES 2 /* changes whenever this file writes the same samples in another way */

struct maker {
    const struct zinf_samples_options *options;
    struct token_cache_writer *writer;
    const char *path;
    struct zinf_sample samples[ZINF_SAMPLES_OF_ROW];
    struct zinf_tokens numbers; /* a sample's, as they are kept */
    struct sample_place *places;
    uint64_t capacity;
    struct sample_rows rows;
};

static uint64_t key_of_samples(const void *arg, enum text_kind kind)
{
    const struct zinf_samples_options *o = ((const struct maker *)arg)->options;
    uint64_t parts[5] = {zinf_tokenizer_fingerprint(o->tokenizer), kind, o->recipe->key,
                         o->skip_bad_rows, RULES};
    return XXH3_64bits_withSeed(parts, sizeof parts, 0x5a4d504c53);
}

uint32_t samples_count(const int32_t *numbers, size_t n)
{
    uint32_t count = 0;
    for (size_t i = 1; i < n; i++)
        count += (uint32_t)numbers[i] >> SAMPLE_MARK_SHIFT & ZINF_MARK_COUNTS;
    return count;
}

/* ---- writing ---- */

static int append_place(struct maker *m, const struct zinf_sample *s)
{
    if (m->rows.n_samples == m->capacity) {
        uint64_t capacity = m->capacity ? 2 * m->capacity : 1024;
        void *grown = realloc(m->places, capacity * sizeof *m->places);
        if (!grown)
            return zinf_fail(-ENOMEM, "%s: no memory for a table of %llu samples", m->path,
                             (unsigned long long)capacity);
        m->places = grown;
        m->capacity = capacity;
    }
    m->places[m->rows.n_samples++] = (struct sample_place){
        .n_ids = (uint32_t)s->ids.count,
        .n_source = (uint32_t)s->source.count,
        .n_counted = samples_count(m->numbers.ids, m->numbers.count),
        .label = s->label,
        .keeps = s->keeps_frame  ? SAMPLE_KEEPS_FRAME
                 : s->keeps_last ? SAMPLE_KEEPS_LAST
                                 : SAMPLE_KEEPS_NOTHING,
        .source_keeps = s->source_head || s->source_tail ? SAMPLE_KEEPS_FRAME
                        : s->source_keeps_last           ? SAMPLE_KEEPS_LAST
                                                         : SAMPLE_KEEPS_NOTHING,
        .row = m->rows.n_rows < UINT32_MAX ? (uint32_t)m->rows.n_rows : UINT32_MAX,
    };
    return 0;
}

/* Ids that stay are marked; without any, the numbers are the ids. */
static int put_source(struct maker *m, const struct zinf_sample *s)
{
    const size_t n = s->source.count;
    int code = 0;
    m->numbers.count = 0;
    for (size_t i = 0; !code && i < n; i++) {
        const bool stays = i < s->source_head || i + s->source_tail >= n;
        code = text_tokens_push(
            &m->numbers, s->source.ids[i] | (stays ? ZINF_MARK_FRAME << SAMPLE_MARK_SHIFT : 0));
    }
    return code ? code : token_cache_put(m->writer, m->numbers.ids, n);
}

static int put_sample(struct maker *m, const struct zinf_sample *s)
{
    int code = 0;
    if (s->ids.count > INT32_MAX || s->source.count > INT32_MAX)
        return zinf_fail(-EFBIG, "a sample of %zu tokens", s->ids.count + s->source.count);
    m->writer->id_mask = SAMPLE_ID_MASK;
    code = put_source(m, s);
    m->numbers.count = 0;
    for (size_t i = 0; !code && i < s->ids.count; i++)
        code =
            s->ids.ids[i] < 0 || (uint32_t)s->ids.ids[i] > TEXT_MAX_ID
                ? zinf_fail(-ERANGE, "token id %d", s->ids.ids[i])
                : text_tokens_push(&m->numbers, s->ids.ids[i] | s->marks[i] << SAMPLE_MARK_SHIFT);
    if (!code)
        code = token_cache_put(m->writer, m->numbers.ids, m->numbers.count);
    return code ? code : append_place(m, s);
}

/* Of the row at hand, among all rows. */
static unsigned long long number_of(const struct maker *m)
{
    return m->options->first_row + m->rows.n_rows;
}

/* Puts the place of the row at hand in front of the message. */
static int fail_at_row(const struct maker *m, int code, long line)
{
    const char *rows = m->options->rows_of;
    return rows ? zinf_fail_in(code, "%s: row %llu", rows, number_of(m))
                : zinf_fail_in(code, "%s: row %llu (line %ld)", m->path, number_of(m), line);
}

/* The message says why, and of rows that are no JSON also where. */
static int is_bad(struct maker *m, bool is_json, long line)
{
    if (is_json)
        fail_at_row(m, -EINVAL, line);
    if (m->options->skip_bad_rows) {
        if (!m->rows.n_bad++)
            snprintf(m->rows.first_bad, sizeof m->rows.first_bad, "%s", zinf_error());
        return 0;
    }
    char why[768];
    snprintf(why, sizeof why, "%s", zinf_error());
    return zinf_fail(-EINVAL, "%s; --skip-bad-rows goes on without such rows", why);
}

static int take_row(void *handle, const cJSON *row, long line)
{
    struct maker *m = handle;
    const struct zinf_recipe *recipe = m->options->recipe;
    const uint32_t n = recipe->n_samples ? recipe->n_samples : 1;
    m->rows.n_rows++;
    for (uint32_t i = 0; i < n; i++)
        zinf_sample_clear(&m->samples[i]);
    int code = row ? recipe->take(recipe->arg, row, &m->samples[0]) : -EINVAL;
    for (uint32_t i = 1; !code && i < n; i++)
        code = recipe->take_other(recipe->arg, row, i, &m->samples[i]);
    if (code == -EINVAL)
        return is_bad(m, row, line);
    for (uint32_t i = 0; !code && i < n; i++)
        code = put_sample(m, &m->samples[i]);
    return code ? fail_at_row(m, code, line) : 0;
}

/* Numbers that are no ids. */
static int put_table(struct token_cache_writer *writer, const void *table, size_t bytes)
{
    writer->id_mask = 0;
    return token_cache_put(writer, table, bytes / sizeof(int32_t));
}

static int write_samples(void *arg, struct text_source *source, struct token_cache_writer *writer)
{
    struct maker *m = arg;
    struct text_sink sink = {.row = take_row, .lines = m->options->recipe->lines, .handle = m};
    m->writer = writer;
    m->path = text_source_path(source);
    int code = text_documents_read(source, NULL, 0, &sink);
    if (!code && !m->rows.n_rows)
        code = zinf_fail(-EINVAL, "%s has no rows", m->path);
    if (!code)
        code = put_table(writer, m->places, m->rows.n_samples * sizeof *m->places);
    return code ? code : put_table(writer, &m->rows, sizeof m->rows);
}

/* ---- reading ---- */

static int read_table(const struct text_token_cache *tokens, uint64_t *end, void *table,
                      uint64_t bytes)
{
    uint64_t n = bytes / sizeof(int32_t);
    if (n > *end)
        return zinf_fail(-EBADMSG, "the token cache %s is damaged: remove it", tokens->name);
    *end -= n;
    return text_token_cache_read(tokens, *end, n, table);
}

/* The tables stand at the end: the rows, and before them the places. */
static int read_tables(struct samples_cache *cache)
{
    const struct text_token_cache *tokens = &cache->tokens;
    uint64_t end = tokens->count, ids = 0;
    int code = read_table(tokens, &end, &cache->rows, sizeof cache->rows);
    uint64_t n = cache->rows.n_samples;
    if (!code && n > end)
        code = zinf_fail(-EBADMSG, "the token cache %s is damaged: remove it", tokens->name);
    if (code)
        return code;
    cache->places = calloc(n ? n : 1, sizeof *cache->places);
    if (!cache->places)
        return zinf_fail(-ENOMEM, "no memory for a table of %llu samples", (unsigned long long)n);
    code = read_table(tokens, &end, cache->places, n * sizeof *cache->places);
    for (uint64_t i = 0; !code && i < n; i++)
        ids += (uint64_t)cache->places[i].n_ids + cache->places[i].n_source;
    if (!code && ids != end)
        code = zinf_fail(-EBADMSG, "the token cache %s is damaged: remove it", tokens->name);
    return code;
}

int samples_cache_open(struct samples_cache *cache, const char *path,
                       const struct zinf_samples_options *options)
{
    struct maker maker = {.options = options};
    const struct token_cache_content content = {
        .key = key_of_samples, .write = write_samples, .arg = &maker, .id_bytes = 4};
    *cache = (struct samples_cache){0};
    int code = token_cache_open(&cache->tokens, path, options->cache_folder, &content);
    for (int i = 0; i < ZINF_SAMPLES_OF_ROW; i++)
        zinf_sample_free(&maker.samples[i]);
    zinf_tokens_free(&maker.numbers);
    free(maker.places);
    if (code)
        return code;
    code = read_tables(cache);
    if (code)
        samples_cache_close(cache);
    return code;
}

void samples_cache_close(struct samples_cache *cache)
{
    text_token_cache_close(&cache->tokens);
    free(cache->places);
    *cache = (struct samples_cache){0};
    cache->tokens.fd = -1;
}

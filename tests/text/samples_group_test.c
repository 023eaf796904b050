/*
 * samples grouped by length: the order that transformers makes of the same permutation, in each
 * epoch another one, at any place at any time; how many rows a window needs and windows that are
 * asked for so short; and how much padding a step has with and without.
 */
#include "text/samples/samples_store.h"
#include "tap.h"

#include <stdlib.h>
#include <unistd.h>

enum { N = 200, SEQ = 64, BATCH = 4 };
static char folder[] = "samples-group-test-XXXXXX";
static struct zinf_tokenizer *tokenizer;

/* ---- a recipe: "a" counts, "s" is a source; "b" a second answer ---- */

static int take_field(const cJSON *row, const char *key, struct zinf_sample *sample)
{
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(row, key);
    return zinf_sample_add_text(sample, tokenizer, field->valuestring, strlen(field->valuestring),
                                ZINF_MARK_COUNTS);
}

static int take(void *arg, const cJSON *row, struct zinf_sample *sample)
{
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(row, "s");
    (void)arg;
    int code = source ? zinf_tokenizer_encode(tokenizer, source->valuestring,
                                              strlen(source->valuestring), &sample->source)
                      : 0;
    return code ? code : take_field(row, "a", sample);
}

static int take_second(void *arg, const cJSON *row, uint32_t index, struct zinf_sample *sample)
{
    (void)index;
    (void)arg;
    return take_field(row, "b", sample);
}

static uint32_t length_at(int i)
{
    return (uint32_t)(2 + i * i * 7 % 53);
}

/* Rows of many lengths: the first four letters of "a" say which row it is. */
static struct zinf_samples *open_rows(const char *more, const struct zinf_recipe *recipe,
                                      struct zinf_samples_options *options)
{
    static char text[N * 400];
    size_t used = 0;
    char *path = zinf_path_join(folder, "rows.jsonl");
    const char *files[] = {path};
    struct zinf_samples *samples = NULL;
    for (int i = 0; i < N; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "{\"a\":\"%04d", i);
        for (uint32_t k = 4; k < length_at(i); k++)
            text[used++] = 'x';
        used += (size_t)snprintf(text + used, sizeof text - used, more, i % 9 + 1, "yyyyyyyyyy");
        text[used++] = '\n';
    }
    CHECKF(!zinf_file_write_atomic(path, text, used), "%s", zinf_error());
    options->files = files;
    options->n_files = 1;
    options->recipe = recipe;
    options->tokenizer = tokenizer;
    options->vocab = 257;
    options->seq_len = SEQ;
    options->seed = 5;
    CHECKF(!zinf_samples_open(&samples, options), "%s", zinf_error());
    free(path);
    return samples;
}

static const struct zinf_recipe plain = {.name = "a test's", .key = 1, .take = take};
static const struct zinf_recipe pairs = {
    .name = "a test's pairs", .key = 2, .take = take, .n_samples = 2, .take_other = take_second};

static int row_at(struct zinf_samples *samples, uint64_t position)
{
    int32_t ids[SEQ];
    struct zinf_window window = {.ids = ids};
    CHECKF(!zinf_samples_window(samples, position, &window), "%s", zinf_error());
    return (ids[0] - '0') * 1000 + (ids[1] - '0') * 100 + (ids[2] - '0') * 10 + ids[3] - '0';
}

/* ---- against transformers ---- */

/* get_length_grouped_indices (transformers 5.23) with lengths i * i * 7 % 23 + 1 and, in the place
 * of randperm, (i * times + first) % n. */
static void check_order(uint64_t n, uint64_t batch, uint32_t times, uint32_t first,
                        const uint32_t *wanted)
{
    uint64_t lengths[64];
    uint32_t order[64];
    struct sample_length room[64];
    CHECK(samples_group_piece(n, batch) <= 64);
    for (uint32_t i = 0; i < n; i++) {
        lengths[i] = (uint64_t)i * i * 7 % 23 + 1;
        order[i] = (i * times + first) % (uint32_t)n;
    }
    samples_group(order, n, batch, lengths, room);
    for (uint64_t i = 0; i < n; i++)
        CHECKF(order[i] == wanted[i], "%llu rows: place %llu has row %u and not %u",
               (unsigned long long)n, (unsigned long long)i, order[i], wanted[i]);
}

static void test_the_order_is_that_of_transformers(void)
{
    static const uint32_t of_37[] = {29, 30, 19, 5,  36, 33, 13, 22, 2,  7, 27, 4, 35,
                                     18, 10, 24, 1,  21, 16, 6,  12, 26, 3, 32, 9, 15,
                                     23, 17, 34, 11, 20, 14, 28, 31, 8,  0, 25};
    static const uint32_t of_10[] = {6, 4, 1, 0, 7, 3, 9, 2, 5, 8}; /* fewer than four steps */
    check_order(37, 3, 17, 5, of_37);
    check_order(10, 4, 3, 1, of_10);
    CHECK(samples_group_piece(100000, 8) == 400 && samples_group_piece(1, 8) == 8);
}

/* ---- a store's ---- */

static void test_epochs(void)
{
    struct zinf_samples_options options = {.shuffle = true, .group = BATCH};
    struct zinf_samples *samples = open_rows("\"}", &plain, &options);
    int order[3][N], seen[3][N] = {{0}}, same = 0;
    uint64_t rows = 0;
    for (int e = 0; e < 3; e++)
        for (int i = 0; i < N; i++)
            seen[e][order[e][i] = row_at(samples, (uint64_t)(N * e + i))]++;
    for (int i = 0; i < N; i++) {
        CHECK(seen[0][i] == 1 && seen[1][i] == 1 && seen[2][i] == 1);
        same += (order[0][i] == order[1][i]) + (order[0][i] == order[2][i]);
    }
    CHECK(same < N / 5);
    for (int i = N - 1; i >= 0; i -= 7) { /* any time: epochs that are not at hand, too */
        CHECK(row_at(samples, (uint64_t)(2 * N + i)) == order[2][i]);
        CHECK(row_at(samples, (uint64_t)i) == order[0][i]);
        CHECK(row_at(samples, (uint64_t)(N + i)) == order[1][i]);
    }
    for (int i = 0; i < N; i++)
        CHECK(length_at(order[0][0]) >= length_at(i)); /* the longest comes first */
    for (uint64_t first = 0; first < N; first += BATCH) {
        uint32_t most = 0;
        for (uint64_t i = 0; i < BATCH; i++) {
            uint32_t ids = zinf_samples_window_rows(samples, first + i).ids;
            most = ids > most ? ids : most;
        }
        rows += BATCH * most;
    }
    CHECKF(rows < zinf_samples_facts(samples)->n_ids * 11 / 10, "%llu rows of %llu tokens",
           (unsigned long long)rows, (unsigned long long)zinf_samples_facts(samples)->n_ids);
    zinf_samples_close(samples);
}

static void test_pairs_stay_together(void)
{
    struct zinf_samples_options options = {.shuffle = true, .group = BATCH};
    struct zinf_samples *samples = open_rows("\",\"b\":\"zz%.*s\"}", &pairs, &options);
    CHECK(zinf_samples_n_windows(samples) == 2 * N);
    int32_t ids[2][SEQ];
    for (uint64_t i = 0; i < 2 * N; i += 2) {
        struct zinf_window a = {.ids = ids[0]}, b = {.ids = ids[1]};
        CHECK(!zinf_samples_window(samples, i, &a) && !zinf_samples_window(samples, i + 1, &b));
        CHECK(ids[0][0] == '0' && ids[1][0] == 'z');
        CHECK(length_at(row_at(samples, 0)) >= length_at(row_at(samples, i))); /* of the longer */
        CHECK(zinf_samples_window_rows(samples, i + 1).ids ==
              (uint32_t)(row_at(samples, i) % 9) + 3);
    }
    zinf_samples_close(samples);
}

static void test_short_windows(void)
{
    struct zinf_samples_options options = {.source_len = 8, .pad = '_', .source_pad = '~'};
    struct zinf_samples *samples = open_rows("\",\"s\":\"%.*s\"}", &plain, &options);
    int32_t ids[SEQ], targets[SEQ], source[8];
    const struct zinf_window_rows rows = zinf_samples_window_rows(samples, 3);
    CHECK(rows.ids == length_at(3) && rows.source == 4);
    CHECK(zinf_samples_window_rows(samples, 8).source == 8); /* of 9 */
    memset(ids, 0, sizeof ids);
    memset(targets, 0, sizeof targets);
    memset(source, 0, sizeof source);
    struct zinf_window window = {.ids = ids,
                                 .targets = targets,
                                 .source_ids = source,
                                 .length = rows.ids + 1,
                                 .source_length = rows.source};
    CHECK(!zinf_samples_window(samples, 3, &window));
    CHECK(ids[3] == '3' && ids[rows.ids - 1] == 'x' && ids[rows.ids] == '_');
    CHECK(!ids[rows.ids + 1] && !targets[rows.ids + 1] && source[3] == 'y' && !source[4]);
    window.length = window.source_length = 2; /* less than there is */
    ids[2] = source[2] = -7;
    CHECK(!zinf_samples_window(samples, 3, &window) && ids[2] == -7 && source[2] == -7);
    zinf_samples_close(samples);
}

static void test_rows_are_counted(void)
{
    struct zinf_samples_options options = {.source_len = 16};
    struct zinf_samples *samples = open_rows("\",\"s\":\"%.*s\"}", &plain, &options);
    struct zinf_samples_rows one, some, all;
    CHECK(!zinf_samples_count_rows(samples, 1, 1, &one));
    CHECK(!zinf_samples_count_rows(samples, BATCH, 8, &some));
    CHECK(!zinf_samples_count_rows(samples, 1000, 8, &all));
    const struct zinf_samples_facts *facts = zinf_samples_facts(samples);
    CHECK(one.tokens == facts->n_ids + facts->n_source_ids && one.longest == one.tokens &&
          one.grouped == one.tokens);
    CHECK(one.whole == N * (SEQ + 16) && some.whole == one.whole);
    CHECK(some.grouped > some.tokens && some.grouped < some.longest && some.longest < some.whole);
    CHECK(all.longest == N * (56 + 16) && all.grouped == all.longest); /* 54 and 9 */
    zinf_samples_close(samples);
}

static void test_refusals(void)
{
    const char *files[] = {"none"};
    struct zinf_samples *samples = NULL;
    struct zinf_samples_options options = {.files = files,
                                           .n_files = 1,
                                           .recipe = &plain,
                                           .vocab = 257,
                                           .seq_len = SEQ,
                                           .packed = true,
                                           .shuffle = true,
                                           .group = 4};
    CHECK(zinf_samples_open(&samples, &options) == -EINVAL && strstr(zinf_error(), "packed"));
    options.packed = options.shuffle = false;
    CHECK(zinf_samples_open(&samples, &options) == -EINVAL && strstr(zinf_error(), "order"));
}

int main(void)
{
    if (!mkdtemp(folder) || zinf_tokenizer_bytes(&tokenizer))
        return 1;
    TAP_RUN(test_the_order_is_that_of_transformers);
    TAP_RUN(test_epochs);
    TAP_RUN(test_pairs_stay_together);
    TAP_RUN(test_short_windows);
    TAP_RUN(test_rows_are_counted);
    TAP_RUN(test_refusals);
    zinf_tokenizer_close(tokenizer);
    char *path = zinf_path_join(folder, "rows.jsonl");
    unlink(path);
    free(path);
    rmdir(folder);
    return tap_done();
}

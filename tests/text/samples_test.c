/* samples: rows into samples, cutting, dropping, windows, packing, the cache, bad rows. */
#include "text/samples/samples_store.h"
#include "text_files.h"

#include <fcntl.h>

/* ---- a recipe: "q" does not count, "a" does; "s" is a source, "l" a label ---- */

static int n_taken;

static int add_field(const cJSON *row, const char *key, unsigned marks, struct zinf_sample *sample)
{
    const cJSON *field = cJSON_GetObjectItemCaseSensitive(row, key);
    return cJSON_IsString(field)
               ? zinf_sample_add_text(sample, byte_tokenizer(), field->valuestring,
                                      strlen(field->valuestring), marks)
               : 0;
}

static int take(void *arg, const cJSON *row, struct zinf_sample *sample)
{
    const cJSON *source = cJSON_GetObjectItemCaseSensitive(row, "s");
    const cJSON *label = cJSON_GetObjectItemCaseSensitive(row, "l");
    n_taken++;
    if (!cJSON_IsString(cJSON_GetObjectItemCaseSensitive(row, "a")))
        return zinf_fail(-EINVAL, "there is no \"a\"");
    int code = add_field(row, "q", 0, sample);
    if (!code)
        code = add_field(row, "a", ZINF_MARK_COUNTS, sample);
    if (!code && source)
        code = zinf_tokenizer_encode(byte_tokenizer(), source->valuestring,
                                     strlen(source->valuestring), &sample->source);
    if (cJSON_IsNumber(label))
        sample->label = label->valueint;
    else if (cJSON_IsString(label))
        sample->label = atoi(label->valuestring);
    sample->keeps_last = sample->source_keeps_last = arg != NULL;
    return code;
}

static struct zinf_recipe recipe = {.name = "a test's", .key = 7, .take = take};

static struct zinf_samples_options options_for(const char *const *file)
{
    return (struct zinf_samples_options){
        .files = file,
        .n_files = 1,
        .recipe = &recipe,
        .tokenizer = byte_tokenizer(),
        .vocab = 257,
        .seq_len = 8,
        .pad = '_',
        .source_pad = '~',
        .seed = 5,
    };
}

static struct zinf_samples *open_ok(const struct zinf_samples_options *options)
{
    struct zinf_samples *samples = NULL;
    int code = zinf_samples_open(&samples, options);
    CHECKF(!code, "%s", zinf_error());
    return samples;
}

/* ---- what a window shows ---- */

#define MOST 64
struct seen {
    char ids[MOST], targets[MOST], positions[MOST], segments[MOST], types[MOST], source[MOST];
    char source_segments[MOST];
    int32_t label;
};

static void as_text(char *out, const int32_t *from, uint32_t n, int base)
{
    for (uint32_t i = 0; i < n; i++)
        out[i] = from[i] < 0 ? '.' : (char)(from[i] + base);
    out[n] = 0;
}

static struct seen look(struct zinf_samples *samples, uint64_t position)
{
    int32_t a[7][MOST];
    struct seen seen;
    uint32_t T = samples->options.seq_len, S = samples->options.source_len;
    struct zinf_window window = {.ids = a[0],
                                 .targets = a[1],
                                 .positions = a[2],
                                 .segments = a[3],
                                 .token_types = a[4],
                                 .source_ids = a[5],
                                 .source_segments = a[6],
                                 .label = &seen.label};
    CHECKF(!zinf_samples_window(samples, position, &window), "%s", zinf_error());
    as_text(seen.ids, a[0], T, 0);
    as_text(seen.targets, a[1], T, 0);
    as_text(seen.positions, a[2], T, '0');
    as_text(seen.segments, a[3], T, '0');
    as_text(seen.types, a[4], T, '0');
    as_text(seen.source, a[5], S, 0);
    as_text(seen.source_segments, a[6], S, '0');
    return seen;
}

static void check_seen(const char *what, const char *is, const char *wanted)
{
    CHECKF(!strcmp(is, wanted), "%s is \"%s\", not \"%s\"", what, is, wanted);
}

/* ---- cases ---- */

static void test_a_sample_and_padding(void)
{
    const char *file = write_text("one.jsonl", "{\"q\":\"ab\",\"a\":\"cd\",\"l\":3}\n"
                                               "\n{\"a\":\"xyz\"}\n");
    struct zinf_samples_options options = options_for(&file);
    struct zinf_samples *samples = open_ok(&options);
    const struct zinf_samples_facts *facts = zinf_samples_facts(samples);
    CHECK(facts->n_rows == 2 && facts->n_samples == 2 && zinf_samples_n_windows(samples) == 2);
    CHECK(facts->n_ids == 7 && facts->n_counted == 4 && facts->longest == 4 && !facts->n_cut);
    struct seen seen = look(samples, 0);
    check_seen("ids", seen.ids, "abcd____");
    check_seen("targets", seen.targets, ".cd.....");
    check_seen("positions", seen.positions, "01230000");
    check_seen("segments", seen.segments, "11110000");
    check_seen("types", seen.types, "00000000");
    CHECK(seen.label == 3);
    seen = look(samples, 1);
    check_seen("ids", seen.ids, "xyz_____");
    check_seen("targets", seen.targets, "yz......"); /* the first id is nobody's target */
    CHECK(seen.label == -1);
    seen = look(samples, 2); /* the next epoch */
    check_seen("ids", seen.ids, "abcd____");
    zinf_samples_close(samples);
}

static void test_cuts_are_made_and_counted(void)
{
    static const struct {
        enum zinf_cut cut;
        uint32_t max_ids;
        bool keeps_last;
        uint32_t front;
        const char *ids, *targets;
        uint64_t n_counted;
    } cases[] = {
        {ZINF_CUT_END, 0, false, 0, "abcdefgh", "..defgh.", 5},
        {ZINF_CUT_END, 9, false, 0, "abcdefgh", "..defghi", 6},
        {ZINF_CUT_END, 5, false, 1, "abcde___", "..de....", 2},
        {ZINF_CUT_END, 5, true, 0, "abcdj___", "..dj....", 2},
        {ZINF_CUT_BEGINNING, 5, false, 0, "fghij___", "ghij....", 4},
        {ZINF_CUT_BEGINNING, 5, false, 2, "abhij___", ".hij....", 3},
    };
    const char *file = write_text("cut.jsonl", "{\"q\":\"abc\",\"a\":\"defghij\"}\n");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct zinf_samples_options options = options_for(&file);
        options.cut = cases[i].cut;
        options.front = cases[i].front;
        options.max_ids = cases[i].max_ids;
        recipe.arg = cases[i].keeps_last ? &recipe : NULL;
        struct zinf_samples *samples = open_ok(&options);
        const struct zinf_samples_facts *facts = zinf_samples_facts(samples);
        struct seen seen = look(samples, 0);
        check_seen("ids", seen.ids, cases[i].ids);
        check_seen("targets", seen.targets, cases[i].targets);
        CHECK(facts->n_cut == 1 && facts->longest == 10);
        CHECKF(facts->n_counted == cases[i].n_counted, "%zu: %llu count", i,
               (unsigned long long)facts->n_counted);
        zinf_samples_close(samples);
    }
    recipe.arg = NULL;
}

static void test_drops_are_made_and_counted(void)
{
    const char *file = write_text("drop.jsonl", "{\"q\":\"abcdefghij\",\"a\":\"k\"}\n" /* cut off */
                                                "{\"q\":\"a\",\"a\":\"\"}\n"
                                                "{\"a\":\"x\"}\n" /* nobody's target */
                                                "{\"q\":\"a\",\"a\":\"b\"}\n"
                                                "{\"q\":\"ab\",\"a\":\"cdefgh\"}\n");
    struct zinf_samples_options options = options_for(&file);
    struct zinf_samples *samples = open_ok(&options);
    const struct zinf_samples_facts *facts = zinf_samples_facts(samples);
    CHECK(facts->n_rows == 5 && facts->n_samples == 2 && facts->n_unlabelled == 3);
    zinf_samples_close(samples);
    options.min_ids = 3;
    samples = open_ok(&options);
    facts = zinf_samples_facts(samples);
    CHECK(facts->n_samples == 1 && facts->n_short == 3 && facts->n_unlabelled == 1);
    zinf_samples_close(samples);
    options.min_ids = 1;
    options.seq_len = 5;
    options.cut = ZINF_CUT_DROP;
    options.unlabelled = true;
    samples = open_ok(&options);
    facts = zinf_samples_facts(samples);
    CHECK(facts->n_samples == 3 && facts->n_long == 2 && !facts->n_cut);
    zinf_samples_close(samples);
}

static void test_sources_and_tables(void)
{
    const char *file = write_text("pairs.csv", "s,a,l\n\"long, source\",xyz,1\nab,cd,0\nq,ef,2\n");
    struct zinf_samples_options options = options_for(&file);
    options.source_len = 5;
    recipe.arg = &recipe;
    struct zinf_samples *samples = open_ok(&options);
    struct seen seen = look(samples, 0);
    check_seen("source", seen.source, "longe"); /* its last id stays */
    check_seen("source segments", seen.source_segments, "11111");
    check_seen("ids", seen.ids, "xyz_____");
    CHECK(seen.label == 1 && zinf_samples_facts(samples)->n_sources_cut == 1);
    CHECK(zinf_samples_facts(samples)->n_source_ids_cut == 7);
    seen = look(samples, 2);
    check_seen("source", seen.source, "q~~~~");
    check_seen("source segments", seen.source_segments, "10000");
    zinf_samples_close(samples);
    recipe.arg = NULL;
}

static void test_packed_windows(void)
{
    const char *file =
        write_text("pack.jsonl", "{\"a\":\"abcde\"}\n{\"a\":\"fg\"}\n{\"a\":\"hij\"}\n"
                                 "{\"a\":\"k\"}\n{\"a\":\"lmno\"}\n{\"a\":\"pq\"}\n"
                                 "{\"a\":\"rstuvw\"}\n");
    struct zinf_samples_options options = options_for(&file);
    options.packed = true;
    options.unlabelled = false;
    struct zinf_samples *samples = open_ok(&options);
    CHECK(zinf_samples_n_windows(samples) == 3 && zinf_samples_facts(samples)->n_samples == 6);
    struct seen seen = look(samples, 0);
    check_seen("ids", seen.ids, "rstuvwfg");
    check_seen("targets", seen.targets, "stuvw.g.");
    check_seen("positions", seen.positions, "01234501");
    check_seen("segments", seen.segments, "11111122");
    seen = look(samples, 1);
    check_seen("ids", seen.ids, "abcdehij");
    seen = look(samples, 2);
    check_seen("ids", seen.ids, "lmnopq__");
    check_seen("segments", seen.segments, "11112200");
    zinf_samples_close(samples);
}

/* The least that can be said of any packing, on many lengths, with sources and without. */
static void test_packing_loses_nothing(void)
{
    enum { N = 3000, SIZE = 100, SOURCE = 60 };
    static uint32_t lengths[N], sources[N];
    uint64_t sum = 0;
    srand(3);
    for (int i = 0; i < N; i++) {
        lengths[i] = 1 + (uint32_t)rand() % (i % 7 ? 40 : SIZE);
        sources[i] = (uint32_t)rand() % SOURCE;
        sum += lengths[i];
    }
    for (int with = 0; with < 2; with++) {
        struct sample_packing p = {0};
        static bool there[N];
        memset(there, 0, sizeof there);
        CHECK(!samples_pack(&p, lengths, with ? sources : NULL, N, SIZE, SOURCE));
        CHECK(p.firsts[p.n_windows] == N);
        for (uint64_t w = 0; w < p.n_windows; w++) {
            uint32_t ids = 0, source = 0;
            for (uint64_t i = p.firsts[w]; i < p.firsts[w + 1]; i++) {
                CHECK(!there[p.order[i]]);
                there[p.order[i]] = true;
                ids += lengths[p.order[i]];
                source += sources[p.order[i]];
            }
            CHECK(ids <= SIZE && ids > 0 && (!with || source <= SOURCE));
        }
        if (!with)
            CHECKF(p.n_windows <= sum / SIZE + sum / SIZE / 50 + 2, "%llu windows for %llu",
                   (unsigned long long)p.n_windows, (unsigned long long)(sum / SIZE));
        samples_packing_free(&p);
    }
}

static void test_epochs_are_shuffled(void)
{
    char text[4096] = "";
    size_t used = 0;
    for (int i = 0; i < 40; i++)
        used +=
            (size_t)snprintf(text + used, sizeof text - used, "{\"a\":\"%c%c\"}\n", '0' + i, 'z');
    const char *file = write_text("many.jsonl", text);
    struct zinf_samples_options options = options_for(&file);
    options.shuffle = true;
    struct zinf_samples *samples = open_ok(&options);
    int order[2][40], there[2][128] = {{0}}, moved = 0, same = 0;
    for (int e = 0; e < 2; e++)
        for (int i = 0; i < 40; i++) {
            order[e][i] = look(samples, (uint64_t)(40 * e + i)).ids[0];
            there[e][order[e][i]]++;
        }
    for (int i = 0; i < 40; i++) {
        CHECK(there[0]['0' + i] == 1 && there[1]['0' + i] == 1);
        moved += order[0][i] != '0' + i;
        same += order[0][i] == order[1][i];
        CHECK(look(samples, (uint64_t)i).ids[0] == order[0][i]); /* any time */
    }
    CHECK(moved > 30 && same < 10);
    zinf_samples_close(samples);
}

static void test_rows_are_read_once(void)
{
    const char *file = write_text("cached.jsonl", "{\"q\":\"ab\",\"a\":\"cd\"}\n{\"q\":1}\n");
    struct zinf_samples_options options = options_for(&file);
    options.cache_folder = path_of("cache");
    options.skip_bad_rows = true;
    n_taken = 0;
    struct zinf_samples *first = open_ok(&options);
    CHECK(n_taken == 2);
    options.seq_len = 3;
    struct zinf_samples *second = open_ok(&options);
    CHECK(n_taken == 2 && second->caches[0].tokens.reused);
    struct seen seen = look(second, 0);
    check_seen("ids", seen.ids, "abc");
    CHECK(zinf_samples_facts(second)->n_bad == 1 && *zinf_samples_facts(second)->first_bad);
    CHECKF(!zinf_token_cache_verify(second->caches[0].tokens.name), "%s", zinf_error());
    zinf_samples_close(first);
    zinf_samples_close(second);
    recipe.key++;
    zinf_samples_close(open_ok(&options));
    CHECK(n_taken == 4);
    options.skip_bad_rows = false; /* the cache of those that skip does not serve */
    CHECK(zinf_samples_open(&first, &options) == -EINVAL);
    recipe.key--;
}

static void test_damage_is_found(void)
{
    const char *file = write_text("damage.jsonl", "{\"q\":\"ab\",\"a\":\"cd\"}\n");
    struct zinf_samples_options options = options_for(&file);
    options.cache_folder = path_of("cache");
    struct zinf_samples *samples = open_ok(&options);
    int fd = open(samples->caches[0].tokens.name, O_WRONLY);
    int32_t ids[8], targets[8];
    struct zinf_window window = {.ids = ids, .targets = targets};
    CHECK(fd >= 0 && pwrite(fd, "x", 1, 128) == 1);
    close(fd);
    CHECK(zinf_samples_window(samples, 0, &window) == -EBADMSG);
    zinf_samples_close(samples);
}

static void test_a_data_set_of_samples(void)
{
    const char *file = write_text("set.jsonl", "{\"q\":\"ab\",\"a\":\"cd\"}\n{\"a\":\"efg\"}\n");
    struct zinf_samples_options options = options_for(&file);
    struct zinf_samples *samples = open_ok(&options);
    struct zinf_dataset *dataset = NULL;
    int32_t ids[8], targets[8];
    CHECK(!zinf_dataset_of_samples(&dataset, samples) && zinf_dataset_samples(dataset) == samples);
    CHECK(zinf_dataset_n_windows(dataset) == 2 && zinf_dataset_n_tokens(dataset) == 7);
    CHECK(!zinf_dataset_window(dataset, 1, ids, targets) && ids[2] == 'g' && targets[1] == 'g');
    CHECK(zinf_dataset_read(dataset, 0, 1, ids) == -ENOTSUP);
    zinf_dataset_close(dataset);
}

static void fails(const char *name, const char *text, int code, const char *words)
{
    const char *file = write_text(name, text);
    struct zinf_samples_options options = options_for(&file);
    struct zinf_samples *samples = NULL;
    int result = zinf_samples_open(&samples, &options);
    CHECKF(result == code && strstr(zinf_error(), words), "%d %s: \"%s\" is not in it", result,
           zinf_error(), words);
    zinf_samples_close(result ? NULL : samples);
}

static void test_bad_rows_are_named(void)
{
    fails("b1.jsonl", "{\"a\":\"xy\"}\n\n{\"q\":\"x\"}\n", -EINVAL,
          "b1.jsonl: row 2 (line 3): there is no \"a\"");
    fails("b2.jsonl", "{\"a\":\"xy\"}\n{\"a\":\n", -EINVAL, "b2.jsonl: line 2: not valid JSON");
    fails("b3.json", "[{\"a\":\"xy\"},\n\n{\"a\":4}]", -EINVAL, "b3.json: row 2 (line 3)");
    fails("b4.jsonl", "[1]\n", -EINVAL, "line 1: not an object");
    fails("b5.jsonl", "\n \n", -EINVAL, "has no rows");
    fails("b6.txt", "text\n", -EINVAL, "plain text");
    fails("b7.jsonl", "{\"q\":\"abcdefghi\",\"a\":\"x\"}\n", -EINVAL, "no sample has a token");
    fails("b8.csv", "q,a\n1\n", -EINVAL, "line 2 has 1 fields");
    fails("b9.jsonl", "{\"a\":\"x\\u0000y\"}\n", -EINVAL, "u0000");
    fails("b10.jsonl", "{\"q\":\"x\"}\n", -EINVAL, "--skip-bad-rows");
}

static void test_bad_rows_are_skipped(void)
{
    const char *file = write_text("skip.jsonl", "{\"q\":\"x\"}\n{\"a\":\"xy\"}\n{\"a\":\n"
                                                "{\"a\":\"zw\"}\n");
    struct zinf_samples_options options = options_for(&file);
    options.skip_bad_rows = true;
    struct zinf_samples *samples = open_ok(&options);
    const struct zinf_samples_facts *facts = zinf_samples_facts(samples);
    CHECK(facts->n_rows == 4 && facts->n_bad == 2 && facts->n_samples == 2);
    CHECKF(strstr(facts->first_bad, "row 1"), "%s", facts->first_bad);
    zinf_samples_close(samples);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 1;
    TAP_RUN(test_a_sample_and_padding);
    TAP_RUN(test_cuts_are_made_and_counted);
    TAP_RUN(test_drops_are_made_and_counted);
    TAP_RUN(test_sources_and_tables);
    TAP_RUN(test_packed_windows);
    TAP_RUN(test_packing_loses_nothing);
    TAP_RUN(test_epochs_are_shuffled);
    TAP_RUN(test_rows_are_read_once);
    TAP_RUN(test_damage_is_found);
    TAP_RUN(test_a_data_set_of_samples);
    TAP_RUN(test_bad_rows_are_named);
    TAP_RUN(test_bad_rows_are_skipped);
    remove_folder(folder);
    return tap_done();
}

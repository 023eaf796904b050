/* task: columns into samples of pairs and of labelled texts, labels by name and number, and what is
 * wrong with rows. */
#include "text/samples/task.h"
#include "text_files.h"

static struct zinf_tokenizer *bytes, *pairs; /* without a frame; [CLS] a [SEP] b [SEP] */

static enum zinf_cut cut_side = ZINF_CUT_END;

static struct zinf_samples *open_samples(const char *path, const struct zinf_task_options *task,
                                         uint32_t seq_len, uint32_t source_len, int *code)
{
    struct zinf_task_recipe *recipe = NULL;
    struct zinf_samples *samples = NULL;
    *code = zinf_task_open(&recipe, task);
    if (*code)
        return NULL;
    struct zinf_samples_options options = {
        .files = &path,
        .n_files = 1,
        .recipe = zinf_task_recipe(recipe),
        .tokenizer = task->tokenizer,
        .vocab = 1 << 20,
        .seq_len = seq_len,
        .source_len = source_len,
        .max_ids = task->task == ZINF_TASK_SEQ2SEQ ? seq_len + 1 : 0,
        .unlabelled = task->task != ZINF_TASK_SEQ2SEQ,
        .cut = cut_side,
    };
    *code = zinf_samples_open(&samples, &options);
    zinf_task_close(recipe);
    return samples;
}

static void check_ids(const struct zinf_tokens *ids, const int32_t *wanted, size_t n)
{
    CHECKF(ids->count == n, "%zu ids, not %zu", ids->count, n);
    for (size_t i = 0; i < n && i < ids->count; i++)
        CHECKF(ids->ids[i] == wanted[i], "id %zu is %d, not %d", i, ids->ids[i], wanted[i]);
}

/* ---- pairs ---- */

static const char two_pairs[] = "{\"source\": \"abc\", \"target\": \"xy\", \"id\": 1}\n"
                                "{\"source\": \"defghijk\", \"target\": \"z12345\"}\n";

static void test_source_and_target(void)
{
    int code;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    struct zinf_task_options task = {
        .task = ZINF_TASK_SEQ2SEQ, .tokenizer = bytes, .prefix = "p:", .start = 7, .end = 256};
    struct zinf_samples *s = open_samples(write_text("pairs.jsonl", two_pairs), &task, 4, 6, &code);
    CHECKF(s != NULL, "%s", zinf_error());
    CHECK(!zinf_samples_read(s, 0, &sample));
    check_ids(&sample.ids, (int32_t[]){7, 'x', 'y', 256}, 4);
    check_ids(&sample.source, (int32_t[]){'p', ':', 'a', 'b', 'c', 256}, 6);
    CHECK(!(sample.marks[0] & ZINF_MARK_COUNTS) && sample.marks[3] & ZINF_MARK_COUNTS);
    CHECK(!sample.cut);
    /* What is too long is cut, keeps its end, and is counted. */
    CHECK(!zinf_samples_read(s, 1, &sample) && sample.cut);
    check_ids(&sample.ids, (int32_t[]){7, 'z', '1', '2', 256}, 5);
    check_ids(&sample.source, (int32_t[]){'p', ':', 'd', 'e', 'f', 256}, 6);
    const struct zinf_samples_facts *facts = zinf_samples_facts(s);
    CHECK(facts->n_samples == 2 && facts->n_cut == 1 && facts->n_ids_cut == 3);
    CHECK(facts->n_sources_cut == 1 && facts->n_source_ids_cut == 5);
    /* A window is shifted to the right: the start, and the target from its first id on. */
    int32_t ids[4], targets[4], segments[4], source[6], source_segments[6];
    struct zinf_window window = {.ids = ids,
                                 .targets = targets,
                                 .segments = segments,
                                 .source_ids = source,
                                 .source_segments = source_segments};
    CHECK(!zinf_samples_window(s, 0, &window));
    CHECK(ids[0] == 7 && ids[1] == 'x' && ids[2] == 'y');
    CHECK(targets[0] == 'x' && targets[1] == 'y' && targets[2] == 256 && targets[3] == -1);
    CHECK(source[5] == 256 && source_segments[5] == 1 && segments[2] == 1);
    zinf_sample_free(&sample);
    zinf_samples_close(s);
}

/* What is around a source stays where the source is cut, at either end. */
static void test_a_template_stays_around_its_source(void)
{
    static const struct {
        const char *around;
        enum zinf_cut cut;
        const char *first, *second; /* sources of two_pairs in 6 tokens and the end */
    } rows[] = {
        {"<{source}>", ZINF_CUT_END, "<abc>", "<defg>"},
        {"<{source}>", ZINF_CUT_BEGINNING, "<abc>", "<hijk>"},
        {"{source}?!", ZINF_CUT_END, "abc?!", "defg?!"},
        {"Q:{source}", ZINF_CUT_END, "Q:abc", "Q:defg"},
        {"{source}", ZINF_CUT_END, "abc", "defghi"},
        {"1234{source}5678", ZINF_CUT_END, "1234567", "1234567"},
    };
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        int code;
        struct zinf_task_options task = {.task = ZINF_TASK_SEQ2SEQ,
                                         .tokenizer = bytes,
                                         .around = rows[i].around,
                                         .start = 7,
                                         .end = 256};
        cut_side = rows[i].cut;
        struct zinf_samples *s =
            open_samples(write_text("pairs.jsonl", two_pairs), &task, 8, 7, &code);
        cut_side = ZINF_CUT_END;
        CHECKF(s != NULL, "%s", zinf_error());
        for (uint64_t k = 0; s && k < 2; k++) {
            const char *wanted = k ? rows[i].second : rows[i].first;
            CHECK(!zinf_samples_read(s, k, &sample));
            const size_t n = strlen(wanted);
            bool same = sample.source.count >= n && sample.source.count <= n + 1;
            for (size_t at = 0; same && at < n; at++)
                same = sample.source.ids[at] == wanted[at];
            CHECKF(same, "%s of row %llu: not %s", rows[i].around, (unsigned long long)k, wanted);
        }
        zinf_samples_close(s);
    }
    zinf_sample_free(&sample);
}

/* The tokenizer's frame stays, too, and what is not cut is the text encoded as a whole. */
static void test_a_template_around_a_framed_text(void)
{
    int code;
    struct zinf_sample whole = ZINF_SAMPLE_EMPTY, cut = ZINF_SAMPLE_EMPTY;
    struct zinf_tokens plain = {0}, framed = {0};
    struct zinf_labels labels = {0};
    const char *path = write_text("around.tsv", "text\tlabel\ncat dog cat dog\t0\n");
    CHECK(!zinf_labels_find(&labels, &path, 1, NULL, 10));
    struct zinf_task_options task = {.task = ZINF_TASK_CLASSIFICATION,
                                     .tokenizer = pairs,
                                     .around = "dog {source} dog",
                                     .labels = &labels};
    struct zinf_samples *s = open_samples(path, &task, 40, 0, &code);
    CHECKF(s && !zinf_samples_read(s, 0, &whole), "%s", zinf_error());
    static const char text[] = "dog cat dog cat dog dog";
    CHECK(!zinf_tokenizer_encode(pairs, text, strlen(text), &plain));
    CHECK(!zinf_tokenizer_frame(pairs, &plain, NULL, &framed, NULL));
    check_ids(&whole.ids, framed.ids, framed.count);
    zinf_samples_close(s);
    const uint32_t n = (uint32_t)framed.count - 2;
    s = open_samples(path, &task, n, 0, &code);
    CHECKF(s && !zinf_samples_read(s, 0, &cut), "%s", zinf_error());
    CHECK(cut.ids.count == n && cut.cut);
    size_t same = 0, behind = 0; /* from the front, and from the end */
    while (same < n && cut.ids.ids[same] == framed.ids[same])
        same++;
    while (behind < n && cut.ids.ids[n - 1 - behind] == framed.ids[framed.count - 1 - behind])
        behind++;
    uint32_t front, end;
    zinf_tokenizer_sides(pairs, &front, &end);
    CHECKF(same > front && behind > end && same + behind >= n, "%zu and %zu of %u", same, behind,
           n);
    zinf_samples_close(s);
    zinf_labels_free(&labels);
    zinf_sample_free(&whole);
    zinf_sample_free(&cut);
    zinf_tokens_free(&plain);
    zinf_tokens_free(&framed);
}

static void test_templates_that_are_refused(void)
{
    const struct zinf_task_options rows[] = {
        {.around = "no hole"},
        {.around = "{source} and {source}"},
        {.around = "{source}:", .prefix = "p"},
        {.around = "{source}:", .source_column = "a,b"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_task_options task = rows[i];
        struct zinf_task_recipe *recipe = NULL;
        task.task = ZINF_TASK_SEQ2SEQ;
        task.tokenizer = bytes;
        CHECKF(zinf_task_open(&recipe, &task) == -EINVAL && strstr(zinf_error(), "--template"),
               "row %zu: %s", i, zinf_error());
        zinf_task_close(recipe);
    }
}

static void test_frames_end_once(void)
{
    int code;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    struct zinf_tokens plain = {0}, framed = {0};
    CHECK(!zinf_tokenizer_encode(pairs, "cat", 3, &plain));
    CHECK(!zinf_tokenizer_frame(pairs, &plain, NULL, &framed, NULL) && framed.count > plain.count);
    struct zinf_task_options task = {.task = ZINF_TASK_SEQ2SEQ,
                                     .tokenizer = pairs,
                                     .source_column = "a",
                                     .target_column = "b",
                                     .start = framed.ids[0],
                                     .end = framed.ids[framed.count - 1]};
    struct zinf_samples *s =
        open_samples(write_text("frames.csv", "a,b\ncat,cat\n"), &task, 40, 40, &code);
    CHECKF(s != NULL, "%s", zinf_error());
    CHECK(s && !zinf_samples_read(s, 0, &sample));
    check_ids(&sample.source, framed.ids, framed.count);
    CHECK(sample.ids.count == framed.count + 1);
    zinf_sample_free(&sample);
    zinf_samples_close(s);
    zinf_tokens_free(&plain);
    zinf_tokens_free(&framed);
}

/* ---- labels ---- */

static void test_pair_of_texts_and_names(void)
{
    int code;
    struct zinf_labels labels;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    struct zinf_tokens a = {0}, b = {0}, framed = {0}, types = {0};
    const char *path = write_text("names.tsv", "s1\ts2\tlabel\ncat\tdog\tyes\ndog\tcat\tno\n");
    CHECKF(!zinf_labels_find(&labels, &path, 1, NULL, 10), "%s", zinf_error());
    CHECK(labels.n == 2 && labels.names && !strcmp(labels.names[0], "no"));
    struct zinf_task_options task = {.task = ZINF_TASK_CLASSIFICATION,
                                     .tokenizer = pairs,
                                     .source_column = "s1,s2",
                                     .labels = &labels};
    struct zinf_samples *s = open_samples(path, &task, 32, 0, &code);
    CHECKF(s != NULL, "%s", zinf_error());
    CHECK(s && !zinf_samples_read(s, 0, &sample) && sample.label == 1);
    CHECK(!zinf_tokenizer_encode(pairs, "cat", 3, &a) &&
          !zinf_tokenizer_encode(pairs, "dog", 3, &b));
    CHECK(!zinf_tokenizer_frame(pairs, &a, &b, &framed, &types));
    check_ids(&sample.ids, framed.ids, framed.count);
    for (size_t i = 0; i < framed.count; i++)
        CHECK((sample.marks[i] & ZINF_MARK_SECOND) == (types.ids[i] ? ZINF_MARK_SECOND : 0));
    CHECK(s && !zinf_samples_read(s, 1, &sample) && sample.label == 0);
    zinf_samples_close(s);
    zinf_sample_free(&sample);
    zinf_labels_free(&labels);
    zinf_tokens_free(&a);
    zinf_tokens_free(&b);
    zinf_tokens_free(&framed);
    zinf_tokens_free(&types);
}

static void test_labels_that_are_numbers(void)
{
    struct zinf_labels labels;
    int32_t label = -1;
    const char *path = write_text("n.jsonl", "{\"y\": 2}\n{\"y\": 0}\n{\"y\": true}\n{\"z\": 1}\n");
    CHECKF(!zinf_labels_find(&labels, &path, 1, "y", 10), "%s", zinf_error());
    CHECK(labels.n == 3 && !labels.names);
    cJSON *two = cJSON_CreateString("2"), *four = cJSON_CreateNumber(4);
    CHECK(!zinf_labels_parse(&labels, two, &label) && label == 2);
    CHECK(zinf_labels_parse(&labels, four, &label) == -EINVAL);
    CHECKF(strstr(zinf_error(), "from 0 to 2") != NULL, "%s", zinf_error());
    cJSON_Delete(two);
    cJSON_Delete(four);
    CHECK(zinf_labels_find(&labels, &path, 1, "y", 2) == -EINVAL && !labels.n);
    CHECK(zinf_labels_find(&labels, &path, 1, "x", 9) == -EINVAL);
    CHECKF(strstr(zinf_error(), "--label-column") != NULL, "%s", zinf_error());
}

static void test_regression(void)
{
    int code;
    float value;
    struct zinf_sample sample = ZINF_SAMPLE_EMPTY;
    struct zinf_task_options task = {.task = ZINF_TASK_REGRESSION, .tokenizer = bytes};
    struct zinf_samples *s =
        open_samples(write_text("r.csv", "text,label\nab,-2.5e-1\ncd,3\n"), &task, 8, 0, &code);
    CHECKF(s != NULL, "%s", zinf_error());
    CHECK(s && !zinf_samples_read(s, 0, &sample));
    memcpy(&value, &sample.label, sizeof value);
    CHECK(value == -0.25F);
    check_ids(&sample.ids, (int32_t[]){'a', 'b'}, 2);
    zinf_sample_free(&sample);
    zinf_samples_close(s);
}

/* ---- what is wrong ---- */

static void refuse(const char *name, const char *text, const struct zinf_task_options *task,
                   const char *word, const char *other)
{
    int code;
    struct zinf_samples *s = open_samples(write_text(name, text), task, 8, 8, &code);
    CHECKF(code < 0, "%s was taken", name);
    CHECKF(strstr(zinf_error(), word) && strstr(zinf_error(), other), "%s", zinf_error());
    zinf_samples_close(s);
}

static void test_bad_rows(void)
{
    struct zinf_labels labels = {.n = 2};
    struct zinf_task_options pair = {.task = ZINF_TASK_SEQ2SEQ, .tokenizer = bytes, .end = -1};
    struct zinf_task_options class = {
        .task = ZINF_TASK_CLASSIFICATION, .tokenizer = bytes, .labels = &labels};
    struct zinf_task_options number = {.task = ZINF_TASK_REGRESSION, .tokenizer = bytes};
    const char *good = "{\"source\": \"a\", \"target\": \"b\"}\n";
    char rows[256];
    snprintf(rows, sizeof rows, "%s{\"dialogue\": \"a\", \"target\": \"b\"}\n", good);
    refuse("a.jsonl", rows, &pair, "row 2", "(dialogue, target): name one with --source-column");
    refuse("b.jsonl", "{\"source\": \"a\"}\n", &pair, "\"target\"", "--target-column");
    refuse("c.jsonl", "{\"source\": 3, \"target\": \"b\"}\n", &pair, "row 1", "is no text");
    refuse("d.jsonl", "", &pair, "d.jsonl", "empty");
    refuse("e.csv", "text,label\na,0\nb,2\n", &class, "row 2", "from 0 to 1");
    refuse("f.csv", "text,label\na,x\n", &class, "row 1", "the label x");
    refuse("g.csv", "text,label\na,much\n", &number, "row 1", "no number");
    refuse("h.csv", "text,label\na,1e99\n", &number, "row 1", "no number");
    pair.source_column = "a,b,c";
    refuse("i.jsonl", good, &pair, "--source-column a,b,c", "two with a comma");
}

static void test_names(void)
{
    enum zinf_task task;
    for (int i = 0; i < ZINF_TASKS; i++)
        CHECK(!zinf_task_parse(zinf_task_name((enum zinf_task)i), &task) && (int)task == i);
    CHECK(zinf_task_parse("ner", &task) == -EINVAL && strstr(zinf_error(), "seq2seq"));
}

int main(void)
{
    char path[600], *json = NULL;
    size_t n;
    snprintf(path, sizeof path, "%s/tests/fixtures/tokenizer_kinds/bert.json", getenv("SRCDIR"));
    if (!mkdtemp(folder) || zinf_tokenizer_bytes(&bytes) ||
        zinf_file_read(path, 1 << 24, &json, &n) ||
        zinf_tokenizer_from_json(&pairs, json, n, path)) {
        printf("Bail out! %s\n", zinf_error());
        return 1;
    }
    zinf_log_set_level(ZINF_LOG_ERROR);
    TAP_RUN(test_source_and_target);
    TAP_RUN(test_a_template_stays_around_its_source);
    TAP_RUN(test_a_template_around_a_framed_text);
    TAP_RUN(test_templates_that_are_refused);
    TAP_RUN(test_frames_end_once);
    TAP_RUN(test_pair_of_texts_and_names);
    TAP_RUN(test_labels_that_are_numbers);
    TAP_RUN(test_regression);
    TAP_RUN(test_bad_rows);
    TAP_RUN(test_names);
    free(json);
    zinf_tokenizer_close(bytes);
    zinf_tokenizer_close(pairs);
    remove_folder(folder);
    return tap_done();
}

/* metrics: figures of the usual tools, from fixtures and by hand; scoreboards; what is not defined.
 */
#include "base/json.h"
#include "metrics/metrics.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

static cJSON *fixture;

static const cJSON *get(const cJSON *object, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(object, key);
}

/* null in the fixture: not defined */
static bool same(double value, const cJSON *wanted)
{
    if (!cJSON_IsNumber(wanted))
        return isnan(value);
    return fabs(value - wanted->valuedouble) <= 1e-6;
}

static bool near(double value, double wanted)
{
    return fabs(value - wanted) <= 1e-6;
}

/* ---- against the tools ---- */

static void check_rouge(const cJSON *entry, bool stem)
{
    const cJSON *wanted = get(entry, stem ? "stemmed" : "plain");
    const char *predicted = cJSON_GetStringValue(get(entry, "predicted"));
    const char *reference = cJSON_GetStringValue(get(entry, "reference"));
    struct zinf_rouge r;
    CHECK(!zinf_rouge(predicted, reference, stem, &r));
    const double values[] = {r.rouge1, r.rouge2, r.l, r.lsum};
    for (int i = 0; i < 4; i++)
        CHECKF(same(values[i], cJSON_GetArrayItem(wanted, i)), "rouge %d of \"%s\" and \"%s\": %g",
               i, predicted, reference, values[i]);
}

static void test_rouge(void)
{
    const cJSON *entry, *texts = get(fixture, "texts");
    CHECK(cJSON_GetArraySize(texts) >= 50);
    cJSON_ArrayForEach(entry, texts) check_rouge(entry, false);
    cJSON_ArrayForEach(entry, texts) check_rouge(entry, true);
}

static void test_bleu(void)
{
    const cJSON *entry;
    struct zinf_bleu corpus = {0};
    cJSON_ArrayForEach(entry, get(fixture, "texts"))
    {
        const char *predicted = cJSON_GetStringValue(get(entry, "predicted"));
        const char *reference = cJSON_GetStringValue(get(entry, "reference"));
        struct zinf_bleu one = {0};
        CHECK(!zinf_bleu_add(&one, predicted, reference));
        CHECK(!zinf_bleu_add(&corpus, predicted, reference));
        CHECKF(same(zinf_bleu_score(&one, true), get(entry, "bleu")), "\"%s\" and \"%s\": %g",
               predicted, reference, zinf_bleu_score(&one, true));
    }
    CHECK(same(zinf_bleu_score(&corpus, false), get(fixture, "corpus_bleu")));
}

/* Through a scoreboard: every metric of its kind. */
static void check_board(const cJSON *entry, enum zinf_scored of)
{
    const cJSON *predicted = get(entry, "predicted"), *labels = get(entry, "labels");
    struct zinf_scoreboard *board;
    int n_checked = 0;
    CHECK(!zinf_scoreboard_create(&board, of, false));
    for (int i = 0; i < cJSON_GetArraySize(predicted); i++) {
        const cJSON *x = cJSON_GetArrayItem(predicted, i), *y = cJSON_GetArrayItem(labels, i);
        CHECK(!(of == ZINF_SCORED_CLASSES
                    ? zinf_scoreboard_class(board, x->valueint, y->valueint)
                    : zinf_scoreboard_number(board, x->valuedouble, y->valuedouble)));
    }
    CHECK(zinf_scoreboard_count(board) == (uint64_t)cJSON_GetArraySize(labels));
    for (int m = 0; m < ZINF_METRICS; m++) {
        const struct zinf_metric_facts *facts = zinf_metric_facts(m);
        double value;
        if (facts->of != of)
            continue;
        CHECK(!zinf_scoreboard_value(board, m, &value));
        CHECKF(same(value, get(entry, facts->name)), "%s is %g", facts->name, value);
        n_checked++;
    }
    CHECK(n_checked >= 3);
    zinf_scoreboard_destroy(board);
}

static void test_classes(void)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, get(fixture, "classes")) check_board(entry, ZINF_SCORED_CLASSES);
}

static void test_numbers(void)
{
    const cJSON *entry;
    cJSON_ArrayForEach(entry, get(fixture, "numbers")) check_board(entry, ZINF_SCORED_NUMBERS);
}

/* ---- by hand ---- */

static void test_stems(void)
{
    static const char *const words[][2] = {
        {"flies", "fli"},
        {"agreed", "agre"},
        {"falling", "fall"},
        {"filing", "file"},
        {"enjoy", "enjoy"},
        {"happy", "happi"},
        {"oed", "o"},
        {"relational", "relat"},
        {"geology", "geolog"},
        {"dying", "die"},
        {"generalization", "gener"},
        {"news", "news"},
        {"dies", "die"},
        {"a", "a"},
        {"yyyyyyyyyyyy", "yyyyyyyyyyyi"},
    };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        char word[32];
        strcpy(word, words[i][0]);
        size_t n = zinf_stem(word, strlen(word));
        CHECKF(n == strlen(words[i][1]) && !memcmp(word, words[i][1], n), "%s: %.*s", words[i][0],
               (int)n, word);
    }
}

static void test_sentences(void)
{
    struct zinf_rouge r;
    const char *predicted = "Holt wants to buy a gift.\nHe is asking friends.";
    const char *reference =
        "Holt asks his friends for advice.\nHe wants to buy his sister a gift for her birthday.";
    CHECK(!zinf_rouge(predicted, reference, true, &r));
    CHECK(near(r.rouge1, 2.0 / 3) && near(r.rouge2, 0.24));
    CHECK(near(r.l, 4.0 / 9) && near(r.lsum, 2.0 / 3));
    /* Which of two longest subsequences is traced back decides what the second sentence adds. */
    CHECK(!zinf_rouge("y x\nx", "x y", false, &r) && near(r.lsum, 0.4));
    CHECK(!zinf_rouge("", "a", false, &r) && r.rouge1 == 0 && r.l == 0 && r.lsum == 0);
    CHECK(!zinf_rouge("...", "", false, &r) && r.rouge1 == 0 && r.rouge2 == 0);
}

static void test_tokens_of_bleu(void)
{
    char *tokens = zinf_bleu_tokens("Hello world-wide, U.S.A. 1,000 times &amp; more!");
    CHECKF(tokens && !strcmp(tokens, "Hello world-wide , U . S . A . 1,000 times & more !"), "%s",
           tokens);
    free(tokens);
    tokens = zinf_bleu_tokens("\xff. \xe2\x80\x83\xe4\xbd\xa0\x80,2-\n3"); /* not all is UTF-8 */
    CHECKF(tokens && !strcmp(tokens, "\xff . \xe4\xbd\xa0\x80 , 23"), "%s", tokens);
    free(tokens);
    tokens = zinf_bleu_tokens("");
    CHECK(tokens && !*tokens);
    free(tokens);
    char dots[400]; /* four times as long in tokens */
    memset(dots, '!', sizeof dots);
    dots[sizeof dots - 1] = 0;
    tokens = zinf_bleu_tokens(dots);
    CHECK(tokens && strlen(tokens) == 2 * (sizeof dots - 1) - 1);
    free(tokens);
}

static void test_corpus(void)
{
    static const char *const predicted[] = {"The cat sat on the mat.",
                                            "It's a \"test\" of 3.14, isn't it?",
                                            "Hello world-wide, U.S.A. 1,000 times & more!"};
    static const char *const reference[] = {"The cat is sitting on the mat.",
                                            "It is a \"test\" of 3.14, is not it?",
                                            "Hello world-wide, USA 1,000 times and more!"};
    static const uint64_t counts[] = {22, 32, 15, 29, 8, 26, 5, 23};
    struct zinf_scoreboard *board;
    struct zinf_bleu b = {0};
    double value;
    CHECK(!zinf_scoreboard_create(&board, ZINF_SCORED_TEXTS, true));
    for (int i = 0; i < 3; i++) {
        CHECK(!zinf_bleu_add(&b, predicted[i], reference[i]));
        CHECK(!zinf_scoreboard_text(board, predicted[i], reference[i]));
    }
    for (int n = 0; n < 4; n++)
        CHECK(b.matches[n] == counts[2 * n] && b.totals[n] == counts[2 * n + 1]);
    CHECK(fabs(zinf_bleu_score(&b, false) - 39.271835) < 1e-5);
    CHECK(!zinf_scoreboard_value(board, ZINF_METRIC_BLEU, &value));
    CHECK(value == zinf_bleu_score(&b, false));
    CHECK(!zinf_scoreboard_text(board, " same\n", "same"));
    CHECK(!zinf_scoreboard_value(board, ZINF_METRIC_EXACT_MATCH, &value) && value == 0.25);
    CHECK(!zinf_scoreboard_value(board, ZINF_METRIC_ROUGE1, &value) && value > 0.7 && value < 1);
    CHECK(zinf_scoreboard_value(board, ZINF_METRIC_F1, &value) == -EINVAL);
    CHECK(strstr(zinf_error(), "f1"));
    zinf_scoreboard_destroy(board);
}

static void test_nothing_is_no_number(void)
{
    double value;
    for (int m = 0; m < ZINF_METRICS; m++) {
        struct zinf_scoreboard *board;
        CHECK(!zinf_scoreboard_create(&board, zinf_metric_facts(m)->of, false));
        CHECK(!zinf_scoreboard_value(board, m, &value));
        CHECKF(m == ZINF_METRIC_BLEU ? value == 0 : isnan(value), "%s of nothing is %g",
               zinf_metric_facts(m)->name, value);
        zinf_scoreboard_destroy(board);
    }
}

static void test_names(void)
{
    enum zinf_metric metric;
    for (int m = 0; m < ZINF_METRICS; m++)
        CHECK(!zinf_metric_parse(zinf_metric_facts(m)->name, &metric) && metric == (unsigned)m);
    CHECK(!zinf_metric_parse("matthews_correlation", &metric) && metric == ZINF_METRIC_MATTHEWS);
    CHECK(zinf_metric_parse("accurcy", &metric) == -EINVAL && strstr(zinf_error(), "rougeLsum"));
    CHECK(zinf_metric_facts(ZINF_METRIC_MSE)->less_is_better);
}

int main(void)
{
    char path[600];
    snprintf(path, sizeof path, "%s/tests/fixtures/metrics.json", getenv("SRCDIR"));
    if (zinf_json_read_file(path, 1 << 24, ZINF_JSON_STRICT, &fixture)) {
        printf("Bail out! %s\n", zinf_error());
        return 1;
    }
    TAP_RUN(test_rouge);
    TAP_RUN(test_bleu);
    TAP_RUN(test_classes);
    TAP_RUN(test_numbers);
    TAP_RUN(test_stems);
    TAP_RUN(test_sentences);
    TAP_RUN(test_tokens_of_bleu);
    TAP_RUN(test_corpus);
    TAP_RUN(test_nothing_is_no_number);
    TAP_RUN(test_names);
    cJSON_Delete(fixture);
    return tap_done();
}

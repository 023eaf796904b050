/* choices: rows of each benchmark as contexts and continuations of bytes, few-shot examples by
 * subject, and what is wrong with rows. */
#include "text/samples/choices.h"
#include "text_files.h"

static struct zinf_tokenizer *bytes;

static int open_rows(struct zinf_choices **out, struct zinf_choices_options o, const char *rows,
                     const char *examples)
{
    const char *path = write_text("rows.jsonl", rows);
    o.files = &path;
    o.n_files = 1;
    o.tokenizer = bytes;
    o.begin = -1;
    o.few_shot = examples ? write_text("examples.jsonl", examples) : NULL;
    return zinf_choices_open(out, &o);
}

static void check_ids(const struct zinf_choices *c, uint64_t first, uint32_t n, const char *wanted)
{
    char text[512] = "";
    for (uint32_t i = 0; i < n && i < sizeof text - 1; i++)
        text[i] = (char)zinf_choices_ids(c, first)[i];
    CHECKF(!strcmp(text, wanted), "'%s', not '%s'", text, wanted);
}

static void check_question(const struct zinf_choices *c, uint32_t i, const char *context,
                           uint32_t answer, const char *choice)
{
    const struct zinf_question *q = &c->questions[i];
    const struct zinf_answer_text *a = &c->choices[q->first_choice + answer];
    check_ids(c, q->first, q->n_ids, context);
    CHECKF(q->answer == answer, "answer %u, not %u", q->answer, answer);
    check_ids(c, a->first, a->n_ids, choice);
}

static void test_forms(void)
{
    static const char rows[] =
        "{\"question\": \" Who? \", \"choices\": [\"me\", \"you\"], \"answer\": 1}\n"
        "{\"question\": \"Who?\", \"choices\": {\"text\": [\"me\", \"you\"], \"label\": [\"1\", "
        "\"2\"]}, \"answerKey\": \"2\"}\n"
        "{\"activity_label\": \"Tea\", \"ctx_a\": \"He [step] boils.\", \"ctx_b\": \"then he\", "
        "\"ctx\": \"x\", \"endings\": [\"drinks [title] End\", \"s\\u00e4gt\"], \"label\": "
        "\"1\"}\n"
        "{\"context\": \"One and one is\", \"options\": [\"two\", \"three\"], \"gold\": \"two\"}\n"
        "{\"question\": \"Who?\", \"A\": \"me\", \"B\": \"you\", \"C\": \"they\", \"answer\": "
        "\"c\"}\n";
    struct zinf_choices *c = NULL;
    CHECKF(!open_rows(&c, (struct zinf_choices_options){0}, rows, NULL), "%s", zinf_error());
    if (!c)
        return;
    CHECK(c->n == 5 && c->n_choices == 11 && !c->n_subjects);
    check_question(c, 0, "Who?\nA. me\nB. you\nAnswer:", 1, " B");
    check_question(c, 1, "Question: Who?\nAnswer:", 1, " you");
    check_question(c, 2, "Tea: He boils. Then he", 1, " s\xc3\xa4gt");
    CHECK(c->choices[5].chars == 4 && c->choices[5].bytes == 5);
    check_ids(c, c->choices[4].first, c->choices[4].n_ids, " drinks. End");
    check_question(c, 3, "One and one is", 0, " two");
    check_question(c, 4, "Who?\nA. me\nB. you\nC. they\nAnswer:", 2, " C");
    zinf_choices_close(c);
}

static void test_styles(void)
{
    static const char row[] = "{\"q\": \"Who?\", \"o\": [\"me\", \"you\"], \"r\": \"A\"}\n";
    struct zinf_choices_options o = {.question_column = "q",
                                     .choices_column = "o",
                                     .answer_column = "r",
                                     .style = ZINF_CHOICES_LETTERS,
                                     .description = "Answer."};
    struct zinf_choices *c = NULL;
    CHECKF(!open_rows(&c, o, row, NULL), "%s", zinf_error());
    if (c)
        check_question(c, 0, "Answer.\n\nWho?\nA. me\nB. you\nAnswer:", 0, " A");
    zinf_choices_close(c);
}

static void test_shots(void)
{
    static const char rows[] = "{\"question\": \"Q\", \"choices\": [\"x\", \"y\"], \"answer\": 0, "
                               "\"subject\": \"college_law\"}\n"
                               "{\"question\": \"R\", \"choices\": [\"x\", \"y\"], \"answer\": 1, "
                               "\"subject\": \"anatomy\"}\n";
    static const char examples[] =
        "{\"question\": \"E\", \"choices\": [\"a\", \"b\"], \"answer\": 1, \"subject\": "
        "\"anatomy\"}\n"
        "{\"question\": \"F\", \"choices\": [\"a\", \"b\"], \"answer\": 0, \"subject\": "
        "\"college_law\"}\n"
        "{\"question\": \"G\", \"choices\": [\"a\", \"b\"], \"answer\": 0, \"subject\": "
        "\"anatomy\"}\n";
    struct zinf_choices_options o = {.n_shots = 1};
    struct zinf_choices *c = NULL;
    CHECKF(!open_rows(&c, o, rows, examples), "%s", zinf_error());
    if (!c)
        return;
    check_question(c, 0,
                   "The following are multiple choice questions (with answers) about college "
                   "law.\n\nF\nA. a\nB. b\nAnswer: A\n\nQ\nA. x\nB. y\nAnswer:",
                   0, " A");
    CHECK(c->n_subjects == 2 && !strcmp(c->subjects[0], "anatomy") && !c->groups[1]);
    CHECK(c->questions[0].subject == 1 && c->groups[0] && !strcmp(c->groups[0], "stem"));
    zinf_choices_close(c);
    o.n_shots = 2;
    CHECK(open_rows(&c, o, rows, examples) == -EINVAL);
    CHECK(strstr(zinf_error(), "1 examples of the subject college_law"));
}

static void test_refusals(void)
{
    static const char *const rows[][2] = {
        {"{\"question\": \"Q\", \"choices\": [\"x\", \"y\"], \"answer\": 2}\n", "none of the 2"},
        {"{\"question\": \"Q\", \"choices\": [\"x\"], \"answer\": 0}\n", "one choice"},
        {"{\"question\": \"Q\", \"answer\": 0}\n", "--target-column"},
        {"{\"question\": \"Q\", \"choices\": [\"x\", \"y\"]}\n", "--label-column"},
        {"{\"asks\": \"Q\", \"choices\": [\"x\", \"y\"], \"answer\": 0}\n", "--source-column"},
        {"{\"question\": \"Q\", \"choices\": [\"x\", 2], \"answer\": 0}\n", "choice 2 is no text"},
        {"{\"context\": \" \", \"choices\": [\"x\", \"y\"], \"answer\": 0}\n", "empty"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct zinf_choices *c = NULL;
        int code = open_rows(&c, (struct zinf_choices_options){0}, rows[i][0], NULL);
        CHECKF(code == -EINVAL && strstr(zinf_error(), rows[i][1]) && strstr(zinf_error(), "row 1"),
               "%zu: %s", i, code ? zinf_error() : "taken");
        zinf_choices_close(c);
    }
}

int main(void)
{
    char command[64];
    if (!mkdtemp(folder) || zinf_tokenizer_bytes(&bytes)) {
        printf("Bail out! %s\n", zinf_error());
        return 1;
    }
    TAP_RUN(test_forms);
    TAP_RUN(test_styles);
    TAP_RUN(test_shots);
    TAP_RUN(test_refusals);
    zinf_tokenizer_close(bytes);
    snprintf(command, sizeof command, "rm -rf %s", folder);
    CHECK(!system(command));
    return tap_done();
}

/* rows: what a row lets through, the configuration that it sets takes too. */
#include "api/rows.h"
#include "api/session.h"

#include "tap.h"

static const struct option *const all[] = {
    job_device,   job_seats,        job_rows,  job_task,    job_head,        job_step,
    job_pairs,    job_model,        job_shape, job_begin,   job_eval,        job_output,
    job_saves,    job_epochs,       job_seq,   job_source,  job_pad,         job_shuffle,
    job_group,    job_shape_length, job_best,  job_dtype,   job_micro,       job_seed,
    job_template, job_chat,         job_texts, job_metrics, job_predictions, job_shape_task};
#define N_ALL (sizeof all / sizeof *all)

/* The value itself must not be refused; that others are missing beside it does not matter. */
static void check_taken(const struct option *row, const char *text)
{
    const struct option_group group = {.rows = row};
    static struct zinf_session session; /* large */
    struct zinf_config *config = NULL;
    char begin[64];
    memset(&session, 0, sizeof session);
    session.job.steps = -1;
    session.use = JOB_TRAINS;
    CHECKF(!option_read(row, &group, text, row->flag, &session.job), "%s", zinf_error());
    struct zinf_config_context context = session_context(&session);
    context.steps = 10;
    context.quiet = true;
    snprintf(begin, sizeof begin, "%s:", row->flag);
    int code = zinf_config_parse(&config, "{}", 2, "test", &context);
    CHECKF(!code || strncmp(zinf_error(), begin, strlen(begin)), "%s %s: %s", row->flag, text,
           zinf_error());
    zinf_config_destroy(config);
}

static void check_row(const struct option *row)
{
    char text[40];
    const char *word;
    CHECKF(!strncmp(row->flag, "--", 2) && row->help, "%s", row->flag);
    CHECKF((row->kind == OPTION_FLAG) == !row->value, "%s has a value, or has none", row->flag);
    CHECKF(!row->usual || !row->otherwise, "%s has two defaults", row->flag);
    if (!row->key)
        return;
    for (size_t i = 0; (word = option_word(row, i)); i++)
        check_taken(row, word);
    if (row->kind == OPTION_FLAG)
        check_taken(row, "true");
    if (row->kind == OPTION_SIZE)
        check_taken(row, "1GiB");
    if (row->kind != OPTION_INTEGER && row->kind != OPTION_NUMBER)
        return;
    for (int end = 0; end < 2; end++) {
        snprintf(text, sizeof text, row->kind == OPTION_INTEGER ? "%.0f" : "%.17g",
                 end ? row->max : row->min);
        check_taken(row, text);
    }
}

static void test_rows(void)
{
    for (size_t g = 0; g < N_ALL; g++)
        for (const struct option *row = all[g]; row->flag; row++)
            check_row(row);
}

static void test_words_of_keys(void)
{
    int place;
    CHECK(!zinf_config_key_word("zinf.gather", "device", &place) && place == 2);
    CHECK(!zinf_config_key_word("zinf.gather", NULL, &place) && place == 0);
    CHECK(zinf_config_key_word("zinf.gather", "devices", &place) == -EINVAL);
    CHECK(strstr(zinf_error(), "zinf.gather"));
}

static int read_length(const char *text, int64_t *out)
{
    static struct zinf_session session; /* large */
    const struct option_group group = {.rows = job_seq};
    int code = option_read(job_seq, &group, text, "--seq-len", &session.job);
    *out = session.job.seq_len;
    return code;
}

static void test_lengths(void)
{
    int64_t n;
    CHECK(!read_length("1000", &n) && n == 1000);
    CHECK(!read_length("64K", &n) && n == 65536);
    CHECK(!read_length("1M", &n) && n == 1048576);
    CHECK(read_length("17M", &n) == -EINVAL && strstr(zinf_error(), "out of range"));
    CHECK(read_length("9223372036854775807K", &n) == -EINVAL && strstr(zinf_error(), "too large"));
    CHECK(read_length("M", &n) == -EINVAL && strstr(zinf_error(), "'M' is not a whole number"));
    CHECK(read_length("1KM", &n) == -EINVAL && read_length("1G", &n) == -EINVAL);
}

int main(void)
{
    TAP_RUN(test_rows);
    TAP_RUN(test_lengths);
    TAP_RUN(test_words_of_keys);
    return tap_done();
}

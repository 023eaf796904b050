/* flow: windows of rows that are taken as they are needed: the same as those of a file, made again
 * from any mark, of rows without an end, and never far ahead. */
#include "base/pulse.h"
#include "tap.h"
#include "text/samples/flow.h"

#include <stdlib.h>
#include <unistd.h>

#define SEQ 7
#define STEP 3 /* windows */

/* Rows of a few lengths, among them empty ones and one that is much longer than a window. */
struct source {
    uint64_t n, at, taken; /* rows of a pass; the next; all that were given */
    bool once;             /* there is no second pass */
    uint64_t fails_at;     /* row, from 1; 0: none */
    int code;              /* there; 0: -EIO */
    bool empty;            /* no row has a text */
    char text[700];
};

static void make_row(uint64_t row, char out[700])
{
    static const int lengths[] = {0, 5, 0, 31, 1, 2, 12, 600, 3, 0};
    const int n = lengths[row % 10];
    char words[601];
    for (int i = 0; i < n; i++)
        words[i] = (char)('a' + (row * 7 + (uint64_t)i) % 26);
    words[n] = 0;
    snprintf(out, 700, "{\"text\": \"%s\"}", words);
}

static int next(void *arg, const char **row)
{
    struct source *s = arg;
    if (s->at == s->n)
        return 0;
    if (s->fails_at && s->taken + 1 == s->fails_at)
        return zinf_fail(s->code ? s->code : -EIO, "the source is gone");
    make_row(s->empty ? 0 : s->at, s->text);
    s->at++;
    s->taken++;
    *row = s->text;
    return 1;
}

static int skip(void *arg, uint64_t n)
{
    struct source *s = arg;
    if (s->once && n < s->at)
        return zinf_fail(-ESPIPE, "read once");
    s->at = n;
    return 0;
}

static struct zinf_tokenizer *tokenizer;

static struct zinf_dataset *flow_of(struct source *source, uint64_t buffer)
{
    struct zinf_dataset *out = NULL;
    const struct zinf_flow_options options = {
        .rows = {.next = next, .skip = skip, .arg = source},
        .name = "the rows",
        .step = STEP,
        .limit = UINT64_MAX,
        .group = buffer,
        .key = 5,
        .stream = {.tokenizer = tokenizer,
                   .seq_len = SEQ,
                   .vocab = 257,
                   .shuffle = buffer > 0,
                   .seed = 9},
    };
    CHECKF(!zinf_flow_open(&out, &options), "%s", zinf_error());
    return out;
}

static int reaches(struct zinf_dataset *data, uint64_t end)
{
    uint64_t sum;
    return zinf_dataset_reaches(data, end, UINT64_MAX, &sum);
}

struct window {
    int32_t ids[SEQ], targets[SEQ];
};

static struct window window_at(struct zinf_dataset *data, uint64_t position)
{
    struct window w = {{0}, {0}};
    CHECKF(!zinf_dataset_window(data, position, w.ids, w.targets), "%s", zinf_error());
    return w;
}

static void test_a_file_has_the_same_windows(void)
{
    char folder[] = "flow-test-XXXXXX", path[64], row[700];
    const char *files[] = {path};
    struct zinf_dataset *file = NULL;
    struct source source = {.n = 25};
    CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof path, "%s/rows.jsonl", folder);
    FILE *out = fopen(path, "w");
    CHECK(out != NULL);
    for (uint64_t i = 0; out && i < source.n; i++) {
        make_row(i, row);
        fprintf(out, "%s\n", row);
    }
    CHECK(out && !fclose(out));
    const struct zinf_dataset_options options = {
        .files = files, .n_files = 1, .tokenizer = tokenizer, .seq_len = SEQ, .vocab = 257};
    CHECKF(!zinf_dataset_open(&file, &options), "%s", zinf_error());
    struct zinf_dataset *flow = flow_of(&source, 0);
    const uint64_t n = file ? zinf_dataset_n_windows(file) : 0;
    CHECK(n > 100 && zinf_dataset_flows(flow) && !zinf_dataset_flows(file));
    for (uint64_t p = 0; p < n; p++) {
        const struct window a = window_at(file, p), b = window_at(flow, p);
        CHECKF(!memcmp(&a, &b, sizeof a), "window %llu", (unsigned long long)p);
    }
    zinf_dataset_close(flow);
    zinf_dataset_close(file);
    unlink(path);
    rmdir(folder);
}

/* Of rows without an end, at every position, with and without a buffer. */
static void test_a_mark_makes_the_windows_again(void)
{
    static const uint64_t buffers[] = {0, 1, 10};
    for (int b = 0; b < 3; b++) {
        struct source whole = {.n = 13};
        struct zinf_dataset *all = flow_of(&whole, buffers[b]);
        enum { WINDOWS = 400 };
        static struct window found[WINDOWS];
        static struct zinf_flow_mark marks[WINDOWS];
        for (uint64_t p = 0; p < WINDOWS; p++) {
            marks[p] = zinf_dataset_mark(all, p);
            found[p] = window_at(all, p);
        }
        CHECK(marks[WINDOWS - 1].pass > 0);
        for (uint64_t p = 0; p < WINDOWS - 5; p += 3) {
            struct source again = {.n = 13};
            struct zinf_dataset *rest = flow_of(&again, buffers[b]);
            zinf_dataset_go_on(rest, &marks[p]);
            for (uint64_t k = p; k < p + 5; k++) {
                const struct window w = window_at(rest, k);
                CHECKF(!memcmp(&w, &found[k], sizeof w), "buffer %d, window %llu from %llu", b,
                       (unsigned long long)k, (unsigned long long)p);
            }
            zinf_dataset_close(rest);
        }
        zinf_dataset_close(all);
    }
}

static void test_rows_are_taken_as_they_are_needed(void)
{
    struct source source = {.n = UINT64_MAX};
    struct zinf_dataset *flow = flow_of(&source, 0);
    window_at(flow, 0);
    usleep(100000); /* time to read too far ahead; then the thread ends */
    zinf_dataset_stop(flow);
    CHECKF(source.taken < 12, "%llu rows",
           (unsigned long long)source.taken); /* of 65 tokens each */
    zinf_dataset_close(flow);

    source = (struct source){.n = UINT64_MAX};
    flow = flow_of(&source, 1); /* groups that are shorter than a step */
    for (uint64_t p = 0; p < 900; p++)
        window_at(flow, p);
    struct window w;
    CHECK(zinf_dataset_window(flow, 2, w.ids, w.targets) == -EINVAL);
    CHECK(strstr(zinf_error(), "rows are read once") != NULL);
    window_at(flow, 900 - 2 * STEP); /* two steps are kept, for other seats */
    zinf_dataset_close(flow);
}

/* A buffer that is larger than the data has one pass of them, and goes on from any mark. */
static void test_a_group_ends_with_a_pass(void)
{
    struct source source = {.n = 25};
    struct zinf_dataset *flow = flow_of(&source, 1 << 30);
    window_at(flow, 0);
    CHECKF(source.taken < 5 * source.n, "%llu rows", (unsigned long long)source.taken);
    zinf_dataset_close(flow);
}

static void test_rows_that_end_or_fail(void)
{
    struct source source = {.n = 25, .once = true};
    struct zinf_dataset *flow = flow_of(&source, 0);
    uint64_t n = 0;
    while (reaches(flow, n + 1) == 1)
        n++;
    CHECKF(n > 100 && source.taken == 25, "%llu windows", (unsigned long long)n);
    window_at(flow, n - 1);
    struct window w;
    CHECK(zinf_dataset_window(flow, n, w.ids, w.targets) == -ENODATA);
    zinf_dataset_close(flow);

    source = (struct source){.n = 25, .fails_at = 19};
    flow = flow_of(&source, 0);
    for (n = 0; reaches(flow, n + 1) == 1;)
        n++;
    CHECK(n > 80 && reaches(flow, n + 1) == -EIO);
    CHECK(!strcmp(zinf_error(), "the source is gone"));
    window_at(flow, n - 1); /* what was there before */
    zinf_dataset_close(flow);

    source = (struct source){.n = 25, .fails_at = 1, .code = -EAGAIN};
    flow = flow_of(&source, 0);
    CHECK(reaches(flow, 1) == -EIO); /* whoever hears -EAGAIN asks again */
    zinf_dataset_close(flow);
}

static int open_nothing(void *arg, const char *path, uint64_t first_row, uint64_t seed,
                        struct zinf_dataset **out)
{
    (void)arg;
    (void)path;
    (void)first_row;
    (void)seed;
    *out = NULL;
    return 0;
}

static void test_rows_without_a_text(void)
{
    struct source source = {.n = 4, .empty = true};
    struct zinf_dataset *flow = flow_of(&source, 0);
    struct window w;
    CHECK(zinf_dataset_window(flow, 0, w.ids, w.targets) == -EINVAL);
    CHECKF(strstr(zinf_error(), "no row has anything to train on"), "%s", zinf_error());
    zinf_dataset_close(flow);

    /* Samples: nothing is left of any group. */
    char path[] = "flow-test-rows.jsonl";
    const struct zinf_flow_options options = {.rows = {.next = next, .skip = skip, .arg = &source},
                                              .name = "the rows",
                                              .step = STEP,
                                              .limit = UINT64_MAX,
                                              .group = 3,
                                              .open = open_nothing,
                                              .path = path};
    source.at = 0;
    CHECKF(!zinf_flow_open(&flow, &options), "%s", zinf_error());
    CHECK(reaches(flow, 1) == -EINVAL);
    zinf_dataset_close(flow);
    CHECK(access(path, F_OK) != 0);
}

/* Of rows that never have a text and never end, too. */
static void test_who_stops_is_heard(void)
{
    struct source source = {.n = UINT64_MAX, .empty = true};
    struct zinf_dataset *flow = flow_of(&source, 0);
    struct zinf_pulse pulse;
    struct window w;
    zinf_pulse_init(&pulse, NULL);
    zinf_pulse_end(&pulse, -EINTR, "stop");
    zinf_pulse_set(&pulse);
    CHECK(zinf_dataset_window(flow, 0, w.ids, w.targets) == -EINTR);
    zinf_pulse_set(NULL);
    zinf_dataset_close(flow);
}

static void test_another_row_at_a_mark(void)
{
    struct source source = {.n = 9};
    struct zinf_dataset *flow = flow_of(&source, 0);
    zinf_dataset_go_on(flow, &(struct zinf_flow_mark){.row = 1, .token = 99, .first = 4});
    struct window w;
    CHECK(zinf_dataset_window(flow, 4, w.ids, w.targets) == -EINVAL);
    CHECK(strstr(zinf_error(), "row 2 is another one than") != NULL);
    zinf_dataset_close(flow);
}

int main(void)
{
    CHECK(!zinf_tokenizer_bytes(&tokenizer));
    TAP_RUN(test_a_file_has_the_same_windows);
    TAP_RUN(test_a_mark_makes_the_windows_again);
    TAP_RUN(test_rows_are_taken_as_they_are_needed);
    TAP_RUN(test_a_group_ends_with_a_pass);
    TAP_RUN(test_rows_that_end_or_fail);
    TAP_RUN(test_rows_without_a_text);
    TAP_RUN(test_who_stops_is_heard);
    TAP_RUN(test_another_row_at_a_mark);
    zinf_tokenizer_close(tokenizer);
    return tap_done();
}

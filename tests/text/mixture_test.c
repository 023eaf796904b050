/* mixture: whose windows come when, of streams and of samples, at any position and in any order. */
#include "tap.h"
#include "text/samples/samples.h"
#include "text/text.h"

#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#define PARTS 3
#define SEQ 4

static char folder[] = "mixture-test-XXXXXX";

/* n windows of one letter, so that a window says whose it is and an odd end is cut. */
static struct zinf_dataset *letters(char letter, uint64_t n)
{
    struct zinf_tokenizer *tokenizer = NULL;
    struct zinf_dataset *out = NULL;
    char text[4096], path[64];
    const char *files[] = {path};
    snprintf(path, sizeof path, "%s/%c.txt", folder, letter);
    memset(text, letter, n * SEQ + 2);
    CHECK(!zinf_tokenizer_bytes(&tokenizer));
    CHECK(!zinf_file_write_atomic(path, text, n * SEQ + 2));
    const struct zinf_dataset_options options = {
        .files = files, .n_files = 1, .tokenizer = tokenizer, .seq_len = SEQ, .vocab = 257};
    CHECKF(!zinf_dataset_open(&out, &options), "%s", zinf_error());
    CHECK(out && zinf_dataset_n_windows(out) == n);
    zinf_tokenizer_close(tokenizer);
    return out;
}

static struct zinf_dataset *mix(const double weights[PARTS], uint32_t together)
{
    static const uint64_t sizes[PARTS] = {6, 10, 4};
    struct zinf_dataset_part parts[PARTS];
    struct zinf_dataset *out = NULL;
    for (int k = 0; k < PARTS; k++)
        parts[k] =
            (struct zinf_dataset_part){.weight = weights[k], .data = letters('a' + k, sizes[k])};
    CHECKF(!zinf_dataset_mix(&out, parts, PARTS, together), "%s", zinf_error());
    return out;
}

static int part_at(struct zinf_dataset *data, uint64_t position)
{
    int32_t ids[SEQ], targets[SEQ];
    CHECK(!zinf_dataset_window(data, position, ids, targets));
    return ids[0] - 'a';
}

/* After any number of windows each part has had its share, and is ahead or behind by no more than
 * the best order of n parts can be for any weights, 1 - 1 / (2 n - 2) windows (Tijdeman, The
 * chairman assignment problem, Discrete Mathematics 32, 1980). */
static void test_shares_hold_at_every_position(void)
{
    static const double bound = 1 - 1.0 / (2 * PARTS - 2);
    static const double weights[][PARTS] = {{0.7, 0.2, 0.1},       {3, 1, 1},    {1, 1, 1},
                                            {0.333, 0.333, 0.334}, {1e-6, 1, 2}, {97, 2, 1}};
    for (size_t w = 0; w < sizeof weights / sizeof *weights; w++) {
        struct zinf_dataset *data = mix(weights[w], 1);
        double had[PARTS] = {0}, most = 0;
        for (uint64_t p = 0; data && p < 5000; p++) {
            had[part_at(data, p)]++;
            for (uint32_t k = 0; k < PARTS; k++) {
                const double due = zinf_dataset_part_share(data, k) * (double)(p + 1);
                most = fmax(most, fabs(had[k] - due));
            }
        }
        CHECKF(most < bound, "weights %zu: a part is off by %.3f windows", w, most);
        zinf_dataset_close(data);
    }
}

static void test_weights_of_few_decimals_are_exact(void)
{
    struct zinf_dataset *data = mix((const double[]){0.7, 0.2, 0.1}, 1);
    uint64_t had[PARTS] = {0};
    for (uint64_t p = 0; p < 10; p++)
        had[part_at(data, p)]++;
    CHECK(had[0] == 7 && had[1] == 2 && had[2] == 1);
    CHECK(zinf_dataset_n_windows(data) == 20 && zinf_dataset_n_parts(data) == PARTS);
    zinf_dataset_close(data);
}

/* The k-th window of a part in the mixture is the k-th that it gives by itself, however positions
 * are asked for: windows of pairs two by two. */
static struct zinf_dataset *numbered(uint64_t n, uint64_t seed)
{
    struct zinf_tokenizer *tokenizer = NULL;
    struct zinf_dataset *out = NULL;
    char text[4096], path[64];
    const char *files[] = {path};
    snprintf(path, sizeof path, "%s/numbered-%llu.txt", folder, (unsigned long long)n);
    for (uint64_t i = 0; i <= n * SEQ + 1; i++)
        text[i] = (char)(32 + i / SEQ);
    CHECK(!zinf_tokenizer_bytes(&tokenizer));
    CHECK(!zinf_file_write_atomic(path, text, n * SEQ + 2));
    const struct zinf_dataset_options options = {.files = files,
                                                 .n_files = 1,
                                                 .tokenizer = tokenizer,
                                                 .seq_len = SEQ,
                                                 .vocab = 257,
                                                 .shuffle = true,
                                                 .seed = seed};
    CHECKF(!zinf_dataset_open(&out, &options), "%s", zinf_error());
    zinf_tokenizer_close(tokenizer);
    return out;
}

static void check_own_order(uint32_t together)
{
    static const uint64_t sizes[2] = {24, 50};
    struct zinf_dataset *own[2] = {numbered(sizes[0], 3), numbered(sizes[1], 3)}, *data = NULL;
    const struct zinf_dataset_part parts[2] = {{"one", 2, numbered(sizes[0], 3)},
                                               {NULL, 1, numbered(sizes[1], 3)}};
    uint64_t had[2] = {0};
    CHECKF(!zinf_dataset_mix(&data, parts, 2, together), "%s", zinf_error());
    for (uint64_t p = 0; data && p < 300; p++) {
        const int k = p / together % 3 == 1; /* two of the first, one of the second: 0 1 0 */
        int32_t ids[SEQ], targets[SEQ], wanted[SEQ], after[SEQ];
        CHECK(!zinf_dataset_window(data, p, ids, targets));
        CHECK(!zinf_dataset_window(own[k], had[k]++, wanted, after));
        CHECKF(!memcmp(ids, wanted, sizeof ids) && !memcmp(targets, after, sizeof after),
               "position %llu", (unsigned long long)p);
    }
    CHECK(!strcmp(zinf_dataset_part_name(data, 0), "one") && !zinf_dataset_part_name(data, 1));
    zinf_dataset_close(own[0]);
    zinf_dataset_close(own[1]);
    zinf_dataset_close(data);
}

static void test_parts_keep_their_own_order(void)
{
    check_own_order(1);
    check_own_order(2);
}

static void test_files_and_order(void)
{
    struct zinf_dataset *a = mix((const double[]){1, 1, 2}, 1),
                        *b = mix((const double[]){1, 1, 3}, 1),
                        *same = mix((const double[]){0.5, 0.5, 1}, 1);
    struct zinf_data_file file;
    int32_t ids[2];
    CHECK(zinf_dataset_n_files(a) == PARTS && !zinf_dataset_file(a, 2, &file));
    CHECK(strstr(file.path, "c.txt") && zinf_dataset_file(a, PARTS, &file) < 0);
    CHECK(zinf_dataset_order(a) != zinf_dataset_order(b));
    CHECK(zinf_dataset_order(a) == zinf_dataset_order(same));
    CHECK(zinf_dataset_read(a, 0, 2, ids) == -ENOTSUP);
    CHECK(!zinf_dataset_has_samples(a) && !zinf_dataset_samples(a));
    CHECK(zinf_dataset_window_rows(a, 7).ids == SEQ);
    zinf_dataset_close(a);
    zinf_dataset_close(b);
    zinf_dataset_close(same);
}

static void test_what_is_refused(void)
{
    static const double wrong[] = {0, -1, 1.0 / 0.0};
    struct zinf_dataset *out = NULL;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        const struct zinf_dataset_part parts[] = {{NULL, 1, letters('a', 2)},
                                                  {NULL, wrong[i], letters('b', 2)}};
        CHECK(zinf_dataset_mix(&out, parts, 2, 1) == -EINVAL && !out);
    }
    char name[ZINF_MOST_SET_NAME + 1] = "";
    memset(name, 'n', ZINF_MOST_SET_NAME);
    const struct zinf_dataset_part named = {name, 1, letters('a', 2)};
    CHECK(zinf_dataset_mix(&out, &named, 1, 1) == -EINVAL && !out);
    name[ZINF_MOST_SET_NAME - 1] = 0;
    const struct zinf_dataset_part good = {name, 1, letters('a', 2)};
    CHECK(!zinf_dataset_mix(&out, &good, 1, 1));
    zinf_dataset_close(out);
}

int main(void)
{
    if (!mkdtemp(folder))
        return 99;
    TAP_RUN(test_shares_hold_at_every_position);
    TAP_RUN(test_weights_of_few_decimals_are_exact);
    TAP_RUN(test_parts_keep_their_own_order);
    TAP_RUN(test_files_and_order);
    TAP_RUN(test_what_is_refused);
    char command[64];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command) ? 99 : tap_done();
}

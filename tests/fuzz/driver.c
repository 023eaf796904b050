/*
 * fuzz driver: main() for LLVMFuzzerTestOneInput targets where libFuzzer is not there, so that
 * `make check` runs every target: first each file of the corpus, then seeded mutations of them
 * for about a second. Mutation i is the same in every run. An input that crashes or hangs is left
 * in fuzz_TARGET.crash in the working directory. One TAP line a target.
 *
 * Corpus: argument 1, else $SRCDIR/tests/fuzz/corpus/TARGET. Seconds: ZINF_FUZZ_SECONDS.
 */
#include "base/base.h"
#include "base/random.h"
#include "fuzz.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#ifndef FUZZ_TARGET
#error "compile with -DFUZZ_TARGET='\"name\"'"
#endif

#define MAX_INPUT_BYTES (1u << 20)
#define HANG_SECONDS 20 /* per input; far above any honest one, also under sanitizers */

/* Present only in a sanitizer build, where a report ends the process without a signal. */
extern void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));

struct seed {
    uint8_t *data;
    size_t bytes;
};

static struct seed *seeds;
static size_t n_seeds;
static const uint8_t *volatile current; /* what the target is looking at */
static volatile size_t current_bytes;

/* ---- when the target dies ---- */

/* Only async-signal-safe calls: this runs inside a handler. */
static void keep_input(void)
{
    static const char path[] = "fuzz_" FUZZ_TARGET ".crash";
    static const char said[] =
        "not ok 1 - fuzz " FUZZ_TARGET ": the input is kept in fuzz_" FUZZ_TARGET ".crash\n";
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return;
    ssize_t n = write(fd, current, current_bytes);
    n = write(STDOUT_FILENO, said, sizeof said - 1);
    (void)n;
    close(fd);
}

static void on_signal(int number)
{
    keep_input();
    signal(number, SIG_DFL);
    raise(number);
}

/* A sanitizer keeps the fault signals for itself and calls back. */
static void watch_for_death(void)
{
    static const int signals[] = {SIGABRT, SIGALRM, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    size_t count = sizeof signals / sizeof *signals;
    if (__sanitizer_set_death_callback) {
        __sanitizer_set_death_callback(keep_input);
        count = 2;
    }
    for (size_t i = 0; i < count; i++)
        signal(signals[i], on_signal);
}

/* ---- the corpus ---- */

static int compare_names(const struct dirent **a, const struct dirent **b)
{
    return strcmp((*a)->d_name, (*b)->d_name);
}

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* In name order, whatever the locale or the file system says. */
static int load_corpus(const char *folder)
{
    struct dirent **entries;
    int count = scandir(folder, &entries, is_visible, compare_names);
    int code = 0;
    if (count < 0)
        return zinf_fail(-errno, "cannot list the corpus %s: %s", folder, strerror(errno));
    seeds = calloc((size_t)count + 1, sizeof *seeds);
    for (int i = 0; i < count; i++) {
        char *path = zinf_path_join(folder, entries[i]->d_name);
        char *data = NULL;
        size_t bytes;
        if (!code && seeds && path)
            code = zinf_file_read(path, MAX_INPUT_BYTES, &data, &bytes);
        if (data)
            seeds[n_seeds++] = (struct seed){(uint8_t *)data, bytes};
        free(path);
        free(entries[i]);
    }
    free(entries);
    if (!code && !n_seeds)
        code = zinf_fail(-ENOENT, "the corpus %s is empty", folder);
    return code;
}

/* ---- mutation ---- */

struct dice {
    uint32_t counter[4], block[4];
    unsigned used;
};

static uint32_t roll(struct dice *dice, size_t sides)
{
    if (dice->used == 4) {
        dice->counter[3]++;
        dice->used = 0;
    }
    if (dice->used == 0)
        zinf_philox(dice->counter, 0x5eed, dice->block);
    return dice->block[dice->used++] % (uint32_t)(sides ? sides : 1);
}

/* Puts n bytes of from at data[at], moving the rest up; keeps within the cap. */
static size_t insert(uint8_t *data, size_t bytes, size_t at, const uint8_t *from, size_t n)
{
    if (n > MAX_INPUT_BYTES - bytes)
        return bytes;
    memmove(data + at + n, data + at, bytes - at);
    memcpy(data + at, from, n);
    return bytes + n;
}

/* Values that sit on the edges of lengths, ranks and offsets. */
static uint64_t edge_value(struct dice *dice)
{
    static const uint64_t edges[] = {0,
                                     1,
                                     2,
                                     7,
                                     8,
                                     9,
                                     100000000,
                                     0x7fffffff,
                                     0x80000000,
                                     0xffffffff,
                                     INT64_MAX,
                                     UINT64_MAX,
                                     UINT64_MAX - 7};
    return edges[roll(dice, sizeof edges / sizeof *edges)];
}

static size_t mutate_once(struct dice *dice, uint8_t *data, size_t bytes)
{
    static const uint8_t interesting[] = "{}[]\",:0159.-+eE\\u/*# \n\0\xff\x80\xc3";
    size_t at = roll(dice, bytes), left = bytes - at;
    size_t span = 1 + roll(dice, left < 64 ? left : 64);
    const struct seed *other = &seeds[roll(dice, n_seeds)];
    size_t from = roll(dice, other->bytes);
    uint8_t copy[64];
    char digits[24];
    uint64_t edge = edge_value(dice);
    span = span > left ? left : span;
    switch (roll(dice, 8)) {
    case 0: /* one bit */
        if (left)
            data[at] ^= (uint8_t)(1u << roll(dice, 8));
        return bytes;
    case 1: /* one byte of the grammar */
        if (left)
            data[at] = interesting[roll(dice, sizeof interesting)];
        return bytes;
    case 2: /* a binary integer */
        memcpy(data + at, &edge, left < sizeof edge ? left : sizeof edge);
        return bytes;
    case 3: /* a decimal integer, in the place of a digit if there is one near */
        for (size_t i = at; i < at + span; i++)
            if (data[i] >= '0' && data[i] <= '9') {
                int n = snprintf(digits, sizeof digits, "%llu", (unsigned long long)edge);
                memmove(data + i, data + i + 1, bytes - i - 1);
                return insert(data, bytes - 1, i, (const uint8_t *)digits, (size_t)n);
            }
        return bytes;
    case 4: /* cut a span out */
        memmove(data + at, data + at + span, left - span);
        return bytes - span;
    case 5: /* say a span twice */
        memcpy(copy, data + at, span);
        return insert(data, bytes, at, copy, span);
    case 6: /* a span of another seed */
        span = other->bytes - from < 64 ? other->bytes - from : 64;
        return insert(data, bytes, at, other->data + from, span);
    default: /* cut the end off */
        return at;
    }
}

/* ---- running ---- */

/* The target sees a block of exactly this size, so that a sanitizer sees one byte too many. */
static void run_one(const uint8_t *data, size_t bytes)
{
    uint8_t *exact = malloc(bytes ? bytes : 1);
    if (!exact)
        return;
    memcpy(exact, data, bytes);
    current = exact;
    current_bytes = bytes;
    alarm(HANG_SECONDS);
    LLVMFuzzerTestOneInput(exact, bytes);
    alarm(0);
    free(exact);
}

static uint64_t run_mutations(double seconds)
{
    uint8_t *data = malloc(MAX_INPUT_BYTES);
    uint64_t end = zinf_now_ns() + (uint64_t)(seconds * 1e9), i = 0;
    while (data && zinf_now_ns() < end) {
        struct dice dice = {.counter = {(uint32_t)i, (uint32_t)(i >> 32)}};
        const struct seed *seed = &seeds[i++ % n_seeds];
        size_t bytes = seed->bytes;
        memcpy(data, seed->data, bytes);
        for (uint32_t n = 1 + roll(&dice, 4); n > 0; n--)
            bytes = mutate_once(&dice, data, bytes);
        run_one(data, bytes);
    }
    free(data);
    return i;
}

int main(int argc, char **argv)
{
    const char *source = getenv("SRCDIR"), *seconds = getenv("ZINF_FUZZ_SECONDS");
    char folder[4096];
    snprintf(folder, sizeof folder, "%s/tests/fuzz/corpus/" FUZZ_TARGET, source ? source : ".");
    zinf_log_set_level(ZINF_LOG_ERROR);
    printf("1..1\n");
    fflush(stdout);
    if (load_corpus(argc > 1 ? argv[1] : folder)) {
        printf("not ok 1 - fuzz " FUZZ_TARGET ": %s\n", zinf_error());
        return 1;
    }
    watch_for_death();
    for (size_t i = 0; i < n_seeds; i++)
        run_one(seeds[i].data, seeds[i].bytes);
    uint64_t count = run_mutations(seconds ? atof(seconds) : 1.0);
    printf("# %zu seeds, %llu mutations\n", n_seeds, (unsigned long long)count);
    printf("ok 1 - fuzz " FUZZ_TARGET "\n");
    for (size_t i = 0; i < n_seeds; i++)
        free(seeds[i].data);
    free(seeds);
    return 0;
}

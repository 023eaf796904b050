/*
 * Every write of a training goes wrong in turn, as drives have it: it succeeds and nothing, half,
 * or something elsewhere is written; it moves a part; it fails. So does every read, and every
 * flush. Either the training ends with the bits of one that nobody harmed, or it stops and names
 * what is wrong; then --resume ends with those bits, or refuses by name.
 *
 * ZINF_TEST_EACH: one in so many transfers of each kind (1: all), for both I/O engines, on one path
 * and striped over two. ZINF_TEST_ENGINE takes one of these ways only, ZINF_TEST_KIND one kind.
 */
#include "shimmed.h"

#define STEPS "4"
#define EACH 120

enum outcome {
    SAME,    /* the run ended with the same bits */
    RESUMED, /* it stopped, and --resume ended with them */
    REFUSED, /* it stopped, and so does --resume, by name */
    WRONG,   /* other bits */
    LOST,    /* it stopped, and --resume neither goes on nor says why */
    OUTCOMES,
};
static const char *const outcome_names[] = {"same bits", "resumed", "refused", "WRONG", "LOST"};
static const char *const kinds[] = {"lost",   "misplaced", "torn",      "short",   "eio",
                                    "enospc", "read-eio",  "read-flip", "sync-eio"};
#define KINDS (sizeof kinds / sizeof *kinds)

/* How the bytes go to the drive, and what of them is packed. */
static const struct way {
    const char *name, *engine;
    int paths;
    const char *pack;
} ways[] = {{"threads", "threads", 1, "off"},
            {"uring", "uring", 1, "all"},
            {"threads, striped", "threads", 2, "all"},
            {"uring, striped", "uring", 2, "off"}};
#define WAYS (sizeof ways / sizeof *ways)
static int table[KINDS][OUTCOMES]; /* of this way */

/* The n-th transfer of this kind goes wrong; 0: none does. */
static int harmed(const struct fault_setting *s, const char *kind, uint64_t n)
{
    char text[128];
    snprintf(text, sizeof text, "%s %llu /left/", kind, (unsigned long long)n);
    return shim_train(s, text, STEPS);
}

static bool is_named(const char *said)
{
    const char *error = strstr(said, "zinf train: ");
    return error && strchr(error, '/');
}

static enum outcome judge(const struct fault_setting *s, int status, char **said)
{
    *said = faults_what_was_said();
    if (!status)
        return faults_same_end("whole", STEPS) ? SAME : WRONG;
    if (!is_named(*said))
        return LOST;
    free(*said);
    status = faults_wait(faults_train(s, STEPS));
    *said = faults_what_was_said();
    if (status)
        return is_named(*said) ? REFUSED : LOST;
    return faults_same_end("whole", STEPS) ? RESUMED : WRONG;
}

static void one(const struct fault_setting *s, const struct way *way, size_t kind, uint64_t n)
{
    char *said;
    faults_clear();
    int status = harmed(s, kinds[kind], n);
    enum outcome outcome = judge(s, status, &said);
    table[kind][outcome]++;
    const char *line = strstr(said, "zinf train: ");
    CHECKF(outcome < WRONG, "%s, %s number %llu: %s, status %d: %s", way->name, kinds[kind],
           (unsigned long long)n, outcome_names[outcome], status, line ? line : "");
    free(said);
}

static void print_table(const char *name)
{
    printf("# %-18s", name);
    for (int o = 0; o < OUTCOMES; o++)
        printf("%11s", outcome_names[o]);
    for (size_t k = 0; k < KINDS; k++) {
        printf("\n# %-18s", kinds[k]);
        for (int o = 0; o < OUTCOMES; o++)
            printf("%11d", table[k][o]);
    }
    printf("\n");
    fflush(stdout);
}

static uint64_t number_from(const char *name, uint64_t otherwise)
{
    return getenv(name) ? strtoull(getenv(name), NULL, 10) : otherwise;
}

static void go(const struct way *way)
{
    struct fault_setting s = fault_setting_of(0);
    uint64_t each = number_from("ZINF_TEST_EACH", EACH);
    const char *only = getenv("ZINF_TEST_KIND");
    s.saves = true;
    s.engine = way->engine;
    s.paths = way->paths;
    s.pack = way->pack;
    s.sub_group = 10000;
    memset(table, 0, sizeof table);
    faults_write_config(&s);
    faults_clear();
    CHECK(!faults_wait(faults_train(&s, STEPS)));
    faults_keep("whole");
    for (size_t kind = 0; kind < KINDS && tap_case_failures < 20; kind++) {
        if (only && strcmp(only, kinds[kind]) != 0)
            continue;
        faults_clear();
        int status = harmed(&s, kinds[kind], 0);
        uint64_t n = shim_counted();
        CHECKF(!status && n, "status %d, %llu transfers", status, (unsigned long long)n);
        for (uint64_t i = 1 + faults_draw(each); i <= n && tap_case_failures < 20; i += each)
            one(&s, way, kind, i);
    }
    print_table(way->name);
}

static void test_every_transfer(void)
{
    const char *only = getenv("ZINF_TEST_ENGINE"), *why = NULL;
    bool refused = zinf_aio_uring_probe(&why) != 0;
    for (size_t i = 0; i < WAYS; i++) {
        if (only && strcmp(only, ways[i].name) != 0)
            continue;
        if (refused && !strcmp(ways[i].engine, "uring"))
            printf("# %s is left out: %s\n", ways[i].name, why);
        else
            go(&ways[i]);
    }
}

int main(void)
{
    faults_begin("writes");
    const char *why = shim_find();
    if (why) {
        printf("1..0 # SKIP %s: %s\n", why, shim);
        return 0;
    }
    TAP_RUN(test_every_transfer);
    remove_work();
    return tap_done();
}

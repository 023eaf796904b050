/*
 * Every write of a training goes wrong in turn, as drives have it: it succeeds and nothing, half,
 * or something elsewhere is written; it moves a part; it fails. So does every read, and every
 * flush. Either the training ends with the bits of one that nobody harmed, or it stops and names
 * what is wrong; then --resume ends with those bits, or refuses by name.
 *
 * ZINF_TEST_EACH: one in so many transfers of each kind (1: all), for both I/O engines.
 */
#include "faults.h"

#define STEPS "4"
#define EACH 60

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
static int table[2][KINDS][OUTCOMES];
static char shim[700], count_path[700];

/* A training with the shim before it: the n-th transfer of this kind goes wrong; 0: none does. */
static int harmed(const struct fault_setting *s, const char *kind, uint64_t n)
{
    char text[128];
    snprintf(text, sizeof text, "%s %llu /left/", kind, (unsigned long long)n);
    setenv("ZINF_SHIM", text, 1);
    setenv("ZINF_SHIM_COUNT", count_path, 1);
    setenv("LD_PRELOAD", shim, 1);
    pid_t child = faults_train(s, STEPS);
    unsetenv("LD_PRELOAD");
    return faults_wait(child);
}

static uint64_t counted(void)
{
    char *text = NULL;
    size_t bytes;
    if (zinf_file_read(count_path, 100, &text, &bytes))
        return 0;
    uint64_t n = strtoull(text, NULL, 10);
    free(text);
    return n;
}

static bool has_the_bits(void)
{
    char a[700], b[700];
    snprintf(a, sizeof a, "%s/model/model.safetensors", faults_out);
    snprintf(b, sizeof b, "%s/whole.safetensors", work);
    return faults_same(a, b);
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
        return has_the_bits() ? SAME : WRONG;
    if (!is_named(*said))
        return LOST;
    free(*said);
    status = faults_wait(faults_train(s, STEPS));
    *said = faults_what_was_said();
    if (status)
        return is_named(*said) ? REFUSED : LOST;
    return has_the_bits() ? RESUMED : WRONG;
}

static void one(const struct fault_setting *s, int engine, size_t kind, uint64_t n)
{
    char *said;
    faults_clear();
    int status = harmed(s, kinds[kind], n);
    enum outcome outcome = judge(s, status, &said);
    table[engine][kind][outcome]++;
    const char *line = strstr(said, "zinf train: ");
    CHECKF(outcome < WRONG, "engine %d, %s number %llu: %s, status %d: %s", engine, kinds[kind],
           (unsigned long long)n, outcome_names[outcome], status, line ? line : "");
    free(said);
}

static void print_table(const char *name, int engine)
{
    printf("# %-12s", name);
    for (int o = 0; o < OUTCOMES; o++)
        printf("%11s", outcome_names[o]);
    for (size_t k = 0; k < KINDS; k++) {
        printf("\n# %-12s", kinds[k]);
        for (int o = 0; o < OUTCOMES; o++)
            printf("%11d", table[engine][k][o]);
    }
    printf("\n");
}

static void with_engine(int engine, const char *name)
{
    struct fault_setting s = fault_setting_of(0);
    uint64_t each = getenv("ZINF_TEST_EACH") ? strtoull(getenv("ZINF_TEST_EACH"), NULL, 10) : EACH;
    s.saves = true;
    s.engine = name;
    s.sub_group = 10000;
    faults_write_config(&s);
    for (size_t kind = 0; kind < KINDS && tap_case_failures < 20; kind++) {
        faults_clear();
        int status = harmed(&s, kinds[kind], 0);
        uint64_t n = counted();
        CHECKF(!status && n, "status %d, %llu transfers", status, (unsigned long long)n);
        if (!kind) {
            char to[700];
            snprintf(to, sizeof to, "%s/whole.safetensors", work);
            CHECK(!faults_shell("cp '%s/model/model.safetensors' '%s'", faults_out, to));
        }
        for (uint64_t i = 1 + faults_draw(each); i <= n && tap_case_failures < 20; i += each)
            one(&s, engine, kind, i);
    }
    print_table(name, engine);
    fflush(stdout);
}

static void test_threads(void)
{
    with_engine(0, "threads");
}

static void test_uring(void)
{
    const char *why;
    if (zinf_aio_uring_probe(&why))
        SKIP("%s", why);
    with_engine(1, "uring");
}

int main(void)
{
    const char *build = getenv("BUILDDIR"), *named = getenv("ZINF_TEST_SHIM");
    faults_begin("writes");
    snprintf(count_path, sizeof count_path, "%s/count", work);
    snprintf(shim, sizeof shim, "%s/tests/faults/.libs/shim.so", build ? build : ".");
    if (named)
        snprintf(shim, sizeof shim, "%s", named);
    if (access(shim, R_OK)) {
        printf("1..0 # SKIP no shared library to preload: %s\n", shim);
        return 0;
    }
    if (getenv("ZINF_SANITIZER")) {
        printf("1..0 # SKIP a sanitizer's runtime must be loaded before the shim\n");
        return 0;
    }
    TAP_RUN(test_threads);
    TAP_RUN(test_uring);
    remove_work();
    return tap_done();
}

/* base: numbers, sizes, random streams, JSON, the ledger. */
#include "base/base.h"
#include "base/json.h"
#include "base/cgroup.h"
#include "base/cpu_load.h"
#include "base/median.h"
#include "base/memory.h"
#include "base/pulse.h"
#include "base/random.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void test_bf16_round_trip_and_ties(void)
{
    for (uint32_t half = 0; half < 65536; half++) {
        float value = zinf_bf16_to_f32((uint16_t)half);
        if (isnan(value))
            CHECK(isnan(zinf_bf16_to_f32(zinf_bf16_from_f32(value))));
        else
            CHECKF(zinf_bf16_from_f32(value) == half, "bf16 %04x", half);
    }
    CHECK(zinf_bf16_from_f32(1.00390625f) == 0x3f80); /* half way: to even */
    CHECK(zinf_bf16_from_f32(1.01171875f) == 0x3f82);
}

/* A file like /proc/stat in which each CPU has used so many ticks of each kind. */
static struct zinf_cpu_load load_of(const char *path, int user, int steal)
{
    FILE *file = fopen(path, "w");
    fputs("cpu  1 2 3 4 5 6 7 8 9 10\n", file);
    for (int cpu = 0; cpu < 1024; cpu++)
        fprintf(file, "cpu%d %d 10 20 5000 300 70 80 %d 0 0\n", cpu, user, steal);
    fputs("intr 12345\n", file);
    fclose(file);
    return zinf_cpu_load_now(path);
}

static void test_others_on_the_cpus(void)
{
    char path[] = "stat.XXXXXX";
    const double tick = 1 / (double)sysconf(_SC_CLK_TCK);
    close(mkstemp(path));
    struct zinf_cpu_load begin = load_of(path, 100, 0), end = load_of(path, 150, 10);
    CHECK(begin.cpus >= 1 && begin.cpus == end.cpus && begin.own > 0);
    CHECK(fabs(begin.busy - 130 * tick * begin.cpus) < 1e-6);
    begin.own = end.own = begin.seconds = 0;
    end.seconds = 100 * tick;
    CHECK(fabs(zinf_cpu_load_others(&begin, &end) - 0.6) < 1e-6);
    end.own = 45 * tick * end.cpus; /* of these this process used most */
    CHECK(fabs(zinf_cpu_load_others(&begin, &end) - 0.15) < 1e-6);
    end.own = 61 * tick * end.cpus; /* a clock of other ticks */
    CHECK(zinf_cpu_load_others(&begin, &end) == 0);
    end.seconds = 10 * tick;
    CHECK(zinf_cpu_load_others(&begin, &end) < 0); /* too short */
    unlink(path);
    begin = zinf_cpu_load_now(path);
    CHECK(begin.busy < 0 && zinf_cpu_load_others(&begin, &end) < 0);
}

static void test_f16_against_compiler(void)
{
#ifdef __FLT16_MAX__
    for (uint32_t half = 0; half < 65536; half++) {
        uint16_t bits = (uint16_t)half;
        _Float16 reference;
        memcpy(&reference, &bits, 2);
        float value = zinf_f16_to_f32(bits);
        if (isnan((float)reference)) {
            CHECK(isnan(value));
            continue;
        }
        CHECKF(value == (float)reference, "f16 %04x", half);
        CHECKF(zinf_f16_from_f32(value) == bits, "f16 %04x back", half);
    }
    uint32_t counter[4] = {0}, out[4];
    for (int i = 0; i < 200000; i++) {
        float value;
        uint16_t bits;
        counter[0] = (uint32_t)i;
        zinf_philox(counter, 7, out);
        memcpy(&value, out, 4);
        if (i & 1) /* half of them in the range where rounding happens */
            value = ldexpf((float)(int32_t)out[1], -31 - (int)(out[2] % 32)) * 65536.0f;
        if (isnan(value))
            continue;
        _Float16 reference = (_Float16)value;
        memcpy(&bits, &reference, 2);
        CHECKF(zinf_f16_from_f32(value) == bits, "%a", (double)value);
    }
#else
    SKIP("this compiler has no _Float16 to compare with");
#endif
}

static void test_sizes(void)
{
    uint64_t bytes = 0;
    char text[16];
    CHECK(!zinf_size_parse("4GiB", &bytes) && bytes == 4ull << 30);
    CHECK(!zinf_size_parse("4G", &bytes) && bytes == 4ull << 30);
    CHECK(!zinf_size_parse("500 MB", &bytes) && bytes == 500000000);
    CHECK(!zinf_size_parse("1.5e3", &bytes) && bytes == 1500);
    CHECK(zinf_size_parse("-1", &bytes) == -EINVAL);
    CHECK(zinf_size_parse("12 parsecs", &bytes) == -EINVAL);
    CHECK(strstr(zinf_error(), "parsecs") != NULL);
    CHECK(!strcmp(zinf_size_format(text, sizeof text, 3ull << 29), "1.50 GiB"));
}

static void test_philox_known_answer(void)
{
    /* Known answers of the Random123 distribution, kat_vectors, philox4x32 10. */
    uint32_t out[4], zero[4] = {0};
    uint32_t ones[4] = {~0u, ~0u, ~0u, ~0u};
    zinf_philox(zero, 0, out);
    CHECK(out[0] == 0x6627e8d5 && out[1] == 0xe169c58d && out[2] == 0xbc57ac4c &&
          out[3] == 0x9b00dbd8);
    zinf_philox(ones, ~0ull, out);
    CHECK(out[0] == 0x408f276d && out[1] == 0x41c83b0e && out[2] == 0xa20bc7c6 &&
          out[3] == 0x6d5451fd);
}

static void test_normal_is_cut_free_and_normal(void)
{
    enum { N = 40001 };
    float *whole = malloc(N * sizeof *whole), *cut = malloc(N * sizeof *cut);
    double sum = 0, squares = 0;
    zinf_normal_fill(whole, 3, N, 42, 5, 1.0f, 2.0f);
    for (uint64_t i = 0, step = 1; i < N; i += step, step = step * 3 % 101 + 1)
        zinf_normal_fill(cut + i, 3 + i, i + step > N ? N - i : step, 42, 5, 1.0f, 2.0f);
    CHECK(!memcmp(whole, cut, N * sizeof *whole));
    for (int i = 0; i < N; i++) {
        sum += (double)whole[i];
        squares += ((double)whole[i] - 1) * ((double)whole[i] - 1);
    }
    CHECK(fabs(sum / N - 1) < 0.05 && fabs(squares / N - 4) < 0.15);
    free(whole);
    free(cut);
}

static void test_permutation(void)
{
    for (uint64_t n = 1; n < 700; n += 37) {
        unsigned char seen[700] = {0};
        for (uint64_t i = 0; i < n; i++) {
            uint64_t place = zinf_permute(i, n, 9);
            CHECK(place < n && !seen[place]);
            seen[place < n ? place : 0] = 1;
        }
    }
    CHECK(zinf_permute(5, 600, 1) != 5 || zinf_permute(6, 600, 1) != 6);
}

static int parses(const char *text, unsigned flags)
{
    cJSON *value = NULL;
    int code = zinf_json_parse(text, strlen(text), "test", flags, &value);
    cJSON_Delete(value);
    return !code;
}

static void test_json(void)
{
    CHECK(parses("{\"a\": [1, 2, {\"b\": null}]}", ZINF_JSON_STRICT));
    CHECK(!parses("{\"a\": 1,}", ZINF_JSON_STRICT));
    CHECK(parses("{\"a\": 1, /* x */ // y\n \"b\": [1,2,], # z\n}", ZINF_JSON_RELAXED));
    CHECK(parses("{\"a\": \"// not a comment, \"}", ZINF_JSON_RELAXED));
    CHECK(!parses("{\"a\": 1, \"a\": 2}", ZINF_JSON_STRICT));
    CHECK(strstr(zinf_error(), "twice") != NULL);
    CHECK(!parses("{\"a\": 1} x", ZINF_JSON_STRICT));
    CHECK(!parses("{\"a\": \"\xff\"}", ZINF_JSON_STRICT));
    CHECK(!parses("", ZINF_JSON_STRICT));
    char deep[200];
    memset(deep, '[', 100);
    memset(deep + 100, ']', 99);
    deep[199] = 0;
    CHECK(!parses(deep, ZINF_JSON_STRICT));
}

static void test_json_numbers_keep_their_text(void)
{
    static const char text[] = "{\"a\": [4.0, 4, \"1.5 \\\" 2.0\", {\"b\": -1E3}], \"1.0\": 0.10, "
                               "\"c\": 999999.4420358813, \"d\": 12, \"e\": 7., \"f\": 1.5e+2}";
    cJSON *value = NULL;
    CHECK(!zinf_json_parse(text, strlen(text), "test", 0, &value));
    cJSON *list = cJSON_GetObjectItem(value, "a");
    CHECK(cJSON_GetArrayItem(list, 0)->valuedouble == 4 &&
          cJSON_GetObjectItem(cJSON_GetArrayItem(list, 3), "b")->valuedouble == -1000);
    char *printed = zinf_json_print(value);
    static const char *const says[] = {"4.0", " 4,", "-1E3",    "0.10,", "999999.4420358813,",
                                       "12,", "7,",  "1.5e+2\n"};
    for (size_t i = 0; i < sizeof says / sizeof *says; i++)
        CHECKF(printed && strstr(printed, says[i]), "no %s in %s", says[i], printed);
    cJSON_free(printed);
    cJSON_Delete(value);
}

/* Each bit of a sealed text is flipped once: what is still read as whole says the same. */
static void test_json_sealed(void)
{
    static const char content[] =
        "{\"format\":2,\"by\":\"a GPU, cuBLASLt 130000\",\"gradients_add\":true,"
        "\"products\":[{\"product\":[\"1f\",\"20\",\"0\"],\"algorithm\":[\"a7\",\"3\"]}],\"x\":-4}";
    cJSON *value = NULL;
    CHECK(!zinf_json_parse(content, strlen(content), "test", 0, &value));
    CHECK(!zinf_json_unseal(value) && zinf_json_seal(value));
    char *sealed = cJSON_PrintUnformatted(value);
    cJSON_Delete(value);
    const size_t bytes = strlen(sealed);
    int refused = 0;
    for (size_t i = 0; i <= 8 * bytes; i++) {
        if (i < 8 * bytes)
            sealed[i / 8] = (char)(sealed[i / 8] ^ (1 << i % 8));
        value = NULL;
        const bool whole =
            !zinf_json_parse(sealed, bytes, "test", 0, &value) && zinf_json_unseal(value);
        char *text = whole ? cJSON_PrintUnformatted(value) : NULL;
        CHECKF(!whole || (text && !strcmp(text, content)), "bit %zu: %s", i,
               text ? text : "no text");
        CHECK(whole || i < 8 * bytes);
        refused += !whole;
        cJSON_free(text);
        cJSON_Delete(value);
        if (i < 8 * bytes)
            sealed[i / 8] = (char)(sealed[i / 8] ^ (1 << i % 8));
    }
    CHECKF(refused > (int)(7 * bytes), "%d of %zu", refused, 8 * bytes);
    cJSON_free(sealed);
}

static void test_json_members_and_lines(void)
{
    const char *text = "{\n \"a\": 5e8,\n \"z\": {\"a\": 1.5,\n  \"b\": \"x\"}\n}";
    cJSON *value = NULL;
    int64_t number = 0;
    const char *string = NULL;
    CHECK(!zinf_json_parse(text, strlen(text), "test", 0, &value));
    CHECK(!zinf_json_int(value, "test", "a", &number) && number == 500000000);
    const cJSON *inner = cJSON_GetObjectItem(value, "z");
    CHECK(zinf_json_int(inner, "test", "a", &number) == -EINVAL);
    CHECK(!zinf_json_string(inner, "test", "b", &string) && !strcmp(string, "x"));
    CHECK(zinf_json_line_of(text, strlen(text), "a") == 2);
    CHECK(zinf_json_line_of(text, strlen(text), "z.b") == 4);
    CHECK(zinf_json_line_of(text, strlen(text), "z.c") == 0);
    cJSON_Delete(value);
}

static void test_ledger(void)
{
    struct zinf_ledger *ledger;
    uint64_t a = 1, b = 0, budget[ZINF_MEMORY_TIERS] = {1 << 20, UINT64_MAX, UINT64_MAX};
    CHECK(!zinf_ledger_create(&ledger));
    zinf_ledger_add(ledger, ZINF_MEMORY_DEVICE, "first", "key_a", 100, &a);
    zinf_ledger_add(ledger, ZINF_MEMORY_DEVICE, "second", "key_b", 5000, &b);
    CHECK(a == 0 && b == ZINF_MEMORY_ALIGN);
    CHECK(zinf_ledger_arena_bytes(ledger, ZINF_MEMORY_DEVICE) == 3 * ZINF_MEMORY_ALIGN);
    CHECK(!zinf_ledger_check(ledger, budget));
    zinf_ledger_add(ledger, ZINF_MEMORY_DEVICE, "third", "key_c", 2 << 20, NULL);
    CHECK(zinf_ledger_check(ledger, budget) == -ENOMEM);
    CHECK(strstr(zinf_error(), "key_c") && strstr(zinf_error(), "zinf.device_memory"));
    zinf_ledger_destroy(ledger);
}

static void test_touched_memory_is_resident(void)
{
    struct zinf_arena arena;
    unsigned char in[256];
    size_t page = (size_t)sysconf(_SC_PAGESIZE), n = sizeof in, resident = 0;
    CHECK(!zinf_arena_init(&arena, n * page, "a test"));
    if (madvise(arena.base, page, MADV_POPULATE_WRITE))
        SKIP("the kernel does not make pages resident when asked to");
    memset(arena.base + 3 * page, 7, page);
    zinf_memory_touch(arena.base, arena.bytes);
    CHECK(!mincore(arena.base, arena.bytes, in));
    for (size_t i = 0; i < n; i++)
        resident += in[i] & 1;
    CHECKF(resident == n, "%zu of %zu pages", resident, n);
    CHECK(arena.base[3 * page] == 7 && arena.base[4 * page - 1] == 7);
    zinf_arena_fini(&arena);
}

/* A machine whose memory grows while one rests, a step for every so many rests. */
struct growing {
    uint64_t available, taken, largest;
    int rests, rests_for_a_step, looks, looked_before; /* steps that a look came before */
    bool looked;
};

static uint64_t growing_available(void *context)
{
    struct growing *g = context;
    g->looks++;
    g->looked = true;
    return g->available;
}

static void growing_rest(void *context)
{
    struct growing *g = context;
    if (g->rests_for_a_step && ++g->rests % g->rests_for_a_step == 0)
        g->available += ZINF_TOUCH_BYTES;
    else if (!g->rests_for_a_step)
        g->rests++;
}

static void growing_populate(void *context, void *base, uint64_t bytes)
{
    struct growing *g = context;
    CHECKF((uintptr_t)base == ZINF_TOUCH_BYTES + g->taken, "a step begins %llu bytes behind",
           (unsigned long long)((uintptr_t)base - ZINF_TOUCH_BYTES));
    CHECKF(bytes <= g->available, "%llu bytes are taken and %llu are there",
           (unsigned long long)bytes, (unsigned long long)g->available);
    g->largest = bytes > g->largest ? bytes : g->largest;
    g->taken += bytes;
    g->available -= bytes;
    g->looked_before += g->looked;
    g->looked = false;
}

static struct growing grow(struct growing machine, uint64_t bytes)
{
    const struct zinf_memory_source source = {.available = growing_available,
                                              .rest = growing_rest,
                                              .populate = growing_populate,
                                              .context = &machine};
    zinf_memory_touch_from(&source, (void *)ZINF_TOUCH_BYTES, bytes); /* nothing is written there */
    CHECKF(machine.taken == bytes, "%llu of %llu bytes", (unsigned long long)machine.taken,
           (unsigned long long)bytes);
    return machine;
}

/* Pages are taken in steps, with a look before each, and not faster than memory comes; where it
 * does not come, the waiting ends. */
static void test_memory_is_taken_as_it_comes(void)
{
    const uint64_t step = ZINF_TOUCH_BYTES;
    struct growing g = grow((struct growing){.available = 100 * step}, 5 * step + 4096);
    CHECKF(g.largest == step && g.looked_before == 5 && !g.rests, "%d looks, %d rests, %llu bytes",
           g.looks, g.rests, (unsigned long long)g.largest);
    g = grow((struct growing){.available = step, .rests_for_a_step = 3}, 6 * step);
    CHECKF(g.rests == 18, "%d rests", g.rests); /* one step more is there than is taken */
    g = grow((struct growing){.available = 6 * step + 1}, 6 * step); /* never grows */
    CHECKF(g.rests == 40, "%d rests", g.rests);
}

static void test_errors_nest(void)
{
    zinf_fail(-EIO, "inner %d", 1);
    CHECK(zinf_fail_in(-EIO, "outer") == -EIO);
    CHECK(!strcmp(zinf_error(), "outer: inner 1"));
    zinf_fail(-EIO, "again: %s", zinf_error());
    CHECK(!strcmp(zinf_error(), "again: outer: inner 1"));
}

/* At least the caches of one CPU, and not once for each that shares them. */
static void test_caches(void)
{
    long of_one = sysconf(_SC_LEVEL3_CACHE_SIZE);
    uint64_t bytes = zinf_cache_bytes();
    if (!bytes || of_one <= 0)
        SKIP("the system does not say");
    if (bytes < (uint64_t)of_one) /* seen on virtual machines */
        SKIP("the system says %llu bytes in all, the processor %ld of one cache",
             (unsigned long long)bytes, of_one);
    CHECKF(bytes % (uint64_t)of_one == 0, "%llu bytes, and %ld of one", (unsigned long long)bytes,
           of_one);
    CHECK(bytes <= (uint64_t)of_one * (uint64_t)sysconf(_SC_NPROCESSORS_CONF));
}

static void put(const char *root, const char *name, const char *text)
{
    char path[600], folder[600];
    snprintf(path, sizeof path, "%s/%s", root, name);
    snprintf(folder, sizeof folder, "%s", path);
    *strrchr(folder, '/') = 0;
    CHECK(!zinf_make_dirs(folder) && !zinf_file_write_atomic(path, text, strlen(text)));
}

/* The least that any group of either version leaves; what the page cache holds counts as left. */
static void test_cgroups(void)
{
    char root[] = "cgroup-test-XXXXXX", command[100];
    CHECK(mkdtemp(root) != NULL);
    CHECK(zinf_cgroup_memory_left(root) == UINT64_MAX);
    put(root, "proc/self/cgroup", "12:cpu,memory:/a/b\n0::/x/y\n");
    put(root, "sys/fs/cgroup/x/y/memory.max", "max\n");
    CHECK(zinf_cgroup_memory_left(root) == UINT64_MAX);
    put(root, "sys/fs/cgroup/x/memory.max", "5000\n"); /* of the group above */
    put(root, "sys/fs/cgroup/x/memory.current", "2000\n");
    CHECK(zinf_cgroup_memory_left(root) == 3000);
    put(root, "sys/fs/cgroup/x/memory.stat", "anon 7\ninactive_file 500\n");
    CHECK(zinf_cgroup_memory_left(root) == 3500);
    put(root, "sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "1000\n");
    put(root, "sys/fs/cgroup/memory/a/b/memory.usage_in_bytes", "400\n");
    put(root, "sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
    CHECK(zinf_cgroup_memory_left(root) == 600);
    put(root, "proc/self/cgroup", "0::/elsewhere\n"); /* a container: its root is the mount's */
    put(root, "sys/fs/cgroup/memory.max", "700\n");
    put(root, "sys/fs/cgroup/memory.current", "800\n");
    CHECK(zinf_cgroup_memory_left(root) == 0);
    snprintf(command, sizeof command, "rm -r %s", root);
    CHECK(!system(command));
}

/* A name that somebody else has put a link under is not followed, and a FIFO is not waited for. */
static void test_files(void)
{
    char root[] = "file-test-XXXXXX", path[100], other[100], *text;
    size_t bytes;
    CHECK(mkdtemp(root) != NULL);
    snprintf(path, sizeof path, "%s/fifo", root);
    CHECK(!mkfifo(path, 0600));
    CHECK(zinf_file_read(path, 100, &text, &bytes) == -EINVAL);
    CHECK(!unlink(path));
    snprintf(path, sizeof path, "%s/small", root);
    snprintf(other, sizeof other, "%s/other", root);
    CHECK(!zinf_file_write_atomic(other, "old", 3) && !symlink("other", path));
    CHECK(!zinf_check_link(path) && !zinf_check_link(other) && !zinf_check_link(root));
    if (!geteuid()) {
        CHECK(!lchown(path, 12345, 12345));
        CHECK(zinf_check_link(path) == -ELOOP && strstr(zinf_error(), path));
    }
    CHECK(!zinf_file_write_atomic(path, "new", 3)); /* the link itself is replaced */
    CHECK(!zinf_file_read(other, 100, &text, &bytes) && !strcmp(text, "old"));
    free(text);
    CHECK(!unlink(path) && !unlink(other) && !rmdir(root));
}

static void test_text_of_strangers(void)
{
    static const char *const cases[][2] = {
        {"plain, caf\xc3\xa9\n\tnext", "plain, caf\xc3\xa9\n\tnext"},
        {"\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"},
        {"a\rb\x7f", "a\\x0db\\x7f"},
        {"\xc2\x9b"
         "2J",
         "\\xc2\\x9b2J"}, /* the same as ESC [ */
        {"\x9b"
         "2J",
         "\\x9b2J"},
        {"\xe2\x82", "\\xe2\\x82"},
        {"\xf0\x9f\x98\x80\xff", "\xf0\x9f\x98\x80\\xff"},
        {"\xc2\xa0", "\xc2\xa0"},
    };
    char out[64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        CHECKF(!strcmp(zinf_show_text(out, sizeof out, cases[i][0]), cases[i][1]), "%zu: %s", i,
               out);
        zinf_fail(-EINVAL, "it is '%s'", cases[i][0]);
        CHECKF(strstr(zinf_error(), cases[i][1]), "%zu: %s", i, zinf_error());
        zinf_fail_in(-EINVAL, "in %s", cases[i][0]);
        CHECKF(strstr(zinf_error(), cases[i][1]) == zinf_error() + 3, "%zu: %s", i, zinf_error());
    }
    CHECK(!strcmp(zinf_show_text(out, 6, "abc\x1b"), "abc")); /* nothing is cut within */
}

static void test_pulse(void)
{
    struct zinf_pulse above, own, *before = zinf_pulse_of_thread();
    zinf_pulse_init(&above, NULL);
    zinf_pulse_init(&own, &above);
    zinf_pulse_set(&own);
    uint64_t first = zinf_pulse_last_ns(&above);
    usleep(1000);
    CHECK(!zinf_pulse_beat() && zinf_pulse_last_ns(&above) > first);
    CHECK(zinf_pulse_last_ns(&own) == zinf_pulse_last_ns(&above));
    zinf_pulse_end(&above, -EINTR, "enough");
    zinf_pulse_end(&above, -EIO, "too late");
    CHECK(zinf_pulse_beat() == -EINTR && !strcmp(zinf_error(), "enough"));
    zinf_pulse_set(NULL);
    CHECK(zinf_pulse_of_thread() == before && !zinf_pulse_beat());
}

static void test_median(void)
{
    double numbers[] = {7, -1, 3, 10, 4};
    CHECK(zinf_median(numbers, 5) == 4 && numbers[0] == -1 && numbers[4] == 10);
    CHECK(zinf_median(numbers, 4) == 3.5 && zinf_median(numbers, 2) == 1);
    CHECK(zinf_median(numbers + 2, 1) == 4);
}

int main(void)
{
    TAP_RUN(test_bf16_round_trip_and_ties);
    TAP_RUN(test_f16_against_compiler);
    TAP_RUN(test_sizes);
    TAP_RUN(test_median);
    TAP_RUN(test_philox_known_answer);
    TAP_RUN(test_normal_is_cut_free_and_normal);
    TAP_RUN(test_permutation);
    TAP_RUN(test_json);
    TAP_RUN(test_json_numbers_keep_their_text);
    TAP_RUN(test_json_sealed);
    TAP_RUN(test_json_members_and_lines);
    TAP_RUN(test_ledger);
    TAP_RUN(test_touched_memory_is_resident);
    TAP_RUN(test_memory_is_taken_as_it_comes);
    TAP_RUN(test_errors_nest);
    TAP_RUN(test_text_of_strangers);
    TAP_RUN(test_pulse);
    TAP_RUN(test_caches);
    TAP_RUN(test_cgroups);
    TAP_RUN(test_others_on_the_cpus);
    TAP_RUN(test_files);
    return tap_done();
}

/*
 * steps: a real process is killed at random moments, forty times over (ZINF_TEST_KILLS); each time
 * the next one finds the last step that was committed, whole, with its scalars, and goes on. And
 * what a dead run left is neither reclaimed by others nor taken for something that it is not.
 */
#include "build-config.h"

#include "aio/steps.h"

#include "aio/aio_store.h"
#include "aio_fixture.h"
#include "files.h"
#include "tap.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#define KIB (1u << 10)
#define STRIPE (16 * KIB)
#define N_EXTENTS 5
#define EXTENT_BYTES (40 * KIB) /* pieces of 16, 16 and 8 KiB */

static const uint8_t run_name[16] = "the test's run..", other_name[16] = "another test's..";
static char second[600]; /* a path beside folder */

struct machine {
    struct zinf_store *store;
    struct zinf_steps *steps;
    zinf_extent extents[N_EXTENTS], scratch;
    char *memory;
};

struct plan {
    const uint8_t *run;
    int n_paths, n_extents;
    bool reversed, flush;
    uint64_t layout;
    int scratch; /* stripes of the extent with one generation; 0: 1 */
};
#define PLAN                                                                                       \
    {                                                                                              \
        .run = run_name, .n_paths = 1, .n_extents = N_EXTENTS, .layout = 3                         \
    }

static void close_machine(struct machine *m)
{
    zinf_steps_close(m->steps);
    zinf_store_destroy(m->store);
    free(m->memory);
    *m = (struct machine){0};
}

static int open_machine(struct machine *m, const struct plan *p)
{
    const char *paths[2] = {p->reversed ? second : folder, p->reversed ? folder : second};
    struct zinf_store_options store = {.paths = paths,
                                       .n_paths = p->n_paths,
                                       .label = "test",
                                       .stripe_bytes = STRIPE,
                                       .checksums = true,
                                       .run = p->run};
    struct zinf_steps_options steps = {
        .layout = p->layout, .payload_bytes = 100, .flush = p->flush};
    *m = (struct machine){.memory = aligned(EXTENT_BYTES)};
    int code = zinf_store_create(&m->store, &store);
    for (int i = 0; !code && i < p->n_extents; i++)
        code = zinf_store_add_extent_pair(m->store, EXTENT_BYTES, &m->extents[i]);
    if (!code)
        code = zinf_store_add_extent(m->store, (p->scratch ? p->scratch : 1) * STRIPE, &m->scratch);
    if (!code)
        code = zinf_store_allocate(m->store);
    if (!code)
        code = zinf_steps_open(&m->steps, m->store, &steps);
    if (code)
        close_machine(m);
    return code;
}

/* State n, a function of n alone, as a deterministic training has it. */
static int make_step(struct machine *m, uint64_t n)
{
    int generation;
    uint64_t payload[3] = {n, n * n, 77};
    int code = zinf_steps_begin(m->steps, &generation);
    for (int i = 0; !code && i < N_EXTENTS; i++) {
        fill(m->memory, EXTENT_BYTES, n * 100 + (uint64_t)i);
        code = zinf_store_write_generation(m->store, m->extents[i], (uint8_t)generation, 0,
                                           m->memory, EXTENT_BYTES);
    }
    return code ? code : zinf_steps_end(m->steps, payload, sizeof payload);
}

/* The n of the state that was recovered, or -1 if it is none. */
static int64_t recovered(struct machine *m)
{
    int generation;
    const void *payload;
    uint64_t bytes, scalars[3];
    if (!zinf_steps_recovered(m->steps, &generation, &payload, &bytes) || bytes != sizeof scalars)
        return -1;
    char *expected = aligned(EXTENT_BYTES);
    memcpy(scalars, payload, sizeof scalars);
    bool good = scalars[1] == scalars[0] * scalars[0] && scalars[2] == 77;
    for (int i = 0; good && i < N_EXTENTS; i++) {
        fill(expected, EXTENT_BYTES, scalars[0] * 100 + (uint64_t)i);
        good = !zinf_store_read_generation(m->store, m->extents[i], (uint8_t)generation, 0,
                                           m->memory, EXTENT_BYTES) &&
               !memcmp(m->memory, expected, EXTENT_BYTES);
    }
    free(expected);
    return good ? (int64_t)scalars[0] : -1;
}

/* Makes steps until it is killed; tells each through the pipe, before it begins the next. */
static void live(const struct plan *p, int pipe_fd)
{
    struct machine m;
    if (open_machine(&m, p))
        _exit(1);
    int64_t n = zinf_steps_count(m.steps) ? recovered(&m) : -1;
    if (zinf_steps_count(m.steps) && n < 0)
        _exit(2);
    for (uint64_t next = (uint64_t)(n + 1);; next++) {
        if (make_step(&m, next))
            _exit(3);
        if (write(pipe_fd, &next, sizeof next) != sizeof next)
            _exit(4);
    }
}

static void kill_again_and_again(struct plan p, int kills, int longest_us)
{
    int64_t acked = -1;
    int fds[2], progress = 0, unsaid = 0; /* lives of which each may have made a step unsaid */
    kills = getenv("ZINF_TEST_KILLS") ? atoi(getenv("ZINF_TEST_KILLS")) : kills;
    struct machine m;
    CHECK(!pipe(fds) && !fcntl(fds[0], F_SETFL, O_NONBLOCK));
    for (int i = 0; i < kills; i++) {
        uint64_t n;
        int64_t before = acked;
        pid_t child = fork();
        if (!child)
            live(&p, fds[1]);
        /* Most die anywhere, some not before their first step, however slow the machine is. */
        struct pollfd step = {.fd = fds[0], .events = POLLIN};
        if (i % 4 == 3)
            poll(&step, 1, 60000);
        uint32_t counter[4] = {(uint32_t)i}, bits[4];
        zinf_philox(counter, 5, bits);
        usleep(1000 + bits[0] % (uint32_t)longest_us);
        kill(child, SIGKILL);
        int status;
        waitpid(child, &status, 0);
        CHECKF(WIFSIGNALED(status), "it ended itself: %d", WEXITSTATUS(status));
        while (read(fds[0], &n, sizeof n) == sizeof n)
            acked = (int64_t)n;
        progress += acked > before;
        unsaid = acked > before ? 1 : unsaid + 1;
    }
    close(fds[0]);
    close(fds[1]);
    int code = open_machine(&m, &p);
    CHECKF(!code, "%s", zinf_error());
    if (code)
        return;
    int64_t n = recovered(&m);
    CHECKF(n >= acked && n <= acked + unsaid, "%lld after %lld, %d lives", (long long)n,
           (long long)acked, unsaid);
    CHECKF(acked > 0 && progress > 1, "%lld steps, %d times", (long long)acked, progress);
    printf("# %lld steps in %d lives\n", (long long)n, kills);
    zinf_steps_forget(m.store);
    close_machine(&m);
}

static void test_kill_9(void)
{
    struct plan p = PLAN;
    kill_again_and_again(p, 40, 40000);
    CHECK(count_entries(folder) == 0);
}

static void test_kill_9_flushed_two_paths(void)
{
    struct plan p = PLAN;
    p.flush = true;
    p.n_paths = 2;
    kill_again_and_again(p, 15, 100000);
    CHECK(count_entries(folder) == 0 && count_entries(second) == 0);
}

static void test_leaving_and_forgetting(void)
{
    struct plan p = PLAN, other = PLAN;
    struct machine m;
    CHECKF(!open_machine(&m, &p), "%s", zinf_error());
    CHECK(zinf_steps_count(m.steps) == 0 && recovered(&m) == -1);
    CHECK(!make_step(&m, 0) && !make_step(&m, 1) && zinf_steps_count(m.steps) == 2);
    close_machine(&m);
    CHECK(count_entries(folder) == 1);
    other.run = NULL; /* a store of no run: fails at its steps, and takes nothing away */
    CHECK(open_machine(&m, &other) == -EINVAL && count_entries(folder) == 1);
    other.run = other_name;
    CHECK(!open_machine(&m, &other) && zinf_steps_count(m.steps) == 0 &&
          count_entries(folder) == 2);
    zinf_steps_forget(m.store);
    close_machine(&m);
    CHECK(!open_machine(&m, &p) && recovered(&m) == 1 && zinf_steps_count(m.steps) == 2);
    CHECK(!make_step(&m, 2) && zinf_steps_count(m.steps) == 3);
    zinf_steps_forget(m.store);
    close_machine(&m);
    CHECK(count_entries(folder) == 0);
}

/* Before the first commit there is nothing to go on from, and that is no error. */
static void test_killed_before_the_first_step(void)
{
    struct plan p = PLAN;
    struct machine m;
    CHECK(!open_machine(&m, &p));
    close_machine(&m);
    CHECK(!open_machine(&m, &p) && zinf_steps_count(m.steps) == 0 && recovered(&m) == -1);
    CHECK(!make_step(&m, 5));
    close_machine(&m);
    CHECK(!open_machine(&m, &p) && recovered(&m) == 5);
    zinf_steps_forget(m.store);
    close_machine(&m);
}

static void test_other_plans_are_refused(void)
{
    struct plan p = PLAN, other;
    struct machine m;
    p.n_paths = 2;
    CHECK(!open_machine(&m, &p) && !make_step(&m, 4));
    close_machine(&m);
    other = p;
    other.n_extents--;
    CHECK(open_machine(&m, &other) == -EEXIST && strstr(zinf_error(), "another plan") &&
          strstr(zinf_error(), "optimizer, sub_group_size"));
    other = p;
    other.reversed = true;
    CHECK(open_machine(&m, &other) == -EINVAL && strstr(zinf_error(), "order"));
    other = p;
    other.layout++;
    CHECK(open_machine(&m, &other) == -EINVAL && strstr(zinf_error(), "another plan (model"));
    char hidden[700];
    snprintf(hidden, sizeof hidden, "%s.hidden", second);
    CHECK(!rename(second, hidden) && !mkdir(second, 0777));
    CHECK(open_machine(&m, &p) == -ENOENT && strstr(zinf_error(), second));
    CHECK(!rmdir(second) && !rename(hidden, second));
    CHECK(!open_machine(&m, &p) && recovered(&m) == 4);
    zinf_steps_forget(m.store);
    close_machine(&m);
    CHECK(count_entries(folder) == 0 && count_entries(second) == 0);
}

/* What has one generation holds nothing of a step: the next process may need more of it, or less.
 */
static void test_scratch_may_change(void)
{
    static const int stripes[] = {1, 7, 2, 9, 1};
    struct plan p = PLAN;
    struct machine m;
    p.n_paths = 2;
    for (int i = 0; i < 5; i++) {
        p.scratch = stripes[i];
        CHECKF(!open_machine(&m, &p), "%s", zinf_error());
        if (i)
            CHECK(recovered(&m) == i - 1);
        for (int s = 0; s < stripes[i]; s++)
            CHECK(!zinf_store_write(m.store, m.scratch, (uint64_t)s * STRIPE, m.memory, STRIPE) &&
                  !zinf_store_read(m.store, m.scratch, (uint64_t)s * STRIPE, m.memory, STRIPE));
        CHECK(!make_step(&m, (uint64_t)i));
        if (i == 4)
            zinf_steps_forget(m.store);
        close_machine(&m);
    }
    CHECK(count_entries(folder) == 0 && count_entries(second) == 0);
}

/* The one file of that name in the one folder there is. */
static const char *file_here(const char *name)
{
    static char path[1300];
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (entry->d_name[0] != '.')
            snprintf(path, sizeof path, "%s/%s/%s", folder, entry->d_name, name);
    closedir(dir);
    return path;
}

static void flip(const char *name, long offset)
{
    int fd = open(file_here(name), O_RDWR);
    char byte = 0;
    CHECK(fd >= 0 && pread(fd, &byte, 1, offset) == 1);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, offset) == 1 && !fsync(fd));
    close(fd);
}

/* Every page of the committed bank, one after the other, whatever the sizes of extents and
 * stripes; and no step is lost where the damage lies elsewhere. */
static void test_damage_is_found(void)
{
    struct plan p = PLAN;
    struct machine m;
    const long bank = N_EXTENTS * EXTENT_BYTES;
    p.flush = true;
    CHECK(!open_machine(&m, &p) && !make_step(&m, 0) && !make_step(&m, 1));
    close_machine(&m);
    for (long page = 0; page < 2 * bank + STRIPE; page += 4096) {
        long place = page + page / 4096 * 37 % 4096;
        bool read = page >= bank && page < 2 * bank;
        flip("extents", place);
        int code = open_machine(&m, &p);
        CHECKF(code == (read ? -EBADMSG : 0), "page at %ld: %d", page, code);
        CHECK(!read || strstr(zinf_error(), "extents"));
        if (!code)
            close_machine(&m);
        flip("extents", place);
    }
    for (int copy = 0; copy < 2; copy++)
        for (long slot = 0; slot < 3; slot++) {
            long place = slot * 65536 + copy * 4096 + 60;
            flip("commit", place);
            CHECK(!open_machine(&m, &p) && recovered(&m) == 1);
            close_machine(&m);
            flip("commit", place);
        }
    flip("steps", 40);
    CHECK(!open_machine(&m, &p) && recovered(&m) == 1);
    zinf_steps_forget(m.store);
    close_machine(&m);
}

/* What cannot be read or understood is nobody's to remove, and no reason to begin anew. */
static void check_kept(const char *what)
{
    struct plan other = PLAN;
    struct machine m;
    other.run = other_name;
    CHECKF(!open_machine(&m, &other), "%s: %s", what, zinf_error());
    CHECKF(count_entries(folder) == 2, "%s: %d folders", what, count_entries(folder));
    zinf_steps_forget(m.store);
    close_machine(&m);
    CHECKF(count_entries(folder) == 1, "%s: %d folders", what, count_entries(folder));
}

static void rename_here(const char *from, const char *to)
{
    char old[1300];
    snprintf(old, sizeof old, "%s", file_here(from));
    CHECK(!rename(old, file_here(to)));
}

static void test_what_is_not_understood_stays(void)
{
    struct plan p = PLAN;
    struct machine m;
    struct stat info;
    CHECK(!open_machine(&m, &p) && !make_step(&m, 0) && !make_step(&m, 1));
    close_machine(&m);
    flip("steps", 40);
    flip("steps", 4096 + 40);
    check_kept("a damaged description");
    flip("steps", 40);
    flip("steps", 4096 + 40);
    rename_here("steps", "elsewhere");
    check_kept("no description");
    rename_here("elsewhere", "steps");
    CHECK(!chmod(file_here("steps"), 0));
    if (geteuid())
        check_kept("a description that cannot be read");
    CHECK(!chmod(file_here("steps"), 0622));
    check_kept("a description that others may write");
    CHECK(!chmod(file_here("steps"), 0600));
    char area[1300], away[700];
    snprintf(area, sizeof area, "%s", file_here("commit"));
    snprintf(away, sizeof away, "%s.commit", folder);
    CHECK(!rename(area, away));
    check_kept("no commit area");
    CHECK(open_machine(&m, &p) && count_entries(folder) == 1);
    CHECK(!rename(away, area) && !stat(area, &info));
    CHECK(!open_machine(&m, &p) && recovered(&m) == 1);
    close_machine(&m);
    CHECK(!truncate(area, 4096));
    CHECK(open_machine(&m, &p) == -EBADMSG && strstr(zinf_error(), "commit"));
    CHECK(!truncate(area, info.st_size)); /* zeros where records were */
    CHECK(open_machine(&m, &p) == -EBADMSG && strstr(zinf_error(), "records"));
    check_kept("no records");
    CHECK(!unlink(area) && !unlink(file_here("steps")));
    check_kept("data of nobody"); /* as in the folder of a second path */
    CHECK(!unlink(file_here("extents")) && !unlink(file_here("lock")));
    *strrchr(area, '/') = 0;
    CHECK(!rmdir(area));
}

static struct zinf_steps_info seen;
static uint64_t seen_scalar;
static int n_seen;

static void see(void *arg, const struct zinf_steps_info *info)
{
    (void)arg;
    seen = *info;
    if (info->payload)
        memcpy(&seen_scalar, info->payload, sizeof seen_scalar);
    n_seen++;
}

static void test_list(void)
{
    struct plan p = PLAN;
    struct machine m;
    CHECK(!open_machine(&m, &p) && !zinf_steps_list(folder, see, NULL));
    CHECK(n_seen == 1 && seen.alive && !seen.committed && !memcmp(seen.run, run_name, 16));
    for (uint64_t i = 0; i < 3; i++)
        CHECK(!make_step(&m, i));
    close_machine(&m);
    CHECK(!zinf_steps_list(folder, see, NULL) && n_seen == 2);
    CHECK(!seen.alive && seen.committed && seen.commits == 3 && seen.same_boot && !seen.flushed);
    CHECK(seen_scalar == 2 && seen.payload_bytes == 24 && seen.n_paths == 1);
    CHECK(!open_machine(&m, &p) && recovered(&m) == 2);
    zinf_steps_forget(m.store); /* as if killed before the files are removed */
    CHECK(!zinf_steps_list(folder, see, NULL) && n_seen == 3 && !seen.committed);
    close_machine(&m);
    CHECK(!zinf_steps_list(folder, see, NULL) && n_seen == 3);
    CHECK(zinf_steps_list("/nonexistent", see, NULL) == -ENOENT);
}

int main(void)
{
    zinf_log_set_level(ZINF_LOG_ERROR);
    fixture_begin("steps");
    snprintf(second, sizeof second, "%s.second", folder);
    mkdir(second, 0777);
    TAP_RUN(test_leaving_and_forgetting);
    TAP_RUN(test_killed_before_the_first_step);
    TAP_RUN(test_kill_9);
    TAP_RUN(test_kill_9_flushed_two_paths);
    TAP_RUN(test_other_plans_are_refused);
    TAP_RUN(test_scratch_may_change);
    TAP_RUN(test_damage_is_found);
    TAP_RUN(test_what_is_not_understood_stays);
    TAP_RUN(test_list);
    rmdir(second);
    fixture_end();
    return tap_done();
}

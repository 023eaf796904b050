/* Stores: run folders and who owns them, space, striping, and checksums that find what a drive
 * hides. */
#include "build-config.h"

#include "aio/aio_store.h"
#include "aio_fixture.h"
#include "files.h"
#include "tap.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/statvfs.h>

#define MIB (1u << 20)

static char said[8192];

static void remember(enum zinf_log_level level, const char *line, void *arg)
{
    (void)level, (void)arg;
    strncat(said, line, sizeof said - strlen(said) - 1);
}

static struct zinf_store *store_on(const char *const *paths, int n_paths, uint64_t stripe)
{
    struct zinf_store *store = NULL;
    struct zinf_store_options options = {.paths = paths,
                                         .n_paths = n_paths,
                                         .label = "test",
                                         .stripe_bytes = stripe,
                                         .checksums = true};
    if (zinf_store_create(&store, &options))
        printf("# %s\n", zinf_error());
    return store;
}

static struct zinf_store *store_here(void)
{
    const char *paths[] = {folder};
    return store_on(paths, 1, 0);
}

static void test_life(void)
{
    zinf_extent a, b;
    char *out = aligned(5 * MIB), *back = aligned(5 * MIB);
    struct zinf_store *store = store_here();
    CHECK(count_entries(folder) == 1);
    CHECK(zinf_store_add_extent(store, 3 * MIB + 1, &a) == 0 && a == 0);
    CHECK(zinf_store_add_extent(store, 5 * MIB, &b) == 0 && b == 1);
    CHECK(zinf_store_add_extent(store, 0, &b) == -EINVAL);
    CHECK(zinf_store_planned_bytes(store) == 8 * MIB + 4096);
    CHECK(zinf_store_read(store, a, 0, back, 4096) == -EINVAL); /* not allocated */
    CHECK(zinf_store_allocate(store) == 0);
    CHECK(zinf_store_allocate(store) == -EINVAL);
    CHECK(zinf_store_add_extent(store, 1, &b) == -EINVAL);
    CHECK(zinf_store_extent_bytes(store, 0) == 3 * MIB + 4096);
    memset(back, 1, 5 * MIB);
    memset(out, 0, 5 * MIB);
    CHECK(zinf_store_read(store, 1, 0, back, 5 * MIB) == 0 && !memcmp(out, back, 5 * MIB));
    fill(out, 5 * MIB, 5);
    CHECK(zinf_store_write(store, 1, 0, out, 5 * MIB) == 0);
    CHECK(zinf_store_write(store, 0, 0, out + MIB, 3 * MIB + 4096) == 0);
    CHECK(zinf_store_read(store, 1, 0, back, 5 * MIB) == 0 && !memcmp(out, back, 5 * MIB));
    CHECK(zinf_store_read(store, 0, MIB, back, MIB) == 0 && !memcmp(out + 2 * MIB, back, MIB));
    CHECK(zinf_store_read(store, 0, 3 * MIB, back, 8192) == -EINVAL);
    CHECK(zinf_store_read(store, 2, 0, back, 4096) == -EINVAL);
    zinf_store_destroy(store);
    CHECK(count_entries(folder) == 0);
    zinf_store_destroy(NULL);
    free(out);
    free(back);
}

/* The file is written, not merely reserved: a later write converts nothing. */
static void test_space_is_taken(void)
{
    zinf_extent extent;
    struct stat info;
    struct zinf_store *store = store_here();
    CHECK(zinf_store_add_extent(store, 16 * MIB, &extent) == 0);
    CHECK(zinf_store_allocate(store) == 0);
    CHECK(stat(store->paths[0].file->path, &info) == 0);
    CHECK(info.st_size == 16 * MIB && info.st_blocks >= 16 * (MIB / 512));
    /* SEEK_DATA treats reserved, unwritten ranges as holes; here is none. */
    CHECK(lseek(store->paths[0].file->fd, 0, SEEK_HOLE) == 16 * MIB);
    zinf_store_destroy(store);
}

/* Two generations of one extent are two places with checksums of their own. */
static void test_generations(void)
{
    zinf_extent before, pair, after;
    const uint64_t bytes = 2 * MIB + 8192;
    char *old = aligned(bytes), *new = aligned(bytes), *back = aligned(bytes), byte = 0;
    struct zinf_store *store = store_here();
    CHECK(!zinf_store_add_extent(store, 4096, &before));
    CHECK(!zinf_store_add_extent_pair(store, bytes - 1, &pair));
    CHECK(!zinf_store_add_extent(store, 4096, &after));
    CHECK(zinf_store_add_extent_pair(store, INT64_MAX / 4, &after) == -EINVAL);
    CHECK(zinf_store_planned_bytes(store) == 2 * bytes + 8192);
    CHECK(zinf_store_extent_bytes(store, pair) == bytes);
    CHECK(zinf_store_generations(store, before) == 1 && zinf_store_generations(store, pair) == 2);
    CHECK(zinf_store_generations(store, 3) == 0);
    CHECKF(!zinf_store_allocate(store), "%s", zinf_error());
    fill(old, bytes, 1);
    fill(new, bytes, 2);
    CHECK(!zinf_store_write(store, before, 0, new, 4096));
    CHECK(!zinf_store_write(store, after, 0, new, 4096));
    CHECK(!zinf_store_write(store, pair, 0, old, bytes)); /* generation 0 */
    CHECK(!zinf_store_write_generation(store, pair, 1, 0, new, bytes));
    CHECK(!zinf_store_read_generation(store, pair, 0, 0, back, bytes) && !memcmp(old, back, bytes));
    CHECK(!zinf_store_read_generation(store, pair, 1, 0, back, bytes) && !memcmp(new, back, bytes));
    CHECK(!zinf_store_read(store, pair, 4096, back, MIB) && !memcmp(old + 4096, back, MIB));
    CHECK(!zinf_store_read(store, before, 0, back, 4096) && !memcmp(new, back, 4096));
    CHECK(!zinf_store_read(store, after, 0, back, 4096) && !memcmp(new, back, 4096));
    CHECK(zinf_store_read_generation(store, pair, 2, 0, back, bytes) == -EINVAL);
    CHECK(zinf_store_write_generation(store, before, 1, 0, back, 4096) == -EINVAL);
    CHECKF(strstr(zinf_error(), "generation 1"), "%s", zinf_error());
    CHECK(zinf_store_read_generation(store, pair, 1, 4096, back, bytes) == -EINVAL);
    /* Damage to the new one is found in the new one alone. */
    zinf_log_set_sink(remember, NULL);
    off_t place = (off_t)bytes + 5; /* pairs come first, one bank behind the other */
    int fd = open(store->paths[0].file->path, O_RDWR);
    CHECK(pread(fd, &byte, 1, place) == 1 && byte == new[5]);
    byte ^= 1;
    CHECK(pwrite(fd, &byte, 1, place) == 1 && !fdatasync(fd));
    close(fd);
    CHECK(zinf_store_read_generation(store, pair, 1, 0, back, bytes) == -EBADMSG);
    CHECK(!zinf_store_read(store, pair, 0, back, bytes) && !memcmp(old, back, bytes));
    zinf_log_set_sink(NULL, NULL);
    zinf_store_destroy(store);
    free(old);
    free(new);
    free(back);
}

/* ---- flush ---- */

/* A descriptor that cannot be flushed stands for a drive that lost what it took. */
static void test_flush(void)
{
    char one[600], two[600], *memory = aligned(MIB);
    snprintf(one, sizeof one, "%s", in_folder("one"));
    snprintf(two, sizeof two, "%s", in_folder("two"));
    CHECK(!mkdir(one, 0777) && !mkdir(two, 0777));
    const char *paths[] = {one, two};
    struct zinf_store *store = store_on(paths, 2, 65536);
    zinf_extent extent;
    CHECK(zinf_store_flush(store) == -EINVAL);
    CHECK(!zinf_store_add_extent(store, MIB, &extent) && !zinf_store_allocate(store));
    fill(memory, MIB, 1);
    CHECK(!zinf_store_write(store, extent, 0, memory, MIB));
    CHECKF(!zinf_store_flush(store), "%s", zinf_error());
    int fd = store->paths[1].file->fd, keep = dup(fd), unusable = open(two, O_PATH);
    CHECK(dup2(unusable, fd) == fd);
    CHECK(zinf_store_flush(store) == -EBADF);
    CHECKF(strstr(zinf_error(), store->paths[1].file->path) && strstr(zinf_error(), "checkpoint"),
           "%s", zinf_error());
    CHECK(dup2(keep, fd) == fd);
    CHECK(zinf_store_flush(store) == -EBADF);
    CHECK(zinf_store_read(store, extent, 0, memory, MIB) == -EBADF);
    CHECK(zinf_store_write(store, extent, 0, memory, MIB) == -EBADF);
    CHECKF(strstr(zinf_error(), "cannot flush"), "%s", zinf_error());
    close(keep);
    close(unusable);
    zinf_store_destroy(store);
    CHECK(!rmdir(one) && !rmdir(two));
    free(memory);
}

/* ---- owners ---- */

static void test_two_stores_on_one_path(void)
{
    zinf_extent extent;
    char *memory = aligned(MIB), *back = aligned(MIB);
    struct zinf_store *first = store_here(), *second = store_here();
    CHECK(count_entries(folder) == 2);
    CHECK(zinf_store_add_extent(first, MIB, &extent) == 0 && zinf_store_allocate(first) == 0);
    CHECK(zinf_store_add_extent(second, MIB, &extent) == 0 && zinf_store_allocate(second) == 0);
    fill(memory, MIB, 1);
    CHECK(zinf_store_write(first, 0, 0, memory, MIB) == 0);
    memset(back, 0, MIB);
    CHECK(zinf_store_write(second, 0, 0, back, MIB) == 0);
    CHECK(zinf_store_read(first, 0, 0, back, MIB) == 0 && !memcmp(memory, back, MIB));
    zinf_store_destroy(first);
    CHECK(count_entries(folder) == 1);
    CHECK(zinf_store_read(second, 0, 0, back, MIB) == 0);
    zinf_store_destroy(second);
    CHECK(count_entries(folder) == 0);
    free(memory);
    free(back);
}

/* A child that takes a store, says so, and hangs. */
static pid_t hanging_child(int ready[2])
{
    pid_t pid = fork();
    if (pid)
        return pid;
    zinf_extent extent;
    struct zinf_store *store = store_here();
    char good =
        store && !zinf_store_add_extent(store, 4 * MIB, &extent) && !zinf_store_allocate(store);
    if (write(ready[1], &good, 1) != 1)
        _exit(1);
    for (;;)
        pause();
}

static void test_reclaim_after_kill(void)
{
    int ready[2], status;
    char good = 0;
    fflush(stdout);
    CHECK(pipe(ready) == 0);
    pid_t pid = hanging_child(ready);
    CHECK(read(ready[0], &good, 1) == 1 && good);
    /* While it lives nobody takes it away. */
    struct zinf_store *store = store_here();
    CHECK(count_entries(folder) == 2);
    zinf_store_destroy(store);
    CHECK(count_entries(folder) == 1);
    kill(pid, SIGKILL);
    CHECK(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    CHECK(count_entries(folder) == 1);
    said[0] = 0;
    zinf_log_set_sink(remember, NULL);
    store = store_here();
    zinf_log_set_sink(NULL, NULL);
    CHECK(count_entries(folder) == 1);
    CHECKF(strstr(said, "whose owner is gone") && strstr(said, "4.00 MiB"), "%s", said);
    zinf_store_destroy(store);
    CHECK(count_entries(folder) == 0);
    close(ready[0]);
    close(ready[1]);
}

/* What an owner left that died between two steps of making or removing its folder. */
static void test_reclaim_of_pieces(void)
{
    static const char *const names[] = {"zinf-test-1-0", "zinf-a-b-77-3"};
    char path[700];
    for (int i = 0; i < 2; i++)
        CHECK(mkdir(in_folder(names[i]), 0700) == 0);
    snprintf(path, sizeof path, "%s/lock", in_folder(names[1]));
    close(open(path, O_CREAT | O_WRONLY, 0600));
    /* These are not ours and stay. */
    static const char *const foreign[] = {"zinf-notes", "zinf-test-1-x", "zinf--1", "other-1-2",
                                          "zinf-1-2"};
    for (int i = 0; i < 5; i++)
        CHECK(mkdir(in_folder(foreign[i]), 0700) == 0);
    struct zinf_store *store = store_here();
    CHECKF(count_entries(folder) == 6, "%d entries", count_entries(folder));
    zinf_store_destroy(store);
    for (int i = 0; i < 5; i++)
        CHECK(rmdir(in_folder(foreign[i])) == 0);
}

/* Many processes take and drop stores on one path at once: nobody loses a live one. */
static int take_and_drop(void)
{
    for (int i = 0; i < 30; i++) {
        zinf_extent extent;
        struct zinf_store *store = store_here();
        if (!store || zinf_store_add_extent(store, 8192, &extent) || zinf_store_allocate(store))
            return 1;
        char *memory = aligned(8192), *back = aligned(8192);
        fill(memory, 8192, (uint64_t)getpid() + (uint64_t)i);
        if (zinf_store_write(store, extent, 0, memory, 8192) ||
            zinf_store_read(store, extent, 0, back, 8192) || memcmp(memory, back, 8192) ||
            access(store->paths[0].folder.path, F_OK))
            return 2;
        if (i == 29)
            raise(SIGKILL); /* dies with a store in hand */
        free(memory);
        free(back);
        zinf_store_destroy(store);
    }
    return 0;
}

static void test_races_for_folders(void)
{
    pid_t children[4];
    int status;
    fflush(stdout);
    zinf_log_set_level(ZINF_LOG_WARN);
    for (int i = 0; i < 4; i++)
        if (!(children[i] = fork()))
            _exit(take_and_drop());
    for (int i = 0; i < 4; i++)
        CHECKF(waitpid(children[i], &status, 0) == children[i] && WIFSIGNALED(status),
               "child ends with %d", status);
    struct zinf_store *store = store_here();
    CHECK(count_entries(folder) == 1);
    zinf_store_destroy(store);
    zinf_log_set_level(ZINF_LOG_INFO);
}

/* ---- refusals ---- */

static void test_too_little_space(void)
{
    struct statvfs info;
    zinf_extent extent;
    CHECK(statvfs(folder, &info) == 0);
    uint64_t free_bytes = (uint64_t)info.f_bavail * info.f_frsize;
    char twin[600];
    snprintf(twin, sizeof twin, "%s", in_folder("twin"));
    CHECK(mkdir(twin, 0777) == 0);
    const char *paths[] = {folder, twin};
    /* On two folders of one drive each half would fit alone. */
    for (int n = 1; n <= 2; n++) {
        struct zinf_store *store = store_on(paths, n, 0);
        CHECK(zinf_store_add_extent(store, free_bytes + free_bytes / 2, &extent) == 0);
        CHECK(zinf_store_allocate(store) == -ENOSPC);
        CHECKF(strstr(zinf_error(), folder) && strstr(zinf_error(), "nvme_path") &&
                   strstr(zinf_error(), " needs "),
               "%s", zinf_error());
        CHECK(count_entries(store->paths[0].folder.path) == 1); /* the lock alone */
        zinf_store_destroy(store);
    }
    CHECK(rmdir(twin) == 0 && count_entries(folder) == 0);
}

/* The reservation itself fails on the second path, here by the limit of a file's length: what
 * was made on both is gone again. */
static int child_with_limit(void)
{
    struct rlimit low = {2 * MIB, 2 * MIB};
    char twin[600];
    snprintf(twin, sizeof twin, "%s", in_folder("twin"));
    const char *paths[] = {folder, twin};
    zinf_extent extent;
    signal(SIGXFSZ, SIG_IGN);
    struct zinf_store *store = store_on(paths, 2, 4 * MIB);
    if (!store || zinf_store_add_extent(store, 5 * MIB, &extent) || setrlimit(RLIMIT_FSIZE, &low))
        return 2;
    if (zinf_store_allocate(store) != -EFBIG || !strstr(zinf_error(), "cannot reserve"))
        return 3;
    if (count_entries(store->paths[0].folder.path) != 1 ||
        count_entries(store->paths[1].folder.path) != 1)
        return 4;
    zinf_store_destroy(store);
    return count_entries(twin) ? 5 : 0;
}

static void test_reservation_fails(void)
{
    char twin[600];
    snprintf(twin, sizeof twin, "%s", in_folder("twin"));
    CHECK(mkdir(twin, 0777) == 0);
    int code = in_child(child_with_limit);
    CHECKF(code == 0, "child says %d", code);
    CHECK(rmdir(twin) == 0 && count_entries(folder) == 0);
}

static void test_memory_file_system(void)
{
    const char *paths[] = {"/dev/shm"};
    struct zinf_store *store = NULL;
    struct zinf_store_options options = {.paths = paths, .n_paths = 1, .label = "test"};
    char memory[8192] __attribute__((aligned(4096))) = {1};
    zinf_extent extent;
    if (access("/dev/shm", W_OK))
        SKIP("no /dev/shm");
    CHECK(zinf_store_create(&store, &options) == -EINVAL);
    CHECKF(strstr(zinf_error(), "/dev/shm") && strstr(zinf_error(), "nvme_path"), "%s",
           zinf_error());
    options.allow_memory_fs = true;
    CHECK(zinf_store_create(&store, &options) == 0);
    CHECK(zinf_store_add_extent(store, 8192, &extent) == 0 && zinf_store_allocate(store) == 0);
    CHECK(zinf_store_write(store, extent, 0, memory, 8192) == 0);
    memory[0] = 0;
    CHECK(zinf_store_read(store, extent, 0, memory, 8192) == 0 && memory[0] == 1);
    zinf_store_destroy(store);
}

static void test_bad_options(void)
{
    struct zinf_store *store = NULL;
    char missing[700];
    snprintf(missing, sizeof missing, "%s/missing", folder);
    const char *paths[] = {folder, missing};
    struct zinf_store_options options = {.paths = paths, .n_paths = 2, .label = "test"};
    CHECK(zinf_store_create(&store, &options) == -ENOENT);
    CHECK(strstr(zinf_error(), missing) && strstr(zinf_error(), "nvme_path"));
    CHECK(count_entries(folder) == 0); /* the first path was given back */
    options.n_paths = 1;
    options.label = "../x";
    CHECK(zinf_store_create(&store, &options) == -EINVAL);
    options.label = "test";
    options.stripe_bytes = 1000;
    CHECK(zinf_store_create(&store, &options) == -EINVAL);
    options.n_paths = 0;
    CHECK(zinf_store_create(&store, &options) == -EINVAL);
}

/* ---- checksums ---- */

static int64_t read_with(struct zinf_store *store, const struct zinf_aio_faults *faults,
                         uint64_t offset, char *memory, uint64_t bytes, char message[512])
{
    const char *text = "";
    struct zinf_aio_queue *queue = NULL;
    struct zinf_aio_queue_options options = {.block_bytes = 65536, .around = {AIO_FAULTS(faults)}};
    struct zinf_aio_request request = {
        .op = ZINF_AIO_OP_READ, .store = store, .offset = offset, .memory = memory, .bytes = bytes};
    CHECK(zinf_aio_queue_create(&queue, &options) == 0);
    CHECK(zinf_aio_submit(queue, &request) == 0);
    CHECK(zinf_aio_reap(queue, UINT64_MAX) == &request);
    zinf_aio_queue_error(queue, &text);
    snprintf(message, 512, "%s", text);
    zinf_aio_queue_destroy(queue);
    return request.result;
}

static void test_checksums(void)
{
    zinf_extent extent;
    char *out = aligned(5 * MIB), *back = aligned(5 * MIB), message[512];
    struct zinf_store *store = store_here();
    CHECK(zinf_store_add_extent(store, 5 * MIB, &extent) == 0);
    CHECK(zinf_store_allocate(store) == 0);
    fill(out, 5 * MIB, 3);
    CHECK(zinf_store_write(store, extent, 0, out, 5 * MIB) == 0);
    zinf_log_set_sink(remember, NULL);

    /* Every transfer spoils a bit: found, and not believed. */
    struct zinf_aio_faults flips = {.seed = 9, .flip_ppm = 1000000};
    CHECK(read_with(store, &flips, 0, back, 5 * MIB, message) == -EBADMSG);
    CHECKF(strstr(message, "checksum mismatch") && strstr(message, store->paths[0].file->path),
           "%s", message);
    /* One transfer in 80 does: the second reading is good. */
    flips = (struct zinf_aio_faults){.seed = 15, .flip_ppm = 8000};
    int recovered = 0;
    for (int i = 0; i < 20; i++) {
        flips.seed = 100 + (uint64_t)i;
        said[0] = 0;
        int64_t result = read_with(store, &flips, 0, back, 5 * MIB, message);
        CHECK(result == -EBADMSG || (result == 5 * MIB && !memcmp(out, back, 5 * MIB)));
        recovered += result == 5 * MIB && strstr(said, "reads it once more");
    }
    CHECK(recovered > 0);

    /* The drive itself lies: one byte in the third stripe. */
    char wrong = (char)(out[4 * MIB + 17] ^ 4);
    int fd = open(store->paths[0].file->path, O_WRONLY);
    CHECK(pwrite(fd, &wrong, 1, 4 * MIB + 17) == 1 && fdatasync(fd) == 0);
    close(fd);
    CHECK(read_with(store, NULL, 0, back, 5 * MIB, message) == -EBADMSG);
    CHECKF(strstr(message, "offset 4194304"), "%s", message);
    CHECK(read_with(store, NULL, 0, back, 4 * MIB, message) == 4 * MIB);
    /* However the reading is cut, the page is not believed, and those around it are. */
    CHECK(read_with(store, NULL, 4 * MIB, back, 4096, message) == -EBADMSG);
    CHECK(read_with(store, NULL, 4 * MIB - 8192, back, 8192, message) == 8192);
    CHECK(read_with(store, NULL, 4 * MIB + 4096, back, 4096, message) == 4096);
    /* A write of any part has its checksums at once; what was damaged beside it stays so. */
    CHECK(zinf_store_write(store, extent, 4 * MIB - 4096, out, 4096) == 0);
    CHECK(read_with(store, NULL, 4 * MIB - 4096, back, 4096, message) == 4096);
    CHECK(!memcmp(back, out, 4096));
    CHECK(read_with(store, NULL, 0, back, 5 * MIB, message) == -EBADMSG);
    CHECK(zinf_store_write(store, extent, 4 * MIB, out, 4096) == 0);
    CHECK(read_with(store, NULL, 0, back, 5 * MIB, message) == 5 * MIB);
    zinf_log_set_sink(NULL, NULL);
    zinf_store_destroy(store);
    free(out);
    free(back);
}

static void put(const struct zinf_store *store, const void *page, off_t place)
{
    int fd = open(store->paths[0].file->path, O_WRONLY);
    CHECK(pwrite(fd, page, 4096, place) == 4096 && fdatasync(fd) == 0);
    close(fd);
}

/* Pages that are whole, but not what was written there last: a write that was lost, and one that
 * went elsewhere. Sizes that are no multiple of a stripe, at places that are none. */
static void test_lost_and_misplaced_writes(void)
{
    const uint64_t bytes = 200192 / 4096 * 4096 + 4096; /* an odd sub-group */
    zinf_extent extent;
    char *old = aligned(bytes), *new = aligned(bytes), *back = aligned(bytes), message[512];
    struct zinf_store *store = store_here();
    CHECK(zinf_store_add_extent(store, 3 * bytes, &extent) == 0);
    CHECK(zinf_store_allocate(store) == 0);
    fill(old, bytes, 3);
    fill(new, bytes, 4);
    zinf_log_set_sink(remember, NULL);
    CHECK(read_with(store, NULL, bytes, back, bytes, message) == (int64_t)bytes); /* zeros */
    CHECK(zinf_store_write(store, extent, bytes, old, bytes) == 0);
    CHECK(zinf_store_write(store, extent, bytes, new, bytes) == 0);
    for (uint64_t at = 0; at < bytes; at += 4096) {
        put(store, old + at, (off_t)(bytes + at));
        CHECK(read_with(store, NULL, bytes, back, bytes, message) == -EBADMSG);
        put(store, new + (at + 4096) % bytes, (off_t)(bytes + at));
        CHECK(read_with(store, NULL, bytes, back, bytes, message) == -EBADMSG);
        put(store, new + at, (off_t)(bytes + at));
    }
    CHECK(read_with(store, NULL, bytes, back, bytes, message) == (int64_t)bytes);
    CHECK(!memcmp(back, new, bytes));
    zinf_log_set_sink(NULL, NULL);
    zinf_store_destroy(store);
    free(old);
    free(new);
    free(back);
}

int main(void)
{
    if (fixture_begin("aio_store_test"))
        return 99;
    TAP_RUN(test_life);
    TAP_RUN(test_space_is_taken);
    TAP_RUN(test_generations);
    TAP_RUN(test_flush);
    TAP_RUN(test_two_stores_on_one_path);
    TAP_RUN(test_reclaim_after_kill);
    TAP_RUN(test_reclaim_of_pieces);
    TAP_RUN(test_races_for_folders);
    TAP_RUN(test_too_little_space);
    TAP_RUN(test_reservation_fails);
    TAP_RUN(test_memory_file_system);
    TAP_RUN(test_bad_options);
    TAP_RUN(test_checksums);
    TAP_RUN(test_lost_and_misplaced_writes);
    fixture_end();
    return tap_done();
}

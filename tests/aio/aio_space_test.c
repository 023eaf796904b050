/* A file system that is really full: 4 MiB of tmpfs in a mount namespace of a child's own. What
 * does not fit is said before or while it is written; what was allocated can be written for ever.
 */
#include "build-config.h"

#include "aio_fixture.h"
#include "tap.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/mount.h>

#define MIB (1u << 20)
#define ROOM (4 * MIB)

static char small[600];
static enum zinf_aio_engine engines[2];
static int n_engines;

static bool write_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool good = fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text);
    if (fd >= 0)
        close(fd);
    return good;
}

/* Root needs only the mounts to be its own; others need to be root, in a user namespace. */
static bool enter_namespace(void)
{
    char map[64];
    snprintf(map, sizeof map, "0 %ld 1", (long)getuid());
    if (unshare(CLONE_NEWNS) &&
        (unshare(CLONE_NEWUSER | CLONE_NEWNS) || !write_text("/proc/self/uid_map", map)))
        return false;
    return !mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) &&
           !mount("zinf", small, "tmpfs", 0, "size=4m");
}

static bool says(const char *message, const char *words)
{
    if (strstr(message, words))
        return true;
    printf("# no \"%s\" in \"%s\"\n", words, message);
    fflush(stdout);
    return false;
}

/* Every other test of this file runs in a child; 77: no namespace can be had. */
static int child_full_while_writing(void)
{
    char path[700], *memory = aligned(2 * ROOM);
    if (!enter_namespace())
        return 77;
    for (int e = 0; e < n_engines; e++) {
        const char *message;
        struct zinf_aio_file *file = NULL;
        struct zinf_aio_queue *queue = NULL;
        struct zinf_aio_queue_options options = {.engine = engines[e]};
        snprintf(path, sizeof path, "%s/file%d", small, e);
        memset(memory, 1, 2 * ROOM);
        if (zinf_aio_open(&file, path, ZINF_AIO_READ | ZINF_AIO_WRITE | ZINF_AIO_CREATE) ||
            zinf_aio_queue_create(&queue, &options))
            return 2;
        if (move_now(queue, ZINF_AIO_OP_WRITE, file, 0, memory, 2 * ROOM) != -ENOSPC)
            return 3;
        if (zinf_aio_queue_error(queue, &message) != -ENOSPC || !says(message, path) ||
            !says(message, "free there") || !says(message, "larger drive"))
            return 4;
        if (move_now(queue, ZINF_AIO_OP_READ, file, 0, memory, 4096) != -ENOSPC)
            return 5;
        zinf_aio_queue_destroy(queue);
        zinf_aio_close(file);
        unlink(path);
    }
    free(memory);
    return 0;
}

static struct zinf_store *store_in_small(uint64_t bytes, zinf_extent *extent)
{
    const char *paths[] = {small};
    struct zinf_store *store = NULL;
    struct zinf_store_options options = {
        .paths = paths, .n_paths = 1, .label = "test", .checksums = true, .allow_memory_fs = true};
    if (zinf_store_create(&store, &options) || zinf_store_add_extent_pair(store, bytes, extent))
        return NULL;
    return store;
}

static int child_store_too_large(void)
{
    zinf_extent extent;
    if (!enter_namespace())
        return 77;
    struct zinf_store *store = store_in_small(ROOM / 2 + 4096, &extent);
    if (!store || zinf_store_allocate(store) != -ENOSPC)
        return 2;
    if (!says(zinf_error(), small) || !says(zinf_error(), "needs") || !says(zinf_error(), "free"))
        return 3;
    zinf_store_destroy(store);
    /* Nothing was left behind that would take room from the next. */
    store = store_in_small(ROOM / 4, &extent);
    if (!store || zinf_store_allocate(store))
        return 4;
    zinf_store_destroy(store);
    return rmdir(small) && errno == EBUSY ? 0 : 5; /* a mount point that could be emptied */
}

static int child_store_keeps_its_room(void)
{
    zinf_extent extent;
    char path[700], *memory = aligned(MIB), *back = aligned(MIB);
    if (!enter_namespace())
        return 77;
    struct zinf_store *store = store_in_small(MIB, &extent);
    if (!store || zinf_store_allocate(store))
        return 2;
    snprintf(path, sizeof path, "%s/filler", small);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    memset(memory, 7, MIB);
    while (write(fd, memory, 65536) > 0)
        ;
    if (fd < 0 || errno != ENOSPC)
        return 3;
    for (uint8_t generation = 0; generation < 2; generation++) {
        fill(memory, MIB, generation + 1u);
        if (zinf_store_write_generation(store, extent, generation, 0, memory, MIB) ||
            zinf_store_read_generation(store, extent, generation, 0, back, MIB) ||
            memcmp(memory, back, MIB))
            return 4;
    }
    if (zinf_store_flush(store))
        return 5;
    close(fd);
    zinf_store_destroy(store);
    free(memory);
    free(back);
    return 0;
}

static void check_child(int (*child)(void))
{
    int code = in_child(child);
    if (code == 77)
        SKIP("no mount namespace can be had here");
    CHECKF(code == 0, "child says %d", code);
}

static void test_full_while_writing(void)
{
    check_child(child_full_while_writing);
}

static void test_store_too_large(void)
{
    check_child(child_store_too_large);
}

static void test_store_keeps_its_room(void)
{
    check_child(child_store_keeps_its_room);
}

int main(void)
{
    if (fixture_begin("aio_space_test"))
        return 99;
    snprintf(small, sizeof small, "%s", in_folder("small"));
    if (mkdir(small, 0777))
        return 99;
    n_engines = moving_engines(engines);
    TAP_RUN(test_full_while_writing);
    TAP_RUN(test_store_too_large);
    TAP_RUN(test_store_keeps_its_room);
    rmdir(small);
    fixture_end();
    return tap_done();
}

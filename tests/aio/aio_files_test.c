/*
 * Extents in others' files: stretches one behind the other, whole pages of them, what lies behind
 * a file's end being zero; nothing is written to them and no room is taken; with checksums, what
 * changes after its first reading is found and named.
 */
#include "aio_fixture.h"
#include "tap.h"

#include <fcntl.h>

enum { PAGE = ZINF_AIO_ALIGN };

static char path[2][600];

static void make_file(int i, size_t bytes)
{
    char *data = malloc(bytes);
    for (size_t k = 0; k < bytes; k++)
        data[k] = (char)(k / PAGE * 7 + k % 251 + (size_t)i);
    snprintf(path[i], sizeof path[i], "%s/others-%d", folder, i);
    CHECKF(!zinf_file_write_atomic(path[i], data, bytes), "%s", zinf_error());
    free(data);
}

static struct zinf_store *open_store(bool checksums, zinf_extent *own, zinf_extent *others)
{
    const char *paths[] = {folder};
    struct zinf_store_options options = {
        .paths = paths, .n_paths = 1, .label = "files", .checksums = checksums};
    struct zinf_store *store = NULL;
    uint32_t a = 0, b = 0;
    CHECKF(!zinf_store_create(&store, &options), "%s", zinf_error());
    CHECK(!zinf_store_open_file(store, path[0], &a) && !zinf_store_open_file(store, path[1], &b));
    const struct zinf_store_span spans[] = {
        {b, PAGE, 2 * PAGE}, {a, 3 * PAGE, PAGE}, {b, 4 * PAGE, PAGE}};
    CHECKF(!zinf_store_add_files_extent(store, spans, 3, others), "%s", zinf_error());
    CHECK(!zinf_store_add_extent(store, 3 * PAGE, own));
    CHECK(zinf_store_planned_bytes(store) == 3 * PAGE);
    CHECK(zinf_store_extent_bytes(store, *others) == 4 * PAGE);
    CHECKF(!zinf_store_allocate(store), "%s", zinf_error());
    return store;
}

static bool is_page(const char *memory, int file, size_t page, size_t bytes)
{
    for (size_t k = 0; k < PAGE; k++)
        if (memory[k] !=
            (k < bytes ? (char)(page * 7 + (page * PAGE + k) % 251 + (size_t)file) : 0))
            return false;
    return true;
}

static void check_reads(bool checksums)
{
    zinf_extent own, others;
    struct zinf_store *store = open_store(checksums, &own, &others);
    char *memory = aligned_alloc(PAGE, 4 * PAGE);
    for (int round = 0; round < 2; round++) {
        memset(memory, 0x77, 4 * PAGE);
        CHECKF(!zinf_store_read(store, others, 0, memory, 4 * PAGE), "%s", zinf_error());
        CHECK(is_page(memory, 1, 1, PAGE) && is_page(memory + PAGE, 1, 2, PAGE));
        CHECK(is_page(memory + 2 * PAGE, 0, 3, PAGE));
        CHECK(!checksums || is_page(memory + 3 * PAGE, 1, 4, 100));
    }
    CHECKF(!zinf_store_read(store, others, 2 * PAGE, memory, PAGE), "%s", zinf_error());
    CHECK(is_page(memory, 0, 3, PAGE));
    CHECK(zinf_store_write(store, others, 0, memory, PAGE) == -EROFS);
    CHECK(!zinf_store_write(store, own, 0, memory, PAGE));
    memset(memory, 0, PAGE);
    CHECK(!zinf_store_read(store, own, 0, memory, PAGE) && is_page(memory, 0, 3, PAGE));
    free(memory);
    zinf_store_destroy(store);
}

static void test_reads(void)
{
    check_reads(true);
    check_reads(false);
}

static void test_change_is_found(void)
{
    zinf_extent own, others;
    struct zinf_store *store = open_store(true, &own, &others);
    char *memory = aligned_alloc(PAGE, 4 * PAGE), byte = 1;
    CHECK(!zinf_store_read(store, others, 0, memory, 3 * PAGE));
    int fd = open(path[0], O_WRONLY);
    CHECK(fd >= 0 && pwrite(fd, &byte, 1, 3 * PAGE + 5) == 1 && !fsync(fd));
    CHECK(!zinf_store_read(store, others, 0, memory, 2 * PAGE));
    CHECK(zinf_store_read(store, others, 2 * PAGE, memory, PAGE) == -ESTALE);
    CHECKF(strstr(zinf_error(), "others-0") && strstr(zinf_error(), "reads otherwise"), "%s",
           zinf_error());
    close(fd);
    free(memory);
    zinf_store_destroy(store);
    make_file(0, 4 * PAGE);
}

static void test_refusals(void)
{
    const char *paths[] = {folder};
    struct zinf_store_options options = {.paths = paths, .n_paths = 1, .label = "files"};
    struct zinf_store *store = NULL;
    uint32_t file = 0;
    zinf_extent extent;
    CHECK(!zinf_store_create(&store, &options));
    const struct zinf_store_span spans[] = {{0, 0, PAGE}, {0, 1, PAGE}, {0, 0, 0}};
    CHECK(zinf_store_add_files_extent(store, &spans[0], 1, &extent) == -EINVAL); /* no file yet */
    CHECK(zinf_store_open_file(store, "/nowhere", &file) == -ENOENT);
    CHECK(!zinf_store_open_file(store, path[0], &file));
    CHECK(zinf_store_add_files_extent(store, &spans[1], 1, &extent) == -EINVAL);
    CHECK(zinf_store_add_files_extent(store, &spans[2], 1, &extent) == -EINVAL);
    CHECK(!zinf_store_add_files_extent(store, &spans[0], 1, &extent));
    zinf_store_destroy(store);
}

int main(void)
{
    fixture_begin("files");
    make_file(0, 4 * PAGE);
    make_file(1, 4 * PAGE + 100);
    TAP_RUN(test_reads);
    TAP_RUN(test_change_is_found);
    TAP_RUN(test_refusals);
    unlink(path[0]);
    unlink(path[1]);
    fixture_end();
    return tap_done();
}

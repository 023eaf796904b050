/* formats: writers that go wrong leave nothing and say why; very many tensors. */
#include "formats_support.h"

#include <fcntl.h>
#include <glob.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

static struct zinf_tensors_writer *begin_one(const char *path, uint64_t n)
{
    struct zinf_tensors_writer *writer = NULL;
    CHECK(!zinf_tensors_writer_create(
        &writer, &(struct zinf_tensors_writer_options){.path = path, .single_file = true}));
    CHECK(!zinf_tensors_writer_declare(writer, "w", ZINF_FILE_U8, 1, &n));
    CHECKF(!zinf_tensors_writer_begin(writer), "%s", zinf_error());
    return writer;
}

static void test_writer_leaves_nothing(void)
{
    const char *path = in_scratch("left.safetensors");
    struct zinf_tensors_writer *writer = begin_one(path, 4);
    CHECK(!zinf_tensors_writer_append(writer, "abc", 3));
    CHECK(count_files(scratch, "left") == 1 && !exists(path));
    CHECK(zinf_tensors_writer_finish(writer) == -EINVAL); /* a byte is missing */
    CHECKF(strstr(zinf_error(), "3 of its 4"), "%s", zinf_error());
    CHECK(zinf_tensors_writer_append(writer, "d", 1) == -EINVAL); /* and stays failed */
    zinf_tensors_writer_destroy(writer);
    CHECK(count_files(scratch, "left") == 0);

    writer = begin_one(path, 4);
    CHECK(zinf_tensors_writer_append(writer, "abcde", 5) == -EINVAL);
    CHECKF(strstr(zinf_error(), "1 bytes more"), "%s", zinf_error());
    zinf_tensors_writer_destroy(writer);
    CHECK(count_files(scratch, "left") == 0);
    zinf_tensors_writer_destroy(NULL);
}

static void test_writer_refuses(void)
{
    const char *path = in_scratch("refused.safetensors");
    const uint64_t shape[9] = {1, 1, 1, 1, 1, 1, 1, 1, 1}, huge[2] = {1ull << 32, 1ull << 32};
    const uint64_t petabytes = 1ull << 50;
    struct zinf_tensors_writer_options options = {.path = path, .single_file = true};
    struct zinf_tensors_writer *writer;
    CHECK(!zinf_tensors_writer_create(&writer, &options));
    CHECK(zinf_tensors_writer_declare(writer, "", ZINF_FILE_U8, 0, NULL) == -EINVAL);
    CHECK(zinf_tensors_writer_declare(writer, "a\nb", ZINF_FILE_U8, 0, NULL) == -EINVAL);
    CHECK(zinf_tensors_writer_declare(writer, "__metadata__", ZINF_FILE_U8, 0, NULL) == -EINVAL);
    CHECK(zinf_tensors_writer_declare(writer, "a", ZINF_FILE_DTYPES, 0, NULL) == -EINVAL);
    CHECK(zinf_tensors_writer_declare(writer, "a", ZINF_FILE_U8, 9, shape) == -EINVAL);
    CHECK(zinf_tensors_writer_declare(writer, "a", ZINF_FILE_U8, 2, huge) == -EINVAL);
    CHECK(zinf_tensors_writer_append(writer, "a", 1) == -EINVAL); /* before begin */
    CHECK(!zinf_tensors_writer_declare(writer, "a", ZINF_FILE_U8, 0, NULL));
    CHECK(!zinf_tensors_writer_declare(writer, "a", ZINF_FILE_U8, 0, NULL));
    CHECK(zinf_tensors_writer_begin(writer) == -EEXIST);
    zinf_tensors_writer_destroy(writer);

    CHECK(!zinf_tensors_writer_create(&writer, &options));
    CHECK(!zinf_tensors_writer_declare(writer, "\xff", ZINF_FILE_U8, 0, NULL));
    CHECK(zinf_tensors_writer_begin(writer) == -EINVAL);
    zinf_tensors_writer_destroy(writer);

    CHECK(!zinf_tensors_writer_create(&writer, &options));
    CHECK(!zinf_tensors_writer_declare(writer, "a", ZINF_FILE_U8, 1, &petabytes));
    CHECK(zinf_tensors_writer_begin(writer) == -ENOSPC);
    CHECKF(strstr(zinf_error(), "make room"), "%s", zinf_error());
    zinf_tensors_writer_destroy(writer);

    options.path = in_scratch("no/such/folder/x.safetensors");
    CHECK(!zinf_tensors_writer_create(&writer, &options));
    CHECK(zinf_tensors_writer_begin(writer) == -ENOENT);
    zinf_tensors_writer_destroy(writer);
    options = (struct zinf_tensors_writer_options){.path = path};
    make_file(path, "x", 1); /* a folder is wanted where a file is */
    CHECK(zinf_tensors_writer_create(&writer, &options) < 0);
    CHECK(count_files(scratch, "refused") == 1);
}

/* Wider elements lie first in a file, in whatever order tensors were declared and come. */
enum { MIXED_TENSORS = 5, MIXED_ELEMS = 3 << 20 };

static struct zinf_tensors_writer *write_mixed(const char *path, const char *data)
{
    static const enum zinf_file_dtype dtypes[MIXED_TENSORS] = {
        ZINF_FILE_BF16, ZINF_FILE_F32, ZINF_FILE_U8, ZINF_FILE_F32, ZINF_FILE_BF16};
    const uint64_t shape = MIXED_ELEMS;
    struct zinf_tensors_writer *writer;
    char name[2] = "a";
    CHECK(!zinf_tensors_writer_create(
        &writer, &(struct zinf_tensors_writer_options){.path = path, .single_file = true}));
    for (int i = 0; i < MIXED_TENSORS; i++, name[0]++)
        CHECK(!zinf_tensors_writer_declare(writer, name, dtypes[i], 1, &shape));
    CHECKF(!zinf_tensors_writer_begin(writer), "%s", zinf_error());
    for (int i = 0; i < MIXED_TENSORS; i++)
        CHECK(!zinf_tensors_writer_append(writer, data + i,
                                          shape * zinf_file_dtype_bytes(dtypes[i])));
    return writer;
}

static char *random_bytes(size_t n)
{
    char *data = malloc(n);
    uint32_t x = 1;
    for (size_t i = 0; i < n; i++)
        data[i] = (char)((x = x * 1664525u + 1013904223u) >> 24);
    return data;
}

/* The sum that a checkpoint remembers is that of the file's bytes. */
static void test_sum_in_any_order(void)
{
    const char *path = in_scratch("mixed.safetensors");
    char *data = random_bytes((size_t)4 * MIXED_ELEMS + MIXED_TENSORS);
    struct zinf_tensors_writer *writer = write_mixed(path, data);
    struct zinf_written_file file = {0};
    CHECKF(!zinf_tensors_writer_finish(writer), "%s", zinf_error());
    CHECK(zinf_tensors_writer_file(writer, 0, &file));
    char *bytes = malloc(file.bytes);
    FILE *in = fopen(path, "rb");
    CHECK(in && bytes && fread(bytes, 1, file.bytes, in) == file.bytes);
    CHECK(file.xxh3 == XXH3_64bits(bytes, file.bytes));
    fclose(in);
    free(bytes);
    zinf_tensors_writer_destroy(writer);
    free(data);
}

/* A byte of the second of several runs changes behind the writer's back. */
static void test_drive_changes_a_run(void)
{
    const char *path = in_scratch("changed.safetensors");
    char *data = random_bytes((size_t)4 * MIXED_ELEMS + MIXED_TENSORS);
    struct zinf_tensors_writer *writer = write_mixed(path, data);
    char pattern[4500], was = 0;
    glob_t found;
    snprintf(pattern, sizeof pattern, "%s/*changed*", scratch);
    CHECK(!glob(pattern, GLOB_PERIOD, NULL, &found) && found.gl_pathc == 1);
    int fd = open(found.gl_pathv[0], O_RDWR);
    CHECK(fd >= 0 && pread(fd, &was, 1, 4096) == 1);
    was ^= 1;
    CHECK(pwrite(fd, &was, 1, 4096) == 1);
    close(fd);
    CHECK(zinf_tensors_writer_finish(writer) == -EBADMSG);
    zinf_tensors_writer_destroy(writer);
    CHECK(count_files(scratch, "changed") == 0);
    globfree(&found);
    free(data);
}

static void test_many_tensors(void)
{
    const int N = 100000;
    const char *folder = in_scratch("many");
    struct zinf_tensors_writer *writer;
    struct zinf_tensors *tensors;
    char name[64];
    CHECK(!zinf_tensors_writer_create(
        &writer, &(struct zinf_tensors_writer_options){.path = folder, .max_shard_bytes = 50000}));
    for (int i = 0; i < N; i++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.down_proj", i % 61, i);
        CHECK(!zinf_tensors_writer_declare(writer, name, ZINF_FILE_I16, 1, &(uint64_t){1}));
    }
    CHECKF(!zinf_tensors_writer_begin(writer), "%s", zinf_error());
    for (int i = 0; i < N; i++)
        CHECK(!zinf_tensors_writer_append(writer, &(int16_t){(int16_t)i}, 2));
    CHECKF(!zinf_tensors_writer_finish(writer), "%s", zinf_error());
    zinf_tensors_writer_destroy(writer);
    clock_t begin = clock();
    CHECKF(!zinf_tensors_open(&tensors, folder), "%s", zinf_error());
    printf("# %d tensors opened in %.0f ms of CPU\n", N,
           (double)(clock() - begin) * 1e3 / CLOCKS_PER_SEC);
    for (int i = 0; i < N; i += 997) {
        int16_t value = 0;
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.down_proj", i % 61, i);
        const struct zinf_tensor_info *info = zinf_tensors_find(tensors, name);
        CHECK(info && !zinf_tensors_read(tensors, info, 0, 1, &value) && value == (int16_t)i);
    }
    zinf_tensors_close(tensors);
}

int main(void)
{
    begin_formats();
    TAP_RUN(test_writer_leaves_nothing);
    TAP_RUN(test_writer_refuses);
    TAP_RUN(test_sum_in_any_order);
    TAP_RUN(test_drive_changes_a_run);
    TAP_RUN(test_many_tensors);
    return end_formats();
}

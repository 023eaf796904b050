/* formats: files of torch.save against what PyTorch put there, and all that may not be read. */
#include "formats_support.h"

#include "formats/pickle.h"

#include <math.h>

static const char *torch_fixture(const char *name)
{
    static char path[4200];
    const char *source = getenv("SRCDIR");
    snprintf(path, sizeof path, "%s/tests/fixtures/torch/%s", source ? source : ".", name);
    return path;
}

static struct zinf_tensors *open_fixture(const char *name)
{
    struct zinf_tensors *tensors = NULL;
    CHECKF(!zinf_tensors_open(&tensors, torch_fixture(name)), "%s", zinf_error());
    return tensors;
}

/* ---- values ---- */

/* Element i as make_torch.py has it. */
static double expected(enum zinf_file_dtype dtype, uint64_t i)
{
    switch (dtype) {
    case ZINF_FILE_BOOL:
        return (double)(i % 2);
    case ZINF_FILE_U8:
    case ZINF_FILE_U16:
    case ZINF_FILE_U32:
    case ZINF_FILE_U64:
        return 3.0 * (double)i;
    case ZINF_FILE_I8:
    case ZINF_FILE_I16:
    case ZINF_FILE_I32:
    case ZINF_FILE_I64:
        return 3.0 * (double)i - 4;
    default:
        return ((double)i - 5) / 4;
    }
}

static double stored_integer(const uint8_t *at, size_t bytes, bool is_signed)
{
    uint64_t value = 0;
    for (size_t i = bytes; i-- > 0;)
        value = value << 8 | at[i];
    if (is_signed && bytes < 8 && value >> (8 * bytes - 1))
        value |= UINT64_MAX << (8 * bytes);
    return is_signed ? (double)(int64_t)value : (double)value;
}

static void test_dtypes(void)
{
    struct zinf_tensors *tensors = open_fixture("dtypes.bin");
    CHECK(zinf_tensors_count(tensors) == ZINF_FILE_DTYPES);
    CHECK(!strcmp(zinf_tensors_file_kind(tensors), "PyTorch"));
    for (uint64_t t = 0; t < zinf_tensors_count(tensors); t++) {
        const struct zinf_tensor_info *info = zinf_tensors_at(tensors, t);
        uint8_t data[24 * 8];
        size_t bytes = zinf_file_dtype_bytes(info->dtype);
        enum zinf_dtype half;
        bool floats = info->dtype == ZINF_FILE_F64;
        CHECK(info->rank == 3 && info->n_elems == 24 && info->bytes == 24 * bytes && !info->view);
        CHECK(!zinf_tensors_read(tensors, info, 0, 24, data));
        if (floats || !zinf_file_dtype_to_dtype(info->dtype, &half)) {
            float values[24];
            CHECK(!zinf_tensors_read_f32(tensors, info, 0, 24, values));
            for (uint64_t i = 0; i < 24; i++)
                CHECKF((double)values[i] == expected(info->dtype, i), "%s", info->name);
        } else if (bytes > 1 ||
                   (info->dtype != ZINF_FILE_F8_E4M3 && info->dtype != ZINF_FILE_F8_E5M2)) {
            bool is_signed = expected(info->dtype, 0) < 0;
            for (uint64_t i = 0; i < 24; i++)
                CHECKF(stored_integer(data + i * bytes, bytes, is_signed) ==
                           expected(info->dtype, i),
                       "%s", info->name);
        }
    }
    zinf_tensors_close(tensors);
}

/* A view of fp32 or a half, whose element (i, j, k) is element first + i * strides[0] + ... of its
 * base, read at once and in pieces that begin and end anywhere. */
struct view {
    const char *name;
    int rank;
    uint64_t shape[3], stride[3], first;
};

static void check_view(const struct zinf_tensors *tensors, const struct view *v)
{
    const struct zinf_tensor_info *info = zinf_tensors_find(tensors, v->name);
    float whole[4096], piece[4096];
    CHECKF(info && info->rank == v->rank, "%s", v->name);
    if (!info || info->n_elems > 4096)
        return;
    uint64_t shape[3] = {1, 1, 1}, stride[3] = {0};
    for (int i = 0; i < v->rank; i++) {
        CHECKF(info->shape[i] == v->shape[i], "%s", v->name);
        shape[3 - v->rank + i] = v->shape[i];
        stride[3 - v->rank + i] = v->stride[i];
    }
    CHECK(info->n_elems == shape[0] * shape[1] * shape[2]);
    CHECKF(!zinf_tensors_read_f32(tensors, info, 0, info->n_elems, whole), "%s", zinf_error());
    for (uint64_t i = 0, at = 0; i < shape[0]; i++)
        for (uint64_t j = 0; j < shape[1]; j++)
            for (uint64_t k = 0; k < shape[2]; k++, at++) {
                uint64_t place = v->first + i * stride[0] + j * stride[1] + k * stride[2];
                CHECKF((double)whole[at] == expected(ZINF_FILE_F32, place), "%s[%llu]", v->name,
                       (unsigned long long)at);
            }
    for (uint64_t from = 0; from < info->n_elems; from += 3)
        for (uint64_t n = 0; n <= info->n_elems - from; n += 7) {
            CHECK(!zinf_tensors_read_f32(tensors, info, from, n, piece));
            CHECKF(!memcmp(piece, whole + from, n * sizeof *piece), "%s", v->name);
        }
}

static void test_views(void)
{
    static const struct view views[] = {
        {"whole", 2, {6, 10}, {10, 1}, 0},
        {"tied", 2, {6, 10}, {10, 1}, 0},
        {"rows", 2, {2, 10}, {10, 1}, 20},
        {"columns", 2, {6, 4}, {10, 1}, 3},
        {"every_other", 2, {3, 4}, {20, 3}, 10},
        {"transposed", 2, {10, 6}, {1, 10}, 0},
        {"inner_transposed", 3, {3, 10, 2}, {20, 1, 10}, 0},
        {"turned", 2, {5, 8}, {1, 5}, 0},
        {"column", 2, {8, 1}, {5, 1}, 1},
        {"element", 0, {0}, {0}, 47},
        {"scalar", 0, {0}, {0}, 15},
        {"empty", 3, {3, 0, 2}, {0}, 0},
        {"empty_slice", 2, {0, 10}, {0}, 0},
        {"large_stride", 2, {7, 3}, {1, 1100}, 0},
        {"parameter", 1, {4}, {1}, 0},
        {"odd n\xc3\xa4me", 1, {3}, {1}, 0},
    };
    struct zinf_tensors *tensors = open_fixture("views.bin");
    CHECK(zinf_tensors_count(tensors) == sizeof views / sizeof *views);
    for (size_t i = 0; i < sizeof views / sizeof *views; i++)
        check_view(tensors, &views[i]);
    CHECK(zinf_tensors_find(tensors, "turned")->dtype == ZINF_FILE_BF16);
    CHECK(zinf_tensors_find(tensors, "parameter")->dtype == ZINF_FILE_F16);
    CHECK(zinf_tensors_find(tensors, "tied")->file_offset ==
          zinf_tensors_find(tensors, "whole")->file_offset);
    CHECK(zinf_tensors_find(tensors, "turned")->view && !zinf_tensors_find(tensors, "rows")->view);
    zinf_tensors_close(tensors);
}

static void test_module(void)
{
    struct zinf_tensors *tensors = open_fixture("module.bin");
    const struct zinf_tensor_info *embed = zinf_tensors_find(tensors, "embed.weight");
    const struct zinf_tensor_info *head = zinf_tensors_find(tensors, "head.weight");
    const struct zinf_tensor_info *count = zinf_tensors_find(tensors, "norm.num_batches_tracked");
    CHECK(zinf_tensors_count(tensors) == 7 && embed && head && count);
    CHECK(embed->file_offset == head->file_offset && embed->n_elems == 20);
    CHECK(count->dtype == ZINF_FILE_I64 && count->rank == 0 && count->bytes == 8);
    CHECK(!zinf_tensors_metadata(tensors, "format"));
    zinf_tensors_close(tensors);
}

static void test_sharded(void)
{
    struct zinf_tensors *tensors = open_fixture("sharded");
    const struct zinf_tensor_info *last = zinf_tensors_find(tensors, "b.weight");
    CHECK(zinf_tensors_count(tensors) == 3 && zinf_tensors_file_count(tensors) == 2 && last);
    CHECK(last->file == 1 && last->view && last->shape[0] == 3);
    CHECK(!strcmp(zinf_tensors_file_name(tensors, 1), "pytorch_model-00002-of-00002.bin"));
    zinf_tensors_close(tensors);
}

/* ---- what is refused ---- */

static void expect_refused(const char *path, int code, const char *says)
{
    struct zinf_tensors *tensors;
    int got = zinf_tensors_open(&tensors, path);
    CHECKF(got == code, "%s: %d, not %d: %s", path, got, code, zinf_error());
    CHECKF(strstr(zinf_error(), says), "no '%s' in '%s'", says, zinf_error());
    if (!got)
        zinf_tensors_close(tensors);
}

static void test_refused(void)
{
    expect_refused(torch_fixture("call.bin"), -ENOTSUP, "pickle calls posix.system");
    CHECK(!exists("called"));
    expect_refused(torch_fixture("old.bin"), -ENOTSUP, "python3 -c \"import torch");
    expect_refused(torch_fixture("checkpoint.bin"), -EINVAL, "'model' in it is a dictionary");
    expect_refused(torch_fixture("protocol4.bin"), -ENOTSUP, "protocol 4");
    expect_refused(torch_fixture("list.bin"), -EINVAL, "holds a list, not a state_dict");
    expect_refused(torch_fixture("sparse.bin"), -ENOTSUP, "_rebuild_sparse_tensor");
    expect_refused(torch_fixture("expanded.bin"), -ENOTSUP, "repeats its elements");
    expect_refused(torch_fixture("deflated.bin"), -EINVAL, "compressed or encrypted");
    expect_refused(torch_fixture("other.zip"), -EINVAL, "no data.pkl");
}

/* Every length that a download may stop at, and then: cut after it was opened. */
static void test_truncated(void)
{
    const char *path = in_scratch("cut.bin");
    char *data;
    size_t bytes;
    struct zinf_tensors *tensors;
    CHECK(!zinf_file_read(torch_fixture("module.bin"), 1 << 20, &data, &bytes));
    for (size_t n = 0; n < bytes; n += n < 100 ? 1 : 97) {
        make_file(path, data, n);
        CHECKF(zinf_tensors_open(&tensors, path) == -EINVAL, "%zu bytes", n);
        CHECK(strstr(zinf_error(), "cut.bin"));
    }
    make_file(path, data, bytes);
    CHECK(!zinf_tensors_open(&tensors, path));
    CHECK(!truncate(path, 100));
    uint8_t out[80];
    CHECK(zinf_tensors_read(tensors, zinf_tensors_find(tensors, "embed.weight"), 0, 20, out) ==
          -EIO);
    zinf_tensors_close(tensors);
    free(data);
}

/* ---- archives that lie ---- */

static size_t find_bytes(const char *data, size_t bytes, const char *wanted, size_t n, size_t from)
{
    for (size_t i = from; i + n <= bytes; i++)
        if (!memcmp(data + i, wanted, n))
            return i;
    CHECKF(false, "not there");
    return 0;
}

/* module.bin with bytes of a value at some distance from the n-th place where a mark stands. */
static void expect_patched(const char *mark, size_t mark_bytes, int nth, size_t distance,
                           const char *value, size_t n, const char *says)
{
    char *data;
    size_t bytes, at = 0;
    CHECK(!zinf_file_read(torch_fixture("module.bin"), 1 << 20, &data, &bytes));
    for (int i = 0; i <= nth; i++)
        at = find_bytes(data, bytes, mark, mark_bytes, i ? at + 1 : 0);
    memcpy(data + at + distance, value, n);
    make_file(in_scratch("patched.bin"), data, bytes);
    expect_refused(in_scratch("patched.bin"), -EINVAL, says);
    free(data);
}

static void test_archives(void)
{
    /* Of the directory's fourth entry, data/0: 20 packed bytes, 24 bytes, 42 its header's offset.
     */
    static const char central[] = "PK\1\2", end[] = "PK\5\6";
    expect_patched(central, 4, 4, 42, "\0\0\0\0", 4, "not where its directory says");
    expect_patched(central, 4, 4, 42, "\xf0\xff\xff\x7f", 4, "lies outside");
    expect_patched(central, 4, 4, 20, "\xf0\xff\x00\x00\xf0\xff\x00\x00", 8, "lies outside");
    expect_patched(central, 4, 4, 20, "\x80\x01\x00\x00\x80\x01\x00\x00", 8, "overlap");
    expect_patched(central, 4, 4, 20, "\x10\x00\x00\x00\x10\x00\x00\x00", 8, "another size");
    expect_patched(central, 4, 4, 10, "\x08", 1, "compressed or encrypted");
    expect_patched(central, 4, 4, 0, "PK\1\3", 4, "directory ends early");
    expect_patched(central, 4, 5, 46 + 12, "7", 1, "not where its directory says");
    expect_patched(end, 4, 0, 16, "\xf0\xff\xff\x7f", 4, "directory lies outside");
    expect_patched(end, 4, 0, 10, "\xf0\xff", 2, "more entries than it has");
    expect_patched(end, 4, 0, 4, "\1", 1, "several disks");
}

/* The numbers of an archive of 4 GiB stand in a record of their own, which torch always writes. */
static void test_zip64(void)
{
    static const size_t places[] = {32, 40, 48}; /* entries, the directory's bytes and offset */
    char *data;
    size_t bytes, end;
    struct zinf_tensors *tensors;
    CHECK(!zinf_file_read(torch_fixture("module.bin"), 1 << 20, &data, &bytes));
    end = find_bytes(data, bytes, "PK\5\6", 4, 0);
    memset(data + end + 10, 0xff, 10);
    make_file(in_scratch("zip64.bin"), data, bytes);
    CHECKF(!zinf_tensors_open(&tensors, in_scratch("zip64.bin")), "%s", zinf_error());
    CHECK(zinf_tensors_count(tensors) == 7);
    zinf_tensors_close(tensors);
    size_t record = find_bytes(data, bytes, "PK\6\6", 4, 0);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
        char kept[8];
        memcpy(kept, data + record + places[i], 8);
        memset(data + record + places[i], 0xff, 8);
        make_file(in_scratch("zip64.bin"), data, bytes);
        expect_refused(in_scratch("zip64.bin"), -EINVAL, i == 0 ? "more entries" : "outside");
        memcpy(data + record + places[i], kept, 8);
    }
    data[find_bytes(data, bytes, "PK\6\7", 4, 0)] = 'Q';
    make_file(in_scratch("zip64.bin"), data, bytes);
    expect_refused(in_scratch("zip64.bin"), -EINVAL, "where its directory is");
    free(data);
}

/* ---- pickles that lie ---- */

#define STORAGE_OF(n) "(X\7\0\0\0storagectorch\nFloatStorage\nX\1\0\0\0000X\3\0\0\0cpu" n "tQ"
#define HEAD "\x80\2}X\1\0\0\0w"
#define REBUILD "ctorch._utils\n_rebuild_tensor_v2\n"

static void expect_pickle(const char *data, size_t bytes, int code, const char *says)
{
    struct zinf_pickle *pickle;
    struct zinf_pickled_tensor *tensors = NULL;
    uint64_t n;
    uint8_t *exact = malloc(bytes + !bytes); /* one byte too many shows under a sanitizer */
    memcpy(exact, data, bytes);
    int got = zinf_pickle_create(&pickle, "test", exact, bytes), made = !got;
    if (!got)
        got = zinf_pickle_list_tensors(pickle, &tensors, &n);
    CHECKF(got == code, "%d, not %d: %s", got, code, zinf_error());
    if (code)
        CHECKF(strstr(zinf_error(), says), "no '%s' in '%s'", says, zinf_error());
    free(tensors);
    if (made)
        zinf_pickle_destroy(pickle);
    free(exact);
}
#define REFUSED(text, code, says) expect_pickle(text, sizeof(text) - 1, code, says)

static void test_pickles(void)
{
    REFUSED(HEAD REBUILD "(" STORAGE_OF("K\6") "K\0K\2K\3\x86K\3K\1\x86\x89}tRs.", 0, "");
    REFUSED("\x80\2}.", 0, "");
    REFUSED(HEAD REBUILD "(" STORAGE_OF("K\6") "K\0K\6\x85K\1\x85\x89}}tRs.", 0, "");
    REFUSED(HEAD REBUILD "(" STORAGE_OF("K\6") "K\0K\6\x85K\1\x85\x89}}X\3\0\0\0neg\x88stRs.",
            -ENOTSUP, "negated view");
    REFUSED("", -EINVAL, "no end");
    REFUSED("\x80\2", -EINVAL, "no end");
    REFUSED("\x80\2.", -EINVAL, "stack is empty");
    REFUSED("\x80\2}}.", -EINVAL, "more than the result");
    REFUSED("\x80\2(}.", -EINVAL, "more than the result");
    REFUSED("\x80\2K", -EINVAL, "cut off");
    REFUSED("\x80\2X\xff\xff\xff\xff"
            "abc",
            -EINVAL, "cut off");
    REFUSED("\x80\2\x8a\xff"
            "aaaa",
            -EINVAL, "more than 64 bits");
    REFUSED("\x80\2}r\xff\xff\xff\xff.", -EINVAL, "memo has a gap");
    REFUSED("\x80\2}q\1.", -EINVAL, "memo has a gap");
    REFUSED("\x80\2j\0\0\0\0.", -EINVAL, "memo has no such entry");
    REFUSED("\x80\2t", -EINVAL, "mark is missing");
    REFUSED("\x80\2}(\x85.", -EINVAL, "stack is empty");
    REFUSED("\x80\2](K\1u.", -EINVAL, "no dictionary is given items");
    REFUSED("\x80\2}(K\1u.", -EINVAL, "no dictionary is given items");
    REFUSED("\x80\2}K\1a.", -EINVAL, "no list");
    REFUSED("\x80\2]}b.", -EINVAL, "no dictionary is given attributes");
    REFUSED("\x80\2}K\1)s.", -EINVAL, "name is no text");
    REFUSED("\x80\2K\1)R.", -EINVAL, "no function");
    REFUSED("\x80\2"
            "cos\nsystem\nX\4\0\0\0evil\x85R.",
            -ENOTSUP, "calls os.system");
    REFUSED("\x80\2"
            "cos\nsystem\n.",
            -ENOTSUP, "os.system");
    REFUSED("\x80\2"
            "cbuiltins\nev\x1b"
            "al\n.",
            -ENOTSUP, "builtins.ev?al");
    REFUSED("\x80\2"
            "cos",
            -EINVAL, "name is cut off");
    REFUSED("\x80\2"
            "ctorch\nFloatStorage\n)R.",
            -EINVAL, "a type is called");
    REFUSED("\x80\2"
            "ccollections\nOrderedDict\n]\x85R.",
            -EINVAL, "made of something");
    REFUSED("\x80\2"
            "ctorch._utils\n_rebuild_parameter\n)R.",
            -EINVAL, "something else");
    REFUSED("\x80\2\x94.", -ENOTSUP, "opcode 0x94");
    REFUSED("\x80\2"
            "0.",
            -ENOTSUP, "opcode 0x30");
    REFUSED("\x80\2K\1Q.", -EINVAL, "five values");
    REFUSED(HEAD REBUILD "(" STORAGE_OF("J\xff\xff\xff\xff") "tRs.", -EINVAL, "as torch does");
    REFUSED(HEAD REBUILD "(" STORAGE_OF("K\6") "tRs.", -EINVAL, "too few arguments");
    REFUSED(HEAD REBUILD "(" STORAGE_OF("K\6") "J\xff\xff\xff\xff))\x89}tRs.", -EINVAL,
            "as torch does");
    REFUSED(HEAD REBUILD "(" STORAGE_OF("K\6") "K\0K\2\x85)\x89}tRs.", -EINVAL, "as many strides");
    REFUSED(HEAD REBUILD "(" STORAGE_OF("K\6") "K\0]K\1\x85\x89}tRs.", -EINVAL, "no tuple");
    REFUSED(HEAD REBUILD "(" STORAGE_OF("K\6") "K\0(K\1K\1K\1K\1K\1K\1K\1K\1K\1t)\x89}tRs.",
            -EINVAL, "too many dimensions");
    REFUSED(HEAD REBUILD
            "(" STORAGE_OF("\x8a\10\xff\xff\xff\xff\xff\xff\xff\x7f") "K\0K\1\x85K\1\x85\x89}tRs.",
            -EINVAL, "larger than any file");
}

/* Values that are shared, nested, or only there to take memory, take no more than the pickle. */
static void test_bombs(void)
{
    size_t n = 1 << 20, at = 2;
    char *data = malloc(n);
    memcpy(data, "\x80\2", 2);
    while (at + 2 < n)
        data[at++] = '('; /* marks in marks */
    expect_pickle(data, at, -EINVAL, "no end");
    at = 2;
    while (at + 2 < n)
        data[at++] = ']'; /* lists in no list */
    data[at++] = '.';
    expect_pickle(data, at, -EINVAL, "more than the result");
    at = 3;
    data[2] = ')';
    for (unsigned char i = 0; i < 250; i++) { /* ((x, x), (x, x)) ...: 2^250 parts if walked */
        memcpy(data + at, "q\0h\0\x86", 5);
        data[at + 1] = data[at + 3] = (char)i;
        at += 5;
    }
    data[at++] = '.';
    expect_pickle(data, at, -EINVAL, "holds a tuple, not a state_dict");
    memset(data + 3, 0x85, n - 4); /* a tuple in a tuple in ... */
    data[2] = ')';
    at = n - 1;
    data[at++] = '.';
    expect_pickle(data, at, -EINVAL, "holds a tuple, not a state_dict");
    free(data);
}

int main(void)
{
    begin_formats();
    TAP_RUN(test_dtypes);
    TAP_RUN(test_views);
    TAP_RUN(test_module);
    TAP_RUN(test_sharded);
    TAP_RUN(test_refused);
    TAP_RUN(test_truncated);
    TAP_RUN(test_archives);
    TAP_RUN(test_zip64);
    TAP_RUN(test_pickles);
    TAP_RUN(test_bombs);
    return end_formats();
}

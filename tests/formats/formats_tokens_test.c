/* formats: token files of llm.c, raw, and of NumPy; headers that lie. */
#include "formats/formats.h"
#include "formats/npy_header.h"
#include "tap.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static char path[4096]; /* one file, written anew by each case */

static const char *fixture(const char *name)
{
    static char text[4200];
    const char *source = getenv("SRCDIR");
    snprintf(text, sizeof text, "%s/tests/fixtures/formats/%s", source ? source : ".", name);
    return text;
}

static void make_file(const void *data, size_t bytes)
{
    CHECKF(!zinf_file_write_atomic(path, data, bytes), "%s", zinf_error());
}

static void expect_open_fails(const char *file, const char *says)
{
    struct zinf_token_file *tokens;
    int code = zinf_token_file_open(&tokens, file);
    CHECKF(code == -EINVAL, "%s: %d", says, code);
    CHECKF(strstr(zinf_error(), says), "no '%s' in '%s'", says, zinf_error());
    if (!code)
        zinf_token_file_close(tokens);
}

/* Token i is 3i in every good file. */
static void expect_tokens(const char *file, enum zinf_token_format format, uint64_t count)
{
    struct zinf_token_file *tokens;
    int code = zinf_token_file_open(&tokens, file);
    CHECKF(!code, "%s", zinf_error());
    if (code)
        return;
    CHECK(zinf_token_file_format(tokens) == format);
    CHECKF(zinf_token_file_count(tokens) == count, "%s", file);
    int32_t *ids = malloc((count + 1) * sizeof *ids);
    uint64_t half = count / 2, wrong = 0;
    CHECK(!zinf_token_file_read(tokens, half, count - half, ids + half));
    CHECK(!zinf_token_file_read(tokens, 0, half, ids));
    for (uint64_t i = 0; i < count; i++)
        wrong += ids[i] != (int32_t)(3 * i);
    CHECKF(!wrong, "%s: %llu wrong", file, (unsigned long long)wrong);
    CHECK(!zinf_token_file_read(tokens, count, 0, ids));
    CHECK(zinf_token_file_read(tokens, count, 1, ids) == -EINVAL);
    CHECK(zinf_token_file_read(tokens, 1, UINT64_MAX, ids) == -EINVAL);
    free(ids);
    zinf_token_file_close(tokens);
}

static size_t llmc_image(void *out, uint32_t magic, uint32_t version, uint32_t count,
                         size_t elem_bytes)
{
    uint32_t header[256] = {magic, version, count};
    memcpy(out, header, sizeof header);
    for (uint32_t i = 0; i < 20000 && i < count; i++)
        memcpy((char *)out + sizeof header + i * elem_bytes, &(uint32_t){3 * i}, elem_bytes);
    return sizeof header + count * elem_bytes;
}

static void test_llmc(void)
{
    static char image[1024 + 4 * 20000 + 4];
    size_t bytes = llmc_image(image, 20240520, 1, 20000, 2);
    make_file(image, bytes);
    expect_tokens(path, ZINF_TOKENS_LLMC, 20000);
    make_file(image, bytes - 1);
    expect_open_fails(path, "says 20000 tokens");
    make_file(image, bytes + 2);
    expect_open_fails(path, "says 20000 tokens");
    make_file(image, 1023);
    expect_open_fails(path, "too few for an llm.c header");
    bytes = llmc_image(image, 20240801, 7, 20000, 4);
    make_file(image, bytes);
    expect_tokens(path, ZINF_TOKENS_LLMC, 20000);
    make_file(image, 1024 + 2 * 20000);
    expect_open_fails(path, "says 20000 tokens of 4");
    bytes = llmc_image(image, 20240520, 7, 10, 2);
    make_file(image, bytes);
    expect_open_fails(path, "version 7");
    bytes = llmc_image(image, 20240801, 1, 10, 4);
    make_file(image, bytes);
    expect_open_fails(path, "version 1");
    llmc_image(image, 20240520, 1, 10, 2);
    memset(image + 8, 0xff, 4);
    make_file(image, 1044);
    expect_open_fails(path, "-1 tokens");
    bytes = llmc_image(image, 20240520, 1, 0, 2);
    make_file(image, bytes);
    expect_tokens(path, ZINF_TOKENS_LLMC, 0);
}

static void test_raw(void)
{
    uint16_t ids[20001];
    for (int i = 0; i < 20001; i++)
        ids[i] = (uint16_t)(3 * i);
    make_file(ids, sizeof ids);
    expect_tokens(path, ZINF_TOKENS_RAW_U16, 20001);
    make_file(ids, 3);
    expect_open_fails(path, "odd number");
    make_file(ids, 0);
    expect_tokens(path, ZINF_TOKENS_RAW_U16, 0);
    make_file(ids, 2);
    expect_tokens(path, ZINF_TOKENS_RAW_U16, 1);
}

static void test_numpy_files(void)
{
    static const char *const names[] = {
        "tokens_u1.npy", "tokens_u2.npy", "tokens_u4.npy", "tokens_u8.npy", "tokens_i1.npy",
        "tokens_i2.npy", "tokens_i4.npy", "tokens_i8.npy", "tokens_v2.npy", "tokens_v3.npy"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        expect_tokens(fixture(names[i]), ZINF_TOKENS_NPY, 40);
    expect_open_fails(fixture("bad_big_endian.npy"), "'>u2'");
    expect_open_fails(fixture("bad_float.npy"), "'<f4'");
    expect_open_fails(fixture("bad_2d.npy"), "one-dimensional");
    expect_open_fails(fixture("bad_fortran.npy"), "C order");
    struct zinf_token_file *tokens;
    int32_t ids[40];
    CHECK(!zinf_token_file_open(&tokens, fixture("bad_negative.npy")));
    CHECK(!zinf_token_file_read(tokens, 10, 30, ids) && ids[0] == 0);
    CHECK(zinf_token_file_read(tokens, 8, 30, ids) == -ERANGE);
    CHECKF(strstr(zinf_error(), "token 8 is -6"), "%s", zinf_error());
    zinf_token_file_close(tokens);
}

/* .npy of version 1 with this dictionary and data_bytes of zeros. */
static void make_npy(const char *dictionary, size_t data_bytes)
{
    static char image[70000];
    size_t length = strlen(dictionary);
    memset(image, 0, sizeof image);
    memcpy(image, "\x93NUMPY\1\0", 8);
    image[8] = (char)length;
    image[9] = (char)(length >> 8);
    memcpy(image + 10, dictionary, length);
    make_file(image, 10 + length + data_bytes);
}

static void test_npy_headers(void)
{
    static const struct {
        const char *dictionary;
        size_t data_bytes;
        const char *says;
    } cases[] = {
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }", 9, "says 5 tokens"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (5,), }", 11, "says 5 tokens"},
        {"{'descr': '<u8', 'fortran_order': False, 'shape': (2305843009213693953,), }", 8,
         "says 2305843009213693953"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (18446744073709551616,), }", 0,
         "one-dimensional"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (-1,), }", 0, "one-dimensional"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (), }", 2, "one-dimensional"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (1,1), }", 2, "one-dimensional"},
        {"{'descr': '<u2', 'fortran_order': True, 'shape': (1,), }", 2, "C order"},
        {"{'descr': '<u3', 'fortran_order': False, 'shape': (1,), }", 3, "'<u3'"},
        {"{'descr': '|O', 'fortran_order': False, 'shape': (1,), }", 8, "'|O'"},
        {"{'descr': '|u2', 'fortran_order': False, 'shape': (1,), }", 2, "'|u2'"},
        {"{'descr': [('a', '<u2')], 'fortran_order': False, 'shape': (1,), }", 2, "plain integers"},
        {"{'descr': '<u2', 'fortran_order': False, }", 0, "cannot be read"},
        {"{'descr': '<u2', 'descr': '<u2', 'fortran_order': False, 'shape': (0,)}", 0, "twice"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (0,), 'x': 1}", 0, "unknown"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (0,), ", 0, "cannot be read"},
        {"{'descr': '<u2', 'fortran_order': False, 'shape': (0,), } x", 0, "cannot be read"},
        {"{'descr': '<u2' 'fortran_order': False, 'shape': (0,), }", 0, "cannot be read"},
        {"{'descr", 0, "cannot be read"},
        {"", 4, "cannot be read"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make_npy(cases[i].dictionary, cases[i].data_bytes);
        expect_open_fails(path, cases[i].says);
    }
    make_npy("{\"shape\":(1,),\"fortran_order\":False,\"descr\":\"<i8\"}\n", 8);
    expect_tokens(path, ZINF_TOKENS_NPY, 1);
    make_file("\x93NUMPY\1\0", 8);
    expect_open_fails(path, "too short");
    make_file("\x93NUMPY\4\0\0\0\0\0\0\0", 14);
    expect_open_fails(path, "version 4.0");
    make_file("\x93NUMPY\2\0\xff\xff\xff\xff{}", 14);
    expect_open_fails(path, "4294967295 bytes");
}

static void test_not_there(void)
{
    struct zinf_token_file *tokens;
    CHECK(zinf_token_file_open(&tokens, fixture("absent.bin")) == -ENOENT);
    CHECK(strstr(zinf_error(), "absent.bin"));
    CHECK(zinf_token_file_open(&tokens, fixture("")) == -EINVAL); /* a folder */
    zinf_token_file_close(NULL);
}

int main(void)
{
    const char *folder = getenv("BUILDDIR");
    snprintf(path, sizeof path, "%s/formats_tokens_test.%ld.bin", folder ? folder : ".",
             (long)getpid());
    TAP_RUN(test_llmc);
    TAP_RUN(test_raw);
    TAP_RUN(test_numpy_files);
    TAP_RUN(test_npy_headers);
    TAP_RUN(test_not_there);
    unlink(path);
    return tap_done();
}

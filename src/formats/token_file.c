/*
 * token_file: token ids from llm.c's .bin, raw uint16 and .npy files. The format is told by the
 * first bytes, never by the name alone; a header must account for every byte of the file. Ids come
 * out as int32: wider or negative ones are refused where they stand.
 */
#include "formats/file_span.h"
#include "formats/formats.h"
#include "formats/npy_header.h"

#include <stdlib.h>
#include <unistd.h>

#define LLMC_HEADER_BYTES 1024
#define LLMC_MAGIC_U16 20240520u
#define LLMC_MAGIC_U32 20240801u
#define BLOCK_BYTES 16384 /* on the stack: reads of one window should not allocate */

struct zinf_token_file {
    char *path;
    int fd;
    enum zinf_token_format format;
    unsigned elem_bytes;
    bool is_signed;
    uint64_t data_offset, count;
};

/* ---- opening ---- */

static bool ends_with(const char *text, const char *end)
{
    size_t length = strlen(text), end_length = strlen(end);
    return length >= end_length && !strcmp(text + length - end_length, end);
}

/* Every byte of the file must belong to the header or to a token. */
static int check_size(const struct zinf_token_file *file, uint64_t file_bytes)
{
    uint64_t bytes;
    if (!__builtin_mul_overflow(file->count, file->elem_bytes, &bytes) &&
        bytes == file_bytes - file->data_offset)
        return 0;
    return zinf_fail(-EINVAL,
                     "%s: its header says %llu tokens of %u bytes, but %llu bytes follow: the file "
                     "is damaged or was cut short, write it again",
                     file->path, (unsigned long long)file->count, file->elem_bytes,
                     (unsigned long long)(file_bytes - file->data_offset));
}

static int open_llmc(struct zinf_token_file *file, uint64_t file_bytes)
{
    uint32_t header[3];
    if (file_bytes < LLMC_HEADER_BYTES)
        return zinf_fail(-EINVAL, "%s: %llu bytes are too few for an llm.c header of %d",
                         file->path, (unsigned long long)file_bytes, LLMC_HEADER_BYTES);
    int code = zinf_file_span_read(file->fd, file->path, header, sizeof header, 0);
    if (code)
        return code;
    uint32_t version = header[0] == LLMC_MAGIC_U16 ? 1 : 7;
    if (header[1] != version)
        return zinf_fail(-EINVAL, "%s: llm.c token file of version %u, but magic %u goes with %u",
                         file->path, header[1], header[0], version);
    if (header[2] > INT32_MAX)
        return zinf_fail(-EINVAL, "%s: its header says %d tokens: write it again", file->path,
                         (int)header[2]);
    file->format = ZINF_TOKENS_LLMC;
    file->elem_bytes = version == 1 ? 2 : 4;
    file->data_offset = LLMC_HEADER_BYTES;
    file->count = header[2];
    return check_size(file, file_bytes);
}

static int open_npy(struct zinf_token_file *file, uint64_t file_bytes)
{
    uint8_t first[ZINF_NPY_PREAMBLE_BYTES] = {0};
    struct zinf_npy_header header;
    uint64_t offset = 0, bytes = 0;
    int code = 0;
    if (file_bytes >= sizeof first)
        code = zinf_file_span_read(file->fd, file->path, first, sizeof first, 0);
    if (!code)
        code = zinf_npy_preamble(file->path, first, file_bytes, &offset, &bytes);
    if (code)
        return code;
    char *text = malloc(bytes + 1);
    if (!text)
        return zinf_fail(-ENOMEM, "no memory to open %s", file->path);
    code = zinf_file_span_read(file->fd, file->path, text, bytes, offset);
    if (!code)
        code = zinf_npy_header_parse(&header, file->path, text, bytes);
    free(text);
    if (code)
        return code;
    file->format = ZINF_TOKENS_NPY;
    file->elem_bytes = header.elem_bytes;
    file->is_signed = header.is_signed;
    file->count = header.count;
    file->data_offset = offset + bytes;
    return check_size(file, file_bytes);
}

static int open_raw(struct zinf_token_file *file, uint64_t file_bytes)
{
    if (ends_with(file->path, ".npy"))
        return zinf_fail(-EINVAL, "%s does not begin as a .npy file does: write it again",
                         file->path);
    if (file_bytes % 2)
        return zinf_fail(-EINVAL,
                         "%s has %llu bytes, an odd number: it is no raw file of 16-bit tokens, or "
                         "was cut short",
                         file->path, (unsigned long long)file_bytes);
    file->format = ZINF_TOKENS_RAW_U16;
    file->elem_bytes = 2;
    file->count = file_bytes / 2;
    return 0;
}

static int open_by_content(struct zinf_token_file *file)
{
    uint64_t file_bytes;
    uint8_t first[8] = {0};
    uint32_t word;
    int code = file->fd = zinf_file_span_open(file->path, &file_bytes);
    if (code < 0)
        return code;
    code = zinf_file_span_read(file->fd, file->path, first,
                               file_bytes < sizeof first ? file_bytes : sizeof first, 0);
    if (code)
        return code;
    memcpy(&word, first, sizeof word);
    if (zinf_npy_has_magic(first, sizeof first))
        return open_npy(file, file_bytes);
    if (word == LLMC_MAGIC_U16 || word == LLMC_MAGIC_U32)
        return open_llmc(file, file_bytes);
    return open_raw(file, file_bytes);
}

int zinf_token_file_open(struct zinf_token_file **out, const char *path)
{
    struct zinf_token_file *file = calloc(1, sizeof *file);
    char *copy = strdup(path);
    if (!file || !copy) {
        free(file);
        free(copy);
        return zinf_fail(-ENOMEM, "no memory to open %s", path);
    }
    file->fd = -1;
    file->path = copy;
    int code = open_by_content(file);
    if (code)
        zinf_token_file_close(file);
    else
        *out = file;
    return code;
}

void zinf_token_file_close(struct zinf_token_file *file)
{
    if (!file)
        return;
    if (file->fd >= 0)
        close(file->fd);
    free(file->path);
    free(file);
}

enum zinf_token_format zinf_token_file_format(const struct zinf_token_file *file)
{
    return file->format;
}

uint64_t zinf_token_file_count(const struct zinf_token_file *file)
{
    return file->count;
}

/* ---- reading ---- */

/* Element i of a block as a number; unsigned 64-bit values beyond int64 come out negative, and so
 * are refused like other negative ones. */
static int64_t element(const struct zinf_token_file *file, const uint8_t *block, size_t i)
{
    uint64_t value = 0;
    memcpy(&value, block + i * file->elem_bytes, file->elem_bytes);
    unsigned unused_bits = 64 - 8 * file->elem_bytes;
    return file->is_signed ? (int64_t)(value << unused_bits) >> unused_bits : (int64_t)value;
}

static int convert_block(const struct zinf_token_file *file, const uint8_t *block, uint64_t first,
                         size_t n, int32_t *out)
{
    if (file->elem_bytes == 2 && !file->is_signed) { /* the common case, vectorised */
        for (size_t i = 0; i < n; i++)
            out[i] = block[2 * i] | block[2 * i + 1] << 8;
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        int64_t value = element(file, block, i);
        if (value < 0 || value > INT32_MAX)
            return zinf_fail(-ERANGE, "%s: token %llu is %lld, not a token id from 0 to 2^31 - 1",
                             file->path, (unsigned long long)(first + i), (long long)value);
        out[i] = (int32_t)value;
    }
    return 0;
}

int zinf_token_file_read(const struct zinf_token_file *file, uint64_t first, uint64_t n,
                         int32_t *out)
{
    uint8_t block[BLOCK_BYTES];
    uint64_t block_elems = sizeof block / file->elem_bytes;
    if (first > file->count || n > file->count - first)
        return zinf_fail(-EINVAL, "%s has %llu tokens; %llu from token %llu on were asked for",
                         file->path, (unsigned long long)file->count, (unsigned long long)n,
                         (unsigned long long)first);
    for (uint64_t done = 0; done < n; done += block_elems) {
        uint64_t count = n - done < block_elems ? n - done : block_elems;
        int code = zinf_file_span_read(file->fd, file->path, block, count * file->elem_bytes,
                                       file->data_offset + (first + done) * file->elem_bytes);
        if (!code)
            code = convert_block(file, block, first + done, count, out + done);
        if (code)
            return code;
    }
    return 0;
}

/* tb_events: a few fields of protobuf by hand, which is less than a generator would bring along. */
#include "cli/tb_events.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define MAX_TAG 128

/* CRC-32C (Castagnoli), reflected 0x82f63b78: RFC 3720, appendix B.4. */
uint32_t tb_crc32c(const void *data, size_t bytes)
{
    const unsigned char *at = data;
    uint32_t crc = ~0u;
    for (size_t i = 0; i < bytes; i++) {
        crc ^= at[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78u : 0);
    }
    return ~crc;
}

/* As record_writer.cc masks it, so that a checksum of checksums does not degenerate. */
static uint32_t masked(const void *data, size_t bytes)
{
    uint32_t crc = tb_crc32c(data, bytes);
    return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

static size_t put_little(unsigned char *out, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        out[i] = (unsigned char)(value >> 8 * i);
    return bytes;
}

static size_t put_varint(unsigned char *out, uint64_t value)
{
    size_t n = 0;
    for (; value >= 0x80; value >>= 7)
        out[n++] = (unsigned char)(value | 0x80);
    out[n++] = (unsigned char)value;
    return n;
}

static size_t put_double(unsigned char *out, double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return put_little(out, bits, 8);
}

/* A field of bytes: key, length, content. */
static size_t put_bytes(unsigned char *out, unsigned key, const void *data, size_t bytes)
{
    size_t n = put_varint(out, key);
    n += put_varint(out + n, bytes);
    memcpy(out + n, data, bytes);
    return n + bytes;
}

static size_t put_record(unsigned char *out, const unsigned char *event, size_t bytes)
{
    size_t n = put_little(out, bytes, 8);
    n += put_little(out + n, masked(out, 8), 4);
    memcpy(out + n, event, bytes);
    n += bytes;
    return n + put_little(out + n, masked(event, bytes), 4);
}

/* Keys are field number << 3 | wire type. */
enum {
    EVENT_WALL_TIME = 1 << 3 | 1,
    EVENT_STEP = 2 << 3 | 0,
    EVENT_FILE_VERSION = 3 << 3 | 2,
    EVENT_SUMMARY = 5 << 3 | 2,
    SUMMARY_VALUE = 1 << 3 | 2,
    VALUE_TAG = 1 << 3 | 2,
    VALUE_SIMPLE = 2 << 3 | 5,
};

size_t tb_record_version(unsigned char out[TB_RECORD_BYTES], double wall_seconds)
{
    unsigned char event[64];
    size_t n = put_varint(event, EVENT_WALL_TIME);
    n += put_double(event + n, wall_seconds);
    n += put_bytes(event + n, EVENT_FILE_VERSION, "brain.Event:2", 13);
    return put_record(out, event, n);
}

size_t tb_record_scalar(unsigned char out[TB_RECORD_BYTES], double wall_seconds, int64_t step,
                        const char *tag, float value)
{
    unsigned char event[TB_RECORD_BYTES], summary[160], content[160];
    uint32_t bits;
    size_t length = strlen(tag), n;
    length = length < MAX_TAG ? length : MAX_TAG;
    n = put_bytes(content, VALUE_TAG, tag, length);
    n += put_varint(content + n, VALUE_SIMPLE);
    memcpy(&bits, &value, sizeof bits);
    n += put_little(content + n, bits, 4);
    size_t inner = put_bytes(summary, SUMMARY_VALUE, content, n);
    n = put_varint(event, EVENT_WALL_TIME);
    n += put_double(event + n, wall_seconds);
    n += put_varint(event + n, EVENT_STEP);
    n += put_varint(event + n, (uint64_t)step);
    n += put_bytes(event + n, EVENT_SUMMARY, summary, inner);
    return put_record(out, event, n);
}

/* ---- files ---- */

struct tb_writer {
    FILE *file;
    char *path;
};

static int put(struct tb_writer *writer, const unsigned char *record, size_t bytes)
{
    if (fwrite(record, 1, bytes, writer->file) != bytes || fflush(writer->file))
        return zinf_fail(-EIO, "cannot write %s: %s", writer->path, strerror(errno));
    return 0;
}

int tb_writer_open(struct tb_writer **out, const char *folder, double wall_seconds)
{
    static int count; /* names differ even within a second */
    char name[256], host[128] = "host";
    unsigned char record[TB_RECORD_BYTES];
    int code = zinf_make_dirs(folder);
    if (code)
        return code;
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld.%d", (long long)wall_seconds,
             host, (long)getpid(), count++);
    struct tb_writer *writer = calloc(1, sizeof *writer);
    if (writer)
        writer->path = zinf_path_join(folder, name);
    if (!writer || !writer->path) {
        free(writer);
        return zinf_fail(-ENOMEM, "no memory for event files");
    }
    writer->file = fopen(writer->path, "wb");
    if (!writer->file)
        code = zinf_fail(-errno, "cannot write %s: %s", writer->path, strerror(errno));
    if (!code)
        code = put(writer, record, tb_record_version(record, wall_seconds));
    if (code)
        tb_writer_close(writer);
    else
        *out = writer;
    return code;
}

int tb_writer_scalar(struct tb_writer *writer, double wall_seconds, int64_t step, const char *tag,
                     double value)
{
    unsigned char record[TB_RECORD_BYTES];
    if (!isfinite(value))
        return 0;
    return put(writer, record, tb_record_scalar(record, wall_seconds, step, tag, (float)value));
}

int tb_writer_close(struct tb_writer *writer)
{
    int code = 0;
    if (!writer)
        return 0;
    if (writer->file && fclose(writer->file))
        code = zinf_fail(-EIO, "cannot write %s: %s", writer->path, strerror(errno));
    free(writer->path);
    free(writer);
    return code;
}

double tb_wall_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

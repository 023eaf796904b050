/* tb_events: records byte for byte as TensorFlow's own writer has them, and files of them. */
#include "cli/tb_events.h"
#include "tap.h"

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void check_hex(const unsigned char *record, size_t n, const char *hex)
{
    CHECKF(n == strlen(hex) / 2, "%zu bytes, not %zu", n, strlen(hex) / 2);
    for (size_t i = 0; i < n && 2 * i < strlen(hex); i++) {
        char byte[3];
        snprintf(byte, sizeof byte, "%02x", record[i]);
        CHECKF(!strncmp(byte, hex + 2 * i, 2), "byte %zu is %s, not %.2s", i, byte, hex + 2 * i);
    }
}

static void test_checksum(void)
{
    CHECK(tb_crc32c("123456789", 9) == 0xe3069283u);
}

static void test_records(void)
{
    unsigned char record[TB_RECORD_BYTES];
    size_t n = tb_record_version(record, 1700000000.0);
    check_hex(record, n,
              "1800000000000000a37f4b220900000040fc54d9411a0d627261696e2e4576656e743a32eced8f9d");
    n = tb_record_scalar(record, 1700000001.5, 10, "train/loss", 2.5F);
    check_hex(
        record, n,
        "200000000000000029eda9500900006040fc54d941100a2a130a110a0a747261696e2f6c6f737315000020"
        "407f61544f");
}

static void test_long_tags_and_large_steps(void)
{
    unsigned char record[TB_RECORD_BYTES];
    char tag[400];
    memset(tag, 'a', sizeof tag);
    tag[399] = 0;
    size_t n = tb_record_scalar(record, 0, INT64_MAX, tag, 1);
    CHECK(n > 128 && n <= sizeof record);
}

static void test_a_file(void)
{
    char folder[] = "tb-events-XXXXXX", path[600] = "";
    struct tb_writer *writer = NULL;
    CHECK(mkdtemp(folder));
    CHECKF(!tb_writer_open(&writer, folder, 1700000000.0), "%s", zinf_error());
    CHECK(!tb_writer_scalar(writer, 1700000001.5, 10, "train/loss", 2.5));
    CHECK(!tb_writer_scalar(writer, 1700000001.5, 10, "train/loss", NAN)); /* left out */
    CHECK(!tb_writer_close(writer) && !tb_writer_close(NULL));
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (!strncmp(entry->d_name, "events.out.tfevents.1700000000.", 31))
            snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
    if (dir)
        closedir(dir);
    char *text = NULL;
    size_t bytes = 0;
    CHECKF(!zinf_file_read(path, 4096, &text, &bytes), "%s", zinf_error());
    CHECKF(bytes == 40 + 48, "%zu bytes", bytes);
    free(text);
    unlink(path);
    rmdir(folder);
    CHECK(tb_writer_open(&writer, "/proc/nowhere", 0) < 0);
}

int main(void)
{
    TAP_RUN(test_checksum);
    TAP_RUN(test_records);
    TAP_RUN(test_long_tags_and_large_steps);
    TAP_RUN(test_a_file);
    return tap_done();
}

/*
 * zip: from the end of an archive to its list of entries. The directory at the end counts; local
 * headers are looked at because only they say where data begins (PyTorch pads them, so that
 * storages lie at multiples of 64 bytes). Checksums are not compared: that would read everything.
 */
#include "formats/zip.h"
#include "formats/file_span.h"

#include <stdlib.h>

enum {
    END_BYTES = 22,
    LOCATOR_BYTES = 20,
    END64_BYTES = 56,
    CENTRAL_BYTES = 46,
    LOCAL_BYTES = 30,
    MAX_COMMENT_BYTES = 65535,
    EXTRA_ZIP64 = 1,
};
#define END_MAGIC 0x06054b50u
#define LOCATOR_MAGIC 0x07064b50u
#define END64_MAGIC 0x06064b50u
#define CENTRAL_MAGIC 0x02014b50u
#define LOCAL_MAGIC 0x04034b50u

struct archive {
    const char *path;
    int fd;
    uint64_t file_bytes;
    uint64_t directory, directory_bytes, n_entries;
};

static uint64_t integer(const uint8_t *at, int bytes)
{
    uint64_t value = 0;
    for (int i = bytes - 1; i >= 0; i--)
        value = value << 8 | at[i];
    return value;
}

static int fail_damaged(const struct archive *a, const char *how)
{
    return zinf_fail(-EINVAL,
                     "%s: %s; the file is damaged or was cut short: fetch or write it again",
                     a->path, how);
}

static bool inside(uint64_t offset, uint64_t bytes, uint64_t end)
{
    return offset <= end && bytes <= end - offset;
}

/* ---- the end of the file ---- */

/* An archive of 4 GiB or more, or 65535 entries, has its numbers in a record of its own. */
static int read_end64(struct archive *a, uint64_t end)
{
    uint8_t locator[LOCATOR_BYTES], record[END64_BYTES];
    int code;
    if (end < LOCATOR_BYTES)
        return fail_damaged(a, "the archive's end says nothing of where its directory is");
    code = zinf_file_span_read(a->fd, a->path, locator, sizeof locator, end - LOCATOR_BYTES);
    if (code)
        return code;
    uint64_t at = integer(locator + 8, 8);
    if (integer(locator, 4) != LOCATOR_MAGIC || integer(locator + 4, 4) != 0 ||
        !inside(at, END64_BYTES, end - LOCATOR_BYTES))
        return fail_damaged(a, "the archive's end says nothing of where its directory is");
    code = zinf_file_span_read(a->fd, a->path, record, sizeof record, at);
    if (code)
        return code;
    if (integer(record, 4) != END64_MAGIC || integer(record + 16, 8) != 0)
        return fail_damaged(a, "the archive's zip64 end is none");
    a->n_entries = integer(record + 32, 8);
    a->directory_bytes = integer(record + 40, 8);
    a->directory = integer(record + 48, 8);
    return inside(a->directory, a->directory_bytes, at)
               ? 0
               : fail_damaged(a, "the archive's directory lies outside of it");
}

static int read_end(struct archive *a, const uint8_t *record, uint64_t end)
{
    a->n_entries = integer(record + 10, 2);
    a->directory_bytes = integer(record + 12, 4);
    a->directory = integer(record + 16, 4);
    if (integer(record + 4, 4) != 0)
        return zinf_fail(-EINVAL, "%s: archives on several disks are not supported", a->path);
    if (a->n_entries == UINT16_MAX || a->directory_bytes == UINT32_MAX ||
        a->directory == UINT32_MAX)
        return read_end64(a, end);
    return inside(a->directory, a->directory_bytes, end)
               ? 0
               : fail_damaged(a, "the archive's directory lies outside of it");
}

/* The end record is the last thing in the file but for a comment, whose length it has. */
static int find_end(struct archive *a)
{
    uint64_t bytes = END_BYTES + MAX_COMMENT_BYTES;
    if (a->file_bytes < END_BYTES)
        return fail_damaged(a, "it is too short for an archive");
    if (bytes > a->file_bytes)
        bytes = a->file_bytes;
    uint64_t first = a->file_bytes - bytes;
    uint8_t *tail = malloc(bytes);
    if (!tail)
        return zinf_fail(-ENOMEM, "%s: no memory for the archive's end", a->path);
    int code = zinf_file_span_read(a->fd, a->path, tail, bytes, first);
    bool found = false;
    for (uint64_t i = bytes - END_BYTES + 1; !code && !found && i-- > 0;) {
        found =
            integer(tail + i, 4) == END_MAGIC && integer(tail + i + 20, 2) == bytes - END_BYTES - i;
        if (found)
            code = read_end(a, tail + i, first + i);
    }
    free(tail);
    if (!code && !found)
        code = fail_damaged(a, "the archive has no end");
    return code;
}

/* ---- the directory ---- */

/* Sizes and offset that do not fit 32 bits stand in the extra field, in this order. */
static bool read_zip64(const uint8_t *extra, uint64_t extra_bytes, uint64_t *values[3])
{
    bool wanted = false;
    for (int i = 0; i < 3; i++)
        wanted = wanted || *values[i] == UINT32_MAX;
    for (uint64_t at = 0, n; wanted && extra_bytes - at >= 4; at += 4 + n) {
        n = integer(extra + at + 2, 2);
        if (n > extra_bytes - at - 4)
            return false;
        if (integer(extra + at, 2) != EXTRA_ZIP64)
            continue;
        uint64_t used = 0;
        for (int i = 0; i < 3; i++) {
            if (*values[i] != UINT32_MAX)
                continue;
            if (n - used < 8)
                return false;
            *values[i] = integer(extra + at + 4 + used, 8);
            used += 8;
        }
        return true;
    }
    return !wanted;
}

/* One entry at `at` of the directory; *names is where its name goes. The bytes that it takes. */
static int64_t read_central(const struct archive *a, const uint8_t *at, uint64_t left,
                            struct zinf_zip_entry *entry, char **names)
{
    if (left < CENTRAL_BYTES || integer(at, 4) != CENTRAL_MAGIC)
        return fail_damaged(a, "the archive's directory ends early");
    uint64_t name_bytes = integer(at + 28, 2), extra_bytes = integer(at + 30, 2);
    uint64_t comment_bytes = integer(at + 32, 2), packed = integer(at + 20, 4);
    uint64_t total = CENTRAL_BYTES + name_bytes + extra_bytes + comment_bytes;
    if (total > left)
        return fail_damaged(a, "the archive's directory ends early");
    *entry = (struct zinf_zip_entry){
        .name = *names, .header_offset = integer(at + 42, 4), .bytes = integer(at + 24, 4)};
    memcpy(*names, at + CENTRAL_BYTES, name_bytes);
    (*names)[name_bytes] = 0;
    *names += name_bytes + 1;
    uint64_t *values[] = {&entry->bytes, &packed, &entry->header_offset};
    if (strlen(entry->name) != name_bytes ||
        !read_zip64(at + CENTRAL_BYTES + name_bytes, extra_bytes, values))
        return fail_damaged(a, "an entry of the archive's directory is wrong");
    if (integer(at + 10, 2) != 0 || integer(at + 8, 2) & 1 || packed != entry->bytes)
        return zinf_fail(-EINVAL,
                         "%s: its files are compressed or encrypted; torch.save stores them as "
                         "they are: load and save it again with torch",
                         a->path);
    return (int64_t)total;
}

/* Sets where the data is, by the local header, which must be the same entry's. */
static int read_local(const struct archive *a, struct zinf_zip_entry *entry)
{
    uint8_t header[LOCAL_BYTES + 512];
    uint64_t name_bytes = strlen(entry->name), at = entry->header_offset;
    if (name_bytes > sizeof header - LOCAL_BYTES ||
        !inside(at, LOCAL_BYTES + name_bytes, a->directory))
        return fail_damaged(a, "an entry of the archive lies outside of it");
    int code = zinf_file_span_read(a->fd, a->path, header, LOCAL_BYTES + name_bytes, at);
    if (code)
        return code;
    if (integer(header, 4) != LOCAL_MAGIC || integer(header + 26, 2) != name_bytes ||
        memcmp(header + LOCAL_BYTES, entry->name, name_bytes) != 0)
        return fail_damaged(a, "an entry of the archive is not where its directory says");
    entry->offset = at + LOCAL_BYTES + name_bytes + integer(header + 28, 2);
    return inside(entry->offset, entry->bytes, a->directory)
               ? 0
               : fail_damaged(a, "an entry of the archive lies outside of it");
}

static int by_offset(const void *a, const void *b)
{
    const struct zinf_zip_entry *x = a, *y = b;
    return (x->header_offset > y->header_offset) - (x->header_offset < y->header_offset);
}

static int by_name(const void *a, const void *b)
{
    const struct zinf_zip_entry *x = a, *y = b;
    return strcmp(x->name, y->name);
}

static int check_apart(const struct archive *a, struct zinf_zip *zip)
{
    struct zinf_zip_entry *entries = zip->entries;
    qsort(entries, zip->n_entries, sizeof *entries, by_offset);
    for (uint64_t i = 1; i < zip->n_entries; i++)
        if (entries[i].header_offset < entries[i - 1].offset + entries[i - 1].bytes)
            return fail_damaged(a, "two entries of the archive overlap");
    qsort(entries, zip->n_entries, sizeof *entries, by_name);
    for (uint64_t i = 1; i < zip->n_entries; i++)
        if (!strcmp(entries[i].name, entries[i - 1].name))
            return fail_damaged(a, "the archive has two entries of one name");
    return 0;
}

static int read_directory(const struct archive *a, const uint8_t *directory, struct zinf_zip *zip)
{
    char *names = zip->names;
    uint64_t at = 0;
    int code = 0;
    for (; !code && zip->n_entries < a->n_entries; zip->n_entries++) {
        struct zinf_zip_entry *entry = &zip->entries[zip->n_entries];
        int64_t bytes = read_central(a, directory + at, a->directory_bytes - at, entry, &names);
        if (bytes < 0)
            return (int)bytes;
        at += (uint64_t)bytes;
        code = read_local(a, entry);
    }
    return code ? code : check_apart(a, zip);
}

int zinf_zip_init(struct zinf_zip *out, const char *path, int fd, uint64_t file_bytes)
{
    struct archive a = {.path = path, .fd = fd, .file_bytes = file_bytes};
    struct zinf_zip zip = {0};
    uint8_t *directory = NULL;
    int code = find_end(&a);
    if (!code &&
        (a.n_entries > ZINF_ZIP_MAX_ENTRIES || a.directory_bytes > ZINF_ZIP_MAX_DIRECTORY_BYTES ||
         a.n_entries > a.directory_bytes / CENTRAL_BYTES))
        code = fail_damaged(&a, "the archive claims more entries than it has");
    if (code)
        return code;
    directory = malloc(a.directory_bytes + 1);
    zip.entries = calloc(a.n_entries + 1, sizeof *zip.entries);
    zip.names = malloc(a.directory_bytes + a.n_entries + 1); /* each shorter than its entry */
    if (!directory || !zip.entries || !zip.names)
        code = zinf_fail(-ENOMEM, "%s: no memory for %llu entries", path,
                         (unsigned long long)a.n_entries);
    if (!code)
        code = zinf_file_span_read(fd, path, directory, a.directory_bytes, a.directory);
    if (!code)
        code = read_directory(&a, directory, &zip);
    free(directory);
    if (code)
        zinf_zip_fini(&zip);
    else
        *out = zip;
    return code;
}

void zinf_zip_fini(struct zinf_zip *zip)
{
    free(zip->entries);
    free(zip->names);
    *zip = (struct zinf_zip){0};
}

const struct zinf_zip_entry *zinf_zip_find(const struct zinf_zip *zip, const char *name)
{
    const struct zinf_zip_entry wanted = {.name = name};
    return bsearch(&wanted, zip->entries, zip->n_entries, sizeof wanted, by_name);
}

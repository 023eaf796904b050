/* stream_file: blocks of 4 MiB that end on multiples of 4 MiB, a ring of blocks in writeback. */
#include "build-config.h" /* _GNU_SOURCE: sync_file_range */
#include "formats/stream_file.h"
#include "formats/file_span.h"
#include "formats/formats.h"
#include "base/pulse.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
#include <xxhash.h>

#define BLOCK_BYTES ZINF_TENSORS_WRITER_BYTES
#define PAGE_BYTES 4096 /* direct reads: memory, offset and length */

int zinf_stream_file_init(struct zinf_stream_file *file, const char *path, uint64_t bytes)
{
    *file = (struct zinf_stream_file){.fd = -1};
    file->path = strdup(path);
    if (posix_memalign((void **)&file->block, PAGE_BYTES, BLOCK_BYTES))
        file->block = NULL;
    file->hash = XXH3_createState();
    int code = 0;
    if (!file->path || !file->block || !file->hash) {
        code = zinf_fail(-ENOMEM, "no memory to write %s", path);
        goto out;
    }
    XXH3_64bits_reset(file->hash);
    code = zinf_file_temporary(path, &file->temporary, &file->fd);
    if (code)
        goto out;
    /* A full disk is better met now; file systems that cannot reserve say EOPNOTSUPP. */
    if (bytes && fallocate(file->fd, 0, 0, (off_t)bytes) &&
        (errno == ENOSPC || errno == EDQUOT || errno == EFBIG))
        code = zinf_fail(-errno,
                         "cannot reserve %llu bytes for %s: %s: make room or choose another folder",
                         (unsigned long long)bytes, path, strerror(errno));
out:
    if (code)
        zinf_stream_file_discard(file);
    return code;
}

/* ---- writeback ---- */

static int fail_writeback(const struct zinf_stream_file *file)
{
    return zinf_fail(-errno, "cannot write %s: %s", file->temporary, strerror(errno));
}

/* Where the call is not supported the final fsync does the work. Its other errors must not be
 * lost: the kernel reports a failed writeback only once. */
static int sync_span(struct zinf_stream_file *file, const struct zinf_stream_span *span,
                     unsigned flags)
{
    if (sync_file_range(file->fd, (off_t)span->offset, (off_t)span->bytes, flags) &&
        errno != ENOSYS && errno != EINVAL && errno != ESPIPE)
        return fail_writeback(file);
    return 0;
}

static int retire_oldest(struct zinf_stream_file *file)
{
    const struct zinf_stream_span *span = &file->in_flight[file->oldest];
    int code =
        sync_span(file, span,
                  SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER);
    posix_fadvise(file->fd, (off_t)span->offset, (off_t)span->bytes, POSIX_FADV_DONTNEED);
    file->oldest = (file->oldest + 1) % ZINF_STREAM_FILE_IN_FLIGHT;
    file->n_in_flight--;
    return code;
}

static int write_span(struct zinf_stream_file *file, const void *data, uint64_t bytes,
                      uint64_t offset)
{
    struct zinf_stream_span span = {offset, bytes};
    int code = zinf_file_span_write(file->fd, file->temporary, data, bytes, offset);
    if (!code)
        code = sync_span(file, &span, SYNC_FILE_RANGE_WRITE);
    if (!code && file->n_in_flight == ZINF_STREAM_FILE_IN_FLIGHT)
        code = retire_oldest(file);
    if (code)
        return code;
    unsigned last = (file->oldest + file->n_in_flight++) % ZINF_STREAM_FILE_IN_FLIGHT;
    file->in_flight[last] = span;
    return 0;
}

static int flush_block(struct zinf_stream_file *file)
{
    uint64_t filled = file->filled;
    file->filled = 0;
    return filled ? write_span(file, file->block, filled, file->offset) : 0;
}

/* ---- writing ---- */

static struct zinf_stream_run *last_run(const struct zinf_stream_file *file)
{
    return file->n_runs ? &file->runs[file->n_runs - 1] : NULL;
}

static void end_run(struct zinf_stream_file *file)
{
    struct zinf_stream_run *run = last_run(file);
    if (run)
        run->sum = XXH3_64bits_digest(file->hash);
}

static int begin_run(struct zinf_stream_file *file, uint64_t offset)
{
    end_run(file);
    if (file->n_runs == file->runs_room) {
        size_t room = file->runs_room ? 2 * file->runs_room : 16;
        struct zinf_stream_run *runs = realloc(file->runs, room * sizeof *runs);
        if (!runs)
            return zinf_fail(-ENOMEM, "no memory to write %s", file->path);
        file->runs = runs;
        file->runs_room = room;
    }
    file->runs[file->n_runs++] = (struct zinf_stream_run){.offset = offset};
    XXH3_64bits_reset(file->hash);
    return 0;
}

/* What is hashed is the caller's memory, so that a wrong copy on the way to the drive is found. */
static int hash_span(struct zinf_stream_file *file, const void *data, uint64_t bytes,
                     uint64_t offset)
{
    const struct zinf_stream_run *last = last_run(file);
    int code = last && offset == last->offset + last->bytes ? 0 : begin_run(file, offset);
    if (code)
        return code;
    XXH3_64bits_update(file->hash, data, bytes);
    last_run(file)->bytes += bytes;
    return 0;
}

int zinf_stream_file_write(struct zinf_stream_file *file, const void *data, uint64_t bytes,
                           uint64_t offset)
{
    const char *from = data;
    int code = bytes ? hash_span(file, data, bytes, offset) : 0;
    if (!code && file->filled && offset != file->offset + file->filled)
        code = flush_block(file);
    while (bytes > 0 && !code) {
        uint64_t room = BLOCK_BYTES - offset % BLOCK_BYTES; /* to the next multiple */
        uint64_t n = bytes < room ? bytes : room;
        if (!file->filled)
            file->offset = offset;
        if (n == BLOCK_BYTES) { /* a whole block, and none begun: no copy */
            code = write_span(file, from, n, offset);
        } else {
            memcpy(file->block + file->filled, from, n);
            file->filled += n;
            if (n == room)
                code = flush_block(file);
        }
        from += n;
        offset += n;
        bytes -= n;
    }
    return code;
}

static void free_buffers(struct zinf_stream_file *file)
{
    free(file->block);
    free(file->runs);
    XXH3_freeState(file->hash);
    file->block = NULL;
    file->runs = NULL;
    file->hash = NULL;
}

/* ---- reading back ---- */

static int compare_runs(const void *a, const void *b)
{
    const struct zinf_stream_run *x = a, *y = b;
    return x->offset < y->offset ? -1 : x->offset > y->offset;
}

/* A file that is read front to back, and the runs in the order of their places. */
struct reading {
    const struct zinf_stream_file *file;
    XXH3_state_t *whole, *run;
    uint64_t at; /* bytes that were read */
    size_t next; /* the run that is not yet compared */
    bool same;
};

static void compare_block(struct reading *r, const char *block, uint64_t n)
{
    XXH3_64bits_update(r->whole, block, n);
    while (r->next < r->file->n_runs) {
        const struct zinf_stream_run *run = &r->file->runs[r->next];
        const uint64_t begin = run->offset > r->at ? run->offset : r->at;
        const uint64_t end = run->offset + run->bytes, to = r->at + n;
        if (begin >= to)
            break;
        XXH3_64bits_update(r->run, block + (begin - r->at), (end < to ? end : to) - begin);
        if (end > to)
            break;
        r->same = r->same && XXH3_64bits_digest(r->run) == run->sum;
        XXH3_64bits_reset(r->run);
        r->next++;
    }
    r->at += n;
}

static int compare_file(struct reading *r, int fd)
{
    for (;;) {
        int code = zinf_pulse_beat();
        if (code)
            return code;
        ssize_t n = pread(fd, r->file->block, BLOCK_BYTES, (off_t)r->at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot read %s back: %s", r->file->temporary,
                             strerror(errno));
        if (!n)
            return 0;
        compare_block(r, r->file->block, (uint64_t)n);
        if (n % PAGE_BYTES) /* its end; direct reads go on only at whole pages */
            return 0;
    }
}

static int check_runs(const struct zinf_stream_file *file)
{
    for (size_t i = 1; i < file->n_runs; i++)
        if (file->runs[i].offset < file->runs[i - 1].offset + file->runs[i - 1].bytes)
            return zinf_fail(-EINVAL, "%s: byte %llu was written twice", file->temporary,
                             (unsigned long long)file->runs[i].offset);
    return 0;
}

/* What is on the drive, past the page cache, against what was handed in: a write may be lost, or go
 * elsewhere, with every call succeeding. */
static int read_back(const struct zinf_stream_file *file, uint64_t *sum)
{
    struct reading r = {file, XXH3_createState(), XXH3_createState(), 0, 0, true};
    int fd = open(file->temporary, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0 && errno == EINVAL) /* a file system without it */
        fd = open(file->temporary, O_RDONLY | O_CLOEXEC);
    int code =
        fd < 0 ? zinf_fail(-errno, "cannot open %s: %s", file->temporary, strerror(errno)) : 0;
    if (!code && (!r.whole || !r.run))
        code = zinf_fail(-ENOMEM, "no memory to read %s back", file->temporary);
    if (!code) {
        XXH3_64bits_reset(r.whole);
        XXH3_64bits_reset(r.run);
        code = compare_file(&r, fd);
    }
    if (!code && (!r.same || r.next < file->n_runs))
        code = zinf_fail(-EBADMSG, "%s is not what was written to it: look after the drive",
                         file->temporary);
    if (!code)
        *sum = XXH3_64bits_digest(r.whole);
    if (fd >= 0)
        close(fd);
    XXH3_freeState(r.whole);
    XXH3_freeState(r.run);
    return code;
}

int zinf_stream_file_sync(struct zinf_stream_file *file, uint64_t *sum)
{
    int code = flush_block(file);
    if (!code && fsync(file->fd))
        code = fail_writeback(file);
    if (!code)
        posix_fadvise(file->fd, 0, 0, POSIX_FADV_DONTNEED);
    if (close(file->fd) && !code)
        code = fail_writeback(file);
    file->fd = -1;
    end_run(file);
    if (file->n_runs)
        qsort(file->runs, file->n_runs, sizeof *file->runs, compare_runs);
    if (!code)
        code = check_runs(file);
    if (!code)
        code = read_back(file, sum);
    free_buffers(file);
    return code;
}

int zinf_stream_file_publish(struct zinf_stream_file *file)
{
    if (rename(file->temporary, file->path))
        return zinf_fail(-errno, "cannot rename %s to %s: %s", file->temporary, file->path,
                         strerror(errno));
    free(file->temporary);
    free(file->path);
    *file = (struct zinf_stream_file){.fd = -1};
    return 0;
}

void zinf_stream_file_discard(struct zinf_stream_file *file)
{
    if (file->temporary && *file->temporary)
        unlink(file->temporary);
    if (file->block && file->fd >= 0)
        close(file->fd);
    free_buffers(file);
    free(file->temporary);
    free(file->path);
    *file = (struct zinf_stream_file){.fd = -1};
}

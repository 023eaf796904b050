/*
 * shim: stands before the C library and liburing of a program that it is preloaded into, and lets
 * one transfer go wrong as a drive may: the call succeeds and nothing, half, or something elsewhere
 * is written; or it fails. ZINF_SHIM="KIND N PART": the N-th transfer, from 1, of files whose path
 * holds PART; "KIND N+ PART": it and all that follow. With N = 0 nothing is harmed; ZINF_SHIM_COUNT
 * names a file that gets the number of transfers at the end. "signal9 N PART" sends the process
 * this signal as it begins the N-th transfer, a read or a write: a moment of a phase, as files are
 * of one. With ZINF_SHIM_PLACE="FROM END BYTE" only transfers that begin at such offsets of a file
 * count, and a read's bit that changes is in this byte of it, not in the middle.
 *
 * A transfer of io_uring is harmed in its submission entry (another offset, the memory of a copy,
 * an operation that moves nothing) and, where the kernel would have to say that it failed, in its
 * completion, which lies in memory that is shared with the kernel.
 */
#include "build-config.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

enum kind {
    NONE,
    LOST,      /* succeeds; nothing is written */
    MISPLACED, /* succeeds; the bytes are a page further */
    TORN,      /* succeeds; the second half is what was there before */
    SHORT,     /* moves the first half, and says so */
    WRITE_EIO,
    WRITE_ENOSPC,
    READ_EIO,
    READ_FLIP, /* one bit of what was read */
    SYNC_EIO,
    HANG,      /* a write that never comes back */
    READ_HANG, /* or a read */
    SIGNAL,    /* of the process; the transfer itself is left alone */
    KINDS,
};
static const char *const names[] = {"none", "lost",      "misplaced", "torn",      "short",
                                    "eio",  "enospc",    "read-eio",  "read-flip", "sync-eio",
                                    "hang", "read-hang", "signal"};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards seen */
static uint64_t seen, wanted;
static enum kind kind;
static int signal_number; /* of SIGNAL */
static char part[512];
static bool ready, from_there_on;
static long long place_from, place_end, place_byte = -1; /* -1: anywhere */

static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pread)(int, void *, size_t, off_t);
static ssize_t (*real_read)(int, void *, size_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_submit)(struct io_uring *);
static int (*real_wait_timeout)(struct io_uring *, struct io_uring_cqe **, unsigned,
                                struct __kernel_timespec *, sigset_t *);
static int (*real_get_events)(struct io_uring *);
static int (*real_update)(struct io_uring *, unsigned, const int *, unsigned);
static int registered[4096]; /* descriptors behind io_uring's table of files, + 1 */

static void report(void)
{
    const char *path = getenv("ZINF_SHIM_COUNT");
    FILE *out = path ? fopen(path, "w") : NULL;
    if (out) {
        fprintf(out, "%llu\n", (unsigned long long)seen);
        fclose(out);
    }
}

#define FIND(name) *(void **)&real_##name = dlsym(RTLD_NEXT, #name)

__attribute__((constructor)) static void begin(void)
{
    char word[32] = "";
    char number[16] = "", *end;
    const char *text = getenv("ZINF_SHIM"), *place = getenv("ZINF_SHIM_PLACE");
    FIND(pwrite);
    FIND(write);
    FIND(pread);
    FIND(read);
    FIND(fsync);
    FIND(fdatasync);
    *(void **)&real_submit = dlsym(RTLD_NEXT, "io_uring_submit");
    *(void **)&real_wait_timeout = dlsym(RTLD_NEXT, "io_uring_submit_and_wait_timeout");
    *(void **)&real_get_events = dlsym(RTLD_NEXT, "io_uring_submit_and_get_events");
    *(void **)&real_update = dlsym(RTLD_NEXT, "io_uring_register_files_update");
    if (!text || sscanf(text, "%31s %15s %511s", word, number, part) != 3)
        return;
    wanted = strtoull(number, &end, 10);
    from_there_on = *end == '+';
    for (int i = 0; i < KINDS; i++)
        if (!strcmp(word, names[i]))
            kind = (enum kind)i;
    if (sscanf(word, "signal%d", &signal_number) == 1)
        kind = SIGNAL;
    if (place && sscanf(place, "%lld %lld %lld", &place_from, &place_end, &place_byte) != 3)
        return;
    ready = true;
    atexit(report);
}

static bool is_read(void)
{
    return kind == READ_EIO || kind == READ_FLIP || kind == READ_HANG;
}

static bool is_at_place(long long at)
{
    return place_byte < 0 || (at >= place_from && at < place_end);
}

/* Whether this transfer is the one. */
static bool strikes(int fd, off_t at, bool reads, bool syncs)
{
    char link[64], path[1024];
    if (!ready || syncs != (kind == SYNC_EIO) || (!syncs && reads != is_read() && kind != SIGNAL) ||
        (!syncs && !is_at_place(at)))
        return false;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = 0;
    if (!strstr(path, part))
        return false;
    pthread_mutex_lock(&lock);
    bool now = ++seen == wanted || (from_there_on && seen > wanted);
    pthread_mutex_unlock(&lock);
    while (now && (kind == HANG || kind == READ_HANG))
        pause();
    if (now && kind == SIGNAL)
        kill(getpid(), signal_number);
    return now && kind != SIGNAL;
}

/* What the drive says, after doing what it did. */
static ssize_t harm_write(int fd, const void *data, size_t bytes, off_t at)
{
    switch (kind) {
    case MISPLACED: /* the content of another place is gone, too */
        real_pwrite(fd, data, bytes, at + 4096);
        return (ssize_t)bytes;
    case TORN:
        real_pwrite(fd, data, bytes >= 8192 ? bytes / 8192 * 4096 : 0, at);
        return (ssize_t)bytes;
    case SHORT:
        return real_pwrite(fd, data, bytes >= 8192 ? bytes / 8192 * 4096 : bytes, at);
    case WRITE_EIO:
    case WRITE_ENOSPC:
        errno = kind == WRITE_EIO ? EIO : ENOSPC;
        return -1;
    default:
        return (ssize_t)bytes;
    }
}

ssize_t pwrite(int fd, const void *data, size_t bytes, off_t at)
{
    return strikes(fd, at, false, false) ? harm_write(fd, data, bytes, at)
                                         : real_pwrite(fd, data, bytes, at);
}

ssize_t pwrite64(int fd, const void *data, size_t bytes, off_t at)
{
    return pwrite(fd, data, bytes, at);
}

ssize_t write(int fd, const void *data, size_t bytes)
{
    if (!strikes(fd, -1, false, false))
        return real_write(fd, data, bytes);
    off_t at = lseek(fd, 0, SEEK_CUR);
    ssize_t n = harm_write(fd, data, bytes, at);
    if (n > 0)
        lseek(fd, at + n, SEEK_SET);
    return n;
}

/* The byte of a read in which a bit changes. */
static size_t flipped(size_t bytes)
{
    return place_byte >= 0 && (size_t)place_byte < bytes ? (size_t)place_byte : bytes / 2;
}

static ssize_t harm_read(ssize_t n, void *data)
{
    if (kind == READ_EIO) {
        errno = EIO;
        return -1;
    }
    if (n > 0)
        ((char *)data)[flipped((size_t)n)] ^= 16;
    return n;
}

ssize_t pread(int fd, void *data, size_t bytes, off_t at)
{
    bool now = strikes(fd, at, true, false);
    ssize_t n = real_pread(fd, data, bytes, at);
    return now ? harm_read(n, data) : n;
}

ssize_t pread64(int fd, void *data, size_t bytes, off_t at)
{
    return pread(fd, data, bytes, at);
}

ssize_t read(int fd, void *data, size_t bytes)
{
    bool now = strikes(fd, -1, true, false);
    ssize_t n = real_read(fd, data, bytes);
    return now ? harm_read(n, data) : n;
}

static int sync_failed(void)
{
    errno = EIO;
    return -1;
}

int fsync(int fd)
{
    return strikes(fd, -1, false, true) ? sync_failed() : real_fsync(fd);
}

int fdatasync(int fd)
{
    return strikes(fd, -1, false, true) ? sync_failed() : real_fdatasync(fd);
}

/* ---- io_uring ---- */

/* A completion that is to say something else than the kernel will. Entries are known by their user
 * data, which no two transfers under way share. */
struct mark {
    uint64_t user_data;
    int result; /* in place of the kernel's; 0: leave that */
    char *flip; /* change this byte of what was read */
    bool used;
};
static struct mark marks[256]; /* guarded by lock */

static void put_mark(uint64_t user_data, int result, char *flip)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++)
        if (!marks[i].used) {
            marks[i] = (struct mark){user_data, result, flip, true};
            break;
        }
    pthread_mutex_unlock(&lock);
}

static void spoil(struct io_uring_cqe *cqe)
{
    pthread_mutex_lock(&lock);
    for (size_t i = 0; i < sizeof marks / sizeof *marks; i++) {
        struct mark *m = &marks[i];
        if (!m->used || m->user_data != cqe->user_data)
            continue;
        m->used = false;
        if (m->result)
            cqe->res = m->result;
        else if (cqe->res > 0)
            *m->flip ^= 16;
    }
    pthread_mutex_unlock(&lock);
}

int io_uring_register_files_update(struct io_uring *ring, unsigned at, const int *files, unsigned n)
{
    for (unsigned i = 0; i < n && at + i < 4096; i++)
        registered[at + i] = files[i] + 1;
    return real_update(ring, at, files, n);
}

/* The second half as it is on the drive now; the copy stays until the process ends. */
static void tear(struct io_uring_sqe *sqe, int fd)
{
    char *copy = NULL;
    size_t bytes = sqe->len, half = bytes / 8192 * 4096;
    if (posix_memalign((void **)&copy, 4096, bytes))
        return;
    memcpy(copy, (const void *)(uintptr_t)sqe->addr, half);
    if (real_pread(fd, copy + half, bytes - half, (off_t)(sqe->off + half)) < 0)
        return;
    sqe->opcode = IORING_OP_WRITE;
    sqe->buf_index = 0;
    sqe->addr = (uintptr_t)copy;
}

/* The kernel moves nothing, and its completion will say why. */
static void refuse(struct io_uring_sqe *sqe)
{
    uint64_t user_data = sqe->user_data;
    put_mark(user_data, kind == WRITE_ENOSPC ? -ENOSPC : -EIO, NULL);
    memset(sqe, 0, sizeof *sqe);
    sqe->opcode = IORING_OP_NOP;
    sqe->fd = -1;
    sqe->user_data = user_data;
}

static void harm_entry(struct io_uring_sqe *sqe)
{
    bool fixed = sqe->flags & IOSQE_FIXED_FILE;
    int fd = fixed ? registered[sqe->fd % 4096] - 1 : sqe->fd;
    bool writes = sqe->opcode == IORING_OP_WRITE || sqe->opcode == IORING_OP_WRITE_FIXED;
    bool reads = sqe->opcode == IORING_OP_READ || sqe->opcode == IORING_OP_READ_FIXED;
    if ((!writes && !reads) || !strikes(fd, (off_t)sqe->off, reads, false))
        return;
    switch (kind) {
    case TORN:
        tear(sqe, fd);
        break;
    case MISPLACED:
        sqe->off += 4096;
        break;
    case SHORT:
        sqe->len = sqe->len >= 8192 ? sqe->len / 8192 * 4096 : sqe->len;
        break;
    case LOST:
        tear(sqe, fd); /* all of it */
        real_pread(fd, (void *)(uintptr_t)sqe->addr, sqe->len, (off_t)sqe->off);
        break;
    case READ_FLIP:
        put_mark(sqe->user_data, 0, (char *)(uintptr_t)sqe->addr + flipped(sqe->len));
        break;
    default:
        refuse(sqe);
    }
}

static void before(struct io_uring *ring)
{
    const struct io_uring_sq *sq = &ring->sq;
    for (unsigned at = sq->sqe_head; ready && at != sq->sqe_tail; at++)
        harm_entry(&sq->sqes[at & sq->ring_mask]);
}

/* Completions come only while the ring's thread is in the kernel, so none was seen before. */
static int after(struct io_uring *ring, int code)
{
    struct io_uring_cqe *cqe;
    unsigned head;
    if (ready)
        io_uring_for_each_cqe(ring, head, cqe) spoil(cqe);
    return code;
}

int io_uring_submit(struct io_uring *ring)
{
    before(ring);
    return after(ring, real_submit(ring));
}

int io_uring_submit_and_wait_timeout(struct io_uring *ring, struct io_uring_cqe **cqe, unsigned n,
                                     struct __kernel_timespec *time, sigset_t *mask)
{
    before(ring);
    return after(ring, real_wait_timeout(ring, cqe, n, time, mask));
}

int io_uring_submit_and_get_events(struct io_uring *ring)
{
    before(ring);
    return after(ring, real_get_events(ring));
}

/*
 * aio_file: opens files for direct I/O, or buffered with one warning where that is not possible;
 * and the sentence about a failed transfer.
 */
#include "build-config.h"

#include "aio/aio_engine.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

/* Whether the file accepts direct transfers aligned to ZINF_AIO_ALIGN. Kernels before 6.1 do not
 * tell; then it does if it opens with O_DIRECT. */
static bool alignment_suffices(int fd)
{
#ifdef STATX_DIOALIGN
    struct statx info;
    if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) || !(info.stx_mask & STATX_DIOALIGN))
        return true;
    return info.stx_dio_offset_align && info.stx_dio_offset_align <= ZINF_AIO_ALIGN &&
           info.stx_dio_mem_align <= ZINF_AIO_ALIGN;
#else
    (void)fd;
    return true;
#endif
}

static int open_mode(unsigned flags)
{
    int mode = (flags & ZINF_AIO_WRITE) ? (flags & ZINF_AIO_READ) ? O_RDWR : O_WRONLY : O_RDONLY;
    return mode | O_CLOEXEC | (flags & ZINF_AIO_CREATE ? O_CREAT | O_EXCL : 0);
}

/* Opens buffered, which every file system can, then switches to direct, so that a created file
 * never has to be removed. */
static int open_file(struct zinf_aio_file *file, unsigned flags)
{
    file->fd = open(file->path, open_mode(flags), 0666);
    if (file->fd < 0)
        return zinf_fail(-errno, "cannot %s %s: %s", flags & ZINF_AIO_CREATE ? "create" : "open",
                         file->path, strerror(errno));
    if (flags & ZINF_AIO_BUFFERED)
        return 0;
    int status = fcntl(file->fd, F_GETFL);
    file->direct = alignment_suffices(file->fd) && !fcntl(file->fd, F_SETFL, status | O_DIRECT);
    if (!file->direct)
        zinf_log_once(ZINF_LOG_WARN, "aio no direct I/O",
                      "aio: the file system of %s has no direct I/O (O_DIRECT): goes through the "
                      "page cache, slower and with more memory; a local drive with ext4 or XFS "
                      "is better",
                      file->path);
    return 0;
}

int zinf_aio_open(struct zinf_aio_file **out, const char *path, unsigned flags)
{
    static atomic_uint_fast64_t next_id = 1;
    if (!(flags & (ZINF_AIO_READ | ZINF_AIO_WRITE)))
        return zinf_fail(-EINVAL, "%s: neither ZINF_AIO_READ nor ZINF_AIO_WRITE is set", path);
    struct zinf_aio_file *file = calloc(1, sizeof *file);
    if (!file || !(file->path = strdup(path))) {
        free(file);
        return zinf_fail(-ENOMEM, "no memory to open %s", path);
    }
    int code = open_file(file, flags);
    if (code) {
        free(file->path);
        free(file);
        return code;
    }
    /* relaxed: the number need only be unique */
    file->id = atomic_fetch_add_explicit(&next_id, 1, memory_order_relaxed);
    *out = file;
    return 0;
}

void zinf_aio_close(struct zinf_aio_file *file)
{
    if (!file)
        return;
    close(file->fd);
    free(file->path);
    free(file);
}

uint64_t zinf_aio_file_bytes(const struct zinf_aio_file *file)
{
    struct stat info;
    uint64_t bytes = 0;
    if (fstat(file->fd, &info))
        return 0;
    if (S_ISBLK(info.st_mode))
        return ioctl(file->fd, BLKGETSIZE64, &bytes) ? 0 : bytes;
    return (uint64_t)info.st_size;
}

bool zinf_aio_file_direct(const struct zinf_aio_file *file)
{
    return file->direct;
}

static const char *remedy(int code)
{
    switch (-code) {
    case ENOSPC:
    case EDQUOT:
        return "free space there, or set nvme_path to a larger drive";
    case EIO:
    case ENODATA:
    case EREMOTEIO:
        return "the drive or its connection fails: see dmesg and smartctl, then restore from a "
               "checkpoint on another drive";
    case EBADMSG:
        return "the data read is not the data written, also when read again: test the drive and "
               "the memory, then restore from a checkpoint";
    case ESTALE:
        return "it reads otherwise than before: leave the model's folder as it is while it is read "
               "from, and start again";
    case EINVAL:
        return "the file system refuses a direct transfer of this alignment";
    case EROFS:
        return "the file system became read-only, often after a drive error: see dmesg";
    case EAGAIN:
    case EINTR:
        return "repeated for 30 s without progress";
    default:
        return "see dmesg";
    }
}

int zinf_aio_file_flush(struct zinf_aio_file *file)
{
    int failed;
    do
        failed = fdatasync(file->fd);
    while (failed && errno == EINTR);
    return failed ? zinf_fail(-errno, "cannot flush %s: %s; %s", file->path, strerror(errno),
                              remedy(-errno))
                  : 0;
}

uint64_t zinf_aio_free_bytes(const char *path)
{
    struct statvfs info;
    /* f_bavail, not f_bfree, which counts space that is reserved for root. */
    return statvfs(path, &info) ? UINT64_MAX : (uint64_t)info.f_bavail * info.f_frsize;
}

void zinf_aio_describe_failure(char *buffer, size_t buffer_bytes,
                               const struct zinf_aio_block *block, int code)
{
    char size[16];
    uint64_t free_bytes = zinf_aio_free_bytes(block->file->path);
    if (free_bytes == UINT64_MAX)
        snprintf(size, sizeof size, "unknown");
    else
        zinf_size_format(size, sizeof size, free_bytes);
    snprintf(buffer, buffer_bytes,
             "cannot %s %" PRIu32 " bytes at offset %" PRIu64 " of %s: %s (errno %d); free there: "
             "%s; %s",
             block->op == ZINF_AIO_OP_READ ? "read" : "write", block->bytes, block->offset,
             block->file->path, code == -EBADMSG ? "checksum mismatch" : strerror(-code), -code,
             size, remedy(code));
}

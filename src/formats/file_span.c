/*
 * file_span: positional reads and writes that are continued until done. Reads never move a file
 * position, so several threads may share a descriptor.
 */
#include "formats/file_span.h"

#include "base/pulse.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define MAX_CALL_BYTES (1u << 24) /* between signs of life */

int zinf_file_span_open(const char *path, uint64_t *bytes)
{
    struct stat info;
    int code, fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return zinf_fail(-errno, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &info))
        code = zinf_fail(-errno, "cannot stat %s: %s", path, strerror(errno));
    else if (!S_ISREG(info.st_mode))
        code = zinf_fail(-EINVAL, "%s is not a regular file", path);
    else {
        *bytes = (uint64_t)info.st_size;
        return fd;
    }
    close(fd);
    return code;
}

int zinf_file_span_read(int fd, const char *path, void *out, uint64_t bytes, uint64_t offset)
{
    char *to = out;
    while (bytes > 0) {
        int code = zinf_pulse_beat();
        if (code)
            return code;
        ssize_t n = pread(fd, to, bytes < MAX_CALL_BYTES ? bytes : MAX_CALL_BYTES, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot read %s at byte %llu: %s", path,
                             (unsigned long long)offset, strerror(errno));
        if (n == 0)
            return zinf_fail(-EIO,
                             "%s ends at byte %llu, %llu bytes early: it became shorter after it "
                             "was opened",
                             path, (unsigned long long)offset, (unsigned long long)bytes);
        to += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

static int fail_write(int code, int fd, const char *path, uint64_t offset)
{
    struct statvfs room;
    char size[16];
    if (code != -ENOSPC || fstatvfs(fd, &room))
        return zinf_fail(code, "cannot write %s at byte %llu: %s", path, (unsigned long long)offset,
                         strerror(-code));
    return zinf_fail(code,
                     "cannot write %s at byte %llu: the file system is full (%s free): make room "
                     "or choose another folder",
                     path, (unsigned long long)offset,
                     zinf_size_format(size, sizeof size, room.f_bavail * (uint64_t)room.f_frsize));
}

int zinf_file_span_write(int fd, const char *path, const void *data, uint64_t bytes,
                         uint64_t offset)
{
    const char *from = data;
    while (bytes > 0) {
        int code = zinf_pulse_beat();
        if (code)
            return code;
        ssize_t n =
            pwrite(fd, from, bytes < MAX_CALL_BYTES ? bytes : MAX_CALL_BYTES, (off_t)offset);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return fail_write(n < 0 ? -errno : -EIO, fd, path, offset);
        from += n;
        offset += (uint64_t)n;
        bytes -= (uint64_t)n;
    }
    return 0;
}

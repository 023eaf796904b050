/* file: small whole files, read with a cap, written so that they appear whole or not at all. */
#include "build-config.h"

#include "base/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

char *zinf_path_join(const char *dir, const char *name)
{
    size_t bytes = strlen(dir) + strlen(name) + 2;
    char *path = malloc(bytes);
    if (!path) {
        zinf_fail(-ENOMEM, "no memory for a path of %zu bytes", bytes);
        return NULL;
    }
    snprintf(path, bytes, "%s%s%s", dir, *dir && dir[strlen(dir) - 1] == '/' ? "" : "/", name);
    return path;
}

static int read_all(int fd, const char *path, char *buffer, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = read(fd, buffer + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot read %s at byte %zu: %s", path, done, strerror(errno));
        if (n == 0)
            return zinf_fail(-EIO, "%s became shorter while it was read", path);
        done += (size_t)n;
    }
    return 0;
}

int zinf_file_read(const char *path, size_t max_bytes, char **out, size_t *out_bytes)
{
    struct stat info;
    char *buffer = NULL;
    int code;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a FIFO is refused, not waited for */
    if (fd < 0)
        return zinf_fail(-errno, "cannot open %s: %s", path, strerror(errno));
    if (fstat(fd, &info)) {
        code = zinf_fail(-errno, "cannot stat %s: %s", path, strerror(errno));
        goto out;
    }
    if (!S_ISREG(info.st_mode)) {
        code = zinf_fail(-EINVAL, "%s is not a regular file", path);
        goto out;
    }
    if ((uint64_t)info.st_size > max_bytes) {
        code = zinf_fail(-EFBIG, "%s has %lld bytes; at most %zu are read", path,
                         (long long)info.st_size, max_bytes);
        goto out;
    }
    buffer = malloc((size_t)info.st_size + 1);
    if (!buffer) {
        code =
            zinf_fail(-ENOMEM, "no memory to read %s (%lld bytes)", path, (long long)info.st_size);
        goto out;
    }
    code = read_all(fd, path, buffer, (size_t)info.st_size);
    if (code)
        goto out;
    buffer[info.st_size] = 0;
    *out = buffer;
    *out_bytes = (size_t)info.st_size;
    buffer = NULL;
out:
    free(buffer);
    close(fd);
    return code;
}

static int write_all(int fd, const char *path, const char *data, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        ssize_t n = write(fd, data + done, bytes - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return zinf_fail(-errno, "cannot write %s: %s", path, strerror(errno));
        done += (size_t)n;
    }
    return 0;
}

int zinf_file_temporary(const char *path, char **temporary, int *out)
{
    size_t length = strlen(path) + 32;
    char *name = malloc(length);
    int fd = -1;
    if (!name)
        return zinf_fail(-ENOMEM, "no memory for a path of %zu bytes", length);
    /* O_EXCL, and a name that nobody can have put a link under before. */
    for (int tries = 0; fd < 0 && tries < 100; tries++) {
        uint64_t random = 0;
        if (getrandom(&random, sizeof random, 0) != (ssize_t)sizeof random)
            random = zinf_now_ns();
        snprintf(name, length, "%s.tmp.%016llx", path, (unsigned long long)random);
        fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (fd < 0 && errno != EEXIST)
            break;
    }
    if (fd < 0) {
        int code = zinf_fail(-errno, "cannot create %s: %s", name, strerror(errno));
        free(name);
        return code;
    }
    *temporary = name;
    *out = fd;
    return 0;
}

/* Past the page cache, where the file system can: a write that the drive lost with every call
 * succeeding is found before anything is replaced. */
static int compare_back(const char *path, const char *data, size_t bytes)
{
    enum { PAGE = 4096 };
    char *page = NULL;
    int code = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (fd < 0)
        fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0 || posix_memalign((void **)&page, PAGE, PAGE))
        code = zinf_fail(-EIO, "cannot read %s back", path);
    for (size_t at = 0; !code && at < bytes; at += PAGE) {
        size_t n = bytes - at < PAGE ? bytes - at : PAGE;
        ssize_t got;
        do
            got = pread(fd, page, PAGE, (off_t)at);
        while (got < 0 && errno == EINTR);
        if (got < 0)
            code = zinf_fail(-errno, "cannot read %s back: %s", path, strerror(errno));
        else if ((size_t)got != n || memcmp(page, data + at, n))
            code =
                zinf_fail(-EBADMSG, "%s is not what was written to it: look after the drive", path);
    }
    if (fd >= 0)
        close(fd);
    free(page);
    return code;
}

int zinf_file_write_atomic(const char *path, const void *data, size_t bytes)
{
    char *temporary;
    int fd, code = zinf_file_temporary(path, &temporary, &fd);
    if (code)
        return code;
    code = write_all(fd, temporary, data, bytes);
    if (!code && fsync(fd))
        code = zinf_fail(-errno, "cannot flush %s: %s", temporary, strerror(errno));
    if (close(fd) && !code)
        code = zinf_fail(-errno, "cannot close %s: %s", temporary, strerror(errno));
    if (!code)
        code = compare_back(temporary, data, bytes);
    if (!code && rename(temporary, path))
        code = zinf_fail(-errno, "cannot rename %s to %s: %s", temporary, path, strerror(errno));
    if (code)
        unlink(temporary);
    free(temporary);
    return code;
}

int zinf_check_link(const char *path)
{
    struct stat info;
    if (lstat(path, &info) || !S_ISLNK(info.st_mode) || info.st_uid == geteuid())
        return 0;
    return zinf_fail(-ELOOP, "%s is a link that another user made: it is not followed", path);
}

int zinf_folder_sync(const char *folder)
{
    int code = 0;
    int fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return zinf_fail(-errno, "cannot open the folder %s: %s", folder, strerror(errno));
    if (fsync(fd) && errno != EINVAL) /* EINVAL: a file system without it */
        code = zinf_fail(-errno, "cannot flush the folder %s: %s", folder, strerror(errno));
    close(fd);
    return code;
}

int zinf_make_dirs(const char *path)
{
    char *copy = strdup(path);
    if (!copy)
        return zinf_fail(-ENOMEM, "no memory for the path %s", path);
    int code = 0;
    for (char *p = copy + 1; !code; p++) {
        char saved = *p;
        if (saved && saved != '/')
            continue;
        *p = 0;
        if (mkdir(copy, 0777) && errno != EEXIST)
            code = zinf_fail(-errno, "cannot make the folder %s: %s", copy, strerror(errno));
        *p = saved;
        if (!saved)
            break;
    }
    struct stat info;
    if (!code && (stat(path, &info) || !S_ISDIR(info.st_mode)))
        code = zinf_fail(-ENOTDIR, "%s is not a folder", path);
    free(copy);
    return code;
}

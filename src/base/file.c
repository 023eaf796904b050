/* file: small whole files, read with a cap, written so that they appear whole or not at all. */
#include "base/base.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
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
    int fd = open(path, O_RDONLY | O_CLOEXEC);
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

int zinf_file_write_atomic(const char *path, const void *data, size_t bytes)
{
    size_t length = strlen(path) + 32;
    char *temporary = malloc(length);
    if (!temporary)
        return zinf_fail(-ENOMEM, "no memory for a path of %zu bytes", length);
    snprintf(temporary, length, "%s.tmp.%ld", path, (long)getpid());
    int code = 0;
    int fd = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        code = zinf_fail(-errno, "cannot create %s: %s", temporary, strerror(errno));
        free(temporary);
        return code;
    }
    code = write_all(fd, temporary, data, bytes);
    if (!code && fsync(fd))
        code = zinf_fail(-errno, "cannot flush %s: %s", temporary, strerror(errno));
    if (close(fd) && !code)
        code = zinf_fail(-errno, "cannot close %s: %s", temporary, strerror(errno));
    if (!code && rename(temporary, path))
        code = zinf_fail(-errno, "cannot rename %s to %s: %s", temporary, path, strerror(errno));
    if (code)
        unlink(temporary);
    free(temporary);
    return code;
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

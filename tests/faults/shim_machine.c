/*
 * shim_machine: the part of the shim that is no drive. ZINF_SHIM_BOOT names a file that is read in
 * place of the name of this boot of the machine; with ZINF_SHIM_CLOCK each look at the time of day
 * finds it an hour earlier.
 */
#include "build-config.h"

#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <time.h>
#include <unistd.h>

/* A file system in memory is as good as any to be harmed. */
int statfs(const char *path, struct statfs *info)
{
    int code = (int)syscall(SYS_statfs, path, info);
    info->f_type = 0;
    return code;
}

int open(const char *path, int flags, ...)
{
    const char *other = getenv("ZINF_SHIM_BOOT");
    va_list rest;
    va_start(rest, flags);
    mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    if (other && !strcmp(path, "/proc/sys/kernel/random/boot_id"))
        path = other;
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open64(const char *path, int flags, ...) __attribute__((alias("open")));

static time_t set_back(void)
{
    static time_t hours; /* whoever races for it takes the same one twice */
    return getenv("ZINF_SHIM_CLOCK") ? 3600 * ++hours : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int code = (int)syscall(SYS_clock_gettime, clock, now);
    if (!code && clock == CLOCK_REALTIME)
        now->tv_sec -= set_back();
    return code;
}

time_t time(time_t *out)
{
    struct timespec now = {0};
    clock_gettime(CLOCK_REALTIME, &now);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}

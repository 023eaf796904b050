/*
 * store_folder: run folders PARENT/zinf-LABEL-PID-N, or zinf-LABEL.steps-PID-N where the store
 * outlives its process, so that no damage to a file can make one look like the other. The lock on
 * its file "lock" says that the owner lives: the kernel drops it with the process, however that
 * ends. Processes need no other agreement: "lock" is removed last, and who takes the lock of a file
 * that is no longer there has lost a race and tries the next N.
 */
#include "build-config.h"

#include "aio/aio_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FOLDERS 100000 /* N */

static int explain(int code, const char *parent)
{
    switch (code) {
    case -ENOENT:
    case -ENOTDIR:
        return zinf_fail(code,
                         "%s is not an existing folder: make it, or set nvme_path to a folder on a "
                         "local drive",
                         parent);
    case -EACCES:
    case -EPERM:
        return zinf_fail(code,
                         "no permission to make a folder in %s: give the user that runs this "
                         "write access, or set nvme_path to another folder",
                         parent);
    case -EROFS:
        return zinf_fail(code,
                         "the file system of %s is mounted read-only: remount it, or set "
                         "nvme_path to a folder on another drive",
                         parent);
    default:
        return zinf_fail(code,
                         "cannot take a run folder in %s: %s; set nvme_path to a folder on a "
                         "local drive",
                         parent, strerror(-code));
    }
}

/* ---- adopting ---- */

#define WAIT_MS 10000 /* the last transfers of a killed process take much less */
#define POLL_MS 20

int zinf_lock_wait(int fd, const char *path)
{
    for (int waited = 0; flock(fd, LOCK_EX | LOCK_NB); waited += POLL_MS) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return zinf_fail(-errno, "cannot lock %s: %s", path, strerror(errno));
        if (waited >= WAIT_MS)
            return zinf_fail(-EBUSY, "%s is in use by a process that lives: end it first", path);
        usleep(POLL_MS * 1000);
    }
    return 0;
}

static int adopt_locked(struct zinf_run_folder *folder, const char *parent, const char *path)
{
    char *lock = zinf_path_join(path, ZINF_LOCK_FILE);
    folder->lock_fd = lock ? open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600) : -1;
    int code = folder->lock_fd < 0 ? zinf_fail(-errno, "cannot open %s: %s", path, strerror(errno))
                                   : zinf_lock_wait(folder->lock_fd, path);
    folder->parent = strdup(parent);
    folder->path = strdup(path);
    free(lock);
    if (!code && (!folder->parent || !folder->path))
        code = zinf_fail(-ENOMEM, "no memory for the run folder %s", path);
    return code ? code : 1;
}

/* 1 if the folder is of this run, 0 if not, or -ENOTSUP. A folder that cannot be read may be of any
 * run and stays, with a warning. */
static int is_of_run(const char *path, const uint8_t run[16], struct zinf_steps_plan *plan)
{
    int code = zinf_check_owner(path);
    if (!code)
        code = zinf_steps_plan_read(plan, path);
    if (code == -ENOENT) /* its owner has not described it yet */
        return 0;
    if ((!code || code == -ENOTSUP) && memcmp(plan->run, run, sizeof plan->run))
        return 0;
    if (code && code != -ENOTSUP)
        zinf_log(ZINF_LOG_WARN, "aio: %s: it stays as it is", zinf_error());
    return !code ? 1 : code == -ENOTSUP ? code : 0;
}

int zinf_run_folder_adopt(struct zinf_run_folder *folder, const char *parent, const uint8_t run[16],
                          struct zinf_steps_plan *plan)
{
    DIR *dir = opendir(parent);
    int found = 0;
    if (!dir)
        return explain(-errno, parent);
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        char *path =
            zinf_run_folder_lasts(entry->d_name) ? zinf_path_join(parent, entry->d_name) : NULL;
        found = path ? is_of_run(path, run, plan) : 0;
        if (found == 1)
            found = adopt_locked(folder, parent, path);
        free(path);
    }
    closedir(dir);
    return found;
}

void zinf_run_folder_leave(struct zinf_run_folder *folder)
{
    if (folder->lock_fd >= 0)
        close(folder->lock_fd);
    free(folder->path);
    free(folder->parent);
    *folder = (struct zinf_run_folder){.lock_fd = -1};
}

/* ---- taking ---- */

/* Returns the descriptor of the locked file, -EEXIST if another process has the folder, or another
 * error. */
static int lock_folder(int parent_fd, const char *name)
{
    struct stat info;
    int lock_fd = -1, code = -EEXIST;
    int folder_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder_fd < 0)
        return errno == ENOENT ? -EEXIST : -errno;
    lock_fd = openat(folder_fd, ZINF_LOCK_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (lock_fd < 0) {
        code = errno == ENOENT ? -EEXIST : -errno;
        goto out;
    }
    if (flock(lock_fd, LOCK_EX | LOCK_NB)) {
        code = errno == EWOULDBLOCK ? -EEXIST : -errno;
        goto out;
    }
    if (!fstat(lock_fd, &info) && info.st_nlink)
        code = lock_fd;
out:
    if (code < 0 && lock_fd >= 0)
        close(lock_fd);
    close(folder_fd);
    return code;
}

static int make_folder(int parent_fd, const char *label, bool lasts, char *name, size_t name_bytes)
{
    int code = -EEXIST;
    for (int n = 0; n < MAX_FOLDERS && code == -EEXIST; n++) {
        snprintf(name, name_bytes, "zinf-%s%s-%ld-%d", label, lasts ? ".steps" : "", (long)getpid(),
                 n);
        code = mkdirat(parent_fd, name, 0700) ? -errno : lock_folder(parent_fd, name);
    }
    return code;
}

int zinf_run_folder_take(struct zinf_run_folder *folder, const char *parent, const char *label,
                         bool lasts)
{
    char name[128];
    int code = 0;
    int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent_fd < 0)
        return explain(-errno, parent);
    folder->lock_fd = -1;
    zinf_run_folders_reclaim(parent_fd, parent);
    int lock_fd = make_folder(parent_fd, label, lasts, name, sizeof name);
    if (lock_fd < 0) {
        code = explain(lock_fd, parent);
        goto out;
    }
    folder->lock_fd = lock_fd;
    folder->parent = strdup(parent);
    folder->path = zinf_path_join(parent, name);
    if (!folder->parent || !folder->path)
        code = zinf_fail(-ENOMEM, "no memory for the run folder %s", name);
out:
    close(parent_fd);
    return code;
}

void zinf_run_folder_drop(struct zinf_run_folder *folder)
{
    if (folder->path && folder->lock_fd >= 0) {
        int parent_fd = open(folder->parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int folder_fd = open(folder->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        int code =
            parent_fd < 0 || folder_fd < 0
                ? -errno
                : zinf_run_folder_remove(parent_fd, strrchr(folder->path, '/') + 1, folder_fd);
        if (code)
            zinf_log(ZINF_LOG_WARN, "aio: cannot remove %s: %s", folder->path, strerror(-code));
        if (folder_fd >= 0)
            close(folder_fd);
        if (parent_fd >= 0)
            close(parent_fd);
    }
    if (folder->path && folder->lock_fd >= 0)
        close(folder->lock_fd);
    free(folder->path);
    free(folder->parent);
    *folder = (struct zinf_run_folder){.lock_fd = -1};
}

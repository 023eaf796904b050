/*
 * store_folder: run folders PARENT/zinf-LABEL-PID-N. The lock on its file "lock" says that the
 * owner lives: the kernel drops it with the process, however that ends, so a folder whose lock
 * can be taken is dead and is removed. Processes need no other agreement: "lock" is removed last,
 * and who takes the lock of a file that is no longer there has lost a race and tries the next N.
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

#define LOCK_FILE "lock"
#define MAX_FOLDERS 100000 /* N */

/* zinf-<label>-<pid>-<n>, as made below; nothing else is ever touched. */
bool zinf_run_folder_is(const char *name)
{
    if (strncmp(name, "zinf-", 5))
        return false;
    const char *n = strrchr(name, '-');
    const char *pid = n;
    while (pid > name + 5 && pid[-1] != '-')
        pid--;
    return n[1] && strspn(n + 1, "0123456789") == strlen(n + 1) && pid > name + 6 && pid < n &&
           strspn(pid, "0123456789") == (size_t)(n - pid);
}

/* The other half of a description that was being replaced. */
static void remove_unfinished(int folder_fd)
{
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (!strncmp(entry->d_name, ZINF_STEPS_FILE ".tmp.", strlen(ZINF_STEPS_FILE ".tmp.")))
            unlinkat(folder_fd, entry->d_name, 0);
    if (dir)
        closedir(dir);
}

/* Removes the known files, the lock last, then the folder if nothing else is in it. */
static int remove_contents(int parent_fd, const char *name, int folder_fd)
{
    /* Its description first: without that the folder is one to reclaim. */
    static const char *const names[] = {ZINF_STEPS_FILE, ZINF_COMMIT_FILE, ZINF_STORE_FILE,
                                        LOCK_FILE};
    remove_unfinished(folder_fd);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (unlinkat(folder_fd, names[i], 0) && errno != ENOENT)
            return -errno;
    /* Without its lock an empty folder may be removed by anybody. */
    return unlinkat(parent_fd, name, AT_REMOVEDIR) && errno != ENOENT ? -errno : 0;
}

/* Steps of a run that can go on are not ours to remove. */
static bool is_kept(int folder_fd, const char *parent, const char *name)
{
    struct stat info = {0};
    char size[16];
    struct zinf_steps_plan plan;
    char *path = zinf_path_join(parent, name);
    bool kept = path && !zinf_steps_plan_read(&plan, path) && (plan.ready || plan.path);
    free(path);
    if (!kept)
        return false;
    fstatat(folder_fd, ZINF_STORE_FILE, &info, AT_SYMLINK_NOFOLLOW);
    zinf_log(ZINF_LOG_INFO,
             "aio: %s/%s (%s) holds the steps of another run, which can go on with --resume; "
             "remove it if it is not wanted",
             parent, name, zinf_size_format(size, sizeof size, (uint64_t)info.st_blocks * 512));
    return true;
}

static void reclaim(int parent_fd, const char *parent, const char *name)
{
    struct stat info = {0};
    char size[16];
    int folder_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder_fd < 0)
        return;
    int lock_fd = openat(folder_fd, LOCK_FILE, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (lock_fd < 0) {
        /* Nothing is there yet or any more: goes only if it is empty. */
        if (errno == ENOENT)
            unlinkat(parent_fd, name, AT_REMOVEDIR);
    } else if (!flock(lock_fd, LOCK_EX | LOCK_NB) && !is_kept(folder_fd, parent, name)) {
        fstatat(folder_fd, ZINF_STORE_FILE, &info, AT_SYMLINK_NOFOLLOW);
        int code = remove_contents(parent_fd, name, folder_fd);
        if (!code)
            zinf_log(ZINF_LOG_INFO, "aio: removed %s/%s (%s), whose owner is gone", parent, name,
                     zinf_size_format(size, sizeof size, (uint64_t)info.st_blocks * 512));
        else
            zinf_log(ZINF_LOG_WARN, "aio: the owner of %s/%s is gone, but it cannot be removed: %s",
                     parent, name, strerror(-code));
    }
    if (lock_fd >= 0)
        close(lock_fd);
    close(folder_fd);
}

static void reclaim_all(int parent_fd, const char *parent)
{
    int fd = openat(parent_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        if (fd >= 0)
            close(fd);
        return;
    }
    for (struct dirent *entry; (entry = readdir(dir));)
        if (zinf_run_folder_is(entry->d_name))
            reclaim(parent_fd, parent, entry->d_name);
    closedir(dir);
}

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

#define WAIT_MS 10000 /* what a killed process had under way is through long before */
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
    char *lock = zinf_path_join(path, LOCK_FILE);
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

int zinf_run_folder_adopt(struct zinf_run_folder *folder, const char *parent, const uint8_t run[16],
                          struct zinf_steps_plan *plan)
{
    DIR *dir = opendir(parent);
    int found = 0;
    if (!dir)
        return explain(-errno, parent);
    for (struct dirent *entry; !found && (entry = readdir(dir));) {
        char *path =
            zinf_run_folder_is(entry->d_name) ? zinf_path_join(parent, entry->d_name) : NULL;
        int code = path ? zinf_steps_plan_read(plan, path) : -ENOENT;
        if (code == -ENOTSUP)
            found = code;
        else if (!code && !memcmp(plan->run, run, sizeof plan->run))
            found = adopt_locked(folder, parent, path);
        free(path);
    }
    if (found == 1) /* else taking a new folder does it */
        reclaim_all(dirfd(dir), parent);
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

/* The descriptor of the locked file; -EEXIST: the folder is lost to another process; -errno. */
static int lock_folder(int parent_fd, const char *name)
{
    struct stat info;
    int lock_fd = -1, code = -EEXIST;
    int folder_fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (folder_fd < 0)
        return errno == ENOENT ? -EEXIST : -errno;
    lock_fd = openat(folder_fd, LOCK_FILE, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
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

static int make_folder(int parent_fd, const char *label, char *name, size_t name_bytes)
{
    int code = -EEXIST;
    for (int n = 0; n < MAX_FOLDERS && code == -EEXIST; n++) {
        snprintf(name, name_bytes, "zinf-%s-%ld-%d", label, (long)getpid(), n);
        code = mkdirat(parent_fd, name, 0700) ? -errno : lock_folder(parent_fd, name);
    }
    return code;
}

int zinf_run_folder_take(struct zinf_run_folder *folder, const char *parent, const char *label)
{
    char name[128];
    int code = 0;
    int parent_fd = open(parent, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (parent_fd < 0)
        return explain(-errno, parent);
    folder->lock_fd = -1;
    reclaim_all(parent_fd, parent);
    int lock_fd = make_folder(parent_fd, label, name, sizeof name);
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
        int code = parent_fd < 0 || folder_fd < 0
                       ? -errno
                       : remove_contents(parent_fd, strrchr(folder->path, '/') + 1, folder_fd);
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

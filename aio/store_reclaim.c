/*
 * store_reclaim: run folders of dead processes. One is removed only if it is certain that nobody
 * can go on from it: it is this user's, its lock is free, every file in it is known, and either its
 * store was never to outlive its process or its description says that no step was committed.
 * Whatever cannot be read, or is not understood, stays and is named: a read error is not a proof.
 */
#include "build-config.h"

#include "aio/aio_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define UNFINISHED ZINF_STEPS_FILE ".tmp." /* a description that is being written */

/* ---- names ---- */

/* Whether it is a name zinf-<label>-<pid>-<n>, as store_folder.c makes them. Nothing else is ever
 * touched. */
static bool is_run_folder(const char *name)
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

/* Whether a folder of this name outlives its process. A label has no dot, so that the first one is
 * that of ".steps-". */
bool zinf_run_folder_lasts(const char *name)
{
    const char *dot = strchr(name, '.');
    return is_run_folder(name) && dot && !strncmp(dot, ".steps-", 7);
}

/* ---- files ---- */

static DIR *open_dir(int folder_fd)
{
    int fd = openat(folder_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir && fd >= 0)
        close(fd);
    return dir;
}

static bool is_unfinished(const char *name)
{
    return !strncmp(name, UNFINISHED, strlen(UNFINISHED));
}

static void remove_unfinished(int folder_fd)
{
    DIR *dir = open_dir(folder_fd);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_unfinished(entry->d_name))
            unlinkat(folder_fd, entry->d_name, 0);
    if (dir)
        closedir(dir);
}

int zinf_run_folder_remove(int parent_fd, const char *name, int folder_fd)
{
    /* The description says that all of this may be removed, so it is removed after the rest. */
    static const char *const names[] = {ZINF_COMMIT_FILE, ZINF_STORE_FILE, ZINF_STEPS_FILE,
                                        ZINF_LOCK_FILE};
    remove_unfinished(folder_fd);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (unlinkat(folder_fd, names[i], 0) && errno != ENOENT)
            return -errno;
    /* The folder is empty and has no lock now, so another process may remove it first. */
    return unlinkat(parent_fd, name, AT_REMOVEDIR) && errno != ENOENT ? -errno : 0;
}

/* ---- what a folder is ---- */

struct contents {
    bool steps, commit, data;
    char stranger[256]; /* the name of a file that no store has; "": there is no such file */
};

static int look_into(int folder_fd, struct contents *contents)
{
    DIR *dir = open_dir(folder_fd);
    *contents = (struct contents){0};
    if (!dir)
        return -errno;
    errno = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        const char *name = entry->d_name;
        if (!strcmp(name, ZINF_STEPS_FILE))
            contents->steps = true;
        else if (!strcmp(name, ZINF_COMMIT_FILE))
            contents->commit = true;
        else if (!strcmp(name, ZINF_STORE_FILE))
            contents->data = true;
        else if (strcmp(name, ".") && strcmp(name, "..") && strcmp(name, ZINF_LOCK_FILE) &&
                 !is_unfinished(name))
            memcpy(contents->stranger, name, strlen(name) + 1);
    }
    int code = -errno;
    closedir(dir);
    return code;
}

/* Whether a run can go on from the folder; then it is kept without a warning. */
static bool is_kept(const struct zinf_steps_plan *plan)
{
    return plan->state == ZINF_STEPS_KEPT || (plan->path && plan->state != ZINF_STEPS_GOING);
}

enum verdict {
    ABANDONED,
    KEPT,
    UNCLEAR, /* zinf_error() says why */
};

static enum verdict judge(int folder_fd, const char *path, bool lasts)
{
    struct contents contents;
    struct zinf_steps_plan plan;
    int code = look_into(folder_fd, &contents);
    if (code)
        zinf_fail(code, "%s cannot be listed: %s", path, strerror(-code));
    else if (contents.stranger[0])
        zinf_fail(-EINVAL, "%s holds %s, which is not of a store", path, contents.stranger);
    else if (!lasts && (contents.steps || contents.commit))
        zinf_fail(-EINVAL, "%s holds steps, which its name does not say", path);
    else if (!lasts || (!contents.steps && !contents.commit && !contents.data))
        return ABANDONED; /* or a store with steps that has not taken its space */
    else if (!contents.steps)
        zinf_fail(-EBADMSG, "%s holds %s, but not whose it is", path,
                  contents.commit ? "a commit area" : "data");
    else if (!zinf_steps_plan_read(&plan, path))
        return is_kept(&plan) ? KEPT : ABANDONED;
    return UNCLEAR;
}

/* ---- removing ---- */

static void remove_it(int parent_fd, int folder_fd, const char *path)
{
    struct stat info = {0};
    char size[16];
    fstatat(folder_fd, ZINF_STORE_FILE, &info, AT_SYMLINK_NOFOLLOW);
    int code = zinf_run_folder_remove(parent_fd, strrchr(path, '/') + 1, folder_fd);
    if (!code)
        zinf_log(ZINF_LOG_INFO, "aio: removed %s (%s), whose owner is gone", path,
                 zinf_size_format(size, sizeof size, (uint64_t)info.st_blocks * 512));
    else
        zinf_log(ZINF_LOG_WARN, "aio: the owner of %s is gone, but it cannot be removed: %s", path,
                 strerror(-code));
}

static void say_kept(int folder_fd, const char *path)
{
    struct stat info = {0};
    char size[16];
    fstatat(folder_fd, ZINF_STORE_FILE, &info, AT_SYMLINK_NOFOLLOW);
    zinf_log(ZINF_LOG_INFO,
             "aio: %s (%s) holds the steps of another run, which can go on with --resume; "
             "remove it if it is not wanted",
             path, zinf_size_format(size, sizeof size, (uint64_t)info.st_blocks * 512));
}

/* Removes the folder or says why it is kept. The caller holds its lock. */
static void settle(int parent_fd, int folder_fd, const char *path, bool lasts)
{
    switch (judge(folder_fd, path, lasts)) {
    case ABANDONED:
        remove_it(parent_fd, folder_fd, path);
        break;
    case KEPT:
        say_kept(folder_fd, path);
        break;
    default:
        zinf_log(ZINF_LOG_WARN,
                 "aio: %s: it is kept, since it may hold steps; 'zinf verify' looks into it",
                 zinf_error());
    }
}

static void reclaim(int parent_fd, const char *parent, const char *name)
{
    struct stat info;
    char *path = zinf_path_join(parent, name);
    int folder_fd = !path || zinf_check_owner(path)
                        ? -1 /* the folder is another user's */
                        : openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    int lock_fd = folder_fd < 0 ? -1
                                : openat(folder_fd, ZINF_LOCK_FILE,
                                         O_RDWR | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (folder_fd >= 0 && lock_fd < 0 && errno == ENOENT)
        /* Its owner has not made the lock yet, or has removed it. An empty folder is removed. */
        unlinkat(parent_fd, name, AT_REMOVEDIR);
    /* If the lock file has no link any more, another process has just removed its folder. */
    else if (lock_fd >= 0 && !flock(lock_fd, LOCK_EX | LOCK_NB) && !fstat(lock_fd, &info) &&
             info.st_nlink)
        settle(parent_fd, folder_fd, path, zinf_run_folder_lasts(name));
    if (lock_fd >= 0)
        close(lock_fd);
    if (folder_fd >= 0)
        close(folder_fd);
    free(path);
}

void zinf_run_folders_reclaim(int parent_fd, const char *parent)
{
    DIR *dir = open_dir(parent_fd);
    for (struct dirent *entry; dir && (entry = readdir(dir));)
        if (is_run_folder(entry->d_name))
            reclaim(parent_fd, parent, entry->d_name);
    if (dir)
        closedir(dir);
}

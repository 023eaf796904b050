/* apart: a list of what is read, as device and inode, and a walk of what is going to be written. */
#include "base/apart.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define MOST_LEVELS 32 /* of folders in folders */

struct known {
    dev_t device;
    ino_t inode;
    int origin;
};
struct apart {
    const struct zinf_origins *origins;
    struct known *known;
    size_t n, capacity;
    bool whole;    /* folders are compared too, and what is in them */
    int found;     /* the origin that is in the way; -1: none */
    char at[4096]; /* where it was found */
};

int zinf_origins_add(struct zinf_origins *origins, const char *option, const char *path)
{
    void *grown = realloc(origins->items, (size_t)(origins->n + 1) * sizeof *origins->items);
    if (!grown)
        return zinf_fail(-ENOMEM, "no memory for a list of files");
    origins->items = grown;
    origins->items[origins->n++] = (struct zinf_origin){option, path};
    return 0;
}

void zinf_origins_free(struct zinf_origins *origins)
{
    free(origins->items);
    *origins = (struct zinf_origins){NULL, 0};
}

/* ---- what is read ---- */

static int add(struct apart *a, const struct stat *info, int origin)
{
    if (a->n == a->capacity) {
        size_t capacity = a->capacity ? 2 * a->capacity : 64;
        void *grown = realloc(a->known, capacity * sizeof *a->known);
        if (!grown)
            return zinf_fail(-ENOMEM, "no memory for a list of files");
        a->known = grown;
        a->capacity = capacity;
    }
    a->known[a->n++] = (struct known){info->st_dev, info->st_ino, origin};
    return 0;
}

/* Files that links in the folder lead to as well: the hub's cache keeps its models so. */
static int add_files_of(struct apart *a, int origin)
{
    DIR *dir = opendir(a->origins->items[origin].path);
    struct stat info;
    int code = 0;
    for (struct dirent *entry; dir && !code && (entry = readdir(dir));)
        if (!fstatat(dirfd(dir), entry->d_name, &info, 0) && S_ISREG(info.st_mode))
            code = add(a, &info, origin);
    if (dir)
        closedir(dir);
    return code;
}

static int add_origin(struct apart *a, int origin)
{
    const char *path = a->origins->items[origin].path;
    struct stat info;
    if (!path || !strcmp(path, "-") || stat(path, &info))
        return 0;
    if (!S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode)) /* pipes, devices */
        return 0;
    int code = add(a, &info, origin);
    return code || !S_ISDIR(info.st_mode) ? code : add_files_of(a, origin);
}

/* ---- what is written ---- */

static bool is_read(struct apart *a, const struct stat *info, const char *path)
{
    for (size_t i = 0; i < a->n && a->found < 0; i++)
        if (a->known[i].device == info->st_dev && a->known[i].inode == info->st_ino) {
            a->found = a->known[i].origin;
            snprintf(a->at, sizeof a->at, "%s", path);
        }
    return a->found >= 0;
}

/* What lies in an open folder; links in it are not followed, since nothing writes through them. */
static void walk(struct apart *a, int fd, const char *path, int level)
{
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct stat info;
    for (struct dirent *entry; dir && a->found < 0 && (entry = readdir(dir));) {
        if (!strcmp(entry->d_name, ".") || !strcmp(entry->d_name, "..") ||
            fstatat(dirfd(dir), entry->d_name, &info, AT_SYMLINK_NOFOLLOW))
            continue;
        char *inner = zinf_path_join(path, entry->d_name);
        bool folder = S_ISDIR(info.st_mode);
        if (inner && (!folder || a->whole) && !is_read(a, &info, inner) && folder &&
            level < MOST_LEVELS)
            walk(a,
                 openat(dirfd(dir), entry->d_name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC),
                 inner, level + 1);
        free(inner);
    }
    if (dir)
        closedir(dir);
    else if (fd >= 0)
        close(fd);
}

static int fail_in_the_way(const struct apart *a, const char *option, const char *path)
{
    const struct zinf_origin *origin = &a->origins->items[a->found];
    if (!strcmp(a->at, origin->path))
        return zinf_fail(-EINVAL,
                         "%s %s would be written over %s %s, which this command reads: choose "
                         "another %s",
                         option, path, origin->option, origin->path, option);
    return zinf_fail(-EINVAL,
                     "%s %s would be written over %s %s, which this command reads (%s is the same "
                     "file or folder): choose another %s",
                     option, path, origin->option, origin->path, a->at, option);
}

int zinf_apart_check(const char *option, const char *path, enum zinf_written how,
                     const struct zinf_origins *origins)
{
    struct apart a = {.origins = origins, .whole = how == ZINF_WRITTEN_WHOLE, .found = -1};
    struct stat info;
    int code = 0;
    if (!path || stat(path, &info))
        return 0;
    for (int i = 0; !code && i < origins->n; i++)
        code = add_origin(&a, i);
    if (!code && !is_read(&a, &info, path) && S_ISDIR(info.st_mode) && how != ZINF_WRITTEN_FILE)
        walk(&a, open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), path, 0);
    if (!code && a.found >= 0)
        code = fail_in_the_way(&a, option, path);
    free(a.known);
    return code;
}

int zinf_apart_no_link(const char *path)
{
    struct stat info;
    if (lstat(path, &info) || !S_ISLNK(info.st_mode))
        return 0;
    return zinf_fail(-ELOOP,
                     "%s is a symbolic link, which is not followed: remove it, or put a folder in "
                     "its place",
                     path);
}

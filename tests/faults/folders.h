/*
 * folders: trees of files, copied, emptied and compared without a process of their own: a test of
 * damage does each of it thousands of times.
 */
#ifndef ZINF_TESTS_FAULTS_FOLDERS_H
#define ZINF_TESTS_FAULTS_FOLDERS_H

#include <fcntl.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int folders_remove_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)info;
    return at->level == 0 ? 0 : type == FTW_DP ? rmdir(path) : unlink(path);
}

/* Removes all that is in the folder, and leaves the folder, which stays itself. */
static inline bool folders_empty(const char *path)
{
    return !nftw(path, folders_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

static inline bool folders_copy_file(const char *from, const char *to, const struct stat *info)
{
    char buffer[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    bool good = in >= 0 && out >= 0;
    ssize_t n = 0;
    while (good && (n = read(in, buffer, sizeof buffer)) > 0)
        good = write(out, buffer, (size_t)n) == n;
    good = good && !n && !fchmod(out, info->st_mode & 07777);
    if (in >= 0)
        close(in);
    if (out >= 0)
        close(out);
    return good;
}

static const char *folders_from, *folders_to; /* of the copy that is being made */

static int folders_copy_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    char to[1024];
    (void)at;
    snprintf(to, sizeof to, "%s%s", folders_to, path + strlen(folders_from));
    if (type == FTW_D)
        return mkdir(to, info->st_mode & 07777) && errno != EEXIST;
    return type != FTW_F || !folders_copy_file(path, to, info);
}

/* Adds all that is in one folder to another. */
static inline bool folders_copy(const char *from, const char *to)
{
    folders_from = from;
    folders_to = to;
    return !nftw(from, folders_copy_one, 16, FTW_PHYS);
}

static inline bool folders_same_file(const char *a, const char *b)
{
    char one[65536], other[65536];
    int x = open(a, O_RDONLY), y = open(b, O_RDONLY);
    bool same = x >= 0 && y >= 0;
    ssize_t n = 1, m;
    while (same && n > 0) {
        n = read(x, one, sizeof one);
        m = read(y, other, sizeof other);
        same = n >= 0 && n == m && !memcmp(one, other, (size_t)n);
    }
    if (x >= 0)
        close(x);
    if (y >= 0)
        close(y);
    return same;
}

static int folders_compared, folders_differ;
static char folders_differing[1024]; /* the last that does */

static int folders_compare_one(const char *path, const struct stat *info, int type, struct FTW *at)
{
    char other[1024];
    const char *end = strstr(path, ".safetensors");
    (void)info, (void)at;
    if (type != FTW_F || !end || end[strlen(".safetensors")])
        return 0;
    snprintf(other, sizeof other, "%s%s", folders_to, path + strlen(folders_from));
    folders_compared++;
    if (!folders_same_file(path, other)) {
        folders_differ++;
        snprintf(folders_differing, sizeof folders_differing, "%s", path);
    }
    return 0;
}

/* Every file of tensors in one folder is in the other, with the same bytes, and there is one. */
static inline bool folders_same_tensors(const char *expected, const char *actual)
{
    folders_from = expected;
    folders_to = actual;
    folders_compared = folders_differ = 0;
    nftw(expected, folders_compare_one, 16, FTW_PHYS);
    return folders_compared && !folders_differ;
}

#endif

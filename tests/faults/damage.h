/* damage: ways in which a file that a training left can be other than it was. */
#ifndef ZINF_TESTS_FAULTS_DAMAGE_H
#define ZINF_TESTS_FAULTS_DAMAGE_H

#include "faults.h"
#include "regions.h"

#include <xxhash.h>

enum damage {
    DAMAGE_BIT,
    DAMAGE_PAGE,    /* 4096 other bytes */
    DAMAGE_ZEROS,   /* a page of zeros */
    DAMAGE_OLD,     /* a page as an earlier moment had it: a write that was lost */
    DAMAGE_MOVED,   /* a page in another's place too: a write that went elsewhere */
    DAMAGE_SHORT,   /* cut off */
    DAMAGE_LONG,    /* bytes behind its end */
    DAMAGE_GONE,    /* removed */
    DAMAGE_EARLIER, /* the whole file of an earlier moment */
    DAMAGE_VERSION, /* of a newer version, and sealed as such */
    DAMAGE_OWNER,   /* another user's, or others may write it */
    DAMAGES,
};
static const char *const damage_names[] = {"bit",        "page",    "zeros",  "old page",
                                           "moved page", "shorter", "longer", "removed",
                                           "earlier",    "version", "owner"};

struct victim {
    char path[900], earlier[900]; /* earlier: the same file of an earlier moment */
    uint64_t bytes;
};
static struct victim victims[MAX_FILES];
static int n_victims;
static uint64_t damage_at, damage_n; /* the bytes that were damaged; 0: the file as a whole */

static int damage_see(const char *path, const struct stat *info, int type, struct FTW *at)
{
    (void)at;
    if (type == FTW_F && n_victims < MAX_FILES) {
        struct victim *v = &victims[n_victims++];
        snprintf(v->path, sizeof v->path, "%s", path);
        snprintf(v->earlier, sizeof v->earlier, "%s/earlier%s", work,
                 path + strlen(work) + strlen("/left"));
        v->bytes = (uint64_t)info->st_size;
    }
    return 0;
}

static int damage_compare(const void *a, const void *b)
{
    return strcmp(((const struct victim *)a)->path, ((const struct victim *)b)->path);
}

/* Every file of the training, in an order that does not depend on the file system. */
static inline void damage_list(void)
{
    n_victims = 0;
    nftw(faults_out, damage_see, 8, FTW_PHYS);
    nftw(faults_drive, damage_see, 8, FTW_PHYS);
    qsort(victims, (size_t)n_victims, sizeof *victims, damage_compare);
}

static inline bool damage_move_page(int from, uint64_t from_at, int to, uint64_t to_at)
{
    char old[4096] = {0}, page[4096] = {0};
    ssize_t n = pread(from, page, sizeof page, (off_t)from_at);
    ssize_t there = pread(to, old, sizeof old, (off_t)to_at);
    if (n <= 0 || there <= 0 || !memcmp(page, old, sizeof page))
        return false;
    return pwrite(to, page, (size_t)(n < there ? n : there), (off_t)to_at) > 0;
}

/* Both copies of each block that knows a version. */
static inline bool damage_version(int fd, const struct victim *v)
{
    char block[4096];
    bool done = false;
    const char *name = strrchr(v->path, '/') + 1;
    if (strcmp(name, "steps") && strcmp(name, "commit"))
        return false;
    for (uint64_t at = 0; at + sizeof block <= v->bytes && at < 3 * 65536; at += sizeof block) {
        uint32_t version;
        if (pread(fd, block, sizeof block, (off_t)at) != sizeof block || memcmp(block, "ZINF", 4))
            continue;
        memcpy(&version, block + 8, sizeof version);
        version++;
        memcpy(block + 8, &version, sizeof version);
        uint64_t sum = XXH3_64bits(block, sizeof block - 8);
        memcpy(block + sizeof block - 8, &sum, sizeof sum);
        done = pwrite(fd, block, sizeof block, (off_t)at) == sizeof block;
    }
    return done;
}

static inline bool damage_owner(const struct victim *v)
{
    char folder[900];
    snprintf(folder, sizeof folder, "%s", v->path);
    *strrchr(folder, '/') = 0;
    if (strncmp(v->path, faults_drive, strlen(faults_drive)))
        return false;
    const char *which = faults_draw(2) ? folder : v->path;
    if (geteuid() || faults_draw(2))
        return !chmod(which, which == folder ? 0777 : 0666);
    return !chown(which, 12345, 12345);
}

/* Any byte of the file, or, every other time, one in some part of some packed image in it: parts
 * are drawn alike, since the shortest ones say how to read the others. */
static inline uint64_t damage_draw_byte(const struct victim *v)
{
    const struct image_part *r =
        n_regions && faults_draw(2) ? &regions[faults_draw((uint64_t)n_regions)] : NULL;
    return r ? r->first + faults_draw(r->bytes) : faults_draw(v->bytes);
}

static inline bool damage_bytes(int fd, const struct victim *v, enum damage damage)
{
    char page[4096] = {0};
    uint64_t at = v->bytes ? damage_draw_byte(v) : 0, first = at / 4096 * 4096;
    uint64_t left = v->bytes - first, n = left < sizeof page ? left : sizeof page;
    if (!v->bytes)
        return false;
    damage_at = damage == DAMAGE_BIT ? at : first;
    damage_n = damage == DAMAGE_BIT ? 1 : n;
    if (damage == DAMAGE_BIT) {
        bool read = pread(fd, page, 1, (off_t)at) == 1;
        page[0] ^= (char)(1 << faults_draw(8));
        return read && pwrite(fd, page, 1, (off_t)at) == 1;
    }
    for (uint64_t i = 0; damage == DAMAGE_PAGE && i < n; i++)
        page[i] = (char)faults_draw(256);
    return pwrite(fd, page, n, (off_t)first) == (ssize_t)n;
}

/* False: this kind cannot be done to that file, or would change nothing. */
static inline bool damage_do(const struct victim *v, enum damage damage)
{
    int fd = open(v->path, O_RDWR), earlier = -1;
    struct stat info;
    uint64_t pages = v->bytes / 4096, at = faults_draw(pages) * 4096;
    bool done = false;
    damage_at = damage == DAMAGE_MOVED ? faults_draw(pages) * 4096 : at;
    damage_n = damage == DAMAGE_OLD || damage == DAMAGE_MOVED ? 4096 : 0;
    regions_find(v->path);
    switch (damage) {
    case DAMAGE_OLD:
        earlier = open(v->earlier, O_RDONLY);
        done = earlier >= 0 && damage_move_page(earlier, at, fd, at);
        break;
    case DAMAGE_MOVED:
        done = damage_move_page(fd, at, fd, damage_at);
        break;
    case DAMAGE_SHORT:
        done = v->bytes && !ftruncate(fd, (off_t)faults_draw(v->bytes));
        break;
    case DAMAGE_LONG:
        done = pwrite(fd, "a few bytes more", 16, (off_t)v->bytes) == 16;
        break;
    case DAMAGE_GONE:
        done = !unlink(v->path);
        break;
    case DAMAGE_EARLIER:
        done = !access(v->earlier, F_OK) && !folders_same_file(v->earlier, v->path) &&
               !stat(v->earlier, &info) && folders_copy_file(v->earlier, v->path, &info);
        break;
    case DAMAGE_VERSION:
        done = damage_version(fd, v);
        break;
    case DAMAGE_OWNER:
        done = damage_owner(v);
        break;
    default:
        done = damage_bytes(fd, v, damage);
    }
    if (fd >= 0)
        close(fd);
    if (earlier >= 0)
        close(earlier);
    return done;
}

/* One of those that are in the folder, or any. */
static inline struct victim *damage_draw_victim(const char *part)
{
    struct victim *v = NULL;
    for (int tries = 0; tries < 60 && (!v || !strstr(v->path, part)); tries++)
        v = &victims[faults_draw((uint64_t)n_victims)];
    return v;
}

#endif

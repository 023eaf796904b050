/*
 * aio_store: what the queue and the parts of a store know of each other, for files of aio/ only.
 *
 * An extent is a range of one linear space: first generation 0 of all extents that have two, which
 * is bank 0, then their generation 1, bank 1, then all others. So what a bank is can be said by two
 * numbers, and read without knowing the extents. zinf_store_locate() alone maps that space to
 * paths: stripe number s lies on path pattern[s % pattern_length], so shares are a matter of how
 * often a path occurs in the pattern. A path too slow for one stripe in ZINF_STORE_PATTERN_MAX has
 * none.
 */
#ifndef ZINF_AIO_STORE_H
#define ZINF_AIO_STORE_H

#include "aio/aio_engine.h"

#include <stdatomic.h>

#pragma GCC visibility push(hidden)

#define ZINF_STORE_PATTERN_MAX 64

/* A locked run folder under one path. */
struct zinf_run_folder {
    char *parent; /* the path that the user gave */
    char *path;   /* PARENT/zinf-LABEL-PID-N */
    int lock_fd;
};
/* What each path of a store that outlives its process has beside its file, twice in blocks of
 * their own: whose it is, and how the bytes lie. All are written before space is taken; the first
 * path's leaves ZINF_STEPS_GOING last, returns to it before anything is removed, and is removed
 * last: so a store is there if that block says so, garbage if it does not, and incomplete if only
 * others are found.
 */
#define ZINF_STEPS_FILE "steps"
#define ZINF_COMMIT_FILE "commit" /* the commit area, in the first path's folder */
enum zinf_steps_state {
    ZINF_STEPS_GOING,  /* not ready, or about to be removed: nobody goes on from it */
    ZINF_STEPS_FILLED, /* its space is taken; no step was ever committed */
    ZINF_STEPS_KEPT,   /* it has a commit area, which alone says what was committed */
};
/* magic to run keep their place in every version. */
struct zinf_steps_plan {
    char magic[8];
    uint32_t version;
    uint16_t path, n_paths;
    uint8_t run[16], store[16];
    uint64_t extents; /* a number of the sizes of all extents with two generations */
    uint64_t file_bytes, stripe_bytes;
    uint32_t pattern_length;
    uint32_t state;
    uint16_t pattern[ZINF_STORE_PATTERN_MAX];
    uint64_t bank_bytes;
};
/* 0; -ENOENT: there is no such file; -EBADMSG: it is damaged; -ENOTSUP: of another version, and
 * *plan has the fields up to run; -EPERM: others may write it; or what the reading failed with. */
int zinf_steps_plan_read(struct zinf_steps_plan *plan, const char *folder);
int zinf_steps_plan_write(const struct zinf_steps_plan *plan, const char *folder);
/* Changes with every start of the machine, and so tells a power cut from a kill. */
void zinf_boot_name(uint8_t name[16]);
/* Whether the name is that of one whose store outlives its process. */
bool zinf_run_folder_lasts(const char *name);
/* 0: the file or folder is this user's and nobody else can write to it; -EPERM. Follows no link. */
int zinf_check_owner(const char *path);
/* Takes the folder under parent that run left there, waiting a while for a process that is dying.
 * 1: taken, and *plan is what it says; 0: there is none; -EBUSY: its process lives. What cannot be
 * read is said and left as it is. */
int zinf_run_folder_adopt(struct zinf_run_folder *folder, const char *parent, const uint8_t run[16],
                          struct zinf_steps_plan *plan);
/* Writes the descriptions of a store that is kept once more. */
int zinf_store_mark_again(struct zinf_store *store);
/* An exclusive lock, waited for while a dead process's last writes drain. */
int zinf_lock_wait(int fd, const char *path);
/* Gives the lock back and leaves the folder. */
void zinf_run_folder_leave(struct zinf_run_folder *folder);

/* Makes and locks a new run folder after removing those that are certainly abandoned. */
int zinf_run_folder_take(struct zinf_run_folder *folder, const char *parent, const char *label,
                         bool lasts);
/* store_reclaim.c: removes the folders under parent whose owner is dead and which no step was
 * committed in; whatever is not understood stays and is named. */
void zinf_run_folders_reclaim(int parent_fd, const char *parent);
/* Removes the known files, the lock last, then the folder if nothing else is in it. */
int zinf_run_folder_remove(int parent_fd, const char *name, int folder_fd);
#define ZINF_LOCK_FILE "lock"
/* Removes the files of a store in it, and the folder. */
void zinf_run_folder_drop(struct zinf_run_folder *folder);
/* The one file of a store in its run folder. */
#define ZINF_STORE_FILE "extents"

struct zinf_store_path {
    struct zinf_run_folder folder;
    struct zinf_aio_file *file; /* after zinf_store_allocate */
    uint64_t bytes;             /* of that file */
    uint64_t device;            /* paths with the same st_dev share their free space */
};

struct zinf_store_extent {
    uint64_t start, bytes; /* in the linear space, once allocated: of generation 0, and of each */
    uint64_t first_sum;    /* index of generation 0's first checksum */
    uint8_t n_generations;
    struct zinf_store_span *spans; /* of others' files; NULL: the store's own */
    uint32_t n_spans;
};

struct zinf_store {
    struct zinf_store_path *paths;
    int n_paths;
    uint64_t stripe_bytes;
    double *rates; /* [n_paths] bandwidth, in any unit */
    int (*measure_path)(const char *path, uint64_t bytes, bool allow_memory_fs,
                        struct zinf_aio_bench_rates *rates);
    bool allow_memory_fs;
    bool checksums;
    bool plan_only, allocated;
    uint64_t planned_bytes;
    struct zinf_aio_file **files; /* of others */
    uint32_t n_files;
    uint64_t files_bytes; /* of the extents in them */
    struct zinf_store_extent *extents;
    uint32_t n_extents, extents_capacity;
    /* Where stripes go: see the head of this file. */
    uint16_t pattern[ZINF_STORE_PATTERN_MAX]; /* [pattern_length] path of a stripe */
    uint16_t rank[ZINF_STORE_PATTERN_MAX]; /* [pattern_length] its place among those of that path */
    uint16_t per_path[ZINF_STORE_PATTERN_MAX]; /* [n_paths] stripes of a path in one pattern */
    uint32_t pattern_length;
    uint64_t bank_bytes;    /* of the extents with two generations, one of them */
    _Atomic uint32_t *sums; /* of each page: [2][bank_sums], then the extents with one generation */
    uint64_t bank_sums;     /* pages of a bank, rounded up so that its sums are whole pages too */
    uint64_t n_sums;
    bool named;    /* has a run */
    bool outlives; /* destroy leaves the files */
    bool adopted;  /* the files are those of a dead process */
    bool as_found; /* and so are the extents */
    uint8_t run[16], id[16];
    _Atomic uint64_t failure; /* of a flush, see store_flush.c; 0: none */
};

/* 0 if the request's range lies within an extent of its sound store, which must have its space
 * unless nothing moves. */
int zinf_store_check_range(const struct zinf_aio_request *request, bool moves);
/* The file and offset behind offset of the request's extent and generation, and how many bytes
 * follow there without a break (at most bytes). */
uint64_t zinf_store_locate(const struct zinf_aio_request *request, uint64_t offset, uint64_t bytes,
                           struct zinf_aio_file **file, uint64_t *file_offset);
/* The same of an extent in others' files; makes what a read has left behind their
 * ends zero, of a stretch of the request's memory. */
uint64_t zinf_store_locate_file(const struct zinf_aio_request *request, uint64_t offset,
                                uint64_t bytes, struct zinf_aio_file **file, uint64_t *file_offset);
void zinf_store_clear_ends(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes);
void zinf_store_close_files(struct zinf_store *store);
/* Gives every extent its place: after the last was added. */
void zinf_store_map_extents(struct zinf_store *store);
/* Shares stripes out to the paths, then sets the length of each path's file. */
void zinf_store_map_init(struct zinf_store *store);
/* The same with the sharing that pattern, n stripes long, says. */
void zinf_store_map_restore(struct zinf_store *store, const uint16_t *pattern, uint32_t n);

/* store_outlives.c: takes what a dead process of options->run left, on all paths or on none;
 * instead of filling, opens and locks the files of an adopted store; and says in
 * each folder of a new one whose it is. */
int zinf_store_adopt(struct zinf_store *store, const struct zinf_store_options *options);
int zinf_store_open_adopted(struct zinf_store *store);
/* Before any space is taken: what holds data without a description has lost it. */
int zinf_store_mark_begun(struct zinf_store *store);
int zinf_store_mark(struct zinf_store *store);
/* It has a commit area from now on. */
int zinf_store_mark_kept(struct zinf_store *store);
/* What it has is not to be adopted any more, and goes when it is destroyed. */
void zinf_store_unmark(struct zinf_store *store);

/* 0, or the error of the flush that failed, with its sentence. */
int zinf_store_failure(const struct zinf_store *store);

/* Checks, reserves and writes the space of every path; leaves open files on failure. */
int zinf_store_fill(struct zinf_store *store);
/* Lengthens a path's file, which is open, to the path's bytes. */
int zinf_store_reserve(const struct zinf_store_path *path);
/* Zeros over all that an adopted store holds, as a new one has. */
int zinf_store_zero(struct zinf_store *store);

/* A checksum for every page of ZINF_AIO_ALIGN bytes: what every transfer is a multiple of, so none
 * ever covers a page in part. 0: not known, since a write of it is under way or failed, or because
 * it is what a dead process left; such a page is never believed. */
uint32_t zinf_page_sum(const void *page);
uint64_t zinf_page_hash_avx2(const void *page); /* XXH3-64, compiled for AVX2 */
int zinf_store_sums_init(struct zinf_store *store);
/* All pages hold zeros. */
void zinf_store_sums_zero(struct zinf_store *store);
void zinf_store_sums_forget(const struct zinf_aio_request *request);
/* Of a part of the request. */
void zinf_store_sums_record(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes);
/* True if every page of that part agrees with its memory, else *bad is the offset in the extent of
 * the first that does not. */
bool zinf_store_sums_verify(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes,
                            uint64_t *bad);

#pragma GCC visibility pop
#endif

/*
 * aio_store: what the queue and the parts of a store know of each other. Inside this folder only.
 *
 * Extents are ranges of one linear space. It begins with generation 0 of all extents that have two
 * generations (bank 0), then has their generation 1 (bank 1), then all other extents. So two
 * numbers describe a bank, and it can be read without knowing the extents. zinf_store_locate()
 * alone maps the space to paths: stripe s is on path pattern[s % pattern_length], and a path's
 * share is the number of its places in the pattern. A path too slow for one stripe in
 * ZINF_STORE_PATTERN_MAX gets none.
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
/* The description of a store that outlives its process: which run it belongs to and how its bytes
 * are distributed. Each path has one beside its data file, in two copies in blocks of their own.
 * All are written before any space is taken. The state of the first path's description decides: it
 * leaves ZINF_STEPS_GOING last, returns to it before anything is removed, and is removed last. So
 * the store is complete if that description says so, garbage if it says ZINF_STEPS_GOING, and
 * incomplete if only other paths have one. */
#define ZINF_STEPS_FILE "steps"
#define ZINF_COMMIT_FILE "commit" /* the commit area (aio/commit.h), in the first path's folder */
enum zinf_steps_state {
    ZINF_STEPS_GOING,  /* not complete, or about to be removed: must not be used */
    ZINF_STEPS_FILLED, /* space is taken, but no step was committed */
    ZINF_STEPS_KEPT,   /* there is a commit area, which says what was committed */
};
/* The fields from magic to run are at the same place in every version. */
struct zinf_steps_plan {
    char magic[8];
    uint32_t version;
    uint16_t path, n_paths;
    uint8_t run[16], store[16];
    uint64_t extents; /* hash of the sizes of all extents with two generations */
    uint64_t file_bytes, stripe_bytes;
    uint32_t pattern_length;
    uint32_t state;
    uint16_t pattern[ZINF_STORE_PATTERN_MAX];
    uint64_t bank_bytes;
};
/* Reads a folder's description. 0; -ENOENT: it has none; -EBADMSG: it is damaged; -ENOTSUP: it is
 * of another version, and of *plan only the fields up to run are set; -EPERM: other users may write
 * to it; or the error of the read. */
int zinf_steps_plan_read(struct zinf_steps_plan *plan, const char *folder);
int zinf_steps_plan_write(const struct zinf_steps_plan *plan, const char *folder);
/* The kernel's boot id. It differs after a power cut, but not after a kill. */
void zinf_boot_name(uint8_t name[16]);
/* Whether a folder of that name belongs to a store that outlives its process. */
bool zinf_run_folder_lasts(const char *name);
/* 0 if the file or folder belongs to this user and nobody else can write to it, else -EPERM. A
 * symbolic link is refused. */
int zinf_check_owner(const char *path);
/* Locks and takes over the folder that `run` left under parent; waits a while for a process that is
 * ending. 1: taken, and *plan has its description; 0: there is none; -EBUSY: its process lives. A
 * folder that cannot be read is reported and left as it is. */
int zinf_run_folder_adopt(struct zinf_run_folder *folder, const char *parent, const uint8_t run[16],
                          struct zinf_steps_plan *plan);
/* Writes the descriptions of a kept store again. */
int zinf_store_mark_again(struct zinf_store *store);
/* Takes an exclusive lock, and waits while a dead process's last writes still hold it. */
int zinf_lock_wait(int fd, const char *path);
/* Unlocks the folder and leaves its files. */
void zinf_run_folder_leave(struct zinf_run_folder *folder);

/* Creates and locks a new run folder, after removing abandoned ones. */
int zinf_run_folder_take(struct zinf_run_folder *folder, const char *parent, const char *label,
                         bool lasts);
/* store_reclaim.c: removes folders under parent whose process is dead and in which no step was
 * committed. A folder that is not understood stays, and a message names it. */
void zinf_run_folders_reclaim(int parent_fd, const char *parent);
/* Removes the known files, the lock last, then the folder if it is empty. */
int zinf_run_folder_remove(int parent_fd, const char *name, int folder_fd);
#define ZINF_LOCK_FILE "lock"
/* Removes the store's files in the folder, and the folder. */
void zinf_run_folder_drop(struct zinf_run_folder *folder);
/* the store's data file in a run folder */
#define ZINF_STORE_FILE "extents"

struct zinf_store_path {
    struct zinf_run_folder folder;
    struct zinf_aio_file *file; /* NULL before zinf_store_allocate */
    uint64_t bytes;             /* size of that file */
    uint64_t device;            /* st_dev: paths with the same one share their free space */
};

struct zinf_store_extent {
    /* start of generation 0 in the linear space, known after allocation, and bytes of one
     * generation */
    uint64_t start, bytes;
    uint64_t first_sum; /* index in sums of generation 0's first page */
    uint8_t n_generations;
    /* ranges in files of others; NULL: the extent lies in the store */
    struct zinf_store_span *spans;
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
    struct zinf_aio_file **files; /* [n_files] files of others */
    uint32_t n_files;
    uint64_t files_bytes; /* bytes of the extents in them */
    struct zinf_store_extent *extents;
    uint32_t n_extents, extents_capacity;
    /* Where stripes go: see the head of this file. */
    uint16_t pattern[ZINF_STORE_PATTERN_MAX]; /* [pattern_length] the path of each stripe */
    /* [pattern_length] the number of earlier stripes on the same path */
    uint16_t rank[ZINF_STORE_PATTERN_MAX];
    uint16_t per_path[ZINF_STORE_PATTERN_MAX]; /* [n_paths] stripes of each path in one pattern */
    uint32_t pattern_length;
    uint64_t bank_bytes; /* bytes of a bank */
    /* checksum of each page: [2][bank_sums], then the extents with one generation */
    _Atomic uint32_t *sums;
    uint64_t bank_sums; /* pages of a bank, rounded up so that its checksums fill whole pages */
    uint64_t n_sums;
    bool named;    /* options had a run */
    bool outlives; /* zinf_store_destroy leaves the files */
    bool adopted;  /* the files were left by an earlier process */
    bool as_found; /* options.as_found was set */
    uint8_t run[16], id[16];
    _Atomic uint64_t failure; /* error of a flush that failed, see store_flush.c; 0: none did */
};

/* 0 if the request's range lies within an extent and the store has not failed, else -errno. moves:
 * the store must also be allocated. */
int zinf_store_check_range(const struct zinf_aio_request *request, bool moves);
/* The file and the offset in it that hold byte `offset` of the request's extent and generation.
 * Returns how many of bytes follow there without a break. */
uint64_t zinf_store_locate(const struct zinf_aio_request *request, uint64_t offset, uint64_t bytes,
                           struct zinf_aio_file **file, uint64_t *file_offset);
/* The same for an extent in files of others. zinf_store_clear_ends sets those bytes of the
 * request's memory to zero that lie behind the ends of the files. */
uint64_t zinf_store_locate_file(const struct zinf_aio_request *request, uint64_t offset,
                                uint64_t bytes, struct zinf_aio_file **file, uint64_t *file_offset);
void zinf_store_clear_ends(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes);
void zinf_store_close_files(struct zinf_store *store);
/* Gives every extent its place in the linear space. Call it after the last was added. */
void zinf_store_map_extents(struct zinf_store *store);
/* Distributes stripes over the paths by their rates, and computes the size of each path's file. */
void zinf_store_map_init(struct zinf_store *store);
/* The same with a given pattern of n stripes. */
void zinf_store_map_restore(struct zinf_store *store, const uint16_t *pattern, uint32_t n);

/* store_outlives.c. zinf_store_adopt takes over what a dead process of options->run left, on all
 * paths or on none. zinf_store_open_adopted then opens and locks its files, where a new store would
 * be filled. */
int zinf_store_adopt(struct zinf_store *store, const struct zinf_store_options *options);
int zinf_store_open_adopted(struct zinf_store *store);
/* zinf_store_mark_begun writes the descriptions of a new store, before space is taken, so that no
 * data can be without one. zinf_store_mark says that the space is taken. */
int zinf_store_mark_begun(struct zinf_store *store);
int zinf_store_mark(struct zinf_store *store);
/* Says in the description that the store has a commit area. */
int zinf_store_mark_kept(struct zinf_store *store);
/* Makes the store one that no later process takes over; zinf_store_destroy then removes it. */
void zinf_store_unmark(struct zinf_store *store);

/* 0, or the error of the flush that failed, with its sentence in zinf_error(). */
int zinf_store_failure(const struct zinf_store *store);

/* Checks, reserves and fills the space of every path. Files may stay open after an error. */
int zinf_store_fill(struct zinf_store *store);
/* Extends a path's open file to its planned size. */
int zinf_store_reserve(const struct zinf_store_path *path);
/* Writes zeros over the data of an adopted store. */
int zinf_store_zero(struct zinf_store *store);

/* The checksum of a page of ZINF_AIO_ALIGN bytes. Transfers are multiples of that, so none covers a
 * part of a page. 0 in sums: not known, because a write of the page is under way or failed, or
 * because a dead process left it. Such a page fails every comparison. */
uint32_t zinf_page_sum(const void *page);
uint64_t zinf_page_hash_avx2(const void *page); /* XXH3-64 of a page, compiled for AVX2 */
int zinf_store_sums_init(struct zinf_store *store);
/* Sets all checksums to that of a page of zeros. */
void zinf_store_sums_zero(struct zinf_store *store);
void zinf_store_sums_forget(const struct zinf_aio_request *request);
/* Stores the checksums of a range of the request's memory. */
void zinf_store_sums_record(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes);
/* Compares a range of the request's memory with the stored checksums. False: *bad is the offset in
 * the extent of the first page that differs. */
bool zinf_store_sums_verify(const struct zinf_aio_request *request, uint64_t from, uint64_t bytes,
                            uint64_t *bad);

#pragma GCC visibility pop
#endif

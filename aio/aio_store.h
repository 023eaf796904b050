/*
 * aio_store: what the queue and the parts of a store know of each other, for files of aio/ only.
 *
 * An extent is a range of one linear space; its generations lie there one after the other.
 * zinf_store_locate() alone maps that space to paths:
 * stripe number s lies on path pattern[s % pattern_length], so shares are a matter of how often
 * a path occurs in the pattern. A path too slow for one stripe in ZINF_STORE_PATTERN_MAX has none.
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
/* What each path of a store that outlives its process has beside its file: whose it is, and how
 * the bytes lie. The first path's block is written first, made ready last, made unready before
 * anything is removed, and removed last: so a store is there if that block is ready, garbage if it
 * is not, and incomplete if only others are found. */
#define ZINF_STEPS_FILE "steps"
#define ZINF_COMMIT_FILE "commit" /* the commit area, in the first path's folder */
struct zinf_steps_plan {
    char magic[8];
    uint32_t version;
    uint16_t path, n_paths;
    uint8_t run[16], store[16];
    uint64_t extents; /* a number of all extents' sizes and generations */
    uint64_t file_bytes, stripe_bytes;
    uint32_t pattern_length;
    uint32_t ready;
    uint16_t pattern[ZINF_STORE_PATTERN_MAX];
};
/* 0, -ENOENT: there is none that can be believed; -ENOTSUP: of a newer version. */
int zinf_steps_plan_read(struct zinf_steps_plan *plan, const char *folder);
int zinf_steps_plan_write(const struct zinf_steps_plan *plan, const char *folder);
/* Changes with every start of the machine, and so tells a power cut from a kill. */
void zinf_boot_name(uint8_t name[16]);
/* Whether a folder's name is that of a run folder. */
bool zinf_run_folder_is(const char *name);
/* Takes the folder under parent that run left there, waiting a while for a process that is dying.
 * 1: taken, and *plan is what it says; 0: there is none; -EBUSY: its process lives. */
int zinf_run_folder_adopt(struct zinf_run_folder *folder, const char *parent, const uint8_t run[16],
                          struct zinf_steps_plan *plan);
/* An exclusive lock, waited for while a dead process's last writes drain. */
int zinf_lock_wait(int fd, const char *path);
/* Gives the lock back and leaves the folder. */
void zinf_run_folder_leave(struct zinf_run_folder *folder);

/* Makes and locks a new run folder after removing those whose owner is dead. */
int zinf_run_folder_take(struct zinf_run_folder *folder, const char *parent, const char *label);
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
    uint64_t start, bytes; /* in the linear space: of generation 0, and of each */
    uint64_t first_sum;    /* index of generation 0's first checksum */
    uint8_t n_generations;
};

struct zinf_store {
    struct zinf_store_path *paths;
    int n_paths;
    uint64_t stripe_bytes;
    double *rates; /* [n_paths] bandwidth, in any unit */
    bool measure_paths, allow_memory_fs;
    bool checksums;
    bool plan_only, allocated;
    uint64_t planned_bytes;
    struct zinf_store_extent *extents;
    uint32_t n_extents, extents_capacity;
    /* Where stripes go: see the head of this file. */
    uint16_t pattern[ZINF_STORE_PATTERN_MAX]; /* [pattern_length] path of a stripe */
    uint16_t rank[ZINF_STORE_PATTERN_MAX]; /* [pattern_length] its place among those of that path */
    uint16_t per_path[ZINF_STORE_PATTERN_MAX]; /* [n_paths] stripes of a path in one pattern */
    uint32_t pattern_length;
    _Atomic uint64_t *sums; /* XXH3-64 of each stripe-sized piece of each extent; 0: not known */
    uint64_t n_sums;
    bool named;    /* has a run */
    bool outlives; /* destroy leaves the files */
    bool adopted;  /* the files are those of a dead process */
    uint8_t run[16], id[16];
    _Atomic uint64_t failure; /* of a flush, see store_flush.c; 0: none */
};

/* 0 if the request's range lies within an extent of its allocated, sound store. */
int zinf_store_check_range(const struct zinf_aio_request *request);
/* The file and offset behind offset of the request's extent and generation, and how many bytes
 * follow there without a break (at most bytes). */
uint64_t zinf_store_locate(const struct zinf_aio_request *request, uint64_t offset, uint64_t bytes,
                           struct zinf_aio_file **file, uint64_t *file_offset);
/* Shares stripes out to the paths, then sets the length of each path's file. */
void zinf_store_map_init(struct zinf_store *store);
/* The same with the sharing that pattern, n stripes long, says. */
void zinf_store_map_restore(struct zinf_store *store, const uint16_t *pattern, uint32_t n);

/* store_outlives.c: takes what a dead process of options->run left, on all paths or on none;
 * instead of filling, opens and locks the files of an adopted store; and says in
 * each folder of a new one whose it is. */
int zinf_store_adopt(struct zinf_store *store, const struct zinf_store_options *options);
int zinf_store_open_adopted(struct zinf_store *store);
int zinf_store_mark(struct zinf_store *store);
/* What it has is not to be adopted any more, and goes when it is destroyed. */
void zinf_store_unmark(struct zinf_store *store);

/* 0, or the error of the flush that failed, with its sentence. */
int zinf_store_failure(const struct zinf_store *store);

/* Checks, reserves and writes the space of every path; leaves open files on failure. */
int zinf_store_fill(struct zinf_store *store);

/* Checksums cover pieces of stripe_bytes counted from the start of each generation. A write that
 * covers a piece only in part makes it unknown; an unknown piece is not verified. */
int zinf_store_sums_init(struct zinf_store *store);
void zinf_store_sums_forget(const struct zinf_aio_request *request);
void zinf_store_sums_record(const struct zinf_aio_request *request);
/* True if all known pieces that lie whole in the request's range agree with its memory, else *bad
 * is the offset in the extent of the first that does not. */
bool zinf_store_sums_verify(const struct zinf_aio_request *request, uint64_t *bad);

#pragma GCC visibility pop
#endif

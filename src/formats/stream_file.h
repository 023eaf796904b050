/*
 * stream_file: a large file that is written once, in any order, with bounded memory, and appears
 * whole or not at all. Internal to formats; one thread.
 *
 * The page cache serves as a buffer of fixed size: each block is written back at once, and blocks
 * that have reached the drive are dropped. So writing a model as large as memory neither evicts
 * other data nor ends in an fsync of minutes.
 */
#ifndef ZINF_STREAM_FILE_H
#define ZINF_STREAM_FILE_H

#include "base/base.h"

#define ZINF_STREAM_FILE_IN_FLIGHT 8 /* blocks of 4 MiB that are being written back */

struct zinf_stream_file {
    char *path, *temporary;
    int fd;
    char *block;     /* data that is not yet given to the kernel */
    uint64_t offset; /* of the block's first byte */
    uint64_t filled;
    struct zinf_stream_span {
        uint64_t offset, bytes;
    } in_flight[ZINF_STREAM_FILE_IN_FLIGHT];
    unsigned n_in_flight, oldest;
    /* Consecutive writes form a run. Only the last run grows. */
    struct zinf_stream_run {
        uint64_t offset, bytes, sum; /* sum: known once the run has ended */
    } * runs;
    size_t n_runs, runs_room;
    void *hash; /* XXH3 state of the last run */
};

/* Creates a temporary file beside path and reserves bytes for it. After success, exactly one of
 * publish and discard must be called. */
int zinf_stream_file_init(struct zinf_stream_file *file, const char *path, uint64_t bytes);
int zinf_stream_file_write(struct zinf_stream_file *file, const void *data, uint64_t bytes,
                           uint64_t offset);
/* Writes everything to the drive and closes the file. Reads it back and compares every run:
 * -EBADMSG if one differs. *sum is the XXH3-64 of the whole file. -EINVAL: some byte was written
 * twice. */
int zinf_stream_file_sync(struct zinf_stream_file *file, uint64_t *sum);
/* Renames the file to path. zinf_folder_sync makes that durable. After a failure call discard. */
int zinf_stream_file_publish(struct zinf_stream_file *file);
/* Removes the temporary file. It may also be called on a zeroed struct and after a failed init. */
void zinf_stream_file_discard(struct zinf_stream_file *file);

#endif

/*
 * stream_file: a large file that is written once, in any order, in bounded memory, and appears
 * whole or not at all. Internal to formats; one thread.
 *
 * The page cache is a buffer of fixed size here: writeback starts as soon as a block is written,
 * and blocks that have reached the drive are dropped, so that writing a model as large as memory
 * neither evicts what others need nor stalls for minutes in the final fsync.
 */
#ifndef ZINF_STREAM_FILE_H
#define ZINF_STREAM_FILE_H

#include "base/base.h"

#define ZINF_STREAM_FILE_IN_FLIGHT 8 /* blocks of 4 MiB on their way to the drive */

struct zinf_stream_file {
    char *path, *temporary;
    int fd;
    char *block;     /* what is not yet handed to the kernel */
    uint64_t offset; /* of the block's first byte */
    uint64_t filled;
    struct zinf_stream_span {
        uint64_t offset, bytes;
    } in_flight[ZINF_STREAM_FILE_IN_FLIGHT];
    unsigned n_in_flight, oldest;
    /* Writes that follow each other in the file are a run. Only the last one grows. */
    struct zinf_stream_run {
        uint64_t offset, bytes, sum; /* the sum once it has ended */
    } * runs;
    size_t n_runs, runs_room;
    void *hash; /* running XXH3 of the last run */
};

/* Opens a temporary name beside path and reserves bytes for it. After success, and after
 * zinf_stream_file_sync, exactly one of publish and discard ends the file. */
int zinf_stream_file_init(struct zinf_stream_file *file, const char *path, uint64_t bytes);
int zinf_stream_file_write(struct zinf_stream_file *file, const void *data, uint64_t bytes,
                           uint64_t offset);
/* Everything is on the drive after this, the descriptor and the block are given back. The file was
 * read back and every run compared with what was handed in, -EBADMSG if one differs. *sum is the
 * XXH3-64 of the whole file. No byte may have been written twice: -EINVAL. */
int zinf_stream_file_sync(struct zinf_stream_file *file, uint64_t *sum);
/* Renames to path. The folder is not flushed: zinf_folder_sync does that. On failure discard it. */
int zinf_stream_file_publish(struct zinf_stream_file *file);
/* Removes it; also before a failed init is undone, and on a zeroed struct. */
void zinf_stream_file_discard(struct zinf_stream_file *file);

#endif

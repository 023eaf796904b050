/*
 * deepspeed: what DeepSpeed's engine.save_checkpoint leaves, read as tensors. A checkpoint is a
 * folder named by its tag: of each rank a file with its part of the fp32 masters and moments, and
 * files with the names and shapes of the parameters and with counters. Stages 1 and 2 cut the
 * concatenation of all parameters of a group into as many parts as there are ranks; stage 3 cuts
 * every parameter; a universal checkpoint has a file for each parameter and array. With AutoTP each
 * of the ranks that share matrices has such files of its shards. Here each parameter is one tensor,
 * made of the pieces that the files have; nothing is copied or converted.
 *
 * The files are untrusted pickles (pickle.h). A list promises: the pieces of a tensor lie in their
 * files, follow each other, and are as many elements as its shape says. Internal to formats, but
 * for what formats.h declares.
 */
#ifndef ZINF_DEEPSPEED_H
#define ZINF_DEEPSPEED_H

#include "formats/formats.h"

struct zinf_zip;
struct zinf_tensors;

/* The files of a checkpoint; paths on the heap. */
struct zinf_deepspeed_files {
    char *folder;      /* of the tag */
    char *model;       /* rank 0's names, shapes and counters */
    char **models;     /* [world], of stage 3; else NULL */
    char **shards;     /* [tensor]: the same as model of each rank that shares tensors; or NULL */
    char **optimizers; /* [tensor][world]; NULL: none were saved */
    uint32_t world;    /* ranks that have files, of those that share tensors one */
    uint32_t tensor;   /* ranks that share each matrix (AutoTP); 1: none do */
    bool universal;    /* arrays lie in folder/zero/NAME/ */
};
/* folder: the tag's, or the one above it with a file "latest" or "latest_universal". -ENODATA
 * without a message: it is none of DeepSpeed's. -EINVAL, -ENOTSUP: it is one, and why it cannot be
 * read. */
int zinf_deepspeed_find(struct zinf_deepspeed_files *out, const char *folder);
void zinf_deepspeed_files_fini(struct zinf_deepspeed_files *files);

/* Opens one array of the checkpoint into tensors, which is empty; the list is not sorted. */
int zinf_deepspeed_open(struct zinf_tensors *tensors, const struct zinf_deepspeed_files *files,
                        enum zinf_training_part part);

/* Its counters; tensors, which is empty, keeps the file that has them. */
int zinf_deepspeed_read_state(struct zinf_training_state *out, struct zinf_tensors *tensors,
                              const struct zinf_deepspeed_files *files);

/* What the tensors of a checkpoint stand on; the reader's, from zinf_deepspeed_open to its end. */
struct zinf_deepspeed_table;
void zinf_deepspeed_table_free(struct zinf_deepspeed_table *table); /* NULL is allowed */

#endif

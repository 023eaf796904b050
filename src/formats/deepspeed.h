/*
 * deepspeed: reads what DeepSpeed's engine.save_checkpoint wrote, as tensors. A checkpoint is a
 * folder named by its tag. Each rank has a file with its part of the fp32 masters and moments;
 * other files have the names and shapes of parameters, and counters. Stages 1 and 2 cut the
 * concatenation of a group's parameters into as many parts as there are ranks; stage 3 cuts every
 * parameter; a universal checkpoint has a file for each parameter and array. With AutoTP, each
 * rank that shares matrices has such files of its shards. Here each parameter is one tensor that
 * consists of pieces of files; nothing is copied or converted.
 *
 * The files are untrusted pickles (pickle.h). In an opened list the pieces of a tensor lie within
 * their files, follow each other, and have as many elements as its shape. Internal to formats,
 * except what formats.h declares.
 */
#ifndef ZINF_DEEPSPEED_H
#define ZINF_DEEPSPEED_H

#include "formats/formats.h"

struct zinf_zip;
struct zinf_tensors;

/* The files of a checkpoint. All paths are on the heap. */
struct zinf_deepspeed_files {
    char *folder;      /* named by the tag */
    char *model;       /* rank 0's names, shapes and counters */
    char **models;     /* [world] the same of each rank in stage 3, or NULL */
    char **shards;     /* [tensor] the same as `model` of each rank that shares matrices, or NULL */
    char **optimizers; /* [tensor][world]; NULL: no optimizer was saved */
    uint32_t world;    /* ranks that have files; ranks that share matrices count as one */
    uint32_t tensor;   /* ranks that share each matrix (AutoTP) */
    bool universal;    /* arrays are in folder/zero/NAME/ */
};
/* Finds the files. folder: named by the tag, or its parent with a file "latest" or
 * "latest_universal". -ENODATA without a message: it is no checkpoint of DeepSpeed. -EINVAL,
 * -ENOTSUP: it is one, but cannot be read. */
int zinf_deepspeed_find(struct zinf_deepspeed_files *out, const char *folder);
void zinf_deepspeed_files_fini(struct zinf_deepspeed_files *files);

/* Opens one array of the checkpoint into an empty list, which is not sorted. */
int zinf_deepspeed_open(struct zinf_tensors *tensors, const struct zinf_deepspeed_files *files,
                        enum zinf_training_part part);

/* Reads the counters. tensors, an empty list, keeps the file that they are in. */
int zinf_deepspeed_read_state(struct zinf_training_state *out, struct zinf_tensors *tensors,
                              const struct zinf_deepspeed_files *files);

/* The parameters of an opened checkpoint, which the list of tensors refers to; owned by the list.
 */
struct zinf_deepspeed_table;
void zinf_deepspeed_table_free(struct zinf_deepspeed_table *table); /* NULL is allowed */

#endif

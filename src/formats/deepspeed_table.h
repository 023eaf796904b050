/*
 * deepspeed_table: the parameters of a checkpoint of DeepSpeed's while they are put together. Each
 * has the pieces of files that its elements are, in their order. Where several ranks share matrices
 * (AutoTP), each rank's files are read into a table of its shards, and the tables are joined.
 * Internal to formats.
 */
#ifndef ZINF_DEEPSPEED_TABLE_H
#define ZINF_DEEPSPEED_TABLE_H

#include "formats/deepspeed.h"
#include "formats/pickle.h"
#include "formats/tensors_view.h"

struct parameter {
    char *name;
    int rank;
    uint64_t shape[ZINF_TENSOR_MAX_RANK], n_elems;
    uint64_t n_found; /* elements of its pieces */
    uint64_t padding; /* elements behind it in a group of stages 1 and 2 */
    enum zinf_file_dtype dtype;
    bool trained;
    struct zinf_tensor_piece *pieces;
    uint32_t n_pieces, capacity;
    struct zinf_tensor_view view;
};
struct zinf_deepspeed_table {
    struct parameter *all; /* in the order of the model's file, which is the optimizer's */
    uint64_t n, capacity;
    struct parameter **by_name; /* [n] */
};

/* The next piece of the parameter. -EINVAL: that is more than its shape has, or of another type.
 * path: of the file, for the message. */
int deepspeed_add_piece(struct parameter *p, const struct zinf_tensor_piece *piece,
                        enum zinf_file_dtype dtype, const char *path);

/* What a checkpoint says of how parameters are cut: names, in order. All others are cut by rows. */
struct deepspeed_cuts {
    char **whole;   /* [n_whole]: each rank has all of it */
    char **columns; /* [n_columns] */
    size_t n_whole, n_columns;
};
/* From universal_checkpoint_info of the pickle. -ENOTSUP: it has none, or a parameter is cut in
 * another way; path names the file. Free cuts in any case. */
int deepspeed_read_cuts(struct deepspeed_cuts *out, const struct zinf_pickle *pickle,
                        const char *path);
void deepspeed_cuts_free(struct deepspeed_cuts *cuts);

/* Tables [n] of the shards, each complete, become the first: whole parameters. -EINVAL: they are
 * not of one model. */
int deepspeed_join(struct zinf_deepspeed_table *const *tables, uint32_t n,
                   const struct deepspeed_cuts *cuts, const char *folder);

#endif

/*
 * deepspeed_table: the parameters of a DeepSpeed checkpoint while they are assembled. Each is a
 * list of pieces of files, in order. With AutoTP, each rank's files are read into a table of
 * shards, and the tables are then joined. Internal to formats.
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
    uint64_t n_found; /* elements of its pieces so far */
    uint64_t padding; /* padding elements behind it in a group of stages 1 and 2 */
    enum zinf_file_dtype dtype;
    bool trained;
    struct zinf_tensor_piece *pieces;
    uint32_t n_pieces, capacity;
    struct zinf_tensor_view view;
};
struct zinf_deepspeed_table {
    struct parameter *all; /* in the order of the model's file, which is also the optimizer's */
    uint64_t n, capacity;
    struct parameter **by_name; /* [n] */
};

/* Appends a piece to the parameter. -EINVAL: it has more elements than the shape, or another type.
 * path: the file, for the message. */
int deepspeed_add_piece(struct parameter *p, const struct zinf_tensor_piece *piece,
                        enum zinf_file_dtype dtype, const char *path);

/* How AutoTP has cut the parameters: sorted lists of names. All others are cut by rows. */
struct deepspeed_cuts {
    char **whole;   /* [n_whole] not cut: each rank has all of it */
    char **columns; /* [n_columns] cut by columns */
    size_t n_whole, n_columns;
};
/* Reads the cuts from universal_checkpoint_info of the pickle. -ENOTSUP: there is none, or a
 * parameter is cut otherwise; path names the file. Free *out even after an error. */
int deepspeed_read_cuts(struct deepspeed_cuts *out, const struct zinf_pickle *pickle,
                        const char *path);
void deepspeed_cuts_free(struct deepspeed_cuts *cuts);

/* Joins n complete tables of shards into the first, whose parameters are whole then. -EINVAL: they
 * are not of one model. */
int deepspeed_join(struct zinf_deepspeed_table *const *tables, uint32_t n,
                   const struct deepspeed_cuts *cuts, const char *folder);

#endif

/*
 * tensors: between the tensors of files and the flat buffers of units. Files have the family's
 * names, shapes and order of rows; units have [out][in] with rows in the order that kernels want.
 * The row maps of a graph's pieces say which is which; here they are applied, both ways, for
 * weights, gradients and optimizer state alike. Nothing is opened: callers read and write.
 *
 * A tensor of the file is held by one unit or by several, in any order of rows. All of it has one
 * initialisation, so that fresh weights do not depend on who holds what. Of a tensor with slabs all
 * of this holds of each slab, and units have slabs in order.
 */
#ifndef ZINF_TENSORS_H
#define ZINF_TENSORS_H

#include "model/graph.h"

/* Where a piece is. */
struct zinf_file_part {
    uint32_t unit;
    const struct zinf_tensor *tensor;
    const struct zinf_piece *piece;
};
/* A tensor of the file and who holds it; name and shape are those of parts[0].piece. */
struct zinf_file_tensor {
    const char *name; /* without the family's prefix */
    bool plain_name;  /* and it never has one */
    int rank;
    uint64_t shape[2]; /* shape[1] is 1 where rank is 1 */
    uint64_t n_slabs;  /* that have this rank and shape; 1: it is the tensor's own */
    bool transposed;
    const struct zinf_file_part *parts; /* in order of units */
    uint32_t n_parts;
};
/* The shape that the file has of the tensor; its rank. */
int zinf_piece_shape(const struct zinf_piece *piece, uint64_t shape[3]);
static inline uint64_t zinf_file_tensor_elems(const struct zinf_file_tensor *t)
{
    return t->n_slabs * t->shape[0] * t->shape[1];
}
/* All tensors of the file, in the order in which units first hold them. */
struct zinf_file_map {
    struct zinf_file_tensor *tensors;
    uint32_t n_tensors;
    struct zinf_file_part *parts; /* of all tensors */
    uint32_t *by_name;            /* numbers of tensors, sorted by name */
    uint64_t scratch_elems;       /* that the calls below need; more makes them faster */
    /* Of a transposed tensor in several units: what its stream is to have in the scratch's place,
     * which stays as it is while units are asked for. 0: there is none. */
    uint64_t band_elems;
};
/* The graph's; borrows from it. -EINVAL where a row of a file's tensor or of a unit's is in no
 * piece, or in two, and where parts of one are not initialised alike. */
int zinf_file_map_create(struct zinf_file_map **out, const struct zinf_graph *graph);
void zinf_file_map_destroy(struct zinf_file_map *map);
/* By the name without prefix, or NULL. */
const struct zinf_file_tensor *zinf_file_map_find(const struct zinf_file_map *map,
                                                  const char *name);
/* How many parts are of the same slab as one of them, from it on. */
uint32_t zinf_file_slab_parts(const struct zinf_file_tensor *tensor, uint32_t first);
/* Names in a file whose tensors have this prefix, into buffer (returned). */
const char *zinf_piece_name(const struct zinf_piece *piece, const char *prefix, char *buffer,
                            size_t buffer_bytes);
const char *zinf_file_tensor_name(const struct zinf_file_tensor *tensor, const char *prefix,
                                  char *buffer, size_t buffer_bytes);

/* Memory of the caller for transposition. */
struct zinf_scratch {
    float *base;
    uint64_t elems; /* at least the map's scratch_elems */
};

/* Fills a unit's flat buffer, gaps zero; images are others' matter. read gives elements [first,
 * first + n) of the file's tensor that the piece is of, in the file's order, as fp32. */
struct zinf_gather {
    int (*read)(void *context, const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                uint64_t first, uint64_t n, float *out);
    void *context;
    struct zinf_scratch scratch;
};
int zinf_unit_gather(const struct zinf_unit *unit, const struct zinf_gather *gather, float *flat);
/* One piece's rows of its tensor, which begins at rows. */
int zinf_piece_gather(const struct zinf_tensor *tensor, const struct zinf_piece *piece,
                      const struct zinf_gather *gather, float *rows);

/* Streams a tensor of the file, whole, in its order. flat gives a unit's flat buffer, which is used
 * until the next call; of a tensor in several units one may be asked for several times;
 * write takes n elements that follow those before. */
struct zinf_stream {
    int (*flat)(void *context, uint32_t unit, const float **flat);
    int (*write)(void *context, const float *values, uint64_t n);
    void *context;
    struct zinf_scratch scratch;
};
int zinf_file_tensor_stream(const struct zinf_file_tensor *tensor,
                            const struct zinf_stream *stream);

/* One number a row, for state that has no more: between the piece's place in a unit's tensor
 * (unit: of the tensor's first row) and the file's tensor (file: of its first row). */
void zinf_piece_rows_to_file(const struct zinf_piece *piece, const float *unit, float *file);
void zinf_piece_rows_to_unit(const struct zinf_piece *piece, const float *file, float *unit);

#endif

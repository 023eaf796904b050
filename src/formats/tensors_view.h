/*
 * tensors_view: tensors whose elements do not follow each other in the file, such as transposed
 * ones, slices, and every n-th row. Internal to formats.
 */
#ifndef ZINF_TENSORS_VIEW_H
#define ZINF_TENSORS_VIEW_H

#include "formats/formats.h"

struct zinf_gguf_tensor;
/* Consecutive elements in one of the reader's files. */
struct zinf_tensor_piece {
    uint32_t file;
    uint64_t file_offset, n_elems;
};
/* Element (i0, i1, ...) is sum of i * stride elements behind the tensor's first one. Dimensions of
 * size 1 are left out, and dimensions are merged where possible. If pieces is set, the elements are
 * those of the pieces in order; if packed is set, they are packed (gguf.h). Then rank is 0. */
struct zinf_tensor_view {
    int rank;
    uint64_t shape[ZINF_TENSOR_MAX_RANK], stride[ZINF_TENSOR_MAX_RANK];
    const struct zinf_tensor_piece *pieces; /* NULL: it has none */
    uint32_t n_pieces;
    const struct zinf_gguf_tensor *packed; /* NULL: it is not */
};

/* Makes the view of a tensor that has elements. */
void zinf_tensor_view_init(struct zinf_tensor_view *out, int rank, const uint64_t *shape,
                           const uint64_t *stride);
bool zinf_tensor_view_is_contiguous(const struct zinf_tensor_view *view);
/* Number of elements from the first to the last that the view uses; false: more than 2^64. */
bool zinf_tensor_view_reach(const struct zinf_tensor_view *view, uint64_t *elems);

/* Reads elements [first, first + n) of a tensor, in its order. info->view must be set and have no
 * pieces. */
int zinf_tensor_view_read(int fd, const char *path, const struct zinf_tensor_info *info,
                          uint64_t first, uint64_t n, void *out);

#endif

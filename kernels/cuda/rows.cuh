/* rows: where the rows of a norm lie. A row of the matrix may hold several heads, each a row of the
 * norm; a plain matrix is one head a row. */
#ifndef ZINF_CUDA_ROWS_CUH
#define ZINF_CUDA_ROWS_CUH

#include "kernels/check.h"
#include "kernels/cuda/kernel.cuh"

struct row_split {
    int64_t heads, cols, ld; /* heads of cols elements in rows of ld */
};

static inline row_split row_split_of(const struct zinf_norm *z)
{
    row_split split = {norm_heads(z), z->cols, norm_ld(z)};
    return split;
}

/* The first element of a row of the norm; a division is dear and most matrices are plain. */
DEVICE int64_t row_at(const row_split &s, int64_t row)
{
    return s.heads == 1 ? row * s.ld : row / s.heads * s.ld + row % s.heads * s.cols;
}

#endif

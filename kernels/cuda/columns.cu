/*
 * columns: sums down the columns of a matrix, for bias gradients and for dw and db of a norm.
 * Deterministic without atomics: rows are cut into slabs by the shape alone, a block sums 256
 * columns of a slab (8 threads down, added in order), and a second kernel adds the slabs in order.
 */
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/workspace.h"

enum { LANES = 32, DOWN = 8, FINISH_THREADS = 128 };

template <class T> struct columns_args {
    const T *dy, *x;          /* [rows][cols] as split has them; x only for a norm */
    const float *mean, *rstd; /* [rows]; x NULL: none */
    float *sums;              /* [slabs][n_sums][cols] */
    row_split split;
    int64_t rows, cols, slab_rows;
    int n_sums; /* 1 or 2 */
    bool vector, centred;
};

/* The threads above the first hand their sums over in shared memory, in order. */
DEVICE void add_down(float (&sum)[EACH], float *shared)
{
    float *mine = shared + (threadIdx.y * LANES + threadIdx.x) * EACH;
    sync_block();
    UNROLL for (int k = 0; k < EACH; k++)
        mine[k] = sum[k];
    sync_block();
    if (threadIdx.y == 0)
        for (int down = 1; down < DOWN; down++)
            UNROLL for (int k = 0; k < EACH; k++)
                sum[k] += mine[down * LANES * EACH + k];
}

/* sums[slab][0] is dy's sum, or for a norm that of dy * normal; [1] then is dy's. */
template <class T, bool NORM> KERNEL(LANES *DOWN) columns_kernel(columns_args<T> a)
{
    __shared__ float shared[DOWN * LANES * EACH];
    int64_t col = ((int64_t)blockIdx.x * LANES + threadIdx.x) * EACH, left = a.cols - col;
    int64_t row = (int64_t)blockIdx.y * a.slab_rows, end = row + a.slab_rows;
    float sum[EACH] = {}, scaled[EACH] = {}, dy[EACH], x[EACH];
    if (end > a.rows)
        end = a.rows;
    for (row += threadIdx.y; row < end && left > 0; row += DOWN) {
        const int64_t at = row_at(a.split, row) + col;
        load_each(dy, a.dy + at, left, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
            sum[k] += dy[k];
        if (NORM) {
            float mean = a.centred ? a.mean[row] : 0.0f, rstd = a.rstd[row];
            load_each(x, a.x + at, left, a.vector);
            UNROLL for (int k = 0; k < EACH; k++)
                scaled[k] += dy[k] * ((x[k] - mean) * rstd);
        }
    }
    float *to = a.sums + (int64_t)blockIdx.y * a.n_sums * a.cols + col;
    if (NORM) {
        add_down(scaled, shared);
        if (threadIdx.y == 0)
            store_each(to, scaled, left, false);
        to += a.cols;
    }
    if (!NORM || a.n_sums > 1) {
        add_down(sum, shared);
        if (threadIdx.y == 0)
            store_each(to, sum, left, false);
    }
}

struct finish_args {
    const float *sums; /* [slabs][n_sums][cols] */
    float *to[2];      /* [cols] each */
    int64_t cols, slabs;
    int n_sums;
};

KERNEL(FINISH_THREADS) finish_kernel(finish_args a)
{
    int64_t col = (int64_t)blockIdx.x * FINISH_THREADS + threadIdx.x;
    if (col >= a.cols)
        return;
    const float *from = a.sums + (int64_t)blockIdx.y * a.cols + col;
    const int64_t pitch = a.n_sums * a.cols;
    float sum = 0.0f;
    UNROLL_16 for (int64_t slab = 0; slab < a.slabs; slab++)
        sum += from[slab * pitch];
    float *to = blockIdx.y ? a.to[1] : a.to[0];
    to[col] = sum;
}

template <class T, bool NORM>
static cudaError_t columns_typed(cudaStream_t stream, columns_args<T> args, float *first,
                                 float *second)
{
    int64_t slabs = column_slabs(args.rows);
    args.slab_rows = (args.rows + slabs - 1) / slabs;
    args.vector = args.cols % EACH == 0 && args.split.ld % EACH == 0 && aligned16(args.dy) &&
                  aligned16(args.x);
    dim3 grid(blocks_for((uint64_t)args.cols, LANES * EACH), (unsigned)slabs);
    cudaError_t error =
        launch(known<columns_kernel<T, NORM>>(), grid, dim3(LANES, DOWN), 0, stream, args);
    if (error != cudaSuccess)
        return error;
    finish_args finish = {args.sums, {first, second}, args.cols, slabs, args.n_sums};
    return launch(known<finish_kernel>(),
                  dim3(blocks_for((uint64_t)args.cols, FINISH_THREADS), (unsigned)args.n_sums),
                  dim3(FINISH_THREADS), 0, stream, finish);
}

template <class T>
static cudaError_t column_sum_typed(cudaStream_t stream, void *workspace, float *sum, const void *x,
                                    int64_t rows, int64_t cols)
{
    columns_args<T> args = {};
    args.dy = (const T *)x;
    args.sums = (float *)workspace;
    args.split = row_split{1, cols, cols};
    args.rows = rows;
    args.cols = cols;
    args.n_sums = 1;
    return columns_typed<T, false>(stream, args, sum, NULL);
}

cudaError_t launch_column_sum(cudaStream_t stream, void *workspace, float *sum, const void *x,
                              enum zinf_dtype dtype, int64_t rows, int64_t cols)
{
    BY_DTYPE(dtype, return column_sum_typed<T>(stream, workspace, sum, x, rows, cols));
}

template <class T>
static cudaError_t norm_columns_typed(cudaStream_t stream, void *workspace,
                                      const struct zinf_norm *z)
{
    columns_args<T> args = {};
    args.dy = (const T *)z->dy;
    args.x = (const T *)z->x;
    args.mean = z->mean;
    args.rstd = z->rstd;
    args.sums = (float *)workspace;
    args.split = row_split_of(z);
    args.rows = z->rows * args.split.heads;
    args.cols = z->cols;
    args.n_sums = z->db ? 2 : 1;
    args.centred = z->kind == ZINF_NORM_LAYER;
    return columns_typed<T, true>(stream, args, z->dw, z->db);
}

cudaError_t launch_norm_columns(cudaStream_t stream, void *workspace, const struct zinf_norm *args)
{
    BY_DTYPE(args->dtype, return norm_columns_typed<T>(stream, workspace, args));
}

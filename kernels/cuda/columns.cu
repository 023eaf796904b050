/*
 * columns: sums down the columns of a matrix, for bias gradients, with the matrix itself where that
 * is the gradient of an activation, and for dw and db of a norm.
 * Deterministic without atomics: rows are cut into slabs by the shape alone, a block sums 256
 * columns of a slab (8 threads down, added in order), and a second kernel adds the slabs: up to 8
 * threads a column, whose sums are added in order.
 */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/workspace.h"

enum { LANES = 32, DOWN = 8 };

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
    column_parts parts;
    int down; /* threads of a column */
};

KERNEL(LANES *DOWN) finish_kernel(finish_args a)
{
    __shared__ float shared[DOWN][LANES];
    const column_parts &p = a.parts;
    const int64_t col = (int64_t)blockIdx.x * LANES + threadIdx.x;
    const float *from = p.sums + (int64_t)blockIdx.y * p.cols + col;
    const int64_t pitch = p.n_sums * p.cols;
    float sum = 0.0f;
    if (col < p.cols)
        UNROLL_4 for (int slab = threadIdx.y; slab < (int)p.slabs; slab += a.down)
            sum += from[slab * pitch];
    shared[threadIdx.y][threadIdx.x] = sum;
    sync_block();
    if (threadIdx.y || col >= p.cols)
        return;
    for (int down = 1; down < a.down; down++)
        sum += shared[down][threadIdx.x];
    float *to = blockIdx.y ? p.to[1] : p.to[0];
    to[col] = sum;
}

cudaError_t launch_finish_columns(cudaStream_t stream, const struct column_parts *parts)
{
    const int64_t wanted = parts->slabs / 4; /* few loads a thread are no work for it */
    const finish_args args = {*parts, wanted < 1 ? 1 : wanted < DOWN ? (int)wanted : DOWN};
    return launch(known<finish_kernel>(),
                  dim3(blocks_for((uint64_t)parts->cols, LANES), (unsigned)parts->n_sums),
                  dim3(LANES, (unsigned)args.down), 0, stream, args);
}

static dim3 columns_grid(int64_t rows, int64_t cols)
{
    return dim3(blocks_for((uint64_t)cols, LANES * EACH), (unsigned)column_slabs(rows));
}

static int64_t slab_rows_of(int64_t rows)
{
    const int64_t slabs = column_slabs(rows);
    return (rows + slabs - 1) / slabs;
}

template <class T, bool NORM>
static cudaError_t columns_typed(cudaStream_t stream, columns_args<T> args, float *first,
                                 float *second)
{
    args.slab_rows = slab_rows_of(args.rows);
    args.vector = args.cols % EACH == 0 && args.split.ld % EACH == 0 && aligned16(args.dy) &&
                  aligned16(args.x);
    cudaError_t error = launch(known<columns_kernel<T, NORM>>(),
                               columns_grid(args.rows, args.cols), dim3(LANES, DOWN), 0, stream,
                               args);
    const struct column_parts parts = {
        args.sums, {first, second}, args.cols, column_slabs(args.rows), args.n_sums};
    return error == cudaSuccess ? launch_finish_columns(stream, &parts) : error;
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

/* ---- of an activation's gradient ---- */

template <class T> struct activation_columns_args {
    const T *x, *dy;
    T *dx, *y;   /* y or NULL */
    float *sums; /* [slabs][cols] */
    int64_t rows, cols, slab_rows;
    bool vector;
};

/* x as a number of the type that it is stored in. */
template <class T> DEVICE float as_stored(float x, const T *)
{
    T stored;
    from_number(stored, x);
    return to_float(stored);
}
DEVICE float as_stored(float x, const float *)
{
    return x;
}

/* In the order of columns_kernel. */
template <class T, int KIND>
KERNEL(LANES *DOWN) activation_columns_kernel(activation_columns_args<T> a)
{
    __shared__ float shared[DOWN * LANES * EACH];
    int64_t col = ((int64_t)blockIdx.x * LANES + threadIdx.x) * EACH, left = a.cols - col;
    int64_t row = (int64_t)blockIdx.y * a.slab_rows, end = row + a.slab_rows;
    float sum[EACH] = {}, x[EACH], dx[EACH];
    if (end > a.rows)
        end = a.rows;
    for (row += threadIdx.y; row < end && left > 0; row += DOWN) {
        const int64_t at = row * a.cols + col;
        load_each(x, a.x + at, left, a.vector);
        load_each(dx, a.dy + at, left, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
        {
            float slope, value = activate<KIND, sizeof(T) == 2>(x[k], slope);
            dx[k] = product(dx[k], slope); /* what is added is what is stored */
            x[k] = value;
        }
        store_each(a.dx + at, dx, left, a.vector);
        if (a.y)
            store_each(a.y + at, x, left, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
            sum[k] += as_stored(dx[k], a.dx);
    }
    add_down(sum, shared);
    if (threadIdx.y == 0)
        store_each(a.sums + (int64_t)blockIdx.y * a.cols + col, sum, left, false);
}

template <class T>
static kernel_of<activation_columns_args<T>> kernel_for(enum zinf_activation kind)
{
    if (kind == ZINF_ACTIVATION_GELU_TANH)
        return known<activation_columns_kernel<T, ZINF_ACTIVATION_GELU_TANH>>();
    if (kind == ZINF_ACTIVATION_GELU_ERF)
        return known<activation_columns_kernel<T, ZINF_ACTIVATION_GELU_ERF>>();
    return known<activation_columns_kernel<T, ZINF_ACTIVATION_RELU>>();
}

template <class T>
static cudaError_t activation_sums_typed(cudaStream_t stream, void *workspace,
                                         const struct zinf_activation_sums *z)
{
    const bool vector = z->cols % EACH == 0 && aligned16(z->x) && aligned16(z->dy) &&
                        aligned16(z->dx) && aligned16(z->y_out);
    const activation_columns_args<T> args = {(const T *)z->x,
                                             (const T *)z->dy,
                                             (T *)z->dx,
                                             (T *)z->y_out,
                                             (float *)workspace,
                                             z->rows,
                                             z->cols,
                                             slab_rows_of(z->rows),
                                             vector};
    cudaError_t error = launch(kernel_for<T>(z->kind), columns_grid(z->rows, z->cols),
                               dim3(LANES, DOWN), 0, stream, args);
    const struct column_parts parts = {
        args.sums, {z->sums, NULL}, z->cols, column_slabs(z->rows), 1};
    return error == cudaSuccess ? launch_finish_columns(stream, &parts) : error;
}

cudaError_t launch_activation_sums(cudaStream_t stream, void *workspace,
                                   const struct zinf_activation_sums *z)
{
    const bool at_once = z->kind == ZINF_ACTIVATION_GELU_TANH ||
                         z->kind == ZINF_ACTIVATION_GELU_ERF || z->kind == ZINF_ACTIVATION_RELU;
    if (at_once)
        BY_DTYPE(z->dtype, return activation_sums_typed<T>(stream, workspace, z));
    const uint64_t n = (uint64_t)(z->rows * z->cols);
    cudaError_t error = n ? launch_activation_backward(stream, z->kind, z->dtype, z->dx, z->dy,
                                                       z->x, z->y_out, n)
                          : cudaSuccess;
    return error == cudaSuccess
               ? launch_column_sum(stream, workspace, z->sums, z->dx, z->dtype, z->rows, z->cols)
               : error;
}

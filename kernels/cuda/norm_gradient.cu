/*
 * norm_gradient: a norm's dx, dw and db in one pass over x and dy. A block has a slab of rows, by
 * their number alone. A thread has 8 columns of each row of the slab, or two times 8: it adds to
 * its sums of dw and db while the row is at hand for dx, so that no row is read again. A second
 * kernel adds the slabs' sums in an order that the shape alone decides (columns.cu). dx may be dy:
 * the thread that writes an element has read it before.
 */
#include "kernels/cuda/rows.cuh"
#include "kernels/cuda/workspace.h"

enum { GRADIENT_THREADS = NORM_GRADIENT_COLUMNS / (2 * EACH) };
enum { GRADIENT_WARPS = GRADIENT_THREADS / 32 };
/* Rows of more columns have two pieces a thread: what a warp does for a row's sums is then half as
 * much of its work. */
enum { ONE_PIECE = 1024 };

template <class T> struct gradient_args {
    const T *x, *w, *dy;
    T *dx;
    const float *mean, *rstd;
    float *sums; /* [slabs][n_sums][cols]: dw, then db */
    row_split split;
    int64_t rows, slab_rows;
    int cols, threads, n_sums;
    float w_add;
    bool centred, add;
};

/* A thread's columns of the row that it is at, and its sums over rows. */
template <int PIECES> struct gradient_columns {
    float normal[PIECES][EACH], g[PIECES][EACH]; /* (x - mean) rstd, dy w */
    float w[PIECES][EACH], dw[PIECES][EACH], db[PIECES][EACH];
};

/* The first of a thread's columns of a piece; beyond the last: it has none. */
template <class T> DEVICE int column_of(const gradient_args<T> &a, int piece)
{
    return (piece * a.threads + (int)threadIdx.x) * EACH;
}

template <class T, int PIECES>
DEVICE void start_columns(const gradient_args<T> &a, gradient_columns<PIECES> &s)
{
    UNROLL for (int i = 0; i < PIECES; i++)
    {
        UNROLL for (int k = 0; k < EACH; k++)
            s.w[i][k] = s.dw[i][k] = s.db[i][k] = s.normal[i][k] = s.g[i][k] = 0.0f;
        if (column_of(a, i) < a.cols)
            load_vector(s.w[i], a.w + column_of(a, i));
        UNROLL for (int k = 0; k < EACH; k++)
            s.w[i][k] += a.w_add;
    }
}

/* Reads a row, whose first element is at `at`; adds to the sums over rows and, of this thread's
 * columns, g and g normal to sum_g and sum_gx. */
template <class T, int PIECES>
DEVICE void load_row(const gradient_args<T> &a, gradient_columns<PIECES> &s, int64_t at, float mean,
                     float rstd, float &sum_g, float &sum_gx)
{
    UNROLL for (int i = 0; i < PIECES; i++)
        if (column_of(a, i) < a.cols) {
            load_vector(s.normal[i], a.x + at + column_of(a, i));
            load_vector(s.g[i], a.dy + at + column_of(a, i));
            UNROLL for (int k = 0; k < EACH; k++)
            {
                s.normal[i][k] = (s.normal[i][k] - mean) * rstd;
                s.dw[i][k] += s.g[i][k] * s.normal[i][k];
                s.db[i][k] += s.g[i][k];
                s.g[i][k] *= s.w[i][k];
                sum_g += s.g[i][k];
                sum_gx += s.g[i][k] * s.normal[i][k];
            }
        }
}

/* dx (+)= rstd (g - mean_g - normal mean_gx) */
template <class T, int PIECES>
DEVICE void store_row(const gradient_args<T> &a, const gradient_columns<PIECES> &s, int64_t at,
                      float rstd, float mean_g, float mean_gx)
{
    UNROLL for (int i = 0; i < PIECES; i++)
        if (column_of(a, i) < a.cols) {
            T *to = a.dx + at + column_of(a, i);
            float dx[EACH] = {};
            if (a.add)
                load_vector(dx, to);
            UNROLL for (int k = 0; k < EACH; k++)
                dx[k] += rstd * (s.g[i][k] - mean_g - s.normal[i][k] * mean_gx);
            store_vector(to, dx);
        }
}

/* The block's sums of a and b, the same in every thread. Two places take turns: a thread may still
 * read this call's place while others write the next call's. No thread writes this one again before
 * all have passed the next call's barrier, and so have read it. */
DEVICE void sum_both(float &a, float &b, words2 *place, int warps)
{
    float both[2] = {warp_sum(a), warp_sum(b)};
    if (threadIdx.x % 32 == 0)
        memcpy(&place[threadIdx.x / 32], both, sizeof both);
    sync_block();
    a = b = 0.0f;
    for (int warp = 0; warp < warps; warp++) {
        load_pair(both, (const float *)(const void *)&place[warp]);
        a += both[0];
        b += both[1];
    }
}

template <class T, int PIECES> KERNEL(GRADIENT_THREADS) norm_gradient_kernel(gradient_args<T> a)
{
    __shared__ words2 places[2][GRADIENT_WARPS];
    gradient_columns<PIECES> s;
    start_columns(a, s);
    int64_t row = (int64_t)blockIdx.x * a.slab_rows, end = row + a.slab_rows;
    if (end > a.rows)
        end = a.rows;
    const float share = 1.0f / (float)a.cols;
    for (int turn = 0; row < end; row++, turn ^= 1) {
        const int64_t at = row_at(a.split, row);
        const float mean = a.centred ? a.mean[row] : 0.0f, rstd = a.rstd[row];
        float sum_g = 0.0f, sum_gx = 0.0f;
        load_row(a, s, at, mean, rstd, sum_g, sum_gx);
        sum_both(sum_g, sum_gx, places[turn], a.threads / 32);
        store_row(a, s, at, rstd, a.centred ? sum_g * share : 0.0f, sum_gx * share);
    }
    float *to = a.sums + (int64_t)blockIdx.x * a.n_sums * a.cols;
    UNROLL for (int i = 0; i < PIECES; i++)
        if (column_of(a, i) < a.cols) {
            store_vector(to + column_of(a, i), s.dw[i]);
            if (a.n_sums > 1)
                store_vector(to + a.cols + column_of(a, i), s.db[i]);
        }
}

bool norm_gradient_serves(const struct zinf_norm *z)
{
    return z->w && z->dw && z->rows && z->cols >= 32 * EACH && z->cols <= NORM_GRADIENT_COLUMNS &&
           z->cols % EACH == 0 && norm_ld(z) % EACH == 0 && aligned16(z->x) && aligned16(z->w) &&
           aligned16(z->dy) && aligned16(z->dx);
}

template <class T>
static cudaError_t norm_gradient_typed(cudaStream_t stream, void *workspace,
                                       const struct zinf_norm *z)
{
    gradient_args<T> a = {};
    a.x = (const T *)z->x;
    a.w = (const T *)z->w;
    a.dy = (const T *)z->dy;
    a.dx = (T *)z->dx;
    a.mean = z->mean;
    a.rstd = z->rstd;
    a.sums = (float *)workspace;
    a.split = row_split_of(z);
    a.rows = z->rows * a.split.heads;
    a.cols = (int)z->cols;
    a.n_sums = z->db ? 2 : 1;
    a.w_add = norm_w_add(z);
    a.centred = z->kind == ZINF_NORM_LAYER;
    a.add = z->beta_dx != 0.0f;
    const int64_t slabs = norm_gradient_slabs(a.rows);
    a.slab_rows = (a.rows + slabs - 1) / slabs;
    const bool twice = a.cols > ONE_PIECE;
    const unsigned pieces = blocks_for((uint64_t)a.cols, twice ? 2 * EACH : EACH);
    a.threads = (int)(pieces + 31) / 32 * 32;
    cudaError_t error = launch(
        twice ? known<norm_gradient_kernel<T, 2>>() : known<norm_gradient_kernel<T, 1>>(),
        dim3((unsigned)slabs), dim3((unsigned)a.threads), 0, stream, a);
    const struct column_parts parts = {a.sums, {z->dw, z->db}, a.cols, slabs, a.n_sums};
    return error == cudaSuccess ? launch_finish_columns(stream, &parts) : error;
}

cudaError_t launch_norm_gradient(cudaStream_t stream, void *workspace, const struct zinf_norm *args)
{
    BY_DTYPE(args->dtype, return norm_gradient_typed<T>(stream, workspace, args));
}

/*
 * norm: LayerNorm and RMSNorm for rows of any size and alignment, which norm_rows.cu and
 * norm_gradient.cu do not serve. Each row is the work of one warp; if a row of the matrix holds
 * several heads, each head is a row here. A warp reads its row three times, for the mean, for the
 * squared distances from it and for the result; the second and third time the row comes from the
 * first-level cache. One pass for both statistics would lose the variance where the mean is large.
 * dw and db are sums of columns (columns.cu), which are made before dx may overwrite dy.
 */
#include "kernels/cuda/rows.cuh"

enum { ROWS = 8 }; /* warps of a block, each with a row */

template <class T> struct norm_args {
    const T *x, *w, *b, *dy;
    T *y, *dx;
    float *mean, *rstd;
    row_split split;
    int64_t rows, cols;
    float eps, w_add;
    bool centred, add, vector;
};

DEVICE int64_t norm_row()
{
    return (int64_t)blockIdx.x * ROWS + threadIdx.y;
}

/* The sum over a row of x - mean, or of its square. */
template <class T>
DEVICE float row_sum(const norm_args<T> &a, const T *x, float mean, bool squares)
{
    float sum = 0.0f;
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += 32 * EACH) {
        float v[EACH];
        load_each(v, x + c, a.cols - c, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
        {
            float distance = c + k < a.cols ? v[k] - mean : 0.0f;
            sum += squares ? distance * distance : distance;
        }
    }
    return warp_sum(sum);
}

/* w_add + w of 8 columns from column c on. */
template <class T> DEVICE void load_weights(const norm_args<T> &a, int64_t c, float (&w)[EACH])
{
    UNROLL for (int k = 0; k < EACH; k++)
        w[k] = 0.0f;
    if (a.w)
        load_each(w, a.w + c, a.cols - c, a.vector);
    if (a.w_add != 0.0f)
        UNROLL for (int k = 0; k < EACH; k++)
            w[k] += a.w_add;
}

template <class T> KERNEL(32 * ROWS) norm_forward_kernel(norm_args<T> a)
{
    int64_t row = norm_row();
    if (row >= a.rows) /* true for all lanes of a warp or for none */
        return;
    const int64_t at = row_at(a.split, row);
    const T *x = a.x + at;
    float mean = a.centred ? row_sum(a, x, 0.0f, false) / (float)a.cols : 0.0f;
    if (a.centred) /* the mean of what is left corrects the rounding of a long sum */
        mean += row_sum(a, x, mean, false) / (float)a.cols;
    float rstd = 1.0f / sqrtf(row_sum(a, x, mean, true) / (float)a.cols + a.eps);
    if (threadIdx.x == 0) {
        if (a.centred)
            a.mean[row] = mean;
        a.rstd[row] = rstd;
    }
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += 32 * EACH) {
        float v[EACH], w[EACH], b[EACH] = {};
        load_each(v, x + c, a.cols - c, a.vector);
        load_weights(a, c, w);
        if (a.b)
            load_each(b, a.b + c, a.cols - c, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
            v[k] = (v[k] - mean) * rstd * w[k] + b[k];
        store_each(a.y + at + c, v, a.cols - c, a.vector);
    }
}

/* normal = (x - mean) rstd and g = dy w of 8 columns. Both are 0 behind the last column. */
template <class T>
DEVICE void gradient_chunk(const norm_args<T> &a, int64_t at, int64_t c, float mean, float rstd,
                           float (&normal)[EACH], float (&g)[EACH])
{
    float w[EACH];
    load_each(normal, a.x + at + c, a.cols - c, a.vector);
    load_each(g, a.dy + at + c, a.cols - c, a.vector);
    load_weights(a, c, w);
    UNROLL for (int k = 0; k < EACH; k++)
    {
        normal[k] = c + k < a.cols ? (normal[k] - mean) * rstd : 0.0f;
        g[k] *= w[k];
    }
}

/* dx = rstd (g - mean(g) - normal mean(g normal)), or this is added to dx. RMSNorm has no mean(g).
 */
template <class T> KERNEL(32 * ROWS) norm_dx_kernel(norm_args<T> a)
{
    int64_t row = norm_row();
    if (row >= a.rows)
        return;
    const int64_t at = row_at(a.split, row);
    float mean = a.centred ? a.mean[row] : 0.0f, rstd = a.rstd[row];
    float sum_g = 0.0f, sum_gx = 0.0f, normal[EACH], g[EACH];
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += 32 * EACH) {
        gradient_chunk(a, at, c, mean, rstd, normal, g);
        UNROLL for (int k = 0; k < EACH; k++)
        {
            sum_g += g[k];
            sum_gx += g[k] * normal[k];
        }
    }
    float mean_g = a.centred ? warp_sum(sum_g) / (float)a.cols : 0.0f;
    float mean_gx = warp_sum(sum_gx) / (float)a.cols;
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += 32 * EACH) {
        T *to = a.dx + at + c;
        float dx[EACH] = {};
        gradient_chunk(a, at, c, mean, rstd, normal, g);
        if (a.add)
            load_each(dx, to, a.cols - c, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
            dx[k] += rstd * (g[k] - mean_g - normal[k] * mean_gx);
        store_each(to, dx, a.cols - c, a.vector);
    }
}

template <class T> static norm_args<T> norm_args_of(const struct zinf_norm *z, bool backward)
{
    norm_args<T> a = {};
    a.x = (const T *)z->x;
    a.w = (const T *)z->w;
    a.b = (const T *)z->b;
    a.mean = z->mean;
    a.rstd = z->rstd;
    a.split = row_split_of(z);
    a.rows = z->rows * a.split.heads;
    a.cols = z->cols;
    a.eps = z->eps;
    a.w_add = norm_w_add(z);
    a.centred = z->kind == ZINF_NORM_LAYER;
    a.add = z->beta_dx != 0.0f;
    a.y = (T *)(backward ? NULL : z->y);
    a.dy = (const T *)(backward ? z->dy : NULL);
    a.dx = (T *)(backward ? z->dx : NULL);
    a.vector = z->cols % EACH == 0 && a.split.ld % EACH == 0 && aligned16(a.x) && aligned16(a.w) &&
               aligned16(a.b) && aligned16(a.y) && aligned16(a.dy) && aligned16(a.dx);
    return a;
}

static dim3 norm_grid(const struct zinf_norm *z)
{
    return dim3(blocks_for((uint64_t)(z->rows * norm_heads(z)), ROWS));
}

cudaError_t launch_norm_forward(cudaStream_t stream, const struct zinf_norm *z)
{
    BY_DTYPE(z->dtype, return launch(known<norm_forward_kernel<T>>(), norm_grid(z), dim3(32, ROWS),
                                     0, stream, norm_args_of<T>(z, false)));
}

cudaError_t launch_norm_dx(cudaStream_t stream, const struct zinf_norm *z)
{
    BY_DTYPE(z->dtype, return launch(known<norm_dx_kernel<T>>(), norm_grid(z), dim3(32, ROWS), 0,
                                     stream, norm_args_of<T>(z, true)));
}

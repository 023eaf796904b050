/*
 * route: which experts a row chooses, a warp a row, and the rows that chose one, a block each:
 * gathered, weighed, scattered. No two blocks write the same row, so nothing depends on their
 * order.
 */
#include "kernels/cuda/kernel.cuh"

enum { ROUTE_THREADS = 32, ROWS_THREADS = 256, ROWS_WARPS = ROWS_THREADS / 32 };

struct route_args {
    struct zinf_route z;
};

/* The softmax of a row's logits; each thread looks at its own columns alone until a barrier. */
DEVICE void row_softmax(const struct zinf_route &z, const float *logits, float *p)
{
    float top = -INFINITY, sum = 0.0f;
    for (int e = threadIdx.x; e < (int)z.cols; e += ROUTE_THREADS)
        top = logits[e] > top ? logits[e] : top;
    top = warp_max(top);
    for (int e = threadIdx.x; e < (int)z.cols; e += ROUTE_THREADS)
        sum += p[e] = expf(logits[e] - top);
    sum = warp_sum(sum);
    for (int e = threadIdx.x; e < (int)z.cols; e += ROUTE_THREADS)
        p[e] /= sum;
}

/* A row's probabilities. */
DEVICE void row_scores(const struct zinf_route &z, const float *logits, float *p)
{
    if (!z.sigmoid) {
        row_softmax(z, logits, p);
        return;
    }
    for (int e = threadIdx.x; e < (int)z.cols; e += ROUTE_THREADS)
        p[e] = 1.0f / (1.0f + expf(-logits[e]));
}

/* Of the columns that no weight is chosen for the one with the largest c, of equal ones the first.
 * What is not a number counts as less than any. */
DEVICE int largest(const float *c, const float *weights, int n)
{
    float best = -INFINITY, at = (float)ZINF_ROUTE_MAX_COLS;
    for (int e = threadIdx.x; e < n; e += ROUTE_THREADS) {
        const float value = c[e] == c[e] ? c[e] : -INFINITY;
        if (weights[e] < 0.0f && (at == (float)ZINF_ROUTE_MAX_COLS || value > best)) {
            best = value;
            at = (float)e;
        }
    }
    for (int mask = 16; mask; mask /= 2) {
        const float other = shuffle_xor(best, mask), other_at = shuffle_xor(at, mask);
        const bool none = at == (float)ZINF_ROUTE_MAX_COLS;
        const bool some = other_at != (float)ZINF_ROUTE_MAX_COLS;
        if (some && (none || other > best || (other == best && other_at < at))) {
            best = other;
            at = other_at;
        }
    }
    return (int)at;
}

/* Leaves of what is compared what is in the groups that the row chooses: a thread a group. sums and
 * marks have room for all groups. */
DEVICE void keep_groups(const struct zinf_route &z, float *c, float *sums, float *marks)
{
    const int groups = (int)z.n_groups, size = (int)z.cols / groups;
    for (int g = threadIdx.x; g < groups; g += ROUTE_THREADS) {
        float best = -INFINITY, next = -INFINITY;
        for (int e = g * size; e < (g + 1) * size; e++) {
            next = c[e] > best ? best : c[e] > next ? c[e] : next;
            best = c[e] > best ? c[e] : best;
        }
        sums[g] = z.group_top == 2 ? best + next : best;
        marks[g] = -1.0f;
    }
    sync_block();
    for (int i = 0; i < (int)z.n_groups_chosen; i++) {
        const int g = largest(sums, marks, groups);
        if (g % ROUTE_THREADS == (int)threadIdx.x)
            marks[g] = 1.0f;
    }
    sync_block();
    for (int e = threadIdx.x; e < (int)z.cols; e += ROUTE_THREADS)
        c[e] = marks[e / size] < 0.0f ? -INFINITY : c[e];
}

/* Probabilities wait where the weights will be, so that shared memory holds two arrays of columns,
 * as much as there may be. */
KERNEL(ROUTE_THREADS) route_kernel(route_args a)
{
    __shared__ float weights[ZINF_ROUTE_MAX_COLS], c[ZINF_ROUTE_MAX_COLS];
    const int64_t row = blockIdx.x * a.z.cols;
    const float scale = a.z.scale != 0.0f ? a.z.scale : 1.0f;
    float *p = a.z.weights + row, sum = 0.0f;
    row_scores(a.z, a.z.logits + row, p);
    for (int e = threadIdx.x; e < (int)a.z.cols; e += ROUTE_THREADS)
        c[e] = a.z.bias ? p[e] + ZINF_ROUTE_BIAS(a.z.bias, a.z.cols, e) : p[e];
    sync_block();
    if (a.z.n_groups) {
        keep_groups(a.z, c, weights, weights + ZINF_ROUTE_MAX_GROUPS);
        sync_block();
    }
    for (int e = threadIdx.x; e < (int)a.z.cols; e += ROUTE_THREADS)
        weights[e] = -1.0f;
    for (int i = 0; i < (int)a.z.n_chosen; i++) {
        const int e = largest(c, weights, (int)a.z.cols);
        sum += p[e];
        if (e % ROUTE_THREADS == (int)threadIdx.x)
            weights[e] = p[e];
    }
    sync_block();
    for (int e = threadIdx.x; e < (int)a.z.cols; e += ROUTE_THREADS)
        if (weights[e] < 0.0f)
            p[e] = weights[e];
        else
            p[e] = scale * (a.z.normalised ? weights[e] / sum : weights[e]);
}

KERNEL(ROUTE_THREADS) route_backward_kernel(route_args a)
{
    __shared__ float p[ZINF_ROUTE_MAX_COLS];
    const int64_t row = blockIdx.x * a.z.cols;
    const float *weights = a.z.weights + row, *d_weights = a.z.d_weights + row;
    float sum = 0.0f, inner = 0.0f, total = 0.0f;
    const float scale = a.z.scale != 0.0f ? a.z.scale : 1.0f;
    row_scores(a.z, a.z.logits + row, p);
    for (int e = threadIdx.x; e < (int)a.z.cols; e += ROUTE_THREADS)
        if (!(weights[e] < 0.0f)) {
            sum += p[e];
            inner += d_weights[e] * weights[e];
        }
    sum = warp_sum(sum);
    inner = warp_sum(inner);
    for (int pass = 0; pass < 2; pass++) {
        for (int e = threadIdx.x; e < (int)a.z.cols; e += ROUTE_THREADS) {
            float g = a.z.d_probs ? a.z.d_probs[e] : 0.0f;
            if (!(weights[e] < 0.0f))
                g += a.z.normalised ? (scale * d_weights[e] - inner) / sum : scale * d_weights[e];
            if (pass)
                a.z.d_logits[row + e] = a.z.sigmoid ? p[e] * (1.0f - p[e]) * g : p[e] * (g - total);
            else
                total += p[e] * g;
        }
        total = pass ? total : warp_sum(total);
    }
}

cudaError_t launch_route(cudaStream_t stream, const struct zinf_route *z, bool backward)
{
    route_args a = {*z};
    dim3 grid = grid_of_rows(z->rows), block(ROUTE_THREADS);
    return backward ? launch(known<route_backward_kernel>(), grid, block, 0, stream, a)
                    : launch(known<route_kernel>(), grid, block, 0, stream, a);
}

/* ---- balance ---- */

struct shares_args {
    struct zinf_shares z;
};

/* A warp a sample, row after row. */
KERNEL(ROUTE_THREADS) shares_kernel(shares_args a)
{
    __shared__ float p[ZINF_ROUTE_MAX_COLS];
    const int cols = (int)a.z.cols;
    float *counts = a.z.shares + blockIdx.x * 2 * a.z.cols, *sums = counts + cols;
    struct zinf_route row = {};
    row.cols = cols;
    for (int e = threadIdx.x; e < 2 * cols; e += ROUTE_THREADS)
        counts[e] = a.z.before ? a.z.before[blockIdx.x * 2 * a.z.cols + e] : 0.0f;
    sync_block();
    for (int64_t i = 0; i < a.z.seq; i++) {
        const int64_t at = (blockIdx.x * a.z.seq + i) * cols;
        row_softmax(row, a.z.logits + at, p);
        for (int e = threadIdx.x; e < cols; e += ROUTE_THREADS) {
            sums[e] += p[e];
            counts[e] += a.z.weights[at + e] < 0.0f ? 0.0f : 1.0f;
        }
    }
}

cudaError_t launch_shares(cudaStream_t stream, const struct zinf_shares *z)
{
    shares_args a = {*z};
    return launch(known<shares_kernel>(), grid_of_rows(z->samples), dim3(ROUTE_THREADS), 0, stream,
                  a);
}

struct balance_args {
    struct zinf_balance z;
};

KERNEL(ROUTE_THREADS) balance_kernel(balance_args a)
{
    const int64_t cols = a.z.cols, at = blockIdx.x * 2 * cols;
    float loss = 0.0f;
    for (int64_t e = threadIdx.x; e < cols; e += ROUTE_THREADS) {
        float count = 0.0f;
        for (int64_t s = 0; s < a.z.samples; s++)
            count += a.z.shares[s * 2 * cols + e];
        loss += count * a.z.shares[at + cols + e];
        if (a.z.d_shares) {
            a.z.d_shares[at + e] = 0.0f;
            a.z.d_shares[at + cols + e] = a.z.factor * count;
        }
    }
    loss = warp_sum(loss);
    if (threadIdx.x == 0 && a.z.loss)
        a.z.loss[blockIdx.x] = a.z.factor * loss;
}

cudaError_t launch_balance(cudaStream_t stream, const struct zinf_balance *z)
{
    balance_args a = {*z};
    return launch(known<balance_kernel>(), grid_of_rows(z->samples), dim3(ROUTE_THREADS), 0, stream,
                  a);
}

/* ---- chosen rows ---- */

/* The number of the block's row. */
DEVICE int64_t row_of(const int32_t *rows)
{
    return rows ? (int64_t)rows[blockIdx.x] : (int64_t)blockIdx.x;
}

template <class X, class Y> struct rows_args {
    const int32_t *rows;
    const X *x;
    Y *y;
    const float *scale;
    int64_t cols, scale_ld;
    bool vector;
};

template <class X, class Y> KERNEL(ROWS_THREADS) gather_kernel(rows_args<X, Y> a)
{
    const int64_t to = blockIdx.x * a.cols, from = row_of(a.rows) * a.cols;
    float x[EACH];
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += ROWS_THREADS * EACH) {
        load_each(x, a.x + from + c, a.cols - c, a.vector);
        store_each(a.y + to + c, x, a.cols - c, a.vector);
    }
}

template <class X, class Y> KERNEL(ROWS_THREADS) scatter_kernel(rows_args<X, Y> a)
{
    const int64_t row = row_of(a.rows), from = blockIdx.x * a.cols, to = row * a.cols;
    const float scale = a.scale ? a.scale[row * a.scale_ld] : 1.0f;
    float x[EACH], y[EACH];
    for (int64_t c = threadIdx.x * EACH; c < a.cols; c += ROWS_THREADS * EACH) {
        load_each(x, a.x + from + c, a.cols - c, a.vector);
        load_each(y, a.y + to + c, a.cols - c, a.vector);
        UNROLL for (int k = 0; k < EACH; k++) y[k] += scale * x[k];
        store_each(a.y + to + c, y, a.cols - c, a.vector);
    }
}

template <class X, class Y> static rows_args<X, Y> rows_args_of(const struct zinf_rows *z)
{
    rows_args<X, Y> a = {};
    a.rows = z->rows;
    a.x = (const X *)z->x;
    a.y = (Y *)z->y;
    a.scale = z->scale;
    a.cols = z->cols;
    a.scale_ld = z->scale_ld;
    a.vector = z->cols % EACH == 0 && aligned16(a.x) && aligned16(a.y);
    return a;
}

template <class X, class Y>
static cudaError_t scatter_typed(cudaStream_t stream, const struct zinf_rows *z)
{
    return launch(known<scatter_kernel<X, Y>>(), grid_of_rows(z->n), dim3(ROWS_THREADS), 0, stream,
                  rows_args_of<X, Y>(z));
}

cudaError_t launch_gather(cudaStream_t stream, const struct zinf_rows *z)
{
    BY_DTYPE(z->x_dtype, return launch(known<gather_kernel<T, T>>(), grid_of_rows(z->n),
                                       dim3(ROWS_THREADS), 0, stream, rows_args_of<T, T>(z)));
}

cudaError_t launch_scatter(cudaStream_t stream, const struct zinf_rows *z)
{
    if (z->y_dtype == ZINF_DTYPE_F32)
        BY_DTYPE(z->x_dtype, return scatter_typed<T, float>(stream, z));
    BY_DTYPE(z->x_dtype, return scatter_typed<T, T>(stream, z));
}

template <class T> struct weigh_args {
    const int32_t *rows;
    T *a, *b;
    const float *weights;
    float *d_weights;
    int64_t cols, ld;
    bool vector;
};

template <class T> KERNEL(ROWS_THREADS) weigh_kernel(weigh_args<T> z)
{
    __shared__ float shared[ROWS_WARPS];
    const int64_t at = row_of(z.rows) * z.ld, row = blockIdx.x * z.cols;
    const float weight = z.weights[at];
    float a[EACH], b[EACH], sum = 0.0f;
    for (int64_t c = threadIdx.x * EACH; c < z.cols; c += ROWS_THREADS * EACH) {
        load_each(a, z.a + row + c, z.cols - c, z.vector);
        load_each(b, z.b + row + c, z.cols - c, z.vector);
        UNROLL for (int k = 0; k < EACH; k++)
        {
            sum += a[k] * b[k];
            a[k] *= weight;
            b[k] *= weight;
        }
        store_each(z.a + row + c, a, z.cols - c, z.vector);
        store_each(z.b + row + c, b, z.cols - c, z.vector);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = sum;
    sync_block();
    if (threadIdx.x || !z.d_weights)
        return;
    for (int k = 1; k < ROWS_WARPS; k++)
        sum += shared[k];
    z.d_weights[at] = sum;
}

template <class T> static cudaError_t weigh_typed(cudaStream_t stream, const struct zinf_weigh *z)
{
    weigh_args<T> a = {};
    a.rows = z->rows;
    a.a = (T *)z->a;
    a.b = (T *)z->b;
    a.weights = z->weights;
    a.d_weights = z->d_weights;
    a.cols = z->cols;
    a.ld = z->ld;
    a.vector = z->cols % EACH == 0 && aligned16(a.a) && aligned16(a.b);
    return launch(known<weigh_kernel<T>>(), grid_of_rows(z->n), dim3(ROWS_THREADS), 0, stream, a);
}

cudaError_t launch_weigh(cudaStream_t stream, const struct zinf_weigh *z)
{
    BY_DTYPE(z->dtype, return weigh_typed<T>(stream, z));
}

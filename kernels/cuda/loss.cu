/*
 * loss: softmax cross-entropy over tiles of the vocabulary, a block a row, of no more warps than
 * a tile's columns keep busy. A tile is read once: each thread keeps the largest of its columns so
 * far and the sum of exp(column - largest), which it scales when a larger column comes. Only
 * max_z_loss reads the tile again, to find where the largest is.
 *
 * Exponentials are the special unit's, exp(x) = 2^(x log2(e)), to 2.4e-7 + 7e-8 |x| of the result.
 */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/softcap.cuh"

enum { LOSS_THREADS = 256, LOSS_WARPS = LOSS_THREADS / 32 };

struct loss_args {
    struct zinf_cross_entropy z;
    float inverse_cap;
    int cols, threads; /* of a row's tile and of its block */
    int whole;         /* columns that are taken 8 at a time */
};

/* A tile of so many columns takes so many of a row's threads: few enough that what they do once is
 * little beside the columns of each, 32 or more. */
static int loss_threads(const struct zinf_cross_entropy *z)
{
    const int64_t columns = 4 * 32 * EACH, warps = (z->cols + columns - 1) / columns;
    return 32 * (warps < 1 ? 1 : warps < LOSS_WARPS ? (int)warps : LOSS_WARPS);
}

static loss_args loss_args_of(const struct zinf_cross_entropy *z)
{
    const bool vector = z->ld % EACH == 0 && aligned16(z->logits);
    const loss_args args = {*z, 1.0f / z->softcap, (int)z->cols, loss_threads(z),
                            vector ? (int)(z->cols / EACH * EACH) : 0};
    return args;
}

/* What the loss looks at, and its derivative by the logit. */
template <bool CAPPED> DEVICE float seen(const loss_args &a, float logit, float &slope)
{
    slope = 1.0f;
    return CAPPED ? softcap_of(logit, a.z.softcap, a.inverse_cap, slope) : logit;
}

KERNEL(LOSS_THREADS) loss_start_kernel(loss_args a)
{
    int64_t i = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
    if (i >= a.z.rows)
        return;
    a.z.max[i] = -INFINITY;
    a.z.sum[i] = 0.0f;
    a.z.target_logit[i] = NAN; /* a target beyond the vocabulary shows in the loss */
    if (a.z.smoothing != 0.0f)
        a.z.logit_sum[i] = 0.0f;
}

#define PER_NATURAL 1.44269504f /* log2(e) */
#define PER_BINARY 0.693147181f /* ln(2) */

DEVICE float exp_near(float x)
{
    return exp2_near(x * PER_NATURAL);
}

/* Of columns x: top is the largest of them and LEAST, sum that of exp(x - top), total with
 * smoothing that of x. Beginning with LEAST rather than -infinity, top is finite, so that a logit
 * of -infinity adds 0 and not the NaN of -infinity less itself. Of capped logits x is the hyperbolic
 * tangent, and so is total; top is kept times log2(e) and the cap, so that 2^(cap x - top) is a
 * fused operation and that of the special unit. */
struct loss_sums {
    float top, sum, total;
};
#define LEAST (-1e38f)

template <bool CAPPED> DEVICE float power_of(float x)
{
    return CAPPED ? exp2_near(x) : exp_near(x);
}

template <bool CAPPED, int N>
DEVICE void add_columns(const loss_args &a, loss_sums &s, float (&x)[N])
{
    const float cap = CAPPED ? a.z.softcap * PER_NATURAL : 1.0f;
    float most = 0.0f, slope;
    UNROLL for (int k = 0; k < N; k++)
    {
        x[k] = CAPPED ? softcap_of(x[k], 1.0f, a.inverse_cap, slope) : x[k];
        most = k ? fmaxf(most, x[k]) : x[k]; /* a NaN is passed over: the sum becomes it */
    }
    const float top = fmaxf(s.top, CAPPED ? cap * most : most);
    s.sum *= power_of<CAPPED>(s.top - top);
    UNROLL for (int k = 0; k < N; k++) s.sum +=
        CAPPED ? exp2_near(fused(cap, x[k], -top)) : exp_near(x[k] - top);
    if (a.z.smoothing != 0.0f)
        UNROLL for (int k = 0; k < N; k++) s.total += x[k];
    s.top = top;
}

/* Of all lanes, in each of them. */
template <bool CAPPED> DEVICE void join_lanes(const loss_args &a, loss_sums &s)
{
    float top = s.top;
    UNROLL for (int mask = 16; mask; mask /= 2) top = fmaxf(top, shuffle_xor(top, mask));
    s.sum = warp_sum(s.sum * power_of<CAPPED>(s.top - top));
    if (a.z.smoothing != 0.0f)
        s.total = warp_sum(s.total);
    s.top = top;
}

/* Of all warps, in thread 0. */
template <bool CAPPED> DEVICE void join_warps(const loss_args &a, loss_sums &s, loss_sums *shared)
{
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = s;
    sync_block();
    if (threadIdx.x)
        return;
    const int warps = a.threads / 32;
    float top = s.top, sum = 0.0f, total = 0.0f;
    for (int k = 1; k < warps; k++)
        top = fmaxf(top, shared[k].top);
    for (int k = 0; k < warps; k++) {
        sum += shared[k].sum * power_of<CAPPED>(shared[k].top - top);
        total += shared[k].total;
    }
    s = {top, sum, total};
}

/* Of a tile's row: 8 columns at a time, those behind them one by one. */
template <bool CAPPED> DEVICE loss_sums row_sums(const loss_args &a, const float *logits)
{
    loss_sums s = {LEAST, 0.0f, 0.0f};
    float x[EACH], one[1];
    for (int c = threadIdx.x * EACH; c < a.whole; c += a.threads * EACH) {
        load_vector(x, logits + c);
        add_columns<CAPPED>(a, s, x);
    }
    NO_UNROLL for (int c = a.whole + threadIdx.x; c < a.cols; c += a.threads)
    {
        one[0] = logits[c];
        add_columns<CAPPED>(a, s, one);
    }
    join_lanes<CAPPED>(a, s);
    return s;
}

/* Sums of capped logits in the units that they have elsewhere. Rounding changes the largest a
 * little; the sum is scaled by as much, so that sum * exp(top) stays. */
DEVICE loss_sums natural(const loss_args &a, const loss_sums &s)
{
    const float top = s.top * PER_BINARY;
    return {top, s.sum * exp2_near(fused(-top, PER_NATURAL, s.top)), s.total * a.z.softcap};
}

/* The first column of the largest logit. Columns of a tile are exact as floats. */
DEVICE int32_t largest_at(const loss_args &a, const float *logits, float *shared)
{
    float top = -INFINITY, before = -INFINITY;
    for (int c = threadIdx.x; c < a.cols; c += a.threads)
        top = fmaxf(top, logits[c]);
    top = block_reduce(top, false, shared, a.threads / 32);
    for (int c = threadIdx.x; c < a.cols; c += a.threads)
        if (logits[c] == top && -(float)c > before)
            before = -(float)c;
    return (int32_t)-block_reduce(before, false, shared, a.threads / 32);
}

template <bool CAPPED> KERNEL(LOSS_THREADS) loss_update_kernel(loss_args a)
{
    __shared__ loss_sums shared[LOSS_WARPS];
    __shared__ float tops[LOSS_WARPS];
    const int64_t i = blockIdx.x;
    const float *logits = a.z.logits + i * a.z.ld;
    float slope;
    if (a.z.targets[i] < 0)
        return;
    loss_sums s = row_sums<CAPPED>(a, logits);
    if (a.threads > 32)
        join_warps<CAPPED>(a, s, shared);
    const int32_t at = a.z.max_z_loss != 0.0f ? largest_at(a, logits, tops) : 0;
    if (threadIdx.x)
        return;
    if (CAPPED)
        s = natural(a, s);
    if (a.z.smoothing != 0.0f)
        a.z.logit_sum[i] += s.total;
    const float before = a.z.max[i], after = s.top > before ? s.top : before;
    if (a.z.max_z_loss != 0.0f && after > before)
        a.z.max_at[i] = (int32_t)a.z.first + at;
    const int64_t target = (int64_t)a.z.targets[i] - a.z.first;
    if (target >= 0 && target < a.z.cols)
        a.z.target_logit[i] = seen<CAPPED>(a, logits[target], slope);
    a.z.sum[i] = a.z.sum[i] * exp_near(before - after) + s.sum * exp_near(s.top - after);
    a.z.max[i] = after;
}

KERNEL(LOSS_THREADS) loss_finish_kernel(loss_args a)
{
    int64_t i = (int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x;
    if (i >= a.z.rows)
        return;
    const float e = a.z.smoothing, log_sum = logf(a.z.sum[i]), z = log_sum + a.z.max[i];
    float wanted = a.z.target_logit[i];
    if (e != 0.0f)
        wanted = (1.0f - e) * wanted + e * (a.z.logit_sum[i] / (float)a.z.vocab);
    float loss = log_sum + (a.z.max[i] - wanted);
    if (a.z.z_loss != 0.0f)
        loss += a.z.z_loss * (z * z);
    if (a.z.max_z_loss != 0.0f)
        loss += a.z.max_z_loss * (log_sum * log_sum);
    a.z.loss[i] = a.z.targets[i] < 0 ? 0.0f : loss;
}

/* As in the host's: what multiplies exp(logit - max), and what is taken off, at the target, of each
 * and at the largest. */
struct loss_slopes {
    float probability, target, each, largest;
};

DEVICE loss_slopes loss_slopes_of(const loss_args &a, int64_t i)
{
    const float scale = a.z.row_scales ? a.z.scale * a.z.row_scales[i] : a.z.scale;
    loss_slopes s = {scale, scale * (1.0f - a.z.smoothing), 0.0f, 0.0f};
    if (a.z.smoothing != 0.0f)
        s.each = scale * a.z.smoothing / (float)a.z.vocab;
    if (a.z.z_loss != 0.0f)
        s.probability *= 1.0f + 2.0f * a.z.z_loss * (logf(a.z.sum[i]) + a.z.max[i]);
    if (a.z.max_z_loss != 0.0f) {
        s.largest = scale * (2.0f * a.z.max_z_loss * logf(a.z.sum[i]));
        s.probability += s.largest;
    }
    s.probability /= a.z.sum[i];
    return s;
}

/* What a row's gradients are made of; columns are the tile's, of which the target and the largest
 * may be none. */
struct loss_row {
    loss_slopes slopes;
    float max;
    int target, largest;
};

DEVICE loss_row loss_row_of(const loss_args &a, int64_t i)
{
    loss_row row = {loss_slopes_of(a, i), a.z.max[i], (int)(a.z.targets[i] - a.z.first), -1};
    if (a.z.max_z_loss != 0.0f)
        row.largest = (int)(a.z.max_at[i] - a.z.first);
    return row;
}

/* Logits from column c on become their gradients. */
template <bool CAPPED, int N>
DEVICE void slopes_at(const loss_args &a, const loss_row &row, int c, float (&x)[N])
{
    float slope[N];
    UNROLL for (int k = 0; k < N; k++) x[k] =
        fused(row.slopes.probability, exp_near(seen<CAPPED>(a, x[k], slope[k]) - row.max),
              -row.slopes.each);
    if ((unsigned)(row.target - c) < N)
        UNROLL for (int k = 0; k < N; k++) x[k] -= c + k == row.target ? row.slopes.target : 0.0f;
    if ((unsigned)(row.largest - c) < N)
        UNROLL for (int k = 0; k < N; k++) x[k] -= c + k == row.largest ? row.slopes.largest : 0.0f;
    if (CAPPED)
        UNROLL for (int k = 0; k < N; k++) x[k] *= slope[k];
}

/* Gradients of a row whose target is ignored are 0. */
template <class T> DEVICE void clear_row(const loss_args &a, T *gradients)
{
    const float zeros[EACH] = {};
    for (int c = threadIdx.x * EACH; c < a.whole; c += a.threads * EACH)
        store_vector(gradients + c, zeros);
    for (int c = a.whole + threadIdx.x; c < a.cols; c += a.threads)
        from_float(gradients[c], 0.0f);
}

/* Gradients in 16 bits take the front of their row: what a turn writes, all threads have read in
 * this turn or an earlier one. */
template <class T, bool CAPPED> KERNEL(LOSS_THREADS) loss_backward_kernel(loss_args a)
{
    const int64_t i = blockIdx.x;
    const float *logits = a.z.logits + i * a.z.ld;
    T *gradients = (T *)(void *)(a.z.logits + i * a.z.ld);
    if (a.z.targets[i] < 0) {
        clear_row(a, gradients);
        return;
    }
    const loss_row row = loss_row_of(a, i);
    for (int turn = 0; turn < a.whole; turn += a.threads * EACH) {
        const int c = turn + threadIdx.x * EACH;
        float x[EACH];
        if (c < a.whole)
            load_vector(x, logits + c);
        if (sizeof(T) < sizeof(float))
            sync_block();
        if (c < a.whole) {
            slopes_at<CAPPED>(a, row, c, x);
            store_vector(gradients + c, x);
        }
    }
    NO_UNROLL for (int turn = a.whole; turn < a.cols; turn += a.threads)
    {
        const int c = turn + threadIdx.x;
        float x[1];
        if (c < a.cols)
            x[0] = logits[c];
        if (sizeof(T) < sizeof(float))
            sync_block();
        if (c < a.cols) {
            slopes_at<CAPPED>(a, row, c, x);
            from_float(gradients[c], x[0]);
        }
    }
}

struct softcap_args {
    float *x;
    int64_t n;
    float cap, inverse_cap;
    bool vector;
};

KERNEL(LOSS_THREADS) softcap_kernel(softcap_args a)
{
    int64_t i = ((int64_t)blockIdx.x * LOSS_THREADS + threadIdx.x) * EACH;
    float x[EACH], slope;
    if (i >= a.n)
        return;
    load_each(x, a.x + i, a.n - i, a.vector);
    UNROLL for (int k = 0; k < EACH; k++) x[k] = softcap_of(x[k], a.cap, a.inverse_cap, slope);
    store_each(a.x + i, x, a.n - i, a.vector);
}

cudaError_t launch_softcap(cudaStream_t stream, float *x, float cap, uint64_t n)
{
    softcap_args args = {x, (int64_t)n, cap, 1.0f / cap, aligned16(x)};
    return launch(known<softcap_kernel>(), dim3(blocks_for(n, LOSS_THREADS * EACH)),
                  dim3(LOSS_THREADS), 0, stream, args);
}

static dim3 loss_flat_grid(const struct zinf_cross_entropy *z)
{
    return dim3(blocks_for((uint64_t)z->rows, LOSS_THREADS));
}

cudaError_t launch_loss_start(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    return launch(known<loss_start_kernel>(), loss_flat_grid(z), dim3(LOSS_THREADS), 0, stream,
                  loss_args_of(z));
}

cudaError_t launch_loss_update(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    return launch(
        z->softcap != 0.0f ? known<loss_update_kernel<true>>() : known<loss_update_kernel<false>>(),
        dim3((unsigned)z->rows), dim3((unsigned)loss_threads(z)), 0, stream, loss_args_of(z));
}

cudaError_t launch_loss_finish(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    return launch(known<loss_finish_kernel>(), loss_flat_grid(z), dim3(LOSS_THREADS), 0, stream,
                  loss_args_of(z));
}

template <class T>
static cudaError_t loss_backward_typed(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    return launch(z->softcap != 0.0f ? known<loss_backward_kernel<T, true>>()
                                     : known<loss_backward_kernel<T, false>>(),
                  dim3((unsigned)z->rows), dim3((unsigned)loss_threads(z)), 0, stream,
                  loss_args_of(z));
}

cudaError_t launch_loss_backward(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    BY_DTYPE(z->d_dtype, return loss_backward_typed<T>(stream, z));
}

/*
 * loss: softmax cross-entropy over tiles of the vocabulary, a block a row, of no more warps than
 * a tile's columns keep busy. A tile is read two times, for its maximum and for the sum of
 * exponentials; the second time it is in the cache.
 */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/softcap.cuh"

enum { LOSS_THREADS = 256, LOSS_WARPS = LOSS_THREADS / 32 };

struct loss_args {
    struct zinf_cross_entropy z;
    float inverse_cap;
    int cols, threads; /* of a row's tile and of its block */
    bool vector;
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
    loss_args args = {*z, 1.0f / z->softcap, (int)z->cols, loss_threads(z),
                      z->ld % EACH == 0 && aligned16(z->logits)};
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

/* 8 logits from column c on, as the loss sees them; -infinity beyond the last. */
template <bool CAPPED>
DEVICE void load_seen(const loss_args &a, const float *logits, int c, float (&x)[EACH])
{
    float slope;
    load_each(x, logits + c, a.cols - c, a.vector);
    UNROLL for (int k = 0; k < EACH; k++) x[k] =
        c + k < a.cols ? seen<CAPPED>(a, x[k], slope) : -INFINITY;
}

/* The row's sum of what the loss sees of a tile, which a third look at it takes; in thread 0. */
template <bool CAPPED> DEVICE float sum_seen(const loss_args &a, const float *logits, float *shared)
{
    float total = 0.0f, x[EACH];
    for (int c = threadIdx.x * EACH; c < a.cols; c += a.threads * EACH) {
        load_seen<CAPPED>(a, logits, c, x);
        UNROLL for (int k = 0; k < EACH; k++) total += c + k < a.cols ? x[k] : 0.0f;
    }
    return block_reduce(total, true, shared, a.threads / 32);
}

/* The first column whose number the loss sees as `top`. Columns of a tile are exact as floats. */
template <bool CAPPED>
DEVICE int32_t first_at(const loss_args &a, const float *logits, float top, float *shared)
{
    float before = -INFINITY, x[EACH];
    for (int c = threadIdx.x * EACH; c < a.cols; c += a.threads * EACH) {
        load_seen<CAPPED>(a, logits, c, x);
        UNROLL for (int k = 0; k < EACH;
                    k++) if (c + k < a.cols && x[k] == top && -(float)(c + k) > before) before =
            -(float)(c + k);
    }
    return (int32_t)-block_reduce(before, false, shared, a.threads / 32);
}

template <bool CAPPED> KERNEL(LOSS_THREADS) loss_update_kernel(loss_args a)
{
    __shared__ float shared[LOSS_WARPS];
    int64_t i = blockIdx.x;
    const float *logits = a.z.logits + i * a.z.ld;
    if (a.z.targets[i] < 0)
        return;
    float top = -INFINITY, sum = 0.0f, slope, x[EACH];
    for (int c = threadIdx.x * EACH; c < a.cols; c += a.threads * EACH) {
        load_seen<false>(a, logits, c, x);
        UNROLL for (int k = 0; k < EACH; k++) top = x[k] > top ? x[k] : top;
    }
    top = seen<CAPPED>(a, block_reduce(top, false, shared, a.threads / 32),
                       slope); /* the largest stays so */
    const float before = a.z.max[i], after = top > before ? top : before;
    for (int c = threadIdx.x * EACH; c < a.cols; c += a.threads * EACH) {
        load_seen<CAPPED>(a, logits, c, x);
        UNROLL for (int k = 0; k < EACH; k++) sum += c + k < a.cols ? expf(x[k] - after) : 0.0f;
    }
    sum = block_reduce(sum, true, shared, a.threads / 32);
    const float total = a.z.smoothing != 0.0f ? sum_seen<CAPPED>(a, logits, shared) : 0.0f;
    const int32_t at = a.z.max_z_loss != 0.0f ? first_at<CAPPED>(a, logits, top, shared) : 0;
    if (threadIdx.x)
        return;
    if (a.z.smoothing != 0.0f)
        a.z.logit_sum[i] += total;
    if (a.z.max_z_loss != 0.0f && after > before)
        a.z.max_at[i] = (int32_t)a.z.first + at;
    int64_t target = (int64_t)a.z.targets[i] - a.z.first;
    if (target >= 0 && target < a.z.cols)
        a.z.target_logit[i] = seen<CAPPED>(a, logits[target], slope);
    /* Two infinities (nothing seen yet) make no NaN: the sum is still 0 then. */
    a.z.sum[i] = (after > before ? a.z.sum[i] * expf(before - after) : a.z.sum[i]) + sum;
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

/* Gradients in 16 bits take the front of their row: what a turn writes, all threads have read in
 * this turn or an earlier one. */
template <class T, bool CAPPED> KERNEL(LOSS_THREADS) loss_backward_kernel(loss_args a)
{
    int64_t i = blockIdx.x;
    const int target = (int)(a.z.targets[i] - a.z.first);
    const float *logits = a.z.logits + i * a.z.ld;
    T *gradients = (T *)(void *)(a.z.logits + i * a.z.ld);
    const bool ignored = a.z.targets[i] < 0;
    const float max = ignored ? 0.0f : a.z.max[i];
    const loss_slopes s = ignored ? loss_slopes{0.0f, 0.0f, 0.0f, 0.0f} : loss_slopes_of(a, i);
    const int largest = ignored || a.z.max_z_loss == 0.0f ? -1 : (int)(a.z.max_at[i] - a.z.first);
    for (int turn = 0; turn < a.cols; turn += a.threads * EACH) {
        const int c = turn + threadIdx.x * EACH, count = a.cols - c; /* none: count < 1 */
        float x[EACH];
        load_each(x, logits + c, count, a.vector);
        if (sizeof(T) < sizeof(float))
            sync_block();
        UNROLL for (int k = 0; k < EACH; k++)
        {
            float slope;
            x[k] = s.probability * expf(seen<CAPPED>(a, x[k], slope) - max);
            x[k] -= c + k == target ? s.target : 0.0f;
            if (s.largest != 0.0f)
                x[k] -= c + k == largest ? s.largest : 0.0f;
            if (s.each != 0.0f)
                x[k] -= s.each;
            if (CAPPED)
                x[k] *= slope;
            x[k] = ignored ? 0.0f : x[k];
        }
        store_each(gradients + c, x, count, a.vector);
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

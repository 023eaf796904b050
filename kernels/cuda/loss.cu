/*
 * loss: softmax cross-entropy over tiles of the vocabulary. A block has one row, with no more warps
 * than the tile's columns keep busy; where rows are short, two or four share a warp. A tile is read
 * once: each thread keeps the largest of its columns so far and the sum of exp(column - largest),
 * and scales the sum when a larger column comes. Only max_z_loss reads the tile a second time, to
 * find where the largest logit is.
 *
 * Exponentials are made by the special function unit as exp(x) = 2^(x log2(e)). Their relative
 * error is at most 2.4e-7 + 7e-8 |x|.
 */
#include "kernels/cuda/block.cuh"
#include "kernels/cuda/softcap.cuh"

enum { LOSS_THREADS = 256, LOSS_WARPS = LOSS_THREADS / 32 };

struct loss_args {
    struct zinf_cross_entropy z;
    float inverse_cap;
    int cols, threads; /* columns of the tile, threads of a row */
    int whole;         /* so many columns are taken 8 at a time */
};

/* Rows of up to so many columns share a warp. A warp that has only one spends half of its
 * instructions on what a row needs once. A block has few threads, so that a thousand rows are work
 * for all multiprocessors. */
enum { SHORT_COLUMNS = 2 * 32 * EACH, SHORT_THREADS = 64 };
/* Of fewer columns than this, a quarter of a warp has all: 8 threads the whole pieces of 8, and 7
 * of them the columns behind these. */
enum { NARROW_COLUMNS = 9 * EACH };

/* How many threads a row has: so few that each has at least 32 columns where the tile has so many,
 * beside which the work that a thread does once is little. */
static int loss_threads(const struct zinf_cross_entropy *z)
{
    const int64_t columns = 4 * 32 * EACH, warps = (z->cols + columns - 1) / columns;
    return 32 * (warps < 1 ? 1 : warps < LOSS_WARPS ? (int)warps : LOSS_WARPS);
}

static loss_args loss_args_of(const struct zinf_cross_entropy *z, int threads)
{
    const bool vector = z->ld % EACH == 0 && aligned16(z->logits);
    const loss_args args = {*z, 1.0f / z->softcap, (int)z->cols, threads,
                            vector ? (int)(z->cols / EACH * EACH) : 0};
    return args;
}

/* The logit behind the cap, if there is one, and the derivative of that by the logit. */
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

/* Sums over columns x: top is the largest of them, or LEAST if that is larger; sum is that of
 * exp(x - top); total, which smoothing needs, is that of x. Because top begins with LEAST and not
 * with -infinity, it is finite, so that a logit of -infinity adds 0, and not the NaN that -infinity
 * less -infinity would be. Of capped logits x is the hyperbolic tangent. Their top is kept times
 * the cap and log2(e), so that 2^(cap x - top) takes one fused operation and the special unit. */
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

/* Joins the sums of a warp's lanes. Each lane gets the result. */
template <bool CAPPED> DEVICE void join_lanes(const loss_args &a, loss_sums &s)
{
    float top = s.top;
    UNROLL for (int mask = 16; mask; mask /= 2) top = fmaxf(top, shuffle_xor(top, mask));
    s.sum = warp_sum(s.sum * power_of<CAPPED>(s.top - top));
    if (a.z.smoothing != 0.0f)
        s.total = warp_sum(s.total);
    s.top = top;
}

/* Joins the sums of a part of a warp. Its lanes have those of SUMS lanes of a whole one each, which
 * lie LANES apart: these are added up first, as a whole warp's first shuffles would do, so that the
 * bits are the same. A quarter with one sum a lane has all that a whole warp would have: what that
 * adds is zeros. */
template <int SUMS> DEVICE float as_shuffled(const float (&x)[SUMS])
{
    const int half = SUMS / 2, quarter = SUMS / 4;
    const float first = SUMS > 1 ? x[0] + x[half] : x[0];
    return SUMS > 2 ? first + (x[quarter] + x[half + quarter]) : first;
}
template <bool CAPPED, int LANES, int SUMS>
DEVICE loss_sums join_part(const loss_args &a, const loss_sums (&s)[SUMS])
{
    loss_sums all = s[0];
    float sums[SUMS], totals[SUMS];
    UNROLL for (int k = 1; k < SUMS; k++) all.top = fmaxf(all.top, s[k].top);
    UNROLL for (int mask = LANES / 2; mask; mask /= 2) all.top =
        fmaxf(all.top, shuffle_xor(all.top, mask));
    UNROLL for (int k = 0; k < SUMS; k++)
    {
        sums[k] = product(s[k].sum, power_of<CAPPED>(s[k].top - all.top));
        totals[k] = s[k].total;
    }
    all.sum = as_shuffled(sums);
    UNROLL for (int mask = LANES / 2; mask; mask /= 2) all.sum += shuffle_xor(all.sum, mask);
    if (a.z.smoothing != 0.0f) {
        all.total = as_shuffled(totals);
        UNROLL for (int mask = LANES / 2; mask; mask /= 2) all.total +=
            shuffle_xor(all.total, mask);
    }
    return all;
}

/* Joins the sums of a block's warps. Only thread 0 gets the result. */
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

/* The sums of a thread's columns. A thread takes 8 columns at a time, and then the columns behind
 * the last 8 one by one. */
template <bool CAPPED> DEVICE loss_sums thread_sums(const loss_args &a, const float *logits)
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
    return s;
}

/* Sums of capped logits in natural units, as those of other logits are. Rounding changes the
 * largest a little, so the sum is scaled against that: sum * exp(top) stays what it was. */
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

/* Adds a tile's sums of row i to those of the tiles before it. at: the tile's largest logit. */
template <bool CAPPED>
DEVICE void update_row(const loss_args &a, int64_t i, loss_sums s, const float *logits, int32_t at)
{
    float slope;
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

template <bool CAPPED> KERNEL(LOSS_THREADS) loss_update_kernel(loss_args a)
{
    __shared__ loss_sums shared[LOSS_WARPS];
    __shared__ float tops[LOSS_WARPS];
    const int64_t i = blockIdx.x;
    const float *logits = a.z.logits + i * a.z.ld;
    if (a.z.targets[i] < 0)
        return;
    loss_sums s = thread_sums<CAPPED>(a, logits);
    join_lanes<CAPPED>(a, s);
    if (a.threads > 32)
        join_warps<CAPPED>(a, s, shared);
    const int32_t at = a.z.max_z_loss != 0.0f ? largest_at(a, logits, tops) : 0;
    if (threadIdx.x == 0)
        update_row<CAPPED>(a, i, s, logits, at);
}

/* As thread_sums of SUMS threads of 32, which lie LANES apart: those of one lane of a part of a
 * warp. Their loads are on their way together. */
template <bool CAPPED, int LANES, int SUMS>
DEVICE void part_sums(const loss_args &a, loss_sums (&s)[SUMS], const float *logits, int lane)
{
    float x[SUMS][EACH], one[1];
    UNROLL for (int k = 0; k < SUMS; k++) s[k] = {LEAST, 0.0f, 0.0f};
    for (int c = lane * EACH; c < a.whole; c += 32 * EACH) {
        UNROLL for (int k = 0; k < SUMS; k++) if (c + k * LANES * EACH < a.whole)
            load_vector(x[k], logits + c + k * LANES * EACH);
        UNROLL for (int k = 0; k < SUMS; k++) if (c + k * LANES * EACH < a.whole)
            add_columns<CAPPED>(a, s[k], x[k]);
    }
    NO_UNROLL for (int c = a.whole + lane; c < a.cols; c += 32)
    {
        UNROLL for (int k = 0; k < SUMS; k++) if (c + k * LANES < a.cols)
        {
            one[0] = logits[c + k * LANES];
            add_columns<CAPPED>(a, s[k], one);
        }
    }
}

/* The kernel for short rows: each half or quarter of a warp has one. It does not serve max_z_loss.
 * Lanes without a row, or with one whose target is ignored, add up row 0 and drop the result. */
template <bool CAPPED, int LANES, int SUMS>
KERNEL(SHORT_THREADS)
loss_update_short_kernel(loss_args a)
{
    const int64_t i = (int64_t)blockIdx.x * (SHORT_THREADS / LANES) + threadIdx.x / LANES;
    const int lane = threadIdx.x % LANES;
    const bool there = i < a.z.rows && a.z.targets[i] >= 0;
    const float *logits = a.z.logits + (there ? i * a.z.ld : 0);
    loss_sums s[SUMS];
    part_sums<CAPPED, LANES>(a, s, logits, lane);
    const loss_sums all = join_part<CAPPED, LANES>(a, s);
    if (there && lane == 0)
        update_row<CAPPED>(a, i, all, logits, 0);
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

/* The parts of a row's gradients, as in the host's: the factor of exp(logit - max), and what is
 * taken off at the target, at each column and at the largest logit. */
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

/* What a row's gradients are made of. target and largest count from the tile's first column; they
 * are outside of the tile if it does not have them. */
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

/* Turns the logits x, the first of which is column c, into their gradients. */
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

/* The row of a team of a.threads threads. Those behind the last row have none, but meet the others
 * at barriers. */
struct slope_team {
    int64_t row;
    int thread;
    bool there, counts; /* counts: its target is not ignored, else its gradients are 0 */
};

DEVICE slope_team slope_team_of(const loss_args &a)
{
    slope_team t;
    t.thread = threadIdx.x % a.threads;
    t.row = (int64_t)blockIdx.x * (blockDim.x / a.threads) + threadIdx.x / a.threads;
    t.there = t.row < a.z.rows;
    t.counts = t.there && a.z.targets[t.row] >= 0;
    return t;
}

template <bool CAPPED, int N>
DEVICE void gradients_at(const loss_args &a, const loss_row &row, bool counts, int c, float (&x)[N])
{
    if (counts)
        slopes_at<CAPPED>(a, row, c, x);
    else
        UNROLL for (int k = 0; k < N; k++) x[k] = 0.0f;
}

/* Gradients of 16 bits take the front half of their row. What a turn of the loop overwrites, all
 * threads have read in this turn or an earlier one; the barrier holds writers back till then. A
 * thread has PIECES times 8 columns a turn, whose loads are on their way together. */
template <class T, bool CAPPED, int PIECES> KERNEL(LOSS_THREADS) loss_backward_kernel(loss_args a)
{
    const slope_team t = slope_team_of(a);
    const float *logits = a.z.logits + (t.there ? t.row : 0) * a.z.ld;
    T *gradients = (T *)(void *)(uintptr_t)logits;
    const int whole = t.there ? a.whole : 0, cols = t.there ? a.cols : 0, step = a.threads * EACH;
    loss_row row = {};
    if (t.counts)
        row = loss_row_of(a, t.row);
    for (int turn = 0; turn < a.whole; turn += PIECES * step) {
        const int c = turn + t.thread * EACH;
        float x[PIECES][EACH];
        UNROLL for (int p = 0; p < PIECES; p++) if (c + p * step < whole)
            load_vector(x[p], logits + c + p * step);
        if (sizeof(T) < sizeof(float))
            sync_block();
        UNROLL for (int p = 0; p < PIECES; p++) if (c + p * step < whole)
        {
            gradients_at<CAPPED>(a, row, t.counts, c + p * step, x[p]);
            store_vector(gradients + c + p * step, x[p]);
        }
    }
    NO_UNROLL for (int turn = a.whole; turn < a.cols; turn += a.threads)
    {
        const int c = turn + t.thread;
        float x[1];
        if (c < cols)
            x[0] = logits[c];
        if (sizeof(T) < sizeof(float))
            sync_block();
        if (c < cols) {
            gradients_at<CAPPED>(a, row, t.counts, c, x);
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
                  loss_args_of(z, LOSS_THREADS));
}

template <bool CAPPED, int LANES, int SUMS>
static cudaError_t loss_update_short(cudaStream_t stream, const loss_args &args)
{
    return launch(known<loss_update_short_kernel<CAPPED, LANES, SUMS>>(),
                  dim3(blocks_for((uint64_t)args.z.rows, SHORT_THREADS / LANES)),
                  dim3(SHORT_THREADS), 0, stream, args);
}

template <bool CAPPED>
static cudaError_t loss_update_typed(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    const loss_args args = loss_args_of(z, loss_threads(z));
    if (z->cols > SHORT_COLUMNS || z->max_z_loss != 0.0f)
        return launch(known<loss_update_kernel<CAPPED>>(), grid_of_rows(z->rows),
                      dim3((unsigned)args.threads), 0, stream, args);
    if (args.whole && z->cols < NARROW_COLUMNS)
        return loss_update_short<CAPPED, 8, 1>(stream, args);
    const int LANES = CAPPED ? 8 : 16, SUMS = 32 / LANES;
    return loss_update_short<CAPPED, LANES, SUMS>(stream, args);
}

cudaError_t launch_loss_update(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    return z->softcap != 0.0f ? loss_update_typed<true>(stream, z)
                              : loss_update_typed<false>(stream, z);
}

cudaError_t launch_loss_finish(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    return launch(known<loss_finish_kernel>(), loss_flat_grid(z), dim3(LOSS_THREADS), 0, stream,
                  loss_args_of(z, LOSS_THREADS));
}

template <class T, int PIECES>
static cudaError_t loss_backward_typed(cudaStream_t stream, const struct zinf_cross_entropy *z,
                                       int threads, int block)
{
    return launch(z->softcap != 0.0f ? known<loss_backward_kernel<T, true, PIECES>>()
                                     : known<loss_backward_kernel<T, false, PIECES>>(),
                  dim3(blocks_for((uint64_t)z->rows, (uint64_t)(block / threads))),
                  dim3((unsigned)block), 0, stream, loss_args_of(z, threads));
}

/* A quarter of a warp has a short row, and what a turn has of it is half of the longest. */
template <class T>
static cudaError_t loss_backward_of(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    const int threads = loss_threads(z);
    return z->cols <= SHORT_COLUMNS ? loss_backward_typed<T, 4>(stream, z, 8, SHORT_THREADS)
                                    : loss_backward_typed<T, 1>(stream, z, threads, threads);
}

cudaError_t launch_loss_backward(cudaStream_t stream, const struct zinf_cross_entropy *z)
{
    BY_DTYPE(z->d_dtype, return loss_backward_of<T>(stream, z));
}

/*
 * convolution: a short convolution of every column along the sequence. Forward and the gradient of
 * its input are a thread an element; the gradient of its weights is 32 columns a block, whose 8
 * threads a column take rows in turn, and their sums are added in order. While sequences are
 * continued a thread has a column of all rows.
 */
#include "kernels/cuda/activation.cuh"

enum { CONVOLUTION_THREADS = 256, STRIP = 32, DEEP = 8, WIDEST = ZINF_CONVOLUTION_MAX_WIDTH };

template <class T> struct convolution_args {
    const T *x, *w, *b, *dy;
    T *y, *dx;
    float *dw, *db;
    const int32_t *segments, *sequences, *positions;
    unsigned char *state;
    uint64_t state_bytes;
    int64_t rows, seq, cols, ld, width;
    bool silu;
    /* The ends of a piece of a sequence: [width - 1][cols] each. */
    int64_t ends_rows;
    const T *ends_before;
    T *ends_behind;
    const float *ends_d_behind;
    float *ends_d_before;
};

/* x, whose rows in front of a piece of a sequence have negative numbers. */
template <class T> DEVICE float x_at(const convolution_args<T> &a, int64_t row, int64_t col)
{
    return to_float(row < 0 ? a.ends_before[(row + a.width - 1) * a.cols + col]
                            : a.x[row * a.ld + col]);
}

/* Rows before this one that its window shows: of its document; -1: padding. */
template <class T> DEVICE int64_t rows_before(const convolution_args<T> &a, int64_t row)
{
    const int64_t there = row % a.seq + a.ends_rows, most = there < a.width ? there : a.width - 1;
    int64_t same = 0;
    if (!a.segments)
        return most;
    if (a.segments[row] < 1)
        return -1;
    while (same < most && a.segments[row - 1 - same] == a.segments[row])
        same++;
    return same;
}

/* f's argument. */
template <class T>
DEVICE float convolved(const convolution_args<T> &a, int64_t row, int64_t col, int64_t before)
{
    float sum = a.b ? to_float(a.b[col]) : 0.0f;
    for (int64_t back = before; back >= 0; back--)
        sum += to_float(a.w[col * a.width + a.width - 1 - back]) * x_at(a, row - back, col);
    return sum;
}

template <class T> DEVICE float activated(const convolution_args<T> &a, float sum)
{
    float slope;
    return a.silu ? activate<ZINF_ACTIVATION_SILU, sizeof(T) == 2>(sum, slope) : sum;
}

/* The gradient at f's argument. */
template <class T>
DEVICE float d_convolved(const convolution_args<T> &a, int64_t row, int64_t col, int64_t before)
{
    const float dy = to_float(a.dy[row * a.cols + col]);
    float slope = 1.0f;
    if (a.silu)
        activate<ZINF_ACTIVATION_SILU, sizeof(T) == 2>(convolved(a, row, col, before), slope);
    return dy * slope;
}

template <class T> KERNEL(CONVOLUTION_THREADS) convolution_kernel(convolution_args<T> a)
{
    const int64_t e = (int64_t)blockIdx.x * CONVOLUTION_THREADS + threadIdx.x;
    const int64_t row = e / a.cols, col = e % a.cols, last = row - a.width + 1;
    if (a.ends_behind && row >= a.rows && last < a.rows)
        from_float(a.ends_behind[(row - a.rows) * a.cols + col],
                   last < 0 && !a.ends_rows ? 0.0f : x_at(a, last, col));
    if (row >= a.rows)
        return;
    const int64_t before = rows_before(a, row);
    from_float(a.y[e], before < 0 ? 0.0f : activated(a, convolved(a, row, col, before)));
}

template <class T> KERNEL(CONVOLUTION_THREADS) convolution_continue_kernel(convolution_args<T> a)
{
    const int64_t col = (int64_t)blockIdx.x * CONVOLUTION_THREADS + threadIdx.x;
    if (col >= a.cols)
        return;
    for (int64_t row = 0; row < a.rows; row++) {
        T *state = (T *)(void *)(a.state + (uint64_t)a.sequences[row] * a.state_bytes) + col;
        const T own = a.x[row * a.ld + col];
        const bool begins = a.positions[row] == 0;
        float sum = a.b ? to_float(a.b[col]) : 0.0f;
        for (int64_t t = 0; t < a.width; t++) {
            T shown = own;
            if (t < a.width - 1 && begins)
                from_float(shown, 0.0f);
            else if (t < a.width - 1)
                shown = state[t * a.cols];
            sum += to_float(a.w[col * a.width + t]) * to_float(shown);
            if (t)
                state[(t - 1) * a.cols] = shown;
        }
        from_float(a.y[row * a.cols + col], activated(a, sum));
    }
}

template <class T> KERNEL(CONVOLUTION_THREADS) convolution_dx_kernel(convolution_args<T> a)
{
    const int64_t e = (int64_t)blockIdx.x * CONVOLUTION_THREADS + threadIdx.x;
    const int64_t row = e / a.cols - (a.ends_rows ? a.width - 1 : 0), col = e % a.cols;
    const int64_t in_behind = row - a.rows + a.width - 1;
    float sum = 0.0f;
    if (row >= a.rows)
        return;
    /* rows whose window shows this one */
    for (int64_t back = row < 0 ? -row : 0; back < a.width && row + back < a.rows; back++) {
        const int64_t before = rows_before(a, row + back);
        if (before >= back)
            sum += to_float(a.w[col * a.width + a.width - 1 - back]) *
                   d_convolved(a, row + back, col, before);
    }
    if (a.ends_d_behind && in_behind >= 0)
        sum += a.ends_d_behind[in_behind * a.cols + col];
    if (row >= 0)
        from_float(a.dx[row * a.ld + col], sum);
    else
        a.ends_d_before[(row + a.width - 1) * a.cols + col] = sum;
}

template <class T> KERNEL(STRIP *DEEP) convolution_dw_kernel(convolution_args<T> a)
{
    SHARED_MEMORY(memory); /* [DEEP][WIDEST + 1][STRIP] */
    float *sums = (float *)memory;
    const int lane = threadIdx.x % STRIP, deep = threadIdx.x / STRIP;
    const int64_t col = (int64_t)blockIdx.x * STRIP + lane;
    float sum[WIDEST + 1] = {};
    for (int64_t row = deep; row < a.rows && col < a.cols; row += DEEP) {
        const int64_t before = rows_before(a, row);
        if (before < 0)
            continue;
        const float d = d_convolved(a, row, col, before);
        UNROLL for (int back = 0; back < WIDEST; back++) if (back <= before) sum[back] +=
            d * x_at(a, row - back, col);
        sum[WIDEST] += d;
    }
    UNROLL for (int i = 0; i <= WIDEST; i++) sums[(deep * (WIDEST + 1) + i) * STRIP + lane] =
        sum[i];
    sync_block();
    for (int i = deep; i <= WIDEST && col < a.cols; i += DEEP) {
        float total = 0.0f;
        for (int d = 0; d < DEEP; d++)
            total += sums[(d * (WIDEST + 1) + i) * STRIP + lane];
        if (i < a.width && a.dw)
            a.dw[col * a.width + a.width - 1 - i] = total;
        if (i == WIDEST && a.db)
            a.db[col] = total;
    }
}

template <class T> static convolution_args<T> convolution_args_of(const struct zinf_convolution *z)
{
    convolution_args<T> a = {};
    a.x = (const T *)z->x;
    a.w = (const T *)z->w;
    a.b = (const T *)z->b;
    a.dy = (const T *)z->dy;
    a.y = (T *)z->y;
    a.dx = (T *)z->dx;
    a.dw = z->dw;
    a.db = z->db;
    a.segments = z->segments;
    a.rows = z->batch * z->seq;
    a.seq = z->seq;
    a.cols = z->cols;
    a.ld = z->ld;
    a.width = z->width;
    a.silu = z->silu;
    if (z->remembered) {
        a.sequences = z->remembered->sequences;
        a.positions = z->remembered->positions;
        a.state = (unsigned char *)z->remembered->state;
        a.state_bytes = z->remembered->bytes;
    }
    if (z->ends) {
        a.ends_rows = z->ends->rows;
        a.ends_before = (const T *)z->ends->before;
        a.ends_behind = (T *)z->ends->behind;
        a.ends_d_behind = z->ends->d_behind;
        a.ends_d_before = z->ends->d_before;
    }
    return a;
}

template <class T>
static cudaError_t convolution_typed(cudaStream_t stream, const struct zinf_convolution *z)
{
    const convolution_args<T> a = convolution_args_of<T>(z);
    const int64_t rows = a.rows + (a.ends_behind ? a.width - 1 : 0);
    const uint64_t n = (uint64_t)(z->remembered ? a.cols : rows * a.cols);
    return launch(
        z->remembered ? known<convolution_continue_kernel<T>>() : known<convolution_kernel<T>>(),
        dim3(blocks_for(n, CONVOLUTION_THREADS)), dim3(CONVOLUTION_THREADS), 0, stream, a);
}

template <class T>
static cudaError_t convolution_backward_typed(cudaStream_t stream, const struct zinf_convolution *z)
{
    const convolution_args<T> a = convolution_args_of<T>(z);
    const int64_t rows = a.rows + (a.ends_rows ? a.width - 1 : 0);
    cudaError_t error = launch(known<convolution_dx_kernel<T>>(),
                               dim3(blocks_for((uint64_t)(rows * a.cols), CONVOLUTION_THREADS)),
                               dim3(CONVOLUTION_THREADS), 0, stream, a);
    if (error != cudaSuccess || (!a.dw && !a.db))
        return error;
    return launch(known<convolution_dw_kernel<T>>(), dim3(blocks_for((uint64_t)a.cols, STRIP)),
                  dim3(STRIP * DEEP), DEEP * (WIDEST + 1) * STRIP * sizeof(float), stream, a);
}

cudaError_t launch_convolution(cudaStream_t stream, const struct zinf_convolution *z, bool backward)
{
    if (backward)
        BY_DTYPE(z->dtype, return convolution_backward_typed<T>(stream, z));
    BY_DTYPE(z->dtype, return convolution_typed<T>(stream, z));
}

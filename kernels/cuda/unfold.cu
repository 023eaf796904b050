/* unfold: rows beside their neighbours, and back: a thread an element. Backward collects for an
 * element what came of it, so that no two threads add to one. */
#include "kernels/cuda/kernel.cuh"

enum { UNFOLD_THREADS = 256 };

template <class T> struct unfold_args {
    const T *from; /* x, or dy */
    T *to;         /* y, or dx */
    const int32_t *segments;
    int64_t rows, seq, cols, width;
    bool adds;
};

/* The row that place `shift` of token i's row shows, or -1. */
template <class T> DEVICE int64_t neighbour(const unfold_args<T> &a, int64_t row, int64_t shift)
{
    const int64_t i = row % a.seq, other = i + shift - a.width / 2, at = row - i + other;
    if (other < 0 || other >= a.seq)
        return -1;
    if (a.segments && (a.segments[row] < 1 || a.segments[row] != a.segments[at]))
        return -1;
    return at;
}

template <class T> KERNEL(UNFOLD_THREADS) unfold_kernel(unfold_args<T> a)
{
    const int64_t e = (int64_t)blockIdx.x * UNFOLD_THREADS + threadIdx.x, each = a.cols * a.width;
    const int64_t row = e / each, place = e % each;
    if (row >= a.rows)
        return;
    const int64_t shown = neighbour(a, row, place % a.width);
    const float x = shown < 0 ? 0.0f : to_float(a.from[shown * a.cols + place / a.width]);
    from_float(a.to[e], x);
}

template <class T> KERNEL(UNFOLD_THREADS) unfold_backward_kernel(unfold_args<T> a)
{
    const int64_t e = (int64_t)blockIdx.x * UNFOLD_THREADS + threadIdx.x;
    const int64_t row = e / a.cols, col = e % a.cols;
    if (row >= a.rows)
        return;
    float sum = a.adds ? to_float(a.to[e]) : 0.0f;
    for (int64_t shift = 0; shift < a.width; shift++) {
        /* who shows this row at `shift` is at the mirrored place of this row */
        const int64_t by = neighbour(a, row, a.width - 1 - shift);
        if (by >= 0)
            sum += to_float(a.from[(by * a.cols + col) * a.width + shift]);
    }
    from_float(a.to[e], sum);
}

template <class T>
static cudaError_t unfold_typed(cudaStream_t stream, const struct zinf_unfold *z, bool backward)
{
    const unfold_args<T> args = {(const T *)(backward ? z->dy : z->x),
                                 (T *)(backward ? z->dx : z->y),
                                 z->segments,
                                 z->batch * z->seq,
                                 z->seq,
                                 z->cols,
                                 z->width,
                                 z->beta_dx != 0.0f};
    const uint64_t n = (uint64_t)(args.rows * z->cols * (backward ? 1 : z->width));
    return launch(backward ? known<unfold_backward_kernel<T>>() : known<unfold_kernel<T>>(),
                  dim3(blocks_for(n, UNFOLD_THREADS)), dim3(UNFOLD_THREADS), 0, stream, args);
}

cudaError_t launch_unfold(cudaStream_t stream, const struct zinf_unfold *z, bool backward)
{
    BY_DTYPE(z->dtype, return unfold_typed<T>(stream, z, backward));
}

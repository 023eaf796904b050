/*
 * rope: rotary position embedding in place, a block a row. The row's cosines and sines are made
 * once, in shared memory, for all its heads; then a thread takes 8 pairs at a time. The frequencies
 * come with the arguments, so that the caller's memory is read before the launch returns.
 */
#include "kernels/cuda/kernel.cuh"

enum { ROPE_THREADS = 128 };

template <class T> struct rope_args {
    T *x;
    const int32_t *positions;
    int64_t head_dim, ld;
    int n_heads, n_pairs;
    float cos_scale, sin_scale, growth;
    int growth_every, growth_ahead;
    bool vector;
    float inv_freq[ZINF_ROPE_MAX_PAIRS];
};

/* Both to 2e-7 for angles up to 1e15: in double the remainder by pi/2 takes no table of its digits,
 * which the library's functions have on a stack, and the series to pi/4 are off by less than float
 * is. */
DEVICE void cosine_and_sine(float angle, float &cosine, float &sine)
{
    const double round = 6755399441055744.0; /* 1.5 2^52: what is added to it loses its fraction */
    const double shifted = (double)angle * 0.63661977236758134 + round, n = shifted - round;
    const double most = fma(n, -1.5707963267948966, (double)angle);
    const float x = (float)fma(n, -6.123233995736766e-17, most), square = x * x;
    float s = fused(square, 2.7557319e-6f, -1.9841270e-4f);
    float c = fused(square, -2.7557319e-7f, 2.4801587e-5f);
    s = fused(s, square, 8.3333333e-3f);
    c = fused(c, square, -1.3888889e-3f);
    s = fused(s, square, -1.6666667e-1f);
    c = fused(c, square, 4.1666667e-2f);
    s = fused(s * square, x, x);
    c = fused(fused(c, square, -0.5f), square, 1.0f);
    uint64_t quadrant;
    memcpy(&quadrant, &shifted, sizeof quadrant);
    const float along = quadrant & 1 ? c : s, across = quadrant & 1 ? s : c;
    sine = quadrant & 2 ? -along : along;
    cosine = (quadrant + 1) & 2 ? -across : across;
}

/* Pairs i .. i + 7 of a head: their 16 elements are two runs of 8, or one of 16. */
template <class T, bool INTERLEAVED>
DEVICE void rotate_each(const rope_args<T> &a, T *head, int i, const float *cosine,
                        const float *sine)
{
    const int left = a.n_pairs - i, step = INTERLEAVED ? 2 : 1;
    T *low = head + step * i, *high = low + (INTERLEAVED ? EACH : a.n_pairs);
    const int n_low = step * left, n_high = INTERLEAVED ? n_low - EACH : left;
    float x[2][EACH];
    load_each(x[0], low, n_low, a.vector);
    load_each(x[1], high, n_high, a.vector);
    UNROLL for (int k = 0; k < EACH; k++)
    {
        const float c = k < left ? cosine[i + k] : 0.0f, s = k < left ? sine[i + k] : 0.0f;
        float &first = INTERLEAVED ? x[k / 4][k % 4 * 2] : x[0][k];
        float &second = INTERLEAVED ? x[k / 4][k % 4 * 2 + 1] : x[1][k];
        const float was = first;
        first = was * c - second * s;
        second = second * c + was * s;
    }
    store_each(low, x[0], n_low, a.vector);
    store_each(high, x[1], n_high, a.vector);
}

template <class T, bool INTERLEAVED> KERNEL(ROPE_THREADS) rope_kernel(rope_args<T> a)
{
    __shared__ float cosine[ZINF_ROPE_MAX_PAIRS], sine[ZINF_ROPE_MAX_PAIRS];
    const int64_t row = blockIdx.x;
    const int t = threadIdx.x, groups = (a.n_pairs + EACH - 1) / EACH;
    const float grown = a.growth != 0.0f ? zinf_rope_growth(a.growth, a.positions[row],
                                                            a.growth_ahead, a.growth_every)
                                         : 1.0f;
    for (int pair = t; pair < a.n_pairs; pair += ROPE_THREADS) {
        const float angle = (float)a.positions[row] * a.inv_freq[pair];
        float c, s;
        cosine_and_sine(angle, c, s);
        cosine[pair] = c * (a.cos_scale * grown);
        sine[pair] = s * (a.sin_scale * grown);
    }
    sync_block();
    for (int unit = t; unit < a.n_heads * groups; unit += ROPE_THREADS)
        rotate_each<T, INTERLEAVED>(a, a.x + row * a.ld + unit / groups * a.head_dim,
                                    unit % groups * EACH, cosine, sine);
}

template <class T> static cudaError_t rope_typed(cudaStream_t stream, const struct zinf_rope *z)
{
    rope_args<T> a = {};
    a.x = (T *)z->x;
    a.positions = z->positions;
    a.head_dim = z->head_dim;
    a.ld = z->ld;
    a.n_heads = (int)z->n_heads;
    a.n_pairs = (int)(z->rotary_dims / 2);
    a.cos_scale = z->scale;
    a.sin_scale = z->backward ? -z->scale : z->scale;
    a.growth = z->growth;
    a.growth_every = (int)z->growth_every;
    a.growth_ahead = (int)z->growth_ahead;
    a.vector = aligned16(z->x) && z->ld % EACH == 0 && z->head_dim % EACH == 0 &&
               (z->interleaved || a.n_pairs % EACH == 0);
    memcpy(a.inv_freq, z->inv_freq, (size_t)a.n_pairs * sizeof *a.inv_freq);
    return launch(z->interleaved ? known<rope_kernel<T, true>>() : known<rope_kernel<T, false>>(),
                  grid_of_rows(z->rows), dim3(ROPE_THREADS), 0, stream, a);
}

cudaError_t launch_rope(cudaStream_t stream, const struct zinf_rope *z)
{
    BY_DTYPE(z->dtype, return rope_typed<T>(stream, z));
}

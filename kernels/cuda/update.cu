/*
 * update: the optimizer where its state is on the GPU, and the squares for the gradient's norm.
 * Both give the CPU's bits (cpu_optim/optim.h): every operation is rounded as it is there, none is
 * fused that is not there, and sums have its order: 16 running sums a block of 4096 elements,
 * which are then halved into each other.
 */
#include "kernels/cuda/kernel.cuh"

enum { ADAM_THREADS = 256, SUM_THREADS = 256, SUM_LANES = 16 };

/* ---- Adam and AdamW ---- */

struct adam_args {
    struct zinf_adam z;
    bool vector;
};

DEVICE float canonical(float x)
{
    const uint32_t nan = 0x7fc00000u;
    if (x != x)
        memcpy(&x, &nan, sizeof x);
    return x;
}

DEVICE float join_master(uint16_t param, uint16_t remainder)
{
    uint32_t bits = ((uint32_t)param << 16) + (uint32_t)(int32_t)(int16_t)remainder;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

DEVICE void split_master(uint16_t &param, uint16_t &remainder, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    param = (uint16_t)((bits + 0x8000u) >> 16);
    remainder = (uint16_t)bits;
}

/* 8 halves as they are, with 16-byte accesses where they can be. */
DEVICE void load_halves(uint16_t (&to)[EACH], const uint16_t *from, int64_t count, bool vector)
{
    if (vector && count >= EACH) {
        words4 raw = *(const words4 *)(const void *)from;
        memcpy(to, &raw, sizeof raw);
        return;
    }
    UNROLL for (int k = 0; k < EACH; k++)
        to[k] = k < count ? from[k] : (uint16_t)0;
}

DEVICE void store_halves(uint16_t *to, const uint16_t (&from)[EACH], int64_t count, bool vector)
{
    if (vector && count >= EACH) {
        words4 raw;
        memcpy(&raw, from, sizeof raw);
        *(words4 *)(void *)to = raw;
        return;
    }
    UNROLL for (int k = 0; k < EACH; k++)
        if (k < count)
            to[k] = from[k];
}

DEVICE void adam_element(const struct zinf_adam &z, float g, float &p, float &m, float &v)
{
    g = product(g, z.grad_scale);
    if (z.decay && !z.decoupled)
        g = fused(z.weight_decay, p, g);
    m = fused(z.one_minus_beta1, g, product(z.beta1, m));
    v = fused(z.one_minus_beta2, product(g, g), product(z.beta2, v));
    float d = fused(root(v), z.root_correction, z.eps);
    if (z.decay && z.decoupled)
        p = fused(-z.lr_decay, p, p);
    p = canonical(fused(-z.step_size, quotient(m, d), p));
    m = canonical(m);
    v = canonical(v);
}

/* T: the parameter's type beside a whole master; SPLIT: it is the master's upper half. */
template <class T, bool SPLIT> KERNEL(ADAM_THREADS) adam_kernel(adam_args a)
{
    const struct zinf_adam &z = a.z;
    uint64_t i = ((uint64_t)blockIdx.x * ADAM_THREADS + threadIdx.x) * EACH;
    float p[EACH], m[EACH], v[EACH], g[EACH];
    uint16_t high[EACH], low[EACH];
    if (i >= z.n)
        return;
    const int64_t left = (int64_t)(z.n - i);
    load_each(g, z.grad + i, left, a.vector);
    load_each(m, z.moment1 + i, left, a.vector);
    load_each(v, z.moment2 + i, left, a.vector);
    if (SPLIT) {
        load_halves(high, (const uint16_t *)z.param + i, left, a.vector);
        load_halves(low, z.remainder + i, left, a.vector);
        UNROLL for (int k = 0; k < EACH; k++)
            p[k] = join_master(high[k], low[k]);
    } else {
        load_each(p, z.master + i, left, a.vector);
    }
    UNROLL for (int k = 0; k < EACH; k++)
        adam_element(z, g[k], p[k], m[k], v[k]);
    store_each(z.moment1 + i, m, left, a.vector);
    store_each(z.moment2 + i, v, left, a.vector);
    if (SPLIT) {
        UNROLL for (int k = 0; k < EACH; k++)
            split_master(high[k], low[k], p[k]);
        store_halves((uint16_t *)z.param + i, high, left, a.vector);
        store_halves(z.remainder + i, low, left, a.vector);
        return;
    }
    store_each(z.master + i, p, left, a.vector);
    if (z.param)
        store_params((T *)z.param + i, p, left, a.vector);
}

template <class T, bool SPLIT>
static cudaError_t adam_typed(cudaStream_t stream, const struct zinf_adam *z)
{
    adam_args args = {*z, aligned16(z->grad) && aligned16(z->moment1) && aligned16(z->moment2) &&
                              aligned16(z->master) && aligned16(z->remainder) &&
                              aligned16(z->param)};
    return launch(known<adam_kernel<T, SPLIT>>(),
                  dim3(blocks_for(z->n, (uint64_t)ADAM_THREADS * EACH)), dim3(ADAM_THREADS), 0,
                  stream, args);
}

cudaError_t launch_adam(cudaStream_t stream, const struct zinf_adam *z)
{
    if (!z->master)
        return adam_typed<bf16, true>(stream, z);
    BY_DTYPE(z->dtype, return (adam_typed<T, false>(stream, z)));
}

/* ---- squares ---- */

struct sum_args {
    double *parts;
    const float *x;
    uint64_t n;
};

/* Half a warp a part. */
KERNEL(SUM_THREADS) sum_squares_kernel(sum_args a)
{
    const int lane = threadIdx.x % SUM_LANES;
    const uint64_t part =
        (uint64_t)blockIdx.x * (SUM_THREADS / SUM_LANES) + threadIdx.x / SUM_LANES;
    const uint64_t first = part * ZINF_SUM_BLOCK;
    double sum = 0.0;
    /* A square of fp32 is exact, so that a fused addition rounds as the CPU's does. */
    UNROLL_16 for (int k = 0; k < ZINF_SUM_BLOCK; k += SUM_LANES)
    {
        uint64_t i = first + k + lane;
        double x = i < a.n ? (double)a.x[i] : 0.0;
        sum += x * x;
    }
    UNROLL for (int half = SUM_LANES / 2; half; half /= 2)
        sum += shuffle_xor(sum, half);
    if (lane == 0 && first < a.n)
        a.parts[part] = sum;
}

cudaError_t launch_sum_squares(cudaStream_t stream, double *parts, const float *x, uint64_t n)
{
    sum_args args = {parts, x, n};
    uint64_t n_parts = (n + ZINF_SUM_BLOCK - 1) / ZINF_SUM_BLOCK;
    return launch(known<sum_squares_kernel>(), dim3(blocks_for(n_parts, SUM_THREADS / SUM_LANES)),
                  dim3(SUM_THREADS), 0, stream, args);
}

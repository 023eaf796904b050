/* noise: uniform noise by counter, the host's numbers, 8 elements a thread. */
#include "kernels/cuda/philox.cuh"

enum { NOISE_THREADS = 256 };

template <class T> struct noise_args {
    T *x;
    uint64_t n;
    dropout_rule rule;
    float magnitude;
    bool vector;
};

/* u of elements first .. first + EACH - 1 counted from the step's first element. */
DEVICE void noise_of(float (&u)[EACH], const dropout_rule &rule, uint64_t first)
{
    const uint64_t e = rule.first + first;
    uint64_t have = ~(uint64_t)0;
    uint32_t words[4] = {};
    UNROLL for (int k = 0; k < EACH; k++)
    {
        if ((e + k) / 4 != have) {
            have = (e + k) / 4;
            philox_block(words, rule, have);
        }
        const uint32_t i = (uint32_t)((e + k) % 4);
        const uint32_t word = i < 2 ? (i ? words[1] : words[0]) : (i == 2 ? words[2] : words[3]);
        u[k] = 2.0f * ((float)(word >> 8) * 5.9604644775390625e-8f) - 1.0f; /* 2^-24 */
    }
}

template <class T> KERNEL(NOISE_THREADS) noise_kernel(noise_args<T> a)
{
    const uint64_t i = ((uint64_t)blockIdx.x * NOISE_THREADS + threadIdx.x) * EACH;
    float x[EACH], u[EACH];
    if (i >= a.n)
        return;
    const int64_t left = (int64_t)(a.n - i);
    load_each(x, a.x + i, left, a.vector);
    noise_of(u, a.rule, i);
    UNROLL for (int k = 0; k < EACH; k++) x[k] += product(a.magnitude, u[k]);
    store_each(a.x + i, x, left, a.vector);
}

template <class T> static cudaError_t noise_typed(cudaStream_t stream, const struct zinf_noise *z)
{
    noise_args<T> args = {(T *)z->x, (uint64_t)z->n, dropout_rule_of(z->random), z->magnitude,
                          aligned16(z->x)};
    return launch(known<noise_kernel<T>>(), dim3(blocks_for((uint64_t)z->n, NOISE_THREADS * EACH)),
                  dim3(NOISE_THREADS), 0, stream, args);
}

cudaError_t launch_noise(cudaStream_t stream, const struct zinf_noise *z)
{
    BY_DTYPE(z->dtype, return noise_typed<T>(stream, z));
}

/*
 * elementwise: conversion, sums, residual with dropout, activations. One thread takes 8 elements
 * with 16-byte accesses; where an address is not aligned, and at the end, it takes them one by
 * one. In-place use is safe: a thread reads all it needs before it writes.
 */
#include "kernels/cuda/activation.cuh"
#include "kernels/cuda/residual.cuh"

#include <type_traits>

enum { THREADS = 256 };

/* The first of this thread's elements. */
DEVICE uint64_t first_element()
{
    return ((uint64_t)blockIdx.x * THREADS + threadIdx.x) * EACH;
}

static dim3 flat_grid(uint64_t n)
{
    return dim3(blocks_for(n, (uint64_t)THREADS * EACH));
}

/* ---- convert and add ---- */

template <class To, class From> struct convert_args {
    To *dst;
    const From *src;
    uint64_t n;
    bool vector;
};

template <class To, class From> KERNEL(THREADS) convert_kernel(convert_args<To, From> a)
{
    uint64_t i = first_element();
    float x[EACH];
    if (i >= a.n)
        return;
    load_each(x, a.src + i, (int64_t)(a.n - i), a.vector);
    store_params(a.dst + i, x, (int64_t)(a.n - i), a.vector);
}

template <class To, class From>
static cudaError_t convert_typed(cudaStream_t stream, void *dst, const void *src, uint64_t n)
{
    if constexpr (std::is_same<To, From>::value) { /* the caller copies */
        return cudaErrorInvalidValue;
    } else {
        convert_args<To, From> args = {(To *)dst, (const From *)src, n,
                                       aligned16(dst) && aligned16(src)};
        return launch(known<convert_kernel<To, From>>(), flat_grid(n), dim3(THREADS), 0, stream,
                      args);
    }
}

template <class From>
static cudaError_t convert_from(cudaStream_t stream, void *dst, enum zinf_dtype dst_dtype,
                                const void *src, uint64_t n)
{
    BY_DTYPE(dst_dtype, return (convert_typed<T, From>(stream, dst, src, n)));
}

cudaError_t launch_convert(cudaStream_t stream, void *dst, enum zinf_dtype dst_dtype,
                           const void *src, enum zinf_dtype src_dtype, uint64_t n)
{
    BY_DTYPE(src_dtype, return convert_from<T>(stream, dst, dst_dtype, src, n));
}

struct add_args {
    float *dst;
    const float *src;
    uint64_t n;
    bool vector;
};

KERNEL(THREADS) add_kernel(add_args a)
{
    uint64_t i = first_element();
    float x[EACH], y[EACH];
    if (i >= a.n)
        return;
    load_each(x, a.dst + i, (int64_t)(a.n - i), a.vector);
    load_each(y, a.src + i, (int64_t)(a.n - i), a.vector);
    UNROLL for (int k = 0; k < EACH; k++) x[k] += y[k];
    store_each(a.dst + i, x, (int64_t)(a.n - i), a.vector);
}

cudaError_t launch_add(cudaStream_t stream, float *dst, const float *src, uint64_t n)
{
    add_args args = {dst, src, n, aligned16(dst) && aligned16(src)};
    return launch(known<add_kernel>(), flat_grid(n), dim3(THREADS), 0, stream, args);
}

/* ---- residual and dropout ---- */

template <class T> struct residual_args {
    residual_rule<T> sum;
    uint64_t n;
    bool vector;
};

template <class T> KERNEL(THREADS) residual_kernel(residual_args<T> a)
{
    uint64_t i = first_element();
    float x[EACH] = {}, r[EACH];
    if (i >= a.n)
        return;
    int64_t left = (int64_t)(a.n - i);
    load_each(r, a.sum.r + i, left, a.vector);
    if (a.sum.x)
        load_each(x, a.sum.x + i, left, a.vector);
    residual_of(a.sum, i, x, r);
    store_each(a.sum.y + i, x, left, a.vector);
}

template <class T>
static cudaError_t residual_typed(cudaStream_t stream, const struct zinf_residual *z, const void *x)
{
    const residual_args<T> args = {residual_rule_of<T>(z, x), (uint64_t)z->n,
                                   aligned16(x) && aligned16(z->r) && aligned16(z->y)};
    return launch(known<residual_kernel<T>>(), flat_grid(args.n), dim3(THREADS), 0, stream, args);
}

cudaError_t launch_residual(cudaStream_t stream, const struct zinf_residual *args, const void *x)
{
    BY_DTYPE(args->dtype, return residual_typed<T>(stream, args, x));
}

/* ---- activations ---- */

/* Forward: y = f(x), dy NULL. Backward: dx = dy f'(x), y = f(x) where it is wanted. */
template <class T> struct activation_args {
    const T *x, *dy;
    T *y, *dx;
    uint64_t n;
    bool vector;
};

template <class T, int KIND> KERNEL(THREADS) activation_kernel(activation_args<T> a)
{
    uint64_t i = first_element();
    float x[EACH], gradient[EACH], slope;
    if (i >= a.n)
        return;
    int64_t left = (int64_t)(a.n - i);
    load_each(x, a.x + i, left, a.vector);
    if (!a.dy) { /* no slope is needed */
        UNROLL for (int k = 0; k < EACH; k++) x[k] = activate<KIND, sizeof(T) == 2>(x[k], slope);
        store_each(a.y + i, x, left, a.vector);
        return;
    }
    load_each(gradient, a.dy + i, left, a.vector);
    UNROLL for (int k = 0; k < EACH; k++)
    {
        const float value = activate<KIND, sizeof(T) == 2>(x[k], slope);
        gradient[k] *= slope;
        x[k] = value;
    }
    store_each(a.dx + i, gradient, left, a.vector);
    if (a.y)
        store_each(a.y + i, x, left, a.vector);
}

template <class T>
static cudaError_t activation_typed(cudaStream_t stream, enum zinf_activation kind, void *y,
                                    void *dx, const void *dy, const void *x, uint64_t n)
{
    bool vector = aligned16(y) && aligned16(dx) && aligned16(dy) && aligned16(x);
    activation_args<T> args = {(const T *)x, (const T *)dy, (T *)y, (T *)dx, n, vector};
    const kernel_of<activation_args<T>> kernels[] = {
        known<activation_kernel<T, ZINF_ACTIVATION_GELU_TANH>>(),
        known<activation_kernel<T, ZINF_ACTIVATION_GELU_ERF>>(),
        known<activation_kernel<T, ZINF_ACTIVATION_SILU>>(),
        known<activation_kernel<T, ZINF_ACTIVATION_RELU>>(),
        known<activation_kernel<T, ZINF_ACTIVATION_TANH>>(),
        known<activation_kernel<T, ZINF_ACTIVATION_RELU_SQUARED>>(),
        known<activation_kernel<T, ZINF_ACTIVATION_CLAMPED_SWISH>>(),
        known<activation_kernel<T, ZINF_ACTIVATION_SIGMOID>>(),
        known<activation_kernel<T, ZINF_ACTIVATION_IDENTITY>>(),
    };
    return launch(kernels[kind], flat_grid(n), dim3(THREADS), 0, stream, args);
}

cudaError_t launch_activation(cudaStream_t stream, enum zinf_activation kind, enum zinf_dtype dtype,
                              void *y, const void *x, uint64_t n)
{
    BY_DTYPE(dtype, return activation_typed<T>(stream, kind, y, NULL, NULL, x, n));
}

cudaError_t launch_activation_backward(cudaStream_t stream, enum zinf_activation kind,
                                       enum zinf_dtype dtype, void *dx, const void *dy,
                                       const void *x, void *y_out, uint64_t n)
{
    BY_DTYPE(dtype, return activation_typed<T>(stream, kind, y_out, dx, dy, x, n));
}

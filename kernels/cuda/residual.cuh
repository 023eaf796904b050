/* residual: the sum of a row and a branch behind its dropout, for the kernel of that alone and for
 * the one that also normalises what it makes: the same bits in both. */
#ifndef ZINF_CUDA_RESIDUAL_CUH
#define ZINF_CUDA_RESIDUAL_CUH

#include "kernels/cuda/philox.cuh"

template <class T> struct residual_rule {
    const T *x, *r; /* x NULL: plain dropout */
    T *y;
    dropout_rule rule;
    float scale;
    bool drops;
};

template <class T>
static residual_rule<T> residual_rule_of(const struct zinf_residual *z, const void *x)
{
    return residual_rule<T>{(const T *)x,
                            (const T *)z->r,
                            (T *)z->y,
                            dropout_rule_of(z->dropout),
                            zinf_residual_scale(z),
                            z->dropout.p > 0.0f};
}

/* x += scale dropout(r), of the elements from e on. */
template <class T>
DEVICE void residual_of(const residual_rule<T> &a, uint64_t e, float (&x)[EACH],
                        const float (&r)[EACH])
{
    float factors[EACH];
    if (a.drops) {
        dropout_factors(factors, a.rule, e);
        UNROLL for (int k = 0; k < EACH; k++) x[k] = fused(r[k], factors[k] * a.scale, x[k]);
    } else {
        UNROLL for (int k = 0; k < EACH; k++) x[k] = fused(r[k], a.scale, x[k]);
    }
}

#endif

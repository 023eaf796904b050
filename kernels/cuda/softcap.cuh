/* softcap: cap tanh(x / cap) and its slope, for scores of attention and for logits. */
#ifndef ZINF_CUDA_SOFTCAP_CUH
#define ZINF_CUDA_SOFTCAP_CUH

#include "kernels/cuda/kernel.cuh"

/* As tanh_f32 of kernels/host_math.h, without a branch: near 0 a polynomial, 1e-7 relative, where
 * the other formula would cancel. NaN stays; exp2 of what is large is infinite, and its reciprocal
 * 0. */
DEVICE float tanh_near(float x)
{
    const float size = fabsf(x), square = x * x;
    float p = -5.70497755e-3f;
    p = p * square + 2.06390787e-2f;
    p = p * square - 5.37397116e-2f;
    p = p * square + 1.33314416e-1f;
    p = p * square - 3.33332807e-1f;
    const float beyond = 1.0f - 2.0f * reciprocal_near(exp2_near(size * 2.88539008f) + 1.0f);
    return either(size < 0.625f, x + x * square * p, copysignf(beyond, x));
}

/* cap tanh(x inverse_cap); slope: its derivative by x. */
DEVICE float softcap_of(float x, float cap, float inverse_cap, float &slope)
{
    const float t = tanh_near(x * inverse_cap);
    slope = 1.0f - t * t;
    return cap * t;
}

#endif

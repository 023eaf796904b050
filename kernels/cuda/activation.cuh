/* activation: the functions of enum zinf_activation and their slopes, for plain and gated units. */
#ifndef ZINF_CUDA_ACTIVATION_CUH
#define ZINF_CUDA_ACTIVATION_CUH

#include "kernels/cuda/softcap.cuh"

/* f(x), and the slope f'(x). The exponent is capped so that e s stays finite. */
DEVICE float sigmoid(float x, float &e)
{
    float minus = -x > 80.0f ? 80.0f : -x;
    e = expf(minus);
    return 1.0f / (1.0f + e);
}

template <int KIND> DEVICE float activate(float x, float &slope)
{
    if (KIND == ZINF_ACTIVATION_GELU_TANH) { /* 0.5 (1 + tanh u) = sigmoid(2u) */
        const float c = 0.797884561f, k = 0.044715f;
        float e, s = sigmoid(2.0f * c * (x + k * x * x * x), e);
        slope = s + x * (s * s * e) * (2.0f * c) * (1.0f + 3.0f * k * x * x);
        return x * s;
    }
    if (KIND == ZINF_ACTIVATION_GELU_ERF) {
        float share = 0.5f * erfcf(x * -0.707106781f);
        slope = share + x * (0.398942280f * expf(-0.5f * x * x));
        return x * share;
    }
    if (KIND == ZINF_ACTIVATION_SILU) {
        float e, s = sigmoid(x, e);
        slope = s + x * (s * s * e);
        return x * s;
    }
    if (KIND == ZINF_ACTIVATION_TANH)
        return softcap_of(x, 1.0f, 1.0f, slope);
    slope = x > 0.0f ? 1.0f : 0.0f;
    return x < 0.0f ? 0.0f : x; /* NaN stays */
}

#endif

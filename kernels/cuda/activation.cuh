/* activation: the functions of enum zinf_activation and their slopes, for plain and gated units. */
#ifndef ZINF_CUDA_ACTIVATION_CUH
#define ZINF_CUDA_ACTIVATION_CUH

#include "kernels/cuda/softcap.cuh"

/* The exponent is capped so that e s stays finite. NEAR: by the special units, to 8e-6 of the
 * result at the exponent's cap and 4e-7 where the result is not small; 16-bit types round to 5e-4
 * or more.
 */
template <bool NEAR> DEVICE float sigmoid(float x, float &e)
{
    float minus = -x > 80.0f ? 80.0f : -x;
    if (NEAR) {
        e = exp2_near(minus * 1.44269504f);
        return reciprocal_near(1.0f + e);
    }
    e = expf(minus);
    return 1.0f / (1.0f + e);
}

/* f(x), and the slope f'(x). */
template <int KIND, bool NEAR> DEVICE float activate(float x, float &slope)
{
    if (KIND == ZINF_ACTIVATION_GELU_TANH) { /* 0.5 (1 + tanh u) = sigmoid(2u) */
        const float c = 0.797884561f, k = 0.044715f;
        float e, s = sigmoid<NEAR>(2.0f * c * (x + k * x * x * x), e);
        slope = s + x * (s * s * e) * (2.0f * c) * (1.0f + 3.0f * k * x * x);
        return x * s;
    }
    if (KIND == ZINF_ACTIVATION_GELU_ERF) {
        float share = 0.5f * erfcf(x * -0.707106781f);
        slope = share + x * (0.398942280f * expf(-0.5f * x * x));
        return x * share;
    }
    if (KIND == ZINF_ACTIVATION_SILU) {
        float e, s = sigmoid<NEAR>(x, e);
        slope = s + x * (s * s * e);
        return x * s;
    }
    if (KIND == ZINF_ACTIVATION_SIGMOID) {
        float e, s = sigmoid<NEAR>(x, e);
        slope = s * s * e;
        return s;
    }
    if (KIND == ZINF_ACTIVATION_IDENTITY) {
        slope = 1.0f;
        return x;
    }
    if (KIND == ZINF_ACTIVATION_TANH)
        return softcap_of(x, 1.0f, 1.0f, slope);
    if (KIND == ZINF_ACTIVATION_CLAMPED_SWISH) {
        const bool beyond = x > ZINF_CLAMPED_SWISH_LIMIT;
        const float c = beyond ? ZINF_CLAMPED_SWISH_LIMIT : x;
        float e, s = sigmoid<NEAR>(ZINF_CLAMPED_SWISH_ALPHA * c, e);
        slope = beyond ? 0.0f : s + ZINF_CLAMPED_SWISH_ALPHA * c * (s * s * e);
        return c * s;
    }
    if (KIND == ZINF_ACTIVATION_RELU_SQUARED) {
        const float above = x < 0.0f ? 0.0f : x;
        slope = 2.0f * above;
        return above * above;
    }
    slope = x > 0.0f ? 1.0f : 0.0f;
    return x < 0.0f ? 0.0f : x; /* NaN stays */
}

/* What f(gate) is multiplied by. */
template <int KIND> DEVICE float factor_of(float up, float &slope)
{
    slope = 1.0f;
    if (KIND != ZINF_ACTIVATION_CLAMPED_SWISH)
        return up;
    const float most = up > ZINF_CLAMPED_SWISH_LIMIT ? ZINF_CLAMPED_SWISH_LIMIT : up;
    const float kept = most < -ZINF_CLAMPED_SWISH_LIMIT ? -ZINF_CLAMPED_SWISH_LIMIT : most;
    slope = kept == up ? 1.0f : 0.0f;
    return 1.0f + kept;
}

#endif

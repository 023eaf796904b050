/*
 * host_math: exp, sine, and the normal distribution as polynomials without branches, which the
 * compiler vectorises in loops. The relative error is about 1e-7. NaN stays NaN, so that an
 * overflow in training remains visible.
 */
#ifndef ZINF_HOST_MATH_H
#define ZINF_HOST_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

/* Adding 1.5 * 2^23 rounds to an integer and leaves it in the low bits. */
#define MATH_ROUND 12582912.0f

/* exp(x) 2^-n, for the integer n next to x / ln 2. */
static inline float exp_rest_f32(float x, float n)
{
    float r = x - n * 0.693359375f; /* ln 2 in two parts, of which the first product is exact */
    r = r + n * 2.12194440e-4f;
    float p = 1.38146e-3f;
    p = p * r + 8.36872e-3f;
    p = p * r + 4.166839e-2f;
    p = p * r + 0.16666521f;
    p = p * r + 0.49999993f;
    return p * r * r + r + 1.0f;
}

/* 2^n of n + MATH_ROUND, for n from -126 to 127. */
static inline float power_of_two(float shifted)
{
    uint32_t bits;
    float power;
    memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000u;
    memcpy(&power, &bits, sizeof power);
    return power;
}

/* exp(x): 0 below the smallest normal number, infinity above 88.3. */
static inline float exp_f32(float x)
{
    float shifted = x * 1.44269504f + MATH_ROUND;
    float y = exp_rest_f32(x, shifted - MATH_ROUND) * power_of_two(shifted);
    y = x < -87.3f ? 0.0f : y;
    return x > 88.3f ? INFINITY : y;
}

/* Up to so much n ln 2 is exact in fp32 as exp_rest_f32 computes it. */
#define MATH_FAR 16384.0f

/* The integer next to x / ln 2. */
static inline float exponent_f32(float x)
{
    return x * 1.44269504f + MATH_ROUND - MATH_ROUND;
}

/* 2^n for an integer n of at most 0; 0 below the smallest normal number. */
static inline float shrink_f32(float n)
{
    const float power = power_of_two(n + MATH_ROUND);
    return n < -126.0f ? 0.0f : power;
}

/* exp(x) 2^-base of |x| up to MATH_FAR, for an integer base that is at least exponent_f32(x): other
 * bases give the same digits. 0 as shrink_f32. */
static inline float exp_above_f32(float x, float base)
{
    const float n = exponent_f32(x), power = power_of_two(n - base + MATH_ROUND);
    const float y = exp_rest_f32(x, n) * power;
    return n - base < -126.0f ? 0.0f : y;
}

/* exp(-x^2) and erfc(|x|) = t Q(t) exp(-x^2), t = 1 / (1 + 0.4 |x|); Q by weighted least squares,
 * 8e-9 relative over [0, 10]. */
static inline float erfc_abs_f32(float x, float *gauss)
{
    float t = 1.0f / (1.0f + 0.4f * fabsf(x));
    float q = -0.029594002f;
    q = q * t + 0.198011481f;
    q = q * t - 0.498807628f;
    q = q * t + 0.547430574f;
    q = q * t - 0.284362881f;
    q = q * t + 0.272064322f;
    q = q * t + 0.129680219f;
    q = q * t + 0.214918978f;
    q = q * t + 0.224952035f;
    q = q * t + 0.225706909f;
    *gauss = exp_f32(-x * x);
    return t * q * *gauss;
}

/* The probability that a standard normal number is below x, and its density. */
static inline float normal_cdf_f32(float x, float *density)
{
    float gauss;
    float half = 0.5f * erfc_abs_f32(x * 0.707106781f, &gauss);
    *density = 0.398942280f * gauss;
    return x < 0.0f ? half : 1.0f - half;
}

/* 1 / (1 + exp(-x)), and exp(-x) in *e; the exponent is limited so that e times the result is
 * finite. */
static inline float sigmoid_f32(float x, float *e)
{
    float minus = -x > 80.0f ? 80.0f : -x;
    *e = exp_f32(minus);
    return 1.0f / (1.0f + *e);
}

/* An odd polynomial near 0 (weighted least squares, 5e-9 relative), where the other formula would
 * cancel. */
static inline float tanh_f32(float x)
{
    const float size = fabsf(x), square = x * x;
    float p = -5.70497755e-3f;
    p = p * square + 2.06390787e-2f;
    p = p * square - 5.37397116e-2f;
    p = p * square + 1.33314416e-1f;
    p = p * square - 3.33332807e-1f;
    float beyond = 1.0f - 2.0f / (exp_f32(2.0f * (size > 20.0f ? 20.0f : size)) + 1.0f);
    return size < 0.625f ? x + x * square * p : copysignf(beyond, x);
}

/* Errors are at most 2e-7 for |x| up to 1e8: in double the remainder by pi/2 needs no further parts
 * of pi, and the series from -pi/4 to pi/4 are accurate to 1e-10. */
static inline void sin_cos_f32(float x, float *sin, float *cos)
{
    /* As in exp_f32: rounds to an integer, whose low bits are the quadrant. */
    const double round = 6755399441055744.0;
    double shifted = (double)x * 0.63661977236758134 + round, n = shifted - round;
    double r = (double)x - n * 1.5707963267948966, square = r * r;
    double s = -1.0 / 39916800.0, c = -1.0 / 3628800.0;
    s = s * square + 1.0 / 362880.0;
    c = c * square + 1.0 / 40320.0;
    s = s * square - 1.0 / 5040.0;
    c = c * square - 1.0 / 720.0;
    s = s * square + 1.0 / 120.0;
    c = c * square + 1.0 / 24.0;
    s = s * square - 1.0 / 6.0;
    c = c * square - 0.5;
    s = s * square * r + r;
    c = c * square + 1.0;
    uint64_t quadrant;
    memcpy(&quadrant, &shifted, sizeof quadrant);
    double along = quadrant & 1 ? c : s, across = quadrant & 1 ? s : c;
    *sin = (float)(quadrant & 2 ? -along : along);
    *cos = (float)((quadrant + 1) & 2 ? -across : across);
}

#endif

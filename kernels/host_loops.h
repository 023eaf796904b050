/*
 * host_loops: elementwise and row loops of host_simd.h, to be included once by each per-ISA file
 * after it has defined f16_to_f32(), f16_from_f32() and philox_blocks().
 */
#include "kernels/host_math.h"

static void loop_to_f32(float *dst, const void *src, enum zinf_dtype dtype, size_t n)
{
    const uint16_t *half = src;
    if (dtype == ZINF_DTYPE_F32) {
        memcpy(dst, src, n * sizeof *dst);
    } else if (dtype == ZINF_DTYPE_F16) {
        f16_to_f32(dst, half, n);
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dst[i] = zinf_bf16_to_f32(half[i]);
    }
}

static void loop_from_f32(void *dst, enum zinf_dtype dtype, const float *src, size_t n)
{
    uint16_t *half = dst;
    if (dtype == ZINF_DTYPE_F32) {
        memcpy(dst, src, n * sizeof *src);
    } else if (dtype == ZINF_DTYPE_F16) {
        f16_from_f32(half, src, n);
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            half[i] = zinf_bf16_from_f32(src[i]);
    }
}

static void loop_add(float *dst, const float *src, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] += src[i];
}

static void loop_add_scaled(float *dst, const float *src, float scale, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        dst[i] += scale * src[i];
}

static void loop_multiply(float *y, const float *a, const float *b, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = a[i] * b[i];
}

static void loop_multiply_add(float *y, const float *x, const float *a, const float *b, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] + a[i] * b[i];
}

/* ---- dropout ---- */

static void loop_dropout_factors(float *factors, const struct zinf_dropout *dropout,
                                 uint64_t element, size_t n)
{
    /* uniform >= p, with both sides times 2^24: the same comparison in integers, exactly. */
    const int32_t threshold = (int32_t)ceilf(dropout->p * 0x1p24f);
    const float keep = 1.0f / (1.0f - dropout->p);
    uint32_t words[4 * PHILOX_BLOCKS];
    for (size_t done = 0; done < n;) {
        const size_t skip = (element + done) % 4, room = 4 * PHILOX_BLOCKS - skip;
        const size_t count = n - done < room ? n - done : room;
        philox_blocks(words, dropout, (element + done) / 4);
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            factors[done + i] = (int32_t)(words[skip + i] >> 8) >= threshold ? keep : 0.0f;
        done += count;
    }
}

/* ---- activations ---- */

/* f(x), and f'(x) in *slope. The compiler drops what is not used. */
static inline float gelu_tanh_f32(float x, float *slope)
{
    /* 0.5 (1 + tanh u) = sigmoid(2u) */
    const float c = 0.797884561f, k = 0.044715f;
    float e, s = sigmoid_f32(2.0f * c * (x + k * x * x * x), &e);
    *slope = s + x * (s * s * e) * (2.0f * c) * (1.0f + 3.0f * k * x * x);
    return x * s;
}

static inline float gelu_erf_f32(float x, float *slope)
{
    float density, share = normal_cdf_f32(x, &density);
    *slope = share + x * density;
    return x * share;
}

static inline float silu_f32(float x, float *slope)
{
    float e, s = sigmoid_f32(x, &e);
    *slope = s + x * (s * s * e);
    return x * s;
}

static inline float identity_f32(float x, float *slope)
{
    *slope = 1.0f;
    return x;
}

static inline float relu_f32(float x, float *slope)
{
    *slope = x > 0.0f ? 1.0f : 0.0f;
    return x < 0.0f ? 0.0f : x; /* NaN stays */
}

/* tanh, with its slope. */
static inline float bounded_f32(float x, float *slope)
{
    const float t = tanh_f32(x);
    *slope = 1.0f - t * t;
    return t;
}

static inline float relu_squared_f32(float x, float *slope)
{
    const float above = x < 0.0f ? 0.0f : x;
    *slope = 2.0f * above;
    return above * above;
}

static inline float clamped_swish_f32(float x, float *slope)
{
    const float c = x > ZINF_CLAMPED_SWISH_LIMIT ? ZINF_CLAMPED_SWISH_LIMIT : x;
    float e, s = sigmoid_f32(ZINF_CLAMPED_SWISH_ALPHA * c, &e);
    const float inner = s + ZINF_CLAMPED_SWISH_ALPHA * c * (s * s * e);
    *slope = x > ZINF_CLAMPED_SWISH_LIMIT ? 0.0f : inner;
    return c * s;
}

static inline float logistic_f32(float x, float *slope)
{
    float e, s = sigmoid_f32(x, &e);
    *slope = s * s * e;
    return s;
}

/* The factor of f(gate): up, or up clamped and plus 1; with its slope. */
static inline float plain_up_f32(float up, float *slope)
{
    *slope = 1.0f;
    return up;
}

static inline float clamped_up_f32(float up, float *slope)
{
    const float most = up > ZINF_CLAMPED_SWISH_LIMIT ? ZINF_CLAMPED_SWISH_LIMIT : up;
    const float kept = most < -ZINF_CLAMPED_SWISH_LIMIT ? -ZINF_CLAMPED_SWISH_LIMIT : most;
    *slope = kept == up ? 1.0f : 0.0f;
    return 1.0f + kept;
}

#define ACTIVATION_LOOPS(name, factor)                                                             \
    static void name##_loop(float *y, const float *x, size_t n)                                    \
    {                                                                                              \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                         \
        {                                                                                          \
            float slope;                                                                           \
            y[i] = name##_f32(x[i], &slope);                                                       \
        }                                                                                          \
    }                                                                                              \
    static void name##_gradient_loop(float *dx, const float *dy, const float *x, size_t n)         \
    {                                                                                              \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                         \
        {                                                                                          \
            float slope;                                                                           \
            name##_f32(x[i], &slope);                                                              \
            dx[i] = dy[i] * slope;                                                                 \
        }                                                                                          \
    }                                                                                              \
    static void name##_both_loop(float *dx, float *y, const float *dy, const float *x, size_t n)   \
    {                                                                                              \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                         \
        {                                                                                          \
            float slope, value = name##_f32(x[i], &slope), gradient = dy[i] * slope;               \
            y[i] = value;                                                                          \
            dx[i] = gradient;                                                                      \
        }                                                                                          \
    }                                                                                              \
    static void name##_gated_loop(float *y, const float *gate, const float *up, size_t n)          \
    {                                                                                              \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                         \
        {                                                                                          \
            float slope, up_slope;                                                                 \
            y[i] = name##_f32(gate[i], &slope) * factor(up[i], &up_slope);                         \
        }                                                                                          \
    }                                                                                              \
    static void name##_gated_gradient_loop(const struct host_gated *g, size_t n)                   \
    {                                                                                              \
        const float *gate = g->gate, *up = g->up, *dy = g->dy;                                     \
        float *d_gate = g->d_gate, *d_up = g->d_up, *y = g->y;                                     \
        _Pragma("omp simd") for (size_t i = 0; i < n; i++)                                         \
        {                                                                                          \
            float slope, value = name##_f32(gate[i], &slope), gradient = dy[i];                    \
            float up_slope, above = factor(up[i], &up_slope);                                      \
            d_gate[i] = gradient * above * slope;                                                  \
            d_up[i] = gradient * value * up_slope;                                                 \
            y[i] = value * above;                                                                  \
        }                                                                                          \
    }
ACTIVATION_LOOPS(gelu_tanh, plain_up_f32)
ACTIVATION_LOOPS(gelu_erf, plain_up_f32)
ACTIVATION_LOOPS(silu, plain_up_f32)
ACTIVATION_LOOPS(relu, plain_up_f32)
ACTIVATION_LOOPS(bounded, plain_up_f32)
ACTIVATION_LOOPS(relu_squared, plain_up_f32)
ACTIVATION_LOOPS(clamped_swish, clamped_up_f32)
ACTIVATION_LOOPS(logistic, plain_up_f32)
ACTIVATION_LOOPS(identity, plain_up_f32)

static void loop_activation(enum zinf_activation kind, float *y, const float *x, size_t n)
{
    static void (*const loops[])(float *, const float *, size_t) = {
        [ZINF_ACTIVATION_GELU_TANH] = gelu_tanh_loop,
        [ZINF_ACTIVATION_GELU_ERF] = gelu_erf_loop,
        [ZINF_ACTIVATION_SILU] = silu_loop,
        [ZINF_ACTIVATION_RELU] = relu_loop,
        [ZINF_ACTIVATION_TANH] = bounded_loop,
        [ZINF_ACTIVATION_RELU_SQUARED] = relu_squared_loop,
        [ZINF_ACTIVATION_CLAMPED_SWISH] = clamped_swish_loop,
        [ZINF_ACTIVATION_SIGMOID] = logistic_loop,
        [ZINF_ACTIVATION_IDENTITY] = identity_loop,
    };
    loops[kind](y, x, n);
}

static void loop_activation_gradient(enum zinf_activation kind, float *dx, float *y,
                                     const float *dy, const float *x, size_t n)
{
    static void (*const loops[])(float *, const float *, const float *, size_t) = {
        [ZINF_ACTIVATION_GELU_TANH] = gelu_tanh_gradient_loop,
        [ZINF_ACTIVATION_GELU_ERF] = gelu_erf_gradient_loop,
        [ZINF_ACTIVATION_SILU] = silu_gradient_loop,
        [ZINF_ACTIVATION_RELU] = relu_gradient_loop,
        [ZINF_ACTIVATION_TANH] = bounded_gradient_loop,
        [ZINF_ACTIVATION_RELU_SQUARED] = relu_squared_gradient_loop,
        [ZINF_ACTIVATION_CLAMPED_SWISH] = clamped_swish_gradient_loop,
        [ZINF_ACTIVATION_SIGMOID] = logistic_gradient_loop,
        [ZINF_ACTIVATION_IDENTITY] = identity_gradient_loop,
    };
    static void (*const both[])(float *, float *, const float *, const float *, size_t) = {
        [ZINF_ACTIVATION_GELU_TANH] = gelu_tanh_both_loop,
        [ZINF_ACTIVATION_GELU_ERF] = gelu_erf_both_loop,
        [ZINF_ACTIVATION_SILU] = silu_both_loop,
        [ZINF_ACTIVATION_RELU] = relu_both_loop,
        [ZINF_ACTIVATION_TANH] = bounded_both_loop,
        [ZINF_ACTIVATION_RELU_SQUARED] = relu_squared_both_loop,
        [ZINF_ACTIVATION_CLAMPED_SWISH] = clamped_swish_both_loop,
        [ZINF_ACTIVATION_SIGMOID] = logistic_both_loop,
        [ZINF_ACTIVATION_IDENTITY] = identity_both_loop,
    };
    if (y)
        both[kind](dx, y, dy, x, n);
    else
        loops[kind](dx, dy, x, n);
}

static void loop_gated(enum zinf_activation kind, float *y, const float *gate, const float *up,
                       size_t n)
{
    static void (*const loops[])(float *, const float *, const float *, size_t) = {
        [ZINF_ACTIVATION_GELU_TANH] = gelu_tanh_gated_loop,
        [ZINF_ACTIVATION_GELU_ERF] = gelu_erf_gated_loop,
        [ZINF_ACTIVATION_SILU] = silu_gated_loop,
        [ZINF_ACTIVATION_RELU] = relu_gated_loop,
        [ZINF_ACTIVATION_TANH] = bounded_gated_loop,
        [ZINF_ACTIVATION_RELU_SQUARED] = relu_squared_gated_loop,
        [ZINF_ACTIVATION_CLAMPED_SWISH] = clamped_swish_gated_loop,
        [ZINF_ACTIVATION_SIGMOID] = logistic_gated_loop,
        [ZINF_ACTIVATION_IDENTITY] = identity_gated_loop,
    };
    loops[kind](y, gate, up, n);
}

static void loop_gated_gradient(enum zinf_activation kind, const struct host_gated *g, size_t n)
{
    static void (*const loops[])(const struct host_gated *, size_t) = {
        [ZINF_ACTIVATION_GELU_TANH] = gelu_tanh_gated_gradient_loop,
        [ZINF_ACTIVATION_GELU_ERF] = gelu_erf_gated_gradient_loop,
        [ZINF_ACTIVATION_SILU] = silu_gated_gradient_loop,
        [ZINF_ACTIVATION_RELU] = relu_gated_gradient_loop,
        [ZINF_ACTIVATION_TANH] = bounded_gated_gradient_loop,
        [ZINF_ACTIVATION_RELU_SQUARED] = relu_squared_gated_gradient_loop,
        [ZINF_ACTIVATION_CLAMPED_SWISH] = clamped_swish_gated_gradient_loop,
        [ZINF_ACTIVATION_SIGMOID] = logistic_gated_gradient_loop,
        [ZINF_ACTIVATION_IDENTITY] = identity_gated_gradient_loop,
    };
    loops[kind](g, n);
}

/* ---- rotary position embedding ---- */

static inline void rotate_pairs(float *x, const float *cos, const float *sin, size_t n,
                                bool interleaved)
{
    if (interleaved) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float a = x[2 * i], b = x[2 * i + 1];
            x[2 * i] = a * cos[i] - b * sin[i];
            x[2 * i + 1] = b * cos[i] + a * sin[i];
        }
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float a = x[i], b = x[i + n];
            x[i] = a * cos[i] - b * sin[i];
            x[i + n] = b * cos[i] + a * sin[i];
        }
    }
}

/* The angles of a row are the same for all heads. */
static void loop_rope_row(const struct zinf_rope *a, int64_t row)
{
    float cos[ZINF_ROPE_MAX_PAIRS], sin[ZINF_ROPE_MAX_PAIRS], buffer[2 * ZINF_ROPE_MAX_PAIRS];
    const size_t n_pairs = (size_t)a->rotary_dims / 2, width = zinf_dtype_bytes(a->dtype);
    const float position = (float)a->positions[row];
    const float grown = a->growth != 0 ? zinf_rope_growth(a->growth, a->positions[row],
                                                          a->growth_ahead, a->growth_every)
                                       : 1;
    const float scale = a->scale * grown, sin_scale = a->backward ? -scale : scale;
#pragma omp simd
    for (size_t i = 0; i < n_pairs; i++) {
        sin_cos_f32(position * a->inv_freq[i], &sin[i], &cos[i]);
        cos[i] *= scale;
        sin[i] *= sin_scale;
    }
    char *head = (char *)a->x + (size_t)(row * a->ld) * width;
    for (int64_t h = 0; h < a->n_heads; h++, head += (size_t)a->head_dim * width) {
        if (a->dtype == ZINF_DTYPE_F32) {
            rotate_pairs((float *)(void *)head, cos, sin, n_pairs, a->interleaved);
            continue;
        }
        loop_to_f32(buffer, head, a->dtype, 2 * n_pairs);
        rotate_pairs(buffer, cos, sin, n_pairs, a->interleaved);
        loop_from_f32(head, a->dtype, buffer, 2 * n_pairs);
    }
}

/* ---- rows: sums, norms, softmax ---- */

static void loop_softcap(float *y, float *slope, const float *x, float cap, size_t n)
{
    const float inverse = 1.0f / cap;
    if (slope) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float t = tanh_f32(x[i] * inverse);
            slope[i] = 1.0f - t * t;
            y[i] = cap * t;
        }
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = cap * tanh_f32(x[i] * inverse);
    }
}

static float loop_sum(const float *x, size_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += x[i];
    return sum;
}

static float loop_sum_squares(const float *x, float mean, size_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += (x[i] - mean) * (x[i] - mean);
    return sum;
}

static void loop_norm(const struct host_norm_row *row, size_t n)
{
    const float *x = row->x, *w = row->w, *b = row->b;
    float *y = row->y;
    const float mean = row->mean, rstd = row->rstd;
    if (b) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i] + b[i];
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            y[i] = (x[i] - mean) * rstd * w[i];
    }
}

static void loop_norm_sums(const struct host_norm_row *row, size_t n, float *sum_g, float *sum_gx)
{
    const float *x = row->x, *w = row->w, *dy = row->dy;
    const float mean = row->mean, rstd = row->rstd;
    float g_sum = 0.0f, gx_sum = 0.0f;
#pragma omp simd reduction(+ : g_sum, gx_sum)
    for (size_t i = 0; i < n; i++) {
        float g = dy[i] * w[i];
        g_sum += g;
        gx_sum += g * ((x[i] - mean) * rstd);
    }
    *sum_g = g_sum;
    *sum_gx = gx_sum;
}

/* The sums over rows, of those that are wanted. */
static void loop_norm_columns(const struct host_norm_row *row, size_t n)
{
    const float *x = row->x, *dy = row->dy;
    float *dw = row->dw;
    const float mean = row->mean, rstd = row->rstd;
    if (row->db)
        loop_add(row->db, dy, n);
    if (dw) {
#pragma omp simd
        for (size_t i = 0; i < n; i++)
            dw[i] += dy[i] * ((x[i] - mean) * rstd);
    }
}

static void loop_norm_gradient(const struct host_norm_row *row, size_t n)
{
    const float *x = row->x, *w = row->w, *dy = row->dy;
    float *dx = row->dx;
    const float mean = row->mean, rstd = row->rstd;
    const float mean_g = row->mean_g, mean_gx = row->mean_gx;
    loop_norm_columns(row, n); /* before dx is written, since dx may be dy */
    if (row->add_dx) {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float normal = (x[i] - mean) * rstd;
            dx[i] += rstd * (dy[i] * w[i] - mean_g - normal * mean_gx);
        }
    } else {
#pragma omp simd
        for (size_t i = 0; i < n; i++) {
            float normal = (x[i] - mean) * rstd;
            dx[i] = rstd * (dy[i] * w[i] - mean_g - normal * mean_gx);
        }
    }
}

static float loop_max(const float *x, size_t n)
{
    float max = -INFINITY;
#pragma omp simd reduction(max : max)
    for (size_t i = 0; i < n; i++)
        max = x[i] > max ? x[i] : max;
    return max;
}

static float loop_sum_exp(const float *x, float max, size_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < n; i++)
        sum += exp_f32(x[i] - max);
    return sum;
}

static void loop_scale_exp(float *x, float max, float factor, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] = factor * exp_f32(x[i] - max);
}

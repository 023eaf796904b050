/* host_xielu: an activation with two trained numbers. Their gradients are summed over the columns
 * of each row. */
#include "kernels/host.h"

#include <math.h>

/* The constants of the activation. */
struct curve {
    float p, m, beta, eps;
};

static float number(const struct host_simd *simd, const void *array, enum zinf_dtype dtype,
                    uint64_t i)
{
    float value;
    return *host_read(simd, &value, array, dtype, i, 1);
}

static float softplus(float x)
{
    return x > 0 ? x + log1pf(expf(-x)) : log1pf(expf(x));
}

static struct curve curve_of(const struct host_simd *simd, const struct zinf_xielu *a)
{
    const float beta = number(simd, a->constants, a->dtype, 0);
    return (struct curve){.p = softplus(number(simd, a->alphas, a->dtype, 0)),
                          .m = beta + softplus(number(simd, a->alphas, a->dtype, 1)),
                          .beta = beta,
                          .eps = number(simd, a->constants, a->dtype, 1)};
}

/* What is multiplied by p where x is above 0, and by m elsewhere. */
static float factor(const struct curve *c, float x)
{
    return x > 0 ? x * x : expm1f(x < c->eps ? x : c->eps) - x;
}

static float value(const struct curve *c, float x, float by)
{
    return (x > 0 ? c->p : c->m) * by + c->beta * x;
}

/* The derivative by x. That of the minimum of x and eps is 1 where x is less, 0 where eps is, and
 * half where they are equal. */
static float slope(const struct curve *c, float x, float by)
{
    if (x > 0)
        return c->p * 2 * x + c->beta;
    const float share = x < c->eps ? 1 : x == c->eps ? 0.5f : 0;
    return c->m * (share * (by + x + 1) - 1) + c->beta;
}

static void forward_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_xielu *a = args;
    const struct curve c = curve_of(simd, a);
    const uint64_t cols = (uint64_t)a->cols;
    float buffer[HOST_CHUNK];
    for (uint64_t at = 0; at < cols; at += HOST_CHUNK) {
        const size_t n = cols - at < HOST_CHUNK ? (size_t)(cols - at) : HOST_CHUNK;
        const float *x = host_read(simd, buffer, a->x, a->dtype, row * cols + at, n);
        float *y = host_target(buffer, a->y, a->dtype, row * cols + at);
        for (size_t i = 0; i < n; i++)
            y[i] = value(&c, x[i], factor(&c, x[i]));
        host_write(simd, y, a->y, a->dtype, row * cols + at, n);
    }
}

int host_xielu_forward(struct zinf_queue *q, const struct zinf_xielu *args)
{
    int code = check_xielu(args, "xielu_forward");
    return code ? code : host_each_row(q, args->rows, args->rows * args->cols, forward_row, args);
}

static void backward_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_xielu *a = args;
    const struct curve c = curve_of(simd, a);
    const uint64_t cols = (uint64_t)a->cols;
    float x_buffer[HOST_CHUNK], dy_buffer[HOST_CHUNK], y_buffer[HOST_CHUNK];
    double sums[2] = {0, 0};
    for (uint64_t done = 0; done < cols; done += HOST_CHUNK) {
        const size_t n = cols - done < HOST_CHUNK ? (size_t)(cols - done) : HOST_CHUNK;
        const uint64_t at = row * cols + done;
        const float *x = host_read(simd, x_buffer, a->x, a->dtype, at, n);
        const float *dy = host_read(simd, dy_buffer, a->dy, a->dtype, at, n);
        float *dx = host_target(dy_buffer, a->dx, a->dtype, at);
        float *y = a->y ? host_target(y_buffer, a->y, a->dtype, at) : y_buffer;
        for (size_t i = 0; i < n; i++) {
            const float by = factor(&c, x[i]), above = value(&c, x[i], by);
            sums[x[i] > 0 ? 0 : 1] += (double)(dy[i] * by);
            dx[i] = dy[i] * slope(&c, x[i], by);
            y[i] = above;
        }
        host_write(simd, dx, a->dx, a->dtype, at, n);
        if (a->y)
            host_write(simd, y, a->y, a->dtype, at, n);
    }
    for (uint64_t k = 0; k < 2; k++) /* the slope of softplus */
        a->sums[2 * row + k] = (float)sums[k] / (1 + expf(-number(simd, a->alphas, a->dtype, k)));
}

int host_xielu_backward(struct zinf_queue *q, const struct zinf_xielu *args)
{
    int code = check_xielu(args, "xielu_backward");
    return code ? code : host_each_row(q, args->rows, args->rows * args->cols, backward_row, args);
}

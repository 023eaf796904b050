/*
 * leading: singular vectors by iterating and without it agree with each other and with the matrix
 * they were put together from, are orthonormal, and have the same bits for any number of threads.
 */
#include "train/rules/leading.h"
#include "base/random.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { LONG = 400, SHORT = 200, RANK = 8 };

/* Singular values fall by a tenth from one to the next. */
static float *make_matrix(uint64_t rows, uint64_t cols)
{
    float *x = calloc(rows * cols, sizeof *x), *u = calloc(rows, sizeof *u),
          *v = calloc(cols, sizeof *v);
    double size = 1;
    for (uint64_t i = 0; i < 60; i++, size *= 0.9) {
        zinf_normal_fill(u, i * rows, rows, 1, 1, 0, 1);
        zinf_normal_fill(v, i * cols, cols, 1, 2, 0, 1);
        for (uint64_t r = 0; r < rows; r++)
            for (uint64_t c = 0; c < cols; c++)
                x[r * cols + c] += (float)(size * (double)u[r] * (double)v[c]);
    }
    free(u);
    free(v);
    return x;
}

static void find(const float *x, uint64_t rows, uint64_t cols, bool right, int threads, float *out)
{
    static struct setup s;
    struct zinf_device_options host = {.kind = ZINF_DEVICE_HOST, .n_threads = threads};
    struct zinf_queue *queue = NULL;
    CHECK(!zinf_device_create(&s.cpu, &host));
    CHECK(!s.cpu->ops->queue_create(s.cpu, ZINF_QUEUE_COMPUTE, &queue));
    struct leading l = {.setup = &s,
                        .queue = queue,
                        .x = x,
                        .rows = rows,
                        .cols = cols,
                        .right = right,
                        .rank = RANK,
                        .out = out};
    uint64_t own = leading_bytes(&l), products = leading_products_bytes(&l);
    l.workspace = aligned_alloc(4096, zinf_align_up(own + products, 4096));
    memset(l.workspace, 0xff, own + products);
    s.cpu->ops->queue_set_workspace(queue, (char *)l.workspace + own, products);
    CHECKF(!leading_find(&l), "%s", zinf_error());
    free(l.workspace);
    s.cpu->ops->queue_destroy(queue);
    zinf_device_destroy(s.cpu);
}

static double dot(const float *a, const float *b, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += (double)a[i] * (double)b[i];
    return sum;
}

static void check_orthonormal(const float *v, uint64_t n)
{
    for (int i = 0; i < RANK; i++)
        for (int j = 0; j <= i; j++) {
            double found = dot(v + i * (int64_t)n, v + j * (int64_t)n, n) - (i == j);
            CHECKF(fabs(found) < 1e-6, "%d and %d: %g", i, j, found);
        }
}

static void check_sign(const float *v, uint64_t n)
{
    float largest = 0;
    for (uint64_t i = 0; i < n; i++)
        largest = fabsf(v[i]) > fabsf(largest) ? v[i] : largest;
    CHECK(largest > 0);
}

/* The long side's vectors need iterations, the short side's do not: X^T u is s v. */
static void check_both_sides(uint64_t rows, uint64_t cols)
{
    const bool wide = rows < cols;
    static float u[RANK * SHORT], v[RANK * LONG], image[LONG];
    float *x = make_matrix(rows, cols);
    find(x, rows, cols, !wide, 1, u);
    find(x, rows, cols, wide, 1, v);
    check_orthonormal(u, SHORT);
    check_orthonormal(v, LONG);
    for (int i = 0; i < RANK; i++) {
        memset(image, 0, sizeof image);
        for (uint64_t r = 0; r < SHORT; r++)
            for (uint64_t c = 0; c < LONG; c++)
                image[c] += u[i * SHORT + (int)r] * (wide ? x[r * cols + c] : x[c * cols + r]);
        double cosine = dot(image, v + i * LONG, LONG) / sqrt(dot(image, image, LONG));
        CHECKF(1 - fabs(cosine) < 1e-6, "%d of %llu x %llu: %.9g", i, (unsigned long long)rows,
               (unsigned long long)cols, cosine);
        check_sign(u + i * SHORT, SHORT);
        check_sign(v + i * LONG, LONG);
    }
    free(x);
}

static void test_sides_agree(void)
{
    check_both_sides(SHORT, LONG);
    check_both_sides(LONG, SHORT);
}

static void test_threads_change_nothing(void)
{
    static float one[RANK * LONG], some[RANK * LONG];
    float *x = make_matrix(SHORT, LONG);
    for (int right = 0; right < 2; right++) {
        const size_t bytes = (right ? LONG : SHORT) * RANK * sizeof *one;
        find(x, SHORT, LONG, right, 1, one);
        for (int threads = 2; threads < 5; threads++) {
            find(x, SHORT, LONG, right, threads, some);
            CHECKF(!memcmp(one, some, bytes), "%d threads", threads);
        }
    }
    free(x);
}

/* Nothing to find: no number is not finite. */
static void test_zeros(void)
{
    static float v[RANK * LONG];
    float *x = calloc(SHORT * LONG, sizeof *x);
    for (int right = 0; right < 2; right++) {
        find(x, SHORT, LONG, right, 2, v);
        for (int i = 0; i < RANK * (right ? LONG : SHORT); i++)
            CHECK(isfinite(v[i]));
    }
    free(x);
}

int main(void)
{
    TAP_RUN(test_sides_agree);
    TAP_RUN(test_threads_change_nothing);
    TAP_RUN(test_zeros);
    return tap_done();
}

/* numbers: how predicted numbers go with the true ones. */
#include "metrics/metrics.h"

#include <math.h>
#include <stdlib.h>

static double mean_of(const double *x, uint64_t n)
{
    double sum = 0;
    for (uint64_t i = 0; i < n; i++)
        sum += x[i];
    return sum / (double)n;
}

/* Around the means, which are taken first: sums of squares of numbers far from 0 would cancel. */
double zinf_pearson(const double *x, const double *y, uint64_t n)
{
    double xx = 0, yy = 0, xy = 0;
    if (n < 2)
        return NAN;
    double x_mean = mean_of(x, n), y_mean = mean_of(y, n);
    for (uint64_t i = 0; i < n; i++) {
        double dx = x[i] - x_mean, dy = y[i] - y_mean;
        xx += dx * dx;
        yy += dy * dy;
        xy += dx * dy;
    }
    if (!(xx > 0) || !(yy > 0))
        return NAN;
    double r = xy / sqrt(xx) / sqrt(yy);
    return r > 1 ? 1 : r < -1 ? -1 : r;
}

struct ranked {
    double value;
    uint64_t at;
};

static int compare(const void *a, const void *b)
{
    const struct ranked *x = a, *y = b;
    return (x->value > y->value) - (x->value < y->value);
}

/* Ranks of x, from 1; scratch: [n]. */
static void rank(const double *x, uint64_t n, struct ranked *scratch, double *ranks)
{
    for (uint64_t i = 0; i < n; i++)
        scratch[i] = (struct ranked){x[i], i};
    qsort(scratch, n, sizeof *scratch, compare);
    for (uint64_t first = 0, end; first < n; first = end) {
        for (end = first + 1; end < n && scratch[end].value == scratch[first].value;)
            end++;
        for (uint64_t i = first; i < end; i++)
            ranks[scratch[i].at] = 0.5 * (double)(first + 1 + end);
    }
}

static bool has_nan(const double *x, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (isnan(x[i]))
            return true;
    return false;
}

int zinf_spearman(const double *x, const double *y, uint64_t n, double *r)
{
    *r = NAN;
    if (n < 2 || has_nan(x, n) || has_nan(y, n)) /* NaN has no rank */
        return 0;
    struct ranked *scratch = malloc(n * sizeof *scratch);
    double *ranks = malloc(2 * n * sizeof *ranks);
    if (scratch && ranks) {
        rank(x, n, scratch, ranks);
        rank(y, n, scratch, ranks + n);
        *r = zinf_pearson(ranks, ranks + n, n);
    }
    int code = scratch && ranks
                   ? 0
                   : zinf_fail(-ENOMEM, "no memory to rank %llu numbers", (unsigned long long)n);
    free(scratch);
    free(ranks);
    return code;
}

double zinf_share_error(double share, uint64_t n)
{
    return n < 2 ? NAN : sqrt(share * (1 - share) / (double)(n - 1));
}

double zinf_pooled_error(const double *errors, const uint64_t *sizes, uint32_t k)
{
    double sum = 0;
    uint64_t n = 0;
    for (uint32_t i = 0; i < k; i++) {
        const double size = (double)sizes[i];
        sum += (size - 1) * size * errors[i] * errors[i];
        n += sizes[i];
    }
    return n > k ? sqrt(sum / (double)(n - k) / (double)n) : NAN;
}

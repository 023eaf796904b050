/*
 * mixture: whose window comes next, where several data sets are mixed by weight. Weights become
 * *shares*, integers, and the sum of the shares is a period, after which the turns repeat; a table
 * of one period makes any position of any training known at once. Within a period each turn goes to
 * the part that is furthest behind its share: after t turns a part of share s has had s t / period
 * of them, and less than one too many. So a training has no stretch of one part, whatever its
 * length, and batches have the weights' mixture without chance.
 */
#include "text/internal.h"

#include <math.h>
#include <stdlib.h>
#include <xxhash.h>

#define MOST_PERIOD 65536 /* half a MiB of table */
#define MOST_PARTS 1024
#define MOST_DECIMALS 6

struct turn {
    uint32_t part, before; /* whose turn it is; how many it had in the period before */
};
struct text_mixture {
    uint64_t *shares; /* [n] */
    uint32_t n, together;
    uint64_t period;
    struct turn *turns; /* [period] */
};

/* ---- shares ---- */

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* Weights of a few decimals are integers times a power of ten: 0.7 and 0.3 are 7 and 3. */
static bool share_exactly(struct text_mixture *m, const double *weights)
{
    double scale = 1;
    for (int i = 0; i <= MOST_DECIMALS; i++, scale *= 10) {
        uint64_t divisor = 0;
        double sum = 0;
        bool whole = true;
        for (uint32_t k = 0; whole && k < m->n; k++) {
            const double scaled = weights[k] * scale, near = nearbyint(scaled);
            whole = near >= 1 && near < 1e12 && fabs(scaled - near) < 1e-9 * near;
            m->shares[k] = whole ? (uint64_t)near : 0;
            divisor = greatest_divisor(divisor, m->shares[k]);
            sum += near;
        }
        if (whole && sum / (double)divisor <= MOST_PERIOD) {
            for (uint32_t k = 0; k < m->n; k++)
                m->shares[k] /= divisor;
            return true;
        }
    }
    return false;
}

/* Each at least one, and rounded down; what is left of the period goes to the largest. */
static void share_nearly(struct text_mixture *m, const double *weights)
{
    double sum = 0;
    uint64_t given = 0;
    uint32_t largest = 0;
    for (uint32_t k = 0; k < m->n; k++)
        sum += weights[k];
    for (uint32_t k = 0; k < m->n; k++) {
        const double share = floor(weights[k] / sum * (MOST_PERIOD - MOST_PARTS));
        m->shares[k] = share < 1 ? 1 : (uint64_t)share;
        given += m->shares[k];
        largest = weights[k] > weights[largest] ? k : largest;
    }
    m->shares[largest] += MOST_PERIOD - MOST_PARTS > given ? MOST_PERIOD - MOST_PARTS - given : 0;
}

/* ---- turns ---- */

/* How far a part is behind after t turns, in turns times the period. */
static int64_t behind(const struct text_mixture *m, uint32_t k, uint64_t t, uint32_t had)
{
    return (int64_t)(m->shares[k] * t) - (int64_t)(had * m->period);
}

static int deal(struct text_mixture *m)
{
    uint32_t *had = calloc(m->n, sizeof *had);
    m->period = 0;
    for (uint32_t k = 0; k < m->n; k++)
        m->period += m->shares[k];
    m->turns = malloc(m->period * sizeof *m->turns);
    if (!had || !m->turns) {
        free(had);
        return zinf_fail(-ENOMEM, "no memory to mix %u data sets", m->n);
    }
    for (uint64_t t = 0; t < m->period; t++) {
        uint32_t next = 0;
        for (uint32_t k = 1; k < m->n; k++)
            if (behind(m, k, t + 1, had[k]) > behind(m, next, t + 1, had[next]))
                next = k;
        m->turns[t] = (struct turn){next, had[next]++};
    }
    free(had);
    return 0;
}

/* ---- the mixture ---- */

static int check(const double *weights, uint32_t n)
{
    if (n > MOST_PARTS)
        return zinf_fail(-EINVAL, "%u data sets are mixed, but at most %d can be: give fewer", n,
                         MOST_PARTS);
    for (uint32_t k = 0; k < n; k++)
        if (!isfinite(weights[k]) || weights[k] <= 0)
            return zinf_fail(-EINVAL, "a data set's weight is %g: give numbers above 0",
                             weights[k]);
    return 0;
}

int text_mixture_create(struct text_mixture **out, const double *weights, uint32_t n,
                        uint32_t together)
{
    int code = check(weights, n);
    struct text_mixture *m = code ? NULL : calloc(1, sizeof *m);
    if (code)
        return code;
    if (m)
        m->shares = calloc(n, sizeof *m->shares);
    if (!m || !m->shares) {
        text_mixture_destroy(m);
        return zinf_fail(-ENOMEM, "no memory to mix %u data sets", n);
    }
    m->n = n;
    m->together = together;
    if (!share_exactly(m, weights))
        share_nearly(m, weights);
    code = deal(m);
    if (code)
        text_mixture_destroy(m);
    else
        *out = m;
    return code;
}

void text_mixture_destroy(struct text_mixture *m)
{
    if (!m)
        return;
    free(m->shares);
    free(m->turns);
    free(m);
}

double text_mixture_share(const struct text_mixture *m, uint32_t part)
{
    return (double)m->shares[part] / (double)m->period;
}

uint32_t text_mixture_at(const struct text_mixture *m, uint64_t *position)
{
    const uint64_t turn = *position / m->together, within = *position % m->together;
    const struct turn *t = &m->turns[turn % m->period];
    const uint64_t own = turn / m->period * m->shares[t->part] + t->before;
    *position = own * m->together + within;
    return t->part;
}

uint64_t text_mixture_sum(const struct text_mixture *m)
{
    return XXH3_64bits_withSeed(m->shares, m->n * sizeof *m->shares, m->together);
}

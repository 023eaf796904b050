/* optim_support: the usual optimizer, numbers of every kind, and PyTorch's fixtures. */
#ifndef ZINF_OPTIM_SUPPORT_H
#define ZINF_OPTIM_SUPPORT_H

#include "base/random.h"
#include "cpu_optim/optim_internal.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

static const struct zinf_optim_hyper usual = {.kind = ZINF_OPTIM_ADAMW,
                                              .lr = 1e-2f,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.99f,
                                              .eps = 1e-8f,
                                              .weight_decay = 0.1f,
                                              .bias_correction = true,
                                              .step = 3};

/* Special: every exponent, infinities, NaNs, denormals and zeros among them. */
static inline float random_value(uint64_t i, uint64_t key, bool special)
{
    uint32_t counter[4] = {(uint32_t)i}, bits[4];
    float value;
    zinf_philox(counter, key, bits);
    if (special && bits[1] % 4 == 0) {
        if (bits[2] % 8 == 0)
            bits[0] &= 0xff800000u;
        if (bits[2] % 8 == 1)
            bits[0] &= 0x807fffffu;
        memcpy(&value, bits, sizeof value);
        return value;
    }
    return (zinf_uniform(bits[0]) - 0.5f) * ldexpf(1, -(int)(bits[1] % 12));
}

static inline void random_fill(float *x, uint64_t n, uint64_t key, bool special)
{
    for (uint64_t i = 0; i < n; i++)
        x[i] = random_value(i, key, special);
}

/* ---- fixtures ---- */

/* As make_optim.py writes it; before the values Adafactor has rows, columns and its first step. */
struct fixture {
    char magic[4];
    uint32_t kind, n, steps;
    float lr, beta1, beta2, eps, weight_decay;
};

/* On the heap, NULL when it cannot be read; values: start[n], gradient_values[n], end[n]. */
static inline struct fixture *fixture_read(const char *name, size_t more, const float **values)
{
    char path[4096], *data = NULL;
    size_t bytes = 0;
    snprintf(path, sizeof path, "%s/tests/fixtures/optim_%s.bin", getenv("SRCDIR"), name);
    int rc = zinf_file_read(path, 1 << 20, &data, &bytes);
    CHECKF(!rc, "%s", zinf_error());
    struct fixture *f = rc ? NULL : (struct fixture *)(void *)data;
    if (f)
        CHECK(bytes == sizeof *f + more + 3 * (size_t)f->n * sizeof(float) &&
              !memcmp(f->magic, "ZOPT", 4));
    *values = f ? (const float *)(const void *)(data + sizeof *f + more) : NULL;
    return f;
}

static inline void fixture_grad(const struct fixture *f, const float *values, uint32_t step,
                                float *grad)
{
    for (uint32_t i = 0; i < f->n; i++) {
        float value = values[f->n + i];
        grad[(i + 7 * step) % f->n] = step % 3 ? value : -value;
    }
}

static inline void fixture_compare(const struct fixture *f, const float *values, const float *got,
                                   const char *name)
{
    const float *end = values + 2 * f->n;
    double worst = 0;
    for (uint32_t i = 0; i < f->n; i++)
        worst = fmax(worst, fabs((double)got[i] - (double)end[i]) / fabs((double)end[i]));
    CHECKF(worst < 1e-6, "%s is off by %.2g from PyTorch", name, worst);
    printf("# %s: largest relative difference from PyTorch %.2g\n", name, worst);
}

#endif

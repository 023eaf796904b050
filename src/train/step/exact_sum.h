/*
 * exact_sum: a sum of doubles without rounding, so that it does not depend on their order nor on
 * who added which: ranks add theirs, and the integers of all ranks are added. Kulisch's long
 * accumulator, in limbs of 32 bits that are held in 64: carries wait, for up to 2^31 additions.
 */
#ifndef ZINF_TRAIN_EXACT_SUM_H
#define ZINF_TRAIN_EXACT_SUM_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>

/* exponent of the first limb's lowest bit, below the least bit of any double */
#define EXACT_LOWEST (-1088)
#define EXACT_LIMBS 68 /* enough for sums beyond the largest double */

struct exact_sum {
    int64_t limb[EXACT_LIMBS]; /* limb[i] * 2^(32 i + EXACT_LOWEST) */
    int64_t n_not_finite;
};

static inline void exact_add(struct exact_sum *s, double x)
{
    int exponent;
    if (!isfinite(x)) {
        s->n_not_finite++;
        return;
    }
    int64_t mantissa = (int64_t)ldexp(frexp(fabs(x), &exponent), 53);
    int at = exponent - 53 - EXACT_LOWEST;
    unsigned __int128 bits = (unsigned __int128)mantissa << (at % 32);
    for (int i = at / 32; mantissa && bits; i++, bits >>= 32)
        s->limb[i] += x < 0 ? -(int64_t)(uint32_t)bits : (int64_t)(uint32_t)bits;
}

static inline void exact_add_sum(struct exact_sum *s, const struct exact_sum *other)
{
    for (int i = 0; i < EXACT_LIMBS; i++)
        s->limb[i] += other->limb[i];
    s->n_not_finite += other->n_not_finite;
}

/* Makes carries: all limbs but the last are then from 0 to 2^32 - 1, and the last has the sum's
 * sign. */
static inline void exact_carry(struct exact_sum *s)
{
    for (int i = 0; i + 1 < EXACT_LIMBS; i++) {
        int64_t low = s->limb[i] & 0xffffffff;
        s->limb[i + 1] += (s->limb[i] - low) >> 32;
        s->limb[i] = low;
    }
}

/* Rounds the sum to a double; NAN if a number was not finite. The result depends on the sum only,
 * not on the order of additions, since carries make the limbs unique. */
static inline double exact_value(const struct exact_sum *sum)
{
    struct exact_sum s = *sum;
    double value = 0;
    if (s.n_not_finite)
        return NAN;
    exact_carry(&s);
    const bool negative = s.limb[EXACT_LIMBS - 1] < 0;
    for (int i = 0; negative && i < EXACT_LIMBS; i++)
        s.limb[i] = -s.limb[i];
    exact_carry(&s);
    for (int i = EXACT_LIMBS; i-- > 0;)
        value += ldexp((double)s.limb[i], 32 * i + EXACT_LOWEST);
    return negative ? -value : value;
}

#endif

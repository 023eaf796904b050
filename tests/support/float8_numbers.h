/* float8_numbers: matrices rounded to floats of 8 bits by looking through all of a type's numbers,
 * in double: what kernels/float8.h says, without its arithmetic. */
#ifndef ZINF_FLOAT8_NUMBERS_H
#define ZINF_FLOAT8_NUMBERS_H

#include "kernels_testing.h"

#include <math.h>

/* The number of a code without a sign: exponent, fraction. */
UNUSED static double float8_number(enum zinf_float8 type, int code)
{
    const int bits = type == ZINF_FLOAT8_E5M2 ? 2 : 3, bias = type == ZINF_FLOAT8_E5M2 ? 15 : 7;
    const int exponent = code >> bits, fraction = code & ((1 << bits) - 1);
    const double part = (double)fraction / (1 << bits);
    return exponent ? ldexp(1 + part, exponent - bias) : ldexp(part, 1 - bias);
}

static int float8_last(enum zinf_float8 type)
{
    return type == ZINF_FLOAT8_E5M2 ? 0x7b : 0x7e; /* what follows is no number */
}

/* The nearest number; between two the one with an even code. */
UNUSED static double float8_nearest(enum zinf_float8 type, double x)
{
    int best = 0;
    for (int code = 1; code <= float8_last(type); code++) {
        double is = fabs(float8_number(type, code) - fabs(x));
        double was = fabs(float8_number(type, best) - fabs(x));
        if (is < was || (is == was && code % 2 == 0))
            best = code;
    }
    return copysign(float8_number(type, best), x);
}

/* By the largest power of two with which no number of the matrix leaves the range. */
UNUSED static int float8_shift(enum zinf_float8 type, const double *x, size_t n)
{
    double most = 0;
    int shift = ZINF_FLOAT8_MOST_SHIFT;
    for (size_t i = 0; i < n; i++)
        most = fmax(most, fabs(x[i]));
    while (most > 0 && ldexp(most, shift) > float8_number(type, float8_last(type)))
        shift--;
    return most > 0 ? shift : 0;
}

UNUSED static void float8_round(enum zinf_float8 type, double *x, size_t n)
{
    const int shift = float8_shift(type, x, n);
    for (size_t i = 0; i < n; i++)
        x[i] = ldexp(float8_nearest(type, ldexp(x[i], shift)), -shift);
}

#endif

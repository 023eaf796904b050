/* lanes_float: floating point, comparisons and predicates, conversions; part of lanes.h. */
#ifndef PTX_LANES_FLOAT_H
#define PTX_LANES_FLOAT_H

/* Where one is NaN the other counts; -0 is less than +0. */
#define LEAST(x, y)                                                                                \
    (isnan(x) ? (y) : isnan(y) ? (x) : (x) < (y) || ((x) == (y) && signbit(x)) ? (x) : (y))
#define MOST(x, y)                                                                                 \
    (isnan(x) ? (y) : isnan(y) ? (x) : (x) > (y) || ((x) == (y) && !signbit(x)) ? (x) : (y))

#define FLOATS(n, F, fused, root, magnitude, sign)                                                 \
    OP2(add_f##n, F, F, F, x + y)                                                                  \
    OP2(sub_f##n, F, F, F, x - y)                                                                  \
    OP2(mul_f##n, F, F, F, x *y)                                                                   \
    OP2(div_f##n, F, F, F, x / y)                                                                  \
    OP3(fma_f##n, F, F, F, F, fused(x, y, z))                                                      \
    OP1(rcp_f##n, F, F, 1 / x)                                                                     \
    OP1(sqrt_f##n, F, F, root(x))                                                                  \
    OP1(neg_f##n, F, F, -x)                                                                        \
    OP1(abs_f##n, F, F, magnitude(x))                                                              \
    OP2(min_f##n, F, F, F, LEAST(x, y))                                                            \
    OP2(max_f##n, F, F, F, MOST(x, y))                                                             \
    OP2(copysign_f##n, F, F, F, sign(y, x))
FLOATS(32, float, fmaf, sqrtf, fabsf, copysignf)
FLOATS(64, double, fma, sqrt, fabs, copysign)

/* Rounded down: the product is exact in double, and TwoSum gives what its sum loses. */
static inline float fused_down(float x, float y, float z)
{
    float r = fmaf(x, y, z);
    double product = (double)x * y, sum = product + z, part = sum - product;
    double lost = (product - (sum - part)) + (z - part);
    if (isfinite(r) && (r > sum || (r == sum && lost < 0)))
        r = nextafterf(r, -INFINITY);
    return r;
}
OP3(fma_rm_f32, float, float, float, float, fused_down(x, y, z))

/* Approximate functions: their error is in the last place, one off either way, by the bits of the
 * argument alone. */
static inline float nearly(float result, float of)
{
    uint32_t bits, hash;
    memcpy(&bits, &result, sizeof bits);
    memcpy(&hash, &of, sizeof hash);
    hash = (hash ^ hash >> 15) * 0x2c1b3c6du;
    uint32_t exponent = bits >> 23 & 0xff, mantissa = bits & 0x7fffff;
    /* Powers of two are hit in practice, and neighbours of another exponent are further away. */
    if (exponent == 0 || exponent == 0xff || mantissa == 0 || mantissa == 0x7fffff)
        return result;
    bits += (hash >> 16) % 3 - 1;
    memcpy(&result, &bits, sizeof result);
    return result;
}
static inline float flush(float x)
{
    return fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x;
}
OP1(ex2_ftz, float, float, flush(nearly(exp2f(flush(x)), x)))
OP1(ex2, float, float, nearly(exp2f(x), x))
OP1(lg2, float, float, nearly(log2f(x), x))
OP1(lg2_ftz, float, float, nearly(log2f(flush(x)), x))
OP1(rcp_near, float, float, nearly(1 / x, x))
OP1(rcp_near_ftz, float, float, flush(nearly(1 / flush(x), x)))
OP2(div_near, float, float, float, nearly(x / y, y))
OP1(sqrt_near, float, float, nearly(sqrtf(x), x))
OP1(rsqrt_near, float, float, nearly(1 / sqrtf(x), x))
OP1(sin_near, float, float, sinf(x) + 0x1p-21f * (float)(x > 0 ? 1 : -1))
OP1(cos_near, float, float, cosf(x) - 0x1p-21f)
OP1(tanh_near, float, float, tanhf(x) * (1 + 0x1p-12f))

/* ---- predicates ---- */

static inline void set_predicate(struct ptx_warp *w, int32_t at, uint32_t value, uint32_t mask)
{
    uint32_t *p = ROW(w, at);
    *p = (*p & ~mask) | (value & mask);
}

/* The comparison with what it is combined with, into p and, negated before, into q. */
static inline void set_compared(struct ptx_warp *w, const struct ptx_instr *i, uint32_t value,
                                uint32_t mask)
{
    uint32_t other = i->mode ? *(const uint32_t *)ROW(w, i->c[0]) : 0, not = ~value;
    if (i->flag)
        other = ~other;
    if (i->mode == 1) {
        value &= other;
        not &= other;
    } else if (i->mode == 2) {
        value |= other;
        not |= other;
    } else if (i->mode == 3) {
        value ^= other;
        not ^= other;
    }
    set_predicate(w, i->d[0], value, mask);
    if (i->d[1] >= 0)
        set_predicate(w, i->d[1], not, mask);
}

#define COMPARE(name, T, condition)                                                                \
    OPERATION(name)                                                                                \
    {                                                                                              \
        const T *a = ROW(w, i->a[0]), *b = ROW(w, i->b[0]);                                        \
        uint32_t value = 0;                                                                        \
        FOR_LANES                                                                                  \
        {                                                                                          \
            const T x = a[l], y = b[l];                                                            \
            value |= (uint32_t)(condition) << l;                                                   \
        }                                                                                          \
        set_compared(w, i, value, mask);                                                           \
    }
#define COMPARISONS(suffix, T)                                                                     \
    COMPARE(eq_##suffix, T, x == y)                                                                \
    COMPARE(ne_##suffix, T, x<y || x> y)                                                           \
    COMPARE(lt_##suffix, T, x < y)                                                                 \
    COMPARE(le_##suffix, T, x <= y)                                                                \
    COMPARE(gt_##suffix, T, x > y)                                                                 \
    COMPARE(ge_##suffix, T, x >= y)
#define UNORDERED(suffix, T)                                                                       \
    COMPARE(equ_##suffix, T, !(x < y || x > y))                                                    \
    COMPARE(neu_##suffix, T, !(x == y))                                                            \
    COMPARE(ltu_##suffix, T, !(x >= y))                                                            \
    COMPARE(leu_##suffix, T, !(x > y))                                                             \
    COMPARE(gtu_##suffix, T, !(x <= y))                                                            \
    COMPARE(geu_##suffix, T, !(x < y))                                                             \
    COMPARE(num_##suffix, T, !isnan(x) && !isnan(y))                                               \
    COMPARE(nan_##suffix, T, isnan(x) || isnan(y))
COMPARISONS(u16, uint16_t)
COMPARISONS(s16, int16_t)
COMPARISONS(u32, uint32_t)
COMPARISONS(s32, int32_t)
COMPARISONS(u64, uint64_t)
COMPARISONS(s64, int64_t)
COMPARISONS(f32, float)
COMPARISONS(f64, double)
UNORDERED(f32, float)
UNORDERED(f64, double)

#define LOGIC(name, value)                                                                         \
    OPERATION(name)                                                                                \
    {                                                                                              \
        const uint32_t x = *(const uint32_t *)ROW(w, i->a[0]);                                     \
        const uint32_t y = *(const uint32_t *)ROW(w, i->b[0]);                                     \
        (void)y;                                                                                   \
        set_predicate(w, i->d[0], value, mask);                                                    \
    }
LOGIC(and_pred, x &y)
LOGIC(or_pred, x | y)
LOGIC(xor_pred, x ^ y)
LOGIC(not_pred, ~x)
LOGIC(mov_pred, x)

/* ---- frequent conversions ---- */

OP1(cvt_s64_s32, int64_t, int32_t, x)
OP1(cvt_u64_u32, uint64_t, uint32_t, x)
OP1(cvt_u32_u64, uint32_t, uint64_t, x)
OP1(cvt_u16_u32, uint16_t, uint32_t, x)
OP1(cvt_u32_u16, uint32_t, uint16_t, x)
OP1(cvt_f32_s32, float, int32_t, x)
OP1(cvt_f64_f32, double, float, x)
OP1(cvt_sat_f32, float, float, x >= 0 ? (x > 1 ? 1 : x) : 0)
OP1(cvt_rzi_f32, float, float, truncf(x))
OP1(cvt_rni_f32, float, float, nearbyintf(x))
OP1(cvt_rmi_f32, float, float, floorf(x))
OP1(cvt_rpi_f32, float, float, ceilf(x))

#endif

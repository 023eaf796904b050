/*
 * lanes: operations that every lane makes for itself, on whole rows: compiled once per instruction
 * set, as loops of 32 that the compiler turns into vectors. A name in the table is the opcode with
 * its words; the widths are those of its registers.
 */
#include "block.h"

#include <math.h>
#include <string.h>

#ifndef LANES_TABLE
#error "define LANES_TABLE"
#endif

#define OPERATION(name)                                                                            \
    static void name(struct ptx_warp *w, const struct ptx_instr *i, uint32_t mask)
#define FOR_LANES for (int l = 0; l < PTX_LANES; l++)

/* Those of the lanes that take part. */
#define KEEP(T, result)                                                                            \
    do {                                                                                           \
        T *to_ = ROW(w, i->d[0]);                                                                  \
        if (mask == UINT32_MAX)                                                                    \
            memcpy(to_, result, sizeof(T) * PTX_LANES);                                            \
        else                                                                                       \
            FOR_LANES to_[l] = mask >> l & 1 ? (result)[l] : to_[l];                               \
    } while (0)

#define OP1(name, D, A, value)                                                                     \
    OPERATION(name)                                                                                \
    {                                                                                              \
        const A *a = ROW(w, i->a[0]);                                                              \
        D r[PTX_LANES];                                                                            \
        FOR_LANES                                                                                  \
        {                                                                                          \
            const A x = a[l];                                                                      \
            r[l] = (D)(value);                                                                     \
        }                                                                                          \
        KEEP(D, r);                                                                                \
    }
#define OP2(name, D, A, B, value)                                                                  \
    OPERATION(name)                                                                                \
    {                                                                                              \
        const A *a = ROW(w, i->a[0]);                                                              \
        const B *b = ROW(w, i->b[0]);                                                              \
        D r[PTX_LANES];                                                                            \
        FOR_LANES                                                                                  \
        {                                                                                          \
            const A x = a[l];                                                                      \
            const B y = b[l];                                                                      \
            r[l] = (D)(value);                                                                     \
        }                                                                                          \
        KEEP(D, r);                                                                                \
    }
#define OP3(name, D, A, B, C, value)                                                               \
    OPERATION(name)                                                                                \
    {                                                                                              \
        const A *a = ROW(w, i->a[0]);                                                              \
        const B *b = ROW(w, i->b[0]);                                                              \
        const C *c = ROW(w, i->c[0]);                                                              \
        D r[PTX_LANES];                                                                            \
        FOR_LANES                                                                                  \
        {                                                                                          \
            const A x = a[l];                                                                      \
            const B y = b[l];                                                                      \
            const C z = c[l];                                                                      \
            r[l] = (D)(value);                                                                     \
        }                                                                                          \
        KEEP(D, r);                                                                                \
    }

/* ---- integers ---- */

#define INTEGERS(n, U, S, UW, SW)                                                                  \
    OP2(add_##n, U, U, U, x + y)                                                                   \
    OP2(sub_##n, U, U, U, x - y)                                                                   \
    OP2(mul_lo_##n, U, U, U, (UW)x *y)                                                             \
    OP2(mul_hi_u##n, U, U, U, (UW)((UW)x * y) >> n)                                                \
    OP2(mul_hi_s##n, U, S, S, (UW)((SW)x * y) >> n)                                                \
    OP3(mad_lo_##n, U, U, U, U, (UW)x *y + z)                                                      \
    OP2(div_u##n, U, U, U, y ? x / y : (U)~0)                                                      \
    OP2(rem_u##n, U, U, U, y ? x % y : x)                                                          \
    OP2(div_s##n, S, S, S, y == 0 ? -1 : y == -1 ? (S)(0 - (U)x) : x / y)                          \
    OP2(rem_s##n, S, S, S, y == 0 ? x : y == -1 ? 0 : x % y)                                       \
    OP2(min_u##n, U, U, U, x < y ? x : y)                                                          \
    OP2(max_u##n, U, U, U, x > y ? x : y)                                                          \
    OP2(min_s##n, S, S, S, x < y ? x : y)                                                          \
    OP2(max_s##n, S, S, S, x > y ? x : y)                                                          \
    OP2(and_##n, U, U, U, x &y)                                                                    \
    OP2(or_##n, U, U, U, x | y)                                                                    \
    OP2(xor_##n, U, U, U, x ^ y)                                                                   \
    OP1(not_##n, U, U, ~x)                                                                         \
    OP1(neg_##n, U, U, 0 - x)                                                                      \
    OP1(abs_s##n, U, S, x < 0 ? 0 - (U)x : (U)x)                                                   \
    OP1(mov_##n, U, U, x)                                                                          \
    OP2(shl_##n, U, U, uint32_t, y >= n ? 0 : (UW)x << y)                                          \
    OP2(shr_u##n, U, U, uint32_t, y >= n ? 0 : x >> y)                                             \
    OP2(shr_s##n, S, S, uint32_t, x >> (y >= n ? n - 1 : y))                                       \
    OPERATION(selp_##n)                                                                            \
    {                                                                                              \
        const U *a = ROW(w, i->a[0]), *b = ROW(w, i->b[0]);                                        \
        const uint32_t chosen = *(const uint32_t *)ROW(w, i->c[0]);                                \
        U r[PTX_LANES];                                                                            \
        FOR_LANES r[l] = chosen >> l & 1 ? a[l] : b[l];                                            \
        KEEP(U, r);                                                                                \
    }
INTEGERS(16, uint16_t, int16_t, uint32_t, int32_t)
INTEGERS(32, uint32_t, int32_t, uint64_t, int64_t)
INTEGERS(64, uint64_t, int64_t, unsigned __int128, __int128)

OP2(mul_wide_u16, uint32_t, uint16_t, uint16_t, (uint32_t)x *y)
OP2(mul_wide_s16, uint32_t, int16_t, int16_t, (int32_t)x *y)
OP2(mul_wide_u32, uint64_t, uint32_t, uint32_t, (uint64_t)x *y)
OP2(mul_wide_s32, uint64_t, int32_t, int32_t, (int64_t)x *y)
OP3(mad_wide_u32, uint64_t, uint32_t, uint32_t, uint64_t, (uint64_t)x *y + z)
OP3(mad_wide_s32, uint64_t, int32_t, int32_t, uint64_t, (uint64_t)((int64_t)x *y) + z)
OP1(popc_32, uint32_t, uint32_t, __builtin_popcount(x))
OP1(popc_64, uint32_t, uint64_t, __builtin_popcountll(x))
OP1(clz_32, uint32_t, uint32_t, x ? __builtin_clz(x) : 32)
OP1(clz_64, uint32_t, uint64_t, x ? __builtin_clzll(x) : 64)

static inline uint32_t permute(uint32_t x, uint32_t y, uint32_t selector)
{
    uint64_t bytes = (uint64_t)y << 32 | x;
    uint32_t r = 0;
    for (int k = 0; k < 4; k++) {
        uint32_t select = selector >> (4 * k) & 0xf, byte = bytes >> (8 * (select & 7)) & 0xff;
        r |= (select & 8 ? (byte & 0x80 ? 0xff : 0) : byte) << (8 * k);
    }
    return r;
}
OP3(prmt_32, uint32_t, uint32_t, uint32_t, uint32_t, permute(x, y, z))

static inline uint64_t insert_bits(uint64_t from, uint64_t to, uint32_t at, uint32_t n,
                                   uint32_t width)
{
    uint64_t ones;
    at &= 0xff, n &= 0xff;
    if (at >= width || !n)
        return to;
    n = n > width - at ? width - at : n;
    ones = (n >= 64 ? ~0ull : (1ull << n) - 1) << at;
    return (to & ~ones) | ((from << at) & ones);
}
#define INSERT(n, U)                                                                               \
    OPERATION(bfi_##n)                                                                             \
    {                                                                                              \
        const U *a = ROW(w, i->a[0]), *b = ROW(w, i->b[0]);                                        \
        const uint32_t *c = ROW(w, i->c[0]), *e = ROW(w, i->c[1]);                                 \
        U r[PTX_LANES];                                                                            \
        FOR_LANES r[l] = (U)insert_bits(a[l], b[l], c[l], e[l], n);                                \
        KEEP(U, r);                                                                                \
    }
INSERT(32, uint32_t)
INSERT(64, uint64_t)

static inline int64_t extract_bits(uint64_t from, uint32_t at, uint32_t n, uint32_t width,
                                   bool sign)
{
    at &= 0xff, n &= 0xff;
    uint64_t value = at >= width ? 0 : from >> at;
    uint64_t top = n ? from >> (at + n - 1 < width - 1 ? at + n - 1 : width - 1) & 1 : 0;
    if (n < 64)
        value &= (1ull << n) - 1;
    uint32_t have = at >= width ? 0 : width - at < n ? width - at : n;
    return (int64_t)(sign && top && have < 64 ? value | ~0ull << have : value);
}
OP3(bfe_u32, uint32_t, uint32_t, uint32_t, uint32_t, extract_bits(x, y, z, 32, false))
OP3(bfe_s32, uint32_t, uint32_t, uint32_t, uint32_t, extract_bits(x, y, z, 32, true))
OP3(bfe_u64, uint64_t, uint64_t, uint32_t, uint32_t, extract_bits(x, y, z, 64, false))

static inline uint32_t funnel(uint32_t low, uint32_t high, uint32_t by, bool left, bool wrap)
{
    uint64_t both = (uint64_t)high << 32 | low;
    by = wrap ? by & 31 : by > 32 ? 32 : by;
    return left ? (uint32_t)(both << by >> 32) : (uint32_t)(both >> by);
}
OP3(shf_l_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel(x, y, z, true, true))
OP3(shf_r_wrap, uint32_t, uint32_t, uint32_t, uint32_t, funnel(x, y, z, false, true))
OP3(shf_l_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel(x, y, z, true, false))
OP3(shf_r_clamp, uint32_t, uint32_t, uint32_t, uint32_t, funnel(x, y, z, false, false))

static inline uint32_t table_of(uint32_t x, uint32_t y, uint32_t z, uint32_t table)
{
    uint32_t r = 0;
    for (int k = 0; k < 8; k++)
        if (table >> k & 1)
            r |= (k & 4 ? x : ~x) & (k & 2 ? y : ~y) & (k & 1 ? z : ~z);
    return r;
}
OPERATION(lop3_32)
{
    const uint32_t *a = ROW(w, i->a[0]), *b = ROW(w, i->b[0]), *c = ROW(w, i->c[0]);
    const uint32_t *e = ROW(w, i->c[1]);
    uint32_t r[PTX_LANES];
    FOR_LANES r[l] = table_of(a[l], b[l], c[l], e[l]);
    KEEP(uint32_t, r);
}

/* ---- floating point ---- */

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

/* ---- the table ---- */

#define ROWS_OF_INTEGERS(n, bytes)                                                                 \
    {"add.b" #n, add_##n, bytes, bytes, bytes, 0, 0},                                              \
        {"sub.b" #n, sub_##n, bytes, bytes, bytes, 0, 0},                                          \
        {"mul.lo.b" #n, mul_lo_##n, bytes, bytes, bytes, 0, 0},                                    \
        {"mul.hi.u" #n, mul_hi_u##n, bytes, bytes, bytes, 0, 0},                                   \
        {"mul.hi.s" #n, mul_hi_s##n, bytes, bytes, bytes, 0, 0},                                   \
        {"mad.lo.b" #n, mad_lo_##n, bytes, bytes, bytes, bytes, 0},                                \
        {"div.u" #n, div_u##n, bytes, bytes, bytes, 0, 0},                                         \
        {"rem.u" #n, rem_u##n, bytes, bytes, bytes, 0, 0},                                         \
        {"div.s" #n, div_s##n, bytes, bytes, bytes, 0, 0},                                         \
        {"rem.s" #n, rem_s##n, bytes, bytes, bytes, 0, 0},                                         \
        {"min.u" #n, min_u##n, bytes, bytes, bytes, 0, 0},                                         \
        {"max.u" #n, max_u##n, bytes, bytes, bytes, 0, 0},                                         \
        {"min.s" #n, min_s##n, bytes, bytes, bytes, 0, 0},                                         \
        {"max.s" #n, max_s##n, bytes, bytes, bytes, 0, 0},                                         \
        {"and.b" #n, and_##n, bytes, bytes, bytes, 0, 0},                                          \
        {"or.b" #n, or_##n, bytes, bytes, bytes, 0, 0},                                            \
        {"xor.b" #n, xor_##n, bytes, bytes, bytes, 0, 0},                                          \
        {"not.b" #n, not_##n, bytes, bytes, 0, 0, 0},                                              \
        {"neg.b" #n, neg_##n, bytes, bytes, 0, 0, 0},                                              \
        {"abs.s" #n, abs_s##n, bytes, bytes, 0, 0, 0},                                             \
        {"mov.b" #n, mov_##n, bytes, bytes, 0, 0, 0},                                              \
        {"shl.b" #n, shl_##n, bytes, bytes, 4, 0, 0},                                              \
        {"shr.u" #n, shr_u##n, bytes, bytes, 4, 0, 0},                                             \
        {"shr.s" #n, shr_s##n, bytes, bytes, 4, 0, 0},                                             \
    {                                                                                              \
        "selp.b" #n, selp_##n, bytes, bytes, bytes, 1, 0                                           \
    }
#define ROWS_OF_FLOATS(n, bytes)                                                                   \
    {"add.f" #n, add_f##n, bytes, bytes, bytes, 0, 0},                                             \
        {"sub.f" #n, sub_f##n, bytes, bytes, bytes, 0, 0},                                         \
        {"mul.f" #n, mul_f##n, bytes, bytes, bytes, 0, 0},                                         \
        {"div.rn.f" #n, div_f##n, bytes, bytes, bytes, 0, 0},                                      \
        {"fma.rn.f" #n, fma_f##n, bytes, bytes, bytes, bytes, 0},                                  \
        {"rcp.rn.f" #n, rcp_f##n, bytes, bytes, 0, 0, 0},                                          \
        {"sqrt.rn.f" #n, sqrt_f##n, bytes, bytes, 0, 0, 0},                                        \
        {"neg.f" #n, neg_f##n, bytes, bytes, 0, 0, 0},                                             \
        {"abs.f" #n, abs_f##n, bytes, bytes, 0, 0, 0},                                             \
        {"min.f" #n, min_f##n, bytes, bytes, bytes, 0, 0},                                         \
        {"max.f" #n, max_f##n, bytes, bytes, bytes, 0, 0},                                         \
    {                                                                                              \
        "copysign.f" #n, copysign_f##n, bytes, bytes, bytes, 0, 0                                  \
    }
#define ROWS_OF_COMPARISONS(suffix, bytes)                                                         \
    {"setp.eq." #suffix, eq_##suffix, 1, bytes, bytes, 0, 0},                                      \
        {"setp.ne." #suffix, ne_##suffix, 1, bytes, bytes, 0, 0},                                  \
        {"setp.lt." #suffix, lt_##suffix, 1, bytes, bytes, 0, 0},                                  \
        {"setp.le." #suffix, le_##suffix, 1, bytes, bytes, 0, 0},                                  \
        {"setp.gt." #suffix, gt_##suffix, 1, bytes, bytes, 0, 0},                                  \
    {                                                                                              \
        "setp.ge." #suffix, ge_##suffix, 1, bytes, bytes, 0, 0                                     \
    }
#define ROWS_OF_UNORDERED(suffix, bytes)                                                           \
    {"setp.equ." #suffix, equ_##suffix, 1, bytes, bytes, 0, 0},                                    \
        {"setp.neu." #suffix, neu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.ltu." #suffix, ltu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.leu." #suffix, leu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.gtu." #suffix, gtu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.geu." #suffix, geu_##suffix, 1, bytes, bytes, 0, 0},                                \
        {"setp.num." #suffix, num_##suffix, 1, bytes, bytes, 0, 0},                                \
    {                                                                                              \
        "setp.nan." #suffix, nan_##suffix, 1, bytes, bytes, 0, 0                                   \
    }

const struct ptx_lane_op LANES_TABLE[] = {
    ROWS_OF_INTEGERS(16, 2),
    ROWS_OF_INTEGERS(32, 4),
    ROWS_OF_INTEGERS(64, 8),
    ROWS_OF_FLOATS(32, 4),
    ROWS_OF_FLOATS(64, 8),
    ROWS_OF_COMPARISONS(u16, 2),
    ROWS_OF_COMPARISONS(s16, 2),
    ROWS_OF_COMPARISONS(u32, 4),
    ROWS_OF_COMPARISONS(s32, 4),
    ROWS_OF_COMPARISONS(u64, 8),
    ROWS_OF_COMPARISONS(s64, 8),
    ROWS_OF_COMPARISONS(f32, 4),
    ROWS_OF_COMPARISONS(f64, 8),
    ROWS_OF_UNORDERED(f32, 4),
    ROWS_OF_UNORDERED(f64, 8),
    {"mul.wide.u16", mul_wide_u16, 4, 2, 2, 0, 0},
    {"mul.wide.s16", mul_wide_s16, 4, 2, 2, 0, 0},
    {"mul.wide.u32", mul_wide_u32, 8, 4, 4, 0, 0},
    {"mul.wide.s32", mul_wide_s32, 8, 4, 4, 0, 0},
    {"mad.wide.u32", mad_wide_u32, 8, 4, 4, 8, 0},
    {"mad.wide.s32", mad_wide_s32, 8, 4, 4, 8, 0},
    {"popc.b32", popc_32, 4, 4, 0, 0, 0},
    {"popc.b64", popc_64, 4, 8, 0, 0, 0},
    {"clz.b32", clz_32, 4, 4, 0, 0, 0},
    {"clz.b64", clz_64, 4, 8, 0, 0, 0},
    {"prmt.b32", prmt_32, 4, 4, 4, 4, 0},
    {"bfi.b32", bfi_32, 4, 4, 4, 4, 4},
    {"bfi.b64", bfi_64, 8, 8, 8, 4, 4},
    {"bfe.u32", bfe_u32, 4, 4, 4, 4, 0},
    {"bfe.s32", bfe_s32, 4, 4, 4, 4, 0},
    {"bfe.u64", bfe_u64, 8, 8, 4, 4, 0},
    {"shf.l.wrap.b32", shf_l_wrap, 4, 4, 4, 4, 0},
    {"shf.r.wrap.b32", shf_r_wrap, 4, 4, 4, 4, 0},
    {"shf.l.clamp.b32", shf_l_clamp, 4, 4, 4, 4, 0},
    {"shf.r.clamp.b32", shf_r_clamp, 4, 4, 4, 4, 0},
    {"lop3.b32", lop3_32, 4, 4, 4, 4, 4},
    {"fma.rm.f32", fma_rm_f32, 4, 4, 4, 4, 0},
    {"ex2.approx.ftz.f32", ex2_ftz, 4, 4, 0, 0, 0},
    {"ex2.approx.f32", ex2, 4, 4, 0, 0, 0},
    {"lg2.approx.f32", lg2, 4, 4, 0, 0, 0},
    {"lg2.approx.ftz.f32", lg2_ftz, 4, 4, 0, 0, 0},
    {"rcp.approx.f32", rcp_near, 4, 4, 0, 0, 0},
    {"rcp.approx.ftz.f32", rcp_near_ftz, 4, 4, 0, 0, 0},
    {"div.approx.f32", div_near, 4, 4, 4, 0, 0},
    {"div.full.f32", div_near, 4, 4, 4, 0, 0},
    {"sqrt.approx.f32", sqrt_near, 4, 4, 0, 0, 0},
    {"rsqrt.approx.f32", rsqrt_near, 4, 4, 0, 0, 0},
    {"sin.approx.f32", sin_near, 4, 4, 0, 0, 0},
    {"cos.approx.f32", cos_near, 4, 4, 0, 0, 0},
    {"tanh.approx.f32", tanh_near, 4, 4, 0, 0, 0},
    {"and.pred", and_pred, 1, 1, 1, 0, 0},
    {"or.pred", or_pred, 1, 1, 1, 0, 0},
    {"xor.pred", xor_pred, 1, 1, 1, 0, 0},
    {"not.pred", not_pred, 1, 1, 0, 0, 0},
    {"mov.pred", mov_pred, 1, 1, 0, 0, 0},
    {"cvt.s64.s32", cvt_s64_s32, 8, 4, 0, 0, 0},
    {"cvt.u64.u32", cvt_u64_u32, 8, 4, 0, 0, 0},
    {"cvt.u32.u64", cvt_u32_u64, 4, 8, 0, 0, 0},
    {"cvt.u16.u32", cvt_u16_u32, 2, 4, 0, 0, 0},
    {"cvt.u32.u16", cvt_u32_u16, 4, 2, 0, 0, 0},
    {"cvt.rn.f32.s32", cvt_f32_s32, 4, 4, 0, 0, 0},
    {"cvt.f64.f32", cvt_f64_f32, 8, 4, 0, 0, 0},
    {"cvt.sat.f32.f32", cvt_sat_f32, 4, 4, 0, 0, 0},
    {"cvt.rzi.f32.f32", cvt_rzi_f32, 4, 4, 0, 0, 0},
    {"cvt.rni.f32.f32", cvt_rni_f32, 4, 4, 0, 0, 0},
    {"cvt.rmi.f32.f32", cvt_rmi_f32, 4, 4, 0, 0, 0},
    {"cvt.rpi.f32.f32", cvt_rpi_f32, 4, 4, 0, 0, 0},
    {NULL, NULL, 0, 0, 0, 0, 0},
};

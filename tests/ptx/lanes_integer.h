/* lanes_integer: whole numbers and bits; part of lanes.h. */
#ifndef PTX_LANES_INTEGER_H
#define PTX_LANES_INTEGER_H

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

#endif

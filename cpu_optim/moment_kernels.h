/*
 * moment_kernels: moments that are not kept in fp32, read into and written from the vectors of a
 * step, so that any form is still one pass over memory. bf16 moments are rounded as they are
 * stored. 8-bit moments need the largest of their block first: the new ones wait in the
 * first-level cache until the block is done. optim.h has both formats.
 *
 * Included by each per-ISA file after vector_kernels.h.
 */
#define RANDOM_GROUP 64u /* elements that 16 Philox blocks serve */
#define RANDOM_LANES 16u
#define BLOCK_8BIT ((unsigned)ZINF_OPTIM_8BIT_BLOCK)

/* ---- random bits for stochastic rounding ---- */

/* Ten rounds of zinf_philox on LANES counters side by side; the first word of the counter differs
 * by one from lane to lane. */
ALWAYS_INLINE void philox_lanes(uint64_t first, uint64_t step, uint64_t key, ivec word[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    ivec c0 = ivec_count_from((uint32_t)first), c1 = ivec_set1((uint32_t)(first >> 32));
    ivec c2 = ivec_set1((uint32_t)step), c3 = ivec_set1((uint32_t)(step >> 32));
    for (int round = 0; round < 10; round++) {
        ivec high0, low0, high1, low1;
        ivec_mul_wide(c0, 0xD2511F53u, &high0, &low0);
        ivec_mul_wide(c2, 0xCD9E8D57u, &high1, &low1);
        c0 = ivec_xor(ivec_xor(high1, c1), ivec_set1(k0));
        c2 = ivec_xor(ivec_xor(high0, c3), ivec_set1(k1));
        c1 = low1;
        c3 = low0;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    word[0] = c0;
    word[1] = c1;
    word[2] = c2;
    word[3] = c3;
}

/* The random bits of the group of elements that starts at base. */
ALWAYS_INLINE void random_group(uint16_t *low, uint16_t *high, uint64_t base, uint64_t step,
                                uint64_t key)
{
    for (unsigned lane = 0; lane < RANDOM_LANES; lane += LANES) {
        ivec word[4];
        philox_lanes(base / RANDOM_GROUP * RANDOM_LANES + lane, step, key, word);
        for (unsigned j = 0; j < 4; j++)
            ivec_store_halves(low + j * RANDOM_LANES + lane, high + j * RANDOM_LANES + lane,
                              word[j]);
    }
}

/* The random bits of elements element .. element + count. */
static __attribute__((noinline)) void random_halves(uint16_t *low, uint16_t *high, uint64_t element,
                                                    uint64_t count, uint64_t step, uint64_t key)
{
    const uint64_t end = element + count;
    for (uint64_t base = element / RANDOM_GROUP * RANDOM_GROUP; base < end; base += RANDOM_GROUP) {
        uint16_t group_low[RANDOM_GROUP], group_high[RANDOM_GROUP];
        if (base >= element && base + RANDOM_GROUP <= end) {
            random_group(low + (base - element), high + (base - element), base, step, key);
            continue;
        }
        random_group(group_low, group_high, base, step, key);
        uint64_t from = base > element ? base : element;
        uint64_t to = base + RANDOM_GROUP < end ? base + RANDOM_GROUP : end;
        memcpy(low + (from - element), group_low + (from - base), (to - from) * sizeof *low);
        memcpy(high + (from - element), group_high + (from - base), (to - from) * sizeof *high);
    }
}

/* What bf16 holds stays: its values, infinities and canonical NaNs have 16 zeros below. */
ALWAYS_INLINE void store_half(uint16_t *to, vec value, const uint16_t *random)
{
    if (random)
        vec_store_bf16_random(to, value, random);
    else
        vec_store_bf16(to, value);
}

/* ---- 8 bits ---- */

/* Code c >= 1 of e = floor(log2 c) stands for decade (0.9 (c + 1/2) / 2^e - 0.8), with decade =
 * 10^(e - 6) for moment1 and 10^(e - 7) for moment2: a line in c for each e. Of c as an fp32 number
 * the exponent is e + 127, of which the low three bits find the line: e stands at (e + 7) % 8. */
static const float line_slope1[8] = {0.45e-5f,   0.225e-4f,   0.1125e-3f, 0.5625e-3f,
                                     0.28125e-2f, 0.140625e-1f, 0,          0.9e-6f};
static const float line_offset1[8] = {-0.575e-5f,     -0.6875e-4f,   -0.74375e-3f, -0.771875e-2f,
                                      -0.7859375e-1f, -0.79296875f, 0,            -0.35e-6f};
static const float line_slope2[8] = {0.45e-6f,    0.225e-5f,    0.1125e-4f,  0.5625e-4f,
                                     0.28125e-3f, 0.140625e-2f, 0.703125e-2f, 0.9e-7f};
static const float line_offset2[8] = {-0.575e-6f,     -0.6875e-5f,    -0.74375e-4f,  -0.771875e-3f,
                                      -0.7859375e-2f, -0.79296875e-1f, -0.796484375f, -0.35e-7f};
/* The value of the last code: it stands for the largest of a block. */
#define TOP1 (1 - 0.45 / 64)
#define TOP2 (1 - 0.45 / 128)

/* Moments of LANES codes. */
ALWAYS_INLINE vec load_codes(const uint8_t *codes, bool is_signed, vec scale)
{
    const ivec byte = ivec_load_bytes(codes);
    const ivec code = is_signed ? ivec_and(byte, ivec_set1(0x7f)) : byte;
    const vec c = vec_convert(code);
    const ivec e = ivec_shift_right(ivec_of_bits(c), 23);
    vec value = vec_fma(vec_lookup(is_signed ? line_slope1 : line_slope2, e), c,
                        vec_lookup(is_signed ? line_offset1 : line_offset2, e));
    value = vec_mul(vec_below(vec_set1(0), c, value, c), scale);
    if (!is_signed)
        return value;
    ivec sign = ivec_shift_left(ivec_and(byte, ivec_set1(0x80)), 24);
    return vec_of_bits(ivec_xor(ivec_of_bits(value), sign));
}

/*
 * The cell of y, in [0, TOP]: the inverse of the lines above. They fall in slope from decade to
 * decade, so the cell is the least of them all; and four decades down it is the same picture, 16
 * times smaller, so that four lines are enough.
 */
ALWAYS_INLINE vec cell_of(vec y, bool is_signed)
{
    const float top = is_signed ? 64 : 128; /* cells of the first decade */
    const vec split = vec_set1(1e-4f);
    vec u = vec_below(y, split, vec_mul(y, vec_set1(1e4f)), y);
    vec c = vec_fma(u, vec_set1(top / 0.9f), vec_set1(top * (8 / 9.0f)));
    c = vec_min(c, vec_fma(u, vec_set1(top * 5 / 0.9f), vec_set1(top / 2 * (8 / 9.0f))));
    c = vec_min(c, vec_fma(u, vec_set1(top * 25 / 0.9f), vec_set1(top / 4 * (8 / 9.0f))));
    c = vec_min(c, vec_fma(u, vec_set1(top * 125 / 0.9f), vec_set1(top / 8 * (8 / 9.0f))));
    return vec_below(y, split, vec_mul(c, vec_set1(1 / 16.0f)), c);
}

/* Codes of one block of new moments, whose largest magnitude has the bits top. */
ALWAYS_INLINE void store_codes(uint8_t *codes, float *scale, bool is_signed, const float *wide,
                               uint32_t top)
{
    const vec magnitude = vec_of_bits(ivec_set1(0x7fffffffu));
    float largest;
    memcpy(&largest, &top, sizeof largest);
    if (top < 0x00800000u || top >= 0x7f800000u) { /* nothing to keep, or nothing left to save */
        *scale = top < 0x00800000u ? 0 : zinf_bf16_to_f32(0x7fc0);
        memset(codes, top < 0x00800000u ? 0 : 1, BLOCK_8BIT);
        return;
    }
    const double last = is_signed ? TOP1 : TOP2;
    const vec inverse = vec_set1((float)(last / (double)largest));
    *scale = (float)((double)largest / last);
    for (unsigned i = 0; i < BLOCK_8BIT; i += LANES) {
        const vec x = vec_load(wide + i);
        const ivec bits = ivec_of_bits(x);
        vec y = vec_of_bits(ivec_and(bits, ivec_of_bits(magnitude)));
        vec c = cell_of(vec_mul(y, inverse), is_signed);
        if (!is_signed) /* a step is divided by its root */
            c = vec_max(c, vec_below(vec_set1(0), x, vec_set1(1), vec_set1(0)));
        ivec code = ivec_truncate(c);
        if (is_signed)
            code = ivec_or(code, ivec_and(ivec_shift_right(bits, 24), ivec_set1(0x80)));
        ivec_store_bytes(codes + i, code);
    }
}

/* ---- any form ---- */

/* What a run of elements has beside its arrays. */
struct run {
    uint64_t start;            /* its first element */
    void *param;               /* where the copy of that element goes */
    const uint16_t *low, *high; /* random bits from start on, or NULL */
    float *wide1, *wide2;      /* new 8-bit moments from start on */
    vec scale1, scale2;        /* of the 8-bit block */
    ivec top1, top2;           /* the largest magnitudes yet in it, as bits */
};

ALWAYS_INLINE vec load_moment1(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                               const struct run *run, uint64_t i)
{
    if (form == ZINF_OPTIM_MOMENTS_F32)
        return vec_load(a->moment1 + i);
    if (form == ZINF_OPTIM_MOMENTS_BF16)
        return vec_load_bf16(a->half_moment1 + i);
    return load_codes(a->byte_moment1 + i, true, run->scale1);
}

ALWAYS_INLINE vec load_moment2(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                               const struct run *run, uint64_t i)
{
    if (form == ZINF_OPTIM_MOMENTS_F32)
        return vec_load(a->moment2 + i);
    if (form == ZINF_OPTIM_MOMENTS_BF16)
        return vec_load_bf16(a->half_moment2 + i);
    return load_codes(a->byte_moment2 + i, false, run->scale2);
}

ALWAYS_INLINE void keep_wide(float *to, ivec *top, vec value)
{
    vec_store(to, value);
    *top = ivec_max(*top, ivec_and(ivec_of_bits(value), ivec_set1(0x7fffffffu)));
}

ALWAYS_INLINE void store_moment1(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                                 struct run *run, uint64_t i, vec value)
{
    if (form == ZINF_OPTIM_MOMENTS_F32)
        vec_store(a->moment1 + i, value);
    else if (form == ZINF_OPTIM_MOMENTS_BF16)
        store_half(a->half_moment1 + i, value, run->low ? run->low + (i - run->start) : NULL);
    else
        keep_wide(run->wide1 + (i - run->start), &run->top1, value);
}

ALWAYS_INLINE void store_moment2(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                                 struct run *run, uint64_t i, vec value)
{
    if (form == ZINF_OPTIM_MOMENTS_F32)
        vec_store(a->moment2 + i, value);
    else if (form == ZINF_OPTIM_MOMENTS_BF16)
        store_half(a->half_moment2 + i, value, run->high ? run->high + (i - run->start) : NULL);
    else
        keep_wide(run->wide2 + (i - run->start), &run->top2, value);
}

ALWAYS_INLINE void block_begin(struct run *run, const struct zinf_optim_array *a, uint64_t i)
{
    run->scale1 = vec_set1(a->scale1[i / BLOCK_8BIT]);
    run->scale2 = vec_set1(a->scale2[i / BLOCK_8BIT]);
    run->top1 = run->top2 = ivec_set1(0);
}

ALWAYS_INLINE void block_end(const struct run *run, const struct zinf_optim_array *a, uint64_t i)
{
    const float *wide1 = run->wide1 + (i - run->start), *wide2 = run->wide2 + (i - run->start);
    store_codes(a->byte_moment1 + i, a->scale1 + i / BLOCK_8BIT, true, wide1, ivec_top(run->top1));
    store_codes(a->byte_moment2 + i, a->scale2 + i / BLOCK_8BIT, false, wide2, ivec_top(run->top2));
}

/*
 * moment_kernels: moments that are not stored in fp32. They are converted as a step reads and
 * writes its vectors, so a step is one pass over memory in any form. bf16 moments are rounded as
 * they are stored. 8-bit moments need the largest value of their block first, so the new ones are
 * kept in the first-level cache until the block is done. optim.h has both formats. Included by
 * each per-ISA file after vector_kernels.h.
 */
#define RANDOM_GROUP 64u /* elements whose random bits come from 16 Philox blocks */
#define RANDOM_LANES 16u
#define BLOCK_8BIT ((unsigned)ZINF_OPTIM_8BIT_BLOCK)

/* ---- random bits for stochastic rounding ---- */

/*
 * Ten rounds of zinf_philox on several counters at once. A product of 32 bits by 32 has 64, so a
 * vector holds every SPREAD-th counter in the low half of its 64-bit lanes; the high halves do not
 * matter. The counters' first words are first, first + SPREAD, first + 2 SPREAD, ...
 */
ALWAYS_INLINE void philox_spread(uint64_t first, uint64_t step, uint64_t key, ivec word[4])
{
    uint32_t k0 = (uint32_t)key, k1 = (uint32_t)(key >> 32);
    ivec c0 = ivec_count_spread((uint32_t)first), c1 = ivec_set1((uint32_t)(first >> 32));
    ivec c2 = ivec_set1((uint32_t)step), c3 = ivec_set1((uint32_t)(step >> 32));
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
        ivec high0, low0, high1, low1;
        ivec_mul_spread(c0, 0xD2511F53u, &high0, &low0);
        ivec_mul_spread(c2, 0xCD9E8D57u, &high1, &low1);
        c0 = ivec_xor3(high1, c1, ivec_set1(k0));
        c2 = ivec_xor3(high0, c3, ivec_set1(k1));
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
        const uint64_t block = base / RANDOM_GROUP * RANDOM_LANES + lane;
        ivec word[SPREAD][4];
        for (unsigned s = 0; s < SPREAD; s++)
            philox_spread(block + s, step, key, word[s]);
        for (unsigned j = 0; j < 4; j++)
            ivec_store_halves(low + j * RANDOM_LANES + lane, high + j * RANDOM_LANES + lane,
                              ivec_gather(word[0][j], word[SPREAD - 1][j]));
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

/* Values that bf16 can hold, infinities and canonical NaNs stay as they are: their lower 16 bits
 * are 0. */
ALWAYS_INLINE void store_half(uint16_t *to, vec value, const uint16_t *random)
{
    if (random)
        vec_store_bf16_random(to, value, random);
    else
        vec_store_bf16(to, value);
}

/* ---- 8 bits ---- */

/* The value of a code c is a linear function of c for each e = floor(log2 c), in units of the
 * block's scale. For moment1 it is 10^(e - 6) (0.9 (c + 1/2) / 2^e - 0.8). For moment2, c + 1/2 is
 * replaced by (c + 1/2) / 2 and e - 6 by e - 7, and the last line differs. The exponent of c as an
 * fp32 number is e + 127; its low three bits are the index into the tables, so line e is at index
 * (e + 7) % 8. */
static const float line_slope1[8] = {0.45e-5f,    0.225e-4f,    0.1125e-3f, 0.5625e-3f,
                                     0.28125e-2f, 0.140625e-1f, 0,          0.9e-6f};
static const float line_offset1[8] = {
    -0.575e-5f,   -0.6875e-4f, -0.74375e-3f, -0.771875e-2f, -0.7859375e-1f,
    -0.79296875f, 0,           -0.35e-6f};
static const float line_slope2[8] = {0.45e-6f,    0.225e-5f,    0.1125e-4f,   0.5625e-4f,
                                     0.28125e-3f, 0.140625e-2f, 0.703125e-2f, 0.9e-7f};
static const float line_offset2[8] = {-0.575e-6f,     -0.6875e-5f,     -0.74375e-4f,  -0.771875e-3f,
                                      -0.7859375e-2f, -0.79296875e-1f, -0.796484375f, -0.35e-7f};
/* The value of the last code, which the largest value of a block gets. */
#define TOP1 (1 - 0.45f / 64)
#define TOP2 (1 - 0.45f / 128)

ALWAYS_INLINE vec load_codes1(const int8_t *codes, vec scale)
{
    const vec c = vec_convert(ivec_load_signed(codes));
    const ivec e = ivec_shift_right(ivec_of_bits(c), 23);
    vec value =
        vec_fma(vec_lookup(line_slope1, e), c, vec_flip_sign(vec_lookup(line_offset1, e), c));
    return vec_mul_nonzero(c, value, scale);
}

ALWAYS_INLINE vec load_codes2(const uint8_t *codes, vec scale)
{
    const vec c = vec_convert(ivec_load_bytes(codes));
    const ivec e = ivec_shift_right(ivec_of_bits(c), 23);
    vec value = vec_fma(vec_lookup(line_slope2, e), c, vec_lookup(line_offset2, e));
    return vec_mul_nonzero(c, value, scale);
}

/*
 * How the values of a block become codes: the inverse of the lines above, multiplied by unit,
 * which makes the largest value the last code. split is 1e-4 times the largest. The lines become
 * flatter from decade to decade, so the code is the least of all lines. Four decades lower the
 * picture is the same, 16 times smaller, so four lines are enough.
 */
struct cells {
    vec slope[4], offset[4], split;
};

ALWAYS_INLINE struct cells cells_of(float first, float unit, float split)
{
    const vec scale = vec_set1(unit);
    return (struct cells){
        .slope = {vec_mul(vec_set1(first / 0.9f), scale),
                  vec_mul(vec_set1(first * 5 / 0.9f), scale),
                  vec_mul(vec_set1(first * 25 / 0.9f), scale),
                  vec_mul(vec_set1(first * 125 / 0.9f), scale)},
        .offset = {vec_set1(first / 9 * 8), vec_set1(first / 18 * 8), vec_set1(first / 36 * 8),
                   vec_set1(first / 72 * 8)},
        .split = vec_set1(split),
    };
}

ALWAYS_INLINE vec cell_at(const struct cells *k, vec x)
{
    vec u = vec_mul_below(x, k->split, x, vec_set1(1e4f));
    vec low = vec_min(vec_fma(u, k->slope[0], k->offset[0]), vec_fma(u, k->slope[1], k->offset[1]));
    vec high =
        vec_min(vec_fma(u, k->slope[2], k->offset[2]), vec_fma(u, k->slope[3], k->offset[3]));
    return vec_mul_below(x, k->split, vec_min(low, high), vec_set1(1 / 16.0f));
}

/* Codes of a block of moment1. Not inlined, so that all constants stay in registers. */
static __attribute__((noinline)) void store_codes1(int8_t *codes, const float *wide, float unit,
                                                   float split)
{
    const struct cells k = cells_of(64, unit, split);
    for (unsigned i = 0; i < BLOCK_8BIT; i += LANES) {
        const vec x = vec_load(wide + i);
        const vec c = vec_copysign_of(cell_at(&k, vec_abs(x)), x);
        ivec_store_bytes((uint8_t *)codes + i, ivec_truncate(c));
    }
}

/* The same of moment2, with at least code 1, since updates are divided by its root. */
static __attribute__((noinline)) void store_codes2(uint8_t *codes, const float *wide, float unit,
                                                   float split)
{
    const struct cells k = cells_of(128, unit, split);
    for (unsigned i = 0; i < BLOCK_8BIT; i += LANES) {
        const vec c = vec_max(cell_at(&k, vec_load(wide + i)), vec_set1(1));
        ivec_store_bytes(codes + i, ivec_truncate(c));
    }
}

/* The largest magnitude of a block, from its bits. */
ALWAYS_INLINE float block_largest(uint32_t top)
{
    float largest;
    memcpy(&largest, &top, sizeof largest);
    return largest;
}

/* 2^-100. Slopes are about 2^13 / largest, which is finite from here on. */
#define LEAST_LARGEST 0x0d800000u

/* Whether a block cannot be coded: its largest value is too small, or it has an Inf or NaN. */
ALWAYS_INLINE bool block_is_odd(uint32_t top)
{
    return top < LEAST_LARGEST || top >= 0x7f800000u;
}

/* Sets the scale of a block, and the codes too if it cannot be coded. */
ALWAYS_INLINE void block_scale(float *scale, void *codes, uint32_t top, float last)
{
    if (!block_is_odd(top)) {
        *scale = block_largest(top) * (1 / last);
        return;
    }
    *scale = top < LEAST_LARGEST ? 0 : zinf_bf16_to_f32(0x7fc0);
    memset(codes, top < LEAST_LARGEST ? 0 : 1, BLOCK_8BIT);
}

/* ---- any form ---- */

/* What a run of consecutive elements needs beside its arrays. */
struct moment_run {
    uint64_t start;             /* its first element */
    void *param;                /* parameter copy of that element */
    const uint16_t *low, *high; /* random bits from start on; NULL: round to nearest */
    float *wide1, *wide2; /* new moments from start on, in fp32, before they become 8-bit codes */
    vec scale1, scale2;   /* scales of the 8-bit block */
    ivec top1, top2;      /* largest magnitudes of the block so far, as bits */
};

ALWAYS_INLINE vec load_moment1(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                               const struct moment_run *run, uint64_t i)
{
    if (form == ZINF_OPTIM_MOMENTS_F32)
        return vec_load(a->moment1 + i);
    if (form == ZINF_OPTIM_MOMENTS_BF16)
        return vec_load_bf16(a->half_moment1 + i);
    return load_codes1(a->byte_moment1 + i, run->scale1);
}

ALWAYS_INLINE vec load_moment2(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                               const struct moment_run *run, uint64_t i)
{
    if (form == ZINF_OPTIM_MOMENTS_F32)
        return vec_load(a->moment2 + i);
    if (form == ZINF_OPTIM_MOMENTS_BF16)
        return vec_load_bf16(a->half_moment2 + i);
    return load_codes2(a->byte_moment2 + i, run->scale2);
}

ALWAYS_INLINE void store_moment1(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                                 struct moment_run *run, uint64_t i, vec value)
{
    if (form == ZINF_OPTIM_MOMENTS_F32) {
        vec_store(a->moment1 + i, vec_canonical(value));
    } else if (form == ZINF_OPTIM_MOMENTS_BF16) {
        store_half(a->half_moment1 + i, vec_canonical(value),
                   run->low ? run->low + (i - run->start) : NULL);
    } else {
        vec_store(run->wide1 + (i - run->start), value);
        run->top1 = ivec_max(run->top1, ivec_of_bits(vec_abs(value)));
    }
}

ALWAYS_INLINE void store_moment2(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                                 struct moment_run *run, uint64_t i, vec value)
{
    if (form == ZINF_OPTIM_MOMENTS_F32) {
        vec_store(a->moment2 + i, vec_canonical(value));
    } else if (form == ZINF_OPTIM_MOMENTS_BF16) {
        store_half(a->half_moment2 + i, vec_canonical(value),
                   run->high ? run->high + (i - run->start) : NULL);
    } else {
        vec_store(run->wide2 + (i - run->start), value);
        run->top2 = ivec_max(run->top2, ivec_of_bits(value)); /* never negative, unless NaN */
    }
}

ALWAYS_INLINE void block_begin(struct moment_run *run, const struct zinf_optim_array *a, uint64_t i)
{
    run->scale1 = vec_set1(a->scale1[i / BLOCK_8BIT]);
    run->scale2 = vec_set1(a->scale2[i / BLOCK_8BIT]);
    run->top1 = run->top2 = ivec_set1(0);
}

/*
 * pack_kernels: the text of pack.h over vectors of halves. Included by each per-ISA file, which
 * defines before
 *   LANES, hvec              16 or 32 halves of 16 bits, their type
 *   h_load _store _set1 _and _or _sub _min _max      min and max of unsigned numbers
 *   h_shift_left(x, n), h_shift_right(x, n)          n up to 16, which leaves nothing
 *   h_where_equal(a, b, x, y)                        a == b: x; else y
 *   h_below(a, b)            mask of lanes with a < b, unsigned: one of MASK_BITS bits for each
 *   h_count_below(sum, a, b) sum, and one more in each lane with a < b
 *   h_total(sum)             of all lanes, each below 32768
 *   h_most(x), h_least(x)    of all lanes
 *   h_split(high, low, x), h_join(x, high, low)      LANES numbers of fp32
 *   h_stream(to, x)          a store past the caches, to is aligned; h_stream_end() behind the last
 * Loads and stores take any alignment.
 */
#define ALWAYS_INLINE static inline __attribute__((always_inline))

static bool split(uint16_t *high, uint16_t *low, const void *x)
{
    hvec any = h_set1(0);
    for (uint32_t i = 0; i < PACK_BLOCK; i += LANES) {
        hvec up, down;
        h_split(&up, &down, (const char *)x + 4 * i);
        h_store(high + i, up);
        h_store(low + i, down);
        any = h_or(any, down);
    }
    return h_most(any) != 0;
}

static void join(void *x, const uint16_t *high, const void *low)
{
    for (uint32_t i = 0; i < PACK_BLOCK; i += LANES)
        h_join((char *)x + 4 * i, h_load(high + i),
               low ? h_load((const char *)low + 2 * i) : h_set1(0));
}

/* ---- the choice of a width ---- */

/* An element is an exception if magnitude - zero < bound in unsigned numbers. For a zero that has a
 * code the left side wraps around. */
ALWAYS_INLINE uint16_t bound_of(const struct pack_block *block)
{
    int bound = block->base - pack_largest(block); /* the terms for zero cancel out */
    return (uint16_t)(bound > 0 ? bound : 0);
}

ALWAYS_INLINE uint64_t exceptions_at(const uint16_t *at, const struct pack_block *block)
{
    hvec size = h_and(h_load(at), h_set1(0x7fff));
    return h_below(h_sub(size, h_set1(block->zero)), h_set1(bound_of(block)));
}

/* Counts the exceptions of the TRIALS next smaller widths in one pass. */
#define TRIALS 2
static void count_exceptions(const uint16_t *halves, const struct pack_block *block,
                             uint32_t counts[TRIALS])
{
    const hvec zero = h_set1(block->zero);
    hvec bounds[TRIALS], sums[TRIALS];
    struct pack_block less = *block;
    for (int t = 0; t < TRIALS; t++) {
        less.width = (uint8_t)(less.width - (less.width > less.sign));
        bounds[t] = h_set1(bound_of(&less));
        sums[t] = h_set1(0);
    }
    for (uint32_t i = 0; i < PACK_BLOCK; i += LANES) {
        hvec size = h_sub(h_and(h_load(halves + i), h_set1(0x7fff)), zero);
        for (int t = 0; t < TRIALS; t++)
            sums[t] = h_count_below(sums[t], size, bounds[t]);
    }
    for (int t = 0; t < TRIALS; t++)
        counts[t] = h_total(sums[t]);
}

static void narrow(struct pack_block *block, const uint16_t *halves)
{
    for (;;) {
        uint32_t counts[TRIALS];
        count_exceptions(halves, block, counts);
        for (int t = 0; t < TRIALS; t++) {
            if (block->width <= block->sign + block->zero || /* one code is needed for zero */
                counts[t] > PACK_EXCEPTIONS ||
                (counts[t] - block->exceptions) * sizeof(struct pack_exception) >= 2 * PACK_ROW)
                return;
            block->width--;
            block->exceptions = (uint8_t)counts[t];
        }
    }
}

static struct pack_block choose(const uint16_t *halves)
{
    hvec most = h_set1(0), least = h_set1(0xffff), nonzero = h_set1(0xffff), signs = h_set1(0);
    for (uint32_t i = 0; i < PACK_BLOCK; i += LANES) {
        hvec half = h_load(halves + i), size = h_and(half, h_set1(0x7fff));
        most = h_max(most, size);
        least = h_min(least, size);
        nonzero = h_min(nonzero, h_sub(size, h_set1(1)));
        signs = h_or(signs, half);
    }
    struct pack_block block = {.base = h_most(most), .sign = h_most(signs) >> 15};
    block.zero = block.base && !h_least(least);
    if (block.base) {
        uint32_t farthest = block.base - (h_least(nonzero) + 1u) + block.zero;
        block.width = (uint8_t)(farthest ? 32 - __builtin_clz(farthest) : 0);
    }
    block.width = (uint8_t)(block.width + block.sign);
    narrow(&block, halves);
    return block;
}

/* ---- codes ---- */

/* Row r of codes of a constant width, in a column of LANES, begins at bit r * width. */
#define FIRST_WORD(r, width) ((r) * (width) / 16)
#define SHIFT(r, width) ((r) * (width) % 16)
#define EACH_ROW(row)                                                                              \
    row(0) row(1) row(2) row(3) row(4) row(5) row(6) row(7) row(8) row(9) row(10) row(11) row(12)  \
        row(13) row(14) row(15)
#define EACH_WIDTH(width)                                                                          \
    width(0) width(1) width(2) width(3) width(4) width(5) width(6) width(7) width(8) width(9)      \
        width(10) width(11) width(12) width(13) width(14) width(15)

struct coding {
    /* zero: the magnitude that zero_code stands for; 0xffff: none */
    hvec base, mask, zero, zero_code;
    int sign, sign_shift; /* sign_shift 16: no signs */
};

ALWAYS_INLINE struct coding coding_of(const struct pack_block *block)
{
    return (struct coding){
        .base = h_set1(block->base),
        .mask = h_set1((uint16_t)((1u << block->width) - 1)),
        .zero = h_set1(block->zero ? 0 : 0xffff),
        .zero_code = h_set1(block->zero ? pack_largest(block) : 0xffff),
        .sign = block->sign,
        .sign_shift = block->sign ? 15 : 16,
    };
}

ALWAYS_INLINE hvec code_of(hvec half, const struct coding *c)
{
    hvec size = h_and(half, h_set1(0x7fff));
    hvec code = h_where_equal(size, c->zero, c->zero_code, h_sub(c->base, size));
    code = h_or(h_shift_left(code, c->sign), h_shift_right(half, c->sign_shift));
    return h_and(code, c->mask);
}

ALWAYS_INLINE hvec half_of(hvec code, const struct coding *c)
{
    hvec away = h_shift_right(code, c->sign);
    hvec size = h_and(h_sub(c->base, away), h_set1(0x7fff));
    size = h_where_equal(away, c->zero_code, h_set1(0), size);
    return h_or(size, h_shift_left(code, c->sign_shift));
}

ALWAYS_INLINE void encode_width(uint16_t *out, const uint16_t *halves, const struct coding *c,
                                int width)
{
    for (uint32_t column = 0; column < PACK_ROW; column += LANES) {
        hvec word = h_set1(0), code;
#define ROW(r)                                                                                     \
    code = code_of(h_load(halves + r * PACK_ROW + column), c);                                     \
    word = SHIFT(r, width) ? h_or(word, h_shift_left(code, SHIFT(r, width))) : code;               \
    if (SHIFT(r, width) + width >= 16) {                                                           \
        h_store(out + FIRST_WORD(r, width) * PACK_ROW + column, word);                             \
        word = h_shift_right(code, 16 - SHIFT(r, width));                                          \
    }
        EACH_ROW(ROW)
#undef ROW
    }
}

/* Stores halves to `to`, or, if there is a `wide` array, the numbers that they make with lower
 * halves: those at `low`, or zeros. */
struct target {
    uint16_t *halves;
    char *wide;
    const char *low;
};

ALWAYS_INLINE void put(const struct target *to, uint32_t at, hvec half)
{
    if (to->wide)
        h_join(to->wide + 4 * at, half, to->low ? h_load(to->low + 2 * at) : h_set1(0));
    else
        h_store(to->halves + at, half);
}

ALWAYS_INLINE void decode_width(const struct target *to, const uint16_t *in, const struct coding *c,
                                int width)
{
    for (uint32_t column = 0; column < PACK_ROW; column += LANES) {
        hvec code;
#define ROW(r)                                                                                     \
    code = width ? h_load(in + FIRST_WORD(r, width) * PACK_ROW + column) : h_set1(0);              \
    code = h_shift_right(code, SHIFT(r, width));                                                   \
    if (SHIFT(r, width) + width > 16)                                                              \
        code =                                                                                     \
            h_or(code, h_shift_left(h_load(in + (FIRST_WORD(r, width) + 1) * PACK_ROW + column),   \
                                    16 - SHIFT(r, width)));                                        \
    put(to, r *PACK_ROW + column, half_of(h_and(code, c->mask), c));
        EACH_ROW(ROW)
#undef ROW
    }
}

/* Without a branch on where exceptions are, which would be mispredicted for most of them. */
static void list_exceptions(struct pack_exception *list, const uint16_t *halves,
                            const struct pack_block *block)
{
    uint64_t left[PACK_BLOCK / LANES + 1];
    uint16_t first[PACK_BLOCK / LANES + 1];
    uint32_t n = 0;
    for (uint32_t i = 0; i < PACK_BLOCK; i += LANES) {
        left[n] = exceptions_at(halves + i, block);
        first[n] = (uint16_t)i;
        n += left[n] != 0;
    }
    for (uint32_t i = 0, vector = 0; i < block->exceptions; i++) {
        uint16_t element = (uint16_t)(first[vector] + __builtin_ctzll(left[vector]) / MASK_BITS);
        list[i] = (struct pack_exception){element, halves[element]};
        left[vector] &= left[vector] - 1;
        vector += !left[vector];
    }
}

static void encode(void *out, const uint16_t *halves, const struct pack_block *block)
{
    struct coding c = coding_of(block);
    switch (block->width) {
#define WIDTH(width)                                                                               \
    case width:                                                                                    \
        encode_width(out, halves, &c, width);                                                      \
        break;
        EACH_WIDTH(WIDTH)
#undef WIDTH
    }
    if (block->exceptions)
        list_exceptions((void *)((char *)out + block->width * 2 * PACK_ROW), halves, block);
}

ALWAYS_INLINE void decode_to(struct target to, const void *in, const struct pack_block *block)
{
    struct coding c = coding_of(block);
    switch (block->width) {
#define WIDTH(width)                                                                               \
    case width:                                                                                    \
        decode_width(&to, in, &c, width);                                                          \
        break;
        EACH_WIDTH(WIDTH)
#undef WIDTH
    }
}

static void decode(uint16_t *halves, const void *in, const struct pack_block *block)
{
    decode_to((struct target){.halves = halves}, in, block);
}

/* Compiled for both cases, so that no vector asks which it is. */
static void decode_wide(void *x, const void *low, const void *in, const struct pack_block *block)
{
    if (low)
        decode_to((struct target){.wide = x, .low = low}, in, block);
    else
        decode_to((struct target){.wide = x}, in, block);
}

static uint64_t sum(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

#define STREAM_LINE 64
#define STREAM_AHEAD 1024

static void copy(void *to, const void *from, size_t bytes)
{
    char *t = to;
    const char *f = from, *end = f + bytes;
    const size_t before = (size_t)(-(uintptr_t)to % STREAM_LINE);
    if (bytes >= before + STREAM_LINE) {
        memcpy(t, f, before);
        t += before;
        f += before;
        for (; f + STREAM_LINE <= end; f += STREAM_LINE, t += STREAM_LINE) {
            __builtin_prefetch(f + STREAM_AHEAD);
            for (uint32_t i = 0; i < STREAM_LINE; i += 2 * LANES)
                h_stream(t + i, h_load(f + i));
        }
        h_stream_end();
    }
    memcpy(t, f, (size_t)(end - f));
}

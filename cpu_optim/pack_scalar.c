/* pack_scalar: the specification of pack.h, one element after the other. */
#include "cpu_optim/pack_internal.h"

#include <xxhash.h>

static uint16_t magnitude(uint16_t half)
{
    return half & 0x7fff;
}

static bool split(uint16_t *high, uint16_t *low, const void *x)
{
    bool any = false;
    for (uint32_t i = 0; i < PACK_BLOCK; i++) {
        uint32_t bits;
        memcpy(&bits, (const char *)x + 4 * i, sizeof bits);
        high[i] = (uint16_t)(bits >> 16);
        low[i] = (uint16_t)bits;
        any |= low[i] != 0;
    }
    return any;
}

static void join(void *x, const uint16_t *high, const void *low)
{
    for (uint32_t i = 0; i < PACK_BLOCK; i++) {
        uint16_t half = 0;
        if (low)
            memcpy(&half, (const char *)low + 2 * i, sizeof half);
        uint32_t bits = (uint32_t)high[i] << 16 | half;
        memcpy((char *)x + 4 * i, &bits, sizeof bits);
    }
}

/* ---- the choice of a width ---- */

/* The distance by which an element counts: of a zero where zeros have a code, 0. */
static uint16_t distance(uint16_t half, const struct pack_block *block)
{
    if (block->zero && !magnitude(half))
        return 0;
    return (uint16_t)(block->base - magnitude(half));
}

/* Whether the distance needs no exception. */
static bool fits(uint16_t half, const struct pack_block *block)
{
    return distance(half, block) + block->zero <= pack_largest(block);
}

static uint32_t exceptions(const uint16_t *halves, const struct pack_block *block)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < PACK_BLOCK; i++)
        count += !fits(halves[i], block);
    return count;
}

static struct pack_block choose(const uint16_t *halves)
{
    struct pack_block block = {0};
    bool zero = false;
    for (uint32_t i = 0; i < PACK_BLOCK; i++) {
        block.base = magnitude(halves[i]) > block.base ? magnitude(halves[i]) : block.base;
        block.sign |= halves[i] >> 15;
        zero |= !magnitude(halves[i]);
    }
    block.zero = zero && block.base;
    for (block.width = block.sign; block.width < 16 && exceptions(halves, &block); block.width++)
        ;
    while (block.width > block.sign) {
        struct pack_block less = block;
        less.width--;
        uint32_t count = exceptions(halves, &less);
        if (count > PACK_EXCEPTIONS ||
            (count - block.exceptions) * sizeof(struct pack_exception) >= 2 * PACK_ROW)
            break;
        block.width--;
        block.exceptions = (uint8_t)count;
    }
    return block;
}

/* ---- codes ---- */

static uint16_t code_of(uint16_t half, const struct pack_block *block)
{
    uint16_t code = (uint16_t)(block->base - magnitude(half));
    if (block->zero && !magnitude(half))
        code = pack_largest(block);
    if (block->sign)
        code = (uint16_t)(code << 1 | half >> 15);
    return code & (uint16_t)((1u << block->width) - 1);
}

static void encode(void *out, const uint16_t *halves, const struct pack_block *block)
{
    struct pack_exception *list = (void *)((char *)out + block->width * 2 * PACK_ROW);
    memset(out, 0, block->width * 2 * PACK_ROW);
    /* Codes of no bits have no words: what stands there is another slice's, or behind the image. */
    for (uint32_t i = 0; block->width && i < PACK_BLOCK; i++) {
        uint32_t bit = i / PACK_ROW * block->width, code = code_of(halves[i], block);
        uint16_t *words = (uint16_t *)out + bit / 16 * PACK_ROW + i % PACK_ROW;
        words[0] |= (uint16_t)(code << bit % 16);
        if (bit % 16 + block->width > 16)
            words[PACK_ROW] |= (uint16_t)(code >> (16 - bit % 16));
    }
    for (uint32_t i = 0; i < PACK_BLOCK; i++)
        if (!fits(halves[i], block))
            *list++ = (struct pack_exception){(uint16_t)i, halves[i]};
}

static void decode_wide(void *x, const void *low, const void *in, const struct pack_block *block)
{
    uint16_t halves[PACK_BLOCK];
    pack_decode(halves, in, block);
    join(x, halves, low);
}

static uint64_t sum(const void *data, size_t bytes)
{
    return XXH3_64bits(data, bytes);
}

static void copy(void *to, const void *from, size_t bytes)
{
    memcpy(to, from, bytes);
}

const struct pack_ops pack_ops_scalar = {
    .split = split,
    .join = join,
    .choose = choose,
    .encode = encode,
    .decode = pack_decode,
    .decode_wide = decode_wide,
    .sum = sum,
    .copy = copy,
};

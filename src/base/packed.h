/*
 * packed: the block structure of packed arrays (format: cpu_optim/pack.h), for readers on the CPU
 * and on devices; and the decoding of a block, which is the specification for both. Nothing is
 * checked here: callers have checked the block's entry and its bytes.
 */
#ifndef ZINF_BASE_PACKED_H
#define ZINF_BASE_PACKED_H

#include "base/base.h"

#define PACK_HEAD 64u   /* bytes in front of the table */
#define PACK_BLOCK 512u /* elements */
#define PACK_GROUP 64u  /* blocks that share a checksum */
#define PACK_ROWS 16u
#define PACK_ROW 32u /* lanes */
#define PACK_PLAIN 16u
#define PACK_SHORT_SUM 240u /* bytes up to which XXH3 uses other formulas */

/* An entry of the table, taken apart. */
struct pack_block {
    uint16_t base;
    uint8_t width, exceptions;
    bool sign, zero, low;
};

struct pack_exception {
    uint16_t element, half;
};

static inline struct pack_block pack_block_of(uint32_t entry)
{
    struct pack_block block;
    block.base = entry & 0x7fff;
    block.width = entry >> 16 & 31;
    block.exceptions = entry >> 23 & 63;
    block.sign = entry >> 15 & 1;
    block.zero = entry >> 22 & 1;
    block.low = entry >> 21 & 1;
    return block;
}

/* The largest distance that the block's codes can express. */
static inline uint16_t pack_largest(const struct pack_block *block)
{
    return (uint16_t)((1u << (block->width - block->sign)) - 1);
}

/* Offset of the checksums in an image of n_blocks blocks, and of its payload. */
static inline uint64_t pack_sums_at(uint64_t n_blocks)
{
    return zinf_align_up(PACK_HEAD + n_blocks * sizeof(uint32_t), sizeof(uint64_t));
}
static inline uint64_t pack_payload_at(uint64_t n_blocks)
{
    const uint64_t n_groups = (n_blocks + PACK_GROUP - 1) / PACK_GROUP;
    return zinf_align_up(pack_sums_at(n_blocks) + n_groups * sizeof(uint64_t), 64);
}

/* Bytes of a block of n elements: its upper halves, plain or as codes and exceptions; and all of
 * it. */
static inline uint64_t pack_half_bytes(const struct pack_block *block, uint32_t n)
{
    if (block->width == PACK_PLAIN)
        return 2 * (uint64_t)n;
    return block->width * 2 * PACK_ROW + block->exceptions * sizeof(struct pack_exception);
}
static inline uint64_t pack_block_bytes(const struct pack_block *block, uint32_t n)
{
    return pack_half_bytes(block, n) + (block->low ? 2 * (uint64_t)n : 0);
}

static inline uint16_t pack_half_of(uint16_t code, const struct pack_block *block)
{
    const uint16_t sign = block->sign ? (uint16_t)(code << 15) : 0;
    const uint16_t away = (uint16_t)(code >> block->sign);
    if (block->zero && away == pack_largest(block))
        return sign;
    return ((uint16_t)(block->base - away) & 0x7fff) | sign;
}

/* Decodes a whole block whose width is below PACK_PLAIN into halves. Exceptions are not applied. */
static inline void pack_decode(uint16_t *halves, const void *in, const struct pack_block *block)
{
    for (uint32_t i = 0; i < PACK_BLOCK; i++) {
        const uint32_t bit = i / PACK_ROW * block->width;
        const uint16_t *words = (const uint16_t *)in + bit / 16 * PACK_ROW + i % PACK_ROW;
        uint32_t code = 0;
        if (block->width)
            code = (uint32_t)words[0] >> bit % 16;
        if (bit % 16 + block->width > 16)
            code |= (uint32_t)words[PACK_ROW] << (16 - bit % 16);
        halves[i] = pack_half_of((uint16_t)(code & ((1u << block->width) - 1)), block);
    }
}

#endif

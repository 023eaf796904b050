/* host_packed: packed arrays, block by block, as base/packed.h says it. */
#include "base/packed.h"
#include "kernels/check.h"
#include "kernels/host.h"

#include <xxhash.h>

/* Reads the upper halves of n numbers. */
static void halves_of(uint16_t *halves, const struct pack_block *block, uint32_t n, const char *in)
{
    if (block->width == PACK_PLAIN) {
        memcpy(halves, in, n * sizeof *halves);
        return;
    }
    pack_decode(halves, in, block);
    for (uint32_t i = 0; i < block->exceptions; i++) {
        struct pack_exception e;
        memcpy(&e, in + block->width * 2 * PACK_ROW + i * sizeof e, sizeof e);
        if (e.element < PACK_BLOCK)
            halves[e.element] = e.half;
    }
}

static void unpack_block(char *x, bool wide, const struct pack_block *block, uint32_t n,
                         const char *in)
{
    uint16_t high[PACK_BLOCK], low = 0;
    halves_of(high, block, n, in + (block->low ? n * sizeof low : 0));
    if (!wide)
        memcpy(x, high, n * sizeof *high);
    for (uint32_t i = 0; wide && i < n; i++) {
        if (block->low)
            memcpy(&low, in + i * sizeof low, sizeof low);
        const uint32_t bits = (uint32_t)high[i] << 16 | low;
        memcpy(x + i * sizeof bits, &bits, sizeof bits);
    }
}

/* Unpacks the blocks of one checksum. Returns where the next blocks' data begin. */
static const char *unpack_group(const struct zinf_packed_array *a, uint64_t group, const char *in)
{
    const uint64_t n_blocks = (a->n + PACK_BLOCK - 1) / PACK_BLOCK;
    const uint64_t width = zinf_dtype_bytes(a->dtype), begin = group * PACK_GROUP;
    const char *image = a->image, *at = in;
    for (uint64_t b = begin; b < begin + PACK_GROUP && b < n_blocks; b++) {
        const uint64_t first = b * PACK_BLOCK, left = a->n - first;
        const uint32_t n = left < PACK_BLOCK ? (uint32_t)left : PACK_BLOCK;
        uint32_t entry;
        memcpy(&entry, image + PACK_HEAD + b * sizeof entry, sizeof entry);
        const struct pack_block block = pack_block_of(entry);
        unpack_block((char *)a->x + first * width, width == 4, &block, n, at);
        at += pack_block_bytes(&block, n);
    }
    uint64_t sum;
    memcpy(&sum, image + pack_sums_at(n_blocks) + group * sizeof sum, sizeof sum);
    if (a->damaged && at - in > (ptrdiff_t)PACK_SHORT_SUM &&
        XXH3_64bits(in, (size_t)(at - in)) != sum)
        *a->damaged = 1;
    return at;
}

int host_unpack(struct zinf_queue *q, const struct zinf_packed_array *args)
{
    int code = check_unpack(args);
    const uint64_t n_blocks = (args->n + PACK_BLOCK - 1) / PACK_BLOCK;
    (void)q;
    if (code || !n_blocks)
        return code;
    const char *in = (const char *)args->image + pack_payload_at(n_blocks);
    for (uint64_t group = 0; group * PACK_GROUP < n_blocks; group++)
        in = unpack_group(args, group, in);
    return 0;
}

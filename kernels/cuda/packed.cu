/*
 * packed: arrays that came packed as numbers (base/packed.h). A block of threads takes 64 blocks of
 * the array, a warp one of them at a time: lane l has the elements 32 r + l, whose codes stand one
 * behind the other in words of its own, so that all widths are read alike, 64 bytes a row. Where
 * the payload of the first begins is what all before it take: the table says so, and every block of
 * threads adds that up for itself.
 */
#include "kernels/cuda/kernel.cuh"
#include "base/packed.h"

/* Of a block: those that unpack, and one that looks at the checksum. */
enum { UNPACK_WARPS = 8, ALL_WARPS, UNPACK_THREADS = 32 * ALL_WARPS };
/* Words of the checksum's secret, as they are used: below. */
enum { SECRETS = 24, SECRET_LAST = 24, SECRET_END = 32, ALL_SECRETS = 40 };

struct unpack_args {
    void *x;
    const uint32_t *table;
    const uint64_t *sums;
    const char *payload;
    uint64_t n;
    uint32_t n_blocks;
    uint32_t *damaged;
    uint64_t secret[ALL_SECRETS];
};

/* The fields of an entry, as pack_block_of has them. */
DEVICE uint32_t base_of(uint32_t entry)
{
    return entry & 0x7fffu;
}
DEVICE uint32_t sign_of(uint32_t entry)
{
    return entry >> 15 & 1;
}
DEVICE uint32_t width_of(uint32_t entry)
{
    return entry >> 16 & 31;
}
DEVICE bool has_low(uint32_t entry)
{
    return entry >> 21 & 1;
}
DEVICE bool has_zero(uint32_t entry)
{
    return entry >> 22 & 1;
}
DEVICE uint32_t exceptions_of(uint32_t entry)
{
    return entry >> 23 & 63;
}

DEVICE uint32_t elements_of(const unpack_args &a, uint32_t block)
{
    const uint64_t left = a.n - (uint64_t)block * PACK_BLOCK;
    return left < PACK_BLOCK ? (uint32_t)left : PACK_BLOCK;
}

DEVICE uint32_t bytes_of(uint32_t entry, uint32_t n)
{
    const uint32_t codes = width_of(entry) * (2 * PACK_ROW) + exceptions_of(entry) * 4;
    return (width_of(entry) == PACK_PLAIN ? 2 * n : codes) + (has_low(entry) ? 2 * n : 0);
}

DEVICE uint32_t sum_of_warp(uint32_t x)
{
    UNROLL for (int mask = 16; mask > 0; mask /= 2)
    {
        float bits;
        uint32_t other;
        memcpy(&bits, &x, sizeof bits);
        bits = shuffle_xor(bits, mask);
        memcpy(&other, &bits, sizeof other);
        x += other;
    }
    return x;
}

/* Bytes of the payload in front of the block of threads' own, the same in every thread: added up in
 * words of 4, of which whole blocks are made. */
DEVICE uint64_t bytes_before(const unpack_args &a, uint32_t first, uint32_t *shared)
{
    uint32_t words = 0;
    NO_UNROLL for (uint32_t b = threadIdx.x; b < first; b += UNPACK_THREADS)
    {
        words += bytes_of(a.table[b], PACK_BLOCK) / 4;
    }
    words = sum_of_warp(words);
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = words;
    sync_block();
    uint32_t all = 0;
    UNROLL for (int k = 0; k < ALL_WARPS; k++) all += shared[k];
    return 4 * (uint64_t)all;
}

DEVICE uint32_t half_of(uint32_t code, uint32_t entry)
{
    const uint32_t sign = sign_of(entry), away = code >> sign;
    const uint32_t largest = (1u << (width_of(entry) - sign)) - 1;
    const uint32_t size = has_zero(entry) && away == largest ? 0 : (base_of(entry) - away) & 0x7fff;
    return size | (code << 15 & sign << 15);
}

/* What is stored of element e: the upper half alone, or both. */
template <bool WIDE>
DEVICE void put(const unpack_args &a, uint64_t e, uint32_t half, const uint16_t *low)
{
    if (WIDE)
        ((uint32_t *)a.x)[e] = half << 16 | (low ? *low : 0);
    else
        ((uint16_t *)a.x)[e] = (uint16_t)half;
}

/* A number whose distance had no code; the lane whose element it is has written it before. */
template <bool WIDE>
DEVICE void put_exceptions(const unpack_args &a, uint64_t first, uint32_t n, const uint16_t *list,
                           uint32_t count, const uint16_t *lows)
{
    NO_UNROLL for (uint32_t i = 0; i < count; i++)
    {
        const uint32_t element = list[2 * i];
        if (element % PACK_ROW == threadIdx.x % PACK_ROW && element < n)
            put<WIDE>(a, first + element, list[2 * i + 1], lows ? lows + element : NULL);
    }
}

template <bool WIDE> DEVICE void unpack_block(const unpack_args &a, uint32_t block, const char *in)
{
    const uint64_t first = (uint64_t)block * PACK_BLOCK;
    const uint32_t entry = a.table[block], n = elements_of(a, block), width = width_of(entry);
    const uint32_t lane = threadIdx.x % PACK_ROW, mask = (1u << width) - 1;
    const uint16_t *lows = has_low(entry) ? (const uint16_t *)(const void *)in : NULL;
    const uint16_t *codes = (const uint16_t *)(const void *)in + (lows ? n : 0);
    const uint16_t *next = codes + lane;
    const bool plain = width == PACK_PLAIN;
    uint32_t bits = 0, have = 0;
    UNROLL for (uint32_t r = 0; r < PACK_ROWS; r++)
    {
        const uint32_t e = r * PACK_ROW + lane;
        if (have < width) {
            if (!plain || e < n) /* plain halves end with the array */
                bits |= (uint32_t)*next << have;
            next += PACK_ROW;
            have += 16;
        }
        const uint32_t half = plain ? bits : half_of(bits & mask, entry);
        bits >>= width;
        have -= width;
        if (e < n)
            put<WIDE>(a, first + e, half, lows ? lows + e : NULL);
    }
    if (!plain)
        put_exceptions<WIDE>(a, first, n, codes + width * PACK_ROW, exceptions_of(entry), lows);
}

/* ---- the checksum of a group's payload: XXH3 of 64 bits ---- */

/* Of Y. Collet's xxhash (BSD), "XXH3, long inputs": blocks of 16 stripes of 64 bytes are added to
 * 8 numbers, which are stirred after each block. Words of its secret at the offsets at which they
 * are used: every 8 bytes, and those of the last stripe and of the end. */
enum { STRIPE = 64, STRIPES = 16, STRIPE_WORDS = 8 };
#define PRIME_32_1 0x9e3779b1u
#define PRIME_64_1 0x9e3779b185ebca87ull

/* On any even address. */
DEVICE uint64_t word_at(const char *at)
{
    const uint16_t *half = (const uint16_t *)(const void *)at;
    return half[0] | (uint64_t)half[1] << 16 | (uint64_t)half[2] << 32 | (uint64_t)half[3] << 48;
}

DEVICE uint64_t from_lane(uint64_t x, int mask)
{
    double bits;
    memcpy(&bits, &x, sizeof bits);
    bits = shuffle_xor(bits, mask);
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* What lane l % 8 of a stripe gets of its word there. */
DEVICE uint64_t stirred(uint64_t data, uint64_t secret)
{
    const uint64_t key = data ^ secret;
    return from_lane(data, 1) + (uint64_t)(uint32_t)key * (key >> 32);
}

/* The high half of a product, folded into the low one. */
DEVICE uint64_t folded(uint64_t a, uint64_t b)
{
    const uint64_t a0 = (uint32_t)a, a1 = a >> 32, b0 = (uint32_t)b, b1 = b >> 32;
    const uint64_t low = a0 * b0, cross = a1 * b0 + (low >> 32), other = a0 * b1 + (uint32_t)cross;
    return ((uint32_t)low | other << 32) ^ (a1 * b1 + (cross >> 32) + (other >> 32));
}

/* Number l % 8 at first. */
DEVICE uint64_t begun(uint32_t word)
{
    const uint64_t low = word == 0   ? 0xc2b2ae3du
                         : word == 1 ? PRIME_64_1
                         : word == 2 ? 0xc2b2ae3d27d4eb4full
                                     : 0x165667b19e3779f9ull;
    const uint64_t high = word == 4   ? 0x85ebca77c2b2ae63ull
                          : word == 5 ? 0x85ebca77u
                          : word == 6 ? 0x27d4eb2f165667c5ull
                                      : PRIME_32_1;
    return word < 4 ? low : high;
}

/* By a whole warp, of more than 240 bytes; in lane 0. Four stripes at a time: lane 8 s + w has word
 * w of stripe s. */
DEVICE uint64_t sum_of(const char *data, uint32_t bytes, const uint64_t *secret)
{
    const uint32_t lane = threadIdx.x % 32, word = lane % STRIPE_WORDS, own = lane / STRIPE_WORDS;
    const uint32_t n_stripes = (bytes - 1) / STRIPE;
    uint64_t sum = begun(word);
    NO_UNROLL for (uint32_t first = 0; first < n_stripes; first += STRIPES)
    {
        uint64_t added = 0;
        NO_UNROLL for (uint32_t s = own; s < STRIPES; s += 32 / STRIPE_WORDS)
        { /* all lanes come here: they give each other words */
            const bool there = first + s < n_stripes;
            const uint64_t data_word = there ? word_at(data + (first + s) * STRIPE + word * 8) : 0;
            const uint64_t more = stirred(data_word, secret[s + word]);
            added += there ? more : 0;
        }
        added += from_lane(added, 8);
        added += from_lane(added, 16);
        sum += added;
        if (first + STRIPES <= n_stripes)
            sum = (sum ^ sum >> 47 ^ secret[STRIPES + word]) * PRIME_32_1;
    }
    sum += stirred(word_at(data + bytes - STRIPE + word * 8), secret[SECRET_LAST + word]);
    const uint64_t mixed = sum ^ secret[SECRET_END + word], beside = from_lane(mixed, 1);
    uint64_t all = word % 2 ? 0 : folded(mixed, beside);
    all += from_lane(all, 2);
    all += from_lane(all, 4);
    all += bytes * PRIME_64_1;
    all = (all ^ all >> 37) * 0x165667919e3779f9ull;
    return all ^ all >> 32;
}

template <bool WIDE> KERNEL(UNPACK_THREADS) unpack_kernel(unpack_args a)
{
    __shared__ uint32_t parts[ALL_WARPS];
    __shared__ uint32_t bytes[PACK_GROUP];
    __shared__ uint64_t secret[ALL_SECRETS];
    const uint32_t first = blockIdx.x * PACK_GROUP, lane = threadIdx.x % 32;
    const uint32_t here = a.n_blocks - first < PACK_GROUP ? a.n_blocks - first : PACK_GROUP;
    if (threadIdx.x < PACK_GROUP)
        bytes[threadIdx.x] = threadIdx.x < here ? bytes_of(a.table[first + threadIdx.x],
                                                           elements_of(a, first + threadIdx.x))
                                                : 0;
    if (threadIdx.x == PACK_GROUP)
        UNROLL for (int k = 0; k < ALL_SECRETS; k++) secret[k] = a.secret[k];
    const char *group = a.payload + bytes_before(a, first, parts); /* and all that is there */
    NO_UNROLL for (uint32_t b = threadIdx.x / 32; b < (threadIdx.x < 32 * UNPACK_WARPS ? here : 0);
                   b += UNPACK_WARPS)
    {
        const uint32_t mine = (lane < b ? bytes[lane] : 0) + (lane + 32 < b ? bytes[lane + 32] : 0);
        unpack_block<WIDE>(a, first + b, group + sum_of_warp(mine));
    }
    if (threadIdx.x < 32 * UNPACK_WARPS || !a.damaged)
        return;
    const uint32_t all = sum_of_warp(bytes[lane] + bytes[lane + 32]);
    if (all > PACK_SHORT_SUM && sum_of(group, all, secret) != a.sums[blockIdx.x] && lane == 0)
        *a.damaged = 1;
}

/* The default secret of XXH3. */
static const uint8_t default_secret[] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

static uint64_t secret_at(size_t at)
{
    uint64_t word;
    memcpy(&word, default_secret + at, sizeof word);
    return word;
}

cudaError_t launch_unpack(cudaStream_t stream, const struct zinf_packed_array *u)
{
    const char *image = (const char *)u->image;
    unpack_args args = {};
    args.x = u->x, args.n = u->n, args.damaged = u->damaged;
    args.n_blocks = (uint32_t)((u->n + PACK_BLOCK - 1) / PACK_BLOCK);
    args.table = (const uint32_t *)(const void *)(image + PACK_HEAD);
    args.sums = (const uint64_t *)(const void *)(image + pack_sums_at(args.n_blocks));
    args.payload = image + pack_payload_at(args.n_blocks);
    for (size_t k = 0; k < SECRETS; k++)
        args.secret[k] = secret_at(8 * k);
    for (size_t k = 0; k < SECRET_END - SECRET_LAST; k++) {
        args.secret[SECRET_LAST + k] = secret_at(sizeof default_secret - 71 + 8 * k);
        args.secret[SECRET_END + k] = secret_at(11 + 8 * k);
    }
    const dim3 grid(blocks_for(args.n_blocks, PACK_GROUP)), block(UNPACK_THREADS);
    return u->dtype == ZINF_DTYPE_F32
               ? launch(known<unpack_kernel<true>>(), grid, block, 0, stream, args)
               : launch(known<unpack_kernel<false>>(), grid, block, 0, stream, args);
}

/* pack: images of arrays. Their blocks are packed and unpacked by the table of pack_internal.h. */
#include "cpu_optim/optim_internal.h"
#include "cpu_optim/pack_internal.h"

#include <stdatomic.h>

#define GROUPS_A_THREAD 8u /* fewer are not worth a thread */
#define SUMMED 1u          /* versions */
#define UNSUMMED 2u
static const char magic[8] = "zinfpack";

struct head {
    char magic[8];
    uint32_t version, dtype;
    uint64_t n, bytes, sum;
    char zeros[PACK_HEAD - 40];
};

/* ---- the image's parts ---- */

uint64_t zinf_pack_bound(enum zinf_dtype dtype, uint64_t n)
{
    if (n > UINT64_MAX / 16)
        return 0;
    return pack_payload_at((n + PACK_BLOCK - 1) / PACK_BLOCK) +
           n * (dtype == ZINF_DTYPE_F32 ? 4 : 2);
}

struct pack_image pack_image_of(const struct pack_ops *ops, const struct zinf_pack_array *array,
                                const void *start)
{
    struct pack_image image = {.ops = ops,
                               .array = *array,
                               .wide = array->dtype == ZINF_DTYPE_F32,
                               .n_blocks = (array->n + PACK_BLOCK - 1) / PACK_BLOCK,
                               .start =
                                   (char *)start}; /* the caller's const says what is written */
    image.n_groups = (image.n_blocks + PACK_GROUP - 1) / PACK_GROUP;
    image.table = (uint32_t *)(void *)(image.start + PACK_HEAD);
    image.sums = (uint64_t *)(void *)(image.start + pack_sums_at(image.n_blocks));
    image.payload = image.start + pack_payload_at(image.n_blocks);
    return image;
}

/* Of head, whose field for it is 0 here, and of the tables behind it. */
static uint64_t head_sum(const struct pack_image *image, struct head head)
{
    uint64_t of[2];
    head.sum = 0;
    of[0] = image->ops->sum(&head, sizeof head);
    of[1] = image->ops->sum(image->table, (size_t)(image->payload - (char *)image->table));
    return image->ops->sum(of, sizeof of);
}

static uint32_t elements_of(const struct pack_image *image, uint64_t block)
{
    uint64_t left = image->array.n - block * PACK_BLOCK;
    return left < PACK_BLOCK ? (uint32_t)left : PACK_BLOCK;
}

static uint64_t smaller(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static uint32_t entry_of(const struct pack_block *block)
{
    return block->base | (uint32_t)block->sign << 15 | (uint32_t)block->width << 16 |
           (uint32_t)block->low << 21 | (uint32_t)block->zero << 22 |
           (uint32_t)block->exceptions << 23;
}

uint64_t pack_group_bytes(const struct pack_image *image, uint64_t group)
{
    uint64_t bytes = 0;
    for (uint64_t b = group * PACK_GROUP; b < smaller((group + 1) * PACK_GROUP, image->n_blocks);
         b++) {
        struct pack_block block = pack_block_of(image->table[b]);
        bytes += pack_block_bytes(&block, elements_of(image, b));
    }
    return bytes;
}

uint64_t pack_group_at(const struct pack_image *image, uint64_t group)
{
    uint64_t at = 0;
    for (uint64_t g = 0; g < group; g++)
        at += pack_group_bytes(image, g);
    return at;
}

/* What a block reads or writes next is asked for this far ahead: it is in no cache, and the
 * processor by itself looks no further than the end of a page. */
#define AHEAD 2048
#define LINE 64

static inline void fetch_ahead(const char *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += LINE) /* no harm where there is none */
        __builtin_prefetch(at + AHEAD + i);
}

static inline void fetch_ahead_to_write(char *at, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i += LINE)
        __builtin_prefetch(at + AHEAD + i, 1);
}

/* ---- packing ---- */

/* A block's numbers as halves; high may be the array itself. */
struct halves {
    const uint16_t *high;
    bool any_low;
    uint16_t *low; /* low_room, or where they belong in the image */
    uint16_t high_room[PACK_BLOCK], low_room[PACK_BLOCK];
};

static void load(const struct pack_image *image, const char *x, uint32_t n, struct halves *h)
{
    size_t size = image->wide ? 4 : 2;
    char filled[PACK_BLOCK * 4];
    if (n < PACK_BLOCK) {
        memcpy(filled, x, n * size);
        for (uint32_t i = n; i < PACK_BLOCK; i++)
            memcpy(filled + i * size, x, size);
        x = filled;
    }
    h->any_low = image->wide && image->ops->split(h->high_room, h->low, x);
    if (!image->wide && n < PACK_BLOCK)
        memcpy(h->high_room, x, sizeof h->high_room);
    h->high = image->wide || n < PACK_BLOCK ? h->high_room : (const uint16_t *)(const void *)x;
}

static struct pack_block choose(const struct pack_image *image, const struct halves *h, uint32_t n)
{
    struct pack_block block = image->ops->choose(h->high);
    if (block.width >= PACK_PLAIN || pack_half_bytes(&block, n) >= 2 * (uint64_t)n)
        block = (struct pack_block){.width = PACK_PLAIN};
    block.low = h->any_low;
    return block;
}

static char *store(const struct pack_image *image, const struct halves *h,
                   const struct pack_block *block, uint32_t n, char *out)
{
    if (block->low && h->low == h->low_room)
        memcpy(out, h->low, 2 * (size_t)n);
    out += block->low ? 2 * (size_t)n : 0;
    if (block->width == PACK_PLAIN)
        memcpy(out, h->high, 2 * (size_t)n);
    else
        image->ops->encode(out, h->high, block);
    return out + pack_half_bytes(block, n);
}

static const char *numbers_at(const struct pack_image *image, uint64_t group)
{
    return (const char *)image->array.x + group * ZINF_PACK_PIECE * (image->wide ? 4u : 2u);
}

/* Fills the table, of some groups, and the payload unless out is NULL. */
static char *pack_groups(const struct pack_image *image, uint64_t begin, uint64_t end, bool chosen,
                         const char *x, char *out)
{
    struct halves h;
    for (uint64_t group = begin; group < end; group++) {
        char *first = out;
        for (uint64_t b = group * PACK_GROUP;
             b < smaller((group + 1) * PACK_GROUP, image->n_blocks); b++) {
            uint32_t n = elements_of(image, b);
            bool low = out && n == PACK_BLOCK && (!chosen || pack_block_of(image->table[b]).low);
            h.low = low ? (uint16_t *)(void *)out : h.low_room;
            load(image, x, n, &h);
            x += n * (image->wide ? 4u : 2u);
            struct pack_block block =
                chosen ? pack_block_of(image->table[b]) : choose(image, &h, n);
            image->table[b] = entry_of(&block);
            if (out) {
                fetch_ahead_to_write(out, pack_block_bytes(&block, n));
                out = store(image, &h, &block, n, out);
            }
        }
        if (out && !image->array.unsummed)
            image->sums[group] = image->ops->sum(first, (size_t)(out - first));
    }
    return out;
}

char *pack_one_group(const struct pack_image *image, uint64_t group, const void *x, char *out)
{
    return pack_groups(image, group, group + 1, false, x, out);
}

static void choose_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct pack_image *image = arg;
    pack_groups(image, begin, end, false, numbers_at(image, begin), NULL);
}

static void store_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct pack_image *image = arg;
    pack_groups(image, begin, end, true, numbers_at(image, begin),
                image->payload + pack_group_at(image, begin));
}

static int useful_threads(const struct pack_image *image, int n_threads)
{
    uint64_t most = image->n_groups / GROUPS_A_THREAD;
    return n_threads > 1 && (uint64_t)n_threads > most ? (int)most : n_threads;
}

void pack_begin(const struct pack_image *image)
{
    memset(image->table, 0, (size_t)(image->payload - (char *)image->table));
}

int64_t pack_end(const struct pack_image *image, uint64_t payload_bytes)
{
    struct head head = {.version = image->array.unsummed ? UNSUMMED : SUMMED,
                        .dtype = (uint32_t)image->array.dtype,
                        .n = image->array.n};
    memcpy(head.magic, magic, sizeof magic);
    head.bytes = (uint64_t)(image->payload - image->start) + payload_bytes;
    head.sum = head_sum(image, head);
    memcpy(image->start, &head, sizeof head);
    return (int64_t)head.bytes;
}

int64_t pack_with(const struct pack_ops *ops, void *out, const struct zinf_pack_array *array,
                  int n_threads)
{
    struct pack_image image = pack_image_of(ops, array, out);
    char *end = image.payload;
    pack_begin(&image);
    n_threads = useful_threads(&image, n_threads);
    if (n_threads > 1) { /* where a slice's payload begins is known when all widths are */
        optim_parallel_units(image.n_groups, n_threads, choose_slice, &image);
        optim_parallel_units(image.n_groups, n_threads, store_slice, &image);
        end += pack_group_at(&image, image.n_groups);
    } else {
        end = pack_groups(&image, 0, image.n_groups, false, array->x, end);
    }
    return pack_end(&image, (uint64_t)(end - image.payload));
}

int64_t zinf_pack(void *out, uint64_t out_bytes, const struct zinf_pack_array *array, int n_threads)
{
    uint64_t bound = zinf_pack_bound(array->dtype, array->n);
    if ((unsigned)array->dtype >= ZINF_DTYPE_COUNT || !bound || !out || (!array->x && array->n))
        return zinf_fail(-EINVAL, "pack: an array without memory, or of a dtype or length that "
                                  "there is not");
    if ((uintptr_t)out % 64 || out_bytes < bound)
        return zinf_fail(-EINVAL, "pack: the image needs %llu bytes on a multiple of 64, not %llu",
                         (unsigned long long)bound, (unsigned long long)out_bytes);
    return pack_with(pack_ops_of(zinf_isa()), out, array, n_threads);
}

/* ---- unpacking ---- */

static int damaged(const char *what)
{
    return zinf_fail(-EBADMSG, "a packed array is damaged: %s", what);
}

/* Whether packing can have made such an entry; what it leads to lies within the payload then. */
static bool valid_entry(const struct pack_image *image, uint32_t entry)
{
    struct pack_block block = pack_block_of(entry);
    if (entry >> 29 || (block.low && !image->wide))
        return false;
    if (block.width >= PACK_PLAIN)
        return (entry & ~(1u << 21)) == PACK_PLAIN << 16;
    return block.width >= block.sign && (!block.zero || (block.base && block.width > block.sign));
}

int pack_check_head(struct pack_image *image, uint64_t in_bytes)
{
    struct head head;
    uint64_t tables = (uint64_t)(image->payload - image->start);
    if (in_bytes < sizeof head)
        return damaged("it is shorter than its head");
    memcpy(&head, image->start, sizeof head);
    if (memcmp(head.magic, magic, sizeof magic) ||
        (head.version != SUMMED && head.version != UNSUMMED))
        return damaged("its first bytes are not those of this format");
    if (head.dtype != (uint32_t)image->array.dtype || head.n != image->array.n)
        return damaged("it is of an array of another length or dtype");
    if (in_bytes < tables || head.bytes > in_bytes || head.bytes < tables)
        return damaged("it is cut off");
    if (head.sum != head_sum(image, head))
        return damaged("its table of blocks has another checksum");
    for (uint64_t b = 0; b < image->n_blocks; b++)
        if (!valid_entry(image, image->table[b]))
            return damaged("its table of blocks holds what no packing writes");
    const uint64_t bytes = tables + pack_group_at(image, image->n_groups);
    if (head.version == SUMMED ? head.bytes != bytes : head.bytes < bytes)
        return damaged("its length is not that of its blocks");
    image->array.unsummed = head.version == UNSUMMED;
    image->bytes = head.bytes;
    return 0;
}

/* Of halves that lie `stride` halves apart. */
static bool take_exceptions(uint16_t *halves, uint32_t stride, const char *in,
                            const struct pack_block *block)
{
    for (uint32_t i = 0; i < block->exceptions; i++) {
        struct pack_exception e;
        memcpy(&e, in + i * sizeof e, sizeof e);
        if (e.element >= PACK_BLOCK)
            return false;
        halves[e.element * stride] = e.half;
    }
    return true;
}

/* The upper halves of n numbers, of a whole block unless they are stored as they are. */
static bool unpack_halves(const struct pack_image *image, uint16_t *halves, uint32_t n,
                          const struct pack_block *block, const char *in)
{
    if (block->width == PACK_PLAIN) {
        memcpy(halves, in, 2 * (size_t)n);
        return true;
    }
    image->ops->decode(halves, in, block);
    return take_exceptions(halves, 1, in + block->width * 2 * PACK_ROW, block);
}

static bool unpack_block(const struct pack_image *image, char *x, const struct pack_block *block,
                         const char *in)
{
    const char *low = block->low ? in : NULL, *upper = in + (low ? 2 * PACK_BLOCK : 0);
    uint16_t *halves = (uint16_t *)(void *)x;
    if (!image->wide)
        return unpack_halves(image, halves, PACK_BLOCK, block, upper);
    if (block->width == PACK_PLAIN) {
        image->ops->join(x, (const uint16_t *)(const void *)upper, low);
        return true;
    }
    image->ops->decode_wide(x, low, upper, block);
    return take_exceptions(halves + 1, 2, upper + block->width * 2 * PACK_ROW, block);
}

/* A block of fewer elements is unpacked beside the array. */
static bool unpack_short(const struct pack_image *image, char *x, uint32_t n,
                         const struct pack_block *block, const char *in)
{
    uint16_t high[PACK_BLOCK] = {0}, low[PACK_BLOCK] = {0};
    char wide[PACK_BLOCK * 4];
    if (block->low)
        memcpy(low, in, 2 * (size_t)n);
    bool good = unpack_halves(image, high, n, block, in + (block->low ? 2 * n : 0));
    if (image->wide)
        image->ops->join(wide, high, low);
    memcpy(x, image->wide ? wide : (const char *)high, n * (image->wide ? 4u : 2u));
    return good;
}

bool pack_take_group(const struct pack_image *image, uint64_t group, const char *in, char *x)
{
    const uint64_t bytes = pack_group_bytes(image, group);
    uint64_t end = smaller((group + 1) * PACK_GROUP, image->n_blocks);
    bool good = image->array.unsummed || image->ops->sum(in, bytes) == image->sums[group];
    for (uint64_t b = group * PACK_GROUP; good && b < end; b++) {
        struct pack_block block = pack_block_of(image->table[b]);
        uint32_t n = elements_of(image, b);
        fetch_ahead(in, pack_block_bytes(&block, n));
        good = n == PACK_BLOCK ? unpack_block(image, x, &block, in)
                               : unpack_short(image, x, n, &block, in);
        in += pack_block_bytes(&block, n);
        x += n * (image->wide ? 4u : 2u);
    }
    return good;
}

static void unpack_slice(void *arg, uint64_t begin, uint64_t end)
{
    struct pack_image *image = arg;
    const char *in = image->payload + pack_group_at(image, begin);
    for (uint64_t group = begin; group < end; group++) {
        if (!pack_take_group(image, group, in, (char *)numbers_at(image, group))) {
            atomic_store_explicit(&image->damaged, true, memory_order_relaxed);
            return;
        }
        in += pack_group_bytes(image, group);
    }
}

int64_t unpack_with(const struct pack_ops *ops, const struct zinf_pack_array *array, const void *in,
                    uint64_t in_bytes, int n_threads)
{
    struct pack_image image = pack_image_of(ops, array, in);
    int code = pack_check_head(&image, in_bytes);
    if (code)
        return code;
    n_threads = useful_threads(&image, n_threads);
    optim_parallel_units(image.n_groups, n_threads, unpack_slice, &image);
    if (atomic_load_explicit(&image.damaged, memory_order_relaxed))
        return damaged("its numbers have another checksum");
    return (int64_t)image.bytes;
}

int64_t zinf_pack_check(const struct zinf_pack_array *array, const void *in, uint64_t in_bytes)
{
    if ((unsigned)array->dtype >= ZINF_DTYPE_COUNT || !zinf_pack_bound(array->dtype, array->n) ||
        !in || (uintptr_t)in % 64)
        return zinf_fail(-EINVAL, "pack: an image that is not on a multiple of 64, or a dtype or "
                                  "length that there is not");
    struct pack_image image = pack_image_of(pack_ops_of(zinf_isa()), array, in);
    int code = pack_check_head(&image, in_bytes);
    const char *at = image.payload;
    for (uint64_t group = 0; !code && group < image.n_groups; group++) {
        const uint64_t bytes = pack_group_bytes(&image, group);
        if (bytes <= PACK_SHORT_SUM && !image.array.unsummed &&
            image.ops->sum(at, bytes) != image.sums[group])
            code = damaged("its numbers have another checksum");
        at += bytes;
    }
    return code ? code : (int64_t)image.bytes;
}

int64_t zinf_unpack(const struct zinf_pack_array *array, const void *in, uint64_t in_bytes,
                    int n_threads)
{
    if ((unsigned)array->dtype >= ZINF_DTYPE_COUNT || !zinf_pack_bound(array->dtype, array->n) ||
        !in || (uintptr_t)in % 64 || (!array->x && array->n))
        return zinf_fail(-EINVAL, "unpack: an array or image without memory, an image that is not "
                                  "on a multiple of 64, or a dtype or length that there is not");
    return unpack_with(pack_ops_of(zinf_isa()), array, in, in_bytes, n_threads);
}

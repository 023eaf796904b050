/*
 * pack_internal: what pack.c needs of an instruction set. pack_scalar.c is the specification;
 * pack_avx2.c and pack_avx512.c compile the text of pack_kernels.h.
 */
#ifndef ZINF_PACK_INTERNAL_H
#define ZINF_PACK_INTERNAL_H

#include "build-config.h"

#include "base/packed.h"
#include "cpu_optim/pack.h"

#include <stdatomic.h>

#define PACK_EXCEPTIONS 63u

/* All functions work on whole blocks of PACK_BLOCK elements. */
struct pack_ops {
    /* Splits fp32 numbers into upper and lower halves. True: some lower half is not zero. */
    bool (*split)(uint16_t *high, uint16_t *low, const void *x);
    /* low NULL: all lower halves are zero. */
    void (*join)(void *x, const uint16_t *high, const void *low);
    /* Chooses all fields of a block's table entry but `low`. Where a width saves nothing, the
     * caller makes it PACK_PLAIN. */
    struct pack_block (*choose)(const uint16_t *halves);
    /* encode writes codes and exceptions; decode reads codes alone. The width is below PACK_PLAIN.
     */
    void (*encode)(void *out, const uint16_t *halves, const struct pack_block *block);
    void (*decode)(uint16_t *halves, const void *in, const struct pack_block *block);
    /* decode, and then join with the lower halves. */
    void (*decode_wide)(void *x, const void *low, const void *in, const struct pack_block *block);
    uint64_t (*sum)(const void *data, size_t bytes);
    /* memcpy() past the caches, for data that is not in them and not read again soon. */
    void (*copy)(void *to, const void *from, size_t bytes);
};

extern const struct pack_ops pack_ops_scalar;
extern const struct pack_ops pack_ops_avx2;   /* where ZINF_HAVE_AVX2 */
extern const struct pack_ops pack_ops_avx512; /* where ZINF_HAVE_AVX512 */

/* The table of an instruction set, or NULL where it was not built. */
static inline const struct pack_ops *pack_ops_of(enum zinf_isa isa)
{
#ifdef ZINF_HAVE_AVX512
    if (isa >= ZINF_ISA_AVX512)
        return &pack_ops_avx512;
#endif
#ifdef ZINF_HAVE_AVX2
    if (isa == ZINF_ISA_AVX2)
        return &pack_ops_avx2;
#endif
    return isa == ZINF_ISA_SCALAR ? &pack_ops_scalar : NULL;
}

/* An image and its array. Images that are read are not written. */
struct pack_image {
    const struct pack_ops *ops;
    struct zinf_pack_array array; /* its `unsummed` is known once pack_check_head has been called */
    bool wide;                    /* fp32: lower halves are stored beside the upper ones */
    uint64_t n_blocks, n_groups;
    uint64_t bytes; /* known once pack_check_head has been called */
    char *start, *payload;
    uint32_t *table;
    uint64_t *sums;
    atomic_bool damaged;
};

struct pack_image pack_image_of(const struct pack_ops *ops, const struct zinf_pack_array *array,
                                const void *start);
/* Making an image: pack_begin clears the tables before groups are packed; pack_end writes the head
 * and returns the image's bytes. */
void pack_begin(const struct pack_image *image);
int64_t pack_end(const struct pack_image *image, uint64_t payload_bytes);
/* Packs a group of numbers at x to out and returns the end of what it wrote, which is never longer
 * than the numbers. */
char *pack_one_group(const struct pack_image *image, uint64_t group, const void *x, char *out);
/* Checks the head and the tables of an image that is read, by which blocks are found. 0 or
 * -EBADMSG. */
int pack_check_head(struct pack_image *image, uint64_t in_bytes);
uint64_t pack_group_bytes(const struct pack_image *image, uint64_t group);
/* Where the payload of a group begins, behind the groups before it; n_groups: where it ends. */
uint64_t pack_group_at(const struct pack_image *image, uint64_t group);
/* Unpacks a group. False: its payload is damaged. */
bool pack_take_group(const struct pack_image *image, uint64_t group, const char *in, char *x);

/* The public calls with a given table; arguments are checked already. */
int64_t pack_with(const struct pack_ops *ops, void *out, const struct zinf_pack_array *array,
                  int n_threads);
int64_t unpack_with(const struct pack_ops *ops, const struct zinf_pack_array *array, const void *in,
                    uint64_t in_bytes, int n_threads);

#endif

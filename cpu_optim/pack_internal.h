/*
 * pack, inside: what pack.c asks of an instruction set. Each fills one table; pack_scalar.c is the
 * specification, pack_avx2.c and pack_avx512.c compile the text of pack_kernels.h.
 */
#ifndef ZINF_PACK_INTERNAL_H
#define ZINF_PACK_INTERNAL_H

#include "build-config.h"

#include "base/packed.h"
#include "cpu_optim/pack.h"

#include <stdatomic.h>

#define PACK_EXCEPTIONS 63u

/* All take whole blocks of PACK_BLOCK elements. */
struct pack_ops {
    /* Cuts fp32 numbers into their halves; true: some lower half is not zero. */
    bool (*split)(uint16_t *high, uint16_t *low, const void *x);
    /* low NULL: all are zero. */
    void (*join)(void *x, const uint16_t *high, const void *low);
    /* Everything but low. A width that gains nothing is not yet turned into PACK_PLAIN. */
    struct pack_block (*choose)(const uint16_t *halves);
    /* Codes and exceptions, and codes alone; the width is below PACK_PLAIN. */
    void (*encode)(void *out, const uint16_t *halves, const struct pack_block *block);
    void (*decode)(uint16_t *halves, const void *in, const struct pack_block *block);
    uint64_t (*sum)(const void *data, size_t bytes);
    /* memcpy() past the caches, of what is neither in them nor soon read again. */
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

/* An image and its array; of one that is read nothing is written. */
struct pack_image {
    const struct pack_ops *ops;
    struct zinf_pack_array array; /* unsummed: once its head was looked at */
    bool wide;                    /* fp32: lower halves lie beside the upper ones */
    uint64_t n_blocks, n_groups;
    uint64_t bytes; /* of an image whose head was looked at */
    char *start, *payload;
    uint32_t *table;
    uint64_t *sums;
    atomic_bool damaged;
};

struct pack_image pack_image_of(const struct pack_ops *ops, const struct zinf_pack_array *array,
                                const void *start);
/* An image that is made: the tables are cleared before its groups are packed, and the head is
 * written when they are, with the bytes of all; bytes of the image. */
void pack_begin(const struct pack_image *image);
int64_t pack_end(const struct pack_image *image, uint64_t payload_bytes);
/* Packs a group of numbers at x to out; what is behind it there. It takes no more bytes than the
 * numbers. */
char *pack_one_group(const struct pack_image *image, uint64_t group, const void *x, char *out);
/* Head and tables of an image that is read, without which no block can be found: 0 or -EBADMSG. */
int pack_check_head(struct pack_image *image, uint64_t in_bytes);
/* Then, of a group, its payload's bytes, and its numbers. False: it is damaged. */
uint64_t pack_group_bytes(const struct pack_image *image, uint64_t group);
bool pack_take_group(const struct pack_image *image, uint64_t group, const char *in, char *x);

/* The public calls after their checks, with a given table. */
int64_t pack_with(const struct pack_ops *ops, void *out, const struct zinf_pack_array *array,
                  int n_threads);
int64_t unpack_with(const struct pack_ops *ops, const struct zinf_pack_array *array, const void *in,
                    uint64_t in_bytes, int n_threads);

#endif

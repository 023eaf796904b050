/*
 * pack: arrays of floating-point numbers in fewer bytes, every bit kept. Numbers that lie beside
 * each other in parameters, gradients and moments have nearly the same exponent, so the distance
 * to the block's largest magnitude is stored instead of the number. Widths are fixed for a block:
 * packing and unpacking are a few integer operations on vectors, without tables and branches an
 * element.
 *
 * A packed *image* holds one array. It is never longer than zinf_pack_bound(), and damage is found:
 * every byte of it is covered by a checksum, unless whoever stores it has checksums of all bytes
 * and asks for none of the payload. Knows nothing of drives or models.
 *
 * Every instruction set writes the same bytes; the scalar form is the specification, and results
 * do not depend on the thread count. Calls on different arrays may run at the same time; nothing is
 * allocated in a call.
 *
 * Format, little endian. All numbers are seen as halves of 16 bits: bf16 and fp16 are one half, the
 * upper half of fp32 is treated as they are, and its lower half is a plain array beside it. A half
 * is a sign and a magnitude of 15 bits.
 *
 *   head      64 bytes: "zinfpack"; u32 version, 1 or, without checksums of the payload, 2; u32
 *             dtype, as enum zinf_dtype; u64 n; u64 bytes of the image; u64 checksum of head (this
 *             field 0) and tables; zeros
 *   table     one u32 for every block of 512 elements: bits 0-14 base, the largest magnitude; 15:
 *             some number is negative; 16-20 width; 21: lower halves are stored; 22: some magnitude
 *             is zero, but not the base; 23-28 exceptions; the others are 0
 *   sums      one u64 for every 64 blocks, on a multiple of 8: checksum of their payload, or 0
 *   payload   on a multiple of 64, block by block:
 *             lower halves, if stored, u16 each; left out where all are zero
 *             codes, width * 64 bytes: row r of 16, lane l of 32 is element 32 r + l. Of each lane
 *             the 16 codes stand one behind the other from bit 0 on in width words of u16, and word
 *             j of lane l is word 32 j + l of the codes. The rows of a short last block are filled
 *             with its first element
 *             exceptions: u16 element, u16 half, in order of their elements
 *
 * Zeros may follow the last block where the payload has no checksums.
 *
 * A code is (distance << 1 | sign) where some number is negative, else the distance, which is
 * base - magnitude; where some magnitude is zero, the largest distance that the width holds stands
 * for it. A number whose distance does not fit is an exception, and its code is cut off. The width
 * is the first, going down from the one that needs no exceptions, whose next smaller one does not
 * make the block smaller, or needs more than 63. Width 16 means that the halves are stored as they
 * are, with base and the other fields but bit 21 zero: where codes and exceptions would not be
 * shorter. Checksums are XXH3 of 64 bits.
 */
#ifndef ZINF_PACK_H
#define ZINF_PACK_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

/* n elements of dtype at x, which zinf_pack() reads and zinf_unpack() writes. Any alignment that
 * the dtype has. */
struct zinf_pack_array {
    void *x;
    enum zinf_dtype dtype;
    uint64_t n;
    bool unsummed; /* zinf_pack(): the image's payload gets no checksums of its own */
};

/* Most bytes of an image: those of the array, and 64 + 64 + 8 for every 512 elements begun, in
 * part. 0: the array is too long to count its bytes. */
uint64_t zinf_pack_bound(enum zinf_dtype dtype, uint64_t n);
/* Bytes of the image that was written to out, which lies on a multiple of 64 and has room for
 * zinf_pack_bound(). -EINVAL: it has not. The ranges may not overlap. */
int64_t zinf_pack(void *out, uint64_t out_bytes, const struct zinf_pack_array *array,
                  int n_threads);
/* Looks at the head and the table of the image at in, a multiple of 64, and at what of its payload
 * has a checksum over no more than 240 bytes: for a device that unpacks it and looks at the rest.
 * Bytes of the image, or as zinf_unpack; array->x is not used. */
int64_t zinf_pack_check(const struct zinf_pack_array *array, const void *in, uint64_t in_bytes);
/* Bytes of the image at in, a multiple of 64; other bytes may follow it. -EBADMSG: it is damaged,
 * cut off or of another array, and what array->x holds then is not defined. Reads and writes
 * nothing outside of the two ranges, whatever in holds. */
int64_t zinf_unpack(const struct zinf_pack_array *array, const void *in, uint64_t in_bytes,
                    int n_threads);

/* ---- numbers that change in their images ---- */

#define ZINF_PACK_PIECE 32768u /* elements of a piece; the last may have fewer */
#define ZINF_PACK_SLICES 64
#define ZINF_PACK_CHANGING 4

/* One of several arrays of n elements that change together. Its numbers come out of the image `in`,
 * a multiple of 64; or, NULL, from array.x, where they are changed if in_place, and else stay. */
struct zinf_pack_changing {
    struct zinf_pack_array array;
    const void *in;
    uint64_t in_bytes;
    bool in_place;
    /* Where its new image is made, with zinf_pack_bound() bytes on a multiple of 64, apart from all
     * else: zinf_pack_collect() finishes it. NULL: none is. */
    void *out;
    int64_t bytes;                               /* of that image */
    uint64_t slices[ZINF_PACK_SLICES], n_slices; /* zinf_pack_change's: payload of each */
};
struct zinf_pack_change {
    struct zinf_pack_changing *arrays; /* [n_arrays], at most ZINF_PACK_CHANGING */
    uint32_t n_arrays;
    /* Changes elements [first, first + n), of array i at x[i]: threads call it at the same time,
     * for other elements. The first result but 0 ends all. */
    int (*change)(void *context, uint64_t first, uint64_t n, void *const x[]);
    void *context;
    void *room; /* zinf_pack_change_room() bytes, on a multiple of 64 */
    int n_threads;
};
/* Unpacks, changes and packs piece by piece, in a core's cache: memory moves the images and not the
 * numbers. 0; -EBADMSG as zinf_unpack(), after which some numbers may have been changed; or what
 * change returned. */
int zinf_pack_change(const struct zinf_pack_change *c);
uint64_t zinf_pack_change_room(const struct zinf_pack_change *c);
/* Makes the new image, which is one without checksums of its payload, so many bytes longer: these
 * are for the caller to fill with zeros. */
void zinf_pack_pad(struct zinf_pack_changing *of, uint64_t bytes);
/* Copies the new image to `to`, which may be its own `out`; then that is the image. */
void zinf_pack_collect(const struct zinf_pack_changing *of, void *to, int n_threads);

#ifdef __cplusplus
}
#endif
#endif

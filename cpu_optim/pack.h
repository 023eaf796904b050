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

/* An array of n elements of dtype at x, which zinf_pack() reads and zinf_unpack() writes. x needs
 * only the alignment of its dtype. */
struct zinf_pack_array {
    void *x;
    enum zinf_dtype dtype;
    uint64_t n;
    bool unsummed; /* for zinf_pack(): the payload gets no checksums */
};

/* The largest size of an image of n elements. 0: the size does not fit in 64 bits. */
uint64_t zinf_pack_bound(enum zinf_dtype dtype, uint64_t n);
/* Packs an array and returns the image's bytes. out must be a multiple of 64 and have
 * zinf_pack_bound() bytes, else -EINVAL. array and out must not overlap. */
int64_t zinf_pack(void *out, uint64_t out_bytes, const struct zinf_pack_array *array,
                  int n_threads);
/* Checks the head and the table of an image, and the checksums of at most 240 bytes of payload
 * each, for a device that unpacks the image and checks the rest. in must be a multiple of 64.
 * array->x is not used. Returns as zinf_unpack. */
int64_t zinf_pack_check(const struct zinf_pack_array *array, const void *in, uint64_t in_bytes);
/* Unpacks the image at in, which must be a multiple of 64 and may be followed by other bytes.
 * Returns the image's bytes. -EBADMSG: it is damaged, incomplete or of another array; the content
 * of array->x is then undefined. Accesses nothing outside the two ranges, whatever in holds. */
int64_t zinf_unpack(const struct zinf_pack_array *array, const void *in, uint64_t in_bytes,
                    int n_threads);

/* ---- numbers that change in their images ---- */

#define ZINF_PACK_PIECE 32768u /* elements of a piece; the last piece may have fewer */
#define ZINF_PACK_CHANGING 4
#define ZINF_PACK_AHEAD 4

/* One of several arrays of n elements that are changed together. If `in` is set, the numbers are
 * unpacked from that image, at a multiple of 64. Otherwise they are array.x, and are changed there
 * if in_place is set. */
struct zinf_pack_changing {
    struct zinf_pack_array array;
    const void *in;
    uint64_t in_bytes;
    bool in_place;
    /* Memory for the array's new image, zinf_pack_bound() bytes at a multiple of 64 that overlap
     * nothing else. zinf_pack_collect() must finish the image. NULL: no new image. */
    void *out;
    /* Where the new image shall be, at a multiple of 64: `in`, whose image is overwritten then, or
     * `out`, or memory that overlaps nothing else. Pieces go there from a core's cache; only those
     * that do not fit are put into `out`. NULL: all are. */
    void *place;
    uint64_t place_bytes; /* at most; more than in_bytes: nothing else is in the memory behind */
    int64_t bytes;        /* of the new image */
    uint64_t n_placed;    /* pieces, from the first one on */
};
struct zinf_pack_change {
    struct zinf_pack_changing *arrays; /* [n_arrays], at most ZINF_PACK_CHANGING */
    uint32_t n_arrays;
    /* Changes elements [first, first + n); those of array i are at x[i]. Several threads call it at
     * the same time for different elements. A result other than 0 ends the work. */
    int (*change)(void *context, uint64_t first, uint64_t n, void *const x[]);
    void *context;
    void *room; /* zinf_pack_change_room() bytes, on a multiple of 64 */
    int n_threads;
    /* How many packed pieces of a thread may wait for their places, from 1 to ZINF_PACK_AHEAD. With
     * more, threads wait less for each other. */
    uint32_t ahead;
};
/* Unpacks, changes and packs piece by piece, in a core's cache, so that only images go through
 * memory. 0; -EBADMSG as zinf_unpack(), and some numbers may have been changed already; or the
 * result of change. */
int zinf_pack_change(const struct zinf_pack_change *c);
uint64_t zinf_pack_change_room(const struct zinf_pack_change *c);
/* Extends a new image without payload checksums by so many bytes, which the caller must set to
 * zero. */
void zinf_pack_pad(struct zinf_pack_changing *of, uint64_t bytes);
/* Copies a new image to `to` and finishes it; `to` may be its own `out` or `place`. A place must
 * have room for all of it then. */
void zinf_pack_collect(const struct zinf_pack_changing *of, void *to, int n_threads);

#ifdef __cplusplus
}
#endif
#endif

/*
 * host_gemm: products of matrices by our own blocked loops. A and B are packed, and widened from
 * 16 bits on the way where the kernel multiplies fp32, into panels as tall and wide as a tile of C;
 * a per-ISA kernel multiplies two panels into a tile that stays in registers (Goto and van de
 * Geijn, TOMS 2008; Van Zee and van de Geijn, TOMS 2015). Every element of C is summed in an order
 * that k alone decides, whatever the threads do and whatever rows and columns lie around it.
 */
#ifndef ZINF_HOST_GEMM_H
#define ZINF_HOST_GEMM_H

#include "kernels/kernels.h"

/* What one panel is packed from: width rows of depth elements, or depth rows of width elements if
 * across. src is its first element. */
struct host_gemm_strip {
    const void *src;
    enum zinf_dtype dtype;
    bool across;
    int64_t ld, width, depth;
};

/* Rows in memory, ld bytes apart. */
struct host_gemm_rows {
    const char *first;
    int64_t count, bytes, ld;
};

/* C = A B + D of one tile, from a panel of A and one of B. */
struct host_gemm_tile {
    int64_t rows, columns, depth;
    const void *a, *b;
    float *c;
    int64_t ldc;
    const float *d;             /* NULL: zero; may be c */
    int64_t ldd;                /* 0: the same row for all, a bias */
    struct host_gemm_rows next; /* packed later: to be fetched meanwhile, as far as there is time */
};

/* A panel holds a_width rows of op(A), or b_width columns of op(B), for depths from 0 on. Where an
 * element of it lies is the kernel's own affair, but that depths from d on, a multiple of
 * depth_align, begin at byte d * width * element_bytes. Zeros fill up the width and the last
 * depth_align. Panels begin at cache lines. */
struct host_gemm_kernel {
    int tile_rows, tile_columns; /* the largest tile */
    int a_width, b_width;        /* of a panel; at least tile_rows and tile_columns */
    int element_bytes;           /* of an element in a panel: 4: fp32, 2: bf16 */
    int depth_align;
    int block_depth; /* of k, that panels have at most; a multiple of depth_align */
    void (*pack_a)(void *panel, const struct host_gemm_strip *strip);
    void (*pack_b)(void *panel, const struct host_gemm_strip *strip);
    void (*multiply)(const struct host_gemm_tile *tile);
    /* Before a thread's first tile and after its last; NULL: nothing to do. */
    void (*start)(void);
    void (*stop)(void);
};

/* The largest tile of any kernel. */
enum { HOST_GEMM_TILE_FLOATS = 1024 };

extern const struct host_gemm_kernel host_gemm_avx512, host_gemm_avx512_bf16, host_gemm_amx_bf16;

/* The kernel of an instruction set for such a product, or NULL: OpenBLAS multiplies then. */
const struct host_gemm_kernel *host_gemm_kernel(enum zinf_isa isa, const struct zinf_matmul *args);
/* Bytes of workspace; more rows, columns or depth never need less. */
uint64_t host_gemm_workspace(const struct host_gemm_kernel *kernel, int n_threads,
                             const struct zinf_matmul *args);
/* Arguments and workspace have been checked. */
void host_gemm(struct zinf_queue *q, const struct host_gemm_kernel *kernel,
               const struct zinf_matmul *args);
/* Copies what is above C's diagonal to below it. */
void host_mirror(const struct zinf_matmul *args, int n_threads);

#endif

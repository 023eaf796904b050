/*
 * host_gemm: matrix products by blocked loops. A and B are packed into panels as tall and wide as
 * a tile of C, and converted to fp32 if the kernel multiplies fp32. A per-ISA kernel multiplies
 * two panels into a tile that stays in registers (Goto and van de Geijn, TOMS 2008; Van Zee and
 * van de Geijn, TOMS 2015). Every element of C is summed in an order that depends on k alone,
 * whatever threads do and whatever rows and columns surround it.
 */
#ifndef ZINF_HOST_GEMM_H
#define ZINF_HOST_GEMM_H

#include "kernels/kernels.h"

/* The source of a panel: width rows of depth elements, or, if across is set, depth rows of width
 * elements. src is the first element. */
struct host_gemm_strip {
    const void *src;
    enum zinf_dtype dtype;
    bool across;
    int64_t ld, width, depth;
};

/* Rows in memory whose beginnings are ld bytes apart. */
struct host_gemm_rows {
    const char *first;
    int64_t count, bytes, ld;
};

/* C = A B + D for one tile, from a panel of A and one of B. */
struct host_gemm_tile {
    int64_t rows, columns, depth;
    const void *a, *b;
    float *c;
    int64_t ldc;
    const float *d; /* NULL: 0; may be c */
    int64_t ldd;    /* 0: the same row (a bias) for all rows */
    /* rows that are packed later, to be prefetched as far as there is time */
    struct host_gemm_rows next;
};

/* A panel holds a_width rows of op(A), or b_width columns of op(B), from depth 0 on. The kernel
 * decides where its elements are, but depth d, a multiple of depth_align, begins at byte d * width
 * * element_bytes. Zeros fill the width and the last depth_align. Panels begin at cache lines. */
struct host_gemm_kernel {
    int tile_rows, tile_columns; /* the largest tile */
    int a_width, b_width;        /* of panels; at least tile_rows and tile_columns */
    int element_bytes;           /* of a panel's elements: 4 for fp32, 2 for bf16 */
    int depth_align;
    int block_depth; /* largest part of k that a panel has; a multiple of depth_align */
    void (*pack_a)(void *panel, const struct host_gemm_strip *strip);
    void (*pack_b)(void *panel, const struct host_gemm_strip *strip);
    void (*multiply)(const struct host_gemm_tile *tile);
    /* Called before a thread's first tile and after its last; NULL: nothing to do. */
    void (*start)(void);
    void (*stop)(void);
};

/* The largest tile of any kernel. */
enum { HOST_GEMM_TILE_FLOATS = 1024 };

extern const struct host_gemm_kernel host_gemm_scalar, host_gemm_avx2, host_gemm_avx512,
    host_gemm_avx512_bf16, host_gemm_amx_bf16;

/* The kernel of an instruction set for a product. NULL: OpenBLAS is used, without AVX-512 for
 * products that are not small. */
const struct host_gemm_kernel *host_gemm_kernel(enum zinf_isa isa, const struct zinf_matmul *args);
/* That of small products without AVX-512. */
const struct host_gemm_kernel *host_gemm_small(enum zinf_isa isa);
/* Bytes of workspace. Smaller m, n or k never need more. */
uint64_t host_gemm_workspace(const struct host_gemm_kernel *kernel, int n_threads,
                             const struct zinf_matmul *args);
/* Computes the product. Arguments and workspace are checked already. */
void host_gemm(struct zinf_queue *q, const struct host_gemm_kernel *kernel,
               const struct zinf_matmul *args);
/* Copies the part of C above the diagonal to below it. */
void host_mirror(const struct zinf_matmul *args, int n_threads);

#endif

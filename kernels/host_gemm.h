/*
 * host_gemm: products of matrices by our own blocked loops. A and B are packed, and widened from
 * 16 bits on the way, into panels as tall and wide as a tile of C; a per-ISA kernel multiplies two
 * panels into a tile that stays in registers (Goto and van de Geijn, TOMS 2008; Van Zee and van de
 * Geijn, TOMS 2015). Every element of C is summed in the same order whatever the threads do.
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

/* C = A B + D of one tile; packed A is [depth][a_stride], packed B [depth][tile_columns]. */
struct host_gemm_tile {
    int64_t rows, columns, depth;
    const float *a, *b;
    float *c;
    int64_t ldc;
    const float *d; /* NULL: zero; may be c */
    int64_t ldd;    /* 0: the same row for all, a bias */
};

struct host_gemm_kernel {
    int tile_rows, tile_columns; /* the largest tile */
    int a_stride;                /* at least tile_rows */
    /* dst[d * stride + w] = element w of the strip at depth d; zero from width on. */
    void (*pack)(float *dst, int stride, const struct host_gemm_strip *strip);
    void (*multiply)(const struct host_gemm_tile *tile);
};

/* The largest tile of any kernel, in floats. */
enum { HOST_GEMM_TILE_FLOATS = 1024 };

extern const struct host_gemm_kernel host_gemm_avx512;

/* The kernel for an instruction set, or NULL: OpenBLAS multiplies then. */
const struct host_gemm_kernel *host_gemm_kernel(enum zinf_isa isa);
/* Bytes of workspace; more rows, columns or depth never need less. */
uint64_t host_gemm_workspace(const struct host_gemm_kernel *kernel, int n_threads,
                             const struct zinf_matmul *args);
/* Arguments and workspace have been checked. */
void host_gemm(struct zinf_queue *q, const struct host_gemm_kernel *kernel,
               const struct zinf_matmul *args);

#endif

/*
 * ptx: an interpreter of PTX, as far as nvcc makes it of kernels/cuda. A module is the text of
 * one .cu file, a kernel one of its entries, which is translated at its first launch into an array
 * of instructions over registers of 32 lanes. A grid runs block after block, a block's warps ahead
 * of each other in a seeded random order; lanes of a warp that have parted run by turns, the
 * furthest behind first.
 *
 * Semantics are the PTX ISA's (version 9.0) and nothing else: where it leaves a choice open, the
 * choice is one that hurts. Approximate functions are off by their stated error, an asynchronous
 * copy lands at any time up to its wait, warps meet at barriers alone. Every access to memory is
 * checked: bounds, alignment, whether the bytes were ever written, and whether another thread's
 * access to them is ordered by a barrier (shadow.h).
 *
 * Threads: one at a time. Faults are reported to the stand-in (standin_break), and end the grid.
 */
#ifndef PTX_H
#define PTX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PTX_LANES = 32, PTX_MOST_THREADS = 1024, PTX_MOST_WARPS = PTX_MOST_THREADS / PTX_LANES };

struct ptx_module;
struct ptx_kernel;

struct ptx_grid {
    unsigned grid[3], block[3]; /* x, y, z */
    unsigned dynamic_bytes;     /* of shared memory */
    const void *params;         /* param_bytes of them */
};

/* text, of n bytes, is borrowed for the module's life. NULL: no memory. */
struct ptx_module *ptx_module_create(const char *text, size_t n);
void ptx_module_destroy(struct ptx_module *module);
/* An entry by its name; NULL: none. */
struct ptx_kernel *ptx_find(struct ptx_module *module, const char *name);

/* What a launch has to know. false, with a fault reported, where the text cannot be translated. */
struct ptx_shape {
    unsigned shared_bytes, most_threads, param_bytes;
    int n_params;
    const unsigned *param_offsets; /* [n_params] */
    const unsigned *param_sizes;
};
bool ptx_shape(struct ptx_kernel *kernel, struct ptx_shape *shape);

/* Runs a grid; false after a fault. */
bool ptx_run(struct ptx_kernel *kernel, const struct ptx_grid *grid);

/* ---- for tests ---- */

/* What the kernels whose name contains a word did so far, in instructions of a warp. */
struct ptx_counts {
    uint64_t instructions, branches, products, barriers, launches;
    uint64_t read_bytes, written_bytes; /* of global memory, by threads: what caches spare too */
};
void ptx_counts(const char *word, struct ptx_counts *counts);
/* Kernel number n, from 0, of the module, and what was done with it; false: there are not so many.
 * With ZINF_PTX_RECORD=FILE in the environment a process adds a line of it for each to FILE when it
 * ends: name, launches, geometries, instructions, taken branches, mma, barriers, bytes of
 * global memory read and written; and one of all products that cuBLASLt would make. */
struct ptx_use {
    const char *name;
    uint64_t launches;
    struct ptx_counts counts;
    int geometries;   /* grids and shared memories unlike each other: PTX_MOST_GEOMETRIES at most */
    uint64_t mutants; /* how often a warp has run into a fault planted into it */
};
enum { PTX_MOST_GEOMETRIES = 64 };
bool ptx_use(int n, struct ptx_use *use);

/* A fault planted into kernels whose names contain a word, from their next launch on: the nth place
 * (from 0) where it fits. Ends with PTX_AS_IT_IS. */
enum ptx_mutation {
    PTX_AS_IT_IS,
    PTX_DROP_BARRIER,   /* a bar.sync is passed by */
    PTX_DROP_WAIT,      /* a wait for asynchronous copies */
    PTX_DROP_TRANSPOSE, /* ldmatrix without .trans */
    PTX_SWAP_WORDS,     /* the first two words of A in an mma */
    PTX_SHIFT_SHUFFLE,  /* a shuffle from lane 0, or from itself */
    PTX_SHIFT_STORE,    /* a store to global memory goes one element further */
    PTX_MUTATIONS,
};
void ptx_mutate(const char *word, enum ptx_mutation mutation, int nth);
/* How often a warp has run into the planted fault since. */
int ptx_mutated(void);
/* Places where it would fit, in the kernel launched since that has most of them. */
int ptx_mutation_places(void);

#endif

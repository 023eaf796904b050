/*
 * workspace: what operations of the CUDA device take of the queue's workspace, by shape and compute
 * capability alone. Stated once, for the device and for the description of one that is not here
 * (kernels/device_described.c): so no header of CUDA's is included. C and C++.
 */
#ifndef ZINF_CUDA_WORKSPACE_H
#define ZINF_CUDA_WORKSPACE_H

#include "kernels/check.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Sums down columns: rows are cut into slabs by the shape alone, each with its own sums. */
static inline int64_t column_slabs(int64_t rows)
{
    const int64_t slab_rows = 64, most = 256;
    int64_t slabs = (rows + slab_rows - 1) / slab_rows;
    return slabs < 1 ? 1 : slabs > most ? most : slabs;
}

static inline uint64_t column_sum_bytes(int64_t rows, int64_t cols)
{
    return (uint64_t)(column_slabs(rows) * cols) * sizeof(float);
}

/* Where one pass makes a norm's dx, dw and db, which rows of up to so many columns have, a slab is
 * one block's work. Such slabs have 16 rows in place of 64, until there are 256 of them: enough
 * blocks for a GPU. */
enum { NORM_GRADIENT_COLUMNS = 8192 };
static inline int64_t norm_gradient_slabs(int64_t rows)
{
    return column_slabs(4 * rows);
}

/* dw and db together, in one pass or in two. */
static inline uint64_t norm_columns_bytes(const struct zinf_norm *args)
{
    const int64_t slabs = norm_gradient_slabs(args->rows * norm_heads(args));
    return 2 * (uint64_t)(slabs * args->cols) * sizeof(float);
}

/* One kernel reads the row sums of d_out * out that another has written. */
static inline uint64_t attention_delta_bytes(const struct zinf_attention *args)
{
    return (uint64_t)(args->batch * args->n_heads * args->seq) * sizeof(float);
}

/* With relative positions, behind that: which row of the table each distance of the call's queries
 * and keys has, and gradients of both terms by distance. */
static inline uint64_t relative_rows_bytes(const struct zinf_attention *args)
{
    return zinf_align_up((uint64_t)zinf_attention_distances(args) * sizeof(int32_t), 256);
}
/* With a bias by distance, behind the row sums: two parts of its gradient at each distance. Tiles
 * of so many queries and keys make them; four of 64 rows of wide heads would not fit shared memory.
 */
#define ATTENTION_DISTANCE_ROWS(head_dim) ((head_dim) <= 128 ? 64 : 32)
static inline int64_t attention_diagonals(const struct zinf_attention *args)
{
    const int64_t rows = ATTENTION_DISTANCE_ROWS(args->head_dim);
    return (args->seq + rows - 1) / rows + (zinf_attention_keys(args) + rows - 1) / rows - 1;
}
static inline uint64_t attention_parts_bytes(const struct zinf_attention *args)
{
    return (uint64_t)(args->batch * args->n_heads * attention_diagonals(args) * 2 *
                      ATTENTION_DISTANCE_ROWS(args->head_dim)) *
           sizeof(float);
}
static inline uint64_t attention_workspace_bytes(const struct zinf_attention *args)
{
    const uint64_t delta = attention_delta_bytes(args);
    if (args->bias)
        return zinf_align_up(delta, 256) + attention_parts_bytes(args);
    if (!args->relative)
        return delta;
    return zinf_align_up(delta, 256) + relative_rows_bytes(args) +
           2 * (uint64_t)(args->n_heads * zinf_attention_distances(args) * args->head_dim) *
               sizeof(float);
}

/* For splitting k and the like: what cuBLASLt's documentation asks for per generation. */
static inline uint64_t blas_workspace_bytes(int capability)
{
    return capability >= 90 ? (uint64_t)32 << 20 : (uint64_t)8 << 20;
}

/* What a GPU has struct zinf_device.logit_rows for: each chunk of rows reads and writes the
 * gradient of the whole table (107 MB of GPT-2 XL's third of it), which 256 rows are no work for.
 */
enum { GPU_LOGIT_ROWS = 1024 };

/* The first generation with units for floats of 8 bits. */
enum { TF32_CAPABILITY = 80, FLOAT8_CAPABILITY = 89 };

/* What floats of 8 bits take: the codes of both operands, and of each the largest numbers of parts
 * of it and its scale. */
enum { FLOAT8_PARTS = 256 };
struct float8_workspace {
    uint64_t a, b; /* codes */
    uint64_t a_largest, b_largest, bytes;
};
static inline struct float8_workspace float8_workspace(const struct zinf_matmul *m)
{
    const uint64_t largest = zinf_align_up((FLOAT8_PARTS + 1) * sizeof(float), 256);
    struct float8_workspace w = {0, 0, 0, 0, 0};
    if (m->float8 == ZINF_FLOAT8_NONE)
        return w;
    w.b = zinf_align_up((uint64_t)(m->m * m->k), 256);
    w.a_largest = w.b + zinf_align_up((uint64_t)(m->n * m->k), 256);
    w.b_largest = w.a_largest + largest;
    w.bytes = w.b_largest + largest;
    return w;
}

/* An operand of a product that is converted: packed rows of ld elements. */
struct packed_operand {
    enum zinf_dtype dtype;
    int64_t ld;
    uint64_t bytes; /* 0: it is used as it is */
};
struct packed_product {
    struct packed_operand a, b, c;
};

static inline struct packed_operand packed_operand(enum zinf_dtype dtype, int64_t rows,
                                                   int64_t cols)
{
    struct packed_operand p;
    p.dtype = dtype;
    p.ld = (int64_t)zinf_align_up((uint64_t)cols, 8);
    p.bytes = zinf_align_up((uint64_t)(rows * p.ld) * zinf_dtype_bytes(dtype), 256);
    return p;
}

/* cuBLASLt wants A and B of one type, and C of that type or fp32: what other products convert. */
static inline struct packed_product packed_product(const struct zinf_matmul *m)
{
    const enum zinf_dtype f32 = ZINF_DTYPE_F32;
    struct packed_product p = {
        {m->a_dtype, m->lda, 0}, {m->b_dtype, m->ldb, 0}, {m->c_dtype, m->ldc, 0}};
    enum zinf_dtype common = m->a_dtype;
    if (m->a_dtype == f32)
        common = m->b_dtype;
    else if (m->b_dtype != f32 && m->b_dtype != m->a_dtype)
        common = f32; /* bf16 with fp16 */
    if (m->a_dtype != common)
        p.a = packed_operand(common, m->trans_a ? m->k : m->m, m->trans_a ? m->m : m->k);
    if (m->b_dtype != common)
        p.b = packed_operand(common, m->trans_b ? m->n : m->k, m->trans_b ? m->k : m->n);
    if (m->c_dtype != common && m->c_dtype != f32)
        p.c = packed_operand(f32, m->m, m->n);
    return p;
}

/* Entries of a table, for whichever GPU. The warps of a block of attention_cached put their sums
 * together in shared memory. */
static inline uint64_t gpu_attention_workspace(struct zinf_device *device,
                                               const struct zinf_attention *args)
{
    (void)device;
    return attention_workspace_bytes(args);
}
static inline uint64_t gpu_attention_cached_workspace(struct zinf_device *device,
                                                      const struct zinf_attention_cached *args)
{
    (void)device;
    (void)args;
    return 0;
}
/* What passes of a scan leave for each other, then scratch of each block: rows of keys, rows of
 * values, two states, pairs of rows and numbers of a row (scan.cuh). */
enum { SCAN_BLOCKS = 256, SCAN_SLICE = 32 };
static inline uint64_t scan_scratch_floats(const struct zinf_scan *args)
{
    const uint64_t key = (uint64_t)args->key_dim, value = (uint64_t)args->value_dim;
    const uint64_t n = ZINF_SCAN_CHUNK, most = key > value ? key : value;
    return zinf_align_up(n * (4 * key + 4 * value + most) + 2 * key * value + 4 * n * n + 9 * n,
                         64);
}
static inline uint64_t scan_workspace_bytes(const struct zinf_scan *args)
{
    struct zinf_scan_arrays arrays;
    const uint64_t slices = (uint64_t)((args->value_dim + SCAN_SLICE - 1) / SCAN_SLICE);
    const uint64_t pieces = (uint64_t)((args->seq + ZINF_SCAN_CHUNK - 1) / ZINF_SCAN_CHUNK);
    const uint64_t most = slices > pieces ? slices : pieces;
    const uint64_t items = (uint64_t)(args->batch * args->value_heads) * most;
    const uint64_t limit = SCAN_BLOCKS, blocks = items < limit ? items : limit;
    return (zinf_scan_place(args, &arrays, NULL) + blocks * scan_scratch_floats(args)) *
           sizeof(float);
}
static inline uint64_t gpu_norm_workspace(struct zinf_device *device, const struct zinf_norm *args)
{
    (void)device;
    return norm_columns_bytes(args);
}
static inline uint64_t gpu_scan_workspace(struct zinf_device *device, const struct zinf_scan *args)
{
    (void)device;
    return scan_workspace_bytes(args);
}
static inline uint64_t gpu_column_sum_workspace(struct zinf_device *device, int64_t rows,
                                                int64_t cols)
{
    (void)device;
    return column_sum_bytes(rows, cols);
}

/* The library's workspace, then converted operands. */
static inline uint64_t matmul_workspace_bytes(int capability, const struct zinf_matmul *args)
{
    struct packed_product p = packed_product(args);
    return blas_workspace_bytes(capability) + p.a.bytes + p.b.bytes + p.c.bytes +
           float8_workspace(args).bytes;
}

#ifdef __cplusplus
}
#endif
#endif

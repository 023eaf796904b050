/*
 * host: what the files of the host device share. An operation checks its arguments, divides its
 * work into slices and runs them on OpenMP threads. The division depends only on shapes and
 * n_threads, not on how many threads the machine has, so results are repeatable.
 */
#ifndef ZINF_HOST_H
#define ZINF_HOST_H

#include "base/memory.h"
#include "kernels/check.h"
#include "kernels/host_simd.h"
#include "kernels/operations.h"

struct host_device {
    struct zinf_device device; /* first, since a zinf_device points to it */
    enum zinf_isa isa;         /* used for products */
    const struct host_simd *simd;
    struct zinf_arena arena;
    char name[64];
};

struct zinf_queue {
    struct host_device *device;
    void *workspace;
    uint64_t workspace_bytes;
};

/* Chooses an instruction set other than zinf_isa(), for tests. */
void host_device_choose(struct host_device *host, enum zinf_isa isa);
const struct host_simd *host_simd_of(enum zinf_isa isa);

/* Elements that a loop converts and works on at a time; a few such pieces fit into the first-level
 * cache. */
enum { HOST_CHUNK = 1024 };
/* Elements below which threads cost more than they save. */
enum { HOST_PARALLEL_MIN = 32768 };

/* Number of slices for work of so many elements: 1, or the device's threads. */
int host_slices(const struct host_device *device, uint64_t work);

/* host_row works on one row, host_columns on at most HOST_COLUMNS columns of all rows. They are
 * dealt out to threads; work: elements of all of them. */
enum { HOST_COLUMNS = 256 };
typedef void host_row(const struct host_simd *simd, const void *args, uint64_t row);
typedef void host_columns(const struct host_simd *simd, const void *args,
                          struct host_range columns);
int host_each_row(const struct zinf_queue *q, int64_t rows, int64_t work, host_row *do_row,
                  const void *args);
int host_each_columns(const struct zinf_queue *q, int64_t cols, int64_t work,
                      host_columns *do_columns, const void *args);

static inline const char *host_at(const void *base, enum zinf_dtype dtype, uint64_t element)
{
    return (const char *)base + element * zinf_dtype_bytes(dtype);
}

/* n fp32 values of an array from `element` on: the array itself, or converted into buffer. */
static inline const float *host_read(const struct host_simd *simd, float *buffer, const void *base,
                                     enum zinf_dtype dtype, uint64_t element, size_t n)
{
    const char *at = host_at(base, dtype, element);
    if (dtype == ZINF_DTYPE_F32)
        return (const float *)(const void *)at;
    simd->to_f32(buffer, at, dtype, n);
    return buffer;
}

/* Where a loop writes its fp32 result: the array itself, or buffer, to be followed by host_write().
 */
static inline float *host_target(float *buffer, void *base, enum zinf_dtype dtype, uint64_t element)
{
    return dtype == ZINF_DTYPE_F32 ? (float *)base + element : buffer;
}

static inline void host_write(const struct host_simd *simd, const float *buffer, void *base,
                              enum zinf_dtype dtype, uint64_t element, size_t n)
{
    if (dtype != ZINF_DTYPE_F32)
        simd->from_f32((char *)base + element * zinf_dtype_bytes(dtype), dtype, buffer, n);
}

/* ---- the table's entries ---- */

#define HOST_OPERATION(name) DECLARE_OPERATION(host_##name, name);
OPERATIONS(HOST_OPERATION)
HOST_OPERATION(attention_workspace)
HOST_OPERATION(attention_cached_workspace)
HOST_OPERATION(norm_workspace)
HOST_OPERATION(scan_workspace)
HOST_OPERATION(column_sum_workspace)
#undef HOST_OPERATION

/* Loads OpenBLAS, once. */
int host_matmul_setup(void);

/* Products of few rows, for host_matmul: whether args is one; the workspace; and the product.
 * Arguments and workspace are checked already. */
bool host_few_rows_take(const struct zinf_matmul *args);
uint64_t host_few_rows_workspace(const struct zinf_matmul *args);
void host_few_rows(struct zinf_queue *q, const struct zinf_matmul *args);

/* For products in 8-bit floats: makes bf16 matrices with the rounded numbers in the first
 * host_float8_workspace bytes of the queue's workspace, and returns the product of those. */
uint64_t host_float8_workspace(const struct zinf_matmul *args);
struct zinf_matmul host_float8(struct zinf_queue *q, const struct zinf_matmul *args);

#endif

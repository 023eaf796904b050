/*
 * host: what the files of the host device share. An operation checks its arguments, cuts its work
 * into slices and runs them over OpenMP threads. The cut depends on the shapes and on n_threads
 * only, never on how many threads the machine gives: that makes results repeatable.
 */
#ifndef ZINF_HOST_H
#define ZINF_HOST_H

#include "base/memory.h"
#include "kernels/check.h"
#include "kernels/host_simd.h"
#include "kernels/operations.h"

struct host_device {
    struct zinf_device device; /* first: a zinf_device points to it */
    enum zinf_isa isa;         /* of products */
    const struct host_simd *simd;
    struct zinf_arena arena;
    char name[64];
};

struct zinf_queue {
    struct host_device *device;
    void *workspace;
    uint64_t workspace_bytes;
};

int host_device_create(struct zinf_device **out, int n_threads);
/* Of another instruction set than zinf_isa(): for tests. */
void host_device_choose(struct host_device *host, enum zinf_isa isa);
const struct host_simd *host_simd_of(enum zinf_isa isa);

/* Elements that a loop converts and works on at a time: a few of them stay in the first cache. */
enum { HOST_CHUNK = 1024 };
/* Elements below which threads cost more than they bring. */
enum { HOST_PARALLEL_MIN = 32768 };

struct host_range {
    uint64_t first, count;
};

/* How many slices work of so many elements is cut into: 1 or the device's threads. */
int host_slices(const struct host_device *device, uint64_t work);
/* Slice number slice of n items, cut at multiples of align; may be empty. */
struct host_range host_slice(uint64_t n, uint64_t align, int slice, int n_slices);

/* What an operation with these arguments does with one row, or with some columns of all rows: at
 * most HOST_COLUMNS. Rows and columns are dealt to threads; work: elements of all of them. */
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

/* n fp32 values of an array from element on: the array itself, or converted into buffer. */
static inline const float *host_read(const struct host_simd *simd, float *buffer, const void *base,
                                     enum zinf_dtype dtype, uint64_t element, size_t n)
{
    const char *at = host_at(base, dtype, element);
    if (dtype == ZINF_DTYPE_F32)
        return (const float *)(const void *)at;
    simd->to_f32(buffer, at, dtype, n);
    return buffer;
}

/* Where a loop writes its fp32 result: the array itself, or buffer, then host_write(). */
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

/* Of host_matmul: whether it is a product of few rows; arguments and workspace are checked. */
bool host_few_rows_take(const struct zinf_matmul *args);
uint64_t host_few_rows_workspace(const struct zinf_matmul *args);
void host_few_rows(struct zinf_queue *q, const struct zinf_matmul *args);

/* The same product of bf16 numbers that are those of the 8-bit floats: they are made in the queue's
 * workspace, which loses its first host_float8_workspace bytes to them. */
uint64_t host_float8_workspace(const struct zinf_matmul *args);
struct zinf_matmul host_float8(struct zinf_queue *q, const struct zinf_matmul *args);

#endif

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
#include "kernels/kernels.h"

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

/* ---- the table's entries, by file ---- */

int host_queue_create(struct zinf_device *device, enum zinf_queue_kind kind,
                      struct zinf_queue **out);
void host_queue_destroy(struct zinf_queue *queue);
void host_queue_set_workspace(struct zinf_queue *queue, void *base, uint64_t bytes);
int host_queue_synchronize(struct zinf_queue *queue);
int host_event_create(struct zinf_device *device, struct zinf_event **out);
void host_event_destroy(struct zinf_event *event);
int host_event_record(struct zinf_queue *queue, struct zinf_event *event);
int host_queue_wait(struct zinf_queue *queue, struct zinf_event *event);
int host_event_synchronize(struct zinf_event *event);

int host_copy(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes);
int host_peer_open(struct zinf_device *device, struct zinf_device *peer);
int host_copy_from_peer(struct zinf_queue *q, void *dst, struct zinf_device *peer, const void *src,
                        uint64_t bytes);
int host_fill_zero(struct zinf_queue *q, void *dst, uint64_t bytes);
int host_convert(struct zinf_queue *q, void *dst, enum zinf_dtype dst_dtype, const void *src,
                 enum zinf_dtype src_dtype, uint64_t n);
int host_add(struct zinf_queue *q, float *dst, const float *src, uint64_t n);
int host_residual_add(struct zinf_queue *q, const struct zinf_residual *args);
int host_dropout(struct zinf_queue *q, const struct zinf_residual *args);
uint64_t host_column_sum_workspace(struct zinf_device *device, int64_t rows, int64_t cols);
int host_column_sum(struct zinf_queue *q, float *sum, const void *x, enum zinf_dtype dtype,
                    int64_t rows, int64_t cols);

uint64_t host_matmul_workspace(struct zinf_device *device, const struct zinf_matmul *args);
int host_matmul(struct zinf_queue *q, const struct zinf_matmul *args);
/* Loads OpenBLAS, once. */
int host_matmul_setup(void);

uint64_t host_norm_workspace(struct zinf_device *device, const struct zinf_norm *args);
int host_norm_forward(struct zinf_queue *q, const struct zinf_norm *args);
int host_norm_backward(struct zinf_queue *q, const struct zinf_norm *args);

uint64_t host_attention_workspace(struct zinf_device *device, const struct zinf_attention *args);
int host_attention_forward(struct zinf_queue *q, const struct zinf_attention *args);
int host_attention_backward(struct zinf_queue *q, const struct zinf_attention *args);

uint64_t host_attention_cached_workspace(struct zinf_device *device,
                                         const struct zinf_attention_cached *args);
int host_attention_cached(struct zinf_queue *q, const struct zinf_attention_cached *args);

int host_distance_bias(struct zinf_queue *q, const struct zinf_distance_bias *args);
int host_distance_bias_backward(struct zinf_queue *q, const struct zinf_distance_bias *args);

/* Of host_matmul: whether it is a product of few rows; arguments and workspace are checked. */
bool host_few_rows_take(const struct zinf_matmul *args);
uint64_t host_few_rows_workspace(const struct zinf_matmul *args);
void host_few_rows(struct zinf_queue *q, const struct zinf_matmul *args);

int host_activation_forward(struct zinf_queue *q, enum zinf_activation kind, enum zinf_dtype dtype,
                            void *y, const void *x, uint64_t n);
int host_activation_backward(struct zinf_queue *q, enum zinf_activation kind, enum zinf_dtype dtype,
                             void *dx, const void *dy, const void *x, void *y_out, uint64_t n);

int host_gated_forward(struct zinf_queue *q, const struct zinf_gated *args);
int host_gated_backward(struct zinf_queue *q, const struct zinf_gated *args);

int host_rope(struct zinf_queue *q, const struct zinf_rope *args);

int host_dequantize(struct zinf_queue *q, const struct zinf_dequantize *args);

int host_embedding_forward(struct zinf_queue *q, const struct zinf_embedding *args);
int host_embedding_backward(struct zinf_queue *q, const struct zinf_embedding *args);

int host_unfold(struct zinf_queue *q, const struct zinf_unfold *args);
int host_unfold_backward(struct zinf_queue *q, const struct zinf_unfold *args);

int host_route_forward(struct zinf_queue *q, const struct zinf_route *args);
int host_route_backward(struct zinf_queue *q, const struct zinf_route *args);
int host_route_shares(struct zinf_queue *q, const struct zinf_shares *args);
int host_route_balance(struct zinf_queue *q, const struct zinf_balance *args);
int host_gather_rows(struct zinf_queue *q, const struct zinf_rows *args);
int host_scatter_rows(struct zinf_queue *q, const struct zinf_rows *args);
int host_weigh_rows(struct zinf_queue *q, const struct zinf_weigh *args);

int host_magnitude(struct zinf_queue *q, const struct zinf_magnitude *args);
int host_scale_columns(struct zinf_queue *q, const struct zinf_column_scale *args);
int host_dot_columns(struct zinf_queue *q, const struct zinf_column_dot *args);

int host_softcap(struct zinf_queue *q, float *x, float cap, uint64_t n);
int host_copy_heads(struct zinf_queue *q, const struct zinf_heads *args);
int host_sinks_forward(struct zinf_queue *q, const struct zinf_sinks *args);
int host_sinks_backward(struct zinf_queue *q, const struct zinf_sinks *args);
int host_squared_error(struct zinf_queue *q, const struct zinf_squared_error *args);
int host_preference(struct zinf_queue *q, const struct zinf_preference *args);
int host_noise(struct zinf_queue *q, const struct zinf_noise *args);
int host_cross_entropy_start(struct zinf_queue *q, const struct zinf_cross_entropy *args);
int host_cross_entropy_update(struct zinf_queue *q, const struct zinf_cross_entropy *args);
int host_cross_entropy_finish(struct zinf_queue *q, const struct zinf_cross_entropy *args);
int host_cross_entropy_backward(struct zinf_queue *q, const struct zinf_cross_entropy *args);

#endif

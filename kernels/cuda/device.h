/*
 * device: what the host files of the CUDA device share. A queue is a stream, an event an event;
 * all memory is one cudaMalloc made when the arena is taken. Arguments are checked here, kernels
 * (launch.h) and products (matmul.c) only enqueue.
 */
#ifndef ZINF_CUDA_DEVICE_H
#define ZINF_CUDA_DEVICE_H

#include "kernels/check.h"
#include "kernels/cuda/launch.h"
#include "kernels/cuda/runtime.h"

#include <pthread.h>
#include <stdatomic.h>

struct cuda_device {
    struct zinf_device device; /* first: a zinf_device points to it */
    int index, capability;     /* 80 = 8.0 */
    bool tf32;                 /* fp32 products on tensor cores, ZINF_CUDA_TF32=1 */
    bool asked_bf16;           /* a workspace for a bf16 product was asked for */
    cublasLtHandle_t blas;
    void *allocation; /* what the arena lies in */
    _Atomic uint64_t pageable_copies;
    char name[320];
};

struct matmul_plan;
/* Rows of experts change with each visit: many plans, found by their shape. */
enum { MATMUL_SETS = 64, MATMUL_WAYS = 8 };

struct zinf_queue {
    struct cuda_device *device;
    cudaStream_t stream;
    void *workspace;
    uint64_t workspace_bytes;
    const char *operation;     /* being enqueued, for messages */
    struct matmul_plan *plans; /* [MATMUL_SETS][MATMUL_WAYS], made at the first product */
    unsigned next_plan;
};

struct zinf_event {
    struct cuda_device *device;
    cudaEvent_t event;
};

int cuda_device_create(struct zinf_device **out, const struct zinf_device_options *options);
/* Visible ones; 0 where CUDA does not say. */
int cuda_count_gpus(void);

/* The NUMA node of what is on the PCI bus there, by the tree at sysfs; -1: it does not say. */
int cuda_node_of(const char *sysfs, const char *bus);

/* Around everything that is enqueued: the thread's current device, an NVTX range and a name for
 * messages; then what CUDA said to it. */
void queue_enter(struct zinf_queue *q, const char *operation);
int queue_leave(struct zinf_queue *q, cudaError_t error);
/* -ENOTSUP with the remedy where the GPU multiplies no bf16. */
int check_bf16(const struct cuda_device *device);
/* Of the bytes of host memory from base on, how many one copy may take: they lie in one piece that
 * is page-locked, or are not page-locked. */
uint64_t pinned_part(const void *base, uint64_t bytes, bool *pinned);
/* All that the device has registered is forgotten. */
void pinned_release_all(const struct cuda_device *device);

/* ---- the table's entries, by file ---- */

int cuda_host_register(struct zinf_device *device, void *base, uint64_t bytes);
void cuda_host_unregister(struct zinf_device *device, void *base);
uint64_t cuda_pageable_copies(const struct zinf_device *device);

int cuda_queue_create(struct zinf_device *device, enum zinf_queue_kind kind,
                      struct zinf_queue **out);
void cuda_queue_destroy(struct zinf_queue *queue);
void cuda_queue_set_workspace(struct zinf_queue *queue, void *base, uint64_t bytes);
int cuda_queue_synchronize(struct zinf_queue *queue);
int cuda_queue_poll(struct zinf_queue *queue);
int cuda_queue_finish(struct zinf_queue *queue);
void *cuda_queue_stream(struct zinf_queue *queue);
int cuda_event_create(struct zinf_device *device, struct zinf_event **out);
void cuda_event_destroy(struct zinf_event *event);
int cuda_event_record(struct zinf_queue *queue, struct zinf_event *event);
int cuda_queue_wait(struct zinf_queue *queue, struct zinf_event *event);
int cuda_event_synchronize(struct zinf_event *event);
int cuda_peer_open(struct zinf_device *device, struct zinf_device *peer);
int cuda_copy_from_peer(struct zinf_queue *q, void *dst, struct zinf_device *peer, const void *src,
                        uint64_t bytes);
int cuda_copy_to_device(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes);
int cuda_copy_to_host(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes);
int cuda_copy(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes);
int cuda_fill_zero(struct zinf_queue *q, void *dst, uint64_t bytes);

uint64_t cuda_matmul_workspace(struct zinf_device *device, const struct zinf_matmul *args);
int cuda_matmul(struct zinf_queue *q, const struct zinf_matmul *args);
void matmul_plans_destroy(struct matmul_plan *plans);

int cuda_convert(struct zinf_queue *q, void *dst, enum zinf_dtype dst_dtype, const void *src,
                 enum zinf_dtype src_dtype, uint64_t n);
int cuda_add(struct zinf_queue *q, float *dst, const float *src, uint64_t n);
uint64_t cuda_attention_workspace(struct zinf_device *device, const struct zinf_attention *args);
uint64_t cuda_norm_workspace(struct zinf_device *device, const struct zinf_norm *args);
uint64_t cuda_column_sum_workspace(struct zinf_device *device, int64_t rows, int64_t cols);
int cuda_norm_forward(struct zinf_queue *q, const struct zinf_norm *args);
int cuda_norm_backward(struct zinf_queue *q, const struct zinf_norm *args);
int cuda_attention_forward(struct zinf_queue *q, const struct zinf_attention *args);
int cuda_attention_backward(struct zinf_queue *q, const struct zinf_attention *args);
/* With relative positions; arguments are checked. */
int cuda_relative_forward(struct zinf_queue *q, const struct zinf_attention *args);
int cuda_relative_backward(struct zinf_queue *q, const struct zinf_attention *args);
uint64_t cuda_attention_cached_workspace(struct zinf_device *device,
                                         const struct zinf_attention_cached *args);
int cuda_attention_cached(struct zinf_queue *q, const struct zinf_attention_cached *args);
int cuda_distance_bias(struct zinf_queue *q, const struct zinf_distance_bias *args);
int cuda_distance_bias_backward(struct zinf_queue *q, const struct zinf_distance_bias *args);
int cuda_activation_forward(struct zinf_queue *q, enum zinf_activation kind, enum zinf_dtype dtype,
                            void *y, const void *x, uint64_t n);
int cuda_activation_backward(struct zinf_queue *q, enum zinf_activation kind, enum zinf_dtype dtype,
                             void *dx, const void *dy, const void *x, void *y_out, uint64_t n);
int cuda_gated_forward(struct zinf_queue *q, const struct zinf_gated *args);
int cuda_gated_backward(struct zinf_queue *q, const struct zinf_gated *args);
int cuda_unfold(struct zinf_queue *q, const struct zinf_unfold *args);
int cuda_unfold_backward(struct zinf_queue *q, const struct zinf_unfold *args);
int cuda_route_forward(struct zinf_queue *q, const struct zinf_route *args);
int cuda_route_backward(struct zinf_queue *q, const struct zinf_route *args);
int cuda_route_shares(struct zinf_queue *q, const struct zinf_shares *args);
int cuda_route_balance(struct zinf_queue *q, const struct zinf_balance *args);
int cuda_gather_rows(struct zinf_queue *q, const struct zinf_rows *args);
int cuda_scatter_rows(struct zinf_queue *q, const struct zinf_rows *args);
int cuda_weigh_rows(struct zinf_queue *q, const struct zinf_weigh *args);
int cuda_magnitude(struct zinf_queue *q, const struct zinf_magnitude *args);
int cuda_scale_columns(struct zinf_queue *q, const struct zinf_column_scale *args);
int cuda_dot_columns(struct zinf_queue *q, const struct zinf_column_dot *args);
int cuda_rope(struct zinf_queue *q, const struct zinf_rope *args);
int cuda_dequantize(struct zinf_queue *q, const struct zinf_dequantize *args);
int cuda_residual_add(struct zinf_queue *q, const struct zinf_residual *args);
int cuda_dropout(struct zinf_queue *q, const struct zinf_residual *args);
int cuda_column_sum(struct zinf_queue *q, float *sum, const void *x, enum zinf_dtype dtype,
                    int64_t rows, int64_t cols);
int cuda_embedding_forward(struct zinf_queue *q, const struct zinf_embedding *args);
int cuda_embedding_backward(struct zinf_queue *q, const struct zinf_embedding *args);
int cuda_softcap(struct zinf_queue *q, float *x, float cap, uint64_t n);
int cuda_copy_heads(struct zinf_queue *q, const struct zinf_heads *args);
int cuda_sinks_forward(struct zinf_queue *q, const struct zinf_sinks *args);
int cuda_sinks_backward(struct zinf_queue *q, const struct zinf_sinks *args);
int cuda_squared_error(struct zinf_queue *q, const struct zinf_squared_error *args);
int cuda_preference(struct zinf_queue *q, const struct zinf_preference *args);
int cuda_noise(struct zinf_queue *q, const struct zinf_noise *args);
int cuda_cross_entropy_start(struct zinf_queue *q, const struct zinf_cross_entropy *args);
int cuda_cross_entropy_update(struct zinf_queue *q, const struct zinf_cross_entropy *args);
int cuda_cross_entropy_finish(struct zinf_queue *q, const struct zinf_cross_entropy *args);
int cuda_cross_entropy_backward(struct zinf_queue *q, const struct zinf_cross_entropy *args);
int cuda_adam(struct zinf_queue *q, const struct zinf_adam *args);
int cuda_sum_squares(struct zinf_queue *q, double *parts, const float *x, uint64_t n);

#endif

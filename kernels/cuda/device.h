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
#include "kernels/operations.h"

#include <pthread.h>
#include <stdatomic.h>

struct cuda_device {
    struct zinf_device device; /* first: a zinf_device points to it */
    int index, capability;     /* 80 = 8.0 */
    bool tf32;                 /* fp32 products on tensor cores, where that is asked for */
    bool asked_bf16;           /* a workspace for a bf16 product was asked for */
    cublasLtHandle_t blas;
    struct zinf_products *noted; /* what matmul_workspace adds products to; NULL: nothing */
    struct zinf_products ways;   /* that products_use was given */
    void *allocation;            /* what the arena lies in */
    _Atomic uint64_t pageable_copies;
    char name[320], products_by[400];
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
int check_float8(const struct cuda_device *device);
/* Of the bytes of host memory from base on, how many one copy may take: they lie in one piece that
 * is page-locked, or are not page-locked. */
uint64_t pinned_part(const void *base, uint64_t bytes, bool *pinned);
/* All that the device has registered is forgotten. */
void pinned_release_all(const struct cuda_device *device);

/* ---- the table's entries ---- */

#define CUDA_OPERATION(name) DECLARE_OPERATION(cuda_##name, name);
OPERATIONS(CUDA_OPERATION)
CUDA_OPERATION(queue_poll)
CUDA_OPERATION(queue_finish)
CUDA_OPERATION(queue_stream)
CUDA_OPERATION(copy_to_device)
CUDA_OPERATION(copy_to_host)
CUDA_OPERATION(adam)
CUDA_OPERATION(sum_squares)
CUDA_OPERATION(host_register)
CUDA_OPERATION(host_unregister)
CUDA_OPERATION(pageable_copies)
CUDA_OPERATION(products_note)
CUDA_OPERATION(products_time)
CUDA_OPERATION(products_use)
CUDA_OPERATION(products_add)
#undef CUDA_OPERATION

void matmul_plans_destroy(struct matmul_plan *plans);
/* With relative positions; arguments are checked. */
int cuda_relative_forward(struct zinf_queue *q, const struct zinf_attention *args);
int cuda_relative_backward(struct zinf_queue *q, const struct zinf_attention *args);

#endif

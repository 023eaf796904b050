/*
 * device: the CUDA device's life: one GPU, its arena, its table. The
 * arena is one cudaMalloc of the size that the plan asks for; nothing is allocated after it.
 */
#include "kernels/cuda/device.h"
#include "kernels/cuda/workspace.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>

/* What is left to the driver of free memory: kernels' code, cuBLAS's and CUDA's own buffers. */
#define DRIVER_MARGIN ((uint64_t)384 << 20)
#define ARENA_ALIGN ((uint64_t)2 << 20)

/* ---- life ---- */

static void cuda_destroy(struct zinf_device *device)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    cudaSetDevice(cuda->index);
    pinned_release_all(cuda);
    if (cuda->blas)
        cublasLtDestroy(cuda->blas);
    if (cuda->allocation)
        cudaFree(cuda->allocation);
    free(cuda);
}

/* A plan may have been told of more memory than the GPU has. */
static int arena_failed(cudaError_t error, uint64_t bytes)
{
    return cuda_fail(error,
                     error == cudaErrorMemoryAllocation
                         ? "taking the GPU's arena (lower zinf.device_memory or --device-memory, "
                           "or end what else is on the GPU)"
                         : "taking the GPU's arena",
                     bytes);
}

static int cuda_take_memory(struct zinf_device *device, uint64_t bytes)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    int code = cuda->asked_bf16 ? check_bf16(cuda) : 0;
    if (code)
        return code;
    if (cuda->allocation)
        return zinf_fail(-EBUSY, "the device's memory has been taken already");
    cudaSetDevice(cuda->index);
    cudaError_t error = cudaMalloc(&cuda->allocation, bytes);
    if (error != cudaSuccess)
        return arena_failed(error, bytes);
    if ((uintptr_t)cuda->allocation % ARENA_ALIGN) { /* large blocks are aligned, small need not */
        cudaFree(cuda->allocation);
        cuda->allocation = NULL;
        error = cudaMalloc(&cuda->allocation, bytes + ARENA_ALIGN);
        if (error != cudaSuccess)
            return arena_failed(error, bytes + ARENA_ALIGN);
    }
    device->memory = (void *)zinf_align_up((uintptr_t)cuda->allocation, ARENA_ALIGN);
    device->memory_bytes = bytes;
    return 0;
}

static const struct zinf_device_ops cuda_ops = {
    .destroy = cuda_destroy,
    .take_memory = cuda_take_memory,
    .queue_create = cuda_queue_create,
    .queue_destroy = cuda_queue_destroy,
    .queue_set_workspace = cuda_queue_set_workspace,
    .queue_synchronize = cuda_queue_synchronize,
    .queue_poll = cuda_queue_poll,
    .queue_finish = cuda_queue_finish,
    .queue_stream = cuda_queue_stream,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .queue_wait = cuda_queue_wait,
    .event_synchronize = cuda_event_synchronize,
    .copy_to_device = cuda_copy_to_device,
    .copy_to_host = cuda_copy_to_host,
    .copy = cuda_copy,
    .peer_open = cuda_peer_open,
    .copy_from_peer = cuda_copy_from_peer,
    .fill_zero = cuda_fill_zero,
    .convert = cuda_convert,
    .add = cuda_add,
    .matmul_workspace = cuda_matmul_workspace,
    .attention_workspace = cuda_attention_workspace,
    .attention_cached_workspace = cuda_attention_cached_workspace,
    .norm_workspace = cuda_norm_workspace,
    .column_sum_workspace = cuda_column_sum_workspace,
    .matmul = cuda_matmul,
    .norm_forward = cuda_norm_forward,
    .norm_backward = cuda_norm_backward,
    .attention_forward = cuda_attention_forward,
    .attention_backward = cuda_attention_backward,
    .attention_cached = cuda_attention_cached,
    .distance_bias = cuda_distance_bias,
    .distance_bias_backward = cuda_distance_bias_backward,
    .activation_forward = cuda_activation_forward,
    .activation_backward = cuda_activation_backward,
    .gated_forward = cuda_gated_forward,
    .gated_backward = cuda_gated_backward,
    .rope = cuda_rope,
    .unfold = cuda_unfold,
    .unfold_backward = cuda_unfold_backward,
    .route_forward = cuda_route_forward,
    .route_backward = cuda_route_backward,
    .route_shares = cuda_route_shares,
    .route_balance = cuda_route_balance,
    .gather_rows = cuda_gather_rows,
    .scatter_rows = cuda_scatter_rows,
    .weigh_rows = cuda_weigh_rows,
    .magnitude = cuda_magnitude,
    .scale_columns = cuda_scale_columns,
    .dot_columns = cuda_dot_columns,
    .dequantize = cuda_dequantize,
    .residual_add = cuda_residual_add,
    .dropout = cuda_dropout,
    .column_sum = cuda_column_sum,
    .embedding_forward = cuda_embedding_forward,
    .embedding_backward = cuda_embedding_backward,
    .softcap = cuda_softcap,
    .copy_heads = cuda_copy_heads,
    .sinks_forward = cuda_sinks_forward,
    .sinks_backward = cuda_sinks_backward,
    .squared_error = cuda_squared_error,
    .preference = cuda_preference,
    .noise = cuda_noise,
    .cross_entropy_start = cuda_cross_entropy_start,
    .cross_entropy_update = cuda_cross_entropy_update,
    .cross_entropy_finish = cuda_cross_entropy_finish,
    .cross_entropy_backward = cuda_cross_entropy_backward,
    .adam = cuda_adam,
    .sum_squares = cuda_sum_squares,
    .host_register = cuda_host_register,
    .host_unregister = cuda_host_unregister,
    .pageable_copies = cuda_pageable_copies,
};

/* The oldest driver of each CUDA, of NVIDIA's table of minor version compatibility. */
static int driver_too_old(void)
{
    const int major = CUDART_VERSION / 1000, driver = major >= 13 ? 580 : 525;
    cudaGetLastError();
    return zinf_fail(
        -ENODEV,
        "there is no NVIDIA driver, or it is too old for CUDA %d, which this was built "
        "with: install driver %d or newer, or build with an older toolkit",
        major, driver);
}

int cuda_count_gpus(void)
{
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess)
        cudaGetLastError(); /* whoever opens one is told why there is none */
    return count;
}

int cuda_node_of(const char *sysfs, const char *bus)
{
    char path[256], name[32];
    int node = -1;
    snprintf(name, sizeof name, "%s", bus);
    for (char *c = name; *c; c++)
        *c = (char)tolower((unsigned char)*c); /* CUDA writes capitals */
    snprintf(path, sizeof path, "%s/bus/pci/devices/%s/numa_node", sysfs, name);
    FILE *file = fopen(path, "r");
    if (file && fscanf(file, "%d", &node) != 1)
        node = -1;
    if (file)
        fclose(file);
    return node;
}

/* Where it is not known, nothing is placed. */
static int node_of(int index)
{
    char bus[32];
    if (cudaDeviceGetPCIBusId(bus, sizeof bus, index) == cudaSuccess)
        return cuda_node_of("/sys", bus);
    cudaGetLastError();
    return -1;
}

struct kernel_entry *kernel_entries;

/* Under CUDA's lazy loading a kernel's code is loaded at its first launch, which may have to wait
 * for all that runs on the GPU; a collective that runs there may wait for a peer that waits for
 * this launch. So all of it is loaded before anything runs. */
static cudaError_t load_kernels(void)
{
    struct cudaFuncAttributes unused;
    cudaError_t error = cudaSuccess;
    for (struct kernel_entry *e = kernel_entries; e && error == cudaSuccess; e = e->next)
        error = cudaFuncGetAttributes(&unused, e->kernel);
    return error;
}

static int open_gpu(struct cuda_device *cuda, int index)
{
    struct cudaDeviceProp properties;
    size_t bytes_free = 0, total = 0;
    int count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error == cudaErrorInsufficientDriver)
        return driver_too_old();
    CUDA_RETURN(error, "counting GPUs", 0);
    if (index < 0 || index >= count)
        return zinf_fail(-ENODEV, "GPU %d of %d: give an index from 0 on", index, count);
    CUDA_RETURN(cudaSetDevice(index), "opening the GPU", 0);
    CUDA_RETURN(cudaGetDeviceProperties(&properties, index), "reading the GPU's properties", 0);
    CUDA_RETURN(load_kernels(), "loading the kernels", 0);
    CUDA_RETURN(cudaMemGetInfo(&bytes_free, &total), "reading the GPU's free memory", 0);
    cublasStatus_t status = cublasLtCreate(&cuda->blas);
    if (status != CUBLAS_STATUS_SUCCESS)
        return cublas_fail(status, "starting cuBLASLt", 0);
    const char *tf32 = getenv("ZINF_CUDA_TF32");
    cuda->index = index;
    cuda->device.node = node_of(index);
    cuda->capability = 10 * properties.major + properties.minor;
    cuda->tf32 = tf32 && *tf32 == '1' && cuda->capability >= 80;
    cuda->device.free_bytes = bytes_free > DRIVER_MARGIN ? bytes_free - DRIVER_MARGIN : 0;
    snprintf(cuda->name, sizeof cuda->name, "%s (GPU %d, sm_%d)", properties.name, index,
             cuda->capability);
    return 0;
}

int cuda_device_create(struct zinf_device **out, const struct zinf_device_options *options)
{
    struct cuda_device *cuda = calloc(1, sizeof *cuda);
    *out = NULL;
    if (!cuda)
        return zinf_fail(-ENOMEM, "no memory for the CUDA device");
    cuda->device = (struct zinf_device){
        .ops = &cuda_ops,
        .kind = ZINF_DEVICE_CUDA,
        .name = cuda->name,
        .needs_pinned = true,
        .node = -1,
        .rounds_operands = true,
        .logit_rows = GPU_LOGIT_ROWS,
        .n_threads = options->n_threads > 0 ? options->n_threads : 1,
    };
    int code = open_gpu(cuda, options->index);
    if (code) {
        cuda_destroy(&cuda->device);
        return code;
    }
    *out = &cuda->device;
    return 0;
}

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
    free(cuda->ways.items);
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

/* The name stands behind "WHICH = " in what the compiler says of a function, up to a bracket. */
static void cuda_each_kernel(const struct zinf_device *device,
                             void (*see)(void *arg, const char *name, bool launched), void *arg)
{
    char name[256];
    (void)device;
    for (const struct kernel_entry *e = kernel_entries; e; e = e->next) {
        const char *begin = strstr(e->name, "WHICH");
        begin = begin ? begin + strcspn(begin, "=") : e->name;
        begin += strspn(begin, "=& (");
        snprintf(name, sizeof name, "%.*s", (int)strcspn(begin, ";]"), begin);
        see(arg, name, __atomic_load_n(&e->launched, __ATOMIC_RELAXED));
    }
}

#define CUDA_ENTRY(name) .name = cuda_##name,

static const struct zinf_device_ops cuda_ops = {.destroy = cuda_destroy,
                                                .take_memory = cuda_take_memory,
                                                .queue_poll = cuda_queue_poll,
                                                .queue_finish = cuda_queue_finish,
                                                .queue_stream = cuda_queue_stream,
                                                .each_kernel = cuda_each_kernel,
                                                .copy_to_device = cuda_copy_to_device,
                                                .copy_to_host = cuda_copy_to_host,
                                                .adam = cuda_adam,
                                                .sum_squares = cuda_sum_squares,
                                                .attention_workspace = gpu_attention_workspace,
                                                .attention_cached_workspace =
                                                    gpu_attention_cached_workspace,
                                                .norm_workspace = gpu_norm_workspace,
                                                .scan_workspace = gpu_scan_workspace,
                                                .column_sum_workspace = gpu_column_sum_workspace,
                                                .host_register = cuda_host_register,
                                                .host_unregister = cuda_host_unregister,
                                                .pageable_copies = cuda_pageable_copies,
                                                .products_note = cuda_products_note,
                                                .products_time = cuda_products_time,
                                                .products_use = cuda_products_use,
                                                .products_add = cuda_products_add,
                                                OPERATIONS(CUDA_ENTRY)};

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

/* The module has code for the GPUs that it was built for, and for later ones text that the driver
 * compiles, if it knows the toolkit that has written it. */
static int loading_failed(cudaError_t error, const struct cudaDeviceProp *gpu)
{
    const int capability = 10 * gpu->major + gpu->minor;
    if (error != cudaErrorNoKernelImageForDevice && error != cudaErrorUnsupportedPtxVersion)
        return cuda_fail(error, "loading the kernels", 0);
    cudaGetLastError();
    return zinf_fail(-ENODEV,
                     "%s is sm_%d, for which this build has no code that its driver takes: build "
                     "with --with-cuda-arch=%d, or install a newer driver",
                     gpu->name, capability, capability);
}

static int open_gpu(struct cuda_device *cuda, int index, bool wants_tf32)
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
    error = load_kernels();
    if (error != cudaSuccess)
        return loading_failed(error, &properties);
    CUDA_RETURN(cudaMemGetInfo(&bytes_free, &total), "reading the GPU's free memory", 0);
    cublasStatus_t status = cublasLtCreate(&cuda->blas);
    if (status != CUBLAS_STATUS_SUCCESS)
        return cublas_fail(status, "starting cuBLASLt", 0);
    const char *tf32 = getenv("ZINF_CUDA_TF32");
    cuda->index = index;
    cuda->device.node = node_of(index);
    cuda->capability = 10 * properties.major + properties.minor;
    cuda->device.has_tf32 = cuda->capability >= TF32_CAPABILITY;
    cuda->tf32 = cuda->device.has_tf32 && (wants_tf32 || (tf32 && *tf32 == '1'));
    cuda->device.free_bytes = bytes_free > DRIVER_MARGIN ? bytes_free - DRIVER_MARGIN : 0;
    snprintf(cuda->name, sizeof cuda->name, "%s (GPU %d, sm_%d)", properties.name, index,
             cuda->capability);
    snprintf(cuda->products_by, sizeof cuda->products_by, "%s (sm_%d), cuBLASLt %llu",
             properties.name, cuda->capability, (unsigned long long)cublasLtGetVersion());
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
        .products_by = cuda->products_by,
        .needs_pinned = true,
        .node = -1,
        .rounds_operands = true,
        .logit_rows = GPU_LOGIT_ROWS,
        .n_threads = options->n_threads > 0 ? options->n_threads : 1,
    };
    int code = open_gpu(cuda, options->index, options->tf32);
    cuda->device.has_float8 = cuda->capability >= FLOAT8_CAPABILITY;
    if (code) {
        cuda_destroy(&cuda->device);
        return code;
    }
    *out = &cuda->device;
    return 0;
}

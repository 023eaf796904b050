/*
 * context: what enqueueing asks of the device and the thread: errors as sentences, the current
 * device with the operation's name, and which host memory is page-locked.
 */
#include "kernels/cuda/device.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- errors ---- */

static int fail(int code, const char *says, const char *operation, uint64_t bytes_asked)
{
    char asked[48] = "", size[2][16];
    size_t bytes_free = 0, total = 0;
    bool known = cudaMemGetInfo(&bytes_free, &total) == cudaSuccess;
    cudaGetLastError(); /* the next launch must not report this one again */
    if (bytes_asked)
        snprintf(asked, sizeof asked, "; %s asked",
                 zinf_size_format(size[0], sizeof size[0], bytes_asked));
    if (!known)
        return zinf_fail(code, "%s: %s%s; the GPU's free memory is not known", operation, says,
                         asked);
    return zinf_fail(code, "%s: %s%s, %s free on the GPU", operation, says, asked,
                     zinf_size_format(size[1], sizeof size[1], bytes_free));
}

int cuda_fail(cudaError_t error, const char *operation, uint64_t bytes_asked)
{
    char says[160];
    snprintf(says, sizeof says, "CUDA error %s (%s)", cudaGetErrorName(error),
             cudaGetErrorString(error));
    return fail(error == cudaErrorMemoryAllocation ? -ENOMEM : -EIO, says, operation, bytes_asked);
}

int cublas_fail(cublasStatus_t status, const char *operation, uint64_t bytes_asked)
{
    char says[64];
    snprintf(says, sizeof says, "cuBLASLt status %d", (int)status);
    return fail(status == CUBLAS_STATUS_ALLOC_FAILED ? -ENOMEM : -EIO, says, operation,
                bytes_asked);
}

int check_bf16(const struct cuda_device *device)
{
    if (device->capability >= 80)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s multiplies no bf16, which begins with sm_80: set \"fp16\": {\"enabled\": "
                     "true} in place of \"bf16\", or leave both out for fp32",
                     device->name);
}

/* ---- operations ---- */

void queue_enter(struct zinf_queue *q, const char *operation)
{
    q->operation = operation;
    cudaSetDevice(q->device->index); /* a thread's own; free where it is set already */
    nvtxRangePushA(operation);
}

int queue_leave(struct zinf_queue *q, cudaError_t error)
{
    nvtxRangePop();
    return error == cudaSuccess ? 0 : cuda_fail(error, q->operation, 0);
}

/* ---- page-locked host memory ---- */

bool device_has_pinned(struct cuda_device *device, const void *base, uint64_t bytes)
{
    uintptr_t from = (uintptr_t)base;
    bool found = false;
    pthread_mutex_lock(&device->lock);
    for (size_t i = 0; i < device->n_pinned && !found; i++) {
        uintptr_t start = (uintptr_t)device->pinned[i].base;
        found = from >= start && bytes <= device->pinned[i].bytes &&
                from - start <= device->pinned[i].bytes - bytes;
    }
    pthread_mutex_unlock(&device->lock);
    return found;
}

static int remember_pinned(struct cuda_device *device, void *base, uint64_t bytes)
{
    int code = 0;
    pthread_mutex_lock(&device->lock);
    if (device->n_pinned == device->max_pinned) {
        size_t room = 2 * device->max_pinned + 8;
        struct pinned_range *more = realloc(device->pinned, room * sizeof *more);
        if (more) {
            device->pinned = more;
            device->max_pinned = room;
        } else {
            code = zinf_fail(-ENOMEM, "no memory to list page-locked ranges");
        }
    }
    if (!code)
        device->pinned[device->n_pinned++] = (struct pinned_range){base, bytes};
    pthread_mutex_unlock(&device->lock);
    return code;
}

int cuda_host_register(struct zinf_device *device, void *base, uint64_t bytes)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    if (!bytes)
        return 0;
    cudaSetDevice(cuda->index);
    CUDA_RETURN(cudaHostRegister(base, bytes, cudaHostRegisterPortable), "page-locking host memory",
                bytes);
    int code = remember_pinned(cuda, base, bytes);
    if (code)
        cudaHostUnregister(base);
    return code;
}

void cuda_host_unregister(struct zinf_device *device, void *base)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    pthread_mutex_lock(&cuda->lock);
    for (size_t i = 0; i < cuda->n_pinned; i++)
        if (cuda->pinned[i].base == base) {
            cuda->pinned[i] = cuda->pinned[--cuda->n_pinned];
            cudaHostUnregister(base);
            break;
        }
    pthread_mutex_unlock(&cuda->lock);
}

/*
 * context: what enqueueing asks of the device and the thread: errors as sentences, and the current
 * device with the operation's name.
 */
#include "kernels/cuda/device.h"

#include <stdio.h>

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

int check_float8(const struct cuda_device *device)
{
    if (device->device.has_float8)
        return 0;
    return zinf_fail(-ENOTSUP,
                     "%s multiplies no floats of 8 bits, which begin with sm_89: leave out "
                     "zinf.matmul_type",
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

/*
 * runtime: the only door to CUDA for host code, and the list of what is called behind it. All of
 * it is plain C. tests/cuda_standin has headers of the same names with just these calls, so the
 * device can run on a machine without a GPU; a call that is added here must be added there.
 *
 *   device     cudaSetDevice, cudaGetDeviceCount, cudaGetDeviceProperties, cudaMemGetInfo,
 *              cudaDeviceGetPCIBusId, cudaDeviceSynchronize
 *   memory     cudaMalloc, cudaFree, cudaHostRegister, cudaHostUnregister
 *   streams    cudaStreamCreateWithFlags, cudaStreamDestroy, cudaStreamSynchronize,
 *              cudaStreamWaitEvent, cudaStreamQuery
 *   events     cudaEventCreateWithFlags, cudaEventDestroy, cudaEventRecord, cudaEventSynchronize,
 *              cudaEventElapsedTime
 *   copies     cudaMemcpyAsync, cudaMemsetAsync, cudaMemcpy
 *   peers      cudaDeviceCanAccessPeer, cudaDeviceEnablePeerAccess, cudaMemcpyPeerAsync
 *   errors     cudaGetLastError, cudaGetErrorString, cudaGetErrorName
 *   kernels    cudaFuncGetAttributes; cudaFuncSetAttribute and a launch, in kernel.cuh alone
 *   cuBLASLt   create and destroy; descriptor, layout and preference with their set calls;
 *              heuristic, check and matmul; version
 *   NVTX       nvtxRangePushA, nvtxRangePop
 *
 * Streams never order themselves with the legacy stream, and nothing here allocates in a step.
 */
#ifndef ZINF_CUDA_RUNTIME_H
#define ZINF_CUDA_RUNTIME_H

#include "base/base.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <nvtx3/nvToolsExt.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A CUDA code as -errno with a sentence: operation, CUDA's text, bytes asked (0: none) and bytes
 * free on the device. Clears the last error, which else the next launch would report. */
int cuda_fail(cudaError_t error, const char *operation, uint64_t bytes_asked);
int cublas_fail(cublasStatus_t status, const char *operation, uint64_t bytes_asked);

#ifdef __cplusplus
}
#endif

/* Leaves the function when a CUDA call fails. */
#define CUDA_RETURN(call, operation, bytes)                                                        \
    do {                                                                                           \
        cudaError_t error_ = (call);                                                               \
        if (error_ != cudaSuccess)                                                                 \
            return cuda_fail(error_, operation, bytes);                                            \
    } while (0)

#endif

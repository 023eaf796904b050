/* block: sums and maxima over a block's threads. */
#ifndef ZINF_CUDA_BLOCK_CUH
#define ZINF_CUDA_BLOCK_CUH

#include "kernels/cuda/kernel.cuh"

/* The block's sum or maximum, the same in every thread; shared [WARPS]. */
template <int WARPS> DEVICE float block_reduce(float x, bool sum, float *shared)
{
    x = sum ? warp_sum(x) : warp_max(x);
    sync_block(); /* an earlier result has been read */
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    sync_block();
    x = shared[0];
    for (int k = 1; k < WARPS; k++)
        x = sum ? x + shared[k] : shared[k] > x ? shared[k] : x;
    return x;
}

#endif

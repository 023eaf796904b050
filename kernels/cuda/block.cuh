/* block: sums and maxima over a block's threads. */
#ifndef ZINF_CUDA_BLOCK_CUH
#define ZINF_CUDA_BLOCK_CUH

#include "kernels/cuda/kernel.cuh"

/* The block's sum or maximum, the same in every thread; shared [warps]. */
DEVICE float block_reduce(float x, bool sum, float *shared, int warps)
{
    x = sum ? warp_sum(x) : warp_max(x);
    sync_block(); /* an earlier result has been read */
    if (threadIdx.x % 32 == 0)
        shared[threadIdx.x / 32] = x;
    sync_block();
    x = shared[0];
    for (int k = 1; k < warps; k++)
        x = sum ? x + shared[k] : shared[k] > x ? shared[k] : x;
    return x;
}
template <int WARPS> DEVICE float block_reduce(float x, bool sum, float *shared)
{
    return block_reduce(x, sum, shared, WARPS);
}

#endif

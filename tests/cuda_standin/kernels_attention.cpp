/* kernels_attention: the attention kernels as they are, compiled for the CPU. */
#include "kernels/cuda/attention_cached.cu"
#include "kernels/cuda/attention_distance.cu"
#include "kernels/cuda/attention_mma_backward.cu"
#include "kernels/cuda/attention_mma_distance.cu"
#include "kernels/cuda/attention_mma_forward.cu"
#include "kernels/cuda/attention_plain.cu"
#include "kernels/cuda/attention_relative.cu"

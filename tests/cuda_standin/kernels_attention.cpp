/* kernels_attention: the attention kernels as they are, compiled for the CPU. */
#include "kernels/cuda/attention_plain.cu"
bool attention_mma_serves(const struct zinf_attention *args, int capability) { (void)args; (void)capability; return false; }
cudaError_t launch_attention_mma_forward(cudaStream_t stream, const struct zinf_attention *args) { (void)stream; (void)args; return cudaErrorInvalidValue; }
cudaError_t launch_attention_mma_backward(cudaStream_t stream, const float *delta,
                                          const struct zinf_attention *args) { (void)stream; (void)delta; (void)args; return cudaErrorInvalidValue; }

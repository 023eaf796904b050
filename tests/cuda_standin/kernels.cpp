/* kernels: the kernels as they are, compiled for the CPU. */
#include "kernels/cuda/columns.cu"
#include "kernels/cuda/elementwise.cu"
#include "kernels/cuda/embedding.cu"
#include "kernels/cuda/loss.cu"
#include "kernels/cuda/norm.cu"
#include "kernels/cuda/rectangle.cu"
#include "kernels/cuda/update.cu"

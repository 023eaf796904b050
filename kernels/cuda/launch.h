/*
 * launch: the kernels as the host code sees them, one plain C function each. Arguments have been
 * checked and are not empty; a launch only enqueues. Where a launch has a workspace, workspace.h
 * gives its size.
 */
#ifndef ZINF_CUDA_LAUNCH_H
#define ZINF_CUDA_LAUNCH_H

#include "kernels/kernels.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Every kernel there is; each enters itself before the module's first call (kernel.cuh). */
struct kernel_entry {
    const void *kernel;
    const char *name; /* among other words, as the compiler has it */
    bool launched;    /* by any thread; read and written as an atomic */
    struct kernel_entry *next;
};
extern struct kernel_entry *kernel_entries;

/* ---- elementwise.cu ---- */
cudaError_t launch_convert(cudaStream_t stream, void *dst, enum zinf_dtype dst_dtype,
                           const void *src, enum zinf_dtype src_dtype, uint64_t n);
cudaError_t launch_add(cudaStream_t stream, float *dst, const float *src, uint64_t n);
/* x NULL: plain dropout */
cudaError_t launch_residual(cudaStream_t stream, const struct zinf_residual *args, const void *x);
cudaError_t launch_activation(cudaStream_t stream, enum zinf_activation kind, enum zinf_dtype dtype,
                              void *y, const void *x, uint64_t n);
cudaError_t launch_activation_backward(cudaStream_t stream, enum zinf_activation kind,
                                       enum zinf_dtype dtype, void *dx, const void *dy,
                                       const void *x, void *y_out, uint64_t n);
/* ---- gated.cu ---- */
cudaError_t launch_gated(cudaStream_t stream, const struct zinf_gated *args, bool backward);
/* ---- rope.cu ---- */
cudaError_t launch_rope(cudaStream_t stream, const struct zinf_rope *args);
/* ---- quantized.cu ---- */
cudaError_t launch_dequantize(cudaStream_t stream, const struct zinf_dequantize *args);
/* ---- packed.cu ---- */
cudaError_t launch_unpack(cudaStream_t stream, const struct zinf_packed_array *args);
/* ---- rectangle.cu: a matrix whose rows lie apart ---- */
struct rectangle {
    void *base;
    enum zinf_dtype dtype;
    int64_t ld;
};
/* dst = src, converted */
cudaError_t launch_rectangle_convert(cudaStream_t stream, struct rectangle dst,
                                     struct rectangle src, int64_t rows, int64_t cols);
/* Every row of dst += bias[cols]; bias has no ld */
cudaError_t launch_rectangle_bias(cudaStream_t stream, struct rectangle dst, struct rectangle bias,
                                  int64_t rows, int64_t cols);
/* ---- float8.cu: operands of a product as floats of 8 bits ---- */
struct float8_matrix {
    const void *x; /* [rows][cols] bf16, rows ld apart; both multiples of 16, but rows of a matrix
                    * that is not turned */
    int64_t ld, rows, cols;
    enum zinf_float8 type;
    bool turned;    /* codes are [cols][rows] */
    uint8_t *codes; /* packed */
    float *largest; /* [FLOAT8_PARTS + 1]; the last becomes the scale of a code */
};
cudaError_t launch_float8(cudaStream_t stream, const struct float8_matrix *matrix);
cudaError_t launch_widen(cudaStream_t stream, const struct zinf_widen *args);
/* ---- convolution.cu, scan.cu ---- */
cudaError_t launch_convolution(cudaStream_t stream, const struct zinf_convolution *args,
                               bool backward);
/* args->backward or forward. */
cudaError_t launch_scan(cudaStream_t stream, void *workspace, const struct zinf_scan *args);
/* ---- columns.cu ---- */
/* Sums down the columns of slabs of rows, and where what they add up to goes. */
struct column_parts {
    const float *sums; /* [slabs][n_sums][cols] */
    float *to[2];      /* [cols] each */
    int64_t cols, slabs;
    int n_sums; /* 1 or 2 */
};
cudaError_t launch_finish_columns(cudaStream_t stream, const struct column_parts *parts);
cudaError_t launch_column_sum(cudaStream_t stream, void *workspace, float *sum, const void *x,
                              enum zinf_dtype dtype, int64_t rows, int64_t cols);
/* In one pass, for activations that a layer with a bias has; else in two. */
cudaError_t launch_activation_sums(cudaStream_t stream, void *workspace,
                                   const struct zinf_activation_sums *args);
/* dw and db of a norm: column sums of dy * normal(x) and of dy */
cudaError_t launch_norm_columns(cudaStream_t stream, void *workspace, const struct zinf_norm *args);
/* ---- norm_gradient.cu ---- */
/* Whether dx, dw and db, as far as they are wanted, come of one pass; else launch_norm_columns,
 * then launch_norm_dx. */
bool norm_gradient_serves(const struct zinf_norm *args);
cudaError_t launch_norm_gradient(cudaStream_t stream, void *workspace,
                                 const struct zinf_norm *args);
/* ---- norm_rows.cu ---- */
/* Whether a row is read once, also with the sum in front of it, if that is not NULL; else
 * launch_residual, then launch_norm_forward. */
bool norm_rows_serves(const struct zinf_norm *args, const struct zinf_residual *sum);
cudaError_t launch_norm_rows(cudaStream_t stream, const struct zinf_norm *args);
cudaError_t launch_residual_norm(cudaStream_t stream, const struct zinf_residual *sum,
                                 const struct zinf_norm *args);
/* ---- norm.cu: rows of any size and alignment ---- */
cudaError_t launch_norm_forward(cudaStream_t stream, const struct zinf_norm *args);
cudaError_t launch_norm_dx(cudaStream_t stream, const struct zinf_norm *args);
/* ---- embedding.cu ---- */
cudaError_t launch_embedding(cudaStream_t stream, const struct zinf_embedding *args);
cudaError_t launch_embedding_backward(cudaStream_t stream, const struct zinf_embedding *args);
/* ---- route.cu ---- */
cudaError_t launch_route(cudaStream_t stream, const struct zinf_route *args, bool backward);
cudaError_t launch_shares(cudaStream_t stream, const struct zinf_shares *args);
cudaError_t launch_balance(cudaStream_t stream, const struct zinf_balance *args);
cudaError_t launch_gather(cudaStream_t stream, const struct zinf_rows *args);
cudaError_t launch_scatter(cudaStream_t stream, const struct zinf_rows *args);
cudaError_t launch_weigh(cudaStream_t stream, const struct zinf_weigh *args);
/* ---- loss.cu ---- */
cudaError_t launch_loss_start(cudaStream_t stream, const struct zinf_cross_entropy *args);
cudaError_t launch_loss_update(cudaStream_t stream, const struct zinf_cross_entropy *args);
cudaError_t launch_loss_finish(cudaStream_t stream, const struct zinf_cross_entropy *args);
cudaError_t launch_loss_backward(cudaStream_t stream, const struct zinf_cross_entropy *args);
cudaError_t launch_softcap(cudaStream_t stream, float *x, float cap, uint64_t n);
/* ---- heads.cu, sinks.cu, squared_error.cu ---- */

cudaError_t launch_copy_heads(cudaStream_t stream, const struct zinf_heads *args);
cudaError_t launch_sinks(cudaStream_t stream, const struct zinf_sinks *args, bool backward);

cudaError_t launch_squared_error(cudaStream_t stream, const struct zinf_squared_error *args);

/* ---- xielu.cu ---- */
cudaError_t launch_xielu(cudaStream_t stream, const struct zinf_xielu *args, bool backward);

/* ---- preference.cu, noise.cu ---- */

cudaError_t launch_preference(cudaStream_t stream, const struct zinf_preference *args);
cudaError_t launch_noise(cudaStream_t stream, const struct zinf_noise *args);
/* ---- update.cu ---- */
cudaError_t launch_adam(cudaStream_t stream, const struct zinf_adam *args);
cudaError_t launch_sum_squares(cudaStream_t stream, double *parts, const float *x, uint64_t n);
/* ---- attention_*.cu; plain: CUDA cores, any type; mma: tensor cores, 16-bit types ---- */
/* delta[b][h][i] = sum of d_out * out over the head */
cudaError_t launch_attention_delta(cudaStream_t stream, float *delta,
                                   const struct zinf_attention *args);
cudaError_t launch_attention_plain_forward(cudaStream_t stream, const struct zinf_attention *args);
cudaError_t launch_attention_plain_backward(cudaStream_t stream, const float *delta,
                                            const struct zinf_attention *args);
/* The gradient of a bias by distance. */
cudaError_t launch_attention_distance(cudaStream_t stream, const float *delta,
                                      const struct zinf_attention *args);
cudaError_t launch_distance_bias(cudaStream_t stream, const struct zinf_distance_bias *args);
cudaError_t launch_distance_table(cudaStream_t stream, const struct zinf_distance_bias *args);
/* Whether the tensor-core kernels hold these shapes on a device of this capability (80 = 8.0). */
bool attention_mma_serves(const struct zinf_attention *args, int capability);
cudaError_t launch_attention_mma_forward(cudaStream_t stream, const struct zinf_attention *args);
cudaError_t launch_attention_mma_backward(cudaStream_t stream, const float *delta,
                                          const struct zinf_attention *args);
/* The gradient of a bias by distance, by way of parts: see attention_parts_bytes. */
cudaError_t launch_attention_mma_distance(cudaStream_t stream, const float *delta, float *parts,
                                          const struct zinf_attention *args);
/* ---- attention_plain.cu and attention_relative.cu: relative positions ---- */
/* at[i - j + keys - 1]: the row of the table for query i and key j of the call's keys. */
cudaError_t launch_relative_rows(cudaStream_t stream, int32_t *at,
                                 const struct zinf_attention *args);
cudaError_t launch_attention_relative_forward(cudaStream_t stream, const int32_t *at,
                                              const struct zinf_attention *args);
cudaError_t launch_attention_relative_backward(cudaStream_t stream, const float *delta,
                                               const int32_t *at,
                                               const struct zinf_attention *args);
/* The gradients of the table, by way of those by distance, [2][n_heads][seq + keys - 1][head_dim].
 */
struct relative_gradient {
    const float *delta;
    const int32_t *at;
    float *by_distance;
};
cudaError_t launch_relative_table(cudaStream_t stream, const struct relative_gradient *gradient,
                                  const struct zinf_attention *args);
/* ---- unfold.cu ---- */
cudaError_t launch_unfold(cudaStream_t stream, const struct zinf_unfold *args, bool backward);
/* ---- magnitude.cu ---- */
cudaError_t launch_magnitude(cudaStream_t stream, const struct zinf_magnitude *args);
cudaError_t launch_scale_columns(cudaStream_t stream, const struct zinf_column_scale *args);
cudaError_t launch_dot_columns(cudaStream_t stream, const struct zinf_column_dot *args);
/* ---- attention_cached.cu ---- */
cudaError_t launch_attention_cached(cudaStream_t stream, const struct zinf_attention_cached *args);

#ifdef __cplusplus
}
#endif
#endif

/* check: checks the arguments of operations, for every device. -EINVAL with a sentence that names
 * the operation and the shapes. */
#ifndef ZINF_CHECK_H
#define ZINF_CHECK_H

#include "kernels/kernels.h"

/* Number of heads of a norm and distance of rows, with 0 replaced by its meaning. */
static inline int64_t norm_heads(const struct zinf_norm *args)
{
    return args->heads ? args->heads : 1;
}
static inline int64_t norm_ld(const struct zinf_norm *args)
{
    return args->ld ? args->ld : norm_heads(args) * args->cols;
}
/* The number that is added to a norm's weights, or is all of them. */
static inline float norm_w_add(const struct zinf_norm *args)
{
    return args->w || args->w_add != 0.0f ? args->w_add : 1.0f;
}
/* The factor of an embedding's rows, with 0 replaced by 1. */
static inline float embedding_scale(const struct zinf_embedding *args)
{
    return args->scale != 0.0f ? args->scale : 1.0f;
}

int check_matmul(const struct zinf_matmul *args);
int check_norm(const struct zinf_norm *args, const char *operation);
int check_residual_norm(const struct zinf_residual *sum, const struct zinf_norm *norm);
int check_attention(const struct zinf_attention *args, const char *operation);
/* Checks shapes; the sequences and positions are checked by the device. */
int check_attention_cached(const struct zinf_attention_cached *args);
int check_distance_bias(const struct zinf_distance_bias *args, const char *operation);
int check_activation(enum zinf_activation kind);
int check_activation_sums(const struct zinf_activation_sums *a);
int check_gated(const struct zinf_gated *args, const char *operation);
int check_xielu(const struct zinf_xielu *args, const char *operation);
int check_rope(const struct zinf_rope *args);
int check_dequantize(const struct zinf_dequantize *args);
int check_unpack(const struct zinf_packed_array *args);
int check_widen(const struct zinf_widen *args);
int check_embedding(const struct zinf_embedding *args, const char *operation);
int check_unfold(const struct zinf_unfold *args, const char *operation);
int check_convolution(const struct zinf_convolution *args, bool backward);
int check_scan(const struct zinf_scan *args, const char *operation);
int check_route(const struct zinf_route *args, const char *operation);
int check_shares(const struct zinf_shares *args);
int check_balance(const struct zinf_balance *args);
int check_rows(const struct zinf_rows *args, const char *operation);
int check_weigh(const struct zinf_weigh *args);
int check_magnitude(const struct zinf_magnitude *args);
int check_column_scale(const struct zinf_column_scale *args);
int check_column_dot(const struct zinf_column_dot *args);
/* tile: also checks the logits, not only the rows. */
int check_softcap(float cap, const char *operation);
int check_preference(const struct zinf_preference *args);
int check_noise(const struct zinf_noise *args);
int check_heads(const struct zinf_heads *args);
int check_sinks(const struct zinf_sinks *args, const char *operation);
int check_squared_error(const struct zinf_squared_error *args);
int check_loss(const struct zinf_cross_entropy *args, bool tile, const char *operation);
int check_residual(const struct zinf_residual *args, const char *operation);
int check_column_sum(int64_t rows, int64_t cols);
/* -EINVAL if a queue's workspace of `have` bytes is too small. */
int check_workspace(uint64_t have, uint64_t bytes, const char *operation);

#endif

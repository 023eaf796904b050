/*
 * operations: the list of those entries of a device's table that each device implements by a
 * function named after device and entry, such as host_rope and cuda_rope. kernels.h describes the
 * entries and has their types.
 */
#ifndef ZINF_OPERATIONS_H
#define ZINF_OPERATIONS_H

#include "kernels/kernels.h"

/* clang-format off */
#define OPERATIONS(X) \
    X(queue_create) X(queue_destroy) X(queue_set_workspace) X(queue_synchronize) X(event_create) \
    X(event_destroy) X(event_record) X(queue_wait) X(event_synchronize) X(copy) X(peer_open) \
    X(copy_from_peer) X(fill_zero) X(convert) X(add) X(matmul_workspace) X(matmul) X(norm_forward) \
    X(norm_backward) X(attention_forward) X(attention_backward) X(attention_cached) X(copy_heads) \
    X(sinks_forward) X(sinks_backward) X(distance_bias) \
    X(distance_bias_backward) X(activation_forward) X(activation_backward) X(activation_sums) \
    X(gated_forward) X(gated_backward) X(xielu_forward) X(xielu_backward) X(rope) X(dequantize) \
    X(unpack) X(widen) X(residual_add) X(residual_norm) X(dropout) X(column_sum) \
    X(embedding_forward) X(embedding_backward) X(unfold) X(unfold_backward) X(convolution_forward) \
    X(convolution_backward) X(scan_forward) X(scan_backward) X(route_forward) X(route_backward) \
    X(route_shares) X(route_balance) X(gather_rows) X(scatter_rows) X(weigh_rows) X(magnitude) \
    X(scale_columns) X(dot_columns) X(softcap) X(cross_entropy_start) X(cross_entropy_update) \
    X(cross_entropy_finish) X(cross_entropy_backward) X(squared_error) X(preference) X(noise)
/* clang-format on */

/* Declares `function` with the type of a table's entry. */
#define DECLARE_OPERATION(function, entry)                                                         \
    __typeof__(*((const struct zinf_device_ops *)0)->entry) function

#endif

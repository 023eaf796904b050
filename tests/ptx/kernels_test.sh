#!/bin/sh
# Every kernel of the compiled module against the host device.
. "$SRCDIR/tests/ptx/suite.sh"
suite "$first_with_bf16" cuda_elementwise_test cuda_rows_test cuda_update_test cuda_matmul_test \
    cuda_attention_test cuda_relative_test cuda_magnitude_test cuda_rope_test cuda_recurrent_test \
    cuda_quantized_test cuda_packed_test cuda_route_test cuda_queues_test cuda_model_test
suite 89 cuda_float8_test # PTX of an older generation, if there is no other, and the library's units
every_kernel_ran
if has_generation 75; then # no bf16, no asynchronous copies, half the product
    suite 75 cuda_elementwise_test cuda_rows_test cuda_update_test cuda_matmul_test \
        cuda_attention_test cuda_relative_test cuda_magnitude_test cuda_rope_test cuda_recurrent_test \
        cuda_quantized_test cuda_packed_test cuda_route_test
fi
finish

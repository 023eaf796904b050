/* host_rope: rotary position embedding, rows over threads. */
#include "kernels/host.h"

int host_rope(struct zinf_queue *q, const struct zinf_rope *args)
{
    int code = check_rope(args);
    if (code)
        return code;
    const uint64_t rows = (uint64_t)args->rows;
    int n_slices = host_slices(q->device, rows * (uint64_t)(args->n_heads * args->rotary_dims));
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice(rows, 1, slice, n_slices);
        for (uint64_t i = range.first; i < range.first + range.count; i++)
            q->device->simd->rope_row(args, (int64_t)i);
    }
    return 0;
}

/* host_rope: rotary position embedding, rows over threads. */
#include "kernels/host.h"

static void rope_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    simd->rope_row(args, (int64_t)row);
}

int host_rope(struct zinf_queue *q, const struct zinf_rope *args)
{
    int code = check_rope(args);
    if (code)
        return code;
    return host_each_row(q, args->rows, args->rows * args->n_heads * args->rotary_dims, rope_row,
                         args);
}

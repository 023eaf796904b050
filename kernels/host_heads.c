/* host_heads: columns of heads from one layout of rows to another, or their sum over heads. */
#include "kernels/host.h"

#include <string.h>

static void sum_row(const struct host_simd *simd, const struct zinf_heads *a, uint64_t row)
{
    float sums[ZINF_HEADS_MAX_SUM] = {0}, buffer[ZINF_HEADS_MAX_SUM];
    const size_t cols = (size_t)a->cols;
    const uint64_t to = row * (uint64_t)a->y_ld;
    for (int64_t h = 0; h < a->n_heads; h++) {
        const uint64_t at = row * (uint64_t)a->x_ld + (uint64_t)(h * a->x_step);
        const float *x = host_read(simd, buffer, a->x, a->dtype, at, cols);
        for (size_t c = 0; c < cols; c++)
            sums[c] += x[c];
    }
    float *y = host_target(buffer, a->y, a->dtype, to);
    memcpy(y, sums, cols * sizeof *y);
    host_write(simd, y, a->y, a->dtype, to, cols);
}

static void move_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_heads *a = args;
    const uint64_t width = zinf_dtype_bytes(a->dtype), bytes = (uint64_t)a->cols * width;
    if (zinf_heads_sum(a)) {
        sum_row(simd, a, row);
        return;
    }
    for (int64_t h = 0; h < a->n_heads; h++) {
        const uint64_t to = row * (uint64_t)a->y_ld + (uint64_t)(h * a->y_step);
        const uint64_t from = row * (uint64_t)a->x_ld + (uint64_t)(h * a->x_step);
        if (a->x)
            memcpy((char *)a->y + to * width, (const char *)a->x + from * width, bytes);
        else
            memset((char *)a->y + to * width, 0, bytes);
    }
}

int host_copy_heads(struct zinf_queue *q, const struct zinf_heads *args)
{
    const int64_t work = args->rows * args->n_heads * args->cols;
    int code = check_heads(args);
    return code ? code : host_each_row(q, args->rows, work, move_row, args);
}

/* host_unfold: copies each row's neighbours beside it, so that a convolution along the sequence is
 * one product; and the gradient of that. Backward collects for every row what it gets from all
 * others, so that no two threads add to one row. */
#include "kernels/host.h"

/* The row that is copied to place `shift` beside this row, or -1. */
static int64_t neighbour(const struct zinf_unfold *a, int64_t row, int64_t shift)
{
    const int64_t i = row % a->seq, other = i + shift - a->width / 2;
    if (other < 0 || other >= a->seq)
        return -1;
    const int64_t at = row - i + other;
    if (a->segments && (a->segments[row] < 1 || a->segments[row] != a->segments[at]))
        return -1;
    return at;
}

static void unfold_place(const struct zinf_unfold *a, int64_t row, int64_t shift)
{
    const int64_t from = neighbour(a, row, shift), n = a->cols, step = a->width;
    const uint64_t x = (uint64_t)(from * n), y = (uint64_t)(row * n * step + shift);
    if (a->dtype == ZINF_DTYPE_F32) {
        const float *in = (const float *)a->x + x;
        float *out = (float *)a->y + y;
        for (int64_t c = 0; c < n; c++)
            out[c * step] = from < 0 ? 0.0f : in[c];
    } else {
        const uint16_t *in = (const uint16_t *)a->x + x;
        uint16_t *out = (uint16_t *)a->y + y;
        for (int64_t c = 0; c < n; c++)
            out[c * step] = from < 0 ? 0 : in[c];
    }
}

static void unfold_row(const struct host_simd *simd, const void *args, uint64_t row)
{
    const struct zinf_unfold *a = args;
    (void)simd;
    for (int64_t shift = 0; shift < a->width; shift++)
        unfold_place(a, (int64_t)row, shift);
}

static int unfold(struct zinf_queue *q, const struct zinf_unfold *args, const char *operation,
                  host_row *do_row)
{
    int code = check_unfold(args, operation);
    if (code)
        return code;
    const int64_t rows = args->batch * args->seq;
    return host_each_row(q, rows, rows * args->cols * args->width, do_row, args);
}

int host_unfold(struct zinf_queue *q, const struct zinf_unfold *args)
{
    return unfold(q, args, "unfold", unfold_row);
}

/* dx of one row: the sum of the gradients of its copies. */
static void fold_row(const struct host_simd *simd, const void *args, uint64_t number)
{
    const struct zinf_unfold *a = args;
    const int64_t row = (int64_t)number, width = a->width, most = HOST_CHUNK / width;
    float sum[HOST_CHUNK], shown[HOST_CHUNK];
    for (int64_t c = 0; c < a->cols; c += most) {
        const int64_t n = a->cols - c < most ? a->cols - c : most;
        const uint64_t at = (uint64_t)(row * a->cols + c);
        float *to = host_target(sum, a->dx, a->dtype, at);
        if (a->beta_dx != 0.0f)
            host_read(simd, sum, a->dx, a->dtype, at, (size_t)n);
        else
            memset(to, 0, (size_t)n * sizeof *to);
        for (int64_t shift = 0; shift < width; shift++) {
            /* the row that has this one at `shift`; seen from this one it is at the mirrored
             * place */
            const int64_t by = neighbour(a, row, width - 1 - shift);
            if (by < 0)
                continue;
            const float *dy =
                host_read(simd, shown, a->dy, a->dtype, (uint64_t)((by * a->cols + c) * width),
                          (size_t)(n * width));
            for (int64_t k = 0; k < n; k++)
                to[k] += dy[k * width + shift];
        }
        host_write(simd, to, a->dx, a->dtype, at, (size_t)n);
    }
}

int host_unfold_backward(struct zinf_queue *q, const struct zinf_unfold *args)
{
    return unfold(q, args, "unfold_backward", fold_row);
}

/* host_activation: pointwise functions of the feed-forward part, plain and gated, and their
 * gradients. */
#include "kernels/host.h"

static void forward_slice(const struct host_simd *simd, enum zinf_activation kind,
                          enum zinf_dtype dtype, void *y, const void *x, struct host_range range)
{
    float buffer[HOST_CHUNK];
    for (uint64_t done = 0; done < range.count; done += HOST_CHUNK) {
        uint64_t i = range.first + done;
        size_t n = range.count - done < HOST_CHUNK ? range.count - done : HOST_CHUNK;
        const float *from = host_read(simd, buffer, x, dtype, i, n);
        float *to = host_target(buffer, y, dtype, i);
        simd->activation(kind, to, from, n);
        host_write(simd, to, y, dtype, i, n);
    }
}

int host_activation_forward(struct zinf_queue *q, enum zinf_activation kind, enum zinf_dtype dtype,
                            void *y, const void *x, uint64_t n)
{
    int code = check_activation(kind);
    if (code)
        return code;
    int n_slices = host_slices(q->device, n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        forward_slice(q->device->simd, kind, dtype, y, x,
                      host_slice(n, HOST_CHUNK, slice, n_slices));
    return 0;
}

struct gradient {
    enum zinf_activation kind;
    enum zinf_dtype dtype;
    void *dx, *y;
    const void *dy, *x;
};

static void backward_slice(const struct host_simd *simd, const struct gradient *g,
                           struct host_range range)
{
    float x_buffer[HOST_CHUNK], dy_buffer[HOST_CHUNK];
    for (uint64_t done = 0; done < range.count; done += HOST_CHUNK) {
        uint64_t i = range.first + done;
        size_t n = range.count - done < HOST_CHUNK ? range.count - done : HOST_CHUNK;
        const float *x = host_read(simd, x_buffer, g->x, g->dtype, i, n);
        const float *dy = host_read(simd, dy_buffer, g->dy, g->dtype, i, n);
        float *dx = host_target(dy_buffer, g->dx, g->dtype, i);
        float *y = g->y ? host_target(x_buffer, g->y, g->dtype, i) : NULL;
        simd->activation_gradient(g->kind, dx, y, dy, x, n);
        host_write(simd, dx, g->dx, g->dtype, i, n);
        if (y)
            host_write(simd, y, g->y, g->dtype, i, n);
    }
}

int host_activation_backward(struct zinf_queue *q, enum zinf_activation kind, enum zinf_dtype dtype,
                             void *dx, const void *dy, const void *x, void *y_out, uint64_t n)
{
    struct gradient gradient = {kind, dtype, dx, y_out, dy, x};
    int code = check_activation(kind);
    if (code)
        return code;
    int n_slices = host_slices(q->device, n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        backward_slice(q->device->simd, &gradient, host_slice(n, HOST_CHUNK, slice, n_slices));
    return 0;
}

int host_activation_sums(struct zinf_queue *q, const struct zinf_activation_sums *a)
{
    int code = check_activation_sums(a);
    if (!code)
        code = host_activation_backward(q, a->kind, a->dtype, a->dx, a->dy, a->x, a->y_out,
                                        (uint64_t)(a->rows * a->cols));
    return code ? code : host_column_sum(q, a->sums, a->dx, a->dtype, a->rows, a->cols);
}

/* ---- gated units ---- */

typedef void gated_chunk(const struct host_simd *simd, const struct zinf_gated *a, int64_t row,
                         int64_t column, size_t n);

/* The index of an element of a gate, and that of the element that the gate multiplies. */
struct gated_at {
    uint64_t gate, up;
};

static struct gated_at gated_at(const struct zinf_gated *a, int64_t row, int64_t column)
{
    const uint64_t at = (uint64_t)(row * (a->gate_ld ? a->gate_ld : 2 * a->cols) + column);
    const uint64_t apart = (uint64_t)(row * a->cols + column);
    return (struct gated_at){at, a->gate_ld ? apart : at + (uint64_t)a->cols};
}

static void forward_chunk(const struct host_simd *simd, const struct zinf_gated *a, int64_t row,
                          int64_t column, size_t n)
{
    float gate_buffer[HOST_CHUNK], up_buffer[HOST_CHUNK];
    const struct gated_at at = gated_at(a, row, column);
    uint64_t y_at = (uint64_t)(row * a->cols + column);
    const float *gate = host_read(simd, gate_buffer, a->x, a->dtype, at.gate, n);
    const float *up = host_read(simd, up_buffer, a->gate_ld ? a->up : a->x, a->dtype, at.up, n);
    float *y = host_target(gate_buffer, a->y, a->dtype, y_at);
    simd->gated(a->kind, y, gate, up, n);
    host_write(simd, y, a->y, a->dtype, y_at, n);
}

static void backward_chunk(const struct host_simd *simd, const struct zinf_gated *a, int64_t row,
                           int64_t column, size_t n)
{
    float gate_buffer[HOST_CHUNK], up_buffer[HOST_CHUNK], dy_buffer[HOST_CHUNK];
    const struct gated_at at = gated_at(a, row, column);
    const void *up = a->gate_ld ? a->up : a->x;
    void *d_up = a->gate_ld ? a->d_up : a->dx;
    uint64_t y_at = (uint64_t)(row * a->cols + column);
    struct host_gated units = {
        .gate = host_read(simd, gate_buffer, a->x, a->dtype, at.gate, n),
        .up = host_read(simd, up_buffer, up, a->dtype, at.up, n),
        .dy = host_read(simd, dy_buffer, a->dy, a->dtype, y_at, n),
        .d_gate = host_target(gate_buffer, a->dx, a->dtype, at.gate),
        .d_up = host_target(up_buffer, d_up, a->dtype, at.up),
        .y = a->y_out ? host_target(dy_buffer, a->y_out, a->dtype, y_at) : dy_buffer,
    };
    simd->gated_gradient(a->kind, &units, n);
    host_write(simd, units.d_gate, a->dx, a->dtype, at.gate, n);
    host_write(simd, units.d_up, d_up, a->dtype, at.up, n);
    if (a->y_out)
        host_write(simd, units.y, a->y_out, a->dtype, y_at, n);
}

static int run_gated(struct zinf_queue *q, const struct zinf_gated *args, gated_chunk *run,
                     const char *operation)
{
    int code = check_gated(args, operation);
    if (code)
        return code;
    int n_slices = host_slices(q->device, (uint64_t)args->rows * (uint64_t)args->cols);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice((uint64_t)args->rows, 1, slice, n_slices);
        for (uint64_t i = range.first; i < range.first + range.count; i++)
            for (int64_t c = 0; c < args->cols; c += HOST_CHUNK) {
                int64_t left = args->cols - c;
                run(q->device->simd, args, (int64_t)i, c,
                    left < HOST_CHUNK ? (size_t)left : (size_t)HOST_CHUNK);
            }
    }
    return 0;
}

int host_gated_forward(struct zinf_queue *q, const struct zinf_gated *args)
{
    return run_gated(q, args, forward_chunk, "gated_forward");
}

int host_gated_backward(struct zinf_queue *q, const struct zinf_gated *args)
{
    return run_gated(q, args, backward_chunk, "gated_backward");
}

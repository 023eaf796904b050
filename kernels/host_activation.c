/* host_activation: pointwise functions of the feed-forward part and their gradients. */
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

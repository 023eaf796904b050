/* host_elementwise: copies, conversion, sums and dropout over flat arrays, column sums, rotary
 * positions and noise. */
#include "kernels/host.h"

#include "base/random.h"

/* ---- rotation ---- */

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

/* ---- noise: uniform, by counter, on a tensor such as embedded tokens ---- */

enum { BLOCK = 4 }; /* random numbers of one counter */

/* u: random numbers of n elements from `element` on. */
static void make_noise(float *u, const struct zinf_dropout *random, uint64_t element, size_t n)
{
    uint64_t have = UINT64_MAX;
    uint32_t words[BLOCK];
    for (size_t i = 0; i < n; i++) {
        const uint64_t block = (element + i) / BLOCK;
        const uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), random->step,
                                     random->site};
        if (block != have)
            zinf_philox(counter, random->seed, words);
        have = block;
        u[i] = 2.0f * zinf_uniform(words[(element + i) % BLOCK]) - 1.0f;
    }
}

static void noise_slice(const struct host_simd *simd, const struct zinf_noise *a,
                        struct host_range range)
{
    float buffer[HOST_CHUNK], u[HOST_CHUNK];
    for (uint64_t done = 0; done < range.count; done += HOST_CHUNK) {
        uint64_t i = range.first + done;
        size_t n = range.count - done < HOST_CHUNK ? range.count - done : HOST_CHUNK;
        const float *x = host_read(simd, buffer, a->x, a->dtype, i, n);
        float *y = host_target(buffer, a->x, a->dtype, i);
        make_noise(u, &a->random, a->random.element_first + i, n);
        for (size_t k = 0; k < n; k++)
            y[k] = x[k] + a->magnitude * u[k];
        host_write(simd, y, a->x, a->dtype, i, n);
    }
}

int host_noise(struct zinf_queue *q, const struct zinf_noise *args)
{
    int code = check_noise(args);
    if (code)
        return code;
    int n_slices = host_slices(q->device, (uint64_t)args->n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        noise_slice(q->device->simd, args,
                    host_slice((uint64_t)args->n, HOST_CHUNK, slice, n_slices));
    return 0;
}

/* ---- bytes ---- */

int host_copy(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes)
{
    int n_slices = host_slices(q->device, bytes / 16);
    if (dst == src)
        return 0;
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice(bytes, 4096, slice, n_slices);
        memcpy((char *)dst + range.first, (const char *)src + range.first, range.count);
    }
    return 0;
}

/* All devices of this kind use the same memory. */
int host_peer_open(struct zinf_device *device, struct zinf_device *peer)
{
    (void)device;
    (void)peer;
    return 0;
}

int host_copy_from_peer(struct zinf_queue *q, void *dst, struct zinf_device *peer, const void *src,
                        uint64_t bytes)
{
    (void)peer;
    return host_copy(q, dst, src, bytes);
}

int host_fill_zero(struct zinf_queue *q, void *dst, uint64_t bytes)
{
    /* dst may be NULL if bytes is 0. */
    int n_slices = bytes ? host_slices(q->device, bytes / 16) : 0;
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice(bytes, 4096, slice, n_slices);
        memset((char *)dst + range.first, 0, range.count);
    }
    return 0;
}

/* ---- numbers ---- */

static void convert_slice(const struct host_simd *simd, void *dst, enum zinf_dtype dst_dtype,
                          const void *src, enum zinf_dtype src_dtype, struct host_range range)
{
    float buffer[HOST_CHUNK];
    for (uint64_t done = 0; done < range.count; done += HOST_CHUNK) {
        uint64_t i = range.first + done;
        size_t n = range.count - done < HOST_CHUNK ? range.count - done : HOST_CHUNK;
        const float *from = host_read(simd, buffer, src, src_dtype, i, n);
        simd->from_f32((char *)dst + i * zinf_dtype_bytes(dst_dtype), dst_dtype, from, n);
    }
}

int host_convert(struct zinf_queue *q, void *dst, enum zinf_dtype dst_dtype, const void *src,
                 enum zinf_dtype src_dtype, uint64_t n)
{
    if (dst_dtype == src_dtype)
        return host_copy(q, dst, src, n * zinf_dtype_bytes(src_dtype));
    int n_slices = host_slices(q->device, n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        convert_slice(q->device->simd, dst, dst_dtype, src, src_dtype,
                      host_slice(n, HOST_CHUNK, slice, n_slices));
    return 0;
}

int host_add(struct zinf_queue *q, float *dst, const float *src, uint64_t n)
{
    int n_slices = host_slices(q->device, n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++) {
        struct host_range range = host_slice(n, HOST_CHUNK, slice, n_slices);
        q->device->simd->add(dst + range.first, src + range.first, range.count);
    }
    return 0;
}

/* ---- residual and dropout ---- */

/* y = x + factors * r over one slice, or factors * r if x is NULL (dropout alone). */
static void residual_slice(const struct host_simd *simd, const struct zinf_residual *a,
                           const void *x, struct host_range range)
{
    float x_buffer[HOST_CHUNK], r_buffer[HOST_CHUNK], factors[HOST_CHUNK];
    const float scale = zinf_residual_scale(a);
    for (int k = 0; k < HOST_CHUNK; k++)
        factors[k] = scale; /* with dropout they are made anew below */
    for (uint64_t done = 0; done < range.count; done += HOST_CHUNK) {
        uint64_t i = range.first + done;
        size_t n = range.count - done < HOST_CHUNK ? range.count - done : HOST_CHUNK;
        const float *r = host_read(simd, r_buffer, a->r, a->dtype, i, n);
        float *y = host_target(r_buffer, a->y, a->dtype, i);
        if (a->dropout.p > 0.0f) {
            simd->dropout_factors(factors, &a->dropout, a->dropout.element_first + i, n);
            for (size_t k = 0; scale != 1.0f && k < n; k++)
                factors[k] *= scale;
        }
        if (x)
            simd->multiply_add(y, host_read(simd, x_buffer, x, a->dtype, i, n), r, factors, n);
        else
            simd->multiply(y, r, factors, n);
        host_write(simd, y, a->y, a->dtype, i, n);
    }
}

static int residual(struct zinf_queue *q, const struct zinf_residual *args, const void *x,
                    const char *operation)
{
    int code = check_residual(args, operation);
    if (code)
        return code;
    int n_slices = host_slices(q->device, (uint64_t)args->n);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        residual_slice(q->device->simd, args, x,
                       host_slice((uint64_t)args->n, HOST_CHUNK, slice, n_slices));
    return 0;
}

int host_residual_add(struct zinf_queue *q, const struct zinf_residual *args)
{
    return residual(q, args, args->x, "residual_add");
}

int host_dropout(struct zinf_queue *q, const struct zinf_residual *args)
{
    if (args->dropout.p == 0.0f && zinf_residual_scale(args) == 1.0f && args->n >= 0)
        return host_copy(q, args->y, args->r, (uint64_t)args->n * zinf_dtype_bytes(args->dtype));
    return residual(q, args, NULL, "dropout");
}

/* ---- column sums ---- */

enum { ROW_GROUP = 64 };

struct column_sum {
    float *sum;
    const void *x;
    enum zinf_dtype dtype;
    int64_t rows, cols;
};

/* Adds up groups of rows and then the groups' sums, so that the rounding error grows with the
 * square root of the number of rows. */
static void sum_columns(const struct host_simd *simd, const void *args, struct host_range columns)
{
    const struct column_sum *a = args;
    float buffer[HOST_COLUMNS], group[HOST_COLUMNS], *sum = a->sum + columns.first;
    memset(sum, 0, columns.count * sizeof *sum);
    for (int64_t row = 0; row < a->rows; row += ROW_GROUP) {
        int64_t end = a->rows - row < ROW_GROUP ? a->rows : row + ROW_GROUP;
        memset(group, 0, sizeof group);
        for (int64_t i = row; i < end; i++)
            simd->add(group,
                      host_read(simd, buffer, a->x, a->dtype,
                                (uint64_t)(i * a->cols) + columns.first, columns.count),
                      columns.count);
        simd->add(sum, group, columns.count);
    }
}

uint64_t host_column_sum_workspace(struct zinf_device *device, int64_t rows, int64_t cols)
{
    (void)device;
    (void)rows;
    (void)cols;
    return 0;
}

int host_column_sum(struct zinf_queue *q, float *sum, const void *x, enum zinf_dtype dtype,
                    int64_t rows, int64_t cols)
{
    const struct column_sum args = {sum, x, dtype, rows, cols};
    int code = check_column_sum(rows, cols);
    return code ? code : host_each_columns(q, cols, rows * cols, sum_columns, &args);
}

/* host_embedding: table rows by token id. The gradient is cut by columns, so that every thread
 * adds the rows in order of i and repeated ids are no race. */
#include "kernels/host.h"

/* The table's row for an id, or -1 if this part of the table does not hold it. */
static int64_t table_row(const struct zinf_embedding *a, int64_t i)
{
    int64_t row = (int64_t)a->ids[i] - a->first;
    return row >= 0 && row < a->count ? row : -1;
}

/* x[to] = (accumulate ? x[to] : 0) + scale table[from] */
static void add_row(const struct host_simd *simd, const struct zinf_embedding *a, int64_t to,
                    int64_t from)
{
    float x[HOST_CHUNK], table[HOST_CHUNK];
    for (int64_t c = 0; c < a->cols; c += HOST_CHUNK) {
        size_t n = a->cols - c < HOST_CHUNK ? (size_t)(a->cols - c) : HOST_CHUNK;
        uint64_t at = (uint64_t)(to * a->cols + c);
        float *sum = host_target(x, a->x, a->dtype, at);
        if (a->accumulate)
            host_read(simd, x, a->x, a->dtype, at, n);
        else
            memset(sum, 0, n * sizeof *sum);
        simd->add_scaled(
            sum, host_read(simd, table, a->table, a->dtype, (uint64_t)(from * a->cols + c), n),
            embedding_scale(a), n);
        host_write(simd, sum, a->x, a->dtype, at, n);
    }
}

static void forward_slice(const struct host_simd *simd, const struct zinf_embedding *a,
                          struct host_range range)
{
    size_t row_bytes = (size_t)a->cols * zinf_dtype_bytes(a->dtype);
    for (uint64_t k = 0; k < range.count; k++) {
        int64_t i = (int64_t)(range.first + k), row = table_row(a, i);
        if (row < 0)
            continue;
        if (a->accumulate || embedding_scale(a) != 1.0f)
            add_row(simd, a, i, row);
        else
            memcpy((char *)a->x + (size_t)i * row_bytes,
                   (const char *)a->table + (size_t)row * row_bytes, row_bytes);
    }
}

int host_embedding_forward(struct zinf_queue *q, const struct zinf_embedding *args)
{
    int code = check_embedding(args, "embedding_forward");
    if (code)
        return code;
    int n_slices = host_slices(q->device, (uint64_t)args->rows * (uint64_t)args->cols);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        forward_slice(q->device->simd, args, host_slice((uint64_t)args->rows, 1, slice, n_slices));
    return 0;
}

static void backward_columns(const struct host_simd *simd, const struct zinf_embedding *a,
                             struct host_range columns)
{
    float buffer[HOST_CHUNK];
    for (int64_t i = 0; i < a->rows; i++) {
        int64_t row = table_row(a, i);
        if (row < 0)
            continue;
        for (uint64_t done = 0; done < columns.count; done += HOST_CHUNK) {
            uint64_t c = columns.first + done, cols = (uint64_t)a->cols;
            size_t n = columns.count - done < HOST_CHUNK ? columns.count - done : HOST_CHUNK;
            simd->add_scaled(a->d_table + (uint64_t)row * cols + c,
                             host_read(simd, buffer, a->dx, a->dtype, (uint64_t)i * cols + c, n),
                             embedding_scale(a), n);
        }
    }
}

int host_embedding_backward(struct zinf_queue *q, const struct zinf_embedding *args)
{
    int code = check_embedding(args, "embedding_backward");
    if (code)
        return code;
    int n_slices = host_slices(q->device, (uint64_t)args->rows * (uint64_t)args->cols);
#pragma omp parallel for num_threads(n_slices) schedule(static)
    for (int slice = 0; slice < n_slices; slice++)
        backward_columns(q->device->simd, args,
                         host_slice((uint64_t)args->cols, 16, slice, n_slices));
    return 0;
}

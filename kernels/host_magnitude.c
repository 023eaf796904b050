/*
 * host_magnitude: rows of weights by their norms, columns of results by what scales them. Every sum
 * is over one row or one column in an order that its length alone decides, so that threads change
 * no bit.
 */
#include "kernels/check.h"
#include "kernels/host.h"

#include <math.h>

enum { ROW_GROUP = 64 };

/* ---- norms ---- */

static double row_squares(const struct host_simd *simd, const struct zinf_magnitude *a, uint64_t i)
{
    float buffer[HOST_CHUNK];
    uint64_t cols = (uint64_t)a->cols;
    double sum = 0;
    for (uint64_t c = 0; c < cols; c += HOST_CHUNK) {
        size_t n = cols - c < HOST_CHUNK ? (size_t)(cols - c) : HOST_CHUNK;
        const float *w = host_read(simd, buffer, a->w, a->dtype, i * cols + c, n);
        sum += (double)simd->sum_squares(w, 0, n);
    }
    return sum;
}

static float element(const struct host_simd *simd, const void *array, enum zinf_dtype dtype,
                     uint64_t at)
{
    float value;
    return *host_read(simd, &value, array, dtype, at, 1);
}

/* What the adapter adds to the square of a row's norm. */
static double added_squares(const struct host_simd *simd, const struct zinf_magnitude *a,
                            uint64_t i)
{
    uint64_t rank = (uint64_t)a->rank;
    double sum = 0;
    for (uint64_t k = 0; k < rank; k++) {
        double part = 0;
        for (uint64_t m = 0; m < rank; m++)
            part +=
                (double)element(simd, a->b, a->dtype, i * rank + m) * (double)a->a_a[m * rank + k];
        part = 2 * (double)a->w_a[i * rank + k] + (double)a->scale * part;
        sum += (double)element(simd, a->b, a->dtype, i * rank + k) * part;
    }
    return (double)a->scale * sum;
}

static void magnitude_row(const struct host_simd *simd, const void *args, uint64_t i)
{
    const struct zinf_magnitude *a = args;
    a->norm[i] = a->gain[i] = 1;
    if (!a->w)
        return;
    double squares = row_squares(simd, a, i) + added_squares(simd, a, i);
    a->norm[i] = (float)sqrt(squares > 0 ? squares : 0);
    /* a row of zeros has no direction, so its gain is 0 */
    a->gain[i] = a->norm[i] > 0 ? element(simd, a->magnitude, a->dtype, i) / a->norm[i] : 0;
}

int host_magnitude(struct zinf_queue *q, const struct zinf_magnitude *args)
{
    int code = check_magnitude(args);
    return code ? code : host_each_row(q, args->rows, args->rows * args->cols, magnitude_row, args);
}

/* ---- columns ---- */

static void scale_row(const struct host_simd *simd, const void *args, uint64_t i)
{
    const struct zinf_column_scale *a = args;
    float x_buffer[HOST_CHUNK], bias_buffer[HOST_CHUNK];
    uint64_t cols = (uint64_t)a->cols;
    for (uint64_t c = 0; c < cols; c += HOST_CHUNK) {
        size_t n = cols - c < HOST_CHUNK ? (size_t)(cols - c) : HOST_CHUNK;
        uint64_t at = i * cols + c;
        const float *x = host_read(simd, x_buffer, a->x, a->dtype, at, n);
        float *y = host_target(x_buffer, a->y, a->dtype, at);
        if (a->bias)
            simd->multiply_add(y, host_read(simd, bias_buffer, a->bias, a->dtype, c, n), x,
                               a->gain + c, n);
        else
            simd->multiply(y, x, a->gain + c, n);
        host_write(simd, y, a->y, a->dtype, at, n);
    }
}

int host_scale_columns(struct zinf_queue *q, const struct zinf_column_scale *args)
{
    int code = check_column_scale(args);
    return code ? code : host_each_row(q, args->rows, args->rows * args->cols, scale_row, args);
}

/* Adds up groups of rows and then the groups' sums, as column_sum does. */
static void dot(const struct host_simd *simd, const void *args, struct host_range columns)
{
    const struct zinf_column_dot *a = args;
    float x_buffer[HOST_COLUMNS], y_buffer[HOST_COLUMNS], group[HOST_COLUMNS];
    float *sum = a->sum + columns.first;
    memset(sum, 0, columns.count * sizeof *sum);
    for (int64_t row = 0; row < a->rows; row += ROW_GROUP) {
        int64_t end = a->rows - row < ROW_GROUP ? a->rows : row + ROW_GROUP;
        memset(group, 0, sizeof group);
        for (int64_t i = row; i < end; i++) {
            uint64_t at = (uint64_t)(i * a->ld) + columns.first;
            const float *x = host_read(simd, x_buffer, a->x, a->dtype, at, columns.count);
            const float *y = host_read(simd, y_buffer, a->y, a->dtype, at, columns.count);
            simd->multiply_add(group, group, x, y, columns.count);
        }
        simd->add(sum, group, columns.count);
    }
    for (uint64_t j = 0; j < columns.count; j++)
        sum[j] = a->norm[columns.first + j] > 0 ? sum[j] / a->norm[columns.first + j] : 0;
}

int host_dot_columns(struct zinf_queue *q, const struct zinf_column_dot *args)
{
    int code = check_column_dot(args);
    return code ? code : host_each_columns(q, args->cols, args->rows * args->cols, dot, args);
}

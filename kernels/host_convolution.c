/* host_convolution: a short convolution of every column along the sequence, and its gradients. A
 * thread has some columns of all rows, and adds up the gradient of their weights row by row. Rows
 * in front of a piece of a sequence have negative numbers. */
#include "kernels/host.h"

enum { MOST = ZINF_CONVOLUTION_MAX_WIDTH };

/* Some columns: their weights by place in the window, and gradients as far as they are summed. */
struct strip {
    const struct host_simd *simd;
    const struct zinf_convolution *a;
    uint64_t first;
    size_t n;
    float w[MOST][HOST_COLUMNS], b[HOST_COLUMNS];
    float dw[MOST][HOST_COLUMNS], db[HOST_COLUMNS];
    float dx[MOST][HOST_COLUMNS]; /* of the rows that later rows still add to, see at_ring */
    float zeros[HOST_COLUMNS];
};

static void begin_strip(struct strip *s, const struct host_simd *simd,
                        const struct zinf_convolution *a, struct host_range columns)
{
    float weights[MOST * HOST_COLUMNS];
    const size_t n = (size_t)columns.count, width = (size_t)a->width;
    memset(s, 0, sizeof *s);
    s->simd = simd;
    s->a = a;
    s->first = columns.first;
    s->n = n;
    const float *w = host_read(simd, weights, a->w, a->dtype, columns.first * width, n * width);
    for (size_t t = 0; t < width; t++)
        for (size_t c = 0; c < n; c++)
            s->w[t][c] = w[c * width + t];
    if (a->b)
        memcpy(s->b, host_read(simd, weights, a->b, a->dtype, columns.first, n), n * sizeof *s->b);
}

/* How many rows before this one are in its window: at most width - 1, and only those of its
 * document. -1: the row is padding. */
static int64_t rows_before(const struct zinf_convolution *a, int64_t row)
{
    const int32_t *segment = a->segments ? a->segments + row : NULL;
    const int64_t there = row % a->seq + (a->ends ? a->ends->rows : 0);
    int64_t n = there < a->width - 1 ? there : a->width - 1, same = 0;
    if (!segment)
        return n;
    if (*segment < 1)
        return -1;
    while (same < n && segment[-1 - same] == *segment)
        same++;
    return same;
}

/* The index of the strip's first column in a row of the ends' states. */
static uint64_t end_at(const struct strip *s, int64_t row)
{
    return (uint64_t)(row * s->a->cols) + s->first;
}

static const float *read_x(const struct strip *s, float *buffer, int64_t row)
{
    const struct zinf_convolution *a = s->a;
    if (row < 0)
        return host_read(s->simd, buffer, a->ends->before, a->dtype, end_at(s, row + a->width - 1),
                         s->n);
    return host_read(s->simd, buffer, a->x, a->dtype, (uint64_t)(row * a->ld) + s->first, s->n);
}

/* Writes the convolution of a row, which is the activation's argument, to sum. */
static void convolve(const struct strip *s, int64_t row, int64_t before, float *sum)
{
    float buffer[HOST_COLUMNS];
    memcpy(sum, s->b, s->n * sizeof *sum);
    for (int64_t back = before; back >= 0; back--)
        s->simd->multiply_add(sum, sum, s->w[s->a->width - 1 - back], read_x(s, buffer, row - back),
                              s->n);
}

static void write_y(const struct strip *s, int64_t row, float *sum)
{
    const struct zinf_convolution *a = s->a;
    const uint64_t at = (uint64_t)(row * a->cols) + s->first;
    if (a->silu)
        s->simd->activation(ZINF_ACTIVATION_SILU, sum, sum, s->n);
    s->simd->from_f32((char *)a->y + at * zinf_dtype_bytes(a->dtype), a->dtype, sum, s->n);
}

/* Copies the last rows of x to the state that the next piece of the sequence begins with. */
static void leave_rows(const struct strip *s)
{
    const struct zinf_convolution *a = s->a;
    float buffer[HOST_COLUMNS];
    for (int64_t t = 0; t < a->width - 1; t++) {
        const int64_t row = a->seq - (a->width - 1) + t;
        const bool there = row >= 0 || a->ends->rows;
        s->simd->from_f32((char *)a->ends->behind + end_at(s, t) * zinf_dtype_bytes(a->dtype),
                          a->dtype, there ? read_x(s, buffer, row) : s->zeros, s->n);
    }
}

static void forward_columns(const struct host_simd *simd, const void *args,
                            struct host_range columns)
{
    const struct zinf_convolution *a = args;
    struct strip s;
    float sum[HOST_COLUMNS];
    begin_strip(&s, simd, a, columns);
    for (int64_t row = 0; row < a->batch * a->seq; row++) {
        const int64_t before = rows_before(a, row);
        if (before < 0)
            simd->from_f32((char *)a->y +
                               ((uint64_t)(row * a->cols) + s.first) * zinf_dtype_bytes(a->dtype),
                           a->dtype, s.zeros, s.n);
        if (before < 0)
            continue;
        convolve(&s, row, before, sum);
        write_y(&s, row, sum);
    }
    if (a->ends && a->ends->behind)
        leave_rows(&s);
}

/* Appends a row of a continued sequence to its state, which drops its first row. */
static void continue_row(const struct strip *s, int64_t row)
{
    const struct zinf_convolution *a = s->a;
    const struct zinf_remembered *m = a->remembered;
    const uint64_t width = zinf_dtype_bytes(a->dtype), bytes = s->n * width;
    char *state = (char *)m->state + (uint64_t)m->sequences[row] * m->bytes + s->first * width;
    const char *x = host_at(a->x, a->dtype, (uint64_t)(row * a->ld) + s->first);
    const uint64_t step = (uint64_t)a->cols * width;
    float sum[HOST_COLUMNS], buffer[HOST_COLUMNS];
    memcpy(sum, s->b, s->n * sizeof *sum);
    for (int64_t t = 0; t < a->width; t++) {
        char *at = state + (uint64_t)t * step;
        const bool last = t == a->width - 1;
        if (!last && m->positions[row] == 0)
            memset(at, 0, bytes);
        const float *shown = host_read(s->simd, buffer, last ? x : at, a->dtype, 0, s->n);
        s->simd->multiply_add(sum, sum, s->w[t], shown, s->n);
        if (t)
            memcpy(at - step, last ? x : at, bytes);
    }
    write_y(s, row, sum);
}

static void continue_columns(const struct host_simd *simd, const void *args,
                             struct host_range columns)
{
    const struct zinf_convolution *a = args;
    struct strip s;
    begin_strip(&s, simd, a, columns);
    for (int64_t row = 0; row < a->seq; row++)
        continue_row(&s, row);
}

int host_convolution_forward(struct zinf_queue *q, const struct zinf_convolution *args)
{
    int code = check_convolution(args, false);
    if (code)
        return code;
    return host_each_columns(q, args->cols, args->batch * args->seq * args->cols * args->width,
                             args->remembered ? continue_columns : forward_columns, args);
}

/* ---- backward ---- */

static float *at_ring(struct strip *s, int64_t row)
{
    return s->dx[(row + MOST) % MOST];
}

/* Writes the gradient of a row of x, to which no later row adds any more, from the ring to dx. */
static void write_dx(struct strip *s, int64_t row)
{
    const struct zinf_convolution *a = s->a;
    const struct zinf_ends *ends = a->ends;
    const int64_t in_behind = row - a->seq + a->width - 1;
    float *sum = at_ring(s, row);
    const uint64_t at = (uint64_t)(row * a->ld) + s->first;
    if (ends && ends->d_behind && in_behind >= 0)
        s->simd->add(sum, ends->d_behind + end_at(s, in_behind), s->n);
    if (row >= 0)
        s->simd->from_f32((char *)a->dx + at * zinf_dtype_bytes(a->dtype), a->dtype, sum, s->n);
    else
        memcpy(ends->d_before + end_at(s, row + a->width - 1), sum, s->n * sizeof *sum);
    memset(sum, 0, s->n * sizeof *sum);
}

static void backward_row(struct strip *s, int64_t row, int64_t before)
{
    const struct zinf_convolution *a = s->a;
    float sum[HOST_COLUMNS], d[HOST_COLUMNS], buffer[HOST_COLUMNS];
    const float *dy =
        host_read(s->simd, d, a->dy, a->dtype, (uint64_t)(row * a->cols) + s->first, s->n);
    if (a->silu) {
        convolve(s, row, before, sum);
        s->simd->activation_gradient(ZINF_ACTIVATION_SILU, d, NULL, dy, sum, s->n);
        dy = d;
    }
    s->simd->add(s->db, dy, s->n);
    for (int64_t back = before; back >= 0; back--) {
        const int64_t t = a->width - 1 - back;
        float *dx = at_ring(s, row - back);
        s->simd->multiply_add(dx, dx, s->w[t], dy, s->n);
        s->simd->multiply_add(s->dw[t], s->dw[t], read_x(s, buffer, row - back), dy, s->n);
    }
}

static void backward_columns(const struct host_simd *simd, const void *args,
                             struct host_range columns)
{
    const struct zinf_convolution *a = args;
    const int64_t rows = a->batch * a->seq, width = a->width;
    const int64_t first = a->ends && a->ends->rows ? 1 - width : 0;
    struct strip s;
    begin_strip(&s, simd, a, columns);
    for (int64_t row = 0; row < rows + width - 1; row++) {
        const int64_t before = row < rows ? rows_before(a, row) : -1;
        if (before >= 0)
            backward_row(&s, row, before);
        if (row - width + 1 >= first)
            write_dx(&s, row - width + 1);
    }
    for (size_t c = 0; a->dw && c < s.n; c++)
        for (int64_t t = 0; t < width; t++)
            a->dw[(int64_t)(s.first + c) * width + t] = s.dw[t][c];
    if (a->db)
        memcpy(a->db + s.first, s.db, s.n * sizeof *s.db);
}

int host_convolution_backward(struct zinf_queue *q, const struct zinf_convolution *args)
{
    int code = check_convolution(args, true);
    if (code)
        return code;
    return host_each_columns(q, args->cols, args->batch * args->seq * args->cols * args->width,
                             backward_columns, args);
}

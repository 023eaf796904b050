/*
 * scan: what the kernels of a recurrent mixer's scan share: the arrays of one chunk of a head in
 * scratch of the block, which all of its threads work on, and products of them. The formulas are
 * those of kernels/host_scan_loops.h; here a state is [key][value], and columns of the values are
 * cut into slices, each of which goes through the chunks by itself.
 */
#ifndef ZINF_CUDA_SCAN_CUH
#define ZINF_CUDA_SCAN_CUH

#include "kernels/cuda/kernel.cuh"
#include "kernels/cuda/workspace.h"

enum { SCAN_THREADS = 256, SCAN_TILE = 4, CHUNK = ZINF_SCAN_CHUNK, SOLVE_ROWS = 16 };

template <class T> struct scan_args {
    const T *q, *k, *v, *a, *b, *a_log, *step_bias, *skip, *dy;
    T *y, *dq, *dk, *dv, *da, *db;
    const int32_t *segments, *sequences, *positions;
    unsigned char *state;
    uint64_t state_bytes, scratch_floats;
    float *d_a_log, *d_step_bias, *d_skip, *scratch;
    zinf_scan_arrays with;
    int64_t rows, seq, ld, gate_ld, key_heads, value_heads, key, value, slots, slices, items;
    float low, high, most; /* most: what s of DELTA is below */
    bool delta, backward;
    /* The ends of a piece of a sequence: [value_heads][key][value] each. */
    bool ends;
    int64_t ends_rows;
    const float *ends_before, *ends_d_behind;
    float *ends_behind, *ends_d_before;
    zinf_scan_open open, left; /* in forward: chunks that the front and the end of the piece cut */
};

/* How many columns the rows of an array have, at most ZINF_SCAN_MAX_DIM, and what divides by that:
 * element e, up to 2^17, is in row e n^-1, rounded down. (The inverse is 2^31 / n rounded up, by
 * less than 1. So 2 e times it is off by less than 2 e, which for a quotient is less than 1 / n.)
 */
struct scan_columns {
    int n;
    uint32_t inverse;
};
DEVICE scan_columns scan_columns_of(int n)
{
    const scan_columns columns = {n, (0x80000000u + (uint32_t)n - 1) / (uint32_t)n};
    return columns;
}
DEVICE int scan_row_of(const scan_columns &columns, int e)
{
    return (int)multiply_high(2 * (uint32_t)e, columns.inverse);
}

/* Rows [first, first + n), of one document; columns [column, column + value) of the head's. */
struct scan_tile {
    float *q, *k, *dq, *dk;                    /* [CHUNK][key] */
    float *v, *w, *dy, *dw;                    /* [CHUNK][value] */
    float *rows;                               /* [CHUNK][either] */
    float *state, *d_state;                    /* [key][value] */
    float *pairs, *scores, *d_pairs, *changes; /* [CHUNK][CHUNK] */
    /* [CHUNK]: the sums of g, s, their gradients, exp(sum), exp(last - sum), inverse lengths. The
     * gradient of a sum is added up of terms that nearly cancel, so in double. */
    double *d_sum;
    float *sum, *strength, *d_strength, *before, *after, *q_inverse, *k_inverse;
    int64_t first;
    scan_columns key, value;
    int column, n, open; /* open: the first of them that are of the piece in front */
    bool carried, continues;
};

DEVICE scan_tile scan_tile_at(float *at, int key, int value, int column)
{
    const int most = key > value ? key : value;
    scan_tile t;
    t.d_sum = (double *)(void *)at; /* first, where it is aligned */
    t.q = at + 2 * CHUNK;
    t.k = t.q + CHUNK * key;
    t.dq = t.k + CHUNK * key;
    t.dk = t.dq + CHUNK * key;
    t.v = t.dk + CHUNK * key;
    t.w = t.v + CHUNK * value;
    t.dy = t.w + CHUNK * value;
    t.dw = t.dy + CHUNK * value;
    t.rows = t.dw + CHUNK * value;
    t.state = t.rows + CHUNK * most;
    t.d_state = t.state + key * value;
    t.pairs = t.d_state + key * value;
    t.scores = t.pairs + CHUNK * CHUNK;
    t.d_pairs = t.scores + CHUNK * CHUNK;
    t.changes = t.d_pairs + CHUNK * CHUNK;
    t.sum = t.changes + CHUNK * CHUNK;
    t.strength = t.sum + CHUNK;
    t.d_strength = t.strength + CHUNK;
    t.before = t.d_strength + CHUNK;
    t.after = t.before + CHUNK;
    t.q_inverse = t.after + CHUNK;
    t.k_inverse = t.q_inverse + CHUNK;
    t.first = 0;
    t.key = scan_columns_of(key);
    t.value = scan_columns_of(value);
    t.column = column;
    t.n = t.open = 0;
    t.carried = t.continues = false;
    return t;
}

/* ---- documents ---- */

/* Of a row and the one in front of it, within a sample. */
template <class T> DEVICE bool scan_one_document(const scan_args<T> &a, int64_t row)
{
    return !a.segments || a.segments[row] == a.segments[row - 1];
}
template <class T> DEVICE bool scan_joined(const scan_args<T> &a, int64_t row)
{
    return (row % a.seq || a.ends_rows) && scan_one_document(a, row);
}

/* Whether the state behind the rows up to `end` is of use. */
template <class T> DEVICE bool scan_continues(const scan_args<T> &a, int64_t end)
{
    if (end % a.seq)
        return scan_joined(a, end);
    if (!a.backward)
        return a.ends_behind != NULL;
    return a.ends_d_behind && (!a.segments || a.segments[end] == a.segments[end - 1]);
}

template <class T> DEVICE bool scan_padding(const scan_args<T> &a, int64_t row)
{
    return a.segments && a.segments[row] < 1;
}

/* The chunk with `open` rows of the piece in front and that row behind them. */
template <class T>
DEVICE void scan_chunk_at(const scan_args<T> &a, scan_tile &t, int64_t row, int open)
{
    const int64_t end = (row / a.seq + 1) * a.seq;
    t.first = row - open;
    t.open = open;
    t.n = open + 1;
    while (t.n < CHUNK && t.first + t.n < end && scan_one_document(a, t.first + t.n))
        t.n++;
    t.carried = open ? a.open.count[1] > 0.0f : scan_joined(a, row);
    t.continues = scan_continues(a, t.first + t.n);
}

/* The state in front of the chunk that begins with a row, or its gradient: [key][value]. With ends
 * there is one of the row behind the last, too. */
template <class T>
DEVICE float *scan_slot(const scan_args<T> &a, float *states, int64_t head, int64_t row)
{
    const int64_t sample = a.ends ? 0 : row / a.seq, own = row - sample * a.seq;
    const int64_t slot = !a.ends ? own / CHUNK - 1 : own == a.seq ? a.slots - 1 : own / CHUNK;
    return states + ((sample * a.value_heads + head) * a.slots + slot) * a.key * a.value;
}

/* ---- what all threads of a block do together; a barrier ends each ---- */

/* c[rows][cols] (+)= a b, whose elements are at (i, k) and (k, j) by these strides. */
struct scan_product {
    float *c;
    const float *a, *b;
    int c_ld, a_row, a_depth, b_depth, b_col, rows, cols, depth;
    bool add;
};

DEVICE void scan_multiply_tile(const scan_product &p, int row, int col)
{
    float sum[SCAN_TILE][SCAN_TILE] = {};
    for (int k = 0; k < p.depth; k++) {
        float a[SCAN_TILE], b[SCAN_TILE];
        UNROLL for (int i = 0; i < SCAN_TILE; i++)
        {
            a[i] = row + i < p.rows ? p.a[(row + i) * p.a_row + k * p.a_depth] : 0.0f;
            b[i] = col + i < p.cols ? p.b[k * p.b_depth + (col + i) * p.b_col] : 0.0f;
        }
        UNROLL for (int i = 0; i < SCAN_TILE; i++) UNROLL for (int j = 0; j < SCAN_TILE; j++)
            sum[i][j] += a[i] * b[j];
    }
    UNROLL for (int i = 0; i < SCAN_TILE; i++) UNROLL for (int j = 0; j < SCAN_TILE; j++)
    {
        float *to = p.c + (row + i) * p.c_ld + col + j;
        if (row + i < p.rows && col + j < p.cols)
            *to = (p.add ? *to : 0.0f) + sum[i][j];
    }
}

DEVICE void scan_multiply(const scan_product &p)
{
    const unsigned across = (unsigned)(p.cols + SCAN_TILE - 1) / SCAN_TILE;
    const unsigned tiles = (unsigned)(p.rows + SCAN_TILE - 1) / SCAN_TILE * across;
    for (unsigned i = threadIdx.x; i < tiles; i += SCAN_THREADS)
        scan_multiply_tile(p, (int)(i / across) * SCAN_TILE, (int)(i % across) * SCAN_TILE);
    sync_block();
}

/* c[n][cols] (+)= pairs rows, or of the transposed pairs. */
DEVICE void scan_mix(const scan_tile &t, float *c, const float *pairs, const float *rows, int cols,
                     bool turned, bool add)
{
    const scan_product p = {c,   pairs, rows, cols, turned ? 1 : CHUNK, turned ? CHUNK : 1, cols, 1,
                            t.n, cols,  t.n,  add};
    scan_multiply(p);
}

/* c[n][n]: all products of rows of x with rows of y. */
DEVICE void scan_pair(const scan_tile &t, float *c, const float *x, const float *y, int cols)
{
    const scan_product p = {c, x, y, CHUNK, cols, 1, 1, cols, t.n, t.n, cols, false};
    scan_multiply(p);
}

/* c[n][to] = x[n][from] matrix, [from][to], or turned, [to][from] */
DEVICE void scan_apply(const scan_tile &t, float *c, const float *x, const float *matrix, int from,
                       int to, bool turned)
{
    const int ld = t.value.n;
    const scan_product p = {c,   x,  matrix, to,   from, 1, turned ? 1 : ld, turned ? ld : 1,
                            t.n, to, from,   false};
    scan_multiply(p);
}

/* matrix[key][value] (+)= sum over rows of keys^T values */
DEVICE void scan_outer(const scan_tile &t, float *matrix, const float *keys, const float *values,
                       bool add)
{
    const int key = t.key.n, value = t.value.n;
    const scan_product p = {matrix, keys, values, value, 1, key, value, 1, key, value, t.n, add};
    scan_multiply(p);
}

/* to_i = (or +=) factor_i from_i */
DEVICE void scan_scale(const scan_tile &t, float *to, const float *from, const float *factors,
                       const scan_columns &cols, bool add)
{
    for (int e = threadIdx.x; e < t.n * cols.n; e += SCAN_THREADS)
        to[e] = (add ? to[e] : 0.0f) + factors[scan_row_of(cols, e)] * from[e];
    sync_block();
}

template <class T>
DEVICE void scan_read(const scan_tile &t, float *to, const T *from, int64_t column, int64_t ld,
                      const scan_columns &cols)
{
    from += t.first * ld + column;
    for (int e = threadIdx.x; e < t.n * cols.n; e += SCAN_THREADS) {
        const int i = scan_row_of(cols, e);
        to[e] = to_float(from[i * ld + (e - i * cols.n)]);
    }
    sync_block();
}

/* The same of a chunk with rows of the piece in front, [rows][open_ld]; NULL: those become 0. */
template <class T>
DEVICE void scan_read_on(const scan_tile &t, float *to, const T *from, int64_t column, int64_t ld,
                         const scan_columns &cols, const float *open, int64_t open_ld)
{
    for (int e = threadIdx.x; e < t.n * cols.n; e += SCAN_THREADS) {
        const int i = scan_row_of(cols, e);
        const int64_t c = column + (e - i * cols.n);
        if (i < t.open)
            to[e] = open ? open[i * open_ld + c] : 0.0f;
        else
            to[e] = to_float(from[(t.first + i) * ld + c]);
    }
    sync_block();
}

template <class T>
DEVICE void scan_write(const scan_tile &t, T *to, int64_t column, int64_t ld, const float *from,
                       const scan_columns &cols)
{
    for (int e = t.open * cols.n + (int)threadIdx.x; e < t.n * cols.n; e += SCAN_THREADS) {
        const int i = scan_row_of(cols, e);
        from_float(to[(t.first + i) * ld + column + (e - i * cols.n)], from[e]);
    }
    sync_block();
}

/* dots[i] = x_i y_i: a warp takes a row. */
DEVICE void scan_dots(const scan_tile &t, float *dots, const float *x, const float *y, int cols)
{
    const int lane = threadIdx.x % 32, warps = SCAN_THREADS / 32;
    for (int i = threadIdx.x / 32; i < CHUNK; i += warps) {
        float sum = 0.0f;
        for (int c = lane; c < cols && i < t.n; c += 32)
            sum += x[i * cols + c] * y[i * cols + c];
        sum = warp_sum(sum);
        if (lane == 0 && i < t.n)
            dots[i] = sum;
    }
    sync_block();
}

DEVICE void scan_normalise(const scan_tile &t, float *x, float *inverse, float scale)
{
    scan_dots(t, inverse, x, x, t.key.n);
    if ((int)threadIdx.x < t.n)
        inverse[threadIdx.x] = 1.0f / sqrtf(inverse[threadIdx.x] + ZINF_SCAN_KEY_EPS);
    sync_block();
    for (int e = threadIdx.x; e < t.n * t.key.n; e += SCAN_THREADS)
        x[e] *= inverse[scan_row_of(t.key, e)] * scale;
    sync_block();
}

/* ---- a chunk's keys, queries and numbers ---- */

/* What a query is divided by. */
DEVICE float scan_query_scale(int64_t key)
{
    return 1.0f / sqrtf((float)key);
}

template <class T>
DEVICE void scan_load_rows(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    scan_read_on(t, t.k, a.k, head * a.key, a.ld, t.key, a.open.k, a.key_heads * a.key);
    scan_read_on(t, t.q, a.q, head * a.key, a.ld, t.key, NULL, 0);
    if (!a.delta)
        return;
    scan_normalise(t, t.k, t.k_inverse, 1.0f);
    scan_normalise(t, t.q, t.q_inverse, scan_query_scale(a.key));
}

template <class T>
DEVICE void scan_load_keys(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    scan_load_rows(a, t, head);
    if (a.delta)
        scan_pair(t, t.pairs, t.k, t.k, t.key.n);
    scan_pair(t, t.scores, t.q, t.k, t.key.n);
}

/* g and s of row i of the chunk. */
template <class T>
DEVICE float scan_decay_of(const scan_args<T> &a, const scan_tile &t, int64_t i, int64_t head)
{
    return i < t.open ? a.open.numbers[2 * i * a.value_heads + head]
                      : a.with.decay[(t.first + i) * a.value_heads + head];
}
template <class T>
DEVICE float scan_strength_of(const scan_args<T> &a, const scan_tile &t, int64_t i, int64_t head)
{
    return i < t.open ? a.open.numbers[(2 * i + 1) * a.value_heads + head]
                      : a.with.strength[(t.first + i) * a.value_heads + head];
}

template <class T>
DEVICE void scan_load_numbers(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    const int i = (int)threadIdx.x;
    if (i == 0) {
        float sum = 0.0f;
        for (int row = 0; row < t.n; row++) {
            sum += scan_decay_of(a, t, row, head);
            t.sum[row] = sum;
        }
    }
    sync_block();
    if (i < t.n) {
        t.strength[i] = scan_strength_of(a, t, i, head);
        t.before[i] = expf(t.sum[i]);
        t.after[i] = expf(t.sum[t.n - 1] - t.sum[i]);
    }
    sync_block();
}

/* pairs become -A, scores P. */
DEVICE void scan_decay_pairs(const scan_tile &t, bool delta)
{
    for (int at = threadIdx.x; at < t.n * CHUNK; at += SCAN_THREADS) {
        const int i = at / CHUNK, j = at % CHUNK;
        if (j >= t.n)
            continue;
        const float decay = j <= i ? expf(t.sum[i] - t.sum[j]) : 0.0f;
        t.scores[at] = j <= i ? t.scores[at] * decay : 0.0f;
        if (delta)
            t.pairs[at] = j < i ? -t.strength[i] * decay * t.pairs[at] : 0.0f;
    }
    sync_block();
}

/* x becomes (I + A)^-1 x, or with the transposed matrix: some rows at a time, what the others give
 * as a product, and a thread a column for what they give each other. */
DEVICE void scan_solve(const scan_tile &t, float *x)
{
    const int value = t.value.n;
    for (int first = 0; first < t.n; first += SOLVE_ROWS) {
        const int end = first + SOLVE_ROWS < t.n ? first + SOLVE_ROWS : t.n;
        const scan_product p = {x + first * value,
                                t.pairs + first * CHUNK,
                                x,
                                value,
                                CHUNK,
                                1,
                                value,
                                1,
                                end - first,
                                value,
                                first,
                                true};
        if (first)
            scan_multiply(p);
        for (int j = threadIdx.x; j < value; j += SCAN_THREADS)
            for (int i = first + 1; i < end; i++) {
                float sum = x[i * value + j];
                for (int k = first; k < i; k++)
                    sum += t.pairs[i * CHUNK + k] * x[k * value + j];
                x[i * value + j] = sum;
            }
        sync_block();
    }
}

DEVICE void scan_solve_turned(const scan_tile &t, float *x)
{
    const int value = t.value.n;
    for (int first = (t.n - 1) / SOLVE_ROWS * SOLVE_ROWS; first >= 0; first -= SOLVE_ROWS) {
        const int end = first + SOLVE_ROWS < t.n ? first + SOLVE_ROWS : t.n;
        const scan_product p = {x + first * value,
                                t.pairs + end * CHUNK + first,
                                x + end * value,
                                value,
                                1,
                                CHUNK,
                                value,
                                1,
                                end - first,
                                value,
                                t.n - end,
                                true};
        if (end < t.n)
            scan_multiply(p);
        for (int j = threadIdx.x; j < value; j += SCAN_THREADS)
            for (int i = end - 1; i-- > first;) {
                float sum = x[i * value + j];
                for (int k = i + 1; k < end; k++)
                    sum += t.pairs[k * CHUNK + i] * x[k * value + j];
                x[i * value + j] = sum;
            }
        sync_block();
    }
}

#endif

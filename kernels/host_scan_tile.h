/*
 * host_scan_tile: one chunk of a head in a thread's working memory: its rows, their products, and
 * the parts of these that do not depend on the state. Included once by each per-ISA file, behind
 * host_tiles.h and before host_scan_loops.h.
 */
#include "kernels/host_scan.h"

enum { CHUNK = ZINF_SCAN_CHUNK };

/* A thread's working memory for one chunk of a head. "across" means transposed;
 * host_scan_loops.h has the formulas with c, s, N, w, A and P. */
struct scan_tile {
    const struct host_scan *s;
    const struct zinf_scan *a;
    struct host_chunk c;
    struct zinf_scan_open open, left; /* of the ends: that in front, and that behind */
    int64_t key, value, key_ld, value_ld;
    float *q, *k, *k_across, *dq, *dk;          /* [CHUNK][key_ld]; across: [key_ld][CHUNK] */
    float *v, *w, *w_across, *dy, *dw;          /* [CHUNK][value_ld]; across: [value_ld][CHUNK] */
    float *rows;                                /* [CHUNK][key_ld or value_ld] */
    float *state, *d_state;                     /* [key_ld][value_ld] */
    float *pairs, *scores, *d_pairs, *d_scores; /* [CHUNK][CHUNK] */
    /* [CHUNK]: c, s, the gradient of s; exp(c), exp(c_N - c); what makes a row's length 1 */
    float *sum, *strength, *d_strength, *before, *after, *q_inverse, *k_inverse;
    /* [CHUNK]: the gradient of c, in double, since the parts from pairs of rows cancel each other
     */
    double *d_sum;
};

static void scan_tile_init(struct scan_tile *t, const struct host_scan *s, float *at)
{
    const struct zinf_scan *a = s->args;
    *t = (struct scan_tile){.s = s, .a = a, .key = a->key_dim, .value = a->value_dim};
    zinf_scan_open_place(a, &t->open, a->ends && !a->backward ? a->ends->open_before : NULL);
    zinf_scan_open_place(a, &t->left, a->ends && !a->backward ? a->ends->open_behind : NULL);
    t->key_ld = zinf_scan_cols(a->key_dim);
    t->value_ld = zinf_scan_cols(a->value_dim);
    float **const keys[] = {&t->q, &t->k, &t->k_across, &t->dq, &t->dk};
    float **const values[] = {&t->v, &t->w, &t->w_across, &t->dy, &t->dw};
    float **const pairs[] = {&t->pairs, &t->scores, &t->d_pairs, &t->d_scores};
    float **const numbers[] = {&t->sum,   &t->strength,  &t->d_strength, &t->before,
                               &t->after, &t->q_inverse, &t->k_inverse};
    for (int i = 0; i < 5; i++, at += CHUNK * t->key_ld)
        *keys[i] = at;
    for (int i = 0; i < 5; i++, at += CHUNK * t->value_ld)
        *values[i] = at;
    t->rows = at;
    at += CHUNK * (t->key_ld > t->value_ld ? t->key_ld : t->value_ld);
    t->state = at;
    t->d_state = at + t->key_ld * t->value_ld;
    at += 2 * t->key_ld * t->value_ld;
    for (int i = 0; i < 4; i++, at += CHUNK * CHUNK)
        *pairs[i] = at;
    for (int i = 0; i < 7; i++, at += CHUNK)
        *numbers[i] = at;
    t->d_sum = (double *)(void *)at;
}

/* ---- small pieces ---- */

static int64_t scan_whole(int64_t n)
{
    return (n + HOST_LANES - 1) / HOST_LANES * HOST_LANES;
}

static float scan_dot(const float *x, const float *y, int64_t n)
{
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

/* Converts rows of the chunk, n columns that begin `column` elements into a row. Those of the piece
 * in front become 0. */
static void scan_read(const struct scan_tile *t, float *to, int64_t to_ld, const void *from,
                      uint64_t column, int64_t ld, int64_t n)
{
    const uint64_t width = zinf_dtype_bytes(t->a->dtype);
    memset(to, 0, (size_t)(t->c.open * to_ld) * sizeof *to);
    for (int64_t i = t->c.open; i < t->c.count; i++) {
        const uint64_t at = (uint64_t)((t->c.first + i) * ld) + column;
        loop_to_f32(to + i * to_ld, (const char *)from + at * width, t->a->dtype, (size_t)n);
        memset(to + i * to_ld + n, 0, (size_t)(to_ld - n) * sizeof *to);
    }
}

/* Takes n columns of the rows of the piece in front, from [rows][from_ld]. */
static void scan_read_open(const struct scan_tile *t, float *to, int64_t to_ld, const float *from,
                           uint64_t column, int64_t from_ld, int64_t n)
{
    for (int64_t i = 0; i < t->c.open; i++)
        memcpy(to + i * to_ld, from + (uint64_t)(i * from_ld) + column, (size_t)n * sizeof *to);
}

static void scan_write(const struct scan_tile *t, void *to, uint64_t column, int64_t ld,
                       const float *from, int64_t from_ld, int64_t n)
{
    const uint64_t width = zinf_dtype_bytes(t->a->dtype);
    for (int64_t i = t->c.open; i < t->c.count; i++) {
        const uint64_t at = (uint64_t)((t->c.first + i) * ld) + column;
        loop_from_f32((char *)to + at * width, t->a->dtype, from + i * from_ld, (size_t)n);
    }
}

/* to[columns][rows] of from[rows][columns]. */
static void scan_turn(float *to, int64_t to_ld, const float *from, int64_t from_ld, int64_t rows,
                      int64_t columns)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            to[j * to_ld + i] = from[i * from_ld + j];
}

/* to_i = (or +=) factor_i from_i */
static void scan_scale(const struct scan_tile *t, float *to, const float *from,
                       const float *factors, int64_t ld, bool add)
{
    for (int64_t i = 0; i < t->c.count; i++) {
        float *y = to + i * ld;
        const float *x = from + i * ld, f = factors[i];
#pragma omp simd
        for (int64_t j = 0; j < ld; j++)
            y[j] = (add ? y[j] : 0.0f) + f * x[j];
    }
}

/* Scales keys or queries to length 1. */
static void scan_normalise(const struct scan_tile *t, float *rows, float *inverse, float scale)
{
    for (int64_t i = 0; i < t->c.count; i++) {
        float *x = rows + i * t->key_ld;
        inverse[i] = 1.0f / sqrtf(scan_dot(x, x, t->key) + ZINF_SCAN_KEY_EPS);
        const float f = inverse[i] * scale;
#pragma omp simd
        for (int64_t j = 0; j < t->key; j++)
            x[j] *= f;
    }
}

/* ---- products ---- */

/* c[count][cols] (+)= pairs rows, or the transposed pairs. */
static void scan_mix(const struct scan_tile *t, float *c, const float *pairs, const float *rows,
                     int64_t ld, bool across, bool add)
{
    const struct product p = {
        .c = c,
        .a = pairs,
        .b = rows,
        .c_stride = ld,
        .row_stride = across ? 1 : CHUNK,
        .depth_stride = across ? CHUNK : 1,
        .b_stride = ld,
        .depth = t->c.count,
        .add = add,
    };
    multiply_tiles(&p, t->c.count, ld);
}

/* c[count][count]: all dot products of rows with rows of a transposed matrix. */
static void scan_pair(const struct scan_tile *t, float *c, const float *rows, int64_t ld,
                      const float *across, int64_t depth)
{
    const struct product p = {
        .c = c,
        .a = rows,
        .b = across,
        .c_stride = CHUNK,
        .row_stride = ld,
        .depth_stride = 1,
        .b_stride = CHUNK,
        .depth = depth,
    };
    multiply_tiles(&p, t->c.count, scan_whole(t->c.count));
}

/* c[count][cols] = rows matrix[depth][cols] */
static void scan_apply(const struct scan_tile *t, float *c, const float *rows, int64_t ld,
                       const float *matrix, int64_t depth, int64_t cols)
{
    const struct product p = {
        .c = c,
        .a = rows,
        .b = matrix,
        .c_stride = cols,
        .row_stride = ld,
        .depth_stride = 1,
        .b_stride = cols,
        .depth = depth,
    };
    multiply_tiles(&p, t->c.count, cols);
}

/* matrix[key][value_ld] (+)= sum over rows of keys^T values */
static void scan_outer(const struct scan_tile *t, float *matrix, const float *keys,
                       const float *values, bool add)
{
    const struct product p = {
        .c = matrix,
        .a = keys,
        .b = values,
        .c_stride = t->value_ld,
        .row_stride = 1,
        .depth_stride = t->key_ld,
        .b_stride = t->value_ld,
        .depth = t->c.count,
        .add = add,
    };
    multiply_tiles(&p, t->key, t->value_ld);
}

/* ---- a chunk's keys, queries and numbers ---- */

static void scan_read_keys(const struct scan_tile *t, float *to, int64_t key_head)
{
    const struct zinf_scan *a = t->a;
    const uint64_t column = (uint64_t)(key_head * a->key_dim);
    scan_read(t, to, t->key_ld, a->k, column, a->ld, t->key);
    scan_read_open(t, to, t->key_ld, t->open.k, column, a->key_heads * a->key_dim, t->key);
}

static void scan_load_keys(struct scan_tile *t, int64_t key_head)
{
    const struct zinf_scan *a = t->a;
    const uint64_t column = (uint64_t)(key_head * a->key_dim);
    scan_read_keys(t, t->k, key_head);
    scan_read(t, t->q, t->key_ld, a->q, column, a->ld, t->key);
    if (a->rule == ZINF_RECURRENCE_DELTA) {
        scan_normalise(t, t->k, t->k_inverse, 1.0f);
        scan_normalise(t, t->q, t->q_inverse, 1.0f / sqrtf((float)t->key));
    }
    scan_turn(t->k_across, CHUNK, t->k, t->key_ld, t->c.count, t->key);
    if (a->rule == ZINF_RECURRENCE_DELTA)
        scan_pair(t, t->pairs, t->k, t->key_ld, t->k_across, t->key);
    scan_pair(t, t->scores, t->q, t->key_ld, t->k_across, t->key);
}

/* g and s of row i of the chunk. */
static float scan_decay_of(const struct scan_tile *t, int64_t i, int64_t head)
{
    const int64_t heads = t->a->value_heads;
    return i < t->c.open ? t->open.numbers[2 * i * heads + head]
                         : t->s->with.decay[(t->c.first + i) * heads + head];
}

static float scan_strength_of(const struct scan_tile *t, int64_t i, int64_t head)
{
    const int64_t heads = t->a->value_heads;
    return i < t->c.open ? t->open.numbers[(2 * i + 1) * heads + head]
                         : t->s->with.strength[(t->c.first + i) * heads + head];
}

static void scan_load_numbers(struct scan_tile *t, int64_t head)
{
    const int64_t n = t->c.count;
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        sum += scan_decay_of(t, i, head);
        t->sum[i] = sum;
        t->strength[i] = scan_strength_of(t, i, head);
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        t->before[i] = exp_f32(t->sum[i]);
        t->after[i] = exp_f32(sum - t->sum[i]);
    }
}

/* Turns pairs into -A, and scores into P. */
static void scan_decay_pairs(struct scan_tile *t)
{
    const bool delta = t->a->rule == ZINF_RECURRENCE_DELTA;
    const int64_t n = t->c.count;
    for (int64_t i = 0; i < n; i++) {
        float *pairs = t->pairs + i * CHUNK, *scores = t->scores + i * CHUNK;
        const float sum = t->sum[i], strength = -t->strength[i];
#pragma omp simd
        for (int64_t j = 0; j <= i; j++) {
            const float decay = exp_f32(sum - t->sum[j]);
            scores[j] *= decay;
            if (delta)
                pairs[j] *= strength * decay;
        }
        for (int64_t j = i + 1; j < n; j++)
            scores[j] = 0.0f;
        for (int64_t j = i; delta && j < n; j++)
            pairs[j] = 0.0f;
    }
}

static uint64_t value_column(const struct scan_tile *t, int64_t head)
{
    return (uint64_t)(head * t->a->value_dim);
}

static void scan_read_values(const struct scan_tile *t, float *to, int64_t head)
{
    const struct zinf_scan *a = t->a;
    const uint64_t column = value_column(t, head);
    scan_read(t, to, t->value_ld, a->v, column, a->ld, t->value);
    scan_read_open(t, to, t->value_ld, t->open.v, column, a->value_heads * t->value, t->value);
}

/* Zeros for a row of padding. */
static void scan_clear(const struct zinf_scan *a, void *to, int64_t ld, int64_t row, int64_t column,
                       int64_t n)
{
    const uint64_t width = zinf_dtype_bytes(a->dtype);
    memset((char *)to + (uint64_t)(row * ld + column) * width, 0, (uint64_t)n * width);
}

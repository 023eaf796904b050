/*
 * host_scan_loops: the scan of a recurrent mixer by products over chunks, to be included once by
 * each per-ISA file behind host_tiles.h (Yang et al., arXiv 2412.06464, section 3.3; Dao and Gu,
 * arXiv 2405.21060, section 6). With c the sum of g from the chunk's first row on, D_ij =
 * exp(c_i - c_j), S the state in front of the chunk and N its last row:
 *     DELTA: (I + A) W = s (V - exp(c) K S), A_ij = s_i (k_i k_j) D_ij for j < i;  DECAY: W = s V
 *     Y = exp(c) Q S + P W, P_ij = (q_i k_j) D_ij for j <= i
 *     S' = exp(c_N) S + sum over j of k_j exp(c_N - c_j) w_j
 */
#include "kernels/host_scan.h"

enum { CHUNK = ZINF_SCAN_CHUNK };

/* One thread's scratch for one chunk of a head. */
struct scan_tile {
    const struct host_scan *s;
    const struct zinf_scan *a;
    struct host_chunk c;
    int64_t key, value, key_ld, value_ld;
    float *q, *k, *k_across, *dq, *dk;          /* [CHUNK][key_ld]; across: [key_ld][CHUNK] */
    float *v, *w, *w_across, *dy, *dw;          /* [CHUNK][value_ld]; across: [value_ld][CHUNK] */
    float *rows;                                /* [CHUNK][key_ld or value_ld] */
    float *state, *d_state;                     /* [key_ld][value_ld] */
    float *pairs, *scores, *d_pairs, *d_scores; /* [CHUNK][CHUNK] */
    /* [CHUNK]: c, s, their gradients; exp(c), exp(c_N - c); what makes a row's length 1 */
    float *sum, *strength, *d_sum, *d_strength, *before, *after, *q_inverse, *k_inverse;
};

static void scan_tile_init(struct scan_tile *t, const struct host_scan *s, float *at)
{
    const struct zinf_scan *a = s->args;
    *t = (struct scan_tile){.s = s, .a = a, .key = a->key_dim, .value = a->value_dim};
    t->key_ld = zinf_scan_cols(a->key_dim);
    t->value_ld = zinf_scan_cols(a->value_dim);
    float **const keys[] = {&t->q, &t->k, &t->k_across, &t->dq, &t->dk};
    float **const values[] = {&t->v, &t->w, &t->w_across, &t->dy, &t->dw};
    float **const pairs[] = {&t->pairs, &t->scores, &t->d_pairs, &t->d_scores};
    float **const numbers[] = {&t->sum,    &t->strength, &t->d_sum,     &t->d_strength,
                               &t->before, &t->after,    &t->q_inverse, &t->k_inverse};
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
    for (int i = 0; i < 8; i++, at += CHUNK)
        *numbers[i] = at;
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

/* Rows of the chunk, of n columns that begin `column` elements into a row. */
static void scan_read(const struct scan_tile *t, float *to, int64_t to_ld, const void *from,
                      uint64_t column, int64_t ld, int64_t n)
{
    const uint64_t width = zinf_dtype_bytes(t->a->dtype);
    for (int64_t i = 0; i < t->c.count; i++) {
        const uint64_t at = (uint64_t)((t->c.first + i) * ld) + column;
        loop_to_f32(to + i * to_ld, (const char *)from + at * width, t->a->dtype, (size_t)n);
        memset(to + i * to_ld + n, 0, (size_t)(to_ld - n) * sizeof *to);
    }
}

static void scan_write(const struct scan_tile *t, void *to, uint64_t column, int64_t ld,
                       const float *from, int64_t from_ld, int64_t n)
{
    const uint64_t width = zinf_dtype_bytes(t->a->dtype);
    for (int64_t i = 0; i < t->c.count; i++) {
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

/* Keys or queries become as long as one. */
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

/* c[count][cols] (+)= pairs rows, or of the transposed pairs. */
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

/* c[count][count]: all products of rows, whose second factor is across. */
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

static void scan_load_keys(struct scan_tile *t, int64_t key_head)
{
    const struct zinf_scan *a = t->a;
    const uint64_t column = (uint64_t)(key_head * a->key_dim);
    scan_read(t, t->k, t->key_ld, a->k, column, a->ld, t->key);
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

static void scan_load_numbers(struct scan_tile *t, int64_t head)
{
    const int64_t n = t->c.count, heads = t->a->value_heads;
    float sum = 0.0f;
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = (t->c.first + i) * heads + head;
        sum += t->s->with.decay[at];
        t->sum[i] = sum;
        t->strength[i] = t->s->with.strength[at];
    }
#pragma omp simd
    for (int64_t i = 0; i < n; i++) {
        t->before[i] = exp_f32(t->sum[i]);
        t->after[i] = exp_f32(sum - t->sum[i]);
    }
}

/* pairs become -A, scores P. */
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

/* ---- forward ---- */

/* w becomes (I + A)^-1 w, four rows at a time: what those before them give as a product. */
static void scan_solve(const struct scan_tile *t)
{
    const int64_t n = t->c.count, ld = t->value_ld;
    for (int64_t first = 0; first < n; first += REGISTER_ROWS) {
        const int64_t end = first + REGISTER_ROWS < n ? first + REGISTER_ROWS : n;
        const struct product p = {
            .c = t->w + first * ld,
            .a = t->pairs + first * CHUNK,
            .b = t->w,
            .c_stride = ld,
            .row_stride = CHUNK,
            .depth_stride = 1,
            .b_stride = ld,
            .depth = first,
            .add = true,
        };
        if (first)
            multiply_tiles(&p, end - first, ld);
        for (int64_t i = first + 1; i < end; i++)
            for (int64_t j = first; j < i; j++)
                loop_add_scaled(t->w + i * ld, t->w + j * ld, t->pairs[i * CHUNK + j], (size_t)ld);
    }
}

/* w of the chunk, from v and, where it is carried, the state. */
static void scan_make_written(struct scan_tile *t)
{
    const int64_t n = t->c.count, ld = t->value_ld;
    const bool delta = t->a->rule == ZINF_RECURRENCE_DELTA, reads = delta && t->c.carried;
    if (reads)
        scan_apply(t, t->rows, t->k, t->key_ld, t->state, t->key, ld);
    for (int64_t i = 0; i < n; i++) {
        const float strength = t->strength[i], before = t->before[i];
        const float *v = t->v + i * ld, *seen = t->rows + i * ld;
        float *w = t->w + i * ld;
#pragma omp simd
        for (int64_t j = 0; j < ld; j++)
            w[j] = strength * (v[j] - (reads ? before * seen[j] : 0.0f));
    }
    if (delta)
        scan_solve(t);
}

static void scan_make_output(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    const int64_t ld = t->value_ld;
    float skip = 0.0f;
    scan_mix(t, t->dy, t->scores, t->w, ld, false, false);
    if (t->c.carried) {
        scan_apply(t, t->rows, t->q, t->key_ld, t->state, t->key, ld);
        scan_scale(t, t->dy, t->rows, t->before, ld, true);
    }
    if (a->rule == ZINF_RECURRENCE_DECAY) {
        loop_to_f32(&skip, (const char *)a->skip + (uint64_t)head * zinf_dtype_bytes(a->dtype),
                    a->dtype, 1);
        for (int64_t i = 0; i < t->c.count; i++)
            loop_add_scaled(t->dy + i * ld, t->v + i * ld, skip, (size_t)ld);
    }
    scan_write(t, a->y, value_column(t, head), a->value_heads * a->value_dim, t->dy, ld, t->value);
}

static void scan_advance(struct scan_tile *t)
{
    const float decay = t->before[t->c.count - 1];
    if (t->c.carried)
        for (int64_t i = 0; i < t->key; i++)
            for (int64_t j = 0; j < t->value_ld; j++)
                t->state[i * t->value_ld + j] *= decay;
    scan_scale(t, t->rows, t->w, t->after, t->value_ld, false);
    scan_outer(t, t->state, t->k, t->rows, t->c.carried);
}

/* What the gradients need later. */
static void scan_leave(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    const int64_t cols = a->value_heads * a->value_dim;
    for (int64_t i = 0; i < t->c.count; i++)
        memcpy(t->s->with.written + (t->c.first + i) * cols + head * a->value_dim,
               t->w + i * t->value_ld, (size_t)t->value * sizeof(float));
    if (!t->c.continues)
        return;
    float *to = host_scan_slot(t->s, t->s->with.states, head, t->c.first + t->c.count);
    memset(to, 0, zinf_scan_state_floats(a) * sizeof *to);
    scan_turn(to, t->key_ld, t->state, t->value_ld, t->key, t->value);
}

static void scan_forward_chunk(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    scan_load_keys(t, head / (a->value_heads / a->key_heads));
    scan_load_numbers(t, head);
    scan_decay_pairs(t);
    scan_read(t, t->v, t->value_ld, a->v, value_column(t, head), a->ld, t->value);
    scan_make_written(t);
    if (!a->backward)
        scan_make_output(t, head);
    if (t->c.continues)
        scan_advance(t);
    if (a->backward)
        scan_leave(t, head);
}

/* The result of a row of padding. */
static void scan_clear(const struct zinf_scan *a, void *to, int64_t ld, int64_t row, int64_t column,
                       int64_t n)
{
    const uint64_t width = zinf_dtype_bytes(a->dtype);
    memset((char *)to + (uint64_t)(row * ld + column) * width, 0, (uint64_t)n * width);
}

static void scan_forward(const struct host_scan *s, int64_t sample, int64_t head, float *scratch)
{
    const struct zinf_scan *a = s->args;
    const int64_t end = (sample + 1) * a->seq, dim = a->value_dim;
    struct scan_tile t;
    scan_tile_init(&t, s, scratch);
    for (int64_t row = sample * a->seq; row < end;) {
        if (host_scan_padding(a, row)) {
            if (!a->backward)
                scan_clear(a, a->y, a->value_heads * dim, row, head * dim, dim);
            row++;
            continue;
        }
        t.c = host_scan_chunk(a, row);
        scan_forward_chunk(&t, head);
        row += t.c.count;
    }
}

/* ---- backward: from the last chunk to the first ---- */

/* dw becomes (I + A)^-T dw, from the last rows on. */
static void scan_solve_across(const struct scan_tile *t)
{
    const int64_t n = t->c.count, ld = t->value_ld;
    for (int64_t first = (n - 1) / REGISTER_ROWS * REGISTER_ROWS; first >= 0;
         first -= REGISTER_ROWS) {
        const int64_t behind = first + REGISTER_ROWS, end = behind < n ? behind : n;
        const struct product p = {
            .c = t->dw + first * ld,
            .a = t->pairs + behind * CHUNK + first,
            .b = t->dw + behind * ld,
            .c_stride = ld,
            .row_stride = 1,
            .depth_stride = CHUNK,
            .b_stride = ld,
            .depth = n - behind,
            .add = true,
        };
        if (behind < n)
            multiply_tiles(&p, end - first, ld);
        for (int64_t i = end - 1; i-- > first;)
            for (int64_t j = i + 1; j < end; j++)
                loop_add_scaled(t->dw + i * ld, t->dw + j * ld, t->pairs[j * CHUNK + i],
                                (size_t)ld);
    }
}

/* From the gradient of the state behind the chunk to that of the one in front of it. */
static void scan_withdraw(struct scan_tile *t)
{
    const int64_t n = t->c.count, ld = t->value_ld;
    if (t->c.continues)
        for (int64_t i = 0; i < t->key * ld; i++)
            t->d_state[i] *= t->before[n - 1];
    scan_scale(t, t->rows, t->dy, t->before, ld, false);
    scan_outer(t, t->d_state, t->q, t->rows, t->c.continues);
    if (t->a->rule != ZINF_RECURRENCE_DELTA)
        return;
    for (int64_t i = 0; i < n; i++)
        t->d_sum[i] = -t->strength[i] * t->before[i];
    scan_scale(t, t->rows, t->dw, t->d_sum, ld, false);
    scan_outer(t, t->d_state, t->k, t->rows, true);
}

static void scan_backward_chunk(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    const int64_t cols = a->value_heads * a->value_dim;
    scan_load_keys(t, head / (a->value_heads / a->key_heads));
    scan_load_numbers(t, head);
    scan_decay_pairs(t);
    scan_read(t, t->dy, t->value_ld, a->dy, value_column(t, head), cols, t->value);
    scan_mix(t, t->dw, t->scores, t->dy, t->value_ld, true, false);
    if (t->c.continues) {
        scan_apply(t, t->rows, t->k, t->key_ld, t->d_state, t->key, t->value_ld);
        scan_scale(t, t->dw, t->rows, t->after, t->value_ld, true);
    }
    if (a->rule == ZINF_RECURRENCE_DELTA)
        scan_solve_across(t);
    for (int64_t i = 0; i < t->c.count; i++)
        memcpy(t->s->with.d_written + (t->c.first + i) * cols + head * a->value_dim,
               t->dw + i * t->value_ld, (size_t)t->value * sizeof(float));
    if (!t->c.carried)
        return;
    scan_withdraw(t);
    float *to = host_scan_slot(t->s, t->s->with.d_states, head, t->c.first);
    memset(to, 0, zinf_scan_state_floats(a) * sizeof *to);
    scan_turn(to, t->key_ld, t->d_state, t->value_ld, t->key, t->value);
}

static void scan_backward(const struct host_scan *s, int64_t sample, int64_t head, float *scratch)
{
    const struct zinf_scan *a = s->args;
    struct scan_tile t;
    scan_tile_init(&t, s, scratch);
    for (int64_t end = (sample + 1) * a->seq; end > sample * a->seq;) {
        if (host_scan_padding(a, end - 1)) {
            end--;
            continue;
        }
        const int64_t behind = host_scan_behind(a, end - 1);
        t.c = host_scan_chunk(a, end - 1 - behind % CHUNK);
        scan_backward_chunk(&t, head);
        end = t.c.first;
    }
}

/* ---- gradients of a chunk's rows ---- */

/* By way of scores: those of queries, keys and decays. */
static void scan_score_gradients(struct scan_tile *t)
{
    const int64_t n = t->c.count;
    scan_pair(t, t->d_scores, t->dy, t->value_ld, t->w_across, t->value);
    for (int64_t i = 0; i < n; i++) {
        float *d = t->d_scores + i * CHUNK, sum = 0.0f;
        const float *scores = t->scores + i * CHUNK, own = t->sum[i];
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j <= i; j++) {
            d[j] *= exp_f32(own - t->sum[j]);
            const float change = d[j] * scores[j];
            sum += change;
            t->d_sum[j] -= change;
        }
        t->d_sum[i] += sum;
        for (int64_t j = i + 1; j < n; j++)
            d[j] = 0.0f;
    }
    scan_mix(t, t->dq, t->d_scores, t->k, t->key_ld, false, true);
    scan_mix(t, t->dk, t->d_scores, t->q, t->key_ld, true, true);
}

/* By way of the state in front of the chunk, which queries and keys read: across. */
static void scan_carried_gradients(struct scan_tile *t, const float *state)
{
    const int64_t n = t->c.count, ld = t->key_ld;
    scan_apply(t, t->rows, t->dy, t->value_ld, state, t->value, ld);
    scan_scale(t, t->dq, t->rows, t->before, ld, true);
    for (int64_t i = 0; i < n; i++)
        t->d_sum[i] += t->before[i] * scan_dot(t->q + i * ld, t->rows + i * ld, t->key);
    if (t->a->rule != ZINF_RECURRENCE_DELTA)
        return;
    scan_apply(t, t->rows, t->dw, t->value_ld, state, t->value, ld);
    for (int64_t i = 0; i < n; i++) {
        const float f = -t->before[i], x = f * scan_dot(t->k + i * ld, t->rows + i * ld, t->key);
        t->d_strength[i] += x;
        t->d_sum[i] += t->strength[i] * x;
        loop_add_scaled(t->dk + i * ld, t->rows + i * ld, f * t->strength[i], (size_t)ld);
    }
}

/* By way of the state behind it, whose gradient is across. */
static void scan_left_gradients(struct scan_tile *t, const float *state, const float *d_state)
{
    const int64_t n = t->c.count, ld = t->key_ld;
    float *last = &t->d_sum[n - 1];
    scan_apply(t, t->rows, t->w, t->value_ld, d_state, t->value, ld);
    scan_scale(t, t->dk, t->rows, t->after, ld, true);
    for (int64_t i = 0; i < n; i++) {
        const float x = t->after[i] * scan_dot(t->k + i * ld, t->rows + i * ld, t->key);
        t->d_sum[i] -= x;
        *last += x;
    }
    if (state)
        *last += t->before[n - 1] * scan_dot(state, d_state, ld * t->value);
}

/* By way of A. */
static void scan_pair_gradients(struct scan_tile *t)
{
    const int64_t n = t->c.count;
    scan_pair(t, t->d_pairs, t->dw, t->value_ld, t->w_across, t->value);
    for (int64_t i = 0; i < n; i++) {
        float *d = t->d_pairs + i * CHUNK, sum = 0.0f;
        const float *pairs = t->pairs + i * CHUNK, own = t->sum[i], strength = t->strength[i];
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j < i; j++) {
            d[j] *= -exp_f32(own - t->sum[j]);
            const float change = d[j] * pairs[j];
            d[j] *= strength;
            sum += change;
            t->d_sum[j] -= strength * change;
        }
        t->d_strength[i] += sum;
        t->d_sum[i] += strength * sum;
        for (int64_t j = i; j < n; j++)
            d[j] = 0.0f;
    }
    scan_mix(t, t->dk, t->d_pairs, t->k, t->key_ld, false, true);
    scan_mix(t, t->dk, t->d_pairs, t->k, t->key_ld, true, true);
}

/* Of v, of s by way of it, and of skip. */
static void scan_value_gradients(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    const int64_t n = t->c.count, ld = t->value_ld;
    float skip = 0.0f;
    for (int64_t i = 0; i < n; i++)
        t->d_strength[i] += scan_dot(t->dw + i * ld, t->v + i * ld, t->value);
    scan_scale(t, t->rows, t->dw, t->strength, ld, false);
    if (a->rule == ZINF_RECURRENCE_DECAY) {
        loop_to_f32(&skip, (const char *)a->skip + (uint64_t)head * zinf_dtype_bytes(a->dtype),
                    a->dtype, 1);
        for (int64_t i = 0; i < n; i++) {
            t->s->with.d_skip[(t->c.first + i) * a->value_heads + head] =
                scan_dot(t->dy + i * ld, t->v + i * ld, t->value);
            loop_add_scaled(t->rows + i * ld, t->dy + i * ld, skip, (size_t)ld);
        }
    }
    scan_write(t, a->dv, value_column(t, head), a->ld, t->rows, ld, t->value);
}

/* Rows that a pass left, [rows][value_heads value_dim]. */
static void scan_take(const struct scan_tile *t, float *to, const float *from, int64_t head)
{
    const int64_t dim = t->value, cols = t->a->value_heads * dim;
    for (int64_t i = 0; i < t->c.count; i++) {
        memcpy(to + i * t->value_ld, from + (t->c.first + i) * cols + head * dim,
               (size_t)dim * sizeof *to);
        memset(to + i * t->value_ld + dim, 0, (size_t)(t->value_ld - dim) * sizeof *to);
    }
}

static void scan_head_gradients(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    const struct host_scan *s = t->s;
    const int64_t n = t->c.count, heads = a->value_heads;
    const float *state = t->c.carried ? host_scan_slot(s, s->with.states, head, t->c.first) : NULL;
    scan_load_numbers(t, head);
    memset(t->d_sum, 0, CHUNK * sizeof(float));
    memset(t->d_strength, 0, CHUNK * sizeof(float));
    scan_take(t, t->w, s->with.written, head);
    scan_take(t, t->dw, s->with.d_written, head);
    scan_read(t, t->v, t->value_ld, a->v, value_column(t, head), a->ld, t->value);
    scan_read(t, t->dy, t->value_ld, a->dy, value_column(t, head), heads * a->value_dim, t->value);
    scan_turn(t->w_across, CHUNK, t->w, t->value_ld, n, t->value);
    scan_score_gradients(t);
    if (state)
        scan_carried_gradients(t, state);
    if (t->c.continues)
        scan_left_gradients(t, state, host_scan_slot(s, s->with.d_states, head, t->c.first + n));
    if (a->rule == ZINF_RECURRENCE_DELTA)
        scan_pair_gradients(t);
    scan_value_gradients(t, head);
    float sum = 0.0f;
    for (int64_t i = n; i-- > 0;) {
        const int64_t at = (t->c.first + i) * heads + head;
        s->with.d_decay[at] = sum += t->d_sum[i];
        s->with.d_strength[at] = t->d_strength[i];
    }
}

/* Through what made a row's length 1: d -> f (d - x / |x| (x / |x| . d)), x scaled by `scale`. */
static void scan_normalise_backward(const struct scan_tile *t, float *d, const float *rows,
                                    const float *inverse, float scale)
{
    for (int64_t i = 0; i < t->c.count; i++) {
        const float *x = rows + i * t->key_ld;
        float *dx = d + i * t->key_ld;
        const float along = scan_dot(x, dx, t->key) / (scale * scale), f = inverse[i] * scale;
#pragma omp simd
        for (int64_t j = 0; j < t->key; j++)
            dx[j] = f * (dx[j] - x[j] * along);
    }
}

static void scan_chunk_gradients(struct scan_tile *t, int64_t key_head)
{
    const struct zinf_scan *a = t->a;
    const int64_t group = a->value_heads / a->key_heads;
    const uint64_t column = (uint64_t)(key_head * a->key_dim);
    scan_load_keys(t, key_head);
    memset(t->dq, 0, (size_t)(CHUNK * t->key_ld) * sizeof(float));
    memset(t->dk, 0, (size_t)(CHUNK * t->key_ld) * sizeof(float));
    for (int64_t head = key_head * group; head < (key_head + 1) * group; head++)
        scan_head_gradients(t, head);
    if (a->rule == ZINF_RECURRENCE_DELTA) {
        scan_normalise_backward(t, t->dk, t->k, t->k_inverse, 1.0f);
        scan_normalise_backward(t, t->dq, t->q, t->q_inverse, 1.0f / sqrtf((float)t->key));
    }
    scan_write(t, a->dq, column, a->ld, t->dq, t->key_ld, t->key);
    scan_write(t, a->dk, column, a->ld, t->dk, t->key_ld, t->key);
}

static void scan_clear_gradients(const struct host_scan *s, int64_t row, int64_t key_head)
{
    const struct zinf_scan *a = s->args;
    const int64_t group = a->value_heads / a->key_heads, first = key_head * group;
    const int64_t at = row * a->value_heads + first;
    scan_clear(a, a->dq, a->ld, row, key_head * a->key_dim, a->key_dim);
    scan_clear(a, a->dk, a->ld, row, key_head * a->key_dim, a->key_dim);
    scan_clear(a, a->dv, a->ld, row, first * a->value_dim, group * a->value_dim);
    memset(s->with.d_decay + at, 0, (size_t)group * sizeof(float));
    memset(s->with.d_strength + at, 0, (size_t)group * sizeof(float));
    memset(s->with.d_skip + at, 0, (size_t)group * sizeof(float));
}

/* Of the chunks that begin among rows [first, end) of one sample. */
static void scan_gradients(const struct host_scan *s, int64_t first, int64_t end, int64_t key_head,
                           float *scratch)
{
    const struct zinf_scan *a = s->args;
    struct scan_tile t;
    scan_tile_init(&t, s, scratch);
    for (int64_t row = first; row < end;) {
        if (host_scan_padding(a, row)) {
            scan_clear_gradients(s, row++, key_head);
            continue;
        }
        t.c = host_scan_chunk(a, row - host_scan_behind(a, row) % CHUNK);
        if (t.c.first >= first)
            scan_chunk_gradients(&t, key_head);
        row = t.c.first + t.c.count;
    }
}

/* ---- row by row ---- */

static void scan_step_state(const struct scan_tile *t, float *state, float decay, float strength)
{
    const bool delta = t->a->rule == ZINF_RECURRENCE_DELTA;
    const int64_t n = t->value;
    memset(t->rows, 0, (size_t)n * sizeof(float));
    memset(t->dy, 0, (size_t)n * sizeof(float));
    for (int64_t i = 0; i < t->key; i++) {
        float *s = state + i * n;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            s[j] *= decay;
            t->rows[j] += t->k[i] * s[j];
        }
    }
    for (int64_t j = 0; j < n; j++)
        t->w[j] = strength * (t->v[j] - (delta ? t->rows[j] : 0.0f));
    for (int64_t i = 0; i < t->key; i++) {
        float *s = state + i * n;
#pragma omp simd
        for (int64_t j = 0; j < n; j++) {
            s[j] += t->k[i] * t->w[j];
            t->dy[j] += t->q[i] * s[j];
        }
    }
}

/* One head of all rows of sequences that are continued. */
static void scan_continue(const struct host_scan *s, int64_t head, float *scratch)
{
    const struct zinf_scan *a = s->args;
    const struct zinf_remembered *m = a->remembered;
    const uint64_t floats = (uint64_t)(a->key_dim * a->value_dim);
    const uint64_t column = (uint64_t)(head / (a->value_heads / a->key_heads) * a->key_dim);
    struct scan_tile t;
    float skip = 0.0f;
    scan_tile_init(&t, s, scratch);
    if (a->rule == ZINF_RECURRENCE_DECAY)
        loop_to_f32(&skip, (const char *)a->skip + (uint64_t)head * zinf_dtype_bytes(a->dtype),
                    a->dtype, 1);
    for (int64_t row = 0; row < a->seq; row++) {
        char *at = (char *)m->state + (uint64_t)m->sequences[row] * m->bytes;
        float *state = (float *)(void *)at + (uint64_t)head * floats, decay;
        t.c = (struct host_chunk){.first = row, .count = 1};
        scan_read(&t, t.k, t.key_ld, a->k, column, a->ld, t.key);
        scan_read(&t, t.q, t.key_ld, a->q, column, a->ld, t.key);
        scan_read(&t, t.v, t.value_ld, a->v, value_column(&t, head), a->ld, t.value);
        if (a->rule == ZINF_RECURRENCE_DELTA) {
            scan_normalise(&t, t.k, t.k_inverse, 1.0f);
            scan_normalise(&t, t.q, t.q_inverse, 1.0f / sqrtf((float)t.key));
        }
        if (m->positions[row] == 0)
            memset(state, 0, floats * sizeof *state);
        decay = exp_f32(s->with.decay[row * a->value_heads + head]);
        scan_step_state(&t, state, decay, s->with.strength[row * a->value_heads + head]);
        loop_add_scaled(t.dy, t.v, skip, (size_t)t.value);
        scan_write(&t, a->y, value_column(&t, head), a->value_heads * a->value_dim, t.dy,
                   t.value_ld, t.value);
    }
}

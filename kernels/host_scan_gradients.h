/*
 * host_scan_gradients: the gradients of a chunk's rows in the scan of a recurrent mixer, from what
 * the passes of host_scan_loops.h have left. Chunks may come in any order.
 */

/* Gradients of queries, keys and decays through the scores. */
static void scan_score_gradients(struct scan_tile *t)
{
    const int64_t n = t->c.count;
    scan_pair(t, t->d_scores, t->dy, t->value_ld, t->w_across, t->value);
    for (int64_t i = 0; i < n; i++) {
        double sum = 0;
        float *d = t->d_scores + i * CHUNK;
        const float *scores = t->scores + i * CHUNK, own = t->sum[i];
#pragma omp simd reduction(+ : sum)
        for (int64_t j = 0; j <= i; j++) {
            d[j] *= exp_f32(own - t->sum[j]);
            const double change = (double)(d[j] * scores[j]);
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

/* Gradients through the state before the chunk, which queries and keys read; the state is
 * transposed. */
static void scan_carried_gradients(struct scan_tile *t, const float *state)
{
    const int64_t n = t->c.count, ld = t->key_ld;
    scan_apply(t, t->rows, t->dy, t->value_ld, state, t->value, ld);
    scan_scale(t, t->dq, t->rows, t->before, ld, true);
    for (int64_t i = 0; i < n; i++)
        t->d_sum[i] += (double)(t->before[i] * scan_dot(t->q + i * ld, t->rows + i * ld, t->key));
    if (t->a->rule != ZINF_RECURRENCE_DELTA)
        return;
    scan_apply(t, t->rows, t->dw, t->value_ld, state, t->value, ld);
    for (int64_t i = 0; i < n; i++) {
        const float f = -t->before[i], x = f * scan_dot(t->k + i * ld, t->rows + i * ld, t->key);
        t->d_strength[i] += x;
        t->d_sum[i] += (double)(t->strength[i] * x);
        loop_add_scaled(t->dk + i * ld, t->rows + i * ld, f * t->strength[i], (size_t)ld);
    }
}

/* Gradients through the state behind the chunk, whose gradient is transposed. */
static void scan_left_gradients(struct scan_tile *t, const float *state, const float *d_state)
{
    const int64_t n = t->c.count, ld = t->key_ld;
    double *last = &t->d_sum[n - 1];
    scan_apply(t, t->rows, t->w, t->value_ld, d_state, t->value, ld);
    scan_scale(t, t->dk, t->rows, t->after, ld, true);
    for (int64_t i = 0; i < n; i++) {
        const double x = (double)(t->after[i] * scan_dot(t->k + i * ld, t->rows + i * ld, t->key));
        t->d_sum[i] -= x;
        *last += x;
    }
    if (state)
        *last += (double)(t->before[n - 1] * scan_dot(state, d_state, ld * t->value));
}

/* Gradients through A. */
static void scan_pair_gradients(struct scan_tile *t)
{
    const int64_t n = t->c.count;
    scan_pair(t, t->d_pairs, t->dw, t->value_ld, t->w_across, t->value);
    for (int64_t i = 0; i < n; i++) {
        double own_sum = 0;
        float *d = t->d_pairs + i * CHUNK, sum = 0.0f;
        const float *pairs = t->pairs + i * CHUNK, own = t->sum[i], strength = t->strength[i];
#pragma omp simd reduction(+ : sum, own_sum)
        for (int64_t j = 0; j < i; j++) {
            d[j] *= -exp_f32(own - t->sum[j]);
            const float change = d[j] * pairs[j];
            const double weighed = (double)(strength * change);
            d[j] *= strength;
            sum += change;
            own_sum += weighed;
            t->d_sum[j] -= weighed;
        }
        t->d_strength[i] += sum;
        t->d_sum[i] += own_sum;
        for (int64_t j = i; j < n; j++)
            d[j] = 0.0f;
    }
    scan_mix(t, t->dk, t->d_pairs, t->k, t->key_ld, false, true);
    scan_mix(t, t->dk, t->d_pairs, t->k, t->key_ld, true, true);
}

/* Gradients of v, of s through v, and of skip. */
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

/* Copies rows that a pass left, [rows][value_heads value_dim]. */
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
    memset(t->d_sum, 0, CHUNK * sizeof *t->d_sum);
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
    double sum = 0;
    for (int64_t i = n; i-- > 0;) {
        const int64_t at = (t->c.first + i) * heads + head;
        s->with.d_decay[at] = (float)(sum += t->d_sum[i]);
        s->with.d_strength[at] = t->d_strength[i];
    }
}

/* Gradient through the scaling of a row to length 1: d becomes f (d - x / |x| (x / |x| . d)), with
 * x scaled by `scale`. */
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

/* Gradients of the chunks that begin within rows [first, end) of a sample. */
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
        t.c = host_scan_chunk(a, row - s->with.places[row]);
        if (t.c.first >= first)
            scan_chunk_gradients(&t, key_head);
        row = t.c.first + t.c.count;
    }
}

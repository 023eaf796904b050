/*
 * host_scan_loops: the scan of a recurrent mixer by products over chunks (Yang et al., arXiv
 * 2412.06464, section 3.3; Dao and Gu, arXiv 2405.21060, section 6). With c the sum of g from the
 * chunk's first row on, D_ij = exp(c_i - c_j), S the state in front of the chunk and N its last
 * row: DELTA: (I + A) W = s (V - exp(c) K S), A_ij = s_i (k_i k_j) D_ij for j < i;  DECAY: W = s V
 *     Y = exp(c) Q S + P W, P_ij = (q_i k_j) D_ij for j <= i
 *     S' = exp(c_N) S + sum over j of k_j exp(c_N - c_j) w_j
 * Here are the passes from chunk to chunk, forward and in reverse, and from row to row; the
 * gradients of a chunk's rows are in host_scan_gradients.h.
 */
/* ---- forward ---- */

/* w becomes (I + A)^-1 w, four rows at a time; the part of earlier rows is a product. */
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

/* Computes w of the chunk from v and, if it is carried, the state. */
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

/* Stores a state, or its gradient, in the slot of a row. */
static void scan_leave_state(const struct scan_tile *t, float *states, int64_t head, int64_t row,
                             const float *state)
{
    float *to = host_scan_slot(t->s, states, head, row);
    memset(to, 0, zinf_scan_state_floats(t->a) * sizeof *to);
    scan_turn(to, t->key_ld, state, t->value_ld, t->key, t->value);
}

/* Stores what the gradients will need. */
static void scan_leave(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    const int64_t cols = a->value_heads * a->value_dim;
    for (int64_t i = 0; i < t->c.count; i++)
        memcpy(t->s->with.written + (t->c.first + i) * cols + head * a->value_dim,
               t->w + i * t->value_ld, (size_t)t->value * sizeof(float));
    if (t->c.continues)
        scan_leave_state(t, t->s->with.states, head, t->c.first + t->c.count, t->state);
}

/* ---- states at the ends of a piece of a sequence ---- */

/* Offset of a head's [key_dim][value_dim] in such a state. */
static uint64_t scan_end_at(const struct scan_tile *t, int64_t head)
{
    return (uint64_t)(head * t->key * t->value);
}

static void scan_take_end(const struct scan_tile *t, float *state, const void *from, int64_t head)
{
    const float *rows = (const float *)from + scan_end_at(t, head);
    for (int64_t i = 0; i < t->key; i++) {
        memcpy(state + i * t->value_ld, rows + i * t->value, (size_t)t->value * sizeof *state);
        memset(state + i * t->value_ld + t->value, 0,
               (size_t)(t->value_ld - t->value) * sizeof *state);
    }
}

/* there: the state exists; else it is 0 */
static void scan_give_end(const struct scan_tile *t, void *to, const float *state, int64_t head,
                          bool there)
{
    float *rows = (float *)to + scan_end_at(t, head);
    for (int64_t i = 0; i < t->key; i++, rows += t->value)
        if (there)
            memcpy(rows, state + i * t->value_ld, (size_t)t->value * sizeof *rows);
        else
            memset(rows, 0, (size_t)t->value * sizeof *rows);
}

/* Whether the first row of a piece continues a document of earlier rows. */
static bool scan_goes_on(const struct zinf_scan *a)
{
    return a->ends && host_scan_joined(a, 0) && !host_scan_padding(a, 0);
}

/* ---- a chunk that the border of pieces cuts ---- */

/* Copies n columns of all rows of the chunk to [rows][ld]. */
static void scan_give_rows(const struct scan_tile *t, float *to, int64_t ld, const float *rows,
                           int64_t rows_ld, int64_t n)
{
    for (int64_t i = 0; i < t->c.count; i++)
        memcpy(to + i * ld, rows + i * rows_ld, (size_t)n * sizeof *to);
}

/* Leaves the chunk for the next piece, in whose front its next row is, unless it is complete. Its
 * state is still the one in front of it; keys are read again, since they have been scaled. */
static void scan_give_open(const struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    const struct zinf_scan_open *to = &t->left;
    const int64_t n = t->c.count, heads = a->value_heads, group = heads / a->key_heads;
    const int64_t key_head = head / group;
    if (head == 0) {
        to->count[0] = n < CHUNK ? (float)n : 0.0f;
        to->count[1] = t->c.carried ? 1.0f : 0.0f;
    }
    if (n == CHUNK)
        return;
    scan_give_end(t, to->state, t->state, head, t->c.carried);
    for (int64_t i = 0; i < n; i++) {
        to->numbers[2 * i * heads + head] = scan_decay_of(t, i, head);
        to->numbers[(2 * i + 1) * heads + head] = t->strength[i];
    }
    scan_give_rows(t, to->v + value_column(t, head), heads * t->value, t->v, t->value_ld, t->value);
    if (head % group)
        return;
    scan_read_keys(t, t->rows, key_head);
    scan_give_rows(t, to->k + key_head * t->key, a->key_heads * t->key, t->rows, t->key_ld, t->key);
}

/* ---- forward, over all chunks ---- */

static void scan_forward_chunk(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    scan_load_keys(t, head / (a->value_heads / a->key_heads));
    scan_load_numbers(t, head);
    scan_decay_pairs(t);
    scan_read_values(t, t->v, head);
    scan_make_written(t);
    if (!a->backward && a->y)
        scan_make_output(t, head);
    if (t->left.count && t->c.first + t->c.count == a->seq)
        scan_give_open(t, head);
    if (t->c.continues)
        scan_advance(t);
    if (a->backward)
        scan_leave(t, head);
}

static void scan_begin_forward(struct scan_tile *t, int64_t head)
{
    if (t->left.count && head == 0)
        t->left.count[0] = 0.0f; /* in case that the last row is padding */
    if (!scan_goes_on(t->a))
        return;
    scan_take_end(t, t->state, t->a->ends->before, head);
    if (t->a->backward)
        scan_leave_state(t, t->s->with.states, head, 0, t->state);
}

/* The chunk with the row, which is the first one that is left. */
static struct host_chunk scan_next_chunk(struct scan_tile *t, int64_t head, int64_t row)
{
    const struct zinf_scan *a = t->a;
    const bool cut = row == 0 && t->open.count && scan_goes_on(a) && t->open.count[0] > 0.0f;
    if (!cut)
        return host_scan_chunk(a, row);
    struct host_chunk c = host_scan_chunk_on(a, row, (int64_t)t->open.count[0]);
    c.carried = t->open.count[1] > 0.0f;
    scan_take_end(t, t->state, t->open.state, head);
    return c;
}

static void scan_forward(const struct host_scan *s, int64_t sample, int64_t head, float *scratch)
{
    const struct zinf_scan *a = s->args;
    const int64_t end = (sample + 1) * a->seq, dim = a->value_dim;
    struct scan_tile t;
    scan_tile_init(&t, s, scratch);
    scan_begin_forward(&t, head);
    for (int64_t row = sample * a->seq; row < end;) {
        if (host_scan_padding(a, row)) {
            if (!a->backward && a->y)
                scan_clear(a, a->y, a->value_heads * dim, row, head * dim, dim);
            row++;
            continue;
        }
        t.c = scan_next_chunk(&t, head, row);
        scan_forward_chunk(&t, head);
        row = t.c.first + t.c.count;
    }
    if (a->ends && a->ends->behind && !a->backward)
        scan_give_end(&t, a->ends->behind, t.state, head, !host_scan_padding(a, end - 1));
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

/* Computes the gradient of the state before the chunk from that of the state behind it. */
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
        t->d_strength[i] = -t->strength[i] * t->before[i];
    scan_scale(t, t->rows, t->dw, t->d_strength, ld, false);
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
    scan_leave_state(t, t->s->with.d_states, head, t->c.first, t->d_state);
}

static void scan_begin_backward(struct scan_tile *t, int64_t head)
{
    const struct zinf_scan *a = t->a;
    if (!a->ends || host_scan_padding(a, a->seq - 1) || !host_scan_continues(a, a->seq))
        return;
    scan_take_end(t, t->d_state, a->ends->d_behind, head);
    scan_leave_state(t, t->s->with.d_states, head, a->seq, t->d_state);
}

static void scan_backward(const struct host_scan *s, int64_t sample, int64_t head, float *scratch)
{
    const struct zinf_scan *a = s->args;
    struct scan_tile t;
    scan_tile_init(&t, s, scratch);
    scan_begin_backward(&t, head);
    for (int64_t end = (sample + 1) * a->seq; end > sample * a->seq;) {
        if (host_scan_padding(a, end - 1)) {
            end--;
            continue;
        }
        t.c = host_scan_chunk(a, end - 1 - s->with.places[end - 1]);
        scan_backward_chunk(&t, head);
        end = t.c.first;
    }
    if (a->ends && a->ends->rows)
        scan_give_end(&t, a->ends->d_before, t.d_state, head, scan_goes_on(a));
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

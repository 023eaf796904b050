/*
 * scan: the scan of a recurrent mixer on a GPU. A block goes through the chunks of a slice of one
 * head's values, forward or in reverse, or gives all rows of a chunk and key head their gradients;
 * blocks take items in turn, each with scratch of its own, so that sums do not depend on how many
 * there are. While sequences are continued a block has a head of all rows.
 */
#include "kernels/cuda/scan.cuh"

/* ---- numbers of rows and heads ---- */

/* log(1 + e), with what 1 + e has rounded away put right by e over what is left of it. */
DEVICE float softplus(float x)
{
    const float e = expf(x > 20.0f ? 20.0f : x), sum = 1.0f + e;
    const float near_one = sum == 1.0f ? e : logf(sum) * (e / (sum - 1.0f));
    return x > 20.0f ? x : near_one;
}

DEVICE float logistic(float x)
{
    return 1.0f / (1.0f + expf(-x));
}

template <class T> DEVICE float scan_step_of(const scan_args<T> &a, int64_t row, int64_t head)
{
    return softplus(to_float(a.a[row * a.gate_ld + head]) + to_float(a.step_bias[head]));
}

template <class T> KERNEL(SCAN_THREADS) scan_numbers_kernel(scan_args<T> a)
{
    const int64_t e = (int64_t)blockIdx.x * SCAN_THREADS + threadIdx.x;
    const int64_t row = e / a.value_heads, head = e % a.value_heads;
    if (row >= a.rows)
        return;
    const float step = scan_step_of(a, row, head);
    const float low = step < a.low ? a.low : step, kept = low > a.high ? a.high : low;
    const float strength =
        a.delta ? a.most * logistic(to_float(a.b[row * a.gate_ld + head])) : kept;
    a.with.strength[e] = strength;
    a.with.decay[e] = -expf(to_float(a.a_log[head])) * (a.delta ? step : strength);
}

template <class T> KERNEL(SCAN_THREADS) scan_number_gradients_kernel(scan_args<T> a)
{
    SHARED_MEMORY(memory); /* [3][SCAN_THREADS] */
    double *sums = (double *)(void *)memory, sum[3] = {};
    const int64_t head = blockIdx.x;
    const float rate = expf(to_float(a.a_log[head])), bias = to_float(a.step_bias[head]);
    for (int64_t row = threadIdx.x; row < a.rows; row += SCAN_THREADS) {
        const int64_t at = row * a.value_heads + head, gate = row * a.gate_ld + head;
        const float d_decay = a.with.d_decay[at], d = a.with.d_strength[at];
        const float argument = to_float(a.a[gate]) + bias, step = softplus(argument);
        const bool free = a.delta || (step >= a.low && step <= a.high);
        const float d_step = (a.delta ? 0.0f : d) - d_decay * rate;
        const float da = free ? d_step * logistic(argument) : 0.0f;
        const float strength = a.with.strength[at];
        from_float(a.da[gate], da);
        if (a.delta)
            from_float(a.db[gate], d * strength * (1.0f - strength / a.most));
        sum[0] += (double)(d_decay * a.with.decay[at]);
        sum[1] += (double)da;
        sum[2] += a.delta ? 0.0 : (double)a.with.d_skip[at];
    }
    for (int i = 0; i < 3; i++)
        sums[i * SCAN_THREADS + threadIdx.x] = sum[i];
    sync_block();
    if (threadIdx.x < 3) {
        float *to = threadIdx.x == 0 ? a.d_a_log : threadIdx.x == 1 ? a.d_step_bias : a.d_skip;
        double total = 0.0;
        for (int i = 0; i < SCAN_THREADS; i++)
            total += sums[threadIdx.x * SCAN_THREADS + i];
        if (to)
            to[head] = (float)total;
    }
}

/* ---- forward ---- */

template <class T> DEVICE int64_t scan_value_ld(const scan_args<T> &a)
{
    return a.value_heads * a.value;
}

DEVICE void scan_make_written(const scan_tile &t, bool delta)
{
    const bool reads = delta && t.carried;
    if (reads)
        scan_apply(t, t.rows, t.k, t.state, t.key.n, t.value.n, false);
    for (int e = threadIdx.x; e < t.n * t.value.n; e += SCAN_THREADS) {
        const int i = scan_row_of(t.value, e);
        t.w[e] = t.strength[i] * (t.v[e] - (reads ? t.before[i] * t.rows[e] : 0.0f));
    }
    sync_block();
    if (delta)
        scan_solve(t, t.w);
}

template <class T>
DEVICE void scan_make_output(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    scan_mix(t, t.dy, t.scores, t.w, t.value.n, false, false);
    if (t.carried) {
        scan_apply(t, t.rows, t.q, t.state, t.key.n, t.value.n, false);
        scan_scale(t, t.dy, t.rows, t.before, t.value, true);
    }
    if (!a.delta) {
        const float skip = to_float(a.skip[head]);
        for (int e = threadIdx.x; e < t.n * t.value.n; e += SCAN_THREADS)
            t.dy[e] += skip * t.v[e];
        sync_block();
    }
    scan_write(t, a.y, head * a.value + t.column, scan_value_ld(a), t.dy, t.value);
}

/* Where element e of the slice's columns of a state is in all of it, [key][all values]. */
template <class T> DEVICE int scan_state_place(const scan_args<T> &a, const scan_tile &t, int e)
{
    return e + scan_row_of(t.value, e) * ((int)a.value - t.value.n) + t.column;
}

/* The slice's columns of a state, or of its gradient, to its place. */
template <class T>
DEVICE void scan_leave_state(const scan_args<T> &a, const scan_tile &t, float *to,
                             const float *from)
{
    for (int e = threadIdx.x; e < t.key.n * t.value.n; e += SCAN_THREADS)
        to[scan_state_place(a, t, e)] = from[e];
    sync_block();
}

/* And from there. */
template <class T>
DEVICE void scan_take_state(const scan_args<T> &a, const scan_tile &t, float *to, const float *from)
{
    for (int e = threadIdx.x; e < t.key.n * t.value.n; e += SCAN_THREADS)
        to[e] = from[scan_state_place(a, t, e)];
    sync_block();
}

/* A state at the ends, or 0. */
template <class T>
DEVICE void scan_give_end(const scan_args<T> &a, const scan_tile &t, int64_t head, float *to,
                          float *state, bool there)
{
    for (int e = threadIdx.x; e < t.key.n * t.value.n && !there; e += SCAN_THREADS)
        state[e] = 0.0f;
    sync_block();
    scan_leave_state(a, t, to + head * a.key * a.value, state);
}

/* Whether the first row of a piece goes on from rows in front of it. */
template <class T> DEVICE bool scan_goes_on(const scan_args<T> &a)
{
    return a.ends && scan_joined(a, 0) && !scan_padding(a, 0);
}

/* Leaves the chunk for the next piece, in whose front its next row is, unless it is complete. Its
 * state is still the one in front of it; keys are read again, since they have been scaled. The
 * first slice of a head has its numbers, and the first head of a key head its keys. */
template <class T>
DEVICE void scan_give_open(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    const int64_t heads = a.value_heads, group = heads / a.key_heads, key_head = head / group;
    const int64_t column = head * a.value + t.column, ld = a.key_heads * a.key;
    const int i = (int)threadIdx.x;
    if (head == 0 && t.column == 0 && i == 0) {
        a.left.count[0] = t.n < CHUNK ? (float)t.n : 0.0f;
        a.left.count[1] = t.carried ? 1.0f : 0.0f;
    }
    if (t.n == CHUNK)
        return;
    float *state = a.left.state + head * a.key * a.value, *keys = a.left.k + key_head * a.key;
    for (int e = i; e < t.key.n * t.value.n; e += SCAN_THREADS)
        state[scan_state_place(a, t, e)] = t.carried ? t.state[e] : 0.0f;
    for (int e = i; e < t.n * t.value.n; e += SCAN_THREADS) {
        const int row = scan_row_of(t.value, e);
        a.left.v[row * heads * a.value + column + (e - row * t.value.n)] = t.v[e];
    }
    if (t.column == 0 && i < t.n) {
        a.left.numbers[2 * i * heads + head] = scan_decay_of(a, t, i, head);
        a.left.numbers[(2 * i + 1) * heads + head] = t.strength[i];
    }
    if (t.column != 0 || head % group)
        return;
    scan_read_on(t, t.rows, a.k, key_head * a.key, a.ld, t.key, a.open.k, ld);
    for (int e = i; e < t.n * t.key.n; e += SCAN_THREADS) {
        const int row = scan_row_of(t.key, e);
        keys[row * ld + (e - row * t.key.n)] = t.rows[e];
    }
    sync_block();
}

template <class T> DEVICE void scan_advance(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    const float decay = t.before[t.n - 1];
    for (int e = threadIdx.x; e < t.key.n * t.value.n && t.carried; e += SCAN_THREADS)
        t.state[e] *= decay;
    scan_scale(t, t.rows, t.w, t.after, t.value, false);
    scan_outer(t, t.state, t.k, t.rows, t.carried);
    if (a.backward)
        scan_leave_state(a, t, scan_slot(a, a.with.states, head, t.first + t.n), t.state);
}

template <class T>
DEVICE void scan_forward_chunk(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    const int64_t column = head * a.value + t.column;
    scan_load_keys(a, t, head / (a.value_heads / a.key_heads));
    scan_load_numbers(a, t, head);
    scan_decay_pairs(t, a.delta);
    scan_read_on(t, t.v, a.v, column, a.ld, t.value, a.open.v, scan_value_ld(a));
    scan_make_written(t, a.delta);
    if (a.backward)
        scan_write(t, a.with.written, column, scan_value_ld(a), t.w, t.value);
    else if (a.y)
        scan_make_output(a, t, head);
    if (a.left.count && t.first + t.n == a.seq)
        scan_give_open(a, t, head);
    if (t.continues)
        scan_advance(a, t, head);
}

/* Item: sample, head, slice. */
template <class T> DEVICE scan_tile scan_slice(const scan_args<T> &a, int64_t item)
{
    const int64_t wide = (a.value + a.slices - 1) / a.slices, first = item % a.slices * wide;
    const int64_t value = first + wide < a.value ? wide : a.value - first;
    return scan_tile_at(a.scratch + blockIdx.x * a.scratch_floats, (int)a.key, (int)value,
                        (int)first);
}

template <class T>
DEVICE void scan_begin_forward(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    if (a.left.count && head == 0 && t.column == 0 && threadIdx.x == 0)
        a.left.count[0] = 0.0f; /* in case that the last row is padding */
    if (!scan_goes_on(a))
        return;
    scan_take_state(a, t, t.state, a.ends_before + head * a.key * a.value);
    if (a.backward)
        scan_leave_state(a, t, scan_slot(a, a.with.states, head, 0), t.state);
}

/* The chunk with the row, which is the first one that is left. */
template <class T>
DEVICE void scan_next_chunk(const scan_args<T> &a, scan_tile &t, int64_t head, int64_t row)
{
    const bool cut = row == 0 && a.open.count && scan_goes_on(a) && a.open.count[0] > 0.0f;
    scan_chunk_at(a, t, row, cut ? (int)a.open.count[0] : 0);
    if (cut)
        scan_take_state(a, t, t.state, a.open.state + head * a.key * a.value);
}

template <class T> KERNEL(SCAN_THREADS) scan_forward_kernel(scan_args<T> a)
{
    for (int64_t item = blockIdx.x; item < a.items; item += gridDim.x) {
        scan_tile t = scan_slice(a, item);
        const int64_t head = item / a.slices % a.value_heads;
        const int64_t begin = item / a.slices / a.value_heads * a.seq;
        scan_begin_forward(a, t, head);
        for (int64_t row = begin; row < begin + a.seq; row = t.first + t.n) {
            scan_next_chunk(a, t, head, row);
            if (!scan_padding(a, row)) {
                scan_forward_chunk(a, t, head);
                if (a.backward && item % (a.slices * a.value_heads) == 0 && (int)threadIdx.x < t.n)
                    a.with.places[row + threadIdx.x] = (uint8_t)threadIdx.x;
                continue;
            }
            t.n = 1;
            if (!a.backward && a.y && (int)threadIdx.x < t.value.n)
                from_float(a.y[row * scan_value_ld(a) + head * a.value + t.column + threadIdx.x],
                           0.0f);
        }
        if (a.ends_behind && !a.backward)
            scan_give_end(a, t, head, a.ends_behind, t.state, !scan_padding(a, begin + a.seq - 1));
    }
}

/* ---- backward: from the last chunk to the first ---- */

template <class T> DEVICE void scan_withdraw(const scan_args<T> &a, const scan_tile &t)
{
    const float decay = t.before[t.n - 1];
    for (int e = threadIdx.x; e < t.key.n * t.value.n && t.continues; e += SCAN_THREADS)
        t.d_state[e] *= decay;
    scan_scale(t, t.rows, t.dy, t.before, t.value, false);
    scan_outer(t, t.d_state, t.q, t.rows, t.continues);
    if (!a.delta)
        return;
    if ((int)threadIdx.x < t.n)
        t.d_strength[threadIdx.x] = -t.strength[threadIdx.x] * t.before[threadIdx.x];
    sync_block();
    scan_scale(t, t.rows, t.dw, t.d_strength, t.value, false);
    scan_outer(t, t.d_state, t.k, t.rows, true);
}

template <class T>
DEVICE void scan_backward_chunk(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    const int64_t column = head * a.value + t.column;
    scan_load_keys(a, t, head / (a.value_heads / a.key_heads));
    scan_load_numbers(a, t, head);
    scan_decay_pairs(t, a.delta);
    scan_read(t, t.dy, a.dy, column, scan_value_ld(a), t.value);
    scan_mix(t, t.dw, t.scores, t.dy, t.value.n, true, false);
    if (t.continues) {
        scan_apply(t, t.rows, t.k, t.d_state, t.key.n, t.value.n, false);
        scan_scale(t, t.dw, t.rows, t.after, t.value, true);
    }
    if (a.delta)
        scan_solve_turned(t, t.dw);
    scan_write(t, a.with.d_written, column, scan_value_ld(a), t.dw, t.value);
    if (!t.carried)
        return;
    scan_withdraw(a, t);
    scan_leave_state(a, t, scan_slot(a, a.with.d_states, head, t.first), t.d_state);
}

template <class T>
DEVICE void scan_begin_backward(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    if (!a.ends || scan_padding(a, a.seq - 1) || !scan_continues(a, a.seq))
        return;
    scan_take_state(a, t, t.d_state, a.ends_d_behind + head * a.key * a.value);
    scan_leave_state(a, t, scan_slot(a, a.with.d_states, head, a.seq), t.d_state);
}

template <class T> KERNEL(SCAN_THREADS) scan_backward_kernel(scan_args<T> a)
{
    for (int64_t item = blockIdx.x; item < a.items; item += gridDim.x) {
        scan_tile t = scan_slice(a, item);
        const int64_t head = item / a.slices % a.value_heads;
        const int64_t begin = item / a.slices / a.value_heads * a.seq;
        scan_begin_backward(a, t, head);
        for (int64_t end = begin + a.seq; end > begin;) {
            if (scan_padding(a, end - 1)) {
                end--;
                continue;
            }
            scan_chunk_at(a, t, end - 1 - a.with.places[end - 1], 0);
            scan_backward_chunk(a, t, head);
            end = t.first;
        }
        if (a.ends_rows)
            scan_give_end(a, t, head, a.ends_d_before, t.d_state, scan_goes_on(a));
    }
}

/* ---- gradients of a chunk's rows ---- */

/* By way of scores: those of queries, keys and decays. */
DEVICE void scan_score_gradients(const scan_tile &t)
{
    scan_pair(t, t.d_pairs, t.dy, t.w, t.value.n);
    for (int at = threadIdx.x; at < t.n * CHUNK; at += SCAN_THREADS) {
        const int i = at / CHUNK, j = at % CHUNK;
        if (j >= t.n)
            continue;
        const float d = j <= i ? t.d_pairs[at] * expf(t.sum[i] - t.sum[j]) : 0.0f;
        t.d_pairs[at] = d;
        t.changes[at] = j <= i ? d * t.scores[at] : 0.0f;
    }
    sync_block();
    const int i = (int)threadIdx.x;
    if (i < t.n) {
        double sum = 0.0;
        for (int j = 0; j < t.n; j++)
            sum += (double)t.changes[i * CHUNK + j] - (double)t.changes[j * CHUNK + i];
        t.d_sum[i] += sum;
    }
    scan_mix(t, t.dq, t.d_pairs, t.k, t.key.n, false, true);
    scan_mix(t, t.dk, t.d_pairs, t.q, t.key.n, true, true);
}

/* By way of the state in front of the chunk, which queries and keys read. */
DEVICE void scan_carried_gradients(const scan_tile &t, const float *state, bool delta)
{
    const int i = (int)threadIdx.x;
    float *dots = t.changes;
    scan_apply(t, t.rows, t.dy, state, t.value.n, t.key.n, true);
    scan_scale(t, t.dq, t.rows, t.before, t.key, true);
    scan_dots(t, dots, t.q, t.rows, t.key.n);
    if (i < t.n)
        t.d_sum[i] += (double)(t.before[i] * dots[i]);
    sync_block();
    if (!delta)
        return;
    scan_apply(t, t.rows, t.dw, state, t.value.n, t.key.n, true);
    scan_dots(t, dots, t.k, t.rows, t.key.n);
    if (i < t.n) {
        const float x = -t.before[i] * dots[i];
        t.d_strength[i] += x;
        t.d_sum[i] += (double)(t.strength[i] * x);
        dots[i] = -t.before[i] * t.strength[i];
    }
    sync_block();
    scan_scale(t, t.dk, t.rows, dots, t.key, true);
}

/* By way of the state behind it. state NULL: there is none in front. */
DEVICE void scan_left_gradients(const scan_tile &t, const float *state, const float *d_state)
{
    const int i = (int)threadIdx.x, warps = SCAN_THREADS / 32;
    float *dots = t.changes, *parts = t.changes + CHUNK, sum = 0.0f;
    scan_apply(t, t.rows, t.w, d_state, t.value.n, t.key.n, true);
    scan_scale(t, t.dk, t.rows, t.after, t.key, true);
    scan_dots(t, dots, t.k, t.rows, t.key.n);
    for (int e = i; state && e < t.key.n * t.value.n; e += SCAN_THREADS)
        sum += state[e] * d_state[e];
    sum = warp_sum(sum);
    if (i % 32 == 0)
        parts[i / 32] = sum;
    if (i < t.n)
        t.d_sum[i] -= (double)(t.after[i] * dots[i]);
    sync_block();
    if (i == 0) {
        double total = 0.0;
        float kept = 0.0f;
        for (int row = 0; row < t.n; row++)
            total += (double)(t.after[row] * dots[row]);
        for (int w = 0; w < warps; w++)
            kept += parts[w];
        t.d_sum[t.n - 1] += total + (double)(t.before[t.n - 1] * kept);
    }
    sync_block();
}

/* By way of A. */
DEVICE void scan_pair_gradients(const scan_tile &t)
{
    scan_pair(t, t.d_pairs, t.dw, t.w, t.value.n);
    for (int at = threadIdx.x; at < t.n * CHUNK; at += SCAN_THREADS) {
        const int i = at / CHUNK, j = at % CHUNK;
        if (j >= t.n)
            continue;
        const float d = j < i ? -t.d_pairs[at] * expf(t.sum[i] - t.sum[j]) : 0.0f;
        t.changes[at] = j < i ? d * t.pairs[at] : 0.0f;
        t.d_pairs[at] = d * t.strength[i];
    }
    sync_block();
    const int i = (int)threadIdx.x;
    if (i < t.n) {
        float own = 0.0f;
        double sum = 0.0;
        for (int j = 0; j < t.n; j++) {
            const float change = t.changes[i * CHUNK + j];
            own += change;
            sum += (double)(t.strength[i] * change) -
                   (double)(t.strength[j] * t.changes[j * CHUNK + i]);
        }
        t.d_strength[i] += own;
        t.d_sum[i] += sum;
    }
    scan_mix(t, t.dk, t.d_pairs, t.k, t.key.n, false, true);
    scan_mix(t, t.dk, t.d_pairs, t.k, t.key.n, true, true);
}

/* Of v, of s by way of it, and of skip. */
template <class T>
DEVICE void scan_value_gradients(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    const int i = (int)threadIdx.x;
    float *dots = t.changes;
    scan_dots(t, dots, t.dw, t.v, t.value.n);
    if (i < t.n)
        t.d_strength[i] += dots[i];
    scan_scale(t, t.rows, t.dw, t.strength, t.value, false);
    if (!a.delta) {
        const float skip = to_float(a.skip[head]);
        scan_dots(t, dots, t.dy, t.v, t.value.n);
        if (i < t.n)
            a.with.d_skip[(t.first + i) * a.value_heads + head] = dots[i];
        for (int e = i; e < t.n * t.value.n; e += SCAN_THREADS)
            t.rows[e] += skip * t.dy[e];
        sync_block();
    }
    scan_write(t, a.dv, head * a.value, a.ld, t.rows, t.value);
}

template <class T>
DEVICE void scan_head_gradients(const scan_args<T> &a, const scan_tile &t, int64_t head)
{
    const int64_t column = head * a.value, ld = scan_value_ld(a);
    const int i = (int)threadIdx.x;
    const float *state = t.carried ? scan_slot(a, a.with.states, head, t.first) : NULL;
    scan_load_numbers(a, t, head);
    if (i < CHUNK) {
        t.d_sum[i] = 0.0;
        t.d_strength[i] = 0.0f;
    }
    scan_read(t, t.w, a.with.written, column, ld, t.value);
    scan_read(t, t.dw, a.with.d_written, column, ld, t.value);
    scan_read(t, t.v, a.v, column, a.ld, t.value);
    scan_read(t, t.dy, a.dy, column, ld, t.value);
    scan_score_gradients(t);
    if (state)
        scan_carried_gradients(t, state, a.delta);
    if (t.continues)
        scan_left_gradients(t, state, scan_slot(a, a.with.d_states, head, t.first + t.n));
    if (a.delta)
        scan_pair_gradients(t);
    scan_value_gradients(a, t, head);
    if (i == 0) {
        double sum = 0.0;
        for (int row = t.n; row-- > 0;) {
            sum += t.d_sum[row];
            a.with.d_decay[(t.first + row) * a.value_heads + head] = (float)sum;
        }
    }
    if (i < t.n)
        a.with.d_strength[(t.first + i) * a.value_heads + head] = t.d_strength[i];
    sync_block();
}

/* Through what made a row's length 1. */
DEVICE void scan_normalise_backward(const scan_tile &t, float *d, const float *x,
                                    const float *inverse, float scale)
{
    float *along = t.changes;
    scan_dots(t, along, x, d, t.key.n);
    for (int e = threadIdx.x; e < t.n * t.key.n; e += SCAN_THREADS) {
        const int i = scan_row_of(t.key, e);
        d[e] = inverse[i] * scale * (d[e] - x[e] * (along[i] / (scale * scale)));
    }
    sync_block();
}

template <class T>
DEVICE void scan_chunk_gradients(const scan_args<T> &a, const scan_tile &t, int64_t key_head)
{
    const int64_t group = a.value_heads / a.key_heads;
    for (int e = threadIdx.x; e < t.n * t.key.n; e += SCAN_THREADS)
        t.dq[e] = t.dk[e] = 0.0f;
    scan_load_keys(a, t, key_head);
    for (int64_t head = key_head * group; head < (key_head + 1) * group; head++)
        scan_head_gradients(a, t, head);
    if (a.delta) {
        scan_normalise_backward(t, t.dk, t.k, t.k_inverse, 1.0f);
        scan_normalise_backward(t, t.dq, t.q, t.q_inverse, scan_query_scale(a.key));
    }
    scan_write(t, a.dq, key_head * a.key, a.ld, t.dq, t.key);
    scan_write(t, a.dk, key_head * a.key, a.ld, t.dk, t.key);
}

template <class T>
DEVICE void scan_clear_gradients(const scan_args<T> &a, int64_t row, int64_t key_head)
{
    const int64_t group = a.value_heads / a.key_heads, first = key_head * group, i = threadIdx.x;
    for (int64_t c = i; c < a.key; c += SCAN_THREADS) {
        from_float(a.dq[row * a.ld + key_head * a.key + c], 0.0f);
        from_float(a.dk[row * a.ld + key_head * a.key + c], 0.0f);
    }
    for (int64_t c = i; c < group * a.value; c += SCAN_THREADS)
        from_float(a.dv[row * a.ld + first * a.value + c], 0.0f);
    for (int64_t h = i; h < group; h += SCAN_THREADS) {
        const int64_t at = row * a.value_heads + first + h;
        a.with.d_decay[at] = a.with.d_strength[at] = 0.0f;
        a.with.d_skip[at] = 0.0f;
    }
}

/* Item: the chunks that begin among some rows of a sample, and a key head. */
template <class T> KERNEL(SCAN_THREADS) scan_gradients_kernel(scan_args<T> a)
{
    const int64_t pieces = (a.seq + CHUNK - 1) / CHUNK;
    for (int64_t item = blockIdx.x; item < a.items; item += gridDim.x) {
        const int64_t key_head = item % a.key_heads, sample = item / a.key_heads / pieces;
        const int64_t first = sample * a.seq + item / a.key_heads % pieces * CHUNK;
        const int64_t whole = (sample + 1) * a.seq,
                      end = first + CHUNK < whole ? first + CHUNK : whole;
        scan_tile t =
            scan_tile_at(a.scratch + blockIdx.x * a.scratch_floats, (int)a.key, (int)a.value, 0);
        for (int64_t row = first; row < end;) {
            if (scan_padding(a, row)) {
                scan_clear_gradients(a, row++, key_head);
                continue;
            }
            scan_chunk_at(a, t, row - a.with.places[row], 0);
            if (t.first >= first)
                scan_chunk_gradients(a, t, key_head);
            row = t.first + t.n;
        }
    }
}

/* ---- row by row ---- */

template <class T>
DEVICE void scan_continue_row(const scan_args<T> &a, const scan_tile &t, int64_t head, float *state)
{
    const int64_t row = t.first, at = row * a.value_heads + head;
    const float decay = expf(a.with.decay[at]), strength = a.with.strength[at];
    const float skip = a.delta ? 0.0f : to_float(a.skip[head]);
    const bool begins = a.positions[row] == 0;
    scan_load_rows(a, t, head / (a.value_heads / a.key_heads));
    for (int64_t j = threadIdx.x; j < a.value; j += SCAN_THREADS) {
        const float v = to_float(a.v[row * a.ld + head * a.value + j]);
        float seen = 0.0f, y = skip * v;
        for (int64_t i = 0; i < a.key; i++) {
            const float kept = begins ? 0.0f : decay * state[i * a.value + j];
            state[i * a.value + j] = kept;
            seen += t.k[i] * kept;
        }
        const float w = strength * (v - (a.delta ? seen : 0.0f));
        for (int64_t i = 0; i < a.key; i++) {
            const float next = state[i * a.value + j] + t.k[i] * w;
            state[i * a.value + j] = next;
            y += t.q[i] * next;
        }
        from_float(a.y[row * scan_value_ld(a) + head * a.value + j], y);
    }
    sync_block();
}

template <class T> KERNEL(SCAN_THREADS) scan_continue_kernel(scan_args<T> a)
{
    for (int64_t head = blockIdx.x; head < a.value_heads; head += gridDim.x) {
        scan_tile t =
            scan_tile_at(a.scratch + blockIdx.x * a.scratch_floats, (int)a.key, (int)a.value, 0);
        for (int64_t row = 0; row < a.rows; row++) {
            unsigned char *state = a.state + (uint64_t)a.sequences[row] * a.state_bytes;
            t.first = row;
            t.n = 1;
            scan_continue_row(a, t, head, (float *)(void *)state + head * a.key * a.value);
        }
    }
}

/* ---- launches ---- */

template <class T> static scan_args<T> scan_args_of(const struct zinf_scan *z, void *workspace)
{
    scan_args<T> a = {};
    a.q = (const T *)z->q;
    a.k = (const T *)z->k;
    a.v = (const T *)z->v;
    a.a = (const T *)z->a;
    a.b = (const T *)z->b;
    a.a_log = (const T *)z->a_log;
    a.step_bias = (const T *)z->step_bias;
    a.skip = (const T *)z->skip;
    a.dy = (const T *)z->dy;
    a.y = (T *)z->y;
    a.dq = (T *)z->dq;
    a.dk = (T *)z->dk;
    a.dv = (T *)z->dv;
    a.da = (T *)z->da;
    a.db = (T *)z->db;
    a.segments = z->segments;
    if (z->remembered) {
        a.sequences = z->remembered->sequences;
        a.positions = z->remembered->positions;
        a.state = (unsigned char *)z->remembered->state;
        a.state_bytes = z->remembered->bytes;
    }
    a.ends = z->ends != NULL;
    if (z->ends) {
        a.ends_rows = z->ends->rows;
        a.ends_before = (const float *)z->ends->before;
        a.ends_behind = (float *)z->ends->behind;
        a.ends_d_behind = z->ends->d_behind;
        a.ends_d_before = z->ends->d_before;
    }
    zinf_scan_open_place(z, &a.open, z->ends && !z->backward ? z->ends->open_before : NULL);
    zinf_scan_open_place(z, &a.left, z->ends && !z->backward ? z->ends->open_behind : NULL);
    a.d_a_log = z->d_a_log;
    a.d_step_bias = z->d_step_bias;
    a.d_skip = z->d_skip;
    a.scratch = (float *)workspace + zinf_scan_place(z, &a.with, (float *)workspace);
    a.scratch_floats = scan_scratch_floats(z);
    a.rows = z->batch * z->seq;
    a.seq = z->seq;
    a.ld = z->ld;
    a.gate_ld = z->gate_ld;
    a.key_heads = z->key_heads;
    a.value_heads = z->value_heads;
    a.key = z->key_dim;
    a.value = z->value_dim;
    a.slots = zinf_scan_slots(z);
    a.slices = (z->value_dim + SCAN_SLICE - 1) / SCAN_SLICE;
    a.low = z->step_low;
    a.high = z->step_high;
    a.most = zinf_scan_strength(z);
    a.delta = z->rule == ZINF_RECURRENCE_DELTA;
    a.backward = z->backward;
    return a;
}

template <class T>
static cudaError_t scan_pass(cudaStream_t stream, kernel_of<scan_args<T>> kernel, scan_args<T> a,
                             int64_t items)
{
    const int64_t most = SCAN_BLOCKS;
    a.items = items;
    return launch(kernel, dim3((unsigned)(items < most ? items : most)), dim3(SCAN_THREADS), 0,
                  stream, a);
}

template <class T>
static cudaError_t scan_typed(cudaStream_t stream, void *workspace, const struct zinf_scan *z)
{
    const scan_args<T> a = scan_args_of<T>(z, workspace);
    const int64_t slices = z->batch * a.value_heads * a.slices;
    const int64_t pieces = z->batch * ((a.seq + CHUNK - 1) / CHUNK);
    const dim3 numbers(blocks_for((uint64_t)(a.rows * a.value_heads), SCAN_THREADS));
    cudaError_t error =
        launch(known<scan_numbers_kernel<T>>(), numbers, dim3(SCAN_THREADS), 0, stream, a);
    if (error != cudaSuccess)
        return error;
    if (z->remembered)
        return scan_pass(stream, known<scan_continue_kernel<T>>(), a, a.value_heads);
    error = scan_pass(stream, known<scan_forward_kernel<T>>(), a, slices);
    if (error != cudaSuccess || !z->backward)
        return error;
    error = scan_pass(stream, known<scan_backward_kernel<T>>(), a, slices);
    if (error == cudaSuccess)
        error = scan_pass(stream, known<scan_gradients_kernel<T>>(), a, pieces * a.key_heads);
    if (error != cudaSuccess)
        return error;
    return launch(known<scan_number_gradients_kernel<T>>(), dim3((unsigned)a.value_heads),
                  dim3(SCAN_THREADS), 3 * SCAN_THREADS * sizeof(double), stream, a);
}

cudaError_t launch_scan(cudaStream_t stream, void *workspace, const struct zinf_scan *z)
{
    BY_DTYPE(z->dtype, return scan_typed<T>(stream, workspace, z));
}

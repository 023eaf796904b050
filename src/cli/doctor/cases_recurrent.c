/* cases_recurrent: the convolution and the scan of recurrent mixers: documents that are packed,
 * padding, texts of several chunks, and sequences that are continued. */
#include "cli/doctor/cases.h"

struct pair make_documents(struct twin *t, int64_t batch, int64_t seq)
{
    struct pair p = pair_new(t, ZINF_DTYPE_F32, (size_t)(batch * seq), 0); /* 4 bytes each */
    for (int64_t i = 0; i < batch * seq; i++) {
        const int64_t r = i % seq;
        const int32_t number = r < 1 ? 1 : r < seq - 6 ? 2 : r < seq - 4 ? 0 : r < seq - 1 ? 3 : 0;
        ((int32_t *)p.host.data)[i] = number;
    }
    pair_upload(t, &p);
    return p;
}

/* ---- convolution ---- */

struct convolution_pairs {
    struct pair x, w, b, y, dy, dx, dw, db, segments;
};

static void convolution_side(struct zinf_convolution *a, const struct convolution_pairs *p,
                             int side, bool packed)
{
    a->segments = packed ? at(&p->segments, side) : NULL;
    a->x = at(&p->x, side);
    a->w = at(&p->w, side);
    a->b = packed ? NULL : at(&p->b, side);
    a->y = at(&p->y, side);
    a->dy = at(&p->dy, side);
    a->dx = at(&p->dx, side);
    a->dw = at(&p->dw, side);
    a->db = packed ? NULL : at(&p->db, side);
}

/* Packed without a bias, or plain with one and an activation. */
void case_convolution(struct twin *t, enum zinf_dtype dtype, bool packed, int64_t width)
{
    enum { BATCH = 2, SEQ = 13, COLS = 37, LD = 41 };
    const size_t taps = (size_t)(COLS * width);
    const double ulp = 2.0 * dtype_epsilon(dtype) + 1e-5;
    const double sums = dtype == ZINF_DTYPE_F32 ? 1e-4 : 1e-3;
    struct zinf_convolution a = {.dtype = dtype,
                                 .batch = BATCH,
                                 .seq = SEQ,
                                 .cols = COLS,
                                 .ld = LD,
                                 .width = width,
                                 .silu = !packed};
    twin_case(t, "convolution", "%s, %d x %d rows of %d, %lld wide", zinf_dtype_name(dtype), BATCH,
              SEQ, COLS, (long long)width);
    struct convolution_pairs p = {
        .x = pair_random(t, dtype, BATCH * SEQ * LD, 1, 1.0f),
        .w = pair_random(t, dtype, taps, 2, 0.5f),
        .b = pair_random(t, dtype, COLS, 3, 0.5f),
        .y = pair_random(t, dtype, BATCH * SEQ * COLS, 4, 1.0f),
        .dy = pair_random(t, dtype, BATCH * SEQ * COLS, 5, 1.0f),
        .dx = pair_random(t, dtype, BATCH * SEQ * LD, 1, 1.0f), /* as x, also between the rows */
        .dw = pair_random(t, ZINF_DTYPE_F32, taps, 7, 1.0f),
        .db = pair_random(t, ZINF_DTYPE_F32, COLS, 8, 1.0f),
        .segments = make_documents(t, BATCH, SEQ),
    };
    ON_BOTH(t, (convolution_side(&a, &p, side, packed), ops->convolution_forward(q, &a)));
    ON_BOTH(t, (convolution_side(&a, &p, side, packed), ops->convolution_backward(q, &a)));
    PAIR_CHECK(t, &p.y, 1e-5, ulp);
    PAIR_CHECK(t, &p.dx, 2e-5, ulp);
    PAIR_CHECK(t, &p.dw, sums, 1e-4);
    if (!packed)
        PAIR_CHECK(t, &p.db, sums, 1e-4);
}

void case_convolution_continued(struct twin *t, enum zinf_dtype dtype)
{
    enum { COLS = 35, WIDTH = 4, ROWS = 6 };
    int32_t numbers[ROWS], places[ROWS];
    for (int r = 0; r < ROWS; r++) {
        numbers[r] = r % 2;
        places[r] = r % 2 * 9 + r / 2; /* one begins, the other goes on */
    }
    twin_case(t, "convolution", "%s, continued, %d rows of %d", zinf_dtype_name(dtype), ROWS, COLS);
    struct pair x = pair_random(t, dtype, ROWS * COLS, 1, 1.0f);
    struct pair w = pair_random(t, dtype, COLS * WIDTH, 2, 0.5f);
    struct pair y = pair_random(t, dtype, ROWS * COLS, 3, 1.0f);
    struct pair state = pair_random(t, dtype, 2 * 3 * COLS, 4, 1.0f);
    struct pair sequences = pair_numbers(t, numbers, ROWS);
    struct pair positions = pair_numbers(t, places, ROWS);
    struct zinf_remembered m = {.bytes = 3 * COLS * zinf_dtype_bytes(dtype)};
    struct zinf_convolution a = {.dtype = dtype,
                                 .batch = 1,
                                 .seq = ROWS,
                                 .cols = COLS,
                                 .ld = COLS,
                                 .width = WIDTH,
                                 .silu = true,
                                 .remembered = &m};
    ON_BOTH(t, (m.sequences = at(&sequences, side), m.positions = at(&positions, side),
                m.state = at(&state, side), a.x = at(&x, side), a.w = at(&w, side),
                a.y = at(&y, side), ops->convolution_forward(q, &a)));
    PAIR_CHECK(t, &y, 1e-5, 2.0 * dtype_epsilon(dtype) + 1e-5);
    PAIR_CHECK(t, &state, 0.0, 0.0);
}

/* ---- scan ---- */

void scan_pairs_of(struct twin *t, const struct scan_shape *c, struct scan_pairs *p)
{
    const size_t rows = (size_t)(c->batch * c->seq), heads = (size_t)c->value_heads;
    const size_t values = rows * heads * (size_t)c->value_dim, wide = rows * (size_t)scan_row(c);
    const size_t states = 2 * heads * (size_t)(c->key_dim * c->value_dim);
    const enum zinf_dtype f32 = ZINF_DTYPE_F32;
    *p = (struct scan_pairs){
        .x = pair_random(t, c->dtype, wide, 1, 0.8f),
        .gates = pair_random(t, c->dtype, rows * 2 * heads, 2, 1.0f),
        .a_log = pair_random(t, c->dtype, heads, 3, 0.5f),
        .step_bias = pair_random(t, c->dtype, heads, 4, 0.5f),
        .skip = pair_random(t, c->dtype, heads, 5, 1.0f),
        .y = pair_random(t, c->dtype, values, 6, 1.0f),
        .dy = pair_random(t, c->dtype, values, 7, 1.0f),
        .dx = pair_random(t, c->dtype, wide, 8, 1.0f),
        .d_gates = pair_new(t, c->dtype, rows * 2 * heads, 0),
        .d_a_log = pair_random(t, f32, heads, 9, 1.0f),
        .d_step_bias = pair_random(t, f32, heads, 9, 1.0f),
        .d_skip = pair_random(t, f32, heads, 9, 1.0f),
        .segments = make_documents(t, c->batch, c->seq),
        .sequences = pair_new(t, f32, rows, 0),
        .positions = pair_new(t, f32, rows, 0),
        .state = pair_random(t, f32, states, 10, 1.0f),
    };
    for (size_t i = 0; i < heads; i++) { /* decays that last for a while */
        const float slower = (float)get(&p->a_log.host, i) - 3.0f;
        zinf_convert((char *)p->a_log.host.data + i * zinf_dtype_bytes(c->dtype), c->dtype, &slower,
                     f32, 1);
    }
    pair_upload(t, &p->a_log);
}

void *scan_shift(const struct scan_shape *c, void *from, int64_t elements)
{
    return (char *)from + (uint64_t)elements * zinf_dtype_bytes(c->dtype);
}

struct zinf_scan scan_side(const struct scan_shape *c, const struct scan_pairs *p, int side)
{
    const int64_t keys = c->key_heads * c->key_dim, heads = c->value_heads;
    const bool decays = c->rule == ZINF_RECURRENCE_DECAY;
    return (struct zinf_scan){
        .rule = c->rule,
        .dtype = c->dtype,
        .batch = c->batch,
        .seq = c->seq,
        .key_heads = c->key_heads,
        .value_heads = heads,
        .key_dim = c->key_dim,
        .value_dim = c->value_dim,
        .step_low = 0.05f,
        .step_high = 1.5f,
        .strength = c->packed ? 2 : 0,
        .segments = c->packed ? at(&p->segments, side) : NULL,
        .q = at(&p->x, side),
        .k = scan_shift(c, at(&p->x, side), keys),
        .v = scan_shift(c, at(&p->x, side), 2 * keys),
        .ld = scan_row(c),
        .a = at(&p->gates, side),
        .b = scan_shift(c, at(&p->gates, side), heads),
        .gate_ld = 2 * heads,
        .a_log = at(&p->a_log, side),
        .step_bias = at(&p->step_bias, side),
        .skip = at(&p->skip, side),
        .y = at(&p->y, side),
        .dy = at(&p->dy, side),
        .dq = at(&p->dx, side),
        .dk = scan_shift(c, at(&p->dx, side), keys),
        .dv = scan_shift(c, at(&p->dx, side), 2 * keys),
        .da = at(&p->d_gates, side),
        .db = scan_shift(c, at(&p->d_gates, side), heads),
        .d_a_log = at(&p->d_a_log, side),
        .d_step_bias = at(&p->d_step_bias, side),
        .d_skip = decays ? at(&p->d_skip, side) : NULL,
    };
}

static void scan_name(struct twin *t, const struct scan_shape *c, const char *more)
{
    twin_case(t, c->rule == ZINF_RECURRENCE_DELTA ? "scan by deltas" : "scan by decays",
              "%s, %s%lld x %lld rows, %lld heads of %lld by %lld", zinf_dtype_name(c->dtype), more,
              (long long)c->batch, (long long)c->seq, (long long)c->value_heads,
              (long long)c->key_dim, (long long)c->value_dim);
}

void case_scan(struct twin *t, const struct scan_shape *c)
{
    const double ulp = 2.0 * dtype_epsilon(c->dtype) + 2e-5, sums = 1e-4 * (double)c->seq;
    struct scan_pairs p;
    struct zinf_scan a;
    scan_name(t, c, "");
    scan_pairs_of(t, c, &p);
    ON_BOTH(t, (a = scan_side(c, &p, side), ops->scan_forward(q, &a)));
    ON_BOTH(t, (a = scan_side(c, &p, side), a.backward = true, ops->scan_backward(q, &a)));
    PAIR_CHECK(t, &p.y, 2e-5, ulp);
    PAIR_CHECK(t, &p.dx, 1e-4, ulp);
    PAIR_CHECK(t, &p.d_gates, 1e-4, ulp);
    PAIR_CHECK(t, &p.d_a_log, sums, 1e-4);
    PAIR_CHECK(t, &p.d_step_bias, sums, 1e-4);
    if (c->rule == ZINF_RECURRENCE_DECAY)
        PAIR_CHECK(t, &p.d_skip, sums, 1e-4);
}

void case_scan_continued(struct twin *t, enum zinf_recurrence rule, enum zinf_dtype dtype)
{
    const struct scan_shape c = {rule, dtype, 1, 8, 1, 2, 6, 5, false};
    struct scan_pairs p;
    struct zinf_remembered m = {.bytes = 2 * 6 * 5 * sizeof(float)};
    struct zinf_scan a;
    scan_name(t, &c, "continued, ");
    scan_pairs_of(t, &c, &p);
    for (int call = 0; call < 2; call++) {
        for (int r = 0; r < 8; r++) {
            ((int32_t *)p.sequences.host.data)[r] = 1 - r % 2;
            ((int32_t *)p.positions.host.data)[r] = 4 * call + r / 2;
        }
        pair_upload(t, &p.sequences);
        pair_upload(t, &p.positions);
        ON_BOTH(t, (m.sequences = at(&p.sequences, side), m.positions = at(&p.positions, side),
                    m.state = at(&p.state, side), a = scan_side(&c, &p, side), a.remembered = &m,
                    ops->scan_forward(q, &a)));
        PAIR_CHECK(t, &p.y, 2e-5, 2.0 * dtype_epsilon(dtype) + 1e-5);
        PAIR_CHECK(t, &p.state, 1e-5, 1e-5);
    }
}

/* cuda_recurrent: the convolution and the scan of recurrent mixers, and gates that are apart, of
 * the CUDA device against the host's: documents that are packed, padding, texts of several chunks,
 * sequences that are continued, and pieces of sequences. */
#include "cuda_twin.h"

static void convolution(struct twin *t)
{
    for (int d = 0; d < 3; d++) {
        case_convolution(t, all_dtypes[d], false, 4);
        case_convolution(t, all_dtypes[d], true, d == 2 ? ZINF_CONVOLUTION_MAX_WIDTH : 3);
    }
}

static void test_convolution(void)
{
    for_each_cuda(convolution);
}

/* ---- scan ---- */

static void scan(struct twin *t)
{
    const enum zinf_dtype f32 = ZINF_DTYPE_F32, bf16 = ZINF_DTYPE_BF16, f16 = ZINF_DTYPE_F16;
    const struct scan_shape cases[] = {
        {ZINF_RECURRENCE_DELTA, f32, 2, 140, 1, 2, 9, 5, true},
        {ZINF_RECURRENCE_DECAY, f32, 1, 140, 1, 2, 7, 6, true},
        {ZINF_RECURRENCE_DELTA, bf16, 1, 130, 2, 2, 8, 37, false},
        {ZINF_RECURRENCE_DECAY, f16, 1, 20, 2, 4, 5, 8, false},
        {ZINF_RECURRENCE_DELTA, f32, 1, 1, 1, 1, 4, 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        case_scan(t, &cases[i]);
}

static void test_scan(void)
{
    for_each_cuda(scan);
}

/* A long text of slow decays and of numbers that are all positive: the state grows, the terms of a
 * decay's gradient grow with it and nearly cancel, and sums over rows are of thousands of terms of
 * one sign. Gradients of gates are what is left of such terms, so that they have the bound of short
 * scans; sums in float are seen by those over all rows. */
static void long_scan(struct twin *t, enum zinf_recurrence rule)
{
    const struct scan_shape c = {rule, ZINF_DTYPE_F32, 1, 6000, 1, 1, 1, 1, false};
    struct scan_pairs p;
    struct zinf_scan a;
    twin_case(t, "scan", "rule %d, %lld rows", (int)rule, (long long)c.seq);
    scan_pairs_of(t, &c, &p);
    const struct pair *const positive[] = {&p.x, &p.dy};
    for (int i = 0; i < 2; i++) {
        float *x = positive[i]->host.data;
        for (size_t k = 0; k < positive[i]->host.n; k++)
            x[k] = fabsf(x[k]) + 0.1f;
        pair_upload(t, positive[i]);
    }
    *(float *)p.a_log.host.data = -6.0f;
    pair_upload(t, &p.a_log);
    ON_BOTH(t, (a = scan_side(&c, &p, side), a.backward = true, ops->scan_backward(q, &a)));
    PAIR_CHECK(t, &p.d_gates, 1e-4, 2e-5);
    PAIR_CHECK(t, &p.d_a_log, 0.0, 1e-6);
    PAIR_CHECK(t, &p.d_step_bias, 0.0, 1e-6);
    if (rule == ZINF_RECURRENCE_DECAY)
        PAIR_CHECK(t, &p.d_skip, 0.0, 0x1p-23);
}

static void long_scans(struct twin *t)
{
    long_scan(t, ZINF_RECURRENCE_DELTA);
    long_scan(t, ZINF_RECURRENCE_DECAY);
}

static void test_long_texts(void)
{
    for_each_cuda(long_scans);
}

static void continued(struct twin *t)
{
    for (int d = 0; d < 3; d++) {
        case_scan_continued(t, d % 2 ? ZINF_RECURRENCE_DECAY : ZINF_RECURRENCE_DELTA,
                            all_dtypes[d]);
        case_convolution_continued(t, all_dtypes[d]);
    }
}

static void test_sequences_go_on(void)
{
    for_each_cuda(continued);
}

/* ---- pieces of a sequence: its rows but the first and the last ---- */

struct end_pairs {
    struct pair before, behind, d_behind, d_before;
};

static struct end_pairs end_pairs_of(struct twin *t, enum zinf_dtype dtype, size_t n)
{
    return (struct end_pairs){.before = pair_random(t, dtype, n, 11, 1.0f),
                              .behind = pair_random(t, dtype, n, 12, 1.0f),
                              .d_behind = pair_random(t, ZINF_DTYPE_F32, n, 13, 1.0f),
                              .d_before = pair_random(t, ZINF_DTYPE_F32, n, 14, 1.0f)};
}

static struct zinf_ends ends_side(const struct end_pairs *p, int side)
{
    return (struct zinf_ends){.rows = 1,
                              .before = at(&p->before, side),
                              .behind = at(&p->behind, side),
                              .d_behind = at(&p->d_behind, side),
                              .d_before = at(&p->d_before, side)};
}

/* From its second row on. */
static struct zinf_scan piece_of(const struct scan_shape *c, struct zinf_scan a,
                                 const struct zinf_ends *ends)
{
    const int64_t values = c->value_heads * c->value_dim;
    a.seq = c->seq - 2;
    a.segments += a.segments ? 1 : 0;
    a.q = scan_shift(c, (void *)(uintptr_t)a.q, a.ld);
    a.k = scan_shift(c, (void *)(uintptr_t)a.k, a.ld);
    a.v = scan_shift(c, (void *)(uintptr_t)a.v, a.ld);
    a.a = scan_shift(c, (void *)(uintptr_t)a.a, a.gate_ld);
    a.b = scan_shift(c, (void *)(uintptr_t)a.b, a.gate_ld);
    a.y = scan_shift(c, a.y, values);
    a.dy = scan_shift(c, (void *)(uintptr_t)a.dy, values);
    a.dq = scan_shift(c, a.dq, a.ld);
    a.dk = scan_shift(c, a.dk, a.ld);
    a.dv = scan_shift(c, a.dv, a.ld);
    a.da = scan_shift(c, a.da, a.gate_ld);
    a.db = scan_shift(c, a.db, a.gate_ld);
    a.ends = ends;
    return a;
}

static void scan_piece(struct twin *t, const struct scan_shape *c)
{
    struct scan_pairs p;
    twin_case(t, "a piece of a scan", "%s, %lld rows", zinf_dtype_name(c->dtype),
              (long long)c->seq);
    scan_pairs_of(t, c, &p);
    struct end_pairs e =
        end_pairs_of(t, ZINF_DTYPE_F32, (size_t)(c->value_heads * c->key_dim * c->value_dim));
    const double ulp = 2.0 * dtype_epsilon(c->dtype) + 2e-5, sums = 1e-4 * (double)c->seq;
    struct zinf_scan a;
    struct zinf_ends ends;
    ON_BOTH(t, (ends = ends_side(&e, side), a = piece_of(c, scan_side(c, &p, side), &ends),
                ops->scan_forward(q, &a)));
    PAIR_CHECK(t, &e.behind, 2e-5, 2e-5);
    ON_BOTH(t, (ends = ends_side(&e, side), a = piece_of(c, scan_side(c, &p, side), &ends),
                a.y = NULL, ops->scan_forward(q, &a)));
    ON_BOTH(t, (ends = ends_side(&e, side), a = piece_of(c, scan_side(c, &p, side), &ends),
                a.backward = true, ops->scan_backward(q, &a)));
    PAIR_CHECK(t, &p.y, 2e-5, ulp);
    PAIR_CHECK(t, &p.dx, 1e-4, ulp);
    PAIR_CHECK(t, &p.d_gates, 1e-4, ulp);
    PAIR_CHECK(t, &p.d_a_log, sums, 1e-4);
    PAIR_CHECK(t, &e.behind, 2e-5, 2e-5);
    PAIR_CHECK(t, &e.d_before, 1e-4, 2e-5);
}

/* The rows [first, end). */
static struct zinf_scan rows_of(const struct scan_shape *c, struct zinf_scan a, int64_t first,
                                int64_t end)
{
    a.seq = end - first;
    a.segments += a.segments ? first : 0;
    a.q = scan_shift(c, (void *)(uintptr_t)a.q, first * a.ld);
    a.k = scan_shift(c, (void *)(uintptr_t)a.k, first * a.ld);
    a.v = scan_shift(c, (void *)(uintptr_t)a.v, first * a.ld);
    a.a = scan_shift(c, (void *)(uintptr_t)a.a, first * a.gate_ld);
    a.b = scan_shift(c, (void *)(uintptr_t)a.b, first * a.gate_ld);
    a.y = scan_shift(c, a.y, first * c->value_heads * c->value_dim);
    return a;
}

/* Pieces whose borders cut chunks of the scan. */
static void scan_cut(struct twin *t, const struct scan_shape *c)
{
    enum { PIECES = 3 };
    const int64_t cuts[PIECES + 1] = {0, 40, 45, c->seq};
    const size_t state = (size_t)(c->value_heads * c->key_dim * c->value_dim);
    struct scan_pairs p;
    twin_case(t, "a scan in pieces", "%s, %lld rows", zinf_dtype_name(c->dtype), (long long)c->seq);
    scan_pairs_of(t, c, &p);
    struct pair states[PIECES], open[PIECES];
    const double ulp = 2.0 * dtype_epsilon(c->dtype) + 2e-5;
    struct zinf_scan_open places;
    struct zinf_scan a = scan_side(c, &p, 0);
    struct zinf_ends ends;
    const size_t floats = (size_t)zinf_scan_open_place(&a, &places, NULL);
    for (int i = 0; i < PIECES; i++) {
        states[i] = pair_random(t, ZINF_DTYPE_F32, state, 11, 1.0f);
        open[i] = pair_random(t, ZINF_DTYPE_F32, floats, 12, 1.0f);
        ON_BOTH(t, (ends = (struct zinf_ends){.rows = cuts[i],
                                              .before = i ? at(&states[i - 1], side) : NULL,
                                              .open_before = i ? at(&open[i - 1], side) : NULL,
                                              .behind = at(&states[i], side),
                                              .open_behind = at(&open[i], side)},
                    a = rows_of(c, scan_side(c, &p, side), cuts[i], cuts[i + 1]), a.ends = &ends,
                    ops->scan_forward(q, &a)));
        PAIR_CHECK(t, &states[i], 2e-5, 2e-5);
        PAIR_CHECK(t, &open[i], 2e-5, 2e-5);
    }
    PAIR_CHECK(t, &p.y, 2e-5, ulp);
}

static void convolution_piece(struct twin *t, enum zinf_dtype dtype, int64_t rows, bool packed)
{
    enum { COLS = 35, WIDTH = 4 };
    const size_t n = (size_t)((rows + 2) * COLS);
    twin_case(t, "a piece of a convolution", "%s, %lld rows", zinf_dtype_name(dtype),
              (long long)rows);
    struct pair x = pair_random(t, dtype, n, 1, 1.0f);
    struct pair w = pair_random(t, dtype, COLS * WIDTH, 2, 0.5f);
    struct pair y = pair_random(t, dtype, n, 3, 1.0f);
    struct pair dy = pair_random(t, dtype, n, 4, 1.0f);
    struct pair dx = pair_random(t, dtype, n, 5, 1.0f);
    struct pair dw = pair_random(t, ZINF_DTYPE_F32, COLS * WIDTH, 6, 1.0f);
    struct pair segments = make_documents(t, 1, rows + 2);
    struct end_pairs e = end_pairs_of(t, dtype, (WIDTH - 1) * COLS);
    const double ulp = 2.0 * dtype_epsilon(dtype) + 1e-5;
    struct zinf_ends ends;
#define ROW(pair) ((char *)at(pair, side) + COLS * zinf_dtype_bytes(dtype))
#define CASE                                                                                       \
    &(struct zinf_convolution){.dtype = dtype,                                                     \
                               .batch = 1,                                                         \
                               .seq = rows,                                                        \
                               .cols = COLS,                                                       \
                               .ld = COLS,                                                         \
                               .width = WIDTH,                                                     \
                               .silu = true,                                                       \
                               .segments = packed ? (int32_t *)at(&segments, side) + 1 : NULL,     \
                               .x = ROW(&x),                                                       \
                               .w = at(&w, side),                                                  \
                               .y = ROW(&y),                                                       \
                               .dy = ROW(&dy),                                                     \
                               .dx = ROW(&dx),                                                     \
                               .dw = at(&dw, side),                                                \
                               .ends = &ends}
    ON_BOTH(t, (ends = ends_side(&e, side), ops->convolution_forward(q, CASE)));
    ON_BOTH(t, (ends = ends_side(&e, side), ops->convolution_backward(q, CASE)));
#undef CASE
#undef ROW
    PAIR_CHECK(t, &y, 1e-5, ulp);
    PAIR_CHECK(t, &dx, 2e-5, ulp);
    PAIR_CHECK(t, &dw, 1e-3, 1e-4);
    PAIR_CHECK(t, &e.behind, 0.0, 0.0);
    PAIR_CHECK(t, &e.d_before, 2e-5, 1e-5);
}

static void pieces(struct twin *t)
{
    const enum zinf_dtype f32 = ZINF_DTYPE_F32, bf16 = ZINF_DTYPE_BF16, f16 = ZINF_DTYPE_F16;
    const struct scan_shape cases[] = {
        {ZINF_RECURRENCE_DELTA, f32, 1, 72, 1, 2, 9, 35, true},
        {ZINF_RECURRENCE_DECAY, f32, 1, 70, 1, 2, 7, 6, false},
        {ZINF_RECURRENCE_DELTA, bf16, 1, 20, 2, 2, 8, 5, false},
        {ZINF_RECURRENCE_DECAY, f16, 1, 20, 2, 4, 5, 8, true},
    };
    const struct scan_shape cut[] = {
        {ZINF_RECURRENCE_DELTA, f32, 1, 72, 1, 2, 9, 35, true},
        {ZINF_RECURRENCE_DECAY, f32, 1, 70, 2, 4, 7, 6, false},
        {ZINF_RECURRENCE_DELTA, bf16, 1, 64, 2, 2, 8, 5, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        scan_piece(t, &cases[i]);
    for (size_t i = 0; i < sizeof cut / sizeof *cut; i++)
        scan_cut(t, &cut[i]);
    for (int d = 0; d < 3; d++) {
        convolution_piece(t, all_dtypes[d], 11, d != 1);
        convolution_piece(t, all_dtypes[d], 2, d == 1);
    }
}

static void test_pieces(void)
{
    for_each_cuda(pieces);
}

/* ---- gates apart ---- */

static void gates(struct twin *t)
{
    enum { ROWS = 7, COLS = 40, LD = 48 };
    for (int d = 0; d < 3; d++) {
        const enum zinf_dtype dtype = all_dtypes[d];
        twin_case(t, "gates apart", "%s", zinf_dtype_name(dtype));
        struct pair x = pair_random(t, dtype, ROWS * LD, 1, 2.0f);
        struct pair up = pair_random(t, dtype, ROWS * COLS, 2, 1.0f);
        struct pair y = pair_random(t, dtype, ROWS * COLS, 3, 1.0f);
        struct pair dy = pair_random(t, dtype, ROWS * COLS, 4, 1.0f);
        struct pair dx = pair_random(t, dtype, ROWS * LD, 1, 2.0f); /* as x */
        struct zinf_gated a = {.kind = d ? ZINF_ACTIVATION_SIGMOID : ZINF_ACTIVATION_SILU,
                               .dtype = dtype,
                               .rows = ROWS,
                               .cols = COLS,
                               .gate_ld = LD};
        ON_BOTH(t,
                (a.x = at(&x, side), a.up = at(&up, side), a.y = at(&y, side), a.dy = at(&dy, side),
                 a.dx = at(&dx, side), a.d_up = at(&dy, side), ops->gated_forward(q, &a)));
        ON_BOTH(t, (a.x = at(&x, side), a.up = at(&up, side), a.y = NULL, a.dy = at(&dy, side),
                    a.dx = at(&dx, side), a.d_up = at(&dy, side), ops->gated_backward(q, &a)));
        const double ulp = 2.0 * dtype_epsilon(dtype) + 1e-5;
        PAIR_CHECK(t, &y, 1e-5, ulp);
        PAIR_CHECK(t, &dx, 1e-5, ulp);
        PAIR_CHECK(t, &dy, 1e-5, ulp); /* the gradient of what is multiplied, in its place */
    }
}

static void test_gates_apart(void)
{
    for_each_cuda(gates);
}

int main(void)
{
    TAP_RUN(test_convolution);
    TAP_RUN(test_scan);
    TAP_RUN(test_long_texts);
    TAP_RUN(test_sequences_go_on);
    TAP_RUN(test_pieces);
    TAP_RUN(test_gates_apart);
    return tap_done();
}

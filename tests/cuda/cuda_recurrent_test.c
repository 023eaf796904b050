/* cuda_recurrent: the convolution and the scan of recurrent mixers, and gates that are apart, of
 * the CUDA device against the host's: documents that are packed, padding, texts of several chunks,
 * sequences that are continued, and pieces of sequences. */
#include "cuda_twin.h"

/* Documents of one row, of more than a chunk, and padding in between and behind. */
static struct tensor make_documents(int64_t batch, int64_t seq)
{
    struct tensor t = tensor_new(ZINF_DTYPE_F32, (size_t)(batch * seq));
    int32_t *segments = t.data;
    for (int64_t i = 0; i < batch * seq; i++) {
        const int64_t r = i % seq;
        segments[i] = (int32_t)(r < 1         ? 1
                                : r < seq - 6 ? 2
                                : r < seq - 4 ? 0
                                : r < seq - 1 ? 3
                                              : 0);
    }
    return t;
}

static void free_pairs(struct twin *t, struct pair *const *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        pair_free(all[i]);
    twin_reset(t);
}

/* ---- convolution ---- */

static void convolution_case(struct twin *t, enum zinf_dtype dtype, bool packed, int64_t width)
{
    enum { BATCH = 2, SEQ = 13, COLS = 37, LD = 41 };
    const bool biased = !packed;
    struct pair x = pair_of(t, tensor_random(dtype, BATCH * SEQ * LD, 1, 1.0f));
    struct pair w = pair_of(t, tensor_random(dtype, (size_t)(COLS * width), 2, 0.5f));
    struct pair b = pair_of(t, tensor_random(dtype, COLS, 3, 0.5f));
    struct pair y = pair_of(t, tensor_random(dtype, BATCH * SEQ * COLS, 4, 1.0f));
    struct pair dy = pair_of(t, tensor_random(dtype, BATCH * SEQ * COLS, 5, 1.0f));
    struct pair dx = pair_of(t, tensor_random(dtype, BATCH * SEQ * LD, 6, 1.0f));
    struct pair dw = pair_of(t, tensor_random(ZINF_DTYPE_F32, (size_t)(COLS * width), 7, 1.0f));
    struct pair db = pair_of(t, tensor_random(ZINF_DTYPE_F32, COLS, 8, 1.0f));
    struct pair segments = pair_of(t, make_documents(BATCH, SEQ));
    struct pair *const all[] = {&x, &w, &b, &y, &dy, &dx, &dw, &db, &segments};
    const double ulp = 2.0 * dtype_epsilon(dtype) + 1e-5;
    memcpy(dx.host.data, x.host.data, x.host.n * zinf_dtype_bytes(dtype));
    twin_transfer(t, dx.device, dx.host.data, dx.host.n * zinf_dtype_bytes(dtype), true);
#define CASE                                                                                       \
    &(struct zinf_convolution){.dtype = dtype,                                                     \
                               .batch = BATCH,                                                     \
                               .seq = SEQ,                                                         \
                               .cols = COLS,                                                       \
                               .ld = LD,                                                           \
                               .width = width,                                                     \
                               .silu = biased,                                                     \
                               .segments = packed ? at(&segments, side) : NULL,                    \
                               .x = at(&x, side),                                                  \
                               .w = at(&w, side),                                                  \
                               .b = biased ? at(&b, side) : NULL,                                  \
                               .y = at(&y, side),                                                  \
                               .dy = at(&dy, side),                                                \
                               .dx = at(&dx, side),                                                \
                               .dw = at(&dw, side),                                                \
                               .db = biased ? at(&db, side) : NULL}
    ON_BOTH(t, ops->convolution_forward(q, CASE));
    ON_BOTH(t, ops->convolution_backward(q, CASE));
#undef CASE
    PAIR_CHECK(t, &y, 1e-5, ulp);
    PAIR_CHECK(t, &dx, 2e-5, ulp);
    PAIR_CHECK(t, &dw, dtype == ZINF_DTYPE_F32 ? 1e-4 : 1e-3, 1e-4);
    if (biased)
        PAIR_CHECK(t, &db, dtype == ZINF_DTYPE_F32 ? 1e-4 : 1e-3, 1e-4);
    free_pairs(t, all, sizeof all / sizeof *all);
}

static void convolution(struct twin *t)
{
    for (int d = 0; d < 3; d++) {
        convolution_case(t, all_dtypes[d], false, 4);
        convolution_case(t, all_dtypes[d], true, d == 2 ? ZINF_CONVOLUTION_MAX_WIDTH : 3);
    }
}

static void test_convolution(void)
{
    for_each_cuda(convolution);
}

/* ---- scan ---- */

struct scan_pairs {
    struct pair x, gates, a_log, step_bias, skip, y, dy, dx, d_gates, d_a_log, d_step_bias, d_skip;
    struct pair segments, sequences, positions, state;
};
enum { SCAN_PAIRS = sizeof(struct scan_pairs) / sizeof(struct pair) };

struct scan_case {
    enum zinf_recurrence rule;
    enum zinf_dtype dtype;
    int64_t batch, seq, key_heads, value_heads, key_dim, value_dim;
    bool packed;
};

static int64_t row_of(const struct scan_case *c)
{
    return 2 * c->key_heads * c->key_dim + c->value_heads * c->value_dim;
}

static struct scan_pairs scan_pairs_of(struct twin *t, const struct scan_case *c)
{
    const size_t rows = (size_t)(c->batch * c->seq), heads = (size_t)c->value_heads;
    const size_t values = rows * heads * (size_t)c->value_dim, wide = rows * (size_t)row_of(c);
    const enum zinf_dtype f32 = ZINF_DTYPE_F32;
    struct tensor slow = tensor_random(c->dtype, heads, 3, 0.5f);
    for (size_t i = 0; i < heads; i++) {
        const float less = (float)get(&slow, i) - 3.0f;
        zinf_convert((char *)slow.data + i * zinf_dtype_bytes(c->dtype), c->dtype, &less, f32, 1);
    }
    return (struct scan_pairs){
        .x = pair_of(t, tensor_random(c->dtype, wide, 1, 0.8f)),
        .gates = pair_of(t, tensor_random(c->dtype, rows * 2 * heads, 2, 1.0f)),
        .a_log = pair_of(t, slow),
        .step_bias = pair_of(t, tensor_random(c->dtype, heads, 4, 0.5f)),
        .skip = pair_of(t, tensor_random(c->dtype, heads, 5, 1.0f)),
        .y = pair_of(t, tensor_random(c->dtype, values, 6, 1.0f)),
        .dy = pair_of(t, tensor_random(c->dtype, values, 7, 1.0f)),
        .dx = pair_of(t, tensor_random(c->dtype, wide, 8, 1.0f)),
        .d_gates = pair_of(t, tensor_new(c->dtype, rows * 2 * heads)),
        .d_a_log = pair_of(t, tensor_random(f32, heads, 9, 1.0f)),
        .d_step_bias = pair_of(t, tensor_random(f32, heads, 9, 1.0f)),
        .d_skip = pair_of(t, tensor_random(f32, heads, 9, 1.0f)),
        .segments = pair_of(t, make_documents(c->batch, c->seq)),
        .sequences = pair_of(t, tensor_new(f32, rows)),
        .positions = pair_of(t, tensor_new(f32, rows)),
        .state = pair_of(
            t, tensor_random(f32, 2 * heads * (size_t)(c->key_dim * c->value_dim), 10, 1.0f)),
    };
}

static void *shift(const struct scan_case *c, void *from, int64_t elements)
{
    return (char *)from + (uint64_t)elements * zinf_dtype_bytes(c->dtype);
}

static struct zinf_scan scan_side(const struct scan_case *c, const struct scan_pairs *p, int side)
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
        .k = shift(c, at(&p->x, side), keys),
        .v = shift(c, at(&p->x, side), 2 * keys),
        .ld = row_of(c),
        .a = at(&p->gates, side),
        .b = shift(c, at(&p->gates, side), heads),
        .gate_ld = 2 * heads,
        .a_log = at(&p->a_log, side),
        .step_bias = at(&p->step_bias, side),
        .skip = at(&p->skip, side),
        .y = at(&p->y, side),
        .dy = at(&p->dy, side),
        .dq = at(&p->dx, side),
        .dk = shift(c, at(&p->dx, side), keys),
        .dv = shift(c, at(&p->dx, side), 2 * keys),
        .da = at(&p->d_gates, side),
        .db = shift(c, at(&p->d_gates, side), heads),
        .d_a_log = at(&p->d_a_log, side),
        .d_step_bias = at(&p->d_step_bias, side),
        .d_skip = decays ? at(&p->d_skip, side) : NULL,
    };
}

static void scan_check(struct twin *t, const struct scan_case *c)
{
    struct scan_pairs p = scan_pairs_of(t, c);
    struct pair *all[SCAN_PAIRS];
    const double ulp = 2.0 * dtype_epsilon(c->dtype) + 2e-5, sums = 1e-4 * (double)c->seq;
    struct zinf_scan a;
    for (int i = 0; i < SCAN_PAIRS; i++)
        all[i] = (struct pair *)&p + i;
    ON_BOTH(t, (a = scan_side(c, &p, side), ops->scan_forward(q, &a)));
    ON_BOTH(t, (a = scan_side(c, &p, side), a.backward = true, ops->scan_backward(q, &a)));
    PAIR_CHECK(t, &p.y, 2e-5, ulp);
    PAIR_CHECK(t, &p.dx, 1e-4, ulp);
    PAIR_CHECK(t, &p.d_gates, 1e-4, ulp);
    PAIR_CHECK(t, &p.d_a_log, sums, 1e-4);
    PAIR_CHECK(t, &p.d_step_bias, sums, 1e-4);
    if (c->rule == ZINF_RECURRENCE_DECAY)
        PAIR_CHECK(t, &p.d_skip, sums, 1e-4);
    free_pairs(t, all, SCAN_PAIRS);
}

static void scan(struct twin *t)
{
    const enum zinf_dtype f32 = ZINF_DTYPE_F32, bf16 = ZINF_DTYPE_BF16, f16 = ZINF_DTYPE_F16;
    const struct scan_case cases[] = {
        {ZINF_RECURRENCE_DELTA, f32, 2, 140, 1, 2, 9, 5, true},
        {ZINF_RECURRENCE_DECAY, f32, 1, 140, 1, 2, 7, 6, true},
        {ZINF_RECURRENCE_DELTA, bf16, 1, 130, 2, 2, 8, 37, false},
        {ZINF_RECURRENCE_DECAY, f16, 1, 20, 2, 4, 5, 8, false},
        {ZINF_RECURRENCE_DELTA, f32, 1, 1, 1, 1, 4, 4, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        scan_check(t, &cases[i]);
}

static void test_scan(void)
{
    for_each_cuda(scan);
}

/* Two sequences whose rows come in turns, over two calls: their states are carried. */
static void continued_case(struct twin *t, enum zinf_recurrence rule, enum zinf_dtype dtype)
{
    const struct scan_case c = {rule, dtype, 1, 8, 1, 2, 6, 5, false};
    struct scan_pairs p = scan_pairs_of(t, &c);
    struct pair *all[SCAN_PAIRS];
    for (int i = 0; i < SCAN_PAIRS; i++)
        all[i] = (struct pair *)&p + i;
    for (int call = 0; call < 2; call++) {
        for (int r = 0; r < 8; r++) {
            ((int32_t *)p.sequences.host.data)[r] = 1 - r % 2;
            ((int32_t *)p.positions.host.data)[r] = 4 * call + r / 2;
        }
        twin_transfer(t, p.sequences.device, p.sequences.host.data, 32, true);
        twin_transfer(t, p.positions.device, p.positions.host.data, 32, true);
        struct zinf_scan a;
        struct zinf_remembered m;
        ON_BOTH(t, (m = (struct zinf_remembered){at(&p.sequences, side), at(&p.positions, side),
                                                 at(&p.state, side), 2 * 6 * 5 * 4},
                    a = scan_side(&c, &p, side), a.remembered = &m, ops->scan_forward(q, &a)));
        PAIR_CHECK(t, &p.y, 2e-5, 2.0 * dtype_epsilon(dtype) + 1e-5);
        PAIR_CHECK(t, &p.state, 1e-5, 1e-5);
    }
    free_pairs(t, all, SCAN_PAIRS);
}

static void convolution_continued(struct twin *t, enum zinf_dtype dtype)
{
    enum { COLS = 35, WIDTH = 4, ROWS = 6 };
    struct pair x = pair_of(t, tensor_random(dtype, ROWS * COLS, 1, 1.0f));
    struct pair w = pair_of(t, tensor_random(dtype, COLS * WIDTH, 2, 0.5f));
    struct pair y = pair_of(t, tensor_random(dtype, ROWS * COLS, 3, 1.0f));
    struct pair state = pair_of(t, tensor_random(dtype, 2 * 3 * COLS, 4, 1.0f));
    struct tensor sequence = tensor_new(ZINF_DTYPE_F32, ROWS), position = tensor_copy(&sequence);
    for (int r = 0; r < ROWS; r++) {
        ((int32_t *)sequence.data)[r] = r % 2;
        ((int32_t *)position.data)[r] = r % 2 * 9 + r / 2; /* one begins, the other goes on */
    }
    struct pair sequences = pair_of(t, sequence), positions = pair_of(t, position);
    struct pair *const all[] = {&x, &w, &y, &state, &sequences, &positions};
    struct zinf_remembered m;
    ON_BOTH(t, (m = (struct zinf_remembered){at(&sequences, side), at(&positions, side),
                                             at(&state, side), 3 * COLS * zinf_dtype_bytes(dtype)},
                ops->convolution_forward(q, &(struct zinf_convolution){.dtype = dtype,
                                                                       .batch = 1,
                                                                       .seq = ROWS,
                                                                       .cols = COLS,
                                                                       .ld = COLS,
                                                                       .width = WIDTH,
                                                                       .silu = true,
                                                                       .x = at(&x, side),
                                                                       .w = at(&w, side),
                                                                       .y = at(&y, side),
                                                                       .remembered = &m})));
    PAIR_CHECK(t, &y, 1e-5, 2.0 * dtype_epsilon(dtype) + 1e-5);
    PAIR_CHECK(t, &state, 0.0, 0.0);
    free_pairs(t, all, sizeof all / sizeof *all);
}

static void continued(struct twin *t)
{
    for (int d = 0; d < 3; d++) {
        continued_case(t, d % 2 ? ZINF_RECURRENCE_DECAY : ZINF_RECURRENCE_DELTA, all_dtypes[d]);
        convolution_continued(t, all_dtypes[d]);
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
    return (struct end_pairs){.before = pair_of(t, tensor_random(dtype, n, 11, 1.0f)),
                              .behind = pair_of(t, tensor_random(dtype, n, 12, 1.0f)),
                              .d_behind = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 13, 1.0f)),
                              .d_before = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, 14, 1.0f))};
}

static struct zinf_ends ends_side(const struct end_pairs *p, int side)
{
    return (struct zinf_ends){.rows = 1,
                              .before = at(&p->before, side),
                              .behind = at(&p->behind, side),
                              .d_behind = at(&p->d_behind, side),
                              .d_before = at(&p->d_before, side)};
}

static void end_pairs_free(struct end_pairs *p)
{
    struct pair *const all[] = {&p->before, &p->behind, &p->d_behind, &p->d_before};
    for (int i = 0; i < 4; i++)
        pair_free(all[i]);
}

/* From its second row on. */
static struct zinf_scan piece_of(const struct scan_case *c, struct zinf_scan a,
                                 const struct zinf_ends *ends)
{
    const int64_t values = c->value_heads * c->value_dim;
    a.seq = c->seq - 2;
    a.segments += a.segments ? 1 : 0;
    a.q = shift(c, (void *)(uintptr_t)a.q, a.ld);
    a.k = shift(c, (void *)(uintptr_t)a.k, a.ld);
    a.v = shift(c, (void *)(uintptr_t)a.v, a.ld);
    a.a = shift(c, (void *)(uintptr_t)a.a, a.gate_ld);
    a.b = shift(c, (void *)(uintptr_t)a.b, a.gate_ld);
    a.y = shift(c, a.y, values);
    a.dy = shift(c, (void *)(uintptr_t)a.dy, values);
    a.dq = shift(c, a.dq, a.ld);
    a.dk = shift(c, a.dk, a.ld);
    a.dv = shift(c, a.dv, a.ld);
    a.da = shift(c, a.da, a.gate_ld);
    a.db = shift(c, a.db, a.gate_ld);
    a.ends = ends;
    return a;
}

static void scan_piece(struct twin *t, const struct scan_case *c)
{
    struct scan_pairs p = scan_pairs_of(t, c);
    struct end_pairs e =
        end_pairs_of(t, ZINF_DTYPE_F32, (size_t)(c->value_heads * c->key_dim * c->value_dim));
    struct pair *all[SCAN_PAIRS];
    const double ulp = 2.0 * dtype_epsilon(c->dtype) + 2e-5, sums = 1e-4 * (double)c->seq;
    struct zinf_scan a;
    struct zinf_ends ends;
    for (int i = 0; i < SCAN_PAIRS; i++)
        all[i] = (struct pair *)&p + i;
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
    end_pairs_free(&e);
    free_pairs(t, all, SCAN_PAIRS);
}

/* The rows [first, end). */
static struct zinf_scan rows_of(const struct scan_case *c, struct zinf_scan a, int64_t first,
                                int64_t end)
{
    a.seq = end - first;
    a.segments += a.segments ? first : 0;
    a.q = shift(c, (void *)(uintptr_t)a.q, first * a.ld);
    a.k = shift(c, (void *)(uintptr_t)a.k, first * a.ld);
    a.v = shift(c, (void *)(uintptr_t)a.v, first * a.ld);
    a.a = shift(c, (void *)(uintptr_t)a.a, first * a.gate_ld);
    a.b = shift(c, (void *)(uintptr_t)a.b, first * a.gate_ld);
    a.y = shift(c, a.y, first * c->value_heads * c->value_dim);
    return a;
}

/* Pieces whose borders cut chunks of the scan. */
static void scan_cut(struct twin *t, const struct scan_case *c)
{
    enum { PIECES = 3 };
    const int64_t cuts[PIECES + 1] = {0, 40, 45, c->seq};
    const size_t state = (size_t)(c->value_heads * c->key_dim * c->value_dim);
    struct scan_pairs p = scan_pairs_of(t, c);
    struct pair states[PIECES], open[PIECES], *all[SCAN_PAIRS];
    const double ulp = 2.0 * dtype_epsilon(c->dtype) + 2e-5;
    struct zinf_scan_open places;
    struct zinf_scan a = scan_side(c, &p, 0);
    struct zinf_ends ends;
    const size_t floats = (size_t)zinf_scan_open_place(&a, &places, NULL);
    for (int i = 0; i < SCAN_PAIRS; i++)
        all[i] = (struct pair *)&p + i;
    for (int i = 0; i < PIECES; i++) {
        states[i] = pair_of(t, tensor_random(ZINF_DTYPE_F32, state, 11, 1.0f));
        open[i] = pair_of(t, tensor_random(ZINF_DTYPE_F32, floats, 12, 1.0f));
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
    for (int i = 0; i < PIECES; i++) {
        pair_free(&states[i]);
        pair_free(&open[i]);
    }
    free_pairs(t, all, SCAN_PAIRS);
}

static void convolution_piece(struct twin *t, enum zinf_dtype dtype, int64_t rows, bool packed)
{
    enum { COLS = 35, WIDTH = 4 };
    const size_t n = (size_t)((rows + 2) * COLS);
    struct pair x = pair_of(t, tensor_random(dtype, n, 1, 1.0f));
    struct pair w = pair_of(t, tensor_random(dtype, COLS * WIDTH, 2, 0.5f));
    struct pair y = pair_of(t, tensor_random(dtype, n, 3, 1.0f));
    struct pair dy = pair_of(t, tensor_random(dtype, n, 4, 1.0f));
    struct pair dx = pair_of(t, tensor_random(dtype, n, 5, 1.0f));
    struct pair dw = pair_of(t, tensor_random(ZINF_DTYPE_F32, COLS * WIDTH, 6, 1.0f));
    struct pair segments = pair_of(t, make_documents(1, rows + 2));
    struct pair *const all[] = {&x, &w, &y, &dy, &dx, &dw, &segments};
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
    end_pairs_free(&e);
    free_pairs(t, all, sizeof all / sizeof *all);
}

static void pieces(struct twin *t)
{
    const enum zinf_dtype f32 = ZINF_DTYPE_F32, bf16 = ZINF_DTYPE_BF16, f16 = ZINF_DTYPE_F16;
    const struct scan_case cases[] = {
        {ZINF_RECURRENCE_DELTA, f32, 1, 72, 1, 2, 9, 35, true},
        {ZINF_RECURRENCE_DECAY, f32, 1, 70, 1, 2, 7, 6, false},
        {ZINF_RECURRENCE_DELTA, bf16, 1, 20, 2, 2, 8, 5, false},
        {ZINF_RECURRENCE_DECAY, f16, 1, 20, 2, 4, 5, 8, true},
    };
    const struct scan_case cut[] = {
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
        struct pair x = pair_of(t, tensor_random(dtype, ROWS * LD, 1, 2.0f));
        struct pair up = pair_of(t, tensor_random(dtype, ROWS * COLS, 2, 1.0f));
        struct pair y = pair_of(t, tensor_random(dtype, ROWS * COLS, 3, 1.0f));
        struct pair dy = pair_of(t, tensor_random(dtype, ROWS * COLS, 4, 1.0f));
        struct pair dx = pair_of(t, tensor_copy(&x.host));
        struct pair *const all[] = {&x, &up, &y, &dy, &dx};
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
        free_pairs(t, all, sizeof all / sizeof *all);
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
    TAP_RUN(test_sequences_go_on);
    TAP_RUN(test_pieces);
    TAP_RUN(test_gates_apart);
    return tap_done();
}

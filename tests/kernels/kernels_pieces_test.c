/*
 * kernels_pieces: a sequence whose pieces are convolved and scanned by calls of their own, which
 * hand states over to each other, against the sequence in one call: results and gradients, with
 * documents that go on over the border, end at it, or leave padding there.
 */
#include "kernels_testing.h"

enum { SEQ = 150, WIDTH = 4, N_CUTS = 8 };

/* Where pieces begin: of one row, of fewer than a window has, of more than a chunk of a scan. */
static const int64_t cuts[N_CUTS + 1] = {0, 1, 2, 5, 72, 73, 140, 143, SEQ};

/* Documents of 1 and of many rows, and padding; one of each ends where a piece does. */
static int32_t segment_of(int64_t row)
{
    return row < 1 ? 1 : row < 72 ? 2 : row < 74 ? 0 : row < 141 ? 3 : row < 145 ? 0 : 4;
}

static float *floats(const struct tensor *t, int64_t element)
{
    return (float *)t->data + element;
}

static void check_close(struct fixture *f, const char *what, const struct tensor *got,
                        const struct tensor *want)
{
    for (size_t i = 0; i < want->n; i++)
        CHECKF(near(get(got, i), get(want, i), 3e-5, 3e-5), "%s: %s[%zu] is %.8g, not %.8g",
               f->name, what, i, get(got, i), get(want, i));
}

static struct tensor filled(int64_t n, int seed, float scale)
{
    return tensor_random(ZINF_DTYPE_F32, (size_t)n, (uint32_t)seed, scale);
}

static void add_to(const struct tensor *sum, const struct tensor *part)
{
    for (size_t i = 0; i < sum->n; i++)
        *floats(sum, (int64_t)i) += *floats(part, (int64_t)i);
}

static void free_all(struct tensor *all, size_t n)
{
    for (size_t i = 0; i < n; i++)
        tensor_free(&all[i]);
}

/* The ends of piece i: states [N_CUTS + 1] and their gradients. */
static struct zinf_ends ends_of(int i, int64_t state, const struct tensor *states,
                                const struct tensor *d_states)
{
    const bool first = i == 0, last = i == N_CUTS - 1;
    return (struct zinf_ends){.rows = cuts[i],
                              .before = first ? NULL : floats(states, i * state),
                              .behind = floats(states, (i + 1) * state),
                              .d_behind = last ? NULL : floats(d_states, (i + 1) * state),
                              .d_before = first ? NULL : floats(d_states, i * state)};
}

/* ---- the scan ---- */

/* What a piece leaves of the chunk that its end cuts, at most: the scan's own says how much. */
enum { OPEN = 16384 };

enum { KH = 2, VH = 6, KD = 9, VD = 5, LD = 2 * KH * KD + VH * VD, STATE = VH * KD * VD };
enum { X, GATES, A_LOG, STEP_BIAS, SKIP, DY, GIVEN };
enum { Y, DX, D_GATES, D_A_LOG, D_STEP_BIAS, D_SKIP, MADE };

static const int64_t made_floats[MADE] = {SEQ * VH * VD, SEQ *LD, SEQ * 2 * VH, VH, VH, VH};

/* Rows [first, first + n) of a scan. */
static struct zinf_scan rows_of(const struct tensor *in, const struct tensor *out, int64_t first,
                                int64_t n)
{
    return (struct zinf_scan){.dtype = ZINF_DTYPE_F32,
                              .batch = 1,
                              .seq = n,
                              .key_heads = KH,
                              .value_heads = VH,
                              .key_dim = KD,
                              .value_dim = VD,
                              .step_low = 0.05f,
                              .step_high = 1.5f,
                              .q = floats(&in[X], first * LD),
                              .k = floats(&in[X], first * LD + KH * KD),
                              .v = floats(&in[X], first * LD + 2 * KH * KD),
                              .ld = LD,
                              .a = floats(&in[GATES], first * 2 * VH),
                              .b = floats(&in[GATES], first * 2 * VH + VH),
                              .gate_ld = 2 * VH,
                              .a_log = in[A_LOG].data,
                              .step_bias = in[STEP_BIAS].data,
                              .skip = in[SKIP].data,
                              .y = floats(&out[Y], first * VH * VD),
                              .dy = floats(&in[DY], first * VH * VD),
                              .dq = floats(&out[DX], first * LD),
                              .dk = floats(&out[DX], first * LD + KH * KD),
                              .dv = floats(&out[DX], first * LD + 2 * KH * KD),
                              .da = floats(&out[D_GATES], first * 2 * VH),
                              .db = floats(&out[D_GATES], first * 2 * VH + VH),
                              .d_a_log = out[D_A_LOG].data,
                              .d_step_bias = out[D_STEP_BIAS].data,
                              .d_skip = out[D_SKIP].data};
}

/* What a scan is given; decays are slow, so that states matter beyond a piece. */
static void fill_scan(struct tensor in[GIVEN])
{
    static const int64_t n[GIVEN] = {SEQ * LD, SEQ * 2 * VH, VH, VH, VH, SEQ * VH * VD};
    for (int i = 0; i < GIVEN; i++)
        in[i] = filled(n[i], i + 1, 0.7f);
    for (int64_t i = 0; i < VH; i++)
        *floats(&in[A_LOG], i) -= 4.0f;
}

/* The ends of piece i, with chunks that borders cut: open [N_CUTS + 1]. */
static struct zinf_ends open_ends_of(int i, const struct tensor *states,
                                     const struct tensor *d_states, const struct tensor *open)
{
    struct zinf_ends ends = ends_of(i, STATE, states, d_states);
    ends.open_before = i ? floats(open, i * OPEN) : NULL;
    ends.open_behind = floats(open, (i + 1) * OPEN);
    return ends;
}

static void scan_pieces(struct fixture *f, struct zinf_scan like, const struct tensor *in,
                        bool open_chunks, struct tensor *out)
{
    struct tensor open = filled((N_CUTS + 1) * OPEN, 6, 1.0f);
    struct tensor states = filled((N_CUTS + 1) * STATE, 7, 1.0f), d_states = tensor_copy(&states);
    struct tensor again = filled((N_CUTS + 1) * STATE, 8, 1.0f), parts[MADE];
    for (int i = 0; i < MADE; i++)
        parts[i] = i < D_A_LOG ? out[i] : filled(VH, 9, 1.0f);
    for (int pass = 0; pass < 2; pass++)
        for (int n = 0; n < N_CUTS; n++) {
            const int i = pass ? N_CUTS - 1 - n : n;
            const struct zinf_ends ends = open_chunks ? open_ends_of(i, &states, &d_states, &open)
                                                      : ends_of(i, STATE, &states, &d_states);
            struct zinf_ends only = ends_of(i, STATE, &again, &again);
            struct zinf_scan a = rows_of(in, parts, cuts[i], cuts[i + 1] - cuts[i]);
            a.rule = like.rule;
            a.segments = like.segments ? like.segments + cuts[i] : NULL;
            a.ends = &ends;
            a.backward = pass;
            CHECKF(!(pass ? f->ops->scan_backward : f->ops->scan_forward)(f->q, &a), "%s",
                   zinf_error());
            for (int k = D_A_LOG; pass && k < MADE; k++)
                add_to(&out[k], &parts[k]);
            only.open_before = ends.open_before;
            a.ends = &only; /* the state alone */
            a.y = NULL;
            CHECK(pass || !f->ops->scan_forward(f->q, &a));
        }
    CHECK(!memcmp(floats(&states, STATE), floats(&again, STATE), N_CUTS * STATE * sizeof(float)));
    free_all(parts + D_A_LOG, MADE - D_A_LOG);
    tensor_free(&states);
    tensor_free(&d_states);
    tensor_free(&again);
    tensor_free(&open);
}

/* With chunks that borders cut, results have the bits of the whole sequence's. */
static void check_scan_of(struct fixture *f, enum zinf_recurrence rule, const int32_t *segments,
                          bool open_chunks)
{
    static const char *const names[] = {"y", "dx", "d_gates", "d_a_log", "d_step_bias", "d_skip"};
    struct tensor in[GIVEN], whole[MADE], pieces[MADE];
    fill_scan(in);
    for (int i = 0; i < MADE; i++) {
        whole[i] = tensor_new(ZINF_DTYPE_F32, (size_t)made_floats[i]);
        pieces[i] = tensor_copy(&whole[i]);
    }
    struct zinf_scan a = rows_of(in, whole, 0, SEQ);
    a.rule = rule;
    a.segments = segments;
    CHECK(!f->ops->scan_forward(f->q, &a));
    a.backward = true;
    CHECK(!f->ops->scan_backward(f->q, &a));
    scan_pieces(f, a, in, open_chunks, pieces);
    CHECKF(!open_chunks || tensor_same_bits(&pieces[Y], &whole[Y]), "%s, rule %d", f->name, rule);
    for (int i = 0; i < (rule == ZINF_RECURRENCE_DECAY ? MADE : D_SKIP); i++)
        check_close(f, names[i], &pieces[i], &whole[i]);
    free_all(in, GIVEN);
    free_all(whole, MADE);
    free_all(pieces, MADE);
}

static void scans(struct fixture *f)
{
    int32_t segments[SEQ];
    for (int64_t i = 0; i < SEQ; i++)
        segments[i] = segment_of(i);
    struct zinf_scan_open open;
    const struct zinf_scan shape = {
        .key_heads = KH, .value_heads = VH, .key_dim = KD, .value_dim = VD};
    CHECK(zinf_scan_open_place(&shape, &open, NULL) <= OPEN);
    for (int i = 0; i < 4; i++) {
        check_scan_of(f, (enum zinf_recurrence)(i % 2), NULL, i / 2);
        check_scan_of(f, (enum zinf_recurrence)(i % 2), segments, i / 2);
    }
}

static void test_scans(void)
{
    for_each_device(scans);
}

/* ---- the convolution ---- */

enum { COLS = 37, TAIL = (WIDTH - 1) * COLS };
enum { C_X, C_W, C_DY, C_GIVEN };
enum { C_Y, C_DX, C_DW, C_DB, C_MADE };

static struct zinf_convolution convolution_of(const struct tensor *in, const struct tensor *out,
                                              int64_t first, int64_t n)
{
    return (struct zinf_convolution){.dtype = ZINF_DTYPE_F32,
                                     .batch = 1,
                                     .seq = n,
                                     .cols = COLS,
                                     .ld = COLS,
                                     .width = WIDTH,
                                     .silu = true,
                                     .x = floats(&in[C_X], first * COLS),
                                     .w = in[C_W].data,
                                     .dy = floats(&in[C_DY], first * COLS),
                                     .y = floats(&out[C_Y], first * COLS),
                                     .dx = floats(&out[C_DX], first * COLS),
                                     .dw = out[C_DW].data,
                                     .db = out[C_DB].data};
}

static void convolve_pieces(struct fixture *f, const int32_t *segments, const struct tensor *in,
                            struct tensor *out)
{
    struct tensor states = filled((N_CUTS + 1) * TAIL, 7, 1.0f), d_states = tensor_copy(&states);
    struct tensor parts[C_MADE] = {out[C_Y], out[C_DX], filled(COLS * WIDTH, 8, 1.0f),
                                   filled(COLS, 9, 1.0f)};
    for (int pass = 0; pass < 2; pass++)
        for (int n = 0; n < N_CUTS; n++) {
            const int i = pass ? N_CUTS - 1 - n : n;
            const struct zinf_ends ends = ends_of(i, TAIL, &states, &d_states);
            struct zinf_convolution a = convolution_of(in, parts, cuts[i], cuts[i + 1] - cuts[i]);
            a.segments = segments ? segments + cuts[i] : NULL;
            a.ends = &ends;
            CHECKF(!(pass ? f->ops->convolution_backward : f->ops->convolution_forward)(f->q, &a),
                   "%s", zinf_error());
            for (int k = C_DW; pass && k < C_MADE; k++)
                add_to(&out[k], &parts[k]);
        }
    free_all(parts + C_DW, C_MADE - C_DW);
    tensor_free(&states);
    tensor_free(&d_states);
}

static void convolutions(struct fixture *f)
{
    static const int64_t n_given[] = {SEQ * COLS, COLS * WIDTH, SEQ * COLS};
    static const int64_t n_made[] = {SEQ * COLS, SEQ * COLS, COLS * WIDTH, COLS};
    static const char *const names[] = {"y", "dx", "dw", "db"};
    int32_t segments[SEQ];
    for (int64_t i = 0; i < SEQ; i++)
        segments[i] = segment_of(i);
    for (int packed = 0; packed < 2; packed++) {
        struct tensor in[C_GIVEN], whole[C_MADE], pieces[C_MADE];
        for (int i = 0; i < C_GIVEN; i++)
            in[i] = filled(n_given[i], i + 1, 0.7f);
        for (int i = 0; i < C_MADE; i++) {
            whole[i] = tensor_new(ZINF_DTYPE_F32, (size_t)n_made[i]);
            pieces[i] = tensor_copy(&whole[i]);
        }
        struct zinf_convolution a = convolution_of(in, whole, 0, SEQ);
        a.segments = packed ? segments : NULL;
        CHECK(!f->ops->convolution_forward(f->q, &a));
        CHECK(!f->ops->convolution_backward(f->q, &a));
        convolve_pieces(f, a.segments, in, pieces);
        CHECK(tensor_same_bits(&pieces[C_Y], &whole[C_Y]));
        for (int i = 0; i < C_MADE; i++)
            check_close(f, names[i], &pieces[i], &whole[i]);
        free_all(in, C_GIVEN);
        free_all(whole, C_MADE);
        free_all(pieces, C_MADE);
    }
}

static void test_convolutions(void)
{
    for_each_device(convolutions);
}

/* ---- what is refused ---- */

static void test_refusals(void)
{
    const struct zinf_ends no_state = {.rows = 3};
    struct zinf_ends no_gradient = {.rows = 3};
    struct tensor in[GIVEN], out[MADE];
    struct fixture f;
    fixture_open(&f, ZINF_ISA_SCALAR, 1);
    fill_scan(in);
    for (int i = 0; i < MADE; i++)
        out[i] = tensor_new(ZINF_DTYPE_F32, (size_t)made_floats[i]);
    struct zinf_scan a = rows_of(in, out, 0, SEQ / 2);
    a.ends = &no_state;
    CHECK(f.ops->scan_forward(f.q, &a) == -EINVAL);
    CHECKF(strstr(zinf_error(), "a piece of a sequence") != NULL, "%s", zinf_error());
    no_gradient.before = in[X].data;
    a.ends = &no_gradient;
    a.backward = true;
    CHECK(f.ops->scan_backward(f.q, &a) == -EINVAL);
    struct zinf_convolution c = convolution_of(in, out, 0, 1);
    c.ends = &no_gradient;
    CHECK(f.ops->convolution_backward(f.q, &c) == -EINVAL);
    CHECKF(strstr(zinf_error(), "convolution_backward") != NULL, "%s", zinf_error());
    a.backward = false;
    a.ends = &(struct zinf_ends){0};
    CHECK(!f.ops->scan_forward(f.q, &a));
    a.batch = 2;
    CHECK(f.ops->scan_forward(f.q, &a) == -EINVAL);
    free_all(in, GIVEN);
    free_all(out, MADE);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_scans);
    TAP_RUN(test_convolutions);
    TAP_RUN(test_refusals);
    return tap_done();
}

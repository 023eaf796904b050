/*
 * kernels_recurrent: the short convolution and the scan of recurrent mixers against what their
 * formulas say row by row, in double, and their gradients against finite differences of that;
 * documents that are packed have the bits that they have alone, and sequences that are continued
 * are those read at once.
 */
#include "kernels_testing.h"

/* ---- the problem ---- */

enum { ARRAYS = 10 }; /* of a scan: q, k, v in one row; a, b; a_log, step_bias, skip */

struct problem {
    struct zinf_scan a;
    int64_t rows, cols, keys, values;
    struct tensor x, gates, a_log, step_bias, skip, dy;
    int32_t segments[512];
};

static const void *at(const struct tensor *t, int64_t element)
{
    return (const char *)t->data + (uint64_t)element * zinf_dtype_bytes(t->dtype);
}

static struct problem problem_new(enum zinf_recurrence rule, enum zinf_dtype dtype, int64_t seq)
{
    const int64_t kh = 2, vh = 6, kd = 9, vd = 5, batch = 2;
    struct problem p = {.rows = batch * seq, .keys = kh * kd, .values = vh * vd};
    const int64_t rows = p.rows, cols = p.cols = 2 * p.keys + p.values + 3, gates = 2 * vh + 1;
    p.x = tensor_random(dtype, (size_t)(rows * cols), 1, 0.8f);
    p.gates = tensor_random(dtype, (size_t)(rows * gates), 2, 1.0f);
    p.a_log = tensor_random(dtype, (size_t)vh, 3, 1.0f);
    p.step_bias = tensor_random(dtype, (size_t)vh, 4, 0.5f);
    p.skip = tensor_random(dtype, (size_t)vh, 5, 1.0f);
    p.dy = tensor_random(dtype, (size_t)(rows * p.values), 6, 1.0f);
    /* Slow decays, so that states matter beyond a chunk. */
    for (int64_t i = 0; i < vh; i++) {
        float slower = (float)get(&p.a_log, (size_t)i) - 4.0f;
        zinf_convert((char *)p.a_log.data + (uint64_t)i * zinf_dtype_bytes(dtype), dtype, &slower,
                     ZINF_DTYPE_F32, 1);
    }
    for (int64_t i = 0; i < rows; i++) { /* documents of 1, 70 and more rows, and padding */
        const int64_t r = i % seq;
        p.segments[i] = r < 1 ? 1 : r < 71 ? 2 : r < 73 ? 0 : r < seq - 3 ? 4 : 0;
    }
    p.a = (struct zinf_scan){
        .rule = rule,
        .dtype = dtype,
        .batch = batch,
        .seq = seq,
        .key_heads = kh,
        .value_heads = vh,
        .key_dim = kd,
        .value_dim = vd,
        .step_low = 0.05f,
        .step_high = 1.5f,
        .strength = vh > kh ? 1.9f : 0,
        .ld = cols,
        .gate_ld = gates,
        .q = p.x.data,
        .k = at(&p.x, p.keys),
        .v = at(&p.x, 2 * p.keys),
        .a = p.gates.data,
        .b = at(&p.gates, vh),
        .a_log = p.a_log.data,
        .step_bias = p.step_bias.data,
        .skip = p.skip.data,
    };
    return p;
}

static void problem_use(struct problem *p, bool packed)
{
    p->a.segments = packed ? p->segments : NULL;
}

static void problem_free(struct problem *p)
{
    struct tensor *const all[] = {&p->x, &p->gates, &p->a_log, &p->step_bias, &p->skip, &p->dy};
    for (int i = 0; i < 6; i++)
        tensor_free(all[i]);
}

/* ---- row by row ---- */

/* The arrays in double; two of heads are there for both rules. */
struct doubles {
    double *x, *gates, *a_log, *step_bias, *skip;
};

static void unit_row(const double *from, int64_t n, double scale, double *to)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++)
        squares += from[i] * from[i];
    for (int64_t i = 0; i < n; i++)
        to[i] = from[i] * scale / sqrt(squares + (double)ZINF_SCAN_KEY_EPS);
}

static void reference_row(const struct problem *p, const struct doubles *d, int64_t row,
                          int64_t head, double *state, double *y)
{
    const struct zinf_scan *a = &p->a;
    const int64_t kd = a->key_dim, vd = a->value_dim, vh = a->value_heads;
    const double *x = d->x + row * p->cols, *gate = d->gates + row * a->gate_ld;
    const double *q = x + head / (vh / a->key_heads) * kd, *k = q + p->keys;
    const double *v = x + 2 * p->keys + head * vd;
    double step = log1p(exp(gate[head] + d->step_bias[head])), strength = step, unit[2][64];
    if (a->rule == ZINF_RECURRENCE_DELTA) {
        strength = (double)zinf_scan_strength(a) / (1 + exp(-gate[vh + head]));
        unit_row(q, kd, 1 / sqrt((double)kd), unit[0]);
        unit_row(k, kd, 1, unit[1]);
        q = unit[0];
        k = unit[1];
    } else {
        step = strength = fmin(fmax(step, (double)a->step_low), (double)a->step_high);
    }
    const double decay = exp(-exp(d->a_log[head]) * step);
    for (int64_t j = 0; j < vd; j++) {
        double seen = 0, sum = 0;
        for (int64_t i = 0; i < kd; i++)
            seen += k[i] * (state[i * vd + j] *= decay);
        const double delta = a->rule == ZINF_RECURRENCE_DELTA ? v[j] - seen : v[j];
        for (int64_t i = 0; i < kd; i++)
            sum += q[i] * (state[i * vd + j] += k[i] * strength * delta);
        y[j] = sum + (a->rule == ZINF_RECURRENCE_DECAY ? d->skip[head] * v[j] : 0);
    }
}

static void reference(const struct problem *p, const struct doubles *d, double *y)
{
    const struct zinf_scan *a = &p->a;
    const int64_t vd = a->value_dim;
    for (int64_t head = 0; head < a->value_heads; head++) {
        double state[64 * 8];
        for (int64_t row = 0; row < p->rows; row++) {
            double *to = y + row * p->values + head * vd;
            const bool begins =
                row % a->seq == 0 || (a->segments && a->segments[row] != a->segments[row - 1]);
            if (begins)
                memset(state, 0, sizeof state);
            if (a->segments && a->segments[row] < 1)
                memset(to, 0, (size_t)vd * sizeof *to);
            else
                reference_row(p, d, row, head, state, to);
        }
    }
}

static struct doubles doubles_of(const struct problem *p)
{
    return (struct doubles){tensor_doubles(&p->x), tensor_doubles(&p->gates),
                            tensor_doubles(&p->a_log), tensor_doubles(&p->step_bias),
                            tensor_doubles(&p->skip)};
}

static void doubles_free(struct doubles *d)
{
    free(d->x);
    free(d->gates);
    free(d->a_log);
    free(d->step_bias);
    free(d->skip);
}

/* ---- forward ---- */

static void check_forward(struct fixture *f, enum zinf_recurrence rule, enum zinf_dtype dtype,
                          int64_t seq, bool packed)
{
    struct problem p = problem_new(rule, dtype, seq);
    struct doubles d = doubles_of(&p);
    struct tensor y = tensor_random(dtype, (size_t)(p.rows * p.values), 9, 1.0f);
    double *want = malloc(y.n * sizeof *want);
    problem_use(&p, packed);
    p.a.y = y.data;
    reference(&p, &d, want);
    CHECKF(!f->ops->scan_forward(f->q, &p.a), "%s", zinf_error());
    CHECK_NEAR(f, &y, want, 2e-5, 1.01 * dtype_epsilon(dtype) + 1e-5);
    free(want);
    tensor_free(&y);
    doubles_free(&d);
    problem_free(&p);
}

static void forward(struct fixture *f)
{
    static const int64_t lengths[] = {1, 5, 64, 65, 200};
    for (int rule = 0; rule < 2; rule++)
        for (int i = 0; i < 5; i++)
            check_forward(f, (enum zinf_recurrence)rule, ZINF_DTYPE_F32, lengths[i], false);
    for (int rule = 0; rule < 2; rule++)
        for (int d = 0; d < 3; d++)
            check_forward(f, (enum zinf_recurrence)rule, all_dtypes[d], 210, true);
}

static void test_scan_is_its_formula(void)
{
    for_each_device(forward);
}

/* ---- gradients ---- */

/* The derivative of sum(dy y) by one number. */
static double slope_at(const struct problem *p, const struct doubles *d, double *number)
{
    const double was = *number, h = 1e-5;
    double *y = malloc((size_t)(p->rows * p->values) * sizeof *y), sum = 0;
    for (int side = 0; side < 2; side++) {
        *number = side ? was - h : was + h;
        reference(p, d, y);
        for (int64_t i = 0; i < p->rows * p->values; i++)
            sum += (side ? -1 : 1) * y[i] * get(&p->dy, (size_t)i);
    }
    *number = was;
    free(y);
    return sum / (2 * h);
}

struct gradient {
    const char *name;
    struct tensor *got;
    double *numbers;
    size_t n;
};

static void check_slopes(struct fixture *f, const struct problem *p, const struct doubles *d,
                         const struct gradient *g, size_t step)
{
    for (size_t i = 0; i < g->n; i += step) {
        const double want = slope_at(p, d, &g->numbers[i]), got = get(g->got, i);
        CHECKF(near(got, want, 2e-4, 3e-4), "%s rule %d: %s[%zu] is %.7g, want %.7g", f->name,
               (int)p->a.rule, g->name, i, got, want);
    }
}

static void check_backward(struct fixture *f, enum zinf_recurrence rule, int64_t seq, bool packed)
{
    struct problem p = problem_new(rule, ZINF_DTYPE_F32, seq);
    struct doubles d = doubles_of(&p);
    struct tensor dx = tensor_new(ZINF_DTYPE_F32, p.x.n),
                  dg = tensor_new(ZINF_DTYPE_F32, p.gates.n);
    struct tensor heads[3];
    for (int i = 0; i < 3; i++)
        heads[i] = tensor_random(ZINF_DTYPE_F32, p.a_log.n, 7, 1.0f);
    problem_use(&p, packed);
    p.a.backward = true;
    p.a.dy = p.dy.data;
    p.a.dq = dx.data;
    p.a.dk = (float *)dx.data + p.keys;
    p.a.dv = (float *)dx.data + 2 * p.keys;
    p.a.da = dg.data;
    p.a.db = (float *)dg.data + p.a.value_heads;
    p.a.d_a_log = heads[0].data;
    p.a.d_step_bias = heads[1].data;
    p.a.d_skip = rule == ZINF_RECURRENCE_DECAY ? heads[2].data : NULL;
    CHECKF(!f->ops->scan_backward(f->q, &p.a), "%s", zinf_error());
    const struct gradient list[] = {
        {"x", &dx, d.x, dx.n},
        {"gates", &dg, d.gates, dg.n},
        {"a_log", &heads[0], d.a_log, heads[0].n},
        {"step_bias", &heads[1], d.step_bias, heads[1].n},
        {"skip", &heads[2], d.skip, heads[2].n},
    };
    for (int i = 0; i < (p.a.d_skip ? 5 : 4); i++)
        check_slopes(f, &p, &d, &list[i], i == 0 ? dx.n / 60 + 1 : i == 1 ? dg.n / 30 + 1 : 1);
    tensor_free(&dx);
    tensor_free(&dg);
    for (int i = 0; i < 3; i++)
        tensor_free(&heads[i]);
    doubles_free(&d);
    problem_free(&p);
}

static void backward(struct fixture *f)
{
    for (int rule = 0; rule < 2; rule++) {
        check_backward(f, (enum zinf_recurrence)rule, 3, false);
        check_backward(f, (enum zinf_recurrence)rule, 150, false);
        check_backward(f, (enum zinf_recurrence)rule, 210, true);
    }
}

static void test_scan_gradients(void)
{
    struct fixture f;
    for (int isa = ZINF_ISA_SCALAR; isa <= (int)zinf_isa(); isa++) {
        fixture_open(&f, (enum zinf_isa)isa, 2);
        backward(&f);
        fixture_close(&f);
    }
}

/* ---- documents ---- */

/* The rows of the document of number 4, alone: its bits, in front of a gradient and behind. */
static void documents(struct fixture *f)
{
    for (int rule = 0; rule < 2; rule++) {
        struct problem p = problem_new((enum zinf_recurrence)rule, ZINF_DTYPE_F32, 210);
        const int64_t first = 73, n = 210 - 3 - first;
        struct tensor y = tensor_new(ZINF_DTYPE_F32, (size_t)(p.rows * p.values));
        struct tensor own = tensor_new(ZINF_DTYPE_F32, (size_t)(n * p.values));
        problem_use(&p, true);
        p.a.y = y.data;
        CHECK(!f->ops->scan_forward(f->q, &p.a));
        p.a.batch = 1;
        p.a.seq = n;
        p.a.segments = NULL;
        p.a.q = at(&p.x, first * p.cols);
        p.a.k = at(&p.x, first * p.cols + p.keys);
        p.a.v = at(&p.x, first * p.cols + 2 * p.keys);
        p.a.a = at(&p.gates, first * p.a.gate_ld);
        p.a.b = at(&p.gates, first * p.a.gate_ld + p.a.value_heads);
        p.a.y = own.data;
        CHECK(!f->ops->scan_forward(f->q, &p.a));
        CHECKF(!memcmp(own.data, (const float *)y.data + first * p.values, own.n * sizeof(float)),
               "%s: a document that is packed is another", f->name);
        tensor_free(&y);
        tensor_free(&own);
        problem_free(&p);
    }
}

static void test_documents_have_their_bits(void)
{
    for_each_device(documents);
}

/* ---- sequences that are continued ---- */

/* Both samples as sequences, whose rows come in turns, in calls of 1, 2, ... rows of each. */
static void check_continued(struct fixture *f, enum zinf_recurrence rule)
{
    struct problem p = problem_new(rule, ZINF_DTYPE_F32, 40);
    const int64_t seq = p.a.seq, state = p.a.value_heads * p.a.key_dim * p.a.value_dim;
    struct tensor y = tensor_new(ZINF_DTYPE_F32, (size_t)(p.rows * p.values));
    struct tensor memory = tensor_random(ZINF_DTYPE_F32, (size_t)(3 * state), 8, 1.0f);
    struct tensor x = tensor_new(ZINF_DTYPE_F32, p.x.n), gates = tensor_new(p.a.dtype, p.gates.n);
    struct tensor got = tensor_new(ZINF_DTYPE_F32, y.n);
    int32_t sequences[80], positions[80];
    struct zinf_remembered m = {sequences, positions, memory.data, (uint64_t)state * 4};
    p.a.y = y.data;
    CHECK(!f->ops->scan_forward(f->q, &p.a));
    double *want = tensor_doubles(&y);
    for (int64_t done = 0, each = 1; done < seq; done += each, each++) {
        each = done + each > seq ? seq - done : each;
        for (int64_t r = 0; r < 2 * each; r++) {
            const int64_t from = (r % 2) * seq + done + r / 2;
            sequences[r] = (int32_t)(2 * (r % 2)); /* 0 and 2 */
            positions[r] = (int32_t)(done + r / 2);
            memcpy((float *)x.data + r * p.cols, at(&p.x, from * p.cols), (size_t)p.cols * 4);
            memcpy((float *)gates.data + r * p.a.gate_ld, at(&p.gates, from * p.a.gate_ld),
                   (size_t)p.a.gate_ld * 4);
        }
        struct zinf_scan a = p.a;
        a.batch = 1;
        a.seq = 2 * each;
        a.q = x.data;
        a.k = at(&x, p.keys);
        a.v = at(&x, 2 * p.keys);
        a.a = gates.data;
        a.b = at(&gates, p.a.value_heads);
        a.remembered = &m;
        CHECKF(!f->ops->scan_forward(f->q, &a), "%s", zinf_error());
        for (int64_t r = 0; r < 2 * each; r++)
            memcpy((float *)got.data + ((r % 2) * seq + done + r / 2) * p.values,
                   (const float *)y.data + r * p.values, (size_t)p.values * 4);
    }
    CHECK_NEAR(f, &got, want, 2e-5, 1e-5);
    free(want);
    struct tensor *const all[] = {&y, &memory, &x, &gates, &got};
    for (int i = 0; i < 5; i++)
        tensor_free(all[i]);
    problem_free(&p);
}

static void continued(struct fixture *f)
{
    for (int rule = 0; rule < 2; rule++)
        check_continued(f, (enum zinf_recurrence)rule);
}

static void test_sequences_go_on(void)
{
    for_each_device(continued);
}

/* ---- the convolution ---- */

static double convolved(const struct zinf_convolution *a, const double *x, const double *w,
                        const double *b, int64_t row, int64_t c)
{
    double sum = b ? b[c] : 0;
    for (int64_t t = 0; t < a->width; t++) {
        const int64_t from = row - a->width + 1 + t;
        if (from < row / a->seq * a->seq || (a->segments && a->segments[from] != a->segments[row]))
            continue;
        sum += w[c * a->width + t] * x[from * a->ld + c];
    }
    if (a->segments && a->segments[row] < 1)
        return 0;
    return a->silu ? sum / (1 + exp(-sum)) : sum;
}

struct convolution {
    struct zinf_convolution a;
    struct tensor x, w, b, y, dy, dx, dw, db;
    double *dx_x, *dx_w, *dx_b;
    int32_t segments[120];
};

static double convolution_loss(const struct convolution *c)
{
    double sum = 0;
    for (int64_t i = 0; i < c->a.batch * c->a.seq * c->a.cols; i++)
        sum += get(&c->dy, (size_t)i) * convolved(&c->a, c->dx_x, c->dx_w, c->a.b ? c->dx_b : NULL,
                                                  i / c->a.cols, i % c->a.cols);
    return sum;
}

static void check_convolution_slopes(struct fixture *f, const struct convolution *c,
                                     const char *name, const struct tensor *got, double *numbers,
                                     size_t n, size_t step)
{
    for (size_t i = 0; i < n; i += step) {
        const double was = numbers[i], h = 1e-5;
        numbers[i] = was + h;
        double slope = convolution_loss(c);
        numbers[i] = was - h;
        slope = (slope - convolution_loss(c)) / (2 * h);
        numbers[i] = was;
        CHECKF(near(get(got, i), slope, 1e-4, 1e-4), "%s: %s[%zu] is %.7g, want %.7g", f->name,
               name, i, get(got, i), slope);
    }
}

static void check_convolution_of(struct fixture *f, enum zinf_dtype dtype, bool packed, bool biased,
                                 int64_t width)
{
    const int64_t batch = 2, seq = 30, cols = 37, ld = 41, rows = batch * seq;
    struct convolution c = {.a = {.dtype = dtype,
                                  .batch = batch,
                                  .seq = seq,
                                  .cols = cols,
                                  .width = width,
                                  .silu = biased,
                                  .ld = ld}};
    struct tensor *const all[] = {&c.x, &c.w, &c.b, &c.y, &c.dy, &c.dx, &c.dw, &c.db};
    c.x = tensor_random(dtype, (size_t)(rows * ld), 1, 1.0f);
    c.w = tensor_random(dtype, (size_t)(cols * width), 2, 0.5f);
    c.b = tensor_random(dtype, (size_t)cols, 3, 0.5f);
    c.y = tensor_new(dtype, (size_t)(rows * cols));
    c.dy = tensor_random(dtype, c.y.n, 4, 1.0f);
    c.dx = tensor_new(dtype, c.x.n);
    c.dw = tensor_random(ZINF_DTYPE_F32, c.w.n, 5, 1.0f);
    c.db = tensor_random(ZINF_DTYPE_F32, c.b.n, 6, 1.0f);
    for (int64_t i = 0; i < rows; i++)
        c.segments[i] = (int32_t)(i % seq < 2 ? 1 : i % seq < 10 ? 2 : i % seq < 12 ? 0 : 3);
    c.a.segments = packed ? c.segments : NULL;
    c.a.x = c.x.data;
    c.a.w = c.w.data;
    c.a.b = biased ? c.b.data : NULL;
    c.a.y = c.y.data;
    c.a.dy = c.dy.data;
    c.a.dx = c.dx.data;
    c.a.dw = c.dw.data;
    c.a.db = biased ? c.db.data : NULL;
    c.dx_x = tensor_doubles(&c.x);
    c.dx_w = tensor_doubles(&c.w);
    c.dx_b = tensor_doubles(&c.b);
    double *want = malloc(c.y.n * sizeof *want);
    for (int64_t i = 0; i < rows * cols; i++)
        want[i] = convolved(&c.a, c.dx_x, c.dx_w, biased ? c.dx_b : NULL, i / cols, i % cols);
    CHECKF(!f->ops->convolution_forward(f->q, &c.a), "%s", zinf_error());
    CHECK_NEAR(f, &c.y, want, 1e-6, 1.01 * dtype_epsilon(dtype) + 1e-6);
    CHECKF(!f->ops->convolution_backward(f->q, &c.a), "%s", zinf_error());
    if (dtype == ZINF_DTYPE_F32) {
        check_convolution_slopes(f, &c, "dx", &c.dx, c.dx_x, c.x.n, 97);
        check_convolution_slopes(f, &c, "dw", &c.dw, c.dx_w, c.w.n, 11);
        check_convolution_slopes(f, &c, "db", &c.db, c.dx_b, biased ? c.b.n : 0, 7);
    }
    free(want);
    free(c.dx_x);
    free(c.dx_w);
    free(c.dx_b);
    for (int i = 0; i < 8; i++)
        tensor_free(all[i]);
}

static void convolution(struct fixture *f)
{
    for (int d = 0; d < 3; d++) {
        check_convolution_of(f, all_dtypes[d], false, true, 4);
        check_convolution_of(f, all_dtypes[d], true, false, 3);
    }
    check_convolution_of(f, ZINF_DTYPE_F32, true, true, ZINF_CONVOLUTION_MAX_WIDTH);
    check_convolution_of(f, ZINF_DTYPE_F32, true, true, 1);
}

static void test_convolution(void)
{
    for_each_device(convolution);
}

/* Rows of two sequences in turns, three at a time: what is remembered is exact. */
static void convolution_goes_on(struct fixture *f)
{
    const int64_t seq = 24, cols = 300, width = 4, state = 3 * cols;
    struct tensor x = tensor_random(ZINF_DTYPE_BF16, (size_t)(2 * seq * cols), 1, 1.0f);
    struct tensor w = tensor_random(ZINF_DTYPE_BF16, (size_t)(cols * width), 2, 0.5f);
    struct tensor y = tensor_new(ZINF_DTYPE_BF16, x.n), got = tensor_new(ZINF_DTYPE_BF16, x.n);
    struct tensor memory = tensor_random(ZINF_DTYPE_BF16, (size_t)(2 * state), 3, 1.0f);
    struct tensor few = tensor_new(ZINF_DTYPE_BF16, (size_t)(6 * cols)), part = tensor_copy(&few);
    int32_t sequences[6], positions[6];
    struct zinf_remembered m = {sequences, positions, memory.data, (uint64_t)state * 2};
    struct zinf_convolution a = {.dtype = ZINF_DTYPE_BF16,
                                 .batch = 2,
                                 .seq = seq,
                                 .cols = cols,
                                 .width = width,
                                 .silu = true,
                                 .x = x.data,
                                 .ld = cols,
                                 .w = w.data,
                                 .y = y.data};
    const size_t bytes = (size_t)cols * 2;
    CHECK(!f->ops->convolution_forward(f->q, &a));
    a.batch = 1;
    a.seq = 6;
    a.x = few.data;
    a.y = part.data;
    a.remembered = &m;
    for (int64_t done = 0; done < seq; done += 3) {
        for (int64_t r = 0; r < 6; r++) {
            sequences[r] = (int32_t)(r % 2);
            positions[r] = (int32_t)(done + r / 2);
            memcpy((char *)few.data + (size_t)r * bytes,
                   at(&x, ((r % 2) * seq + done + r / 2) * cols), bytes);
        }
        CHECK(!f->ops->convolution_forward(f->q, &a));
        for (int64_t r = 0; r < 6; r++)
            memcpy((char *)got.data + (size_t)((r % 2) * seq + done + r / 2) * bytes,
                   at(&part, r * cols), bytes);
    }
    CHECKF(tensor_same_bits(&y, &got), "%s: rows one after the other are others", f->name);
    struct tensor *const all[] = {&x, &w, &y, &got, &memory, &few, &part};
    for (int i = 0; i < 7; i++)
        tensor_free(all[i]);
}

static void test_convolution_goes_on(void)
{
    for_each_device(convolution_goes_on);
}

/* ---- gates apart from what they multiply ---- */

static void gate_apart(struct fixture *f)
{
    enum { ROWS = 40, COLS = 33, LD = 50 };
    static float x[ROWS * LD], up[ROWS * COLS], both[ROWS * 2 * COLS], dy[ROWS * COLS];
    static float y[2][ROWS * COLS], dx[ROWS * LD], d_up[ROWS * COLS], d_both[ROWS * 2 * COLS];
    zinf_normal_fill(x, 0, ROWS * LD, 1, 0, 0.0f, 2.0f);
    zinf_normal_fill(up, 0, ROWS * COLS, 2, 0, 0.0f, 1.0f);
    zinf_normal_fill(dy, 0, ROWS * COLS, 3, 0, 0.0f, 1.0f);
    for (int i = 0; i < ROWS; i++) {
        memcpy(both + i * 2 * COLS, x + i * LD, COLS * sizeof(float));
        memcpy(both + i * 2 * COLS + COLS, up + i * COLS, COLS * sizeof(float));
    }
    struct zinf_gated a = {.kind = ZINF_ACTIVATION_SIGMOID,
                           .dtype = ZINF_DTYPE_F32,
                           .rows = ROWS,
                           .cols = COLS,
                           .x = both,
                           .y = y[0],
                           .dy = dy,
                           .dx = d_both};
    struct zinf_gated b = a;
    b.x = x;
    b.y = y[1];
    b.dx = dx;
    b.gate_ld = LD;
    b.up = up;
    b.d_up = d_up;
    CHECK(!f->ops->gated_forward(f->q, &a) && !f->ops->gated_forward(f->q, &b));
    CHECK(!memcmp(y[0], y[1], sizeof y[0]));
    CHECK(!f->ops->gated_backward(f->q, &a) && !f->ops->gated_backward(f->q, &b));
    for (int i = 0; i < ROWS; i++) {
        CHECK(!memcmp(dx + i * LD, d_both + i * 2 * COLS, COLS * sizeof(float)));
        CHECK(!memcmp(d_up + i * COLS, d_both + i * 2 * COLS + COLS, COLS * sizeof(float)));
    }
}

static void test_gates_apart(void)
{
    for_each_device(gate_apart);
}

/* ---- what is refused ---- */

static void test_refusals(void)
{
    struct fixture f;
    fixture_open(&f, ZINF_ISA_SCALAR, 1);
    struct problem p = problem_new(ZINF_RECURRENCE_DELTA, ZINF_DTYPE_F32, 5);
    struct zinf_scan a = p.a;
    a.key_heads = 4;
    CHECK(f.ops->scan_forward(f.q, &a) == -EINVAL && strstr(zinf_error(), "4 key heads"));
    a = p.a;
    a.value_dim = ZINF_SCAN_MAX_DIM + 1;
    CHECK(f.ops->scan_forward(f.q, &a) == -EINVAL);
    a = p.a;
    a.gate_ld = 1;
    CHECK(f.ops->scan_backward(f.q, &a) == -EINVAL);
    struct zinf_convolution c = {
        .batch = 1, .seq = 3, .cols = 4, .ld = 4, .width = ZINF_CONVOLUTION_MAX_WIDTH + 1};
    CHECK(f.ops->convolution_forward(f.q, &c) == -EINVAL && strstr(zinf_error(), "9 rows in view"));
    problem_free(&p);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_scan_is_its_formula);
    TAP_RUN(test_scan_gradients);
    TAP_RUN(test_documents_have_their_bits);
    TAP_RUN(test_sequences_go_on);
    TAP_RUN(test_convolution);
    TAP_RUN(test_convolution_goes_on);
    TAP_RUN(test_gates_apart);
    TAP_RUN(test_refusals);
    return tap_done();
}

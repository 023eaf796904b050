/*
 * cpu_optim: Adafactor against PyTorch (fixtures by make_optim.py) and against its formulas in
 * double; the same bits from every instruction set and thread count; what is refused.
 */
#include "optim_support.h"

static const struct zinf_adafactor_hyper defaults = {.lr = 1e-2f,
                                                     .beta2_decay = -0.8f,
                                                     .eps1 = 0x1p-23f,
                                                     .eps2 = 1e-3f,
                                                     .clip_threshold = 1,
                                                     .relative_step = true,
                                                     .scale_parameter = true,
                                                     .step = 1};

/* ---- a tensor with its state, on the heap ---- */

struct room {
    uint64_t n;
    float *master, *row, *col; /* [n], [rows], [cols] */
    uint16_t *remainder, *param;
    void *grad, *workspace;
};

static struct room room_create(uint64_t rows, uint64_t cols)
{
    size_t work = zinf_align_up(zinf_adafactor_workspace_bytes(rows, cols), 64);
    struct room r = {.n = rows * cols,
                     .master = calloc(rows * cols, 4),
                     .row = calloc(rows, 4),
                     .col = calloc(cols, 4),
                     .remainder = calloc(rows * cols, 2),
                     .param = calloc(rows * cols, 2),
                     .grad = calloc(rows * cols, 4),
                     .workspace = aligned_alloc(64, work)};
    memset(r.workspace, 0xff, work); /* its contents may not matter */
    return r;
}

static void room_destroy(struct room *r)
{
    free(r->master);
    free(r->row);
    free(r->col);
    free(r->remainder);
    free(r->param);
    free(r->grad);
    free(r->workspace);
}

static struct zinf_adafactor_tensor view(const struct room *r, uint64_t rows, uint64_t cols)
{
    return (struct zinf_adafactor_tensor){.rows = rows,
                                          .cols = cols,
                                          .master = r->master,
                                          .row_moment = rows > 1 ? r->row : NULL,
                                          .col_moment = r->col,
                                          .grad = r->grad,
                                          .grad_scale = 1,
                                          .workspace = r->workspace};
}

/* ---- PyTorch ---- */

static void compare_torch(const char *name)
{
    const float *values;
    uint32_t more[3]; /* rows, columns, the first step */
    struct fixture *f = fixture_read(name, sizeof more, &values);
    if (!f)
        return;
    memcpy(more, f + 1, sizeof more);
    CHECK(f->kind == 100);
    struct room r = room_create(more[0], more[1]);
    struct zinf_adafactor_tensor tensor = view(&r, more[0], more[1]);
    struct zinf_adafactor_hyper hyper = defaults;
    hyper.lr = f->lr;
    hyper.weight_decay = f->weight_decay;
    memcpy(r.master, values, f->n * sizeof(float));
    for (uint32_t step = 1; step <= f->steps; step++) {
        fixture_grad(f, values, step, r.grad);
        hyper.step = more[2] + step - 1;
        CHECK(!zinf_adafactor_step(&hyper, &tensor, 1));
    }
    fixture_compare(f, values, r.master, name);
    room_destroy(&r);
    free(f);
}

static void test_against_torch(void)
{
    compare_torch("adafactor");
    compare_torch("adafactor_vector");
}

/* ---- the formulas, in double ---- */

enum { ROWS = 70, COLS = 45 };

static void step_double(const struct zinf_adafactor_hyper *h, const float *grad, double *p,
                        double *row, double *col)
{
    static double update[ROWS * COLS];
    const double w = pow((double)h->step, (double)h->beta2_decay), lr = (double)h->lr;
    double mean = 0, norm = 0, squares = 0;
    for (int i = 0; i < ROWS; i++) {
        double sum = 0;
        for (int j = 0; j < COLS; j++)
            sum += pow((double)grad[i * COLS + j], 2) / COLS;
        row[i] = (1 - w) * row[i] + w * sum;
        mean += row[i] / ROWS;
    }
    for (int j = 0; j < COLS; j++) {
        double sum = 0;
        for (int i = 0; i < ROWS; i++)
            sum += pow((double)grad[i * COLS + j], 2) / ROWS;
        col[j] = (1 - w) * col[j] + w * sum;
    }
    for (int i = 0; i < ROWS * COLS; i++) {
        double v = row[i / COLS] * col[i % COLS] / mean;
        update[i] = (double)grad[i] / fmax(sqrt(v), (double)h->eps1);
        norm += update[i] * update[i] / (ROWS * COLS);
        squares += p[i] * p[i] / (ROWS * COLS);
    }
    double step = h->relative_step ? fmin(lr, 1 / sqrt((double)h->step)) : lr;
    if (h->scale_parameter)
        step *= fmax((double)h->eps2, sqrt(squares));
    step /= fmax(1, sqrt(norm) / (double)h->clip_threshold);
    for (int i = 0; i < ROWS * COLS; i++)
        p[i] = p[i] * (1 - lr * (double)h->weight_decay) - step * update[i];
}

static void compare_double(bool relative, bool scaled, float clip)
{
    static double p[ROWS * COLS], row[ROWS], col[COLS];
    struct room r = room_create(ROWS, COLS);
    struct zinf_adafactor_tensor tensor = view(&r, ROWS, COLS);
    struct zinf_adafactor_hyper hyper = defaults;
    hyper.lr = relative ? 0.5f : 1e-3f;
    hyper.relative_step = relative;
    hyper.scale_parameter = scaled;
    hyper.clip_threshold = clip;
    hyper.weight_decay = 0.01f;
    memset(row, 0, sizeof row);
    memset(col, 0, sizeof col);
    for (uint64_t i = 0; i < r.n; i++) {
        r.master[i] = (i % 2 ? 2.0f : -2.0f) + (float)(i % 17) * 0.01f;
        p[i] = (double)r.master[i];
    }
    double worst = 0;
    for (hyper.step = 1; hyper.step <= 20; hyper.step++) {
        zinf_normal_fill(r.grad, 0, r.n, 3, hyper.step, 0, 0.1f);
        step_double(&hyper, r.grad, p, row, col);
        CHECK(!zinf_adafactor_step(&hyper, &tensor, 2));
        for (uint64_t i = 0; i < r.n; i++)
            worst = fmax(worst, fabs((double)r.master[i] - p[i]) / fmax(1, fabs(p[i])));
    }
    CHECKF(worst < 4e-6, "relative %d, scaled %d, clip %g: off by %.2g", relative, scaled,
           (double)clip, worst);
    room_destroy(&r);
}

static void test_formulas_in_double(void)
{
    compare_double(true, true, 1);
    compare_double(true, false, 1);
    compare_double(false, true, 0.25f);
    compare_double(false, false, 1e30f);
}

/* ---- the same bits ---- */

/* Three steps over room; the masters at the end are in room->master whatever the form. */
static void run(enum zinf_isa isa, struct room *r, uint64_t rows, uint64_t cols,
                enum zinf_dtype grad_dtype, bool split, int n_threads)
{
    struct zinf_adafactor_tensor tensor = view(r, rows, cols);
    struct zinf_adafactor_hyper hyper = defaults;
    float *wide = malloc(r->n * sizeof *wide);
    zinf_normal_fill(r->master, 0, r->n, 1, 0, 0, 1);
    zinf_optim_split(r->param, r->remainder, r->master, r->n, 1);
    memset(r->row, 0, rows * sizeof(float));
    memset(r->col, 0, cols * sizeof(float));
    tensor.grad_dtype = grad_dtype;
    tensor.grad_scale = 0.5f;
    tensor.param = r->param;
    tensor.param_dtype = ZINF_DTYPE_BF16;
    hyper.weight_decay = 0.1f;
    if (split) {
        tensor.master = NULL;
        tensor.remainder = r->remainder;
    }
    for (hyper.step = 1; hyper.step <= 3; hyper.step++) {
        zinf_normal_fill(wide, 0, r->n, 2, hyper.step, 0, 1);
        for (uint64_t i = 0; i < r->n; i += 97) /* zeros, denormals, large values */
            wide[i] = i % 2 ? 0 : i % 3 ? 1e-40f : 1e4f;
        zinf_convert(r->grad, grad_dtype, wide, ZINF_DTYPE_F32, r->n);
        tensor.zero_grad = hyper.step == 3;
        CHECK(!optim_adafactor_with(optim_ops_of(isa), &hyper, &tensor, n_threads));
    }
    if (split)
        zinf_optim_join(r->master, r->param, r->remainder, r->n, 1);
    for (uint64_t i = 0; i < r->n * zinf_dtype_bytes(grad_dtype); i++)
        CHECK(!((char *)r->grad)[i]);
    free(wide);
}

static void compare_bits(uint64_t rows, uint64_t cols)
{
    struct room expected = room_create(rows, cols), actual = room_create(rows, cols);
    for (int grad = 0; grad < ZINF_DTYPE_COUNT; grad++) {
        run(ZINF_ISA_SCALAR, &expected, rows, cols, (enum zinf_dtype)grad, false, 1);
        CHECK(isfinite(expected.master[0]) && expected.master[0] != 0);
        for (int isa = 0; isa <= (int)zinf_isa(); isa++)
            for (int variant = 0; variant < 4; variant++) {
                bool split = variant % 2;
                run((enum zinf_isa)isa, &actual, rows, cols, (enum zinf_dtype)grad, split,
                    variant / 2 * 2 + 1);
                CHECKF(!memcmp(expected.master, actual.master, expected.n * 4) &&
                           !memcmp(expected.row, actual.row, rows * 4) &&
                           !memcmp(expected.col, actual.col, cols * 4) &&
                           (split || !memcmp(expected.param, actual.param, expected.n * 2)),
                       "%d x %d, %s, gradient %d, variant %d differs", (int)rows, (int)cols,
                       zinf_isa_name((enum zinf_isa)isa), grad, variant);
            }
    }
    room_destroy(&expected);
    room_destroy(&actual);
}

static void test_same_bits_everywhere(void)
{
    compare_bits(300, 257); /* several stripes, more than one thread's worth, an odd tail */
    compare_bits(1, 1000);
    compare_bits(5, 7);
    compare_bits(200, 1);
    compare_bits(64, 48);
}

/* ---- what is refused, and what is not ---- */

static void test_refusals_change_nothing(void)
{
    struct room r = room_create(ROWS, COLS);
    struct zinf_adafactor_tensor fine = view(&r, ROWS, COLS), tensor;
    struct zinf_adafactor_hyper hyper;
    uint64_t found = 7;
    zinf_normal_fill(r.grad, 0, r.n, 3, 1, 0, 1);
#define REFUSED(code, change)                                                                      \
    do {                                                                                           \
        hyper = defaults;                                                                          \
        tensor = fine;                                                                             \
        change;                                                                                    \
        CHECKF(zinf_adafactor_step(&hyper, &tensor, 1) == (code) && *zinf_error(), "%s", #change); \
        CHECKF(r.master[0] == 0 && r.row[0] == 0 && r.col[0] == 0, "%s changed state", #change);   \
    } while (0)
    REFUSED(-EINVAL, hyper.step = 0);
    REFUSED(-EINVAL, hyper.lr = -1);
    REFUSED(-EINVAL, hyper.beta2_decay = 0.5f);
    REFUSED(-EINVAL, hyper.eps1 = 0);
    REFUSED(-EINVAL, hyper.eps2 = NAN);
    REFUSED(-EINVAL, hyper.clip_threshold = 0);
    REFUSED(-EINVAL, tensor.master = NULL);
    REFUSED(-EINVAL, tensor.row_moment = NULL);
    REFUSED(-EINVAL, tensor.col_moment = NULL);
    REFUSED(-EINVAL, tensor.grad = NULL);
    REFUSED(-EINVAL, tensor.workspace = NULL);
    REFUSED(-EINVAL, tensor.workspace = (char *)tensor.workspace + 4);
    REFUSED(-EINVAL, tensor.grad = tensor.master + 5);
    REFUSED(-EINVAL, tensor.rows = UINT64_MAX / 2);
    REFUSED(-EINVAL, tensor.grad_scale = INFINITY);
    ((float *)r.grad)[77] = NAN;
    REFUSED(-ERANGE, tensor.nonfinite = &found);
    CHECK(found == 77);
    ((float *)r.grad)[77] = 3e38f;
    REFUSED(-ERANGE, (void)0); /* finite, but not its square */
#undef REFUSED
    ((float *)r.grad)[77] = 1;
    hyper = defaults;
    tensor = fine;
    tensor.nonfinite = &found;
    CHECK(!zinf_adafactor_step(&hyper, &tensor, 1) && found == UINT64_MAX && r.master[0] != 0);
    tensor.rows = 0;
    CHECK(!zinf_adafactor_step(&hyper, &tensor, 1));
    room_destroy(&r);
}

int main(void)
{
    TAP_RUN(test_against_torch);
    TAP_RUN(test_formulas_in_double);
    TAP_RUN(test_same_bits_everywhere);
    TAP_RUN(test_refusals_change_nothing);
    return tap_done();
}

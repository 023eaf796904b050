/* kernels_rows: norms, embeddings and the tiled cross-entropy, against references in double and
 * finite differences of those. */
#include "kernels_testing.h"

/* ---- norms ---- */

struct norm_problem {
    struct zinf_norm args;
    struct tensor x, w, b, y, mean, rstd, dy, dx, dw, db;
};

static void norm_open(struct norm_problem *p, enum zinf_norm_kind kind, enum zinf_dtype dtype,
                      int64_t rows, int64_t cols, bool bias, float beta_dx)
{
    size_t n = (size_t)(rows * cols), c = (size_t)cols, r = (size_t)rows;
    p->x = tensor_random(dtype, n, 1, 1.0f);
    p->w = tensor_random(dtype, c, 2, 1.0f);
    p->b = tensor_random(dtype, c, 3, 1.0f);
    p->y = tensor_new(dtype, n);
    p->mean = tensor_new(ZINF_DTYPE_F32, r);
    p->rstd = tensor_new(ZINF_DTYPE_F32, r);
    p->dy = tensor_random(dtype, n, 4, 1.0f);
    p->dx = tensor_random(dtype, n, 5, 1.0f);
    p->dw = tensor_random(ZINF_DTYPE_F32, c, 6, 1.0f);
    p->db = tensor_random(ZINF_DTYPE_F32, c, 7, 1.0f);
    p->args = (struct zinf_norm){.kind = kind,
                                 .dtype = dtype,
                                 .rows = rows,
                                 .cols = cols,
                                 .eps = 1e-5f,
                                 .x = p->x.data,
                                 .w = p->w.data,
                                 .b = bias ? p->b.data : NULL,
                                 .y = p->y.data,
                                 .mean = p->mean.data,
                                 .rstd = p->rstd.data,
                                 .dy = p->dy.data,
                                 .dx = p->dx.data,
                                 .beta_dx = beta_dx,
                                 .dw = p->dw.data,
                                 .db = bias ? p->db.data : NULL};
}

static void norm_close(struct norm_problem *p)
{
    struct tensor *all[] = {&p->x,    &p->w,  &p->b,  &p->y,  &p->mean,
                            &p->rstd, &p->dy, &p->dx, &p->dw, &p->db};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
}

static void norm_row(const struct zinf_norm *a, const double *x, const double *w, const double *b,
                     double *y)
{
    double mean = 0.0, square = 0.0;
    if (a->kind == ZINF_NORM_LAYER)
        for (int64_t c = 0; c < a->cols; c++)
            mean += x[c] / (double)a->cols;
    for (int64_t c = 0; c < a->cols; c++)
        square += (x[c] - mean) * (x[c] - mean) / (double)a->cols;
    for (int64_t c = 0; c < a->cols; c++)
        y[c] = (x[c] - mean) / sqrt(square + (double)a->eps) * w[c] + (a->b ? b[c] : 0.0);
}

/* sum(dy * y) of one row: its gradient is what backward gives. */
static double norm_loss(const struct zinf_norm *a, const double *x, const double *w,
                        const double *b, const double *dy)
{
    double loss = 0.0, *y = malloc((size_t)a->cols * sizeof *y);
    norm_row(a, x, w, b, y);
    for (int64_t c = 0; c < a->cols; c++)
        loss += y[c] * dy[c];
    free(y);
    return loss;
}

/* Central differences of norm_loss by x of every row, and by w and b over all rows. */
static void norm_gradients(const struct norm_problem *p, double *dx, double *dw, double *db)
{
    const struct zinf_norm *a = &p->args;
    const double step = 1e-5;
    double *x = tensor_doubles(&p->x), *w = tensor_doubles(&p->w), *b = tensor_doubles(&p->b);
    double *dy = tensor_doubles(&p->dy);
    for (int64_t i = 0; i < a->rows * a->cols; i++) {
        int64_t row = i / a->cols * a->cols, c = i % a->cols;
        double *moved[] = {&x[i], &w[c], &b[c]}, slope[3];
        for (int k = 0; k < 3; k++) {
            double at = *moved[k];
            *moved[k] = at + step;
            slope[k] = norm_loss(a, x + row, w, b, dy + row);
            *moved[k] = at - step;
            slope[k] = (slope[k] - norm_loss(a, x + row, w, b, dy + row)) / (2.0 * step);
            *moved[k] = at;
        }
        dx[i] = slope[0] + (a->beta_dx != 0.0f ? get(&p->dx, (size_t)i) : 0.0);
        dw[c] += slope[1];
        db[c] += slope[2];
    }
    free(x);
    free(w);
    free(b);
    free(dy);
}

static void norm_case(struct fixture *f, struct norm_problem *p, bool gradients)
{
    const struct zinf_norm *a = &p->args;
    const double epsilon = dtype_epsilon(a->dtype);
    double *x = tensor_doubles(&p->x), *w = tensor_doubles(&p->w), *b = tensor_doubles(&p->b);
    double *y = malloc(p->y.n * sizeof *y);
    for (int64_t i = 0; i < a->rows; i++)
        norm_row(a, x + i * a->cols, w, b, y + i * a->cols);
    CHECK(!f->ops->norm_forward(f->q, a));
    CHECK_NEAR(f, &p->y, y, 3e-6, 1.01 * epsilon + 1e-6);
    if (gradients) {
        double *dx = calloc(p->x.n, sizeof *dx), *dw = calloc(p->w.n, sizeof *dw);
        double *db = calloc(p->b.n, sizeof *db);
        norm_gradients(p, dx, dw, db);
        CHECK(!f->ops->norm_backward(f->q, a));
        CHECK_NEAR(f, &p->dx, dx, 2e-5, 1.01 * epsilon + 1e-5);
        CHECK_NEAR(f, &p->dw, dw, 2e-5, 1e-5);
        if (a->b)
            CHECK_NEAR(f, &p->db, db, 2e-5, 1e-5);
        free(dx);
        free(dw);
        free(db);
    }
    free(x);
    free(w);
    free(b);
    free(y);
}

static void norms(struct fixture *f)
{
    for (int d = 0; d < 3; d++)
        for (int variant = 0; variant < 8; variant++) {
            enum zinf_norm_kind kind = variant & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER;
            struct norm_problem p;
            norm_open(&p, kind, all_dtypes[d], 5, 37, variant & 2, variant & 4 ? 1.0f : 0.0f);
            norm_case(f, &p, true);
            norm_close(&p);
        }
    for (int d = 0; d < 3; d++) { /* several chunks and slices, forward */
        struct norm_problem p;
        norm_open(&p, d ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[d], 21, 2100, true, 0.0f);
        norm_case(f, &p, false);
        norm_close(&p);
    }
}

static void test_norms_and_their_gradients(void)
{
    for_each_device(norms);
}

/* Many rows over threads: dw and db against sums in double, dx in place of dy. */
static void norm_slices(struct fixture *f)
{
    const int64_t rows = 333, cols = 120;
    struct norm_problem p;
    norm_open(&p, ZINF_NORM_LAYER, ZINF_DTYPE_F32, rows, cols, true, 0.0f);
    double *dw = calloc((size_t)cols, sizeof *dw), *db = calloc((size_t)cols, sizeof *db);
    CHECK(!f->ops->norm_forward(f->q, &p.args));
    for (int64_t i = 0; i < rows * cols; i++) {
        size_t row = (size_t)(i / cols), c = (size_t)(i % cols);
        double normal = (get(&p.x, (size_t)i) - get(&p.mean, row)) * get(&p.rstd, row);
        dw[c] += normal * get(&p.dy, (size_t)i);
        db[c] += get(&p.dy, (size_t)i);
    }
    CHECK(!f->ops->norm_backward(f->q, &p.args));
    CHECK_NEAR(f, &p.dw, dw, 3e-5, 3e-6);
    CHECK_NEAR(f, &p.db, db, 3e-5, 3e-6);
    struct tensor first = tensor_copy(&p.dx), first_dw = tensor_copy(&p.dw);
    p.args.dx = p.dy.data;
    CHECK(!f->ops->norm_backward(f->q, &p.args));
    CHECK(tensor_same_bits(&p.dy, &first) && tensor_same_bits(&p.dw, &first_dw));
    tensor_free(&first);
    tensor_free(&first_dw);
    free(dw);
    free(db);
    norm_close(&p);
}

static void test_norm_backward_over_slices_and_in_place(void)
{
    for_each_device(norm_slices);
}

static void test_large_mean_keeps_the_variance(void)
{
    struct fixture f;
    struct norm_problem p;
    fixture_open(&f, zinf_isa(), 1);
    norm_open(&p, ZINF_NORM_LAYER, ZINF_DTYPE_F32, 1, 64, true, 0.0f);
    for (int c = 0; c < 64; c++)
        ((float *)p.x.data)[c] = 10000.0f + (float)(c % 2);
    CHECK(!f.ops->norm_forward(f.q, &p.args));
    CHECK(near(get(&p.rstd, 0), 2.0, 1e-4, 0.0));
    norm_close(&p);
    fixture_close(&f);
}

static void test_norm_refuses_bad_arguments(void)
{
    struct fixture f;
    struct norm_problem p;
    fixture_open(&f, zinf_isa(), 2);
    norm_open(&p, ZINF_NORM_LAYER, ZINF_DTYPE_F32, 3, 8, true, 0.0f);
    struct zinf_norm bad = p.args;
    bad.cols = 0;
    CHECK(f.ops->norm_forward(f.q, &bad) == -EINVAL);
    bad = p.args;
    bad.beta_dx = 0.5f;
    CHECK(f.ops->norm_backward(f.q, &bad) == -EINVAL);
    f.ops->queue_set_workspace(f.q, f.workspace, f.ops->norm_workspace(f.device, &p.args) - 1);
    CHECK(f.ops->norm_backward(f.q, &p.args) == -EINVAL);
    CHECK(strstr(zinf_error(), "workspace") != NULL);
    norm_close(&p);
    fixture_close(&f);
}

/* ---- embedding ---- */

static void embedding(struct fixture *f)
{
    for (int d = 0; d < 3; d++) {
        const int64_t rows = 300, cols = 133, first = 10, count = 20;
        int32_t ids[300];
        struct tensor table = tensor_random(all_dtypes[d], (size_t)(count * cols), 1, 1.0f);
        struct tensor x = tensor_random(all_dtypes[d], (size_t)(rows * cols), 2, 1.0f);
        struct tensor d_table = tensor_random(ZINF_DTYPE_F32, (size_t)(count * cols), 3, 1.0f);
        struct zinf_embedding a = {x.dtype, rows,       cols,   ids,    first,       count,
                                   false,   table.data, x.data, x.data, d_table.data};
        for (int i = 0; i < 300; i++)
            ids[i] = (i * 7) % 40; /* below, inside and above the table; repeated */
        double *want = tensor_doubles(&x), *d_want = tensor_doubles(&d_table);
        for (int pass = 0; pass < 2; pass++) { /* write, then accumulate */
            a.accumulate = pass;
            for (int64_t i = 0; i < rows * cols; i++) {
                int64_t row = ids[i / cols] - first;
                if (row >= 0 && row < count)
                    want[i] = (pass ? want[i] : 0.0) + get(&table, (size_t)(row * cols + i % cols));
            }
            CHECK(!f->ops->embedding_forward(f->q, &a));
            CHECK_NEAR(f, &x, want, 0.0, pass ? 1.01 * dtype_epsilon(x.dtype) : 0.0);
        }
        for (int64_t i = 0; i < rows * cols; i++) {
            int64_t row = ids[i / cols] - first;
            if (row >= 0 && row < count)
                d_want[row * cols + i % cols] += get(&x, (size_t)i);
        }
        CHECK(!f->ops->embedding_backward(f->q, &a));
        CHECK_NEAR(f, &d_table, d_want, 1e-5, 1e-6);
        free(want);
        free(d_want);
        tensor_free(&table);
        tensor_free(&x);
        tensor_free(&d_table);
    }
}

static void test_embedding_of_part_of_a_table(void)
{
    for_each_device(embedding);
}

/* ---- cross-entropy ---- */

enum { LOSS_ROWS = 70, VOCABULARY = 601 };

struct loss_problem {
    int32_t targets[LOSS_ROWS];
    float max[LOSS_ROWS], sum[LOSS_ROWS], target_logit[LOSS_ROWS], loss[LOSS_ROWS];
    struct tensor logits; /* [LOSS_ROWS][VOCABULARY], becomes the gradient */
};

/* The whole of the loss in tiles of the vocabulary; a tile is copied out with a gap between rows,
 * as a caller that has room for one tile would hold it. */
static void run_loss(struct fixture *f, struct loss_problem *p, int64_t tile_cols)
{
    float *all = p->logits.data, *tile = malloc((size_t)(LOSS_ROWS * (tile_cols + 3)) * 4);
    struct zinf_cross_entropy a = {.rows = LOSS_ROWS,
                                   .cols = tile_cols,
                                   .ld = tile_cols + 3,
                                   .targets = p->targets,
                                   .logits = tile,
                                   .max = p->max,
                                   .sum = p->sum,
                                   .target_logit = p->target_logit,
                                   .loss = p->loss,
                                   .scale = 0.5f};
    CHECK(!f->ops->cross_entropy_start(f->q, &a));
    for (int pass = 0; pass < 2; pass++) {
        for (a.first = 0; a.first < VOCABULARY; a.first += tile_cols) {
            a.cols = VOCABULARY - a.first < tile_cols ? VOCABULARY - a.first : tile_cols;
            size_t bytes = (size_t)a.cols * sizeof *all;
            for (int64_t i = 0; i < LOSS_ROWS; i++)
                memcpy(tile + i * a.ld, all + i * VOCABULARY + a.first, bytes);
            if (!pass) {
                CHECK(!f->ops->cross_entropy_update(f->q, &a));
                continue;
            }
            CHECK(!f->ops->cross_entropy_backward(f->q, &a));
            for (int64_t i = 0; i < LOSS_ROWS; i++)
                memcpy(all + i * VOCABULARY + a.first, tile + i * a.ld, bytes);
        }
        if (!pass)
            CHECK(!f->ops->cross_entropy_finish(f->q, &a));
    }
    free(tile);
}

static void loss_open(struct loss_problem *p)
{
    p->logits = tensor_random(ZINF_DTYPE_F32, LOSS_ROWS * VOCABULARY, 1, 4.0f);
    for (int i = 0; i < LOSS_ROWS; i++)
        p->targets[i] = i % 9 == 4 ? -100 : (i * 37) % VOCABULARY;
    for (int j = 0; j < VOCABULARY; j++) /* exp of these would overflow and underflow */
        ((float *)p->logits.data)[j] += j % 2 ? 300.0f : -300.0f;
}

static double loss_row(const double *logits, int32_t target)
{
    double max = -INFINITY, sum = 0.0;
    for (int j = 0; j < VOCABULARY; j++)
        max = logits[j] > max ? logits[j] : max;
    for (int j = 0; j < VOCABULARY; j++)
        sum += exp(logits[j] - max);
    return target < 0 ? 0.0 : log(sum) + max - logits[target];
}

static void cross_entropy(struct fixture *f)
{
    static const int64_t tiles[] = {VOCABULARY, 200, 64, 33};
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        struct loss_problem p;
        loss_open(&p);
        double *logits = tensor_doubles(&p.logits);
        run_loss(f, &p, tiles[t]);
        for (int i = 0; i < LOSS_ROWS; i++) {
            double *row = logits + i * VOCABULARY, want = loss_row(row, p.targets[i]);
            CHECKF(near((double)p.loss[i], want, 1e-6, 1e-6), "%s tile %d loss[%d] %.9g, want %.9g",
                   f->name, (int)tiles[t], i, (double)p.loss[i], want);
            for (int j = i % 7; j < VOCABULARY; j += 50) {
                double at = row[j], step = 1e-5, got = get(&p.logits, (size_t)(i * VOCABULARY + j));
                row[j] = at + step;
                double slope = loss_row(row, p.targets[i]);
                row[j] = at - step;
                slope = 0.5 * (slope - loss_row(row, p.targets[i])) / (2.0 * step);
                row[j] = at;
                CHECKF(near(got, slope, 1e-7, 1e-5), "%s gradient [%d][%d] %.9g, want %.9g",
                       f->name, i, j, got, slope);
            }
        }
        free(logits);
        tensor_free(&p.logits);
    }
}

static void test_cross_entropy_over_tiles(void)
{
    for_each_device(cross_entropy);
}

static void test_cross_entropy_gradient_sums_to_zero_and_ignores(void)
{
    struct fixture f;
    struct loss_problem p;
    fixture_open(&f, zinf_isa(), 2);
    loss_open(&p);
    run_loss(&f, &p, 100);
    for (int i = 0; i < LOSS_ROWS; i++) {
        double sum = 0.0, size = 0.0;
        for (int j = 0; j < VOCABULARY; j++) {
            sum += get(&p.logits, (size_t)(i * VOCABULARY + j));
            size += fabs(get(&p.logits, (size_t)(i * VOCABULARY + j)));
        }
        CHECK(fabs(sum) < 1e-5);
        CHECK((size == 0.0) == (p.targets[i] < 0));
    }
    tensor_free(&p.logits);
    fixture_close(&f);
}

static void test_cross_entropy_refuses_bad_tiles_and_shows_bad_targets(void)
{
    struct fixture f;
    struct loss_problem p;
    fixture_open(&f, zinf_isa(), 1);
    struct zinf_cross_entropy a = {.rows = 1, .cols = 8, .ld = 7};
    CHECK(f.ops->cross_entropy_update(f.q, &a) == -EINVAL);
    CHECK(f.ops->cross_entropy_backward(f.q, &a) == -EINVAL);
    a.rows = -1;
    CHECK(f.ops->cross_entropy_start(f.q, &a) == -EINVAL);
    loss_open(&p);
    p.targets[3] = VOCABULARY; /* no tile holds it */
    run_loss(&f, &p, 100);
    CHECK(isnan(p.loss[3]) && isfinite(p.loss[2]));
    tensor_free(&p.logits);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_norms_and_their_gradients);
    TAP_RUN(test_norm_backward_over_slices_and_in_place);
    TAP_RUN(test_large_mean_keeps_the_variance);
    TAP_RUN(test_norm_refuses_bad_arguments);
    TAP_RUN(test_embedding_of_part_of_a_table);
    TAP_RUN(test_cross_entropy_over_tiles);
    TAP_RUN(test_cross_entropy_gradient_sums_to_zero_and_ignores);
    TAP_RUN(test_cross_entropy_refuses_bad_tiles_and_shows_bad_targets);
    return tap_done();
}

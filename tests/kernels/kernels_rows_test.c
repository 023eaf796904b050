/* kernels_rows: embeddings and the tiled cross-entropy, against references in double and finite
 * differences of those. */
#include "kernels_testing.h"

/* ---- embedding ---- */

static void embedding_scaled(struct fixture *f, float scale)
{
    const double factor = scale != 0.0f ? (double)scale : 1.0;
    for (int d = 0; d < 3; d++) {
        const int64_t rows = 300, cols = 133, first = 10, count = 20;
        int32_t ids[300];
        struct tensor table = tensor_random(all_dtypes[d], (size_t)(count * cols), 1, 1.0f);
        struct tensor x = tensor_random(all_dtypes[d], (size_t)(rows * cols), 2, 1.0f);
        struct tensor d_table = tensor_random(ZINF_DTYPE_F32, (size_t)(count * cols), 3, 1.0f);
        struct zinf_embedding a = {.dtype = x.dtype,
                                   .rows = rows,
                                   .cols = cols,
                                   .ids = ids,
                                   .first = first,
                                   .count = count,
                                   .scale = scale,
                                   .table = table.data,
                                   .x = x.data,
                                   .dx = x.data,
                                   .d_table = d_table.data};
        for (int i = 0; i < 300; i++)
            ids[i] = (i * 7) % 40; /* below, inside and above the table; repeated */
        double *want = tensor_doubles(&x), *d_want = tensor_doubles(&d_table);
        for (int pass = 0; pass < 2; pass++) { /* write, then accumulate */
            a.accumulate = pass;
            for (int64_t i = 0; i < rows * cols; i++) {
                int64_t row = ids[i / cols] - first;
                if (row >= 0 && row < count)
                    want[i] = (pass ? want[i] : 0.0) +
                              factor * get(&table, (size_t)(row * cols + i % cols));
            }
            CHECK(!f->ops->embedding_forward(f->q, &a));
            /* Without a scale the first pass copies; a product that is not fused rounds by itself.
             */
            CHECK_NEAR(f, &x, want, scale != 0.0f ? 1e-6 : 0.0,
                       pass || scale != 0.0f ? 1.01 * dtype_epsilon(x.dtype) : 0.0);
            for (int64_t i = 0; i < rows * cols; i++)
                want[i] = get(&x, (size_t)i);
        }
        for (int64_t i = 0; i < rows * cols; i++) {
            int64_t row = ids[i / cols] - first;
            if (row >= 0 && row < count)
                d_want[row * cols + i % cols] += factor * get(&x, (size_t)i);
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

static void embedding(struct fixture *f)
{
    embedding_scaled(f, 0.0f);
    embedding_scaled(f, 11.3125f); /* about the root of 128 in bf16 */
}

static void test_embedding_of_part_of_a_table(void)
{
    for_each_device(embedding);
}

/* ---- cross-entropy ---- */

enum { LOSS_ROWS = 70, VOCABULARY = 1301 }; /* columns of more than one chunk */

struct loss_problem {
    int32_t targets[LOSS_ROWS];
    float max[LOSS_ROWS], sum[LOSS_ROWS], target_logit[LOSS_ROWS], loss[LOSS_ROWS];
    float softcap, smoothing, z_loss, max_z_loss, logit_sum[LOSS_ROWS], row_scales[LOSS_ROWS];
    int32_t max_at[LOSS_ROWS];
    bool weighed;
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
                                   .softcap = p->softcap,
                                   .targets = p->targets,
                                   .logits = tile,
                                   .max = p->max,
                                   .sum = p->sum,
                                   .target_logit = p->target_logit,
                                   .loss = p->loss,
                                   .scale = 0.5f,
                                   .row_scales = p->weighed ? p->row_scales : NULL,
                                   .smoothing = p->smoothing,
                                   .vocab = VOCABULARY,
                                   .logit_sum = p->logit_sum,
                                   .z_loss = p->z_loss,
                                   .max_z_loss = p->max_z_loss,
                                   .max_at = p->max_at};
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

/* With a cap logits lie around it, else exp of them would overflow and underflow. */
static void loss_open(struct loss_problem *p, float softcap)
{
    const float offset = softcap > 0.0f ? softcap / 3.0f : 300.0f;
    *p = (struct loss_problem){.softcap = softcap};
    p->logits = tensor_random(ZINF_DTYPE_F32, LOSS_ROWS * VOCABULARY, 1, 4.0f);
    for (int i = 0; i < LOSS_ROWS; i++)
        p->targets[i] = i % 9 == 4 ? -100 : (i * 37) % VOCABULARY;
    for (int i = 0; i < LOSS_ROWS; i++)
        p->row_scales[i] = (float)(i % 5) - 1.5f;
    for (int j = 0; j < VOCABULARY; j++)
        ((float *)p->logits.data)[j] += j % 2 ? offset : -offset;
}

static double loss_row(const struct loss_problem *p, const double *logits, int32_t target)
{
    const double cap = (double)p->softcap, e = (double)p->smoothing, z = (double)p->z_loss;
    const double largest = (double)p->max_z_loss;
    double capped[VOCABULARY], max = -INFINITY, sum = 0.0, spread = 0.0;
    for (int j = 0; j < VOCABULARY; j++) {
        capped[j] = cap > 0.0 ? cap * tanh(logits[j] / cap) : logits[j];
        max = capped[j] > max ? capped[j] : max;
    }
    for (int j = 0; j < VOCABULARY; j++)
        sum += exp(capped[j] - max);
    const double all = log(sum) + max;
    for (int j = 0; j < VOCABULARY && e > 0.0; j++)
        spread += (all - capped[j]) / VOCABULARY;
    return target < 0 ? 0.0
                      : (1 - e) * (all - capped[target]) + e * spread + z * all * all +
                            largest * (max - all) * (max - all);
}

/* The gradient of row i at column j, by central differences of the loss. */
static void check_slope(struct fixture *f, const struct loss_problem *p, double *row, int i, int j)
{
    const double at = row[j], step = 1e-5, got = get(&p->logits, (size_t)(i * VOCABULARY + j));
    const double scale = 0.5 * (p->weighed ? (double)p->row_scales[i] : 1.0);
    row[j] = at + step;
    double slope = loss_row(p, row, p->targets[i]);
    row[j] = at - step;
    slope = scale * (slope - loss_row(p, row, p->targets[i])) / (2.0 * step);
    row[j] = at;
    CHECKF(near(got, slope, 1e-7, 1e-5), "%s gradient [%d][%d] %.9g, want %.9g", f->name, i, j, got,
           slope);
}

static void cross_entropy_of(struct fixture *f, float softcap, float smoothing, float z_loss,
                             float max_z_loss)
{
    static const int64_t tiles[] = {VOCABULARY, 200, 64, 33};
    for (size_t t = 0; t < sizeof tiles / sizeof *tiles; t++) {
        struct loss_problem p;
        loss_open(&p, softcap);
        p.smoothing = smoothing;
        p.z_loss = z_loss;
        p.max_z_loss = max_z_loss;
        p.weighed = z_loss > 0;
        double *logits = tensor_doubles(&p.logits);
        run_loss(f, &p, tiles[t]);
        for (int i = 0; i < LOSS_ROWS; i++) {
            double *row = logits + i * VOCABULARY;
            double want = loss_row(&p, row, p.targets[i]);
            CHECKF(near((double)p.loss[i], want, 1e-6, 1e-6), "%s tile %d loss[%d] %.9g, want %.9g",
                   f->name, (int)tiles[t], i, (double)p.loss[i], want);
            for (int j = i % 7; j < VOCABULARY; j += 200)
                check_slope(f, &p, row, i, j);
            if (p.targets[i] >= 0)
                check_slope(f, &p, row, i, p.targets[i]);
        }
        free(logits);
        tensor_free(&p.logits);
    }
}

static void cross_entropy(struct fixture *f)
{
    cross_entropy_of(f, 0.0f, 0.0f, 0.0f, 0.0f);
    cross_entropy_of(f, 10.0f, 0.0f, 0.0f, 0.0f);
}

static void cross_entropy_and_more(struct fixture *f)
{
    cross_entropy_of(f, 0.0f, 0.1f, 0.0f, 0.0f);
    cross_entropy_of(f, 10.0f, 0.1f, 0.01f, 0.0f);
    cross_entropy_of(f, 0.0f, 0.0f, 0.0f, 0.03f);
    cross_entropy_of(f, 10.0f, 0.1f, 0.01f, 0.2f);
}

/* What leaves the device is capped by itself. */
static void softcap(struct fixture *f)
{
    struct tensor x = tensor_random(ZINF_DTYPE_F32, 40003, 1, 20.0f);
    double *want = tensor_doubles(&x);
    ((float *)x.data)[7] = NAN;
    ((float *)x.data)[8] = -INFINITY;
    ((float *)x.data)[9] = 1e-30f;
    for (size_t i = 0; i < x.n; i++)
        want[i] = 30.0 * tanh(get(&x, i) / 30.0);
    CHECK(!f->ops->softcap(f->q, x.data, 30.0f, x.n));
    CHECK(isnan(get(&x, 7)) && get(&x, 8) == -30.0);
    ((float *)x.data)[7] = 0.0f;
    want[7] = 0.0;
    CHECK_NEAR(f, &x, want, 0.0, 4e-7);
    free(want);
    tensor_free(&x);
}

/* Rows without a label are ignored; the gradient may be in the place of x. */
static void squared_error(struct fixture *f)
{
    const float x[] = {1.5f, -2, 3, 0}, labels[] = {1, 1, NAN, 0}, losses[] = {0.25f, 9, 0, 0},
                slopes[] = {0.5f, -3, 0, 0};
    float loss[4], dx[4];
    memcpy(dx, x, sizeof dx);
    struct zinf_squared_error a = {
        .rows = 4, .x = x, .labels = labels, .loss = loss, .scale = 0.5f};
    CHECK(!f->ops->squared_error(f->q, &a) && !memcmp(loss, losses, sizeof loss));
    a.loss = NULL;
    a.x = a.dx = dx;
    CHECK(!f->ops->squared_error(f->q, &a) && !memcmp(dx, slopes, sizeof dx));
    a.rows = -1;
    CHECK(f->ops->squared_error(f->q, &a) == -EINVAL);
}

/* ---- sinks ---- */

/* Shrunk by what the sink takes, and its gradient against a difference of sum(out d_out), where
 * out without it is constant. */
static void sinks_case(struct fixture *f, enum zinf_dtype dtype, int64_t batch, int64_t seq,
                       int64_t heads, int64_t dim)
{
    const size_t rows = (size_t)(batch * seq), n = rows * (size_t)(heads * dim);
    struct tensor sinks = tensor_random(dtype, (size_t)heads, 1, 2.0f);
    struct tensor out = tensor_random(dtype, n, 2, 1.0f), d_out = tensor_random(dtype, n, 3, 1.0f);
    struct tensor lse = tensor_random(ZINF_DTYPE_F32, rows * (size_t)heads, 4, 3.0f);
    struct tensor d_sinks = tensor_new(ZINF_DTYPE_F32, (size_t)heads);
    double *want = tensor_doubles(&out), *sums = tensor_doubles(&lse);
    double *d_want = calloc((size_t)heads, sizeof *d_want);
    for (size_t r = 0; r < rows; r++)
        for (size_t h = 0; h < (size_t)heads; h++) {
            size_t at = (r / (size_t)seq * (size_t)heads + h) * (size_t)seq + r % (size_t)seq;
            double keys = exp(sums[at]), sink = exp(get(&sinks, h)), share = keys / (keys + sink);
            sums[at] = log(keys + sink);
            for (size_t c = 0; c < (size_t)dim; c++) {
                size_t i = (r * (size_t)heads + h) * (size_t)dim + c;
                d_want[h] -= share * (1 - share) * want[i] * get(&d_out, i);
                want[i] *= share;
            }
        }
    struct zinf_sinks a = {.dtype = dtype,
                           .batch = batch,
                           .seq = seq,
                           .n_heads = heads,
                           .head_dim = dim,
                           .sinks = sinks.data,
                           .out = out.data,
                           .lse = lse.data,
                           .d_out = d_out.data,
                           .d_sinks = d_sinks.data};
    const double relative = 1.01 * dtype_epsilon(dtype) + 1e-6;
    CHECK(!f->ops->sinks_forward(f->q, &a));
    CHECK_NEAR(f, &out, want, 1e-6, relative);
    CHECK_NEAR(f, &lse, sums, 1e-6, 1e-6);
    CHECK(!f->ops->sinks_backward(f->q, &a));
    CHECK_NEAR(f, &d_sinks, d_want, dtype == ZINF_DTYPE_F32 ? 1e-4 : 1e-1, 1e-3);
    free(want);
    free(sums);
    free(d_want);
    struct tensor *all[] = {&sinks, &out, &d_out, &lse, &d_sinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        tensor_free(all[i]);
}

static void sinks(struct fixture *f)
{
    for (int d = 0; d < 3; d++) {
        sinks_case(f, all_dtypes[d], 1, 1, 1, 1);
        sinks_case(f, all_dtypes[d], 3, 37, 5, 24);
        sinks_case(f, all_dtypes[d], 2, 130, 3, 256);
    }
    struct zinf_sinks bad = {.seq = 1, .n_heads = 1, .head_dim = 257};
    CHECK(f->ops->sinks_forward(f->q, &bad) == -EINVAL && strstr(zinf_error(), "257"));
}

static void test_sinks_and_their_gradients(void)
{
    for_each_device(sinks);
}

/* ---- columns of heads ---- */

/* Random rows of x and y; want is what y becomes, from the formula. */
static void heads_case(struct fixture *f, struct zinf_heads a, bool zeros)
{
    const size_t n_x = (size_t)(a.rows * a.x_ld), n_y = (size_t)(a.rows * a.y_ld);
    struct tensor x = tensor_random(a.dtype, n_x, 1, 1.0f),
                  y = tensor_random(a.dtype, n_y, 2, 1.0f);
    double *want = tensor_doubles(&y);
    for (int64_t r = 0; r < a.rows; r++)
        for (int64_t c = 0; c < a.cols; c++) {
            double sum = 0;
            for (int64_t h = 0; h < a.n_heads; h++) {
                const double scale = zinf_heads_scaled(&a) ? (double)a.scale : 1;
                const double value =
                    zeros ? 0 : scale * get(&x, (size_t)(r * a.x_ld + h * a.x_step + c));
                sum = zinf_heads_sum(&a) ? sum + value : value;
                want[r * a.y_ld + h * a.y_step + c] = sum;
            }
        }
    a.x = zeros ? NULL : x.data;
    a.y = y.data;
    CHECKF(!f->ops->copy_heads(f->q, &a), "%s", zinf_error());
    const bool rounds = zinf_heads_sum(&a) || zinf_heads_scaled(&a);
    const double relative = rounds ? 1.01 * dtype_epsilon(a.dtype) + 1e-6 : 0;
    CHECK_NEAR(f, &y, want, relative, relative);
    free(want);
    tensor_free(&x);
    tensor_free(&y);
}

static void heads(struct fixture *f)
{
    for (int d = 0; d < 3; d++) {
        struct zinf_heads a = {.dtype = all_dtypes[d],
                               .rows = 7,
                               .n_heads = 5,
                               .cols = 6,
                               .x_ld = 61,
                               .x_step = 11,
                               .y_ld = 53,
                               .y_step = 9};
        heads_case(f, a, false);
        heads_case(f, a, true);
        a.scale = -1.7f;
        heads_case(f, a, false);
        a.scale = 0;
        a.x_step = 0; /* to all heads alike */
        heads_case(f, a, false);
        a.x_step = 11, a.y_step = 0; /* and their sum */
        heads_case(f, a, false);
        heads_case(f,
                   (struct zinf_heads){.dtype = all_dtypes[d],
                                       .rows = 300,
                                       .n_heads = 1,
                                       .cols = 511,
                                       .x_ld = 512,
                                       .y_ld = 511},
                   false);
    }
    struct zinf_heads bad = {.rows = 1,
                             .n_heads = 2,
                             .cols = 257,
                             .x = &bad,
                             .x_ld = 600,
                             .x_step = 300,
                             .y = &bad,
                             .y_ld = 600};
    CHECK(f->ops->copy_heads(f->q, &bad) == -EINVAL && strstr(zinf_error(), "257"));
    bad.cols = 10, bad.scale = 2;
    CHECK(f->ops->copy_heads(f->q, &bad) == -EINVAL && strstr(zinf_error(), "scaled"));
    bad.scale = 0, bad.x_ld = 309;
    CHECK(f->ops->copy_heads(f->q, &bad) == -EINVAL && strstr(zinf_error(), "309"));
}

static void test_columns_of_heads(void)
{
    for_each_device(heads);
}

static void test_squared_error(void)
{
    for_each_device(squared_error);
}

static void test_softcap(void)
{
    for_each_device(softcap);
}

/* Gradients of 16 bits are those of fp32, rounded, in the front of their rows. */
static void narrow_gradients(struct fixture *f)
{
    struct loss_problem p;
    loss_open(&p, 10.0f);
    const size_t row = VOCABULARY + 3, n = LOSS_ROWS * row;
    float *wide = malloc(n * sizeof *wide), *narrow = malloc(n * sizeof *narrow);
    for (size_t i = 0; i < n; i++)
        wide[i] = (float)get(&p.logits, i % p.logits.n);
    struct zinf_cross_entropy a = {.rows = LOSS_ROWS,
                                   .cols = VOCABULARY,
                                   .ld = (int64_t)row,
                                   .softcap = p.softcap,
                                   .targets = p.targets,
                                   .max = p.max,
                                   .sum = p.sum,
                                   .target_logit = p.target_logit,
                                   .scale = 0.5f};
    for (int d = 1; d < 3; d++) {
        uint16_t want[VOCABULARY];
        a.logits = wide;
        CHECK(!f->ops->cross_entropy_start(f->q, &a) && !f->ops->cross_entropy_update(f->q, &a));
        memcpy(narrow, wide, n * sizeof *wide);
        a.d_dtype = ZINF_DTYPE_F32;
        CHECK(!f->ops->cross_entropy_backward(f->q, &a));
        a.logits = narrow;
        a.d_dtype = all_dtypes[d];
        CHECK(!f->ops->cross_entropy_backward(f->q, &a));
        for (size_t i = 0; i < LOSS_ROWS; i++) {
            zinf_convert(want, all_dtypes[d], wide + i * row, ZINF_DTYPE_F32, VOCABULARY);
            CHECKF(!memcmp(want, narrow + i * row, sizeof want), "row %d", (int)i);
        }
    }
    free(wide);
    free(narrow);
    tensor_free(&p.logits);
}

static void test_cross_entropy_of_narrow_gradients(void)
{
    for_each_device(narrow_gradients);
}

static void test_cross_entropy_over_tiles(void)
{
    for_each_device(cross_entropy);
}

static void test_cross_entropy_of_smoothed_labels_and_z_loss(void)
{
    for_each_device(cross_entropy_and_more);
}

/* Logits [[2, 1, 0, -1], [.5, 0, 1.5, -.5]] with labels 0 and 2, a tenth of them spread: the mean
 * that transformers' LabelSmoother gives. */
static void test_smoothed_labels_as_transformers_has_them(void)
{
    struct fixture f;
    float logits[] = {2, 1, 0, -1, .5f, 0, 1.5f, -.5f}, max[2], sum[2], target[2], all[2], loss[2];
    const int32_t targets[] = {0, 2};
    struct zinf_cross_entropy a = {.rows = 2,
                                   .cols = 4,
                                   .ld = 4,
                                   .targets = targets,
                                   .logits = logits,
                                   .max = max,
                                   .sum = sum,
                                   .target_logit = target,
                                   .loss = loss,
                                   .smoothing = 0.1f,
                                   .vocab = 4,
                                   .logit_sum = all};
    fixture_open(&f, zinf_isa(), 1);
    CHECK(!f.ops->cross_entropy_start(f.q, &a) && !f.ops->cross_entropy_update(f.q, &a));
    CHECK(!f.ops->cross_entropy_finish(f.q, &a));
    CHECK(fabs(0.5 * (double)(loss[0] + loss[1]) - 0.6243480) < 1e-6);
    a.smoothing = 1.0f;
    CHECK(f.ops->cross_entropy_start(f.q, &a) == -EINVAL && strstr(zinf_error(), "smoothing"));
    fixture_close(&f);
}

/* Of columns that are equally large the first has all of the largest's gradient: sums over rows
 * stay 0. */
static void test_the_first_of_largest_logits_counts(void)
{
    struct fixture f;
    float logits[] = {1, 3, 3, 0}, max, sum, target, loss, step = 0.5f;
    int32_t at = -1;
    const int32_t targets[] = {3};
    struct zinf_cross_entropy a = {.rows = 1,
                                   .cols = 4,
                                   .ld = 4,
                                   .targets = targets,
                                   .logits = logits,
                                   .max = &max,
                                   .sum = &sum,
                                   .target_logit = &target,
                                   .loss = &loss,
                                   .scale = 1,
                                   .max_z_loss = step};
    fixture_open(&f, zinf_isa(), 1);
    CHECK(f.ops->cross_entropy_start(f.q, &a) == -EINVAL && strstr(zinf_error(), "is not kept"));
    a.max_at = &at;
    CHECK(!f.ops->cross_entropy_start(f.q, &a) && !f.ops->cross_entropy_update(f.q, &a));
    CHECK(!f.ops->cross_entropy_finish(f.q, &a) && at == 1);
    const double all = log(sum), other = exp(0.0) / (double)sum * (1 + all);
    CHECK(fabs((double)loss - (all + 3 + 0.5 * all * all)) < 1e-6);
    CHECK(!f.ops->cross_entropy_backward(f.q, &a));
    CHECK(fabs((double)logits[2] - other) < 1e-6 && fabs((double)logits[1] - (other - all)) < 1e-6);
    CHECK(fabs((double)(logits[0] + logits[1] + logits[2] + logits[3])) < 1e-6);
    fixture_close(&f);
}

/* Tokens that may not come have -infinity, maybe all of a tile. Of a row that has nothing else, the
 * loss is not a number. */
static void first_tiles_of_minus_infinity(struct fixture *f)
{
    static const int64_t tiles[] = {200, 33};
    for (int smooth = 0; smooth < 2; smooth++)
        for (int t = 0; t < 2; t++) {
            struct loss_problem p;
            loss_open(&p, 0.0f);
            p.max_z_loss = smooth ? 0.1f : 0.0f;
            for (int i = 0; i < LOSS_ROWS; i++)
                for (int j = 0; j < (i == 3 ? VOCABULARY : i % 4 * 50); j++)
                    ((float *)p.logits.data)[i * VOCABULARY + j] = -INFINITY;
            double *logits = tensor_doubles(&p.logits);
            run_loss(f, &p, tiles[t]);
            CHECK(isnan(p.loss[3]));
            for (int i = 0; i < LOSS_ROWS; i++) {
                double want = loss_row(&p, logits + i * VOCABULARY, p.targets[i]);
                if (i == 3)
                    continue;
                CHECKF(p.loss[i] == (float)want || near((double)p.loss[i], want, 1e-6, 1e-6),
                       "%s tile %d loss[%d] %.9g, want %.9g", f->name, (int)tiles[t], i,
                       (double)p.loss[i], want);
                CHECK(!isnan(get(&p.logits, (size_t)(i * VOCABULARY))));
            }
            free(logits);
            tensor_free(&p.logits);
        }
}

static void test_cross_entropy_of_tiles_of_minus_infinity(void)
{
    struct fixture f;
    fixture_open(&f, zinf_isa(), 2);
    first_tiles_of_minus_infinity(&f);
    fixture_close(&f);
}

static void test_cross_entropy_gradient_sums_to_zero_and_ignores(void)
{
    struct fixture f;
    struct loss_problem p;
    fixture_open(&f, zinf_isa(), 2);
    loss_open(&p, 0.0f);
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
    a.rows = 0;
    a.softcap = -1.0f;
    CHECK(f.ops->cross_entropy_start(f.q, &a) == -EINVAL && strstr(zinf_error(), "softcap"));
    loss_open(&p, 0.0f);
    p.targets[3] = VOCABULARY; /* no tile holds it */
    run_loss(&f, &p, 100);
    CHECK(isnan(p.loss[3]) && isfinite(p.loss[2]));
    tensor_free(&p.logits);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_embedding_of_part_of_a_table);
    TAP_RUN(test_cross_entropy_over_tiles);
    TAP_RUN(test_cross_entropy_of_narrow_gradients);
    TAP_RUN(test_cross_entropy_of_smoothed_labels_and_z_loss);
    TAP_RUN(test_smoothed_labels_as_transformers_has_them);
    TAP_RUN(test_the_first_of_largest_logits_counts);
    TAP_RUN(test_cross_entropy_of_tiles_of_minus_infinity);
    TAP_RUN(test_softcap);
    TAP_RUN(test_sinks_and_their_gradients);
    TAP_RUN(test_columns_of_heads);
    TAP_RUN(test_squared_error);
    TAP_RUN(test_cross_entropy_gradient_sums_to_zero_and_ignores);
    TAP_RUN(test_cross_entropy_refuses_bad_tiles_and_shows_bad_targets);
    return tap_done();
}

/* cases_rows: norms, embeddings, rotations, and rows that are copied beside each other. */
#include "cli/doctor/cases.h"

#include <math.h>

/* ---- norms ---- */

struct norm_pairs {
    struct pair x, w, b, y, mean, rstd, dy, dx, dw, db;
};

static void norm_side(struct zinf_norm *a, const struct norm_pairs *p, int side, bool bias)
{
    a->x = at(&p->x, side);
    a->w = a->w ? at(&p->w, side) : NULL; /* as the case has it */
    a->b = bias ? at(&p->b, side) : NULL;
    a->y = at(&p->y, side);
    a->mean = at(&p->mean, side);
    a->rstd = at(&p->rstd, side);
    a->dy = at(&p->dy, side);
    a->dx = at(&p->dx, side);
    a->dw = a->w ? at(&p->dw, side) : NULL;
    a->db = bias ? at(&p->db, side) : NULL;
}

/* dx by itself, and in place of dy, has the bits that it had. */
static void dx_alone_and_in_place(struct twin *t, struct zinf_norm *a, struct norm_pairs *p)
{
    struct tensor apart = pair_download(t, &p->dx);
    norm_side(a, p, SIDE_CUDA, a->b);
    for (int in_place = 0; in_place < 2; in_place++) {
        struct pair *to = in_place ? &p->dy : &p->dx;
        a->dw = a->db = NULL;
        a->dx = to->device;
        TWIN_CHECK(t, !t->cuda->ops->norm_backward(t->q, a));
        struct tensor again = pair_download(t, to);
        TWIN_CHECK(t, tensor_same_bits(&apart, &again));
    }
}

static void norm_check(struct twin *t, struct zinf_norm *a, struct norm_pairs *p, bool bias)
{
    const double ulp = 2.0 * dtype_epsilon(a->dtype) + 3e-6;
    const double sums = 2e-6 * (double)(p->rstd.host.n + 10);
    ON_BOTH(t, (norm_side(a, p, side, bias), ops->norm_forward(q, a)));
    ON_BOTH(t, (norm_side(a, p, side, bias), ops->norm_backward(q, a)));
    PAIR_CHECK(t, &p->y, 1e-5, ulp);
    PAIR_CHECK(t, &p->rstd, 0.0, 2e-6);
    if (a->kind == ZINF_NORM_LAYER)
        PAIR_CHECK(t, &p->mean, 1e-6, 1e-6);
    PAIR_CHECK(t, &p->dx, 2e-5, ulp);
    if (a->w)
        PAIR_CHECK(t, &p->dw, sums, 1e-5);
    if (bias)
        PAIR_CHECK(t, &p->db, sums, 1e-5);
    if (a->beta_dx == 0.0f)
        dx_alone_and_in_place(t, a, p);
}

void case_norm(struct twin *t, enum zinf_norm_kind kind, enum zinf_dtype dtype,
               struct norm_shape shape, float beta_dx)
{
    const bool bias = kind == ZINF_NORM_LAYER && !shape.without_w;
    struct zinf_norm a = {.kind = kind,
                          .dtype = dtype,
                          .rows = shape.rows,
                          .cols = shape.cols,
                          .heads = shape.heads,
                          .ld = shape.ld,
                          .eps = 1e-5f,
                          .w_add = shape.w_add,
                          .beta_dx = beta_dx};
    const int64_t heads = shape.heads ? shape.heads : 1;
    const size_t n = (size_t)(shape.rows * (shape.ld ? shape.ld : heads * shape.cols));
    const size_t r = (size_t)(shape.rows * heads), c = (size_t)shape.cols;
    twin_case(t, kind == ZINF_NORM_LAYER ? "layer norm" : "rms norm",
              "%s, %lld rows of %lld heads of %lld", zinf_dtype_name(dtype), (long long)shape.rows,
              (long long)heads, (long long)shape.cols);
    struct norm_pairs p = {
        pair_random(t, dtype, n, 1, 2.0f),
        pair_random(t, dtype, c, 2, 1.0f),
        pair_random(t, dtype, c, 3, 1.0f),
        pair_new(t, dtype, n, 0),
        pair_new(t, ZINF_DTYPE_F32, r, 0),
        pair_new(t, ZINF_DTYPE_F32, r, 0),
        pair_random(t, dtype, n, 4, 1.0f),
        pair_random(t, dtype, n, 4, 1.0f), /* as dy, also between the heads */
        pair_random(t, ZINF_DTYPE_F32, c, 6, 1.0f),
        pair_random(t, ZINF_DTYPE_F32, c, 7, 1.0f),
    };
    a.w = shape.without_w ? NULL : p.w.device;
    norm_check(t, &a, &p, bias);
}

/* ---- a sum and its norm ---- */

struct sum_pairs {
    struct pair x, r, w, b, sum, y, mean, rstd;
};

static void sum_side(struct zinf_residual *s, struct zinf_norm *a, const struct sum_pairs *p,
                     int side)
{
    const bool centred = a->kind == ZINF_NORM_LAYER;
    s->x = at(&p->x, side), s->r = at(&p->r, side), s->y = at(&p->sum, side);
    a->x = s->y, a->w = at(&p->w, side), a->b = centred ? at(&p->b, side) : NULL;
    a->y = at(&p->y, side), a->mean = at(&p->mean, side), a->rstd = at(&p->rstd, side);
}

/* Both after each other leave on the GPU what the one operation has left there. */
static void sum_check(struct twin *t, struct zinf_residual *s, struct zinf_norm *a,
                      struct sum_pairs *p)
{
    struct pair *const made[] = {&p->sum, &p->y, &p->rstd, &p->mean};
    const int n = a->kind == ZINF_NORM_LAYER ? 4 : 3;
    const double ulp = 2.0 * dtype_epsilon(a->dtype) + 3e-6;
    struct tensor at_once[4];
    ON_BOTH(t, (sum_side(s, a, p, side), ops->residual_norm(q, s, a)));
    PAIR_CHECK(t, &p->sum, 1e-6, ulp);
    /* the sum is rounded, on either side of a middle where the factor is */
    PAIR_CHECK(t, &p->y, 1e-5 + 4.0 * dtype_epsilon(a->dtype), 2.0 * ulp);
    PAIR_CHECK(t, &p->rstd, 0.0, 2e-6 + 0.1 * dtype_epsilon(a->dtype));
    for (int i = 0; i < n; i++)
        at_once[i] = pair_download(t, made[i]);
    sum_side(s, a, p, SIDE_CUDA);
    TWIN_CHECK(t, !t->cuda->ops->residual_add(t->q, s) && !t->cuda->ops->norm_forward(t->q, a));
    for (int i = 0; i < n; i++) {
        struct tensor apart = pair_download(t, made[i]);
        TWIN_CHECK(t, tensor_same_bits(&apart, &at_once[i]));
    }
}

void case_residual_norm(struct twin *t, enum zinf_norm_kind kind, enum zinf_dtype dtype,
                        int64_t rows, int64_t cols, float drop)
{
    const size_t n = (size_t)(rows * cols), r = (size_t)rows, c = (size_t)cols;
    struct zinf_norm a = {.kind = kind, .dtype = dtype, .rows = rows, .cols = cols, .eps = 1e-5f};
    struct zinf_residual s = {.dtype = dtype, .n = rows * cols};
    s.dropout = (struct zinf_dropout){.p = drop, .seed = 7, .step = 3, .site = 2};
    s.dropout.element_first = 12;
    s.scale = drop > 0 ? 0.5f : 0.0f;
    twin_case(t, "residual_norm", "%s, %lld rows of %lld", zinf_dtype_name(dtype), (long long)rows,
              (long long)cols);
    struct sum_pairs p = {
        pair_random(t, dtype, n, 1, 2.0f), pair_random(t, dtype, n, 2, 2.0f),
        pair_random(t, dtype, c, 3, 1.0f), pair_random(t, dtype, c, 4, 1.0f),
        pair_new(t, dtype, n, 0),          pair_new(t, dtype, n, 0),
        pair_new(t, ZINF_DTYPE_F32, r, 0), pair_new(t, ZINF_DTYPE_F32, r, 0),
    };
    sum_check(t, &s, &a, &p);
}

/* ---- embedding ---- */

void case_embedding(struct twin *t, enum zinf_dtype dtype, int64_t rows, int64_t cols, float scale,
                    bool ids_apart)
{
    /* The CPU may fuse product and sum, or round between them. */
    const double ulp = scale != 0.0f ? 2.0 * dtype_epsilon(dtype) + 2e-7 : 0.0;
    const int64_t first = 10, count = 20;
    const size_t n = (size_t)(rows * cols), table_n = (size_t)(count * cols);
    twin_case(t, "embedding", "%s, %lld rows of %lld", zinf_dtype_name(dtype), (long long)rows,
              (long long)cols);
    struct pair ids = pair_new(t, ZINF_DTYPE_F32, (size_t)rows + 1, 0); /* 4 bytes each */
    for (int64_t i = 0; i <= rows; i++)
        ((int32_t *)ids.host.data)[i] = (int32_t)((i * 7 + i / 3) % 40);
    pair_upload(t, &ids);
    struct pair table = pair_random(t, dtype, table_n, 1, 1.0f);
    struct pair x = pair_random(t, dtype, n, 2, 1.0f), dx = pair_random(t, dtype, n, 3, 1.0f);
    struct pair d_table = pair_random(t, ZINF_DTYPE_F32, table_n, 4, 1.0f);
    struct zinf_embedding a = {
        .dtype = dtype, .rows = rows, .cols = cols, .first = first, .count = count, .scale = scale};
    for (int pass = 0; pass < 2; pass++) {
        a.accumulate = pass;
        ON_BOTH(t, (a.ids = (const int32_t *)at(&ids, side) + ids_apart, a.table = at(&table, side),
                    a.x = at(&x, side), ops->embedding_forward(q, &a)));
        PAIR_CHECK(t, &x, scale != 0.0f ? 2e-6 : 0.0, ulp);
    }
    ON_BOTH(t, (a.ids = (const int32_t *)at(&ids, side) + ids_apart, a.dx = at(&dx, side),
                a.d_table = at(&d_table, side), ops->embedding_backward(q, &a)));
    /* Rows are added in order of i: without a scale the same bits. */
    PAIR_CHECK(t, &d_table, scale != 0.0f ? 3e-5 : 0.0, scale != 0.0f ? 1e-6 : 0.0);
}

/* ---- rows by themselves ---- */

/* The frequencies are the caller's again when the call returns, whenever the GPU runs it. */
static int rope_once(const struct zinf_device_ops *ops, struct zinf_queue *q, struct zinf_rope *a)
{
    float inv_freq[ZINF_ROPE_MAX_PAIRS];
    for (int64_t i = 0; i < a->rotary_dims / 2; i++)
        inv_freq[i] = powf(10000.0f, -2.0f * (float)i / (float)a->rotary_dims);
    a->inv_freq = inv_freq;
    int code = ops->rope(q, a);
    memset(inv_freq, 0xff, sizeof inv_freq);
    return code;
}

void case_rope(struct twin *t, struct rope_shape s, int variant, enum zinf_dtype dtype)
{
    struct zinf_rope a = {.dtype = dtype,
                          .rows = s.rows,
                          .n_heads = s.n_heads,
                          .head_dim = s.head_dim,
                          .ld = s.n_heads * s.head_dim + s.gap,
                          .rotary_dims = s.rotary_dims,
                          .interleaved = variant & 1,
                          .backward = variant & 2,
                          .scale = 1.25f,
                          .growth = s.head_dim == 96 || s.head_dim == 2 ? 0.4f : 0,
                          .growth_every = 6,
                          .growth_ahead = 1};
    const size_t n = (size_t)(a.rows * a.ld), shift = variant & 4 ? 1 : 0;
    twin_case(t, "rope", "%s, %lld rows of %lld heads of %lld, variant %d", zinf_dtype_name(dtype),
              (long long)s.rows, (long long)s.n_heads, (long long)s.head_dim, variant);
    struct pair x = pair_shifted(t, shift, dtype, n, 1, 1.0f);
    struct pair positions = pair_new(t, ZINF_DTYPE_F32, (size_t)s.rows, 0); /* 4 bytes each */
    for (int32_t i = 0; i < s.rows; i++)
        ((int32_t *)positions.host.data)[i] = i % 4 == 3 ? 100003 * i : 5 * i;
    pair_upload(t, &positions);
    ON_BOTH(t, (a.x = at(&x, side), a.positions = at(&positions, side), rope_once(ops, q, &a)));
    PAIR_CHECK(t, &x, 2e-6, 2.0 * dtype_epsilon(dtype));
}

void case_unfold(struct twin *t, enum zinf_dtype dtype, bool add)
{
    enum { BATCH = 2, SEQ = 9, COLS = 21, WIDTH = 5 };
    int32_t documents[BATCH * SEQ];
    for (int i = 0; i < BATCH * SEQ; i++)
        documents[i] = i % SEQ >= SEQ - SEQ / 5 - i / SEQ ? 0 : 1 + i % SEQ * 2 / SEQ;
    twin_case(t, "unfold", "%s, %d x %d rows of %d, %d wide", zinf_dtype_name(dtype), BATCH, SEQ,
              COLS, WIDTH);
    struct pair x = pair_random(t, dtype, BATCH * SEQ * COLS, 1, 1.0f);
    struct pair y = pair_random(t, dtype, BATCH * SEQ * COLS * WIDTH, 2, 1.0f);
    struct pair dy = pair_random(t, dtype, BATCH * SEQ * COLS * WIDTH, 3, 1.0f);
    struct pair dx = pair_random(t, dtype, BATCH * SEQ * COLS, 4, 1.0f);
    struct pair segments = pair_numbers(t, documents, BATCH * SEQ);
    struct zinf_unfold a = {
        .dtype = dtype, .batch = BATCH, .seq = SEQ, .cols = COLS, .width = WIDTH};
    ON_BOTH(t, (a.segments = at(&segments, side), a.x = at(&x, side), a.y = at(&y, side),
                ops->unfold(q, &a)));
    a.beta_dx = (float)add;
    a.segments = NULL;
    ON_BOTH(t, (a.dy = at(&dy, side), a.dx = at(&dx, side), ops->unfold_backward(q, &a)));
    PAIR_CHECK(t, &y, 0.0, 0.0);
    PAIR_CHECK(t, &dx, 0.0, 0.0);
}

void case_heads(struct twin *t, struct zinf_heads a, bool zeros)
{
    twin_case(t, "copy_heads", "%s, %lld rows of %lld heads of %lld", zinf_dtype_name(a.dtype),
              (long long)a.rows, (long long)a.n_heads, (long long)a.cols);
    struct pair x = pair_random(t, a.dtype, (size_t)(a.rows * a.x_ld), 1, 1.0f);
    struct pair y = pair_random(t, a.dtype, (size_t)(a.rows * a.y_ld), 2, 1.0f);
    ON_BOTH(t, (a.x = zeros ? NULL : at(&x, side), a.y = at(&y, side), ops->copy_heads(q, &a)));
    PAIR_CHECK(t, &y, 0.0, 0.0); /* sums are made in the same order */
}

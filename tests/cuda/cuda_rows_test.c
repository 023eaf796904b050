/* cuda_rows: norms, embedding and loss of the CUDA device against the host's, at odd shapes. */
#include "cuda_twin.h"

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
        CHECK(!t->cuda->ops->norm_backward(t->q, a));
        struct tensor again = pair_download(t, to);
        CHECK(tensor_same_bits(&apart, &again));
        tensor_free(&again);
    }
    tensor_free(&apart);
}

static void norm_check(struct twin *t, struct zinf_norm *a, struct norm_pairs *p, bool bias)
{
    double ulp = 2.0 * dtype_epsilon(a->dtype) + 3e-6;
    double sums = 2e-6 * (double)(p->rstd.host.n + 10);
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

struct norm_shape {
    int64_t rows, cols, heads, ld; /* heads, ld 0: plain */
    float w_add;
    bool without_w;
};

static void norm_case(struct twin *t, enum zinf_norm_kind kind, enum zinf_dtype dtype,
                      struct norm_shape s, float beta)
{
    const bool bias = kind == ZINF_NORM_LAYER && !s.without_w;
    struct zinf_norm a = {.kind = kind,
                          .dtype = dtype,
                          .rows = s.rows,
                          .cols = s.cols,
                          .heads = s.heads,
                          .ld = s.ld,
                          .eps = 1e-5f,
                          .w_add = s.w_add,
                          .beta_dx = beta};
    size_t n = (size_t)(s.rows * norm_ld(&a)), c = (size_t)s.cols;
    size_t r = (size_t)(s.rows * norm_heads(&a));
    struct norm_pairs p = {
        pair_of(t, tensor_random(dtype, n, 1, 2.0f)),
        pair_of(t, tensor_random(dtype, c, 2, 1.0f)),
        pair_of(t, tensor_random(dtype, c, 3, 1.0f)),
        pair_of(t, tensor_new(dtype, n)),
        pair_of(t, tensor_new(ZINF_DTYPE_F32, r)),
        pair_of(t, tensor_new(ZINF_DTYPE_F32, r)),
        pair_of(t, tensor_random(dtype, n, 4, 1.0f)),
        pair_of(t, tensor_random(dtype, n, 4, 1.0f)), /* as dy, also between the heads */
        pair_of(t, tensor_random(ZINF_DTYPE_F32, c, 6, 1.0f)),
        pair_of(t, tensor_random(ZINF_DTYPE_F32, c, 7, 1.0f)),
    };
    struct pair *all[] = {&p.x, &p.w, &p.b, &p.y, &p.mean, &p.rstd, &p.dy, &p.dx, &p.dw, &p.db};
    a.w = s.without_w ? NULL : p.w.device;
    norm_check(t, &a, &p, bias);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void norms(struct twin *t)
{
    static const struct norm_shape shapes[] = {
        {1, 8, 0, 0, 0, 0},      {5, 37, 0, 0, 0, 0},        {9, 256, 0, 0, 0, 0},
        {70, 264, 0, 0, 0, 0},   {3, 2100, 0, 0, 0, 0},      {17, 64, 3, 232, 0, 0},
        {40, 128, 4, 0, 0, 0},   {9, 37, 1, 50, 0, 0},       {25, 80, 2, 163, 0, 0},
        {9, 264, 0, 0, 1.0f, 0}, {17, 64, 3, 232, 1.0f, 0},  {5, 37, 0, 0, 1.0f, 0},
        {9, 264, 0, 0, 0, true}, {5, 37, 0, 0, 0.25f, true}, {150, 320, 0, 0, 0, 0},
        {6, 264, 2, 544, 0, 0},  {21, 1608, 0, 0, 0.5f, 0},  {3, 1024, 0, 0, 0, 0},
        {2, 8192, 0, 0, 0, 0},   {700, 32, 0, 0, 0, 0},      {33, 64, 0, 0, 0, 0},
        {130, 200, 0, 0, 0, 0},  {19, 384, 0, 0, 0, 0},      {43, 512, 0, 0, 0, 0},
        {2, 8200, 0, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int v = 0; v < 6; v++)
            norm_case(t, v & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[v % 3], shapes[i],
                      v & 2 ? 1.0f : 0.0f);
}

/* So many rows that a team of threads has several of them; of the last rows not all teams have one.
 */
static const int64_t many_rows[][2] = {{33003, 8}, {3101, 520}};

static void norms_of_many_rows(struct twin *t)
{
    for (int v = 0; v < 4; v++)
        norm_case(t, v % 2 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[v % 3],
                  (struct norm_shape){many_rows[v / 2][0], many_rows[v / 2][1], 0, 0, 0, 0}, 0.0f);
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
    CHECK(!t->cuda->ops->residual_add(t->q, s) && !t->cuda->ops->norm_forward(t->q, a));
    for (int i = 0; i < n; i++) {
        struct tensor apart = pair_download(t, made[i]);
        CHECKF(tensor_same_bits(&apart, &at_once[i]), "%d of %s: %lld rows of %lld columns", i,
               zinf_dtype_name(a->dtype), (long long)a->rows, (long long)a->cols);
        tensor_free(&apart);
        tensor_free(&at_once[i]);
    }
}

static void sum_case(struct twin *t, enum zinf_norm_kind kind, enum zinf_dtype dtype, int64_t rows,
                     int64_t cols, float drop)
{
    const size_t n = (size_t)(rows * cols);
    struct zinf_norm a = {.kind = kind, .dtype = dtype, .rows = rows, .cols = cols, .eps = 1e-5f};
    struct zinf_residual s = {.dtype = dtype, .n = rows * cols};
    s.dropout = (struct zinf_dropout){.p = drop, .seed = 7, .step = 3, .site = 2};
    s.dropout.element_first = 12;
    s.scale = drop > 0 ? 0.5f : 0.0f;
    struct sum_pairs p = {
        pair_of(t, tensor_random(dtype, n, 1, 2.0f)),
        pair_of(t, tensor_random(dtype, n, 2, 2.0f)),
        pair_of(t, tensor_random(dtype, (size_t)cols, 3, 1.0f)),
        pair_of(t, tensor_random(dtype, (size_t)cols, 4, 1.0f)),
        pair_of(t, tensor_new(dtype, n)),
        pair_of(t, tensor_new(dtype, n)),
        pair_of(t, tensor_new(ZINF_DTYPE_F32, (size_t)rows)),
        pair_of(t, tensor_new(ZINF_DTYPE_F32, (size_t)rows)),
    };
    struct pair *all[] = {&p.x, &p.r, &p.w, &p.b, &p.sum, &p.y, &p.mean, &p.rstd};
    sum_check(t, &s, &a, &p);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void sums(struct twin *t)
{
    static const struct {
        int64_t rows, cols;
    } shapes[] = {{70, 64}, {9, 128}, {5, 200}, {11, 320}, {6, 512}, {3, 1608}, {5, 37}, {2, 8200}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int v = 0; v < 6; v++)
            sum_case(t, v & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[v % 3], shapes[i].rows,
                     shapes[i].cols, v & 2 ? 0.25f : 0.0f);
}

static void sums_of_many_rows(struct twin *t)
{
    for (int v = 0; v < 4; v++)
        sum_case(t, v % 2 ? ZINF_NORM_LAYER : ZINF_NORM_RMS, all_dtypes[(v + 1) % 3],
                 many_rows[v / 2][0], many_rows[v / 2][1], v / 2 ? 0.25f : 0.0f);
}

static void large_mean(struct twin *t)
{
    struct pair x = pair_of(t, tensor_new(ZINF_DTYPE_F32, 64));
    struct pair w = pair_of(t, tensor_random(ZINF_DTYPE_F32, 64, 1, 1.0f));
    struct pair y = pair_of(t, tensor_new(ZINF_DTYPE_F32, 64));
    struct pair mean = pair_of(t, tensor_new(ZINF_DTYPE_F32, 1));
    struct pair rstd = pair_of(t, tensor_new(ZINF_DTYPE_F32, 1));
    struct zinf_norm a = {.rows = 1, .cols = 64, .eps = 1e-5f};
    for (int c = 0; c < 64; c++)
        ((float *)x.host.data)[c] = 10000.0f + (float)(c % 2);
    twin_transfer(t, x.device, x.host.data, 256, true);
    ON_BOTH(t, (a.x = at(&x, side), a.w = at(&w, side), a.y = at(&y, side),
                a.mean = at(&mean, side), a.rstd = at(&rstd, side), ops->norm_forward(q, &a)));
    PAIR_CHECK(t, &rstd, 0.0, 1e-4);
    PAIR_CHECK(t, &y, 1e-3, 1e-3);
    pair_free(&x);
    pair_free(&w);
    pair_free(&y);
    pair_free(&mean);
    pair_free(&rstd);
}

/* ---- embedding ---- */

/* The first of the ids is left out: those behind it are not at a multiple of 16 bytes. */
static bool ids_apart;

static const int32_t *ids_at(const struct pair *ids, int side)
{
    return (const int32_t *)at(ids, side) + ids_apart;
}

static void embedding_case(struct twin *t, enum zinf_dtype dtype, int64_t rows, int64_t cols,
                           float scale)
{
    /* The CPU may fuse product and sum, or round between them. */
    const double ulp = scale != 0.0f ? 2.0 * dtype_epsilon(dtype) + 2e-7 : 0.0;
    const int64_t first = 10, count = 20;
    size_t n = (size_t)(rows * cols), table_n = (size_t)(count * cols);
    struct pair ids = pair_of(t, tensor_new(ZINF_DTYPE_F32, (size_t)rows + 1)); /* 4 bytes each */
    for (int64_t i = 0; i <= rows; i++)
        ((int32_t *)ids.host.data)[i] = (int32_t)((i * 7 + i / 3) % 40);
    twin_transfer(t, ids.device, ids.host.data, (uint64_t)(rows + 1) * 4, true);
    struct pair table = pair_of(t, tensor_random(dtype, table_n, 1, 1.0f));
    struct pair x = pair_of(t, tensor_random(dtype, n, 2, 1.0f));
    struct pair dx = pair_of(t, tensor_random(dtype, n, 3, 1.0f));
    struct pair d_table = pair_of(t, tensor_random(ZINF_DTYPE_F32, table_n, 4, 1.0f));
    struct zinf_embedding a = {
        .dtype = dtype, .rows = rows, .cols = cols, .first = first, .count = count, .scale = scale};
    for (int pass = 0; pass < 2; pass++) {
        a.accumulate = pass;
        ON_BOTH(t, (a.ids = ids_at(&ids, side), a.table = at(&table, side), a.x = at(&x, side),
                    ops->embedding_forward(q, &a)));
        PAIR_CHECK(t, &x, scale != 0.0f ? 2e-6 : 0.0, ulp);
    }
    ON_BOTH(t, (a.ids = ids_at(&ids, side), a.dx = at(&dx, side), a.d_table = at(&d_table, side),
                ops->embedding_backward(q, &a)));
    /* Rows are added in order of i: without a scale the same bits. */
    PAIR_CHECK(t, &d_table, scale != 0.0f ? 3e-5 : 0.0, scale != 0.0f ? 1e-6 : 0.0);
    pair_free(&ids);
    pair_free(&table);
    pair_free(&x);
    pair_free(&dx);
    pair_free(&d_table);
    twin_reset(t);
}

static void embeddings(struct twin *t)
{
    for (int d = 0; d < 3; d++) {
        embedding_case(t, all_dtypes[d], 1, 8, 0.0f);
        embedding_case(t, all_dtypes[d], 300, 133, 0.0f);
        embedding_case(t, all_dtypes[d], 517, 64, 0.0f);
        embedding_case(t, all_dtypes[d], 60, 133, 11.3125f);
        embedding_case(t, all_dtypes[d], 60, 64, 11.3125f);
        ids_apart = true;
        embedding_case(t, all_dtypes[d], 300, 64, 0.0f);
        ids_apart = false;
    }
}

/* ---- loss ---- */

struct loss_pairs {
    struct pair logits, targets, max, sum, target_logit, loss, logit_sum, row_scales, max_at;
};

/* Labels are smoothed, there are a z-loss and one of the largest logit, and rows are weighed. */
static bool has_more;
/* But that of the largest logit is left out. */
static bool without_largest;
/* Every third logit is -infinity, as of ids that may not come, and of row 1 all of the first. */
static bool masks;
enum { MASKED_FIRST = 100 };

static void loss_side(struct zinf_cross_entropy *a, const struct loss_pairs *p, int side)
{
    a->logits = (float *)at(&p->logits, side) + a->first;
    a->targets = at(&p->targets, side);
    a->max = at(&p->max, side);
    a->sum = at(&p->sum, side);
    a->target_logit = at(&p->target_logit, side);
    a->loss = at(&p->loss, side);
    a->logit_sum = has_more ? at(&p->logit_sum, side) : NULL;
    a->max_at = has_more ? at(&p->max_at, side) : NULL;
    a->row_scales = has_more ? at(&p->row_scales, side) : NULL;
}

/* Behind gradients of 16 bits anything may be in a row. */
static void check_gradients(struct twin *t, const struct pair *logits, int64_t rows,
                            enum zinf_dtype d_dtype)
{
    const size_t width = zinf_dtype_bytes(d_dtype), times = sizeof(float) / width;
    const size_t row = logits->host.n / (size_t)rows * sizeof(float), used = row / times;
    struct pair gradients = *logits;
    gradients.host.dtype = d_dtype;
    gradients.host.n *= times;
    struct tensor got = pair_download(t, &gradients);
    for (size_t i = 0; i < (size_t)rows; i++)
        memcpy((char *)gradients.host.data + i * row + used, (char *)got.data + i * row + used,
               row - used);
    tensor_free(&got);
    PAIR_CHECK(t, &gradients, 1e-7, 1e-5 + 2.0 * dtype_epsilon(d_dtype));
}

static void loss_case(struct twin *t, int64_t rows, int64_t vocabulary, int64_t tile, float offset,
                      float softcap, enum zinf_dtype d_dtype)
{
    size_t r = (size_t)rows;
    struct loss_pairs p = {
        .logits = pair_of(t, tensor_random(ZINF_DTYPE_F32, r * (size_t)vocabulary, 1, 4.0f)),
        .targets = pair_of(t, tensor_new(ZINF_DTYPE_F32, r)),
        .max = pair_of(t, tensor_random(ZINF_DTYPE_F32, r, 2, 1.0f)),
        .sum = pair_of(t, tensor_random(ZINF_DTYPE_F32, r, 3, 1.0f)),
        .target_logit = pair_of(t, tensor_random(ZINF_DTYPE_F32, r, 4, 1.0f)),
        .loss = pair_of(t, tensor_random(ZINF_DTYPE_F32, r, 5, 1.0f)),
        .logit_sum = pair_of(t, tensor_random(ZINF_DTYPE_F32, r, 6, 1.0f)),
        .row_scales = pair_of(t, tensor_random(ZINF_DTYPE_F32, r, 7, 1.0f)),
        .max_at = pair_of(t, tensor_random(ZINF_DTYPE_F32, r, 8, 1.0f)),
    };
    struct pair *all[] = {&p.logits, &p.targets,   &p.max,        &p.sum,   &p.target_logit,
                          &p.loss,   &p.logit_sum, &p.row_scales, &p.max_at};
    for (size_t i = 0; i < r; i++) /* some ignored, one that no tile holds */
        ((int32_t *)p.targets.host.data)[i] = i % 5 == 4 ? -100
                                              : i == 3   ? (int32_t)vocabulary
                                                         : (int32_t)(i * 37 % (size_t)vocabulary);
    for (size_t i = 0, v = (size_t)vocabulary; i < p.logits.host.n; i++) {
        bool masked = masks && (i % 3 == 0 || (i / v == 1 && i % v < MASKED_FIRST));
        ((float *)p.logits.host.data)[i] += masked ? -INFINITY : i % 2 ? offset : -offset;
    }
    twin_transfer(t, p.targets.device, p.targets.host.data, r * 4, true);
    twin_transfer(t, p.logits.device, p.logits.host.data, p.logits.host.n * 4, true);
    struct zinf_cross_entropy a = {
        .rows = rows, .ld = vocabulary, .softcap = softcap, .scale = 0.5f, .d_dtype = d_dtype};
    a.vocab = vocabulary;
    a.smoothing = has_more ? 0.2f : 0.0f;
    a.z_loss = has_more ? 1e-3f : 0.0f;
    a.max_z_loss = has_more && !without_largest ? 0.05f : 0.0f;
    ON_BOTH(t, (a.first = 0, loss_side(&a, &p, side), ops->cross_entropy_start(q, &a)));
    for (int pass = 0; pass < 2; pass++) {
        for (a.first = 0; a.first < vocabulary; a.first += tile) {
            a.cols = vocabulary - a.first < tile ? vocabulary - a.first : tile;
            ON_BOTH(t, (loss_side(&a, &p, side), pass ? ops->cross_entropy_backward(q, &a)
                                                      : ops->cross_entropy_update(q, &a)));
        }
        if (!pass)
            ON_BOTH(t, ops->cross_entropy_finish(q, (loss_side(&a, &p, side), &a)));
    }
    PAIR_CHECK(t, &p.max, 0.0, softcap > 0.0f ? 1e-6 : 0.0);
    /* Checks between its additions keep the compiler from summing in several lanes at once: the
     * host's own sum of 4096 terms is then off by 3.7e-6. */
    bool one_by_one = getenv("ZINF_SANITIZER") != NULL;
    PAIR_CHECK(t, &p.sum, 1e-7, softcap > 0.0f || one_by_one ? 1e-5 : 3e-6);
    PAIR_CHECK(t, &p.loss, 2e-6, 2e-6);
    check_gradients(t, &p.logits, rows, d_dtype);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void losses(struct twin *t)
{
    loss_case(t, 1, 3, 3, 0.0f, 0.0f, ZINF_DTYPE_F32);
    loss_case(t, 7, 601, 601, 300.0f, 0.0f,
              ZINF_DTYPE_F32); /* exponentials that would overflow and underflow */
    loss_case(t, 7, 601, 200, 0.0f, 0.0f, ZINF_DTYPE_F32);
    loss_case(t, 6, 4096, 2048, 5.0f, 0.0f, ZINF_DTYPE_F32);
    loss_case(t, 7, 601, 200, 2.0f, 5.0f, ZINF_DTYPE_F32);
    loss_case(t, 6, 4096, 2048, 5.0f, 30.0f, ZINF_DTYPE_F32);
    for (int d = 1; d < 3; d++) {
        loss_case(t, 1, 3, 3, 0.0f, 0.0f, all_dtypes[d]);
        loss_case(t, 7, 601, 601, 3.0f, 0.0f, all_dtypes[d]);
        loss_case(t, 6, 257, 257, 5.0f, d == 1 ? 0.0f : 30.0f, all_dtypes[d]);
        loss_case(t, 5, 4616, 4616, 5.0f, d == 1 ? 0.0f : 30.0f, all_dtypes[d]);
        loss_case(t, 5, 4099, 4099, 5.0f, d == 1 ? 30.0f : 0.0f, all_dtypes[d]);
    }
    loss_case(t, 5, 16768, 16768, 5.0f, 0.0f, ZINF_DTYPE_BF16);
    loss_case(t, 5, 16721, 8400, 5.0f, 0.0f, ZINF_DTYPE_F32);
}

static void masked_losses(struct twin *t)
{
    masks = true;
    loss_case(t, 2, 320, 320, 0.0f, 0.0f, ZINF_DTYPE_BF16);
    loss_case(t, 2, 601, 601, 2.0f, 0.0f, ZINF_DTYPE_F32);
    loss_case(t, 2, 601, MASKED_FIRST, 2.0f, 0.0f, ZINF_DTYPE_F32); /* a tile of nothing else */
    masks = false;
}

static void smoothed_losses(struct twin *t)
{
    has_more = true;
    loss_case(t, 1, 3, 3, 0.0f, 0.0f, ZINF_DTYPE_F32);
    loss_case(t, 7, 601, 200, 20.0f, 0.0f, ZINF_DTYPE_F32);
    loss_case(t, 7, 601, 200, 2.0f, 5.0f, ZINF_DTYPE_F32);
    loss_case(t, 5, 4616, 4616, 5.0f, 0.0f, ZINF_DTYPE_BF16);
    loss_case(t, 5, 4099, 4099, 5.0f, 30.0f, ZINF_DTYPE_F16);
    without_largest = true;
    loss_case(t, 7, 601, 200, 2.0f, 0.0f, ZINF_DTYPE_F32);
    loss_case(t, 6, 257, 257, 2.0f, 5.0f, ZINF_DTYPE_BF16);
    without_largest = has_more = false;
}

static void squared_errors(struct twin *t)
{
    for (size_t n = 1; n < 2000; n = n * 9 + 1) {
        struct pair x = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, n, 2.0f));
        struct pair labels = pair_of(t, tensor_random(ZINF_DTYPE_F32, n, n + 1, 2.0f));
        struct pair loss = pair_of(t, tensor_new(ZINF_DTYPE_F32, n));
        struct zinf_squared_error a = {.rows = (int64_t)n, .scale = 0.25f};
        for (size_t i = 2; i < n; i += 5)
            ((float *)labels.host.data)[i] = NAN;
        twin_transfer(t, labels.device, labels.host.data, n * 4, true);
        ON_BOTH(t, (a.x = a.dx = at(&x, side), a.labels = at(&labels, side),
                    a.loss = at(&loss, side), ops->squared_error(q, &a)));
        PAIR_CHECK(t, &loss, 0.0, 1e-7);
        PAIR_CHECK(t, &x, 0.0, 1e-7);
        pair_free(&x);
        pair_free(&labels);
        pair_free(&loss);
        twin_reset(t);
    }
}

static void sinks_case(struct twin *t, struct zinf_sinks a, size_t shift)
{
    const size_t heads = (size_t)a.n_heads, rows = (size_t)(a.batch * a.seq);
    const size_t n = rows * heads * (size_t)a.head_dim;
    const double ulp = 2.0 * dtype_epsilon(a.dtype) + 2e-6;
    struct pair sinks = pair_of(t, tensor_random(a.dtype, heads, 1, 2.0f));
    struct pair out = pair_shifted(t, tensor_random(a.dtype, n, 2, 1.0f), shift);
    struct pair d_out = pair_of(t, tensor_random(a.dtype, n, 3, 1.0f));
    struct pair lse = pair_of(t, tensor_random(ZINF_DTYPE_F32, rows * heads, 4, 3.0f));
    struct pair d_sinks = pair_of(t, tensor_new(ZINF_DTYPE_F32, heads));
    ON_BOTH(t, (a.sinks = at(&sinks, side), a.out = at(&out, side), a.lse = at(&lse, side),
                ops->sinks_forward(q, &a)));
    PAIR_CHECK(t, &out, 1e-6, ulp);
    PAIR_CHECK(t, &lse, 1e-6, 1e-6);
    ON_BOTH(t, (a.sinks = at(&sinks, side), a.out = at(&out, side), a.lse = at(&lse, side),
                a.d_out = at(&d_out, side), a.d_sinks = at(&d_sinks, side),
                ops->sinks_backward(q, &a)));
    PAIR_CHECK(t, &d_sinks, a.dtype == ZINF_DTYPE_F32 ? 1e-4 : 1e-2, 1e-4);
    struct pair *all[] = {&sinks, &out, &d_out, &lse, &d_sinks};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

static void sinks(struct twin *t)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 19, 4, 24}, {1, 70, 9, 64}};
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++)
        sinks_case(t,
                   (struct zinf_sinks){.dtype = all_dtypes[i % 3],
                                       .batch = shapes[i / 3][0],
                                       .seq = shapes[i / 3][1],
                                       .n_heads = shapes[i / 3][2],
                                       .head_dim = shapes[i / 3][3]},
                   i % 2);
}

static void heads_case(struct twin *t, struct zinf_heads a, bool zeros)
{
    struct pair x = pair_of(t, tensor_random(a.dtype, (size_t)(a.rows * a.x_ld), 1, 1.0f));
    struct pair y = pair_of(t, tensor_random(a.dtype, (size_t)(a.rows * a.y_ld), 2, 1.0f));
    ON_BOTH(t, (a.x = zeros ? NULL : at(&x, side), a.y = at(&y, side), ops->copy_heads(q, &a)));
    PAIR_CHECK(t, &y, 0.0, 0.0); /* sums are made in the same order */
    pair_free(&x);
    pair_free(&y);
    twin_reset(t);
}

static void heads(struct twin *t)
{
    for (int d = 0; d < 3; d++) {
        struct zinf_heads a = {.dtype = all_dtypes[d],
                               .rows = 7,
                               .n_heads = 5,
                               .cols = 64,
                               .x_ld = 5 * 96,
                               .x_step = 96,
                               .y_ld = 5 * 72,
                               .y_step = 72};
        heads_case(t, a, false);
        heads_case(t, a, true);
        a.scale = 0.3f;
        heads_case(t, a, false);
        a.scale = 0;
        a.x_step = 0;
        heads_case(t, a, false);
        a.x_step = 96, a.y_step = 0;
        heads_case(t, a, false);
        heads_case(t,
                   (struct zinf_heads){.dtype = all_dtypes[d],
                                       .rows = 3,
                                       .n_heads = 1,
                                       .cols = 511,
                                       .x_ld = 512,
                                       .y_ld = 511},
                   false);
    }
}

static void softcaps(struct twin *t)
{
    for (size_t n = 1; n < 5000; n = n * 7 + 2)
        for (size_t shift = 0; shift < 2; shift++) {
            struct pair x = pair_shifted(t, tensor_random(ZINF_DTYPE_F32, n, n, 20.0f), shift);
            ON_BOTH(t, ops->softcap(q, at(&x, side), 30.0f, n));
            PAIR_CHECK(t, &x, 0.0, 6e-7);
            pair_free(&x);
            twin_reset(t);
        }
    struct tensor odd = tensor_new(ZINF_DTYPE_F32, 6);
    const float values[] = {0.0f, -INFINITY, INFINITY, NAN, 1e-30f, -1e30f};
    memcpy(odd.data, values, sizeof values);
    struct pair x = pair_of(t, odd);
    ON_BOTH(t, ops->softcap(q, at(&x, side), 30.0f, 6));
    PAIR_CHECK(t, &x, 0.0, 1e-6);
    CHECK(t->cuda->ops->softcap(t->q, x.device, 0.0f, 6) == -EINVAL);
    pair_free(&x);
    twin_reset(t);
}

static void refusals(struct twin *t)
{
    const struct zinf_device_ops *ops = t->cuda->ops;
    struct zinf_norm norm = {.rows = 3, .cols = 8, .heads = 100};
    CHECK(ops->norm_forward(t->q, &(struct zinf_norm){.cols = 8, .heads = 2, .ld = 15}) == -EINVAL);
    CHECK(ops->norm_forward(t->q, &(struct zinf_norm){.rows = 1}) == -EINVAL);
    float of[8];
    const struct zinf_residual sum = {.n = 24, .y = of};
    CHECK(ops->residual_norm(t->q, &sum, &(struct zinf_norm){.rows = 2, .cols = 8, .x = of}) ==
              -EINVAL &&
          strstr(zinf_error(), "24 elements"));
    CHECK(ops->residual_norm(t->q, &sum, &(struct zinf_norm){.rows = 3, .cols = 8}) == -EINVAL);
    uint64_t bytes = ops->norm_workspace(t->cuda, &norm); /* for sums over every head */
    CHECK(bytes == ops->norm_workspace(t->cuda, &(struct zinf_norm){.rows = 300, .cols = 8}));
    CHECK(bytes >= 2 * ops->column_sum_workspace(t->cuda, 300, 8));
    ops->queue_set_workspace(t->q, t->cuda->memory, bytes - 1);
    CHECK(ops->norm_backward(t->q, &norm) == -EINVAL && strstr(zinf_error(), "workspace"));
    CHECK(ops->cross_entropy_update(t->q, &(struct zinf_cross_entropy){.cols = 8, .ld = 7}) ==
          -EINVAL);
    CHECK(ops->embedding_forward(t->q, &(struct zinf_embedding){.rows = -1, .cols = 1}) == -EINVAL);
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(norms)
CASE(norms_of_many_rows)
CASE(sums)
CASE(sums_of_many_rows)
CASE(large_mean)
CASE(embeddings)
CASE(losses)
CASE(masked_losses)
CASE(smoothed_losses)
CASE(squared_errors)
CASE(sinks)
CASE(heads)
CASE(softcaps)
CASE(refusals)

int main(void)
{
    TAP_RUN(test_norms);
    TAP_RUN(test_norms_of_many_rows);
    TAP_RUN(test_sums);
    TAP_RUN(test_sums_of_many_rows);
    TAP_RUN(test_large_mean);
    TAP_RUN(test_embeddings);
    TAP_RUN(test_losses);
    TAP_RUN(test_masked_losses);
    TAP_RUN(test_smoothed_losses);
    TAP_RUN(test_squared_errors);
    TAP_RUN(test_sinks);
    TAP_RUN(test_heads);
    TAP_RUN(test_softcaps);
    TAP_RUN(test_refusals);
    return tap_done();
}

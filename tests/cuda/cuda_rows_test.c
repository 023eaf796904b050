/* cuda_rows: norms, embedding and loss of the CUDA device against the host's, at odd shapes. */
#include "cuda_twin.h"

/* ---- norms ---- */

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
            case_norm(t, v & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[v % 3], shapes[i],
                      v & 2 ? 1.0f : 0.0f);
}

/* So many rows that a team of threads has several of them; of the last rows not all teams have one.
 */
static const int64_t many_rows[][2] = {{33003, 8}, {3101, 520}};

static void norms_of_many_rows(struct twin *t)
{
    for (int v = 0; v < 4; v++)
        case_norm(t, v % 2 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[v % 3],
                  (struct norm_shape){many_rows[v / 2][0], many_rows[v / 2][1], 0, 0, 0, 0}, 0.0f);
}

/* ---- a sum and its norm ---- */

static void sums(struct twin *t)
{
    static const struct {
        int64_t rows, cols;
    } shapes[] = {{70, 64}, {9, 128}, {5, 200}, {11, 320}, {6, 512}, {3, 1608}, {5, 37}, {2, 8200}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int v = 0; v < 6; v++)
            case_residual_norm(t, v & 1 ? ZINF_NORM_RMS : ZINF_NORM_LAYER, all_dtypes[v % 3],
                               shapes[i].rows, shapes[i].cols, v & 2 ? 0.25f : 0.0f);
}

static void sums_of_many_rows(struct twin *t)
{
    for (int v = 0; v < 4; v++)
        case_residual_norm(t, v % 2 ? ZINF_NORM_LAYER : ZINF_NORM_RMS, all_dtypes[(v + 1) % 3],
                           many_rows[v / 2][0], many_rows[v / 2][1], v / 2 ? 0.25f : 0.0f);
}

static void large_mean(struct twin *t)
{
    twin_case(t, "layer norm", "%s", "a large mean");
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
}

/* ---- embedding ---- */

static void embeddings(struct twin *t)
{
    for (int d = 0; d < 3; d++) {
        case_embedding(t, all_dtypes[d], 1, 8, 0.0f, false);
        case_embedding(t, all_dtypes[d], 300, 133, 0.0f, false);
        case_embedding(t, all_dtypes[d], 517, 64, 0.0f, false);
        case_embedding(t, all_dtypes[d], 60, 133, 11.3125f, false);
        case_embedding(t, all_dtypes[d], 60, 64, 11.3125f, false);
        case_embedding(t, all_dtypes[d], 300, 64, 0.0f, true);
    }
}

/* ---- loss ---- */

static bool has_more, without_largest; /* of the cases that follow */
static int64_t masked_first;

static void loss_case(struct twin *t, int64_t rows, int64_t vocabulary, int64_t tile, float offset,
                      float softcap, enum zinf_dtype d_dtype)
{
    /* checks between additions keep a compiler from several lanes */
    case_loss(t, &(struct loss_shape){rows, vocabulary, tile, offset, softcap, d_dtype, has_more,
                                      !without_largest, masked_first,
                                      getenv("ZINF_SANITIZER") != NULL});
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
        loss_case(t, 7, 601, 200, 3.0f, d == 1 ? 0.0f : 30.0f, all_dtypes[d]); /* side by side */
        loss_case(t, 6, 4096, 2048, 5.0f, 0.0f, all_dtypes[d]);
        loss_case(t, 6, 257, 257, 5.0f, d == 1 ? 0.0f : 30.0f, all_dtypes[d]);
        for (int64_t n = 63; n < 72; n += n == 64 ? 7 : 1) /* by a quarter of a warp, or not */
            loss_case(t, 11, n, n, 5.0f, d == 1 ? 0.0f : 30.0f, all_dtypes[d]);
        loss_case(t, 5, 4616, 4616, 5.0f, d == 1 ? 0.0f : 30.0f, all_dtypes[d]);
        loss_case(t, 5, 4099, 4099, 5.0f, d == 1 ? 30.0f : 0.0f, all_dtypes[d]);
    }
    loss_case(t, 5, 16768, 16768, 5.0f, 0.0f, ZINF_DTYPE_BF16);
    loss_case(t, 5, 16721, 8400, 5.0f, 0.0f, ZINF_DTYPE_F32);
}

static void masked_losses(struct twin *t)
{
    enum { MASKED_FIRST = 100 };
    masked_first = MASKED_FIRST;
    loss_case(t, 2, 320, 320, 0.0f, 0.0f, ZINF_DTYPE_BF16);
    loss_case(t, 2, 601, 601, 2.0f, 0.0f, ZINF_DTYPE_F32);
    loss_case(t, 2, 601, MASKED_FIRST, 2.0f, 0.0f, ZINF_DTYPE_F32); /* a tile of nothing else */
    masked_first = 0;
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

/* Rows that share a warp have the bits that a warp of their own gives, as max_z_loss takes. */
static void short_rows(struct twin *t)
{
    enum { ROWS = 9, LD = 512, SUMS = 3 * ROWS };
    static const int64_t columns[] = {9, 71, 72, 130, 257, 506, 512};
    twin_case(t, "cross_entropy", "%s", "rows that share a warp");
    struct pair logits = pair_random(t, ZINF_DTYPE_F32, ROWS * LD, 1, 40.0f);
    struct pair sums = pair_new(t, ZINF_DTYPE_F32, SUMS + 2 * ROWS, 0);
    struct pair targets = pair_new(t, ZINF_DTYPE_F32, ROWS, 0); /* zeros */
    float *at = sums.device;
    struct zinf_cross_entropy a = {.rows = ROWS,
                                   .ld = LD,
                                   .vocab = LD,
                                   .targets = targets.device,
                                   .max = at,
                                   .sum = at + ROWS,
                                   .logit_sum = at + 2 * ROWS,
                                   .target_logit = at + 3 * ROWS,
                                   .max_at = (int32_t *)(void *)(at + 4 * ROWS)};
    for (size_t i = 0; i < 8 * sizeof columns / sizeof *columns; i++) {
        struct tensor found[2];
        a.cols = columns[i / 8];
        a.softcap = i & 1 ? 30.0f : 0.0f;
        a.smoothing = i & 2 ? 0.1f : 0.0f;
        a.logits = (float *)logits.device + (i & 4 ? 1 : 0); /* columns one by one */
        a.rows = ROWS - (i & 4 ? 1 : 0);
        for (int alone = 0; alone < 2; alone++) {
            a.max_z_loss = alone ? 1.0f : 0.0f;
            pair_upload(t, &sums);
            TWIN_CHECK(t, !t->cuda->ops->cross_entropy_start(t->q, &a));
            TWIN_CHECK(t, !t->cuda->ops->cross_entropy_update(t->q, &a));
            found[alone] = pair_download(t, &sums);
        }
        CHECKF(!memcmp(found[0].data, found[1].data, SUMS * sizeof(float)), "%lld columns, kind %d",
               (long long)a.cols, (int)(i & 7));
    }
}

static void squared_errors(struct twin *t)
{
    for (size_t n = 1; n < 2000; n = n * 9 + 1)
        case_squared_error(t, n);
}

static void sinks(struct twin *t)
{
    static const int64_t shapes[][4] = {{1, 1, 1, 1}, {2, 19, 4, 24}, {1, 70, 9, 64}};
    for (size_t i = 0; i < 3 * sizeof shapes / sizeof *shapes; i++)
        case_sinks(t,
                   (struct zinf_sinks){.dtype = all_dtypes[i % 3],
                                       .batch = shapes[i / 3][0],
                                       .seq = shapes[i / 3][1],
                                       .n_heads = shapes[i / 3][2],
                                       .head_dim = shapes[i / 3][3]},
                   i % 2);
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
        case_heads(t, a, false);
        case_heads(t, a, true);
        a.scale = 0.3f;
        case_heads(t, a, false);
        a.scale = 0;
        a.x_step = 0;
        case_heads(t, a, false);
        a.x_step = 96, a.y_step = 0;
        case_heads(t, a, false);
        case_heads(t,
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
        for (size_t shift = 0; shift < 2; shift++)
            case_softcap(t, n, shift);
    twin_case(t, "softcap", "%s", "special values");
    struct tensor odd = tensor_new(ZINF_DTYPE_F32, 6);
    const float values[] = {0.0f, -INFINITY, INFINITY, NAN, 1e-30f, -1e30f};
    memcpy(odd.data, values, sizeof values);
    struct pair x = pair_of(t, odd);
    ON_BOTH(t, ops->softcap(q, at(&x, side), 30.0f, 6));
    PAIR_CHECK(t, &x, 0.0, 1e-6);
    CHECK(t->cuda->ops->softcap(t->q, x.device, 0.0f, 6) == -EINVAL);
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
CASE(short_rows)
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
    TAP_RUN(test_short_rows);
    TAP_RUN(test_squared_errors);
    TAP_RUN(test_sinks);
    TAP_RUN(test_heads);
    TAP_RUN(test_softcaps);
    TAP_RUN(test_refusals);
    return tap_done();
}

/* cuda_relative: attention to relative positions and unfolded rows of the CUDA device against the
 * host's: terms, documents, dropout, head sizes and lengths around the tiles. */
#include "cuda_twin.h"

struct shape {
    int64_t batch, seq, n_heads, head_dim, half;
    bool log, queries, keys, packed;
    float dropout;
};

static struct tensor make_segments(int64_t batch, int64_t seq)
{
    struct tensor t = tensor_new(ZINF_DTYPE_F32, (size_t)(batch * seq)); /* 4 bytes each */
    for (int64_t i = 0; i < batch * seq; i++)
        ((int32_t *)t.data)[i] =
            i % seq >= seq - seq / 5 - i / seq ? 0 : 1 + (int32_t)(i % seq * 2 / seq);
    return t;
}

/* One row each up to the middle, then rows that begin further and further apart, or none do. */
static void make_starts(int32_t *starts, int64_t half, bool log)
{
    for (int64_t b = 0; b <= half; b++) {
        const int64_t over = b - half / 2;
        starts[b] = (int32_t)(log && over > 0 ? half / 2 + over * over : b);
    }
}

static void check_shape(struct twin *t, const struct shape *s, enum zinf_dtype dtype)
{
    const size_t rows = (size_t)(s->batch * s->seq), cols = (size_t)(s->n_heads * s->head_dim);
    const size_t table = 4 * (size_t)s->half * cols; /* both terms side by side */
    const double epsilon = dtype_epsilon(dtype);
    int32_t starts[ZINF_RELATIVE_MAX_HALF + 1];
    struct pair qkv = pair_of(t, tensor_random(dtype, rows * 3 * cols, 1, 1.0f));
    struct pair out = pair_of(t, tensor_random(dtype, rows * cols, 2, 1.0f));
    struct pair lse = pair_of(t, tensor_new(ZINF_DTYPE_F32, rows * (size_t)s->n_heads));
    struct pair d_out = pair_of(t, tensor_random(dtype, rows * cols, 3, 1.0f));
    struct pair d_qkv = pair_of(t, tensor_random(dtype, rows * 3 * cols, 4, 1.0f));
    struct pair r = pair_of(t, tensor_random(dtype, table, 5, 1.0f));
    struct pair d_r = pair_of(t, tensor_new(dtype, table));
    struct pair segments = pair_of(t, make_segments(s->batch, s->seq));
    struct pair *all[] = {&qkv, &out, &lse, &d_out, &d_qkv, &r, &d_r, &segments};
    make_starts(starts, s->half, s->log);
    for (int side = 0; side < SIDES; side++) {
        const size_t keys = cols * zinf_dtype_bytes(dtype);
        const struct zinf_relative relative = {
            .half = s->half,
            .starts = starts,
            .ld = 2 * (int64_t)cols,
            .queries = s->queries ? at(&r, side) : NULL,
            .keys = s->keys ? (char *)at(&r, side) + keys : NULL,
            .d_queries = s->queries ? at(&d_r, side) : NULL,
            .d_keys = s->keys ? (char *)at(&d_r, side) + keys : NULL,
        };
        const struct zinf_attention a = {
            .dtype = dtype,
            .batch = s->batch,
            .seq = s->seq,
            .n_heads = s->n_heads,
            .n_kv_heads = s->n_heads,
            .head_dim = s->head_dim,
            .scale = 1.0f / sqrtf(3.0f * (float)s->head_dim),
            .relative = &relative,
            .segments = s->packed ? at(&segments, side) : NULL,
            .dropout = {.p = s->dropout, .seed = 9, .step = 3, .site = 7, .element_first = 4321},
            .qkv = at(&qkv, side),
            .out = at(&out, side),
            .lse = at(&lse, side),
            .d_out = at(&d_out, side),
            .d_qkv = at(&d_qkv, side),
        };
        const struct zinf_device_ops *ops = side ? t->cuda->ops : t->host->ops;
        struct zinf_queue *q = side ? t->q : t->host_q;
        CHECKF(!ops->attention_forward(q, &a), "%s", zinf_error());
        CHECKF(!ops->attention_backward(q, &a), "%s", zinf_error());
    }
    PAIR_CHECK(t, &out, 4e-6, 2.0 * epsilon + 2e-6);
    PAIR_CHECK(t, &lse, 6e-6, 1e-6);
    PAIR_CHECK(t, &d_qkv, 6e-5 + 12.0 * epsilon, 2e-5 + 4.0 * epsilon);
    PAIR_CHECK(t, &d_r, 2e-4 + 24.0 * epsilon, 2e-5 + 4.0 * epsilon);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        pair_free(all[i]);
    twin_reset(t);
}

/* batch, seq, heads, size, half; then log, queries, keys, packed and dropout */
static const struct shape shapes[] = {
    {2, 7, 3, 5, 4, true, true, true, false, 0.0f},
    {2, 40, 2, 16, 8, true, true, true, true, 0.1f},
    {1, 65, 1, 24, 70, false, true, true, false, 0.0f},
    {2, 33, 1, 70, 16, true, false, true, true, 0.0f},
    {2, 20, 2, 8, 300, false, true, false, false, 0.2f},
    {1, 17, 1, 130, 6, true, true, true, false, 0.0f},
    {1, 6, 1, 300, 4, true, true, true, false, 0.0f},
};

static void attention(struct twin *t)
{
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int d = 0; d < 3; d++)
            check_shape(t, &shapes[i], all_dtypes[d]);
}

static void test_attention_to_relative_positions(void)
{
    for_each_cuda(attention);
}

static void unfold(struct twin *t)
{
    enum { BATCH = 2, SEQ = 9, COLS = 21, WIDTH = 5 };
    for (int i = 0; i < 6; i++) {
        const enum zinf_dtype dtype = all_dtypes[i / 2];
        struct pair x = pair_of(t, tensor_random(dtype, BATCH * SEQ * COLS, 1, 1.0f));
        struct pair y = pair_of(t, tensor_random(dtype, BATCH * SEQ * COLS * WIDTH, 2, 1.0f));
        struct pair dy = pair_of(t, tensor_random(dtype, BATCH * SEQ * COLS * WIDTH, 3, 1.0f));
        struct pair dx = pair_of(t, tensor_random(dtype, BATCH * SEQ * COLS, 4, 1.0f));
        struct pair segments = pair_of(t, make_segments(BATCH, SEQ));
        struct pair *all[] = {&x, &y, &dy, &dx, &segments};
        ON_BOTH(t, ops->unfold(q, &(struct zinf_unfold){.dtype = dtype,
                                                        .batch = BATCH,
                                                        .seq = SEQ,
                                                        .cols = COLS,
                                                        .width = WIDTH,
                                                        .segments = at(&segments, side),
                                                        .x = at(&x, side),
                                                        .y = at(&y, side)}));
        ON_BOTH(t, ops->unfold_backward(q, &(struct zinf_unfold){.dtype = dtype,
                                                                 .batch = BATCH,
                                                                 .seq = SEQ,
                                                                 .cols = COLS,
                                                                 .width = WIDTH,
                                                                 .dy = at(&dy, side),
                                                                 .dx = at(&dx, side),
                                                                 .beta_dx = (float)(i % 2)}));
        PAIR_CHECK(t, &y, 0.0, 0.0);
        PAIR_CHECK(t, &dx, 0.0, 0.0);
        for (size_t k = 0; k < sizeof all / sizeof *all; k++)
            pair_free(all[k]);
        twin_reset(t);
    }
}

static void test_rows_beside_their_neighbours(void)
{
    for_each_cuda(unfold);
}

int main(void)
{
    TAP_RUN(test_attention_to_relative_positions);
    TAP_RUN(test_rows_beside_their_neighbours);
    return tap_done();
}

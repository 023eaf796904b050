/* cuda_rope: rotary embedding of the CUDA device against the host's: head sizes, parts of heads,
 * both orders of pairs, aligned and not. */
#include "cuda_twin.h"

struct shape {
    int64_t rows, n_heads, head_dim, rotary_dims, gap;
};

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

static void rope_case(struct twin *t, struct shape s, int variant, enum zinf_dtype dtype)
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
    struct pair x = pair_shifted(t, tensor_random(dtype, n, 1, 1.0f), shift);
    struct tensor positions = tensor_new(ZINF_DTYPE_F32, (size_t)s.rows); /* 4 bytes each */
    for (int32_t i = 0; i < s.rows; i++)
        ((int32_t *)positions.data)[i] = i % 4 == 3 ? 100003 * i : 5 * i;
    struct pair at_rows = pair_of(t, positions);
    ON_BOTH(t, (a.x = at(&x, side), a.positions = at(&at_rows, side), rope_once(ops, q, &a)));
    PAIR_CHECK(t, &x, 2e-6, 2.0 * dtype_epsilon(dtype));
    pair_free(&x);
    pair_free(&at_rows);
    twin_reset(t);
}

static void rotations(struct twin *t)
{
    static const struct shape shapes[] = {
        {1, 1, 2, 2, 0},     {7, 5, 64, 64, 0},   {6, 3, 80, 32, 8},   {5, 40, 128, 128, 0},
        {4, 3, 96, 96, 3},   {9, 2, 100, 60, 5},  {3, 2, 256, 256, 0}, {4, 2, 24, 20, 0},
        {5, 9, 72, 18, 128}, {2, 2, 512, 512, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 8; variant++)
            for (int d = 0; d < 3; d++)
                rope_case(t, shapes[i], variant, all_dtypes[d]);
}

static void refusals(struct twin *t)
{
    struct zinf_rope a = {.n_heads = 1, .head_dim = 8, .ld = 8, .rotary_dims = 7};
    CHECK(t->cuda->ops->rope(t->q, &a) == -EINVAL && strstr(zinf_error(), "rotary"));
    a.rotary_dims = 6;
    a.growth = 1;
    CHECK(t->cuda->ops->rope(t->q, &a) == -EINVAL && strstr(zinf_error(), "growth"));
    a.growth = 0;
    a.rotary_dims = 8;
    CHECK(!t->cuda->ops->rope(t->q, &a)); /* no rows */
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(rotations)
CASE(refusals)

int main(void)
{
    TAP_RUN(test_rotations);
    TAP_RUN(test_refusals);
    return tap_done();
}

/* cuda_rope: rotary embedding of the CUDA device against the host's: head sizes, parts of heads,
 * both orders of pairs, aligned and not. */
#include "cuda_twin.h"

static void rotations(struct twin *t)
{
    static const struct rope_shape shapes[] = {
        {1, 1, 2, 2, 0},     {7, 5, 64, 64, 0},   {6, 3, 80, 32, 8},   {5, 40, 128, 128, 0},
        {4, 3, 96, 96, 3},   {9, 2, 100, 60, 5},  {3, 2, 256, 256, 0}, {4, 2, 24, 20, 0},
        {5, 9, 72, 18, 128}, {2, 2, 512, 512, 0},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 8; variant++)
            for (int d = 0; d < 3; d++)
                case_rope(t, shapes[i], variant, all_dtypes[d]);
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

#ifdef CUDA_STANDIN
/* A block for each of more rows than 32 bits count: no launch, in place of one over the rest. */
static void test_more_rows_than_blocks(void)
{
    struct twin t;
    CHECK(twin_open_for(&t, 80, 1));
    struct pair x = pair_new(&t, ZINF_DTYPE_F32, 8, 0);
    struct pair positions = pair_new(&t, ZINF_DTYPE_F32, 1, 0);
    static const float inv_freq[4] = {1.0f, 0.5f, 0.25f, 0.125f};
    const struct zinf_rope a = {.rows = ((int64_t)1 << 32) + 1,
                                .inv_freq = inv_freq,
                                .n_heads = 1,
                                .head_dim = 8,
                                .ld = 8,
                                .rotary_dims = 8,
                                .x = x.device,
                                .positions = positions.device};
    CHECK(t.cuda->ops->rope(t.q, &a) < 0);
    CHECK(standin_faults() == 1); /* the stand-in's word for such a grid */
    twin_close(&t);
}
#endif

int main(void)
{
    TAP_RUN(test_rotations);
    TAP_RUN(test_refusals);
#ifdef CUDA_STANDIN
    TAP_RUN(test_more_rows_than_blocks);
#endif
    return tap_done();
}

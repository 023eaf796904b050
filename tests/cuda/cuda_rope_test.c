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

int main(void)
{
    TAP_RUN(test_rotations);
    TAP_RUN(test_refusals);
    return tap_done();
}

/* cuda_relative: attention to relative positions and unfolded rows of the CUDA device against the
 * host's: terms, documents, dropout, head sizes and lengths around the tiles. */
#include "cuda_twin.h"

/* batch, seq, heads, size, half; then log, queries, keys, packed and dropout */
static const struct relative_shape shapes[] = {
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
            case_relative(t, &shapes[i], all_dtypes[d]);
}

static void test_attention_to_relative_positions(void)
{
    for_each_cuda(attention);
}

static void unfold(struct twin *t)
{
    for (int i = 0; i < 6; i++)
        case_unfold(t, all_dtypes[i / 2], i % 2);
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

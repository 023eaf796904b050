/* cuda_relative: attention to relative positions and unfolded rows of the CUDA device against the
 * host's: terms, documents, dropout, head sizes and lengths around the tiles, keys before, around
 * and behind the queries. */
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
            case_relative(t, &shapes[i], NULL, all_dtypes[d]);
}

/* Keys that end where queries begin, that lie around them, and that are all behind them, so far
 * that all distances share the table's first row. */
static void attention_in_parts(struct twin *t)
{
    static const struct {
        struct relative_shape shape;
        struct relative_part part;
    } parts[] = {
        {{1, 41, 3, 5, 4, true, true, true, false, 0.0f}, {70, 70, 0, 200}},
        {{1, 40, 2, 16, 8, true, true, true, true, 0.1f}, {150, 97, 64, 300}},
        {{1, 33, 1, 24, 70, false, true, true, false, 0.0f}, {66, 5, 128, 194}},
        {{2, 35, 2, 10, 6, true, true, true, true, 0.1f}, {50, 9, 20, 80}},
        {{1, 65, 2, 12, 200, false, true, false, false, 0.2f}, {97, 0, 0, 100}},
        {{1, 18, 1, 70, 16, true, false, true, true, 0.0f}, {67, 64, 0, 90}},
        {{1, 17, 1, 130, 6, true, true, true, false, 0.0f}, {81, 3, 64, 145}},
        {{1, 6, 1, 300, 4, true, true, true, false, 0.0f}, {69, 66, 0, 72}},
    };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
        for (int d = 0; d < 3; d++)
            case_relative(t, &parts[i].shape, &parts[i].part, all_dtypes[d]);
}

static void test_attention_to_relative_positions(void)
{
    for_each_cuda(attention);
}

static void test_relative_positions_of_keys_apart(void)
{
    for_each_cuda(attention_in_parts);
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
    TAP_RUN(test_relative_positions_of_keys_apart);
    TAP_RUN(test_rows_beside_their_neighbours);
    return tap_done();
}

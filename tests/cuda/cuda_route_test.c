/* cuda_route: choices of experts and chosen rows on the CUDA device against the host's. */
#include "cuda_twin.h"

static void choices(struct twin *t)
{
    static const struct route_shape shapes[] = {
        {1, 1, 1}, {9, 8, 2}, {7, 60, 4}, {5, 128, 8}, {3, 33, 33}, {4, 1024, 5},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int variant = 0; variant < 4; variant++)
            case_route(t, shapes[i], variant & 1, variant & 2);
}

static void groups(struct twin *t)
{
    for (int variant = 0; variant < 8; variant++) {
        const bool sigmoid = variant & 1, normalised = variant & 2;
        const int top = variant & 4 ? 2 : 1;
        case_grouped_route(t, (struct zinf_route){11, 256, 8, normalised, .scale = 2.5f,
                                                  .sigmoid = sigmoid, .n_groups = 8,
                                                  .n_groups_chosen = 4, .group_top = top});
        case_grouped_route(t, (struct zinf_route){7, 12, 3, normalised, .scale = 1.5f,
                                                  .sigmoid = sigmoid, .n_groups = 3,
                                                  .n_groups_chosen = 2, .group_top = top});
        case_grouped_route(t, (struct zinf_route){5, 45, 4, normalised, .sigmoid = sigmoid});
    }
}

static void balances(struct twin *t)
{
    static const struct route_shape shapes[] = {{1, 1, 1}, {9, 8, 2}, {7, 60, 4}, {5, 128, 8}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int before = 0; before < 2; before++)
            case_balance(t, shapes[i], before);
}

/* Equal logits, and none that is a number: the host's choice. */
static void ties(struct twin *t)
{
    struct zinf_route a = {.rows = 2, .cols = 40, .n_chosen = 3};
    twin_case(t, "route", "%s", "equal logits, and none");
    struct tensor values = tensor_new(ZINF_DTYPE_F32, 80);
    for (int i = 0; i < 80; i++)
        ((float *)values.data)[i] = i < 40 ? (float)(i % 7) : NAN;
    struct pair logits = pair_of(t, values), weights = pair_of(t, tensor_new(ZINF_DTYPE_F32, 80));
    ON_BOTH(t, (a.logits = at(&logits, side), a.weights = at(&weights, side),
                ops->route_forward(q, &a)));
    struct tensor got = pair_download(t, &weights);
    for (int i = 0; i < 80; i++) {
        float here = ((float *)weights.host.data)[i], there = ((float *)got.data)[i];
        CHECKF((here < 0) == (there < 0), "column %d: %g, %g", i, (double)here, (double)there);
    }
}

static void chosen_rows(struct twin *t)
{
    static const size_t cols[] = {1, 13, 64, 2056};
    for (size_t i = 0; i < sizeof cols / sizeof *cols; i++)
        for (int d = 0; d < 3; d++)
            for (size_t shift = 0; shift < 2; shift++) {
                case_chosen_rows(t, cols[i], shift, all_dtypes[d], all_dtypes[d]);
                case_chosen_rows(t, cols[i], shift, all_dtypes[d], ZINF_DTYPE_F32);
                case_weigh(t, cols[i], shift, all_dtypes[d]);
            }
}

static void refusals(struct twin *t)
{
    const struct zinf_device_ops *ops = t->cuda->ops;
    struct zinf_route a = {.rows = 1, .cols = 2000, .n_chosen = 2},
                      none = {.cols = 4, .n_chosen = 1};
    struct zinf_rows rows = {.cols = 4}, mixed = {.cols = 4, .y_dtype = ZINF_DTYPE_BF16};
    struct zinf_weigh weigh = {.cols = 4, .ld = 1};
    CHECK(ops->route_forward(t->q, &a) == -EINVAL && ops->route_backward(t->q, &a) == -EINVAL);
    CHECK(!ops->route_forward(t->q, &none) && !ops->route_backward(t->q, &none));
    CHECK(!ops->gather_rows(t->q, &rows) && !ops->scatter_rows(t->q, &rows));
    CHECK(!ops->weigh_rows(t->q, &weigh) && ops->scatter_rows(t->q, &mixed) == -EINVAL);
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(choices)
CASE(groups)
CASE(balances)
CASE(ties)
CASE(chosen_rows)
CASE(refusals)

int main(void)
{
    TAP_RUN(test_choices);
    TAP_RUN(test_groups);
    TAP_RUN(test_balances);
    TAP_RUN(test_ties);
    TAP_RUN(test_chosen_rows);
    TAP_RUN(test_refusals);
    return tap_done();
}

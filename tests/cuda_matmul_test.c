/* cuda_matmul: products of the CUDA device against the host's: every transposition, type, beta and
 * bias, rows further apart than they are long, and odd shapes. */
#include "cuda_twin.h"

struct shape {
    int64_t m, n, k, gap; /* gap: elements between rows */
    size_t shift;         /* elements off alignment */
};

static void product(struct twin *t, struct shape s, const enum zinf_dtype types[3], bool trans_a,
                    bool trans_b, float beta, bool bias)
{
    int64_t lda = (trans_a ? s.m : s.k) + s.gap, ldb = (trans_b ? s.k : s.n) + s.gap;
    int64_t ldc = s.n + s.gap;
    struct zinf_matmul a = {.m = s.m,
                            .n = s.n,
                            .k = s.k,
                            .a_dtype = types[0],
                            .b_dtype = types[1],
                            .c_dtype = types[2],
                            .trans_a = trans_a,
                            .trans_b = trans_b,
                            .lda = lda,
                            .ldb = ldb,
                            .ldc = ldc,
                            .beta = beta};
    struct pair pa = pair_shifted(
        t, tensor_random(types[0], (size_t)((trans_a ? s.k : s.m) * lda), 1, 1.0f), s.shift);
    struct pair pb = pair_shifted(
        t, tensor_random(types[1], (size_t)((trans_b ? s.n : s.k) * ldb), 2, 1.0f), s.shift);
    struct pair pc =
        pair_shifted(t, tensor_random(types[2], (size_t)(s.m * ldc), 3, 1.0f), s.shift);
    struct pair pbias = pair_shifted(t, tensor_random(types[1], (size_t)s.n, 4, 1.0f), s.shift);
    ON_BOTH(t, (a.a = at(&pa, side), a.b = at(&pb, side), a.c = at(&pc, side),
                a.bias = bias ? at(&pbias, side) : NULL, ops->matmul(q, &a)));
    /* Sums of k products of unit normals; an fp32 operand beside a 16-bit one is rounded to it. */
    double root = sqrt((double)s.k), epsilon = dtype_epsilon(types[2]);
    double mixed =
        types[0] == types[1] ? 0.0 : fmax(dtype_epsilon(types[0]), dtype_epsilon(types[1]));
    PAIR_CHECK(t, &pc, root * (1e-6 + 4.0 * mixed), 2.0 * epsilon + 1e-5);
    pair_free(&pa);
    pair_free(&pb);
    pair_free(&pc);
    pair_free(&pbias);
    twin_reset(t);
}

static void one_type(struct twin *t)
{
    static const struct shape shapes[] = {
        {1, 1, 1, 0, 0}, {5, 3, 7, 0, 1}, {17, 24, 33, 3, 0}, {64, 40, 16, 8, 4}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int v = 0; v < 36; v++) {
            enum zinf_dtype type = all_dtypes[v / 12];
            enum zinf_dtype types[] = {type, type, v & 8 ? ZINF_DTYPE_F32 : type};
            product(t, shapes[i], types, v & 1, v & 2, v & 4 ? 1.0f : 0.0f, !(v & 4) && v % 3);
        }
}

static void mixed_types(struct twin *t)
{
    for (int v = 0; v < 27; v++) {
        enum zinf_dtype types[] = {all_dtypes[v % 3], all_dtypes[v / 3 % 3], all_dtypes[v / 9]};
        product(t, (struct shape){19, 26, 35, v % 4, (size_t)v % 5}, types, v & 1, v & 2,
                v & 4 ? 1.0f : 0.0f, !(v & 4));
    }
}

static void refusals(struct twin *t)
{
    struct zinf_matmul a = {.m = 2, .n = 2, .k = 2, .lda = 1, .ldb = 2, .ldc = 2};
    CHECK(t->cuda->ops->matmul(t->q, &a) == -EINVAL);
    a.lda = 2;
    t->cuda->ops->queue_set_workspace(t->q, t->cuda->memory,
                                      t->cuda->ops->matmul_workspace(t->cuda, &a) - 1);
    CHECK(t->cuda->ops->matmul(t->q, &a) == -EINVAL);
    CHECK(strstr(zinf_error(), "workspace") != NULL);
}

/* More shapes than a queue keeps plans for, two times: the oldest give way and come back. */
static void many_shapes(struct twin *t)
{
    const enum zinf_dtype types[] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_BF16};
    for (int round = 0; round < 2; round++)
        for (int i = 0; i < 70; i++)
            product(t, (struct shape){1 + i % 7, 1 + i / 7, 3, 0, 0}, types, false, true, 0.0f,
                    true);
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_cuda(name);                                                                       \
    }
CASE(one_type)
CASE(mixed_types)
CASE(refusals)
CASE(many_shapes)

int main(void)
{
    TAP_RUN(test_one_type);
    TAP_RUN(test_mixed_types);
    TAP_RUN(test_refusals);
    TAP_RUN(test_many_shapes);
    return tap_done();
}

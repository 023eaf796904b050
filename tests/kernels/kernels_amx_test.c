/* kernels_amx: the AMX kernel's source on a model of the tile instructions (amx_model.c): products
 * against plain loops in double, exact where integers are, and how tiles are taken and given back.
 */
#include "amx_model.h"
#include "kernels/host_gemm.h"
#include "kernels_matmul.h"

static const enum zinf_dtype to_bf16[3] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_BF16};
static const enum zinf_dtype to_f32[3] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_F32};

#define SKIP_WITHOUT_AVX512()                                                                      \
    if (zinf_isa() < ZINF_ISA_AVX512)                                                              \
    SKIP("packing needs AVX-512, which this processor has not or ZINF_CPU takes away")

static void multiply(struct fixture *f, const struct problem *p)
{
    const uint64_t bytes =
        host_gemm_workspace(&host_gemm_amx_model, f->device->n_threads, &p->args);
    CHECK(bytes <= WORKSPACE_BYTES);
    memset(f->workspace, 0xff, bytes); /* NaN, wherever something is not packed */
    host_gemm(f->q, &host_gemm_amx_model, &p->args);
    CHECKF(!amx_model_faults(), "%d instructions would have faulted", amx_model_faults());
    CHECKF(!amx_model_holders(), "%d threads still hold tiles", amx_model_holders());
}

static void check_shape(struct fixture *f, const struct shape *shape, int variant)
{
    struct problem p;
    problem_open(&p, shape, variant & 1, variant & 2, variant & 4 ? to_bf16 : to_f32,
                 variant % 3 == 1, variant % 3 == 2 ? 1.0f : 0.0f);
    double *want = reference(&p);
    multiply(f, &p);
    CHECK_NEAR(f, &p.c, want, 1e-6 * (double)shape->k + 2e-6,
               1.01 * dtype_epsilon(p.args.c_dtype) + 1e-6);
    free(want);
    problem_close(&p);
}

static void test_edges_of_tiles(void)
{
    static const int64_t sides[] = {1, 2, 15, 16, 17, 31, 32, 33, 65};
    static const int64_t depths[] = {1, 2, 3, 31, 32, 33, 63, 65, 129};
    const int n = sizeof sides / sizeof *sides;
    SKIP_WITHOUT_AVX512();
    for (int n_threads = 1; n_threads <= 3; n_threads++) {
        struct fixture f;
        fixture_open(&f, zinf_isa(), n_threads);
        for (int i = 0; i < n * n; i++)
            check_shape(
                &f, &(struct shape){sides[i / n], sides[i % n], depths[i % 7 + i / n % 3], 3}, i);
        fixture_close(&f);
    }
}

static void test_blocks_of_k(void)
{
    static const int64_t depths[] = {1599, 1600, 1601, 3201};
    struct fixture f;
    SKIP_WITHOUT_AVX512();
    fixture_open(&f, zinf_isa(), 2);
    for (int i = 0; i < 4 * 12; i++)
        check_shape(&f, &(struct shape){35, 37, depths[i / 12], 0}, i % 12);
    fixture_close(&f);
}

/* Sums of integers are exact in any order, so every bit counts. */
static void test_integers_are_exact(void)
{
    static const struct shape shape = {100, 90, 70, 0};
    struct fixture f;
    struct problem p;
    SKIP_WITHOUT_AVX512();
    fixture_open(&f, zinf_isa(), 2);
    for (int trans = 0; trans < 4; trans++) {
        problem_open(&p, &shape, trans & 1, trans & 2, to_f32, false, 0.0f);
        struct tensor *operands[] = {&p.a, &p.b};
        for (int o = 0; o < 2; o++)
            for (size_t i = 0; i < operands[o]->n; i++)
                ((uint16_t *)operands[o]->data)[i] =
                    zinf_bf16_from_f32((float)((int)(i * 7 + i / 13 * 5) % 17 - 8));
        double *want = reference(&p);
        multiply(&f, &p);
        CHECK_NEAR(&f, &p.c, want, 0.0, 0.0);
        free(want);
        problem_close(&p);
    }
    fixture_close(&f);
}

/* What kernels.h says of micro-batches: a row's bits do not depend on the rows around it. */
static void test_rows_do_not_depend_on_each_other(void)
{
    static const struct shape shape = {70, 40, 1700, 0};
    struct fixture f;
    struct problem p;
    SKIP_WITHOUT_AVX512();
    fixture_open(&f, zinf_isa(), 2);
    problem_open(&p, &shape, false, true, to_bf16, true, 0.0f);
    multiply(&f, &p);
    struct tensor whole = tensor_copy(&p.c);
    for (int64_t first = 0; first < shape.m; first += 27) {
        struct problem part = p;
        part.args.m = shape.m - first < 27 ? shape.m - first : 27;
        part.args.a = (const uint16_t *)p.args.a + first * p.args.lda;
        part.args.c = (uint16_t *)p.args.c + first * p.args.ldc;
        multiply(&f, &part);
    }
    CHECK(tensor_same_bits(&p.c, &whole));
    tensor_free(&whole);
    problem_close(&p);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_edges_of_tiles);
    TAP_RUN(test_blocks_of_k);
    TAP_RUN(test_integers_are_exact);
    TAP_RUN(test_rows_do_not_depend_on_each_other);
    return tap_done();
}

/*
 * cuda_blas: the stand-in's cuBLASLt refuses what the library may refuse: each rule is broken once.
 * What the CUDA device's products are tested with is as strict as this.
 */
#include "standin.h"
#include "tap.h"

#include <cublasLt.h>

/* The algorithm for this shape takes all of the workspace that it may have. */
enum { M = 8, N = 7, K = 10, BYTES = 1 << 16 };

/* A product of column-major matrices, as kernels/cuda/matmul.c asks for one. */
struct question {
    cudaDataType_t a_type, b_type, c_type;
    cublasComputeType_t compute;
    bool biased;
    uint32_t align, reductions;
    uint64_t workspace;
};
static const struct question usual = {
    .a_type = CUDA_R_16BF,
    .b_type = CUDA_R_16BF,
    .c_type = CUDA_R_16BF,
    .compute = CUBLAS_COMPUTE_32F,
    .align = 16,
    .reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE,
    .workspace = 4096,
};

struct setup {
    cublasLtHandle_t handle;
    cudaStream_t stream;
    char *memory;
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulHeuristicResult_t found;
    int n_found;
};

static void open_setup(struct setup *s, const struct standin_options *machine)
{
    memset(s, 0, sizeof *s);
    standin_start(machine);
    CHECK(!cudaMalloc((void **)&s->memory, BYTES) && !cublasLtCreate(&s->handle));
    CHECK(!cudaStreamCreateWithFlags(&s->stream, cudaStreamNonBlocking));
    CHECK(!cudaMemsetAsync(s->memory, 0, BYTES, s->stream));
}

static void forget(struct setup *s)
{
    if (s->operation)
        cublasLtMatmulDescDestroy(s->operation);
    if (s->a) {
        cublasLtMatrixLayoutDestroy(s->a);
        cublasLtMatrixLayoutDestroy(s->b);
        cublasLtMatrixLayoutDestroy(s->c);
    }
    s->operation = NULL;
    s->a = s->b = s->c = NULL;
}

static void close_setup(struct setup *s)
{
    forget(s);
    cudaStreamDestroy(s->stream);
    cudaFree(s->memory);
    cublasLtDestroy(s->handle);
    CHECKF(!standin_live(), "%d objects left", standin_live());
}

static char *bias_of(const struct setup *s)
{
    return s->memory + 8192;
}

/* An algorithm for the product, or why there is none. */
static cublasStatus_t ask(struct setup *s, const struct question *q)
{
    const cublasLtMatmulPreferenceAttributes_t alignments[] = {
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    const void *bias = bias_of(s);
    cublasLtMatmulPreference_t p;
    forget(s);
    CHECK(!cublasLtMatmulDescCreate(&s->operation, q->compute, CUDA_R_32F));
    if (q->biased) {
        CHECK(!cublasLtMatmulDescSetAttribute(s->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                              &epilogue, sizeof epilogue));
        CHECK(!cublasLtMatmulDescSetAttribute(s->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER,
                                              &bias, sizeof bias));
    }
    CHECK(!cublasLtMatrixLayoutCreate(&s->a, q->a_type, M, K, M));
    CHECK(!cublasLtMatrixLayoutCreate(&s->b, q->b_type, K, N, K));
    CHECK(!cublasLtMatrixLayoutCreate(&s->c, q->c_type, M, N, M));
    CHECK(!cublasLtMatmulPreferenceCreate(&p));
    CHECK(!cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &q->workspace, sizeof q->workspace));
    CHECK(!cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
                                                &q->reductions, sizeof q->reductions));
    for (int i = 0; i < 4; i++)
        CHECK(!cublasLtMatmulPreferenceSetAttribute(p, alignments[i], &q->align, sizeof q->align));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        s->handle, s->operation, s->a, s->b, s->c, s->c, p, 1, &s->found, &s->n_found);
    cublasLtMatmulPreferenceDestroy(p);
    return status;
}

/* Where the operands of a product are: offsets into memory. */
struct places {
    size_t a, b, c, workspace, workspace_bytes;
};
static const struct places good_places = {0, 1024, 2048, 4096, 4096};

static cublasStatus_t multiply(struct setup *s, const struct places *at)
{
    const float alpha = 1.0f, beta = 0.0f;
    char *c = s->memory + at->c;
    return cublasLtMatmul(s->handle, s->operation, &alpha, s->memory + at->a, s->a,
                          s->memory + at->b, s->b, &beta, c, s->c, c, s->c, &s->found.algo,
                          s->memory + at->workspace, at->workspace_bytes, s->stream);
}

static bool served(struct setup *s, const struct question *q)
{
    cublasStatus_t status = ask(s, q);
    CHECK(status == CUBLAS_STATUS_SUCCESS || status == CUBLAS_STATUS_NOT_SUPPORTED);
    return !status && s->n_found == 1;
}

/* ---- what there is an algorithm for ---- */

static void test_types_by_generation(void)
{
    static const struct {
        int capability;
        cudaDataType_t a, b, c;
        bool tf32, served;
    } cases[] = {
        {80, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, false, true},
        {80, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, false, true},
        {80, CUDA_R_16F, CUDA_R_16F, CUDA_R_32F, false, true},
        {80, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, true, true},
        {80, CUDA_R_16BF, CUDA_R_16F, CUDA_R_32F, false, false},
        {80, CUDA_R_32F, CUDA_R_16BF, CUDA_R_32F, false, false},
        {80, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16F, false, false},
        {80, CUDA_R_32F, CUDA_R_32F, CUDA_R_16F, false, false},
        {75, CUDA_R_16F, CUDA_R_16F, CUDA_R_16F, false, true},
        {75, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, false, true},
        {75, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_16BF, false, false},
        {75, CUDA_R_32F, CUDA_R_32F, CUDA_R_32F, true, false},
        {120, CUDA_R_16BF, CUDA_R_16BF, CUDA_R_32F, false, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct standin_options machine = {.capability = cases[i].capability};
        struct question q = usual;
        struct setup s;
        q.a_type = cases[i].a, q.b_type = cases[i].b, q.c_type = cases[i].c;
        q.compute = cases[i].tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
        open_setup(&s, &machine);
        CHECKF(served(&s, &q) == cases[i].served, "case %d", (int)i);
        CHECK(!standin_faults());
        close_setup(&s);
    }
}

/* Floats of 8 bits: on which GPUs, along k alone, of which pair of types, scaled, in whole rows. */
struct float8_question {
    int capability;
    cudaDataType_t a, b;
    cublasOperation_t op_a;
    uint64_t rows;
    bool scaled, served;
};

static bool float8_served(struct setup *s, const struct float8_question *q)
{
    const uint64_t k = 32, m = q->rows, n = 7;
    const bool turned = q->op_a == CUBLAS_OP_T;
    const uint64_t workspace = 4096;
    const void *scale = s->memory;
    cublasLtMatmulPreference_t p;
    CHECK(!cublasLtMatmulDescCreate(&s->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    CHECK(!cublasLtMatmulDescSetAttribute(s->operation, CUBLASLT_MATMUL_DESC_TRANSA, &q->op_a,
                                          sizeof q->op_a));
    for (int i = 0; q->scaled && i < 2; i++)
        CHECK(!cublasLtMatmulDescSetAttribute(s->operation,
                                              i ? CUBLASLT_MATMUL_DESC_B_SCALE_POINTER
                                                : CUBLASLT_MATMUL_DESC_A_SCALE_POINTER,
                                              &scale, sizeof scale));
    CHECK(!cublasLtMatrixLayoutCreate(&s->a, q->a, turned ? k : m, turned ? m : k,
                                      (int64_t)(turned ? k : m)));
    CHECK(!cublasLtMatrixLayoutCreate(&s->b, q->b, k, n, (int64_t)k));
    CHECK(!cublasLtMatrixLayoutCreate(&s->c, CUDA_R_16BF, m, n, (int64_t)m));
    CHECK(!cublasLtMatmulPreferenceCreate(&p));
    CHECK(!cublasLtMatmulPreferenceSetAttribute(p, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                                &workspace, sizeof workspace));
    cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        s->handle, s->operation, s->a, s->b, s->c, s->c, p, 1, &s->found, &s->n_found);
    cublasLtMatmulPreferenceDestroy(p);
    return !status && s->n_found;
}

static void test_floats_of_8_bits(void)
{
    static const struct float8_question cases[] = {
        {89, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUBLAS_OP_T, 16, true, true},
        {90, CUDA_R_8F_E4M3, CUDA_R_8F_E5M2, CUBLAS_OP_T, 16, true, true},
        {90, CUDA_R_8F_E5M2, CUDA_R_8F_E5M2, CUBLAS_OP_T, 16, true, false},
        {86, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUBLAS_OP_T, 16, true, false},
        {90, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUBLAS_OP_N, 16, true, false},
        {90, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUBLAS_OP_T, 24, true, false},
        {90, CUDA_R_8F_E4M3, CUDA_R_8F_E4M3, CUBLAS_OP_T, 16, false, false},
        {90, CUDA_R_8F_E4M3, CUDA_R_16BF, CUBLAS_OP_T, 16, true, false},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct standin_options machine = {.capability = cases[i].capability};
        struct setup s;
        open_setup(&s, &machine);
        CHECKF(float8_served(&s, &cases[i]) == cases[i].served, "case %d", (int)i);
        close_setup(&s);
    }
}

/* A bias in the epilogue: of fp32 operands from sm_80 on alone, and with C of the operands' type.
 */
static void test_epilogues_by_generation(void)
{
    static const struct {
        int capability;
        cudaDataType_t ab, c;
        bool served;
    } cases[] = {
        {75, CUDA_R_16F, CUDA_R_16F, true},   {75, CUDA_R_32F, CUDA_R_32F, false},
        {80, CUDA_R_32F, CUDA_R_32F, true},   {75, CUDA_R_16F, CUDA_R_32F, false},
        {80, CUDA_R_16BF, CUDA_R_16BF, true}, {80, CUDA_R_16BF, CUDA_R_32F, false},
        {90, CUDA_R_16BF, CUDA_R_32F, true},  {120, CUDA_R_16BF, CUDA_R_16BF, true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct standin_options machine = {.capability = cases[i].capability};
        struct question q = usual;
        struct setup s;
        q.a_type = q.b_type = cases[i].ab, q.c_type = cases[i].c, q.biased = true;
        open_setup(&s, &machine);
        CHECKF(served(&s, &q) == cases[i].served, "case %d", (int)i);
        close_setup(&s);
    }
}

/* It says so in either of the library's two ways, whatever is asked. */
static void test_nothing_found(void)
{
    int ways[2] = {0};
    for (uint64_t seed = 0; seed < 4; seed++) {
        struct standin_options machine = {.seed = seed, .no_algorithms = true};
        struct setup s;
        open_setup(&s, &machine);
        for (int i = 0; i < 4; i++) {
            cublasStatus_t status = ask(&s, &usual);
            CHECK(!s.n_found && (!status || status == CUBLAS_STATUS_NOT_SUPPORTED));
            ways[status != CUBLAS_STATUS_SUCCESS]++;
        }
        close_setup(&s);
    }
    CHECKF(ways[0] && ways[1], "%d and %d", ways[0], ways[1]);
}

static void test_workspace_is_within_limits(void)
{
    struct setup s;
    open_setup(&s, NULL);
    for (uint64_t most = 0; most <= 8192; most += 512) {
        struct question q = usual;
        q.workspace = most;
        CHECK(served(&s, &q) && s.found.workspaceSize <= most);
    }
    CHECK(!standin_faults());
    close_setup(&s);
}

/* ---- misuse ---- */

/* The last call was one. */
static void check_refused(cublasStatus_t status)
{
    CHECK(status == CUBLAS_STATUS_INVALID_VALUE);
    CHECKF(standin_faults() == 1, "%d faults", standin_faults());
    standin_forgive();
}

static void test_misuse_while_asking(void)
{
    struct setup s;
    struct question q = usual;
    cublasLtMatrixLayout_t layout;
    cublasLtMatmulDesc_t operation;
    int64_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    open_setup(&s, NULL);
    CHECK(served(&s, &usual));
    check_refused(cublasLtMatmulDescSetAttribute(s.operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                 &epilogue, sizeof epilogue));
    check_refused(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 8, 4, 7));
    check_refused(cublasLtMatrixLayoutCreate(&layout, CUDA_R_32F, 1ull << 31, 4, 1ll << 31));
    check_refused(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_16F));
    q.reductions = 4; /* parts of a split k in C's type */
    check_refused(ask(&s, &q));
    close_setup(&s);
}

static void test_misuse_while_multiplying(void)
{
    struct setup s;
    struct places at = good_places;
    open_setup(&s, NULL);
    CHECK(served(&s, &usual) && !multiply(&s, &at));
    size_t *const places[] = {&at.a, &at.b, &at.c};
    for (int i = 0; i < 3; i++) { /* less aligned than was said */
        *places[i] += 8;
        check_refused(multiply(&s, &at));
        *places[i] -= 8;
    }
    at.workspace += 8;
    check_refused(multiply(&s, &at));
    at = good_places;
    at.c = BYTES - 32; /* not all of it is memory */
    check_refused(multiply(&s, &at));
    at = good_places;
    CHECK(s.found.workspaceSize == usual.workspace);
    at.workspace_bytes--;
    check_refused(multiply(&s, &at));
    close_setup(&s);
}

/* An algorithm of one product is not another's. */
static void test_an_algorithm_for_another_product(void)
{
    struct setup s;
    struct question other = usual;
    open_setup(&s, NULL);
    other.a_type = other.b_type = other.c_type = CUDA_R_16F;
    CHECK(served(&s, &other));
    cublasLtMatmulAlgo_t algorithm = s.found.algo;
    CHECK(served(&s, &usual));
    s.found.algo = algorithm;
    check_refused(multiply(&s, &good_places));
    close_setup(&s);
}

/* The library does not look at a bias: the kernel faults, and nothing runs any more. */
static void test_a_bias_that_is_not_aligned(void)
{
    struct setup s;
    struct question q = usual;
    q.biased = true;
    open_setup(&s, NULL);
    CHECK(served(&s, &q) && !multiply(&s, &good_places) && !standin_faults());
    const void *bias = bias_of(&s) + 4;
    CHECK(!cublasLtMatmulDescSetAttribute(s.operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &bias,
                                          sizeof bias));
    CHECK(!multiply(&s, &good_places) && standin_is_broken() && standin_faults() == 1);
    standin_forgive();
    close_setup(&s);
}

int main(void)
{
    TAP_RUN(test_types_by_generation);
    TAP_RUN(test_floats_of_8_bits);
    TAP_RUN(test_epilogues_by_generation);
    TAP_RUN(test_nothing_found);
    TAP_RUN(test_workspace_is_within_limits);
    TAP_RUN(test_misuse_while_asking);
    TAP_RUN(test_misuse_while_multiplying);
    TAP_RUN(test_an_algorithm_for_another_product);
    TAP_RUN(test_a_bias_that_is_not_aligned);
    return tap_done();
}

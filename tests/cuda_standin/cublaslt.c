/*
 * cublaslt: the stand-in's cuBLASLt, as strict as the library at its strictest: every attribute
 * must have its exact size, the types must be among those that it documents for the GPU's
 * generation, an algorithm serves only the shapes and alignments that it was chosen for and wants
 * the workspace that it asked for, and a bias that is not aligned to 16 bytes breaks the GPU. Where
 * it is told to, it finds no algorithm.
 *
 * It is compiled with the stand-in's header and with the library's own, whose objects are opaque:
 * hence the conversions.
 */
#include "product.h"

#include <stdlib.h>
#include <string.h>

struct standin_blas {
    int unused;
};

struct standin_preference {
    uint64_t workspace;
    uint32_t reductions, align[4]; /* A, B, C, D */
};

/* What an algorithm remembers of the question that it answers. */
struct answer {
    uint64_t workspace;
    uint32_t align[4];
    uint64_t shape, types, index; /* of several for one product */
};

static void *object(size_t bytes)
{
    standin_count_live(1);
    return calloc(1, bytes);
}

static cublasStatus_t drop(void *object)
{
    standin_count_live(-1);
    free(object);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t refuse(const char *what)
{
    standin_fault(cudaErrorInvalidValue, "cuBLASLt: %s", what);
    return CUBLAS_STATUS_INVALID_VALUE;
}

/* ---- objects ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    STANDIN_CALL;
    *out = (cublasLtHandle_t)object(sizeof(struct standin_blas));
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    STANDIN_CALL;
    return drop(handle);
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale_type)
{
    STANDIN_CALL;
    bool tf32 = compute == CUBLAS_COMPUTE_32F_FAST_TF32;
    if ((compute != CUBLAS_COMPUTE_32F && !tf32) || scale_type != CUDA_R_32F)
        return refuse("a compute type other than fp32");
    struct standin_operation *made = object(sizeof *made);
    made->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    made->tf32 = tf32;
    *out = (cublasLtMatmulDesc_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t operation)
{
    STANDIN_CALL;
    return drop(operation);
}

static cublasStatus_t set(void *to, size_t to_bytes, const void *value, size_t bytes)
{
    if (bytes != to_bytes)
        return refuse("an attribute of the wrong size");
    memcpy(to, value, bytes);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t operation,
                                              cublasLtMatmulDescAttributes_t name,
                                              const void *value, size_t bytes)
{
    STANDIN_CALL;
    struct standin_operation *d = (struct standin_operation *)operation;
    switch ((int)name) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
        return set(&d->op_a, sizeof d->op_a, value, bytes);
    case CUBLASLT_MATMUL_DESC_TRANSB:
        return set(&d->op_b, sizeof d->op_b, value, bytes);
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        return set(&d->epilogue, sizeof d->epilogue, value, bytes);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        return set(&d->bias, sizeof d->bias, value, bytes);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER:
        return set(&d->a_scale, sizeof d->a_scale, value, bytes);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER:
        return set(&d->b_scale, sizeof d->b_scale, value, bytes);
    }
    return refuse("an unknown attribute");
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    STANDIN_CALL;
    if (!rows || !cols || ld < (int64_t)rows)
        return refuse("a layout whose columns overlap");
    if (rows > INT32_MAX || cols > INT32_MAX)
        return refuse("a layout of more than 2^31 rows or columns");
    struct standin_layout *made = object(sizeof *made);
    *made = (struct standin_layout){type, (int64_t)rows, (int64_t)cols, ld};
    *out = (cublasLtMatrixLayout_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    STANDIN_CALL;
    return drop(layout);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    STANDIN_CALL;
    struct standin_preference *made = object(sizeof *made);
    *made = (struct standin_preference){0, 0, {256, 256, 256, 256}}; /* the library's defaults */
    *out = (cublasLtMatmulPreference_t)made;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    STANDIN_CALL;
    return drop(preference);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name,
                                                    const void *value, size_t bytes)
{
    STANDIN_CALL;
    struct standin_preference *p = (struct standin_preference *)preference;
    switch ((int)name) {
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        return set(&p->workspace, sizeof p->workspace, value, bytes);
    case CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK:
        return set(&p->reductions, sizeof p->reductions, value, bytes);
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES:
        return set(&p->align[name - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof p->align[0],
                   value, bytes);
    }
    return refuse("an unknown preference");
}

/* ---- choosing ---- */

static bool shape_of(const struct standin_operation *op, const struct standin_layout *a,
                     const struct standin_layout *b, const struct standin_layout *c,
                     struct shape *shape)
{
    int64_t k_of_b = op->op_b ? b->cols : b->rows;
    shape->m = op->op_a ? a->cols : a->rows;
    shape->n = op->op_b ? b->rows : b->cols;
    shape->k = op->op_a ? a->rows : a->cols;
    return k_of_b == shape->k && c->rows == shape->m && c->cols == shape->n;
}

/* Of floats of 8 bits: one of two, but not both, may be E5M2; rows are read 16 bytes at a time, and
 * before sm_100 only along k. */
static bool float8_is_served(const struct standin_operation *op, const struct standin_layout *a,
                             const struct standin_layout *b, const struct standin_layout *c)
{
    return standin_capability() >= 89 && is_float8(b->type) && op->op_a == CUBLAS_OP_T &&
           op->op_b == CUBLAS_OP_N && (a->type == CUDA_R_8F_E4M3 || b->type == CUDA_R_8F_E4M3) &&
           (c->type == CUDA_R_16BF || c->type == CUDA_R_32F) && op->a_scale && op->b_scale &&
           a->ld % 16 == 0 && b->ld % 16 == 0 && a->rows % 16 == 0 && c->rows % 16 == 0;
}

/* The library's table for a compute type of fp32, and what the generation has units for. */
static bool types_are_served(const struct standin_operation *op, const struct standin_layout *a,
                             const struct standin_layout *b, const struct standin_layout *c)
{
    if (is_float8(a->type))
        return float8_is_served(op, a, b, c);
    bool known = a->type == CUDA_R_32F || a->type == CUDA_R_16F || a->type == CUDA_R_16BF;
    bool has_units = standin_capability() >= 80 || (a->type != CUDA_R_16BF && !op->tf32);
    return known && has_units && a->type == b->type &&
           (c->type == a->type || c->type == CUDA_R_32F);
}

/* A bias is surest with operands that the generation has tensor cores for, and C of their type: the
 * library does not say where else it has one. */
static bool epilogue_is_served(const struct standin_operation *op, const struct standin_layout *a,
                               const struct standin_layout *c)
{
    if (op->epilogue == CUBLASLT_EPILOGUE_DEFAULT)
        return true;
    if (standin_options()->no_epilogues || (standin_capability() < 80 && a->type == CUDA_R_32F))
        return false;
    return c->type == a->type || is_float8(a->type) || standin_capability() >= 90;
}

static struct answer answer_for(const struct standin_operation *op, const struct standin_layout *a,
                                const struct standin_layout *b, const struct standin_layout *c)
{
    struct answer answer = {0};
    answer.shape = (uint64_t)c->rows * 1000003u + (uint64_t)c->cols * 10007u +
                   (uint64_t)a->ld * 101u + (uint64_t)b->ld * 7u + (uint64_t)c->ld;
    answer.types = (uint64_t)a->type << 24 | (uint64_t)b->type << 16 | (uint64_t)c->type << 8 |
                   (uint64_t)op->op_a << 4 | (uint64_t)op->op_b << 2 | (uint64_t)op->epilogue;
    return answer;
}

static uint64_t n_algorithms(void)
{
    const int n = standin_options()->algorithms;
    return n > 1 ? (uint64_t)n : 1;
}

/* Between 1 and 2, by shape, algorithm and GPU. */
static double milliseconds_of(const struct answer *answer)
{
    uint64_t x = answer->shape * 0x9e3779b97f4a7c15u + answer->index * 0xd1b54a32d192ed03u +
                 (uint64_t)standin_gpu() * 77 + standin_options()->speeds;
    x ^= x >> 31;
    x *= 0xbf58476d1ce4e5b9u;
    return 1.0 + (double)(x >> 40) / (double)(1u << 24);
}

/* Of three algorithms one wants half the workspace that it may have, one all, one none. */
static uint64_t workspace_of(const struct answer *answer, uint64_t most)
{
    return answer->shape % 3 == 0 ? 0 : answer->shape % 3 == 1 ? most / 2 / 256 * 256 : most;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle,
                                              cublasLtMatmulDesc_t operation_,
                                              cublasLtMatrixLayout_t a_, cublasLtMatrixLayout_t b_,
                                              cublasLtMatrixLayout_t c_, cublasLtMatrixLayout_t d_,
                                              cublasLtMatmulPreference_t preference_, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t results[],
                                              int *n_results)
{
    STANDIN_CALL;
    const struct standin_operation *operation = (const struct standin_operation *)operation_;
    const struct standin_layout *a = (const struct standin_layout *)a_;
    const struct standin_layout *b = (const struct standin_layout *)b_;
    const struct standin_layout *c = (const struct standin_layout *)c_;
    const struct standin_preference *preference = (const struct standin_preference *)preference_;
    struct shape shape;
    standin_count_question();
    *n_results = 0;
    if (!handle || n_wanted < 1 || c_ != d_ || !shape_of(operation, a, b, c, &shape))
        return refuse("layouts that do not fit each other");
    if (!types_are_served(operation, a, b, c))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (preference->reductions & 4)
        return refuse("split sums in C's type");
    if (standin_options()->no_algorithms || !epilogue_is_served(operation, a, c)) /* either way */
        return standin_random(2) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_NOT_SUPPORTED;
    struct answer answer = answer_for(operation, a, b, c);
    answer.workspace = workspace_of(&answer, preference->workspace);
    memcpy(answer.align, preference->align, sizeof answer.align);
    for (; *n_results < n_wanted && answer.index < n_algorithms(); answer.index++) {
        cublasLtMatmulHeuristicResult_t *result = &results[(*n_results)++];
        memset(result, 0, sizeof *result);
        memcpy(&result->algo, &answer, sizeof answer);
        _Static_assert(sizeof answer <= sizeof result->algo, "an answer fits an algorithm");
        result->workspaceSize = (size_t)answer.workspace;
        /* one proposal is none */
        result->state = answer.index == 2 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation_,
                                       cublasLtMatrixLayout_t a_, cublasLtMatrixLayout_t b_,
                                       cublasLtMatrixLayout_t c_, cublasLtMatrixLayout_t d_,
                                       const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *result)
{
    STANDIN_CALL;
    struct answer answer,
        expected = answer_for((const struct standin_operation *)operation_,
                              (const struct standin_layout *)a_, (const struct standin_layout *)b_,
                              (const struct standin_layout *)c_);
    memcpy(&answer, algo, sizeof answer);
    if (!handle || c_ != d_)
        return refuse("layouts that do not fit each other");
    if (answer.shape != expected.shape || answer.types != expected.types ||
        answer.index >= n_algorithms() || answer.index == 2)
        return CUBLAS_STATUS_NOT_SUPPORTED;
    result->workspaceSize = (size_t)answer.workspace;
    return CUBLAS_STATUS_SUCCESS;
}

size_t cublasLtGetVersion(void)
{
    const uint64_t version = standin_options()->blas_version;
    return version ? (size_t)version : 130000;
}

/* ---- multiplying ---- */

static bool aligned(const void *pointer, uint32_t bytes)
{
    return bytes && (uintptr_t)pointer % bytes == 0;
}

static size_t layout_bytes(const struct standin_layout *l)
{
    return (size_t)((l->cols - 1) * l->ld + l->rows) * width_of(l->type);
}

static bool places_are_good(const struct product *p)
{
    size_t bias_bytes = (size_t)p->shape.m * zinf_dtype_bytes(dtype_of(p->c.type));
    return standin_on_device(p->a_data, layout_bytes(&p->a)) &&
           standin_on_device(p->b_data, layout_bytes(&p->b)) &&
           standin_on_device(p->c_data, layout_bytes(&p->c)) &&
           (!p->op.a_scale || (standin_on_device(p->op.a_scale, sizeof(float)) &&
                               standin_on_device(p->op.b_scale, sizeof(float)))) &&
           (!p->workspace_bytes || standin_on_device(p->workspace, p->workspace_bytes)) &&
           (p->op.epilogue != CUBLASLT_EPILOGUE_BIAS || standin_on_device(p->op.bias, bias_bytes));
}

static uint64_t operand_bytes(const struct standin_layout *l)
{
    return (uint64_t)(l->rows * l->cols) * width_of(l->type);
}

/* Of whole rows of an operand that the fast kernels read. */
static bool has_odd_rows(const struct standin_layout *l)
{
    return (uint64_t)l->rows * width_of(l->type) % 16;
}

static void count_product(const struct product *p)
{
    double work = 2.0 * (double)p->shape.m * (double)p->shape.n * (double)p->shape.k;
    bool odd = work >= 1e9 && p->a.type != CUDA_R_32F &&
               (has_odd_rows(&p->a) || has_odd_rows(&p->b) || has_odd_rows(&p->c));
    uint64_t c = (uint64_t)(p->shape.m * p->shape.n) * zinf_dtype_bytes(dtype_of(p->c.type));
    standin_count_product(operand_bytes(&p->a) + operand_bytes(&p->b) + (p->beta != 0 ? c : 0), c,
                          odd);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t operation_,
                              const void *alpha, const void *a_data, cublasLtMatrixLayout_t a_,
                              const void *b_data, cublasLtMatrixLayout_t b_, const void *beta,
                              const void *c_data, cublasLtMatrixLayout_t c_, void *d_data,
                              cublasLtMatrixLayout_t d_, const cublasLtMatmulAlgo_t *algo,
                              void *workspace, size_t workspace_bytes, cudaStream_t stream)
{
    STANDIN_CALL;
    const struct standin_operation *operation = (const struct standin_operation *)operation_;
    const struct standin_layout *a = (const struct standin_layout *)a_;
    const struct standin_layout *b = (const struct standin_layout *)b_;
    const struct standin_layout *c = (const struct standin_layout *)c_;
    struct product p = {
        .op = *operation,
        .a = *a,
        .b = *b,
        .c = *c,
        .a_data = a_data,
        .b_data = b_data,
        .c_data = d_data,
        .workspace = workspace,
        .workspace_bytes = workspace_bytes,
        .alpha = *(const float *)alpha,
        .beta = *(const float *)beta,
        .adds_first = standin_options()->adds_first,
    };
    struct answer answer, expected = answer_for(operation, a, b, c);
    memcpy(&answer, algo, sizeof answer);
    if (!handle || c_data != d_data || c_ != d_ || !shape_of(operation, a, b, c, &p.shape))
        return refuse("a product of layouts that do not fit each other");
    if (answer.shape != expected.shape || answer.types != expected.types)
        return refuse("an algorithm chosen for another product");
    if (answer.index >= n_algorithms() || (answer.index == 2 && n_algorithms() > 2))
        return refuse("an algorithm that there is not");
    if (answer.workspace > workspace_bytes || !aligned(workspace, 256))
        return refuse("less workspace than the algorithm was chosen for");
    if (!aligned(a_data, answer.align[0]) || !aligned(b_data, answer.align[1]) ||
        !aligned(d_data, answer.align[3]))
        return refuse("operands less aligned than the algorithm was chosen for");
    if (is_float8(a->type) && (!aligned(a_data, 16) || !aligned(b_data, 16)))
        return refuse("floats of 8 bits that are not aligned to 16 bytes");
    if (operation->epilogue == CUBLASLT_EPILOGUE_BIAS && !aligned(operation->bias, 16)) {
        standin_break("a bias at %p, which the epilogue reads 16 bytes at a time", operation->bias);
        return CUBLAS_STATUS_SUCCESS; /* the library does not see it: the kernel faults */
    }
    p.workspace_bytes = answer.workspace;
    p.algorithm = answer.index;
    p.milliseconds = milliseconds_of(&answer);
    if (!places_are_good(&p))
        return refuse("operands outside device memory");
    count_product(&p);
    return standin_enqueue(stream, run_product, &p, sizeof p) ? CUBLAS_STATUS_INVALID_VALUE
                                                              : CUBLAS_STATUS_SUCCESS;
}

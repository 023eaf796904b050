/*
 * matmul: products by cuBLASLt. It is column-major, and a row-major matrix is its own transpose
 * there: C = op(A) op(B) is asked for as C^T = op(B)^T op(A)^T, so our B is its A and our n its
 * rows. Descriptors and the algorithm chosen are kept per queue and shape.
 *
 * cuBLASLt wants A and B of one type, and C of that type or fp32. Where a product has others, the
 * operands are converted in the workspace: fp32 beside a 16-bit type becomes that type (gradients
 * of logits meet weights, on the fast units), C is made in fp32 and stored as asked. A bias is left
 * to cuBLASLt only where its address is a multiple of 16 bytes, as epilogues may read it in vectors
 * and then end the process's work on the GPU with "misaligned address". Elsewhere, and where the
 * library finds no algorithm with a bias, C begins as the bias and the product is added to it: as
 * much work, and one rounding as well.
 *
 * Floats of 8 bits are made in the workspace as well, both operands along k, which is the only way
 * that most generations multiply them; the library scales the result by what their scales point to.
 */
#include "kernels/cuda/matmul.h"

#include <stdio.h>
#include <stdlib.h>

static uint64_t blas_workspace(const struct cuda_device *device)
{
    return blas_workspace_bytes(device->capability);
}

/* ---- plans ---- */

void plan_clear(struct matmul_plan *plan)
{
    if (plan->operation)
        cublasLtMatmulDescDestroy(plan->operation);
    if (plan->a)
        cublasLtMatrixLayoutDestroy(plan->a);
    if (plan->b)
        cublasLtMatrixLayoutDestroy(plan->b);
    if (plan->c)
        cublasLtMatrixLayoutDestroy(plan->c);
    memset(plan, 0, sizeof *plan);
}

void matmul_plans_destroy(struct matmul_plan *plans)
{
    for (int i = 0; plans && i < MATMUL_SETS * MATMUL_WAYS; i++)
        plan_clear(&plans[i]);
    free(plans);
}

static cudaDataType_t cuda_type(enum zinf_dtype dtype)
{
    return dtype == ZINF_DTYPE_F32    ? CUDA_R_32F
           : dtype == ZINF_DTYPE_BF16 ? CUDA_R_16BF
                                      : CUDA_R_16F;
}

/* The largest power of two up to 256 that divides an address. */
static int64_t alignment_of(const void *pointer)
{
    uintptr_t low = (uintptr_t)pointer & (~(uintptr_t)pointer + 1);
    return low == 0 || low > 256 ? 256 : (int64_t)low;
}

static cublasStatus_t set_beside(cublasLtMatmulDesc_t operation, const struct beside *beside)
{
    const struct {
        cublasLtMatmulDescAttributes_t name;
        const void *pointer;
    } attributes[] = {
        {CUBLASLT_MATMUL_DESC_BIAS_POINTER, beside->bias},
        {CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, beside->a_scale},
        {CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, beside->b_scale},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; !status && i < sizeof attributes / sizeof *attributes; i++)
        if (attributes[i].pointer)
            status = cublasLtMatmulDescSetAttribute(operation, attributes[i].name,
                                                    &attributes[i].pointer, sizeof(void *));
    return status;
}

static cublasStatus_t make_operation(struct matmul_plan *plan, const struct beside *beside)
{
    const struct plan_key *key = &plan->key;
    cublasOperation_t op_a = key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasOperation_t op_b = key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasComputeType_t compute = key->tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
    cublasStatus_t status = cublasLtMatmulDescCreate(&plan->operation, compute, CUDA_R_32F);
    if (!status)
        status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_a,
                                                sizeof op_a);
    if (!status)
        status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_b,
                                                sizeof op_b);
    if (!status && beside->bias)
        status = cublasLtMatmulDescSetAttribute(plan->operation, CUBLASLT_MATMUL_DESC_EPILOGUE,
                                                &epilogue, sizeof epilogue);
    /* a bias is also read for its alignment when the algorithm is chosen */
    return status ? status : set_beside(plan->operation, beside);
}

static cublasStatus_t make_layouts(struct matmul_plan *plan)
{
    const struct plan_key *key = &plan->key;
    cudaDataType_t a = (cudaDataType_t)key->a_type, b = (cudaDataType_t)key->b_type;
    cudaDataType_t c = (cudaDataType_t)key->c_type;
    uint64_t m = (uint64_t)key->m, n = (uint64_t)key->n, k = (uint64_t)key->k;
    cublasStatus_t status = cublasLtMatrixLayoutCreate(&plan->a, a, key->trans_a ? k : m,
                                                       key->trans_a ? m : k, key->lda);
    if (!status)
        status = cublasLtMatrixLayoutCreate(&plan->b, b, key->trans_b ? n : k, key->trans_b ? k : n,
                                            key->ldb);
    return status ? status : cublasLtMatrixLayoutCreate(&plan->c, c, m, n, key->ldc);
}

static cublasStatus_t set_preference(cublasLtMatmulPreference_t preference,
                                     const struct plan_key *key)
{
    uint64_t workspace = (uint64_t)key->workspace;
    uint32_t align[] = {(uint32_t)key->align_a, (uint32_t)key->align_b, (uint32_t)key->align_c};
    /* Parts of a split k are added in fp32, never in C's type. */
    uint32_t reductions = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const struct {
        cublasLtMatmulPreferenceAttributes_t name;
        const void *value;
        size_t bytes;
    } attributes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &align[0], sizeof align[0]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &align[1], sizeof align[1]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &align[2], sizeof align[2]},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &align[2], sizeof align[2]},
    };
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; !status && i < sizeof attributes / sizeof *attributes; i++)
        status = cublasLtMatmulPreferenceSetAttribute(preference, attributes[i].name,
                                                      attributes[i].value, attributes[i].bytes);
    return status;
}

cublasStatus_t plan_describe(struct matmul_plan *plan, const struct beside *beside)
{
    cublasStatus_t status = make_operation(plan, beside);
    return status ? status : make_layouts(plan);
}

cublasStatus_t plan_ask(struct cuda_device *device, struct matmul_plan *plan,
                        cublasLtMatmulHeuristicResult_t *found, int n, int *n_found)
{
    cublasLtMatmulPreference_t preference = NULL;
    cublasStatus_t status = cublasLtMatmulPreferenceCreate(&preference);
    *n_found = 0;
    if (!status)
        status = set_preference(preference, &plan->key);
    if (!status)
        status = cublasLtMatmulAlgoGetHeuristic(device->blas, plan->operation, plan->a, plan->b,
                                                plan->c, plan->c, preference, n, found, n_found);
    if (!status && !*n_found)
        status = CUBLAS_STATUS_NOT_SUPPORTED;
    if (preference)
        cublasLtMatmulPreferenceDestroy(preference);
    return status;
}

cublasStatus_t plan_algorithm(struct cuda_device *device, struct matmul_plan *plan)
{
    const cublasLtMatmulAlgo_t *chosen = chosen_algorithm(device, &plan->key);
    cublasLtMatmulHeuristicResult_t found;
    int n;
    if (chosen) {
        plan->algorithm = *chosen;
        cublasStatus_t status = cublasLtMatmulAlgoCheck(device->blas, plan->operation, plan->a,
                                                        plan->b, plan->c, plan->c, chosen, &found);
        if (!status && found.workspaceSize <= (size_t)plan->key.workspace)
            return status;
        zinf_log_once(ZINF_LOG_WARN, "cuda algorithms",
                      "%s does not know an algorithm that was chosen for a product of this "
                      "training: its first proposal is taken, which may give other last bits",
                      device->products_by);
    }
    cublasStatus_t status = plan_ask(device, plan, &found, 1, &n);
    if (!status)
        plan->algorithm = found.algo;
    return status;
}

/* The first plan of those among which a key's is. */
static struct matmul_plan *set_of(const struct zinf_queue *q, const struct plan_key *key)
{
    const unsigned char *bytes = (const unsigned char *)key;
    uint32_t hash = 2166136261u; /* FNV-1a */
    for (size_t i = 0; i < sizeof *key; i++)
        hash = (hash ^ bytes[i]) * 16777619u;
    return q->plans + (size_t)(hash % MATMUL_SETS) * MATMUL_WAYS;
}

/* The queue's plan for a key, made if it is new; one of its set gives way. */
static cublasStatus_t find_plan(struct zinf_queue *q, const struct plan_key *key,
                                const struct beside *beside, struct matmul_plan **out)
{
    if (!q->plans && !(q->plans = calloc(MATMUL_SETS * MATMUL_WAYS, sizeof *q->plans)))
        return CUBLAS_STATUS_ALLOC_FAILED;
    struct matmul_plan *set = set_of(q, key), *plan = NULL;
    for (int i = 0; i < MATMUL_WAYS; i++) {
        if (set[i].made && !memcmp(&set[i].key, key, sizeof *key)) {
            *out = &set[i];
            return set[i].unserved ? CUBLAS_STATUS_NOT_SUPPORTED
                                   : set_beside(set[i].operation, beside);
        }
        plan = !plan && !set[i].made ? &set[i] : plan;
    }
    plan = plan ? plan : &set[q->next_plan++ % MATMUL_WAYS];
    plan_clear(plan);
    plan->key = *key;
    cublasStatus_t status = plan_describe(plan, beside);
    if (!status)
        status = plan_algorithm(q->device, plan);
    plan->unserved = status == CUBLAS_STATUS_NOT_SUPPORTED;
    plan->made = !status || plan->unserved; /* it is not asked again */
    *out = plan;
    return status;
}

/* ---- one product ---- */

enum { BIAS_ALIGN = 16 };

/* A product with the places of its operands: the caller's, or converted ones in the workspace. */
struct product {
    struct rectangle a, b, c;
    bool trans_a, trans_b;
    const float *a_scale, *b_scale;     /* of floats of 8 bits; NULL: they are none */
    cudaDataType_t a_type, b_type;      /* as multiplied */
    uint64_t a_bytes, b_bytes, c_bytes; /* of the workspace; 0: the caller's own */
    enum {
        BIAS_NONE,
        BIAS_INSIDE,
        BIAS_BEFORE,
        BIAS_AFTER
    } bias; /* who adds it: cuBLASLt, or
             * kernels of our own */
};

static struct product plan_product(const struct zinf_matmul *m)
{
    struct packed_product packed = packed_product(m);
    struct product p = {
        .a = {(void *)(uintptr_t)m->a, packed.a.dtype, packed.a.ld},
        .b = {(void *)(uintptr_t)m->b, packed.b.dtype, packed.b.ld},
        .c = {m->c, packed.c.dtype, packed.c.ld},
        .trans_a = m->trans_a,
        .trans_b = m->trans_b,
        .a_type = cuda_type(packed.a.dtype),
        .b_type = cuda_type(packed.b.dtype),
        .a_bytes = packed.a.bytes,
        .b_bytes = packed.b.bytes,
        .c_bytes = packed.c.bytes,
    };
    if (!m->bias)
        p.bias = BIAS_NONE;
    else if (m->b_dtype != p.c.dtype) /* C cannot hold it before the product unless it is fp32 */
        p.bias = p.c.dtype == ZINF_DTYPE_F32 ? BIAS_BEFORE : BIAS_AFTER;
    else
        p.bias = alignment_of(m->bias) >= BIAS_ALIGN ? BIAS_INSIDE : BIAS_BEFORE;
    return p;
}

/* Row-major, the library's A is our B. */
static struct beside beside_of(const struct zinf_matmul *m, const struct product *p)
{
    return (struct beside){p->bias == BIAS_INSIDE ? m->bias : NULL, p->b_scale, p->a_scale};
}

static void make_key(const struct cuda_device *device, const struct zinf_matmul *m,
                     const struct product *p, struct plan_key *key)
{
    memset(key, 0, sizeof *key);
    *key = (struct plan_key){
        .m = m->n,
        .n = m->m,
        .k = m->k,
        .lda = p->b.ld,
        .ldb = p->a.ld,
        .ldc = p->c.ld,
        .align_a = alignment_of(p->b.base),
        .align_b = alignment_of(p->a.base),
        .align_c = alignment_of(p->c.base),
        .workspace = (int64_t)blas_workspace(device),
        .trans_a = p->trans_b,
        .trans_b = p->trans_a,
        .a_type = p->b_type,
        .b_type = p->a_type,
        .c_type = cuda_type(p->c.dtype),
        .tf32 = device->tf32 && p->b_type == CUDA_R_32F,
        /* alignment decides, the address does not */
        .with_bias = p->bias == BIAS_INSIDE ? (int32_t)alignment_of(m->bias) : 0,
        .with_beta = p->bias == BIAS_BEFORE || (m->beta != 0.0f && !m->adds_after),
    };
}

static cublasStatus_t multiply(struct zinf_queue *q, const struct zinf_matmul *m,
                               const struct product *p)
{
    const struct beside beside = beside_of(m, p);
    const float alpha = zinf_matmul_alpha(m);
    const float beta = p->bias == BIAS_BEFORE ? 1.0f : m->beta;
    struct plan_key key;
    struct matmul_plan *plan;
    make_key(q->device, m, p, &key);
    cublasStatus_t status = find_plan(q, &key, &beside, &plan);
    if (status)
        return status;
    return cublasLtMatmul(q->device->blas, plan->operation, &alpha, p->b.base, plan->a, p->a.base,
                          plan->b, &beta, p->c.base, plan->c, p->c.base, plan->c, &plan->algorithm,
                          q->workspace, (size_t)key.workspace, q->stream);
}

/* Places converted operands behind the library's workspace and converts what is read. */
static cudaError_t convert_operands(struct zinf_queue *q, const struct zinf_matmul *m,
                                    struct product *p)
{
    char *at = (char *)q->workspace + blas_workspace(q->device);
    struct rectangle a = {(void *)(uintptr_t)m->a, m->a_dtype, m->lda};
    struct rectangle b = {(void *)(uintptr_t)m->b, m->b_dtype, m->ldb};
    struct rectangle c = {m->c, m->c_dtype, m->ldc};
    cudaError_t error = cudaSuccess;
    if (p->a_bytes) {
        p->a.base = at;
        error = launch_rectangle_convert(q->stream, p->a, a, m->trans_a ? m->k : m->m,
                                         m->trans_a ? m->m : m->k);
    }
    if (p->b_bytes && error == cudaSuccess) {
        p->b.base = at + p->a_bytes;
        error = launch_rectangle_convert(q->stream, p->b, b, m->trans_b ? m->n : m->k,
                                         m->trans_b ? m->k : m->n);
    }
    if (p->c_bytes) {
        p->c.base = at + p->a_bytes + p->b_bytes;
        if (m->beta != 0.0f && error == cudaSuccess)
            error = launch_rectangle_convert(q->stream, p->c, c, m->m, m->n);
    }
    return error;
}

/* Both operands lie along k then. */
static void become_float8(const struct zinf_matmul *m, struct product *p)
{
    p->a.ld = p->b.ld = m->k;
    p->trans_b = true;
    p->a_type = m->float8 == ZINF_FLOAT8_E5M2 ? CUDA_R_8F_E5M2 : CUDA_R_8F_E4M3;
    p->b_type = CUDA_R_8F_E4M3;
}

/* Makes the codes of both operands, which the product is of from here on. */
static cudaError_t round_operands(struct zinf_queue *q, const struct zinf_matmul *m,
                                  struct product *p)
{
    const struct float8_workspace w = float8_workspace(m);
    uint8_t *at =
        (uint8_t *)q->workspace + matmul_workspace_bytes(q->device->capability, m) - w.bytes;
    struct float8_matrix a = {.x = m->a,
                              .ld = m->lda,
                              .rows = m->m,
                              .cols = m->k,
                              .type = m->float8,
                              .codes = at + w.a,
                              .largest = (float *)(void *)(at + w.a_largest)};
    struct float8_matrix b = {.x = m->b,
                              .ld = m->ldb,
                              .rows = m->trans_b ? m->n : m->k,
                              .cols = m->trans_b ? m->k : m->n,
                              .type = ZINF_FLOAT8_E4M3,
                              .turned = !m->trans_b,
                              .codes = at + w.b,
                              .largest = (float *)(void *)(at + w.b_largest)};
    p->a.base = a.codes, p->b.base = b.codes;
    become_float8(m, p);
    p->a_scale = a.largest + FLOAT8_PARTS, p->b_scale = b.largest + FLOAT8_PARTS;
    cudaError_t error = launch_float8(q->stream, &a);
    return error == cudaSuccess ? launch_float8(q->stream, &b) : error;
}

/* C as the bias in every row. */
static cudaError_t begin_with_bias(struct zinf_queue *q, const struct zinf_matmul *m,
                                   const struct product *p)
{
    struct rectangle bias = {(void *)(uintptr_t)m->bias, m->b_dtype, 0};
    return launch_rectangle_convert(q->stream, p->c, bias, m->m, m->n);
}

/* What cuBLASLt left to do: a bias of another type than C, and C's own type. */
static cudaError_t finish_result(struct zinf_queue *q, const struct zinf_matmul *m,
                                 const struct product *p)
{
    struct rectangle bias = {(void *)(uintptr_t)m->bias, m->b_dtype, 0};
    struct rectangle c = {m->c, m->c_dtype, m->ldc};
    cudaError_t error = cudaSuccess;
    if (p->bias == BIAS_AFTER)
        error = launch_rectangle_bias(q->stream, p->c, bias, m->m, m->n);
    if (p->c_bytes && error == cudaSuccess)
        error = launch_rectangle_convert(q->stream, c, p->c, m->m, m->n);
    return error;
}

/* Without its epilogue where the library has none for the product: the bias is added then. */
static cublasStatus_t multiply_as_served(struct zinf_queue *q, const struct zinf_matmul *m,
                                         struct product *p)
{
    cublasStatus_t status = multiply(q, m, p);
    if (status != CUBLAS_STATUS_NOT_SUPPORTED || p->bias != BIAS_INSIDE)
        return status;
    p->bias = BIAS_BEFORE;
    return begin_with_bias(q, m, p) ? CUBLAS_STATUS_EXECUTION_FAILED : multiply(q, m, p);
}

static int product_failed(cublasStatus_t status, const struct zinf_matmul *m, uint64_t workspace)
{
    char operation[160];
    nvtxRangePop();
    snprintf(operation, sizeof operation, "matmul %lld x %lld x %lld (%s, %s to %s)",
             (long long)m->m, (long long)m->n, (long long)m->k, zinf_dtype_name(m->a_dtype),
             zinf_dtype_name(m->b_dtype), zinf_dtype_name(m->c_dtype));
    return cublas_fail(status, operation, workspace);
}

static int multiply_whole(struct zinf_queue *q, const struct zinf_matmul *args)
{
    uint64_t needed = cuda_matmul_workspace(&q->device->device, args);
    int code = check_workspace(q->workspace_bytes, needed, "matmul");
    if (code)
        return code;
    struct product p = plan_product(args);
    if (p.a.dtype == ZINF_DTYPE_BF16 && (code = check_bf16(q->device)))
        return code;
    if (args->float8 && (code = check_float8(q->device)))
        return code;
    queue_enter(q, "matmul");
    cudaError_t error = args->float8 ? round_operands(q, args, &p) : convert_operands(q, args, &p);
    if (error == cudaSuccess && p.bias == BIAS_BEFORE)
        error = begin_with_bias(q, args, &p);
    if (error == cudaSuccess) {
        cublasStatus_t status = multiply_as_served(q, args, &p);
        if (status)
            return product_failed(status, args, needed);
        error = finish_result(q, args, &p);
    }
    return queue_leave(q, error);
}

/* ---- extents ---- */

/* The library's fast kernels read and write rows 16 bytes at a time: rows that begin well but are
 * of an odd length have slow ones (a vocabulary's last tile, of 16721 tokens). A product that is
 * long enough to be worth a launch more is cut. */
#define WORTH_CUTTING 1e9 /* floating-point operations */
enum { FAST_EXTENT = 8, CUT_EXTENT = 64 };

static bool begins_well(const void *base, enum zinf_dtype dtype, int64_t ld)
{
    return alignment_of(base) >= 16 && (uint64_t)ld * zinf_dtype_bytes(dtype) % 16 == 0;
}

/* How much of an extent is the first of two products'; 0: it stays whole. */
static int64_t cut_of(int64_t extent, bool along_rows)
{
    return along_rows && extent % FAST_EXTENT ? extent / CUT_EXTENT * CUT_EXTENT : 0;
}

static const void *moved(const void *base, enum zinf_dtype dtype, int64_t elems)
{
    return (const char *)base + elems * (int64_t)zinf_dtype_bytes(dtype);
}

/* Makes two products of one, in their order; false: it stays whole. */
static bool cut_product(struct zinf_matmul parts[2])
{
    struct zinf_matmul *one = &parts[0], *rest = &parts[1];
    const double work = 2.0 * (double)one->m * (double)one->n * (double)one->k;
    if (work < WORTH_CUTTING || one->float8 || one->a_dtype == ZINF_DTYPE_F32 ||
        one->b_dtype != one->a_dtype || !begins_well(one->a, one->a_dtype, one->lda) ||
        !begins_well(one->b, one->b_dtype, one->ldb) ||
        !begins_well(one->c, one->c_dtype, one->ldc))
        return false;
    /* A sum over k in two parts is rounded once, and so fp32, before it is whole. */
    const bool splits = one->c_dtype == ZINF_DTYPE_F32 && (!one->trans_a || one->trans_b);
    const int64_t m = cut_of(one->m, one->trans_a), k = cut_of(one->k, splits);
    const int64_t n = cut_of(one->n, true);
    if (m) {
        rest->a = moved(one->a, one->a_dtype, m);
        rest->c = (void *)(uintptr_t)moved(one->c, one->c_dtype, m * one->ldc);
        rest->m = one->m - m, one->m = m;
    } else if (n) {
        rest->b = moved(one->b, one->b_dtype, n * (one->trans_b ? one->ldb : 1));
        rest->c = (void *)(uintptr_t)moved(one->c, one->c_dtype, n);
        rest->bias = one->bias ? moved(one->bias, one->b_dtype, n) : NULL;
        rest->n = one->n - n, one->n = n;
    } else if (k) {
        rest->a = moved(one->a, one->a_dtype, k * (one->trans_a ? one->lda : 1));
        rest->b = moved(one->b, one->b_dtype, k * (one->trans_b ? 1 : one->ldb));
        rest->k = one->k - k, one->k = k;
        rest->beta = 1.0f, rest->bias = NULL;
    }
    return m || n || k;
}

int cuda_matmul(struct zinf_queue *q, const struct zinf_matmul *args)
{
    struct zinf_matmul parts[] = {*args, *args};
    int code = check_matmul(args);
    if (code || !args->m || !args->n)
        return code;
    if (!cut_product(parts))
        return multiply_whole(q, args);
    code = cuda_matmul(q, &parts[0]); /* which may be odd in another way */
    return code ? code : cuda_matmul(q, &parts[1]);
}

/* ---- questions before there is memory ---- */

enum { MATMUL_PARTS = 8 };

/* Each part and, for a library without an epilogue for it, the same with its bias before. */
static int keys_of_parts(struct cuda_device *device, const struct zinf_matmul *args,
                         struct plan_key keys[MATMUL_PARTS], int n)
{
    struct zinf_matmul parts[] = {*args, *args};
    if (n + 2 > MATMUL_PARTS)
        return n;
    if (cut_product(parts)) {
        n = keys_of_parts(device, &parts[0], keys, n);
        return keys_of_parts(device, &parts[1], keys, n);
    }
    struct product p = plan_product(args);
    if (args->float8)
        become_float8(args, &p);
    make_key(device, args, &p, &keys[n]);
    keys[n].align_a = keys[n].align_b = keys[n].align_c = BIAS_ALIGN;
    if (!keys[n].with_bias)
        return n + 1;
    keys[n].with_bias = BIAS_ALIGN;
    keys[n + 1] = keys[n];
    keys[n + 1].with_bias = 0, keys[n + 1].with_beta = 1;
    return n + 2;
}

/* The keys of the products that args is made as, as if all operands were aligned to 16 bytes. */
static int matmul_keys(struct cuda_device *device, const struct zinf_matmul *args,
                       struct plan_key keys[MATMUL_PARTS])
{
    struct zinf_matmul whole = *args; /* there is nothing at its operands' addresses yet */
    whole.a = whole.b = NULL;
    whole.c = NULL;
    whole.bias = args->bias ? (const void *)(uintptr_t)BIAS_ALIGN : NULL;
    return check_matmul(args) || !args->m || !args->n || !args->k
               ? 0
               : keys_of_parts(device, &whole, keys, 0);
}

/* What is not noted, as where there is no memory, is made by the library's first proposal. */
static void note_products(struct cuda_device *device, const struct zinf_matmul *args)
{
    struct plan_key keys[MATMUL_PARTS];
    int n = matmul_keys(device, args, keys);
    for (int i = 0; i < n && !note_product(device, &keys[i]);)
        i++;
}

/* A plan asks for the workspace of every product before the memory is taken: what this GPU does not
 * multiply is remembered, and refused there instead of in the first step. */
uint64_t cuda_matmul_workspace(struct zinf_device *device, const struct zinf_matmul *args)
{
    struct cuda_device *cuda = (struct cuda_device *)device;
    if (packed_product(args).a.dtype == ZINF_DTYPE_BF16)
        cuda->asked_bf16 = true;
    if (cuda->noted)
        note_products(cuda, args);
    return matmul_workspace_bytes(cuda->capability, args);
}

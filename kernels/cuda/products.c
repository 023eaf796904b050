/*
 * products: which of cuBLASLt's algorithms makes a product. The library proposes several, and its
 * first proposal can be far from the fastest. Each is timed on the GPU, over operands of small
 * numbers in the arena, before a training has anything there. Another algorithm may add in another
 * order, so the choice is kept by who asked for it and given back to all GPUs of a training.
 */
#include "kernels/cuda/matmul.h"

#include <stdlib.h>

enum {
    CANDIDATES = 8, /* cuBLASLt's order is a good one: later ones are rarely faster */
    RUNS = 3,
    PLACE_ALIGN = 256,
    SMALL_NUMBER = 0x3c, /* as each byte of a number: 0.011 in fp32 and bf16, about 1 in the rest */
};
/* A proposal that is faster by less than that is as fast: times vary. */
#define WORTH_CHANGING 0.97

/* Operands of one product, in the arena around the queue's workspace. */
struct places {
    char *a, *b, *c, *bias, *scales;
};

struct room {
    char *next, *end, *taken, *taken_end; /* what is taken: the workspace */
};

static char *take(struct room *room, uint64_t bytes)
{
    char *at = room->next;
    bytes = zinf_align_up(bytes + 1, PLACE_ALIGN);
    if ((uintptr_t)at < (uintptr_t)room->taken_end &&
        (uintptr_t)at + bytes > (uintptr_t)room->taken)
        at = (char *)zinf_align_up((uintptr_t)room->taken_end, PLACE_ALIGN);
    if ((uintptr_t)at + bytes > (uintptr_t)room->end)
        return NULL;
    room->next = at + bytes;
    return at;
}

static uint64_t width_of(int32_t type)
{
    return type == CUDA_R_32F ? 4 : type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2 ? 1 : 2;
}

static uint64_t result_bytes(const struct plan_key *key)
{
    return (uint64_t)(key->n * key->ldc) * width_of(key->c_type);
}

/* false: the arena has no room for it. room: what is left. */
static bool place_operands(const struct zinf_queue *q, const struct plan_key *key,
                           struct places *out, struct room *room)
{
    const struct zinf_device *device = &q->device->device;
    char *base = device->memory, *workspace = q->workspace;
    *room = (struct room){base, base + device->memory_bytes, workspace, workspace + key->workspace};
    *out = (struct places){
        .a = take(room,
                  (uint64_t)((key->trans_a ? key->m : key->k) * key->lda) * width_of(key->a_type)),
    };
    if (out->a)
        out->b = take(room, (uint64_t)((key->trans_b ? key->k : key->n) * key->ldb) *
                                width_of(key->b_type));
    if (out->b)
        out->c = take(room, result_bytes(key));
    if (out->c)
        out->bias = take(room, (uint64_t)key->m * width_of(key->c_type));
    if (out->bias)
        out->scales = take(room, 2 * sizeof(float));
    return out->scales;
}

struct timing {
    struct zinf_queue *q;
    struct matmul_plan *plan;
    struct places at;
    cudaEvent_t begin, end;
};

static cublasStatus_t run_once(const struct timing *t, const cublasLtMatmulAlgo_t *algorithm)
{
    const struct plan_key *key = &t->plan->key;
    const float alpha = 1.0f, beta = key->with_beta ? 1.0f : 0.0f;
    return cublasLtMatmul(t->q->device->blas, t->plan->operation, &alpha, t->at.a, t->plan->a,
                          t->at.b, t->plan->b, &beta, t->at.c, t->plan->c, t->at.c, t->plan->c,
                          algorithm, t->q->workspace, (size_t)key->workspace, t->q->stream);
}

/* Milliseconds of RUNS runs after one that is not counted; below 0: it does not run. */
static cudaError_t time_algorithm(const struct timing *t, const cublasLtMatmulAlgo_t *algorithm,
                                  float *out)
{
    cublasStatus_t status = run_once(t, algorithm);
    cudaError_t error = cudaEventRecord(t->begin, t->q->stream);
    *out = -1.0f;
    for (int i = 0; i < RUNS && !status && error == cudaSuccess; i++)
        status = run_once(t, algorithm);
    if (status)
        return cudaStreamSynchronize(t->q->stream);
    if (error == cudaSuccess)
        error = cudaEventRecord(t->end, t->q->stream);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(t->q->stream);
    return error == cudaSuccess ? cudaEventElapsedTime(out, t->begin, t->end) : error;
}

static cudaError_t choose_fastest(const struct timing *t,
                                  const cublasLtMatmulHeuristicResult_t *found, int n,
                                  struct zinf_product *product)
{
    cudaError_t error = cudaSuccess;
    float least = -1.0f, now;
    for (int i = 0; i < n && error == cudaSuccess; i++) {
        if (found[i].state != CUBLAS_STATUS_SUCCESS ||
            found[i].workspaceSize > (size_t)t->plan->key.workspace)
            continue;
        error = time_algorithm(t, &found[i].algo, &now);
        if (error != cudaSuccess || now < 0.0f || (least >= 0.0f && now >= least * WORTH_CHANGING))
            continue;
        least = now;
        memcpy(product->way, &found[i].algo, sizeof product->way);
        product->chosen = 1;
    }
    return error;
}

/* Proposals for a product. Where there are none with a bias, matmul makes another one. */
static cublasStatus_t describe(struct zinf_queue *q, struct matmul_plan *plan,
                               const struct places *at, cublasLtMatmulHeuristicResult_t *found,
                               int *n_found)
{
    const bool scaled = width_of(plan->key.a_type) == 1;
    const float *scales = (const float *)(const void *)at->scales;
    const struct beside beside = {plan->key.with_bias ? at->bias : NULL, scaled ? scales : NULL,
                                  scaled ? scales + 1 : NULL};
    cublasStatus_t status = plan_describe(plan, &beside);
    return status ? status : plan_ask(q->device, plan, found, CANDIDATES, n_found);
}

static int time_product(struct timing *t, struct zinf_product *product)
{
    cublasLtMatmulHeuristicResult_t found[CANDIDATES];
    struct zinf_queue *q = t->q;
    struct matmul_plan plan = {.made = false};
    struct room room;
    int n = 0;
    memcpy(&plan.key, product->key, sizeof plan.key);
    t->plan = &plan;
    if (!place_operands(q, &plan.key, &t->at, &room))
        return 0;
    cublasStatus_t status = describe(q, &plan, &t->at, found, &n);
    cudaError_t error = cudaSuccess;
    if (!status && n > 1) {
        error = cudaMemsetAsync(t->at.a, SMALL_NUMBER, (size_t)(room.next - t->at.a), q->stream);
        if (error == cudaSuccess)
            error = choose_fastest(t, found, n, product);
    }
    plan_clear(&plan);
    if (status && status != CUBLAS_STATUS_NOT_SUPPORTED)
        return cublas_fail(status, "asking for a product's algorithms", 0);
    CUDA_RETURN(error, "timing a product", 0);
    return 0;
}

int cuda_products_time(struct zinf_queue *queue, struct zinf_products *list)
{
    struct timing t = {.q = queue};
    int code = 0;
    queue_enter(queue, "timing products");
    cudaError_t error = cudaEventCreateWithFlags(&t.begin, cudaEventDefault);
    if (error == cudaSuccess)
        error = cudaEventCreateWithFlags(&t.end, cudaEventDefault);
    for (uint32_t i = 0; i < list->n && error == cudaSuccess && !code; i++)
        if (!list->items[i].chosen)
            code = time_product(&t, &list->items[i]);
    if (t.begin)
        cudaEventDestroy(t.begin);
    if (t.end)
        cudaEventDestroy(t.end);
    int left = queue_leave(queue, error);
    return code ? code : left;
}

/* ---- sums ---- */

/* Of a weight's gradient: columns of both operands, a result in fp32. Scales are for floats of 8
 * bits, which have none. */
static bool may_add(const struct plan_key *key)
{
    return key->c_type == CUDA_R_32F && !key->trans_a && key->trans_b && !key->with_bias &&
           !key->with_beta && key->ldc == key->m && width_of(key->a_type) > 1;
}

static enum zinf_dtype dtype_of(int32_t type)
{
    return type == CUDA_R_32F    ? ZINF_DTYPE_F32
           : type == CUDA_R_16BF ? ZINF_DTYPE_BF16
                                 : ZINF_DTYPE_F16;
}

/* Numbers between -1 and 1, other ones for each site. */
static cudaError_t fill(struct zinf_queue *q, void *x, int32_t type, uint64_t bytes, uint32_t site)
{
    const struct zinf_noise noise = {.dtype = dtype_of(type),
                                     .n = (int64_t)(bytes / width_of(type)),
                                     .x = x,
                                     .magnitude = 1.0f,
                                     .random = {.site = site}};
    cudaError_t error = cudaMemsetAsync(x, 0, bytes, q->stream);
    return error == cudaSuccess ? launch_noise(q->stream, &noise) : error;
}

/* Makes c = product + sum and sum = sum + product, and of c their difference. */
static cublasStatus_t make_both(struct timing *t, float *sum)
{
    const struct plan_key *key = &t->plan->key;
    const uint64_t n = result_bytes(key) / sizeof(float);
    const float one = 1.0f;
    float *c = (float *)(void *)t->at.c;
    const struct zinf_residual less = {
        .dtype = ZINF_DTYPE_F32, .n = (int64_t)n, .x = c, .r = sum, .y = c, .scale = -1.0f};
    cublasStatus_t status = run_once(t, &t->plan->algorithm);
    if (!status && launch_add(t->q->stream, c, sum, n))
        status = CUBLAS_STATUS_EXECUTION_FAILED;
    if (!status)
        status = cublasLtMatmul(t->q->device->blas, t->plan->operation, &one, t->at.a, t->plan->a,
                                t->at.b, t->plan->b, &one, sum, t->plan->c, sum, t->plan->c,
                                &t->plan->algorithm, t->q->workspace, (size_t)key->workspace,
                                t->q->stream);
    if (!status && launch_residual(t->q->stream, &less, c))
        status = CUBLAS_STATUS_EXECUTION_FAILED;
    return status;
}

/* Whether all of x is zero; parts is memory of the device for a number of each block. */
static int is_zero(struct zinf_queue *q, const float *x, uint64_t n, double *parts, bool *out)
{
    const uint64_t n_parts = (n + ZINF_SUM_BLOCK - 1) / ZINF_SUM_BLOCK;
    double *sums = malloc(n_parts * sizeof *sums);
    if (!sums)
        return zinf_fail(-ENOMEM, "no memory for %llu sums", (unsigned long long)n_parts);
    int code = cuda_sum_squares(q, parts, x, n);
    if (!code)
        code = cuda_copy_to_host(q, sums, parts, n_parts * sizeof *sums);
    if (!code)
        code = cuda_queue_synchronize(q);
    *out = !code;
    for (uint64_t i = 0; *out && i < n_parts; i++)
        *out = sums[i] == 0.0;
    free(sums);
    return code;
}

/* out: whether both ways have the same bits; false where there is no room to see. */
static int compare_ways(struct timing *t, struct room *room, bool *out)
{
    struct zinf_queue *q = t->q;
    const struct plan_key *key = &t->plan->key;
    const uint64_t bytes = result_bytes(key), n = bytes / sizeof(float);
    float *sum = (float *)(void *)take(room, bytes);
    double *parts = (double *)(void *)take(room, (n / ZINF_SUM_BLOCK + 1) * sizeof(double));
    cudaError_t error = cudaSuccess;
    *out = false;
    if (!sum || !parts)
        return 0;
    const uint64_t a = (uint64_t)(key->k * key->lda) * width_of(key->a_type);
    const uint64_t b = (uint64_t)(key->k * key->ldb) * width_of(key->b_type);
    if ((error = fill(q, t->at.a, key->a_type, a, 0)) == cudaSuccess &&
        (error = fill(q, t->at.b, key->b_type, b, 1)) == cudaSuccess)
        error = fill(q, sum, CUDA_R_32F, bytes, 2);
    CUDA_RETURN(error, "comparing ways to add", 0);
    cublasStatus_t status = make_both(t, sum);
    if (status)
        return cublas_fail(status, "comparing ways to add", 0);
    return is_zero(q, (const float *)(void *)t->at.c, n, parts, out);
}

static int compare_product(struct zinf_queue *q, const struct plan_key *key, bool *out)
{
    struct matmul_plan plan = {.key = *key};
    struct timing t = {.q = q, .plan = &plan};
    const struct beside nothing = {NULL, NULL, NULL};
    struct room room;
    *out = false;
    if (!place_operands(q, key, &t.at, &room))
        return 0;
    cublasStatus_t status = plan_describe(&plan, &nothing);
    if (!status)
        status = plan_algorithm(q->device, &plan);
    int code = status ? 0 : compare_ways(&t, &room, out);
    plan_clear(&plan);
    return code; /* what cannot be made is refused where it is needed */
}

int cuda_products_add(struct zinf_queue *q, const struct zinf_products *list, bool *out)
{
    int code = 0;
    bool equal = true;
    uint32_t n = 0;
    queue_enter(q, "comparing products");
    for (uint32_t i = 0; i < list->n && !code && equal; i++) {
        struct plan_key key;
        memcpy(&key, list->items[i].key, sizeof key);
        if (!may_add(&key))
            continue;
        /* the library's first proposal depends on where operands are */
        equal = list->items[i].chosen;
        if (equal)
            code = compare_product(q, &key, &equal);
        n++;
    }
    *out = !code && equal && n;
    int left = queue_leave(q, cudaSuccess);
    return code ? code : left;
}

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

/* false: the arena has no room for it. */
static bool place_operands(const struct zinf_queue *q, const struct plan_key *key,
                           struct places *out, char **end)
{
    const struct zinf_device *device = &q->device->device;
    char *base = device->memory, *workspace = q->workspace;
    struct room room = {base, base + device->memory_bytes, workspace, workspace + key->workspace};
    *out = (struct places){
        .a = take(&room,
                  (uint64_t)((key->trans_a ? key->m : key->k) * key->lda) * width_of(key->a_type)),
    };
    if (out->a)
        out->b = take(&room, (uint64_t)((key->trans_b ? key->k : key->n) * key->ldb) *
                                 width_of(key->b_type));
    if (out->b)
        out->c = take(&room, (uint64_t)(key->n * key->ldc) * width_of(key->c_type));
    if (out->c)
        out->bias = take(&room, (uint64_t)key->m * width_of(key->c_type));
    if (out->bias)
        out->scales = take(&room, 2 * sizeof(float));
    *end = room.next;
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
    char *end;
    int n = 0;
    memcpy(&plan.key, product->key, sizeof plan.key);
    t->plan = &plan;
    if (!place_operands(q, &plan.key, &t->at, &end))
        return 0;
    cublasStatus_t status = describe(q, &plan, &t->at, found, &n);
    cudaError_t error = cudaSuccess;
    if (!status && n > 1) {
        error = cudaMemsetAsync(t->at.a, SMALL_NUMBER, (size_t)(end - t->at.a), q->stream);
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

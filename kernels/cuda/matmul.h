/* matmul: a product as cuBLASLt is asked for it, for who makes it (matmul.c) and who times the
 * algorithms that there are for it (products.c). */
#ifndef ZINF_CUDA_MATMUL_H
#define ZINF_CUDA_MATMUL_H

#include "kernels/cuda/device.h"
#include "kernels/cuda/workspace.h"

/* What decides an algorithm. Compared as bytes: no padding, all zero where unused. */
struct plan_key {
    int64_t m, n, k, lda, ldb, ldc;    /* column-major */
    int64_t align_a, align_b, align_c; /* of the addresses, 16 to 256 */
    int64_t workspace;
    int32_t trans_a, trans_b, a_type, b_type, c_type, tf32;
    int32_t with_bias, with_beta; /* a bias by its alignment */
};

struct matmul_plan {
    struct plan_key key;
    bool made;
    bool unserved; /* the library has no algorithm for it */
    cublasLtMatmulDesc_t operation;
    cublasLtMatrixLayout_t a, b, c;
    cublasLtMatmulAlgo_t algorithm;
};

/* What an operation reads beside its operands, which no algorithm is chosen by; NULL: nothing. */
struct beside {
    const void *bias;
    const float *a_scale, *b_scale; /* in the library's order */
};

/* Descriptors of key, which the plan has already; plan_clear whatever comes of it. */
cublasStatus_t plan_describe(struct matmul_plan *plan, const struct beside *beside);
/* At most n algorithms, the library's first proposal first. CUBLAS_STATUS_NOT_SUPPORTED: none. */
cublasStatus_t plan_ask(struct cuda_device *device, struct matmul_plan *plan,
                        cublasLtMatmulHeuristicResult_t *found, int n, int *n_found);
/* The one that was given for it, if the library still has it; else the library's first. */
cublasStatus_t plan_algorithm(struct cuda_device *device, struct matmul_plan *plan);
void plan_clear(struct matmul_plan *plan);

/* product_list.c: the algorithm that products_use has given for a product; NULL: none. */
const cublasLtMatmulAlgo_t *chosen_algorithm(const struct cuda_device *device,
                                             const struct plan_key *key);
/* Adds it to the list that products_note has named, once. */
int note_product(const struct cuda_device *device, const struct plan_key *key);

#endif

/* product: what cublaslt.c has checked and enqueued, for product.c to make. */
#ifndef STANDIN_PRODUCT_H
#define STANDIN_PRODUCT_H

#include "standin.h"

#include "base/base.h"
#include <cublasLt.h>

struct standin_operation {
    bool tf32;
    cublasOperation_t op_a, op_b;
    cublasLtEpilogue_t epilogue;
    const void *bias;
    const float *a_scale, *b_scale;
};

struct standin_layout {
    cudaDataType type;
    int64_t rows, cols, ld;
};

struct shape {
    int64_t m, n, k;
};

struct product {
    struct standin_operation op;
    struct standin_layout a, b, c;
    struct shape shape;
    const char *a_data, *b_data;
    char *c_data, *workspace;
    size_t workspace_bytes;
    float alpha, beta;
    bool adds_first;    /* C, with beta */
    uint64_t algorithm; /* adds every so-manieth product of a sum by itself */
    double milliseconds;
};

enum zinf_dtype dtype_of(cudaDataType type); /* of 16 bits or more */
size_t width_of(cudaDataType type);
bool is_float8(cudaDataType type);
void run_product(void *payload);

#endif

/* product: a product as three loops with fp32 sums. */
#include "product.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum zinf_dtype dtype_of(cudaDataType type)
{
    return type == CUDA_R_32F   ? ZINF_DTYPE_F32
           : type == CUDA_R_16F ? ZINF_DTYPE_F16
                                : ZINF_DTYPE_BF16;
}

bool is_float8(cudaDataType type)
{
    return type == CUDA_R_8F_E4M3 || type == CUDA_R_8F_E5M2;
}

size_t width_of(cudaDataType type)
{
    return is_float8(type) ? 1 : zinf_dtype_bytes(dtype_of(type));
}

/* E5M2 is the upper half of an fp16; of E4M3 exponent and fraction are put where bf16 has them. */
static float float8_value(uint8_t code, cudaDataType type)
{
    if (type == CUDA_R_8F_E5M2)
        return zinf_f16_to_f32((uint16_t)(code << 8));
    uint16_t bits = (uint16_t)((code & 0x80) << 8 | (code & 0x7f) << 4);
    return (code & 0x7f) == 0x7f ? NAN : zinf_bf16_to_f32(bits) * 0x1p120f;
}

static float value_at(const void *data, cudaDataType type, int64_t i)
{
    const char *at = (const char *)data + (size_t)i * width_of(type);
    float value;
    if (is_float8(type))
        return float8_value((uint8_t)*at, type);
    zinf_convert(&value, ZINF_DTYPE_F32, at, dtype_of(type), 1);
    return value;
}

/* Whether somebody has written all of a matrix that is read. */
static void check_known(const char *what, const void *data, const struct standin_layout *l)
{
    size_t width = width_of(l->type);
    for (int64_t j = 0; standin_watch && j < l->cols; j++)
        if (!standin_watch->known((const char *)data + (size_t)(j * l->ld) * width,
                                  (size_t)l->rows * width)) {
            standin_break("a product reads of %s what nobody has written", what);
            return;
        }
}

/* What TF32's units see of a number: 10 bits of mantissa, to the nearest. */
static float tf32_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    bits = (bits + 0xfff + ((bits >> 13) & 1)) & ~0x1fffu;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* A matrix as fp32 [rows of op][cols of op], row-major. */
static float *unpack(const char *data, const struct standin_layout *l, bool transposed, bool tf32)
{
    int64_t rows = transposed ? l->cols : l->rows, cols = transposed ? l->rows : l->cols;
    float *to = malloc((size_t)(rows * cols) * sizeof *to);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < cols; j++)
            to[i * cols + j] = value_at(data, l->type, transposed ? i * l->ld + j : j * l->ld + i);
    for (int64_t i = 0; tf32 && i < rows * cols; i++)
        to[i] = tf32_of(to[i]);
    return to;
}

/* first: what the first part begins with. */
static float sum_by(int64_t parts, const float *a, const float *b, int64_t k, float first)
{
    float all = 0.0f;
    for (int64_t part = 0; part < parts; part++) {
        float sum = part ? 0.0f : first;
        for (int64_t l = part; l < k; l += parts)
            sum += a[l] * b[l];
        all = part ? all + sum : sum;
    }
    return all;
}

void run_product(void *payload)
{
    struct product *p = payload;
    const int64_t m = p->shape.m, n = p->shape.n, k = p->shape.k;
    standin_pass(p->milliseconds);
    check_known("A", p->a_data, &p->a);
    check_known("B", p->b_data, &p->b);
    if (p->beta != 0.0f)
        check_known("C", p->c_data, &p->c);
    float scale = p->alpha;
    if (p->op.a_scale)
        scale *= *p->op.a_scale * *p->op.b_scale;
    float *a = unpack(p->a_data, &p->a, p->op.op_a == CUBLAS_OP_T, p->op.tf32);
    float *b =
        unpack(p->b_data, &p->b, p->op.op_b != CUBLAS_OP_T, p->op.tf32); /* kept by columns */
    if (p->workspace_bytes) /* what it was lent is its own */
        memset(p->workspace, 0xff, p->workspace_bytes < 4096 ? p->workspace_bytes : 4096);
    for (int64_t j = 0; j < n; j++)
        for (int64_t i = 0; i < m; i++) {
            char *to =
                p->c_data + (size_t)(j * p->c.ld + i) * zinf_dtype_bytes(dtype_of(p->c.type));
            const float old = p->beta != 0.0f ? p->beta * value_at(to, p->c.type, 0) : 0.0f;
            const float first = p->adds_first ? old / scale : 0.0f;
            float sum = sum_by((int64_t)p->algorithm + 1, &a[i * k], &b[j * k], k, first) * scale;
            if (p->beta != 0.0f && !p->adds_first)
                sum += old;
            if (p->op.epilogue == CUBLASLT_EPILOGUE_BIAS)
                sum += value_at(p->op.bias, p->c.type, i);
            zinf_convert(to, dtype_of(p->c.type), &sum, ZINF_DTYPE_F32, 1);
        }
    for (int64_t j = 0; standin_watch && j < n; j++)
        standin_watch->written(p->c_data +
                                   (size_t)(j * p->c.ld) * zinf_dtype_bytes(dtype_of(p->c.type)),
                               (size_t)m * zinf_dtype_bytes(dtype_of(p->c.type)));
    free(a);
    free(b);
}

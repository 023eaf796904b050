/* kernels_matmul: a product with its operands, and what a plain triple loop in double makes of it.
 */
#ifndef ZINF_KERNELS_MATMUL_H
#define ZINF_KERNELS_MATMUL_H

#include "kernels_testing.h"

struct shape {
    int64_t m, n, k, gap; /* gap: columns between rows beyond what is needed */
};

struct problem {
    struct zinf_matmul args;
    struct tensor a, b, c, bias;
};

UNUSED static void problem_open(struct problem *p, const struct shape *s, bool trans_a,
                                bool trans_b, const enum zinf_dtype dtypes[3], bool bias,
                                float beta)
{
    struct zinf_matmul m = {.m = s->m,
                            .n = s->n,
                            .k = s->k,
                            .trans_a = trans_a,
                            .trans_b = trans_b,
                            .a_dtype = dtypes[0],
                            .b_dtype = dtypes[1],
                            .c_dtype = dtypes[2],
                            .beta = beta};
    m.lda = (trans_a ? s->m : s->k) + s->gap;
    m.ldb = (trans_b ? s->k : s->n) + s->gap;
    m.ldc = s->n + s->gap;
    p->a = tensor_random(m.a_dtype, (size_t)((trans_a ? s->k : s->m) * m.lda), 1, 1.0f);
    p->b = tensor_random(m.b_dtype, (size_t)((trans_b ? s->n : s->k) * m.ldb), 2, 1.0f);
    p->c = tensor_random(m.c_dtype, (size_t)(s->m * m.ldc), 3, 1.0f);
    p->bias = tensor_random(m.b_dtype, (size_t)s->n, 4, 1.0f);
    m.a = p->a.data;
    m.b = p->b.data;
    m.c = p->c.data;
    m.bias = bias ? p->bias.data : NULL;
    p->args = m;
}

UNUSED static void problem_close(struct problem *p)
{
    tensor_free(&p->a);
    tensor_free(&p->b);
    tensor_free(&p->c);
    tensor_free(&p->bias);
}

UNUSED static double *reference(const struct problem *p)
{
    const struct zinf_matmul *m = &p->args;
    double *a = tensor_doubles(&p->a), *b = tensor_doubles(&p->b), *c = tensor_doubles(&p->c);
    for (int64_t i = 0; i < m->m; i++)
        for (int64_t j = 0; j < m->n; j++) {
            double sum = m->beta != 0.0f ? c[i * m->ldc + j] : 0.0;
            double alpha = m->alpha != 0.0f ? (double)m->alpha : 1.0;
            if (m->bias)
                sum += get(&p->bias, (size_t)j);
            for (int64_t k = 0; k < m->k; k++)
                sum += alpha * a[m->trans_a ? k * m->lda + i : i * m->lda + k] *
                       b[m->trans_b ? j * m->ldb + k : k * m->ldb + j];
            c[i * m->ldc + j] = sum;
        }
    free(a);
    free(b);
    return c; /* what lies between rows stays as it was */
}

#endif

/*
 * attention_reference: a plain softmax in double and its gradient, with soft caps, slopes, windows,
 * documents and dropout, for the tests of attention.
 */
#ifndef ZINF_ATTENTION_REFERENCE_H
#define ZINF_ATTENTION_REFERENCE_H

#include "kernels_testing.h"

struct problem {
    struct zinf_attention args;
    struct tensor qkv, out, lse, d_out, d_qkv;
    double larger; /* scores than problem_open's, whose rounding the bounds are for */
};

UNUSED static void problem_open(struct problem *p, enum zinf_dtype dtype, int64_t batch,
                                int64_t seq, int64_t n_heads, int64_t n_kv_heads, int64_t head_dim,
                                bool causal, float dropout)
{
    size_t rows = (size_t)(batch * seq);
    size_t row = (size_t)((n_heads + 2 * n_kv_heads) * head_dim);
    size_t out_row = (size_t)(n_heads * head_dim);
    p->qkv = tensor_random(dtype, rows * row, 1, 1.0f);
    p->out = tensor_new(dtype, rows * out_row);
    p->lse = tensor_new(ZINF_DTYPE_F32, (size_t)(batch * n_heads * seq));
    p->d_out = tensor_random(dtype, rows * out_row, 2, 1.0f);
    p->d_qkv = tensor_random(dtype, rows * row, 3, 1.0f); /* to be overwritten */
    p->larger = 1.0;
    p->args = (struct zinf_attention){
        .dtype = dtype,
        .batch = batch,
        .seq = seq,
        .n_heads = n_heads,
        .n_kv_heads = n_kv_heads,
        .head_dim = head_dim,
        .causal = causal,
        .scale = 1.0f / sqrtf((float)head_dim),
        .dropout = {.p = dropout, .seed = 99, .step = 3, .site = 7, .element_first = 4321},
        .qkv = p->qkv.data,
        .out = p->out.data,
        .lse = p->lse.data,
        .d_out = p->d_out.data,
        .d_qkv = p->d_qkv.data,
    };
}

UNUSED static void problem_close(struct problem *p)
{
    tensor_free(&p->qkv);
    tensor_free(&p->out);
    tensor_free(&p->lse);
    tensor_free(&p->d_out);
    tensor_free(&p->d_qkv);
}

/* The score of a query and a key whose scaled product is x; slope: its derivative by x. */
UNUSED static double reference_score(const struct zinf_attention *a, double x, int64_t h, int64_t i,
                                     int64_t j, double *slope)
{
    const double cap = (double)a->softcap, t = cap > 0.0 ? tanh(x / cap) : 0.0;
    *slope = 1.0 - t * t;
    x = cap > 0.0 ? cap * t : x;
    return a->slopes ? x + (double)a->slopes[h] * (double)(j - i) : x;
}

/* Whether a key is of the query's document, which is no padding. */
UNUSED static bool same_document(const struct zinf_attention *a, int64_t b, int64_t i, int64_t j)
{
    const int32_t *segments = a->segments ? a->segments + b * a->seq : NULL;
    return !segments || (segments[i] > 0 && segments[i] == segments[j]);
}

/* One output row of one head: softmax(scale q K^T) V, with dropout. Returns the log-sum-exp. */
UNUSED static double reference_row(const struct zinf_attention *a, const double *qkv, int64_t b,
                                   int64_t h, int64_t i, double *out, double *p)
{
    const int64_t d = a->head_dim, row = (a->n_heads + 2 * a->n_kv_heads) * d;
    const int64_t kv = h / (a->n_heads / a->n_kv_heads), n = a->causal ? i + 1 : a->seq;
    const int64_t first = a->window && i >= a->window ? i + 1 - a->window : 0;
    const double *q = qkv + (b * a->seq + i) * row + h * d;
    double max = -INFINITY, sum = 0.0, slope;
    for (int64_t j = first; j < n; j++) {
        const double *k = qkv + (b * a->seq + j) * row + (a->n_heads + kv) * d;
        p[j] = -INFINITY;
        if (!same_document(a, b, i, j))
            continue;
        p[j] = 0.0;
        for (int64_t c = 0; c < d; c++)
            p[j] += q[c] * k[c];
        p[j] = reference_score(a, p[j] * (double)a->scale, h, i, j, &slope);
        max = p[j] > max ? p[j] : max;
    }
    memset(out, 0, (size_t)d * sizeof *out);
    if (max == -INFINITY)
        return 0.0;
    for (int64_t j = first; j < n; j++)
        sum += p[j] = exp(p[j] - max);
    for (int64_t j = first; j < n; j++) {
        const double *v = qkv + (b * a->seq + j) * row + (a->n_heads + a->n_kv_heads + kv) * d;
        uint64_t e = (uint64_t)(((b * a->n_heads + h) * a->seq + i) * a->seq + j);
        double weight = p[j] / sum * dropout_factor(&a->dropout, a->dropout.element_first + e);
        for (int64_t c = 0; c < d; c++)
            out[c] += weight * v[c];
    }
    return max + log(sum);
}

/* out and lse of batch b, or the loss sum(out * d_out) over that batch where they are NULL. */
UNUSED static double reference_batch(const struct zinf_attention *a, const double *qkv,
                                     const double *d_out, int64_t b, double *out, double *lse)
{
    const int64_t d = a->head_dim;
    double *row = malloc((size_t)d * sizeof *row), *p = malloc((size_t)a->seq * sizeof *p);
    double loss = 0.0;
    for (int64_t h = 0; h < a->n_heads; h++)
        for (int64_t i = 0; i < a->seq; i++) {
            int64_t at = ((b * a->seq + i) * a->n_heads + h) * d;
            double l = reference_row(a, qkv, b, h, i, row, p);
            if (out) {
                memcpy(out + at, row, (size_t)d * sizeof *row);
                lse[(b * a->n_heads + h) * a->seq + i] = l;
            }
            for (int64_t c = 0; c < d; c++)
                loss += row[c] * d_out[at + c];
        }
    free(row);
    free(p);
    return loss;
}

/* Central differences of the reference at up to n_probes elements of qkv. */
UNUSED static void check_gradient(struct fixture *f, struct problem *p, int n_probes,
                                  double absolute, double relative)
{
    const struct zinf_attention *a = &p->args;
    double *qkv = tensor_doubles(&p->qkv), *d_out = tensor_doubles(&p->d_out);
    const size_t batch_elements = p->qkv.n / (size_t)a->batch;
    const double step = 1e-5;
    for (int probe = 0; probe < n_probes && (size_t)probe < p->qkv.n; probe++) {
        size_t i = zinf_permute((uint64_t)probe, p->qkv.n, 5);
        int64_t b = (int64_t)(i / batch_elements);
        double x = qkv[i];
        qkv[i] = x + step;
        double above = reference_batch(a, qkv, d_out, b, NULL, NULL);
        qkv[i] = x - step;
        double below = reference_batch(a, qkv, d_out, b, NULL, NULL);
        qkv[i] = x;
        double want = (above - below) / (2.0 * step), got = get(&p->d_qkv, i);
        CHECKF(near(got, want, absolute, relative), "%s %s d_qkv[%zu] is %.9g, want %.9g", f->name,
               zinf_dtype_name(a->dtype), i, got, want);
    }
    free(qkv);
    free(d_out);
}

/* d_qkv of every element, for what a few probes would not meet. */
UNUSED static double *reference_gradient(const struct zinf_attention *a, const double *qkv,
                                         const double *d_out)
{
    const int64_t d = a->head_dim, heads = a->n_heads + 2 * a->n_kv_heads, row = heads * d;
    double *d_qkv = calloc((size_t)(a->batch * a->seq * row), sizeof *d_qkv);
    double *out = malloc((size_t)d * sizeof *out), *p = malloc((size_t)a->seq * sizeof *p);
    for (int64_t unit = 0; unit < a->batch * a->n_heads * a->seq; unit++) {
        const int64_t i = unit % a->seq, h = unit / a->seq % a->n_heads;
        const int64_t b = unit / a->seq / a->n_heads, kv = h / (a->n_heads / a->n_kv_heads);
        const int64_t query = (b * a->seq + i) * row + h * d;
        const double *dy = d_out + ((b * a->seq + i) * a->n_heads + h) * d;
        double lse = reference_row(a, qkv, b, h, i, out, p), delta = 0.0;
        for (int64_t c = 0; c < d; c++)
            delta += out[c] * dy[c];
        int64_t j = a->window && i >= a->window ? i + 1 - a->window : 0;
        for (; j < (a->causal ? i + 1 : a->seq); j++) {
            if (!same_document(a, b, i, j))
                continue;
            const int64_t key = (b * a->seq + j) * row + (a->n_heads + kv) * d;
            const int64_t value = key + a->n_kv_heads * d;
            double score = 0.0, dp = 0.0, slope;
            for (int64_t c = 0; c < d; c++) {
                score += (double)a->scale * qkv[query + c] * qkv[key + c];
                dp += dy[c] * qkv[value + c];
            }
            const uint64_t e = a->dropout.element_first + (uint64_t)(unit * a->seq + j);
            score = reference_score(a, score, h, i, j, &slope);
            double share = exp(score - lse), factor = dropout_factor(&a->dropout, e);
            double ds = slope * share * (dp * factor - delta) * (double)a->scale;
            for (int64_t c = 0; c < d; c++) {
                d_qkv[query + c] += ds * qkv[key + c];
                d_qkv[key + c] += ds * qkv[query + c];
                d_qkv[value + c] += share * factor * dy[c];
            }
        }
    }
    free(out);
    free(p);
    return d_qkv;
}

UNUSED static void check_problem(struct fixture *f, struct problem *p, int n_probes)
{
    const struct zinf_attention *a = &p->args;
    double *qkv = tensor_doubles(&p->qkv), *d_out = tensor_doubles(&p->d_out);
    double *out = malloc(p->out.n * sizeof *out), *lse = malloc(p->lse.n * sizeof *lse);
    /* Rounding of out and d_qkv to storage, and of out inside the backward formula. */
    double epsilon = dtype_epsilon(a->dtype), scores = p->larger;
    CHECK(!f->ops->attention_forward(f->q, a));
    for (int64_t b = 0; b < a->batch; b++)
        reference_batch(a, qkv, d_out, b, out, lse);
    CHECK_NEAR(f, &p->out, out, scores * 2e-6, 1.01 * epsilon + 2e-6);
    CHECK_NEAR(f, &p->lse, lse, scores * 3e-6, 1e-6);
    CHECK(!f->ops->attention_backward(f->q, a));
    check_gradient(f, p, n_probes, scores * 2e-5 + 8.0 * epsilon, 2e-5 + 2.0 * epsilon);
    double *d_qkv = reference_gradient(a, qkv, d_out);
    CHECK_NEAR(f, &p->d_qkv, d_qkv, scores * 2e-5 + 8.0 * epsilon, 2e-5 + 2.0 * epsilon);
    double *all[] = {qkv, d_out, out, lse, d_qkv};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
}

#endif

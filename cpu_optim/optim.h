/*
 * cpu_optim: optimizer steps over flat arrays in RAM. One call updates one array in one pass:
 * gradient read, unscaled and clipped; moments and fp32 master updated; parameter copy written.
 * Knows nothing of models, drives or devices.
 *
 * Results are bit-identical across instruction sets (scalar, AVX2, AVX-512: the scalar form is the
 * specification and uses fused multiply-add and correctly rounded operations in the same order),
 * across thread counts, and across how an array is cut into calls (but for ZINF_OPTIM_ADAFACTOR,
 * which needs a whole tensor, and the 8-bit forms, which need whole blocks).
 *
 * Threads: a call uses options.n_threads OpenMP threads and returns when done. Calls on different
 * arrays may run at the same time. Nothing is allocated in a call.
 */
#ifndef ZINF_OPTIM_H
#define ZINF_OPTIM_H

#include "base/base.h"

#ifdef __cplusplus
extern "C" {
#endif

enum zinf_optim_kind {
    ZINF_OPTIM_ADAMW,   /* decoupled decay: Loshchilov & Hutter, arXiv 1711.05101, algorithm 2 */
    ZINF_OPTIM_ADAM,    /* L2 in the gradient: Kingma & Ba, arXiv 1412.6980 */
    ZINF_OPTIM_LION,    /* Chen et al., arXiv 2302.06675 */
    ZINF_OPTIM_ADAGRAD, /* Duchi et al., JMLR 2011 */
    ZINF_OPTIM_SGD,     /* momentum as in PyTorch: buf = momentum*buf + g; p -= lr*buf */
    ZINF_OPTIM_KINDS,
};
const char *zinf_optim_name(enum zinf_optim_kind kind); /* "AdamW", ... */
/* fp32 moments per parameter: 2 for Adam and AdamW, 1 for Lion, Adagrad and SGD. */
int zinf_optim_n_moments(enum zinf_optim_kind kind);

/* One group of equal hyperparameters at one step. */
struct zinf_optim_hyper {
    enum zinf_optim_kind kind;
    float lr;
    float beta1, beta2; /* SGD: beta1 is the momentum */
    float eps;
    float weight_decay;
    bool bias_correction; /* Adam, AdamW */
    uint64_t step;        /* 1 at the first update */
};

/*
 * One flat range of n elements. AdamW, elementwise, fp32, in this order (fma = one rounding):
 *   g = grad * grad_scale
 *   m = fma(1 - beta1, g, beta1 * m);   v = fma(1 - beta2, g * g, beta2 * v)
 *   d = sqrt(v) / sqrt(1 - beta2^step) + eps
 *   p = p - lr * weight_decay * p;      p = p - (lr / (1 - beta1^step)) * (m / d)
 * Adam: g = fma(weight_decay, p, g) after the scaling, and no decay of p.
 * Lion:     c = fma(1 - beta1, g, beta1 * m);   p = p - lr * weight_decay * p
 *           p = p - lr * sign(c), sign(0) = 0;  m = fma(1 - beta2, g, beta2 * m)
 * Adagrad:  g as Adam;   m = fma(g, g, m);      p = p - lr * (g / (sqrt(m) + eps))
 * SGD:      g as Adam;   m = fma(beta1, m, g);  p = p - lr * m
 * With weight_decay 0 the decay is left out. A NaN is stored as 0x7fc00000. Scalars (1 - beta,
 * bias corrections, lr*wd) are computed once per call in double and rounded to fp32.
 * param, if set, receives p rounded to param_dtype. grad_scale is (clip factor) / (loss scale).
 *
 * Split master: with remainder set and master NULL, the fp32 master is held as the bf16 parameter
 * and 16 bits more: master bits = (param << 16) + remainder as a signed number. The masters are
 * those of the whole form, bit for bit; param is the master rounded to nearest, but ties go away
 * from zero, since 16 bits cannot tell on which side of an even neighbour a tie lay.
 *
 * bf16 moments: with half_moment1 (and 2) set and moment1 and moment2 NULL, moments are kept in
 * bf16; arithmetic is as above. They are rounded to nearest even or, with stochastic_rounding, up
 * with the probability of the distance to the lower neighbour: 16 random bits are added below the
 * cut. Element e = first_element + i takes them from word (e % 64) / 16 of the Philox block
 * (base/random.h) with counter {e / 64 * 16 + e % 16, step}, 64 bits each, and key rounding_key:
 * moment1 the low half, moment2 the high half.
 */
struct zinf_optim_array {
    uint64_t n;
    float *master;    /* [n] fp32, updated */
    float *moment1;   /* [n] fp32, updated */
    float *moment2;   /* [n] fp32, updated; NULL where the kind has one moment */
    const void *grad; /* [n] in grad_dtype */
    enum zinf_dtype grad_dtype;
    float grad_scale;
    void *param; /* [n] in param_dtype, written; NULL: not wanted */
    enum zinf_dtype param_dtype;
    uint16_t *remainder;      /* [n], updated: split master; param_dtype is bf16, master NULL */
    uint16_t *half_moment1;   /* [n] bf16, updated: instead of moment1 */
    uint16_t *half_moment2;   /* [n] bf16, updated: instead of moment2 */
    bool stochastic_rounding; /* of bf16 moments */
    uint64_t rounding_key, first_element;
};
/* -EINVAL: a pointer is missing, ranges overlap, step is 0 or a hyperparameter is out of range
 * (nothing is changed). n may be 0. Any alignment; 64-byte aligned is fastest. */
int zinf_optim_step(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *array,
                    int n_threads);

/* Between the whole and the split form of masters; a NaN becomes 0x7fc00000. */
void zinf_optim_split(uint16_t *param, uint16_t *remainder, const float *master, uint64_t n,
                      int n_threads);
void zinf_optim_join(float *master, const uint16_t *param, const uint16_t *remainder, uint64_t n,
                     int n_threads);

/* sum of x[i]^2 in double over fixed blocks of 4096 elements, block sums added in order: the same
 * bits for any thread count and instruction set. Inf or NaN in x gives a non-finite result, finite
 * x never does. Cuts at multiples of 4096 elements may be added by the caller. */
double zinf_optim_sum_squares(const void *x, enum zinf_dtype dtype, uint64_t n, int n_threads);
/* Index of the first element that is Inf or NaN, or UINT64_MAX. */
uint64_t zinf_optim_find_nonfinite(const void *x, enum zinf_dtype dtype, uint64_t n, int n_threads);
/* dst[i] += src[i], fp32 arithmetic; dst fp32, src in src_dtype. */
void zinf_optim_accumulate(float *dst, const void *src, enum zinf_dtype src_dtype, uint64_t n,
                           int n_threads);

#ifdef __cplusplus
}
#endif
#endif

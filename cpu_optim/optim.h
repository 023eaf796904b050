/*
 * cpu_optim: optimizer steps over flat arrays in RAM. One call updates one array in one pass: it
 * reads the gradient, unscales and clips it, updates the moments and the fp32 master, and writes
 * the parameter copy. It knows nothing of models, drives or devices.
 *
 * Results are bit-identical for all instruction sets (scalar, AVX2, AVX-512), for all thread
 * counts, and however an array is divided into calls. The scalar form is the specification; it uses
 * fused multiply-add and correctly rounded operations, and the others compute in the same order.
 * 8-bit moments may only be divided at whole blocks. Adafactor has its own call and takes whole
 * tensors.
 *
 * Threads: a call uses n_threads OpenMP threads and returns when they are done. On a machine with
 * several NUMA nodes, the thread of a slice runs on the node where zinf_optim_place put the slice.
 * Calls on different arrays may run at the same time. A call allocates nothing.
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
/* Moments per parameter: 2 for Adam and AdamW, 1 for Lion, Adagrad and SGD. */
int zinf_optim_n_moments(enum zinf_optim_kind kind);

/* How moments are stored; the formats are described at struct zinf_optim_array. */
enum zinf_optim_moments {
    ZINF_OPTIM_MOMENTS_F32,
    ZINF_OPTIM_MOMENTS_BF16,
    ZINF_OPTIM_MOMENTS_8BIT, /* AdamW only */
};
#define ZINF_OPTIM_8BIT_BLOCK 256 /* elements that share a scale */
/* Bytes of the state of n parameters: moments with their scales, and the fp32 master, or the
 * remainder if the master is split. */
uint64_t zinf_optim_state_bytes(enum zinf_optim_kind kind, enum zinf_optim_moments moments,
                                bool split_master, uint64_t n);

/* Hyperparameters of one step. */
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
 *   d = fma(sqrt(v), 1 / sqrt(1 - beta2^step), eps)
 *   p = fma(-lr * weight_decay, p, p);  p = fma(-lr / (1 - beta1^step), m / d, p)
 *
 * Adam: g = fma(weight_decay, p, g) after the scaling, and no decay of p.
 *
 * Lion:
 *   c = fma(1 - beta1, g, beta1 * m);  p = fma(-lr * weight_decay, p, p)
 *   p = p - lr * sign(c), sign(0) = 0; m = fma(1 - beta2, g, beta2 * m)
 *
 * Adagrad: g as Adam; m = fma(g, g, m); p = fma(-lr, g / (sqrt(m) + eps), p)
 *
 * SGD: g as Adam; m = fma(beta1, m, g); p = fma(-lr, m, p)
 *
 * With weight_decay 0 the decay is left out. A NaN is stored as 0x7fc00000. Scalars (1 - beta, bias
 * corrections, lr * weight_decay) are computed once per call in double and rounded to fp32. If
 * param is set, p is written to it, rounded to param_dtype. grad_scale is (clip factor) / (loss
 * scale).
 *
 * Split master: if remainder is set and master is NULL, the fp32 master is stored as the bf16
 * parameter and 16 further bits: master bits = (param << 16) + remainder as a signed number. The
 * masters have the same bits as unsplit ones. param is the master rounded to nearest, with ties
 * away from zero, because 16 bits cannot tell on which side of an even neighbour a tie lay.
 *
 * bf16 moments: if half_moment1 (and 2) are set and moment1 and moment2 are NULL, moments are
 * stored in bf16 and computed as above. They are rounded to nearest even, or stochastically with
 * stochastic_rounding: 16 random bits are added to the low half before it is cut off, so that the
 * probability of rounding up is the distance from the lower neighbour. Element e = first_element +
 * i takes them from word (e % 64) / 16 of the Philox block (base/random.h) with counter {e / 64 *
 * 16 + e % 16, step}, 64 bits each, and key rounding_key: moment1 uses the low half, moment2 the
 * high half.
 *
 * 8-bit moments (AdamW), after the dynamic quantisation of Dettmers et al., arXiv 2110.02861: if
 * byte_moment1 and 2 and scale1 and 2 are set, a moment is the value of a code times the scale of
 * its block of ZINF_OPTIM_8BIT_BLOCK elements, counted from the array's start. The number of
 * leading zeros of a code gives the decimal exponent, and the bits after its first one give the
 * fraction. With e = floor(log2 |c|), the value of code c is the middle of a cell,
 *   sign(c) 10^(e - L) (0.1 + 0.9 (|c| + 1/2 - 2^e) / 2^e),
 * with L = 6 and c = -127 .. 127 for moment1, L = 7 and c = 1 .. 255 for moment2. Code 0 is 0. A
 * new moment, computed by AdamW as above, gets the code of the cell in which it lies; the largest
 * of its block gets the last code. moment2 gets at least code 1, because the update is divided by
 * its root. A block with all values below 2^-100 becomes 0; a block with an Inf or NaN becomes NaN.
 */
struct zinf_optim_array {
    uint64_t n;
    float *master;    /* [n] fp32, updated */
    float *moment1;   /* [n] fp32, updated */
    float *moment2;   /* [n] fp32, updated; NULL if the kind has one moment */
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
    int8_t *byte_moment1;   /* [n] codes, updated: instead of moment1 */
    uint8_t *byte_moment2;  /* [n] codes, updated: instead of moment2 */
    float *scale1, *scale2; /* [ceil(n / ZINF_OPTIM_8BIT_BLOCK)], updated */
    bool zero_grad;         /* grad is set to zero as soon as it is used */
    /* If set, grad is searched before anything is changed; receives the index of the first Inf or
     * NaN, or UINT64_MAX. */
    uint64_t *nonfinite;
    double *sum_squares; /* if set: receives the sum of squares of the new masters, as
                          * zinf_optim_sum_squares computes it */
};
/* -EINVAL: a pointer is missing, ranges overlap, step is 0 or a hyperparameter is out of range.
 * -ERANGE: the gradient has an Inf or NaN (only if nonfinite is set). After an error nothing has
 * been changed. n may be 0. Any alignment is allowed; 64 bytes is fastest. */
int zinf_optim_step(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *array,
                    int n_threads);

/* The steps of several arrays, hypers[i] for arrays[i], in one pass: threads take pieces of any
 * array as they become free. The bits are those of zinf_optim_step for each. Arrays must not
 * overlap each other, which is not checked. -EINVAL as there, or if nonfinite or sum_squares is
 * set; then nothing has been changed in any of them. */
int zinf_optim_step_arrays(const struct zinf_optim_hyper *hypers,
                           const struct zinf_optim_array *arrays, uint32_t n_arrays, int n_threads);

/* The factors that an Adam or AdamW step computes from its hyperparameters, for a step that is
 * computed elsewhere (on a device). */
struct zinf_optim_factors {
    float beta1, one_minus_beta1, beta2, one_minus_beta2, root_correction, eps;
    float weight_decay, lr_decay, step_size; /* lr_decay: lr * weight_decay */
    bool decay;                              /* weight_decay > 0 */
};
void zinf_optim_factors(struct zinf_optim_factors *out, const struct zinf_optim_hyper *hyper);

/* Convert masters between fp32 and the split form; a NaN becomes 0x7fc00000. */
void zinf_optim_split(uint16_t *param, uint16_t *remainder, const float *master, uint64_t n,
                      int n_threads);
void zinf_optim_join(float *master, const uint16_t *param, const uint16_t *remainder, uint64_t n,
                     int n_threads);

/* Convert 8-bit moments to fp32 for storage, and back. which is 1 or 2, for codes of int8_t or
 * uint8_t. A moment becomes the value of its code, but the largest of a block becomes the block's
 * scale (0.7 % and 0.35 % more than a step reads), so that packing gives back the same codes and
 * scales. */
void zinf_optim_unpack_8bit(float *moment, int which, const void *codes, const float *scales,
                            uint64_t n, int n_threads);
void zinf_optim_pack_8bit(void *codes, float *scales, int which, const float *moment, uint64_t n,
                          int n_threads);

/* Sum of x[i]^2 in double: blocks of 4096 elements are summed, and their sums are added in order,
 * so that the bits do not depend on the thread count or instruction set. If x has an Inf or NaN the
 * result is not finite; otherwise it is finite. The caller may add the results of parts that are
 * divided at multiples of 4096 elements. */
double zinf_optim_sum_squares(const void *x, enum zinf_dtype dtype, uint64_t n, int n_threads);
/* Index of the first element that is Inf or NaN, or UINT64_MAX. */
uint64_t zinf_optim_find_nonfinite(const void *x, enum zinf_dtype dtype, uint64_t n, int n_threads);
/* The same for split masters. */
double zinf_optim_sum_squares_split(const uint16_t *param, const uint16_t *remainder, uint64_t n,
                                    int n_threads);
/* dst[i] += src[i], fp32 arithmetic; dst fp32, src in src_dtype. */
void zinf_optim_accumulate(float *dst, const void *src, enum zinf_dtype src_dtype, uint64_t n,
                           int n_threads);

/* ---- Adafactor ---- */

/* Shazeer & Stern, arXiv 1804.04235, with the eps of PyTorch. Each comment begins with PyTorch's
 * default. */
struct zinf_adafactor_hyper {
    float lr;             /* 1e-2: the step, or with relative_step its upper bound */
    float beta2_decay;    /* -0.8: a gradient counts step^beta2_decay in the second moments */
    float eps1, eps2;     /* 2^-23 and 1e-3: least root of a second moment (> 0), least RMS(p) */
    float clip_threshold; /* 1: d, the largest RMS of the update before its step */
    float weight_decay;   /* 0; decoupled */
    bool relative_step;   /* true: rho = min(lr, 1 / sqrt(step)); else lr */
    bool scale_parameter; /* true: the step is rho max(eps2, RMS(p)); else rho */
    uint64_t step;        /* 1 at the first update */
};
/*
 * One whole tensor: its second moments are factored into means over rows and over columns, and its
 * update is clipped by its own RMS. With w = step^beta2_decay, computed in double and rounded to
 * fp32 when stored; sums are computed as by zinf_optim_sum_squares, those of a column row by row:
 *   g = grad * grad_scale
 *   r = (1 - w) r + w mean of g^2 over the row;    c = (1 - w) c + w mean of g^2 over the column
 *   u = g * min(1/sqrt(r / max(mean r, eps1)) * 1/sqrt(c), 1/eps1)
 *   p = fma(-lr * weight_decay, p, p);    p = fma(-step / max(1, RMS(u) / clip_threshold), u, p)
 * A vector (rows = 1) has only c, which is its whole second moment. grad is read three times, p
 * twice.
 */
struct zinf_adafactor_tensor {
    uint64_t rows, cols; /* a matrix, row by row; a vector has one row */
    float *master;       /* [rows][cols] fp32, updated; NULL with remainder */
    uint16_t *remainder; /* [rows][cols]: split master, as above */
    float *row_moment;   /* [rows], updated; NULL for a vector */
    float *col_moment;   /* [cols], updated */
    const void *grad;    /* [rows][cols] in grad_dtype */
    enum zinf_dtype grad_dtype;
    float grad_scale;
    void *param; /* [rows][cols] in param_dtype, written; NULL: not wanted */
    enum zinf_dtype param_dtype;
    void *workspace;     /* zinf_adafactor_workspace_bytes(), 64-byte aligned; overwritten */
    bool zero_grad;      /* grad is set to zero as soon as it is used */
    uint64_t *nonfinite; /* if set: the index of the first Inf or NaN in grad, or UINT64_MAX */
};
/* -EINVAL as zinf_optim_step; -ERANGE: the gradient is not finite. After an error nothing has been
 * changed. */
int zinf_adafactor_step(const struct zinf_adafactor_hyper *hyper,
                        const struct zinf_adafactor_tensor *tensor, int n_threads);
uint64_t zinf_adafactor_workspace_bytes(uint64_t rows, uint64_t cols);
/* Bytes of the second moments and of the master or remainder. */
uint64_t zinf_adafactor_state_bytes(uint64_t rows, uint64_t cols, bool split_master);

/* ---- threads and NUMA ---- */

/* A good n_threads for a process that shares its host with others: the CPUs of the affinity mask,
 * divided by local_ranks if the mask has all CPUs of the host. local_ranks 0: taken from the
 * launcher's environment (LOCAL_WORLD_SIZE, LOCAL_SIZE, OMPI_COMM_WORLD_LOCAL_SIZE,
 * MPI_LOCALNRANKS). OMP_NUM_THREADS is ignored; if it is lower, that is logged once. */
int zinf_optim_thread_count(int local_ranks);
/* Places the pages of n elements on the NUMA nodes of the threads that will update them: before
 * they are first touched, or by moving them. Does nothing if there is one node. Returns the
 * system's -errno if refused; that affects only speed. */
int zinf_optim_place(void *memory, uint64_t n, size_t element_bytes, int n_threads);

#ifdef __cplusplus
}
#endif
#endif

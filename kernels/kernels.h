/*
 * kernels: tensor operations behind one table of functions. There are two implementations: host
 * (OpenBLAS and SIMD; fp32 arithmetic on fp32, bf16 or fp16 storage), which is the specification,
 * and cuda, a module that is found at run time. The folder knows nothing of layers, drives or
 * optimizers.
 *
 * A *device* has one block of memory of fixed size, its arena. Callers place everything in it and
 * pass pointers. A *queue* runs operations in order. On the host an operation has ended when the
 * call returns; on a GPU it has been enqueued. *Events* order operations of different queues.
 * Matrices are row-major; ld is the distance of rows in elements.
 *
 * Threads: a queue belongs to one thread at a time; different queues may be used at the same time.
 *
 * Determinism: the same arguments, thread count and instruction set give the same bits, whatever
 * other queues do and whatever the addresses are. Every element of a product is summed in an order
 * that depends on k alone, so rows may be divided into any micro-batches. CPUs with instructions
 * for products of bf16 matrices (avx512_bf16, amx_bf16) sum in another order than others, and take
 * denormal numbers (below 1.2e-38) as zero.
 *
 * Errors: -errno, with a sentence in zinf_error(); -EINVAL: shapes do not fit each other.
 */
#ifndef ZINF_KERNELS_H
#define ZINF_KERNELS_H

#include "base/base.h"
#include "kernels/attention.h"
#include "kernels/float8.h"
#include "kernels/loss.h"
#include "kernels/magnitude.h"
#include "kernels/products.h"
#include "kernels/packed.h"
#include "kernels/quantized.h"
#include "kernels/recurrent.h"
#include "kernels/route.h"

#ifdef __cplusplus
extern "C" {
#endif

struct zinf_device;
struct zinf_queue;
struct zinf_event;

/* C[m][n] = alpha op(A)[m][k] op(B)[k][n] + beta C (+ bias[n] to each row). op transposes if
 * trans_a or trans_b is set. */
struct zinf_matmul {
    int64_t m, n, k;
    const void *a, *b;
    void *c;
    enum zinf_dtype a_dtype, b_dtype, c_dtype;
    bool trans_a, trans_b;
    int64_t lda, ldb, ldc;
    float alpha;      /* finite; 0 means 1 */
    float beta;       /* 0 (C is not read) or 1 */
    const void *bias; /* [n] in b_dtype, or NULL; only with beta 0 */
    /* For small m: B is read once where it is, without packing, which is faster and rounds
     * differently. Needs trans_b and beta 0. A device may ignore it. */
    bool few_rows;
    /* The 8-bit type that A is rounded to, with one scale for the whole matrix; B is rounded to
     * E4M3. Both are bf16, A is not transposed, and n and k are multiples of ZINF_FLOAT8_EXTENT. */
    enum zinf_float8 float8;
    /* With beta 1 and fp32 C, on a device whose products_add allows it: the product is computed as
     * with beta 0 and then added to C. */
    bool adds_after;
    /* C is its own transpose: m x m in fp32, as A and B, such as X X^T or the square of a symmetric
     * matrix. A device may compute one half and copy it. Needs beta 0 and no bias. */
    bool symmetric;
};
static inline float zinf_matmul_alpha(const struct zinf_matmul *args)
{
    return args->alpha != 0.0f ? args->alpha : 1.0f;
}
/* The products of a linear layer: Y = X W^T, dX = dY W, dW += dY^T X. */
enum { ZINF_PRODUCT_FORWARD, ZINF_PRODUCT_DX, ZINF_PRODUCT_DW, ZINF_PRODUCTS };

enum zinf_norm_kind {
    ZINF_NORM_LAYER, /* y = (x - mean) * rstd * w + b, biased variance; Ba et al., 1607.06450 */
    ZINF_NORM_RMS,   /* y = x * rstd * w; Zhang & Sennrich, 1910.07467 */
};
/* The formula is fp32 to its end, and y is rounded once; Hugging Face's LLaMA rounds x * rstd to
 * the type of the activations before it multiplies by w. A row may have several heads, which are
 * normalised one by one with the same w, such as the queries or keys in a row of qkv (Qwen3).
 * Columns behind the heads are neither read nor written. The weights are w_add + w; w_add is 1
 * where stored weights are around 0. Without w all weights are w_add. */
struct zinf_norm {
    enum zinf_norm_kind kind;
    enum zinf_dtype dtype; /* of x, y, w, b, dy, dx */
    int64_t rows, cols;
    int64_t heads; /* each of cols elements, at the beginning of a row; 0 means 1 */
    int64_t ld;    /* elements from row to row; 0 means heads * cols */
    float eps;
    float w_add;           /* without w, 0 means 1 */
    const void *x, *w, *b; /* [rows][ld], [cols] or NULL, [cols] or NULL */
    void *y;               /* [rows][ld], may be x; not used by backward */
    float *mean, *rstd; /* [rows][heads]; written by forward, read by backward; RMS has no mean */
    /* backward only */
    const void *dy; /* [rows][ld] */
    void *dx;       /* [rows][ld], may be dy; dx = beta_dx * dx + gradient */
    float beta_dx;  /* 0 or 1 */
    /* [cols] fp32, sums over rows and heads, overwritten; NULL: not wanted. db only with dw. */
    float *dw, *db;
};

enum zinf_activation {
    ZINF_ACTIVATION_GELU_TANH, /* gelu_new: 0.5x(1 + tanh(sqrt(2/pi)(x + 0.044715x^3))) */
    ZINF_ACTIVATION_GELU_ERF,  /* 0.5x(1 + erf(x/sqrt 2)) */
    ZINF_ACTIVATION_SILU,
    ZINF_ACTIVATION_RELU,
    ZINF_ACTIVATION_TANH,
    ZINF_ACTIVATION_RELU_SQUARED, /* max(x, 0)^2 (So et al., arXiv 2109.08668) */
    /* c sigmoid(1.702 c) with c = min(x, 7) (OpenAI, arXiv 2508.10925). */
    ZINF_ACTIVATION_CLAMPED_SWISH,
    ZINF_ACTIVATION_SIGMOID,  /* 1 / (1 + exp(-x)) */
    ZINF_ACTIVATION_IDENTITY, /* x; the gated unit is then a product */
    ZINF_ACTIVATIONS,
};
#define ZINF_CLAMPED_SWISH_LIMIT 7.0f
#define ZINF_CLAMPED_SWISH_ALPHA 1.702f

/* Backward of an activation behind a linear layer, with the gradient of the layer's bias: dx = dy
 * f'(x), sums = column_sum(dx as stored). It gives the bits of the two operations one after the
 * other. */
struct zinf_activation_sums {
    enum zinf_activation kind; /* f */
    enum zinf_dtype dtype;     /* of x, dy, dx, y_out */
    int64_t rows, cols;
    const void *x, *dy; /* [rows][cols] */
    void *dx;           /* [rows][cols]; may be dy */
    void *y_out;        /* [rows][cols] or NULL: receives f(x) again */
    float *sums;        /* [cols], overwritten */
};

/* y = f(gate) up, the gated units of feed-forward parts (Shazeer, arXiv 2002.05202; SwiGLU with
 * SILU). Backward: d_gate = dy up f'(gate), d_up = dy f(gate). With CLAMPED_SWISH, up is clamped to
 * [-7, 7], the factor is 1 + up, and a clamped up gets no gradient. */
struct zinf_gated {
    enum zinf_activation kind; /* f */
    enum zinf_dtype dtype;     /* of x, y, dy, dx, y_out */
    int64_t rows, cols;
    const void *x; /* [rows][2 cols]: gate, then up */
    void *y;       /* [rows][cols], must not overlap x; not used by backward */
    /* backward only */
    const void *dy; /* [rows][cols] */
    void *dx;       /* [rows][2 cols]: d_gate, d_up; overwritten; may be x */
    void *y_out;    /* [rows][cols] or NULL: receives y again; may be dy */
    /* Not 0: x and dx have gates alone, [rows][gate_ld], and up is apart; y may then be up. */
    int64_t gate_ld;
    const void *up; /* [rows][cols] */
    void *d_up;     /* [rows][cols], overwritten; may be up or dy */
};

/* xIELU (Huang and Schlag, arXiv 2411.13010), an activation with two trained numbers. With p =
 * softplus(alphas[0]) and m = beta + softplus(alphas[1]), y = p x^2 + beta x if x > 0, else m
 * (expm1(min(x, eps)) - x) + beta x. Backward: dx = dy y', and for each row the gradients of
 * alphas[0] and alphas[1]. */
struct zinf_xielu {
    enum zinf_dtype dtype; /* of all arrays but sums */
    int64_t rows, cols;
    const void *alphas, *constants; /* alphas [2]; constants [2]: beta, eps */
    const void *x;                  /* [rows][cols] */
    void *y; /* [rows][cols]; may be x; in backward NULL, or receives y again */
    /* backward only */
    const void *dy;
    void *dx;    /* may be dy */
    float *sums; /* [rows][2], overwritten */
};

/* Rotary position embedding in place (Su et al., arXiv 2104.09864). The first rotary_dims elements
 * of a head are pairs; pair i of row r turns by positions[r] * inv_freq[i]: (a, b) becomes scale *
 * (a cos - b sin, b cos + a sin), in fp32 including the angle. Other elements stay. Queries and
 * keys that are neighbours in a row of qkv are turned by one call. Backward turns by the negative
 * angle. With growth, scale is multiplied by zinf_rope_growth of the row's position. */
struct zinf_rope {
    enum zinf_dtype dtype;
    int64_t rows, n_heads, head_dim;
    int64_t ld;          /* elements from row to row, at least n_heads * head_dim */
    int64_t rotary_dims; /* even, at most head_dim and 2 ZINF_ROPE_MAX_PAIRS */
    bool interleaved;    /* pairs are (2i, 2i + 1), not (i, i + rotary_dims / 2) */
    bool backward;
    const int32_t *positions; /* [rows] on the device */
    /* [rotary_dims / 2] in the caller's memory on every device; read before the call returns */
    const float *inv_freq;
    float scale;  /* 1, or the factor of a scaled embedding (YaRN) */
    float growth; /* 0: none; needs rotary_dims = head_dim */
    int64_t growth_every, growth_ahead;
    void *x; /* [rows][ld] */
};
/* Factor of queries that grows with the logarithm of the position (Nakanishi, arXiv 2501.19399), in
 * steps of `every` positions. */
#define zinf_rope_growth(growth, position, ahead, every)                                           \
    (1.0f + (growth)*logf((float)(1 + ((position) + (ahead)) / (every))))
#define ZINF_ROPE_MAX_PAIRS 256 /* as many as fit into a GPU kernel's arguments */

/* Puts each row beside its neighbours, so that a convolution along the sequence is one product:
 * y[i][c width + s] = x[i + s - width / 2][c], or 0 if that is no row of the same sample and
 * document. Backward: dx[j] = beta_dx dx[j] + the sum of all dy that x[j] was copied to. */
struct zinf_unfold {
    enum zinf_dtype dtype;
    int64_t batch, seq, cols;
    int64_t width;           /* odd, at most ZINF_UNFOLD_MAX_WIDTH */
    const int32_t *segments; /* as in zinf_attention: [batch][seq], or NULL */
    const void *x;           /* [batch seq][cols] */
    void *y;                 /* [batch seq][cols width], must not overlap x */
    /* backward only */
    const void *dy; /* as y */
    void *dx;       /* as x */
    float beta_dx;  /* 0 or 1 */
};
#define ZINF_UNFOLD_MAX_WIDTH 63

/* x[i] = (accumulate ? x[i] : 0) + scale table[ids[i] - first], rounded once, for rows whose id is
 * in [first, first + count); other rows stay. Backward: d_table[ids[i] - first] += scale dx[i]. */
struct zinf_embedding {
    enum zinf_dtype dtype;
    int64_t rows, cols;
    const int32_t *ids; /* [rows] */
    int64_t first, count;
    bool accumulate;
    float scale;       /* 0 means 1 */
    const void *table; /* [count][cols] */
    void *x;           /* [rows][cols] */
    /* backward only; rows are added in order of i */
    const void *dx; /* [rows][cols] */
    float *d_table; /* [count][cols] fp32, added to */
};

/* y = x + scale * dropout(r). Backward of the branch: dr = scale * mask * dy / (1 - p). Arrays may
 * be the same. */
struct zinf_residual {
    enum zinf_dtype dtype;
    int64_t n; /* elements */
    const void *x, *r;
    void *y;
    struct zinf_dropout dropout;
    float scale; /* finite; 0 means 1 */
};
static inline float zinf_residual_scale(const struct zinf_residual *args)
{
    return args->scale != 0.0f ? args->scale : 1.0f;
}

/* A step of Adam or AdamW with everything on the device: fp32 arithmetic in the order and with the
 * roundings of cpu_optim/optim.h, so with the CPU's bits. */
struct zinf_adam {
    uint64_t n;
    float *master; /* [n], updated; NULL: the split master of optim.h, in param and remainder */
    uint16_t *remainder; /* [n], updated; only with master NULL and dtype bf16 */
    void *param;         /* [n] in dtype, updated; NULL: the master is the parameter */
    enum zinf_dtype dtype;
    float *moment1, *moment2; /* [n], updated */
    const float *grad;        /* [n] */
    float grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2;
    float root_correction; /* 1 / sqrt(1 - beta2^step) */
    float eps;
    bool decay, decoupled; /* decoupled: AdamW, p -= lr_decay p; else g += weight_decay p */
    float weight_decay, lr_decay;
    float step_size; /* lr / (1 - beta1^step) */
};
#define ZINF_SUM_BLOCK 4096 /* elements of one partial sum of squares */

enum zinf_queue_kind {
    ZINF_QUEUE_COMPUTE,
    ZINF_QUEUE_TO_DEVICE,
    ZINF_QUEUE_TO_HOST,
};

struct zinf_device_ops {
    void (*destroy)(struct zinf_device *device);
    int (*take_memory)(struct zinf_device *device, uint64_t bytes);

    int (*queue_create)(struct zinf_device *device, enum zinf_queue_kind kind,
                        struct zinf_queue **out);
    void (*queue_destroy)(struct zinf_queue *queue);
    /* Memory in the device's arena for the queue's operations. */
    void (*queue_set_workspace)(struct zinf_queue *queue, void *base, uint64_t bytes);
    /* waits; returns the error of an earlier operation */
    int (*queue_synchronize)(struct zinf_queue *queue);
    /* 1: everything that was enqueued has ended; 0: not yet. NULL: operations end at once. */
    int (*queue_poll)(struct zinf_queue *queue);
    /* Waits for everything on the queue's GPU, including other queues and the streams of libraries.
     * NULL: operations end at once. */
    int (*queue_finish)(struct zinf_queue *queue);
    /* The queue's CUDA stream, for a library that enqueues itself. The call makes the queue's GPU
     * the calling thread's. NULL: there is none. */
    void *(*queue_stream)(struct zinf_queue *queue);
    /* Shows each kernel of the device's own, with its name, and whether one of this process's
     * devices has launched it. NULL: it has none. */
    void (*each_kernel)(const struct zinf_device *device,
                        void (*see)(void *arg, const char *name, bool launched), void *arg);
    int (*event_create)(struct zinf_device *device, struct zinf_event **out);
    void (*event_destroy)(struct zinf_event *event);
    int (*event_record)(struct zinf_queue *queue, struct zinf_event *event);
    int (*queue_wait)(struct zinf_queue *queue, struct zinf_event *event);
    int (*event_synchronize)(struct zinf_event *event); /* blocks the calling thread */

    int (*copy_to_device)(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes);
    int (*copy_to_host)(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes);
    int (*copy)(struct zinf_queue *q, void *dst, const void *src, uint64_t bytes);
    /* Copies from another device of the kind to the queue's, without host memory; call peer_open
     * once for the pair first. -ENOTSUP: this machine cannot. */
    int (*peer_open)(struct zinf_device *device, struct zinf_device *peer);
    int (*copy_from_peer)(struct zinf_queue *q, void *dst, struct zinf_device *peer,
                          const void *src, uint64_t bytes);
    int (*fill_zero)(struct zinf_queue *q, void *dst, uint64_t bytes);
    int (*convert)(struct zinf_queue *q, void *dst, enum zinf_dtype dst_dtype, const void *src,
                   enum zinf_dtype src_dtype, uint64_t n);
    int (*add)(struct zinf_queue *q, float *dst, const float *src, uint64_t n); /* dst += src */

    /* Bytes of workspace that one call needs. */
    uint64_t (*matmul_workspace)(struct zinf_device *device, const struct zinf_matmul *args);
    uint64_t (*attention_workspace)(struct zinf_device *device, const struct zinf_attention *args);
    uint64_t (*attention_cached_workspace)(struct zinf_device *device,
                                           const struct zinf_attention_cached *args);
    uint64_t (*norm_workspace)(struct zinf_device *device, const struct zinf_norm *args);
    uint64_t (*scan_workspace)(struct zinf_device *device, const struct zinf_scan *args);
    uint64_t (*column_sum_workspace)(struct zinf_device *device, int64_t rows, int64_t cols);

    int (*matmul)(struct zinf_queue *q, const struct zinf_matmul *args);
    int (*norm_forward)(struct zinf_queue *q, const struct zinf_norm *args);
    int (*norm_backward)(struct zinf_queue *q, const struct zinf_norm *args);
    int (*attention_forward)(struct zinf_queue *q, const struct zinf_attention *args);
    int (*attention_backward)(struct zinf_queue *q, const struct zinf_attention *args);
    int (*attention_cached)(struct zinf_queue *q, const struct zinf_attention_cached *args);
    int (*copy_heads)(struct zinf_queue *q, const struct zinf_heads *args);
    int (*sinks_forward)(struct zinf_queue *q, const struct zinf_sinks *args);
    int (*sinks_backward)(struct zinf_queue *q, const struct zinf_sinks *args);
    int (*distance_bias)(struct zinf_queue *q, const struct zinf_distance_bias *args);
    int (*distance_bias_backward)(struct zinf_queue *q, const struct zinf_distance_bias *args);
    int (*activation_forward)(struct zinf_queue *q, enum zinf_activation kind,
                              enum zinf_dtype dtype, void *y, const void *x, uint64_t n);
    /* dx = dy * f'(x); dx may be dy. y_out, unless NULL, receives f(x) again. */
    int (*activation_backward)(struct zinf_queue *q, enum zinf_activation kind,
                               enum zinf_dtype dtype, void *dx, const void *dy, const void *x,
                               void *y_out, uint64_t n);
    /* Needs as much workspace as column_sum. */
    int (*activation_sums)(struct zinf_queue *q, const struct zinf_activation_sums *args);
    int (*gated_forward)(struct zinf_queue *q, const struct zinf_gated *args);
    int (*gated_backward)(struct zinf_queue *q, const struct zinf_gated *args);
    int (*xielu_forward)(struct zinf_queue *q, const struct zinf_xielu *args);
    int (*xielu_backward)(struct zinf_queue *q, const struct zinf_xielu *args);
    int (*rope)(struct zinf_queue *q, const struct zinf_rope *args);
    int (*dequantize)(struct zinf_queue *q, const struct zinf_dequantize *args);
    int (*unpack)(struct zinf_queue *q, const struct zinf_packed_array *args);
    int (*widen)(struct zinf_queue *q, const struct zinf_widen *args);
    int (*residual_add)(struct zinf_queue *q, const struct zinf_residual *args);
    /* residual_add, then norm_forward of its result: norm->x is sum->y, in plain rows. The bits of
     * both after each other. norm->y is apart from all that sum names. */
    int (*residual_norm)(struct zinf_queue *q, const struct zinf_residual *sum,
                         const struct zinf_norm *norm);
    /* y = scale * mask * r / (1 - p); x is not used. */
    int (*dropout)(struct zinf_queue *q, const struct zinf_residual *args);
    /* sum[j] = sum over rows of x[i][j] in fp32, overwritten: the gradient of a bias. */
    int (*column_sum)(struct zinf_queue *q, float *sum, const void *x, enum zinf_dtype dtype,
                      int64_t rows, int64_t cols);
    int (*embedding_forward)(struct zinf_queue *q, const struct zinf_embedding *args);
    int (*embedding_backward)(struct zinf_queue *q, const struct zinf_embedding *args);
    int (*unfold)(struct zinf_queue *q, const struct zinf_unfold *args);
    int (*unfold_backward)(struct zinf_queue *q, const struct zinf_unfold *args);
    int (*convolution_forward)(struct zinf_queue *q, const struct zinf_convolution *args);
    int (*convolution_backward)(struct zinf_queue *q, const struct zinf_convolution *args);
    int (*scan_forward)(struct zinf_queue *q, const struct zinf_scan *args);
    int (*scan_backward)(struct zinf_queue *q, const struct zinf_scan *args);
    int (*route_forward)(struct zinf_queue *q, const struct zinf_route *args);
    int (*route_backward)(struct zinf_queue *q, const struct zinf_route *args);
    int (*route_shares)(struct zinf_queue *q, const struct zinf_shares *args);
    int (*route_balance)(struct zinf_queue *q, const struct zinf_balance *args);
    int (*gather_rows)(struct zinf_queue *q, const struct zinf_rows *args);
    int (*scatter_rows)(struct zinf_queue *q, const struct zinf_rows *args);
    int (*weigh_rows)(struct zinf_queue *q, const struct zinf_weigh *args);
    /* NULL: not on this device */
    int (*magnitude)(struct zinf_queue *q, const struct zinf_magnitude *args);
    int (*scale_columns)(struct zinf_queue *q, const struct zinf_column_scale *args);
    int (*dot_columns)(struct zinf_queue *q, const struct zinf_column_dot *args);
    /* x = cap tanh(x / cap) in place, cap > 0; for logits that leave the device */
    int (*softcap)(struct zinf_queue *q, float *x, float cap, uint64_t n);
    /* start: max = -inf, sum = 0; update: adds a tile; finish: writes loss */
    int (*cross_entropy_start)(struct zinf_queue *q, const struct zinf_cross_entropy *args);
    int (*cross_entropy_update)(struct zinf_queue *q, const struct zinf_cross_entropy *args);
    int (*cross_entropy_finish)(struct zinf_queue *q, const struct zinf_cross_entropy *args);
    int (*cross_entropy_backward)(struct zinf_queue *q, const struct zinf_cross_entropy *args);

    int (*squared_error)(struct zinf_queue *q, const struct zinf_squared_error *args);
    int (*preference)(struct zinf_queue *q, const struct zinf_preference *args);
    int (*noise)(struct zinf_queue *q, const struct zinf_noise *args);

    /* NULL where the CPU can read the device's memory; it then computes them itself (cpu_optim).
     * parts[b]: sum of squares of x[ZINF_SUM_BLOCK b ...] with the CPU's bits; added in order of b
     * they are zinf_optim_sum_squares. */
    int (*adam)(struct zinf_queue *q, const struct zinf_adam *args);
    int (*sum_squares)(struct zinf_queue *q, double *parts, const float *x, uint64_t n);

    /* Page-locks host memory, so that copies of all devices to and from it run asynchronously;
     * other copies block. If only a beginning can be locked, that stays locked and the message says
     * how much it is. Lasts until it is unregistered or the device is destroyed. Does nothing on
     * the host device. */
    int (*host_register)(struct zinf_device *device, void *base, uint64_t bytes);
    void (*host_unregister)(struct zinf_device *device, void *base);
    /* Number of copies so far that blocked because their host memory is not page-locked. */
    uint64_t (*pageable_copies)(const struct zinf_device *device);

    /* For devices with several algorithms for a product; these calls come in this order. NULL:
     * there is one. Until products_note is called with NULL, matmul_workspace adds each product
     * to list once. */
    void (*products_note)(struct zinf_device *device, struct zinf_products *list);
    /* Times the algorithms of each product without a choice and chooses the fastest. The queue has
     * its workspace and nothing else runs; the content of device memory is lost. A product with one
     * algorithm, or without room, keeps no choice. */
    int (*products_time)(struct zinf_queue *queue, struct zinf_products *list);
    /* From now on products are made as list says, others by the library's first proposal. Call it
     * before the first product; the device copies the list. */
    int (*products_use)(struct zinf_device *device, const struct zinf_products *list);
    /* Sets *out to whether those products of the list that can be gradients of weights may be used
     * with adds_after: each is made both ways and compared bit by bit. False if one has no choice
     * or no room. After products_use; otherwise as products_time. */
    int (*products_add)(struct zinf_queue *queue, const struct zinf_products *list, bool *out);
};

enum zinf_device_kind {
    ZINF_DEVICE_AUTO, /* cuda if its module and a driver are there, else host */
    ZINF_DEVICE_HOST,
    ZINF_DEVICE_CUDA,
};
struct zinf_device {
    const struct zinf_device_ops *ops;
    enum zinf_device_kind kind;
    const char *name; /* such as "host (avx512, 2 threads)" */
    void *memory;     /* the arena, aligned to 2 MiB; NULL until it is taken */
    uint64_t memory_bytes;
    uint64_t free_bytes;   /* free memory when the device was created */
    bool host_addressable; /* the CPU can read and write the arena */
    bool needs_pinned;     /* asynchronous copies need registered host memory */
    int node;              /* NUMA node nearest to the device; -1: not known */
    /* In a product of fp32 with a 16-bit type, fp32 is rounded to that type. */
    bool rounds_operands;
    bool has_tf32;   /* has units for zinf_device_options.tf32 */
    bool has_float8; /* has units for zinf_matmul.float8; the host gives the same numbers without */
    /* Rows of logits that are made at a time: enough to be worth a pass over the gradient to which
     * their products are added, whose rounding depends on it. It depends on the kind of device
     * alone. */
    int64_t logit_rows;
    int n_threads;
    /* What choices of algorithms are valid for: GPU and library with their versions. NULL: there
     * are no choices. */
    const char *products_by;
};
struct zinf_device_options {
    enum zinf_device_kind kind;
    int index;     /* GPU number */
    int n_threads; /* host: OpenMP threads; 0: zinf_cpu_count() */
    bool tf32;     /* products of fp32 may round their operands to 10 bits of mantissa */
};
/* Creates a device. -ENODEV: CUDA was asked for and is not there; the message says what was looked
 * for. */
int zinf_device_create(struct zinf_device **out, const struct zinf_device_options *options);
/* Creates a description of a GPU that need not be here, for planning. Only destroy and the
 * workspace queries may be called; take_memory and queue_create return -ENODEV. */
struct zinf_device_description {
    const char *name; /* borrowed by the device; NULL: "a GPU that is not here" */
    uint64_t memory_bytes;
    int capability; /* 90 means 9.0; 0: a current one */
    int n_threads;  /* for CPU work; 0: zinf_cpu_count() */
};
int zinf_device_describe(struct zinf_device **out, const struct zinf_device_description *gpu);
void zinf_device_destroy(struct zinf_device *device);
/* Takes the arena, of exactly `bytes`. Only once. */
int zinf_device_take_memory(struct zinf_device *device, uint64_t bytes);
/* Host memory that a library allocates itself for this product, outside the arenas, and keeps. */
uint64_t zinf_matmul_outside_bytes(const struct zinf_device *device,
                                   const struct zinf_matmul *args);
/* Why no CUDA device can be used, as a sentence, or NULL. */
const char *zinf_device_cuda_why_not(void);
/* What OpenBLAS, which makes the host's products, says of itself, or why it is missing. */
const char *zinf_host_blas(void);
/* Number of GPUs that this process sees; 0 if CUDA cannot be used. */
int zinf_device_cuda_count(void);

#ifdef __cplusplus
}
#endif
#endif

/*
 * optim_internal: what optim.c and the per-ISA files of cpu_optim share. Each per-ISA file fills
 * one optim_ops table by compiling the same kernel text (optim_kernels.h) with its own vector
 * type, so the order of operations is written once. The scalar table, with vectors of one lane, is
 * the specification. All files of this folder are compiled with -ffp-contract=off: multiply and
 * add are fused only where the text says fma.
 */
#ifndef ZINF_OPTIM_INTERNAL_H
#define ZINF_OPTIM_INTERNAL_H

#include "build-config.h"

#include "cpu_optim/optim.h"

/* The sum of squares of a block of OPTIM_BLOCK_ELEMS elements: element i is added to accumulator i
 * % OPTIM_SUM_LANES, and the accumulators are added as a binary tree. */
#define OPTIM_BLOCK_ELEMS 4096u
#define OPTIM_SUM_LANES 16u
/* Number of block sums that are held at a time: 8 KiB of stack for 16 MiB of fp32. */
#define OPTIM_SUM_BLOCKS 1024u

/* Kinds for the benchmark alone: the loads and stores of a step with one or two moments, and next
 * to no arithmetic. */
#define OPTIM_STREAM1 ((enum zinf_optim_kind)ZINF_OPTIM_KINDS)
#define OPTIM_STREAM2 ((enum zinf_optim_kind)(ZINF_OPTIM_KINDS + 1))

/* Factors of a step, computed once from the hyperparameters in double and rounded to fp32. */
struct optim_scalars {
    enum zinf_optim_kind kind;
    uint64_t step;
    bool decay; /* weight_decay > 0; else p is not multiplied */
    float grad_scale;
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float root_correction; /* 1 / sqrt(1 - beta2^step) */
    float eps;
    float weight_decay;
    float lr, lr_decay; /* lr * weight_decay */
    float step_size;    /* lr / (1 - beta1^step) */
};

/* Convert one element between fp32 and a split master; optim.h has the format. */
static inline float optim_join_one(uint16_t param, uint16_t remainder)
{
    uint32_t bits = ((uint32_t)param << 16) + (uint32_t)(int16_t)remainder;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void optim_split_one(uint16_t *param, uint16_t *remainder, float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    *param = (uint16_t)((bits + 0x8000u) >> 16);
    *remainder = (uint16_t)bits;
}

/* What the last two passes of Adafactor over a tensor need, once its second moments are known. */
struct adafactor_pass {
    const struct zinf_adafactor_tensor *tensor;
    const float *row_roots; /* [rows] 1 / sqrt(r / max(mean r, eps1)) of each row */
    /* [cols rounded up to OPTIM_SUM_LANES] 1 / sqrt(c) of each column, then zeros */
    const float *col_roots;
    float limit; /* 1 / eps1 */
    bool decay;
    float lr_decay, step_size;
};

struct optim_ops {
    /* A step over elements [begin, end) of the array. block_sums, if not NULL, receives the sum of
     * squares of the new masters of each block. */
    void (*step)(const struct optim_scalars *scalars, const struct zinf_optim_array *array,
                 uint64_t begin, uint64_t end, double *block_sums);
    /* Sum of squares of one block: elements [begin, end), at most OPTIM_BLOCK_ELEMS. */
    double (*sum_block)(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end);
    double (*sum_block_split)(const void *param, const uint16_t *remainder, uint64_t begin,
                              uint64_t end);
    /* Index of the first Inf or NaN in [begin, end), or UINT64_MAX. */
    uint64_t (*find_nonfinite)(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end);
    void (*accumulate)(float *dst, const void *src, enum zinf_dtype src_dtype, uint64_t begin,
                       uint64_t end);
    /* Sums of squares of the scaled gradient for rows [begin, end): row_sums of each row; to
     * col_sums [cols rounded up to OPTIM_SUM_LANES] the squares of each column are added. */
    void (*adafactor_sums)(const struct zinf_adafactor_tensor *tensor, uint64_t begin_row,
                           uint64_t end_row, double *row_sums, double *col_sums);
    /* The sum of squares of one row of the update; and the update of that row. */
    double (*adafactor_norm)(const struct adafactor_pass *pass, uint64_t row);
    void (*adafactor_apply)(const struct adafactor_pass *pass, uint64_t row);
};

extern const struct optim_ops optim_ops_scalar;
extern const struct optim_ops optim_ops_avx2;   /* where ZINF_HAVE_AVX2 */
extern const struct optim_ops optim_ops_avx512; /* where ZINF_HAVE_AVX512 */

/* The table of an instruction set, or NULL where it was not built. */
static inline const struct optim_ops *optim_ops_of(enum zinf_isa isa)
{
#ifdef ZINF_HAVE_AVX512
    if (isa >= ZINF_ISA_AVX512)
        return &optim_ops_avx512;
#endif
#ifdef ZINF_HAVE_AVX2
    if (isa == ZINF_ISA_AVX2)
        return &optim_ops_avx2;
#endif
    return isa == ZINF_ISA_SCALAR ? &optim_ops_scalar : NULL;
}

/* ---- checks: 0, or a negative errno value with a sentence ---- */

/* The arrays that an optimizer step and Adafactor both have. */
struct optim_tensors {
    uint64_t n;
    const void *master, *remainder, *grad, *param;
    enum zinf_dtype grad_dtype, param_dtype;
    float grad_scale;
};
struct optim_range {
    const char *name;
    const void *start; /* NULL: absent */
    uint64_t bytes;
};
int optim_check(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *array);
int optim_check_tensors(const struct optim_tensors *tensors);
int optim_check_number(const char *name, float value, float below);
/* -EINVAL if two ranges overlap: the loops read and write whole vectors. */
int optim_check_apart(const struct optim_range *ranges, size_t count);
/* Searches the gradient and sets the index of its first Inf or NaN, or UINT64_MAX. -ERANGE if there
 * is one. */
int optim_check_finite(const struct optim_ops *ops, const void *grad, enum zinf_dtype dtype,
                       uint64_t n, uint64_t *nonfinite, int n_threads);

/* ---- the public calls with a given table; arguments are checked already ---- */

void optim_scalars_init(struct optim_scalars *scalars, const struct zinf_optim_hyper *hyper,
                        float grad_scale);
void optim_step_with(const struct optim_ops *ops, const struct optim_scalars *scalars,
                     const struct zinf_optim_array *array, int n_threads);
int optim_adafactor_with(const struct optim_ops *ops, const struct zinf_adafactor_hyper *hyper,
                         const struct zinf_adafactor_tensor *tensor, int n_threads);
double optim_sum_with(const struct optim_ops *ops, const void *x, enum zinf_dtype dtype, uint64_t n,
                      int n_threads);
double optim_sum_split_with(const struct optim_ops *ops, const uint16_t *param,
                            const uint16_t *remainder, uint64_t n, int n_threads);
uint64_t optim_find_with(const struct optim_ops *ops, const void *x, enum zinf_dtype dtype,
                         uint64_t n, int n_threads);
void optim_accumulate_with(const struct optim_ops *ops, float *dst, const void *src,
                           enum zinf_dtype src_dtype, uint64_t n, int n_threads);

/*
 * Calls body(arg, begin, end) for contiguous slices of [0, n), one for each thread, cut at
 * multiples of OPTIM_BLOCK_ELEMS. Threads use the default floating-point environment (round to
 * nearest, denormals kept), whatever the caller has set. Small n runs in the calling thread.
 */
void optim_parallel(uint64_t n, int n_threads,
                    void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg);
/* The same over `units` that are not cut, such as rows. */
void optim_parallel_units(uint64_t units, int n_threads,
                          void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg);
/* Calls body(arg) once in each of n_threads threads, or fewer if the system has no more. The bodies
 * divide the work among themselves. */
void optim_team(int n_threads, void (*body)(void *arg), void *arg);
struct optim_slice {
    uint64_t begin, end;
};
/* The slice of thread `index` of `team`, cut at multiples of unit. */
struct optim_slice optim_slice_of(uint64_t n, uint64_t unit, uint64_t index, uint64_t team);
/* n_threads, or fewer if n elements are too few for so many. */
int optim_useful_threads(uint64_t n, int n_threads);

/* ---- NUMA: optim_threads.c ---- */

/* The NUMA node of a slice, on nodes with these numbers of CPUs. Slices are dealt out in order. */
int optim_node_of_slice(const int *cpus_of_node, int n_nodes, uint64_t slice, uint64_t n_slices);

#endif

/*
 * cpu_optim, inside: what the door (optim.c) hands to the per-ISA files. Each of them fills one
 * optim_ops table from the same kernel text (optim_kernels.h) over its own vector type, so that the
 * order of operations is written once; the scalar table, with vectors of one lane, is the
 * specification. All files of this folder are compiled with -ffp-contract=off: a multiply-add is
 * fused where the text says fma and nowhere else.
 */
#ifndef ZINF_OPTIM_INTERNAL_H
#define ZINF_OPTIM_INTERNAL_H

#include "cpu_optim/optim.h"

/* Elements of one block of the sum of squares, and its accumulators: element i of a block is added
 * to accumulator i % 16, which are then added as a binary tree. */
#define OPTIM_BLOCK_ELEMS 4096u
#define OPTIM_SUM_LANES 16u

/* Kinds that only the benchmark uses: the loads and stores of a step with one or two moments and
 * next to no arithmetic, which is the roof of a step on this machine. */
#define OPTIM_STREAM1 ((enum zinf_optim_kind)ZINF_OPTIM_KINDS)
#define OPTIM_STREAM2 ((enum zinf_optim_kind)(ZINF_OPTIM_KINDS + 1))

/* What one step needs of its hyperparameters, computed once in double and rounded to fp32. */
struct optim_scalars {
    enum zinf_optim_kind kind;
    uint64_t step;
    bool decay; /* weight_decay > 0; without it p is not touched by the decay at all */
    float grad_scale;
    float beta1, one_minus_beta1;
    float beta2, one_minus_beta2;
    float root_correction; /* sqrt(1 - beta2^step) */
    float eps;
    float weight_decay;
    float lr, lr_decay; /* lr * weight_decay */
    float step_size;    /* lr / (1 - beta1^step) */
};

/* One element between the forms of a master; optim.h has the format. */
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

struct optim_ops {
    /* One step over elements [begin, end) of the array. */
    void (*step)(const struct optim_scalars *scalars, const struct zinf_optim_array *array,
                 uint64_t begin, uint64_t end);
    /* Sum of squares of one block: elements [begin, end), at most OPTIM_BLOCK_ELEMS. */
    double (*sum_block)(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end);
    /* Index of the first non-finite element of [begin, end), or UINT64_MAX. */
    uint64_t (*find_nonfinite)(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end);
    void (*accumulate)(float *dst, const void *src, enum zinf_dtype src_dtype, uint64_t begin,
                       uint64_t end);
};

extern const struct optim_ops optim_ops_scalar;
extern const struct optim_ops optim_ops_avx2;   /* where ZINF_HAVE_AVX2 */
extern const struct optim_ops optim_ops_avx512; /* where ZINF_HAVE_AVX512 */

/* The table of an instruction set, or NULL where it was not built. */
const struct optim_ops *optim_ops_of(enum zinf_isa isa);

/* Checks hyper and array; 0 or -EINVAL with a sentence. */
int optim_check(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *array);
void optim_scalars_init(struct optim_scalars *scalars, const struct zinf_optim_hyper *hyper,
                        float grad_scale);
/* The public calls after their checks, with a given table. */
void optim_step_with(const struct optim_ops *ops, const struct optim_scalars *scalars,
                     const struct zinf_optim_array *array, int n_threads);
double optim_sum_with(const struct optim_ops *ops, const void *x, enum zinf_dtype dtype, uint64_t n,
                      int n_threads);
uint64_t optim_find_with(const struct optim_ops *ops, const void *x, enum zinf_dtype dtype,
                         uint64_t n, int n_threads);
void optim_accumulate_with(const struct optim_ops *ops, float *dst, const void *src,
                           enum zinf_dtype src_dtype, uint64_t n, int n_threads);

/*
 * Calls body(arg, begin, end) for contiguous slices of [0, n), one a thread, cut at multiples of
 * OPTIM_BLOCK_ELEMS, under the default floating-point environment (round to nearest, denormals
 * kept, whatever the caller has set). Small n runs in the calling thread.
 */
void optim_parallel(uint64_t n, int n_threads,
                    void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg);

#endif

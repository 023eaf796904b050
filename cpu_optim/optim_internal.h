/*
 * cpu_optim, inside: what the door (optim.c) hands to the per-ISA files. Each of them fills one
 * optim_ops table from the same kernel text (optim_kernels.h) over its own vector type, so that the
 * order of operations is written once; the scalar table, with vectors of one lane, is the
 * specification. All files of this folder are compiled with -ffp-contract=off: a multiply-add is
 * fused where the text says fma and nowhere else.
 */
#ifndef ZINF_OPTIM_INTERNAL_H
#define ZINF_OPTIM_INTERNAL_H

#include "build-config.h"

#include "cpu_optim/optim.h"

#include <sched.h>

/* Elements of one block of the sum of squares, and its accumulators: element i of a block is added
 * to accumulator i % 16, which are then added as a binary tree. */
#define OPTIM_BLOCK_ELEMS 4096u
#define OPTIM_SUM_LANES 16u
/* Blocks whose sums are held at a time: 8 KiB of stack, 16 MiB of fp32. */
#define OPTIM_SUM_BLOCKS 1024u

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
    float root_correction; /* 1 / sqrt(1 - beta2^step) */
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

/* One tensor's passes of Adafactor, after its second moments are known. */
struct adafactor_pass {
    const struct zinf_adafactor_tensor *tensor;
    const float *row_roots; /* [rows] 1 / sqrt of each row's share */
    const float *col_roots; /* [cols, to a multiple of OPTIM_SUM_LANES] 1 / sqrt, zeros behind */
    float limit;            /* 1 / eps1 */
    bool decay;
    float lr_decay, step_size;
};

struct optim_ops {
    /* One step over elements [begin, end) of the array. block_sums, if set, takes the sum of
     * squares of the new masters of each block of the range. */
    void (*step)(const struct optim_scalars *scalars, const struct zinf_optim_array *array,
                 uint64_t begin, uint64_t end, double *block_sums);
    /* Sum of squares of one block: elements [begin, end), at most OPTIM_BLOCK_ELEMS. */
    double (*sum_block)(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end);
    double (*sum_block_split)(const void *param, const uint16_t *remainder, uint64_t begin,
                              uint64_t end);
    /* Index of the first non-finite element of [begin, end), or UINT64_MAX. */
    uint64_t (*find_nonfinite)(const void *x, enum zinf_dtype dtype, uint64_t begin, uint64_t end);
    void (*accumulate)(float *dst, const void *src, enum zinf_dtype src_dtype, uint64_t begin,
                       uint64_t end);
    /* Squares of the scaled gradient: of each row their sum, and of each column what is added to
     * col_sums [cols, to a multiple of OPTIM_SUM_LANES]. */
    void (*adafactor_sums)(const struct zinf_adafactor_tensor *tensor, uint64_t begin_row,
                           uint64_t end_row, double *row_sums, double *col_sums);
    /* Sum of squares of one row of the update, and its application. */
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

/* What an array and a tensor of Adafactor have in common. */
struct optim_tensors {
    uint64_t n;
    const void *master, *remainder, *grad, *param;
    enum zinf_dtype grad_dtype, param_dtype;
    float grad_scale;
};
struct optim_range {
    const char *name;
    const void *start; /* NULL: not there */
    uint64_t bytes;
};
int optim_check(const struct zinf_optim_hyper *hyper, const struct zinf_optim_array *array);
int optim_check_tensors(const struct optim_tensors *tensors);
int optim_check_number(const char *name, float value, float below);
/* Every pair of ranges must be apart: the loops read and write them vector by vector. */
int optim_check_apart(const struct optim_range *ranges, size_t count);
/* -ERANGE and the index of the first Inf or NaN; else UINT64_MAX. */
int optim_check_finite(const struct optim_ops *ops, const void *grad, enum zinf_dtype dtype,
                       uint64_t n, uint64_t *nonfinite, int n_threads);

/* ---- the public calls after their checks, with a given table ---- */

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
 * Calls body(arg, begin, end) for contiguous slices of [0, n), one a thread, cut at multiples of
 * OPTIM_BLOCK_ELEMS, under the default floating-point environment (round to nearest, denormals
 * kept, whatever the caller has set). Small n runs in the calling thread.
 */
void optim_parallel(uint64_t n, int n_threads,
                    void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg);
/* The same over units that may not be cut, such as rows: slices of [0, units). */
void optim_parallel_units(uint64_t units, int n_threads,
                          void (*body)(void *arg, uint64_t begin, uint64_t end), void *arg);
/* Calls body(arg) once in each of n_threads threads, or fewer where the system has no more; the
 * bodies divide the work among themselves. */
void optim_team(int n_threads, void (*body)(void *arg), void *arg);
struct optim_slice {
    uint64_t begin, end;
};
/* The slice of one of team threads, cut at multiples of unit. */
struct optim_slice optim_slice_of(uint64_t n, uint64_t unit, uint64_t index, uint64_t team);
/* As many threads as n elements are worth. */
int optim_useful_threads(uint64_t n, int n_threads);

/* ---- NUMA: optim_threads.c ---- */

/* The node of a slice, where nodes have these numbers of CPUs: slices are dealt out in order. */
int optim_node_of_slice(const int *cpus_of_node, int n_nodes, uint64_t slice, uint64_t n_slices);
/* Keeps the calling thread on the node of its slice until optim_node_leave; nothing with one. */
struct optim_node_visit {
    bool moved;
    cpu_set_t before;
};
void optim_node_enter(struct optim_node_visit *visit, uint64_t slice, uint64_t n_slices);
void optim_node_leave(const struct optim_node_visit *visit);

#endif

/* optim_bench: a step and its roof, turn by turn over the same arrays. */
#include "cpu_optim/optim_bench.h"
#include "cpu_optim/optim_internal.h"

#include <math.h>
#include <stdlib.h>
#include <sys/mman.h>

#define HUGE_PAGE ((size_t)2 << 20)

/* Five arrays in one block, each on its own huge pages where the system gives them. Started at
 * different lines of their pages: equal offsets would fight for the same sets of the cache. */
static size_t place(size_t *end, uint64_t n, enum zinf_dtype dtype)
{
    size_t at = *end;
    *end = zinf_align_up(at + n * zinf_dtype_bytes(dtype), 4096) + 576;
    return at;
}

struct touch_job {
    const struct zinf_optim_array *array;
    void *grad;
};

/* count small numbers that repeat with an odd period. */
static void fill_some(void *to, enum zinf_dtype dtype, uint64_t first, uint64_t count)
{
    float values[64];
    size_t element_bytes = zinf_dtype_bytes(dtype);
    for (uint64_t i = 0; i < count; i += 64) {
        size_t some = count - i < 64 ? count - i : 64;
        for (size_t j = 0; j < some; j++)
            values[j] = (float)((first + i + j) % 251) * 0x1p-8f - 0.5f;
        zinf_convert((char *)to + i * element_bytes, dtype, values, ZINF_DTYPE_F32, some);
    }
}

/* Each thread is the first to touch the pages of its slice, so they lie on its node. */
static void touch_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct touch_job *job = arg;
    const struct zinf_optim_array *a = job->array;
    const uint64_t count = end - begin;
    if (a->master)
        fill_some(a->master + begin, ZINF_DTYPE_F32, begin, count);
    if (a->remainder)
        memset(a->remainder + begin, 0, count * sizeof *a->remainder);
    if (a->moment1)
        memset(a->moment1 + begin, 0, count * sizeof *a->moment1);
    if (a->moment2)
        memset(a->moment2 + begin, 0, count * sizeof *a->moment2);
    fill_some((char *)job->grad + begin * zinf_dtype_bytes(a->grad_dtype), a->grad_dtype, begin,
              count);
    fill_some((char *)a->param + begin * zinf_dtype_bytes(a->param_dtype), a->param_dtype, begin,
              count);
}

static double time_step(const struct optim_ops *ops, const struct optim_scalars *scalars,
                        const struct zinf_optim_array *array, int n_threads)
{
    uint64_t start = zinf_now_ns();
    optim_step_with(ops, scalars, array, n_threads);
    return (double)(zinf_now_ns() - start) * 1e-9;
}

/* array is the step's; roof's has the same bytes: one fp32 moment stands for two in bf16. */
static void run_rounds(struct zinf_optim_bench *bench, const struct zinf_optim_array *array,
                       const struct zinf_optim_array *roof)
{
    const struct zinf_optim_hyper hyper = {.kind = bench->kind,
                                           .lr = 1e-3f,
                                           .beta1 = 0.9f,
                                           .beta2 = 0.999f,
                                           .eps = 1e-8f,
                                           .weight_decay = 0.01f,
                                           .bias_correction = true,
                                           .step = 10};
    struct optim_scalars scalars, stream;
    optim_scalars_init(&scalars, &hyper, 1);
    stream = scalars;
    stream.kind = roof->moment2 ? OPTIM_STREAM2 : OPTIM_STREAM1;
    bench->seconds = bench->roof_seconds = INFINITY;
    for (int round = 0; round < bench->repeats; round++) {
        /* The best streaming loop is not always that of the widest vectors. */
        for (int isa = zinf_isa() > ZINF_ISA_SCALAR; isa <= (int)zinf_isa(); isa++)
            bench->roof_seconds =
                fmin(bench->roof_seconds,
                     time_step(optim_ops_of((enum zinf_isa)isa), &stream, roof, bench->n_threads));
        bench->seconds = fmin(
            bench->seconds, time_step(optim_ops_of(bench->isa), &scalars, array, bench->n_threads));
    }
}

static int check_bench(const struct zinf_optim_bench *bench)
{
    if ((unsigned)bench->kind >= ZINF_OPTIM_KINDS || (unsigned)bench->isa > zinf_isa() ||
        bench->n == 0 || bench->n > (uint64_t)1 << 40 || bench->n_threads < 1 ||
        bench->repeats < 1 || (unsigned)bench->grad_dtype >= ZINF_DTYPE_COUNT ||
        (unsigned)bench->param_dtype >= ZINF_DTYPE_COUNT)
        return zinf_fail(-EINVAL,
                         "bench optim: optimizer, elements, threads or instruction set is out of "
                         "range (this CPU: %s)",
                         zinf_isa_name(zinf_isa()));
    if (bench->split_master && bench->param_dtype != ZINF_DTYPE_BF16)
        return zinf_fail(-EINVAL, "bench optim: a split master needs bf16 parameters");
    if (bench->half_moments && zinf_optim_n_moments(bench->kind) != 2)
        return zinf_fail(-EINVAL, "bench optim: bf16 moments are measured for Adam and AdamW");
    return 0;
}

/* What a step reads and writes: state twice, gradient and whole-form parameter once. */
static uint64_t step_bytes(const struct zinf_optim_bench *bench)
{
    uint64_t moment = (bench->half_moments ? 2 : 4) * (uint64_t)zinf_optim_n_moments(bench->kind);
    uint64_t master =
        bench->split_master ? 2 * (2 + 2) : 2 * 4 + zinf_dtype_bytes(bench->param_dtype);
    return bench->n * (master + 2 * moment + zinf_dtype_bytes(bench->grad_dtype));
}

int zinf_optim_bench(struct zinf_optim_bench *bench)
{
    int rc = check_bench(bench);
    if (rc)
        return rc;
    const bool half = bench->half_moments, split = bench->split_master;
    size_t bytes = 0;
    size_t master = place(&bytes, bench->n, split ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32);
    size_t moment1 = place(&bytes, bench->n, ZINF_DTYPE_F32); /* or two in bf16 */
    size_t moment2 = place(&bytes, bench->n, half ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32);
    size_t grad = place(&bytes, bench->n, bench->grad_dtype);
    size_t param = place(&bytes, bench->n, bench->param_dtype);
    bytes = zinf_align_up(bytes, HUGE_PAGE);
    char *base = aligned_alloc(HUGE_PAGE, bytes);
    if (!base)
        return zinf_fail(-ENOMEM, "bench optim: %zu bytes for %llu elements: give fewer", bytes,
                         (unsigned long long)bench->n);
    madvise(base, bytes, MADV_HUGEPAGE); /* a hint: without it the roof is as much lower */
    struct zinf_optim_array roof = {
        .n = bench->n,
        .master = split ? NULL : (float *)(void *)(base + master),
        .remainder = split ? (uint16_t *)(void *)(base + master) : NULL,
        .moment1 = (float *)(void *)(base + moment1),
        .grad = base + grad,
        .grad_dtype = bench->grad_dtype,
        .grad_scale = 1,
        .param = base + param,
        .param_dtype = bench->param_dtype,
    };
    if (!half && zinf_optim_n_moments(bench->kind) > 1)
        roof.moment2 = (float *)(void *)(base + moment2);
    struct zinf_optim_array array = roof;
    if (half) {
        array.moment1 = NULL;
        array.half_moment1 = (uint16_t *)(void *)(base + moment1);
        array.half_moment2 = (uint16_t *)(void *)(base + moment2);
        array.stochastic_rounding = bench->stochastic_rounding;
        memset(array.half_moment2, 0, bench->n * sizeof *array.half_moment2);
    }
    struct touch_job job = {&roof, base + grad};
    optim_parallel(bench->n, bench->n_threads, touch_slice, &job);
    run_rounds(bench, &array, &roof);
    bench->bytes = step_bytes(bench);
    bench->roof_gb_per_s = (double)bench->bytes / bench->roof_seconds * 1e-9;
    bench->ratio = bench->roof_seconds / bench->seconds;
    free(base);
    return 0;
}

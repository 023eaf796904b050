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
    struct zinf_optim_array *array;
    void *grad;
};

/* Each thread is the first to touch the pages of its slice, so they lie on its node. */
static void touch_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct touch_job *job = arg;
    const struct zinf_optim_array *a = job->array;
    for (uint64_t i = begin; i < end; i++) {
        float value = (float)(i % 1021) * 0x1p-10f - 0.5f;
        a->master[i] = value;
        a->moment1[i] = 0;
        if (a->moment2)
            a->moment2[i] = 0;
    }
    size_t grad_bytes = zinf_dtype_bytes(a->grad_dtype);
    float values[64];
    for (uint64_t i = begin; i < end; i += 64) {
        size_t count = end - i < 64 ? end - i : 64;
        for (size_t j = 0; j < count; j++)
            values[j] = (float)((i + j) % 251) * 0x1p-8f - 0.5f;
        zinf_convert((char *)job->grad + i * grad_bytes, a->grad_dtype, values, ZINF_DTYPE_F32,
                     count);
    }
    size_t param_bytes = zinf_dtype_bytes(a->param_dtype);
    memset((char *)a->param + begin * param_bytes, 0, (end - begin) * param_bytes);
}

static double time_step(const struct optim_ops *ops, const struct optim_scalars *scalars,
                        const struct zinf_optim_array *array, int n_threads)
{
    uint64_t start = zinf_now_ns();
    optim_step_with(ops, scalars, array, n_threads);
    return (double)(zinf_now_ns() - start) * 1e-9;
}

static void run_rounds(struct zinf_optim_bench *bench, const struct zinf_optim_array *array)
{
    const struct optim_ops *ops = optim_ops_of(bench->isa);
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
    stream.kind = array->moment2 ? OPTIM_STREAM2 : OPTIM_STREAM1;
    bench->seconds = bench->roof_seconds = INFINITY;
    for (int round = 0; round < bench->repeats; round++) {
        /* The best streaming loop is not always that of the widest vectors. */
        for (int isa = zinf_isa() > ZINF_ISA_SCALAR; isa <= (int)zinf_isa(); isa++)
            bench->roof_seconds =
                fmin(bench->roof_seconds,
                     time_step(optim_ops_of((enum zinf_isa)isa), &stream, array, bench->n_threads));
        bench->seconds = fmin(bench->seconds, time_step(ops, &scalars, array, bench->n_threads));
    }
}

int zinf_optim_bench(struct zinf_optim_bench *bench)
{
    if ((unsigned)bench->kind >= ZINF_OPTIM_KINDS || bench->isa > zinf_isa() || bench->n == 0 ||
        bench->n > (uint64_t)1 << 40 || bench->n_threads < 1 || bench->repeats < 1 ||
        (unsigned)bench->grad_dtype >= ZINF_DTYPE_COUNT ||
        (unsigned)bench->param_dtype >= ZINF_DTYPE_COUNT)
        return zinf_fail(-EINVAL,
                         "bench optim: optimizer, elements, threads or instruction set "
                         "is out of range (this CPU: %s)",
                         zinf_isa_name(zinf_isa()));
    int n_moments = zinf_optim_n_moments(bench->kind);
    size_t bytes = 0;
    size_t master = place(&bytes, bench->n, ZINF_DTYPE_F32);
    size_t moment1 = place(&bytes, bench->n, ZINF_DTYPE_F32);
    size_t moment2 = n_moments > 1 ? place(&bytes, bench->n, ZINF_DTYPE_F32) : 0;
    size_t grad = place(&bytes, bench->n, bench->grad_dtype);
    size_t param = place(&bytes, bench->n, bench->param_dtype);
    bytes = zinf_align_up(bytes, HUGE_PAGE);
    char *base = aligned_alloc(HUGE_PAGE, bytes);
    if (!base)
        return zinf_fail(-ENOMEM, "bench optim: %zu bytes for %llu elements: give fewer", bytes,
                         (unsigned long long)bench->n);
    madvise(base, bytes, MADV_HUGEPAGE); /* a hint: without it the roof is as much lower */
    struct zinf_optim_array array = {
        .n = bench->n,
        .master = (float *)(void *)(base + master),
        .moment1 = (float *)(void *)(base + moment1),
        .moment2 = n_moments > 1 ? (float *)(void *)(base + moment2) : NULL,
        .grad = base + grad,
        .grad_dtype = bench->grad_dtype,
        .grad_scale = 1,
        .param = base + param,
        .param_dtype = bench->param_dtype,
    };
    struct touch_job job = {&array, base + grad};
    optim_parallel(bench->n, bench->n_threads, touch_slice, &job);
    run_rounds(bench, &array);
    bench->bytes = bench->n * (8 + 8 * (uint64_t)n_moments + zinf_dtype_bytes(bench->grad_dtype) +
                               zinf_dtype_bytes(bench->param_dtype));
    bench->roof_gb_per_s = (double)bench->bytes / bench->roof_seconds * 1e-9;
    bench->ratio = bench->roof_seconds / bench->seconds;
    free(base);
    return 0;
}

/* optim_bench: a step and its roof, turn by turn over the same arrays. */
#include "cpu_optim/optim_bench.h"
#include "base/median.h"
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

#define ADAFACTOR_COLS 4096u

/* What is timed: a step over array, or over tensor; and the roof over arrays of the same bytes. */
struct bench_stage {
    struct zinf_optim_bench *bench;
    struct zinf_optim_array array, roof;
    struct zinf_adafactor_tensor tensor;
    char *base;
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

static void touch(void *array, size_t element_bytes, uint64_t begin, uint64_t end)
{
    if (array)
        memset((char *)array + begin * element_bytes, 0, (end - begin) * element_bytes);
}

/* Each thread is the first to touch the pages of its slice, so they lie on its node. Moments of
 * zero bits are zeros in every form. */
static void touch_slice(void *arg, uint64_t begin, uint64_t end)
{
    const struct bench_stage *stage = arg;
    const struct zinf_optim_array *a = &stage->array, *roof = &stage->roof;
    const size_t grad_bytes = zinf_dtype_bytes(a->grad_dtype);
    const size_t param_bytes = zinf_dtype_bytes(a->param_dtype);
    if (a->master)
        fill_some(a->master + begin, ZINF_DTYPE_F32, begin, end - begin);
    touch(a->remainder, sizeof(uint16_t), begin, end);
    touch(roof->moment1, sizeof(float), begin, end);
    touch(roof->moment2, sizeof(float), begin, end);
    touch(roof->half_moment1, sizeof(uint16_t), begin, end);
    touch(a->half_moment1, sizeof(uint16_t), begin, end);
    touch(a->half_moment2, sizeof(uint16_t), begin, end);
    touch(a->byte_moment1, 1, begin, end);
    touch(a->byte_moment2, 1, begin, end);
    fill_some((char *)a->grad + begin * grad_bytes, a->grad_dtype, begin, end - begin);
    fill_some((char *)a->param + begin * param_bytes, a->param_dtype, begin, end - begin);
}

/* ---- the arrays ---- */

static int check_bench(const struct zinf_optim_bench *b)
{
    if ((unsigned)b->kind >= ZINF_OPTIM_KINDS || (unsigned)b->isa > zinf_isa() || b->n == 0 ||
        b->n > (uint64_t)1 << 40 || b->n_threads < 1 || b->repeats < 1 ||
        (unsigned)b->grad_dtype >= ZINF_DTYPE_COUNT || (unsigned)b->param_dtype >= ZINF_DTYPE_COUNT)
        return zinf_fail(-EINVAL,
                         "bench optim: optimizer, elements, threads or instruction set is out of "
                         "range (this CPU: %s)",
                         zinf_isa_name(zinf_isa()));
    if (b->split_master && b->param_dtype != ZINF_DTYPE_BF16)
        return zinf_fail(-EINVAL, "bench optim: a split master needs bf16 parameters");
    if (b->moments == ZINF_OPTIM_MOMENTS_8BIT && (b->adafactor || b->kind != ZINF_OPTIM_ADAMW))
        return zinf_fail(-EINVAL, "bench optim: 8-bit moments are AdamW's");
    if (b->moments != ZINF_OPTIM_MOMENTS_F32 && b->adafactor)
        return zinf_fail(-EINVAL, "bench optim: Adafactor has fp32 moments");
    if (b->adafactor && b->n < ADAFACTOR_COLS)
        return zinf_fail(-EINVAL, "bench optim: Adafactor needs a row of %u elements",
                         ADAFACTOR_COLS);
    return 0;
}

/* What a step reads and writes: state twice, gradient and whole-form parameter once. Adafactor
 * looks at the gradient three times, and once more at the master. */
static uint64_t step_bytes(const struct zinf_optim_bench *b)
{
    const uint64_t grad = zinf_dtype_bytes(b->grad_dtype);
    uint64_t master = b->split_master ? 2 * (2 + 2) : 2 * 4 + zinf_dtype_bytes(b->param_dtype);
    if (b->adafactor)
        return b->n * (3 * grad + master + 4);
    uint64_t moments = zinf_optim_state_bytes(b->kind, b->moments, b->split_master, b->n) -
                       b->n * (b->split_master ? 2 : 4);
    return b->n * (master + grad) + 2 * moments;
}

static uint64_t data_bytes(const struct zinf_optim_bench *b)
{
    const uint64_t beside = zinf_dtype_bytes(b->grad_dtype) + zinf_dtype_bytes(b->param_dtype);
    if (b->adafactor) /* factored moments are next to nothing */
        return b->n * (beside + (b->split_master ? 2 : 4));
    return b->n * beside + zinf_optim_state_bytes(b->kind, b->moments, b->split_master, b->n);
}

/* Where everything lies in one block; moments have the room of fp32 whatever their form. */
struct places {
    size_t master, moment1, moment2, grad, param, scales, workspace, bytes;
};

static struct places places_of(const struct zinf_optim_bench *b)
{
    struct places p = {0};
    p.master = place(&p.bytes, b->n, b->split_master ? ZINF_DTYPE_BF16 : ZINF_DTYPE_F32);
    p.moment1 = place(&p.bytes, b->n, ZINF_DTYPE_F32);
    p.moment2 = place(&p.bytes, b->n, ZINF_DTYPE_F32);
    p.grad = place(&p.bytes, b->n, b->grad_dtype);
    p.param = place(&p.bytes, b->n, b->param_dtype);
    p.scales = place(&p.bytes, 2 * (b->n / ZINF_OPTIM_8BIT_BLOCK + 1), ZINF_DTYPE_F32);
    p.workspace = zinf_align_up(p.bytes, 64);
    p.bytes =
        p.workspace + zinf_adafactor_workspace_bytes(b->n / ADAFACTOR_COLS + 1, ADAFACTOR_COLS);
    p.bytes = zinf_align_up(p.bytes, HUGE_PAGE);
    return p;
}

/* The moments of the step, and arrays for the roof that move the same bytes: one fp32 moment for
 * two in bf16, one in bf16 for two of 8 bits. */
static void stage_moments(struct bench_stage *s, float *room1, float *room2, float *scales)
{
    const struct zinf_optim_bench *b = s->bench;
    const bool two = zinf_optim_n_moments(b->kind) > 1 && !b->adafactor;
    if (b->moments == ZINF_OPTIM_MOMENTS_8BIT) {
        s->array.byte_moment1 = (int8_t *)room1;
        s->array.byte_moment2 = (uint8_t *)room1 + b->n + 64;
        s->array.scale1 = scales;
        s->array.scale2 = scales + b->n / ZINF_OPTIM_8BIT_BLOCK + 1;
        s->roof.half_moment1 = (uint16_t *)room2;
    } else if (b->moments == ZINF_OPTIM_MOMENTS_BF16) {
        s->array.half_moment1 = (uint16_t *)room1;
        s->array.half_moment2 = two ? (uint16_t *)room2 : NULL;
        s->array.stochastic_rounding = b->stochastic_rounding;
        s->roof.moment1 = two ? room1 : NULL;
        s->roof.half_moment1 = two ? NULL : (uint16_t *)room2;
    } else {
        s->array.moment1 = s->roof.moment1 = room1;
        s->array.moment2 = s->roof.moment2 = two ? room2 : NULL;
    }
}

static int stage_init(struct bench_stage *s, struct zinf_optim_bench *b)
{
    const struct places at = places_of(b);
    char *base = aligned_alloc(HUGE_PAGE, at.bytes);
    if (!base)
        return zinf_fail(-ENOMEM, "bench optim: %zu bytes for %llu elements: give fewer", at.bytes,
                         (unsigned long long)b->n);
    madvise(base, at.bytes, MADV_HUGEPAGE); /* a hint: without it the roof is as much lower */
    memset(base + at.scales, 0, at.bytes - at.scales);
    s->base = base;
    s->array = (struct zinf_optim_array){
        .n = b->n,
        .master = b->split_master ? NULL : (float *)(void *)(base + at.master),
        .remainder = b->split_master ? (uint16_t *)(void *)(base + at.master) : NULL,
        .grad = base + at.grad,
        .grad_dtype = b->grad_dtype,
        .grad_scale = 1,
        .param = base + at.param,
        .param_dtype = b->param_dtype,
    };
    s->roof = s->array;
    float *const room1 = (float *)(void *)(base + at.moment1);
    float *const room2 = (float *)(void *)(base + at.moment2);
    stage_moments(s, room1, room2, (float *)(void *)(base + at.scales));
    s->tensor = (struct zinf_adafactor_tensor){
        .rows = b->n / ADAFACTOR_COLS,
        .cols = ADAFACTOR_COLS,
        .master = s->array.master,
        .remainder = s->array.remainder,
        .row_moment = room2,
        .col_moment = room2 + b->n / ADAFACTOR_COLS,
        .grad = s->array.grad,
        .grad_dtype = b->grad_dtype,
        .grad_scale = 1,
        .param = s->array.param,
        .param_dtype = b->param_dtype,
        .workspace = base + at.workspace,
    };
    return 0;
}

/* ---- timing ---- */

static const struct zinf_optim_hyper hyper = {.lr = 1e-3f,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.999f,
                                              .eps = 1e-8f,
                                              .weight_decay = 0.01f,
                                              .bias_correction = true,
                                              .step = 10};
static const struct zinf_adafactor_hyper adafactor = {.lr = 1e-2f,
                                                      .beta2_decay = -0.8f,
                                                      .eps1 = 0x1p-23f,
                                                      .eps2 = 1e-3f,
                                                      .clip_threshold = 1,
                                                      .relative_step = true,
                                                      .scale_parameter = true,
                                                      .step = 10};

static double time_roof(const struct bench_stage *s, const struct optim_scalars *scalars,
                        enum zinf_isa isa)
{
    uint64_t start = zinf_now_ns();
    optim_step_with(optim_ops_of(isa), scalars, &s->roof, s->bench->n_threads);
    return (double)(zinf_now_ns() - start) * 1e-9;
}

static double time_step(const struct bench_stage *s, const struct optim_scalars *scalars)
{
    const struct optim_ops *ops = optim_ops_of(s->bench->isa);
    uint64_t start = zinf_now_ns();
    if (s->bench->adafactor)
        optim_adafactor_with(ops, &adafactor, &s->tensor, s->bench->n_threads);
    else
        optim_step_with(ops, scalars, &s->array, s->bench->n_threads);
    return (double)(zinf_now_ns() - start) * 1e-9;
}

/* Medians of a step and its roof in turn: other users of the memory hit both alike. */
static int run_rounds(const struct bench_stage *s)
{
    struct zinf_optim_bench *bench = s->bench;
    const int n = bench->repeats;
    struct zinf_optim_hyper h = hyper;
    struct optim_scalars scalars, stream;
    double *steps = malloc(3 * (size_t)n * sizeof *steps);
    if (!steps)
        return zinf_fail(-ENOMEM, "bench optim: no memory for %d rounds", n);
    double *roofs = steps + n, *ratios = roofs + n;
    h.kind = bench->kind;
    optim_scalars_init(&scalars, &h, 1);
    stream = scalars;
    stream.kind = s->roof.moment2 ? OPTIM_STREAM2 : OPTIM_STREAM1;
    time_step(s, &scalars); /* caches, page tables and threads are warm */
    for (int round = 0; round < n; round++) {
        roofs[round] = INFINITY;
        /* The best streaming loop is not always that of the widest vectors. */
        for (int isa = zinf_isa() > ZINF_ISA_SCALAR; isa <= (int)zinf_isa(); isa++)
            roofs[round] = fmin(roofs[round], time_roof(s, &stream, (enum zinf_isa)isa));
        steps[round] = time_step(s, &scalars);
        ratios[round] = roofs[round] / steps[round];
    }
    bench->seconds = zinf_median(steps, n);
    bench->roof_seconds = zinf_median(roofs, n);
    bench->ratio = zinf_median(ratios, n);
    free(steps);
    return 0;
}

int zinf_optim_bench(struct zinf_optim_bench *bench)
{
    struct bench_stage stage = {.bench = bench};
    int rc = check_bench(bench);
    if (!rc)
        rc = stage_init(&stage, bench);
    if (rc)
        return rc;
    optim_parallel(bench->n, bench->n_threads, touch_slice, &stage);
    rc = run_rounds(&stage);
    free(stage.base);
    if (rc)
        return rc;
    bench->bytes = step_bytes(bench);
    bench->data_bytes = data_bytes(bench);
    if (bench->adafactor) { /* the roof's loop moved other bytes: its speed counts */
        struct zinf_optim_bench roof = *bench;
        roof.adafactor = false;
        roof.kind = ZINF_OPTIM_LION;
        double more = (double)bench->bytes / (double)step_bytes(&roof);
        bench->roof_seconds *= more;
        bench->ratio *= more;
    }
    bench->roof_gb_per_s = (double)bench->bytes / bench->roof_seconds * 1e-9;
    return 0;
}

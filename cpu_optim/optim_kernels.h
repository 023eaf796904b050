/*
 * optim_kernels: the text of a step. Included by each per-ISA file after reduce_kernels.h,
 * moment_kernels.h and formula_kernels.h.
 *
 * NaNs are made canonical before they are stored: which payload survives an operation on two NaNs
 * depends on the instruction that the compiler picks, and would differ between instruction sets.
 */
#define LINE_ELEMS 16u /* fp32 numbers of a cache line */
#define PAIR_ELEMS 32u /* 16-bit numbers of a cache line */
#define TILE_ELEMS 512u

/* ---- one vector of an array, at element i ---- */

/* How far ahead each line of every array is prefetched. Hardware prefetchers start late, and the
 * arithmetic between loads leaves few loads in flight. Distances from 256 bytes to 3 KiB of fp32
 * are equally fast on 2 MiB pages; on 4 KiB pages 2 KiB cost 3 to 6 %. */
#define PREFETCH_ELEMS 128u

ALWAYS_INLINE void prefetch(const void *x, size_t element_bytes, uint64_t i)
{
    __builtin_prefetch((const char *)x + i * element_bytes);
    if (element_bytes == sizeof(float))
        __builtin_prefetch((const char *)x + (i + LINE_ELEMS) * element_bytes);
}

/* Prefetches what a pair of lines will need, PREFETCH_ELEMS ahead. */
ALWAYS_INLINE void prefetch_pair(bool moment2, enum zinf_dtype grad_dtype, bool split,
                                 enum zinf_optim_moments form, const struct zinf_optim_array *a,
                                 uint64_t i)
{
    i += PREFETCH_ELEMS;
    if (split) {
        prefetch(a->param, 2, i);
        prefetch(a->remainder, 2, i);
    } else {
        prefetch(a->master, 4, i);
    }
    prefetch(a->grad, grad_dtype == ZINF_DTYPE_F32 ? 4 : 2, i);
    if (form == ZINF_OPTIM_MOMENTS_F32)
        prefetch(a->moment1, 4, i);
    else if (form == ZINF_OPTIM_MOMENTS_BF16)
        prefetch(a->half_moment1, 2, i);
    else
        prefetch(a->byte_moment1, 1, i);
    if (!moment2)
        return;
    if (form == ZINF_OPTIM_MOMENTS_F32)
        prefetch(a->moment2, 4, i);
    else if (form == ZINF_OPTIM_MOMENTS_BF16)
        prefetch(a->half_moment2, 2, i);
    else
        prefetch(a->byte_moment2, 1, i);
}

ALWAYS_INLINE void step_vector(enum zinf_optim_kind kind, enum zinf_dtype grad_dtype,
                               enum zinf_dtype param_dtype, enum zinf_optim_moments form,
                               const struct lanes *k, const struct zinf_optim_array *a,
                               struct moment_run *run, uint64_t i)
{
    vec g = vec_mul(load_as(a->grad, grad_dtype, i), k->grad_scale);
    vec p = param_dtype == SPLIT_MASTER
                ? vec_load_split((const uint16_t *)a->param + i, a->remainder + i)
                : vec_load(a->master + i);
    vec m = load_moment1(form, a, run, i);
    if (has_moment2(kind)) {
        vec v = load_moment2(form, a, run, i);
        if (kind == OPTIM_STREAM2)
            update_stream(g, &p, &m, &v);
        else
            update_adam(k, kind == ZINF_OPTIM_ADAMW, g, &p, &m, &v);
        store_moment2(form, a, run, i, v);
    } else if (kind == OPTIM_STREAM1) {
        update_stream(g, &p, &m, &m);
    } else if (kind == ZINF_OPTIM_LION) {
        update_lion(k, g, &p, &m);
    } else if (kind == ZINF_OPTIM_ADAGRAD) {
        update_adagrad(k, g, &p, &m);
    } else {
        update_sgd(k, g, &p, &m);
    }
    p = vec_canonical(p);
    store_moment1(form, a, run, i, m);
    if (param_dtype == SPLIT_MASTER) {
        vec_store_split((uint16_t *)a->param + i, a->remainder + i, p);
        return;
    }
    vec_store(a->master + i, p);
    store_as(run->param, param_dtype, i - run->start, p);
}

/*
 * Turns the new moments of a block into codes. Half of the block's prefetches are made here, since
 * memory would be idle otherwise.
 */
ALWAYS_INLINE void step_block_end(enum zinf_dtype grad_dtype, bool split,
                                  const struct zinf_optim_array *a, const struct moment_run *run,
                                  uint64_t i)
{
    const float *wide1 = run->wide1 + (i - run->start), *wide2 = run->wide2 + (i - run->start);
    const uint32_t top1 = ivec_top(run->top1), top2 = ivec_top(run->top2);
    const float largest1 = block_largest(top1), largest2 = block_largest(top2);
    for (unsigned part = 0; part < 2; part++) {
        uint64_t ahead = i + (2 + part) * BLOCK_8BIT / 4;
        for (unsigned j = 0; j < BLOCK_8BIT / 4; j += PAIR_ELEMS)
            prefetch_pair(true, grad_dtype, split, ZINF_OPTIM_MOMENTS_8BIT, a, ahead + j);
        if (part == 0 && !block_is_odd(top1))
            store_codes1(a->byte_moment1 + i, wide1, TOP1 / largest1, largest1 * (1e-4f / TOP1));
        if (part == 1 && !block_is_odd(top2))
            store_codes2(a->byte_moment2 + i, wide2, TOP2 / largest2, largest2 * (1e-4f / TOP2));
    }
    block_scale(a->scale1 + i / BLOCK_8BIT, a->byte_moment1 + i, top1, TOP1);
    block_scale(a->scale2 + i / BLOCK_8BIT, a->byte_moment2 + i, top2, TOP2);
}

/* A step of count elements from run->start on, in whole vectors, and with 8-bit moments in whole
 * blocks. */
ALWAYS_INLINE void step_run(enum zinf_optim_kind kind, enum zinf_dtype grad_dtype,
                            enum zinf_dtype param_dtype, enum zinf_optim_moments form,
                            const struct lanes *k, const struct zinf_optim_array *a,
                            struct moment_run *run, uint64_t count)
{
    const uint64_t end = run->start + count;
    for (uint64_t i = run->start; i < end;) {
        const uint64_t block = i;
        uint64_t stop = end;
        if (form == ZINF_OPTIM_MOMENTS_8BIT) {
            stop = i + BLOCK_8BIT;
            block_begin(run, a, i);
        }
        for (; i + PAIR_ELEMS <= stop; i += PAIR_ELEMS) {
            if (form != ZINF_OPTIM_MOMENTS_8BIT || i < block + BLOCK_8BIT / 2)
                prefetch_pair(has_moment2(kind), grad_dtype, param_dtype == SPLIT_MASTER, form, a,
                              i);
            for (unsigned lane = 0; lane < PAIR_ELEMS; lane += LANES)
                step_vector(kind, grad_dtype, param_dtype, form, k, a, run, i + lane);
        }
        for (; i < stop; i += LANES)
            step_vector(kind, grad_dtype, param_dtype, form, k, a, run, i);
        if (form == ZINF_OPTIM_MOMENTS_8BIT)
            step_block_end(grad_dtype, param_dtype == SPLIT_MASTER, a, run, block);
    }
}

/* ---- loops: kind, dtypes and form are constants in each copy ---- */

ALWAYS_INLINE uint64_t unit_of(enum zinf_optim_moments form)
{
    return form == ZINF_OPTIM_MOMENTS_8BIT ? BLOCK_8BIT : LANES;
}

/*
 * The parameter copy is not read again soon, so it is stored past the cache; lines that are
 * overwritten whole need not be read. Only whole lines are stored so: the few buffers that collect
 * such stores also serve loads, and a line that is written slowly leaves them half full (measured:
 * half the speed). So the copy of a tile is collected in the first-level cache first.
 */
ALWAYS_INLINE uint64_t step_loop(enum zinf_optim_kind kind, enum zinf_dtype grad_dtype,
                                 enum zinf_dtype param_dtype, enum zinf_optim_moments form,
                                 const struct lanes *k, const struct zinf_optim_array *array,
                                 uint64_t i, uint64_t end)
{
    const uint64_t param_bytes = param_dtype == ZINF_DTYPE_F32 ? 4 : 2;
    struct zinf_optim_array a = *array; /* a local copy, so that pointers stay in registers */
    _Alignas(CACHE_LINE) char copy[TILE_ELEMS * sizeof(float)];
    _Alignas(CACHE_LINE) float wide[2][TILE_ELEMS];
    uint16_t low[TILE_ELEMS], high[TILE_ELEMS];
    struct moment_run run = {.wide1 = wide[0], .wide2 = wide[1]};
    bool can_stream = param_dtype < NO_PARAM && HAS_STREAM &&
                      ((uintptr_t)a.param + i * param_bytes) % CACHE_LINE == 0;
    while (i + unit_of(form) <= end) {
        uint64_t count =
            end - i < TILE_ELEMS ? (end - i) / unit_of(form) * unit_of(form) : TILE_ELEMS;
        bool stream = can_stream && count == TILE_ELEMS;
        run.start = i;
        run.param = stream ? copy : (char *)a.param + i * param_bytes;
        if (form == ZINF_OPTIM_MOMENTS_BF16 && a.stochastic_rounding) {
            random_halves(low, high, a.first_element + i, count, k->step, a.rounding_key);
            run.low = low;
            run.high = high;
        }
        step_run(kind, grad_dtype, param_dtype, form, k, &a, &run, count);
        if (stream)
            for (uint64_t byte = 0; byte < TILE_ELEMS * param_bytes; byte += CACHE_LINE)
                line_stream((char *)a.param + i * param_bytes + byte, copy + byte);
        i += count;
    }
    return i;
}

/* ---- less than a unit ---- */

/* Room for one vector or block in any form, with zeros behind the elements. */
struct part {
    /* in fp32, with 8-bit moments */
    float master[BLOCK_8BIT], moment1[BLOCK_8BIT], moment2[BLOCK_8BIT];
    float grad[BLOCK_8BIT], param[BLOCK_8BIT];
    uint16_t remainder[BLOCK_8BIT], half_moment1[BLOCK_8BIT], half_moment2[BLOCK_8BIT];
    uint16_t low[BLOCK_8BIT], high[BLOCK_8BIT];
    int8_t byte_moment1[BLOCK_8BIT];
    uint8_t byte_moment2[BLOCK_8BIT];
    float scale1, scale2;
};

/* A step of elements i .. i + count through padded arrays on the stack. It is rare, so one copy
 * serves all kinds. */
static __attribute__((noinline)) void
step_partial(enum zinf_optim_kind kind, enum zinf_optim_moments form, const struct lanes *k,
             const struct zinf_optim_array *a, uint64_t i, uint64_t count)
{
    struct part part = {.scale1 = 0};
    const size_t grad_bytes = a->grad_dtype == ZINF_DTYPE_F32 ? 4 : 2;
    const size_t param_bytes = a->param_dtype == ZINF_DTYPE_F32 ? 4 : 2;
    const struct {
        void *part, *array;
        size_t element_bytes;
    } fields[] = {
        {part.grad, (void *)a->grad, grad_bytes}, /* first, as it is only read */
        {part.master, a->master, sizeof(float)},
        {part.moment1, a->moment1, sizeof(float)},
        {part.moment2, a->moment2, sizeof(float)},
        {part.param, a->param, param_bytes},
        {part.remainder, a->remainder, sizeof(uint16_t)},
        {part.half_moment1, a->half_moment1, sizeof(uint16_t)},
        {part.half_moment2, a->half_moment2, sizeof(uint16_t)},
        {part.byte_moment1, a->byte_moment1, sizeof(uint8_t)},
        {part.byte_moment2, a->byte_moment2, sizeof(uint8_t)},
    };
    for (size_t f = 0; f < sizeof fields / sizeof *fields; f++)
        if (fields[f].array)
            memcpy(fields[f].part, (char *)fields[f].array + i * fields[f].element_bytes,
                   count * fields[f].element_bytes);
    struct zinf_optim_array padded = *a;
    padded.master = part.master;
    padded.moment1 = part.moment1;
    padded.moment2 = part.moment2;
    padded.grad = part.grad;
    padded.param = part.param;
    padded.remainder = part.remainder;
    padded.half_moment1 = part.half_moment1;
    padded.half_moment2 = part.half_moment2;
    padded.byte_moment1 = part.byte_moment1;
    padded.byte_moment2 = part.byte_moment2;
    padded.scale1 = form == ZINF_OPTIM_MOMENTS_8BIT ? a->scale1 + i / BLOCK_8BIT : NULL;
    padded.scale2 = form == ZINF_OPTIM_MOMENTS_8BIT ? a->scale2 + i / BLOCK_8BIT : NULL;
    struct moment_run run = {.param = part.param, .wide1 = part.moment1, .wide2 = part.moment2};
    if (a->half_moment1 && a->stochastic_rounding) {
        random_halves(part.low, part.high, a->first_element + i, count, k->step, a->rounding_key);
        run.low = part.low;
        run.high = part.high;
    }
    step_run(kind, a->grad_dtype, param_form(a), form, k, &padded, &run, unit_of(form));
    for (size_t f = 1; f < sizeof fields / sizeof *fields; f++)
        if (fields[f].array)
            memcpy((char *)fields[f].array + i * fields[f].element_bytes, fields[f].part,
                   count * fields[f].element_bytes);
}

/* ---- one copy of the loop for each kind and form, and of AdamW for each pair of dtypes ---- */

/* A copy for each pair of dtypes is most of what the compiler works on in this folder. They are
 * made where speed depends on them: for AdamW, and for the loops that it is compared with. */
ALWAYS_INLINE bool has_dtype_loops(enum zinf_optim_kind kind)
{
    return LANES > 1 &&
           (kind == ZINF_OPTIM_ADAMW || kind == OPTIM_STREAM1 || kind == OPTIM_STREAM2);
}

ALWAYS_INLINE uint64_t step_to(enum zinf_optim_kind kind, enum zinf_dtype grad_dtype,
                               enum zinf_optim_moments form, const struct lanes *k,
                               const struct zinf_optim_array *a, uint64_t i, uint64_t end)
{
    if (a->remainder)
        return step_loop(kind, grad_dtype, SPLIT_MASTER, form, k, a, i, end);
    if (!a->param)
        return step_loop(kind, grad_dtype, NO_PARAM, form, k, a, i, end);
    if (a->param_dtype == ZINF_DTYPE_F32)
        return step_loop(kind, grad_dtype, ZINF_DTYPE_F32, form, k, a, i, end);
    if (a->param_dtype == ZINF_DTYPE_BF16)
        return step_loop(kind, grad_dtype, ZINF_DTYPE_BF16, form, k, a, i, end);
    return step_loop(kind, grad_dtype, ZINF_DTYPE_F16, form, k, a, i, end);
}

/* Elements up to the first cache line boundary of the moments; 8-bit blocks are not aligned. */
ALWAYS_INLINE uint64_t head_of(enum zinf_optim_moments form, const struct zinf_optim_array *a,
                               uint64_t i)
{
    if (form == ZINF_OPTIM_MOMENTS_8BIT)
        return 0;
    if (form == ZINF_OPTIM_MOMENTS_BF16)
        return (0 - (uintptr_t)(a->half_moment1 + i)) % CACHE_LINE / sizeof(uint16_t) % LANES;
    return (0 - (uintptr_t)(a->moment1 + i)) % CACHE_LINE / sizeof(float) % LANES;
}

ALWAYS_INLINE void step_kind(enum zinf_optim_kind kind, enum zinf_optim_moments form,
                             const struct optim_scalars *scalars, const struct zinf_optim_array *a,
                             uint64_t i, uint64_t end)
{
    const struct lanes k = lanes_of(scalars);
    uint64_t head = head_of(form, a, i);
    if (head > end - i)
        head = end - i;
    if (head)
        step_partial(kind, form, &k, a, i, head);
    i += head;
    if (!has_dtype_loops(kind))
        i = step_loop(kind, a->grad_dtype, param_form(a), form, &k, a, i, end);
    else if (a->grad_dtype == ZINF_DTYPE_F32)
        i = step_to(kind, ZINF_DTYPE_F32, form, &k, a, i, end);
    else if (a->grad_dtype == ZINF_DTYPE_BF16)
        i = step_to(kind, ZINF_DTYPE_BF16, form, &k, a, i, end);
    else
        i = step_to(kind, ZINF_DTYPE_F16, form, &k, a, i, end);
    if (i < end)
        step_partial(kind, form, &k, a, i, end - i);
}

typedef void step_function(const struct optim_scalars *s, const struct zinf_optim_array *a,
                           uint64_t begin, uint64_t end);
#define STEP(name, kind, form)                                                                     \
    static __attribute__((noinline)) void name(const struct optim_scalars *s,                      \
                                               const struct zinf_optim_array *a, uint64_t begin,   \
                                               uint64_t end)                                       \
    {                                                                                              \
        step_kind(kind, form, s, a, begin, end);                                                   \
    }
STEP(step_adamw, ZINF_OPTIM_ADAMW, ZINF_OPTIM_MOMENTS_F32)
STEP(step_adam, ZINF_OPTIM_ADAM, ZINF_OPTIM_MOMENTS_F32)
STEP(step_lion, ZINF_OPTIM_LION, ZINF_OPTIM_MOMENTS_F32)
STEP(step_adagrad, ZINF_OPTIM_ADAGRAD, ZINF_OPTIM_MOMENTS_F32)
STEP(step_sgd, ZINF_OPTIM_SGD, ZINF_OPTIM_MOMENTS_F32)
STEP(step_stream1, OPTIM_STREAM1, ZINF_OPTIM_MOMENTS_F32)
STEP(step_stream2, OPTIM_STREAM2, ZINF_OPTIM_MOMENTS_F32)
STEP(step_adamw_half, ZINF_OPTIM_ADAMW, ZINF_OPTIM_MOMENTS_BF16)
STEP(step_adam_half, ZINF_OPTIM_ADAM, ZINF_OPTIM_MOMENTS_BF16)
STEP(step_lion_half, ZINF_OPTIM_LION, ZINF_OPTIM_MOMENTS_BF16)
STEP(step_adagrad_half, ZINF_OPTIM_ADAGRAD, ZINF_OPTIM_MOMENTS_BF16)
STEP(step_sgd_half, ZINF_OPTIM_SGD, ZINF_OPTIM_MOMENTS_BF16)
STEP(step_stream1_half, OPTIM_STREAM1, ZINF_OPTIM_MOMENTS_BF16)
STEP(step_adamw_byte, ZINF_OPTIM_ADAMW, ZINF_OPTIM_MOMENTS_8BIT)

static void step_range(const struct optim_scalars *s, const struct zinf_optim_array *a,
                       uint64_t begin, uint64_t end)
{
    static step_function *const wide[] = {
        [ZINF_OPTIM_ADAMW] = step_adamw, [ZINF_OPTIM_ADAM] = step_adam,
        [ZINF_OPTIM_LION] = step_lion,   [ZINF_OPTIM_ADAGRAD] = step_adagrad,
        [ZINF_OPTIM_SGD] = step_sgd,     [OPTIM_STREAM1] = step_stream1,
        [OPTIM_STREAM2] = step_stream2,
    };
    static step_function *const half[] = {
        [ZINF_OPTIM_ADAMW] = step_adamw_half, [ZINF_OPTIM_ADAM] = step_adam_half,
        [ZINF_OPTIM_LION] = step_lion_half,   [ZINF_OPTIM_ADAGRAD] = step_adagrad_half,
        [ZINF_OPTIM_SGD] = step_sgd_half,     [OPTIM_STREAM1] = step_stream1_half,
    };
    if (a->byte_moment1)
        step_adamw_byte(s, a, begin, end);
    else
        (a->half_moment1 ? half : wide)[s->kind](s, a, begin, end);
}

/* What follows an update is done block by block, while the values are in the cache. */
static void step(const struct optim_scalars *s, const struct zinf_optim_array *a, uint64_t begin,
                 uint64_t end, double *block_sums)
{
    const size_t grad_bytes = a->grad_dtype == ZINF_DTYPE_F32 ? 4 : 2;
    const uint64_t stride = block_sums || a->zero_grad ? OPTIM_BLOCK_ELEMS : end - begin;
    for (uint64_t i = begin; i < end; i += stride) {
        uint64_t stop = end - i < stride ? end : i + stride;
        step_range(s, a, i, stop);
        if (block_sums)
            *block_sums++ = a->remainder ? sum_block_split(a->param, a->remainder, i, stop)
                                         : sum_block(a->master, ZINF_DTYPE_F32, i, stop);
        if (a->zero_grad)
            memset((char *)a->grad + i * grad_bytes, 0, (stop - i) * grad_bytes);
    }
    line_stream_end();
}

/*
 * optim_kernels: the text of every kernel, included once by each per-ISA file, which defines before
 *   LANES, vec               lanes of a vector of fp32, its type
 *   vec_set1 _load _store _add _sub _mul _div _sqrt _fma(a, b, c) = a * b + c
 *   vec_load_bf16 _load_f16 _store_bf16 _store_f16
 *   vec_load_split(param, remainder), vec_store_split(param, remainder, vec)
 *   vec_canonical            NaN lanes become 0x7fc00000
 *   vec_sign(c, x)           c > 0: x; c < 0: -x; else c (zero, NaN)
 *   vec_nonfinite            bit mask of lanes that are Inf or NaN
 *   sums, sums_zero, sums_add(sums *, vec first, ...): see sum_block
 *   HAS_STREAM, line_stream(to, from), line_stream_end
 *                            a cache line is copied past the cache, if there is a way
 * Loads and stores of vectors take any alignment, line_stream whole lines.
 *
 * NaNs are made canonical before they are stored: which payload survives an operation on two NaNs
 * depends on the instruction that the compiler picks, and would differ between instruction sets.
 */
#define ALWAYS_INLINE static inline __attribute__((always_inline))
#define CACHE_LINE 64u
#define LINE_ELEMS 16u /* fp32 of one cache line */
#define TILE_ELEMS 512u
/* Beside the dtypes of a parameter copy: none, and the copy being half of the master. */
#define NO_PARAM ZINF_DTYPE_COUNT
#define SPLIT_MASTER ((enum zinf_dtype)(ZINF_DTYPE_COUNT + 1))

ALWAYS_INLINE const void *element_at(const void *x, enum zinf_dtype dtype, uint64_t i)
{
    return (const char *)x + i * (dtype == ZINF_DTYPE_F32 ? 4 : 2);
}

ALWAYS_INLINE vec load_as(const void *x, enum zinf_dtype dtype, uint64_t i)
{
    const void *at = element_at(x, dtype, i);
    if (dtype == ZINF_DTYPE_F32)
        return vec_load(at);
    return dtype == ZINF_DTYPE_BF16 ? vec_load_bf16(at) : vec_load_f16(at);
}

ALWAYS_INLINE void store_as(void *x, enum zinf_dtype dtype, uint64_t i, vec value)
{
    void *at = (char *)x + i * (dtype == ZINF_DTYPE_F32 ? 4 : 2);
    if (dtype == ZINF_DTYPE_F32)
        vec_store(at, value);
    else if (dtype == ZINF_DTYPE_BF16)
        vec_store_bf16(at, value);
    else if (dtype == ZINF_DTYPE_F16)
        vec_store_f16(at, value);
}

/* What the kernels make of an array's parameter copy. */
ALWAYS_INLINE enum zinf_dtype param_form(const struct zinf_optim_array *a)
{
    return a->remainder ? SPLIT_MASTER : a->param ? a->param_dtype : NO_PARAM;
}

ALWAYS_INLINE bool has_moment2(enum zinf_optim_kind kind)
{
    return kind == ZINF_OPTIM_ADAMW || kind == ZINF_OPTIM_ADAM || kind == OPTIM_STREAM2;
}

/* optim_scalars, each in every lane. A local copy: the stores of a loop cannot alias it. */
struct lanes {
    vec grad_scale, beta1, one_minus_beta1, beta2, one_minus_beta2, root_correction, eps;
    vec weight_decay, lr, lr_decay, step_size;
    bool decay;
};

ALWAYS_INLINE struct lanes lanes_of(const struct optim_scalars *s)
{
    return (struct lanes){
        .grad_scale = vec_set1(s->grad_scale),
        .beta1 = vec_set1(s->beta1),
        .one_minus_beta1 = vec_set1(s->one_minus_beta1),
        .beta2 = vec_set1(s->beta2),
        .one_minus_beta2 = vec_set1(s->one_minus_beta2),
        .root_correction = vec_set1(s->root_correction),
        .eps = vec_set1(s->eps),
        .weight_decay = vec_set1(s->weight_decay),
        .lr = vec_set1(s->lr),
        .lr_decay = vec_set1(s->lr_decay),
        .step_size = vec_set1(s->step_size),
        .decay = s->decay,
    };
}

/* ---- the formulas: g is the scaled gradient; p, m and v are updated ---- */

ALWAYS_INLINE void update_adam(const struct lanes *k, bool decoupled, vec g, vec *p, vec *m, vec *v)
{
    if (!decoupled && k->decay)
        g = vec_fma(k->weight_decay, *p, g);
    *m = vec_fma(k->one_minus_beta1, g, vec_mul(k->beta1, *m));
    *v = vec_fma(k->one_minus_beta2, vec_mul(g, g), vec_mul(k->beta2, *v));
    vec d = vec_add(vec_div(vec_sqrt(*v), k->root_correction), k->eps);
    if (decoupled && k->decay)
        *p = vec_sub(*p, vec_mul(k->lr_decay, *p));
    *p = vec_sub(*p, vec_mul(k->step_size, vec_div(*m, d)));
}

ALWAYS_INLINE void update_lion(const struct lanes *k, vec g, vec *p, vec *m)
{
    vec c = vec_fma(k->one_minus_beta1, g, vec_mul(k->beta1, *m));
    if (k->decay)
        *p = vec_sub(*p, vec_mul(k->lr_decay, *p));
    *p = vec_sub(*p, vec_sign(c, k->lr));
    *m = vec_fma(k->one_minus_beta2, g, vec_mul(k->beta2, *m));
}

ALWAYS_INLINE void update_adagrad(const struct lanes *k, vec g, vec *p, vec *sum)
{
    if (k->decay)
        g = vec_fma(k->weight_decay, *p, g);
    *sum = vec_fma(g, g, *sum);
    *p = vec_sub(*p, vec_mul(k->lr, vec_div(g, vec_add(vec_sqrt(*sum), k->eps))));
}

ALWAYS_INLINE void update_sgd(const struct lanes *k, vec g, vec *p, vec *momentum)
{
    if (k->decay)
        g = vec_fma(k->weight_decay, *p, g);
    *momentum = vec_fma(k->beta1, *momentum, g);
    *p = vec_sub(*p, vec_mul(k->lr, *momentum));
}

/* The roof: the same loads and stores with the least arithmetic between them. */
ALWAYS_INLINE void update_stream(vec g, vec *p, vec *m, vec *v)
{
    *p = vec_add(*p, g);
    *m = vec_add(*m, g);
    *v = vec_add(*v, g);
}

/* ---- one vector of an array, at element i; its parameter copy goes to element j of param ---- */

/* Hardware prefetchers start late, and the arithmetic between loads leaves few of them in flight:
 * each line of every array is asked for this far ahead (1.5 to 3 KiB measure alike). */
#define PREFETCH_BYTES 2048u

ALWAYS_INLINE void prefetch_line(bool moment2, enum zinf_dtype grad_dtype, bool split,
                                 const struct zinf_optim_array *a, uint64_t i)
{
    uint64_t ahead = i + PREFETCH_BYTES / sizeof(float);
    if (split) {
        __builtin_prefetch((const uint16_t *)a->param + ahead, 1);
        __builtin_prefetch(a->remainder + ahead, 1);
    } else {
        __builtin_prefetch(a->master + ahead, 1);
    }
    __builtin_prefetch(a->moment1 + ahead, 1);
    if (moment2)
        __builtin_prefetch(a->moment2 + ahead, 1);
    __builtin_prefetch(element_at(a->grad, grad_dtype, ahead));
}

ALWAYS_INLINE void step_vector(enum zinf_optim_kind kind, enum zinf_dtype grad_dtype,
                               enum zinf_dtype param_dtype, const struct lanes *k,
                               const struct zinf_optim_array *a, uint64_t i, void *param,
                               uint64_t j)
{
    vec g = vec_mul(load_as(a->grad, grad_dtype, i), k->grad_scale);
    vec p = param_dtype == SPLIT_MASTER
                ? vec_load_split((const uint16_t *)a->param + i, a->remainder + i)
                : vec_load(a->master + i);
    vec m = vec_load(a->moment1 + i);
    if (has_moment2(kind)) {
        vec v = vec_load(a->moment2 + i);
        if (kind == OPTIM_STREAM2)
            update_stream(g, &p, &m, &v);
        else
            update_adam(k, kind == ZINF_OPTIM_ADAMW, g, &p, &m, &v);
        vec_store(a->moment2 + i, vec_canonical(v));
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
    vec_store(a->moment1 + i, vec_canonical(m));
    if (param_dtype == SPLIT_MASTER) {
        vec_store_split((uint16_t *)a->param + i, a->remainder + i, p);
        return;
    }
    vec_store(a->master + i, p);
    store_as(param, param_dtype, j, p);
}

/* memcpy of count elements of one array, if it is there. */
static void copy_elements(void *to, const void *from, uint64_t count, size_t element_bytes)
{
    if (to && from)
        memcpy(to, from, count * element_bytes);
}

/* Fewer than LANES elements: through padded vectors on the stack. Rare, so of one form. */
static __attribute__((noinline)) void step_partial(enum zinf_optim_kind kind, const struct lanes *k,
                                                   const struct zinf_optim_array *a, uint64_t i,
                                                   uint64_t count)
{
    float master[LANES] = {0}, moment1[LANES] = {0}, moment2[LANES] = {0}, grad[LANES] = {0};
    float param[LANES] = {0};
    uint16_t remainder[LANES] = {0};
    const size_t grad_bytes = a->grad_dtype == ZINF_DTYPE_F32 ? 4 : 2;
    const size_t param_bytes = a->param_dtype == ZINF_DTYPE_F32 ? 4 : 2;
    float *a_master = a->master ? a->master + i : NULL;
    float *a_moment2 = a->moment2 ? a->moment2 + i : NULL;
    char *a_param = a->param ? (char *)a->param + i * param_bytes : NULL;
    uint16_t *a_remainder = a->remainder ? a->remainder + i : NULL;
    const struct zinf_optim_array padded = {.master = master,
                                            .moment1 = moment1,
                                            .moment2 = moment2,
                                            .grad = grad,
                                            .param = param,
                                            .remainder = remainder};
    copy_elements(master, a_master, count, sizeof *master);
    copy_elements(moment1, a->moment1 + i, count, sizeof *moment1);
    copy_elements(moment2, a_moment2, count, sizeof *moment2);
    copy_elements(grad, element_at(a->grad, a->grad_dtype, i), count, grad_bytes);
    copy_elements(param, a_param, count, param_bytes);
    copy_elements(remainder, a_remainder, count, sizeof *remainder);
    step_vector(kind, a->grad_dtype, param_form(a), k, &padded, 0, param, 0);
    copy_elements(a_master, master, count, sizeof *master);
    copy_elements(a->moment1 + i, moment1, count, sizeof *moment1);
    copy_elements(a_moment2, moment2, count, sizeof *moment2);
    copy_elements(a_param, param, count, param_bytes);
    copy_elements(a_remainder, remainder, count, sizeof *remainder);
}

/* ---- loops: kind and dtypes are constants in each copy ---- */

ALWAYS_INLINE void step_tile(enum zinf_optim_kind kind, enum zinf_dtype grad_dtype,
                             enum zinf_dtype param_dtype, const struct lanes *k,
                             const struct zinf_optim_array *a, uint64_t i, void *param, uint64_t j)
{
    for (uint64_t end = i + TILE_ELEMS; i < end; i += LINE_ELEMS, j += LINE_ELEMS) {
        prefetch_line(has_moment2(kind), grad_dtype, param_dtype == SPLIT_MASTER, a, i);
        for (unsigned lane = 0; lane < LINE_ELEMS; lane += LANES)
            step_vector(kind, grad_dtype, param_dtype, k, a, i + lane, param, j + lane);
    }
}

/*
 * The parameter copy is not read again soon, so it is stored past the cache: memory is spared the
 * reading of lines that are overwritten whole. Only whole lines at once: the few buffers that
 * gather such stores are shared with the fills of the loads, and a line that trickles in is thrown
 * out half full (measured: half the speed). So a tile collects its copy in the first-level cache.
 */
ALWAYS_INLINE uint64_t step_loop(enum zinf_optim_kind kind, enum zinf_dtype grad_dtype,
                                 enum zinf_dtype param_dtype, const struct lanes *k,
                                 const struct zinf_optim_array *array, uint64_t i, uint64_t end)
{
    const uint64_t param_bytes = param_dtype == ZINF_DTYPE_F32 ? 4 : 2;
    struct zinf_optim_array a = *array; /* local: pointers stay in registers */
    _Alignas(CACHE_LINE) char tile[TILE_ELEMS * sizeof(float)];
    bool stream = param_dtype < NO_PARAM && HAS_STREAM &&
                  ((uintptr_t)a.param + i * param_bytes) % CACHE_LINE == 0;
    for (; i + TILE_ELEMS <= end; i += TILE_ELEMS) {
        if (!stream) {
            step_tile(kind, grad_dtype, param_dtype, k, &a, i, a.param, i);
            continue;
        }
        step_tile(kind, grad_dtype, param_dtype, k, &a, i, tile, 0);
        for (uint64_t byte = 0; byte < TILE_ELEMS * param_bytes; byte += CACHE_LINE)
            line_stream((char *)a.param + i * param_bytes + byte, tile + byte);
    }
    for (; i + LANES <= end; i += LANES)
        step_vector(kind, grad_dtype, param_dtype, k, &a, i, a.param, i);
    return i;
}

ALWAYS_INLINE uint64_t step_to(enum zinf_optim_kind kind, enum zinf_dtype grad_dtype,
                               const struct lanes *k, const struct zinf_optim_array *a, uint64_t i,
                               uint64_t end)
{
    if (a->remainder)
        return step_loop(kind, grad_dtype, SPLIT_MASTER, k, a, i, end);
    if (!a->param)
        return step_loop(kind, grad_dtype, NO_PARAM, k, a, i, end);
    if (a->param_dtype == ZINF_DTYPE_F32)
        return step_loop(kind, grad_dtype, ZINF_DTYPE_F32, k, a, i, end);
    if (a->param_dtype == ZINF_DTYPE_BF16)
        return step_loop(kind, grad_dtype, ZINF_DTYPE_BF16, k, a, i, end);
    return step_loop(kind, grad_dtype, ZINF_DTYPE_F16, k, a, i, end);
}

ALWAYS_INLINE void step_kind(enum zinf_optim_kind kind, const struct optim_scalars *scalars,
                             const struct zinf_optim_array *a, uint64_t i, uint64_t end)
{
    const struct lanes k = lanes_of(scalars);
    uint64_t head = (0 - (uintptr_t)(a->moment1 + i)) % CACHE_LINE / sizeof(float) % LANES;
    if (head > end - i)
        head = end - i;
    if (head)
        step_partial(kind, &k, a, i, head);
    i += head;
    if (a->grad_dtype == ZINF_DTYPE_F32)
        i = step_to(kind, ZINF_DTYPE_F32, &k, a, i, end);
    else if (a->grad_dtype == ZINF_DTYPE_BF16)
        i = step_to(kind, ZINF_DTYPE_BF16, &k, a, i, end);
    else
        i = step_to(kind, ZINF_DTYPE_F16, &k, a, i, end);
    if (i < end)
        step_partial(kind, &k, a, i, end - i);
}

static __attribute__((noinline)) void step_adamw(const struct optim_scalars *s,
                                                 const struct zinf_optim_array *a, uint64_t begin,
                                                 uint64_t end)
{
    step_kind(ZINF_OPTIM_ADAMW, s, a, begin, end);
}

static __attribute__((noinline)) void step_adam(const struct optim_scalars *s,
                                                const struct zinf_optim_array *a, uint64_t begin,
                                                uint64_t end)
{
    step_kind(ZINF_OPTIM_ADAM, s, a, begin, end);
}

static __attribute__((noinline)) void step_lion(const struct optim_scalars *s,
                                                const struct zinf_optim_array *a, uint64_t begin,
                                                uint64_t end)
{
    step_kind(ZINF_OPTIM_LION, s, a, begin, end);
}

static __attribute__((noinline)) void step_adagrad(const struct optim_scalars *s,
                                                   const struct zinf_optim_array *a, uint64_t begin,
                                                   uint64_t end)
{
    step_kind(ZINF_OPTIM_ADAGRAD, s, a, begin, end);
}

static __attribute__((noinline)) void step_sgd(const struct optim_scalars *s,
                                               const struct zinf_optim_array *a, uint64_t begin,
                                               uint64_t end)
{
    step_kind(ZINF_OPTIM_SGD, s, a, begin, end);
}

static __attribute__((noinline)) void step_stream1(const struct optim_scalars *s,
                                                   const struct zinf_optim_array *a, uint64_t begin,
                                                   uint64_t end)
{
    step_kind(OPTIM_STREAM1, s, a, begin, end);
}

static __attribute__((noinline)) void step_stream2(const struct optim_scalars *s,
                                                   const struct zinf_optim_array *a, uint64_t begin,
                                                   uint64_t end)
{
    step_kind(OPTIM_STREAM2, s, a, begin, end);
}

/* One step over fp32 moments. */
static void step_plain(const struct optim_scalars *s, const struct zinf_optim_array *a,
                       uint64_t begin, uint64_t end)
{
    static void (*const steps[])(const struct optim_scalars *, const struct zinf_optim_array *,
                                 uint64_t, uint64_t) = {
        [ZINF_OPTIM_ADAMW] = step_adamw, [ZINF_OPTIM_ADAM] = step_adam,
        [ZINF_OPTIM_LION] = step_lion,   [ZINF_OPTIM_ADAGRAD] = step_adagrad,
        [ZINF_OPTIM_SGD] = step_sgd,     [OPTIM_STREAM1] = step_stream1,
        [OPTIM_STREAM2] = step_stream2,
    };
    steps[s->kind](s, a, begin, end);
}

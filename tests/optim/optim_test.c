/*
 * cpu_optim: the same bits from every instruction set, thread count and cut; the formulas against
 * plain double arithmetic; the steps against PyTorch (fixtures by make_optim.py); what is refused.
 */
#include "optim_support.h"

/* ---- arrays with margins, so that a write outside is seen ---- */

#define MARGIN 64u /* elements before and after */

struct arrays {
    uint64_t n;
    float *master, *moment1, *moment2; /* [n + 2 * MARGIN] */
    void *grad, *param;                /* [n + 2 * MARGIN] fp32's room */
};

static void arrays_fill(struct arrays *a, enum zinf_dtype grad_dtype, uint64_t key, bool special)
{
    uint64_t room = a->n + 2 * MARGIN;
    float *grad = malloc(room * sizeof *grad);
    random_fill(a->master, room, key + 1, special);
    random_fill(a->moment1, room, key + 2, special);
    random_fill(a->moment2, room, key + 3, special);
    for (uint64_t i = 0; i < room; i++)
        a->moment2[i] = fabsf(a->moment2[i]);
    random_fill(grad, room, key + 4, special);
    memset(a->grad, 0, room * sizeof(float));
    zinf_convert(a->grad, grad_dtype, grad, ZINF_DTYPE_F32, room);
    memset(a->param, 0xa5, room * sizeof(float));
    free(grad);
}

static struct arrays arrays_create(uint64_t n)
{
    uint64_t bytes = (n + 2 * MARGIN) * sizeof(float);
    bytes = zinf_align_up(bytes, 64);
    return (struct arrays){n,
                           aligned_alloc(64, bytes),
                           aligned_alloc(64, bytes),
                           aligned_alloc(64, bytes),
                           aligned_alloc(64, bytes),
                           aligned_alloc(64, bytes)};
}

static void arrays_destroy(struct arrays *a)
{
    free(a->master);
    free(a->moment1);
    free(a->moment2);
    free(a->grad);
    free(a->param);
}

/* Elements begin .. end of the arrays, each started shift elements after its margin's start. */
static struct zinf_optim_array view(const struct arrays *a, enum zinf_optim_kind kind,
                                    enum zinf_dtype grad_dtype, enum zinf_dtype param_dtype,
                                    uint64_t begin, uint64_t end)
{
    bool has_param = param_dtype != ZINF_DTYPE_COUNT;
    uint64_t i = MARGIN + begin;
    return (struct zinf_optim_array){
        .n = end - begin,
        .master = a->master + i,
        .moment1 = a->moment1 + i,
        .moment2 = zinf_optim_n_moments(kind) > 1 ? a->moment2 + i : NULL,
        .grad = (char *)a->grad + i * zinf_dtype_bytes(grad_dtype),
        .grad_dtype = grad_dtype,
        .grad_scale = 0.75f,
        .param = has_param ? (char *)a->param + i * zinf_dtype_bytes(param_dtype) : NULL,
        .param_dtype = has_param ? param_dtype : ZINF_DTYPE_F32,
    };
}

static void arrays_copy(struct arrays *to, const struct arrays *from)
{
    size_t bytes = (from->n + 2 * MARGIN) * sizeof(float);
    memcpy(to->master, from->master, bytes);
    memcpy(to->moment1, from->moment1, bytes);
    memcpy(to->moment2, from->moment2, bytes);
    memcpy(to->grad, from->grad, bytes);
    memcpy(to->param, from->param, bytes);
}

static bool arrays_equal(const struct arrays *a, const struct arrays *b)
{
    size_t bytes = (a->n + 2 * MARGIN) * sizeof(float);
    return !memcmp(a->master, b->master, bytes) && !memcmp(a->moment1, b->moment1, bytes) &&
           !memcmp(a->moment2, b->moment2, bytes) && !memcmp(a->grad, b->grad, bytes) &&
           !memcmp(a->param, b->param, bytes);
}

static struct zinf_optim_hyper hyper_of(enum zinf_optim_kind kind)
{
    struct zinf_optim_hyper hyper = usual;
    hyper.kind = kind;
    return hyper;
}

static struct optim_scalars scalars_of(enum zinf_optim_kind kind, bool decay)
{
    struct optim_scalars scalars;
    struct zinf_optim_hyper hyper = hyper_of(kind);
    if (!decay)
        hyper.weight_decay = 0;
    optim_scalars_init(&scalars, &hyper, 0.75f);
    return scalars;
}

/* ---- the same bits ---- */

/* Steps [begin, end) in random pieces of very different lengths. */
static void step_in_pieces(const struct optim_ops *ops, const struct optim_scalars *scalars,
                           const struct arrays *a, enum zinf_dtype grad_dtype,
                           enum zinf_dtype param_dtype, uint64_t key, int n_threads)
{
    uint64_t begin = 0;
    for (uint64_t piece = 0; begin < a->n; piece++) {
        uint32_t counter[4] = {(uint32_t)piece}, bits[4];
        zinf_philox(counter, key, bits);
        uint64_t length = bits[0] % (1u << (bits[1] % 17));
        uint64_t end = begin + length < a->n ? begin + length : a->n;
        struct zinf_optim_array part = view(a, scalars->kind, grad_dtype, param_dtype, begin, end);
        optim_step_with(ops, scalars, &part, n_threads);
        begin = end;
    }
}

static void compare_isa(enum zinf_isa isa, const struct optim_scalars *scalars,
                        enum zinf_dtype grad_dtype, enum zinf_dtype param_dtype,
                        const struct arrays *start, const struct arrays *expected,
                        struct arrays *actual)
{
    const struct optim_ops *ops = optim_ops_of(isa);
    for (int variant = 0; variant < 5; variant++) {
        arrays_copy(actual, start);
        if (variant < 3) { /* one call with 1, 2, 3 threads */
            struct zinf_optim_array whole =
                view(actual, scalars->kind, grad_dtype, param_dtype, 0, actual->n);
            optim_step_with(ops, scalars, &whole, variant + 1);
        } else {
            step_in_pieces(ops, scalars, actual, grad_dtype, param_dtype, 900 + (uint64_t)variant,
                           variant - 2);
        }
        CHECKF(arrays_equal(expected, actual), "%s, grad %s, param %d, %s, variant %d differs",
               zinf_optim_name(scalars->kind), zinf_dtype_name(grad_dtype), (int)param_dtype,
               zinf_isa_name(isa), variant);
    }
}

static void test_same_bits_everywhere(void)
{
    enum { N = 49157 }; /* enough for three threads, and an odd tail */
    struct arrays start = arrays_create(N), expected = arrays_create(N), actual = arrays_create(N);
    for (int grad = 0; grad < ZINF_DTYPE_COUNT; grad++)
        for (int kind = 0; kind < ZINF_OPTIM_KINDS; kind++)
            for (int param = 0; param <= ZINF_DTYPE_COUNT; param++) {
                struct optim_scalars scalars =
                    scalars_of((enum zinf_optim_kind)kind, (grad + param) % 2);
                enum zinf_dtype grad_dtype = (enum zinf_dtype)grad;
                enum zinf_dtype param_dtype = (enum zinf_dtype)param;
                if (!kind && !param)
                    arrays_fill(&start, grad_dtype, 100, true);
                arrays_copy(&expected, &start);
                struct zinf_optim_array whole =
                    view(&expected, scalars.kind, grad_dtype, param_dtype, 0, expected.n);
                optim_step_with(&optim_ops_scalar, &scalars, &whole, 1);
                for (int isa = ZINF_ISA_SCALAR; isa <= (int)zinf_isa(); isa++)
                    compare_isa((enum zinf_isa)isa, &scalars, grad_dtype, param_dtype, &start,
                                &expected, &actual);
            }
    arrays_destroy(&start);
    arrays_destroy(&expected);
    arrays_destroy(&actual);
}

static void test_same_bits_at_any_alignment(void)
{
    enum { N = 131 };
    struct arrays expected = arrays_create(N + 32), actual = arrays_create(N + 32);
    struct optim_scalars scalars = scalars_of(ZINF_OPTIM_ADAMW, true);
    for (int isa = ZINF_ISA_SCALAR; isa <= (int)zinf_isa(); isa++)
        for (uint64_t begin = 0; begin < 32; begin++)
            for (uint64_t length = 0; length < 100; length += 1 + length / 20) {
                enum zinf_dtype param_dtype = (enum zinf_dtype)(length % 3);
                arrays_fill(&expected, ZINF_DTYPE_BF16, begin, true);
                arrays_fill(&actual, ZINF_DTYPE_BF16, begin, true);
                struct zinf_optim_array left = view(&expected, scalars.kind, ZINF_DTYPE_BF16,
                                                    param_dtype, begin, begin + length);
                struct zinf_optim_array right = view(&actual, scalars.kind, ZINF_DTYPE_BF16,
                                                     param_dtype, begin, begin + length);
                optim_step_with(&optim_ops_scalar, &scalars, &left, 1);
                optim_step_with(optim_ops_of((enum zinf_isa)isa), &scalars, &right, 1);
                CHECKF(arrays_equal(&expected, &actual), "%s from %d, %d elements",
                       zinf_isa_name((enum zinf_isa)isa), (int)begin, (int)length);
            }
    arrays_destroy(&expected);
    arrays_destroy(&actual);
}

static void test_param_is_the_rounded_master(void)
{
    struct arrays a = arrays_create(5000);
    uint16_t *rounded = malloc(5000 * sizeof *rounded);
    for (int dtype = ZINF_DTYPE_BF16; dtype <= ZINF_DTYPE_F16; dtype++) {
        struct zinf_optim_hyper hyper = hyper_of(ZINF_OPTIM_ADAMW);
        arrays_fill(&a, ZINF_DTYPE_F32, 5, true);
        struct zinf_optim_array array =
            view(&a, hyper.kind, ZINF_DTYPE_F32, (enum zinf_dtype)dtype, 0, a.n);
        CHECK(!zinf_optim_step(&hyper, &array, 1));
        zinf_convert(rounded, (enum zinf_dtype)dtype, array.master, ZINF_DTYPE_F32, a.n);
        CHECK(!memcmp(rounded, array.param, a.n * sizeof *rounded));
        uint64_t nans = 0;
        for (uint64_t i = 0; i < a.n; i++)
            if (isnan(array.master[i])) {
                nans++;
                CHECKF(rounded[i] == (dtype == ZINF_DTYPE_BF16 ? 0x7fc0 : 0x7e00), "NaN %04x",
                       rounded[i]);
            }
        CHECK(nans > 10);
    }
    free(rounded);
    arrays_destroy(&a);
}

/* ---- the formulas, in double ---- */

struct state {
    double p, m, v;
};

static void step_double(const struct zinf_optim_hyper *h, double g, struct state *s)
{
    double b1 = (double)h->beta1, b2 = (double)h->beta2, lr = (double)h->lr;
    double wd = (double)h->weight_decay, eps = (double)h->eps, t = (double)h->step;
    if (h->kind != ZINF_OPTIM_ADAMW && h->kind != ZINF_OPTIM_LION)
        g += wd * s->p;
    else
        s->p *= 1 - lr * wd;
    if (h->kind == ZINF_OPTIM_ADAMW || h->kind == ZINF_OPTIM_ADAM) {
        s->m = b1 * s->m + (1 - b1) * g;
        s->v = b2 * s->v + (1 - b2) * g * g;
        double mean = h->bias_correction ? s->m / (1 - pow(b1, t)) : s->m;
        double square = h->bias_correction ? s->v / (1 - pow(b2, t)) : s->v;
        s->p -= lr * mean / (sqrt(square) + eps);
    } else if (h->kind == ZINF_OPTIM_LION) {
        double c = b1 * s->m + (1 - b1) * g;
        s->p -= lr * (double)((c > 0) - (c < 0));
        s->m = b2 * s->m + (1 - b2) * g;
    } else if (h->kind == ZINF_OPTIM_ADAGRAD) {
        s->m += g * g;
        s->p -= lr * g / (sqrt(s->m) + eps);
    } else {
        s->m = b1 * s->m + g;
        s->p -= lr * s->m;
    }
}

static void compare_double(enum zinf_optim_kind kind, bool bias_correction)
{
    enum { N = 1000, STEPS = 20 };
    static float master[N], moment1[N], moment2[N], grad[N];
    static struct state reference[N];
    struct zinf_optim_hyper hyper = hyper_of(kind);
    struct zinf_optim_array array = {.n = N,
                                     .master = master,
                                     .moment1 = moment1,
                                     .moment2 = moment2,
                                     .grad = grad,
                                     .grad_scale = 0.5f};
    double worst = 0;
    hyper.bias_correction = bias_correction;
    memset(moment1, 0, sizeof moment1);
    memset(moment2, 0, sizeof moment2);
    for (int i = 0; i < N; i++) {
        master[i] = (i % 2 ? 2.0f : -2.0f) + random_value((uint64_t)i, 1, false);
        reference[i] = (struct state){.p = (double)master[i]};
    }
    for (hyper.step = 1; hyper.step <= STEPS; hyper.step++) {
        for (int i = 0; i < N; i++) {
            grad[i] = random_value((uint64_t)i, 10 + hyper.step, false);
            step_double(&hyper, (double)grad[i] * 0.5, &reference[i]);
        }
        CHECK(!zinf_optim_step(&hyper, &array, 2));
    }
    for (int i = 0; i < N; i++)
        worst = fmax(worst, fabs((double)master[i] - reference[i].p) / fabs(reference[i].p));
    CHECKF(worst < 1e-6, "%s is off by %.2g", zinf_optim_name(kind), worst);
}

static void test_formulas_in_double(void)
{
    for (int kind = 0; kind < ZINF_OPTIM_KINDS; kind++) {
        compare_double((enum zinf_optim_kind)kind, true);
        compare_double((enum zinf_optim_kind)kind, false);
    }
}

static void test_lion_leaves_zero_alone(void)
{
    float master = 1, moment = 0, grad = 0;
    struct zinf_optim_hyper hyper = hyper_of(ZINF_OPTIM_LION);
    struct zinf_optim_array array = {
        .n = 1, .master = &master, .moment1 = &moment, .grad = &grad, .grad_scale = 1};
    hyper.weight_decay = 0;
    CHECK(!zinf_optim_step(&hyper, &array, 1));
    CHECK(master == 1);
    grad = -1e-30f;
    CHECK(!zinf_optim_step(&hyper, &array, 1));
    CHECK(master == 1.01f);
}

/* ---- PyTorch ---- */

static void compare_torch(const char *name)
{
    const float *values;
    struct fixture *f = fixture_read(name, 0, &values);
    if (!f)
        return;
    const uint32_t n = f->n;
    float *work = calloc(4 * (size_t)n, sizeof *work), *grad = work + 3 * n;
    memcpy(work, values, n * sizeof *work);
    struct zinf_optim_array array = {.n = n,
                                     .master = work,
                                     .moment1 = work + n,
                                     .moment2 = work + 2 * n,
                                     .grad = grad,
                                     .grad_scale = 1};
    for (uint32_t step = 1; step <= f->steps; step++) {
        struct zinf_optim_hyper hyper = {.kind = (enum zinf_optim_kind)f->kind,
                                         .lr = f->lr,
                                         .beta1 = f->beta1,
                                         .beta2 = f->beta2,
                                         .eps = f->eps,
                                         .weight_decay = f->weight_decay,
                                         .bias_correction = true,
                                         .step = step};
        fixture_grad(f, values, step, grad);
        CHECK(!zinf_optim_step(&hyper, &array, 1));
    }
    fixture_compare(f, values, work, name);
    free(work);
    free(f);
}

static void test_against_torch(void)
{
    compare_torch("adamw");
    compare_torch("adam");
    compare_torch("adam_plain");
    compare_torch("adagrad");
    compare_torch("sgd");
}

/* ---- what is refused ---- */

static void test_refusals_change_nothing(void)
{
    float memory[64], kept[64];
    struct zinf_optim_hyper good = hyper_of(ZINF_OPTIM_ADAMW), hyper;
    struct zinf_optim_array fine = {.n = 8,
                                    .master = memory,
                                    .moment1 = memory + 8,
                                    .moment2 = memory + 16,
                                    .grad = memory + 24,
                                    .grad_scale = 1,
                                    .param = memory + 32};
    struct zinf_optim_array array;
    for (int i = 0; i < 64; i++)
        kept[i] = memory[i] = 1;
#define REFUSED(change)                                                                            \
    do {                                                                                           \
        hyper = good;                                                                              \
        array = fine;                                                                              \
        change;                                                                                    \
        CHECKF(zinf_optim_step(&hyper, &array, 1) == -EINVAL && *zinf_error(), "%s", #change);     \
        CHECKF(!memcmp(memory, kept, sizeof memory), "%s changed something", #change);             \
    } while (0)
    REFUSED(hyper.step = 0);
    REFUSED(hyper.kind = ZINF_OPTIM_KINDS);
    REFUSED(hyper.lr = -1);
    REFUSED(hyper.lr = NAN);
    REFUSED(hyper.beta1 = 1);
    REFUSED(hyper.beta2 = -0.1f);
    REFUSED(hyper.beta2 = NAN);
    REFUSED(hyper.eps = INFINITY);
    REFUSED(hyper.weight_decay = -1);
    REFUSED(array.grad_scale = INFINITY);
    REFUSED(array.master = NULL);
    REFUSED(array.moment1 = NULL);
    REFUSED(array.moment2 = NULL);
    REFUSED(array.grad = NULL);
    REFUSED(array.grad_dtype = ZINF_DTYPE_COUNT);
    REFUSED(array.param_dtype = ZINF_DTYPE_COUNT);
    REFUSED(array.moment1 = memory + 7);
    REFUSED(array.grad = array.master);
    REFUSED(array.param = array.master);
    REFUSED(array.param = (char *)array.grad + 31);
    REFUSED(array.n = UINT64_MAX / 2);
#undef REFUSED
    array = fine;
    array.n = 0;
    CHECK(!zinf_optim_step(&good, &array, 3));
    CHECK(!memcmp(memory, kept, sizeof memory));
    CHECK(!zinf_optim_step(&good, &fine, -1)); /* a thread count below 1 is one thread */
    CHECK(memcmp(memory, kept, sizeof memory));
}

int main(void)
{
    TAP_RUN(test_same_bits_everywhere);
    TAP_RUN(test_same_bits_at_any_alignment);
    TAP_RUN(test_param_is_the_rounded_master);
    TAP_RUN(test_formulas_in_double);
    TAP_RUN(test_lion_leaves_zero_alone);
    TAP_RUN(test_against_torch);
    TAP_RUN(test_refusals_change_nothing);
    return tap_done();
}

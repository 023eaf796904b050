/*
 * cpu_optim: forms of state other than fp32 arrays. Split masters must hold the bits of whole ones,
 * on every instruction set and cut.
 */
#include "optim_support.h"

enum { N = 40007 };

/* Random bits: every exponent, denormals, infinities, NaNs; one in eight lies on a tie of bf16. */
static void fill(float *x, uint64_t n, uint64_t key)
{
    for (uint64_t i = 0; i < n; i++) {
        uint32_t counter[4] = {(uint32_t)i}, bits[4];
        zinf_philox(counter, key, bits);
        if (bits[1] % 8 == 0)
            bits[0] = (bits[0] & 0xffff0000u) | 0x8000u;
        if (bits[1] % 64 == 1)
            bits[0] = (bits[0] & 0x80000000u) | 0x7f800000u;
        if (bits[1] % 8 > 4) /* ordinary numbers, too */
            bits[0] = (bits[0] & 0x80ffffffu) | 0x3e000000u;
        memcpy(x + i, bits, sizeof *x);
    }
}

static void fill_positive(float *x, uint64_t n, uint64_t key)
{
    fill(x, n, key);
    for (uint64_t i = 0; i < n; i++)
        x[i] = fabsf(x[i]);
}

/* ---- split master ---- */

static void test_split_and_join(void)
{
    static float master[N], back[N];
    static uint16_t param[N], remainder[N];
    fill(master, N, 1);
    zinf_optim_split(param, remainder, master, N, 2);
    zinf_optim_join(back, param, remainder, N, 2);
    int ties = 0, nans = 0;
    for (int i = 0; i < N; i++) {
        uint32_t bits, joined;
        memcpy(&bits, &master[i], 4);
        memcpy(&joined, &back[i], 4);
        if (isnan(master[i])) {
            nans++;
            CHECK(joined == 0x7fc00000u && param[i] == 0x7fc0);
            continue;
        }
        CHECKF(bits == joined, "%08x became %08x", bits, joined);
        if ((bits & 0xffffu) == 0x8000u) {
            ties++;
            CHECK(param[i] == (bits >> 16) + 1);
        } else {
            CHECK(param[i] == zinf_bf16_from_f32(master[i]));
        }
    }
    CHECKF(ties > 1000 && nans > 10, "%d ties, %d NaNs", ties, nans);
}

static void compare_split(enum zinf_optim_kind kind, enum zinf_isa isa, uint64_t from, uint64_t n,
                          int n_threads)
{
    static float master[N], whole_moment1[N], whole_moment2[N], moment1[N], moment2[N], grad[N];
    static float joined[N];
    static uint16_t param[N], remainder[N];
    struct zinf_optim_hyper h = usual;
    struct optim_scalars scalars;
    h.kind = kind;
    fill(master, N, 11);
    fill(grad, N, 12);
    fill(whole_moment1, N, 13);
    fill_positive(whole_moment2, N, 14);
    memcpy(moment1, whole_moment1, sizeof moment1);
    memcpy(moment2, whole_moment2, sizeof moment2);
    zinf_optim_split(param, remainder, master, N, 1);
    zinf_optim_join(master, param, remainder, N, 1); /* NaNs canonical in both */
    optim_scalars_init(&scalars, &h, 0.5f);
    bool two = zinf_optim_n_moments(kind) > 1;
    struct zinf_optim_array whole = {.n = n,
                                     .master = master + from,
                                     .moment1 = whole_moment1 + from,
                                     .moment2 = two ? whole_moment2 + from : NULL,
                                     .grad = grad + from,
                                     .grad_scale = 0.5f};
    struct zinf_optim_array split = whole;
    split.master = NULL;
    split.moment1 = moment1 + from;
    split.moment2 = two ? moment2 + from : NULL;
    split.param = param + from;
    split.param_dtype = ZINF_DTYPE_BF16;
    split.remainder = remainder + from;
    optim_step_with(&optim_ops_scalar, &scalars, &whole, 1);
    optim_step_with(optim_ops_of(isa), &scalars, &split, n_threads);
    zinf_optim_join(joined, param, remainder, N, 1);
    CHECKF(!memcmp(joined, master, sizeof joined) &&
               !memcmp(moment1, whole_moment1, sizeof moment1) &&
               !memcmp(moment2, whole_moment2, sizeof moment2),
           "%s, %s, %d elements from %d, %d threads", zinf_optim_name(kind), zinf_isa_name(isa),
           (int)n, (int)from, n_threads);
}

static void test_split_steps_like_whole(void)
{
    for (int kind = 0; kind < ZINF_OPTIM_KINDS; kind++)
        for (int isa = 0; isa <= (int)zinf_isa(); isa++) {
            enum zinf_optim_kind k = (enum zinf_optim_kind)kind;
            compare_split(k, (enum zinf_isa)isa, 0, N, 1);
            compare_split(k, (enum zinf_isa)isa, 0, N, 2);
            compare_split(k, (enum zinf_isa)isa, 3, 1234, 1);
            compare_split(k, (enum zinf_isa)isa, 7, 5, 1);
        }
}

static void test_split_refusals(void)
{
    float memory[64] = {0};
    uint16_t remainder[8] = {0};
    struct zinf_optim_array fine = {.n = 8,
                                    .moment1 = memory,
                                    .moment2 = memory + 8,
                                    .grad = memory + 16,
                                    .grad_scale = 1,
                                    .param = memory + 24,
                                    .param_dtype = ZINF_DTYPE_BF16,
                                    .remainder = remainder};
    struct zinf_optim_array array = fine;
    array.master = memory + 32;
    CHECK(zinf_optim_step(&usual, &array, 1) == -EINVAL);
    array = fine;
    array.param_dtype = ZINF_DTYPE_F16;
    CHECK(zinf_optim_step(&usual, &array, 1) == -EINVAL);
    array = fine;
    array.param = NULL;
    CHECK(zinf_optim_step(&usual, &array, 1) == -EINVAL);
    array = fine;
    array.remainder = (uint16_t *)array.param + 7;
    CHECK(zinf_optim_step(&usual, &array, 1) == -EINVAL);
    CHECK(!zinf_optim_step(&usual, &fine, 1));
}

/* ---- bf16 moments ---- */

static uint16_t random_half(uint64_t element, uint64_t key, uint64_t step, unsigned moment)
{
    uint64_t block = element / 64 * 16 + element % 16;
    uint32_t counter[4] = {(uint32_t)block, (uint32_t)(block >> 32), (uint32_t)step,
                           (uint32_t)(step >> 32)};
    uint32_t word[4];
    zinf_philox(counter, key, word);
    return (uint16_t)(word[element % 64 / 16] >> (16 * moment));
}

static uint16_t rounded(float value, bool stochastic, uint64_t element, unsigned moment)
{
    uint32_t bits;
    if (!stochastic)
        return zinf_bf16_from_f32(value);
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + random_half(element, 77, usual.step, moment)) >> 16);
}

static float master[N], wide1[N], wide2[N], grad[N], half_master[N];
static uint16_t half1[N], half2[N];

/* A step over fp32 moments whose result is rounded afterwards must be what the form gives. */
static void compare_half(enum zinf_isa isa, bool stochastic, uint64_t cut, int n_threads)
{
    const uint64_t first = ((uint64_t)1 << 36) + 5;
    struct optim_scalars scalars;
    fill(master, N, 21);
    fill(grad, N, 22);
    fill(wide1, N, 23);
    fill_positive(wide2, N, 24);
    zinf_convert(half1, ZINF_DTYPE_BF16, wide1, ZINF_DTYPE_F32, N);
    zinf_convert(half2, ZINF_DTYPE_BF16, wide2, ZINF_DTYPE_F32, N);
    zinf_convert(wide1, ZINF_DTYPE_F32, half1, ZINF_DTYPE_BF16, N);
    zinf_convert(wide2, ZINF_DTYPE_F32, half2, ZINF_DTYPE_BF16, N);
    memcpy(half_master, master, sizeof master);
    optim_scalars_init(&scalars, &usual, 1);
    struct zinf_optim_array wide = {.n = N,
                                    .master = master,
                                    .moment1 = wide1,
                                    .moment2 = wide2,
                                    .grad = grad,
                                    .grad_scale = 1};
    optim_step_with(&optim_ops_scalar, &scalars, &wide, 1);
    for (uint64_t from = 0; from < N; from = from ? N : cut) {
        struct zinf_optim_array half = {.n = from ? N - from : cut,
                                        .master = half_master + from,
                                        .half_moment1 = half1 + from,
                                        .half_moment2 = half2 + from,
                                        .grad = grad + from,
                                        .grad_scale = 1,
                                        .stochastic_rounding = stochastic,
                                        .rounding_key = 77,
                                        .first_element = first + from};
        optim_step_with(optim_ops_of(isa), &scalars, &half, n_threads);
    }
    CHECK(!memcmp(master, half_master, sizeof master));
    int wrong = 0;
    for (uint64_t i = 0; i < N; i++)
        wrong += half1[i] != rounded(wide1[i], stochastic, first + i, 0) ||
                 half2[i] != rounded(wide2[i], stochastic, first + i, 1);
    CHECKF(!wrong, "%s, stochastic %d, cut at %d, %d threads: %d moments differ",
           zinf_isa_name(isa), stochastic, (int)cut, n_threads, wrong);
}

static void test_half_moments(void)
{
    for (int isa = 0; isa <= (int)zinf_isa(); isa++)
        for (int stochastic = 0; stochastic < 2; stochastic++) {
            compare_half((enum zinf_isa)isa, stochastic, N, 1);
            compare_half((enum zinf_isa)isa, stochastic, 1000, 2);
            compare_half((enum zinf_isa)isa, stochastic, 33, 1);
        }
}

/* A moment that gains less than half a unit each step stands still when rounded to nearest, and
 * follows its mean when rounded stochastically. */
static void test_stochastic_rounding_is_unbiased(void)
{
    for (int i = 0; i < N; i++) {
        master[i] = grad[i] = 1;
        half1[i] = half2[i] = 0x3f00; /* 0.5 */
    }
    struct zinf_optim_hyper h = usual;
    struct zinf_optim_array array = {.n = N,
                                     .master = master,
                                     .half_moment1 = half1,
                                     .half_moment2 = half2,
                                     .grad = grad,
                                     .grad_scale = 1,
                                     .stochastic_rounding = true,
                                     .rounding_key = 5};
    h.beta2 = 0.999f;
    for (h.step = 1; h.step <= 20; h.step++)
        CHECK(!zinf_optim_step(&h, &array, 2));
    double mean = 0;
    for (int i = 0; i < N; i++)
        mean += (double)zinf_bf16_to_f32(half2[i]) / N;
    CHECKF(fabs(mean - (1 - 0.5 * pow(0.999, 20))) < 1e-4, "the mean is %.6f", mean);
}

int main(void)
{
    TAP_RUN(test_split_and_join);
    TAP_RUN(test_split_steps_like_whole);
    TAP_RUN(test_split_refusals);
    TAP_RUN(test_half_moments);
    TAP_RUN(test_stochastic_rounding_is_unbiased);
    return tap_done();
}

/*
 * cpu_optim: AdamW with 8-bit moments. A double-precision reference that knows the format from the
 * header alone; the same bits from every instruction set, cut and thread count; odd blocks; and
 * that it trains like AdamW with fp32 moments.
 */
#include "base/random.h"
#include "cpu_optim/optim_internal.h"
#include "tap.h"

#include <math.h>
#include <stdlib.h>

enum { N = 5 * 4096 + 777, BLOCK = ZINF_OPTIM_8BIT_BLOCK, BLOCKS = (N + BLOCK - 1) / BLOCK };

static const struct zinf_optim_hyper hyper = {.kind = ZINF_OPTIM_ADAMW,
                                              .lr = 1e-2f,
                                              .beta1 = 0.9f,
                                              .beta2 = 0.999f,
                                              .eps = 1e-8f,
                                              .weight_decay = 0.1f,
                                              .bias_correction = true,
                                              .step = 3};

struct state {
    float master[N], grad[N], scale1[BLOCKS], scale2[BLOCKS];
    int8_t codes1[N];
    uint8_t codes2[N];
};
static struct state expected, actual;

static float random_value(uint64_t i, uint64_t key)
{
    uint32_t counter[4] = {(uint32_t)i}, bits[4];
    zinf_philox(counter, key, bits);
    return (zinf_uniform(bits[0]) - 0.5f) * ldexpf(1, -(int)(bits[1] % 30));
}

/* Any codes at all, but no moment2 of 0 in a block that has others. */
static void fill(struct state *s, uint64_t key)
{
    for (uint64_t i = 0; i < N; i++) {
        uint32_t counter[4] = {(uint32_t)i}, bits[4];
        zinf_philox(counter, key, bits);
        s->master[i] = random_value(i, key + 1);
        s->grad[i] = bits[3] % 16 ? random_value(i, key + 2) : 0;
        s->codes1[i] = (int8_t)(bits[0] % 255 - 127);
        s->codes2[i] = (uint8_t)(bits[1] % 255 + 1);
    }
    for (uint64_t b = 0; b < BLOCKS; b++) {
        s->scale1[b] = fabsf(random_value(b, key + 3));
        s->scale2[b] = fabsf(random_value(b, key + 4));
    }
}

static struct zinf_optim_array view(struct state *s, uint64_t begin, uint64_t end)
{
    return (struct zinf_optim_array){.n = end - begin,
                                     .master = s->master + begin,
                                     .byte_moment1 = s->codes1 + begin,
                                     .byte_moment2 = s->codes2 + begin,
                                     .scale1 = s->scale1 + begin / BLOCK,
                                     .scale2 = s->scale2 + begin / BLOCK,
                                     .grad = s->grad + begin,
                                     .grad_scale = 1};
}

static void step(enum zinf_isa isa, struct state *s, uint64_t cut, int n_threads)
{
    struct optim_scalars scalars;
    optim_scalars_init(&scalars, &hyper, 1);
    for (uint64_t i = 0; i < N; i += cut) {
        struct zinf_optim_array part = view(s, i, i + cut < N ? i + cut : N);
        optim_step_with(optim_ops_of(isa), &scalars, &part, n_threads);
    }
}

static void test_same_bits_everywhere(void)
{
    fill(&expected, 5);
    step(ZINF_ISA_SCALAR, &expected, N, 1);
    for (int isa = 0; isa <= (int)zinf_isa(); isa++)
        for (int variant = 0; variant < 4; variant++) {
            const uint64_t cuts[] = {N, N, BLOCK, 3 * BLOCK};
            fill(&actual, 5);
            step((enum zinf_isa)isa, &actual, cuts[variant], variant % 2 + 1);
            CHECKF(!memcmp(&expected, &actual, sizeof actual), "%s, variant %d differs",
                   zinf_isa_name((enum zinf_isa)isa), variant);
        }
}

/* Blocks 1 .. 3 become NaN, 0, and one of the smallest that is not 0. */
static void fill_odd(struct state *s, uint64_t key)
{
    fill(s, key);
    s->grad[BLOCK + 7] = NAN;
    for (uint64_t i = 2 * BLOCK; i < 4 * BLOCK; i++) {
        s->grad[i] = 0;
        s->codes1[i] = (int8_t)(i < 3 * BLOCK ? 0 : s->codes1[i]);
        s->codes2[i] = (uint8_t)(i < 3 * BLOCK ? 0 : s->codes2[i]);
    }
    s->scale1[3] = s->scale2[3] = 0x1.8p-99f;
}

static void test_packing_gives_the_same_codes(void)
{
    static float moment1[N], moment2[N];
    for (uint64_t key = 20; key < 24; key++) {
        fill_odd(&expected, key);
        step(zinf_isa(), &expected, N, 1);
        actual = expected;
        CHECK(expected.scale1[1] != expected.scale1[1] && expected.scale1[2] == 0);
        CHECK(expected.scale1[3] > 0 && expected.scale1[3] < 0x1p-97f);
        for (int threads = 1; threads <= 2; threads++) {
            zinf_optim_unpack_8bit(moment1, 1, expected.codes1, expected.scale1, N, threads);
            zinf_optim_unpack_8bit(moment2, 2, expected.codes2, expected.scale2, N, threads);
            memset(actual.codes1, 0x55, sizeof actual.codes1);
            memset(actual.codes2, 0x55, sizeof actual.codes2);
            memset(actual.scale1, 0x55, sizeof actual.scale1);
            memset(actual.scale2, 0x55, sizeof actual.scale2);
            zinf_optim_pack_8bit(actual.codes1, actual.scale1, 1, moment1, N, threads);
            zinf_optim_pack_8bit(actual.codes2, actual.scale2, 2, moment2, N, threads);
            CHECKF(!memcmp(actual.codes1, expected.codes1, sizeof actual.codes1), "codes 1");
            CHECKF(!memcmp(actual.codes2, expected.codes2, sizeof actual.codes2), "codes 2");
            CHECKF(!memcmp(actual.scale1, expected.scale1, sizeof actual.scale1), "scales 1");
            CHECKF(!memcmp(actual.scale2, expected.scale2, sizeof actual.scale2), "scales 2");
        }
    }
}

/* ---- the format, in double ---- */

/* Of a magnitude c, 1 .. 2^(top + 1) - 1; top is 6 or 7. */
static double code_value(int c, int top)
{
    int e = (int)floor(log2(c));
    double size = ldexp(1, e);
    return c ? pow(10, e - top) * (0.1 + 0.9 * (c + 0.5 - size) / size) : 0;
}

/* The edges of cell c: a value on one belongs to either, when rounding is allowed for. */
static bool in_cell(int c, int top, double value)
{
    int e = c ? (int)floor(log2(c)) : 0, last = (2 << top) - 1;
    double size = ldexp(1, e), decade = pow(10, e - top);
    double low = c ? decade * (0.1 + 0.9 * (c - size) / size) : 0;
    double high = c ? decade * (0.1 + 0.9 * (c + 1 - size) / size) : pow(10, -top) * 0.1;
    return value >= low * (1 - 1e-5) && (value <= high * (1 + 1e-5) || c == last);
}

/* Moments after one step of the state before, and how the codes stand to them. */
static void check_block(const struct state *before, const struct state *after, uint64_t first,
                        uint64_t count)
{
    double m[BLOCK], v[BLOCK], largest1 = 0, largest2 = 0, worst = 0;
    const double b1 = (double)hyper.beta1, b2 = (double)hyper.beta2, lr = (double)hyper.lr;
    const uint64_t b = first / BLOCK;
    int wrong = 0;
    for (uint64_t j = 0; j < count; j++) {
        uint64_t i = first + j;
        int c1 = before->codes1[i];
        double g = (double)before->grad[i], p = (double)before->master[i];
        m[j] = b1 * copysign(code_value(abs(c1), 6), c1) * (double)before->scale1[b] + (1 - b1) * g;
        v[j] = b2 * code_value(before->codes2[i], 7) * (double)before->scale2[b] + (1 - b2) * g * g;
        largest1 = fmax(largest1, fabs(m[j]));
        largest2 = fmax(largest2, v[j]);
        p -= lr * (double)hyper.weight_decay * p;
        double change =
            lr / (1 - pow(b1, 3)) / (sqrt(v[j]) / sqrt(1 - pow(b2, 3)) + (double)hyper.eps);
        double off = fabs((double)after->master[i] - (p - change * m[j]));
        double terms = fabs(m[j] - (1 - b1) * g) + fabs((1 - b1) * g); /* they may cancel */
        worst = fmax(worst, off / (fabs(p) + change * terms));
    }
    CHECKF(worst < 1e-6, "block %d: masters are off by %.2g", (int)b, worst);
    double scale1 = largest1 / code_value(127, 6), scale2 = largest2 / code_value(255, 7);
    CHECKF(fabs((double)after->scale1[b] / scale1 - 1) < 1e-6 &&
               fabs((double)after->scale2[b] / scale2 - 1) < 1e-6,
           "block %d: scales %g %g, not %g %g", (int)b, (double)after->scale1[b],
           (double)after->scale2[b], scale1, scale2);
    for (uint64_t j = 0; j < count; j++) {
        int c1 = after->codes1[first + j], c2 = after->codes2[first + j];
        bool small = v[j] / scale2 < 1e-8; /* stays above 0 */
        wrong += !in_cell(abs(c1), 6, fabs(m[j]) / scale1) || (c1 && (c1 < 0) != (m[j] < 0));
        wrong += small ? c2 != 1 : !in_cell(c2, 7, v[j] / scale2);
    }
    CHECKF(!wrong, "block %d: %d codes are not those of their cells", (int)b, wrong);
}

static void test_against_double(void)
{
    fill(&expected, 40);
    fill(&actual, 40);
    step(zinf_isa(), &actual, N, 1);
    for (uint64_t i = 0; i < N; i += BLOCK)
        check_block(&expected, &actual, i, N - i < BLOCK ? N - i : BLOCK);
}

static void test_codes_are_in_order(void)
{
    for (int top = 6; top <= 7; top++)
        for (int c = 1; c < 2 << top; c++)
            CHECK(code_value(c, top) > code_value(c - 1, top) &&
                  in_cell(c, top, code_value(c, top)));
    CHECK(fabs(code_value(127, 6) - 0.99296875) < 1e-12);
    CHECK(fabs(code_value(1, 6) - 0.55e-6) < 1e-18);
}

/* ---- odd blocks ---- */

static void test_odd_blocks(void)
{
    for (int isa = 0; isa <= (int)zinf_isa(); isa++) {
        fill(&actual, 7);
        memset(actual.codes1, 0, sizeof actual.codes1);
        memset(actual.codes2, 0, sizeof actual.codes2);
        memset(actual.scale1, 0, sizeof actual.scale1);
        memset(actual.scale2, 0, sizeof actual.scale2);
        memset(actual.grad, 0, BLOCK * sizeof *actual.grad);
        actual.grad[BLOCK + 5] = NAN;
        actual.grad[2 * BLOCK + 5] = 1e30f; /* its square is infinite */
        step((enum zinf_isa)isa, &actual, N, 1);
        CHECK(actual.scale1[0] == 0 && actual.scale2[0] == 0);
        for (int i = 0; i < BLOCK; i++)
            CHECK(actual.codes1[i] == 0 && actual.codes2[i] == 0);
        CHECK(isnan(actual.scale1[1]) && isnan(actual.scale2[1]));
        CHECK(isfinite(actual.scale1[2]) && isnan(actual.scale2[2]));
        step((enum zinf_isa)isa, &actual, N, 1);
        CHECK(isnan(actual.master[BLOCK]) && isfinite(actual.master[0]));
        CHECK(isfinite(actual.master[3 * BLOCK]) && actual.codes2[3 * BLOCK]);
    }
}

/* ---- in training ---- */

/* 300 steps towards known targets: the mean distance, which 8 bits may not make much worse. */
static double distance_after(bool bytes)
{
    static float moment1[N], moment2[N];
    struct zinf_optim_hyper h = hyper;
    h.weight_decay = 0;
    fill(&actual, 90);
    memset(actual.codes1, 0, sizeof actual.codes1);
    memset(actual.codes2, 0, sizeof actual.codes2);
    memset(actual.scale1, 0, sizeof actual.scale1);
    memset(actual.scale2, 0, sizeof actual.scale2);
    memset(moment1, 0, sizeof moment1);
    memset(moment2, 0, sizeof moment2);
    struct zinf_optim_array array = view(&actual, 0, N);
    if (!bytes) {
        array.byte_moment1 = NULL;
        array.byte_moment2 = NULL;
        array.scale1 = array.scale2 = NULL;
        array.moment1 = moment1;
        array.moment2 = moment2;
    }
    double sum = 0;
    for (h.step = 1; h.step <= 300; h.step++) {
        for (uint64_t i = 0; i < N; i++) /* curvatures and noise of many sizes */
            actual.grad[i] = (actual.master[i] - 0.3f) * ldexpf(1, -(int)(i % 12)) +
                             random_value(i, h.step + 1000) * 0.01f;
        CHECK(!zinf_optim_step(&h, &array, 2));
    }
    for (uint64_t i = 0; i < N; i++)
        sum += fabs((double)actual.master[i] - 0.3) / N;
    return sum;
}

static void test_trains_like_fp32(void)
{
    double wide = distance_after(false), bytes = distance_after(true);
    CHECKF(bytes < 1.1 * wide + 1e-3, "mean distance %g, with fp32 moments %g", bytes, wide);
    printf("# mean distance %.5f, with fp32 moments %.5f\n", bytes, wide);
}

/* ---- what is refused ---- */

static void test_refusals(void)
{
    struct zinf_optim_hyper h = hyper;
    struct zinf_optim_array fine = view(&actual, 0, N), array = fine;
    CHECK(!zinf_optim_step(&h, &array, 1));
    array.scale2 = NULL;
    CHECK(zinf_optim_step(&h, &array, 1) == -EINVAL);
    array = fine;
    array.moment1 = expected.master;
    CHECK(zinf_optim_step(&h, &array, 1) == -EINVAL);
    array = fine;
    array.scale1 = array.scale2 + BLOCKS - 1;
    CHECK(zinf_optim_step(&h, &array, 1) == -EINVAL);
    h.kind = ZINF_OPTIM_ADAM;
    CHECK(zinf_optim_step(&h, &fine, 1) == -EINVAL);
}

static void test_state_bytes(void)
{
    CHECK(zinf_optim_state_bytes(ZINF_OPTIM_ADAMW, ZINF_OPTIM_MOMENTS_F32, false, 1000) == 12000);
    CHECK(zinf_optim_state_bytes(ZINF_OPTIM_ADAMW, ZINF_OPTIM_MOMENTS_F32, true, 1000) == 10000);
    CHECK(zinf_optim_state_bytes(ZINF_OPTIM_LION, ZINF_OPTIM_MOMENTS_BF16, true, 1000) == 4000);
    CHECK(zinf_optim_state_bytes(ZINF_OPTIM_ADAMW, ZINF_OPTIM_MOMENTS_8BIT, true, 1000) ==
          4000 + 2 * 4 * 4);
    CHECK(zinf_optim_state_bytes(ZINF_OPTIM_SGD, ZINF_OPTIM_MOMENTS_F32, false, 0) == 0);
    CHECK(zinf_adafactor_state_bytes(30, 70, false) == 4 * (2100 + 100));
    CHECK(zinf_adafactor_state_bytes(1, 70, true) == 2 * 70 + 4 * 70);
}

int main(void)
{
    TAP_RUN(test_codes_are_in_order);
    TAP_RUN(test_same_bits_everywhere);
    TAP_RUN(test_packing_gives_the_same_codes);
    TAP_RUN(test_against_double);
    TAP_RUN(test_odd_blocks);
    TAP_RUN(test_trains_like_fp32);
    TAP_RUN(test_refusals);
    TAP_RUN(test_state_bytes);
    return tap_done();
}

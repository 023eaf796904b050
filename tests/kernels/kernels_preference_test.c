/* kernels_preference: losses of pairs against published formulas in double, on hand-made numbers
 * and by finite differences; and noise, element by element. */
#include "kernels_testing.h"

/* ---- pairs ---- */

enum { PAIRS = 2, SEQ = 24, N = 2 * PAIRS * SEQ };

/* Sums of log-probabilities -20, -35 of the first and -25, -30 of the second, of references -22,
 * -34 and -24, -33, over 10, 20 and 8, 16 tokens. */
struct problem {
    int32_t targets[N], labels[2 * PAIRS];
    float losses[N], reference[N], loss[2 * PAIRS], rewards[2 * PAIRS], d_losses[N];
};

static void open_problem(struct problem *p)
{
    static const double sums[] = {-20, -25, -35, -30}, references[] = {-22, -24, -34, -33};
    static const int lengths[] = {10, 8, 20, 16};
    memset(p, 0, sizeof *p);
    for (int row = 0; row < 2 * PAIRS; row++)
        for (int i = 0; i < SEQ; i++) {
            const int at = row * SEQ + i, n = lengths[row];
            p->targets[at] = i >= 2 && i < 2 + n ? 7 : -1;
            p->losses[at] = (float)(-sums[row] / n);
            p->reference[at] = (float)(-references[row] / n);
        }
    for (int pair = 0; pair < PAIRS; pair++)
        p->labels[2 * pair + 1] = -1;
}

static struct zinf_preference args_of(struct problem *p, enum zinf_preference_kind kind, float beta)
{
    return (struct zinf_preference){
        .kind = kind,
        .beta = beta,
        .pairs = PAIRS,
        .seq = SEQ,
        .targets = p->targets,
        .labels = p->labels,
        .losses = p->losses,
        .reference = zinf_preference_has_reference(kind) ? p->reference : NULL,
        .loss = p->loss,
        .rewards = p->rewards,
    };
}

static void check_losses(struct fixture *f, struct problem *p, const struct zinf_preference *a,
                         double first, double second)
{
    CHECKF(!f->ops->preference(f->q, a), "%s", zinf_error());
    CHECKF(fabs((double)p->loss[0] - first) < 2e-6 && fabs((double)p->loss[2] - second) < 2e-6,
           "kind %d: %.8g, %.8g", (int)a->kind, (double)p->loss[0], (double)p->loss[2]);
    CHECK(p->loss[1] == 0 && p->loss[3] == 0);
}

static void golden(struct fixture *f)
{
    struct problem p;
    open_problem(&p);
    struct zinf_preference a = args_of(&p, ZINF_PREFERENCE_DPO, 0.1f);
    check_losses(f, &p, &a, 0.5543552, 0.9130152);
    CHECK(fabs((double)p.rewards[0] - 0.2) < 1e-6 && fabs((double)p.rewards[3] - 0.3) < 1e-6);
    a.margin = 0.5f;    /* has no part in it */
    a.smoothing = 0.1f; /* what "robust" divides by 1 - 2 e, with the other sign */
    check_losses(f, &p, &a, 0.9 * 0.5543552 + 0.1 * 0.8543552, 0.9 * 0.9130152 + 0.1 * 0.5130152);
    a = args_of(&p, ZINF_PREFERENCE_IPO, 0.1f);
    check_losses(f, &p, &a, 21.855625, 27.431406);
    a = args_of(&p, ZINF_PREFERENCE_SIMPO, 2.0f);
    a.margin = 0.5f;
    check_losses(f, &p, &a, 0.1602242, 0.8259394);
    /* log-odds 1.2254821 and 0.1494131, behind the losses of the firsts: 20 and 35 of 30 targets */
    a = args_of(&p, ZINF_PREFERENCE_ORPO, 0.1f);
    const double ratios[] = {0.1 * log1p(exp(-1.2254821)), 0.1 * log1p(exp(-0.1494131))};
    check_losses(f, &p, &a, 20 * 2 / 30.0 + ratios[0], 35 * 2 / 30.0 + ratios[1]);
    for (int i = 0; i < 2; i++) { /* two tokens of the prompt, which its likelihood has, too */
        p.targets[i] = 3;
        p.losses[i] = 0.5f;
    }
    p.labels[0] = 2;
    check_losses(f, &p, &a, 21 * 2 / 32.0 + ratios[0], 35 * 2 / 32.0 + ratios[1]);
}

/* A reference's sums in the place of its tokens. */
static void summed(struct fixture *f)
{
    static const float sums[] = {22, 24, 34, 33};
    struct problem p;
    open_problem(&p);
    struct zinf_preference a = args_of(&p, ZINF_PREFERENCE_DPO, 0.1f);
    a.reference = NULL;
    a.sums = sums;
    check_losses(f, &p, &a, 0.5543552, 0.9130152);
    a.kind = ZINF_PREFERENCE_IPO;
    check_losses(f, &p, &a, 21.855625, 27.431406);
    a.reference = p.reference;
    CHECK(f->ops->preference(f->q, &a) == -EINVAL);
}

/* By central differences of the loss. */
static void slopes(struct fixture *f)
{
    for (int kind = 0; kind < ZINF_PREFERENCE_REWARD; kind++) {
        struct problem p;
        open_problem(&p);
        for (int i = 0; i < 2 && kind == ZINF_PREFERENCE_ORPO; i++)
            p.targets[i] = 3;
        p.labels[0] = kind == ZINF_PREFERENCE_ORPO ? 2 : 0;
        struct zinf_preference a = args_of(&p, (enum zinf_preference_kind)kind, 0.3f);
        a.smoothing = 0.1f;
        a.margin = 0.5f;
        a.loss = a.rewards = NULL;
        a.d_losses = p.d_losses;
        a.scale = 0.5f;
        CHECK(!f->ops->preference(f->q, &a));
        a.loss = p.loss;
        a.rewards = p.rewards;
        a.d_losses = NULL;
        for (int i = 0; i < N; i += i ? 5 : 1) {
            const float at = p.losses[i], step = 0.0625f;
            double difference = 0;
            for (int sign = 1; sign >= -1; sign -= 2) {
                p.losses[i] = at + (float)sign * step;
                CHECK(!f->ops->preference(f->q, &a));
                difference += sign * (double)(p.loss[0] + p.loss[2]);
            }
            p.losses[i] = at;
            const double want = 0.5 * difference / (2 * (double)step);
            CHECKF(near((double)p.d_losses[i], want, 2e-5, 2e-3), "kind %d, %d: %.9g, want %.9g",
                   kind, i, (double)p.d_losses[i], want);
        }
    }
}

/* The rows of a sequence come in parts: from losses to sums, or from slopes to gradients. */
static void each_part(const struct zinf_preference *a, struct zinf_preference_sums *sums,
                      const struct zinf_preference_slopes *of, float *d_losses)
{
    enum { PART = 5 };
    for (int row = 0; row < 2 * PAIRS; row++)
        for (int i = 0; i < SEQ; i += PART) {
            const int at = row * SEQ + i, n = i + PART < SEQ ? PART : SEQ - i;
            const bool has_prompt = a->kind == ZINF_PREFERENCE_ORPO && row % 2 == 0;
            const int before = has_prompt ? a->labels[row] - i : 0;
            if (of)
                zinf_preference_spread(&of[row], a->targets + at, before, n, d_losses + at);
            else
                zinf_preference_add(&sums[row], a->targets + at, a->losses + at,
                                    a->reference ? a->reference + at : NULL, before, n);
        }
}

/* As of all rows together. A score has no rows. */
static void in_parts(struct fixture *f)
{
    for (int kind = 0; kind < ZINF_PREFERENCES; kind++) {
        struct zinf_preference_sums sums[2 * PAIRS] = {{0}};
        struct zinf_preference_slopes of[2 * PAIRS];
        float d_losses[N] = {0}, loss[2 * PAIRS], rewards[2 * PAIRS];
        struct problem p;
        if (kind == ZINF_PREFERENCE_REWARD)
            continue;
        open_problem(&p);
        p.labels[0] = kind == ZINF_PREFERENCE_ORPO ? 7 : 1;
        struct zinf_preference a = args_of(&p, (enum zinf_preference_kind)kind, 0.3f);
        a.margin = a.scale = 0.5f;
        a.smoothing = 0.1f;
        a.desirable = a.undesirable = 1;
        a.d_losses = p.d_losses;
        CHECKF(!f->ops->preference(f->q, &a), "%s", zinf_error());
        a.loss = loss;
        a.rewards = rewards;
        each_part(&a, sums, NULL, NULL);
        zinf_preference_of_sums(&a, sums, of);
        each_part(&a, NULL, of, d_losses);
        for (int i = 0; i < 2 * PAIRS; i++)
            CHECKF(near((double)loss[i], (double)p.loss[i], 1e-6, 1e-5) &&
                       near((double)rewards[i], (double)p.rewards[i], 1e-6, 1e-5),
                   "kind %d, %d: %.9g and %.9g, not %.9g and %.9g", kind, i, (double)loss[i],
                   (double)rewards[i], (double)p.loss[i], (double)p.rewards[i]);
        for (int i = 0; i < N; i++)
            CHECKF(near((double)d_losses[i], (double)p.d_losses[i], 1e-6, 1e-5),
                   "kind %d, %d: %.9g, not %.9g", kind, i, (double)d_losses[i],
                   (double)p.d_losses[i]);
    }
}

/* A pair without a label has no loss, and a side without tokens no slope. */
static void ignored(struct fixture *f)
{
    struct problem p;
    open_problem(&p);
    struct zinf_preference a = args_of(&p, ZINF_PREFERENCE_SIMPO, 2.0f);
    a.d_losses = p.d_losses;
    a.scale = 1;
    p.labels[0] = -1;
    for (int i = 0; i < SEQ; i++)
        p.targets[2 * SEQ + i] = -1;
    CHECK(!f->ops->preference(f->q, &a));
    CHECK(p.loss[0] == 0 && p.rewards[0] == 0 && p.rewards[1] == 0 && isfinite(p.loss[2]));
    for (int i = 0; i < 3 * SEQ; i++)
        CHECK(p.d_losses[i] == 0);
    a.reference = p.reference;
    CHECK(f->ops->preference(f->q, &a) == -EINVAL && strstr(zinf_error(), "reference"));
}

/* Gains 2 and -1 of the sequences, 1 and 3 of the mismatched ones, whose mean is 2; then -1. */
static void singles(struct fixture *f)
{
    struct problem p;
    open_problem(&p);
    p.labels[0] = 1;
    struct zinf_preference a = args_of(&p, ZINF_PREFERENCE_KTO, 0.1f);
    a.desirable = 1.5f;
    a.undesirable = 0.5f;
    a.reference = p.reference;
    for (int i = SEQ; i < 2 * SEQ; i++)
        p.reference[i] = p.losses[i] + 1.0f / 8;
    check_losses(f, &p, &a, 1.5 / (1 + exp(0.1 * (2 - 2))), 0.5 / (1 + exp(0.1 * (2 - -1))));
    CHECK(fabs((double)p.rewards[0] - 0.2) < 1e-6 && fabs((double)p.rewards[2] + 0.1) < 1e-6);
    CHECK(fabs((double)p.rewards[1] - 0.2) < 1e-6 && p.rewards[1] == p.rewards[3]);
    a.d_losses = p.d_losses;
    a.scale = 2;
    CHECK(!f->ops->preference(f->q, &a));
    const double lost = 1 / (1 + exp(0.3)), up = 2 * 1.5 * 0.1 * 0.25;
    CHECK(near((double)p.d_losses[2], up, 1e-6, 1e-5));
    CHECK(near((double)p.d_losses[2 * SEQ + 2], -2 * 0.5 * 0.1 * lost * (1 - lost), 1e-6, 1e-5));
    for (int i = 0; i < SEQ; i++)
        CHECK(p.d_losses[SEQ + i] == 0 && p.d_losses[3 * SEQ + i] == 0);
    for (int i = 0; i < SEQ; i++) /* a mean below 0 is none */
        p.reference[SEQ + i] = p.losses[SEQ + i] - 1;
    CHECK(!f->ops->preference(f->q, &a) && p.rewards[1] == 0);
    p.labels[0] = -1; /* does not count: the mean is the other's */
    CHECK(!f->ops->preference(f->q, &a) && p.loss[0] == 0 && p.d_losses[2] == 0);
    CHECK(fabs((double)p.rewards[3] - 0.3) < 1e-6);
    a.undesirable = -1;
    CHECK(f->ops->preference(f->q, &a) == -EINVAL && strstr(zinf_error(), "sequences count"));
}

/* Scores 1.5, -0.5 and 0.25, 2 with a margin of 0.75 at the second pair, and by differences. */
static void scores(struct fixture *f)
{
    float given[] = {1.5f, -0.5f, 0.25f, 2.0f}, loss[4], rewards[4], slope[4];
    const float margins[] = {0.0f, NAN, -3.0f, -0.75f}; /* a pair's is the second, if it is < 0 */
    int32_t labels[] = {0, -1, 0, -1};
    struct zinf_preference a = {.kind = ZINF_PREFERENCE_REWARD, .beta = 1, .center = 0.1f};
    a.pairs = 2, a.seq = 1, a.scale = 0.5f, a.losses = given, a.margins = margins;
    a.labels = labels, a.loss = loss, a.rewards = rewards;
    CHECKF(!f->ops->preference(f->q, &a), "%s", zinf_error());
    CHECK(fabs((double)loss[0] - (log1p(exp(-2.0)) + 0.1)) < 1e-6 && loss[1] == 0);
    CHECK(fabs((double)loss[2] - (log1p(exp(2.5)) + 0.1 * 2.25 * 2.25)) < 1e-6);
    CHECK(rewards[0] == 1.5f && rewards[1] == -0.5f && rewards[3] == 2.0f);
    a.d_losses = slope;
    CHECK(!f->ops->preference(f->q, &a));
    a.d_losses = NULL;
    for (int i = 0; i < 4; i++) {
        const float at = given[i], step = 0.0078125f;
        double difference = 0;
        for (int sign = 1; sign >= -1; sign -= 2) {
            given[i] = at + (float)sign * step;
            CHECK(!f->ops->preference(f->q, &a));
            difference += sign * (double)(loss[0] + loss[2]);
        }
        given[i] = at;
        const double want = 0.5 * difference / (2 * (double)step);
        CHECKF(near((double)slope[i], want, 2e-5, 1e-4), "%d: %.9g, want %.9g", i, (double)slope[i],
               want);
    }
    labels[0] = -1; /* does not count */
    a.d_losses = slope;
    CHECK(!f->ops->preference(f->q, &a) && loss[0] == 0 && slope[0] == 0 && slope[1] == 0);
    a.seq = 2;
    CHECK(f->ops->preference(f->q, &a) == -EINVAL && strstr(zinf_error(), "scores"));
}

/* ---- noise ---- */

static void noise(struct fixture *f)
{
    for (int d = 0; d < 3; d++) {
        const int64_t n = 70001;
        struct tensor x = tensor_random(all_dtypes[d], (size_t)n, 1, 1.0f), y = tensor_copy(&x);
        struct zinf_noise a = {.dtype = x.dtype, .n = n, .x = x.data, .magnitude = 0.25f};
        a.random = (struct zinf_dropout){.seed = 9, .step = 4, .site = 3, .element_first = 6};
        double *want = tensor_doubles(&x);
        for (int64_t i = 0; i < n; i++) {
            const uint64_t e = a.random.element_first + (uint64_t)i;
            const uint32_t counter[4] = {(uint32_t)(e / 4), 0, 4, 3};
            uint32_t words[4];
            zinf_philox(counter, 9, words);
            want[i] += 0.25 * (2 * (double)zinf_uniform(words[e % 4]) - 1);
        }
        CHECK(!f->ops->noise(f->q, &a));
        CHECK_NEAR(f, &x, want, 1e-6, 1.01 * dtype_epsilon(x.dtype));
        /* in two calls, as ranks and micro-batches make it */
        a.x = y.data;
        a.n = 33333;
        CHECK(!f->ops->noise(f->q, &a));
        a.x = (char *)y.data + (size_t)a.n * zinf_dtype_bytes(y.dtype);
        a.random.element_first += (uint64_t)a.n;
        a.n = n - a.n;
        CHECK(!f->ops->noise(f->q, &a));
        CHECK(tensor_same_bits(&x, &y));
        a.n = -1;
        CHECK(f->ops->noise(f->q, &a) == -EINVAL);
        free(want);
        tensor_free(&x);
        tensor_free(&y);
    }
}

static void test_published_formulas(void)
{
    for_each_device(golden);
}

static void test_sums_of_the_reference(void)
{
    for_each_device(summed);
}

static void test_slopes(void)
{
    for_each_device(slopes);
}

static void test_rows_in_parts(void)
{
    for_each_device(in_parts);
}

static void test_what_does_not_count(void)
{
    for_each_device(ignored);
}

static void test_singles(void)
{
    for_each_device(singles);
}

static void test_scores(void)
{
    for_each_device(scores);
}

static void test_noise(void)
{
    for_each_device(noise);
}

int main(void)
{
    TAP_RUN(test_published_formulas);
    TAP_RUN(test_sums_of_the_reference);
    TAP_RUN(test_slopes);
    TAP_RUN(test_rows_in_parts);
    TAP_RUN(test_what_does_not_count);
    TAP_RUN(test_singles);
    TAP_RUN(test_scores);
    TAP_RUN(test_noise);
    return tap_done();
}

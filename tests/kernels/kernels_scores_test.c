/* kernels_scores: what is made of a product of query and key before the softmax: soft caps and
 * slopes by distance, against a plain softmax in double and its gradient. */
#include "attention_reference.h"

/* As for two heads of a model with 16; then one that no formula gives, and none. */
static const float slopes[] = {0.70710678f, 0.5f, -0.3f, 0.0f};

struct shape {
    int64_t batch, seq, n_heads, n_kv_heads, head_dim, window;
    bool causal;
    float dropout, softcap;
    bool sloped;
};

static void score_cases(struct fixture *f)
{
    static const struct shape shapes[] = {
        {2, 7, 4, 2, 5, 0, true, 0.0f, 1.5f, false},
        {2, 7, 4, 2, 5, 0, false, 0.0f, 0.0f, true},
        {1, 65, 3, 3, 24, 0, false, 0.3f, 0.8f, true},
        {1, 150, 4, 1, 40, 0, true, 0.0f, 2.0f, true},
        {1, 150, 2, 1, 64, 64, true, 0.2f, 50.0f, false},
        {1, 100, 4, 2, 16, 33, true, 0.0f, 1.0f, true},
    };
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        for (int d = 0; d < 3; d++) {
            struct problem p;
            problem_open(&p, all_dtypes[d], s->batch, s->seq, s->n_heads, s->n_kv_heads,
                         s->head_dim, s->causal, s->dropout);
            p.args.window = s->window;
            p.args.softcap = s->softcap;
            p.args.slopes = s->sloped ? slopes : NULL;
            p.args.scale *= 3.0f; /* so that the cap bends most scores */
            p.larger = 3.0;
            if (s->sloped && !s->causal) /* above 0 where the key is ahead; a score was 4 at most */
                p.larger += 0.25 * (double)slopes[0] * (double)s->seq;
            check_problem(f, &p, 4);
            problem_close(&p);
        }
    }
}

static void test_caps_and_slopes_match_the_reference(void)
{
    for_each_device(score_cases);
}

/* Scores that a cap alone keeps finite, and one that is NaN. */
static void test_scores_beyond_a_cap_are_bounded(void)
{
    struct fixture f;
    struct problem p;
    fixture_open(&f, zinf_isa(), 2);
    problem_open(&p, ZINF_DTYPE_F32, 1, 70, 1, 1, 8, true, 0.0f);
    float *qkv = p.qkv.data;
    for (size_t i = 0; i < p.qkv.n; i++)
        qkv[i] *= 1000.0f;
    p.args.softcap = 30.0f;
    CHECK(!f.ops->attention_forward(f.q, &p.args));
    CHECK(!f.ops->attention_backward(f.q, &p.args));
    for (size_t i = 0; i < p.lse.n; i++)
        CHECK(fabs(get(&p.lse, i)) < 30.0 + log(70.0) + 1e-4);
    for (size_t i = 0; i < p.d_qkv.n; i++)
        CHECK(isfinite(get(&p.d_qkv, i)));
    qkv[24 * 40] = NAN;
    CHECK(!f.ops->attention_forward(f.q, &p.args));
    CHECK(isnan(get(&p.out, 8 * 40)) && isfinite(get(&p.out, 8 * 39)));
    problem_close(&p);
    fixture_close(&f);
}

/* A bias by the key's position differs from one by distance by a constant a row. */
static void test_far_keys_count_less(void)
{
    static const float steep[] = {20.0f};
    struct fixture f;
    struct problem p;
    fixture_open(&f, zinf_isa(), 1);
    problem_open(&p, ZINF_DTYPE_F32, 1, 100, 1, 1, 8, true, 0.0f);
    p.args.slopes = steep; /* each row sees itself alone: exp(-20) beside 1 */
    CHECK(!f.ops->attention_forward(f.q, &p.args));
    for (size_t i = 0; i < 100; i++)
        for (size_t c = 0; c < 8; c++)
            CHECK(near(get(&p.out, i * 8 + c), get(&p.qkv, i * 24 + 16 + c), 1e-4, 0.0));
    problem_close(&p);
    fixture_close(&f);
}

static void test_bad_caps_and_slopes_are_refused(void)
{
    static const float bad_caps[] = {-1.0f, INFINITY, NAN};
    static float many[ZINF_ATTENTION_MAX_SLOPES + 1];
    struct fixture f;
    struct problem p;
    fixture_open(&f, zinf_isa(), 1);
    problem_open(&p, ZINF_DTYPE_F32, 1, 3, ZINF_ATTENTION_MAX_SLOPES + 1, 1, 2, true, 0.0f);
    for (size_t i = 0; i < sizeof bad_caps / sizeof *bad_caps; i++) {
        p.args.softcap = bad_caps[i];
        CHECK(f.ops->attention_forward(f.q, &p.args) == -EINVAL && strstr(zinf_error(), "softcap"));
        CHECK(f.ops->softcap(f.q, p.lse.data, bad_caps[i], 3) == -EINVAL);
    }
    CHECK(f.ops->softcap(f.q, p.lse.data, 0.0f, 3) == -EINVAL);
    p.args.softcap = 0.0f;
    p.args.slopes = many;
    CHECK(f.ops->attention_backward(f.q, &p.args) == -EINVAL && strstr(zinf_error(), "slopes"));
    problem_close(&p);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_caps_and_slopes_match_the_reference);
    TAP_RUN(test_scores_beyond_a_cap_are_bounded);
    TAP_RUN(test_far_keys_count_less);
    TAP_RUN(test_bad_caps_and_slopes_are_refused);
    return tap_done();
}

/* kernels_rope: rotary embedding against its formula in double; backward as the transpose; angles
 * of long contexts; what must stay as it is. */
#include "kernels_testing.h"

enum { ROWS = 67, N_HEADS = 3, GAP = 5 }; /* GAP elements behind the heads of a row */

struct rope_problem {
    struct zinf_rope args;
    struct tensor x;
    int32_t positions[ROWS];
    float inv_freq[ZINF_ROPE_MAX_PAIRS];
};

static void rope_open(struct rope_problem *p, enum zinf_dtype dtype, int64_t head_dim,
                      int64_t rotary_dims, bool interleaved)
{
    const int64_t ld = N_HEADS * head_dim + GAP;
    p->x = tensor_random(dtype, (size_t)(ROWS * ld), 1, 1.0f);
    for (int i = 0; i < ROWS; i++)
        p->positions[i] = i % 5 ? (i * 37) % 300 : i * 4001;
    for (int64_t i = 0; i < rotary_dims / 2; i++)
        p->inv_freq[i] = powf(10000.0f, -2.0f * (float)i / (float)rotary_dims);
    p->args = (struct zinf_rope){.dtype = dtype,
                                 .rows = ROWS,
                                 .n_heads = N_HEADS,
                                 .head_dim = head_dim,
                                 .ld = ld,
                                 .rotary_dims = rotary_dims,
                                 .interleaved = interleaved,
                                 .positions = p->positions,
                                 .inv_freq = p->inv_freq,
                                 .scale = 1.25f,
                                 .growth = head_dim == 96 ? 0.05f : 0,
                                 .growth_every = 7,
                                 .growth_ahead = 1,
                                 .x = p->x.data};
}

/* Turns x as the contract says, in double but for the angle. */
static void reference(const struct zinf_rope *a, double *x)
{
    const int64_t n_pairs = a->rotary_dims / 2;
    for (int64_t unit = 0; unit < a->rows * a->n_heads; unit++) {
        int64_t row = unit / a->n_heads;
        const int64_t steps = a->growth_every ? (a->positions[row] + 1) / a->growth_every : 0;
        const double scale = (double)a->scale * (1 + (double)a->growth * log1p((double)steps));
        double *head = x + row * a->ld + unit % a->n_heads * a->head_dim;
        for (int64_t i = 0; i < n_pairs; i++) {
            float angle = (float)a->positions[row] * a->inv_freq[i];
            double c = cos((double)angle) * scale;
            double s = sin((double)angle) * scale * (a->backward ? -1.0 : 1.0);
            double *first = head + (a->interleaved ? 2 * i : i);
            double *second = head + (a->interleaved ? 2 * i + 1 : i + n_pairs), was = *first;
            *first = was * c - *second * s;
            *second = *second * c + was * s;
        }
    }
}

/* Whether everything that is not rotated has the bits of before. */
static bool rest_untouched(const struct zinf_rope *a, const struct tensor *x,
                           const struct tensor *before)
{
    for (size_t i = 0; i < x->n; i++) {
        int64_t column = (int64_t)i % a->ld;
        bool turned = column < a->n_heads * a->head_dim && column % a->head_dim < a->rotary_dims;
        if (!turned && get(x, i) != get(before, i))
            return false;
    }
    return true;
}

static void shapes(struct fixture *f)
{
    static const int64_t sizes[][2] = {{2, 2},     {64, 64},   {80, 32},  {96, 96},
                                       {128, 128}, {256, 256}, {512, 512}};
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int variant = 0; variant < 12; variant++) {
            struct rope_problem p;
            rope_open(&p, all_dtypes[variant / 4], sizes[s][0], sizes[s][1], variant & 1);
            p.args.backward = variant & 2;
            struct tensor before = tensor_copy(&p.x);
            double *want = tensor_doubles(&p.x);
            reference(&p.args, want);
            CHECK(!f->ops->rope(f->q, &p.args));
            CHECK_NEAR(f, &p.x, want, 2e-6, 1.01 * dtype_epsilon(p.x.dtype));
            CHECKF(rest_untouched(&p.args, &p.x, &before), "%s head size %d", f->name,
                   (int)sizes[s][0]);
            free(want);
            tensor_free(&before);
            tensor_free(&p.x);
        }
}

static void test_rotation_matches_the_formula(void)
{
    for_each_device(shapes);
}

/* <rope x, y> = <x, rope^T y>: with the scale, so that an inverse would not pass. */
static void transpose(struct fixture *f)
{
    for (int interleaved = 0; interleaved < 2; interleaved++) {
        struct rope_problem p;
        rope_open(&p, ZINF_DTYPE_F32, 64, 48, interleaved);
        struct tensor x = tensor_copy(&p.x), y = tensor_random(ZINF_DTYPE_F32, x.n, 2, 1.0f);
        double forward = 0.0, backward = 0.0;
        CHECK(!f->ops->rope(f->q, &p.args));
        for (size_t i = 0; i < x.n; i++)
            forward += get(&p.x, i) * get(&y, i);
        struct tensor turned = tensor_copy(&y);
        p.args.x = turned.data;
        p.args.backward = true;
        CHECK(!f->ops->rope(f->q, &p.args));
        for (size_t i = 0; i < x.n; i++)
            backward += get(&x, i) * get(&turned, i);
        CHECKF(near(backward, forward, 1e-3, 1e-6), "%s %.9g and %.9g", f->name, forward, backward);
        tensor_free(&x);
        tensor_free(&y);
        tensor_free(&turned);
        tensor_free(&p.x);
    }
}

static void test_backward_is_the_transpose(void)
{
    for_each_device(transpose);
}

/* A head (1, 0) turns into (cos, sin): up to the last position of a very long context. */
static void far_positions(struct fixture *f)
{
    static const int32_t positions[] = {0, 1, 3, 4095, 131071, 1048575, 10000000, 16777216};
    enum { N = sizeof positions / sizeof *positions };
    static const float inv_freq[] = {1.0f, 0.7498942f, 0.01f, 1e-5f};
    float x[N][8] = {{0}};
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 4; k++)
            x[i][2 * k] = 1.0f;
    struct zinf_rope args = {.rows = N,
                             .n_heads = 1,
                             .head_dim = 8,
                             .ld = 8,
                             .rotary_dims = 8,
                             .interleaved = true,
                             .positions = positions,
                             .inv_freq = inv_freq,
                             .scale = 1.0f,
                             .x = x};
    CHECK(!f->ops->rope(f->q, &args));
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 4; k++) {
            double angle = (double)((float)positions[i] * inv_freq[k]);
            CHECKF(near((double)x[i][2 * k], cos(angle), 1.5e-7, 0.0) &&
                       near((double)x[i][2 * k + 1], sin(angle), 1.5e-7, 0.0),
                   "%s at %d * %g: %.9g %.9g, want %.9g %.9g", f->name, positions[i],
                   (double)inv_freq[k], (double)x[i][2 * k], (double)x[i][2 * k + 1], cos(angle),
                   sin(angle));
        }
}

static void test_angles_of_long_contexts(void)
{
    for_each_device(far_positions);
}

/* Many rows over threads have the bits of rows by themselves, and of another queue. */
static void test_rows_do_not_depend_on_the_cut(void)
{
    struct fixture f, alone;
    struct rope_problem p;
    fixture_open(&f, zinf_isa(), 3);
    fixture_open(&alone, zinf_isa(), 1);
    rope_open(&p, ZINF_DTYPE_BF16, 256, 256, false); /* enough for several slices */
    struct tensor one_by_one = tensor_copy(&p.x);
    struct zinf_rope row = p.args;
    row.rows = 1;
    for (int i = 0; i < ROWS; i++) {
        row.positions = p.positions + i;
        row.x = (char *)one_by_one.data + (size_t)(i * row.ld) * 2;
        CHECK(!alone.ops->rope(alone.q, &row));
    }
    CHECK(!f.ops->rope(f.q, &p.args));
    CHECK(tensor_same_bits(&p.x, &one_by_one));
    tensor_free(&p.x);
    tensor_free(&one_by_one);
    fixture_close(&alone);
    fixture_close(&f);
}

static void test_bad_arguments_are_refused(void)
{
    struct fixture f;
    struct rope_problem p;
    fixture_open(&f, zinf_isa(), 1);
    rope_open(&p, ZINF_DTYPE_F32, 64, 64, false);
    static const int64_t bad_dims[] = {0, 63, 66, -2};
    for (size_t i = 0; i < sizeof bad_dims / sizeof *bad_dims; i++) {
        p.args.rotary_dims = bad_dims[i];
        CHECK(f.ops->rope(f.q, &p.args) == -EINVAL);
        CHECK(strstr(zinf_error(), "rotary dimensions") != NULL);
    }
    p.args.rotary_dims = 2 * ZINF_ROPE_MAX_PAIRS + 2;
    p.args.head_dim = p.args.rotary_dims + 2;
    p.args.ld = 3 * p.args.head_dim;
    CHECK(f.ops->rope(f.q, &p.args) == -EINVAL);
    p.args.head_dim = 300;
    p.args.rotary_dims = 64;
    p.args.ld = 899;
    CHECK(f.ops->rope(f.q, &p.args) == -EINVAL);
    CHECK(strstr(zinf_error(), "apart") != NULL);
    p.args.rows = 0;
    p.args.ld = 900;
    CHECK(!f.ops->rope(f.q, &p.args));
    tensor_free(&p.x);
    fixture_close(&f);
}

int main(void)
{
    TAP_RUN(test_rotation_matches_the_formula);
    TAP_RUN(test_backward_is_the_transpose);
    TAP_RUN(test_angles_of_long_contexts);
    TAP_RUN(test_rows_do_not_depend_on_the_cut);
    TAP_RUN(test_bad_arguments_are_refused);
    return tap_done();
}

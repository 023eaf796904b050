/* kernels_float8: products of 8-bit floats against numbers found among all of their codes, at every
 * size of number; what is no number, and what is refused. */
#include "base/json.h"
#include "float8_numbers.h"
#include "kernels_matmul.h"

static const enum zinf_dtype narrow[] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_BF16};
static const enum zinf_dtype wide[] = {ZINF_DTYPE_BF16, ZINF_DTYPE_BF16, ZINF_DTYPE_F32};

static void scale_all(struct tensor *t, int exponent)
{
    uint16_t *bits = t->data;
    for (size_t i = 0; i < t->n; i++)
        bits[i] = zinf_bf16_from_f32(ldexpf(zinf_bf16_to_f32(bits[i]), exponent));
}

/* The operands as the product should see them. */
static void round_operands(struct problem *p)
{
    struct tensor *operands[] = {&p->a, &p->b};
    for (int i = 0; i < 2; i++) {
        double *x = tensor_doubles(operands[i]);
        float8_round(i ? ZINF_FLOAT8_E4M3 : p->args.float8, x, operands[i]->n);
        for (size_t j = 0; j < operands[i]->n; j++)
            ((uint16_t *)operands[i]->data)[j] = zinf_bf16_from_f32((float)x[j]);
        free(x);
    }
}

static void against_numbers(struct fixture *f)
{
    static const struct shape shapes[] = {{1, 16, 16, 0}, {7, 48, 32, 0}, {50, 16, 64, 0}};
    static const int sizes[] = {0, -9, 4, -40, 21};
    for (int v = 0; v < 30; v++) {
        struct problem p;
        problem_open(&p, &shapes[v % 3], false, v & 1, v % 4 ? narrow : wide, v % 5 == 1,
                     v % 5 == 2 ? 1.0f : 0.0f);
        p.args.float8 = v % 7 < 3 ? ZINF_FLOAT8_E5M2 : ZINF_FLOAT8_E4M3;
        scale_all(&p.a, sizes[v % 5]);
        scale_all(&p.b, -sizes[v % 5]);
        CHECK(!f->ops->matmul(f->q, &p.args));
        struct tensor made = tensor_copy(&p.c), begun;
        struct problem again;
        problem_open(&again, &shapes[v % 3], false, v & 1, v % 4 ? narrow : wide, v % 5 == 1,
                     v % 5 == 2 ? 1.0f : 0.0f);
        begun = tensor_copy(&again.c);
        memcpy(p.c.data, begun.data, begun.n * zinf_dtype_bytes(begun.dtype));
        round_operands(&p);
        double *want = reference(&p);
        CHECK_NEAR(f, &made, want, 1e-4, 1.01 * dtype_epsilon(p.args.c_dtype) + 1e-6);
        free(want);
        tensor_free(&made);
        tensor_free(&begun);
        problem_close(&again);
        problem_close(&p);
    }
}

/* Every bf16 of some octaves times 1: what it is rounded to, exactly; beside the largest. */
static void every_number(struct fixture *f)
{
    enum { N = 16 };
    for (int v = 0; v < 2; v++) {
        const enum zinf_float8 type = v ? ZINF_FLOAT8_E5M2 : ZINF_FLOAT8_E4M3;
        const int octaves = 36, rows = octaves * 128 * 2 / N;
        struct problem p;
        problem_open(&p, &(struct shape){rows, N, N, 0}, false, false, wide, false, 0.0f);
        uint16_t *a = p.a.data, *b = p.b.data;
        for (int i = 0; i < rows * N; i++)
            a[i] = (uint16_t)((100 << 7) + i / 2) | (uint16_t)(i % 2 << 15);
        for (int i = 0; i < N * N; i++)
            b[i] = zinf_bf16_from_f32(i % (N + 1) == 0);
        p.args.float8 = type;
        CHECK(!f->ops->matmul(f->q, &p.args));
        double *x = tensor_doubles(&p.a), *made = tensor_doubles(&p.c);
        float8_round(type, x, p.a.n);
        int differ = 0;
        for (int i = 0; i < rows * N; i++)
            differ += x[i] != made[i];
        CHECKF(!differ, "%d of %d numbers", differ, rows * N);
        free(x);
        free(made);
        problem_close(&p);
    }
}

/* Beside every fraction that the largest number may have, which decides the scale. */
static void every_largest(struct fixture *f)
{
    enum { N = 16 };
    for (int v = 0; v < 256; v++) {
        struct problem p;
        problem_open(&p, &(struct shape){3, N, N, 0}, false, false, wide, false, 0.0f);
        for (int i = 0; i < N * N; i++)
            ((uint16_t *)p.b.data)[i] = zinf_bf16_from_f32(i % (N + 1) == 0);
        ((uint16_t *)p.a.data)[v % 48] = (uint16_t)((150 << 7) + v % 128);
        p.args.float8 = v / 128 ? ZINF_FLOAT8_E5M2 : ZINF_FLOAT8_E4M3;
        scale_all(&p.a, -v / 3);
        CHECK(!f->ops->matmul(f->q, &p.args));
        double *x = tensor_doubles(&p.a), *made = tensor_doubles(&p.c);
        float8_round(p.args.float8, x, p.a.n);
        for (int i = 0; i < 3 * N; i++)
            CHECKF(x[i] == made[i], "beside %d: %g for %g", v, made[i], x[i]);
        free(x);
        free(made);
        problem_close(&p);
    }
}

/* One that is none makes its row none, and leaves other rows as they are. */
static void no_numbers(struct fixture *f)
{
    static const uint16_t none[] = {0x7f80, 0xff80, 0x7fc0};
    for (int v = 0; v < 6; v++) {
        struct problem p;
        problem_open(&p, &(struct shape){3, 16, 32, 0}, false, true, narrow, false, 0.0f);
        p.args.float8 = v / 3 ? ZINF_FLOAT8_E5M2 : ZINF_FLOAT8_E4M3;
        ((uint16_t *)p.a.data)[32 + 5] = none[v % 3];
        CHECK(!f->ops->matmul(f->q, &p.args));
        double *c = tensor_doubles(&p.c);
        for (int j = 0; j < 16; j++)
            CHECK(isfinite(c[j]) && isnan(c[16 + j]) && isfinite(c[32 + j]));
        free(c);
        problem_close(&p);
    }
    struct problem p; /* all zero */
    problem_open(&p, &(struct shape){3, 16, 32, 0}, false, true, narrow, false, 0.0f);
    p.args.float8 = ZINF_FLOAT8_E4M3;
    memset(p.a.data, 0, p.a.n * 2);
    CHECK(!f->ops->matmul(f->q, &p.args) && ((uint16_t *)p.c.data)[17] == 0);
    problem_close(&p);
}

/* Encoded and widened, a matrix has the numbers that a product makes of it; these stay what they
 * are when they are encoded again, whatever the largest of them was rounded to. */
static void images(struct fixture *f)
{
    enum { N = 16 * 40, ALL = N + 32 };
    static uint64_t memory[(ALL * 2 + 1024) / 8], first[ALL / 4], second[ALL / 4];
    for (int v = 0; v < 256; v += 3) {
        struct zinf_float8_run runs[] = {
            {.to = 0, .n = 16}, {.to = 16, .n = N, .coded = 1}, {.to = 16 + N, .n = 16}};
        const struct zinf_float8_image image = {runs, 3, sizeof memory, N};
        struct tensor x = tensor_random(ZINF_DTYPE_BF16, ALL, 40 + (uint64_t)v, 1.0f);
        uint16_t *bits = x.data;
        for (int i = 0; i < N; i++) /* of many sizes, the largest with every fraction */
            bits[16 + i] = (uint16_t)((bits[16 + i] & 0x807f) | (100 + i % 32 - v / 128 * 60) << 7);
        bits[16 + 7 * v % N] = (uint16_t)((132 - v / 128 * 60) << 7) + (uint16_t)(v % 128);
        for (uint64_t r = 0, at = zinf_float8_head(3); r < 3; r++) {
            runs[r].from = at;
            at += runs[r].n * (runs[r].coded ? 1 : 2);
        }
        const struct zinf_widen a = {memory, 3, N, first}, again = {memory, 3, N, second};
        zinf_float8_encode(&image, x.data, memory, 1 + v % 2);
        CHECK(!f->ops->widen(f->q, &a));
        zinf_float8_encode(&image, first, memory, 1);
        CHECK(!f->ops->widen(f->q, &again));
        double want[N];
        int differ = 0;
        for (int i = 0; i < N; i++)
            want[i] = zinf_bf16_to_f32(bits[16 + i]);
        float8_round(ZINF_FLOAT8_E4M3, want, N);
        for (int i = 0; i < N; i++)
            differ += (double)zinf_bf16_to_f32(((uint16_t *)first)[16 + i]) != want[i];
        CHECKF(!differ && !memcmp(first, second, sizeof first), "%d: %d numbers", v, differ);
        CHECK(!memcmp(first, bits, 32) && !memcmp((uint16_t *)first + 16 + N, bits + 16 + N, 32));
        tensor_free(&x);
    }
    const struct zinf_widen odd = {memory, 3, N, (char *)first + 8};
    CHECK(f->ops->widen(f->q, &odd) == -EINVAL && strstr(zinf_error(), "multiple of 16"));
}

static void refusals(struct fixture *f)
{
    struct problem p;
    problem_open(&p, &(struct shape){3, 16, 32, 0}, false, true, narrow, false, 0.0f);
    p.args.float8 = ZINF_FLOAT8_E4M3;
    struct zinf_matmul odd = p.args;
    odd.k = 24;
    CHECK(f->ops->matmul(f->q, &odd) == -EINVAL && strstr(zinf_error(), "multiples of 16"));
    odd = p.args;
    odd.n = 8;
    CHECK(f->ops->matmul(f->q, &odd) == -EINVAL && strstr(zinf_error(), "multiples of 16"));
    for (int wide = 0; wide < 2; wide++) { /* more sixteens in A or B than 32 bits count */
        odd = p.args;
        odd.k = odd.lda = odd.ldb = 1 << 30;
        odd.m = wide ? 1 : 64;
        odd.n = odd.ldc = wide ? 64 : 32;
        CHECKF(f->ops->matmul(f->q, &odd) == -EINVAL && strstr(zinf_error(), "2^36"), "%s",
               zinf_error());
    }
    odd = p.args;
    odd.a_dtype = ZINF_DTYPE_F16;
    CHECK(f->ops->matmul(f->q, &odd) == -EINVAL && strstr(zinf_error(), "bf16"));
    f->ops->queue_set_workspace(f->q, f->workspace,
                                f->ops->matmul_workspace(f->device, &p.args) - 1);
    CHECK(f->ops->matmul(f->q, &p.args) == -EINVAL && strstr(zinf_error(), "workspace"));
    problem_close(&p);
}

/* ---- what PyTorch's casts give (tests/fixtures/make_float8.py) ---- */

static const char *member;

static const cJSON *list_of(const cJSON *fixture, const char *name)
{
    member = name;
    return cJSON_GetObjectItemCaseSensitive(fixture, name);
}

static void fill_bits(uint16_t *to, const cJSON *list)
{
    const cJSON *item;
    cJSON_ArrayForEach(item, list) *to++ = (uint16_t)item->valueint;
}

static void check_product(struct fixture *f, struct problem *p, const cJSON *want)
{
    const float *c = p->c.data;
    const cJSON *item;
    double most = 0, off = 0;
    CHECK(!f->ops->matmul(f->q, &p->args) && cJSON_GetArraySize(want) == (int)p->c.n);
    cJSON_ArrayForEach(item, want)
    {
        most = fmax(most, fabs(item->valuedouble));
        off = fmax(off, fabs(item->valuedouble - (double)*c++));
    }
    CHECKF(most > 0 && off <= 1e-5 * most, "%s: %g off, of %g", member, off, most);
}

static void check_layer(struct fixture *f, const cJSON *fixture)
{
    const int64_t rows = list_of(fixture, "rows")->valueint;
    const int64_t inputs = list_of(fixture, "inputs")->valueint;
    const int64_t outputs = list_of(fixture, "outputs")->valueint;
    struct problem p;
    problem_open(&p, &(struct shape){rows, outputs, inputs, 0}, false, true, wide, false, 0.0f);
    p.args.float8 = ZINF_FLOAT8_E4M3;
    fill_bits(p.a.data, list_of(fixture, "x"));
    fill_bits(p.b.data, list_of(fixture, "weight"));
    check_product(f, &p, list_of(fixture, "y"));
    problem_close(&p);
    problem_open(&p, &(struct shape){rows, inputs, outputs, 0}, false, false, wide, false, 0.0f);
    p.args.float8 = ZINF_FLOAT8_E5M2;
    fill_bits(p.a.data, list_of(fixture, "dy"));
    fill_bits(p.b.data, list_of(fixture, "weight"));
    check_product(f, &p, list_of(fixture, "dx"));
    problem_close(&p);
}

static void casts(struct fixture *f)
{
    const char *source = getenv("SRCDIR");
    char path[600];
    cJSON *fixtures = NULL;
    const cJSON *fixture;
    snprintf(path, sizeof path, "%s/tests/fixtures/float8.json", source ? source : ".");
    CHECKF(!zinf_json_read_file(path, 1 << 20, ZINF_JSON_STRICT, &fixtures), "%s", zinf_error());
    CHECK(cJSON_GetArraySize(fixtures) == 3);
    cJSON_ArrayForEach(fixture, fixtures) check_layer(f, fixture);
    cJSON_Delete(fixtures);
}

#define CASE(name)                                                                                 \
    static void test_##name(void)                                                                  \
    {                                                                                              \
        for_each_device(name);                                                                     \
    }
CASE(against_numbers)
CASE(every_number)
CASE(every_largest)
CASE(no_numbers)
CASE(images)
CASE(refusals)
CASE(casts)

int main(void)
{
    TAP_RUN(test_against_numbers);
    TAP_RUN(test_every_number);
    TAP_RUN(test_every_largest);
    TAP_RUN(test_no_numbers);
    TAP_RUN(test_images);
    TAP_RUN(test_refusals);
    TAP_RUN(test_casts);
    return tap_done();
}

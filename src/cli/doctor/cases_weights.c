/* cases_weights: products, and weights that are stored in fewer bits or scaled by magnitudes. */
#include "cli/doctor/cases.h"

#include <math.h>

/* ---- products ---- */

/* bf16 begins with sm_80; beside fp16 it becomes fp32. */
static bool can_multiply(const struct twin *t, const enum zinf_dtype types[3])
{
    const bool bf16 = types[0] == ZINF_DTYPE_BF16 || types[1] == ZINF_DTYPE_BF16;
    const bool fp16 = types[0] == ZINF_DTYPE_F16 || types[1] == ZINF_DTYPE_F16;
    return !strstr(t->cuda->name, "sm_75") || !bf16 || fp16;
}

static void matmul_name(struct twin *t, const struct zinf_matmul *a, const char *codes)
{
    twin_case(t, "matmul", "%lld x %lld x %lld%s%s, %s%s by %s to %s", (long long)a->m,
              (long long)a->n, (long long)a->k, a->trans_a ? ", A turned" : "",
              a->trans_b ? ", B turned" : "", codes, zinf_dtype_name(a->a_dtype),
              zinf_dtype_name(a->b_dtype), zinf_dtype_name(a->c_dtype));
}

void case_matmul(struct twin *t, const struct matmul_case *of)
{
    const struct matmul_shape s = of->shape;
    const enum zinf_dtype *types = of->types;
    struct zinf_matmul a = {.m = s.m,
                            .n = s.n,
                            .k = s.k,
                            .a_dtype = types[0],
                            .b_dtype = types[1],
                            .c_dtype = types[2],
                            .trans_a = of->trans_a,
                            .trans_b = of->trans_b,
                            .lda = (of->trans_a ? s.m : s.k) + s.gap,
                            .ldb = (of->trans_b ? s.k : s.n) + s.gap,
                            .ldc = s.n + s.gap,
                            .alpha = s.n % 2 ? 0.0f : 0.75f, /* 0: 1 */
                            .beta = of->beta};
    matmul_name(t, &a, "");
    struct pair pa =
        pair_shifted(t, s.shift, types[0], (size_t)((of->trans_a ? s.k : s.m) * a.lda), 1, 1.0f);
    struct pair pb =
        pair_shifted(t, s.shift, types[1], (size_t)((of->trans_b ? s.n : s.k) * a.ldb), 2, 1.0f);
    struct pair pc = pair_shifted(t, s.shift, types[2], (size_t)(s.m * a.ldc), 3, 1.0f);
    struct pair pbias = pair_shifted(t, s.shift, types[1], (size_t)s.n, 4, 1.0f);
    a.a = pa.device, a.b = pb.device, a.c = pc.device;
    if (!can_multiply(t, types)) {
        TWIN_CHECK(t, t->cuda->ops->matmul(t->q, &a) == -ENOTSUP && strstr(zinf_error(), "fp16"));
        return;
    }
    ON_BOTH(t, (a.a = at(&pa, side), a.b = at(&pb, side), a.c = at(&pc, side),
                a.bias = of->bias ? at(&pbias, side) : NULL, ops->matmul(q, &a)));
    /* Sums of k products of unit normals; an fp32 operand beside a 16-bit one is rounded to it. */
    const double root = sqrt((double)s.k), epsilon = dtype_epsilon(types[2]);
    const double mixed =
        types[0] == types[1] ? 0.0 : fmax(dtype_epsilon(types[0]), dtype_epsilon(types[1]));
    PAIR_CHECK(t, &pc, root * (1e-6 + 4.0 * mixed), 2.0 * epsilon + 1e-5);
}

void case_float8(struct twin *t, struct matmul_shape s, int v, bool ones)
{
    const enum zinf_dtype bf16 = ZINF_DTYPE_BF16;
    const double size = v % 5 ? 1e-4 : 900.0;
    struct zinf_matmul a = {.m = s.m, .n = s.n, .k = s.k, .trans_b = v & 1};
    a.a_dtype = a.b_dtype = bf16, a.c_dtype = v & 2 ? ZINF_DTYPE_F32 : bf16;
    a.float8 = v & 4 ? ZINF_FLOAT8_E5M2 : ZINF_FLOAT8_E4M3;
    a.beta = v % 3 == 2 ? 1.0f : 0.0f;
    a.lda = s.k + s.gap, a.ldb = (a.trans_b ? s.k : s.n) + s.gap, a.ldc = s.n + s.gap;
    matmul_name(t, &a, v & 4 ? "e5m2 of " : "e4m3 of ");
    struct pair pa = pair_shifted(t, s.shift, bf16, (size_t)(s.m * a.lda), 1, (float)size);
    struct pair pb =
        pair_shifted(t, s.shift, bf16, (size_t)((a.trans_b ? s.n : s.k) * a.ldb), 2, 3.0f);
    struct pair pc = pair_random(t, a.c_dtype, (size_t)(s.m * a.ldc), 3, 1.0f);
    struct pair pbias = pair_shifted(t, s.shift, bf16, (size_t)s.n, 4, 1.0f);
    for (int64_t i = 0; ones && i < (int64_t)pb.host.n; i++)
        ((uint16_t *)pb.host.data)[i] = zinf_bf16_from_f32((float)(i / a.ldb == i % a.ldb));
    pair_upload(t, &pb);
    ON_BOTH(t, (a.a = at(&pa, side), a.b = at(&pb, side), a.c = at(&pc, side),
                a.bias = v % 3 == 1 ? at(&pbias, side) : NULL, ops->matmul(q, &a)));
    if (ones)
        PAIR_CHECK(t, &pc, 0, 0);
    else
        PAIR_CHECK(t, &pc, 3.0 * size * sqrt((double)s.k) * 1e-5, 2.0 * dtype_epsilon(a.c_dtype));
}

/* Parameters with matrices as codes: what encode makes is widened to the same bits, with numbers
 * that are none, zeros and denormal numbers among them. */
void case_widen(struct twin *t, int variant)
{
    enum { N = 16 * 5000, LAST = 16 * 4901, PLAIN = 16 * 300 };
    struct zinf_float8_run runs[] = {{.to = 0, .n = 16, .coded = 1},
                                     {.to = 16, .n = PLAIN},
                                     {.to = 16 + PLAIN, .n = 16 * 4600, .coded = 1},
                                     {.to = LAST, .n = 16 * 99, .coded = 1}};
    struct zinf_float8_image image = {runs, 4, zinf_float8_head(4), 16 * 4600};
    for (int r = 0; r < 4; r++) {
        runs[r].from = image.bytes;
        image.bytes += runs[r].n * (runs[r].coded ? 1 : 2);
    }
    twin_case(t, "widen", "%d numbers in 4 runs, variant %d", N, variant);
    struct pair values =
        pair_random(t, ZINF_DTYPE_BF16, N, 5 + (uint64_t)variant, variant ? 1e-20f : 3);
    uint16_t *bits = values.host.data;
    for (int i = 0; i < 99 * 16; i++) /* all, or none */
        bits[LAST + i] = (uint16_t)(variant < 2 ? i * 41 % 0x7f80 : i * 83);
    struct pair in = pair_new(t, ZINF_DTYPE_F32, image.bytes / 4, 0);
    struct pair out = pair_new(t, ZINF_DTYPE_BF16, N, 0);
    zinf_float8_encode(&image, bits, in.host.data, 1 + variant);
    pair_upload(t, &in);
    struct zinf_widen a = {.n_runs = 4, .most = image.most};
    ON_BOTH(t, (a.image = at(&in, side), a.params = at(&out, side), ops->widen(q, &a)));
    struct tensor got = pair_download(t, &out);
    TWIN_CHECK(t, tensor_same_bits(&out.host, &got));
    TWIN_CHECK(t, !memcmp((uint16_t *)out.host.data + 16, bits + 16, PLAIN * sizeof *bits));
}

/* ---- weights in 4 and 8 bits ---- */

void case_dequantize(struct twin *t, uint64_t rows, uint64_t cols, enum zinf_form form,
                     enum zinf_dtype dtype, bool by_runs, size_t shift)
{
    const struct zinf_quantized p = zinf_quantized_of(form, rows, cols);
    twin_case(t, "dequantize", "%s to %s, %llu x %llu", zinf_form_name(form),
              zinf_dtype_name(dtype), (unsigned long long)rows, (unsigned long long)cols);
    struct pair values = pair_random(t, ZINF_DTYPE_F32, p.n_elems, 3, 0.7f);
    struct pair scales = pair_new(t, ZINF_DTYPE_F32, p.n_blocks, 0);
    struct pair image = pair_new(t, ZINF_DTYPE_F32, p.bytes / sizeof(float), 0);
    struct pair w = pair_new(t, dtype, p.n_elems, shift);
    if (form == ZINF_FORM_MXFP4 || form == ZINF_FORM_FP8) { /* bytes of fp32 numbers: all kinds */
        zinf_quantize_take(&p, values.host.data, values.host.data, image.host.data);
    } else {
        zinf_quantize(&p, values.host.data, 0, p.n_elems, image.host.data, scales.host.data);
        zinf_quantize_finish(&p, image.host.data, scales.host.data);
    }
    pair_upload(t, &image);
    struct zinf_dequantize a = {.quantized = p, .rows = (int64_t)rows, .count = 1, .dtype = dtype};
    if (by_runs) {
        a.rows = 1;
        a.count = (int64_t)(rows + 1) / 2;
        a.from_stride = 2;
        a.to_first = (int64_t)rows - a.count;
        a.to_stride = 1;
    }
    ON_BOTH(t, (a.image = at(&image, side), a.w = at(&w, side), ops->dequantize(q, &a)));
    PAIR_CHECK(t, &w, 0, 0);
}

/* ---- magnitudes ---- */

void case_magnitude(struct twin *t, int64_t rows, int64_t cols, int64_t rank, size_t shift,
                    enum zinf_dtype dtype)
{
    const size_t n = (size_t)rows, r = (size_t)rank;
    struct zinf_magnitude a = {
        .dtype = dtype, .rows = rows, .cols = cols, .rank = rank, .scale = 0.5f};
    twin_case(t, "magnitude", "%s, %lld rows of %lld, rank %lld", zinf_dtype_name(dtype),
              (long long)rows, (long long)cols, (long long)rank);
    struct pair w = pair_shifted(t, shift, dtype, n * (size_t)cols, 1, 0.1f);
    struct pair b = pair_random(t, dtype, n * r, 2, 0.5f);
    struct pair m = pair_random(t, dtype, n, 3, 1.0f);
    struct pair w_a = pair_random(t, ZINF_DTYPE_F32, n * r, 4, 0.2f);
    struct pair a_a = pair_random(t, ZINF_DTYPE_F32, r * r, 5, 0.2f);
    struct pair norm = pair_random(t, ZINF_DTYPE_F32, n, 6, 1.0f);
    struct pair gain = pair_random(t, ZINF_DTYPE_F32, n, 7, 1.0f);
    for (int scaled = 1; scaled >= 0; scaled--) {
        ON_BOTH(t, (a.w = scaled ? at(&w, side) : NULL, a.b = at(&b, side),
                    a.magnitude = at(&m, side), a.w_a = at(&w_a, side), a.a_a = at(&a_a, side),
                    a.norm = at(&norm, side), a.gain = at(&gain, side), ops->magnitude(q, &a)));
        PAIR_CHECK(t, &norm, 0.0, scaled ? 4e-6 : 0.0);
        PAIR_CHECK(t, &gain, 0.0, scaled ? 4e-6 : 0.0);
    }
}

static void scale_check(struct twin *t, int64_t rows, int64_t cols, size_t shift,
                        enum zinf_dtype dtype)
{
    const size_t n = (size_t)(rows * cols), c = (size_t)cols;
    struct zinf_column_scale a = {.dtype = dtype, .rows = rows, .cols = cols};
    struct pair x = pair_shifted(t, shift, dtype, n, 1, 1.0f),
                y = pair_random(t, dtype, n, 2, 1.0f);
    struct pair bias = pair_random(t, dtype, c, 3, 1.0f);
    struct pair gain = pair_random(t, ZINF_DTYPE_F32, c, 4, 1.0f);
    for (int biased = 0; biased < 2; biased++) {
        const struct pair *to = biased ? &x : &y;
        ON_BOTH(t, (a.x = at(&x, side), a.gain = at(&gain, side),
                    a.bias = biased ? at(&bias, side) : NULL, a.y = at(to, side),
                    ops->scale_columns(q, &a)));
        PAIR_CHECK(t, to, 1e-6, 1.01 * dtype_epsilon(dtype));
    }
}

void case_columns(struct twin *t, int64_t rows, int64_t cols, size_t shift, enum zinf_dtype dtype)
{
    const int64_t ld = cols + 5;
    const size_t n = (size_t)(rows * ld), c = (size_t)cols;
    struct zinf_column_dot a = {.dtype = dtype, .cols = cols, .ld = ld};
    twin_case(t, "scale_columns and dot_columns", "%s, %lld x %lld", zinf_dtype_name(dtype),
              (long long)rows, (long long)cols);
    scale_check(t, rows, cols, shift, dtype);
    struct pair x = pair_shifted(t, shift, dtype, n, 1, 1.0f),
                y = pair_random(t, dtype, n, 2, 1.0f);
    struct pair norm = pair_new(t, ZINF_DTYPE_F32, c, 0);
    struct pair sum = pair_random(t, ZINF_DTYPE_F32, c, 4, 1.0f);
    for (size_t j = 0; j < c; j++)
        ((float *)norm.host.data)[j] = j % 7 == 3 ? 0.0f : 0.5f + (float)(j % 5);
    pair_upload(t, &norm);
    for (int with_rows = 1; with_rows >= 0; with_rows--) {
        a.rows = with_rows ? rows : 0;
        ON_BOTH(t, (a.x = at(&x, side), a.y = at(&y, side), a.norm = at(&norm, side),
                    a.sum = at(&sum, side), ops->dot_columns(q, &a)));
        PAIR_CHECK(t, &sum, 1e-5, 1e-6);
    }
}

/* mutants_rows: all operations but attention's for mutations_test.c. */
#ifndef PTX_MUTANTS_ROWS_H
#define PTX_MUTANTS_ROWS_H

#include "mutants.h"

static int norms_of(struct setup *s, size_t rows, size_t cols)
{
    const size_t n = rows * cols;
    struct zinf_norm a = {.dtype = s->dtype, .rows = rows, .cols = cols, .eps = 1e-5f};
    a.x = s->in[0], a.w = s->in[1], a.b = s->in[2], a.dy = s->in[3];
    a.y = take(s, n, s->dtype), a.dx = take(s, n, s->dtype);
    a.mean = take(s, rows, ZINF_DTYPE_F32), a.rstd = take(s, rows, ZINF_DTYPE_F32);
    a.dw = take(s, cols, ZINF_DTYPE_F32), a.db = take(s, cols, ZINF_DTYPE_F32);
    int code = s->ops->norm_forward(s->q, &a);
    return code ? code : s->ops->norm_backward(s->q, &a);
}

static int norms(struct setup *s)
{
    return norms_of(s, 9, 72);
}

/* Of a size that teams of threads do not serve. */
static int odd_norms(struct setup *s)
{
    return norms_of(s, 9, 77);
}

/* Of 8 slabs, whose sums two threads a column add up; of fp32 in 4 slabs. */
static int slabs_of_norms(struct setup *s)
{
    return norms_of(s, s->dtype == ZINF_DTYPE_F32 ? 60 : 120, 264);
}

/* Rows of two warps. */
static int wide_norms(struct setup *s)
{
    return norms_of(s, 20, 520);
}

static int sums(struct setup *s)
{
    enum { ROWS = 20, COLS = 520 };
    struct zinf_residual sum = {.dtype = s->dtype, .n = ROWS * COLS, .dropout = {.p = 0.3f}};
    struct zinf_norm a = {.dtype = s->dtype, .rows = ROWS, .cols = COLS, .eps = 1e-5f};
    sum.x = s->in[0], sum.r = s->in[1], sum.y = take(s, ROWS * COLS, s->dtype);
    a.x = sum.y, a.w = s->in[2], a.b = s->in[3], a.y = take(s, ROWS * COLS, s->dtype);
    a.mean = take(s, ROWS, ZINF_DTYPE_F32), a.rstd = take(s, ROWS, ZINF_DTYPE_F32);
    return s->ops->residual_norm(s->q, &sum, &a);
}

static int embeddings(struct setup *s)
{
    const int64_t rows = 40, cols = 24, count = 17;
    struct zinf_embedding a = {.dtype = s->dtype, .rows = rows, .cols = cols, .count = count};
    a.ids = (int32_t *)(void *)s->in[10], a.table = s->in[0], a.dx = s->in[1];
    a.x = take(s, (size_t)(rows * cols), s->dtype);
    a.d_table = take(s, (size_t)(count * cols), ZINF_DTYPE_F32);
    int code = s->ops->embedding_forward(s->q, &a);
    return code ? code : s->ops->embedding_backward(s->q, &a);
}

static int losses_of(struct setup *s, int64_t cols, int64_t ld, float softcap,
                     enum zinf_dtype d_dtype)
{
    const int64_t rows = 5;
    struct zinf_cross_entropy a = {.rows = rows,
                                   .cols = cols,
                                   .ld = ld,
                                   .softcap = softcap,
                                   .scale = 0.5f,
                                   .d_dtype = d_dtype};
    a.targets = (int32_t *)(void *)s->in[10];
    a.logits = take(s, (size_t)(rows * ld), ZINF_DTYPE_F32);
    a.max = take(s, (size_t)rows, ZINF_DTYPE_F32), a.sum = take(s, (size_t)rows, ZINF_DTYPE_F32);
    a.target_logit = take(s, (size_t)rows, ZINF_DTYPE_F32);
    a.loss = take(s, (size_t)rows, ZINF_DTYPE_F32);
    a.logit_sum = take(s, (size_t)rows, ZINF_DTYPE_F32);
    a.smoothing = softcap == 0.0f ? 0.1f : 0.0f, a.vocab = cols, a.z_loss = 0.01f;
    a.max_at = (int32_t *)(void *)take(s, (size_t)rows, ZINF_DTYPE_F32);
    a.max_z_loss = softcap == 0.0f ? 0.3f : 0.0f;
    int code = s->ops->copy(s->q, a.logits, s->in[6], (uint64_t)(rows * ld) * sizeof(float));
    code = code ? code : s->ops->copy(s->q, a.sum, s->in[7], rows * sizeof(float));
    code = code ? code : s->ops->cross_entropy_start(s->q, &a);
    code = code ? code : s->ops->cross_entropy_update(s->q, &a);
    code = code ? code : s->ops->cross_entropy_finish(s->q, &a);
    return code ? code : s->ops->cross_entropy_backward(s->q, &a);
}

static int losses(struct setup *s)
{
    return losses_of(s, 300, 304, 0.0f, ZINF_DTYPE_F32);
}

/* Three warps a row. */
static int wide_losses(struct setup *s)
{
    return losses_of(s, 3004, 3008, 3.0f, ZINF_DTYPE_F32);
}

static int capped_losses(struct setup *s)
{
    return losses_of(s, 300, 304, 3.0f, ZINF_DTYPE_F32);
}

/* Whole turns, whose gradients take the place of what other threads have read. */
static int narrow_losses(struct setup *s)
{
    return losses_of(s, 304, 304, 3.0f, s->dtype);
}

/* The same one by one. */
static int odd_narrow_losses(struct setup *s)
{
    return losses_of(s, 301, 301, 3.0f, s->dtype);
}

/* Reference and losses are any numbers. */
static int preferences_of(struct setup *s, enum zinf_preference_kind kind)
{
    enum { PAIRS = 2, SEQ = 70, N = 2 * PAIRS * SEQ };
    struct zinf_preference a = {.kind = kind, .beta = 0.3f, .smoothing = 0.1f, .pairs = PAIRS};
    a.seq = SEQ, a.scale = 0.5f, a.targets = (int32_t *)(void *)s->in[10];
    a.labels = (int32_t *)(void *)s->in[10], a.losses = (float *)(void *)s->in[11];
    a.desirable = 1.5f, a.undesirable = 0.5f;
    a.reference = zinf_preference_has_reference(kind) ? (float *)(void *)s->in[7] : NULL;
    if (kind == ZINF_PREFERENCE_KTO) { /* references above: what all have in common counts from 0 */
        a.reference = a.losses;
        a.losses = (float *)(void *)s->in[7];
    }
    a.loss = take(s, 2 * PAIRS, ZINF_DTYPE_F32), a.rewards = take(s, 2 * PAIRS, ZINF_DTYPE_F32);
    a.d_losses = take(s, N, ZINF_DTYPE_F32);
    return s->ops->preference(s->q, &a);
}

static int preferences(struct setup *s)
{
    return preferences_of(s, ZINF_PREFERENCE_DPO);
}

static int singles(struct setup *s)
{
    return preferences_of(s, ZINF_PREFERENCE_KTO);
}

static int odds(struct setup *s)
{
    return preferences_of(s, ZINF_PREFERENCE_ORPO);
}

static int scores(struct setup *s)
{
    enum { PAIRS = 5 };
    struct zinf_preference a = {.kind = ZINF_PREFERENCE_REWARD, .beta = 1, .center = 0.2f};
    a.pairs = PAIRS, a.seq = 1, a.scale = 0.5f, a.labels = (int32_t *)(void *)s->in[10];
    a.losses = (float *)(void *)s->in[11], a.margins = (float *)(void *)s->in[7];
    a.loss = take(s, 2 * PAIRS, ZINF_DTYPE_F32), a.rewards = take(s, 2 * PAIRS, ZINF_DTYPE_F32);
    a.d_losses = take(s, 2 * PAIRS, ZINF_DTYPE_F32);
    return s->ops->preference(s->q, &a);
}

static int noises(struct setup *s)
{
    const struct zinf_noise a = {.dtype = s->dtype,
                                 .n = 2051,
                                 .x = take(s, 2051, s->dtype),
                                 .magnitude = 50.0f,
                                 .random = {.seed = 3, .step = 2, .site = 1, .element_first = 5}};
    int code = s->ops->copy(s->q, a.x, s->in[0], 2051 * zinf_dtype_bytes(s->dtype));
    return code ? code : s->ops->noise(s->q, &a);
}

static int squared_errors(struct setup *s)
{
    const struct zinf_squared_error a = {.rows = 300,
                                         .x = (float *)(void *)s->in[7],
                                         .labels = (float *)(void *)s->in[8],
                                         .loss = take(s, 300, ZINF_DTYPE_F32),
                                         .dx = take(s, 300, ZINF_DTYPE_F32),
                                         .scale = 0.5f};
    return s->ops->squared_error(s->q, &a);
}

static int sinks(struct setup *s)
{
    enum { ROWS = 20, HEADS = 3, DIM = 40 };
    struct zinf_sinks a = {.dtype = s->dtype, .batch = 2, .seq = ROWS / 2};
    a.n_heads = HEADS, a.head_dim = DIM, a.sinks = s->in[0], a.d_out = s->in[1];
    a.out = take(s, ROWS * HEADS * DIM, s->dtype), a.lse = take(s, ROWS * HEADS, ZINF_DTYPE_F32);
    a.d_sinks = take(s, HEADS, ZINF_DTYPE_F32);
    int code = s->ops->copy(s->q, a.out, s->in[2], ROWS * HEADS * DIM * zinf_dtype_bytes(s->dtype));
    code = code ? code : s->ops->copy(s->q, a.lse, s->in[7], ROWS * HEADS * sizeof(float));
    code = code ? code : s->ops->sinks_forward(s->q, &a);
    return code ? code : s->ops->sinks_backward(s->q, &a);
}

static int heads(struct setup *s)
{
    enum { ROWS = 12, HEADS = 3, COLS = 40 };
    struct zinf_heads a = {.dtype = s->dtype, .rows = ROWS, .n_heads = HEADS, .cols = COLS};
    a.x = s->in[0], a.x_ld = 2 * HEADS * COLS, a.x_step = 2 * COLS;
    a.y = take(s, ROWS * HEADS * COLS, s->dtype), a.y_ld = HEADS * COLS, a.y_step = COLS;
    int code = s->ops->copy_heads(s->q, &a);
    a.y = take(s, ROWS * COLS, s->dtype), a.y_ld = COLS, a.y_step = 0;
    return code ? code : s->ops->copy_heads(s->q, &a);
}

static int softcaps(struct setup *s)
{
    float *x = take(s, 2051, ZINF_DTYPE_F32);
    int code = s->ops->copy(s->q, x, s->in[7], 2051 * sizeof(float));
    return code ? code : s->ops->softcap(s->q, x, 3.0f, 2051);
}

static int flat(struct setup *s)
{
    const uint64_t n = 2051;
    struct zinf_residual r = {.dtype = s->dtype, .n = (int64_t)n, .dropout = {.p = 0.3f}};
    float *sum = take(s, n, ZINF_DTYPE_F32);
    r.x = s->in[0], r.r = s->in[1], r.y = take(s, n, s->dtype);
    int code = s->ops->residual_add(s->q, &r);
    code = code ? code : s->ops->convert(s->q, sum, ZINF_DTYPE_F32, s->in[2], s->dtype, n);
    code = code ? code : s->ops->add(s->q, sum, (float *)(void *)s->in[7], n);
    for (int kind = 0; !code && kind < 4; kind++)
        code = s->ops->activation_backward(s->q, (enum zinf_activation)kind, s->dtype,
                                           take(s, n, s->dtype), s->in[3], s->in[4],
                                           take(s, n, s->dtype), n);
    return code ? code
                : s->ops->sum_squares(s->q, take(s, 2, ZINF_DTYPE_F32), (float *)(void *)s->in[8],
                                      n * 2);
}

static int activation_sums(struct setup *s)
{
    struct zinf_activation_sums a = {.dtype = s->dtype, .rows = 37, .cols = 45};
    a.x = s->in[0], a.dy = s->in[1];
    a.dx = take(s, 37 * 45, s->dtype), a.y_out = take(s, 37 * 45, s->dtype);
    a.sums = take(s, 45, ZINF_DTYPE_F32);
    return s->ops->activation_sums(s->q, &a);
}

static int gated(struct setup *s)
{
    struct zinf_gated a = {.dtype = s->dtype, .rows = 5, .cols = 45};
    a.x = s->in[0], a.dy = s->in[1];
    a.y = take(s, 5 * 45, s->dtype), a.dx = take(s, 5 * 90, s->dtype);
    a.y_out = take(s, 5 * 45, s->dtype);
    int code = s->ops->gated_forward(s->q, &a);
    return code ? code : s->ops->gated_backward(s->q, &a);
}

static int curved(struct setup *s)
{
    enum { ROWS = 3, COLS = 2083, N = ROWS * COLS }; /* work for all warps */
    struct zinf_xielu a = {.dtype = s->dtype, .rows = ROWS, .cols = COLS, .alphas = s->in[2]};
    a.constants = s->in[3], a.x = s->in[0], a.dy = s->in[1];
    a.y = take(s, N, s->dtype), a.dx = take(s, N, s->dtype);
    a.sums = take(s, 2 * (size_t)ROWS, ZINF_DTYPE_F32);
    return s->ops->xielu_backward(s->q, &a);
}

static int rotations(struct setup *s)
{
    static const float inv_freq[8] = {1.0f, 0.5f, 0.25f, 0.1f, 0.05f, 0.02f, 0.01f, 0.001f};
    struct zinf_rope a = {.dtype = s->dtype, .rows = 9, .n_heads = 2, .head_dim = 20, .ld = 40};
    a.rotary_dims = 16, a.inv_freq = inv_freq, a.scale = 1.0f;
    if (s->dtype == ZINF_DTYPE_F32)
        a.head_dim = 16, a.growth = 0.3f, a.growth_every = 3, a.growth_ahead = 1;
    a.positions = (const int32_t *)(void *)s->in[10], a.x = take(s, 9 * 40, s->dtype);
    int code = s->ops->copy(s->q, a.x, s->in[0], 9 * 40 * zinf_dtype_bytes(s->dtype));
    return code ? code : s->ops->rope(s->q, &a);
}

static int optimizer(struct setup *s)
{
    const uint64_t n = 2051;
    struct zinf_adam a = {.n = n, .dtype = s->dtype, .grad_scale = 0.5f, .beta1 = 0.9f};
    a.one_minus_beta1 = 0.1f, a.beta2 = 0.99f, a.one_minus_beta2 = 0.01f;
    a.root_correction = 2.0f, a.eps = 1e-8f, a.step_size = 0.1f;
    a.master = take(s, n, ZINF_DTYPE_F32), a.param = take(s, n, s->dtype);
    a.moment1 = take(s, n, ZINF_DTYPE_F32), a.moment2 = take(s, n, ZINF_DTYPE_F32);
    a.grad = (float *)(void *)s->in[9];
    int code = s->ops->copy(s->q, a.master, s->in[8], n * sizeof(float));
    code = code ? code : s->ops->copy(s->q, a.moment2, s->in[11], n * sizeof(float));
    return code ? code : s->ops->adam(s->q, &a);
}

/* An operand of another type and a bias that is not aligned: rectangles before and behind. */
static int products(struct setup *s)
{
    struct zinf_matmul a = {.m = 5, .n = 19, .k = 9, .lda = 9, .ldb = 19, .ldc = 19};
    a.a = s->in[6], a.b = s->in[0], a.a_dtype = ZINF_DTYPE_F32;
    a.b_dtype = a.c_dtype = s->dtype;
    a.c = take(s, 5 * 19, s->dtype);
    a.bias = s->in[1] + zinf_dtype_bytes(s->dtype);
    return s->ops->matmul(s->q, &a);
}

/* By tiles with a rest, and by rows; of both types. */
static int floats_multiplied(struct setup *s)
{
    struct zinf_matmul a = {.m = 5, .n = 80, .k = 48, .lda = 48, .ldb = 80, .ldc = 80};
    a.a = s->in[0], a.b = s->in[1];
    a.a_dtype = a.b_dtype = s->dtype, a.c_dtype = ZINF_DTYPE_F32;
    a.float8 = ZINF_FLOAT8_E5M2;
    a.c = take(s, 5 * 80, ZINF_DTYPE_F32);
    return s->ops->matmul(s->q, &a);
}

/* A run of codes between two of bf16. */
static int widened(struct setup *s)
{
    enum { N = 16 * 700 };
    struct zinf_float8_run runs[3] = {
        {.to = 0, .n = 48}, {.to = 48, .n = N - 64, .coded = 1}, {.to = N - 16, .n = 16}};
    struct zinf_float8_image image = {runs, 3, zinf_float8_head(3), N - 64};
    for (int r = 0; r < 3; r++) {
        runs[r].from = image.bytes;
        image.bytes += runs[r].n * (runs[r].coded ? 1 : 2);
    }
    struct tensor values = tensor_random(ZINF_DTYPE_BF16, N, 5, 1.0f);
    struct tensor codes = tensor_new(ZINF_DTYPE_F32, image.bytes / sizeof(float));
    zinf_float8_encode(&image, values.data, codes.data, 1);
    void *to = take(s, codes.n, ZINF_DTYPE_F32);
    const struct zinf_widen a = {to, 3, image.most, take(s, N, ZINF_DTYPE_BF16)};
    int code = s->ops->copy_to_device(s->q, to, codes.data, image.bytes);
    code = code ? code : s->ops->widen(s->q, &a);
    tensor_free(&codes);
    tensor_free(&values);
    return code;
}

/* ---- quantised weights ---- */

static int dequantized(struct setup *s, enum zinf_form form, uint64_t cols)
{
    struct zinf_quantized p = zinf_quantized_of(form, 5, cols);
    struct zinf_dequantize a = {.quantized = p, .rows = 5, .count = 1, .dtype = s->dtype};
    struct tensor values = tensor_random(ZINF_DTYPE_F32, p.n_elems, 3, 0.7f);
    struct tensor image = tensor_new(ZINF_DTYPE_F32, p.bytes / sizeof(float));
    float *scales = malloc(p.n_blocks * sizeof *scales);
    if (form == ZINF_FORM_MXFP4 || form == ZINF_FORM_FP8) {
        zinf_quantize_take(&p, values.data, values.data, image.data);
    } else {
        zinf_quantize(&p, values.data, 0, p.n_elems, image.data, scales);
        zinf_quantize_finish(&p, image.data, scales);
    }
    void *to = take(s, image.n, ZINF_DTYPE_F32);
    a.image = to, a.w = take(s, p.n_elems, s->dtype);
    int code = s->ops->copy_to_device(s->q, to, image.data, p.bytes);
    code = code ? code : s->ops->dequantize(s->q, &a);
    free(scales);
    tensor_free(&image);
    tensor_free(&values);
    return code;
}

/* Two groups of blocks, the second a short block: normal numbers, with exceptions. */
static int unpacked(struct setup *s)
{
    struct tensor values = tensor_random(s->dtype, 64 * 512 + 77, 5, 1.0f);
    const struct zinf_pack_array array = {values.data, s->dtype, values.n, false};
    const uint64_t room = zinf_align_up(zinf_pack_bound(s->dtype, values.n), 64);
    void *image = aligned_alloc(64, room);
    const int64_t bytes = zinf_pack(image, room, &array, 1);
    struct zinf_packed_array a = {.dtype = s->dtype, .n = values.n};
    a.damaged = take(s, 16, ZINF_DTYPE_F32);
    a.x = take(s, values.n, s->dtype);
    char *to = take(s, (size_t)bytes / 4 + 17, ZINF_DTYPE_F32);
    to += 64 - (uintptr_t)to % 64;
    a.image = to;
    int code = bytes < 0 ? -EINVAL : s->ops->copy_to_device(s->q, to, image, (uint64_t)bytes);
    code = code ? code : s->ops->unpack(s->q, &a);
    free(image);
    tensor_free(&values);
    return code;
}

/* A warp that has all that it makes, and one that has not. */
static int four_bits(struct setup *s)
{
    return dequantized(s, ZINF_FORM_NF4, 408);
}

static int four_bits_of_odd_rows(struct setup *s)
{
    return dequantized(s, ZINF_FORM_NF4_DOUBLE, 203);
}

static int eight_bits(struct setup *s)
{
    return dequantized(s, ZINF_FORM_INT8, 203);
}

static int four_bits_of_floats(struct setup *s)
{
    return dequantized(s, ZINF_FORM_MXFP4, 352);
}

static int floats_of_eight_bits(struct setup *s)
{
    return dequantized(s, ZINF_FORM_FP8, 200);
}

/* ---- experts ---- */

static int routes(struct setup *s)
{
    enum { SAMPLES = 3, SEQ = 3, ROWS = SAMPLES * SEQ, COLS = 40 };
    const size_t n = (size_t)ROWS * COLS, n_shares = (size_t)SAMPLES * 2 * COLS;
    struct zinf_route r = {.rows = ROWS, .cols = COLS, .n_chosen = 3, .normalised = true};
    struct zinf_shares h = {.samples = SAMPLES, .seq = SEQ, .cols = COLS};
    struct zinf_balance b = {.samples = SAMPLES, .cols = COLS, .factor = 0.01f};
    r.logits = h.logits = (float *)(void *)s->in[6];
    h.weights = r.weights = take(s, n, ZINF_DTYPE_F32);
    r.d_weights = (float *)(void *)s->in[7], r.d_probs = (float *)(void *)s->in[8];
    r.d_logits = take(s, n, ZINF_DTYPE_F32);
    h.before = (float *)(void *)s->in[9];
    b.shares = h.shares = take(s, n_shares, ZINF_DTYPE_F32);
    b.d_shares = take(s, n_shares, ZINF_DTYPE_F32);
    b.loss = take(s, SAMPLES, ZINF_DTYPE_F32);
    int code = s->ops->route_forward(s->q, &r);
    code = code ? code : s->ops->route_backward(s->q, &r);
    code = code ? code : s->ops->route_shares(s->q, &h);
    return code ? code : s->ops->route_balance(s->q, &b);
}

/* Rows picked from 12 others: taken out, weighed, added back. */
static int picked_rows(struct setup *s)
{
    static const int32_t picks[] = {3, 0, 11, 7, 4};
    enum { N = 5, ALL = 12, COLS = 72, LD = 4 };
    const int32_t *rows = take_numbers(s, picks, N);
    float *weights = (float *)(void *)s->in[6], *d_weights = take(s, ALL * LD, ZINF_DTYPE_F32);
    void *a = take(s, N * COLS, s->dtype), *b = take(s, N * COLS, s->dtype);
    void *sums = take(s, ALL * COLS, ZINF_DTYPE_F32);
    struct zinf_rows r = {.n = N, .cols = COLS, .rows = rows, .x_dtype = s->dtype};
    struct zinf_weigh w = {.n = N, .cols = COLS, .ld = LD, .rows = rows, .dtype = s->dtype};
    r.y_dtype = s->dtype, r.x = s->in[0], r.y = a;
    int code = s->ops->gather_rows(s->q, &r);
    r.x = s->in[1], r.y = b;
    code = code ? code : s->ops->gather_rows(s->q, &r);
    w.a = a, w.b = b, w.weights = weights, w.d_weights = d_weights;
    code = code ? code : s->ops->weigh_rows(s->q, &w);
    r.y_dtype = ZINF_DTYPE_F32, r.x = b, r.y = sums, r.scale = weights, r.scale_ld = LD;
    return code ? code : s->ops->scatter_rows(s->q, &r);
}

/* ---- rows beside their neighbours ---- */

static int unfolded(struct setup *s)
{
    const size_t n = 3 * 7 * 20;
    struct zinf_unfold a = {.dtype = s->dtype, .batch = 3, .seq = 7, .cols = 20, .width = 3};
    a.x = s->in[0], a.dy = s->in[1];
    a.y = take(s, 3 * n, s->dtype), a.dx = take(s, n, s->dtype);
    int code = s->ops->unfold(s->q, &a);
    return code ? code : s->ops->unfold_backward(s->q, &a);
}

/* ---- recurrent mixers ---- */

enum { MIXED_ROWS = 70, MIXED_COLS = 40, MIXED_WIDTH = 4 };

static int convolved_by(struct setup *s, const struct zinf_ends *ends)
{
    const size_t n = MIXED_ROWS * MIXED_COLS;
    struct zinf_convolution a = {.dtype = s->dtype, .batch = 1, .seq = MIXED_ROWS, .silu = true};
    a.cols = a.ld = MIXED_COLS, a.width = MIXED_WIDTH;
    a.x = s->in[0], a.dy = s->in[1], a.w = s->in[2], a.b = s->in[3];
    a.y = take(s, n, s->dtype), a.dx = take(s, n, s->dtype);
    a.dw = take(s, MIXED_COLS * MIXED_WIDTH, ZINF_DTYPE_F32);
    a.db = take(s, MIXED_COLS, ZINF_DTYPE_F32);
    a.ends = ends;
    int code = s->ops->convolution_forward(s->q, &a);
    return code ? code : s->ops->convolution_backward(s->q, &a);
}

static int convolved(struct setup *s)
{
    return convolved_by(s, NULL);
}

/* Of a piece that is neither the first nor the last of its sequence; numbers of a state. */
static struct zinf_ends ends_of(struct setup *s, size_t numbers, enum zinf_dtype dtype)
{
    return (struct zinf_ends){.rows = MIXED_ROWS,
                              .before = s->in[dtype == ZINF_DTYPE_F32 ? 6 : 4],
                              .behind = take(s, numbers, dtype),
                              .d_behind = (const float *)(const void *)s->in[7],
                              .d_before = take(s, numbers, ZINF_DTYPE_F32)};
}

static int convolved_piece(struct setup *s)
{
    const struct zinf_ends ends = ends_of(s, (MIXED_WIDTH - 1) * MIXED_COLS, s->dtype);
    return convolved_by(s, &ends);
}

/* Rows of one sequence and another in turns, which begin here. */
static struct zinf_remembered remember(struct setup *s, uint64_t bytes)
{
    static const int32_t sequences[] = {0, 1, 0, 1}, positions[] = {0, 0, 1, 1};
    return (struct zinf_remembered){.sequences = take_numbers(s, sequences, 4),
                                    .positions = take_numbers(s, positions, 4),
                                    .state = take(s, bytes / 2, ZINF_DTYPE_F32),
                                    .bytes = bytes};
}

static int convolved_on(struct setup *s)
{
    const uint64_t state = (MIXED_WIDTH - 1) * MIXED_COLS * zinf_dtype_bytes(s->dtype);
    const struct zinf_remembered m = remember(s, state);
    struct zinf_convolution a = {.dtype = s->dtype, .batch = 1, .seq = 4, .remembered = &m};
    a.cols = a.ld = MIXED_COLS, a.width = MIXED_WIDTH;
    a.x = s->in[0], a.w = s->in[2], a.y = take(s, 4 * MIXED_COLS, s->dtype);
    return s->ops->convolution_forward(s->q, &a);
}

static struct zinf_scan scan_of(struct setup *s, enum zinf_recurrence rule, int64_t seq)
{
    enum { KEY = 6, VALUE = 5, HEADS = 2, LD = 2 * KEY + HEADS * VALUE };
    struct zinf_scan a = {.rule = rule, .dtype = s->dtype, .batch = 1, .seq = seq};
    a.key_heads = 1, a.value_heads = HEADS, a.key_dim = KEY, a.value_dim = VALUE;
    a.step_low = 0.1f, a.step_high = 2.0f, a.ld = LD, a.gate_ld = HEADS;
    a.q = s->in[0], a.k = s->in[1], a.v = s->in[2], a.a = s->in[3], a.b = s->in[4];
    a.a_log = s->in[5], a.step_bias = a.a_log, a.skip = a.a_log;
    a.y = take(s, (size_t)seq * HEADS * VALUE, s->dtype);
    return a;
}

static size_t scan_state(const struct zinf_scan *a)
{
    return (size_t)(a->value_heads * a->key_dim * a->value_dim);
}

static int scanned_by(struct setup *s, enum zinf_recurrence rule, bool piece)
{
    struct zinf_scan a = scan_of(s, rule, MIXED_ROWS);
    const size_t n = (size_t)(a.seq * a.ld), gates = (size_t)(a.seq * a.gate_ld);
    const struct zinf_ends ends = ends_of(s, scan_state(&a), ZINF_DTYPE_F32);
    a.ends = piece ? &ends : NULL;
    int code = s->ops->scan_forward(s->q, &a);
    a.backward = true;
    a.dy = s->in[5];
    a.dq = take(s, n, s->dtype), a.dk = take(s, n, s->dtype), a.dv = take(s, n, s->dtype);
    a.da = take(s, gates, s->dtype), a.db = take(s, gates, s->dtype);
    a.d_a_log = take(s, 2, ZINF_DTYPE_F32), a.d_step_bias = take(s, 2, ZINF_DTYPE_F32);
    a.d_skip = take(s, 2, ZINF_DTYPE_F32);
    return code ? code : s->ops->scan_backward(s->q, &a);
}

static int scanned(struct setup *s)
{
    return scanned_by(s, ZINF_RECURRENCE_DELTA, false);
}

static int scanned_by_decay(struct setup *s)
{
    return scanned_by(s, ZINF_RECURRENCE_DECAY, false);
}

static int scanned_piece(struct setup *s)
{
    return scanned_by(s, ZINF_RECURRENCE_DELTA, true);
}

/* The rows from `first` on. */
static struct zinf_scan scan_from(struct zinf_scan a, int64_t first, const struct zinf_ends *ends)
{
    const uint64_t width = zinf_dtype_bytes(a.dtype), row = (uint64_t)(first * a.ld) * width;
    const uint64_t gate = (uint64_t)(first * a.gate_ld) * width;
    a.q = (const char *)a.q + row, a.k = (const char *)a.k + row, a.v = (const char *)a.v + row;
    a.a = (const char *)a.a + gate, a.b = (const char *)a.b + gate;
    a.y = (char *)a.y + (uint64_t)(first * a.value_heads * a.value_dim) * width;
    a.seq -= first;
    a.ends = ends;
    return a;
}

/* Of two pieces, whose border cuts a chunk; the end of the second one cuts another. */
static int scanned_cut(struct setup *s)
{
    const struct zinf_scan a = scan_of(s, ZINF_RECURRENCE_DELTA, MIXED_ROWS);
    struct zinf_scan_open open;
    const size_t state = scan_state(&a), n = (size_t)zinf_scan_open_place(&a, &open, NULL);
    const struct zinf_ends first = {.behind = take(s, state, ZINF_DTYPE_F32),
                                    .open_behind = take(s, n, ZINF_DTYPE_F32)};
    const struct zinf_ends second = {.rows = 40,
                                     .before = first.behind,
                                     .behind = take(s, state, ZINF_DTYPE_F32),
                                     .open_before = first.open_behind,
                                     .open_behind = take(s, n, ZINF_DTYPE_F32)};
    struct zinf_scan piece = scan_from(a, 0, &first);
    piece.seq = second.rows;
    int code = s->ops->scan_forward(s->q, &piece);
    piece = scan_from(a, second.rows, &second);
    return code ? code : s->ops->scan_forward(s->q, &piece);
}

static int scanned_on(struct setup *s)
{
    struct zinf_scan a = scan_of(s, ZINF_RECURRENCE_DELTA, 4);
    const struct zinf_remembered m = remember(s, scan_state(&a) * sizeof(float));
    a.remembered = &m;
    return s->ops->scan_forward(s->q, &a);
}

/* ---- magnitudes ---- */

static int magnitudes(struct setup *s)
{
    const int64_t rows = 9, cols = 72, rank = 40;
    struct zinf_magnitude a = {
        .dtype = s->dtype, .rows = rows, .cols = cols, .rank = rank, .scale = 0.1f};
    struct zinf_column_scale c = {.dtype = s->dtype, .rows = rows, .cols = cols};
    struct zinf_column_dot d = {.dtype = s->dtype, .rows = rows, .cols = cols, .ld = cols};
    a.w = s->in[0], a.b = s->in[1], a.magnitude = s->in[2];
    a.w_a = (float *)(void *)s->in[6], a.a_a = (float *)(void *)s->in[7];
    a.norm = take(s, (size_t)rows, ZINF_DTYPE_F32), a.gain = take(s, (size_t)rows, ZINF_DTYPE_F32);
    c.x = s->in[3], c.bias = s->in[4], c.gain = (float *)(void *)s->in[8];
    c.y = take(s, (size_t)(rows * cols), s->dtype);
    d.x = s->in[3], d.y = s->in[4], d.norm = (float *)(void *)s->in[11];
    d.sum = take(s, (size_t)cols, ZINF_DTYPE_F32);
    int code = s->ops->magnitude(s->q, &a);
    code = code ? code : s->ops->scale_columns(s->q, &c);
    return code ? code : s->ops->dot_columns(s->q, &d);
}

#endif

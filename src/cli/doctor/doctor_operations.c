/* doctor_operations: what `zinf doctor` calls of a device's table. Shapes are odd on purpose. */
#include "cli/doctor/doctor_operations.h"

#include <stdlib.h>

static void *result(struct doctor_side *s, uint64_t n, enum zinf_dtype dtype)
{
    struct doctor_results *r = s->results;
    uint64_t at = s->used;
    s->used = zinf_align_up(at + n * zinf_dtype_bytes(dtype), 64);
    if (r && r->n < DOCTOR_MOST_RESULTS) {
        r->list[r->n].at = at;
        r->list[r->n].n = n;
        r->list[r->n++].dtype = dtype;
    }
    return s->out + at;
}

/* Memory of out that is no result, with the CPU's bytes. */
static int put(struct doctor_side *s, const void *bytes, uint64_t n, void **out)
{
    *out = s->out + s->used;
    s->used = zinf_align_up(s->used + n, 64);
    int code = s->ops->copy_to_device(s->q, *out, bytes, n);
    return code ? code : s->ops->queue_synchronize(s->q);
}

/* ---- products, norms, attention ---- */

static int run_matmul(struct doctor_side *s)
{
    struct zinf_matmul a = {.m = 13, .n = 24, .k = 40, .lda = 40, .ldb = 40, .ldc = 24};
    a.trans_b = true;
    a.a = s->in[0], a.b = s->in[1], a.bias = s->in[2];
    a.a_dtype = a.b_dtype = a.c_dtype = s->dtype;
    a.c = result(s, 13 * 24, s->dtype);
    return s->ops->matmul(s->q, &a);
}

static int norm_of(struct doctor_side *s, int64_t rows, int64_t cols)
{
    const uint64_t n = (uint64_t)(rows * cols), r = (uint64_t)rows, c = (uint64_t)cols;
    struct zinf_norm a = {.dtype = s->dtype, .rows = rows, .cols = cols, .eps = 1e-5f};
    a.x = s->in[0], a.w = s->in[1], a.b = s->in[2], a.dy = s->in[3];
    a.y = result(s, n, s->dtype), a.dx = result(s, n, s->dtype);
    a.mean = result(s, r, ZINF_DTYPE_F32), a.rstd = result(s, r, ZINF_DTYPE_F32);
    a.dw = result(s, c, ZINF_DTYPE_F32), a.db = result(s, c, ZINF_DTYPE_F32);
    int code = s->ops->norm_forward(s->q, &a);
    return code ? code : s->ops->norm_backward(s->q, &a);
}

/* A GPU has one kernel for rows that threads of a warp keep, another for rows that a block keeps,
 * and a third for all others. */
static int run_norm(struct doctor_side *s)
{
    return norm_of(s, 7, 72);
}

static int run_wide_norm(struct doctor_side *s)
{
    return norm_of(s, 5, 520);
}

static int run_unaligned_norm(struct doctor_side *s)
{
    return norm_of(s, 7, 77);
}

static int sum_and_norm_of(struct doctor_side *s, int64_t rows, int64_t cols)
{
    const uint64_t n = (uint64_t)(rows * cols);
    struct zinf_residual sum = {.dtype = s->dtype, .n = rows * cols};
    struct zinf_norm a = {.kind = ZINF_NORM_RMS, .dtype = s->dtype, .rows = rows, .cols = cols};
    sum.dropout = (struct zinf_dropout){.p = 0.3f, .seed = 9};
    sum.x = s->in[0], sum.r = s->in[1], a.w = s->in[2];
    a.x = sum.y = result(s, n, s->dtype), a.y = result(s, n, s->dtype);
    a.rstd = result(s, (uint64_t)rows, ZINF_DTYPE_F32), a.eps = 1e-5f;
    return s->ops->residual_norm(s->q, &sum, &a);
}

static int run_sum_and_norm(struct doctor_side *s)
{
    int code = sum_and_norm_of(s, 7, 72);
    return code ? code : sum_and_norm_of(s, 5, 520);
}

static int attention_of(struct doctor_side *s, float softcap, const float *slopes)
{
    const int64_t seq = 37, heads = 2, size = 64;
    struct zinf_attention a = {.dtype = s->dtype,
                               .batch = 1,
                               .seq = seq,
                               .n_heads = heads,
                               .n_kv_heads = heads,
                               .head_dim = size,
                               .causal = true,
                               .scale = 0.125f,
                               .softcap = softcap,
                               .slopes = slopes,
                               .dropout = {.p = 0.1f, .seed = 3}};
    uint64_t n = (uint64_t)(seq * heads * size);
    a.qkv = s->in[0], a.d_out = s->in[1];
    a.out = result(s, n, s->dtype), a.d_qkv = result(s, 3 * n, s->dtype);
    a.lse = result(s, (uint64_t)(seq * heads), ZINF_DTYPE_F32);
    int code = s->ops->attention_forward(s->q, &a);
    return code ? code : s->ops->attention_backward(s->q, &a);
}

static int run_attention(struct doctor_side *s)
{
    static const float slopes[] = {0.5f, 0.0625f};
    int code = attention_of(s, 0, NULL);
    code = code ? code : attention_of(s, 0, slopes);
    return code ? code : attention_of(s, 2, slopes);
}

/* Over keys of another sequence, with a bias by distance from a table, and its gradient. */
static int run_cross_attention(struct doctor_side *s)
{
    static const int32_t starts[] = {0, 1, 2, 4};
    enum { SEQ = 21, KEYS = 37, HEADS = 2, SIZE = 20, DISTANCES = SEQ + KEYS - 1 };
    struct zinf_distance_bias d = {.dtype = s->dtype, .n_heads = HEADS, .n_queries = SEQ};
    struct zinf_attention a = {.dtype = s->dtype, .batch = 1, .seq = SEQ, .n_heads = HEADS};
    d.n_keys = KEYS, d.both_ways = true, d.n_buckets = 4, d.starts = starts, d.batch = 1;
    d.table = s->in[2], d.bias = result(s, HEADS * DISTANCES, ZINF_DTYPE_F32);
    d.d_bias = a.d_bias = result(s, HEADS * DISTANCES, ZINF_DTYPE_F32);
    d.d_table = result(s, 8 * HEADS, ZINF_DTYPE_F32);
    a.n_kv_heads = HEADS, a.head_dim = SIZE, a.key_seq = KEYS, a.scale = 0.2f;
    a.bias = d.bias, a.qkv = s->in[0], a.kv = s->in[1], a.d_out = s->in[3];
    a.out = result(s, SEQ * HEADS * SIZE, s->dtype);
    a.lse = result(s, SEQ * HEADS, ZINF_DTYPE_F32);
    a.d_qkv = result(s, SEQ * HEADS * SIZE, s->dtype);
    a.d_kv = result(s, KEYS * 2 * HEADS * SIZE, s->dtype);
    int code = s->ops->distance_bias(s->q, &d);
    code = code ? code : s->ops->attention_forward(s->q, &a);
    code = code ? code : s->ops->attention_backward(s->q, &a);
    return code ? code : s->ops->distance_bias_backward(s->q, &d);
}

/* Five new rows of one sequence over 40 that a cache has. */
static int run_cached_attention(struct doctor_side *s)
{
    static const int32_t numbers[2][5] = {{0, 0, 0, 0, 0}, {40, 41, 42, 43, 44}};
    enum { ROWS = 5, HEADS = 2, SIZE = 64, SLOTS = 50, CACHE = 2 * HEADS * SLOTS * SIZE };
    struct zinf_attention_cached a = {.dtype = s->dtype, .rows = ROWS, .n_heads = HEADS};
    void *at = NULL;
    a.n_kv_heads = HEADS, a.head_dim = SIZE, a.n_sequences = 1, a.capacity = SLOTS;
    a.scale = 0.125f, a.qkv = s->in[0];
    a.cache = result(s, CACHE, s->dtype), a.out = result(s, ROWS * HEADS * SIZE, s->dtype);
    int code = put(s, numbers, sizeof numbers, &at);
    a.sequences = at, a.positions = a.sequences + ROWS;
    code = code ? code : s->ops->copy(s->q, a.cache, s->in[1], CACHE * zinf_dtype_bytes(s->dtype));
    return code ? code : s->ops->attention_cached(s->q, &a);
}

/* ---- numbers one by one ---- */

static int run_softcap(struct doctor_side *s)
{
    float *x = result(s, 515, ZINF_DTYPE_F32);
    int code = s->ops->copy(s->q, x, s->in[4], 515 * sizeof *x);
    return code ? code : s->ops->softcap(s->q, x, 1.5f, 515);
}

static int run_activations(struct doctor_side *s)
{
    int code = 0;
    for (int kind = ZINF_ACTIVATION_GELU_TANH; !code && kind < ZINF_ACTIVATIONS; kind++)
        code = s->ops->activation_backward(s->q, (enum zinf_activation)kind, s->dtype,
                                           result(s, 515, s->dtype), s->in[0], s->in[1],
                                           result(s, 515, s->dtype), 515);
    return code;
}

/* With the sums of the gradient, as a layer with a bias wants them. */
static int run_activation_sums(struct doctor_side *s)
{
    struct zinf_activation_sums a = {.kind = ZINF_ACTIVATION_GELU_TANH, .dtype = s->dtype};
    a.rows = 9, a.cols = 72, a.x = s->in[0], a.dy = s->in[1];
    a.dx = result(s, 9 * 72, s->dtype), a.y_out = result(s, 9 * 72, s->dtype);
    a.sums = result(s, 72, ZINF_DTYPE_F32);
    return s->ops->activation_sums(s->q, &a);
}

static int run_gated(struct doctor_side *s)
{
    struct zinf_gated a = {.kind = ZINF_ACTIVATION_SILU, .dtype = s->dtype, .rows = 5, .cols = 44};
    a.x = s->in[0], a.dy = s->in[1];
    a.y = result(s, 5 * 44, s->dtype), a.dx = result(s, 5 * 88, s->dtype);
    int code = s->ops->gated_forward(s->q, &a);
    return code ? code : s->ops->gated_backward(s->q, &a);
}

static int run_rope(struct doctor_side *s)
{
    static float inv_freq[8];
    struct zinf_rope a = {.dtype = s->dtype, .rows = 9, .n_heads = 2, .head_dim = 16, .ld = 32};
    for (int i = 0; i < 8; i++)
        inv_freq[i] = 1.0f / (float)(1 << i);
    a.rotary_dims = 16, a.inv_freq = inv_freq, a.scale = 1.0f;
    a.positions = (const int32_t *)(const void *)s->in[DOCTOR_IDS];
    a.x = result(s, 9 * 32, s->dtype);
    int code = s->ops->copy(s->q, a.x, s->in[0], 9 * 32 * zinf_dtype_bytes(s->dtype));
    return code ? code : s->ops->rope(s->q, &a);
}

static int run_residual(struct doctor_side *s)
{
    struct zinf_residual a = {.dtype = s->dtype, .n = 515, .dropout = {.p = 0.3f, .seed = 9}};
    a.x = s->in[0], a.r = s->in[1], a.y = result(s, 515, s->dtype);
    return s->ops->residual_add(s->q, &a);
}

static int run_sums(struct doctor_side *s)
{
    float *sum = result(s, 515, ZINF_DTYPE_F32), *columns = result(s, 40, ZINF_DTYPE_F32);
    int code = s->ops->convert(s->q, sum, ZINF_DTYPE_F32, s->in[0], s->dtype, 515);
    code = code ? code : s->ops->add(s->q, sum, (const float *)(const void *)s->in[4], 515);
    return code ? code : s->ops->column_sum(s->q, columns, s->in[1], s->dtype, 33, 40);
}

/* ---- rows ---- */

static int run_embedding(struct doctor_side *s)
{
    struct zinf_embedding a = {.dtype = s->dtype, .rows = 40, .cols = 24, .count = 17};
    a.ids = (const int32_t *)(const void *)s->in[DOCTOR_IDS], a.table = s->in[0], a.dx = s->in[1];
    a.x = result(s, 40 * 24, s->dtype), a.d_table = result(s, 17 * 24, ZINF_DTYPE_F32);
    int code = s->ops->embedding_forward(s->q, &a);
    return code ? code : s->ops->embedding_backward(s->q, &a);
}

static int loss_of(struct doctor_side *s, int64_t cols, int64_t ld)
{
    const uint64_t bytes = 5 * (uint64_t)ld * sizeof(float);
    struct zinf_cross_entropy a = {.rows = 5, .cols = cols, .ld = ld, .scale = 0.5f};
    a.targets = (const int32_t *)(const void *)s->in[DOCTOR_IDS];
    a.logits = result(s, 5 * (uint64_t)ld, ZINF_DTYPE_F32);
    a.max = result(s, 5, ZINF_DTYPE_F32), a.sum = result(s, 5, ZINF_DTYPE_F32);
    a.target_logit = result(s, 5, ZINF_DTYPE_F32), a.loss = result(s, 5, ZINF_DTYPE_F32);
    int code = s->ops->copy(s->q, a.logits, s->in[4], bytes);
    code = code ? code : s->ops->cross_entropy_start(s->q, &a);
    code = code ? code : s->ops->cross_entropy_update(s->q, &a);
    code = code ? code : s->ops->cross_entropy_finish(s->q, &a);
    return code ? code : s->ops->cross_entropy_backward(s->q, &a);
}

/* A GPU makes the sums of short rows by another kernel than those of wide rows. */
static int run_loss(struct doctor_side *s)
{
    int code = loss_of(s, 300, 304);
    return code ? code : loss_of(s, 3004, 3008);
}

/* The choices of 9 rows, rows picked by number, weighed and added up. */
static int run_experts(struct doctor_side *s)
{
    static const int32_t picks[] = {3, 0, 8, 7, 4};
    enum { ROWS = 9, COLS = 40, N = 5, WIDTH = 72 };
    struct zinf_route r = {.rows = ROWS, .cols = COLS, .n_chosen = 3, .normalised = true};
    struct zinf_rows g = {.n = N, .cols = WIDTH, .x_dtype = s->dtype, .y_dtype = s->dtype};
    struct zinf_weigh w = {.n = N, .cols = WIDTH, .ld = COLS, .dtype = s->dtype};
    void *rows = NULL;
    r.logits = r.d_weights = (const float *)(const void *)s->in[4];
    r.weights = result(s, ROWS * COLS, ZINF_DTYPE_F32);
    r.d_logits = result(s, ROWS * COLS, ZINF_DTYPE_F32);
    w.d_weights = result(s, ROWS * COLS, ZINF_DTYPE_F32);
    w.a = result(s, N * WIDTH, s->dtype), w.b = result(s, N * WIDTH, s->dtype);
    float *sums = result(s, ROWS * WIDTH, ZINF_DTYPE_F32);
    int code = put(s, picks, sizeof picks, &rows);
    code = code ? code : s->ops->route_forward(s->q, &r);
    code = code ? code : s->ops->route_backward(s->q, &r);
    w.rows = g.rows = rows, g.x = s->in[0], g.y = w.a;
    code = code ? code : s->ops->gather_rows(s->q, &g);
    g.x = s->in[1], g.y = w.b;
    code = code ? code : s->ops->gather_rows(s->q, &g);
    w.weights = (const float *)(const void *)s->in[5];
    code = code ? code : s->ops->weigh_rows(s->q, &w);
    g.x = w.b, g.y = sums, g.y_dtype = ZINF_DTYPE_F32, g.scale = w.weights, g.scale_ld = COLS;
    return code ? code : s->ops->scatter_rows(s->q, &g);
}

static int run_unpacking(struct doctor_side *s, enum zinf_form form)
{
    const struct zinf_quantized p = zinf_quantized_of(form, 5, 203);
    struct zinf_dequantize a = {.quantized = p, .rows = 5, .count = 1, .dtype = s->dtype};
    float *values = malloc(p.n_elems * sizeof *values),
          *scales = malloc(p.n_blocks * sizeof *scales);
    void *image = malloc(p.bytes), *there = NULL;
    int code = values && scales && image ? 0 : zinf_fail(-ENOMEM, "no memory for an image");
    for (uint64_t i = 0; !code && i < p.n_elems; i++)
        values[i] = (float)((int)(i * 37 % 101) - 50) / 60.0f;
    if (!code) {
        zinf_quantize(&p, values, 0, p.n_elems, image, scales);
        zinf_quantize_finish(&p, image, scales);
        a.w = result(s, p.n_elems, s->dtype);
        code = put(s, image, p.bytes, &there);
    }
    a.image = there;
    code = code ? code : s->ops->dequantize(s->q, &a);
    free(values);
    free(scales);
    free(image);
    return code;
}

static int run_quantized(struct doctor_side *s)
{
    int code = run_unpacking(s, ZINF_FORM_NF4_DOUBLE);
    return code ? code : run_unpacking(s, ZINF_FORM_INT8);
}

const struct doctor_operation doctor_operations[] = {
    {"matmul", run_matmul},
    {"norm", run_norm},
    {"norm of wide rows", run_wide_norm},
    {"norm of unaligned rows", run_unaligned_norm},
    {"sum and norm", run_sum_and_norm},
    {"attention", run_attention},
    {"attention over other keys", run_cross_attention},
    {"attention over a cache", run_cached_attention},
    {"activation", run_activations},
    {"activation with sums", run_activation_sums},
    {"gated activation", run_gated},
    {"rope", run_rope},
    {"residual and dropout", run_residual},
    {"sums", run_sums},
    {"embedding", run_embedding},
    {"loss", run_loss},
    {"softcap", run_softcap},
    {"experts", run_experts},
    {"quantised weights", run_quantized},
};
const int doctor_n_operations = sizeof doctor_operations / sizeof *doctor_operations;

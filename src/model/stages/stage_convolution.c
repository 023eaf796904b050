/*
 * stage_convolution: what a convolution along the sequence adds to a layer's output: norm(x +
 * act(dropout(conv(rows)))), where a token sees the neighbours of its own document. It is a product
 * of rows that lie beside their neighbours; those are made again for backward, from the input.
 *
 * A chunk of a sequence carries its rows, and sees those of its neighbours there. Backward adds to
 * the carried gradients of both, in fp32; those of its own rows are complete when all chunks have
 * added to them, and a pass of its own takes them.
 */
#include "model/stages/stages.h"

enum { ROWS_ALIGN = 256 };

struct kept {
    void *product, *sum; /* [rows][hidden]: with its dropout; in front of the norm */
    struct norm_kept norm;
};

static uint64_t count(const struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    return (uint64_t)(frame_rows(f) * s->hidden);
}

static struct kept keep(struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    struct kept k;
    k.product = frame_keep(f, count(f) * frame_width(f));
    k.sum = frame_keep(f, count(f) * frame_width(f));
    k.norm = part_norm_keep(f, &s->norm, 1);
    return k;
}

static struct frame_linear linear_of(const struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    return (struct frame_linear){0, s->w, s->b, 0, false};
}

/* ---- rows and those on both sides of them ---- */

/* How many rows of other chunks are on each side of the call's rows. */
static int64_t n_beside(const struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    return f->compute->chunk.whole ? s->width / 2 : 0;
}
_Static_assert(ZINF_UNFOLD_MAX_WIDTH / 2 <= ZINF_INPUT_MARGIN,
               "segments on both sides of a chunk are at hand");

/* Scratch for the call's rows and those beside them. */
struct rows {
    void *first, *own, *behind;
    uint64_t bytes; /* of the rows on one side */
};

/* so_many: numbers of a row. The call's own rows are aligned, as a product wants them. */
static struct rows take_scratch(struct zinf_frame *f, int64_t so_many)
{
    const uint64_t row = (uint64_t)so_many * frame_width(f), own = (uint64_t)frame_rows(f) * row;
    const uint64_t bytes = (uint64_t)n_beside(f) * row, front = zinf_align_up(bytes, ROWS_ALIGN);
    char *base = frame_scratch(f, front + own + bytes);
    struct rows rows = {.bytes = bytes};
    if (f->queue) {
        rows.own = base + front;
        rows.first = base + front - bytes;
        rows.behind = base + front + own;
    }
    return rows;
}

static bool is_there(const struct zinf_frame *f, int64_t row)
{
    return row >= 0 && row < frame_visited(f);
}

/* The number in the sequence of row i of those beside the call's: first those in front. */
static int64_t row_beside(const struct zinf_frame *f, int64_t i)
{
    const int64_t n = n_beside(f), first = f->compute->chunk.first;
    return i < n ? first - n + i : first + frame_length(f) + i - n;
}

/* Where it is in such scratch of rows with `hidden` numbers of so many bytes. */
static void *at_beside(const struct zinf_frame *f, const struct rows *rows, int64_t i,
                       uint64_t width)
{
    const struct convolution_spec *s = f->stage->spec;
    const int64_t n = n_beside(f);
    char *side = i < n ? rows->first : rows->behind;
    return f->queue ? side + (uint64_t)((i < n ? i : i - n) * s->hidden) * width : NULL;
}

/* The rows that the call sees, zeros where the sequence has none. */
static int see_rows(struct zinf_frame *f, const void **x)
{
    const struct convolution_spec *s = f->stage->spec;
    const uint64_t width = frame_width(f), row_bytes = (uint64_t)s->hidden * width;
    *x = f->in[1];
    if (!f->compute->chunk.whole)
        return 0;
    const struct rows rows = take_scratch(f, s->hidden);
    *x = rows.first;
    int code =
        frame_copy(f, rows.own, frame_carried(f, (uint64_t)s->hidden, f->compute->chunk.first),
                   count(f) * width);
    for (int64_t i = 0; !code && i < 2 * n_beside(f); i++) {
        const int64_t row = row_beside(f, i);
        void *to = at_beside(f, &rows, i, width);
        code = is_there(f, row)
                   ? frame_copy(f, to, frame_carried(f, (uint64_t)s->hidden, row), row_bytes)
                   : frame_zero(f, to, row_bytes);
    }
    return code;
}

static struct zinf_unfold unfold_args(const struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    const int32_t *segments = f->in[2];
    return (struct zinf_unfold){
        .dtype = f->compute->dtype,
        .batch = f->compute->batch,
        .seq = frame_length(f) + 2 * n_beside(f),
        .cols = s->hidden,
        .width = s->width,
        .segments = f->queue ? segments - n_beside(f) : segments,
        .x = f->in[1],
    };
}

/* *out: rows beside their neighbours, in scratch. */
static int unfold(struct zinf_frame *f, void **out)
{
    const struct convolution_spec *s = f->stage->spec;
    const struct rows rows = take_scratch(f, s->hidden * s->width);
    struct zinf_unfold args = unfold_args(f);
    const uint64_t start = frame_mark(f);
    int code = see_rows(f, &args.x);
    args.y = rows.first;
    *out = rows.own;
    if (!code)
        code = frame_unfold(f, &args);
    frame_release(f, start);
    return code;
}

/* ---- gradients of rows in chunks ---- */

static int add_sums(struct zinf_frame *f, int64_t row, const void *from, uint64_t n)
{
    const struct convolution_spec *s = f->stage->spec;
    float *sums = frame_d_carried(f, (uint64_t)s->hidden, row);
    const struct zinf_residual sum = {
        .dtype = ZINF_DTYPE_F32, .n = (int64_t)n, .x = sums, .r = from, .y = sums};
    return frame_residual(f, &sum);
}

/* Adds d_x, of the rows that the call sees, to the carried gradients. */
static int give_rows(struct zinf_frame *f, const struct rows *d_x)
{
    const struct convolution_spec *s = f->stage->spec;
    const uint64_t beside = (uint64_t)(n_beside(f) * s->hidden), n = count(f) + 2 * beside;
    float *sums = frame_scratch(f, n * sizeof(float));
    struct rows in_sums = {0};
    if (f->queue)
        in_sums = (struct rows){.first = sums, .own = sums + beside, .behind = sums + n - beside};
    int code = frame_convert(f, sums, ZINF_DTYPE_F32, d_x->first, f->compute->dtype, n);
    if (!code)
        code = add_sums(f, f->compute->chunk.first, in_sums.own, count(f));
    for (int64_t i = 0; !code && i < 2 * n_beside(f); i++)
        if (is_there(f, row_beside(f, i)))
            code = add_sums(f, row_beside(f, i), at_beside(f, &in_sums, i, sizeof(float)),
                            (uint64_t)s->hidden);
    return code;
}

/* From the gradient d of the product to that of the rows: in chunks to the carried one, from which
 * carry_backward takes what the input's gets. */
static int rows_backward(struct zinf_frame *f, const void *d)
{
    const struct convolution_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(f);
    const bool chunks = f->compute->chunk.whole;
    const struct rows d_rows = take_scratch(f, s->hidden * s->width);
    struct zinf_unfold args = unfold_args(f);
    struct rows d_x = {.first = f->d_in[1]};
    int code = frame_linear_backward_input(f, &linear, d, d_rows.own);
    if (!code && chunks)
        code = frame_zero(f, d_rows.first, d_rows.bytes);
    if (!code && chunks)
        code = frame_zero(f, d_rows.behind, d_rows.bytes);
    if (chunks)
        d_x = take_scratch(f, s->hidden);
    args.dy = d_rows.first;
    args.dx = d_x.first;
    args.beta_dx = f->d_in_adds[1] && !chunks ? 1.0f : 0.0f;
    if (!code)
        code = frame_unfold_backward(f, &args);
    if (!code && chunks)
        code = give_rows(f, &d_x);
    return !code && chunks && !f->d_in_adds[1]
               ? frame_zero(f, f->d_in[1], count(f) * frame_width(f))
               : code;
}

static int mask(struct zinf_frame *f, void *x)
{
    const struct convolution_spec *s = f->stage->spec;
    return frame_mask(f, x, s->dropout, s->site, frame_length(f) * s->hidden);
}

static int forward(struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(f);
    const struct kept k = keep(f);
    const uint64_t start = frame_mark(f);
    struct zinf_residual sum = {
        .dtype = f->compute->dtype, .n = (int64_t)count(f), .x = f->in[0], .y = k.sum};
    void *rows;
    int code;
    if ((code = unfold(f, &rows)) || (code = frame_linear(f, &linear, rows, k.product)) ||
        (code = mask(f, k.product)))
        return code;
    frame_release(f, start);
    sum.r = rows = frame_scratch(f, count(f) * frame_width(f));
    if ((code = frame_activation(f, s->activation, k.product, rows, count(f))) ||
        (code = frame_residual(f, &sum)))
        return code;
    /* what is made again is kept without the output */
    return part_join(f, &s->norm, k.norm, k.sum, f->pass == ZINF_PASS_RECOMPUTE ? rows : f->out[0]);
}

/* d: the gradient of what the activation gave, to that of the rows, and of the weights. */
static int product_backward(struct zinf_frame *f, const struct kept *k, void *d)
{
    const struct convolution_spec *s = f->stage->spec;
    const struct frame_linear linear = linear_of(f);
    void *rows;
    int code;
    if ((code = frame_activation_backward(f, s->activation, d, k->product, d, NULL, count(f))) ||
        (code = mask(f, d)) || (code = unfold(f, &rows)) ||
        (code = frame_linear_backward_weight(f, &linear, d, rows)) || !f->d_in[1])
        return code;
    return rows_backward(f, d);
}

static int backward(struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    const struct kept k = keep(f);
    void *d_x, *d = frame_scratch(f, count(f) * frame_width(f));
    int code;
    if ((f->compute->chunk.whole && (code = attention_chunk_clear(f))) ||
        (code = part_start_gradient(f, s->hidden, &d_x)) || (code = frame_zero_gaps(f, 0)) ||
        (code = part_join_backward(f, &s->norm, k.norm, k.sum, d_x)) ||
        (code = frame_copy(f, d, d_x, count(f) * frame_width(f))) ||
        (code = product_backward(f, &k, d)))
        return code;
    return part_finish_gradient(f, s->hidden, d_x);
}

/* ---- chunks ---- */

static bool looks_ahead(const void *spec)
{
    (void)spec;
    return true;
}

static int carry(struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    void *own = frame_carried(f, (uint64_t)s->hidden, f->compute->chunk.first);
    return frame_copy(f, own, f->in[1], count(f) * frame_width(f));
}

static int carry_backward(struct zinf_frame *f)
{
    const struct convolution_spec *s = f->stage->spec;
    const float *sums = frame_d_carried(f, (uint64_t)s->hidden, f->compute->chunk.first);
    void *own = frame_scratch(f, count(f) * frame_width(f)), *d_x = f->d_in[1];
    const struct zinf_residual sum = {
        .dtype = f->compute->dtype, .n = (int64_t)count(f), .x = d_x, .r = own, .y = d_x};
    int code = frame_zero_grads(f, 0);
    if (code || !d_x)
        return code;
    code = frame_convert(f, own, f->compute->dtype, sums, ZINF_DTYPE_F32, count(f));
    return code ? code : frame_residual(f, &sum);
}

const struct zinf_stage_ops zinf_stage_convolution = {
    .name = "convolution",
    .recomputes = true,
    .passes = true,
    .looks_ahead = looks_ahead,
    .forward = forward,
    .backward = backward,
    .carry = carry,
    .carry_backward = carry_backward,
};

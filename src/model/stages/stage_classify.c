/*
 * stage_classify: classes of samples, or one number of each, by their first token: logits =
 * out(dropout(act(dense(first)))), and their loss; or by their last token: out(last). A sample has
 * one row here, so everything is kept and small; logits are fp32.
 */
#include "model/stages/stages.h"

/* What forward leaves for backward. */
struct kept {
    void *first;                     /* [batch][hidden], with its dropout */
    void *dense, *act;               /* [batch][hidden]; with its dropout; without dense: first */
    float *logits;                   /* [batch][classes] */
    float *max, *sum, *target_logit; /* [batch] */
    float *logit_sum;                /* [batch], where labels are smoothed */
    int32_t *max_at;                 /* where the largest logit has a loss of its own */
};

static int64_t hidden_of(const struct zinf_frame *f)
{
    return f->graph->values[f->stage->in.at[0]].cols;
}

static bool has_dense(const struct zinf_frame *f)
{
    const struct classify_spec *s = f->stage->spec;
    return s->dense_w >= 0;
}

/* Scores, which a loss of pairs is made of behind this stage. */
static bool tells_scores(const struct zinf_frame *f)
{
    return f->graph->values[f->stage->out.at[0]].kind != ZINF_VALUE_LOSS;
}

static uint64_t row_bytes(const struct zinf_frame *f)
{
    return (uint64_t)hidden_of(f) * frame_width(f);
}

/* Where logits alone are wanted nothing is left for later. */
static struct kept keep(struct zinf_frame *f)
{
    void *(*take)(struct zinf_frame *, uint64_t) =
        f->pass == ZINF_PASS_ROW ? frame_scratch : frame_keep;
    const struct classify_spec *s = f->stage->spec;
    const uint64_t batch = (uint64_t)f->compute->batch, bytes = batch * sizeof(float);
    struct kept k = {0};
    k.first = k.act = take(f, batch * row_bytes(f));
    k.dense = has_dense(f) ? take(f, batch * row_bytes(f)) : NULL;
    if (has_dense(f))
        k.act = take(f, batch * row_bytes(f));
    k.logits = take(f, bytes * (uint64_t)s->n_classes);
    k.max = take(f, bytes);
    k.sum = take(f, bytes);
    k.target_logit = take(f, bytes);
    if (f->compute->objective.smoothing > 0)
        k.logit_sum = take(f, bytes);
    if (f->compute->objective.max_z_loss > 0)
        k.max_at = take(f, bytes);
    return k;
}

/* The first token's row of a sample, in an array of all tokens' rows. */
static void *token_of(const struct zinf_frame *f, const void *rows, int64_t sample)
{
    const uint64_t before = (uint64_t)(sample * f->compute->seq) * row_bytes(f);
    return (char *)(uintptr_t)rows + (f->queue ? before : 0);
}

static void *sample_of(const struct zinf_frame *f, void *rows, int64_t sample)
{
    return (char *)rows + (f->queue ? (uint64_t)sample * row_bytes(f) : 0);
}

/* In place: what dense takes (second false) or out does, or its gradient, times the mask. */
static int mask(struct zinf_frame *f, void *x, bool second)
{
    const struct classify_spec *s = f->stage->spec;
    const float p = second ? s->dropout : s->first_dropout;
    return frame_mask_samples(f, x, p, s->site + second, hidden_of(f));
}

static struct frame_linear dense_of(const struct zinf_frame *f)
{
    const struct classify_spec *s = f->stage->spec;
    return (struct frame_linear){0, s->dense_w, s->dense_b, f->compute->batch, true};
}

static struct frame_linear out_of(const struct zinf_frame *f)
{
    const struct classify_spec *s = f->stage->spec;
    return (struct frame_linear){0, s->out_w, s->out_b, f->compute->batch, true};
}

static uint64_t count(const struct zinf_frame *f)
{
    return (uint64_t)(f->compute->batch * hidden_of(f));
}

/* The last tokens' rows among all. */
static struct zinf_rows last_rows(const struct zinf_frame *f)
{
    const struct classify_spec *s = f->stage->spec;
    return (struct zinf_rows){
        .n = f->compute->batch,
        .cols = hidden_of(f),
        .rows = f->in[s->last],
        .x_dtype = f->compute->dtype,
        .y_dtype = f->compute->dtype,
    };
}

/* The rows that samples are known by, with their dropout. */
static int take_rows(struct zinf_frame *f, void *rows)
{
    const struct classify_spec *s = f->stage->spec;
    int code = 0;
    if (s->last) {
        struct zinf_rows args = last_rows(f);
        args.x = f->in[0];
        args.y = rows;
        code = frame_gather(f, &args);
    }
    for (int64_t b = 0; !s->last && !code && b < f->compute->batch; b++)
        code = frame_copy(f, sample_of(f, rows, b), token_of(f, f->in[0], b), row_bytes(f));
    return code ? code : mask(f, rows, false);
}

/* From first to act, which are one without it. */
static int run_dense(struct zinf_frame *f, const struct kept *k)
{
    const struct classify_spec *s = f->stage->spec;
    const struct frame_linear dense = dense_of(f);
    int code = frame_linear(f, &dense, k->first, k->dense);
    if (!code)
        code = frame_activation(f, s->activation, k->dense, k->act, count(f));
    return code ? code : mask(f, k->act, true);
}

static int make_logits(struct zinf_frame *f, const struct kept *k)
{
    const struct classify_spec *s = f->stage->spec;
    const struct frame_linear out = out_of(f);
    const uint64_t n = (uint64_t)(f->compute->batch * s->n_classes), mark = frame_mark(f);
    void *narrow = frame_scratch(f, n * frame_width(f));
    int code = take_rows(f, k->first);
    if (!code && has_dense(f))
        code = run_dense(f, k);
    if (!code)
        code = frame_linear(f, &out, k->act, narrow);
    if (!code)
        code = frame_convert(f, k->logits, ZINF_DTYPE_F32, narrow, f->compute->dtype, n);
    frame_release(f, mark);
    return code;
}

/* ---- losses ---- */

static struct zinf_cross_entropy loss_of(const struct zinf_frame *f, const struct kept *k)
{
    const struct classify_spec *s = f->stage->spec;
    return (struct zinf_cross_entropy){
        .rows = f->compute->batch,
        .cols = s->n_classes,
        .ld = s->n_classes,
        .targets = f->in[1],
        .logits = k->logits,
        .max = k->max,
        .sum = k->sum,
        .target_logit = k->target_logit,
        .loss = f->out ? f->out[0] : NULL,
        .scale = f->loss_scale,
        .smoothing = f->compute->objective.smoothing,
        .vocab = s->n_classes,
        .logit_sum = k->logit_sum,
        .z_loss = f->compute->objective.z_loss,
        .max_z_loss = f->compute->objective.max_z_loss,
        .max_at = k->max_at,
    };
}

/* x [batch][cols] fp32, each row times its sample's weight. */
static int weigh(struct zinf_frame *f, float *x, int64_t cols)
{
    const uint64_t mark = frame_mark(f), bytes = (uint64_t)(f->compute->batch * cols) * sizeof *x;
    const struct zinf_weigh args = {
        .n = f->compute->batch,
        .cols = cols,
        .ld = 1,
        .dtype = ZINF_DTYPE_F32,
        .a = x,
        .b = frame_scratch(f, bytes), /* of no use here */
        .weights = f->in[2],
    };
    int code = frame_zero(f, args.b, bytes);
    if (!code)
        code = frame_weigh(f, &args);
    frame_release(f, mark);
    return code;
}

static struct zinf_squared_error error_of(const struct zinf_frame *f, const struct kept *k)
{
    return (struct zinf_squared_error){
        .rows = f->compute->batch, .x = k->logits, .labels = f->in[1], .scale = f->loss_scale};
}

static int make_loss(struct zinf_frame *f, const struct kept *k)
{
    const struct classify_spec *s = f->stage->spec;
    const struct zinf_cross_entropy loss = loss_of(f, k);
    struct zinf_squared_error error = error_of(f, k);
    int code;
    error.loss = f->out ? f->out[0] : NULL;
    if (s->number)
        return frame_squared_error(f, &error);
    if ((code = frame_loss(f, FRAME_LOSS_START, &loss)) ||
        (code = frame_loss(f, FRAME_LOSS_UPDATE, &loss)) ||
        (code = frame_loss(f, FRAME_LOSS_FINISH, &loss)))
        return code;
    return weigh(f, loss.loss, 1);
}

/* Logits become their gradient. */
static int loss_backward(struct zinf_frame *f, const struct kept *k)
{
    const struct classify_spec *s = f->stage->spec;
    const struct zinf_cross_entropy loss = loss_of(f, k);
    struct zinf_squared_error error = error_of(f, k);
    error.dx = k->logits;
    if (tells_scores(f))
        return frame_copy(f, k->logits, f->d_out[0],
                          (uint64_t)f->compute->batch * sizeof *k->logits);
    if (s->number)
        return frame_squared_error(f, &error);
    int code = frame_loss(f, FRAME_LOSS_BACKWARD, &loss);
    return code ? code : weigh(f, k->logits, s->n_classes);
}

/* ---- passes ---- */

static int forward(struct zinf_frame *f)
{
    const struct kept k = keep(f);
    int code = make_logits(f, &k);
    if (code || !tells_scores(f))
        return code ? code : make_loss(f, &k);
    return frame_copy(f, f->out[0], k.logits, (uint64_t)f->compute->batch * sizeof *k.logits);
}

/* The gradient of the first tokens' rows to that of all rows: the others have none. */
static int spread_first(struct zinf_frame *f, void *d_first)
{
    const bool adds = f->d_in_adds[0];
    int code = 0;
    for (int64_t b = 0; !code && b < f->compute->batch; b++) {
        void *to = token_of(f, f->d_in[0], b), *from = sample_of(f, d_first, b);
        struct zinf_residual sum = {
            .dtype = f->compute->dtype, .n = hidden_of(f), .x = to, .r = from, .y = to};
        code = adds ? frame_residual(f, &sum) : frame_copy(f, to, from, row_bytes(f));
    }
    return code;
}

/* That of the last ones, which behind a final norm is fp32. */
static int spread_last(struct zinf_frame *f, const void *d_last)
{
    const struct zinf_value *value = &f->graph->values[f->stage->in.at[0]];
    struct zinf_rows args = last_rows(f);
    args.x = d_last;
    args.y = f->d_in[0];
    if (value->gradient == ZINF_ELEMENT_F32)
        args.y_dtype = ZINF_DTYPE_F32;
    return frame_scatter(f, &args);
}

static int spread(struct zinf_frame *f, void *d_rows)
{
    const struct classify_spec *s = f->stage->spec;
    const struct zinf_value *value = &f->graph->values[f->stage->in.at[0]];
    int code = f->d_in_adds[0]
                   ? 0
                   : frame_zero(f, f->d_in[0], zinf_value_gradient_bytes(f->compute, value));
    if (code)
        return code;
    return s->last ? spread_last(f, d_rows) : spread_first(f, d_rows);
}

/* d: from the gradient at act to that at first, through the scratch d_first. */
static int dense_backward(struct zinf_frame *f, const struct kept *k, void *d, void *d_first)
{
    const struct classify_spec *s = f->stage->spec;
    const struct frame_linear dense = dense_of(f);
    int code;
    if ((code = mask(f, d, true)) ||
        (code = frame_activation_backward(f, s->activation, d, k->dense, d, NULL, count(f))) ||
        (code = frame_linear_backward_weight(f, &dense, d, k->first)) || !f->d_in[0])
        return code;
    return frame_linear_backward_input(f, &dense, d, d_first);
}

static int backward(struct zinf_frame *f)
{
    const struct classify_spec *s = f->stage->spec;
    const struct kept k = keep(f);
    const struct frame_linear out = out_of(f);
    const uint64_t n = (uint64_t)(f->compute->batch * s->n_classes);
    void *d_logits = frame_scratch(f, n * frame_width(f));
    void *d = frame_scratch(f, count(f) * frame_width(f)), *d_first = d;
    int code;
    if (has_dense(f))
        d_first = frame_scratch(f, count(f) * frame_width(f));
    if ((code = frame_zero_gaps(f, 0)) || (code = loss_backward(f, &k)) ||
        (code = frame_convert(f, d_logits, f->compute->dtype, k.logits, ZINF_DTYPE_F32, n)) ||
        (code = frame_linear_backward_weight(f, &out, d_logits, k.act)) ||
        (code = frame_linear_backward_input(f, &out, d_logits, d)) ||
        (has_dense(f) && (code = dense_backward(f, &k, d, d_first))) || !f->d_in[0])
        return code;
    code = mask(f, d_first, false);
    return code ? code : spread(f, d_first);
}

/* Logits of all samples: a sample has one row of them. */
static int row(struct zinf_frame *f)
{
    const struct classify_spec *s = f->stage->spec;
    const struct kept k = keep(f);
    const uint64_t n = (uint64_t)(f->compute->batch * s->n_classes);
    int code = make_logits(f, &k);
    return code ? code : frame_copy(f, f->out[0], k.logits, n * sizeof(float));
}

const struct zinf_stage_ops zinf_stage_classify = {
    .name = "classify",
    .forward = forward,
    .backward = backward,
    .row = row,
};

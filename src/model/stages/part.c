/*
 * part: how attention and feed-forward parts of a block begin and end: a norm in front of the first
 * product, and behind the last one a norm, dropout and the addition to the residual stream, each
 * where the spec has it.
 */
#include "model/stages/stages.h"

/* y = x + r */
static int add(struct zinf_frame *f, int64_t hidden, const void *x, const void *r, void *y)
{
    struct zinf_residual args = {
        .dtype = f->compute->dtype, .n = frame_rows(f) * hidden, .x = x, .r = r, .y = y};
    return frame_residual(f, &args);
}

/* ---- norms ---- */

struct norm_kept part_norm_keep(struct zinf_frame *f, const struct norm_spec *s, int64_t heads)
{
    uint64_t bytes = (uint64_t)frame_rows(f) * (uint64_t)heads * sizeof(float);
    struct norm_kept kept = {0};
    if (!norm_is_there(s))
        return kept;
    if (s->kind == ZINF_NORM_LAYER)
        kept.mean = frame_keep(f, bytes);
    kept.rstd = frame_keep(f, bytes);
    return kept;
}

struct zinf_norm part_norm(const struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                           const void *x, struct norm_kept kept)
{
    return (struct zinf_norm){
        .kind = s->kind,
        .dtype = f->compute->dtype,
        .rows = frame_rows(f),
        .cols = hidden,
        .eps = s->eps,
        .w_add = s->w_add,
        .x = x,
        .w = frame_weight(f, 0, s->w),
        .b = frame_weight(f, 0, s->b),
        .mean = kept.mean,
        .rstd = kept.rstd,
    };
}

/* d_x = beta d_x + the gradient at the norm's input */
static int norm_backward(struct zinf_frame *f, const struct norm_spec *s, struct zinf_norm args,
                         const void *dy, void *d_x, float beta)
{
    args.y = NULL;
    args.dy = dy;
    args.dx = d_x;
    args.beta_dx = beta;
    args.dw = frame_grad(f, 0, s->w);
    args.db = frame_grad(f, 0, s->b);
    return frame_norm_backward(f, &args);
}

static int64_t cols_of(const struct zinf_frame *f)
{
    return f->graph->values[f->stage->out.at[0]].cols;
}

int part_join(struct zinf_frame *f, const struct norm_spec *s, struct norm_kept kept,
              const void *sum, void *y)
{
    struct zinf_norm args = part_norm(f, s, cols_of(f), sum, kept);
    args.y = y;
    return frame_norm(f, &args);
}

int part_join_backward(struct zinf_frame *f, const struct norm_spec *s, struct norm_kept kept,
                       const void *sum, void *d_y)
{
    return norm_backward(f, s, part_norm(f, s, cols_of(f), sum, kept), d_y, d_y, 0);
}

/* ---- entry ---- */

struct zinf_norm part_norm_behind(struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                                  const void *x, struct norm_kept kept)
{
    struct zinf_queue *const queue = f->queue;
    frame_part_begin(f);
    const struct zinf_norm norm = part_norm(f, s, hidden, x, kept);
    f->queue = queue;
    return norm;
}

const struct zinf_norm *part_ahead(struct zinf_frame *f, const struct norm_spec *s, int64_t hidden,
                                   const void *x, struct norm_kept *kept, struct zinf_norm *norm)
{
    if (s->w < 0)
        return NULL;
    *norm = part_norm_behind(f, s, hidden, x, *kept);
    norm->y = kept->rows = frame_scratch(f, frame_rows_bytes(f, hidden));
    kept->made = true;
    return norm;
}

/* *rows: what the products take, in scratch where it is not x itself. */
static int normalise(struct zinf_frame *f, const struct part_entry *e, struct zinf_norm *norm,
                     const void **rows)
{
    *rows = e->kept.made ? e->kept.rows : norm->x;
    if (e->norm->w < 0 || e->kept.made)
        return 0;
    *rows = norm->y = frame_scratch(f, frame_rows_bytes(f, e->hidden));
    return frame_norm(f, norm);
}

int part_rows(struct zinf_frame *f, const struct part_entry *e, const void *x, const void **rows)
{
    struct zinf_norm norm = part_norm(f, e->norm, e->hidden, x, e->kept);
    return normalise(f, e, &norm, rows);
}

int part_rows_backward(struct zinf_frame *f, const struct part_entry *e, const void *x,
                       const void *d_rows, void *d_x)
{
    return e->norm->w < 0 ? add(f, e->hidden, d_x, d_rows, d_x)
                          : norm_backward(f, e->norm, part_norm(f, e->norm, e->hidden, x, e->kept),
                                          d_rows, d_x, 1);
}

int part_scale_columns(struct zinf_frame *f, const struct scales_spec *scales, int64_t cols,
                       void *rows)
{
    char *y = rows;
    int code = 0;
    for (int k = 0; !code && k < scales->n; k++) {
        struct zinf_heads args = {.dtype = f->compute->dtype,
                                  .rows = frame_rows(f),
                                  .n_heads = 1,
                                  .cols = scales->ranges[k].cols,
                                  .x = y,
                                  .x_ld = cols,
                                  .y = y,
                                  .y_ld = cols,
                                  .scale = scales->ranges[k].factor};
        if (zinf_heads_scaled(&args))
            code = frame_heads(f, &args);
        if (y) /* else only measuring */
            y += (uint64_t)args.cols * frame_width(f);
    }
    return code;
}

/* Product i, or its gradient. */
static int scale_columns(struct zinf_frame *f, const struct part_entry *e, uint32_t i)
{
    const struct scales_spec *s = e->products[i].scales;
    return s ? part_scale_columns(f, s, e->products[i].cols, e->products[i].y) : 0;
}

int part_enter(struct zinf_frame *f, const struct part_entry *e, const void *x)
{
    uint64_t start = frame_mark(f);
    const void *rows;
    int code = part_rows(f, e, x, &rows);
    for (uint32_t i = 0; !code && i < e->n; i++)
        code = frame_linear(f, &e->products[i].linear, rows, e->products[i].y);
    for (uint32_t i = 0; !code && i < e->n; i++)
        code = scale_columns(f, e, i);
    frame_release(f, start);
    return code;
}

int part_enter_backward(struct zinf_frame *f, const struct part_entry *e, const void *x, void *d_x)
{
    uint64_t start = frame_mark(f);
    const void *rows;
    int code = part_rows(f, e, x, &rows);
    void *d_rows = frame_scratch(f, frame_rows_bytes(f, e->hidden));
    void *share = e->n > 1 ? frame_scratch(f, frame_rows_bytes(f, e->hidden)) : NULL;
    for (uint32_t i = 0; !code && i < e->n; i++) {
        const struct frame_linear *linear = &e->products[i].linear;
        struct frame_linear weight = *linear;
        void *d_y = e->products[i].y;
        weight.bias = e->products[i].bias_is_summed ? -1 : weight.bias;
        if ((code = scale_columns(f, e, i)) ||
            (code = frame_linear_backward_weight(f, &weight, d_y, rows)) ||
            (code = frame_linear_backward_input(f, linear, d_y, i ? share : d_rows)))
            break;
        code = i ? add(f, e->hidden, d_rows, share, d_rows) : 0;
    }
    if (!code)
        code = part_rows_backward(f, e, x, d_rows, d_x);
    frame_release(f, start);
    return code;
}

/* ---- exit ---- */

static struct zinf_residual branch_args(const struct zinf_frame *f, const struct part_exit *e)
{
    uint64_t per_sample = (uint64_t)frame_length(f) * (uint64_t)e->hidden;
    return (struct zinf_residual){
        .dtype = f->compute->dtype,
        .n = frame_rows(f) * e->hidden,
        .dropout = frame_dropout_at(f, e->dropout, e->site, per_sample),
        .scale = e->scale,
    };
}

int part_add_branch(struct zinf_frame *f, const struct part_exit *e, const void *branch,
                    const void *x, void *y, bool again)
{
    struct zinf_residual args = branch_args(f, e);
    const uint64_t start = frame_mark(f);
    int code = 0;
    args.x = x;
    args.r = branch;
    args.y = y;
    if (e->norm->w >= 0) {
        struct zinf_norm norm = part_norm(f, e->norm, e->hidden, branch, e->kept);
        args.r = norm.y = frame_scratch(f, frame_rows_bytes(f, e->hidden));
        code = frame_norm(f, &norm);
    }
    frame_release(f, start);
    if (code || again)
        return code;
    return e->next ? frame_residual_norm(f, &args, e->next) : frame_residual(f, &args);
}

int part_leave(struct zinf_frame *f, const struct part_exit *e, const void *in, const void *x,
               void *y, bool again)
{
    uint64_t start = frame_mark(f);
    void *branch = e->norm->w >= 0 ? e->product : frame_scratch(f, frame_rows_bytes(f, e->hidden));
    int code = frame_linear(f, &e->linear, in, branch);
    if (!code)
        code = part_add_branch(f, e, branch, x, y, again);
    frame_release(f, start);
    return code;
}

int part_leave_backward(struct zinf_frame *f, const struct part_exit *e, const void *d_y,
                        const void **out)
{
    struct zinf_residual args = branch_args(f, e);
    int code = 0;
    *out = d_y;
    if (args.dropout.p > 0 || zinf_residual_scale(&args) != 1) {
        args.r = d_y;
        *out = args.y = frame_scratch(f, frame_rows_bytes(f, e->hidden));
        code = frame_dropout(f, &args);
    }
    if (code || e->norm->w < 0)
        return code;
    struct zinf_norm norm = part_norm(f, e->norm, e->hidden, e->product, e->kept);
    void *d_product = frame_scratch(f, frame_rows_bytes(f, e->hidden));
    code = norm_backward(f, e->norm, norm, *out, d_product, 0);
    *out = d_product;
    return code;
}

/* ---- behind the parts ---- */

int part_scale_by(struct zinf_frame *f, uint32_t unit, int tensor,
                  const struct zinf_column_scale *of)
{
    const uint64_t start = frame_mark(f);
    float *one = frame_scratch(f, sizeof *one);
    float *gain = frame_scratch(f, (uint64_t)of->cols * sizeof *gain);
    const struct zinf_heads spread = {.dtype = ZINF_DTYPE_F32,
                                      .rows = 1,
                                      .n_heads = of->cols,
                                      .cols = 1,
                                      .x = one,
                                      .x_ld = 1,
                                      .y = gain,
                                      .y_ld = of->cols,
                                      .y_step = 1};
    struct zinf_column_scale args = *of;
    args.gain = gain;
    int code =
        frame_convert(f, one, ZINF_DTYPE_F32, frame_weight(f, unit, tensor), f->compute->dtype, 1);
    if (!code)
        code = frame_heads(f, &spread);
    if (!code)
        code = frame_scale_columns(f, &args);
    frame_release(f, start);
    return code;
}

int part_scale(struct zinf_frame *f, int64_t hidden, void *x)
{
    return part_scale_by(
        f, 1, 0,
        &(struct zinf_column_scale){
            .dtype = f->compute->dtype, .rows = frame_rows(f), .cols = hidden, .x = x, .y = x});
}

/* ---- the gradient of a stage's input ---- */

int part_start_gradient(struct zinf_frame *f, int64_t hidden, void **d_x)
{
    *d_x = f->d_out[0];
    if (!f->d_in[0] || f->d_in[0] == f->d_out[0] || f->d_in_adds[0])
        return 0;
    *d_x = f->d_in[0];
    return frame_copy(f, *d_x, f->d_out[0], frame_rows_bytes(f, hidden));
}

int part_finish_gradient(struct zinf_frame *f, int64_t hidden, const void *d_x)
{
    bool apart = f->d_in[0] && f->d_in[0] != d_x;
    return apart ? add(f, hidden, f->d_in[0], d_x, f->d_in[0]) : 0;
}

int part_pass_gradient(struct zinf_frame *f, int64_t hidden)
{
    if (!f->d_in[0] || f->d_in[0] == f->d_out[0])
        return 0;
    return f->d_in_adds[0] ? add(f, hidden, f->d_in[0], f->d_out[0], f->d_in[0])
                           : frame_copy(f, f->d_in[0], f->d_out[0], frame_rows_bytes(f, hidden));
}

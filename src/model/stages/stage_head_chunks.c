/* stage_head_chunks: products and arguments of one chunk of rows against one tile. */
#include "model/stages/stage_head.h"

/* Whether what it makes is the loss itself, and no value that a later stage makes a loss of. */
bool head_makes_loss(const struct zinf_frame *f)
{
    return f->graph->values[f->stage->out.at[0]].kind == ZINF_VALUE_LOSS;
}

const struct zinf_tensor *head_table_of(const struct zinf_frame *f, const struct chunk *k)
{
    return &frame_unit(f, k->unit)->tensors[k->shard];
}

struct zinf_cross_entropy head_loss_args(const struct zinf_frame *f, const struct head *h,
                                         const struct chunk *k)
{
    const struct head_spec *s = f->stage->spec;
    const struct zinf_tensor *table = head_table_of(f, k);
    const bool weighed = f->pass == ZINF_PASS_BACKWARD && !head_makes_loss(f);
    return (struct zinf_cross_entropy){
        .rows = k->count,
        .cols = (int64_t)table->rows,
        .ld = h->ld,
        .softcap = s->softcap,
        .first = (int64_t)table->pieces[0].rows.file_first,
        .targets = (const int32_t *)f->in[1] + (f->queue ? k->first : 0),
        .logits = k->logits,
        .max = head_at(h->max, k->first),
        .sum = head_at(h->sum, k->first),
        .target_logit = head_at(h->target_logit, k->first),
        .loss = f->out && f->out[0] && f->queue ? (float *)f->out[0] + k->first : NULL,
        .scale = weighed ? 1 : f->loss_scale,
        .row_scales = weighed && f->queue ? (const float *)f->d_out[0] + k->first : NULL,
        .d_dtype = h->d_dtype,
        .smoothing = h->objective.smoothing,
        .vocab = f->graph->vocab,
        .logit_sum = head_at(h->logit_sum, k->first),
        .z_loss = h->objective.z_loss,
        .max_z_loss = h->objective.max_z_loss,
        .max_at = head_id_at(h->max_at, k->first),
    };
}

/* The rows that the chunk is against, as products take them. */
static const void *table_rows(const struct zinf_frame *f, const struct head *h,
                              const struct chunk *k)
{
    return h->unit_rows ? head_rows_of(f, h, k->unit - f->stage->units.n, k->shard)
                        : frame_weight(f, k->unit, (int)k->shard);
}

/* The number of the tile's own bias; -1: none. */
static int bias_tensor(const struct zinf_frame *f, const struct chunk *k)
{
    const struct head_spec *s = f->stage->spec;
    return s->tile_bias ? s->tile_bias + (int)k->shard : -1;
}

static const void *norm_row(const struct zinf_frame *f, const struct head *h, int64_t row)
{
    uint64_t bytes = (uint64_t)(row * h->hidden) * frame_width(f);
    return f->queue ? (const char *)f->in[0] + bytes : f->in[0];
}

/* Of the tile's ids; NULL: none. */
static const void *bias_of(const struct zinf_frame *f, const struct chunk *k)
{
    const struct head_spec *s = f->stage->spec;
    const uint64_t first = f->queue ? head_table_of(f, k)->pieces[0].rows.file_first : 0;
    if (s->tile_bias)
        return frame_weight(f, k->unit, bias_tensor(f, k));
    return s->biased ? (const char *)frame_weight(f, 0, 0) + first * frame_width(f) : NULL;
}

/* That of the tile's own bias: sums over the chunk's rows of logits, from row to row with what lies
 * between them. */
static int bias_gradient(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    const int bias = bias_tensor(f, k);
    float *sum = frame_grad(f, k->unit, bias);
    const uint64_t mark = frame_mark(f);
    float *share = bias < 0 ? NULL : frame_scratch(f, (uint64_t)h->d_ld * sizeof *share);
    const struct zinf_residual args = {.dtype = ZINF_DTYPE_F32,
                                       .n = (int64_t)head_table_of(f, k)->rows,
                                       .x = sum,
                                       .r = share,
                                       .y = sum};
    int code = sum ? frame_column_sum(f, share, k->logits, h->d_dtype, k->count, h->d_ld) : 0;
    if (!code && sum)
        code = k->first ? frame_residual(f, &args)
                        : frame_copy(f, sum, share, (uint64_t)args.n * sizeof *sum);
    frame_release(f, mark);
    return code;
}

int head_logits(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    struct zinf_matmul args = {
        .m = k->count,
        .n = (int64_t)head_table_of(f, k)->rows,
        .k = h->hidden,
        .a = norm_row(f, h, k->first),
        .b = table_rows(f, h, k),
        .c = k->logits,
        .alpha = h->scale,
        .bias = bias_of(f, k),
        .a_dtype = f->compute->dtype,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_b = true,
        .lda = h->hidden,
        .ldb = h->hidden,
        .ldc = h->ld,
        .few_rows = f->compute->decoding != NULL,
    };
    return frame_matmul(f, &args);
}

int head_input_product(struct zinf_frame *f, const struct head *h, const struct chunk *k,
                       float *out, float beta)
{
    const struct zinf_matmul args = {
        .m = k->count,
        .n = h->hidden,
        .k = (int64_t)head_table_of(f, k)->rows,
        .a = k->logits,
        .b = table_rows(f, h, k),
        .c = out,
        .a_dtype = h->d_dtype,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .lda = h->d_ld,
        .ldb = h->hidden,
        .ldc = h->hidden,
        .alpha = h->scale,
        .beta = beta,
    };
    return frame_matmul(f, &args);
}

int head_table_gradient(struct zinf_frame *f, const struct head *h, const struct chunk *k)
{
    struct zinf_matmul args = {
        .m = (int64_t)head_table_of(f, k)->rows,
        .n = h->hidden,
        .k = k->count,
        .a = k->logits,
        .b = norm_row(f, h, k->first),
        .c = frame_grad(f, k->unit, (int)k->shard),
        .a_dtype = h->d_dtype,
        .b_dtype = f->compute->dtype,
        .c_dtype = ZINF_DTYPE_F32,
        .trans_a = true,
        .lda = h->d_ld,
        .ldb = h->hidden,
        .ldc = h->hidden,
        .alpha = h->scale,
        .beta = k->first ? 1 : 0,
    };
    int code = args.c ? frame_matmul(f, &args) : 0;
    return code ? code : bias_gradient(f, h, k);
}

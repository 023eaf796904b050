/*
 * stage_balance: the loss that keeps experts evenly used (Fedus et al., arXiv 2101.03961): with c
 * the share of all layers' rows that chose an expert and p its mean probability,
 * coefficient * n_experts * sum over experts of c p, of which every sample has a part. Its gradient
 * is that of p alone.
 *
 * Chunks of a sequence hand over what experts have had so far. The last one has the sequence's
 * loss, and its gradient, which is that of every chunk, goes back from chunk to chunk. Where chunks
 * are dealt in parts each finds what experts have had in all of them, and makes the gradient
 * itself.
 */
#include "model/stages/stages.h"

static uint64_t shares_of(const struct zinf_frame *f)
{
    const struct balance_spec *s = f->stage->spec;
    return (uint64_t)(f->compute->batch * 2 * s->n_experts);
}

static struct zinf_balance balance_args(const struct zinf_frame *f, const float *shares,
                                        float scale)
{
    const struct balance_spec *s = f->stage->spec;
    const struct zinf_compute *c = f->compute;
    const int64_t seq = c->chunk.whole ? c->chunk.whole : c->seq;
    double rows = (double)(c->batch * seq) * (double)s->n_layers;
    return (struct zinf_balance){
        .samples = c->batch,
        .cols = s->n_experts,
        .factor = (float)((double)(scale * s->coefficient) * (double)s->n_experts / (rows * rows)),
        .shares = shares,
    };
}

/* Whether the call has its sequence's last row. */
static bool is_last(const struct zinf_frame *f)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    return c->first < c->whole && c->first + f->compute->seq >= c->whole;
}

static bool in_parts(const struct zinf_frame *f)
{
    return f->compute->chunk.parts > 1;
}

/* Of parts: the sum over all chunks, in the order of their places. */
static int add_up_parts(struct zinf_frame *f, float *sum)
{
    const uint64_t bytes = shares_of(f) * sizeof(float);
    const float *all = frame_handed(f, bytes, 0); /* the first place is the first chunk's */
    const struct zinf_carried carried = {.handed = bytes};
    const uint64_t stride = zinf_carried_stride(&carried, 0) / sizeof(float);
    const int64_t cols = (int64_t)shares_of(f), n = f->compute->chunk.n;
    int code = 0;
    for (int64_t at = 0; !code && at < cols; at += ZINF_HEADS_MAX_SUM) {
        const int64_t left = cols - at;
        const struct zinf_heads args = {.dtype = ZINF_DTYPE_F32,
                                        .rows = 1,
                                        .n_heads = n,
                                        .cols =
                                            left < ZINF_HEADS_MAX_SUM ? left : ZINF_HEADS_MAX_SUM,
                                        .x = all ? all + at : NULL,
                                        .x_ld = n * (int64_t)stride,
                                        .x_step = (int64_t)stride,
                                        .y = f->queue ? sum + at : sum,
                                        .y_ld = cols};
        code = frame_heads(f, &args);
    }
    return code;
}

/* Of chunks: what experts have had up to this one, which is handed over. */
static int add_up(struct zinf_frame *f, float *sum)
{
    if (in_parts(f))
        return add_up_parts(f, sum);
    const struct zinf_residual add = {
        .dtype = ZINF_DTYPE_F32, .n = (int64_t)shares_of(f), .x = sum, .r = f->in[0], .y = sum};
    const uint64_t bytes = shares_of(f) * sizeof(float);
    const struct zinf_chunk *c = &f->compute->chunk;
    int code = part_take_handed(f, sum, bytes);
    if (!code)
        code = c->first ? frame_residual(f, &add) : frame_copy(f, sum, f->in[0], bytes);
    return code || !c->ends ? code : frame_copy(f, frame_handed(f, bytes, c->first), sum, bytes);
}

static int forward(struct zinf_frame *f)
{
    const bool chunks = f->compute->chunk.whole;
    float *sum = chunks ? frame_keep(f, shares_of(f) * sizeof(float)) : NULL;
    struct zinf_balance args = balance_args(f, chunks ? sum : f->in[0], 1);
    int code = chunks ? add_up(f, sum) : 0;
    args.loss = f->out[0];
    if (code || !chunks || is_last(f))
        return code ? code : frame_balance(f, &args);
    return frame_zero(f, args.loss, (uint64_t)args.samples * sizeof(float));
}

/* The gradient of each chunk is the last one's. */
static int chunk_backward(struct zinf_frame *f, const float *sum)
{
    const struct zinf_chunk *c = &f->compute->chunk;
    const int64_t step = f->compute->seq;
    const uint64_t bytes = shares_of(f) * sizeof(float);
    struct zinf_balance args = balance_args(f, sum, f->mean_scale);
    int code;
    args.d_shares = f->d_in[0];
    if (c->first >= c->whole)
        return frame_zero(f, args.d_shares, bytes);
    if (in_parts(f))
        return frame_balance(f, &args);
    const float *later = frame_d_handed(f, bytes, c->first);
    code = is_last(f) ? frame_balance(f, &args) : frame_copy(f, args.d_shares, later, bytes);
    return code || !c->first
               ? code
               : frame_copy(f, frame_d_handed(f, bytes, c->first - step), args.d_shares, bytes);
}

static int backward(struct zinf_frame *f)
{
    const bool chunks = f->compute->chunk.whole;
    const float *sum = chunks ? frame_keep(f, shares_of(f) * sizeof(float)) : NULL;
    struct zinf_balance args = balance_args(f, f->in[0], f->mean_scale);
    args.d_shares = f->d_in[0];
    if (!args.d_shares)
        return 0;
    return chunks ? chunk_backward(f, sum) : frame_balance(f, &args);
}

/* Of parts: the chunk's own, in its place. */
static int carry(struct zinf_frame *f)
{
    const uint64_t bytes = shares_of(f) * sizeof(float);
    if (in_parts(f))
        return frame_copy(f, frame_handed(f, bytes, f->compute->chunk.first), f->in[0], bytes);
    return add_up(f, frame_keep(f, bytes));
}

const struct zinf_stage_ops zinf_stage_balance = {
    .name = "balance",
    .forward = forward,
    .backward = backward,
    .carry = carry,
};

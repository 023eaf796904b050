/*
 * stage_balance: the loss that keeps experts evenly used (Fedus et al., arXiv 2101.03961): with c
 * the share of all layers' rows that chose an expert and p its mean probability,
 * coefficient * n_experts * sum over experts of c p, of which every sample has a part. Its gradient
 * is that of p alone.
 */
#include "model/stages/stages.h"

static struct zinf_balance balance_args(const struct zinf_frame *f, float scale)
{
    const struct balance_spec *s = f->stage->spec;
    double rows = (double)(f->compute->batch * f->compute->seq) * (double)s->n_layers;
    return (struct zinf_balance){
        .samples = f->compute->batch,
        .cols = s->n_experts,
        .factor = (float)((double)(scale * s->coefficient) * (double)s->n_experts / (rows * rows)),
        .shares = f->in[0],
    };
}

static int forward(struct zinf_frame *f)
{
    struct zinf_balance args = balance_args(f, 1);
    args.loss = f->out[0];
    return frame_balance(f, &args);
}

static int backward(struct zinf_frame *f)
{
    struct zinf_balance args = balance_args(f, f->mean_scale);
    args.d_shares = f->d_in[0];
    return args.d_shares ? frame_balance(f, &args) : 0;
}

const struct zinf_stage_ops zinf_stage_balance = {
    .name = "balance",
    .forward = forward,
    .backward = backward,
};
